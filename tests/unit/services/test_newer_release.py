"""A resource that a newer release wrote: nothing halts, nothing of it is lost, and it is said."""

from __future__ import annotations

import copy

import pytest
from tests.unit.services.conftest import Operator

from kraftbridge.exceptions import MigrationError
from kraftbridge.models.conditions import ConditionType, condition
from kraftbridge.models.decision import EventReason
from kraftbridge.models.phase import Phase


def named(operator: Operator) -> list[str]:
    return [event.message for event in operator.kubernetes.events if event.reason is EventReason.NOT_UNDERSTOOD]


def test_a_default_of_a_newer_crd_does_not_halt_a_migration(operator: Operator) -> None:
    operator.edit(target="DualWrite", strategy={"newField": 5})
    operator.walk(Phase.DUAL_WRITE)
    status = operator.rest(4)
    assert "spec.strategy.newField" in status.message
    ready = condition(status.conditions, ConditionType.READY)
    assert ready is not None
    assert "spec.strategy.newField" in ready.message
    assert len(named(operator)) == 1
    assert "Upgrade the operator" in named(operator)[0]


def test_the_status_of_a_newer_release_is_kept_through_a_migration(operator: Operator) -> None:
    operator.walk(Phase.PROVISIONING_QUORUM)
    stored = operator.migration()["status"]
    stored["newPart"] = {"since": "2026"}
    stored["conditions"].append({**stored["conditions"][0], "type": "Newer", "reason": "New"})
    operator.walk(Phase.COMPLETED)
    operator.rest()
    stored = operator.migration()["status"]
    assert stored["newPart"] == {"since": "2026"}
    assert [item["reason"] for item in stored["conditions"] if item["type"] == "Newer"] == ["New"]
    operator.kubernetes.calls.clear()
    operator.rest()
    assert [c for c in operator.kubernetes.calls if c[0] == "replace_status"] == []


def test_a_phase_of_a_newer_release_stops_and_stays(operator: Operator) -> None:
    operator.walk(Phase.DUAL_WRITE)
    stored = operator.migration()["status"]
    stored["phase"] = "Reviewing"
    before = copy.deepcopy(stored)
    operator.kubernetes.calls.clear()
    for _ in range(3):
        with pytest.raises(MigrationError, match=r"does not understand status\.phase"):
            operator.step(20)
    assert operator.acts() == []
    stored = operator.migration()["status"]
    changed = {"conditions", "message", "observedGeneration"}
    assert {k: v for k, v in stored.items() if k not in changed} == {
        k: v for k, v in before.items() if k not in changed
    }
    stalled = next(item for item in stored["conditions"] if item["type"] == "Stalled")
    assert (stalled["status"], stalled["reason"]) == ("True", "NotUnderstood")
