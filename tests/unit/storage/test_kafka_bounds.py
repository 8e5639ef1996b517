"""A broker that a tenant names costs its own migration an observation, and the operator neither memory nor time. Real sockets on loopback."""

from __future__ import annotations

import socket
import struct
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
from kafka.protocol.metadata.metadata import MetadataResponse
from tests.support.memory import at_most
from tests.support.wire_servers import MEGA, PARTITION, KafkaNode, always, flooding, integers, metadata, topic, uv

from kraftbridge.exceptions import ObservationError
from kraftbridge.kafka.client import Security
from kraftbridge.kafka.wire import Connection, WireError
from kraftbridge.models.observation import ClusterState
from kraftbridge.outside import bounds
from kraftbridge.storage import kafka_brokers as module
from kraftbridge.storage.kafka_brokers import BrokerClient

TOPIC_ID: Final = uuid.UUID(int=0x1234)


@contextmanager
def node_of(send: Callable[[socket.socket, bytes], None], **how: Any) -> Iterator[KafkaNode]:
    node = KafkaNode(send, **how)
    try:
        yield node
    finally:
        node.close()


@contextmanager
def client_of(body: bytes) -> Iterator[BrokerClient]:
    with node_of(always(body)) as node:
        client = BrokerClient(f"127.0.0.1:{node.port}", {})
        try:
            yield client
        finally:
            client.close()


@pytest.mark.parametrize("version", [9, 10])
def test_the_decoder_reads_what_kafka_python_writes(version: int) -> None:
    part = MetadataResponse.MetadataResponseTopic.MetadataResponsePartition
    fields = {
        "brokers": [
            MetadataResponse.MetadataResponseBroker(node_id=i, host=f"h{i}", port=9092, rack="r") for i in range(2)
        ],
        "cluster_id": "c",
        "controller_id": 1,
        "topics": [
            MetadataResponse.MetadataResponseTopic(
                error_code=0,
                name="t",
                topic_id=TOPIC_ID,
                is_internal=False,
                partitions=[
                    part(
                        error_code=0,
                        partition_index=0,
                        leader_id=0,
                        leader_epoch=3,
                        replica_nodes=[0, 1],
                        isr_nodes=[0],
                        offline_replicas=[1],
                    )
                ],
                authorized_operations={8, 10},
            )
        ],
    }
    encoded = MetadataResponse(version=version, throttle_time_ms=0, **fields)
    encoded.with_header(correlation_id=0)
    body = bytes(encoded.encode(framed=False, header=True))[4:]
    node_ = node_of(always(body), metadata_version=version)
    with node_ as node, Connection("127.0.0.1", node.port, Security(), 5.0) as connection:
        brokers, controller, topics = connection.all_topics(5.0, lambda m: (m.brokers, m.controller_id, list(m.topics)))
        assert connection.usable, "it is read to its end"
    assert ([b.node_id for b in brokers], brokers[0].host, controller) == ([0, 1], "h0", 1)
    (found,) = topics
    (partition,) = found.partitions
    assert (found.name, partition.replica_nodes, partition.isr_nodes) == ("t", (0, 1), (0,))
    assert (found.allows(10), found.allows(3)) == (True, False)
    assert found.topic_id == ("" if version == 9 else TOPIC_ID.hex)


@pytest.mark.parametrize("hostile", [True, False], ids=["before the login", "afterwards"])
def test_an_answer_of_any_length_is_refused_before_it_is_read(hostile: bool) -> None:
    words = r"sends an answer of 2048\.0 MiB, and .* is the most.*spec\.brokers\.bootstrapServers"
    with node_of(flooding(300), hostile=hostile) as node, at_most(16), pytest.raises(WireError, match=words):
        Connection("127.0.0.1", node.port, Security(), 5.0).all_topics(5.0, lambda m: list(m.topics))


def test_partitions_of_many_replicas_and_with_tagged_fields_are_read() -> None:
    many = integers(*range(12)) + integers(*range(11)) + integers(11) + b"\0"
    tagged = PARTITION[:-1] + uv(1) + uv(0) + uv(2) + b"xx"
    null = b"\0" + b"\0" + b"\0" + b"\0"
    topics = topic("many", 3, many) + topic("tagged", 3, tagged) + topic("null", 3, null) + topic("few", 3)
    with (
        node_of(always(metadata(topics, 4))) as node,
        Connection("127.0.0.1", node.port, Security(), 5.0) as connection,
    ):
        found = connection.all_topics(5.0, lambda m: {t.name: t.partitions for t in m.topics})
    assert [len(p.replica_nodes) for p in found["many"]] == [12, 12, 12]
    assert [len(p.isr_nodes) for p in found["many"]] == [11, 11, 11]
    assert [(p.partition_index, p.isr_nodes) for p in found["tagged"]] == [(i, (0, 1, 2)) for i in range(3)]
    assert {p.replica_nodes for p in found["null"]} == {()}
    assert [p.leader_epoch for p in found["few"]] == [5, 5, 5]


def test_two_hundred_thousand_partitions_are_observed_in_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "KAFKA_METADATA_SECONDS", 120.0)  # tracing takes ten times longer
    each = topic("a-topic-with-a-name-of-thirty-c", 50)
    body = metadata(each * 4_000, 4_000)
    assert len(body) > 8 * bounds.MIB
    with client_of(body) as client:
        client.cluster_state()
        with at_most(8 + 2 * len(body) // bounds.MIB):
            state = client.cluster_state()
    assert (state.partitions, state.under_replicated_count) == (200_000, 0)


def test_tiny_topics_are_counted_and_refused() -> None:
    tiny = struct.pack(">h", 0) + uv(2) + b"t" + b"\0" + uv(1) + struct.pack(">i", 0) + b"\0"
    most = bounds.TOPICS + 1
    words = "250,001 topics, and 250,000 is the most"
    with client_of(metadata(tiny * most, most)) as client, at_most(24), pytest.raises(ObservationError, match=words):
        client.cluster_state()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (metadata(struct.pack(">h", 0) + uv(10**6 + 1), 1), "bytes in a name, and 32,768"),
        (
            metadata(struct.pack(">h", 0) + uv(2) + b"t" + b"\0" + uv(10**6 + 1), 1),
            "partitions of one topic, and 100,000",
        ),
        (metadata(topic("t", 1, uv(10**6)), 1), "replicas of one partition, and 2,000"),
        (metadata(b"", 0, brokers=2_001), "2,001 brokers, and 2,000"),
        (b"\xff" * 100, "too long"),
        (metadata(topic("t", 1), 5), "ends in the middle|cannot|error|codec"),
    ],
)
def test_what_exceeds_a_bound_is_named(body: bytes, words: str) -> None:
    with client_of(body) as client, at_most(16), pytest.raises(ObservationError, match=words):
        client.cluster_state()


def test_names_of_unhealthy_partitions_are_not_kept_without_end() -> None:
    unhealthy = integers(0, 1) + integers(0) + integers() + b"\0"
    body = metadata(topic("t", 90_000, unhealthy), 1)
    with client_of(body) as client:
        state = client.cluster_state()
    assert state.under_replicated_count == 90_000
    assert state.under_replicated == tuple(sorted(f"t-{i}" for i in range(90_000))[:20])


def test_an_answer_that_is_decoded_as_a_whole_is_small() -> None:
    words = r"sends an answer of 2\.0 MiB, and 1\.0 MiB is the most"
    with client_of(MEGA + MEGA) as client, at_most(24), pytest.raises(ObservationError, match=words):
        client._ask(lambda connection: connection.metadata(3.0))


def test_rubbish_is_a_wire_error() -> None:
    for body in (b"", b"\0\0", b"\xff" * 400):
        with client_of(body) as client, pytest.raises(ObservationError):
            client._ask(lambda connection: connection.metadata(3.0))


def test_a_broker_that_answers_slowly_costs_the_next_ones_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CALL_SECONDS", 1.4)
    nodes: list[KafkaNode] = []

    def slow(connection: socket.socket, request: bytes) -> None:
        time.sleep(0.5)
        always(metadata(topic("t", 1), 1, brokers=3, port=nodes[0].port, host="127.0.0.1"))(connection, request)

    with node_of(slow) as node:
        nodes.append(node)
        client = BrokerClient(f"127.0.0.1:{node.port}", {})
        try:
            seen = client.cluster_by_broker()
        finally:
            client.close()
    assert {i: isinstance(each, ClusterState) for i, each in seen.items()} == dict.fromkeys(range(3), True), seen


def test_leader_epochs_name_the_brokers_that_did_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        closed = reserved.getsockname()[1]
    nodes: list[KafkaNode] = []

    def answer(connection: socket.socket, request: bytes) -> None:
        always(metadata(topic("t", 1), 1, brokers=2, port=nodes[0].port, host="127.0.0.1"))(connection, request)

    with node_of(answer) as node:
        nodes.append(node)
        client = BrokerClient(f"127.0.0.1:{node.port}", {})
        client._known = {0: ("127.0.0.1", node.port), 1: ("127.0.0.1", closed)}
        try:
            epochs, silent = client.leader_epochs()
        finally:
            client.close()
    assert set(epochs) == {("t", 0)}
    assert silent == frozenset({1})
