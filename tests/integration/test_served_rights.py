"""What a principal may see of what brokers serve, by Kafka's own authorizer: preflight names what is missing before a verification does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.support.kafka_processes import ZOOKEEPER, kafka_processes, wait_for
from tests.support.observations import open_gate, survey
from tests.support.programs import free_port

from kraftbridge.metadata.entities import Entity, canonical_json
from kraftbridge.models.entities import EntityKind
from kraftbridge.models.phase import Phase
from kraftbridge.models.report import BrokerAccess, CompareServed
from kraftbridge.models.survey import ZooKeeperAcls
from kraftbridge.storage.kafka_brokers import BrokerClient
from kraftbridge.verification.sources.brokers import NotAllowedError, served_broker

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kafka-processes")]
USER = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="a";',
}
TOPICS = ("closed", "open")


@dataclass(frozen=True)
class Authorized:
    admin: AdminClient
    port: int
    """Listener at which ann logs in."""
    plain: int

    def allow(self, kind: ResourceType, name: str, operation: AclOperation, user: str = "User:ann") -> None:
        entry = AclBinding(kind, name, ResourcePatternType.LITERAL, user, "*", operation, AclPermissionType.ALLOW)
        for future in self.admin.create_acls([entry]).values():
            future.result(150)


@pytest.fixture(scope="module")
def authorized() -> Iterator[Authorized]:
    """A broker with Kafka's AclAuthorizer, on which ann may describe everything and see the configuration of one topic."""
    with kafka_processes([0], []) as processes:
        port, plain = free_port(), processes.broker_ports[0]
        processes.extra_broker_settings[0] = (
            f"listeners=PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{port}\n"
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT\n"
            "sasl.enabled.mechanisms=PLAIN\n"
            "listener.name.sasl_plaintext.plain.sasl.jaas.config="
            'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="a" user_joe="j";\n'
            "authorizer.class.name=kafka.security.authorizer.AclAuthorizer\nsuper.users=User:ANONYMOUS\n"
            "password.encoder.secret=of-this-test\n"
        )
        processes.start_zookeeper()
        processes.start_broker(0, ZOOKEEPER)
        running = Authorized(processes.admin_client(), port, plain)
        for future in running.admin.create_topics([NewTopic(name, 1, 1) for name in TOPICS]).values():
            future.result(150)
        for operation in (AclOperation.DESCRIBE, AclOperation.ALTER_CONFIGS):  # which implies DescribeConfigs
            running.allow(ResourceType.BROKER, "kafka-cluster", operation)
        running.allow(ResourceType.TOPIC, "*", AclOperation.DESCRIBE)
        running.allow(ResourceType.TOPIC, "open", AclOperation.DESCRIBE_CONFIGS)
        yield running


def test_preflight_names_the_topics_that_the_verification_cannot_compare(authorized: Authorized, tmp_path) -> None:
    client = BrokerClient(f"127.0.0.1:{authorized.port}", USER)
    wait_for("the ACLs", lambda: set(client.visibility().topics) == set(TOPICS))
    seen = client.visibility()
    assert seen.topics_without_configs == {"closed"}

    fine = survey()
    assert isinstance(fine.zookeeper, ZooKeeperAcls)
    acls = replace(fine.zookeeper, topics=frozenset(TOPICS))
    case = open_gate(Phase.PREFLIGHT).observing(survey=survey(visibility=seen, zookeeper=acls))
    wanted = case.spec.verification.model_copy(update={"compare_served": CompareServed.IF_ALLOWED})
    case = case.asking(verification=wanted)
    (finding,) = (f for f in case.decide().status.findings if f.code.startswith("Topic"))
    assert (finding.code, "closed" in finding.reason, "open" in finding.reason) == ("TopicConfigsHidden", True, False)

    properties = tmp_path / "client.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in USER.items()))
    access = BrokerAccess(id=0, host="127.0.0.1", port=authorized.port)
    with (
        pytest.raises(NotAllowedError, match="configs of topic closed: it needs DescribeConfigs"),
        served_broker(access, str(properties), 20.0) as asked,
    ):
        list(asked.topics())

    authorized.allow(ResourceType.TOPIC, "*", AclOperation.DESCRIBE_CONFIGS)
    wait_for("the new ACL", lambda: not client.visibility().topics_without_configs)
    client.close()
    with served_broker(access, str(properties), 20.0) as asked:
        assert {entity.key for entity in asked.topics() if entity.kind == "topic"} == set(TOPICS)
        list(asked.own_configs())


def test_scram_users_are_served_to_whom_may_describe_the_cluster(authorized: Authorized, tmp_path) -> None:
    upsert = UserScramCredentialUpsertion(
        "ünï/cödé", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4321), b"of-this-test"
    )
    for future in authorized.admin.alter_user_scram_credentials([upsert]).values():
        future.result(150)
    access = BrokerAccess(id=0, host="127.0.0.1", port=authorized.port)
    ann = tmp_path / "ann.properties"
    ann.write_text("".join(f"{name}={value}\n" for name, value in USER.items()))

    def served() -> list[Entity]:
        with served_broker(access, str(ann), 20.0) as asked:
            return list(asked.scram_credentials())

    wait_for("the user", served)
    value = canonical_json({"iterations": 4321})
    assert served() == [Entity(EntityKind.SCRAM_CREDENTIAL, "ünï/cödé/SCRAM-SHA-512", value, -1)]
    joe = tmp_path / "joe.properties"
    joe.write_text(ann.read_text().replace('"ann"', '"joe"').replace('"a"', '"j"'))
    with (
        pytest.raises(NotAllowedError, match="see SCRAM credentials: it needs Describe on the cluster"),
        served_broker(access, str(joe), 20.0) as asked,
    ):
        list(asked.scram_credentials())


def test_acls_are_served_to_whom_may_describe_the_cluster(authorized: Authorized, tmp_path) -> None:
    access = BrokerAccess(id=0, host="127.0.0.1", port=authorized.port)
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    ann = tmp_path / "ann.properties"
    ann.write_text("".join(f"{name}={value}\n" for name, value in USER.items()))
    with served_broker(access, str(ann), 20.0) as asked:
        served = asked.acls()
    assert served is not None
    bindings = authorized.admin.describe_acls(everything).result(60)
    names = {json.loads(entity.key)[2] for entity in served}
    assert (len(served), names) == (len(bindings), {binding.name for binding in bindings})
    joe = tmp_path / "joe.properties"
    joe.write_text(ann.read_text().replace('"ann"', '"joe"').replace('"a"', '"j"'))
    with (
        pytest.raises(NotAllowedError, match=r"broker 0 at .* does not let the client's principal see"),
        served_broker(access, str(joe), 20.0) as asked,
    ):
        asked.acls()


def test_a_value_that_the_broker_hides_is_named_without_a_value(authorized: Authorized) -> None:
    # DescribeConfigs returns no value of a sensitive configuration, nor of one whose type the broker does not know (ConfigHelper).
    settings = {
        "listener.name.plaintext.ssl.keystore.password": "guess me",
        "a.plugins.own": "7",
        "log.retention.ms": "5",
    }
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
    ]
    broker = ConfigResource(ConfigResource.Type.BROKER, "0", incremental_configs=entries)
    for future in authorized.admin.incremental_alter_configs([broker]).values():
        future.result(150)
    access = BrokerAccess(id=0, host="127.0.0.1", port=authorized.plain)

    def served() -> dict[str, str]:
        with served_broker(access, None, 20.0) as asked:
            return {entity.key: entity.value for entity in asked.own_configs()}

    wait_for("the broker's configuration", lambda: "0" in served())
    assert served()["0"] == canonical_json({"a.plugins.own": None, "log.retention.ms": "5"})


def login_of(user: str, password: str) -> dict[str, str]:
    """Return client properties with which a user logs in."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return USER | {"sasl.jaas.config": f'{module} required username="{user}" password="{password}";'}


@pytest.mark.parametrize("user", ["ann", "joe"], ids=["may describe the cluster", "has no right at all"])
def test_the_controllers_principal_needs_the_rights_of_a_broker(authorized: Authorized, user: str) -> None:
    client, login = BrokerClient(f"127.0.0.1:{authorized.port}", USER), login_of(user, user[0])
    address = f"127.0.0.1:{authorized.port}"
    before = set(authorized.admin.list_topics(timeout=60).topics)
    try:
        refused = client.refusal(address, "127.0.0.1", login)
        assert refused is not None
        assert "no ClusterAction" in refused
        authorized.allow(ResourceType.BROKER, "kafka-cluster", AclOperation.CLUSTER_ACTION, f"User:{user}")
        wait_for("the ACL", lambda: client.refusal(address, "127.0.0.1", login) is None)
        assert client.refusal(f"127.0.0.1:{authorized.plain}", "127.0.0.1", {}) is None, "ANONYMOUS is a super user"
        assert set(authorized.admin.list_topics(timeout=60).topics) == before, "the question makes no topic"
    finally:
        client.close()
