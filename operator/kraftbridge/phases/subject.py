"""What a verdict is about, as far as each look shows it: while it stays the same, a rest needs no other verdict. Pure.

The offset that ``/migration`` holds is no part of it, since it moves twice a second.
Topics and partitions are none either, because every client changes them: a verification once a day covers them.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from kraftbridge.models.observation import (
    ControllersWorkload,
    MigrationZnode,
    QuorumState,
    Unobserved,
    ZooKeeperState,
)
from kraftbridge.phases.draft import StepContext

_DIGITS = 12


def subject_of(step: StepContext) -> dict[str, str]:
    """Return a fingerprint of each part that a verdict is about; what was not observed is left out."""
    return {**_of_quorum(step), **_of_pods(step), **_of_zookeeper(step)}


def changed_parts(recorded: dict[str, str], present: dict[str, str]) -> list[str]:
    """Return the parts that are not what was recorded; a part that is not known now has not changed."""
    return [part for part, value in present.items() if recorded.get(part) != value]


def _of_quorum(step: StepContext) -> dict[str, str]:
    quorum = step.observation.quorum
    if not isinstance(quorum, QuorumState):
        return {}
    voters = sorted(voter.id for voter in quorum.voters)
    return {"voters": " ".join(map(str, voters)), "leader epoch": str(quorum.leader_epoch)}


def _of_pods(step: StepContext) -> dict[str, str]:
    """Return the fingerprint of every process and every pod template, of brokers and controllers."""
    sets = step.stateful_sets()
    workload = step.observation.controllers
    if isinstance(sets, Unobserved) or not isinstance(workload, ControllersWorkload):
        return {}
    every_set = sets if workload.stateful_set is None else (*sets, workload.stateful_set)
    pods = sorted(f"{pod.name} {pod.process}" for item in every_set for pod in item.pods)
    templates = sorted(f"{item.name} {item.update_revision}" for item in every_set)
    return {"pods": _digest(pods), "pod templates": _digest(templates)}


def _of_zookeeper(step: StepContext) -> dict[str, str]:
    """Return who controls ZooKeeper, and how many changes of configurations and ACLs were announced there.

    ``ZkConfigMigrationClient`` and ``ZkAclMigrationClient`` announce what they mirror, as a ZooKeeper-mode controller
    does: each creates a sequential znode below the znodes in `ZooKeeperState.changes`.
    """
    zookeeper = step.observation.zookeeper
    if not isinstance(zookeeper, ZooKeeperState):
        return {}
    claim = -1 if zookeeper.controller is None else zookeeper.controller.kraft_controller_epoch
    migration = zookeeper.migration
    mirrored = migration.kraft_controller_epoch if isinstance(migration, MigrationZnode) else -1
    control = [zookeeper.cluster_id, zookeeper.controller_epoch, claim, mirrored, zookeeper.migration_czxid]
    parts = {"control of ZooKeeper": _digest(map(str, control))}
    if zookeeper.changes:
        announced = (f"{path} {number}" for path, number in sorted(zookeeper.changes.items()))
        parts["configurations and ACLs"] = _digest(announced)
    return parts


def _digest(lines: Iterable[str]) -> str:
    return sha256("\n".join(lines).encode()).hexdigest()[:_DIGITS]
