"""Past its deadline a restart is stalled, and the table says what follows, for each operation, direction and stage."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import product
from pathlib import Path

import pytest
from tests.support.observations import (
    BROKER_IDS,
    NOW,
    Situation,
    broker_set,
    cluster,
    open_gate,
    pod,
    quorum,
    rolling,
)
from tests.unit.phases.test_rollback import claim_gone

from kraftbridge.models.conditions import ConditionType, Reason, condition
from kraftbridge.models.decision import Decision, RestartPod
from kraftbridge.models.observation import ControllerMetrics, PodState, RecordedOriginal, StatefulSetState
from kraftbridge.models.phase import BrokerMode, Phase
from kraftbridge.models.status import Operation, OperationKind
from kraftbridge.phases.nodes.deadlines import Direction, PastDeadline, Stage, past_deadline, seconds_of

DOCS = Path(__file__).parents[3] / "docs" / "troubleshooting.md"


def unregistered(seconds: float) -> Situation:
    """Return RollingBrokers with broker 0 restarted, its pod Ready for some time, and the quorum without it."""
    fine = rolling(Phase.ROLLING_BROKERS, 1)
    (item,) = fine.observation.stateful_sets
    assert isinstance(item, StatefulSetState)
    began = NOW - timedelta(seconds=seconds)
    operation = Operation(
        kind=OperationKind.RESTART_BROKER,
        node_id=0,
        pod="kafka-0",
        pod_uid="gone",
        started_at=began,
        last_pod_ready_at=began,
    )
    metrics = {
        i: replace(m, active_brokers=2, migrating_zk_brokers=3) if isinstance(m, ControllerMetrics) else m
        for i, m in fine.observation.metrics.items()
    }
    others = cluster(brokers=frozenset({1, 2}), under_replicated=("t-0",), under_replicated_count=1)
    pods = tuple(replace(p, ready_since=began) if p.ordinal == 0 else p for p in item.pods)
    return fine.with_status(operation=operation).observing(
        stateful_sets=(replace(item, pods=pods),),
        metrics=metrics,
        cluster=others,
        cluster_by_broker=dict.fromkeys(BROKER_IDS[1:], others),
    )


def stalled(decision: Decision) -> tuple[str, str]:
    found = condition(decision.status.conditions, ConditionType.STALLED)
    assert found is not None
    return found.status, found.reason


def test_a_broker_that_never_registers_is_stalled_and_restarted_again() -> None:
    early = unregistered(60).decide()
    assert stalled(early)[0] == "False"
    assert not [a for a in early.actions if isinstance(a, RestartPod)]
    late = unregistered(200).decide()
    assert [a.node_id for a in late.actions if isinstance(a, RestartPod)] == [0]


def test_it_is_not_restarted_again_while_the_original_state_of_its_stateful_set_is_lost() -> None:
    """What runs goes on running (docs/rollback.md). A simulated run (seed 1000046) stopped it once more."""
    late = unregistered(200)
    (item,) = late.observation.stateful_sets
    assert isinstance(item, StatefulSetState)
    lost = late.observing(stateful_sets=(replace(item, original=RecordedOriginal()),)).decide()
    assert not [a for a in lost.actions if isinstance(a, RestartPod)]
    assert stalled(lost) == ("True", Reason.ORIGINALS_LOST)


def test_it_is_stalled_and_not_restarted_while_another_broker_is_away() -> None:
    alone = cluster(brokers=frozenset({2}), under_replicated=("t-0",), under_replicated_count=1)
    late = unregistered(200).observing(cluster=alone, cluster_by_broker={2: alone}).decide()
    assert not [a for a in late.actions if isinstance(a, RestartPod)]
    assert stalled(late) == ("True", Reason.DEADLINE_EXCEEDED)
    assert str(Stage.UNREGISTERED) in late.status.message
    assert "kubectl delete pod kafka-1" in late.status.message, "two lost brokers: the other one must come back first"


def test_a_broker_is_not_restarted_again_for_a_quorum_without_an_active_controller() -> None:
    """Nobody could register it. A simulated run (seed 143155) restarted a healthy broker every three minutes."""
    late = unregistered(200)
    none_active = {
        i: replace(m, active=False) if isinstance(m, ControllerMetrics) else m
        for i, m in late.observation.metrics.items()
    }
    whole = cluster()
    waiting = late.observing(
        metrics=none_active, cluster=whole, cluster_by_broker=dict.fromkeys(BROKER_IDS, whole)
    ).decide()
    assert not [a for a in waiting.actions if isinstance(a, RestartPod)]


def came_back(seconds: float, phase: Phase = Phase.ROLLING_BROKERS) -> Situation:
    """Return a phase in which broker 0 came back by itself, is Ready for some time, and no other broker lists it."""
    fine = unregistered(0) if phase is Phase.ROLLING_BROKERS else open_gate(phase)
    (item,) = fine.observation.stateful_sets
    assert isinstance(item, StatefulSetState)
    pods = tuple(replace(p, ready_since=NOW - timedelta(seconds=seconds)) if p.ordinal == 0 else p for p in item.pods)
    others = cluster(brokers=frozenset({1, 2}), under_replicated=("t-0",), under_replicated_count=1)
    return fine.with_status(operation=None).observing(
        stateful_sets=(replace(item, pods=pods),),
        cluster=others,
        cluster_by_broker=dict.fromkeys(BROKER_IDS[1:], others),
    )


@pytest.mark.parametrize("phase", [Phase.DUAL_WRITE, Phase.ROLLING_BROKERS, Phase.AWAITING_FINALIZATION])
def test_a_broker_that_came_back_by_itself_and_never_registers_is_restarted(phase: Phase) -> None:
    assert not [a for a in came_back(100, phase).decide().actions if isinstance(a, RestartPod)]
    late = came_back(200, phase)
    assert [a.node_id for a in late.decide().actions if isinstance(a, RestartPod)] == [0]
    alone = cluster(brokers=frozenset({2}), under_replicated=("t-0",), under_replicated_count=1)
    another = late.observing(cluster=alone, cluster_by_broker={2: alone})
    assert not [a for a in another.decide().actions if isinstance(a, RestartPod)], "another one is away as well"
    assert not [a for a in late.asking(paused=True).decide().actions if isinstance(a, RestartPod)]


def missing_in_quorum(observers: frozenset[int], ready_for: float = 400) -> Situation:
    """Return TakingOver: broker 1 is back after its restart, broker 0 came back by itself, and the quorum has one of the two.

    ZooKeeper lists both, so every broker serves both.
    """
    fine = rolling(Phase.TAKING_OVER, 2)
    (item,) = fine.observation.stateful_sets
    assert isinstance(item, StatefulSetState)
    since = NOW - timedelta(seconds=ready_for)
    operation = Operation(
        kind=OperationKind.RESTART_BROKER, node_id=1, pod="kafka-1", pod_uid="gone", started_at=since, last_pod_ready_at=since
    )  # fmt: skip
    metrics = {
        i: replace(m, migrating_zk_brokers=1) if isinstance(m, ControllerMetrics) else m
        for i, m in fine.observation.metrics.items()
    }
    return fine.with_status(operation=operation).observing(
        stateful_sets=(replace(item, pods=tuple(replace(p, ready_since=since) for p in item.pods)),),
        metrics=metrics,
        quorum=replace(quorum(), observers=observers),
    )


def restarted(case: Situation) -> list[int]:
    """Return the brokers that this step restarts."""
    return [a.node_id for a in case.decide().actions if isinstance(a, RestartPod)]


def test_the_broker_that_the_quorum_lacks_is_restarted_although_zookeeper_lists_it() -> None:
    assert restarted(missing_in_quorum(frozenset({1, 2}))) == [0]
    assert restarted(missing_in_quorum(frozenset({1, 2}), ready_for=100)) == []


def test_a_broker_that_serves_is_not_restarted_for_the_quorum_while_the_cluster_is_not_whole() -> None:
    behind = cluster(under_replicated=("t-0",), under_replicated_count=1)
    case = missing_in_quorum(frozenset({1, 2})).observing(
        cluster=behind, cluster_by_broker=dict.fromkeys(BROKER_IDS, behind)
    )
    assert restarted(case) == []
    assert "t-0" in case.decide().status.message


@pytest.mark.parametrize("observers", [frozenset({0, 2}), frozenset({0, 1, 2}), frozenset({2})])
def test_no_other_broker_than_its_own_is_restarted_unless_the_quorum_lacks_just_that(observers: frozenset[int]) -> None:
    assert restarted(missing_in_quorum(observers)) == [1]


@pytest.mark.parametrize(("kind", "direction", "stage"), product(OperationKind, Direction, Stage))
def test_the_table_is_total(kind: OperationKind, direction: Direction, stage: Stage) -> None:
    assert past_deadline(kind, direction, stage) in PastDeadline
    assert seconds_of(direction, stage, 300) >= 60


def test_the_docs_hold_the_table() -> None:
    text = DOCS.read_text()
    for kind, direction, stage in product(OperationKind, Direction, Stage):
        row = f"| `{kind}` | {direction} | {stage} |"
        if kind is OperationKind.RESTART_CONTROLLER and stage is Stage.UNREGISTERED:
            assert row not in text, "a controller is no broker"
            continue
        deadline = "`terminationGraceSeconds` + 60" if stage is Stage.STOPPING else str(seconds_of(direction, stage, 0))
        action = past_deadline(kind, direction, stage)
        assert f"{row} {deadline} | {action} |" in text


# ------------------------------------------------------------------------- what `decide` does past each deadline


def brokers_going_back(pod_of_0: PodState, began: datetime, **observed: object) -> Situation:
    """Return a rollback whose controllers are gone, with the restart of broker 0 under way; the other brokers wait for theirs."""
    user = replace(broker_set(None), lock=broker_set(BrokerMode.MIGRATION).lock, update_strategy="OnDelete")
    item = replace(user, pods=(pod_of_0, *broker_set(BrokerMode.MIGRATION).pods[1:]))
    return claim_gone(operation=restart_of_0(began), progress_at=began).observing(stateful_sets=(item,), **observed)


def restart_of_0(began: datetime) -> Operation:
    return Operation(
        kind=OperationKind.RESTART_BROKER, node_id=0, pod="kafka-0", pod_uid="uid-before", started_at=began
    )


def broker_0(uid: str, **changes: object) -> PodState:
    """Return broker 0's pod on the user's own template again."""
    return pod("kafka-0", 0, "", broker_set(None).update_revision, uid=uid, **changes)


BEHIND = cluster(under_replicated=("t-0",), under_replicated_count=1, lagging=frozenset({0}))
STAGES_BACK = [
    (Stage.STOPPING, "uid-before", {"ready": False}, {}, 400),
    (Stage.STARTING, "uid-after", {"ready": False, "running_since": NOW}, {}, 130),
    (
        Stage.CATCHING_UP,
        "uid-after",
        {},
        {"cluster": BEHIND, "cluster_by_broker": dict.fromkeys(BROKER_IDS, BEHIND)},
        610,
    ),
]


@pytest.mark.parametrize(("stage", "uid", "of_pod", "observed", "seconds"), STAGES_BACK, ids=lambda v: str(v)[:20])
def test_a_rollback_past_a_deadline_is_stalled_until_the_broker_is_back(
    stage: Stage, uid: str, of_pod: dict[str, object], observed: dict[str, object], seconds: int
) -> None:
    """It says so for as long as the broker is away, although the rollback does not follow that restart any more."""
    began = NOW - timedelta(seconds=seconds)
    ready = {} if "ready" in of_pod else {"ready_since": began}
    late = brokers_going_back(broker_0(uid, **of_pod, **ready), began, **observed)
    early = late.with_status(operation=restart_of_0(NOW - timedelta(seconds=5)))
    if ready:
        early = brokers_going_back(broker_0(uid, ready_since=NOW), NOW, **observed)
    assert stalled(early.decide())[0] == "False"
    decision = late.decide()
    for _ in range(3):
        assert stalled(decision) == ("True", Reason.DEADLINE_EXCEEDED), decision.status.message
        assert f"Node 0 is past its deadline: {stage}" in decision.status.message
        assert not [a for a in decision.actions if isinstance(a, RestartPod) and a.node_id != 0], "one at a time"
        late = late.after(decision).later(5)
        decision = late.decide()
    assert (decision.status.operation is None) is (stage is not Stage.STOPPING)
    back = late.observing(
        stateful_sets=brokers_going_back(broker_0("uid-after", ready_since=NOW), NOW).observation.stateful_sets,
        cluster=cluster(),
        cluster_by_broker=dict.fromkeys(BROKER_IDS, cluster()),
    ).decide()
    assert stalled(back)[0] == "False", back.status.message
    assert back.status.given_up is None


def test_a_cancelled_restart_does_not_make_the_rollback_forget_the_one_that_it_gave_up() -> None:
    """Broker 0 does not start and was given up; the restart of broker 1 was recorded, and its pod did not stop yet."""
    began = NOW - timedelta(seconds=130)
    away = brokers_going_back(broker_0("uid-after", ready=False, running_since=NOW), began)
    other = broker_set(BrokerMode.MIGRATION).pods[1]
    recorded = Operation(
        kind=OperationKind.RESTART_BROKER,
        node_id=1,
        pod=other.name,
        pod_uid=other.uid,
        started_at=NOW - timedelta(seconds=5),
    )
    decision = away.with_status(operation=recorded, given_up=restart_of_0(began)).decide()
    assert decision.status.operation is None
    assert decision.status.given_up == restart_of_0(began)
    assert stalled(decision) == ("True", Reason.DEADLINE_EXCEEDED), decision.status.message
    assert "its restart was cancelled before its pod stopped" in decision.status.message


@pytest.mark.parametrize(
    ("stage", "of_pod", "seconds"),
    [
        (Stage.STOPPING, {"uid": "gone", "ready": False}, 400),
        (Stage.STARTING, {"uid": "uid-after", "ready": False, "running_since": NOW}, 310),
        (Stage.CATCHING_UP, {"uid": "uid-after"}, 610),
    ],
)
def test_on_the_way_forward_each_stage_past_its_deadline_is_stalled(
    stage: Stage, of_pod: dict[str, object], seconds: int
) -> None:
    fine = rolling(Phase.ROLLING_BROKERS, 1).observing(
        cluster=BEHIND, cluster_by_broker=dict.fromkeys(BROKER_IDS, BEHIND)
    )
    (item,) = fine.observation.stateful_sets
    assert isinstance(item, StatefulSetState)

    def after(seconds: int) -> Decision:
        began = NOW - timedelta(seconds=seconds)
        operation = restart_of_0(began).model_copy(update={"pod_uid": "gone"})
        pods = tuple(replace(p, ready_since=began, **of_pod) if p.ordinal == 0 else p for p in item.pods)  # type: ignore[arg-type]
        return fine.with_status(operation=operation).observing(stateful_sets=(replace(item, pods=pods),)).decide()

    assert stalled(after(seconds - 60))[0] == "False"
    late = after(seconds)
    assert stalled(late) == ("True", Reason.DEADLINE_EXCEEDED), late.status.message
    assert f"Node 0 is past its deadline: {stage}; {PastDeadline.WAIT}" in late.status.message
    assert not [a for a in late.actions if isinstance(a, RestartPod) and a.node_id != 0]
