"""JSON in ZooKeeper that is nested deeply, or that has text which UTF-8 cannot write: always a finding or a verdict, never a trace."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from kraftbridge.exceptions import MetadataError, RehearsalError
from kraftbridge.metadata.copying import Claim, copied_entities, is_krafts
from kraftbridge.metadata.entities import Secrets
from kraftbridge.metadata.zookeeper.reader import read_dump, redacted_data, write_dump
from kraftbridge.metadata.zookeeper.soundness import cluster_id, findings_of
from kraftbridge.metadata.zookeeper.tree import DumpReading
from kraftbridge.metadata.zookeeper.znodes import Znode
from kraftbridge.models.entities import ENTITY_KINDS
from kraftbridge.models.report import Profile, Verdict, VerdictSummary, VerificationReport
from kraftbridge.plugin.redaction import secrets_in as secrets_in_text
from kraftbridge.rehearsal.traps import mends
from kraftbridge.rehearsal.tree import SnapshotWriter, disarm, secrets_in
from kraftbridge.storage import zookeeper as store
from kraftbridge.verification.page import render_page
from kraftbridge.verification.sources.rows import ZOOKEEPER, Leg, entity_batches

PATHS = (
    "/brokers/ids/0",
    "/brokers/topics/orders",
    "/brokers/topics/orders/partitions/0/state",
    "/cluster/id",
    "/config/brokers/0",
    "/config/changes/config_change_1",
    "/config/clients/c",
    "/config/topics/orders",
    "/config/users/alice",
    "/controller",
    "/delegation_token/tokens/t",
    "/kafka-acl/Topic/orders",
    "/latest_producer_id_block",
    "/migration",
)
DEEP = (
    "[" * 3_000,
    '{"a":' * 3_000,
    '{"config":' + "[" * 900 + "]" * 900 + "}",
    '{"config":{"a.password":' + "[" * 990 + "]" * 990 + "}}",
)
TEXT = '"\\ud800"'
LONELY = (
    f'{{"version":1,"config":{{{TEXT}:"1","a":{TEXT},"b.password":{TEXT},"SCRAM-SHA-256":{TEXT}}}}}',
    f'{{"version":1,"config":{{{TEXT}:"1"}}}}',
    f'{{"version":1,"acls":[{{"principal":{TEXT},"permissionType":"Allow","host":"*","operation":{TEXT}}}]}}',
    f'{{"version":1,"acls":[{{"principal":{TEXT},"permissionType":"Allow","host":"*","operation":"Read"}}]}}',
    f'{{"version":5,"endpoints":["\\ud800://h:1"],"listener_security_protocol_map":{{{TEXT}:{TEXT}}}}}',
    f'{{"version":3,"tokenId":{TEXT},"renewers":[{TEXT}],"owner":{TEXT}}}',
    f'{{"id":{TEXT},"topic_id":{TEXT},"version":3,"partitions":{{{TEXT}:[0]}}}}',
    f'{{"version":1,"broker":-1,"block_start":{TEXT},"block_end":{TEXT}}}',
)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("text", [*DEEP, *LONELY], ids=lambda text: text[:60])
def test_odd_json_ends_in_findings_that_can_be_written(tmp_path, path: str, text: str) -> None:
    znode = Znode(path, text.encode())
    dump = tmp_path / "zk.jsonl"
    write_dump([znode], dump, "")
    reading = DumpReading(Secrets(b"test"))
    claim = Claim()
    reading.take(claim.watch(read_dump(dump, "")))
    entities = list(reading.entities())
    rows = [row for batch in entity_batches(Leg.MIRROR, ZOOKEEPER, entities) for row in batch.to_pylist()]
    assert {(row["kind"], row["key"]) for row in rows} == {(entity.kind, entity.key) for entity in entities}
    assert all(ENTITY_KINDS[entity.kind].paths(entity.key) for entity in entities), "it can be read again"
    findings = findings_of(read_dump(dump, ""), None)
    problems = [*reading.problems.values(), *(finding.reason for finding in findings)]
    report = VerificationReport(
        run_id="r",
        profile=Profile.COPY,
        verdict=Verdict.INCONSISTENT,
        reason="; ".join(problems),
        problems=problems,
        findings=findings,
        started_at=datetime.now(UTC),
        finished_at=datetime.now(UTC),
    )
    assert json.loads(report.to_json().encode())["findings"] == json.loads(report.to_json())["findings"]
    assert VerdictSummary.of(report).to_json().encode()
    assert render_page(report).encode()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("text", [*DEEP, *LONELY], ids=lambda text: text[:60])
def test_every_reader_of_a_znode_bears_odd_json(tmp_path, path: str, text: str) -> None:
    data = text.encode()
    znode, node = Znode(path, data), (data, SimpleNamespace(ephemeralOwner=1, version=0))
    dump = tmp_path / "zk.jsonl"
    write_dump([znode], dump, "")
    write_dump([znode], tmp_path / "redacted.jsonl", "", key=b"k" * 32)
    redacted = redacted_data(path, data, b"k" * 32)
    assert redacted is not None
    if text in LONELY and '"config":{' in text:
        assert json.loads(redacted).keys() == json.loads(data).keys(), "what can be read is kept"
    is_krafts(path, data)
    cluster_id(data)
    list(secrets_in(znode))
    secrets_in_text(text)
    disarm(0, data, (1,))
    reading = DumpReading(Secrets(b"test"))
    reading.take([znode])
    calls: list[Any] = [
        lambda: list(copied_entities(reading)),
        lambda: mends(dump, "", ()),
        lambda: snapshot(znode, tmp_path),
    ]
    for call in calls:
        with suppress(MetadataError, RehearsalError):
            call()
    read: list[Any] = [
        lambda: store.cluster_id(node),
        lambda: store.controller_znode(node),
        lambda: store.broker_znode(0, node),
        lambda: store.reassigns(node),
        lambda: store.canary_quota(node),
    ]
    for call in read:
        with suppress(ValueError, KeyError, TypeError, AttributeError):  # what `ZooKeeperStore.observe` expects
            call()


def snapshot(znode: Znode, directory) -> None:
    writer = SnapshotWriter((1,))
    writer.take([znode])
    writer.write(directory / "zk")
