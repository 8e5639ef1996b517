"""Which brokers hold the replicas of the partitions, and what limits how many of these brokers are down together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Replicas:
    """One partition, or several with the same replicas, the same in-sync replicas and the same demand."""

    example: str
    """``topic-partition`` of one of them."""
    brokers: frozenset[int]
    """Brokers that hold a replica."""
    in_sync: frozenset[int]
    """Those of them that are in sync. Where brokers answered differently, those that all of them name."""
    min_isr: int | None
    """``min.insync.replicas`` of the topic; None if it is not known."""
    accepted: bool = False
    """Whether the user accepts that a broker's restart makes the topic unavailable."""


@dataclass(frozen=True, slots=True)
class BudgetRoom:
    """What a PodDisruptionBudget allows of the brokers that it selects."""

    name: str
    brokers: frozenset[int]
    allowed: int
    """How many of them may be down together, beyond those that are down now."""


@dataclass(frozen=True, slots=True)
class Assignments:
    """Where the replicas are, and what else decides which brokers may be down together."""

    replicas: tuple[Replicas, ...]
    zones: Mapping[int, str] = field(default_factory=dict)
    """Zone of each broker that names one; empty if none does."""
    budgets: tuple[BudgetRoom, ...] = ()
    leaders: frozenset[int] = frozenset()
    """Brokers that lead a partition, as any broker that answered serves it."""
    read_at: datetime | None = None
