"""A tree is checked while clients create, grow and delete topics: what is half done at one reading is no finding."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from tests.support.kafka_processes import CHROOT, ZOOKEEPER, KafkaProcesses, kafka_processes, wait_for

from kraftbridge.metadata.entities import Secrets
from kraftbridge.metadata.zookeeper.reader import ZooKeeperReader
from kraftbridge.metadata.zookeeper.soundness import Soundness, broker_ids
from kraftbridge.metadata.zookeeper.standing import check_whole, may_pass, standing
from kraftbridge.metadata.zookeeper.tree import TreePlan, TreeReading
from kraftbridge.models.catalogue import Code
from kraftbridge.models.report import Finding, ZooKeeperAccess

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kafka-processes")]
BROKERS = (0, 1, 2)
ENOUGH = 5
"""Readings of a tree in motion that find something half done."""
MOST_READINGS = 400
CLIENTS = 3
TOPICS_AT_ONCE = 10


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaProcesses]:
    with kafka_processes(BROKERS, ()) as processes:
        processes.start_zookeeper()
        for broker in BROKERS:
            processes.start_broker(broker, ZOOKEEPER)
        yield processes


@pytest.fixture(scope="module")
def admin(cluster: KafkaProcesses) -> AdminClient:
    """Return one client for all: requests of a client that is collected are not sent."""
    return cluster.admin_client()


@pytest.fixture
def reader(cluster: KafkaProcesses) -> Iterator[ZooKeeperReader]:
    with ZooKeeperReader(ZooKeeperAccess(connect=f"{cluster.zookeeper_hosts}{CHROOT}")) as reader:
        yield reader


def listed(reader: ZooKeeperReader) -> tuple[TreeReading, TreePlan, list[Finding]]:
    """List a tree and check it as a whole: the first half of a reading."""
    reading = TreeReading(reader, Secrets(b""))
    plan = reading.plan()
    return reading, plan, list(check_whole(reader, reading, plan).findings)


def listed_at_rest(reader: ZooKeeperReader) -> tuple[TreeReading, TreePlan]:
    """List a tree in which nothing is half done."""

    def listed_without_finding() -> tuple[TreeReading, TreePlan] | None:
        reading, plan, findings = listed(reader)
        return None if any(map(may_pass, findings)) else (reading, plan)

    return wait_for("a tree at rest", listed_without_finding, 60)


def read(reading: TreeReading, plan: TreePlan) -> tuple[list[Finding], int]:
    """Return what the topics of a tree show, and the highest epoch: the second half, in other tasks, and later."""
    soundness = Soundness(broker_ids(plan.nodes))
    reading.observe_topic = soundness.topic
    list(reading.topics(plan.topics))
    return soundness.findings, soundness.highest_controller_epoch


def changing(admin: AdminClient, name: str, stop: threading.Event) -> None:
    """Create topics, add partitions to them and delete them, until it is enough."""
    for number in itertools.count():
        names = [f"{name}-{number}-{index}" for index in range(TOPICS_AT_ONCE)]
        settle(admin.create_topics([NewTopic(topic, 3, 2) for topic in names]))
        settle(admin.create_partitions([NewPartitions(topic, 6) for topic in names]))
        settle(admin.delete_topics(names))
        if stop.is_set():
            return


def settle(futures) -> None:
    """Wait for changes; another one may have come before them."""
    for future in futures.values():
        try:
            future.result(30)
        except KafkaException:
            continue


@contextmanager
def in_motion(admin: AdminClient) -> Iterator[None]:
    """Let several clients change topics."""
    stop = threading.Event()
    clients = [threading.Thread(target=changing, args=(admin, f"t{index}", stop)) for index in range(CLIENTS)]
    for client in clients:
        client.start()
    try:
        yield
    finally:
        stop.set()
        for client in clients:
            client.join()


def create(cluster: KafkaProcesses, admin: AdminClient, names: Sequence[str]) -> None:
    settle(admin.create_topics([NewTopic(name, 3, 3) for name in names]))
    wait_for("topics in sync", cluster.in_sync, 60)


def has_leaderless(reader: ZooKeeperReader, names: Sequence[str]) -> bool:
    """Return whether a partition of these topics has no leader in ZooKeeper."""
    soundness = Soundness()
    list(TreeReading(reader, Secrets(b""), observe_topic=soundness.topic).topics(names))
    return Code.OFFLINE_PARTITIONS in {finding.code for finding in soundness.findings}


def test_what_is_half_done_is_no_finding(admin: AdminClient, reader: ZooKeeperReader) -> None:
    passing: list[set[str]] = []
    refuted: list[Finding] = []
    with in_motion(admin):
        for _ in range(MOST_READINGS):
            reading, plan, findings = listed(reader)
            of_topics, highest_epoch = read(reading, plan)
            half_done = list(filter(may_pass, [*findings, *of_topics]))
            if half_done:
                passing.append({finding.code for finding in half_done})
                refuted += standing(reader, half_done, highest_epoch)
            if len(passing) == ENOUGH:
                break
    print(passing)
    assert passing, "nothing was half done at any reading: this tested nothing"
    assert not refuted


def test_topics_that_are_about_to_go_are_not_offline(
    cluster: KafkaProcesses, admin: AdminClient, reader: ZooKeeperReader
) -> None:
    """The controller takes every replica of a topic offline, in ZooKeeper too, before it removes the topic."""
    names = [f"going-{index}" for index in range(30)]
    create(cluster, admin, names)
    reading, plan = listed_at_rest(reader)
    futures = admin.delete_topics(names)
    wait_for("a partition without a leader", lambda: has_leaderless(reader, names), 30)
    findings, highest_epoch = read(reading, plan)
    assert Code.OFFLINE_PARTITIONS in {finding.code for finding in findings}, "it was gone: this tested nothing"
    assert not list(filter(may_pass, standing(reader, findings, highest_epoch)))
    settle(futures)


def test_a_deletion_that_waits_for_a_broker_stands_as_what_it_is(
    cluster: KafkaProcesses, admin: AdminClient, reader: ZooKeeperReader
) -> None:
    names = ["waiting"]
    create(cluster, admin, names)
    reading, plan = listed_at_rest(reader)
    cluster.stop("broker-2")
    admin.delete_topics(names)
    wait_for("a partition without a leader", lambda: has_leaderless(reader, names), 30)
    findings, highest_epoch = read(reading, plan)
    blocking = list(filter(may_pass, standing(reader, findings, highest_epoch)))
    assert [finding.code for finding in blocking] == [Code.TOPIC_DELETION_PENDING]


def test_a_partition_that_stays_without_a_leader_stands(
    cluster: KafkaProcesses, admin: AdminClient, reader: ZooKeeperReader
) -> None:
    settle(admin.create_topics([NewTopic("alone", 4, 1)]))
    reading, plan, _ = listed(reader)
    cluster.stop("broker-1")
    wait_for("a partition without a leader", lambda: has_leaderless(reader, ["alone"]), 30)
    findings, highest_epoch = read(reading, plan)
    codes = {finding.code for finding in standing(reader, findings, highest_epoch) if "/alone" in finding.object}
    assert Code.OFFLINE_PARTITIONS in codes
