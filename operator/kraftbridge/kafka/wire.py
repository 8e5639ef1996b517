"""One connection to one Kafka node: kafka-python's protocol classes over a socket of this module.

kafka-python's own clients start with Metadata requests, which controllers do not answer,
and wait by their own schedule while nodes restart.
A connection of this module reports within its time limit whether one node answers.
"""

from __future__ import annotations

import logging
import socket
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from kafka.errors import KafkaError, for_code
from kafka.net.sasl import get_sasl_mechanism
from kafka.protocol.metadata.api_versions import ApiVersionsRequest
from kafka.protocol.metadata.metadata import MetadataRequest
from kafka.protocol.parser import KafkaProtocol
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from kraftbridge.kafka import metadata
from kraftbridge.kafka.client import Security, resolve
from kraftbridge.models.observation import NodeFeatures
from kraftbridge.models.status import first
from kraftbridge.outside import bounds
from kraftbridge.outside.endpoints import connect

__all__ = ["Connection", "ConnectionLostError", "Security", "WireError", "error_name", "host_ports"]

CLIENT_ID: Final = "kraftbridge"
API_VERSIONS_OF_EVERY_NODE: Final = 3
"""Version of ApiVersions that Kafka 2.4 answers already."""
API_VERSIONS_WITH_LEVEL_0: Final = 4
"""Version of ApiVersions whose answer has the features that support level 0, too (KAFKA-17011)."""
_SHOWN: Final = 2
"""Addresses, or failures, in an error."""
logging.getLogger("kafka.protocol.parser").setLevel(logging.CRITICAL)  # it writes a whole answer that it cannot read
_REAUTHENTICATE_AT: Final = 0.7
"""Part of a SASL session's lifetime (KIP-368) after which the connection is replaced."""

UNKNOWN_TOPIC: Final = 3
NOT_CONTROLLER: Final = 41
"""Codes of ``org.apache.kafka.common.protocol.Errors``."""


_UNREADABLE: Final = (OSError, KafkaError, ValueError, struct.error, IndexError, KeyError, TypeError, AttributeError)
"""What kafka-python raises for bytes that are none of Kafka's, and what a socket raises."""
T = TypeVar("T")


class WireError(Exception):
    """A node did not answer: it is unreachable or silent, or does not speak Kafka's protocol."""


class ConnectionLostError(WireError):
    """The node closed the connection. A new connection may succeed."""


class Connection:
    """A connection to one node. Not thread-safe. A `WireError` closes it permanently.

    Parameters
    ----------
    host, port
        The node. The constructor resolves its name.
    timeout_seconds
        For name resolution, TCP, TLS, SASL and version negotiation together.
    server_name
        The name that the node's certificate must have, if it is not ``host``.
    most
        Largest answer in bytes that is decoded as a whole.
    """

    def __init__(
        self,
        host: str,
        port: int,
        security: Security,
        timeout_seconds: float,
        server_name: str | None = None,
        *,
        most: int = bounds.KAFKA_ANSWER_BYTES,
    ) -> None:
        self.address = f"{host}:{port}"
        self._most = most
        self._deadline = time.monotonic() + timeout_seconds
        self._protocol = KafkaProtocol(client_id=CLIENT_ID)
        self._server_name = server_name or host
        self._socket: socket.socket | None = None
        self._expires_at: float | None = None
        self._versions: dict[int, tuple[int, int]] = {}
        try:
            self._socket = self._open(host, port, security)
            self.node = self._api_versions()
            self._versions = {key.api_key: (key.min_version, key.max_version) for key in self.node.api_keys}
            if security.mechanism is not None:
                self._authenticate(security)
        except WireError:
            self.close()
            raise
        except _UNREADABLE as error:
            self.close()
            raise WireError(f"{type(error).__name__}: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    @property
    def usable(self) -> bool:
        """Whether the connection is open and its SASL session does not expire soon."""
        return self._socket is not None and (self._expires_at is None or time.monotonic() < self._expires_at)

    def features(self, timeout_seconds: float) -> NodeFeatures:
        """Return the current features of the node (ApiVersions can be sent at any time).

        Below version 4 the answer lacks every feature that supports level 0, which are all but ``metadata.version``
        (KAFKA-17011).

        Raises
        ------
        WireError
            No answer in time, or the connection broke.
        """
        self._deadline = time.monotonic() + timeout_seconds
        try:
            newest = self._versions.get(ApiVersionsRequest.API_KEY, (0, 0))[1]
            self.node = self._api_versions(max(API_VERSIONS_OF_EVERY_NODE, min(API_VERSIONS_WITH_LEVEL_0, newest)))
        except _UNREADABLE as error:
            self.close()
            raise _wire_error(error) from error
        return NodeFeatures(
            finalized={f.name: f.max_version_level for f in self.node.finalized_features or ()},
            supported={f.name: (f.min_version, f.max_version) for f in self.node.supported_features or ()},
            zk_migration_ready=bool(self.node.zk_migration_ready),
            finalized_epoch=self.node.finalized_features_epoch,
        )

    def call(
        self,
        request_class: Any,
        timeout_seconds: float,
        *,
        max_version: int,
        min_version: int = 0,
        most: int | None = None,
        **fields: Any,
    ) -> Any:
        """Send a request in the newest version that both sides support, and return the response.

        Parameters
        ----------
        max_version
            Newest version that the caller supports.
        min_version
            Oldest version that has all required fields. Older versions silently drop some of them.
        most
            Largest answer in bytes, if it is not the connection's.

        Raises
        ------
        WireError
            No answer in time, the connection broke, the answer is larger, or the node does not know the request.
        """
        version = self._version(request_class, max_version, min_version)
        self._deadline = time.monotonic() + timeout_seconds
        try:
            return self._request(request_class(version=version, **fields), most)
        except _UNREADABLE as error:
            self.close()
            raise _wire_error(error) from error

    def answers(self, request_class: Any, version: int = 0) -> bool:
        """Return whether the node knows a request in a version."""
        return version <= self._versions.get(request_class.API_KEY, (0, -1))[1]

    def _version(self, request_class: Any, max_version: int, min_version: int) -> int:
        if request_class.API_KEY not in self._versions:
            raise WireError(f"it does not answer {request_class.__name__.removesuffix('Request')}")
        lowest, highest = self._versions[request_class.API_KEY]
        version = int(min(highest, max_version, request_class.max_version))
        if version < min_version:
            raise WireError(
                f"it answers {request_class.__name__.removesuffix('Request')} up to version {version} only, "
                f"{min_version} is needed"
            )
        if version < lowest:
            raise WireError(f"it answers {request_class.__name__.removesuffix('Request')} from version {lowest} only")
        return version

    def all_topics(
        self, timeout_seconds: float, fold: Callable[[metadata.Metadata], T], *, operations: bool = False
    ) -> T:
        """Return what a function makes of the Metadata of all topics.

        It reads each topic once, and none is held longer.
        With `operations`, each topic has the operations that the principal may do (KIP-430).

        Raises
        ------
        WireError
            No answer in time, the connection broke, or the answer exceeds a bound.
        """
        version = self._version(MetadataRequest, metadata.NEWEST, metadata.OLDEST)
        self._deadline = time.monotonic() + timeout_seconds
        request = MetadataRequest(
            version=version,
            topics=None,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=operations,
        )
        whole = False
        try:
            connection, correlation = self._send(request)
            self._protocol.in_flight_requests.popleft()  # it is decoded here
            frame = metadata.Frame(connection, self._left, self.address, bounds.KAFKA_METADATA_BYTES)
            self._deadline = time.monotonic() + max(timeout_seconds, bounds.KAFKA_METADATA_SECONDS)
            folded = fold(metadata.read(frame, correlation, version))
            whole = not frame.remaining
        except _UNREADABLE as error:
            raise _wire_error(error) from error
        finally:
            if not whole:
                self.close()
        return folded

    def metadata(
        self,
        timeout_seconds: float,
        topics: Iterable[str] | None = (),
        *,
        operations: bool = False,
        of_cluster: bool = False,
    ) -> Any:
        """Return brokers, controller and the named topics as the node knows them.

        None means all topics. The request creates no topic.
        With `operations`, each topic has the operations that the principal may do, with `of_cluster` the cluster
        (KIP-430).

        Raises
        ------
        WireError
            No answer in time, or the connection broke.
        """
        asked_topics = None
        if topics is not None:
            asked_topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        return self.call(
            MetadataRequest,
            timeout_seconds,
            max_version=9,
            topics=asked_topics,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=of_cluster,
            include_topic_authorized_operations=operations,
        )

    def _api_versions(self, version: int = API_VERSIONS_OF_EVERY_NODE) -> Any:
        answer = self._request(
            ApiVersionsRequest(version=version, client_software_name=CLIENT_ID, client_software_version="1")
        )
        if answer.error_code:
            raise WireError(f"ApiVersions answered {error_name(answer.error_code)}")
        return answer

    def _open(self, host: str, port: int, security: Security) -> socket.socket:
        failure: OSError | None = None
        for address in resolve(host, port, self._left()):
            try:
                connection = connect(host, address, port, self._left(), security.judge)
            except OSError as error:
                failure = error
                continue
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if security.tls is None:
                return connection
            try:
                connection.settimeout(self._left())
                return security.tls.wrap_socket(connection, server_hostname=self._server_name)
            except OSError as error:
                connection.close()
                failure = error
        raise failure or OSError(f"{host} has no address")

    def _send(self, request: Any) -> tuple[socket.socket, int]:
        if self._socket is None:
            raise WireError("the connection is closed")
        correlation: int = self._protocol.send_request(request)
        self._socket.settimeout(self._left())
        self._socket.sendall(bytes(self._protocol.send_bytes()))
        return self._socket, correlation

    def _request(self, request: Any, most: int | None = None) -> Any:
        connection, _ = self._send(request)
        limit = self._most if most is None else most
        frame = metadata.Frame(connection, self._left, self.address, limit)
        body = frame.take(frame.remaining)
        for _, response in self._protocol.receive_bytes(len(body).to_bytes(4, "big") + body):
            return response
        raise ValueError("the answer is empty")

    def _authenticate(self, security: Security) -> None:
        answer = self._request(SaslHandshakeRequest(version=1, mechanism=security.mechanism))
        if answer.error_code:
            offered = ", ".join(answer.mechanisms)
            raise WireError(f"SASL {security.mechanism}: {error_name(answer.error_code)}; the node offers {offered}")
        mechanism = get_sasl_mechanism(security.mechanism)(
            sasl_mechanism=security.mechanism,
            sasl_plain_username=security.username,
            sasl_plain_password=security.password,
        )
        version = min(2, self._versions.get(SaslAuthenticateRequest.API_KEY, (0, 0))[1])
        while not mechanism.is_done():
            answer = self._request(SaslAuthenticateRequest(version=version, auth_bytes=mechanism.auth_bytes()))
            if answer.error_code:
                raise WireError(f"SASL {security.mechanism} as {security.username}: {answer.error_message}")
            mechanism.receive(answer.auth_bytes)
        lifetime_ms = getattr(answer, "session_lifetime_ms", 0) or 0
        if lifetime_ms > 0:
            self._expires_at = time.monotonic() + lifetime_ms / 1000 * _REAUTHENTICATE_AT

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the call exceeded its time limit")
        return left


def _wire_error(error: BaseException) -> WireError:
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, ConnectionError):
        return ConnectionLostError(text)
    return WireError(text)


def error_name(code: int) -> str:
    """Return Kafka's name and number of an error: ``NotControllerError (41)``."""
    return f"{for_code(code).__name__} ({code})"


def host_ports(bootstrap_servers: str) -> tuple[tuple[str, int], ...]:
    """Split ``host:port,host:port``; IPv6 addresses stand in brackets."""
    pairs = [entry.strip().rpartition(":") for entry in bootstrap_servers.split(",") if entry.strip()]
    return tuple((host.strip("[]"), int(port)) for host, _, port in pairs)


def brokers_at(bootstrap_servers: str) -> str:
    """Return how errors name the brokers behind some addresses: a cluster may have 64 of them."""
    return f"brokers {first(bootstrap_servers.split(','), _SHOWN)}"


def none_answered(failures: Sequence[str]) -> str:
    """Return that no broker answered, with what the first ones said."""
    return f"none answered: {first(failures, _SHOWN, '; ')}"
