"""Starts the processes of the benchmark, and measures the operator from outside."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks import proc
from benchmarks.fleet.remote import connect, new_directory, settings_of_the_operator

PROBE_SECONDS: Final = 0.5
Step = tuple[str, float, float]
"""Kind of migration, seconds from due to begun, seconds from begun to done."""


@dataclass
class Scenario:
    """One operator process and the process of its fakes; this process measures."""

    directory: Path
    process: subprocess.Popen[bytes]
    surroundings: Any
    health_port: int
    health: list[float] = field(default_factory=list)
    """Seconds of each answer of the health endpoint."""

    def cpu_seconds(self) -> float:
        """Return the processor time of the operator process."""
        return proc.cpu_seconds(self.process.pid)

    def busy(self) -> tuple[float, float]:
        """Return the processor time of the operator and of the fakes, in seconds."""
        return self.cpu_seconds(), float(self.surroundings.cpu_seconds())

    def rss_mib(self) -> float:
        """Return the resident memory of the operator process."""
        return round(proc.resident_mib(self.process.pid), 1)

    def steps(self, since: float) -> list[Step]:
        """Return the steps that began after ``since`` (monotonic clock, which all processes of a host share)."""
        path = self.directory / "steps"
        found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [(ns.partition("-")[0], lag, took) for ns, begun, lag, took in found if begun > since]

    def at_rest(self, seconds: float) -> dict[str, Any]:
        """Measure the fleet while nothing changes."""
        writes, busy, started = self.surroundings.writes(), self.cpu_seconds(), time.monotonic()
        dry_runs = self.surroundings.dry_runs()
        time.sleep(seconds)
        elapsed = time.monotonic() - started
        changed = self.surroundings.changes(writes)
        return {
            "rest_cpu_percent": round(100 * (self.cpu_seconds() - busy) / elapsed, 2),
            "rest_writes": len(changed),
            "rest_dry_runs": self.surroundings.dry_runs() - dry_runs,
            "rest_written": Counter(changed).most_common(5),
            "rest_steps": dict(Counter(kind for kind, *_ in self.steps(started))),
            "rest_rss_mib": self.rss_mib(),
        }

    def rolled(self, since: float, busy: tuple[float, float]) -> dict[str, Any]:
        """Return the durations of the steps of the migrations that roll, and the processor time since ``busy`` (`busy`)."""
        elapsed = time.monotonic() - since
        percent = [round(100 * (now - then) / elapsed, 1) for now, then in zip(self.busy(), busy, strict=True)]
        measured = [(lag, took) for kind, lag, took in self.steps(since) if kind == "roll"]
        both = sorted(lag + took for lag, took in measured)
        return {
            "roll_cpu_percent": percent[0],
            "roll_fakes_cpu_percent": percent[1],
            "roll_steps": len(both),
            "roll_phases": self.surroundings.rolling_phases(),
            "roll_turns": self.surroundings.turns(),
            "roll_step_p50_ms": _quantile(both, 0.5),
            "roll_step_p99_ms": _quantile(both, 0.99),
            "roll_lag_p99_ms": _quantile(sorted(lag for lag, _ in measured), 0.99),
            "roll_duration_p99_ms": _quantile(sorted(took for _, took in measured), 0.99),
            "rss_mib": self.rss_mib(),
        }

    def probe(self) -> None:
        """Ask the health endpoint until the process ends."""
        url = f"http://127.0.0.1:{self.health_port}/healthz"
        while self.process.poll() is None:
            started = time.monotonic()
            try:
                with urllib.request.urlopen(url, timeout=30) as answer:
                    answer.read()
            except OSError:
                if not self.health:
                    time.sleep(PROBE_SECONDS)
                    continue  # it does not listen yet
            self.health.append(time.monotonic() - started)
            time.sleep(PROBE_SECONDS)


@contextmanager
def scenario(idle: int, unreachable: int, rolling: int) -> Iterator[Scenario]:
    """Start the fakes with idle and unreachable migrations, then the operator; ``rolling`` migrations may roll at once.

    Raises
    ------
    RuntimeError
        The operator ended by itself.
    """
    directory = new_directory()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    settings = settings_of_the_operator(rolling) | {"KRAFTBRIDGE_LIVENESS_PORT": str(port)}
    fakes = start(directory, "surroundings", {}, json.dumps(settings))
    try:
        surroundings = connect(directory)
        surroundings.add(idle, unreachable, 0)  # an operator would walk the idle ones, too
        operator = start(directory, "operator", settings)
        try:
            found = Scenario(directory, operator, surroundings, port)
            threading.Thread(target=found.probe, daemon=True).start()
            yield found
            if operator.poll() is not None:
                said = (directory / "operator.log").read_text()[-2000:]
                raise RuntimeError(f"the operator ended by itself with code {operator.returncode}: {said}")
        finally:
            ended(operator)
    finally:
        ended(fakes)


def ended(process: subprocess.Popen[bytes]) -> None:
    """Kill a process."""
    process.kill()
    process.wait(30)


def start(directory: Path, module: str, settings: Mapping[str, str], *arguments: str) -> subprocess.Popen[bytes]:
    """Start a module of this package, which gets the directory as its first argument; its output goes to a file there."""
    command = [sys.executable, "-m", f"benchmarks.fleet.{module}", str(directory), *arguments]
    with (directory / f"{module}.log").open("wb") as log:
        return subprocess.Popen(command, env={**os.environ, **settings}, stdout=log, stderr=subprocess.STDOUT)  # noqa: S603 - our own module


def _quantile(ordered: list[float], part: float) -> float | None:
    return round(1000 * ordered[min(len(ordered) - 1, int(part * len(ordered)))], 1) if ordered else None
