"""``python -m tests.rehearsal forecast``: the forecast of a rehearsal beside a real takeover of the same cluster.

ZooKeeper, three brokers and a controller are real processes on this host. The tree is dumped and rehearsed when everything but the last
broker waits for the migration, as the operator does it; then the last broker restarts, and the controller takes over.
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from kafka.protocol.admin.topics import CreateTopicsRequest
from tests.support.kafka_processes import (
    CHROOT,
    KAFKA_VERSION,
    MIGRATION,
    ZOOKEEPER,
    KafkaProcesses,
    kafka_processes,
    wait_for,
)
from typing_extensions import override

from kraftbridge.kafka.client import Security
from kraftbridge.kafka.wire import Connection
from kraftbridge.metadata.zookeeper.reader import ZooKeeperReader, write_dump
from kraftbridge.models.rehearsal import Ending, Stage
from kraftbridge.models.report import ZooKeeperAccess
from kraftbridge.rehearsal.controller_log import ControllerLog
from kraftbridge.rehearsal.rehearse import RehearsalOptions, rehearse
from kraftbridge.storage.kafka_brokers import BrokerClient, ControllerProbeClient, Prober
from kraftbridge.storage.kafka_controllers import ControllerClient
from kraftbridge.storage.zookeeper import ZooKeeperStore

BROKERS: Final = (0, 1, 2)
CONTROLLER: Final = 3000
PARTITIONS_PER_TOPIC: Final = 20
TOPICS_PER_REQUEST: Final = 5
GOAL: Final = 0.3
"""Part of the real time by which the forecast may differ."""
_SETTLE_SECONDS: Final = 5.0


class Processes(KafkaProcesses):
    """JVMs as in production: with the optimizing compiler, and the same heap as the rehearsal's controller."""

    heap = "768m"
    stop_seconds = 120.0

    @override
    def _command(
        self, arguments: Sequence[str], options: Sequence[str] = (), libraries: Path | None = None
    ) -> list[str]:
        return [part for part in super()._command(arguments, options, libraries) if part != "-XX:TieredStopAtLevel=1"]


def takeover(partitions: int) -> dict[str, Any]:
    """Return forecast and truth of a cluster with this number of partitions and three replicas of each, as a row of ``forecast.jsonl``."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with (
        kafka_processes(BROKERS, [CONTROLLER], Processes) as processes,
        tempfile.TemporaryDirectory() as folder,
        _on_zookeeper(processes, partitions),
    ):
        rehearsed = _rehearse(processes, Path(folder))
        row = {"partitions": partitions, "kafka": KAFKA_VERSION, "ending": str(rehearsed.ending)}
        row |= {"forecast_seconds": rehearsed.forecast.no_controller_seconds}
        row |= _stages("rehearsal", rehearsed.stages_seconds)
        log, unavailable = _take_over(processes)
    first = min(log.stages.values())
    real = {stage: (at - first).total_seconds() for stage, at in log.stages.items()}
    row |= _stages("takeover", real)
    row |= {
        "claim_to_dual_write_seconds": round(real[Stage.DUAL_WRITE] - real[Stage.CLAIMED], 2),
        "unavailable_seconds": unavailable,
    }
    forecast = rehearsed.forecast.no_controller_seconds
    within = forecast is not None and abs(forecast - unavailable) <= GOAL * unavailable
    return row | {
        "broken": []
        if within and rehearsed.ending is Ending.DUAL_WRITE
        else [f"the forecast differs by more than {GOAL:.0%}"]
    }


def _stages(name: str, seconds: dict[Stage, float]) -> dict[str, float]:
    def between(first: Stage, last: Stage) -> float:
        return round(seconds[last] - seconds[first], 2)

    return {
        f"{name}_copy_seconds": between(Stage.COPY_BEGINS, Stage.COPY_ENDS),
        f"{name}_sync_seconds": between(Stage.SYNC_BEGINS, Stage.SYNC_ENDS),
        f"{name}_rest_seconds": round(
            between(Stage.CLAIMED, Stage.DUAL_WRITE)
            - between(Stage.COPY_BEGINS, Stage.COPY_ENDS)
            - between(Stage.SYNC_BEGINS, Stage.SYNC_ENDS),
            2,
        ),
    }


@contextmanager
def _on_zookeeper(processes: Processes, partitions: int) -> Iterator[None]:
    """Start the cluster, fill it, and bring it to the point where one broker's restart begins the takeover."""
    processes.start_zookeeper()
    for broker in BROKERS:
        processes.start_broker(broker, ZOOKEEPER)
    brokers = BrokerClient(processes.bootstrap_servers, {})
    zookeeper = ZooKeeperStore(processes.zookeeper_hosts, CHROOT)
    controllers = ControllerClient(processes.controller_addresses, {})
    try:
        wait_for("three brokers", lambda: len(brokers.cluster_state().brokers) == len(BROKERS), 150)
        _fill(processes, partitions)
        cluster_id = zookeeper.observe().cluster_id
        assert cluster_id is not None
        processes.format_controller(CONTROLLER, cluster_id)
        processes.start_controller(CONTROLLER)
        wait_for("a leader", lambda: controllers.quorum_state().high_watermark > 0, 150)
        for broker in BROKERS[:-1]:
            _restart(processes, brokers, broker)
        yield
    finally:
        for client in (brokers, zookeeper, controllers):
            client.close()


def _fill(processes: Processes, partitions: int) -> None:
    connection = Connection("127.0.0.1", _controller_port(processes), Security(), 150)
    topics = [
        CreateTopicsRequest.CreatableTopic(
            name=f"topic-{first // PARTITIONS_PER_TOPIC}", num_partitions=min(PARTITIONS_PER_TOPIC, partitions - first),
            replication_factor=len(BROKERS), assignments=[], configs=[],
        )
        for first in range(0, partitions, PARTITIONS_PER_TOPIC)
    ]  # fmt: skip
    for first in range(0, len(topics), TOPICS_PER_REQUEST):
        answer: Any = connection.call(
            CreateTopicsRequest,
            150,
            max_version=5,
            topics=topics[first : first + TOPICS_PER_REQUEST],
            timeout_ms=120_000,
            validate_only=False,
        )
        assert not [topic for topic in answer.topics if topic.error_code], answer
    connection.close()


def _controller_port(processes: Processes) -> int:
    connection = Connection("127.0.0.1", processes.broker_ports[BROKERS[0]], Security(), 30)
    answer = wait_for("a controller", lambda: m if (m := connection.metadata(30)).controller_id >= 0 else None)
    connection.close()
    return processes.broker_ports[answer.controller_id]


def _restart(processes: Processes, brokers: BrokerClient, broker: int) -> None:
    processes.stop(f"broker-{broker}")
    processes.start_broker(broker, MIGRATION)
    wait_for(f"broker {broker} in every ISR", lambda: not brokers.cluster_state().under_replicated, 300)


def _rehearse(processes: Processes, folder: Path) -> Any:
    dump = folder / "zk.jsonl"
    with ZooKeeperReader(ZooKeeperAccess(connect=processes.zookeeper_hosts + CHROOT)) as reader:
        write_dump(reader.walk(), dump, CHROOT)
    time.sleep(_SETTLE_SECONDS)
    return rehearse(dump, RehearsalOptions(processes._libraries, folder / "work", CHROOT, heap_bytes=768 * 1024 * 1024))


def _take_over(processes: Processes) -> tuple[ControllerLog, float]:
    """Restart the last broker; return the controller's stages and the longest time in which no controller accepted a write."""
    last = BROKERS[-1]
    processes.stop(f"broker-{last}")
    prober = Prober(lambda: ControllerProbeClient(processes.bootstrap_servers, {}))
    log = ControllerLog(processes.directory / f"controller-{CONTROLLER}.log")
    try:
        prober.measure("the stop of the last broker")
        time.sleep(_SETTLE_SECONDS)
        prober.measure("takeover")
        processes.start_broker(last, MIGRATION)

        def ended() -> bool:
            log.read_on()
            return Stage.DUAL_WRITE in log.stages

        wait_for("dual-write", ended, 300)
        wait_for("a write that is accepted", lambda: prober.measure("takeover").longest_milliseconds > 0, 60)
        return log, prober.measure("takeover").longest_milliseconds / 1000
    finally:
        prober.close()
