"""A broker in migration mode that was killed and started again may serve a topic for ever that is deleted.

Until it has its own epoch (-1 before its registration, `ZkBrokerEpochManager`) a starting broker takes requests that the controller meant for
the one before it. Registered, it refuses the rest of them; topics that were deleted meanwhile are in none of those that follow, and
`MigrationPropagator` sends them without saying that they are all there is. Kafka's metrics know nothing of it.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import NewTopic
from tests.spark import independent
from tests.spark.churn import Changes
from tests.spark.live_cluster import BROKERS, LiveCluster, dual_write_cluster
from tests.support.kafka_processes import MIGRATION

from kraftbridge.models.entities import EntityKind
from kraftbridge.models.report import CompareServed, DifferenceState, Verdict

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]
BROKER = BROKERS[1]
ATTEMPTS = 4
"""A deletion that is mirrored together with the broker's return reaches the broker."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LiveCluster]:
    with dual_write_cluster(brokers_session_seconds=30) as running:
        yield running


@pytest.mark.long
def test_a_deleted_topic_that_a_restarted_broker_serves_is_named(cluster, check):
    kept = set()
    for attempt in range(ATTEMPTS):
        keep_deleted_topic(cluster, f"kept-{attempt}")
        served = independent.served_differences(cluster, only=entities(f"kept-{attempt}"))
        if kept := set(served):
            break
        print("the broker was told of the deletion: once more")
    assert kept == entities(f"kept-{attempt}"), "no broker served a deleted topic: there was nothing to find"
    assert check().verdict is Verdict.CONSISTENT, "ZooKeeper and the log agree"
    report = check(compare_served=CompareServed.ALWAYS)
    assert report.verdict is Verdict.INCONSISTENT
    assert {(each.kind, each.key) for each in report.differences} == kept
    assert {each.state for each in report.differences} == {DifferenceState.EXTRA}
    assert {place for each in report.differences for place in each.present_in} == {f"broker {BROKER}"}
    cluster.processes.stop(f"broker-{BROKER}")
    cluster.processes.start_broker(BROKER, MIGRATION)
    cluster.wait(cluster.in_sync, 120)
    assert check(compare_served=CompareServed.ALWAYS).verdict is Verdict.CONSISTENT


def keep_deleted_topic(cluster: LiveCluster, name: str) -> None:
    """Kill a broker, create a topic, start the broker, and delete the topic between its registration and its first heartbeat."""
    processes, changes = cluster.processes, Changes(cluster, 1)
    log = processes.directory / f"broker-{BROKER}.log"
    said = log.stat().st_size
    processes.stop(f"broker-{BROKER}", signal.SIGKILL)
    cluster.wait(lambda: not cluster.zookeeper.exists(f"/brokers/ids/{BROKER}"))
    changes.topics([NewTopic(name, 2, replica_assignment=[[BROKERS[0]], [BROKERS[0]]])])
    processes.start_broker(BROKER, MIGRATION, wait=False)
    deadline = time.monotonic() + 90
    while b"Successfully registered broker" not in log.read_bytes()[said:]:
        assert time.monotonic() < deadline, f"broker {BROKER} did not register:\n{processes.tail(f'broker-{BROKER}')}"
        time.sleep(0.005)
    processes.signal(f"broker-{BROKER}", signal.SIGSTOP)
    try:
        changes.remove_topics([name])
        time.sleep(1)
    finally:
        processes.signal(f"broker-{BROKER}", signal.SIGCONT)
    cluster.wait(lambda: bool(cluster.zookeeper.exists(f"/brokers/ids/{BROKER}")))
    cluster.quiet()
    cluster.wait(cluster.in_sync, 120)


def entities(topic: str) -> set[independent.Identity]:
    return {(EntityKind.TOPIC, topic), *((EntityKind.PARTITION, f"{topic}-{i}") for i in range(2))}
