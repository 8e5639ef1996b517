"""Which znodes of Kafka's tree are read, and how: folders are listed first, so that orphans are found too."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kazoo.exceptions import NoNodeError

from kraftbridge.metadata.entities import (
    Entity,
    Secrets,
    sanitized,
    topic_of_partition_key,
)
from kraftbridge.metadata.errors import MetadataError, UndecodableZnodeError
from kraftbridge.metadata.zookeeper.entities import znode_entities
from kraftbridge.metadata.zookeeper.multi_read import Data, Operation, Read, Result
from kraftbridge.metadata.zookeeper.reader import BATCH_READS, TOPIC_BATCH_READS, Fenced, ZooKeeperReader
from kraftbridge.metadata.zookeeper.topics import (
    TOPICS_PATH,
    PartitionState,
    TopicAssignment,
    TopicReading,
    topic_entities,
)
from kraftbridge.models.report import EntityKind

TOPIC_CONFIGS_PATH: Final = "/config/topics"
_FOLDERS: Final = (
    "/brokers/ids",
    "/config/brokers",
    "/config/clients",
    "/config/ips",
    "/config/users",
    "/delegation_token/tokens",
    "/kafka-acl",
    "/kafka-acl-extended",
)
_SINGLE_NODES: Final = ("/latest_producer_id_block",)


@dataclass(frozen=True, slots=True)
class TreePlan:
    """What there is to read.

    Attributes
    ----------
    topics
        Names below `/brokers/topics`.
    topic_configs
        Names below `/config/topics`; not the same set where something was left behind.
    nodes
        Paths of all other znodes that are copied.
    offset
        Log offset that ZooKeeper mirrored when the oldest folder was listed.
    """

    topics: Sequence[str]
    topic_configs: Sequence[str]
    nodes: Sequence[str]
    offset: int


@dataclass(slots=True)
class FenceRange:
    """What `/migration` said over several batches."""

    first: int | None = None
    last: int | None = None
    epoch: int = -1
    controller_id: int = -1
    batches: int = 0

    def add(self, fenced: Fenced) -> None:
        """Take one more batch into account."""
        self.first = fenced.offset if self.first is None else min(self.first, fenced.offset)
        self.last = fenced.offset if self.last is None else max(self.last, fenced.offset)
        self.batches += 1
        if fenced.migration is not None:
            self.epoch = max(self.epoch, fenced.migration.epoch)
            self.controller_id = fenced.migration.controller_id


@dataclass(slots=True)
class TreeReading:
    """Reads a plan's znodes and yields their entities; what cannot be understood is collected in `problems`."""

    reader: ZooKeeperReader
    secrets: Secrets
    encoder_secret: str | None = None
    observe_topic: Callable[[TopicReading], None] | None = None
    observe_znode: Callable[[str, bytes | None], None] | None = None
    fence: FenceRange = field(default_factory=FenceRange)
    problems: dict[str, str] = field(default_factory=dict)

    def plan(self) -> TreePlan:
        """List all folders and return what is in them."""
        first = self._children([TOPICS_PATH, TOPIC_CONFIGS_PATH, *_FOLDERS])
        users = [f"/config/users/{user}/clients" for user in first["/config/users"]]
        literal = [f"/kafka-acl/{kind}" for kind in first["/kafka-acl"]]
        patterns = [f"/kafka-acl-extended/{pattern}" for pattern in first["/kafka-acl-extended"]]
        second = self._children([*users, *literal, *patterns])
        extended = [f"{pattern}/{kind}" for pattern in patterns for kind in second[pattern]]
        third = self._children(extended)
        nodes = list(_SINGLE_NODES)
        for folder in _FOLDERS[:6]:
            nodes += (f"{folder}/{child}" for child in first[folder])
        for folder in (*users, *literal):
            nodes += (f"{folder}/{child}" for child in second[folder])
        for folder in extended:
            nodes += (f"{folder}/{child}" for child in third[folder])
        offset = -1 if self.fence.first is None else self.fence.first
        return TreePlan(sorted(first[TOPICS_PATH]), sorted(first[TOPIC_CONFIGS_PATH]), nodes, offset)

    def _children(self, paths: Sequence[str]) -> Mapping[str, list[str]]:
        children: dict[str, list[str]] = {}
        for fenced in self._batches([Read(Operation.CHILDREN, path) for path in paths], BATCH_READS):
            for read, result in fenced.results:
                if not isinstance(result, list) and not isinstance(result, NoNodeError):
                    self.problems[read.path] = f"{read.path} cannot be listed: {result!r}"
                children[read.path] = result if isinstance(result, list) else []
        return children

    def _batches(self, reads: Sequence[Read], size: int) -> Iterator[Fenced]:
        for fenced in self.reader.read(reads, size):
            self.fence.add(fenced)
            yield fenced
        if self.reader.migration_problem:
            self.problems["/migration"] = self.reader.migration_problem

    def topics(self, names: Sequence[str], partitions: Mapping[str, Sequence[int]] | None = None) -> Iterator[Entity]:
        """Yield topics and their partitions.

        Parameters
        ----------
        names
            Topics to read.
        partitions
            Only these partitions of each topic; all that its assignment or its folder names where it is left out.
        """
        reads = []
        for name in names:
            reads.append(Read(Operation.DATA, f"{TOPICS_PATH}/{name}"))
            if partitions is None:
                reads.append(Read(Operation.CHILDREN, f"{TOPICS_PATH}/{name}/partitions"))
        found: dict[str, tuple[TopicAssignment | None, set[int], int]] = {}
        for fenced in self._batches(reads, TOPIC_BATCH_READS):
            for read, result in fenced.results:
                self._take_topic(read, result, fenced.offset, found)
        if partitions is not None:
            found = {name: (topic[0], set(partitions[name]), topic[2]) for name, topic in found.items()}
        for topic in self._partitions(found):
            if self.observe_topic is not None:
                self.observe_topic(topic)
            yield from topic_entities(topic)

    def _take_topic(
        self, read: Read, result: Result, offset: int, found: dict[str, tuple[TopicAssignment | None, set[int], int]]
    ) -> None:
        name = read.path.split("/")[3]
        assignment, numbers, oldest = found.get(name, (None, set(), offset))
        try:
            if isinstance(result, Data):
                assignment = TopicAssignment.parse(read.path, result.data)
                numbers |= assignment.replicas.keys()
            elif isinstance(result, list):
                numbers |= {_partition_number(read.path, child) for child in result}
            elif not isinstance(result, NoNodeError):
                self.problems[read.path] = f"{read.path} cannot be read: {result!r}"
        except MetadataError as error:
            self.problems[read.path] = str(error)
        found[name] = (assignment, numbers, min(oldest, offset))

    def _partitions(self, found: Mapping[str, tuple[TopicAssignment | None, set[int], int]]) -> Iterator[TopicReading]:
        """Yield topics in the order of their names, each once its last state has been read."""
        names = list(found)
        reads = [
            Read(Operation.DATA, f"{TOPICS_PATH}/{name}/partitions/{number}/state")
            for name in names
            for number in sorted(found[name][1])
        ]
        batches = self._batches(reads, BATCH_READS)
        results = ((read, result, fenced.offset) for fenced in batches for read, result in fenced.results)
        for name in names:
            assignment, numbers, oldest = found[name]
            states: dict[int, PartitionState | None] = {}
            for number in sorted(numbers):
                read, result, offset = next(results)
                oldest = min(oldest, offset)
                state = self._state(read.path, result)
                if state is not None or (assignment and number in assignment.replicas):
                    states[number] = state
            yield TopicReading(name, assignment, states, oldest)

    def _state(self, path: str, result: Result) -> PartitionState | None:
        try:
            if isinstance(result, Data):
                return PartitionState.parse(path, result.data)
            if not isinstance(result, NoNodeError):
                self.problems[path] = f"{path} cannot be read: {result!r}"
        except MetadataError as error:
            self.problems[path] = str(error)
        return None

    def nodes(self, paths: Sequence[str]) -> Iterator[Entity]:
        """Yield the entities in znodes that are not topics."""
        for fenced in self._batches([Read(Operation.DATA, path) for path in paths], BATCH_READS):
            for read, result in fenced.results:
                try:
                    if isinstance(result, Data):
                        if self.observe_znode is not None:
                            self.observe_znode(read.path, result.data)
                        yield from znode_entities(
                            read.path, result.data, fenced.offset, self.secrets, self.encoder_secret
                        )
                    elif not isinstance(result, NoNodeError):
                        self.problems[read.path] = f"{read.path} cannot be read: {result!r}"
                except MetadataError as error:
                    self.problems[read.path] = str(error)

    def entities(self, keys: Sequence[tuple[EntityKind, str]]) -> Iterator[Entity]:
        """Yield what these entities' znodes hold now; a znode may hold others too."""
        partitions: dict[str, list[int]] = {}
        paths: dict[str, None] = {}
        for kind, key in keys:
            if kind is EntityKind.TOPIC:
                partitions.setdefault(key, [])
            elif kind is EntityKind.PARTITION:
                partitions.setdefault(topic_of_partition_key(key), []).append(int(key.rpartition("-")[2]))
            else:
                paths[znode_path(kind, key)] = None
        yield from self.topics(list(partitions), partitions)
        yield from self.nodes(list(paths))


def znode_path(kind: EntityKind, key: str) -> str:
    """Return the path of the znode that holds an entity (not for topics and partitions)."""
    match kind:
        case EntityKind.TOPIC_CONFIG:
            return f"{TOPIC_CONFIGS_PATH}/{key}"
        case EntityKind.BROKER_CONFIG:
            return f"/config/brokers/{key}"
        case EntityKind.CLIENT_QUOTA:
            return f"/config/{key}"
        case EntityKind.SCRAM_CREDENTIAL:
            return f"/config/users/{sanitized(key.rpartition('/')[0])}"
        case EntityKind.ACL:
            resource_type, pattern, name, *_ = json.loads(key)
            if pattern == "LITERAL":
                return f"/kafka-acl/{resource_type}/{name}"
            return f"/kafka-acl-extended/{pattern.lower()}/{resource_type}/{name}"
        case EntityKind.DELEGATION_TOKEN:
            return f"/delegation_token/tokens/{key}"
        case EntityKind.PRODUCER_IDS:
            return "/latest_producer_id_block"
        case EntityKind.BROKER_REGISTRATION:
            return f"/brokers/ids/{key}"
        case _:
            raise ValueError(f"ZooKeeper holds no {kind}")


def _partition_number(path: str, child: str) -> int:
    if not child.isdecimal():
        raise UndecodableZnodeError(f"{path} has the child {child!r}, which is no partition")
    return int(child)
