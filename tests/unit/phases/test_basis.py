"""What an act rests on, and what overtakes it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.observations import NOW, Situation, rolling

from kraftbridge.models.decision import Decision, ReleaseLease
from kraftbridge.models.observation import LeaseState, StatefulSetState
from kraftbridge.models.phase import Phase
from kraftbridge.models.status import (
    LostQuorum,
    Operation,
    OperationKind,
    Reformat,
    RollbackStatus,
    ZooKeeperContradiction,
    ZooKeeperHistory,
)
from kraftbridge.phases.basis import Basis, StatefulSetVersion, basis_of, changed, intent, overtaken

DECIDED = Basis("u", 3, ("phase",), frozenset({"kafka"}), {"kafka": StatefulSetVersion("s", 7, "a/b/u")})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, ""),
        ({"stateful_sets": {}}, ""),
        ({"leases": frozenset({"kafka", "other"})}, ""),
        ({"uid": "v"}, "another one of the same name"),
        ({"uid": ""}, "gone"),
        ({"generation": 4}, "spec was edited"),
        ({"intent": ("another",)}, "another decision"),
        ({"intent": ()}, "another decision"),
        ({"leases": frozenset()}, "Lease on StatefulSet kafka"),
    ],
)
def test_what_overtakes_an_act(change: dict[str, Any], words: str) -> None:
    found = overtaken(DECIDED, replace(DECIDED, **change))
    assert words in found
    assert bool(found) is bool(words)


@pytest.mark.parametrize(
    ("present", "words"),
    [
        (StatefulSetVersion("s", 7, "a/b/u"), ""),
        (StatefulSetVersion("s", 8, "a/b/u"), "generation 7 became 8"),
        (StatefulSetVersion("s", 7, "a/b/v"), "lock on StatefulSet kafka became a/b/v"),
        (StatefulSetVersion("s", 7, ""), "became none"),
        (StatefulSetVersion("t", 1, "a/b/u"), "created anew"),
        (None, "deleted"),
    ],
)
def test_what_becomes_of_a_stateful_set(present: StatefulSetVersion | None, words: str) -> None:
    found = changed(DECIDED, "kafka", present)
    assert words in found
    assert bool(found) is bool(words)
    assert changed(DECIDED, "not-seen", present) == ""


def test_ones_own_write_is_carried_on() -> None:
    own = StatefulSetVersion("s", 8, "a/b/u")
    assert changed(DECIDED.with_stateful_set("kafka", own), "kafka", own) == ""
    assert DECIDED.with_stateful_set("kafka", None).name_of(frozenset({"s"})) == ""
    assert DECIDED.name_of(frozenset({"s", "x"})) == "kafka"


def fine(lease: LeaseState) -> Situation:
    situation = rolling(Phase.ROLLING_BROKERS, 1)
    (item,) = situation.observation.stateful_sets
    assert isinstance(item, StatefulSetState)
    return situation.observing(stateful_sets=(replace(item, lease=lease, generation=9),))


@pytest.mark.parametrize(
    ("lease", "held"),
    [
        (LeaseState("us", ours=True), True),
        (LeaseState("us", ours=True, expired=True), False),
        (LeaseState("another"), False),
        (LeaseState(), False),
    ],
)
def test_a_decision_rests_on_leases_that_were_held_and_on_stateful_sets_that_were_seen(
    lease: LeaseState, held: bool
) -> None:
    situation = fine(lease)
    found = basis_of(situation.identity, Decision(situation.status), situation.observation)
    assert bool(found.leases) is held
    (item,) = situation.observation.stateful_sets
    assert isinstance(item, StatefulSetState)
    assert found.stateful_sets[item.name] == StatefulSetVersion(item.uid, 9, item.lock)
    released = Decision(situation.status, (ReleaseLease(item.name),))
    assert not basis_of(situation.identity, released, situation.observation).leases


def contradicted(**changes: Any) -> ZooKeeperHistory:
    """Return a record of a ZooKeeper that another process has seen to contradict it."""
    found = ZooKeeperContradiction(id="attempt-1", what="/cluster/id is another", seen_at=NOW, **changes)
    return ZooKeeperHistory(attempt=1, cluster_id="c", seen_at=NOW, contradiction=found)


def test_words_of_the_status_are_no_intent() -> None:
    status = fine(LeaseState()).status
    words = {"message": "other words", "conditions": (), "observed_generation": 99, "progress_at": NOW, "waiting": None}
    assert intent(status.model_copy(update=words)) == intent(status)


@pytest.mark.parametrize(
    "change",
    [
        {"phase": Phase.ROLLING_BACK},
        {"attempt": 7},
        {
            "operation": Operation(
                kind=OperationKind.RESTART_BROKER, node_id=1, pod="kafka-1", pod_uid="u", started_at=NOW
            )
        },
        {"rollback": RollbackStatus(attempt=1, controllers_stopped_at=NOW)},
        {"given_back_at": NOW},
        {"verifications": ()},
        {"lost_quorum": LostQuorum(seen_at=NOW, voters=(3000, 3001))},
        {"zookeeper_history": contradicted()},
        {"zookeeper_history": contradicted(confirmed_at=NOW)},
    ],
    ids=lambda c: next(iter(c)),
)
def test_what_the_status_records_of_acts_is_intent(change: dict[str, Any]) -> None:
    status = fine(LeaseState()).status
    assert intent(status.model_copy(update=change)) != intent(status)


def test_the_word_that_lets_a_controller_format_is_intent() -> None:
    status = fine(LeaseState()).status
    assert status.controllers is not None
    word = Reformat(id=3001, claim_uid="u")
    controllers = status.controllers.model_copy(update={"reformat": word})
    assert intent(status.model_copy(update={"controllers": controllers})) != intent(status)
