"""The load of the end-to-end tests on real processes: it finds nothing after a right migration, and sees each loss that is planted."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence

import pytest
from e2e.clients.kafka_clients.watch.balance import Subject
from e2e.clients.kafka_clients.watch.moments import Moment
from e2e.harness.load import ClientImpact
from tests.support.kafka_processes import (
    CHROOT,
    KRAFT,
    MIGRATION,
    ZOOKEEPER,
    KafkaProcesses,
    kafka_processes,
    wait_for,
)
from tests.support.running_load import SETTINGS, running_load

from kraftbridge.models.observation import MigrationZnode, ZooKeeperState
from kraftbridge.storage.kafka_controllers import ControllerClient
from kraftbridge.storage.zookeeper import ZooKeeperStore

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kafka-processes")]

BROKERS, CONTROLLER = (0, 1, 2), 3000
SESSION_S = 11.0
"""Longer than the session of the group's member."""
SETTLED_S = 6.0
"""Some commits, some transactions, and the deletion of the first topic."""

SET_BACK = """
import time
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from kafka_clients.cluster import confluent_admin
admin = confluent_admin()
(group,) = [g.group_id for g in admin.list_consumer_groups().result(30).valid if g.group_id.startswith("load-offsets-")]
committed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(30).topic_partitions
wanted = [TopicPartition(p.topic, p.partition, p.offset - 1 if p.partition else p.offset) for p in committed]
assert all(p.offset > 1 for p in committed), committed
admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, wanted)])[group].result(30)
"""

PLANT = """
import time
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewTopic, OffsetSpec
from kafka import TopicPartition as Partition
from kafka_clients import seed
from kafka_clients.cluster import BROKER_RESOURCE, TOPIC_RESOURCE, WireAdmin, confluent_admin, log_offsets
admin, wire = confluent_admin(), WireAdmin()

# The dynamic default is gone for a moment, and a retention pass deletes what only it keeps.
wire.alter_configs(BROKER_RESOURCE, "", dict.fromkeys(seed.KEEP_EVERYTHING))
deadline = time.monotonic() + 60
old = seed.OLD_TOPICS[0]
while log_offsets(admin, [old], OffsetSpec.earliest())[old, 0] == 0 and time.monotonic() < deadline:
    time.sleep(0.5)
wire.set_broker_configs("", seed.KEEP_EVERYTHING)

ends = log_offsets(admin, [seed.WATCHED_TRANSACTIONS], OffsetSpec.latest())
places = [TopicPartition(topic, number, offset) for (topic, number), offset in ends.items() if number == 0]
for outcome in admin.delete_records(places).values():
    outcome.result(30)

topics = admin.list_topics(timeout=20).topics
(stays,) = [name for name in topics if name.endswith("-stays")]
admin.delete_topics([stays])[stays].result(30)
goes = stays.replace("-stays", "-goes")
admin.create_topics([NewTopic(goes, 1, 3)])[goes].result(30)

wire.alter_configs(TOPIC_RESOURCE, seed.ALTERED_TOPIC, {"max.message.bytes": "1300000"})

replicas = topics[seed.MOVED_TOPIC].partitions[0].replicas
other = next(broker for broker in topics[seed.MOVED_TOPIC].partitions[1].replicas + [0, 1, 2] if broker not in replicas)
wire.alter_partition_reassignments({Partition(seed.MOVED_TOPIC, 0): [replicas[0], other]})
while wire.list_partition_reassignments():
    time.sleep(0.3)
"""


def broken(impact: ClientImpact) -> dict[str, tuple[str, ...]]:
    return {balance.subject: balance.broken for balance in impact.watched if balance.broken}


def said(impact: ClientImpact) -> dict[str, str]:
    return {balance.subject: balance.said for balance in impact.watched}


def start_in_zookeeper_mode(processes: KafkaProcesses) -> None:
    processes.start_zookeeper()
    for broker in BROKERS:
        processes.extra_broker_settings[broker] = SETTINGS
        processes.start_broker(broker, ZOOKEEPER, wait=False)
    processes.admin_client()


def offset(state: ZooKeeperState) -> int:
    return state.migration.kraft_metadata_offset if isinstance(state.migration, MigrationZnode) else -1


def roll(processes: KafkaProcesses, brokers: Sequence[int], mode: str) -> None:
    for broker in brokers:
        processes.stop(f"broker-{broker}")
        processes.start_broker(broker, mode)
        wait_for(f"broker {broker} in sync", processes.in_sync)


@pytest.mark.timeout(900)
@pytest.mark.long
def test_nothing_is_found_after_a_migration_and_both_reassignments_ran_through_it() -> None:
    with kafka_processes(BROKERS, (CONTROLLER,)) as processes:
        start_in_zookeeper_mode(processes)
        zookeeper = ZooKeeperStore(processes.zookeeper_hosts, CHROOT)
        with running_load(processes) as load:
            cluster_id = zookeeper.observe().cluster_id
            assert cluster_id is not None
            processes.format_controller(CONTROLLER, cluster_id)
            processes.start_controller(CONTROLLER)
            controllers = ControllerClient(processes.controller_addresses, {})
            wait_for("a leader", lambda: controllers.quorum_state().high_watermark > 0)
            load.tell(Moment.TAKEOVER)
            roll(processes, BROKERS, MIGRATION)
            wait_for("dual-write", lambda: offset(zookeeper.observe()) >= 0)
            load.tell(Moment.DUAL_WRITE)
            seconds = [through_a_reassignment(processes, "under the KRaft controller")]
            roll(processes, BROKERS[:1], KRAFT)
            load.tell(Moment.MIXED)
            seconds.append(through_a_reassignment(processes, "while brokers are in both modes"))
            roll(processes, BROKERS[1:], KRAFT)
            impact = load.stop()
        controllers.close()
        zookeeper.close()
        print(f"reassignments {seconds} s, {impact.as_json()}")
        assert broken(impact) == {}
        assert (impact.lost, impact.duplicates, impact.unanswered) == (0, 0, 0)
        assert {balance.subject for balance in impact.watched} == set(Subject)
        assert "dual-write in" in said(impact)[Subject.MOVES]
        assert "mixed in" in said(impact)[Subject.MOVES]
        assert "2 altered before the takeover" in said(impact)[Subject.CONFIGS]
        assert said(impact)[Subject.TOPICS] != "none was asked for"
        assert all(2 < each < 10 for each in seconds), "too short to be seen, or so long that it delays the roll"


def through_a_reassignment(processes: KafkaProcesses, when: str) -> float:
    """Return how long the in-sync sets were not full, which is for how long no broker could be restarted."""
    wait_for(f"a reassignment {when}", lambda: not processes.in_sync(), 30)
    began = time.monotonic()
    wait_for("it is complete", processes.in_sync, 60)
    return round(time.monotonic() - began, 1)


@pytest.mark.timeout(600)
@pytest.mark.long
def test_each_planted_loss_is_seen() -> None:
    with kafka_processes(BROKERS, ()) as processes:
        start_in_zookeeper_mode(processes)
        with running_load(processes) as load:
            for moment in Moment:
                load.tell(moment)
            through_a_reassignment(processes, "first")
            through_a_reassignment(processes, "second")
            time.sleep(SETTLED_S)
            # The group's member is silent for longer than its session, so that somebody can set its offsets back.
            load.signal(signal.SIGSTOP)
            time.sleep(SESSION_S)
            load.script(SET_BACK)
            load.signal(signal.SIGCONT)
            time.sleep(SETTLED_S)
            load.script(PLANT)
            impact = load.stop()
    assert (impact.lost, impact.duplicates) == (0, 0), "the load's own records see none of it"
    assert not impact.unharmed
    found = {subject: " | ".join(what) for subject, what in broken(impact).items()}
    assert set(found) == set(Subject)
    assert "load-old-by-default: 100 of 100 records are gone" in found[Subject.KEPT]
    assert "load-old-by-topic" not in found[Subject.KEPT]
    assert "records committed and not seen at the end" in found[Subject.TRANSACTIONS]
    assert "was committed" in found[Subject.GROUP]
    assert " back at " in found[Subject.GROUP]
    assert "partition 0: " not in found[Subject.GROUP]
    assert "1 were created and do not exist" in found[Subject.TOPICS]
    assert "1 were deleted and exist" in found[Subject.TOPICS]
    assert "max.message.bytes is 1300000, not 1200000" in found[Subject.CONFIGS]
    assert "partition 0: replicas at " in found[Subject.MOVES]
    assert "partition 1" not in found[Subject.MOVES]
