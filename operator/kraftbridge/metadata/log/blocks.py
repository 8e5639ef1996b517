"""Decodes many records at once: finds their positions in the batches, and reads fields of frequent types as columns.

A cluster's log consists mostly of `PartitionRecord` and `PartitionChangeRecord`.
This module reads their fields from the batches' bytes with numpy, one field for thousands of records at a time.
It uses the same message definitions as the decoders of single records (`kraftbridge.metadata.log.definitions`).
It leaves damaged and unusual records to those decoders, which decode them or report the error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kraftbridge.metadata.log.batches import RecordBatch
from kraftbridge.metadata.log.definitions import FieldDefinition, record_definitions

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_PADDING: Final = bytes(32)
"""Reads of a field of a damaged record may go this far beyond the last record. Later checks detect them."""
_FORMATS: Final[Mapping[str, str]] = {
    "bool": "i1",
    "int8": "i1",
    "int16": ">i2",
    "uint16": ">u2",
    "int32": ">i4",
    "uint32": ">u4",
    "int64": ">i8",
    "uuid": "V16",
}
_MAXIMUM_TAGS: Final = 16
_CONTINUED: Final = 0x80
_FRAME_VERSION: Final = 1
_MAXIMUM_UINT32: Final = 2**32 - 1
_VARINT_BYTES: Final = 5
_VARLONG_BYTES: Final = 10
_FRAME_BYTES: Final = 3
_NONE: Final = np.zeros(0, np.int64)
_LOOK_AHEAD: Final = 8
_MAXIMUM_RUN: Final = 512


@dataclass(frozen=True, slots=True)
class Lists:
    """A column of lists: their lengths (-1: null) and all of their elements, one list after the other."""

    counts: Int64s
    elements: npt.NDArray[Any]

    @classmethod
    def of(cls, values: Sequence[Sequence[Any] | None], element_format: str) -> Lists:
        """Return a column of a few lists."""
        counts = np.array([-1 if value is None else len(value) for value in values], np.int64)
        flat = [element for value in values if value for element in value]
        if element_format == "V16":
            return cls(counts, np.frombuffer(b"".join(flat), "V16"))
        return cls(counts, np.array(flat, element_format))

    def taken(self, indexes: Int64s) -> Lists:
        """Return the lists at some indexes."""
        lengths = np.maximum(self.counts, 0)
        starts = np.cumsum(lengths) - lengths
        return Lists(self.counts[indexes], self.elements[spread(starts[indexes], lengths[indexes])])


Column = npt.NDArray[Any] | Lists
Columns = dict[str, Column]


def spread(starts: Int64s, counts: Int64s, step: int = 1) -> Int64s:
    """Return ``start, start + step, …`` for each start, with the given number of values each, concatenated."""
    total = int(counts.sum())
    before = np.cumsum(counts) - counts
    return np.repeat(starts - step * before, counts) + step * np.arange(total, dtype=np.int64)


class Octets:
    """Bytes, viewed as values of any format that can begin at every byte."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._views: dict[str, npt.NDArray[Any]] = {}

    def view(self, format_: str) -> npt.NDArray[Any]:
        """Return the values of one format."""
        view = self._views.get(format_)
        if view is None:
            count = len(self.data) - np.dtype(format_).itemsize + 1
            view = self._views[format_] = np.ndarray((count,), format_, self.data, strides=(1,))
        return view


@dataclass(slots=True)
class RecordBlock:
    """Records of some batches: offsets, types, and positions of their values."""

    octets: Octets
    offsets: Int64s
    starts: Int64s
    ends: Int64s
    api_keys: Int64s
    versions: Int64s
    odd: Bools
    """Records whose value does not begin with a known frame."""

    def __len__(self) -> int:
        return len(self.offsets)

    def value(self, index: int) -> bytes:
        """Return a record's value."""
        return self.octets.data[self.starts[index] : self.ends[index]]

    def columns(self, api_key: int, version: int) -> tuple[Int64s, Columns]:
        """Return the indexes of the regular records of one type and version, and their fields."""
        chosen = np.flatnonzero(~self.odd & (self.api_keys == api_key) & (self.versions == version))
        definition = record_definitions()[api_key]
        walk = _Walk(
            self.octets, self.starts[chosen] + _FRAME_BYTES, self.ends[chosen]
        )  # after frame, type and version
        columns = walk.structure([field for field in definition.fields if version in field.versions], version)
        walk.odd |= walk.positions != walk.ends
        if walk.odd.any():
            self.odd[chosen[walk.odd]] = True
            plain = np.flatnonzero(~walk.odd)
            return chosen[plain], {name: taken(column, plain) for name, column in columns.items()}
        return chosen, columns


def array(columns: Columns, name: str) -> npt.NDArray[Any]:
    """Return a column that is not a list."""
    column = columns[name]
    assert isinstance(column, np.ndarray)
    return column


def taken(column: Column, indexes: Int64s) -> Column:
    """Return a column's values at some indexes."""
    return column.taken(indexes) if isinstance(column, Lists) else column[indexes]


def can_be_columns(api_key: int, version: int) -> bool:
    """Return whether every field of a record type can be stored in columns."""
    definition = record_definitions().get(api_key)
    if definition is None or version not in definition.versions:
        return False
    return all(field.type.removeprefix("[]") in _FORMATS and field.type != "[]bool" for field in definition.fields)


def record_block(batches: Sequence[RecordBatch], first: int, last: int | None) -> RecordBlock | None:
    """Return the records from offset `first` to `last`, inclusive; None if a batch contains irregular records."""
    data = b"".join([*(batch.payload for batch in batches), _PADDING])
    runs: list[tuple[int, int, int, int]] = []
    position = 0
    counts = []
    for batch in batches:
        end = position + len(batch.payload)
        if not _find_records(data, position, end, batch.count, runs):
            return None
        position = end
        counts.append(batch.count)
    starts, lengths, widths, repeats = np.array(runs, np.int64).reshape(-1, 4).T
    begins = np.repeat(starts, repeats) + np.repeat(lengths, repeats) * spread(np.zeros_like(starts), repeats)
    bases = np.repeat(np.array([batch.base_offset for batch in batches], np.int64), counts)
    octets = Octets(data)
    after_attributes = begins + np.repeat(widths, repeats) + 1
    walk = _Walk(octets, after_attributes, begins + np.repeat(lengths, repeats))
    walk.varint(_VARLONG_BYTES)  # the timestamp
    offsets = bases + _zigzag(walk.varint())
    key_lengths = _zigzag(walk.varint())
    value_lengths = _zigzag(walk.varint())
    value_starts = walk.positions
    value_ends = value_starts + value_lengths
    view = octets.view("u1")
    usual = (key_lengths == -1) & (value_lengths >= 0) & (value_ends + 1 == walk.ends) & ~walk.odd
    if not usual.all() or view[value_ends].any() or (np.diff(offsets) <= 0).any():
        return None  # the record has keys or headers, or is damaged
    frame_end = np.minimum(value_starts, value_ends)
    frames, api_keys, versions = (view[frame_end + index].astype(np.int64) for index in range(_FRAME_BYTES))
    odd = (
        (frames != _FRAME_VERSION)
        | (api_keys >= _CONTINUED)
        | (versions >= _CONTINUED)
        | (value_lengths < _FRAME_BYTES)
    )
    block = RecordBlock(octets, offsets, value_starts, value_ends, api_keys, versions, odd)
    wanted = offsets >= first
    if last is not None:
        wanted &= offsets <= last
    if not wanted.all():
        for name in ("offsets", "starts", "ends", "api_keys", "versions", "odd"):
            setattr(block, name, getattr(block, name)[wanted])
    return block


def _find_records(data: bytes, position: int, end: int, count: int, runs: list[tuple[int, int, int, int]]) -> bool:
    """Append runs of equal records: start, length, bytes of the length field, count; False if they do not fit."""
    left = count
    while left > 0:
        if position >= end:
            return False
        length = data[position]
        width = 1
        if length >= _CONTINUED:
            length = length & 0x7F | data[position + 1] << 7
            width = 2
            if length >= _CONTINUED << 7:
                length = length & 0x3FFF | data[position + 2] << 14
                width = 3
                if length >= _CONTINUED << 14:
                    return False  # a record of a megabyte
        if length & 1:
            return False
        length = (length >> 1) + width
        if position + length > end or length <= width:
            return False
        repeats = 1
        ahead = position + _LOOK_AHEAD * length
        if left > _LOOK_AHEAD and ahead + width < end and data[ahead] == data[position]:
            # Each record's length gives the start of the next. While the lengths are equal, all starts are known.
            most = min(left, (end - position) // length, _MAXIMUM_RUN)
            heads = np.frombuffer(data, np.uint8, most * length, position).reshape(most, length)
            different = heads[:, 0] != data[position]
            for index in range(1, width):
                different |= heads[:, index] != data[position + index]
            repeats = int(different.argmax()) or most
        runs.append((position, length, width, repeats))
        position += length * repeats
        left -= repeats
    return position == end and left == 0


def _zigzag(values: Int64s) -> Int64s:
    return (values >> 1) ^ -(values & 1)


class _Walk:
    """Reads one field after the other of many records. One that does not fit becomes odd, and its position stays."""

    def __init__(self, octets: Octets, positions: Int64s, ends: Int64s) -> None:
        self.octets = octets
        self.positions = np.minimum(positions, ends)
        self.ends = ends
        self.odd: Bools = positions > ends

    def _move(self, positions: Int64s) -> None:
        beyond = positions > self.ends
        if beyond.any():
            self.odd |= beyond
            positions = np.where(beyond, self.positions, positions)
        self.positions = positions

    def varint(self, maximum_bytes: int = _VARINT_BYTES) -> Int64s:
        """Read unsigned varints."""
        view = self.octets.view("u1")
        values = view[self.positions].astype(np.int64)
        positions = self.positions + 1
        continued = values >= _CONTINUED
        if continued.any():
            # Read one or two bytes for all values at once; longer values are rare.
            second = np.where(continued, view[positions], 0).astype(np.int64)
            values = (values & 0x7F) | (second & 0x7F) << 7
            positions += continued
            more = np.flatnonzero(second >= _CONTINUED)
        else:
            more = _NONE
        if len(more):
            long_values = values[more]
            at = positions[more]
            going = np.arange(len(more))
            for shift in range(14, 7 * maximum_bytes, 7):
                read = view[np.minimum(at[going], len(view) - 1)].astype(np.int64)
                long_values[going] |= (read & 0x7F) << shift
                at[going] += 1
                going = going[read >= _CONTINUED]
                if not len(going):
                    break
            self.odd[more[going]] = True
            self.odd[more[long_values > _MAXIMUM_UINT32]] |= maximum_bytes == _VARINT_BYTES
            values[more] = long_values
            positions[more] = at
        self._move(positions)
        return values

    def number(self, kind: str) -> npt.NDArray[Any]:
        """Read values of a fixed size."""
        view = self.octets.view(_FORMATS[kind])
        values: npt.NDArray[Any] = view[self.positions]
        self._move(self.positions + view.itemsize)
        if kind == "bool":
            values = values != 0
        elif kind != "uuid":
            values = values.astype(values.dtype.newbyteorder("="))
        return values

    def spans(self, kind: str, *, nullable: bool) -> tuple[Int64s, Int64s]:
        """Read lists: the position and the length of each (-1: null)."""
        width = np.dtype(_FORMATS[kind]).itemsize
        counts = self.varint() - 1
        if not nullable:
            self.odd |= counts < 0
        sizes = width * np.maximum(counts, 0)
        starts = self.positions
        wrong = self.odd | (starts + sizes > self.ends)
        if wrong.any():
            self.odd |= wrong
            counts = np.where(wrong, -1, counts)
            sizes = np.where(wrong, 0, sizes)
        self.positions = starts + sizes
        return starts, counts

    def lists(self, kind: str, starts: Int64s, counts: Int64s) -> Lists:
        """Return the lists that begin at these positions."""
        view = self.octets.view(_FORMATS[kind])
        elements = view[spread(starts, np.maximum(counts, 0), view.itemsize)]
        return Lists(counts, elements if kind == "uuid" else elements.astype(elements.dtype.newbyteorder("=")))

    def structure(self, fields: Sequence[FieldDefinition], version: int) -> Columns:
        """Read a record's fields in their order, and the tagged fields (KIP-482) after the others."""
        columns: Columns = {}
        tagged: list[FieldDefinition] = []
        for field in fields:
            if version in field.tagged:
                tagged.append(field)
            elif field.type.startswith("[]"):
                kind = field.type[2:]
                columns[field.name] = self.lists(kind, *self.spans(kind, nullable=version in field.nullable))
            else:
                columns[field.name] = self.number(field.type)
        return columns | self._tags(tagged, version)

    def _tags(self, fields: Sequence[FieldDefinition], version: int) -> Columns:
        size = len(self.positions)
        numbers = self.varint()
        self.odd |= numbers > _MAXIMUM_TAGS
        values: dict[str, npt.NDArray[Any]] = {}
        spans: dict[str, tuple[Int64s, Int64s]] = {}
        for field in fields:
            if field.type.startswith("[]"):
                spans[field.name] = np.zeros(size, np.int64), np.full(size, -1 if field.default == "null" else 0)
            else:
                format_ = np.dtype(_FORMATS[field.type]).newbyteorder("=")
                values[field.name] = np.full(size, int(str(field.default or 0)), format_)
        highest = min(int(numbers.max(initial=0)), _MAXIMUM_TAGS)
        previous = np.full(size, -1, np.int64)
        for index in range(highest):
            rows = np.flatnonzero((numbers > index) & ~self.odd)
            walk = _Walk(self.octets, self.positions[rows], self.ends[rows])
            tags = walk.varint()
            lengths = walk.varint()
            walk.odd |= tags <= previous[rows]  # in order, each once (`RawTaggedFieldWriter`)
            previous[rows] = tags
            walk._move(walk.positions + lengths)
            self.odd[rows[walk.odd]] = True
            ends = walk.positions
            for field in fields:
                mine = np.flatnonzero((tags == field.tag) & ~walk.odd)
                if not len(mine):
                    continue
                inner = _Walk(self.octets, ends[mine] - lengths[mine], ends[mine])
                if field.type.startswith("[]"):
                    starts, counts = inner.spans(field.type[2:], nullable=version in field.nullable)
                    spans[field.name][0][rows[mine]] = starts
                    spans[field.name][1][rows[mine]] = counts
                else:
                    values[field.name][rows[mine]] = inner.number(field.type)
                inner.odd |= inner.positions != inner.ends
                self.odd[rows[mine[inner.odd]]] = True
            self.positions[rows] = ends
        types = {field.name: field.type[2:] for field in fields}
        return {**values, **{name: self.lists(types[name], *span) for name, span in spans.items()}}
