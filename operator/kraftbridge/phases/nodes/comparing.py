"""Records what a broker is before its restart, and compares it afterwards; no other broker restarts before that. Pure.

ZooKeeper and the metadata log can be equal while a broker does something else than before (docs/brokers.md).
"""

from __future__ import annotations

import hashlib
import json
from datetime import datetime, timedelta
from typing import Final

from kraftbridge.models.broker_record import BrokerNow, BrokerRecord, Difference, DifferenceKind, Effect
from kraftbridge.models.catalogue import Code
from kraftbridge.models.conditions import Reason
from kraftbridge.models.decision import EventReason, EventType, RecordBroker
from kraftbridge.models.observation import NOT_NEEDED, PodState, Unobserved
from kraftbridge.models.phase import BrokerMode
from kraftbridge.models.status import (
    BrokerComparison,
    BrokerDifference,
    BrokerRecordStatus,
    FindingStatus,
    MigrationStatus,
    WaitKind,
    broker_record_name,
    finding,
)
from kraftbridge.phases.becoming.listeners import differing_listeners
from kraftbridge.phases.becoming.offsets import differing_offsets, unknown_offsets
from kraftbridge.phases.becoming.settings import differing_settings, unknown_settings
from kraftbridge.phases.draft import Draft, StepContext, Wait
from kraftbridge.phases.nodes.brokers import is_outdated, serves
from kraftbridge.phases.preflight import dynamic_settings

RECORD_FRESH_FOR: Final = timedelta(seconds=60)
"""Age of a record at which it is taken again before the restart. Reading 200,000 partitions takes about 20 seconds."""
COMPARED_AGAIN_EVERY: Final = timedelta(seconds=10)
PATIENCE: Final = timedelta(minutes=2)
"""How long a broker that is back may be silent before the migration stalls: it loads what its partitions' leaders know."""
KEPT_DIFFERENCES: Final = 20
_SHOWN: Final = 3
_WIDTH: Final = 200
"""Characters of a value in status."""


def comparison_is_due(status: MigrationStatus, now: datetime) -> bool:
    """Return whether the broker that restarted last must be asked in this step."""
    comparison = status.broker_comparison
    if comparison is None:
        return False
    if comparison.compared_at is None:
        return True
    held = status.broker_undo is not None and status.broker_undo.finished_at is not None
    return (held or comparison.differing > 0) and now - comparison.compared_at >= COMPARED_AGAIN_EVERY


def ensure_recorded(draft: Draft, pod: PodState, mode: BrokerMode) -> Wait | None:
    """Return None once there is a fresh record of a broker that is about to restart, and its start will refuse nothing."""
    node_id = draft.status.broker_ids[pod.name]
    name = broker_record_name(draft.identity.name, draft.identity.uid, node_id)
    wanted = BrokerRecordStatus(node_id=node_id, pod_uid=pod.uid, config_map=name)
    record = draft.observation.broker_record
    fresh = (
        draft.status.broker_record == wanted
        and isinstance(record, BrokerRecord)
        and (record.node_id, record.pod_uid) == (node_id, pod.uid)
        and draft.now - record.taken_at <= RECORD_FRESH_FOR
    )
    if not fresh or not isinstance(record, BrokerRecord):
        unread = str(record) if draft.status.broker_record == wanted and isinstance(record, Unobserved) else ""
        if draft.status.broker_record != wanted:
            draft.update(broker_record=wanted)
        draft.act(RecordBroker(node_id, pod.uid, pod.ip, name))
        reason = draft.failure() or unread
        because = f": {reason}" if reason else ""
        return Wait(f"broker {node_id}: what it is before its restart is being recorded{because}")
    if isinstance(record.settings, Unobserved):
        return Wait(f"before broker {node_id} restarts: {record.settings}")
    if mode is BrokerMode.KRAFT:
        refused = dynamic_settings.standing(draft, {node_id: record.settings})
        if refused:
            return _stalled(refused[0])
    return None


def forget_unwritten_record(draft: Draft) -> None:
    """Forget a record that was asked for and never written: the operator or the broker ended before, so the comparison would wait for ever."""
    if draft.status.broker_record is not None and draft.observation.broker_record is None:
        draft.update(broker_record=None)


def begin_comparison(draft: Draft, node_id: int, pod: PodState, mode: BrokerMode) -> None:
    """Record that a broker that is back is to be compared."""
    comparison = BrokerComparison(node_id=node_id, process=pod.process, mode=mode, began_at=draft.now)
    draft.update(broker_comparison=comparison)


def begin_unseen_comparison(draft: Draft) -> bool:
    """Begin to compare a broker that came back by itself and was not compared since. Return whether there is one."""
    sets = draft.stateful_sets()
    if isinstance(sets, Unobserved):
        return False
    known = {node.id: node.compared for node in draft.status.nodes}
    for item in sets:
        mode = BrokerMode.of(item.configuration)
        for pod in item.pods:
            node_id = draft.status.broker_ids.get(pod.name, -1)
            settled = pod.ready and not pod.deleting and not is_outdated(item, pod) and serves(draft, pod)
            if mode is not BrokerMode.ZOOKEEPER and settled and known.get(node_id, "") != pod.process:
                begin_comparison(draft, node_id, pod, mode)
                return True
    return False


def ensure_compared(draft: Draft) -> Wait | None:
    """Return None once the broker that restarted last is what it was, or the user accepts what it is."""
    track_comparison(draft)
    comparison = draft.status.broker_comparison
    if comparison is None:
        return None
    pod = _pod_of(draft, comparison.node_id)
    unlisted = pod is not None and pod.process != comparison.process and not serves(draft, pod)
    if pod is None or not pod.ready or pod.deleting or unlisted:
        return Wait(
            f"broker {comparison.node_id} is not back; it is to be compared with what it was before its restart"
        )
    if pod.process != comparison.process:
        begin_comparison(draft, comparison.node_id, pod, BrokerMode.of(pod.configuration))
        return Wait(f"broker {comparison.node_id} started again; it is compared with what it was before its restart")
    broker = f"broker/{comparison.node_id}"
    if comparison.compared_at is None:
        waiting = f"broker {comparison.node_id} is back ({comparison.mode}); it is compared with what it was before its restart"
        if comparison.unknown:
            waiting = f"{waiting}: {comparison.unknown}"
        if draft.now - comparison.began_at <= PATIENCE:
            return Wait(waiting, requeue_after=timedelta(seconds=1))
        unknown = comparison.unknown or "it was not asked yet"
        found = finding(Code.BROKER_NOT_COMPARED, broker, broker=comparison.node_id, reason=unknown, object=broker)
        if not draft.spec.preflight.accepts(found.code, found.object):
            return _stalled(found)
    elif comparison.differing:
        found = found_difference(comparison)
        if not draft.spec.preflight.accepts(found.code, found.object):
            return _stalled(found)
    nodes = tuple(
        n.model_copy(update={"compared": comparison.process}) if n.id == comparison.node_id else n
        for n in draft.status.nodes
    )
    if nodes != draft.status.nodes:
        draft.update(nodes=nodes)
    return None


def _pod_of(step: StepContext, node_id: int) -> PodState | None:
    sets = step.stateful_sets()
    pods = () if isinstance(sets, Unobserved) else (p for s in sets for p in s.pods)
    return next((p for p in pods if step.status.broker_ids.get(p.name) == node_id), None)


def track_comparison(draft: Draft) -> None:
    """Compare the broker with its record, if this step asked it."""
    comparison = draft.status.broker_comparison
    now = draft.observation.broker_now
    if comparison is None or now == NOT_NEEDED:
        return
    if isinstance(now, Unobserved):
        draft.update(broker_comparison=comparison.model_copy(update={"unknown": str(now)}))
        return
    record = _record_of(draft, comparison)
    unknown = str(record) if isinstance(record, Unobserved) else unknown_settings(now) or unknown_offsets(now)
    if unknown or isinstance(record, Unobserved):
        draft.update(broker_comparison=comparison.model_copy(update={"unknown": unknown}))
        return
    differences = _differences(record, now, draft.now)
    changes = {
        "compared_at": draft.now,
        "unknown": "",
        "differing": len(differences),
        "differences": tuple(_told(d) for d in differences[:KEPT_DIFFERENCES]),
    }
    compared = comparison.model_copy(update=changes)
    if differences and not comparison.differing:
        draft.tell(EventReason.BROKER_DIFFERS, found_difference(compared).reason, EventType.WARNING)
    draft.update(broker_comparison=compared)


def _record_of(step: StepContext, comparison: BrokerComparison) -> BrokerRecord | Unobserved:
    """Return what the broker was. Of one that was down before its restart nothing is on record, and its stored settings must still hold."""
    known = step.status.broker_record
    if known is None or known.node_id != comparison.node_id:
        nothing = Unobserved(f"broker {comparison.node_id}", "it did not serve before its restart")
        return BrokerRecord(comparison.node_id, "", "", comparison.began_at, nothing, (), {})
    record = step.observation.broker_record
    if record is None:
        return Unobserved(f"record of broker {comparison.node_id}", "the record does not exist")
    if isinstance(record, BrokerRecord) and record.node_id != comparison.node_id:
        return Unobserved(f"record of broker {comparison.node_id}", f"it is one of broker {record.node_id}")
    return record


def _differences(record: BrokerRecord, now: BrokerNow, at: datetime) -> list[Difference]:
    found = [*differing_offsets(record, now, at), *differing_settings(record, now), *differing_listeners(record, now)]
    order = list(Effect)
    return sorted(found, key=lambda d: order.index(d.effect))


_RECORDS_GONE: Final = frozenset({DifferenceKind.LOG_START, DifferenceKind.LOG_END})
_REFILL: Final = (
    "Records are gone from its copy, and as a leader it takes them from the other replicas, too: "
    "move these partitions off it and back (kafka-reassign-partitions.sh), which fills its copy again, before it leads them"
)


def found_difference(comparison: BrokerComparison) -> FindingStatus:
    """Return the finding about a broker that is not what it was."""
    told = "; ".join(_words(d) for d in comparison.differences[:_SHOWN])
    if comparison.differing > _SHOWN:
        told = f"{told}; and {comparison.differing - _SHOWN} more in status.brokerComparison"
    if any(d.kind in _RECORDS_GONE for d in comparison.differences):
        told = f"{told}. {_REFILL}"
    broker = f"broker/{comparison.node_id}"
    return finding(Code.BROKER_DIFFERS, broker, broker=comparison.node_id, differences=told, object=broker)


def _words(difference: BrokerDifference) -> str:
    line = f" (log: {difference.line})" if difference.line else ""
    return f"{difference.kind} {difference.what} was {difference.before} and is {difference.after}{line}"


def _told(difference: Difference) -> BrokerDifference:
    return BrokerDifference(
        kind=difference.kind,
        effect=difference.effect,
        what=difference.what,
        before=difference.before[:_WIDTH],
        after=difference.after[:_WIDTH],
        line=difference.line[:_WIDTH],
    )


def settings_digest(step: StepContext, now: BrokerNow) -> str:
    """Return a digest of what decides how a broker's start in KRaft mode ends: its dynamic settings, and what the user states about it."""
    dynamic = (
        {}
        if isinstance(now.settings, Unobserved)
        else {n: [str(s.source), s.value] for n, e in now.settings.items() if e.is_dynamic for s in e.stated[:1]}
    )
    accepted = sorted(f"{a.code} {a.object}" for a in step.spec.preflight.accepted)
    text = json.dumps([dynamic, dict(step.spec.brokers.static_settings), accepted], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _stalled(found: FindingStatus) -> Wait:
    return Wait(
        f"{found.code} on {found.object}: {found.reason}. {found.fix}",
        WaitKind.USER,
        Reason.FINDINGS,
        stalled=True,
        requeue_after=timedelta(seconds=5),
    )
