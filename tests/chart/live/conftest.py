"""A namespace of its own on a running cluster, with the chart's policies and the CRD, gone afterwards.

``KUBE_CONTEXT`` names another cluster than the embedded one. CRD and policies are rendered for a group of
their own (``chart-test.kraftbridge.dev``), so that neither an operator that serves this cluster nor its policies take part.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import yaml
from kubernetes.client import ApiClient, ApiException, CustomObjectsApi
from kubernetes.config import ConfigException, new_client_from_config
from tests.chart.conftest import CHART, cluster_environment

NAMESPACE = "chart-test"
GROUP = "chart-test.kraftbridge.dev"
PLURAL = f"kafkamigrations.{GROUP}"
OPERATOR = f"system:serviceaccount:{NAMESPACE}:{NAMESPACE}"
SOMEBODY = "somebody"
INVALID = 422


@dataclass(frozen=True)
class Cluster:
    """The API server: kubectl as people use it, and single requests where there are many."""

    kubectl_binary: str
    environment: dict[str, str]
    context: str | None
    api: ApiClient
    version: str = ""
    """The API server's, as helm's ``--kube-version`` takes it."""

    def run(
        self, *arguments: str, stdin: str | None = None, user: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl in our namespace, as somebody else if wanted (with an administrator's rights)."""
        command = [self.kubectl_binary, "--namespace", NAMESPACE, *arguments]
        if self.context:
            command += ["--context", self.context]
        if user is not None:
            command += ["--as", user, "--as-group", "system:masters", "--as-group", "system:authenticated"]
        return subprocess.run(
            command, input=stdin, capture_output=True, text=True, check=False, env=self.environment, timeout=60
        )

    def do(self, *arguments: str, stdin: str | None = None, user: str | None = None) -> str:
        """Run kubectl; it has to succeed."""
        answer = self.run(*arguments, stdin=stdin, user=user)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    def refused(self, *arguments: str, stdin: str | None = None, user: str | None = None) -> str:
        """Run kubectl; it has to be refused. Returns the message."""
        answer = self.run(*arguments, stdin=stdin, user=user)
        assert answer.returncode != 0, f"was accepted: {answer.stdout}"
        return answer.stderr

    def apply(self, *manifests: dict[str, Any]) -> None:
        self.do("apply", "--server-side", "--force-conflicts", "--filename", "-", stdin=yaml.safe_dump_all(manifests))

    def get(self, kind: str, name: str) -> dict[str, Any]:
        return dict(json.loads(self.do("get", kind, name, "--output", "json")))

    def patch(self, name: str, body: dict[str, Any], *, dry_run: bool = True) -> str:
        """Merge-patch a migration, its status if the body is one; return the words of a refusal, ``""`` if accepted."""
        api = CustomObjectsApi(self.api)
        patch = api.patch_namespaced_custom_object_status if "status" in body else api.patch_namespaced_custom_object
        options = {"dry_run": "All"} if dry_run else {}
        try:
            patch(
                GROUP, "v1alpha1", NAMESPACE, "kafkamigrations", name, body,
                _content_type="application/merge-patch+json", **options,
            )  # fmt: skip
        except ApiException as e:
            if e.status != INVALID:
                raise
            return str(json.loads(e.body)["message"])
        return ""


@pytest.fixture(scope="session")
def cluster(helm_binary: str) -> Iterator[Cluster]:
    context = os.environ.get("KUBE_CONTEXT")
    environment = dict(os.environ) if context else cluster_environment()
    kubectl = shutil.which("kubectl", path=environment["PATH"])
    if kubectl is None:
        pytest.fail("there is no kubectl; run: make cluster-up", pytrace=False)
    try:
        api = new_client_from_config(environment.get("KUBECONFIG"), context)
    except ConfigException as e:
        pytest.fail(f"{e}; run: make cluster-up", pytrace=False)
    cluster = Cluster(kubectl, environment, context, api)
    if (answer := cluster.run("version", "--output", "json")).returncode != 0:
        pytest.fail(f"no API server answers; run: make cluster-up\n{answer.stderr}", pytrace=False)
    cluster = replace(cluster, version=json.loads(answer.stdout)["serverVersion"]["gitVersion"])
    rendered = subprocess.run(
        [helm_binary, "template", NAMESPACE, str(CHART), "--namespace", NAMESPACE, "--kube-version", cluster.version,
         "--set", "image.registry=registry.example.com/kb",
         "--set", f"watchNamespaces={{{NAMESPACE}}}",
         "--show-only", "templates/admissionpolicy.yaml", "--show-only", "templates/crds.yaml"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    manifests = rendered.replace("kraftbridge.dev", GROUP)
    remove = ("delete", "--ignore-not-found", "--filename", "-")
    cluster.do("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait")
    cluster.do(*remove, stdin=manifests)
    cluster.do("create", "namespace", NAMESPACE)
    try:
        cluster.do("apply", "--server-side", "--filename", "-", stdin=manifests)
        # kubectl of 1.34 does not wait for a CRD of 1.30 that has no conditions yet: it ends at once.
        eventually(
            lambda: cluster.run("wait", "--for=condition=Established", f"crd/{PLURAL}", "--timeout=5s").returncode == 0,
            f"crd/{PLURAL} is established",
        )
        yield cluster
    finally:
        cluster.run(*remove, stdin=manifests)
        cluster.run("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=false")


def eventually(attempt: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    """Wait until something holds; admission policies take effect a moment after they were written."""
    end = time.monotonic() + seconds
    while not attempt():
        assert time.monotonic() < end, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.2)
