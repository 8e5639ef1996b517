"""Executes the actions of runs: each kind by its own module, and the removal of all of them by their row in `RUNS`."""

from __future__ import annotations

from kraftbridge.config import Settings
from kraftbridge.constants import LABEL_RUN, SPARK_API_VERSION
from kraftbridge.models.decision import CollectRun, FenceRun, LaunchRun, ReleaseRun, RemoveRun
from kraftbridge.models.runs import RUNS, RunKind
from kraftbridge.services.act import rehearsals, verifications
from kraftbridge.services.act.step import Step
from kraftbridge.services.dry_starts import DryStarter, RunAction
from kraftbridge.services.facts import Facts
from kraftbridge.storage.ports import KubernetesPort


class Runs:
    """Executes the actions of runs."""

    def __init__(self, facts: Facts, settings: Settings, dry_starts: DryStarter) -> None:
        self._facts = facts
        self._settings = settings
        self._dry_starts = dry_starts

    def carry_out(self, step: Step, action: RunAction) -> None:
        """Execute one action. Each can be repeated.

        Raises
        ------
        MigrationError
            The API server refuses, or does not answer.
        """
        if action.kind is RunKind.DRY_START:
            self._dry_starts.carry_out(step.kubernetes, step.migration, step.clients, action)
        match action:
            case RemoveRun():
                remove(step.kubernetes, step.identity.namespace, action)
            case LaunchRun(RunKind.VERIFICATION):
                verifications.launch(self._facts, self._settings, step, action)
            case ReleaseRun(RunKind.VERIFICATION):
                verifications.release(step, action)
            case LaunchRun(RunKind.REHEARSAL):
                rehearsals.launch(self._facts, self._settings, self._dry_starts, step, action)
            case FenceRun(RunKind.REHEARSAL):
                rehearsals.fence(self._facts, self._settings, self._dry_starts, step, action)
            case CollectRun(RunKind.REHEARSAL):
                rehearsals.collect(step, action)
            case _:
                pass  # the steps of a dry start are all its own; other kinds have no other step (`RunRow.steps`)


def remove(kubernetes: KubernetesPort, namespace: str, action: RemoveRun) -> None:
    """Delete what runs of a run, the owner of its rights and, unless it is to stay, its report.

    Kubernetes' garbage collection deletes the rights a moment later.
    What `kraftbridge.services.observe.runs.left_runs` looks at goes last, so what dies half-way counts as left.

    Raises
    ------
    MigrationError
        The API server refuses, or does not answer.
    """
    row = RUNS[action.kind]
    for name in row.leaving_config_maps(action.run_id, keep_report=action.keep_report):
        kubernetes.delete("v1", "ConfigMap", namespace, name)
    for api_version, kind in row.workloads:
        if api_version != SPARK_API_VERSION or kubernetes.serves(api_version, kind):
            kubernetes.delete(api_version, kind, namespace, action.run_id)
    if row.workloads:
        return  # their pods go with them
    for pod in kubernetes.list("v1", "Pod", namespace, f"{LABEL_RUN}={action.run_id}"):
        metadata = pod["metadata"]
        kubernetes.delete("v1", "Pod", namespace, metadata["name"], uid=metadata["uid"], grace_seconds=0)
