"""A copy of a voter's metadata log in one compressed archive: the newest snapshot and the complete batches after it.

Kafka starts a voter from such a copy as it starts one after a crash: it reads the snapshot,
then the segments (``KafkaMetadataLog``, ``LogLoader``).
"""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Final

from typing_extensions import override

from kraftbridge.exceptions import LogUnavailableError
from kraftbridge.metadata.log.files import META_PROPERTIES, LogFiles, LogListing, Segment, listing, snapshot_end
from kraftbridge.metadata.log.scanning import FileScan

EPOCHS: Final = "leader-epoch-checkpoint"
QUORUM_STATE: Final = "quorum-state"
_ARCHIVED_NAME: Final = re.compile(rf"\d{{20}}\.log|\d{{20}}-\d{{10}}\.checkpoint|{EPOCHS}|{META_PROPERTIES}")
_READ_BYTES: Final = 8 << 20
_COMPRESSION_LEVEL: Final = 6


class KeptCopyError(LogUnavailableError):
    """An archive is not a copy of a metadata log."""


@dataclass(frozen=True, slots=True)
class LogCopy:
    """What an archive holds."""

    end_offset: int
    """Offset after the last complete batch."""
    epoch: int
    """Leader epoch of that batch."""
    log_bytes: int
    """Size of its files, uncompressed."""


@dataclass(frozen=True, slots=True)
class _Part:
    name: str
    size_bytes: int


def archive_log(files: LogFiles, target: IO[bytes]) -> LogCopy:
    """Write the newest snapshot and the log after it to ``target``, as a gzip-compressed tar archive.

    The log is read in chunks of 8 MiB, so its size does not count.

    Returns
    -------
    LogCopy
        What was written.

    Raises
    ------
    LogUnavailableError
        The log cannot be read, or holds no complete batch; `FileVanishedError` if Kafka removed a file meanwhile.
    """
    log = listing(files)
    snapshot = log.newest_snapshot
    end_offset = snapshot_end(snapshot)
    epoch = -1
    parts: list[_Part] = []
    if snapshot is not None:
        epoch = snapshot.epoch
        parts.append(_Part(snapshot.name, snapshot.size_bytes))
    parts += (_Part(segment.name, segment.size_bytes) for segment in _after_snapshot(log))
    if log.segments:
        last = log.segments[-1]
        complete_bytes = 0
        for batch in FileScan(files, last.name, last.size_bytes):
            end_offset = batch.last_offset + 1
            epoch = batch.epoch
            complete_bytes = batch.position + batch.size_bytes
        parts[-1] = _Part(last.name, complete_bytes)
    if epoch < 0:
        raise LogUnavailableError(f"{files.place}: the log holds no complete batch")
    epochs = files.read(EPOCHS, 0, files.sizes().get(EPOCHS, 0))
    owner = files.owner()
    about = f"node.id={owner.node_id}\ncluster.id={owner.cluster_id}\n" if owner else ""
    with (
        gzip.GzipFile(fileobj=target, mode="wb", compresslevel=_COMPRESSION_LEVEL, mtime=0) as packed,
        tarfile.open(mode="w|", fileobj=packed) as archive,
    ):
        for part in parts:
            member = tarfile.TarInfo(part.name)
            member.size = part.size_bytes
            archive.addfile(member, io.BufferedReader(_Reader(files, part)))
        for name, data in ((EPOCHS, epochs), (META_PROPERTIES, about.encode())):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return LogCopy(end_offset, epoch, sum(part.size_bytes for part in parts))


def unpack_log(source: IO[bytes], folder: Path, most_bytes: int) -> None:
    """Write the files of an archive into an existing folder, and beside it whose log it is.

    Raises
    ------
    KeptCopyError
        It is not an archive of a log, or larger than ``most_bytes`` uncompressed.
    """
    left_bytes = most_bytes
    try:
        with tarfile.open(mode="r|gz", fileobj=source) as archive:
            for member in archive:
                if _ARCHIVED_NAME.fullmatch(member.name) is None or not member.isreg():
                    raise KeptCopyError(f"the archive holds {member.name!r}, which is no file of a metadata log")
                left_bytes -= member.size
                if left_bytes < 0:
                    raise KeptCopyError(f"the archive is larger than {most_bytes} bytes")
                content = archive.extractfile(member)
                if content is not None:
                    place = folder.parent if member.name == META_PROPERTIES else folder
                    _write(content, place / member.name)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise KeptCopyError(f"the archive cannot be read: {error}") from error


def quorum_state(voters: Sequence[int], epoch: int) -> str:
    """Return the content of a ``quorum-state`` with which a voter begins at ``epoch``, without leader and vote.

    Notes
    -----
    ``QuorumStateData``, version 0, which Kafka 3.9 writes for a static quorum.
    """
    state = {
        "clusterId": "",
        "leaderId": -1,
        "leaderEpoch": epoch,
        "votedId": -1,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": voter} for voter in voters],
        "data_version": 0,
    }
    return json.dumps(state, separators=(",", ":"))


def _after_snapshot(log: LogListing) -> Iterator[Segment]:
    """Yield the segments that hold offsets after the newest snapshot, and the last one in any case."""
    begin = snapshot_end(log.newest_snapshot)
    for segment, following in pairwise(log.segments):
        if following.base_offset > begin:
            yield segment
    yield from log.segments[-1:]


def _write(content: IO[bytes], path: Path) -> None:
    with path.open("wb") as file:
        while chunk := content.read(_READ_BYTES):
            file.write(chunk)


class _Reader(io.RawIOBase):
    """The bytes of one file of a log, as a stream."""

    def __init__(self, files: LogFiles, part: _Part) -> None:
        self._files = files
        self._part = part
        self._position = 0

    @override
    def readable(self) -> bool:
        return True

    @override
    def readinto(self, buffer: Any) -> int:
        end = min(self._position + len(buffer), self._part.size_bytes)
        if self._position >= end:
            return 0
        data = self._files.read(self._part.name, self._position, end)
        if not data:
            raise LogUnavailableError(f"{self._files.place}: {self._part.name} became shorter while it was copied")
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)
