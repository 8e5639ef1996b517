"""Asks whether a controller takes metadata writes now: a ``CreateTopics`` that only validates, through the brokers as a client would.

It changes nothing. In ZooKeeper mode only the broker that is controller answers it (``KafkaApis.handleCreateTopicsRequest``; others say
NOT_CONTROLLER); in migration mode and KRaft any broker forwards it to the active controller (KIP-590).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kafka.protocol.admin.topics import CreateTopicsRequest

from kraftbridge.kafka.security import Security
from kraftbridge.kafka.wire import Connection, WireError, host_ports

PROBE_TOPIC: Final = "kraftbridge-probe"
PROBE_SECONDS: Final = 1.0
"""How long one node may take to answer; longer counts as unavailable."""
_NOT_ANSWERED_BY_A_CONTROLLER: Final = frozenset({-1, 7, 8, 13, 41, 80})
"""Unknown server error, timed out, broker not available, network exception, NOT_CONTROLLER, stale broker epoch."""


class ControllerProbeClient:
    """One client for one thread.

    Parameters
    ----------
    bootstrap_servers, client_properties
        As for `BrokerClient`.
    """

    def __init__(self, bootstrap_servers: str, client_properties: Mapping[str, str]) -> None:
        self._bootstrap = host_ports(bootstrap_servers)
        self._security = Security.from_properties(client_properties)
        self._known: dict[int, tuple[str, int]] = {}
        self._connections: dict[tuple[str, int], Connection] = {}
        self._last: tuple[str, int] | None = None

    def accepts(self) -> bool:
        """Return whether a controller judged the request: what it says about it does not matter."""
        tried: set[tuple[str, int]] = set()
        for address in (self._last, self._controller_address()):
            if address is None or address in tried:
                continue
            tried.add(address)
            try:
                if self._create(address) not in _NOT_ANSWERED_BY_A_CONTROLLER:
                    self._last = address
                    return True
            except WireError:
                self._drop(address)
        self._last = None
        return False

    def close(self) -> None:
        """Close all connections."""
        for address in list(self._connections):
            self._drop(address)

    def _controller_address(self) -> tuple[str, int] | None:
        """Return whom the first broker that answers takes for the controller (in KRaft: any broker)."""
        for address in dict.fromkeys([*self._known.values(), *self._bootstrap]):
            try:
                answer = self._connected(address).metadata(PROBE_SECONDS)
            except WireError:
                self._drop(address)
                continue
            if answer.brokers:
                self._known = {b.node_id: (b.host, b.port) for b in answer.brokers}
            return self._known.get(answer.controller_id)
        return None

    def _create(self, address: tuple[str, int]) -> int:
        topic = CreateTopicsRequest.CreatableTopic(
            name=PROBE_TOPIC, num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        answer: Any = self._connected(address).call(
            CreateTopicsRequest,
            PROBE_SECONDS,
            max_version=4,
            topics=[topic],
            timeout_ms=int(PROBE_SECONDS * 1000),
            validate_only=True,
        )
        return int(answer.topics[0].error_code)

    def _connected(self, address: tuple[str, int]) -> Connection:
        connection = self._connections.get(address)
        if connection is None or not connection.usable:
            self._drop(address)
            connection = Connection(*address, self._security, PROBE_SECONDS)
            self._connections[address] = connection
        return connection

    def _drop(self, address: tuple[str, int]) -> None:
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()
