"""Servers on the loopback interface for unit tests: HTTP with scripted answers, and one that speaks Kafka's protocol."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from kafka.protocol.metadata.api_versions import ApiVersionsResponse

VERSION_WITH_LEVEL_0 = 4
"""Below it a node leaves out the features that support level 0 (``ApiVersionsResponse``, KAFKA-17011)."""


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass
class HttpServer:
    """Answers by ``respond(request) -> (status, object or text)`` and keeps what it was asked."""

    respond: Callable[[Request], tuple[int, object]] = lambda _: (200, {})
    requests: list[Request] = field(default_factory=list)
    url: str = ""
    port: int = 0


@contextmanager
def http_server() -> Iterator[HttpServer]:
    state = HttpServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            address = urlsplit(self.path)
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            query = {k: v[0] for k, v in parse_qs(address.query, keep_blank_values=True).items()}
            body = json.loads(data) if data else None
            request = Request(self.command, address.path, query, dict(self.headers), body)
            state.requests.append(request)
            status, answer = state.respond(request)
            text = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = answer  # noqa: N815 - http.server's names

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    state.port = server.server_address[1]
    state.url = f"http://127.0.0.1:{state.port}"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class KafkaNode:
    """A node that answers ApiVersions, and what ``answers`` has by API key.

    An answer is a response class and the fields to fill in, or None to stay silent, or several of them to give in turn.
    """

    def __init__(self, answers: dict[int, Any], versions: dict[int, tuple[int, int]], **said: Any) -> None:
        self.answers = answers
        self.asked: list[int] = []
        self._versions = versions
        self._said = said
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self.address = ("127.0.0.1", self.port)
        self._connections: list[socket.socket] = []
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def close(self) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # wakes accept(), which would let one more in
        self._server.close()
        self._acceptor.join()
        for connection in self._connections:
            connection.close()
        self._connections.clear()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            while size := connection.recv(4, socket.MSG_WAITALL):
                request = connection.recv(struct.unpack(">i", size)[0], socket.MSG_WAITALL)
                key, version, correlation = struct.unpack(">hhi", request[:8])
                self.asked.append(key)
                answer = self.answers.get(key)
                if isinstance(answer, list):
                    answer = answer[self.asked.count(key) % len(answer)]
                if key == ApiVersionsResponse.API_KEY:
                    response = self._api_versions(version)
                elif answer is None:
                    continue
                else:
                    response_class, fields = answer
                    response = response_class(version=version, **fields)
                response.with_header(correlation_id=correlation)
                connection.sendall(response.encode(framed=True, header=True))
        except OSError:
            pass
        finally:
            connection.close()

    def _api_versions(self, version: int) -> ApiVersionsResponse:
        keys = [
            ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in self._versions.items()
        ]
        fields: dict[str, Any] = {
            "error_code": 0,
            "throttle_time_ms": 0,
            "supported_features": [],
            "finalized_features": [],
        }
        fields |= {"finalized_features_epoch": -1, "zk_migration_ready": False}
        fields |= self._said
        if version < VERSION_WITH_LEVEL_0:
            fields["supported_features"] = [each for each in fields["supported_features"] if each.min_version]
        return ApiVersionsResponse(version=version, api_keys=keys, **fields)
