"""Fixes that are settings of a broker's start, and the reset of ZooKeeper's ACLs, which needs a ZooKeeper with logins."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from kazoo.exceptions import NoAuthError
from tests.fixes.playground import Playground, playground
from tests.fixes.registry import runs
from tests.support.kafka_processes import KRAFT, MIGRATION, ZOOKEEPER, KafkaProcesses, ProcessFailedError

from kraftbridge.models.catalogue import Code

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kafka-processes")]

JAAS = """Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_kafka="secret"; };
Client { org.apache.zookeeper.server.auth.DigestLoginModule required username="kafka" password="secret"; };
"""


class WithLogins(KafkaProcesses):
    """ZooKeeper and brokers with SASL."""

    @property
    def login(self) -> str:
        file = self.directory / "jaas.conf"
        file.write_text(JAAS)
        return f"-Djava.security.auth.login.config={file}"

    def _spawn(self, name: str, arguments: Sequence[str], options: Sequence[str] = ()) -> None:
        super()._spawn(name, arguments, [*options, self.login])


@runs(Code.ZOOKEEPER_ACL_FORBIDS_KRAFT, Code.NO_AUTH_IN_ZOOKEEPER)
def test_the_reset_of_the_acls_lets_everybody_write() -> None:
    provider = {"authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}
    with playground((0,), "zookeeper.set.acl=true\n", WithLogins, provider) as ground:
        with pytest.raises(NoAuthError):
            ground.zookeeper.set("/controller_epoch", b"1")
        (line,) = Code.ZOOKEEPER_ACL_FORBIDS_KRAFT.commands()
        assert Code.NO_AUTH_IN_ZOOKEEPER.commands() == [line]

        assert isinstance(ground.processes, WithLogins)
        ground.shell(line, kafka_opts=ground.processes.login)

        ground.zookeeper.set("/controller_epoch", b"1")


RIGHT = "controlled.shutdown.enable=true\ninter.broker.protocol.version=3.9\n"


@runs(
    Code.CONTROL_PLANE_LISTENER,
    Code.LISTENER_NAME_TAKEN,
    Code.CONTROLLED_SHUTDOWN_DISABLED,
    Code.INTER_BROKER_PROTOCOL_TOO_LOW,
    Code.MIGRATION_FLAG_ALREADY_SET,
)
def test_a_broker_with_the_settings_of_the_fixes_starts_in_migration_mode() -> None:
    with playground((0,)) as ground:
        processes = ground.processes
        processes.format_controller(3000, ground.body("/cluster/id")["id"])
        processes.start_controller(3000)
        port = processes.broker_ports[0]
        protocols = "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROL:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
        listeners = (
            "listeners=PLAINTEXT://127.0.0.1:{},{}://127.0.0.1:0\nadvertised.listeners=PLAINTEXT://127.0.0.1:{}\n"
        )
        processes.stop("broker-0")
        processes.extra_broker_settings[0] = (
            "control.plane.listener.name=CONTROL\n"
            + protocols
            + listeners.format(port, "CONTROL", port).replace("advertised", "# advertised")
        )
        with pytest.raises(ProcessFailedError):
            processes.start_broker(0, KRAFT)
        assert "control.plane.listener.name" in processes.tail("broker-0", 60)

        more = protocols.replace("CONTROL:PLAINTEXT", "CONTROL:PLAINTEXT,RENAMED:PLAINTEXT")
        processes.extra_broker_settings[0] = RIGHT + more + listeners.format(port, "RENAMED", port)
        processes.start_broker(0, MIGRATION)

        processes.stop("broker-0")
        processes.extra_broker_settings[0] = RIGHT
        processes.start_broker(0, ZOOKEEPER)  # without the flag


INSTALL = Path(__file__).resolve().parents[2] / "docs/install.md"
DATA = "/var/lib/kafka/data"


def recipe() -> str:
    """Return the lines that the documentation puts before the start of Kafka."""
    _, _, section = INSTALL.read_text().partition("## Give the brokers fixed ids")
    return section.partition("```sh\n")[2].partition("```")[0]


def ids_by_template(ground: Playground, broker: int) -> subprocess.CompletedProcess[str]:
    script = recipe().replace(DATA, f"{ground.processes.directory}/broker-{broker}") + 'echo "$broker_id"'
    return subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=False, timeout=30)


def command_line_id(ground: Playground, broker: int) -> str:
    (line,) = Code.GENERATED_BROKER_IDS.commands()
    return ground.shell(line.replace("FOLDER", f"{ground.processes.directory}/broker-{broker}")).strip()


@runs(Code.GENERATED_BROKER_IDS)
def test_brokers_with_generated_ids_keep_them_by_one_template_and_become_kraft_brokers() -> None:
    """The id alone, which the fix once told to set, makes Kafka exit (``KafkaConfig.validateValues``)."""
    with playground((0, 1), "broker.id=-1\n") as ground:
        processes = ground.processes
        registered = sorted(ground.zookeeper.get_children("/brokers/ids"))
        assert registered == ["1001", "1002"]
        processes.format_controller(3000, ground.body("/cluster/id")["id"])
        processes.start_controller(3000)
        kept: dict[int, str] = {}
        for broker in (0, 1):
            processes.stop(f"broker-{broker}")
            kept[broker] = ids_by_template(ground, broker).stdout.strip()
            assert command_line_id(ground, broker) == kept[broker]
            processes.extra_broker_settings[broker] = f"broker.id={kept[broker]}\n"
            with pytest.raises(ProcessFailedError, match=r"reserved\.broker\.max\.id"):
                processes.start_broker(broker, ZOOKEEPER)
            processes.extra_broker_settings[broker] += "broker.id.generation.enable=false\n"
            processes.start_broker(broker, ZOOKEEPER)
            ground.wait("the broker", lambda broker=broker: ground.zookeeper.exists(f"/brokers/ids/{kept[broker]}"))
        assert sorted(kept.values()) == registered == sorted(ground.zookeeper.get_children("/brokers/ids"))

        for broker in (0, 1):
            processes.stop(f"broker-{broker}")
            processes.start_broker(broker, MIGRATION)
        log = processes.directory / "controller-3000.log"
        ground.wait("dual-write", lambda: "to DUAL_WRITE state" in log.read_text(), 120)
        processes.stop("broker-0")
        processes.extra_broker_settings[0] += f"node.id={kept[0]}\n"  # the harness gives the broker another one
        processes.start_broker(0, KRAFT)
        assert ids_by_template(ground, 0).stdout.strip() == kept[0], "a migrated broker's disk has its id as node.id"

        blank = processes.directory / "broker-7"
        blank.mkdir()
        (blank / "meta.properties").write_text("version=0\n")
        assert "the disk is blank" in ids_by_template(ground, 7).stderr
