"""Which brokers hold the replicas of the partitions, and what limits how many of these brokers are down together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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


@dataclass(frozen=True, slots=True)
class PodBudget:
    """A PodDisruptionBudget that selects pods of brokers."""

    name: str
    pods: frozenset[str]
    allowed: int
    """``status.disruptionsAllowed``."""


@dataclass(frozen=True, slots=True)
class SeenAssignments:
    """What the brokers and the API server told in one look. The API server knows pods only."""

    replicas: Assignments
    """With the zones that ``broker.rack`` names."""
    pod_zones: Mapping[str, str] = field(default_factory=dict)
    """Zone of the node of each pod, by the pod's name; read where no broker has a rack."""
    budgets: tuple[PodBudget, ...] = ()

    def by_broker(self, broker_ids: Mapping[str, int]) -> Assignments:
        """Return it by broker.

        Parameters
        ----------
        broker_ids
            The broker of each pod.
        """
        of_nodes = {broker_ids[pod]: zone for pod, zone in self.pod_zones.items() if pod in broker_ids}
        budgets = tuple(
            BudgetRoom(
                budget.name, frozenset(broker_ids[pod] for pod in budget.pods if pod in broker_ids), budget.allowed
            )
            for budget in self.budgets
        )
        return replace(self.replicas, zones=self.replicas.zones or of_nodes, budgets=budgets)
