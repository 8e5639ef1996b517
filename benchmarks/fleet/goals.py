"""Runs a fleet and, beside it, the rolling migrations alone, and compares the figures with the goals."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.fleet.scenario import scenario

CPU_PERCENT: Final = 10.0
RSS_MIB: Final = 300.0
HEALTH_SECONDS: Final = 1.0
"""The kubelet waits five seconds."""
P99_FACTOR: Final = 1.25
P99_NOISE_MS: Final = 100.0
"""A p99 of some thousand steps is their slowest few dozen. Two operators with the same load differ by less than this on a busy machine."""
APART_SECONDS: Final = 3.0
"""Between the begins of two migrations that roll. Those that begin together stay together, because fakes take equally long: ten steps at once, again and again."""


@dataclass(frozen=True, slots=True)
class Goal:
    """One goal and what was measured."""

    what: str
    wanted: str
    measured: str
    met: bool


def measure(
    idle: int, unreachable: int, rolling: int, settle_seconds: float, seconds: float
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Measure the fleet at rest, then two operators at the same time: one with rolling migrations only, one with the fleet beside them.

    Both run in the same minutes, so another load of the machine slows both.

    Returns
    -------
    tuple
        The reports of the rolling migrations alone and of the fleet.
    """
    with scenario(idle, unreachable, rolling) as fleet:
        time.sleep(settle_seconds)
        report = {"idle": idle, "unreachable": unreachable, "rolling": rolling} | fleet.at_rest(seconds)
        with scenario(0, 0, rolling) as alone:
            for _ in range(rolling):
                for each in (fleet, alone):
                    each.surroundings.add(0, 0, 1)
                time.sleep(APART_SECONDS)
            started, busy = time.monotonic(), (alone.busy(), fleet.busy())
            time.sleep(seconds)
            reports = alone.rolled(started, busy[0]), report | fleet.rolled(started, busy[1])
            reports[1]["health_max_seconds"] = max(fleet.health, default=None)
    return reports


def goals(alone: dict[str, Any], fleet: dict[str, Any]) -> list[Goal]:
    """Return each goal: ``alone`` has the migrations that roll only, ``fleet`` all of them.

    Raises
    ------
    RuntimeError
        A scenario took no step of a migration that rolls, none of them arrived, or the health endpoint never answered.
    """
    if fleet["roll_step_p99_ms"] is None or alone["roll_step_p99_ms"] is None:
        raise RuntimeError("no migration took a step while it rolled: nothing can be compared")
    if not fleet["roll_turns"] or not alone["roll_turns"]:
        raise RuntimeError(f"no migration that rolls has arrived: {fleet['roll_phases']}")
    if fleet["health_max_seconds"] is None:
        raise RuntimeError("the health endpoint never answered")
    limit = max(P99_FACTOR * alone["roll_step_p99_ms"], alone["roll_step_p99_ms"] + P99_NOISE_MS)
    return [
        Goal("processor time at rest", f"< {CPU_PERCENT:g} % of a core", f"{fleet['rest_cpu_percent']} %",
             fleet["rest_cpu_percent"] < CPU_PERCENT),
        Goal("resident memory", f"< {RSS_MIB:g} MiB", f"{fleet['rss_mib']} MiB", fleet["rss_mib"] < RSS_MIB),
        Goal("writes to the API at rest", "0", str(fleet["rest_writes"]), fleet["rest_writes"] == 0),
        Goal("slowest answer of the health endpoint", f"< {HEALTH_SECONDS:g} s", f"{fleet['health_max_seconds']:.2f} s",
             fleet["health_max_seconds"] < HEALTH_SECONDS),
        Goal("p99 of a step of a migration that rolls, from due to done", f"<= {limit:.0f} ms ({alone['roll_step_p99_ms']} ms alone)",
             f"{fleet['roll_step_p99_ms']} ms", fleet["roll_step_p99_ms"] <= limit),
    ]  # fmt: skip
