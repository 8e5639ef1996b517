"""ZooKeeper, brokers and KRaft controllers of Kafka 3.9 as processes on this host, loopback only.

The integration tests and the benchmarks start their nodes here. Nothing outlives a run: processes end with the thread that started them (also
by SIGKILL), and directories that a killed run left behind are removed by the next one.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from tests.support.programs import die_with_parent, free_port, installed_tool, maven_jars

from kraftbridge.exceptions import MigrationError
from kraftbridge.storage.kafka_brokers import BrokerClient

CHROOT: Final = "/kafka"
MIGRATION: Final = "migration"
ZOOKEEPER: Final = "zookeeper"
KRAFT: Final = "kraft"
FINAL: Final = "final"
KAFKA_VERSION: Final = "3.9.2"
POM: Final = Path(__file__).resolve().parents[1] / "integration" / "kafka-libs.pom.xml"
_DIRECTORY_PREFIX: Final = "kraftbridge-kafka-processes-"

T = TypeVar("T")


class ProcessFailedError(AssertionError):
    """A node ended by itself, or did not start or stop in time."""


def port_is_open(port: int) -> bool:
    """Return whether something on loopback accepts a connection at the port."""
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def zookeeper_serves(port: int) -> bool:
    """Return whether the ZooKeeper at the port serves requests; its port is open before that."""
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as connection:
            connection.sendall(b"srvr")
            return b"Mode:" in connection.makefile("rb").read()
    except OSError:
        return False


class KafkaProcesses:
    """A ZooKeeper, brokers and controllers that share one directory.

    Subclasses change what all nodes get: heap, further settings, how long one may take to stop.

    Parameters
    ----------
    directory
        Configurations, data and logs of all nodes; `close` removes it.
    libraries
        Directory with Kafka's jars: ``libs`` of a distribution.
    metrics_agent
        Prometheus' ``jmx_prometheus_javaagent``; the controllers serve metrics with it.
    """

    stop_seconds = 90.0
    heap = "192m"

    def __init__(
        self,
        directory: Path,
        libraries: Path,
        broker_ids: Sequence[int],
        controller_ids: Sequence[int],
        metrics_agent: Path,
    ) -> None:
        self.directory = directory
        self._libraries = libraries
        self.libraries_of: dict[str, Path] = {}
        """Other jars than the rest's, by process (``broker-0``): another release of Kafka."""
        self._java = installed_tool("java", "openjdk-17-jre-headless", "Kafka's processes")
        self._agent = metrics_agent
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.zookeeper_port = free_port()
        self.broker_ports = {i: free_port() for i in broker_ids}
        self.controller_ports = {i: free_port() for i in controller_ids}
        self.metrics_ports = {i: free_port() for i in controller_ids}
        self.extra_broker_settings: dict[int, str] = {}
        """Further lines of a broker's configuration, by id; ``listeners`` there take the place of the plain one."""
        (directory / "log4j.properties").write_text(
            "log4j.rootLogger=INFO, stdout\n"
            "log4j.appender.stdout=org.apache.log4j.ConsoleAppender\n"
            "log4j.appender.stdout.layout=org.apache.log4j.PatternLayout\n"
            "log4j.appender.stdout.layout.ConversionPattern=[%d] %p %m (%c)%n\n"
        )
        (directory / "jmx.yml").write_text(
            'includeObjectNames: ["kafka.controller:*", "kafka.server:type=raft-metrics",'
            ' "kafka.server:type=raft-metrics,*"]\n'
        )

    @property
    def zookeeper_hosts(self) -> str:
        """``host:port`` of ZooKeeper."""
        return f"127.0.0.1:{self.zookeeper_port}"

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of every broker, separated by commas."""
        return ",".join(f"127.0.0.1:{port}" for port in self.broker_ports.values())

    def admin_client(self, timeout_seconds: float = 150.0) -> AdminClient:
        """Return a client of the brokers once they know each other and the controller.

        A broker opens its port before it has heard from the controller. A client that asks it then learns of no broker at all, and
        librdkafka's admin requests wait for one until they time out.
        """
        deadline = time.monotonic() + timeout_seconds
        while trouble := _not_formed(self.bootstrap_servers.split(",")):
            if time.monotonic() > deadline:
                raise ProcessFailedError(f"the brokers after {timeout_seconds:.0f} s: {trouble}")
            time.sleep(0.2)
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})

    @property
    def controller_addresses(self) -> dict[int, tuple[str, int]]:
        """Host and port of every controller."""
        return {i: ("127.0.0.1", port) for i, port in self.controller_ports.items()}

    @property
    def _voters(self) -> str:
        return ",".join(f"{i}@127.0.0.1:{port}" for i, port in self.controller_ports.items())

    def start_zookeeper(self, settings: Mapping[str, str] | None = None) -> None:
        """Start ZooKeeper; returns once it serves: a session that begins before that may never be answered."""
        lines = {
            "tickTime": "1000",
            "dataDir": str(self.directory / "zookeeper-data"),
            "clientPort": str(self.zookeeper_port),
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "cons,srvr",
            "maxClientCnxns": "0",
            **(settings or {}),
        }
        path = self._write("zookeeper.cfg", "".join(f"{k}={v}\n" for k, v in lines.items()))
        self._spawn("zookeeper", ["org.apache.zookeeper.server.quorum.QuorumPeerMain", path])
        self.wait_for_port("zookeeper", self.zookeeper_port, zookeeper_serves)

    def start_broker(self, broker_id: int, mode: str, *, wait: bool = True) -> None:
        """Start a broker in `ZOOKEEPER`, `MIGRATION` or `KRAFT` mode; returns once its port is open, unless told not to wait."""
        name = f"broker-{broker_id}"
        path = self._broker_properties(broker_id, mode)
        self._spawn(name, ["kafka.Kafka", path], self._broker_options(broker_id))
        if wait:
            self.wait_for_port(name, self.broker_ports[broker_id])

    def _broker_properties(self, broker_id: int, mode: str) -> str:
        extra = self.extra_broker_settings.get(broker_id, "")
        settings = ""
        if "listeners=" not in extra:
            settings += f"listeners=PLAINTEXT://127.0.0.1:{self.broker_ports[broker_id]}\n"
        if "listener.security.protocol.map=" not in extra:
            settings += "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
        settings += (
            f"log.dirs={self.directory}/broker-{broker_id}\n"
            "inter.broker.listener.name=PLAINTEXT\n"
            "offsets.topic.num.partitions=1\noffsets.topic.replication.factor=1\n"
            "num.network.threads=2\nnum.io.threads=2\nbackground.threads=2\nlog.cleaner.enable=false\n"
            "auto.create.topics.enable=false\n"
        )
        if mode in (ZOOKEEPER, MIGRATION):
            settings += (
                f"broker.id={broker_id}\nzookeeper.connect={self.zookeeper_hosts}{CHROOT}\n"
                "zookeeper.session.timeout.ms=6000\n"  # no inter.broker.protocol.version: users' charts set none
            )
        else:
            settings += f"process.roles=broker\nnode.id={broker_id}\n"
        if mode == MIGRATION:
            settings += "zookeeper.metadata.migration.enable=true\n"
        if mode != ZOOKEEPER:
            settings += f"controller.listener.names=CONTROLLER\ncontroller.quorum.voters={self._voters}\n"
        return self._write(f"broker-{broker_id}.properties", settings + extra)

    def format_controller(self, controller_id: int, cluster_id: str, mode: str = MIGRATION) -> None:
        """Format a controller's log directory with the cluster's id: for a migration, or (`FINAL`) without any ZooKeeper."""
        self._format(f"controller-{controller_id}", self._controller_properties(controller_id, mode), cluster_id)

    def format_broker(self, broker_id: int, cluster_id: str) -> None:
        """Format the log directory of a KRaft broker that never had a ZooKeeper."""
        self._format(f"broker-{broker_id}", self._broker_properties(broker_id, KRAFT), cluster_id)

    def _format(self, name: str, properties: str, cluster_id: str) -> None:
        arguments = ["kafka.tools.StorageTool", "format", f"--cluster-id={cluster_id}", "--config", properties]
        self.tool(self.libraries_of.get(name), *arguments)

    def tool(self, libraries: Path | None, *arguments: str) -> str:
        """Return what a command line tool prints that is in these jars, or in those that most nodes have."""
        command = self._command(arguments, libraries=libraries)
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=150)
        if done.returncode:
            raise RuntimeError(f"{' '.join(arguments)}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def start_controller(self, controller_id: int, mode: str = MIGRATION) -> None:
        """Start a controller in `MIGRATION` or `FINAL` mode; returns once its port is open, quorum or not."""
        name = f"controller-{controller_id}"
        options = [self._agent_option(self.metrics_ports[controller_id])]
        self._spawn(name, ["kafka.Kafka", self._controller_properties(controller_id, mode)], options)
        self.wait_for_port(name, self.controller_ports[controller_id])

    def stop(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        """End one process: ``zookeeper``, ``broker-0``, ``controller-3000``."""
        process = self._processes.pop(name)
        process.send_signal(how)
        try:
            process.wait(self.stop_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
            raise ProcessFailedError(f"{name} did not stop in {self.stop_seconds:.0f} s:\n{self.tail(name)}") from None

    def in_sync(self) -> bool:
        """Return whether every broker serves and no partition lacks a replica."""
        brokers = BrokerClient(self.bootstrap_servers, {})
        try:
            state = brokers.cluster_state()
        finally:
            brokers.close()
        is_full = not state.under_replicated_count and not state.offline_count
        return len(state.brokers) == len(self.broker_ports) and is_full

    def ended(self, name: str) -> bool:
        """Whether a process has ended by itself."""
        return self._processes[name].poll() is not None

    def ended_by_themselves(self) -> dict[str, str]:
        """Return the end of the output of each process that ended though nobody stopped it, by name."""
        return {name: self.tail(name) for name, process in self._processes.items() if process.poll() is not None}

    def signal(self, name: str, how: signal.Signals) -> None:
        """Send a signal to one process (``SIGSTOP`` makes a node silent without closing its connections).

        A process stops only once one of its threads handles ``SIGSTOP``, so this function waits until it has.
        """
        process = self._processes[name]
        process.send_signal(how)
        if how is signal.SIGSTOP:
            wait_for(f"{name} stopped", lambda: all(state == "T" for state in _thread_states(process.pid)))

    def close(self) -> None:
        """End all processes and remove the directory."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait(10)
        self._processes.clear()
        shutil.rmtree(self.directory, ignore_errors=True)

    def tail(self, name: str, lines: int = 30) -> str:
        """Return the end of a process's output."""
        return "\n".join((self.directory / f"{name}.log").read_text(errors="replace").splitlines()[-lines:])

    def wait_for_port(
        self, name: str, port: int, serves: Callable[[int], bool] = port_is_open, timeout_seconds: float = 150.0
    ) -> None:
        """Return once the port is open, or serves as told; fails at once when the process has ended."""
        deadline = time.monotonic() + timeout_seconds
        while time.monotonic() < deadline:
            if self._processes[name].poll() is not None:
                raise ProcessFailedError(f"{name} ended by itself:\n{self.tail(name)}")
            if serves(port):
                return
            time.sleep(0.1)
        raise ProcessFailedError(f"{name} did not serve at port {port} in {timeout_seconds:.0f} s:\n{self.tail(name)}")

    def _broker_options(self, broker_id: int) -> list[str]:
        return []

    def _agent_option(self, port: int) -> str:
        return f"-javaagent:{self._agent}=127.0.0.1:{port}:{self.directory}/jmx.yml"

    def _controller_properties(self, controller_id: int, mode: str) -> str:
        settings = (
            f"process.roles=controller\nnode.id={controller_id}\n"
            f"listeners=CONTROLLER://127.0.0.1:{self.controller_ports[controller_id]}\n"
            "controller.listener.names=CONTROLLER\n"
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
            f"controller.quorum.voters={self._voters}\n"
            f"log.dirs={self.directory}/controller-{controller_id}\n"
            "num.network.threads=2\nnum.io.threads=2\n"
        )
        if mode == MIGRATION:
            settings += f"zookeeper.metadata.migration.enable=true\nzookeeper.connect={self.zookeeper_hosts}{CHROOT}\n"
        return self._write(f"controller-{controller_id}.properties", settings)

    def _command(
        self, arguments: Sequence[str], options: Sequence[str] = (), libraries: Path | None = None
    ) -> list[str]:
        return [
            self._java,
            f"-Xmx{self.heap}",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Xshare:auto",
            "-Djava.net.preferIPv4Stack=true",
            f"-Dlog4j.configuration=file:{self.directory}/log4j.properties",
            *options,
            "-cp",
            f"{libraries or self._libraries}/*",
            *arguments,
        ]

    def _spawn(self, name: str, arguments: Sequence[str], options: Sequence[str] = ()) -> None:
        with (self.directory / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                self._command(arguments, options, self.libraries_of.get(name)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - one C call, no locks
            )

    def _write(self, name: str, text: str) -> str:
        path = self.directory / name
        path.write_text(text)
        return str(path)


P = TypeVar("P", bound=KafkaProcesses)


def kafka_libraries(version: str = KAFKA_VERSION) -> Path:
    """Return the directory with the jars of a release of Kafka, fetched by Maven once per machine."""
    installed_tool("java", "openjdk-17-jre-headless", "Kafka's processes")
    pom = POM.read_text().replace(f"<version>{KAFKA_VERSION}<", f"<version>{version}<")
    return maven_jars("kafka-libs", version, pom)


def _not_formed(servers: Sequence[str]) -> str:
    for server in servers:
        try:
            metadata = AdminClient({"bootstrap.servers": server, "log_level": 0}).list_topics(timeout=10)
        except KafkaException as e:
            return f"{server}: {e}"
        if len(metadata.brokers) < len(servers) or metadata.controller_id < 0:
            return f"{server} knows {len(metadata.brokers)} brokers, controller {metadata.controller_id}"
    return ""


def wait_for(what: str, condition: Callable[[], T | None], timeout_seconds: float = 150.0) -> T:
    """Return what ``condition`` returns once it is true; exceptions of the domain and of librdkafka count as "not yet"."""
    deadline = time.monotonic() + timeout_seconds
    last: object = None
    while time.monotonic() < deadline:
        try:
            last = condition()
        except (MigrationError, KafkaException) as e:
            last = e
        else:
            if last:
                return last
        time.sleep(0.1)
    raise AssertionError(f"{what}: not after {timeout_seconds:.0f} s; last seen: {last}")


def _thread_states(pid: int) -> list[str]:
    """Return the state of each thread of a process, as in ``/proc/PID/task/TID/stat`` (proc(5)); ``T`` is stopped."""
    stats = [(task / "stat").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    return [stat.rpartition(")")[2].split()[0] for stat in stats]


@contextmanager
def kafka_processes(
    broker_ids: Sequence[int], controller_ids: Sequence[int], kind: type[P] = KafkaProcesses
) -> Iterator[P]:
    """Give a directory and ports for these nodes, none started yet; end and remove everything afterwards."""
    _remove_leftovers()
    libraries = kafka_libraries()
    directory = Path(tempfile.mkdtemp(prefix=f"{_DIRECTORY_PREFIX}{os.getpid()}-"))
    agent = next(libraries.glob("jmx_prometheus_javaagent-*.jar"))
    processes = kind(directory, libraries, broker_ids, controller_ids, agent)
    try:
        yield processes
    except Exception as e:
        for name, output in processes.ended_by_themselves().items():
            e.add_note(f"{name} ended by itself:\n{output}")
        raise
    finally:
        processes.close()


def _remove_leftovers() -> None:
    """Remove directories of runs whose process is gone."""
    for directory in Path(tempfile.gettempdir()).glob(f"{_DIRECTORY_PREFIX}*"):
        pid = directory.name.removeprefix(_DIRECTORY_PREFIX).partition("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(directory, ignore_errors=True)
