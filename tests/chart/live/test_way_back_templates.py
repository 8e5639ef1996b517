"""The actuator's changes of a pod template, forward and back, on a real API server.

Server-side apply leaves a value blank that an overlay forced on somebody else's entry and that the next overlay does not set. For the authorizer,
blank means that everybody may do everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
import yaml

from kraftbridge.config import Settings
from kraftbridge.constants import ACL_AUTHORIZER, KIND, STANDARD_AUTHORIZER
from kraftbridge.exceptions import ConflictError
from kraftbridge.models.decision import Action, ConfigureBrokers, RestoreStatefulSet
from kraftbridge.models.phase import BrokerMode
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.models.status import MigrationStatus
from kraftbridge.phases.basis import Basis, intent
from kraftbridge.phases.draft import Identity, Migration
from kraftbridge.services import original_secrets, original_state
from kraftbridge.services.act.actuator import Actuator, Step
from kraftbridge.services.act.checked import CheckedKubernetes
from kraftbridge.services.facts import Facts
from kraftbridge.storage.kubernetes import KubernetesStore

from .conftest import NAMESPACE, SOMEBODY, Cluster
from .test_admission_policies import stateful_set

AUTHORIZER = "AUTHORIZER_CLASS_NAME"
FLAG = "ZOOKEEPER_METADATA_MIGRATION_ENABLE"
ZOOKEEPER = "ZOOKEEPER_CONNECT"
WRITER = "KAFKA_ZOOKEEPER_BOOTSTRAP_SCRAM_USERS"
OWN = {
    AUTHORIZER: ACL_AUTHORIZER,
    FLAG: "false",
    "LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT",
    ZOOKEEPER: "zookeeper:2181/kafka",
}


class WithMigration(KubernetesStore):
    """Answers with a migration of any name, which no operator that serves this cluster sees."""

    def get(self, api_version: str, kind: str, namespace: str | None, name: str) -> dict[str, Any] | None:
        if kind == KIND:
            return {"metadata": {"uid": f"uid-of-{name}", "generation": 1}}
        return super().get(api_version, kind, namespace, name)


@pytest.fixture
def kubernetes(cluster: Cluster) -> Iterator[KubernetesStore]:
    """Return the operator's own client, with an administrator's rights."""
    store = WithMigration.connect(cluster.environment.get("KUBECONFIG"), cluster.context)
    yield store
    store.close()


@pytest.mark.parametrize("generate", [True, False])
@pytest.mark.parametrize("prefix", ["KAFKA_", "KAFKA_CFG_"])
def test_no_value_is_blank_on_the_way_back(
    cluster: Cluster, kubernetes: KubernetesStore, prefix: str, *, generate: bool
) -> None:
    name = f"way-back-{prefix.lower().strip('_').replace('_', '-')}{'-issued' if generate else ''}"
    body = stateful_set(name)
    body["spec"]["template"]["spec"]["containers"][0]["env"] = [
        {"name": f"{prefix}BROKER_ID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        *({"name": prefix + setting, "value": value} for setting, value in OWN.items()),
        {"name": WRITER, "value": "true"},
    ]
    cluster.do("create", "--filename", "-", stdin=yaml.safe_dump(body), user=SOMEBODY)
    before = template(cluster, name)
    actuator, step = operator(kubernetes, name, prefix, generate=generate)

    def after(action: Action) -> dict[str, str]:
        outcome = actuator.carry_out(step, action)
        assert not outcome.error, outcome
        return environment(template(cluster, name))

    record(kubernetes, step, name)
    there = after(ConfigureBrokers(name, BrokerMode.MIGRATION))
    kraft = after(ConfigureBrokers(name, BrokerMode.KRAFT))
    back = after(ConfigureBrokers(name, BrokerMode.MIGRATION))
    assert there[prefix + FLAG] == "true"
    assert kraft[prefix + AUTHORIZER] == STANDARD_AUTHORIZER
    assert kraft[prefix + FLAG] == "false", "Kafka refuses a boolean that is blank"
    assert kraft[prefix + ZOOKEEPER] == ("" if prefix == "KAFKA_CFG_" else OWN[ZOOKEEPER])
    assert back == there, "the way back renders what the way there rendered"
    assert back[prefix + AUTHORIZER] == ACL_AUTHORIZER
    assert there[WRITER] == kraft[WRITER] == "false"
    mounted = template(cluster, name)["spec"]["containers"][0].get("volumeMounts", [])
    assert [m["mountPath"] for m in mounted] == (["/etc/kraftbridge-listener"] if generate else [])
    after(RestoreStatefulSet(name))
    assert environment(template(cluster, name)) == environment(before)

    assert template(cluster, name) == before


def test_an_apply_tells_what_it_created_and_keeps_to_the_version_that_was_read(kubernetes: KubernetesStore) -> None:
    """On these answers `CheckedKubernetes` rests: 201 for a new object, 409 for another version, and for an object that is gone."""

    def config_map(value: str, **metadata: str) -> dict[str, Any]:
        place = {"name": "versions", "namespace": NAMESPACE, **metadata}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": place, "data": {"key": value}}

    def version(obj: dict[str, Any]) -> dict[str, str]:
        return {name: obj["metadata"][name] for name in ("uid", "resourceVersion")}

    first = kubernetes.apply_new(config_map("one"), force=True)
    with pytest.raises(ConflictError):
        kubernetes.apply_new(config_map("one"), force=True)
    second = kubernetes.apply(config_map("two", **version(first)), force=True)
    with pytest.raises(ConflictError):
        kubernetes.apply(config_map("three", **version(first)), force=True)
    with pytest.raises(ConflictError):
        kubernetes.delete("v1", "ConfigMap", NAMESPACE, "versions", **_preconditions(first))
    kubernetes.delete("v1", "ConfigMap", NAMESPACE, "versions", **_preconditions(second))
    with pytest.raises(ConflictError):
        kubernetes.apply(config_map("four", **version(second)), force=True)
    assert kubernetes.get("v1", "ConfigMap", NAMESPACE, "versions") is None


def _preconditions(obj: dict[str, Any]) -> dict[str, str]:
    return {"uid": obj["metadata"]["uid"], "resource_version": obj["metadata"]["resourceVersion"]}


def record(kubernetes: KubernetesStore, step: Step, name: str) -> None:
    """Record the original state, without the lock: an operator that serves this cluster would guard the StatefulSet."""
    stateful_set = kubernetes.get("apps/v1", "StatefulSet", NAMESPACE, name)
    assert stateful_set is not None
    values = original_state.environment_values(kubernetes, NAMESPACE, step.spec, stateful_set)
    original = original_state.capture(step.spec, stateful_set, None, values)
    assert original is not None
    original_secrets.record(kubernetes, step.identity, step.status, name, original)


def operator(kubernetes: KubernetesStore, name: str, prefix: str, *, generate: bool) -> tuple[Actuator, Step]:
    """Return the actuator, and a migration of this StatefulSet; its other clients are not used here."""
    settings = Settings(operator_image="none")
    nobody = cast("Any", None)
    actuator = Actuator(Facts(kubernetes, settings), settings, nobody, nobody)
    brokers = {
        "statefulSets": [{"name": name}],
        "bootstrapServers": "kafka:9092",
        "configStyle": "Env",
        "envPrefix": prefix,
        "container": "kafka",
    }
    listener = {"securityProtocol": "SSL", "generate": generate, **({} if generate else {"secretName": "listener"})}
    document = {"target": "KRaft", "zookeeper": {"connect": OWN[ZOOKEEPER]}, "brokers": brokers}
    spec = MigrationSpec.model_validate(document | {"controllers": {"listener": listener}})
    identity, status = Identity(NAMESPACE, name, f"uid-of-{name}", 1), MigrationStatus()
    decided = Basis(identity.uid, identity.generation, intent(status))
    checked = CheckedKubernetes(kubernetes, nobody, identity, decided)
    return actuator, Step(Migration(identity, spec, status), nobody, nobody, checked)


def template(cluster: Cluster, name: str) -> dict[str, Any]:
    return dict(cluster.get("statefulset", name)["spec"]["template"])


def environment(pod_template: dict[str, Any]) -> dict[str, str]:
    """Return the variables with plain values; a blank one has none on the API server."""
    (container,) = pod_template["spec"]["containers"]
    return {e["name"]: e.get("value", "") for e in container["env"] if "valueFrom" not in e}
