"""Executes the actions of a rehearsal."""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime
from typing import Any

from kraftbridge.builders import rehearsal as builder
from kraftbridge.config import Settings
from kraftbridge.exceptions import ConflictError
from kraftbridge.models.decision import CollectRehearsal, FenceRehearsal, LaunchRehearsal, RemoveRehearsal
from kraftbridge.models.rehearsal import (
    PAGE_KEY,
    PAGE_MARK,
    RESULT_KEY,
    RESULT_MARK,
    Ending,
    RehearsalResult,
    RehearsalVerdict,
)
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.models.status import MigrationStatus
from kraftbridge.outside import bounds
from kraftbridge.phases.draft import Identity
from kraftbridge.services.facts import Facts
from kraftbridge.storage.ports import KubernetesPort

_LOG_LINES = 200
"""A container runtime splits long lines into parts of 16 KiB."""


def carry_out(
    kubernetes: KubernetesPort,
    facts: Facts,
    settings: Settings,
    identity: Identity,
    spec: MigrationSpec,
    status: MigrationStatus,
    action: LaunchRehearsal | FenceRehearsal | CollectRehearsal | RemoveRehearsal,
) -> None:
    """Execute one action of a rehearsal. Each action can be repeated.

    Raises
    ------
    MigrationError
        The API server refuses, or does not answer.
    """
    namespace = identity.namespace
    match action:
        case LaunchRehearsal(run_id):
            run = _facts(facts, settings, identity, spec, status, run_id)
            for obj in (builder.config_map(spec, run), builder.job(spec, run)):
                _create(kubernetes, obj)
        case FenceRehearsal(run_id):
            run = _facts(facts, settings, identity, spec, status, run_id)
            kubernetes.apply(builder.network_policy(run), force=True)
        case CollectRehearsal(run_id, pod):
            text, page = _result(kubernetes, namespace, pod)
            patch: dict[str, Any] = {"data": {RESULT_KEY: text}}
            if page:
                patch["binaryData"] = {PAGE_KEY: page}
            kubernetes.merge_patch("v1", "ConfigMap", namespace, run_id, patch)
        case RemoveRehearsal(run_id, keep_report):
            kubernetes.delete("batch/v1", "Job", namespace, run_id)
            if not keep_report:
                kubernetes.delete("v1", "ConfigMap", namespace, run_id)


def _facts(
    facts: Facts, settings: Settings, identity: Identity, spec: MigrationSpec, status: MigrationStatus, run_id: str
) -> builder.RehearsalFacts:
    return builder.RehearsalFacts(
        run_id=run_id,
        migration_uid=identity.uid,
        verifier_image=spec.verification.image or settings.verifier_image,
        controllers=facts.controllers(identity, spec, status),
    )


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
    now = datetime.now(UTC)
    lost = RehearsalResult(
        verdict=RehearsalVerdict.UNKNOWN, reason=words, ending=Ending.NOT_STARTED, started_at=now, finished_at=now
    )
    return lost.to_json(), ""


def _create(kubernetes: KubernetesPort, obj: dict[str, Any]) -> None:
    try:
        kubernetes.create(obj)
    except ConflictError:
        return  # an earlier attempt created it
