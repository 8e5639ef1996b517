"""The runs: in each round, one cluster migrates from ZooKeeper over dual-write to KRaft and gets the same changes in every mode."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import Final

from tests.support.kafka_processes import ZOOKEEPER

from benchmarks.quorum.changes import Change, CreateTopic, DeleteTopic
from benchmarks.quorum.cluster import BROKERS, BenchmarkCluster
from benchmarks.quorum.gauges import node_gauges, zookeeper_gauges
from benchmarks.quorum.open_loop import run_workload
from benchmarks.quorum.samples import MODES, Machine, Sample, SampleFile, Setting, load_now
from benchmarks.quorum.workloads import (
    BACKGROUND_PARTITIONS,
    Load,
    Name,
    Workload,
    background_topics,
    burst_topics,
    incident_workload,
    workloads,
)
from kraftbridge.exceptions import InvalidSpecError
from kraftbridge.kafka.client import Security

log = logging.getLogger(__name__)

_INCIDENT_AT_SECONDS: Final = 5.0
_DOWN_SECONDS: Final = 3.0
_BATCH: Final = 100
LOADS: Final = {
    "normal": Load(
        creates=80,
        creates_per_second=6,
        configs=340,
        configs_per_second=20,
        acls=100,
        acls_per_second=10,
        burst=80,
        incident_seconds=35,
    ),
    "tiny": Load(
        creates=6,
        creates_per_second=3,
        configs=20,
        configs_per_second=20,
        acls=6,
        acls_per_second=6,
        burst=4,
        incident_seconds=0,
    ),
}
"""``normal``: what two shared cores carry in every mode; ``tiny``: for tests."""
_WARM_UP: Final = Load(8, 8, 40, 20, 10, 2, 8, 0)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run."""

    sizes: tuple[int, ...]
    rounds: int
    load: Load
    modes: tuple[str, ...] = MODES


def kafka_files(home: Path | None, agent: Path | None) -> tuple[Path, Path]:
    """Return the directory with Kafka's jars and the metrics agent.

    Raises
    ------
    InvalidSpecError
        One of them does not exist; the message names the missing option.
    """
    if home is None and os.environ.get("KAFKA_HOME"):
        home = Path(os.environ["KAFKA_HOME"])
    if home is None:
        raise InvalidSpecError(
            "no Kafka to run: give --kafka-home (or KAFKA_HOME), or --bootstrap-servers of a running cluster"
        )
    libraries = home / "libs" if (home / "libs").is_dir() else home
    for pattern, what in (
        ("kafka_2.1*.jar", "Kafka 3.9's broker"),
        ("zookeeper-3*.jar", "ZooKeeper (Kafka 4 has none)"),
    ):
        if not list(libraries.glob(pattern)):
            raise InvalidSpecError(f"{libraries} has no {pattern}: {what} is missing")
    found = agent or next(iter(sorted(libraries.glob("jmx_prometheus_javaagent*.jar"))), None)
    if found is None or not found.is_file():
        raise InvalidSpecError(
            "no jmx_prometheus_javaagent jar: give --metrics-agent (Maven: io.prometheus.jmx:jmx_prometheus_javaagent:1.0.1)"
        )
    return libraries, found


class QuorumBenchmark:
    """Runs a plan on clusters of its own and writes every raw result.

    Parameters
    ----------
    libraries
        Directory with Kafka's jars.
    metrics_agent
        ``jmx_prometheus_javaagent`` jar.
    output
        Directory; each round of each size becomes one ``.jsonl.gz`` file there.
    """

    def __init__(self, plan: Plan, libraries: Path, metrics_agent: Path, output: Path, run: str) -> None:
        self._plan = plan
        self._libraries = libraries
        self._agent = metrics_agent
        self._output = output
        self._run = run

    def run(self) -> list[Path]:
        """Run every round of every size; return the files."""
        files = []
        for number in range(1, self._plan.rounds + 1):
            for size in self._plan.sizes:
                path = self._output / f"{self._run}-{size}-{number}.jsonl.gz"
                with SampleFile(path) as file, self._cluster(size) as cluster:
                    _Round(self._plan, cluster, file, Setting(self._run, number, MODES[0], size)).walk()
                files.append(path)
        return files

    def _cluster(self, size: int) -> _Running:
        directory = Path(tempfile.mkdtemp(prefix="kraftbridge-bench-quorum-"))
        return _Running(BenchmarkCluster(directory, self._libraries, self._agent, heap_for(size)))


def heap_for(partitions: int) -> str:
    """Return the heap of every node for a cluster of so many partitions with three replicas each."""
    return f"{max(512, min(4096, partitions // 10))}m"


class _Running:
    def __init__(self, cluster: BenchmarkCluster) -> None:
        self._cluster = cluster

    def __enter__(self) -> BenchmarkCluster:
        return self._cluster

    def __exit__(self, *_: object) -> None:
        self._cluster.close()
        shutil.rmtree(self._cluster.directory, ignore_errors=True)


class _Round:
    """One migration of one cluster through the modes."""

    def __init__(self, plan: Plan, cluster: BenchmarkCluster, file: SampleFile, setting: Setting) -> None:
        self._plan = plan
        self._cluster = cluster
        self._file = file
        self._setting = setting
        self._background = background_topics(setting.partitions)
        self._security = Security()

    def walk(self) -> None:
        self._file.write("run", self._setting, {**asdict(Machine()), **load_now(), "load": asdict(self._plan.load)})
        self._stage("start on ZooKeeper", self._cluster.start_on_zookeeper)
        self._stage("fill", self._fill)
        steps: dict[str, Callable[[], None] | None] = {
            MODES[0]: None,
            MODES[1]: self._cluster.to_dual_write,
            MODES[2]: self._cluster.to_kraft,
        }
        for mode, step in steps.items():
            self._setting = replace(self._setting, mode=mode)
            if step is not None:
                self._stage(f"to {mode}", step)
            if mode in self._plan.modes:
                self._measure(mode)

    def _measure(self, mode: str) -> None:
        load, number = self._plan.load, self._setting.round
        tag = f"{self._run_tag()}-{mode[:4]}"
        self._stage("warm up", lambda: self._warm_up(tag))
        self._file.write("load", self._setting, load_now())
        for workload in workloads(load, BROKERS, self._background, tag, number):
            self._record(run_workload(workload, self._cluster.addresses, self._security))
        self._remove(burst_topics(load, tag))
        self._gauges()
        if load.incident_seconds:
            self._broker_restart(number)
            self._controller_failover(number)
        self._file.write("load", self._setting, load_now())

    def _run_tag(self) -> str:
        return f"r{self._setting.round}"

    def _fill(self) -> None:
        for start in range(0, len(self._background), _BATCH):
            changes = [CreateTopic(t, BACKGROUND_PARTITIONS, 3) for t in self._background[start : start + _BATCH]]
            self._carry_out(Name.CREATE, changes)
        self._cluster.expected_replicas = len(self._background) * BACKGROUND_PARTITIONS * 3
        self._cluster.wait_healthy()

    def _warm_up(self, tag: str) -> None:
        """Run a short part of everything, so that no mode includes the start-up cost of its JVMs."""
        for workload in workloads(_WARM_UP, BROKERS, self._background, f"{tag}-warm", 90 + self._setting.round):
            run_workload(workload, self._cluster.addresses, self._security)
        self._remove(burst_topics(_WARM_UP, f"{tag}-warm"))

    def _remove(self, topics: Iterable[str]) -> None:
        self._carry_out(Name.DELETE, [DeleteTopic(t) for t in topics])

    def _carry_out(self, name: Name, changes: Sequence[Change]) -> None:
        done = run_workload(
            Workload(name, tuple(changes), (0.0,) * len(changes)), self._cluster.addresses, self._security
        )
        if failed := [s.error for s in done if s.error]:
            log.warning("%d of %d changes failed: %s", len(failed), len(done), failed[0])

    def _record(self, samples: list[Sample]) -> None:
        for sample in samples:
            self._file.write("sample", self._setting, asdict(sample))
        waits = sorted(s.visible_ms - s.scheduled_ms for s in samples if s.visible_ms is not None)
        failed = sum(s.error is not None for s in samples)
        middle = f"{waits[len(waits) // 2]:.1f} ms" if waits else "never"
        log.info("%s: %s visible after %s (median), %d failed", self._where(), samples[0].workload, middle, failed)

    def _stage(self, name: str, act: Callable[[], None]) -> None:
        began = time.monotonic()
        act()
        seconds = round(time.monotonic() - began, 3)
        self._file.write("stage", self._setting, {"name": name, "seconds": seconds})
        log.info("%s: %s took %.1f s", self._where(), name, seconds)

    def _where(self) -> str:
        return f"round {self._setting.round}, {self._setting.partitions} partitions, {self._setting.mode}"

    def _gauges(self) -> None:
        cluster = self._cluster
        ports = {f"broker-{i}": port for i, port in cluster.broker_metrics_ports.items()}
        if cluster.mode != ZOOKEEPER:
            ports |= {f"controller-{i}": port for i, port in cluster.metrics_ports.items()}
        active = cluster.controller
        for node, port in ports.items():
            for name, value in node_gauges(port):
                self._file.write(
                    "gauge", self._setting, {"node": node, "active": node == active, "name": name, "value": value}
                )
        if self._setting.mode != MODES[2]:
            for server, port in cluster.zookeeper_ports.items():
                seen = dict(zookeeper_gauges(port))
                leads = bool(seen.pop("leader", 0.0))
                for name, value in seen.items():
                    row = {"node": f"zookeeper-{server}", "active": leads, "name": name, "value": value}
                    self._file.write("gauge", self._setting, row)

    def _broker_restart(self, number: int) -> None:
        """Restart a broker that is not the controller: every partition's ISR shrinks and grows again."""
        cluster = self._cluster
        name = next(f"broker-{b}" for b in BROKERS if f"broker-{b}" != cluster.controller)
        self._incident(Name.DURING_RESTART, number, lambda: cluster.restart(name, SIGTERM, _DOWN_SECONDS), name)

    def _controller_failover(self, number: int) -> None:
        """Kill the active controller; in ZooKeeper mode that is a broker."""
        cluster = self._cluster
        former = cluster.controller

        def kill() -> dict[str, float]:
            since = datetime.now()  # noqa: DTZ005 - as in the logs
            return cluster.restart(former, SIGKILL, _DOWN_SECONDS) | cluster.controller_loads(since)

        self._incident(Name.DURING_FAILOVER, number, kill, former)

    def _incident(self, name: Name, number: int, act: Callable[[], dict[str, float]], node: str) -> None:
        """Trigger an incident at a node while changes continue. The node's new process belongs to this thread."""
        workload = incident_workload(name, self._plan.load, self._background, self._setting.mode, number)
        started, samples = threading.Event(), list[Sample]()
        addresses = self._cluster.addresses

        def go() -> None:
            samples.extend(run_workload(workload, addresses, self._security, started))

        changes = threading.Thread(target=go)
        changes.start()
        started.wait(60)
        began = time.monotonic()
        time.sleep(_INCIDENT_AT_SECONDS)
        at_ms = round((time.monotonic() - began) * 1000, 3)
        seconds = act()
        changes.join()
        self._record(samples)
        self._file.write(
            "incident", self._setting, {"workload": name, "node": node, "at_ms": at_ms, "seconds": seconds}
        )
