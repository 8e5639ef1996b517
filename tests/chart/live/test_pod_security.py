"""Every pod of a migration meets the restricted Pod Security Standard, by the API server's own admission.

A workload's template is judged by the same evaluator as a pod; ``warn`` tells what ``enforce`` would refuse.
"""

from __future__ import annotations

from collections.abc import Iterator
from string import Template
from typing import Any

import pytest
import yaml
from tests.chart.conftest import ROOT
from tests.support.every_pod import KINDS, every_pod, spec_with

from .conftest import NAMESPACE, Cluster

EXAMPLE = ROOT / "e2e/kafka"
SPARKS = ("Spark driver", "Spark executor")


def documents() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted(EXAMPLE.glob("*.yaml")):
        text = Template(path.read_text()).safe_substitute(PREFIX="", BOOTSTRAP="kafka:9092")
        for document in filter(None, yaml.safe_load_all(text)):
            yield path.name, document


def pod_specs() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, pod in every_pod(spec_with()).items():
        spec = {k: v for k, v in pod["spec"].items() if k != "schedulingGates"}
        if name in SPARKS:  # the Spark operator sets the image
            spec["containers"] = [{"image": "verifier:1", **c} for c in spec["containers"]]
        yield name, spec
    for name, document in documents():
        where = f"{name}-{document['kind']}"
        match document["kind"]:
            case "Pod":
                yield where, document["spec"]
            case "StatefulSet" | "Job":
                yield where, document["spec"]["template"]["spec"]


SPECS = dict(pod_specs())


@pytest.fixture
def warnings(cluster: Cluster) -> Iterator[Any]:
    """Return a function from a pod's spec to what the admission says."""
    cluster.do("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/warn=restricted", "--overwrite")

    def judge(spec: dict[str, Any]) -> str:
        # Volumes of claims are made by the StatefulSet.
        mounted = {m["name"] for c in spec["containers"] for m in c.get("volumeMounts", [])}
        missing = mounted - {volume["name"] for volume in spec.get("volumes", [])}
        volumes = [*spec.get("volumes", []), *({"name": n, "emptyDir": {}} for n in sorted(missing))]
        labels = {"app": "judged"}
        workload = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "judged"},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        **{k: v for k, v in spec.items() if k != "activeDeadlineSeconds"},
                        "volumes": volumes,
                        "restartPolicy": "Always",
                    },
                },
            },
        }
        answer = cluster.run("create", "--dry-run=server", "--filename", "-", stdin=yaml.safe_dump(workload))
        assert answer.returncode == 0, answer.stderr
        return answer.stderr

    yield judge
    cluster.do("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/warn-")


def test_the_pods_of_every_kind_are_looked_at() -> None:
    examples = ("kafka-env.yaml-StatefulSet", "zookeeper.yaml-StatefulSet", "clients.yaml-Pod")
    assert {*KINDS, *examples} <= set(SPECS)


@pytest.mark.parametrize("name", SPECS)
def test_a_pod_meets_the_restricted_standard(warnings: Any, name: str) -> None:
    assert "Warning" not in warnings(SPECS[name])


@pytest.mark.parametrize("name", ["controller, Migration", "kafka-env.yaml-StatefulSet"])
def test_a_pod_that_may_be_root_is_told_of(warnings: Any, name: str) -> None:
    spec = {**SPECS[name], "securityContext": {}}
    assert 'violate PodSecurity "restricted' in warnings(spec)
