"""Replaying logs and snapshots: real ones, made ones, damaged ones."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import ClassVar

import pytest
from tests.unit.metadata.record_writer import batch, control_batch, record, snapshot, write_log
from typing_extensions import override

from kraftbridge.exceptions import (
    CorruptBatchError,
    LogGapError,
    LogUnavailableError,
    MetadataError,
    UndecodableRecordError,
)
from kraftbridge.metadata.entities import Form, Secrets
from kraftbridge.metadata.log import replay as replay_module
from kraftbridge.metadata.log import scanning as scanning_module
from kraftbridge.metadata.log.batches import BatchScan
from kraftbridge.metadata.log.entities import log_entities
from kraftbridge.metadata.log.files import FileVanishedError, LocalLogFiles
from kraftbridge.metadata.log.replay import LogReplay, decoded_record
from kraftbridge.metadata.log.scanning import batches, log_end

DATA = Path(__file__).resolve().parents[2] / "data" / "metadata" / "dualwrite"
NODES = ("c3000", "c3001", "c3002", "b0")
SECRETS = Secrets(b"test", compare_passwords=True)
TOPIC = bytes(range(16))


def entities(folder, last_offset=None, form=Form.WHOLE, **options):
    replay = LogReplay(LocalLogFiles(folder), **options)
    image = replay.advance(last_offset)
    return {(entity.kind, entity.key): entity.value for entity in log_entities(image, form, SECRETS)}


@pytest.fixture
def copied(tmp_path):
    shutil.copytree(DATA / "c3000", tmp_path / "log")
    return tmp_path / "log"


def log_of(tmp_path, *batches):
    write_log(tmp_path, batches)
    return LogReplay(LocalLogFiles(tmp_path))


def topic_batch(offset=0, **fields):
    partition = {"partitionId": 0, "topicId": TOPIC, "replicas": (0, 1), "isr": (0, 1), "leader": 0, "leaderEpoch": 0}
    return batch(
        [
            record("TopicRecord", name="orders", topicId=TOPIC),
            record("PartitionRecord", **{**partition, "partitionEpoch": 0, **fields}),
        ],
        offset,
    )


def test_all_nodes_of_a_real_cluster_agree():
    images = [entities(DATA / node, 1682) for node in NODES]
    assert images[0]
    assert images.count(images[0]) == len(NODES)


def test_voters_with_other_ids_of_the_same_acl_differ(tmp_path):
    """Kafka removes an ACL by its id (``RemoveAccessControlEntryRecord``), so the next removal would fail at one of them only."""
    acl = {"resourceType": 2, "resourceName": "t", "patternType": 3, "principal": "User:a", "host": "*", "operation": 3}
    for voter, identity in (("a", b"A" * 16), ("b", b"B" * 16)):
        (tmp_path / voter).mkdir()
        write_log(
            tmp_path / voter, [batch([record("AccessControlEntryRecord", id=identity, permissionType=3, **acl)], 0)]
        )
    for form, same in ((Form.WHOLE, False), (Form.MIRRORED, True)):
        held = [entities(tmp_path / voter, form=form) for voter in ("a", "b")]
        assert held[0]
        assert (held[0] == held[1]) is same, form


@pytest.mark.parametrize("limit", [41, 1278, 1300, 1643, 1673])
def test_every_snapshot_leads_to_the_same_image(limit):
    """Snapshots that were made at different offsets, and none at all."""
    assert entities(DATA / "c3000", 1682, start_at_most=limit) == entities(DATA / "c3000", 1682, start_at_most=-1)


def test_advance_step_by_step_equals_advance_at_once():
    steps = LogReplay(LocalLogFiles(DATA / "c3000"), start_at_most=-1)
    for offset in range(40, 1683, 13):
        steps.advance(offset)
        assert steps.image.offset == offset
    steps.advance()
    once = LogReplay(LocalLogFiles(DATA / "c3000"), start_at_most=-1).advance()
    assert steps.image == once


def test_image_at_an_offset_knows_nothing_later(tmp_path):
    replay = log_of(tmp_path, topic_batch(), batch([record("RemoveTopicRecord", topicId=TOPIC)], 2))
    assert replay.advance(1).topic_ids == {"orders": TOPIC}
    assert replay.advance().topic_ids == {}
    assert replay.image.removed == {("topic", "orders"): 2, ("partition", "orders-0"): 2}


def test_replay_goes_on_where_the_log_grew(tmp_path):
    write_log(tmp_path, [topic_batch()])
    replay = LogReplay(LocalLogFiles(tmp_path))
    assert len(replay.advance().topics) == 1
    write_log(tmp_path, [topic_batch(), batch([record("RemoveTopicRecord", topicId=TOPIC)], 2)])
    assert not replay.advance().topics
    write_log(tmp_path, [batch([record("NoOpRecord")], 3)], 3)
    assert replay.advance().offset == 3


def test_transactions(tmp_path):
    begin, end, abort = (record(f"{word}TransactionRecord") for word in ("Begin", "End", "Abort"))
    one, two = (record("TopicRecord", name=name, topicId=name.encode() * 8) for name in ("t1", "t2"))
    replay = log_of(tmp_path, batch([begin, one], 0), batch([abort, begin, two], 2), batch([end, begin, one], 5))
    assert replay.advance(1).open_transaction
    assert not replay.image.topics
    assert not replay.advance(2).open_transaction
    image = replay.advance(5)
    assert set(image.topic_ids) == {"t2"}
    assert image.topics[b"t2" * 8].offset == 5, "what a transaction does happens at its end"
    assert image.aborted_records == 1
    assert replay.advance().open_transaction
    assert set(replay.image.topic_ids) == {"t2"}


@pytest.mark.parametrize("word", ["End", "Abort"])
def test_transaction_records_out_of_place(tmp_path, word):
    with pytest.raises(UndecodableRecordError, match="without a transaction"):
        log_of(tmp_path, batch([record(f"{word}TransactionRecord")], 0)).advance()
    begin = record("BeginTransactionRecord")
    with pytest.raises(UndecodableRecordError, match="inside another"):
        log_of(tmp_path, batch([begin, begin], 0)).advance()


def test_partition_changes_merge_like_kafka(tmp_path):
    change = {"partitionId": 0, "topicId": TOPIC}
    replay = log_of(
        tmp_path,
        topic_batch(),
        batch([record("PartitionChangeRecord", **change, isr=(1,), leader=1, leaderRecoveryState=1)], 2),
        batch([record("PartitionChangeRecord", **change, replicas=(1, 2), addingReplicas=(2,), leader=-2)], 3),
    )
    image = replay.advance()
    partition = image.table.fields(image.topics[TOPIC].partitions[0])
    assert (partition["leader"], partition["leaderEpoch"], partition["partitionEpoch"]) == (1, 1, 2)
    assert (partition["isr"], partition["replicas"], partition["addingReplicas"]) == ((1,), (1, 2), (2,))
    assert partition["leaderRecoveryState"] == 1


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("PartitionChangeRecord", {"topicId": TOPIC, "partitionId": 0}),
        ("PartitionRecord", {"topicId": TOPIC}),
        ("RemoveTopicRecord", {"topicId": TOPIC}),
        ("RemoveAccessControlEntryRecord", {"id": TOPIC}),
        ("UnregisterBrokerRecord", {"brokerId": 3}),
        ("RemoveDelegationTokenRecord", {"tokenId": "x"}),
        ("RemoveUserScramCredentialRecord", {"name": "x", "mechanism": 1}),
    ],
)
def test_a_change_of_what_does_not_exist_is_an_error(tmp_path, kind, fields):
    with pytest.raises(UndecodableRecordError, match=f"offset 0: {kind} refers to"):
        log_of(tmp_path, batch([record(kind, **fields)], 0)).advance()


def test_a_flipped_bit_anywhere_is_noticed(copied):
    path = next((copied / "__cluster_metadata-0").glob("*.log"))
    whole = path.read_bytes()
    replay_at = 60_000
    for position in (replay_at, replay_at + 1000, len(whole) - 3):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x10]) + whole[position + 1 :])
        with pytest.raises(MetadataError, match=str(copied)):
            LogReplay(LocalLogFiles(copied), start_at_most=-1).advance()


def test_a_torn_tail_is_reported_and_left_out(copied):
    path = next((copied / "__cluster_metadata-0").glob("*.log"))
    path.write_bytes(path.read_bytes()[:-7])
    replay = LogReplay(LocalLogFiles(copied))
    replay.advance()
    assert replay.torn_tail_bytes > 0
    assert replay.end_offset == log_end(LocalLogFiles(copied)).offset == 1683


def test_a_preallocated_tail_is_no_batch(tmp_path):
    replay = log_of(tmp_path, topic_batch(), bytes(500))
    assert replay.advance().offset == 1


def test_a_torn_segment_before_another_is_an_error(tmp_path):
    write_log(tmp_path, [topic_batch()[:-3]])
    write_log(tmp_path, [batch([record("NoOpRecord")], 2)], 2)
    with pytest.raises(CorruptBatchError, match="no batch"):
        LogReplay(LocalLogFiles(tmp_path)).advance()


def test_gaps(tmp_path):
    with pytest.raises(LogGapError, match="offset 2 is followed by 5"):
        log_of(tmp_path, topic_batch(), batch([record("NoOpRecord")], 5)).advance()
    write_log(tmp_path / "late", [batch([record("NoOpRecord")], 7)], 7)
    with pytest.raises(LogGapError, match="begins at offset 7"):
        LogReplay(LocalLogFiles(tmp_path / "late")).advance()


def test_an_epoch_never_falls(tmp_path):
    with pytest.raises(CorruptBatchError, match="epoch falls"):
        log_of(tmp_path, batch([record("NoOpRecord")], 0, 5), batch([record("NoOpRecord")], 1, 4)).advance()


def test_epoch_at(tmp_path):
    replay = log_of(tmp_path, batch([record("NoOpRecord")] * 3, 0, 2), batch([record("NoOpRecord")], 3, 4))
    replay.advance()
    assert [replay.epoch_at(offset) for offset in (0, 2, 3, 4)] == [2, 2, 4, None]


@pytest.mark.parametrize("cut", [1, 30, 95, 200, 52_000])
def test_an_incomplete_snapshot_is_an_error(copied, cut):
    folder = copied / "__cluster_metadata-0"
    newest = max(folder.glob("*.checkpoint"))
    newest.write_bytes(newest.read_bytes()[:-cut])
    with pytest.raises(CorruptBatchError, match="incomplete"):
        LogReplay(LocalLogFiles(copied)).advance()


def test_a_made_snapshot_is_read(tmp_path):
    folder = tmp_path / "__cluster_metadata-0"
    folder.mkdir()
    values = [record("TopicRecord", name=f"t{i}", topicId=i.to_bytes(16, "big")) for i in range(2500)]
    (folder / "00000000000000009000-0000000003.checkpoint").write_bytes(snapshot(values, 3))
    replay = LogReplay(LocalLogFiles(tmp_path))
    assert len(replay.advance().topics) == 2500
    assert (replay.image.offset, replay.image.epoch, replay.snapshot_offset) == (8999, 3, 8999)


def test_control_batches_move_the_offset(tmp_path):
    replay = log_of(tmp_path, control_batch(2, 0), topic_batch(1), control_batch(2, 3))
    assert replay.advance().offset == 3
    assert replay.image.records == 2


def test_nothing_there(tmp_path):
    with pytest.raises(LogUnavailableError, match="neither"):
        LogReplay(LocalLogFiles(tmp_path)).advance()
    with pytest.raises(LogUnavailableError, match="cannot be listed"):
        LogReplay(LocalLogFiles(tmp_path / "nowhere")).advance()


class _Vanishing:
    """Log files whose first snapshot is deleted when it is read."""

    def __init__(self, inner: LocalLogFiles) -> None:
        self.inner = inner
        self.gone: set[str] = set()

    @property
    def place(self):
        return self.inner.place

    def sizes(self):
        return {name: size for name, size in self.inner.sizes().items() if name not in self.gone}

    def read(self, name, start, end):
        if name.endswith(".checkpoint") and not self.gone:
            self.gone.add(name)
            raise FileVanishedError(name)
        return self.inner.read(name, start, end)


def test_a_snapshot_deleted_meanwhile_is_replaced_by_another():
    files = _Vanishing(LocalLogFiles(DATA / "c3000"))
    image = LogReplay(files).advance(1682)
    assert len(files.gone) == 1
    assert len(image.topics) == 53


def test_an_unknown_record_is_named():
    with pytest.raises(UndecodableRecordError, match="record type 99 is unknown"):
        decoded_record(b"\x01\x63\x00\x00", 5)
    with pytest.raises(UndecodableRecordError, match="PartitionRecord version 9"):
        decoded_record(b"\x01\x03\x09\x00", 5)
    with pytest.raises(UndecodableRecordError, match="frame version 0"):
        decoded_record(b"\x00\x02\x00", 5)
    with pytest.raises(UndecodableRecordError, match="no value"):
        decoded_record(None, 5)
    good = record("TopicRecord", name="x", topicId=TOPIC)
    with pytest.raises(UndecodableRecordError, match="leaves 1 bytes over"):
        decoded_record(good + b"\0", 5)
    with pytest.raises(UndecodableRecordError, match="does not decode"):
        decoded_record(good[:-3], 5)
    with pytest.raises(UndecodableRecordError, match="name was serialized as null"):
        decoded_record(b"\x01\x02\x00\x00" + TOPIC + b"\x00", 5)


def test_unknown_tagged_fields_are_skipped():
    value = record("TopicRecord", name="x", topicId=TOPIC)
    tagged = value[:-1] + b"\x01\x09\x03abc"
    assert decoded_record(tagged, 0) == decoded_record(value, 0)


def test_a_batch_of_another_magic_is_refused():
    data = bytearray(topic_batch())
    data[16] = 1
    with pytest.raises(CorruptBatchError, match="magic 1"):
        list(BatchScan(bytes(data), "x"))


VOTER = DATA / "c3000"


class CountedFiles(LocalLogFiles):
    """Remembers how much was read at a time."""

    largest: ClassVar[int] = 0

    @override
    def read(self, name: str, start: int, end: int) -> bytes:
        data = super().read(name, start, end)
        type(self).largest = max(self.largest, len(data))
        return data


@pytest.mark.parametrize("chunk", [100, 4096, 100_000])
def test_snapshots_and_segments_are_streamed_whatever_the_chunk(monkeypatch, chunk):
    """Chunks that are smaller than a batch, too; no more than a chunk, or the longest batch, is in memory of a file."""
    whole = LogReplay(LocalLogFiles(VOTER))
    expected = whole.advance()
    for module in (replay_module, scanning_module):
        monkeypatch.setattr(module, "CHUNK_BYTES", chunk)
    CountedFiles.largest = 0
    streamed = LogReplay(CountedFiles(VOTER), _chunk_bytes=chunk)
    assert streamed.advance() == expected
    assert (streamed.end_offset, streamed.torn_tail_bytes) == (whole.end_offset, whole.torn_tail_bytes)
    assert log_end(CountedFiles(VOTER)) == log_end(LocalLogFiles(VOTER))
    longest = max(each.size_bytes for each in batches(LocalLogFiles(VOTER), "00000000000000000000.log"))
    assert CountedFiles.largest <= max(chunk, 2 * longest)


def test_a_corrupt_batch_in_a_later_chunk_is_named_by_its_place_in_the_file(monkeypatch, tmp_path):
    noop = batch([record("NoOpRecord")], 0)
    path = write_log(tmp_path, [batch([record("NoOpRecord")], offset) for offset in range(50)])
    data = bytearray(path.read_bytes())
    data[40 * len(noop) + 30] ^= 1
    path.write_bytes(data)
    for module in (replay_module, scanning_module):
        monkeypatch.setattr(module, "CHUNK_BYTES", 3 * len(noop))
    with pytest.raises(CorruptBatchError, match=f"byte {40 * len(noop)} "):
        LogReplay(LocalLogFiles(tmp_path), _chunk_bytes=3 * len(noop)).advance()


def test_the_records_of_kafka_4_are_applied(tmp_path):
    """Eligible leader replicas are cleared as ``TopicDelta`` does it: a change of each partition that has some."""
    registered = record("RegisterBrokerRecord", 4, brokerId=0, cordonedLogDirs=None)
    cordoned = record("BrokerRegistrationChangeRecord", 3, brokerId=0, brokerEpoch=0, cordonedLogDirs=(TOPIC,))
    controller = record("RegisterControllerRecord", controllerId=3000)
    replay = log_of(
        tmp_path,
        topic_batch(eligibleLeaderReplicas=(1,), lastKnownElr=()),
        batch([registered, controller], 2),
        batch([cordoned, record("ClearElrRecord", topicName="another")], 4),
        batch(
            [record("ClearElrRecord", topicName="orders"), record("UnregisterControllerRecord", controllerId=3000)], 6
        ),
        batch([record("ClearElrRecord", topicName="")], 8),
    )

    def partition():
        rows = replay.image.partition_rows([TOPIC], [0])
        return replay.image.table.fields(int(rows[0]))

    image = replay.advance(3)
    assert image.brokers[0]["cordonedLogDirs"] == (), "not told yet, or none"
    image = replay.advance(5)
    assert image.brokers[0]["cordonedLogDirs"] == (TOPIC,)
    assert (partition()["eligibleLeaderReplicas"], partition()["partitionEpoch"]) == ((1,), 0)
    assert set(image.controllers) == {3000}
    image = replay.advance()
    assert (partition()["eligibleLeaderReplicas"], partition()["partitionEpoch"]) == ((), 1), "cleared once"
    assert partition()["leaderEpoch"] == 0
    assert not image.controllers
