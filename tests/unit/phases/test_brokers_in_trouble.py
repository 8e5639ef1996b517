"""One classification of a broker in trouble, and one table of what follows."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.observations import (
    NOW,
    Situation,
    cluster,
    controller_metrics,
    quorum,
    rolling,
)
from tests.unit.phases.test_rolling import broker_pod, on_the_users_template, with_pods

from kraftbridge.models.observation import StatefulSetState
from kraftbridge.models.phase import BrokerMode, Phase, ZkMigrationState
from kraftbridge.models.pod_problem import LOST_NODE, UNSCHEDULABLE, WAITS, PodProblem
from kraftbridge.models.status import WatchedStart
from kraftbridge.phases.draft import StepContext
from kraftbridge.phases.nodes.brokers import LOST_AFTER, REMEDIES, Remedy, Trouble, trouble_of

DOCS = Path(__file__).parents[3] / "docs" / "troubleshooting.md"
LONG = LOST_AFTER + timedelta(seconds=1)
OTHERS_ALONE = cluster(brokers=frozenset({1, 2}))


def with_first(situation: Situation, **changes: Any) -> Situation:
    return with_pods(situation, broker_0=replace(broker_pod(situation, 0), **changes))


def not_ready(running: timedelta | None) -> dict[str, Any]:
    since = None if running is None else NOW - running
    return {"ready": False, "ready_since": None, "running_since": since, "seen_since": since}


def unlisted(situation: Situation, ready: timedelta) -> Situation:
    alone = situation.observing(cluster=OTHERS_ALONE, cluster_by_broker={1: OTHERS_ALONE, 2: OTHERS_ALONE})
    return with_first(alone, ready_since=NOW - ready)


def unregistered(situation: Situation) -> Situation:
    """Return the same with a broker that the others list, and that neither is registered nor fetches the log."""
    seen = replace(quorum(), observers=frozenset({1, 2}))
    metrics = controller_metrics(ZkMigrationState.MIGRATION, 3, 3)
    return with_first(situation.observing(quorum=seen, metrics=metrics), ready_since=NOW - LONG)


def loading(situation: Situation) -> Situation:
    process = broker_pod(situation, 0).process
    watched = WatchedStart(pod="kafka-0", process=process, looked_at=NOW, recovery="Loading t-0 (1/7 loaded)")
    return situation.with_status(watched_start=watched)


FINE = rolling(Phase.ROLLING_BROKERS, 1)
KINDS: dict[str, tuple[Situation, Trouble | None]] = {
    "serves": (FINE, None),
    "stops": (with_first(FINE, deleting=True), Trouble.STOPPING),
    "begins": (with_first(FINE, **not_ready(timedelta(seconds=10))), Trouble.STARTING),
    "hangs": (with_first(FINE, **not_ready(timedelta(seconds=40))), Trouble.DOWN),
    "has no image": (with_first(FINE, **not_ready(None), trouble="ImagePullBackOff of container kafka"), Trouble.DOWN),
    "is new": (unlisted(FINE, timedelta(seconds=100)), Trouble.JOINING),
    "is not listed": (unlisted(FINE, LONG), Trouble.UNLISTED),
    "is not registered": (unregistered(FINE), Trouble.UNREGISTERED),
    "loads": (loading(unlisted(FINE, LONG)), Trouble.LOADING),
    "loads and serves": (loading(FINE), None),
    "is left behind": (with_pods(FINE, broker_0=on_the_users_template(broker_pod(FINE, 0))), Trouble.LEFT_BEHIND),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_broker_is_in_one_kind_of_trouble(kind: str) -> None:
    situation, expected = KINDS[kind]
    step = StepContext(situation.identity, situation.spec, situation.observation, situation.now, situation.status)
    (item,) = situation.observation.stateful_sets
    assert isinstance(item, StatefulSetState)
    assert trouble_of(step, (item, item.pods[0]), BrokerMode.KRAFT) == expected


def test_every_kind_is_tried_and_has_its_row() -> None:
    assert {trouble for _, trouble in KINDS.values() if trouble is not None} == set(Trouble) == set(REMEDIES)
    assert {remedy for row in REMEDIES.values() for remedy in row} == set(Remedy)


def test_the_docs_hold_the_table() -> None:
    text = DOCS.read_text()
    for trouble, (of_outdated, of_wanted) in REMEDIES.items():
        assert f"| {trouble} | {of_outdated} | {of_wanted} |" in text


def test_the_docs_say_what_ends_each_problem_of_a_pod() -> None:
    text = DOCS.read_text()
    assert all(f"| {problem} |" in text for problem in PodProblem)
    assert all(f"`{reason}`" in text for reason in (*WAITS, UNSCHEDULABLE, LOST_NODE))
