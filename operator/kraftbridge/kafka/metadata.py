"""Reads a Metadata answer topic by topic from the socket.

An answer for 200,000 partitions has 10 MB, and 200 MB as objects of kafka-python.
Several such answers are read in each step of a migration, and most partitions of a topic have one form.
So partitions of one form are compared and kept as bytes, and decoded when they are iterated.
"""

from __future__ import annotations

import functools
import re
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from kraftbridge.outside import bounds

OLDEST: Final = 9
"""The oldest version that is decoded here (KIP-482); brokers serve it since 2.4."""
NEWEST: Final = 10
"""It has the topics' ids (KIP-516); brokers serve it since 2.8."""
_ID_BYTES: Final = 16
_NO_ID: Final = bytes(_ID_BYTES)
"""``Uuid.ZERO_UUID``: what a broker serves of a topic without an id."""
_INT: Final = struct.Struct(">i")
_SHORT: Final = struct.Struct(">h")
_PARTITION: Final = struct.Struct(">hiii")
_ADVICE: Final = "Check that spec.brokers.bootstrapServers names Kafka brokers"


class Broker(NamedTuple):
    """A broker, as Metadata lists it."""

    node_id: int
    host: str
    port: int
    rack: str = ""
    """``broker.rack``, ``""`` where it is not set."""


class Partition(NamedTuple):
    """A partition, as Metadata lists it."""

    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: tuple[int, ...]
    isr_nodes: tuple[int, ...]


class Form(NamedTuple):
    """Number of a partition's replicas, of those in sync, and of those that are offline."""

    replicas: int
    in_sync: int
    offline: int


@functools.lru_cache(maxsize=256)
def _layout(form: Form) -> struct.Struct:
    """Return how a partition without tagged fields is decoded; the numbers of nodes are left out."""
    return struct.Struct(f">hiiix{form.replicas}ix{form.in_sync}ix{4 * form.offline}xx")


@functools.lru_cache(maxsize=256)
def _rows(form: Form) -> re.Pattern[bytes]:
    """Return what matches partitions of a form without tagged fields, one after the other."""
    nodes = b"".join(re.escape(bytes((count + 1,))) + b".{%d}" % (_INT.size * count) for count in form)
    # Not possessive: Python before 3.11.5 then leaves off within the next partition (gh-106052).
    return re.compile(b"(?:.{%d}%b\\0)+" % (_PARTITION.size, nodes), re.DOTALL)


@dataclass(frozen=True, slots=True)
class Run:
    """Partitions of one form, one after the other, none of them with tagged fields."""

    rows: bytes
    """The partitions as they are in the answer."""
    form: Form

    def __len__(self) -> int:
        return len(self.rows) // _layout(self.form).size

    def __iter__(self) -> Iterator[Partition]:
        middle = _BEFORE_REPLICAS + self.form.replicas
        end = middle + self.form.in_sync
        for row in _layout(self.form).iter_unpack(self.rows):
            yield Partition(row[0], row[1], row[2], row[3], row[_BEFORE_REPLICAS:middle], row[middle:end])

    @property
    def settled(self) -> bool:
        """Whether each partition has a leader and all of its replicas in sync."""
        leaders = self.rows[_LEADER_AT :: _layout(self.form).size]
        # The first byte of a negative number is not ASCII.
        return self.form.in_sync >= self.form.replicas and leaders.isascii()


_BEFORE_REPLICAS: Final = 4
"""Numbers of a partition before its replicas: error, index, leader, and the leader's epoch."""
_LEADER_AT: Final = 6


@dataclass(frozen=True, slots=True)
class Partitions:
    """The partitions of one topic in the order of the answer. Equal ones have the same bytes, or the same values."""

    runs: tuple[Run | tuple[Partition], ...]
    """A tuple has a partition of a rare form."""

    def __len__(self) -> int:
        return sum(map(len, self.runs))

    def __iter__(self) -> Iterator[Partition]:
        for run in self.runs:
            yield from run

    def unsettled(self) -> Iterator[Partition]:
        """Yield partitions. Each one that is left out has a leader and all of its replicas in sync."""
        for run in self.runs:
            if isinstance(run, tuple) or not run.settled:
                yield from run


class Topic(NamedTuple):
    """A topic, as Metadata lists it."""

    error_code: int
    name: str
    partitions: Partitions
    operations: int
    """Bit field of what the principal may do (KIP-430); `NO_OPERATIONS` where it was not asked."""
    topic_id: str = ""
    """In hexadecimal; ``""`` before `NEWEST`, and of a topic that has none yet (the zero UUID, KIP-516)."""

    def allows(self, operation: int) -> bool:
        """Return whether the principal may do an ``AclOperation``."""
        return self.operations != NO_OPERATIONS and bool(self.operations >> operation & 1)


NO_OPERATIONS: Final = -(2**31)


class Frame:
    """One response, of which only the part that is decoded next is held.

    Parameters
    ----------
    connection
        The socket; the length of the response is what it sends next.
    left
        Returns the seconds that are left, or raises.
    source
        The node, for the error.
    most
        Largest length in bytes.

    Raises
    ------
    BoundExceededError
        The response is larger.
    OSError
        The connection broke, or the time is over.
    """

    def __init__(self, connection: socket.socket, left: Callable[[], float], source: str, most: int) -> None:
        self._connection = connection
        self._left = left
        self.source = source
        self._buffer = b""
        self._position = 0
        self.remaining = _INT.size
        (length,) = _INT.unpack(self.take(_INT.size))
        if not 0 <= length <= most:
            received = f"it sends an answer of {bounds.size(length)}" if length >= 0 else "it sends a negative length"
            raise bounds.BoundExceededError(source, received, bounds.size(most), _ADVICE)
        self.remaining = length

    def take(self, count: int) -> bytes:
        """Return the next bytes."""
        self._hold(count)
        start = self._position
        self._position += count
        self.remaining -= count
        return self._buffer[start : self._position]

    def _hold(self, count: int) -> None:
        """Hold at least the next bytes of this answer."""
        if self._position + count <= len(self._buffer):
            return
        if count > self.remaining:
            raise ValueError(f"an answer of {self.source} ends in the middle")
        start = self._position
        held = bytearray(self._buffer[start:])
        # No byte of the next answer is taken.
        ahead = self.remaining - len(held)
        while len(held) < count:
            self._connection.settimeout(self._left())
            chunk = self._connection.recv(min(ahead, _RECEIVE_BYTES))
            if not chunk:
                raise ConnectionResetError("the node closed the connection")
            held += chunk
            ahead -= len(chunk)
        self._buffer = bytes(held)
        self._position = 0

    def partitions(self, count: int) -> Partitions:
        """Return the next partitions."""
        runs: list[Run | tuple[Partition]] = []
        while count > 0:
            run = self._run(count) or (self._partition(),)
            runs.append(run)
            count -= len(run)
        return Partitions(tuple(runs))

    def _run(self, most: int) -> Run | None:
        """Return the next partitions as long as they are of one form; None if the first one is of a rare form."""
        form = self._form()
        if form is None:
            return None
        width = _layout(form).size
        ahead = min(most, _RUN_BYTES // width, self.remaining // width) * width
        self._hold(ahead)
        found = _rows(form).match(self._buffer, self._position, self._position + ahead)
        return Run(self.take(found.end() - found.start()), form) if found else None

    def _form(self) -> Form | None:
        """Return the form of the next partition; None if it is a rare one, or none that ends in this answer."""
        self._hold(min(_FEW_BYTES, self.remaining))
        position = self._position + _PARTITION.size
        nodes = []
        for _ in Form._fields:
            if position >= len(self._buffer):
                return None
            count = self._buffer[position] - 1
            if not 0 <= count <= _FEW:
                return None
            nodes.append(count)
            position += 1 + _INT.size * count
        return Form(*nodes)

    def _partition(self) -> Partition:
        """Return the next partition, of any form."""
        problem, index, leader, epoch = _PARTITION.unpack(self.take(_PARTITION.size))
        replicas = self.integers()
        isr = self.integers()
        self.integers()  # offline replicas
        self.tags()
        return Partition(problem, index, leader, epoch, replicas, isr)

    def short(self) -> int:
        """Return the next INT16."""
        number: int = _SHORT.unpack(self.take(2))[0]
        return number

    def integer(self) -> int:
        """Return the next INT32."""
        number: int = _INT.unpack(self.take(4))[0]
        return number

    def unsigned(self) -> int:
        """Return the next UNSIGNED_VARINT."""
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:  # noqa: PLR2004 - the continuation bit
                return value
            shift += 7
            if shift > _LAST_SHIFT:
                raise ValueError(f"a number in an answer of {self.source} is too long")

    def length(self, most: int, what: str) -> int:
        """Return the length of the next compact array or string; null is empty."""
        length = self.unsigned() - 1
        bounds.count(self.source, length, most, what, _ADVICE)
        return max(length, 0)

    def text(self) -> str:
        """Return the next COMPACT_STRING."""
        return self.take(self.length(bounds.KAFKA_NAME_BYTES, "bytes in a name")).decode()

    def integers(self) -> tuple[int, ...]:
        """Return the next COMPACT_ARRAY of INT32."""
        count = self.length(bounds.BROKERS, "replicas of one partition")
        return struct.unpack(f">{count}i", self.take(4 * count))

    def tags(self) -> None:
        """Skip the next tagged fields (KIP-482)."""
        for _ in range(self.unsigned()):
            self.unsigned()
            self.take(self.length_of_tag())

    def length_of_tag(self) -> int:
        """Return the length of a tagged field."""
        length = self.unsigned()
        bounds.count(self.source, length, bounds.KAFKA_NAME_BYTES, "bytes in a tagged field", _ADVICE)
        return length


_FEW: Final = 10
"""Nodes in each array of a partition that has no rare form. Their number takes one byte."""
_FEW_BYTES: Final = _PARTITION.size + 3 * (1 + _INT.size * _FEW) + 1
_RUN_BYTES: Final = 16 * bounds.KIB
"""Largest length of a run."""
_LAST_SHIFT: Final = 28
_RECEIVE_BYTES: Final = 64 * bounds.KIB


@dataclass(frozen=True, slots=True)
class Metadata:
    """A Metadata answer. Its topics can be read once, while the connection is not used for anything else."""

    brokers: tuple[Broker, ...]
    controller_id: int
    topics: Iterator[Topic]


def read(frame: Frame, correlation: int, version: int) -> Metadata:
    """Return the answer to the request with this number; ``MetadataResponse.json`` of Kafka 3.9.

    Raises
    ------
    ValueError
        It is the answer to another request, or none of Kafka's.
    BoundExceededError
        It has more brokers than `bounds.BROKERS`. The iterator of the topics raises it, too.
    """
    answered = frame.integer()
    if answered != correlation:
        raise ValueError(f"{frame.source} answered request {answered} instead of {correlation}")
    frame.tags()
    frame.integer()  # throttle time
    brokers = []
    for _ in range(frame.length(bounds.BROKERS, "brokers")):
        brokers.append(Broker(frame.integer(), frame.text(), frame.integer(), frame.text()))
        frame.tags()
    frame.text()  # cluster id
    return Metadata(tuple(brokers), frame.integer(), _topics(frame, version))


def _topics(frame: Frame, version: int) -> Iterator[Topic]:
    for _ in range(frame.length(bounds.TOPICS, "topics")):
        error = frame.short()
        name = frame.text()
        identity = frame.take(_ID_BYTES) if version >= NEWEST else _NO_ID
        topic_id = "" if identity == _NO_ID else identity.hex()
        frame.take(1)  # internal
        count = frame.length(bounds.TOPIC_PARTITIONS, "partitions of one topic")
        partitions = frame.partitions(count)
        operations = frame.integer()
        frame.tags()
        yield Topic(error, name, partitions, operations, topic_id)
    frame.integer()  # operations on the cluster
    frame.tags()
