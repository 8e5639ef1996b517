"""What the observer learns about brokers that may be down together: zones, PodDisruptionBudgets, accepted topics."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.observations import NOW
from tests.unit.services.conftest import Operator

from kraftbridge.exceptions import ObservationError
from kraftbridge.models.assignments import Assignments, BudgetRoom
from kraftbridge.models.observation import TopicRedundancy
from kraftbridge.models.phase import Phase
from kraftbridge.models.spec import AcceptedFinding, MigrationSpec
from kraftbridge.models.status import MigrationStatus
from kraftbridge.phases.draft import Identity, Migration
from kraftbridge.services.observe import assignments


def migration_of(operator: Operator) -> Migration:
    resource = operator.migration()
    spec = MigrationSpec.model_validate(resource["spec"])
    metadata = resource["metadata"]
    return Migration(Identity("kafka", metadata["name"], metadata["uid"], 1), spec, MigrationStatus())


def add(operator: Operator, kind: str, name: str, namespace: str | None, **fields: Any) -> None:
    labels = fields.pop("labels", {})
    operator.kubernetes.create(
        {"kind": kind, "metadata": {"name": name, "namespace": namespace, "labels": labels}, **fields}
    )


def place(operator: Operator, pod: str, node: str) -> None:
    operator.kubernetes.objects["Pod", "kafka", pod]["spec"]["nodeName"] = node


def test_zones_are_those_of_the_nodes_where_no_broker_has_a_rack(operator: Operator) -> None:
    for node, zone in (("node-a", "zone-a"), ("node-b", "zone-b")):
        add(operator, "Node", node, None, labels={"topology.kubernetes.io/zone": zone})
    place(operator, "kafka-0", "node-a")
    place(operator, "kafka-1", "node-b")
    seen = assignments.observe(
        operator.kubernetes, operator.kafka, migration_of(operator), TopicRedundancy((), ()), NOW
    )
    assert seen.pod_zones == {"kafka-0": "zone-a", "kafka-1": "zone-b"}
    assert seen.by_broker({"kafka-0": 10, "kafka-1": 11, "kafka-2": 12}).zones == {10: "zone-a", 11: "zone-b"}
    racks = replace(seen, replicas=Assignments((), {10: "rack"}))
    assert racks.by_broker({"kafka-0": 10}).zones == {10: "rack"}
    assert seen.replicas.read_at == NOW


@pytest.mark.parametrize("reason", ["GET answered 403: no", "GET answered 503: no", "GET failed after 10 s: timed out"])
def test_a_silent_list_of_nodes_is_not_a_cluster_without_zones(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    """Without zones, brokers of two zones may be down together."""
    answer = operator.kubernetes.list

    def silent(api_version: str, kind: str, *args: Any, **more: Any) -> Any:
        if kind == "Node":
            raise ObservationError("Node objects in all namespaces", reason)
        return answer(api_version, kind, *args, **more)

    monkeypatch.setattr(operator.kubernetes, "list", silent)
    with pytest.raises(ObservationError, match="Node objects"):
        assignments.observe(operator.kubernetes, operator.kafka, migration_of(operator), TopicRedundancy((), ()), NOW)
    racks = Assignments((), {0: "rack"})
    monkeypatch.setattr(operator.kafka, "assignments", lambda _accepted: racks)
    seen = assignments.observe(
        operator.kubernetes, operator.kafka, migration_of(operator), TopicRedundancy((), ()), NOW
    )
    assert seen.by_broker({}).zones == {0: "rack"}, "where brokers name racks, nobody asks for nodes"


def test_budgets_are_those_that_select_pods_of_brokers(operator: Operator) -> None:
    labels = operator.kubernetes.objects["Pod", "kafka", "kafka-0"]["metadata"]["labels"]
    mine = {"matchLabels": {"app": labels["app"]}}
    for name, selector in (("mine", mine), ("others", {"matchLabels": {"app": "x"}}), ("none", None)):
        add(
            operator,
            "PodDisruptionBudget",
            name,
            "kafka",
            spec={"selector": selector},
            status={"disruptionsAllowed": 2},
        )
    seen = assignments.observe(
        operator.kubernetes, operator.kafka, migration_of(operator), TopicRedundancy((), ()), NOW
    )
    found = seen.by_broker({"kafka-0": 0, "kafka-1": 1}).budgets
    assert found == (BudgetRoom("mine", frozenset({0, 1}), 2),)


def test_topics_are_accepted_by_the_finding_that_names_them(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[frozenset[str]] = []
    monkeypatch.setattr(operator.kafka, "assignments", lambda accepted: asked.append(accepted) or Assignments(()))
    given = migration_of(operator)
    accepted = (
        AcceptedFinding(code="TopicNotReplicated", object="topic/lone"),
        AcceptedFinding(code="TopicAtMinIsr", object="topic/least"),
    )
    spec = given.spec.model_copy(update={"preflight": given.spec.preflight.model_copy(update={"accepted": accepted})})
    redundancy = TopicRedundancy(("least", "lone", "other"), ("least", "lone"))
    assignments.observe(operator.kubernetes, operator.kafka, replace(given, spec=spec), redundancy, NOW)
    assert asked == [frozenset({"lone", "least"})]


@pytest.mark.parametrize(("most", "asks"), [(1, False), (2, True), ("50%", True)])
def test_replicas_are_read_where_several_brokers_may_be_down(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, most: int | str, *, asks: bool
) -> None:
    asked = []
    monkeypatch.setattr(operator.kafka, "assignments", lambda accepted: asked.append(accepted) or Assignments(()))
    operator.migration()["spec"].setdefault("strategy", {})["maxUnavailable"] = most
    operator.step()
    assert operator.status().phase is Phase.PREFLIGHT
    assert bool(asked) is asks
