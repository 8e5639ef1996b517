"""One connection to a controller or broker, for kafka-python's request classes, with security from Java client properties.

kafka-python's clients cannot bootstrap from a controller; its protocol classes and its SCRAM exchange can be used alone.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import javaproperties

from kraftbridge.client_security import Security
from kraftbridge.exceptions import InvalidSpecError
from kraftbridge.metadata.errors import MetadataError

_CLIENT_ID: Final = "kraftbridge-verification"


class ConnectionSettingsError(MetadataError):
    """Client properties cannot be read, or do not fit what the node offers."""


def read_properties(path: str | None) -> dict[str, str]:
    """Return the settings of a Java properties file; nothing without a path."""
    if path is None:
        return {}
    try:
        return {str(name): str(value) for name, value in javaproperties.loads(Path(path).read_text("utf-8")).items()}
    except (OSError, ValueError) as error:
        raise ConnectionSettingsError(f"client properties {path} cannot be read: {error}") from error


def _security(properties: Mapping[str, str]) -> Security:
    try:
        return Security.from_properties(properties)
    except InvalidSpecError as error:
        raise ConnectionSettingsError(str(error)) from error


class Connection:
    """One connection to a controller or broker, for kafka-python's request classes."""

    def __init__(self, host: str, port: int, properties: Mapping[str, str], timeout_seconds: float) -> None:
        from kafka.protocol.parser import KafkaProtocol  # noqa: PLC0415 - heavy, and only needed with a live quorum

        self._protocol = KafkaProtocol(client_id=_CLIENT_ID)
        security = _security(properties)
        plain = socket.create_connection((host, port), timeout_seconds)
        plain.settimeout(timeout_seconds)
        try:
            self._socket = plain
            if security.tls is not None:
                self._socket = security.tls.wrap_socket(plain, server_hostname=host)
            if security.mechanism is not None:
                self._authenticate(security.mechanism, security)
        except BaseException:
            plain.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def call(self, request: Any) -> Any:
        """Return the response to a request."""
        self._protocol.send_request(request)
        self._socket.sendall(bytes(self._protocol.send_bytes()))
        while True:
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionError("the connection was closed")
            for _, response in self._protocol.receive_bytes(data):
                return response

    def _authenticate(self, mechanism: str, security: Security) -> None:
        from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest  # noqa: PLC0415

        handshake = self.call(SaslHandshakeRequest(version=1, mechanism=mechanism))
        if handshake.error_code:
            raise ConnectionSettingsError(f"SASL mechanism {mechanism} is refused; offered: {handshake.mechanisms}")
        if mechanism == "PLAIN":
            self._sasl(SaslAuthenticateRequest, f"\0{security.username}\0{security.password}".encode())
        else:
            from kafka.net.sasl.scram import ScramClient  # noqa: PLC0415

            client = ScramClient(security.username, security.password, mechanism)
            client.process_server_first_message(self._sasl(SaslAuthenticateRequest, client.first_message()))
            client.process_server_final_message(self._sasl(SaslAuthenticateRequest, client.final_message()))

    def _sasl(self, request_type: Any, payload: bytes) -> bytes:
        response = self.call(request_type(version=1, auth_bytes=payload))
        if response.error_code:
            raise ConnectionSettingsError(f"SASL authentication was refused: {response.error_message}")
        return bytes(response.auth_bytes)
