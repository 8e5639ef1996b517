"""What the gates of the procedure observe: metrics and answers of controllers, metadata of brokers, znodes."""

import json
import socket
import urllib.request
from typing import Any

from confluent_kafka import KafkaException
from kafka.protocol.admin import DescribeClusterRequest, DescribeConfigsRequest
from kafka.protocol.parser import KafkaProtocol
from kazoo.client import KazooClient

from kafka_clients.bare.objects import CONTROLLER_IDS, CONTROLLER_PORT, METRICS_PORT, controller_host
from kafka_clients.cluster import TOPIC_RESOURCE, confluent_admin

# DescribeCluster's endpoint type for controllers (KIP-919).
CONTROLLER_ENDPOINTS = 2
# Value of the gauge in Kafka 3.9 (org.apache.kafka.metadata.migration.ZkMigrationState).
MIGRATION, PRE_MIGRATION, POST_MIGRATION = 1, 2, 3


class Controllers:
    """The KRaft controllers, by their metrics and by their own protocol."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace

    def metrics(self, node: int) -> dict[str, float]:
        """Return a controller's gauges: KafkaController's by name, those of raft as ``raft.NAME``."""
        url = f"http://{controller_host(node, self.namespace)}:{METRICS_PORT}/metrics"
        try:
            with urllib.request.urlopen(url, timeout=5) as response:
                text = response.read().decode()
        except OSError:
            return {}
        found = {}
        for line in text.splitlines():
            name, _, value = line.rpartition(" ")
            if name.startswith("kafka_controller_KafkaController_Value{"):
                found[name.split('name="')[1].split('"')[0]] = float(value)
            elif name.startswith("kafka_server_raft_metrics_"):
                found["raft." + name.removeprefix("kafka_server_raft_metrics_").split("{")[0]] = float(value)
        return found

    def active(self) -> int | None:
        """Return the one controller that says it is active."""
        claims = [node for node in CONTROLLER_IDS if self.metrics(node).get("ActiveControllerCount") == 1]
        return claims[0] if len(claims) == 1 else None

    def gauge(self, name: str) -> float | None:
        """Return a gauge of the active controller; None if there is no such controller."""
        active = self.active()
        return None if active is None else self.metrics(active).get(name)

    def quorum_agrees(self) -> bool:
        """Whether all voters name one leader and are at the same place in the log, but for 4 records."""
        all_metrics = [self.metrics(node) for node in CONTROLLER_IDS]
        leaders = {found.get("raft.current_leader") for found in all_metrics}
        ends = [found.get("raft.log_end_offset") for found in all_metrics]
        if len(leaders) != 1 or not leaders <= set(CONTROLLER_IDS) or None in ends:
            return False
        return sum(found.get("ActiveControllerCount", 0) for found in all_metrics) == 1 and max(ends) - min(ends) <= 4

    def states(self) -> list[float | None]:
        """Return every controller's ZkMigrationState."""
        return [self.metrics(node).get("ZkMigrationState") for node in CONTROLLER_IDS]

    def registered(self) -> set[int]:
        """Return the controllers that the active one has a registration of.

        The migration does not begin before all have one, and no metric shows that: a controller whose first request timed out
        (on a busy machine) never sends another (``ControllerRegistrationManager``, seen in 3.9.1).
        """
        active = self.active()
        if active is None:
            return set()
        request = DescribeClusterRequest(
            version=1, include_cluster_authorized_operations=False, endpoint_type=CONTROLLER_ENDPOINTS
        )
        response = _ask(controller_host(active, self.namespace), CONTROLLER_PORT, request)
        return {node.broker_id for node in response.brokers}

    def topic_config(self, topic: str, name: str) -> str | None:
        """Return a config of a topic as the active controller has it in its image (KIP-919)."""
        active = self.active()
        if active is None:
            return None
        request = DescribeConfigsRequest(
            version=4,
            resources=[(TOPIC_RESOURCE, topic, [name])],
            include_synonyms=False,
            include_documentation=False,
        )
        response = _ask(controller_host(active, self.namespace), CONTROLLER_PORT, request)
        return next(
            (entry.value for result in response.results for entry in result.configs if entry.name == name), None
        )


class Brokers:
    """The brokers, by what they answer to any client."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.admin = confluent_admin()

    def in_sync(self) -> bool:
        """Whether all brokers are there and every partition has a leader and all its replicas in sync."""
        try:
            metadata = self.admin.list_topics(timeout=5)
        except KafkaException:
            return False
        return len(metadata.brokers) == self.count and all(
            len(partition.isrs) == len(partition.replicas) and partition.leader >= 0
            for topic in metadata.topics.values()
            for partition in topic.partitions.values()
        )


class Znodes:
    """Kafka's znodes, under its chroot."""

    def __init__(self, connect: str) -> None:
        self.client = KazooClient(hosts=connect, timeout=10)
        self.client.start(timeout=30)

    def read(self, path: str) -> Any:
        return json.loads(self.client.get(path)[0])

    def close(self) -> None:
        self.client.stop()
        self.client.close()


def _ask(host: str, port: int, request: Any) -> Any:
    """Send one request straight to a node: kafka-python's clients cannot bootstrap from a controller."""
    protocol = KafkaProtocol(client_id="bare-migration")
    with socket.create_connection((host, port), timeout=5) as connection:
        protocol.send_request(request)
        connection.sendall(bytes(protocol.send_bytes()))
        while part := connection.recv(65_536):
            for _, response in protocol.receive_bytes(part):
                return response
    raise ConnectionError(f"{host}:{port} closed the connection without an answer")
