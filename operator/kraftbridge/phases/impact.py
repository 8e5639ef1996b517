"""The account of what a migration costs: restarts, and times without a controller. Pure; nothing is decided by it."""

from __future__ import annotations

from kraftbridge.models.status import ControllerUnavailability, Operation, RestartRecord
from kraftbridge.phases.draft import Draft

KEPT_RESTARTS = 300


def track(draft: Draft) -> None:
    """Keep the longest time without a controller that the probe has seen in this phase."""
    probe, phase, attempt = draft.observation.controller_probe, draft.status.phase, draft.status.attempt
    if probe is None or probe.ended_at is None or probe.longest_milliseconds <= 0:
        return
    known = draft.status.impact.controller_unavailable
    before = next((u for u in known if (u.phase, u.attempt) == (phase, attempt)), None)
    if before is not None and before.milliseconds >= probe.longest_milliseconds:
        return
    longest = ControllerUnavailability(
        phase=phase, attempt=attempt, milliseconds=probe.longest_milliseconds, ended_at=probe.ended_at
    )
    others = tuple(u for u in known if u is not before)
    draft.update(impact=draft.status.impact.model_copy(update={"controller_unavailable": (*others, longest)}))


def note_restart(draft: Draft, operation: Operation) -> None:
    """Note a restart that is over."""
    record = RestartRecord(
        node_id=operation.node_id,
        phase=draft.status.phase,
        attempt=draft.status.attempt,
        began_at=operation.started_at,
        ready_at=operation.last_pod_ready_at,
        finished_at=draft.now,
    )
    restarts = (*draft.status.impact.restarts, record)[-KEPT_RESTARTS:]
    draft.update(impact=draft.status.impact.model_copy(update={"restarts": restarts}))
