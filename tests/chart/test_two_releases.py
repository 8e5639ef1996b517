"""Two releases in one cluster, each with namespaces of its own."""

from __future__ import annotations

import subprocess

import pytest
import yaml
from tests.chart.conftest import CHART, KUBERNETES_VERSION


def objects(helm: str, release: str, namespace: str, watched: str) -> set[tuple[str, str, str]]:
    rendered = subprocess.run(
        [helm, "template", release, str(CHART), "--namespace", namespace, "--kube-version", KUBERNETES_VERSION, "--set", "image.registry=registry.example.com/kb",
         "--set", f"watchNamespaces={{{watched}}}", "--set", "metrics.dashboards.enabled=true"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    found = (m for m in yaml.safe_load_all(rendered) if m)
    return {(m["kind"], m["metadata"].get("namespace", ""), m["metadata"]["name"]) for m in found}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("kraftbridge", "team-a"), ("kraftbridge", "team-b")),
        (("kraftbridge", "kraftbridge"), ("kraftbridge", "team-b")),
        (("b-c", "a"), ("c", "a-b")),
        (("kb-one", "tools"), ("kb-two", "tools")),
    ],
)
def test_two_releases_share_nothing_but_the_crd(helm_binary: str, one: tuple[str, str], other: tuple[str, str]) -> None:
    shared = objects(helm_binary, *one, "kafka-a") & objects(helm_binary, *other, "kafka-b")
    assert {kind for kind, *_ in shared} == {"CustomResourceDefinition"}
