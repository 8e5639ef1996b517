"""Where the replicas are, as several brokers serve it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kraftbridge.exceptions import ObservationError
from kraftbridge.kafka.metadata import Metadata
from kraftbridge.kafka.wire import error_name
from kraftbridge.models.assignments import Assignments, Replicas


@dataclass(slots=True)
class Seen:
    """What the brokers that were asked so far serve."""

    source: str
    answers: int = 0
    partitions: dict[tuple[str, int], tuple[frozenset[int], frozenset[int]]] = field(default_factory=dict)
    """Replicas and in-sync replicas."""
    leaders: set[int] = field(default_factory=set)
    racks: dict[int, str] = field(default_factory=dict)
    _known: dict[frozenset[int], frozenset[int]] = field(default_factory=dict)
    """One object for each set of brokers: there are far fewer of them than partitions."""

    def add(self, metadata: Metadata) -> None:
        """Take what one more broker serves: of two answers about a partition what both say is in sync is in sync."""
        self.racks |= {broker.node_id: broker.rack for broker in metadata.brokers if broker.rack}
        for topic in metadata.topics:
            if topic.error_code:
                raise ObservationError(self.source, f"topic {topic.name}: {error_name(topic.error_code)}")
            for partition in topic.partitions:
                key = (topic.name, partition.partition_index)
                replicas = self._one(partition.replica_nodes)
                in_sync = self._one(partition.isr_nodes)
                if key in self.partitions:
                    others, also = self.partitions[key]
                    replicas, in_sync = self._one(replicas | others), self._one(in_sync & also)
                self.partitions[key] = replicas, in_sync
                self.leaders.add(partition.leader_id)
        self.answers += 1

    def _one(self, nodes: Iterable[int]) -> frozenset[int]:
        found = frozenset(nodes)
        return self._known.setdefault(found, found)

    def assignments(self, min_isr: Mapping[str, int], accepted: frozenset[str]) -> Assignments:
        """Return the partitions; those with the same replicas and the same demand are one entry.

        Parameters
        ----------
        min_isr
            ``min.insync.replicas`` by topic.
        accepted
            Topics that the user lets become unavailable.
        """
        found: dict[tuple[frozenset[int], frozenset[int], int | None, bool], str] = {}
        for (topic, number), (replicas, in_sync) in self.partitions.items():
            key = (replicas, in_sync, min_isr.get(topic), topic in accepted)
            found.setdefault(key, f"{topic}-{number}")
        return Assignments(
            replicas=tuple(Replicas(example, *key) for key, example in found.items()),
            zones=self.racks,
            leaders=frozenset(self.leaders),
        )
