"""SCRAM users that one broker in KRaft mode forgot when it started, and a principal that may not see them: against real processes.

Kafka 3.9.1 forgets them by itself (``ScramDelta.apply``, see ``tests/integration/test_forgotten_credentials.py``): nothing is planted but users.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType
from tests.integration.test_forgotten_credentials import bucket
from tests.spark.churn import Changes
from tests.spark.live_cluster import BROKERS, ENCODER_SECRET, LiveCluster, dual_write_cluster
from tests.support.kafka_processes import KRAFT
from tests.support.programs import free_port

from kraftbridge.metadata.log.files import LocalLogFiles
from kraftbridge.metadata.log.image import OFFSET
from kraftbridge.metadata.log.replay import LogReplay
from kraftbridge.models.entities import EntityKind
from kraftbridge.models.report import BrokerAccess, CompareServed, DifferenceState, Verdict, VerificationReport

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]
SCRAM = EntityKind.SCRAM_CREDENTIAL
FIRST, SECOND = BROKERS
USER = "joe"
PASSWORD = "of-this-test"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LiveCluster]:
    with dual_write_cluster(topics=4) as running:
        yield running


def on_kraft(cluster: LiveCluster, broker: int) -> int:
    """Restart a broker in KRaft mode, with a listener at which a user logs in; return its port, once it is registered and unfenced."""
    processes, login, plain = cluster.processes, free_port(), cluster.processes.broker_ports[broker]
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    processes.extra_broker_settings[broker] = (
        f"listeners=PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{login}\n"
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT\n"
        "sasl.enabled.mechanisms=PLAIN\n"
        f'listener.name.sasl_plaintext.plain.sasl.jaas.config={module} required user_{USER}="{PASSWORD}";\n'
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
        "super.users=User:ANONYMOUS\nallow.everyone.if.no.acl.found=true\n"
        f"password.encoder.secret={ENCODER_SECRET}\n"
    )
    replay = LogReplay(LocalLogFiles(processes.directory / "controller-3000"))
    before = replay.advance().brokers[broker][OFFSET]
    processes.stop(f"broker-{broker}")
    processes.start_broker(broker, KRAFT)

    def is_back() -> bool:
        registration = replay.advance().brokers[broker]
        registered = registration[OFFSET] > before and not registration.get("isMigratingZkBroker")
        return registered and not registration["fenced"]

    cluster.wait(is_back, 120)
    cluster.wait(cluster.in_sync, 120)
    return login


def credentials(report: VerificationReport) -> dict[str, tuple[DifferenceState, list[str]]]:
    return {d.key.rpartition("/")[0]: (d.state, d.absent_in) for d in report.differences if d.kind is SCRAM}


def test_users_whom_a_broker_forgot_and_users_whom_it_does_not_show_are_named(
    cluster: LiveCluster, check: Callable[..., VerificationReport], tmp_path: Path
) -> None:
    changes = Changes(cluster, seed=2)
    removed = next(name for i in count() if bucket(name := f"removed-{i}") == 0)
    others = {"alice", "bob", "ünï/cödé"}
    assert all(bucket(name) for name in others), "Kafka must see the removed user first"
    changes.scram(removed)
    changes.remove_scram(removed)
    cluster.quiet()
    report = check(compare_served=CompareServed.ALWAYS)
    assert report.verdict is Verdict.CONSISTENT, report.reason
    assert report.counts[SCRAM].served is None, "brokers in ZooKeeper mode answer with what ZooKeeper has"

    ports = {SECOND: on_kraft(cluster, SECOND)}
    report = check(compare_served=CompareServed.IF_ALLOWED)
    assert report.verdict is Verdict.INCONSISTENT, report.reason
    assert credentials(report) == dict.fromkeys(others, (DifferenceState.MISSING, [f"broker {SECOND}"]))
    assert {d.kind for d in report.differences} == {SCRAM}
    assert report.counts[SCRAM].served == 0
    assert not any(d.in_mirror_only for d in report.differences), "no controller failover heals it"
    (attribute, *_) = report.differences[0].attributes
    assert (attribute.name, attribute.values) == ("iterations", {"log": "4096", f"broker {SECOND}": None})

    for name in others:  # the way out that docs/troubleshooting.md tells
        changes.scram(name)
    cluster.quiet()
    report = check(compare_served=CompareServed.ALWAYS)
    assert report.verdict is Verdict.CONSISTENT, report.reason
    assert report.counts[SCRAM].served == report.counts[SCRAM].log == len(others)

    changes.scram(removed)  # so that the next broker forgets nobody
    ports[FIRST] = on_kraft(cluster, FIRST)
    may = [
        AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{USER}", "*", operation, AclPermissionType.ALLOW)
        for kind, name, operation in (
            (ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE_CONFIGS),
            (ResourceType.TOPIC, "*", AclOperation.DESCRIBE),
            (ResourceType.TOPIC, "*", AclOperation.DESCRIBE_CONFIGS),
        )
    ]
    for future in cluster.admin.create_acls(may).values():
        future.result(150)
    cluster.quiet()
    login = tmp_path / "client.properties"
    login.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config="
        f'org.apache.kafka.common.security.plain.PlainLoginModule required username="{USER}" password="{PASSWORD}";\n'
    )
    asked = {
        "brokers": [BrokerAccess(id=i, host="127.0.0.1", port=port) for i, port in sorted(ports.items())],
        "client_config_path": str(login),
    }
    report = check(compare_served=CompareServed.IF_ALLOWED, **asked)
    assert report.verdict is Verdict.CONSISTENT, report.reason
    reasons = [f.reason for f in report.findings if f.code == "ServedNotCompared"]
    assert len(reasons) == len(BROKERS), report.findings
    assert all("see SCRAM credentials: it needs Describe on the cluster" in reason for reason in reasons)
    assert report.counts[EntityKind.PARTITION].served == report.counts[EntityKind.PARTITION].log, "all else is compared"
    report = check(compare_served=CompareServed.ALWAYS, **asked)
    assert report.verdict is Verdict.INCONCLUSIVE
    assert "Describe on the cluster" in report.reason
