"""A user's session with one API server: finds a migration and changes its ``spec``."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from kraftbridge.builders import names
from kraftbridge.constants import ANNOTATION_RECORD_STEP, ANNOTATION_REHEARSE, API_VERSION, KIND
from kraftbridge.models import newer
from kraftbridge.models.objects import section
from kraftbridge.models.phase import Phase, Target
from kraftbridge.models.rehearsal import PAGE_KEY, RESULT_KEY
from kraftbridge.models.report import REPORT_KEY, VerificationReport
from kraftbridge.models.spec import AcceptedFinding, MigrationSpec
from kraftbridge.models.status import FindingStatus, MigrationStatus
from kraftbridge.outside import bounds
from kraftbridge.phases.recorded_step import ASKED_KEY
from kraftbridge.storage.ports import KubernetesPort, Object

PLUGIN_MANAGER: Final = "kubectl-kraftbridge"
"""Field manager of the changes that the user makes with this plugin."""


class PluginError(Exception):
    """The command cannot be executed. The message gives the reason and the next step."""


@dataclass(frozen=True, slots=True)
class ReadMigration:
    """A KafkaMigration that was read."""

    resource: Mapping[str, Any]
    spec: MigrationSpec
    status: MigrationStatus

    @property
    def name(self) -> str:
        """Name of the resource."""
        return str(self.resource["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """Namespace of the resource."""
        return str(self.resource["metadata"]["namespace"])

    @property
    def version(self) -> str:
        """``resourceVersion``. Commands change exactly the version that the user saw."""
        return str(self.resource["metadata"]["resourceVersion"])

    def findings(self, code: str, where: str) -> tuple[FindingStatus, ...]:
        """Return the findings with a code about an object, ``*`` for every object."""
        return tuple(f for f in self.status.findings if f.code == code and where in {"*", f.object})


@dataclass(frozen=True, slots=True)
class Session:
    """A connection and the namespace of the commands."""

    kubernetes: KubernetesPort
    namespace: str

    def migration(self, name: str | None) -> ReadMigration:
        """Return the migration of that name, or the only one of the namespace.

        Raises
        ------
        PluginError
            It does not exist, or there are several and no name was given.
        """
        resource = self._resource(name)
        return ReadMigration(
            resource,
            newer.read_spec(resource["spec"]).spec,
            newer.read_status(section(resource, "status")).status,
        )

    def _resource(self, name: str | None) -> Object:
        if name is not None:
            resource = self.kubernetes.get(API_VERSION, KIND, self.namespace, name)
            if resource is None:
                raise PluginError(f"namespace {self.namespace} has no KafkaMigration {name}")
            return resource
        migrations = self.kubernetes.list(API_VERSION, KIND, self.namespace)
        if len(migrations) != 1:
            names = ", ".join(sorted(migration["metadata"]["name"] for migration in migrations)) or "none"
            raise PluginError(
                f"namespace {self.namespace} has {len(migrations)} KafkaMigrations ({names}): "
                "name one, or another namespace with -n"
            )
        return migrations[0]

    def pause(self, migration: ReadMigration, *, paused: bool) -> None:
        """Stop a migration at the next safe point, or continue it."""
        self._patch(migration, {"paused": paused})

    def set_target(self, migration: ReadMigration, target: Target) -> None:
        """Set another target, at exactly the version that was shown.

        Raises
        ------
        ConflictError
            The resource changed since it was read.
        """
        self._patch(migration, {"target": target.value}, exact=True)

    def ask_for_rehearsal(self, migration: ReadMigration, value: str) -> None:
        """Let the operator rehearse once more.

        Raises
        ------
        PluginError
            No rehearsal would run: it is switched off, or the first broker has restarted.
        """
        if not migration.spec.rehearsal.enabled:
            raise PluginError(f"{migration.name} has spec.rehearsal.enabled: false, so nothing is rehearsed")
        if migration.status.phase not in (Phase.PREFLIGHT, Phase.PROVISIONING_QUORUM):
            raise PluginError(
                f"{migration.name} is in {migration.status.phase}: "
                "a rehearsal runs only before the first broker restarts"
            )
        self._annotate(migration, ANNOTATION_REHEARSE, value)

    def ask_for_step(self, migration: ReadMigration, value: str) -> None:
        """Let the operator record one step in a ConfigMap."""
        self._annotate(migration, ANNOTATION_RECORD_STEP, value)

    def recorded_step(self, migration: ReadMigration, value: str) -> bool:
        """Return whether the operator has recorded the step that was asked for with a value."""
        name = names.step_config_map(migration.name, migration.resource["metadata"]["uid"])
        config_map = self.kubernetes.get("v1", "ConfigMap", migration.namespace, name)
        return config_map is not None and section(config_map, "data").get(ASKED_KEY) == value

    def _annotate(self, migration: ReadMigration, annotation: str, value: str) -> None:
        self.kubernetes.merge_patch(
            API_VERSION,
            KIND,
            migration.namespace,
            migration.name,
            {"metadata": {"annotations": {annotation: value}}},
            field_manager=PLUGIN_MANAGER,
        )

    def accept(self, migration: ReadMigration, code: str, where: str) -> bool:
        """Accept a finding; return False if it was accepted already.

        Raises
        ------
        PluginError
            The migration has no such finding. An acceptance in advance would hide the finding.
        """
        if not migration.findings(code, where):
            present = ", ".join(sorted({f"{f.code} {f.object}" for f in migration.status.findings})) or "none"
            raise PluginError(f"{migration.name} has no finding {code} about {where}; it has: {present}")
        accepted = migration.spec.preflight.accepted
        wanted = AcceptedFinding(code=code, object=where)
        if wanted in accepted:
            return False
        entries = [a.model_dump(mode="json", by_alias=True) for a in (*accepted, wanted)]
        self._patch(migration, {"preflight": {"accepted": entries}}, exact=True)  # the patch replaces the complete list
        return True

    def _patch(self, migration: ReadMigration, spec: Mapping[str, Any], *, exact: bool = False) -> None:
        self.kubernetes.merge_patch(
            API_VERSION,
            KIND,
            migration.namespace,
            migration.name,
            {"spec": spec},
            resource_version=migration.version if exact else None,
            field_manager=PLUGIN_MANAGER,
        )


def unpacked(packed: str) -> str:
    """Return a report's JSON.

    Raises
    ------
    PluginError
        The ConfigMap's value is not a packed report.
    """
    try:
        advice = "Let the verification run again"
        return bounds.unpacked(base64.b64decode(packed, validate=True), "it", bounds.REPORT_BYTES, advice).decode()
    except (binascii.Error, OSError, ValueError) as error:
        raise PluginError(f"the report cannot be unpacked: {error}") from error


def read_report(
    kubernetes: KubernetesPort, migration: ReadMigration, run_id: str | None
) -> tuple[str, VerificationReport]:
    """Return the JSON and the report of a run; without an id, of the newest run with a report.

    Raises
    ------
    PluginError
        The run does not exist, or its ConfigMap was deleted.
    """
    reported = [run for run in migration.status.verifications if run.report]
    runs = [run for run in reported if run_id in {None, run.run_id}]
    if not runs:
        of_run = f" of run {run_id}" if run_id else ""
        with_report = ", ".join(run.run_id for run in reported) or "none"
        raise PluginError(f"{migration.name} has no report{of_run}; runs with a report: {with_report}")
    name = runs[-1].report
    config_map = kubernetes.get("v1", "ConfigMap", migration.namespace, name)
    packed = section(config_map, "data").get(REPORT_KEY)
    if packed is None:
        raise PluginError(
            f"ConfigMap {migration.namespace}/{name} does not exist or has no report; "
            "spec.verification.keepRuns sets how many runs are kept"
        )
    return report_of(packed)


def report_of(packed: str) -> tuple[str, VerificationReport]:
    """Return the JSON and the report of a ConfigMap's value.

    Raises
    ------
    PluginError
        It is no report, or one of another release.
    """
    text = unpacked(packed)
    try:
        return text, VerificationReport.model_validate_json(text)
    except ValidationError as error:
        raise PluginError(f"the report cannot be read: {error.errors()[0]['msg']}") from error


def read_rehearsal(kubernetes: KubernetesPort, migration: ReadMigration, name: str, *, page: bool) -> bytes:
    """Return the result of a rehearsal as JSON, or its page.

    Raises
    ------
    PluginError
        The ConfigMap was deleted, or the result had no room for a page.
    """
    config_map = kubernetes.get("v1", "ConfigMap", migration.namespace, name)
    text = section(config_map, "data").get(RESULT_KEY)
    packed = section(config_map, "binaryData").get(PAGE_KEY)
    if page and packed is not None:
        return unpacked(packed).encode()
    if not page and text is not None:
        return str(text).encode()
    raise PluginError(
        f"ConfigMap {migration.namespace}/{name} has no {'page' if page else 'result'}; try the other one"
    )
