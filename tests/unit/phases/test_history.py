"""A ZooKeeper that contradicts what the attempt has read from it: nothing is changed on its word."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.observations import (
    CLUSTER_ID,
    FORWARD,
    NOW,
    STATES_CREATED,
    Situation,
    broker_set,
    controllers_workload,
    launched_runs,
    open_gate,
    zookeeper,
)
from tests.unit.phases.test_rollback import NO_CONTROLLERS, UNKNOWN, going_back, isolated

from kraftbridge.models.catalogue import Code
from kraftbridge.models.conditions import ConditionType, Reason, condition
from kraftbridge.models.decision import (
    ApplyControllers,
    CreatePartitionStates,
    Decision,
    HoldLease,
    LaunchRun,
    RemoveControllerClaim,
    RestartPod,
    StopControllers,
)
from kraftbridge.models.observation import MigrationZnode, ZooKeeperState
from kraftbridge.models.phase import BrokerMode, ControllerMode, Phase, Target
from kraftbridge.models.report import Profile, Verdict
from kraftbridge.models.status import (
    ControllersChange,
    HealingKind,
    Operation,
    OperationKind,
    RenderedControllers,
    RollbackStatus,
    ZooKeeperHistory,
)

HELD = [
    p
    for p in FORWARD
    if FORWARD.index(Phase.TAKING_OVER) <= FORWARD.index(p) <= FORWARD.index(Phase.AWAITING_FINALIZATION)
]
CZXID = 0x1_0000_0042
ZXID = 0x1_0000_1000
TAKEN_OVER = zookeeper(taken_over=True, migration_czxid=CZXID, zxid=ZXID)
KNOWN = ZooKeeperHistory(
    attempt=1,
    cluster_id=CLUSTER_ID,
    migration_czxid=str(CZXID),
    migration_offset="5000",
    kraft_epoch=2,
    claim_epoch=2,
    controller_epoch=4,
    zxid=str(ZXID),
    seen_at=NOW - timedelta(seconds=1),
)
OLDER = replace(TAKEN_OVER, migration=MigrationZnode(3000, 2, 3_000, 2), zxid=ZXID - 100)
"""Restored from a backup that was made in dual-write."""
CONTRADICTIONS: dict[str, ZooKeeperState] = {
    "/migration and /controller deleted": replace(TAKEN_OVER, controller=None, migration=None, migration_czxid=0),
    "/migration deleted": replace(TAKEN_OVER, migration=None, migration_czxid=0),
    "/controller deleted": replace(TAKEN_OVER, controller=None),
    "a broker is controller": replace(TAKEN_OVER, controller=zookeeper(taken_over=False).controller),
    "/migration created anew": replace(
        TAKEN_OVER, migration=MigrationZnode(3000, 3, 9_000, 3), migration_czxid=CZXID + 9
    ),
    "wiped": replace(
        zookeeper(taken_over=False, brokers=()), cluster_id=None, controller=None, controller_epoch=None, zxid=3
    ),
    "another cluster's": replace(zookeeper(taken_over=False), cluster_id="AnotherClusterIdAAAAAA", zxid=ZXID),
    "before the takeover": replace(
        zookeeper(taken_over=False), migration=MigrationZnode(-1, -1, -1, -1), migration_czxid=CZXID, controller_epoch=2
    ),
    "older, of dual-write": OLDER,
    "an older epoch in /migration": replace(TAKEN_OVER, migration=MigrationZnode(3000, 1, 5_000, 1)),
    "an older /controller_epoch": replace(TAKEN_OVER, controller_epoch=3),
    "an older transaction": replace(TAKEN_OVER, zxid=ZXID - 1),
}


def remembering(case: Situation, seen: ZooKeeperState = TAKEN_OVER, **changes: Any) -> Situation:
    """Return the same with the record of this attempt, and another reading of ZooKeeper."""
    brokers = case.observation.zookeeper.brokers if isinstance(case.observation.zookeeper, ZooKeeperState) else ()
    held = seen if seen.cluster_id != CLUSTER_ID else replace(seen, brokers=brokers)
    return case.with_status(zookeeper_history=KNOWN.model_copy(update=changes)).observing(zookeeper=held)


def twice(case: Situation) -> tuple[Situation, Decision, Decision]:
    """Return two steps on one reading."""
    first = case.decide()
    again = case.after(first).later(1.0)
    return again, first, again.decide()


def rollback_possible(decision: Decision) -> tuple[str, Reason]:
    found = condition(decision.status.conditions, ConditionType.ROLLBACK_POSSIBLE)
    assert found is not None
    return found.status, found.reason


def harmful(decision: Decision) -> list[object]:
    return [a for a in decision.actions if not isinstance(a, HoldLease)]


@pytest.mark.parametrize("name", CONTRADICTIONS)
@pytest.mark.parametrize("phase", [*HELD, Phase.ROLLING_BACK])
@pytest.mark.parametrize("loss", [False, True], ids=["", "acceptLoss"])
def test_nothing_is_done_on_the_word_of_a_zookeeper_that_contradicts(phase: Phase, name: str, loss: bool) -> None:
    """Up to 87d037e a rollback took it for a cluster that nothing was taken over from, and stopped the controllers."""
    case = going_back() if phase is Phase.ROLLING_BACK else open_gate(phase, Target.ZOOKEEPER if loss else Target.KRAFT)
    case = case.asking(rollback=case.spec.rollback.model_copy(update={"accept_loss": loss}))
    again, first, second = twice(remembering(case, CONTRADICTIONS[name]).with_status(verifications=()))
    assert harmful(first) == harmful(second) == []
    assert second.status.phase is phase
    assert rollback_possible(first) == ("Unknown", Reason.UNKNOWN)
    assert rollback_possible(second) == ("False", Reason.CONTRADICTS)
    stalled = condition(second.status.conditions, ConditionType.STALLED)
    assert stalled is not None
    assert (stalled.status, stalled.reason) == ("True", Reason.CONTRADICTS)
    found = second.status.findings[0]
    assert found.code == Code.ZOOKEEPER_CONTRADICTS
    assert found.reason in second.status.message
    hour = again.after(second)
    for _ in range(100):
        hour = hour.later(30.0)
        decision = hour.decide()
        assert harmful(decision) == []
        hour = hour.after(decision)


@pytest.mark.parametrize("phase", HELD)
def test_what_the_record_says_already_is_enough_for_a_rollback_of_an_earlier_release(phase: Phase) -> None:
    """No record yet: cluster id and mirrored offset were recorded before."""
    for state in (CONTRADICTIONS["wiped"], CONTRADICTIONS["another cluster's"], CONTRADICTIONS["/migration deleted"]):
        case = open_gate(phase, Target.ZOOKEEPER).observing(zookeeper=state)
        _, first, second = twice(case)
        assert harmful(first) == harmful(second) == []
        assert rollback_possible(second) == ("False", Reason.CONTRADICTS)
    _, first, second = twice(going_back(zookeeper=CONTRADICTIONS["/migration and /controller deleted"]))
    assert harmful(first) == harmful(second) == []


def test_the_same_store_is_recorded_and_contradicts_nothing() -> None:
    case = remembering(open_gate(Phase.AWAITING_FINALIZATION, Target.KRAFT_BROKERS))
    newer = replace(
        TAKEN_OVER, migration=MigrationZnode(3001, 3, 5_100, 3), brokers=(), zxid=ZXID + 50, controller_epoch=5
    )
    decision = case.observing(zookeeper=newer).decide()
    known = decision.status.zookeeper_history
    assert known is not None
    assert known.contradiction is None
    assert (known.migration_offset, known.kraft_epoch, known.controller_epoch, known.zxid) == (
        "5100",
        3,
        5,
        str(ZXID + 50),
    )
    assert rollback_possible(decision) == ("True", Reason.MIRRORED)


def test_what_was_read_once_only_is_no_contradiction() -> None:
    case = remembering(open_gate(Phase.DUAL_WRITE), CONTRADICTIONS["/migration deleted"])
    once = case.after(case.decide()).later(1.0).observing(zookeeper=TAKEN_OVER).decide()
    assert once.status.zookeeper_history is not None
    assert once.status.zookeeper_history.contradiction is None
    silent = case.after(case.decide()).later(1.0).observing(zookeeper=UNKNOWN)
    decision = silent.decide()
    assert harmful(decision) == []
    assert rollback_possible(decision)[0] == "Unknown"


def test_the_absence_that_the_rollback_itself_makes_contradicts_nothing() -> None:
    stopped = RollbackStatus(attempt=1, controllers_stopped_at=NOW - timedelta(seconds=9))
    case = remembering(going_back(controllers=NO_CONTROLLERS, quorum=UNKNOWN, metrics={})).with_status(rollback=stopped)
    removing = case.decide()
    assert removing.actions == (RemoveControllerClaim(2),)
    assert removing.status.rollback is not None
    assert removing.status.rollback.claim_removed_at == NOW
    gone = zookeeper(taken_over=False, controller_epoch=5, zxid=ZXID + 9)
    after = case.after(removing).observing(zookeeper=gone)
    _, first, second = twice(after)
    assert first.status.zookeeper_history is not None
    assert second.status.zookeeper_history is not None
    assert second.status.zookeeper_history.contradiction is None
    # Another store contradicts none the less.
    wiped = case.after(removing).observing(zookeeper=CONTRADICTIONS["wiped"])
    assert rollback_possible(twice(wiped)[2]) == ("False", Reason.CONTRADICTS)


def test_the_claim_is_not_removed_from_another_zookeeper() -> None:
    stopped = RollbackStatus(attempt=1, controllers_stopped_at=NOW - timedelta(seconds=9))
    case = remembering(going_back(controllers=NO_CONTROLLERS, quorum=UNKNOWN, metrics={}), OLDER).with_status(
        rollback=stopped
    )
    for decision in twice(case)[1:]:
        assert harmful(decision) == []


def test_isolated_controllers_return_to_the_brokers() -> None:
    """The cluster has no controller while they are isolated, and that ZooKeeper cannot give it one."""
    again, first, second = twice(remembering(isolated(), CONTRADICTIONS["wiped"]))
    assert harmful(first) == harmful(second) == []
    assert second.status.controllers is not None
    assert second.status.controllers.mode is ControllerMode.MIGRATION
    third = again.after(second).later(1.0).decide()
    assert harmful(third) == [ApplyControllers(ControllerMode.MIGRATION, format_allowed=False)]
    back = again.after(third).later(1.0).observing(controllers=controllers_workload())
    assert harmful(back.decide()) == []
    assert rollback_possible(back.decide()) == ("False", Reason.CONTRADICTS)


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_only_an_older_store_of_this_attempt_is_rewritten_and_only_on_the_users_word(name: str) -> None:
    case = remembering(open_gate(Phase.DUAL_WRITE), CONTRADICTIONS[name])
    again, _, second = twice(case)
    found = second.status.zookeeper_history.contradiction if second.status.zookeeper_history is not None else None
    assert found is not None
    wrong = again.after(second).asking(verification=case.spec.verification.model_copy(update={"accepted_rewrite": "x"}))
    assert harmful(wrong.later(1.0).decide()) == []
    word = case.spec.verification.model_copy(update={"accepted_rewrite": found.id})
    told = again.after(second).asking(verification=word).later(1.0)
    older = name.startswith(("older", "an older", "/controller deleted", "a broker is"))
    assert harmful(told.decide()) == ([CreatePartitionStates()] if older else [])
    decision = told.observing(outcomes=STATES_CREATED).decide()
    restarted = [a for a in harmful(decision) if isinstance(a, RestartPod)]
    assert len(restarted) == len(harmful(decision)) == int(older)
    assert ("acceptedRewrite" in second.status.message) is older


def test_after_the_failover_a_verification_decides() -> None:
    case = remembering(open_gate(Phase.DUAL_WRITE), OLDER)
    again, _, second = twice(case)
    known = second.status.zookeeper_history
    assert known is not None
    assert known.contradiction is not None
    word = case.spec.verification.model_copy(update={"accepted_rewrite": known.contradiction.id})
    told = again.after(second).asking(verification=word).later(1.0)
    assert harmful(told.decide()) == [CreatePartitionStates()]
    failover = told.observing(outcomes=STATES_CREATED).decide()
    assert [type(a) for a in harmful(failover)] == [RestartPod]
    assert failover.status.healing is not None
    assert failover.status.healing.kind is HealingKind.OLDER_STORE
    # The new controller has written its image; the operator follows it without a second failover.
    written = told.after(failover).with_status(operation=None)
    for offset in (6_000, 6_001):
        newer = replace(
            OLDER, migration=MigrationZnode(3001, 3, offset, 3), controller_epoch=5, zxid=ZXID - 50 + offset
        )
        written = written.later(2.0).observing(zookeeper=newer)
        decision = written.decide()
        written = written.after(decision)
    assert decision.status.healing is None
    assert [profile for profile, _ in launched_runs(decision)] == [Profile.DUAL_WRITE]
    assert rollback_possible(decision) == ("False", Reason.CONTRADICTS)
    runs = decision.status.verifications
    for verdict, holds in ((Verdict.INCONSISTENT, True), (Verdict.CONSISTENT, False)):
        done = {"verdict": verdict, "released_at": written.now, "finished_at": written.now, "differing": 1}
        judged = (*runs[:-1], runs[-1].model_copy(update=done))
        ended = written.with_status(verifications=judged).later(1.0).decide()
        assert not [a for a in ended.actions if isinstance(a, RestartPod)]
        assert (rollback_possible(ended)[1] is Reason.CONTRADICTS) is holds
        assert any(f.code == Code.ZOOKEEPER_CONTRADICTS for f in ended.status.findings) is holds


def test_a_store_that_is_back_is_trusted_after_a_verification() -> None:
    """Names that led to another ensemble for a while, or the newest data put back."""
    case = remembering(open_gate(Phase.ROLLING_BROKERS), CONTRADICTIONS["another cluster's"])
    again, _, second = twice(case)
    back = again.after(second).later(5.0).observing(zookeeper=replace(TAKEN_OVER, brokers=()))
    decision = back.decide()
    assert [type(a) for a in harmful(decision)] == [LaunchRun]
    assert rollback_possible(decision) == ("False", Reason.CONTRADICTS)


def test_a_store_that_is_lost_again_before_the_verification_is_compared_with_its_newest_reading() -> None:
    case = remembering(open_gate(Phase.DUAL_WRITE), CONTRADICTIONS["another cluster's"])
    again, _, _ = twice(case)
    confirmed = again.after(again.decide()).later(1.0)
    back = replace(TAKEN_OVER, migration=MigrationZnode(3000, 2, 9_000, 2), zxid=ZXID + 900)
    settled = confirmed.observing(zookeeper=back)
    followed = settled.after(settled.decide()).later(10.0)
    known = followed.decide().status.zookeeper_history
    assert known is not None
    assert (known.migration_offset, known.zxid) == ("9000", str(ZXID + 900))
    older = followed.after(followed.decide()).later(1.0).observing(zookeeper=replace(TAKEN_OVER, zxid=ZXID + 500))
    found = older.decide().status.zookeeper_history
    assert found is not None
    assert found.contradiction is not None
    assert "was 9000" in found.contradiction.what


def test_before_the_copy_there_is_nothing_to_compare() -> None:
    fields = {"migration_offset": "-1", "claim_epoch": -1, "kraft_epoch": -1, "migration_czxid": ""}
    before = replace(zookeeper(taken_over=False), zxid=ZXID)
    fine = open_gate(Phase.TAKING_OVER).with_status(migration_offset=None)
    fine = fine.observing(stateful_sets=(broker_set(BrokerMode.MIGRATION),))
    again, _, second = twice(remembering(fine, replace(before, cluster_id=None), **fields))
    assert rollback_possible(second) == ("False", Reason.CONTRADICTS)
    decision = again.after(second).later(1.0).observing(zookeeper=before).decide()
    assert decision.status.zookeeper_history is not None
    assert decision.status.zookeeper_history.contradiction is None
    assert not decision.status.findings


@pytest.mark.parametrize("name", ["wiped", "another cluster's"])
def test_a_rollback_from_before_the_takeover_waits_for_its_own_zookeeper(name: str) -> None:
    """A simulated run (seed 5000021) ended on the word of a wiped ZooKeeper, and ``/migration`` was left in the one that came back."""
    case = going_back().with_status(zookeeper_history=None, migration_offset=None, verifications=())
    again, first, second = twice(case.observing(zookeeper=CONTRADICTIONS[name]))
    assert harmful(first) == harmful(second) == []
    assert second.status.phase is Phase.ROLLING_BACK
    back = again.after(second).later(1.0).observing(zookeeper=replace(zookeeper(taken_over=False), zxid=ZXID)).decide()
    assert any(isinstance(a, StopControllers) for a in back.actions)


def test_the_next_attempt_begins_a_record_of_its_own() -> None:
    case = remembering(going_back()).with_status(phase=Phase.ROLLED_BACK).asking(Target.KRAFT)
    assert case.decide().status.zookeeper_history is None
    other = remembering(open_gate(Phase.DUAL_WRITE), CONTRADICTIONS["/migration created anew"], attempt=7)
    known = other.decide().status.zookeeper_history
    assert known is not None
    assert (known.attempt, known.contradiction) == (1, None)


def right_again(case: Situation) -> Situation:
    """Return the same once ZooKeeper shows again what it showed: the comparison is what is left to do."""
    again, _, second = twice(remembering(case, OLDER))
    return again.after(second).later(60.0).observing(zookeeper=replace(TAKEN_OVER, zxid=ZXID + 9))


def after_steps(case: Situation, steps: int, seconds: float = 30.0) -> Decision:
    """Return the last of some decisions on the same reading."""
    for _ in range(steps):
        decision = case.decide()
        case = case.after(decision).later(seconds)
    return case.decide()


def test_a_rollback_that_does_without_deleted_controllers_begins_once_zookeeper_is_right_again() -> None:
    """A simulated run (seed 100070) waited for an active controller for ever: nobody creates them anew, and no rollback began."""
    case = right_again(open_gate(Phase.DUAL_WRITE, Target.ZOOKEEPER))
    word = case.spec.rollback.model_copy(update={"accept_loss": True})
    gone = case.asking(rollback=word).observing(controllers=NO_CONTROLLERS, metrics={}, quorum=UNKNOWN)
    assert after_steps(gone, 3).status.phase is Phase.ROLLING_BACK


def restarting(case: Situation, started: float) -> Situation:
    """Return the same while a controller restarts with a change that keeps it from starting."""
    known = case.status.controllers
    assert known is not None
    rendered = known.rendered or RenderedControllers.of(case.spec.controllers)
    to = rendered.model_copy(update={"heap_options": "-Xmx1m"})
    began = case.now - timedelta(seconds=started)
    change = ControllersChange(to=to, before=rendered, started_at=began)
    operation = Operation(
        kind=OperationKind.RESTART_CONTROLLER, node_id=3002, pod="main-kraft-3002", pod_uid="old", started_at=began
    )
    workload = controllers_workload()
    assert workload.stateful_set is not None
    pods = tuple(
        replace(p, ready=False, ready_since=None, name="main-kraft-3002") if p.ordinal == 3002 else p
        for p in workload.stateful_set.pods
    )
    down = replace(workload, stateful_set=replace(workload.stateful_set, pods=pods))
    changed = known.model_copy(update={"rendered": to, "change": change})
    return case.with_status(controllers=changed, operation=operation).observing(controllers=down)


def test_a_rollback_does_not_wait_for_a_controller_that_does_not_start_once_zookeeper_is_right_again() -> None:
    """A simulated run (seed 100803) followed it for ever, while the stores were not compared."""
    case = restarting(right_again(going_back()), 200.0)
    words = after_steps(case, 3, 1.0).status.message
    assert "3002" not in words.partition(". Node")[0], words


def test_a_change_that_keeps_a_controller_from_starting_is_taken_back_once_zookeeper_is_right_again() -> None:
    case = restarting(right_again(open_gate(Phase.DUAL_WRITE)), 700.0)
    decision = case.decide()
    known = decision.status.controllers
    assert known is not None
    assert known.change is not None
    assert "3002" in known.change.failed
    recent = restarting(right_again(open_gate(Phase.DUAL_WRITE)), 5.0).decide()
    assert recent.status.controllers is not None
    assert recent.status.controllers.change is not None
    assert not recent.status.controllers.change.failed
    assert [a for a in recent.actions if isinstance(a, RestartPod)] == []
