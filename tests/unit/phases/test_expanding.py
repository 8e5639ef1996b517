"""Leaders of an older release that never ask for a larger ISR again get a new epoch, and nobody else does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.support.observations import BROKER_IDS, NOW, Situation, cluster, open_gate, partly_rolled, zookeeper

from kraftbridge.models.decision import EventReason, RenewLeaders, RestartPod
from kraftbridge.models.observation import StatefulSetState, Unobserved
from kraftbridge.models.phase import BrokerMode, Phase
from kraftbridge.models.status import BrokerUpgradeStatus
from kraftbridge.phases.nodes.expanding import MOST_PARTITIONS, RENEWED_AFTER, RENEWED_EVERY

LACKING = ("a-b-1", "t-0")


def serving(since: timedelta, phase: Phase = Phase.UPGRADING_BROKERS) -> Situation:
    """Return a roll between two restarts, with brokers that have served for so long, and partitions that lack one."""
    item = partly_rolled(1, BrokerMode.UPGRADED, None)
    pods = tuple(replace(pod, ready_since=NOW - since) for pod in item.pods)
    upgrade = BrokerUpgradeStatus(needed=True, protocol="2.8-IV1")
    return lacking(open_gate(phase).observing(stateful_sets=(replace(item, pods=pods),)), LACKING).with_status(
        broker_upgrade=upgrade
    )


def lacking(case: Situation, partitions: tuple[str, ...]) -> Situation:
    view = cluster(under_replicated=partitions, under_replicated_count=len(partitions), lagging=frozenset({0}))
    return case.observing(cluster=view, cluster_by_broker=dict.fromkeys(BROKER_IDS, view))


def renewed(case: Situation) -> list[int]:
    return [action.most for action in case.decide().actions if isinstance(action, RenewLeaders)]


def test_partitions_that_stay_without_a_broker_get_a_new_epoch_and_nothing_restarts() -> None:
    case = serving(RENEWED_AFTER)
    decision = case.decide()
    assert renewed(case) == [MOST_PARTITIONS]
    assert not [action for action in decision.actions if isinstance(action, RestartPod)]
    assert decision.status.leaders_renewed_at == NOW
    (event,) = [event for event in decision.events if event.reason is EventReason.LEADERS_RENEWED]
    assert "a-b-1, t-0" in event.message


def test_it_is_tried_again_after_some_time() -> None:
    case = serving(2 * RENEWED_EVERY)
    just_now = case.with_status(leaders_renewed_at=NOW - RENEWED_EVERY + timedelta(seconds=1))
    assert renewed(just_now) == []
    assert renewed(case.with_status(leaders_renewed_at=NOW - RENEWED_EVERY)) == [MOST_PARTITIONS]


def with_pod(case: Situation, **changes: object) -> Situation:
    (item,) = case.observation.stateful_sets
    assert isinstance(item, StatefulSetState)
    first, *others = item.pods
    return case.observing(stateful_sets=(replace(item, pods=(replace(first, **changes), *others)),))  # type: ignore[arg-type]


KEPT: dict[str, Callable[[Situation], Situation]] = {
    "all are in sync": lambda s: lacking(s, ()),
    "no upgrade": lambda s: s.with_status(broker_upgrade=None),
    "brokers of 3.9": lambda s: s.with_status(broker_upgrade=BrokerUpgradeStatus(needed=False, protocol="3.9")),
    "KRaft leads": lambda s: s.observing(zookeeper=zookeeper(taken_over=True)),
    "ZooKeeper is silent": lambda s: s.observing(zookeeper=Unobserved("ZooKeeper", "silent")),
    "one has just come back": lambda s: with_pod(s, ready_since=NOW - RENEWED_AFTER + timedelta(seconds=1)),
    "one is not Ready": lambda s: with_pod(s, ready_since=None, ready=False),
    "one stops": lambda s: with_pod(s, deleting=True),
    "no broker was asked": lambda s: s.observing(cluster_by_broker=Unobserved("brokers", "silent")),
    "one is not listed": lambda s: s.observing(
        cluster=cluster(brokers=frozenset({0, 1}), under_replicated=LACKING, under_replicated_count=2)
    ),
    "one without a leader": lambda s: s.observing(
        cluster=cluster(under_replicated=LACKING, under_replicated_count=2, offline=("t-0",), offline_count=1)
    ),
    "one broker alone says so": lambda s: s.observing(cluster=cluster()),
}


@pytest.mark.parametrize("what", KEPT)
def test_nobody_else_gets_a_new_epoch(what: str) -> None:
    case = serving(RENEWED_AFTER)
    assert renewed(case)
    assert renewed(KEPT[what](case)) == []
