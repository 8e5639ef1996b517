"""Observes runs of verifications and rehearsals: Jobs, SparkApplications and their reports in ConfigMaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from kraftbridge.builders import names
from kraftbridge.builders import rehearsal as builder
from kraftbridge.constants import LABEL_RUN, SPARK_API_VERSION
from kraftbridge.exceptions import ObservationError
from kraftbridge.models.objects import entries, section
from kraftbridge.models.observation import RehearsalProgress, RehearsalRun, RunState, VerificationRun
from kraftbridge.models.pod_problem import PodProblem, problem_of
from kraftbridge.models.rehearsal import RESULT_KEY, RehearsalResult
from kraftbridge.models.report import GO_KEY, MAXIMUM_SUMMARY_BYTES, READY_KEY, VERDICT_KEY, Go, VerdictSummary
from kraftbridge.models.runs import RUNS
from kraftbridge.models.status import MigrationStatus, RetiredRun
from kraftbridge.outside import bounds
from kraftbridge.outside.shell import command
from kraftbridge.phases.draft import Identity
from kraftbridge.services.observe import workloads
from kraftbridge.services.observe.pod_refusals import failed_creates
from kraftbridge.storage.ports import Object, ReadPort

_MOST_CHARACTERS: Final = 4 * MAXIMUM_SUMMARY_BYTES
"""A verdict, and its release. Both are in a ConfigMap that others of the namespace can write."""


def last_run(kubernetes: ReadPort, identity: Identity, status: MigrationStatus) -> VerificationRun:
    """Return how far the run is that is looked after."""
    followed = status.followed_run
    assert followed is not None, "asked for only where there is a run"
    run_id = followed.run_id
    config_map = kubernetes.get("v1", "ConfigMap", identity.namespace, names.verification_config_map(run_id))
    if config_map is None:
        return VerificationRun(run_id, RunState.MISSING)
    data = section(config_map, "data")
    if VERDICT_KEY in data:
        return _finished(run_id, data[VERDICT_KEY])
    state, message = _application(kubernetes, identity, run_id, _Places("spec.verification"))
    if state is not RunState.PENDING:
        return VerificationRun(run_id, state, message)
    if READY_KEY in data:
        released = _released(data.get(GO_KEY, "")) == run_id
        return VerificationRun(run_id, RunState.RUNNING if released else RunState.ARMED, message)
    trouble = _trouble(kubernetes, identity, run_id)
    if trouble:
        return VerificationRun(run_id, RunState.PENDING if _may_pass(trouble) else RunState.CANNOT_START, trouble)
    return VerificationRun(run_id, state, message)


def _finished(run_id: str, verdict: str) -> VerificationRun:
    if len(verdict) > _MOST_CHARACTERS:
        words = f"its verdict has {len(verdict):,} characters, and {_MOST_CHARACTERS:,} is the most that is read"
        return VerificationRun(run_id, RunState.FAILED, words)
    try:
        return VerificationRun(run_id, RunState.FINISHED, verdict=VerdictSummary.model_validate_json(verdict))
    except ValidationError as error:
        return VerificationRun(run_id, RunState.FAILED, f"its verdict cannot be read: {error.errors()[0]['msg']}")


def _may_pass(trouble: str) -> bool:
    """Return whether a pod without a place can still get one. An image that cannot be pulled needs a user."""
    return problem_of(trouble) is PodProblem.CAPACITY


def _released(go: str) -> str | None:
    """Return the run that a release names; None if nothing that is written there is one."""
    if len(go) > _MOST_CHARACTERS:
        return None
    try:
        return Go.model_validate_json(go).run_id
    except ValidationError:
        return None


def _trouble(kubernetes: ReadPort, identity: Identity, run_id: str) -> str:
    for pod in kubernetes.list("v1", "Pod", identity.namespace, f"{LABEL_RUN}={run_id}"):
        if trouble := workloads.pod_trouble(pod):
            return f"pod {pod['metadata']['name']}: {trouble}"
    return ""


_FEW_REFUSALS: Final = 2
"""So many refusals of a Job's pod are no moment of weakness: the Job controller repeats within seconds."""


@dataclass(frozen=True, slots=True)
class _Places:
    """Where a user changes what a Job's pod asks for."""

    section: str
    account: str = "spec.verification.serviceAccount"


def refusal(kubernetes: ReadPort, identity: Identity, job: Object, places: _Places) -> tuple[str, int]:
    """Return why the API server refuses to create the pod of a Job, with what to do, and how often it refused.

    The reason is ``""`` if it does not refuse.
    """
    name = job["metadata"]["name"]
    namespace = identity.namespace
    status = section(job, "status")
    if any(map(status.get, ("active", "ready", "succeeded", "failed"))):
        return "", 0
    try:
        failed = failed_creates(kubernetes, job, "Job")
    except ObservationError as error:
        unread = f"Job {name} has no pod, and why cannot be read ({error})."
        line = command("kubectl -n {namespace} describe job {name}", namespace=namespace, name=name)
        return f"{unread} {line} tells", 0
    if not failed.words:
        return "", 0
    refused = f"Job {name} has no pod, because the API server refuses it: {failed.words}."
    return f"{refused} {_advice(failed.words, namespace, places)}", failed.count


_ADVICE: Final = (
    (
        ("exceeded quota", "failed quota", "must specify"),
        "Raise the ResourceQuota of namespace {namespace}, or change what {places.section} requests",
    ),
    (
        ("podsecurity", "security context constraint"),
        "Let the policy of namespace {namespace} admit the pod, or change spec.pods.securityContext",
    ),
    (
        ("webhook", "validatingadmissionpolicy"),
        (
            "Let the admission policy that refuses it admit the pods of {places.section}, "
            "or give them what it asks for in spec.pods"
        ),
    ),
    (
        ("limitrange", "usage per"),
        "Change the LimitRange of namespace {namespace}, or what {places.section} requests",
    ),
    (("",), "Remove the cause that the answer names in namespace {namespace}"),
)
"""What to do when the API server's answer has one of these words; the first that fits counts."""


def _advice(answer: str, namespace: str, places: _Places) -> str:
    lower = answer.lower()
    if "serviceaccount" in lower.replace(" ", "") and "not found" in lower:
        return f"Create the service account in namespace {namespace}, or name another one in {places.account}"
    advice = next(advice for words, advice in _ADVICE if any(word in lower for word in words))
    return advice.format(namespace=namespace, places=places)


def _application(kubernetes: ReadPort, identity: Identity, run_id: str, places: _Places) -> tuple[RunState, str]:
    job = kubernetes.get("batch/v1", "Job", identity.namespace, run_id)
    if job is not None:
        failure = _failure(job)
        if failure is not None:
            words = f"{failure.get('reason', '')} {failure.get('message', '')}"
            return RunState.FAILED, f"Job {run_id}: {words}; see the log of its pod"
        why, count = refusal(kubernetes, identity, job, places)
        return RunState.CANNOT_START if count >= _FEW_REFUSALS else RunState.PENDING, why
    if not kubernetes.serves(SPARK_API_VERSION, "SparkApplication"):
        return RunState.MISSING, ""
    application = kubernetes.get(SPARK_API_VERSION, "SparkApplication", identity.namespace, run_id)
    if application is None:
        return RunState.MISSING, ""
    state = section(application, "status", "applicationState")
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


def _failure(job: Object) -> Mapping[str, Any] | None:
    """Return the condition of a Job that has failed; None while it has not.

    A condition holds only with the status True (Kubernetes API conventions).
    """
    conditions = entries(job, "status", "conditions")
    return next((c for c in conditions if (c["type"], c["status"]) == ("Failed", "True")), None)


def left_runs(kubernetes: ReadPort, namespace: str, retired: Sequence[RetiredRun]) -> frozenset[str]:
    """Return the ids of the runs of which something is left that was to be removed.

    Raises
    ------
    ObservationError
        The API server does not answer.
    """
    return frozenset(run.run_id for run in retired if _is_left(kubernetes, namespace, run))


def _is_left(kubernetes: ReadPort, namespace: str, run: RetiredRun) -> bool:
    row = RUNS[run.kind]
    wanted = [(*workload, run.run_id) for workload in row.workloads if _is_served(kubernetes, *workload)]
    config_maps = row.leaving_config_maps(run.run_id, keep_report=run.keep_report)
    wanted += [("v1", "ConfigMap", name) for name in config_maps]
    if any(kubernetes.get(api_version, kind, namespace, name) is not None for api_version, kind, name in wanted):
        return True
    # Pods of a workload go with it.
    return not row.workloads and bool(kubernetes.list("v1", "Pod", namespace, f"{LABEL_RUN}={run.run_id}"))


def _is_served(kubernetes: ReadPort, api_version: str, kind: str) -> bool:
    return api_version != SPARK_API_VERSION or kubernetes.serves(api_version, kind)


def running_rehearsal(kubernetes: ReadPort, identity: Identity, status: MigrationStatus) -> RehearsalRun | None:
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
    text = section(config_map, "data").get(RESULT_KEY)
    if text is not None:
        return _ended(run_id, text)
    job = kubernetes.get("batch/v1", "Job", identity.namespace, run_id)
    if job is None:
        return RehearsalRun(run_id, RehearsalProgress.MISSING)
    pods = kubernetes.list("v1", "Pod", identity.namespace, f"{LABEL_RUN}={run_id}")
    if pods:
        return _of_pod(kubernetes, identity, run_id, pods[0])
    failure = _failure(job)
    if failure is not None:
        return RehearsalRun(run_id, RehearsalProgress.CANNOT_START, failure.get("message", ""))
    why, count = refusal(kubernetes, identity, job, _Places("spec.rehearsal", "spec.pods.serviceAccountName"))
    progress = RehearsalProgress.CANNOT_START if count >= _FEW_REFUSALS else RehearsalProgress.READING
    return RehearsalRun(run_id, progress, why or "it has no pod yet")


def _ended(run_id: str, text: str) -> RehearsalRun:
    if len(text) > bounds.RESULT_BYTES:
        most = bounds.size(bounds.RESULT_BYTES)
        words = f"its result has {bounds.size(len(text))}, and {most} is the most that is read"
        return RehearsalRun(run_id, RehearsalProgress.FINISHED, words)
    try:
        result = RehearsalResult.model_validate_json(text)
    except ValidationError as error:
        words = f"its result cannot be read: {error.errors()[0]['msg']}"
        return RehearsalRun(run_id, RehearsalProgress.FINISHED, words)
    return RehearsalRun(run_id, RehearsalProgress.FINISHED, result=result)


def _of_pod(kubernetes: ReadPort, identity: Identity, run_id: str, pod: Object) -> RehearsalRun:
    reader = _terminated(pod, "initContainerStatuses", builder.READER)
    ended = _terminated(pod, "containerStatuses", builder.CONTAINER)
    failed = section(pod, "status").get("phase") == "Failed"
    if ended is not None or failed or section(reader).get("exitCode"):
        return RehearsalRun(run_id, RehearsalProgress.ENDED)
    trouble = workloads.pod_trouble(_without_brokers(pod))
    if trouble:
        progress = RehearsalProgress.READING if _may_pass(trouble) else RehearsalProgress.CANNOT_START
        return RehearsalRun(run_id, progress, trouble)
    if reader is None:
        return RehearsalRun(run_id, RehearsalProgress.READING)
    policy = kubernetes.get(
        "networking.k8s.io/v1", "NetworkPolicy", identity.namespace, builder.policy_name(identity.name)
    )
    fenced = section(policy, "spec", "podSelector", "matchLabels").get(LABEL_RUN) == run_id
    return RehearsalRun(run_id, RehearsalProgress.RUNNING if fenced else RehearsalProgress.UNFENCED)


def _without_brokers(pod: Object) -> Object:
    """Return a rehearsal's pod without the containers of the brokers.

    Without them it still judges Kafka's migration, and says of the brokers that nothing is known.
    """
    status = section(pod, "status")
    others = [c for c in entries(status, "containerStatuses") if not c["name"].startswith(f"{builder.BROKER}-")]
    return {**pod, "status": {**status, "containerStatuses": others}}


def _terminated(pod: Object, statuses: str, name: str) -> Mapping[str, Any] | None:
    for container in entries(pod, "status", statuses):
        if container["name"] == name:
            return section(container, "state").get("terminated")
    return None
