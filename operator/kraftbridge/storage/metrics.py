"""Reads the gauges of a controller from the Prometheus JMX exporter."""

from __future__ import annotations

import http.client
import math
import time
from collections.abc import Callable
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from kraftbridge.constants import METRICS_PORT
from kraftbridge.exceptions import ObservationError
from kraftbridge.kafka.resolver import resolve
from kraftbridge.models.observation import ControllerMetrics
from kraftbridge.models.phase import ZkMigrationState

_PAGE_LIMIT_BYTES: Final = 32 * 1024 * 1024
_CHUNK_BYTES: Final = 64 * 1024
_HTTP_OK: Final = 200

_ZK_MIGRATION_STATES: Final = {
    -1: ZkMigrationState.NOT_LOADED,
    0: ZkMigrationState.NONE,
    1: ZkMigrationState.MIGRATION,
    2: ZkMigrationState.PRE_MIGRATION,
    3: ZkMigrationState.POST_MIGRATION,
    4: ZkMigrationState.ZK,
}
"""Numbers of ``org.apache.kafka.metadata.migration.ZkMigrationState`` since Kafka 3.5, and the gauge's own -1."""

_CONTROLLER_GAUGE: Final = "kafka_controller_KafkaController_Value"
"""``kafka.controller:type=KafkaController,name=…``, attribute ``Value``."""
_RAFT_PREFIX: Final = "kafka_server_raft_metrics_"
"""``kafka.server:type=raft-metrics``, one attribute per gauge (KIP-595)."""
_PREFIXES: Final = (_CONTROLLER_GAUGE, _RAFT_PREFIX)


def read_controller_metrics(
    node_id: int, host: str, port: int = METRICS_PORT, timeout_seconds: float = 3.0
) -> ControllerMetrics:
    """Read one controller's gauges.

    Parameters
    ----------
    node_id
        Node id for the result.
    host
        Name or IP of the controller's pod.
    timeout_seconds
        For name resolution, connection and page together.

    Raises
    ------
    ObservationError
        No answer in time, or a gauge is missing or has no usable value.
    """
    source = f"metrics of controller {node_id} at {host}:{port}"
    started = time.monotonic()
    try:
        page = fetch_page(host, port, started + timeout_seconds)
    except (OSError, http.client.HTTPException) as e:
        reason = f"GET /metrics failed: {type(e).__name__}: {e}"
        raise ObservationError(source, reason) from e
    try:
        return parse_controller_metrics(node_id, page)
    except ValueError as e:
        raise ObservationError(source, str(e)) from e


def parse_controller_metrics(node_id: int, page: str) -> ControllerMetrics:
    """Return the gauges of an exporter's page.

    Raises
    ------
    ValueError
        A gauge is missing, is not a whole number, or has an unknown value.
    """
    gauges: dict[str, float] = {}
    wanted = "".join(
        line for line in page.splitlines(keepends=True) if line.startswith(_PREFIXES)
    )  # a page may be long
    for family in text_string_to_metric_families(wanted):
        for sample in family.samples:
            if sample.name == _CONTROLLER_GAUGE:
                gauges[sample.labels.get("name", "")] = sample.value
            elif sample.name.startswith(_RAFT_PREFIX):
                gauges[sample.name.removeprefix(_RAFT_PREFIX)] = sample.value

    def whole(name: str) -> int:
        value = gauges.get(name)
        if value is None:
            raise ValueError(
                f"the page has no gauge {name}; does the JMX exporter's configuration include kafka.controller:* "
                "and kafka.server:type=raft-metrics?"
            )
        if not math.isfinite(value) or value != int(value):
            raise ValueError(f"gauge {name} has the value {value}, which is not a whole number")
        return int(value)

    state = _ZK_MIGRATION_STATES.get(whole("ZkMigrationState"))
    if state is None:
        raise ValueError(
            f"gauge ZkMigrationState has the value {gauges['ZkMigrationState']}, which Kafka 3.9 does not define"
        )
    return ControllerMetrics(
        node_id=node_id,
        active=whole("ActiveControllerCount") == 1,
        zk_migration_state=state,
        migrating_zk_brokers=whole("MigratingZkBrokerCount"),
        active_brokers=whole("ActiveBrokerCount"),
        fenced_brokers=whole("FencedBrokerCount"),
        leader_id=whole("current_leader"),
        leader_epoch=whole("current_epoch"),
    )


def fetch_page(host: str, port: int, deadline: float) -> str:
    """Return an exporter's page until ``deadline`` (monotonic clock); raises `OSError` or `HTTPException`."""
    left: Callable[[], float] = lambda: deadline - time.monotonic()  # noqa: E731 - shorter than a function of one line
    address = resolve(host, port, max(left(), 0.1))[0]
    connection = http.client.HTTPConnection(address, port, timeout=max(left(), 0.1))
    try:
        connection.request("GET", "/metrics", headers={"Host": f"{host}:{port}", "Accept": "text/plain"})
        answer = connection.getresponse()
        if answer.status != _HTTP_OK:
            raise http.client.HTTPException(f"status {answer.status} {answer.reason}")
        page = bytearray()
        while chunk := answer.read1(_CHUNK_BYTES):
            page += chunk
            if len(page) > _PAGE_LIMIT_BYTES:
                raise http.client.HTTPException(f"the page is larger than {_PAGE_LIMIT_BYTES} bytes")
            if left() <= 0:
                raise TimeoutError("the page did not end in time")
        return page.decode("utf-8", "replace")
    finally:
        connection.close()
