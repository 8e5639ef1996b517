"""Worlds in which a process of the operator freezes between publishing a decision and acting, and wakes up after another one has gone on."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.kafka import CONTROLLERS

from kraftbridge.models.decision import (
    Action,
    ConfigureBrokers,
    Decision,
    LockStatefulSet,
    ReleaseStatefulSet,
    RestartPod,
    RestoreStatefulSet,
    StopControllers,
)
from kraftbridge.models.observation import Observation
from kraftbridge.phases import basis
from kraftbridge.phases.draft import Identity

if TYPE_CHECKING:
    from tests.simulation.run import Run

FREEZE_CHANCE = 0.015
"""Of an act, with which the process freezes before it."""
WORLD = "frozen operator"


@dataclass(frozen=True)
class Asleep:
    """A process that is frozen, and what it was about to do."""

    process: int
    identity: Identity
    decided: basis.Basis
    actions: tuple[Action, ...]
    sick: frozenset[int]
    phase: str
    attempt: int
    wakes_at: float


class FrozenOperators:
    """Who is frozen in one run, drawn apart: the other draws of a seed stay what they were."""

    def __init__(self, seed: int, *, troubled: bool) -> None:
        self.random = Random(f"frozen operators of {seed}")
        self.chance = FREEZE_CHANCE if troubled and self.random.random() < 0.5 else 0.0
        self.is_due = False
        """Whether the process freezes before its next act."""
        self.is_waking = False
        """Whether a process that was frozen acts now."""
        self.asleep: Asleep | None = None
        self.ends: Counter[str] = Counter()
        """How the woken ended: overtaken, or it acted."""

    def freezes(self, run: Run, decision: Decision, done: int, observation: Observation, sick: frozenset[int]) -> bool:
        """Let the process freeze before its next act; another one begins."""
        now = run.cluster.time.now
        by_chance = self.chance and now < run.faults_end and self.random.random() < self.chance
        if self.asleep is not None or not (by_chance or self.is_due):
            return False
        self.is_due = False
        self.asleep = Asleep(
            process=run.cluster.process,
            identity=run.identity,
            decided=basis.basis_of(run.identity, decision, observation),
            actions=decision.actions[done:],
            sick=sick,
            phase=str(decision.status.phase),
            attempt=decision.status.attempt,
            wakes_at=now + self.random.choice([5.0, 20.0, 100.0, 600.0, 1800.0]),
        )
        run.cluster.process += 1
        run.coverage.faults[WORLD] += 1
        run.coverage.worlds[WORLD, self.asleep.phase] += 1
        return True

    def freeze_soon(self) -> bool:
        """Let the process freeze before its next act; return whether none is frozen yet."""
        self.is_due = self.asleep is None
        return self.is_due

    def wake(self, run: Run) -> None:
        """Let the frozen process go on where it was, compare, and end."""
        asleep = self.asleep
        if asleep is None or run.cluster.time.now < asleep.wakes_at:
            return
        self.asleep = None
        self.is_waking = True
        leading, run.cluster.process = run.cluster.process, asleep.process
        for action in asleep.actions:
            if self._why(run, asleep, action):
                self.ends["overtaken"] += 1
                break
            self._check(run, asleep, action)
            self.ends["acted"] += 1
            if run._carry_out(action, asleep.sick).error:
                break
        run.cluster.process = leading
        self.is_waking = False

    def _why(self, run: Run, asleep: Asleep, action: Action) -> str:
        """Return why an act is not executed, as whoever executes the real ones finds it."""
        cluster = run.cluster
        present = basis.Basis(
            run.identity.uid,
            run.identity.generation,
            basis.intent(run.status),
            frozenset(n for n in asleep.decided.leases if cluster.holds_lease(n)),
        )
        if why := basis.overtaken(asleep.decided, present):
            return why
        name = _stateful_set_of(run, action)
        workload = next(
            (w for w in (*cluster.broker_sets, cluster.controllers) if w is not None and w.name == name), None
        )
        version = None if workload is None else cluster.version_of(workload)
        return basis.changed(asleep.decided, name, version)

    def _check(self, run: Run, asleep: Asleep, action: Action) -> None:
        """Fail if another decision stands by now: by the world, not by what the act compares."""
        now = (run.identity.uid, run.status.attempt, str(run.status.phase))
        then = (asleep.identity.uid, asleep.attempt, asleep.phase)
        if now != then:
            run._break(
                f"a process that woke up does {type(action).__name__}, decided in {asleep.phase}, in {run.status.phase}"
            )


def _stateful_set_of(run: Run, action: Action) -> str:
    match action:
        case LockStatefulSet(name) | ConfigureBrokers(name) | RestoreStatefulSet(name) | ReleaseStatefulSet(name):
            return name
        case RestartPod(_, _, node) if node not in CONTROLLERS:
            return run.cluster.set_of(node).name
        case RestartPod() | StopControllers():
            return f"{run.identity.name}-kraft"
        case _:
            return ""
