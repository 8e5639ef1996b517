"""An operator freezes (SIGSTOP, a paused node) within an act; another one takes the Lease over and decides otherwise; then the first wakes up."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from tests.support.fakes import FaithfulDryStarts, fake_clients, migration_object
from tests.unit.services.conftest import POLICY, Operator

from kraftbridge.config import Settings
from kraftbridge.constants import ANNOTATION_LOCK, KIND
from kraftbridge.models.phase import Phase
from kraftbridge.services import reconcile
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
        lambda *_: fake_clients(kafka),
        FaithfulDryStarts(kafka),
    )
    leases = Leases(operator.kubernetes, "another", lambda: operator.clock.now.timestamp())  # noqa: PLW0108 - the clock moves
    found._leases = found._actuator._leases = leases
    for each in found._observers.values():
        each._leases = leases
    return found


def world(operator: Operator) -> dict[Any, Any]:
    """Return everything that an act can change. Claims stay when a StatefulSet goes: the operator has no right to delete them."""
    kinds = OWN | {"PersistentVolumeClaim"}
    objects = {k: v for k, v in operator.kubernetes.objects.items() if k[0] not in kinds}
    kafka = operator.kafka
    stores = {"claimed": kafka.claimed, "canary": kafka.canary, "level": kafka.level, "modes": kafka.broker_modes()}
    return copy.deepcopy({**objects, "stores": stores})


def freeze(
    operator: Operator, at: Callable[[str, str, str], bool], meanwhile: Callable[[], None], *, after: bool = False
) -> dict[Any, Any]:
    """Take steps until a call is frozen, before the server has it or after; return the world that the first one woke up in."""
    found: list[dict[Any, Any]] = []

    def look(verb: str, kind: str, name: str) -> None:
        if not found and at(verb, kind, name):
            found.append({})
            meanwhile()
            operator.kubernetes.settle()
            found[0] = world(operator)

    if after:
        operator.kubernetes.after_call = look
    else:
        operator.kubernetes.before_call = look
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


THERE = [
    ("apply", "StatefulSet", "demo-kraft-"),
    ("create", "SparkApplication", "demo-"),
    ("create", "Secret", "demo-kraft-"),
    ("create", "Secret", "demo-before-"),
    ("create", "Job", "demo-00000011-2"),
    ("merge_patch", "StatefulSet", "kafka"),
    ("apply", "StatefulSet", "kafka"),
    ("evict", "Pod", "kafka-"),
    ("merge_patch", "ConfigMap", "demo-00000011-3"),
]


@pytest.mark.parametrize("call", THERE, ids="-".join)
def test_what_a_phase_was_about_to_do_is_not_done_after_another_has_rolled_back(operator: Operator, call: Call) -> None:
    def roll_back() -> None:
        operator.edit(target="ZooKeeper")
        lead(operator, Phase.ROLLED_BACK)

    left = freeze(operator, lambda *c: c[:2] == call[:2] and c[2].startswith(call[2]), roll_back)
    assert world(operator) == left


def test_an_act_in_kafka_is_not_done_after_another_has_decided(operator: Operator) -> None:
    """The archive of the znodes is frozen; the claim in ZooKeeper is removed after it."""
    operator.edit(target="DualWrite")
    operator.walk(Phase.DUAL_WRITE)
    operator.edit(target="ZooKeeper")
    removed: list[int] = []
    operator.kafka.remove_controller_claim = removed.append  # type: ignore[method-assign]

    def decide_otherwise() -> None:
        live = operator.migration()
        live["status"]["attempt"] += 1

    def published(verb: str, _kind: str, _name: str) -> bool:
        rollback = operator.status().rollback
        return verb == "replace_status" and rollback is not None and rollback.claim_removed_at is not None

    freeze(operator, published, decide_otherwise, after=True)
    assert removed == []


def test_another_resource_of_the_same_name_is_another_migration(operator: Operator) -> None:
    operator.walk(Phase.TAKING_OVER)
    uid = operator.migration()["metadata"]["uid"]

    def create_anew() -> None:
        earlier = copy.deepcopy(operator.migration())
        operator.reconciler.let_go("kafka", "demo", uid)
        operator.kubernetes.delete("", KIND, "kafka", "demo")
        operator.kubernetes.create(migration_object(earlier["spec"]))

    left = freeze(operator, lambda *c: c == ("apply", "StatefulSet", "kafka"), create_anew)
    assert operator.migration()["metadata"]["uid"] != uid
    assert world(operator) == left


def test_what_is_left_of_a_deletion_unlocks_nothing_of_the_next_migration(operator: Operator) -> None:
    operator.walk(Phase.DUAL_WRITE)
    left = world(operator)
    operator.reconciler.let_go("kafka", "demo", "uid-of-an-earlier-one")
    operator.reconciler.abandon("kafka", "demo", "uid-of-an-earlier-one")
    assert world(operator) == left


def test_a_lock_that_changes_owner_while_it_is_removed_stays(operator: Operator) -> None:
    operator.walk(Phase.DUAL_WRITE)

    def lock(verb: str, kind: str, _name: str) -> None:
        if (verb, kind) == ("merge_patch", "StatefulSet"):
            operator.kubernetes.before_call = lambda *_: None
            patch = {"metadata": {"annotations": {ANNOTATION_LOCK: "kafka/demo/another-uid"}}}
            operator.kubernetes.merge_patch("", *KAFKA, patch)

    operator.kubernetes.before_call = lock
    operator.reconciler.let_go("kafka", "demo")
    annotations = operator.kubernetes.objects[KAFKA]["metadata"]["annotations"]
    assert annotations[ANNOTATION_LOCK] == "kafka/demo/another-uid"


@pytest.mark.parametrize("kind", ["Pod", "StatefulSet"])
def test_a_template_that_somebody_changes_in_between_is_looked_at_again(operator: Operator, kind: str) -> None:
    """A restart would start the broker on a mixture that nobody has seen."""
    verb = {"Pod": "evict", "StatefulSet": "apply"}[kind]
    operator.walk(Phase.TAKING_OVER)

    def published(called: str, _kind: str, _name: str) -> bool:
        said = operator.status()
        return called == "replace_status" and (
            said.operation is not None or (verb == "apply" and "applied" in said.message)
        )

    def upgrade() -> None:
        operator.kubernetes.calls.clear()
        patch = {"spec": {"template": {"metadata": {"annotations": {"release": "next"}}}}}
        operator.kubernetes.merge_patch("", *KAFKA, patch)

    left = freeze(operator, published, upgrade, after=True)
    assert world(operator) == left
    operator.kubernetes.after_call = lambda *_: None
    operator.walk(Phase.AWAITING_FINALIZATION, steps=200)
    assert (verb, kind) in {c[:2] for c in operator.kubernetes.calls}


def test_twenty_writes_of_status_a_second_hold_nothing_back(operator: Operator) -> None:
    """Each call takes 10 ms; the StatefulSets' status and the migration's own labels are written every 50 ms on average.

    A fixed period would hit each try of a write that takes five calls at the same place, for ever or never.
    """
    calls = itertools.count(1)
    versions = itertools.count(10**6)
    random = Random(1)
    due = [5]

    def time_passes(*_: str) -> None:
        if next(calls) >= due[0]:
            due[0] += random.choice([3, 4, 5, 6, 7])
            for key, obj in operator.kubernetes.objects.items():
                if key[0] in ("StatefulSet", "Pod", KIND):
                    obj["metadata"]["resourceVersion"] = str(next(versions))

    operator.kubernetes.before_call = time_passes
    operator.walk(Phase.AWAITING_FINALIZATION)
    operator.edit(target="ZooKeeper")
    operator.walk(Phase.ROLLED_BACK)
    assert set(operator.kafka.broker_modes().values()) == {"zookeeper"}


def test_an_edit_of_the_spec_between_publishing_and_acting_is_decided_on_first(operator: Operator) -> None:
    operator.walk(Phase.TAKING_OVER)

    def published(verb: str, _kind: str, _name: str) -> bool:
        return verb == "replace_status" and "locked" in operator.status().message

    left = freeze(operator, published, lambda: operator.edit(target="ZooKeeper"), after=True)
    assert world(operator) == left
    operator.walk(Phase.ROLLED_BACK)
