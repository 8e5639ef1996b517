"""What every action of a step is given, and what more than one of them does."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kraftbridge.exceptions import ConflictError
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.models.status import MigrationStatus
from kraftbridge.phases.draft import Identity, Migration
from kraftbridge.services.act.checked import CheckedKubernetes
from kraftbridge.services.clients import ClusterClients
from kraftbridge.services.observe.observer import Memory
from kraftbridge.storage.ports import KubernetesPort


@dataclass(frozen=True, slots=True)
class Step:
    """The migration of an action, and the data for executing it."""

    migration: Migration
    """As decided: with the new status, and the channel that it has chosen."""
    clients: ClusterClients
    memory: Memory
    kubernetes: CheckedKubernetes
    """Writes only while what the step has decided on still holds."""

    @property
    def identity(self) -> Identity:
        """Which migration it is."""
        return self.migration.identity

    @property
    def spec(self) -> MigrationSpec:
        """What its user wants."""
        return self.migration.spec

    @property
    def status(self) -> MigrationStatus:
        """How far it is."""
        return self.migration.status


def create_once(kubernetes: KubernetesPort, obj: Mapping[str, Any]) -> None:
    """Create an object, unless an earlier attempt has created it."""
    with suppress(ConflictError):
        kubernetes.create(obj)
