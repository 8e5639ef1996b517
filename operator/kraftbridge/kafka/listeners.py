"""What a client sees at a broker's listener before it logs in: TCP, the certificate, and the SASL mechanisms."""

from __future__ import annotations

import socket
import ssl
from typing import Final

from cryptography import x509
from cryptography.x509.oid import ExtensionOID
from kafka.protocol.sasl import SaslHandshakeRequest

from kraftbridge.kafka.client import Security, resolve
from kraftbridge.kafka.wire import Connection, WireError
from kraftbridge.models.broker_record import Certificate, ListenerState
from kraftbridge.outside.endpoints import Judge, anywhere, connect

LOOK_SECONDS: Final = 3.0
_NO_MECHANISM: Final = "KRAFTBRIDGE"
"""No broker has it, so the broker answers with those that it has
(``SaslServerAuthenticator.handleHandshakeRequest``)."""


def look_at(name: str, host: str, port: int, protocol: str, judge: Judge = anywhere) -> ListenerState:
    """Connect to a listener as a client would that has no login, and return what it shows.

    Parameters
    ----------
    name
        Name of the listener.
    host, port
        As the broker advertises them.
    protocol
        ``PLAINTEXT``, ``SSL``, ``SASL_PLAINTEXT`` or ``SASL_SSL``.
    judge
        Where the operator may connect to.
    """
    certificate = None
    mechanisms: tuple[str, ...] = ()
    try:
        if protocol.endswith("SSL"):
            certificate = _certificate(host, port, judge)
        if protocol.startswith("SASL_"):
            mechanisms = _mechanisms(host, port, judge, tls=protocol.endswith("SSL"))
        if protocol == "PLAINTEXT":
            _connect(host, port, judge).close()
    except (OSError, WireError, ValueError) as error:
        trouble = f"{host}:{port}: {type(error).__name__}: {error}"
        return ListenerState(name, host, port, trouble)
    return ListenerState(name, host, port, certificate=certificate, mechanisms=mechanisms)


def _connect(host: str, port: int, judge: Judge) -> socket.socket:
    failure: OSError | None = None
    for address in resolve(host, port, LOOK_SECONDS):
        try:
            return connect(host, address, port, LOOK_SECONDS, judge)
        except OSError as error:
            failure = error
    raise failure or OSError(f"{host} has no address")


def _unverified() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # what it shows is looked at, and nothing is sent to it
    return context


def _certificate(host: str, port: int, judge: Judge) -> Certificate | None:
    """Return the certificate of a TLS listener.

    None if it ends the handshake because it demands a client certificate (TLS 1.2).
    """
    plain = _connect(host, port, judge)
    try:
        with _unverified().wrap_socket(plain, server_hostname=host) as connection:
            shown = connection.getpeercert(binary_form=True)
    except ssl.SSLError as error:
        reason = error.reason or ""
        if "CERTIFICATE" in reason or "HANDSHAKE_FAILURE" in reason:
            return None
        raise
    finally:
        plain.close()
    return None if shown is None else _read(x509.load_der_x509_certificate(shown))


def _read(certificate: x509.Certificate) -> Certificate:
    names = [certificate.subject.rfc4514_string()]
    try:
        alternatives = certificate.extensions.get_extension_for_oid(ExtensionOID.SUBJECT_ALTERNATIVE_NAME).value
    except x509.ExtensionNotFound:
        alternatives = x509.SubjectAlternativeName([])
    assert isinstance(alternatives, x509.SubjectAlternativeName)
    names += sorted(str(name.value) for name in alternatives)
    return Certificate(tuple(names), certificate.issuer.rfc4514_string(), certificate.not_valid_after_utc)


def _mechanisms(host: str, port: int, judge: Judge, *, tls: bool) -> tuple[str, ...]:
    security = Security(tls=_unverified() if tls else None, judge=judge)
    with Connection(host, port, security, LOOK_SECONDS) as connection:
        answer = connection.call(SaslHandshakeRequest, LOOK_SECONDS, max_version=1, mechanism=_NO_MECHANISM)
    return tuple(sorted(str(m) for m in answer.mechanisms))
