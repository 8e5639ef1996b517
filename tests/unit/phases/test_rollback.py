"""The way back: its order, and what keeps each of its steps from being taken."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args

import pytest
from tests.support.observations import (
    BROKER_IDS,
    BROKER_SET,
    CONTROLLERS,
    FORWARD,
    NOW,
    STATES_CREATED,
    Situation,
    broker_set,
    cluster,
    controller_metrics,
    controllers_workload,
    open_gate,
    partly_rolled,
    pod,
    quorum,
    record,
    zookeeper,
)

from kraftbridge import phases
from kraftbridge.models.conditions import ConditionType, condition
from kraftbridge.models.decision import (
    Action,
    ApplyControllers,
    ConfigureBrokers,
    CreatePartitionStates,
    ReleaseStatefulSet,
    RemoveCanary,
    RemoveControllerClaim,
    RemoveRun,
    RestartPod,
    RestoreStatefulSet,
    StopControllers,
)
from kraftbridge.models.observation import (
    ControllersWorkload,
    ControllerZnode,
    LeaseState,
    MigrationZnode,
    TopicRedundancy,
    Unobserved,
)
from kraftbridge.models.phase import BrokerMode, ControllerMode, Phase, Target, ZkMigrationState
from kraftbridge.models.report import Profile, Verdict
from kraftbridge.models.runs import RunKind
from kraftbridge.models.spec import ControllerVolumes, RollbackSpec
from kraftbridge.models.status import (
    BatchStatus,
    CanaryStatus,
    KilledBroker,
    MigrationOffset,
    MigrationStatus,
    Operation,
    OperationKind,
    QuorumRestart,
    Restoration,
    RollbackStatus,
    ZooKeeperHistory,
)

REVERSIBLE = tuple(phase for phase in FORWARD[1:] if phase.reversible)
STOP = StopControllers(CONTROLLERS, (3000, 3001, 3002))
ISOLATE = ApplyControllers(ControllerMode.ISOLATED, format_allowed=False)
UNKNOWN = Unobserved("somebody", "it is silent")
NO_CONTROLLERS = ControllersWorkload(None)
GONE: dict[int, Any] = dict.fromkeys((3000, 3001, 3002), UNKNOWN)


REMOVED = RollbackStatus(
    attempt=1,
    controllers_stopped_at=NOW - timedelta(seconds=9),
    claim_removed_at=NOW - timedelta(seconds=8),
    controller_back_at=NOW - timedelta(seconds=7),
)
"""The record of a rollback that has stopped its controllers and removed their claim."""


def kinds(actions: tuple[Action, ...]) -> set[type]:
    return {type(a) for a in actions}


def going_back(**observed: Any) -> Situation:
    """Return dual-write with all brokers in migration mode, on the way back."""
    fine = open_gate(Phase.DUAL_WRITE, Target.ZOOKEEPER)
    verified = record(Profile.DUAL_WRITE, Phase.ROLLING_BACK, "before-controllers-stop")
    mirrored = {"zookeeper": zookeeper(taken_over=True, offset=5_998)}
    return fine.with_status(phase=Phase.ROLLING_BACK, verifications=(verified,), verification_count=1).observing(
        **(mirrored | observed)
    )


def isolated(done: int = 3, **rollback: Any) -> Situation:
    """Return controllers of which ``done`` run where no broker reaches them, and ZooKeeper has the whole log."""
    fine = going_back(controllers=controllers_workload(ControllerMode.ISOLATED, done))
    known = fine.status.controllers
    assert known is not None
    fields = {"attempt": 1, "isolated_at": NOW - timedelta(seconds=10), "isolated_high_watermark": "5999"} | rollback
    return fine.with_status(
        rollback=RollbackStatus(**fields), controllers=known.model_copy(update={"mode": ControllerMode.ISOLATED})
    )


def claim_gone(**changes: Any) -> Situation:
    """Return the moment after controllers and claim are gone: ZooKeeper's own controller serves, brokers are in migration mode."""
    return going_back(
        controllers=NO_CONTROLLERS,
        metrics=GONE,
        quorum=UNKNOWN,
        zookeeper=zookeeper(taken_over=False),
        controller_by_broker=dict.fromkeys(BROKER_IDS, 1),
    ).with_status(**({"controller_agreed_since": NOW - timedelta(seconds=6), "rollback": REMOVED} | changes))


@pytest.mark.parametrize("phase", REVERSIBLE)
def test_one_word_leads_back_from_every_reversible_phase(phase: Phase) -> None:
    decision = open_gate(phase, Target.ZOOKEEPER).decide()
    assert decision.status.phase is Phase.ROLLING_BACK
    assert decision.actions == ()


@pytest.mark.parametrize("phase", REVERSIBLE)
def test_the_way_back_does_not_turn_round(phase: Phase) -> None:
    entered = open_gate(phase, Target.ZOOKEEPER)
    entered = entered.after(entered.decide()).asking(Target.KRAFT)
    assert entered.decide().status.phase is Phase.ROLLING_BACK


def test_brokers_leave_kraft_first() -> None:
    on_kraft = going_back(
        stateful_sets=(broker_set(BrokerMode.KRAFT),), metrics=controller_metrics(ZkMigrationState.MIGRATION, 0)
    )
    assert on_kraft.decide().actions == (ConfigureBrokers(BROKER_SET, BrokerMode.MIGRATION),)
    half = partly_rolled(1, BrokerMode.MIGRATION, BrokerMode.KRAFT)
    decision = on_kraft.observing(
        stateful_sets=(half,), metrics=controller_metrics(ZkMigrationState.MIGRATION, 1)
    ).decide()
    assert [a.pod for a in decision.actions if isinstance(a, RestartPod)] == [f"{BROKER_SET}-1"]
    assert not kinds(decision.actions) & {StopControllers, RemoveControllerClaim, RestoreStatefulSet}


def test_the_controllers_stop_after_a_fresh_verdict_only() -> None:
    assert going_back().decide().actions == (ISOLATE,)
    for spoiled in (
        going_back().with_status(verifications=()),
        going_back().with_status(
            verifications=(
                record(Profile.DUAL_WRITE, Phase.ROLLING_BACK, "before-controllers-stop", Verdict.INCONSISTENT),
            )
        ),
        going_back().with_status(
            verifications=(
                record(
                    Profile.DUAL_WRITE,
                    Phase.ROLLING_BACK,
                    "before-controllers-stop",
                    released_at=NOW - timedelta(seconds=601),
                ),
            )
        ),
        going_back().with_status(verifications=(record(Profile.DUAL_WRITE, Phase.ROLLING_BROKERS),)),
    ):
        decision = spoiled.decide()
        assert StopControllers not in kinds(decision.actions)
        assert decision.status.phase is Phase.ROLLING_BACK


def test_a_run_that_was_armed_for_another_gate_is_given_up() -> None:
    armed = record(Profile.ZOOKEEPER, Phase.TAKING_OVER, "entry", finished=False, released_at=None)
    proved = going_back().status.verifications
    decision = going_back().with_status(verifications=(armed, *proved)).decide()
    assert RemoveRun(RunKind.VERIFICATION, armed.run_id, keep_report=False) in decision.actions
    assert decision.status.verifications[0].finished_at == NOW
    own = record(Profile.DUAL_WRITE, Phase.ROLLING_BACK, "before-controllers-stop", finished=False)
    assert RemoveRun not in kinds(going_back().with_status(verifications=(own,)).decide().actions)


def test_the_controllers_run_on_while_zookeeper_lacks_something() -> None:
    frozen = going_back()
    offset = frozen.status.migration_offset
    assert offset is not None
    frozen = frozen.with_status(
        migration_offset=offset.model_copy(
            update={"offset": "5998", "seen_at": NOW, "moved_at": NOW - timedelta(minutes=1)}
        )
    )
    decision = frozen.decide()
    assert decision.actions == ()
    assert "acceptLoss" in decision.status.message
    accepted = frozen.asking(rollback=frozen.spec.rollback.model_copy(update={"accept_loss": True}))
    assert accepted.decide().actions == (STOP,)


@pytest.mark.parametrize("part", ["zookeeper", "controllers", "metrics"])
def test_unknown_stops_no_controller(part: str) -> None:
    spoiled = going_back(**{part: GONE if part == "metrics" else UNKNOWN})
    assert not kinds(spoiled.decide().actions) & {RemoveControllerClaim, RestoreStatefulSet}
    if part != "controllers":
        assert StopControllers not in kinds(spoiled.decide().actions)


def test_what_was_taken_over_must_be_readable() -> None:
    state = replace(zookeeper(taken_over=False), migration=UNKNOWN)
    assert StopControllers not in kinds(going_back(zookeeper=state).decide().actions)


def test_the_claim_goes_when_the_controllers_are_gone() -> None:
    stopped = RollbackStatus(attempt=1, controllers_stopped_at=NOW - timedelta(seconds=9))
    gone = going_back(controllers=NO_CONTROLLERS, metrics=GONE, quorum=UNKNOWN).with_status(rollback=stopped)
    decision = gone.decide()
    assert decision.actions == (RemoveControllerClaim(2),)
    still_there = going_back(controllers=controllers_workload(), metrics=GONE)
    assert RemoveControllerClaim not in kinds(still_there.decide().actions)


def test_a_migration_znode_alone_goes_too() -> None:
    state = replace(zookeeper(taken_over=False), migration=MigrationZnode(-1, -1, -1, -1))
    assert kinds(claim_gone().observing(zookeeper=state).decide().actions) == {RemoveControllerClaim}


@pytest.mark.parametrize(
    "views",
    [
        {0: 1, 1: 1, 2: 3000},
        {0: 1, 1: 1, 2: UNKNOWN},
        {0: 1, 1: 1},
        {0: 1, 1: 2, 2: 1},
        {0: -1, 1: -1, 2: -1},
        {0: 3000, 1: 3000, 2: 3000},
        {},
        UNKNOWN,
    ],
    ids=str,
)
def test_no_broker_stops_before_every_broker_names_the_same_controller(views: Any) -> None:
    decision = claim_gone().observing(controller_by_broker=views).decide()
    assert decision.actions == ()
    assert decision.status.phase is Phase.ROLLING_BACK


def test_the_brokers_agreement_must_last() -> None:
    fresh = claim_gone(controller_agreed_since=None)
    decision = fresh.decide()
    assert decision.actions == ()
    assert decision.status.controller_agreed_since == NOW
    assert fresh.after(decision).later(4.9).decide().actions == ()
    assert fresh.after(decision).later(5).decide().actions == (RestoreStatefulSet(BROKER_SET),)
    disturbed = fresh.after(decision).observing(controller_by_broker={0: 1, 1: 1, 2: 2}).decide()
    assert disturbed.status.controller_agreed_since is None


def test_brokers_go_back_one_at_a_time() -> None:
    def restored(done: int) -> Any:
        user = replace(broker_set(None), lock=broker_set(BrokerMode.MIGRATION).lock, update_strategy="OnDelete")
        return replace(user, pods=(*user.pods[:done], *broker_set(BrokerMode.MIGRATION).pods[done:]))

    for done in range(3):
        decision = claim_gone().observing(stateful_sets=(restored(done),)).decide()
        assert len([a for a in decision.actions if isinstance(a, RestartPod)]) == 1
        sick = claim_gone().observing(
            stateful_sets=(restored(done),), cluster=cluster(under_replicated=("t-0",), under_replicated_count=1)
        )
        assert RestartPod not in kinds(sick.decide().actions)
    all_back = restored(3)
    assert claim_gone().observing(stateful_sets=(all_back,)).decide().actions == (ReleaseStatefulSet(BROKER_SET),)
    # A restart that took too long is dropped; its broker is waited for all the same.
    starting = replace(all_back, pods=(*all_back.pods[:2], replace(all_back.pods[2], ready=False)))
    waiting = claim_gone().observing(stateful_sets=(starting,)).decide()
    assert (waiting.actions, waiting.status.phase) == ((), Phase.ROLLING_BACK)
    assert f"pod {starting.pods[2].name} is not Ready" in waiting.status.message
    assert claim_gone().observing(stateful_sets=(broker_set(None),)).decide().status.phase is Phase.ROLLED_BACK


def test_a_restart_out_of_migration_mode_ends_without_any_kraft_controller() -> None:
    user = replace(broker_set(None), lock=broker_set(BrokerMode.MIGRATION).lock, update_strategy="OnDelete")
    back = pod(f"{BROKER_SET}-0", 0, "", user.update_revision, uid="uid-successor", ready_since=NOW)
    item = replace(user, pods=(back, *broker_set(BrokerMode.MIGRATION).pods[1:]))
    operation = Operation(
        kind=OperationKind.RESTART_BROKER, node_id=0, pod=f"{BROKER_SET}-0", pod_uid="uid-before", started_at=NOW
    )
    decision = claim_gone(operation=operation).observing(stateful_sets=(item,)).decide()
    assert decision.status.operation is None, decision.status.message


def test_every_broker_of_a_batch_is_followed_before_anything_else_is_done() -> None:
    """The first one ended, and the StatefulSet was released in the same step.

    The others stayed on record, and the next attempt waited for ever to compare them.
    """
    item = replace(broker_set(None), lock=broker_set(BrokerMode.MIGRATION).lock, update_strategy="OnDelete")
    first, second = (
        Operation(
            kind=OperationKind.RESTART_BROKER,
            node_id=node_id,
            pod=f"{BROKER_SET}-{node_id}",
            pod_uid="uid-before",
            started_at=NOW - timedelta(seconds=20),
        )
        for node_id in (1, 2)
    )
    batch = BatchStatus(brokers=(1, 2), others=(first,), stopped_at=NOW - timedelta(seconds=20))
    case = claim_gone(operation=second, batch=batch).observing(stateful_sets=(item,))
    followed = []
    for _ in range(3):
        decision = case.decide()
        if ReleaseStatefulSet in kinds(decision.actions):
            break
        followed.append(decision.status.operation and decision.status.operation.node_id)
        case = case.after(decision)
    assert followed == [1]
    assert decision.status.batch is not None
    assert not decision.status.batch.others


@pytest.mark.parametrize(
    ("record_of", "restarts"), [(2, True), (1, False)], ids=["of this attempt", "of the former attempt"]
)
def test_a_broker_that_nobody_lists_waits_for_the_controller_of_this_attempt(record_of: int, restarts: bool) -> None:
    """A former attempt's controller came back long ago, which says nothing about this one's."""
    long_ago = NOW - timedelta(seconds=400)
    back = RollbackStatus(
        attempt=record_of, controllers_stopped_at=long_ago, claim_removed_at=long_ago, controller_back_at=long_ago
    )
    partly = partly_rolled(1, BrokerMode.ZOOKEEPER, BrokerMode.MIGRATION)
    pods = tuple(
        replace(p, ready_since=long_ago, seen_since=long_ago) for p in (*broker_set(None).pods[:1], *partly.pods[1:])
    )
    user = replace(broker_set(None), lock=broker_set(BrokerMode.MIGRATION).lock, update_strategy="OnDelete", pods=pods)
    view = cluster(brokers=frozenset({0, 1}))
    decision = (
        claim_gone(attempt=2, rollback=back, controllers=None, migration_offset=None)
        .observing(
            stateful_sets=(user,),
            cluster=view,
            cluster_by_broker={0: view, 1: view},
            controller_by_broker={0: 1, 1: 1, 2: 3000},
        )
        .with_status(controller_agreed_since=None)
        .decide()
    )
    assert [a.node_id for a in decision.actions if isinstance(a, RestartPod)] == ([2] if restarts else []), (
        decision.status.message
    )
    if not restarts:
        assert "every broker must name the broker in ZooKeeper's /controller, broker 1" in decision.status.message


PHASES = Path(phases.__file__).parent


def test_the_record_of_a_former_attempt_is_read_nowhere_as_one_of_this_attempt() -> None:
    """What the next attempt does not forget is read through `observed.of_attempt`; `basis` only compares it."""
    fields = {
        name: get_args(field.annotation)[0]
        for name, field in MigrationStatus.model_fields.items()
        if get_args(field.annotation)
    }
    tagged = {name for name, model in fields.items() if "attempt" in getattr(model, "model_fields", {})}
    assert tagged == {"rollback", "restoration", "zookeeper_history", "quorum_restart", "killed_broker"}
    former = {
        "zookeeper_history": ZooKeeperHistory(attempt=1, cluster_id="c", migration_offset="-1", seen_at=NOW),
        "restoration": Restoration(attempt=1, copy_id="c", end_offset="1", epoch=1, began_at=NOW, finished_at=NOW),
        "quorum_restart": QuorumRestart(attempt=1, certificate="c", pods={}, began_at=NOW, finished_at=NOW),
        "killed_broker": KilledBroker(
            node_id=0,
            pod="kafka-0",
            stateful_set="kafka",
            attempt=1,
            killed_at=NOW,
            seconds=60,
            grace_seconds=60,
            reason="x",
        ),
    }
    rest = claim_gone(phase=Phase.ROLLED_BACK, canary=None, **former).observing(
        stateful_sets=(broker_set(None, lease=LeaseState()),)
    )
    anew = rest.asking(Target.KRAFT).decide().status
    assert anew.attempt == 2
    kept = {name for name in tagged if getattr(anew, name) is not None}
    assert kept == {"rollback"}
    reading = re.compile(rf"(?<!of_attempt\(status, )status\.({'|'.join(kept)})\b")
    assert {file.name for file in PHASES.rglob("*.py") if reading.search(file.read_text())} == {"basis.py"}


def test_rolled_back_rests_without_alarm_and_can_begin_anew() -> None:
    rest = claim_gone(phase=Phase.ROLLED_BACK, canary=None, progress_at=NOW - timedelta(days=2)).observing(
        stateful_sets=(broker_set(None, lease=LeaseState()),)
    )
    rest = rest.after(rest.decide()).with_status(progress_at=NOW - timedelta(days=2))
    decision = rest.decide()
    assert decision.actions == ()
    ready = condition(decision.status.conditions, ConditionType.READY)
    assert ready is not None
    assert ready.status == "True"
    anew = rest.asking(Target.KRAFT).decide()
    assert anew.status.phase is Phase.PREFLIGHT
    assert anew.status.attempt == 2
    assert anew.status.controllers is None
    assert anew.status.verifications == ()


def test_rolled_back_is_never_stalled() -> None:
    rest = claim_gone(phase=Phase.ROLLED_BACK, canary=None).observing(stateful_sets=(broker_set(None),))
    rest = rest.after(rest.decide()).with_status(progress_at=NOW - timedelta(days=2))
    stalled = condition(rest.decide().status.conditions, ConditionType.STALLED)
    assert stalled is not None
    assert stalled.status == "False"


def test_the_next_attempt_mounts_no_archived_volume() -> None:
    fine = open_gate(Phase.PREFLIGHT).with_status(attempt=2)
    controllers = fine.decide().status.controllers
    assert controllers is not None
    assert controllers.name != open_gate(Phase.PREFLIGHT).decide().status.controllers.name  # type: ignore[union-attr]


def stopped(seconds_ago: float = 2, **changes: Any) -> dict[str, Any]:
    """Return the record of controllers that were asked to stop."""
    fields: dict[str, Any] = {"attempt": 1, "controllers_stopped_at": NOW - timedelta(seconds=seconds_ago)}
    return {"rollback": RollbackStatus(**(fields | changes))}


def deleting(*, pods: bool) -> ControllersWorkload:
    stateful_set = controllers_workload().stateful_set
    assert stateful_set is not None
    return ControllersWorkload(replace(stateful_set, deleting=True, pods=stateful_set.pods if pods else ()))


def test_the_stop_is_recorded_with_what_zookeeper_mirrored() -> None:
    rollback = isolated().decide().status.rollback
    assert rollback is not None
    assert (rollback.controllers_stopped_at, rollback.high_watermark, rollback.mirrored_offset) == (NOW, "5999", "5998")


@pytest.mark.parametrize(
    ("pending", "names"),
    [
        ({"pending_topic_deletions": ("orders", "old")}, "/admin/delete_topics names orders, old"),
        ({"reassignments": True}, "/admin/reassign_partitions"),
    ],
)
def test_what_a_broker_would_begin_as_controller_keeps_the_controllers_running(pending, names) -> None:
    waiting = replace(zookeeper(taken_over=True, offset=5_998), **pending)
    decision = going_back(zookeeper=waiting).decide()
    assert StopControllers not in kinds(decision.actions)
    assert names in decision.status.message
    accepted = going_back(zookeeper=waiting).asking(rollback=RollbackSpec(accept_loss=True))
    assert StopControllers in kinds(accepted.decide().actions)


@pytest.mark.parametrize(("offset", "stops"), [(5_999, True), (5_998, True), (5_997, False), (5_000, False)])
def test_nothing_unmirrored_is_left_behind(offset: int, stops: bool) -> None:
    situation = going_back(zookeeper=zookeeper(taken_over=True, offset=offset))
    assert situation.decide().actions == ((ISOLATE,) if stops else ())
    accepted = situation.asking(rollback=RollbackSpec(accept_loss=True))
    assert StopControllers in kinds(accepted.decide().actions)


def test_an_order_to_stop_is_seen_through_without_asking_the_dying() -> None:
    silent = going_back(metrics=GONE, quorum=UNKNOWN).with_status(**stopped())
    assert silent.decide().actions == (STOP,), "a lost act is repeated"
    assert silent.observing(controllers=deleting(pods=True)).decide().actions == ()
    late = going_back(metrics=GONE, quorum=UNKNOWN).with_status(**stopped(30)).decide()
    assert late.actions == (), "an order from long ago is decided anew"
    assert late.status.rollback == RollbackStatus(attempt=1), "nothing of the stop is left"


def test_the_claim_goes_with_the_last_controllers_pod() -> None:
    situation = going_back(metrics=GONE, quorum=UNKNOWN).with_status(**stopped())
    assert RemoveControllerClaim not in kinds(situation.observing(controllers=deleting(pods=True)).decide().actions)
    decision = situation.observing(controllers=deleting(pods=False)).decide()
    assert decision.actions == (RemoveControllerClaim(2),)
    assert decision.requeue_after < timedelta(seconds=0.5)


@pytest.mark.parametrize("back", [False, True])
def test_pause_does_not_hold_while_there_is_no_controller(back: bool) -> None:
    record = stopped(controller_back_at=NOW if back else None)
    situation = going_back(controllers=NO_CONTROLLERS, metrics=GONE, quorum=UNKNOWN).with_status(**record)
    decision = situation.asking(paused=True).decide()
    assert (RemoveControllerClaim in kinds(decision.actions)) is not back


def test_the_time_without_a_controller_is_measured() -> None:
    decision = claim_gone(**stopped(2.5)).decide()
    rollback = decision.status.rollback
    assert rollback is not None
    assert (rollback.controller_back_at, rollback.controller_unavailable_milliseconds) == (NOW, 2500)
    nobody = claim_gone(**stopped(2.5)).observing(zookeeper=replace(zookeeper(taken_over=False), controller=None))
    assert nobody.decide().status.rollback.controller_back_at is None  # type: ignore[union-attr]


def test_each_broker_stops_only_while_all_agree_on_a_controller() -> None:
    user = replace(broker_set(None), lock=broker_set(BrokerMode.MIGRATION).lock, update_strategy="OnDelete")
    half = replace(user, pods=(*user.pods[:1], *broker_set(BrokerMode.MIGRATION).pods[1:]))
    fine = claim_gone().observing(stateful_sets=(half,))
    assert RestartPod in kinds(fine.decide().actions)
    for views in ({0: 1, 1: 1, 2: 3000}, {0: 1, 1: 1, 2: UNKNOWN}, {0: 1, 1: 1, 2: 2}):
        assert fine.observing(controller_by_broker=views).decide().actions == ()


@pytest.mark.parametrize("volumes", ControllerVolumes)
def test_the_controllers_volumes_go_as_asked(volumes: ControllerVolumes) -> None:
    (stop,) = isolated().asking(rollback=RollbackSpec(controller_volumes=volumes)).decide().actions
    assert isinstance(stop, StopControllers)
    assert stop.volumes is (volumes is ControllerVolumes.REMOVE)


def test_brokers_come_back_to_zookeeper_only_while_it_is_written() -> None:
    half = partly_rolled(1, BrokerMode.MIGRATION, BrokerMode.KRAFT)
    fine = going_back(stateful_sets=(half,), metrics=controller_metrics(ZkMigrationState.MIGRATION, 1))
    assert RestartPod in kinds(fine.decide().actions)
    stale = fine.with_status(migration_offset=None).observing(zookeeper=UNKNOWN)
    assert RestartPod not in kinds(stale.decide().actions)


def test_a_mirror_that_stands_still_is_failed_over_before_the_canary_must_be_gone() -> None:
    canary = CanaryStatus(value=7, written_at=NOW, committed_at=NOW, mirrored_at=NOW)
    since = NOW - timedelta(hours=1)
    standing = MigrationOffset(offset="5000", seen_at=NOW - timedelta(seconds=1), moved_at=since, standing_since=since)
    shown = replace(zookeeper(taken_over=True, offset=5_000), canary="7")
    stuck = going_back(zookeeper=shown).with_status(canary=canary, migration_offset=standing)
    assert {CreatePartitionStates, RemoveCanary} <= kinds(stuck.decide().actions)
    decision = stuck.observing(outcomes=STATES_CREATED).decide()
    assert {RestartPod, RemoveCanary} <= kinds(decision.actions)


def test_a_copy_whose_controller_died_before_it_noted_its_end_is_failed_over() -> None:
    """The new one writes its image first and can get stuck in that: state MIGRATION, and no offset in ``/migration`` for ever."""
    copied = going_back(zookeeper=zookeeper(taken_over=True, offset=-1))
    decision = copied.with_status(migration_offset=None).decide()
    assert decision.status.migration_offset is not None
    assert decision.actions == ()
    since = NOW - timedelta(hours=1)
    standing = MigrationOffset(offset="-1", seen_at=NOW - timedelta(seconds=1), standing_since=since)
    stuck = copied.with_status(migration_offset=standing)
    assert kinds(stuck.decide().actions) == {CreatePartitionStates}
    assert kinds(stuck.observing(outcomes=STATES_CREATED).decide().actions) == {RestartPod}
    copying = copied.observing(metrics=controller_metrics(ZkMigrationState.PRE_MIGRATION, 3))
    assert copying.with_status(migration_offset=None).decide().status.migration_offset is None


def test_a_copy_under_way_is_awaited() -> None:
    copying = going_back(zookeeper=zookeeper(taken_over=True, offset=-1)).with_status(migration_offset=None)
    decision = copying.decide()
    assert decision.actions == ()
    assert "acceptLoss" in decision.status.message
    assert StopControllers in kinds(copying.asking(rollback=RollbackSpec(accept_loss=True)).decide().actions)


def test_a_copy_that_waits_for_a_voters_registration_is_helped() -> None:
    """Kafka's copy begins once every voter is registered (KIP-866), and a voter whose registration was lost does not retry."""
    copying = going_back(zookeeper=zookeeper(taken_over=True, offset=-1)).with_status(migration_offset=None)
    assert copying.decide().actions == ()
    decision = copying.observing(registered_controllers=frozenset({3001, 3002})).decide()
    assert [a.node_id for a in decision.actions if isinstance(a, RestartPod)] == [3000]


def test_an_agreement_on_a_controller_of_the_past_is_none() -> None:
    """Brokers that the KRaft controllers never reached name the controller from before the takeover, all of them and for long."""
    fine = claim_gone()
    assert (
        fine.observing(zookeeper=replace(zookeeper(taken_over=False), controller=ControllerZnode(1, -1, True)))
        .decide()
        .actions
    )
    elsewhere = replace(zookeeper(taken_over=False), controller=ControllerZnode(0, -1, True))
    decision = fine.observing(zookeeper=elsewhere).decide()
    assert decision.actions == ()
    assert decision.status.controller_agreed_since is None
    assert "/controller, broker 0" in decision.status.message


def test_isolation_is_recorded_before_any_controller_restarts() -> None:
    status = going_back().decide().status
    assert status.rollback is not None
    assert status.rollback.isolated_at == NOW
    assert status.rollback.controllers_stopped_at is None
    assert status.controllers is not None
    assert status.controllers.mode is ControllerMode.ISOLATED
    applied = going_back().with_status(rollback=status.rollback, controllers=status.controllers).decide()
    assert applied.actions == (ISOLATE,), "an act that was lost is repeated"


def test_all_controllers_restart_at_once_in_isolation() -> None:
    """Voters on different ports make no quorum, and those that brokers still reach must not go on accepting changes."""
    restarts = [a for a in isolated(done=0).decide().actions if isinstance(a, RestartPod)]
    assert [a.node_id for a in restarts] == [3000, 3001, 3002]
    assert [a.node_id for a in isolated(done=2).decide().actions if isinstance(a, RestartPod)] == [3002]
    assert StopControllers not in kinds(isolated(done=2).decide().actions)


def test_isolated_controllers_stop_once_zookeeper_has_the_end_of_the_log() -> None:
    assert isolated().decide().actions == (STOP,)
    first = isolated(isolated_high_watermark="").decide()
    assert first.status.rollback is not None
    assert first.status.rollback.isolated_high_watermark == "5999"
    for missing in (
        {"zookeeper": zookeeper(taken_over=True, offset=5_997)},
        {"zookeeper": UNKNOWN},
        {"quorum": UNKNOWN},
        {"controllers": UNKNOWN},
    ):
        assert isolated(isolated_high_watermark="").observing(**missing).decide().actions == (), missing
    # NoOpRecords go on behind the mark; they are nobody's.
    assert isolated(isolated_high_watermark="5000").observing(
        zookeeper=zookeeper(taken_over=True, offset=5_100)
    ).decide().actions == (STOP,)


def test_pause_does_not_hold_isolated_controllers() -> None:
    assert isolated().asking(paused=True).decide().actions == (STOP,)
    assert going_back().asking(paused=True).decide().actions == ()


def test_isolated_controllers_that_do_not_mirror_return_to_the_brokers() -> None:
    late = isolated(isolated_at=NOW - timedelta(seconds=121)).observing(
        zookeeper=zookeeper(taken_over=True, offset=5_000)
    )
    decision = late.decide()
    assert decision.status.rollback is not None
    assert decision.status.rollback.isolated_at is None
    assert decision.status.controllers is not None
    assert decision.status.controllers.mode is ControllerMode.MIGRATION
    back = late.after(decision)
    assert back.decide().actions == (ApplyControllers(ControllerMode.MIGRATION, format_allowed=False),)
    workload = controllers_workload(ControllerMode.ISOLATED).stateful_set
    assert workload is not None
    usual = controllers_workload().stateful_set
    assert usual is not None
    applied = back.observing(controllers=ControllersWorkload(replace(usual, pods=workload.pods), format_allowed=False))
    assert [a.node_id for a in applied.decide().actions if isinstance(a, RestartPod)] == [3000, 3001, 3002]
    assert late.asking(rollback=RollbackSpec(accept_loss=True)).decide().actions == (STOP,)


def test_an_isolation_that_was_given_up_is_stalled_and_not_repeated_at_once() -> None:
    """Each one takes the controller from the cluster for two minutes: again and again, nobody would ever be told."""
    late = isolated(isolated_at=NOW - timedelta(seconds=121), isolations_given_up=2).observing(
        zookeeper=zookeeper(taken_over=True, offset=5_000)
    )
    given_up = late.decide().status.rollback
    assert given_up is not None
    assert (given_up.isolation_given_up_at, given_up.isolations_given_up) == (NOW, 3)
    back = going_back().with_status(rollback=given_up)
    waiting = back.later(4).decide()
    stalled = condition(waiting.status.conditions, ConditionType.STALLED)
    assert stalled is not None
    assert (stalled.status, stalled.reason) == ("True", "DeadlineExceeded")
    assert "(3 time(s))" in stalled.message
    assert "acceptLoss" in stalled.message
    assert ISOLATE not in waiting.actions
    assert going_back().with_status(rollback=given_up).asking(
        rollback=RollbackSpec(accept_loss=True)
    ).decide().actions == (STOP,)
    long_ago = given_up.model_copy(update={"isolation_given_up_at": NOW - timedelta(seconds=301)})
    again = going_back().with_status(rollback=long_ago).decide()
    assert again.actions == (ISOLATE,)
    assert again.status.rollback is not None
    assert (again.status.rollback.isolated_at, again.status.rollback.isolations_given_up) == (NOW, 3)
    of_another_attempt = given_up.model_copy(update={"attempt": 7})
    assert going_back().with_status(rollback=of_another_attempt).decide().actions == (ISOLATE,)


def test_the_time_of_isolation_counts_as_without_a_controller() -> None:
    fields = {"isolated_at": NOW - timedelta(seconds=20), "controllers_stopped_at": NOW - timedelta(seconds=2)}
    back = claim_gone(rollback=RollbackStatus(attempt=1, **fields)).decide().status.rollback
    assert back is not None
    assert back.controller_unavailable_milliseconds == 20_000


def going_back_without(observers: frozenset[int], ready_for: float = 400) -> Situation:
    """Return a rollback with broker 0 back in migration mode for some time; ZooKeeper, and so every broker, lists it, and the quorum may lack it."""
    item = partly_rolled(1, BrokerMode.MIGRATION, BrokerMode.KRAFT)
    since = NOW - timedelta(seconds=ready_for)
    pods = tuple(replace(p, ready_since=since) if p.ordinal == 0 else p for p in item.pods)
    return going_back(
        stateful_sets=(replace(item, pods=pods),),
        metrics=controller_metrics(ZkMigrationState.MIGRATION, 0, 2),
        quorum=replace(quorum(), observers=observers),
        redundancy=TopicRedundancy((), (), read_at=NOW),
    )


def test_a_broker_that_serves_is_not_restarted_for_the_quorum_while_the_cluster_is_not_whole() -> None:
    lacking = going_back_without(frozenset({1, 2}))
    assert [a.node_id for a in lacking.decide().actions if isinstance(a, RestartPod)] == [0]
    behind = cluster(under_replicated=("t-0",), under_replicated_count=1, lagging=frozenset({2}))
    another = lacking.observing(cluster=behind, cluster_by_broker=dict.fromkeys(BROKER_IDS, behind)).decide()
    assert RestartPod not in kinds(another.actions)
    assert "t-0" in another.status.message
    alone = lacking.observing(redundancy=TopicRedundancy(("made-in-the-soak",), (), read_at=NOW)).decide()
    assert RestartPod not in kinds(alone.actions)
    assert "made-in-the-soak" in alone.status.message
