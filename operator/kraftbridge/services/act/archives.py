"""Archives znodes that the operator overwrites or deletes, in objects without an owner, so that they remain."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from pydantic import ValidationError

from kraftbridge.builders import names
from kraftbridge.constants import API_VERSION, GROUP, KIND
from kraftbridge.exceptions import ActionRefusedError
from kraftbridge.models.entities import ENTITY_KINDS
from kraftbridge.models.objects import section
from kraftbridge.models.observation import Archive
from kraftbridge.models.report import REPORT_KEY, Difference, VerificationReport
from kraftbridge.models.status import FindingStatus
from kraftbridge.outside import bounds
from kraftbridge.storage.ports import ReadPort

ANNOTATION_RUN = f"{GROUP}/run"
ANNOTATION_ENTITIES = f"{GROUP}/entities"
FINDINGS_KEY = "findings.json.gz"
ARCHIVE_KEY = "archive.json.gz"
MAXIMUM_ARCHIVE_BYTES = 1_000_000
"""The API server refuses Secrets over 1 MiB."""


def report_of(config_map: Mapping[str, Any]) -> VerificationReport:
    """Return the complete report of a run.

    Raises
    ------
    ActionRefusedError
        The report is missing or cannot be read. Its differences cannot be archived, so they must not be overwritten.
    """
    name = config_map["metadata"]["name"]
    packed = section(config_map, "data").get(REPORT_KEY)
    if packed is None:
        raise ActionRefusedError(f"ConfigMap {name} holds no report, so what differs cannot be archived")
    source = f"the report in ConfigMap {name}"
    advice = "Restore the ConfigMap, or let the verification run again"
    try:
        text = bounds.unpacked(base64.b64decode(packed), source, bounds.REPORT_BYTES, advice)
        # pydantic's own parser takes 800 bytes for an empty list.
        return VerificationReport.model_validate(bounds.json_value(text, source, bounds.REPORT_VALUES, advice))
    except (ValidationError, OSError, EOFError, ValueError) as error:
        raise ActionRefusedError(f"the report in ConfigMap {name} cannot be read: {error}") from error


def paths_of(differences: Iterable[Difference]) -> list[str]:
    """Return the znodes of entities; a partition has two."""
    paths = (ENTITY_KINDS[difference.kind].paths(difference.key) for difference in differences)
    return list(dict.fromkeys(chain.from_iterable(paths)))


def secret(
    namespace: str, name: str, migration: str, report: VerificationReport, values: Mapping[str, bytes | None]
) -> dict[str, Any]:
    """Return the immutable Secret with differences and znodes. It is a Secret because credentials can differ too.

    Raises
    ------
    ActionRefusedError
        The report does not list every difference, or the data is too large.
    """
    if len(report.differences) < report.differing:
        raise ActionRefusedError(
            f"the report of {report.run_id} names {len(report.differences)} of {report.differing} differing entities: "
            "the rest cannot be archived, so nothing is overwritten; repair them by hand"
        )
    document = {
        "runId": report.run_id,
        "archivedAt": datetime.now(UTC).isoformat(),
        "znodes": {path: None if value is None else _shown(value) for path, value in values.items()},
        "differences": [d.model_dump(mode="json", by_alias=True, exclude_none=True) for d in report.differences],
    }
    packed = gzip.compress(json.dumps(document, ensure_ascii=False).encode(), mtime=0)
    if len(packed) > MAXIMUM_ARCHIVE_BYTES:
        raise ActionRefusedError(
            f"{report.differing} differing entities of {report.run_id} do not fit into a Secret ({len(packed)} "
            "bytes), so nothing is overwritten; repair them by hand"
        )
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": names.labels(migration),
            "annotations": {ANNOTATION_RUN: report.run_id, ANNOTATION_ENTITIES: str(report.differing)},
        },
        "immutable": True,
        "data": {ARCHIVE_KEY: base64.b64encode(packed).decode()},
    }


def znodes(namespace: str, name: str, migration: str, values: Mapping[str, bytes | None]) -> dict[str, Any]:
    """Return the ConfigMap with the znodes that a rollback deletes, by the last part of their paths."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": names.labels(migration)},
        "data": {p.rpartition("/")[2]: v.decode(errors="replace") for p, v in values.items() if v is not None},
    }


def findings(namespace: str, name: str, migration: str, uid: str, findings: Iterable[FindingStatus]) -> dict[str, Any]:
    """Return the ConfigMap with all preflight findings. It is deleted with the migration."""
    listed = [f.model_dump(mode="json", by_alias=True) for f in findings]
    packed = gzip.compress(json.dumps(listed, ensure_ascii=False).encode(), mtime=0)
    owner = {"apiVersion": API_VERSION, "kind": KIND, "name": migration, "uid": uid}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": names.labels(migration),
            "ownerReferences": [owner],
        },
        "binaryData": {FINDINGS_KEY: base64.b64encode(packed).decode()},
    }


def read(secret: Mapping[str, Any]) -> Archive:
    """Return the content of an archive by its annotations."""
    annotations = section(secret, "metadata", "annotations")
    entities = annotations.get(ANNOTATION_ENTITIES, "")
    return Archive(annotations.get(ANNOTATION_RUN, ""), int(entities) if entities.isdecimal() else -1)


def find(kubernetes: ReadPort, namespace: str, name: str) -> Archive | None:
    """Return the content of an archive; None if it does not exist."""
    config_map = kubernetes.get("v1", "Secret", namespace, name)
    return None if config_map is None else read(config_map)


def _shown(value: bytes) -> dict[str, str]:
    """Return a znode's payload as text if it is text, so that it can be restored exactly."""
    try:
        return {"text": value.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
