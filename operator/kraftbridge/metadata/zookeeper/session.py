"""Opens sessions with ZooKeeper. The operator and the verifier authenticate and use TLS in the same way."""

from __future__ import annotations

import importlib.util
import logging
import math
import select
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from socket import socket
from typing import Any, Literal

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.retry import KazooRetry

from kraftbridge.exceptions import InvalidSpecError


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


class PollingHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's handler for threads, with one system call per wait.

    kazoo 2.11's own `select` makes and closes an epoll object for each wait (``kazoo.handlers.utils.selector_select``), and a large reply
    takes several waits. ``make bench`` compares the reading of many znodes with a bare socket.
    """

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
            Ignored, as by kazoo. A socket with an error counts as readable or writable, whichever was asked: its next call raises the error.
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
        for each in rlist:
            wanted[each.fileno()] = select.POLLIN
        for each in wlist:
            wanted[each.fileno()] = wanted.get(each.fileno(), 0) | select.POLLOUT
        waiting = select.poll()
        for number, events in wanted.items():
            waiting.register(number, events)
        found = dict(waiting.poll(None if timeout is None else math.ceil(timeout * 1000)))
        return (
            [each for each in rlist if found.get(each.fileno(), 0) & ~select.POLLOUT],
            [each for each in wlist if found.get(each.fileno(), 0) & ~select.POLLIN],
            [],
        )


def new_session(
    connect: str,
    timeout_seconds: float,
    retries: Retries,
    credentials: ZooKeeperCredentials | None = None,
    tls: TlsFiles | None = None,
    logger: logging.Logger | None = None,
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
    """
    options: dict[str, Any] = {}
    if tls is not None:
        options |= {
            "use_ssl": True, "verify_certs": True, "check_hostname": tls.verify_hostname, "ca": str(tls.ca),
            **({"certfile": str(tls.certificate)} if tls.certificate is not None else {}),
            **({"keyfile": str(tls.key)} if tls.key is not None else {}),
        }  # fmt: skip
    if logger is not None:
        options["logger"] = logger
    delays = {"delay": retries.first_delay_seconds, "max_delay": retries.max_delay_seconds}
    return KazooClient(
        hosts=connect,
        timeout=timeout_seconds,
        handler=PollingHandler(),
        connection_retry=KazooRetry(max_tries=retries.connection, **delays),
        command_retry=KazooRetry(max_tries=retries.command, **delays),
        **options,
        **_authentication(credentials),
    )


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
