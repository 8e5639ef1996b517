"""Keeps copies of the metadata log in Secrets, so that a quorum whose voters are all lost can be started again.

A copy is in one of two places, and the next one goes to the other:
a copy that is being written never replaces the last whole one.
It holds credentials, so it is in Secrets.
They go with the KafkaMigration.
"""

from __future__ import annotations

import base64
import hashlib
import io
from contextlib import closing
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import ValidationError
from typing_extensions import override

from kraftbridge.builders import names
from kraftbridge.constants import API_VERSION, GROUP, KIND
from kraftbridge.exceptions import ActionError, LogUnavailableError, ObservationError
from kraftbridge.metadata.log.archive import archive_log
from kraftbridge.metadata.log.scanning import log_end
from kraftbridge.models.decision import KeepCopy
from kraftbridge.models.objects import section
from kraftbridge.models.status import ControllersStatus, KeptCopy
from kraftbridge.phases.draft import Identity
from kraftbridge.services.clients import ClusterClients, log_access
from kraftbridge.storage.ports import KubernetesPort, Object, ReadPort

PART_BYTES: Final = 700_000
"""The API server refuses a Secret over 1 MiB, in base64."""
MOST_BYTES: Final = 48 << 20
"""Compressed. The log of 200,000 partitions takes about a quarter of it."""
_ANNOTATION: Final = f"{GROUP}/kept-copy"


class _BoundedBuffer(io.BytesIO):
    """A buffer that refuses to grow beyond `MOST_BYTES`."""

    @override
    def write(self, data: Any) -> int:
        if self.tell() + len(data) > MOST_BYTES:
            raise ActionError(f"the copy takes more than {MOST_BYTES >> 20} MiB, which is the most that is kept")
        return super().write(data)


def keep(
    kubernetes: KubernetesPort,
    identity: Identity,
    clients: ClusterClients,
    controllers: ControllersStatus,
    action: KeepCopy,
    now: datetime,
) -> None:
    """Copy the log of the voter that has most of it into Secrets.

    Raises
    ------
    ActionError
        No voter's log can be read, it is too large, or a Secret cannot be written.
    """
    access = log_access(kubernetes, identity.namespace, controllers.name)
    if access is None:
        raise ActionError(f"Secret {identity.namespace}/{names.log_reader_secret(controllers.name)} has no token")
    token, authority = access
    hosts = names.controller_hosts(controllers.name, identity.namespace, controllers.node_ids, identity.cluster_domain)
    ends: dict[int, int] = {}
    problems = []
    for node_id, host in hosts.items():
        try:
            with closing(clients.open_log(host, token, authority)) as files:
                ends[node_id] = log_end(files).offset
        except LogUnavailableError as error:
            problems.append(str(error))
    if not ends:
        raise ActionError(f"no voter's metadata log can be read: {problems[0]}")
    node_id = max(ends, key=lambda voter: (ends[voter], -voter))
    buffer = _BoundedBuffer()
    try:
        with closing(clients.open_log(hosts[node_id], token, authority)) as files:
            archived = archive_log(files, buffer)
    except LogUnavailableError as error:
        raise ActionError(f"the metadata log of controller {node_id} was not copied: {error}") from error
    data = buffer.getvalue()
    parts = [data[start : start + PART_BYTES] for start in range(0, len(data), PART_BYTES)]
    copy = KeptCopy(
        id=f"offset-{archived.end_offset}-epoch-{archived.epoch}",
        run_id=action.run_id,
        secret=action.secret,
        parts=len(parts),
        digest=hashlib.sha256(data).hexdigest(),
        node_id=node_id,
        end_offset=str(archived.end_offset),
        epoch=archived.epoch,
        log_bytes=archived.log_bytes,
        taken_at=now,
    )
    # The first part is written last: it names the others.
    for number, part in reversed(list(enumerate(parts))):
        kubernetes.apply(_secret(identity, copy, number, part), force=True)


def read(kubernetes: ReadPort, namespace: str, name: str) -> KeptCopy | None:
    """Return the copy whose first part is in a Secret; None if there is none, or its other parts are not all there.

    Raises
    ------
    ObservationError
        It cannot be read, or it is not a copy.
    """
    first = kubernetes.get("v1", "Secret", namespace, name)
    if first is None:
        return None
    try:
        copy = KeptCopy.model_validate_json(section(first, "metadata", "annotations").get(_ANNOTATION, ""))
    except ValidationError as error:
        words = f"its annotation {_ANNOTATION} cannot be read: {error.errors()[0]['msg']}"
        raise ObservationError(f"Secret {namespace}/{name}", words) from error
    digest = hashlib.sha256(_part(first))
    for number in range(1, copy.parts):
        part = kubernetes.get("v1", "Secret", namespace, names.part_of(name, number))
        if part is None:
            return None
        digest.update(_part(part))
    return copy if digest.hexdigest() == copy.digest else None


def _part(secret: Object) -> bytes:
    return base64.b64decode(section(secret, "data").get(names.KEPT_COPY_KEY, ""))


def _secret(identity: Identity, copy: KeptCopy, number: int, data: bytes) -> dict[str, Any]:
    owner = {"apiVersion": API_VERSION, "kind": KIND, "name": identity.name, "uid": identity.uid}
    annotations = {
        _ANNOTATION: copy.model_copy(update={"taken_at": copy.taken_at.astimezone(UTC)}).model_dump_json(by_alias=True)
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": names.part_of(copy.secret, number),
            "namespace": identity.namespace,
            "labels": names.labels(identity.name),
            "annotations": annotations if number == 0 else {},
            "ownerReferences": [owner],
        },
        "data": {names.KEPT_COPY_KEY: base64.b64encode(data).decode()},
    }
