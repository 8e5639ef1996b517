"""Injects each fault once in its phase, at a critical moment, and records the messages of the operator until the phase is left."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime

from e2e.harness.kube import CommandFailedError
from e2e.harness.matrix import Column, Fault
from e2e.harness.migration import View
from e2e.harness.strikes import NotStruckError, Strikes, Struck, at_log_line
from kubernetes.client.exceptions import ApiException

DELAY_S = 1.5
"""Long enough to be in the middle of a phase, and short enough that the phase has not ended."""
COPY_BEGINS = "Starting ZK migration"
"""KRaftMigrationDriver logs it when every broker has registered and it begins to read ZooKeeper."""
COPY_ENDED = "Finished initial migration of ZK metadata to KRaft"
STEADY_S = 3.0
BETWEEN_S = 12.0
"""Pause between two faults in one phase, so that the effects of the first one are seen."""


@dataclass
class Visit:
    """A fault in a phase, from the strike until the phase was left."""

    fault: Fault
    column: Column
    struck: Struck
    said: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Text and for how many seconds it was shown, by its text without numbers."""
    blocked: list[str] = field(default_factory=list)
    named: bool = False
    missed: str = ""
    """Why it had no effect after all."""
    undone: bool = False
    left_at: float | None = None
    entered_at: float | None = None
    looked_at: float = field(default_factory=time.monotonic)

    def look(self, view: View) -> None:
        """Take in what the status says; note the end of the phase."""
        now = time.monotonic()
        text = view.blocked or view.message
        key = f"{view.phase} " + "".join(c for c in text if not c.isdigit())
        self.said[key] = (self.said.get(key, (text, 0.0))[0], self.said.get(key, (text, 0.0))[1] + now - self.looked_at)
        self.looked_at = now
        if view.blocked and not any(view.blocked[:40] == known[:40] for known in self.blocked):
            self.blocked.append(view.blocked)
        if self.struck.named is not None and self.struck.named.search(text):
            self.named = True
        for record in view.status.get("history") or []:
            left = epoch(record["leftAt"]) if record.get("leftAt") else None
            if record["phase"] == self.column.phase and (left is None or left >= self.struck.at - 1):
                self.entered_at, self.left_at = epoch(record["enteredAt"]), left
                return

    @property
    def steady(self) -> tuple[str, ...]:
        """Return the messages that stood for more than a moment, at most six."""
        long = sorted((seconds, text) for text, seconds in self.said.values() if seconds >= STEADY_S)[-6:]
        return tuple(f"{text} ({seconds:.0f} s)" for seconds, text in reversed(long))


class Striker:
    """Injects planned faults while it follows a migration."""

    def __init__(self, strikes: Strikes, plan: Mapping[Column, Sequence[Fault]], say: Callable[[str], None]) -> None:
        self.strikes, self.say = strikes, say
        self.plan = {column: list(faults) for column, faults in plan.items()}
        self.visits: list[Visit] = []
        self._entered: tuple[str, float] = ("", 0.0)
        self._tried = ""
        self._tails = ExitStack()

    def look(self, view: View) -> None:
        """Undo what is due, strike what is due, follow what was struck."""
        if view.phase != self._entered[0]:
            self._entered = (view.phase, time.monotonic())
        for visit in self.visits:
            if visit.left_at is None:
                visit.look(view)
                if visit.left_at is not None:
                    self._judge_effect(visit, view)
            self._undo(visit, view)
        for column, faults in list(self.plan.items()):
            if column is Column.COPY:
                self._arm_copy(faults[0], view)
                continue
            due = next((fault for fault in faults if self._is_moment(fault, column, view)), None)
            if due is not None:
                self._strike(due, column, view)

    def open(self, phase: str) -> bool:
        """Whether something is still to be struck (or undone) in a phase, so that the target must not change yet."""
        waiting = any(column.phase == phase and column is not Column.COPY for column in self.plan)
        waiting = waiting or (
            phase == "Preflight" and Fault.IMAGE_MISSING in self.plan.get(Column.PROVISIONING_QUORUM, ())
        )
        return waiting or any(v.column.phase == phase and self._lasts(v) for v in self.visits)

    def undo_all(self) -> None:
        """Undo all faults that are still in effect."""
        self._tails.close()
        for visit in self.visits:
            if visit.struck.undo is not None and not visit.undone:
                visit.undone = True
                visit.struck.undo()

    def end_at_rest(self) -> None:
        """Take the phase of every fault for ended: the migration rests in it, and is asked for nothing more."""
        for visit in self.visits:
            visit.left_at = visit.left_at or time.time()

    def _judge_effect(self, visit: Visit, view: View) -> None:
        try:
            visit.missed = visit.struck.missed(view)
        except CommandFailedError as error:
            visit.missed = str(error)[-200:]
        if visit.missed:
            self.say(f"[yellow]{visit.column}: {visit.fault} had no effect: {visit.missed}[/]")

    def _lasts(self, visit: Visit) -> bool:
        # What a gate has to see through is not waited for: the word is given while it lasts. A full disk is named first.
        named = visit.fault in {Fault.IMAGE_MISSING, Fault.CONTROLLER_DISK_FULL}
        return visit.struck.undo is not None and not visit.undone and named

    def _undo(self, visit: Visit, view: View) -> None:
        if visit.struck.undo is None or visit.undone or not (visit.struck.is_due(view) or visit.left_at is not None):
            return
        visit.struck.undo()
        visit.undone = True
        self.say(f"[magenta]undone after {time.time() - visit.struck.at:.0f} s: {visit.struck.what}[/]")

    def _is_moment(self, fault: Fault, column: Column, view: View) -> bool:
        if fault is Fault.IMAGE_MISSING and column is Column.PROVISIONING_QUORUM:
            # Its run is launched in the step that enters the phase; Preflight's own faults come before.
            return (
                view.phase == "Preflight"
                and view.condition("Ready")["status"] == "True"
                and Column.PREFLIGHT not in self.plan
                and not any(v.struck.undo is not None and not v.undone for v in self.visits)
            )
        if view.phase != column.phase or any(v.struck.undo is not None and not v.undone for v in self.visits):
            return False
        if any(v.column is column and time.time() - v.struck.at < BETWEEN_S for v in self.visits):
            return False
        passed = time.monotonic() - self._entered[1]
        operation = view.status.get("operation") or {}
        run = view.verifications[-1] if view.verifications else {}
        match fault:
            case Fault.DRIVER_KILLED_ARMED:
                return bool(run) and not run.get("releasedAt") and not run.get("finishedAt")
            case Fault.DRIVER_KILLED_VERIFYING:
                return bool(run.get("releasedAt")) and not run.get("finishedAt")
            case Fault.IMAGE_MISSING:
                return True
            case Fault.BROKER_KILLED:
                return operation.get("kind") != "RestartBroker" or view.brokers.startswith("2/")
            case _ if column is Column.AWAITING_FINALIZATION:
                return view.awaits_user
            case _ if column is Column.PREFLIGHT:
                return view.condition("Ready")["status"] == "True"
            case _:
                return passed >= DELAY_S

    def _strike(self, fault: Fault, column: Column, view: View) -> None:
        try:
            struck = self.strikes.strike(fault, view)
        except (NotStruckError, CommandFailedError, ApiException) as error:
            if str(error) != self._tried:
                self.say(f"[dim]{fault} not yet: {error}[/]")
            self._tried = str(error)
            return
        self.plan[column].remove(fault)
        if not self.plan[column]:
            del self.plan[column]
        self.visits.append(Visit(fault, column, struck))
        self.say(f"[magenta]{column}: {fault}: {struck.what}[/]")

    def _arm_copy(self, fault: Fault, view: View) -> None:
        """Wait until the controllers' logs show the copy. The status would show it too late."""
        if view.phase != Column.COPY.phase or not view.brokers.startswith(("2/", "3/")):
            return
        cluster, controllers = self.strikes.cluster, view.status["controllers"]
        pods = [f"{controllers['name']}-{node_id}" for node_id in controllers["nodeIds"]]
        try:
            killers = {pod: self.strikes.killer(pod) for pod in pods}
        except NotStruckError:
            return  # one of them is just being replaced
        del self.plan[Column.COPY]
        for pod, killer in killers.items():

            def kill(pod: str = pod, killer: Callable[[], Struck] = killer) -> None:
                struck = killer()
                struck.missed = lambda _: (
                    "the copy had ended already"
                    if COPY_ENDED
                    in cluster.kube.kubectl("logs", "-n", cluster.namespace, pod, "-c", "kafka", "--previous")
                    else ""
                )
                self.visits.append(Visit(fault, Column.COPY, struck))
                self.say(f"[magenta]{Column.COPY}: {fault}: {struck.what}[/]")

            command = ["kubectl", "logs", "-f", "--tail=0", "-n", cluster.namespace, pod, "-c", "kafka"]
            self._tails.enter_context(at_log_line(command, dict(cluster.kube.environment), COPY_BEGINS, kill))


def epoch(text: str) -> float:
    """Return a status time as seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()
