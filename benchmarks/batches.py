"""``python -m benchmarks.batches``: how many steps a roll of a large cluster takes, and how fast a batch is chosen."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Final, TypeVar

from kraftbridge.models.assignments import Assignments, Replicas
from kraftbridge.phases.nodes import batches

T = TypeVar("T")
REPLICATION: Final = 3
MIN_ISR: Final = 2
ZONES: Final = ("a", "b", "c")
MOST_STEPS: Final = 16
MOST_SECONDS: Final = 1.0
_SEED: Final = 33
_TRIES: Final = 3


@dataclass(frozen=True)
class Size:
    """Size of the cluster, and how many brokers may be down together."""

    brokers: int
    partitions: int
    most: int


@dataclass(frozen=True)
class Goal:
    """A figure beside its goal."""

    what: str
    measured: str
    wanted: str
    met: bool


def spread_over_zones(size: Size) -> Assignments:
    """Return partitions with a replica in each zone, as Kafka assigns them where ``broker.rack`` is set (KIP-36)."""
    random = Random(_SEED)  # noqa: S311 - the same cluster each time
    zones = {broker: ZONES[broker % len(ZONES)] for broker in range(size.brokers)}
    of_zone = [[broker for broker in zones if zones[broker] == zone] for zone in ZONES]
    held = (frozenset(random.choice(brokers) for brokers in of_zone) for _ in range(size.partitions))
    return Assignments(_replicas(held), zones)


def spread_at_random(size: Size) -> Assignments:
    """Return partitions with replicas on any brokers, as Kafka assigns them without ``broker.rack``."""
    random = Random(_SEED)  # noqa: S311 - the same cluster each time
    held = (frozenset(random.sample(range(size.brokers), REPLICATION)) for _ in range(size.partitions))
    return Assignments(_replicas(held))


def _replicas(held: Iterable[frozenset[int]]) -> tuple[Replicas, ...]:
    return tuple(Replicas(f"topic-{number}", brokers, brokers, MIN_ISR) for number, brokers in enumerate(held))


def measure(size: Size) -> list[Goal]:
    """Choose batches and print them; return the figures beside their goals."""
    order = range(size.brokers)
    zoned, random = spread_over_zones(size), spread_at_random(size)
    print(
        f"{size.brokers} brokers, {size.partitions} partitions of {REPLICATION} replicas, min.insync.replicas {MIN_ISR}"
    )
    batch, chosen_in = _timed(lambda: batches.next_batch(order[1:], zoned, size.most, {}))
    plan, planned_in = _timed(lambda: batches.planned(order, zoned, size.most, size.brokers - 1, copies=True))
    print(f"{len(ZONES)} zones, maxUnavailable {size.most}: {[len(each.brokers) for each in plan]}")
    alone = batches.planned(order, random, size.most, None, copies=False)
    print(f"no zones, maxUnavailable {size.most}: {len(alone)} steps; {alone[1].limit}")
    return [
        _at_most("steps of a roll over three zones", len(plan), MOST_STEPS),
        _at_most(f"seconds to choose a batch of {len(batch.brokers)}", chosen_in, MOST_SECONDS),
        _at_most("seconds to plan a roll", planned_in, MOST_SECONDS * len(plan)),
        Goal(
            "brokers at a time without zones",
            str(max(len(each.brokers) for each in alone)),
            "1",
            met=len(alone) == size.brokers,
        ),
    ]


def _at_most(what: str, measured: float, most: float) -> Goal:
    return Goal(what, f"{measured:.3g}", f"at most {most:g}", met=measured <= most)


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    """Return the result, and the least processor time of three tries: other work on the machine does not count."""
    taken = []
    for _ in range(_TRIES):
        began = time.process_time()
        result = work()
        taken.append(time.process_time() - began)
    return result, min(taken)


def main() -> int:
    """Measure, print each figure beside its goal, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.batches", description=__doc__)
    parser.add_argument("--brokers", type=int, default=60)
    parser.add_argument("--partitions", type=int, default=20_000)
    parser.add_argument("--most", type=int, default=5, metavar="N", help="spec.strategy.maxUnavailable")
    options = parser.parse_args()
    goals = measure(Size(options.brokers, options.partitions, options.most))
    for goal in goals:
        print(f"{'met' if goal.met else 'MISSED':8}{goal.what}: {goal.measured}, goal {goal.wanted}")
    return 0 if all(goal.met for goal in goals) else 1


if __name__ == "__main__":
    sys.exit(main())
