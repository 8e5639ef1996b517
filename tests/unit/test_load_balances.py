"""What the load watches: each loss, doubling, jump and leftover is told, and what is right is not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from e2e.clients.kafka_clients.watch.balance import (
    Balance,
    Copies,
    GroupOffsets,
    KeptTopic,
    Move,
    Subject,
    Topics,
    Transactions,
    judge_configs,
    judge_kept,
    judge_moves,
)
from e2e.clients.kafka_clients.watch.moments import Moment
from e2e.harness.load import client_impact, moment_of
from e2e.harness.migration import View

KEPT = KeptTopic(earliest=0, latest=100, earliest_at_end=0, latest_at_end=100, read=100)


def test_kept_records_that_are_all_there() -> None:
    assert judge_kept({"old": KEPT}) == Balance(Subject.KEPT, "100 older than the static retention, 100 still read", ())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"read": 0}, "old: 100 of 100 records are gone"),
        ({"earliest_at_end": 100}, "old: the log starts at 100, not at 0"),
        ({"latest_at_end": 90}, "old: the log ends at 90, not at 100"),
    ],
)
def test_kept_records_that_are_gone(change: dict[str, int], told: str) -> None:
    assert judge_kept({"new": KEPT, "old": replace(KEPT, **change)}).broken == (told,)


def transactions() -> Transactions:
    places = {1: {(0, 0)}, 2: {(1, 0)}}
    return Transactions({1, 2}, {3, 4}, {5}, live=dict(places), again=dict(places))


def test_transactions_as_they_must_be() -> None:
    ledger = transactions()
    ledger.again[5] = {(0, 9)}  # its outcome is unknown, so it may be there
    balance = ledger.judge()
    assert balance.broken == ()
    assert balance.said == "2 records committed, 2 of them seen, 2 aborted, 0 of them seen, 1 of unknown outcome"


def test_a_committed_record_that_is_lost() -> None:
    ledger = transactions()
    del ledger.again[2]
    assert ledger.judge().broken == ("1 records committed and not seen at the end: 2",)
    del ledger.live[2]
    assert len(ledger.judge().broken) == 2


def test_a_committed_record_that_is_doubled() -> None:
    ledger = transactions()
    ledger.again[2] = {(1, 0), (1, 7)}
    assert ledger.judge().broken == ("1 records doubled: 2",)


def test_a_record_that_moved_to_another_offset_counts_as_doubled() -> None:
    ledger = transactions()
    ledger.again[2] = {(1, 7)}
    assert ledger.judge().broken == ("1 records doubled: 2",)


@pytest.mark.parametrize("when", ["live", "again"])
def test_an_aborted_record_that_is_seen(when: str) -> None:
    ledger = transactions()
    getattr(ledger, when)[3] = {(0, 5)}
    assert ledger.judge().broken == ("1 records aborted and seen: 3",)


def test_transactions_without_any_prove_nothing() -> None:
    assert len(Transactions().judge().broken) == 1


def group() -> GroupOffsets:
    """Return a group whose member has read and committed five records of partition 0."""
    offsets = GroupOffsets()
    offsets.attempt({0: 10})
    offsets.acknowledge({0: 10})
    offsets.assigned()
    for offset in range(10, 15):
        offsets.read(0, offset)
    offsets.attempt({0: 15})
    offsets.acknowledge({0: 15})
    offsets.fetched({0: 15})
    return offsets


def test_group_offsets_that_continue() -> None:
    offsets = group()
    offsets.assigned()
    offsets.read(0, 15)
    offsets.attempt({0: 16})
    for answered in (15, 16):  # nobody knows yet whether the commit is stored
        offsets.fetched({0: answered})
    offsets.acknowledge({0: 16})
    assert offsets.judge({0: 16}).broken == ()


@pytest.mark.parametrize(
    ("answered", "told"),
    [
        (10, "partition 0: the committed offset is back at 10, 15 was committed"),
        (20, "partition 0: the committed offset is ahead at 20, 15 was committed"),
        (-1001, "partition 0: the committed offset 15 is lost"),
    ],
)
def test_a_committed_offset_that_does_not_continue(answered: int, told: str) -> None:
    offsets = group()
    offsets.fetched({0: answered})
    assert offsets.judge({0: 15}).broken == (told,)
    offsets.fetched({0: answered})
    assert offsets.judge({0: 15}).broken == (f"{told} (2 times)",)


def test_reading_that_does_not_continue() -> None:
    offsets = group()
    offsets.read(0, 17)
    offsets.read(0, 16)
    offsets.assigned()
    offsets.read(0, 9)
    assert offsets.judge({0: 15}).broken == (
        "partition 0: reading jumped from 15 to 17",
        "partition 0: reading went back from 18 to 16",
        "partition 0: the group goes on back at 9, 15 was committed",
    )


def test_a_group_that_stands_still() -> None:
    assert group().judge({0: 40}).broken == ("partition 0: 15 of 40 committed at the end",)
    assert GroupOffsets().judge({}).broken == ("nothing was read, so nothing is proven",)


MOVED = Copies(wanted=(1, 2), replicas=(1, 2), in_sync=(2, 1), hosts=(1, 2), end=20, end_when_written=20)


def test_reassignments_that_are_complete_and_right() -> None:
    moves = [Move("dual-write", 3.6, completed=True), Move("mixed", 3.2, completed=True)]
    assert judge_moves(moves, {0: MOVED}) == Balance(Subject.MOVES, "dual-write in 3.6 s, mixed in 3.2 s", ())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"replicas": (0, 1)}, "partition 0: replicas at [0, 1], not at [1, 2]"),
        ({"in_sync": (1,)}, "partition 0: in-sync replicas at [1], not at [1, 2]"),
        ({"hosts": (0, 1, 2)}, "partition 0: directories at [0, 1, 2], not at [1, 2]"),
        ({"end": 19}, "partition 0: the log ends at 19, not at 20"),
    ],
)
def test_a_reassignment_that_is_not_right(change: dict[str, object], told: str) -> None:
    assert judge_moves([], {0: replace(MOVED, **change), 1: MOVED}).broken == (told,)


def test_a_reassignment_that_does_not_end() -> None:
    moves = [Move("mixed", 120.0, completed=False)]
    assert judge_moves(moves, {0: MOVED}).broken == ("mixed: not complete after 120 s",)


def test_topics_that_are_created_and_deleted() -> None:
    topics = Topics(created={"a", "b", "c"}, deleted={"c"})
    assert topics.judge({"a", "b", "others"}).broken == ()
    assert topics.judge({"a", "c"}).broken == (
        "1 were created and do not exist: b",
        "1 were deleted and exist: c",
    )
    topics.unanswered = {"b"}
    assert topics.judge({"a"}).broken == ("1 requests were never answered: b",)
    assert Topics().judge(()) == Balance(Subject.TOPICS, "none was asked for", ())


def test_configs_that_hold() -> None:
    assert judge_configs({"topic a x": "1"}, {"topic a x": "1"}, 1).broken == ()
    assert judge_configs({"topic a x": "1"}, {"topic a x": None}, 1).broken == ("topic a x is None, not 1",)


def test_a_broken_balance_harms_the_clients() -> None:
    second = {"acked": 1, "gap_s": 0.1}
    final = {
        "sent": 1, "acked": 1, "received": 1, "lost": 0, "duplicates": 0, "redelivered": 0, "unanswered": 0, "errors": {},
        "drained": True, "longest_produce_s": 0.1, "longest_end_to_end_s": 0.1,
    }  # fmt: skip
    good, bad = Balance(Subject.TOPICS, "none was asked for"), Balance(Subject.KEPT, "none", ("all are gone",))
    assert client_impact([second, final | {"watched": [good.as_json()]}]).unharmed
    impact = client_impact([second, final | {"watched": [good.as_json(), bad.as_json()]}])
    assert not impact.unharmed
    assert impact.broken == ["kept records: all are gone"]


@pytest.mark.parametrize(
    ("phase", "brokers", "moment"),
    [
        ("Preflight", "", None),
        ("TakingOver", "0/3", Moment.TAKEOVER),
        ("DualWrite", "3/3", Moment.DUAL_WRITE),
        ("RollingBrokers", "0/3", None),
        ("RollingBrokers", "1/3", Moment.MIXED),
        ("RollingBrokers", "3/3", None),
        ("AwaitingFinalization", "3/3", None),
    ],
)
def test_the_moments_of_a_migration(phase: str, brokers: str, moment: Moment | None) -> None:
    assert moment_of(View({"status": {"phase": phase, "brokers": {"summary": brokers}}})) is moment
