"""The operator compared with the scripted procedure: interleaved pairs with the same holds, phase by phase.

``python -m e2e.harness.compare --pairs 3`` runs demo and bare procedure in turn and writes ``.artifacts/compare``;
``--only-report`` reads what is there. Waits for verification, holds and waits for the user are shown separately.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

from e2e.harness.kube import REPOSITORY
from e2e.harness.migration import add_hold
from rich.console import Console
from rich.table import Table

Pair = tuple[dict[str, Any], dict[str, Any]]
"""Times of the operator and of the bare procedure."""

RESULTS = REPOSITORY / ".artifacts/compare"
PHASES = (
    "Preflight", "ProvisioningQuorum", "TakingOver", "DualWrite", "RollingBrokers", "AwaitingFinalization", "Finalizing",
)  # fmt: skip


def run_pair(number: int, style: str, hold_s: int) -> None:
    """Run the demo and the bare procedure once each; every other pair begins with the bare one."""
    demo = [sys.executable, "-m", "e2e.demo", "--style", style, "--hold", str(hold_s)]
    bare = [
        sys.executable, "-m", "e2e.bare", "--style", style, "--operator-holds", "--address-cache-seconds", str(hold_s),
        "--output", str(RESULTS / f"bare-{number}.json"),
    ]  # fmt: skip
    for command in (demo, bare) if number % 2 else (bare, demo):
        done = subprocess.run(command, cwd=REPOSITORY, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}; a pair counts only if both succeed")
        if command is demo:
            shutil.copy(REPOSITORY / ".artifacts/demo/summary.json", RESULTS / f"operator-{number}.json")


def operator_times(summary: dict[str, Any]) -> dict[str, Any]:
    """Return the work per phase, and the waits, of a demo's summary."""
    work = dict.fromkeys(PHASES, 0.0)
    for phase in summary["phases"]:
        work[phase["phase"]] = work.get(phase["phase"], 0.0) + phase["work_s"]
    return {
        "work": work,
        "hold_s": sum(phase["hold_s"] for phase in summary["phases"]),
        "verification_s": summary["verification_s"],
        "total_s": summary["total_s"],
        "stall_s": summary["clients"]["longest_produce_stall_s"],
    }


def bare_times(result: dict[str, Any]) -> dict[str, Any]:
    """Return the same of a run of the bare procedure."""
    work = {phase: result["phases"].get(phase, {"work_s": 0.0})["work_s"] for phase in PHASES}
    return {
        "work": work,
        "hold_s": result["hold_s"],
        "verification_s": 0.0,
        "total_s": result["total_s"],
        "stall_s": result["clients"]["longest_produce_stall_s"],
    }


def report(console: Console) -> dict[str, Any]:
    """Print the medians of all pairs that are complete, and return them with the ratio of each pair."""
    pairs = []
    for path in sorted(RESULTS.glob("operator-*.json")):
        other = path.with_name(path.name.replace("operator", "bare"))
        if other.exists():
            pairs.append((operator_times(_read(path)), bare_times(_read(other))))
    if not pairs:
        raise SystemExit(f"no complete pair in {RESULTS}")
    ratios = [sum(operator["work"].values()) / sum(bare["work"].values()) for operator, bare in pairs]
    table = Table(title=f"median of {len(pairs)} pairs, seconds", title_justify="left")
    for heading in ("", "operator", "bare"):
        table.add_column(heading, justify="left" if not heading else "right")
    for phase in PHASES:
        table.add_row(
            f"{phase}: work", *(f"{median(run['work'][phase] for run in side):.1f}" for side in _sides(pairs))
        )
    table.add_section()
    table.add_row("all work", *(f"{median(sum(run['work'].values()) for run in side):.1f}" for side in _sides(pairs)))
    for name, key in (
        ("waits for verification", "verification_s"),
        ("holds", "hold_s"),
        ("total", "total_s"),
        ("longest produce stall", "stall_s"),
    ):
        table.add_row(name, *(f"{median(run[key] for run in side):.1f}" for side in _sides(pairs)))
    console.print(table)
    console.print(goals_table(pairs))
    console.print(f"work, operator ÷ bare: median {median(ratios):.2f}, of {', '.join(f'{r:.2f}' for r in ratios)}")
    return {"ratios": ratios, "median_ratio": median(ratios), "pairs": pairs}


def goals_table(pairs: list[Pair]) -> Table:
    """Return what is promised, what each pair shows, and whether the median keeps the promise."""
    figures = {
        "total, operator ÷ bare": (1.25, [operator["total_s"] / bare["total_s"] for operator, bare in pairs]),
        "the same from ProvisioningQuorum on": (
            1.25,
            [(operator["total_s"] - operator["work"]["Preflight"]) / bare["total_s"] for operator, bare in pairs],
        ),
        "waits for verification, seconds": (45.0, [operator["verification_s"] for operator, _ in pairs]),
        "longest produce stall, seconds": (2.0, [operator["stall_s"] for operator, _ in pairs]),
    }
    table = Table(title="goals", title_justify="left")
    for heading in ("", "at most", "measured", "median", ""):
        table.add_column(heading)
    for name, (most, measured) in figures.items():
        middle = median(measured)
        verdict = "met" if middle <= most else "missed"
        table.add_row(name, f"{most:g}", ", ".join(f"{value:.2f}" for value in measured), f"{middle:.2f}", verdict)
    return table


def _sides(pairs: list[Pair]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    return [operator for operator, _ in pairs], [bare for _, bare in pairs]


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def main() -> None:
    """Run pairs and report, or only report."""
    parser = argparse.ArgumentParser(prog="python -m e2e.harness.compare", description=__doc__)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--style", choices=("Env", "Properties"), default="Env")
    add_hold(parser)
    parser.add_argument("--only-report", action="store_true")
    arguments = parser.parse_args()
    if not arguments.only_report:
        shutil.rmtree(RESULTS, ignore_errors=True)
        RESULTS.mkdir(parents=True)
        for number in range(1, arguments.pairs + 1):
            run_pair(number, arguments.style, arguments.hold)
    (RESULTS / "report.json").write_text(json.dumps(report(Console(highlight=False)), indent=1))


if __name__ == "__main__":
    main()
