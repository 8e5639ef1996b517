"""Brokers of one cluster on loopback sockets, each on a port of its own, in a process of their own.

What is the same for all of them is encoded once: Metadata of all partitions, and of none.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import struct
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from tests.support.wire_servers import (
    ALL_OPERATIONS,
    CLUSTER,
    CONFIGS,
    FETCH,
    LOG_DIRS,
    METADATA,
    REASSIGNMENTS,
    KafkaNode,
    Reader,
    accept,
    answered,
    compact,
    described_cluster,
    integers,
    metadata_of,
    topic_configs,
    topic_names,
    topic_of,
    uv,
)

from benchmarks import proc
from kraftbridge.kafka.wire import NOT_CONTROLLER, UNKNOWN_TOPIC
from kraftbridge.models.broker_settings import RULES

FILE: Final = "hundred.json"
"""Ports of the brokers by id, and that of the counters, written when all of them listen."""
ZONES: Final = ("a", "b", "c")
CANARY: Final = "canary"
"""A topic that every broker serves beside the others, where it is asked for by its name."""
NEWEST_METADATA: Final = 10
_SEED: Final = 33
_HOST: Final = "127.0.0.1"
_STATIC_SETTINGS: Final = 30
"""How many of a broker's settings its file states. The others have Kafka's defaults."""
_BYTES_OF_A_REPLICA: Final = 1 << 30
_STATED: Final[Mapping[str, str]] = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "inter.broker.protocol.version": "3.9",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT",
    "listeners": f"PLAINTEXT://{_HOST}:9092",
}


@dataclass(frozen=True)
class Size:
    """Size of the cluster, and the time that a broker takes for an answer, with the way to it and back."""

    brokers: int
    partitions: int
    partitions_of_a_topic: int
    round_trip_seconds: float = 0.0

    @property
    def topics(self) -> list[str]:
        """Names of the topics."""
        return topic_names(-(-self.partitions // self.partitions_of_a_topic))

    def partitions_by_topic(self) -> Iterator[tuple[str, int]]:
        """Yield each topic with its number of partitions; the last one has the rest."""
        left = self.partitions
        for name in self.topics:
            yield name, min(left, self.partitions_of_a_topic)
            left -= self.partitions_of_a_topic


class Brokers:
    """All brokers. A partition has a replica in each zone, as Kafka assigns them with ``broker.rack`` (KIP-36)."""

    def __init__(self, size: Size) -> None:
        self._topics: list[bytes] = []
        self._held: list[dict[str, list[int]]] = [{} for _ in range(size.brokers)]
        """Partitions of each broker by topic."""
        self._fill(size)
        answers: dict[int, Callable[[int, bytes], bytes]] = {
            METADATA: self._metadata,
            CONFIGS: _configs,
            LOG_DIRS: self._log_dirs,
            REASSIGNMENTS: self._reassignments,
            CLUSTER: lambda *_: described_cluster(),
            FETCH: lambda *_: _fetched(),
        }
        self._directories = [_directory(held) for held in self._held]
        self._held.clear()

        def sender(broker: int) -> Callable[[socket.socket, bytes], None]:
            def send(connection: socket.socket, request: bytes) -> None:
                (key,) = struct.unpack_from(">h", request)
                answered(connection, request, answers[key](broker, request))

            return send

        delay = size.round_trip_seconds
        self.nodes = [
            KafkaNode(sender(broker), metadata_version=NEWEST_METADATA, delay_seconds=delay)
            for broker in range(size.brokers)
        ]
        self.controller = size.brokers // 2
        """A broker in the middle: who looks for it asks half of them."""
        listed = [_listed(broker, node.port) for broker, node in enumerate(self.nodes)]
        count = len(self._topics)
        self._all = metadata_of(listed, b"".join(self._topics), count, self.controller)
        self._topics.clear()
        self._none = metadata_of(listed, b"", 0, self.controller)
        replicas = integers(*range(min(size.brokers, len(ZONES))))
        canary = topic_of(CANARY, [_partition(0, 0, replicas)])
        self._canary = metadata_of(listed, canary, 1, self.controller)

    def _fill(self, size: Size) -> None:
        random = Random(_SEED)  # noqa: S311 - the same cluster each time
        zones = [list(range(zone, size.brokers, len(ZONES))) for zone in range(len(ZONES))]
        for name, count in size.partitions_by_topic():
            partitions = []
            for index in range(count):
                brokers = [random.choice(zone) for zone in zones if zone]
                random.shuffle(brokers)
                for broker in brokers:
                    self._held[broker].setdefault(name, []).append(index)
                partitions.append(_partition(index, brokers[0], integers(*brokers)))
            self._topics.append(topic_of(name, partitions, ALL_OPERATIONS, random.randbytes(16)))

    def requests(self) -> dict[str, dict[str, int]]:
        """Return the requests to each broker so far, by their keys."""
        return {str(broker): {str(k): n for k, n in node.requests.items()} for broker, node in enumerate(self.nodes)}

    def _metadata(self, _broker: int, request: bytes) -> bytes:
        count = Reader(request).count()
        if count < 0:
            return self._all
        return self._canary if count else self._none

    def _log_dirs(self, broker: int, _request: bytes) -> bytes:
        return self._directories[broker]

    def _reassignments(self, broker: int, _request: bytes) -> bytes:
        """Answer ListPartitionReassignments of version 0; only the controller knows them (KIP-455)."""
        error = 0 if broker == self.controller else NOT_CONTROLLER
        return b"\0" + struct.pack(">ih", 0, error) + b"\0" + uv(1) + b"\0"


def _directory(replicas: Mapping[str, Sequence[int]]) -> bytes:
    """Answer DescribeLogDirs of version 4: one directory with every replica that Metadata assigns."""
    rest = struct.pack(">qq", _BYTES_OF_A_REPLICA, 0) + b"\0\0"
    topics = [
        compact(name) + uv(len(held) + 1) + b"".join(struct.pack(">i", i) + rest for i in held) + b"\0"
        for name, held in replicas.items()
    ]
    listed = uv(len(topics) + 1) + b"".join(topics)
    directory = struct.pack(">h", 0) + compact("/data") + listed + struct.pack(">qq", 1 << 40, 1 << 39) + b"\0"
    return b"\0" + struct.pack(">ih", 0, 0) + uv(2) + directory + b"\0"


def _partition(index: int, leader: int, replicas: bytes) -> bytes:
    return struct.pack(">hiii", 0, index, leader, 5) + replicas + replicas + integers() + b"\0"


def _listed(broker: int, port: int) -> bytes:
    zone = compact(ZONES[broker % len(ZONES)])
    return struct.pack(">i", broker) + compact(_HOST) + struct.pack(">i", port) + zone + b"\0"


_STATIC, _DEFAULT = 4, 5


def _configs(broker: int, request: bytes) -> bytes:
    """Answer DescribeConfigs of version 4, for topics or for the broker."""
    reader = Reader(request)
    reader.count()
    (kind,) = reader.take(">b")
    if kind != _BROKER_RESOURCE:
        return topic_configs(Reader(request))
    stated = {"broker.id": str(broker), **_STATED}
    others = (name for name in RULES if name not in stated)
    stated |= dict.fromkeys(itertools.islice(others, _STATIC_SETTINGS - len(stated)), "1")
    rows = [_setting(name, value, _STATIC) for name, value in stated.items()]
    rows += [_setting(name, "1", _DEFAULT) for name in RULES if name not in stated]
    head = struct.pack(">h", 0) + b"\0" + struct.pack(">b", kind) + compact(str(broker))
    return b"\0" + struct.pack(">i", 0) + uv(2) + head + uv(len(rows) + 1) + b"".join(rows) + b"\0\0"


_BROKER_RESOURCE: Final = 4


def _setting(name: str, value: str, source: int) -> bytes:
    places = [place for place in (_STATIC, _DEFAULT) if place >= source]
    synonyms = [compact(name) + compact(value) + struct.pack(">b", place) + b"\0" for place in places]
    head = compact(name) + compact(value) + b"\1" + struct.pack(">b", source) + b"\0"
    return head + uv(len(synonyms) + 1) + b"".join(synonyms) + b"\2" + b"\0" + b"\0"


def _fetched() -> bytes:
    """Answer Fetch of version 6 by a follower with ClusterAction: the topic does not exist."""
    partition = struct.pack(">ihqqqii", 0, UNKNOWN_TOPIC, -1, -1, -1, -1, -1)
    return struct.pack(">iih", 0, 1, 1) + b"t" + struct.pack(">i", 1) + partition


def serve(directory: Path, size: Size) -> None:
    """Serve until the process is ended."""
    brokers = Brokers(size)

    def tell(connection: socket.socket) -> None:
        told = {"requests": brokers.requests(), "cpu_seconds": proc.cpu_seconds(os.getpid())}
        connection.sendall(json.dumps(told).encode())

    counters = socket.create_server((_HOST, 0))
    threading.Thread(target=accept, args=(counters, tell), daemon=True).start()
    ports = [node.port for node in brokers.nodes]
    listening = directory / f"{FILE}.new"
    listening.write_text(json.dumps({"brokers": ports, "counters": counters.getsockname()[1]}))
    listening.rename(directory / FILE)
    threading.Event().wait()


@dataclass(frozen=True)
class Told:
    """What the brokers have counted so far."""

    requests: tuple[Counter[int], ...]
    """Requests by key, of each broker."""
    cpu_seconds: float

    @property
    def totals(self) -> tuple[int, ...]:
        """Requests to each broker."""
        return tuple(sum(each.values()) for each in self.requests)


def told(port: int) -> Told:
    """Ask the process of the brokers what it has counted."""
    with socket.create_connection((_HOST, port)) as connection:
        found = json.loads(b"".join(iter(lambda: connection.recv(1 << 16), b"")))
    each = found["requests"]
    counters = (Counter({int(key): n for key, n in each[str(broker)].items()}) for broker in range(len(each)))
    return Told(tuple(counters), found["cpu_seconds"])


if __name__ == "__main__":
    serve(Path(sys.argv[1]), Size(int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])))
