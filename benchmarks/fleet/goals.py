"""Runs both scenarios, each in its own process, and compares the figures with the goals."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any, Final

CPU_PERCENT: Final = 10.0
RSS_MIB: Final = 300.0
HEALTH_SECONDS: Final = 1.0
"""The kubelet waits five seconds."""
P99_FACTOR: Final = 1.25
P99_NOISE_MS: Final = 25.0


@dataclass(frozen=True, slots=True)
class Goal:
    """One goal and what was measured."""

    what: str
    wanted: str
    measured: str
    met: bool


def measure(idle: int, unreachable: int, rolling: int, settle_seconds: float, seconds: float) -> dict[str, Any]:
    """Run one scenario and return its report.

    Raises
    ------
    RuntimeError
        It ended without a report.
    """
    numbers = [str(n) for n in (idle, unreachable, rolling, settle_seconds, seconds)]
    command = [sys.executable, "-m", "benchmarks.fleet.scenario", *numbers]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own module
    if ended.returncode or not ended.stdout.strip():
        raise RuntimeError(f"the scenario {numbers} ended with code {ended.returncode}: {ended.stderr[-2000:]}")
    report: dict[str, Any] = json.loads(ended.stdout.strip().splitlines()[-1])
    return report


def goals(alone: dict[str, Any], fleet: dict[str, Any]) -> list[Goal]:
    """Return each goal: ``alone`` has the migrations that roll only, ``fleet`` all of them.

    Raises
    ------
    RuntimeError
        A scenario took no step of a migration that rolls.
    """
    if fleet["roll_step_p99_ms"] is None or alone["roll_step_p99_ms"] is None:
        raise RuntimeError("no migration took a step while it rolled: nothing can be compared")
    limit = max(P99_FACTOR * alone["roll_step_p99_ms"], alone["roll_step_p99_ms"] + P99_NOISE_MS)
    return [
        Goal("processor time at rest", f"< {CPU_PERCENT:g} % of a core", f"{fleet['rest_cpu_percent']} %",
             fleet["rest_cpu_percent"] < CPU_PERCENT),
        Goal("resident memory, fakes included", f"< {RSS_MIB:g} MiB", f"{fleet['rss_mib']} MiB", fleet["rss_mib"] < RSS_MIB),
        Goal("writes to the API at rest", "0", str(fleet["rest_writes"]), fleet["rest_writes"] == 0),
        Goal("slowest answer of the health endpoint", f"< {HEALTH_SECONDS:g} s", f"{fleet['health_max_seconds']:.2f} s",
             fleet["health_max_seconds"] < HEALTH_SECONDS),
        Goal("p99 of a step of a migration that rolls, from due to done", f"<= {limit:.0f} ms ({alone['roll_step_p99_ms']} ms alone)",
             f"{fleet['roll_step_p99_ms']} ms", fleet["roll_step_p99_ms"] <= limit),
    ]  # fmt: skip
