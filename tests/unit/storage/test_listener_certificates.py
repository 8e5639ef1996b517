"""What a controller presents is read although its date is over, and although nothing else may be wrong with it."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kraftbridge.exceptions import InvalidSpecError, ObservationError
from kraftbridge.kafka.client import Security
from kraftbridge.kafka.wire import Connection, WireError
from kraftbridge.listener import authority
from kraftbridge.pods.credentials import client_properties, fingerprint, keystore, leaf
from kraftbridge.storage.listener_certificates import ListenerCertificates

NOW = datetime.now(UTC)
HOST = "demo-kraft-3000.demo-kraft.kafka.svc"
LONG_AGO = NOW - timedelta(days=100)


def files(signer: Mapping[str, str], at: datetime = LONG_AGO, host: str = HOST, days: int = 30) -> dict[str, str]:
    issued = authority.issue(signer, authority.Purpose("kraftbridge-controllers", (host,)), days, at)
    return {name: content.decode() for name, content in issued.items()}


@pytest.fixture(scope="module")
def signer() -> dict[str, str]:
    return {name: content.decode() for name, content in authority.new_authority("ours", LONG_AGO).items()}


@contextmanager
def serving(shown: Mapping[str, str], trusted: Mapping[str, str], directory: Path) -> Iterator[int]:
    """Serve TLS with a certificate; clients must show one, as a controller's listener asks for."""
    path = directory / "server.pem"
    path.write_text(keystore(shown))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    context.load_verify_locations(cadata=trusted["tls.crt"])
    context.verify_mode = ssl.CERT_REQUIRED
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            try:
                with context.wrap_socket(connection, server_side=True) as talking:
                    talking.recv(1)
            except OSError:
                connection.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(5)


def reader(signer: Mapping[str, str], host: str = HOST) -> ListenerCertificates:
    return ListenerCertificates({3000: host}, client_properties(files(signer, NOW), "SSL"))


def test_a_certificate_that_has_ended_is_read_and_trusted_by_nobody_else(
    signer: dict[str, str], tmp_path: Path
) -> None:
    ended = files(signer)
    with serving(ended, signer, tmp_path) as port:
        seen = reader(signer).read(3000, "127.0.0.1", port, "process", 5)
        with pytest.raises(WireError, match="certificate has expired"):
            Connection(
                "127.0.0.1", port, Security.from_properties(client_properties(files(signer, NOW), "SSL")), 5, HOST
            )
    assert (seen.process, seen.fingerprint) == ("process", fingerprint(leaf(ended)))
    assert seen.ends_at == leaf(ended).not_valid_after_utc < NOW
    assert seen.begins_at == leaf(ended).not_valid_before_utc


def test_a_controller_that_refuses_the_operator_is_read_too(signer: dict[str, str], tmp_path: Path) -> None:
    """As one does whose own trust has changed."""
    other = {name: content.decode() for name, content in authority.new_authority("another", LONG_AGO).items()}
    with serving(files(signer, NOW), other, tmp_path) as port:
        assert reader(signer).read(3000, "127.0.0.1", port, "process", 5).ends_at > NOW


@pytest.mark.parametrize("wrong", ["authority", "name", "silent"])
def test_nothing_but_the_date_is_tolerated(signer: dict[str, str], tmp_path: Path, wrong: str) -> None:
    other = {name: content.decode() for name, content in authority.new_authority("ours", LONG_AGO).items()}
    shown = files(other) if wrong == "authority" else files(signer)
    host = "demo-kraft-3001.demo-kraft.kafka.svc" if wrong == "name" else HOST
    with serving(shown, signer, tmp_path) as port:
        words = {"authority": "verify failed", "name": "Hostname mismatch", "silent": "refused"}[wrong]
        with pytest.raises(ObservationError, match=words):
            reader(signer, host).read(3000, "127.0.0.1", 1 if wrong == "silent" else port, "process", 5)


def test_without_tls_nothing_is_read_and_wrong_settings_are_named() -> None:
    with pytest.raises(ObservationError, match="have no TLS"):
        ListenerCertificates({3000: HOST}, {"security.protocol": "PLAINTEXT"}).read(3000, "127.0.0.1", 1, "p", 1)
    broken = {"security.protocol": "SSL", "ssl.truststore.certificates": "no PEM"}
    with pytest.raises(InvalidSpecError, match=r"controller\.properties: the TLS settings cannot be used"):
        ListenerCertificates({3000: HOST}, broken)


def test_the_trust_of_the_system_stays_what_it_is() -> None:
    """Its context is shared by all clients."""
    ListenerCertificates({3000: HOST}, {"security.protocol": "SSL"})
    shared = Security.from_properties({"security.protocol": "SSL"}).tls
    assert shared is not None
    assert not shared.verify_flags & 0x200000
