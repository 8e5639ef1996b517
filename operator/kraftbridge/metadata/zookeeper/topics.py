"""Znodes of topics and partitions: their content, and the canonical entities of it.

Formats: Kafka's `ZkData.scala` (`TopicZNode`, `TopicPartitionStateZNode`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from kraftbridge.metadata.entities import Entity, canonical_json, partition_key, partition_value
from kraftbridge.metadata.errors import UndecodableZnodeError
from kraftbridge.metadata.zookeeper.entities import MAXIMUM_INT32, integer, json_object
from kraftbridge.models.report import EntityKind

TOPICS_PATH: Final = "/brokers/topics"
_NUMBER: Final = rb"(?:0|[1-9]\d{0,8})"
_USUAL_STATE: Final = re.compile(
    rb'\{"controller_epoch":(%b),"leader":(-1|%b),"version":1,"leader_epoch":(%b),"isr":\[(%b(?:,%b)*)\]\}'
    % ((_NUMBER,) * 5)
)
"""A state as Kafka's `TopicPartitionStateZNode` nearly always writes it; a cluster may have a million."""


@dataclass(frozen=True, slots=True)
class TopicAssignment:
    """Content of `/brokers/topics/NAME`."""

    topic_id: str | None
    replicas: Mapping[int, list[int]]
    adding: Mapping[int, list[int]]
    removing: Mapping[int, list[int]]

    @classmethod
    def parse(cls, path: str, data: bytes | None) -> TopicAssignment:
        """Return what a topic's znode says."""
        body = json_object(path, data)
        topic_id = body.get("topic_id")
        if topic_id is not None and not isinstance(topic_id, str):
            raise UndecodableZnodeError(f"{path}: topic_id is not text")
        return cls(
            topic_id=topic_id,
            replicas=_assignments(path, body, "partitions", required=True),
            adding=_assignments(path, body, "adding_replicas"),
            removing=_assignments(path, body, "removing_replicas"),
        )


class PartitionState(NamedTuple):
    """Content of a partition's `state` znode."""

    leader: int
    leader_epoch: int
    controller_epoch: int
    isr: list[int]
    leader_recovery_state: int

    @classmethod
    def parse(cls, path: str, data: bytes | None) -> PartitionState:
        """Return what a state znode says."""
        if data and (usual := _USUAL_STATE.fullmatch(data)):
            controller_epoch, leader, leader_epoch, isr = usual.groups()
            return cls(int(leader), int(leader_epoch), int(controller_epoch), list(map(int, isr.split(b","))), 0)
        body = json_object(path, data)
        recovery = body.get("leader_recovery_state", 0)
        return cls(
            leader=integer(path, body, "leader"),
            leader_epoch=integer(path, body, "leader_epoch"),
            controller_epoch=integer(path, body, "controller_epoch"),
            isr=_broker_ids(path, "isr", body.get("isr")),
            leader_recovery_state=integer(path, {"leader_recovery_state": recovery}, "leader_recovery_state"),
        )


@dataclass(frozen=True, slots=True)
class TopicReading:
    """A topic's znodes as they were read.

    Attributes
    ----------
    assignment
        Its own znode; None where only states exist, left behind by a topic that is gone.
    states
        The state znodes by partition, None where one is missing; a partition that no assignment names is an orphan.
    offset
        Log offset that ZooKeeper mirrored when the oldest of these was read.
    """

    name: str
    assignment: TopicAssignment | None
    states: Mapping[int, PartitionState | None]
    offset: int


def topic_entities(topic: TopicReading) -> Iterator[Entity]:
    """Yield a topic and its partitions, orphans too."""
    name, assignment, states, offset = topic.name, topic.assignment, topic.states, topic.offset
    if assignment is not None:
        yield Entity(EntityKind.TOPIC, name, canonical_json({"topicId": assignment.topic_id}), offset)
    replicas = assignment.replicas if assignment else {}
    all_adding, all_removing = (assignment.adding, assignment.removing) if assignment else ({}, {})
    for partition in sorted(replicas.keys() | states.keys()):
        state, assigned = states.get(partition), replicas.get(partition)
        adding = all_adding.get(partition, ())
        removing = all_removing.get(partition, ())
        if state is not None and assigned is not None:
            value = partition_value(
                assigned,
                adding,
                removing,
                state.leader,
                state.leader_epoch,
                state.isr,
                state.leader_recovery_state,
            )
        else:
            value = canonical_json(
                {
                    "addingReplicas": sorted(adding),
                    "isr": sorted(state.isr) if state else None,
                    "leader": state.leader if state else None,
                    "leaderEpoch": state.leader_epoch if state else None,
                    "leaderRecoveryState": state.leader_recovery_state if state else None,
                    "removingReplicas": sorted(removing),
                    "replicas": assigned,
                }
            )
        yield Entity(EntityKind.PARTITION, partition_key(name, partition), value, offset)


def _broker_ids(path: str, field: str, value: Any) -> list[int]:
    if (
        not isinstance(value, list)
        or not set(map(type, value)) <= {int}
        or max(map(abs, value), default=0) > MAXIMUM_INT32
    ):
        raise UndecodableZnodeError(f"{path}: {field} is not a list of broker ids")
    return value


def _assignments(path: str, body: Mapping[str, Any], field: str, *, required: bool = False) -> dict[int, list[int]]:
    value = body.get(field)
    if value is None and not required:
        return {}
    if not isinstance(value, dict):
        raise UndecodableZnodeError(f"{path}: {field} is not an object of partitions")
    try:
        return {int(partition): _broker_ids(path, field, replicas) for partition, replicas in value.items()}
    except ValueError as error:
        raise UndecodableZnodeError(f"{path}: {field} names a partition that is no number") from error
