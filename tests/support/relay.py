"""A TCP relay on the loopback interface that can drop either direction, to simulate a network fault between real processes."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from tests.support.programs import free_port

_CHUNK_BYTES = 1 << 16


class Relay:
    """Carries bytes between clients and one server.

    While a direction is held, the relay keeps the bytes that arrive. `cut` discards them with the connection.
    """

    def __init__(self, target_port: int) -> None:
        self.port = free_port()
        self._target_port = target_port
        self._requests, self._replies = threading.Event(), threading.Event()
        self._connections: list[socket.socket] = []
        self._lock = threading.Lock()
        self._last_carried = 0.0
        self._pattern: re.Pattern[bytes] | None = None
        self._matched = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self.release()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def hold_requests(self) -> None:
        """Stop forwarding to the server."""
        self._requests.clear()

    def hold_requests_at(self, pattern: bytes) -> threading.Event:
        """Stop forwarding to the server at the first request that matches a regular expression; return the event that is set then."""
        self._matched = threading.Event()
        self._pattern = re.compile(pattern)
        return self._matched

    def hold_replies(self) -> None:
        """Stop forwarding to the clients."""
        self._replies.clear()

    def wait_for_silence(self, seconds: float, at_most_seconds: float) -> None:
        """Wait until nothing was forwarded for some seconds, so that everything in flight has arrived."""
        deadline = time.monotonic() + at_most_seconds
        while time.monotonic() < min(self._last_carried + seconds, deadline):
            time.sleep(0.05)

    def release(self) -> None:
        """Forward both directions again."""
        self._requests.set()
        self._replies.set()

    def cut(self) -> None:
        """Close all connections and discard the held bytes."""
        with self._lock:
            connections, self._connections = self._connections, []
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def close(self) -> None:
        """End the relay."""
        self._listener.close()
        self.cut()
        self.release()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            try:
                server = socket.create_connection(("127.0.0.1", self._target_port), 5)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            with self._lock:
                self._connections += (client, server)
            for source, sink, gate in ((client, server, self._requests), (server, client, self._replies)):
                threading.Thread(target=self._carry, args=(source, sink, gate), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket, gate: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK_BYTES):
                if gate is self._requests and self._pattern is not None and self._pattern.search(data):
                    self._pattern = None
                    gate.clear()
                    self._matched.set()
                gate.wait()
                self._last_carried = time.monotonic()
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextmanager
def relay_to(port: int) -> Iterator[Relay]:
    """Start a relay to a port of this host for a ``with`` block."""
    with Relay(port) as relay:
        yield relay
