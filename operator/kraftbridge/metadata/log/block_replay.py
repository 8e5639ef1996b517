"""Applies blocks of records to an image: partitions and their changes many at a time, everything else one by one, in order."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np

from kraftbridge.metadata.errors import UndecodableRecordError
from kraftbridge.metadata.log.batches import RecordBatch
from kraftbridge.metadata.log.blocks import Columns, Int64s, RecordBlock, array, can_be_columns, record_block, taken
from kraftbridge.metadata.log.definitions import Decoder, Fields, decoder, record_definitions, unsigned_varint
from kraftbridge.metadata.log.image import PARTITION, PARTITION_CHANGE, ChangeRun, MetadataImage, PartitionRun

_NO_OP: Final = "NoOpRecord"
_NO_OP_BYTES: Final = 4  # frame, type, version, no tagged fields
_ONE_BY_ONE: Final = 0
_FRAME_VERSION: Final = 1  # `AbstractApiMessageSerde.DEFAULT_FRAME_VERSION`
_BLOCK_BYTES: Final = 2 << 20
"""What stays in a processor's cache while its columns are made."""

_decoders: dict[tuple[int, int], tuple[str, Decoder]] = {}


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
        known = _decoders.get((api_key, version))
        if known is None:
            known = _decoders[api_key, version] = decoder(api_key, version)
        name, decode = known
        fields, end = decode(value, position)
    except UndecodableRecordError as error:
        raise UndecodableRecordError(f"offset {offset}: {error}") from error
    except (ValueError, IndexError, struct.error, OverflowError, MemoryError) as error:
        raise UndecodableRecordError(f"offset {offset}: the record does not decode: {error}") from error
    if end != len(value):
        raise UndecodableRecordError(f"offset {offset}: {name} v{version} leaves {len(value) - end} bytes over")
    return name, fields


def decoded_columns(block: RecordBlock) -> dict[tuple[str, int], tuple[Int64s, Columns]]:
    """Return indexes and fields of the plain records of the frequent types, by type and version."""
    found = {}
    for code in np.unique(block.api_keys[~block.odd] << 7 | block.versions[~block.odd]).tolist():
        api_key, version = code >> 7, code & 0x7F
        definition = record_definitions().get(api_key)
        if definition and definition.name in {PARTITION, PARTITION_CHANGE} and can_be_columns(api_key, version):
            found[definition.name, version] = block.columns(api_key, version)
    return found


def apply_batches(
    image: MetadataImage,
    batches: Iterable[RecordBatch],
    *,
    first: int = 0,
    last: int | None = None,
    date: int | None = None,
) -> None:
    """Apply the records of data batches from offset `first` to `last`, inclusive; `date` as for `apply_block`."""
    for part in parts(batches):
        block = record_block(part, first, last)
        if block is not None:
            apply_block(image, block, date)
            continue
        for batch in part:
            for offset, _, value in batch.records():
                if offset >= first and (last is None or offset <= last):
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
            part, size = [], 0
    if part:
        yield part


def apply_block(image: MetadataImage, block: RecordBlock, date: int | None = None) -> None:
    """Apply a block's records.

    Parameters
    ----------
    date
        Offset that stands for all of them: inside a snapshot offsets are positions.

    Raises
    ------
    UndecodableRecordError
        A record is not what Kafka 3.9 writes, or contradicts what came before it.
    """
    if len(block):
        _BlockReplay(image, block, date).apply()


class _BlockReplay:
    """Runs of records: a run is of one type and version, for partitions also of one topic."""

    def __init__(self, image: MetadataImage, block: RecordBlock, date: int | None) -> None:
        self.image, self.block = image, block
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
            first = image.table.append(columns, self.dates[indexes]) if name == PARTITION else 0
            self.codes[indexes] = len(self.parts)
            self.places[indexes] = np.arange(len(indexes))
            self.parts.append((name, columns, first))
            if name == PARTITION:
                halves = array(columns, "topicId").view(np.int64).reshape(-1, 2)
                starts_topic[indexes[1:]] = (halves[1:] != halves[:-1]).any(axis=1)
        self._find_no_ops()
        self.bounds = (
            np.flatnonzero((np.diff(self.codes) != 0) | starts_topic[1:] | (self.codes[1:] == _ONE_BY_ONE)) + 1
        )
        self.waiting: list[tuple[int, Int64s, Int64s]] = []
        """Changes whose rows are known: part, places in it, rows."""

    def _find_no_ops(self) -> None:
        block = self.block
        api_key = next(key for key, definition in record_definitions().items() if definition.name == _NO_OP)
        no_ops = (block.api_keys == api_key) & (block.versions == 0) & (block.ends - block.starts == _NO_OP_BYTES)
        no_ops &= block.octets.view("u1")[block.ends - 1] == 0
        self.codes[no_ops & ~block.odd] = 1

    def apply(self) -> None:
        image = self.image
        begins = [0, *self.bounds.tolist()]
        ends = [*begins[1:], len(self.block)]
        codes = self.codes[begins].tolist()
        places = self.places[begins].tolist()
        dates = self.dates[begins].tolist()
        ids = [array(columns, "partitionId").tolist() if columns else [] for _, columns, _ in self.parts]
        topics = [array(columns, "topicId").tolist() if columns else [] for _, columns, _ in self.parts]
        for begin, end, code, place, date in zip(begins, ends, codes, places, dates, strict=True):
            name, _, first = self.parts[code]
            count = end - begin
            if name == PARTITION:
                rows = range(first + place, first + place + count)
                image.apply_run(name, PartitionRun(topics[code][place], ids[code][place : place + count], rows), date)
            elif name == PARTITION_CHANGE:
                self._change(code, place, count, topics[code], ids[code], begin)
            elif name == _NO_OP:
                image.records += count
            else:
                self._one(begin, date)
        self._flush()
        image.offset = int(self.dates[-1])

    def _one(self, index: int, date: int) -> None:
        name, fields = decoded_record(self.block.value(index), int(self.block.offsets[index]))
        if name in {PARTITION_CHANGE, "EndTransactionRecord"}:
            self._flush()  # order matters among changes of one partition
        self.image.apply(name, fields, date)

    def _change(self, code: int, place: int, count: int, topics: list[bytes], ids: list[int], begin: int) -> None:
        image, name = self.image, PARTITION_CHANGE
        stop = place + count
        if image.open_transaction:
            indexes = np.arange(place, stop)
            columns = {each: taken(column, indexes) for each, column in self.parts[code][1].items()}
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
        """Apply the changes that wait, in their order; usually they are all of one version."""
        waiting, self.waiting = self.waiting, []
        while waiting:
            code = int(self.codes[waiting[0][0]])
            same = 1
            while same < len(waiting) and self.codes[waiting[same][0]] == code:
                same += 1
            part, waiting = waiting[:same], waiting[same:]
            places = np.concatenate([places for _, places, _ in part])
            rows = np.concatenate([rows for _, _, rows in part])
            dates = np.concatenate([self.dates[begin : begin + len(some)] for begin, _, some in part])
            columns: dict[str, Any] = {name: taken(column, places) for name, column in self.parts[code][1].items()}
            self.image.table.change(rows, columns, dates)
