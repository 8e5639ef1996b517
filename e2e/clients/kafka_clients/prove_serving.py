"""Use every feature of the cluster, and report which ones work.

Creates a topic, produces and consumes, then alters a config, grows the topic, moves replicas, sets a quota, an ACL and
a SCRAM credential, reads each of them back, commits a transaction and deletes the topic. Prints JSON: check to "ok" or
what went wrong. The exit code is 1 if anything did, unless asked otherwise.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafka import TopicPartition
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)

from kafka_clients.cluster import TOPIC_RESOURCE, WireAdmin, confluent_admin, librdkafka_config

RECORDS = 200


class Proof:
    """The checks, in the order in which they build on each other."""

    def __init__(self) -> None:
        self.name = f"proof-{time.time_ns()}"
        self.admin, self.wire = confluent_admin(), WireAdmin()

    def create_topic(self) -> None:
        _finish(self.admin.create_topics([NewTopic(self.name, 3, 3, config={"min.insync.replicas": "2"})]))
        _eventually(lambda: len(self._partitions()) == 3, "3 partitions in the metadata")

    def produce_and_consume(self) -> None:
        producer = Producer(librdkafka_config(enable_idempotence=True, message_timeout_ms=30_000))
        failures: list[str] = []
        for index in range(RECORDS):
            producer.produce(
                self.name, f"value-{index}", on_delivery=lambda error, _: failures.append(str(error)) if error else None
            )
        left = producer.flush(40)
        _require(not left and not failures, f"{left} records unsent, failures {failures[:3]}")
        consumer = Consumer(librdkafka_config(group_id=self.name, auto_offset_reset="earliest"))
        consumer.subscribe([self.name])
        seen: set[bytes] = set()
        deadline = time.monotonic() + 60
        while len(seen) < RECORDS and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                seen.add(message.value())
        consumer.close()
        _require(len(seen) == RECORDS, f"{len(seen)} of {RECORDS} records came back")

    def commit_transaction(self) -> None:
        producer = Producer(librdkafka_config(transactional_id=self.name))
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce(self.name, "in a transaction")
        producer.commit_transaction(60)

    def alter_config(self) -> None:
        entry = ConfigEntry("retention.ms", "777000", incremental_operation=AlterConfigOpType.SET)
        _finish(self.admin.incremental_alter_configs([ConfigResource("topic", self.name, incremental_configs=[entry])]))
        _eventually(
            lambda: self.wire.dynamic_configs(TOPIC_RESOURCE, [self.name])[self.name].get("retention.ms") == "777000",
            "the altered config is served",
        )

    def grow_topic(self) -> None:
        _finish(self.admin.create_partitions([NewPartitions(self.name, 5)]))
        _eventually(lambda: len(self._partitions()) == 5, "5 partitions in the metadata")

    def move_replicas(self) -> None:
        brokers = sorted(self.admin.list_topics(timeout=10).brokers)
        first, last = brokers[0], brokers[-1]
        self.wire.alter_partition_reassignments({TopicPartition(self.name, 0): [last, first]})
        _eventually(
            lambda: not self.wire.list_partition_reassignments() and self._replicas(0) == [first, last],
            f"partition 0 is on brokers {first} and {last}",
        )

    def set_quota(self) -> None:
        self.wire.set_quotas([({"user": self.name}, {"producer_byte_rate": 1e6})])
        _eventually(lambda: f"user={self.name}" in self.wire.quotas(), "the quota is served")

    def create_and_delete_acl(self) -> None:
        kind, literal = ResourceType.TOPIC, ACLResourcePatternType.LITERAL
        parts = (f"User:{self.name}", "*", ACLOperation.READ, ACLPermissionType.ALLOW)
        created = self.wire.create_acls([ACL(*parts, ResourcePattern(kind, self.name, literal))])
        _require(not created["failed"], f"ACL refused: {created['failed']}")
        wanted = ACLFilter(*parts, ResourcePatternFilter(kind, self.name, literal))
        _eventually(lambda: len(self.wire.describe_acls(wanted)[0]) == 1, "the ACL is served")
        self.wire.delete_acls([wanted])
        _eventually(lambda: not self.wire.describe_acls(wanted)[0], "the ACL is gone")

    def create_user(self) -> None:
        # The user stays: its removal would make restarted brokers of Kafka 3.9.1 forget the others (docs/troubleshooting.md).
        mechanism = ScramMechanism.SCRAM_SHA_256
        credential = UserScramCredentialUpsertion(self.name, ScramCredentialInfo(mechanism, 4096), b"secret")
        _finish(self.admin.alter_user_scram_credentials([credential]))
        _eventually(lambda: self.name in self.wire.describe_user_scram_credentials(), "the user is served")

    def delete_topic(self) -> None:
        _finish(self.admin.delete_topics([self.name]))
        _eventually(lambda: self.name not in self.admin.list_topics(timeout=10).topics, "the topic is gone")

    def _replicas(self, partition: int) -> list[int]:
        found = self._partitions().get(partition)
        return sorted(found.replicas) if found else []

    def _partitions(self) -> dict:
        # A broker that has not heard of the topic yet leaves it out.
        topic = self.admin.list_topics(timeout=10).topics.get(self.name)
        return topic.partitions if topic else {}


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)


def _eventually(holds: Callable[[], bool], what: str, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        _require(time.monotonic() < deadline, f"not within {timeout_s:.0f} s: {what}")
        time.sleep(0.2)


def _finish(outcomes: dict) -> None:
    for outcome in outcomes.values():
        outcome.result(60)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--exit-zero", action="store_true", help="exit code 0 whatever the outcome")
    arguments = parser.parse_args()
    proof = Proof()
    checks = (
        proof.create_topic, proof.produce_and_consume, proof.commit_transaction, proof.alter_config,
        proof.grow_topic, proof.move_replicas, proof.set_quota, proof.create_and_delete_acl,
        proof.create_user, proof.delete_topic,
    )  # fmt: skip
    results = {}
    for check in checks:
        try:
            check()
            results[check.__name__] = "ok"
        except Exception as error:  # noqa: BLE001 - every way is tried and each failure reported
            results[check.__name__] = f"{type(error).__name__}: {error}"
    print(json.dumps(results, ensure_ascii=False))
    sys.exit(not arguments.exit_zero and any(result != "ok" for result in results.values()))


if __name__ == "__main__":
    main()
