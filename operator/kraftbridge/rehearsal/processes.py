"""The two processes of a rehearsal on this machine, loopback only: a scratch ZooKeeper and a scratch controller.

They end with the thread that started them, also after SIGKILL.
"""

from __future__ import annotations

import ctypes
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from kraftbridge.exceptions import RehearsalError

ZOOKEEPER: Final = "zookeeper"
CONTROLLER: Final = "controller"
FORMAT: Final = "format"
ZOOKEEPER_CLASS: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
CONTROLLER_CLASS: Final = "kafka.Kafka"
FORMAT_CLASS: Final = "kafka.tools.StorageTool"
_PORTS: Final = range(20_000, 32_000)
"""Below the ephemeral range, so that no outgoing connection takes a port before its process starts."""
_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None)
_MIB: Final = 1 << 20
_ZNODE_BYTES: Final = 64 * _MIB
"""``jute.maxbuffer`` of the scratch ZooKeeper. Only the controller's own limit counts, as in the real takeover."""
_COLLECTION = re.compile(r"(\d+)([KMG])->(\d+)([KMG])\(\d+[KMG]\)")
_UNITS: Final[Mapping[str, int]] = {"K": 1 << 10, "M": _MIB, "G": 1 << 30}
LOG4J: Final = (
    "log4j.rootLogger=INFO, out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\n"
    "log4j.appender.out.layout=org.apache.log4j.PatternLayout\n"
    "log4j.appender.out.layout.ConversionPattern=[%d{ISO8601}] %p %m (%c)%n\n"
    "log4j.logger.state.change.logger=WARN\n"
    # Otherwise Kafka logs one line for each record: 110 MB for 200,000 partitions.
    + "".join(
        f"log4j.logger.org.apache.kafka.controller.{kind}ControlManager=WARN\n"
        for kind in ("Replication", "Configuration", "ClientQuota", "Scram", "Acl", "DelegationToken")
    )
)


class Processes(Protocol):
    """Starts, watches and ends the scratch processes. Their output is in ``NAME.log`` of the working directory."""

    def format_storage(self, properties: Path, cluster_id: str, release_version: str) -> None:
        """Format the controller's log directory."""

    def start(self, name: str, heap_bytes: int, main_class: str, *arguments: str) -> None:
        """Start a process."""

    def exit_code(self, name: str) -> int | None:
        """Return the exit code of a process; None while it runs."""

    def close(self) -> None:
        """End all processes."""


@dataclass(slots=True)
class LocalProcesses:
    """Processes of this machine."""

    kafka_home: Path
    """A Kafka distribution, or its ``libs`` directory."""
    work: Path
    """Configurations, data and output."""
    java: str = ""
    further_jar: Path | None = None
    """Last on the class path."""
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.java = self.java or _java()
        if not list(self.libraries.glob("kafka_2.*.jar")):
            raise RehearsalError(f"{self.kafka_home} holds no Kafka (no kafka_2.*.jar in it or its libs)")
        (self.work / "log4j.properties").write_text(LOG4J)

    @property
    def libraries(self) -> Path:
        """Directory with Kafka's jars."""
        inner = self.kafka_home / "libs"
        return inner if inner.is_dir() else self.kafka_home

    def format_storage(self, properties: Path, cluster_id: str, release_version: str) -> None:
        """Format the controller's log with the brokers' inter.broker.protocol.version as metadata.version."""
        arguments = [FORMAT_CLASS, "format", f"--cluster-id={cluster_id}", "--config", str(properties)]
        arguments += ["--release-version", release_version]
        command = self._java_command(FORMAT, 256 * _MIB, arguments)
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)  # noqa: S603 - our own
        if done.returncode:
            raise RehearsalError(
                f"the scratch controller's storage could not be formatted: {last_words(done.stdout + done.stderr)}"
            )

    def start(self, name: str, heap_bytes: int, main_class: str, *arguments: str) -> None:
        """Start a process."""
        with (self.work / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(  # noqa: S603 - our own command line
                self._java_command(name, heap_bytes, [main_class, *arguments]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.work,
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - one C call, no locks
            )

    def _java_command(self, name: str, heap_bytes: int, arguments: Sequence[str]) -> list[str]:
        options = [heap_option(heap_bytes), *jvm_options(name, self.work), log4j_option(self.work)]
        jars = [f"{self.libraries}/*", *([] if self.further_jar is None else [str(self.further_jar)])]
        return [self.java, *options, "-cp", os.pathsep.join(jars), *arguments]

    def exit_code(self, name: str) -> int | None:
        """Return the exit code of a process; None while it runs."""
        return self._processes[name].poll()

    def close(self) -> None:
        """End all processes."""
        for process in self._processes.values():
            process.send_signal(signal.SIGKILL)
        for process in self._processes.values():
            process.wait(10)
        self._processes.clear()


def last_words(output: str) -> str:
    """Return the last lines of a process's output without stack frames, at most 600 characters."""
    lines = [line.strip() for line in output.splitlines() if line.strip() and not line.startswith(("\tat ", "\t... "))]
    return " ".join(lines[-3:])[:600]


def heap_option(heap_bytes: int) -> str:
    """Return the JVM option for the maximum heap."""
    return f"-Xmx{max(1, heap_bytes // _MIB)}m"


def log4j_option(work: Path) -> str:
    """Return the JVM option that names `LOG4J`."""
    return f"-Dlog4j.configuration=file:{work}/log4j.properties"


def jvm_options(name: str, work: Path) -> list[str]:
    """Return the other JVM options of one of the rehearsal's processes."""
    match name:
        case "zookeeper":
            options = [f"-Xlog:gc:file={work}/{name}.gc.log", f"-Djute.maxbuffer={_ZNODE_BYTES}"]
        case "controller":
            options = [f"-Xlog:gc:file={work}/{name}.gc.log"]
        case _:
            options = ["-XX:TieredStopAtLevel=1"]
    return [*options, "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError", "-Djava.net.preferIPv4Stack=true"]


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    if java is None:
        raise RehearsalError("no java: install a Java 11 or later runtime, or set JAVA_HOME")
    return java


def free_port() -> int:
    """Return a free port of the loopback interface."""
    for port in random.sample(_PORTS, 200):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RehearsalError(f"no free port in {_PORTS}")


class ClosedPorts:
    """Ports that are bound and not listening. Connections are refused, and no other process can use the ports."""

    def __init__(self, count: int) -> None:
        self._sockets = [socket.socket() for _ in range(count)]
        for listening in self._sockets:
            listening.bind(("127.0.0.1", 0))
        self.numbers: tuple[int, ...] = tuple(listening.getsockname()[1] for listening in self._sockets)

    def close(self) -> None:
        """Release the ports."""
        for listening in self._sockets:
            listening.close()


def wait_for_port(processes: Processes, name: str, port: int, timeout_seconds: float) -> str | None:
    """Return None when the port is open, otherwise the reason why it will not open."""
    deadline = time.monotonic() + timeout_seconds
    while time.monotonic() < deadline:
        if (code := processes.exit_code(name)) is not None:
            return f"{name} exited with code {code} before it opened its port"
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return None
    return f"{name} did not open port {port} in {timeout_seconds:.0f} s"


def heap_after_collections(log: Path) -> int | None:
    """Return the highest heap use after a garbage collection in bytes (``-Xlog:gc``); None if there was none."""
    try:
        text = log.read_text(errors="replace")
    except OSError:
        return None
    used = [int(match[3]) * _UNITS[match[4]] for match in _COLLECTION.finditer(text)]
    return max(used, default=None)
