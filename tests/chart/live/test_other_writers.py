"""Every way in which somebody's tool takes our fields back, on a real API server: refused, and nothing is changed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import GROUP, NAMESPACE, OPERATOR, SOMEBODY, Cluster, eventually
from .test_admission_policies import LOCK, LOCK_VALUE, stateful_set

STRATEGIES: dict[str, dict[str, Any]] = {
    "no-strategy": {},
    "explicit-strategy": {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}},
}
Tool = Callable[[dict[str, Any]], Any]


@pytest.fixture
def tools(cluster: Cluster, helm_binary: str, tmp_path: Path) -> dict[str, Tool]:
    """Return by name: a function that brings a manifest to the cluster as that tool does; its answer has a returncode."""

    def kubectl(*arguments: str) -> Tool:
        return lambda manifest: cluster.run(*arguments, "--filename", "-", stdin=json.dumps(manifest), user=SOMEBODY)

    def helm(manifest: dict[str, Any]) -> Any:
        chart = tmp_path / "chart"
        (chart / "templates").mkdir(parents=True, exist_ok=True)
        (chart / "Chart.yaml").write_text("apiVersion: v2\nname: brokers\nversion: 0.1.0\n")
        (chart / "templates/brokers.yaml").write_text(yaml.safe_dump(manifest))
        command = [
            helm_binary, "upgrade", "--install", "brokers", str(chart), "--namespace", NAMESPACE,
            "--kube-as-user", SOMEBODY, "--kube-as-group", "system:masters", "--kube-as-group", "system:authenticated",
        ]  # fmt: skip
        command += ["--kube-context", cluster.context] if cluster.context else []
        return subprocess.run(command, capture_output=True, text=True, check=False, env=cluster.environment, timeout=60)

    return {
        "apply": kubectl("apply"),
        "server-side": kubectl("apply", "--server-side"),
        "server-side-force": kubectl("apply", "--server-side", "--force-conflicts"),
        "replace": kubectl("replace"),
        "replace-force": kubectl("replace", "--force", "--timeout=20s"),
        "helm": helm,
    }


@pytest.fixture
def overlaid(cluster: Cluster) -> Iterator[Callable[[str], dict[str, Any]]]:
    """Return a function that takes a StatefulSet over as the operator does, and returns its spec then."""
    taken: list[str] = []

    def take(name: str) -> dict[str, Any]:
        cluster.do("annotate", "statefulset", name, f"{LOCK}={LOCK_VALUE}", user=OPERATOR)
        taken.append(name)
        strategy = json.dumps({"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}}})
        cluster.do("patch", "statefulset", name, "--type=merge", "--patch", strategy, user=OPERATOR)
        env = [{"name": "A", "value": "2"}, {"name": "OURS", "value": "1"}]
        overlay = {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"template": {"spec": {"containers": [{"name": "kafka", "env": env}]}}},
        }
        ours = ("apply", "--server-side", "--force-conflicts", "--field-manager=kraftbridge", "--filename", "-")
        cluster.do(*ours, stdin=json.dumps(overlay), user=OPERATOR)
        attempt = ("annotate", "statefulset", name, f"{LOCK}=x", "--overwrite", "--dry-run=server")
        eventually(lambda: cluster.run(*attempt, user=SOMEBODY).returncode != 0, "the policy takes effect")
        spec: dict[str, Any] = cluster.get("statefulset", name)["spec"]
        return spec

    yield take
    for name in taken:
        cluster.do("delete", "statefulset", name, "--ignore-not-found", user=OPERATOR)
    cluster.run("delete", "secret", "--selector", "owner=helm")


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("tool", ["apply", "server-side", "server-side-force", "replace", "replace-force", "helm"])
def test_a_release_in_the_middle_changes_nothing(
    cluster: Cluster,
    tools: dict[str, Tool],
    overlaid: Callable[[str], dict[str, Any]],
    tool: str,
    strategy: str,
) -> None:
    name = f"{tool}-{strategy}"[:40]
    manifest = stateful_set(name)
    manifest["spec"] |= STRATEGIES[strategy]
    first = tools["apply" if tool.startswith("replace") else tool](manifest)
    assert first.returncode == 0, first.stderr
    before = overlaid(name)
    assert before["updateStrategy"] == {"type": "OnDelete"}
    again = tools[tool](manifest)
    assert cluster.get("statefulset", name)["spec"] == before, "a field was taken back"
    assert again.returncode != 0, again.stdout
    if tool != "server-side":  # there the API server's own conflict comes first
        assert f"StatefulSet {NAMESPACE}/{name} is locked by KafkaMigration {NAMESPACE}/migration" in again.stderr
    else:
        assert "kraftbridge" in again.stderr


def test_a_locked_statefulset_is_not_deleted_by_others(
    cluster: Cluster, overlaid: Callable[[str], dict[str, Any]]
) -> None:
    cluster.apply(stateful_set("kept"))
    overlaid("kept")
    answer = cluster.refused("delete", "statefulset", "kept", user=SOMEBODY)
    assert "is locked by KafkaMigration" in answer
    assert "cannot be deleted now" in answer
    assert GROUP in LOCK
    cluster.do("delete", "statefulset", "kept", "--dry-run=server", user=OPERATOR)
    collector = "system:serviceaccount:kube-system:namespace-controller"
    cluster.do("delete", "statefulset", "kept", "--dry-run=server", user=collector)
