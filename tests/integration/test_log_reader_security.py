"""What the log reader says of certificates and logins, from lines that real controllers wrote."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from tests.support.cert_manager import authority, secret
from tests.support.kafka_processes import FINAL, KafkaProcesses, ProcessFailedError, kafka_processes, wait_for

from kraftbridge.models.catalogue import Code
from kraftbridge.models.observation import clues_in, meaning_of
from kraftbridge.pods.credentials import listener_files

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kafka-processes")]

CLUSTER_ID = "Zm9yLXRoZS1sb2ctcmVhZGVy"
GOOD, UNTRUSTED, EXPIRED, MISNAMED = 3000, 3001, 3002, 3003
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class Secured(KafkaProcesses):
    """Controllers whose listeners have settings of their own."""

    protocol = ""

    def _controller_properties(self, controller_id: int, mode: str) -> str:
        path = Path(super()._controller_properties(controller_id, mode))
        text = path.read_text().replace("CONTROLLER:PLAINTEXT", f"CONTROLLER:{self.protocol}")
        return self._write(path.name, text + (self.directory / f"listener-{controller_id}").read_text())

    def listener(self, controller_id: int, settings: str) -> None:
        (self.directory / f"listener-{controller_id}").write_text(settings)

    def certificate(self, controller_id: int, data: dict[str, str]) -> None:
        folder = self.directory / f"certificate-{controller_id}"
        folder.mkdir()
        files = listener_files(data, "SSL", str(folder))
        for name, text in files.items():
            (folder / name).write_text(text)
        self.listener(controller_id, files["listener.properties"])

    def said(self, controller_id: int) -> dict[Code, str]:
        """Return what the operator would say of a controller's log."""
        return {c.code: meaning_of(c) for c in clues_in(self.tail(f"controller-{controller_id}", 20_000))}

    def await_clues(self, controller_id: int, *codes: Code) -> dict[Code, str]:
        """Return the clues once all of these are among them."""

        def found() -> dict[Code, str] | None:
            said = self.said(controller_id)
            return said if set(codes) <= said.keys() else None

        return wait_for(f"controller {controller_id} logs {', '.join(codes)}", found)


def test_certificates() -> None:
    root, past = authority(), dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)
    with kafka_processes([], (GOOD, UNTRUSTED, EXPIRED, MISNAMED), Secured) as processes:
        processes.protocol = "SSL"
        processes.certificate(GOOD, secret(root))
        processes.certificate(UNTRUSTED, secret(authority("another root")))
        processes.certificate(EXPIRED, secret(root, expires=past))
        processes.certificate(MISNAMED, secret(root, ["elsewhere.example"]))
        for node in processes.controller_ports:
            processes.format_controller(node, CLUSTER_ID, FINAL)
            processes.start_controller(node, FINAL)
        said = processes.await_clues(
            GOOD, Code.CERTIFICATE_NOT_TRUSTED, Code.CERTIFICATE_EXPIRED, Code.CERTIFICATE_NAME_MISMATCH
        )
        assert said[Code.CERTIFICATE_EXPIRED].endswith(f"(NotAfter: {past:%a %b %d %H:%M:%S} UTC {past:%Y})")
        assert "No subject alternative" in said[Code.CERTIFICATE_NAME_MISMATCH]
        # Which peer: NetworkClient names the node, Selector the address.
        assert "127.0.0.1" in said[Code.AUTHENTICATION_FAILED]
        assert "handshake" in said[Code.AUTHENTICATION_FAILED]
        refused = processes.await_clues(EXPIRED, Code.CERTIFICATE_REFUSED)
        assert "certificate_" in refused[Code.CERTIFICATE_REFUSED]


def test_logins() -> None:
    mechanism = "sasl.mechanism.controller.protocol=PLAIN\nlistener.name.controller.sasl.enabled.mechanisms=PLAIN\n"
    with kafka_processes([], (3000, 3001, 3002), Secured) as processes:
        processes.protocol = "SASL_PLAINTEXT"
        for node, password in ((3000, "right"), (3001, "wrong")):
            jaas = f'{LOGIN} username="controller" password="{password}" user_controller="right";'
            processes.listener(node, f"{mechanism}listener.name.controller.plain.sasl.jaas.config={jaas}\n")
        processes.listener(3002, mechanism)
        for node in processes.controller_ports:
            processes.format_controller(node, CLUSTER_ID, FINAL)
        for node in (3000, 3001):
            processes.start_controller(node, FINAL)
        said = processes.await_clues(3001, Code.AUTHENTICATION_FAILED)
        assert "Authentication failed: Invalid username or password" in said[Code.AUTHENTICATION_FAILED]
        assert "wrong" not in said[Code.AUTHENTICATION_FAILED]
        with pytest.raises(ProcessFailedError):
            processes.start_controller(3002, FINAL)
        assert "'controller.KafkaServer'" in processes.said(3002)[Code.LOGIN_MISSING]
