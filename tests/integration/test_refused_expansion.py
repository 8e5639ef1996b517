"""A leader of Kafka 2.7 to 3.0 whose request for a larger ISR was refused once never asks again, until it gets a new epoch."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka.admin import NewTopic
from kafka.protocol.consumer import FetchRequest
from tests.journey.travel import TravellingProcesses, protocol_of
from tests.support.kafka_processes import KAFKA_VERSION, ZOOKEEPER, kafka_libraries, kafka_processes, wait_for

from kraftbridge.kafka.client import Security
from kraftbridge.kafka.wire import Connection
from kraftbridge.storage.kafka_brokers import BrokerClient

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kafka-processes")]

STOPPING = 0
OLD_LEADER = 1
CONTROLLER = 2
TOPIC = "with-a-dash"
CONTROLLED_SHUTDOWN = 7
FETCH_BY_NAME = 6
"""Version of Fetch without sessions and topic ids."""
HOPELESS_AFTER_SECONDS = 15
"""A follower that has caught up joins the ISR within a second (``replica.lag.time.max.ms`` is only for leaving it)."""


@contextmanager
def cluster_of(release: str) -> Iterator[TravellingProcesses]:
    """Run two brokers of the bridge release, one of which is ZooKeeper's controller, and an older one between them."""
    with kafka_processes((STOPPING, OLD_LEADER, CONTROLLER), (), TravellingProcesses) as processes:
        processes.libraries_of[f"broker-{OLD_LEADER}"] = kafka_libraries(release)
        processes.libraries_of |= {f"broker-{each}": kafka_libraries(KAFKA_VERSION) for each in (STOPPING, CONTROLLER)}
        protocol = ".".join(map(str, protocol_of(release)))
        processes.protocol = dict.fromkeys((STOPPING, OLD_LEADER, CONTROLLER), protocol)
        processes.start_zookeeper()
        for broker in (CONTROLLER, OLD_LEADER, STOPPING):
            processes.start_broker(broker, ZOOKEEPER)
        yield processes


def announce_shutdown(cluster: TravellingProcesses, broker: int) -> None:
    """Tell the controller that a broker stops, as the broker itself does; it goes on fetching for a while."""
    body = struct.pack(">hhih4si", CONTROLLED_SHUTDOWN, 1, 1, 4, b"test", broker)
    with socket.create_connection(("127.0.0.1", cluster.broker_ports[CONTROLLER]), 10) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        assert connection.recv(1024)


def fetch_as(cluster: TravellingProcesses, follower: int, offset: int) -> None:
    """Fetch from the old leader as a follower does that has caught up, and has not been told to stop yet."""
    wanted = FetchRequest.FetchTopic(
        topic=TOPIC,
        partitions=[
            FetchRequest.FetchTopic.FetchPartition(
                partition=0, fetch_offset=offset, log_start_offset=0, partition_max_bytes=1
            )
        ],
    )
    with Connection("127.0.0.1", cluster.broker_ports[OLD_LEADER], Security(), 10) as connection:
        connection.call(
            FetchRequest,
            10,
            max_version=FETCH_BY_NAME,
            replica_id=follower,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1,
            isolation_level=0,
            topics=[wanted],
        )


def in_sync(cluster: TravellingProcesses) -> dict[int, set[int]]:
    """Return the in-sync replicas of each partition."""
    topic = cluster.admin_client().list_topics(TOPIC, timeout=30).topics[TOPIC]
    return {number: set(partition.isrs) for number, partition in topic.partitions.items()}


def refused(cluster: TravellingProcesses) -> None:
    """Let the old leader ask once for the return of a broker that stops, and let that broker start again."""
    topics = [
        NewTopic(
            TOPIC,
            num_partitions=2,
            replica_assignment=[[OLD_LEADER, STOPPING, CONTROLLER], [CONTROLLER, STOPPING, OLD_LEADER]],
        )
    ]
    admin = cluster.admin_client()
    for future in admin.create_topics(topics).values():
        future.result(30)
    everybody = {STOPPING, OLD_LEADER, CONTROLLER}
    wait_for("full ISRs", lambda: in_sync(cluster) == {0: everybody, 1: everybody}, 60)

    announce_shutdown(cluster, STOPPING)
    wait_for("a smaller ISR", lambda: in_sync(cluster)[0] == {OLD_LEADER, CONTROLLER}, 60)
    fetch_as(cluster, STOPPING, offset=0)
    wait_for("a refusal", lambda: "Rejecting AlterPartition" in cluster.tail(f"broker-{CONTROLLER}", 2000), 60)
    cluster.stop(f"broker-{STOPPING}")
    cluster.start_broker(STOPPING, ZOOKEEPER)
    wait_for("a broker that is back", lambda: in_sync(cluster)[1] == everybody, 60)


@pytest.mark.parametrize(
    "release", [pytest.param("2.7.2", marks=pytest.mark.long), "2.8.2", pytest.param("3.0.2", marks=pytest.mark.long)]
)
def test_a_new_epoch_lets_a_leader_ask_again(release: str) -> None:
    with cluster_of(release) as cluster:
        refused(cluster)
        time.sleep(HOPELESS_AFTER_SECONDS)
        assert in_sync(cluster)[0] == {OLD_LEADER, CONTROLLER}, "it asks again by itself"
        client = BrokerClient(cluster.bootstrap_servers, {})
        try:
            client.renew_leaders(100)
        finally:
            client.close()
        wait_for("full ISRs again", lambda: in_sync(cluster)[0] == {STOPPING, OLD_LEADER, CONTROLLER}, 30)
        leaders = cluster.admin_client().list_topics(TOPIC, timeout=30).topics[TOPIC].partitions
        assert [leaders[number].leader for number in (0, 1)] == [OLD_LEADER, CONTROLLER], "no leader moved"
        assert [leaders[number].replicas for number in (0, 1)] == [
            [OLD_LEADER, STOPPING, CONTROLLER],
            [CONTROLLER, STOPPING, OLD_LEADER],
        ]


@pytest.mark.long
@pytest.mark.parametrize("release", ["3.1.2", "3.4.1"])
def test_a_leader_of_a_later_release_asks_again_by_itself(release: str) -> None:
    with cluster_of(release) as cluster:
        refused(cluster)
        everybody = {STOPPING, OLD_LEADER, CONTROLLER}
        wait_for("full ISRs again", lambda: in_sync(cluster)[0] == everybody, 30)
