"""Takes a broker back from KRaft mode to migration mode. Pure.

That is done when its start in KRaft mode destroys records or cuts clients off. A broker in migration mode reads the
stored dynamic settings unchecked, as it did before (``KafkaServer``). ZooKeeper still mirrors the log, so nothing is
lost by the way back (``tests/integration/test_broker_becoming.py``).
"""

from __future__ import annotations

from kraftbridge.models.broker_record import BrokerNow, Effect
from kraftbridge.models.decision import EventReason, EventType
from kraftbridge.models.phase import BrokerMode, Phase
from kraftbridge.models.status import BrokerRecordStatus, BrokerUndo, broker_record_name
from kraftbridge.phases import gates
from kraftbridge.phases.draft import Draft, StepContext, Wait, for_user
from kraftbridge.phases.nodes import brokers, comparing

_UNASKED = frozenset({Effect.DESTROYS, Effect.CUTS_OFF})


def mode_of(step: StepContext, mode: BrokerMode) -> BrokerMode:
    """Return the mode that the templates must render.

    It is migration mode from the decision to take a broker back until the roll goes on.
    """
    return BrokerMode.MIGRATION if step.status.broker_undo is not None else mode


def begin_undo(draft: Draft) -> None:
    """Decide to take the broker back that restarted last.

    Its start in KRaft mode destroys or cuts off, and there is a way back.
    """
    comparison = draft.status.broker_comparison
    now = draft.observation.broker_now
    if comparison is None or not isinstance(now, BrokerNow) or draft.status.broker_undo is not None:
        return
    if comparison.mode is not BrokerMode.KRAFT or draft.status.phase is not Phase.ROLLING_BROKERS:
        return
    if _UNASKED.isdisjoint(difference.effect for difference in comparison.differences):
        return
    result = comparing.found_difference(comparison)
    if draft.spec.preflight.accepts(result.code, result.object) or not gates.mirrors(draft):
        return
    batch = draft.status.batch
    # All of a batch started in the same way, and none of the others may destroy anything meanwhile.
    others = () if batch is None or comparison.node_id not in batch.brokers else batch.brokers
    draft.update(
        batch=None,
        broker_undo=BrokerUndo(
            node_id=comparison.node_id,
            others=tuple(broker for broker in others if broker != comparison.node_id),
            reason=result.reason,
            settings_digest=comparing.settings_digest(draft, now),
            began_at=draft.now,
        ),
    )
    words = f"Broker {comparison.node_id} is taken back to migration mode. {result.reason}"
    draft.tell(EventReason.BROKER_TAKEN_BACK, words, EventType.WARNING)


def begin_comparison_of_first(draft: Draft, undo: BrokerUndo) -> None:
    """Compare the broker again that led to the return of its batch, after the others of the batch have returned."""
    broker = brokers.broker_with_id(draft, undo.node_id)
    if not undo.others or broker is None:
        return
    name = broker_record_name(draft.identity.name, draft.identity.uid, undo.node_id)
    draft.update(broker_record=BrokerRecordStatus(node_id=undo.node_id, pod_uid=broker[1].uid, config_map=name))
    comparing.begin_comparison(draft, undo.node_id, broker[1], BrokerMode.MIGRATION)


def hold(draft: Draft) -> Wait | None:
    """Return the wait after a broker was taken back; None once what led to it has changed, so that the roll goes on."""
    undo = draft.status.broker_undo
    if undo is None:
        return None
    comparing.track_comparison(draft)
    now = draft.observation.broker_now
    if isinstance(now, BrokerNow) and comparing.settings_digest(draft, now) != undo.settings_digest:
        draft.update(broker_undo=None, broker_comparison=None, broker_record=None)
        return None
    message = (
        f"Broker {undo.node_id} was taken back to migration mode and is what it was; "
        f"its start in KRaft mode was undone. {undo.reason}. "
        "No broker starts in KRaft mode before this changes: give the setting a static line with the same value "
        "(spec.brokers.staticSettings), or delete the dynamic setting that Kafka refuses "
        "(kafka-configs --alter --delete-config). "
        "The migration then goes on by itself. Or roll back (spec.target ZooKeeper)"
    )
    return for_user(message)
