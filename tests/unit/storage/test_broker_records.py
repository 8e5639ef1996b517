"""A broker's partitions are asked of its leaders; a topic that one broker does not list is not a deleted one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from kafka.protocol.metadata.api_versions import ApiVersionsResponse
from kafka.protocol.metadata.metadata import MetadataResponse
from tests.support.wire_servers import Cluster, topic_names
from tests.unit.storage.servers import KafkaNode

from kraftbridge.models.broker_record import OffsetTable, PartitionOffsets
from kraftbridge.storage import broker_records as module
from kraftbridge.storage.broker_records import BrokerRecordClient

METADATA = MetadataResponse.API_KEY
VERSIONS = {ApiVersionsResponse.API_KEY: (0, 4), METADATA: (0, 12)}
UNKNOWN_TOPIC = 3
RECORD = {("orders", 0): PartitionOffsets(0, 100, 0)}


def metadata(ports: dict[int, int], topics: dict[str, int]) -> Any:
    """Return an answer that lists brokers, and topics without partitions, each with its error."""
    broker = MetadataResponse.MetadataResponseBroker
    topic = MetadataResponse.MetadataResponseTopic
    return MetadataResponse, {
        "throttle_time_ms": 0,
        "brokers": [broker(node_id=i, host="127.0.0.1", port=port, rack=None) for i, port in ports.items()],
        "cluster_id": "c",
        "controller_id": 0,
        "topics": [topic(error_code=e, name=n, is_internal=False, partitions=[]) for n, e in topics.items()],
    }


@pytest.fixture
def nodes() -> Iterator[tuple[KafkaNode, KafkaNode]]:
    found = KafkaNode({}, VERSIONS), KafkaNode({}, VERSIONS)
    yield found
    for node in found:
        node.close()


@pytest.mark.parametrize(
    ("restarted", "other", "why"),
    [
        ({}, {"orders": 0}, "the brokers do not agree"),
        ({}, {}, "the brokers do not agree"),
        ({"orders": UNKNOWN_TOPIC}, {"orders": 0}, "the brokers do not agree"),
        ({"orders": UNKNOWN_TOPIC}, None, "broker 1"),
        ({"orders": UNKNOWN_TOPIC}, {"orders": UNKNOWN_TOPIC}, ""),
    ],
)
def test_only_what_every_broker_calls_unknown_is_deleted(
    nodes: tuple[KafkaNode, KafkaNode], restarted: dict[str, int], other: dict[str, int] | None, why: str
) -> None:
    """A broker that has just started serves an empty list of topics."""
    first, second = nodes
    ports = {0: first.port, 1: second.port}
    first.answers[METADATA] = metadata(ports, restarted)
    if other is None:
        second.close()
    else:
        second.answers[METADATA] = metadata(ports, other)
    client = BrokerRecordClient(f"127.0.0.1:{first.port}", {})
    found = client.offsets_now(0, RECORD)
    client.close()
    assert (why in str(found["orders", 0])) if why else (found == {})


def test_offsets_of_many_partitions_are_asked_for_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    client = BrokerRecordClient(Cluster(topics=10, partitions=50).address, {})
    try:
        whole = client.offsets(0, timedelta(hours=1))
        monkeypatch.setattr(module, "_PART_PARTITIONS", 70)
        parts = client.offsets(0, timedelta(hours=1))
    finally:
        client.close()
    assert isinstance(parts, OffsetTable), "a dict of 200,000 partitions takes 60 MiB"
    assert len(parts) == 500
    assert parts == whole
    assert parts[topic_names(1)[0], 49] == PartitionOffsets(0, 10, 0)
