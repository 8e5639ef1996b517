"""Findings about the Kubernetes cluster: rights, room and storage for the controllers, budgets, other writers. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from kraftbridge.models.observation import Unobserved
from kraftbridge.models.quantities import shown
from kraftbridge.models.status import FindingStatus, Severity
from kraftbridge.models.survey import Capacity, ControllersDemand, Demand, Limit, Room, Survey
from kraftbridge.phases.draft import Draft
from kraftbridge.phases.preflight.finding import block, finding, some

OTHER_WRITER = "owner "
"""How an entry of `Survey.writers` begins when a controller owns the StatefulSet."""


def findings(draft: Draft, survey: Survey) -> Iterator[FindingStatus]:
    """Return what Kubernetes would refuse or keep waiting."""
    yield from _rights(survey)
    yield from _storage(draft, survey)
    yield from _budgets(survey)
    yield from _writers(survey)
    if isinstance(survey.demand, Unobserved):
        yield block(
            "CapacityUnknown", "controllers", str(survey.demand), "Correct spec.controllers, or accept this finding"
        )
        return
    limits = () if isinstance(survey.limits, Unobserved) else survey.limits
    demand = replace(survey.demand, containers=tuple(_defaulted(c, limits) for c in survey.demand.containers))
    yield from _quotas(survey, demand, limits)
    yield from _limits(survey, demand)
    yield from _room(survey, demand)


def _rights(survey: Survey) -> Iterator[FindingStatus]:
    if isinstance(survey.missing_rights, Unobserved):
        yield block(
            "RightsUnknown",
            "operator",
            str(survey.missing_rights),
            "Let the operator ask the API server for its own rights (SelfSubjectAccessReview)",
        )
        return
    if survey.missing_rights:
        yield block(
            "RightMissing",
            "operator",
            f"The operator's service account may not: {some(survey.missing_rights, 20)}",
            "Install the chart with rbac.create=true, or grant these rights in the migration's namespace",
        )


def _storage(draft: Draft, survey: Survey) -> Iterator[FindingStatus]:
    classes, wanted = survey.storage_classes, draft.spec.controllers.storage.storage_class_name
    if isinstance(classes, Unobserved):
        yield block(
            "StorageClassesUnknown",
            "controllers",
            str(classes),
            "Let the operator list storageclasses.storage.k8s.io, or accept this finding",
        )
    elif wanted is not None and wanted not in {c.name for c in classes}:
        yield block(
            "StorageClassMissing",
            f"StorageClass/{wanted}",
            f"There is no StorageClass {wanted}; there are {some((c.name for c in classes), 10) or 'none'}",
            "Set spec.controllers.storage.storageClassName to an existing one",
        )
    elif wanted is None and not any(c.default for c in classes):
        yield block(
            "NoDefaultStorageClass",
            "controllers",
            f"No StorageClass is the default one; there are {some((c.name for c in classes), 10) or 'none'}",
            "Set spec.controllers.storage.storageClassName, or accept this finding where volumes are bound by hand",
        )


def _budgets(survey: Survey) -> Iterator[FindingStatus]:
    if isinstance(survey.budgets, Unobserved):
        yield block(
            "BudgetsUnknown",
            "brokers",
            str(survey.budgets),
            "Let the operator list poddisruptionbudgets.policy, or accept this finding",
        )
        return
    for name in sorted({b.stateful_set for b in survey.budgets}):
        mine = [b for b in survey.budgets if b.stateful_set == name]
        if len(mine) > 1:
            yield block(
                "SeveralDisruptionBudgets",
                f"StatefulSet/{name}",
                f"PodDisruptionBudgets {some(b.name for b in mine)} select the same pods; the API server then refuses every eviction",
                "Leave one of them",
            )
    for budget in survey.budgets:
        if not budget.up_to_date:
            yield block(
                "BudgetsUnknown",
                f"PodDisruptionBudget/{budget.name}",
                "Its controller has not looked at its newest version yet",
                "Wait; if it lasts, look at its conditions",
            )
        elif budget.disruptions_allowed == 0 and budget.healthy_pods >= budget.expected_pods:
            yield block(
                "DisruptionBudgetForbidsAll",
                f"PodDisruptionBudget/{budget.name}",
                f"It allows no eviction although all {budget.expected_pods} pods are healthy ({budget.desired_healthy} must stay)",
                "Allow one: maxUnavailable: 1; restarts are evictions, one at a time",
            )


def _writers(survey: Survey) -> Iterator[FindingStatus]:
    if isinstance(survey.writers, Unobserved):
        yield block(
            "WritersUnknown",
            "brokers",
            str(survey.writers),
            "Let the operator read the brokers' StatefulSets",
        )
        return
    for name, writers in survey.writers.items():
        for writer in writers:
            if writer.startswith(OTHER_WRITER):
                yield block(
                    "OwnedByController",
                    f"StatefulSet/{name}",
                    f"It belongs to {writer.removeprefix(OTHER_WRITER)}, whose controller will put its own template back",
                    "Stop that controller for the time of the migration, then accept this finding",
                )
            else:
                yield finding(
                    Severity.WARNING,
                    "FieldsManagedByOthers",
                    f"StatefulSet/{name}",
                    f"It is also written by {writer}",
                    "Apply, upgrade and sync nothing meanwhile (Argo CD: switch selfHeal off; Flux: suspend); afterwards take the final manifest over into its source",
                )


# ------------------------------------------------------------------------------------------------ room


def _quotas(survey: Survey, demand: ControllersDemand, limits: tuple[Limit, ...]) -> Iterator[FindingStatus]:
    if isinstance(survey.quotas, Unobserved):
        yield block(
            "QuotasUnknown",
            "controllers",
            str(survey.quotas),
            "Let the operator list resourcequotas, or accept this finding",
        )
        return
    wanted = _wanted(demand)
    beside = _counted([_defaulted(pod, limits) for pod in survey.verification])
    for quota in survey.quotas:
        for resource, left in sorted(quota.left.items()):
            needed, more = wanted.get(resource, 0), beside.get(resource, 0)
            if needed is None:
                yield block(
                    "QuotaNeedsRequests",
                    f"ResourceQuota/{quota.name}",
                    f"It counts {resource}, which not every container of the controllers states: their pods would be refused",
                    "Set requests and limits in spec.controllers.resources, or a default in a LimitRange",
                )
            elif needed > left:
                yield block(
                    "QuotaTooSmall",
                    f"ResourceQuota/{quota.name}",
                    f"{resource}: the {demand.pods} controllers ask for {shown(resource, needed)}, {shown(resource, left)} is left",
                    "Raise the quota, or ask for less in spec.controllers",
                )
            elif more is None or needed + more > left:
                asked = "what its pods do not state" if more is None else shown(resource, more)
                yield block(
                    "NoQuotaForVerification",
                    f"ResourceQuota/{quota.name}",
                    f"{resource}: beside the controllers a verification needs {asked}, {shown(resource, left - needed)} is left",
                    "Raise the quota, ask for less in spec.verification, or give a default in a LimitRange",
                )


def _wanted(demand: ControllersDemand) -> Mapping[str, int | None]:
    """Return what a quota would count of the controllers; None where a container does not say."""
    of_one = _counted(demand.containers)
    return {name: None if value is None else value * demand.pods for name, value in of_one.items()} | {
        "pods": demand.pods, "count/pods": demand.pods,
        "persistentvolumeclaims": demand.pods, "count/persistentvolumeclaims": demand.pods,
        "requests.storage": demand.storage_bytes * demand.pods,
        "count/statefulsets.apps": 1, "services": 1, "count/services": 1,
    }  # fmt: skip


def _counted(parts: Sequence[Demand]) -> Mapping[str, int | None]:
    """Return what a quota would count of pods of one container each; None where one does not say."""

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
        yield block(
            "LimitsUnknown",
            "controllers",
            str(survey.limits),
            "Let the operator list limitranges, or accept this finding",
        )
        return
    for limit in survey.limits:
        for words in _violations(limit, demand):
            yield block(
                "LimitRangeRefuses",
                f"LimitRange/{limit.name}",
                f"It would refuse the controllers: {words}",
                "Change spec.controllers.resources or spec.controllers.storage.size, or the LimitRange",
            )


def _violations(limit: Limit, demand: ControllersDemand) -> Iterator[str]:
    asked: list[tuple[str, str, int | None, int | None]]
    if limit.kind == "PersistentVolumeClaim":
        asked = [("volume", "storage", demand.storage_bytes, demand.storage_bytes)]
    elif limit.kind == "Container":
        asked = [
            (f"container {c.name}", r, getattr(c, f"{r}_request"), getattr(c, f"{r}_limit"))
            for c in demand.containers
            for r in ("cpu", "memory")
        ]
    else:
        sums = {
            part: sum(getattr(c, part) or 0 for c in demand.containers)
            for part in ("cpu_request", "memory_request", "cpu_limit", "memory_limit")
        }
        asked = [("pod", r, sums[f"{r}_request"], sums[f"{r}_limit"]) for r in ("cpu", "memory")]
    for what, resource, request, most in asked:
        if resource in limit.minimum and (request is None or request < limit.minimum[resource]):
            yield f"{what} requests {shown(resource, request or 0)} {resource}, the minimum is {shown(resource, limit.minimum[resource])}"
        if resource in limit.maximum and (most is None or most > limit.maximum[resource]):
            stated = "no limit of" if most is None else f"up to {shown(resource, most)}"
            yield f"{what} states {stated} {resource}, the maximum is {shown(resource, limit.maximum[resource])}"


def _room(survey: Survey, demand: ControllersDemand) -> Iterator[FindingStatus]:
    capacity = survey.capacity
    if isinstance(capacity, Unobserved):
        yield block(
            "CapacityUnknown",
            "controllers",
            str(capacity),
            "Let the operator list nodes and pods, or accept this finding",
        )
        return
    cpu, memory = (sum(getattr(c, f"{r}_request") or 0 for c in demand.containers) for r in ("cpu", "memory"))
    eligible = [r for r in capacity.rooms if _may_go(r, demand)]
    fitting = sum(_fitting(r, cpu, memory, apart=demand.apart) for r in eligible)
    if fitting < demand.pods:
        yield block(
            "NoRoomForControllers",
            "controllers",
            f"{fitting} of {demand.pods} controllers find room ({shown('cpu', cpu)} CPU, {shown('memory', memory)} memory each"
            f"{', each on a node of its own' if demand.apart else ''}) on the {len(eligible)} of {len(capacity.rooms)} nodes that may take them",
            "Add nodes, ask for less in spec.controllers.resources or relax nodeSelector, tolerations and affinity; accept this finding where an autoscaler adds nodes",
        )
    elif waiting := _without_room(capacity, demand, cpu, memory, survey.verification):
        asked = ", ".join(
            f"{pod.name} {shown('cpu', pod.cpu_request or 0)} CPU, {shown('memory', pod.memory_request or 0)} memory"
            for pod in waiting
        )
        yield block(
            "NoRoomForVerification",
            "verification",
            f"Beside the {demand.pods} controllers {len(waiting)} of the {len(survey.verification)} pods of a verification find no room: {asked}",
            "Add nodes, or ask for less in spec.verification; accept this finding where an autoscaler adds nodes",
        )
    if not capacity.all_pods_seen:
        yield _partly(capacity)


def _without_room(
    capacity: Capacity, demand: ControllersDemand, cpu: int, memory: int, pods: tuple[Demand, ...]
) -> list[Demand]:
    """Return the pods of a verification that find no node once the controllers are placed.

    Each goes where most CPU is left, as the scheduler's default scoring spreads them (``NodeResourcesFit``, ``LeastAllocated``).
    """
    left = {r.node: [r.cpu, r.memory, r.pods] for r in capacity.rooms}

    def place(nodes: list[str], cpu: int, memory: int) -> str | None:
        fitting = [n for n in nodes if left[n][0] >= cpu and left[n][1] >= memory and left[n][2] >= 1]
        chosen = max(fitting, key=lambda n: left[n][0], default=None)
        if chosen is not None:
            left[chosen] = [left[chosen][0] - cpu, left[chosen][1] - memory, left[chosen][2] - 1]
        return chosen

    eligible = [r.node for r in capacity.rooms if _may_go(r, demand)]
    for _ in range(demand.pods):
        chosen = place(eligible, cpu, memory)
        eligible = [n for n in eligible if not (demand.apart and n == chosen)]
    open_to_all = [r.node for r in capacity.rooms if r.usable and not r.taints]
    return [pod for pod in pods if place(open_to_all, pod.cpu_request or 0, pod.memory_request or 0) is None]


def _partly(capacity: Capacity) -> FindingStatus:
    return finding(
        Severity.INFORMATION,
        "CapacityPartlyKnown",
        "controllers",
        f"The operator sees the pods of its own namespaces only: what others use of the {len(capacity.rooms)} nodes is not counted",
        "Nothing: a controller that finds no room waits before any broker is touched, and the status says so",
    )


def _may_go(room: Room, demand: ControllersDemand) -> bool:
    selected = demand.node_selector.items() <= room.labels.items()
    return (
        room.usable and selected and all(any(_tolerates(t, taint) for t in demand.tolerations) for taint in room.taints)
    )


def _tolerates(toleration: Mapping[str, str], taint: Mapping[str, str]) -> bool:
    """Whether a toleration matches a taint (``k8s.io/api/core/v1`` ``Toleration.ToleratesTaint``)."""
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
