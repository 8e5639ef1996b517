"""Reads verification runs from their ConfigMaps and applications."""

from __future__ import annotations

import json

from pydantic import ValidationError

from kraftbridge.builders import names
from kraftbridge.builders.verification import SPARK_API_VERSION
from kraftbridge.constants import LABEL_RUN
from kraftbridge.models.observation import RunState, VerificationRun
from kraftbridge.models.report import GO_KEY, READY_KEY, VERDICT_KEY, VerdictSummary
from kraftbridge.models.status import MigrationStatus
from kraftbridge.phases.draft import Identity
from kraftbridge.services.observe import workloads
from kraftbridge.storage.ports import KubernetesPort


def last_run(kubernetes: KubernetesPort, identity: Identity, status: MigrationStatus) -> VerificationRun:
    """Return how far the run is that is looked after."""
    followed = status.followed_run
    assert followed is not None, "asked for only where there is a run"
    run_id = followed.run_id
    config_map = kubernetes.get("v1", "ConfigMap", identity.namespace, names.verification_config_map(run_id))
    if config_map is None:
        return VerificationRun(run_id, RunState.MISSING)
    data = config_map.get("data") or {}
    if VERDICT_KEY in data:
        try:
            return VerificationRun(
                run_id, RunState.FINISHED, verdict=VerdictSummary.model_validate_json(data[VERDICT_KEY])
            )
        except ValidationError as e:
            return VerificationRun(run_id, RunState.FAILED, f"its verdict cannot be read: {e.errors()[0]['msg']}")
    state, message = _application(kubernetes, identity, run_id)
    if state is RunState.PENDING and READY_KEY in data:
        released = GO_KEY in data and json.loads(data[GO_KEY]).get("runId") == run_id
        state = RunState.RUNNING if released else RunState.ARMED
    if state is RunState.PENDING and (trouble := _trouble(kubernetes, identity, run_id)):
        # A pod without a place can still get one. An image that cannot be pulled needs a user.
        return VerificationRun(
            run_id, RunState.PENDING if "Unschedulable" in trouble else RunState.CANNOT_START, trouble
        )
    return VerificationRun(run_id, state, message)


def _trouble(kubernetes: KubernetesPort, identity: Identity, run_id: str) -> str:
    pods = kubernetes.list("v1", "Pod", identity.namespace, f"{LABEL_RUN}={run_id}")
    return next((f"pod {p['metadata']['name']}: {why}" for p in pods if (why := workloads.pod_trouble(p))), "")


def _application(kubernetes: KubernetesPort, identity: Identity, run_id: str) -> tuple[RunState, str]:
    job = kubernetes.get("batch/v1", "Job", identity.namespace, run_id)
    if job is not None:
        failed = next(
            (c for c in job.get("status", {}).get("conditions", []) if c["type"] == "Failed" and c["status"] == "True"),
            None,
        )
        if failed is not None:
            return (
                RunState.FAILED,
                f"Job {run_id}: {failed.get('reason', '')} {failed.get('message', '')}; see the log of its pod",
            )
        return RunState.PENDING, ""
    if not kubernetes.serves(SPARK_API_VERSION, "SparkApplication"):
        return RunState.MISSING, ""
    application = kubernetes.get(SPARK_API_VERSION, "SparkApplication", identity.namespace, run_id)
    if application is None:
        return RunState.MISSING, ""
    state = application.get("status", {}).get("applicationState", {})
    match state.get("state", ""):
        case "":
            return (
                RunState.PENDING,
                "the Spark operator has not taken it up yet (its spark.jobNamespaces has to list this namespace)",
            )
        case "FAILED" | "SUBMISSION_FAILED" | "FAILING" as word:
            return RunState.FAILED, f"SparkApplication {run_id} is {word}: {state.get('errorMessage', '')}"[:400]
        case "COMPLETED":
            return RunState.FAILED, f"SparkApplication {run_id} completed without a verdict"
        case word:
            return RunState.PENDING, f"SparkApplication is {word}"
