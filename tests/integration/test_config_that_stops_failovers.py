"""Configurations that ZooKeeper cannot hold: after a failover the controller never gets back to dual-write, until the finding's own command has run."""

from __future__ import annotations

import subprocess

import pytest
from kafka.protocol.admin.configs import IncrementalAlterConfigsRequest
from tests.fixes.registry import runs
from tests.support.kafka_processes import (
    CHROOT,
    MIGRATION,
    ZOOKEEPER,
    KafkaProcesses,
    kafka_libraries,
    kafka_processes,
    wait_for,
)

from kraftbridge.kafka.client import Security
from kraftbridge.kafka.wire import Connection
from kraftbridge.models.catalogue import Code
from kraftbridge.storage.kafka_brokers import BrokerClient
from kraftbridge.storage.kafka_controllers import ControllerClient
from kraftbridge.storage.zookeeper import ZooKeeperStore

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.xdist_group("kafka-processes")]

BROKER, CONTROLLER = 0, 3000
DUAL_WRITE = "to DUAL_WRITE state"
STUCK = "Unknown config resource type"


def kafka_configs(*arguments: str) -> None:
    java = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", f"{kafka_libraries()}/*", "kafka.admin.ConfigCommand"]
    done = subprocess.run([*java, *arguments], check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def group_config_refused(address: tuple[str, int]) -> bool:
    """Return whether the controller refuses a configuration of a group (``ControllerApis`` of 3.9.2 knows no such resource)."""
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    config = resource.AlterableConfig(name="consumer.session.timeout.ms", config_operation=0, value="50000")
    asked = [resource(resource_type=32, resource_name="x", configs=[config])]
    with Connection(*address, Security(), 15) as connection:
        answer = connection.call(
            IncrementalAlterConfigsRequest, 15, max_version=1, resources=asked, validate_only=False
        )
    return "Unknown resource type" in str(answer.responses[0].error_message)


def into_dual_write(processes: KafkaProcesses, zookeeper: ZooKeeperStore, brokers: BrokerClient) -> None:
    processes.start_zookeeper()
    processes.start_broker(BROKER, ZOOKEEPER)
    wait_for("the broker", lambda: brokers.cluster_state().brokers)
    cluster_id = zookeeper.observe().cluster_id
    assert cluster_id is not None
    processes.format_controller(CONTROLLER, cluster_id)
    processes.start_controller(CONTROLLER)
    processes.stop(f"broker-{BROKER}")
    processes.start_broker(BROKER, MIGRATION)


@runs(Code.CONFIG_STOPS_FAILOVER)
def test_the_findings_command_lets_the_failover_end() -> None:
    with kafka_processes([BROKER], [CONTROLLER]) as processes:
        zookeeper = ZooKeeperStore(processes.zookeeper_hosts, CHROOT)
        brokers = BrokerClient(processes.bootstrap_servers, {})
        controllers = ControllerClient(processes.controller_addresses, {})
        log = processes.directory / f"controller-{CONTROLLER}.log"
        at = ":".join(map(str, processes.controller_addresses[CONTROLLER]))
        try:
            into_dual_write(processes, zookeeper, brokers)
            wait_for("dual-write", lambda: DUAL_WRITE in log.read_text())
            name = ("--entity-type", "client-metrics", "--entity-name", "x")
            kafka_configs("--bootstrap-controller", at, *name, "--alter", "--add-config", "interval.ms=1000")
            assert group_config_refused(processes.controller_addresses[CONTROLLER]), "groups need a way out, too"
            processes.stop(f"controller-{CONTROLLER}")
            begin = len(log.read_text())
            processes.start_controller(CONTROLLER)
            wait_for("the failover to stick", lambda: STUCK in log.read_text()[begin:])
            assert DUAL_WRITE not in log.read_text()[begin:]

            _, fix = Code.CONFIG_STOPS_FAILOVER.describe(type="client-metrics", name="x", names="interval.ms")
            kafka_configs(*fix.partition("kafka-configs ")[2].replace("HOST:PORT", at).split())

            wait_for("dual-write again", lambda: DUAL_WRITE in log.read_text()[begin:])
        finally:
            for client in (zookeeper, brokers, controllers):
                client.close()
