"""Records read as columns mean what they mean one by one: whole, damaged, inside transactions, cut anywhere."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.unit.metadata.record_writer import batch, record

from kraftbridge.exceptions import MetadataError, UndecodableRecordError
from kraftbridge.metadata.entities import Form, Secrets
from kraftbridge.metadata.log.batches import BatchScan
from kraftbridge.metadata.log.blocks import Lists, record_block
from kraftbridge.metadata.log.entities import log_entities
from kraftbridge.metadata.log.image import MetadataImage
from kraftbridge.metadata.log.replay import apply_batches, decoded_columns, decoded_record

DATA = Path(__file__).resolve().parents[2] / "data" / "metadata" / "dualwrite"
LOG = next((DATA / "c3000" / "__cluster_metadata-0").glob("*.log")).read_bytes()
SECRETS = Secrets(b"test")
QUICK = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
TOPICS = [bytes([number]) * 16 for number in range(1, 4)]
BEGIN, END, ABORT = (record(f"{word}TransactionRecord") for word in ("Begin", "End", "Abort"))


def plain_rows(columns):
    """Return columns as the fields of single records."""
    lists = {}
    for name, column in columns.items():
        if isinstance(column, Lists):
            ends = np.cumsum(np.maximum(column.counts, 0))
            lists[name] = [
                None if count < 0 else tuple(column.elements[end - count : end].tolist())
                for end, count in zip(ends.tolist(), column.counts.tolist(), strict=True)
            ]
        else:
            lists[name] = column.tolist()
    return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]


def one_by_one(data: bytes) -> MetadataImage:
    image = MetadataImage()
    for each in BatchScan(data, "made"):
        for offset, _, value in () if each.is_control else each.records():
            image.apply(*decoded_record(value, offset), offset)
    return image


def in_blocks(data: bytes, cuts=()) -> MetadataImage:
    """Replay with pauses at some offsets."""
    image, first = MetadataImage(), 0
    batches = [each for each in BatchScan(data, "made") if not each.is_control]
    for last in (*sorted(cuts), None):
        apply_batches(image, batches, first=first, last=last)
        first = last + 1 if last is not None else 0
    return image


def contents(image: MetadataImage):
    entities = {form: sorted(log_entities(image, form, SECRETS)) for form in Form}
    return entities, image.removed, image.records, image.aborted_records, image.open_transaction


@pytest.mark.parametrize("cuts", [(), (700,), (0, 300, 301, 1299, 1650)])
def test_a_real_log_in_blocks(cuts):
    assert contents(in_blocks(LOG, cuts)) == contents(one_by_one(LOG))


NODES = st.lists(st.integers(0, 300), max_size=4).map(tuple)
WIDE = st.lists(st.integers(-(2**31), 2**31 - 1), min_size=120, max_size=140).map(tuple)
IDS = {"topicId": st.sampled_from(TOPICS[:2]), "partitionId": st.integers(0, 2)}
PARTITIONS = st.fixed_dictionaries(
    {**IDS, "replicas": NODES | WIDE, "isr": NODES, "removingReplicas": NODES, "addingReplicas": NODES},
    optional={
        "leader": st.integers(-1, 300),
        "leaderEpoch": st.integers(0, 2**31 - 10),
        "partitionEpoch": st.integers(0, 9),
        "leaderRecoveryState": st.sampled_from([0, 1]),
        "directories": st.lists(st.sampled_from([bytes(16), *TOPICS]), max_size=3).map(tuple),
        "eligibleLeaderReplicas": st.none() | NODES,
        "lastKnownElr": NODES,
    },
)
CHANGES = st.fixed_dictionaries(
    IDS,
    optional={
        "isr": NODES,
        "leader": st.integers(-2, 300),
        "replicas": NODES,
        "removingReplicas": NODES,
        "addingReplicas": NODES,
        "leaderRecoveryState": st.integers(-1, 1),
        "directories": st.lists(st.sampled_from(TOPICS), max_size=3).map(tuple),
        "eligibleLeaderReplicas": NODES,
        "lastKnownElr": NODES,
    },
)


def versioned(name, fields):
    least = 2 if fields.keys() & {"eligibleLeaderReplicas", "lastKnownElr"} else 1 if "directories" in fields else 0
    return st.integers(least, 2).map(lambda version: record(name, version, **fields))


VALUES = st.lists(
    st.one_of(
        PARTITIONS.flatmap(lambda fields: versioned("PartitionRecord", fields)),
        CHANGES.flatmap(lambda fields: versioned("PartitionChangeRecord", fields)),
        CHANGES.flatmap(lambda fields: versioned("PartitionChangeRecord", fields)),
        st.sampled_from([BEGIN, END, ABORT, record("NoOpRecord")]),
        st.sampled_from([record("RemoveTopicRecord", topicId=TOPICS[0]), record("PartitionRecord", topicId=TOPICS[2])]),
        st.just(record("TopicRecord", name="again", topicId=TOPICS[0])),
    ),
    max_size=40,
)
FIRST = [
    *(record("TopicRecord", name=f"topic-{topic[0]}", topicId=topic) for topic in TOPICS[:2]),
    *(record("PartitionRecord", topicId=topic, partitionId=number) for topic in TOPICS[:2] for number in range(3)),
]


@QUICK
@given(VALUES, st.lists(st.integers(0, 60), max_size=3), st.integers(1, 20))
@example([BEGIN, record("NoOpRecord"), record("PartitionRecord", topicId=TOPICS[0]), ABORT], [], 1)
def test_any_records_in_blocks(values, cuts, size):
    """Also records that contradict each other: then both ways refuse them."""
    values = FIRST + values
    data = b"".join(batch(values[start : start + size], start) for start in range(0, len(values), size))
    try:
        expected = contents(one_by_one(data))
    except UndecodableRecordError as error:
        message = str(error).partition(":")[2]
        with pytest.raises(UndecodableRecordError, match=re.escape(message)):
            in_blocks(data, cuts)
        return
    assert contents(in_blocks(data, cuts)) == expected


@QUICK
@given(st.data())
def test_damaged_records_in_blocks(data):
    """A checksum can be right and its content wrong: what columns don't understand is left to the decoders."""
    kind = data.draw(st.sampled_from(["PartitionRecord", "PartitionChangeRecord"]))
    fields = data.draw(PARTITIONS if kind == "PartitionRecord" else CHANGES)
    value = bytearray(data.draw(versioned(kind, fields)))
    for _ in range(data.draw(st.integers(1, 4))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.sampled_from([0, 1, 2, 4, 0x7F, 0x80, 0xFF]))
    damaged = bytes(value[: len(value) - data.draw(st.integers(0, 4))])
    (made,) = BatchScan(batch([FIRST[2], damaged, FIRST[3]], 0), "made")
    block = record_block([made], 0, None)
    rows = {}
    for (name, _), (indexes, columns) in decoded_columns(block).items():
        rows |= {index: (name, row) for index, row in zip(indexes.tolist(), plain_rows(columns), strict=True)}
    assert {0, 2} <= rows.keys()
    try:
        expected = decoded_record(damaged, 1)
    except UndecodableRecordError:
        assert 1 not in rows
        return
    assert rows.get(1, expected) == expected


@QUICK
@given(st.binary(max_size=200), st.integers(0, 5))
def test_any_bytes_as_a_batch_s_records(payload, count):
    (empty,) = BatchScan(batch([BEGIN], 0), "made")
    made = replace(empty, payload=payload, count=count)
    try:
        expected = [(offset, value) for offset, _, value in made.records()]
    except MetadataError:
        assert record_block([made], 0, None) is None
        return
    block = record_block([made], 0, None)
    if block is not None:
        assert [(int(offset), block.value(index)) for index, offset in enumerate(block.offsets)] == expected
