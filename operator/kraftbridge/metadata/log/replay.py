"""Replays one voter's metadata log: the newest usable snapshot, then segments, up to an offset or to the end."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from typing import Any, Final

import numpy as np

from kraftbridge.exceptions import (
    CorruptBatchError,
    LogGapError,
    LogUnavailableError,
    MetadataError,
    UndecodableRecordError,
)
from kraftbridge.metadata.log.batches import BatchScan, ControlType, RecordBatch
from kraftbridge.metadata.log.blocks import Columns, Int64s, RecordBlock, array, can_be_columns, record_block, taken
from kraftbridge.metadata.log.definitions import Decoder, Fields, decoder, record_definitions, unsigned_varint
from kraftbridge.metadata.log.files import (
    FileVanishedError,
    LogFiles,
    LogListing,
    Segment,
    Snapshot,
    listing,
    snapshot_end,
)
from kraftbridge.metadata.log.image import PARTITION, PARTITION_CHANGE, ChangeRun, MetadataImage, PartitionRun
from kraftbridge.metadata.log.scanning import CHUNK_BYTES, FileScan

_LISTING_ATTEMPTS = 5
_LATEST: Final = 2**62
"""Above every offset."""
_NO_OP: Final = "NoOpRecord"
_NO_OP_BYTES: Final = 4  # frame, type, version, no tagged fields
_ONE_BY_ONE: Final = 0
_FRAME_VERSION: Final = 1  # `AbstractApiMessageSerde.DEFAULT_FRAME_VERSION`
_BLOCK_BYTES: Final = 2 << 20
"""Size of a block whose columns fit into a processor's cache."""

_decoders: dict[tuple[int, int], tuple[str, Decoder]] = {}


@dataclass(slots=True)
class LogReplay:
    """Replays a log in steps: call `advance` with an offset, read `image`, and advance again."""

    files: LogFiles
    start_at_most: int | None = None
    """Use a snapshot only if its last offset is not above this one."""
    image: MetadataImage = field(default_factory=MetadataImage)
    """State after the last step."""
    snapshot: Snapshot | None = None
    """Snapshot at the start of the replay."""
    end_offset: int = 0
    """Offset after the last complete batch that was read."""
    torn_tail_bytes: int = 0
    """Bytes of an incomplete last batch: Kafka is writing it, or a crash lost its end (Kafka truncates it at start)."""
    leader_id: int | None = None
    _epochs: list[tuple[int, int]] = field(default_factory=list)
    _segment: Segment | None = None
    _position: int = 0
    _chunk_bytes: int = CHUNK_BYTES
    _waiting: list[RecordBatch] = field(default_factory=list)
    _next_offset: int = 0
    _started: bool = False

    @property
    def snapshot_offset(self) -> int:
        """Offset of the snapshot's last record; -1 without one. Older changes have no offset of their own."""
        return snapshot_end(self.snapshot) - 1

    def epoch_at(self, offset: int) -> int | None:
        """Return the epoch of the batch with an offset; None before the snapshot's end, and if not yet read."""
        index = bisect_right(self._epochs, (offset, 1 << 62)) - 1
        if index < 0 or offset >= self.end_offset:
            return None
        return self._epochs[index][1]

    def advance(self, last_offset: int | None = None) -> MetadataImage:
        """Replay up to `last_offset`, inclusive, or to the current end.

        Raises
        ------
        MetadataError
            The log cannot be read, has a gap, or contains data that Kafka 3.9 does not write.
        """
        try:
            if not self._started:
                self._start()
            limit = _or_latest(last_offset)
            more = True
            while self._apply_waiting(limit) and more:
                more = self._read_on()
        except MetadataError as error:
            raise type(error)(f"{self.files.place}: {error}") from error
        return self.image

    def _start(self) -> None:
        for attempt in range(_LISTING_ATTEMPTS):
            log = listing(self.files)
            self.snapshot = self._usable_snapshot(log)
            try:
                if self.snapshot is not None:
                    self._load_snapshot(self.snapshot)
                break
            except FileVanishedError:
                if attempt == _LISTING_ATTEMPTS - 1:
                    raise
                self.image = MetadataImage()
        self.end_offset = snapshot_end(self.snapshot)
        self._next_offset = self.end_offset
        self._segment = log.segment_at(self.end_offset)
        if self._segment is None and log.segments:
            raise LogGapError(
                f"the log begins at offset {log.segments[0].base_offset}, after the snapshot's end {self.end_offset}"
            )
        self._started = True

    def _usable_snapshot(self, log: LogListing) -> Snapshot | None:
        if log.is_empty:
            raise LogUnavailableError("there is neither a log segment nor a snapshot")
        limit = _or_latest(self.start_at_most)
        return next((snapshot for snapshot in reversed(log.snapshots) if 0 < snapshot.end_offset <= limit + 1), None)

    def _load_snapshot(self, snapshot: Snapshot) -> None:
        scan = FileScan(self.files, snapshot.name, snapshot.size_bytes)
        control: list[int] = []

        def data_batches() -> Iterator[RecordBatch]:
            for batch in scan:
                if batch.is_control:
                    control.extend(batch.control_types())
                elif ControlType.SNAPSHOT_FOOTER in control:
                    raise CorruptBatchError(f"{snapshot.name} continues after its footer")
                else:
                    yield batch

        # Inside a snapshot offsets are positions. The records are at most as old as the snapshot.
        apply_batches(self.image, data_batches(), date=snapshot.end_offset - 1)
        framed = control[:1] == [ControlType.SNAPSHOT_HEADER] and control[-1:] == [ControlType.SNAPSHOT_FOOTER]
        if scan.torn_bytes or not framed:
            raise CorruptBatchError(
                f"{snapshot.name} is incomplete: {scan.torn_bytes} bytes left over, control records {control}"
            )
        self.image.offset = snapshot.end_offset - 1
        self.image.epoch = snapshot.epoch
        self.image.removed.clear()

    def _apply_waiting(self, last_offset: int) -> bool:
        """Apply buffered records; return whether `last_offset` needs more of them."""
        image = self.image
        ready = [batch for batch in self._waiting if batch.base_offset <= last_offset]
        apply_batches(image, ready, first=self._next_offset, last=last_offset)
        self._waiting = [batch for batch in self._waiting if batch.last_offset > last_offset]
        read = min(last_offset, self.end_offset - 1)
        image.offset = max(image.offset, read)  # control batches count as read
        self._next_offset = max(self._next_offset, image.offset + 1)
        return not self._waiting and image.offset < last_offset

    def _read_on(self) -> bool:
        """Read the current segment; return whether there is more of it, or another segment after it."""
        if self._segment is None:
            return False
        base = self._segment.base_offset
        segments = [segment for segment in listing(self.files).segments if segment.base_offset >= base]
        if not segments or segments[0].base_offset > base:
            raise LogUnavailableError(f"{self._segment.name} was deleted while it was read")
        current, *later = segments
        end = min(current.size_bytes, self._position + self._chunk_bytes)
        scan = BatchScan(self.files.read(current.name, self._position, end), current.name, self._position)
        for batch in scan:
            self._take(batch, current.name)
        self._position += scan.end
        if end < current.size_bytes:
            # Without any progress, a batch is longer than the chunk.
            self._chunk_bytes = CHUNK_BYTES if scan.end else 2 * self._chunk_bytes
            return True
        self.torn_tail_bytes = scan.torn_bytes
        if not later:
            return False
        if not scan.torn_bytes:
            self._begin(later[0], current)
        elif not self._is_grown(current):
            raise CorruptBatchError(f"{current.name} ends with {scan.torn_bytes} bytes that are no batch")
        return True

    def _begin(self, segment: Segment, previous: Segment) -> None:
        if segment.base_offset != self.end_offset:
            raise LogGapError(f"{previous.name} ends at offset {self.end_offset}, {segment.name} begins later")
        self._segment = segment
        self._position = 0

    def _is_grown(self, before: Segment) -> bool:
        now = self.files.sizes().get(before.name, 0)
        return now > before.size_bytes

    def _take(self, batch: RecordBatch, name: str) -> None:
        if batch.last_offset < self.end_offset:
            return  # before the snapshot's end
        if self._epochs:
            self._follow(batch, name)
        elif batch.base_offset > self.end_offset:
            raise LogGapError(
                f"{name}: the snapshot ends at {self.end_offset}, the log continues at {batch.base_offset}"
            )
        else:
            self._epochs.append((batch.base_offset, batch.epoch))
        self.image.epoch = batch.epoch
        if not batch.is_control:
            self._waiting.append(batch)
        self.end_offset = batch.last_offset + 1

    def _follow(self, batch: RecordBatch, name: str) -> None:
        """Check that a batch follows the one before it, and note its epoch if that is new."""
        if batch.base_offset != self.end_offset:
            raise LogGapError(f"{name}: offset {self.end_offset} is followed by {batch.base_offset}")
        _, epoch = self._epochs[-1]
        if batch.epoch < epoch:
            raise CorruptBatchError(f"{name}: epoch falls from {epoch} to {batch.epoch}")
        if batch.epoch > epoch:
            self._epochs.append((batch.base_offset, batch.epoch))


def _or_latest(offset: int | None) -> int:
    return _LATEST if offset is None else offset


def records_of(files: LogFiles, types: AbstractSet[str]) -> Iterator[tuple[int, str, Fields]]:
    """Yield offset, type and fields of the records of some types in all segments, in order.

    Raises
    ------
    MetadataError
        The log cannot be read.
    """
    keys = [key for key, definition in record_definitions().items() if definition.name in types]
    for segment in listing(files).segments:
        scan = FileScan(files, segment.name, segment.size_bytes)
        for part in parts(batch for batch in scan if not batch.is_control):
            for offset, value in _values_of(part, keys):
                yield offset, *decoded_record(value, offset)


def _values_of(batches: Sequence[RecordBatch], keys: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    block = record_block(batches, 0, None)
    if block is None:
        values = ((offset, value) for batch in batches for offset, _, value in batch.records())
    else:
        chosen = np.flatnonzero(block.odd | np.isin(block.api_keys, keys)).tolist()
        values = ((int(block.offsets[index]), block.value(index)) for index in chosen)
    yield from ((offset, value) for offset, value in values if value and _api_key(value) in keys)


def _api_key(value: bytes) -> int:
    _, position = unsigned_varint(value, 0)
    return unsigned_varint(value, position)[0]


def decoded_record(value: bytes | None, offset: int) -> tuple[str, Fields]:
    """Return type and fields of a record's value.

    Raises
    ------
    UndecodableRecordError
        Frame, type, version or content are not what Kafka 3.9 writes.
    """
    if value is None:
        raise UndecodableRecordError(f"offset {offset}: the record has no value")
    try:
        frame, position = unsigned_varint(value, 0)
        if frame != _FRAME_VERSION:
            raise UndecodableRecordError(f"unknown frame version {frame}")  # noqa: TRY301 - same handling as the others
        api_key, position = unsigned_varint(value, position)
        version, position = unsigned_varint(value, position)
        named_decoder = _decoders.get((api_key, version))
        if named_decoder is None:
            named_decoder = _decoders[api_key, version] = decoder(api_key, version)
        name, decode = named_decoder
        fields, end = decode(value, position)
    except UndecodableRecordError as error:
        raise UndecodableRecordError(f"offset {offset}: {error}") from error
    except (ValueError, IndexError, struct.error, OverflowError, MemoryError) as error:
        raise UndecodableRecordError(f"offset {offset}: the record does not decode: {error}") from error
    if end != len(value):
        raise UndecodableRecordError(f"offset {offset}: {name} v{version} leaves {len(value) - end} bytes over")
    return name, fields


def decoded_columns(block: RecordBlock) -> dict[tuple[str, int], tuple[Int64s, Columns]]:
    """Return indexes and fields of the regular records of the frequent types, by type and version."""
    decoded = {}
    frequent = {_api_key_of(name): name for name in (PARTITION, PARTITION_CHANGE)}
    for code in np.unique(block.api_keys[~block.odd] << 7 | block.versions[~block.odd]).tolist():
        api_key = code >> 7
        version = code & 0x7F
        if api_key in frequent and can_be_columns(api_key, version):
            decoded[frequent[api_key], version] = block.columns(api_key, version)
    return decoded


@cache
def _api_key_of(name: str) -> int:
    return next(key for key, definition in record_definitions().items() if definition.name == name)


def apply_batches(
    image: MetadataImage,
    batches: Iterable[RecordBatch],
    *,
    first: int = 0,
    last: int | None = None,
    date: int | None = None,
) -> None:
    """Apply the records of data batches from offset `first` to `last`, inclusive; `date` as in `apply_block`."""
    for part in parts(batches):
        block = record_block(part, first, last)
        if block is not None:
            apply_block(image, block, date)
        else:
            _apply_one_by_one(image, part, range(first, _or_latest(last) + 1), date)


def _apply_one_by_one(image: MetadataImage, batches: Iterable[RecordBatch], offsets: range, date: int | None) -> None:
    for batch in batches:
        for offset, _, value in batch.records():
            if offset in offsets:
                image.apply(*decoded_record(value, offset), offset if date is None else date)


def parts(batches: Iterable[RecordBatch]) -> Iterator[list[RecordBatch]]:
    """Yield batches in lists whose records fit into a block."""
    part: list[RecordBatch] = []
    size = 0
    for batch in batches:
        part.append(batch)
        size += len(batch.payload)
        if size >= _BLOCK_BYTES:
            yield part
            part = []
            size = 0
    if part:
        yield part


def apply_block(image: MetadataImage, block: RecordBlock, date: int | None = None) -> None:
    """Apply a block's records.

    Parameters
    ----------
    date
        Offset for all records, because inside a snapshot offsets are positions.

    Raises
    ------
    UndecodableRecordError
        A record is not what Kafka 3.9 writes, or contradicts earlier records.
    """
    if len(block):
        _BlockReplay(image, block, date).apply()


class _BlockReplay:
    """Applies runs of records. A run has one type and version; a run of partitions also has one topic."""

    def __init__(self, image: MetadataImage, block: RecordBlock, date: int | None) -> None:
        self.image = image
        self.block = block
        size = len(block)
        self.dates = block.offsets if date is None else np.full(size, date, np.int64)
        self.codes = np.zeros(size, np.int64)
        """What a record is part of: nothing, no-ops, or the columns of one type and version."""
        self.places = np.zeros(size, np.int64)
        """A record's place in its columns."""
        self.parts: list[tuple[str, Columns, int]] = [("", {}, 0), (_NO_OP, {}, 0)]
        starts_topic = np.zeros(size, np.bool_)
        for (name, _), (indexes, columns) in decoded_columns(block).items():
            if not len(indexes):
                continue
            first = 0
            if name == PARTITION:
                first = image.table.append(columns, self.dates[indexes])
                halves = array(columns, "topicId").view(np.int64).reshape(-1, 2)
                starts_topic[indexes[1:]] = (halves[1:] != halves[:-1]).any(axis=1)
            self.codes[indexes] = len(self.parts)
            self.places[indexes] = np.arange(len(indexes))
            self.parts.append((name, columns, first))
        self._find_no_ops()
        starts_run = (np.diff(self.codes) != 0) | starts_topic[1:] | (self.codes[1:] == _ONE_BY_ONE)
        self.bounds = np.flatnonzero(starts_run) + 1
        self.waiting: list[tuple[int, Int64s, Int64s]] = []
        """Changes whose rows are known: part, places in it, rows."""

    def _find_no_ops(self) -> None:
        block = self.block
        no_ops = (block.api_keys == _api_key_of(_NO_OP)) & (block.versions == 0)
        no_ops &= block.ends - block.starts == _NO_OP_BYTES
        no_ops &= block.octets.view("u1")[block.ends - 1] == 0
        self.codes[no_ops & ~block.odd] = 1

    def apply(self) -> None:
        image = self.image
        begins = [0, *self.bounds.tolist()]
        ends = [*begins[1:], len(self.block)]
        codes = self.codes[begins].tolist()
        places = self.places[begins].tolist()
        dates = self.dates[begins].tolist()
        ids = [_listed(columns, "partitionId") for _, columns, _ in self.parts]
        topics = [_listed(columns, "topicId") for _, columns, _ in self.parts]
        for begin, end, code, place, date in zip(begins, ends, codes, places, dates, strict=True):
            name, _, first = self.parts[code]
            count = end - begin
            if name == PARTITION:
                rows = range(first + place, first + place + count)
                image.apply_run(name, PartitionRun(topics[code][place], ids[code][place : place + count], rows), date)
            elif name == PARTITION_CHANGE:
                self._change(code, place, count, topics[code], ids[code], begin)
            elif name == _NO_OP:
                self._no_ops(count, date)
            else:
                self._one(begin, date)
        self._flush()
        image.offset = int(self.dates[-1])

    def _no_ops(self, count: int, date: int) -> None:
        if not self.image.open_transaction:
            self.image.records += count
            return
        for _ in range(count):  # counted among the aborted records if the transaction is aborted
            self.image.apply(_NO_OP, {}, date)

    def _one(self, index: int, date: int) -> None:
        name, fields = decoded_record(self.block.value(index), int(self.block.offsets[index]))
        if name in {PARTITION_CHANGE, "EndTransactionRecord"}:
            self._flush()  # order matters among changes of one partition
        self.image.apply(name, fields, date)

    def _change(self, code: int, place: int, count: int, topics: list[bytes], ids: list[int], begin: int) -> None:
        image = self.image
        name = PARTITION_CHANGE
        stop = place + count
        if image.open_transaction:
            indexes = np.arange(place, stop)
            columns = self._columns(code, indexes)
            dates = self.dates[begin : begin + count]
            image.apply_run(name, ChangeRun(topics[place:stop], ids[place:stop], columns, dates), int(dates[0]))
            return
        try:
            rows = image.partition_rows(topics[place:stop], ids[place:stop])
        except KeyError as error:
            offset = int(self.dates[begin])
            raise UndecodableRecordError(f"offset {offset}: {name} refers to {error}, which does not exist") from error
        image.records += count
        self.waiting.append((begin, np.arange(place, stop), rows))

    def _flush(self) -> None:
        """Apply the buffered changes in their order; usually all of them have one version."""
        waiting = self.waiting
        self.waiting = []
        for code, changes in groupby(waiting, key=lambda change: int(self.codes[change[0]])):
            part = list(changes)
            places = np.concatenate([places for _, places, _ in part])
            rows = np.concatenate([rows for _, _, rows in part])
            dates = np.concatenate([self.dates[begin : begin + len(some)] for begin, _, some in part])
            self.image.table.change(rows, self._columns(code, places), dates)

    def _columns(self, code: int, places: Int64s) -> Columns:
        """Return some places of a part's columns."""
        return {name: taken(column, places) for name, column in self.parts[code][1].items()}


def _listed(columns: Columns, name: str) -> list[Any]:
    return array(columns, name).tolist() if columns else []
