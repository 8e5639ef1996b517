"""What the controllers' objects are computed from, read from the brokers' StatefulSets."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from tests.support.fakes import Clock, FakeKubernetes, user_stateful_set
from tests.support.observations import spec, spec_document

from kraftbridge.builders.broker_overlays import SHORT_ADDRESS_CACHE, overlay, properties_object
from kraftbridge.builders.controllers import controllers_objects
from kraftbridge.builders.pods import completed
from kraftbridge.config import Settings
from kraftbridge.models.phase import BrokerMode, ControllerMode
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.models.status import MigrationStatus
from kraftbridge.phases.draft import Identity, Migration
from kraftbridge.services import original_secrets, original_state
from kraftbridge.services.facts import Facts
from kraftbridge.services.original_state import OriginalState

BY_EXPRESSION = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["kafka"]}]}
BY_LABEL = {"matchLabels": {"app": "kafka"}}


@pytest.mark.parametrize("selector", [BY_LABEL, BY_EXPRESSION, BY_LABEL | BY_EXPRESSION])
def test_the_controllers_policy_admits_exactly_the_pods_that_the_brokers_statefulset_selects(
    selector: dict[str, Any],
) -> None:
    kubernetes = FakeKubernetes(Clock())
    stateful_set = user_stateful_set()
    stateful_set["spec"]["selector"] = selector
    kubernetes.create(stateful_set)
    facts = Facts(kubernetes, Settings(operator_image="operator:test"))
    of_quorum = facts.controllers(Migration(Identity("kafka", "demo", "uid-1", 1), spec(), MigrationStatus()))
    (policy,) = (
        o["spec"]
        for o in controllers_objects(spec(), of_quorum, ControllerMode.MIGRATION, format_allowed=True)
        if o["kind"] == "NetworkPolicy"
    )
    listener, *_ = policy["ingress"]
    assert listener["from"][0] == {"podSelector": selector}
    assert all(peer.get("podSelector") for rule in policy["ingress"] for peer in rule["from"])


def test_each_statefulset_has_the_file_that_its_own_volume_mounts() -> None:
    """One resource, one volume name, a ConfigMap in one zone and a Secret in the other: no file reaches the brokers of the other zone."""
    kubernetes = FakeKubernetes(Clock())
    text = base64.b64encode(b"broker.rack=b\nzookeeper.connect=zk:2181").decode()
    kubernetes.create(_object("ConfigMap", "a", {"kafka.properties": "broker.rack=a\n", "start.sh": "exec kafka"}))
    kubernetes.create(_object("Secret", "b", {"kafka.properties": text, "key.jks": "/u3+7Q=="}))
    for name, volume in (("kafka-a", {"configMap": {"name": "a"}}), ("kafka-b", {"secret": {"secretName": "b"}})):
        stateful_set = user_stateful_set()
        stateful_set["metadata"] |= {"name": name, "uid": f"uid-{name}"}
        stateful_set["spec"]["template"]["spec"]["volumes"] = [{"name": "config", **volume}]
        kubernetes.create(stateful_set)
    document = spec_document()
    document["brokers"] |= {
        "statefulSets": [{"name": "kafka-a"}, {"name": "kafka-b"}],
        "configStyle": "Properties",
        "properties": {"volume": "config", "key": "kafka.properties"},
    }
    asked, identity = MigrationSpec.model_validate(document), Identity("kafka", "demo", "uid-1", 1)
    facts = Facts(kubernetes, Settings(operator_image="operator:test"))
    built = {}
    for name in ("kafka-a", "kafka-b"):
        stateful_set = kubernetes.get("apps/v1", "StatefulSet", "kafka", name) or {}
        original = facts.original(Migration(identity, asked, MigrationStatus()), stateful_set)
        assert original is not None
        original_secrets.record(kubernetes, identity, MigrationStatus(), name, original)
        # The volume now mounts the operator's copy; what was recorded counts.
        stateful_set["spec"]["template"]["spec"]["volumes"] = [{"name": "config", "configMap": {"name": "ours"}}]
        again = Facts(kubernetes, Settings(operator_image="operator:test")).original(
            Migration(identity, asked, MigrationStatus()), stateful_set
        )
        assert again is not None
        of_set = facts.brokers(Migration(identity, asked, MigrationStatus()), again)
        assert of_set.settings["broker.rack"] == name[-1]
        built[name] = properties_object(asked, of_set, "demo", BrokerMode.MIGRATION) or {}
        (patch,) = (p for _, p in original_state.restoring_patches(asked, again, of_set))
        assert patch["spec"]["template"]["spec"]["volumes"] == list(original.volumes)
    assert [(b["kind"], b["metadata"]["name"]) for b in built.values()] == [
        ("ConfigMap", "a-kraftbridge-migration"),
        ("Secret", "b-kraftbridge-migration"),
    ]
    assert built["kafka-a"]["data"]["start.sh"] == "exec kafka"
    assert built["kafka-b"]["data"]["key.jks"] == "/u3+7Q=="


REFERRING = {
    "env": [
        {"name": "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP", "valueFrom": {"configMapKeyRef": {"name": "map", "key": "m"}}},
        {"name": "KAFKA_AUTHORIZER_CLASS_NAME", "valueFrom": {"secretKeyRef": {"name": "passwords", "key": "class"}}},
        {"name": "KAFKA_BROKER_ID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ],
    "envFrom": [{"configMapRef": {"name": "common"}}, {"secretRef": {"name": "passwords"}}],
    "args": ["--override", "delete.topic.enable=false"],
}


def referring(kubernetes: FakeKubernetes) -> OriginalState:
    """Return the recorded state of brokers whose settings come from everywhere but plain values."""
    encoded = base64.b64encode(b"kafka.security.authorizer.AclAuthorizer").decode()
    options = base64.b64encode(b"-Dpassword=secret").decode()
    kubernetes.create(_object("ConfigMap", "map", {"m": "INTERNAL:SSL"}))
    kubernetes.create(
        _object("ConfigMap", "common", {"KAFKA_NUM_PARTITIONS": "7", "KAFKA_DELETE_TOPIC_ENABLE": "true"})
    )
    kubernetes.create(_object("Secret", "passwords", {"JAVA_TOOL_OPTIONS": options, "class": encoded}))
    stateful_set = user_stateful_set()
    (container,) = (c for c in stateful_set["spec"]["template"]["spec"]["containers"] if c["name"] == "kafka")
    container |= REFERRING
    kubernetes.create(stateful_set)
    identity = Identity("kafka", "demo", "uid-1", 1)
    seen = Facts(kubernetes, Settings(operator_image="operator:test")).original(
        Migration(identity, spec(), MigrationStatus()), stateful_set
    )
    assert seen is not None
    original_secrets.record(kubernetes, identity, MigrationStatus(), "kafka", seen)
    again = Facts(kubernetes, Settings(operator_image="operator:test")).recorded(identity, MigrationStatus(), "kafka")
    assert again == seen
    return seen


def test_settings_are_read_wherever_the_template_gets_them_from() -> None:
    settings, unknown = original_state.settings_of(spec(), referring(FakeKubernetes(Clock())))
    assert settings["listener.security.protocol.map"] == "INTERNAL:SSL"
    assert settings["authorizer.class.name"] == "kafka.security.authorizer.AclAuthorizer"
    assert settings["num.partitions"] == "7"
    assert settings["delete.topic.enable"] == "false", "--override wins over variables"
    assert unknown == {"broker.id"}


def test_a_reference_that_the_migration_would_replace_is_told_with_its_line_and_without_secrets() -> None:
    kubernetes = FakeKubernetes(Clock())
    original = referring(kubernetes)
    facts = Facts(kubernetes, Settings(operator_image="operator:test"))
    of_set = facts.brokers(Migration(Identity("kafka", "demo", "uid-1", 1), spec(), MigrationStatus()), original)
    assert original_state.fixed_variables(spec(), original, of_set) == {
        "KAFKA_AUTHORIZER_CLASS_NAME": "value: (the value in the Secret)",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": 'value: "INTERNAL:SSL"',
    }


def test_java_options_from_envfrom_are_appended_to_and_not_written_into_the_template() -> None:
    kubernetes = FakeKubernetes(Clock())
    original = referring(kubernetes)
    facts = Facts(kubernetes, Settings(operator_image="operator:test"))
    of_set = facts.brokers(Migration(Identity("kafka", "demo", "uid-1", 1), spec(), MigrationStatus()), original)
    (container,) = overlay(spec(), of_set, "kafka", BrokerMode.KRAFT)["spec"]["template"]["spec"]["containers"]
    options = next(e["value"] for e in container["env"] if e["name"] == "JAVA_TOOL_OPTIONS")
    assert options == f"$(JAVA_TOOL_OPTIONS) {SHORT_ADDRESS_CACHE}"
    assert "secret" not in str(container)


def _object(kind: str, name: str, data: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "kafka"}, "data": data}


@pytest.mark.parametrize("annotations", [None, {"openshift.io/sa.scc.uid-range": "1000660000/10000"}])
def test_the_platform_assigns_users_where_the_namespace_says_so(annotations: dict[str, str] | None) -> None:
    kubernetes, identity = FakeKubernetes(Clock()), Identity("kafka", "demo", "uid-1", 1)
    metadata = {"name": "kafka", **({"annotations": annotations} if annotations else {})}
    kubernetes.objects["Namespace", None, "kafka"] = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    facts = Facts(kubernetes, Settings(operator_image="operator:test", image_pull_secrets="one, two"))
    found = facts.unread_controllers(Migration(identity, spec(), MigrationStatus())).pod_defaults
    assert found.assigned_users is (annotations is not None)
    assert found.image_pull_secrets == ("one", "two")
    asked = [call for call in kubernetes.calls if call[1] == "Namespace"]
    facts.pod_defaults("kafka", spec())
    assert [call for call in kubernetes.calls if call[1] == "Namespace"] == asked, "it is remembered"


@pytest.mark.parametrize("named", ["", "mirror"])
def test_pull_secrets_of_the_service_account_stay_where_a_pod_names_others(named: str) -> None:
    """The admission plugin adds those of the account only to a pod that names none."""
    kubernetes = FakeKubernetes(Clock())
    for name, secret in (("default", "of-default"), ("quiet", "of-quiet"), ("verifier", "of-verifier")):
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "kafka"}}
        kubernetes.create(account | {"imagePullSecrets": [{"name": secret}]})
    facts = Facts(kubernetes, Settings(operator_image="operator:test", image_pull_secrets=named))
    document = spec_document()
    for pods, account, expected in (
        ({}, None, "of-default"),
        ({"serviceAccountName": "quiet"}, None, "of-quiet"),
        ({}, "verifier", "of-verifier"),
    ):
        asked = MigrationSpec.model_validate(document | {"pods": pods})
        settings = completed(asked.pods, facts.pod_defaults("kafka", asked, account))
        assert [s.name for s in settings.image_pull_secrets] == ([named, expected] if named else [])
