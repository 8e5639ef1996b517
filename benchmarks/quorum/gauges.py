"""Reads the nodes' own figures: time to fsync, to commit, to apply (KIP-595, "Quorum Performance")."""

from __future__ import annotations

import http.client
import math
import re
import socket
import time
from collections.abc import Iterator
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from kraftbridge.storage.kafka_controllers import fetch_page

EXPORTED: Final = (
    "kafka.controller:*",
    "kafka.server:type=raft-metrics",
    "kafka.server:type=raft-metrics,*",
    "kafka.server:type=broker-metadata-metrics",
    "kafka.server:type=BrokerMetadataListener,*",
    "kafka.server:type=ZooKeeperClientMetrics,*",
    "kafka.server:type=ReplicaManager,name=PartitionCount",
    "kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions",
    "kafka.log:type=LogFlushStats,*",
)
"""Object names that the agent of every node serves."""

_WANTED: Final = re.compile(
    r"kafka_log_LogFlushStats_.*"
    r"|kafka_server_raft_metrics_(commit_latency|election_latency|poll_idle|append_records|high_watermark).*"
    r"|kafka_server_broker_metadata_metrics_.*|kafka_server_BrokerMetadataListener_.*"
    r"|kafka_server_ZooKeeperClientMetrics_.*"
    r"|kafka_controller_ControllerEventManager_.*"
    r"|kafka_controller_ControllerStats_.*(ControllerChange|LeaderElection|TopicChange|TopicDeletion)RateAndTimeMs.*"
)
_ATTRIBUTES: Final = re.compile(
    r"(Count|Mean|50thPercentile|99thPercentile|999thPercentile|Max|Value|raft_metrics_.*|metadata_metrics_.*)$"
)
_ZOOKEEPER: Final = re.compile(
    r"zk_(avg|min|max|cnt|sum|p50|p99|p999)_(fsynctime|updatelatency|readlatency|propagation_latency)$|zk_znode_count$"
)
_REPLICAS: Final = re.compile(
    r'^kafka_server_ReplicaManager_Value\{name="(PartitionCount|UnderReplicatedPartitions)",?\} (\S+)', re.MULTILINE
)
_SECONDS: Final = 10.0


def replicas(port: int) -> tuple[int, int] | None:
    """Return how many replicas a broker has and how many of the partitions that it leads lack one; None when it does not say."""
    try:
        page = fetch_page("127.0.0.1", port, time.monotonic() + _SECONDS)
    except (OSError, http.client.HTTPException):
        return None
    found = {m[1]: int(float(m[2])) for m in _REPLICAS.finditer(page)}
    if len(found) != 2:  # noqa: PLR2004 - both of them
        return None
    return found["PartitionCount"], found["UnderReplicatedPartitions"]


def node_gauges(port: int) -> Iterator[tuple[str, float]]:
    """Yield name and value of a node's gauges that are not zero; nothing when it does not answer."""
    try:
        page = fetch_page("127.0.0.1", port, time.monotonic() + _SECONDS)
    except (OSError, http.client.HTTPException):
        return
    wanted = "".join(line for line in page.splitlines(keepends=True) if _WANTED.match(line))
    for family in text_string_to_metric_families(wanted):
        for sample in family.samples:
            if sample.value and math.isfinite(sample.value) and _ATTRIBUTES.search(sample.name):
                name = sample.labels.get("name", "")
                yield f"{sample.name}{f'[{name}]' if name else ''}", sample.value


def zookeeper_gauges(port: int) -> Iterator[tuple[str, float]]:
    """Yield fsync and latency as a server's ``mntr`` reports them, in milliseconds, and ``leader``: 1 or 0."""
    try:
        with socket.create_connection(("127.0.0.1", port), _SECONDS) as connection:
            connection.sendall(b"mntr")
            text = b""
            while part := connection.recv(65536):
                text += part
    except OSError:
        return
    for line in text.decode(errors="replace").splitlines():
        name, _, value = line.partition("\t")
        if name == "zk_server_state":
            yield "leader", float(value == "leader")
        if _ZOOKEEPER.match(name):
            try:
                yield name, float(value)
            except ValueError:
                continue
