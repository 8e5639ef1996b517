"""Canonical entities of a ZooKeeper dump."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kraftbridge.metadata.entities import Entity, Secrets
from kraftbridge.metadata.errors import DumpFormatError, MetadataError, UndecodableZnodeError
from kraftbridge.metadata.zookeeper.entities import MIGRATION_PATH, MigrationState, Znode, znode_entities
from kraftbridge.metadata.zookeeper.topics import PartitionState, TopicAssignment, TopicReading, topic_entities

_TOPIC_PARTS = 4
_STATE_PARTS = 7


@dataclass(slots=True)
class DumpReading:
    """Takes a dump's znodes in, in any order, then yields their entities.

    Attributes
    ----------
    migration
        `/migration` as the dump has it.
    problems
        What cannot be understood, by path.
    """

    secrets: Secrets
    encoder_secret: str | None = None
    migration: MigrationState | None = None
    problems: dict[str, str] = field(default_factory=dict)
    znodes: int = 0
    _assignments: dict[str, TopicAssignment] = field(default_factory=dict)
    _states: dict[str, dict[int, PartitionState | None]] = field(default_factory=dict)
    _others: dict[str, bytes | None] = field(default_factory=dict)

    def take(self, znodes: Iterable[Znode]) -> None:
        """Take znodes in.

        Raises
        ------
        DumpFormatError
            The dump holds a path twice, or nothing below the chroot.
        """
        seen: set[str] = set()
        for znode in znodes:
            if znode.path in seen:
                raise DumpFormatError(f"the dump holds {znode.path} more than once")
            seen.add(znode.path)
            try:
                self._take(znode)
            except MetadataError as error:
                self.problems[znode.path] = str(error)
        self.znodes = len(seen)
        if not seen:
            raise DumpFormatError("the dump holds nothing below the chroot")

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
            self.migration = MigrationState.parse(znode.data)
        else:
            self._others[znode.path] = znode.data

    def topics(self) -> Iterator[TopicReading]:
        """Yield every topic's znodes."""
        offset = self.migration.offset if self.migration else -1
        for name, states in self._states.items():
            assignment = self._assignments.get(name)
            assigned: dict[int, PartitionState | None] = dict.fromkeys(assignment.replicas) if assignment else {}
            yield TopicReading(name, assignment, assigned | states, offset)

    def nodes(self) -> Mapping[str, bytes | None]:
        """Return the data of all znodes that are not below `/brokers/topics`, by path."""
        return self._others

    def entities(self) -> Iterator[Entity]:
        """Yield every entity."""
        offset = self.migration.offset if self.migration else -1
        for topic in self.topics():
            yield from topic_entities(topic)
        for path, data in self._others.items():
            try:
                yield from znode_entities(path, data, offset, self.secrets, self.encoder_secret)
            except MetadataError as error:
                self.problems[path] = str(error)
