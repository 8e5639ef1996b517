"""Fill a cluster with metadata of every kind, including unusual names.

It is idempotent: it changes nothing that exists.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka import TopicPartition
from kafka.admin import ACL, ACLOperation, ACLPermissionType, ACLResourcePatternType, ResourcePattern, ResourceType
from kafka.errors import IncompatibleBrokerVersion

from kafka_clients.cluster import RequestFailedError, WireAdmin, confluent_admin, librdkafka_config, wait_until_formed

LOAD_TOPICS = ("load-orders", "load-payments")
GROWN_TOPIC, GROWN_PARTITIONS = "grown", 9
REASSIGNED_TOPIC = "reassigned"
DELETED_TOPIC = "deleted"
TRANSACTIONAL_TOPIC = "transactions"
# What the load watches (kafka_clients/watch).
OLD_TOPICS = ("load-old-by-default", "load-old-by-topic")
WATCHED_TRANSACTIONS = "load-transactions"
MOVED_TOPIC, MOVED_PARTITIONS = "load-moved", 2
ALTERED_TOPIC = "load-altered"
WATCHED_TOPICS = (*OLD_TOPICS, WATCHED_TRANSACTIONS, MOVED_TOPIC, ALTERED_TOPIC)
KEEP_EVERYTHING = {"log.retention.ms": "-1"}
"""The cluster-wide default that keeps records which the static retention would delete."""
_UNKNOWN_ENTITY = "Unhandled client quota entity type"
"""What a broker answers that knows quotas, and not those of this kind of entity."""
ODD_USER = "ünï/cödé&=,"
SASL_JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="int" password="int-pw";'


def topics(*, single_replica: bool) -> list[NewTopic]:
    """Return the topics: 56 with 332 partitions, and one more with replication factor 1 if asked for."""
    compression = ("producer", "gzip", "lz4", "zstd", "snappy")
    wanted = []
    for index in range(40):
        config = {"retention.ms": str(3_600_000 * (index + 1))}
        if index % 2 == 0:
            config["compression.type"] = compression[index % 5]
        if index % 3 == 0:
            config["min.insync.replicas"] = "2"
        if index % 5 == 0:
            config["cleanup.policy"] = "compact"
        if index % 7 == 0:
            config |= {"segment.bytes": str(16 << 20), "max.message.bytes": "2097152"}
        if index % 11 == 0:
            config["unclean.leader.election.enable"] = "true"
        wanted.append(NewTopic(f"app-{index:02d}", 1 + index % 8, 3, config={} if index % 4 == 3 else config))
    wanted += [
        NewTopic("wide-00", 64, 3),
        NewTopic("wide-01", 35, 3),
        NewTopic("two-replicas", 6, 2),
        NewTopic("a.b_c-D.9", 3, 3),
        NewTopic("dead.letters", 3, 3, config={"retention.ms": "-1", "delete.retention.ms": "0"}),
        NewTopic("x" * 249, 1, 3),  # the longest name that Kafka takes
        NewTopic(DELETED_TOPIC, 4, 3),
        NewTopic(GROWN_TOPIC, 2, 3),
        NewTopic(REASSIGNED_TOPIC, 8, 3),
        NewTopic(TRANSACTIONAL_TOPIC, 3, 3),
        *load_topics(),
    ]
    if single_replica:
        wanted.append(NewTopic("single-replica", 4, 1))
    return wanted


def load_topics() -> list[NewTopic]:
    """Return the topics of the load and its watchers."""
    durable = {"min.insync.replicas": "2"}
    by_default, by_topic = OLD_TOPICS
    throttled = {"leader.replication.throttled.replicas": "*", "follower.replication.throttled.replicas": "*"}
    return [
        *(NewTopic(name, 6, 3, config=durable) for name in LOAD_TOPICS),
        NewTopic(by_default, 1, 3),
        NewTopic(by_topic, 1, 3, config={"retention.ms": "-1"}),
        NewTopic(WATCHED_TRANSACTIONS, 3, 3, config=durable),
        # No throttle is in force before a reassignment sets its rate.
        NewTopic(MOVED_TOPIC, MOVED_PARTITIONS, 2, config=throttled),
        NewTopic(ALTERED_TOPIC, 1, 3),
    ]


def create_topics(admin: AdminClient, wanted: list[NewTopic]) -> None:
    for name, outcome in admin.create_topics(wanted, operation_timeout=60, request_timeout=90).items():
        try:
            outcome.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise RuntimeError(f"creating topic {name}: {error}") from error
    partitions = len(admin.list_topics(GROWN_TOPIC, timeout=20).topics[GROWN_TOPIC].partitions)
    if partitions < GROWN_PARTITIONS:
        _finish(admin.create_partitions([NewPartitions(GROWN_TOPIC, GROWN_PARTITIONS)]))
    _finish(admin.delete_topics([DELETED_TOPIC], operation_timeout=30))


def set_configs(admin: AdminClient, wire: WireAdmin) -> None:
    throttled = {"retention.bytes": "123456789", "leader.replication.throttled.replicas": "*"}
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in throttled.items()
    ]
    _finish(admin.incremental_alter_configs([ConfigResource("topic", REASSIGNED_TOPIC, incremental_configs=entries)]))
    wire.set_broker_configs(
        "0",
        {
            "log.cleaner.threads": "2",
            # A password: encrypted in ZooKeeper with password.encoder.secret, plain text in KRaft.
            "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": SASL_JAAS,
        },
    )
    wire.set_broker_configs("1", {"num.io.threads": "6", "message.max.bytes": "2000000"})
    wire.set_broker_configs(
        "",
        {
            **KEEP_EVERYTHING,
            "num.replica.fetchers": "2",
            "log.cleaner.backoff.ms": "20000",
        },
    )


def create_users(admin: AdminClient) -> None:
    sha256, sha512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
    wanted = [(user, sha256, 4096) for user in ("alice", "bob", "user with space", ODD_USER)]
    wanted.append(("bob", sha512, 8192))
    present = {
        (user, info.mechanism)
        for user, description in admin.describe_user_scram_credentials().result(30).items()
        for info in description.scram_credential_infos
    }
    missing = [credential for credential in wanted if credential[:2] not in present]
    # One request may name a user only once.
    for batch in (_first_per_user(missing), _rest_per_user(missing), [("removed", sha256, 4096)]):
        if batch:
            _finish(
                admin.alter_user_scram_credentials(
                    [
                        UserScramCredentialUpsertion(
                            user, ScramCredentialInfo(mechanism, iterations), f"pw-{user}".encode()
                        )
                        for user, mechanism, iterations in batch
                    ]
                )
            )
    # The new credential is not known to every broker at once; deleting an unknown one is an error.
    _retry(lambda: _finish(admin.alter_user_scram_credentials([UserScramCredentialDeletion("removed", sha256)])))


def set_quotas(wire: WireAdmin) -> None:
    user, client = "user", "client-id"
    wire.set_quotas(
        [
            ({user: "alice"}, {"producer_byte_rate": 1e7, "consumer_byte_rate": 2e7}),
            ({user: "quota/ü"}, {"request_percentage": 55.5}),
            ({user: None}, {"controller_mutation_rate": 5000.0}),
            ({client: "client 1"}, {"producer_byte_rate": 3e6}),
            ({client: None}, {"request_percentage": 400.0}),
            ({user: "bob", client: "client 2"}, {"consumer_byte_rate": 4e6}),
            ({user: "bob", client: None}, {"consumer_byte_rate": 4.5e6}),
            ({user: None, client: "client 3"}, {"request_percentage": 77.0}),
            ({user: None, client: None}, {"request_percentage": 99.0}),
        ]
    )


def set_address_quotas(wire: WireAdmin) -> None:
    wire.set_quotas(
        [
            ({"ip": "10.1.2.3"}, {"connection_creation_rate": 100.0}),
            ({"ip": None}, {"connection_creation_rate": 5000.0}),
        ]
    )


def create_acls(wire: WireAdmin) -> None:
    allow, deny = ACLPermissionType.ALLOW, ACLPermissionType.DENY
    literal, prefixed = ACLResourcePatternType.LITERAL, ACLResourcePatternType.PREFIXED
    op = ACLOperation

    def acl(kind, name, principal, operation, *, pattern=literal, permission=allow, host="*"):
        return ACL(f"User:{principal}", host, operation, permission, ResourcePattern(kind, name, pattern))

    topic, group = ResourceType.TOPIC, ResourceType.GROUP
    acls = [acl(topic, f"app-{i:02d}", "alice", op.READ if i % 2 == 0 else op.WRITE) for i in range(30)]
    acls += [acl(topic, f"team-{i}-", "bob", op.ALL, pattern=prefixed) for i in range(5)]
    acls += [
        acl(topic, "app-00", "mallory", op.ALL, permission=deny, host="10.0.0.9"),
        acl(topic, "*", "monitoring", op.DESCRIBE),
        acl(group, "group:odd ", "alice", op.READ, pattern=prefixed),
        acl(group, "group-1", ODD_USER, op.READ),
        acl(ResourceType.CLUSTER, "kafka-cluster", "alice", op.IDEMPOTENT_WRITE),
        acl(ResourceType.TRANSACTIONAL_ID, "tx-", "alice", op.WRITE, pattern=prefixed),
        acl(ResourceType.DELEGATION_TOKEN, "token", "alice", op.DESCRIBE),
    ]
    _create_acls(wire, acls)
    with suppress(IncompatibleBrokerVersion):  # Kafka before 3.3 knows no users as a resource
        _create_acls(wire, [acl(ResourceType.USER, "User:bob", "alice", op.CREATE_TOKENS)])


def _create_acls(wire: WireAdmin, acls: list[ACL]) -> None:
    outcome = wire.create_acls(acls)
    if outcome["failed"]:
        raise RuntimeError(f"creating ACLs: {outcome['failed']}")


def reassign(wire: WireAdmin) -> None:
    """Move a topic's replicas and wait until that is complete."""
    wanted = {TopicPartition(REASSIGNED_TOPIC, index): [2, 0] if index % 2 == 0 else [1, 2, 0] for index in range(8)}
    refused = {tp: error for tp, error in wire.alter_partition_reassignments(wanted).items() if error}
    if refused:
        raise RuntimeError(f"reassigning {REASSIGNED_TOPIC}: {refused}")
    deadline = time.monotonic() + 120
    while pending := wire.list_partition_reassignments():
        if time.monotonic() > deadline:
            raise TimeoutError(f"reassignments not complete after 120 s: {pending}")
        time.sleep(0.3)


def commit_transaction() -> None:
    """Write in a transaction: the cluster then has given out producer ids and has a transaction log."""
    producer = Producer(librdkafka_config(transactional_id="tx-seed"))
    producer.init_transactions(60)
    producer.begin_transaction()
    for index in range(20):
        producer.produce(TRANSACTIONAL_TOPIC, key=f"key-{index}", value="value")
    producer.commit_transaction(60)


def what_the_release_lacks(create: Callable[[], None], name: str) -> list[str]:
    """Create something; return its name if the brokers' release has no request for it."""
    try:
        create()
    except IncompatibleBrokerVersion:
        return [name]
    except RequestFailedError as error:
        if _UNKNOWN_ENTITY not in str(error):
            raise
        return [name]
    except KafkaException as error:
        if error.args[0].name() != "_UNSUPPORTED_FEATURE":
            raise
        return [name]
    return []


def seed(*, single_replica: bool, any_cluster: bool = False) -> dict[str, object]:
    """Fill the cluster and return what there is in it now, and what its release lacks."""
    wait_until_formed()
    admin, wire = confluent_admin(), WireAdmin()
    create_topics(admin, topics(single_replica=single_replica))
    if any_cluster:
        wire.set_broker_configs("", KEEP_EVERYTHING)
    else:
        set_configs(admin, wire)
    lacking = what_the_release_lacks(lambda: create_users(admin), "SCRAM users")  # KIP-554, Kafka 2.7
    lacking += what_the_release_lacks(lambda: set_quotas(wire), "quotas")  # KIP-546, Kafka 2.6
    lacking += what_the_release_lacks(lambda: set_address_quotas(wire), "quotas of addresses")  # KIP-612, Kafka 2.8
    if not any_cluster:
        create_acls(wire)
        reassign(wire)
    commit_transaction()
    found = admin.list_topics(timeout=20).topics
    return {
        "topics": len(found),
        "partitions": sum(len(topic.partitions) for topic in found.values()),
        "lacking": lacking,
    }


def _first_per_user(credentials: Iterable[tuple]) -> list[tuple]:
    return list({credential[0]: credential for credential in reversed(list(credentials))}.values())


def _rest_per_user(credentials: list[tuple]) -> list[tuple]:
    first = _first_per_user(credentials)
    return [credential for credential in credentials if credential not in first]


def _finish(outcomes: dict) -> None:
    for outcome in outcomes.values():
        outcome.result(60)


def _retry(action, attempts: int = 20, pause_s: float = 0.5) -> None:
    for attempt in range(attempts):
        try:
            return action()
        except KafkaException:
            if attempt == attempts - 1:
                raise
            time.sleep(pause_s)
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--single-replica-topic", action="store_true", help="one topic with replication factor 1")
    parser.add_argument(
        "--any-cluster",
        action="store_true",
        help="only what any cluster takes: no ACLs (they need an authorizer), nothing that names a broker",
    )
    arguments = parser.parse_args()
    begin = time.monotonic()
    counts = seed(single_replica=arguments.single_replica_topic, any_cluster=arguments.any_cluster)
    print(json.dumps(counts | {"seconds": round(time.monotonic() - begin, 1)}))


if __name__ == "__main__":
    main()
