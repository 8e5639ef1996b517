"""Records observations in status: leader, mirrored offset, restarts, times without a controller. Pure."""

from __future__ import annotations

from datetime import timedelta

from kraftbridge.models.observation import MigrationZnode, QuorumState, ZooKeeperState
from kraftbridge.models.phase import ZkMigrationState
from kraftbridge.models.status import ControllerUnavailability, MigrationOffset, Operation, QuorumStatus, RestartRecord
from kraftbridge.phases.draft import Draft

OFFSET_RECORDED_EVERY = timedelta(seconds=5)
OFFSET_WATCHED_EVERY = timedelta(seconds=15)
"""Observations further apart than this do not prove that the offset stood still in between."""
KEPT_RESTARTS = 300


def track_quorum(draft: Draft) -> None:
    """Record the quorum's leader, and since when it leads."""
    quorum, seen = draft.observation.quorum, draft.status.quorum
    if not isinstance(quorum, QuorumState):
        return
    same = seen is not None and seen.leader_id == quorum.leader_id and seen.leader_epoch == quorum.leader_epoch
    if same and draft.status.waiting is not None:
        return
    draft.update(
        quorum=QuorumStatus(
            leader_id=quorum.leader_id,
            leader_epoch=quorum.leader_epoch,
            leader_since=seen.leader_since if same and seen is not None else draft.now,
            max_lag_records=str(quorum.max_lag_records),
            high_watermark=str(quorum.high_watermark),
        )
    )


def track_migration_offset(draft: Draft) -> None:
    """Record when the offset in ``/migration`` last grew; at most every `OFFSET_RECORDED_EVERY`, to save writes of the status."""
    zookeeper, known = draft.observation.zookeeper, draft.status.migration_offset
    if not isinstance(zookeeper, ZooKeeperState) or not isinstance(zookeeper.migration, MigrationZnode):
        return
    offset, active = zookeeper.migration.kraft_metadata_offset, draft.observation.active_controller
    # There is no offset before the copy. After it, the offset is missing if the controller stopped before it wrote it.
    if offset < 0 and (active is None or active.zk_migration_state is not ZkMigrationState.MIGRATION):
        return
    grown = known is not None and offset > int(known.offset) >= 0
    stale = known is None or draft.now - known.seen_at >= OFFSET_RECORDED_EVERY
    if stale or (
        grown and known is not None and (known.moved_at is None or draft.now - known.moved_at >= OFFSET_RECORDED_EVERY)
    ):
        moved_at = draft.now if grown else known.moved_at if known is not None else None
        same = known is not None and offset == int(known.offset)
        watched = known is not None and draft.now - known.seen_at <= OFFSET_WATCHED_EVERY
        since = known.standing_since if known is not None and watched else None
        draft.update(
            migration_offset=MigrationOffset(
                offset=str(offset),
                seen_at=draft.now,
                moved_at=moved_at,
                standing_since=(since or draft.now) if same else None,
            )
        )


def track_unavailability(draft: Draft) -> None:
    """Record the longest time without a controller that the probe has measured in this phase."""
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
    """Record a restart that is over."""
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
