"""Measures how long no controller accepts metadata writes.

The probe is a ``CreateTopics`` request that only validates; it changes nothing. It goes through the brokers, as a client's request does. In
ZooKeeper mode only the broker that is the controller answers it (``KafkaApis.handleCreateTopicsRequest``); the others answer NOT_CONTROLLER.
In migration mode and in KRaft mode any broker forwards it to the active controller (KIP-590). A lost measurement affects only the figure.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from kafka.protocol.admin.topics import CreateTopicsRequest

from kraftbridge.kafka.security import Security
from kraftbridge.kafka.wire import Connection, WireError, host_ports
from kraftbridge.models.observation import ControllerProbe

log = logging.getLogger(__name__)

EVERY_SECONDS: Final = 0.25
"""Pause between two probes."""
_JOIN_SECONDS: Final = 3.0
PROBE_TOPIC: Final = "kraftbridge-probe"
PROBE_SECONDS: Final = 1.0
"""Time limit for one node's answer. A slower node counts as unavailable."""
_NOT_ANSWERED_BY_A_CONTROLLER: Final = frozenset({-1, 7, 8, 13, 41, 80})
"""Unknown server error, timed out, broker not available, network exception, NOT_CONTROLLER, stale broker epoch."""


class ControllerProbeClient:
    """Sends probes. Not thread-safe.

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
        """Return whether a controller processed the request, whatever its answer was."""
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
        """Return the address of the controller as the first broker that answers knows it; in KRaft mode that is any broker."""
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


class ProbeClient(Protocol):
    """The interface that `Prober` needs; `ControllerProbeClient` implements it."""

    def accepts(self) -> bool:
        """Return whether a controller accepts a write now; bounded in time."""

    def close(self) -> None:
        """Close its connections."""


class Prober:
    """Probes in a separate thread until `rest` is called.

    Parameters
    ----------
    open_client
        Creates the client when the thread starts.
    clock
        Returns seconds. Tests replace it.
    """

    def __init__(self, open_client: Callable[[], ProbeClient], clock: Callable[[], float] = time.monotonic) -> None:
        self._open_client = open_client
        self._clock = clock
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._key = ""
        self._refused_since: float | None = None
        self._accepted_once = False
        self._longest = ControllerProbe(0, None)

    def measure(self, key: str) -> ControllerProbe:
        """Start probing if needed, and return the longest gap so far under ``key`` (a phase); another key starts from zero."""
        with self._lock:
            if key != self._key:
                self._key, self._longest = key, ControllerProbe(0, None)
            longest = self._longest
        if self._thread is None or not self._thread.is_alive():
            self._stop.clear()
            self._thread = threading.Thread(target=self._run, name="probe the controller", daemon=True)
            self._thread.start()
        return longest

    def rest(self) -> None:
        """Stop probing."""
        self._stop.set()

    def close(self) -> None:
        """Stop probing and wait for the thread's end."""
        self.rest()
        if self._thread is not None:
            self._thread.join(_JOIN_SECONDS)

    def note(self, *, accepted: bool, asked_at: float, answered_at: float) -> None:
        """Record one probe. A gap counts if writes were accepted before it and after it."""
        with self._lock:
            if not accepted:
                if self._accepted_once and self._refused_since is None:
                    self._refused_since = asked_at
                return
            since, self._refused_since, self._accepted_once = self._refused_since, None, True
            if since is None:
                return
            milliseconds = round((answered_at - since) * 1000)
            if milliseconds > self._longest.longest_milliseconds:
                self._longest = ControllerProbe(milliseconds, datetime.now(UTC))

    def _run(self) -> None:
        client = self._open_client()
        with self._lock:
            self._refused_since, self._accepted_once = None, False
        try:
            while not self._stop.is_set():
                asked_at = self._clock()
                accepted = client.accepts()
                answered_at = self._clock()
                self.note(accepted=accepted, asked_at=asked_at, answered_at=answered_at)
                self._stop.wait(max(EVERY_SECONDS - (answered_at - asked_at), 0.0))
        except Exception:
            log.exception("the probe of the controller broke off; the next step begins another")
        finally:
            client.close()
