"""Namespaces of strangers admit every pod of a migration: restricted Pod Security, a ResourceQuota, and a LimitRange or none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.every_pod import COPY, KINDS, every_pod, spec_with

from kraftbridge.builders.pods import PodDefaults
from kraftbridge.models.spec import MigrationSpec, Runner
from kraftbridge.services.observe.survey import run_demand

from .conftest import Cluster, eventually

NAMESPACE = "chart-test-strict"
COUNTED = ("requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
MANY = {"pods": "100", "requests.cpu": "100", "requests.memory": "400Gi", "limits.cpu": "100", "limits.memory": "400Gi"}
SETTINGS: dict[str, Any] = {
    "labels": {"team": "shop"},
    "annotations": {"example.com/backup": "no"},
    "imagePullSecrets": [{"name": "registry"}],
    "serviceAccountName": "quiet",
    "nodeSelector": {"pool": "data"},
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}],
}
SMALL = {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": "200m", "memory": "128Mi"}}
STATED = spec_with(
    pods={**SETTINGS, "helperResources": SMALL},
    controllers={"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}},
    verification={"coreLimit": "1", "serviceAccount": "quiet"},
    rehearsal={"resources": {"limits": {"cpu": "1", "memory": "2Gi"}}},
)
USUAL = spec_with(pods=SETTINGS, verification={"serviceAccount": "quiet"})


def pod(spec: MigrationSpec, kind: str, *, assigned_users: bool = False) -> dict[str, Any]:
    """Return a pod as the API server gets it from us, or from the controller that makes it."""
    made = every_pod(spec, PodDefaults(assigned_users=assigned_users), NAMESPACE)[kind]
    body = dict(made["spec"])
    if kind.startswith("Spark "):
        (container,) = body["containers"]
        body["containers"] = [{**container, "image": "verifier:1", "resources": spark_resources(spec, kind)}]
    if kind.startswith("controller"):  # the StatefulSet adds the volume of the claim
        body["volumes"] = [*body["volumes"], {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    metadata = {
        "name": "judged",
        "namespace": NAMESPACE,
        "labels": made["metadata"]["labels"],
        "annotations": made["metadata"].get("annotations", {}),
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body}


def spark_resources(spec: MigrationSpec, kind: str) -> dict[str, dict[str, str]]:
    """Return what Spark sets in a driver's or an executor's container."""
    verification = spec.verification.model_copy(update={"executors": 1})
    pods = run_demand(spec.model_copy(update={"verification": verification}), Runner.SPARK_APPLICATION)
    demand = pods[0] if kind == "Spark driver" else pods[1]
    limits = {"memory": str(demand.memory_limit)} | ({"cpu": f"{demand.cpu_limit}m"} if demand.cpu_limit else {})
    return {"requests": {"cpu": f"{demand.cpu_request}m", "memory": str(demand.memory_request)}, "limits": limits}


def apply(cluster: Cluster, manifest: dict[str, Any]) -> None:
    cluster.do("apply", "--namespace", NAMESPACE, "--server-side", "--filename", "-", stdin=json.dumps(manifest))


def refusal(cluster: Cluster, body: dict[str, Any]) -> str:
    """Return the words with which the API server refuses a pod, ``""`` if it accepts it."""
    answer = cluster.run(
        "create", "--namespace", NAMESPACE, "--dry-run=server", "--filename", "-", stdin=json.dumps(body)
    )
    return answer.stderr if answer.returncode else ""


@pytest.fixture(scope="module", params=["quota alone", "quota and limits"])
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """Return the kind of namespace, which exists."""
    cluster.run("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait")
    metadata = {"name": NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}
    apply(cluster, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    for account in ("default", "quiet", "kraftbridge-verifier"):
        cluster.run(
            "create", "--namespace", NAMESPACE, "serviceaccount", account
        )  # one is there where a controller runs
    strict = {"name": "strict", "namespace": NAMESPACE}
    apply(cluster, {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": strict, "spec": {"hard": MANY}})
    # Without a controller manager, nobody else counts.
    counted = {"status": {"hard": MANY, "used": dict.fromkeys(MANY, "0")}}
    cluster.do("patch", "--namespace", NAMESPACE, "resourcequota", "strict", "--subresource=status", "--type=merge", "--patch", json.dumps(counted))  # fmt: skip
    if request.param == "quota and limits":
        most = {"type": "Container", "max": {"cpu": "4", "memory": "16Gi"}, "min": {"cpu": "10m", "memory": "16Mi"}}
        most |= {"default": {"cpu": "500m", "memory": "1Gi"}, "defaultRequest": {"cpu": "100m", "memory": "128Mi"}}
        apply(cluster, {"apiVersion": "v1", "kind": "LimitRange", "metadata": strict, "spec": {"limits": [most]}})
    plain = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "plain", "namespace": NAMESPACE},
        "spec": {"containers": [{"name": "plain", "image": "plain:1"}]},
    }
    eventually(lambda: "PodSecurity" in refusal(cluster, plain), "Pod Security refuses a plain pod")
    yield request.param
    cluster.run("delete", "namespace", NAMESPACE, "--wait=false")


@pytest.mark.parametrize("kind", KINDS)
def test_every_pod_is_admitted(cluster: Cluster, namespace: str, kind: str) -> None:
    spec = STATED if namespace == "quota alone" else USUAL
    eventually(lambda: not refusal(cluster, pod(spec, kind)), f"{kind} is admitted: {refusal(cluster, pod(spec, kind))}", seconds=5)  # fmt: skip


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != COPY])
def test_every_pod_is_admitted_without_a_user_id(cluster: Cluster, namespace: str, kind: str) -> None:
    body = pod(STATED, kind, assigned_users=True)
    assert "runAsUser" not in json.dumps(body)
    assert refusal(cluster, body) == ""


def test_the_quota_asks_every_container_for_what_it_counts(cluster: Cluster, namespace: str) -> None:
    """Init containers, too. Where a LimitRange has defaults, they complete it."""
    body = pod(STATED, "controller, Migration")
    assert len(body["spec"]["initContainers"]) == 2
    for container in body["spec"]["initContainers"]:
        container.pop("resources")
    words = refusal(cluster, body)
    if namespace == "quota alone":
        assert "failed quota: strict: must specify" in words
        assert all(resource in words for resource in COUNTED)
    else:
        assert words == ""
