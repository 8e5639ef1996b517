"""Reads the report of a verification run, and the result of a rehearsal, from their ConfigMaps."""

from __future__ import annotations

import base64
import binascii
import gzip
import zlib

from kraftbridge.models.rehearsal import PAGE_KEY, RESULT_KEY
from kraftbridge.models.report import REPORT_KEY, VerificationReport
from kraftbridge.plugin.session import Migration, PluginError
from kraftbridge.storage.ports import KubernetesPort


def unpacked(packed: str) -> str:
    """Return a report's JSON.

    Raises
    ------
    PluginError
        The ConfigMap's value is not a packed report.
    """
    try:
        return gzip.decompress(base64.b64decode(packed, validate=True)).decode()
    except (binascii.Error, OSError, EOFError, ValueError, zlib.error) as error:
        raise PluginError(f"the report cannot be unpacked: {error}") from error


def read_report(kubernetes: KubernetesPort, migration: Migration, run_id: str | None) -> tuple[str, VerificationReport]:
    """Return the JSON and the report of a run; without an id, of the newest run with a report.

    Raises
    ------
    PluginError
        The run does not exist, or its ConfigMap was deleted.
    """
    runs = [v for v in migration.status.verifications if v.report and run_id in {None, v.run_id}]
    if not runs:
        known = ", ".join(v.run_id for v in migration.status.verifications if v.report) or "none"
        raise PluginError(
            f"{migration.name} has no report{f' of run {run_id}' if run_id else ''}; runs with a report: {known}"
        )
    name = runs[-1].report
    config_map = kubernetes.get("v1", "ConfigMap", migration.namespace, name)
    packed = ((config_map or {}).get("data") or {}).get(REPORT_KEY)
    if packed is None:
        raise PluginError(
            f"ConfigMap {migration.namespace}/{name} does not exist or has no report; spec.verification.keepRuns sets how many runs are kept"
        )
    text = unpacked(packed)
    return text, VerificationReport.model_validate_json(text)


def read_rehearsal(kubernetes: KubernetesPort, migration: Migration, name: str, *, page: bool) -> bytes:
    """Return the result of a rehearsal as JSON, or its page.

    Raises
    ------
    PluginError
        The ConfigMap was deleted, or the result had no room for a page.
    """
    config_map = kubernetes.get("v1", "ConfigMap", migration.namespace, name) or {}
    if not page and (text := (config_map.get("data") or {}).get(RESULT_KEY)) is not None:
        return str(text).encode()
    if page and (packed := (config_map.get("binaryData") or {}).get(PAGE_KEY)) is not None:
        return unpacked(packed).encode()
    raise PluginError(
        f"ConfigMap {migration.namespace}/{name} has no {'page' if page else 'result'}; try the other one"
    )
