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
