"""Restarts one node. Pure.

Records the restart, restarts the pod, follows its replacement, holds before the next, and records what a step observed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from kraftbridge.models.conditions import Reason
from kraftbridge.models.decision import RestartPod
from kraftbridge.models.observation import PodState, QuorumState
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
from kraftbridge.phases import observed
from kraftbridge.phases.draft import SLOW, Draft, StepContext, Wait

CONTROLLER_GRACE_SECONDS = 60
"""A controller hands over its leadership and closes its log; it has no partitions to move."""

DEAF_FOR = timedelta(seconds=30)
"""A container that has just started may ignore SIGTERM. Its process 1 is a shell or a JVM without signal handlers yet,
and process 1 ignores signals that it does not handle (pid_namespaces(7)).
It would run for its whole grace period and then be killed."""


def begin(draft: Draft, kind: OperationKind, node_id: int, pod: PodState, *, repeated: bool = False) -> None:
    """Record the restart of a node and restart its pod."""
    operation = Operation(
        kind=kind,
        node_id=node_id,
        pod=pod.name,
        pod_uid=pod.uid,
        started_at=draft.now,
        repeated=repeated,
        serving=pod.ready,
    )
    draft.update(operation=operation)
    given_up = draft.status.given_up
    if given_up is not None and given_up.pod == pod.name:
        draft.update(given_up=None)
    draft.act(_restart(draft, operation, pod))


def _restart(step: StepContext, operation: Operation, pod: PodState) -> RestartPod:
    broker = operation.kind is OperationKind.RESTART_BROKER
    seconds = step.spec.strategy.termination_grace_seconds if broker else CONTROLLER_GRACE_SECONDS
    return RestartPod(operation.pod, operation.pod_uid, operation.node_id, seconds, pod.ready)


def restart_controllers(draft: Draft, pods: Iterable[PodState], seconds: int) -> None:
    """Restart these controllers at once; those that stop already are left alone."""
    for pod in pods:
        if not pod.deleting:
            draft.act(RestartPod(pod.name, pod.uid, pod.ordinal, seconds, ready=False))


def follow_replacement(
    draft: Draft, operation: Operation, pod: PodState, may_stop: Callable[[StepContext], list[str]]
) -> Wait | None:
    """Follow a recorded restart until the pod's replacement is Ready.

    Drop it if ``may_stop`` returns blockers before the pod stops.
    """
    role = "broker" if operation.kind is OperationKind.RESTART_BROKER else "controller"
    node = f"{role} {operation.node_id}"
    if pod.uid == operation.pod_uid:
        # The eviction names this UID, so it is repeatable. The cluster may have changed since the decision.
        if not pod.deleting and (blockers := may_stop(draft)):
            draft.update(operation=None)
            return Wait(f"{node}: its restart was cancelled before its pod stopped: {blockers[0]}")
        if not pod.deleting:
            draft.act(_restart(draft, operation, pod))
        return Wait(f"{node}: pod {pod.name} is stopping{observed.because(draft.failure())}")
    if pod.down:
        return Wait(f"{node}: pod {pod.name} is starting{observed.because(pod.trouble)}")
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


def hold_for_heartbeats(draft: Draft, message: str) -> Wait | None:
    """Return the wait until every broker has had the time to heartbeat to the controllers, None once it is over.

    The hold stays recorded, so that what follows does not begin it anew; `end_hold` forgets it.
    """
    hold_until = draft.status.hold_until
    if hold_until is None:
        hold_until = draft.now + timedelta(seconds=draft.spec.strategy.session_timeout_hold_seconds)
        draft.update(hold_until=hold_until)
    if draft.now >= hold_until:
        return None
    return Wait(message, WaitKind.HOLD)


def end_hold(draft: Draft) -> Wait | None:
    """Forget the hold."""
    draft.update(hold_until=None, hold_reason="")
    return None


def paused(step: StepContext) -> Wait | None:
    """Return the wait of a paused migration; a restart in progress is finished first."""
    if not step.spec.paused or step.status.operation is not None:
        return None
    message = "Paused by spec.paused at a safe point: no node is down"
    return Wait(message, WaitKind.USER, Reason.PAUSED, requeue_after=SLOW)


OFFSET_RECORDED_EVERY = timedelta(seconds=5)
OFFSET_WATCHED_EVERY = timedelta(seconds=15)
"""Observations further apart than this do not prove that the offset stood still in between."""
KEPT_RESTARTS = 300


def track_quorum(draft: Draft) -> None:
    """Record the quorum's leader, and since when it leads."""
    quorum = draft.observation.quorum
    recorded = draft.status.quorum
    if not isinstance(quorum, QuorumState):
        return
    leader = (quorum.leader_id, quorum.leader_epoch)
    lag = None if quorum.max_lag_records is None else str(quorum.max_lag_records)
    since: datetime | None = draft.now
    if recorded is not None and (recorded.leader_id, recorded.leader_epoch) == leader:
        since = recorded.leader_since
        settled = recorded.max_lag_records is not None or lag is None
        if settled and draft.status.waiting is not None:
            return
    draft.update(
        quorum=QuorumStatus(
            leader_id=quorum.leader_id,
            leader_epoch=quorum.leader_epoch,
            leader_since=since,
            max_lag_records=lag,
            high_watermark=str(quorum.high_watermark),
        )
    )


def track_migration_offset(draft: Draft) -> None:
    """Record when the offset in ``/migration`` last grew.

    At most every `OFFSET_RECORDED_EVERY`, to save writes of the status.
    """
    migration = observed.migration_znode(draft)
    active = draft.observation.active_controller
    if migration is None:
        return
    offset = migration.kraft_metadata_offset
    # There is no offset before the copy. After it, the offset is missing if the controller stopped before it wrote it.
    migrates = active is not None and active.zk_migration_state is ZkMigrationState.MIGRATION
    if offset < 0 and not migrates:
        return
    recorded = draft.status.migration_offset
    newer = MigrationOffset(offset=str(offset), seen_at=draft.now)
    if recorded is None:
        draft.update(migration_offset=newer)
        return
    # A clock that was set back does not make what was recorded newer than it is.
    age = abs(draft.now - recorded.seen_at)
    grown = offset > int(recorded.offset) >= 0
    moved_long_ago = recorded.moved_at is None or abs(draft.now - recorded.moved_at) >= OFFSET_RECORDED_EVERY
    if age < OFFSET_RECORDED_EVERY and not (grown and moved_long_ago):
        return
    changes = {"moved_at": recorded.moved_at}
    if grown:
        changes["moved_at"] = draft.now
    if offset == int(recorded.offset):
        changes["standing_since"] = draft.now
        if age <= OFFSET_WATCHED_EVERY:
            changes["standing_since"] = recorded.standing_since or draft.now
    draft.update(migration_offset=newer.model_copy(update=changes))


def track_unavailability(draft: Draft) -> None:
    """Record the longest time without a controller that the probe has measured in this phase."""
    probe = draft.observation.controller_probe
    if probe is None or probe.ended_at is None or probe.longest_milliseconds <= 0:
        return
    phase = draft.status.phase
    attempt = draft.status.attempt
    others = []
    for record in draft.status.impact.controller_unavailable:
        if (record.phase, record.attempt) != (phase, attempt):
            others.append(record)
        elif record.milliseconds >= probe.longest_milliseconds:
            return
    longest = ControllerUnavailability(
        phase=phase, attempt=attempt, milliseconds=probe.longest_milliseconds, ended_at=probe.ended_at
    )
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
