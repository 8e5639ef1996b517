"""Restarts one node: records the restart, restarts the pod, follows its replacement, holds before the next; records what a step observed. Pure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from kraftbridge.models.conditions import Reason
from kraftbridge.models.decision import RestartPod
from kraftbridge.models.observation import MigrationZnode, PodState, QuorumState, ZooKeeperState
from kraftbridge.models.phase import ZkMigrationState
from kraftbridge.models.status import (
    ControllerUnavailability,
    MigrationOffset,
    Operation,
    OperationKind,
    QuorumStatus,
    RestartRecord,
    WaitKind,
)
from kraftbridge.phases.draft import Draft, StepContext, Wait

CONTROLLER_GRACE_SECONDS = 60
"""A controller hands over its leadership and closes its log; it has no partitions to move."""

DEAF_FOR = timedelta(seconds=30)
"""A container that has just started may ignore SIGTERM. Its process 1 is a shell or a JVM without signal handlers yet, and process 1 ignores
signals that it does not handle (pid_namespaces(7)). It would run for its whole grace period and then be killed."""


def begin(draft: Draft, kind: OperationKind, node_id: int, pod: PodState, *, repeated: bool = False) -> None:
    """Record the restart of a node and restart its pod."""
    operation = Operation(
        kind=kind, node_id=node_id, pod=pod.name, pod_uid=pod.uid, started_at=draft.now, repeated=repeated
    )
    given_up = draft.status.given_up
    draft.update(operation=operation, given_up=None if given_up is None or given_up.pod == pod.name else given_up)
    draft.act(_restart(draft, operation, pod))


def _restart(step: StepContext, operation: Operation, pod: PodState) -> RestartPod:
    broker = operation.kind is OperationKind.RESTART_BROKER
    seconds = step.spec.strategy.termination_grace_seconds if broker else CONTROLLER_GRACE_SECONDS
    return RestartPod(operation.pod, operation.pod_uid, operation.node_id, seconds, pod.ready)


def follow_replacement(
    draft: Draft, operation: Operation, pod: PodState, may_stop: Callable[[StepContext], list[str]]
) -> Wait | None:
    """Follow a recorded restart until the pod's replacement is Ready; drop it if ``may_stop`` returns blockers before the pod stops."""
    what = "broker" if operation.kind is OperationKind.RESTART_BROKER else "controller"
    if pod.uid == operation.pod_uid:
        # The eviction names this UID, so it is repeatable. The cluster may have changed since the decision.
        if not pod.deleting and pod.ready and (blockers := may_stop(draft)):
            draft.update(operation=None)
            return Wait(f"{what} {operation.node_id}: its restart was cancelled before its pod stopped: {blockers[0]}")
        if not pod.deleting:
            draft.act(_restart(draft, operation, pod))
        because = f": {draft.failure()}" if draft.failure() else ""
        return Wait(f"{what} {operation.node_id}: pod {pod.name} is stopping{because}")
    if not pod.ready or pod.deleting:
        return Wait(
            f"{what} {operation.node_id}: pod {pod.name} is starting{': ' + pod.trouble if pod.trouble else ''}"
        )
    if operation.last_pod_ready_at is None:
        draft.update(operation=operation.model_copy(update={"last_pod_ready_at": pod.ready_since or draft.now}))
    return None


def finish_hold(draft: Draft) -> Wait | None:
    """Return the wait until the recorded hold is over, None once it is."""
    until = draft.status.hold_until
    if until is None:
        return None
    if draft.now >= until:
        draft.update(hold_until=None, hold_reason="")
        return None
    return Wait(f"holding until {until:%H:%M:%S} UTC, when {draft.status.hold_reason}", WaitKind.HOLD)


def paused(step: StepContext) -> Wait | None:
    """Return the wait of a paused migration; a restart in progress is finished first."""
    if not step.spec.paused or step.status.operation is not None:
        return None
    message = "Paused by spec.paused at a safe point: no node is down"
    return Wait(message, WaitKind.USER, Reason.PAUSED, requeue_after=timedelta(seconds=5))


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
    lag = None if quorum.max_lag_records is None else str(quorum.max_lag_records)
    settled = seen is not None and (seen.max_lag_records is not None or lag is None)
    if same and settled and draft.status.waiting is not None:
        return
    draft.update(
        quorum=QuorumStatus(
            leader_id=quorum.leader_id,
            leader_epoch=quorum.leader_epoch,
            leader_since=seen.leader_since if same and seen is not None else draft.now,
            max_lag_records=lag,
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
