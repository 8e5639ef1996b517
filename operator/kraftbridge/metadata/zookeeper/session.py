"""Opens sessions with ZooKeeper. The operator and the verifier authenticate and use TLS in the same way."""

from __future__ import annotations

import importlib.util
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from kazoo.client import KazooClient
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
