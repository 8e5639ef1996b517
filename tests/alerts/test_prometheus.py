"""A real Prometheus loads the alerts and scrapes the operator's metrics; the dashboard finds something for every picture."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import start_http_server
from tests.support.programs import free_port

from kraftbridge.models.status import MigrationStatus
from kraftbridge.services import metrics


def migration() -> MigrationStatus:
    now = datetime.now(UTC)

    def at(seconds_ago: float) -> str:
        return (now - timedelta(seconds=seconds_ago)).isoformat()

    run = {
        "runId": "v1", "profile": "dual-write", "gate": "RollingBrokers", "purpose": "entry", "generation": 1, "launchedAt": at(90),
        "releasedAt": at(70), "finishedAt": at(60), "verdict": "Consistent",
    }  # fmt: skip
    conditions = [
        {"type": "Stalled", "status": "True", "reason": "DeadlineExceeded", "lastTransitionTime": at(5)},
        {"type": "RollbackPossible", "status": "True", "reason": "ZooKeeperMirrorsTheLog", "lastTransitionTime": at(5)},
    ]
    return MigrationStatus.model_validate(
        {
            "phase": "DualWrite", "brokers": {"total": 3, "inMode": 1}, "history": [{"phase": "DualWrite", "enteredAt": at(100)}],
            "progressAt": at(9), "quorum": {"highWatermark": "500", "maxLagRecords": "1"}, "migrationOffset": {"offset": "490", "seenAt": at(1)},
            "verifications": [run], "conditions": conditions,
            "impact": {"controllerUnavailable": [{"phase": "TakingOver", "attempt": 1, "milliseconds": 900, "endedAt": at(50)}]},
        }
    )  # fmt: skip


class Prometheus:
    """A running server."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, **query: str) -> Any:
        with urllib.request.urlopen(f"{self.url}{path}?{urllib.parse.urlencode(query)}", timeout=5) as answer:
            return json.load(answer)["data"]

    def samples(self, expression: str) -> list[Any]:
        return list(self.get("/api/v1/query", query=expression)["result"])


@pytest.fixture(scope="module")
def prometheus(
    program: Callable[[str], str], rules: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    folder, target, port = tmp_path_factory.mktemp("prometheus"), free_port(), free_port()
    server, thread = start_http_server(target, addr="127.0.0.1")
    metrics.export("kafka", "demo", migration())
    metrics.OBSERVATION_ERRORS.labels("ZooKeeper").inc()
    metrics.ACTIONS.labels("Apply", "done").inc()
    metrics.STEP_SECONDS.observe(0.1)
    job = {"job_name": "kb-metrics", "honor_labels": True, "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}
    configuration = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": [str(rules)], "scrape_configs": [job],
    }  # fmt: skip
    (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [program("prometheus"), f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log,
        )  # fmt: skip
    found = Prometheus(f"http://127.0.0.1:{port}")
    try:
        wait_for(lambda: len(found.samples("rate(kraftbridge_step_duration_seconds_count[1m])")) == 1, folder / "log")
        yield found
    finally:
        process.terminate()
        process.wait(30)
        server.shutdown()
        thread.join()
        metrics.forget("kafka", "demo")


def wait_for(holds: Callable[[], bool], log: Path, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            if holds():
                return
        except OSError:
            pass
        assert time.monotonic() < end, log.read_text()[-3000:]
        time.sleep(0.5)


def test_every_alert_is_loaded_and_evaluates(prometheus: Prometheus, rules: Path) -> None:
    (wanted,) = yaml.safe_load(rules.read_text())["groups"]
    (group,) = prometheus.get("/api/v1/rules")["groups"]
    assert [rule["name"] for rule in group["rules"]] == [rule["alert"] for rule in wanted["rules"]]
    assert {rule["name"]: rule["lastError"] for rule in group["rules"] if rule.get("lastError")} == {}
    assert {rule["health"] for rule in group["rules"]} == {"ok"}


def test_a_stalled_migration_is_an_alert_of_that_migration(prometheus: Prometheus) -> None:
    alerts = {alert["labels"]["alertname"]: alert for alert in prometheus.get("/api/v1/alerts")["alerts"]}
    stalled = alerts["KraftbridgeMigrationStalled"]
    assert (stalled["labels"]["namespace"], stalled["labels"]["name"]) == ("kafka", "demo")
    assert "kafka/demo" in stalled["annotations"]["summary"]
    assert "KraftbridgeRollbackNotPossible" not in alerts


def test_every_picture_of_the_dashboard_shows_something(prometheus: Prometheus, dashboard: list[str]) -> None:
    assert len(dashboard) > 10
    assert [expression for expression in dashboard if not prometheus.samples(expression)] == []
