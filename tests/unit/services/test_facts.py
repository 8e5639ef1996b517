"""What the controllers' objects are computed from, read from the brokers' StatefulSets."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from tests.support.fakes import Clock, FakeKubernetes, user_stateful_set
from tests.support.observations import spec, spec_document

from kraftbridge.builders.brokers import properties_object
from kraftbridge.builders.controllers import controllers_objects
from kraftbridge.config import Settings
from kraftbridge.models.phase import BrokerMode, ControllerMode
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.models.status import MigrationStatus
from kraftbridge.phases.draft import Identity
from kraftbridge.services import original_state
from kraftbridge.services.facts import Facts

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
    of_quorum = facts.controllers(Identity("kafka", "demo", "uid-1", 1), spec(), MigrationStatus())
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
        original = facts.original(identity, asked, 1, stateful_set)
        assert original is not None
        original_state.record(kubernetes, identity, 1, name, original)
        # The volume now mounts the operator's copy; what was recorded counts.
        stateful_set["spec"]["template"]["spec"]["volumes"] = [{"name": "config", "configMap": {"name": "ours"}}]
        again = Facts(kubernetes, Settings(operator_image="operator:test")).original(identity, asked, 1, stateful_set)
        assert again is not None
        of_set = facts.brokers(identity, asked, MigrationStatus(), again)
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


def _object(kind: str, name: str, data: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "kafka"}, "data": data}
