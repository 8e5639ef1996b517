"""What somebody deletes of ours comes back, through the whole loop; claims do not."""

from __future__ import annotations

import copy

import pytest
from tests.unit.services.conftest import Operator

from kraftbridge.builders import names
from kraftbridge.models.catalogue import Code
from kraftbridge.models.phase import Phase
from kraftbridge.services.observe import observer

PHASES = (Phase.TAKING_OVER, Phase.DUAL_WRITE, Phase.ROLLING_BROKERS, Phase.AWAITING_FINALIZATION)


@pytest.fixture(autouse=True)
def _looks_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observer, "BELONGINGS_EVERY_SECONDS", 0.0)


def ours(operator: Operator) -> list[tuple[str, str, str]]:
    known = operator.status().controllers
    assert known is not None
    objects = [(kind, "kafka", name) for _, kind, name in names.controllers_objects(known.name, known.mode)]
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
            assert (after.get("data") or {}).get("format", "refused") == "refused"
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


def test_after_a_rollback_nothing_comes_back(operator: Operator) -> None:
    operator.walk(Phase.DUAL_WRITE)
    name = operator.controllers()
    operator.edit(target="ZooKeeper")
    operator.walk(Phase.ROLLED_BACK)
    operator.rest(20)
    assert ("StatefulSet", "kafka", name) not in operator.kubernetes.objects
