"""Observes dry starts: the pods and the ConfigMap of the one that runs, and what the last one found."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from kraftbridge.builders import dry_start_pods as builder
from kraftbridge.builders import image_pulls
from kraftbridge.constants import LABEL_RUN
from kraftbridge.copies.dry_start import copies_in
from kraftbridge.copies.image_pulls import has_tried
from kraftbridge.models.dry_start import (
    NOT_PULLED_KEY,
    PLAN_KEY,
    PROBLEM_KEY,
    CopyOutcome,
    DryStartPlan,
    DryStartReport,
    DryStartRun,
    DryStartStage,
    FenceProof,
    ImagePull,
    MadePods,
    RunPod,
)
from kraftbridge.models.objects import section
from kraftbridge.models.status import DryStartRunStatus, DryStartStatus
from kraftbridge.outside import bounds
from kraftbridge.pods.fence import EXIT_REACHED
from kraftbridge.services.copy_outcomes import exit_code, reached_by
from kraftbridge.services.observe import workloads
from kraftbridge.storage.ports import Object, ReadPort

PLAN: Final = TypeAdapter(DryStartPlan)
MADE: Final = TypeAdapter(MadePods)
OUTCOMES: Final = TypeAdapter(tuple[CopyOutcome, ...])
NOT_PULLED: Final = TypeAdapter(tuple[ImagePull, ...])
_ADVICE: Final = "Delete the ConfigMap: the dry start is then repeated"


def running_dry_start(kubernetes: ReadPort, namespace: str, run: DryStartRunStatus) -> DryStartRun:
    """Return how far a dry start is.

    Raises
    ------
    ObservationError
        The API server does not answer.
    """
    pods = kubernetes.list("v1", "Pod", namespace, f"{LABEL_RUN}={run.run_id}")
    config_map = kubernetes.get("v1", "ConfigMap", namespace, run.run_id)
    if config_map is None:
        return DryStartRun(run.run_id)
    data = section(config_map, "data")
    try:
        plan = plan_of(config_map)
        collected = collected_of(config_map)
        made = {stage: made_pods(config_map, stage) for stage in DryStartStage if stage.made_key in data}
    except (ValidationError, ValueError, OSError) as error:
        problem = f"ConfigMap {run.run_id} of the dry start cannot be read: {error}"
        return DryStartRun(run.run_id, problem=problem)
    proof = None
    names: list[str] = []
    is_pulling = run.stage is DryStartStage.PULLS
    if plan is not None and is_pulling:
        names = [image_pulls.pull_name(key, run.run_id) for key in plan.pulls]
    elif plan is not None:
        probe = builder.probe_name(run.run_id)
        probes = [pod for pod in pods if pod["metadata"]["name"] == probe and not _is_gated(pod)]
        proof = _proof(probes[0], plan) if probes else None
        keys = copies_in(plan, run.stage, collected, choosing=run.choosing)
        names = [builder.copy_name(key, run.run_id) for key in keys]
    by_name = {pod["metadata"]["name"]: pod for pod in pods}
    return DryStartRun(
        run.run_id,
        plan,
        problem=data.get(PROBLEM_KEY, ""),
        made=frozenset(made),
        pods=tuple(run_pod(by_name[name], pulls=is_pulling) for name in names if name in by_name),
        proof=proof,
        collected=collected,
    )


def last_report(kubernetes: ReadPort, namespace: str, record: DryStartStatus) -> DryStartReport | None:
    """Return what the last dry start found; None if that is gone or cannot be read.

    Raises
    ------
    ObservationError
        The API server does not answer.
    """
    if record.problem:
        return DryStartReport(record.digest, problem=record.problem)
    config_map = kubernetes.get("v1", "ConfigMap", namespace, record.run_id)
    try:
        plan = plan_of(config_map)
        collected = collected_of(config_map)
        not_pulled = NOT_PULLED.validate_json(section(config_map, "data").get(NOT_PULLED_KEY, "[]"))
    except (ValidationError, ValueError, OSError):
        return None
    if plan is None:
        return None
    trials = (DryStartStage.FIRST_TRIALS, DryStartStage.LAST_TRIALS)
    return DryStartReport(
        record.digest,
        collected.get(DryStartStage.COPIES, ()),
        tuple(outcome for stage in trials for outcome in collected.get(stage, ())),
        record.reached,
        untried=plan.untried,
        not_pulled=not_pulled,
        nodes_unknown=plan.nodes_unknown,
    )


def plan_of(config_map: Mapping[str, Any] | None) -> DryStartPlan | None:
    """Return the plan in the ConfigMap of a dry start, None if there is none.

    Raises
    ------
    ValidationError
        It is none.
    """
    text = section(config_map, "data").get(PLAN_KEY)
    return None if text is None else PLAN.validate_json(text)


def collected_of(config_map: Mapping[str, Any] | None) -> dict[DryStartStage, tuple[CopyOutcome, ...]]:
    """Return what the copies of each stage that has ended showed.

    Raises
    ------
    OSError, ValueError
        It cannot be read.
    """
    packed = section(config_map, "binaryData")
    return {stage: _outcomes(packed[stage.outcomes_key]) for stage in DryStartStage if stage.outcomes_key in packed}


def _outcomes(packed: str) -> tuple[CopyOutcome, ...]:
    source = "what the copies showed"
    text = bounds.unpacked(base64.b64decode(packed), source, bounds.COPIES_BYTES, _ADVICE)
    return OUTCOMES.validate_python(bounds.json_value(text, source, bounds.COPIES_VALUES, _ADVICE))


def made_pods(config_map: Mapping[str, Any] | None, stage: DryStartStage) -> MadePods:
    """Return the pods of a stage that were made; none if it has not been recorded.

    Raises
    ------
    ValidationError
        It cannot be read.
    """
    return MADE.validate_json(section(config_map, "data").get(stage.made_key, "{}"))


def _is_gated(pod: Object) -> bool:
    return bool(section(pod, "spec").get("schedulingGates"))


def _has_ended(pod: Object) -> bool:
    return section(pod, "status").get("phase") in ("Succeeded", "Failed")


def run_pod(pod: Object, *, pulls: bool = False) -> RunPod:
    """Return how far a pod of a run is, a copy or one that pulls images."""
    ended = has_tried(pod) if pulls else _has_ended(pod)
    return RunPod(pod["metadata"]["name"], _is_gated(pod), ended, workloads.pod_trouble(pod))


def _proof(pod: Object, plan: DryStartPlan) -> FenceProof:
    name = pod["metadata"]["name"]
    trouble = workloads.pod_trouble(pod)
    if not _has_ended(pod):
        return FenceProof(name, trouble=trouble)
    code = exit_code(pod, builder.PROBE)
    if code == 0:
        return FenceProof(name, ended=True)
    if code == EXIT_REACHED:
        # It ended as reached without saying what: everything counts as reached.
        return FenceProof(name, ended=True, reached=reached_by(pod, builder.PROBE) or plan.closed)
    return FenceProof(name, ended=True, trouble=trouble or f"its exit code is {code}")
