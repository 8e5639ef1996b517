"""Reads Kafka's tree, live or from a dump, and yields its entities; lists it first, to find orphaned znodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kazoo.exceptions import NoNodeError

from kraftbridge.exceptions import DumpFormatError, MetadataError, UndecodableZnodeError
from kraftbridge.metadata.entities import Entity, Secrets
from kraftbridge.metadata.zookeeper.reader import (
    BATCH_READS,
    TOPIC_BATCH_READS,
    Data,
    Fenced,
    Operation,
    Read,
    Result,
    ZooKeeperReader,
)
from kraftbridge.metadata.zookeeper.znodes import (
    MIGRATION_PATH,
    NO_ASSIGNMENT,
    TOPICS_PATH,
    PartitionState,
    TopicAssignment,
    TopicReading,
    Znode,
    alternative_entity,
    migration_znode,
    mirrored_offset,
    topic_entities,
    znode_entities,
)
from kraftbridge.models.entities import ENTITY_KINDS, EntityKind, topic_of_partition_key
from kraftbridge.models.observation import MigrationZnode

TOPIC_CONFIGS_PATH: Final = "/config/topics"
_COPIED: Final = tuple(
    dict.fromkeys(
        pattern
        for facts in ENTITY_KINDS.values()
        if facts.kind not in {EntityKind.TOPIC, EntityKind.PARTITION, EntityKind.TOPIC_CONFIG}
        for pattern in facts.znodes
    )
)
"""Patterns of the znodes other than topics and their configs, which are read in slices."""


@dataclass(frozen=True, slots=True)
class TreePlan:
    """The znodes to read."""

    topics: Sequence[str]
    """Names below `/brokers/topics`."""
    topic_configs: Sequence[str]
    """Names below `/config/topics`; not always the same set as `topics`."""
    nodes: Sequence[str]
    """Paths of all other znodes that are copied."""
    offset: int
    """Log offset that ZooKeeper mirrored when the oldest folder was listed."""


@dataclass(slots=True)
class FenceRange:
    """The range of `/migration` over several batches."""

    first: int | None = None
    last: int | None = None
    epoch: int = -1
    controller_id: int = -1
    batches: int = 0

    @property
    def offset(self) -> int:
        """Log offset that ZooKeeper mirrored at the first read; -1 if it mirrored none, or nothing was read."""
        return -1 if self.first is None else self.first

    def add(self, fenced: Fenced) -> None:
        """Add one batch."""
        if self.first is None or self.last is None:
            self.first = fenced.offset
            self.last = fenced.offset
        self.first = min(self.first, fenced.offset)
        self.last = max(self.last, fenced.offset)
        self.batches += 1
        if fenced.migration is not None:
            self.epoch = max(self.epoch, fenced.migration.kraft_metadata_epoch)
            self.controller_id = fenced.migration.kraft_controller_id


@dataclass(slots=True)
class TreeReading:
    """Reads a plan's znodes and yields their entities."""

    reader: ZooKeeperReader
    secrets: Secrets
    encoder_secret: str | None = None
    observe_topic: Callable[[TopicReading], None] | None = None
    observe_znode: Callable[[str, bytes | None], None] | None = None
    fence: FenceRange = field(default_factory=FenceRange)
    problems: dict[str, str] = field(default_factory=dict)
    """Znodes that cannot be decoded: the error by path."""
    unread: dict[str, str] = field(default_factory=dict)
    """Znodes that cannot be read or listed: the error by path. Everything below them is unknown too."""
    alternatives: dict[tuple[EntityKind, str], str] = field(default_factory=dict)
    """Other correct forms of entities (`alternative_entity`)."""

    def plan(self) -> TreePlan:
        """List all folders and return their content."""
        folders = self._children([TOPICS_PATH, TOPIC_CONFIGS_PATH])
        nodes: list[str] = []
        open_patterns = [("", pattern.split("/")[1:]) for pattern in _COPIED]
        while open_patterns:
            parents: list[tuple[str, list[str]]] = []
            for path, rest in open_patterns:
                fixed = [*rest, "*"].index("*")
                parent = "/".join([path, *rest[:fixed]])
                if fixed == len(rest):
                    nodes.append(parent)
                else:
                    parents.append((parent, rest[fixed + 1 :]))
            children = self._children(list(dict.fromkeys(parent for parent, _ in parents)))
            open_patterns = [(f"{parent}/{child}", rest) for parent, rest in parents for child in children[parent]]
        topics = sorted(folders[TOPICS_PATH])
        return TreePlan(topics, sorted(folders[TOPIC_CONFIGS_PATH]), nodes, self.fence.offset)

    def _children(self, paths: Sequence[str]) -> Mapping[str, list[str]]:
        children: dict[str, list[str]] = {}
        for fenced in self._batches([Read(Operation.CHILDREN, path) for path in paths], BATCH_READS):
            for read, result in fenced.results:
                if isinstance(result, list):
                    children[read.path] = result
                else:
                    children[read.path] = []
                    self._note_unread(read.path, result, "listed")
        return children

    def _note_unread(self, path: str, result: Result, verb: str = "read") -> None:
        """Note why a znode cannot be read. One that does not exist is not unread."""
        if not isinstance(result, NoNodeError):
            self.unread[path] = f"{path} cannot be {verb}: {result!r}"

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
            Only these partitions of each topic; by default all partitions in its assignment or its folder.
        """
        reads = []
        for name in names:
            reads.append(Read(Operation.DATA, f"{TOPICS_PATH}/{name}"))
            if partitions is None:
                reads.append(Read(Operation.CHILDREN, f"{TOPICS_PATH}/{name}/partitions"))
        folders: dict[str, _TopicFolder] = {}
        for fenced in self._batches(reads, TOPIC_BATCH_READS):
            for read, result in fenced.results:
                folder = folders.setdefault(read.path.split("/")[3], _TopicFolder(fenced.offset))
                self._take_topic(read, result, fenced.offset, folder)
        if partitions is not None:
            for name, folder in folders.items():
                folder.partitions = set(partitions[name])
        for topic in self._partitions(folders):
            if self.observe_topic is not None:
                self.observe_topic(topic)
            yield from topic_entities(topic)

    def _take_topic(self, read: Read, result: Result, offset: int, folder: _TopicFolder) -> None:
        folder.offset = min(folder.offset, offset)
        try:
            if isinstance(result, Data):
                folder.assignment = TopicAssignment.parse(read.path, result.data)
                folder.partitions |= folder.assignment.replicas.keys()
            elif isinstance(result, list):
                folder.partitions |= {_partition_number(read.path, child) for child in result}
            else:
                self._note_unread(read.path, result)
        except MetadataError as error:
            self.problems[read.path] = str(error)

    def _partitions(self, folders: Mapping[str, _TopicFolder]) -> Iterator[TopicReading]:
        """Yield topics in the order of their names, each when its last state has been read."""
        reads = [
            Read(Operation.DATA, f"{TOPICS_PATH}/{name}/partitions/{number}/state")
            for name, folder in folders.items()
            for number in sorted(folder.partitions)
        ]
        batches = self._batches(reads, BATCH_READS)
        results = ((read, result, fenced.offset) for fenced in batches for read, result in fenced.results)
        for name, folder in folders.items():
            assignment = folder.assignment or NO_ASSIGNMENT
            oldest = folder.offset
            states: dict[int, PartitionState | None] = {}
            for number in sorted(folder.partitions):
                read, result, offset = next(results)
                oldest = min(oldest, offset)
                state = self._state(read.path, result)
                if state is not None or number in assignment.replicas:
                    states[number] = state
            yield TopicReading(name, folder.assignment, states, oldest)

    def _state(self, path: str, result: Result) -> PartitionState | None:
        try:
            if isinstance(result, Data):
                return PartitionState.parse(path, result.data)
            self._note_unread(path, result)
        except MetadataError as error:
            self.problems[path] = str(error)
        return None

    def nodes(self, paths: Sequence[str]) -> Iterator[Entity]:
        """Yield the entities of znodes that are not topics."""
        for fenced in self._batches([Read(Operation.DATA, path) for path in paths], BATCH_READS):
            for read, result in fenced.results:
                if not isinstance(result, Data):
                    self._note_unread(read.path, result)
                    continue
                if self.observe_znode is not None:
                    self.observe_znode(read.path, result.data)
                yield from _entities(self, read.path, result.data, fenced.offset)

    def entities(self, keys: Sequence[tuple[EntityKind, str]]) -> Iterator[Entity]:
        """Yield the current entities of the znodes of these entities. A znode can contain other entities too."""
        partitions: dict[str, list[int]] = {}
        paths: dict[str, None] = {}
        for kind, key in keys:
            if kind is EntityKind.TOPIC:
                partitions.setdefault(key, [])
            elif kind is EntityKind.PARTITION:
                partitions.setdefault(topic_of_partition_key(key), []).append(int(key.rpartition("-")[2]))
            else:
                paths |= dict.fromkeys(ENTITY_KINDS[kind].paths(key))
        yield from self.topics(list(partitions), partitions)
        yield from self.nodes(list(paths))


@dataclass(slots=True)
class _TopicFolder:
    """What is read of a topic before its states."""

    offset: int
    """Log offset that ZooKeeper mirrored when the oldest part was read."""
    assignment: TopicAssignment | None = None
    partitions: set[int] = field(default_factory=set)


def _entities(reading: TreeReading | DumpReading, path: str, data: bytes | None, offset: int) -> Iterator[Entity]:
    """Yield a znode's entities, and note in the reading their other correct form, or the problem."""
    try:
        yield from znode_entities(path, data, offset, reading.secrets, reading.encoder_secret)
        alternative = alternative_entity(path, data, offset)
        if alternative is not None:
            reading.alternatives[alternative.kind, alternative.key] = alternative.value
    except MetadataError as error:
        reading.problems[path] = str(error)


def _partition_number(path: str, child: str) -> int:
    if not child.isdecimal():
        raise UndecodableZnodeError(f"{path} has the child {child!r}, which is no partition")
    return int(child)


_FOLDERS = frozenset({"/brokers/topics", *(f"/config/{kind}" for kind in ("topics", "clients", "users", "brokers"))})
_TOPIC_PREFIX = f"{TOPICS_PATH}/"
_TOPIC_PARTS = 4
_STATE_PARTS = 7


@dataclass(slots=True)
class DumpReading:
    """Reads a dump's znodes in any order, then yields their entities."""

    secrets: Secrets
    encoder_secret: str | None = None
    migration: MigrationZnode | None = None
    """`/migration` in the dump."""
    problems: dict[str, str] = field(default_factory=dict)
    """Znodes that cannot be decoded: the error by path."""
    unread: dict[str, str] = field(default_factory=dict)
    """Znodes that could not be read or listed when the dump was written: the error by path."""
    alternatives: dict[tuple[EntityKind, str], str] = field(default_factory=dict)
    znodes: int = 0
    _assignments: dict[str, TopicAssignment] = field(default_factory=dict)
    _states: dict[str, dict[int, PartitionState | None]] = field(default_factory=dict)
    _others: dict[str, bytes | None] = field(default_factory=dict)
    _counted: dict[str, int] = field(default_factory=dict)
    """Number of children that the dump states, by path, without a topic's own folders: its assignment names those."""
    _listed: Counter[str] = field(default_factory=Counter)
    """Number of children that the dump contains, by the same paths."""

    def take(self, znodes: Iterable[Znode]) -> None:
        """Add all znodes of a dump. A znode with fewer children in the dump than it states is `unread`.

        Raises
        ------
        DumpFormatError
            The dump contains a path twice, or nothing below the chroot.
        """
        paths: set[str] = set()
        for znode in znodes:
            if znode.path in paths:
                raise DumpFormatError(f"the dump holds {znode.path} more than once")
            paths.add(znode.path)
            self._count(znode)
            if znode.problem is not None:
                self.unread[znode.path] = f"{znode.path} {znode.problem}"
                continue
            try:
                self._take(znode)
            except MetadataError as error:
                self.problems[znode.path] = str(error)
        self.znodes = len(paths)
        if not paths:
            raise DumpFormatError("the dump holds nothing below the chroot")
        for path, children in self._counted.items():
            if self._listed[path] < children:
                self.unread.setdefault(
                    path,
                    f"{path} has {children} children, and the dump contains {self._listed[path]}: "
                    "it is incomplete; make it again",
                )

    def _count(self, znode: Znode) -> None:
        path = znode.path
        if not path.startswith(_TOPIC_PREFIX):
            self._counted[path] = znode.children
        parent = path.rpartition("/")[0] or "/"
        if path != "/" and not parent.startswith(_TOPIC_PREFIX):
            self._listed[parent] += 1

    def _take(self, znode: Znode) -> None:
        parts = znode.path.split("/")
        if parts[1:3] == ["brokers", "topics"]:
            if len(parts) == _TOPIC_PARTS:
                self._states.setdefault(parts[3], {})
                self._assignments[parts[3]] = TopicAssignment.parse(znode.path, znode.data)
            elif len(parts) == _STATE_PARTS and parts[6] == "state":
                if not parts[5].isdecimal():
                    raise UndecodableZnodeError(f"{znode.path} is the state of no partition")
                self._states.setdefault(parts[3], {})[int(parts[5])] = PartitionState.parse(znode.path, znode.data)
        elif znode.path == MIGRATION_PATH:
            self.migration = migration_znode(znode.data)
        else:
            self._others[znode.path] = znode.data

    @property
    def is_whole(self) -> bool:
        """Whether each folder of entities was read with all its children.

        This distinguishes a cluster without entities from a tree that was not read.
        Every cluster has the folders in `_FOLDERS`, because each broker creates them at its start
        (``KafkaZkClient.createTopLevelPaths``, ``ZkData.PersistentZkPaths``).
        """
        return self._counted.keys() >= _FOLDERS and not self.unread and not self.problems

    def topics(self) -> Iterator[TopicReading]:
        """Yield every topic's znodes."""
        offset = mirrored_offset(self.migration)
        for name, states in self._states.items():
            assignment = self._assignments.get(name)
            assigned: dict[int, PartitionState | None] = dict.fromkeys((assignment or NO_ASSIGNMENT).replicas)
            yield TopicReading(name, assignment, assigned | states, offset)

    def nodes(self) -> Mapping[str, bytes | None]:
        """Return the data of all znodes that are not below `/brokers/topics`, by path."""
        return self._others

    def entities(self) -> Iterator[Entity]:
        """Yield every entity."""
        for topic in self.topics():
            yield from topic_entities(topic)
        for path, data in self._others.items():
            yield from _entities(self, path, data, mirrored_offset(self.migration))
