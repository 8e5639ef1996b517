"""A real ZooKeeper-based Kafka in which a fact is planted, seen by the check, and removed by the fix that the catalogue tells."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from tests.support.kafka_processes import CHROOT, KAFKA_VERSION, KafkaProcesses, kafka_processes, wait_for
from tests.support.programs import maven_jars

from kraftbridge.metadata.zookeeper.soundness import findings_of
from kraftbridge.metadata.zookeeper.znodes import Znode
from kraftbridge.models.catalogue import Code
from kraftbridge.models.report import Finding

TOOLS: Final = {
    "kafka-acls": "kafka.admin.AclCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "zookeeper-security-migration": "kafka.admin.ZkSecurityMigrator",
    "zookeeper-shell": "org.apache.zookeeper.ZooKeeperMainWithTlsSupportForKafka",
}
"""What Kafka's scripts start."""
_SECONDS: Final = 120
_NOISE: Final = re.compile("log4j:|WATCHER::|WatchedEvent |Connecting to |SLF4J")
POM: Final = Path(__file__).with_name("kafka-tools.pom.xml")


def tools(folder: Path, libraries: Path) -> Path:
    """Write Kafka's scripts under both of their names (Confluent's have no ``.sh``), and one for this package."""
    folder.mkdir(exist_ok=True)
    for name, main_class in TOOLS.items():
        server = "-server" if name == "zookeeper-shell" else ""
        script = f'#!/bin/sh\nexec java -Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 $KAFKA_OPTS -cp "{libraries}/*" {main_class} {server} "$@"\n'
        for file in (folder / name, folder / f"{name}.sh"):
            file.write_text(script)
            file.chmod(0o755)
    return folder


class Playground:
    """The cluster, a session with its ZooKeeper, and a shell as people have one."""

    def __init__(self, processes: KafkaProcesses) -> None:
        self.processes = processes
        self.path = tools(processes.directory / "bin", maven_jars("kafka-tools", KAFKA_VERSION, POM.read_text()))
        self.zookeeper = KazooClient(processes.zookeeper_hosts + CHROOT)
        self.ran: list[str] = []

    def shell(self, line: str, *, at: str | None = None, succeeds: bool | None = True, kafka_opts: str = "") -> str:
        """Run a command as somebody who copied it; HOST:PORT is what people fill in. `succeeds`: None for either."""
        line = line.replace("HOST:PORT", at or self.processes.bootstrap_servers)
        environment = {
            **os.environ,
            "PATH": f"{self.path}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "ZOOKEEPER": self.processes.zookeeper_hosts + CHROOT,
            "BROKERS": self.processes.bootstrap_servers,
            "KAFKA_OPTS": kafka_opts,
        }
        done = subprocess.run(
            ["/bin/sh", "-c", line],
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
            env=environment,
            cwd=self.path,
        )
        self.ran.append(line)
        said = "\n".join(each for each in (done.stdout + done.stderr).splitlines() if each and not _NOISE.match(each))
        print(f"$ {line}\n{said}")
        failed = (
            done.returncode != 0
            or "Error while executing" in said
            or re.search(r"^(Exception|Node does not exist)", said, re.MULTILINE)
        )
        if succeeds is None:
            return said
        if succeeds:
            assert not failed, f"{line}\n{said}"
        else:
            assert failed, f"was expected to fail: {line}\n{said}"
        return said

    # -------------------------------------------------------------------------------------------- the tree

    def tree(self, path: str = "/") -> Iterator[Znode]:
        """Yield the znodes as they are now."""
        try:
            data, _ = self.zookeeper.get(path)
            children = self.zookeeper.get_children(path)
        except NoNodeError:
            return
        if path != "/":
            yield Znode(path, data or None)
        for child in children:
            yield from self.tree(f"{path.rstrip('/')}/{child}")

    def findings(self, encoder_secret: str | None = None) -> list[Finding]:
        return findings_of(self.tree(), encoder_secret)

    def found(self, code: Code, path: str | None = None, **more: Any) -> list[Finding]:
        return [f for f in self.findings(**more) if f.code == code and path in (None, f.object)]

    def body(self, path: str) -> Any:
        return json.loads(self.zookeeper.get(path)[0])

    def put(self, path: str, data: Any) -> None:
        raw = data if isinstance(data, bytes) else json.dumps(data).encode()
        if self.zookeeper.exists(path):
            self.zookeeper.set(path, raw)
        else:
            self.zookeeper.create(path, raw, makepath=True)

    def configure(self, entity: str, values: dict[str, str]) -> None:
        """Store dynamic settings as Kafka does, and tell the brokers."""
        self.put(f"/config/{entity}", {"version": 1, "config": values})
        told = json.dumps({"version": 2, "entity_path": entity}).encode()
        self.zookeeper.create("/config/changes/config_change_", told, sequence=True)
        time.sleep(2)

    def topic(self, name: str, partitions: int = 1, replicas: int = 2, **configs: str) -> None:
        line = f"kafka-topics --bootstrap-server HOST:PORT --create --topic {name} --partitions {partitions} --replication-factor {replicas}"
        self.shell(line + "".join(f" --config {key.replace('__', '.')}={value}" for key, value in configs.items()))

    def controller(self) -> int:
        return int(self.body("/controller")["brokerid"])

    def wait(self, what: str, condition: Any, seconds: float = 60) -> Any:
        return wait_for(what, condition, seconds)


@contextmanager
def playground(
    broker_ids: tuple[int, ...] = (0, 1),
    settings: str = "",
    kind: type[KafkaProcesses] = KafkaProcesses,
    zookeeper: dict[str, str] | None = None,
) -> Iterator[Playground]:
    """Give brokers in ZooKeeper mode."""
    with kafka_processes(broker_ids, [3000], kind) as processes:
        ground = Playground(processes)
        for broker in broker_ids:
            processes.extra_broker_settings[broker] = settings
        processes.start_zookeeper(zookeeper)
        for broker in broker_ids:
            processes.start_broker(broker, "zookeeper", wait=False)
        for broker in broker_ids:
            processes.wait_for_port(f"broker-{broker}", processes.broker_ports[broker])
        processes.admin_client()
        ground.zookeeper.start()
        try:
            yield ground
        finally:
            ground.zookeeper.stop()
            ground.zookeeper.close()
