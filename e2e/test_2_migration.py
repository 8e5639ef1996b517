"""One real migration, as `make demo` performs it, and what remains after the resource and the chart are deleted."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from e2e.harness.foreign import ForeignCluster
from e2e.harness.kube import REPOSITORY, CommandFailedError, Kube
from e2e.harness.matrix import IN_MAKE_TEST
from e2e.harness.migration import Migration, View
from e2e.harness.operator_install import OperatorInstall
from e2e.harness.secrets import secrets_of, spellings, what_leaves

ARTIFACTS = REPOSITORY / ".artifacts/demo"
NAMESPACE = "kafka-e2e"


ASSIGNED_USER = 1_000_660_000
"""As OpenShift assigns it, with group 0: the images know neither name nor home of this user."""
PODS = {
    "labels": {"team": "shop"},
    "annotations": {"example.com/backup": "no"},
    "priorityClassName": "system-cluster-critical",
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "securityContext": {
        "runAsUser": ASSIGNED_USER,
        "runAsGroup": 0,
        "fsGroup": ASSIGNED_USER,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    },
}

WITHIN_S = 900
"""Three times what it takes: a migration that hangs says why while there is time for the tests after it."""


def _demo(*options: str) -> int:
    return subprocess.run(
        [sys.executable, "-m", "e2e.demo", "--namespace", NAMESPACE, *options], cwd=REPOSITORY, check=False
    ).returncode


@pytest.fixture(scope="module")
def demo_exit_code(kube: Kube) -> Iterator[int]:
    del kube  # before the demo: it removes what an earlier run left
    strikes = [part for fault, column in sorted(IN_MAKE_TEST) for part in ("--strike", f"{fault}@{column}")]
    try:
        yield _demo("--pods", json.dumps(PODS), "--within", str(WITHIN_S), "--keep", *strikes)
    finally:
        _demo("--clean")


@pytest.mark.timeout(1500)
def test_demo(demo_exit_code: int) -> None:
    """The demo ends with Completed, an unused ZooKeeper, consistent verdicts and no lost record, although pods were killed."""
    assert demo_exit_code == 0
    summary = json.loads((ARTIFACTS / "summary.json").read_text())
    status = json.loads((ARTIFACTS / "kafkamigration-final.json").read_text())["status"]
    assert status["phase"] == "Completed"
    passed = {v["gate"] for v in status["verifications"] if v.get("verdict") == "Consistent"}
    assert passed >= {"TakingOver", "DualWrite", "RollingBrokers", "AwaitingFinalization", "Completed"}
    channel = status["channel"]  # the resource names none
    assert (channel["configStyle"], channel["envPrefix"]) == ("Env", "KAFKA_")
    assert channel["provenAt"]
    assert summary["broken_promises"] == []
    assert summary["clients"]["lost"] == 0


def test_a_copy_was_migrated_before_anything_was_touched(demo_exit_code: int) -> None:
    """The rehearsal judged before the controllers were made, left no Job behind, and its forecast is beside what was measured."""
    assert demo_exit_code == 0
    status = json.loads((ARTIFACTS / "kafkamigration-final.json").read_text())["status"]
    rehearsal = status["rehearsal"]
    assert (rehearsal["verdict"], rehearsal["differing"]) == ("Works", 0)
    entered = {visit["phase"]: visit["enteredAt"] for visit in status["history"]}
    assert entered["Preflight"] <= rehearsal["launchedAt"] < rehearsal["finishedAt"] <= entered["ProvisioningQuorum"]
    summary = json.loads((ARTIFACTS / "summary.json").read_text())
    assert summary["takeover"]["forecast_s"] > 0
    assert summary["takeover"]["measured_s"] is not None


def test_the_pods_were_made_as_the_namespace_asks_for(demo_exit_code: int) -> None:
    """Controllers, rehearsal, verifications and probe ran as a user that the images do not know, to the end."""
    assert demo_exit_code == 0
    resource = json.loads((ARTIFACTS / "kafkamigration-final.json").read_text())
    assert resource["spec"]["pods"] == PODS
    rendered = resource["status"]["controllers"]["rendered"]["pods"]
    assert {name: rendered[name] for name in PODS} == PODS


CONTROLLER_PORTS = {"controller": 9093, "metrics": 9404, "log-server": 9443}


def test_only_brokers_and_controllers_reach_the_controllers_listener(kube: Kube, demo_exit_code: int) -> None:
    """The NetworkPolicy that comes with the quorum, enforced: by address, since a name that does not resolve proves nothing."""
    assert demo_exit_code == 0
    if not kube.embedded:
        pytest.skip("whether the cluster of KUBE_CONTEXT enforces NetworkPolicies is not known")
    addresses = {
        p["metadata"]["name"]: p["status"]["podIP"]
        for p in kube.list("pods", NAMESPACE, "kraftbridge.dev/role=controller")
    }
    assert len(addresses) == 3
    for address in addresses.values():
        assert _reaches(kube, "kafka-0", address, CONTROLLER_PORTS["controller"]), "a broker is shut out"
        assert not _reaches(kube, "kafka-0", address, CONTROLLER_PORTS["log-server"]), "a broker reads the metadata log"
        for port in CONTROLLER_PORTS.values():
            assert not _reaches(kube, "clients", address, port), f"a pod that is no broker reaches {address}:{port}"
    for name, address in addresses.items():
        assert all(_reaches(kube, name, other, CONTROLLER_PORTS["controller"]) for other in addresses.values()), address
    broker = kube.get("pod", "kafka-0", NAMESPACE)
    assert broker is not None
    assert _reaches(kube, "clients", broker["status"]["podIP"], 9092), "the pod that is shut out reaches others"


def test_the_restricted_pod_security_standard_is_enforced(kube: Kube, demo_exit_code: int) -> None:
    """In the namespaces of brokers, controllers and verifier, and of the operator: the API server refuses what violates it."""
    assert demo_exit_code == 0
    for namespace in (NAMESPACE, "kraftbridge"):
        found = kube.get("namespace", namespace)
        assert found is not None
        assert found["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "x"},
            "spec": {"containers": [{"name": "x", "image": "x"}]},
        }
        with pytest.raises(CommandFailedError, match='violates PodSecurity "restricted'):
            kube.kubectl("create", "-n", namespace, "--dry-run=server", "-f", "-", stdin=json.dumps(pod))


@pytest.mark.long
def test_no_secret_of_the_namespace_is_in_what_leaves_it(kube: Kube, demo_exit_code: int) -> None:
    """Status, events, ConfigMaps with their reports, logs of every pod and the demo's artifacts, after a whole migration."""
    assert demo_exit_code == 0
    values = secrets_of(kube, NAMESPACE)
    assert {where.partition("/")[0] for where in values.values()} >= {"kafka-password-encoder"}, set(values.values())
    texts = what_leaves(kube, NAMESPACE, OperatorInstall(kube, NAMESPACE).namespace, ARTIFACTS)
    assert {"events", "migrations"} < texts.keys()
    assert any(name.startswith("log of kraftbridge-") and text for name, text in texts.items()), sorted(texts)
    left = [
        (where, name)
        for value, where in values.items()
        for name, text in texts.items()
        if any(spelling in text for spelling in spellings(value))
    ]
    assert left == []


def _reaches(kube: Kube, pod: str, address: str, port: int) -> bool:
    """Return whether a TCP connection from a pod is accepted within three seconds."""
    attempt = f"if timeout 3 bash -c 'exec 3<>/dev/tcp/{address}/{port}' 2>/dev/null; then echo yes; else echo no; fi"
    said = kube.kubectl("exec", "-n", NAMESPACE, pod, "--", "bash", "-c", attempt).split()[-1:]
    assert said in (["yes"], ["no"]), said
    return said == ["yes"]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_metadata_version_goes_down_as_far_as_kafka_allows_and_up_again(kube: Kube, demo_exit_code: int) -> None:
    """Each step verified before and after; what would lose something is refused in Kafka's words and changes nothing."""
    assert demo_exit_code == 0
    migration = Migration(kube, NAMESPACE)
    first = migration.view()
    assert first is not None
    assert first.status["metadataVersion"]["current"] == "3.9-IV0"
    assert {node["role"] for node in first.status["metadataVersion"]["nodes"]} == {"broker", "controller"}
    migration.patch({"spec": {"metadataVersion": "3.6"}})
    refused = _when(migration, lambda v: v.condition("MetadataVersionReady")["reason"] == "Refused")
    assert "might delete metadata information" in refused.message
    assert refused.condition("Stalled")["status"] == "True"
    seconds = {}
    for name in ("3.7-IV2", "3.9-IV0"):
        began = time.monotonic()
        migration.patch({"spec": {"metadataVersion": name}})
        view = _when(migration, lambda v, name=name: _in_force(v, name))
        seconds[name] = round(time.monotonic() - began, 1)
        change = view.status["metadataVersion"]["change"]
        runs = {v["purpose"]: v.get("verdict") for v in view.verifications}
        assert runs[f"metadata-version-{change['number']}-before"] == "Consistent"
        assert runs[f"metadata-version-{change['number']}-after"] == "Consistent"
        assert {node["finalized"] for node in view.status["metadataVersion"]["nodes"]} == {name}
        assert name in kube.kubectl("get", "kmig", "demo", "-n", NAMESPACE, "-o", "wide")
        print(f"metadata.version {name}: {seconds[name]} s; {change['counts']}")
    migration.patch({"spec": {"metadataVersion": None}})
    assert ForeignCluster(kube, NAMESPACE).prove_serving()


def _in_force(view: View, name: str) -> bool:
    ready, version = view.condition("MetadataVersionReady"), view.status["metadataVersion"]
    return ready["status"] == "True" and version["current"] == version["target"] == name


def _when(migration: Migration, enough: Callable[[View], bool]) -> View:
    return next(view for view in migration.follow(300) if enough(view))


@pytest.mark.timeout(600)
def test_controllers_that_are_handed_over_clean_have_nothing_of_ours(kube: Kube, demo_exit_code: int) -> None:
    """Each controller restarts once, one at a time; afterwards no pod of the namespace has the operator's image."""
    assert demo_exit_code == 0
    before = _controllers(kube)
    migration = Migration(kube, NAMESPACE)
    migration.patch({"spec": {"handOver": "Clean"}})
    view = _when(migration, lambda v: v.condition("HandedOver")["reason"] == "Cleaned")
    assert view.condition("Ready")["status"] == "True"
    assert view.condition("Stalled")["status"] == "False"
    assert _controllers(kube).isdisjoint(before)
    for pod in kube.list("pods", NAMESPACE, "kraftbridge.dev/role=controller"):
        containers = [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
        assert [container["name"] for container in containers] == ["kafka"]
        assert "kraftbridge-operator" not in json.dumps(pod["spec"])
    assert ForeignCluster(kube, NAMESPACE).prove_serving()


def test_the_quorum_outlives_resource_and_chart(kube: Kube, demo_exit_code: int) -> None:
    assert demo_exit_code == 0
    before = _controllers(kube)
    assert len(before) == 3
    OperatorInstall(kube, NAMESPACE).uninstall(as_a_user=True)
    # Nobody is there any more to remove a finalizer.
    kube.kubectl("delete", "kafkamigrations.kraftbridge.dev", "demo", "-n", NAMESPACE, "--timeout=60s")
    assert kube.get("crd", "kafkamigrations.kraftbridge.dev") is not None
    owned = [
        o
        for kind in ("statefulset", "service", "configmap", "secret")
        for o in kube.list(kind, NAMESPACE)
        if _is_quorums(o)
    ]
    assert {o["kind"] for o in owned} == {"StatefulSet", "Service", "ConfigMap", "Secret"}
    assert not any(o["metadata"].get("ownerReferences") for o in owned)
    assert ForeignCluster(kube, NAMESPACE).prove_serving()
    assert _controllers(kube) == before


def _is_quorums(obj: dict[str, Any]) -> bool:
    return str(obj["metadata"]["name"]).startswith("demo-kraft-")


def _controllers(kube: Kube) -> set[str]:
    return {p["metadata"]["uid"] for p in kube.list("pods", NAMESPACE, "kraftbridge.dev/role=controller")}
