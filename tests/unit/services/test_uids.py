"""Objects that come back with other UIDs: a restored backup, a StatefulSet created anew or renamed, an exchanged claim, an upgraded chart."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.support.fakes import migration_object, user_stateful_set
from tests.unit.services.conftest import Operator

from kraftbridge.constants import KIND
from kraftbridge.models import newer
from kraftbridge.models.conditions import Condition, ConditionType, Reason, condition
from kraftbridge.models.phase import Phase
from kraftbridge.models.status import MigrationStatus

OTHER = "ffffffff-0000-4000-8000-00000000beef"
TARGETS = {
    Phase.PROVISIONING_QUORUM: "QuorumReady",
    Phase.DUAL_WRITE: "DualWrite",
    Phase.AWAITING_FINALIZATION: "KRaftBrokers",
}
"""Phases in which a migration can rest."""
WALKED = {**TARGETS, Phase.TAKING_OVER: "KRaft", Phase.ROLLING_BROKERS: "KRaft", Phase.FINALIZING: "KRaft"}


def reach(operator: Operator, phase: Phase) -> None:
    """Bring the migration into a phase."""
    claims = [{"metadata": {"name": "data"}}]
    operator.kubernetes.objects["StatefulSet", "kafka", "kafka"]["spec"]["volumeClaimTemplates"] = claims
    if phase is Phase.ROLLING_BACK:
        reach(operator, Phase.DUAL_WRITE)
        operator.edit(target="ZooKeeper")
    else:
        operator.edit(target=WALKED[phase])
    operator.walk(phase, steps=200)
    operator.rest(3 if phase is Phase.PROVISIONING_QUORUM else 1)


def stalled(operator: Operator) -> Condition:
    found = condition(operator.status().conditions, ConditionType.STALLED)
    assert found is not None
    return found


def acts_in(operator: Operator, steps: int = 12) -> list[tuple[str, str, str]]:
    """Return every write of some further steps, without those of KafkaMigrations."""
    operator.kubernetes.calls.clear()
    operator.rest(steps)
    return [act for act in operator.acts() if act[1] != KIND]


def exchange(operator: Operator, kind: str, name: str) -> str:
    """Give an object another UID, as a restored backup has; return the former one."""
    found: dict[str, Any] = operator.kubernetes.objects[kind, "kafka", name]
    former = str(found["metadata"]["uid"])
    found["metadata"]["uid"] = OTHER
    for pod in [o for (k, _, _), o in operator.kubernetes.objects.items() if k == "Pod"]:
        for owner in pod["metadata"].get("ownerReferences", []):
            if owner["uid"] == former:
                owner["uid"] = OTHER
    return former


PHASES = [*WALKED, Phase.ROLLING_BACK]
ACCEPTING = [Phase.PROVISIONING_QUORUM, Phase.ROLLING_BROKERS, Phase.FINALIZING, Phase.ROLLING_BACK]


@pytest.mark.parametrize("phase", PHASES)
def test_a_resource_that_was_restored_from_a_backup_is_refused(operator: Operator, phase: Phase) -> None:
    reach(operator, phase)
    former = exchange(operator, KIND, "demo")
    operator.restart()
    assert acts_in(operator) == []
    said, status = stalled(operator), operator.status()
    assert (said.status, said.reason) == ("True", Reason.IDENTITY_CHANGED)
    assert all(words in said.message for words in ("KafkaMigration/demo", former, OTHER, "abandon"))
    assert status.phase is phase
    assert [f.object for f in status.findings if f.code == "IdentityChanged"] == ["KafkaMigration/demo"]
    back = condition(status.conditions, ConditionType.ROLLBACK_POSSIBLE)
    assert back is not None
    assert back.status == "False"
    if phase.reversible and phase is not Phase.ROLLING_BACK:
        operator.edit(target="ZooKeeper")
        assert acts_in(operator) == []
        assert operator.status().phase is phase, "no step back either"


def test_completed_is_no_exception(operator: Operator) -> None:
    operator.edit(target="KRaft")
    operator.walk(Phase.COMPLETED, steps=250)
    operator.rest(10)
    exchange(operator, KIND, "demo")
    operator.restart()
    operator.edit(controllers={"heapOptions": "-Xmx2g"})
    assert acts_in(operator) == []
    assert stalled(operator).reason is Reason.IDENTITY_CHANGED


@pytest.mark.parametrize("target", ["Preflight", "ZooKeeper"])
def test_what_claims_nothing_of_the_cluster_goes_on(operator: Operator, target: str) -> None:
    operator.edit(target="Preflight" if target == "Preflight" else "DualWrite")
    operator.rest(12)
    if target == "ZooKeeper":
        operator.walk(Phase.DUAL_WRITE, steps=200)
        operator.edit(target=target)
        operator.walk(Phase.ROLLED_BACK, steps=200)
    exchange(operator, KIND, "demo")
    exchange(operator, "StatefulSet", "kafka")
    operator.restart()
    status = operator.rest(5)
    assert stalled(operator).status == "False", status.message
    assert status.objects is not None
    assert status.objects.migration == OTHER
    assert [s.uid for s in status.objects.stateful_sets] == [OTHER]


@pytest.mark.parametrize("phase", ACCEPTING)
@pytest.mark.parametrize(
    ("kind", "name"), [("StatefulSet", "kafka"), ("PersistentVolumeClaim", "data-kafka-1"), ("StatefulSet", "own")]
)
def test_an_object_with_another_uid_is_refused_until_the_user_says_that_it_is_the_same(
    operator: Operator, phase: Phase, kind: str, name: str
) -> None:
    reach(operator, phase)
    name = operator.controllers() if name == "own" else name
    former = exchange(operator, kind, name)
    operator.restart()
    assert acts_in(operator) == []
    said = stalled(operator)
    assert (said.status, said.reason) == ("True", Reason.IDENTITY_CHANGED)
    assert all(words in said.message for words in (f"{kind}/{name}", former, OTHER, "spec.acceptedObjects"))
    operator.edit(acceptedObjects="another-id")
    assert acts_in(operator) == []
    accepted = said.message.partition("spec.acceptedObjects to ")[2].partition(":")[0]
    operator.edit(acceptedObjects=accepted)
    operator.rest(5)
    assert stalled(operator).reason is not Reason.IDENTITY_CHANGED
    assert not [f for f in operator.status().findings if f.code == "IdentityChanged"]
    goal = {Phase.ROLLING_BACK: Phase.ROLLED_BACK, Phase.FINALIZING: Phase.COMPLETED}.get(phase)
    if goal is not None:
        operator.walk(goal, steps=250)


def test_every_object_that_differs_is_named(operator: Operator) -> None:
    reach(operator, Phase.DUAL_WRITE)
    for kind, name in [(KIND, "demo"), ("StatefulSet", "kafka"), ("PersistentVolumeClaim", "data-kafka-2")]:
        exchange(operator, kind, name)
    operator.restart()
    assert acts_in(operator) == []
    found = [f.object for f in operator.status().findings if f.code == "IdentityChanged"]
    assert found == ["KafkaMigration/demo", "StatefulSet/kafka", "PersistentVolumeClaim/data-kafka-2"]
    assert all(name in operator.status().message for name in found)


def test_controllers_that_the_operator_creates_anew_are_its_own(operator: Operator) -> None:
    reach(operator, Phase.DUAL_WRITE)
    former = operator.status().objects
    del operator.kubernetes.objects["StatefulSet", "kafka", operator.controllers()]
    operator.restart()
    status = operator.rest(30)
    assert stalled(operator).status == "False", status.message
    assert former is not None
    assert status.objects is not None
    assert status.objects.controllers not in ("", former.controllers)


def test_a_status_of_an_earlier_release_names_the_resource_by_its_controllers(operator: Operator) -> None:
    reach(operator, Phase.DUAL_WRITE)
    del operator.migration()["status"]["objects"]
    exchange(operator, KIND, "demo")
    operator.restart()
    assert acts_in(operator) == []
    assert stalled(operator).reason is Reason.IDENTITY_CHANGED


def test_an_upgraded_operator_records_what_is_there(operator: Operator) -> None:
    reach(operator, Phase.DUAL_WRITE)
    del operator.migration()["status"]["objects"]
    operator.restart()
    status = operator.rest(3)
    assert stalled(operator).status == "False"
    assert status.objects is not None
    assert set(status.objects.claims) == {f"data-kafka-{i}" for i in range(3)}
    assert status.objects.controllers


@pytest.mark.parametrize("phase", [Phase.DUAL_WRITE, Phase.AWAITING_FINALIZATION])
def test_a_renamed_stateful_set_is_named(operator: Operator, phase: Phase) -> None:
    reach(operator, phase)
    objects = operator.kubernetes.objects
    renamed = copy.deepcopy(objects.pop(("StatefulSet", "kafka", "kafka")))
    for key in [k for k in objects if k[0] == "Pod" and k[2].startswith("kafka-")]:
        del objects[key]
    renamed["metadata"] |= {"name": "brokers", "uid": OTHER}
    objects["StatefulSet", "kafka", "brokers"] = renamed
    operator.restart()
    assert acts_in(operator) == []
    said = stalled(operator)
    assert (said.status, said.reason) == ("True", Reason.IDENTITY_CHANGED)
    assert "StatefulSet/kafka" in said.message
    assert "StatefulSet brokers has taken its place" in said.message
    assert [f.object for f in operator.status().findings if f.code == "StatefulSetRenamed"] == ["StatefulSet/kafka"]


def test_an_upgraded_chart_is_named_with_what_changed(operator: Operator) -> None:
    labels = operator.kubernetes.objects["StatefulSet", "kafka", "kafka"]["metadata"]["labels"]
    labels |= {"helm.sh/chart": "kafka-26.0.0", "app.kubernetes.io/version": "3.9.0"}
    reach(operator, Phase.DUAL_WRITE)
    labels = operator.kubernetes.objects["StatefulSet", "kafka", "kafka"]["metadata"]["labels"]
    labels["helm.sh/chart"] = "kafka-27.1.0"
    operator.rest(3)
    (found,) = [f for f in operator.status().findings if f.code == "ChartChanged"]
    assert found.object == "StatefulSet/kafka"
    assert "helm.sh/chart kafka-26.0.0 became kafka-27.1.0" in found.reason
    assert len([e for e in operator.kubernetes.events if "kafka-27.1.0" in e.message]) == 1
    labels = operator.kubernetes.objects["StatefulSet", "kafka", "kafka"]["metadata"]["labels"]
    labels["helm.sh/chart"] = "kafka-26.0.0"
    operator.rest(3)
    assert not [f for f in operator.status().findings if f.code == "ChartChanged"]


def second(operator: Operator, name: str = "second", namespace: str = "kafka", **spec: Any) -> MigrationStatus:
    """Create another resource, take some of its steps and return its status."""
    document = copy.deepcopy(operator.migration()["spec"]) | spec
    operator.kubernetes.create(migration_object(document, namespace, name))
    for _ in range(15):
        operator.clock.advance(2.0)
        operator.reconciler.step(namespace, name)
    return newer.read_status(operator.kubernetes.objects[KIND, namespace, name]["status"]).status


@pytest.mark.parametrize("phase", [Phase.PREFLIGHT, Phase.DUAL_WRITE, Phase.ROLLED_BACK, Phase.COMPLETED])
def test_a_second_resource_of_the_cluster_is_refused_and_names_the_first(operator: Operator, phase: Phase) -> None:
    match phase:
        case Phase.PREFLIGHT:
            operator.edit(target="Preflight")
            operator.rest(5)
        case Phase.ROLLED_BACK:
            reach(operator, Phase.ROLLING_BACK)
            operator.walk(Phase.ROLLED_BACK, steps=200)
        case Phase.COMPLETED:
            operator.edit(target="KRaft")
            operator.walk(Phase.COMPLETED, steps=250)
            operator.rest(10)
        case _:
            reach(operator, phase)
    before = operator.status()
    status = second(operator, target="KRaft")
    assert status.phase is Phase.PREFLIGHT
    (found,) = [f for f in status.findings if f.code == "AnotherMigration"]
    assert found.object == "KafkaMigration/kafka/demo"
    assert f"KafkaMigration kafka/demo (phase {phase})" in found.reason
    assert operator.rest(3).phase is before.phase, "the first one is not disturbed"


def test_a_second_resource_in_another_namespace_is_refused_by_the_cluster_id(operator: Operator) -> None:
    operator.edit(target="Preflight")
    operator.rest(5)
    operator.kubernetes.create(user_stateful_set("elsewhere"))
    status = second(operator, namespace="elsewhere", zookeeper={"connect": "zk-0.zk.elsewhere.svc:2181/kafka"})
    (found,) = [f for f in status.findings if f.code == "AnotherMigration"]
    assert found.object == "KafkaMigration/kafka/demo"
    assert "cluster id kVx3Yk9aSZ2mJ0wq1Yl5Wg" in found.reason
