"""Runs of every kind go one way: the removal is on record until nothing is left, whoever dies meanwhile."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.support.observations import NOW, Situation, open_gate

from kraftbridge.models.decision import RemoveRun
from kraftbridge.models.observation import Unobserved
from kraftbridge.models.phase import Part, Phase
from kraftbridge.models.runs import RunKind
from kraftbridge.models.status import (
    DryStartRunStatus,
    DryStartStatus,
    RehearsalRunStatus,
    RehearsalStatus,
    RetiredRun,
)
from kraftbridge.phases.needs import needs

RUN = "demo-run-1"


def retired(kind: RunKind, *, seconds_ago: float = 1.0, keep_report: bool = True) -> Situation:
    run = RetiredRun(kind=kind, run_id=RUN, keep_report=keep_report, asked_at=NOW - timedelta(seconds=seconds_ago))
    return open_gate(Phase.DUAL_WRITE).with_status(retired_runs=(run,))


def ids(runs: tuple[RetiredRun, ...]) -> set[str]:
    return {run.run_id for run in runs}


@pytest.mark.parametrize("kind", RunKind)
def test_a_removal_is_forgotten_once_nothing_is_left(kind: RunKind) -> None:
    case = retired(kind, seconds_ago=60.0)
    assert Part.RUNS_LEFT in needs(case.status, NOW)
    decision = case.observing(runs_left=frozenset()).decide()
    assert RUN not in ids(decision.status.retired_runs)
    assert RUN not in [a.run_id for a in decision.actions if isinstance(a, RemoveRun)]
    assert Part.RUNS_LEFT not in needs(decision.status.model_copy(update={"retired_runs": ()}), NOW)


@pytest.mark.parametrize("keep_report", [True, False])
@pytest.mark.parametrize("kind", RunKind)
def test_what_is_left_is_removed_again_after_a_pause(kind: RunKind, keep_report: bool) -> None:
    again = RemoveRun(kind, RUN, keep_report)
    early = retired(kind, seconds_ago=19.0, keep_report=keep_report).observing(runs_left=frozenset({RUN})).decide()
    assert again not in early.actions
    assert RUN in ids(early.status.retired_runs)
    late = retired(kind, seconds_ago=20.0, keep_report=keep_report).observing(runs_left=frozenset({RUN})).decide()
    assert again in late.actions
    assert {run.run_id: run.asked_at for run in late.status.retired_runs}[RUN] == NOW


def test_what_was_not_looked_at_is_neither_gone_nor_removed_again() -> None:
    case = retired(RunKind.VERIFICATION, seconds_ago=60.0).observing(runs_left=Unobserved("runs", "403"))
    decision = case.decide()
    assert RUN in ids(decision.status.retired_runs)
    assert RUN not in [a.run_id for a in decision.actions if isinstance(a, RemoveRun)]


def test_a_run_that_no_phase_waits_for_is_removed() -> None:
    rehearsal = RehearsalRunStatus(run_id="r", digest="d", launched_at=NOW)
    copies = DryStartRunStatus(
        run_id="c", digest="d", launched_at=NOW, generation=1, broker_ids={}, cluster_id="id", stage_at=NOW
    )
    case = open_gate(Phase.DUAL_WRITE).with_status(
        rehearsal=RehearsalStatus(count=1, running=rehearsal), dry_start=DryStartStatus(count=1, running=copies)
    )
    decision = case.decide()
    assert RemoveRun(RunKind.REHEARSAL, "r", keep_report=False) in decision.actions
    assert RemoveRun(RunKind.DRY_START, "c", keep_report=True) in decision.actions
    assert decision.status.rehearsal is not None
    assert decision.status.rehearsal.running is None
    assert decision.status.dry_start is not None
    assert decision.status.dry_start.running is None
    assert {"r", "c"} <= ids(decision.status.retired_runs)
