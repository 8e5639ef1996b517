"""Bounds of everything that comes from outside: bytes, time, depth and paths. Pure, but for `file`.

A tenant names the servers that the operator asks, and writes the Secrets and ConfigMaps that it reads.
One operator serves all tenants, so what one of them sends must not fill its memory or hold a thread.
What exceeds a bound is an error of that one source.
It names the object, what was received, the bound, and what to do.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final

KIB: Final = 1 << 10
MIB: Final = 1 << 20

ZNODE_BYTES: Final = MIB
"""Data of one znode. A server accepts no more from those who write it (``jute.maxbuffer``, 0xfffff by default)."""

ZNODE_CHILDREN: Final = 250_000
"""Names in one list of children: 4 MiB of names of 13 characters, more than a cluster with ZooKeeper has."""

ZNODE_ACL_ENTRIES: Final = 1_000
"""Entries of one znode's ACL."""

BROKERS: Final = 2_000
"""Brokers of one cluster."""

KAFKA_ANSWER_BYTES: Final = MIB
"""An answer of a node that is decoded as a whole. Its objects take up to 60 times its bytes."""

KAFKA_REASSIGNMENTS_BYTES: Final = 4 * MIB
"""The list of reassignments: 40 bytes for each partition that moves."""

KAFKA_LOG_DIRS_BYTES: Final = 2 * MIB
"""One broker's list of its log directories: 25 bytes for each partition in them."""

KAFKA_METADATA_BYTES: Final = 128 * MIB
"""A Metadata answer, which is read topic by topic: 50 bytes for each partition."""

KAFKA_METADATA_SECONDS: Final = 10.0
"""Time from the first byte of a Metadata answer to its last. 200,000 partitions take a second."""

KAFKA_VERIFIER_BYTES: Final = 100 * MIB
"""An answer in a verification's own pod, which asks for 500 topics at a time."""

KAFKA_NAME_BYTES: Final = 32 * KIB
"""A string. Names of topics have at most 249 characters (``Topic.MAX_NAME_LENGTH``)."""

TOPICS: Final = 250_000
"""Topics of one cluster."""

TOPIC_PARTITIONS: Final = 100_000
"""Partitions of one topic."""

SESSIONS_BYTES: Final = 4 * MIB
"""One server's answer to ``cons``: 200 bytes for each session."""

REPORT_BYTES: Final = 8 * MIB
"""A report, unpacked. One of 5,000 differing partitions has 5 MiB."""

REPORT_VALUES: Final = 500_000
"""Values in a report's JSON. Each takes up to 100 times its bytes once it is parsed."""

RECORD_BYTES: Final = 32 * MIB
"""A record of a broker, packed or unpacked. One of 200,000 partitions has 8 MiB."""

RECORD_PARTITIONS: Final = 250_000
"""Partitions in a record of a broker."""

RECORD_VALUES: Final = 600_000
"""Values in a record's JSON outside its offsets: two for each topic, and the settings."""

RESULT_BYTES: Final = 256 * KIB
"""The result of a rehearsal, unpacked."""

COPIES_BYTES: Final = 32 * MIB
"""What the copies of one stage of a dry start showed, unpacked. A copy of a broker with 100 settings has 8 KiB."""

COPIES_VALUES: Final = 600_000
"""Values in its JSON."""

CHAIN: Final = 10
"""Certificates of a chain."""

AUTHORITIES: Final = 300
"""Certificates of a bundle of authorities. Those of operating systems have 150."""

GAUGES: Final = 1_000
"""Lines of a controller's metrics page that are read. Kafka 3.9 has 33."""

GAUGE_CHARACTERS: Final = 1_000
"""One of these lines. Kafka's have fewer than 200."""

OLD_REQUESTS: Final = 20_000
"""Lines of a broker's metrics page about deprecated requests: up to seven for each client software and request."""

LOG_LISTING_BYTES: Final = MIB
"""A log server's list of files: 60 bytes for each."""

LOG_LINE_CHARACTERS: Final = 4_096
"""What is read of one line of a log. A pattern takes time with the square of a line that nearly fits."""

FILE_BYTES: Final = MIB
"""A file that a client setting names. A Secret holds no more (``MaxSecretSize`` of the API server)."""


class BoundExceededError(OSError):
    """A source sent or holds more than is accepted. It is an error of the source, like a broken connection.

    Parameters
    ----------
    source
        The object that exceeds the bound.
    received
        What was received, with its unit.
    bound
        What is accepted, with its unit.
    advice
        What to do.
    """

    def __init__(self, source: str, received: str, bound: str, advice: str) -> None:
        words = f"{source}: {received}, and {bound} is the most that is accepted. {advice}"
        super().__init__(words)
        self.strerror = words  # what kazoo tells of an OSError


class PathRefusedError(OSError):
    """A setting names a file that nobody gave."""


def size(count: int) -> str:
    """Return a number of bytes as people write it."""
    if count >= MIB:
        return f"{count / MIB:.1f} MiB"
    if count >= KIB:
        return f"{count / KIB:.1f} KiB"
    return f"{count} bytes"


# ------------------------------------------------------------------------------------------------ servers


@dataclass(frozen=True, slots=True)
class ReplyBounds:
    """What a ZooKeeper server may send to one session."""

    frame_bytes: int
    """One reply."""
    frame_seconds: float
    """Time for one reply, from its first byte to its last."""
    window_bytes: int | None = None
    """All replies within `window_seconds`; None for no limit. It bounds what the replies of one call hold together."""
    window_seconds: float = 6.0


OPERATOR_REPLIES: Final = ReplyBounds(frame_bytes=8 * MIB, frame_seconds=6.0, window_bytes=24 * MIB)
"""The operator lists children and reads single znodes, for many tenants at a time.
A client of ZooKeeper accepts 4 MiB by default (``jute.maxbuffer``)."""

VERIFIER_REPLIES: Final = ReplyBounds(frame_bytes=128 * MIB, frame_seconds=60.0)
"""A verification or rehearsal reads many znodes at a time, in a pod of its own migration."""


def count(source: str, received: int, most: int, things: str, advice: str) -> None:
    """Refuse a number of things that is larger than a bound.

    Raises
    ------
    BoundExceededError
        There are more than ``most``.
    """
    if received > most:
        raise BoundExceededError(source, f"it has {received:,} {things}", f"{most:,}", advice)


def until_closed(
    receive: Callable[[int], bytes], set_timeout: Callable[[float], None], source: str, most: int, deadline: float
) -> bytes:
    """Return what a peer sends until it closes the connection.

    Parameters
    ----------
    receive, set_timeout
        Of the socket.
    source
        The peer, for the error.
    most
        Number of bytes.
    deadline
        Time by ``time.monotonic`` by which the peer must have closed.
        A peer that keeps sending meets no time limit of a socket.

    Raises
    ------
    OSError
        The connection broke, or the time is over.
    BoundExceededError
        The peer sent more.
    """
    received = bytearray()
    try:
        while (left := deadline - time.monotonic()) > 0:
            set_timeout(left)
            chunk = receive(_CHUNK_BYTES)
            if not chunk:
                return bytes(received)
            received += chunk
            if len(received) > most:
                raise BoundExceededError(
                    source, f"it sent more than {size(most)}", size(most), "Ask what answers at this address"
                )
    except TimeoutError:
        pass
    raise TimeoutError(f"{source} has not ended in time, after {size(len(received))}")


_CHUNK_BYTES: Final = 64 * KIB


def lines(log: str) -> list[str]:
    """Return the lines of a log, each without what is beyond `LOG_LINE_CHARACTERS`."""
    return [line[:LOG_LINE_CHARACTERS] for line in log.splitlines()]


# ------------------------------------------------------------------------------------------------ packed and nested


def unpacked(packed: bytes, source: str, most: int, advice: str, *, zlib_format: bool = False) -> bytes:
    """Return what a gzip stream holds, without holding more than the bound at any moment.

    Parameters
    ----------
    zlib_format
        The stream is one of zlib (RFC 1950).

    Raises
    ------
    OSError
        It is no whole stream.
    BoundExceededError
        It holds more than ``most`` bytes.
    """
    kind, wbits = ("zlib", zlib.MAX_WBITS) if zlib_format else ("gzip", _GZIP)
    stream = zlib.decompressobj(wbits=wbits)
    try:
        content = stream.decompress(packed, most + 1)
    except zlib.error as error:
        raise OSError(f"{source} is not packed with {kind}: {error}") from error
    if len(content) > most:
        raise BoundExceededError(source, f"{size(len(packed))} unpack to more than {size(most)}", size(most), advice)
    if not stream.eof or stream.unused_data:
        raise OSError(f"{source} is not one whole {kind} stream")
    return content


def json_value(text: bytes, source: str, most_values: int, advice: str) -> Any:
    """Return what a JSON text holds. The text itself is bounded already.

    Raises
    ------
    BoundExceededError
        It has more values, or is nested more deeply than Python's parser reads.
    ValueError
        It is no JSON.
    """
    values = sum(map(text.count, (b",", b"[", b"{")))
    count(source, values, most_values, "values", advice)
    try:
        return json.loads(text)
    except RecursionError as error:
        raise BoundExceededError(
            source, "its values are nested deeply", "what Python's parser reads", advice
        ) from error


_GZIP: Final = 31
"""``wbits`` of zlib for a gzip stream (RFC 1952)."""

# ------------------------------------------------------------------------------------------------ paths


def held(files: Mapping[str, bytes], holder: str) -> Callable[[str], bytes]:
    """Return what reads a file that a setting names from the object with the setting; nothing else is ever opened.

    Parameters
    ----------
    files
        Content by key.
    holder
        The object, for the error.
    """

    def read(location: str) -> bytes:
        key = PurePosixPath(location).name
        if key not in files:
            raise PathRefusedError(
                f"{location} is no file of {holder}, and the operator opens no file of its own for it. "
                f"Put the file into {holder} as key {key or 'truststore.pem'}, or its PEM into the settings"
            )
        return files[key]

    return read


def file(location: str) -> bytes:
    """Return the content of a regular file of at most `FILE_BYTES`, for programs that run for one tenant only.

    Raises
    ------
    OSError
        The file does not exist, is a device or a pipe, or is larger.
    """
    path = Path(location)
    # A pipe is not opened: that would wait for its writer.
    if not stat.S_ISREG(path.stat().st_mode):
        raise PathRefusedError(f"{location} is no regular file. Name a file with certificates")
    with path.open("rb") as opened:
        content = opened.read(FILE_BYTES + 1)
    if len(content) > FILE_BYTES:
        raise BoundExceededError(location, f"more than {size(FILE_BYTES)}", size(FILE_BYTES), "Name a smaller file")
    return content


def regular(path: Path) -> BinaryIO:
    """Open a regular file in a directory into which somebody else writes.

    Raises
    ------
    OSError
        It does not exist, or is a link, a device or a pipe.
    """
    # Without O_NONBLOCK, the opening of a pipe would wait for its writer.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise PathRefusedError(f"{path} is a link") from error
        raise
    opened = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
        opened.close()
        raise PathRefusedError(f"{path} is no regular file")
    return opened


_BEGIN: Final = "-----BEGIN "
_END: Final = "-----END "
_DASHES: Final = "-----"
_KIND_CHARACTERS: Final = 64


def pem_blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield kind and content of each PEM block (RFC 7468), in time that grows with the text only.

    A search for the end of each beginning takes hours for a text of beginnings.
    """
    position = 0
    while (start := text.find(_BEGIN, position)) >= 0:
        kind, block, _ = text[start + len(_BEGIN) : start + len(_BEGIN) + _KIND_CHARACTERS].partition(_DASHES)
        content = start + len(_BEGIN) + len(kind) + len(_DASHES)
        if not block:
            position = start + len(_BEGIN)
            continue
        end = text.find(_END, content)
        if end < 0:
            return
        if text.startswith(f"{kind}{_DASHES}", end + len(_END)):
            yield kind, text[content:end]
        position = end + len(_END)
