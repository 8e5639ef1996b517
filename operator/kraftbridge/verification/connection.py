"""Connections to controllers and brokers with the user's client properties, for as long as one run needs them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import javaproperties

from kraftbridge.exceptions import InvalidSpecError
from kraftbridge.kafka.security import Security
from kraftbridge.metadata.errors import MetadataError

if TYPE_CHECKING:
    from kraftbridge.kafka.wire import Connection


class ConnectionSettingsError(MetadataError):
    """Client properties cannot be read, or cannot be followed."""


class NodeUnavailableError(MetadataError):
    """A node could not be asked, or broke off."""


def read_security(path: str | None) -> Security:
    """Return what a Java properties file says about security; plain text without a path.

    Raises
    ------
    ConnectionSettingsError
        It cannot be read, or a setting of it cannot be followed.
    """
    if path is None:
        return Security()
    try:
        return Security.from_properties(javaproperties.loads(Path(path).read_text("utf-8")))
    except (OSError, ValueError) as error:
        raise ConnectionSettingsError(f"client properties {path} cannot be read: {error}") from error
    except InvalidSpecError as error:
        raise ConnectionSettingsError(f"client properties {path}: {error}") from error


@contextmanager
def connected(host: str, port: int, security: Security, timeout_seconds: float) -> Iterator[Connection]:
    """Give a connection to one node.

    Raises
    ------
    NodeUnavailableError
        It does not answer, in time or as expected.
    """
    from kraftbridge.kafka.wire import Connection, WireError  # noqa: PLC0415 - kafka-python is heavy

    try:
        with Connection(host, port, security, timeout_seconds) as connection:
            yield connection
    except WireError as error:
        raise NodeUnavailableError(str(error)) from error
