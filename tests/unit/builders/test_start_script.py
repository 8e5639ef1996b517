"""The controllers' start script, run by a real shell with Kafka's own scripts replaced: what they would be given."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import javaproperties
import pytest
from tests.support.controller_pod import Pod, controller_pod

from kraftbridge.builders.controllers import clean_start
from kraftbridge.listener import authority
from kraftbridge.metadata.entities import trimmed_secret
from kraftbridge.pods.credentials import CERTIFICATE_KEYS, listener_files, text_files


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return controller_pod(tmp_path)


def test_without_a_secret_zookeeper_is_reached_as_it_is(pod: Pod) -> None:
    environment = pod.start()
    assert environment["KAFKA_OPTS"].split() == ["-javaagent:x"]
    assert "--cluster-id=-abc" in pod.read("/format.args")
    assert pod.properties()["node.id"] == "3000"
    assert not [name for name in pod.properties() if name.startswith("zookeeper.") and name != "zookeeper.connect"]


@pytest.mark.parametrize(
    ("tools", "ending", "environment"),
    [
        ("/opt/bitnami/kafka/bin", ".sh", {}),
        ("/usr/bin", "", {"PATH": "{root}/usr/bin:{path}"}),
        ("/somewhere/bin", ".sh", {"KAFKA_HOME": "{root}/somewhere"}),
    ],
    ids=["Bitnami's image", "Confluent's image", "KAFKA_HOME"],
)
def test_kafka_is_found_where_the_image_has_it(
    tools: str, ending: str, environment: dict[str, str], tmp_path: Path
) -> None:
    pod = controller_pod(tmp_path, tools, ending)
    given = {name: text.format(root=tmp_path, path=os.environ["PATH"]) for name, text in environment.items()}
    assert pod.start(**given)["LOG_DIR"] == f"{tmp_path}/tmp/kafka-logs"
    assert "--cluster-id=-abc" in pod.read("/format.args")


def test_an_image_without_kafka_says_so(tmp_path: Path) -> None:
    pod = controller_pod(tmp_path, "/nowhere")
    with pytest.raises(AssertionError, match="this image has no kafka-run-class"):
        pod.start()


def test_sasl_credentials_become_a_jaas_file_for_this_user_only(pod: Pod) -> None:
    for name, text in {"username": "kafka", "password": 'p"w\\d s', "scheme": "sasl"}.items():
        pod.write(f"/etc/kraftbridge-zookeeper/{name}", text)
    environment = pod.start(KAFKA_OPTS="-Dx=1")
    assert environment["KAFKA_OPTS"].split() == [
        "-Dx=1",
        f"-Djava.security.auth.login.config={pod.root}/tmp/zookeeper.jaas",
        "-javaagent:x",
    ]
    jaas = pod.read("/tmp/zookeeper.jaas")
    assert jaas.splitlines() == [
        "Client {",
        "  org.apache.zookeeper.server.auth.DigestLoginModule required",
        '  username="kafka"',
        '  password="p\\"w\\\\d s";',
        "};",
    ]
    assert (pod.root / "tmp/zookeeper.jaas").stat().st_mode & 0o077 == 0


def test_digest_credentials_are_the_operators_alone(pod: Pod) -> None:
    pod.write("/etc/kraftbridge-zookeeper/username", "kafka")
    pod.write("/etc/kraftbridge-zookeeper/password", "secret")
    assert "login.config" not in pod.start()["KAFKA_OPTS"]


def test_tls_by_pem_files(pod: Pod) -> None:
    for name in ("ca.crt", "tls.crt", "tls.key"):
        pod.write(f"/etc/kraftbridge-zookeeper/{name}", f"-- {name} --\n")
    pod.write("/etc/kraftbridge-credentials/zookeeper/keystore.pem", "-- key and chain --\n")
    pod.start()
    settings = {k: v for k, v in pod.properties().items() if k.startswith("zookeeper.")}
    assert settings == {
        "zookeeper.connect": "zk:2181/kafka",
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
        "zookeeper.ssl.truststore.type": "PEM",
        "zookeeper.ssl.truststore.location": f"{pod.root}/etc/kraftbridge-zookeeper/ca.crt",
        "zookeeper.ssl.keystore.type": "PEM",
        "zookeeper.ssl.keystore.location": f"{pod.root}/etc/kraftbridge-credentials/zookeeper/keystore.pem",
    }


def test_after_finalization_nothing_of_zookeeper_is_left(pod: Pod) -> None:
    pod.write("/etc/kraftbridge/controller.properties", "process.roles=controller\n")
    for name in ("ca.crt", "username", "password"):
        pod.write(f"/etc/kraftbridge-zookeeper/{name}", "x")
    pod.write("/etc/kraftbridge-zookeeper/scheme", "sasl")
    assert "login.config" not in pod.start()["KAFKA_OPTS"]
    assert not [name for name in pod.properties() if name.startswith("zookeeper.")]


@pytest.mark.parametrize(
    ("secret", "read"),
    [
        ("plain", "plain"),
        ("line\n", "line"),
        ("carriage\r\n", "carriage"),
        (" blanks\t", "blanks"),
        ("a\\b\\n=:#%s", "a\\b\\n=:#%s"),
    ],
)
def test_the_encoder_secret_reaches_kafka_as_the_secret_has_it(secret: str, read: str, pod: Pod) -> None:
    """The verification decodes with `trimmed_secret`; Kafka loads the properties and trims the value."""
    pod.start(PASSWORD_ENCODER_SECRET=secret)
    loaded = javaproperties.loads(pod.read("/tmp/controller.properties"))
    assert trimmed_secret(loaded["password.encoder.secret"]) == trimmed_secret(secret) == read


def test_the_users_listener_settings_come_after_those_of_the_certificate(pod: Pod) -> None:
    pod.write("/etc/kraftbridge-credentials/listener/listener.properties", "a=certificate\nb=certificate\n")
    pod.write("/etc/kraftbridge-listener/listener.properties", "a=user")
    pod.write("/etc/kraftbridge/controller.properties", "process.roles=controller\n")
    pod.start()
    assert pod.properties()["a"] == "user", "Properties.load takes the last of two lines"
    assert pod.properties()["b"] == "certificate"


def change_spec(pod: Pod) -> None:
    """Write what the operator and the user write when ``spec.controllers`` or its Secret changes."""
    pod.write(
        "/etc/kraftbridge/controller.properties", "process.roles=controller\nmetadata.log.segment.bytes=not-a-number\n"
    )
    pod.write("/etc/kraftbridge-listener/listener.properties", "a=new")


def test_a_container_that_restarts_keeps_the_configuration_with_which_its_pod_began(pod: Pod) -> None:
    """Out of memory or a lost node: another configuration is tried voter by voter, not by accident."""
    pod.write("/etc/kraftbridge-listener/listener.properties", "a=old")
    pod.start()
    before = pod.properties()
    change_spec(pod)
    pod.start()
    assert pod.properties() == before
    assert before["a"] == "old"


def test_a_new_pod_takes_the_new_configuration(pod: Pod) -> None:
    pod.start()
    change_spec(pod)
    controller_pod(pod.root)
    change_spec(pod)
    pod.start()
    assert pod.properties()["a"] == "new"
    assert pod.properties()["metadata.log.segment.bytes"] == "not-a-number"


def test_a_container_that_ended_while_it_copied_copies_again(pod: Pod) -> None:
    pod.write("/tmp/configuration.new/controller.properties", "half")
    pod.start()
    assert pod.properties()["process.roles"] == "controller"


@pytest.mark.parametrize(
    ("word", "formats"), [("allowed", True), ("3000", True), ("refused", False), ("3001", False), ("300", False)]
)
def test_a_blank_volume_is_formatted_by_word_only(tmp_path: Path, word: str, formats: bool) -> None:
    pod = controller_pod(tmp_path)
    pod.write("/etc/kraftbridge-format/word", word)
    if formats:
        pod.start()
        assert "--cluster-id=-abc" in pod.read("/format.args")
        return
    with pytest.raises(subprocess.TimeoutExpired):
        pod.start(seconds=2)
    assert not (tmp_path / "format.args").exists()


@pytest.fixture
def clean_pod(tmp_path: Path) -> Pod:
    """Return the pod of a controller without the operator's image, of a completed migration."""
    pod = replace(controller_pod(tmp_path), start_script=clean_start("SSL"))
    pod.write("/etc/kraftbridge/controller.properties", "process.roles=controller\n")
    (tmp_path / "etc/kraftbridge-credentials").mkdir()
    return pod


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_a_clean_controller_writes_the_key_stores_that_the_init_container_wrote(protocol: str, clean_pod: Pod) -> None:
    pod = replace(clean_pod, start_script=clean_start(protocol))
    now = datetime.now(UTC)
    signer = text_files(authority.new_authority("test", now))
    given = text_files(authority.issue(signer, authority.Purpose("controllers", ("host",)), 30, now))
    for name in CERTIFICATE_KEYS:
        pod.write(f"/etc/kraftbridge-listener/{name}", given[name])
    environment = pod.start()
    folder = "/etc/kraftbridge-credentials/listener"
    expected = listener_files(given, protocol, f"{pod.root}{folder}")
    written = {name: pod.read(f"{folder}/{name}") for name in expected}
    assert written.pop("keystore.pem").replace("\n", "") == expected.pop("keystore.pem").replace("\n", "")
    assert written == expected
    assert (pod.root / f"{folder[1:]}/keystore.pem").stat().st_mode & 0o077 == 0
    assert pod.properties()["listener.name.controller.ssl.keystore.location"] == f"{pod.root}{folder}/keystore.pem"
    assert "KAFKA_OPTS" not in environment


def test_a_clean_controller_without_a_certificate_writes_none(clean_pod: Pod) -> None:
    clean_pod.write("/etc/kraftbridge-listener/listener.properties", "listener.name.controller.ssl.keystore.type=JKS")
    clean_pod.start()
    assert clean_pod.properties()["listener.name.controller.ssl.keystore.type"] == "JKS"
    assert not (clean_pod.root / "etc/kraftbridge-credentials/listener").exists()


def test_a_clean_container_that_restarts_keeps_the_key_store_with_which_its_pod_began(clean_pod: Pod) -> None:
    for name in CERTIFICATE_KEYS:
        clean_pod.write(f"/etc/kraftbridge-listener/{name}", f"old {name}\n")
    clean_pod.start()
    clean_pod.write("/etc/kraftbridge-listener/tls.key", "new\n")
    clean_pod.start()
    assert clean_pod.read("/etc/kraftbridge-credentials/listener/keystore.pem") == "old tls.key\n\nold tls.crt\n"


def test_a_clean_controller_does_not_format_a_blank_volume(clean_pod: Pod) -> None:
    clean_pod.write("/etc/kraftbridge-format/word", "refused")
    with pytest.raises(subprocess.TimeoutExpired):
        clean_pod.start(seconds=2)
    assert not (clean_pod.root / "format.args").exists()
