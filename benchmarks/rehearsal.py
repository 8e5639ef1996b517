"""Rehearsals by size: copy, sync, time without a controller and memory, for synthetic trees; rows as JSON lines, and a plot."""

from __future__ import annotations

import argparse
import base64
import json
import logging
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from benchmarks import proc
from benchmarks.verification.plot import growth_plot
from kraftbridge.metadata.zookeeper.reader import write_dump
from kraftbridge.metadata.zookeeper.znodes import Znode
from kraftbridge.models.rehearsal import RehearsalResult
from kraftbridge.rehearsal.processes import CONTROLLER_CLASS, ZOOKEEPER_CLASS
from kraftbridge.rehearsal.rehearse import RehearsalOptions, rehearse

logger = logging.getLogger("benchmarks")

BROKERS: Final = 6
REPLICAS: Final = 3
PARTITIONS_OF_A_TOPIC: Final = 20
MIB: Final = 1 << 20
SAMPLE_SECONDS: Final = 0.5
LINES: Final = (
    ("noControllerSeconds", "seconds without a controller", "#b3261e", 1.0),
    ("copySeconds", "copy, s", "#1f5fa8", 1.0),
    ("syncSeconds", "sync, s", "#8a5a00", 1.0),
    ("heapMiB", "heap in use after a collection, MiB", "#2e7d32", 1.0),
)


def synthetic_tree(partitions: int) -> Iterator[Znode]:
    """Yield the tree of a cluster of six brokers with topics of 20 partitions, three replicas each."""

    def node(path: str, body: Any = None, version: int = 0) -> Znode:
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        return Znode(path, data, version, 5, 6, 0, 0)

    yield node(
        "/cluster/id", {"version": "1", "id": base64.urlsafe_b64encode(b"kraftbridge-size").decode().rstrip("=")}
    )
    yield node("/controller", {"version": 2, "brokerid": 0, "timestamp": "1", "kraftControllerEpoch": -1})
    yield node("/controller_epoch", 7, 7)
    yield node("/latest_producer_id_block", {"version": 1, "broker": 0, "block_start": "0", "block_end": "999"})
    for broker in range(BROKERS):
        body = {
            "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
            "endpoints": [f"PLAINTEXT://broker-{broker}.kafka:9092"],
            "rack": f"zone-{broker % 3}", "host": f"broker-{broker}.kafka", "port": 9092, "jmx_port": -1, "version": 5,
            "features": {}, "timestamp": "1",
        }  # fmt: skip
        yield node(f"/brokers/ids/{broker}", body, 1)
    for topic in range(-(-partitions // PARTITIONS_OF_A_TOPIC)):
        count = min(PARTITIONS_OF_A_TOPIC, partitions - topic * PARTITIONS_OF_A_TOPIC)
        name = f"team-{topic % 40}.some-service.events-{topic}"
        replicas = {str(p): [(topic + p + r) % BROKERS for r in range(REPLICAS)] for p in range(count)}
        body = {
            "removing_replicas": {}, "partitions": replicas, "adding_replicas": {}, "version": 3,
            "topic_id": base64.urlsafe_b64encode((topic + (1 << 64)).to_bytes(16, "big")).decode().rstrip("="),
        }  # fmt: skip
        yield node(f"/brokers/topics/{name}", body)
        config = {"retention.ms": str(3_600_000 * (1 + topic % 100)), "min.insync.replicas": "2"} if topic % 3 else {}
        yield node(f"/config/topics/{name}", {"version": 1, "config": config})
        for partition, assigned in replicas.items():
            state = {"controller_epoch": 7, "leader": assigned[0], "version": 1, "leader_epoch": 3, "isr": assigned}
            yield node(f"/brokers/topics/{name}/partitions/{partition}/state", state, topic % 9)


class MemoryPeaks:
    """Peak memory of this process and of the processes that it starts, and peak size of a folder, in MiB.

    A process' peak is ``VmHWM`` of ``/proc/PID/status`` (proc(5)). Children are told apart by the main class in their command line.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mib: dict[str, int] = {}

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Sample until the block ends."""
        stop = threading.Event()
        sampler = threading.Thread(target=self._sample, args=[stop], daemon=True)
        sampler.start()
        try:
            yield
        finally:
            stop.set()
            sampler.join()
            self._note("rehearsal", proc.peak_mib(os.getpid()))

    def _sample(self, stop: threading.Event) -> None:
        while not stop.wait(SAMPLE_SECONDS):
            for child in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split():
                with suppress(OSError):  # it has ended
                    if (name := _role(int(child))) is not None:
                        self._note(name, proc.peak_mib(int(child)))
            self._note("files", sum(_size(file) for file in self.folder.rglob("*")) // MIB)

    def _note(self, name: str, mib: int) -> None:
        self.mib[name] = max(self.mib.get(name, 0), mib)


def _role(process: int) -> str | None:
    words = proc.command(process)
    if ZOOKEEPER_CLASS.encode() in words:
        return "zookeeper"
    return "controller" if CONTROLLER_CLASS.encode() in words else None


def _size(file: Path) -> int:
    try:
        return file.stat().st_blocks * 512
    except OSError:
        return 0


def figures(
    partitions: int, result: RehearsalResult, heap_bytes: int, peaks_mib: Mapping[str, int]
) -> Mapping[str, Any]:
    """Return one row of the results."""
    forecast = result.forecast
    return {
        "partitions": partitions,
        "verdict": result.verdict,
        "reason": result.reason[:300],
        "znodes": result.tree.znodes,
        "copySeconds": forecast.copy_seconds,
        "syncSeconds": forecast.sync_seconds,
        "noControllerSeconds": forecast.no_controller_seconds,
        "heapMiB": forecast.measured_heap_bytes and forecast.measured_heap_bytes >> 20,
        "heapLimitMiB": heap_bytes // MIB,
        "heapNeededMiB": forecast.heap_bytes and forecast.heap_bytes >> 20,
        "allSeconds": round((result.finished_at - result.started_at).total_seconds(), 1),
        "peakMiB": dict(sorted(peaks_mib.items())),
        "timingsSeconds": result.timings_seconds,
    }


def measure(options: argparse.Namespace) -> int:
    """Rehearse every size, and write the rows and the plot."""
    options.output.mkdir(parents=True, exist_ok=True)
    file = options.output / "scale.jsonl"
    rows = {row["partitions"]: row for row in map(json.loads, file.read_text().splitlines())} if file.exists() else {}
    for size in options.sizes:
        with tempfile.TemporaryDirectory(prefix="kraftbridge-rehearsal-") as folder:
            dump = Path(folder) / "zk.jsonl.gz"
            write_dump(synthetic_tree(size), dump, "")
            peaks = MemoryPeaks(Path(folder))
            with peaks.watch():
                result = rehearse(
                    dump,
                    RehearsalOptions(
                        options.kafka_home, Path(folder) / "work", heap_bytes=options.heap, zookeeper_heap_bytes=options.heap,
                        timeout_seconds=options.timeout,
                    ),
                )  # fmt: skip
        rows[size] = figures(size, result, options.heap, peaks.mib)
        file.write_text("".join(json.dumps(rows[each]) + "\n" for each in sorted(rows)))
        logger.info("%s", json.dumps(rows[size]))
    done = [row for _, row in sorted(rows.items()) if row["noControllerSeconds"]]
    if done:
        plot = growth_plot(done, LINES, "Rehearsal: time and memory by number of partitions", "partitions (three replicas each, one controller)")  # fmt: skip
        (options.output / "scale.svg").write_text(plot)
    return 0 if len(done) == len(rows) else 1
