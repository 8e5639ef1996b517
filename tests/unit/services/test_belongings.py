"""What somebody deletes of ours comes back, through the whole loop; claims do not."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.unit.services.conftest import Operator

from kraftbridge.builders import names
from kraftbridge.builders.controllers import WORD_KEY
from kraftbridge.exceptions import ObservationError
from kraftbridge.models.catalogue import Code
from kraftbridge.models.observation import ControllerMetrics
from kraftbridge.models.phase import Phase
from kraftbridge.models.status import MigrationStatus
from kraftbridge.services.observe import observer

PHASES = (Phase.TAKING_OVER, Phase.DUAL_WRITE, Phase.ROLLING_BROKERS, Phase.AWAITING_FINALIZATION)


@pytest.fixture(autouse=True)
def _looks_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observer, "BELONGINGS_EVERY_SECONDS", 0.0)


def ours(operator: Operator) -> list[tuple[str, str, str]]:
    known = operator.status().controllers
    assert known is not None
    mounted = operator.configuration()[2]
    objects = [(kind, "kafka", name) for _, kind, name in names.controllers_objects(known.name, mounted)]
    return [("StatefulSet", "kafka", known.name), *objects]


@pytest.mark.parametrize("phase", PHASES)
def test_every_object_of_ours_comes_back(operator: Operator, phase: Phase) -> None:
    operator.edit(target="KRaftBrokers")
    operator.walk(phase)
    for key in ours(operator):
        before = copy.deepcopy(operator.kubernetes.objects[key])
        operator.kubernetes.delete("", key[0], "kafka", key[2])
        assert key not in operator.kubernetes.objects
        for _ in range(3):
            operator.step()
        after = operator.kubernetes.objects[key]
        assert after["metadata"]["uid"] != before["metadata"]["uid"], key
        if key[0] != "Secret":
            assert after.get("spec") == before.get("spec"), key
            assert after.get("data") == before.get("data"), key
            assert (after.get("data") or {}).get(WORD_KEY, "refused") == "refused"
            assert after.get("immutable") == before.get("immutable"), key
    operator.edit(target="KRaft")
    operator.walk(Phase.COMPLETED)


def test_the_certificate_of_the_log_servers_and_the_readers_copy_stay_a_pair(operator: Operator) -> None:
    operator.walk(Phase.DUAL_WRITE)
    name = operator.controllers()
    operator.kubernetes.delete("v1", "Secret", "kafka", names.log_access_secret(name))
    for _ in range(3):
        operator.step()
    server, reader = (
        operator.kubernetes.objects["Secret", "kafka", n]
        for n in (names.log_access_secret(name), names.log_reader_secret(name))
    )
    assert {k: server["data"][k] for k in ("ca.crt", "token")} == reader["data"]


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("exchanged", [False, True])
def test_over_a_claim_that_is_not_the_recorded_one_nothing_is_created(
    operator: Operator, phase: Phase, exchanged: bool
) -> None:
    operator.walk(phase)
    kubernetes, name = operator.kubernetes, operator.controllers()
    claim = names.controller_claim(name, 3001)
    kubernetes.delete("apps/v1", "StatefulSet", "kafka", name)
    kept = kubernetes.objects.pop(("PersistentVolumeClaim", "kafka", claim))
    if exchanged:
        kubernetes.create(
            copy.deepcopy(kept) | {"metadata": {"name": claim, "namespace": "kafka"}, "kind": "PersistentVolumeClaim"}
        )
    status = operator.rest(20)
    assert ("StatefulSet", "kafka", name) not in kubernetes.objects
    assert "controller 3001" in status.message
    assert status.findings[0].code == Code.CONTROLLER_CLAIMS_LOST
    assert status.phase is phase
    if phase is Phase.TAKING_OVER:
        return  # nothing was taken over yet, so a rollback needs no controller
    operator.edit(target="ZooKeeper")
    operator.rest(20)
    assert operator.kafka.claimed, "the claim stays while the controllers were not stopped"
    kubernetes.objects["PersistentVolumeClaim", "kafka", claim] = kept
    operator.step()
    assert ("StatefulSet", "kafka", name) in kubernetes.objects


def named(status: MigrationStatus) -> bool:
    return Code.CONTROLLER_CLAIMS_LOST in {f.code for f in status.findings}


@pytest.mark.parametrize("phase", PHASES)
def test_a_controller_is_replaced_as_documented(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, phase: Phase
) -> None:
    """docs/kraft.md, "Replace a controller", while the migration is paused: word by word, and then the StatefulSet comes back over the new claim."""
    operator.walk(phase)
    operator.edit(paused=True)
    kubernetes, name = operator.kubernetes, operator.controllers()
    claim = ("PersistentVolumeClaim", "kafka", names.controller_claim(name, 3001))
    config_map = ("ConfigMap", "kafka", f"{name}-format")
    blank, answer = True, observer.read_controller_metrics

    def metrics(node_id: int, *arguments: Any, **named: Any) -> ControllerMetrics:
        if blank and node_id == 3001:
            raise ObservationError("controller 3001", "it waits on a blank volume")
        return answer(node_id, *arguments, **named)

    monkeypatch.setattr(observer, "read_controller_metrics", metrics)
    before = kubernetes.objects.pop(claim)["metadata"]["uid"]
    kubernetes.delete("v1", "Pod", "kafka", f"{name}-3001")
    status = operator.rest(20)
    new = kubernetes.objects[claim]["metadata"]["uid"]
    assert new != before
    assert named(status)
    assert kubernetes.objects[config_map]["data"][WORD_KEY] == "refused"
    operator.edit(controllers={"reformat": {"id": 3001, "claimUID": before}})
    status = operator.rest(20)
    assert kubernetes.objects[config_map]["data"][WORD_KEY] == "refused", "it is the claim that is gone"
    assert Code.CONTROLLER_NOT_REFORMATTED in {f.code for f in status.findings}
    operator.edit(controllers={"reformat": {"id": 3001, "claimUID": new}})
    status = operator.rest(20)
    assert kubernetes.objects[config_map]["data"][WORD_KEY] == "3001", "the voter has not formatted its volume yet"
    assert Code.CONTROLLER_NOT_REFORMATTED not in {f.code for f in status.findings}
    assert named(status)
    blank = False
    status = operator.rest(20)
    assert not named(status)
    assert status.controllers is not None
    assert status.controllers.volume_uids["3001"] == new
    assert kubernetes.objects[config_map]["data"][WORD_KEY] == "refused"
    assert [e.reason for e in kubernetes.events if "3001 has caught up" in e.message] == ["ControllerReplaced"]
    kubernetes.delete("apps/v1", "StatefulSet", "kafka", name)
    operator.rest(20)
    assert ("StatefulSet", "kafka", name) in kubernetes.objects
    operator.edit(paused=False, target="KRaft")
    operator.walk(Phase.COMPLETED)


def test_after_a_rollback_nothing_comes_back(operator: Operator) -> None:
    operator.walk(Phase.DUAL_WRITE)
    name = operator.controllers()
    operator.edit(target="ZooKeeper")
    operator.walk(Phase.ROLLED_BACK)
    operator.rest(20)
    assert ("StatefulSet", "kafka", name) not in operator.kubernetes.objects
