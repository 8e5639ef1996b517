"""The changes and their times. Every arrival is fixed before a run begins (open loop). Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import product
from typing import Final
from zlib import crc32

from benchmarks.quorum.changes import (
    AlterTopicConfig,
    Change,
    CreateAcl,
    CreateTopic,
    DeleteAcl,
    DeleteTopic,
    GrowTopic,
    Reassign,
)

PRINCIPAL: Final = "User:kraftbridge-bench"
BACKGROUND_PREFIX: Final = "kraftbridge-bench-filled"
BACKGROUND_PARTITIONS: Final = 5
"""Partitions of each topic that fills the cluster."""
_CONFIGS: Final = {
    "retention.ms": 600_000_000,
    "segment.ms": 600_000_000,
    "flush.ms": 600_000_000,
    "delete.retention.ms": 600_000_000,
}
"""Harmless settings, and a value to count from: each (topic, setting) is written once, so that no later value hides an earlier one."""


class Name(StrEnum):
    """The workloads; names are in the raw samples."""

    CREATE = "create-topics"
    CREATE_BURST = "create-topics-burst"
    CONFIG = "alter-configs"
    CONFIG_BURST = "alter-configs-burst"
    ACL = "acls"
    GROW = "grow-partitions"
    REASSIGN = "reassign-partitions"
    DELETE = "delete-topics"
    DURING_RESTART = "alter-configs-during-broker-restart"
    DURING_FAILOVER = "alter-configs-during-controller-failover"


@dataclass(frozen=True, slots=True)
class Workload:
    """Changes and the time, in seconds from the start, at which each is due."""

    name: Name
    changes: tuple[Change, ...]
    arrivals: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.changes) != len(self.arrivals):
            raise ValueError(f"{self.name}: {len(self.changes)} changes and {len(self.arrivals)} arrivals")
        if list(self.arrivals) != sorted(self.arrivals):
            raise ValueError(f"{self.name}: arrivals are not in order")


@dataclass(frozen=True, slots=True)
class Load:
    """How many changes of each kind, and how many a second."""

    creates: int
    creates_per_second: float
    configs: int
    configs_per_second: float
    acls: int
    acls_per_second: float
    burst: int
    incident_seconds: float
    """Length of the workloads during which a broker restarts or a controller fails; 0 leaves them out."""

    def at_pace(self, factor: float) -> Load:
        """Return the same changes, arriving faster or slower."""
        if factor <= 0:
            raise ValueError(f"a pace of {factor} is none")
        return replace(
            self,
            creates_per_second=self.creates_per_second * factor,
            configs_per_second=self.configs_per_second * factor,
            acls_per_second=self.acls_per_second * factor,
        )


def poisson_arrivals(count: int, per_second: float, seed: int) -> tuple[float, ...]:
    """Return when a number of changes arrive, at random as from many independent clients; the same for the same seed."""
    gaps = random.Random(seed)  # noqa: S311 - a schedule, no secret
    at, times = 0.0, []
    for _ in range(count):
        at += gaps.expovariate(per_second)
        times.append(round(at, 6))
    return tuple(times)


def background_topics(partitions: int) -> tuple[str, ...]:
    """Return names of the topics that fill a cluster up to so many partitions."""
    return tuple(f"{BACKGROUND_PREFIX}-{i:06d}" for i in range(-(-partitions // BACKGROUND_PARTITIONS)))


def workloads(load: Load, brokers: Sequence[int], background: Sequence[str], tag: str, seed: int) -> Iterator[Workload]:
    """Yield the steady workloads in their order: topics are created, changed in every way and deleted.

    Parameters
    ----------
    brokers
        Ids; each topic's replicas go round them, two per partition.
    background
        Topics that exist, for changes of configuration and ACLs.
    tag
        Part of every new topic's name; no other run on the same cluster has it.
    seed
        Of the schedule; the same in every mode, so that all get the same arrivals.
    """
    topics = [f"kraftbridge-bench-{tag}-{i:05d}" for i in range(load.creates)]
    settings = _settings(background, tag)
    slow = load.creates_per_second

    def spread(name: Name, changes: Sequence[Change], per_second: float) -> Workload:
        number = list(Name).index(name)
        return Workload(name, tuple(changes), poisson_arrivals(len(changes), per_second, seed * 100 + number))

    created = [CreateTopic(t, 2, min(2, len(brokers)), _placement(i, brokers, 2)) for i, t in enumerate(topics)]
    yield spread(Name.CREATE, created, slow)
    yield spread(Name.CONFIG, [next(settings) for _ in range(load.configs)], load.configs_per_second)
    pairs = [(CreateAcl(t, PRINCIPAL), DeleteAcl(t, PRINCIPAL)) for t in background[: load.acls // 2]]
    yield spread(
        Name.ACL,
        [p[0] for p in pairs] + [p[1] for p in pairs],
        load.acls_per_second,
    )
    yield spread(Name.GROW, [GrowTopic(t, 3) for t in topics], slow)
    yield spread(Name.REASSIGN, [Reassign(t, 0, _moved(i, brokers)) for i, t in enumerate(topics)], slow)
    yield spread(Name.DELETE, [DeleteTopic(t) for t in topics], slow)
    together = (0.0,) * load.burst
    replicas = min(2, len(brokers))
    burst = tuple(CreateTopic(topic, 2, replicas) for topic in burst_topics(load, tag))
    yield Workload(Name.CREATE_BURST, burst, together)
    yield Workload(Name.CONFIG_BURST, tuple(next(settings) for _ in range(load.burst)), together)


def incident_workload(name: Name, load: Load, background: Sequence[str], tag: str, seed: int) -> Workload:
    """Return the changes that go on while something happens to a node."""
    count = int(load.configs_per_second * load.incident_seconds)
    settings = _settings(background, f"{tag}-{name}")
    changes = tuple(next(settings) for _ in range(count))
    return Workload(name, changes, poisson_arrivals(count, load.configs_per_second, seed * 100 + 50))


def burst_topics(load: Load, tag: str) -> tuple[str, ...]:
    """Return the topics that the burst leaves behind."""
    return tuple(f"kraftbridge-bench-{tag}-burst-{i:05d}" for i in range(load.burst))


def _settings(topics: Sequence[str], tag: str) -> Iterator[AlterTopicConfig]:
    """Yield changes of configuration, none twice for one topic and setting before all have had their turn.

    Values are of this tag alone: one that a topic has already would be visible before it is written.
    """
    turn = 1000 * (crc32(tag.encode()) % 1_000_000)
    while True:
        for name, topic in product(_CONFIGS, topics):
            turn += 1
            yield AlterTopicConfig(topic, name, str(_CONFIGS[name] + turn))


def _placement(number: int, brokers: Sequence[int], partitions: int) -> tuple[tuple[int, ...], ...]:
    count = len(brokers)
    replicas = min(2, count)
    return tuple(
        tuple(brokers[(number + partition + replica) % count] for replica in range(replicas))
        for partition in range(partitions)
    )


def _moved(number: int, brokers: Sequence[int]) -> tuple[int, ...]:
    """Return where partition 0 goes: to the broker that had no replica of it, and the former leader."""
    count = len(brokers)
    return tuple(dict.fromkeys((brokers[(number + 2) % count], brokers[number % count])))
