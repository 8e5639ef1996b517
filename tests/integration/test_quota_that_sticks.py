"""The way out of a takeover that an unknown quota has stopped, on a real broker, controller and ZooKeeper."""

from __future__ import annotations

import json
import subprocess

import pytest
from kazoo.client import KazooClient
from tests.support.kafka_processes import (
    CHROOT,
    MIGRATION,
    ZOOKEEPER,
    KafkaProcesses,
    kafka_libraries,
    kafka_processes,
    wait_for,
)

from kraftbridge.kafka.__main__ import main
from kraftbridge.storage.kafka_brokers import BrokerClient
from kraftbridge.storage.kafka_controllers import ControllerClient
from kraftbridge.storage.zookeeper import ZooKeeperStore

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.xdist_group("kafka-processes")]

BROKER, CONTROLLER = 0, 3000
UNKNOWN = "foo_rate"


def plant(processes: KafkaProcesses) -> None:
    """Write the quota as an old tool could: directly into ZooKeeper."""
    session = KazooClient(processes.zookeeper_hosts + CHROOT)
    session.start()
    try:
        session.create("/config/users/alice", json.dumps({"version": 1, "config": {UNKNOWN: "1"}}).encode())
    finally:
        session.stop()
        session.close()


def takes_over(processes: KafkaProcesses, zookeeper: ZooKeeperStore, brokers: BrokerClient) -> None:
    processes.start_zookeeper()
    processes.start_broker(BROKER, ZOOKEEPER)
    wait_for("the broker", lambda: brokers.cluster_state().brokers)
    plant(processes)
    cluster_id = zookeeper.observe().cluster_id
    assert cluster_id is not None
    processes.format_controller(CONTROLLER, cluster_id)
    processes.start_controller(CONTROLLER)
    processes.stop(f"broker-{BROKER}")
    processes.start_broker(BROKER, MIGRATION, wait=False)


def test_a_quota_that_stops_the_sync_is_removed_at_the_controller(capsys: pytest.CaptureFixture[str]) -> None:
    with kafka_processes([BROKER], [CONTROLLER]) as processes:
        zookeeper = ZooKeeperStore(processes.zookeeper_hosts, CHROOT)
        brokers = BrokerClient(processes.bootstrap_servers, {})
        controllers = ControllerClient(processes.controller_addresses, {})
        log = processes.directory / f"controller-{CONTROLLER}.log"
        try:
            takes_over(processes, zookeeper, brokers)
            stuck = "Will retry"
            wait_for("the sync to be refused twice", lambda: log.read_text().count(stuck) > 1)
            assert "to DUAL_WRITE state" not in log.read_text()
            (host, port) = processes.controller_addresses[CONTROLLER]
            command = ["remove-quota", "--controllers", f"{host}:{port}", "--user", "alice", "--quota"]

            assert main([*command, UNKNOWN]) == 0

            wait_for("dual-write", lambda: "to DUAL_WRITE state" in log.read_text())
            assert f"removed quota {UNKNOWN}" in capsys.readouterr().out
        finally:
            for client in (zookeeper, brokers, controllers):
                client.close()


def kafka_configs(*arguments: str) -> subprocess.CompletedProcess[str]:
    java = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", f"{kafka_libraries()}/*", "kafka.admin.ConfigCommand"]
    return subprocess.run([*java, *arguments], check=False, capture_output=True, text=True, timeout=120)


def test_before_the_takeover_a_broker_removes_it_and_kafka_configs_refuses_its_name() -> None:
    with kafka_processes([BROKER], []) as processes:
        brokers = BrokerClient(processes.bootstrap_servers, {})
        session = KazooClient(processes.zookeeper_hosts + CHROOT)
        try:
            processes.start_zookeeper()
            processes.start_broker(BROKER, ZOOKEEPER)
            wait_for("the broker", lambda: brokers.cluster_state().brokers)
            plant(processes)
            session.start()
            alice = ["--alter", "--entity-type", "users", "--entity-name", "alice", "--delete-config", UNKNOWN]

            refused = kafka_configs("--bootstrap-server", processes.bootstrap_servers, *alice)

            assert refused.returncode != 0
            assert UNKNOWN in refused.stdout + refused.stderr
            assert UNKNOWN in json.loads(session.get("/config/users/alice")[0])["config"]
            command = ["remove-quota", "--controllers", processes.bootstrap_servers, "--user", "alice"]
            assert main([*command, "--quota", UNKNOWN]) == 0
            assert session.exists("/config/users/alice") is None  # it was her only quota
        finally:
            brokers.close()
            session.stop()
            session.close()


def test_a_controller_that_does_not_answer_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["remove-quota", "--controllers", "127.0.0.1:1", "--client", "", "--quota", UNKNOWN]) == 1
    assert "127.0.0.1:1" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["remove-quota", "--controllers", "127.0.0.1:1", "--quota", UNKNOWN])
    assert "one of --user, --client and --ip" in capsys.readouterr().err
