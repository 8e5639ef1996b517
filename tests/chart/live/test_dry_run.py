"""Preflight tries its changes against the admission of a real API server, and changes nothing."""

from __future__ import annotations

from typing import Any

from kraftbridge.config import Settings
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.models.status import MigrationStatus
from kraftbridge.phases.draft import Identity, Migration
from kraftbridge.services.facts import Facts
from kraftbridge.services.observe.survey import Surveyor
from kraftbridge.storage.kubernetes import KubernetesStore

from .conftest import NAMESPACE, Cluster, eventually

WORDS = "no broker of this team runs KRaft before the freeze ends"
POLICY = "chart-test-freeze"
ADMISSION = "admissionregistration.k8s.io/v1"


def policy() -> list[dict[str, Any]]:
    """Return a policy that allows migration mode and refuses KRaft mode."""
    rule = {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["statefulsets"]}
    kraft = (
        "object.spec.template.spec.containers.exists(c, has(c.env) && c.env.exists(e, e.name == 'KAFKA_PROCESS_ROLES'))"
    )
    namespace = {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}
    return [
        {
            "apiVersion": ADMISSION,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": POLICY},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"namespaceSelector": namespace, "resourceRules": [rule]},
                "validations": [{"expression": f"!{kraft}", "message": WORDS}],
            },
        },
        {
            "apiVersion": ADMISSION,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": POLICY},
            "spec": {"policyName": POLICY, "validationActions": ["Deny"]},
        },
    ]


BROKERS: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "StatefulSet",
    "metadata": {"name": "tried", "namespace": NAMESPACE},
    "spec": {
        "replicas": 0,
        "serviceName": "tried",
        "selector": {"matchLabels": {"app": "tried"}},
        "template": {
            "metadata": {"labels": {"app": "tried"}},
            "spec": {"containers": [{"name": "kafka", "image": "none:1", "env": [{"name": "KAFKA_A", "value": "1"}]}]},
        },
    },
}


def test_a_policy_that_refuses_kraft_mode_is_quoted_and_nothing_changes(cluster: Cluster) -> None:
    spec = MigrationSpec.model_validate(
        {
            "target": "KRaft",
            "zookeeper": {"connect": "zookeeper:2181"},
            "brokers": {"configStyle": "Env", "statefulSets": [{"name": "tried"}], "bootstrapServers": "kafka:9092"},
        }
    )
    kubernetes = KubernetesStore.connect(cluster.environment.get("KUBECONFIG"), cluster.context)
    settings = Settings(operator_image="operator:test")
    identity = Identity(NAMESPACE, "dry-run", "00000000-1111-2222-3333-444444444444", 1)

    def refused() -> dict[str, str]:
        surveyor = Surveyor(kubernetes, settings, Facts(kubernetes, settings))  # one that remembers no answer
        return {c.object: c.words for c in surveyor._refused(Migration(identity, spec, MigrationStatus()))}

    cluster.apply(BROKERS)
    try:
        before = cluster.get("statefulset", "tried")["metadata"]["resourceVersion"]
        assert refused() == {}
        cluster.apply(*policy())
        eventually(lambda: bool(refused()), "the policy takes effect", 60)
        found = refused()
        assert found.keys() == {"StatefulSet/tried"}
        assert WORDS in found["StatefulSet/tried"]
        assert POLICY in found["StatefulSet/tried"]
        assert cluster.get("statefulset", "tried")["metadata"]["resourceVersion"] == before
        made = cluster.do("get", "statefulset,service,configmap,secret", "--output", "name").split()
        assert not [name for name in made if "dry-run" in name or "kraft" in name]
    finally:
        for each in policy():
            cluster.run("delete", each["kind"], POLICY, "--ignore-not-found")
        cluster.run("delete", "statefulset", "tried", "--ignore-not-found")
        kubernetes.close()
