"""Lets the migrations at rest go before ``helm uninstall`` removes the operator, and refuses while one moves.

Without an operator nobody removes the finalizer of a KafkaMigration, so its deletion, and that of its namespace or of
the CRD, would hang.
A running operator puts the finalizer back at once (``kopf`` keeps it on every resource that it handles).
So the operator is stopped first, and runs again if the uninstallation is refused after that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from kraftbridge.constants import API_VERSION, FINALIZER, KIND
from kraftbridge.exceptions import ConflictError, MigrationError
from kraftbridge.models import newer
from kraftbridge.models.objects import section
from kraftbridge.phases.machine import release_blocker
from kraftbridge.storage.ports import KubernetesPort

Object = dict[str, Any]
_LOOK_SECONDS: Final = 1.0
_TRIES: Final = 5
_REPLICAS: Final = 1
"""Replicas of the operator in the chart."""


class UninstallRefusedError(MigrationError):
    """The operator must not be removed now."""


@dataclass(frozen=True, slots=True)
class OperatorPlace:
    """The operator that is to be removed."""

    namespace: str
    """Namespace of the release."""
    deployment: str
    """Name of its Deployment."""
    pods: str
    """Label selector of its pods."""


def let_migrations_go(
    kubernetes: KubernetesPort,
    place: OperatorPlace,
    namespaces: Sequence[str],
    wait_seconds: float,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[str, ...]:
    """Stop the operator and remove its finalizer from every migration; return their names.

    Parameters
    ----------
    namespaces
        Namespaces that the operator serves; empty for all.
    wait_seconds
        How long the operator's pod may take to end.

    Raises
    ------
    UninstallRefusedError
        A migration moves, or the operator does not end. The operator runs, and no finalizer was removed.
    MigrationError
        The API server does not answer, or refuses.
    """
    _refuse_moving(_migrations(kubernetes, namespaces))
    _scale(kubernetes, place, 0)
    try:
        _wait_for_end(kubernetes, place, wait_seconds, sleep)
        # The operator may have entered a phase until it ended.
        resting = _migrations(kubernetes, namespaces)
        _refuse_moving(resting)
        return tuple(_name(item) for item in resting if _without_finalizer(kubernetes, item))
    except BaseException:
        _scale(kubernetes, place, _REPLICAS)
        raise


def _migrations(kubernetes: KubernetesPort, namespaces: Sequence[str]) -> tuple[Object, ...]:
    return tuple(
        item
        for namespace in (namespaces or (None,))
        for item in kubernetes.list(API_VERSION, KIND, namespace)
        if FINALIZER in item["metadata"].get("finalizers", ())
    )


def _name(migration: Object) -> str:
    return f"{migration['metadata']['namespace']}/{migration['metadata']['name']}"


def _refuse_moving(migrations: Sequence[Object]) -> None:
    refusals = list(_refusals(migrations))
    if refusals:
        raise UninstallRefusedError(
            "The operator is not uninstalled, because nobody would go on with what has begun:\n"
            + "\n".join(f"- KafkaMigration {words}" for words in refusals)
        )


def _refusals(migrations: Sequence[Object]) -> Iterator[str]:
    for migration in migrations:
        try:
            status = newer.read_status(section(migration, "status")).status
        except ValidationError:
            yield f"{_name(migration)}: its status is not understood. Upgrade the operator first"
            continue
        blocker = release_blocker(status)
        if blocker:
            yield f"{_name(migration)}: {blocker}"


def _scale(kubernetes: KubernetesPort, place: OperatorPlace, replicas: int) -> None:
    found = kubernetes.get("apps/v1", "Deployment", place.namespace, place.deployment)
    if found is None or found["spec"].get("replicas") == replicas:
        return
    patch = {"spec": {"replicas": replicas}}
    kubernetes.merge_patch("apps/v1", "Deployment", place.namespace, place.deployment, patch, subresource="scale")


def _wait_for_end(
    kubernetes: KubernetesPort, place: OperatorPlace, wait_seconds: float, sleep: Callable[[float], None]
) -> None:
    waited = 0.0
    while pods := kubernetes.list("v1", "Pod", place.namespace, place.pods):
        if waited >= wait_seconds:
            names = ", ".join(pod["metadata"]["name"] for pod in pods)
            raise UninstallRefusedError(
                f"The operator is not uninstalled: its pod {names} did not end within {wait_seconds:.0f} s, "
                "and would put the finalizers back. Find out why it does not end, and uninstall again"
            )
        sleep(_LOOK_SECONDS)
        waited += _LOOK_SECONDS


def _without_finalizer(kubernetes: KubernetesPort, migration: Object) -> bool:
    """Remove the finalizer, and no other; return whether the migration had it."""
    place = API_VERSION, KIND, migration["metadata"]["namespace"], migration["metadata"]["name"]
    present: Object | None = migration
    for _ in range(_TRIES):
        if present is None or FINALIZER not in present["metadata"].get("finalizers", ()):
            return False
        metadata = present["metadata"]
        left = [name for name in metadata["finalizers"] if name != FINALIZER]
        patch = {"metadata": {"finalizers": left}}
        try:
            kubernetes.merge_patch(*place, patch, resource_version=metadata["resourceVersion"])
        except ConflictError:
            present = kubernetes.get(*place)
        else:
            return True
    raise UninstallRefusedError(f"KafkaMigration {_name(migration)} changes all the time. Uninstall again")
