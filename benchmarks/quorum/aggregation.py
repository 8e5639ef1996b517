"""The PySpark job that makes figures of raw samples; the same on a laptop and on a cluster (``spark-submit main.py``)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it

SCHEMA: Final = (
    "type string, run string, round int, mode string, partitions int, "
    "workload string, n int, scheduled_ms double, sent_ms double, acknowledged_ms double, visible_ms double, "
    "resolution_ms double, tries int, error string, "
    "node string, active boolean, name string, value double, at_ms double, seconds string, "
    "at string, loadavg string, cpus int, cpu_model string, memory string, kernel string"
)
"""Every row's fields; a row has those of its type (`benchmarks.quorum.samples`)."""

MINIMUM_FOR_P999: Final = 1000
"""A p99.9 of fewer samples is their maximum by another name, and is left out."""
CURVE: Final = (0.0, 0.05, *(round(0.1 * i, 1) for i in range(1, 10)), 0.95, 0.98, 0.99, 0.995, 1.0)
_CELL: Final = ("partitions", "workload", "mode")
_ROUND: Final = (*_CELL, "run", "round")

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Summary:
    """All figures; lists of flat rows, so that any program can read them."""

    latencies: tuple[Row, ...]
    """Per size, workload and mode: median of the rounds and their range, in milliseconds since a change was due."""
    curves: tuple[Row, ...]
    """Latency at the quantiles of `CURVE`, all rounds together."""
    bursts: tuple[Row, ...]
    """Changes a second when all are due at once."""
    failovers: tuple[Row, ...]
    """Per round: how long after the incident the first change sent after it was acknowledged."""
    gauges: tuple[Row, ...]
    """What the nodes say of themselves, median of the rounds."""
    stages: tuple[Row, ...]
    """How long filling and each step of the migration took."""
    runs: tuple[Row, ...]
    """Machine and load of each round."""

    def to_json(self) -> str:
        """Return it as JSON."""
        return json.dumps(asdict(self), indent=1)


def read_rows(session: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Return the raw rows of files or folders of ``.jsonl`` or ``.jsonl.gz``, on any file system that Spark reads.

    Anything else in a folder, such as an earlier page, is left alone.

    Raises
    ------
    ValueError
        There is no sample in them.
    """
    reader = session.read.schema(SCHEMA).option("mode", "FAILFAST").option("pathGlobFilter", "*.jsonl{,.gz}")
    rows = reader.json(list(paths)).persist()
    if rows.where("type = 'sample'").isEmpty():
        raise ValueError(f"no samples in {', '.join(paths)}")
    return rows


def summarize(rows: DataFrame) -> Summary:
    """Return the figures of raw rows."""
    samples = rows.where("type = 'sample'").select(
        *_ROUND,
        "n",
        "scheduled_ms",
        "sent_ms",
        "acknowledged_ms",
        "visible_ms",
        "resolution_ms",
        "error",
        (F.col("acknowledged_ms") - F.col("scheduled_ms")).alias("acknowledged"),
        (F.col("visible_ms") - F.col("scheduled_ms")).alias("visible"),
        (F.col("sent_ms") - F.col("scheduled_ms")).alias("waited"),
    )
    return Summary(
        latencies=_latencies(samples),
        curves=_curves(samples),
        bursts=_bursts(samples),
        failovers=_failovers(rows, samples),
        gauges=_collect(
            rows.where("type = 'gauge' and (active or node like 'broker-%')")
            .withColumn("role", F.when(F.col("active"), F.lit("active")).otherwise(F.lit("broker")))
            .withColumn("node", F.regexp_extract("node", r"^[a-z]+", 0))
            .groupBy("partitions", "mode", "node", "role", "name")
            .agg(F.median("value").alias("value"), F.count("value").alias("n")),
            "partitions",
            "mode",
            "node",
            "role",
            "name",
        ),
        stages=_collect(
            rows.where("type = 'stage'")
            .groupBy("partitions", "mode", "name")
            .agg(*_over_rounds(F.col("seconds").cast("double"), "seconds")),
            "partitions",
            "mode",
            "name",
        ),
        runs=_collect(
            rows.where("type in ('run', 'load')").select(
                "type", "run", "round", "partitions", "mode", "at", "loadavg", "cpus", "cpu_model", "memory", "kernel"
            ),
            "at",
        ),
    )


def _latencies(samples: DataFrame) -> tuple[Row, ...]:
    per_round = samples.groupBy(*_ROUND).agg(
        *(
            F.percentile(what, F.lit(part)).alias(f"{what}_{label}")
            for what in ("acknowledged", "visible")
            for label, part in (("p50", 0.5), ("p99", 0.99))
        )
    )
    names = [f"{what}_{label}" for what in ("acknowledged", "visible") for label in ("p50", "p99")]
    spread = per_round.groupBy(*_CELL).agg(
        F.count("*").alias("rounds"), *(column for name in names for column in _over_rounds(F.col(name), name))
    )
    enough = F.count("visible") >= MINIMUM_FOR_P999
    pooled = samples.groupBy(*_CELL).agg(
        F.count("*").alias("n"),
        F.count("error").alias("failed"),
        F.sum(F.when(F.col("error").isNull() & F.col("visible_ms").isNull(), 1).otherwise(0)).alias("unseen"),
        F.when(enough, F.percentile("acknowledged", F.lit(0.999))).alias("acknowledged_p999"),
        F.when(enough, F.percentile("visible", F.lit(0.999))).alias("visible_p999"),
        F.max("visible").alias("visible_max"),
        F.percentile("resolution_ms", F.lit(0.5)).alias("resolution_p50"),
        F.percentile("waited", F.lit(0.99)).alias("waited_p99"),
    )
    return _collect(pooled.join(spread, list(_CELL)), *_CELL)


def _curves(samples: DataFrame) -> tuple[Row, ...]:
    quantiles = F.array(*(F.lit(part) for part in CURVE))
    return _collect(
        samples.groupBy(*_CELL).agg(
            F.percentile("acknowledged", quantiles).alias("acknowledged"),
            F.percentile("visible", quantiles).alias("visible"),
        ),
        *_CELL,
    )


def _bursts(samples: DataFrame) -> tuple[Row, ...]:
    per_round = (
        samples.where("workload like '%-burst'")
        .groupBy(*_ROUND)
        .agg(
            (F.count("acknowledged_ms") * 1000 / F.max("acknowledged_ms")).alias("acknowledged_per_second"),
            (F.count("visible_ms") * 1000 / F.max("visible_ms")).alias("visible_per_second"),
        )
    )
    names = ("acknowledged_per_second", "visible_per_second")
    return _collect(
        per_round.groupBy(*_CELL).agg(
            F.count("*").alias("rounds"), *(column for name in names for column in _over_rounds(F.col(name), name))
        ),
        *_CELL,
    )


def _failovers(rows: DataFrame, samples: DataFrame) -> tuple[Row, ...]:
    incidents = rows.where("type = 'incident'").select(*_ROUND, "node", "at_ms", "seconds")
    after = samples.join(incidents.select(*_ROUND, "at_ms"), list(_ROUND)).where("sent_ms >= at_ms and error is null")
    first = after.groupBy(*_ROUND).agg(
        F.min(F.col("acknowledged_ms") - F.col("at_ms")).alias("first_acknowledged_ms"),
        F.min(F.col("visible_ms") - F.col("at_ms")).alias("first_visible_ms"),
        F.max("acknowledged").alias("longest_ms"),
    )
    return tuple(
        {**row, "seconds": json.loads(row["seconds"])}
        for row in _collect(incidents.join(first, list(_ROUND), "left"), *_ROUND)
    )


def _over_rounds(column: Any, name: str) -> list[Any]:
    return [
        F.median(column).alias(name),
        F.min(column).alias(f"{name}_min"),
        F.max(column).alias(f"{name}_max"),
    ]


def _collect(frame: DataFrame, *order: str) -> tuple[Row, ...]:
    return tuple(
        {key: round(value, 3) if isinstance(value, float) else value for key, value in row.asDict().items()}
        for row in frame.orderBy(*order).collect()
    )
