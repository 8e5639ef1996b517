"""The health endpoint, with its own server and thread, so that it answers while all workers are busy."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from typing_extensions import override

STALE_SECONDS: Final = 60.0
"""An event loop that does not turn for this long is considered hung."""


class Health:
    """Serves ``/healthz``: 200 while the event loop turns, 503 otherwise.

    Parameters
    ----------
    port
        0 for any free port; `port` returns it.
    clock
        Returns seconds. Tests replace it.
    """

    def __init__(self, port: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._beat = clock()
        health = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                code, text = health.answer(self.path)
                self.send_response(code)
                self.send_header("Content-Type", "text/plain; charset=utf-8")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            @override
            def log_message(self, format: str, *args: object) -> None:
                """Log nothing, because probes are frequent."""

        self._server = ThreadingHTTPServer(("", port), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="health", daemon=True).start()

    @property
    def port(self) -> int:
        """The port of the server."""
        return int(self._server.server_address[1])

    def beat(self) -> None:
        """Record that the event loop turns."""
        self._beat = self._clock()

    def answer(self, path: str) -> tuple[HTTPStatus, bytes]:
        """Return status and body for a probe of ``path``."""
        if path.partition("?")[0] != "/healthz":
            return HTTPStatus.NOT_FOUND, b"not found\n"
        age = self._clock() - self._beat
        if age > STALE_SECONDS:
            return HTTPStatus.SERVICE_UNAVAILABLE, f"the event loop has not turned for {age:.0f} s\n".encode()
        return HTTPStatus.OK, b"ok\n"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
