"""The Secrets of ``docs/security.md`` as they stand there, at real KRaft controllers that authorize: voters find each other, the operator's client is let in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.integration.certificates import Authority, Certificate
from tests.support.kafka_processes import FINAL, KafkaProcesses, kafka_processes, wait_for

from kraftbridge.exceptions import MigrationError
from kraftbridge.outside.properties import parse_properties
from kraftbridge.storage.kafka_controllers import ControllerClient

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kafka-processes")]

PAGE = (Path(__file__).resolve().parents[2] / "docs/security.md").read_text()
CONTROLLERS = (3000, 3001)
CLUSTER_ID = "Zm9yLXRoZS1zZWNyZXRzLQ"


def secrets(name: str) -> list[dict[str, str]]:
    """Return the data of the page's Secrets of that name, in their order."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    documents: list[Any] = [document for block in blocks for document in yaml.safe_load_all(block)]
    return [
        d["stringData"]
        for d in documents
        if isinstance(d, dict) and d.get("kind") == "Secret" and d["metadata"]["name"] == name
    ]


class Secured(KafkaProcesses):
    """Controllers whose listener is as a Secret says, with Kafka's authorizer and one super user."""

    protocol = "SSL"
    listener = ""
    super_user = ""

    def _controller_properties(self, controller_id: int, mode: str) -> str:
        path = Path(super()._controller_properties(controller_id, mode))
        text = path.read_text().replace("CONTROLLER:PLAINTEXT", f"CONTROLLER:{self.protocol}")
        text += "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
        text += f"super.users={self.super_user}\n{self.listener}"
        return self._write(path.name, text)


class Tls(Secured):
    """The page's first Secret: client certificates."""

    protocol = "SSL"
    super_user = "User:CN=kafka"


class Plain(Secured):
    """The page's second Secret: SASL/PLAIN."""

    protocol = "SASL_PLAINTEXT"
    super_user = "User:controller"


class PlainTls(Secured):
    """Both, as the page says: SASL_SSL with the ``ssl`` lines of the first one."""

    protocol = "SASL_SSL"
    super_user = "User:controller"


def pem(text: str, authority: Authority, certificate: Certificate) -> str:
    """Fill in what the page leaves out: certificates and keys, on one line as in a properties file."""

    def one_line(value: str) -> str:
        return value.replace("\n", " ").strip()

    text = re.sub(r"(?<=keystore\.key=).*", one_line(certificate.key), text)
    text = re.sub(r"(?<=certificate\.chain=).*", one_line(certificate.certificate), text)
    return re.sub(r"(?<=truststore\.certificates=).*", one_line(authority.certificate), text)


@pytest.fixture(scope="module", params=[Tls, Plain, PlainTls], ids=lambda kind: kind.protocol)
def quorum(request: pytest.FixtureRequest) -> Iterator[tuple[Secured, dict[str, str]]]:
    """Start the controllers; return them and the client's properties."""
    kind: type[Secured] = request.param
    authority = Authority()
    certificate = authority.issue("kafka")
    tls, plain = secrets("controllers-listener")
    (client_secret,) = secrets("kafka-clients")
    with kafka_processes([], CONTROLLERS, kind) as processes:
        mounted = processes.directory / "listener"
        mounted.mkdir()
        (mounted / "keystore.pem").write_text(certificate.key + certificate.certificate)
        (mounted / "ca.pem").write_text(authority.certificate)
        lines = ""
        client = pem(client_secret["controller.properties"], authority, certificate)
        if kind.protocol.startswith("SASL"):
            lines += plain["listener.properties"]
            jaas = parse_properties(plain["listener.properties"])["listener.name.controller.plain.sasl.jaas.config"]
            sasl = f"security.protocol={kind.protocol}\nsasl.mechanism=PLAIN\nsasl.jaas.config={jaas.partition(' user_')[0]};\n"
            trust = "".join(f"{line}\n" for line in client.splitlines() if line.startswith("ssl.truststore"))
            client = sasl + (trust if kind is PlainTls else "")
        if kind.protocol.endswith("SSL"):
            files = tls["listener.properties"].replace("/etc/kraftbridge-listener", str(mounted))
            # With SASL the page's client has no certificate of its own.
            lines += files if kind is Tls else files.replace("client.auth=required", "client.auth=none")
        processes.listener = lines
        for node in CONTROLLERS:
            processes.format_controller(node, CLUSTER_ID, FINAL)
        for node in CONTROLLERS:
            processes.start_controller(node, FINAL)
        yield processes, parse_properties(client)


def test_the_voters_agree_and_the_client_is_let_in(quorum: tuple[Secured, dict[str, str]]) -> None:
    processes, properties = quorum
    client = ControllerClient(processes.controller_addresses, properties)
    try:
        state = wait_for(
            "every voter follows the leader",
            lambda: (
                (s := client.quorum_state())
                and {v.id for v in s.voters} == set(CONTROLLERS)
                and s.high_watermark > 0
                and s
            ),
        )
        # DescribeQuorum needs DESCRIBE on the cluster, which the authorizer gives to the super user only.
        assert state.leader_id in CONTROLLERS
    finally:
        client.close()


def test_a_client_without_credentials_is_kept_out(quorum: tuple[Secured, dict[str, str]]) -> None:
    processes, _ = quorum
    client = ControllerClient(processes.controller_addresses, {"security.protocol": "PLAINTEXT"})
    try:
        with pytest.raises(MigrationError):
            client.quorum_state()
    finally:
        client.close()
