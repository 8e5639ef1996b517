"""What is read from nodes: spans between log lines, replicas and gauges of an exporter's page."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from benchmarks.quorum.cluster import _span
from benchmarks.quorum.gauges import node_gauges, replicas
from benchmarks.quorum.run import heap_for
from tests.unit.storage.servers import http_server

LOG = """[2026-11-20 17:12:28,100] INFO 0 successfully elected as the controller (kafka.controller.KafkaController)
[2026-11-20 17:12:28,300] INFO Ready to serve as the new controller with epoch 1 (kafka.controller.KafkaController)
a line without a time
[2026-11-20 17:13:00,000] INFO 0 successfully elected as the controller (kafka.controller.KafkaController)
[2026-11-20 17:13:01,525] INFO Ready to serve as the new controller with epoch 2 (kafka.controller.KafkaController)
"""
PAGE = """# TYPE kafka_server_ReplicaManager_Value untyped
kafka_server_ReplicaManager_Value{name="PartitionCount",} 3000.0
kafka_server_ReplicaManager_Value{name="UnderReplicatedPartitions",} 7.0
kafka_log_LogFlushStats_Mean{name="LogFlushRateAndTimeMs",} 1.5
kafka_log_LogFlushStats_Max{name="LogFlushRateAndTimeMs",} 0.0
kafka_log_LogFlushStats_StdDev{name="LogFlushRateAndTimeMs",} 2.5
kafka_server_raft_metrics_commit_latency_avg 4.25
kafka_server_raft_metrics_commit_latency_max NaN
kafka_server_socket_server_metrics_connection_count{listener="x",} 3.0
"""


@pytest.mark.parametrize(
    ("since", "seconds"),
    [("17:12:00", 0.2), ("17:12:30", 1.525), ("17:13:00", None)],
)
def test_a_span_begins_after_the_incident(tmp_path: Path, since: str, seconds: float | None) -> None:
    path = tmp_path / "broker-0.log"
    path.write_text(LOG)
    after = datetime.fromisoformat(f"2026-11-20T{since}")
    assert _span(path, after, "successfully elected", "Ready to serve") == seconds


def test_an_end_that_never_came_is_none(tmp_path: Path) -> None:
    path = tmp_path / "broker-0.log"
    path.write_text(LOG.splitlines()[0])
    assert _span(path, datetime(2026, 1, 1), "successfully elected", "Ready to serve") is None  # noqa: DTZ001 - as in logs


def test_gauges_of_a_page_are_those_that_are_asked_for_and_say_something() -> None:
    with http_server() as server:
        server.respond = lambda _: (200, PAGE)
        assert replicas(server.port) == (3000, 7)
        assert dict(node_gauges(server.port)) == {
            "kafka_log_LogFlushStats_Mean[LogFlushRateAndTimeMs]": 1.5,
            "kafka_server_raft_metrics_commit_latency_avg": 4.25,
        }
        server.respond = lambda _: (200, PAGE.replace("UnderReplicated", "Other"))
        assert replicas(server.port) is None, "one of them says nothing of the other"
    assert replicas(server.port) is None
    assert list(node_gauges(server.port)) == []


def test_heap_grows_with_the_cluster_within_bounds() -> None:
    assert [heap_for(n) for n in (10, 1000, 10_000, 10**6)] == ["512m", "512m", "1000m", "4096m"]
