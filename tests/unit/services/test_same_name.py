"""A resource that is deleted and created again under the same name is a new one: nothing of the earlier one is used."""

from __future__ import annotations

import copy

from tests.support.fakes import migration_object
from tests.unit.services.conftest import Operator

from kraftbridge.constants import ANNOTATION_ABANDON, KIND
from kraftbridge.models.phase import Phase


def recreate(operator: Operator) -> str:
    """Abandon the migration and create one of the same name and spec; return the UID of the earlier one."""
    earlier = copy.deepcopy(operator.migration())
    operator.kubernetes.merge_patch(
        "", KIND, "kafka", "demo", {"metadata": {"annotations": {ANNOTATION_ABANDON: "true"}}}
    )
    operator.reconciler.let_go("kafka", "demo")
    operator.reconciler.forget("kafka", "demo", earlier["metadata"]["uid"])
    operator.kubernetes.delete("", KIND, "kafka", "demo")
    operator.kubernetes.create(migration_object(earlier["spec"]))
    uid: str = earlier["metadata"]["uid"]
    return uid


def brokers(operator: Operator) -> dict[str, object]:
    found: dict[str, object] = operator.kubernetes.objects["StatefulSet", "kafka", "kafka"]
    return found


def test_the_earlier_original_state_is_not_restored(operator: Operator) -> None:
    operator.edit(target="DualWrite")
    operator.walk(Phase.TAKING_OVER)
    operator.edit(target="ZooKeeper")
    operator.walk(Phase.ROLLED_BACK, steps=200)
    recreate(operator)
    container = brokers(operator)["spec"]["template"]["spec"]["containers"][0]  # type: ignore[index]
    container["env"].append({"name": "KAFKA_NUM_NETWORK_THREADS", "value": "9"})
    container["env"].append({"name": "KAFKA_PROCESS_ROLES_NOTE", "value": "new"})
    before = {e["name"]: e.get("value") for e in copy.deepcopy(container["env"])}
    operator.edit(target="DualWrite")
    operator.walk(Phase.DUAL_WRITE, steps=200)
    operator.edit(target="ZooKeeper")
    operator.walk(Phase.ROLLED_BACK, steps=200)
    operator.rest()
    after = brokers(operator)["spec"]["template"]["spec"]["containers"][0]["env"]  # type: ignore[index]
    assert {e["name"]: e.get("value") for e in after} == before


def test_controllers_volumes_and_records_are_not_shared_and_leftovers_are_named(operator: Operator) -> None:
    operator.edit(target="QuorumReady")
    operator.walk(Phase.PROVISIONING_QUORUM)
    operator.rest(20)
    first = operator.controllers()
    claims = {k[2] for k in operator.kubernetes.objects if k[0] == "PersistentVolumeClaim"}
    assert claims == {f"data-{first}-{i}" for i in (3000, 3001, 3002)}
    uid = recreate(operator)
    operator.rest(20)
    status, second = operator.status(), operator.controllers()
    assert first.endswith(uid[:8])
    assert second != first
    assert {k[2] for k in operator.kubernetes.objects if k[0] == "PersistentVolumeClaim"} >= claims | {
        f"data-{second}-3000"
    }
    (finding,) = [f for f in status.findings if f.code == "LeftoversFound"]
    assert finding.severity == "Information"
    assert f"StatefulSet/{first}" in finding.reason
    assert f"PersistentVolumeClaim/data-{first}-3000" in finding.reason
    assert second not in finding.reason
