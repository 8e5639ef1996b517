"""The original state of the brokers' StatefulSets: kept twice, told when it is lost, never taken from an overlay, and not needed for a release."""

from __future__ import annotations

import base64
import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from tests.support.fakes import Clock, FakeKubernetes, migration_object, user_stateful_set
from tests.support.observations import spec
from tests.unit.services.conftest import Operator

from kraftbridge.constants import ANNOTATION_CONFIGURATION, ANNOTATION_LOCK, KIND
from kraftbridge.models.conditions import Condition, ConditionType, Reason, condition
from kraftbridge.models.phase import Phase
from kraftbridge.models.status import MigrationStatus, OriginalStatus, before_secrets
from kraftbridge.phases.draft import Identity
from kraftbridge.services import facts, original_secrets, original_state

REVERSIBLE = {
    Phase.DUAL_WRITE: "DualWrite",
    Phase.AWAITING_FINALIZATION: "KRaftBrokers",
}


def secrets(operator: Operator, attempt: int = 1) -> tuple[str, str]:
    """Return the names of the two Secrets."""
    return before_secrets("demo", operator.migration()["metadata"]["uid"], attempt)


def held(operator: Operator, name: str) -> dict[str, Any]:
    found: dict[str, Any] = operator.kubernetes.objects["Secret", "kafka", name]["data"]
    return found


def lose(operator: Operator, *lost: str) -> None:
    for name in lost:
        del operator.kubernetes.objects["Secret", "kafka", name]
    operator.restart()


def brokers(operator: Operator) -> dict[str, Any]:
    found: dict[str, Any] = operator.kubernetes.objects["StatefulSet", "kafka", "kafka"]
    return found


def said(operator: Operator, kind: ConditionType) -> Condition:
    found = condition(operator.status().conditions, kind)
    assert found is not None
    return found


def evictions(operator: Operator) -> int:
    return len([c for c in operator.kubernetes.calls if c[0] == "evict"])


def resting(operator: Operator, phase: Phase) -> None:
    operator.edit(target=REVERSIBLE[phase])
    operator.walk(phase)
    operator.rest(10)


@pytest.mark.parametrize("which", [0, 1])
def test_one_secret_comes_back_from_the_other(operator: Operator, which: int) -> None:
    resting(operator, Phase.AWAITING_FINALIZATION)
    name, other = secrets(operator)[which], secrets(operator)[1 - which]
    before = dict(held(operator, other))
    assert held(operator, name) == before
    lose(operator, name)
    operator.rest(8)
    assert held(operator, name) == held(operator, other) == before
    assert said(operator, ConditionType.ROLLBACK_POSSIBLE).status == "True"
    assert any(name in e.message for e in operator.kubernetes.events)
    operator.edit(target="ZooKeeper")
    operator.walk(Phase.ROLLED_BACK, steps=250)


def test_a_loss_is_seen_by_a_process_that_has_read_both(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    resting(operator, Phase.AWAITING_FINALIZATION)
    for name in secrets(operator):
        del operator.kubernetes.objects["Secret", "kafka", name]
    monkeypatch.setattr(facts, "ORIGINALS_SECONDS", 0.0)
    operator.rest(3)
    assert said(operator, ConditionType.ROLLBACK_POSSIBLE).reason is Reason.ORIGINALS_LOST


IDENTITY = Identity("kafka", "demo", "00000000-0000-4000-8000-000000000000", 1)
BEFORE = before_secrets("demo", IDENTITY.uid, 1)


def recorded(kubernetes: FakeKubernetes) -> MigrationStatus:
    """Record a StatefulSet; return a status that names the digest."""
    original = original_state.capture(spec(), user_stateful_set(), None)
    assert original is not None
    original_secrets.record(kubernetes, IDENTITY, MigrationStatus(), "kafka", original)
    digest = original_secrets.read(kubernetes, IDENTITY, MigrationStatus())["kafka"].record.digest
    return MigrationStatus(originals=(OriginalStatus(stateful_set="kafka", digest=digest),))


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("how", ["deleted", "emptied", "not base64", "cut", "of another", "of another attempt"])
def test_whatever_one_secret_loses_the_other_one_has(which: int, how: str, *, told: bool) -> None:
    kubernetes = FakeKubernetes(Clock())
    status = recorded(kubernetes)
    if not told:
        status = MigrationStatus()
    secret, other = (kubernetes.objects["Secret", "kafka", n] for n in (BEFORE[which], BEFORE[1 - which]))
    was = secret["data"]["kafka"]
    record = json.loads(base64.b64decode(was))
    match how:
        case "deleted":
            del kubernetes.objects["Secret", "kafka", BEFORE[which]]
        case "emptied":
            secret.pop("data")
        case "not base64":
            secret["data"]["kafka"] = "a"
        case "cut":
            secret["data"]["kafka"] = was[:40]
        case _:
            record["of"] |= {"uid": "another"} if how == "of another" else {"attempt": 2}
            secret["data"]["kafka"] = base64.b64encode(json.dumps(record).encode()).decode()
    seen = original_secrets.read(kubernetes, IDENTITY, status)["kafka"]
    assert not seen.record.complete
    assert original_secrets.keep(kubernetes, IDENTITY, status, "kafka")
    assert kubernetes.objects["Secret", "kafka", BEFORE[which]]["data"]["kafka"] == other["data"]["kafka"] == was
    assert original_secrets.read(kubernetes, IDENTITY, status)["kafka"].record == replace(seen.record, complete=True)


def test_two_records_that_differ_are_neither() -> None:
    kubernetes = FakeKubernetes(Clock())
    recorded(kubernetes)
    first = kubernetes.objects["Secret", "kafka", BEFORE[0]]["data"]
    record = json.loads(base64.b64decode(first["kafka"]))
    record["container"]["env"] = []
    first["kafka"] = base64.b64encode(json.dumps(record).encode()).decode()
    assert not original_secrets.read(kubernetes, IDENTITY, MigrationStatus())


@pytest.mark.parametrize("phase", REVERSIBLE)
def test_without_both_nothing_restarts_and_the_status_says_so_before(operator: Operator, phase: Phase) -> None:
    resting(operator, phase)
    kept = {name: copy.deepcopy(operator.kubernetes.objects["Secret", "kafka", name]) for name in secrets(operator)}
    lose(operator, *kept)
    operator.rest(5)
    way_back = said(operator, ConditionType.ROLLBACK_POSSIBLE)
    assert (way_back.status, way_back.reason) == ("False", Reason.ORIGINALS_LOST)
    assert all(name in way_back.message for name in kept)
    assert [f.object for f in operator.status().findings if f.code == "OriginalsLost"] == ["StatefulSet/kafka"]
    restarts, template = evictions(operator), copy.deepcopy(brokers(operator)["spec"])
    operator.edit(target="ZooKeeper")
    operator.rest(40)
    stalled = said(operator, ConditionType.STALLED)
    assert (operator.status().phase, stalled.status, stalled.reason) == (phase, "True", Reason.ORIGINALS_LOST)
    assert all(name in stalled.message for name in kept)
    assert (evictions(operator), brokers(operator)["spec"]) == (restarts, template)
    assert not any(k[0] == "Secret" and k[2] in kept for k in operator.kubernetes.objects)
    # One of them from a backup is enough.
    restored = secrets(operator)[1]
    operator.kubernetes.objects["Secret", "kafka", restored] = kept[restored]
    operator.walk(Phase.ROLLED_BACK, steps=250)
    assert not [f for f in operator.status().findings if f.code == "OriginalsLost"]
    assert not operator.status().originals


def test_another_state_from_a_backup_is_not_the_original(operator: Operator) -> None:
    resting(operator, Phase.AWAITING_FINALIZATION)
    name = secrets(operator)[0]
    other = json.loads(base64.b64decode(held(operator, name)["kafka"]))
    other["container"]["env"] = []
    lose(operator, *secrets(operator))
    value = base64.b64encode(json.dumps(other).encode()).decode()
    operator.kubernetes.create(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "kafka"}, "data": {"kafka": value}}
    )  # fmt: skip
    operator.rest(8)
    assert said(operator, ConditionType.ROLLBACK_POSSIBLE).reason is Reason.ORIGINALS_LOST


@pytest.mark.parametrize("taken", ["strategy", "lock"])
def test_an_overlay_is_not_recorded_as_the_original(operator: Operator, taken: str) -> None:
    resting(operator, Phase.AWAITING_FINALIZATION)
    lose(operator, *secrets(operator))
    if taken == "strategy":
        brokers(operator)["spec"]["updateStrategy"] = {"type": "RollingUpdate"}
    else:
        brokers(operator)["metadata"]["annotations"].pop(ANNOTATION_LOCK)
    operator.rest(8)
    assert not any(name == k[2] for k in operator.kubernetes.objects for name in secrets(operator))
    # Kubernetes must not restart the brokers meanwhile, and nobody else may change the template.
    assert brokers(operator)["spec"]["updateStrategy"]["type"] == "OnDelete"
    assert ANNOTATION_LOCK in brokers(operator)["metadata"]["annotations"]
    assert said(operator, ConditionType.ROLLBACK_POSSIBLE).reason is Reason.ORIGINALS_LOST


def test_finalization_is_the_way_on_without_a_way_back(operator: Operator) -> None:
    resting(operator, Phase.AWAITING_FINALIZATION)
    lose(operator, *secrets(operator))
    operator.rest(5)
    assert "spec.target" in said(operator, ConditionType.STALLED).message
    operator.edit(target="KRaft")
    operator.walk(Phase.COMPLETED, steps=200)
    operator.rest(10)
    assert_released(operator)


@pytest.mark.parametrize("hand_over", ["Guard", "Release"])
@pytest.mark.parametrize("strategy", ["RollingUpdate", "OnDelete"])
def test_a_release_needs_no_secret(operator: Operator, hand_over: str, strategy: str) -> None:
    brokers(operator)["spec"]["updateStrategy"] = {"type": strategy}
    operator.walk(Phase.FINALIZING)
    lose(operator, *secrets(operator))
    operator.edit(handOver=hand_over)
    operator.walk(Phase.COMPLETED, steps=200)
    operator.rest(10)
    assert_released(operator, strategy)
    manifest = operator.kubernetes.objects["ConfigMap", "kafka", operator.status().final_manifest]["data"]
    assert "controllers.yaml" in manifest
    assert said(operator, ConditionType.READY).status == "True"
    if hand_over == "Guard":
        assert said(operator, ConditionType.HANDED_OVER).reason is Reason.NOT_GUARDED


def assert_released(operator: Operator, strategy: str = "RollingUpdate") -> None:
    assert operator.status().given_back_at is not None
    assert ANNOTATION_LOCK not in brokers(operator)["metadata"]["annotations"]
    assert brokers(operator)["spec"]["updateStrategy"]["type"] == strategy


@pytest.mark.parametrize("mark", ["annotation", "owner"])
def test_the_overlay_of_an_abandoned_migration_blocks_the_next_one(operator: Operator, mark: str) -> None:
    operator.edit(target="DualWrite")
    operator.walk(Phase.DUAL_WRITE)
    spec = copy.deepcopy(operator.migration()["spec"])
    operator.reconciler.abandon("kafka", "demo")
    operator.reconciler.let_go("kafka", "demo")
    del operator.kubernetes.objects[KIND, "kafka", "demo"]
    if mark == "owner":  # the annotation was removed by hand, and the variables stay
        brokers(operator)["spec"]["template"]["metadata"]["annotations"].pop(ANNOTATION_CONFIGURATION)
        template = {"f:spec": {"f:template": {"f:spec": {"f:containers": {}}}}}
        brokers(operator)["metadata"]["managedFields"] = [
            {"manager": "kraftbridge", "operation": "Apply", "fieldsV1": template}
        ]
    operator.kubernetes.create(migration_object(spec))
    operator.restart()
    operator.rest(20)
    status = operator.status()
    assert status.phase is Phase.PREFLIGHT
    assert [(f.object, f.severity) for f in status.findings if f.code == "OverlayLeft"] == [
        ("StatefulSet/kafka", "Blocking")
    ]
    assert not any(name == k[2] for k in operator.kubernetes.objects for name in secrets(operator))


def test_a_record_that_names_no_owner_is_nobodys(operator: Operator) -> None:
    """Without a digest in the status only the record itself says whose it is."""
    resting(operator, Phase.AWAITING_FINALIZATION)
    first, second = secrets(operator)
    record = json.loads(base64.b64decode(held(operator, first)["kafka"]))
    record.pop("of")
    held(operator, first)["kafka"] = base64.b64encode(json.dumps(record).encode()).decode()
    operator.migration()["status"].pop("originals")
    lose(operator, second)
    operator.rest(8)
    assert any(f.code == "OriginalsLost" for f in operator.status().findings)


def test_the_status_says_nothing_that_can_be_guessed(operator: Operator) -> None:
    """A record may hold values behind references to Secrets: two of the same state have different digests."""
    operator.walk(Phase.DUAL_WRITE)
    (first,) = operator.status().originals
    spec = copy.deepcopy(operator.migration()["spec"])
    assert first.stateful_set == "kafka"
    operator.edit(target="ZooKeeper")
    operator.walk(Phase.ROLLED_BACK, steps=250)
    operator.edit(target=spec["target"])
    operator.walk(Phase.DUAL_WRITE, steps=250)
    (second,) = operator.status().originals
    assert first.digest != second.digest


def test_a_loss_in_a_rollback_stops_it_where_a_controller_leads(operator: Operator) -> None:
    resting(operator, Phase.AWAITING_FINALIZATION)
    operator.edit(target="ZooKeeper")
    operator.walk(Phase.ROLLING_BACK)
    lose(operator, *secrets(operator))
    operator.rest(60)
    stalled = said(operator, ConditionType.STALLED)
    assert (stalled.status, stalled.reason) == ("True", Reason.ORIGINALS_LOST)
    assert operator.status().phase is Phase.ROLLING_BACK
    status = operator.status()
    assert status.rollback is None or status.rollback.controllers_stopped_at is None


def test_a_loss_before_the_first_change_is_no_loss(operator: Operator) -> None:
    """The template is the user's own, so it is recorded anew."""
    operator.edit(target="DualWrite")
    for _ in range(120):
        operator.step()
        if any(k[2] == secrets(operator)[0] for k in operator.kubernetes.objects):
            break
    else:
        raise AssertionError("nothing was recorded")
    assert ANNOTATION_CONFIGURATION not in brokers(operator)["spec"]["template"]["metadata"].get("annotations", {})
    lose(operator, *secrets(operator))
    operator.walk(Phase.DUAL_WRITE, steps=200)
    assert held(operator, secrets(operator)[0]) == held(operator, secrets(operator)[1])
