"""Deadlines of each stage of a restart, and the action past them: one table per operation and direction. Pure.

Past its deadline a restart is stalled: condition ``Stalled`` is True and names the stage.
The table's action follows. ``docs/troubleshooting.md`` shows the same table
(``tests/unit/phases/test_deadlines.py`` compares them).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

from kraftbridge.models.observation import PodState, Unobserved
from kraftbridge.models.phase import BrokerMode, Phase
from kraftbridge.models.status import Operation, OperationKind
from kraftbridge.phases import observed
from kraftbridge.phases.draft import StepContext
from kraftbridge.phases.nodes import brokers, sights


class Direction(StrEnum):
    """Direction of the migration."""

    FORWARD = "forward"
    BACK = "back to ZooKeeper"


class Stage(StrEnum):
    """Stage of a restart."""

    STOPPING = "its pod does not stop"
    STARTING = "its new pod is not Ready"
    UNREGISTERED = "its pod is Ready, but the broker does not register with the quorum"
    CATCHING_UP = "its pod is Ready, but the cluster or the quorum does not have it back"


class PastDeadline(StrEnum):
    """Action past a deadline, besides ``Stalled``."""

    WAIT = "nothing more is restarted until somebody helps"
    RESTART_AGAIN = (
        "it is restarted once more, if its log shows that it does not load partitions "
        "and while every other broker serves"
    )
    GO_ON = (
        "the rollback goes on without it: its configuration may be why; "
        "no other broker restarts before the cluster is whole"
    )


def past_deadline(kind: OperationKind, direction: Direction, stage: Stage) -> PastDeadline:
    """Return the table's action."""
    if direction is Direction.BACK:
        if stage is Stage.STOPPING:
            return PastDeadline.WAIT
        return PastDeadline.GO_ON
    helps = kind is OperationKind.RESTART_BROKER and stage is Stage.UNREGISTERED
    if helps:
        return PastDeadline.RESTART_AGAIN
    return PastDeadline.WAIT


def seconds_of(direction: Direction, stage: Stage, termination_grace_seconds: int) -> int:
    """Return the deadline of a stage in seconds, from the start of the restart or, once the pod is Ready, from then."""
    match stage:
        case Stage.STOPPING:
            return termination_grace_seconds + 60
        case Stage.STARTING:
            if direction is Direction.FORWARD:
                return 300
            return 120
        case Stage.UNREGISTERED:
            return 180
        case Stage.CATCHING_UP:
            return 600


def current(step: StepContext) -> Operation | None:
    """Return the restart in progress, or else the one that a rollback gave up and whose broker is not back."""
    return step.status.operation or step.status.given_up


def overdue(step: StepContext) -> tuple[Stage, PastDeadline] | None:
    """Return the stage in which the current restart is past its deadline, and the table's action.

    None while it is within its deadline.
    """
    operation = current(step)
    if operation is None:
        return None
    pod = _pod_of(step, operation)
    if isinstance(pod, Unobserved):
        return None
    stage, since = _stage(step, operation, pod)
    if pod is not None:
        since = max(since, sights.recovering(step, pod) or since)  # the loading of partitions is progress
    direction = Direction.BACK if step.status.phase is Phase.ROLLING_BACK else Direction.FORWARD
    seconds = seconds_of(direction, stage, step.spec.strategy.termination_grace_seconds)
    if step.now - since <= timedelta(seconds=seconds):
        return None
    action = past_deadline(operation.kind, direction, stage)
    if action is PastDeadline.RESTART_AGAIN and (operation.repeated or pod is None or sights.start_problem(step, pod)):
        action = PastDeadline.WAIT
    return stage, action


def action_due(step: StepContext) -> PastDeadline | None:
    """Return the table's action for the current restart, None while it is within its deadline."""
    late = overdue(step)
    return None if late is None else late[1]


def _stage(step: StepContext, operation: Operation, pod: PodState | None) -> tuple[Stage, datetime]:
    """Return the stage of a restart and when the stage started; None: its pod does not exist."""
    if pod is not None and pod.uid == operation.pod_uid:
        return Stage.STOPPING, operation.started_at
    if pod is None or pod.down:
        return Stage.STARTING, operation.started_at
    since = pod.ready_since or operation.started_at
    # Without an active controller no broker can register, and a restart does not help.
    of_broker = operation.kind is OperationKind.RESTART_BROKER and step.observation.active_controller is not None
    if of_broker and brokers.registration_blockers(step, BrokerMode.of(pod.configuration)):
        return Stage.UNREGISTERED, since
    return Stage.CATCHING_UP, since


def _pod_of(step: StepContext, operation: Operation) -> PodState | Unobserved | None:
    of_controller = operation.kind is OperationKind.RESTART_CONTROLLER
    owners = step.observation.controllers if of_controller else step.stateful_sets()
    if isinstance(owners, Unobserved):
        return owners
    if not of_controller:
        broker = brokers.broker_named(step, operation.pod)
        if broker is None:
            return None
        return broker[1]
    return next((pod for pod in observed.controllers_pods(step) if pod.name == operation.pod), None)
