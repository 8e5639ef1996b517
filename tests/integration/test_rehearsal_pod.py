"""A rehearsal whose processes run elsewhere and are told by files what to do, as in a pod; here shells stand for its containers."""

from __future__ import annotations

import base64
import gzip
import math
import os
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import TypeAdapter
from tests.spark.planting import Dump
from tests.support.dry_start import compiled_agent
from tests.support.kafka_processes import KAFKA_VERSION, kafka_libraries, wait_for
from tests.support.traps import CHROOT, TRAPS, config, planted, stored_dump

from kraftbridge.exceptions import MetadataError
from kraftbridge.metadata.zookeeper.reader import ZooKeeperReader, read_dump
from kraftbridge.models.rehearsal import (
    PROPERTIES_KEY,
    REQUEST_KEY,
    RESULT_MARK,
    Ending,
    RehearsalRequest,
    RehearsalResult,
    RehearsalVerdict,
    RehearsedSettings,
)
from kraftbridge.models.report import ZooKeeperAccess
from kraftbridge.rehearsal import job
from kraftbridge.rehearsal.page import render_page
from kraftbridge.rehearsal.pod import END, RUNNER, PodProcesses
from kraftbridge.rehearsal.processes import ZOOKEEPER, ZOOKEEPER_CLASS, LocalProcesses, free_port, wait_for_port
from kraftbridge.rehearsal.rehearse import RehearsalOptions, rehearse_with
from kraftbridge.rehearsal.tree import SnapshotWriter

pytestmark = pytest.mark.integration
Containers = list[subprocess.Popen[bytes]]
IMAGE_SCRIPTS = Path(__file__).resolve().parents[2] / "e2e" / "images" / "kafka" / "bin"
CONFLUENT = '#!/bin/bash\nexec java $KAFKA_HEAP_OPTS $KAFKA_JVM_PERFORMANCE_OPTS $KAFKA_LOG4J_OPTS -cp "$CLASSPATH:$(dirname $0)/../share/java/kafka/*" $KAFKA_OPTS "$@"\n'
NAMES = (
    "zookeeper brokers/zookeeper",
    "format controller brokers/format brokers/controller",
    "brokers/broker-0 brokers/broker-1 brokers/broker-2",
)


def image(root: Path, layout: str) -> dict[str, str]:
    """Make the files of an image below one directory; return the environment that its containers have."""
    environment = {"PATH": os.environ["PATH"], "KAFKA_OPTS": "-javaagent:/of/the/image.jar", "JMX_PORT": "1"}
    match layout:
        case "opt/kafka" | "opt/bitnami/kafka":
            (root / layout).mkdir(parents=True)
            (root / layout / "bin").symlink_to(IMAGE_SCRIPTS)
            (root / layout / "libs").symlink_to(kafka_libraries())
        case "usr":  # as Confluent's: no ending, and the jars elsewhere
            for folder in ("usr/bin", "usr/share/java"):
                (root / folder).mkdir(parents=True)
            (root / "usr/share/java/kafka").symlink_to(kafka_libraries())
            (root / "usr/bin/kafka-run-class").write_text(CONFLUENT)
            (root / "usr/bin/kafka-run-class").chmod(0o755)
            environment["PATH"] = f"{root}/usr/bin:{environment['PATH']}"
    return environment


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled_agent(tmp_path_factory.mktemp("agent"))


@pytest.fixture
def layout() -> str:
    return "opt/kafka"


@pytest.fixture
def containers(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, layout: str) -> Iterator[Containers]:
    root = tmp_path_factory.mktemp("image")
    environment = image(root, layout)
    script = RUNNER.replace(" /opt/", f" {root}/opt/")
    started = [
        subprocess.Popen(["/bin/sh", "-c", script], env={**environment, "WORK": str(tmp_path), "NAMES": names})
        for names in NAMES
    ]
    try:
        yield started
    finally:
        for container in started:
            container.kill()
            container.wait(10)


@pytest.mark.parametrize(("name", "layout"), [("none", "opt/bitnami/kafka"), ("broker-config-abc", "opt/kafka")])
def test_a_rehearsal_in_a_pod_answers_as_one_on_this_machine(
    name: str, containers: Containers, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    trap = TRAPS[name]
    dump = planted(trap, tmp_path_factory.mktemp("dump") / "zk.jsonl")
    processes = PodProcesses(tmp_path)

    result = rehearse_with(processes, dump, RehearsalOptions(None, tmp_path, CHROOT, trap.settings))
    processes.close()
    (tmp_path / END).touch()

    assert (result.ending, result.verdict) == (trap.ending, trap.verdict), result.to_json(indent=1)
    assert result.kafka_version == KAFKA_VERSION
    assert [container.wait(30) for container in containers] == [0, 0, 0]  # the pod ends, with what ran in it


def serves(port: int) -> bool:
    """Return whether ZooKeeper answers: it opens its port earlier."""
    try:
        with ZooKeeperReader(ZooKeeperAccess(connect=f"127.0.0.1:{port}")) as reader:
            return next(reader.walk(), None) is not None
    except MetadataError:
        return False


@pytest.mark.parametrize("layout", ["usr"])
def test_the_pod_reads_a_live_zookeeper_and_starts_kafka_once_that_is_out_of_reach(
    containers: Containers, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both of our containers as the Job runs them. The source is stopped where the operator would close the pod."""
    elsewhere = tmp_path_factory.mktemp("source")
    writer, port = SnapshotWriter((1,) * 16), free_port()
    writer.take(read_dump(planted(TRAPS["none"], elsewhere / "zk.jsonl"), CHROOT))
    writer.write(elsewhere / "zookeeper" / "version-2")
    configuration = elsewhere / "zoo.cfg"
    configuration.write_text(
        f"dataDir={elsewhere}/zookeeper\nclientPort={port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n"
    )
    source = LocalProcesses(kafka_libraries(), elsewhere)
    mounted = tmp_path_factory.mktemp("mounted")
    secret = mounted / "secret"
    secret.write_text(TRAPS["none"].settings["password.encoder.secret"])
    listener = mounted / "listener.properties"
    listener.write_text(
        "delegation.token.secret.key=some-token-key\nlistener.name.controller.ssl.truststore.location=/nowhere\n"
    )
    request = RehearsalRequest(
        run_id="r",
        zookeeper=ZooKeeperAccess(connect=f"127.0.0.1:{port}"),
        bootstrap_servers="127.0.0.1:1",
        release_version="3.9",
        heap_bytes=512 << 20,
        zookeeper_heap_bytes=256 << 20,
        password_encoder_secret_path=str(secret),
        listener_path=str(listener),
    )
    (mounted / REQUEST_KEY).write_text(request.to_json())
    (mounted / PROPERTIES_KEY).write_text(
        "controller.quorum.voters=3000@nowhere:9093\nzookeeper.connect=nowhere:2181\n"
    )
    arguments = ["--request", str(mounted), "--work", str(tmp_path)]
    try:
        source.start(ZOOKEEPER, 256 << 20, ZOOKEEPER_CLASS, str(configuration))
        assert wait_for_port(source, ZOOKEEPER, port, 60) is None
        wait_for("ZooKeeper serves", lambda: serves(port))
        assert job.main(["read", *arguments]) == 0
    finally:
        source.close()
    assert job.main(["fence", *arguments]) == 0
    assert job.main(["run", *arguments]) == 0
    line = next(text for text in capsys.readouterr().out.splitlines() if text.startswith(RESULT_MARK))
    result = RehearsalResult.model_validate_json(gzip.decompress(base64.b64decode(line[len(RESULT_MARK) :])))
    assert (result.verdict, result.ending) == (RehearsalVerdict.WORKS, Ending.DUAL_WRITE), result.to_json(indent=1)
    assert result.forecast.no_controller_seconds is not None
    assert result.forecast.heap_bytes is not None
    assert "listener.name.controller.ssl.truststore.location" in result.replaced_settings
    assert [container.wait(30) for container in containers] == [0, 0, 0]


@pytest.mark.parametrize("layout", ["no/kafka"])
def test_an_image_without_kafka_is_unknown_and_says_so(
    containers: Containers, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    dump = planted(TRAPS["none"], tmp_path_factory.mktemp("dump") / "zk.jsonl")
    result = rehearse_with(PodProcesses(tmp_path), dump, RehearsalOptions(None, tmp_path, CHROOT))
    assert result.verdict is RehearsalVerdict.UNKNOWN
    assert "this image has no kafka-run-class" in result.reason


def test_a_container_that_is_never_asked_ends_with_the_pod(containers: Containers, tmp_path: Path) -> None:
    (tmp_path / END).touch()
    assert [container.wait(10) for container in containers] == [0, 0, 0]


STATIC = {
    "process.roles": "broker",
    "node.id": "0",
    "listeners": "INTERNAL://0.0.0.0:9092,OUTSIDE://0.0.0.0:9093",
    "advertised.listeners": "INTERNAL://kafka-0.example:9092,OUTSIDE://kafka-0.example:9093",
    "listener.security.protocol.map": "INTERNAL:SASL_SSL,OUTSIDE:SSL,CONTROLLER:SSL",
    "inter.broker.listener.name": "INTERNAL",
    "ssl.keystore.location": "/mnt/of/the/brokers.jks",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "log.dirs": "/var/lib/kafka/a,/var/lib/kafka/b",
    "num.io.threads": "2",
}
LEFT_OUT = {"ssl.keystore.password": "a secret", "delegation.token.secret.key": "a secret"}


def given(*brokers: int) -> bytes:
    """Return what the operator gives the pod: the settings of brokers as their copies in KRaft mode showed them."""
    each = [RehearsedSettings(broker=b, image="kafka:1", settings=STATIC, left_out=LEFT_OUT) for b in brokers]
    return gzip.compress(TypeAdapter(list[RehearsedSettings]).dump_json(each, by_alias=True))


def stored() -> Dump:
    dump = stored_dump()
    for path in [path for path in dump.znodes if path.startswith("/config/brokers/")]:
        dump.remove(path)
    dump.put("/config/brokers/<default>", config(log__retention__ms="-1"))
    dump.put("/config/brokers/1", config(num__io__threads="8", log__cleaner__threads="2"))
    dump.put("/config/brokers/2", config(ssl__keystore__location="/mnt/other.jks", background__threads="12"))
    return dump


@pytest.mark.parametrize("layout", ["usr"])
def test_the_pod_starts_the_brokers_too_and_kafka_says_what_is_lost(
    containers: Containers, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, agent: Path
) -> None:
    """One broker for each pair; it loses a whole set by one value, with the values that hold instead."""
    dump = stored().write(tmp_path / job._DUMP)
    options = RehearsalOptions(None, tmp_path, CHROOT, TRAPS["none"].settings)
    processes = PodProcesses(tmp_path)

    alone = rehearse_with(processes, dump, options)
    began = time.monotonic()
    result = job.with_brokers(alone, given(0, 1, 2), options, math.inf, agent)
    seconds = time.monotonic() - began
    (tmp_path / END).touch()

    assert alone.verdict is RehearsalVerdict.WORKS, alone.to_json(indent=1)
    assert (result.of_controllers.verdict, result.of_controllers.reason) == (alone.verdict, alone.reason)
    assert [each.verdict for each in result.brokers] == ["Works", "Fails", "Works"], result.to_json(indent=1)
    refused = result.brokers[1]
    compared = {each.name: (each.stored, each.holds, each.held) for each in refused.compared}
    # Kafka applies the default and the broker's own settings in the order of a hash map whose keys hash by identity:
    # a default that comes first is in force although the broker's own settings are refused.
    assert compared.pop("log.retention.ms") in (("-1", None, False), ("-1", "-1", True))
    assert compared == {"log.cleaner.threads": ("2", "1", False), "num.io.threads": ("8", "2", False)}
    assert "value should not be greater than double the current value 2" in refused.reason
    assert result.verdict is RehearsalVerdict.FAILS
    assert {"ssl.keystore.location", "ssl.keystore.password", "listeners"} <= result.brokers[2].replaced_settings.keys()
    assert [each.name for each in result.brokers[2].compared] == ["background.threads", "log.retention.ms"]
    assert "example" not in (tmp_path / "brokers" / "broker-1.properties").read_text()
    assert refused.reason.split(":")[0] in render_page(result)
    assert [container.wait(30) for container in containers] == [0, 0, 0]
    print(f"three brokers took {seconds:.1f} s, {[each.seconds for each in result.brokers]}")


@pytest.mark.parametrize("layout", ["no/kafka"])
def test_a_broker_that_does_not_come_up_is_unknown_and_the_controllers_part_stays(
    containers: Containers, tmp_path: Path, agent: Path
) -> None:
    stored().write(tmp_path / job._DUMP)
    options = RehearsalOptions(None, tmp_path, CHROOT, TRAPS["none"].settings)
    works = RehearsalResult(
        verdict=RehearsalVerdict.WORKS,
        reason="all 5 entities",
        ending=Ending.DUAL_WRITE,
        started_at=datetime.now(UTC),
        finished_at=datetime.now(UTC),
    )
    result = job.with_brokers(works, given(0, 1), options, math.inf, agent)
    (tmp_path / END).touch()
    assert result.verdict is RehearsalVerdict.UNKNOWN
    assert {each.verdict for each in result.brokers} == {RehearsalVerdict.UNKNOWN}
    assert "this image has no kafka-run-class" in result.brokers[0].reason
    assert (result.of_controllers.verdict, result.of_controllers.reason) == (works.verdict, works.reason)
    assert [container.wait(30) for container in containers] == [0, 0, 0]
