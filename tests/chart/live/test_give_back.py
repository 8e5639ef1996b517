"""What remains in ``managedFields`` after a StatefulSet is given back, for five ways in which its owner may have applied it: the owner can prune each field.

Helm 4 and Flux apply on the server: what they do there is done here by kubectl under their field managers (``helm``, ``kustomize-controller``).
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from kraftbridge.constants import ACL_AUTHORIZER, ANNOTATION_LOCK, FIELD_MANAGER
from kraftbridge.models.decision import (
    Action,
    ConfigureBrokers,
    LockStatefulSet,
    ReleaseStatefulSet,
    RestoreStatefulSet,
)
from kraftbridge.models.phase import BrokerMode
from kraftbridge.storage.kubernetes import KubernetesStore

from .conftest import NAMESPACE, SOMEBODY, Cluster
from .test_admission_policies import stateful_set
from .test_way_back_templates import kubernetes, operator

__all__ = ["kubernetes"]

OWN = {
    "KAFKA_AUTHORIZER_CLASS_NAME": ACL_AUTHORIZER,
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT",
    "KAFKA_ZOOKEEPER_METADATA_MIGRATION_ENABLE": "false",
    "KAFKA_ZOOKEEPER_CONNECT": "zookeeper:2181/kafka",
    "JAVA_TOOL_OPTIONS": "-Da=b",
}
ON_THE_SERVER = {"Helm 4": "helm", "kubectl apply --server-side": "kubectl", "Flux": "kustomize-controller"}
TOOLS = ["Helm 3", "kubectl apply", *ON_THE_SERVER]


def manifest(name: str, without: str = "") -> dict[str, Any]:
    body = stateful_set(name)
    body["metadata"]["annotations"] = {"team": "streams"}
    body["spec"]["updateStrategy"] = {"type": "RollingUpdate"}
    entries = [{"name": n, "value": v} for n, v in OWN.items() if n != without]
    body["spec"]["template"]["spec"]["containers"][0]["env"] = entries
    return body


@pytest.fixture
def applied(cluster: Cluster, helm: Callable[..., Any], tmp_path: Path) -> Callable[[str, dict[str, Any]], None]:
    """Return a function that applies a manifest as one of the tools does."""

    def with_helm(body: dict[str, Any]) -> None:
        (tmp_path / "templates").mkdir(exist_ok=True)
        (tmp_path / "Chart.yaml").write_text("apiVersion: v2\nname: brokers\nversion: 1.0.0\n")
        (tmp_path / "templates/brokers.yaml").write_text(yaml.safe_dump(body))
        where = ["--namespace", NAMESPACE, "--kubeconfig", cluster.environment["KUBECONFIG"]]
        context = ["--kube-context", cluster.context] if cluster.context else []
        answer = helm("upgrade", "--install", body["metadata"]["name"], str(tmp_path), *where, *context)
        assert answer.returncode == 0, answer.stderr

    def apply(tool: str, body: dict[str, Any]) -> None:
        if tool == "Helm 3":
            with_helm(body)
            return
        how = ["--server-side", f"--field-manager={ON_THE_SERVER[tool]}"] if tool in ON_THE_SERVER else []
        cluster.do("apply", *how, "--filename", "-", stdin=yaml.safe_dump(body), user=SOMEBODY)

    return apply


def seen(cluster: Cluster, name: str) -> dict[str, Any]:
    """Return a StatefulSet with its owners, which kubectl hides."""
    return dict(json.loads(cluster.do("get", "statefulset", name, "--output", "json", "--show-managed-fields")))


def owners(stateful_set: dict[str, Any]) -> dict[tuple[str, str, str], Any]:
    """Return the fields by manager, operation and subresource."""
    return {
        (e["manager"], e["operation"], e.get("subresource", "")): e["fieldsV1"]
        for e in stateful_set["metadata"]["managedFields"]
        if not e.get("subresource")
    }


def environment(stateful_set: dict[str, Any]) -> dict[str, str]:
    (container,) = stateful_set["spec"]["template"]["spec"]["containers"]
    return {e["name"]: e.get("value", "") for e in container.get("env", [])}


@pytest.mark.parametrize(
    "through", [(BrokerMode.MIGRATION,), (BrokerMode.MIGRATION, BrokerMode.KRAFT, BrokerMode.MIGRATION)]
)
@pytest.mark.parametrize("tool", TOOLS)
def test_the_owner_of_a_statefulset_can_prune_each_field_after_a_rollback(
    cluster: Cluster,
    kubernetes: KubernetesStore,
    applied: Callable[[str, dict[str, Any]], None],
    tool: str,
    through: tuple[BrokerMode, ...],
) -> None:
    name = f"give-back-{tool.lower().replace(' ', '-').replace('--', '')}-{len(through)}"
    applied(tool, manifest(name))
    before = seen(cluster, name)
    actuator, step = operator(kubernetes, name, "KAFKA_", generate=False)

    def do(action: Action) -> None:
        outcome = actuator.carry_out(step, action)
        assert not outcome.error, outcome

    do(LockStatefulSet(name))
    for mode in through:
        do(ConfigureBrokers(name, mode))
    do(RestoreStatefulSet(name))
    do(ReleaseStatefulSet(name))
    after = seen(cluster, name)
    assert after["spec"] == before["spec"]
    assert ANNOTATION_LOCK not in after["metadata"].get("annotations", {})
    assert FIELD_MANAGER not in {manager for manager, _, _ in owners(after)}
    assert owners(after) == owners(before)
    left = copy.deepcopy(OWN)
    for field in OWN:
        left.pop(field)
        body = manifest(name)
        body["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": n, "value": v} for n, v in left.items()]
        applied(tool, body)
        assert environment(seen(cluster, name)) == left, field
    body["spec"]["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
    applied(tool, body)
    strategy = seen(cluster, name)["spec"]["updateStrategy"]
    # Kubernetes has this default from 1.35 on (feature MaxUnavailableStatefulSet).
    assert strategy["rollingUpdate"].pop("maxUnavailable", 1) == 1
    assert strategy == body["spec"]["updateStrategy"]
