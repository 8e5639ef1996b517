"""Restarts one broker or controller: records the restart, restarts the pod, follows its replacement, holds before the next. Pure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from kraftbridge.models.conditions import Reason
from kraftbridge.models.decision import RestartPod
from kraftbridge.models.observation import PodState
from kraftbridge.models.status import Operation, OperationKind, WaitKind
from kraftbridge.phases.draft import Draft, StepContext, Wait

CONTROLLER_GRACE_SECONDS = 60
"""A controller hands over its leadership and closes its log; it has no partitions to move."""

DEAF_FOR = timedelta(seconds=30)
"""A container that has just started may ignore SIGTERM. Its process 1 is a shell or a JVM without signal handlers yet, and process 1 ignores
signals that it does not handle (pid_namespaces(7)). It would run for its whole grace period and then be killed."""


def begin(draft: Draft, kind: OperationKind, node_id: int, pod: PodState) -> None:
    """Record the restart of a node and restart its pod."""
    operation = Operation(kind=kind, node_id=node_id, pod=pod.name, pod_uid=pod.uid, started_at=draft.now)
    draft.update(operation=operation)
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
