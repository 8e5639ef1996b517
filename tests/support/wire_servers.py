"""Servers on loopback that speak ZooKeeper's and Kafka's protocols as far as the operator asks, with any answer, honest or hostile."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from kraftbridge.outside import bounds

MEGA: Final = bytes(bounds.MIB)

# ------------------------------------------------------------------------------------------------ ZooKeeper

GET, ACL, CHILDREN, SYNC = 4, 6, 8, 9
_PING: Final = 11
_NO_NODE: Final = -101
_WORDS: Final = (b"cons",)
STAT: Final = struct.pack("!qqqqiiiqiiq", *[0] * 11)
ANYONE: Final = struct.pack("!ii", 1, 31)
"""The head of an ACL with one entry, which permits everything."""


def stat(owner: int = 0) -> bytes:
    """Return the ``Stat`` of a znode, with the session that owns it."""
    return struct.pack("!qqqqiiiqiiq", *[0] * 7, owner, 0, 0, 0)


def text(value: str) -> bytes:
    """Return a string of ZooKeeper's."""
    return struct.pack("!i", len(value)) + value.encode()


def names(count: int, pattern: str = "{:013}") -> bytes:
    """Return a list of children that are numbered."""
    return struct.pack("!i", count) + b"".join(text(pattern.format(i)) for i in range(count))


def znode(data: bytes, owner: int = 0) -> bytes:
    """Return the answer to a read of a znode's data."""
    return struct.pack("!i", len(data)) + data + stat(owner)


def empty_tree(kind: int, path: str) -> bytes | None:
    """Answer as an empty tree."""
    if kind == SYNC:
        return text(path)
    return {CHILDREN: struct.pack("!i", 0)}.get(kind)


class ZooKeeperServer:
    """Speaks ZooKeeper's protocol as far as a session and reads need it.

    Parameters
    ----------
    answer
        Returns the body of a reply for the request's type and path, None for a znode that does not exist.
    greeting
        What the server sends instead of a session, before `flood_mebibytes` of zeros.
    cons
        Answers the four-letter word ``cons``; None: it is taken for a session.
    """

    def __init__(
        self,
        answer: Callable[[int, str], bytes | None] = empty_tree,
        greeting: bytes | None = None,
        *,
        cons: Callable[[socket.socket], None] | None = None,
        flood_mebibytes: int = 200,
    ) -> None:
        self._answer = answer
        self._greeting = greeting
        self._cons = cons
        self._flood_mebibytes = flood_mebibytes
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.address = f"127.0.0.1:{self.port}"
        self.sent = 0
        threading.Thread(target=accept, args=(self._listener, self._talk), daemon=True).start()

    def close(self) -> None:
        """Accept no more connections."""
        self._listener.close()

    def _talk(self, connection: socket.socket) -> None:
        first = _exactly(connection, 4)
        if self._cons is not None and first in _WORDS:
            self._cons(connection)
            return
        _exactly(connection, struct.unpack("!i", first)[0])
        if self._greeting is not None:
            connection.sendall(self._greeting)
            self._flood(connection)
            return
        _reply(connection, struct.pack("!iiqi", 0, 6000, 1, 16) + bytes(17))
        while True:
            request = _exactly(connection, struct.unpack("!i", _exactly(connection, 4))[0])
            xid, kind = struct.unpack_from("!ii", request)
            if kind == _PING:
                _reply(connection, struct.pack("!iqi", xid, 1, 0))
                continue
            length = struct.unpack_from("!i", request, 8)[0] if len(request) >= 12 else 0
            found = self._answer(kind, request[12 : 12 + max(length, 0)].decode())
            header = struct.pack("!iqi", xid, 1, 0 if found is not None else _NO_NODE)
            _reply(connection, header + (found or b""))

    def _flood(self, connection: socket.socket) -> None:
        for _ in range(self._flood_mebibytes):
            connection.sendall(MEGA)
            self.sent += len(MEGA)


def accept(listener: socket.socket, serve: Callable[[socket.socket], None]) -> None:
    """Serve each connection in a thread of its own until the listener is closed."""

    def served(connection: socket.socket) -> None:
        with connection, suppress(OSError, struct.error):
            serve(connection)

    while True:
        try:
            connection = listener.accept()[0]
        except OSError:
            return
        threading.Thread(target=served, args=(connection,), daemon=True).start()


def _exactly(connection: socket.socket, count: int) -> bytes:
    found = connection.recv(count, socket.MSG_WAITALL) if count else b""
    if len(found) < count:
        raise ConnectionResetError
    return found


def _reply(connection: socket.socket, body: bytes) -> None:
    connection.sendall(struct.pack("!i", len(body)) + body)


# ------------------------------------------------------------------------------------------------ Kafka

METADATA, LIST_OFFSETS, API_VERSIONS, CONFIGS, REASSIGNMENTS, CLUSTER = 3, 2, 18, 32, 46, 60
FETCH, LOG_DIRS = 1, 35
_KEYS: Final = (
    (FETCH, 0, 11), (LIST_OFFSETS, 1, 7), (API_VERSIONS, 0, 3), (CONFIGS, 0, 4), (LOG_DIRS, 0, 4),
    (REASSIGNMENTS, 0, 0), (CLUSTER, 0, 1),
)  # fmt: skip


def uv(value: int) -> bytes:
    """Return an UNSIGNED_VARINT."""
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


def compact(value: str) -> bytes:
    """Return a COMPACT_STRING."""
    return uv(len(value.encode()) + 1) + value.encode()


def integers(*values: int) -> bytes:
    """Return a COMPACT_ARRAY of INT32."""
    return uv(len(values) + 1) + struct.pack(f">{len(values)}i", *values)


PARTITION: Final = integers(0, 1, 2) + integers(0, 1, 2) + integers() + b"\0"
"""Replicas, ISR and offline replicas of a partition."""


def topic(name: str, partitions: int, body: bytes = PARTITION, operations: int = 0) -> bytes:
    """Return a topic of a Metadata answer of version 9."""
    each = (struct.pack(">hiii", 0, i, 0, 5) + body for i in range(partitions))
    return topic_of(name, list(each), operations)


def topic_of(name: str, partitions: Sequence[bytes], operations: int = 0, identity: bytes = b"") -> bytes:
    """Return a topic of a Metadata answer of version 9, or of version 10 with the 16 bytes of its id."""
    head = struct.pack(">h", 0) + compact(name) + identity + b"\0" + uv(len(partitions) + 1)
    return head + b"".join(partitions) + struct.pack(">i", operations) + b"\0"


def metadata(topics: bytes, count: int, brokers: int = 1, port: int = 9092, host: str = "h") -> bytes:
    """Return a Metadata answer of version 9 without its correlation id."""
    each = [struct.pack(">i", i) + compact(host) + struct.pack(">i", port) + b"\0" + b"\0" for i in range(brokers)]
    return metadata_of(each, topics, count)


def metadata_of(brokers: Sequence[bytes], topics: bytes, count: int, controller: int = 0) -> bytes:
    """Return a Metadata answer without its correlation id, with brokers as the answer lists them."""
    listed = uv(len(brokers) + 1) + b"".join(brokers)
    head = b"\0" + struct.pack(">i", 0) + listed + compact("c") + struct.pack(">i", controller)
    return head + uv(count + 1) + topics + struct.pack(">i", 0) + b"\0"


class KafkaNode:
    """Answers ApiVersions, and every other request with what is sent for it.

    Parameters
    ----------
    send
        Answers a request, which begins with its key and its version, on a connection.
    hostile
        Whether ``send`` answers ApiVersions, too.
    metadata_version
        The newest version of Metadata that it serves.
    delay_seconds
        What passes before it answers a request.
    """

    def __init__(
        self,
        send: Callable[[socket.socket, bytes], None],
        *,
        hostile: bool = False,
        metadata_version: int = 9,
        delay_seconds: float = 0.0,
    ) -> None:
        self._send = send
        self._delay_seconds = delay_seconds
        self._counting = threading.Lock()
        self.requests: Counter[int] = Counter()
        """Requests so far, by their keys."""
        self._metadata_version = metadata_version
        self._hostile = hostile
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.address = f"127.0.0.1:{self.port}"
        threading.Thread(target=accept, args=(self._listener, self._serve), daemon=True).start()

    def close(self) -> None:
        """Accept no more connections."""
        self._listener.close()

    def _serve(self, connection: socket.socket) -> None:
        while True:
            (length,) = struct.unpack(">i", _exactly(connection, 4))
            request = _exactly(connection, length)
            (key,) = struct.unpack_from(">h", request)
            with self._counting:
                self.requests[key] += 1
            if self._delay_seconds:
                time.sleep(self._delay_seconds)
            if key == API_VERSIONS and not self._hostile:
                keys = [(METADATA, 0, self._metadata_version), *_KEYS]
                listed = b"".join(struct.pack(">hhh", *each) + b"\0" for each in keys)
                body = struct.pack(">h", 0) + uv(len(keys) + 1) + listed + struct.pack(">i", 0) + b"\0"
                answered(connection, request, body)
            else:
                self._send(connection, request)


def answered(connection: socket.socket, request: bytes, body: bytes) -> None:
    """Send an answer with the number of its request."""
    connection.sendall(struct.pack(">i", len(body) + 4) + request[4:8] + body)


def always(body: bytes) -> Callable[[socket.socket, bytes], None]:
    """Return what answers every request with the same body."""
    return lambda connection, request: answered(connection, request, body)


def flooding(mebibytes: int) -> Callable[[socket.socket, bytes], None]:
    """Return what announces the largest answer that a length can name, and sends zeros."""

    def send(connection: socket.socket, _: bytes) -> None:
        connection.sendall(struct.pack(">i", 2**31 - 1))
        for _ in range(mebibytes):
            connection.sendall(MEGA)

    return send


class Reader:
    """Reads a request of a flexible version (KIP-482), whose header has a client id."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        (length,) = struct.unpack_from(">h", request, 8)
        self._position = 10 + max(length, 0)
        self.tags()

    def take(self, layout: str) -> tuple[int, ...]:
        found = struct.unpack_from(layout, self._request, self._position)
        self._position += struct.calcsize(layout)
        return found

    def count(self) -> int:
        """Return the length of a compact array or string; -1 for null."""
        value = shift = 0
        while True:
            (byte,) = self.take(">B")
            value |= (byte & 127) << shift
            if byte < 128:
                return value - 1
            shift += 7

    def text(self) -> str:
        length = max(self.count(), 0)
        self._position += length
        return self._request[self._position - length : self._position].decode()

    def tags(self) -> None:
        if self.count() != -1:
            raise ValueError("no client of these tests writes tagged fields")


def topic_names(count: int) -> list[str]:
    """Return the names of a cluster's topics."""
    return [f"a-topic-with-a-name-of-thirty-{i:06}" for i in range(count)]


ALL_OPERATIONS: Final = 0x1FF8
"""Bits of ``AclOperation`` from READ to IDEMPOTENT_WRITE (KIP-430)."""


class Cluster:
    """Brokers of one healthy cluster on one port, with topics of equal size. It answers what grows with the cluster.

    Parameters
    ----------
    topics, partitions
        Topics, and partitions of each.
    """

    BROKERS: Final = 3

    def __init__(self, topics: int, partitions: int) -> None:
        self._node = KafkaNode(self._send)
        self.address = self._node.address
        listed = b"".join(topic(name, partitions, operations=ALL_OPERATIONS) for name in topic_names(topics))
        self._brokers = metadata(b"", 0, self.BROKERS, self._node.port, "127.0.0.1")
        self._all = metadata(listed, topics, self.BROKERS, self._node.port, "127.0.0.1")

    def _send(self, connection: socket.socket, request: bytes) -> None:
        (key,) = struct.unpack_from(">h", request)
        reader = Reader(request) if key != REASSIGNMENTS or struct.unpack_from(">h", request, 2)[0] else None
        if key == METADATA and reader is not None:
            answered(connection, request, self._all if reader.count() < 0 else self._brokers)
        elif key == CONFIGS and reader is not None:
            answered(connection, request, topic_configs(reader))
        elif key == LIST_OFFSETS and reader is not None:
            answered(connection, request, _offsets(reader))
        elif key == CLUSTER:
            answered(connection, request, described_cluster())
        else:
            raise ConnectionResetError


def described_cluster() -> bytes:
    """Answer DescribeCluster of version 1: every operation is permitted."""
    head = b"\0" + struct.pack(">ih", 0, 0) + b"\0" + b"\1" + compact("c") + struct.pack(">i", 0)
    return head + uv(1) + struct.pack(">i", ALL_OPERATIONS) + b"\0"


_SETTINGS: Final[Mapping[str, str]] = {
    "min.insync.replicas": "2", "cleanup.policy": "delete", "retention.ms": "604800000", "retention.bytes": "-1",
}  # fmt: skip


def topic_configs(reader: Reader) -> bytes:
    """Answer DescribeConfigs of version 4 for topics."""
    results = []
    for _ in range(reader.count()):
        (kind,) = reader.take(">b")
        name = reader.text()
        keys = [reader.text() for _ in range(reader.count())]
        reader.tags()
        rows = [
            compact(k)
            + compact(_SETTINGS.get(k, ""))
            + b"\0"
            + struct.pack(">b", 5)
            + b"\0"
            + uv(1)
            + b"\2"
            + b"\0"
            + b"\0"
            for k in keys
        ]
        head = struct.pack(">h", 0) + b"\0" + struct.pack(">b", kind) + compact(name)
        results.append(head + uv(len(rows) + 1) + b"".join(rows) + b"\0")
    return b"\0" + struct.pack(">i", 0) + uv(len(results) + 1) + b"".join(results) + b"\0"


_END: Final = 10
_LATEST: Final = -1


def _offsets(reader: Reader) -> bytes:
    """Answer ListOffsets of version 7: ten records in each partition, all of them young."""
    reader.take(">ib")
    topics = []
    for _ in range(reader.count()):
        name, rows = reader.text(), []
        for _ in range(reader.count()):
            index, _, timestamp = reader.take(">iiq")
            reader.tags()
            offset = _END if timestamp == _LATEST else 0
            rows.append(struct.pack(">ihqqi", index, 0, -1, offset, 5) + b"\0")
        reader.tags()
        topics.append(compact(name) + uv(len(rows) + 1) + b"".join(rows) + b"\0")
    return b"\0" + struct.pack(">i", 0) + uv(len(topics) + 1) + b"".join(topics) + b"\0"


def tree(
    znodes: Callable[[], Mapping[str, tuple[bytes, int]]], lists: Mapping[str, bytes | Sequence[str]]
) -> Callable[[int, str], bytes | None]:
    """Return what answers reads of a tree.

    Parameters
    ----------
    znodes
        Returns data and owning session of each znode, by path. Children are computed from the paths.
    lists
        Children by path, as names or as the answer.
    """
    known = {path: of if isinstance(of, bytes) else _listed(of) for path, of in lists.items()}

    def answer(kind: int, path: str) -> bytes | None:
        if kind == SYNC:
            return text(path)
        if kind == ACL:
            return ANYONE + text("world") + text("anyone") + STAT
        if kind == CHILDREN:
            below = path.rstrip("/") + "/"
            return known.get(path) or _listed(
                sorted({p[len(below) :].split("/")[0] for p in znodes() if p.startswith(below)})
            )
        found = znodes().get(path) if kind == GET else None
        return None if found is None else znode(*found)

    return answer


def _listed(children: Sequence[str]) -> bytes:
    return struct.pack("!i", len(children)) + b"".join(map(text, children))
