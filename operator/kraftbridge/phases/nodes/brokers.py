"""Queries about the brokers: progress of a roll, broken brokers, registrations. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from kraftbridge.models.observation import PodState, QuorumState, StatefulSetState, Unobserved, ZooKeeperState
from kraftbridge.models.phase import BrokerMode, Phase
from kraftbridge.models.status import BrokersStatus, OperationKind
from kraftbridge.phases import gates
from kraftbridge.phases.draft import StepContext
from kraftbridge.phases.nodes import sights
from kraftbridge.phases.nodes.restarts import DEAF_FOR

LOST_AFTER = timedelta(seconds=180)
"""A broker registers within seconds of its start."""


@dataclass(frozen=True, slots=True)
class Roll:
    """Progress of a roll of the brokers."""

    done: int
    pending: tuple[tuple[StatefulSetState, PodState], ...]


def roll_of(step: StepContext) -> Roll | Unobserved:
    """Return the brokers that still run an older template.

    The ZooKeeper-mode broker that is controller comes last, so the controller moves once instead of several times.
    """
    sets = step.stateful_sets()
    if isinstance(sets, Unobserved):
        return sets
    zookeeper = step.observation.zookeeper
    holder = (
        zookeeper.controller.broker_id
        if isinstance(zookeeper, ZooKeeperState) and zookeeper.controller is not None
        else None
    )
    pods = [(s, p) for s in sets for p in s.pods]
    pending = [(s, p) for s, p in pods if is_outdated(s, p)]
    pending.sort(
        key=lambda sp: (step.status.broker_ids.get(sp[1].name) == holder, step.status.broker_ids.get(sp[1].name, 0))
    )
    strangers = [p.name for _, p in pods if p.name not in step.status.broker_ids]
    if strangers:
        return Unobserved(
            "brokers' pods",
            f"{', '.join(strangers)} is not a broker of this migration (preflight did not find it); scale its StatefulSet back",
        )
    expected = sum(s.replicas for s in sets)
    if len(pods) != expected and step.status.operation is None:
        return Unobserved("brokers' pods", f"{len(pods)} of {expected} exist")
    return Roll(done=expected - len(pending), pending=tuple(pending))


def some_on_kraft(step: StepContext) -> bool:
    """Return whether a StatefulSet renders KRaft mode, or a broker runs it."""
    sets = step.stateful_sets()
    if isinstance(sets, Unobserved):
        return True
    return any(
        c.startswith(BrokerMode.KRAFT) for s in sets for c in (s.configuration, *(p.configuration for p in s.pods))
    )


def is_outdated(stateful_set: StatefulSetState, pod: PodState) -> bool:
    """Return whether a pod runs an older template than its StatefulSet has."""
    return pod.configuration != stateful_set.configuration or pod.revision != stateful_set.update_revision


def broken_broker(step: StepContext, roll: Roll, mode: BrokerMode) -> tuple[StatefulSetState, PodState] | None:
    """Return a broker that is down or unregistered on an outdated template, provided that all other brokers serve.

    Restarting it can only help. It is not Ready, or it runs the user's own template while KRaft leads: a ZooKeeper-mode broker without
    ``zookeeper.metadata.migration.enable`` does not register with the quorum, which then sends it no metadata (KIP-866).
    """
    broken = [
        sp
        for sp in roll.pending
        if not sp[1].deleting
        and sights.recovering(step, sp[1]) is None
        and (
            (_is_down(step, sp[1]) and _takes_nothing(step, sp[1]))
            or _is_lost(step, sp[1])
            or _is_left_behind(step, sp[1], mode)
        )
    ]
    names = {pod.name for _, pod in broken}
    others = frozenset(i for name, i in step.status.broker_ids.items() if name not in names)
    return broken[0] if broken and gates.all_serve(step, others) else None


def lost_broker(step: StepContext) -> tuple[StatefulSetState, PodState] | None:
    """Return a broker that came back by itself, as it must be, and never registered, while every other broker serves.

    No operation follows it, so `deadlines` does not see it; what follows is the same as there: it is restarted.
    """
    sets = step.stateful_sets()
    if isinstance(sets, Unobserved) or step.status.operation is not None:
        return None
    return _lost_broker(step, _lost_brokers(step, sets))


def starting_broker(step: StepContext) -> PodState | None:
    """Return a broker that has run for a while and is not back: the one that restarts, or one that came back by itself."""
    sets, operation = step.stateful_sets(), step.status.operation
    if isinstance(sets, Unobserved):
        return None
    running = [
        (s, p)
        for s in sets
        for p in s.pods
        if not p.deleting
        and (p.ready or p.running_since is not None)
        and p.seen_since is not None
        and step.now - p.seen_since >= sights.WATCHED_AFTER
    ]
    restarted = "" if operation is None else operation.pod
    replaced = [p for _, p in running if p.name == restarted and operation is not None and p.uid != operation.pod_uid]
    away = [p for s, p in running if not p.ready or _is_missed(step, p) or _is_absent_from_quorum(step, s, p)]
    # What is known of a start is of one process: a look in which another broker seems to be away must not forget it.
    watched = step.status.watched_start
    away.sort(key=lambda pod: (pod.name != restarted, watched is None or pod.process != watched.process))
    return next(iter([*away, *replaced]), None)


def serves(step: StepContext, pod: PodState) -> bool:
    """Return whether a broker that answers lists this one, so that a restart takes it from clients."""
    return any(step.status.broker_ids.get(pod.name) in v.brokers for v in gates.views_of_cluster(step))


def away(step: StepContext) -> list[str]:
    """Return the pods of the brokers that no broker which answers lists, besides the one that restarts; empty if none answers."""
    operation, views = step.status.operation, gates.views_of_cluster(step)
    restarting = operation.pod if operation is not None else ""
    listed = {i for v in views for i in v.brokers}
    return sorted(pod for pod, i in step.status.broker_ids.items() if views and i not in listed and pod != restarting)


def _lost_brokers(step: StepContext, sets: tuple[StatefulSetState, ...]) -> list[tuple[StatefulSetState, PodState]]:
    return [
        (s, p)
        for s in sets
        for p in s.pods
        if not p.deleting
        and not is_outdated(s, p)
        and (_is_lost(step, p) or (_is_settled(step, p) and _is_absent_from_quorum(step, s, p)))
    ]


def _lost_broker(
    step: StepContext, lost: list[tuple[StatefulSetState, PodState]]
) -> tuple[StatefulSetState, PodState] | None:
    if not lost:
        return None
    others = frozenset(i for name, i in step.status.broker_ids.items() if name != lost[0][1].name)
    return lost[0] if gates.all_serve(step, others) else None


def _is_down(step: StepContext, pod: PodState) -> bool:
    running = pod.running_since is not None and pod.seen_since is not None
    return not pod.ready and (not running or step.now - (pod.seen_since or step.now) >= DEAF_FOR)


def _takes_nothing(step: StepContext, pod: PodState) -> bool:
    """Return whether clients lose nothing by this broker's restart. A pod that is not Ready may still serve: the readiness probe is the user's."""
    others_lag = any(
        v.offline_count or v.lagging - {step.status.broker_ids.get(pod.name)} for v in gates.views_of_cluster(step)
    )
    return not serves(step, pod) or not (others_lag or gates.redundancy_blockers(step))


def _is_lost(step: StepContext, pod: PodState) -> bool:
    """Return whether a broker runs and never registered: its pod has long been Ready, and no broker that answers lists it."""
    return _is_settled(step, pod) and _is_missed(step, pod)


def _is_missed(step: StepContext, pod: PodState) -> bool:
    """Return whether brokers answer, and none of them lists this one."""
    return bool(gates.views_of_cluster(step)) and not serves(step, pod)


def _is_absent_from_quorum(step: StepContext, stateful_set: StatefulSetState, pod: PodState) -> bool:
    """Return whether the quorum lacks a registration, and this broker does not fetch the metadata log.

    In migration mode ZooKeeper still lists such a broker, so the other brokers do, too. Every broker in migration or KRaft mode is an
    observer of the quorum (``KafkaServer`` starts a ``KafkaRaftManager`` if the migration is enabled; DescribeQuorum, KIP-595).
    """
    quorum, broker = step.observation.quorum, step.status.broker_ids.get(pod.name)
    return (
        isinstance(quorum, QuorumState)
        and broker not in quorum.observers
        and bool(registration_blockers(step, BrokerMode.of(stateful_set.configuration)))
    )


def _is_settled(step: StepContext, pod: PodState) -> bool:
    watched = step.status.watched_start
    if not pod.ready or pod.ready_since is None or sights.recovering(step, pod) is not None:
        return False
    if watched is not None and watched.process != pod.process:
        return False  # another broker's log is read, so it is not known whether this one loads its partitions
    return step.now - pod.ready_since > LOST_AFTER


_LED_BY_KRAFT = (
    Phase.DUAL_WRITE,
    Phase.ROLLING_BROKERS,
    Phase.AWAITING_FINALIZATION,
    Phase.FINALIZING,
    Phase.COMPLETED,
)


def _is_left_behind(step: StepContext, pod: PodState, mode: BrokerMode) -> bool:
    zookeeper, phase = step.observation.zookeeper, step.status.phase
    leads = (
        isinstance(zookeeper, ZooKeeperState)
        and zookeeper.controller is not None
        and zookeeper.controller.kraft_controller_epoch >= 0
    )
    leads = leads or phase in _LED_BY_KRAFT
    return leads and mode is not BrokerMode.ZOOKEEPER and BrokerMode.of(pod.configuration) is BrokerMode.ZOOKEEPER


def another_is_broken(step: StepContext, mode: BrokerMode) -> bool:
    """Return whether a restart is complete except for another broker that is broken and must be restarted first."""
    views, operation, roll = gates.views_of_cluster(step), step.status.operation, roll_of(step)
    if not views or isinstance(roll, Unobserved) or operation is None:
        return False
    sets = step.stateful_sets()
    lost = [] if isinstance(sets, Unobserved) else _lost_brokers(step, sets)
    others = [sp for sp in lost if sp[1].name != operation.pod]
    broken = broken_broker(step, roll, mode) or _lost_broker(step, others)
    back = operation.kind is OperationKind.RESTART_CONTROLLER or (
        len(others) == len(lost)
        and all(operation.node_id in v.brokers and operation.node_id not in v.lagging for v in views)
    )
    return back and broken is not None and broken[1].name != operation.pod


def brokers_in(step: StepContext, mode: BrokerMode) -> BrokersStatus:
    """Return the number of brokers that are Ready in ``mode``, for status."""
    sets = step.stateful_sets()
    total = len(step.status.broker_ids)
    if isinstance(sets, Unobserved):
        return step.status.brokers
    running = sum(
        p.ready and not p.deleting and BrokerMode.of(p.configuration) is mode and p.configuration == s.configuration
        for s in sets
        for p in s.pods
    )
    if step.status.operation is not None and running:
        operating = step.status.operation.pod
        running -= any(
            p.name == operating and p.ready and p.configuration == s.configuration for s in sets for p in s.pods
        )
    return BrokersStatus(total=total, in_mode=running, mode=mode, summary=f"{running}/{total}")


def registration_blockers(step: StepContext, mode: BrokerMode) -> list[str]:
    """Return why the quorum's gauges of registered brokers do not match the brokers that run ``mode`` already."""
    if mode is BrokerMode.ZOOKEEPER:
        return []
    active = step.observation.active_controller
    if active is None:
        return ["no single active KRaft controller answers"]
    roll = roll_of(step)
    if isinstance(roll, Unobserved):
        return [str(roll)]
    total = len(step.status.broker_ids)
    match mode:
        case BrokerMode.MIGRATION:
            if active.migrating_zk_brokers < roll.done:
                return [
                    f"{active.migrating_zk_brokers} of {roll.done} restarted brokers are registered with the quorum in migration mode"
                ]
        case BrokerMode.KRAFT:
            if active.migrating_zk_brokers > total - roll.done:
                late = active.migrating_zk_brokers - (total - roll.done)
                return [f"{late} of {roll.done} restarted brokers did not register with the quorum in KRaft mode yet"]
            if active.active_brokers != total or active.fenced_brokers:
                return [f"{active.active_brokers} of {total} brokers are unfenced"]
    return []
