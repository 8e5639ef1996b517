"""HTTP servers that are reached over IPv4 and IPv6."""

from __future__ import annotations

import socket
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from typing_extensions import override


def every_address() -> str:
    """Return the host on which a server listens on every address: of both families where the kernel has IPv6."""
    return "::" if socket.has_dualstack_ipv6() else "0.0.0.0"  # noqa: S104 - reached from other pods, by design


class DualStackServer(ThreadingHTTPServer):
    """A server that also answers a kubelet, an operator or a Prometheus on an IPv6 network.

    The kubelet probes a pod at its first IP, which is an IPv6 address where the cluster's pods have that family first.

    Parameters
    ----------
    address
        Host and port to listen on. Without a host: every address.
    handler
        Answers the requests.
    """

    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        host, port = address
        host = host or every_address()
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), handler)

    @override
    def server_bind(self) -> None:
        """Bind for both families, whatever ``net.ipv6.bindv6only`` says."""
        if self.address_family is socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()
