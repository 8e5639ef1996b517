"""A record of a broker is kept in ConfigMaps, whole or not at all; afterwards the broker, its leaders and its log are asked."""

from __future__ import annotations

import base64
import zlib
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.fakes import Clock, FakeKubernetes
from tests.support.memory import at_most
from tests.support.observations import IDENTITY, NOW, broker_record, pod

from kraftbridge.exceptions import ActionError, ObservationError
from kraftbridge.models.broker_record import EffectiveSetting, ListenerState, OffsetsNow, PartitionOffsets, packed
from kraftbridge.models.decision import RecordBroker
from kraftbridge.models.observation import Unobserved
from kraftbridge.models.survey import SettingSource, Stated
from kraftbridge.outside import bounds
from kraftbridge.services import kept_broker_records as broker_records
from kraftbridge.services.clients import ClusterClients

ACTION = RecordBroker(1, "uid-1", "10.0.0.1", "demo-broker-1")
SETTINGS = {
    "log.retention.ms": EffectiveSetting("-1", stated=(Stated(SettingSource.DYNAMIC_DEFAULT, "-1"),)),
    "advertised.listeners": EffectiveSetting("INTERNAL://10.0.0.1:9092,EXTERNAL://kafka-1.example:9094"),
    "listener.security.protocol.map": EffectiveSetting("INTERNAL:PLAINTEXT,EXTERNAL:SASL_SSL"),
}


class Brokers:
    """Answers for the brokers."""

    def __init__(self, partitions: int = 3) -> None:
        self.partitions = partitions
        self.looked_at: list[tuple[str, str, int, str]] = []
        self.silent = False
        self.closed = 0

    def address(self, broker: int) -> tuple[str, int]:
        return (f"kafka-{broker}.kafka", 9092)

    def settings(self, broker: int) -> dict[str, EffectiveSetting]:
        if self.silent:
            raise ObservationError(f"settings of broker {broker}", "connection refused")
        return SETTINGS

    def listener(self, name: str, host: str, port: int, protocol: str) -> ListenerState:
        self.looked_at.append((name, host, port, protocol))
        return ListenerState(name, host, port)

    def offsets(self, broker: int, holds_for: timedelta) -> dict[tuple[str, int], PartitionOffsets]:
        return {(f"topic-{i * 7919 % 10007:05}", i): PartitionOffsets(i, i + 5, i) for i in range(self.partitions)}

    def offsets_now(self, broker: int, record: Any) -> dict[tuple[str, int], OffsetsNow | str]:
        return {tp: OffsetsNow(o.start, o.end, o.start) for tp, o in record.items()}

    def close(self) -> None:
        self.closed += 1


def clients(brokers: Brokers) -> ClusterClients:
    nobody: Any = None
    return ClusterClients(nobody, nobody, nobody, lambda: brokers)


@pytest.fixture
def kubernetes() -> FakeKubernetes:
    return FakeKubernetes(Clock())


@pytest.mark.parametrize("part_bytes", [700_000, 100])
def test_a_record_is_read_as_it_was_written(
    kubernetes: FakeKubernetes, monkeypatch: pytest.MonkeyPatch, part_bytes: int
) -> None:
    monkeypatch.setattr(broker_records, "PART_BYTES", part_bytes)
    brokers = Brokers(50)
    broker_records.record(kubernetes, IDENTITY, clients(brokers), ACTION, NOW)
    found = broker_records.read(kubernetes, IDENTITY.namespace, ACTION.config_map)
    assert (found.node_id, found.pod_uid, found.pod_ip, found.taken_at) == (1, "uid-1", "10.0.0.1", NOW)
    assert found.settings == SETTINGS
    assert found.offsets == brokers.offsets(1, timedelta(0))
    assert [(s.name, s.host, s.port) for s in found.listeners] == [
        (broker_records.BOOTSTRAP, "kafka-1.kafka", 9092),
        ("INTERNAL", "10.0.0.1", 9092),
        ("EXTERNAL", "kafka-1.example", 9094),
    ]
    assert brokers.looked_at[-1][-1] == "SASL_SSL"
    assert brokers.closed == 1


def test_a_record_of_which_a_part_is_gone_or_older_is_none(
    kubernetes: FakeKubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert broker_records.read(kubernetes, IDENTITY.namespace, ACTION.config_map) is None
    monkeypatch.setattr(broker_records, "PART_BYTES", 100)
    broker_records.record(kubernetes, IDENTITY, clients(Brokers(50)), ACTION, NOW)
    part = ("ConfigMap", IDENTITY.namespace, f"{ACTION.config_map}-part-1")
    kept = kubernetes.objects[part]
    kept["metadata"]["annotations"][broker_records.ANNOTATION_TAKEN] = "2020-01-01T00:00:00+00:00"
    assert broker_records.read(kubernetes, IDENTITY.namespace, ACTION.config_map) is None
    del kubernetes.objects[part]
    assert broker_records.read(kubernetes, IDENTITY.namespace, ACTION.config_map) is None


def test_a_silent_broker_is_not_recorded(kubernetes: FakeKubernetes) -> None:
    brokers = Brokers()
    brokers.silent = True
    with pytest.raises(ActionError, match=r"broker 1 was not recorded: .*connection refused"):
        broker_records.record(kubernetes, IDENTITY, clients(brokers), ACTION, NOW)
    assert not [kind for kind, *_ in kubernetes.objects if kind == "ConfigMap"]


def test_afterwards_listeners_are_looked_at_where_the_pod_is_now_and_the_log_is_read(
    kubernetes: FakeKubernetes,
) -> None:
    brokers = Brokers()
    broker_records.record(kubernetes, IDENTITY, clients(brokers), ACTION, NOW)
    known = broker_records.read(kubernetes, IDENTITY.namespace, ACTION.config_map)
    brokers.looked_at.clear()
    moved = replace(pod("kafka-1", 1), ip="10.0.0.9")
    kubernetes.logs["kafka-1"] = (
        "INFO Kafka version: 3.9.1 (org.apache.kafka.common.utils.AppInfoParser)\n"
        "ERROR Cluster default configs could not be applied: java.util.Collections$3@1 (kafka.server.DynamicBrokerConfig)\n"
    )
    now = broker_records.ask(kubernetes, IDENTITY.namespace, clients(brokers), known, 1, moved, "kafka")
    assert [(name, host) for name, host, *_ in brokers.looked_at] == [
        ("INTERNAL", "10.0.0.9"),
        ("EXTERNAL", "kafka-1.example"),
    ]
    assert not isinstance(now.refusals, Unobserved)
    assert now.refusals[0].startswith("Cluster default configs could not be applied")
    kubernetes.logs["kafka-1"] = "INFO rotated away\n"
    later = broker_records.ask(kubernetes, IDENTITY.namespace, clients(brokers), None, 1, moved, "kafka")
    assert isinstance(later.refusals, Unobserved)
    assert (later.listeners, later.offsets) == ((), {})


# ------------------------------------------------------------------------------------------------ bounds


def stored(kubernetes: FakeKubernetes, data: bytes, parts: object = 1) -> None:
    """Replace the record, as everybody can who may write ConfigMaps."""
    annotations = {broker_records.ANNOTATION_PARTS: str(parts), broker_records.ANNOTATION_TAKEN: "2020"}
    for name in (ACTION.config_map, *(f"{ACTION.config_map}-part-{i}" for i in range(1, 60))):
        metadata = {"name": name, "namespace": IDENTITY.namespace, "annotations": annotations}
        content = {broker_records.RECORD_KEY: base64.b64encode(data).decode()}
        kubernetes.objects["ConfigMap", IDENTITY.namespace, name] = {"metadata": metadata, "binaryData": content}


HEAD = b'{"nodeId":1,"podUid":"u","podIp":"","takenAt":"2026-01-01T00:00:00+00:00","settings":{},"listeners":[],"offsets":{'
TAIL = b'},"topicIds":{"t":""}}'


def rows(count: int) -> bytes:
    return b'"t":[' + b",".join(b"[%d,1000,2000,1500,-1]" % i for i in range(count)) + b"]"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b'{"settings":[' + b"[]," * (24 * bounds.MIB), r"unpack to more than 32\.0 MiB"),
        (b'{"settings":[' + b"[]," * (8 * bounds.MIB), "values, and 600,000 is the most"),
        (b"[" * 200_000, "nested deeply"),
        (HEAD + b'"t":[' + b"[]," * (8 * bounds.MIB) + b"[]]" + TAIL, "it is no record of a broker"),
        (HEAD + b'"t":[' + b"[" * 200_000 + b"]" + TAIL, "it is no record of a broker"),
        (HEAD + rows(300_000) + TAIL, "250,001 partitions, and 250,000 is the most"),
        (HEAD + b'"t":[[0,1,2,3,' + b"9" * 30 + b"]]" + TAIL, "broken at byte 5"),
        (HEAD + b'"t":[[0,1,2,3,9999999999999999999]]' + TAIL, "OverflowError"),
        (HEAD + b'"t":[[0,1,2,3]]' + TAIL, "broken at byte 5"),
        (HEAD + b'"other":[[0,1,2,3,4]]' + TAIL, "KeyError"),
    ],
    ids=[
        "long",
        "wide",
        "deep",
        "empty rows",
        "deep rows",
        "partitions",
        "long number",
        "large number",
        "short row",
        "no topic",
    ],
)
def test_a_record_that_somebody_else_wrote_is_refused(kubernetes: FakeKubernetes, text: bytes, words: str) -> None:
    stored(kubernetes, zlib.compress(text))
    del text
    with at_most(160), pytest.raises(ObservationError, match=words):
        broker_records.read(kubernetes, IDENTITY.namespace, ACTION.config_map)


@pytest.mark.parametrize(
    ("parts", "words"),
    [(10**9, r"it has 1,000,000,000 parts, and 47 is the most"), ("many", "invalid literal")],
)
def test_parts_without_end_are_not_read(kubernetes: FakeKubernetes, parts: object, words: str) -> None:
    stored(kubernetes, b"x", parts)
    with pytest.raises(ObservationError, match=words):
        broker_records.read(kubernetes, IDENTITY.namespace, ACTION.config_map)


def test_a_record_of_two_hundred_thousand_partitions_takes_little_memory(kubernetes: FakeKubernetes) -> None:
    written = {(f"a-topic-with-a-name-{t:04}", p): PartitionOffsets(10**9, 10**9, 10**9) for t in range(4_000) for p in range(50)}  # fmt: skip
    data = packed(broker_record(1, "u", offsets=written))
    stored(kubernetes, data)
    with at_most(64):
        found = broker_records.read(kubernetes, IDENTITY.namespace, ACTION.config_map)
    assert found is not None
    assert len(found.offsets) == 200_000
    assert found.offsets == written
