"""The single metadata changes of the benchmark, and the check whether one broker already serves each."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, assert_never

from kafka.protocol.admin.acl import DescribeAclsRequest

from kraftbridge.kafka.wire import UNKNOWN_TOPIC, Connection, WireError, error_name
from kraftbridge.storage.kafka_brokers import TOPIC_RESOURCE, topic_configs

ANY: Final = 1
"""``PatternType.ANY``, ``AclOperation.ANY``, ``AclPermissionType.ANY``."""


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """Create a topic."""

    topic: str
    partitions: int
    replication_factor: int
    assignment: tuple[tuple[int, ...], ...] = ()
    """Brokers of each partition; Kafka chooses where it is left out."""


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """Delete a topic."""

    topic: str


@dataclass(frozen=True, slots=True)
class GrowTopic:
    """Give a topic more partitions."""

    topic: str
    partitions: int
    """How many it has afterwards."""


@dataclass(frozen=True, slots=True)
class AlterTopicConfig:
    """Set one configuration of a topic (KIP-339)."""

    topic: str
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Reassign:
    """Move one partition to other brokers (KIP-455); visible once the move is complete."""

    topic: str
    partition: int
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CreateAcl:
    """Allow a principal to read a topic."""

    topic: str
    principal: str


@dataclass(frozen=True, slots=True)
class DeleteAcl:
    """Take that back."""

    topic: str
    principal: str


Change = CreateTopic | DeleteTopic | GrowTopic | AlterTopicConfig | Reassign | CreateAcl | DeleteAcl


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition as one broker serves it."""

    replicas: frozenset[int]
    in_sync: frozenset[int]
    has_leader: bool


@dataclass(frozen=True, slots=True)
class View:
    """What one broker serves of the things that changes are awaited for."""

    topics: Mapping[str, Mapping[int, PartitionView]] = field(default_factory=dict)
    """Topics that it knows, with their partitions."""
    configs: Mapping[tuple[str, str], str | None] = field(default_factory=dict)
    """Value by topic and name."""
    acls: frozenset[tuple[str, str]] = frozenset()
    """Topic and principal."""


def is_visible(change: Change, view: View) -> bool:
    """Return whether a view already shows a change."""
    partitions = view.topics.get(change.topic)
    match change:
        case CreateTopic() | GrowTopic():
            return (
                partitions is not None
                and len(partitions) >= change.partitions
                and all(p.has_leader for p in partitions.values())
            )
        case DeleteTopic():
            return partitions is None
        case AlterTopicConfig():
            return view.configs.get((change.topic, change.name)) == change.value
        case Reassign():
            moved = (partitions or {}).get(change.partition)
            wanted = frozenset(change.replicas)
            return moved is not None and moved.replicas == wanted == moved.in_sync and moved.has_leader
        case CreateAcl():
            return (change.topic, change.principal) in view.acls
        case DeleteAcl():
            return (change.topic, change.principal) not in view.acls
        case _:
            assert_never(change)


def view_of(connection: Connection, changes: Iterable[Change], timeout_seconds: float) -> View:
    """Ask one broker for what these changes are visible in.

    Metadata and ACLs come from the broker's memory in every mode. Topic configurations do on KRaft; a broker in ZooKeeper mode, or in
    migration mode, answers DescribeConfigs from ZooKeeper itself (``ZkConfigRepository``).

    Raises
    ------
    WireError
        It did not answer.
    """
    wanted = tuple(changes)
    deadline = time.monotonic() + timeout_seconds
    topics = {c.topic for c in wanted if isinstance(c, CreateTopic | DeleteTopic | GrowTopic | Reassign)}
    configs: dict[str, list[str]] = {}
    for change in wanted:
        if isinstance(change, AlterTopicConfig):
            configs.setdefault(change.topic, []).append(change.name)
    principals = {c.principal for c in wanted if isinstance(c, CreateAcl | DeleteAcl)}
    acls: set[tuple[str, str]] = set()
    for principal in sorted(principals):
        acls |= _acls(connection, principal, deadline - time.monotonic())
    found = topic_configs(connection, configs, deadline - time.monotonic()) if configs else {}
    return View(
        topics=_topics(connection, sorted(topics), deadline - time.monotonic()) if topics else {},
        configs={(topic, name): value for topic, values in found.items() for name, value in values.items()},
        acls=frozenset(acls),
    )


def _topics(connection: Connection, names: list[str], timeout_seconds: float) -> dict[str, dict[int, PartitionView]]:
    found = {}
    for topic in connection.metadata(timeout_seconds, names).topics:
        if topic.error_code == UNKNOWN_TOPIC:
            continue
        found[topic.name] = {
            p.partition_index: PartitionView(frozenset(p.replica_nodes), frozenset(p.isr_nodes), p.leader_id >= 0)
            for p in topic.partitions
        }
    return found


def _acls(connection: Connection, principal: str, timeout_seconds: float) -> set[tuple[str, str]]:
    answer = connection.call(
        DescribeAclsRequest,
        timeout_seconds,
        max_version=2,
        resource_type_filter=TOPIC_RESOURCE,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=principal,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    if answer.error_code:
        raise WireError(f"DescribeAcls: {error_name(answer.error_code)}")
    return {(r.resource_name, a.principal) for r in answer.resources for a in r.acls}
