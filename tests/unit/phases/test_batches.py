"""Which brokers are down together: what no partition may lose, what limits a batch, and how fast it is chosen."""

from __future__ import annotations

import time
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftbridge.models.assignments import Assignments, BudgetRoom, Replicas
from kraftbridge.phases.nodes import batches
from kraftbridge.phases.nodes.batches import going_alone, next_batch, planned, refusal

BROKERS = range(8)
ZONES = {broker: "abc"[broker % 3] for broker in range(60)}


def replicas(
    brokers: Sequence[int], in_sync: Sequence[int] | None = None, min_isr: int | None = 2, *, accepted: bool = False
) -> Replicas:
    held = frozenset(brokers)
    return Replicas("orders-3", held, held if in_sync is None else frozenset(in_sync), min_isr, accepted)


@st.composite
def partitions(draw: st.DrawFn) -> Replicas:
    held = draw(st.sets(st.sampled_from(BROKERS), min_size=1, max_size=5))
    lagging = draw(st.sets(st.sampled_from(sorted(held)), max_size=1)) if len(held) > 1 else set()
    min_isr = draw(st.sampled_from([1, 2, 3, None]))
    return replicas(sorted(held), sorted(held - lagging), min_isr, accepted=draw(st.booleans()))


@st.composite
def rolls(draw: st.DrawFn) -> tuple[list[int], Assignments, int, dict[int, str]]:
    pending = draw(st.permutations(BROKERS))[: draw(st.integers(1, len(BROKERS)))]
    zones = draw(st.sampled_from([{}, {b: "ab"[b % 2] for b in BROKERS}, {b: "a" for b in BROKERS if b > 1}]))
    budgets = draw(st.sampled_from([(), (BudgetRoom("kafka", frozenset(BROKERS), draw(st.integers(0, 4))),)]))
    found = Assignments(tuple(draw(st.lists(partitions(), max_size=12))), zones, budgets)
    alone = dict.fromkeys(draw(st.sets(st.sampled_from(BROKERS), max_size=2)), "it is the controller")
    return list(pending), found, draw(st.integers(1, 8)), alone


@given(rolls())
def test_no_partition_loses_more_than_it_may(roll: tuple[list[int], Assignments, int, dict[int, str]]) -> None:
    pending, found, most, alone = roll
    batch = set(next_batch(pending, found, most, alone).brokers)
    if len(batch) == 1:
        return  # what one broker at a time may take, the gate before it judges
    for each in found.replicas:
        lost, left = each.in_sync & batch, each.in_sync - batch
        if not lost:
            continue
        assert left, "the last in-sync replica is taken"
        if each.accepted:
            assert len(each.brokers & batch) <= 1
            continue
        assert each.min_isr is not None
        assert len(left) >= each.min_isr
        assert len(left) >= 2 or len(each.brokers) < 3


@given(rolls())
def test_a_batch_is_never_empty_or_larger_than_allowed(
    roll: tuple[list[int], Assignments, int, dict[int, str]],
) -> None:
    pending, found, most, alone = roll
    batch = next_batch(pending, found, most, alone)
    assert batch.brokers[0] == pending[0], "the order is that of one at a time"
    assert len(set(batch.brokers)) == len(batch.brokers) <= most
    assert set(batch.brokers) <= set(pending)
    assert bool(batch.limit) == (set(batch.brokers) != set(pending))
    if len(batch.brokers) == 1:
        return
    assert alone.keys().isdisjoint(batch.brokers)
    for budget in found.budgets:
        assert len(batch.brokers) <= budget.allowed
    if found.zones:
        assert len({found.zones.get(broker) for broker in batch.brokers}) == 1
        assert batch.brokers[0] in found.zones


@given(rolls())
def test_one_at_a_time_is_the_order_of_before(roll: tuple[list[int], Assignments, int, dict[int, str]]) -> None:
    pending, found, _, _ = roll
    plan = planned(pending, found, 1, None, copies=True)
    assert [batch.brokers for batch in plan] == [(broker,) for broker in pending]


@given(rolls())
def test_a_plan_takes_each_broker_once_and_some_alone(
    roll: tuple[list[int], Assignments, int, dict[int, str]],
) -> None:
    pending, found, most, _ = roll
    plan = planned(pending, found, most, pending[-1], copies=True)
    gone = [broker for batch in plan for broker in batch.brokers]
    assert sorted(gone) == sorted(pending)
    assert plan[0].brokers == (pending[0],)
    assert plan[-1].brokers == (pending[-1],)


@given(rolls())
def test_what_may_be_stopped_one_after_another_is_a_batch_or_part_of_one(
    roll: tuple[list[int], Assignments, int, dict[int, str]],
) -> None:
    """The question before each eviction has the same answer as the choice, as long as nothing changes."""
    pending, found, most, alone = roll
    batch = next_batch(pending, found, most, alone).brokers
    for position in range(1, len(batch)):
        assert not refusal(found, batch[:position], batch[position])


@pytest.mark.parametrize("still_listed", [True, False])
def test_before_an_eviction_the_brokers_that_left_count_once(*, still_listed: bool) -> None:
    in_sync = [0, 1, 2, 3] if still_listed else [1, 2, 3]
    four = Assignments((replicas([0, 1, 2, 3], in_sync),))
    assert not refusal(four, [0], 1)
    three = Assignments((replicas([0, 1, 2], in_sync[:-1]),))
    assert "orders-3" in refusal(three, [0], 1)


def test_a_broker_that_dies_in_its_batch_ends_it() -> None:
    fine = Assignments((replicas([0, 4, 5]), replicas([1, 5, 6])))
    assert next_batch([0, 1], fine, 2, {}).brokers == (0, 1)
    broker_5_died = Assignments((replicas([0, 4, 5], [4]), replicas([1, 5, 6], [1, 6])))
    assert refusal(broker_5_died, [0], 1) == "orders-3 has 2 of 3 replicas in sync and min.insync.replicas 2"


@pytest.mark.parametrize(
    ("of", "words"),
    [
        (Assignments((replicas([0, 1, 2]),)), "broker 1 would take one replica too many: orders-3 has 3 of 3"),
        (Assignments((replicas([0, 1, 2]),)), "neither broker.rack nor the nodes' labels name zones"),
        (Assignments((), {0: "a", 1: "b", 2: "c"}), "2 of the brokers that are left are not in zone a"),
        (Assignments((), {1: "b"}), "broker 0 names no zone"),
        (Assignments((), {}, (BudgetRoom("kafka", frozenset({0, 1, 2}), 1),)), "PodDisruptionBudget kafka allows 1"),
        (Assignments((replicas([0]),)), "broker 0 goes alone: orders-3 has 1 of 1 replicas in sync"),
        (Assignments((replicas([0, 3, 4], min_isr=None),)), "an unknown min.insync.replicas"),
    ],
)
def test_what_limits_a_batch_is_told(of: Assignments, words: str) -> None:
    batch = next_batch([0, 1, 2], of, 3, {})
    assert words in batch.limit


@pytest.mark.parametrize("in_sync", [[2], []], ids=str)
def test_replicas_of_a_partition_that_lacks_too_many_by_any_answer_go_alone(in_sync: list[int]) -> None:
    """One of the brokers that were asked may know less than the others: then the others' in-sync replicas are more."""
    stale = Assignments((replicas([0, 1, 2], in_sync),))
    assert next_batch([0, 1, 2], stale, 3, {}).brokers == (0,)
    assert next_batch([3, 0, 1], stale, 3, {}).brokers == (3,)
    assert "orders-3" in refusal(stale, [0], 1)


def test_partitions_of_three_replicas_keep_two_in_sync_copies() -> None:
    loose = Assignments((replicas([0, 1, 2], min_isr=1),))
    assert next_batch([0, 1], loose, 2, {}).brokers == (0,)
    five = Assignments((replicas([0, 1, 2, 3, 4], min_isr=2),))
    assert next_batch(list(range(5)), five, 5, {}).brokers == (0, 1, 2)


def test_a_topic_that_the_user_accepts_loses_one_replica() -> None:
    at_min_isr = Assignments((replicas([0, 1], accepted=True),))
    assert next_batch([0, 1, 2], at_min_isr, 3, {}).brokers == (0, 2)
    lone = Assignments((replicas([1], min_isr=1, accepted=True),))
    assert next_batch([0, 1, 2], lone, 3, {}).brokers == (0, 2)
    assert next_batch([1, 2], lone, 2, {}).brokers == (1,)


def test_who_goes_alone() -> None:
    assert going_alone([3, 4, 5], 5, is_first=True, copies=False) == {3: batches.FIRST, 5: batches.CONTROLLER}
    assert going_alone([3, 4, 5], None, is_first=False, copies=True) == {5: batches.LAST}
    assert not going_alone([], None, is_first=True, copies=True)


def large(*, by_rack: bool) -> Assignments:
    """Return 20,000 partitions of three replicas on 60 brokers."""
    random = Random(33)
    by_zone = [[b for b in ZONES if ZONES[b] == zone] for zone in "abc"]
    found = []
    for _ in range(20_000):
        held = [random.choice(zone) for zone in by_zone] if by_rack else random.sample(range(60), 3)
        found.append(replicas(held))
    return Assignments(tuple(found), ZONES if by_rack else {})


def test_sixty_brokers_in_three_zones_take_at_most_sixteen_steps() -> None:
    plan = planned(range(60), large(by_rack=True), 5, 59, copies=True)
    assert len(plan) <= 16


def test_without_zones_sixty_brokers_go_one_at_a_time_and_the_plan_says_why() -> None:
    plan = planned(range(60), large(by_rack=False), 5, None, copies=False)
    assert len(plan) == 60
    assert "name zones" in plan[1].limit


def test_a_batch_of_sixty_brokers_is_chosen_in_well_under_a_second() -> None:
    found = large(by_rack=True)
    began = time.process_time()
    batch = next_batch(range(1, 60), found, 20, {})
    assert time.process_time() - began < 0.5
    assert len(batch.brokers) == 20
