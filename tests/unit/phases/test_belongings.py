"""Objects of ours that somebody deleted: absence is no end of anything, and what is wanted is created again."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.observations import (
    BROKER_SET,
    CLUSTER_ID,
    CONTROLLER_IDS,
    CONTROLLERS,
    FORWARD,
    NOW,
    Situation,
    broker_set,
    controllers_workload,
    open_gate,
    partly_rolled,
    pod,
    quorum,
    with_pods,
    zookeeper,
)
from tests.unit.phases.test_rollback import GONE, REMOVED, UNKNOWN, going_back, isolated

from kraftbridge.models.catalogue import Code
from kraftbridge.models.conditions import ConditionType, Reason, condition
from kraftbridge.models.decision import (
    Action,
    ApplyControllers,
    ConfigureBrokers,
    Decision,
    HoldLease,
    LaunchRun,
    ReleaseStatefulSet,
    RemoveControllerClaim,
    RestartPod,
    RestoreStatefulSet,
    StopControllers,
)
from kraftbridge.models.observation import ControllerMetrics, ControllersWorkload, QuorumState, Unobserved
from kraftbridge.models.phase import BrokerMode, ControllerMode, Phase, ZkMigrationState
from kraftbridge.models.spec import ReformatSpec
from kraftbridge.models.status import (
    HandOverStatus,
    RollbackStatus,
    ZooKeeperBehind,
    ZooKeeperContradiction,
    ZooKeeperHistory,
)
from kraftbridge.phases.belongings import wanted

CLAIMS = {i: f"pvc-{i}" for i in CONTROLLER_IDS}
SERVICE = f"Service/{CONTROLLERS}"
KEPT = [p for p in FORWARD if FORWARD.index(p) >= FORWARD.index(Phase.TAKING_OVER)]
AGAIN = ApplyControllers(ControllerMode.MIGRATION, format_allowed=False)
HARM = (RemoveControllerClaim, RestoreStatefulSet, ReleaseStatefulSet, RestartPod, ConfigureBrokers, StopControllers)


def without(case: Situation, **workload: Any) -> Situation:
    """Return the same after somebody deleted the controllers' StatefulSet: nobody answers for the quorum."""
    gone = ControllersWorkload(None, **({"claims": CLAIMS} | workload))
    return case.observing(controllers=gone, quorum=UNKNOWN, metrics=GONE, registered_controllers=UNKNOWN)


def done(actions: tuple[Action, ...]) -> list[Action]:
    return [a for a in actions if not isinstance(a, HoldLease)]


@pytest.mark.parametrize("phase", KEPT)
def test_a_deleted_statefulset_is_created_again_over_its_volumes(phase: Phase) -> None:
    """Up to 87d037e nothing created it from TakingOver to AwaitingFinalization."""
    is_final = phase in (Phase.FINALIZING, Phase.COMPLETED) or phase.row.on_kafka4
    mode = ControllerMode.FINAL if is_final else ControllerMode.MIGRATION
    decision = without(open_gate(phase)).decide()
    assert done(decision.actions) == [ApplyControllers(mode, format_allowed=False)]
    assert decision.status.phase is phase
    assert "was deleted" in decision.status.message


@pytest.mark.parametrize("phase", [*KEPT, Phase.PROVISIONING_QUORUM])
@pytest.mark.parametrize(
    "lost",
    [
        SERVICE,
        f"ConfigMap/{CONTROLLERS}-migration-0123456789",
        f"ConfigMap/{CONTROLLERS}-format",
        f"NetworkPolicy/{CONTROLLERS}",
        f"PodDisruptionBudget/{CONTROLLERS}",
    ],
)
def test_what_else_was_deleted_is_created_again_and_nothing_else_is_written(phase: Phase, lost: str) -> None:
    fine = open_gate(phase)
    workload = fine.observation.controllers
    assert isinstance(workload, ControllersWorkload)
    decision = fine.observing(controllers=replace(workload, missing=(lost,), claims=CLAIMS)).decide()
    assert [a.only for a in decision.actions if isinstance(a, ApplyControllers)] == [(lost,)]
    assert any("deleted by somebody" in e.message for e in decision.events)


@pytest.mark.parametrize("phase", KEPT)
def test_a_config_map_that_vanished_a_moment_ago_is_named_as_well(phase: Phase) -> None:
    """What is missing is read every few seconds, the ConfigMap in each step: `make deletions-live` saw it come back unsaid."""
    fine = open_gate(phase)
    workload = fine.observation.controllers
    assert isinstance(workload, ControllersWorkload)
    vanished = replace(workload, missing=(), claims=CLAIMS, format_allowed=None)
    decision = fine.observing(controllers=vanished).decide()
    assert [a for a in decision.actions if isinstance(a, ApplyControllers)]
    assert any("ConfigMap" in e.message and "deleted by somebody" in e.message for e in decision.events)


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({3000: "pvc-3000", 3001: "pvc-3001"}, "that of controller 3002 is gone"),
        (CLAIMS | {3001: "pvc-new"}, "that of controller 3001 is another one"),
        ({}, "that of controller 3000 is gone"),
    ],
)
@pytest.mark.parametrize("phase", KEPT)
def test_over_other_claims_no_statefulset_is_created(phase: Phase, claims: dict[int, str], words: str) -> None:
    """Its controller would make blank volumes, or take one that holds who knows what."""
    decision = without(open_gate(phase), claims=claims).decide()
    majority = len(claims) < 2
    assert [a for a in done(decision.actions) if not isinstance(a, LaunchRun)] == []
    found = condition(decision.status.conditions, ConditionType.STALLED)
    assert found is not None
    assert (found.status, found.reason) == ("True", Reason.QUORUM_LOST if majority else Reason.FINDINGS)
    assert majority or words in decision.status.message
    wanted = Code.QUORUM_LOST if majority else Code.CONTROLLER_CLAIMS_LOST
    assert wanted in {f.code for f in decision.status.findings}


def test_claims_that_were_not_read_are_no_claims() -> None:
    assert done(without(open_gate(Phase.DUAL_WRITE), claims=None).decide().actions) == []


BLANK = "3002 cannot be reached"


def exchanged(case: Situation, **workload: Any) -> Situation:
    """Return the same after somebody deleted the claim and the pod of controller 3002: its voter waits on a blank volume."""
    seen = case.observation.controllers
    assert isinstance(seen, ControllersWorkload)
    waiting = {**case.observation.metrics, 3002: Unobserved("controller 3002", BLANK)}
    changed = replace(seen, **({"claims": CLAIMS | {3002: "pvc-new"}} | workload))
    return case.observing(controllers=changed, metrics=waiting)


def caught_up(case: Situation, fine: Situation) -> Situation:
    return case.observing(metrics=fine.observation.metrics)


def claims_in(decision: Decision) -> dict[str, str]:
    known = decision.status.controllers
    assert known is not None
    return known.volume_uids


@pytest.mark.parametrize("phase", [*KEPT, Phase.PROVISIONING_QUORUM])
def test_an_exchanged_claim_is_named_while_the_voters_run_on(phase: Phase) -> None:
    fine = open_gate(phase)
    decision = exchanged(fine).decide()
    assert [f.code for f in decision.status.findings] == [Code.CONTROLLER_CLAIMS_LOST]
    assert any("another one (pvc-new, not pvc-3002)" in e.message for e in decision.events)
    again = exchanged(fine).after(decision).decide()
    assert not any("pvc-new" in e.message for e in again.events), "once"
    workload = fine.observation.controllers
    assert isinstance(workload, ControllersWorkload)
    mended = fine.after(decision).observing(controllers=replace(workload, claims=CLAIMS))
    assert not mended.decide().status.findings


def asked(case: Situation, node_id: int = 3002, claim_uid: str = "pvc-new") -> Situation:
    """Return the same with the word that a controller may format its volume."""
    word = ReformatSpec(id=node_id, claim_uid=claim_uid)
    return case.asking(controllers=case.spec.controllers.model_copy(update={"reformat": word}))


def applied(decision: Decision) -> list[ApplyControllers]:
    return [a for a in decision.actions if isinstance(a, ApplyControllers)]


@pytest.mark.parametrize("phase", [*KEPT, Phase.PROVISIONING_QUORUM])
def test_a_voter_that_a_person_replaced_is_recorded_once_it_has_caught_up(phase: Phase) -> None:
    """Up to 912dfab the finding stayed for ever, and a StatefulSet that was deleted later did not come back."""
    fine = open_gate(phase)
    first = asked(exchanged(fine)).decide()
    assert claims_in(first)["3002"] == "pvc-3002"
    assert [(a.format_allowed, a.reformat) for a in applied(first)] == [(False, 3002)]
    # Nothing refuses it before the voter has what the others have.
    allowed = asked(exchanged(fine.after(first), reformat=3002))
    decision = allowed.decide()
    assert not applied(decision)
    assert claims_in(decision)["3002"] == "pvc-3002"
    after = caught_up(allowed.after(decision), fine)
    decision = after.decide()
    assert claims_in(decision) == {"3000": "pvc-3000", "3001": "pvc-3001", "3002": "pvc-new"}
    assert not decision.status.findings
    assert "Controller 3002 has caught up" in " ".join(e.message for e in decision.events)
    refused = applied(decision)
    assert refused
    assert {(a.format_allowed, a.reformat) for a in refused} == {(False, None)}
    # The word counts once: the same claim with another blank disk waits for another word.
    blank = asked(exchanged(fine.after(decision)))
    assert {a.reformat for a in applied(blank.decide())} <= {None}
    workload = blank.observation.controllers
    assert isinstance(workload, ControllersWorkload)
    down = with_pods(workload, 3002, ready=False, ready_since=None)
    assert {a.reformat for a in applied(blank.observing(controllers=down).decide())} <= {None}


def test_a_word_that_is_taken_back_is_refused() -> None:
    fine = open_gate(Phase.DUAL_WRITE)
    first = asked(exchanged(fine)).decide()
    taken_back = exchanged(fine.after(first), reformat=3002).decide()
    assert [(a.format_allowed, a.reformat) for a in applied(taken_back)] == [(False, None)]
    assert taken_back.status.controllers is not None
    assert taken_back.status.controllers.reformat is None


def unled(case: Situation) -> Situation:
    return case.observing(quorum=Unobserved("quorum", "no leader"))


def led_by_itself(case: Situation) -> Situation:
    seen = case.observation.quorum
    assert isinstance(seen, QuorumState)
    return case.observing(quorum=replace(seen, leader_id=3002))


def lacking(case: Situation) -> Situation:
    return case.observing(quorum=quorum(lags={3001: 5_000}))


@pytest.mark.parametrize(
    ("spoil", "word", "reason"),
    [
        (unled, {}, "the other voters are not whole: quorum could not be observed"),
        (led_by_itself, {}, "the other voters are not whole: controller 3000 sees leader"),
        (lacking, {}, "the other voters are not whole: the slowest voter is"),
        (lambda case: case, {"claim_uid": "pvc-typo"}, "its claim is pvc-new, not pvc-typo"),
        (lambda case: case, {"node_id": 7}, "no voter has this id; the voters are 3000, 3001, 3002"),
    ],
)
def test_no_volume_is_formatted_unless_the_others_hold_the_log(spoil: Any, word: dict[str, Any], reason: str) -> None:
    decision = spoil(asked(exchanged(open_gate(Phase.DUAL_WRITE)), **word)).decide()
    assert {a.reformat for a in applied(decision)} <= {None}
    (found,) = [f for f in decision.status.findings if f.code == Code.CONTROLLER_NOT_REFORMATTED]
    assert reason in found.reason, found.reason
    assert decision.status.controllers is not None
    assert decision.status.controllers.reformat is None


def test_a_word_that_was_taken_counts_no_longer_than_the_others_are_whole() -> None:
    fine = open_gate(Phase.DUAL_WRITE)
    first = asked(exchanged(fine)).decide()
    later = unled(asked(exchanged(fine.after(first), reformat=3002))).decide()
    assert [(a.format_allowed, a.reformat) for a in applied(later)] == [(False, None)]


@pytest.mark.parametrize("behind", [5, 6_001])
def test_a_voter_that_lacks_records_is_not_recorded(behind: int) -> None:
    """A lag above `gates.MAX_LAG_RECORDS`, and a voter that has not fetched from the leader."""
    fine = open_gate(Phase.DUAL_WRITE)
    case = caught_up(exchanged(fine, format_allowed=True), fine).observing(quorum=quorum(lags={3002: behind}))
    decision = case.decide()
    assert claims_in(decision)["3002"] == "pvc-3002"
    assert [f.code for f in decision.status.findings] == [Code.CONTROLLER_CLAIMS_LOST]


def test_a_voter_without_an_image_or_a_ready_pod_is_not_recorded() -> None:
    fine = open_gate(Phase.DUAL_WRITE)
    case = caught_up(exchanged(fine, format_allowed=True), fine)
    seen = case.observation.metrics[3002]
    assert isinstance(seen, ControllerMetrics)
    loading = {**case.observation.metrics, 3002: replace(seen, zk_migration_state=ZkMigrationState.NOT_LOADED)}
    assert claims_in(case.observing(metrics=loading).decide())["3002"] == "pvc-3002"
    workload = case.observation.controllers
    assert isinstance(workload, ControllersWorkload)
    assert workload.stateful_set is not None
    *others, last = workload.stateful_set.pods
    for changes in ({"ready": False}, {"deleting": True}):
        pods = (*others, replace(last, **changes))
        down = replace(workload, stateful_set=replace(workload.stateful_set, pods=pods))
        assert claims_in(case.observing(controllers=down).decide())["3002"] == "pvc-3002"


@pytest.mark.parametrize("phase", KEPT)
def test_what_a_person_allowed_and_forgot_is_refused_again(phase: Phase) -> None:
    """Otherwise the next volume that is lost is formatted by nobody's decision."""
    fine = open_gate(phase)
    workload = fine.observation.controllers
    assert isinstance(workload, ControllersWorkload)
    decision = fine.observing(controllers=replace(workload, format_allowed=True, claims=CLAIMS)).decide()
    applied = [a for a in decision.actions if isinstance(a, ApplyControllers)]
    assert applied
    assert not any(a.format_allowed for a in applied)


@pytest.mark.parametrize("mode", [BrokerMode.MIGRATION, BrokerMode.KRAFT])
def test_a_rollback_takes_absence_for_no_stop(mode: BrokerMode) -> None:
    """Up to 87d037e it removed the claim, with whatever ZooKeeper had not mirrored."""
    behind = zookeeper(taken_over=True, offset=5_000)
    case = without(going_back(stateful_sets=(broker_set(mode),), zookeeper=behind))
    decision = case.decide()
    assert done(decision.actions) == [AGAIN]
    assert not [a for a in decision.actions if isinstance(a, HARM)]
    lost = without(going_back(stateful_sets=(broker_set(mode),), zookeeper=behind), claims={})
    for _ in range(50):
        decision = lost.decide()
        assert not [a for a in decision.actions if isinstance(a, HARM)]
        lost = lost.after(decision).later(20)


def test_isolated_controllers_come_back_isolated() -> None:
    decision = without(isolated()).decide()
    assert done(decision.actions) == [ApplyControllers(ControllerMode.ISOLATED, format_allowed=False)]


def test_with_accepted_loss_a_rollback_needs_no_controllers_but_records_their_stop() -> None:
    case = without(going_back(), claims={})
    case = case.asking(rollback=case.spec.rollback.model_copy(update={"accept_loss": True}))
    assert done(case.decide().actions) == [], "what ZooKeeper lacks is read first"
    case = case.observing(behind=ZooKeeperBehind(read_at=NOW, partitions=0, topics=0, deleted_topics=0))
    decision = case.decide()
    assert done(decision.actions) == [StopControllers(CONTROLLERS, CONTROLLER_IDS)]
    assert decision.status.rollback is not None
    assert decision.status.rollback.controllers_stopped_at == NOW
    assert done(case.after(decision).later(1).decide().actions) == [RemoveControllerClaim(2)]


def test_with_accepted_loss_the_controllers_come_back_while_a_broker_is_on_kraft() -> None:
    """Without them no broker leaves KRaft mode. A simulated run (seed 6000183) waited for ever for a full ISR."""
    item = partly_rolled(1, BrokerMode.MIGRATION, BrokerMode.KRAFT)
    case = without(going_back(stateful_sets=(item,)))
    case = case.asking(rollback=case.spec.rollback.model_copy(update={"accept_loss": True}))
    assert done(case.decide().actions) == [ApplyControllers(ControllerMode.MIGRATION, format_allowed=False)]


def test_with_accepted_loss_no_controller_has_to_compare_a_zookeeper_that_is_back() -> None:
    """Only they could, and nobody creates them again. A simulated run (seed 131) waited for ever for their answer."""
    case = without(going_back())
    case = case.asking(rollback=case.spec.rollback.model_copy(update={"accept_loss": True}))
    found = ZooKeeperContradiction(id="first", what="", seen_at=NOW, confirmed_at=NOW)
    history = ZooKeeperHistory(
        attempt=1, cluster_id=CLUSTER_ID, migration_offset="5000", seen_at=NOW, contradiction=found
    )
    settled = case.with_status(zookeeper_history=history).decide()
    assert done(settled.actions) == []
    known = settled.status.zookeeper_history
    assert known is not None
    assert known.contradiction is None
    assert done(case.after(settled).later(1).decide().actions) == [StopControllers(CONTROLLERS, CONTROLLER_IDS)]


def test_a_stop_ends_when_no_pod_is_left_whoever_owns_it() -> None:
    """`kubectl delete sts --cascade=orphan` leaves the pods; one on a lost node runs until its Node is gone."""
    stopped = RollbackStatus(attempt=1, controllers_stopped_at=NOW - timedelta(seconds=60))
    runs_on = (pod(f"{CONTROLLERS}-3001", 3001, deleting=True),)
    case = without(going_back(), left=runs_on).with_status(rollback=stopped)
    decision = case.decide()
    assert done(decision.actions) == [StopControllers(CONTROLLERS, CONTROLLER_IDS)]
    assert "out-of-service" in decision.status.message
    assert done(without(case).decide().actions) == [RemoveControllerClaim(2)]
    deleting = replace(controllers_workload(), left=runs_on)
    assert deleting.stateful_set is not None
    emptied = replace(deleting, stateful_set=replace(deleting.stateful_set, pods=(), deleting=True))
    assert not [a for a in case.observing(controllers=emptied).decide().actions if isinstance(a, RemoveControllerClaim)]


def test_nothing_is_wanted_before_the_controllers_after_their_stop_and_after_the_hand_over() -> None:
    fine = open_gate(Phase.DUAL_WRITE).status
    assert wanted(Phase.DUAL_WRITE, fine.model_copy(update={"controllers": None})) is None
    assert wanted(Phase.PREFLIGHT, fine) is None
    assert wanted(Phase.ROLLED_BACK, fine) is None
    assert wanted(Phase.ROLLING_BACK, fine) is None, "nothing was taken over"
    known = going_back().decide().status
    assert wanted(Phase.ROLLING_BACK, known) is ControllerMode.ISOLATED
    assert wanted(Phase.ROLLING_BACK, known.model_copy(update={"rollback": REMOVED})) is None
    other = REMOVED.model_copy(update={"attempt": 7})
    assert wanted(Phase.ROLLING_BACK, known.model_copy(update={"rollback": other})) is ControllerMode.ISOLATED
    handed = fine.model_copy(update={"hand_over": HandOverStatus(guarded=False, ended_at=NOW)})
    assert wanted(Phase.COMPLETED, fine) is ControllerMode.FINAL
    assert wanted(Phase.COMPLETED, handed) is None


@pytest.mark.parametrize("phase", [Phase.FINALIZING, Phase.PROVISIONING_QUORUM])
def test_keeping_the_controllers_makes_no_statefulset_over_other_claims(phase: Phase) -> None:
    decision = without(open_gate(phase), claims={}).decide()
    assert not [a for a in decision.actions if isinstance(a, ApplyControllers)]


def test_before_any_volume_is_recorded_the_objects_are_simply_applied() -> None:
    fine = open_gate(Phase.PROVISIONING_QUORUM)
    known = fine.status.controllers
    assert known is not None
    blank = fine.with_status(controllers=known.model_copy(update={"format_allowed": True, "volume_uids": {}}))
    decision = without(blank, claims={}).decide()
    assert ApplyControllers(ControllerMode.MIGRATION, format_allowed=True) in decision.actions
    assert BROKER_SET


@pytest.mark.parametrize("phase", [Phase.TAKING_OVER, Phase.DUAL_WRITE, Phase.ROLLING_BROKERS, Phase.FINALIZING])
def test_a_disk_that_was_replaced_under_the_recorded_claim_is_formatted_on_word_only(phase: Phase) -> None:
    fine = open_gate(phase)
    workload = controllers_workload(ControllerMode.FINAL if phase is Phase.FINALIZING else ControllerMode.MIGRATION)
    metrics = {**fine.observation.metrics, 3001: Unobserved("controller 3001", BLANK)}
    waiting = replace(with_pods(workload, 3001, ready=False, ready_since=None), claims=CLAIMS)
    case = fine.observing(controllers=waiting, metrics=metrics)
    assert {a.reformat for a in applied(case.decide())} <= {None}
    assert {a.reformat for a in applied(asked(case, 3001, "pvc-3001").decide())} == {3001}
    # What somebody wrote into the ConfigMap by hand is no word.
    by_hand = case.observing(controllers=replace(waiting, format_allowed=True)).decide()
    assert [(a.format_allowed, a.reformat) for a in applied(by_hand)] == [(False, None)]
