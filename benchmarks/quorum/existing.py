"""Runs the benchmark on a running cluster. It creates, changes and deletes its own topics, and restarts no node."""

from __future__ import annotations

import logging
import time
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Final

import javaproperties

from benchmarks.quorum.changes import Change, CreateTopic, DeleteTopic
from benchmarks.quorum.open_loop import run_workload
from benchmarks.quorum.samples import Machine, SampleFile, Setting, load_now
from benchmarks.quorum.workloads import (
    BACKGROUND_PARTITIONS,
    BACKGROUND_PREFIX,
    Load,
    Name,
    Workload,
    burst_topics,
    workloads,
)
from benchmarks.quorum.writer import cluster_brokers
from kraftbridge.exceptions import InvalidSpecError, ObservationError
from kraftbridge.kafka.client import Security, inlined
from kraftbridge.kafka.wire import host_ports
from kraftbridge.outside import bounds
from kraftbridge.storage.kafka_brokers import BrokerClient
from kraftbridge.storage.kafka_controllers import ControllerClient

log = logging.getLogger(__name__)

_TOPICS: Final = 50
"""Topics of our own that configurations and ACLs are changed of."""
_CONNECT_SECONDS: Final = 10.0


def measure_existing(options: Namespace, load: Load, run: str) -> Path:
    """Measure a running cluster once; return the file of raw samples.

    Raises
    ------
    InvalidSpecError
        An option is missing or cannot be followed.
    """
    if options.mode is None:
        raise InvalidSpecError("--bootstrap-servers needs --mode: zookeeper, dual-write or kraft")
    properties = _properties(options.command_config)
    security = Security.from_properties(properties)
    brokers = cluster_brokers(host_ports(options.bootstrap_servers), security, _CONNECT_SECONDS)
    client = BrokerClient(options.bootstrap_servers, properties)
    try:
        partitions = client.cluster_state().partitions
    finally:
        client.close()
    setting = Setting(run, int(time.time()), options.mode, partitions)
    path: Path = options.output / f"{run}-{options.mode}.jsonl.gz"
    background = tuple(f"{BACKGROUND_PREFIX}-{run}-{i:03d}" for i in range(_TOPICS))
    replicas = min(3, len(brokers))
    with SampleFile(path) as file:
        file.write("run", setting, {**asdict(Machine()), **load_now(), "load": asdict(load)})
        _quorum(options.bootstrap_controllers, properties, file, setting)
        try:
            _all([CreateTopic(t, BACKGROUND_PARTITIONS, replicas) for t in background], brokers, security)
            for workload in workloads(load, tuple(brokers), background, run, 1):
                samples = run_workload(workload, brokers, security)
                for sample in samples:
                    file.write("sample", setting, asdict(sample))
                log.info("%s: %d changes, %d failed", workload.name, len(samples), sum(bool(s.error) for s in samples))
        finally:
            ours = [f"kraftbridge-bench-{run}-{i:05d}" for i in range(load.creates)]
            _all([DeleteTopic(t) for t in (*background, *burst_topics(load, run), *ours)], brokers, security)
        _quorum(options.bootstrap_controllers, properties, file, setting)
        file.write("load", setting, load_now())
    return path


def _all(changes: list[Change], brokers: Mapping[int, tuple[str, int]], security: Security) -> None:
    run_workload(Workload(Name.CREATE, tuple(changes), (0.0,) * len(changes)), brokers, security)


def _quorum(controllers: str | None, properties: Mapping[str, str], file: SampleFile, setting: Setting) -> None:
    """Note leader, epoch and high watermark, where the quorum may be asked."""
    if not controllers:
        return
    addresses = {}
    for entry in controllers.split(","):
        number, _, address = entry.partition("@")
        addresses[int(number)] = host_ports(address)[0]
    client = ControllerClient(addresses, properties)
    try:
        state = client.quorum_state()
    except ObservationError as e:
        log.warning("%s", e)
        return
    finally:
        client.close()
    for name in ("leader_id", "leader_epoch", "high_watermark"):
        file.write(
            "gauge", setting, {"node": "quorum", "active": True, "name": name, "value": float(getattr(state, name))}
        )


def _properties(path: Path | None) -> dict[str, str]:
    return {} if path is None else inlined(javaproperties.loads(path.read_text(encoding="utf-8")), bounds.file)
