"""Brokers of a rehearsal: Kafka's own, in KRaft mode, on a migrated copy of a stored tree without its topics."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.integration.certificates import Authority
from tests.spark.planting import Dump
from tests.support.dry_start import compiled_agent, run_entrypoint
from tests.support.kafka_processes import kafka_libraries
from tests.support.traps import CHROOT, SETTINGS, config, stored_dump

from kraftbridge.copies.dry_start import kafka_start
from kraftbridge.copies.kraft_mode import kraft_brokers
from kraftbridge.models.dry_start import ContainerImage, CopyKey, CopyOutcome, DryStartReport
from kraftbridge.models.phase import BrokerMode
from kraftbridge.models.rehearsal import RehearsalResult, RehearsalVerdict
from kraftbridge.rehearsal.brokers import BrokerOptions, planned
from kraftbridge.rehearsal.command_line import main
from kraftbridge.rehearsal.page import render_page
from kraftbridge.rehearsal.rehearse import RehearsalOptions, rehearse

pytestmark = pytest.mark.integration

STATIC = {
    "broker.id": "0",
    "listeners": "PLAINTEXT://0.0.0.0:9092",
    "advertised.listeners": "PLAINTEXT://kafka-0.example:9092",
    "zookeeper.connect": "zookeeper.example:2181/kafka",
    "log.dirs": "/var/lib/kafka/a,/var/lib/kafka/b",
    "num.network.threads": "2",
    "num.io.threads": "2",
    "metric.reporters": "com.example.Reporter",
    **SETTINGS,
}


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled_agent(tmp_path_factory.mktemp("agent"))


def without_dynamic_settings() -> Dump:
    dump = stored_dump()
    for path in [path for path in dump.znodes if path.startswith("/config/brokers/")]:
        dump.remove(path)
    return dump


def rehearsed(
    dump: Dump, tmp_path: Path, agent: Path, properties: Mapping[int | None, Mapping[str, str]]
) -> RehearsalResult:
    path = dump.write(tmp_path / "zk.jsonl")
    options = RehearsalOptions(kafka_libraries(), tmp_path / "work", CHROOT, SETTINGS)
    plan = planned(path, options, BrokerOptions(properties, agent))
    return plan.run(rehearse(path, options))


def test_a_broker_whose_dynamic_settings_kafka_accepts_works(tmp_path: Path, agent: Path) -> None:
    dump = without_dynamic_settings()
    dump.put("/config/brokers/<default>", config(log__retention__ms="3600000", num__io__threads="3"))
    dump.put("/config/brokers/0", config(log__cleaner__io__max__bytes__per__second="10485760"))

    result = rehearsed(dump, tmp_path, agent, {None: STATIC})

    assert result.verdict is RehearsalVerdict.WORKS, result.to_json(indent=1)
    assert [(each.broker, each.alike, each.verdict) for each in result.brokers] == [
        (0, [], RehearsalVerdict.WORKS),
        (1, [2], RehearsalVerdict.WORKS),
    ]
    assert result.brokers[0].reason == "it starts in KRaft mode, with each of 3 dynamic settings in force"
    assert {"log.dirs", "listeners", "zookeeper.connect", "metric.reporters"} <= result.brokers[
        0
    ].replaced_settings.keys()
    assert "example" not in (tmp_path / "work" / "brokers" / "broker-0.properties").read_text()


PUBLIC = "PLAINTEXT://kafka.public.example:9092"
BOTH = "PLAINTEXT://0.0.0.0:9092,EXT://0.0.0.0:9094"
EXTERNAL = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXT:PLAINTEXT"}


def test_a_dynamic_setting_that_kafka_refuses_in_kraft_mode_fails_in_kafkas_own_words(
    tmp_path: Path, agent: Path
) -> None:
    """One refused value makes the whole set fall."""
    dump = without_dynamic_settings()
    dump.put("/config/brokers/0", config(num__network__threads="32", log__retention__ms="3600000"))
    dump.put("/config/brokers/1", config(advertised__listeners=PUBLIC))
    dump.put("/config/brokers/2", config(listeners=BOTH, advertised__listeners=f"{PUBLIC},EXT://kafka-2.example:9094"))

    result = rehearsed(dump, tmp_path, agent, {None: STATIC | EXTERNAL})

    threads, address, listener = result.brokers
    assert result.verdict is RehearsalVerdict.FAILS, result.to_json(indent=1)
    assert [each.verdict for each in result.brokers] == [RehearsalVerdict.FAILS] * 3, result.to_json(indent=1)
    assert [setting.name for setting in threads.unheld] == ["log.retention.ms", "num.network.threads"]
    assert "Per-broker configs of 0 could not be applied" in threads.reason
    assert "value should not be greater than double the current value 2" in threads.reason
    assert [setting.name for setting in address.unheld] == ["advertised.listeners"]
    assert "Advertised listeners cannot be altered when using a Raft-based metadata quorum" in address.reason
    assert [setting.name for setting in listener.unheld] == ["advertised.listeners", "listeners"]
    assert result.reason == f"broker 0: {threads.reason}"
    assert "Advertised listeners cannot be altered" in render_page(result)


def test_a_key_store_that_only_a_dynamic_setting_names_fails_and_equal_static_lines_mend_a_broker(
    tmp_path: Path, agent: Path
) -> None:
    """The static lines are the remedy that preflight names (KAFKA-17431)."""
    certificate = Authority().issue("kafka")
    keys = tmp_path / "keys.pem"
    keys.write_text(certificate.key + certificate.certificate)
    store = {"listener.name.ext.ssl.keystore.location": str(keys), "listener.name.ext.ssl.keystore.type": "PEM"}
    static = {
        **STATIC,
        "listeners": BOTH,
        "advertised.listeners": BOTH.replace("0.0.0.0", "kafka.example"),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXT:SSL",
    }
    mended = {"num.network.threads": "32", "advertised.listeners": f"{PUBLIC},EXT://kafka.public.example:9094"}
    dump = without_dynamic_settings()
    dump.put("/config/brokers/0", {"version": 1, "config": store})
    dump.put("/config/brokers/1", {"version": 1, "config": store | mended})

    result = rehearsed(dump, tmp_path, agent, {None: static, 1: static | store | mended})

    assert [each.verdict for each in result.brokers] == ["Fails", "Works", "Works"], result.to_json(indent=1)
    assert {setting.name for setting in result.brokers[0].unheld} == store.keys()
    assert "Cannot add SSL keystore to an existing listener" in result.reason


PRESENT = """broker.id=0
zookeeper.connect=zookeeper.example:2181/kafka
zookeeper.set.acl=true
log.dirs=/var/lib/kafka/a,/var/lib/kafka/b
listeners=INSIDE://0.0.0.0:9092,OUTSIDE://0.0.0.0:9093
advertised.listeners=INSIDE://kafka-0.example:9092,OUTSIDE://kafka-0.public.example:9093
inter.broker.listener.name=INSIDE
sasl.enabled.mechanisms=SCRAM-SHA-256
sasl.mechanism.inter.broker.protocol=SCRAM-SHA-256
listener.name.inside.scram-sha-256.sasl.jaas.config=x.ScramLoginModule required username="a" password="jaas-secret";
ssl.keystore.location=/mnt/keys.jks
ssl.keystore.password=store-secret
ssl.client.auth=required
password.encoder.secret=encoder-secret
delegation.token.secret.key=token-secret
super.users=User:admin
log.retention.hours=12
num.io.threads=3
my.plugin.token=plugin-secret
"""
ZOOKEEPER_ONLY = "authorizer.class.name=kafka.security.authorizer.AclAuthorizer\nlistener.security.protocol.map="
IN_KRAFT = """process.roles=broker
node.id=0
controller.quorum.voters=3000@demo-kraft-0.example:9093
controller.listener.names=CONTROLLER
listener.name.controller.ssl.truststore.location=/etc/kraftbridge/ca.pem
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
log.initial.task.delay.ms=900000
listener.security.protocol.map=CONTROLLER:SSL,"""
PROTOCOLS = "INSIDE:SASL_SSL,OUTSIDE:SSL\n"


def test_a_broker_starts_with_what_the_copies_of_a_dry_start_gave_to_kafka(tmp_path: Path, agent: Path) -> None:
    """The agent of a dry start, what the operator makes of its report, and Kafka. No secret comes that far."""

    def copy(mode: BrokerMode, properties: str) -> CopyOutcome:
        folder = tmp_path / mode
        folder.mkdir()
        (folder / "server.properties").write_text(properties)
        script = 'exec java -cp "$LIBS" kafka.Kafka "$HERE/server.properties"'
        start = kafka_start(run_entrypoint(script, folder, agent, kafka_libraries()).output)
        assert start is not None
        images = (ContainerImage("kafka", "kafka:1", "", "kafka:1", ""),)
        return CopyOutcome(CopyKey("kafka", 0, mode), 0, start, images=images)

    copies = (
        copy(BrokerMode.ZOOKEEPER, PRESENT + ZOOKEEPER_ONLY + PROTOCOLS),
        copy(BrokerMode.KRAFT, PRESENT + IN_KRAFT + PROTOCOLS),
    )
    assert all(each.start is not None and not each.start.missing_classes for each in copies)
    (given,) = kraft_brokers(DryStartReport("x", copies), "kafka")
    assert "secret" not in str(given.settings.values()), given
    dump = without_dynamic_settings()
    dump.put("/config/brokers/<default>", config(log__retention__ms="3600000", num__io__threads="8"))
    path = dump.write(tmp_path / "zk.jsonl")
    options = RehearsalOptions(kafka_libraries(), tmp_path / "work", CHROOT, SETTINGS)
    brokers = BrokerOptions({None: given.settings}, agent, left_out={0: given.left_out}, has_stores=False)

    result = planned(path, options, brokers).run(rehearse(path, options))

    (broker, others) = result.brokers
    assert others.alike == [2], "they lack the key of tokens"
    assert broker.verdict is RehearsalVerdict.FAILS, result.to_json(indent=1)
    assert "greater than double the current value 3" in broker.reason
    assert {each.name: each.holds for each in broker.compared} == {"log.retention.ms": None, "num.io.threads": "3"}
    replaced = broker.replaced_settings.keys()
    assert {"ssl.keystore.password", "my.plugin.token", "delegation.token.secret.key", "listeners"} <= replaced
    assert result.of_controllers.verdict is RehearsalVerdict.WORKS


def test_by_hand_a_broker_that_does_not_start_is_exit_code_1(
    tmp_path: Path, agent: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dump = stored_dump().write(tmp_path / "zk.jsonl")
    properties = tmp_path / "server.properties"
    properties.write_text("".join(f"{k}={v}\n" for k, v in STATIC.items()) + "num.io.threads=0\n")
    settings = [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}")]
    page = tmp_path / "page.html"
    place = ["--zookeeper", str(dump), "--chroot", CHROOT, "--kafka-home", str(kafka_libraries())]
    brokers = ["--broker-properties", str(properties), "--agent", str(agent)]

    code = main([*place, *settings, *brokers, "--html", str(page), "--json", str(tmp_path / "result.json")])

    output = capsys.readouterr().out
    assert code == 1, output
    assert "Invalid value 0 for configuration num.io.threads" in output
    assert "zookeeper.connect was replaced" in output
    result = RehearsalResult.model_validate_json((tmp_path / "result.json").read_text())
    assert not [v for v in SETTINGS.values() if v in result.to_json() + page.read_text()]


ISOLATED = """
import errno, socket
from kraftbridge.rehearsal.isolation import isolate
reason = isolate()
here = socket.create_server(("127.0.0.1", 0))
socket.create_connection(here.getsockname(), 5)
with socket.socket() as out:
    out.settimeout(5)
    print(reason or errno.errorcode[out.connect_ex(("192.0.2.1", 9))])
"""


def test_a_process_that_isolates_itself_reaches_the_loopback_interface_alone() -> None:
    done = subprocess.run([sys.executable, "-c", ISOLATED], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "ENETUNREACH"
