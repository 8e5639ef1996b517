"""Servers answer over IPv4 and over IPv6."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http import HTTPStatus
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler

import pytest
from prometheus_client import CollectorRegistry, start_http_server

from kraftbridge.outside.serving import DualStackServer, every_address
from kraftbridge.services.fleet import Health

LOOPBACKS = ("127.0.0.1", "::1")


class Ok(BaseHTTPRequestHandler):
    """Answers every request."""

    def do_GET(self) -> None:
        """Answer."""
        self.send_response(HTTPStatus.NO_CONTENT)
        self.end_headers()


@pytest.fixture(params=["", "127.0.0.1", "::1"])
def server(request: pytest.FixtureRequest) -> Iterator[tuple[str, int]]:
    """Serve on a host; return host and port."""
    served = DualStackServer((request.param, 0), Ok)
    threading.Thread(target=served.serve_forever, daemon=True).start()
    yield request.param, served.server_address[1]
    served.shutdown()
    served.server_close()


def status(host: str, port: int, path: str = "/") -> int:
    """Return the status of an answer."""
    connection = HTTPConnection(host, port, timeout=5)
    connection.request("GET", path)
    return connection.getresponse().status


def test_without_a_host_both_families_are_answered(server: tuple[str, int]) -> None:
    host, port = server
    for loopback in LOOPBACKS:
        if host in ("", loopback):
            assert status(loopback, port) == HTTPStatus.NO_CONTENT
        else:
            with pytest.raises(OSError, match="refused"):
                status(loopback, port)


def test_a_kernel_without_ipv6_is_served_over_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    served = DualStackServer(("", 0), Ok)
    assert served.server_address[0] == "0.0.0.0"
    served.server_close()


@pytest.mark.parametrize("loopback", LOOPBACKS)
def test_the_operator_answers_probes_over_both_families(loopback: str) -> None:
    health = Health(0)
    assert status(loopback, health.port, "/healthz") == HTTPStatus.OK
    health.close()


@pytest.mark.parametrize("loopback", LOOPBACKS)
def test_metrics_are_served_over_both_families(loopback: str) -> None:
    served, _ = start_http_server(0, addr=every_address(), registry=CollectorRegistry())
    assert status(loopback, served.server_port, "/metrics") == HTTPStatus.OK
    served.shutdown()
    served.server_close()
