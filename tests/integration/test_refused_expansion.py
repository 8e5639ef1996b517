"""A leader of Kafka 2.8 whose request for a larger ISR was refused once never asks again, until it gets a new epoch."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import NewTopic
from kafka.protocol.consumer import FetchRequest
from tests.journey.travel import TravellingProcesses
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


@pytest.fixture(scope="module")
def cluster() -> Iterator[TravellingProcesses]:
    """Run two brokers of the bridge release, one of which is ZooKeeper's controller, and one of 2.8 between them."""
    with kafka_processes((STOPPING, OLD_LEADER, CONTROLLER), (), TravellingProcesses) as processes:
        processes.libraries_of[f"broker-{OLD_LEADER}"] = kafka_libraries("2.8.2")
        processes.libraries_of |= {f"broker-{each}": kafka_libraries(KAFKA_VERSION) for each in (STOPPING, CONTROLLER)}
        processes.protocol = dict.fromkeys((STOPPING, OLD_LEADER, CONTROLLER), "2.8")
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


def test_a_new_epoch_lets_a_leader_ask_again(cluster: TravellingProcesses) -> None:
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
    wait_for("a refusal", lambda: "Failed to enqueue ISR change" in cluster.tail(f"broker-{OLD_LEADER}", 400), 60)
    cluster.stop(f"broker-{STOPPING}")
    cluster.start_broker(STOPPING, ZOOKEEPER)
    wait_for("a broker that is back", lambda: in_sync(cluster)[1] == everybody, 60)
    time.sleep(HOPELESS_AFTER_SECONDS)
    assert in_sync(cluster)[0] == {OLD_LEADER, CONTROLLER}, "2.8 has been mended, and nobody needs this"

    client = BrokerClient(cluster.bootstrap_servers, {})
    try:
        client.renew_leaders(100)
    finally:
        client.close()
    wait_for("full ISRs again", lambda: in_sync(cluster)[0] == everybody, 30)
    leaders = cluster.admin_client().list_topics(TOPIC, timeout=30).topics[TOPIC].partitions
    assert [leaders[number].leader for number in (0, 1)] == [OLD_LEADER, CONTROLLER], "no leader moved"
    assert [leaders[number].replicas for number in (0, 1)] == [
        [OLD_LEADER, STOPPING, CONTROLLER],
        [CONTROLLER, STOPPING, OLD_LEADER],
    ]
