"""A rollback while clients go on writing: what Kafka acknowledged before the operator's last look is in ZooKeeper."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Sequence

import pytest
from kafka.protocol.admin.topics import CreateTopicsRequest
from tests.support.kafka_processes import CHROOT, MIGRATION, ZOOKEEPER, KafkaProcesses, kafka_processes, wait_for

from kraftbridge.kafka.client import Security
from kraftbridge.kafka.wire import Connection, WireError
from kraftbridge.models.observation import MigrationZnode, ZooKeeperState
from kraftbridge.phases.rollback import unmirrored_records
from kraftbridge.storage.kafka_brokers import BrokerClient
from kraftbridge.storage.kafka_controllers import ControllerClient
from kraftbridge.storage.zookeeper import ZooKeeperStore

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kafka-processes")]

BROKERS = (0, 1)
LEAST_ACKNOWLEDGED = 20
GRACE_SECONDS = 1.0
"""Of the controllers' pods in a rollback."""


class Writer:
    """Creates topics through one broker and keeps which ones were acknowledged, and when."""

    def __init__(self, broker: int, port: int) -> None:
        self.acknowledged: list[tuple[float, str]] = []
        self._broker, self._port = broker, port
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"writer {broker}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(20)

    def _run(self) -> None:
        connection: Connection | None = None
        number = 0
        while not self._stop.is_set():
            number += 1
            name = f"written-{self._broker}-{number}"
            try:
                connection = connection or Connection("127.0.0.1", self._port, Security(), 5)
                if self._create(connection, name) == 0:
                    self.acknowledged.append((time.monotonic(), name))
            except WireError:
                connection = None
                time.sleep(0.05)

    @staticmethod
    def _create(connection: Connection, name: str) -> int:
        topic = CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=3, replication_factor=2, assignments=[], configs=[]
        )
        answer = connection.call(
            CreateTopicsRequest, 5, max_version=5, topics=[topic], timeout_ms=3000, validate_only=False
        )
        return int(answer.topics[0].error_code)


def into_dual_write(processes: KafkaProcesses, controllers: ControllerClient, zookeeper: ZooKeeperStore) -> None:
    brokers = BrokerClient(processes.bootstrap_servers, {})
    processes.start_zookeeper()
    for broker in BROKERS:
        processes.start_broker(broker, ZOOKEEPER)
    wait_for("two brokers", lambda: len(brokers.cluster_state().brokers) == len(BROKERS), 150)
    cluster_id = zookeeper.observe().cluster_id
    assert cluster_id is not None
    for node in processes.controller_ports:
        processes.format_controller(node, cluster_id)
        processes.start_controller(node)
    wait_for("a leader", lambda: controllers.quorum_state().high_watermark > 0, 150)
    for broker in BROKERS:
        processes.stop(f"broker-{broker}")
        processes.start_broker(broker, MIGRATION)
    wait_for("dual-write", lambda: offset(zookeeper.observe()) >= 0, 150)
    brokers.close()


def offset(state: ZooKeeperState) -> int:
    return state.migration.kraft_metadata_offset if isinstance(state.migration, MigrationZnode) else -1


def stop_like_pods(processes: KafkaProcesses, nodes: Sequence[int]) -> None:
    """SIGTERM to all at once, SIGKILL after the grace period, as ``services/act/removal.py`` deletes the pods."""
    for node in nodes:
        processes.signal(f"controller-{node}", signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    for node in nodes:
        processes.signal(f"controller-{node}", signal.SIGKILL)


@pytest.mark.parametrize("nodes", [(3000,), (3000, 3001, 3002)], ids=["one controller", "three controllers"])
def test_what_was_acknowledged_before_the_last_look_is_in_zookeeper(nodes: tuple[int, ...]) -> None:
    with kafka_processes(BROKERS, nodes) as processes:
        zookeeper = ZooKeeperStore(processes.zookeeper_hosts, CHROOT)
        controllers = ControllerClient(processes.controller_addresses, {})
        into_dual_write(processes, controllers, zookeeper)
        writers = [Writer(broker, processes.broker_ports[broker]) for broker in BROKERS]

        def everything_is_mirrored() -> list[str] | None:
            known = [name for w in writers for _, name in list(w.acknowledged)]
            quorum, state = controllers.quorum_state(), zookeeper.observe()
            assert isinstance(state.migration, MigrationZnode)
            whole = unmirrored_records(quorum, state.migration) <= 0 and len(known) >= LEAST_ACKNOWLEDGED
            return known if whole else None

        try:
            before = wait_for("a look at which ZooKeeper lacks nothing", everything_is_mirrored, 150)
            stop_like_pods(processes, nodes)
        finally:
            for writer in writers:
                writer.stop()
        written = [name for w in writers for _, name in w.acknowledged]
        found = zookeeper.payloads([f"/brokers/topics/{name}" for name in written])
        missing = [name for name in written if found[f"/brokers/topics/{name}"] is None]
        print(
            f"{len(nodes)} controllers: {len(before)} acknowledged before the look, {len(written) - len(before)} after it, {len(missing)} missing"
        )
        assert not set(missing) & set(before)
        zookeeper.close()
        controllers.close()
