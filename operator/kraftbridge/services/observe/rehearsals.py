"""Reads rehearsals from their ConfigMaps and pods."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from kraftbridge.builders import rehearsal as builder
from kraftbridge.constants import LABEL_RUN
from kraftbridge.models.observation import RehearsalProgress, RehearsalRun
from kraftbridge.models.rehearsal import RESULT_KEY, RehearsalResult
from kraftbridge.models.status import MigrationStatus
from kraftbridge.phases.draft import Identity
from kraftbridge.services.observe import workloads
from kraftbridge.storage.ports import KubernetesPort, Object


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
