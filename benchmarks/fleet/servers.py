"""ZooKeeper and Kafka on loopback sockets, honest and hostile ones. They run in a process of their own, so that a flood costs the fakes nothing."""

from __future__ import annotations

import json
import socket
import struct
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.support.wire_servers import (
    CHILDREN,
    GET,
    MEGA,
    Cluster,
    KafkaNode,
    ZooKeeperServer,
    always,
    flooding,
    integers,
    metadata,
    names,
    topic,
    tree,
    uv,
    znode,
)

from benchmarks.fleet.remote import HONEST
from benchmarks.fleet.znodes import at_rest
from kraftbridge.outside import bounds

FILE: Final = "servers.json"
"""Addresses by name, written when all of them listen."""
SMALL: Final = "small"
"""A healthy cluster of one topic."""
_FLOOD_MEBIBYTES: Final = 700
_LARGE_BYTES: Final = 100_000_000
_TINY_TOPIC: Final = struct.pack(">h", 0) + uv(2) + b"t" + b"\0" + uv(1) + struct.pack(">i", 0) + b"\0"
_LAGGING: Final = integers(0, 1, 2) + integers(0) + integers() + b"\0"
_PARTITION_BYTES: Final = len(_LAGGING) + 14

Answer = Callable[[int, str], bytes | None]


def _children(honest: Answer) -> Answer:
    """Answer with as many children as one reply holds."""
    body = names((bounds.OPERATOR_REPLIES.frame_bytes - 64) // 9, "{:05x}")
    return lambda kind, path: body if (kind, path) == (CHILDREN, "/brokers/ids") else honest(kind, path)


def _replies(honest: Answer) -> Answer:
    """Answer each read of a znode with almost the largest reply."""
    body = znode(bytes(7 * bounds.MIB))
    return lambda kind, path: body if kind == GET else honest(kind, path)


def _cons(connection: socket.socket) -> None:
    for _ in range(_FLOOD_MEBIBYTES):
        connection.sendall(MEGA)


def sessions(connection: socket.socket) -> None:
    """Answer ``cons`` with the session that asks."""
    connection.sendall(b" /127.0.0.1:41234[1](queued=0,recved=1,sent=0,sid=0x10)\n\n")


def _partitions() -> bytes:
    """Return a Metadata answer of 100 MB that keeps to every bound of a number."""
    largest = topic("t", bounds.TOPIC_PARTITIONS, _LAGGING)
    count = _LARGE_BYTES // len(largest)
    return metadata(largest * count, count)


def _topics() -> bytes:
    """Return a Metadata answer of 100 MB of tiny topics."""
    count = _LARGE_BYTES // len(_TINY_TOPIC)
    return metadata(_TINY_TOPIC * count, count)


def start(topics: int, partitions: int) -> Mapping[str, tuple[str, str]]:
    """Start all servers; return the addresses of ZooKeeper and Kafka by the name of their migration."""
    honest = tree(lambda: at_rest(3), {"/brokers/topics": ["t"]})
    zookeeper = ZooKeeperServer(honest, cons=sessions).address
    small = Cluster(1, 3).address
    greeting = struct.pack("!i", 2**31 - 1)
    found = {
        "frame": ZooKeeperServer(greeting=greeting, flood_mebibytes=_FLOOD_MEBIBYTES),
        "children": ZooKeeperServer(_children(honest), cons=sessions),
        "replies": ZooKeeperServer(_replies(honest), cons=sessions),
        "cons": ZooKeeperServer(honest, cons=_cons),
    }
    nodes = {
        "topics": KafkaNode(always(_topics())),
        "partitions": KafkaNode(always(_partitions())),
        "answer": KafkaNode(flooding(_FLOOD_MEBIBYTES), hostile=True),
    }
    return {
        HONEST: ("", Cluster(topics, partitions).address),
        SMALL: (zookeeper, small),
        **{name: (server.address, small) for name, server in found.items()},
        **{name: (zookeeper, node.address) for name, node in nodes.items()},
    }


def serve(directory: Path, topics: int, partitions: int) -> None:
    """Serve until the process is ended."""
    listening = directory / f"{FILE}.new"
    listening.write_text(json.dumps(start(topics, partitions)))
    listening.rename(directory / FILE)
    threading.Event().wait()


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
