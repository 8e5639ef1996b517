"""Observes runs of verifications and rehearsals: Jobs, SparkApplications and their reports in ConfigMaps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from kraftbridge import bounds
from kraftbridge.builders import names
from kraftbridge.builders import rehearsal as builder
from kraftbridge.builders.verification import SPARK_API_VERSION
from kraftbridge.constants import LABEL_RUN
from kraftbridge.exceptions import ObservationError
from kraftbridge.models.observation import RehearsalProgress, RehearsalRun, RunState, VerificationRun
from kraftbridge.models.rehearsal import RESULT_KEY, RehearsalResult
from kraftbridge.models.report import GO_KEY, MAXIMUM_SUMMARY_BYTES, READY_KEY, VERDICT_KEY, Go, VerdictSummary
from kraftbridge.models.status import MigrationStatus
from kraftbridge.phases.draft import Identity
from kraftbridge.services.observe import workloads
from kraftbridge.services.observe.refusals import failed_creates
from kraftbridge.storage.ports import KubernetesPort, Object

_MOST_CHARACTERS: Final = 4 * MAXIMUM_SUMMARY_BYTES
"""A verdict, and its release. Both are in a ConfigMap that others of the namespace can write."""


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
        if len(data[VERDICT_KEY]) > _MOST_CHARACTERS:
            words = (
                f"its verdict has {len(data[VERDICT_KEY]):,} characters, "
                f"and {_MOST_CHARACTERS:,} is the most that is read"
            )
            return VerificationRun(run_id, RunState.FAILED, words)
        try:
            return VerificationRun(
                run_id, RunState.FINISHED, verdict=VerdictSummary.model_validate_json(data[VERDICT_KEY])
            )
        except ValidationError as error:
            return VerificationRun(run_id, RunState.FAILED, f"its verdict cannot be read: {error.errors()[0]['msg']}")
    state, message = _application(kubernetes, identity, run_id, _Places("spec.verification"))
    if state is RunState.PENDING and READY_KEY in data:
        released = GO_KEY in data and _released(data[GO_KEY]) == run_id
        state = RunState.RUNNING if released else RunState.ARMED
    if state is RunState.PENDING and (trouble := _trouble(kubernetes, identity, run_id)):
        # A pod without a place can still get one. An image that cannot be pulled needs a user.
        return VerificationRun(
            run_id, RunState.PENDING if "Unschedulable" in trouble else RunState.CANNOT_START, trouble
        )
    return VerificationRun(run_id, state, message)


def _released(go: str) -> str | None:
    """Return the run that a release names; None if nothing that is written there is one."""
    if len(go) > _MOST_CHARACTERS:
        return None
    try:
        return Go.model_validate_json(go).run_id
    except ValidationError:
        return None


def _trouble(kubernetes: KubernetesPort, identity: Identity, run_id: str) -> str:
    pods = kubernetes.list("v1", "Pod", identity.namespace, f"{LABEL_RUN}={run_id}")
    return next((f"pod {p['metadata']['name']}: {why}" for p in pods if (why := workloads.pod_trouble(p))), "")


_FEW_REFUSALS: Final = 2
"""Refusals of a Job's pod after which it is not the API server's moment of weakness.
The Job controller repeats within seconds.
"""


@dataclass(frozen=True, slots=True)
class _Places:
    """Where a user changes what a Job's pod asks for."""

    section: str
    account: str = "spec.verification.serviceAccount"


def refusal(kubernetes: KubernetesPort, identity: Identity, job: Object, places: _Places) -> tuple[str, int]:
    """Return why the API server refuses to create the pod of a Job, with what to do, and how often it refused.

    The reason is ``""`` if it does not refuse.
    """
    name = job["metadata"]["name"]
    namespace = identity.namespace
    status = job.get("status") or {}
    if any(status.get(count) for count in ("active", "ready", "succeeded", "failed")):
        return "", 0
    try:
        found = failed_creates(kubernetes, job, "Job")
    except ObservationError as error:
        unread = f"Job {name} has no pod, and why cannot be read ({error})."
        return f"{unread} kubectl -n {namespace} describe job {name} tells", 0
    if not found.words:
        return "", 0
    refused = f"Job {name} has no pod, because the API server refuses it: {found.words}."
    return f"{refused} {_advice(found.words, namespace, places)}", found.count


def _advice(said: str, namespace: str, places: _Places) -> str:
    low = said.lower()
    if "serviceaccount" in low.replace(" ", "") and "not found" in low:
        return f"Create the service account in namespace {namespace}, or name another one in {places.account}"
    if "exceeded quota" in low or "failed quota" in low or "must specify" in low:
        return f"Raise the ResourceQuota of namespace {namespace}, or change what {places.section} requests"
    if "podsecurity" in low or "security context constraint" in low:
        return f"Let the policy of namespace {namespace} admit the pod, or change spec.pods.securityContext"
    if "webhook" in low or "validatingadmissionpolicy" in low:
        return (
            f"Let the admission policy that refuses it admit the pods of {places.section}, "
            "or give them what it asks for in spec.pods"
        )
    if "limitrange" in low or "usage per" in low:
        return f"Change the LimitRange of namespace {namespace}, or what {places.section} requests"
    return f"Remove the cause that the answer names in namespace {namespace}"


def _application(kubernetes: KubernetesPort, identity: Identity, run_id: str, places: _Places) -> tuple[RunState, str]:
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
        why, count = refusal(kubernetes, identity, job, places)
        return RunState.CANNOT_START if count >= _FEW_REFUSALS else RunState.PENDING, why
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
        if len(text) > bounds.RESULT_BYTES:
            words = (
                f"its result has {bounds.size(len(text))}, "
                f"and {bounds.size(bounds.RESULT_BYTES)} is the most that is read"
            )
            return RehearsalRun(run_id, RehearsalProgress.FINISHED, words)
        try:
            result = RehearsalResult.model_validate_json(text)
        except ValidationError as error:
            words = f"its result cannot be read: {error.errors()[0]['msg']}"
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
    why, count = refusal(kubernetes, identity, job, _Places("spec.rehearsal", "spec.pods.serviceAccountName"))
    progress = RehearsalProgress.CANNOT_START if count >= _FEW_REFUSALS else RehearsalProgress.READING
    return RehearsalRun(run_id, progress, why or "it has no pod yet")


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
