"""Migrations whose clusters do not answer cost the others nothing: neither health, nor their first step, nor writes."""

from __future__ import annotations

import socket
import time
import urllib.request
from typing import Any

import pytest
from tests.component.conftest import Cluster

SILENT = 30
"""Migrations whose ZooKeeper and brokers have names that the name server does not answer for."""
STATUSES = "/apis/kraftbridge.dev/v1alpha1/namespaces/kafka/kafkamigrations/silent-"
NAME_SERVER_SECONDS = 3.0
FIRST_STEP_SECONDS = 15.0
HEALTH_SECONDS = 2.0


def status_writes(cluster: Cluster) -> list[tuple[str, str]]:
    return [w for w in list(cluster.api.writes) if w[1].startswith(STATUSES) and w[1].endswith("/status")]


def test_clusters_that_do_not_answer_starve_nobody(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    resolve, names = socket.getaddrinfo, [f"silent-{i}" for i in range(SILENT)]

    def silent(host: Any, *arguments: Any, **options: Any) -> Any:
        if ".invalid" in str(host):
            time.sleep(NAME_SERVER_SECONDS)
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return resolve(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    for name in names:
        brokers = {"statefulSets": [{"name": "kafka"}], "bootstrapServers": f"{name}.invalid:9092"}
        cluster.create(name, brokers=brokers, zookeeper={"connect": f"zookeeper.{name}.invalid:2181"})
    cluster.eventually(lambda: all(cluster.condition(n, "Stalled")[0] == "True" for n in names))
    found = {f["code"] for f in cluster.status(names[0])["findings"]}
    assert {"KafkaUnreachable", "ZooKeeperUnreachable"} <= found
    started, slowest = time.monotonic(), 0.0
    cluster.create("newcomer", brokers={"statefulSets": [{"name": "nowhere"}], "bootstrapServers": "kafka:9092"})
    while cluster.condition("newcomer", "Stalled")[0] != "True":
        asked = time.monotonic()
        with urllib.request.urlopen(cluster.health_url, timeout=5) as answer:
            assert answer.status == 200
        slowest = max(slowest, time.monotonic() - asked)
        assert time.monotonic() - started < FIRST_STEP_SECONDS, "a new migration waits behind those that do not answer"
        time.sleep(0.05)
    assert slowest < HEALTH_SECONDS
    before = len(status_writes(cluster))
    time.sleep(3 * NAME_SERVER_SECONDS)
    assert len(status_writes(cluster)) == before, "nothing changed, so nothing is written"
