"""Several brokers that are down together: who joins a batch, when it is stopped, how the batch is followed and undone."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.support.observations import (
    BROKER_IDS,
    BROKER_SET,
    NOW,
    RUNNING,
    Situation,
    broker_now,
    broker_record,
    broker_set,
    cluster,
    open_gate,
    open_paths,
    partly_rolled,
    pod,
    rolling,
    setting,
    survey,
    zookeeper,
)
from tests.unit.phases.test_reaching import closed
from tests.unit.phases.test_topic_ids import LIFTED, node, processes

from kraftbridge.models.assignments import Assignments, PodBudget, Replicas, SeenAssignments
from kraftbridge.models.broker_record import EffectiveSetting
from kraftbridge.models.catalogue import Code
from kraftbridge.models.decision import Decision, RecordBroker, RestartPod
from kraftbridge.models.observation import (
    NOT_NEEDED,
    ControllerMetrics,
    ControllerZnode,
    QuorumState,
    StartLog,
    StatefulSetState,
    Unobserved,
    ZooKeeperState,
)
from kraftbridge.models.phase import BrokerMode, Phase
from kraftbridge.models.spec import AcceptedFinding
from kraftbridge.models.status import (
    BatchStatus,
    BrokerComparison,
    BrokerRecordStatus,
    BrokerUpgradeStatus,
    Operation,
    OperationKind,
)
from kraftbridge.models.survey import SettingSource, Stated
from kraftbridge.phases.nodes import batching

APART = (
    Replicas("a-0", frozenset({0, 1}), frozenset({0, 1}), 1),
    Replicas("b-0", frozenset({0, 2}), frozenset({0, 2}), 1),
)
"""Brokers 1 and 2 share no partition."""
SEVEN_DAYS = {"log.retention.ms": EffectiveSetting("604800000", stated=(Stated(SettingSource.DYNAMIC_DEFAULT, "-1"),))}
SHARED = (Replicas("c-0", frozenset({1, 2}), frozenset({1, 2}), 1),)


def seen(replicas: tuple[Replicas, ...] = APART, *budgets: PodBudget, leaders: tuple[int, ...] = ()) -> SeenAssignments:
    found = Assignments(replicas, dict.fromkeys(BROKER_IDS, "a"), leaders=frozenset(leaders), read_at=NOW)
    return SeenAssignments(found, budgets=budgets)


def several(
    situation: Situation, most: int | str = 2, assignments: SeenAssignments | Unobserved | None = None
) -> Situation:
    """Return the same where several brokers may be down together."""
    strategy = situation.spec.strategy.model_copy(update={"max_unavailable": most})
    wanted = situation.spec.model_copy(update={"strategy": strategy})
    return replace(situation, spec=wanted).observing(assignments=seen() if assignments is None else assignments)


def restarts(decision: Decision) -> list[int]:
    return [action.node_id for action in decision.actions if isinstance(action, RestartPod)]


def operation(node_id: int, **changes: object) -> Operation:
    found = Operation(
        kind=OperationKind.RESTART_BROKER,
        node_id=node_id,
        pod=f"{BROKER_SET}-{node_id}",
        pod_uid=f"old-{node_id}",
        started_at=NOW - timedelta(seconds=20),
        serving=True,
    )
    return found.model_copy(update=changes)


def with_pod(situation: Situation, node_id: int, **changes: object) -> Situation:
    (item,) = situation.observation.stateful_sets
    assert isinstance(item, StatefulSetState)
    pods = tuple(replace(p, **changes) if p.ordinal == node_id else p for p in item.pods)  # type: ignore[arg-type]
    return situation.observing(stateful_sets=(replace(item, pods=pods),))


def stopping(assignments: SeenAssignments | None = None) -> Situation:
    """Return a roll in which broker 1 stops and broker 2 is to follow it."""
    fine = several(rolling(Phase.ROLLING_BROKERS, 1), assignments=assignments)
    batch = BatchStatus(brokers=(1,), waiting=(2,), stopped_at=NOW - timedelta(seconds=20))
    gone = with_pod(fine, 1, uid="old-1", deleting=True, ready=False)
    return gone.with_status(operation=operation(1), batch=batch)


@pytest.mark.parametrize("phase", [Phase.TAKING_OVER, Phase.ROLLING_BROKERS])
def test_one_broker_at_a_time_is_the_default(phase: Phase) -> None:
    decision = rolling(phase, 1).observing(assignments=seen()).decide()
    # In TakingOver broker 1 is ZooKeeper's controller, which goes last.
    assert restarts(decision) == [2 if phase is Phase.TAKING_OVER else 1]
    assert decision.status.batch is None


def test_a_batch_begins_with_the_next_broker_and_names_those_that_follow() -> None:
    decision = several(rolling(Phase.ROLLING_BROKERS, 1)).decide()
    assert restarts(decision) == [1]
    assert decision.status.batch is not None
    assert (decision.status.batch.brokers, decision.status.batch.waiting) == ((1,), (2,))
    assert any("Brokers 1, 2 restart together" in event.message for event in decision.events)


@pytest.mark.parametrize(
    "situation",
    [
        several(rolling(Phase.ROLLING_BROKERS, 0)),
        several(rolling(Phase.TAKING_OVER, 1)),
        several(rolling(Phase.ROLLING_BROKERS, 1), assignments=seen(SHARED)),
        several(rolling(Phase.ROLLING_BROKERS, 1), assignments=seen(APART, PodBudget("kafka", frozenset({"kafka-1", "kafka-2"}), 1))),
        several(rolling(Phase.ROLLING_BROKERS, 1), assignments=Unobserved("brokers", "they are silent")),
        several(rolling(Phase.ROLLING_BROKERS, 1), most="40%"),
    ],
    ids=["first of its mode", "last of the first roll", "shared partition", "budget", "not known", "part of three"],
)  # fmt: skip
def test_a_broker_goes_alone(situation: Situation) -> None:
    decision = situation.decide()
    (broker,) = restarts(decision)
    assert decision.status.batch is None
    assert any(f"Broker {broker} restarts alone: " in event.message for event in decision.events)


def test_the_next_one_is_stopped_once_the_one_before_has_handed_over_its_leaders() -> None:
    leading = stopping(seen(leaders=(1,))).decide()
    assert restarts(leading) == []
    assert leading.status.operation is not None
    assert leading.status.operation.node_id == 1
    recording = stopping().step()
    assert any(isinstance(action, RecordBroker) and action.node_id == 2 for action in recording.actions)
    decision = stopping().decide()
    assert restarts(decision) == [2]
    assert decision.status.operation is not None
    assert decision.status.operation.node_id == 2
    batch = decision.status.batch
    assert batch is not None
    assert (batch.brokers, batch.waiting, [other.node_id for other in batch.others]) == ((1, 2), (), [1])


@pytest.mark.parametrize(
    "changed",
    [
        lambda s: s.observing(assignments=seen(SHARED)),
        lambda s: s.observing(assignments=Unobserved("brokers", "they are silent")),
        lambda s: s.observing(cluster=cluster(lagging=frozenset({0}), under_replicated_count=1)),
        lambda s: s.observing(cluster=cluster(brokers=frozenset({1, 2}))),
        lambda s: with_pod(s, 0, ready=False),
        lambda s: s.observing(redundancy=Unobserved("topics", "they are silent")),
        lambda s: s.with_status(migration_offset=None),
        lambda s: s.observing(zookeeper=zookeeper(taken_over=True, brokers=(1,))),
    ],
    ids=["shared", "not known", "another lags", "another is lost", "pod", "topics", "mirror", "not registered"],
)
def test_what_keeps_the_next_broker_of_a_batch(changed: object) -> None:
    decision = changed(stopping()).decide()  # type: ignore[operator]
    assert restarts(decision) == []
    assert decision.status.operation is not None
    assert decision.status.operation.node_id == 1


KILLED = {"kill_due_at": NOW - timedelta(seconds=5), "grace_seconds": 30}


@pytest.mark.parametrize(
    "ended",
    [{"exit_code": 137}, {"exit_code": None}, {"exit_code": 137, "exit_reason": "OOMKilled"}],
    ids=lambda ended: " ".join(map(str, ended.values())),
)
def test_none_follows_a_broker_that_had_to_be_killed(ended: dict[str, object]) -> None:
    """Seed 65399 of the simulated worlds: a broker that kept its leaders until SIGKILL counted as one that had ended."""
    replaced = with_pod(stopping(), 1, uid="new-1", ready=False, deleting=False, created_at=NOW)
    fine = replaced.with_status(operation=operation(1, **KILLED, exit_code=0))
    assert restarts(fine.decide()) == [2]
    killed = replaced.with_status(operation=operation(1, **KILLED, **ended))
    assert restarts(killed.decide()) == []
    finding = AcceptedFinding(code=str(Code.BROKER_KILLED))
    accepted = killed.spec.preflight.model_copy(update={"accepted": (finding,)})
    assert restarts(killed.asking(preflight=accepted).decide()) == [2]


def test_a_broker_that_went_before_its_leaders_were_seen_to_move_is_followed_once_its_next_start_tells() -> None:
    """Seed 10240: an init process ended with a shell and left Kafka behind, which was killed at once."""
    replaced = with_pod(stopping(), 1, uid="new-1", ready=False, deleting=False, created_at=NOW)
    case = replaced.with_status(operation=operation(1, kill_due_at=NOW + timedelta(seconds=20), exit_code=0))
    process = replaced.observation.seen_sets[0].pods[1].process
    assert restarts(case.observing(start_log=StartLog(process)).decide()) == []
    assert restarts(case.observing(start_log=StartLog(process, unclean="Recovering 3 logs")).decide()) == []
    assert restarts(case.observing(start_log=StartLog("another", clean=True)).decide()) == []
    assert restarts(case.observing(start_log=StartLog(process, clean=True)).decide()) == [2]


def test_none_follows_a_broker_while_it_is_not_known_how_it_ended() -> None:
    """Its pod is gone, and the next one, which tells when, is not there yet."""
    case = stopping()
    item = case.observation.seen_sets[0]
    gone = replace(item, pods=tuple(pod for pod in item.pods if pod.ordinal != 1))
    assert restarts(case.observing(stateful_sets=(gone,)).decide()) == []


@pytest.mark.parametrize("controller", [None, ControllerZnode(3000, 2, ephemeral=False)], ids=["none", "the quorum"])
def test_none_joins_a_batch_on_zookeeper_while_no_broker_is_controller(controller: ControllerZnode | None) -> None:
    """A broker that stops asks the controller to move its leaders. Before each single restart, one must lead."""
    apart = seen((Replicas("a-0", frozenset({0, 1}), frozenset({0, 1}), 1),))
    item = partly_rolled(0, BrokerMode.UPGRADED, None)
    upgrade = BrokerUpgradeStatus(needed=True, protocol="3.0-IV1")
    fine = several(open_gate(Phase.UPGRADING_BROKERS).observing(stateful_sets=(item,)), assignments=apart)
    batch = BatchStatus(brokers=(0,), waiting=(2,), stopped_at=NOW - timedelta(seconds=20))
    case = with_pod(fine, 0, uid="old-0", deleting=True, ready=False).with_status(
        operation=operation(0), batch=batch, broker_upgrade=upgrade
    )
    assert restarts(case.decide()) == [2]
    told = case.observation.zookeeper
    assert isinstance(told, ZooKeeperState)
    assert restarts(case.observing(zookeeper=replace(told, controller=controller)).decide()) == []


def test_a_broker_whose_settings_hold_it_joins_no_batch() -> None:
    """A finding about broker 2 holds its restart. It was stopped all the same, as the second one of a batch."""
    refused = (*RUNNING, setting("control.plane.listener.name", "INTERNAL"))
    told = survey(brokers={broker: refused if broker == 2 else RUNNING for broker in BROKER_IDS})
    held = several(rolling(Phase.ROLLING_BROKERS, 2)).observing(survey=told).decide()
    assert restarts(held) == []
    decision = several(rolling(Phase.ROLLING_BROKERS, 1)).observing(survey=told).decide()
    assert restarts(decision) == [1]
    assert decision.status.batch is None


def taking_over() -> Situation:
    """Return a roll to migration mode in which lifted broker 0 stops and broker 2 is to follow it."""
    apart = (Replicas("a-0", frozenset({0, 1}), frozenset({0, 1}), 1),)
    fine = several(rolling(Phase.TAKING_OVER, 0), assignments=seen(apart))
    item = fine.observation.seen_sets[0]
    item = replace(item, pods=tuple(replace(p, configuration=f"{BrokerMode.LIFTED}-hash") for p in item.pods))
    shown = processes(item)
    lifted = fine.observing(stateful_sets=(item,)).with_status(
        broker_upgrade=LIFTED, nodes=tuple(node(i, shown[i]) for i in BROKER_IDS)
    )
    batch = BatchStatus(brokers=(0,), waiting=(2,), stopped_at=NOW - timedelta(seconds=20))
    return with_pod(lifted, 0, uid="old-0", deleting=True, ready=False).with_status(operation=operation(0), batch=batch)


def test_a_broker_that_stops_need_not_show_its_topics_ids_again_before_the_next_one_joins_it() -> None:
    """With a lifted protocol every batch was announced, and each broker restarted alone."""
    assert restarts(taking_over().decide()) == [2]


def test_the_way_to_a_broker_that_starts_keeps_none_from_joining_its_batch() -> None:
    """On three nodes: broker 300 was starting, and that nobody could connect to it held broker 301 back."""
    starting = with_pod(taking_over(), 0, uid="new-0", ready=False, deleting=False)
    case = starting.with_status(operation=operation(0, exit_code=0))
    assert restarts(case.observing(paths=closed(0)).decide()) == [2]
    assert restarts(case.observing(paths=closed(1)).decide()) == []
    back = with_pod(case, 0, ready=True)
    assert restarts(back.observing(paths=closed(0)).decide()) == [], "it is Ready again, and nobody reaches it"


@pytest.mark.parametrize("paths", [NOT_NEEDED, Unobserved("paths", "no answer"), open_paths(brokers=(0, 1))])
def test_no_broker_joins_a_batch_towards_the_takeover_while_it_is_not_known_who_reaches_it(paths: object) -> None:
    """The first broker of a batch waited for the ways. One that joined it did not."""
    case = taking_over()
    assert restarts(case.observing(paths=paths).decide()) == []
    stops = case.observing(paths=open_paths(brokers=(1, 2))).decide()
    assert restarts(stops) == [2], "broker 0 stops, and nobody need reach it"


@pytest.mark.parametrize("broker", [1, 2])
def test_every_other_broker_must_have_shown_its_topics_ids_before_one_joins_a_batch(broker: int) -> None:
    case = taking_over()
    nodes = tuple(
        each.model_copy(update={"with_topic_ids": ""}) if each.id == broker else each for each in case.status.nodes
    )
    assert restarts(case.with_status(nodes=nodes).decide()) == []


def test_a_pause_ends_a_batch_and_what_was_stopped_is_followed() -> None:
    fine = stopping()
    paused = replace(fine, spec=fine.spec.model_copy(update={"paused": True}))
    decision = paused.decide()
    assert restarts(decision) == []
    assert decision.status.batch is not None
    assert not decision.status.batch.waiting
    assert decision.status.operation is not None


def test_a_batch_waits_for_its_next_broker_for_a_while() -> None:
    blocked = stopping(seen(SHARED))
    assert blocked.status.batch is not None
    long_ago = blocked.status.batch.model_copy(update={"stopped_at": NOW - batching.PATIENCE - timedelta(seconds=1)})
    decision = blocked.with_status(batch=long_ago).decide()
    assert decision.status.batch is not None
    assert not decision.status.batch.waiting


def joining(**changes: object) -> Situation:
    """Return a batch whose second broker is about to stop."""
    first = stopping()
    batch = BatchStatus(brokers=(1, 2), others=(operation(1),), stopped_at=NOW - timedelta(seconds=1))
    present = pod(f"{BROKER_SET}-2", 2, first.observation.seen_sets[0].pods[2].configuration).uid
    asked = operation(2, pod_uid=first.observation.seen_sets[0].pods[2].uid or present, **changes)
    return first.with_status(operation=asked, batch=batch)


def test_an_eviction_is_repeated_while_the_batch_may_go_on_and_cancelled_otherwise() -> None:
    assert restarts(joining().decide()) == [2]
    for blocked in (
        joining().observing(assignments=seen(SHARED)),
        joining(started_at=NOW - batching.PATIENCE - timedelta(seconds=1)),
    ):
        decision = blocked.decide()
        assert restarts(decision) == []
        assert decision.status.operation is not None
        assert decision.status.operation.node_id == 1
        assert decision.status.batch is not None
        assert decision.status.batch.brokers == (1,)


def back(*late: int) -> Situation:
    """Return a batch of brokers 1 and 2 that run again, but those that are late."""
    fine = several(rolling(Phase.ROLLING_BROKERS, 3))
    for node_id in (1, 2):
        new = {"uid": f"new-{node_id}", "ready_since": NOW - timedelta(seconds=5), "ready": node_id not in late}
        fine = with_pod(fine, node_id, **new)
    batch = BatchStatus(brokers=(1, 2), others=(operation(1),), stopped_at=NOW - timedelta(seconds=20))
    return fine.with_status(operation=operation(2), batch=batch)


def test_the_broker_that_is_not_back_is_the_one_that_is_followed() -> None:
    decision = back(1).decide()
    assert decision.status.operation is not None
    assert decision.status.operation.node_id == 1
    assert decision.status.batch is not None
    assert [other.node_id for other in decision.status.batch.others] == [2]


def unregistered(seconds: float, *lost: int) -> Situation:
    """Return a batch of brokers 1 and 2 that run again for some time, and of which the quorum lacks some."""
    began = NOW - timedelta(seconds=seconds)
    fine = several(rolling(Phase.ROLLING_BROKERS, 3))
    for node_id in (1, 2):
        fine = with_pod(fine, node_id, uid=f"new-{node_id}", ready_since=began)
    first, last = (operation(node_id, started_at=began, last_pod_ready_at=began) for node_id in (1, 2))
    seen_by = frozenset(BROKER_IDS) - {*lost}
    view = cluster(brokers=seen_by, under_replicated=("t-0",), under_replicated_count=1, lagging=frozenset(lost))
    metrics = {
        node_id: replace(each, active_brokers=len(seen_by)) if isinstance(each, ControllerMetrics) else each
        for node_id, each in fine.observation.metrics.items()
    }
    told = fine.observation.quorum
    assert isinstance(told, QuorumState)
    batch = BatchStatus(brokers=(1, 2), others=(first,), stopped_at=began)
    return fine.with_status(operation=last, batch=batch).observing(
        cluster=view,
        cluster_by_broker={0: view},
        metrics=metrics,
        quorum=replace(told, observers=seen_by),
    )


def test_brokers_of_a_batch_that_never_register_are_restarted_again_one_after_the_other() -> None:
    """Each of them waited for the other one, until somebody restarted a pod."""
    assert restarts(unregistered(100, 1, 2).decide()) == []
    decision = unregistered(200, 1, 2).decide()
    assert restarts(decision) == [2]
    assert decision.status.batch is not None
    assert [other.node_id for other in decision.status.batch.others] == [1]
    assert restarts(unregistered(200, 1).decide()) == [1]
    assert restarts(unregistered(200, 0, 1, 2).decide()) == [], "a broker that is not of the batch is away, too"


def test_each_broker_of_a_batch_is_concluded_and_compared_and_the_hold_counts_once() -> None:
    situation = back()
    concluded: list[int] = []
    holds = set()
    for _ in range(12):
        decision = situation.step()
        status = decision.status
        concluded = [record.node_id for record in status.impact.restarts]
        if status.hold_until is not None:
            holds.add(status.hold_until)
        parts: dict[str, object] = {}
        if status.operation is not None:
            process = next(p.process for p in situation.observation.seen_sets[0].pods if p.name == status.operation.pod)
            parts["start_log"] = StartLog(process, clean=True)
        if status.broker_comparison is not None and status.broker_comparison.compared_at is None:
            known = status.broker_record
            assert known is not None
            assert known.node_id == status.broker_comparison.node_id
            parts["broker_record"] = broker_record(known.node_id, known.pod_uid, NOW)
            parts["broker_now"] = broker_now(status.broker_comparison.node_id)
        situation = situation.after(decision).observing(**parts)
        if status.operation is None and status.batch is not None and not status.batch.others:
            break
    assert concluded == [2, 1]
    assert len(holds) == 1


def test_a_failure_in_a_batch_takes_the_whole_batch_back() -> None:
    fine = back()
    new = fine.observation.seen_sets[0].pods[2]
    comparison = BrokerComparison(node_id=2, process=new.process, mode=BrokerMode.KRAFT, began_at=NOW)
    record = BrokerRecordStatus(node_id=2, pod_uid="old-2", config_map="record-2")
    fallen = broker_now(2, settings=SEVEN_DAYS)
    situation = fine.with_status(operation=None, broker_comparison=comparison, broker_record=record).observing(
        broker_now=fallen, broker_record=broker_record(2, "old-2")
    )
    decision = situation.step()
    undo = decision.status.broker_undo
    assert undo is not None
    assert (undo.node_id, undo.others) == (2, (1,))
    assert decision.status.batch is None
    taken_back = situation.after(decision).observing(broker_now=NOT_NEEDED)
    stopped = []
    for on_kraft in ((0, 1, 2), (0, 1), (0,)):
        item = broker_set(BrokerMode.MIGRATION)
        kraft = {p.ordinal: p for p in broker_set(BrokerMode.KRAFT).pods}
        pods = tuple(kraft[p.ordinal] if p.ordinal in on_kraft else p for p in item.pods)
        registered = zookeeper(taken_over=True, brokers=BROKER_IDS)
        step = taken_back.observing(stateful_sets=(replace(item, pods=pods),), zookeeper=registered).step()
        stopped.append(restarts(step))
    assert stopped == [[2], [1], []], "broker 0 restarted before the batch, and is what it was"
    assert step.status.broker_undo is not None
    assert step.status.broker_undo.finished_at == NOW
    assert step.status.broker_comparison is not None
    assert step.status.broker_comparison.node_id == 2
