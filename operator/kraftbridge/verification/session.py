"""The Spark session of a run."""

from __future__ import annotations

import os
import sys
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from kraftbridge.verification.compare.places import compare
from kraftbridge.verification.sources.brokers import BrokerServedSource
from kraftbridge.verification.sources.log import KraftLogSource
from kraftbridge.verification.sources.rows import SCHEMA_DDL, Leg, LogPlan, LogVoter
from kraftbridge.verification.sources.zookeeper import ZooKeeperSource

SOURCES: Final = (ZooKeeperSource, KraftLogSource, BrokerServedSource)
_SMALL_SHUFFLE_PARTITIONS: Final = 2
_ROWS_PER_SHUFFLE_PARTITION: Final = 200_000


def open_session(*, local: bool, master: str | None = None, ansi: bool | None = None) -> SparkSession:
    """Return a session with the data sources registered.

    Parameters
    ----------
    local
        Run in this process if no master is given. `spark-submit` and the Spark operator give one.
    master
        Master in place of the one that `spark-submit` or the Spark operator gives; ``local[N]`` compares in this pod, without executors.
    ansi
        Value of `spark.sql.ansi.enabled`; None for Spark's default.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = (
        SparkSession.builder.appName("kraftbridge-verification")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", str(_SMALL_SHUFFLE_PARTITIONS))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.python.worker.reuse", "true")
    )
    if master is not None:
        builder = _on_this_host(builder, master)
    elif local and "SPARK_APPLICATION_ID" not in os.environ and not os.environ.get("MASTER"):
        builder = _on_this_host(builder, "local[*]")
    if ansi is not None:
        builder = builder.config("spark.sql.ansi.enabled", str(ansi).lower())
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    for source in SOURCES:
        session.dataSource.register(source)
    return session


def _on_this_host(builder: SparkSession.Builder, master: str) -> SparkSession.Builder:
    return (
        builder.master(master).config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    )


def set_shuffle_size(session: SparkSession, rows: int) -> None:
    """Set the number of shuffle partitions for a number of rows."""
    partitions = max(_SMALL_SHUFFLE_PARTITIONS, -(-rows // _ROWS_PER_SHUFFLE_PARTITION))
    session.conf.set("spark.sql.shuffle.partitions", str(partitions))


def load(session: SparkSession, source: str, plan: str) -> DataFrame:
    """Return a source's rows and cache them. A second reading would return another state."""
    return session.read.format(source).option("plan", plan).load().persist(StorageLevel.MEMORY_AND_DISK)


def warm_up(session: SparkSession) -> None:
    """Run a verification's operations on empty data. This loads classes and starts Python workers."""
    plan = LogPlan(salt="00", voters=[LogVoter(id=0, name="warm-up", url="file:///nonexistent")])
    rows = load(session, "kraft-log", plan.model_dump_json())
    rows.where("kind like '$%'").collect()
    rows.unpersist()
    sample = session.createDataFrame(
        [
            ("mirror", "a", "topic", "x", "{}", 1),
            ("mirror", "b", "topic", "x", "[]", 1),
        ],
        SCHEMA_DDL,
    )
    compare(sample, Leg.MIRROR, ["a", "b"])
