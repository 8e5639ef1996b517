"""Canonical entities of an image's partitions, made as Arrow columns: thousands of rows in each step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraftbridge.metadata.entities import Form, topic_of_partition_key, uuid_text
from kraftbridge.metadata.log.blocks import Int64s, Lists
from kraftbridge.metadata.log.image import MetadataImage
from kraftbridge.metadata.log.partitions import DIRECTORIES, PartitionTable

_ROWS: Final = 50_000
_SETS: Final = frozenset({"isr", "addingReplicas", "removingReplicas"})
"""Lists whose order means nothing; that of `replicas` does (the first is preferred)."""
_MIRRORED: Final = (
    "addingReplicas",
    "isr",
    "leader",
    "leaderEpoch",
    "leaderRecoveryState",
    "removingReplicas",
    "replicas",
)
_FIELDS: Final = {
    Form.MIRRORED: _MIRRORED,
    Form.WHOLE: (*_MIRRORED, DIRECTORIES, "eligibleLeaderReplicas", "lastKnownElr", "partitionEpoch"),
    Form.SERVED: ("isr", "leader", "leaderEpoch", "replicas"),
}
_LIST_FIELDS: Final = frozenset({*_SETS, "replicas", DIRECTORIES, "eligibleLeaderReplicas", "lastKnownElr"})


class PartitionColumns(NamedTuple):
    """Partitions as columns: what `Entity` holds of each."""

    keys: Any
    values: Any
    offsets: Any


def partition_columns(
    image: MetadataImage, form: Form, keys: Iterable[str] | None = None
) -> Iterator[PartitionColumns]:
    """Yield an image's partitions, or those of some keys, in slices.

    The values are those of `kraftbridge.metadata.entities.partition_value`, and in their whole form more.
    """
    if keys is None:
        names = [topic.name for topic in image.topics.values()]
        counts = np.array([len(topic.partitions) for topic in image.topics.values()], np.int64)
        found = chain.from_iterable(topic.partitions.values() for topic in image.topics.values())
        rows = np.fromiter(found, np.int64, int(counts.sum()))
    else:
        placed = [(key, row) for key in keys if (row := partition_row(image, key)) is not None]
        names, counts = [topic_of_partition_key(key) for key, _ in placed], np.ones(len(placed), np.int64)
        rows = np.array([row for _, row in placed], np.int64)
    topics = pa.array(names, pa.string())
    of_topic = np.repeat(np.arange(len(names)), counts)
    for start in range(0, len(rows), _ROWS):
        part = rows[start : start + _ROWS]
        topic = topics.take(pa.array(of_topic[start : start + _ROWS]))
        numbers = pa.array(image.table.numbers("partitionId", part)).cast(pa.string())
        yield PartitionColumns(
            pc.binary_join_element_wise(topic, numbers, "-"),
            _values(image.table, part, _FIELDS[form]),
            pa.array(image.table.offsets(part)),
        )


def partition_row(image: MetadataImage, key: str) -> int | None:
    """Return the row of a partition's key in the image's table, if the image has that partition."""
    name, _, number = key.rpartition("-")
    topic = image.topics.get(image.topic_ids.get(name, b""))
    return topic.partitions.get(int(number)) if topic and number.isdecimal() else None


def _values(table: PartitionTable, rows: Int64s, fields: Iterable[str]) -> Any:
    parts: list[Any] = []
    before = "{"
    for name in fields:
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
    """Return the parts with adjacent constants joined."""
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
    """Return counts and texts of directories; none, or all zero (`DirectoryId.MIGRATING`), is the same (KIP-858)."""
    halves = np.ascontiguousarray(elements).view(np.int64).reshape(-1, 2)
    owners = np.repeat(np.arange(len(counts)), counts)
    assigned = np.zeros(len(counts), np.bool_)
    assigned[owners[halves.any(axis=1)]] = True
    kept = elements[assigned[owners]]
    binary = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(kept), [None, pa.py_buffer(kept.tobytes())])
    encoded = binary.dictionary_encode()
    names = pa.array([f'"{uuid_text(value)}"' for value in encoded.dictionary.to_pylist()], pa.string())
    return np.where(assigned, counts, 0), names.take(encoded.indices)
