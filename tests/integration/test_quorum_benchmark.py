"""`python -m benchmarks quorum` against a running cluster: every change is seen on every broker, and nothing is left behind."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from benchmarks.command_line import main
from benchmarks.quorum.run import LOADS
from tests.support.kafka_processes import ZOOKEEPER, kafka_processes, wait_for

from kraftbridge.storage.kafka_brokers import BrokerClient

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.xdist_group("kafka-processes")]

BROKERS = (0, 1)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder: Path = tmp_path_factory.mktemp("samples")
    with kafka_processes(BROKERS, []) as processes:
        processes.start_zookeeper()
        for broker in BROKERS:
            processes.extra_broker_settings[broker] = (
                "authorizer.class.name=kafka.security.authorizer.AclAuthorizer\nsuper.users=User:ANONYMOUS\n"
            )
            processes.start_broker(broker, ZOOKEEPER)
        client = BrokerClient(processes.bootstrap_servers, {})
        wait_for("two brokers", lambda: len(client.cluster_state().brokers) == len(BROKERS))
        command = ["quorum", "--bootstrap-servers", processes.bootstrap_servers, "--mode", "zookeeper"]
        assert main([*command, "--load", "tiny", "--output", str(folder)]) == 0
        left = wait_for("its topics to go", lambda: (s,) if (s := client.cluster_state()).partitions == 0 else None)[0]
        assert left.partitions == 0
        client.close()
    (file,) = folder.iterdir()
    with gzip.open(file, "rt") as lines:
        return [json.loads(line) for line in lines]


def test_every_change_is_acknowledged_and_seen_on_every_broker(rows: list[dict[str, Any]]) -> None:
    samples = [row for row in rows if row["type"] == "sample"]
    tiny = LOADS["tiny"]
    assert Counter(s["workload"] for s in samples) == {
        "create-topics": tiny.creates,
        "alter-configs": tiny.configs,
        "acls": tiny.acls,
        "grow-partitions": tiny.creates,
        "reassign-partitions": tiny.creates,
        "delete-topics": tiny.creates,
        "create-topics-burst": tiny.burst,
        "alter-configs-burst": tiny.burst,
    }
    for sample in samples:
        assert sample["error"] is None
        assert sample["scheduled_ms"] <= sample["sent_ms"] < sample["acknowledged_ms"], sample
        # An ACL that is deleted again may go before every broker was asked for it.
        if sample["visible_ms"] is not None or sample["workload"] != "acls":
            assert sample["sent_ms"] < sample["visible_ms"], sample
            assert 0 <= sample["resolution_ms"] <= sample["visible_ms"] - sample["sent_ms"] + 1, sample


def test_the_machines_load_is_noted(rows: list[dict[str, Any]]) -> None:
    (run,) = [row for row in rows if row["type"] == "run"]
    assert run["cpus"] >= 1
    assert all(len(row["loadavg"].split()) == 4 for row in rows if row["type"] in {"run", "load"})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--bootstrap-servers", "127.0.0.1:1"], "needs --mode"),
        (["--bootstrap-servers", "127.0.0.1:1", "--mode", "kraft"], "none answered"),
        ([], "give --kafka-home"),
        (["--kafka-home", "."], "is missing"),
    ],
)
def test_what_cannot_be_measured_is_a_clear_error(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("KAFKA_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    assert main(["quorum", *arguments, "--output", str(tmp_path / "out")]) == 2
    assert words in caplog.text
    assert not (tmp_path / "out").exists()
