"""Before ``helm uninstall``: migrations at rest lose the finalizer, and one that moves keeps the operator."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.unit.services.conftest import Operator

from kraftbridge.constants import FINALIZER, KIND
from kraftbridge.exceptions import ActionError
from kraftbridge.models.phase import Phase
from kraftbridge.services.uninstall import OperatorPlace, UninstallRefusedError, let_migrations_go

PLACE = OperatorPlace("kb-system", "kb", "component=operator")


@pytest.fixture
def installed(operator: Operator) -> Operator:
    """Return an operator that is installed as the chart does it, whose pod ends once it is scaled to zero."""
    kubernetes = operator.kubernetes
    meta = {"name": "kb", "namespace": "kb-system"}
    kubernetes.create({"kind": "Deployment", "metadata": meta, "spec": {"replicas": 1}})
    pod = {"name": "kb-1", "namespace": "kb-system", "labels": {"component": "operator"}}
    kubernetes.create({"kind": "Pod", "metadata": pod, "spec": {}})
    operator.migration()["metadata"]["finalizers"] = ["others/finalizer", FINALIZER]
    return operator


def end_pod(operator: Operator) -> None:
    if operator.kubernetes.objects["Deployment", "kb-system", "kb"]["spec"]["replicas"] == 0:
        operator.kubernetes.objects.pop(("Pod", "kb-system", "kb-1"), None)


def let_go(operator: Operator, *namespaces: str) -> tuple[str, ...]:
    return let_migrations_go(operator.kubernetes, PLACE, namespaces, 5, lambda _: end_pod(operator))


def replicas(operator: Operator) -> int:
    count: int = operator.kubernetes.objects["Deployment", "kb-system", "kb"]["spec"]["replicas"]
    return count


def finalizers(operator: Operator) -> list[str]:
    listed: list[str] = operator.migration()["metadata"]["finalizers"]
    return listed


@pytest.mark.parametrize("phase", [Phase.PREFLIGHT, Phase.COMPLETED])
def test_a_migration_at_rest_is_let_go(installed: Operator, phase: Phase) -> None:
    if phase is Phase.COMPLETED:
        installed.walk(phase)
        installed.rest()
    assert let_go(installed) == ("kafka/demo",)
    assert finalizers(installed) == ["others/finalizer"]
    assert replicas(installed) == 0
    assert ("Pod", "kb-system", "kb-1") not in installed.kubernetes.objects


@pytest.mark.parametrize("phase", [Phase.PROVISIONING_QUORUM, Phase.DUAL_WRITE, Phase.FINALIZING])
def test_a_migration_that_moves_keeps_the_operator(installed: Operator, phase: Phase) -> None:
    installed.walk(phase)
    before = copy.deepcopy(installed.kubernetes.objects)
    with pytest.raises(UninstallRefusedError, match=f"KafkaMigration kafka/demo: phase {phase} is not at rest"):
        let_go(installed)
    assert installed.kubernetes.objects == before, "nothing may change"


def test_completed_counts_only_once_the_stateful_sets_are_given_back(installed: Operator) -> None:
    status = installed.walk(Phase.COMPLETED)
    assert status.given_back_at is None
    with pytest.raises(UninstallRefusedError, match="are being released"):
        let_go(installed)
    assert replicas(installed) == 1


def test_a_migration_that_begins_to_move_while_the_operator_ends_brings_it_back(installed: Operator) -> None:
    def sleep(_: float) -> None:
        end_pod(installed)
        installed.migration()["status"] = {"phase": "TakingOver"}

    with pytest.raises(UninstallRefusedError, match="TakingOver"):
        let_migrations_go(installed.kubernetes, PLACE, (), 5, sleep)
    assert replicas(installed) == 1
    assert FINALIZER in finalizers(installed)


def test_an_operator_that_does_not_end_would_put_the_finalizer_back(installed: Operator) -> None:
    with pytest.raises(UninstallRefusedError, match="its pod kb-1 did not end within 3 s"):
        let_migrations_go(installed.kubernetes, PLACE, (), 3, lambda _: None)
    assert replicas(installed) == 1
    assert FINALIZER in finalizers(installed)


def test_a_refused_write_brings_the_operator_back(installed: Operator) -> None:
    def refuse(verb: str, kind: str, _name: str) -> None:
        if (verb, kind) == ("merge_patch", KIND):
            raise ActionError("403")

    installed.kubernetes.before_call = refuse
    with pytest.raises(ActionError):
        let_go(installed)
    assert replicas(installed) == 1


def test_only_the_namespaces_of_this_operator_are_let_go(installed: Operator) -> None:
    assert let_go(installed, "elsewhere") == ()
    assert FINALIZER in finalizers(installed)


def test_the_status_of_a_newer_release_is_not_guessed(installed: Operator) -> None:
    installed.migration()["status"] = {"phase": "Reviewing"}
    with pytest.raises(UninstallRefusedError, match="not understood"):
        let_go(installed)


def test_without_an_operator_the_migrations_are_let_go_all_the_same(installed: Operator) -> None:
    gone: list[tuple[str, Any]] = [("Deployment", "kb"), ("Pod", "kb-1")]
    for kind, name in gone:
        del installed.kubernetes.objects[kind, "kb-system", name]
    assert let_go(installed) == ("kafka/demo",)
