"""Command line of the matrix: one run at a time, each in its own cluster. Cells with a result are skipped."""

import argparse
import sys
import time
from pathlib import Path

from e2e.harness import cells
from e2e.harness.demo import Terminal, clean
from e2e.harness.foreign import ForeignCluster, Style
from e2e.harness.kube import REPOSITORY, CommandFailedError, Kube, current_kube
from e2e.harness.kube import run as command
from e2e.harness.matrix import Attempt, Column, Fault, Run, runs, sensible
from e2e.harness.migration import Migration, add_hold
from e2e.harness.operator_install import IMAGES, OperatorInstall
from e2e.harness.row import Row
from e2e.harness.small_volumes import SmallVolumes
from e2e.harness.sole_use import sole_use
from e2e.harness.strikes import Strikes
from kubernetes.client.exceptions import ApiException
from rich.console import Console

NAMESPACE = "kafka-faults"
MIGRATION = "demo"
RESULTS = REPOSITORY / "benchmarks/measured/faults"
ARTIFACTS = REPOSITORY / ".artifacts/matrix"
NODE_IDS = (3000, 3001, 3002)
SHORT = {"copy": Column.COPY, "upgrade-back": Column.UPGRADE_BACK}
"""Names of columns that contain a comma."""


def main() -> int:
    """Run the missing cells; the exit code is 0 if every cell that ran was good."""
    arguments = _parse()
    known = cells.read(RESULTS)
    done = {place for place, cell in known.items() if cell.good or not arguments.again}
    missing = {(f, c) for f, c in sensible() - done if not arguments.faults or f in arguments.faults}
    planned = [arguments.run] if arguments.run else runs(missing)[: arguments.limit]
    terminal = Terminal(Console(highlight=False, width=None if sys.stdout.isatty() else 240))
    terminal.say(f"{len(done)} cells are known, {len(missing)} missing; {len(planned)} run(s) now")
    if arguments.plan:
        for run in planned:
            terminal.say(f"{run.name}: {', '.join(sorted(f'{f}@{c}' for f, c in run.cells))}")
        return 0
    kube = current_kube()
    with sole_use(kube, terminal.say):
        bad = sum(not cell.good for run in planned for cell in _one(run, kube, terminal, arguments))
    return int(bad > 0)


def _one(run: Run, kube: Kube, terminal: Terminal, arguments: argparse.Namespace) -> list[cells.Cell]:
    if not kube.embedded:
        raise SystemExit("the matrix stops processes of the node: it needs the embedded cluster (no KUBE_CONTEXT)")
    cluster, operator = (
        ForeignCluster(kube, NAMESPACE, arguments.style, release=run.release),
        OperatorInstall(kube, NAMESPACE),
    )
    migration, volumes = Migration(kube, NAMESPACE, MIGRATION), _volumes(run, kube)
    terminal.say(f"[bold]run {run.name}[/]: {', '.join(sorted(f'{f}@{c}' for f, c in run.cells))}")
    artifacts = ARTIFACTS / f"{time.strftime('%H%M%S')}-{run.name}"
    strikes = Strikes(cluster, operator, migration, volumes)
    try:
        if run.release:
            terminal.step(f"image of Kafka {run.release}", lambda: command(IMAGES, f"kafka-{run.release}"))
        terminal.step("a clean place", lambda: clean(kube, operator, cluster))
        kube.claim_namespace(NAMESPACE)
        if arguments.runner == "SparkApplication":
            terminal.step("Kubeflow's Spark operator", operator.install_spark_operator)
        terminal.step("the operator", operator.install)
        if volumes is not None:
            volumes.make()
        terminal.step("ZooKeeper and Kafka", cluster.add)
        terminal.step("filling it", cluster.seed)
        row = Row(
            run,
            strikes,
            terminal.say,
            artifacts,
            arguments.runner,
            limit_s=arguments.limit_seconds,
            hold_s=arguments.hold,
        )
        found = row.run()
    except (CommandFailedError, ApiException, RuntimeError, TimeoutError) as error:
        terminal.console.print(f"[red]{type(error).__name__}: {error}[/]", soft_wrap=True)
        artifacts.mkdir(parents=True, exist_ok=True)
        (artifacts / "operator.log").write_text(operator.log(4000))
        raise
    finally:
        if not arguments.keep:
            terminal.step("removing everything", lambda: clean(kube, operator, cluster))
            if volumes is not None:
                volumes.remove()
    if not arguments.discard:
        cells.write(RESULTS / f"{run.name}.jsonl", found)
    for cell in found:
        colour = "green" if cell.good else "red"
        terminal.say(
            f"[{colour}]{cell.fault} @ {cell.column}: {cell.outcome}, {cell.seconds} s, stall {cell.longest_stall_s} s, "
            f"errors {cell.errors or 'none'}, {cell.figures or ''} {cell.reason} {'; '.join(cell.broken)}[/]"
        )
    if found:
        terminal.say(str(found[0].run))
    return found


def _volumes(run: Run, kube: Kube) -> SmallVolumes | None:
    if Fault.CONTROLLER_DISK_FULL not in {fault for fault, _ in run.cells}:
        return None
    volumes = tuple(f"controller-{node_id}" for node_id in NODE_IDS)
    # Below the state of the cluster, whose `down` unmounts it.
    return SmallVolumes(kube, NAMESPACE, Path(kube.environment["KUBECONFIG"]).parent / "small-volumes", volumes)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m e2e.matrix", description=__doc__)
    parser.add_argument("faults", nargs="*", type=Fault, help="only these faults; all by default")
    parser.add_argument("--plan", action="store_true", help="only show which runs are missing")
    parser.add_argument("--again", action="store_true", help="also run cells that failed before")
    parser.add_argument("--limit", type=int, default=None, metavar="RUNS", help="at most so many runs")
    parser.add_argument("--limit-seconds", type=float, default=780, help="time limit of one run's migration")
    add_hold(parser)
    parser.add_argument("--runner", choices=("SparkApplication", "Job"), default="SparkApplication")
    parser.add_argument(
        "--style", type=Style, choices=list(Style), default=Style.ENV, help="how brokers are configured"
    )
    parser.add_argument(
        "--run",
        type=_run,
        metavar="FAULT@COLUMN,…[/…]",
        help="exactly this run, attempts parted by /; the phase may be copy or upgrade-back",
    )
    parser.add_argument("--keep", action="store_true", help="leave the cluster for a look")
    parser.add_argument("--discard", action="store_true", help="do not keep the results")
    return parser.parse_args()


def _run(text: str) -> Run:
    attempts = []
    for part in text.split("/"):
        pairs = [pair.partition("@") for pair in part.split(",") if pair]
        strikes: dict[Column, tuple[Fault, ...]] = {}
        back: Column | None = None
        for fault, _, when in pairs:
            column = SHORT.get(when) or Column(when)
            if fault == Fault.ROLLBACK:
                back = column
            else:
                strikes[column] = (*strikes.get(column, ()), Fault(fault))
        attempts.append(Attempt(strikes, back))
    return Run("by-hand", tuple(attempts))
