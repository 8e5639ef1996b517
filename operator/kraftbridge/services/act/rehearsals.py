"""Executes the actions of a rehearsal that are its own: it is launched, fenced, and collected."""

from __future__ import annotations

import base64
import binascii
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from kraftbridge.builders import rehearsal as builder
from kraftbridge.config import Settings
from kraftbridge.constants import LABEL_RUN
from kraftbridge.copies.admission import Alike, additions, alike
from kraftbridge.copies.kraft_mode import kraft_brokers
from kraftbridge.models.decision import CollectRun, FenceRun, LaunchRun
from kraftbridge.models.objects import entries, section
from kraftbridge.models.rehearsal import (
    PAGE_KEY,
    PAGE_MARK,
    RESULT_KEY,
    RESULT_MARK,
    Ending,
    RehearsalResult,
    RehearsalVerdict,
    RehearsedSettings,
)
from kraftbridge.models.status import first
from kraftbridge.outside import bounds
from kraftbridge.services.act.step import Step, create_once
from kraftbridge.services.dry_starts import DryStarter
from kraftbridge.services.facts import Facts
from kraftbridge.services.observe import workloads
from kraftbridge.storage.ports import KubernetesPort

_LOG_LINES = 200
"""A container runtime splits long lines into parts of 16 KiB."""


def launch(facts: Facts, settings: Settings, dry_starts: DryStarter, step: Step, action: LaunchRun) -> None:
    """Make the ConfigMap and the Job; its pod reads the tree and waits for its fence.

    Raises
    ------
    MigrationError
        The API server refuses, or does not answer.
    """
    run = _launched(facts, settings, dry_starts, step, action.run_id)
    for obj in (builder.config_map(step.spec, run), builder.job(step.spec, run)):
        create_once(step.kubernetes, obj)


def fence(facts: Facts, settings: Settings, dry_starts: DryStarter, step: Step, action: FenceRun) -> None:
    """Close the pod, now that it has read the tree. It starts Kafka once it reaches nothing.

    A pod that admission changed is not closed: the rehearsal ends without a verdict before Kafka starts.

    Raises
    ------
    MigrationError
        The API server refuses, or does not answer.
    """
    run = _launched(facts, settings, dry_starts, step, action.run_id)
    namespace = step.identity.namespace
    sent = builder.job(step.spec, run)["spec"]["template"]
    done = _admitted_alike(step)
    for pod in step.kubernetes.list("v1", "Pod", namespace, f"{LABEL_RUN}={action.run_id}"):
        if changed := additions(sent, pod, done, by_job=True):
            words = f"pod {pod['metadata']['name']} is not as it was sent, so no controller was started in it"
            text = _without_verdict(f"{words}: admission of this cluster changed it ({first(changed)})")
            step.kubernetes.merge_patch("v1", "ConfigMap", namespace, action.run_id, {"data": {RESULT_KEY: text}})
            return
    step.kubernetes.apply(builder.network_policy(run), force=True)


def collect(step: Step, action: CollectRun) -> None:
    """Take the result from the pod's log into the ConfigMap.

    Raises
    ------
    MigrationError
        The API server refuses, or does not answer.
    """
    namespace = step.identity.namespace
    pods = step.kubernetes.list("v1", "Pod", namespace, f"{LABEL_RUN}={action.run_id}")
    text, page = _result(step.kubernetes, namespace, pods[0]["metadata"]["name"] if pods else "")
    patch: dict[str, Any] = {"data": {RESULT_KEY: text}}
    if page:
        patch["binaryData"] = {PAGE_KEY: page}
    step.kubernetes.merge_patch("v1", "ConfigMap", namespace, action.run_id, patch)


def _launched(
    facts: Facts, settings: Settings, dry_starts: DryStarter, step: Step, run_id: str
) -> builder.RehearsalFacts:
    """Return what the Job is made from."""
    return replace(
        _facts(facts, settings, step, run_id), brokers=_brokers(dry_starts, step), pull_secrets=_pull_secrets(step)
    )


def _admitted_alike(step: Step) -> Alike:
    """Return what admission did to the brokers' running pods."""
    pairs = []
    for ref in step.spec.brokers.stateful_sets:
        stateful_set = step.kubernetes.get("apps/v1", "StatefulSet", step.identity.namespace, ref.name)
        if stateful_set is not None:
            pods = step.kubernetes.list("v1", "Pod", step.identity.namespace, workloads.pods_selector(stateful_set))
            names = {pod.name for pod in workloads.pods_of(stateful_set, pods)}
            pairs += [(stateful_set["spec"]["template"], pod) for pod in pods if pod["metadata"]["name"] in names]
    return alike(pairs)


def _facts(facts: Facts, settings: Settings, step: Step, run_id: str) -> builder.RehearsalFacts:
    return builder.RehearsalFacts(
        run_id=run_id,
        migration_uid=step.identity.uid,
        verifier_image=step.spec.verification.image or settings.verifier_image,
        controllers=facts.controllers(step.migration),
        beyond_the_cluster=settings.beyond_the_cluster,
        plan=() if step.status.roll_plan is None else step.status.roll_plan.lines,
    )


def _brokers(dry_starts: DryStarter, step: Step) -> tuple[RehearsedSettings, ...]:
    """Return the brokers as the last dry start shows them; none without one."""
    record = step.status.dry_start
    report = None if record is None else dry_starts.report(step.identity, record)
    return kraft_brokers(report, step.spec.brokers.container)


def _pull_secrets(step: Step) -> tuple[str, ...]:
    """Return the Secrets with which the brokers' pods pull their images."""
    names: dict[str, None] = {}
    for ref in step.spec.brokers.stateful_sets:
        stateful_set = step.kubernetes.get("apps/v1", "StatefulSet", step.identity.namespace, ref.name)
        template = section(stateful_set, "spec", "template", "spec")
        names |= dict.fromkeys(secret["name"] for secret in entries(template, "imagePullSecrets"))
    return tuple(names)


def _result(kubernetes: KubernetesPort, namespace: str, pod: str) -> tuple[str, str]:
    """Return the result as JSON and the page from the log; without a result, one that reports its absence."""
    words = "its pod is gone"
    for container in (builder.CONTAINER, builder.FENCE, builder.READER):
        log = kubernetes.pod_logs(namespace, pod, container, _LOG_LINES) if pod else None
        if log is None:
            continue
        lines = log.splitlines()
        page = next((line[len(PAGE_MARK) :] for line in reversed(lines) if line.startswith(PAGE_MARK)), "")
        for line in reversed(lines):
            if line.startswith(RESULT_MARK):
                try:
                    packed = base64.b64decode(line[len(RESULT_MARK) :], validate=True)
                    advice = "Rehearse again"
                    return bounds.unpacked(
                        packed, f"the result of pod {pod}", bounds.RESULT_BYTES, advice
                    ).decode(), page
                except (binascii.Error, OSError, UnicodeDecodeError) as error:
                    words = f"its result is not whole: {error}"
        if lines and words == "its pod is gone":
            words = f"container {container} of pod {pod} ended without a result; its log ends with: {lines[-1][:200]}"
    return _without_verdict(words), ""


def _without_verdict(reason: str) -> str:
    now = datetime.now(UTC)
    return RehearsalResult(
        verdict=RehearsalVerdict.UNKNOWN, reason=reason, ending=Ending.NOT_STARTED, started_at=now, finished_at=now
    ).to_json()
