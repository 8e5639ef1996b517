"""Findings about the Kubernetes cluster: rights, capacity and storage for the controllers, disruption budgets, other writers. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kraftbridge.models.catalogue import Code
from kraftbridge.models.observation import Unobserved
from kraftbridge.models.spec import MigrationSpec, Placement
from kraftbridge.models.status import FindingStatus, finding, some
from kraftbridge.models.survey import Capacity, ControllersDemand, Demand, Limit, Room, Survey
from kraftbridge.phases.draft import Draft

OTHER_WRITER = "owner "
"""Prefix of an entry of `Survey.writers` if a controller owns the StatefulSet."""
CHART_WRITERS = ("Helm release ", "Flux HelmRelease ")
"""Prefixes of entries that name the release of a chart."""


def findings(draft: Draft, survey: Survey) -> Iterator[FindingStatus]:
    """Find objects that Kubernetes would refuse or leave pending."""
    yield from _rights(survey)
    yield from _storage(draft, survey)
    yield from _budgets(survey)
    yield from _writers(draft, survey)
    yield from _leftovers(survey)
    yield from _selecting(draft, survey)
    yield from _refused(survey)
    if isinstance(survey.demand, Unobserved):
        yield finding(Code.CAPACITY_UNKNOWN, "controllers", reason=survey.demand)
        return
    limits = () if isinstance(survey.limits, Unobserved) else survey.limits
    demand = replace(
        survey.demand,
        containers=tuple(_defaulted(c, limits) for c in survey.demand.containers),
        init_containers=tuple(_defaulted(c, limits) for c in survey.demand.init_containers),
    )
    yield from _quotas(survey, demand, limits)
    yield from _limits(survey, demand)
    yield from _room(draft, survey, demand)


def _rights(survey: Survey) -> Iterator[FindingStatus]:
    if isinstance(survey.missing_rights, Unobserved):
        yield finding(Code.RIGHTS_UNKNOWN, "operator", reason=survey.missing_rights)
        return
    if survey.missing_rights:
        yield finding(Code.RIGHT_MISSING, "operator", rights=some(survey.missing_rights, 20))


def _storage(draft: Draft, survey: Survey) -> Iterator[FindingStatus]:
    classes, wanted = survey.storage_classes, draft.spec.controllers.storage.storage_class_name
    if isinstance(classes, Unobserved):
        yield finding(Code.STORAGE_CLASSES_UNKNOWN, "controllers", reason=classes)
    elif wanted is not None and wanted not in {c.name for c in classes}:
        yield finding(
            Code.STORAGE_CLASS_MISSING,
            f"StorageClass/{wanted}",
            wanted=wanted,
            classes=some((c.name for c in classes), 10) or "none",
        )
    elif wanted is None and not any(c.default for c in classes):
        yield finding(
            Code.NO_DEFAULT_STORAGE_CLASS, "controllers", classes=some((c.name for c in classes), 10) or "none"
        )


def _budgets(survey: Survey) -> Iterator[FindingStatus]:
    if isinstance(survey.budgets, Unobserved):
        yield finding(Code.BUDGETS_UNKNOWN, "brokers", reason=survey.budgets)
        return
    for name in sorted({b.stateful_set for b in survey.budgets}):
        mine = [b for b in survey.budgets if b.stateful_set == name]
        if len(mine) > 1:
            yield finding(Code.SEVERAL_DISRUPTION_BUDGETS, f"StatefulSet/{name}", budgets=some(b.name for b in mine))
    for budget in survey.budgets:
        if not budget.up_to_date:
            yield finding(
                Code.BUDGETS_UNKNOWN,
                f"PodDisruptionBudget/{budget.name}",
                reason="its controller has not observed its newest version yet",
            )
        elif budget.disruptions_allowed == 0 and budget.healthy_pods >= budget.expected_pods:
            yield finding(
                Code.DISRUPTION_BUDGET_FORBIDS_ALL,
                f"PodDisruptionBudget/{budget.name}",
                pods=budget.expected_pods,
                desired=budget.desired_healthy,
            )


def _writers(draft: Draft, survey: Survey) -> Iterator[FindingStatus]:
    if isinstance(survey.writers, Unobserved):
        yield finding(Code.WRITERS_UNKNOWN, "brokers", reason=survey.writers)
        return
    sets = draft.stateful_sets()
    issued = {} if isinstance(sets, Unobserved) else {s.name: s.issued_secret for s in sets if s.issued_secret}
    for name, writers in survey.writers.items():
        releases = [w for w in writers if w.startswith(CHART_WRITERS)]
        if releases and name in issued:
            yield finding(
                Code.VOLUME_NEEDED_IN_RELEASE, f"StatefulSet/{name}", secret=issued[name], release=releases[0]
            )
        for writer in writers:
            if writer.startswith(OTHER_WRITER):
                yield finding(Code.OWNED_BY_CONTROLLER, f"StatefulSet/{name}", owner=writer.removeprefix(OTHER_WRITER))
        if others := [w for w in writers if not w.startswith(OTHER_WRITER)]:
            yield finding(Code.FIELDS_MANAGED_BY_OTHERS, f"StatefulSet/{name}", writers=", ".join(others))


def _leftovers(survey: Survey) -> Iterator[FindingStatus]:
    if isinstance(survey.leftovers, Unobserved):
        yield finding(Code.LEFTOVERS_UNKNOWN, "namespace", reason=survey.leftovers)
    elif survey.leftovers:
        yield finding(Code.LEFTOVERS_FOUND, "namespace", objects=some(survey.leftovers, 20))


def _selecting(draft: Draft, survey: Survey) -> Iterator[FindingStatus]:
    if isinstance(survey.selecting, Unobserved):
        yield finding(Code.POD_LABELS_UNKNOWN, "pods", reason=survey.selecting)
        return
    for name in survey.selecting:
        yield finding(
            Code.POD_LABELS_SELECTED, name, labels=some(f"{k}={v}" for k, v in sorted(draft.spec.pods.labels.items()))
        )


def _refused(survey: Survey) -> Iterator[FindingStatus]:
    if isinstance(survey.refused, Unobserved):
        yield finding(Code.CHANGES_UNKNOWN, "brokers", reason=survey.refused)
        return
    for change in survey.refused:
        yield finding(Code.CHANGE_REFUSED, change.object, words=change.words)


# ------------------------------------------------------------------------------------------------ room


def _quotas(survey: Survey, demand: ControllersDemand, limits: tuple[Limit, ...]) -> Iterator[FindingStatus]:
    if isinstance(survey.quotas, Unobserved):
        yield finding(Code.QUOTAS_UNKNOWN, "controllers", reason=survey.quotas)
        return
    wanted = _wanted(demand)
    beside = _counted([_defaulted(pod, limits) for pod in survey.verification])
    for quota in survey.quotas:
        for resource, left in sorted(quota.left.items()):
            needed, more = wanted.get(resource, 0), beside.get(resource, 0)
            if needed is None:
                yield finding(Code.QUOTA_NEEDS_REQUESTS, f"ResourceQuota/{quota.name}", resource=resource)
            elif needed > left:
                yield finding(
                    Code.QUOTA_TOO_SMALL,
                    f"ResourceQuota/{quota.name}",
                    resource=resource,
                    pods=demand.pods,
                    needed=shown(resource, needed),
                    left=shown(resource, left),
                )
            elif more is None or needed + more > left:
                yield finding(
                    Code.NO_QUOTA_FOR_VERIFICATION,
                    f"ResourceQuota/{quota.name}",
                    resource=resource,
                    needed="what its pods do not state" if more is None else shown(resource, more),
                    left=shown(resource, left - needed),
                )


def _wanted(demand: ControllersDemand) -> Mapping[str, int | None]:
    """Return the amount that a quota counts for the controllers; None if a container does not state it."""
    of_one = _counted(demand.containers)
    of_starters = _counted(demand.init_containers)
    return {name: None if value is None or of_starters[name] is None else value * demand.pods for name, value in of_one.items()} | {
        "pods": demand.pods, "count/pods": demand.pods,
        "persistentvolumeclaims": demand.pods, "count/persistentvolumeclaims": demand.pods,
        "requests.storage": demand.storage_bytes * demand.pods,
        "count/statefulsets.apps": 1, "services": 1, "count/services": 1,
    }  # fmt: skip


def _counted(parts: Sequence[Demand]) -> Mapping[str, int | None]:
    """Return the amount that a quota counts for pods of one container each; None if one does not state it."""

    def total(each: Sequence[int | None]) -> int | None:
        stated = [value for value in each if value is not None]
        return None if len(stated) != len(each) else sum(stated)

    cpu, memory = total([p.cpu_request for p in parts]), total([p.memory_request for p in parts])
    return {
        "cpu": cpu, "requests.cpu": cpu, "memory": memory, "requests.memory": memory,
        "limits.cpu": total([p.cpu_limit for p in parts]), "limits.memory": total([p.memory_limit for p in parts]),
        "pods": len(parts), "count/pods": len(parts),
    }  # fmt: skip


def _defaulted(container: Demand, limits: tuple[Limit, ...]) -> Demand:
    """Return a container as the LimitRanger admission plugin completes it: limits first, requests default to limits."""
    of_containers = [limit for limit in limits if limit.kind == "Container"]

    def first(part: str, name: str) -> int | None:
        return next((getattr(e, part)[name] for e in of_containers if name in getattr(e, part)), None)

    values: dict[str, int | None] = {}
    for resource in ("cpu", "memory"):
        stated_limit, request = getattr(container, f"{resource}_limit"), getattr(container, f"{resource}_request")
        limit = stated_limit if stated_limit is not None else first("default", resource)
        if request is None:
            request = stated_limit if stated_limit is not None else first("default_request", resource)
            request = limit if request is None else request
        values |= {f"{resource}_limit": limit, f"{resource}_request": request}
    return Demand(container.name, values["cpu_request"], values["memory_request"], values["cpu_limit"], values["memory_limit"])  # fmt: skip


def _limits(survey: Survey, demand: ControllersDemand) -> Iterator[FindingStatus]:
    if isinstance(survey.limits, Unobserved):
        yield finding(Code.LIMITS_UNKNOWN, "controllers", reason=survey.limits)
        return
    for limit in survey.limits:
        for words in _violations(limit, (*demand.containers, *demand.init_containers), demand):
            yield finding(Code.LIMIT_RANGE_REFUSES, f"LimitRange/{limit.name}", pods="the controllers", violation=words)
        for pod in (_defaulted(p, survey.limits) for p in survey.verification):
            for words in _violations(limit, (pod,), None):
                yield finding(
                    Code.LIMIT_RANGE_REFUSES, f"LimitRange/{limit.name}", pods="a verification", violation=words
                )


def _violations(limit: Limit, containers: Sequence[Demand], controllers: ControllersDemand | None) -> Iterator[str]:
    """Yield what a LimitRange would refuse.

    Parameters
    ----------
    containers
        Of one pod, completed by the LimitRange's own defaults.
    controllers
        The pods, if they are the controllers'; None for a pod without volumes.
    """
    asked: list[tuple[str, str, int | None, int | None]] = []
    if limit.kind == "PersistentVolumeClaim" and controllers is not None:
        asked = [("volume", "storage", controllers.storage_bytes, controllers.storage_bytes)]
    elif limit.kind == "Container":
        asked = [
            (f"container {c.name}", r, getattr(c, f"{r}_request"), getattr(c, f"{r}_limit"))
            for c in containers
            for r in ("cpu", "memory")
        ]
    elif limit.kind == "Pod":
        together = containers if controllers is None else controllers.containers
        sums = {
            part: sum(getattr(c, part) or 0 for c in together)
            for part in ("cpu_request", "memory_request", "cpu_limit", "memory_limit")
        }
        asked = [("pod", r, sums[f"{r}_request"], sums[f"{r}_limit"]) for r in ("cpu", "memory")]
    for what, resource, request, most in asked:
        if resource in limit.default and request is not None and most is not None and request > most:
            yield f"{what} requests {shown(resource, request)} {resource}, and its limit by default is {shown(resource, most)}"
        if resource in limit.minimum and (request is None or request < limit.minimum[resource]):
            yield f"{what} requests {shown(resource, request or 0)} {resource}, the minimum is {shown(resource, limit.minimum[resource])}"
        if resource in limit.maximum and (most is None or most > limit.maximum[resource]):
            stated = "no limit of" if most is None else f"up to {shown(resource, most)}"
            yield f"{what} states {stated} {resource}, the maximum is {shown(resource, limit.maximum[resource])}"


def _room(draft: Draft, survey: Survey, demand: ControllersDemand) -> Iterator[FindingStatus]:
    capacity = survey.capacity
    if isinstance(capacity, Unobserved):
        yield finding(Code.CAPACITY_UNKNOWN, "controllers", reason=capacity)
        return
    cpu, memory = (sum(getattr(c, f"{r}_request") or 0 for c in demand.containers) for r in ("cpu", "memory"))
    eligible = [r for r in capacity.rooms if _may_go(r, demand.node_selector, demand.tolerations)]
    fitting = sum(_fitting(r, cpu, memory, apart=demand.apart) for r in eligible)
    if fitting < demand.pods:
        yield finding(
            Code.NO_ROOM_FOR_CONTROLLERS,
            "controllers",
            fitting=fitting,
            pods=demand.pods,
            demand=f"{shown('cpu', cpu)} CPU, {shown('memory', memory)} memory each{', each on a node of its own' if demand.apart else ''}",
            eligible=len(eligible),
            nodes=len(capacity.rooms),
        )
    elif waiting := _without_room(capacity, demand, cpu, memory, survey.verification, _of_verification(draft.spec)):
        asked = ", ".join(
            f"{pod.name} {shown('cpu', pod.cpu_request or 0)} CPU, {shown('memory', pod.memory_request or 0)} memory"
            for pod in waiting
        )
        yield finding(
            Code.NO_ROOM_FOR_VERIFICATION,
            "verification",
            controllers=demand.pods,
            waiting=len(waiting),
            pods=len(survey.verification),
            demand=asked,
        )
    if not capacity.all_pods_seen:
        yield _partly(capacity)


def _without_room(
    capacity: Capacity,
    demand: ControllersDemand,
    cpu: int,
    memory: int,
    pods: tuple[Demand, ...],
    placement: Placement,
) -> list[Demand]:
    """Return the pods of a verification that fit on no node once the controllers are placed.

    Each pod is placed on the node with the most free CPU, as the scheduler's default scoring does (``NodeResourcesFit``, ``LeastAllocated``).
    """
    left = {r.node: [r.cpu, r.memory, r.pods] for r in capacity.rooms}

    def place(nodes: list[str], cpu: int, memory: int) -> str | None:
        fitting = [n for n in nodes if left[n][0] >= cpu and left[n][1] >= memory and left[n][2] >= 1]
        chosen = max(fitting, key=lambda n: left[n][0], default=None)
        if chosen is not None:
            left[chosen] = [left[chosen][0] - cpu, left[chosen][1] - memory, left[chosen][2] - 1]
        return chosen

    eligible = [r.node for r in capacity.rooms if _may_go(r, demand.node_selector, demand.tolerations)]
    for _ in range(demand.pods):
        chosen = place(eligible, cpu, memory)
        eligible = [n for n in eligible if not (demand.apart and n == chosen)]
    nodes = [r.node for r in capacity.rooms if _may_go(r, placement.node_selector, placement.tolerations)]
    return [pod for pod in pods if place(nodes, pod.cpu_request or 0, pod.memory_request or 0) is None]


def _partly(capacity: Capacity) -> FindingStatus:
    return finding(Code.CAPACITY_PARTLY_KNOWN, "controllers", nodes=len(capacity.rooms))


def _of_verification(spec: MigrationSpec) -> Placement:
    own, pods = spec.verification, spec.pods
    return Placement(
        node_selector=own.node_selector or pods.node_selector, tolerations=own.tolerations or pods.tolerations
    )


def _may_go(room: Room, node_selector: Mapping[str, str], tolerations: Sequence[Mapping[str, str]]) -> bool:
    selected = node_selector.items() <= room.labels.items()
    return room.usable and selected and all(any(_tolerates(t, taint) for t in tolerations) for taint in room.taints)


def _tolerates(toleration: Mapping[str, str], taint: Mapping[str, str]) -> bool:
    """Return whether a toleration matches a taint (``k8s.io/api/core/v1`` ``Toleration.ToleratesTaint``)."""
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and toleration.get("value", "") == taint.get("value", "")


def _fitting(room: Room, cpu: int, memory: int, *, apart: bool) -> int:
    most = [room.pods, *(left // asked for left, asked in ((room.cpu, cpu), (room.memory, memory)) if asked)]
    return max(min([*most, 1] if apart else most), 0)


_BYTES: Final = {"Gi": 2**30, "Mi": 2**20, "Ki": 2**10}


def shown(resource: str, amount: int) -> str:
    """Return an amount of a resource in the notation of manifests: ``500m``, ``2Gi``, ``3``."""
    if resource == "cpu" or resource.endswith(".cpu"):
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    if "memory" in resource or "storage" in resource:
        for unit, size in _BYTES.items():
            if amount and amount % size == 0:
                return f"{amount // size}{unit}"
    return str(amount)
