"""A reassignment while ZooKeeper-mode brokers are under the KRaft controller, and one while brokers are in both modes (KAFKA-16120).

Each is throttled until it has lasted for some seconds: no broker is restarted meanwhile, since an in-sync set is not full.
"""

import os
import time

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import OffsetSpec
from kafka import TopicPartition

from kafka_clients.cluster import (
    BROKER_RESOURCE,
    RequestFailedError,
    WireAdmin,
    confluent_admin,
    insist,
    librdkafka_config,
    log_offsets,
)
from kafka_clients.seed import MOVED_PARTITIONS, MOVED_TOPIC
from kafka_clients.watch.balance import Balance, Copies, Move, Subject, judge_moves
from kafka_clients.watch.moments import Moment, Moments
from kafka_clients.watch.watcher import Watcher

RECORD = 100_000
RECORDS = 20
"""Per partition: 2 MB."""
THROTTLE = {"leader.replication.throttled.rate": "20000", "follower.replication.throttled.rate": "20000"}
THROTTLED_S = 3.0
TIMEOUT_S = 120.0
SETTLED_TIMEOUT_S = 20.0

Replicas = dict[int, tuple[int, ...]]


class Moves(Watcher):
    """Moves each partition from its first replica to the broker that has none, once for each moment."""

    subject = Subject.MOVES

    def __init__(self, moments: Moments, run: str) -> None:
        super().__init__(moments, run)
        self.moves: list[Move] = []

    def prepare(self) -> None:
        self.admin = confluent_admin()
        producer = Producer(librdkafka_config(acks="all", message_timeout_ms=60_000))
        for number in range(MOVED_PARTITIONS):
            for _ in range(RECORDS):
                producer.produce(MOVED_TOPIC, os.urandom(RECORD), partition=number)
        if left := producer.flush(60):
            raise TimeoutError(f"{left} records of {MOVED_TOPIC} were not acknowledged")
        self.written = self._ends()
        self.wanted = self._replicas()

    def watch(self) -> None:
        waiting = [Moment.DUAL_WRITE, Moment.MIXED]
        while waiting and not self.ended.wait(0.3):
            if self.moments.told(waiting[0]):
                self.moves.append(self._move(waiting.pop(0)))

    def balance(self) -> Balance:
        deadline = time.monotonic() + SETTLED_TIMEOUT_S
        while True:
            # A replica that has moved away is deleted after the reassignment is complete.
            found = judge_moves(self.moves, self._copies())
            if not found.broken or time.monotonic() > deadline:
                return found
            time.sleep(0.5)

    def _move(self, moment: Moment) -> Move:
        before = self._replicas()
        brokers = sorted(self.admin.list_topics(timeout=20).brokers)
        self.wanted = {number: _rotated(replicas, brokers) for number, replicas in before.items()}
        asked = {TopicPartition(MOVED_TOPIC, number): list(replicas) for number, replicas in self.wanted.items()}
        insist(lambda wire: wire.alter_configs(BROKER_RESOURCE, "", THROTTLE))
        begin = time.monotonic()
        insist(lambda wire: _reassign(wire, asked))
        self._until_moved(begin + THROTTLED_S)
        insist(lambda wire: wire.alter_configs(BROKER_RESOURCE, "", dict.fromkeys(THROTTLE)))
        completed = self._until_moved(begin + TIMEOUT_S)
        return Move(moment, round(time.monotonic() - begin, 1), completed)

    @staticmethod
    def _until_moved(deadline: float) -> bool:
        while time.monotonic() < deadline:
            moving = insist(lambda wire: {place.topic for place in wire.list_partition_reassignments()})
            if MOVED_TOPIC not in moving:
                return True
            time.sleep(0.5)
        return False

    def _partitions(self) -> dict:
        deadline = time.monotonic() + SETTLED_TIMEOUT_S
        while True:
            try:
                return self.admin.list_topics(MOVED_TOPIC, timeout=20).topics[MOVED_TOPIC].partitions
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)

    def _replicas(self) -> Replicas:
        return {number: tuple(p.replicas) for number, p in self._partitions().items()}

    def _ends(self) -> dict[int, int]:
        found = log_offsets(self.admin, [MOVED_TOPIC], OffsetSpec.latest())
        return {number: offset for (_, number), offset in found.items()}

    def _copies(self) -> dict[int, Copies]:
        ends, hosts = self._ends(), insist(_hosts)
        return {
            number: Copies(
                self.wanted[number],
                tuple(p.replicas),
                tuple(p.isrs),
                tuple(hosts.get(number, ())),
                ends[number],
                self.written[number],
            )
            for number, p in self._partitions().items()
        }


def _reassign(wire: WireAdmin, asked: dict[TopicPartition, list[int]]) -> None:
    refused = {place: error for place, error in wire.alter_partition_reassignments(asked).items() if error}
    if refused:
        raise RequestFailedError(f"reassigning: {refused}")


def _hosts(wire: WireAdmin) -> dict[int, set[int]]:
    """Return the brokers with a directory of each partition."""
    found: dict[int, set[int]] = {}
    for answer in wire.describe_log_dirs({MOVED_TOPIC: list(range(MOVED_PARTITIONS))}):
        topics = [topic for directory in answer["log_dirs"] for topic in directory["topics"]]
        for partition in (partition for topic in topics for partition in topic["partitions"]):
            found.setdefault(partition["partition_index"], set()).add(answer["broker"])
    return found


def _rotated(replicas: tuple[int, ...], brokers: list[int]) -> tuple[int, ...]:
    """Return the replicas without the first one and with the next broker that has none."""
    free = [broker for broker in brokers if broker not in replicas]
    later = [broker for broker in free if broker > replicas[-1]] or free
    return (*replicas[1:], *later[:1])
