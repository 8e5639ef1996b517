"""One run of the matrix: a cluster under load, a migration (and a rollback), a fault in each phase, and the evaluation."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from e2e.harness.bare import inventory_differences
from e2e.harness.cells import Cell, Outcome
from e2e.harness.kube import REPOSITORY, CommandFailedError, eventually, run
from e2e.harness.load import Load, client_impact
from e2e.harness.matrix import Attempt, Column, Fault, Run
from e2e.harness.migration import View, manifest
from e2e.harness.operator_install import OPERATOR_SELECTOR, OperatorInstall
from e2e.harness.promises import broken_restarts, brokers_down_by_us, stops
from e2e.harness.small_volumes import STORAGE_CLASS
from e2e.harness.striker import Striker, Visit, epoch
from e2e.harness.strikes import Strikes, Struck
from e2e.harness.vitals import PodWatch, Vitals, longest_without_controller_s, offline_at_end

BLOCKED_LIMIT_S = 150
SOAK_PER_FAULT_S = 16
DISK_FULL_SOAK_S = 60
EDITED_SOAK_S = 10
IN_PHASE_FOR_S = 8
"""How long a phase has lasted when its way back is taken, where nothing else says that it is half-way."""


class EndedError(Exception):
    """The run cannot continue. The message says why; ``stopped`` says whether the operator reported the reason."""

    def __init__(self, message: str, *, stopped: bool) -> None:
        super().__init__(message)
        self.stopped = stopped


@dataclass
class Row:
    """One run."""

    planned: Run
    strikes: Strikes
    say: Callable[[str], None]
    artifacts: Path
    runner: str
    limit_s: float
    hold_s: int
    begin: float = field(default_factory=time.monotonic)
    visits: list[Visit] = field(default_factory=list)
    figures: dict[Column, dict[str, Any]] = field(default_factory=dict)
    ended: str = ""
    stopped: bool = False
    phase: str = ""

    def run(self) -> list[Cell]:
        """Do it; return the cells that were struck."""
        cluster, migration = self.strikes.cluster, self.strikes.migration
        load, vitals, watch = Load(cluster), Vitals(cluster), PodWatch(cluster)
        tried = versions(self.strikes.operator)
        load.start()
        vitals.start()
        watch.start()
        before = cluster.inventory()
        volumes = self.strikes.volumes
        resource = manifest(
            cluster, migration.name, target="Preflight", runner=self.runner, address_cache_seconds=self.hold_s,
            storage_class=STORAGE_CLASS if volumes is not None else None,
        )  # fmt: skip
        in_dual_write = max((a.strikes.get(Column.DUAL_WRITE, ()) for a in self.planned.attempts), key=len)
        # By itself the phase lasts a few seconds: not enough for a second fault, or for a disk to be missed.
        soak_s = max(0, len(in_dual_write) - 1) * SOAK_PER_FAULT_S
        soak_s += EDITED_SOAK_S if Fault.ZOOKEEPER_EDITED in in_dual_write else 0
        soak_s += DISK_FULL_SOAK_S if Fault.CONTROLLER_DISK_FULL in in_dual_write else 0
        resource["spec"]["strategy"]["hybridSoakSeconds"] = soak_s
        cluster.kube.apply(json.dumps(resource), cluster.namespace)
        try:
            for number, attempt in enumerate(self.planned.attempts, 1):
                self._walk(number, attempt, load)
        except (EndedError, TimeoutError) as error:
            self.ended, self.stopped = str(error), isinstance(error, EndedError) and error.stopped
            self.say(f"[red]the run ends here: {error}[/]")
        differences = self._differences(before)
        serving = {} if self.ended else {k: v for k, v in cluster.prove_serving().items() if v != "ok"}
        seen = vitals.lines()
        lines = load.stop()
        watch.stop()
        self._keep(seen, lines, watch)
        struck = frozenset(uid for visit in self.visits for uid in visit.struck.uids)
        brokers = frozenset(cluster.broker_pods)
        impact = client_impact(lines)
        facts = {
            "name": self.planned.name, "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "completed": not self.ended, "ended": self.ended, "acked": impact.acked,
            "lost": impact.lost if impact.drained else None, "duplicates": impact.duplicates,
            "redelivered": impact.redelivered, "watched": impact.broken, "errors": impact.errors, "drained": impact.drained,
            "longest_stall_s": impact.longest_produce_stall_s, "inventory_differences": differences,
            "not_serving": serving, "offline_after": offline_at_end(seen),
            "brokers_down_at_once_by_us": brokers_down_by_us(watch.samples, brokers, struck),
            "seconds": round(time.monotonic() - self.begin), **tried,
            "hold_s": self.hold_s, "style": str(cluster.style), "runner": self.runner,
        }  # fmt: skip

        def cell(visit: Visit) -> Cell:
            return self._cell(visit, facts, lines, seen, watch, brokers, struck)

        return [cell(visit) for visit in self.visits if not visit.missed]

    def _walk(self, number: int, attempt: Attempt, load: Load) -> None:
        migration = self.strikes.migration
        striker = Striker(self.strikes, attempt.strikes, self.say)
        plan = ", ".join(f"{fault}@{column}" for column, faults in attempt.strikes.items() for fault in faults)
        self.say(f"attempt {number}: {plan or 'no fault'}; back from {attempt.back_from}")
        asked, entered, back = "", ("", 0.0), None
        blocked_since: float | None = None
        last: View | None = None
        try:
            for view in migration.follow(self.limit_s - (time.monotonic() - self.begin)):
                last = view
                self._show(view)
                striker.look(view)
                if attempt.back_from is None:  # a reassignment would hold the way back up
                    load.look(view)
                if view.phase != entered[0]:
                    entered = (view.phase, time.monotonic())
                ready, wanted = view.condition("Ready")["status"] == "True", ""
                if back is not None:
                    back.look(view)
                    if view.phase == "RolledBack" and ready and asked == "ZooKeeper":
                        break
                elif attempt.back_from is not None and self._half_way(attempt.back_from, view, entered[1]):
                    wanted = "ZooKeeper"
                elif (view.phase == "Preflight" and ready and not striker.open("Preflight")) or (
                    view.phase == "RolledBack" and ready and asked == ""
                ):
                    wanted = attempt.target
                elif attempt.target == "BridgeRelease" and view.phase == "UpgradingBrokers" and ready:
                    if not striker.open(view.phase):
                        striker.end_at_rest()
                        break
                elif view.phase == "AwaitingFinalization" and view.awaits_user and not striker.open(view.phase):
                    wanted = "KRaft" if attempt.back_from is None else ""
                elif view.phase == "Completed" and ready:
                    break
                if wanted and wanted != asked:
                    command = eventually(lambda target=wanted: self._ask(target), f"spec.target is {wanted}", 120)
                    asked = wanted
                    self.say(f"[green]$ {command}[/]")
                    if wanted == "ZooKeeper":
                        back = Visit(
                            Fault.ROLLBACK, Column.ROLLING_BACK, Struck(f"spec.target: ZooKeeper ({view.message})")
                        )
                blocked_since = (blocked_since or time.monotonic()) if view.blocked else None
                if blocked_since is not None and time.monotonic() - blocked_since > BLOCKED_LIMIT_S:
                    raise EndedError(f"phase {view.phase}: {view.blocked}", stopped=True)
        finally:
            striker.undo_all()
            for visit in [*striker.visits, *([back] if back else [])]:
                if last is not None and visit.left_at is None:
                    visit.look(last)
            self.visits += striker.visits
            if back is not None and attempt.back_from is not None:
                back.struck.what = f"{back.struck.what}"
                self._close_back(back, attempt.back_from)

    def _close_back(self, back: Visit, column: Column) -> None:
        self.visits.append(Visit(**{**back.__dict__, "column": column}))
        if back.left_at is None:
            return
        cluster = self.strikes.cluster
        self.figures[column] = {"rolled_back_s": round(back.left_at - back.struck.at, 1)}
        try:
            self.figures[column]["leader_election"] = json.loads(cluster.run_client("elect_leaders"))
        except (CommandFailedError, ValueError) as error:
            self.figures[column]["leader_election"] = str(error)[-300:]

    def _ask(self, target: str) -> str:
        try:
            return self.strikes.migration.set_target(target)
        except CommandFailedError as error:
            self.say(f"[dim]{error}[/]")
            return ""

    @staticmethod
    def _half_way(column: Column, view: View, entered: float) -> bool:
        if view.phase != column.phase:
            return False
        passed = time.monotonic() - entered
        match column:
            case Column.TAKING_OVER | Column.ROLLING_BROKERS:
                return view.brokers.startswith(("1/", "2/"))
            case Column.UPGRADING_BROKERS:
                return view.brokers.startswith(("1/", "2/")) or view.condition("Ready")["status"] == "True"
            case Column.AWAITING_FINALIZATION:
                return view.awaits_user
            case Column.DUAL_WRITE:
                return passed > 1
            case _:
                return passed > IN_PHASE_FOR_S

    def _show(self, view: View) -> None:
        text = f"{view.phase:20} brokers {view.brokers or '-':4} {view.blocked or view.message}"
        key = "".join(c for c in text if not c.isdigit())
        if key != self.phase:
            self.phase = key
            self.say(text[:230])

    def _differences(self, before: dict[str, Any]) -> list[str]:
        try:
            return inventory_differences(before, self.strikes.cluster.inventory())
        except CommandFailedError as error:
            return [f"the inventory could not be taken: {str(error)[-300:]}"]

    def _cell(
        self, visit: Visit, facts: dict[str, Any], lines: list[dict[str, Any]], seen: list[dict[str, Any]],
        watch: PodWatch, brokers: frozenset[str], struck: frozenset[str],
    ) -> Cell:  # fmt: skip
        end = visit.left_at or time.time()
        window = (visit.struck.at, end)
        broken = broken_restarts(watch.samples, seen, brokers, struck, window)
        meanwhile = [line for line in lines if not line.get("final") and window[0] <= line["at"] <= end + 1]
        errors: dict[str, int] = {}
        for line in meanwhile:
            for name, count in line["errors"].items():
                errors[name] = errors.get(name, 0) + count
        outcome, reason = Outcome.FINISHED, "; ".join(visit.blocked)
        if visit.left_at is None:
            outcome, reason = (Outcome.STOPPED if self.stopped else Outcome.FAILED), self.ended
        elif visit.struck.named is not None and not visit.named:
            outcome, reason = Outcome.FAILED, "the operator never named it"
        figures = dict(self.figures.get(visit.column, {})) if visit.fault is Fault.ROLLBACK else {}
        if (
            visit.fault is Fault.ROLLBACK
            or visit.column.phase == "RollingBack"
            or visit.column in (Column.COPY, Column.FINALIZING)
        ):
            figures["without_controller_s"] = longest_without_controller_s(seen, (window[0] - 1, end + 3))
        if visit.fault is Fault.OPERATOR_UPGRADED:
            restarted = [
                stop.pod
                for stop in stops(watch.samples, struck)
                if stop.pod not in brokers and window[0] <= stop.at <= end
            ]
            figures["voters_restarted"] = restarted
        return Cell(
            fault=visit.fault, column=visit.column, outcome=outcome, reason=reason[:400], struck=visit.struck.what,
            seconds=round(end - visit.struck.at, 1), phase_seconds=round(end - (visit.entered_at or visit.struck.at), 1),
            said=visit.steady,
            longest_stall_s=max((max(m["max_produce_latency_s"], m["oldest_in_flight_s"]) for m in meanwhile), default=0.0),
            errors=errors, broken=tuple(broken), figures=figures, run=facts,
        )  # fmt: skip

    def _keep(self, seen: list[dict[str, Any]], lines: list[dict[str, Any]], watch: PodWatch) -> None:
        """Write the evidence of this run to files. The operator's log is that of its last pod."""
        view = self.strikes.migration.view()
        pods = [
            {
                "at": s.at,
                "pods": {
                    n: ["up" if p.up else "deleting" if p.deleting else "down", p.uid[:8]] for n, p in s.pods.items()
                },
            }
            for s in watch.samples
        ]
        texts = {
            "vitals.jsonl": "".join(json.dumps(line) + "\n" for line in seen),
            "load.jsonl": "".join(json.dumps(line) + "\n" for line in lines),
            "pods.jsonl": "".join(json.dumps(line) + "\n" for line in pods),
            "kafkamigration.json": json.dumps(view.resource if view else {}, indent=1),
            "operator.log": self.strikes.operator.log(4000),
        }
        self.artifacts.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (self.artifacts / name).write_text(text)
        history = (view.status.get("history") if view else None) or []
        for record in history:
            if record.get("leftAt"):
                self.say(f"  {record['phase']:22} {epoch(record['leftAt']) - epoch(record['enteredAt']):5.0f} s")


def versions(operator: OperatorInstall) -> dict[str, str]:
    """Return the commit and the image of the operator that is tried."""
    pods = operator.kube.list("pods", operator.namespace, OPERATOR_SELECTOR)
    statuses = [s for pod in pods for s in pod["status"].get("containerStatuses", [])]
    return {"commit": _commit(), "operator_image": statuses[0]["imageID"][-12:] if statuses else "unknown"}


def _commit() -> str:
    """Return the commit of ``main`` that is tried; ``+`` for changes that are not on it yet."""
    git = ("git", "-C", REPOSITORY)
    try:
        base = run(*git, "merge-base", "HEAD", "main").strip()
    except CommandFailedError:
        return run(*git, "rev-parse", "--short", "HEAD").strip()
    clean = run(*git, "diff", "--stat", base, "--", "operator", "helm", "e2e").strip() == ""
    return base[:7] + ("" if clean else "+")
