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
from kraftbridge.models.decision import EventReason, EventType, RecordBroker
from kraftbridge.models.observation import NOT_NEEDED, PodState, StatefulSetState, Unobserved
from kraftbridge.models.phase import BrokerMode
from kraftbridge.models.status import (
    BrokerComparison,
    BrokerDifference,
    BrokerRecordStatus,
    FindingStatus,
    MigrationStatus,
    broker_record_name,
    finding,
)
from kraftbridge.phases import observed
from kraftbridge.phases.becoming.listeners import differing_listeners
from kraftbridge.phases.becoming.offsets import differing_offsets, unknown_offsets
from kraftbridge.phases.becoming.settings import differing_settings, unknown_settings
from kraftbridge.phases.draft import Draft, StepContext, Wait, for_user
from kraftbridge.phases.nodes import brokers
from kraftbridge.phases.nodes.brokers import is_outdated, serves
from kraftbridge.phases.preflight import dynamic_settings

RECORD_FRESH_FOR: Final = timedelta(seconds=60)
"""Age of a record at which it is taken again before the restart. Reading 200,000 partitions takes about 20 seconds."""
COMPARED_AGAIN_EVERY: Final = timedelta(seconds=10)
PATIENCE: Final = timedelta(minutes=2)
"""How long a broker that is back may be silent before the migration stalls.
It loads what its partitions' leaders know."""
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
    """Return None once there is a fresh record of a broker that is about to restart.

    In KRaft mode its start must refuse nothing, too.
    """
    node_id = draft.status.broker_ids[pod.name]
    name = broker_record_name(draft.identity.name, draft.identity.uid, node_id)
    wanted = BrokerRecordStatus(node_id=node_id, pod_uid=pod.uid, config_map=name)
    record = draft.observation.broker_record if draft.status.broker_record == wanted else None
    if not isinstance(record, BrokerRecord) or not _is_fresh(draft, record, wanted):
        draft.update(broker_record=wanted)
        draft.act(RecordBroker(node_id, pod.uid, pod.ip, name))
        unread = str(record) if isinstance(record, Unobserved) else ""
        because = observed.because(draft.failure() or unread)
        return Wait(f"broker {node_id}: what it is before its restart is being recorded{because}")
    if isinstance(record.settings, Unobserved):
        return Wait(f"before broker {node_id} restarts: {record.settings}")
    if not mode.is_of_kraft:
        return None
    refused = dynamic_settings.standing(draft, {node_id: record.settings})
    if refused:
        return for_user(refused[0].sentence)
    return None


def _is_fresh(step: StepContext, record: BrokerRecord, wanted: BrokerRecordStatus) -> bool:
    of_this_pod = record.node_id == wanted.node_id and record.pod_uid == wanted.pod_uid
    return of_this_pod and step.now - record.taken_at <= RECORD_FRESH_FOR


def forget_unwritten_record(draft: Draft) -> None:
    """Forget a record that was asked for and never written, because the operator or the broker ended before.

    The comparison would wait for it for ever.
    """
    if draft.observation.broker_record is None:
        draft.update(broker_record=None)


def begin_comparison(draft: Draft, node_id: int, pod: PodState, mode: BrokerMode) -> None:
    """Record that a broker that is back is to be compared."""
    comparison = BrokerComparison(node_id=node_id, process=pod.process, mode=mode, began_at=draft.now)
    draft.update(broker_comparison=comparison)


def begin_unseen_comparison(draft: Draft) -> bool:
    """Begin to compare a broker that came back by itself and was not compared since. Return whether there is one."""
    compared = {node.id: node.compared for node in draft.status.nodes}
    for stateful_set, pod in observed.brokers_of(draft):
        node_id = draft.status.broker_ids.get(pod.name, -1)
        mode = BrokerMode.of(stateful_set.configuration)
        is_new = mode is not BrokerMode.ZOOKEEPER and compared.get(node_id, "") != pod.process
        if is_new and _is_settled(draft, stateful_set, pod):
            forget_unwritten_record(draft)
            begin_comparison(draft, node_id, pod, mode)
            return True
    return False


def _is_settled(step: StepContext, stateful_set: StatefulSetState, pod: PodState) -> bool:
    return not observed.down([pod]) and not is_outdated(stateful_set, pod) and serves(step, pod)


def ensure_compared(draft: Draft) -> Wait | None:
    """Return None once the broker that restarted last is what it was, or the user accepts what it is."""
    track_comparison(draft)
    comparison = draft.status.broker_comparison
    if comparison is None:
        return None
    waiting = _follow_comparison(draft, comparison)
    if waiting is None:
        _conclude_comparison(draft, comparison)
    return waiting


def _follow_comparison(draft: Draft, comparison: BrokerComparison) -> Wait | None:
    """Return None once the broker was compared in vain or with success, and the user accepts what differs."""
    node_id = comparison.node_id
    broker = brokers.broker_with_id(draft, node_id)
    pod = None if broker is None or observed.down([broker[1]]) else broker[1]
    is_same = pod is not None and pod.process == comparison.process
    if pod is None or not (is_same or serves(draft, pod)):
        return Wait(f"broker {node_id} is not back; it is to be compared with what it was before its restart")
    if not is_same:
        begin_comparison(draft, node_id, pod, BrokerMode.of(pod.configuration))
        return Wait(f"broker {node_id} started again; it is compared with what it was before its restart")
    if comparison.compared_at is None and draft.now - comparison.began_at <= PATIENCE:
        message = f"broker {node_id} is back ({comparison.mode}); it is compared with what it was before its restart"
        return Wait(f"{message}{observed.because(comparison.unknown)}", requeue_after=timedelta(seconds=1))
    result = _finding_of(comparison)
    if result is None or draft.spec.preflight.accepts(result.code, result.object):
        return None
    return for_user(result.sentence)


def _finding_of(comparison: BrokerComparison) -> FindingStatus | None:
    """Return the finding about a broker that is not what it was or could not be compared, None for any other."""
    if comparison.compared_at is not None:
        if comparison.differing:
            return found_difference(comparison)
        return None
    broker = f"broker/{comparison.node_id}"
    reason = comparison.unknown or "it was not asked yet"
    return finding(Code.BROKER_NOT_COMPARED, broker, broker=comparison.node_id, reason=reason, object=broker)


def _conclude_comparison(draft: Draft, comparison: BrokerComparison) -> None:
    """Record that the process that runs now was compared."""
    nodes = {node.id: node for node in draft.status.nodes}
    node = nodes.get(comparison.node_id)
    if node is not None and node.compared != comparison.process:
        nodes[node.id] = node.model_copy(update={"compared": comparison.process})
        draft.update(nodes=tuple(nodes.values()))


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
    if isinstance(record, Unobserved):
        draft.update(broker_comparison=comparison.model_copy(update={"unknown": str(record)}))
        return
    if unknown := unknown_settings(now) or unknown_offsets(now):
        draft.update(broker_comparison=comparison.model_copy(update={"unknown": unknown}))
        return
    new_release = comparison.mode.is_of_bridge
    differences = _differences(record, now, draft.now, new_release=new_release, kafka4=_crosses_kafka4(draft))
    changes = {
        "compared_at": draft.now,
        "unknown": "",
        "differing": len(differences),
        "differences": tuple(map(_shortened, differences[:KEPT_DIFFERENCES])),
    }
    compared = comparison.model_copy(update=changes)
    if differences and not comparison.differing:
        draft.tell(EventReason.BROKER_DIFFERS, found_difference(compared).reason, EventType.WARNING)
    draft.update(broker_comparison=compared)


def _crosses_kafka4(step: StepContext) -> bool:
    """Return whether brokers are brought to Kafka 4 or back: a broker may have other settings and defaults than before.

    The readiness for Kafka 4 has told them.
    """
    return step.status.phase.row.on_kafka4


def _record_of(step: StepContext, comparison: BrokerComparison) -> BrokerRecord | Unobserved:
    """Return what the broker was.

    Of one that was down before its restart nothing is on record, and its stored settings must still hold.
    """
    node_id = comparison.node_id
    asked = step.status.broker_record
    if asked is None or asked.node_id != node_id:
        nothing = Unobserved(f"broker {node_id}", "it did not serve before its restart")
        return BrokerRecord(node_id, "", "", comparison.began_at, nothing, (), {})
    record = step.observation.broker_record
    if record is None:
        return Unobserved(f"record of broker {node_id}", "the record does not exist")
    if isinstance(record, BrokerRecord) and record.node_id != node_id:
        return Unobserved(f"record of broker {node_id}", f"it is one of broker {record.node_id}")
    return record


def _differences(
    record: BrokerRecord, now: BrokerNow, at: datetime, *, new_release: bool, kafka4: bool
) -> list[Difference]:
    differences = [
        *differing_offsets(record, now, at),
        *differing_settings(record, now, new_release=new_release, kafka4=kafka4),
        *differing_listeners(record, now),
    ]
    order = list(Effect)
    return sorted(differences, key=lambda difference: order.index(difference.effect))


_RECORDS_GONE: Final = frozenset({DifferenceKind.LOG_START, DifferenceKind.LOG_END})
_REFILL: Final = (
    "Records are gone from its copy, and as a leader it takes them from the other replicas, too: "
    "move these partitions off it and back (kafka-reassign-partitions.sh), "
    "which fills its copy again, before it leads them"
)


def found_difference(comparison: BrokerComparison) -> FindingStatus:
    """Return the finding about a broker that is not what it was."""
    words = "; ".join(map(_words, comparison.differences[:_SHOWN]))
    if comparison.differing > _SHOWN:
        words = f"{words}; and {comparison.differing - _SHOWN} more in status.brokerComparison"
    if not _RECORDS_GONE.isdisjoint(difference.kind for difference in comparison.differences):
        words = f"{words}. {_REFILL}"
    broker = f"broker/{comparison.node_id}"
    return finding(Code.BROKER_DIFFERS, broker, broker=comparison.node_id, differences=words, object=broker)


def _words(difference: BrokerDifference) -> str:
    line = f" (log: {difference.line})" if difference.line else ""
    return f"{difference.kind} {difference.what} was {difference.before} and is {difference.after}{line}"


def _shortened(difference: Difference) -> BrokerDifference:
    return BrokerDifference(
        kind=difference.kind,
        effect=difference.effect,
        what=difference.what,
        before=difference.before[:_WIDTH],
        after=difference.after[:_WIDTH],
        line=difference.line[:_WIDTH],
    )


def settings_digest(step: StepContext, now: BrokerNow) -> str:
    """Return a digest of what decides how a broker's start in KRaft mode ends.

    That is its dynamic settings, and what the user states about it.
    """
    dynamic: dict[str, list[str | None]] = {}
    if not isinstance(now.settings, Unobserved):
        stated = ((name, entry.stated) for name, entry in now.settings.items() if entry.is_dynamic)
        dynamic = {name: [str(first.source), first.value] for name, (first, *_) in stated}
    accepted = sorted(f"{entry.code} {entry.object}" for entry in step.spec.preflight.accepted)
    text = json.dumps([dynamic, dict(step.spec.brokers.static_settings), accepted], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
