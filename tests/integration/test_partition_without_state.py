"""A topic that a client created while KRaft took over: nobody wrote the state of its partitions to ZooKeeper.

The first change of such a partition stops the mirror and leaves brokers on ZooKeeper without news, for every partition of the event.
Each controller failover then sticks in SYNC_KRAFT_TO_ZK, until ZooKeeper has the state.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from tests.support.kafka_processes import CHROOT, MIGRATION, ZOOKEEPER, KafkaProcesses, kafka_processes, wait_for

from kraftbridge.models.observation import MigrationZnode
from kraftbridge.storage.kafka_controllers import ControllerClient
from kraftbridge.storage.zookeeper import ZooKeeperStore

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kafka-processes")]

BROKERS = (0, 1, 2)
CONTROLLERS = (3000, 3001, 3002)
TOPICS = {"good": 4, "late": 1}
DROPPED = "Encountered ZooKeeper error during event MetadataChangeEvent"
STUCK = "Encountered ZooKeeper error during event SyncKRaftMetadataEvent"
STANDING_SECONDS = 15


@dataclass
class Cluster:
    processes: KafkaProcesses
    store: ZooKeeperStore
    controllers: ControllerClient
    zookeeper: KazooClient

    def states(self) -> dict[str, tuple[int, set[int]]]:
        """Return leader and ISR of each partition that has a state in ZooKeeper."""
        found = {}
        for topic, count in TOPICS.items():
            for number in range(count):
                path = f"/brokers/topics/{topic}/partitions/{number}/state"
                if self.zookeeper.exists(path):
                    state = json.loads(self.zookeeper.get(path)[0])
                    found[f"{topic}-{number}"] = (state["leader"], set(state["isr"]))
        return found

    def served(self) -> dict[str, tuple[int, set[int]]]:
        """Return leader and ISR of each partition as the brokers serve it."""
        known = self.processes.admin_client().list_topics(timeout=20).topics
        return {
            f"{topic}-{number}": (partition.leader, set(partition.isrs))
            for topic in TOPICS
            for number, partition in known[topic].partitions.items()
        }

    def offset(self) -> int:
        migration = self.store.observe().migration
        return migration.kraft_metadata_offset if isinstance(migration, MigrationZnode) else -1

    def log_of_controllers(self) -> str:
        return "".join((self.processes.directory / f"controller-{each}.log").read_text() for each in CONTROLLERS)

    def fail_over(self) -> None:
        leader = self.controllers.quorum_state().leader_id
        self.processes.stop(f"controller-{leader}")
        self.processes.start_controller(leader)

    def restart(self, broker: int) -> None:
        self.processes.stop(f"broker-{broker}")
        self.processes.start_broker(broker, MIGRATION)

    def mirrors(self) -> bool:
        return self.states() == self.served() and self.processes.in_sync()


@contextmanager
def running() -> Iterator[Cluster]:
    with kafka_processes(BROKERS, CONTROLLERS) as processes:
        processes.start_zookeeper()
        for broker in BROKERS:
            processes.start_broker(broker, ZOOKEEPER)
        create(processes, NewTopic("good", TOPICS["good"], 3))
        zookeeper = KazooClient(processes.zookeeper_hosts + CHROOT)
        zookeeper.start(30)
        store = ZooKeeperStore(processes.zookeeper_hosts, CHROOT)
        controllers = ControllerClient(processes.controller_addresses, {})
        try:
            yield Cluster(processes, store, controllers, zookeeper)
        finally:
            zookeeper.stop()
            for client in (store, controllers, zookeeper):
                client.close()


def create(processes: KafkaProcesses, topic: NewTopic) -> None:
    # Not every broker need be up.
    admin = AdminClient({"bootstrap.servers": processes.bootstrap_servers, "log_level": 0})
    admin.create_topics([topic], operation_timeout=30)[topic.topic].result(60)


def take_over(cluster: Cluster) -> None:
    """Take the cluster into dual-write, with a topic that ZooKeeper's controller never got to see."""
    processes = cluster.processes
    cluster_id = wait_for("ZooKeeper's cluster id", lambda: cluster.store.observe().cluster_id)
    for controller in CONTROLLERS:
        processes.format_controller(controller, cluster_id)
        processes.start_controller(controller)
    for broker in (0, 1):
        wait_for("in sync", processes.in_sync)
        cluster.restart(broker)
    wait_for("in sync", processes.in_sync)
    processes.stop("broker-2")
    wait_for("one of the others is ZooKeeper's controller", lambda: _is_other(cluster))
    # As the brokers on ZooKeeper know it, it is what the copy will take it to be: leader epoch 0, all replicas in sync.
    create(processes, NewTopic("late", TOPICS["late"], 2))
    cluster.zookeeper.delete("/brokers/topics/late/partitions", recursive=True)
    processes.start_broker(2, MIGRATION)
    wait_for("dual-write", lambda: cluster.offset() >= 0)
    wait_for("in sync", processes.in_sync)


def _is_other(cluster: Cluster) -> bool:
    controller = cluster.store.observe().controller
    return controller is not None and controller.broker_id in (0, 1)


def test_a_created_state_lets_the_mirror_go_on() -> None:
    with running() as cluster:
        take_over(cluster)
        assert "late-0" not in cluster.states()
        cluster.restart(0)
        time.sleep(STANDING_SECONDS)
        assert DROPPED in cluster.log_of_controllers()
        assert not cluster.processes.in_sync(), "the brokers on ZooKeeper heard nothing of broker 0"
        cluster.fail_over()
        wait_for("the failover to stick", lambda: cluster.log_of_controllers().count(STUCK) > 2)

        assert cluster.store.create_partition_states() == ("late-0",)

        wait_for("ZooKeeper mirrors what the brokers serve", cluster.mirrors)
        assert cluster.store.create_partition_states() == ()
        cluster.restart(1)
        wait_for("ZooKeeper mirrors what the brokers serve", cluster.mirrors)


@pytest.mark.long
def test_a_state_that_is_created_before_anything_changes_keeps_the_mirror_going() -> None:
    with running() as cluster:
        take_over(cluster)
        assert cluster.store.create_partition_states() == ("late-0",)
        cluster.restart(0)
        wait_for("ZooKeeper mirrors what the brokers serve", cluster.mirrors)
        assert STUCK not in cluster.log_of_controllers()
