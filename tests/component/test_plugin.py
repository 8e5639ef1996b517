"""The kubectl plugin as its user runs it: its own client, a kubeconfig, and an operator at work on the same API server."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.component.conftest import Cluster
from typer.testing import CliRunner, Result

from kraftbridge.plugin import main as plugin

NAME = "plugged"


def typed(*arguments: str, answer: str | None = None) -> Result:
    options = ["--namespace", "kafka", "--kubeconfig", os.environ["KUBECONFIG"]]
    return CliRunner(env={"COLUMNS": "200"}).invoke(plugin.app, [*arguments, *options], input=answer)


@pytest.fixture(scope="module")
def migration(cluster: Cluster) -> Iterator[str]:
    cluster.create(NAME, target="QuorumReady")
    cluster.eventually(lambda: cluster.condition(NAME, "Ready") == ("True", "TargetReached"))
    yield NAME
    stamp = {"metadata": {"deletionTimestamp": cluster.store.clock.now.isoformat()}}
    assert typed("rollback", NAME, "--yes").exit_code == 0
    cluster.eventually(lambda: cluster.status(NAME)["phase"] == "RolledBack")
    cluster.store.merge_patch("", "KafkaMigration", "kafka", NAME, stamp)
    cluster.eventually(lambda: cluster.migration(NAME) is None)


def test_status_and_findings_are_what_the_operator_wrote(cluster: Cluster, migration: str) -> None:
    shown = typed("status", migration).output
    assert "◉ ProvisioningQuorum" in shown
    assert "in mode ZooKeeper" in shown
    codes = {finding["code"] for finding in cluster.status(migration)["findings"]}
    listed = typed("findings", migration)
    assert all(code in listed.output for code in codes)


def test_plan_shows_what_the_operator_will_apply(cluster: Cluster, migration: str) -> None:
    shown = typed("plan", migration)
    assert shown.exit_code == 0, shown.exception
    assert "+++ StatefulSet kafka: Migration" in shown.output
    assert f"3000@{cluster.status(migration)['controllers']['name']}-3000" in shown.output


def test_pause_reaches_the_operator(cluster: Cluster, migration: str) -> None:
    assert typed("pause", migration).exit_code == 0
    cluster.eventually(
        lambda: (
            cluster.condition(migration, "Reconciling")[1] == "Paused"
            or "paused" in cluster.status(migration)["message"].lower()
        )
    )
    assert typed("resume", migration).exit_code == 0
    cluster.eventually(lambda: cluster.condition(migration, "Ready") == ("True", "TargetReached"))


def test_rehearse_asks_the_operator_and_shows_its_answer(cluster: Cluster, migration: str, tmp_path: Path) -> None:
    """Here the quorum is ready and waits for the user, who wants to know once more."""
    before = cluster.status(migration)["rehearsal"]
    with cluster.at_work():
        again = typed("rehearse", migration, "-o", str(tmp_path / "result.json"))
    assert again.exit_code == 0, (again.output, again.exception)
    assert "Works" in again.output
    assert "without a controller" in again.output
    after = cluster.status(migration)["rehearsal"]
    assert after["count"] == before["count"] + 1
    assert after["runId"] != before["runId"]
    assert json.loads((tmp_path / "result.json").read_text())["verdict"] == "Works"
    assert after["runId"] not in typed("rehearse", migration, "--last").output
    assert cluster.status(migration)["rehearsal"]["count"] == after["count"], "--last runs none"


def test_the_archive_is_written(cluster: Cluster, migration: str, tmp_path: Path) -> None:
    path = tmp_path / "support.tar.gz"
    answer = typed("bundle", migration, "-o", str(path), "--operator-namespace", "kafka")
    assert answer.exit_code == 0, (answer.output, answer.exception)
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "migration.yaml",
        "events.yaml",
        "README.txt",
        "objects/StatefulSet-kafka.yaml",
        f"objects/StatefulSet-{cluster.status(migration)['controllers']['name']}.yaml",
    } <= names
    assert not any("Secret" in name for name in names)
