"""Decides to which addresses the clients of one migration may connect."""

from __future__ import annotations

import ipaddress
import os
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from kraftbridge.exceptions import ObservationError
from kraftbridge.models.objects import entries, section
from kraftbridge.models.observation import RefusedEndpoint
from kraftbridge.outside.endpoints import Address, EndpointNotAllowedError, plain_address, special
from kraftbridge.storage.ports import ReadPort

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_LISTED_AGAIN_SECONDS: Final = 1.0
"""Pause between two looks for an address that is not known: a tree may advertise thousands."""
_MOST_REFUSED: Final = 20
_ENDED: Final = ("Succeeded", "Failed")
"""Phases of a pod whose address may be somebody else's by now."""
_NO_ADDRESS: Final = ("", "None")
"""Cluster IPs of Services without one."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """What is the same for all migrations."""

    networks: tuple[Network, ...] = ()
    """``connect.allow`` of the chart's values."""
    api_servers: tuple[str, ...] = ()
    """Addresses of the API server."""


class Endpoints:
    """Judges connections of one migration's clients; thread-safe.

    Allowed are the pods and Services of its namespace, and what the hosts of its connect strings resolve to,
    unless that is loopback, link-local or the API server. The chart's ``connect.allow`` allows more.

    Parameters
    ----------
    named
        Hosts of the connect strings, as they are connected to.
    allowed
        Networks that are allowed besides.
    api_servers
        Addresses of the API server (``host:port``, or a host alone for every port).
    """

    def __init__(
        self,
        kubernetes: ReadPort,
        namespace: str,
        named: Collection[str],
        allowed: Collection[Network] = (),
        api_servers: Collection[str] = (),
    ) -> None:
        self._kubernetes = kubernetes
        self._namespace = namespace
        self._named = frozenset(named)
        self._allowed = tuple(allowed)
        self._api_servers = frozenset(api_servers)
        self._lock = threading.Lock()
        self._resolved: set[Address] = set()
        """What the hosts of the connect strings have resolved to."""
        self._own: frozenset[Address] = frozenset()
        self._listed_at = float("-inf")
        self._refused: dict[tuple[str, int], RefusedEndpoint] = {}

    @property
    def refused(self) -> tuple[RefusedEndpoint, ...]:
        """Where the clients were kept from lately."""
        with self._lock:
            return tuple(self._refused.values())

    def judge(self, host: str, address: str, port: int) -> None:
        """Let a connection pass to an address that is allowed.

        Raises
        ------
        EndpointNotAllowedError
            It is not allowed.
        OSError
            Which addresses the namespace has is not known.
        """
        self._judge(host, address, port, is_named=host in self._named)

    def judge_named(self, host: str, address: str, port: int) -> None:
        """Judge a connection to a host of a connect string that is known by its address alone.

        Raises
        ------
        EndpointNotAllowedError
            It is not allowed.
        """
        self._judge(host, address, port, is_named=True)

    def _judge(self, host: str, address: str, port: int, *, is_named: bool) -> None:
        plain = plain_address(address)
        reason = self._reason(plain, port, is_named=is_named)
        with self._lock:
            if not reason:
                self._refused.pop((host, port), None)
                return
            if len(self._refused) < _MOST_REFUSED:
                self._refused[host, port] = RefusedEndpoint(host, port, str(plain), reason)
        network = ipaddress.ip_network(plain)
        raise EndpointNotAllowedError(
            f"EndpointNotAllowed: the operator does not connect to {host}:{port} at {plain}: {reason}. "
            f"If it belongs to the cluster, add {network} to connect.allow of the chart's values"
        )

    def _reason(self, address: Address, port: int, *, is_named: bool) -> str:
        """Return why an address is not allowed, ``""`` if it is."""
        if any(address in network for network in self._allowed):
            return ""
        if reason := special(address):
            return reason
        if {str(address), f"{address}:{port}", f"[{address}]:{port}"} & self._api_servers:
            return "it is the API server"
        if is_named:
            self._resolved.add(address)
            return ""
        if address in self._resolved or address in self._own_addresses(address):
            return ""
        return f"it is no pod or Service of namespace {self._namespace}, and no host of the connect strings"

    def _own_addresses(self, wanted: Address) -> frozenset[Address]:
        """Return the addresses of the namespace's pods and Services, looked up anew for one that is not among them."""
        with self._lock:
            if wanted not in self._own and time.monotonic() - self._listed_at >= _LISTED_AGAIN_SECONDS:
                try:
                    self._own = frozenset(map(plain_address, self._listed()))
                except ObservationError as error:
                    raise OSError(f"the addresses of the namespace are not known: {error}") from error
                self._listed_at = time.monotonic()
            return self._own

    def _listed(self) -> list[str]:
        found: list[str] = []
        for pod in self._kubernetes.list("v1", "Pod", self._namespace):
            status = section(pod, "status")
            if status.get("phase") not in _ENDED:
                found += [str(status.get("podIP") or ""), *(str(each["ip"]) for each in entries(status, "podIPs"))]
        for service in self._kubernetes.list("v1", "Service", self._namespace):
            spec = section(service, "spec")
            found += [str(spec.get("clusterIP") or ""), *map(str, entries(spec, "clusterIPs"))]
        return [address for address in found if address not in _NO_ADDRESS]


def api_servers(kubernetes: ReadPort) -> tuple[str, ...]:
    """Return the addresses of the API server: its Service's for every port, and its own with their ports."""
    service = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    return tuple(filter(None, (service, *kubernetes.api_servers())))
