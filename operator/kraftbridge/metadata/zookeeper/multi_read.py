"""ZooKeeper's multiRead for kazoo: many reads in one request, all at one point in time.

Operation 22, in servers from 3.6 on (ZOOKEEPER-3402). kazoo 2.11 does not know it, but sends any object that can serialise itself; the one
private name of kazoo used is `KazooClient._call`. A multiRead is served by one thread between two commits
(`FinalRequestProcessor`), so its results belong to one state of the tree.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar, Final, NamedTuple

from kazoo.exceptions import EXCEPTIONS

_INT = struct.Struct("!i")
_STAT = struct.Struct("!qqqqiiiqiiq")
_ITEM = struct.Struct("!iBii")  # operation, done, error, and the length that always follows
_END: Final = struct.pack("!iBi", -1, 1, -1)
_HEADER_BYTES: Final = 13
_ERROR: Final = -1


class Operation(IntEnum):
    """The two operations that a multiRead may hold."""

    DATA = 4
    CHILDREN = 8


class Read(NamedTuple):
    """One read: a path's data or children."""

    operation: Operation
    path: str


class Data(NamedTuple):
    """A znode's data and the numbers of its `Stat`."""

    data: bytes | None
    stat: tuple[int, ...]
    """czxid, mzxid, ctime, mtime, version, cversion, aversion, ephemeralOwner, dataLength, numChildren, pzxid."""


Result = Data | list[str] | Exception
"""What one read gives: data, children, or kazoo's exception for that path alone (`NoNodeError`, `NoAuthError`)."""


@dataclass(frozen=True, slots=True)
class MultiRead:
    """A request for kazoo's connection: `type`, `serialize` and `deserialize` are what it calls."""

    reads: Sequence[Read]
    type: ClassVar[int] = 22

    def serialize(self) -> bytes:
        """Return the request's body."""
        parts: list[bytes] = []
        for read in self.reads:
            path = read.path.encode()
            parts += (_ITEM.pack(read.operation, 0, -1, len(path)), path, b"\0")
        parts.append(_END)
        return b"".join(parts)

    def deserialize(self, buffer: bytes, offset: int) -> list[Result]:
        """Return one result for each read, in order."""
        results: list[Result] = []
        for _ in self.reads:
            operation, _, _, length = _ITEM.unpack_from(buffer, offset)
            offset += _HEADER_BYTES
            if operation == Operation.DATA:
                end = offset + length if length > 0 else offset
                data = buffer[offset:end] if length >= 0 else None
                results.append(Data(data, _STAT.unpack_from(buffer, end)))
                offset = end + _STAT.size
            elif operation == _ERROR:
                results.append(EXCEPTIONS[length]())
            else:
                children: list[str] = []
                for _ in range(length):
                    (size,) = _INT.unpack_from(buffer, offset)
                    offset += _INT.size
                    children.append(buffer[offset : offset + size].decode())
                    offset += size
                results.append(children)
        if buffer[offset : offset + len(_END)] != _END:
            raise ValueError("a multiRead reply does not end where its request does")
        return results


def batches(reads: Sequence[Read], size: int, maximum_bytes: int = 400_000) -> Iterator[Sequence[Read]]:
    """Yield slices of reads whose request stays well below the server's `jute.maxbuffer` (1 MiB)."""
    start = total = 0
    for index, read in enumerate(reads):
        length = len(read.path) + _HEADER_BYTES + 1
        if index > start and (index - start >= size or total + length > maximum_bytes):
            yield reads[start:index]
            start, total = index, 0
        total += length
    if start < len(reads):
        yield reads[start:]


def single_result(value: Any, operation: Operation) -> Result:
    """Return the result of one of kazoo's own calls in the form of a multiRead's."""
    if operation is Operation.CHILDREN:
        return list(value)
    data, stat = value
    return Data(
        data,
        (
            stat.czxid,
            stat.mzxid,
            stat.ctime,
            stat.mtime,
            stat.version,
            stat.cversion,
            stat.aversion,
            stat.ephemeralOwner,
            stat.dataLength,
            stat.numChildren,
            stat.pzxid,
        ),
    )
