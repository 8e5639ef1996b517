"""The schedule is fixed in advance, the same in every mode, and every change can be told from every other."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from benchmarks.quorum.changes import (
    AlterTopicConfig,
    CreateAcl,
    CreateTopic,
    DeleteAcl,
    DeleteTopic,
    GrowTopic,
    Reassign,
)
from benchmarks.quorum.workloads import (
    Load,
    Name,
    Workload,
    background_topics,
    burst_topics,
    incident_workload,
    poisson_arrivals,
    workloads,
)

LOAD = Load(30, 5, 100, 20, 40, 10, 25, 10)
BACKGROUND = background_topics(200)


def every(seed: int = 1, tag: str = "t") -> dict[Name, Workload]:
    return {w.name: w for w in workloads(LOAD, (0, 1, 2), BACKGROUND, tag, seed)}


def test_arrivals_are_random_in_order_and_the_same_for_the_same_seed() -> None:
    arrivals = poisson_arrivals(5000, 20, 7)
    assert arrivals == poisson_arrivals(5000, 20, 7) != poisson_arrivals(5000, 20, 8)
    assert list(arrivals) == sorted(arrivals)
    assert 5000 / arrivals[-1] == pytest.approx(20, rel=0.1)
    gaps = [later - earlier for earlier, later in pairwise(arrivals)]
    mean = sum(gaps) / len(gaps)
    assert sum((g - mean) ** 2 for g in gaps) / len(gaps) == pytest.approx(mean**2, rel=0.2), "exponential gaps"


def test_schedule_is_the_same_in_every_mode_and_another_in_every_round() -> None:
    one, other_mode, other_round = every(1, "zook"), every(1, "kraf"), every(2, "zook")
    for name in (Name.CREATE, Name.CONFIG, Name.ACL, Name.DELETE):
        assert one[name].arrivals == other_mode[name].arrivals != other_round[name].arrivals
    assert one[Name.CREATE].arrivals != one[Name.DELETE].arrivals


def test_every_kind_of_change_of_the_issue_is_there() -> None:
    kinds = Counter(type(change) for w in every().values() for change in w.changes)
    assert set(kinds) == {CreateTopic, DeleteTopic, GrowTopic, AlterTopicConfig, Reassign, CreateAcl, DeleteAcl}
    assert kinds[AlterTopicConfig] == LOAD.configs + LOAD.burst
    assert kinds[CreateAcl] == kinds[DeleteAcl] == LOAD.acls // 2


def test_what_is_created_is_grown_moved_and_deleted() -> None:
    found = every()
    created = {c.topic for c in found[Name.CREATE].changes}
    for name in (Name.GROW, Name.REASSIGN, Name.DELETE):
        assert {c.topic for c in found[name].changes} == created
    burst = {c.topic for c in found[Name.CREATE_BURST].changes}
    assert burst == set(burst_topics(LOAD, "t"))
    assert not burst & created


def test_a_reassignment_moves_data_to_a_broker_that_had_none() -> None:
    found = every()
    before = {c.topic: c.assignment[0] for c in found[Name.CREATE].changes if isinstance(c, CreateTopic)}
    for change in found[Name.REASSIGN].changes:
        assert isinstance(change, Reassign)
        assert len(change.replicas) == 2
        assert len(set(change.replicas) - set(before[change.topic])) == 1


def test_no_value_hides_an_earlier_one() -> None:
    found = every()
    written = [
        (c.topic, c.name)
        for name in (Name.CONFIG, Name.CONFIG_BURST)
        for c in found[name].changes
        if isinstance(c, AlterTopicConfig)
    ]
    assert len(written) == len(set(written)) == LOAD.configs + LOAD.burst
    values = [c.value for c in found[Name.CONFIG].changes if isinstance(c, AlterTopicConfig)]
    assert len(set(values)) == len(values)


def test_no_mode_or_incident_writes_a_value_that_is_there_already() -> None:
    def values(workload: Workload) -> set[tuple[str, str, str]]:
        return {(c.topic, c.name, c.value) for c in workload.changes if isinstance(c, AlterTopicConfig)}

    modes = ("zookeeper", "dual-write", "kraft")
    sets = [values(every(1, mode)[name]) for mode in modes for name in (Name.CONFIG, Name.CONFIG_BURST)]
    for incident in (Name.DURING_RESTART, Name.DURING_FAILOVER):
        sets += [values(incident_workload(incident, LOAD, BACKGROUND, mode, 1)) for mode in modes]
    assert all(len(s) >= LOAD.burst for s in sets)
    assert len(set.union(*sets)) == sum(map(len, sets))


@pytest.mark.parametrize("arrivals", [(0.0,), (1.0, 0.5)])
def test_a_schedule_that_does_not_fit_is_refused(arrivals: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="create-topics"):
        Workload(Name.CREATE, (DeleteTopic("a"), DeleteTopic("b")), arrivals)


def test_pace_changes_rates_alone() -> None:
    faster = LOAD.at_pace(2)
    assert (faster.creates_per_second, faster.configs_per_second) == (10, 40)
    assert (faster.creates, faster.configs, faster.burst) == (LOAD.creates, LOAD.configs, LOAD.burst)
    with pytest.raises(ValueError, match="pace"):
        LOAD.at_pace(0)
