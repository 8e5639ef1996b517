"""Dry starts of migrations: what they are made from, how far they are, and the actions that take them on."""

from __future__ import annotations

from typing import Protocol

from kraftbridge.config import Settings
from kraftbridge.models.decision import CollectRun, FenceRun, LaunchRun, ReleaseRun, RemoveRun
from kraftbridge.models.dry_start import DryStartReport, DryStartRun
from kraftbridge.models.spec import BrokersSpec, MigrationSpec
from kraftbridge.models.status import DryStartRunStatus, DryStartStatus
from kraftbridge.phases.draft import Identity, Migration
from kraftbridge.services.act.dry_starts import DryStartActs
from kraftbridge.services.clients import ClusterClients
from kraftbridge.services.dry_start_inputs import InputReader, channels_of
from kraftbridge.services.facts import Facts
from kraftbridge.services.observe import dry_starts as seen
from kraftbridge.storage.ports import KubernetesPort

RunAction = LaunchRun | FenceRun | ReleaseRun | CollectRun | RemoveRun


class DryStarter(Protocol):
    """Reads and takes on dry starts."""

    def fingerprint(self, migration: Migration) -> str:
        """Return the fingerprint of the copies that would be created now."""

    def channels(self, identity: Identity, spec: MigrationSpec) -> tuple[BrokersSpec, ...]:
        """Return ``spec.brokers`` with each channel that the pod templates may have, the most likely first."""

    def run(self, identity: Identity, run: DryStartRunStatus) -> DryStartRun:
        """Return how far a dry start is."""

    def report(self, identity: Identity, record: DryStartStatus) -> DryStartReport | None:
        """Return what the last dry start found; None if that is gone."""

    def carry_out(
        self,
        kubernetes: KubernetesPort,
        migration: Migration,
        clients: ClusterClients,
        action: RunAction,
    ) -> None:
        """Execute one action."""


class DryStarts:
    """The dry starts of a cluster's migrations. Everything about them is in the status and in Kubernetes."""

    def __init__(self, settings: Settings, facts: Facts) -> None:
        self._settings = settings
        self._facts = facts
        self._reader = InputReader(settings, facts)

    def fingerprint(self, migration: Migration) -> str:
        """Return the fingerprint of the copies that would be created now.

        Raises
        ------
        ObservationError
            A StatefulSet, or an object that it refers to, cannot be read.
        """
        return self._reader.read(migration).fingerprint

    def channels(self, identity: Identity, spec: MigrationSpec) -> tuple[BrokersSpec, ...]:
        """Return ``spec.brokers`` with each channel that the pod templates may have, the most likely first.

        Raises
        ------
        ObservationError
            A StatefulSet, or an object that it refers to, cannot be read.
        """
        return channels_of(self._facts.kubernetes, identity.namespace, spec)

    def run(self, identity: Identity, run: DryStartRunStatus) -> DryStartRun:
        """Return how far a dry start is.

        Raises
        ------
        ObservationError
            The API server does not answer.
        """
        return seen.running_dry_start(self._facts.kubernetes, identity.namespace, run)

    def report(self, identity: Identity, record: DryStartStatus) -> DryStartReport | None:
        """Return what the last dry start found; None if that is gone.

        Raises
        ------
        ObservationError
            The API server does not answer.
        """
        return seen.last_report(self._facts.kubernetes, identity.namespace, record)

    def carry_out(
        self,
        kubernetes: KubernetesPort,
        migration: Migration,
        clients: ClusterClients,
        action: RunAction,
    ) -> None:
        """Execute one action.

        Raises
        ------
        MigrationError
            The API server refuses, or does not answer.
        """
        acts = DryStartActs(kubernetes, self._settings, self._facts, self._reader, migration, clients)
        acts.carry_out(action)
