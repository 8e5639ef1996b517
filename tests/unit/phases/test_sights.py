"""Pods as the operator first saw them, by its own clock, and brokers whose start takes long."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.support.observations import BROKER_IDS, NOW, Situation, broker_set, cluster, open_gate, quorum, rolling

from kraftbridge.models.conditions import ConditionType, condition
from kraftbridge.models.decision import RestartPod
from kraftbridge.models.observation import ControllerMetrics, PodState, StartLog, StatefulSetState, Unobserved
from kraftbridge.models.phase import BrokerMode, Phase, Target
from kraftbridge.models.status import Operation, OperationKind, WatchedStart
from kraftbridge.phases.draft import Migration
from kraftbridge.phases.machine import decide

HOUR_SECONDS = 3600
STEP_SECONDS = 5.0
LINE = "[LogLoader partition=orders-{}, dir=/data] Recovering unflushed segment 0 (kafka.log.LogLoader)"


class World:
    """Broker 0 as its pod, its log and the quorum show it; the operator's clock may be ahead of the node's."""

    def __init__(
        self, start: Situation, *, recovers_seconds: float, skew_seconds: float, log: str = "recovers"
    ) -> None:
        self.situation = start
        self.recovers_seconds = recovers_seconds
        self.skew = timedelta(seconds=skew_seconds)
        self.log = log
        self.uid = "uid-1"
        self.born = start.now
        self.restarted_at: list[float] = []

    def play(self, seconds: float) -> World:
        began = self.situation.now
        while self.situation.now - began < timedelta(seconds=seconds):
            self.step(began)
        return self

    def step(self, began: datetime) -> None:
        now = self.situation.now
        up = (now - self.born).total_seconds() >= self.recovers_seconds
        offset = self.situation.status.migration_offset
        if offset is not None:  # the mirror moves
            moving = offset.model_copy(update={"seen_at": now, "moved_at": now, "standing_since": None})
            self.situation = self.situation.with_status(migration_offset=moving)
        seen = self.situation.observing(
            stateful_sets=(self.brokers(now),), start_log=self.start_log(up=up), **self.kafka(up=up)
        )
        decision = decide(Migration(seen.identity, seen.spec, seen.status), seen.observation, seen.now)
        for action in decision.actions:
            if isinstance(action, RestartPod) and action.uid == self.uid:
                self.restarted_at.append((now - began).total_seconds())
                self.uid = f"uid-{len(self.restarted_at) + 1}"
                self.born = now + timedelta(seconds=10)
        self.situation = seen.after(decision).later(STEP_SECONDS)
        self.decision = decision

    def brokers(self, now: datetime) -> StatefulSetState:
        item = broker_set(BrokerMode.KRAFT)
        by_kubelet = self.born - self.skew
        ready = now >= self.born
        first = replace(
            item.pods[0],
            uid=self.uid,
            ready=ready,
            ready_since=by_kubelet if ready else None,
            running_since=by_kubelet if ready else None,
        )
        return replace(item, pods=(first, *item.pods[1:]))

    def start_log(self, *, up: bool) -> StartLog | Unobserved:
        watched = self.situation.status.watched_start
        if watched is None or self.log == "unreadable":
            return Unobserved("log of pod kafka-0", "it cannot be read")
        minutes = int((self.situation.now - self.born).total_seconds() // 60)
        return StartLog(watched.process, LINE.format(minutes) if self.log == "recovers" and not up else "")

    def kafka(self, *, up: bool) -> dict[str, object]:
        metrics = {
            i: replace(m, active_brokers=3 if up else 2, fenced_brokers=0 if up else 1, migrating_zk_brokers=0)
            for i, m in self.situation.observation.metrics.items()
            if isinstance(m, ControllerMetrics)
        }
        if up:
            whole = cluster()
            return {
                "metrics": metrics,
                "cluster": whole,
                "cluster_by_broker": dict.fromkeys(BROKER_IDS, whole),
                "quorum": quorum(),
            }
        others = cluster(
            brokers=frozenset({1, 2}), under_replicated=("t-0",), under_replicated_count=100, lagging=frozenset({0})
        )
        return {
            "metrics": metrics,
            "cluster": others,
            "cluster_by_broker": dict.fromkeys(BROKER_IDS[1:], others),
            "quorum": replace(quorum(), observers=frozenset({1, 2})),
        }

    def stalled(self) -> str:
        found = condition(self.decision.status.conditions, ConditionType.STALLED)
        assert found is not None
        return found.status


def restarting() -> Situation:
    """Return RollingBrokers, right after the pod of broker 0 was replaced."""
    operation = Operation(kind=OperationKind.RESTART_BROKER, node_id=0, pod="kafka-0", pod_uid="gone", started_at=NOW)
    return rolling(Phase.ROLLING_BROKERS, 3).with_status(operation=operation)


def at_rest() -> Situation:
    """Return AwaitingFinalization for good; every broker has been compared with what it was."""
    rest = open_gate(Phase.AWAITING_FINALIZATION, Target.KRAFT_BROKERS)
    compared = {pod.name: pod.process for pod in broker_set(BrokerMode.KRAFT).pods}
    nodes = tuple(n.model_copy(update={"compared": compared.get(n.pod, "")}) for n in rest.status.nodes)
    return rest.with_status(nodes=nodes)


SKEWS = (0.0, 200.0, -200.0, 86_400.0, -86_400.0)


@pytest.mark.parametrize("skew_seconds", SKEWS)
@pytest.mark.parametrize("start", [restarting, at_rest], ids=["restart", "crash at rest"])
def test_a_broker_that_recovers_its_logs_is_not_restarted(start: object, skew_seconds: float) -> None:
    world = World(start(), recovers_seconds=600, skew_seconds=skew_seconds).play(590)  # type: ignore[operator]
    assert world.restarted_at == []
    assert world.stalled() == "False", world.decision.status.message
    assert world.situation.status.watched_start is not None
    assert "Recovering unflushed segment" in world.situation.status.watched_start.recovery
    world.play(60)
    assert world.restarted_at == []
    assert world.situation.status.watched_start is None


@pytest.mark.parametrize("skew_seconds", SKEWS)
@pytest.mark.parametrize("start", [restarting, at_rest], ids=["restart", "crash at rest"])
def test_a_broker_that_does_nothing_is_restarted_once_in_all(start: object, skew_seconds: float) -> None:
    world = World(start(), recovers_seconds=10 * HOUR_SECONDS, skew_seconds=skew_seconds, log="idle")  # type: ignore[operator]
    world.play(HOUR_SECONDS)
    assert len(world.restarted_at) == 1
    assert 180 <= world.restarted_at[0] < 200
    assert world.stalled() == "True"


@pytest.mark.parametrize("start", [restarting, at_rest], ids=["restart", "crash at rest"])
def test_a_broker_whose_log_nobody_can_read_is_left_to_the_user(start: object) -> None:
    world = World(start(), recovers_seconds=10 * HOUR_SECONDS, skew_seconds=0, log="unreadable").play(HOUR_SECONDS)  # type: ignore[operator]
    assert world.restarted_at == []
    assert world.stalled() == "True"
    assert "cannot be read" in world.decision.status.message


def test_an_operator_that_restarts_forgets_nothing() -> None:
    """Whatever is counted is in status: another process goes on with it."""
    world = World(restarting(), recovers_seconds=10 * HOUR_SECONDS, skew_seconds=0, log="idle").play(300)
    stored = type(world.situation.status).model_validate_json(world.situation.status.model_dump_json())
    world.situation = replace(world.situation, status=stored)
    world.play(HOUR_SECONDS)
    assert len(world.restarted_at) == 1


def test_a_clock_that_was_set_back_holds_nothing_up() -> None:
    world = World(restarting(), recovers_seconds=10 * HOUR_SECONDS, skew_seconds=0, log="idle").play(100)
    behind = world.situation.later(-86_400)
    world.situation = behind
    world.born -= timedelta(days=1)
    world.play(600)
    assert len(world.restarted_at) == 1


def test_nothing_is_recorded_before_anything_restarts() -> None:
    fresh = open_gate(Phase.PREFLIGHT)
    decision = decide(Migration(fresh.identity, fresh.spec, fresh.status), fresh.observation, fresh.now)
    assert decision.status.sights == ()


def test_a_pod_keeps_its_first_sight() -> None:
    world = World(at_rest(), recovers_seconds=0, skew_seconds=0).play(60)
    (sight,) = (s for s in world.situation.status.sights if s.pod == "kafka-0")
    assert sight.since == NOW
    assert sight.ready_at == NOW


def test_processes_in_one_pod_are_told_apart() -> None:
    pod = broker_set(BrokerMode.KRAFT).pods[0]
    assert isinstance(pod, PodState)
    assert replace(pod, running_since=NOW).process != replace(pod, running_since=NOW + timedelta(seconds=1)).process


def test_a_look_in_which_another_broker_seems_away_forgets_no_recovery() -> None:
    """Found by the simulation: the log of one broker at a time is read, and a reading of another one made the first look idle."""
    long_ago = NOW - timedelta(minutes=10)
    item = broker_set(BrokerMode.MIGRATION)
    # Broker 2 loads its partitions; broker 1 is missing in this look alone.
    pods = tuple(replace(p, running_since=long_ago, ready_since=long_ago) for p in item.pods)
    loading = pods[2]
    watched = WatchedStart(pod=loading.name, process=loading.process, recovery="partition 7", looked_at=NOW)
    seen = cluster(brokers=frozenset({0}))
    situation = open_gate(Phase.DUAL_WRITE).with_status(watched_start=watched).observing(
        stateful_sets=(replace(item, pods=pods),), cluster=seen, cluster_by_broker={0: seen}, start_log=StartLog(loading.process, "partition 7")
    )  # fmt: skip
    decision = situation.step()
    assert decision.status.watched_start == watched
    assert not [a for a in decision.actions if isinstance(a, RestartPod)]


def late_start(**changes: Any) -> Situation:
    """Return a restart whose pod is Ready for so long that it would be repeated if its log said nothing."""
    world = World(restarting(), recovers_seconds=600, skew_seconds=0).play(400)
    assert world.restarted_at == []
    seen = world.situation.observing(
        stateful_sets=(world.brokers(world.situation.now),),
        start_log=world.start_log(up=False),
        **world.kafka(up=False),
    )
    return seen.with_status(**changes)


def test_the_first_look_at_a_start_takes_what_its_log_says() -> None:
    """An operator that lost what it knew of the start reads a log that tells of recovery: the broker is not down."""
    decision = late_start(watched_start=None).step()
    watched = decision.status.watched_start
    assert watched is not None
    assert watched.recovery
    assert [a for a in decision.actions if isinstance(a, RestartPod)] == []


def test_a_look_in_which_nobody_lists_pods_forgets_no_start() -> None:
    late = late_start()
    unseen = late.observing(stateful_sets=(Unobserved("StatefulSet kafka", "no answer in time"),))
    assert unseen.step().status.watched_start == late.status.watched_start
