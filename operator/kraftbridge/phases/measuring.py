"""What a metadata change costs before, in the middle of and after the migration, when ``spec.measure`` asks for it. Pure.

A probe never decides anything: it is waited for, but not beyond its deadline, and whatever goes wrong with it is a note in its line.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Any, Final

from kraftbridge.models.decision import RemoveProbeTopic, StartProbe
from kraftbridge.models.measurement import MeasuredMode, Measurement
from kraftbridge.models.status import WaitKind
from kraftbridge.phases import gates
from kraftbridge.phases.draft import Draft, Wait

PROBE_DEADLINE: Final = timedelta(seconds=45)
"""From its record: the probe ends itself after 30 s; one that has said nothing by then died with its operator."""


def measured(draft: Draft, mode: MeasuredMode) -> Wait | None:
    """Have one line measured; None when it is there, can't be had, or is not asked for.

    Nothing is begun while a broker is missing or an ISR is not full: it would measure that.
    """
    attempt = draft.status.attempt
    record = next((m for m in draft.status.measurements if (m.mode, m.attempt) == (mode, attempt)), None)
    if record is None:
        if not draft.spec.measure or gates.cluster_health(draft):
            return None
        record = Measurement(mode=mode, attempt=attempt, started_at=draft.now)
        draft.update(measurements=(*draft.status.measurements, record))
        draft.act(StartProbe(probe_topic(draft, record)))
    if record.finished_at is not None:
        return None
    return Wait(f"measuring metadata changes ({mode}), half a minute at most", WaitKind.HOLD)


def follow(draft: Draft) -> None:
    """Record what a probe found, in whatever phase; one that died with its operator leaves a note, and its topic is removed."""
    for record in draft.status.measurements:
        if record.finished_at is not None:
            continue
        topic, result = probe_topic(draft, record), draft.observation.probe
        if result is not None and result.topic == topic:
            changes: dict[str, Any] = asdict(result) | {"note": result.note[:512]}
            del changes["topic"]
            changes["finished_at"] = draft.now
        elif (waited := draft.now - record.started_at) < PROBE_DEADLINE:
            continue
        elif record.note and (not _failed_to_remove(draft) or waited > 2 * PROBE_DEADLINE):
            changes = {"finished_at": draft.now}
        else:
            seconds = PROBE_DEADLINE.total_seconds()
            changes = {"note": f"no result within {seconds:.0f} s: the operator was restarted meanwhile"}
            draft.act(RemoveProbeTopic(topic))
        changed = record.model_copy(update=changes)
        draft.update(measurements=tuple(changed if m is record else m for m in draft.status.measurements))


def _failed_to_remove(draft: Draft) -> bool:
    return any(o.action == RemoveProbeTopic.__name__ and o.error for o in draft.observation.outcomes)


def probe_topic(draft: Draft, record: Measurement) -> str:
    """Return the name of a probe's topic: no other migration, attempt or line has it."""
    return f"kraftbridge-probe-{draft.identity.uid[:8]}-{record.attempt}-{record.mode.lower()}"
