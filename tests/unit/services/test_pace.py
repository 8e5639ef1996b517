"""Backoff of broken migrations, rest of idle ones, and how many roll at once."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.services.conftest import Operator

from kraftbridge.exceptions import ObservationError
from kraftbridge.models.observation import LEASE_SECONDS
from kraftbridge.models.phase import Phase
from kraftbridge.models.status import MigrationStatus, Waiting, WaitKind
from kraftbridge.services.fleet import Fleet
from kraftbridge.services.pace import Lane, Rolls, backoff_seconds, first_lane, idle_seconds, needs_place, spread


@pytest.mark.parametrize("phase", Phase)
def test_the_backoff_doubles_up_to_its_limit_and_a_lease_never_expires_meanwhile(phase: Phase) -> None:
    pauses = [backoff_seconds("some-uid", n, phase) for n in range(1, 12)]
    longest = 120 if phase.at_rest else LEASE_SECONDS / 3
    assert pauses == sorted(pauses)
    assert pauses[1] == pytest.approx(2 * pauses[0])
    assert 0.9 * longest <= pauses[-1] <= 1.1 * longest
    if not phase.at_rest:
        assert pauses[-1] < LEASE_SECONDS / 2


def test_migrations_do_not_back_off_in_step() -> None:
    assert len({backoff_seconds(f"uid-{i}", 5, Phase.PREFLIGHT) for i in range(50)}) > 40


def test_migrations_at_rest_are_not_looked_at_all_at_once() -> None:
    """After a start of the operator all of them begin together; a hundred steps at once hold up those that roll."""
    waiting = Waiting(kind=WaitKind.USER, since=datetime.now(UTC))
    done = MigrationStatus(phase=Phase.COMPLETED, waiting=waiting)
    pauses = {idle_seconds(f"uid-{i}", 5, 9, done) for i in range(50)}
    assert len(pauses) > 40
    assert 36 <= min(pauses) < max(pauses) <= 44


def test_a_migration_at_rest_is_looked_at_less_and_less_one_that_works_is_not() -> None:
    waiting = Waiting(kind=WaitKind.USER, since=datetime.now(UTC))
    done = MigrationStatus(phase=Phase.COMPLETED, waiting=waiting)
    pauses = [idle_seconds("uid-1", 5, n, done) for n in (0, 1, 2, 9)]
    assert pauses == [pytest.approx(spread("uid-1") * seconds) for seconds in (5, 10, 20, 40)]
    working = done.model_copy(update={"waiting": waiting.model_copy(update={"kind": WaitKind.WORK})})
    assert idle_seconds("uid-1", 0.5, 9, working) == 0.5
    soaking = done.model_copy(update={"phase": Phase.DUAL_WRITE})
    assert idle_seconds("uid-1", 5, 9, soaking) == 5, "its Lease is renewed with each step"


def test_who_is_not_known_yet_waits_for_neither_the_healthy_nor_the_slow_ones() -> None:
    assert first_lane(Phase.PREFLIGHT, stalled=False) is Lane.NEW
    assert first_lane(Phase.PREFLIGHT, stalled=True) is Lane.SLOW
    assert first_lane(Phase.ROLLING_BROKERS, stalled=True) is Lane.SLOW
    assert first_lane(Phase.ROLLING_BROKERS, stalled=False) is Lane.HEALTHY
    assert first_lane(Phase.COMPLETED, stalled=False) is Lane.HEALTHY


def test_a_cluster_that_does_not_answer_is_asked_less_often_and_an_edit_is_acted_on_at_once(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    uid = operator.migration()["metadata"]["uid"]

    def silent() -> None:
        raise ObservationError("Kafka", "no broker answered")

    monkeypatch.setattr(operator.kafka, "cluster_state", silent)
    waits = []
    for _ in range(9):
        operator.step()
        waits.append(round(operator.reconciler.due_in(uid)))
    assert operator.reconciler.lane(uid) is Lane.SLOW
    assert waits[-1] > 60
    assert waits == sorted(waits)
    assert not operator.reconciler._clients, "clients would try to connect again all the time"
    operator.edit(paused=True)
    assert operator.reconciler.due(uid, operator.migration()["metadata"]["generation"])
    operator.edit(paused=False)
    monkeypatch.undo()
    operator.step()
    assert operator.reconciler.lane(uid) is Lane.HEALTHY
    assert operator.reconciler.due_in(uid) < 20


def test_a_short_outage_in_the_middle_of_a_roll_changes_nothing_in_the_pace(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator.walk(Phase.ROLLING_BROKERS)
    uid = operator.migration()["metadata"]["uid"]

    def silent() -> None:
        raise ObservationError("Kafka", "no broker answered")

    monkeypatch.setattr(operator.kafka, "cluster_state", silent)
    operator.step()
    assert operator.reconciler.due_in(uid) <= 2
    assert operator.reconciler.lane(uid) is Lane.HEALTHY
    for _ in range(12):
        operator.step()
        assert operator.reconciler.due_in(uid) < LEASE_SECONDS / 2


def test_only_so_many_roll_at_once() -> None:
    rolls = Rolls(2)
    assert rolls.take("a", "kafka")
    assert rolls.take("b", "kafka")
    assert rolls.take("a", "kafka"), "it rolls already"
    assert not rolls.free("c", "kafka")
    assert not rolls.take("c", "kafka")
    rolls.note("a", "kafka", needs_place=False)
    assert rolls.take("c", "kafka")
    rolls.note("d", "kafka", needs_place=True)
    assert not rolls.free("e", "kafka"), "a rollback counts, and never waits"
    rolls.forget("c")
    rolls.forget("b")
    assert rolls.free("e", "kafka")
    assert all(Rolls(0).take(str(i), "kafka") for i in range(100)), "0: any number"


def test_one_tenant_does_not_take_the_last_place() -> None:
    rolls = Rolls(5, keeps_last=True)
    assert all(rolls.take(str(i), "greedy") for i in range(4))
    assert not rolls.take("4", "greedy")
    assert rolls.take("honest", "other")
    assert not rolls.take("third", "another"), "the limit of all is kept"
    assert Rolls(1, keeps_last=True).take("a", "only"), "a single place is for everybody"


@pytest.mark.parametrize("phase", list(Phase))
def test_what_stands_still_by_its_users_will_takes_no_place(phase: Phase) -> None:
    rolls = phase.row.restarts_nodes
    assert needs_place(phase, None, stalled=False) is rolls
    for kind in (WaitKind.WORK, WaitKind.HOLD, WaitKind.VERIFICATION):
        assert needs_place(phase, kind, stalled=False) is rolls
        assert not needs_place(phase, kind, stalled=True)
    for kind in (WaitKind.USER, WaitKind.SOAK):
        assert not needs_place(phase, kind, stalled=False)


def test_a_paused_roll_gives_its_place_to_others_and_goes_on_without_one(operator: Operator) -> None:
    operator.edit(target="DualWrite")
    operator.walk(Phase.TAKING_OVER)
    rolls = operator.reconciler.rolls
    rolls._most = 1
    assert not rolls.free("another", "other")
    operator.edit(paused=True)
    operator.rest(40)
    assert rolls.take("another", "other")
    operator.edit(paused=False)
    operator.walk(Phase.DUAL_WRITE)


@pytest.mark.parametrize(
    ("status", "takes"),
    [
        ({"phase": "RollingBrokers"}, True),
        ({"phase": "RollingBrokers", "waiting": {"kind": "Work", "since": "2026-01-01T00:00:00Z"}}, True),
        ({"phase": "RollingBrokers", "waiting": {"kind": "User"}}, False),
        ({"phase": "RollingBrokers", "waiting": {"kind": "a word of a newer release"}}, True),
        ({"phase": "RollingBrokers", "waiting": "User"}, True),
        ({"phase": "RollingBrokers", "conditions": [{"type": "Stalled", "status": "True"}]}, False),
        ({"phase": "DualWrite"}, False),
    ],
)
def test_places_are_counted_from_what_the_watch_tells(operator: Operator, status: dict[str, Any], takes: bool) -> None:
    fleet = Fleet(operator.reconciler)
    operator.reconciler.rolls._most = 1
    fleet.note("uid-of-another", "other", status, 1, gone=False)
    assert operator.reconciler.rolls.free("uid-of-the-next", "third") is not takes


def test_a_migration_waits_until_another_has_rolled(operator: Operator) -> None:
    operator.edit(target="DualWrite")
    operator.reconciler.rolls._most = 1
    operator.reconciler.rolls.note("another", "other", needs_place=True)
    operator.rest(40)
    assert operator.status().phase is Phase.PROVISIONING_QUORUM
    assert "maxConcurrentRolls" in operator.status().message
    assert not [c for c in operator.kubernetes.calls if c[0] == "evict"]
    operator.reconciler.rolls.note("another", "other", needs_place=False)
    operator.walk(Phase.DUAL_WRITE)


def test_a_rollback_does_not_wait_for_a_place(operator: Operator) -> None:
    operator.edit(target="DualWrite")
    operator.walk(Phase.DUAL_WRITE)
    operator.reconciler.rolls._most = 1
    operator.reconciler.rolls.note("another", "other", needs_place=True)
    operator.edit(target="ZooKeeper")
    operator.walk(Phase.ROLLED_BACK, steps=200)
    assert Phase.ROLLING_BACK.row.restarts_nodes
