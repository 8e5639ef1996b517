"""What the verifier's account may do on a real API server: each thing that it must not do is tried."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import yaml
from tests.chart.conftest import CHART
from tests.support.observations import spec_document

from kraftbridge.builders import names, verification
from kraftbridge.constants import RBAC_API_VERSION
from kraftbridge.models.phase import Phase
from kraftbridge.models.report import Profile
from kraftbridge.models.spec import MigrationSpec, Runner

from .conftest import NAMESPACE, OPERATOR, Cluster, eventually

VERIFIER = f"system:serviceaccount:{NAMESPACE}:kraftbridge-verifier"
FACTS = verification.RunFacts(
    namespace=NAMESPACE,
    migration="demo",
    migration_uid="0f0e0d0c-0000-4000-8000-000000000000",
    generation=1,
    run_id="demo-0f0e0d0c-1",
    profile=Profile.ZOOKEEPER,
    gate=Phase.TAKING_OVER,
    controllers="demo-kraft-0f0e0d0c",
    cluster_domain="cluster.local",
    image="verifier",
    service_account="kraftbridge-verifier",
)
OWN = "demo-0f0e0d0c-1-verification"
OTHER = "demo-0f0e0d0c-2-verification"
"""ConfigMap of another run."""
EXECUTORS_RUN = replace(FACTS, run_id="demo-0f0e0d0c-3", service_account="driver-of-executors")
DRIVER = f"system:serviceaccount:{NAMESPACE}:driver-of-executors"


def pod(name: str) -> dict[str, Any]:
    container = {"name": "main", "image": "localhost/none:1"}
    spec = {"containers": [container], "nodeSelector": {"kraftbridge.dev/none": "x"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


def _named(kind: str, name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, **fields}


def _spec(executors: int) -> MigrationSpec:
    return MigrationSpec.model_validate(spec_document() | {"verification": {"executors": executors}})


def _as_operator(cluster: Cluster, manifest: dict[str, Any]) -> dict[str, Any]:
    """Create an object in the name of the operator's account."""
    create = ("create", "--filename", "-", "--output", "json", "--as", OPERATOR)
    return dict(json.loads(cluster.do(*create, stdin=json.dumps(manifest))))


@pytest.fixture(scope="module")
def objects(cluster: Cluster, helm_binary: str) -> Iterator[None]:
    """Brokers' objects, the chart's rights, and the rights of one run, made in the name of the operator's account."""
    rendered = subprocess.run(
        [helm_binary, "template", NAMESPACE, str(CHART), "--namespace", NAMESPACE, "--kube-version", cluster.version,
         "--set", "image.registry=registry.example.com/kb",
         "--set", f"watchNamespaces={{{NAMESPACE}}}", "--show-only", "templates/rbac.yaml"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    chart = [m for m in yaml.safe_load_all(rendered) if m and not m["kind"].startswith("Cluster")]
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Mi"}},
        "storageClassName": "none",
    }
    theirs = [
        pod("kafka-0"),
        _named("Service", "kafka", spec={"ports": [{"port": 9092}]}),
        _named("PersistentVolumeClaim", "data-kafka-0", spec=claim),
        _named("ConfigMap", "kafka-config", data={"server.properties": "a=b"}),
        _named("ConfigMap", OWN, data={"request": "{}"}),
        _named("ConfigMap", OTHER, data={"request": "{}"}),
        _named("Secret", "credentials", stringData={"password": "x"}),
    ]
    cluster.apply(*chart, *theirs)
    eventually(
        lambda: cluster.run("auth", "can-i", "create", "roles", "--as", OPERATOR).returncode == 0,
        "the operator's rights",
    )
    alone, with_executors = (_spec(executors) for executors in (0, 2))
    for spec, facts in ((alone, FACTS), (with_executors, EXECUTORS_RUN)):
        owner = verification.rights_owner(facts)
        owner["metadata"].pop("ownerReferences")  # the migration does not exist here
        uid = _as_operator(cluster, owner)["metadata"]["uid"]
        for manifest in verification.access(spec, facts, Runner.SPARK_APPLICATION, uid):
            _as_operator(cluster, manifest)
    yield
    cluster.run(
        "delete", "--ignore-not-found", "--wait=false", "--filename", "-", stdin=yaml.safe_dump_all([*chart, *theirs])
    )


FORBIDDEN = [
    ("delete", "pod", "kafka-0"),
    ("delete", "pods", "--all"),
    ("delete", "service", "kafka"),
    ("delete", "persistentvolumeclaim", "data-kafka-0"),
    ("patch", "configmap", "kafka-config", "--type=merge", "--patch", '{"data":{"server.properties":"x"}}'),
    ("delete", "configmap", "kafka-config"),
    ("delete", "configmap", OWN),
    ("get", "configmap", "kafka-config"),
    ("get", "configmaps"),
    ("get", "secret", "credentials"),
    ("get", "secrets"),
    ("patch", "pod", "kafka-0", "--type=merge", "--patch", '{"metadata":{"labels":{"app":"x"}}}'),
    ("create", "role", "more", "--verb=get", "--resource=secrets"),
    ("get", "configmap", OTHER),
    ("patch", "configmap", OTHER, "--type=merge", "--patch", '{"data":{"verdict":"{}"}}'),
    ("exec", "kafka-0", "--", "true"),
    ("attach", "kafka-0"),
    ("delete", "statefulset", "kafka"),
    ("delete", "kafkamigration", "demo"),
    ("create", "token", "kraftbridge-verifier"),
]


@pytest.mark.parametrize("account", [VERIFIER, DRIVER], ids=["alone", "with executors"])
@pytest.mark.parametrize("arguments", FORBIDDEN, ids=" ".join)
@pytest.mark.usefixtures("objects")
def test_what_the_verifier_must_not_do_is_forbidden(cluster: Cluster, arguments: tuple[str, ...], account: str) -> None:
    answer = cluster.run("--as", account, *arguments)  # what follows "--" is a command of exec
    assert answer.returncode != 0, f"was accepted: {answer.stdout}"
    assert "forbidden" in answer.stderr.lower()


@pytest.mark.usefixtures("objects")
def test_what_a_run_needs_is_allowed(cluster: Cluster) -> None:
    patch = ("patch", "configmap", OWN, "--type=merge", "--patch", '{"data":{"verdict":"{}"}}', "--as", VERIFIER)
    eventually(lambda: cluster.run(*patch).returncode == 0, "the run's own rights")
    assert cluster.get("configmap", OWN)["data"]["verdict"] == "{}"
    cluster.do("get", "configmap", OWN, "--as", VERIFIER)


@pytest.mark.usefixtures("objects")
def test_only_a_driver_with_executors_may_create_and_watch_pods(cluster: Cluster) -> None:
    create = ("create", "--filename", "-")
    for arguments in (create, ("get", "pods")):
        answer = cluster.run(*arguments, "--as", VERIFIER, stdin=json.dumps(pod("executor-1")))
        assert answer.returncode != 0, f"was accepted: {answer.stdout}"
        assert "forbidden" in answer.stderr.lower()
    eventually(lambda: cluster.run("get", "pods", "--as", DRIVER).returncode == 0, "the run's own rights")
    cluster.do(*create, "--as", DRIVER, stdin=json.dumps(pod("executor-1")))
    cluster.do("delete", "pod", "executor-1", "--wait=false")


@pytest.mark.usefixtures("objects")
def test_the_operator_cannot_grant_what_it_does_not_have(cluster: Cluster) -> None:
    rule = {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create"]}
    role = {
        "apiVersion": RBAC_API_VERSION,
        "kind": "Role",
        "metadata": {"name": "more", "namespace": NAMESPACE},
        "rules": [rule],
    }
    answer = cluster.run("create", "--filename", "-", "--as", OPERATOR, stdin=json.dumps(role))
    assert answer.returncode != 0, "was accepted"
    assert "attempting to grant RBAC permissions not currently held" in answer.stderr


@pytest.mark.usefixtures("objects")
def test_the_rights_of_a_run_end_with_their_owner(cluster: Cluster) -> None:
    last = replace(FACTS, run_id="demo-0f0e0d0c-4", service_account="account-of-a-run-that-ends")
    account = f"system:serviceaccount:{NAMESPACE}:{last.service_account}"
    owner = verification.rights_owner(last)
    owner["metadata"].pop("ownerReferences")
    uid = _as_operator(cluster, owner)["metadata"]["uid"]
    for manifest in verification.access(_spec(0), last, Runner.SPARK_APPLICATION, uid):
        _as_operator(cluster, manifest)
        refused = cluster.refused("delete", manifest["kind"], manifest["metadata"]["name"], "--as", OPERATOR)
        assert "forbidden" in refused.lower()
    report = f"configmap/{names.verification_config_map(last.run_id)}"
    asked = ("auth", "can-i", "patch", report, "--as", account)
    eventually(lambda: cluster.run(*asked).returncode == 0, "the run's own rights")
    cluster.do("delete", "configmap", owner["metadata"]["name"], "--as", OPERATOR)
    eventually(lambda: cluster.run(*asked).returncode != 0, "the rights are gone")
