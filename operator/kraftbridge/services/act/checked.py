"""The API server as the acts of one step see it: a write happens only while what the step has decided on still holds.

Each write reads its object afresh, compares (`kraftbridge.phases.basis`),
and carries the object's UID and resourceVersion.
So a process that is frozen between comparison and write gets a conflict if anybody has touched the object meanwhile;
a conflict is read and compared again.
A write of the object's status, which changes its resourceVersion as well, costs one more try and stops nothing.

Notes
-----
Measured on Kubernetes 1.34.4: an apply that carries ``metadata.resourceVersion`` gets 409 for any other version,
one that carries ``metadata.uid`` besides also for an object that is gone (without it, the object is created anew);
neither becomes a managed field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from kraftbridge.constants import ANNOTATION_LOCK, API_VERSION, FIELD_MANAGER, KIND
from kraftbridge.exceptions import ActionError, ActionRefusedError, ConflictError, OvertakenError
from kraftbridge.models import newer
from kraftbridge.models.decision import Event
from kraftbridge.models.objects import entries, section
from kraftbridge.phases.basis import Basis, StatefulSetVersion, changed, intent, overtaken
from kraftbridge.phases.draft import Identity
from kraftbridge.services.leases import Leases
from kraftbridge.services.reads import ReadThrough
from kraftbridge.storage.ports import KubernetesPort, Object

_TRIES: Final = 20
"""Of a write whose object changes between reading and writing."""
_STATEFUL_SET: Final = ("apps/v1", "StatefulSet")
_T = TypeVar("_T")


def tried_again(write: Callable[[], _T], tries: int = _TRIES) -> _T:
    """Return the result of a write that reads its object first; a conflict begins it anew.

    Raises
    ------
    ConflictError
        The object changed at each try.
    """
    for _ in range(tries - 1):
        with suppress(ConflictError):
            return write()
    return write()


class CheckedKubernetes(ReadThrough):
    """Keeps to `kraftbridge.storage.ports.KubernetesPort`; reads pass through.

    Each write raises `OvertakenError`, and changes nothing, once another process has decided otherwise.

    Parameters
    ----------
    decided
        What the step has decided on. The step's own writes carry it on.
    """

    def __init__(self, kubernetes: KubernetesPort, leases: Leases, identity: Identity, decided: Basis) -> None:
        super().__init__(kubernetes)
        self._kubernetes = kubernetes
        self._leases = leases
        self._identity = identity
        self._decided = decided

    def check(self) -> None:
        """Compare, before an act outside Kubernetes.

        Raises
        ------
        OvertakenError
            What was decided on no longer holds.
        ObservationError
            The API server does not answer.
        """
        self._compare()

    def create(self, obj: Mapping[str, Any], *, field_manager: str = FIELD_MANAGER) -> Object:
        """Create an object, and take it back if the step was overtaken meanwhile."""
        self._compare()
        created = self._kubernetes.create(obj, field_manager=field_manager)
        self._take_back_if_overtaken(obj, created)
        return created

    def apply(self, obj: Mapping[str, Any], *, force: bool = False, field_manager: str = FIELD_MANAGER) -> Object:
        """Apply server-side what was read; what does not exist is taken back if the step was overtaken meanwhile."""
        metadata = obj["metadata"]

        def write(present: Object | None) -> Object:
            if present is not None:
                whole = {**obj, "metadata": {**metadata, **_version(present)}}
                return self._kubernetes.apply(whole, force=force, field_manager=field_manager)
            created = self._kubernetes.apply_new(obj, force=force, field_manager=field_manager)
            self._take_back_if_overtaken(obj, created)
            return created

        return self._write(obj["apiVersion"], obj["kind"], metadata.get("namespace"), metadata["name"], write)

    def apply_new(self, obj: Mapping[str, Any], *, force: bool = False, field_manager: str = FIELD_MANAGER) -> Object:
        """Apply server-side; `apply` tells itself whether the object exists."""
        return self.apply(obj, force=force, field_manager=field_manager)

    def merge_patch(
        self,
        api_version: str,
        kind: str,
        namespace: str | None,
        name: str,
        patch: Mapping[str, Any],
        *,
        resource_version: str | None = None,
        subresource: str | None = None,
        field_manager: str = FIELD_MANAGER,
    ) -> Object:
        """Apply a JSON merge patch to what was read, or to ``resource_version`` alone if it is given."""

        def write(present: Object | None) -> Object:
            version = _present_version(kind, name, present, resource_version)
            return self._kubernetes.merge_patch(
                api_version,
                kind,
                namespace,
                name,
                patch,
                resource_version=version,
                subresource=subresource,
                field_manager=field_manager,
            )

        return self._write(api_version, kind, namespace, name, write, once=resource_version is not None)

    def strategic_patch(
        self,
        api_version: str,
        kind: str,
        namespace: str | None,
        name: str,
        patch: Mapping[str, Any],
        *,
        field_manager: str,
        resource_version: str | None = None,
    ) -> Object:
        """Apply a strategic merge patch to what was read, or to ``resource_version`` alone if it is given."""

        def write(present: Object | None) -> Object:
            version = _present_version(kind, name, present, resource_version)
            return self._kubernetes.strategic_patch(
                api_version, kind, namespace, name, patch, field_manager=field_manager, resource_version=version
            )

        return self._write(api_version, kind, namespace, name, write, once=resource_version is not None)

    def replace_status(
        self, api_version: str, kind: str, namespace: str, name: str, status: Mapping[str, Any], resource_version: str
    ) -> Object:
        """Replace the whole status at exactly this resourceVersion."""
        self._compare()
        return self._kubernetes.replace_status(api_version, kind, namespace, name, status, resource_version)

    def delete(
        self,
        api_version: str,
        kind: str,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        propagation: str = "Background",
        grace_seconds: int | None = None,
        resource_version: str | None = None,
    ) -> None:
        """Delete an object of this UID at the version that was read.

        Without a UID its name alone says which it is, as that of a run does.
        """
        delete = partial(
            self._kubernetes.delete,
            api_version,
            kind,
            namespace,
            name,
            uid=uid,
            propagation=propagation,
            grace_seconds=grace_seconds,
        )
        if uid is None:
            self._compare()
            delete(resource_version=resource_version)
            return

        def write(present: Object | None) -> Object:
            if present is not None and present["metadata"]["uid"] == uid:
                delete(resource_version=resource_version or present["metadata"]["resourceVersion"])
            return {}

        self._write(api_version, kind, namespace, name, write, once=resource_version is not None)

    def evict(self, namespace: str, pod: str, uid: str, grace_seconds: int) -> None:
        """Evict exactly this pod. It carries no resourceVersion: the server charges the budget before it compares."""
        self._compare_owner(self._kubernetes.get("v1", "Pod", namespace, pod))
        self._compare()
        self._kubernetes.evict(namespace, pod, uid, grace_seconds)

    def create_event(self, regarding: Mapping[str, Any], event: Event) -> None:
        """Post an event about an object."""
        self._kubernetes.create_event(regarding, event)

    # ---------------------------------------------------------------------------------------- comparison

    def _write(
        self,
        api_version: str,
        kind: str,
        namespace: str | None,
        name: str,
        write: Callable[[Object | None], Object],
        *,
        once: bool = False,
    ) -> Object:
        """Read, compare, write at the version that was read, and carry what was decided on over to what was written."""
        is_stateful_set = (api_version, kind) == _STATEFUL_SET

        def attempt() -> Object:
            # The object is read first: whoever decides otherwise after the comparison changes the version that the
            # write carries.
            present = self._kubernetes.get(api_version, kind, namespace, name)
            if is_stateful_set:
                self._compare_stateful_set(name, present)
            elif kind == "Pod":
                self._compare_owner(present)
            self._compare()
            return write(present)

        written = attempt() if once else tried_again(attempt)
        if is_stateful_set:
            self._decided = self._decided.with_stateful_set(name, _stateful_set_version(written))
        return written

    def _compare(self) -> None:
        if why := overtaken(self._decided, self._present()):
            raise OvertakenError(why)

    def _compare_stateful_set(self, name: str, stateful_set: Object | None) -> None:
        if why := changed(self._decided, name, _stateful_set_version(stateful_set)):
            raise OvertakenError(why)

    def _compare_owner(self, pod: Object | None) -> None:
        """Compare the StatefulSet of a pod: its successor starts from whatever the template says then."""
        owners = frozenset(owner["uid"] for owner in entries(pod, "metadata", "ownerReferences"))
        name = self._decided.name_of(owners)
        if name:
            self._compare_stateful_set(name, self._kubernetes.get(*_STATEFUL_SET, self._identity.namespace, name))

    def _present(self) -> Basis:
        """Return the migration as it is now."""
        migration = self._kubernetes.get(API_VERSION, KIND, self._identity.namespace, self._identity.name)
        if migration is None:
            return Basis("", 0, ())
        return Basis(
            uid=migration["metadata"]["uid"],
            generation=migration["metadata"]["generation"],
            intent=_intent(migration),
            leases=frozenset(n for n in self._decided.leases if self._is_held(n)),
        )

    def _is_held(self, stateful_set: str) -> bool:
        lease = self._leases.look(self._identity, stateful_set)
        return lease.ours and not lease.expired

    def _take_back_if_overtaken(self, obj: Mapping[str, Any], created: Object) -> None:
        """Delete what this step has created if another process decided otherwise meanwhile.

        Creation alone has no version to carry.

        An edit of the spec is no reason: the same process decides on it next.
        Some kinds the operator has no right to delete; none of them runs anything.
        """
        present = self._present()
        why = overtaken(replace(self._decided, generation=present.generation), present)
        if not why:
            return
        metadata = obj["metadata"]
        with suppress(ActionRefusedError):
            self._kubernetes.delete(
                obj["apiVersion"],
                obj["kind"],
                metadata.get("namespace"),
                metadata["name"],
                uid=created["metadata"]["uid"],
            )
        raise OvertakenError(why)


def _intent(migration: Object) -> tuple[object, ...]:
    """Return what the status records; nothing if another release wrote one that this release does not know."""
    try:
        return intent(newer.known_status(section(migration, "status")))
    except ValidationError:
        return ()


def _version(present: Object) -> dict[str, str]:
    return {name: present["metadata"][name] for name in ("uid", "resourceVersion")}


def _present_version(kind: str, name: str, present: Object | None, resource_version: str | None) -> str:
    if present is None:
        raise ActionError(f"{kind} {name} does not exist")
    return resource_version or str(present["metadata"]["resourceVersion"])


def _stateful_set_version(stateful_set: Object | None) -> StatefulSetVersion | None:
    """Return what `kraftbridge.phases.basis` compares; None for one that does not exist."""
    if not stateful_set:
        return None
    metadata = stateful_set["metadata"]
    lock = section(metadata, "annotations").get(ANNOTATION_LOCK, "")
    return StatefulSetVersion(metadata["uid"], metadata.get("generation", 0), lock)
