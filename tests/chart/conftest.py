"""A helm binary for the chart's tests: the one on PATH, or the embedded cluster's."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm/kraftbridge"
KUBERNETES_VERSION = "1.37.0"
REGISTRY = {"image": {"registry": "registry.example.com/kb"}}
"""What a chart from the sources needs."""

Objects = dict[tuple[str, str], dict[str, Any]]


def cluster_environment() -> dict[str, str]:
    """Return the environment in which kubectl and helm are the embedded cluster's."""
    script = f'eval "$({ROOT}/e2e/cluster/cluster env)" && printf "%s\\n%s" "$KUBECONFIG" "$PATH"'
    output = subprocess.run(["bash", "-c", script], check=True, capture_output=True, text=True).stdout
    kubeconfig, path = output.split("\n")
    return {**os.environ, "KUBECONFIG": kubeconfig, "PATH": path}


@pytest.fixture(scope="session")
def helm_binary() -> str:
    found = shutil.which("helm") or shutil.which("helm", path=cluster_environment()["PATH"])
    if found is None:
        pytest.fail("there is no helm on PATH or in the cache; run: make cluster-build", pytrace=False)
    return found


@pytest.fixture(scope="session")
def helm(helm_binary: str) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs helm and never raises."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([helm_binary, *arguments], capture_output=True, text=True, check=False)

    return run


@pytest.fixture(scope="session")
def template(
    helm: Callable[..., subprocess.CompletedProcess[str]], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Any]:
    """Return a function from values to helm's answer, not yet parsed."""

    def run(values: dict[str, Any] | None = None, release: str = "kb", namespace: str = "kb-system") -> Any:
        path = tmp_path_factory.mktemp("values") / "values.yaml"
        path.write_text(yaml.safe_dump(REGISTRY | (values or {})))
        return helm(
            "template", release, str(CHART), "--namespace", namespace, "--kube-version", KUBERNETES_VERSION, "--values", str(path)
        )  # fmt: skip

    return run


@pytest.fixture(scope="session")
def render(template: Callable[..., Any]) -> Callable[..., Objects]:
    """Return a function from values to the rendered objects by kind and name (with the namespace where there is one)."""

    def run(values: dict[str, Any] | None = None, **options: str) -> Objects:
        answer = template(values, **options)
        assert answer.returncode == 0, answer.stderr
        objects: Objects = {}
        for document in yaml.safe_load_all(answer.stdout):
            if document is None:
                continue
            metadata = document["metadata"]
            name = "/".join(filter(None, [metadata.get("namespace"), metadata["name"]]))
            assert (document["kind"], name) not in objects, f"{document['kind']} {name} is rendered twice"
            objects[document["kind"], name] = document
        return objects

    return run
