"""Reads the batches of a log's files in chunks, and finds its end. Nothing of their records is decoded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kraftbridge.exceptions import LogUnavailableError
from kraftbridge.metadata.log.batches import BatchScan, RecordBatch
from kraftbridge.metadata.log.files import LogFiles, listing, snapshot_end

CHUNK_BYTES: Final = 16 << 20
"""Bytes of a file that are in memory at a time. A segment can have a gigabyte (`metadata.log.segment.bytes`)."""


@dataclass(slots=True)
class FileScan:
    """Iterates over the batches of a file in chunks, like `BatchScan` for files that do not fit into memory."""

    files: LogFiles
    name: str
    size_bytes: int
    torn_bytes: int = 0
    """Bytes after the last complete batch; valid after the iteration."""

    def __iter__(self) -> Iterator[RecordBatch]:
        position = 0
        rest = b""
        while position < self.size_bytes:
            data = self.files.read(self.name, position, min(self.size_bytes, position + CHUNK_BYTES))
            if not data:
                break
            joined = rest + data if rest else data  # a join copies the chunk
            scan = BatchScan(joined, self.name, position - len(rest))
            position += len(data)
            yield from scan
            rest = scan.data[scan.end :]
        self.torn_bytes = len(rest)


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The end of a log."""

    offset: int
    """Offset after the last complete batch."""
    append_timestamp_ms: int = -1
    """That batch's append time in milliseconds; -1 if unknown."""


def log_end(files: LogFiles) -> LogEnd:
    """Return the end of a log; reads only the last segment."""
    log = listing(files)
    if log.is_empty:
        raise LogUnavailableError(f"{files.place}: there is neither a log segment nor a snapshot")
    for segment in reversed(log.segments):
        end = LogEnd(segment.base_offset)
        for batch in FileScan(files, segment.name, segment.size_bytes):
            end = LogEnd(batch.last_offset + 1, batch.append_timestamp_ms)
        if end.offset:
            return end
    return LogEnd(snapshot_end(log.newest_snapshot))


def append_timestamp_ms(files: LogFiles, offset: int) -> int:
    """Return the append time of the batch that holds an offset, in milliseconds since the epoch.

    -1 if no segment holds it.

    Raises
    ------
    MetadataError
        The log cannot be read.
    """
    segment = listing(files).segment_at(offset)
    if segment is None:
        return -1
    for batch in FileScan(files, segment.name, segment.size_bytes):
        if batch.base_offset <= offset <= batch.last_offset:
            return batch.append_timestamp_ms
    return -1


def batches(files: LogFiles, name: str) -> Iterator[RecordBatch]:
    """Yield the complete batches of one file."""
    yield from FileScan(files, name, files.sizes()[name])
