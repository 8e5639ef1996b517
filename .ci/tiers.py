"""Run make targets one after the other until one fails, and say at the end what ran: ``tiers.py lint unit …``.

Needs nothing but Python: it runs before the project's own environment exists.
"""

# ruff: noqa: INP001 - a script, not a package
from __future__ import annotations

import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
JUNIT = ROOT / ".artifacts" / "junit"
BUDGET_SECONDS = {
    "venv": 60,
    "prerequisites": 30,
    "lint": 120,
    "unit": 420,
    "component": 60,
    "cluster-build": 60,
    "chart": 60,
    "spark": 360,
    "integration": 480,
    "images": 90,
    "cluster-up": 60,
    "chart-live": 180,
    "e2e": 420,
}
"""What each tier may take on two quiet cores with warm caches; together forty minutes."""


@dataclass(frozen=True)
class Outcome:
    """What one tier did."""

    name: str
    exit_code: int
    seconds: float
    passed: int
    failed: int
    skipped: int
    second_tries: int
    counted: bool
    """Whether the tier counts tests; the others count as one check each."""

    def __str__(self) -> str:
        """Return the tier's part of the last line."""
        if not self.counted:
            return f"{self.name} {'failed' if self.exit_code else 'ok'}"
        parts = [f"{self.passed} passed"]
        parts += [f"{self.failed} failed"] if self.failed else []
        parts += [f"{self.skipped} skipped"] if self.skipped else []
        parts += [f"{self.second_tries} failed at the first try"] if self.second_tries else []
        parts += ["no result"] if self.exit_code and not self.failed else []
        return f"{self.name} {', '.join(parts)}"


def run_tier(name: str) -> Outcome:
    """Run one make target; its output goes through as it comes."""
    report = JUNIT / f"{name}.xml"
    report.unlink(missing_ok=True)
    started = time.monotonic()
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    exit_code = subprocess.call(  # noqa: S603 - names of our own targets
        [os.environ.get("MAKE", "make"), name], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL
    )
    seconds = time.monotonic() - started
    if not report.exists():
        return Outcome(name, exit_code, seconds, int(exit_code == 0), int(exit_code != 0), 0, 0, counted=False)
    passed, failed, skipped, second_tries = counts(report)
    return Outcome(name, exit_code, seconds, passed, failed, skipped, second_tries, counted=True)


def counts(report: Path) -> tuple[int, int, int, int]:
    """Return how many tests of a JUnit report passed, failed and were skipped, and how many needed a second try."""
    suites = ET.parse(report).getroot().iter("testsuite")  # noqa: S314 - written by our own pytest a moment ago
    tests = failed = skipped = tries = 0
    for suite in suites:
        tests += int(suite.get("tests", 0))
        failed += int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped += int(suite.get("skipped", 0))
        tries += len(suite.findall("testcase"))  # each try is a case; "tests" counts a test once
    return tests - failed - skipped, failed, skipped, max(tries - tests, 0)


def main(names: list[str]) -> int:
    """Run the tiers and return the exit code."""
    outcomes: list[Outcome] = []
    for position, name in enumerate(names, 1):
        say(f"\n######## tier {position} of {len(names)}: {name}")
        outcomes.append(run_tier(name))
        last = outcomes[-1]
        say(f"######## {last} ({last.seconds:.0f} s)")
        if last.exit_code:
            break
    ran = ", ".join(str(outcome) for outcome in outcomes)
    say(budget(outcomes))
    left = names[len(outcomes) :]
    passed = sum(outcome.passed for outcome in outcomes)
    failed = sum(max(outcome.failed, int(outcome.exit_code != 0)) for outcome in outcomes)
    say(f"\nkraftbridge on {tested_python()}: {ran}" + (f"; not run: {', '.join(left)}" if left else ""))
    say(f"{passed} passed, {failed} failed")
    return int(failed > 0)


def tested_python() -> str:
    """Return the version of the Python that ran the tests: the images have Debian's."""
    python = ROOT / os.environ.get("VENV", ".venv") / "bin" / "python"
    try:
        return subprocess.check_output([python, "--version"], text=True).strip()  # noqa: S603 - our own environment
    except OSError:
        return "no Python environment"


def budget(outcomes: list[Outcome]) -> str:
    """Return what each tier took beside what it may take; a tier over its budget fails nothing, and is marked."""
    lines = ["", f"{'tier':<14}{'seconds':>9}{'budget':>9}"]
    for outcome in outcomes:
        allowed = BUDGET_SECONDS.get(outcome.name)
        mark = "  over" if allowed is not None and outcome.seconds > allowed else ""
        lines.append(f"{outcome.name:<14}{outcome.seconds:>9.0f}{allowed or '-':>9}{mark}")
    used = sum(outcome.seconds for outcome in outcomes)
    lines.append(f"{'together':<14}{used:>9.0f}{sum(BUDGET_SECONDS.values()):>9}")
    return "\n".join(lines)


def say(text: str) -> None:
    """Print at once, so that progress is seen in a log file."""
    print(text, flush=True)  # noqa: T201 - a command line tool


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
