"""Two operators, one StatefulSet: who holds the Lease, who waits, who takes over."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import pytest
from tests.support.fakes import Clock, FakeKubernetes, user_stateful_set

from kraftbridge.exceptions import ActionError, ConflictError
from kraftbridge.models.observation import LeaseState
from kraftbridge.phases.draft import Identity
from kraftbridge.services.leases import Leases, lease_name

OURS, OTHER = Identity("kafka", "demo", "uid-1", 1), Identity("kafka", "second", "uid-2", 1)


@dataclass
class Time:
    seconds: float = 100.0

    def __call__(self) -> float:
        return self.seconds


@dataclass
class Pair:
    kubernetes: FakeKubernetes
    clock: Clock
    time: Time
    one: Leases
    two: Leases

    def pass_time(self, seconds: float) -> None:
        self.time.seconds += seconds
        self.clock.advance(seconds)

    def hold(self, leases: Leases, identity: Identity) -> None:
        leases.hold(identity, "kafka", leases.look(identity, "kafka").resource_version, self.clock.now)


@pytest.fixture
def pair() -> Pair:
    clock, time = Clock(), Time()
    kubernetes = FakeKubernetes(clock)
    return Pair(kubernetes, clock, time, Leases(kubernetes, "op-1", time), Leases(kubernetes, "op-2", time))


def test_the_first_one_holds_and_the_other_sees_who_it_is(pair: Pair) -> None:
    assert pair.one.look(OURS, "kafka") == LeaseState()
    pair.hold(pair.one, OURS)
    seen = pair.two.look(OTHER, "kafka")
    assert seen.held_by_another
    assert seen.holder == "kafka/demo/uid-1 by op-1"
    mine = pair.one.look(OURS, "kafka")
    assert mine.ours
    assert mine.age_seconds == 0
    spec = pair.kubernetes.objects["Lease", "kafka", lease_name("kafka")]["spec"]
    assert spec["leaseDurationSeconds"] == 30
    assert spec["renewTime"] == "2026-03-04T05:06:07.000000Z"


def test_the_same_migration_in_another_operator_is_another_holder(pair: Pair) -> None:
    pair.hold(pair.one, OURS)
    assert pair.two.look(OURS, "kafka").held_by_another
    assert Leases(pair.kubernetes, "op-1", pair.time).look(OTHER, "kafka").held_by_another


def test_a_renewed_lease_never_expires_and_a_silent_one_is_taken_over(pair: Pair) -> None:
    pair.hold(pair.one, OURS)
    for _ in range(6):
        pair.two.look(OTHER, "kafka")
        pair.pass_time(10)
        pair.hold(pair.one, OURS)
        assert pair.two.look(OTHER, "kafka").held_by_another
    pair.pass_time(29)
    assert pair.two.look(OTHER, "kafka").held_by_another
    pair.pass_time(2)
    assert pair.two.look(OTHER, "kafka").expired
    pair.hold(pair.two, OTHER)
    assert pair.one.look(OURS, "kafka").held_by_another
    assert pair.kubernetes.objects["Lease", "kafka", lease_name("kafka")]["spec"]["leaseTransitions"] == 1


def test_whose_clock_is_wrong_does_not_matter(pair: Pair) -> None:
    pair.hold(pair.one, OURS)
    pair.clock.advance(-3600)  # its renewTime lies in the other's future; only that it changes counts
    assert pair.two.look(OTHER, "kafka").held_by_another
    pair.time.seconds += 31
    assert pair.two.look(OTHER, "kafka").expired


def test_of_two_that_take_it_at_once_one_gets_a_conflict(pair: Pair) -> None:
    pair.two.look(OTHER, "kafka")
    pair.hold(pair.one, OURS)
    with pytest.raises(ConflictError):
        pair.two.hold(OTHER, "kafka", "", pair.clock.now)
    stale = pair.one.look(OURS, "kafka").resource_version
    pair.hold(pair.one, OURS)
    with pytest.raises(ConflictError):
        pair.two.hold(OTHER, "kafka", stale, pair.clock.now)


def test_a_new_process_of_the_same_pod_renews_before_it_trusts(pair: Pair) -> None:
    pair.hold(pair.one, OURS)
    again = Leases(pair.kubernetes, "op-1", pair.time)
    state = again.look(OURS, "kafka")
    assert state.ours
    assert state.age_seconds >= 30
    pair.hold(again, OURS)
    assert again.look(OURS, "kafka").age_seconds == 0


def test_only_ones_own_is_released(pair: Pair) -> None:
    pair.hold(pair.one, OURS)
    pair.two.look(OTHER, "kafka")
    pair.two.release(OTHER, "kafka")
    pair.two.release_all()
    assert pair.one.look(OURS, "kafka").ours
    pair.one.release(OURS, "kafka")
    assert pair.two.look(OTHER, "kafka") == LeaseState()


def test_at_a_graceful_end_a_successor_need_not_wait(pair: Pair) -> None:
    pair.hold(pair.one, OURS)
    pair.one.release_all()
    seen = pair.two.look(OURS, "kafka")
    assert (seen.holder, seen.held_by_another) == ("", False)
    pair.hold(pair.two, OURS)
    assert pair.two.look(OURS, "kafka").ours


def test_whoever_takes_a_lease_over_changes_the_version_of_the_stateful_set_once(pair: Pair) -> None:
    pair.kubernetes.create(user_stateful_set())
    key = ("StatefulSet", "kafka", "kafka")
    before = copy.deepcopy(pair.kubernetes.objects[key])

    def version() -> str:
        return str(pair.kubernetes.objects[key]["metadata"]["resourceVersion"])

    pair.hold(pair.one, OURS)
    pair.pass_time(10)
    pair.hold(pair.one, OURS)
    assert version() == before["metadata"]["resourceVersion"]
    pair.two.look(OURS, "kafka")
    pair.pass_time(31)
    pair.hold(pair.two, OURS)
    taken = version()
    assert taken != before["metadata"]["resourceVersion"]
    pair.pass_time(10)
    pair.hold(pair.two, OURS)
    assert version() == taken
    after = copy.deepcopy(pair.kubernetes.objects[key])
    assert (after["spec"], after["metadata"]["generation"]) == (before["spec"], before["metadata"]["generation"])
    assert not after["metadata"].get("annotations")


def test_a_take_over_that_did_not_reach_the_stateful_set_is_repeated(pair: Pair) -> None:
    pair.kubernetes.create(user_stateful_set())
    pair.hold(pair.one, OURS)
    pair.two.look(OURS, "kafka")
    pair.pass_time(31)

    def fail(verb: str, kind: str, _name: str) -> None:
        if (verb, kind) == ("merge_patch", "StatefulSet"):
            raise ActionError("503")

    pair.kubernetes.before_call = fail
    with pytest.raises(ActionError):
        pair.hold(pair.two, OURS)
    pair.kubernetes.before_call = lambda *_: None
    seen = pair.two.look(OURS, "kafka")
    assert seen.ours
    assert seen.expired, "an act does not rest on it"
    version = pair.kubernetes.objects["StatefulSet", "kafka", "kafka"]["metadata"]["resourceVersion"]
    pair.hold(pair.two, OURS)
    assert pair.kubernetes.objects["StatefulSet", "kafka", "kafka"]["metadata"]["resourceVersion"] != version
    assert not pair.two.look(OURS, "kafka").expired


def test_a_lease_that_another_takes_over_while_it_is_released_stays(pair: Pair) -> None:
    pair.hold(pair.one, OURS)
    pair.two.look(OTHER, "kafka")
    pair.pass_time(31)

    def take_over(verb: str, kind: str, _name: str) -> None:
        if (verb, kind) == ("delete", "Lease"):
            pair.kubernetes.before_call = lambda *_: None
            pair.hold(pair.two, OTHER)

    pair.kubernetes.before_call = take_over
    with pytest.raises(ConflictError):
        pair.one.release(OURS, "kafka")
    assert pair.two.look(OTHER, "kafka").ours
