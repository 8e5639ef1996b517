"""Opens sessions with ZooKeeper. The operator and the verifier authenticate and use TLS in the same way."""

from __future__ import annotations

import importlib.util
import logging
import math
import select
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from socket import socket
from typing import Any, Final, Literal

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.serialization import GetACL, GetChildren
from kazoo.retry import KazooRetry

from kraftbridge.exceptions import InvalidSpecError
from kraftbridge.outside import bounds
from kraftbridge.outside.bounds import BoundExceededError, ReplyBounds
from kraftbridge.outside.endpoints import Judge, anywhere, judge_peer, plain_address


@dataclass(frozen=True, slots=True)
class ZooKeeperCredentials:
    """User name and password of a client of ZooKeeper.

    Raises
    ------
    InvalidSpecError
        The scheme is ``sasl`` and the Python package pure-sasl is not installed.
    """

    username: str
    password: str = field(repr=False)
    scheme: Literal["digest", "sasl"] = "digest"
    """``digest`` is ZooKeeper's own scheme. ``sasl`` is DIGEST-MD5, which Kafka brokers use."""

    def __post_init__(self) -> None:
        """Refuse SASL without its package: kazoo would report only that the server refused the session."""
        if self.scheme == "sasl" and importlib.util.find_spec("puresasl") is None:
            raise InvalidSpecError("ZooKeeper credentials of scheme sasl need the Python package pure-sasl")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files for TLS to ZooKeeper."""

    ca: Path
    certificate: Path | None = None
    """Client certificate with its chain, where the servers require one."""
    key: Path | None = None
    verify_hostname: bool = True


@dataclass(frozen=True, slots=True)
class Retries:
    """Number of attempts of a session; -1 for no limit."""

    connection: int
    command: int
    first_delay_seconds: float = 0.1
    max_delay_seconds: float = 2.0


class BoundedSocket:
    """A socket that returns whole replies of bounded size, and within a bounded time.

    Everything else is the socket's own.

    kazoo reads the length of a reply and then asks for that many bytes,
    whatever the number is (``ConnectionHandler._read``).
    """

    def __init__(self, wrapped: Any, server: str, most: ReplyBounds) -> None:
        self._wrapped = wrapped
        self._server = server
        self._most = most
        self._window = (time.monotonic(), 0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)

    def recv(self, length: int) -> bytes | bytearray:
        """Return this many bytes, or none if the server closed the connection.

        Raises
        ------
        BoundExceededError
            The reply, or all replies of the last seconds, are larger than what is accepted.
        OSError
            The connection broke, or the reply did not end in time.
        """
        self._count(length)
        content = bytearray(length)
        view = memoryview(content)
        received = 0
        until = time.monotonic() + self._most.frame_seconds
        while received < length:
            wanted = select.POLLIN
            try:
                arrived = self._wrapped.recv_into(view[received:])
                if not arrived:
                    return b""
                received += arrived
                continue
            except (BlockingIOError, ssl.SSLWantReadError):
                pass
            except ssl.SSLWantWriteError:
                wanted = select.POLLOUT
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"{self._server} sent {received} of {length} bytes of a reply in time")
            waiting = select.poll()
            waiting.register(self._wrapped.fileno(), wanted)
            waiting.poll(math.ceil(left * 1000))
        return content

    def _count(self, length: int) -> None:
        most = self._most
        if length > most.frame_bytes:
            raise BoundExceededError(
                self._server, f"it sends a reply of {bounds.size(length)}", bounds.size(most.frame_bytes), _ADVICE
            )
        if most.window_bytes is None:
            return
        now = time.monotonic()
        began, received = self._window
        if now - began > most.window_seconds:
            began = now
            received = 0
        received += length
        self._window = (began, received)
        if received > most.window_bytes:
            sent = f"it sends {bounds.size(received)} in {most.window_seconds:g} s"
            raise BoundExceededError(self._server, sent, bounds.size(most.window_bytes), _ADVICE)


_ADVICE: Final = "Check that spec.zookeeper.connect names ZooKeeper, and remove what fills the tree"


class PollingHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's handler for threads, with one system call per wait.

    kazoo 2.11's own `select` makes and closes an epoll object for each wait
    (``kazoo.handlers.utils.selector_select``), and a large reply takes several waits.
    ``make bench`` compares the reading of many znodes with a bare socket.

    Parameters
    ----------
    most
        What a server may send.
    judge
        Where the session may connect to.
    """

    def __init__(self, most: ReplyBounds = bounds.VERIFIER_REPLIES, judge: Judge = anywhere) -> None:
        super().__init__()
        self._most = most
        self._judge = judge

    def create_connection(self, *args: Any, **kwargs: Any) -> BoundedSocket:
        """Return a connection with bounded replies, for kazoo's arguments."""
        host, port = kwargs["address"]
        if _is_address(host):
            self._judge(host, host, port)  # before a handshake shows the client's certificate
        connection = super().create_connection(*args, **kwargs)
        try:
            judge_peer(host, connection, self._judge)
        except OSError:
            connection.close()
            raise
        return BoundedSocket(connection, f"ZooKeeper {host}:{port}", self._most)

    def select(
        self,
        rlist: Sequence[socket],
        wlist: Sequence[socket],
        xlist: Sequence[socket],  # noqa: ARG002 - kazoo's signature
        timeout: float | None = None,
    ) -> tuple[list[socket], list[socket], list[socket]]:
        """Wait until one of the sockets can be read or written, like `select.select` without its limit of 1,024 files.

        Parameters
        ----------
        xlist
            Ignored, as by kazoo.
            A socket with an error counts as readable or writable, whichever was asked: its next call raises the error.
        timeout
            Seconds; no limit if None.

        Raises
        ------
        ValueError
            A socket is closed, or the timeout is negative.
        """
        if timeout is not None and timeout < 0:
            raise ValueError("timeout must be non-negative")
        wanted: dict[int, int] = {}
        for stream in rlist:
            wanted[stream.fileno()] = select.POLLIN
        for stream in wlist:
            wanted[stream.fileno()] = wanted.get(stream.fileno(), 0) | select.POLLOUT
        waiting = select.poll()
        for number, events in wanted.items():
            waiting.register(number, events)
        ready = dict(waiting.poll(None if timeout is None else math.ceil(timeout * 1000)))
        return (
            [stream for stream in rlist if ready.get(stream.fileno(), 0) & ~select.POLLOUT],
            [stream for stream in wlist if ready.get(stream.fileno(), 0) & ~select.POLLIN],
            [],
        )


def _is_address(host: str) -> bool:
    try:
        plain_address(host)
    except ValueError:
        return False
    return True


def new_session(
    connect: str,
    timeout_seconds: float,
    retries: Retries,
    credentials: ZooKeeperCredentials | None = None,
    tls: TlsFiles | None = None,
    logger: logging.Logger | None = None,
    *,
    most: ReplyBounds = bounds.VERIFIER_REPLIES,
    judge: Judge = anywhere,
) -> KazooClient:
    """Return a client that has not connected yet; the caller starts, stops and closes it.

    Parameters
    ----------
    connect
        Connect string as in ``zookeeper.connect``, chroot included.
    timeout_seconds
        Session timeout.
    logger
        Receives kazoo's messages.
    most
        What a server may send.
    judge
        Where the session may connect to.
    """
    options: dict[str, Any] = {}
    if tls is not None:
        options |= {"use_ssl": True, "verify_certs": True, "check_hostname": tls.verify_hostname, "ca": str(tls.ca)}
        if tls.certificate is not None:
            options["certfile"] = str(tls.certificate)
        if tls.key is not None:
            options["keyfile"] = str(tls.key)
    if logger is not None:
        options["logger"] = logger
    delays = {"delay": retries.first_delay_seconds, "max_delay": retries.max_delay_seconds}
    return KazooClient(
        hosts=connect,
        timeout=timeout_seconds,
        handler=PollingHandler(most, judge),
        connection_retry=KazooRetry(max_tries=retries.connection, **delays),
        command_retry=KazooRetry(max_tries=retries.command, **delays),
        **options,
        **_authentication(credentials),
    )


class BoundedChildren(GetChildren):  # type: ignore[misc]  # kazoo has no types
    """A list of children of bounded length."""

    __slots__ = ()

    @classmethod
    def deserialize(cls, buffer: bytes, offset: int) -> list[str]:
        """Return the names in a reply.

        Raises
        ------
        BoundExceededError
            There are more than `bounds.ZNODE_CHILDREN`. Each name takes ten times its bytes.
        """
        bounds.count("ZooKeeper", *_counted(buffer, offset, bounds.ZNODE_CHILDREN), "children of one znode", _ADVICE)
        names: list[str] = super().deserialize(buffer, offset)
        if None in names:
            raise ValueError("a child has no name")
        return names


class BoundedAcl(GetACL):  # type: ignore[misc]  # kazoo has no types
    """An ACL of bounded length."""

    __slots__ = ()

    @classmethod
    def deserialize(cls, buffer: bytes, offset: int) -> Any:
        """Return ACL and `ZnodeStat` in a reply.

        Raises
        ------
        BoundExceededError
            There are more than `bounds.ZNODE_ACL_ENTRIES`.
        """
        bounds.count(
            "ZooKeeper", *_counted(buffer, offset, bounds.ZNODE_ACL_ENTRIES), "ACL entries of one znode", _ADVICE
        )
        return super().deserialize(buffer, offset)


def _counted(buffer: bytes, offset: int, most: int) -> tuple[int, int]:
    return int.from_bytes(buffer[offset : offset + 4], "big", signed=True), most


def children(client: KazooClient, path: str, *, chroot: bool = True) -> Any:
    """Ask for a znode's children, as `KazooClient.get_children_async`; without the chroot from ZooKeeper's own root."""
    return _asked(client, BoundedChildren(f"{client.chroot if chroot else ''}{path}".rstrip("/") or "/", None))


def acl(client: KazooClient, path: str) -> Any:
    """Ask for a znode's ACL, as `KazooClient.get_acls_async`."""
    return _asked(client, BoundedAcl(f"{client.chroot}{path}".rstrip("/") or "/"))


def _asked(client: KazooClient, request: Any) -> Any:
    answer = client.handler.async_result()
    client._call(request, answer)  # noqa: SLF001 - kazoo has no public method for requests of others
    return answer


def _authentication(credentials: ZooKeeperCredentials | None) -> dict[str, Any]:
    if credentials is None:
        return {}
    match credentials.scheme:
        case "digest":
            return {"auth_data": [("digest", f"{credentials.username}:{credentials.password}")]}
        case "sasl":
            return {
                "sasl_options": {
                    "mechanism": "DIGEST-MD5",
                    "username": credentials.username,
                    "password": credentials.password,
                }
            }
