"""No broker restarts before it is on record, and none before the last one is what it was; one that destroys or cuts off is taken back."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.observations import (
    BROKER_SET,
    NOW,
    Situation,
    broker_now,
    broker_record,
    broker_set,
    cluster,
    partly_rolled,
    rolling,
)

from kraftbridge.models.broker_record import EffectiveSetting, OffsetsNow
from kraftbridge.models.catalogue import Code
from kraftbridge.models.conditions import ConditionType, Reason, condition
from kraftbridge.models.decision import ConfigureBrokers, Decision, EventReason, RecordBroker, RestartPod
from kraftbridge.models.observation import NOT_NEEDED, PodState, StatefulSetState, Unobserved
from kraftbridge.models.phase import BrokerMode, Phase, Target
from kraftbridge.models.spec import AcceptedFinding
from kraftbridge.models.status import BrokerComparison, BrokerRecordStatus, BrokerUndo
from kraftbridge.models.survey import SettingSource, Stated
from kraftbridge.phases.nodes.comparing import PATIENCE, RECORD_FRESH_FOR, comparison_is_due

SEVEN_DAYS = {"log.retention.ms": EffectiveSetting("604800000", stated=(Stated(SettingSource.DYNAMIC_DEFAULT, "-1"),))}
LATER = {
    **dict(broker_record(0, "").settings),  # type: ignore[arg-type]
    "message.max.bytes": EffectiveSetting("5", stated=(Stated(SettingSource.DYNAMIC_DEFAULT, "7"),)),
}
ROLLS = [(Phase.TAKING_OVER, BrokerMode.MIGRATION), (Phase.ROLLING_BROKERS, BrokerMode.KRAFT)]


def restarts(decision: Decision) -> list[str]:
    return [a.pod for a in decision.actions if isinstance(a, RestartPod)]


def pod_of(situation: Situation, node: int) -> PodState:
    (item,) = situation.observation.stateful_sets
    assert isinstance(item, StatefulSetState)
    return next(p for p in item.pods if p.name == f"{BROKER_SET}-{node}")


def compared(situation: Situation, done: int) -> Situation:
    """Return the same with the first brokers compared."""
    nodes = tuple(
        n.model_copy(update={"compared": pod_of(situation, n.id).process}) if n.id < done else n
        for n in situation.status.nodes
    )
    return situation.with_status(nodes=nodes)


def back(phase: Phase, mode: BrokerMode, **now: Any) -> Situation:
    """Return a roll whose first broker is back, and asked."""
    fine = rolling(phase, 1)
    comparison = BrokerComparison(node_id=0, process=pod_of(fine, 0).process, mode=mode, began_at=NOW)
    record = broker_record(0, "before")
    known = BrokerRecordStatus(node_id=0, pod_uid="before", config_map="demo-broker-0")
    fine = fine.with_status(broker_comparison=comparison, broker_record=known)
    return fine.observing(broker_record=record, broker_now=broker_now(0, **now))


def accepting(situation: Situation, code: Code) -> Situation:
    accepted = (AcceptedFinding(code=str(code), object="broker/0"),)
    return situation.asking(preflight=situation.spec.preflight.model_copy(update={"accepted": accepted}))


@pytest.mark.parametrize(("phase", "mode"), ROLLS)
def test_a_broker_is_recorded_before_it_restarts(phase: Phase, mode: BrokerMode) -> None:
    fine = compared(rolling(phase, 1), 1)
    first = fine.step()
    (recording,) = [a for a in first.actions if isinstance(a, RecordBroker)]
    assert restarts(first) == []
    node = recording.node_id
    recorded = broker_record(node, recording.pod_uid)
    on_record = fine.after(first).observing(broker_record=recorded)
    assert restarts(on_record.step()) == [f"{BROKER_SET}-{node}"]
    for wrong in (
        replace(recorded, node_id=0),
        replace(recorded, pod_uid="another"),
        replace(recorded, taken_at=NOW - RECORD_FRESH_FOR - timedelta(seconds=1)),
        replace(recorded, settings=Unobserved("broker", "silent")),
        Unobserved("ConfigMap", "gone"),
    ):
        decision = fine.after(first).observing(broker_record=wrong).step()
        assert restarts(decision) == [], wrong
        told = isinstance(wrong, Unobserved) and str(wrong) in decision.status.message
        assert told is isinstance(wrong, Unobserved), decision.status.message


def test_a_record_that_was_never_written_is_not_waited_for() -> None:
    """The operator ended before it wrote the record, and the broker fell over before the next operator could."""
    fine = compared(rolling(Phase.ROLLING_BROKERS, 1), 1)
    first = fine.step()
    node = next(a.node_id for a in first.actions if isinstance(a, RecordBroker))
    (item,) = fine.observation.stateful_sets
    assert isinstance(item, StatefulSetState)
    down = replace(pod_of(fine, node), ready=False, ready_since=None)
    pods = tuple(down if p.name == down.name else p for p in item.pods)
    others = frozenset({0, 1, 2} - {node})
    fallen = fine.after(first).observing(
        stateful_sets=(replace(item, pods=pods),),
        cluster=cluster(brokers=others, under_replicated=("t-1",), under_replicated_count=1, lagging=frozenset({node})),
        broker_record=None,
    )
    decision = fallen.step()
    assert restarts(decision) == [down.name]
    assert decision.status.broker_record is None
    for unread in (broker_record(node, down.uid), Unobserved("ConfigMap", "the API server is silent")):
        assert fallen.observing(broker_record=unread).step().status.broker_record is not None


def test_a_set_that_would_be_refused_is_asked_for_before_each_restart_in_kraft_mode() -> None:
    grown = {
        "num.io.threads": EffectiveSetting(
            "8", stated=(Stated(SettingSource.DYNAMIC_DEFAULT, "8"), Stated(SettingSource.STATIC, "2"))
        )
    }
    fine = compared(rolling(Phase.ROLLING_BROKERS, 1), 1)
    first = fine.step()
    recording = next(a for a in first.actions if isinstance(a, RecordBroker))
    refused = fine.after(first).observing(broker_record=broker_record(1, recording.pod_uid, settings=grown))
    decision = refused.step()
    assert restarts(decision) == []
    assert Code.DYNAMIC_SETTINGS_REFUSED in decision.status.message
    assert "--add-config num.io.threads=4" in decision.status.message
    carried = refused.spec.brokers.model_copy(update={"static_settings": {"num.io.threads": "8"}})
    assert restarts(refused.asking(brokers=carried).step()) == [f"{BROKER_SET}-1"]
    in_migration_mode = compared(rolling(Phase.TAKING_OVER, 1), 1)
    first = in_migration_mode.step()
    recording = next(a for a in first.actions if isinstance(a, RecordBroker))
    node = recording.node_id
    other = in_migration_mode.after(first).observing(
        broker_record=broker_record(node, recording.pod_uid, settings=grown)
    )
    assert restarts(other.step()) == [f"{BROKER_SET}-{node}"]


@pytest.mark.parametrize(("phase", "mode"), ROLLS)
def test_the_next_broker_waits_for_the_comparison(phase: Phase, mode: BrokerMode) -> None:
    asked = back(phase, mode)
    silent = asked.observing(broker_now=Unobserved("broker 0", "it does not answer"))
    waiting = silent.step()
    assert [a for a in waiting.actions if isinstance(a, RestartPod | RecordBroker)] == []
    assert "it does not answer" in waiting.status.message
    late = silent.after(waiting).later(PATIENCE.total_seconds() + 1)
    stalled = late.step()
    assert Code.BROKER_NOT_COMPARED in stalled.status.message
    assert any(isinstance(a, RecordBroker) for a in accepting(late, Code.BROKER_NOT_COMPARED).step().actions)
    gone = asked.observing(broker_record=None)
    assert "the record does not exist" in gone.step().status.message
    assert any(isinstance(a, RecordBroker) for a in asked.step().actions)


@pytest.mark.parametrize(("phase", "mode"), ROLLS)
def test_a_difference_stops_the_roll_and_goes_away_with_its_cause(phase: Phase, mode: BrokerMode) -> None:
    differing = back(phase, mode, settings=LATER)
    decision = differing.step()
    assert restarts(decision) == []
    assert Code.BROKER_DIFFERS in decision.status.message
    assert decision.status.broker_undo is None
    stalled = condition(decision.status.conditions, ConditionType.STALLED)
    assert stalled is not None
    assert (stalled.status, stalled.reason) == ("True", Reason.FINDINGS)
    assert any(e.reason is EventReason.BROKER_DIFFERS for e in decision.events)
    again = differing.after(decision).later(11)
    assert comparison_is_due(again.status, again.now)
    mended = again.observing(broker_now=broker_now(0)).step()
    assert any(isinstance(a, RecordBroker) for a in mended.actions)
    accepted = accepting(differing.after(decision), Code.BROKER_DIFFERS).observing(broker_now=NOT_NEEDED)
    assert any(isinstance(a, RecordBroker) for a in accepted.step().actions)


@pytest.mark.parametrize(
    "now",
    [
        {"settings": SEVEN_DAYS},
        {"offsets": {("orders", 0): OffsetsNow(40, 100, 40, leads=True)}},
        {"listeners": ()},
    ],
)
def test_a_start_in_kraft_mode_that_destroys_or_cuts_off_is_undone(now: dict[str, Any]) -> None:
    decision = back(Phase.ROLLING_BROKERS, BrokerMode.KRAFT, **now).step()
    undo = decision.status.broker_undo
    assert undo is not None
    assert any(e.reason is EventReason.BROKER_TAKEN_BACK for e in decision.events)
    in_migration_mode = back(Phase.TAKING_OVER, BrokerMode.MIGRATION, **now).step()
    assert in_migration_mode.status.broker_undo is None
    assert Code.BROKER_DIFFERS in in_migration_mode.status.message


def taken_back(finished: bool) -> Situation:
    differing = back(Phase.ROLLING_BROKERS, BrokerMode.KRAFT, settings=SEVEN_DAYS)
    decided = differing.after(differing.step()).observing(broker_now=NOT_NEEDED)
    if not finished:
        return decided
    undo = decided.status.broker_undo
    assert undo is not None
    done = undo.model_copy(update={"finished_at": NOW})
    before = broker_set(BrokerMode.MIGRATION)
    return decided.with_status(broker_undo=done).observing(stateful_sets=(before,))


def test_a_broker_is_taken_back_on_the_template_of_migration_mode() -> None:
    undoing = taken_back(finished=False)
    assert ConfigureBrokers(BROKER_SET, BrokerMode.MIGRATION) in undoing.step().actions
    mixed = partly_rolled(1, BrokerMode.MIGRATION, BrokerMode.KRAFT)
    kraft = next(p for p in broker_set(BrokerMode.KRAFT).pods if p.name == f"{BROKER_SET}-0")
    pods = (kraft, *broker_set(BrokerMode.MIGRATION).pods[1:])
    on_template = undoing.observing(stateful_sets=(replace(mixed, pods=pods),))
    decision = on_template.step()
    assert restarts(decision) == [f"{BROKER_SET}-0"]
    back_again = undoing.observing(stateful_sets=(broker_set(BrokerMode.MIGRATION),)).step()
    assert back_again.status.broker_undo is not None
    assert back_again.status.broker_undo.finished_at == NOW


def test_nothing_restarts_after_that_until_the_settings_change() -> None:
    held = taken_back(finished=True)
    decision = held.step()
    assert decision.actions == ()
    assert "taken back to migration mode" in decision.status.message
    same = held.observing(broker_now=broker_now(0)).later(11)
    undo = held.status.broker_undo
    assert isinstance(undo, BrokerUndo)
    changed = same.observing(broker_now=broker_now(0, settings={})).step()
    assert changed.status.broker_undo is None
    assert ConfigureBrokers(BROKER_SET, BrokerMode.KRAFT) in changed.actions
    carried = held.spec.brokers.model_copy(update={"static_settings": {"num.io.threads": "8"}})
    assert same.asking(brokers=carried).step().status.broker_undo is None


def test_a_rollback_goes_on_and_forgets_the_comparison() -> None:
    held = taken_back(finished=True).asking(Target.ZOOKEEPER)
    decision = held.step()
    assert decision.status.phase is Phase.ROLLING_BACK
    assert decision.status.broker_undo is None
    assert decision.status.broker_comparison is None


@pytest.mark.parametrize(("phase", "mode"), ROLLS)
def test_a_broker_that_came_back_by_itself_is_compared_before_the_next_one_restarts(
    phase: Phase, mode: BrokerMode
) -> None:
    fine = compared(rolling(phase, 2), 1)
    decision = fine.step()
    comparison = decision.status.broker_comparison
    assert comparison is not None
    assert (comparison.node_id, comparison.mode) == (1, mode)
    assert not any(isinstance(a, RecordBroker | RestartPod) for a in decision.actions)
    refused = fine.after(decision).observing(broker_now=broker_now(1, settings=SEVEN_DAYS))
    assert Code.BROKER_DIFFERS in refused.step().status.message


@pytest.mark.parametrize("unread", [None, Unobserved("ConfigMap", "the API server is silent")])
def test_a_record_that_was_never_written_holds_no_broker_that_came_back_by_itself(unread: Unobserved | None) -> None:
    """The act that records it failed, and the broker crashed before its restart: nothing is on record of it."""
    asked = BrokerRecordStatus(node_id=1, pod_uid="crashed", config_map="record-1")
    fine = (
        compared(rolling(Phase.ROLLING_BROKERS, 2), 1).with_status(broker_record=asked).observing(broker_record=unread)
    )
    decision = fine.step()
    assert decision.status.broker_comparison is not None
    assert (decision.status.broker_record is None) is (unread is None)
    looked = fine.after(decision).observing(broker_now=broker_now(1)).step()
    assert looked.status.broker_comparison is not None
    assert (looked.status.broker_comparison.compared_at is not None) is (unread is None)


def test_a_broker_whose_copy_lost_records_is_to_be_refilled_before_it_leads() -> None:
    lost = back(Phase.ROLLING_BROKERS, BrokerMode.KRAFT, offsets={("orders", 0): OffsetsNow(40, 100, 40, leads=True)})
    message = lost.step().status.message
    assert "LogStart orders-0 was 0 and is 40" in message
    assert "kafka-reassign-partitions.sh" in message
