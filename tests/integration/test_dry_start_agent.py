"""The dry start's agent in real JVMs with Kafka's real jars: it reports what Kafka is given, and no program but two ever runs."""

from __future__ import annotations

import base64
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.certificates import Authority, Certificate
from tests.support.dry_start import SALT, compiled_agent, run_entrypoint
from tests.support.kafka_processes import KAFKA_VERSION, ZOOKEEPER, kafka_libraries, kafka_processes, wait_for
from tests.support.observations import spec_document
from tests.support.programs import installed_tool

from kraftbridge.builders.broker_overlays import SHORT_ADDRESS_CACHE, render_properties
from kraftbridge.builders.dry_start_pods import LISTENER_FILE, DryStartFacts, run_secret
from kraftbridge.copies.dry_start import (
    RESULT,
    agent_loaded,
    differences_from_overlay,
    differences_from_running,
    kafka_start,
    last_words,
    programs,
)
from kraftbridge.models.dry_start import CopyKey, CopyOutcome, JavaProgram, KafkaStart
from kraftbridge.models.phase import BrokerMode
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.models.survey import Unobserved
from kraftbridge.services.listener import listener_of_controllers
from kraftbridge.storage.kafka_brokers import BrokerClient

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kafka-processes")]

START = 'exec java -cp "$LIBS" kafka.Kafka "$HERE/server.properties"'
ZOOKEEPER_BROKER = """broker.id=1
zookeeper.connect=zookeeper:2181/kafka
log.dirs=/data/a,/data/b
listeners=PLAINTEXT://:9092
log.retention.hours=12
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="jaas-secret";
ssl.keystore.password=keystore-secret
listener.name.inside.ssl.key.password=listener-secret
my.plugin.password.file=plugin-secret
authorizer.class.name=com.example.NotInThisImage
super.users=User:admin
"""


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled_agent(tmp_path_factory.mktemp("agent"))


@pytest.fixture(scope="module")
def libraries() -> Path:
    return kafka_libraries()


def outcome(log: str, mode: BrokerMode = BrokerMode.ZOOKEEPER, overlay: dict[str, str] | None = None) -> CopyOutcome:
    start = kafka_start(log)
    assert start is not None, log
    return CopyOutcome(CopyKey("kafka", 1, mode), 1, start, overlay=overlay or {})


@pytest.mark.parametrize("release", ["2.4.1", "2.8.2"])
def test_a_former_release_reports_what_its_broker_tells_as_static(tmp_path: Path, agent: Path, release: str) -> None:
    # KafkaConfig of these releases loads the authorizer itself.
    own = ZOOKEEPER_BROKER.replace("com.example.NotInThisImage", "kafka.security.authorizer.AclAuthorizer")
    (tmp_path / "server.properties").write_text(own)
    ended = run_entrypoint(START, tmp_path, agent, kafka_libraries(release))
    start = kafka_start(ended.output)
    assert ended.code == 0, ended.output
    assert start is not None, ended.output
    assert (start.kafka, start.valid, start.complaint) == (release, True, "")
    values = {name: given.value for name, given in start.settings.items() if not given.sensitive}
    assert values["broker.id"] == "1"
    assert values["log.dirs"] == "/data/a,/data/b"
    assert values["log.retention.ms"] is None, "its synonym is given"
    assert values["super.users"] == "User:admin"
    hidden = {"sasl.jaas.config", "ssl.keystore.password", "listener.name.inside.ssl.key.password"}
    assert all(start.settings[name].sensitive for name in (*hidden, "my.plugin.password.file"))
    assert "secret" not in ended.output


KRAFT_BROKER = """process.roles=broker
node.id=1
controller.quorum.voters=3000@controllers:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
listeners=PLAINTEXT://:9092
log.dirs=/data/a,/data/b
log.retention.hours=12
zookeeper.connect=zookeeper:2181/kafka
ssl.keystore.password=keystore-secret
"""


@pytest.mark.parametrize("release", ["4.0.2", "4.1.2", "4.2.1", "4.3.1", "4.4.0"])
def test_kafka_4_reports_what_it_makes_of_the_settings_of_a_kraft_broker(
    tmp_path: Path, agent: Path, release: str
) -> None:
    (tmp_path / "server.properties").write_text(KRAFT_BROKER)
    ended = run_entrypoint(START, tmp_path, agent, kafka_libraries(release))
    start = kafka_start(ended.output)
    assert ended.code == 0, ended.output
    assert start is not None, ended.output
    assert (start.kafka, start.valid, start.complaint) == (release, True, "")
    values = {name: given.value for name, given in start.settings.items() if not given.sensitive}
    assert values["log.dirs"] == "/data/a,/data/b"
    assert values["log.retention.ms"] is None, "its synonym is given"
    assert set(start.mount_points) == {"/data/a", "/data/b"}
    assert "secret" not in ended.output
    (tmp_path / "server.properties").write_text(f"{KRAFT_BROKER}log.segment.bytes=1000\n")
    refused = kafka_start(run_entrypoint(START, tmp_path, agent, kafka_libraries(release)).output)
    assert refused is not None
    assert not refused.valid
    assert "log.segment.bytes" in refused.complaint


def test_the_configuration_is_reported_and_no_secret_is_told(tmp_path: Path, agent: Path, libraries: Path) -> None:
    (tmp_path / "server.properties").write_text(ZOOKEEPER_BROKER)
    (tmp_path / "jaas.conf").write_text(
        'KafkaServer {\n  a.b.PlainLoginModule required password="file-secret";\n};\nClient {\n  x required;\n};\n'
    )
    options = "-Djava.security.auth.login.config=$HERE/jaas.conf -Djavax.net.ssl.trustStorePassword=flag-secret -Da=b"
    script = f'exec java {options} -cp "$LIBS" kafka.Kafka "$HERE/server.properties" --override "broker.rack=a b"'
    ended = run_entrypoint(script, tmp_path, agent, libraries)
    start = kafka_start(ended.output)
    assert ended.code == 0, ended.output
    assert start is not None
    assert start.valid
    assert start.kafka == KAFKA_VERSION
    assert {
        n: start.settings[n].value for n in ("broker.id", "log.dirs", "broker.rack", "log.retention.ms", "super.users")
    } == {
        "super.users": "User:admin",
        "broker.id": "1",
        "log.dirs": "/data/a,/data/b",
        "broker.rack": "a b",
        "log.retention.ms": None,
    }
    sensitive = {name for name, setting in start.settings.items() if setting.sensitive}
    assert sensitive == {
        "sasl.jaas.config",
        "ssl.keystore.password",
        "listener.name.inside.ssl.key.password",
        "my.plugin.password.file",
    }
    assert set(start.jaas_entries) == {"KafkaServer", "Client"}
    assert start.system_properties["a"].value == "b"
    assert start.system_properties["javax.net.ssl.trustStorePassword"].sensitive
    assert start.missing_classes == ("authorizer.class.name",)
    assert "-secret" not in ended.output
    assert SALT not in ended.output


JAVA = Path(installed_tool("java", "openjdk-17-jdk-headless", "the integration tests")).resolve()
JVMS = sorted({JAVA, *(java.resolve() for java in JAVA.parents[2].glob("*/bin/java"))})
"""Every JVM that is installed beside the one of the tests."""


@pytest.mark.parametrize("java", JVMS, ids=lambda java: java.parents[1].name)
@pytest.mark.parametrize(
    ("security", "options", "seconds"),
    [
        ("", "", 30),
        ("", SHORT_ADDRESS_CACHE, 1),
        ("networkaddress.cache.ttl=77", "", 77),
        ("networkaddress.cache.ttl=77", SHORT_ADDRESS_CACHE, 77),
        ("networkaddress.cache.ttl=-1", SHORT_ADDRESS_CACHE, -1),
        ("networkaddress.cache.ttl=0", "", 0),
        ("", "-Dsun.net.inetaddr.ttl=-1", -1),
        ("", "-Dnetworkaddress.cache.ttl=5", 30),
    ],
)
def test_the_jvm_tells_how_long_it_caches_addresses(
    tmp_path: Path, agent: Path, libraries: Path, java: Path, security: str, options: str, seconds: int
) -> None:
    """The image's ``java.security`` wins over what the operator sets."""
    (tmp_path / "server.properties").write_text("broker.id=1\nzookeeper.connect=z:2181\n")
    (tmp_path / "java.security").write_text(security + "\n")
    script = START.replace("java ", f"{java} -Djava.security.properties=$HERE/java.security {options} ")
    ended = run_entrypoint(script, tmp_path, agent, libraries)
    start = kafka_start(ended.output)
    assert start is not None, ended.output
    assert start.address_cache_seconds == seconds


def test_a_class_from_a_volume_is_not_one_of_the_image(tmp_path: Path, agent: Path, libraries: Path) -> None:
    (tmp_path / "Policy.java").write_text("package com.example; public class Policy {}")
    (tmp_path / "server.properties").write_text(
        "broker.id=1\nzookeeper.connect=z:2181\ncreate.topic.policy.class.name=com.example.Policy\n"
    )
    script = START.replace("$LIBS", "$LIBS:$PLUGINS")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as volume:
        assert Path("/dev/shm").is_mount()
        subprocess.run(
            [shutil.which("javac") or "javac", "-d", volume, tmp_path / "Policy.java"], check=True, timeout=60
        )
        ended = run_entrypoint(script, tmp_path, agent, libraries, {"PLUGINS": volume})
        start = kafka_start(ended.output)
    assert start is not None, ended.output
    assert (start.missing_classes, start.mounted_classes) == ((), ("create.topic.policy.class.name",))


def test_what_is_mounted_at_each_log_directory_is_reported(tmp_path: Path, agent: Path, libraries: Path) -> None:
    """A directory that does not exist yet counts as where it would be made, and a link as where it leads."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as volume:
        (tmp_path / "link").symlink_to(volume)
        directories = {f"{tmp_path}/a": tmp_path, f"{volume}/b": Path(volume), f"{tmp_path}/link/c": Path(volume)}
        settings = f"broker.id=1\nzookeeper.connect=z:2181\nlog.dirs={','.join(directories)}\n"
        (tmp_path / "server.properties").write_text(settings)
        start = kafka_start(run_entrypoint(START, tmp_path, agent, libraries).output)
    assert start is not None

    def mount_of(place: Path) -> str:
        return str(next(each for each in (place, *place.parents) if each.is_mount()))

    assert start.mount_points == {path: mount_of(place) for path, place in directories.items()}
    assert start.mount_points[f"{volume}/b"] == "/dev/shm"


def test_a_hash_is_of_the_value_and_the_runs_salt(tmp_path: Path, agent: Path, libraries: Path) -> None:
    hashes = []
    for value in ("one", "one", "two"):
        (tmp_path / "server.properties").write_text(f"{ZOOKEEPER_BROKER}ssl.truststore.password={value}\n")
        start = kafka_start(run_entrypoint(START, tmp_path, agent, libraries).output)
        assert start is not None
        hashes.append(start.settings["ssl.truststore.password"].hash)
    assert hashes[0] == hashes[1] != hashes[2]
    assert len(hashes[0]) == 64


def test_kafkas_own_words_become_the_complaint(tmp_path: Path, agent: Path, libraries: Path) -> None:
    (tmp_path / "server.properties").write_text(
        "process.roles=broker\nnode.id=1\ncontroller.quorum.voters=3000@c:9093\nssl.key.password=key-secret\n"
    )
    ended = run_entrypoint(START, tmp_path, agent, libraries)
    start = kafka_start(ended.output)
    assert start is not None
    assert not start.valid
    assert "controller.listener.names must contain at least one value" in start.complaint
    assert start.settings["process.roles"].value == "broker"
    assert "key-secret" not in ended.output


def test_a_refused_secret_is_not_quoted(tmp_path: Path, agent: Path, libraries: Path) -> None:
    (tmp_path / "server.properties").write_text(f"{ZOOKEEPER_BROKER}num.io.threads=many\nmy.secret=many\n")
    ended = run_entrypoint(START, tmp_path, agent, libraries)
    start = kafka_start(ended.output)
    assert start is not None
    assert "num.io.threads" in start.complaint
    assert "many" not in start.complaint, "another setting, which Kafka does not know, has the same value"


def test_a_missing_file_is_a_complaint(tmp_path: Path, agent: Path, libraries: Path) -> None:
    start = kafka_start(run_entrypoint(START, tmp_path, agent, libraries).output)
    assert start is not None
    assert not start.valid
    assert "server.properties" in start.complaint


@pytest.mark.parametrize("reach", ["zookeeper:2181", "127.0.0.1:2181"])
def test_tools_that_would_reach_the_cluster_are_skipped_and_listed(
    reach: str, tmp_path: Path, agent: Path, libraries: Path
) -> None:
    (tmp_path / "server.properties").write_text(ZOOKEEPER_BROKER)
    script = f"""set -e
java -version 2>/dev/null
java -cp "$LIBS" kafka.admin.ConfigCommand --zookeeper {reach} --alter --entity-type users --entity-name a \\
  --add-config 'SCRAM-SHA-512=[password=scram-secret]'
java -cp "$LIBS" org.apache.zookeeper.ZooKeeperMain -server {reach} ls / --password listed-secret
{START}"""
    ended = run_entrypoint(script, tmp_path, agent, libraries)
    start = kafka_start(ended.output)
    assert ended.code == 0, ended.output
    assert start is not None
    assert [(p.main, p.ran) for p in start.programs] == [
        ("kafka.admin.ConfigCommand", False),
        ("org.apache.zookeeper.ZooKeeperMain", False),
    ]
    assert reach in start.programs[0].arguments
    assert "-secret" not in ended.output
    assert programs(ended.output) == start.programs


def test_the_storage_tool_formats_the_copys_directories(tmp_path: Path, agent: Path, libraries: Path) -> None:
    data = tmp_path / "data"
    (tmp_path / "server.properties").write_text(
        f"process.roles=broker\nnode.id=1\ncontroller.quorum.voters=3000@127.0.0.1:9093\nlog.dirs={data}\n"
        "controller.listener.names=CONTROLLER\nlistener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n"
    )
    format_it = 'java -cp "$LIBS" kafka.tools.StorageTool format -t 4L6g3nShT-eMCtK--X86sw -c "$HERE/server.properties"'
    ended = run_entrypoint(f"set -e\n{format_it}\n{START}", tmp_path, agent, libraries)
    start = kafka_start(ended.output)
    assert start is not None, ended.output
    assert start.valid, start.complaint
    assert [(p.main, p.ran) for p in start.programs] == [("kafka.tools.StorageTool", True)]
    assert "4L6g3nShT-eMCtK--X86sw" in (data / "meta.properties").read_text()


OFFICIAL_IMAGE = """set -e
mkdir -p "$HERE/default" "$HERE/mounted" "$HERE/final"
echo process.roles=broker,controller > "$HERE/default/server.properties"
touch "$HERE/default/log4j.properties" "$HERE/default/tools-log4j.properties"
java -cp "$LIBS" kafka.docker.KafkaDockerWrapper %s --default-configs-dir "$HERE/default" --mounted-configs-dir "$HERE/mounted" \\
  --final-configs-dir "$HERE/final" || true  # it refuses to format a ZooKeeper-mode broker
exec java -cp "$LIBS" kafka.Kafka "$HERE/final/server.properties"
"""
"""The start of the apache/kafka image (docker/jvm/launch): a Java program of Kafka writes server.properties from ``KAFKA_`` variables."""
OFFICIAL_VARIABLES = {
    "KAFKA_BROKER_ID": "0",
    "KAFKA_ZOOKEEPER_CONNECT": "zookeeper:2181/kafka",
    "KAFKA_LISTENERS": "PLAINTEXT://:9092",
    "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
}


def test_the_official_images_own_program_writes_the_copys_configuration(
    tmp_path: Path, agent: Path, libraries: Path
) -> None:
    ended = run_entrypoint(OFFICIAL_IMAGE % "setup", tmp_path, agent, libraries, OFFICIAL_VARIABLES)
    start = kafka_start(ended.output)
    assert start is not None, ended.output
    assert start.settings["zookeeper.connect"].value == "zookeeper:2181/kafka"
    assert "process.roles" not in start.settings
    assert [(p.main, p.ran) for p in start.programs] == [("kafka.docker.KafkaDockerWrapper", True)]


def test_the_official_images_program_does_not_start_kafka(tmp_path: Path, agent: Path, libraries: Path) -> None:
    ended = run_entrypoint(OFFICIAL_IMAGE % "start", tmp_path, agent, libraries, OFFICIAL_VARIABLES)
    assert [(p.main, p.ran) for p in programs(ended.output)] == [("kafka.docker.KafkaDockerWrapper", False)]
    assert "started" not in ended.output


def test_an_entrypoint_that_clears_java_tool_options_is_held_all_the_same(
    tmp_path: Path, agent: Path, libraries: Path
) -> None:
    (tmp_path / "server.properties").write_text(ZOOKEEPER_BROKER)
    ended = run_entrypoint(f"unset JAVA_TOOL_OPTIONS\n{START}", tmp_path, agent, libraries)
    assert kafka_start(ended.output) is not None, ended.output


def test_an_entrypoint_that_clears_the_environment_yields_no_result_and_is_told(
    tmp_path: Path, agent: Path, libraries: Path
) -> None:
    """Only the NetworkPolicy holds such a start: Kafka itself runs, and finds no ZooKeeper under a name that does not resolve."""
    (tmp_path / "server.properties").write_text(
        f"broker.id=1\nzookeeper.connect=zookeeper.invalid:2181\nzookeeper.connection.timeout.ms=1000\nlog.dirs={tmp_path}/data\n"
    )
    clear = 'exec env -i PATH="$PATH" java -Xmx128m -cp "$LIBS" kafka.Kafka "$HERE/server.properties"'
    ended = run_entrypoint(clear, tmp_path, agent, libraries)
    assert ended.code != 0
    assert kafka_start(ended.output) is None
    assert not agent_loaded(ended.output)
    assert agent_loaded(run_entrypoint("java -version", tmp_path, agent, libraries).output)


def test_a_command_line_longer_than_4_kib_is_held(tmp_path: Path, agent: Path, libraries: Path) -> None:
    (tmp_path / "server.properties").write_text(ZOOKEEPER_BROKER)
    script = """padding=$(printf 'x%.0s' $(seq 9000))
exec java -cp "$LIBS:/$padding" kafka.Kafka "$HERE/server.properties" --override log.retention.hours=7"""
    start = kafka_start(run_entrypoint(script, tmp_path, agent, libraries).output)
    assert start is not None
    assert start.settings["log.retention.hours"].value == "7"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ('rm "$HERE/dry-start/salt"; ' + START, "salt"),
        (': > "$HERE/dry-start/salt"; ' + START, "is empty"),
        (f'JAVA_TOOL_OPTIONS="-javaagent:/nowhere.jar" _JAVA_OPTIONS= ; export JAVA_TOOL_OPTIONS; {START}', "agent"),
    ],
)
def test_without_the_agent_or_what_it_needs_nothing_runs(
    script: str, words: str, tmp_path: Path, agent: Path, libraries: Path
) -> None:
    (tmp_path / "server.properties").write_text(ZOOKEEPER_BROKER)
    ended = run_entrypoint(script, tmp_path, agent, libraries)
    assert ended.code != 0
    assert words in ended.output
    assert kafka_start(ended.output) is None
    assert "started" not in ended.output


JNI = """
import ctypes, os, sys
jvm = ctypes.CDLL(sys.argv[1])
class Option(ctypes.Structure):
    _fields_ = [("text", ctypes.c_char_p), ("extra", ctypes.c_void_p)]
class Arguments(ctypes.Structure):
    _fields_ = [("version", ctypes.c_int), ("count", ctypes.c_int), ("options", ctypes.POINTER(Option)), ("ignore", ctypes.c_ubyte)]
path = ":".join(os.path.join(sys.argv[2], n) for n in os.listdir(sys.argv[2]) if n.endswith(".jar"))
options = (Option * 1)(Option(b"-Djava.class.path=" + path.encode(), None))
vm, env = ctypes.c_void_p(), ctypes.c_void_p()
code = jvm.JNI_CreateJavaVM(ctypes.byref(vm), ctypes.byref(env), ctypes.byref(Arguments(0x00010008, 1, options, 0)))
print("created", code, flush=True)
table = ctypes.cast(env, ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p))).contents
find = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(table[6])
print("loaded", find(env, b"kafka/Kafka"), flush=True)
"""


def test_a_launcher_of_its_own_that_names_no_main_class_is_ended_at_the_first_class(
    tmp_path: Path, agent: Path, libraries: Path
) -> None:
    (tmp_path / "launcher.py").write_text(JNI)
    script = f"""java=$(readlink -f "$(command -v java)")
exec {sys.executable} "$HERE/launcher.py" "${{java%/bin/java}}/lib/server/libjvm.so" "${{LIBS%/\\*}}" """
    ended = run_entrypoint(script, tmp_path, agent, libraries)
    assert "created 0" in ended.output, ended.output
    assert "loaded" not in ended.output
    assert ended.code == 98
    assert programs(ended.output) == (JavaProgram("kafka.Kafka", "", ran=False),)


def test_an_image_without_a_jvm_says_so_itself(tmp_path: Path, agent: Path, libraries: Path) -> None:
    ended = run_entrypoint(f"PATH=/nowhere\n{START}", tmp_path, agent, libraries)
    assert ended.code == 127
    assert kafka_start(ended.output) is None
    assert "java" in last_words(ended.output)
    assert "not found" in last_words(ended.output)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerClient, Path]]:
    with kafka_processes([0], []) as processes:
        processes.start_zookeeper()
        processes.extra_broker_settings[0] = (
            "log.retention.hours=12\nlog.roll.hours=3\nssl.keystore.password=keystore-secret\nmy.plugin=x\n"
            "broker.rack=a b\nnum.partitions= 5\nmin.insync.replicas=1\ncompression.type=producer\n"
        )
        processes.start_broker(0, ZOOKEEPER)
        client = BrokerClient(processes.bootstrap_servers, {})
        wait_for("the broker", lambda: client.cluster_state().brokers)
        yield client, processes.directory / "broker-0.properties"
        client.close()


def test_a_copy_of_a_running_broker_has_what_the_broker_says_it_runs(
    running: tuple[BrokerClient, Path], tmp_path: Path, agent: Path, libraries: Path
) -> None:
    client, properties = running
    (tmp_path / "server.properties").write_text(properties.read_text())
    copy = outcome(run_entrypoint(START, tmp_path, agent, libraries).output)
    settings = client.broker_settings()[0]
    assert not isinstance(settings, Unobserved)
    assert len([s for s in settings if s.known and not s.sensitive]) > 15
    assert differences_from_running(copy, settings) == ()


@pytest.mark.parametrize(
    ("line", "difference"),
    [
        ("num.partitions=6\n", "num.partitions is '6' instead of '5'"),
        ("auto.leader.rebalance.enable=false\n", "auto.leader.rebalance.enable is 'false' instead of not set"),
        ("log.retention.ms=60000\n", "log.retention.ms is '60000' instead of "),
    ],
)
def test_what_a_copy_has_otherwise_is_named(
    line: str,
    difference: str,
    running: tuple[BrokerClient, Path],
    tmp_path: Path,
    agent: Path,
    libraries: Path,
) -> None:
    client, properties = running
    (tmp_path / "server.properties").write_text(properties.read_text() + line)
    copy = outcome(run_entrypoint(START, tmp_path, agent, libraries).output)
    settings = client.broker_settings()[0]
    assert not isinstance(settings, Unobserved)
    found = [str(d) for d in differences_from_running(copy, settings)]
    assert any(d.startswith(difference) for d in found), found


def test_a_setting_that_runs_and_is_not_in_the_copy_is_named(
    running: tuple[BrokerClient, Path], tmp_path: Path, agent: Path, libraries: Path
) -> None:
    client, properties = running
    text = "".join(x for x in properties.read_text().splitlines(keepends=True) if not x.startswith("log.roll.hours"))
    (tmp_path / "server.properties").write_text(text)
    copy = outcome(run_entrypoint(START, tmp_path, agent, libraries).output)
    settings = client.broker_settings()[0]
    assert not isinstance(settings, Unobserved)
    assert [d.name for d in differences_from_running(copy, settings)] == ["log.roll.hours"]


def test_an_overlay_that_reaches_the_broker_differs_by_itself_alone(
    tmp_path: Path, agent: Path, libraries: Path
) -> None:
    overlay = {
        "zookeeper.metadata.migration.enable": "true",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "3000@c:9093",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    }
    base = (
        "".join(line for line in ZOOKEEPER_BROKER.splitlines(keepends=True) if "log.dirs" not in line)
        + "inter.broker.protocol.version=3.9\n"
    )
    (tmp_path / "server.properties").write_text(base)
    present = outcome(run_entrypoint(START, tmp_path, agent, libraries).output)
    mode = BrokerMode.MIGRATION
    ignored = outcome(run_entrypoint(START, tmp_path, agent, libraries).output, mode, overlay)
    assert {d.name for d in differences_from_overlay(present, ignored)} == set(overlay)
    (tmp_path / "server.properties").write_text(base + "".join(f"{k}={v}\n" for k, v in overlay.items()))
    reached = outcome(run_entrypoint(START, tmp_path, agent, libraries).output, mode, overlay)
    assert reached.start is not None
    assert reached.start.valid, reached.start.complaint
    assert differences_from_overlay(present, reached) == ()


def test_the_result_is_one_line(tmp_path: Path, agent: Path, libraries: Path) -> None:
    (tmp_path / "server.properties").write_text(ZOOKEEPER_BROKER + "principal.builder.class=a\\\n  b\n")
    output = run_entrypoint(START, tmp_path, agent, libraries).output
    assert len([line for line in output.splitlines() if line.startswith(RESULT)]) == 1


# ----------------------------------------------------------------------------- the broker's credentials for the controllers' listener

OURS, OTHERS = Authority(), Authority()
CONTROLLERS, BROKER = OURS.issue("kafka-controllers"), OURS.issue("kafka")
PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def listener_spec(protocol: str) -> MigrationSpec:
    document = spec_document()
    document["controllers"]["listener"] = {"securityProtocol": protocol, "secretName": "listener"}
    return MigrationSpec.model_validate(document)


def of_cert_manager(authority: Authority, certificate: Certificate, **more: str) -> dict[str, str]:
    return {"tls.crt": certificate.certificate, "tls.key": certificate.key, "ca.crt": authority.certificate} | {
        name.replace("_", "."): text for name, text in more.items()
    }


def users(password: str = 'right "one"', user: str = "broker") -> str:
    escaped = password.replace('"', '\\"')
    login = f'{PLAIN_LOGIN} username="{user}" password="{escaped}" user_{user}="{escaped}";'
    return render_properties(
        {
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.controller.plain.sasl.jaas.config": login,
        }
    )


def tls_of_broker(
    authority: Authority = OURS, certificate: Certificate = BROKER, prefix: str = "listener.name.controller."
) -> dict[str, str]:
    return {
        f"{prefix}ssl.truststore.type": "PEM",
        f"{prefix}ssl.truststore.certificates": authority.certificate,
        f"{prefix}ssl.keystore.type": "PEM",
        f"{prefix}ssl.keystore.key": certificate.key,
        f"{prefix}ssl.keystore.certificate.chain": certificate.certificate,
    }


def login_of_broker(password: str = 'right "one"', user: str = "broker") -> dict[str, str]:
    return {
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": f'{PLAIN_LOGIN} username="{user}" password="{password.replace(chr(34), chr(92) + chr(34))}";',
    }


SSL = of_cert_manager(OURS, CONTROLLERS)
BOTH = of_cert_manager(OURS, CONTROLLERS, listener_properties=users())
FITTING = {
    "certificates": ("SSL", SSL, tls_of_broker()),
    "settings without the listener's prefix": ("SSL", SSL, tls_of_broker(prefix="")),
    "a login": ("SASL_PLAINTEXT", {"listener.properties": users()}, login_of_broker()),
    "both": ("SASL_SSL", BOTH, login_of_broker() | {k: v for k, v in tls_of_broker().items() if "keystore" not in k}),
}
NOT_FITTING = {
    "another authority at the broker": ("SSL", SSL, tls_of_broker(OTHERS), "the broker does not trust the certificate of the listener: "),
    "another authority at the controllers": (
        "SSL", of_cert_manager(OTHERS, CONTROLLERS), tls_of_broker(), "the listener does not trust the broker's certificate: ",
    ),
    "a certificate of another authority": (
        "SSL", SSL, tls_of_broker(certificate=OTHERS.issue("kafka")), "the listener does not trust the broker's certificate: ",
    ),
    "no certificate": (
        "SSL", SSL, {k: v for k, v in tls_of_broker().items() if "keystore" not in k}, "the listener does not trust the broker's certificate: it has none",
    ),
    "another password": ("SASL_SSL", BOTH, tls_of_broker() | login_of_broker("wrong"), "the password of user broker is another one at the listener"),
    "another user": ("SASL_SSL", BOTH, tls_of_broker() | login_of_broker(user="ann"), "the listener has no user ann"),
    "another mechanism": ("SASL_SSL", BOTH, tls_of_broker(), "the broker logs in with GSSAPI"),
}  # fmt: skip


def tried(
    tmp_path: Path,
    agent: Path,
    libraries: Path,
    protocol: str,
    secret: dict[str, str],
    broker: dict[str, str],
    java: str = "",
) -> KafkaStart:
    """Start a copy of a broker beside the controllers' listener as its Secret describes it."""
    facts = DryStartFacts("kafka", "demo", "uid", "run", "image", ())
    files = run_secret(facts, SALT, [], listener_of_controllers(listener_spec(protocol), secret))["data"]
    (tmp_path / "dry-start").mkdir(exist_ok=True)
    (tmp_path / "dry-start" / LISTENER_FILE).write_bytes(base64.b64decode(files[LISTENER_FILE]))
    (tmp_path / "server.properties").write_text(
        render_properties({"broker.id": "1", "zookeeper.connect": "z:2181", **broker})
    )
    ended = run_entrypoint(START.replace("java ", f"java {java} "), tmp_path, agent, libraries)
    start = kafka_start(ended.output)
    assert start is not None, ended.output
    assert start.valid, start.complaint
    for word in ("right", "wrong", "PRIVATE KEY"):
        assert word not in ended.output
    return start


@pytest.mark.parametrize("case", FITTING)
def test_credentials_that_fit_the_controllers_listener(tmp_path: Path, agent: Path, libraries: Path, case: str) -> None:
    assert tried(tmp_path, agent, libraries, *FITTING[case]).refusals == ()


@pytest.mark.parametrize("case", NOT_FITTING)
def test_credentials_that_the_controllers_listener_would_refuse(
    tmp_path: Path, agent: Path, libraries: Path, case: str
) -> None:
    protocol, secret, broker, words = NOT_FITTING[case]
    (refusal,) = tried(tmp_path, agent, libraries, protocol, secret, broker).refusals
    assert refusal.startswith(words)


def test_a_login_in_a_jaas_file_is_tried_as_well(tmp_path: Path, agent: Path, libraries: Path) -> None:
    (tmp_path / "jaas.conf").write_text(
        f'controller.KafkaServer {{\n  {PLAIN_LOGIN} username="broker" password="wrong";\n}};\n'
    )
    broker = {"sasl.mechanism.controller.protocol": "PLAIN"}
    java = "-Djava.security.auth.login.config=$HERE/jaas.conf"
    start = tried(tmp_path, agent, libraries, "SASL_PLAINTEXT", {"listener.properties": users()}, broker, java)
    assert start.refusals == ("the password of user broker is another one at the listener",)


@pytest.mark.parametrize("where", ["setting", "file"])
def test_no_piece_of_a_password_in_a_broken_login_is_quoted(
    tmp_path: Path, agent: Path, libraries: Path, where: str
) -> None:
    """A blank that is not quoted: Kafka's parser names what comes after it, Java's as well."""
    login = f'{PLAIN_LOGIN} username="broker" password=all wrong;'
    broker, java = {"sasl.mechanism.controller.protocol": "PLAIN"}, ""
    if where == "setting":
        broker["listener.name.controller.plain.sasl.jaas.config"] = login
    else:
        (tmp_path / "jaas.conf").write_text(f"controller.KafkaServer {{\n  {login}\n}};\n")
        java = "-Djava.security.auth.login.config=$HERE/jaas.conf"
    start = tried(tmp_path, agent, libraries, "SASL_PLAINTEXT", {"listener.properties": users()}, broker, java)
    assert start.refusals == ("the broker has no login for it: its JAAS configuration cannot be read",)


def test_certificates_that_only_a_class_of_the_broker_has_are_said_to_be_untried(
    tmp_path: Path, agent: Path, libraries: Path
) -> None:
    own = {"ssl.engine.factory.class": "org.apache.kafka.common.security.ssl.DefaultSslEngineFactory"}
    start = tried(tmp_path, agent, libraries, "SSL", SSL, tls_of_broker() | own)
    assert (start.refusals, "ssl.engine.factory.class" in start.untried) == ((), True)
