"""Where the replicas are, as several brokers serve it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kraftbridge.exceptions import ObservationError
from kraftbridge.kafka.metadata import Metadata, Partitions
from kraftbridge.kafka.wire import error_name
from kraftbridge.models.assignments import Assignments, Replicas

_Nodes = frozenset[int]


@dataclass(slots=True)
class Seen:
    """What the brokers that were asked so far serve."""

    source: str
    answers: int = 0
    topics: dict[str, list[Partitions]] = field(default_factory=dict)
    """Different answers about each topic."""
    racks: dict[int, str] = field(default_factory=dict)
    _known: dict[_Nodes, _Nodes] = field(default_factory=dict)
    """One object for each set of brokers: there are far fewer of them than partitions."""

    def add(self, metadata: Metadata) -> None:
        """Take what one more broker serves. Nearly all brokers answer the same, and that is decoded once in the end."""
        self.racks |= {broker.node_id: broker.rack for broker in metadata.brokers if broker.rack}
        for topic in metadata.topics:
            if topic.error_code:
                raise ObservationError(self.source, f"topic {topic.name}: {error_name(topic.error_code)}")
            answers = self.topics.setdefault(topic.name, [])
            if topic.partitions not in answers:
                answers.append(topic.partitions)
        self.answers += 1

    def assignments(self, min_isr: Mapping[str, int], accepted: frozenset[str]) -> Assignments:
        """Return the partitions; those with the same replicas and the same demand are one entry.

        Of two answers about a partition what both say is in sync is in sync.

        Parameters
        ----------
        min_isr
            ``min.insync.replicas`` by topic.
        accepted
            Topics that the user lets become unavailable.
        """
        found: dict[tuple[_Nodes, _Nodes, int | None, bool], str] = {}
        leaders: set[int] = set()
        for topic, answers in self.topics.items():
            demand = min_isr.get(topic), topic in accepted
            for number, placed in self._placed(answers, leaders).items():
                key = (*placed, *demand)
                if key not in found:
                    found[key] = f"{topic}-{number}"
        return Assignments(
            replicas=tuple(Replicas(example, *key) for key, example in found.items()),
            zones=self.racks,
            leaders=frozenset(leaders),
        )

    def _placed(self, answers: Sequence[Partitions], leaders: set[int]) -> dict[int, tuple[_Nodes, _Nodes]]:
        """Return the replicas and in-sync replicas of each partition of a topic by its number; note the leaders."""
        placed: dict[int, tuple[_Nodes, _Nodes]] = {}
        for partitions in answers:
            for partition in partitions:
                number = partition.partition_index
                replicas = in_sync = self._one(partition.replica_nodes)
                if partition.isr_nodes != partition.replica_nodes:
                    in_sync = self._one(partition.isr_nodes)
                if number in placed:
                    others, also = placed[number]
                    replicas, in_sync = self._one(replicas | others), self._one(in_sync & also)
                placed[number] = replicas, in_sync
                leaders.add(partition.leader_id)
        return placed

    def _one(self, nodes: Iterable[int]) -> _Nodes:
        found = frozenset(nodes)
        return self._known.setdefault(found, found)
