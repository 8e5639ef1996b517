"""Chooses the brokers that are down together. Pure.

A batch begins with the broker that would restart alone, so one broker at a time is a batch of one. Another broker joins
it if no partition loses too many replicas by both, if it is in the same zone, and if the PodDisruptionBudgets allow it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kraftbridge.models.assignments import Assignments, BudgetRoom, Replicas

_HAS_THREE: Final = 3
_KEEPS: Final = 2
"""In-sync copies that a partition of three replicas keeps, whatever its ``min.insync.replicas``."""
FIRST: Final = "it is the first in its mode, which the others follow once it is compared"
CONTROLLER: Final = "it is ZooKeeper's controller"
LAST: Final = "Kafka's copy begins with it"


@dataclass(frozen=True, slots=True)
class Batch:
    """Brokers that are down together."""

    brokers: tuple[int, ...]
    """In the order in which they are stopped."""
    limit: str = ""
    """Why it is not larger; empty if no other broker is left."""


def room_of(replicas: Replicas) -> int:
    """Return how many of its in-sync replicas a partition may lose to one batch of several brokers.

    An accepted topic loses one replica at most, and never the last one in sync.
    """
    in_sync = len(replicas.in_sync)
    if replicas.accepted:
        return min(1, in_sync - 1)
    if replicas.min_isr is None:
        return 0
    kept = max(1, replicas.min_isr)
    if len(replicas.brokers) >= _HAS_THREE:
        kept = max(kept, _KEEPS)
    return in_sync - kept


class Spread:
    """The partitions by broker.

    Parameters
    ----------
    replicas
        The partitions.
    brokers
        Brokers that are asked about.
    """

    def __init__(self, replicas: Iterable[Replicas], brokers: Iterable[int]) -> None:
        self._of: dict[int, list[int]] = {broker: [] for broker in brokers}
        self._all = tuple(replicas)
        self._room = [room_of(each) for each in self._all]
        for number, each in enumerate(self._all):
            # An accepted topic loses one replica to a batch, in sync or not. Of a partition that has fewer in sync than
            # it keeps, a broker whose answer is old may have left out one that is.
            losing = each.brokers if each.accepted or self._room[number] < 0 else each.in_sync
            for broker in losing & self._of.keys():
                self._of[broker].append(number)

    def take(self, broker: int, taken: dict[int, int]) -> None:
        """Count what the partitions lose by a broker."""
        for number in self._of[broker]:
            taken[number] = taken.get(number, 0) + 1

    def refusal(self, broker: int, taken: Mapping[int, int]) -> Replicas | None:
        """Return a partition that would lose too many replicas by this broker, after what others took from it."""
        for number in self._of[broker]:
            if taken.get(number, 0) >= self._room[number]:
                return self._all[number]
        return None


@dataclass(slots=True)
class _Chosen:
    """A batch that is being chosen."""

    brokers: list[int]
    taken: dict[int, int] = field(default_factory=dict)
    budgets: list[BudgetRoom] = field(default_factory=list)


@dataclass(slots=True)
class _Refused:
    """Brokers that did not join a batch, by what kept them from it."""

    alone: list[int] = field(default_factory=list)
    elsewhere: list[int] = field(default_factory=list)
    sharing: list[tuple[int, Replicas]] = field(default_factory=list)
    budgets: dict[str, int] = field(default_factory=dict)
    """What each PodDisruptionBudget that stood in the way allows."""


def next_batch(
    pending: Sequence[int],
    assignments: Assignments,
    most: int,
    alone: Mapping[int, str],
    spread: Spread | None = None,
) -> Batch:
    """Return the brokers that go next, and why they are not more.

    Parameters
    ----------
    pending
        Brokers that are to be restarted, in the order of a roll of one at a time. The first of them always goes.
    assignments
        Where the replicas are, the zones and the PodDisruptionBudgets.
    most
        Largest size of a batch.
    alone
        Brokers that go alone, and why.
    spread
        The replicas by broker, where they are at hand.
    """
    if not pending:
        return Batch(())
    first = pending[0]
    if len(pending) == 1:
        return Batch((first,))
    if most <= 1:
        return Batch((first,), "spec.strategy.maxUnavailable allows 1")
    if first in alone:
        return Batch((first,), f"broker {first} goes alone: {alone[first]}")
    spread = spread or Spread(assignments.replicas, pending)
    if (bare := spread.refusal(first, {})) is not None:
        return Batch((first,), f"broker {first} goes alone: {_state(bare)}")
    return _filled(pending, assignments, most, alone, spread)


def _filled(
    pending: Sequence[int], assignments: Assignments, most: int, alone: Mapping[int, str], spread: Spread
) -> Batch:
    first, *others = pending
    chosen = _Chosen([first])
    refused = _Refused()
    spread.take(first, chosen.taken)
    zone = assignments.zones.get(first)
    for broker in others:
        if len(chosen.brokers) >= most:
            return Batch(tuple(chosen.brokers), f"spec.strategy.maxUnavailable allows {most}")
        if broker in alone:
            refused.alone.append(broker)
        elif assignments.zones and (zone is None or assignments.zones.get(broker) != zone):
            refused.elsewhere.append(broker)
        elif (shared := spread.refusal(broker, chosen.taken)) is not None:
            refused.sharing.append((broker, shared))
        elif (full := _full_budget(broker, chosen.brokers, assignments.budgets)) is not None:
            refused.budgets[full.name] = full.allowed
        else:
            spread.take(broker, chosen.taken)
            chosen.brokers.append(broker)
    return Batch(tuple(chosen.brokers), "; ".join(_words(refused, first, zone, assignments.zones)))


def _full_budget(broker: int, chosen: Sequence[int], budgets: Iterable[BudgetRoom]) -> BudgetRoom | None:
    """Return a budget that does not allow this broker beside those that are chosen."""
    for budget in budgets:
        if broker in budget.brokers and len(budget.brokers.intersection(chosen)) >= budget.allowed:
            return budget
    return None


def _words(refused: _Refused, first: int, zone: str | None, zones: Mapping[int, str]) -> Iterator[str]:
    for name, allowed in refused.budgets.items():
        yield f"PodDisruptionBudget {name} allows {allowed}"
    if refused.sharing:
        broker, shared = refused.sharing[0]
        more = f", and {len(refused.sharing) - 1} more brokers likewise" if len(refused.sharing) > 1 else ""
        yield f"broker {broker} would take one replica too many: {_state(shared)}{more}"
        if not zones:
            yield "neither broker.rack nor the nodes' labels name zones"
    if zones and zone is None:
        yield f"broker {first} names no zone"
    elif refused.elsewhere:
        yield f"{len(refused.elsewhere)} of the brokers that are left are not in zone {zone}"
    if refused.alone:
        yield f"{len(refused.alone)} of the brokers that are left go alone"


def _state(replicas: Replicas) -> str:
    """Return what a partition has and needs."""
    need = "an unknown min.insync.replicas" if replicas.min_isr is None else f"min.insync.replicas {replicas.min_isr}"
    return f"{replicas.example} has {len(replicas.in_sync)} of {len(replicas.brokers)} replicas in sync and {need}"


def refusal(assignments: Assignments, stopped: Sequence[int], broker: int) -> str:
    """Return why a broker of a batch must not be stopped now, after others of it; ``""`` if it may.

    Parameters
    ----------
    assignments
        As they are read right before.
    stopped
        Brokers of the batch that were stopped and are not back.
    broker
        The next one.
    """
    spread = Spread(assignments.replicas, {*stopped, broker})
    taken: dict[int, int] = {}
    for other in stopped:
        spread.take(other, taken)
    lacking = spread.refusal(broker, taken)
    return "" if lacking is None else _state(lacking)


def planned(
    order: Sequence[int], assignments: Assignments, most: int, controller: int | None, *, copies: bool
) -> tuple[Batch, ...]:
    """Return the batches of a whole roll, as long as nothing changes.

    Parameters
    ----------
    order
        All brokers in the order of a roll of one at a time.
    assignments
        Where the replicas are, with every broker in sync.
    most
        Largest size of a batch.
    controller
        Broker that is ZooKeeper's controller, None if none is.
    copies
        Whether Kafka's copy begins with the last broker.
    """
    spread = Spread(assignments.replicas, order) if most > 1 else None
    pending = list(order)
    batches: list[Batch] = []
    while pending:
        alone = going_alone(pending, controller, is_first=not batches, copies=copies)
        batch = next_batch(pending, assignments, most, alone, spread)
        batches.append(batch)
        gone = set(batch.brokers)
        pending = [broker for broker in pending if broker not in gone]
    return tuple(batches)


def going_alone(pending: Sequence[int], controller: int | None, *, is_first: bool, copies: bool) -> dict[int, str]:
    """Return the brokers that go alone, and why.

    Parameters
    ----------
    pending
        Brokers that are to be restarted, in the order of a roll of one at a time.
    controller
        Broker that is ZooKeeper's controller, None if none is.
    is_first
        Whether no broker runs the new mode yet.
    copies
        Whether Kafka's copy begins with the last broker.
    """
    found: dict[int, str] = {}
    if copies and pending:
        found[pending[-1]] = LAST
    if controller is not None:
        found[controller] = CONTROLLER
    if is_first and pending:
        found[pending[0]] = FIRST
    return found
