"""What no account of the default installation may do: a real API server is asked about each account and each act."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
import yaml
from kubernetes.client import (
    AuthorizationV1Api,
    V1ResourceAttributes,
    V1SubjectAccessReview,
    V1SubjectAccessReviewSpec,
)
from tests.chart.conftest import CHART
from tests.support.every_pod import KINDS, VERIFIERS, every_pod, spec_with

from .conftest import NAMESPACE, OPERATOR, Cluster, eventually

VERIFIER = f"system:serviceaccount:{NAMESPACE}:kraftbridge-verifier"
HOOK = f"system:serviceaccount:{NAMESPACE}:{NAMESPACE}-let-go"
DEFAULT = f"system:serviceaccount:{NAMESPACE}:default"
"""Account of rehearsals, copies and controllers, which get no token of it."""
ACCOUNTS = {"operator": OPERATOR, "verifier": VERIFIER, "hook": HOOK, "default": DEFAULT}
UNPRIVILEGED = {"verifier": VERIFIER, "default": DEFAULT}
OTHER = "default"
"""A namespace that the installation does not watch."""
RBAC = "rbac.authorization.k8s.io"

Act = tuple[str, str, str]
"""Verb, API group and resource, with its subresource."""

NOBODY: tuple[Act, ...] = (
    ("delete", RBAC, "roles"),
    ("delete", RBAC, "rolebindings"),
    ("deletecollection", RBAC, "roles"),
    ("patch", RBAC, "roles"),
    ("patch", RBAC, "rolebindings"),
    ("escalate", RBAC, "roles"),
    ("bind", RBAC, "roles"),
    ("create", RBAC, "clusterroles"),
    ("create", RBAC, "clusterrolebindings"),
    ("bind", RBAC, "clusterroles"),
    ("escalate", RBAC, "clusterroles"),
    ("impersonate", "", "users"),
    ("impersonate", "", "groups"),
    ("impersonate", "", "serviceaccounts"),
    ("create", "", "serviceaccounts/token"),
    ("create", "", "pods/exec"),
    ("create", "", "pods/attach"),
    ("create", "", "pods/portforward"),
    ("patch", "", "pods/ephemeralcontainers"),
    ("list", "", "secrets"),
    ("watch", "", "secrets"),
    ("delete", "", "secrets"),
    ("delete", "", "persistentvolumeclaims"),
    ("patch", "", "persistentvolumeclaims"),
    ("delete", "", "services"),
    ("deletecollection", "", "pods"),
    ("deletecollection", "apps", "statefulsets"),
    ("delete", "networking.k8s.io", "networkpolicies"),
    ("delete", "policy", "poddisruptionbudgets"),
    ("delete", "kraftbridge.dev", "kafkamigrations"),
    ("update", "kraftbridge.dev", "kafkamigrations/finalizers"),
    ("patch", "", "nodes"),
    ("get", "", "nodes/proxy"),
    ("delete", "", "namespaces"),
    ("patch", "", "namespaces"),
    ("delete", "", "persistentvolumes"),
    ("patch", "apiextensions.k8s.io", "customresourcedefinitions"),
    ("delete", "admissionregistration.k8s.io", "validatingadmissionpolicies"),
    ("patch", "admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
    ("create", "admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    ("create", "certificates.k8s.io", "certificatesigningrequests"),
)
BETWEEN_RUNS: tuple[Act, ...] = (
    ("get", "", "configmaps"),
    ("patch", "", "configmaps"),
    ("get", "", "secrets"),
    ("create", "", "pods"),
    ("list", "", "pods"),
    ("get", "", "pods/log"),
    ("create", "batch", "jobs"),
    ("patch", "apps", "statefulsets"),
    ("create", "", "pods/eviction"),
    ("create", RBAC, "roles"),
    ("create", RBAC, "rolebindings"),
    ("get", "kraftbridge.dev", "kafkamigrations"),
    ("patch", "kraftbridge.dev", "kafkamigrations/status"),
    ("get", "coordination.k8s.io", "leases"),
)
ELSEWHERE: tuple[Act, ...] = (
    *BETWEEN_RUNS,
    ("create", "apps", "statefulsets"),
    ("delete", "apps", "statefulsets"),
    ("delete", "", "pods"),
    ("create", "", "secrets"),
    ("patch", "kraftbridge.dev", "kafkamigrations"),
)


@pytest.fixture(scope="module")
def installed(cluster: Cluster, helm_binary: str) -> Iterator[Cluster]:
    """Every account, role and binding of the documented installation, the hook's too."""
    rendered = subprocess.run(
        [helm_binary, "template", NAMESPACE, str(CHART), "--namespace", NAMESPACE, "--kube-version", cluster.version,
         "--set", "image.registry=registry.example.com/kb",
         "--set", f"watchNamespaces={{{NAMESPACE}}}"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    kinds = {"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
    manifests = [m for m in yaml.safe_load_all(rendered) if m and m["kind"] in kinds]
    cluster.apply(*manifests)
    try:
        eventually(lambda: _may(cluster, OPERATOR, NAMESPACE, ("create", RBAC, "roles")), "the operator's rights")
        eventually(
            lambda: _may(cluster, HOOK, NAMESPACE, ("patch", "kraftbridge.dev", "kafkamigrations")),
            "the rights of the uninstallation's hook",
        )
        yield cluster
    finally:
        remove = ("delete", "--ignore-not-found", "--wait=false", "--filename", "-")
        cluster.run(*remove, stdin=yaml.safe_dump_all(manifests))


def _may(cluster: Cluster, account: str, namespace: str, act: Act) -> bool:
    """Return whether an account may act on every object of a resource; its groups are those of a service account."""
    verb, group, whole = act
    resource, _, subresource = whole.partition("/")
    attributes = V1ResourceAttributes(
        namespace=namespace, verb=verb, group=group, resource=resource, subresource=subresource or None
    )
    own = account.split(":")[2]
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{own}", "system:authenticated"]
    spec = V1SubjectAccessReviewSpec(resource_attributes=attributes, user=account, groups=groups)
    review = AuthorizationV1Api(cluster.api).create_subject_access_review(V1SubjectAccessReview(spec=spec))
    assert not review.status.evaluation_error, review.status.evaluation_error
    return bool(review.status.allowed)


def _allowed(cluster: Cluster, account: str, namespace: str, acts: tuple[Act, ...]) -> list[Act]:
    return [act for act in acts if _may(cluster, account, namespace, act)]


@pytest.mark.parametrize("account", ACCOUNTS)
def test_no_account_may_do_this_in_its_own_namespace(installed: Cluster, account: str) -> None:
    assert _allowed(installed, ACCOUNTS[account], NAMESPACE, NOBODY) == []


@pytest.mark.parametrize("account", ACCOUNTS)
@pytest.mark.parametrize("namespace", [OTHER, "kube-system"])
def test_no_account_may_do_anything_in_a_namespace_that_is_not_watched(
    installed: Cluster, account: str, namespace: str
) -> None:
    assert _allowed(installed, ACCOUNTS[account], namespace, (*NOBODY, *ELSEWHERE)) == []


@pytest.mark.parametrize("account", UNPRIVILEGED)
def test_between_runs_these_accounts_may_do_nothing(installed: Cluster, account: str) -> None:
    assert _allowed(installed, UNPRIVILEGED[account], NAMESPACE, BETWEEN_RUNS) == []


def test_the_hook_of_an_uninstallation_reads_no_secret_and_starts_nothing(installed: Cluster) -> None:
    acts = tuple(
        a for a in BETWEEN_RUNS if a not in {("list", "", "pods"), ("get", "kraftbridge.dev", "kafkamigrations")}
    )
    assert _allowed(installed, HOOK, NAMESPACE, acts) == []


@pytest.mark.parametrize("name", [kind for kind in KINDS if kind not in VERIFIERS])
def test_a_pod_of_the_account_default_gets_no_token(name: str) -> None:
    spec = every_pod(spec_with())[name]["spec"]
    assert spec.get("serviceAccountName", "default") == "default"
    assert spec["automountServiceAccountToken"] is False, "its containers would be the account on the API server"
    assert "serviceAccountToken" not in str(spec.get("volumes", []))
