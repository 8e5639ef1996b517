"""Each function measures one figure of the verification beside its baseline."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import numpy as np
from kazoo.client import KazooClient
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.verification.data import CHROOT, Cluster, name, write_segment
from kraftbridge.metadata.log.batches import BatchScan
from kraftbridge.metadata.log.blocks import record_block
from kraftbridge.metadata.log.files import LocalLogFiles
from kraftbridge.metadata.log.replay import LogReplay, decoded_columns, decoded_record, parts
from kraftbridge.metadata.zookeeper.reader import (
    BATCH_READS,
    IN_FLIGHT,
    Data,
    MultiRead,
    Operation,
    Read,
    ZooKeeperReader,
    batches,
)
from kraftbridge.models.report import Profile, Verdict, VerificationRequest, VoterAccess, ZooKeeperAccess
from kraftbridge.verification.compare.places import compare
from kraftbridge.verification.job import verify_live
from kraftbridge.verification.run import set_shuffle_size
from kraftbridge.verification.sources.rows import SCHEMA_DDL, Leg

JAVA = Path(__file__).with_name("java")


@dataclass(frozen=True)
class Figure:
    """One measured value with what it is held against.

    Attributes
    ----------
    value, against
        Both in `unit`: something per second, or seconds; `yardstick` says what `against` is.
    goal
        Least ratio of the two, better being greater; None: shown, not judged.
    load
        Load of the machine, over the last minute, when it was measured.
    """

    name: str
    value: float
    unit: str
    yardstick: str
    against: float
    goal: float | None
    load: float = field(default_factory=lambda: round(os.getloadavg()[0], 1))

    @property
    def ratio(self) -> float:
        return self.against / self.value if self.unit == "s" else self.value / self.against

    @property
    def judgement(self) -> str:
        if self.goal is None:
            return "shown"
        return "met" if self.ratio >= self.goal else "short of goal"

    def shown(self, value: float) -> str:
        return f"{value:,.1f} s" if self.unit == "s" else f"{value:,.0f} {self.unit}"


ROUNDS = 5
LOG_ROUNDS = 7


def state_paths(cluster: Cluster, limit: int) -> list[str]:
    return [
        f"/brokers/topics/{name(topic)}/partitions/{partition}/state"
        for topic in range(cluster.topics)
        for partition in range(cluster.partitions_per_topic)
    ][:limit]


def zookeeper_figures(hosts: str, cluster: Cluster, limit: int = 1_000_000) -> list[Figure]:
    """Znodes per second: ours through kazoo, a raw multiRead socket, kazoo's own async gets; interleaved, median of each."""
    paths = state_paths(cluster, limit)
    few = paths[:20_000]
    _ours(hosts, paths)  # the first reading after the filling is slower, whoever makes it
    rounds = [(_ours(hosts, paths), _raw(hosts, paths), _asynchronous(hosts, few)) for _ in range(ROUNDS)]
    ours, raw, asynchronous = (median(each) for each in zip(*rounds, strict=True))
    name = "znodes by kazoo + multiRead"
    return [
        Figure(name, ours, "znodes/s", "raw multiRead socket", raw, 0.8),
        Figure(name, ours, "znodes/s", "kazoo get_async", asynchronous, 20.0),
    ]


def _ours(hosts: str, paths: Sequence[str]) -> float:
    with ZooKeeperReader(ZooKeeperAccess(connect=hosts + CHROOT)) as reader:
        reads = [Read(Operation.DATA, path) for path in paths]
        began, count = time.perf_counter(), 0
        for fenced in reader.read(reads):
            count += sum(type(result) is Data for _, result in fenced.results)
        assert count == len(paths)
        return count / (time.perf_counter() - began)


def _asynchronous(hosts: str, paths: Sequence[str], window: int = 500) -> float:
    client = KazooClient(hosts + CHROOT)
    client.start()
    began = time.perf_counter()
    waiting: deque[Any] = deque()
    for path in paths:
        waiting.append(client.get_async(path))
        if len(waiting) >= window:
            waiting.popleft().get()
    while waiting:
        waiting.popleft().get()
    seconds = time.perf_counter() - began
    client.stop()
    client.close()
    return len(paths) / seconds


def _raw(hosts: str, paths: Sequence[str]) -> float:
    """A session by hand: connect, pipelined multiRead requests, nothing else."""
    host, _, port = hosts.partition(":")
    stream = socket.create_connection((host, int(port)))
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    body = struct.pack("!iqiqi", 0, 0, 30_000, 0, 16) + bytes(16) + b"\0"
    stream.sendall(struct.pack("!i", len(body)) + body)
    buffer = bytearray()

    def frame() -> bytes:
        while len(buffer) < 4 or len(buffer) < 4 + struct.unpack_from("!i", buffer)[0]:
            data = stream.recv(1 << 20)
            if not data:
                raise EOFError
            buffer.extend(data)
        end = 4 + struct.unpack_from("!i", buffer)[0]
        content = bytes(memoryview(buffer)[4:end])
        del buffer[:end]
        return content

    frame()
    reads = [Read(Operation.DATA, CHROOT + path) for path in paths]
    began, count, number = time.perf_counter(), 0, 0
    waiting: deque[MultiRead] = deque()
    todo = batches(reads, BATCH_READS)

    def push() -> None:
        nonlocal number
        part = next(todo, None)
        if part is not None:
            number += 1
            request = MultiRead(part)
            content = struct.pack("!ii", number, MultiRead.type) + request.serialize()
            stream.sendall(struct.pack("!i", len(content)) + content)
            waiting.append(request)

    for _ in range(IN_FLIGHT):
        push()
    while waiting:
        request = waiting.popleft()
        content = frame()
        push()
        count += sum(type(result) is Data for result in request.deserialize(content, 16))
    assert count == len(paths)
    seconds = time.perf_counter() - began
    stream.close()
    return count / seconds


def log_figures(libraries: Path, folder: Path, partitions: int) -> list[Figure]:
    """Records per second: ours, kafka-dump-log with its JVM's start, Kafka's serde in a warm JVM.

    The last two are of one thread each and measured in processor time, which other work on the machine disturbs least.
    """
    cluster = Cluster.of(partitions)
    segment = write_segment(cluster, folder / "log")
    java = shutil.which("java") or "java"
    classpath = f"{libraries}/*"
    dump = [java, "-Xmx512m", "-cp", classpath, "kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files"]
    decode = [java, "-Xmx1g", "-XX:+UseSerialGC", "-cp", classpath, str(JAVA / "DecodeLog.java"), str(segment), "8"]
    ours = decoding = dumping = warm = 0.0
    # Interleaved, so that all run under the same load of the machine; the best of each counts.
    for _ in range(LOG_ROUNDS):
        ours = max(ours, _replayed(folder / "log", cluster.records))
        decoding = max(decoding, _decoded(segment, cluster.records))
        began = time.perf_counter()
        subprocess.run([*dump, str(segment)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        dumping = max(dumping, cluster.records / (time.perf_counter() - began))
        done = subprocess.run(decode, check=True, capture_output=True, text=True)
        warm = max(warm, *(float(line.split()[0]) for line in done.stdout.splitlines()))
    return [
        Figure("log, decoded and replayed", ours, "records/s", "kafka-dump-log, JVM start included", dumping, 10.0),
        Figure("log, decoded", decoding, "records/CPU-s", "Kafka's serde, warm JVM, one core", warm, 0.25),
    ]


def _replayed(folder: Path, expected: int) -> float:
    began = time.perf_counter()
    count = LogReplay(LocalLogFiles(folder)).advance().records
    seconds = time.perf_counter() - began
    assert count == expected
    return count / seconds


def _decoded(segment: Path, expected: int) -> float:
    """Every field of every record, checksums included: what is frequent as columns, the rest one by one."""
    began, count = time.thread_time(), 0
    for part in parts(BatchScan(segment.read_bytes(), segment.name)):
        block = record_block(part, 0, None)
        assert block is not None
        left = np.ones(len(block), np.bool_)
        for indexes, _ in decoded_columns(block).values():
            left[indexes] = False
            count += len(indexes)
        for index in np.flatnonzero(left).tolist():
            count += len(decoded_record(block.value(index), int(block.offsets[index]))) > 0
    seconds = time.thread_time() - began
    assert count == expected
    return count / seconds


def comparison_figure(spark: SparkSession, folder: Path, rows: int) -> Figure:
    """Seconds to compare two sides of so many partitions, a few of them different, against DuckDB."""
    expected = 300
    side = spark.range(0, rows, numPartitions=4).select(
        F.lit("mirror").alias("leg"),
        F.lit("partition").alias("kind"),
        F.format_string("topic-%06d-%d", (F.col("id") / 200).cast("long"), F.col("id") % 200).alias("key"),
        F.format_string('{"isr":[1,2,3],"leader":%d,"leaderEpoch":%d}', F.col("id") % 60, F.col("id") % 50).alias(
            "value"
        ),
        F.lit(5).cast("long").alias("offset"),
        F.col("id"),
    )
    other = side.withColumn("value", F.when(F.col("id") % (rows // 100) == 7, F.lit("{}")).otherwise(F.col("value")))
    other = other.where(F.col("id") % (rows // 100) != 9)
    more = side.where(F.col("id") % (rows // 100) == 11).withColumn("key", F.concat("key", F.lit("x")))
    for label, frame in (("zookeeper", side), ("log", other.unionAll(more))):
        frame.drop("id").withColumn("place", F.lit(label)).write.parquet(str(folder / label), mode="overwrite")
    both = [spark.read.parquet(str(folder / label)) for label in ("zookeeper", "log")]
    columns = [field.split()[0] for field in SCHEMA_DDL.split(", ")]
    set_shuffle_size(spark, 2 * rows)
    ours = duck = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        frame = both[0].select(columns).unionAll(both[1].select(columns))
        comparison = compare(frame, Leg.MIRROR, ["zookeeper", "log"])
        ours = min(ours, time.perf_counter() - began)
        assert sum(comparison.flagged_counts.values()) == len(comparison.flagged) == expected, comparison.flagged_counts
        duck = min(duck, _duckdb(folder, expected))
    return Figure(f"comparing {rows:,} a side", ours, "s", "DuckDB, two threads", duck, None)


def _duckdb(folder: Path, expected: int) -> float:
    """Return the seconds in which DuckDB finds the same differences in the same Parquet files."""
    connection = duckdb.connect(config={"threads": 2})
    try:
        began = time.perf_counter()
        for label in ("zookeeper", "log"):
            connection.read_parquet(str(folder / label / "*.parquet")).create_view(f"{label}_side")
        query = (
            "select count(*) from (select kind, key, value as l from zookeeper_side) full join"
            " (select kind, key, value as r from log_side) using (kind, key) where l is distinct from r"
        )
        row = connection.execute(query).fetchone()
        seconds = time.perf_counter() - began
    finally:
        connection.close()
    assert row == (expected,), f"DuckDB finds {row} differences"
    return seconds


def end_to_end_figure(
    spark: SparkSession, hosts: str, voters: Sequence[Path], cluster: Cluster
) -> tuple[Figure, dict[str, float]]:
    """Seconds of a whole verification with a warm session and three voters, and its stages."""
    request = VerificationRequest(
        run_id="bench",
        profile=Profile.DUAL_WRITE,
        zookeeper=ZooKeeperAccess(connect=hosts + CHROOT),
        voters=[VoterAccess(id=3000 + i, log_url=voter.resolve().as_uri()) for i, voter in enumerate(voters)],
        deadline_seconds=3600,
    )
    began = time.perf_counter()
    report = verify_live(spark, request)
    seconds = time.perf_counter() - began
    assert report.verdict is Verdict.CONSISTENT, report.reason
    goal = 1.0 if cluster.partitions >= 1_000_000 else None
    figure = Figure(f"{cluster.partitions:,} partitions end to end", seconds, "s", "60 s at 1,000,000", 60.0, goal)
    return figure, {"seconds": seconds, **report.timings_seconds}
