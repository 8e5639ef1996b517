"""Everything that the chart renders is accepted by a real API server, under the restricted Pod Security Standard."""

from __future__ import annotations

import json
import subprocess

import pytest
from tests.chart.conftest import CHART

from .conftest import GROUP, NAMESPACE, Cluster


@pytest.mark.parametrize("watched", [[], [NAMESPACE]], ids=["cluster-wide", "namespaced"])
def test_every_object_is_accepted(cluster: Cluster, helm_binary: str, watched: list[str]) -> None:
    rendered = subprocess.run(
        [helm_binary, "template", NAMESPACE, str(CHART), "--namespace", NAMESPACE, "--kube-version", cluster.version,
         "--set", "image.registry=registry.example.com/kb",
         "--set-json", f"watchNamespaces={json.dumps(watched)}", "--set", "metrics.dashboards.enabled=true"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    manifests = rendered.replace("kraftbridge.dev", GROUP)
    cluster.do("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/warn=restricted", "--overwrite")
    answer = cluster.run("apply", "--server-side", "--dry-run=server", "--filename", "-", stdin=manifests)
    assert answer.returncode == 0, answer.stderr
    assert "Warning" not in answer.stderr, answer.stderr
    assert answer.stdout.count("serverside-applied (server dry run)") == rendered.count("\nkind: ")
