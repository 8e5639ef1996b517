"""Findings about Kubernetes: rights, room and storage for the controllers, disruption budgets, other writers. Pure."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kraftbridge.models.catalogue import Code
from kraftbridge.models.observation import Unobserved
from kraftbridge.models.spec import MigrationSpec, Placement
from kraftbridge.models.status import FindingStatus, finding, some
from kraftbridge.models.survey import Budget, Capacity, ControllersDemand, Demand, Limit, Room, Survey
from kraftbridge.phases.draft import Draft
from kraftbridge.phases.observed import observed, read_sets

OTHER_WRITER = "owner "
"""Prefix of an entry of `Survey.writers` if a controller owns the StatefulSet."""
CHART_WRITERS = ("Helm release ", "Flux HelmRelease ")
"""Prefixes of entries that name the release of a chart."""


def findings(draft: Draft, survey: Survey) -> Iterator[FindingStatus]:
    """Find objects that Kubernetes would refuse or leave pending."""
    if isinstance(survey.missing_rights, Unobserved):
        yield finding(Code.RIGHTS_UNKNOWN, "operator", reason=survey.missing_rights)
    if rights := observed(survey.missing_rights, ()):
        yield finding(Code.RIGHT_MISSING, "operator", rights=some(rights, 20))
    yield from _storage(draft, survey)
    yield from _budgets(survey)
    yield from _writers(draft, survey)
    if isinstance(survey.leftovers, Unobserved):
        yield finding(Code.LEFTOVERS_UNKNOWN, "namespace", reason=survey.leftovers)
    if leftovers := observed(survey.leftovers, ()):
        yield finding(Code.LEFTOVERS_FOUND, "namespace", objects=some(leftovers, 20))
    yield from _selecting(draft, survey)
    yield from _refused(survey)
    if isinstance(survey.demand, Unobserved):
        yield finding(Code.CAPACITY_UNKNOWN, "controllers", reason=survey.demand)
        return
    limits = observed(survey.limits, ())
    demand = replace(
        survey.demand,
        containers=tuple(_defaulted(c, limits) for c in survey.demand.containers),
        init_containers=tuple(_defaulted(c, limits) for c in survey.demand.init_containers),
    )
    yield from _quotas(survey, demand, limits)
    yield from _limits(survey, demand)
    yield from _room(draft, survey, demand)


def _storage(draft: Draft, survey: Survey) -> Iterator[FindingStatus]:
    if isinstance(survey.storage_classes, Unobserved):
        yield finding(Code.STORAGE_CLASSES_UNKNOWN, "controllers", reason=survey.storage_classes)
        return
    wanted = draft.spec.controllers.storage.storage_class_name
    is_default = {storage_class.name: storage_class.default for storage_class in survey.storage_classes}
    classes = some(is_default, 10) or "none"
    if wanted is not None and wanted not in is_default:
        yield finding(Code.STORAGE_CLASS_MISSING, f"StorageClass/{wanted}", wanted=wanted, classes=classes)
    elif wanted is None and not any(is_default.values()):
        yield finding(Code.NO_DEFAULT_STORAGE_CLASS, "controllers", classes=classes)


def _budgets(survey: Survey) -> Iterator[FindingStatus]:
    if isinstance(survey.budgets, Unobserved):
        yield finding(Code.BUDGETS_UNKNOWN, "brokers", reason=survey.budgets)
    names: dict[str, list[str]] = {}
    for budget in observed(survey.budgets, ()):
        names.setdefault(budget.stateful_set, []).append(budget.name)
        yield from _budget(budget)
    for stateful_set, budgets in sorted(names.items()):
        if len(budgets) > 1:
            yield finding(Code.SEVERAL_DISRUPTION_BUDGETS, f"StatefulSet/{stateful_set}", budgets=some(budgets))


def _budget(budget: Budget) -> Iterator[FindingStatus]:
    name = f"PodDisruptionBudget/{budget.name}"
    if not budget.up_to_date:
        yield finding(Code.BUDGETS_UNKNOWN, name, reason="its controller has not observed its newest version yet")
    elif budget.disruptions_allowed == 0 and budget.healthy_pods >= budget.expected_pods:
        yield finding(
            Code.DISRUPTION_BUDGET_FORBIDS_ALL, name, pods=budget.expected_pods, desired=budget.desired_healthy
        )


def _writers(draft: Draft, survey: Survey) -> Iterator[FindingStatus]:
    if isinstance(survey.writers, Unobserved):
        yield finding(Code.WRITERS_UNKNOWN, "brokers", reason=survey.writers)
    issued = {stateful_set.name: stateful_set.issued_secret for stateful_set in read_sets(draft)}
    nobody: Mapping[str, tuple[str, ...]] = {}
    for stateful_set, writers in observed(survey.writers, nobody).items():
        name = f"StatefulSet/{stateful_set}"
        releases = [writer for writer in writers if writer.startswith(CHART_WRITERS)]
        secret = issued.get(stateful_set)
        if releases and secret:
            yield finding(Code.VOLUME_NEEDED_IN_RELEASE, name, secret=secret, release=releases[0])
        others = []
        for writer in writers:
            if writer.startswith(OTHER_WRITER):
                yield finding(Code.OWNED_BY_CONTROLLER, name, owner=writer.removeprefix(OTHER_WRITER))
            else:
                others.append(writer)
        if others:
            yield finding(Code.FIELDS_MANAGED_BY_OTHERS, name, writers=", ".join(others))


def _selecting(draft: Draft, survey: Survey) -> Iterator[FindingStatus]:
    if isinstance(survey.selecting, Unobserved):
        yield finding(Code.POD_LABELS_UNKNOWN, "pods", reason=survey.selecting)
    labels = some(f"{key}={value}" for key, value in draft.spec.pods.labels.items())
    for name in observed(survey.selecting, ()):
        yield finding(Code.POD_LABELS_SELECTED, name, labels=labels)


def _refused(survey: Survey) -> Iterator[FindingStatus]:
    if isinstance(survey.refused, Unobserved):
        yield finding(Code.CHANGES_UNKNOWN, "brokers", reason=survey.refused)
    for change in observed(survey.refused, ()):
        yield finding(Code.CHANGE_REFUSED, change.object, words=change.words)


# ------------------------------------------------------------------------------------------------ room


def _quotas(survey: Survey, demand: ControllersDemand, limits: tuple[Limit, ...]) -> Iterator[FindingStatus]:
    if isinstance(survey.quotas, Unobserved):
        yield finding(Code.QUOTAS_UNKNOWN, "controllers", reason=survey.quotas)
    wanted = _wanted(demand)
    beside = _counted([_defaulted(pod, limits) for pod in survey.verification])
    for quota in observed(survey.quotas, ()):
        name = f"ResourceQuota/{quota.name}"
        for resource, left in sorted(quota.left.items()):
            needed = wanted.get(resource, 0)
            more = beside.get(resource, 0)
            if needed is None:
                yield finding(Code.QUOTA_NEEDS_REQUESTS, name, resource=resource)
            elif needed > left:
                yield finding(
                    Code.QUOTA_TOO_SMALL,
                    name,
                    resource=resource,
                    pods=demand.pods,
                    needed=shown(resource, needed),
                    left=shown(resource, left),
                )
            elif more is None or needed + more > left:
                yield finding(
                    Code.NO_QUOTA_FOR_VERIFICATION,
                    name,
                    resource=resource,
                    needed="what its pods do not state" if more is None else shown(resource, more),
                    left=shown(resource, left - needed),
                )


def _wanted(demand: ControllersDemand) -> Mapping[str, int | None]:
    """Return the amount that a quota counts for the controllers; None if a container does not state it."""
    of_starters = _counted(demand.init_containers)
    amounts: dict[str, int | None] = {
        "persistentvolumeclaims": demand.pods,
        "count/persistentvolumeclaims": demand.pods,
        "requests.storage": demand.storage_bytes * demand.pods,
        "count/statefulsets.apps": 1,
        "services": 1,
        "count/services": 1,
    }
    for name, amount in _counted(demand.containers).items():
        amounts[name] = None if None in (amount, of_starters[name]) else (amount or 0) * demand.pods
    return amounts | {"pods": demand.pods, "count/pods": demand.pods}


def _counted(pods: Sequence[Demand]) -> Mapping[str, int | None]:
    """Return the amount that a quota counts for pods of one container each; None if one does not state it."""
    cpu = _total(pods, "cpu_request")
    memory = _total(pods, "memory_request")
    return {
        "cpu": cpu,
        "requests.cpu": cpu,
        "memory": memory,
        "requests.memory": memory,
        "limits.cpu": _total(pods, "cpu_limit"),
        "limits.memory": _total(pods, "memory_limit"),
        "pods": len(pods),
        "count/pods": len(pods),
    }


def _total(pods: Sequence[Demand], part: str) -> int | None:
    if any(getattr(pod, part) is None for pod in pods):
        return None
    return _sum(pods, part)


def _sum(containers: Sequence[Demand], part: str) -> int:
    return sum(getattr(container, part) or 0 for container in containers)


def _defaulted(container: Demand, limits: tuple[Limit, ...]) -> Demand:
    """Return a container as the LimitRanger admission plugin completes it: limits first, requests default to limits."""
    defaults: dict[str, int] = {}
    requests: dict[str, int] = {}
    # The first limit that has a default counts.
    for limit in reversed(limits):
        if limit.kind == "Container":
            defaults |= limit.default
            requests |= limit.default_request

    def first(*amounts: int | None) -> int | None:
        return next((amount for amount in amounts if amount is not None), None)

    cpu = (container.cpu_limit, requests.get("cpu"), defaults.get("cpu"))
    memory = (container.memory_limit, requests.get("memory"), defaults.get("memory"))
    return Demand(
        container.name,
        first(container.cpu_request, *cpu),
        first(container.memory_request, *memory),
        first(container.cpu_limit, defaults.get("cpu")),
        first(container.memory_limit, defaults.get("memory")),
    )


def _limits(survey: Survey, demand: ControllersDemand) -> Iterator[FindingStatus]:
    if isinstance(survey.limits, Unobserved):
        yield finding(Code.LIMITS_UNKNOWN, "controllers", reason=survey.limits)
    limits = observed(survey.limits, ())
    for limit in limits:
        name = f"LimitRange/{limit.name}"
        for words in _violations(limit, (*demand.containers, *demand.init_containers), demand):
            yield finding(Code.LIMIT_RANGE_REFUSES, name, pods="the controllers", violation=words)
        for pod in survey.verification:
            for words in _violations(limit, (_defaulted(pod, limits),), None):
                yield finding(Code.LIMIT_RANGE_REFUSES, name, pods="a verification", violation=words)


def _violations(limit: Limit, containers: Sequence[Demand], controllers: ControllersDemand | None) -> Iterator[str]:
    """Yield what a LimitRange would refuse.

    Parameters
    ----------
    containers
        Of one pod, completed by the LimitRange's own defaults.
    controllers
        The pods, if they are the controllers'; None for a pod without volumes.
    """
    if limit.kind == "Container":
        for container in containers:
            name = f"container {container.name}"
            yield from _beyond(limit, name, "cpu", container.cpu_request, container.cpu_limit)
            yield from _beyond(limit, name, "memory", container.memory_request, container.memory_limit)
    elif limit.kind == "Pod":
        together = containers if controllers is None else controllers.containers
        for resource in ("cpu", "memory"):
            request = _sum(together, f"{resource}_request")
            yield from _beyond(limit, "pod", resource, request, _sum(together, f"{resource}_limit"))
    elif limit.kind == "PersistentVolumeClaim" and controllers is not None:
        yield from _beyond(limit, "volume", "storage", controllers.storage_bytes, controllers.storage_bytes)


def _beyond(limit: Limit, subject: str, resource: str, request: int | None, most: int | None) -> Iterator[str]:
    lowest = limit.minimum.get(resource, -1)
    highest = limit.maximum.get(resource, math.inf)
    if resource in limit.default and (request or 0) > _stated(most, math.inf):
        yield (
            f"{subject} requests {shown(resource, request or 0)} {resource}, "
            f"and its limit by default is {shown(resource, most or 0)}"
        )
    if _stated(request, -1) < lowest:
        yield f"{subject} requests {shown(resource, request or 0)} {resource}, the minimum is {shown(resource, lowest)}"
    if _stated(most, math.inf) > highest:
        stated = "no limit of" if most is None else f"up to {shown(resource, most)}"
        yield f"{subject} states {stated} {resource}, the maximum is {shown(resource, limit.maximum[resource])}"


def _stated(amount: int | None, otherwise: float) -> float:
    return otherwise if amount is None else amount


def _room(draft: Draft, survey: Survey, demand: ControllersDemand) -> Iterator[FindingStatus]:
    capacity = survey.capacity
    if isinstance(capacity, Unobserved):
        yield finding(Code.CAPACITY_UNKNOWN, "controllers", reason=capacity)
        return
    pod = Demand("controller", _sum(demand.containers, "cpu_request"), _sum(demand.containers, "memory_request"), 0, 0)
    eligible = _eligible(capacity, demand.node_selector, demand.tolerations)
    fitting = sum(_fitting(room, pod, apart=demand.apart) for room in eligible)
    if fitting < demand.pods:
        apart = ", each on a node of its own" if demand.apart else ""
        yield finding(
            Code.NO_ROOM_FOR_CONTROLLERS,
            "controllers",
            fitting=fitting,
            pods=demand.pods,
            demand=f"{_requests(pod)} each{apart}",
            eligible=len(eligible),
            nodes=len(capacity.rooms),
        )
    elif waiting := _without_room(capacity, demand, pod, survey.verification, _of_verification(draft.spec)):
        yield finding(
            Code.NO_ROOM_FOR_VERIFICATION,
            "verification",
            controllers=demand.pods,
            waiting=len(waiting),
            pods=len(survey.verification),
            demand=", ".join(f"{pod.name} {_requests(pod)}" for pod in waiting),
        )
    if not capacity.all_pods_seen:
        yield finding(Code.CAPACITY_PARTLY_KNOWN, "controllers", nodes=len(capacity.rooms))


def _requests(pod: Demand) -> str:
    cpu, memory = _asked(pod)
    return f"{shown('cpu', cpu)} CPU, {shown('memory', memory)} memory"


def _asked(pod: Demand) -> tuple[int, int]:
    """Return the CPU and the memory that a pod takes on a node."""
    return pod.cpu_request or 0, pod.memory_request or 0


def _without_room(
    capacity: Capacity,
    demand: ControllersDemand,
    controller: Demand,
    pods: tuple[Demand, ...],
    placement: Placement,
) -> list[Demand]:
    """Return the pods of a verification that fit on no node once the controllers are placed.

    Each pod is placed on the node with the most free CPU, as the scheduler's default scoring does
    (``NodeResourcesFit``, ``LeastAllocated``).
    """
    left = {room.node: [room.cpu, room.memory, room.pods] for room in capacity.rooms}

    def place(rooms: list[Room], pod: Demand) -> Room | None:
        asked = (*_asked(pod), 1)
        fitting = [room for room in rooms if all(map(operator.ge, left[room.node], asked))]
        chosen = max(fitting, key=lambda room: left[room.node][0], default=None)
        if chosen is not None:
            left[chosen.node] = list(map(operator.sub, left[chosen.node], asked))
        return chosen

    rooms = _eligible(capacity, demand.node_selector, demand.tolerations)
    for _ in range(demand.pods):
        chosen = place(rooms, controller)
        if demand.apart and chosen is not None:
            rooms.remove(chosen)
    rooms = _eligible(capacity, placement.node_selector, placement.tolerations)
    return [pod for pod in pods if place(rooms, pod) is None]


def _of_verification(spec: MigrationSpec) -> Placement:
    own = spec.verification
    return Placement(
        node_selector=own.node_selector or spec.pods.node_selector, tolerations=own.tolerations or spec.pods.tolerations
    )


def _eligible(
    capacity: Capacity, node_selector: Mapping[str, str], tolerations: Sequence[Mapping[str, str]]
) -> list[Room]:
    """Return the nodes to which a pod with this selector and these tolerations may go."""

    def tolerated(taint: Mapping[str, str]) -> bool:
        return any(_tolerates(toleration, taint) for toleration in tolerations)

    selected = [room for room in capacity.rooms if room.usable and node_selector.items() <= room.labels.items()]
    return [room for room in selected if all(map(tolerated, room.taints))]


def _tolerates(toleration: Mapping[str, str], taint: Mapping[str, str]) -> bool:
    """Return whether a toleration matches a taint (``k8s.io/api/core/v1`` ``Toleration.ToleratesTaint``)."""
    key = toleration.get("key")
    if toleration.get("effect") not in (None, "", taint.get("effect")) or key not in (None, "", taint.get("key")):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(key) and toleration.get("value", "") == taint.get("value", "")


def _fitting(room: Room, pod: Demand, *, apart: bool) -> int:
    bounds = [room.pods]
    if pod.cpu_request:
        bounds.append(room.cpu // pod.cpu_request)
    if pod.memory_request:
        bounds.append(room.memory // pod.memory_request)
    if apart:
        bounds.append(1)
    return max(min(bounds), 0)


_BYTES: Final = {"Gi": 2**30, "Mi": 2**20, "Ki": 2**10}


def shown(resource: str, amount: int) -> str:
    """Return an amount of a resource in the notation of manifests: ``500m``, ``2Gi``, ``3``."""
    if resource.rpartition(".")[2] == "cpu":
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    if "memory" in resource or "storage" in resource:
        for unit, size in _BYTES.items():
            if amount and amount % size == 0:
                return f"{amount // size}{unit}"
    return str(amount)
