"""Explains a phase that makes no progress: adds a failing controller and the nodes' log lines to its wait. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from kraftbridge.models.catalogue import Code, Severity
from kraftbridge.models.observation import Clue, Unobserved, meaning_of
from kraftbridge.models.status import MigrationStatus, WaitKind
from kraftbridge.phases import gates
from kraftbridge.phases.draft import StepContext, Wait

LOOK_INTO_LOGS_AFTER = timedelta(seconds=60)
"""Logs are read after this time without progress: longer than a broker's restart, much shorter than any deadline."""
MOST_NODES = 3


def is_slow(status: MigrationStatus, now: datetime) -> bool:
    """Return whether a phase that waits for nobody has made no progress for `LOOK_INTO_LOGS_AFTER`."""
    working = status.waiting is None or status.waiting.kind in (WaitKind.WORK, WaitKind.VERIFICATION)
    return (
        working
        and not status.phase.at_rest
        and status.progress_at is not None
        and now - status.progress_at > LOOK_INTO_LOGS_AFTER
    )


def explained(step: StepContext, waiting: Wait) -> Wait:
    """Return the wait with the first controller that is down and, after a while, with the meaning and fix of log lines."""
    pod, trouble = gates.controller_in_trouble(step)
    if pod and pod not in waiting.message:
        waiting = replace(waiting, message=f"{waiting.message}. Down: pod {pod}: {trouble}")
    clues = step.observation.clues
    if isinstance(clues, Unobserved) or not clues or waiting.kind is WaitKind.USER:
        return waiting
    telling = {node: found for node, found in clues.items() if any(c.code is not Code.DRIVER_STATE for c in found)}
    spoken = telling or clues
    words = "; ".join(f"{node}: {_sentence(found)}" for node, found in sorted(spoken.items())[:MOST_NODES])
    return replace(waiting, message=f"{waiting.message}. Logs: {words}")


def _sentence(found: tuple[Clue, ...]) -> str:
    first = found[0]
    state = next((c for c in found[1:] if c.code is Code.DRIVER_STATE), None)
    parts = [meaning_of(first), *([meaning_of(state)] if state is not None else [])]
    fix = "" if first.code.severity is Severity.INFORMATION else f" ({first.code.fix})"
    return ", ".join(parts) + fix
