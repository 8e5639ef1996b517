"""Tries from inside a pod which addresses take a TCP connection. Nothing is sent or read over a connection."""

from __future__ import annotations

import errno
import os
import selectors
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from kraftbridge.kafka.client import resolve_all

PATHS_PATH: Final = "/v1/paths"
"""Where the log server takes a list of addresses."""
MOST_ADDRESSES: Final = 64
"""Of one request."""
MOST_BYTES: Final = 64 << 10
"""Of one request, and of its answer: a name has at most 253 characters (RFC 1035)."""
RESOLVED_WITHIN_SECONDS: Final = 2.0
CONNECTED_WITHIN_SECONDS: Final = 3.0
_MOST_ANSWERS: Final = 4
"""Addresses of one name that are tried. One that takes the connection is enough: Kafka goes through all of them
(``ClusterConnectionStates.currentAddress``)."""
_WORDS: Final = 200
_UNDER_WAY: Final = frozenset({0, errno.EINPROGRESS, errno.EWOULDBLOCK})

Target = tuple[str, int]
"""Host and port. The host is a name, or an IPv4 or IPv6 address without brackets."""


def tried(targets: Sequence[Target]) -> list[str]:
    """Return for each target why it takes no connection, ``""`` for one that does.

    All are tried at once, so the time limits are those of the whole list.
    """
    answers = resolve_all({host for host, _ in targets}, RESOLVED_WITHIN_SECONDS)
    attempts = _Attempts()
    failures: dict[int, str] = {}
    for number, (host, port) in enumerate(targets):
        found = answers[host]
        if isinstance(found, OSError):
            failures[number] = f"the name does not resolve: {found.strerror or found}"
            continue
        for address in found[:_MOST_ANSWERS]:
            attempts.begin(number, address, port)
    attempts.finish(CONNECTED_WITHIN_SECONDS)
    return [failures.get(number) or attempts.failure(number) for number in range(len(targets))]


class _Attempts:
    """Connections that are being established."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._reached = set[int]()
        self._failed: dict[int, list[str]] = {}

    def begin(self, number: int, address: str, port: int) -> None:
        """Begin to connect to one address of a target."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            connection = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            self._fail(number, address, error.errno)
            return
        connection.settimeout(0)
        code = _connect(connection, address, port)
        if code in _UNDER_WAY:
            self._selector.register(connection, selectors.EVENT_WRITE, (number, address))
            return
        connection.close()
        self._fail(number, address, code)

    def finish(self, seconds: float) -> None:
        """Wait until every target is decided, or the time is over."""
        until = time.monotonic() + seconds
        while self._selector.get_map() and (left := until - time.monotonic()) > 0:
            for key, _ in self._selector.select(left):
                number, address = key.data
                code = self._end(key)
                if code:
                    self._fail(number, address, code)
                else:
                    self._reached.add(number)
        for key in list(self._selector.get_map().values()):
            number, address = key.data
            self._end(key)
            self._failed.setdefault(number, []).append(f"{address} did not answer within {seconds:.0f} s")
        self._selector.close()

    def failure(self, number: int) -> str:
        """Return why a target was not reached."""
        if number in self._reached:
            return ""
        return "; ".join(self._failed.get(number, ["the name has no address"]))[:_WORDS]

    def _end(self, key: selectors.SelectorKey) -> int:
        connection = key.fileobj
        assert isinstance(connection, socket.socket)
        self._selector.unregister(connection)
        code = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        with suppress(OSError):
            connection.close()
        return code

    def _fail(self, number: int, address: str, code: int | None) -> None:
        words = os.strerror(code) if code else "no connection"
        self._failed.setdefault(number, []).append(f"{address}: {words}")


def _connect(connection: socket.socket, address: str, port: int) -> int:
    try:
        return connection.connect_ex((address, port))
    except OSError as error:  # an address that the C library does not take
        return error.errno or errno.EINVAL
