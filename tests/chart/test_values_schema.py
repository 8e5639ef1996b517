"""Wrong values are refused before anything is installed, with a message that names the key."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

CHART = Path(__file__).resolve().parents[2] / "helm/kraftbridge"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"watchNamespace": "a"}, "additional properties 'watchNamespace' not allowed"),
        ({"watchNamespaces": "a"}, "at '/watchNamespaces': got string, want array"),
        ({"watchNamespaces": ["A_B"]}, "at '/watchNamespaces/0': 'A_B' does not match pattern"),
        ({"watchNamespaces": ["a", "a"]}, "at '/watchNamespaces': items at 0 and 1 are equal"),
        ({"operator": {"replicas": 2}}, "at '/operator': additional properties 'replicas' not allowed"),
        (
            {"operator": {"logLevel": "loud"}},
            "at '/operator/logLevel': value must be one of 'debug', 'info', 'warning', 'error'",
        ),
        ({"operator": {"image": {"pullPolicy": "Sometimes"}}}, "at '/operator/image/pullPolicy': value must be one of"),
        (
            {"operator": {"image": {"repository": "x:1"}}},
            "at '/operator/image/repository': 'x:1' does not match pattern",
        ),
        (
            {"verifier": {"image": {"digest": "sha256:1"}}},
            "at '/verifier/image/digest': 'sha256:1' does not match pattern",
        ),
        ({"verifier": {"serviceAccount": {"name": ""}}}, "at '/verifier/serviceAccount/name'"),
        ({"crds": {"keep": "yes"}}, "at '/crds/keep': got string, want boolean"),
        ({"admissionPolicy": {"exemptUsers": ["it's me"]}}, "at '/admissionPolicy/exemptUsers/0'"),
        (
            {"metrics": {"serviceMonitor": {"interval": 15}}},
            "at '/metrics/serviceMonitor/interval': got number, want string",
        ),
        ({"fullnameOverride": "a" * 41}, "at '/fullnameOverride': maxLength: got 41, want 40"),
    ],
)
def test_wrong_values_are_refused(template: Callable[..., Any], values: dict[str, Any], message: str) -> None:
    answer = template(values)
    assert answer.returncode != 0
    assert message in answer.stderr


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"serviceAccount": {"create": False}}, "serviceAccount.name is needed when serviceAccount.create is false"),
        (
            {"metrics": {"service": {"enabled": False}, "serviceMonitor": {"enabled": True}}},
            "metrics.serviceMonitor.enabled needs metrics.service.enabled",
        ),
    ],
)
def test_values_that_contradict_each_other_are_refused(
    template: Callable[..., Any], values: dict[str, Any], message: str
) -> None:
    answer = template(values)
    assert answer.returncode != 0
    assert message in answer.stderr


def test_old_kubernetes_is_refused(helm: Callable[..., Any]) -> None:
    answer = helm("template", "kb", str(CHART), "--kube-version", "1.29.0")
    assert answer.returncode != 0
    assert "kubeVersion" in answer.stderr


def keys(value: Any, schema: dict[str, Any], path: str = "") -> set[str]:
    """Return the paths of the values that the schema describes one by one."""
    found = set()
    for name, field in schema.get("properties", {}).items():
        found.add(f"{path}.{name}")
        found |= keys(value, field, f"{path}.{name}")
    return found


def value_keys(value: Any, schema: dict[str, Any], path: str = "") -> set[str]:
    found = set()
    for name, item in value.items():
        found.add(f"{path}.{name}")
        field = schema["properties"][name]
        if isinstance(item, dict) and "properties" in field:
            found |= value_keys(item, field, f"{path}.{name}")
    return found


def test_schema_and_values_know_the_same_keys() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert keys(values, schema) - {".global"} == value_keys(values, schema)


def test_the_schema_is_closed() -> None:
    def check(node: dict[str, Any], path: str) -> None:
        if "properties" in node:
            assert node.get("additionalProperties") is False, path
        for name, field in node.get("properties", {}).items():
            check(field, f"{path}.{name}")

    check(json.loads((CHART / "values.schema.json").read_text()), "")
