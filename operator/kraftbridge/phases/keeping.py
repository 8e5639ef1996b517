"""Keeps a copy of the metadata log at each gate, so that a quorum whose volumes are all lost can be started again. Pure.

A copy that cannot be kept stops no migration: the gate goes on, an event says so, and the copy before it remains.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from kraftbridge.models.decision import EventReason, EventType, KeepCopy
from kraftbridge.models.observation import Unobserved
from kraftbridge.models.report import Profile
from kraftbridge.models.status import KeepingStatus, MigrationStatus, VerificationStatus, WaitKind, kept_copy_secrets
from kraftbridge.phases.draft import Draft, Wait

PATIENCE: Final = timedelta(seconds=90)
"""How long a copy is tried."""
_OF_THE_LOG: Final = frozenset({Profile.COPY, Profile.DUAL_WRITE, Profile.REPLICAS})
"""Profiles whose verdict is about the metadata log."""


def ensure_kept_after(draft: Draft, record: VerificationStatus) -> Wait | None:
    """Return None once the log that a verification has passed is kept, or cannot be kept."""
    return ensure_kept(draft, record.run_id) if record.profile in _OF_THE_LOG else None


def ensure_kept(draft: Draft, run_id: str) -> Wait | None:
    """Return None once a copy of the log is kept that was made after ``run_id``, or once it was given up; else make it."""
    kept, under_way = draft.status.kept_copy, draft.status.keeping
    if draft.status.controllers is None or (kept is not None and kept.run_id == run_id):
        return None
    if under_way is None or under_way.run_id != run_id:
        places = kept_copy_secrets(draft.identity.name, draft.identity.uid, draft.status.attempt)
        # Never over the last whole copy.
        place = places[1] if kept is not None and kept.secret == places[0] else places[0]
        under_way = KeepingStatus(run_id=run_id, secret=place, started_at=draft.now)
        draft.update(keeping=under_way)
    if under_way.given_up:
        return None
    seen = draft.observation.kept_copy
    if (
        not isinstance(seen, Unobserved)
        and seen is not None
        and (seen.run_id, seen.secret) == (run_id, under_way.secret)
    ):
        # A voter that is left may have less of the log than the copy of the last gate.
        if kept is not None and (seen.epoch, int(seen.end_offset)) < (kept.epoch, int(kept.end_offset)):
            draft.update(keeping=under_way.model_copy(update={"given_up": f"it ends before the copy {kept.id}"}))
        else:
            draft.update(kept_copy=seen, keeping=None)
        return None
    why = draft.failure() or (str(seen) if isinstance(seen, Unobserved) else "")
    if draft.now - under_way.started_at > PATIENCE:
        given_up = why or f"it was not made in {PATIENCE.seconds} s"
        draft.update(keeping=under_way.model_copy(update={"given_up": given_up[:500]}))
        before = (
            f"the copy {kept.id} of {kept.taken_at:%Y-%m-%d %H:%M} UTC remains" if kept is not None else "there is none"
        )
        message = f"No copy of the metadata log is kept after {run_id}: {given_up}; {before}"
        draft.tell(EventReason.ALARM, message[:1000], EventType.WARNING)
        return None
    draft.act(KeepCopy(run_id, under_way.secret))
    because = f": {why}" if why else ""
    return Wait(
        f"a copy of the metadata log is being kept in Secret {under_way.secret}{because}", WaitKind.VERIFICATION
    )


def precedes_restoration(status: MigrationStatus, record: VerificationStatus) -> bool:
    """Return whether a verdict is about the log from before the last restoration of the controllers."""
    current = status.restoration
    finished_at = current.finished_at if current is not None else None
    return finished_at is not None and (record.released_at or record.launched_at) <= finished_at
