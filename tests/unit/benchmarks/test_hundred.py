"""The benchmark of a hundred brokers, with five of them: everything is asked, and every broker answers."""

from __future__ import annotations

import pytest
from benchmarks.hundred.__main__ import IN_BATCHES, ROLL_SECONDS, SCENES, bounds_of, measure, measured, started
from benchmarks.hundred.asking import Cluster, Scene
from benchmarks.hundred.servers import Size, told
from tests.support.wire_servers import CONFIGS, LOG_DIRS, METADATA

from kraftbridge.storage import kafka_brokers

SMALL = Size(brokers=5, partitions=50, partitions_of_a_topic=7)


def test_every_goal_is_judged_and_nothing_stays_unobserved() -> None:
    # In a shorter time the first step, which asks for everything, is more than the rates allow where steps take no time.
    goals = measure(SMALL, tries=1, seconds=2.0, only="")
    assert len(goals) == 2 * 2 * len(SCENES) + 2 * 2 + 1
    lacking = [goal for goal in goals if "did not tell" in goal.what and goal.measured != "0"]
    assert lacking == []
    assert all(goal.met for goal in goals if "requests" in goal.what)


@pytest.mark.parametrize(
    ("scene", "key"),
    [(SCENES[0], CONFIGS), (SCENES[0], LOG_DIRS), (IN_BATCHES, METADATA), (SCENES[-1], LOG_DIRS)],
    ids=["settings in preflight", "log directories in preflight", "canary in a roll", "log directories of a lift"],
)
def test_each_broker_is_asked_itself(scene: Scene, key: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_brokers, "_READ_SECONDS", 60.0)  # the machine may be busy
    with started(SMALL) as (ports, counters):
        cluster = Cluster(ports)
        with cluster.operator() as operator:
            step = measured(operator, cluster, scene, counters).step
        asked = [each[key] for each in told(counters).requests]
    assert step.unobserved == ()
    assert len(asked) == SMALL.brokers
    assert min(asked) >= 1


def test_bounds_grow_with_the_topics_and_the_pace() -> None:
    small, large = (bounds_of(Size(100, partitions, 50), ROLL_SECONDS) for partitions in (1_000, 200_000))
    assert small.busiest < large.busiest
    assert bounds_of(Size(100, 1_000, 50), 10 * ROLL_SECONDS).busiest < small.busiest
