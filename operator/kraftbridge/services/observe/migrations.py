"""Reads which cluster each KafkaMigration is about."""

from __future__ import annotations

import threading
from typing import Final

from kraftbridge.config import Settings
from kraftbridge.constants import API_VERSION, KIND
from kraftbridge.models.objects import entries, section
from kraftbridge.models.phase import Phase
from kraftbridge.models.survey import MigrationClaim
from kraftbridge.phases.draft import Identity
from kraftbridge.services.answers import Answer
from kraftbridge.storage.ports import Object, ReadPort

_HOLDS_SECONDS: Final = 10.0
"""How long a reading serves all migrations in preflight."""


class MigrationClaims:
    """What every KafkaMigration claims, read once for all migrations in preflight."""

    def __init__(self, kubernetes: ReadPort, settings: Settings) -> None:
        self._kubernetes = kubernetes
        self._settings = settings
        self._answer: Answer[tuple[MigrationClaim, ...]] | None = None
        self._lock = threading.Lock()

    def read(self, identity: Identity) -> tuple[MigrationClaim, ...]:
        """Return every KafkaMigration in the namespaces that the operator watches.

        A reading serves only those that are in it: it has every one that was created before them.

        Raises
        ------
        ObservationError
            They cannot be listed.
        """
        with self._lock:
            answer = self._answer
            if answer is None or not answer.holds(_HOLDS_SECONDS) or not _is_in(identity, answer.value):
                self._answer = answer = Answer(self._list())
            return answer.value

    def _list(self) -> tuple[MigrationClaim, ...]:
        watched: tuple[str | None, ...] = self._settings.watched_namespaces or (None,)
        listed = [item for namespace in watched for item in self._kubernetes.list(API_VERSION, KIND, namespace)]
        return tuple(map(_claim, listed))


def _is_in(identity: Identity, claims: tuple[MigrationClaim, ...]) -> bool:
    return any(claim.uid == identity.uid for claim in claims)


def _claim(migration: Object) -> MigrationClaim:
    metadata = migration["metadata"]
    status = section(migration, "status")
    references = entries(migration, "spec", "brokers", "statefulSets")
    return MigrationClaim(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        uid=metadata["uid"],
        created_at=str(metadata.get("creationTimestamp", "")),
        phase=str(status.get("phase") or Phase.PREFLIGHT),
        stateful_sets=frozenset(str(reference.get("name", "")) for reference in references),
        connect=str(section(migration, "spec", "zookeeper").get("connect", "")),
        cluster_id=str(status.get("clusterId") or section(status, "objects").get("clusterId") or ""),
    )
