"""Rights that the operator needs in a migration's namespace; the chart grants them (``tests/chart/test_rbac.py`` compares both)."""

from __future__ import annotations

from typing import Final

from kraftbridge.models.spec import MigrationSpec, Runner
from kraftbridge.models.survey import Right

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
    ("", "persistentvolumeclaims", ""): ("get", "list"),
    ("policy", "poddisruptionbudgets", ""): (*_APPLY, "list"),
    ("networking.k8s.io", "networkpolicies", ""): _APPLY,
    ("coordination.k8s.io", "leases", ""): ("get", "create", "patch", "delete"),
    ("events.k8s.io", "events", ""): ("create",),
    ("rbac.authorization.k8s.io", "roles", ""): ("create", "delete"),
    ("rbac.authorization.k8s.io", "rolebindings", ""): ("create", "delete"),
}
_RUNNERS: Final = {
    Runner.SPARK_APPLICATION: ("sparkoperator.k8s.io", "sparkapplications", ""),
    Runner.JOB: ("batch", "jobs", ""),
}


def needed_rights(spec: MigrationSpec, *, spark_operator: bool) -> tuple[Right, ...]:
    """Return every right that a migration uses in its namespace."""
    runner = spec.verification.runner if spark_operator else Runner.JOB
    runners = {runner, *([Runner.JOB] if spec.rehearsal.enabled else [])}
    wanted = {**_ALWAYS, **{_RUNNERS[each]: ("get", "create", "delete") for each in runners}}
    return tuple(
        Right(verb, group, resource, sub) for (group, resource, sub), verbs in wanted.items() for verb in verbs
    )
