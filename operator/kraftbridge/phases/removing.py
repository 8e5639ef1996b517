"""The one way out of a run of any kind: its removal is recorded, and repeated until nothing of it is left. Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from kraftbridge.models.decision import RemoveRun
from kraftbridge.models.observation import Unobserved
from kraftbridge.models.runs import RunKind
from kraftbridge.models.status import RetiredRun
from kraftbridge.phases.draft import Draft

AGAIN_AFTER: Final = timedelta(seconds=20)
"""Pause before a removal is repeated: a pod may take its time to end."""


def remove_run(draft: Draft, kind: RunKind, run_id: str, *, keep_report: bool) -> None:
    """Remove a run and, unless its report is to stay, its report."""
    retired = RetiredRun(kind=kind, run_id=run_id, keep_report=keep_report, asked_at=draft.now)
    others = tuple(run for run in draft.status.retired_runs if run.run_id != run_id)
    draft.update(retired_runs=(*others, retired))
    draft.act(RemoveRun(kind, run_id, keep_report))


def track_removals(draft: Draft) -> None:
    """Forget the removed runs of which nothing is left, and remove the others again after a pause."""
    left = draft.observation.runs_left
    if isinstance(left, Unobserved):
        return
    for run in draft.status.retired_runs:
        if run.run_id not in left:
            draft.update(retired_runs=tuple(other for other in draft.status.retired_runs if other is not run))
        elif draft.now - run.asked_at >= AGAIN_AFTER:
            remove_run(draft, run.kind, run.run_id, keep_report=run.keep_report)
