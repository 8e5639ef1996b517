"""Which verdict is believed: the one of this run, for this gate, asked for by us, and not older than the user allows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.support.observations import GATE_RUN, NOW, RUN_ID, Situation, open_gate, record, summary

from kraftbridge.models.conditions import ConditionType, condition
from kraftbridge.models.decision import LaunchRun, ReleaseRun, RemoveRun
from kraftbridge.models.observation import RunState, Unobserved, VerificationRun
from kraftbridge.models.phase import Phase
from kraftbridge.models.report import Profile, Verdict
from kraftbridge.models.runs import RunKind
from kraftbridge.models.status import WaitKind

GATED = [
    Phase.PROVISIONING_QUORUM,
    Phase.DUAL_WRITE,
    Phase.ROLLING_BROKERS,
    Phase.AWAITING_FINALIZATION,
    Phase.FINALIZING,
]


def reporting(phase: Phase, verdict: Verdict = Verdict.CONSISTENT, /, **changes: Any) -> Situation:
    fine = open_gate(phase)
    return fine.reporting(summary(record(*GATE_RUN[phase], finished=False), verdict, **changes))


def condition_status(situation: Situation, kind: ConditionType) -> str:
    found = condition(situation.decide().status.conditions, kind)
    assert found is not None
    return found.status


@pytest.mark.parametrize("phase", GATED)
def test_a_verdict_that_answers_our_run_opens_the_gate_at_the_next_step(phase: Phase) -> None:
    situation = reporting(phase)
    decision = situation.decide()
    last = decision.status.verifications[-1]
    assert (last.verdict, last.finished_at) == (Verdict.CONSISTENT, NOW)
    assert RemoveRun(RunKind.VERIFICATION, RUN_ID, keep_report=True) in decision.actions
    assert condition_status(situation, ConditionType.METADATA_CONSISTENT) == "True"
    assert situation.after(decision).decide().status.phase is not phase


@pytest.mark.parametrize(
    "wrong",
    [
        {"run_id": "demo-5f0c6a1e-2"},
        {"migration_uid": "another"},
        {"migration_uid": ""},
        {"generation": 6},
        {"generation": 8},
        {"phase": "Preflight"},
        {"phase": ""},
        {"profile": Profile.ZOOKEEPER},
        {"profile": Profile.DUAL_WRITE},
        {"profile": Profile.REPLICAS},
    ],
    ids=str,
)
@pytest.mark.parametrize("phase", GATED)
def test_a_verdict_of_something_else_opens_nothing(phase: Phase, wrong: dict[str, Any]) -> None:
    if wrong.get("profile") is GATE_RUN[phase][0]:
        wrong = {"profile": next(p for p in Profile if p is not GATE_RUN[phase][0])}
    situation = reporting(phase, **wrong)
    for _ in range(4):
        decision = situation.decide()
        assert decision.status.phase is phase
        assert all(v.verdict is None for v in decision.status.verifications)
        situation = situation.after(decision).later(1)
    assert condition_status(situation, ConditionType.METADATA_CONSISTENT) != "True"


@pytest.mark.parametrize("phase", GATED)
def test_a_verdict_ages_from_its_go(phase: Phase) -> None:
    fine = open_gate(phase)
    age = fine.spec.verification.max_age_seconds
    young = fine.judged(released_at=NOW - timedelta(seconds=age))
    assert young.decide().status.phase is not phase
    old = fine.judged(released_at=NOW - timedelta(seconds=age, milliseconds=1), finished_at=NOW)
    decision = old.decide()
    assert decision.status.phase is phase
    assert any(isinstance(a, LaunchRun) for a in decision.actions)
    assert decision.status.verifications[-1].run_id != RUN_ID


@pytest.mark.parametrize("phase", GATED)
def test_a_run_that_we_never_released_is_not_believed(phase: Phase) -> None:
    assert open_gate(phase).judged(released_at=None).decide().status.phase is phase


@pytest.mark.parametrize("other", [("purpose", "last-broker"), ("gate", Phase.PREFLIGHT), ("profile", None)])
@pytest.mark.parametrize("phase", GATED)
def test_a_passed_run_for_another_gate_opens_nothing(phase: Phase, other: tuple[str, Any]) -> None:
    name, value = other
    value = value or next(p for p in Profile if p is not GATE_RUN[phase][0])
    profile, gate = GATE_RUN[phase]
    fields: dict[str, Any] = {"profile": profile, "gate": gate} | ({name: value} if name != "purpose" else {})
    purpose = value if name == "purpose" else "entry"
    wrong = record(fields["profile"], fields["gate"], purpose)
    assert open_gate(phase).with_status(verifications=(wrong,)).decide().status.phase is phase


@pytest.mark.parametrize("phase", GATED)
def test_an_inconsistent_verdict_names_its_report_and_stalls(phase: Phase) -> None:
    situation = reporting(phase, Verdict.INCONSISTENT, reason="2 topics differ", differing=2)
    decision = situation.decide()
    assert decision.status.verifications[-1].differing == 2
    again = situation.after(decision).decide()
    assert again.status.phase is phase
    assert f"{RUN_ID}-verification" in again.status.message
    assert "2 entities differ" in again.status.message
    stalled = condition(again.status.conditions, ConditionType.STALLED)
    assert stalled is not None
    assert (stalled.status, stalled.reason) == ("True", "Inconsistent")
    assert not [a for a in again.actions if isinstance(a, LaunchRun)], "it is checked again in a minute only"
    later = situation.after(decision).later(61).decide()
    assert [a for a in later.actions if isinstance(a, LaunchRun)]


@pytest.mark.parametrize("state", [RunState.FINISHED, RunState.FAILED])
@pytest.mark.parametrize("phase", GATED)
def test_a_run_without_a_verdict_is_tried_again_after_a_pause(phase: Phase, state: RunState) -> None:
    situation = open_gate(phase).reporting(None, state)
    decision = situation.decide()
    last = decision.status.verifications[-1]
    assert (last.verdict, last.finished_at) == (None, NOW)
    waiting = situation.after(decision)
    assert not [a for a in waiting.later(19).decide().actions if isinstance(a, LaunchRun)]
    assert [a for a in waiting.later(20).decide().actions if isinstance(a, LaunchRun)]


@pytest.mark.parametrize("phase", GATED)
def test_a_run_that_cannot_start_is_removed_named_and_tried_again(phase: Phase) -> None:
    why = "pod demo-driver: ImagePullBackOff of container driver"
    situation = open_gate(phase).observing(run=VerificationRun(RUN_ID, RunState.CANNOT_START, why))
    situation = situation.with_status(verifications=(record(*GATE_RUN[phase], finished=False, released_at=None),))
    decision = situation.decide()
    assert RemoveRun(RunKind.VERIFICATION, RUN_ID, keep_report=True) in decision.actions
    waiting = situation.after(decision)
    assert why in waiting.decide().status.message
    assert waiting.decide().status.phase is phase
    assert [a for a in waiting.later(20).decide().actions if isinstance(a, LaunchRun)]


@pytest.mark.parametrize("phase", GATED)
def test_an_armed_run_is_released_by_its_gate_only(phase: Phase) -> None:
    armed = open_gate(phase).reporting(None, RunState.ARMED)
    armed = armed.with_status(
        verifications=(record(*GATE_RUN[phase], finished=False, released_at=None, ready_at=None),)
    )
    decision = armed.decide()
    assert ReleaseRun(RunKind.VERIFICATION, RUN_ID) in decision.actions
    assert decision.status.verifications[-1].released_at == NOW
    again = armed.after(decision).later(5).decide()
    assert ReleaseRun(RunKind.VERIFICATION, RUN_ID) in again.actions, "a swallowed go is repeated"
    assert again.status.verifications[-1].released_at == NOW, "but the verdict ages from the first"
    blocked = armed.observing(cluster=Unobserved("Kafka", "silent"), quorum=Unobserved("q", "silent"), metrics={})
    assert ReleaseRun(RunKind.VERIFICATION, RUN_ID) not in blocked.decide().actions or phase is Phase.DUAL_WRITE


@pytest.mark.parametrize("phase", GATED)
def test_a_run_that_its_gate_waits_for_gets_its_go_before_it_is_armed(phase: Phase) -> None:
    """The driver then reads as soon as its session is open; the verdict ages from the go."""
    starting = open_gate(phase).reporting(None, RunState.PENDING)
    starting = starting.with_status(verifications=(record(*GATE_RUN[phase], finished=False, released_at=None),))
    decision = starting.decide()
    assert ReleaseRun(RunKind.VERIFICATION, RUN_ID) in decision.actions
    assert decision.status.verifications[-1].released_at == NOW
    assert decision.status.phase is phase


@pytest.mark.parametrize("state", [RunState.MISSING, RunState.PENDING, RunState.RUNNING])
@pytest.mark.parametrize("phase", GATED)
def test_a_run_on_its_way_is_waited_for_and_never_believed(phase: Phase, state: RunState) -> None:
    decision = open_gate(phase).reporting(None, state).decide()
    assert decision.status.phase is phase
    assert decision.status.waiting is not None
    assert decision.status.waiting.kind is WaitKind.VERIFICATION
    launched = {a for a in decision.actions if isinstance(a, LaunchRun)}
    assert launched == ({LaunchRun(RunKind.VERIFICATION, RUN_ID)} if state is RunState.MISSING else set())


@pytest.mark.parametrize("state", [RunState.ARMED, RunState.PENDING, RunState.RUNNING])
@pytest.mark.parametrize("phase", GATED)
def test_a_run_past_its_deadline_is_given_up(phase: Phase, state: RunState) -> None:
    late = open_gate(phase).reporting(None, state).later(841)
    late = late.with_status(migration_offset=None) if phase is Phase.FINALIZING else late
    mirrored = late.status.migration_offset
    if mirrored is not None:
        late = late.with_status(
            migration_offset=mirrored.model_copy(update={"seen_at": late.now, "moved_at": late.now})
        )
    decision = late.decide()
    assert decision.status.verifications[0].finished_at == late.now
    assert RemoveRun(RunKind.VERIFICATION, RUN_ID, keep_report=True) in decision.actions


@pytest.mark.parametrize(
    "run", [None, Unobserved("verification", "API server silent"), VerificationRun("somebody-elses", RunState.FINISHED)]
)
@pytest.mark.parametrize("phase", GATED)
def test_a_run_that_cannot_be_seen_keeps_the_gate_closed(phase: Phase, run: Any) -> None:
    decision = open_gate(phase).reporting(None).observing(run=run).decide()
    assert decision.status.phase is phase
    assert decision.status.verifications[-1].finished_at is None


@pytest.mark.parametrize("phase", GATED)
def test_old_runs_are_removed_with_their_reports(phase: Phase) -> None:
    fine = open_gate(phase)
    keep = fine.spec.verification.keep_runs
    many = tuple(record(Profile.ZOOKEEPER, Phase.PREFLIGHT, run_id=f"old-{i}") for i in range(keep))
    decision = fine.with_status(verifications=many, verification_count=keep).decide()
    assert RemoveRun(RunKind.VERIFICATION, "old-0", keep_report=False) in decision.actions
    assert len(decision.status.verifications) == keep
