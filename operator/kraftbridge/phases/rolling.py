"""Restarting nodes one at a time. Pure: which pod is next, and what must hold before and after. Used for brokers and controllers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from kraftbridge.models.conditions import Reason
from kraftbridge.models.decision import ConfigureBrokers, EventReason, LockStatefulSet, RestartPod
from kraftbridge.models.observation import PodState, StatefulSetState, Unobserved, ZooKeeperState
from kraftbridge.models.phase import BrokerMode, ControllerMode, Phase, ZkMigrationState
from kraftbridge.models.status import BrokersStatus, NodeStatus, Operation, OperationKind, WaitKind
from kraftbridge.phases import gates, impact
from kraftbridge.phases.draft import Draft, Wait

CONTROLLER_GRACE_SECONDS = 60
"""A controller hands over its leadership and closes its log; it has no partitions to move."""


REGISTRATION_PATIENCE = timedelta(seconds=25)
"""A controller registers within a second of knowing its leader; its request times out after 5 s."""


DEAF_FOR = timedelta(seconds=30)
"""A container that was just started may lose SIGTERM: its first process is a shell, or a JVM without handlers yet, and as process 1 it ignores
the signals that it does not handle (pid_namespaces(7)). It would run on for its whole grace period, and then be killed."""


@dataclass(frozen=True, slots=True)
class Roll:
    """How far a roll of the brokers is."""

    done: int
    pending: tuple[tuple[StatefulSetState, PodState], ...]


def configure_brokers(draft: Draft, mode: BrokerMode) -> Wait | None:
    """Lock the StatefulSets and render ``mode`` in their templates; None once all of them do."""
    sets = draft.stateful_sets()
    if isinstance(sets, Unobserved):
        return Wait(str(sets))
    for item in sets:
        if item.lock != draft.identity.lock or item.update_strategy != "OnDelete":
            draft.act(LockStatefulSet(item.name))
            return Wait(f"StatefulSet {item.name} is being locked and set to OnDelete")
        if not item.configuration.startswith(f"{mode}-") or item.drift:
            # Recorded when the values are still the user's own, which the Secret of former values keeps for good.
            others = tuple(f for f in draft.status.changed_fields if f.object != f"StatefulSet/{item.name}")
            draft.update(changed_fields=(*others, *item.former))
            draft.act(ConfigureBrokers(item.name, mode))
            lost = f" again; {item.last_writer or 'somebody'} changed {', '.join(item.drift)}" if item.drift else ""
            return Wait(f"StatefulSet {item.name} is being given the {mode} configuration{lost}")
        if not item.observed:
            return Wait(f"StatefulSet {item.name}: its new revision has not been taken up by Kubernetes yet")
    return None


def roll_of(draft: Draft) -> Roll | Unobserved:
    """Return which brokers still run an older template; ZooKeeper's controller comes last (one controller move instead of several)."""
    sets = draft.stateful_sets()
    if isinstance(sets, Unobserved):
        return sets
    zookeeper = draft.observation.zookeeper
    holder = (
        zookeeper.controller.broker_id
        if isinstance(zookeeper, ZooKeeperState) and zookeeper.controller is not None
        else None
    )
    pods = [(s, p) for s in sets for p in s.pods]
    pending = [(s, p) for s, p in pods if _is_outdated(s, p)]
    pending.sort(
        key=lambda sp: (draft.status.broker_ids.get(sp[1].name) == holder, draft.status.broker_ids.get(sp[1].name, 0))
    )
    strangers = [p.name for _, p in pods if p.name not in draft.status.broker_ids]
    if strangers:
        return Unobserved(
            "brokers' pods", f"{', '.join(strangers)} was no broker at preflight; scale its StatefulSet back"
        )
    expected = sum(s.replicas for s in sets)
    if len(pods) != expected and draft.status.operation is None:
        return Unobserved("brokers' pods", f"{len(pods)} of {expected} exist")
    return Roll(done=expected - len(pending), pending=tuple(pending))


def _is_outdated(stateful_set: StatefulSetState, pod: PodState) -> bool:
    return pod.configuration != stateful_set.configuration or pod.revision != stateful_set.update_revision


def finish_broker_restart(draft: Draft) -> Wait | None:
    """Follow the restart in progress to its end, by the mode that its template renders; None when there is none (any more)."""
    operation = draft.status.operation
    if operation is None:
        return None
    sets = draft.stateful_sets()
    if isinstance(sets, Unobserved):
        return Wait(str(sets))
    found = next(((s, p) for s in sets for p in s.pods if p.name == operation.pod), None)
    if found is None:
        return Wait(f"broker {operation.node_id}: pod {operation.pod} is being replaced")
    stateful_set, pod = found
    late = draft.now - operation.started_at > DEAF_FOR
    if late and pod.uid != operation.pod_uid and not pod.ready and _is_outdated(stateful_set, pod):
        # It came back on a template that somebody had changed and will not run: this restart is over, and another one is due.
        draft.update(operation=None)
        return None
    if (waiting := _await_successor(draft, operation, pod, gates.cluster_health)) is not None:
        return waiting
    mode = BrokerMode.of(stateful_set.configuration)
    blockers = [*_registered(draft, mode), *gates.cluster_health(draft)]
    if blockers and not _another_is_broken(draft, mode):
        return Wait(f"broker {operation.node_id} is back ({mode}); {blockers[0]}")
    impact.note_restart(draft, draft.status.operation or operation)
    ready_at = (draft.status.operation or operation).last_pod_ready_at or draft.now
    draft.update(operation=None, nodes=_restarted(draft, operation, stateful_set.name, mode))
    roll = roll_of(draft)
    longest = draft.spec.strategy.address_cache_seconds
    more = isinstance(roll, Unobserved) or bool(roll.pending)
    # Brokers that this migration has not restarted yet, and those given back to the user, cache addresses for long.
    some_jvm_caches_long = mode is BrokerMode.ZOOKEEPER or (draft.status.phase is Phase.TAKING_OVER and more)
    seconds = longest if some_jvm_caches_long else min(longest, draft.spec.strategy.short_address_cache_seconds)
    draft.update(
        hold_until=ready_at + timedelta(seconds=seconds),
        hold_reason=f"the JVMs no longer cache the old address of broker {operation.node_id}",
    )
    return None


def hold(draft: Draft) -> Wait | None:
    """Wait out the recorded hold; None when it is over."""
    until = draft.status.hold_until
    if until is None:
        return None
    if draft.now >= until:
        draft.update(hold_until=None, hold_reason="")
        return None
    return Wait(f"holding until {until:%H:%M:%S} UTC, when {draft.status.hold_reason}", WaitKind.HOLD)


def broken_broker(draft: Draft, roll: Roll, mode: BrokerMode) -> tuple[StatefulSetState, PodState] | None:
    """Return a broker that is out and has another configuration than it should have: restarting it can only help.

    It is not Ready on a template that is not ours, or it is back on the user's own while KRaft leads: a broker on ZooKeeper without the
    migration flag does not register with the quorum and is told nothing (KIP-866). All the others must serve.
    """
    broken = [
        sp
        for sp in roll.pending
        if not sp[1].deleting and (_is_down(draft, sp[1]) or _is_left_behind(draft, sp[1], mode))
    ]
    names = {pod.name for _, pod in broken}
    others = frozenset(i for name, i in draft.status.broker_ids.items() if name not in names)
    return broken[0] if broken and gates.serves_everywhere(draft.observation.cluster, others) else None


def _is_down(draft: Draft, pod: PodState) -> bool:
    return not pod.ready and (pod.running_since is None or draft.now - pod.running_since >= DEAF_FOR)


_LED_BY_KRAFT = (
    Phase.DUAL_WRITE,
    Phase.ROLLING_BROKERS,
    Phase.AWAITING_FINALIZATION,
    Phase.FINALIZING,
    Phase.COMPLETED,
)


def _is_left_behind(draft: Draft, pod: PodState, mode: BrokerMode) -> bool:
    zookeeper, phase = draft.observation.zookeeper, draft.status.phase
    leads = (
        isinstance(zookeeper, ZooKeeperState)
        and zookeeper.controller is not None
        and zookeeper.controller.kraft_controller_epoch >= 0
    )
    leads = leads or phase in _LED_BY_KRAFT
    return leads and mode is not BrokerMode.ZOOKEEPER and BrokerMode.of(pod.configuration) is BrokerMode.ZOOKEEPER


def _another_is_broken(draft: Draft, mode: BrokerMode) -> bool:
    """Whether all that is awaited after a restart is a broken broker elsewhere, so that waiting is in vain before that one is mended."""
    cluster, operation, roll = draft.observation.cluster, draft.status.operation, roll_of(draft)
    if isinstance(cluster, Unobserved) or isinstance(roll, Unobserved) or operation is None:
        return False
    broken = broken_broker(draft, roll, mode)
    back = operation.kind is OperationKind.RESTART_CONTROLLER or (
        operation.node_id in cluster.brokers and operation.node_id not in cluster.lagging
    )
    return back and broken is not None and broken[1].name != operation.pod


def paused(draft: Draft) -> Wait | None:
    """Return the wait of a paused migration: asked before each restart, when no node is down."""
    if not draft.spec.paused or draft.status.operation is not None:
        return None
    message = "Paused by spec.paused at a safe point: no node is down"
    return Wait(message, WaitKind.USER, Reason.PAUSED, look_again_after=timedelta(seconds=5))


def restart_broker(draft: Draft, pod: PodState, stateful_set: StatefulSetState) -> Wait:
    """Record and begin the restart of one broker; the caller has seen that no other node is down."""
    if stateful_set.drift:
        return Wait(
            f"StatefulSet {stateful_set.name} does not render our configuration: {', '.join(stateful_set.drift)}"
        )
    if stateful_set.foreign:
        return Wait(
            f"{stateful_set.last_writer or 'Somebody'} changed the template of StatefulSet {stateful_set.name} during the migration: {', '.join(stateful_set.foreign)}. "
            "Put it back: no broker is restarted on a mixed configuration",
            reason=Reason.FOREIGN_CHANGE,
            stalled=True,
            look_again_after=timedelta(seconds=5),
        )
    node_id = draft.status.broker_ids[pod.name]
    _begin(draft, OperationKind.RESTART_BROKER, node_id, pod)
    draft.tell(
        EventReason.BROKER_RESTARTING,
        f"Restarting broker {node_id} (pod {pod.name}) with configuration {stateful_set.configuration}",
    )
    return Wait(f"broker {node_id}: pod {pod.name} is being stopped")


def finish_controller_restart(draft: Draft, mode: ControllerMode, *, whole_cluster: bool = True) -> Wait | None:
    """Follow a controller's restart until the quorum agrees again and, for the whole cluster, every broker serves with full ISRs."""
    operation, workload = draft.status.operation, draft.observation.controllers
    if operation is None:
        return None
    if isinstance(workload, Unobserved) or workload.stateful_set is None:
        return Wait(
            str(workload)
            if isinstance(workload, Unobserved)
            else "the controllers' StatefulSet is gone; it must be there"
        )
    pod = next((p for p in workload.stateful_set.pods if p.name == operation.pod), None)
    if pod is None:
        return Wait(f"controller {operation.node_id}: pod {operation.pod} is being replaced")

    def may_stop(draft: Draft) -> list[str]:
        return gates.quorum_agrees(draft) or (gates.cluster_health(draft) if whole_cluster else [])

    if (waiting := _await_successor(draft, operation, pod, may_stop)) is not None:
        return waiting
    blockers = gates.quorum_agrees(draft)
    metrics = draft.observation.metrics.get(operation.node_id)
    if not blockers and (
        metrics is None or isinstance(metrics, Unobserved) or metrics.zk_migration_state is ZkMigrationState.NOT_LOADED
    ):
        blockers = [f"controller {operation.node_id} has not loaded its image yet"]
    final = mode is ControllerMode.FINAL
    if not blockers and not _another_is_broken(draft, BrokerMode.KRAFT if final else BrokerMode.ZOOKEEPER):
        active, total = draft.observation.active_controller, len(draft.status.broker_ids)
        if final and (active is None or active.active_brokers != total):
            blockers = [
                f"{active.active_brokers if active else 'unknown'} of {total} brokers have found the active controller"
            ]
        blockers = blockers or (gates.cluster_health(draft) if whole_cluster else [])
    if blockers:
        return Wait(f"controller {operation.node_id} is back ({mode}); {blockers[0]}")
    impact.note_restart(draft, draft.status.operation or operation)
    draft.update(operation=None)
    return None


def restart_unregistered_controller(draft: Draft) -> Wait | None:
    """Restart a controller of ours that follows its leader but does not register; None when there is none to restart now.

    It never tries again by itself (``ControllerRegistrationManager``, see `ControllerClient.registered_controllers`).
    """
    workload, registered, quorum = (
        draft.observation.controllers,
        draft.observation.registered_controllers,
        draft.status.quorum,
    )
    if isinstance(workload, Unobserved) or isinstance(registered, Unobserved) or workload.stateful_set is None:
        return None
    if draft.status.operation is not None or quorum is None or quorum.leader_since is None:
        return None
    for pod in workload.stateful_set.pods:
        settled = pod.ready_since is not None and draft.now - pod.ready_since > REGISTRATION_PATIENCE
        if pod.ordinal not in registered and settled and draft.now - quorum.leader_since > REGISTRATION_PATIENCE:
            return restart_controller(draft, pod)
    return None


def replace_outdated_controllers(draft: Draft) -> None:
    """Restart controllers whose template changed before there was a quorum to protect, all at once."""
    workload = draft.observation.controllers
    if isinstance(workload, Unobserved) or workload.stateful_set is None or not workload.stateful_set.observed:
        return
    stateful_set = workload.stateful_set
    for pod in stateful_set.pods:
        if pod.configuration != stateful_set.configuration and not pod.deleting:
            draft.act(RestartPod(pod.name, pod.uid, pod.ordinal, CONTROLLER_GRACE_SECONDS, ready=False))


def restart_controller(draft: Draft, pod: PodState) -> Wait:
    """Record and begin the restart of one controller."""
    _begin(draft, OperationKind.RESTART_CONTROLLER, pod.ordinal, pod)
    draft.tell(EventReason.CONTROLLER_RESTARTING, f"Restarting controller {pod.ordinal} (pod {pod.name})")
    return Wait(f"controller {pod.ordinal}: pod {pod.name} is being stopped")


def brokers_in(draft: Draft, mode: BrokerMode) -> BrokersStatus:
    """Return how many brokers run ``mode``, Ready, for status."""
    sets = draft.stateful_sets()
    total = len(draft.status.broker_ids)
    if isinstance(sets, Unobserved):
        return draft.status.brokers
    running = sum(
        p.ready and not p.deleting and BrokerMode.of(p.configuration) is mode and p.configuration == s.configuration
        for s in sets
        for p in s.pods
    )
    if draft.status.operation is not None and running:
        operating = draft.status.operation.pod
        running -= any(
            p.name == operating and p.ready and p.configuration == s.configuration for s in sets for p in s.pods
        )
    return BrokersStatus(total=total, in_mode=running, mode=mode, summary=f"{running}/{total}")


def _await_successor(
    draft: Draft, operation: Operation, pod: PodState, may_stop: Callable[[Draft], list[str]]
) -> Wait | None:
    what = "broker" if operation.kind is OperationKind.RESTART_BROKER else "controller"
    if pod.uid == operation.pod_uid:
        # The eviction names this UID, so that it may be repeated; but the cluster may have changed since it was decided.
        if not pod.deleting and pod.ready and (blockers := may_stop(draft)):
            draft.update(operation=None)
            return Wait(f"{what} {operation.node_id} is not stopped after all: {blockers[0]}")
        if not pod.deleting:
            draft.act(_restart(draft, operation, pod))
        because = f": {draft.failure()}" if draft.failure() else ""
        return Wait(f"{what} {operation.node_id}: pod {pod.name} is stopping{because}")
    if not pod.ready or pod.deleting:
        return Wait(
            f"{what} {operation.node_id}: pod {pod.name} is starting{': ' + pod.trouble if pod.trouble else ''}"
        )
    if operation.last_pod_ready_at is None:
        draft.update(operation=operation.model_copy(update={"last_pod_ready_at": pod.ready_since or draft.now}))
    return None


def _begin(draft: Draft, kind: OperationKind, node_id: int, pod: PodState) -> None:
    operation = Operation(kind=kind, node_id=node_id, pod=pod.name, pod_uid=pod.uid, started_at=draft.now)
    draft.update(operation=operation)
    draft.act(_restart(draft, operation, pod))


def _restart(draft: Draft, operation: Operation, pod: PodState) -> RestartPod:
    broker = operation.kind is OperationKind.RESTART_BROKER
    seconds = draft.spec.strategy.termination_grace_seconds if broker else CONTROLLER_GRACE_SECONDS
    return RestartPod(operation.pod, operation.pod_uid, operation.node_id, seconds, pod.ready)


def _registered(draft: Draft, mode: BrokerMode) -> list[str]:
    if mode is BrokerMode.ZOOKEEPER:
        return []
    active = draft.observation.active_controller
    if active is None:
        return ["no single active KRaft controller answers"]
    roll = roll_of(draft)
    if isinstance(roll, Unobserved):
        return [str(roll)]
    total = len(draft.status.broker_ids)
    match mode:
        case BrokerMode.MIGRATION:
            if active.migrating_zk_brokers < roll.done:
                return [
                    f"{active.migrating_zk_brokers} of {roll.done} restarted brokers are registered with the quorum in migration mode"
                ]
        case BrokerMode.KRAFT:
            if active.migrating_zk_brokers > total - roll.done:
                return [
                    f"{active.migrating_zk_brokers} brokers are registered as ZooKeeper brokers, {total - roll.done} expected"
                ]
            if active.active_brokers != total or active.fenced_brokers:
                return [f"{active.active_brokers} of {total} brokers are unfenced"]
    return []


def _restarted(draft: Draft, operation: Operation, stateful_set: str, mode: BrokerMode) -> tuple[NodeStatus, ...]:
    old = next((n for n in draft.status.nodes if n.id == operation.node_id), None)
    new = NodeStatus(
        id=operation.node_id,
        role="broker",
        pod=operation.pod,
        stateful_set=stateful_set,
        mode=mode,
        ready=True,
        registered=True,
        restarts=(old.restarts if old else 0) + 1,
    )
    return tuple(sorted((new, *(n for n in draft.status.nodes if n.id != operation.node_id)), key=lambda n: n.id))
