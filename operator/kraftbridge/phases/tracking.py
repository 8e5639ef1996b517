"""What status keeps of what was observed: leader, mirrored offset, restarts, times without a controller. Pure."""

from __future__ import annotations

from datetime import timedelta

from kraftbridge.models.observation import MigrationZnode, QuorumState, ZooKeeperState
from kraftbridge.models.phase import ZkMigrationState
from kraftbridge.models.status import ControllerUnavailability, MigrationOffset, Operation, QuorumStatus, RestartRecord
from kraftbridge.phases.draft import Draft

OFFSET_RECORDED_EVERY = timedelta(seconds=5)
OFFSET_WATCHED_EVERY = timedelta(seconds=15)
"""Looks further apart than this do not prove that nothing moved in between."""
KEPT_RESTARTS = 300


def track_quorum(draft: Draft) -> None:
    """Keep in status which leader is seen, and since when."""
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
    """Keep in status when ``/migration``'s offset was last seen to grow; every few seconds, not at every look."""
    zookeeper, known = draft.observation.zookeeper, draft.status.migration_offset
    if not isinstance(zookeeper, ZooKeeperState) or not isinstance(zookeeper.migration, MigrationZnode):
        return
    offset, active = zookeeper.migration.kraft_metadata_offset, draft.observation.active_controller
    # Before the copy there is none. After it, one is missing where the controller that copied died before it wrote it.
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
