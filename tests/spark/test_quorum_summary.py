"""The aggregation of raw samples: figures that can be checked by hand, through files as they are kept."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest
from benchmarks.quorum.aggregation import Summary, read_rows, summarize
from benchmarks.quorum.page import markdown_tables, render_page
from benchmarks.quorum.samples import Sample, SampleFile, Setting
from pyspark.sql import SparkSession

DELAYS = {
    1: {"zookeeper": 100.0, "kraft": 10.0},
    2: {"zookeeper": 300.0, "kraft": 30.0},
    3: {"zookeeper": 200.0, "kraft": 20.0},
}
COUNT = 400


def samples(workload: str, delay: float, count: int) -> list[Sample]:
    """Every tenth millisecond a change is due; the last one is seen ten times as late, the first never."""
    found = []
    for n in range(count):
        due, late = 10.0 * n, delay * (10 if n == count - 1 else 1)
        visible = None if n == 0 else due + 2 * late
        found.append(Sample(workload, n, due, due + 1, due + late, visible, 1.0, 1, None))
    return found


@pytest.fixture(scope="module")
def summary(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Summary:
    folder = tmp_path_factory.mktemp("raw")
    (folder / "page.html").write_text("<html>an earlier page</html>")
    for number, delays in DELAYS.items():
        with SampleFile(folder / f"{number}.jsonl.gz") as file:
            for mode, delay in delays.items():
                setting = Setting("run", number, mode, 1000)
                file.write("run", setting, {"cpus": 2, "at": f"2026-01-01T00:00:0{number}+00:00", "loadavg": "1 2 3"})
                for sample in samples("create-topics", delay, COUNT):
                    file.write("sample", setting, asdict(sample))
                burst = [
                    Sample("create-topics-burst", n, 0.0, 0.0, delay * n, delay * n, 1.0, 1, None) for n in range(11)
                ]
                failover = [
                    Sample("alter-configs-during-controller-failover", 0, 0.0, 1.0, 2.0, 3.0, 1.0, 1, None),
                    Sample("alter-configs-during-controller-failover", 1, 40.0, 41.0, 5000.0, 5001.0, 1.0, 9, None),
                    Sample("alter-configs-during-controller-failover", 2, 60.0, 61.0, 4000.0, 4001.0, 1.0, 1, None),
                    Sample("alter-configs-during-controller-failover", 3, 70.0, 71.0, None, None, None, 5, "refused"),
                ]
                for sample in (*burst, *failover):
                    file.write("sample", setting, asdict(sample))
                file.write(
                    "incident",
                    setting,
                    {
                        "workload": "alter-configs-during-controller-failover",
                        "node": "controller-3000",
                        "at_ms": 50.0,
                        "seconds": {"stopped_s": 0.1, "port_open_s": 2.0, "isr_full_s": 3.0},
                    },
                )
                file.write("gauge", setting, {"node": "controller-3000", "active": True, "name": "g", "value": delay})
                file.write("gauge", setting, {"node": "controller-3001", "active": False, "name": "g", "value": 9e9})
                file.write("stage", setting, {"name": "fill", "seconds": delay})
    return summarize(read_rows(spark, [str(folder)]))


def row(rows: tuple[dict[str, object], ...], **wanted: object) -> dict[str, object]:
    found = [r for r in rows if all(r[key] == value for key, value in wanted.items())]
    assert len(found) == 1
    return found[0]


def test_latency_counts_from_the_time_at_which_a_change_was_due(summary: Summary) -> None:
    found = row(summary.latencies, workload="create-topics", mode="zookeeper")
    assert (found["n"], found["failed"], found["unseen"], found["rounds"]) == (3 * COUNT, 0, 3, 3)
    assert [found[f"acknowledged_p50{end}"] for end in ("", "_min", "_max")] == [200.0, 100.0, 300.0]
    assert found["visible_p50"] == 400.0
    assert found["visible_max"] == 6000.0


def test_a_p999_needs_a_thousand_samples(summary: Summary) -> None:
    assert row(summary.latencies, workload="create-topics", mode="kraft")["visible_p999"] > 60
    assert row(summary.latencies, workload="create-topics-burst", mode="kraft")["visible_p999"] is None


def test_throughput_of_a_burst(summary: Summary) -> None:
    found = row(summary.bursts, workload="create-topics-burst", mode="kraft")
    assert found["visible_per_second"] == pytest.approx(11 * 1000 / 200)
    assert found["visible_per_second_min"] == pytest.approx(11 * 1000 / 300, abs=0.01)


def test_failover_counts_from_the_kill_to_the_first_answer_to_what_was_sent_after_it(summary: Summary) -> None:
    assert len(summary.failovers) == 6
    for found in summary.failovers:
        assert found["first_acknowledged_ms"] == 3950.0
        assert found["seconds"]["isr_full_s"] == 3.0


def test_gauges_are_those_of_the_active_node(summary: Summary) -> None:
    assert row(summary.gauges, mode="kraft")["value"] == 20.0
    assert row(summary.stages, mode="zookeeper")["seconds_max"] == 300.0


def test_page_and_tables_say_the_same_and_load_nothing(summary: Summary) -> None:
    page, tables = render_page(summary), markdown_tables(summary)
    for words in ("200 (100 … 300)", "1,000 partitions"):
        assert words in page
        assert words in tables
    assert page.count("<polyline") == 2 * 3
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")


def test_no_samples_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    with SampleFile(tmp_path / "empty.jsonl") as file:
        file.write("stage", Setting("run", 1, "kraft", 1), {"name": "fill", "seconds": 1.0})
    with pytest.raises(ValueError, match="no samples"):
        read_rows(spark, [str(tmp_path)])
