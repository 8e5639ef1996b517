"""Reads the certificates that the controllers present at their listener."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Mapping

from cryptography import x509

from kraftbridge.exceptions import ObservationError
from kraftbridge.kafka.client import context_of_any_date
from kraftbridge.models.issued import PresentedCertificate
from kraftbridge.outside.endpoints import Judge, anywhere, connect
from kraftbridge.pods.credentials import fingerprint


class ListenerCertificates:
    """Connects to each controller as the operator's client does, and tolerates nothing but the dates.

    A certificate of another authority, or without the controller's name, is not read.
    With TLS 1.3 a client has the server's certificate before the server judges the client's (RFC 8446, 2), so a
    controller that refuses the operator is read, too.

    Parameters
    ----------
    hosts
        Name that the certificate of each controller must have, by node id.
    client_properties
        Java client settings for the listener.
    judge
        Where the operator may connect to.

    Raises
    ------
    InvalidSpecError
        A client setting is missing or not supported.
    """

    def __init__(self, hosts: Mapping[int, str], client_properties: Mapping[str, str], judge: Judge = anywhere) -> None:
        self._hosts = dict(hosts)
        self._judge = judge
        self._context = context_of_any_date(client_properties, "controller.properties")

    def read(self, node_id: int, address: str, port: int, process: str, timeout_seconds: float) -> PresentedCertificate:
        """Return the certificate of the controller at an address.

        Parameters
        ----------
        process
            Identity of what runs there, for the result.

        Raises
        ------
        ObservationError
            Nobody answers there in time, or with another certificate than one of this controller.
        """
        source = f"certificate of controller {node_id} at {address}:{port}"
        if self._context is None:
            raise ObservationError(source, "the operator's settings for the listener have no TLS")
        try:
            until = time.monotonic() + timeout_seconds
            plain = connect(self._hosts[node_id], address, port, timeout_seconds, self._judge)
            shown = _shown(self._context, plain, self._hosts[node_id], until)
        except OSError as error:
            raise ObservationError(source, f"{type(error).__name__}: {error}") from error
        certificate = x509.load_der_x509_certificate(shown)
        return PresentedCertificate(
            process=process,
            fingerprint=fingerprint(certificate),
            begins_at=certificate.not_valid_before_utc,
            ends_at=certificate.not_valid_after_utc,
        )


def _shown(context: ssl.SSLContext, connection: socket.socket, name: str, until: float) -> bytes:
    with connection as plain:
        plain.settimeout(max(until - time.monotonic(), 0.1))
        with context.wrap_socket(plain, server_hostname=name) as secured:
            return secured.getpeercert(binary_form=True) or b""
