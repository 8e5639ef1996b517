"""Keeps the original state of the user's StatefulSets in two Secrets, each written anew from the other when it is lost.

Without it, no overlay can be rendered and nothing can be restored, and one deletion by hand must not take the way back.
The status names the digest of each record, so that a Secret of another resource or from
another time is not taken for it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final

from kraftbridge.builders import names
from kraftbridge.builders.template import ContainerEnvironment
from kraftbridge.models.mounted_files import FilesKind, MountedFiles
from kraftbridge.models.objects import section
from kraftbridge.models.observation import RecordedOriginal
from kraftbridge.models.status import MigrationStatus, before_secrets
from kraftbridge.outside.json_text import parsed_json
from kraftbridge.phases.draft import Identity
from kraftbridge.services.original_state import OriginalState
from kraftbridge.storage.ports import KubernetesPort, Object, ReadPort

_SALT_BYTES: Final = 16
"""A record may hold values behind references to Secrets, and the status shows its digest.
Without a salt such a value could be guessed."""


@dataclass(frozen=True, slots=True)
class KeptOriginal:
    """The recorded original state of one StatefulSet."""

    original: OriginalState
    record: RecordedOriginal
    value: bytes


def read(kubernetes: ReadPort, identity: Identity, status: MigrationStatus) -> dict[str, KeptOriginal]:
    """Return the recorded states by StatefulSet.

    A value counts if it has the digest in the status.
    Before the status names one, it counts if it belongs to this attempt,
    and the two Secrets do not contradict each other.

    Raises
    ------
    ObservationError
        A Secret cannot be read.
    """
    both = [_data(_secret(kubernetes, identity, name)) for name in _names(identity, status)]
    digests = {o.stateful_set: o.digest for o in status.originals}
    originals = {}
    for stateful_set in sorted(set(both[0]) | set(both[1])):
        values = [data.get(stateful_set, b"") for data in both]
        value = _genuine(identity, status, stateful_set, values, digests.get(stateful_set, ""))
        if value:
            record = RecordedOriginal(_digest(value), complete=set(values) == {value})
            originals[stateful_set] = KeptOriginal(_decode(parsed_json(value)), record, value)
    return originals


def record(
    kubernetes: KubernetesPort, identity: Identity, status: MigrationStatus, stateful_set: str, original: OriginalState
) -> None:
    """Record a StatefulSet's original state in both Secrets if it is not recorded yet.

    Raises
    ------
    ConflictError
        A Secret changed at the same time; try again.
    """
    if not keep(kubernetes, identity, status, stateful_set):
        value = _encode(identity, status, stateful_set, original)
        for name in _names(identity, status):
            _write(kubernetes, identity, name, stateful_set, value)


def keep(kubernetes: KubernetesPort, identity: Identity, status: MigrationStatus, stateful_set: str) -> bool:
    """Write a recorded state into the Secret that lacks it; return False if it is in neither.

    Raises
    ------
    ConflictError
        A Secret changed at the same time; try again.
    """
    kept = read(kubernetes, identity, status).get(stateful_set)
    if kept is None:
        return False
    for name in reversed(_names(identity, status)):
        _write(kubernetes, identity, name, stateful_set, kept.value)
    return True


def _names(identity: Identity, status: MigrationStatus) -> tuple[str, str]:
    return before_secrets(identity.name, identity.uid, status.attempt)


def _secret(kubernetes: ReadPort, identity: Identity, name: str) -> Object | None:
    return kubernetes.get("v1", "Secret", identity.namespace, name)


def _data(secret: Object | None) -> dict[str, bytes]:
    """Return the values of a Secret; a value that is not base64 is left out."""
    values = {}
    for name, value in section(secret, "data").items():
        with suppress(binascii.Error):
            values[name] = base64.b64decode(value)
    return values


def _write(kubernetes: KubernetesPort, identity: Identity, name: str, stateful_set: str, value: bytes) -> None:
    secret = _secret(kubernetes, identity, name)
    data = {stateful_set: base64.b64encode(value).decode()}
    if secret is None:
        metadata = {"name": name, "namespace": identity.namespace, "labels": names.labels(identity.name)}
        kubernetes.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})
    elif _data(secret).get(stateful_set) != value:
        version = secret["metadata"]["resourceVersion"]
        kubernetes.merge_patch("v1", "Secret", identity.namespace, name, {"data": data}, resource_version=version)


def _genuine(identity: Identity, status: MigrationStatus, stateful_set: str, values: list[bytes], digest: str) -> bytes:
    """Return the value that is the recorded one, empty if none is."""
    if digest:
        return next((v for v in values if _digest(v) == digest), b"")
    own = _owner(identity, status, stateful_set)
    records = {value: _parsed(value) for value in values}
    genuine = [value for value, raw in records.items() if raw is not None and raw.get("of") == own]
    return genuine[0] if len(genuine) == 1 else b""


def _digest(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()


def _owner(identity: Identity, status: MigrationStatus, stateful_set: str) -> dict[str, Any]:
    return {"uid": identity.uid, "attempt": status.attempt, "statefulSet": stateful_set}


def _encode(identity: Identity, status: MigrationStatus, stateful_set: str, original: OriginalState) -> bytes:
    raw = {
        "of": _owner(identity, status, stateful_set),
        "salt": secrets.token_hex(_SALT_BYTES),
        "container": original.container,
        "volumes": original.volumes,
        "updateStrategy": original.update_strategy,
        "managedFields": original.managed_fields,
        "propertiesText": original.properties_text,
        "files": original.files and asdict(original.files),
        "environment": asdict(original.environment),
        "initContainers": original.init_containers,
    }
    return json.dumps(raw, default=_encoded).encode()


def _encoded(value: object) -> object:
    return sorted(value) if isinstance(value, frozenset) else str(value)


def _parsed(value: bytes) -> Mapping[str, Any] | None:
    """Return a record; None if the value is none, as when somebody has cut it."""
    try:
        raw: Mapping[str, Any] = parsed_json(value)
        _decode(raw)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return raw


def _decode(raw: Mapping[str, Any]) -> OriginalState:
    files = None
    if (raw_files := raw.get("files")) is not None:
        files = MountedFiles(**{**raw_files, "kind": FilesKind(raw_files["kind"])})
    return OriginalState(
        raw["container"],
        tuple(raw["volumes"]),
        raw["updateStrategy"],
        tuple(raw["managedFields"]),
        raw["propertiesText"],
        files,
        _decode_environment(raw["environment"]),
        tuple(raw.get("initContainers", ())),
    )


def _decode_environment(raw: Mapping[str, Any]) -> ContainerEnvironment:
    return ContainerEnvironment(
        values=dict(raw["values"]),
        **{name: frozenset(raw[name]) for name in ("unknown", "references", "secret", "inherited")},
    )
