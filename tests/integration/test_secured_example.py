"""``examples/secured`` with real processes: its own script, manifests and Job; brokers and controllers let each other in, and nobody else."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from kafka.protocol.admin.topics import CreateTopicsRequest
from tests.support.controller_pod import controller_pod
from tests.support.kafka_processes import MIGRATION, ZOOKEEPER, KafkaProcesses, kafka_processes, wait_for
from tests.support.programs import die_with_parent

from kraftbridge.builders.broker_overlays import BrokerFacts, broker_settings, render_properties, setting_of
from kraftbridge.builders.controllers import ControllersFacts, controller_settings
from kraftbridge.builders.names import controller_hosts
from kraftbridge.kafka.client import Security
from kraftbridge.kafka.wire import Connection, WireError
from kraftbridge.models.phase import BrokerMode, ControllerMode
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.models.status import controllers_name
from kraftbridge.outside.properties import parse_properties
from kraftbridge.pods.credentials import main as credentials

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kafka-processes")]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/secured"
UID = "1a2b3c4d-0000"
NAMESPACE = "kafka"
DOMAIN = "cluster.local"
VOTERS = 2
"""How many of the three controllers run: a majority."""


@dataclass
class Example:
    """The example in a directory of its own, with its Secrets as they are mounted."""

    directory: Path
    secrets: dict[str, Path] = field(default_factory=dict)

    def prepare(self, *arguments: str) -> None:
        """Run ``prepare.sh`` and make the Secrets of every kustomization whose files are there."""
        subprocess.run([self.directory / "prepare.sh", *arguments], check=True, timeout=300)
        for kustomization in sorted(self.directory.rglob("kustomization.yaml")):
            for secret in yaml.safe_load(kustomization.read_text()).get("secretGenerator", ()):
                mounted = self.directory / "mounted" / secret["name"]
                mounted.mkdir(parents=True, exist_ok=True)
                for literal in secret.get("literals", ()):
                    (mounted / literal.partition("=")[0]).write_text(literal.partition("=")[2])
                for file in secret["files"]:
                    source = kustomization.parent / file.rpartition("=")[2]
                    if source.exists():
                        shutil.copy(source, mounted / (file.partition("=")[0].rpartition("/")[2]))
                self.secrets[secret["name"]] = mounted

    def objects(self, name: str) -> list[dict[str, Any]]:
        """Return the documents of a manifest."""
        return [d for d in yaml.safe_load_all((self.directory / name).read_text()) if d]

    def pod(self, name: str, kind: str) -> tuple[dict[str, Any], dict[str, str], dict[str, Path]]:
        """Return a workload's only container, its environment, and where its Secrets are mounted."""
        template = next(d for d in self.objects(name) if d["kind"] == kind)["spec"]["template"]["spec"]
        (container,) = template["containers"]
        volumes = {v["name"]: self.secrets[v["secret"]["secretName"]] for v in template["volumes"]}
        places = {m["mountPath"]: volumes[m["name"]] for m in container["volumeMounts"] if m["name"] in volumes}
        given = {"metadata.name": "kafka-0", "metadata.namespace": NAMESPACE}
        values: dict[str, str] = {}
        for entry in container.get("env", ()):
            reference = entry.get("valueFrom", {})
            if key := reference.get("secretKeyRef"):
                values[entry["name"]] = (self.secrets[key["name"]] / key["key"]).read_text()
            elif reference:
                values[entry["name"]] = given.get(reference["fieldRef"]["fieldPath"], "0")
            else:
                values[entry["name"]] = entry["value"]
        for name_, value in values.items():
            names = {f"$({inner})": given_value for inner, given_value in values.items()}
            values[name_] = mounted(replaced(value, names), places)
        return container, values, places


def replaced(text: str, values: Mapping[str, str]) -> str:
    for old, new in values.items():
        text = text.replace(old, new)
    return text


def mounted(text: str, places: Mapping[str, Path]) -> str:
    """Return a text that names the directories of this host instead of a pod's."""
    return replaced(text, {path: str(directory) for path, directory in places.items()})


class Processes(KafkaProcesses):
    """Nodes that find each other by the names of the example: the JVM reads them from a file."""

    example: Example
    controllers: str
    cluster_id = ""
    server_options: tuple[str, ...] = ()
    """Of ZooKeeper's server."""

    def ports(self, text: str) -> str:
        """Return a text with this run's ports in place of the example's, which a host may use already."""
        for node, port in self.controller_ports.items():
            (host,) = controller_hosts(self.controllers, NAMESPACE, [node], DOMAIN).values()
            text = text.replace(f"{host}:9093", f"{host}:{port}")
        # A port of this run may begin with one of these.
        text = re.sub(r":2181\b", f":{self.zookeeper_port}", text)
        return re.sub(r":9092\b", f":{self.broker_ports[0]}", text)

    def rendered(self, settings: Mapping[str, str]) -> str:
        """Return a properties file with this run's ports."""
        return render_properties({name: self.ports(value) for name, value in settings.items()})

    def _command(self, arguments: Any, options: Any = (), libraries: Path | None = None) -> list[str]:
        hosts = [
            "localhost",
            socket.gethostname(),
            "zookeeper-0.zookeeper",
            "kafka-0.kafka-headless",
            f"kafka-0.kafka-headless.{NAMESPACE}.svc.{DOMAIN}",
        ]
        hosts += controller_hosts(self.controllers, NAMESPACE, self.controller_ports, DOMAIN).values()
        path = self._write("hosts", "".join(f"127.0.0.1 {host}\n" for host in hosts))
        return super()._command(arguments, [f"-Djdk.net.hosts.file={path}", *options], libraries)

    def run(self, program: str, *arguments: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        """Run one of Kafka's tools."""
        command = self._command([program, *arguments], options)
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)

    def tool(self, name: str, *program: str) -> Path:
        """Make one of Kafka's tools a command; ``KAFKA_OPTS`` gives its options. Return its path."""
        before, _, after = " ".join(f"'{word}'" for word in self._command(program, ["@"])).partition("'@'")
        path = self.directory / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/bash\nexec {before} $KAFKA_OPTS {after} "$@"\n')
        path.chmod(0o755)
        return path

    def connection(self, properties: str, password: str | None = None) -> Connection:
        """Connect with a properties file of the Secret ``kafka-clients``, to the broker or to a controller; with another password if it is given."""
        text = (self.example.secrets["kafka-clients"] / properties).read_text()
        if password is not None:
            text = re.sub(r'password="[^"]*"', f'password="{password}"', text)
        own = Security.from_properties(parse_properties(text))
        node = next(iter(self.controller_ports))
        host = controller_hosts(self.controllers, NAMESPACE, [node], DOMAIN)[node]
        port = self.controller_ports[node]
        if properties == "client.properties":
            host, port = "kafka-0.kafka-headless", self.broker_ports[0]
        return Connection("127.0.0.1", port, own, 20, server_name=host)

    def attempt(self, question: Callable[[], bool]) -> bool:
        """Return the answer; a node that does not answer yet has not said yes."""
        try:
            return question()
        except WireError:
            return False

    def read_cluster_id(self) -> str:
        """Return the id that the broker has got from ZooKeeper."""
        path = self.directory / "broker-0/meta.properties"
        return parse_properties(path.read_text())["cluster.id"] if path.exists() else ""

    # ------------------------------------------------------------------------------------------ the example's parts

    def start_examples_zookeeper(self) -> None:
        _, environment, _ = self.example.pod("zookeeper.yaml", "StatefulSet")
        self.server_options = (environment["JVMFLAGS"],)
        self.start_zookeeper(dict(line.split("=", 1) for line in environment["ZOO_CFG_EXTRA"].split()))

    def create_users(self) -> subprocess.CompletedProcess[str]:
        """Run the command of the example's Job."""
        container, environment, places = self.example.pod("users.yaml", "Job")
        self.tool("zookeeper-shell", "org.apache.zookeeper.ZooKeeperMainWithTlsSupportForKafka", "-server")
        self.tool("kafka-configs", "kafka.admin.ConfigCommand")
        command = [self.ports(mounted(word, places)) for word in container["command"]]
        path = f"{self.directory}/bin:{os.environ['PATH']}"
        return subprocess.run(
            command,
            env=os.environ | environment | {"PATH": path},
            check=False,
            capture_output=True,
            text=True,
            timeout=600,
        )

    def _broker_properties(self, broker_id: int, mode: str) -> str:
        _, environment, _ = self.example.pod("kafka.yaml", "StatefulSet")
        settings = {s: v for name, v in environment.items() if (s := setting_of(name, "KAFKA_")) is not None}
        if mode == MIGRATION:
            settings |= broker_settings(self.spec, self._facts(settings), BrokerMode.MIGRATION)
        settings |= {"log.dirs": f"{self.directory}/broker-{broker_id}", "offsets.topic.replication.factor": "1"}
        settings |= {"log.cleaner.enable": "false"}  # its buffers take 128 MiB
        return self._write(f"broker-{broker_id}.properties", self.rendered(settings))

    def _broker_options(self, broker_id: int) -> list[str]:
        return self.example.pod("kafka.yaml", "StatefulSet")[1]["KAFKA_OPTS"].split()

    def _spawn(self, name: str, arguments: Any, options: Any = ()) -> None:
        super()._spawn(name, arguments, [*options, *(self.server_options if name == "zookeeper" else ())])

    @property
    def spec(self) -> MigrationSpec:
        """``spec`` of the example's KafkaMigration."""
        (migration,) = self.example.objects("migration.yaml")
        return MigrationSpec.model_validate(migration["spec"])

    def _facts(self, settings: Mapping[str, str]) -> BrokerFacts:
        return BrokerFacts(NAMESPACE, self.controllers, DOMAIN, self.cluster_id, settings, "")

    def start_examples_controller(self, node_id: int) -> None:
        """Start a controller as its pod does: the init container, then the start script."""
        _, environment, _ = self.example.pod("kafka.yaml", "StatefulSet")
        settings = {s: v for name, v in environment.items() if (s := setting_of(name, "KAFKA_")) is not None}
        facts = ControllersFacts(NAMESPACE, "shop", self.controllers, DOMAIN, self.cluster_id, settings, "", "", ())
        pod = controller_pod(self.directory / f"pod-{node_id}")
        spec = self.spec
        secrets = {"listener": spec.controllers.listener.secret_name, "zookeeper": spec.zookeeper.secret_name}
        for folder, secret in secrets.items():
            for file in self.example.secrets[secret or ""].iterdir():
                pod.write(f"/etc/kraftbridge-{folder}/{file.name}", file.read_text())
        at = pod.root / "etc"
        arguments = [
            "--listener",
            f"{at}/kraftbridge-listener",
            "--protocol",
            spec.controllers.listener.security_protocol,
        ]
        arguments += ["--zookeeper", f"{at}/kraftbridge-zookeeper", "--directory", f"{at}/kraftbridge-credentials"]
        assert credentials(arguments) == 0
        pod.write(
            "/etc/kraftbridge-listener/listener.properties",
            pod.read("/etc/kraftbridge-listener/listener.properties").replace("/etc/kraftbridge", f"{at}/kraftbridge"),
        )
        own = controller_settings(spec, facts, ControllerMode.MIGRATION) | {"log.dirs": f"{pod.root}/data/kafka"}
        own["listeners"] = own["listeners"].replace(":9093", f":{self.controller_ports[node_id]}")
        pod.write("/etc/kraftbridge/controller.properties", self.rendered(own))
        for script, program in {"storage": "kafka.tools.StorageTool", "server-start": "kafka.Kafka"}.items():
            shutil.copy(self.tool(script, program), pod.root / f"opt/kafka/bin/kafka-{script}.sh")
        environment = os.environ | {"NODE_ID": str(node_id), "CLUSTER_ID": self.cluster_id, "EXPORTER": ""}
        environment |= {
            "PASSWORD_ENCODER_SECRET": (self.example.secrets["kafka-password-encoder"] / "secret").read_text()
        }
        name = f"controller-{node_id}"
        with (self.directory / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                ["bash", "-c", pod.script], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, preexec_fn=die_with_parent,  # noqa: PLW1509 - one C call, no locks
            )  # fmt: skip
        self.wait_for_port(name, self.controller_ports[node_id])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """Start the example as ``docs/security.md`` does, up to the end of the copy."""
    directory = tmp_path_factory.mktemp("examples") / "secured"
    shutil.copytree(EXAMPLE, directory, ignore=shutil.ignore_patterns("pki"))
    spec = MigrationSpec.model_validate(yaml.safe_load((directory / "migration.yaml").read_text())["spec"])
    with kafka_processes([0], spec.controllers.node_ids, Processes) as processes:
        processes.example, processes.controllers = Example(directory), controllers_name("shop", UID, 1)
        processes.example.prepare()
        processes.start_examples_zookeeper()
        processes.start_broker(0, ZOOKEEPER)
        # Kubernetes starts a Job's pod again after a failure, at any point.
        for _ in range(2):
            done = processes.create_users()
            assert done.returncode == 0, done.stdout + done.stderr
        processes.cluster_id = wait_for("the cluster's id", processes.read_cluster_id)
        processes.example.prepare(processes.controllers)
        for node in spec.controllers.node_ids[:VOTERS]:
            processes.start_examples_controller(node)
        processes.stop("broker-0")
        processes.start_broker(0, MIGRATION)
        yield processes


ALREADY_EXISTS = 36
"""``Errors.TOPIC_ALREADY_EXISTS``."""
FILES = ("client.properties", "controller.properties")


@pytest.mark.parametrize("properties", FILES)
def test_the_operators_login_is_let_in_at_brokers_and_controllers(cluster: Processes, properties: str) -> None:
    with cluster.connection(properties) as connection:
        assert connection.usable


@pytest.mark.parametrize("properties", FILES)
def test_a_login_with_another_password_is_kept_out(cluster: Processes, properties: str) -> None:
    with pytest.raises(WireError, match=r"SASL .* Authentication failed"):
        cluster.connection(properties, "another")


def test_controllers_and_brokers_log_in_to_each_other_and_own_what_they_write(cluster: Processes) -> None:
    """A topic made in dual-write goes from the broker to the controller, and from there to ZooKeeper and to the broker's listener."""
    topic = CreateTopicsRequest.CreatableTopic(
        name="made", num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )

    def made() -> bool:
        with cluster.connection("client.properties") as connection:
            answer = connection.call(
                CreateTopicsRequest, 20, max_version=7, topics=[topic], timeout_ms=15_000, validate_only=False
            )
        return answer.topics[0].error_code in (0, ALREADY_EXISTS)

    def served() -> bool:
        with cluster.connection("client.properties") as connection:
            (answer,) = connection.metadata(20, ["made"]).topics
        return answer.error_code == 0 and [p.leader_id for p in answer.partitions] == [0]

    wait_for("the topic", lambda: cluster.attempt(made))
    wait_for("the broker leads it", lambda: cluster.attempt(served))
    options = cluster.example.pod("users.yaml", "Job")[1]["KAFKA_OPTS"]
    path = "/kafka/brokers/topics/made"

    def acl() -> list[str]:
        done = cluster.run(
            "org.apache.zookeeper.ZooKeeperMain", "-server", cluster.zookeeper_hosts, "getAcl", path, options=(options,)
        )
        lines = [line.strip() for line in done.stdout.splitlines()]
        return [f"{who} {lines[i + 1]}" for i, who in enumerate(lines) if who.startswith(("'sasl", "'world"))]

    assert wait_for("the znode", acl) == ["'sasl,'kafka : cdrwa", "'world,'anyone : r"]
