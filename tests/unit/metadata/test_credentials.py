"""SCRAM credentials that a starting node may forget: what a voter loads, and what a broker loads at its first start on KRaft."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.metadata.record_writer import batch, record, snapshot, write_log

from kraftbridge.metadata.log.credentials import forgettable_by_brokers, forgettable_by_voter
from kraftbridge.metadata.log.files import LocalLogFiles
from kraftbridge.metadata.log.replay import LogReplay

FOLDER = "__cluster_metadata-0"


def scram(name: str, mechanism: int = 1) -> bytes:
    return record(
        "UserScramCredentialRecord",
        name=name,
        mechanism=mechanism,
        salt=b"1",
        storedKey=b"2",
        serverKey=b"3",
        iterations=4096,
    )


def no_scram(name: str, mechanism: int = 1) -> bytes:
    return record("RemoveUserScramCredentialRecord", name=name, mechanism=mechanism)


def by_voter(folder: Path) -> dict[str, list[str]]:
    replay = LogReplay(LocalLogFiles(folder))
    replay.advance()
    return forgettable_by_voter(replay)


@pytest.mark.parametrize(
    ("in_snapshot", "in_log", "expected"),
    [
        ([], [scram("a"), scram("b"), no_scram("b")], {"SCRAM-SHA-256": ["b"]}),
        ([], [scram("a"), scram("b")], {}),
        ([], [scram("a"), no_scram("a")], {}),
        ([], [scram("a"), scram("b"), no_scram("b"), scram("b")], {}),
        ([scram("a")], [scram("b"), no_scram("b")], {}),
        ([scram("a")], [no_scram("a"), scram("b")], {"SCRAM-SHA-256": ["a"]}),
        ([scram("a", 2)], [scram("x/y"), scram("b"), no_scram("x/y")], {"SCRAM-SHA-256": ["x/y"]}),
    ],
    ids=[
        "removed",
        "none removed",
        "none left",
        "added again",
        "one in the snapshot",
        "all of the snapshot removed",
        "another mechanism",
    ],
)
def test_credentials_that_a_starting_voter_may_forget(tmp_path, in_snapshot, in_log, expected):
    first = 10 if in_snapshot else 0
    write_log(tmp_path, [batch(in_log, first)], first)
    if in_snapshot:
        (tmp_path / FOLDER / f"{first:020d}-{1:010d}.checkpoint").write_bytes(snapshot(in_snapshot))
    assert by_voter(tmp_path) == expected


def test_a_snapshot_of_the_voters_does_not_help_a_broker(tmp_path):
    write_log(tmp_path, [batch([scram("a"), scram("b"), no_scram("b")], 0), batch([record("NoOpRecord")], 3)], 0)
    (tmp_path / FOLDER / f"{3:020d}-{1:010d}.checkpoint").write_bytes(snapshot([scram("a")]))
    assert by_voter(tmp_path) == {}
    assert forgettable_by_brokers(LocalLogFiles(tmp_path)) == {"SCRAM-SHA-256": ["b"]}


def test_the_copy_is_part_of_what_a_broker_loads_at_once(tmp_path):
    copy = [
        record("BeginTransactionRecord", name="ZK Migration"),
        scram("a"),
        scram("b"),
        record("EndTransactionRecord"),
    ]
    write_log(tmp_path, [batch(copy, 0), batch([no_scram("b")], 4)], 0)
    assert forgettable_by_brokers(LocalLogFiles(tmp_path)) == {"SCRAM-SHA-256": ["b"]}


def test_nobody_knows_what_brokers_load_when_the_logs_beginning_is_gone(tmp_path):
    write_log(tmp_path, [batch([scram("b"), no_scram("b")], 10)], 10)
    (tmp_path / FOLDER / f"{10:020d}-{1:010d}.checkpoint").write_bytes(snapshot([scram("a")]))
    assert forgettable_by_brokers(LocalLogFiles(tmp_path)) is None


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from((1, 2))), min_size=1, max_size=12))
def test_the_rule_covers_every_load_that_kafka_may_forget_in(tmp_path_factory, changes):
    """With some order of the map, ``ScramDelta.apply`` handles a removal while the mechanism has no users yet, and loses those that follow."""
    folder, last, records = tmp_path_factory.mktemp("log"), {}, []
    for change in changes:  # sets a user who is absent, removes one who is present
        last[change] = not last.get(change, False)
        records.append((scram if last[change] else no_scram)(*change))
    write_log(folder, [batch(records, 0)], 0)
    forgetting = set()
    for number, name in ((1, "SCRAM-SHA-256"), (2, "SCRAM-SHA-512")):
        states = [alive for (_, mechanism), alive in last.items() if mechanism == number]
        if any(states) and not all(states):
            forgetting.add(name)
    assert set(forgettable_by_brokers(LocalLogFiles(folder)) or {}) == forgetting
    assert set(by_voter(folder)) == forgetting
