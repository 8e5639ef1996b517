"""One cluster of three brokers that migrates from ZooKeeper over dual-write to KRaft, as processes on this host."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from signal import SIGKILL, SIGTERM, Signals
from typing import Final

from tests.support.kafka_processes import (
    CHROOT,
    FINAL,
    KRAFT,
    MIGRATION,
    ZOOKEEPER,
    KafkaProcesses,
    ProcessFailedError,
)
from tests.support.programs import free_port
from typing_extensions import override

from benchmarks.quorum.gauges import EXPORTED, replicas
from kraftbridge.exceptions import MigrationError
from kraftbridge.models.observation import MigrationZnode
from kraftbridge.storage.kafka_brokers import BrokerClient
from kraftbridge.storage.kafka_controllers import ControllerClient
from kraftbridge.storage.zookeeper import ZooKeeperStore

BROKERS: Final = (0, 1, 2)
CONTROLLERS: Final = (3000, 3001, 3002)
ZOOKEEPERS: Final = (1, 2, 3)
MAX_LAG_RECORDS: Final = 100
_LONG_SECONDS: Final = 600.0


_ZOOKEEPER_LOADS: Final = {
    "elected_to_ready_s": ("successfully elected as the controller", "Ready to serve as the new controller"),
}
"""Log lines of ``kafka.controller.KafkaController`` between which it reads all of ZooKeeper."""
_QUORUM_LOADS: Final = {
    "elected_to_ready_s": ("Becoming the active controller at epoch", "Performing controller activation"),
    "restart_to_loaded_s": ("Starting controller", "The loader finished catching up"),
    "elected_to_dual_write_s": ("Becoming the active controller at epoch", "to DUAL_WRITE state"),
}
"""Log lines of ``QuorumController``, ``MetadataLoader`` and ``KRaftMigrationDriver``; the image of a standby is in memory already."""


def _span(path: Path, since: datetime, begin: str, end: str) -> float | None:
    """Return the seconds between the first line with ``begin`` after a time and the next one with ``end``; None without both."""
    begun: datetime | None = None
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if (begin if begun is None else end) not in line:
                continue
            stamp = re.match(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})\]", line)
            at = datetime.strptime(stamp[1], "%Y-%m-%d %H:%M:%S,%f") if stamp else since  # noqa: DTZ007 - compared with each other only
            if begun is not None:
                return round((at - begun).total_seconds(), 3)
            if at > since:
                begun = at
    return None


class BenchmarkCluster(KafkaProcesses):
    """Three brokers, three KRaft controllers, a ZooKeeper ensemble of three; every broker and controller exports its gauges.

    Three of each: a single ZooKeeper server waits for its own disk only, which would favour that mode. Timeouts are Kafka's own defaults (``zookeeper.session.timeout.ms=18000``, ``broker.session.timeout.ms=9000``), since failover is measured.
    """

    stop_seconds = 120.0

    def __init__(self, directory: Path, libraries: Path, metrics_agent: Path, heap: str) -> None:
        super().__init__(directory, libraries, BROKERS, CONTROLLERS, metrics_agent)
        self.heap = heap
        self.mode = ZOOKEEPER
        self.expected_replicas = 0
        self.broker_metrics_ports = {i: free_port() for i in BROKERS}
        names = ", ".join(f'"{name}"' for name in EXPORTED)
        (directory / "jmx.yml").write_text(f"includeObjectNames: [{names}]\n", encoding="ascii")
        self.zookeeper_ports = {i: free_port() for i in ZOOKEEPERS}
        self._ensemble = "".join(
            f"server.{i}=127.0.0.1:{free_port()}:{free_port()};127.0.0.1:{port}\n"
            for i, port in self.zookeeper_ports.items()
        )
        self.zookeeper = ZooKeeperStore(self.zookeeper_hosts, CHROOT)
        self.quorum = ControllerClient(self.controller_addresses, {})
        self.brokers = {i: BrokerClient(f"127.0.0.1:{self.broker_ports[i]}", {}) for i in BROKERS}

    @property
    @override
    def zookeeper_hosts(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.zookeeper_ports.values())

    @property
    def addresses(self) -> dict[int, tuple[str, int]]:
        """Host and port of every broker."""
        return {i: ("127.0.0.1", port) for i, port in self.broker_ports.items()}

    @override
    def close(self) -> None:
        self.zookeeper.close()
        self.quorum.close()
        for client in self.brokers.values():
            client.close()
        super().close()

    @override
    def start_broker(self, broker_id: int, mode: str, *, wait: bool = True) -> None:
        on_zookeeper = mode in (ZOOKEEPER, MIGRATION)
        authorizer = (
            "kafka.security.authorizer.AclAuthorizer"
            if on_zookeeper
            else "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        )
        self.extra_broker_settings[broker_id] = (
            f"authorizer.class.name={authorizer}\nsuper.users=User:ANONYMOUS\n"
            "zookeeper.session.timeout.ms=18000\nlog.index.size.max.bytes=65536\n"
            "num.network.threads=3\nnum.io.threads=8\nbackground.threads=10\nnum.recovery.threads.per.data.dir=2\n"
        )
        super().start_broker(broker_id, mode, wait=wait)

    def start_on_zookeeper(self) -> None:
        """Start ZooKeeper and the brokers; returns once each knows all of them."""
        for server in ZOOKEEPERS:
            self._start_zookeeper_server(server)
        for broker in BROKERS:
            self.start_broker(broker, ZOOKEEPER)
        for broker, client in self.brokers.items():

            def knows_all(client: BrokerClient = client) -> bool:
                return len(client.cluster_state().brokers) == len(BROKERS)

            self.wait(knows_all, f"broker {broker} to know all")
        self.wait_healthy()

    def _start_zookeeper_server(self, server: int) -> None:
        data = self.directory / f"zookeeper-data-{server}"
        data.mkdir()
        (data / "myid").write_text(f"{server}\n", encoding="ascii")
        settings = (
            f"tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir={data}\nadmin.enableServer=false\n"
            "standaloneEnabled=false\n4lw.commands.whitelist=ruok,mntr\nmaxClientCnxns=0\n"
        )
        name = f"zookeeper-{server}"
        path = self._write(f"{name}.cfg", settings + self._ensemble)
        self._spawn(name, ["org.apache.zookeeper.server.quorum.QuorumPeerMain", path])
        self.wait_for_port(name, self.zookeeper_ports[server])

    def to_dual_write(self) -> None:
        """Start the controllers and restart the brokers in migration mode. Returns when ZooKeeper mirrors the log."""
        cluster_id = self.zookeeper.observe().cluster_id
        if cluster_id is None:
            raise ProcessFailedError("ZooKeeper holds no cluster id")
        for controller in CONTROLLERS:
            self.format_controller(controller, cluster_id)
        for controller in CONTROLLERS:
            self.start_controller(controller)
        self.wait(lambda: self.quorum.quorum_state().high_watermark > 0, "a leader of the quorum")
        self.mode = MIGRATION
        self._roll()
        first = self.wait(lambda: self.mirrored_offset() + 1, "ZooKeeper to mirror the log")
        self.wait(lambda: self.mirrored_offset() + 1 > first, "ZooKeeper to mirror on")
        self.wait_healthy()

    def to_kraft(self) -> None:
        """Restart the brokers as KRaft brokers, finalize the controllers and stop ZooKeeper."""
        self.mode = KRAFT
        self._roll()
        leader = self.quorum.quorum_state().leader_id
        for controller in sorted(CONTROLLERS, key=lambda c: c == leader):
            self.stop(f"controller-{controller}")
            self.start_controller(controller, FINAL)
            self.wait(self._caught_up, "the quorum")
        self.wait_healthy()
        for server in ZOOKEEPERS:
            self.stop(f"zookeeper-{server}")

    def _caught_up(self) -> bool:
        lag = self.quorum.quorum_state().max_lag_records
        return lag is not None and lag < MAX_LAG_RECORDS

    def mirrored_offset(self) -> int:
        """Return the offset that ZooKeeper mirrors, -1 before the copy is complete."""
        migration = self.zookeeper.observe().migration
        return migration.kraft_metadata_offset if isinstance(migration, MigrationZnode) else -1

    @property
    def controller(self) -> str:
        """Name of the process that is the active controller."""
        if self.mode == ZOOKEEPER:
            znode = self.zookeeper.observe().controller
            return f"broker-{znode.broker_id}" if znode else ""
        return f"controller-{self.quorum.quorum_state().leader_id}"

    def wait_healthy(self) -> None:
        """Wait until every broker has loaded its replicas and every ISR is full, according to the brokers' gauges."""

        def healthy() -> bool:
            seen = [replicas(port) for port in self.broker_metrics_ports.values()]
            known = [s for s in seen if s is not None]
            total = sum(count for count, _ in known)
            return len(known) == len(BROKERS) and total >= self.expected_replicas and not any(lack for _, lack in known)

        self.wait(healthy, f"every ISR to be full, {self.expected_replicas} replicas at least")

    def restart(self, name: str, how: Signals, down_seconds: float = 0.0) -> dict[str, float]:
        """End a node and start it again; return how long each step took, in seconds since the signal."""
        began = time.monotonic()
        kind, _, number = name.partition("-")
        self.stop(name, how)
        seconds = {"stopped_s": time.monotonic() - began}
        if how is SIGKILL and kind == "broker" and self.mode != KRAFT:
            # A broker that comes back before its session ends is refused (NodeExists): wait as a supervisor would.
            self.wait(lambda: int(number) not in {b.id for b in self.zookeeper.observe().brokers}, "its session to end")
        time.sleep(down_seconds)
        if kind == "broker":
            self.start_broker(int(number), self.mode)
        else:
            self.start_controller(int(number), FINAL if self.mode == KRAFT else MIGRATION)
        seconds["port_open_s"] = time.monotonic() - began
        self.wait_healthy()
        seconds["isr_full_s"] = time.monotonic() - began
        return {key: round(value, 3) for key, value in seconds.items()}

    def wait(self, condition: Callable[[], bool | int], what: str, seconds: float = _LONG_SECONDS) -> int:
        """Return what a condition returns once it is true; what cannot be seen yet counts as false."""
        deadline = time.monotonic() + seconds
        last: object = None
        while time.monotonic() < deadline:
            try:
                if last := condition():
                    return int(last)
            except MigrationError as e:
                last = e
            time.sleep(0.1)
        raise ProcessFailedError(f"waited {seconds:.0f} s for {what}; last seen: {last}")

    def controller_loads(self, since: datetime) -> dict[str, float]:
        """Return how long new and restarted controllers took to load, according to their logs; a load that did not happen is left out.

        Parameters
        ----------
        since
            Local time without a zone, as in the logs.
        """
        spans = _ZOOKEEPER_LOADS if self.mode == ZOOKEEPER else _QUORUM_LOADS
        nodes = [f"broker-{b}" for b in BROKERS] if self.mode == ZOOKEEPER else [f"controller-{c}" for c in CONTROLLERS]
        found = {}
        for name, (begin, end) in spans.items():
            took = [s for node in nodes if (s := _span(self.directory / f"{node}.log", since, begin, end)) is not None]
            if took:
                found[name] = max(took)
        return found

    def _roll(self) -> None:
        controller = self.controller if self.mode == ZOOKEEPER else ""
        for broker in sorted(BROKERS, key=lambda b: f"broker-{b}" == controller):
            self.stop(f"broker-{broker}", SIGTERM)
            self.start_broker(broker, self.mode)
            self.wait_healthy()

    @override
    def _broker_options(self, broker_id: int) -> list[str]:
        return [self._agent_option(self.broker_metrics_ports[broker_id])]

    @override
    def _controller_properties(self, controller_id: int, mode: str) -> str:
        path = super()._controller_properties(controller_id, mode)
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(
                "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
                "super.users=User:ANONYMOUS\nnum.network.threads=3\nnum.io.threads=8\n"
            )
        return path
