"""A read-only HTTPS server for a controller's metadata log.

It runs as a sidecar of the controller's pod: ``python -m kraftbridge.pods.logserver``.

The verification job reads the log through it, so nothing shares the controllers' volumes.
Clients with the token list files and read ranges of them.
They may also ask which addresses the pod reaches (`kraftbridge.pods.paths`): containers of a pod share its network, so
NetworkPolicies treat the sidecar as they treat Kafka.
"""

from __future__ import annotations

import argparse
import contextlib
import hmac
import json
import logging
import re
import signal
import ssl
import stat
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socket import SHUT_RDWR, socket
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from typing_extensions import override

from kraftbridge.metadata.log.files import FILES_PATH, LOG_FOLDER, LocalLogFiles
from kraftbridge.outside import bounds
from kraftbridge.outside.json_text import parsed_json
from kraftbridge.outside.serving import DualStackServer
from kraftbridge.outside.visible import log_visibly
from kraftbridge.pods import paths

logger = logging.getLogger(__name__)

HEALTH_PATH: Final = "/healthz"
_SERVED_NAME: Final = re.compile(r"\d{20}\.log|\d{20}-\d{10}\.checkpoint|quorum-state|leader-epoch-checkpoint")
_RANGE: Final = re.compile(r"bytes=(\d{1,18})-(\d{0,18})")
_CHUNK_BYTES: Final = 1 << 20
_MAXIMUM_RESPONSE_BYTES: Final = 64 << 20
_MINIMUM_TOKEN_CHARACTERS: Final = 16
_CONNECTION_TIMEOUT_SECONDS: Final = 30.0
_AUTHORIZED_SECONDS: Final = 600.0
"""How long a connection may last after its last request with the token: the largest answer is sent by then."""
_MOST_CONNECTIONS: Final = 64
_MOST_OF_ONE_ADDRESS: Final = 16
"""Somebody without the token leaves room for the others."""
_PORTS: Final = 1 << 16
_HOST: Final = re.compile(r"[A-Za-z0-9_.:%-]{1,253}")


@dataclass(slots=True)
class TokenFile:
    """A bearer token in a file. The file can be replaced while the server runs."""

    path: Path

    def accepts(self, header: str | None) -> bool:
        """Return whether an Authorization header contains the token, in constant time."""
        try:
            token = self.path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            logger.exception("token file %s cannot be read: every request is refused", self.path)
            return False
        if len(token) < _MINIMUM_TOKEN_CHARACTERS:
            logger.error("the token in %s is shorter than %d characters", self.path, _MINIMUM_TOKEN_CHARACTERS)
            return False
        given = (header or "").encode("utf-8", "surrogateescape")
        return hmac.compare_digest(given, f"Bearer {token}".encode())


@dataclass(slots=True)
class ServerCertificate:
    """A certificate and key. Their files can be replaced while the server runs."""

    certificate: Path
    key: Path
    _context: ssl.SSLContext | None = None
    _stamp: tuple[int, ...] = ()
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def context(self) -> ssl.SSLContext:
        """Return TLS settings from the current files; the previous settings if the files cannot be read."""
        with self._lock:
            try:
                stamp = tuple(number for path in (self.certificate, self.key) for number in _stamp(path))
                if self._context is None or stamp != self._stamp:
                    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                    context.minimum_version = ssl.TLSVersion.TLSv1_2
                    context.load_cert_chain(self.certificate, self.key)
                    self._context = context
                    self._stamp = stamp
            except (OSError, ssl.SSLError):
                if self._context is None:
                    raise
                logger.exception("certificate %s cannot be read again: the former one stays", self.certificate)
            return self._context


def _stamp(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_ino, status.st_size


class LogServer(DualStackServer):
    """Serves one controller's metadata log.

    Parameters
    ----------
    address
        Address to listen on.
    directory
        Kafka's `metadata.log.dir`.
    certificate, key
        PEM files.
    token_file
        File with the bearer token.
    """

    request_queue_size = 16

    def __init__(
        self, address: tuple[str, int], directory: Path, certificate: Path, key: Path, token_file: Path
    ) -> None:
        self.directory = directory
        self.token = TokenFile(token_file)
        self._until: dict[Any, tuple[str, float]] = {}
        """Peer and end of each open connection, by the monotonic clock."""
        self._until_lock = threading.Lock()
        self.trial = threading.Lock()
        """Held while addresses are tried."""
        self._certificate = ServerCertificate(certificate, key)
        self._certificate.context()  # refuse to start with an invalid certificate or key
        super().__init__(address, LogRequestHandler)

    @property
    def folder(self) -> Path:
        """The metadata log's folder."""
        return self.directory / LOG_FOLDER

    @override
    def get_request(self) -> tuple[socket, Any]:
        """Accept a connection. The connection's own thread does the handshake."""
        plain, address = super().get_request()
        plain.settimeout(_CONNECTION_TIMEOUT_SECONDS)
        wrapped = self._certificate.context().wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
        return wrapped, address

    @override
    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Return whether there is room for a connection; it has to show the token soon."""
        peer = str(client_address[0])
        with self._until_lock:
            of_peer = sum(peer == other for other, _ in self._until.values())
            if len(self._until) >= _MOST_CONNECTIONS or of_peer >= _MOST_OF_ONE_ADDRESS:
                return False
            self._until[request] = (peer, time.monotonic() + _CONNECTION_TIMEOUT_SECONDS)
            return True

    def prolong(self, request: Any) -> None:
        """Let a connection go on that has shown the token."""
        with self._until_lock:
            if request in self._until:
                self._until[request] = (self._until[request][0], time.monotonic() + _AUTHORIZED_SECONDS)

    @override
    def service_actions(self) -> None:
        """End the connections whose time is over; one that sends a byte now and then meets no other limit."""
        now = time.monotonic()
        with self._until_lock:
            over = [request for request, (_, until) in self._until.items() if now > until]
        for request in over:
            with suppress(OSError):
                request.shutdown(SHUT_RDWR)

    @override
    def shutdown_request(self, request: Any) -> None:
        """Close a connection, and make room for another one."""
        with self._until_lock:
            self._until.pop(request, None)
        super().shutdown_request(request)

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log broken connections without a stack trace, because clients often disconnect."""
        logger.info("connection from %s broke off", client_address, exc_info=logger.isEnabledFor(logging.DEBUG))

    def stop(self) -> None:
        """End `serve_forever` from a signal handler."""
        threading.Thread(target=self.shutdown, daemon=True).start()


class LogRequestHandler(BaseHTTPRequestHandler):
    """Answers GET for the listing, for files and for health, and POST for a trial of addresses; refuses all else."""

    server: LogServer
    protocol_version = "HTTP/1.1"
    server_version = "kraftbridge-logserver"
    sys_version = ""
    timeout = _CONNECTION_TIMEOUT_SECONDS

    def do_GET(self) -> None:
        """Answer a GET request."""
        path = urlsplit(self.path).path
        if path == HEALTH_PATH:
            self._send(HTTPStatus.OK, b"ok\n", "text/plain")
            return
        if not self._is_authorized():
            return
        if path == FILES_PATH:
            self._list()
            return
        folder, _, name = path.rpartition("/")
        name = unquote(name)
        # The whole name must match, so it cannot contain a path.
        if folder == FILES_PATH and _SERVED_NAME.fullmatch(name):
            self._serve(name)
        else:
            self._send(HTTPStatus.NOT_FOUND, b"no such file\n", "text/plain")

    def do_POST(self) -> None:
        """Answer a POST request."""
        self.close_connection = True  # what of the body is not read must not be taken for the next request
        if not self._is_authorized():
            return
        if urlsplit(self.path).path != paths.PATHS_PATH:
            self._send(HTTPStatus.NOT_FOUND, b"no such resource\n", "text/plain")
            return
        targets = self._targets()
        if targets is None:
            words = f"up to {paths.MOST_ADDRESSES} pairs of host and port, in {paths.MOST_BYTES} bytes of JSON\n"
            self._send(HTTPStatus.BAD_REQUEST, words.encode(), "text/plain")
        elif not self.server.trial.acquire(blocking=False):
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, b"other addresses are being tried\n", "text/plain")
        else:
            try:
                failures = paths.tried(targets)
            finally:
                self.server.trial.release()
            self._send(HTTPStatus.OK, json.dumps({"failures": failures}).encode(), "application/json")

    def _is_authorized(self) -> bool:
        """Return whether the request has the token; answer it if it has not."""
        if self.server.token.accepts(self.headers.get("Authorization")):
            self.server.prolong(self.request)
            return True
        self._send(HTTPStatus.UNAUTHORIZED, b"the bearer token is missing or wrong\n", "text/plain")
        return False

    def _targets(self) -> list[paths.Target] | None:
        """Return the addresses in the request's body, None if it is no list of them."""
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch(r"\d{1,9}", length) or int(length) > paths.MOST_BYTES:
            return None
        try:
            targets = [_target(pair) for pair in parsed_json(self.rfile.read(int(length)))["targets"]]
        except (ValueError, KeyError, TypeError):
            return None
        return targets if len(targets) <= paths.MOST_ADDRESSES else None

    def _list(self) -> None:
        files = []
        try:
            for entry in self.server.folder.iterdir():
                if _SERVED_NAME.fullmatch(entry.name):
                    # Kafka may have deleted the file after the directory was listed.
                    with contextlib.suppress(FileNotFoundError):
                        status = entry.lstat()
                        if stat.S_ISREG(status.st_mode):
                            files.append({"name": entry.name, "size": status.st_size})
        except OSError as error:
            message = f"the metadata log cannot be listed: {error.strerror}\n"
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, message.encode(), "text/plain")
            return
        owner = LocalLogFiles(self.server.directory).owner()
        body = {
            "files": sorted(files, key=lambda file: str(file["name"])),
            "owner": None if owner is None else {"nodeId": owner.node_id, "clusterId": owner.cluster_id},
            "at": time.time(),
        }
        self._send(HTTPStatus.OK, json.dumps(body).encode(), "application/json")

    def _serve(self, name: str) -> None:
        try:
            # Kafka's container, which writes here, could put a link to this container's key, or a pipe.
            with bounds.regular(self.server.folder / name) as file:
                size = file.seek(0, 2)
                start, end = self._range(size)
                if start >= end:
                    self._send(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, b"", "text/plain", f"bytes */{size}")
                    return
                file.seek(start)
                content_range = f"bytes {start}-{end - 1}/{size}"
                self._send_head(HTTPStatus.PARTIAL_CONTENT, end - start, "application/octet-stream", content_range)
                left = end - start
                while left:
                    chunk = file.read(min(_CHUNK_BYTES, left))
                    if not chunk:  # Kafka truncated the file in the meantime: the client sees a short body
                        self.close_connection = True
                        return
                    self.wfile.write(chunk)
                    left -= len(chunk)
        except (FileNotFoundError, bounds.PathRefusedError):
            self._send(HTTPStatus.NOT_FOUND, b"no such file\n", "text/plain")

    def _range(self, size: int) -> tuple[int, int]:
        match = _RANGE.fullmatch(self.headers.get("Range", "bytes=0-"))
        if match is None:
            return 0, 0
        start = int(match[1])
        end = int(match[2]) + 1 if match[2] else size
        return start, min(end, size, start + _MAXIMUM_RESPONSE_BYTES)

    def _send(self, status: HTTPStatus, body: bytes, kind: str, content_range: str | None = None) -> None:
        self._send_head(status, len(body), kind, content_range)
        self.wfile.write(body)

    def _send_head(self, status: HTTPStatus, length: int, kind: str, content_range: str | None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(length))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        if content_range is not None:
            self.send_header("Content-Range", content_range)
        self.end_headers()

    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Log requests at debug level, because probes come every few seconds."""
        logger.debug("%s %s", self.address_string(), format % args)


def _target(pair: Any) -> paths.Target:
    host, port = pair
    if not _HOST.fullmatch(host) or not 0 < int(port) < _PORTS:
        raise ValueError("no host and port")
    return host, int(port)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM."""
    log_visibly()
    parser = argparse.ArgumentParser(prog="python -m kraftbridge.pods.logserver", description=__doc__)
    parser.add_argument(
        "--directory", required=True, type=Path, help="Kafka's metadata.log.dir; __cluster_metadata-0 is in it"
    )
    parser.add_argument("--address", default="", help="address to listen on; all by default")
    parser.add_argument("--port", type=int, default=9443)
    parser.add_argument("--certificate", required=True, type=Path, help="PEM chain; read again when it changes")
    parser.add_argument("--key", required=True, type=Path, help="PEM key")
    parser.add_argument("--token-file", required=True, type=Path, help="bearer token; read again when it changes")
    options = parser.parse_args(arguments)
    try:
        server = LogServer(
            (options.address, options.port), options.directory, options.certificate, options.key, options.token_file
        )
    except OSError as error:
        logger.error("the log server cannot start: %s", error)  # noqa: TRY400 - expected; the message says all
        return 2
    signal.signal(signal.SIGTERM, lambda *_: server.stop())
    logger.info("serving the metadata log in %s on port %d", options.directory, server.server_address[1])
    with server:
        server.serve_forever(poll_interval=0.5)
    return 0


if __name__ == "__main__":
    sys.exit(main())
