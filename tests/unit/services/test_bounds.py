"""Limits of the API server, changed credentials, and what an abandoned migration leaves."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import pytest
import yaml
from tests.support.fakes import FakeKafka, fake_clients
from tests.unit.services.conftest import Operator

from kraftbridge.config import Settings
from kraftbridge.exceptions import ActionRefusedError, TooLargeError
from kraftbridge.models.observation import TopicRedundancy
from kraftbridge.models.phase import Phase
from kraftbridge.services import reconcile
from kraftbridge.services.clients import ClusterClients

MANY = 4000


def findings_report(operator: Operator) -> list[dict[str, Any]]:
    report = operator.status().findings_report
    assert report is not None
    config_map = operator.kubernetes.objects["ConfigMap", "kafka", report.config_map]
    packed = base64.b64decode(config_map["binaryData"]["findings.json.gz"])
    listed: list[dict[str, Any]] = json.loads(gzip.decompress(packed))
    assert len(listed) == report.total
    return listed


def test_four_thousand_findings_fit_and_the_whole_list_is_in_the_report(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = tuple(f"a-topic-with-a-rather-long-name-{i}" for i in range(MANY))
    before = operator.kafka.topic_redundancy
    monkeypatch.setattr(operator.kafka, "topic_redundancy", lambda: redundancy(topics))
    operator.rest(4)
    status = operator.status()
    assert status.phase is Phase.PREFLIGHT
    assert len(json.dumps(operator.migration()["status"])) < 300_000
    assert len(status.findings) == 100
    assert {f.severity for f in status.findings} == {"Blocking"}, "what closes the gate is listed first"
    listed = findings_report(operator)
    assert {f["object"] for f in listed if f["code"] == "TopicNotReplicated"} == {f"topic/{t}" for t in topics}
    writes = len([c for c in operator.kubernetes.calls if c[:2] == ("apply", "ConfigMap")])
    operator.rest(5)
    assert len([c for c in operator.kubernetes.calls if c[:2] == ("apply", "ConfigMap")]) == writes, "written once"
    monkeypatch.setattr(operator.kafka, "topic_redundancy", before)
    operator.clock.advance(60)
    operator.reconciler._memories.clear()
    operator.walk(Phase.PROVISIONING_QUORUM)
    assert operator.status().findings_report is None


def redundancy(topics: tuple[str, ...]) -> TopicRedundancy:
    return TopicRedundancy(replication_factor_one=topics, at_min_isr=())


@pytest.mark.parametrize(
    ("error", "tries"),
    [
        (TooLargeError("status update of KafkaMigration kafka/demo answered 413: limit is 3145728"), 1),
        (ActionRefusedError("status update of KafkaMigration kafka/demo answered 422: invalid"), 3),
    ],
)
def test_a_status_that_the_api_server_refuses_is_told_and_nothing_is_done(
    operator: Operator, error: ActionRefusedError, tries: int
) -> None:
    operator.walk(Phase.PROVISIONING_QUORUM)
    done = len(operator.acts())
    refused: list[int] = []

    def refuse(verb: str, _kind: str, _name: str) -> None:
        if verb == "replace_status" and len(refused) < tries:
            refused.append(1)
            raise error

    operator.kubernetes.before_call = refuse
    for _ in range(tries):
        assert operator.step() is None
    assert len(operator.acts()) == done
    (event,) = [e for e in operator.kubernetes.events if e.reason == "Refused"]
    assert str(error) in event.message
    stalled = next(c for c in operator.status().conditions if c.type == "Stalled")
    assert (stalled.status, stalled.reason) == ("True", "StatusRefused")
    assert str(error) in operator.status().message
    operator.walk(Phase.TAKING_OVER)


def test_connections_are_opened_anew_when_a_secret_changes(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = {"kind": "Secret", "metadata": {"name": "client", "namespace": "kafka"}, "data": {}}
    operator.kubernetes.create(secret)
    document = operator.migration()["spec"]
    operator.edit(brokers=document["brokers"] | {"clientConfigSecret": "client"})
    opened: list[FakeKafka] = []

    def connections(*_: object) -> ClusterClients:
        opened.append(operator.kafka)
        return fake_clients(operator.kafka)

    settings = Settings(operator_image="operator:test", verifier_image="verifier:test")
    reconciler = reconcile.Reconciler(operator.kubernetes, settings, connections)
    monkeypatch.setattr(reconcile, "_CREDENTIALS_SECONDS", 0.0)
    for _ in range(3):
        reconciler.step("kafka", "demo")
    assert len(opened) == 1
    operator.kubernetes.merge_patch("", "Secret", "kafka", "client", {"data": {"client.properties": "YT1i"}})
    reconciler.step("kafka", "demo")
    assert len(opened) == 2
    operator.kubernetes.delete("", "Secret", "kafka", "client")
    reconciler.step("kafka", "demo")
    assert len(opened) == 2, "absent for a moment, as when it is replaced"
    operator.kubernetes.create(secret)
    reconciler.step("kafka", "demo")
    assert len(opened) == 3
    reconciler.close()


def test_an_abandoned_migration_lists_what_it_leaves(operator: Operator) -> None:
    operator.edit(target="DualWrite")
    operator.walk(Phase.DUAL_WRITE)
    controllers, uid = operator.controllers(), operator.migration()["metadata"]["uid"]
    operator.reconciler.abandon("kafka", "demo")
    config_map = operator.kubernetes.objects["ConfigMap", "kafka", f"demo-abandoned-{uid[:8]}"]
    assert "ownerReferences" not in config_map["metadata"], "it stays when the migration is gone"
    document = yaml.safe_load(config_map["data"]["left-behind.yaml"])
    assert document["phase"] == "DualWrite"
    assert {f"StatefulSet/{controllers}", f"Secret/demo-before-{uid[:8]}", f"Service/{controllers}"} <= set(
        document["objects"]
    )
    assert {f"PersistentVolumeClaim/data-{controllers}-{i}" for i in (3000, 3001, 3002)} <= set(document["objects"])
    (brokers,) = document["brokers"]
    assert brokers["template"].startswith("Migration")
    assert set(brokers["pods"]) == {"kafka-0", "kafka-1", "kafka-2"}
    assert document["znodes"] == ["/controller", "/migration"]
    assert any("demo-abandoned" in e.message for e in operator.kubernetes.events)


def test_a_migration_that_changed_nothing_leaves_nothing(operator: Operator) -> None:
    operator.edit(target="Preflight")
    operator.rest(3)
    before = set(operator.kubernetes.objects)
    operator.reconciler.abandon("kafka", "demo")
    assert set(operator.kubernetes.objects) == before
