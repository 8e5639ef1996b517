"""What real brokers of each release serve, against ZooKeeper: equal while clients change it, different where a broker missed a change."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from kazoo.client import KazooClient
from tests.journey.travel import TravellingProcesses
from tests.support.kafka_processes import CHROOT, KAFKA_VERSION, ZOOKEEPER, kafka_libraries, kafka_processes, wait_for

from kraftbridge.models.entities import EntityKind
from kraftbridge.models.report import (
    CompareServed,
    DifferenceState,
    Profile,
    Verdict,
    VerificationReport,
    VerificationRequest,
    ZooKeeperAccess,
)
from kraftbridge.verification.compare import upgrade
from kraftbridge.verification.job import verify_live

BROKERS = (0, 1)
AUTHORIZER = "authorizer.class.name=kafka.security.authorizer.AclAuthorizer\nsuper.users=User:ANONYMOUS\n"
RATE = "log.cleaner.io.max.bytes.per.second"


def done(futures: dict[object, object]) -> None:
    for future in futures.values():
        future.result(150)


def set_config(admin: AdminClient, kind: ResourceType, name: str, setting: str, value: str) -> None:
    """Set one configuration; the only request for that which Kafka 2.4 and 3.9 both know through this client."""
    entry = ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
    done(admin.incremental_alter_configs([ConfigResource(kind, name, incremental_configs=[entry])]))


def acl(kind: ResourceType, name: str, pattern: ResourcePatternType) -> AclBinding:
    return AclBinding(kind, name, pattern, "User:änn", "*", AclOperation.READ, AclPermissionType.ALLOW)


@contextmanager
def session_of(cluster: TravellingProcesses) -> Iterator[KazooClient]:
    session = KazooClient(cluster.zookeeper_hosts + CHROOT)
    session.start()
    try:
        yield session
    finally:
        session.stop()
        session.close()


def write(session: KazooClient, path: str, content: object) -> None:
    session.ensure_path(path)
    session.set(path, json.dumps(content).encode())


@contextmanager
def cluster_of(release: str) -> Iterator[TravellingProcesses]:
    """Run two brokers of a release with topics, configs and ACLs."""
    with kafka_processes(BROKERS, (), TravellingProcesses) as processes:
        for broker in BROKERS:
            processes.libraries_of[f"broker-{broker}"] = kafka_libraries(release)
            processes.extra_broker_settings[broker] = AUTHORIZER
        processes.start_zookeeper()
        for broker in BROKERS:
            processes.start_broker(broker, ZOOKEEPER)
        admin = processes.admin_client()
        done(admin.create_topics([NewTopic("with-a-dash", 3, 2), NewTopic("plain", 1, 1)]))
        set_config(admin, ResourceType.TOPIC, "plain", "cleanup.policy", "compact, delete")
        set_config(admin, ResourceType.TOPIC, "plain", "min.cleanable.dirty.ratio", "0.50")
        set_config(admin, ResourceType.BROKER, "0", RATE, "10485760")
        with session_of(processes) as session:
            write(session, "/config/brokers/<default>", {"version": 1, "config": {"log.retention.ms": "86400000"}})
            told = json.dumps({"version": 2, "entity_path": "brokers/<default>"}).encode()
            session.create("/config/changes/config_change_", told, sequence=True)
        done(
            admin.create_acls(
                [
                    acl(ResourceType.TOPIC, "with-a-dash", ResourcePatternType.LITERAL),
                    acl(ResourceType.GROUP, "of", ResourcePatternType.PREFIXED),
                    acl(ResourceType.TRANSACTIONAL_ID, "*", ResourcePatternType.LITERAL),
                ]
            )
        )
        wait_for("every partition in sync", processes.in_sync)
        yield processes


def verified(spark, cluster: TravellingProcesses) -> VerificationReport:
    request = VerificationRequest(
        run_id="test",
        profile=Profile.UPGRADE,
        zookeeper=ZooKeeperAccess(connect=cluster.zookeeper_hosts + CHROOT),
        bootstrap_servers=cluster.bootstrap_servers,
        compare_served=CompareServed.IF_ALLOWED,
    )
    report = verify_live(spark, request)
    # Shown by pytest where the test fails.
    print(report.verdict, report.reason, *(each.to_json() for each in report.differences), *report.problems, sep="\n  ")
    return report


@pytest.fixture(scope="module")
def cluster() -> Iterator[TravellingProcesses]:
    with cluster_of("2.8.2") as running:
        yield running


def test_what_brokers_serve_is_what_zookeeper_holds(spark, cluster: TravellingProcesses) -> None:
    check_that_all_is_served(spark, cluster)


@pytest.mark.parametrize(
    "release", ["2.4.1", *(pytest.param(each, marks=pytest.mark.long) for each in ("2.6.3", "3.4.1", KAFKA_VERSION))]
)
def test_so_it_is_with_each_release(spark, release: str) -> None:
    """Before 2.6 brokers tell no types of settings, and before 2.8 no ids of topics."""
    with cluster_of(release) as other:
        check_that_all_is_served(spark, other)


def check_that_all_is_served(spark, cluster: TravellingProcesses) -> None:
    """Compare while topics come, change and go."""
    ends = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        changing = pool.submit(change, cluster.admin_client(), ends)
        try:
            report = verified(spark, cluster)
        finally:
            ends.set()
        assert changing.result() > 1, "nothing changed meanwhile: this tested nothing"
    assert report.verdict is Verdict.CONSISTENT, report.reason
    assert not report.findings
    served = {kind: counts.served for kind, counts in report.counts.items() if counts.served}
    assert served[EntityKind.ACL] == 3
    assert served[EntityKind.TOPIC] >= 2
    assert served[EntityKind.PARTITION] >= 4
    assert served[EntityKind.TOPIC_CONFIG] >= 1


def change(admin: AdminClient, ends: threading.Event) -> int:
    """Create, configure and delete topics until the end; return how many.

    Now and then an old broker leaves a request unanswered for a minute: the next topic takes its turn.
    """
    number = 0
    changed = 0
    while not ends.is_set():
        number += 1
        name = f"passing-{number}"
        try:
            done(admin.create_topics([NewTopic(name, 2, 2)]))
            wait_for(f"a broker that knows {name}", partial(is_known, admin, name, number))
            done(admin.delete_topics([name]))
        except KafkaException as error:
            if error.args[0].name() != "_TIMED_OUT":
                raise
            continue
        changed += 1
    return changed


def is_known(admin: AdminClient, topic: str, retention_ms: int) -> bool:
    """Configure a topic; return whether the broker that was asked knows it, which may take a moment."""
    try:
        set_config(admin, ResourceType.TOPIC, topic, "retention.ms", str(retention_ms))
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise
        return False
    return True


def test_a_broker_that_does_not_answer_is_unknown(spark, cluster: TravellingProcesses) -> None:
    cluster.signal("broker-1", signal.SIGSTOP)
    try:
        report = verified(spark, cluster)
    finally:
        cluster.signal("broker-1", signal.SIGCONT)
    assert report.verdict is Verdict.INCONCLUSIVE
    assert "broker 1 at" in report.reason
    assert not report.differences


def test_what_brokers_have_missed_is_named(spark, cluster: TravellingProcesses) -> None:
    """Written into ZooKeeper without the notification of which a broker learns it: what a lost notification leaves.

    It leaves the cluster with that: this test is the last one.
    """
    wait_for("every partition in sync again", cluster.in_sync)
    entry = {"principal": "User:x", "permissionType": "Allow", "operation": "Read", "host": "*"}
    state = "/brokers/topics/with-a-dash/partitions/2/state"
    with session_of(cluster) as session:
        write(session, "/kafka-acl/Topic/unheard", {"version": 1, "acls": [entry]})
        write(session, "/config/brokers/1", {"version": 1, "config": {RATE: "5"}})
        session.delete("/kafka-acl/TransactionalId/*")
        known = json.loads(session.get(state)[0])
        write(session, state, {**known, "leader_epoch": known["leader_epoch"] + 7})
    report = verified(spark, cluster)
    assert report.verdict is Verdict.INCONSISTENT
    assert {(str(each.kind), each.key, each.state) for each in report.differences} == {
        ("acl", '["Topic","LITERAL","unheard","User:x","*","Read","Allow"]', DifferenceState.MISSING),
        ("acl", '["TransactionalId","LITERAL","*","User:änn","*","Read","Allow"]', DifferenceState.EXTRA),
        ("broker-config", "1", DifferenceState.MISSING),
        ("partition", "with-a-dash-2", DifferenceState.CHANGED),
    }
    (partition,) = (each for each in report.differences if each.kind is EntityKind.PARTITION)
    assert {each.name for each in partition.attributes} == {"leaderEpoch"}
    assert {"zookeeper", "broker 0", "broker 1"} == {*partition.present_in, *partition.absent_in}
    assert report.timings_seconds["settle brokers"] > upgrade._STANDS_SECONDS
