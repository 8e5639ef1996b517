"""Where the data of a live cluster is, as its quorum says."""

from __future__ import annotations

import pytest

from kraftbridge.models.report import Profile, VerificationRequest, VoterAccess
from kraftbridge.verification import inputs
from kraftbridge.verification.quorum import QuorumUnavailableError, QuorumView

VOTERS = [
    VoterAccess(id=i, log_url=f"https://kraft-{i}:9443", host=f"kraft-{i}", port=9093) for i in (3000, 3001, 3002)
]


def found(monkeypatch: pytest.MonkeyPatch, **end_offsets: int) -> inputs.Inputs:
    ends = {int(name.removeprefix("of_")): end for name, end in end_offsets.items()}
    monkeypatch.setattr(inputs, "describe_quorum", lambda *_: QuorumView(3002, 7, 1_990, ends))
    return inputs.live_inputs(VerificationRequest(run_id="r", profile=Profile.REPLICAS, voters=VOTERS))


def test_voters_are_compared_as_far_as_all_of_them_reach(monkeypatch):
    inputs = found(monkeypatch, of_3000=1_985, of_3001=2_000, of_3002=2_001)
    assert inputs.replicas_offset == 1_984
    assert [voter.id for voter in inputs.voters if voter.mirrored] == [3002]
    assert [state.reported_end_offset for state in inputs.states] == [1_985, 2_000, 2_001]


def test_a_voter_that_the_leader_has_not_heard_of_is_named_and_no_other(monkeypatch):
    with pytest.raises(QuorumUnavailableError, match=r"voter\(s\) \[3000\] have not fetched from leader 3002"):
        found(monkeypatch, of_3000=-1, of_3001=2_000, of_3002=2_001)


def test_all_voters_are_needed(monkeypatch):
    with pytest.raises(QuorumUnavailableError, match="all are needed"):
        found(monkeypatch, of_3001=2_000, of_3002=2_001)
