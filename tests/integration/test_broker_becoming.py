"""What brokers become on real Kafka: a start in KRaft mode refuses dynamic settings, and the comparison sees it before a record is gone.

The fixture walks two brokers and a controller through one migration; the tests judge what was seen on the way.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from kazoo.client import KazooClient
from tests.integration.certificates import Authority
from tests.support.fakes import FakeKubernetes
from tests.support.kafka_processes import CHROOT, KRAFT, MIGRATION, ZOOKEEPER, KafkaProcesses, kafka_processes, wait_for
from tests.support.programs import free_port

from kraftbridge.models.broker_record import BrokerNow, BrokerRecord, Difference, DifferenceKind, Effect
from kraftbridge.models.decision import RecordBroker
from kraftbridge.models.observation import PodState, Unobserved
from kraftbridge.phases.becoming.listeners import differing_listeners
from kraftbridge.phases.becoming.offsets import differing_offsets, unknown_offsets
from kraftbridge.phases.becoming.refusals import Refusal, falling, refusals
from kraftbridge.phases.becoming.settings import differing_settings, unknown_settings
from kraftbridge.phases.draft import Identity
from kraftbridge.services import kept_broker_records as broker_records
from kraftbridge.services.clients import ClusterClients
from kraftbridge.storage.broker_records import BrokerRecordClient

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kafka-processes")]

CONTROLLER = 3000
OLD = 100
"""Records of 30 days, which nothing but a dynamic setting keeps."""
CALM = "log.initial.task.delay.ms=900000\n"
HASTY = "log.initial.task.delay.ms=500\nlog.retention.check.interval.ms=1000\nlog.segment.delete.delay.ms=1000\n"
IDENTITY = Identity("kafka", "demo", "0123456789", 1)
KEY_STORE = "listener.name.secure.ssl.keystore.location"
SASL = (
    "sasl.enabled.mechanisms=PLAIN\n"
    "listener.name.login.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
    'user_alice="secret";\n'
)


@dataclass
class Seen:
    """What was seen, by stage."""

    differences: dict[str, list[Difference]] = field(default_factory=dict)
    refused: dict[str, tuple[Refusal, ...]] = field(default_factory=dict)
    falling: dict[str, str] = field(default_factory=dict)
    old: dict[str, tuple[int, int]] = field(default_factory=dict)
    record: BrokerRecord | None = None


class Walk:
    """Two brokers on their way."""

    def __init__(self, processes: KafkaProcesses) -> None:
        self.processes = processes
        self.kubernetes = FakeKubernetes(None)
        self.seen = Seen()
        self.clients = ClusterClients(None, None, None, lambda: BrokerRecordClient(processes.bootstrap_servers, {}))
        self.secure_ports = {broker: free_port() for broker in processes.broker_ports}
        for broker, port in processes.broker_ports.items():
            self.listeners(broker, port)

    def listeners(self, broker: int, port: int) -> None:
        self.login_port = port + 1
        secure = self.secure_ports[broker]
        self.processes.extra_broker_settings[broker] = (
            f"listeners=PLAINTEXT://127.0.0.1:{port},LOGIN://127.0.0.1:{port + 1},SECURE://127.0.0.1:{secure}\n"
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT,SECURE:SSL,CONTROLLER:PLAINTEXT\n"
            "listener.name.secure.ssl.keystore.type=PEM\n"
            f"listener.name.secure.ssl.keystore.location={self.key_store('static')}\n" + SASL
        )

    def key_store(self, name: str) -> Path:
        """Return a file with a key and its certificate. Kafka takes another one dynamically only if it has the same names."""
        path = self.processes.directory / f"{name}.pem"
        if not path.exists():
            issued = Authority().issue("broker.example")
            path.write_text(issued.key + issued.certificate)
        return path

    def take(self, broker: int) -> BrokerRecord:
        self.processes.admin_client()
        name = f"record-{broker}"
        action = RecordBroker(broker, f"uid-{broker}", "127.0.0.1", name)
        broker_records.record(self.kubernetes, IDENTITY, self.clients, action, datetime.now(UTC))
        return broker_records.read(self.kubernetes, "kafka", name)

    def ask(self, broker: int, record: BrokerRecord) -> BrokerNow:
        log = (self.processes.directory / f"broker-{broker}.log").read_text(errors="replace")
        self.kubernetes.logs[f"kafka-{broker}"] = log[self.log_began :]
        pod = PodState(f"kafka-{broker}", "new", broker, True, None, False, "", "", "127.0.0.1")
        return broker_records.ask(self.kubernetes, "kafka", self.clients, record, broker, pod, "kafka")

    def compare(self, stage: str, broker: int, record: BrokerRecord) -> None:
        def known() -> BrokerNow | None:
            found = self.ask(broker, record)
            return None if unknown_offsets(found) or unknown_settings(found) else found

        now = wait_for(f"answers of broker {broker}", known, 60)
        self.seen.differences[stage] = [
            *differing_offsets(record, now, datetime.now(UTC)),
            *differing_settings(record, now),
            *differing_listeners(record, now),
        ]

    def restart(self, broker: int, mode: str, extra: str = "") -> None:
        """Restart a broker; the log of its start begins here."""
        self.processes.stop(f"broker-{broker}")
        log = self.processes.directory / f"broker-{broker}.log"
        self.log_began = len(log.read_text(errors="replace"))
        before = self.processes.extra_broker_settings[broker]
        self.processes.extra_broker_settings[broker] = before + extra
        self.processes.start_broker(broker, mode)
        self.processes.extra_broker_settings[broker] = before
        self.processes.admin_client()
        self.in_sync()

    def in_sync(self) -> None:
        def full() -> bool | None:
            topics = self.processes.admin_client().list_topics(timeout=10).topics
            partitions = [p for t in topics.values() for p in t.partitions.values()]
            return all(len(p.isrs) == len(p.replicas) and p.leader >= 0 for p in partitions) or None

        wait_for("full in-sync sets", full, 90)

    def configs(self, entity: str, *change: str) -> str:
        arguments = ["kafka.admin.ConfigCommand", "--bootstrap-server", self.processes.bootstrap_servers]
        arguments += ["--entity-type", "brokers", *entity.split(), "--alter", *change]
        done = subprocess.run(
            self.processes._command(arguments), check=False, capture_output=True, text=True, timeout=90
        )
        time.sleep(2)
        return done.stdout + done.stderr

    def note_old(self, stage: str) -> None:
        with closing(BrokerRecordClient(self.processes.bootstrap_servers, {})) as client:
            offsets = client.offsets_now(0, {("old", 0): self.take(0).offsets["old", 0]})["old", 0]
        assert not isinstance(offsets, str), offsets
        self.seen.old[stage] = (offsets.start, offsets.end)

    def keep_old_records(self) -> None:
        """Store the set of the proof: records for ever, and a thread pool that grew in legal steps."""
        default = "--entity-default"
        self.configs(default, "--add-config", "log.retention.ms=-1,num.io.threads=4,max.connections.per.ip=1000")
        self.configs(default, "--add-config", "num.io.threads=8")
        admin = self.processes.admin_client()
        topics = [NewTopic("old", 1, 2, config={"segment.bytes": "2000"}), NewTopic("young", 2, 1)]
        for future in admin.create_topics(topics).values():
            future.result(30)
        producer = Producer({"bootstrap.servers": self.processes.bootstrap_servers, "acks": "all", "log_level": 0})
        for _ in range(OLD):
            producer.produce("old", b"x" * 100, timestamp=int((time.time() - 30 * 86400) * 1000))
            producer.flush(10)
        producer.produce("young", b"x", partition=0)
        producer.flush(10)

    def migrate(self, zookeeper: KazooClient) -> None:
        cluster_id = json.loads(zookeeper.get("/cluster/id")[0])["id"]
        self.processes.format_controller(CONTROLLER, cluster_id)
        self.processes.start_controller(CONTROLLER)
        before = self.take(0)
        self.restart(0, MIGRATION)
        self.compare("migration mode", 0, before)
        self.restart(1, MIGRATION)

        def mirrored() -> bool | None:
            found = zookeeper.exists("/migration") and json.loads(zookeeper.get("/migration")[0])
            return True if found and found["kraft_metadata_offset"] > 0 else None

        wait_for("dual-write", mirrored, 150)


@pytest.fixture(scope="module")
def seen() -> Iterator[Seen]:
    with kafka_processes([0, 1], [CONTROLLER]) as processes:
        walk = Walk(processes)
        processes.start_zookeeper()
        for broker in (0, 1):
            processes.start_broker(broker, ZOOKEEPER)
        walk.keep_old_records()
        walk.seen.record = walk.take(0)
        settings = walk.seen.record.settings
        assert not isinstance(settings, Unobserved), settings
        walk.seen.refused["threads"] = refusals(settings, {})
        walk.seen.refused["threads, with a static line"] = refusals(settings, {"num.io.threads": "8"})
        walk.seen.falling = falling(settings)
        zookeeper = KazooClient(processes.zookeeper_hosts + CHROOT)
        zookeeper.start(30)
        try:
            walk.migrate(zookeeper)
            before = walk.take(0)
            walk.restart(0, KRAFT, CALM)
            walk.compare("KRaft mode, set refused", 0, before)
            walk.note_old("KRaft mode, set refused")
            walk.restart(0, MIGRATION)
            walk.compare("back in migration mode", 0, before)
            walk.note_old("back in migration mode")
            for refusal in walk.seen.refused["threads"]:
                for value in refusal.steps:
                    walk.configs("--entity-default", "--add-config", f"{refusal.name}={value}")
            before = walk.take(0)
            walk.seen.refused["after the steps"] = refusals(before.settings, {})
            walk.restart(0, KRAFT, CALM)
            walk.compare("KRaft mode, after the steps", 0, before)
            port = processes.broker_ports[1]
            secure = f"SECURE://localhost:{walk.secure_ports[1]}"
            advertised = f"advertised.listeners=[PLAINTEXT://localhost:{port},LOGIN://localhost:{port + 1},{secure}]"
            walk.configs("--entity-name 1", "--add-config", advertised)
            walk.configs(
                "--entity-name 1",
                "--add-config",
                f"listener.name.secure.ssl.keystore.location={walk.key_store('dynamic')}",
            )
            before = walk.take(1)
            walk.seen.refused["advertised"] = refusals(before.settings, {})
            walk.restart(1, KRAFT, CALM)
            walk.compare("KRaft mode, advertised listeners", 1, before)
            walk.configs(
                "--entity-name 1",
                "--delete-config",
                "advertised.listeners,listener.name.secure.ssl.keystore.location",
            )
            before = walk.take(1)
            walk.configs("--entity-default", "--delete-config", "log.retention.ms")
            walk.restart(1, KRAFT, HASTY)
            time.sleep(8)
            walk.compare("a retention pass", 1, before)
            yield walk.seen
        finally:
            zookeeper.stop()
            zookeeper.close()


def of(differences: list[Difference], kind: DifferenceKind) -> dict[str, Difference]:
    return {d.what: d for d in differences if d.kind is kind}


def test_a_record_holds_settings_listeners_and_offsets(seen: Seen) -> None:
    record: Any = seen.record
    assert record.settings["log.retention.ms"].value == "-1"
    assert record.settings["num.io.threads"].static.value == "2"
    assert record.offsets["old", 0].end == OLD
    assert record.offsets["old", 0].limit == record.offsets["old", 0].start
    assert {(s.name, s.mechanisms, s.trouble) for s in record.listeners} >= {
        ("PLAINTEXT", (), ""),
        ("LOGIN", ("PLAIN",), ""),
    }


def test_preflight_names_what_falls_and_the_steps(seen: Seen) -> None:
    (refused,) = seen.refused["threads"]
    assert (refused.name, refused.stored, refused.static, refused.steps) == ("num.io.threads", "8", "2", (4,))
    assert set(seen.falling) == {"log.retention.ms", "num.io.threads", "max.connections.per.ip"}
    assert seen.refused["threads, with a static line"] == ()
    assert seen.refused["after the steps"] == ()


def test_migration_mode_changes_nothing(seen: Seen) -> None:
    assert seen.differences["migration mode"] == []


def test_a_refused_set_is_seen_while_every_record_is_there(seen: Seen) -> None:
    refused = of(seen.differences["KRaft mode, set refused"], DifferenceKind.REFUSED)
    assert set(refused) == {"log.retention.ms", "num.io.threads", "max.connections.per.ip"}
    assert refused["log.retention.ms"].effect is Effect.DESTROYS
    assert "could not be applied" in refused["log.retention.ms"].line
    assert seen.old["KRaft mode, set refused"] == (0, OLD)


def test_the_way_back_to_migration_mode_loses_nothing(seen: Seen) -> None:
    assert seen.differences["back in migration mode"] == []
    assert seen.old["back in migration mode"] == (0, OLD)


def test_the_steps_of_the_finding_help(seen: Seen) -> None:
    assert seen.differences["KRaft mode, after the steps"] == []


def test_advertised_listeners_that_fall_cut_clients_off(seen: Seen) -> None:
    assert {refused.name for refused in seen.refused["advertised"]} == {"advertised.listeners", KEY_STORE}
    found = seen.differences["KRaft mode, advertised listeners"]
    assert any(d.what == "advertised.listeners" and d.effect is Effect.CUTS_OFF for d in found)


def test_a_key_store_that_falls_cuts_clients_off(seen: Seen) -> None:
    found = of(seen.differences["KRaft mode, advertised listeners"], DifferenceKind.REFUSED)
    assert found[KEY_STORE].effect is Effect.CUTS_OFF


def test_records_that_retention_does_not_explain_are_missed(seen: Seen) -> None:
    lost = of(seen.differences["a retention pass"], DifferenceKind.LOG_START)
    assert lost["old-0"].effect is Effect.DESTROYS
    assert lost["old-0"].before == "0"
    assert int(lost["old-0"].after) > 0
