"""What a migration needs in its namespace: the resources that its pods request, and the operator's rights.

The resources are read from the objects that builders make. The chart grants the rights (``tests/chart/test_rbac.py`` compares both).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from kubernetes.utils.quantity import parse_quantity

from kraftbridge.builders import controllers as quorum
from kraftbridge.builders.verification import JOB_MEMORY, heap_mebibytes, overhead_mebibytes
from kraftbridge.exceptions import ObservationError
from kraftbridge.models.phase import ControllerMode
from kraftbridge.models.spec import MigrationSpec, Runner
from kraftbridge.models.survey import ControllersDemand, Demand, Right


def controllers_demand(spec: MigrationSpec, facts: quorum.ControllersFacts) -> ControllersDemand:
    """Return the resources that the controllers' pods request.

    Raises
    ------
    ObservationError
        A quantity in ``spec.controllers`` cannot be parsed.
    """
    objects = quorum.controllers_objects(spec, facts, ControllerMode.MIGRATION, format_allowed=True)
    wanted = next(o["spec"] for o in objects if o["kind"] == "StatefulSet")
    pod = wanted["template"]["spec"]
    (claim,) = wanted["volumeClaimTemplates"]
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    try:
        return ControllersDemand(
            pods=wanted["replicas"],
            containers=tuple(_container_demand(c) for c in pod["containers"]),
            storage_bytes=whole("storage", claim["spec"]["resources"]["requests"]["storage"]),
            node_selector=pod["nodeSelector"],
            tolerations=tuple(pod["tolerations"]),
            apart=bool(((pod["affinity"] or {}).get("podAntiAffinity") or {}).get(required)),
        )
    except ValueError as e:
        raise ObservationError("spec.controllers", str(e)) from e


def run_demand(spec: MigrationSpec, runner: Runner) -> tuple[Demand, ...]:
    """Return the resources that the pods of one run request: driver and executors, or the Job's only pod.

    Spark sets heap and overhead (``overhead_mebibytes``) as request and limit of memory.
    """
    verification = spec.verification
    cpu = whole("cpu", verification.core_request)
    if runner is Runner.JOB:
        return (Demand("verifier", cpu, whole("memory", JOB_MEMORY), None, None),)

    def pod(name: str, heap: str, *, alone: bool = False) -> Demand:
        total = (heap_mebibytes(heap) + overhead_mebibytes(heap, alone=alone)) << 20
        return Demand(name, cpu, total, None, total)

    executors = (pod(f"executor {i}", verification.executor_memory) for i in range(1, verification.executors + 1))
    return (pod("driver", verification.driver_memory, alone=verification.executors == 0), *executors)


def _container_demand(container: dict[str, Any]) -> Demand:
    resources = container.get("resources") or {}
    requests, limits = wholes(resources.get("requests")), wholes(resources.get("limits"))
    return Demand(
        container["name"],
        requests.get("cpu", limits.get("cpu")),
        requests.get("memory", limits.get("memory")),
        limits.get("cpu"),
        limits.get("memory"),
    )


def whole(resource: str, text: object) -> int:
    """Return a quantity of a resource, rounded up: millicores for CPU, bytes or a count for all others.

    Raises
    ------
    ValueError
        ``text`` is not a quantity.
    """
    try:
        exact: Decimal = parse_quantity(text)
    except ValueError as e:
        raise ValueError(f"{text!r} is not a quantity") from e
    cpu = resource == "cpu" or resource.endswith(".cpu")
    return math.ceil(exact * (1000 if cpu else 1))


def wholes(resources: Mapping[str, Any] | None) -> dict[str, int]:
    """Return a resource list (``requests``, ``allocatable``, ``hard``) in whole numbers."""
    return {name: whole(name, text) for name, text in (resources or {}).items()}


_APPLY: Final = ("get", "create", "patch")
"""Server-side apply of an object that may not exist yet."""

_ALWAYS: Final[dict[tuple[str, str, str], tuple[str, ...]]] = {
    ("kraftbridge.dev", "kafkamigrations", "status"): ("patch",),
    ("apps", "statefulsets", ""): (*_APPLY, "list", "delete"),
    ("", "pods", ""): ("get", "list", "create", "patch", "delete"),
    ("", "pods", "eviction"): ("create",),
    ("", "pods", "log"): ("get",),
    ("", "services", ""): _APPLY,
    ("", "configmaps", ""): (*_APPLY, "list", "delete"),
    ("", "secrets", ""): _APPLY,
    ("", "persistentvolumeclaims", ""): ("get", "list", "create"),
    ("policy", "poddisruptionbudgets", ""): (*_APPLY, "list"),
    ("networking.k8s.io", "networkpolicies", ""): _APPLY,
    ("coordination.k8s.io", "leases", ""): ("get", "create", "patch", "delete"),
    ("events.k8s.io", "events", ""): ("create",),
    ("batch", "jobs", ""): ("get", "create", "delete"),
    ("rbac.authorization.k8s.io", "roles", ""): ("create", "delete"),
    ("rbac.authorization.k8s.io", "rolebindings", ""): ("create", "delete"),
}
_SPARK_OPERATOR: Final = ("sparkoperator.k8s.io", "sparkapplications", "")


def needed_rights(spec: MigrationSpec, *, spark_operator: bool) -> tuple[Right, ...]:
    """Return every right that a migration uses in its namespace."""
    spark = spark_operator and spec.verification.runner is Runner.SPARK_APPLICATION
    wanted = {**_ALWAYS, **({_SPARK_OPERATOR: ("get", "create", "delete")} if spark else {})}
    return tuple(
        Right(verb, group, resource, sub) for (group, resource, sub), verbs in wanted.items() for verb in verbs
    )
