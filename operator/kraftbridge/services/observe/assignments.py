"""Observes what decides which brokers may be down together: replicas, zones, PodDisruptionBudgets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from kraftbridge.models.assignments import PodBudget, SeenAssignments
from kraftbridge.models.catalogue import Code
from kraftbridge.models.objects import section
from kraftbridge.models.observation import TopicRedundancy
from kraftbridge.models.spec import PreflightSpec
from kraftbridge.phases.draft import Migration
from kraftbridge.services.observe import workloads
from kraftbridge.services.observe.survey import selects
from kraftbridge.storage.ports import BrokerPort, Object, ReadPort

_ZONE = "topology.kubernetes.io/zone"
"""Label of a node (Kubernetes, "Well-Known Labels, Annotations and Taints")."""


def observe(
    kubernetes: ReadPort, brokers: BrokerPort, migration: Migration, redundancy: TopicRedundancy, now: datetime
) -> SeenAssignments:
    """Return where the replicas are now, with the zones and the PodDisruptionBudgets.

    Raises
    ------
    ObservationError
        Brokers or API server do not answer, or the operator may not list nodes.
    """
    found = brokers.assignments(_accepted(migration.spec.preflight, redundancy))
    pods = list(_pods(kubernetes, migration))
    zones = {} if found.zones else _zones_of_nodes(kubernetes, pods)
    listed = kubernetes.list("policy/v1", "PodDisruptionBudget", migration.identity.namespace)
    return SeenAssignments(replace(found, read_at=now), zones, tuple(_budgets(listed, pods)))


def _accepted(spec: PreflightSpec, redundancy: TopicRedundancy) -> frozenset[str]:
    lone = (topic for topic in redundancy.replication_factor_one if _accepts(spec, Code.TOPIC_NOT_REPLICATED, topic))
    least = (topic for topic in redundancy.at_min_isr if _accepts(spec, Code.TOPIC_AT_MIN_ISR, topic))
    return frozenset((*lone, *least))


def _accepts(spec: PreflightSpec, code: Code, topic: str) -> bool:
    return spec.accepts(code, f"topic/{topic}")


def _pods(kubernetes: ReadPort, migration: Migration) -> Iterator[Object]:
    """Yield the brokers' pods."""
    namespace = migration.identity.namespace
    for ref in migration.spec.brokers.stateful_sets:
        stateful_set = kubernetes.get("apps/v1", "StatefulSet", namespace, ref.name)
        if stateful_set is not None:
            yield from kubernetes.list("v1", "Pod", namespace, workloads.pods_selector(stateful_set))


def _zones_of_nodes(kubernetes: ReadPort, pods: Iterable[Object]) -> dict[str, str]:
    """Return the zone of the node on which each pod runs."""
    nodes = kubernetes.list("v1", "Node", None)
    labels = {node["metadata"]["name"]: section(node, "metadata", "labels") for node in nodes}
    zones = {}
    for pod in pods:
        zone = labels.get(section(pod, "spec").get("nodeName", ""), {}).get(_ZONE, "")
        if zone:
            zones[pod["metadata"]["name"]] = zone
    return zones


def _budgets(listed: Iterable[Object], pods: Sequence[Object]) -> Iterator[PodBudget]:
    for budget in listed:
        selector = budget["spec"].get("selector")
        selected = (pod for pod in pods if selects(selector, section(pod, "metadata", "labels")))
        if names := frozenset(pod["metadata"]["name"] for pod in selected):
            yield PodBudget(budget["metadata"]["name"], names, section(budget, "status").get("disruptionsAllowed", 0))
