"""A rollback while clients go on writing: everything that Kafka acknowledged is in ZooKeeper."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.admin.topics import CreateTopicsRequest, DeleteTopicsRequest
from tests.support.kafka_processes import CHROOT, MIGRATION, ZOOKEEPER, KafkaProcesses, kafka_processes, wait_for
from tests.support.programs import free_port
from typing_extensions import override

from kraftbridge.builders.controllers import ISOLATED_SETTINGS
from kraftbridge.constants import canary_topic
from kraftbridge.kafka.client import Security
from kraftbridge.kafka.wire import Connection, WireError
from kraftbridge.models.observation import MigrationZnode, ZooKeeperState
from kraftbridge.storage.kafka_brokers import BrokerClient
from kraftbridge.storage.kafka_controllers import ControllerClient
from kraftbridge.storage.zookeeper import ZooKeeperStore

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.xdist_group("kafka-processes")]

BROKERS = (0, 1)
LEAST_ACKNOWLEDGED = 20
GRACE_SECONDS = 1.0
"""Of the controllers' pods in a rollback."""
FROZEN_SECONDS = 2.0
"""Shorter than every ZooKeeper session."""
WRITERS_TRY_SECONDS = 12.0
"""Longer than ``broker.session.timeout.ms`` (9 s), after which controllers fence a broker that they do not hear."""


class Processes(KafkaProcesses):
    """Controllers that can be isolated as ``builders/controllers.py`` does it: on ports that no broker knows."""

    @override
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.known_ports = dict(self.controller_ports)
        self.isolated_ports = {i: free_port() for i in self.controller_ports}

    def isolate(self) -> None:
        """Let controllers that start from now on listen where no broker looks."""
        self.controller_ports = dict(self.isolated_ports)

    @override
    def _controller_properties(self, controller_id: int, mode: str) -> str:
        path = Path(super()._controller_properties(controller_id, mode))
        if self.controller_ports != self.known_ports:
            path.write_text(path.read_text() + "".join(f"{k}={v}\n" for k, v in ISOLATED_SETTINGS.items()))
        return str(path)


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
    wait_for("two brokers", lambda: len(brokers.cluster_state().brokers) == len(BROKERS))
    cluster_id = zookeeper.observe().cluster_id
    assert cluster_id is not None
    for node in processes.controller_ports:
        processes.format_controller(node, cluster_id)
        processes.start_controller(node)
    wait_for("a leader", lambda: controllers.quorum_state().high_watermark > 0)
    for broker in BROKERS:
        processes.stop(f"broker-{broker}")
        processes.start_broker(broker, MIGRATION)
    wait_for("dual-write", lambda: offset(zookeeper.observe()) >= 0)
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
def test_nothing_that_was_acknowledged_is_missing_in_zookeeper(nodes: tuple[int, ...]) -> None:
    """The controllers are isolated before they stop for good. Killed at once, they lose what ZooKeeper lacks (``behind``)."""
    with kafka_processes(BROKERS, nodes, Processes) as processes:
        zookeeper = ZooKeeperStore(processes.zookeeper_hosts, CHROOT)
        controllers = ControllerClient(processes.controller_addresses, {})
        into_dual_write(processes, controllers, zookeeper)
        writers = [Writer(broker, processes.broker_ports[broker]) for broker in BROKERS]

        def acknowledged() -> list[str]:
            return [name for w in writers for _, name in list(w.acknowledged)]

        try:
            wait_for("writes", lambda: len(acknowledged()) >= LEAST_ACKNOWLEDGED)
            # ZooKeeper stands still for a moment, so that Kafka acknowledges what it has not mirrored when the controllers stop.
            processes.signal("zookeeper", signal.SIGSTOP)
            time.sleep(FROZEN_SECONDS)
            began = time.monotonic()
            stop_like_pods(processes, nodes)
            processes.signal("zookeeper", signal.SIGCONT)
            before = acknowledged()
            behind = missing_in(zookeeper, before)
            processes.isolate()
            for node in nodes:
                processes.start_controller(node)
            isolated = ControllerClient(processes.controller_addresses, {})
            log_end = wait_for("an isolated leader", lambda: committed(isolated))
            wait_for("the mirror", lambda: offset(zookeeper.observe()) >= log_end - 1)
            print(f"{len(nodes)} controllers: isolated and mirrored after {time.monotonic() - began:.1f} s")
            time.sleep(WRITERS_TRY_SECONDS)
            stop_like_pods(processes, nodes)
        finally:
            for writer in writers:
                writer.stop()
        missing, later = missing_in(zookeeper, before), len(acknowledged()) - len(before)
        print(
            f"{len(before)} acknowledged, {len(behind)} of them not mirrored at the stop, {len(missing)} missing, {later} acknowledged later"
        )
        assert behind, "nothing was at stake, so this run proves nothing"
        assert missing == []
        assert later == 0, "an isolated controller accepted a change"
        assert {b.id for b in zookeeper.observe().brokers} == set(BROKERS)
        assert leaderless(zookeeper, before[-1]) == [], "isolated controllers fence no broker"
        zookeeper.close()
        controllers.close()
        isolated.close()


def missing_in(zookeeper: ZooKeeperStore, topics: list[str]) -> list[str]:
    """Return the topics that ZooKeeper does not have."""
    found = wait_for("ZooKeeper", lambda: zookeeper.payloads([f"/brokers/topics/{name}" for name in topics]))
    return [name for name in topics if found[f"/brokers/topics/{name}"] is None]


def test_a_deleted_canary_leaves_nothing_when_a_controller_restarts() -> None:
    """A restarted controller replays creation and deletion at once, and keeps a deleted topic's settings: the canary must have none."""
    with kafka_processes(BROKERS, (3000,), Processes) as processes:
        zookeeper = ZooKeeperStore(processes.zookeeper_hosts, CHROOT)
        controllers = ControllerClient(processes.controller_addresses, {})
        into_dual_write(processes, controllers, zookeeper)
        canary = canary_topic(4711)

        def absent(paths: list[str]) -> bool:
            return not any(v is not None for v in zookeeper.payloads(paths).values())

        topics = [f"/brokers/topics/{name}" for name in (canary, "with-settings")]
        settings = [f"/config/topics/{name}" for name in (canary, "with-settings")]
        # KRaftMigrationDriver waits for no broker that is restarting and has no replicas: the copy may end before the second one registers.
        wait_for("a canary on both brokers", lambda: controllers.write_canary(4711, len(BROKERS)) is None)
        client = Connection("127.0.0.1", processes.broker_ports[0], Security(), 5)
        topic = CreateTopicsRequest.CreatableTopic
        wanted = topic(
            name="with-settings", num_partitions=1, replication_factor=1, assignments=[],
            configs=[topic.CreatableTopicConfig(name="retention.ms", value="60000")],
        )  # fmt: skip
        made = client.call(
            CreateTopicsRequest, 20, max_version=5, topics=[wanted], timeout_ms=15000, validate_only=False
        )
        assert made.topics[0].error_code == 0
        wait_for("both topics in ZooKeeper", lambda: None not in zookeeper.payloads(topics).values())
        controllers.remove_canary(4711)
        client.call(DeleteTopicsRequest, 20, max_version=5, topic_names=["with-settings"], timeout_ms=15000)
        wait_for("no topic in ZooKeeper", lambda: absent(topics + settings))
        processes.stop("controller-3000", signal.SIGKILL)
        processes.start_controller(3000)
        before = offset(zookeeper.observe())
        wait_for("dual-write", lambda: offset(zookeeper.observe()) > before + 2)
        found = zookeeper.payloads(settings)
        assert found[settings[1]] is not None, (
            "Kafka keeps no settings of a deleted topic any more: tell docs/rollback.md"
        )
        assert found[settings[0]] is None
        assert absent(topics)
        zookeeper.close()
        controllers.close()


def committed(controllers: ControllerClient) -> int:
    """Return the high watermark of a leader; a new one has none before it has committed a record of its own epoch (KIP-595)."""
    return max(controllers.quorum_state().high_watermark, 0)


def leaderless(zookeeper: ZooKeeperStore, topic: str) -> list[int]:
    """Return the partitions of a topic for which ZooKeeper names no leader."""
    paths = {i: f"/brokers/topics/{topic}/partitions/{i}/state" for i in range(3)}
    found = zookeeper.payloads(list(paths.values()))
    return [i for i, path in paths.items() if json.loads(found[path] or b'{"leader": -1}')["leader"] < 0]
