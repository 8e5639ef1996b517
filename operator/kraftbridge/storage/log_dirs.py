"""What a broker has in its log directories (DescribeLogDirs), and what of it no topic assigns to the broker.

Notes
-----
DescribeLogDirs without topics lists every log that the broker holds (``KafkaApis.handleDescribeLogDirsRequest``), also
one that lies in a directory without being anybody's replica, and every configured directory, also a failed one
(``ReplicaManager.describeLogDirs``). It does not tell topic ids.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

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
    replicas: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Partitions by topic. A large cluster has a few in each of thousands of topics, and a tuple of few is small."""
    future: list[str] = field(default_factory=list)
    """``topic-partition`` of replicas that are moved into the directory."""

    def forget(self, topic: str, partitions: set[int]) -> None:
        """Leave out replicas of a topic."""
        found = self.replicas.pop(topic, ())
        if not partitions.issuperset(found):
            self.replicas[topic] = tuple(number for number in found if number not in partitions)

    def also_in(self, later: Listing) -> Listing:
        """Return the directory with only those replicas that a later listing has, too."""
        replicas = {}
        for topic, found in self.replicas.items():
            kept = tuple(number for number in found if number in later.replicas.get(topic, ()))
            if kept:
                replicas[topic] = kept
        return Listing(later.path, later.error, replicas, later.future)

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


def _listing(result: Any) -> Listing:
    code = int(result.error_code)
    listing = Listing(str(result.log_dir), error_name(code) if code else "")
    for topic in result.topics or ():
        # One name for the lists of all brokers.
        name = sys.intern(str(topic.name))
        if name in _OWN_TOPICS:
            continue
        logs = topic.partitions or ()
        held = tuple(log.partition_index for log in logs if not log.is_future_key)
        if held:
            listing.replicas[name] = held
        if len(held) < len(logs):
            listing.future += [f"{name}-{log.partition_index}" for log in logs if log.is_future_key]
    return listing


def forget_assigned(metadata: Metadata, listings: Listings) -> None:
    """Leave out of listings what Metadata assigns to their brokers."""
    for topic in metadata.topics:
        assigned: defaultdict[int, set[int]] = defaultdict(set)
        for partition in topic.partitions:
            for broker in partition.replica_nodes:
                assigned[broker].add(partition.partition_index)
        for broker, partitions in assigned.items():
            for listing in listings.get(broker, ()):
                listing.forget(topic.name, partitions)
