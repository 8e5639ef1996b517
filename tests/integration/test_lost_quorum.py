"""All voters of a quorum lost with their volumes, under real processes: both ways out, and whether they lose what was forecast."""

from __future__ import annotations

import io
import shutil
import signal
import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import NewTopic
from tests.integration.test_rollback_under_writes import offset
from tests.support.kafka_processes import (
    CHROOT,
    KRAFT,
    MIGRATION,
    ZOOKEEPER,
    KafkaProcesses,
    kafka_processes,
    wait_for,
)

from kraftbridge.metadata.log.archive import LogCopy, archive_log
from kraftbridge.metadata.log.files import LocalLogFiles
from kraftbridge.metadata.log.replay import records_of
from kraftbridge.models.observation import MigrationZnode
from kraftbridge.phases.lost_quorum import EPOCHS_BEYOND
from kraftbridge.pods.restore import restore_volume
from kraftbridge.services.clients import ClusterClients
from kraftbridge.services.observe.behind import zookeeper_behind
from kraftbridge.storage.kafka_brokers import BrokerClient
from kraftbridge.storage.kafka_controllers import ControllerClient
from kraftbridge.storage.zookeeper import ZooKeeperStore

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.xdist_group("kafka-processes")]

BROKERS = (0, 1)
VOTERS = (3000, 3001, 3002)
COPY_ID = "the-copy"
HEARD_SECONDS = 15.0
PARTITIONS = 2


class Lab:
    """A cluster in dual-write, of which some brokers run KRaft."""

    def __init__(self, processes: KafkaProcesses, on_kraft: int) -> None:
        self.processes = processes
        self.zookeeper = ZooKeeperStore(processes.zookeeper_hosts, CHROOT)
        self.controllers = ControllerClient(processes.controller_addresses, {})
        self.brokers = BrokerClient(processes.bootstrap_servers, {})
        self.modes = {broker: KRAFT if broker < on_kraft else MIGRATION for broker in BROKERS}
        processes.start_zookeeper()
        for broker in BROKERS:
            processes.start_broker(broker, ZOOKEEPER)
        wait_for("the brokers", lambda: len(self.brokers.cluster_state().brokers) == len(BROKERS))
        self.cluster_id = self.zookeeper.observe().cluster_id or ""
        for voter in VOTERS:
            processes.format_controller(voter, self.cluster_id)
            processes.start_controller(voter)
        wait_for("a leader", lambda: self.controllers.quorum_state().high_watermark > 0)
        for broker in BROKERS:
            processes.stop(f"broker-{broker}")
            processes.start_broker(broker, MIGRATION)
            self.wait_until_whole()
        wait_for("dual-write", lambda: offset(self.zookeeper.observe()) >= 0)
        for broker in BROKERS[:on_kraft]:
            processes.stop(f"broker-{broker}")
            processes.start_broker(broker, KRAFT)
            self.wait_until_whole()

    def wait_until_whole(self) -> None:
        """Wait until every broker serves and every ISR is full."""

        def whole() -> bool:
            state = self.brokers.cluster_state()
            return state.brokers == frozenset(BROKERS) and not state.under_replicated_count and not state.offline_count

        wait_for("every broker and every ISR", whole)

    def create(self, topic: str) -> None:
        admin = self.processes.admin_client()
        admin.create_topics([NewTopic(topic, PARTITIONS, len(BROKERS))])[topic].result(30)

    def produce(self, topic: str, count: int) -> None:
        """Write records that every in-sync replica acknowledges."""
        settings = {"bootstrap.servers": self.processes.bootstrap_servers, "acks": "all", "log_level": 0}
        producer, failed = Producer(settings), list[KafkaError]()

        def delivered(error: KafkaError | None, _: Any) -> None:
            if error is not None:
                failed.append(error)

        for number in range(count):
            producer.produce(topic, str(number), partition=number % PARTITIONS, callback=delivered)
        assert producer.flush(30) == 0
        assert failed == []

    def ends(self, topic: str) -> dict[int, int]:
        """Return the end of each partition."""
        settings = {"bootstrap.servers": self.processes.bootstrap_servers, "group.id": "ends", "log_level": 0}
        consumer = Consumer(settings)
        try:
            return {
                index: consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=20)[1]
                for index in range(PARTITIONS)
            }
        finally:
            consumer.close()

    def served(self) -> set[str]:
        return {topic for topic, _ in self.brokers.leader_epochs()[0] if not topic.startswith("__")}

    def directory(self, name: str) -> Path:
        return self.processes.directory / name

    def lose_the_quorum(self) -> None:
        for voter in VOTERS:
            self.processes.stop(f"controller-{voter}", signal.SIGKILL)
            shutil.rmtree(self.directory(f"controller-{voter}"))


def topics_of(folder: Path) -> set[str]:
    """Return the topics that a log without snapshots creates."""
    return {str(fields["name"]) for _, _, fields in records_of(LocalLogFiles(folder), {"TopicRecord"})}


def restore(lab: Lab, archive: bytes, copy: LogCopy) -> int:
    """Start all voters from the copy, as the operator does; return their first epoch."""
    epoch = copy.epoch + EPOCHS_BEYOND
    for voter in VOTERS:
        place = lab.directory(f"controller-{voter}")
        assert restore_volume(io.BytesIO(archive), place, COPY_ID, epoch, VOTERS, voter, lab.cluster_id)
        lab.processes.start_controller(voter)
    wait_for("a leader of the restored voters", lambda: lab.controllers.quorum_state().leader_epoch >= epoch)
    return epoch


def wake_the_brokers(lab: Lab) -> dict[int, str]:
    """Restart the brokers that do not follow the restored quorum; return what each of them did by itself."""
    time.sleep(HEARD_SECONDS)
    did: dict[int, str] = {}
    ended = lab.processes.ended_by_themselves()
    following = lab.controllers.quorum_state().observers
    for broker in BROKERS:
        name = f"broker-{broker}"
        did[broker] = "ended" if name in ended else "follows" if broker in following else "deaf"
        if did[broker] != "follows":
            lab.processes.stop(name, signal.SIGKILL)
            lab.processes.start_broker(broker, lab.modes[broker], wait=False)
    lab.wait_until_whole()
    return did


def restore_from_the_copy(lab: Lab, archive: bytes, copy: LogCopy, in_zookeeper: set[str]) -> None:
    """Way 1: all voters from the copy."""
    epoch = restore(lab, archive, copy)
    place = lab.directory("controller-3001")
    assert not restore_volume(io.BytesIO(b""), place, COPY_ID, epoch, VOTERS, 3001, lab.cluster_id), "once only"
    forecast = in_zookeeper - topics_of(place)
    assert forecast == {"later"}
    did = wake_the_brokers(lab)
    assert {did[broker] for broker in BROKERS if lab.modes[broker] == KRAFT} <= {"ended"}
    assert {did[broker] for broker in BROKERS if lab.modes[broker] == MIGRATION} <= {"deaf"}
    assert in_zookeeper - lab.served() == forecast
    assert sum(lab.ends("kept").values()) == 150, "records of partitions that the copy knows"
    lab.create("again")
    lab.produce("again", 10)

    def mirrored() -> bool:
        seen = lab.zookeeper.observe().migration
        return (
            isinstance(seen, MigrationZnode)
            and seen.kraft_controller_epoch >= epoch
            and "again" in lab.zookeeper.topics()
        )

    wait_for("dual-write goes on", mirrored)
    assert "later" not in lab.zookeeper.topics()


def go_back_to_zookeeper(lab: Lab) -> None:
    """Way 2: back to ZooKeeper, which lacks a topic and a change of leaders."""
    processes = lab.processes
    processes.signal("zookeeper", signal.SIGSTOP)
    # ZooKeeper finds the controller's first write in its socket when it wakes up.
    lab.create("in-flight")
    lab.create("unmirrored")
    # The controller tells brokers in migration mode of a change only after it has written it to ZooKeeper.
    in_kraft = [broker for broker in BROKERS if lab.modes[broker] == KRAFT]
    if len(in_kraft) == len(BROKERS):
        lab.produce("unmirrored", 10)
    processes.stop("broker-1", signal.SIGKILL)
    if in_kraft:
        wait_for(
            "other leaders",
            lambda: not lab.brokers.cluster_state().offline_count and lab.brokers.cluster_state().brokers == {0},
        )
        lab.produce("kept", 20)
    before = {} if not in_kraft else lab.ends("kept")
    last_seen = lab.controllers.quorum_state().high_watermark
    lab.lose_the_quorum()
    processes.signal("zookeeper", signal.SIGCONT)
    wait_for("ZooKeeper", lambda: lab.zookeeper.observe().migration is not None)
    clients = cast("ClusterClients", SimpleNamespace(brokers=lab.brokers, zookeeper=lab.zookeeper))
    behind = zookeeper_behind(clients, datetime.now(UTC))
    lacking = {"in-flight", "unmirrored"} - lab.zookeeper.topics()
    assert "unmirrored" in lacking
    assert set(behind.topic_names) == (lacking if in_kraft else set())
    # Where no broker has heard of the change, the offsets say that there is one.
    assert last_seen - 1 > offset(lab.zookeeper.observe())
    known = lab.zookeeper.observe().controller
    assert known is not None
    lab.zookeeper.remove_controller_claim(known.kraft_controller_epoch)
    # Those in KRaft mode at once, then the others one at a time.
    for broker in sorted(BROKERS, key=lambda b: lab.modes[b] != KRAFT):
        if broker != 1:
            processes.stop(f"broker-{broker}", signal.SIGKILL)
    for broker in BROKERS:
        processes.start_broker(broker, ZOOKEEPER, wait=False)
    lab.wait_until_whole()
    wait_for("the topics that ZooKeeper has", lambda: lab.served() == {"kept", "again", "in-flight"} - lacking or None)
    lab.wait_until_whole()
    truncated = {f"kept-{i}" for i, end in lab.ends("kept").items() if end < before.get(i, 0)}
    assert truncated <= set(behind.partition_names)
    lab.produce("kept", 10)


@pytest.mark.parametrize(
    "on_kraft", [0, 1, 2], ids=["in DualWrite", "half-way in RollingBrokers", "in AwaitingFinalization"]
)
def test_what_each_way_out_loses_is_what_was_forecast(on_kraft: int) -> None:
    with kafka_processes(BROKERS, VOTERS) as processes:
        lab = Lab(processes, on_kraft)
        lab.create("kept")
        lab.produce("kept", 100)
        target = io.BytesIO()
        copy = archive_log(LocalLogFiles(lab.directory("controller-3000")), target)
        lab.create("later")
        lab.produce("later", 50)
        lab.produce("kept", 50)
        at = lab.controllers.quorum_state().high_watermark - 1
        wait_for("the mirror", lambda: offset(lab.zookeeper.observe()) >= at)
        in_zookeeper = {topic for topic in lab.zookeeper.topics() if not topic.startswith("__")}
        lab.lose_the_quorum()

        restore_from_the_copy(lab, target.getvalue(), copy, in_zookeeper)
        go_back_to_zookeeper(lab)
