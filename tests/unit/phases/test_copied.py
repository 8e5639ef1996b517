"""The gate of DualWrite: what Kafka copied is what ZooKeeper held, as a run has found that watched the tree while Kafka copied."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.support.observations import (
    NOW,
    RUN_ID,
    Situation,
    gate_record,
    launched_runs,
    open_gate,
    record,
    rolling,
    summary,
    watching,
    zookeeper,
)

from kraftbridge.models.conditions import ConditionType, condition
from kraftbridge.models.decision import ReleaseRun, RemoveRun, RestartPod
from kraftbridge.models.observation import RunState, VerificationRun
from kraftbridge.models.phase import Phase
from kraftbridge.models.report import Profile, Verdict
from kraftbridge.models.runs import RunKind
from kraftbridge.models.status import VerificationStatus

SOUND = tuple(record(Profile.ZOOKEEPER, Phase.TAKING_OVER, p) for p in ("entry", "last-broker"))
LAUNCH = [(Profile.COPY, Phase.DUAL_WRITE)]


def launched(situation: Situation) -> list[tuple[Profile, Phase]]:
    return launched_runs(situation.decide())


def restarts(situation: Situation) -> list[RestartPod]:
    return [a for a in situation.decide().actions if isinstance(a, RestartPod)]


def before_last(*runs: VerificationStatus, **verification: Any) -> Situation:
    fine = rolling(Phase.TAKING_OVER, 2).with_status(verifications=(*SOUND, *runs))
    return accepting(fine, **verification)


def accepting(situation: Situation, **verification: Any) -> Situation:
    return situation.asking(verification=situation.spec.verification.model_copy(update=verification))


def test_the_tree_is_watched_before_the_last_broker_restarts() -> None:
    assert launched(before_last()) == LAUNCH
    assert not restarts(before_last())
    assert restarts(before_last(watching()))


def test_the_watch_begins_with_the_roll_and_holds_no_earlier_broker() -> None:
    first = rolling(Phase.TAKING_OVER, 0).with_status(verifications=SOUND[:1])
    assert launched(first) == LAUNCH
    assert restarts(first)
    begun = first.after(first.decide())
    assert launched(begun.later(60)) == []


def test_the_check_before_the_last_restart_leaves_the_watch_alone() -> None:
    armed = watching(run_id="demo-copy")
    situation = rolling(Phase.TAKING_OVER, 2).with_status(verifications=(SOUND[0], armed))
    decision = situation.decide()
    assert launched(situation) == [(Profile.ZOOKEEPER, Phase.TAKING_OVER)]
    assert armed in decision.status.verifications
    followed = decision.status.followed_run
    assert followed is not None
    assert followed.profile is Profile.ZOOKEEPER
    checked = before_last(armed).status.followed_run
    assert checked == armed, "once the check has ended the watch is looked after again"


def test_a_check_that_nothing_waits_for_any_more_does_not_hide_the_watch() -> None:
    """The check was launched ahead of the last restart, and the last broker then came back by itself, in migration mode."""
    armed, check = (
        watching(run_id="demo-copy"),
        gate_record(Phase.PROVISIONING_QUORUM, None, run_id="demo-check", finished_at=None),
    )
    check = check.model_copy(update={"gate": Phase.TAKING_OVER, "purpose": "last-broker"})
    stuck = open_gate(Phase.TAKING_OVER).with_status(verifications=(SOUND[0], armed, check))
    decision = stuck.observing(run=VerificationRun("demo-check", RunState.ARMED)).decide()
    assert RemoveRun(RunKind.VERIFICATION, "demo-check", keep_report=False) in decision.actions
    assert decision.status.followed_run == armed


@pytest.mark.parametrize("seconds", [0, 3600])
def test_a_watch_that_is_not_ready_holds_the_last_broker(seconds: int) -> None:
    starting = watching(run_id="demo-copy", ready_at=None, launched_at=NOW - timedelta(seconds=seconds))
    decision = before_last(starting).decide()
    assert not restarts(before_last(starting))
    assert "before the last broker restarts" in decision.status.message
    (last,) = [v for v in decision.status.verifications if v.profile is Profile.COPY]
    assert (last.finished_at is not None) == (seconds > 900), "one that never becomes ready is given up"


def test_a_watch_may_wait_for_days() -> None:
    old = watching(launched_at=NOW - timedelta(days=3), ready_at=NOW - timedelta(days=3))
    assert restarts(before_last(old))
    armed = open_gate(Phase.TAKING_OVER).with_status(verifications=(*SOUND, old))
    decision = armed.observing(run=VerificationRun(RUN_ID, RunState.ARMED)).decide()
    assert ReleaseRun(RunKind.VERIFICATION, RUN_ID) in decision.actions
    assert decision.status.verifications[-1].finished_at is None


def test_a_watch_that_ended_is_replaced_even_while_the_last_broker_restarts() -> None:
    dead = gate_record(Phase.TAKING_OVER, None, released_at=None, finished_at=NOW - timedelta(seconds=20))
    assert launched(before_last(dead)) == LAUNCH
    assert not restarts(before_last(dead))
    begun = before_last(watching()).decide()
    under_way = before_last(watching()).with_status(operation=begun.status.operation, verifications=(*SOUND, dead))
    assert launched(under_way) == LAUNCH


def test_nothing_is_launched_for_a_watch_that_the_user_gave_up() -> None:
    dead = gate_record(Phase.TAKING_OVER, None, released_at=None, finished_at=NOW - timedelta(seconds=20))
    assert restarts(before_last(dead, accepted_copy=RUN_ID))
    assert launched(before_last(dead, accepted_copy=RUN_ID)) == []


def test_only_a_consistent_verdict_opens_dual_write() -> None:
    fine = open_gate(Phase.TAKING_OVER)
    assert fine.decide().status.phase is Phase.DUAL_WRITE
    assert fine.with_status(verifications=SOUND).decide().status.phase is Phase.TAKING_OVER
    for verdict in (Verdict.INCONSISTENT, Verdict.INCONCLUSIVE, None):
        assert fine.judged(verdict).decide().status.phase is Phase.TAKING_OVER


def test_the_verdict_does_not_age_because_the_copy_does_not_change() -> None:
    old = NOW - timedelta(days=1)
    assert (
        open_gate(Phase.TAKING_OVER).judged(released_at=old, finished_at=old).decide().status.phase is Phase.DUAL_WRITE
    )


def test_a_verdict_about_an_earlier_attempt_says_nothing() -> None:
    situation = open_gate(Phase.TAKING_OVER).with_status(attempt=2)
    assert situation.decide().status.phase is Phase.TAKING_OVER
    assert launched(situation) == LAUNCH
    accepted = accepting(open_gate(Phase.TAKING_OVER).judged(Verdict.INCONSISTENT), accepted_copy=RUN_ID)
    assert accepted.decide().status.phase is Phase.DUAL_WRITE
    assert accepted.with_status(attempt=2).decide().status.phase is Phase.TAKING_OVER


def test_a_loss_is_named_with_its_ways_out_and_is_not_compared_again() -> None:
    fine = open_gate(Phase.TAKING_OVER)
    lost = fine.reporting(
        summary(
            gate_record(Phase.TAKING_OVER, finished=False),
            Verdict.INCONSISTENT,
            reason="2 entities differ: acl a, scram b",
            differing=2,
        )
    )
    after = lost.after(lost.decide())
    message = after.decide().status.message
    for part in ("2 entities", "acl a, scram b", f"{RUN_ID}-verification", f"acceptedCopy to {RUN_ID}", "ZooKeeper"):
        assert part in message
    stalled = condition(after.decide().status.conditions, ConditionType.STALLED)
    assert stalled is not None
    assert (stalled.status, stalled.reason) == ("True", "Inconsistent")
    assert launched(after.later(3600)) == []


def test_a_loss_is_accepted_by_the_run_that_found_it_only() -> None:
    unknown = gate_record(Phase.TAKING_OVER, Verdict.INCONCLUSIVE, run_id="demo-unknown")
    lost = gate_record(Phase.TAKING_OVER, Verdict.INCONSISTENT, run_id="demo-lost", differing=2)
    fine = open_gate(Phase.TAKING_OVER)
    both = fine.with_status(verifications=(unknown, lost))
    for run, phase in (("demo-unknown", Phase.TAKING_OVER), ("demo-lost", Phase.DUAL_WRITE), ("x", Phase.TAKING_OVER)):
        assert accepting(both, accepted_copy=run).decide().status.phase is phase
    only = accepting(fine.with_status(verifications=(unknown,)), accepted_copy="demo-unknown")
    assert only.decide().status.phase is Phase.DUAL_WRITE
    said = condition(only.decide().status.conditions, ConditionType.METADATA_MIGRATED)
    assert said is not None
    assert "acceptedCopy (demo-unknown)" in said.message
    running = gate_record(Phase.TAKING_OVER, finished=False)
    assert (
        accepting(fine.with_status(verifications=(running,)), accepted_copy=RUN_ID).decide().status.phase
        is Phase.TAKING_OVER
    )


def test_what_stays_unknown_stalls_with_its_ways_out() -> None:
    runs = tuple(gate_record(Phase.TAKING_OVER, Verdict.INCONCLUSIVE, run_id=f"demo-{i}") for i in range(3))
    situation = open_gate(Phase.TAKING_OVER).with_status(verifications=runs)
    assert "acceptedCopy to demo-2" in situation.decide().status.message
    assert launched(situation.later(20)) == LAUNCH


def test_the_verdict_about_the_copy_outlives_keep_runs() -> None:
    fine = open_gate(Phase.DUAL_WRITE)
    fine = accepting(fine, keep_runs=1)
    copied = gate_record(Phase.TAKING_OVER)
    later = record(Profile.DUAL_WRITE, Phase.ROLLING_BROKERS, released_at=NOW - timedelta(days=1), run_id="demo-old")
    decision = fine.with_status(verifications=(copied, later)).decide()
    assert [v.profile for v in decision.status.verifications] == [Profile.COPY, Profile.DUAL_WRITE]
    assert decision.status.verifications[0] == copied


def test_the_comparison_waits_for_the_mirror() -> None:
    armed = open_gate(Phase.TAKING_OVER).with_status(verifications=(*SOUND, watching()))
    armed = armed.observing(run=VerificationRun(RUN_ID, RunState.ARMED))
    assert ReleaseRun(RunKind.VERIFICATION, RUN_ID) in armed.decide().actions
    unclaimed = armed.observing(zookeeper=zookeeper(taken_over=False))
    assert ReleaseRun(RunKind.VERIFICATION, RUN_ID) not in unclaimed.decide().actions


def test_the_session_for_the_next_gate_starts_while_the_copy_is_compared() -> None:
    comparing = open_gate(Phase.TAKING_OVER).with_status(verifications=(*SOUND, watching(run_id="demo-copy")))
    armed = comparing.observing(run=VerificationRun("demo-copy", RunState.ARMED))
    assert launched(armed) == [(Profile.DUAL_WRITE, Phase.ROLLING_BROKERS)]
    decision = armed.decide()
    assert not [a for a in decision.actions if isinstance(a, RemoveRun)]
    assert decision.status.followed_run is not None
    assert decision.status.followed_run.run_id == "demo-copy", "the gate waits for it"
    later = armed.after(decision).observing(run=VerificationRun("demo-copy", RunState.RUNNING)).later(1)
    assert launched(later) == []
    assert not [a for a in later.decide().actions if isinstance(a, RemoveRun)]
    copied = decision.status.verifications[-2]
    assert copied.run_id == "demo-copy"
    done = VerificationRun("demo-copy", RunState.FINISHED, verdict=summary(copied))
    ended = later.observing(run=done).decide()
    assert ended.status.followed_run is not None
    assert ended.status.followed_run.profile is Profile.DUAL_WRITE


def test_no_session_starts_beside_a_watch_that_nobody_would_follow_then() -> None:
    unclaimed = open_gate(Phase.TAKING_OVER).with_status(verifications=(*SOUND, watching()))
    unclaimed = unclaimed.observing(run=VerificationRun(RUN_ID, RunState.ARMED), zookeeper=zookeeper(taken_over=False))
    assert launched(unclaimed) == []
