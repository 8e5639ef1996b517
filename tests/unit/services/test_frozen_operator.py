"""An operator freezes (SIGSTOP, a paused node) within an act; another one takes the Lease over and decides otherwise; then the first wakes up."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.fakes import READ_VERBS, FaithfulDryStarts, FakeBrokerRecords
from tests.unit.services.conftest import POLICY, Operator

from kraftbridge.config import Settings
from kraftbridge.constants import ANNOTATION_LOCK, KIND
from kraftbridge.models.phase import Phase
from kraftbridge.services import reconcile
from kraftbridge.services.clients import ClusterClients
from kraftbridge.services.leases import Leases

Call = tuple[str, str, str]
KAFKA = ("StatefulSet", "kafka", "kafka")
OWN = frozenset({KIND, "Lease", "Event"})
"""What every process writes to say how it is."""


def another(operator: Operator) -> reconcile.Reconciler:
    """Return another process of the operator; its clock is the test's."""
    settings = Settings(
        operator_image="operator:test",
        verifier_image="verifier:test",
        admission_policy=POLICY,
        dry_start=True,
        instance="another",
    )
    kafka = operator.kafka
    found = reconcile.Reconciler(
        operator.kubernetes,
        settings,
        lambda *_: ClusterClients(kafka, kafka, kafka, lambda: FakeBrokerRecords(kafka)),
        FaithfulDryStarts(kafka),
    )
    leases = Leases(operator.kubernetes, "another", lambda: operator.clock.now.timestamp())
    found._leases = found._actuator._leases = leases
    for each in found._observers.values():
        each._leases = leases
    return found


def world(operator: Operator) -> dict[Any, Any]:
    """Return everything that an act can change."""
    objects = {k: v for k, v in operator.kubernetes.objects.items() if k[0] not in OWN}
    kafka = operator.kafka
    stores = {"claimed": kafka.claimed, "canary": kafka.canary, "level": kafka.level, "modes": kafka.broker_modes()}
    return copy.deepcopy({**objects, "stores": stores})


def freeze(operator: Operator, at: Callable[[str, str, str], bool], meanwhile: Callable[[], None]) -> dict[Any, Any]:
    """Take steps until a write is frozen, let something happen meanwhile, and let the step end; return the world as the first found it."""
    found: list[dict[Any, Any]] = []

    def before(verb: str, kind: str, name: str) -> None:
        if found or verb in READ_VERBS | {"replace_status"} or not at(verb, kind, name):
            return
        found.append({})
        meanwhile()
        operator.kubernetes.settle()
        found[0] = world(operator)

    operator.kubernetes.before_call = before
    for _ in range(120):
        operator.step()
        if found:
            return found[0]
    raise AssertionError("nothing was frozen")


def lead(operator: Operator, to: Phase) -> None:
    """Let another process lead the migration to a phase, and rest there."""
    process = another(operator)
    rest = 0
    for _ in range(300):
        operator.clock.advance(2)
        operator.kubernetes.settle()
        process.step("kafka", "demo")
        rest = rest + 1 if operator.status().phase is to else 0
        if rest == 6:
            process.close()
            return
    raise AssertionError(f"{to} was not reached: {operator.status().phase}: {operator.status().message}")


BACK = [
    ("apply", "StatefulSet", "kafka"),
    ("merge_patch", "StatefulSet", "kafka"),
    ("strategic_patch", "StatefulSet", "kafka"),
    ("evict", "Pod", "kafka-"),
    ("delete", "StatefulSet", "demo-kraft-"),
    ("delete", "Pod", "demo-kraft-"),
    ("merge_patch", "ConfigMap", ""),
    ("apply", "ConfigMap", "demo-"),
]


@pytest.mark.parametrize("call", BACK, ids="-".join)
def test_what_a_rollback_was_about_to_do_is_not_done_after_another_has_ended_it(operator: Operator, call: Call) -> None:
    """Nobody edits the spec: only StatefulSets, Lease and status tell."""
    operator.edit(target="KRaftBrokers")
    operator.walk(Phase.AWAITING_FINALIZATION)
    operator.rest(3)
    operator.edit(target="ZooKeeper")
    left = freeze(
        operator, lambda *c: c[:2] == call[:2] and c[2].startswith(call[2]), lambda: lead(operator, Phase.ROLLED_BACK)
    )
    assert world(operator) == left
    assert ANNOTATION_LOCK not in operator.kubernetes.objects[KAFKA]["metadata"]["annotations"]
