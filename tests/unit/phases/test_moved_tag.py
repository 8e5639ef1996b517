"""A tag that moves after preflight: the first broker that comes back with another image is the last one that restarts."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.support.observations import (
    BROKER_IDS,
    BROKER_SET,
    NOW,
    Situation,
    controller_metrics,
    open_gate,
    quorum,
    rolling,
)

from kraftbridge.models.catalogue import Code
from kraftbridge.models.conditions import ConditionType, Reason
from kraftbridge.models.decision import RestartPod
from kraftbridge.models.observation import StatefulSetState
from kraftbridge.models.phase import BrokerMode, Phase, Target, ZkMigrationState
from kraftbridge.models.spec import AcceptedFinding, PreflightSpec
from kraftbridge.models.status import BrokerUndo, NodeStatus, Operation, OperationKind

FORMER, OTHER = "sha256:" + "a" * 64, "sha256:" + "b" * 64
ROLLS = [Phase.TAKING_OVER, Phase.ROLLING_BROKERS]


def with_images(situation: Situation, first_now: dict[str, str] | None = None) -> Situation:
    """Return the same with brokers that ran `FORMER` before the first restart, of which the first one now runs other images."""
    (item,) = situation.observation.stateful_sets
    assert isinstance(item, StatefulSetState)
    former = frozenset({("kafka", FORMER), ("prepare", FORMER)})
    now = frozenset((dict(former) | (first_now or {})).items())
    first, *others = item.pods
    pods = (replace(first, images=now), *(replace(p, images=former) for p in others))
    nodes = tuple(
        NodeStatus(id=i, role="broker", pod=f"{BROKER_SET}-{i}", stateful_set=BROKER_SET, mode="", images=dict(former))
        for i in BROKER_IDS
    )
    return situation.observing(stateful_sets=(replace(item, pods=pods),)).with_status(nodes=nodes)


def another_came_back(situation: Situation, node: int) -> Situation:
    """Return the same with one broker whose pod went by itself and came back with another image of Kafka."""
    (item,) = situation.observation.stateful_sets
    assert isinstance(item, StatefulSetState)
    images = frozenset({("kafka", OTHER), ("prepare", FORMER)})
    pods = tuple(replace(pod, images=images) if pod.ordinal == node else pod for pod in item.pods)
    return situation.observing(stateful_sets=(replace(item, pods=pods),))


def unregistered_for_long(situation: Situation) -> Situation:
    """Return the same with a first broker that serves clients and that the quorum lacks, past every deadline."""
    (item,) = situation.observation.stateful_sets
    assert isinstance(item, StatefulSetState)
    first, *others = item.pods
    pods = (replace(first, ready_since=NOW - timedelta(hours=1)), *others)
    return situation.observing(
        stateful_sets=(replace(item, pods=pods),),
        quorum=replace(quorum(), observers=frozenset({1, 2})),
        metrics=controller_metrics(ZkMigrationState.PRE_MIGRATION, 0, 0),
    )


def never_registered() -> Situation:
    """Return a restart of the first broker past its deadline: the operator restarts it once more."""
    operation = Operation(
        kind=OperationKind.RESTART_BROKER,
        node_id=0,
        pod=f"{BROKER_SET}-0",
        pod_uid="uid-before",
        started_at=NOW - timedelta(hours=2),
    )
    return with_images(unregistered_for_long(rolling(Phase.TAKING_OVER, 1))).with_status(operation=operation)


def came_back_unregistered() -> Situation:
    """Return a first broker that came back by itself and that the quorum lacks: the operator restarts it."""
    return with_images(unregistered_for_long(rolling(Phase.TAKING_OVER, 1)))


def taken_back() -> Situation:
    """Return a first broker in KRaft mode that goes back to migration mode."""
    undo = BrokerUndo(node_id=0, reason="it destroys records", settings_digest="d", began_at=NOW)
    roll = with_images(rolling(Phase.ROLLING_BROKERS, 1)).with_status(broker_undo=undo)
    (item,) = roll.observation.stateful_sets
    assert isinstance(item, StatefulSetState)
    configuration = next(p.configuration for p in item.pods if p.configuration.startswith(BrokerMode.MIGRATION))
    return roll.observing(stateful_sets=(replace(item, configuration=configuration, update_revision="again"),))


def recorded() -> Situation:
    """Return a restart of the second broker that is on record and has not begun."""
    roll = with_images(rolling(Phase.ROLLING_BROKERS, 1))
    return roll.after(roll.decide())


EVERY_RESTART = {
    "of the roll": lambda: with_images(rolling(Phase.ROLLING_BROKERS, 1)),
    "that has not begun": recorded,
    "once more": never_registered,
    "of one that came back by itself": came_back_unregistered,
    "back to migration mode": taken_back,
}


def restarted(situation: Situation) -> list[RestartPod]:
    return [a for a in situation.decide().actions if isinstance(a, RestartPod)]


@pytest.mark.parametrize("phase", ROLLS)
@pytest.mark.parametrize("container", ["kafka", "prepare"])
def test_no_other_broker_restarts_after_one_came_back_with_another_image(phase: Phase, container: str) -> None:
    case = with_images(rolling(phase, 1), {container: OTHER})
    decision = case.decide()
    assert not [a for a in decision.actions if isinstance(a, RestartPod)]
    message = decision.status.message
    assert f"container {container} of pod {BROKER_SET}-0 ran {FORMER} before the migration and runs {OTHER}" in message
    stalled = next(c for c in decision.status.conditions if c.type is ConditionType.STALLED)
    assert (stalled.status, stalled.reason) == ("True", Reason.FINDINGS)


@pytest.mark.parametrize("phase", ROLLS)
def test_the_same_images_restart_the_next_broker(phase: Phase) -> None:
    assert len(restarted(with_images(rolling(phase, 1)))) == 1


@pytest.mark.parametrize("phase", ROLLS)
def test_a_container_that_is_new_is_not_compared(phase: Phase) -> None:
    assert len(restarted(with_images(rolling(phase, 1), {"injected": OTHER}))) == 1


@pytest.mark.parametrize("where", [f"StatefulSet/{BROKER_SET}", "*"])
def test_the_user_may_accept_the_other_image(where: str) -> None:
    accepted = PreflightSpec(accepted=(AcceptedFinding(code=str(Code.DRY_START_OTHER_IMAGE), object=where),))
    case = with_images(rolling(Phase.ROLLING_BROKERS, 1), {"kafka": OTHER}).asking(preflight=accepted)
    assert len(restarted(case)) == 1


def test_what_is_accepted_elsewhere_does_not_count() -> None:
    accepted = PreflightSpec(accepted=(AcceptedFinding(code=str(Code.DRY_START_OTHER_IMAGE), object="StatefulSet/x"),))
    case = with_images(rolling(Phase.ROLLING_BROKERS, 1), {"kafka": OTHER}).asking(preflight=accepted)
    assert not restarted(case)


def test_the_roll_does_not_end_while_the_last_broker_has_another_image() -> None:
    everyone = open_gate(Phase.ROLLING_BROKERS)
    assert with_images(everyone).decide().status.phase is not Phase.ROLLING_BROKERS
    held = with_images(everyone, {"kafka": OTHER}).decide()
    assert held.status.phase is Phase.ROLLING_BROKERS
    assert OTHER in held.status.message


def test_a_rollback_goes_on_with_whatever_image() -> None:
    case = with_images(rolling(Phase.ROLLING_BROKERS, 1), {"kafka": OTHER}).asking(Target.ZOOKEEPER)
    status = case.with_status(phase=Phase.ROLLING_BACK).decide().status
    assert status.phase is Phase.ROLLING_BACK
    assert OTHER not in status.message


def test_what_runs_is_recorded_right_before_the_first_restart() -> None:
    case = with_images(open_gate(Phase.PROVISIONING_QUORUM), {"kafka": OTHER})
    cleared = tuple(n.model_copy(update={"images": {}}) for n in case.status.nodes)
    status = case.with_status(nodes=cleared).decide().status
    assert status.phase is Phase.TAKING_OVER
    assert [n.images["kafka"] for n in status.nodes] == [OTHER, *(FORMER for _ in BROKER_IDS[1:])]


def test_a_restart_keeps_what_ran_before_it() -> None:
    begun = with_images(rolling(Phase.ROLLING_BROKERS, 1)).decide().status
    assert begun.operation is not None
    replaced = rolling(Phase.ROLLING_BROKERS, 2).with_status(nodes=begun.nodes, operation=begun.operation)
    after = replaced.decide().status
    node = next(n for n in after.nodes if n.id == begun.operation.node_id)
    assert (node.images["kafka"], node.restarts) == (FORMER, 1)


@pytest.mark.parametrize("which", EVERY_RESTART)
def test_no_restart_of_a_serving_broker_spreads_an_image_that_another_came_back_with(which: str) -> None:
    """A broker that falls over while another one restarts, or waits to be restarted again, takes what the tag names."""
    case = EVERY_RESTART[which]()
    (begun,) = restarted(case)
    held = another_came_back(case, next(i for i in reversed(BROKER_IDS) if i != begun.node_id)).decide()
    assert not [action for action in held.actions if isinstance(action, RestartPod)]
    assert f"runs {OTHER}" in held.status.message
    accepted = PreflightSpec(accepted=(AcceptedFinding(code=str(Code.DRY_START_OTHER_IMAGE)),))
    assert len(restarted(another_came_back(case, 2).asking(preflight=accepted))) == 1


def test_a_broker_that_has_the_other_image_itself_may_restart_once_more() -> None:
    """It spreads nothing: the tag that names the former image again mends it."""
    (begun,) = restarted(another_came_back(never_registered(), 0))
    assert begun.node_id == 0


def test_a_broker_that_is_not_ready_restarts_whatever_image_another_has() -> None:
    """It is down already, and a pod that never runs again would hold back everybody."""
    case = another_came_back(recorded(), 2)
    (item,) = case.observation.stateful_sets
    assert isinstance(item, StatefulSetState)
    assert case.status.operation is not None
    pod = case.status.operation.pod
    pods = tuple(replace(each, ready=False, ready_since=None) if each.name == pod else each for each in item.pods)
    assert len(restarted(case.observing(stateful_sets=(replace(item, pods=pods),)))) == 1
