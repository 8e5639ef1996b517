"""The support archive has what helps, and no secret that was planted anywhere."""

from __future__ import annotations

import base64
import json
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.fakes import FakeKubernetes
from tests.support.observations import NOW, open_gate
from typer.testing import CliRunner

from kraftbridge.constants import ANNOTATION_RECORD_STEP
from kraftbridge.models.decision import Decision
from kraftbridge.models.phase import Phase
from kraftbridge.models.redaction import REMOVED, Redactor
from kraftbridge.phases import recorded_step
from kraftbridge.phases.draft import Migration
from kraftbridge.phases.machine import decide
from kraftbridge.phases.recorded_step import recorded
from kraftbridge.plugin import main as plugin
from kraftbridge.plugin.redaction import secrets_in, values_of
from kraftbridge.plugin.session import PluginError
from kraftbridge.services.act import steps
from kraftbridge.services.act.steps import config_map

from .test_commands import FINDING, Run, packed_report, status, with_report

PLANTED = {
    "zookeeper password": "zk-5ecret-Value",
    "client password": "cl1ent-pa55w0rd",
    "listener key": "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcw",
    "encoder secret": "enc0der-value-x",
    "recorded environment": "rec0rded-jaas-pw",
    "environment variable": "env-p4ssw0rd-q",
    "in a log": "bm90LXNlY3JldC1idXQtYmFzaWM=",
    "token in a log": "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0abc.c2lnbmF0dXJl",
    "setting in a log": "l0gged-keystore-pw",
    "in a ConfigMap": "c0nfigmap-jaas-pw",
    "setting that Kafka does not define": "und3fined-of-a-vendor",
    "variable that Kafka does not define": "und3fined-variable",
    "option of the JVM": "jvm-0ption-pass",
    "address with a login": "pr0xy-login",
}


def secret(name: str, labels: dict[str, str] | None = None, **data: str) -> dict[str, Any]:
    encoded = {k.replace("_", "."): base64.b64encode(v.encode()).decode() for k, v in data.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": "kafka", "labels": labels or {}},
        "data": encoded,
    }


@pytest.fixture
def planted(kubernetes: FakeKubernetes, migrate: Any) -> FakeKubernetes:
    jaas = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="app" password="{}";'
    pem = f"-----BEGIN PRIVATE KEY-----\n{PLANTED['listener key']}\n-----END PRIVATE KEY-----\n"
    kubernetes.create(secret("zk-auth", username="zk-user", password=PLANTED["zookeeper password"]))
    kubernetes.create(
        secret(
            "client",
            client_properties=f"security.protocol=SASL_SSL\nsasl.jaas.config={jaas.format(PLANTED['client password'])}\n",
        )
    )
    kubernetes.create(secret("listener", tls_key=pem, listener_properties="ssl.keystore.location=/x\n"))
    kubernetes.create(secret("encoder", secret=PLANTED["encoder secret"]))
    recorded = {
        "container": {
            "env": [{"name": "KAFKA_SASL_JAAS_CONFIG", "value": jaas.format(PLANTED["recorded environment"])}]
        }
    }
    ours = {"kraftbridge.dev/migration": "demo"}
    kubernetes.create(secret("demo-before", ours, kafka=json.dumps(recorded)))
    config_map = {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kafka-kraftbridge-migration", "namespace": "kafka", "labels": ours},
        "data": {"server.properties": f"broker.id=1\nvendor.handle={PLANTED['setting that Kafka does not define']}\nlistener.name.x.sasl.jaas.config={jaas.format(PLANTED['in a ConfigMap'])}\n"},
    }  # fmt: skip
    kubernetes.create(config_map)
    found = kubernetes.objects["StatefulSet", "kafka", "kafka"]
    found["spec"]["template"]["spec"]["containers"][0]["env"] += [
        {"name": "KAFKA_SSL_KEY_PASSWORD", "value": PLANTED["environment variable"]},
        {"name": "KAFKA_VENDOR_HANDLE", "value": PLANTED["variable that Kafka does not define"]},
        {"name": "KAFKA_OPTS", "value": f"-Dx.keyStorePass={PLANTED['option of the JVM']} -Dy=z"},
        {"name": "HTTPS_PROXY", "value": f"http://user:{PLANTED['address with a login']}@proxy:3128"},
        {"name": "ENCODER", "valueFrom": {"secretKeyRef": {"name": "encoder", "key": "secret"}}},
    ]
    pods = [name for kind, _, name in kubernetes.objects if kind == "Pod"]
    assert pods
    for pod in pods:
        kubernetes.logs[pod] = (
            f"started\nusing {PLANTED['environment variable']} and {PLANTED['zookeeper password']}\n"
            f"Authorization: Basic {PLANTED['in a log']}\nssl.keystore.password = {PLANTED['setting in a log']}\n"
            f"token {PLANTED['token in a log']}\nbroker 1 is ready\n"
        )
    controllers = {
        "listener": {"securityProtocol": "SSL", "secretName": "listener"},
        "passwordEncoderSecret": {"name": "encoder", "key": "secret"},
    }
    migrate(
        status("DualWrite", findings=[FINDING]),
        zookeeper={"connect": "zk-0.zk:2181/kafka", "secretName": "zk-auth"},
        brokers={
            "statefulSets": [{"name": "kafka"}],
            "bootstrapServers": "kafka-0.kafka:9092",
            "clientConfigSecret": "client",
        },
        controllers=controllers,
    )
    with_report(kubernetes, packed_report())
    kubernetes.objects["ConfigMap", "kafka", "demo-v3-verification"]["metadata"]["labels"] = dict(ours)
    return kubernetes


def files_of(archive: Path) -> dict[str, str]:
    with tarfile.open(archive) as opened:
        return {m.name.partition("/")[2]: opened.extractfile(m).read().decode() for m in opened.getmembers()}  # type: ignore[union-attr]


def test_no_planted_secret_is_in_the_archive(planted: FakeKubernetes, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "support.tar.gz"
    answer = run("bundle", "-o", str(path))
    assert answer.exit_code == 0, answer.output
    files = files_of(path)
    everything = "\n".join(files.values())
    assert [what for what, value in PLANTED.items() if value in everything] == []
    encoded = [what for what, value in PLANTED.items() if base64.b64encode(value.encode()).decode() in everything]
    assert encoded == []
    assert everything.count(REMOVED) >= len(PLANTED)
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_helps_is_in_it(planted: FakeKubernetes, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "support.tar.gz"
    run("bundle", "-o", str(path))
    files = files_of(path)
    assert "reports/demo-v3-verification.json" in files
    assert "broker 1 is ready" in files["logs/kafka-0-kafka.log"]
    assert "StatefulSet-kafka.yaml" in " ".join(files)
    assert "secretName: zk-auth" in files["migration.yaml"], "names of Secrets are no secrets"
    assert "KAFKA_ZOOKEEPER_CONNECT" in files["objects/StatefulSet-kafka.yaml"]
    assert "zk-0.zk:2181/kafka" in files["objects/StatefulSet-kafka.yaml"]
    assert "anybody may talk to it" in files["migration.yaml"]
    assert "events.yaml" in files
    assert not [name for name in files if "Secret" in name]


def test_a_secret_that_redaction_misses_is_an_error(
    planted: FakeKubernetes, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Redactor, "redact", lambda _self, text: text)
    answer = run("bundle", "-o", str(tmp_path / "x.tar.gz"))
    assert isinstance(answer.exception, PluginError)
    assert "after redaction" in str(answer.exception)
    assert not (tmp_path / "x.tar.gz").exists()


@pytest.mark.parametrize(
    "text",
    [
        "ssl.key.password=hush-hush",
        "KAFKA_SASL_JAAS_CONFIG: hush-hush",
        '{"password": "hush-hush"}',
        "password='hush-hush'",
        "- name: MY_SECRET\n  value: hush-hush\n",
        "sasl.jaas.config=org.x.Plain required password=hush-hush;",
        "Bearer hush-hush-hush-hush",
    ],
)
def test_unknown_secrets_go_by_their_looks(text: str) -> None:
    assert "hush" not in Redactor().redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "broker.id=1",
        "zookeeper.connect=zk:2181/kafka",
        "secretName: zk-auth",
        "message: nothing differs",
        "kind: Secret",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert Redactor(["other-value"]).redact(text) == text


def test_words_of_a_properties_file_are_no_secrets() -> None:
    found = values_of(secret("x", client_properties="security.protocol=SSL\nssl.truststore.password=trusted-one\n"))
    assert "trusted-one" in found
    assert "SSL" not in found
    assert secrets_in("security.protocol=SSL") == set()


def recording(kubernetes: FakeKubernetes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an operator record a step as soon as the plugin asks for it."""
    patch = kubernetes.merge_patch
    asked_for = migration_of_dual_write()

    def patched(*where: Any, **options: Any) -> Any:
        answer = patch(*where, **options)
        annotations = where[4].get("metadata", {}).get("annotations", {})
        if ANNOTATION_RECORD_STEP in annotations:
            decision = decide(asked_for, OBSERVED, NOW)
            document = recorded(asked_for, OBSERVED, NOW, decision, b"key")
            uid = kubernetes.objects["KafkaMigration", "kafka", "demo"]["metadata"]["uid"]
            identity = replace(asked_for.identity, uid=uid)
            kubernetes.apply(config_map(identity, document, annotations[ANNOTATION_RECORD_STEP]), force=True)
        return answer

    monkeypatch.setattr(kubernetes, "merge_patch", patched)


def migration_of_dual_write() -> Migration:
    fine = open_gate(Phase.DUAL_WRITE)
    return Migration(fine.identity, fine.spec, fine.status)


OBSERVED = open_gate(Phase.DUAL_WRITE).observation


def test_an_archive_is_replayed_without_a_cluster(
    planted: FakeKubernetes, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording(planted, monkeypatch)
    path = tmp_path / "support.tar.gz"
    assert run("bundle", "-o", str(path)).exit_code == 0
    assert "step.json" not in files_of(path)["README.txt"]
    answer = CliRunner().invoke(plugin.app, ["replay", str(path)])
    assert answer.exit_code == 0, answer.output
    assert "decides the same" in answer.output


def test_a_step_that_no_config_map_takes_is_named(
    planted: FakeKubernetes, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "_MAXIMUM_BYTES", 10)
    recording(planted, monkeypatch)
    path = tmp_path / "support.tar.gz"
    assert run("bundle", "-o", str(path)).exit_code == 0
    assert "step.json" not in files_of(path)
    assert "step.json: the step is too large for a ConfigMap" in files_of(path)["README.txt"]


def test_a_replay_shows_what_is_decided_otherwise(
    planted: FakeKubernetes, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording(planted, monkeypatch)
    path = tmp_path / "support.tar.gz"
    run("bundle", "-o", str(path))
    monkeypatch.setattr(recorded_step, "decide", lambda migration, *_: Decision(migration.status))
    answer = CliRunner().invoke(plugin.app, ["replay", str(path)])
    assert answer.exit_code == 1
    assert "+++ kraftbridge" in answer.output


def test_an_archive_without_an_operator_says_so(planted: FakeKubernetes, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "support.tar.gz"
    answer = run("bundle", "-o", str(path))
    assert answer.exit_code == 0
    assert "the operator recorded no step" in files_of(path)["README.txt"]
    answer = CliRunner().invoke(plugin.app, ["replay", str(path)])
    assert isinstance(answer.exception, PluginError)
    assert "has no step.json" in str(answer.exception)


@pytest.mark.parametrize("content", [b"", b"no archive", b"\x1f\x8b\x08broken"])
def test_what_is_no_archive_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "support.tar.gz"
    path.write_bytes(content)
    answer = CliRunner().invoke(plugin.app, ["replay", str(path)])
    assert isinstance(answer.exception, PluginError)
    assert str(path) in str(answer.exception)


def test_a_link_in_place_of_the_step_is_no_step(tmp_path: Path) -> None:
    path = tmp_path / "support.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        link = tarfile.TarInfo("support/step.json")
        link.type = tarfile.SYMTYPE
        link.linkname = "elsewhere"
        archive.addfile(link)
    answer = CliRunner().invoke(plugin.app, ["replay", str(path)])
    assert isinstance(answer.exception, PluginError)
    assert "has no step.json" in str(answer.exception)
