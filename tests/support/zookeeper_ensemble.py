"""ZooKeeper servers of any release as processes on this host, loopback only. They end with the test run."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kazoo.client import KazooClient
from tests.support.kafka_processes import kafka_libraries
from tests.support.programs import die_with_parent, free_port, installed_tool, maven_jars

from kraftbridge.metadata.zookeeper.reader import read_dump

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>dev.kraftbridge.tests</groupId><artifactId>zookeeper-libs</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies><dependency>
    <groupId>org.apache.zookeeper</groupId><artifactId>zookeeper</artifactId><version>{version}</version>
  </dependency></dependencies>
</project>
"""


def zookeeper_libraries(version: str | None) -> Path:
    """Return the directory with the jars of a release, fetched by Maven once per machine; Kafka's own where it is None."""
    return kafka_libraries() if version is None else maven_jars("zookeeper-libs", version, _POM.format(version=version))


class Ensemble:
    """One server, or several that elect a leader."""

    def __init__(self, directory: Path, libraries: Path, servers: int, settings: Mapping[str, str]) -> None:
        self.directory = directory
        self.ports = [free_port() for _ in range(servers)]
        self._peers = [(free_port(), free_port()) for _ in range(servers)] if servers > 1 else []
        self._libraries = libraries
        self._settings = settings
        self.options: list[str] = []
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def hosts(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def start(self) -> None:
        for index in range(len(self.ports)):
            self._start(index)
        for port in self.ports:
            self._wait_for(port)

    def _start(self, index: int) -> None:
        data = self.directory / f"data-{index}"
        data.mkdir(exist_ok=True)
        lines = {
            "tickTime": "1000",
            "initLimit": "20",
            "syncLimit": "10",
            "dataDir": str(data),
            "clientPort": str(self.ports[index]),
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "maxClientCnxns": "0",
            **{f"server.{i}": f"127.0.0.1:{peer}:{election}" for i, (peer, election) in enumerate(self._peers)},
            **self._settings,
        }
        if self._peers:
            (data / "myid").write_text(str(index))
        path = self.directory / f"server-{index}.cfg"
        path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        java = installed_tool("java", "openjdk-17-jre-headless", "ZooKeeper's processes")
        command = [java, "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *self.options]
        command += ["-cp", f"{self._libraries}/*", "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(path)]
        with (self.directory / f"server-{index}.log").open("ab") as log:
            self._processes[index] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - one C call, no locks
            )

    def _wait_for(self, port: int, timeout_seconds: float = 150.0) -> None:
        deadline = time.monotonic() + timeout_seconds
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
            except OSError:
                time.sleep(0.1)
            else:
                return
        logs = "\n".join(path.read_text()[-2000:] for path in self.directory.glob("server-*.log"))
        raise AssertionError(f"ZooKeeper did not open port {port} in {timeout_seconds:.0f} s:\n{logs}")

    def kill(self, index: int) -> None:
        """Kill one server."""
        process = self._processes.pop(index)
        process.kill()
        process.wait(10)

    def close(self) -> None:
        for index in list(self._processes):
            self.kill(index)

    def load(self, dump: Path, **client: object) -> int:
        """Create the znodes of a dump; return how many there are. Ephemeral ones outlive their session here."""
        zookeeper = KazooClient(self.hosts, **client)
        zookeeper.start(30)
        try:
            znodes = sorted(read_dump(dump, ""), key=lambda znode: znode.path)
            own = [znode for znode in znodes if not f"{znode.path}/".startswith(("/zookeeper/", "//"))]
            # Requests of one session are served in order: parents are there before their children.
            for promise in [zookeeper.create_async(znode.path, znode.data or b"") for znode in own]:
                promise.get(60)
            return len(own)
        finally:
            zookeeper.stop()
            zookeeper.close()


@contextmanager
def zookeeper_ensemble(
    *,
    servers: int = 1,
    version: str | None = None,
    settings: Mapping[str, str] | None = None,
    jaas: str | None = None,
    started: bool = True,
) -> Iterator[Ensemble]:
    """Give servers, running unless told otherwise: then a test puts data into their directories and starts them.

    Parameters
    ----------
    version
        Release of ZooKeeper; the one that Kafka brings along where it is left out.
    jaas
        Content of the servers' JAAS file.
    """
    libraries = zookeeper_libraries(version)
    directory = Path(tempfile.mkdtemp(prefix="kraftbridge-zookeeper-"))
    ensemble = Ensemble(directory, libraries, servers, settings or {})
    if jaas is not None:
        (directory / "jaas.conf").write_text(jaas)
        ensemble.options.append(f"-Djava.security.auth.login.config={directory}/jaas.conf")
    try:
        if started:
            ensemble.start()
        yield ensemble
    finally:
        ensemble.close()
        shutil.rmtree(directory, ignore_errors=True)
