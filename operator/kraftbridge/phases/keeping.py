"""Keeps a copy of the metadata log at each gate: a quorum whose volumes are all lost can be started from it. Pure.

A copy that cannot be kept stops no migration: the gate goes on, an event says so, and the copy before it remains.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from kraftbridge.models.decision import EventReason, EventType, KeepCopy
from kraftbridge.models.observation import Unobserved
from kraftbridge.models.report import Profile
from kraftbridge.models.status import KeepingStatus, MigrationStatus, VerificationStatus, WaitKind, kept_copy_secrets
from kraftbridge.phases.draft import Draft, StepContext, Wait
from kraftbridge.phases.observed import because, unread

PATIENCE: Final = timedelta(seconds=90)
"""How long a copy is tried."""
_OF_THE_LOG: Final = frozenset({Profile.COPY, Profile.DUAL_WRITE, Profile.REPLICAS})
"""Profiles whose verdict is about the metadata log."""


def ensure_kept_after(draft: Draft, record: VerificationStatus) -> Wait | None:
    """Return None once the log that a verification has passed is kept, or cannot be kept."""
    if record.profile not in _OF_THE_LOG:
        return None
    return ensure_kept(draft, record.run_id)


def ensure_kept(draft: Draft, run_id: str) -> Wait | None:
    """Return None once a copy of the log that was made after ``run_id`` is kept, or was given up; else make it."""
    kept = draft.status.kept_copy
    if draft.status.controllers is None or (kept is not None and kept.run_id == run_id):
        return None
    keeping = draft.status.keeping
    if keeping is None or keeping.run_id != run_id:
        keeping = KeepingStatus(run_id=run_id, secret=_free_secret(draft), started_at=draft.now)
        draft.update(keeping=keeping)
    if keeping.given_up:
        return None
    copy = draft.observation.kept_copy
    why = draft.failure()
    if isinstance(copy, Unobserved):
        why = why or unread(copy)
    elif copy is not None and (copy.run_id, copy.secret) == (run_id, keeping.secret):
        # A voter that is left may have less of the log than the copy of the last gate.
        if kept is not None and (copy.epoch, int(copy.end_offset)) < (kept.epoch, int(kept.end_offset)):
            _give_up(draft, keeping, f"it ends before the copy {kept.id}")
        else:
            draft.update(kept_copy=copy, keeping=None)
        return None
    if draft.now - keeping.started_at > PATIENCE:
        why = why or f"it was not made in {PATIENCE.seconds} s"
        _give_up(draft, keeping, why)
        before = "there is none"
        if kept is not None:
            before = f"the copy {kept.id} of {kept.taken_at:%Y-%m-%d %H:%M} UTC remains"
        message = f"No copy of the metadata log is kept after {run_id}: {why}; {before}"
        draft.tell(EventReason.ALARM, message[:1000], EventType.WARNING)
        return None
    draft.act(KeepCopy(run_id, keeping.secret))
    message = f"a copy of the metadata log is being kept in Secret {keeping.secret}{because(why)}"
    return Wait(message, WaitKind.VERIFICATION)


def _free_secret(step: StepContext) -> str:
    """Return the Secret for the next copy, which is never that of the last whole copy."""
    first, second = kept_copy_secrets(step.identity.name, step.identity.uid, step.status.attempt)
    kept = step.status.kept_copy
    return second if kept is not None and kept.secret == first else first


def _give_up(draft: Draft, keeping: KeepingStatus, why: str) -> None:
    draft.update(keeping=keeping.model_copy(update={"given_up": why[:500]}))


def precedes_restoration(status: MigrationStatus, record: VerificationStatus) -> bool:
    """Return whether a verdict is about the log from before the last restoration of the controllers."""
    current = status.restoration
    if current is None or current.finished_at is None:
        return False
    return (record.released_at or record.launched_at) <= current.finished_at
