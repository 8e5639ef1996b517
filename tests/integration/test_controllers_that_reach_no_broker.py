"""Controllers that cannot log in to the brokers: both stores are equal, and no broker on ZooKeeper is told anything."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.support.kafka_processes import CHROOT, MIGRATION, ZOOKEEPER, KafkaProcesses, kafka_processes, wait_for
from typing_extensions import override

from kraftbridge.constants import canary_topic
from kraftbridge.models.observation import MigrationZnode, ZooKeeperState
from kraftbridge.storage.kafka_brokers import BrokerClient
from kraftbridge.storage.kafka_controllers import ControllerClient
from kraftbridge.storage.zookeeper import ZooKeeperStore

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.xdist_group("kafka-processes")]

CONTROLLER = 3000
BROKERS = [0, 1]
VALUE = 4711
WATCHED_SECONDS = 10.0


class Processes(KafkaProcesses):
    """Controllers that take the brokers' plain listener for one with TLS, until they are told better."""

    protocol = "SSL"

    @override
    def _controller_properties(self, controller_id: int, mode: str) -> str:
        path = super()._controller_properties(controller_id, mode)
        with open(path) as file:  # noqa: PTH123
            text = file.read()
        text = text.replace("map=PLAINTEXT:PLAINTEXT", f"map=PLAINTEXT:{self.protocol}")
        return self._write(f"controller-{controller_id}.properties", text + "inter.broker.listener.name=PLAINTEXT\n")


@dataclass
class Record:
    """What was seen."""

    mirrored: ZooKeeperState | None = None
    offsets: list[int] = field(default_factory=list)
    served: list[dict[int, Any]] = field(default_factory=list)
    served_after_repair: dict[int, Any] = field(default_factory=dict)
    served_after_removal: dict[int, Any] = field(default_factory=dict)
    canary_after_removal: float | None = None


def offset_of(state: ZooKeeperState) -> int:
    return state.migration.kraft_metadata_offset if isinstance(state.migration, MigrationZnode) else -1


@pytest.fixture(scope="module")
def record() -> Iterator[Record]:
    with kafka_processes(BROKERS, [CONTROLLER], Processes) as processes:
        zookeeper = ZooKeeperStore(processes.zookeeper_hosts, CHROOT)
        brokers = BrokerClient(processes.bootstrap_servers, {})
        controllers = ControllerClient(processes.controller_addresses, {})
        try:
            yield walk(processes, zookeeper, brokers, controllers)
        finally:
            for client in (zookeeper, brokers, controllers):
                client.close()


def walk(
    processes: Processes, zookeeper: ZooKeeperStore, brokers: BrokerClient, controllers: ControllerClient
) -> Record:
    seen, topic = Record(), canary_topic(VALUE)

    def in_zookeeper() -> ZooKeeperState | None:
        state = zookeeper.observe()
        return state if state.canary == VALUE else None

    def everywhere(*, served: bool) -> dict[int, Any] | None:
        told = dict(brokers.serves_topic(topic))
        return told if told == dict.fromkeys(BROKERS, served) else None

    processes.start_zookeeper()
    for broker in BROKERS:
        processes.start_broker(broker, ZOOKEEPER)
    wait_for("two brokers", lambda: len(brokers.cluster_state().brokers) == len(BROKERS))
    processes.format_controller(CONTROLLER, str(zookeeper.observe().cluster_id))
    processes.start_controller(CONTROLLER)
    wait_for("a leader", lambda: controllers.quorum_state().high_watermark > 0)
    for broker in BROKERS:
        processes.stop(f"broker-{broker}")
        processes.start_broker(broker, MIGRATION)
    wait_for("the copy", lambda: offset_of(zookeeper.observe()) >= 0)
    # KRaftMigrationDriver waits for no broker that is restarting and has no replicas: the copy may end before the second one registers.
    wait_for("a canary on both brokers", lambda: controllers.write_canary(VALUE, len(BROKERS)) is None)
    seen.mirrored = wait_for("the quota in ZooKeeper", in_zookeeper)
    until = time.monotonic() + WATCHED_SECONDS
    while time.monotonic() < until:
        seen.offsets.append(offset_of(zookeeper.observe()))
        seen.served.append(dict(brokers.serves_topic(topic)))
        time.sleep(0.5)
    processes.stop(f"controller-{CONTROLLER}")
    processes.protocol = "PLAINTEXT"
    processes.start_controller(CONTROLLER)
    seen.served_after_repair = wait_for("brokers that were told", lambda: everywhere(served=True), 90.0)
    controllers.remove_canary(VALUE)
    seen.served_after_removal = wait_for("brokers without the topic", lambda: everywhere(served=False), 90.0)
    wait_for("no canary", lambda: zookeeper.observe().canary is None)
    seen.canary_after_removal = zookeeper.observe().canary
    controllers.remove_canary(VALUE)  # what is absent is no error
    return seen


def test_the_stores_alone_show_nothing(record: Record) -> None:
    assert record.mirrored is not None
    assert record.mirrored.controller is not None
    assert record.mirrored.controller.broker_id == CONTROLLER
    assert record.offsets[-1] > record.offsets[0], "ZooKeeper mirrors the log, as every gate up to da8c3d4 asked for"


def test_no_broker_is_told_of_a_topic_made_after_the_takeover(record: Record) -> None:
    assert len(record.served) > 5
    assert all(served == dict.fromkeys(BROKERS, False) for served in record.served)


def test_every_broker_is_told_once_the_controllers_can_log_in(record: Record) -> None:
    assert record.served_after_repair == dict.fromkeys(BROKERS, True)


def test_the_canary_leaves_nothing_behind(record: Record) -> None:
    assert record.served_after_removal == dict.fromkeys(BROKERS, False)
    assert record.canary_after_removal is None
