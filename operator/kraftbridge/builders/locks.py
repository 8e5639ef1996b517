"""The Lease that excludes other operators and migrations from a StatefulSet (``coordination.k8s.io/v1``). Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from kraftbridge.builders import names
from kraftbridge.models.observation import LEASE_SECONDS

API_VERSION: Final = "coordination.k8s.io/v1"


def lease_name(stateful_set: str) -> str:
    """Return the name of a StatefulSet's Lease; the same for every operator, whatever its release is called."""
    return f"kraftbridge-{stateful_set}"


def holder_identity(lock: str, instance: str) -> str:
    """Return ``holderIdentity``: the migration and the operator's process."""
    return f"{lock} by {instance}"


def fresh_lease(namespace: str, stateful_set: str, migration: str, holder: str, now: datetime) -> dict[str, Any]:
    """Return a Lease as it is created."""
    meta = {"name": lease_name(stateful_set), "namespace": namespace, "labels": names.labels(migration)}
    return {
        "apiVersion": API_VERSION,
        "kind": "Lease",
        "metadata": meta,
        "spec": _spec(holder, now) | {"acquireTime": _time(now)},
    }


def renewed_spec(holder: str, now: datetime, *, before: dict[str, Any]) -> dict[str, Any]:
    """Return the ``spec`` of a Lease that is renewed, or taken over from the holder in ``before``."""
    spec = _spec(holder, now)
    if before.get("holderIdentity") == holder:
        return spec
    return spec | {"acquireTime": _time(now), "leaseTransitions": int(before.get("leaseTransitions") or 0) + 1}


def _spec(holder: str, now: datetime) -> dict[str, Any]:
    return {"holderIdentity": holder, "leaseDurationSeconds": int(LEASE_SECONDS), "renewTime": _time(now)}


def _time(now: datetime) -> str:
    """Return a ``metav1.MicroTime``."""
    return now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
