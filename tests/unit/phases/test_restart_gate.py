"""No node restarts on one broker's word: several brokers, quorum and ZooKeeper must agree, and no topic may become unavailable unasked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.support.observations import BROKER_IDS, NOW, Situation, armed_run, cluster, open_gate, rolling

from kraftbridge.models.conditions import ConditionType, condition
from kraftbridge.models.decision import Decision, RestartPod
from kraftbridge.models.observation import ControllerMetrics, TopicRedundancy, Unobserved, ZooKeeperState
from kraftbridge.models.phase import ControllerMode, Phase
from kraftbridge.models.spec import AcceptedFinding
from kraftbridge.models.status import NodeStatus

LAGGING = cluster(under_replicated=("t-0",), under_replicated_count=1, lagging=frozenset({1}))
SILENT = Unobserved("broker 1 at kafka-1:9092", "no answer in time")
FRESH = {"replication_factor_one": (), "at_min_isr": (), "read_at": NOW}

BROKER_GATES = [
    rolling(Phase.TAKING_OVER, 0),
    rolling(Phase.TAKING_OVER, 1),
    rolling(Phase.ROLLING_BROKERS, 0),
    rolling(Phase.ROLLING_BROKERS, 2),
]
IDS = ["first into migration mode", "second into migration mode", "first to KRaft", "last to KRaft"]


def restarted(decision: Decision) -> list[str]:
    return [a.pod for a in decision.actions if isinstance(a, RestartPod)]


def seen_by(broker: int, view: object) -> Callable[[Situation], Situation]:
    return lambda fine: fine.observing(cluster_by_broker={**dict.fromkeys(BROKER_IDS, cluster()), broker: view})


def fenced(fine: Situation) -> Situation:
    metrics = {
        i: replace(m, active_brokers=m.active_brokers - 1, fenced_brokers=1) if isinstance(m, ControllerMetrics) else m
        for i, m in fine.observation.metrics.items()
    }
    return fine.observing(metrics=metrics)


def not_in_zookeeper(fine: Situation) -> Situation:
    zookeeper = fine.observation.zookeeper
    assert isinstance(zookeeper, ZooKeeperState)
    return fine.observing(zookeeper=replace(zookeeper, brokers=zookeeper.brokers[:-1]))


SPOILED: dict[str, tuple[Callable[[Situation], Situation], str]] = {
    "another broker lacks a replica": (seen_by(1, LAGGING), "as broker 1 serves it"),
    "another broker misses one": (seen_by(1, cluster(brokers=frozenset({0, 1}))), "as broker 1 serves it"),
    "a broker serves other metadata": (seen_by(2, cluster(partitions=9_999)), "different metadata"),
    "a broker does not answer itself": (seen_by(1, SILENT), "no answer in time"),
    "only one broker answered": (lambda s: s.observing(cluster_by_broker={0: cluster()}), "two must agree"),
    "nobody was asked": (lambda s: s.observing(cluster_by_broker=SILENT), "no answer in time"),
    "a topic is not replicated": (
        lambda s: s.observing(redundancy=TopicRedundancy(("new",), (), read_at=NOW)),
        "TopicNotReplicated on topic/new",
    ),
    "a topic is at its min ISR": (
        lambda s: s.observing(redundancy=TopicRedundancy((), ("new",), read_at=NOW)),
        "TopicAtMinIsr on topic/new",
    ),
    "the redundancy was read long ago": (
        lambda s: s.observing(redundancy=TopicRedundancy((), (), read_at=NOW - timedelta(minutes=2))),
        "read again",
    ),
    "the redundancy was not read": (lambda s: s.observing(redundancy=SILENT), "no answer in time"),
}


@pytest.mark.parametrize("fine", BROKER_GATES, ids=IDS)
def test_the_gate_is_open_as_it_is(fine: Situation) -> None:
    assert restarted(fine.decide())


@pytest.mark.parametrize("fine", BROKER_GATES, ids=IDS)
@pytest.mark.parametrize("spoil", SPOILED)
def test_no_broker_restarts(fine: Situation, spoil: str) -> None:
    change, words = SPOILED[spoil]
    decision = change(fine).decide()
    assert not restarted(decision)
    assert words in decision.status.message


@pytest.mark.parametrize("fine", BROKER_GATES[1:], ids=IDS[1:])
def test_no_broker_restarts_while_one_is_fenced(fine: Situation) -> None:
    """The pod is Ready and Metadata as it was: a broker that hangs is fenced before anybody is told."""
    decision = fenced(fine).decide()
    assert not restarted(decision)
    assert "fenced" in decision.status.message


@pytest.mark.parametrize("fine", BROKER_GATES[:3], ids=IDS[:3])
def test_no_broker_restarts_while_one_has_lost_its_session(fine: Situation) -> None:
    decision = not_in_zookeeper(fine).decide()
    assert not restarted(decision)
    assert "/brokers/ids" in decision.status.message


def test_a_topic_made_in_the_soak_waits_for_the_user_and_goes_on_when_accepted() -> None:
    fine = rolling(Phase.ROLLING_BROKERS, 0).observing(redundancy=TopicRedundancy(("new",), (), read_at=NOW))
    decision = fine.decide()
    stalled = condition(decision.status.conditions, ConditionType.STALLED)
    assert stalled is not None
    assert (stalled.status, stalled.reason) == ("True", "BlockingFindings")
    accepted = fine.spec.preflight.model_copy(
        update={"accepted": (AcceptedFinding(code="TopicNotReplicated", object="topic/new"),)}
    )
    assert restarted(fine.asking(preflight=accepted).decide())


@pytest.mark.parametrize(
    "spoil", ["another broker lacks a replica", "a broker does not answer itself", "nobody was asked"]
)
def test_no_controller_restarts_on_one_brokers_word(spoil: str) -> None:
    from tests.support.observations import controllers_workload

    fine = open_gate(Phase.FINALIZING).observing(controllers=controllers_workload(ControllerMode.FINAL, done=1))
    assert restarted(fine.decide())
    assert not restarted(SPOILED[spoil][0](fine).decide())
    assert not restarted(fenced(fine).decide())


def test_one_broker_alone_need_not_agree_with_anybody() -> None:
    fine = rolling(Phase.ROLLING_BROKERS, 0)
    (item,) = fine.observation.stateful_sets
    alone = replace(item, replicas=1, pods=item.pods[:1])  # type: ignore[union-attr, type-var]
    one = cluster(brokers=frozenset({0}))
    metrics = {
        i: replace(m, active_brokers=1, migrating_zk_brokers=1)  # type: ignore[type-var]
        for i, m in fine.observation.metrics.items()
    }
    situation = fine.with_status(
        verifications=(*fine.status.verifications, armed_run()),
        broker_ids={"kafka-0": 0},
        nodes=(NodeStatus(id=0, role="broker", pod="kafka-0", stateful_set="kafka", mode="Migration", ready=True),),
    ).observing(stateful_sets=(alone,), cluster=one, cluster_by_broker={0: one}, metrics=metrics)
    zookeeper = situation.observation.zookeeper
    assert isinstance(zookeeper, ZooKeeperState)
    situation = situation.observing(zookeeper=replace(zookeeper, brokers=zookeeper.brokers[:1]))
    assert restarted(situation.decide()) == ["kafka-0"]
