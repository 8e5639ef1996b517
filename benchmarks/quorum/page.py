"""The figures as Markdown tables and as one self-contained HTML page without scripts; pictures are inline SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from benchmarks.quorum.aggregation import CURVE, Row, Summary
from benchmarks.quorum.samples import MODES
from benchmarks.quorum.workloads import Name

_NONE: Final = "-"
_LEFT, _TOP, _WIDTH, _HEIGHT = 46.0, 14.0, 280.0, 150.0
_GAUGES: Final = (
    (
        "fsync of the metadata log, mean ms (active controller)",
        "kafka_log_LogFlushStats_Mean[LogFlushRateAndTimeMs]",
        "controller",
    ),
    (
        "fsync of the metadata log, p99 ms (active controller)",
        "kafka_log_LogFlushStats_99thPercentile[LogFlushRateAndTimeMs]",
        "controller",
    ),
    ("fsync of ZooKeeper's log, mean ms (leader)", "zk_avg_fsynctime", "zookeeper"),
    (
        "append until the high watermark passes it, mean ms (raft commit-latency-avg)",
        "kafka_server_raft_metrics_commit_latency_avg",
        "controller",
    ),
    ("the same, maximum ms", "kafka_server_raft_metrics_commit_latency_max", "controller"),
    (
        "event waits in the controller's queue, p99 ms",
        "kafka_controller_ControllerEventManager_99thPercentile[EventQueueTimeMs]",
        "*",
    ),
    (
        "controller processes an event, p99 ms",
        "kafka_controller_ControllerEventManager_99thPercentile[EventQueueProcessingTimeMs]",
        "*",
    ),
    (
        "broker applies a batch of records, mean µs",
        "kafka_server_BrokerMetadataListener_Mean[MetadataBatchProcessingTimeUs]",
        "broker",
    ),
    (
        "broker applies a batch of records, p99 µs",
        "kafka_server_BrokerMetadataListener_99thPercentile[MetadataBatchProcessingTimeUs]",
        "broker",
    ),
    (
        "broker's request to ZooKeeper, mean ms",
        "kafka_server_ZooKeeperClientMetrics_Mean[ZooKeeperRequestLatencyMs]",
        "broker",
    ),
)
"""What the seed of the benchmark asks for (KIP-595): label, gauge, and which node's."""


@dataclass(frozen=True, slots=True)
class Line:
    """One mode's curve as SVG points."""

    mode: str
    points: str


@dataclass(frozen=True, slots=True)
class Chart:
    """One picture: latency over quantiles, logarithmic."""

    title: str
    lines: tuple[Line, ...]
    marks: tuple[tuple[float, str], ...]
    """Height and label of each power of ten."""
    ticks: tuple[tuple[float, str], ...]
    """Place and label of each quantile that is named."""


def markdown_tables(summary: Summary) -> str:
    """Return all tables as Markdown."""
    parts = []
    for size in _sizes(summary):
        parts += [f"### {size:,} partitions\n", *_latency_table(summary, size), ""]
        parts += [*_burst_table(summary, size), ""]
        parts += [*_failover_table(summary, size), ""]
        parts += [*_gauge_table(summary, size), ""]
        parts += [*_stage_table(summary, size), ""]
    return "\n".join(parts).rstrip() + "\n"


def render_page(summary: Summary) -> str:
    """Return the page."""
    environment = Environment(
        loader=PackageLoader("benchmarks.quorum"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    sections = [
        {
            "size": size,
            "charts": charts(summary, size),
            "tables": [
                _cells(table)
                for table in (
                    _latency_table(summary, size),
                    _burst_table(summary, size),
                    _failover_table(summary, size),
                    _gauge_table(summary, size),
                    _stage_table(summary, size),
                )
                if table
            ],
        }
        for size in _sizes(summary)
    ]
    return environment.get_template("quorum.html.jinja").render(
        sections=sections,
        runs=summary.runs,
        modes=MODES,
        width=_LEFT + _WIDTH + 14,
        height=_TOP + _HEIGHT + 26,
        left=_LEFT,
        top=_TOP,
        plot_width=_WIDTH,
        plot_height=_HEIGHT,
    )


def charts(summary: Summary, size: int) -> tuple[Chart, ...]:
    """Return a picture per workload: when changes were visible on every broker."""
    found = []
    for name in Name:
        rows = {
            r["mode"]: r["visible"]
            for r in summary.curves
            if r["partitions"] == size and r["workload"] == name and r["visible"]
        }
        values = [v for row in rows.values() for v in row]
        if not values:
            continue
        low = math.floor(math.log10(max(0.1, min(values))))
        high = max(low + 1, math.ceil(math.log10(max(values))))

        def height(value: float, low: int = low, high: int = high) -> float:
            part = (math.log10(max(value, 0.1)) - low) / (high - low)
            return round(_TOP + _HEIGHT * (1 - min(1.0, max(0.0, part))), 1)

        lines = tuple(
            Line(mode, " ".join(f"{_place(q):.1f},{height(v)}" for q, v in zip(CURVE, rows[mode], strict=True)))
            for mode in MODES
            if mode in rows
        )
        marks = tuple((height(10.0**power), _milliseconds(10.0**power)) for power in range(low, high + 1))
        ticks = tuple(
            (_place(q), label) for q, label in ((0.0, "min"), (0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (1.0, "max"))
        )
        found.append(Chart(name, lines, marks, ticks))
    return tuple(found)


def _place(quantile: float) -> float:
    """Return the position of a quantile. Quantiles near 1 get more space."""
    scale = -math.log10(1 - min(quantile, 0.999) + 1e-12) / 3
    return _LEFT + _WIDTH * (1.0 if quantile >= 1 else scale)


def _sizes(summary: Summary) -> list[int]:
    return sorted({row["partitions"] for row in summary.latencies})


def _of(rows: Sequence[Row], **wanted: object) -> list[Row]:
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def _latency_table(summary: Summary, size: int) -> list[str]:
    lines = [
        "| workload | mode | n | acknowledged p50 | p99 | p99.9 | visible on every broker p50 | p99 | p99.9 | seen to within p50 | failed, unseen |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in Name:
        for mode in MODES:
            for row in _of(summary.latencies, partitions=size, workload=name, mode=mode):
                cells = [
                    name,
                    mode,
                    row["n"],
                    _spread(row, "acknowledged_p50"),
                    _spread(row, "acknowledged_p99"),
                    _number(row["acknowledged_p999"]),
                    _spread(row, "visible_p50"),
                    _spread(row, "visible_p99"),
                    _number(row["visible_p999"]),
                    _number(row["resolution_p50"]),
                    f"{row['failed']}, {row['unseen']}",
                ]
                lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def _burst_table(summary: Summary, size: int) -> list[str]:
    rows = _of(summary.bursts, partitions=size)
    if not rows:
        return []
    lines = [
        "| all due at once | mode | acknowledged per second | visible on every broker per second |",
        "|---|---|---|---|",
    ]
    return lines + [
        f"| {name} | {mode} | {_spread(row, 'acknowledged_per_second')} | {_spread(row, 'visible_per_second')} |"
        for name in Name
        for mode in MODES
        for row in _of(rows, workload=name, mode=mode)
    ]


def _failover_table(summary: Summary, size: int) -> list[str]:
    rows = _of(summary.failovers, partitions=size)
    if not rows:
        return []
    lines = [
        "| incident | mode | rounds | until a new change is acknowledged, s | longest change, s | node stopped, s | its port open, s | every ISR full, s | elected to ready, s | restart to loaded, s |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in (Name.DURING_RESTART, Name.DURING_FAILOVER):
        for mode in MODES:
            found = _of(rows, workload=name, mode=mode)
            if not found:
                continue
            first = [r["first_acknowledged_ms"] / 1000 for r in found if r["first_acknowledged_ms"] is not None]
            longest = [r["longest_ms"] / 1000 for r in found if r["longest_ms"] is not None]
            keys = ("stopped_s", "port_open_s", "isr_full_s", "elected_to_ready_s", "restart_to_loaded_s")
            steps = [[r["seconds"][key] for r in found if key in r["seconds"]] for key in keys]
            what = "broker restarts" if name is Name.DURING_RESTART else "active controller killed"
            cells = [what, mode, str(len(found)), *(_median(v) for v in (first, longest))]
            cells += [_median(v) if v else _NONE for v in steps]
            lines.append("| " + " | ".join(cells) + " |")
    return lines


def _gauge_table(summary: Summary, size: int) -> list[str]:
    lines = ["| what the nodes say | " + " | ".join(MODES) + " |", "|---|---|---|---|"]
    for label, gauge, node in _GAUGES:
        values = []
        for mode in MODES:
            found = _of(summary.gauges, partitions=size, mode=mode, name=gauge)
            found = [r for r in found if (r["role"] == "active" if node == "*" else r["node"] == node)]
            if node == "broker":
                found = [r for r in found if r["role"] == "broker"]
            values.append(_number(found[0]["value"]) if found else _NONE)
        if set(values) != {_NONE}:
            lines.append(f"| {label} | " + " | ".join(values) + " |")
    return lines if len(lines) > 2 else []  # noqa: PLR2004 - more than the head


def _stage_table(summary: Summary, size: int) -> list[str]:
    rows = _of(summary.stages, partitions=size)
    if not rows:
        return []
    lines = ["| step | seconds |", "|---|---|"]
    order = {mode: i for i, mode in enumerate(MODES)}
    rows = sorted((r for r in rows if r["name"] != "warm up"), key=lambda r: (order[r["mode"]], r["name"] == "fill"))
    return lines + [f"| {row['name']} | {_spread(row, 'seconds')} |" for row in rows]


def _spread(row: Row, name: str) -> str:
    """Return the median of the rounds, and their range."""
    if row[name] is None:
        return _NONE
    return f"{_number(row[name])} ({_number(row[name + '_min'])} … {_number(row[name + '_max'])})"


def _median(values: Sequence[float]) -> str:
    if not values:
        return "never"
    ordered = sorted(values)
    middle = ordered[len(ordered) // 2] if len(ordered) % 2 else sum(ordered[len(ordered) // 2 - 1 :][:2]) / 2
    return f"{_number(middle)} ({_number(ordered[0])} … {_number(ordered[-1])})"


def _number(value: float | None) -> str:
    if value is None:
        return _NONE
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 1 else f"{value:.2f}"  # noqa: PLR2004 - three digits are enough


def _milliseconds(value: float) -> str:
    return f"{value / 1000:g} s" if value >= 1000 else f"{value:g} ms"  # noqa: PLR2004


def _cells(table: Sequence[str]) -> list[list[str]]:
    """Return the cells of a Markdown table, its rule left out."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for i, line in enumerate(table) if i != 1]
