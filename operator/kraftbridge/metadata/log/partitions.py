"""Partitions of an image as columns, and their canonical entities as Arrow columns.

A cluster can have a million partitions. One dictionary for each would be too slow and too large.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kraftbridge.metadata.entities import Form, uuid_text
from kraftbridge.metadata.log.blocks import Columns, Int64s, Lists, array, spread

NO_LEADER_CHANGE: Final = -2
NUMBERS: Final = ("partitionId", "leader", "leaderRecoveryState", "leaderEpoch", "partitionEpoch")
BROKER_LISTS: Final = (
    "replicas",
    "isr",
    "removingReplicas",
    "addingReplicas",
    "eligibleLeaderReplicas",
    "lastKnownElr",
)
DIRECTORIES: Final = "directories"
LISTS: Final = (*BROKER_LISTS, DIRECTORIES)
_UUID: Final = "V16"
_FIRST_CAPACITY: Final = 64


def element_format(name: str) -> str:
    """Return the numpy format of a list's elements."""
    return _UUID if name == DIRECTORIES else "i4"


class _Growing:
    """An array that grows at its end."""

    def __init__(self, format_: str) -> None:
        self._array: npt.NDArray[Any] = np.empty(_FIRST_CAPACITY, format_)
        self.size = 0

    @property
    def values(self) -> npt.NDArray[Any]:
        return self._array[: self.size]

    def append(self, values: npt.NDArray[Any]) -> int:
        """Append values; return the index of the first."""
        first, end = self.size, self.size + len(values)
        if end > len(self._array):
            grown = np.empty(max(end, 2 * len(self._array)), self._array.dtype)
            grown[:first] = self.values
            self._array = grown
        self._array[first:end] = values
        self.size = end
        return first


class _ListColumn:
    """Lists with their latest values. The elements of earlier values remain in the array."""

    def __init__(self, format_: str) -> None:
        self._starts = _Growing("i8")
        self._counts = _Growing("i4")
        self._elements = _Growing(format_)

    def append(self, lists: Lists) -> None:
        self._starts.append(self._elements_starts(lists))
        self._counts.append(lists.counts)

    def put(self, rows: Int64s, lists: Lists) -> None:
        self._starts.values[rows] = self._elements_starts(lists)
        self._counts.values[rows] = lists.counts

    def _elements_starts(self, lists: Lists) -> Int64s:
        lengths = np.maximum(lists.counts, 0)
        return self._elements.append(lists.elements) + np.cumsum(lengths) - lengths

    def taken(self, rows: Int64s) -> Lists:
        counts = self._counts.values[rows].astype(np.int64)
        starts = self._starts.values[rows]
        return Lists(counts, self._elements.values[spread(starts, np.maximum(counts, 0))])


class PartitionTable:
    """Rows of partitions. A row always belongs to the same partition; a partition can move to another row."""

    def __init__(self) -> None:
        self._numbers = {name: _Growing("i1" if name == "leaderRecoveryState" else "i4") for name in NUMBERS}
        self._lists = {name: _ListColumn(element_format(name)) for name in LISTS}
        self._offsets = _Growing("i8")

    def append(self, columns: Columns, offsets: Int64s) -> int:
        """Append rows with the fields of `PartitionRecord`s; return the first."""
        for name, growing in self._numbers.items():
            growing.append(array(columns, name))
        absent = Lists(np.full(len(offsets), -1, np.int64), np.empty(0, np.int32))
        for name, column in self._lists.items():
            lists = columns.get(name)  # older versions have fewer
            column.append(
                lists if isinstance(lists, Lists) else Lists(absent.counts, np.empty(0, element_format(name)))
            )
        return self._offsets.append(offsets)

    def change(self, rows: Int64s, columns: Columns, offsets: Int64s) -> None:
        """Apply the fields of `PartitionChangeRecord`s in their order, as `PartitionRegistration.merge` does."""
        for name, column in self._lists.items():
            lists = columns.get(name)
            if isinstance(lists, Lists):
                given = _last(rows, lists.counts >= 0)
                if len(given):
                    column.put(rows[given], lists.taken(given))
        numbers = {name: growing.values for name, growing in self._numbers.items()}
        leader, recovery = array(columns, "leader"), array(columns, "leaderRecoveryState")
        elected = _last(rows, leader != NO_LEADER_CHANGE)
        numbers["leader"][rows[elected]] = leader[elected]
        np.add.at(numbers["leaderEpoch"], rows[leader != NO_LEADER_CHANGE], 1)
        recovering = _last(rows, recovery >= 0)
        numbers["leaderRecoveryState"][rows[recovering]] = recovery[recovering]
        np.add.at(numbers["partitionEpoch"], rows, 1)
        np.maximum.at(self._offsets.values, rows, offsets)

    def date(self, rows: Int64s | slice, offset: int) -> None:
        """Set the offset of the last record that changed some rows."""
        self._offsets.values[rows] = offset

    def numbers(self, name: str, rows: Int64s) -> npt.NDArray[Any]:
        """Return a column of `NUMBERS`."""
        return self._numbers[name].values[rows]

    def lists(self, name: str, rows: Int64s) -> Lists:
        """Return a column of `LISTS`."""
        return self._lists[name].taken(rows)

    def offsets(self, rows: Int64s) -> Int64s:
        """Return the offset of the last record that changed each row."""
        return self._offsets.values[rows]

    def fields(self, row: int) -> dict[str, Any]:
        """Return one row as fields of its record."""
        rows = np.array([row])
        result: dict[str, Any] = {name: growing.values[row].item() for name, growing in self._numbers.items()}
        for name, column in self._lists.items():
            lists = column.taken(rows)
            result[name] = None if lists.counts[0] < 0 else tuple(lists.elements.tolist())
        return result


def columns_of(records: Sequence[Mapping[str, Any]]) -> Columns:
    """Return fields of single `PartitionRecord`s or `PartitionChangeRecord`s as columns."""
    columns: Columns = {
        name: np.array([record[name] for record in records], np.int64) for name in NUMBERS if name in records[0]
    }
    for name in LISTS:
        if name in records[0]:
            columns[name] = Lists.of([record[name] for record in records], element_format(name))
    return columns


def _last(rows: Int64s, chosen: npt.NDArray[np.bool_]) -> Int64s:
    """Return the index of the last occurrence of each chosen row. numpy does not define the order of repeated assignments."""
    indexes = np.flatnonzero(chosen)
    _, last = np.unique(rows[indexes][::-1], return_index=True)
    return indexes[len(indexes) - 1 - last]


_SETS: Final = frozenset({"isr", "addingReplicas", "removingReplicas"})
"""Lists without a significant order. The order of `replicas` is significant (the first replica is preferred)."""
_MIRRORED: Final = (
    "addingReplicas",
    "isr",
    "leader",
    "leaderEpoch",
    "leaderRecoveryState",
    "removingReplicas",
    "replicas",
)
FIELDS: Final = {
    Form.MIRRORED: _MIRRORED,
    Form.WHOLE: (*_MIRRORED, DIRECTORIES, "eligibleLeaderReplicas", "lastKnownElr", "partitionEpoch"),
    Form.SERVED: ("isr", "leader", "leaderEpoch", "replicas"),
}
_LIST_FIELDS: Final = frozenset({*_SETS, "replicas", DIRECTORIES, "eligibleLeaderReplicas", "lastKnownElr"})


def partition_values(table: PartitionTable, rows: Int64s, form: Form) -> Any:
    """Return the canonical values of some rows. In ZooKeeper's form they equal `kraftbridge.metadata.entities.partition_value`."""
    parts: list[Any] = []
    before = "{"
    for name in FIELDS[form]:
        text = f'{before}"{name}":'
        if name in _LIST_FIELDS:
            lists = table.lists(name, rows)
            parts += [text + "[", _list_text(name, lists), "]"] if (lists.counts > 0).any() else [text + "[]"]
            before = ","
        else:
            parts += [text, pa.array(table.numbers(name, rows)).cast(pa.string())]
            before = ","
    joined = _merged([*parts, "}"])
    return pc.binary_join_element_wise(*joined, "")


def _merged(parts: list[Any]) -> list[Any]:
    """Return the parts with adjacent constants merged."""
    merged: list[Any] = []
    for part in parts:
        if merged and isinstance(part, str) and isinstance(merged[-1], str):
            merged[-1] += part
        else:
            merged.append(part)
    return merged


def _list_text(name: str, lists: Lists) -> Any:
    counts = np.maximum(lists.counts, 0)
    if name == DIRECTORIES:
        counts, texts = _directory_texts(counts, lists.elements)
    else:
        elements = _sorted(counts, lists.elements) if name in _SETS else lists.elements
        texts = pa.array(elements).cast(pa.string())
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), texts), ",")


def _sorted(counts: Int64s, elements: Any) -> Any:
    owners = np.repeat(np.arange(len(counts)), counts)
    if ((np.diff(elements) >= 0) | (np.diff(owners) > 0)).all():
        return elements
    return elements[np.lexsort((elements, owners))]


def _directory_texts(counts: Int64s, elements: Any) -> tuple[Int64s, Any]:
    """Return counts and texts of directories. No directories and only zeros (`DirectoryId.MIGRATING`) are the same (KIP-858)."""
    halves = np.ascontiguousarray(elements).view(np.int64).reshape(-1, 2)
    owners = np.repeat(np.arange(len(counts)), counts)
    assigned = np.zeros(len(counts), np.bool_)
    assigned[owners[halves.any(axis=1)]] = True
    kept = elements[assigned[owners]]
    binary = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(kept), [None, pa.py_buffer(kept.tobytes())])
    encoded = binary.dictionary_encode()
    names = pa.array([f'"{uuid_text(value)}"' for value in encoded.dictionary.to_pylist()], pa.string())
    return np.where(assigned, counts, 0), names.take(encoded.indices)
