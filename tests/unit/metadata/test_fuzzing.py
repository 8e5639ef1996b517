"""Damaged data of every sort: always a clear error of our own, never another exception, never silently other data."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.unit.metadata.record_writer import record

from kraftbridge.exceptions import CorruptBatchError, MetadataError, UndecodableRecordError
from kraftbridge.metadata.entities import EncodedPassword, Secrets
from kraftbridge.metadata.log.batches import BatchScan
from kraftbridge.metadata.log.definitions import record_definitions
from kraftbridge.metadata.log.image import MetadataImage
from kraftbridge.metadata.log.replay import apply_batches, decoded_record
from kraftbridge.metadata.zookeeper.reader import read_dump, redacted_data
from kraftbridge.metadata.zookeeper.soundness import Soundness
from kraftbridge.metadata.zookeeper.tree import DumpReading
from kraftbridge.metadata.zookeeper.znodes import Znode, migration_znode, znode_entities

DATA = Path(__file__).resolve().parents[2] / "data" / "metadata" / "dualwrite"
LOG = next((DATA / "c3000" / "__cluster_metadata-0").glob("*.log")).read_bytes()
ZNODES = [znode for znode in read_dump(DATA / "zk.jsonl.gz", "/kafka") if znode.data]
JSON_ZNODES = [znode for znode in ZNODES if znode.data and znode.data.startswith(b"{")]
SECRETS = Secrets(b"test")
QUICK = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def replay(data: bytes) -> MetadataImage:
    image = MetadataImage()
    for batch in BatchScan(data, "fuzzed"):
        if batch.is_control:
            batch.control_types()
            continue
        apply_batches(image, [batch])
    return image


INTACT = replay(LOG)


@QUICK
@given(st.integers(0, len(LOG) - 1), st.integers(0, 7))
def test_a_flipped_bit_never_changes_an_image(position, bit):
    """The checksum covers all but base offset, length, epoch and magic; those are checked by arithmetic or by replay."""
    data = LOG[:position] + bytes([LOG[position] ^ (1 << bit)]) + LOG[position + 1 :]
    try:
        image = replay(data)
    except (CorruptBatchError, UndecodableRecordError):
        return
    if image.records == INTACT.records:
        # Base offset and epoch lie outside the checksum: contents are the same; `LogReplay` checks continuity.
        assert image.topic_ids == INTACT.topic_ids
        assert image.configs.keys() == INTACT.configs.keys()


@QUICK
@given(st.binary(max_size=400))
def test_random_bytes_as_batches(data):
    try:
        image = replay(data)
    except (CorruptBatchError, UndecodableRecordError):
        return
    assert image.records == 0


@QUICK
@given(st.binary(max_size=300), st.sampled_from(sorted(record_definitions())), st.integers(0, 4))
@example(b"\xff" * 12, 3, 1)
@example(b"\x00" * 20 + b"\xff\xff\xff\xff\x0f", 3, 0)
def test_random_bytes_as_records(data, api_key, version):
    try:
        decoded_record(bytes([1, api_key, version]) + data, 0)
    except UndecodableRecordError:
        return


@QUICK
@given(st.data())
def test_cut_and_changed_records(data):
    value = bytearray(
        record(
            "RegisterBrokerRecord",
            brokerId=1,
            incarnationId=bytes(16),
            endPoints=[{"name": "A", "host": "h", "port": 1, "securityProtocol": 0}],
            features=[{"name": "f", "minSupportedVersion": 1, "maxSupportedVersion": 2}],
            rack="r",
            logDirs=(bytes(16),),
        )
    )
    for _ in range(data.draw(st.integers(1, 4))):
        value[data.draw(st.integers(3, len(value) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, 5))
    try:
        decoded_record(bytes(value[: len(value) - cut]), 0)
    except UndecodableRecordError:
        return


@QUICK
@given(st.sampled_from(ZNODES), st.data())
def test_damaged_znodes(znode, data):
    content = bytearray(znode.data)
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(0, len(content)))]
    take(Znode(znode.path, bytes(content)))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)


@QUICK
@given(st.sampled_from(JSON_ZNODES), st.data())
def test_znodes_of_another_shape(znode, data):
    """JSON as ever, with one field replaced by anything."""
    body = json.loads(znode.data)
    if isinstance(body, dict) and body:
        name = data.draw(st.sampled_from(sorted(body)))
        body[name] = data.draw(JSON)
        if isinstance(body.get("config"), dict) and name != "config":
            body["config"] = {**body["config"], data.draw(st.sampled_from(["SCRAM-SHA-256", "x"])): data.draw(JSON)}
    take(Znode(znode.path, json.dumps(body).encode()))


@QUICK
@given(st.text(max_size=60), st.binary(max_size=80) | st.none())
def test_any_path_and_any_data(path, content):
    take(Znode("/" + path, content))


def take(znode: Znode) -> None:
    """Read one znode in every way that the verifier does; only our own errors may come out."""
    reading = DumpReading(SECRETS, "a secret")
    reading.take([znode])
    soundness = Soundness()
    for topic in reading.topics():
        soundness.topic(topic)
    soundness.znode(znode.path, znode.data)
    kept = [entity for entity in reading.entities() if entity.attributes is not None]
    assert len(kept) == len({(entity.kind, entity.key) for entity in kept})
    redacted_data(znode.path, znode.data, b"k" * 32)
    try:
        list(znode_entities(znode.path, znode.data, 0, SECRETS))
        migration_znode(znode.data)
    except MetadataError:
        return


@QUICK
@given(st.text(max_size=200))
@example("encryptedPassword:,cipherAlgorithm:,passwordLength:")
def test_any_encoded_password(text):
    try:
        EncodedPassword.parse(text).decoded("secret")
    except MetadataError:
        return


@QUICK
@given(st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_dump(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("dump") / "zk.jsonl"
    path.write_bytes(content)
    try:
        for znode in read_dump(path, "/kafka"):
            assert znode.path.startswith("/")
    except MetadataError:
        return
