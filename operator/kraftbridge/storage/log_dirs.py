"""What a broker has in its log directories (DescribeLogDirs), and what of it no topic assigns to the broker.

Notes
-----
DescribeLogDirs without topics lists every log that the broker holds (``KafkaApis.handleDescribeLogDirsRequest``), also
one that lies in a directory without being anybody's replica, and every configured directory, also a failed one
(``ReplicaManager.describeLogDirs``). It does not tell topic ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kafka.protocol.admin.cluster import DescribeLogDirsRequest

from kraftbridge.kafka.metadata import Metadata
from kraftbridge.kafka.wire import Connection, WireError, error_name
from kraftbridge.models.survey import LogDir
from kraftbridge.outside import bounds

_OWN_TOPICS: Final = frozenset({"__cluster_metadata"})
"""A broker in migration mode has the metadata log in a directory, and Metadata does not list it."""
_NEWEST: Final = 4


@dataclass(slots=True)
class Listing:
    """One directory as its broker lists it."""

    path: str
    error: str
    replicas: dict[str, set[int]] = field(default_factory=dict)
    """Partitions by topic."""
    future: list[str] = field(default_factory=list)
    """``topic-partition`` of replicas that are moved into the directory."""

    def forget(self, topic: str, partition: int) -> None:
        """Leave out a replica."""
        partitions = self.replicas.get(topic)
        if partitions is None:
            return
        partitions.discard(partition)
        if not partitions:
            del self.replicas[topic]

    def also_in(self, later: Listing) -> Listing:
        """Return the directory with only those replicas that a later listing has, too."""
        replicas = {
            topic: partitions & later.replicas[topic]
            for topic, partitions in self.replicas.items()
            if topic in later.replicas
        }
        return Listing(later.path, later.error, {topic: kept for topic, kept in replicas.items() if kept}, later.future)

    def log_dir(self) -> LogDir:
        """Return the directory, once what is assigned to the broker is left out."""
        leftovers = (f"{topic}-{partition}" for topic, found in self.replicas.items() for partition in sorted(found))
        return LogDir(self.path, self.error, tuple(sorted(leftovers)), tuple(sorted(self.future)))


Listings = Mapping[int, Iterable[Listing]]
"""Directories by broker."""


def listed(connection: Connection, timeout_seconds: float) -> list[Listing]:
    """Return the directories of a broker with everything that is in them.

    Raises
    ------
    WireError
        No answer in time, or the principal may not describe the cluster.
    """
    answer = connection.call(
        DescribeLogDirsRequest, timeout_seconds, max_version=_NEWEST, most=bounds.KAFKA_LOG_DIRS_BYTES, topics=None
    )
    if code := getattr(answer, "error_code", 0):
        raise WireError(f"DescribeLogDirs answered {error_name(code)}")
    if not answer.results:
        raise WireError("it lists no log directory: the principal may not DESCRIBE the cluster")
    return [_listing(result) for result in answer.results]


def _listing(result: object) -> Listing:
    code = int(result.error_code)  # type: ignore[attr-defined]
    listing = Listing(str(result.log_dir), error_name(code) if code else "")  # type: ignore[attr-defined]
    for topic in result.topics:  # type: ignore[attr-defined]
        name = str(topic.name)
        if name in _OWN_TOPICS:
            continue
        for partition in topic.partitions:
            index = int(partition.partition_index)
            if partition.is_future_key:
                listing.future.append(f"{name}-{index}")
            else:
                listing.replicas.setdefault(name, set()).add(index)
    return listing


def forget_assigned(metadata: Metadata, listings: Listings) -> None:
    """Leave out of listings what Metadata assigns to their brokers."""
    for topic in metadata.topics:
        for partition in topic.partitions:
            for broker in partition.replica_nodes:
                for listing in listings.get(broker, ()):
                    listing.forget(topic.name, partition.partition_index)
