"""Observes the runs of verifications and rehearsals: Jobs, SparkApplications and the reports that they leave in ConfigMaps."""

from __future__ import annotations

import json
from typing import Any

from pydantic import ValidationError

from kraftbridge.builders import names
from kraftbridge.builders import rehearsal as builder
from kraftbridge.builders.verification import SPARK_API_VERSION
from kraftbridge.constants import LABEL_RUN
from kraftbridge.models.observation import RehearsalProgress, RehearsalRun, RunState, VerificationRun
from kraftbridge.models.rehearsal import RESULT_KEY, RehearsalResult
from kraftbridge.models.report import GO_KEY, READY_KEY, VERDICT_KEY, VerdictSummary
from kraftbridge.models.status import MigrationStatus
from kraftbridge.phases.draft import Identity
from kraftbridge.services.observe import workloads
from kraftbridge.storage.ports import KubernetesPort, Object


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


def running_rehearsal(kubernetes: KubernetesPort, identity: Identity, status: MigrationStatus) -> RehearsalRun | None:
    """Return the state of the rehearsal that runs according to the status; None if none runs.

    Raises
    ------
    ObservationError
        The API server does not answer.
    """
    if status.rehearsal is None or status.rehearsal.running is None:
        return None
    run_id = status.rehearsal.running.run_id
    config_map = kubernetes.get("v1", "ConfigMap", identity.namespace, run_id)
    if config_map is None:
        return RehearsalRun(run_id, RehearsalProgress.MISSING)
    if (text := (config_map.get("data") or {}).get(RESULT_KEY)) is not None:
        try:
            result = RehearsalResult.model_validate_json(text)
        except ValidationError as e:
            words = f"its result cannot be read: {e.errors()[0]['msg']}"
            return RehearsalRun(run_id, RehearsalProgress.FINISHED, words)
        return RehearsalRun(run_id, RehearsalProgress.FINISHED, result=result)
    job = kubernetes.get("batch/v1", "Job", identity.namespace, run_id)
    if job is None:
        return RehearsalRun(run_id, RehearsalProgress.MISSING)
    pods = kubernetes.list("v1", "Pod", identity.namespace, f"{LABEL_RUN}={run_id}")
    if pods:
        return _of_pod(kubernetes, identity, run_id, pods[0])
    failed = [c for c in (job.get("status") or {}).get("conditions", []) if c["type"] == "Failed"]
    if failed:
        return RehearsalRun(run_id, RehearsalProgress.CANNOT_START, failed[0].get("message", ""))
    return RehearsalRun(run_id, RehearsalProgress.READING, "it has no pod yet")


def _of_pod(kubernetes: KubernetesPort, identity: Identity, run_id: str, pod: Object) -> RehearsalRun:
    name = pod["metadata"]["name"]
    status = pod.get("status") or {}
    reader = _terminated(status.get("initContainerStatuses"), builder.READER)
    ended = _terminated(status.get("containerStatuses"), builder.CONTAINER)
    if ended is not None or status.get("phase") == "Failed" or (reader is not None and reader.get("exitCode")):
        return RehearsalRun(run_id, RehearsalProgress.ENDED, pod=name)
    if trouble := workloads.pod_trouble(pod):
        # A pod without a place can still get one. An image that cannot be pulled needs a user.
        waits = "Unschedulable" in trouble
        progress = RehearsalProgress.READING if waits else RehearsalProgress.CANNOT_START
        return RehearsalRun(run_id, progress, trouble, name)
    if reader is None:
        return RehearsalRun(run_id, RehearsalProgress.READING, pod=name)
    policy = kubernetes.get(
        "networking.k8s.io/v1", "NetworkPolicy", identity.namespace, builder.policy_name(identity.name)
    )
    selected = {} if policy is None else policy["spec"]["podSelector"].get("matchLabels", {})
    fenced = selected.get(LABEL_RUN) == run_id
    return RehearsalRun(run_id, RehearsalProgress.RUNNING if fenced else RehearsalProgress.UNFENCED, pod=name)


def _terminated(containers: list[dict[str, Any]] | None, name: str) -> dict[str, Any] | None:
    for container in containers or []:
        if container["name"] == name:
            found: dict[str, Any] | None = (container.get("state") or {}).get("terminated")
            return found
    return None
