"""Clients that Kafka 4 refuses, as a real broker's metrics show them through Prometheus' JMX exporter with rules that people have."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest
from tests.support.kafka_processes import ZOOKEEPER, KafkaProcesses, free_port, kafka_processes

from kraftbridge.exceptions import ObservationError
from kraftbridge.kafka import wire
from kraftbridge.kafka.client import Security
from kraftbridge.models.observation import OldRequests
from kraftbridge.storage.broker_metrics import read_old_requests
from kraftbridge.storage.kafka_brokers import BrokerClient, DescribeConfigsRequest

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kafka-processes")]

PLAIN = "{}\n"
FOLDING = """lowercaseOutputName: true
rules:
- pattern: kafka.server<type=(.+), name=(.+), clientId=(.+), topic=(.+), partition=(.*)><>Value
  name: kafka_server_$1_$2
  type: GAUGE
  labels: {clientId: "$3", topic: "$4", partition: "$5"}
- pattern: kafka.(\\w+)<type=(.+), name=(.+)PerSec\\w*, (.+)=(.+), (.+)=(.+)><>Count
  name: kafka_$1_$2_$3_total
  type: COUNTER
  labels: {"$4": "$5", "$6": "$7"}
- pattern: kafka.(\\w+)<type=(.+), name=(.+)PerSec\\w*, (.+)=(.+)><>Count
  name: kafka_$1_$2_$3_total
  type: COUNTER
  labels: {"$4": "$5"}
"""
"""The rules of the exporter's own example for Kafka, on which vendors build theirs: two keys besides the name."""
WITHOUT = 'includeObjectNames: ["kafka.server:*", "kafka.controller:*"]\n'
RULES = {0: PLAIN, 1: FOLDING, 2: WITHOUT}


class WithExporters(KafkaProcesses):
    """Brokers whose exporters have different rules."""

    exporter_ports = {broker: free_port() for broker in RULES}

    def _broker_options(self, broker_id: int) -> list[str]:
        rules = self._write(f"exporter-{broker_id}.yml", RULES[broker_id])
        return [f"-javaagent:{self._agent}=127.0.0.1:{self.exporter_ports[broker_id]}:{rules}"]


@pytest.fixture(scope="module")
def processes() -> Iterator[WithExporters]:
    with kafka_processes(list(RULES), [], WithExporters) as processes:
        processes.start_zookeeper()
        for broker in RULES:
            processes.start_broker(broker, ZOOKEEPER)
        processes.admin_client()
        yield processes


def send_without_a_name(port: int) -> None:
    """Send ListOffsets v0 as a client does that knows no ApiVersions: nothing tells which software it is."""
    body = struct.pack(">hhih", 2, 0, 1, 3) + b"old" + struct.pack(">ii", -1, 0)
    with socket.create_connection(("127.0.0.1", port), 30) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        assert connection.recv(4)


def send_as(software: str, port: int, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(wire, "CLIENT_ID", software)
        with wire.Connection("127.0.0.1", port, Security(), 30.0) as connection:
            for _ in range(times):
                connection.call(DescribeConfigsRequest, 30.0, max_version=0, resources=[])


def read(processes: WithExporters, broker: int) -> tuple[OldRequests, ...]:
    return read_old_requests(broker, "127.0.0.1", processes.exporter_ports[broker], "/metrics", 30.0)


def test_clients_are_known_by_their_software_whatever_the_exporters_rules(
    processes: WithExporters, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = BrokerClient(processes.bootstrap_servers, {})
    for broker in (0, 1):
        with pytest.raises(ObservationError, match="does not show the request of an old version"):
            read(processes, broker)  # nobody has sent one: the page of a broker without old clients has no such line
    assert client.send_old_requests() == dict.fromkeys(RULES)
    for broker in (0, 1):
        assert read(processes, broker) == (), "the operator's own request is no client's"
        send_as("old-app", processes.broker_ports[broker], monkeypatch, 3)
        send_without_a_name(processes.broker_ports[broker])
        assert read(processes, broker) == (
            OldRequests("old-app", "1", "DescribeConfigs v0", 3),
            OldRequests("unknown", "unknown", "ListOffsets v0", 1),
        )
    client.close()


def test_a_page_that_does_not_export_them_proves_nothing(processes: WithExporters) -> None:
    client = BrokerClient(processes.bootstrap_servers, {})
    client.send_old_requests()
    client.close()
    with pytest.raises(
        ObservationError, match=r"export kafka\.network:type=RequestMetrics,name=DeprecatedRequestsPerSec"
    ):
        read(processes, 2)


def test_a_port_where_nothing_serves_and_a_path_that_is_none_are_told(processes: WithExporters) -> None:
    with pytest.raises(ObservationError, match="GET /metrics failed: ConnectionRefusedError"):
        read_old_requests(0, "127.0.0.1", free_port(), "/metrics", 5.0)
    with pytest.raises(ObservationError, match=r"metrics of broker 0 at 127\.0\.0\.1"):
        read_old_requests(0, "127.0.0.1", processes.broker_ports[0], "/metrics", 5.0)
