"""The kinds of runs: pods that the operator starts beside the migration, follows, and removes. One row for each kind.

All kinds have one life cycle: a run is recorded in the status and launched, takes its steps, ends with a report in its
ConfigMap or past its time limit, and is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from kraftbridge.constants import SPARK_API_VERSION, UID_LENGTH
from kraftbridge.models.spec import MigrationSpec

_MIGRATION_CHARACTERS: Final = 30
"""Of the migration's name in the id of a run, which is a label (63 characters)."""
DRY_START_POD_LIMIT: Final = timedelta(seconds=90)
"""Time limit for each pod of a dry start from the moment when it is let go, and for making those of a stage."""
PULL_LIMIT: Final = timedelta(minutes=5)
"""Time limit for the nodes to get the images of the next pods: all begin at once, and an image has up to a gigabyte."""
DRY_START_PARALLEL: Final = 4
"""Most copies of a dry start that run at once; the others wait behind their gates, where they cost nothing.

Each is a JVM with what the brokers' pod template requests. A cluster of 60 brokers has up to 124 copies, for which no
cluster has room beside its brokers, and ten that start at once keep the API server of a machine with two cores from
answering for 10 to 20 s. A copy takes some seconds, so more places would save little.
"""


class RunKind(StrEnum):
    """What a run is for."""

    VERIFICATION = "Verification"
    REHEARSAL = "Rehearsal"
    DRY_START = "DryStart"


class RunStep(StrEnum):
    """Steps of a run, in their order. A kind has those of its row."""

    LAUNCH = "Launch"
    """Its ConfigMap and its pods are made; the pods wait."""
    FENCE = "Fence"
    """A NetworkPolicy closes its pods, and the probe tries it from inside."""
    RELEASE = "Release"
    """Its pods begin."""
    COLLECT = "Collect"
    """What its pods found is taken from their logs into its ConfigMap."""
    REMOVE = "Remove"
    """What runs of it is deleted; its report may stay."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """What is true of one kind of runs."""

    role: str
    """Value of the role label of its pods."""
    infix: str
    """Part of the id of each run that tells the kinds apart."""
    report_suffix: str
    """End of the name of its ConfigMap, after the id."""
    steps: tuple[RunStep, ...]
    workloads: tuple[tuple[str, str], ...]
    """API version and kind of the objects that make its pods. They have the run's id as their name."""
    limit: Callable[[MigrationSpec], timedelta]
    """Time limit."""
    failure: str
    """What follows where it ends without a result."""
    has_rights: bool = False
    """Whether a Role and a RoleBinding of its own let its pods write the report."""

    def run_id(self, migration: str, uid: str, number: int) -> str:
        """Return the id of a migration's run."""
        return f"{migration[:_MIGRATION_CHARACTERS]}-{uid[:UID_LENGTH]}{self.infix}-{number}"

    def report(self, run_id: str) -> str:
        """Return the name of a run's ConfigMap."""
        return f"{run_id}{self.report_suffix}"

    def rights(self, run_id: str) -> str:
        """Return the name of the Role and the RoleBinding of a run, and of the empty ConfigMap that owns them."""
        return f"{run_id}-rights"

    def leaving_config_maps(self, run_id: str, *, keep_report: bool) -> tuple[str, ...]:
        """Return the names of the ConfigMaps that a removal deletes, in its order.

        Role and RoleBinding of a run go with their owner, so the operator needs no right to delete any.
        The report cannot be their owner: it may stay, and the run's account may patch it.
        """
        owner = (self.rights(run_id),) if self.has_rights else ()
        return owner if keep_report else (*owner, self.report(run_id))


_JOB: Final = ("batch/v1", "Job")
_FENCED: Final = (RunStep.LAUNCH, RunStep.FENCE)
RUNS: Final[Mapping[RunKind, RunRow]] = MappingProxyType(
    {
        RunKind.VERIFICATION: RunRow(
            role="verifier",
            infix="",
            report_suffix="-verification",
            steps=(RunStep.LAUNCH, RunStep.RELEASE, RunStep.REMOVE),  # its driver writes the report itself
            workloads=((SPARK_API_VERSION, "SparkApplication"), _JOB),
            has_rights=True,
            limit=lambda spec: timedelta(seconds=spec.verification.deadline_seconds),
            failure="the gate stays closed, and the next run is launched after a pause",
        ),
        RunKind.REHEARSAL: RunRow(
            role="rehearsal",
            infix="-rehearsal",
            report_suffix="",
            # Its pod waits for the fence by itself, and begins behind it.
            steps=(*_FENCED, RunStep.COLLECT, RunStep.REMOVE),
            workloads=(_JOB,),
            limit=lambda spec: timedelta(seconds=spec.rehearsal.timeout_seconds),
            failure="the verdict is Unknown, a blocking finding",
        ),
        RunKind.DRY_START: RunRow(
            role="dry-start",
            infix="-dry-start",
            report_suffix="",
            steps=(*_FENCED, RunStep.RELEASE, RunStep.COLLECT, RunStep.REMOVE),
            workloads=(),  # its pods are bare
            limit=lambda _: DRY_START_POD_LIMIT,
            failure="a blocking finding, and another dry start after a minute",
        ),
    }
)
