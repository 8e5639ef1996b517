from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest
from tests.unit.storage.servers import http_server

from kraftbridge.exceptions import ObservationError
from kraftbridge.models.observation import ControllerMetrics
from kraftbridge.models.phase import ZkMigrationState
from kraftbridge.outside.bounds import BoundExceededError
from kraftbridge.storage.kafka_controllers import parse_controller_metrics, read_controller_metrics

DATA = Path(__file__).parent / "data"
DUAL_WRITE = (DATA / "controller-dual-write.prom").read_text()
"""Page of jmx_prometheus_javaagent 1.0.1 in a Kafka 3.9.1 controller."""

EXPECTED = ControllerMetrics(
    node_id=3000,
    active=True,
    zk_migration_state=ZkMigrationState.MIGRATION,
    migrating_zk_brokers=1,
    active_brokers=1,
    fenced_brokers=0,
    leader_id=3000,
    leader_epoch=1,
)


def changed(gauge: str, value: str) -> str:
    lines = [
        f"{line.rsplit(' ', 1)[0]} {value}" if gauge in line and line[0] != "#" else line
        for line in DUAL_WRITE.splitlines()
    ]
    assert gauge in DUAL_WRITE
    return "\n".join(lines) + "\n"


def test_recorded_pages_are_read_whole() -> None:
    assert parse_controller_metrics(3000, DUAL_WRITE) == EXPECTED
    before = parse_controller_metrics(3000, (DATA / "controller-pre-migration.prom").read_text())
    assert before.zk_migration_state is ZkMigrationState.PRE_MIGRATION
    assert (before.migrating_zk_brokers, before.active_brokers) == (0, 0)


@pytest.mark.parametrize(
    ("number", "state"),
    [
        ("-1.0", ZkMigrationState.NOT_LOADED),
        ("0.0", ZkMigrationState.NONE),
        ("1.0", ZkMigrationState.MIGRATION),
        ("2.0", ZkMigrationState.PRE_MIGRATION),
        ("3.0", ZkMigrationState.POST_MIGRATION),
        ("4.0", ZkMigrationState.ZK),
    ],
)
def test_states_are_named_as_kafka_3_9_numbers_them(number: str, state: ZkMigrationState) -> None:
    assert parse_controller_metrics(3000, changed('"ZkMigrationState"', number)).zk_migration_state is state


@pytest.mark.parametrize("value", ["5.0", "1.5", "NaN", "+Inf"])
def test_an_unknown_state_is_no_state(value: str) -> None:
    with pytest.raises(ValueError, match="ZkMigrationState"):
        parse_controller_metrics(3000, changed('"ZkMigrationState"', value))


@pytest.mark.parametrize(
    "gauge",
    [
        "ActiveControllerCount",
        "ZkMigrationState",
        "MigratingZkBrokerCount",
        "ActiveBrokerCount",
        "FencedBrokerCount",
        "current_leader",
        "current_epoch",
    ],
)
def test_a_missing_gauge_is_an_error_that_names_it(gauge: str) -> None:
    page = "".join(line for line in DUAL_WRITE.splitlines(keepends=True) if gauge not in line)
    with pytest.raises(ValueError, match=gauge):
        parse_controller_metrics(3000, page)


def test_a_controller_of_kafka_4_has_no_gauge_of_a_migration() -> None:
    of_migration = ("ZkMigrationState", "MigratingZkBrokerCount")
    page = "".join(
        line for line in DUAL_WRITE.splitlines(keepends=True) if not any(gauge in line for gauge in of_migration)
    )
    found = parse_controller_metrics(3000, page)
    assert (found.zk_migration_state, found.migrating_zk_brokers) == (ZkMigrationState.ABSENT, 0)
    assert (found.active, found.active_brokers, found.leader_id) == (True, 1, 3000)


def test_a_page_is_fetched_over_http() -> None:
    with http_server() as server:
        server.respond = lambda request: (200, DUAL_WRITE) if request.path == "/metrics" else (404, "")
        assert read_controller_metrics(3000, "localhost", server.port) == EXPECTED


@pytest.mark.parametrize(
    ("status", "text"), [(500, DUAL_WRITE), (200, ""), (200, "kafka_controller_KafkaController_Value{")]
)
def test_a_bad_answer_is_an_observation_error(status: int, text: str) -> None:
    with http_server() as server:
        server.respond = lambda _: (status, text)
        with pytest.raises(ObservationError, match=f"controller 3000 at 127.0.0.1:{server.port}"):
            read_controller_metrics(3000, "127.0.0.1", server.port)


def test_a_silent_exporter_is_an_observation_error_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        started = time.monotonic()
        with pytest.raises(ObservationError, match="timed out"):
            read_controller_metrics(3000, "127.0.0.1", silent.getsockname()[1], timeout_seconds=0.3)
        assert time.monotonic() - started < 2


@pytest.mark.parametrize(
    "page",
    [
        'kafka_controller_KafkaController_Value{name="%d"} 1\n' * 300_000,
        "kafka_controller_KafkaController_Value{" + ",".join(f'a{i}="b"' for i in range(300_000)) + "} 1\n",
        'kafka_controller_KafkaController_Value{name="' + "\\\\" * (4 << 20) + '"} 1\n',
    ],
    ids=["lines", "labels", "escapes"],
)
def test_a_page_of_any_form_is_refused_before_it_takes_time(page: str) -> None:
    began = time.process_time()
    with pytest.raises(BoundExceededError, match="is the most that is accepted"):
        parse_controller_metrics(3000, page)
    assert time.process_time() - began < 5.0
