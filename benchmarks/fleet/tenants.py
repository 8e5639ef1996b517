"""One operator with an honest migration of a large cluster and ten hostile ones beside it, and what that costs it."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks import proc
from benchmarks.fleet.goals import Goal
from benchmarks.fleet.remote import HONEST, HOSTILE, connect, namespace_of, new_directory, settings_of_the_operator
from benchmarks.fleet.scenario import ended, start
from benchmarks.fleet.servers import FILE

RSS_MIB: Final = 512
"""Memory limit of the operator's pod in the chart."""
STEP_SECONDS: Final = 30.0
"""No step of the honest migration takes longer: it reads its 200,000 partitions up to eight times, beside ten that are read, too."""
SAMPLE_SECONDS: Final = 0.5
START_SECONDS: Final = 120.0

SAYS: Final[Mapping[str, str]] = {
    "frame": "sends a reply of 2048.0 MiB",
    "children": "children of one znode",
    "replies": r"sends \d+\.\d MiB in 6 s",
    "cons": "sent more than 4.0 MiB",
    "topics": r"[\d,]+ topics, and 250,000 is the most",
    "partitions": "exceeded its time limit|under-replicated",
    "answer": "sends an answer of 2048.0 MiB",
    "truststore": "/dev/zero is no file of Secret",
    "report": "unpack to more than 8.0 MiB",
    "record": "unpack to more than 32.0 MiB",
}
"""What the status of each hostile migration says."""


class Tenants:
    """The processes of the benchmark; this process measures."""

    def __init__(self, directory: Path, surroundings: Any, topics: int) -> None:
        self.surroundings = surroundings
        self._directory = directory
        self._topics = topics
        self._addresses = json.loads((directory / FILE).read_text())
        self._operator: subprocess.Popen[bytes] | None = None

    def add(self, *names: str) -> None:
        """Create migrations."""
        self.surroundings.add_tenants(self._addresses, names, self._topics)

    def start_operator(self) -> None:
        """Start the operator; one that runs already is killed, as by the kernel when it is out of memory."""
        self.end_operator()
        self._operator = start(self._directory, "operator", settings_of_the_operator(3))

    def end_operator(self) -> None:
        """End the operator, if it runs."""
        if self._operator is not None:
            ended(self._operator)

    def watch(self, seconds: float) -> dict[str, Any]:
        """Return memory, steps and what is told in a period; the peak is that of the process since its start.

        Raises
        ------
        RuntimeError
            The operator ended by itself.
        """
        assert self._operator is not None
        began = time.monotonic()
        highest, phases, said = 0.0, set[str](), set[str]()
        told: dict[str, str] = {}
        while time.monotonic() < began + seconds:
            time.sleep(SAMPLE_SECONDS)
            if self._operator.poll() is not None:
                log = (self._directory / "operator.log").read_text()[-2000:]
                raise RuntimeError(f"the operator ended by itself with code {self._operator.returncode}: {log}")
            highest = max(highest, proc.resident_mib(self._operator.pid))
            told = self.surroundings.told()
            phases.add(str(json.loads(told.get(namespace_of(HONEST), "{}")).get("phase")))
            said |= {n for n in HOSTILE if re.search(SAYS[n], told.get(namespace_of(n), ""))}
        steps = self._steps(began)
        return {
            "peak_mib": proc.peak_mib(self._operator.pid),
            "highest_sample_mib": round(highest),
            "cpu_seconds": round(proc.cpu_seconds(self._operator.pid), 1),
            "honest_phases": sorted(phases),
            "honest_message": json.loads(told.get(namespace_of(HONEST), "{}")).get("message"),
            "honest_steps": _summary(steps.get(namespace_of(HONEST), [])),
            "hostile_steps": {n: _summary(steps.get(namespace_of(n), [])) for n in HOSTILE},
            "told": sorted(said),
        }

    def _steps(self, since: float) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {}
        path = self._directory / "steps"
        for line in path.read_text().splitlines() if path.exists() else ():
            namespace, begun, lag, took = json.loads(line)
            if begun > since:
                found.setdefault(namespace, []).append(lag + took)
        return found


def measure(topics: int, partitions: int, seconds: float) -> dict[str, dict[str, Any]]:
    """Measure the honest migration alone, then with the hostile ones beside it, and again after a restart of the operator."""
    with tenants(topics, partitions) as found:
        found.add(HONEST)
        found.start_operator()
        reports = {"alone": found.watch(seconds)}
        found.add(*HOSTILE)
        reports["beside"] = found.watch(seconds)
        found.start_operator()
        reports["restarted"] = found.watch(seconds)
    return reports


def goals(reports: Mapping[str, Mapping[str, Any]]) -> list[Goal]:
    """Return each goal: ``beside`` has all migrations, ``restarted`` the same ones after the operator was killed."""
    found = []
    for when, words in (("beside", "beside ten hostile migrations"), ("restarted", "after the restart")):
        report = reports[when]
        steps, silent = report["honest_steps"], sorted(set(HOSTILE) - set(report["told"]))
        idle = [name for name, each in report["hostile_steps"].items() if not each["count"]]
        longest = steps["longest_seconds"]
        found += [
            Goal(f"peak memory {words}", f"< {RSS_MIB} MiB", f"{report['peak_mib']} MiB", report["peak_mib"] < RSS_MIB),
            Goal(f"longest step of the honest migration {words}", f"< {STEP_SECONDS:g} s",
                 f"{longest} s in {steps['count']} steps", 0 < longest < STEP_SECONDS),
            Goal(f"hostile migrations that tell their own finding {words}", str(len(HOSTILE)),
                 f"{len(HOSTILE) - len(silent)}" + (f", not {', '.join(silent)}" if silent else ""), not silent),
            Goal(f"hostile migrations that take steps {words}", str(len(HOSTILE)),
                 f"{len(HOSTILE) - len(idle)}" + (f", not {', '.join(idle)}" if idle else ""), not idle),
        ]  # fmt: skip
    return found


@contextmanager
def tenants(topics: int, partitions: int) -> Iterator[Tenants]:
    """Start the fakes and the servers; no operator runs yet.

    Raises
    ------
    RuntimeError
        The servers did not start.
    """
    directory = new_directory()
    settings = json.dumps(settings_of_the_operator(3))
    processes = [
        start(directory, "surroundings", {}, settings),
        start(directory, "servers", {}, str(topics), str(partitions)),
    ]
    try:
        surroundings = connect(directory)
        until = time.monotonic() + START_SECONDS
        while not (directory / FILE).exists():
            if time.monotonic() > until or processes[1].poll() is not None:
                raise RuntimeError(f"the servers did not start: {(directory / 'servers.log').read_text()[-2000:]}")
            time.sleep(SAMPLE_SECONDS)
        found = Tenants(directory, surroundings, topics)
        try:
            yield found
        finally:
            found.end_operator()
    finally:
        for process in processes:
            ended(process)


def _summary(seconds: list[float]) -> dict[str, Any]:
    ordered = sorted(seconds)
    middle, longest = (ordered[len(ordered) // 2], ordered[-1]) if ordered else (0.0, 0.0)
    return {"count": len(ordered), "median_seconds": round(middle, 2), "longest_seconds": round(longest, 2)}
