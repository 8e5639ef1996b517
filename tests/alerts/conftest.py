"""Prometheus and promtool, as `make alerts` builds them, and the chart's rules."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from tests.chart.conftest import CHART, cluster_environment

NAMESPACE = "kb-system"
RELEASE = "kb"


@pytest.fixture(scope="session")
def program() -> Callable[[str], str]:
    path = cluster_environment()["PATH"]

    def find(name: str) -> str:
        found = shutil.which(name, path=path)
        if found is None:
            pytest.fail(f"there is no {name}; run: make alerts", pytrace=False)
        return found

    return find


@pytest.fixture(scope="session")
def rules(program: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of the chart's alerts, as the Prometheus operator writes it."""
    rendered = subprocess.run(
        [program("helm"), "template", RELEASE, str(CHART), "--namespace", NAMESPACE, "--kube-version", "1.37.0",
         "--set", "metrics.prometheusRule.enabled=true", "--show-only", "templates/prometheusrule.yaml"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    path = tmp_path_factory.mktemp("rules") / "rules.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(rendered)["spec"]))
    return path


@pytest.fixture(scope="session")
def dashboard() -> list[str]:
    """Return the expressions of the dashboard, for all namespaces and names."""
    content = json.loads((CHART / "files/dashboards/migrations.json").read_text())
    expressions = [target["expr"] for panel in content["panels"] for target in panel["targets"]]
    return [e.replace("$namespace", ".*").replace("$name", ".*").replace("$__rate_interval", "1m") for e in expressions]
