"""Guards that hold in every phase: Leases, the migration flag, strangers, somebody else's changes, a deletion half-way."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.observations import (
    BROKER_IDS,
    CONTROLLER_IDS,
    LEASE,
    NOW,
    Situation,
    broker_set,
    controller_metrics,
    controllers_workload,
    open_gate,
    rolling,
    zookeeper,
)

from kraftbridge.models.conditions import ConditionType, condition
from kraftbridge.models.decision import (
    ApplyControllers,
    EventReason,
    HoldLease,
    ReleaseLease,
    RestartPod,
    StopControllers,
)
from kraftbridge.models.observation import (
    ActionOutcome,
    BrokerZnode,
    ControllersWorkload,
    LeaseState,
    NodeFeatures,
    StatefulSetState,
    Unobserved,
)
from kraftbridge.models.phase import FORWARD, ControllerMode, Phase, Target, ZkMigrationState
from kraftbridge.models.spec import OnDeletion
from kraftbridge.models.status import Operation, OperationKind

HOLDING = [p for p in FORWARD if not p.at_rest]
FLAGGED = [p for p in FORWARD if p.row.migrates]
UNKNOWN = Unobserved("somebody", "silent")
THEIRS = LeaseState("kafka/other/uid by another", age_seconds=3.0, resource_version="9")


def with_set(situation: Situation, **changes: Any) -> Situation:
    (item,) = situation.observation.stateful_sets
    assert isinstance(item, StatefulSetState)
    return situation.observing(stateful_sets=(replace(item, **changes),))


def stalled(situation: Situation) -> tuple[str, str, str]:
    found = condition(situation.decide().status.conditions, ConditionType.STALLED)
    assert found is not None
    return found.status, found.reason, found.message


# -------------------------------------------------------------------------------------------------- Leases


@pytest.mark.parametrize("phase", HOLDING)
@pytest.mark.parametrize("lease", [LeaseState(), replace(THEIRS, expired=True), LeaseState(resource_version="4")])
def test_nothing_is_done_before_the_lease_is_held(phase: Phase, lease: LeaseState) -> None:
    decision = with_set(open_gate(phase), lease=lease).decide()
    assert decision.status.phase is phase
    assert decision.actions == (HoldLease("kafka", lease.resource_version),)


def test_a_refusal_is_over_once_what_was_refused_has_succeeded() -> None:
    """A Lease is renewed at every look at rest: that something is being tried does not keep an old refusal standing."""
    waiting = open_gate(Phase.AWAITING_FINALIZATION, Target.KRAFT_BROKERS)
    resting = with_set(waiting, lease=replace(LEASE, age_seconds=14.0))
    refused = resting.observing(outcomes=(ActionOutcome("HoldLease", "403", refused=True),))
    assert stalled(refused)[:2] == ("True", "Refused")
    again = resting.after(refused.decide()).observing(outcomes=())
    assert [type(a) for a in again.decide().actions] == [HoldLease]
    assert stalled(again)[:2] == ("True", "Refused"), "it is not known yet"
    held = again.after(again.decide()).observing(outcomes=(ActionOutcome("HoldLease"),))
    assert stalled(held)[0] == "False"


@pytest.mark.parametrize("phase", HOLDING)
def test_another_holder_is_named_and_nothing_is_done(phase: Phase) -> None:
    case = with_set(open_gate(phase), lease=THEIRS)
    decision = case.decide()
    assert (decision.status.phase, decision.actions) == (phase, ())
    status, reason, message = stalled(case)
    assert (status, reason) == ("True", "LockedByAnother")
    assert "kafka/other/uid by another" in message
    assert "Lease kraftbridge-kafka" in message


@pytest.mark.parametrize("phase", HOLDING)
def test_an_unknown_lease_is_no_lease(phase: Phase) -> None:
    decision = with_set(open_gate(phase), lease=UNKNOWN).decide()
    assert (decision.status.phase, decision.actions) == (phase, ())
    assert "somebody could not be observed" in decision.status.message


@pytest.mark.parametrize("phase", HOLDING)
def test_statefulsets_that_are_not_seen_have_no_lease(phase: Phase) -> None:
    decision = open_gate(phase).observing(stateful_sets=(UNKNOWN,)).decide()
    assert (decision.status.phase, decision.actions) == (phase, ())
    assert "somebody could not be observed" in decision.status.message


@pytest.mark.parametrize("phase", HOLDING)
def test_a_lease_is_renewed_in_passing_and_one_that_ran_out_is_not_trusted(phase: Phase) -> None:
    old = with_set(open_gate(phase), lease=replace(LEASE, age_seconds=12.0)).decide()
    assert HoldLease("kafka", "7") in old.actions
    assert old.status.phase is not phase
    lapsed = with_set(open_gate(phase), lease=replace(LEASE, age_seconds=31.0)).decide()
    assert lapsed.actions == (HoldLease("kafka", "7"),)
    assert lapsed.status.phase is phase


def test_preflight_names_another_holder_too() -> None:
    decision = with_set(open_gate(Phase.PREFLIGHT), lease=THEIRS).decide()
    assert decision.status.phase is Phase.PREFLIGHT
    assert [f.code for f in decision.status.findings] == ["LockedByAnother"]


@pytest.mark.parametrize("phase", [Phase.PREFLIGHT, Phase.COMPLETED])
def test_at_rest_the_lease_is_given_up_once_the_lock_is_gone(phase: Phase) -> None:
    assert ReleaseLease("kafka") in with_set(open_gate(phase), lease=LEASE).decide().actions
    locked = with_set(open_gate(Phase.COMPLETED), lease=LEASE, lock="kafka/demo/5f0c6a1e-7b1d-4f6e-9a57-0c55aa10f00d")
    assert ReleaseLease("kafka") not in locked.decide().actions


def test_a_rollback_that_touched_nothing_needs_no_lease() -> None:
    case = with_set(open_gate(Phase.PROVISIONING_QUORUM, Target.ZOOKEEPER), lease=THEIRS)
    going = case.with_status(phase=Phase.ROLLING_BACK)
    assert "LockedByAnother" not in stalled(going)


# ------------------------------------------------------------------------------------------ the migration flag


def flags(*without: int) -> dict[int, NodeFeatures]:
    return {i: NodeFeatures({}, {}, zk_migration_ready=i not in without) for i in CONTROLLER_IDS}


@pytest.mark.parametrize("phase", FLAGGED)
def test_a_controller_without_the_flag_is_an_alarm_and_restarted(phase: Phase) -> None:
    case = open_gate(phase).observing(features=flags(3001))
    decision = case.decide()
    assert decision.status.phase is phase
    (act,) = decision.actions
    assert isinstance(act, RestartPod)
    assert (act.node_id, act.ready) == (3001, False)
    status, reason, message = stalled(case)
    assert (status, reason) == ("True", "ControllerWithoutMigrationFlag")
    assert "controller 3001" in message
    assert EventReason.ALARM in [e.reason for e in decision.events]
    again = case.after(decision).decide()
    assert EventReason.ALARM not in [e.reason for e in again.events], "told once"


@pytest.mark.parametrize("phase", FLAGGED)
def test_flags_that_stand_and_silent_controllers_are_no_alarm(phase: Phase) -> None:
    for features in (flags(), {**flags(), 3000: UNKNOWN}, UNKNOWN):
        assert open_gate(phase).observing(features=features).decide().status.phase is not phase


@pytest.mark.parametrize("phase", FLAGGED)
def test_the_objects_get_their_flag_back_before_any_pod_restarts(phase: Phase) -> None:
    final = replace(controllers_workload(ControllerMode.FINAL, done=0))
    template = open_gate(phase).observing(controllers=final, features=flags(3001)).decide()
    edited = replace(
        controllers_workload(),
        migration_flag=False,
        config_writer=" demo-kraft-migration-0123456789 (last written by kubectl)",
    )
    config_map = open_gate(phase).observing(controllers=edited, features=flags(3001)).decide()
    for decision in (template, config_map):
        assert decision.actions == (ApplyControllers(ControllerMode.MIGRATION, format_allowed=False),)
        assert decision.status.phase is phase
    assert "last written by kubectl" in config_map.status.message


def test_the_majority_stays() -> None:
    workload = controllers_workload()
    assert workload.stateful_set is not None
    pods = workload.stateful_set.pods
    one_down = replace(
        workload, stateful_set=replace(workload.stateful_set, pods=(replace(pods[0], ready=False), *pods[1:]))
    )
    decision = open_gate(Phase.DUAL_WRITE).observing(controllers=one_down, features=flags(3001)).decide()
    assert decision.actions == ()
    assert "majority" in decision.status.message


def test_a_pod_that_just_restarted_is_not_judged_by_its_predecessor() -> None:
    workload = controllers_workload()
    assert workload.stateful_set is not None
    pods = workload.stateful_set.pods
    fresh = replace(pods[1], ready_since=NOW - timedelta(seconds=2))
    back = replace(workload, stateful_set=replace(workload.stateful_set, pods=(pods[0], fresh, pods[2])))
    decision = open_gate(Phase.DUAL_WRITE).observing(controllers=back, features=flags(3001)).decide()
    assert not [a for a in decision.actions if isinstance(a, RestartPod)]


@pytest.mark.parametrize("phase", FLAGGED)
@pytest.mark.parametrize("target", [Target.KRAFT, Target.ZOOKEEPER])
def test_an_end_that_nobody_asked_for_stops_everything(phase: Phase, target: Target) -> None:
    ended = controller_metrics(ZkMigrationState.POST_MIGRATION, 0, 3)
    decision = open_gate(phase, target).observing(metrics=ended).decide()
    assert (decision.status.phase, decision.actions) == (phase, ())
    assert "never asked for" in decision.status.message


# ----------------------------------------------------------------------------------------------- strangers


@pytest.mark.parametrize("phase", FLAGGED)
def test_a_broker_that_joined_is_named_and_nothing_restarts(phase: Phase) -> None:
    joined = BrokerZnode(7, ("kafka-extra-0.kafka",))
    state = zookeeper(taken_over=True)
    case = open_gate(phase).observing(zookeeper=replace(state, brokers=(*state.brokers, joined)))
    decision = case.decide()
    assert (decision.status.phase, decision.actions) == (phase, ())
    assert stalled(case)[:2] == ("True", "UnknownBroker")
    assert "broker 7 (kafka-extra-0.kafka)" in decision.status.message


def test_a_broker_that_only_metadata_shows_is_named_too() -> None:
    fine = open_gate(Phase.ROLLING_BROKERS)
    cluster = replace(fine.observation.cluster, brokers=frozenset({*BROKER_IDS, 9}))  # type: ignore[type-var]
    assert stalled(fine.observing(cluster=cluster))[1] == "UnknownBroker"


def test_going_back_is_not_held_up_by_a_stranger() -> None:
    state = zookeeper(taken_over=True)
    joined = replace(state, brokers=(*state.brokers, BrokerZnode(7, ("x",))))
    decision = open_gate(Phase.DUAL_WRITE, Target.ZOOKEEPER).observing(zookeeper=joined).decide()
    assert decision.status.phase is Phase.ROLLING_BACK


# ------------------------------------------------------------------------------------- others' changes


@pytest.mark.parametrize(
    ("phase", "done"), [(Phase.TAKING_OVER, 0), (Phase.TAKING_OVER, 2), (Phase.ROLLING_BROKERS, 1)]
)
def test_no_broker_restarts_on_a_template_that_somebody_else_changed(phase: Phase, done: int) -> None:
    case = with_set(rolling(phase, done), foreign=("image a:1 became a:2",), last_writer="helm (Update at 12:00)")
    decision = case.decide()
    assert not [a for a in decision.actions if isinstance(a, RestartPod)]
    status, reason, message = stalled(case)
    assert (status, reason) == ("True", "ForeignChange")
    assert "helm (Update at 12:00) changed its template" in message
    assert "image a:1 became a:2" in message


def test_who_took_our_fields_is_named() -> None:
    case = with_set(
        rolling(Phase.ROLLING_BROKERS, 1), drift=("env KAFKA_PROCESS_ROLES",), last_writer="argocd (Apply at 1)"
    )
    assert "argocd (Apply at 1) changed env KAFKA_PROCESS_ROLES" in case.decide().status.message


# ----------------------------------------------------------------------------------------------- deletion


def deleted(phase: Phase, on_deletion: OnDeletion, target: Target | None = None) -> Situation:
    fine = open_gate(phase, target).asking(on_deletion=on_deletion)
    return replace(fine, identity=replace(fine.identity, deleting=True))


CONFIGURES = [p for p in HOLDING if p not in (Phase.PROVISIONING_QUORUM, Phase.FINALIZING) and not p.row.on_kafka4]


@pytest.mark.parametrize("phase", CONFIGURES)
def test_a_deletion_half_way_stops_and_says_how_to_go_on(phase: Phase) -> None:
    case = deleted(phase, OnDeletion.BLOCK)
    decision = case.decide()
    assert (decision.status.phase, decision.actions) == (phase, ())
    status, reason, message = stalled(case)
    assert (status, reason) == ("True", "DeletionWaits")
    assert all(words in message for words in ("spec.target to ZooKeeper", "spec.onDeletion to Finish", "abandon=true"))


@pytest.mark.parametrize("on_deletion", OnDeletion)
def test_a_deletion_before_a_broker_was_changed_removes_the_controllers(on_deletion: OnDeletion) -> None:
    decision = deleted(Phase.PROVISIONING_QUORUM, on_deletion, Target.QUORUM_READY).decide()
    assert decision.status.phase is Phase.PROVISIONING_QUORUM
    assert [type(action) for action in decision.actions] == [StopControllers]
    assert decision.status.rollback is not None
    assert decision.status.rollback.controllers_stopped_at is not None, "the intent is on record first"
    onward = deleted(Phase.PROVISIONING_QUORUM, OnDeletion.FINISH).decide()
    assert StopControllers not in {type(action) for action in onward.actions}


def test_a_removal_that_has_begun_ends_before_the_migration_goes_on_to_its_end() -> None:
    """A user changed onDeletion to Finish meanwhile: the migration went on, and passed for one with stopped controllers."""
    removing = deleted(Phase.PROVISIONING_QUORUM, OnDeletion.BLOCK)
    begun = removing.after(removing.decide()).asking(on_deletion=OnDeletion.FINISH)
    assert [type(action) for action in begun.decide().actions] == [StopControllers]
    gone = begun.observing(controllers=ControllersWorkload(None))
    ended = gone.decide().status
    assert (ended.controllers, ended.rollback) == (None, None)
    anew = gone.after(gone.decide()).decide()
    assert StopControllers not in {type(action) for action in anew.actions}
    assert anew.status.message == "the controllers' StatefulSet is being created"


@pytest.mark.parametrize("phase", CONFIGURES)
def test_a_deletion_follows_the_spec(phase: Phase) -> None:
    assert deleted(phase, OnDeletion.ROLL_BACK).decide().status.phase is Phase.ROLLING_BACK
    assert deleted(phase, OnDeletion.BLOCK, Target.ZOOKEEPER).decide().status.phase is Phase.ROLLING_BACK
    onward = deleted(phase, OnDeletion.FINISH).decide().status.phase
    assert onward is open_gate(phase).decide().status.phase is not phase


@pytest.mark.parametrize("on_deletion", OnDeletion)
def test_a_deletion_cannot_stop_a_finalization(on_deletion: OnDeletion) -> None:
    assert deleted(Phase.FINALIZING, on_deletion).decide().status.phase is Phase.COMPLETED


def test_a_restart_under_way_is_finished_before_the_deletion_waits() -> None:
    (item,) = rolling(Phase.TAKING_OVER, 1).observation.stateful_sets
    assert isinstance(item, StatefulSetState)
    pod = item.pods[0]
    operation = Operation(kind=OperationKind.RESTART_BROKER, node_id=0, pod=pod.name, pod_uid="gone", started_at=NOW)
    case = rolling(Phase.TAKING_OVER, 1).with_status(operation=operation)
    case = replace(case, identity=replace(case.identity, deleting=True))
    decision = case.decide()
    assert decision.status.operation is None
    assert not [a for a in decision.actions if isinstance(a, RestartPod)]
    waits = case.after(decision)
    assert stalled(waits)[1] == "DeletionWaits"
    assert broker_set() is not None
