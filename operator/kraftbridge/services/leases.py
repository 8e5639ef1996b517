"""Leases (``coordination.k8s.io/v1``) that exclude other operators and migrations from the brokers' StatefulSets."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

from kraftbridge.builders import names
from kraftbridge.constants import ANNOTATION_TAKEN_OVER
from kraftbridge.exceptions import ActionError, ConflictError, MigrationError
from kraftbridge.models.objects import section
from kraftbridge.models.observation import LEASE_SECONDS, LeaseState
from kraftbridge.phases.draft import Identity
from kraftbridge.storage.ports import KubernetesPort

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


logger = logging.getLogger(__name__)


class Leases:
    """Reads, acquires, renews and releases Leases for one operator process.

    A Lease of another holder has expired if this process has not seen its ``renewTime`` change for the duration of the
    Lease. client-go's leader election does the same, so the clocks of two machines need not agree.
    """

    def __init__(
        self, kubernetes: KubernetesPort, instance: str, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._kubernetes = kubernetes
        self._instance = instance
        self._monotonic = monotonic
        self._renewals: dict[tuple[str, str], tuple[str, float]] = {}
        """By namespace and StatefulSet: the last renewal, and when it was first seen."""

    def look(self, identity: Identity, stateful_set: str) -> LeaseState:
        """Return the current Lease of a StatefulSet."""
        key = (identity.namespace, stateful_set)
        lease = self._kubernetes.get(API_VERSION, "Lease", identity.namespace, lease_name(stateful_set))
        if lease is None:
            self._renewals.pop(key, None)
            return LeaseState()
        spec = section(lease, "spec")
        holder = str(spec.get("holderIdentity") or "")
        renewal = f"{holder} {spec.get('renewTime')}"
        observed = self._renewals.get(key)
        ours = holder == holder_identity(identity.lock, self._instance)
        if observed is None or observed[0] != renewal:
            # Another process may be about to take over a Lease that this process did not renew itself. Renew it first.
            since = self._monotonic() - (LEASE_SECONDS if ours else 0.0)
            self._renewals[key] = observed = (renewal, since)
        age = self._monotonic() - observed[1]
        lasts = float(spec.get("leaseDurationSeconds") or LEASE_SECONDS)
        return LeaseState(
            holder,
            ours=ours,
            age_seconds=age,
            expired=age >= lasts,
            resource_version=lease["metadata"]["resourceVersion"],
        )

    def hold(self, identity: Identity, stateful_set: str, resource_version: str, now: datetime) -> None:
        """Acquire or renew a Lease at ``resource_version``; ``""`` if there is no Lease yet.

        Whoever takes a Lease over changes the version of its StatefulSet, too:
        the former holder may be frozen between comparing and writing, and gets a conflict then.

        Raises
        ------
        ConflictError
            Another process changed the Lease in the meantime.
        ActionError
            The StatefulSet could not be changed; until it can be, the Lease counts as one that nobody renewed.
        """
        namespace = identity.namespace
        name = lease_name(stateful_set)
        holder = holder_identity(identity.lock, self._instance)
        observed = self._renewals.get((namespace, stateful_set))
        is_kept = False
        if observed is not None:
            renewal, since = observed
            is_kept = renewal.startswith(f"{holder} ") and self._monotonic() - since < LEASE_SECONDS
        if not resource_version:
            held = self._kubernetes.create(fresh_lease(namespace, stateful_set, identity.name, holder, now))
        else:
            lease = self._kubernetes.get(API_VERSION, "Lease", namespace, name)
            if lease is None:
                raise ConflictError(f"Lease {namespace}/{name} is gone")
            spec = renewed_spec(holder, now, before=dict(section(lease, "spec")))
            held = self._kubernetes.merge_patch(
                API_VERSION, "Lease", namespace, name, {"spec": spec}, resource_version=resource_version
            )
        if resource_version and not is_kept:
            self._change_version(namespace, stateful_set, holder)
        self._renewals[namespace, stateful_set] = (f"{holder} {held['spec']['renewTime']}", self._monotonic())

    def _change_version(self, namespace: str, stateful_set: str, holder: str) -> None:
        """Change the resourceVersion of a StatefulSet, and leave nothing in it."""
        place = "apps/v1", "StatefulSet", namespace, stateful_set
        if self._kubernetes.get(*place) is None:
            return
        for value in (holder, None):
            self._kubernetes.merge_patch(*place, {"metadata": {"annotations": {ANNOTATION_TAKEN_OVER: value}}})

    def release(self, identity: Identity, stateful_set: str) -> None:
        """Release a Lease if this process holds it.

        Raises
        ------
        ConflictError
            Another process took it over in the meantime.
        """
        state = self.look(identity, stateful_set)
        if state.ours:
            name = lease_name(stateful_set)
            version = state.resource_version
            self._kubernetes.delete(API_VERSION, "Lease", identity.namespace, name, resource_version=version)
        self._renewals.pop((identity.namespace, stateful_set), None)

    def release_all(self) -> None:
        """Let every Lease of this process expire at once, so that a successor need not wait.

        A Lease that cannot be written expires by itself.
        """
        for namespace, stateful_set in list(self._renewals):
            with suppress(ActionError, MigrationError):
                lease = self._kubernetes.get(API_VERSION, "Lease", namespace, lease_name(stateful_set))
                holder = str(section(lease, "spec").get("holderIdentity", ""))
                if lease is None or not holder.endswith(f" by {self._instance}"):
                    continue
                patch = {"spec": {"holderIdentity": ""}}
                version = lease["metadata"]["resourceVersion"]
                name = lease_name(stateful_set)
                self._kubernetes.merge_patch(API_VERSION, "Lease", namespace, name, patch, resource_version=version)
        self._renewals.clear()
