"""Dry starts in the simulated cluster: pods that are made, run and tell, whatever becomes of the operator meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random

from tests.simulation.kafka import Timeline

from kraftbridge.builders.dry_start_pods import DEADLINE_SECONDS
from kraftbridge.copies.dry_start import copies_in
from kraftbridge.models.dry_start import (
    CopyOutcome,
    DryStartPlan,
    DryStartReport,
    DryStartRun,
    DryStartStage,
    FenceProof,
    PullKey,
    RunPod,
)
from kraftbridge.models.runs import DRY_START_PARALLEL, PULL_LIMIT
from kraftbridge.models.status import DryStartRunStatus

PULLS = tuple(PullKey(owner, node) for owner in ("StatefulSet/kafka", "controllers") for node in ("node-1", "node-2"))
TRIALS = (DryStartStage.FIRST_TRIALS, DryStartStage.LAST_TRIALS)


@dataclass
class DryStart:
    """One dry start: its ConfigMap, and its pods."""

    found: DryStartReport
    """What its copies show, as the templates were when they were made."""
    fenced: bool = False
    probed: bool = False
    gated: set[str] = field(default_factory=set)
    running: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
    made: set[DryStartStage] = field(default_factory=set)
    collected: dict[DryStartStage, tuple[CopyOutcome, ...]] = field(default_factory=dict)

    @property
    def plan(self) -> DryStartPlan:
        """What it sets out to do."""
        copies = tuple(c.key for c in self.found.copies)
        pulls = () if self.found.is_of_ids else PULLS
        return DryStartPlan(copies, tuple(c.key for c in self.found.trials), pulls=pulls)

    def names(self, run: DryStartRunStatus) -> list[str]:
        """Return the names of the pods of the present stage."""
        if run.stage is DryStartStage.PULLS:
            return [f"{key.owner} on {key.node}" for key in self.plan.pulls]
        return [_name(c) for c in self.outcomes(run)]

    def outcomes(self, run: DryStartRunStatus) -> tuple[CopyOutcome, ...]:
        """Return what the copies of the present stage show."""
        keys = copies_in(self.plan, run.stage, self.collected, choosing=run.choosing)
        by_key = {c.key: c for c in (*self.found.copies, *self.found.trials)}
        return tuple(by_key[key] for key in keys)


class DryStarts:
    """All dry starts of a simulated cluster."""

    def __init__(self, random: Random, time: Timeline) -> None:
        self.random = random
        self._time = time
        self.hangs = 0.0
        """How likely a copy does not end by itself."""
        self.runs: dict[str, DryStart] = {}
        self.broken: str = ""
        """Promise that an act has broken."""

    def launch(self, run: DryStartRunStatus, present: DryStartReport) -> None:
        """Make the pods of a stage, of the templates as they are now."""
        known = self.runs.setdefault(run.run_id, DryStart(present))
        stage = DryStartStage.COPIES if run.stage is DryStartStage.PROBE else run.stage
        if stage in known.made:
            return
        known.made.add(stage)
        if stage is DryStartStage.PULLS:
            self._pull(known, known.names(run))
        else:
            known.gated |= set(known.names(run))

    def fence(self, run_id: str) -> None:
        """Close the fence, and let the probe try it."""
        known = self.runs.get(run_id)
        if known is not None and not known.fenced:
            known.fenced = True
            self._later(lambda: setattr(known, "probed", True))

    def release(self, run_id: str, pods: tuple[str, ...]) -> None:
        """Let these copies start."""
        known = self.runs.get(run_id)
        if known is None:
            return
        if not known.probed:
            self.broken = "a copy of a broker's pod was let go before the probe had proven its fence"
        for name in sorted(known.gated & set(pods)):
            known.gated.discard(name)
            known.running.add(name)
            if self.random.random() >= self.hangs:
                self._later(partial(self._end, known, name))
            else:
                self._time.after(DEADLINE_SECONDS, partial(self._end, known, name))
        if len(known.running) > DRY_START_PARALLEL:
            self.broken = f"{len(known.running)} copies of brokers' pods ran at once, and {DRY_START_PARALLEL} may"

    def _pull(self, known: DryStart, names: list[str]) -> None:
        """Let nodes get images; one may take longer than anybody waits."""
        known.running |= set(names)
        for name in names:
            if self.random.random() < self.hangs:
                self._time.after(PULL_LIMIT.total_seconds() + 60, partial(self._end, known, name))
            else:
                self._later(partial(self._end, known, name))

    def collect(self, run: DryStartRunStatus) -> None:
        """Record what the copies of the stage show, and delete them."""
        known = self.runs.get(run.run_id)
        if known is not None:
            known.collected[run.stage] = known.outcomes(run)
            known.gated.clear()
            known.running.clear()
            known.ended.clear()

    def remove(self, run_id: str, *, keep_report: bool) -> None:
        """Delete the pods and, unless it is to stay, the report."""
        known = self.runs.get(run_id)
        if known is None:
            return
        known.gated, known.running, known.ended, known.fenced = set(), set(), set(), False
        if not keep_report:
            del self.runs[run_id]

    def is_left(self, run_id: str, *, keep_report: bool) -> bool:
        """Return whether something of a dry start is there that was to be removed."""
        known = self.runs.get(run_id)
        return known is not None and (bool(known.gated | known.running | known.ended) or not keep_report)

    def _later(self, then: Callable[[], object]) -> None:
        self._time.after(self.random.uniform(0.5, 6.0), then)

    @staticmethod
    def _end(known: DryStart, name: str) -> None:
        if name in known.running:
            known.running.discard(name)
            known.ended.add(name)

    def run(self, run: DryStartRunStatus) -> DryStartRun:
        """Return what the observer sees of a dry start that runs."""
        known = self.runs.get(run.run_id)
        if known is None:
            return DryStartRun(run.run_id)
        wanted = known.names(run)
        names = known.gated | known.running | known.ended
        return DryStartRun(
            run.run_id,
            known.plan,
            made=frozenset(known.made),
            pods=tuple(RunPod(n, n in known.gated, n in known.ended) for n in wanted if n in names),
            proof=FenceProof("probe", ended=known.probed) if known.fenced else None,
            collected=dict(known.collected),
        )

    def report(self, run_id: str, digest: str) -> DryStartReport | None:
        """Return what the observer reads of a dry start that ended."""
        known = self.runs.get(run_id)
        if known is None:
            return None
        trials = tuple(c for stage in TRIALS for c in known.collected.get(stage, ()))
        return DryStartReport(digest, known.collected.get(DryStartStage.COPIES, ()), trials)


def _name(copy: CopyOutcome) -> str:
    return f"{copy.key.pod} {copy.key.mode} {copy.key.channel}"
