"""The guards on real objects: somebody's image, a ConfigMap without the flag, a deleted namespace, an abandoned migration, a second operator."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from tests.unit.services.conftest import Operator

from kraftbridge.constants import ANNOTATION_LOCK, KIND
from kraftbridge.models.conditions import ConditionType, condition
from kraftbridge.models.phase import Phase
from kraftbridge.phases.machine import deletion_blocker
from kraftbridge.services.leases import lease_name

LEASE = ("Lease", "kafka", lease_name("kafka"))


def stalled(operator: Operator) -> str:
    found = condition(operator.status().conditions, ConditionType.STALLED)
    return str(found.reason) if found is not None and found.status == "True" else ""


def change_container(operator: Operator, **fields: Any) -> None:
    """Write the brokers' container as another field manager would."""
    stateful_set = operator.kubernetes.objects["StatefulSet", "kafka", "kafka"]
    stateful_set["spec"]["template"]["spec"]["containers"][0].update(fields)
    stateful_set["metadata"]["managedFields"] = [
        {"manager": "helm", "operation": "Update", "time": "2026-03-04T05:00:00Z", "fieldsV1": {}},
        {"manager": "kraftbridge", "operation": "Apply", "time": "2026-03-04T06:00:00Z", "fieldsV1": {}},
    ]


def evictions(operator: Operator) -> int:
    return len([c for c in operator.kubernetes.calls if c[0] == "evict"])


def test_another_image_half_way_stops_the_roll_and_names_its_writer(operator: Operator) -> None:
    operator.walk(Phase.TAKING_OVER)
    operator.rest(2)
    change_container(operator, image="kafka:4.0")
    before = evictions(operator)
    operator.rest(12)
    assert stalled(operator) == "ForeignChange"
    assert evictions(operator) <= before + 1, "what was under way ends, nothing else begins"
    assert "helm (Update at 2026-03-04T05:00:00Z) changed its template" in operator.status().message
    assert "image kafka:3.9 became kafka:4.0" in operator.status().message
    change_container(operator, image="kafka:3.9")
    operator.walk(Phase.DUAL_WRITE)


def test_a_configmap_without_the_flag_is_put_right_before_anything_restarts(operator: Operator) -> None:
    """Nobody can edit it; somebody deletes it, and creates one under its name."""
    operator.edit(target="DualWrite")
    operator.walk(Phase.DUAL_WRITE)
    operator.rest(8)
    key = operator.configuration()
    live = operator.kubernetes.objects[key]
    text = live["data"]["controller.properties"]
    live["data"]["controller.properties"] = text.replace("zookeeper.metadata.migration.enable=true", "")
    deleted = len([c for c in operator.kubernetes.calls if c[:2] == ("delete", "Pod")])
    operator.step(0.5)
    assert stalled(operator) == "ControllerWithoutMigrationFlag"
    live = operator.kubernetes.objects[key]
    assert "zookeeper.metadata.migration.enable=true" in live["data"]["controller.properties"]
    assert set(operator.kafka.controller_flags().values()) == {True}
    assert [e.reason for e in operator.kubernetes.events].count("Alarm") == 1
    assert len([c for c in operator.kubernetes.calls if c[:2] == ("delete", "Pod")]) == deleted


def test_the_lease_is_held_from_the_first_change_to_the_last(operator: Operator) -> None:
    held = []

    def note(verb: str, kind: str, _name: str) -> None:
        if kind == "StatefulSet" and verb in {"apply", "merge_patch", "strategic_patch"}:
            held.append(LEASE in operator.kubernetes.objects)

    operator.kubernetes.before_call = note
    operator.walk(Phase.COMPLETED)
    operator.rest()
    assert held
    assert all(held)
    assert LEASE not in operator.kubernetes.objects


def test_an_operator_that_lost_its_lease_stops(operator: Operator) -> None:
    operator.walk(Phase.TAKING_OVER)
    spec = operator.kubernetes.objects[LEASE]["spec"]
    operator.kubernetes.merge_patch("", *LEASE, {"spec": {**spec, "holderIdentity": "kafka/other/u by another"}})
    before = evictions(operator)
    operator.rest(10)
    assert stalled(operator) == "LockedByAnother"
    assert evictions(operator) == before
    operator.kubernetes.delete("", *LEASE)
    operator.walk(Phase.COMPLETED)


def test_a_namespace_that_goes_takes_its_migration_along(operator: Operator) -> None:
    operator.walk(Phase.TAKING_OVER)
    assert not operator.reconciler.nothing_is_left("kafka", "demo")
    operator.kubernetes.create(
        {"kind": "Namespace", "metadata": {"name": "kafka", "deletionTimestamp": "2026-03-04T05:06:07Z"}}
    )
    assert operator.reconciler.nothing_is_left("kafka", "demo")


def test_without_its_statefulsets_a_migration_holds_nothing(operator: Operator) -> None:
    operator.walk(Phase.TAKING_OVER)
    operator.kubernetes.delete("", "StatefulSet", "kafka", "kafka")
    assert operator.reconciler.nothing_is_left("kafka", "demo")


def test_an_abandoned_migration_gives_lock_and_lease_back_and_touches_nothing_else(operator: Operator) -> None:
    operator.walk(Phase.DUAL_WRITE)
    spec = operator.kubernetes.objects["StatefulSet", "kafka", "kafka"]["spec"]
    operator.reconciler.let_go("kafka", "demo")
    after = operator.kubernetes.objects["StatefulSet", "kafka", "kafka"]
    assert not after["metadata"]["annotations"].get(ANNOTATION_LOCK)
    assert after["spec"] == spec
    assert LEASE not in operator.kubernetes.objects


@pytest.mark.parametrize("theirs", [ANNOTATION_LOCK, "lease"])
def test_what_another_migration_holds_stays(operator: Operator, theirs: str) -> None:
    operator.walk(Phase.DUAL_WRITE)
    if theirs == "lease":
        operator.kubernetes.objects[LEASE]["spec"]["holderIdentity"] = "kafka/other/u by another"
    else:
        operator.kubernetes.objects["StatefulSet", "kafka", "kafka"]["metadata"]["annotations"][theirs] = "a/b/c"
    operator.reconciler.let_go("kafka", "demo")
    annotations = operator.kubernetes.objects["StatefulSet", "kafka", "kafka"]["metadata"]["annotations"]
    assert (LEASE in operator.kubernetes.objects) is (theirs == "lease")
    assert annotations.get(ANNOTATION_LOCK) == (None if theirs == "lease" else "a/b/c")


def test_a_deleted_migration_waits_in_its_status_and_goes_on_by_the_users_word(operator: Operator) -> None:
    operator.walk(Phase.DUAL_WRITE)
    operator.kubernetes.merge_patch(
        "", KIND, "kafka", "demo", {"metadata": {"deletionTimestamp": "2026-03-04T05:06:07Z"}}
    )
    before = evictions(operator)
    operator.rest(10)
    assert stalled(operator) == "DeletionWaits"
    assert (operator.status().phase, evictions(operator)) == (Phase.DUAL_WRITE, before)
    operator.edit(onDeletion="RollBack")
    operator.walk(Phase.ROLLED_BACK, steps=200)
    assert deletion_blocker(operator.status()) == ""


def test_after_completed_a_template_that_is_taken_back_is_noticed_and_the_manifest_has_everything(
    operator: Operator,
) -> None:
    operator.walk(Phase.COMPLETED)
    status = operator.rest()
    assert status.hand_over is not None
    assert status.hand_over.guarded
    assert "KAFKA_PROCESS_ROLES" in {v.name for v in status.hand_over.stateful_sets[0].variables}
    files = operator.kubernetes.objects["ConfigMap", "kafka", status.final_manifest]["data"]
    controllers = list(yaml.safe_load_all(files["controllers.yaml"]))
    kinds = [c["kind"] for c in controllers]
    assert {"StatefulSet", "Service", "ConfigMap", "NetworkPolicy", "PodDisruptionBudget"} <= set(kinds)
    assert "Secret" not in kinds
    assert not any("uid" in c["metadata"] or "status" in c for c in controllers)
    (brokers,) = yaml.safe_load_all(files["kustomize-patch.yaml"])
    right = brokers["spec"]["template"]["spec"]["containers"][0]["env"]
    writes = len(operator.acts())
    operator.rest()
    assert len(operator.acts()) == writes, "a migration at rest writes nothing"
    change_container(operator, env=[{"name": "KAFKA_ZOOKEEPER_CONNECT", "value": "zookeeper:2181"}])
    operator.rest()
    assert stalled(operator) == "TemplateNotKRaft"
    assert "KAFKA_PROCESS_ROLES=broker" in operator.status().message
    assert "last written by helm" in operator.status().message
    assert [e.reason for e in operator.kubernetes.events].count("Alarm") == 1
    change_container(operator, env=right)
    operator.rest()
    assert stalled(operator) == ""
    operator.edit(handOver="Release")
    operator.rest()
    found = condition(operator.status().conditions, ConditionType.HANDED_OVER)
    assert found is not None
    assert (found.status, found.reason) == ("True", "Released")
