"""What is kept of ZooKeeper before a failover overwrites it."""

from __future__ import annotations

import base64
import gzip
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from kraftbridge.exceptions import ActionRefusedError
from kraftbridge.models.entities import EntityKind
from kraftbridge.models.report import (
    REPORT_KEY,
    AttributeDifference,
    Difference,
    DifferenceState,
    Profile,
    Verdict,
    VerdictSummary,
    VerificationReport,
)
from kraftbridge.services.act import archives

NOW = datetime(2026, 3, 4, tzinfo=UTC)


def difference(kind: EntityKind, key: str, *attributes: str, **changes: Any) -> Difference:
    fields: dict[str, Any] = {
        "kind": kind,
        "key": key,
        "state": DifferenceState.CHANGED,
        "present_in": ["zookeeper", "log"],
        "attributes": [AttributeDifference(name=a, values={"zookeeper": "1", "log": "2"}) for a in attributes],
    }
    return Difference(**(fields | changes))


def report(*differences: Difference, differing: int | None = None) -> VerificationReport:
    return VerificationReport(
        run_id="demo-1", profile=Profile.DUAL_WRITE, verdict=Verdict.INCONSISTENT, reason="they differ",
        differing=len(differences) if differing is None else differing, differences=list(differences), started_at=NOW, finished_at=NOW,
    )  # fmt: skip


ISR = difference(EntityKind.PARTITION, "orders-3", "isr", "leaderEpoch")
REPLICAS = difference(EntityKind.PARTITION, "orders-3", "isr", "replicas")
LACKING = difference(
    EntityKind.PARTITION, "orders-4", "isr", "replicas", state=DifferenceState.MISSING, present_in=["log"], absent_in=["zookeeper"]
)  # fmt: skip
EXTRA = difference(
    EntityKind.PARTITION, "old-0", "isr", state=DifferenceState.EXTRA, present_in=["zookeeper"], absent_in=["log"]
)
ACL = difference(
    EntityKind.ACL, '["TOPIC","LITERAL","orders","User:a","*","READ","ALLOW"]', state=DifferenceState.EXTRA, present_in=["zookeeper"], absent_in=["log"],
)  # fmt: skip
VOTER = difference(EntityKind.TOPIC, "orders", "id", present_in=["log", "voter 3001", "zookeeper"])
REGISTRATION = difference(EntityKind.BROKER_REGISTRATION, "2", "endpoints")
TWICE = difference(EntityKind.TOPIC, "orders", state=DifferenceState.DUPLICATE)


@pytest.mark.parametrize(
    ("found", "mirror", "state"),
    [(ISR, 1, 1), (LACKING, 1, 1), (REPLICAS, 1, 0), (EXTRA, 1, 0), (ACL, 1, 0), (VOTER, 0, 0), (REGISTRATION, 0, 0), (TWICE, 0, 0)],
)  # fmt: skip
def test_a_summary_says_what_a_failover_would_heal(found: Difference, mirror: int, state: int) -> None:
    summary = VerdictSummary.of(report(found))
    assert (summary.mirror_differing, summary.partition_state_differing) == (mirror, state)


def test_an_archive_holds_every_znode_as_it_was() -> None:
    found = report(ISR, ACL)
    paths = archives.paths_of(found.differences)
    assert paths == ["/brokers/topics/orders", "/brokers/topics/orders/partitions/3/state", "/kafka-acl/TOPIC/orders"]
    values: dict[str, bytes | None] = {paths[0]: b'{"a": 1}', paths[1]: None, paths[2]: b"\xff\x00"}
    secret = archives.secret("kafka", "demo-1-archive", "demo", found, values)
    assert secret["immutable"] is True
    assert "ownerReferences" not in secret["metadata"]
    document = json.loads(gzip.decompress(base64.b64decode(secret["data"][archives.ARCHIVE_KEY])))
    assert document["znodes"] == {paths[0]: {"text": '{"a": 1}'}, paths[1]: None, paths[2]: {"base64": "/wA="}}
    assert [d["key"] for d in document["differences"]] == ["orders-3", ACL.key]
    assert archives.read(secret) == archives.Archive("demo-1", 2)


def test_what_the_report_leaves_out_is_not_overwritten() -> None:
    with pytest.raises(ActionRefusedError, match="names 1 of 3"):
        archives.secret("kafka", "a", "demo", report(ISR, differing=3), {})


def test_what_does_not_fit_is_not_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAXIMUM_ARCHIVE_BYTES", 100)
    with pytest.raises(ActionRefusedError, match="do not fit"):
        archives.secret("kafka", "a", "demo", report(ISR), {"/x": b"y" * 1000})


@pytest.mark.parametrize(
    "data", [{}, {REPORT_KEY: "bm90IGd6aXA="}, {REPORT_KEY: "###"}], ids=["none", "no gzip", "junk"]
)
def test_a_report_that_cannot_be_read_is_refused(data: dict[str, str]) -> None:
    with pytest.raises(ActionRefusedError, match="report"):
        archives.report_of({"metadata": {"name": "demo-1-verification"}, "data": data})


def test_a_stranger_in_the_archives_place_is_no_archive() -> None:
    assert archives.read({"metadata": {}}).entities == -1
