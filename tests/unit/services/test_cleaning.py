"""``spec.handOver: Clean`` on real objects: what is in them before, during and after the last roll of the controllers."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from tests.unit.services.conftest import SETTINGS, Operator

from kraftbridge.models.conditions import ConditionType, condition
from kraftbridge.models.phase import Phase
from kraftbridge.services.observe import observer


def clean(operator: Operator, steps: int = 60) -> None:
    """Ask for controllers without the operator's image, and wait until the guard has ended."""
    operator.edit(handOver="Clean")
    for _ in range(steps):
        operator.step()
        hand_over = operator.status().hand_over
        if hand_over is not None and hand_over.cleaned_at is not None:
            return
    raise AssertionError(operator.status().message)


def pods_of(operator: Operator) -> list[dict[str, Any]]:
    return list(operator.kubernetes.pods("kafka", "kraftbridge.dev/role=controller"))


def test_no_object_and_no_pod_of_the_controllers_has_our_image_and_the_manifest_shows_it(operator: Operator) -> None:
    operator.walk(Phase.COMPLETED)
    operator.rest()
    before = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods_of(operator)}
    evicted = len([call for call in operator.kubernetes.calls if call[0] == "evict"])
    clean(operator)
    assert len([call for call in operator.kubernetes.calls if call[0] == "evict"]) == evicted + len(before), "each once"
    pods = pods_of(operator)
    assert len(pods) == len(before)
    for pod in pods:
        assert pod["metadata"]["uid"] != before[pod["metadata"]["name"]]
        assert SETTINGS.operator_image not in json.dumps(pod["spec"])
    name = operator.controllers()
    status = operator.rest()
    files = operator.kubernetes.objects["ConfigMap", "kafka", status.final_manifest]["data"]
    text = files["controllers.yaml"]
    for ours in (SETTINGS.operator_image, "javaagent", "log-server", "9404"):
        assert ours not in text
    objects = list(yaml.safe_load_all(text))
    mounted = operator.configuration()[2]
    assert mounted.startswith(f"{name}-clean-")
    config_maps = {o["metadata"]["name"]: o for o in objects if o["kind"] == "ConfigMap"}
    assert config_maps.keys() == {f"{name}-format", mounted}
    assert config_maps[mounted]["immutable"] is True
    present = {key[2] for key in operator.kubernetes.objects if key[0] == "ConfigMap" and key[2].startswith(name)}
    assert present == config_maps.keys(), "no configuration is left that nothing mounts"
    (stateful_set,) = [o for o in objects if o["kind"] == "StatefulSet"]
    assert stateful_set["spec"]["template"]["spec"].get("initContainers", []) == []


def test_afterwards_nothing_is_written_and_nothing_is_asked_of_an_agent(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator.walk(Phase.COMPLETED)
    operator.rest()
    clean(operator)
    operator.rest(3)
    asked: list[int] = []
    monkeypatch.setattr(observer, "read_controller_metrics", lambda node_id, *_args, **_options: asked.append(node_id))
    writes = len(operator.acts())
    status = operator.rest()
    assert len(operator.acts()) == writes
    assert asked == []
    for kind, value in ((ConditionType.READY, "True"), (ConditionType.STALLED, "False")):
        found = condition(status.conditions, kind)
        assert found is not None
        assert found.status == value, found.message
    found = condition(status.conditions, ConditionType.HANDED_OVER)
    assert found is not None
    assert (found.status, found.reason) == ("True", "Cleaned")
    assert "DescribeQuorum names controller" in status.message
