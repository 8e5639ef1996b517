"""Whatever comes from outside: a right answer or an error of our own, in bounded time and memory.

Each decoder starts from sound examples and from those of `corpus`, which once failed, and changes them.
`make fuzz` tries more of them. A new failure becomes a file of the corpus: `<decoder>-<what>.bin`.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import struct
import time
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.wire_servers import metadata, topic

from kraftbridge.copies.dry_start import NOTE, RESULT, kafka_start, last_words, programs
from kraftbridge.exceptions import MetadataError, RehearsalError
from kraftbridge.kafka import metadata as kafka_metadata
from kraftbridge.metadata.entities import Form, Secrets
from kraftbridge.metadata.log.batches import BatchScan
from kraftbridge.metadata.log.entities import log_entities
from kraftbridge.metadata.log.image import MetadataImage
from kraftbridge.metadata.log.replay import apply_batches
from kraftbridge.metadata.zookeeper.reader import read_dump, write_dump
from kraftbridge.metadata.zookeeper.soundness import findings_of
from kraftbridge.metadata.zookeeper.tree import DumpReading
from kraftbridge.models.broker_record import unpacked as unpacked_record
from kraftbridge.models.dry_start import DryStartStage
from kraftbridge.models.rehearsal import Ending, RehearsalResult, RehearsalVerdict
from kraftbridge.models.report import Profile, Verdict, VerificationReport
from kraftbridge.outside.bounds import BoundExceededError
from kraftbridge.outside.json_text import parsed_json
from kraftbridge.plugin.session import PluginError, report_of
from kraftbridge.rehearsal.tree import SnapshotWriter, secrets_in
from kraftbridge.services.observe import runs
from kraftbridge.services.observe.dry_starts import collected_of
from kraftbridge.verification.page import render_page

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "60"))
SECONDS = 5.0
BYTES = 64 << 20
KEY = b"0123456789abcdef0123456789abcdef"
DATA = Path(__file__).resolve().parents[2] / "data" / "metadata"
CORPUS = Path(__file__).resolve().parent / "corpus"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECRETS = Secrets(b"fuzz")


def with_checksums(data: bytes) -> bytes:
    """Repair the checksum of each batch, so that what was changed inside is read."""
    repaired = bytearray(data)
    position = 0
    while position + 61 <= len(data):
        (length,) = struct.unpack_from(">i", data, position + 8)
        end = position + 12 + length
        if length < 49 or end > len(data):
            break
        struct.pack_into(">I", repaired, position + 17, crc32c(bytes(repaired[position + 21 : end])))
        position = end
    return bytes(repaired)


def log_(data: bytes, folder: Path) -> None:
    """Batches of a log or a snapshot, replayed into an image, in each form."""
    image = MetadataImage()
    for each in BatchScan(with_checksums(data), "fuzzed"):
        if each.is_control:
            each.control_types()
            continue
        apply_batches(image, [each])
    for form in Form:
        assert all(json.loads(entity.value) is not None for entity in log_entities(image, form, SECRETS))


def dump_(data: bytes, folder: Path) -> None:
    """A dump with one znode or several: decoded, checked, redacted, and written as a snapshot."""
    path = folder / "zk.jsonl"
    path.write_bytes(data)
    reading = DumpReading(SECRETS, "a secret")
    reading.take(read_dump(path, ""))
    assert all(json.loads(entity.value) is not None for entity in reading.entities())
    findings_of(read_dump(path, ""), "a secret")
    write_dump(read_dump(path, ""), folder / "redacted.jsonl", "", key=KEY)
    for znode in read_dump(path, ""):
        list(secrets_in(znode))
    writer = SnapshotWriter((1, 2, 3))
    writer.take(read_dump(path, ""))
    writer.write(folder / "snapshot")


def znode_(data: bytes, folder: Path) -> None:
    """The first line is a path, the rest its data."""
    path, _, content = data.partition(b"\n")
    row = {"path": "/" + path.decode("latin-1").lstrip("/"), "data": base64.b64encode(content).decode(), "enc": "b64"}
    identity = {"path": "/cluster/id", "data": '{"id":"c"}', "enc": "utf8"}
    broker = {"path": "/brokers/ids/1", "data": '{"endpoints":["PLAINTEXT://h:1"]}', "enc": "utf8"}
    dump_("\n".join(map(json.dumps, (row, identity, broker))).encode(), folder)


def metadata_(data: bytes, folder: Path) -> None:
    """A Metadata answer of a node."""
    sent = io.BytesIO(struct.pack(">ii", len(data) + 4, 7) + data)
    node = SimpleNamespace(settimeout=lambda _: None, recv=sent.read, recv_into=sent.readinto)
    frame = kafka_metadata.Frame(node, lambda: SECONDS, "node 1", 1 << 20)  # type: ignore[arg-type]
    found = kafka_metadata.read(frame, 7, 9)
    assert all(topic.name is not None for topic in found.topics)


def agent_(data: bytes, folder: Path) -> None:
    """The log of a copy, with what the agent reports."""
    text = data.decode(errors="replace")
    start = kafka_start(text)
    if start is not None:
        for given_ in (*start.settings.values(), *start.system_properties.values()):
            assert isinstance(given_.value, str | None)
        json.dumps([sorted(start.settings), start.jaas_entries, start.missing_classes, start.mount_points])
    programs(text)
    last_words(text)


def verdict_(data: bytes, folder: Path) -> None:
    """What a verification and a rehearsal write into their ConfigMaps."""
    text = data.decode(errors="replace")
    runs._finished("r", text)
    runs._released(text)
    ended = runs._ended("r", text)
    assert ended.result is None or ended.result.to_json()


def report_(data: bytes, folder: Path) -> None:
    """A report that the plugin unpacks and shows."""
    report = report_of(base64.b64encode(gzip.compress(data)).decode())[1]
    report.to_json()
    render_page(report)


def copies_(data: bytes, folder: Path) -> None:
    """What the copies of a dry start showed, in a ConfigMap."""
    packed = base64.b64encode(gzip.compress(data)).decode()
    collected_of({"binaryData": {stage.outcomes_key: packed for stage in DryStartStage}})


def packed_(data: bytes, folder: Path) -> None:
    """Packed bytes, as somebody wrote them."""
    text = data.decode("latin-1")
    for reads in (report_of, lambda text: collected_of({"binaryData": {DryStartStage.COPIES.outcomes_key: text}})):
        try:
            reads(text)
        except EXPECTED:
            continue
    unpacked_record(data)


Decoder = Callable[[bytes, Path], None]
EXPECTED = (MetadataError, RehearsalError, PluginError, BoundExceededError, OSError, ValueError)
"""Errors of our own; and those that the functions document and their callers tell: of a connection, of JSON."""


def rows(*znodes: tuple[str, str]) -> bytes:
    return b"\n".join(json.dumps({"path": path, "data": data, "enc": "utf8"}).encode() for path, data in znodes)


REPORT = VerificationReport(
    run_id="r", profile=Profile.ZOOKEEPER, verdict=Verdict.CONSISTENT, reason="fine", started_at=NOW, finished_at=NOW
)
RESULT_ = RehearsalResult(
    verdict=RehearsalVerdict.WORKS, reason="fine", ending=Ending.DUAL_WRITE, started_at=NOW, finished_at=NOW
)
START = {
    "version": 1, "valid": True, "settings": {"broker.id": {"value": "1"}, "ssl.key.password": {"hash": "ab"}},
    "classes": {"x": True}, "directories": {"/d": {"mount": "/", "exists": True}}, "mountedClasses": ["x"], "refusals": [],
    "options": {"a": {"value": "b"}}, "jaas": {"entries": {"KafkaServer": "ab"}},
    "events": [{"event": "ran", "main": "kafka.Kafka", "arguments": ""}],
}  # fmt: skip
STORED = [z for z in read_dump(DATA / "dualwrite" / "zk.jsonl.gz", "/kafka") if z.data and z.path.count("/") > 1]
LOGS = sorted((DATA / "dualwrite" / "c3000" / "__cluster_metadata-0").glob("0*.log"))
SNAPSHOTS = sorted((DATA / "dualwrite" / "c3000" / "__cluster_metadata-0").glob("*.checkpoint"))

SOUND: dict[str, list[bytes]] = {
    "log": [LOGS[0].read_bytes()[:20_000], *(each.read_bytes()[:20_000] for each in SNAPSHOTS[:1])],
    "dump": [rows(("/cluster/id", '{"id":"c"}'), ("/brokers/ids/1", '{"endpoints":["PLAINTEXT://h:1"]}'))],
    "znode": sorted({z.path.rsplit("/", 1)[0]: z.path.encode() + b"\n" + z.data for z in STORED if z.data}.values())[
        :60
    ],
    "metadata": [metadata(topic("t", 3) + topic("u", 1), 2), metadata(b"", 0)],
    "agent": [f"x\n{NOTE}{json.dumps(START['events'][0])}\n{RESULT}{json.dumps(START)}\n".encode()],
    "verdict": [RESULT_.to_json().encode(), b'{"schemaVersion":1,"runId":"r","at":"2026-01-01T00:00:00Z"}'],
    "report": [REPORT.to_json().encode()],
    "copies": [b"[]", b'[{"key":{"stateful_set":"a","ordinal":0},"broker_id":1}]'],
    "packed": [base64.b64encode(gzip.compress(b"[]"))],
}
DECODERS: dict[str, Decoder] = {name: globals()[f"{name}_"] for name in SOUND}
ODD = [
    b"", b"null", b"[]", b"{}", b"-1", b"1e400", b"NaN", b'"\\ud800"', b"\x00", b"\xff\xff\xff\x7f", b"9" * 5000, b"[" * 100_000,
    b'{"a":' * 50_000, b"true", b'"', b"\xf0\x9f", b"<default>", b"%zz", b"/", b"..", b"[null]", b'{"a":{}}', b"\x80" * 12,
]  # fmt: skip


@st.composite
def changed(draw: st.DrawFn, sound: list[bytes]) -> bytes:
    data = bytearray(draw(st.sampled_from(sound)))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        end = min(len(data), at + draw(st.sampled_from([0, 0, 1, 1, 2, 4, 8, 40])))
        data[at:end] = draw(st.sampled_from(ODD) | st.binary(max_size=6))
    return bytes(data[: len(data) - draw(st.sampled_from([0, 0, 0, 1, 7, 100]))]) if data else b""


JSON = st.recursive(
    st.sampled_from([None, True, 0, -1, 1.5, 2**70, "", "x", "\ud800"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "value", "mount", "id"]), inner),
    max_leaves=4,
)


@st.composite
def reshaped(draw: st.DrawFn, sound: list[bytes]) -> bytes:
    """JSON as ever, with one value in it replaced by another one."""
    data = draw(st.sampled_from(sound))
    begin = data.rfind(b"\n", 0, len(data) - 1) + 1
    try:
        body = parsed_json(data[begin:].removeprefix(RESULT.encode()))
    except ValueError:
        return data
    place = body
    for _ in range(draw(st.integers(0, 3))):
        inner = [
            held
            for held in (place.values() if isinstance(place, dict) else place)
            if isinstance(held, dict | list) and held
        ]
        if not inner:
            break
        place = draw(st.sampled_from(inner))
    if isinstance(place, dict) and place:
        place[draw(st.sampled_from(sorted(place)))] = draw(JSON)
    elif isinstance(place, list):
        place.append(draw(JSON))
    mark = RESULT.encode() if RESULT.encode() in data else b""
    return data[:begin] + mark + json.dumps(body).encode()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


def judge(name: str, data: bytes, folder: Path) -> None:
    began = time.process_time()
    try:
        DECODERS[name](data, folder)
    except EXPECTED as error:
        words = str(error)
    else:
        words = "read"
    assert words, "an error says something"
    assert time.process_time() - began < SECONDS


@pytest.mark.parametrize("name", DECODERS)
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_whatever_comes_is_read_or_refused(name: str, folder: Path, data: st.DataObject) -> None:
    known = [*SOUND[name], *(path.read_bytes() for path in sorted(CORPUS.glob(f"{name}-*.bin")))]
    judge(name, data.draw(changed(known) | reshaped(known)), folder)


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.bin")), ids=lambda path: path.name)
def test_what_failed_once_is_read_or_refused(path: Path, tmp_path: Path) -> None:
    judge(path.name.partition("-")[0], path.read_bytes(), tmp_path)


@pytest.mark.parametrize("name", DECODERS)
def test_sound_examples_are_read(name: str, tmp_path: Path) -> None:
    """Otherwise nothing behind the first check is ever tried."""
    if name in {"znode", "verdict", "copies"}:
        judge(name, SOUND[name][0], tmp_path)
        return
    for each in SOUND[name][:1]:
        if name == "packed":
            judge(name, each, tmp_path)
        else:
            DECODERS[name](each, tmp_path)


@pytest.mark.parametrize("name", DECODERS)
def test_memory_is_bounded(name: str, tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        for odd in ODD:
            judge(name, odd, tmp_path)
        assert tracemalloc.get_traced_memory()[1] < BYTES
    finally:
        tracemalloc.stop()
