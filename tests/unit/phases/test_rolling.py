"""Restarts: one node at a time, in which order, what must hold before and after, and what happens in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.observations import (
    BROKER_IDS,
    BROKER_SET,
    CONTROLLER_IDS,
    CONTROLLERS,
    NOW,
    RECORDED,
    Situation,
    armed_run,
    broker_set,
    cluster,
    controller_metrics,
    controllers_workload,
    launched_runs,
    open_gate,
    partly_rolled,
    pod,
    quorum,
    record,
    rolling,
    watching,
    zookeeper,
)

from kraftbridge.models.decision import (
    Action,
    ApplyControllers,
    ConfigureBrokers,
    Decision,
    LaunchRun,
    LockStatefulSet,
    PublishFinalManifest,
    ReleaseStatefulSet,
    RemoveRun,
    RestartPod,
)
from kraftbridge.models.observation import (
    NOT_NEEDED,
    ControllersWorkload,
    ControllerZnode,
    PodState,
    RecordedOriginal,
    StatefulSetState,
    TopicRedundancy,
)
from kraftbridge.models.phase import BrokerMode, ControllerMode, Phase, Target, ZkMigrationState
from kraftbridge.models.report import Profile
from kraftbridge.models.runs import RunKind
from kraftbridge.models.status import AddressCachesStatus, Operation, OperationKind
from kraftbridge.phases import verifying

ROLLS = [
    (Phase.TAKING_OVER, BrokerMode.MIGRATION, None),
    (Phase.ROLLING_BROKERS, BrokerMode.KRAFT, BrokerMode.MIGRATION),
]


def restarts(decision: Decision) -> list[RestartPod]:
    return [a for a in decision.actions if isinstance(a, RestartPod)]


def of_kind(actions: Sequence[Action], *kinds: type) -> list[Action]:
    return [a for a in actions if isinstance(a, kinds)]


def restarting(phase: Phase, done: int) -> Situation:
    """Return a situation in which the restart of the next broker was just decided and nothing has happened yet."""
    fine = rolling(phase, done)
    decision = fine.decide()
    assert len(restarts(decision)) == 1
    return fine.after(decision)


def in_place_of(situation: Situation, successor_ready: bool) -> Situation:
    """Return the same with the pod under restart replaced by its successor."""
    (item,) = situation.observation.stateful_sets
    operation = situation.status.operation
    assert isinstance(item, StatefulSetState)
    assert operation is not None
    new = tuple(
        pod(
            p.name,
            p.ordinal,
            item.configuration,
            item.update_revision,
            uid="uid-successor",
            ready=successor_ready,
            ready_since=NOW,
        )
        if p.name == operation.pod
        else p
        for p in item.pods
    )
    return situation.observing(stateful_sets=(replace(item, pods=new),))


@pytest.mark.parametrize(("phase", "mode", "before"), ROLLS)
def test_before_the_first_restart_the_set_is_locked_then_configured_then_seen(
    phase: Phase, mode: BrokerMode, before: BrokerMode | None
) -> None:
    untouched = rolling(phase, 0)
    user_owned = untouched.observing(stateful_sets=(broker_set(None),))
    assert user_owned.decide().actions[-1] == LockStatefulSet(BROKER_SET)
    locked = replace(broker_set(before), lock=partly_rolled(0, mode, before).lock, update_strategy="OnDelete")
    unrecorded = replace(locked, overlay="", original=RecordedOriginal())
    assert untouched.observing(stateful_sets=(unrecorded,)).decide().actions[-1] == LockStatefulSet(BROKER_SET)
    old = replace(locked, original=RECORDED)
    assert untouched.observing(stateful_sets=(old,)).decide().actions[-1] == ConfigureBrokers(BROKER_SET, mode)
    unseen = untouched.observing(stateful_sets=(partly_rolled(0, mode, before, observed=False),))
    assert not restarts(unseen.decide())


@pytest.mark.parametrize("strategy", ["RollingUpdate", ""])
@pytest.mark.parametrize(("phase", "mode", "before"), ROLLS)
def test_a_strategy_that_somebody_put_back_is_set_again_before_anything_else(
    phase: Phase, mode: BrokerMode, before: BrokerMode | None, strategy: str
) -> None:
    item = partly_rolled(1, mode, before, update_strategy=strategy)
    decision = rolling(phase, 1).observing(stateful_sets=(item,)).decide()
    assert decision.actions == (LockStatefulSet(BROKER_SET),)


@pytest.mark.parametrize(("phase", "mode", "before"), ROLLS)
def test_fields_that_somebody_took_back_are_set_again_and_nobody_is_restarted_on_a_mixture(
    phase: Phase, mode: BrokerMode, before: BrokerMode | None
) -> None:
    item = partly_rolled(1, mode, before, drift=("env KAFKA_PROCESS_ROLES",))
    decision = rolling(phase, 1).observing(stateful_sets=(item,)).decide()
    assert decision.actions == (ConfigureBrokers(BROKER_SET, mode),)
    assert "KAFKA_PROCESS_ROLES" in decision.status.message


@pytest.mark.parametrize(("phase", "mode", "before"), ROLLS)
def test_fields_taken_back_during_a_restart_are_set_again(
    phase: Phase, mode: BrokerMode, before: BrokerMode | None
) -> None:
    under_way = restarting(phase, 1)
    item = partly_rolled(1, mode, before, drift=("env X",))
    decision = under_way.observing(stateful_sets=(item,)).decide()
    assert ConfigureBrokers(BROKER_SET, mode) in decision.actions


@pytest.mark.parametrize(("phase", "mode", "before"), ROLLS)
def test_a_broker_that_is_down_is_not_stopped_while_it_just_starts(
    phase: Phase, mode: BrokerMode, before: BrokerMode | None
) -> None:
    item = partly_rolled(1, mode, before)
    down = {p.name: p for p in item.pods if p.configuration != item.configuration}
    name = min(down)

    def running_for(seconds: float) -> Situation:
        pod = replace(down[name], ready=False, ready_since=None, running_since=NOW - timedelta(seconds=seconds))
        pods = tuple(pod if p.name == name else p for p in item.pods)
        return rolling(phase, 1).observing(stateful_sets=(replace(item, pods=pods),))

    waiting = running_for(1).decide()
    assert restarts(waiting) == []
    assert name in waiting.status.message
    assert [a.pod for a in restarts(running_for(31).decide())] == [name]


@pytest.mark.parametrize(("phase", "mode", "before"), ROLLS)
def test_a_broker_whose_readiness_probe_fails_while_it_serves_is_not_stopped_beside_one_that_lags(
    phase: Phase, mode: BrokerMode, before: BrokerMode | None
) -> None:
    item = partly_rolled(1, mode, before)
    unready = min(p.name for p in item.pods if p.configuration != item.configuration)
    since = NOW - timedelta(seconds=300)
    pods = tuple(
        replace(p, ready=False, ready_since=None, running_since=since) if p.name == unready else p for p in item.pods
    )
    served = rolling(phase, 1).observing(stateful_sets=(replace(item, pods=pods),))
    assert [a.pod for a in restarts(served.decide())] == [unready]
    lagging = cluster(under_replicated=("t-0",), under_replicated_count=1, lagging=frozenset({0}))
    beside = served.observing(cluster=lagging, cluster_by_broker=dict.fromkeys(BROKER_IDS, lagging)).decide()
    assert restarts(beside) == []
    alone = served.observing(redundancy=TopicRedundancy(("made-in-the-soak",), (), read_at=NOW)).decide()
    assert restarts(alone) == []


def with_pods(situation: Situation, **changed: PodState) -> Situation:
    """Return the same with some of the brokers' pods replaced, by ``broker_<index>``."""
    (item,) = situation.observation.stateful_sets
    assert isinstance(item, StatefulSetState)
    pods = tuple(changed.get(f"broker_{index}", p) for index, p in enumerate(item.pods))
    return situation.observing(stateful_sets=(replace(item, pods=pods),))


def broker_pod(situation: Situation, index: int) -> PodState:
    (item,) = situation.observation.stateful_sets
    assert isinstance(item, StatefulSetState)
    return item.pods[index]


def on_the_users_template(pod: PodState) -> PodState:
    return replace(pod, configuration="", revision="rev-user", uid="uid-theirs")


@pytest.mark.parametrize("serves", [True, False])
def test_brokers_that_somebody_put_back_to_zookeeper_are_restarted_first(serves: bool) -> None:
    """KRaft leads and tells them nothing: their replicas lag, and no other restart may be waited for."""
    fine = rolling(Phase.ROLLING_BROKERS, 1)
    lost = with_pods(
        fine,
        broker_1=on_the_users_template(broker_pod(fine, 1)),
        broker_2=on_the_users_template(broker_pod(fine, 2)),
    ).observing(
        cluster=cluster(
            brokers=frozenset({0} if serves else {1, 2}),
            under_replicated=("t-1", "t-2"),
            under_replicated_count=2,
            lagging=frozenset({1, 2}),
        )
    )
    assert [a.pod for a in restarts(lost.decide())] == ([broker_pod(fine, 1).name] if serves else [])


def test_before_the_takeover_a_broker_on_the_users_template_is_where_it_should_be() -> None:
    fine = rolling(Phase.TAKING_OVER, 1)
    lagging = fine.observing(
        cluster=cluster(under_replicated=("t-1",), under_replicated_count=1, lagging=frozenset({1}))
    )
    assert not restarts(lagging.decide())


@pytest.mark.parametrize(("seconds", "outdated", "over"), [(31, True, True), (29, True, False), (31, False, False)])
def test_a_broker_that_came_back_on_a_mixture_and_does_not_start_is_restarted_again(
    seconds: int, outdated: bool, over: bool
) -> None:
    under_way = restarting(Phase.ROLLING_BROKERS, 0)
    operation = under_way.status.operation
    assert operation is not None
    successor = broker_pod(in_place_of(under_way, successor_ready=False), 0)
    assert successor.name == operation.pod
    down = replace(successor, revision="rev-mixed" if outdated else successor.revision)
    later = with_pods(under_way, broker_0=down).observing(cluster=cluster(brokers=frozenset({1, 2}))).later(seconds)
    assert [a.uid for a in restarts(later.decide())] == ([down.uid] if over else [])


@pytest.mark.parametrize(("lagging", "over"), [({2}, True), ({0, 2}, False)])
def test_a_restart_is_over_when_only_a_broken_broker_keeps_the_cluster_from_being_whole(
    lagging: set[int], over: bool
) -> None:
    """Otherwise each would wait for the other."""
    under_way = back(Phase.ROLLING_BROKERS, 0)
    theirs = replace(on_the_users_template(broker_pod(under_way, 2)), ready=False)
    decision = (
        with_pods(under_way, broker_2=theirs)
        .observing(
            cluster=cluster(
                brokers=frozenset({0, 1}),
                under_replicated=("t-2",),
                under_replicated_count=1,
                lagging=frozenset(lagging),
            )
        )
        .decide()
    )
    assert [a.pod for a in restarts(decision)] == ([theirs.name] if over else [])


def test_fields_taken_back_while_a_controller_restarts_are_set_again() -> None:
    fine = open_gate(Phase.FINALIZING)
    pod_under_restart = f"{CONTROLLERS}-{CONTROLLER_IDS[0]}"
    operation = Operation(
        kind=OperationKind.RESTART_CONTROLLER,
        node_id=CONTROLLER_IDS[0],
        pod=pod_under_restart,
        pod_uid="old",
        started_at=NOW,
    )
    (item,) = fine.observation.stateful_sets
    assert isinstance(item, StatefulSetState)
    drifted = replace(item, drift=("env X",), lock=fine.identity.lock, update_strategy="OnDelete")
    decision = fine.with_status(operation=operation).observing(stateful_sets=(drifted,)).decide()
    assert ConfigureBrokers(BROKER_SET, BrokerMode.KRAFT) in decision.actions


def test_what_somebody_took_back_is_set_again_before_the_sets_are_given_back() -> None:
    taken = replace(broker_set(BrokerMode.KRAFT), configuration="")
    decision = open_gate(Phase.COMPLETED).observing(stateful_sets=(taken,)).decide()
    assert decision.actions == (ConfigureBrokers(BROKER_SET, BrokerMode.KRAFT),)


@pytest.mark.parametrize("phase", [Phase.TAKING_OVER, Phase.ROLLING_BROKERS])
def test_the_broker_that_is_controller_comes_last(phase: Phase) -> None:
    order = []
    for holder in (0, 1, 2):
        state = zookeeper(taken_over=phase is Phase.ROLLING_BROKERS)
        state = replace(state, controller=ControllerZnode(holder, -1, ephemeral=True))
        (item,) = rolling(phase, 0).observation.stateful_sets
        assert isinstance(item, StatefulSetState)
        situation = rolling(Phase.TAKING_OVER, 0).observing(zookeeper=state)
        order.append(restarts(situation.decide())[0].node_id)
    assert order == [1, 0, 0]


def test_what_the_copy_will_read_is_verified_right_before_the_last_broker() -> None:
    last = rolling(Phase.TAKING_OVER, 2)
    entry_only = last.with_status(
        verifications=(record(Profile.ZOOKEEPER, Phase.TAKING_OVER, "entry"), watching(run_id="copy"))
    )
    decision = entry_only.decide()
    assert not restarts(decision)
    assert launched_runs(decision) == [(Profile.ZOOKEEPER, Phase.TAKING_OVER)]
    old = record(Profile.ZOOKEEPER, Phase.TAKING_OVER, "last-broker", released_at=NOW - timedelta(seconds=601))
    assert not restarts(last.with_status(verifications=(old,)).decide())


@pytest.mark.parametrize(
    ("phase", "done", "launched"),
    [
        (Phase.TAKING_OVER, 0, []),
        (Phase.TAKING_OVER, 1, [(Profile.ZOOKEEPER, Phase.TAKING_OVER)]),
        (Phase.TAKING_OVER, 2, []),
        (Phase.ROLLING_BROKERS, 0, []),
        (Phase.ROLLING_BROKERS, 1, [(Profile.DUAL_WRITE, Phase.AWAITING_FINALIZATION)]),
        (Phase.ROLLING_BROKERS, 2, []),
    ],
)
def test_a_run_is_launched_ahead_of_time_but_never_beside_a_restart(
    phase: Phase, done: int, launched: list[tuple[Profile, Phase]]
) -> None:
    entered = (record(Profile.ZOOKEEPER, Phase.TAKING_OVER, "entry"), watching(run_id="copy"))
    verified = (*entered, record(Profile.ZOOKEEPER, Phase.TAKING_OVER, "last-broker"))
    before = verified if done == 2 else entered
    if phase is Phase.ROLLING_BROKERS:
        before = rolling(phase, done).status.verifications
    restart = rolling(phase, done).with_status(verifications=before).decide()
    assert len(restarts(restart)) == 1
    assert not of_kind(restart.actions, LaunchRun)
    away = restarting(phase, done).with_status(verifications=before)
    assert not of_kind(away.decide().actions, LaunchRun)
    held = back(phase, done).with_status(verifications=before).decide()
    assert not restarts(held)
    assert launched_runs(held) == launched


def test_the_last_restart_of_a_roll_waits_for_the_session_of_the_next_run_but_not_for_long() -> None:
    last = rolling(Phase.ROLLING_BROKERS, 2)
    others = (record(Profile.DUAL_WRITE, Phase.ROLLING_BROKERS),)
    launched = last.with_status(verifications=others).decide()
    assert not restarts(launched)
    assert launched_runs(launched) == [(Profile.DUAL_WRITE, Phase.AWAITING_FINALIZATION)]
    starting = armed_run(ready_at=None)
    assert not restarts(last.with_status(verifications=(*others, starting)).decide())
    slow = starting.model_copy(update={"launched_at": NOW - verifying.SESSION_STARTS_WITHIN})
    failed = starting.model_copy(update={"finished_at": NOW, "reason": "no memory"})
    for run in (slow, failed, armed_run()):
        assert len(restarts(last.with_status(verifications=(*others, run)).decide())) == 1


@pytest.mark.parametrize("done", [0, 1, 2])
@pytest.mark.parametrize("phase", [Phase.TAKING_OVER, Phase.ROLLING_BROKERS])
def test_a_restart_is_on_record_with_the_pods_uid_before_it_begins(phase: Phase, done: int) -> None:
    decision = rolling(phase, done).decide()
    (act,) = restarts(decision)
    operation = decision.status.operation
    assert operation is not None
    assert (operation.pod, operation.pod_uid, operation.node_id) == (act.pod, act.uid, act.node_id)
    assert operation.kind is OperationKind.RESTART_BROKER


@pytest.mark.parametrize("phase", [Phase.TAKING_OVER, Phase.ROLLING_BROKERS])
def test_a_swallowed_eviction_is_repeated_for_the_same_pod_only(phase: Phase) -> None:
    under_way = restarting(phase, 1)
    again = under_way.decide()
    operation = under_way.status.operation
    assert operation is not None
    assert [(a.pod, a.uid) for a in restarts(again)] == [(operation.pod, operation.pod_uid)]
    (item,) = under_way.observation.stateful_sets
    assert isinstance(item, StatefulSetState)
    stopping = tuple(replace(p, deleting=True, ready=False) if p.name == operation.pod else p for p in item.pods)
    assert not restarts(under_way.observing(stateful_sets=(replace(item, pods=stopping),)).decide())


@pytest.mark.parametrize("what", ["gone", "starting", "unhealthy", "unregistered", "young"])
@pytest.mark.parametrize("phase", [Phase.TAKING_OVER, Phase.ROLLING_BROKERS])
def test_the_next_broker_waits_until_the_one_before_is_back(phase: Phase, what: str) -> None:
    under_way = restarting(phase, 0)
    (item,) = under_way.observation.stateful_sets
    assert isinstance(item, StatefulSetState)
    operation = under_way.status.operation
    assert operation is not None
    if what == "gone":
        rest = tuple(p for p in item.pods if p.name != operation.pod)
        spoiled = under_way.observing(
            stateful_sets=(replace(item, pods=rest),), cluster=cluster(brokers=frozenset({1, 2}))
        )
    elif what == "starting":
        spoiled = in_place_of(under_way, successor_ready=False)
    else:
        spoiled = in_place_of(under_way, successor_ready=True)
        if what == "unhealthy":
            spoiled = spoiled.observing(cluster=cluster(under_replicated=("t-0",), under_replicated_count=1))
        elif what == "unregistered":
            # Before: none in migration mode; or all three still registered as ZooKeeper brokers.
            migrating, state = (
                (0, ZkMigrationState.PRE_MIGRATION) if phase is Phase.TAKING_OVER else (3, ZkMigrationState.MIGRATION)
            )
            spoiled = spoiled.observing(
                metrics=controller_metrics(state, migrating, 0 if phase is Phase.TAKING_OVER else 3)
            )
        else:
            migrating, state = (
                (1, ZkMigrationState.PRE_MIGRATION) if phase is Phase.TAKING_OVER else (2, ZkMigrationState.MIGRATION)
            )
            spoiled = spoiled.observing(
                metrics=controller_metrics(state, migrating, 1 if phase is Phase.TAKING_OVER else 3)
            )
    decision = spoiled.decide()
    assert not restarts(decision)
    if what == "young":
        # Back in every respect, but JVMs may have its old address for a while.
        assert decision.status.operation is None
        assert decision.status.hold_until is not None
        assert decision.status.hold_until > NOW
        assert "holding" in decision.status.message
    else:
        assert decision.status.operation == operation.model_copy(
            update={
                "last_pod_ready_at": decision.status.operation.last_pod_ready_at if decision.status.operation else None,
                "clean_start": what != "gone",
            }
        )


def back(phase: Phase, done: int) -> Situation:
    """Return the moment in which the restarted broker is back in every respect."""
    healthy = in_place_of(restarting(phase, done), successor_ready=True)
    if phase is Phase.TAKING_OVER:
        return healthy.observing(metrics=controller_metrics(ZkMigrationState.PRE_MIGRATION, done + 1, done + 1))
    return healthy.observing(metrics=controller_metrics(ZkMigrationState.MIGRATION, 2 - done, 3))


@pytest.mark.parametrize(
    ("phase", "done", "clients", "template", "ours", "seconds"),
    [
        (Phase.TAKING_OVER, 0, 35, 30, 1, 35),
        (Phase.TAKING_OVER, 0, 3, 30, 1, 32),
        (Phase.TAKING_OVER, 0, 3, 120, 1, 122),
        (Phase.TAKING_OVER, 0, 3, -1, 1, 3),
        (Phase.TAKING_OVER, 2, 2, 30, 1, 3),
        (Phase.TAKING_OVER, 2, 35, 30, 1, 35),
        (Phase.ROLLING_BROKERS, 0, 2, 30, 1, 3),
        (Phase.ROLLING_BROKERS, 0, 2, 30, 60, 62),
        (Phase.ROLLING_BROKERS, 0, 35, 30, 1, 35),
    ],
)
def test_the_hold_lasts_as_long_as_brokers_or_clients_cache_addresses(
    phase: Phase, done: int, clients: int, template: int, ours: int, seconds: int
) -> None:
    """Until the last broker of the first roll is back, some JVM runs the user's own template."""
    caches = AddressCachesStatus(template_seconds=template, operator_seconds=ours)
    decision = back(phase, done).pacing(address_cache_seconds=clients).with_status(address_caches=caches).decide()
    assert decision.status.hold_until == NOW + timedelta(seconds=seconds)


@pytest.mark.parametrize("phase", [Phase.TAKING_OVER, Phase.ROLLING_BROKERS])
def test_a_paused_migration_finishes_the_restart_under_way_and_begins_no_other(phase: Phase) -> None:
    under_way = restarting(phase, 0)
    paused = under_way.asking(paused=True)
    assert len(restarts(paused.decide())) == 1, "the pod is under way: its eviction may be repeated"
    at_rest = paused.after(back(phase, 0).decide()).later(60)
    assert at_rest.status.operation is None
    assert at_rest.decide().actions == ()


@pytest.mark.parametrize("phase", [Phase.TAKING_OVER, Phase.ROLLING_BROKERS])
def test_the_step_that_ends_a_restart_begins_no_other_while_paused(phase: Phase) -> None:
    ended = back(phase, 0).pacing(address_cache_seconds=0).asking(paused=True)
    decision = ended.decide()
    assert decision.status.operation is None
    assert not restarts(decision)


def test_a_pod_that_is_no_known_broker_is_named_and_breaks_nothing() -> None:
    item = partly_rolled(1, BrokerMode.MIGRATION, None)
    extra = pod(f"{BROKER_SET}-3", 3, "", "rev-user")
    scaled = replace(item, replicas=4, pods=(*item.pods[:1], extra))
    decision = rolling(Phase.TAKING_OVER, 1).observing(stateful_sets=(replace(scaled, replicas=2),)).decide()
    assert not restarts(decision)
    assert f"{BROKER_SET}-3" in decision.status.message


# ------------------------------------------------------------------------------------------- controllers


def finalizing(done: int, active: int = 3000) -> Situation:
    metrics = controller_metrics(ZkMigrationState.MIGRATION, 0, leader=active)
    seen = open_gate(Phase.FINALIZING).status.quorum
    assert seen is not None
    return (
        open_gate(Phase.FINALIZING)
        .with_status(verifications=(), hold_until=None, quorum=seen.model_copy(update={"leader_id": active}))
        .observing(controllers=controllers_workload(ControllerMode.FINAL, done), metrics=metrics, quorum=quorum(active))
    )


@pytest.mark.parametrize("active", CONTROLLER_IDS)
def test_the_active_controller_is_restarted_last(active: int) -> None:
    first = finalizing(0, active).decide()
    (act,) = restarts(first)
    assert act.node_id == min(set(CONTROLLER_IDS) - {active})
    only_active_left = finalizing(2, 3002).decide()
    assert [a.node_id for a in restarts(only_active_left)] == [3002]


def test_no_controller_restarts_without_an_agreeing_quorum() -> None:
    lagging = finalizing(1)
    metrics = dict(lagging.observation.metrics)
    metrics.pop(3001)
    assert not restarts(lagging.observing(metrics=metrics).decide())
    assert not restarts(lagging.observing(cluster=cluster(offline=("t-0",), offline_count=1)).decide())


def test_a_restarted_controller_must_have_loaded_its_image() -> None:
    fine = finalizing(1)
    operation = Operation(
        kind=OperationKind.RESTART_CONTROLLER,
        node_id=3000,
        pod=f"{CONTROLLERS}-3000",
        pod_uid="uid-old",
        started_at=NOW,
    )
    waiting = fine.with_status(operation=operation)
    metrics = dict(fine.observation.metrics)
    own = metrics[3000]
    metrics[3000] = replace(own, zk_migration_state=ZkMigrationState.NOT_LOADED)  # type: ignore[type-var]
    assert waiting.observing(metrics=metrics).decide().status.operation is not None
    done = waiting.decide()
    assert done.status.operation is None or done.status.operation.node_id != 3000


def test_controllers_keep_the_migration_flag_until_finalizing() -> None:
    for phase in (
        Phase.PROVISIONING_QUORUM,
        Phase.TAKING_OVER,
        Phase.DUAL_WRITE,
        Phase.ROLLING_BROKERS,
        Phase.AWAITING_FINALIZATION,
    ):
        for workload in (ControllersWorkload(None), controllers_workload(), controllers_workload(ControllerMode.FINAL)):
            decision = open_gate(phase).observing(controllers=workload).decide()
            assert not [
                a
                for a in decision.actions
                if isinstance(a, ApplyControllers) and a.mode is not ControllerMode.MIGRATION
            ]


def test_once_every_voter_is_formatted_no_blank_volume_is() -> None:
    fresh = open_gate(Phase.PROVISIONING_QUORUM)
    assert fresh.status.controllers is not None
    allowed = fresh.with_status(
        controllers=fresh.status.controllers.model_copy(update={"format_allowed": True, "volume_uids": {}})
    )
    allowed = allowed.with_status(verifications=()).observing(
        controllers=replace(controllers_workload(), format_allowed=True)
    )
    decision = allowed.decide()
    assert decision.status.controllers is not None
    assert not decision.status.controllers.format_allowed
    assert decision.status.controllers.volume_uids == {str(i): f"pvc-{i}" for i in CONTROLLER_IDS}
    word = ApplyControllers(ControllerMode.MIGRATION, format_allowed=False, only=(f"ConfigMap/{CONTROLLERS}-format",))
    for _ in range(2):
        # Until it is seen refused, so that it is not lost with an operator that dies.
        decision = allowed.after(decision).decide()
        assert word in decision.actions
    for unsure in (True, None):
        waiting = fresh.observing(controllers=replace(controllers_workload(), format_allowed=unsure)).decide()
        assert waiting.status.phase is Phase.PROVISIONING_QUORUM
        assert word in waiting.actions
    assert fresh.decide().status.phase is Phase.TAKING_OVER
    one_missing = ControllersWorkload(controllers_workload().stateful_set, volume_uids={3000: "pvc-3000"})
    kept = allowed.observing(controllers=one_missing).decide()
    assert kept.status.controllers is not None
    assert kept.status.controllers.format_allowed


# ---------------------------------------------------------------------------------------------- the end


def test_the_sets_are_given_back_at_the_end_one_by_one() -> None:
    held = open_gate(Phase.COMPLETED).observing(stateful_sets=(broker_set(BrokerMode.KRAFT),))
    assert held.decide().actions == (PublishFinalManifest(), ReleaseStatefulSet(BROKER_SET))
    assert open_gate(Phase.COMPLETED).decide().actions == ()


def test_a_run_that_waits_for_another_gate_gives_way() -> None:
    """Only one run is under way: a gate that needs its own now takes the place of one armed for later."""
    armed = record(Profile.DUAL_WRITE, Phase.ROLLING_BROKERS, finished=False, released_at=None)
    decision = open_gate(Phase.ROLLING_BROKERS, Target.KRAFT).with_status(verifications=(armed,)).decide()
    assert RemoveRun(RunKind.VERIFICATION, armed.run_id, keep_report=False) in decision.actions
    assert len(of_kind(decision.actions, LaunchRun)) == 1
    assert sum(v.finished_at is None for v in decision.status.verifications) == 1


@pytest.mark.parametrize("phase", [Phase.TAKING_OVER, Phase.ROLLING_BROKERS])
def test_an_eviction_that_has_not_happened_is_not_repeated_while_another_broker_is_down(phase: Phase) -> None:
    under_way = restarting(phase, 0)
    another_fell = under_way.observing(cluster=cluster(under_replicated=("t-2",), under_replicated_count=1))
    assert not restarts(another_fell.decide())


def test_what_keeps_a_pod_from_being_created_is_quoted() -> None:
    fine = rolling(Phase.ROLLING_BROKERS, 1)
    (item,) = fine.observation.stateful_sets
    assert isinstance(item, StatefulSetState)
    operation = Operation(kind=OperationKind.RESTART_BROKER, node_id=0, pod="kafka-0", pod_uid="gone", started_at=NOW)
    lacking = replace(item, pods=item.pods[1:], pods_refused="the API server refuses it: exceeded quota: compute")
    message = fine.with_status(operation=operation).observing(stateful_sets=(lacking,)).decide().status.message
    assert "StatefulSet kafka lacks a pod: the API server refuses it: exceeded quota: compute" in message
    assert "tries again by itself" in message


def test_a_template_that_changes_while_both_stores_are_written_reaches_the_brokers() -> None:
    """DualWrite asks nothing of the voters' registrations (`phases.needs`): they matter before the copy alone."""
    fine = open_gate(Phase.DUAL_WRITE)
    (item,) = fine.observation.stateful_sets
    assert isinstance(item, StatefulSetState)
    case = fine.observing(stateful_sets=(replace(item, update_revision="another"),), registered_controllers=NOT_NEEDED)
    decision = case.decide()
    assert [action.pod for action in decision.actions if isinstance(action, RestartPod)] == [f"{BROKER_SET}-0"]


UNFIT = {
    "OriginalsLost": {"original": RecordedOriginal("")},
    "does not render our configuration": {"drift": ("KAFKA_PROCESS_ROLES",)},
    "changed its template during the migration": {"foreign": ("KAFKA_HEAP_OPTS",)},
}


@pytest.mark.parametrize("ready", [True, False])
@pytest.mark.parametrize(("words", "changes"), UNFIT.items(), ids=list(UNFIT))
def test_a_recorded_restart_that_has_not_begun_is_dropped_when_its_set_is_not_fit_any_more(
    words: str, changes: dict[str, Any], ready: bool
) -> None:
    """A budget forbids the eviction for a while, and the StatefulSet or its original state changes meanwhile."""
    roll = rolling(Phase.TAKING_OVER, 1)
    recorded = roll.after(roll.decide())
    operation = recorded.status.operation
    assert operation is not None
    (item,) = recorded.observation.stateful_sets
    assert isinstance(item, StatefulSetState)
    pods = tuple(replace(p, ready=ready) if p.name == operation.pod else p for p in item.pods)
    assert restarted(recorded.observing(stateful_sets=(replace(item, pods=pods),))) == [operation.pod]
    unfit = recorded.observing(stateful_sets=(replace(item, pods=pods, **changes),))
    decision = unfit.decide()
    assert not any(isinstance(action, RestartPod) for action in decision.actions)
    assert decision.status.operation is None
    assert words in decision.status.message or words in str(decision.status.conditions)


def restarted(situation: Situation) -> list[str]:
    return [action.pod for action in situation.decide().actions if isinstance(action, RestartPod)]
