"""``python -m benchmarks.hundred``: what one step of the operator asks of a hundred brokers with 200,000 partitions."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks import proc
from benchmarks.fleet.goals import RSS_MIB, Goal
from benchmarks.fleet.scenario import ended
from benchmarks.hundred.asking import Cluster, Operator, Scene, Step
from benchmarks.hundred.servers import FILE, Size, Told, told
from kraftbridge.models.phase import Phase
from kraftbridge.services.observe.observer import REDUNDANCY_EVERY, SURVEY_EVERY_SECONDS

ROOT: Final = Path(__file__).resolve().parents[2]
STEP_SECONDS: Final = 2.0
REST_SECONDS: Final = 13.5
"""Shortest pause between two steps of Preflight while the user is waited for (`PhaseRow.idle_seconds`, spread)."""
ROLL_SECONDS: Final = 0.24
"""Pause between two steps while a node is away (`reconcile`)."""
START_SECONDS: Final = 180.0
PAGE_TOPICS: Final = 200
"""Topics whose settings are asked for in one request."""
ONCE: Final = 8
"""Requests to one broker in a step, besides those for the settings of topics: connections, health, view, partitions,
canary, list of brokers. A broker's own settings, its log directories and what the principal may do are asked every ten
seconds, and are among them."""
PREFLIGHT: Final = Scene("Preflight", Phase.PREFLIGHT, most=3)
IN_BATCHES: Final = Scene("restart in batches", Phase.TAKING_OVER, most=3, canary=True)
SCENES: Final = (
    PREFLIGHT,
    Scene("restart of one broker at a time", Phase.TAKING_OVER, canary=True),
    IN_BATCHES,
    Scene("restart in a rollback", Phase.ROLLING_BACK, canary=True),
    Scene("restart that lifts the protocol", Phase.UPGRADING_BROKERS, lifts=True),
)
"""RollingBrokers asks for less than TakingOver: its canary is removed."""


@dataclass(frozen=True)
class Measured:
    """One step and what it cost."""

    step: Step
    fakes_seconds: float
    """Processor time of the brokers."""
    requests: tuple[int, ...]
    """To each broker."""
    peak_mib: int

    @property
    def processor_seconds(self) -> float:
        """Processor time of both sides: what a step takes on a machine that does nothing else, one after the other."""
        return self.step.cpu_seconds + self.fakes_seconds


@dataclass(frozen=True)
class Rates:
    """Requests per second to one broker."""

    mean: float
    busiest: float


@contextmanager
def started(size: Size) -> Iterator[tuple[list[int], int]]:
    """Start the brokers; yield their ports, and that of their counters.

    Raises
    ------
    RuntimeError
        They did not start.
    """
    with TemporaryDirectory(prefix="kraftbridge-hundred-") as name:
        directory = Path(name)
        numbers = (size.brokers, size.partitions, size.partitions_of_a_topic, size.round_trip_seconds)
        command = [sys.executable, "-m", "benchmarks.hundred.servers", name, *map(str, numbers)]
        with (directory / "log").open("wb") as log:
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}  # pytest finds this package without it
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)  # noqa: S603 - our own module
        try:
            until = time.monotonic() + START_SECONDS
            while not (directory / FILE).exists():
                if time.monotonic() > until or process.poll() is not None:
                    raise RuntimeError(f"the brokers did not start: {(directory / 'log').read_text()[-2000:]}")
                time.sleep(0.05)
            found = json.loads((directory / FILE).read_text())
            yield found["brokers"], found["counters"]
        finally:
            ended(process)


def measured(operator: Operator, cluster: Cluster, scene: Scene, counters: int) -> Measured:
    """Take a step."""
    migration = cluster.migration(scene)
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak is that of this step (proc(5))
    before = told(counters)
    step = operator.step(migration)
    after = told(counters)
    asked = _between(before, after)
    return Measured(step, after.cpu_seconds - before.cpu_seconds, asked, proc.peak_mib(os.getpid()))


def in_a_roll(operator: Operator, cluster: Cluster, counters: int, seconds: float) -> Rates:
    """Return the rates of steps that follow each other as fast as they do while a node is away."""
    migration = cluster.migration(IN_BATCHES)
    before, began = told(counters), time.monotonic()
    while time.monotonic() < began + seconds:
        operator.step(migration)
        time.sleep(ROLL_SECONDS)
    return _rates(_between(before, told(counters)), time.monotonic() - began)


def _between(before: Told, after: Told) -> tuple[int, ...]:
    return tuple(late - early for early, late in zip(before.totals, after.totals, strict=True))


def _rates(requests: Sequence[int], seconds: float) -> Rates:
    return Rates(sum(requests) / len(requests) / seconds, max(requests) / seconds)


def bounds_of(size: Size, pause: float) -> Rates:
    """Return what the code promises: steps that take no time, and every ten seconds one that asks for everything.

    In a step each broker is asked for the canary; few are asked for partitions and health, one for topics' settings.
    """
    pages = -(-len(size.topics) // PAGE_TOPICS)
    every = min(SURVEY_EVERY_SECONDS, REDUNDANCY_EVERY.total_seconds())
    others = 2 * (ONCE + pages) / size.brokers
    return Rates((1 + others) / pause + ONCE / every, (ONCE + pages) / pause + (ONCE + pages) / every)


def measure(size: Size, tries: int, seconds: float, only: str) -> list[Goal]:
    """Take steps and print them; return the figures beside their goals."""
    goals: list[Goal] = []
    print(
        f"{size.brokers} brokers, {size.partitions} partitions in {len(size.topics)} topics, "
        f"{1000 * size.round_trip_seconds:g} ms there and back; load {os.getloadavg()[0]:.1f}"
    )
    with started(size) as (ports, counters):
        cluster = Cluster(ports)
        before_mib = proc.resident_mib(os.getpid())
        peaks = []
        for scene in (each for each in SCENES if only in each.name):
            firsts, nexts = [], []
            for _ in range(tries):
                with cluster.operator() as operator:
                    firsts.append(measured(operator, cluster, scene, counters))
                    nexts.append(measured(operator, cluster, scene, counters))
            for which, steps in (("first step", firsts), ("next step", nexts)):
                goals += _goals_of(f"{scene.name}, {which}", steps)
                peaks += [each.peak_mib for each in steps]
            if scene is PREFLIGHT:
                goals += _rate_goals(
                    "at rest in Preflight", _rates(firsts[0].requests, REST_SECONDS), bounds_of(size, REST_SECONDS)
                )
            if scene is IN_BATCHES:
                with cluster.operator() as operator:
                    rates = in_a_roll(operator, cluster, counters, seconds)
                goals += _rate_goals("in a roll", rates, bounds_of(size, ROLL_SECONDS))
    grown = max(peaks) - before_mib
    what = f"peak memory of the asking process, grown by {grown:.0f} MiB"
    goals.append(Goal(what, f"< {RSS_MIB:g} MiB", f"{max(peaks)} MiB", max(peaks) < RSS_MIB))
    return goals


def _goals_of(what: str, steps: Sequence[Measured]) -> list[Goal]:
    best = min(steps, key=lambda each: each.processor_seconds)
    print(
        f"{what}: {min(each.step.seconds for each in steps):.2f} s on the clock, {best.step.cpu_seconds:.2f} s of "
        f"processor time here and {best.fakes_seconds:.2f} s in the fakes; {sum(best.requests)} requests, "
        f"{max(best.requests)} to the busiest broker; peak {best.peak_mib} MiB"
    )
    unobserved = [each for measured_step in steps for each in measured_step.step.unobserved]
    for each in unobserved[:_SHOWN]:
        print(f"    {each[:200]}")
    seconds = best.processor_seconds
    return [
        Goal(f"{what}, seconds", f"< {STEP_SECONDS:g}", f"{seconds:.2f}", seconds < STEP_SECONDS),
        Goal(f"{what}, what the brokers did not tell", "0", str(len(unobserved)), not unobserved),
    ]


_SHOWN: Final = 3


def _rate_goals(what: str, found: Rates, most: Rates) -> list[Goal]:
    return [
        Goal(f"requests/s to a broker {what}, mean", f"<= {most.mean:.1f}", f"{found.mean:.2f}", found.mean <= most.mean),
        Goal(f"requests/s to the busiest broker {what}", f"<= {most.busiest:.1f}", f"{found.busiest:.2f}",
             found.busiest <= most.busiest),
    ]  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print each figure beside its goal, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hundred", description=__doc__)
    parser.add_argument("--brokers", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=200_000)
    parser.add_argument("--of-a-topic", type=int, default=50, metavar="N", help="partitions of each topic")
    parser.add_argument("--round-trip", type=float, default=0.5, metavar="MS", help="what each answer takes")
    parser.add_argument("--tries", type=int, default=2, help="operators that begin anew; the best one counts")
    parser.add_argument("--seconds", type=float, default=10.0, help="of steps as in a roll")
    parser.add_argument("--only", default="", metavar="WORDS", help="scenes whose name has these words")
    options = parser.parse_args(arguments)
    size = Size(options.brokers, options.partitions, options.of_a_topic, options.round_trip / 1000)
    goals = measure(size, options.tries, options.seconds, options.only)
    for goal in goals:
        print(f"{'met' if goal.met else 'MISSED':8}{goal.what}: {goal.measured}, goal {goal.wanted}")
    return 0 if all(goal.met for goal in goals) else 1


if __name__ == "__main__":
    sys.exit(main())
