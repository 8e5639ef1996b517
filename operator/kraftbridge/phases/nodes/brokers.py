"""Queries about the brokers: progress of a roll, broken brokers, registrations. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from kraftbridge.models.observation import PodState, QuorumState, StatefulSetState, Unobserved, ZooKeeperState
from kraftbridge.models.phase import BrokerMode
from kraftbridge.models.status import BrokersStatus, OperationKind
from kraftbridge.phases import gates, observed
from kraftbridge.phases.draft import StepContext
from kraftbridge.phases.nodes import sights
from kraftbridge.phases.nodes.restarts import DEAF_FOR
from kraftbridge.phases.observed import Broker

LOST_AFTER = timedelta(seconds=180)
"""A broker registers within seconds of its start."""


@dataclass(frozen=True, slots=True)
class Roll:
    """Progress of a roll of the brokers."""

    done: int
    pending: tuple[Broker, ...]


def roll_of(step: StepContext) -> Roll | Unobserved:
    """Return the brokers that still run an older template.

    The ZooKeeper-mode broker that is controller comes last, so the controller moves once instead of several times.
    """
    sets = step.stateful_sets()
    if isinstance(sets, Unobserved):
        return sets
    pods = observed.brokers_of(step)
    broker_ids = step.status.broker_ids
    controller = observed.controller_znode(step)
    holder = None if controller is None else controller.broker_id
    pending = sorted(
        (broker for broker in pods if is_outdated(*broker)),
        key=lambda broker: (broker_ids.get(broker[1].name) == holder, broker_ids.get(broker[1].name, 0)),
    )
    strangers = ", ".join(pod.name for _, pod in pods if pod.name not in broker_ids)
    if strangers:
        return Unobserved(
            "brokers' pods",
            f"{strangers} is not a broker of this migration (preflight did not find it); scale its StatefulSet back",
        )
    expected = sum(stateful_set.replicas for stateful_set in sets)
    if len(pods) != expected and step.status.operation is None:
        return Unobserved("brokers' pods", f"{len(pods)} of {expected} exist")
    return Roll(done=expected - len(pending), pending=tuple(pending))


def broker_named(step: StepContext, pod_name: str) -> Broker | None:
    """Return the broker whose pod has this name, None while it does not exist or was not observed."""
    return next((broker for broker in observed.brokers_of(step) if broker[1].name == pod_name), None)


def broker_with_id(step: StepContext, node_id: int) -> Broker | None:
    """Return the broker with this id, None while its pod does not exist or was not observed."""
    broker_ids = step.status.broker_ids
    return next((broker for broker in observed.brokers_of(step) if broker_ids.get(broker[1].name) == node_id), None)


def some_on_kraft(step: StepContext) -> bool:
    """Return whether a StatefulSet renders KRaft mode, or a broker runs it."""
    sets = step.stateful_sets()
    if isinstance(sets, Unobserved):
        return True
    configurations = [stateful_set.configuration for stateful_set in sets]
    configurations += [pod.configuration for _, pod in observed.brokers_of(step)]
    return any(configuration.startswith(BrokerMode.KRAFT) for configuration in configurations)


def is_outdated(stateful_set: StatefulSetState, pod: PodState) -> bool:
    """Return whether a pod runs an older template than its StatefulSet has."""
    return pod.configuration != stateful_set.configuration or pod.revision != stateful_set.update_revision


class Trouble(StrEnum):
    """What is wrong with a broker. `trouble_of` returns one of these, and `REMEDIES` says what follows."""

    STOPPING = "its pod stops"
    LOADING = "it loads its partitions"
    LEFT_BEHIND = "it runs the user's own template while KRaft leads, so the quorum sends it no metadata"
    STARTING = "its pod is not Ready, and began to run a moment ago"
    DOWN = "its pod is not Ready"
    JOINING = "its pod is Ready, and the broker is not back yet"
    UNLISTED = "its pod has long been Ready, and no broker that answers lists it"
    UNREGISTERED = "its pod has long been Ready, and the quorum lacks it"


class Remedy(StrEnum):
    """What the operator does about a broker in trouble, always while every other broker serves."""

    WAIT = "nothing: it comes back by itself, or its message says who must act"
    RESTART = "it is restarted: that can only help"
    RESTART_UNLESS_IT_SERVES = "it is restarted if clients lose nothing by that: a pod that is not Ready may serve"
    RESTART_ONCE = "it is restarted once, if its log shows that it does not load partitions"


REMEDIES: Final[Mapping[Trouble, tuple[Remedy, Remedy]]] = {
    Trouble.STOPPING: (Remedy.WAIT, Remedy.WAIT),
    Trouble.LOADING: (Remedy.WAIT, Remedy.WAIT),
    Trouble.LEFT_BEHIND: (Remedy.RESTART, Remedy.WAIT),
    Trouble.STARTING: (Remedy.WAIT, Remedy.WAIT),
    Trouble.DOWN: (Remedy.RESTART_UNLESS_IT_SERVES, Remedy.WAIT),
    Trouble.JOINING: (Remedy.WAIT, Remedy.WAIT),
    Trouble.UNLISTED: (Remedy.RESTART, Remedy.RESTART_ONCE),
    Trouble.UNREGISTERED: (Remedy.WAIT, Remedy.RESTART_ONCE),
}
"""What follows for a broker on an outdated template, and for one on the template that it shall have.

A restart that the operator made itself is followed by `deadlines`."""


def trouble_of(step: StepContext, broker: Broker, mode: BrokerMode = BrokerMode.ZOOKEEPER) -> Trouble | None:
    """Return what is wrong with a broker that goes to ``mode``, None if it serves as far as anybody can tell."""
    _, pod = broker
    if pod.deleting:
        return Trouble.STOPPING
    absence = _absence(step, *broker)
    if sights.recovering(step, pod) is not None:
        return absence and Trouble.LOADING
    return Trouble.LEFT_BEHIND if _is_left_behind(step, pod, mode) else absence


def _absence(step: StepContext, stateful_set: StatefulSetState, pod: PodState) -> Trouble | None:
    if not pod.ready:
        return Trouble.STARTING if _is_starting(step, pod) else Trouble.DOWN
    if _is_missed(step, pod):
        found = Trouble.UNLISTED
    elif _is_absent_from_quorum(step, stateful_set, pod):
        found = Trouble.UNREGISTERED
    else:
        return None
    return found if _is_settled(step, pod) else Trouble.JOINING


def _is_starting(step: StepContext, pod: PodState) -> bool:
    runs = pod.running_since is not None and pod.seen_since is not None
    return runs and observed.age(step, pod.seen_since) < DEAF_FOR


def _remedy(step: StepContext, broker: Broker, mode: BrokerMode) -> Remedy:
    """Return what the table says about a broker that goes to ``mode``."""
    trouble = trouble_of(step, broker, mode)
    if trouble is None:
        return Remedy.WAIT
    of_outdated, of_wanted = REMEDIES[trouble]
    remedy = of_outdated if is_outdated(*broker) else of_wanted
    if remedy is Remedy.RESTART_UNLESS_IT_SERVES:
        return Remedy.RESTART if _takes_nothing(step, broker[1]) else Remedy.WAIT
    return remedy


def _lost_brokers(step: StepContext) -> list[Broker]:
    pods = observed.brokers_of(step)
    return [broker for broker in pods if _remedy(step, broker, BrokerMode.ZOOKEEPER) is Remedy.RESTART_ONCE]


def broken_broker(step: StepContext, roll: Roll, mode: BrokerMode) -> Broker | None:
    """Return a broker on an outdated template whose restart can only help, provided that all other brokers serve."""
    broken = [broker for broker in roll.pending if _remedy(step, broker, mode) is Remedy.RESTART]
    return _first_if_others_serve(step, broken)


def _first_if_others_serve(step: StepContext, broken: list[Broker]) -> Broker | None:
    """Return the first of the broken brokers, None when there is none or another broker does not serve."""
    names = {pod.name for _, pod in broken}
    others = frozenset(broker_id for name, broker_id in step.status.broker_ids.items() if name not in names)
    if broken and gates.all_serve(step, others):
        return broken[0]
    return None


def lost_broker(step: StepContext) -> Broker | None:
    """Return a broker that came back by itself, as it must be, and never registered, while every other broker serves.

    No operation follows it, so `deadlines` does not see it; what follows is the same as there: it is restarted.
    """
    if step.status.operation is not None:
        return None
    return _first_if_others_serve(step, _lost_brokers(step)[:1])


def starting_broker(step: StepContext) -> PodState | None:
    """Return a broker that has run for a while and is not back.

    It is the one that restarts, or one that came back by itself.
    """
    operation = step.status.operation
    watched = step.status.watched_start
    running = [broker for broker in observed.brokers_of(step) if _runs_for_a_while(step, broker[1])]
    restarted = _restarting(step)
    replaced = [pod for _, pod in running if operation is not None and pod.replaces(operation)]
    away = [broker[1] for broker in running if trouble_of(step, broker) is not None]
    # What is known of a start is of one process: a look in which another broker seems to be away must not forget it.
    process = None if watched is None else watched.process
    away.sort(key=lambda pod: (pod.name != restarted, pod.process != process))
    return next(iter([*away, *replaced]), None)


def _restarting(step: StepContext) -> str:
    """Return the name of the pod that restarts, ``""`` when none does."""
    return "" if step.status.operation is None else step.status.operation.pod


def _runs_for_a_while(step: StepContext, pod: PodState) -> bool:
    if pod.deleting or not (pod.ready or pod.running_since):
        return False
    return observed.age(step, pod.seen_since) >= sights.WATCHED_AFTER


def serves(step: StepContext, pod: PodState) -> bool:
    """Return whether a broker that answers lists this one, so that a restart takes it from clients."""
    return any(step.status.broker_ids.get(pod.name) in view.brokers for view in gates.views_of_cluster(step))


def away(step: StepContext) -> list[str]:
    """Return the pods of the brokers that no broker which answers lists, besides the one that restarts.

    Empty if none answers.
    """
    views = gates.views_of_cluster(step)
    if not views:
        return []
    listed = frozenset().union(*(view.brokers for view in views))
    missing = {pod for pod, broker_id in step.status.broker_ids.items() if broker_id not in listed}
    return sorted(missing - {_restarting(step)})


def _takes_nothing(step: StepContext, pod: PodState) -> bool:
    """Return whether clients lose nothing by this broker's restart.

    A pod that is not Ready may still serve: the readiness probe is the user's.
    """
    if not serves(step, pod):
        return True
    this = {step.status.broker_ids.get(pod.name)}
    others_lag = any(view.offline_count or view.lagging - this for view in gates.views_of_cluster(step))
    return not others_lag and not gates.redundancy_blockers(step)


def _is_missed(step: StepContext, pod: PodState) -> bool:
    """Return whether brokers answer, and none of them lists this one."""
    return bool(gates.views_of_cluster(step)) and not serves(step, pod)


def _is_absent_from_quorum(step: StepContext, stateful_set: StatefulSetState, pod: PodState) -> bool:
    """Return whether the quorum lacks a registration, and this broker does not fetch the metadata log.

    In migration mode ZooKeeper still lists such a broker, so the other brokers do, too. Every broker in migration or
    KRaft mode is an observer of the quorum (``KafkaServer`` starts a ``KafkaRaftManager`` if the migration is enabled;
    DescribeQuorum, KIP-595).
    """
    quorum = step.observation.quorum
    broker_id = step.status.broker_ids.get(pod.name)
    if not isinstance(quorum, QuorumState) or broker_id in quorum.observers:
        return False
    return bool(registration_blockers(step, BrokerMode.of(stateful_set.configuration)))


def _is_settled(step: StepContext, pod: PodState) -> bool:
    watched = step.status.watched_start
    if watched is not None and watched.process != pod.process:
        return False  # another broker's log is read, so it is not known whether this one loads its partitions
    return observed.age(step, pod.ready_since) > LOST_AFTER


def _is_left_behind(step: StepContext, pod: PodState, mode: BrokerMode) -> bool:
    """Return whether a broker runs the user's own template while KRaft leads.

    A ZooKeeper-mode broker without ``zookeeper.metadata.migration.enable`` does not register with the quorum, which
    then sends it no metadata (KIP-866).
    """
    zookeeper = step.observation.zookeeper
    claimed = isinstance(zookeeper, ZooKeeperState) and observed.claim_epoch(zookeeper) >= 0
    if not claimed and not step.status.phase.row.led_by_kraft:
        return False
    return mode.registers and not BrokerMode.of(pod.configuration).registers


def another_is_broken(step: StepContext, mode: BrokerMode) -> bool:
    """Return whether a restart is complete except for another broker that is broken and must be restarted first."""
    operation = step.status.operation
    roll = roll_of(step)
    if isinstance(roll, Unobserved) or operation is None or not gates.views_of_cluster(step):
        return False
    lost = _lost_brokers(step)
    others = [broker for broker in lost if broker[1].name != operation.pod]
    broken = broken_broker(step, roll, mode) or _first_if_others_serve(step, others[:1])
    if broken is None or broken[1].name == operation.pod:
        return False
    of_controller = operation.kind is OperationKind.RESTART_CONTROLLER
    return of_controller or (len(others) == len(lost) and _is_whole(step, operation.node_id))


def _is_whole(step: StepContext, node_id: int) -> bool:
    """Return whether every broker that answers lists this one, in every ISR."""
    return all(node_id in view.brokers - view.lagging for view in gates.views_of_cluster(step))


def brokers_in(step: StepContext, mode: BrokerMode) -> BrokersStatus:
    """Return the number of brokers that are Ready in ``mode``, for status."""
    if isinstance(step.stateful_sets(), Unobserved):
        return step.status.brokers
    total = len(step.status.broker_ids)
    current = [
        pod
        for stateful_set, pod in observed.brokers_of(step)
        if pod.ready and pod.configuration == stateful_set.configuration
    ]
    running = sum(not pod.deleting and BrokerMode.of(pod.configuration) is mode for pod in current)
    operation = step.status.operation
    if operation is not None and running:
        running -= any(pod.name == operation.pod for pod in current)
    return BrokersStatus(total=total, in_mode=running, mode=mode, summary=f"{running}/{total}")


def registration_blockers(step: StepContext, mode: BrokerMode) -> list[str]:
    """Return why the quorum's gauges of registered brokers do not match the brokers that run ``mode`` already."""
    if not mode.registers:
        return []
    active = step.observation.active_controller
    if active is None:
        return ["no single active KRaft controller answers"]
    roll = roll_of(step)
    if isinstance(roll, Unobserved):
        return [str(roll)]
    total = len(step.status.broker_ids)
    migrating = active.migrating_zk_brokers
    if mode is BrokerMode.MIGRATION:
        few = f"{migrating} of {roll.done} restarted brokers are registered with the quorum in migration mode"
        return gates.failed((migrating < roll.done, few))
    late = migrating - (total - roll.done)
    if late > 0:
        return [f"{late} of {roll.done} restarted brokers did not register with the quorum in KRaft mode yet"]
    all_serve = active.active_brokers == total and not active.fenced_brokers
    return gates.failed((not all_serve, f"{active.active_brokers} of {total} brokers are unfenced"))
