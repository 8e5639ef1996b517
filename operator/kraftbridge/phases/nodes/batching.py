"""Restarts of several brokers that are down together: who is stopped next, and who is followed. Pure.

`status.operation` follows one broker, and `status.batch` holds the others. The brokers of a batch are stopped one after
another, each once the one before has handed over its leaders. Then each is followed to its end and compared, as if it
had restarted alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from kraftbridge.models.assignments import Assignments
from kraftbridge.models.decision import EventReason
from kraftbridge.models.observation import QuorumState, Unobserved
from kraftbridge.models.phase import BrokerMode, Phase
from kraftbridge.models.status import BatchStatus, BrokerRecordStatus, Operation, broker_record_name
from kraftbridge.phases import gates, observed, shared_settings
from kraftbridge.phases.draft import Draft, StepContext
from kraftbridge.phases.nodes import batches, brokers, stopping
from kraftbridge.phases.nodes.brokers import Roll

PATIENCE: Final = timedelta(seconds=120)
"""How long the next broker of a batch waits after the one before was stopped; then the batch goes on without it."""
FRESH_FOR: Final = timedelta(seconds=10)
"""Maximum age of the in-sync replicas on which a broker of a batch is stopped."""
SETTLED_FOR: Final = timedelta(seconds=5)
"""How long every broker must name the same controller before one restarts in a rollback (`rollback`)."""


def begin_batch(draft: Draft, roll: Roll) -> None:
    """Record which brokers join the one whose restart has just begun. Where anything is not known, none does."""
    operation = draft.status.operation
    found = assignments_of(draft)
    if operation is None or not draft.spec.strategy.in_batches:
        return
    broker_ids = draft.status.broker_ids
    pending = [broker_ids[pod.name] for _, pod in roll.pending]
    if pending[:1] != [operation.node_id]:
        return
    if found is None:
        seen = draft.observation.assignments
        reason = str(seen) if isinstance(seen, Unobserved) else "the last reading is too old"
        _note_alone(draft, operation, f"it is not known where the replicas are: {reason}")
        return
    copies = draft.status.phase is Phase.TAKING_OVER
    alone = batches.going_alone(pending, controller_of(draft), is_first=roll.done == 0, copies=copies)
    # While a node is away, the settings are not read. So those who join a batch are judged when it begins.
    alone |= shared_settings.held(draft)
    batch = batches.next_batch(pending, found, draft.spec.strategy.most_down(len(broker_ids)), alone)
    if len(batch.brokers) == 1:
        _note_alone(draft, operation, batch.limit)
        return
    draft.update(
        batch=BatchStatus(
            brokers=batch.brokers[:1], waiting=batch.brokers[1:], stopped_at=draft.now, limit=batch.limit[:500]
        )
    )
    names = ", ".join(map(str, batch.brokers))
    limit = f"; {batch.limit}" if batch.limit else ""
    draft.tell(EventReason.BROKER_RESTARTING, f"Brokers {names} restart together, one stopped after another{limit}")


def _note_alone(draft: Draft, operation: Operation, why: str) -> None:
    if why:
        draft.tell(EventReason.BROKER_RESTARTING, f"Broker {operation.node_id} restarts alone: {why}")


def controller_of(step: StepContext) -> int | None:
    """Return the broker that is ZooKeeper's controller, None if none is known to be."""
    znode = observed.controller_znode(step)
    return None if znode is None or znode.kraft_controller_epoch >= 0 else znode.broker_id


def assignments_of(step: StepContext) -> Assignments | None:
    """Return where the replicas are, None if this was not read right now."""
    seen = step.observation.assignments
    if isinstance(seen, Unobserved):
        return None
    found = seen.by_broker(step.status.broker_ids)
    return found if observed.age(step, found.read_at) <= FRESH_FOR and found.read_at is not None else None


def away(step: StepContext) -> frozenset[int]:
    """Return the brokers that restart now."""
    operation = step.status.operation
    batch = step.status.batch
    others = () if batch is None else batch.others
    return frozenset(each.node_id for each in (operation, *others) if each is not None)


def not_listening(step: StepContext) -> frozenset[int]:
    """Return those of them that stop or are not Ready again: nobody connects to them."""
    pods = (pod for _, pod in observed.brokers_of(step))
    ready = {step.status.broker_ids.get(pod.name) for pod in pods if pod.ready and not pod.deleting}
    return away(step) - ready


def is_joining(step: StepContext, operation: Operation) -> bool:
    """Return whether an operation is that of a broker which joins others of its batch that were stopped before."""
    batch = step.status.batch
    return batch is not None and bool(batch.others) and batch.brokers[-1:] == (operation.node_id,)


# ------------------------------------------------------------------------------------------------ the next one


def handing_over(step: StepContext, operation: Operation) -> str:
    """Return why the broker that was stopped last still counts on the others of its batch; ``""`` once it does not."""
    broker = brokers.broker_named(step, operation.pod)
    if broker is None:
        return f"pod {operation.pod} is being replaced"  # the next one tells when it was gone
    if broker[1].uid != operation.pod_uid:
        # It went before its leaders were seen to move, as one does that is killed.
        return stopping.untold(step, operation, *broker)
    if not broker[1].deleting:
        return f"pod {operation.pod} is not stopping yet"
    found = assignments_of(step)
    if found is None:
        return "it is not known which partitions it leads"
    return f"broker {operation.node_id} hands over its leaders" if operation.node_id in found.leaders else ""


def blockers(step: StepContext, broker: int, mode: BrokerMode) -> list[str]:
    """Return why a broker must not be stopped while others of its batch are down."""
    stopped = away(step) - {broker}
    return [
        *_roles(step, broker, stopped),
        *_ends(step, broker),
        *_service(step, stopped),
        *gates.liveness_blockers(step, stopped),
        *gates.redundancy_blockers(step),
        *(gates.quorum_blockers(step) if mode.registers else ()),
        *_metadata(step, mode),
        *_replicas(step, sorted(stopped), broker),
    ]


def _roles(step: StepContext, broker: int, stopped: frozenset[int]) -> list[str]:
    """Return whether this broker must go alone by now."""
    roll = brokers.roll_of(step)
    if isinstance(roll, Unobserved):
        return [str(roll)]
    left = {step.status.broker_ids[pod.name] for _, pod in roll.pending} - stopped - {broker}
    return gates.failed(
        (controller_of(step) == broker, f"broker {broker} goes alone: {batches.CONTROLLER}"),
        (
            step.status.phase is Phase.TAKING_OVER and not left,
            f"broker {broker} goes alone: {batches.LAST}",
        ),
    )


def _ends(step: StepContext, broker: int) -> list[str]:
    """Return which broker of the batch had to be killed: clients saw it vanish, and the next one ends likewise."""
    batch = step.status.batch
    others = () if batch is None else batch.others
    found = []
    for operation in filter(None, (step.status.operation, *others)):
        former = brokers.broker_named(step, operation.pod)
        if former is None or operation.node_id == broker:
            continue
        if how := stopping.killed(step, operation, *former):
            found.append(f"broker {operation.node_id} was killed: {how}")
    return found


def _service(step: StepContext, stopped: frozenset[int]) -> list[str]:
    """Every other broker serves, and nothing lacks a replica but those that are down by us."""
    broker_ids = step.status.broker_ids
    expected = frozenset(broker_ids.values())
    others = (pod for _, pod in observed.brokers_of(step) if broker_ids.get(pod.name) not in stopped)
    views = gates.views_of_cluster(step)
    found = [*observed.down(others), *gates.failed((len(views) < min(2, len(expected)), "two brokers must agree"))]
    for view in views:
        missing = sorted(expected - view.brokers - stopped)
        lagging = sorted(view.lagging - stopped)
        found += gates.failed(
            (missing, f"broker {_list(missing)} does not serve Metadata"),
            (view.offline_count, f"{view.offline_count} partition(s) without a leader"),
            (lagging, f"broker {_list(lagging)} is out of sync"),
        )
    return found


def _metadata(step: StepContext, mode: BrokerMode) -> list[str]:
    """Return why the metadata do not reach the stores and brokers that need them, or why nobody moves leaders."""
    phase = step.status.phase
    if phase is Phase.UPGRADING_BROKERS:
        return gates.failed((controller_of(step) is None, "a broker must be controller (ZooKeeper's /controller)"))
    if phase is Phase.ROLLING_BACK and mode is BrokerMode.ZOOKEEPER:
        agreed = observed.age(step, step.status.controller_agreed_since) >= SETTLED_FOR
        return gates.failed((not agreed, "the brokers do not name the same controller"))
    mirrors = phase.row.mirrors or (phase is Phase.ROLLING_BACK and not step.spec.rollback.accept_loss)
    return gates.failed((mirrors and not gates.mirrors(step), "ZooKeeper does not mirror the log"))


def _replicas(step: StepContext, stopped: list[int], broker: int) -> list[str]:
    found = assignments_of(step)
    if found is None:
        return ["the partitions' in-sync replicas are being read again"]
    lacking = batches.refusal(found, stopped, broker)
    return [lacking] if lacking else []


def _list(items: Iterable[object]) -> str:
    return ", ".join(map(str, items))


# ----------------------------------------------------------------------------------------------- the record of it


def record_of(step: StepContext, operation: Operation) -> BrokerRecordStatus | None:
    """Return the record of the broker that an operation of a batch restarts; a rollback makes none."""
    if step.status.phase is Phase.ROLLING_BACK:
        return None
    name = broker_record_name(step.identity.name, step.identity.uid, operation.node_id)
    return BrokerRecordStatus(node_id=operation.node_id, pod_uid=operation.pod_uid, config_map=name)


def take_stopped(draft: Draft, batch: BatchStatus, former: Operation) -> None:
    """Record that the next broker of a batch is stopped, beside those before."""
    operation = draft.status.operation
    if operation is None:
        return
    joined = {
        "brokers": (*batch.brokers, operation.node_id),
        "waiting": batch.waiting[1:],
        "others": (*batch.others, former),
        "stopped_at": draft.now,
    }
    draft.update(batch=batch.model_copy(update=joined))


def drop_waiting(draft: Draft) -> None:
    """Let the batch be those that were stopped; the others go with a later one."""
    batch = draft.status.batch
    operation = draft.status.operation
    if batch is None:
        return
    draft.update(batch=batch.model_copy(update={"waiting": ()}))
    if operation is not None:
        draft.update(broker_record=record_of(draft, operation))


def restore_former(draft: Draft) -> None:
    """Follow the broker that was stopped before again, after the restart of the last one was cancelled."""
    batch = draft.status.batch
    if batch is None or not batch.others:
        return
    former = batch.others[-1]
    left = {"brokers": batch.brokers[:-1], "waiting": (), "others": batch.others[:-1]}
    draft.update(operation=former, batch=batch.model_copy(update=left), broker_record=record_of(draft, former))


def note_ends(draft: Draft) -> None:
    """Record what is seen of the ends of the pods that a batch restarts, also in a step that stops the next one."""
    batch = draft.status.batch
    operation = draft.status.operation
    if batch is None or operation is None:
        return
    followed = _noted(draft, operation)
    if followed != operation:
        draft.update(operation=followed)
    noted = tuple(_noted(draft, other) for other in batch.others)
    if noted != batch.others:
        draft.update(batch=batch.model_copy(update={"others": noted}))


def _noted(step: StepContext, operation: Operation) -> Operation:
    broker = brokers.broker_named(step, operation.pod)
    return operation if broker is None else stopping.with_end(step, operation, broker[1])


def follow_other(draft: Draft) -> None:
    """Follow another broker of the batch once the one that is followed is back and the other one is not.

    So deadlines, logs and messages are about the broker that needs them.
    """
    batch = draft.status.batch
    operation = draft.status.operation
    if batch is None or operation is None or batch.waiting or not _is_back(draft, operation):
        return
    late = next((other for other in batch.others if not _is_back(draft, other)), None)
    if late is None:
        return
    others = (*(other for other in batch.others if other is not late), operation)
    draft.update(
        operation=late, batch=batch.model_copy(update={"others": others}), broker_record=record_of(draft, late)
    )


def take_other(draft: Draft) -> bool:
    """Follow the next broker of the batch after one has ended; return whether there is one."""
    batch = draft.status.batch
    if batch is None or draft.status.operation is not None or not batch.others:
        return False
    first, *rest = batch.others
    left = {"others": tuple(rest), "waiting": ()}
    draft.update(operation=first, batch=batch.model_copy(update=left), broker_record=record_of(draft, first))
    return True


def _is_back(step: StepContext, operation: Operation) -> bool:
    """Return whether a broker runs again as far as its pod and the quorum tell."""
    broker = brokers.broker_named(step, operation.pod)
    if broker is None or not broker[1].replaces(operation) or broker[1].down:
        return False
    quorum = step.observation.quorum
    if not BrokerMode.of(broker[1].configuration).registers or not isinstance(quorum, QuorumState):
        return True
    return operation.node_id in quorum.observers
