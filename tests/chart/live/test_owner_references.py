"""A rollback where only those may set an owner who may delete the object: ``OwnerReferencesPermissionEnforcement``.

OpenShift runs this admission plugin. A ValidatingAdmissionPolicy asks the same of the same API server here.
"""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.chart.conftest import CHART

from kraftbridge.exceptions import ActionError
from kraftbridge.models.decision import StopControllers
from kraftbridge.services.act.removal import belongings, stop_controllers
from kraftbridge.storage.kubernetes import KubernetesStore

from .conftest import NAMESPACE, Cluster, eventually

NAME = "owned-controllers"
LABELS = {"app": NAME}
CONFIGURATION = f"{NAME}-migration-0123456789"
OWNED = (*belongings(NAME), ("v1", "ConfigMap", CONFIGURATION))
POLICY = f"{NAMESPACE}-owner-references"
SELECTOR = {"matchLabels": LABELS}
CONTAINER = {"name": "pause", "image": "registry.example.com/pause:1"}
SPECS: dict[str, dict[str, Any]] = {
    "Service": {"spec": {"clusterIP": "None", "selector": LABELS, "ports": [{"port": 9090}]}},
    "NetworkPolicy": {"spec": {"podSelector": SELECTOR}},
    "PodDisruptionBudget": {"spec": {"selector": SELECTOR, "maxUnavailable": 1}},
    "ConfigMap": {"immutable": True, "data": {"a": "b"}},
    "Secret": {"stringData": {"a": "b"}},
}


def admission_policy() -> list[dict[str, Any]]:
    rules = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["*"]}
    same = "object.metadata.?ownerReferences.orValue([]) == oldObject.metadata.?ownerReferences.orValue([])"
    api = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": POLICY}}
    spec = {
        "matchConstraints": {
            "resourceRules": [rules],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
        },
        "matchConditions": [
            {"name": "people", "expression": "!request.userInfo.username.startsWith('system:serviceaccount:kube-system:')"}
        ],
        "validations": [
            {
                "expression": f"{same} || authorizer.requestResource.check('delete').allowed()",
                "message": "cannot set an ownerRef on a resource you can't delete",
            }
        ],
    }  # fmt: skip
    binding = {"policyName": POLICY, "validationActions": ["Deny"]}
    return [
        {**api, "kind": "ValidatingAdmissionPolicy", "spec": spec},
        {**api, "kind": "ValidatingAdmissionPolicyBinding", "spec": binding},
    ]


def rights(cluster: Cluster, helm: str, *settings: str) -> list[dict[str, Any]]:
    rendered = subprocess.run(
        [helm, "template", NAMESPACE, str(CHART), "--namespace", NAMESPACE, "--kube-version", cluster.version,
         "--set", "image.registry=registry.example.com/kb", "--set", f"watchNamespaces={{{NAMESPACE}}}", *settings,
         "--show-only", "templates/rbac.yaml", "--show-only", "templates/serviceaccount.yaml"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    return [m for m in yaml.safe_load_all(rendered) if m and not m["kind"].startswith("Cluster")]


def controllers() -> list[dict[str, Any]]:
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [CONTAINER]}}
    stateful_set = {"replicas": 0, "serviceName": NAME, "selector": SELECTOR, "template": template}
    named = {"namespace": NAMESPACE, "labels": LABELS}
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {**named, "name": NAME},
            "spec": stateful_set,
        },
        *(
            {"apiVersion": version, "kind": kind, "metadata": {**named, "name": name}, **SPECS[kind]}
            for version, kind, name in OWNED
        ),
    ]


@pytest.fixture
def enforced(cluster: Cluster) -> Iterator[None]:
    cluster.apply(*admission_policy(), *controllers())
    owner = {"apiVersion": "v1", "kind": "Namespace", "name": NAMESPACE, "uid": "1"}
    patch = json.dumps({"metadata": {"ownerReferences": [owner]}})
    probe = ("patch", "configmap", CONFIGURATION, "--type=merge", "--dry-run=server", "--patch", patch)
    nobody = ("--as", "nobody", "--as-group", "system:authenticated")
    cluster.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": "patches", "namespace": NAMESPACE},
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "patch"]}],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "patches", "namespace": NAMESPACE},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "patches"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "nobody"}],
        },
    )
    eventually(lambda: "ownerRef" in cluster.run(*probe, *nobody).stderr, "the policy is enforced")
    yield
    cluster.run(
        *("delete", "--ignore-not-found", "--filename", "-"),
        stdin=yaml.safe_dump_all([*admission_policy(), *controllers()]),
    )


def store_of_operator(cluster: Cluster, folder: Path) -> KubernetesStore:
    """Return a store with the operator's own token."""
    token = cluster.do("create", "token", NAMESPACE).strip()
    host = cluster.api.configuration
    authority = base64.b64encode(Path(host.ssl_ca_cert).read_bytes()).decode()
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "operator",
        "contexts": [{"name": "operator", "context": {"cluster": "test", "user": "operator"}}],
        "clusters": [{"name": "test", "cluster": {"server": host.host, "certificate-authority-data": authority}}],
        "users": [{"name": "operator", "user": {"token": token}}],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(kubeconfig))
    return KubernetesStore.connect(str(path))


def left(cluster: Cluster) -> list[str]:
    kinds = ",".join({"statefulset", *(kind.lower() for _, kind, _ in OWNED)})
    found = json.loads(cluster.do("get", kinds, "--selector", f"app={NAME}", "--output", "json"))
    return sorted(f"{each['kind']}/{each['metadata']['name']}" for each in found["items"])


@pytest.mark.usefixtures("enforced")
def test_a_rollback_needs_the_right_to_delete_and_says_so(cluster: Cluster, helm_binary: str, tmp_path: Path) -> None:
    action = StopControllers(NAME, (), volumes=False)
    granted = rights(cluster, helm_binary)
    try:
        cluster.apply(*granted)
        store = store_of_operator(cluster, tmp_path)
        with pytest.raises(ActionError, match=r"ownerRef.*rbac\.deleteObjects=true"):
            eventually(lambda: stop_controllers(store, NAMESPACE, action) is not None, "it is refused", 10.0)
        assert len(left(cluster)) == 1 + len(OWNED), "nothing is stopped before everything has its owner"

        cluster.apply(*(granted := rights(cluster, helm_binary, "--set", "rbac.deleteObjects=true")))
        may = ("auth", "can-i", "delete", "secrets", "--as", f"system:serviceaccount:{NAMESPACE}:{NAMESPACE}")
        eventually(lambda: cluster.run(*may).returncode == 0, "the further rights")
        stop_controllers(store, NAMESPACE, action)
        eventually(lambda: left(cluster) == [], "everything went with the StatefulSet", 60.0)
        store.close()
    finally:
        cluster.run("delete", "--ignore-not-found", "--filename", "-", stdin=yaml.safe_dump_all(granted))


def test_openshift_gets_the_rights_by_itself(cluster: Cluster, helm_binary: str) -> None:
    without = rights(cluster, helm_binary)
    with_them = rights(cluster, helm_binary, "--api-versions", "security.openshift.io/v1")
    assert with_them == rights(cluster, helm_binary, "--set", "rbac.deleteObjects=true")
    assert with_them != without
