"""How a broker ended when it was restarted: by itself, or because the kubelet killed it. Pure.

A broker that gets SIGTERM moves its leaderships, closes its logs and leaves the mark of a clean shutdown
(``KafkaServer.shutdown``, ``LogManager.shutdown``). One that does not is killed with SIGKILL after its grace period
(Kubernetes, "Pod Lifecycle"): clients see it vanish, and it recovers its logs at its start.

What shows it: exit code 137 (128 + SIGKILL) of Kafka's container, as long as the old pod is there. An end that nobody
saw is judged by the API server's clock: the StatefulSet's controller creates the next pod once the old one is gone, and
that one had until its ``deletionTimestamp``. A pod with another container that does not end has all of this time, too,
so what is known of Kafka's container comes first.
An init process whose shell ends and leaves Kafka behind (``tini`` around ``bash -c`` without ``exec``) exits at once,
and Kafka is killed with it: then only the next start tells, which finds no mark of a clean shutdown.
So a restart is over only when the log of the next start could be read. It says nothing until ``LogManager`` loads the
logs, so its silence counts only once it was read after the broker was back. An end of which it says nothing even then,
because it has no INFO lines, is one that is not known, also if the pod went in time: it holds the roll like a killed
broker.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from kraftbridge.models.catalogue import Code
from kraftbridge.models.observation import PodState, StartLog, StatefulSetState, Unobserved
from kraftbridge.models.phase import Phase
from kraftbridge.models.pod_problem import OOM_KILLED
from kraftbridge.models.status import KilledBroker, Operation, finding
from kraftbridge.phases import observed
from kraftbridge.phases.draft import Draft, StepContext, Wait, for_user

SIGKILLED: Final = 137


def note_end(draft: Draft, operation: Operation, pod: PodState) -> Operation:
    """Record what is seen of the end of the pod that a restart replaces; return the record."""
    noted = with_end(draft, operation, pod)
    if noted != operation:
        draft.update(operation=noted)
    return noted


def with_end(step: StepContext, operation: Operation, pod: PodState) -> Operation:
    """Return the record of a restart with what is seen of the end of the pod that it replaces, or told by the next."""
    if pod.replaces(operation):
        if operation.replaced_at is None:
            operation = operation.model_copy(update={"replaced_at": pod.created_at})
        return _with_next_start(step, operation, pod)
    if pod.uid != operation.pod_uid or pod.kill_due_at is None:
        return operation
    found: dict[str, object] = {"kill_due_at": pod.kill_due_at, "grace_seconds": pod.grace_seconds}
    ended = {name: (code, reason) for name, code, reason in pod.exits}
    container = step.spec.brokers.container
    if container in ended:
        code, reason = ended[container]
        found |= {"exit_code": code, "exit_reason": reason}
    return operation.model_copy(update=found)


def _with_next_start(step: StepContext, operation: Operation, pod: PodState) -> Operation:
    """Return the record with what the log of the next pod says first; a later process of it tells of its own end.

    A pod that replaces the next one in its turn tells how that one ended, and so does a container that is started
    again. A clean end shows as well that a broker ends by itself; a crash shows nothing of the one that was restarted.
    """
    log = step.observation.start_log
    if _tells(operation) or not isinstance(log, StartLog) or log.process != pod.process:
        return operation
    is_next_start = pod.created_at == operation.replaced_at and step.spec.brokers.container not in pod.started_again
    unclean = log.unclean if is_next_start else ""
    if not log.clean and not unclean:
        return operation
    return operation.model_copy(update={"unclean_start": unclean, "clean_start": log.clean})


def ensure_log_read(draft: Draft, operation: Operation, stateful_set: str, pod: PodState) -> Wait | None:
    """Return the wait while the log of the next start, which tells how the old Kafka ended, cannot be read.

    A log that says nothing is read once more after the broker was seen to be back.
    """
    if not operation.serving or _tells(operation) or _may_be_killed(draft, stateful_set):
        return None
    log = draft.observation.start_log
    read = log if isinstance(log, StartLog) and log.process == pod.process else None
    if read is not None and read.whole:
        return None
    if read is not None and operation.back_process != pod.process:
        draft.update(operation=operation.model_copy(update={"back_process": pod.process}))
    cause = str(log) if isinstance(log, Unobserved) else f"the log of pod {pod.name} is not read yet"
    return Wait(
        f"broker {operation.node_id} is back, and how it ended before is not known: {cause}. "
        "Let the operator read this log"
    )


def _tells(operation: Operation) -> bool:
    """Return whether the log of the next start has told how the old Kafka ended."""
    return operation.clean_start or bool(operation.unclean_start)


def untold(step: StepContext, operation: Operation, stateful_set: StatefulSetState, pod: PodState) -> str:
    """Return why it is not known that a broker which starts again had ended by itself; ``""`` if it is, or need not."""
    if not operation.serving or operation.clean_start or _may_be_killed(step, stateful_set.name):
        return ""
    return f"the log of pod {pod.name} does not tell how broker {operation.node_id} ended"


def killed(step: StepContext, operation: Operation, stateful_set: StatefulSetState, pod: PodState) -> str:
    """Return what shows already that a broker was killed which restarts; empty also where that holds nothing up."""
    if not pod.replaces(operation) or _may_be_killed(step, stateful_set.name):
        return ""
    return _how(operation, pod)


def _may_be_killed(step: StepContext, stateful_set: str) -> bool:
    """Return whether nothing waits for how a broker ended: in a rollback, and where the user accepts that."""
    if step.status.phase is Phase.ROLLING_BACK:
        return True
    return step.spec.preflight.accepts(Code.BROKER_KILLED, f"StatefulSet/{stateful_set}")


def note_killed(draft: Draft, operation: Operation, stateful_set: StatefulSetState, pod: PodState) -> None:
    """Record that the broker which has restarted was killed; one that ended by itself changes nothing."""
    how = _how(operation, pod) or _unknown(draft, operation)
    if not how:
        return
    grace_seconds = operation.grace_seconds or draft.spec.strategy.termination_grace_seconds
    gone_at = _gone_at(operation, pod) or draft.now
    seconds = 0.0  # without a look at the deletion only the log tells, and a longer grace period is not known to help
    if operation.kill_due_at is not None:
        deleted_at = operation.kill_due_at - timedelta(seconds=grace_seconds)
        seconds = (gone_at - deleted_at).total_seconds()
    draft.update(
        killed_broker=KilledBroker(
            node_id=operation.node_id,
            pod=operation.pod,
            stateful_set=stateful_set.name,
            attempt=draft.status.attempt,
            killed_at=gone_at,
            seconds=max(0, int(seconds)),
            grace_seconds=grace_seconds,
            reason=how,
        )
    )


def _gone_at(operation: Operation, pod: PodState) -> datetime | None:
    """Return when the old pod was gone: its StatefulSet's controller creates the next one then."""
    return operation.replaced_at or pod.created_at


def _how(operation: Operation, pod: PodState) -> str:
    """Return what shows that the old Kafka was killed; empty if it ended by itself or was down, or is not known."""
    due_at = operation.kill_due_at
    if not operation.serving:
        return ""
    left_behind = f"the next Kafka says: {operation.unclean_start}" if operation.unclean_start else ""
    if due_at is None:
        return left_behind
    gone_at = _gone_at(operation, pod)
    whole = gone_at is not None and gone_at >= due_at
    grace = f"{operation.grace_seconds} s" if operation.grace_seconds else "its whole time"
    if operation.exit_reason == OOM_KILLED:
        return "its container was killed because it reached its memory limit while it ended"
    if operation.exit_code == SIGKILLED and whole:
        return f"it ran on for {grace}, and the kubelet killed it (exit code {SIGKILLED})"
    if operation.exit_code == SIGKILLED:
        return f"its container was killed before its {grace} were over (exit code {SIGKILLED})"
    if operation.exit_code is None and whole:
        return f"its pod was there for all of the {grace} that it had to end"
    return left_behind


def _unknown(step: StepContext, operation: Operation) -> str:
    """Return why it is not known how the old Kafka ended; empty if it is, or nobody waits for it."""
    if not operation.serving or _tells(operation):
        return ""
    if step.status.phase is Phase.ROLLING_BACK:
        return ""
    silent = "the log of its next start has no line of LogManager that says how it did"
    if operation.kill_due_at is None:
        return f"nobody saw it end, and {silent}"
    return f"its pod went in time, also if a shell ended and left Kafka behind, and {silent}"


def wait_before_restart(step: StepContext) -> Wait | None:
    """Return the wait after a broker was killed, until the user accepts it or gives the brokers more time.

    A rollback goes on: nothing else brings the brokers back.
    """
    killed = observed.of_attempt(step.status, step.status.killed_broker)
    if killed is None or step.status.phase is Phase.ROLLING_BACK:
        return None
    took_all = killed.seconds >= killed.grace_seconds
    if took_all and step.spec.strategy.termination_grace_seconds > killed.grace_seconds:
        return None
    found = finding(
        Code.BROKER_KILLED,
        f"StatefulSet/{killed.stateful_set}",
        broker=killed.node_id,
        pod=killed.pod,
        at=f"{killed.killed_at:%Y-%m-%d %H:%M:%S} UTC, after {killed.seconds} s",
        how=killed.reason,
        seconds=killed.grace_seconds,
    )
    if step.spec.preflight.accepts(found.code, found.object):
        return None
    return for_user(found.sentence)
