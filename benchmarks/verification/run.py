"""Measures the verification: ``python -m benchmarks verification``.

Prints each figure with its yardstick, their ratio, the goal, and whether the figure meets it. With ``--output``, ``report.json`` there has the
raw results, and ``growth.svg`` shows how time and memory grow with the cluster.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from kazoo.client import KazooClient
from tests.support.kafka_processes import KafkaProcesses, kafka_libraries, kafka_processes

from benchmarks import proc
from benchmarks.verification.data import CHROOT, Cluster, fill_zookeeper, write_voters
from benchmarks.verification.figures import Figure, comparison_figure, end_to_end_figure, log_figures, zookeeper_figures
from benchmarks.verification.plot import growth_plot
from kraftbridge.verification.run import open_session, warm_up


@contextmanager
def filled_zookeeper(cluster: Cluster) -> Iterator[str]:
    """Give the address of a ZooKeeper that holds the cluster, mirrored up to the end of its log."""
    with kafka_processes([], [], KafkaProcesses) as processes:
        processes.heap = os.environ.get("KRAFTBRIDGE_BENCH_ZOOKEEPER_HEAP", "4g")
        processes.start_zookeeper({"snapCount": "5000000", "preAllocSize": "1048576"})
        client = KazooClient(processes.zookeeper_hosts, timeout=60)
        client.start(60)
        client.create(CHROOT)
        client.chroot = CHROOT
        began = time.perf_counter()
        count = fill_zookeeper(client, cluster, cluster.records + 19)
        print(f"{count:,} znodes created in {time.perf_counter() - began:.0f} s", flush=True)
        client.stop()
        client.close()
        yield processes.zookeeper_hosts


class Usage:
    """Samples resident memory (MiB) and CPU time (s) of this process and all below it, ZooKeeper left out."""

    def __init__(self) -> None:
        self.peak_mib = 0.0
        self._cpu: dict[int, float] = {}
        self._before = tree(os.getpid())
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.5):
            now = tree(os.getpid())
            self.peak_mib = max(self.peak_mib, sum(mib for mib, _ in now.values()))
            self._cpu |= {process: cpu for process, (_, cpu) in now.items()}

    @property
    def cpu_seconds(self) -> float:
        """CPU time since the start; on an idle machine with two cores a run takes at least half of it."""
        return sum(cpu - self._before.get(process, (0, 0.0))[1] for process, cpu in self._cpu.items())


def tree(root: int) -> dict[int, tuple[float, float]]:
    """Return resident MiB and CPU seconds of a process and its descendants that are not ZooKeeper."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = proc.parent(int(entry.name))
            except (OSError, IndexError):
                continue
    found: dict[int, tuple[float, float]] = {}
    for process in parents:
        above = process
        while above in parents and above != root:
            above = parents[above]
        if above != root:
            continue
        try:
            if not any(b"QuorumPeerMain" in word for word in proc.command(process)):
                found[process] = (proc.resident_mib(process), proc.cpu_seconds(process))
        except OSError:
            continue
    return found


def show(figures: list[Figure]) -> None:
    print(
        f"\n{'figure':36} {'value':>20}  {'yardstick':36} {'its value':>20} {'ratio':>8} {'goal':>6} {'load':>6}  judgement"
    )
    for each in figures:
        goal = f"{each.goal:g}" if each.goal is not None else "-"
        print(
            f"{each.name:36} {each.shown(each.value):>20}  {each.yardstick:36} {each.shown(each.against):>20}"
            f" {each.ratio:8.2f} {goal:>6} {each.load:6.1f}  {each.judgement}",
            flush=True,
        )


def measure(options: argparse.Namespace) -> None:
    """Measure the figures that the options ask for, print them and write them to the output folder."""
    wanted = set(options.only or ("zookeeper", "log", "compare", "end-to-end"))
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-memory {options.driver_memory} --master local[2] pyspark-shell"
    folder = Path(tempfile.mkdtemp(prefix="kraftbridge-bench-"))
    figures: list[Figure] = []
    growth: list[dict[str, float]] = []
    machine = {
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "driverMemory": options.driver_memory,
        "date": datetime.now(UTC).date().isoformat(),
        "loadAtStart": round(os.getloadavg()[0], 1),
    }
    print(f"{machine['cpus']} CPUs, load {machine['loadAtStart']}, Python {machine['python']}", flush=True)
    try:
        if "log" in wanted:
            figures += log_figures(kafka_libraries(), folder / "segment", options.log_partitions)
            show(figures)
        spark = None
        if wanted & {"compare", "end-to-end"}:
            spark = open_session(local=True)
            warm_up(spark)
        if "compare" in wanted:
            figures.append(comparison_figure(spark, folder / "compare", options.compared_rows))
            show(figures)
        sizes = options.sizes
        for size in sizes if "end-to-end" in wanted else sizes[-1:]:
            if not wanted & {"zookeeper", "end-to-end"}:
                break
            cluster = Cluster.of(size)
            with filled_zookeeper(cluster) as hosts:
                if "zookeeper" in wanted and size == sizes[-1]:
                    figures += zookeeper_figures(hosts, cluster)
                if "end-to-end" in wanted:
                    voters = write_voters(cluster, folder / f"voters-{size}")
                    with Usage() as usage:
                        figure, seconds = end_to_end_figure(spark, hosts, voters, cluster)
                    figures.append(figure)
                    growth.append(
                        {
                            "partitions": cluster.partitions,
                            "peakMiB": round(usage.peak_mib),
                            "cpuSeconds": round(usage.cpu_seconds, 1),
                            "load": figure.load,
                            **seconds,
                        }
                    )
                    print(json.dumps(growth[-1]), flush=True)
            show(figures)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"load at the end {os.getloadavg()[0]:.1f}")
    if options.output is not None:
        options.output.mkdir(parents=True, exist_ok=True)
        judged = [{**asdict(figure), "ratio": figure.ratio, "judgement": figure.judgement} for figure in figures]
        body = {"machine": machine, "figures": judged, "growth": growth}
        (options.output / "report.json").write_text(json.dumps(body, indent=1) + "\n")
        if len(growth) > 1:
            (options.output / "growth.svg").write_text(growth_plot(growth))
