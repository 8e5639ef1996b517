"""``kubectl kraftbridge`` against a real API server, whose CRD rules and resourceVersions judge what it writes."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes.config import kube_config
from typer.testing import CliRunner, Result

from kraftbridge.exceptions import ConflictError
from kraftbridge.models.phase import Target
from kraftbridge.plugin import bundle, main, session

from .conftest import GROUP, NAMESPACE, PLURAL, Cluster
from .test_admission_policies import stateful_set

NAME, BROKERS, PASSWORD = "plugged", "plugin-brokers", "correct-horse-battery"
FINDING = {
    "code": "TopicNotReplicated", "severity": "Blocking", "object": "topic/scratch",
    "reason": "it has one replica", "fix": "add one", "accepted": False,
}  # fmt: skip
Typed = Callable[..., Result]


@pytest.fixture
def typed(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Typed]:
    """Return a function that types a command, about a migration that waits for the word to finalize."""
    for module in (session, bundle):
        monkeypatch.setattr(module, "API_VERSION", f"{GROUP}/v1alpha1")
    for key, value in cluster.environment.items():
        monkeypatch.setenv(key, value)
    if "KUBECONFIG" in cluster.environment:  # The client library reads the variable when it is imported.
        monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", cluster.environment["KUBECONFIG"])
    brokers = stateful_set(BROKERS)
    brokers["spec"]["template"]["spec"]["containers"][0]["env"] = [
        {"name": "KAFKA_ZOOKEEPER_CONNECT", "value": "zookeeper:2181"},
        {"name": "SSL_KEYSTORE_PASSWORD", "value": PASSWORD},
    ]
    secret = {
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "clients", "namespace": NAMESPACE},
        "stringData": {"sasl.password": PASSWORD},
    }  # fmt: skip
    migration: dict[str, Any] = {
        "apiVersion": f"{GROUP}/v1alpha1", "kind": "KafkaMigration", "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {
            "zookeeper": {"connect": "zookeeper:2181"},
            "brokers": {"statefulSets": [{"name": BROKERS}], "bootstrapServers": "kafka:9092", "clientConfigSecret": "clients"},
        },
    }  # fmt: skip
    cluster.apply(brokers, secret, migration)
    status = {"phase": "AwaitingFinalization", "message": "waits for you", "findings": [FINDING]}
    assert cluster.patch(NAME, {"status": status}, dry_run=False) == ""
    place = ["--namespace", NAMESPACE, *(["--context", cluster.context] if cluster.context else [])]

    def run(*arguments: str, answer: str | None = None) -> Result:
        return CliRunner(env={"COLUMNS": "200"}).invoke(main.app, [*arguments, *place], input=answer)

    yield run
    cluster.run("delete", PLURAL, NAME, "--ignore-not-found")
    cluster.run("delete", f"statefulset/{BROKERS}", "secret/clients", "--ignore-not-found")


def spec(cluster: Cluster) -> dict[str, Any]:
    return dict(cluster.get(PLURAL, NAME)["spec"])


def test_it_shows_what_the_server_has(typed: Typed) -> None:
    shown = typed("status", "--once")
    assert shown.exit_code == 0, shown.output
    assert "AwaitingFinalization" in shown.output
    assert "waits for you" in shown.output
    found = typed("findings")
    assert (found.exit_code, "topic/scratch" in found.output) == (1, True)
    planned = typed("plan")
    assert planned.exit_code == 0, planned.output
    assert "+    - name: KAFKA_PROCESS_ROLES" in planned.output
    assert PASSWORD not in planned.output


def test_what_it_writes_is_accepted(cluster: Cluster, typed: Typed) -> None:
    assert typed("accept", "TopicNotReplicated", "topic/scratch", "--yes").exit_code == 0
    assert spec(cluster)["preflight"]["accepted"] == [{"code": "TopicNotReplicated", "object": "topic/scratch"}]
    assert "accepted already" in typed("accept", "TopicNotReplicated", "topic/scratch", "--yes").output
    assert typed("pause").exit_code == 0
    assert spec(cluster)["paused"] is True
    assert typed("resume").exit_code == 0
    assert spec(cluster)["paused"] is False
    assert typed("finalize", answer="n\n").exit_code == 1
    assert spec(cluster)["target"] == "KRaftBrokers"
    assert typed("finalize", answer="y\n").exit_code == 0
    assert spec(cluster)["target"] == "KRaft"
    assert typed("rollback", answer="y\n").exit_code == 0
    assert spec(cluster)["target"] == "ZooKeeper"


def test_a_target_is_set_of_the_migration_that_was_shown(cluster: Cluster, typed: Typed) -> None:
    assert typed("status", "--once").exit_code == 0
    found = session.Session(main.connect(None, cluster.context), NAMESPACE)
    shown = found.migration(NAME)
    assert cluster.patch(NAME, {"spec": {"paused": True}}, dry_run=False) == ""
    with pytest.raises(ConflictError):
        found.set_target(shown, Target.KRAFT)
    assert spec(cluster)["target"] == "KRaftBrokers"


def test_the_archive_has_the_resource_and_no_secret(typed: Typed, tmp_path: Path) -> None:
    archive = tmp_path / "bundle.tar.gz"
    done = typed("bundle", "--output", str(archive))
    assert done.exit_code == 0, done.output
    with tarfile.open(archive) as opened:
        files = {m.name: opened.extractfile(m).read().decode() for m in opened.getmembers()}  # type: ignore[union-attr]
    assert any(name.endswith("migration.yaml") for name in files)
    assert any(f"StatefulSet-{BROKERS}" in name for name in files)
    assert not [name for name, text in files.items() if PASSWORD in text]
