"""Where the data of a live cluster is, as its quorum and its brokers say."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.metadata.record_writer import batch, record, write_log

from kraftbridge.models.report import CompareServed, Profile, VerificationRequest, VoterAccess, ZooKeeperAccess
from kraftbridge.verification import inputs
from kraftbridge.verification.quorum import QuorumUnavailableError, QuorumView
from kraftbridge.verification.sources.brokers import BrokerUnavailableError

VOTERS = [
    VoterAccess(id=i, log_url=f"https://kraft-{i}:9443", host=f"kraft-{i}", port=9093) for i in (3000, 3001, 3002)
]


def found(monkeypatch: pytest.MonkeyPatch, high_watermark: int = 1_990, **end_offsets: int) -> inputs.Inputs:
    ends = {int(name.removeprefix("of_")): end for name, end in end_offsets.items()}
    monkeypatch.setattr(inputs, "describe_quorum", lambda *_: QuorumView(3002, 7, high_watermark, ends))
    return inputs.live_inputs(VerificationRequest(run_id="r", profile=Profile.REPLICAS, voters=VOTERS))


def test_voters_are_compared_at_the_committed_offset_that_each_of_them_must_reach(monkeypatch):
    inputs = found(monkeypatch, of_3000=1_985, of_3001=2_000, of_3002=2_001)
    assert inputs.replicas_offset == 1_989
    assert [voter.id for voter in inputs.voters if voter.mirrored] == [3002]
    assert [state.reported_end_offset for state in inputs.states] == [1_985, 2_000, 2_001]


def test_a_voter_that_the_leader_has_not_heard_of_is_named_and_no_other(monkeypatch):
    with pytest.raises(QuorumUnavailableError, match=r"voter\(s\) \[3000\] have not fetched from leader 3002"):
        found(monkeypatch, of_3000=-1, of_3001=2_000, of_3002=2_001)


def test_all_voters_are_needed(monkeypatch):
    with pytest.raises(QuorumUnavailableError, match="all are needed"):
        found(monkeypatch, of_3001=2_000, of_3002=2_001)


@pytest.mark.parametrize("high_watermark", [-1, 0])
def test_nothing_is_compared_while_nothing_is_known_to_be_committed(monkeypatch, high_watermark):
    with pytest.raises(QuorumUnavailableError, match=f"high watermark is {high_watermark}"):
        found(monkeypatch, high_watermark, of_3000=20, of_3001=20, of_3002=20)


@pytest.mark.parametrize(
    ("ends", "behind"),
    [
        ({3000: 1_684, 3001: 1_684, 3002: 1_684}, []),
        ({3000: 1_684, 3001: 1_600, 3002: 1_684}, []),
        ({3000: 1_684, 3001: 20, 3002: 1_684}, [3001]),
        ({3000: 1_684, 3001: 1_500, 3002: 1_400}, [3001, 3002]),
        ({3000: 100_000, 3001: 90_001, 3002: 89_000}, [3002]),
    ],
)
def test_a_copy_that_is_far_behind_the_longest_is_a_problem(tmp_path, ends, behind):
    voters = []
    for voter, end in ends.items():
        folder = tmp_path / f"c{voter}"
        write_log(folder, [batch([record("NoOpRecord")] * end, 0)])
        (folder / "meta.properties").write_text(f"version=1\nnode.id={voter}\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n")
        voters.append((f"c{voter}", folder))
    found = inputs.offline_inputs(Profile.REPLICAS, None, voters, None)
    assert [int(problem.split()[1].removeprefix("c")) for problem in found.problems] == behind
    assert found.replicas_offset == min(ends.values()) - 1


@pytest.mark.parametrize("wanted", [CompareServed.IF_ALLOWED, CompareServed.ALWAYS])
def test_brokers_that_nobody_names_are_unknown_where_nothing_else_is_compared(wanted: CompareServed) -> None:
    """Profile `upgrade` has no second store: without brokers nothing proves anything."""
    request = VerificationRequest(
        run_id="r",
        profile=Profile.UPGRADE,
        zookeeper=ZooKeeperAccess(connect="zk:2181"),
        bootstrap_servers="127.0.0.1:1",
        compare_served=wanted,
    )
    with pytest.raises(BrokerUnavailableError, match="no bootstrap server names the brokers"):
        inputs.live_inputs(request)
    assert inputs.live_inputs(request.model_copy(update={"compare_served": CompareServed.NEVER})).brokers == ()


def test_copies_cannot_stand_in_for_brokers(tmp_path: Path) -> None:
    with pytest.raises(inputs.BadInputError, match="asks the brokers of a running cluster"):
        inputs.offline_inputs(Profile.UPGRADE, inputs.Dump(tmp_path, ""), [], None)
