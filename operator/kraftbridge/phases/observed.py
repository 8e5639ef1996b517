"""Reads parts of the observation that may be unknown, and words what is known. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeVar

from kraftbridge.models.observation import (
    NOT_NEEDED,
    ControllerMetrics,
    ControllersWorkload,
    ControllerZnode,
    MigrationZnode,
    NodeFeatures,
    PodState,
    StatefulSetState,
    Unobserved,
    ZooKeeperState,
)
from kraftbridge.models.phase import ZkMigrationState
from kraftbridge.models.status import (
    KilledBroker,
    MigrationStatus,
    QuorumRestart,
    Restoration,
    RollbackStatus,
    ZooKeeperHistory,
)
from kraftbridge.models.survey import BrokerSetting, Survey
from kraftbridge.phases.draft import StepContext, Wait

K = TypeVar("K")
T = TypeVar("T")
_Record = TypeVar("_Record", KilledBroker, QuorumRestart, Restoration, RollbackStatus, ZooKeeperHistory)
Broker = tuple[StatefulSetState, PodState]
"""A broker: its StatefulSet and its pod."""


def observed(part: T | Unobserved, otherwise: T) -> T:
    """Return a part of the observation, ``otherwise`` if it is unknown."""
    return otherwise if isinstance(part, Unobserved) else part


def answers(parts: Mapping[K, T | Unobserved]) -> dict[K, T]:
    """Return those that answered."""
    return {key: part for key, part in parts.items() if not isinstance(part, Unobserved)}


def read_sets(step: StepContext) -> tuple[StatefulSetState, ...]:
    """Return the brokers' StatefulSets, none unless all of them were read."""
    return observed(step.stateful_sets(), ())


def broker_pods(step: StepContext) -> list[PodState]:
    """Return the brokers' pods, none unless all StatefulSets were read."""
    return [pod for _, pod in brokers_of(step)]


def told_settings(survey: Survey) -> dict[int, tuple[BrokerSetting, ...]]:
    """Return the running settings of each broker that answered."""
    nobody: Mapping[int, tuple[BrokerSetting, ...] | Unobserved] = {}
    return answers(observed(survey.brokers, nobody))


def server_time(step: StepContext) -> datetime | None:
    """Return the time by the API server's clock, None while it is not known."""
    now = step.observation.server_time
    return None if isinstance(now, Unobserved) else now


def unread(part: Unobserved) -> str:
    """Return why a part was not observed, ``""`` if no step has tried it yet."""
    return "" if part == NOT_NEEDED else str(part)


def because(reason: str) -> str:
    """Return a reason as the end of a message, ``""`` without one."""
    return f": {reason}" if reason else ""


def age(step: StepContext, at: datetime | None) -> timedelta:
    """Return how long ago ``at`` was; less than any duration when it is not known."""
    return timedelta.min if at is None else step.now - at


def preceded(words: str, waiting: Wait | None) -> Wait | None:
    """Return a wait whose message begins with what it holds up, None without one."""
    return waiting and replace(waiting, message=f"{words}: {waiting.message}")


def brokers_of(step: StepContext) -> list[Broker]:
    """Return every broker, none while a StatefulSet was not observed."""
    return [(stateful_set, pod) for stateful_set in read_sets(step) for pod in stateful_set.pods]


def down(pods: Iterable[PodState]) -> list[str]:
    """Return why pods cannot be counted on."""
    return [pod.down for pod in pods if pod.down]


def controllers_set(step: StepContext) -> StatefulSetState | None:
    """Return the controllers' StatefulSet, None while it does not exist or was not observed."""
    workload = step.observation.controllers
    return workload.stateful_set if isinstance(workload, ControllersWorkload) else None


def controllers_pods(step: StepContext) -> tuple[PodState, ...]:
    """Return the controllers' pods, none while they were not observed."""
    stateful_set = controllers_set(step)
    return () if stateful_set is None else stateful_set.pods


def without_agent(step: StepContext) -> frozenset[int]:
    """Return the controllers whose pods run no metrics agent, none while they were not observed."""
    workload = step.observation.controllers
    return workload.without_agent if isinstance(workload, ControllersWorkload) else frozenset()


def leading_controller(step: StepContext) -> int | None:
    """Return the id of the active controller: the one that says so, else the leader that DescribeQuorum names."""
    active = step.observation.active_controller
    quorum = step.observation.quorum
    if active is not None:
        return active.node_id
    return None if isinstance(quorum, Unobserved) else quorum.leader_id


def has_loaded(step: StepContext, node_id: int) -> bool:
    """Return whether a controller has loaded an image of the metadata.

    One without a metrics agent, or with Kafka 4, then has finalized features (ApiVersions, KIP-584).
    """
    metrics = step.observation.metrics.get(node_id)
    of_kafka4 = isinstance(metrics, ControllerMetrics) and metrics.zk_migration_state is ZkMigrationState.ABSENT
    if of_kafka4 or node_id in without_agent(step):
        features = step.observation.features
        own = None if isinstance(features, Unobserved) else features.get(node_id)
        return isinstance(own, NodeFeatures) and bool(own.finalized)
    return isinstance(metrics, ControllerMetrics) and metrics.zk_migration_state is not ZkMigrationState.NOT_LOADED


def controller_pod(step: StepContext, node_id: int) -> PodState | None:
    """Return the pod of one controller, None while it does not exist or was not observed."""
    return next((pod for pod in controllers_pods(step) if pod.ordinal == node_id), None)


def migration_znode(step: StepContext) -> MigrationZnode | None:
    """Return ``/migration``, None while it does not exist or cannot be read."""
    zookeeper = step.observation.zookeeper
    migration = zookeeper.migration if isinstance(zookeeper, ZooKeeperState) else None
    return migration if isinstance(migration, MigrationZnode) else None


def controller_znode(step: StepContext) -> ControllerZnode | None:
    """Return ``/controller``, None while it does not exist or was not observed."""
    zookeeper = step.observation.zookeeper
    return zookeeper.controller if isinstance(zookeeper, ZooKeeperState) else None


def claim_epoch(zookeeper: ZooKeeperState) -> int:
    """Return the epoch of the KRaft controller that holds ``/controller``, -1 when none does."""
    return -1 if zookeeper.controller is None else zookeeper.controller.kraft_controller_epoch


def of_attempt(status: MigrationStatus, record: _Record | None) -> _Record | None:
    """Return a record of this attempt, None for that of an earlier one."""
    if record is None or record.attempt != status.attempt:
        return None
    return record


def rollback_record(status: MigrationStatus) -> RollbackStatus:
    """Return the record of this attempt's rollback, an empty one while there is none."""
    return of_attempt(status, status.rollback) or RollbackStatus(attempt=status.attempt)
