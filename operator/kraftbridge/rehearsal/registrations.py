"""Substitutes for brokers: each registers with the controller as a broker in migration mode and sends heartbeats.

A registration contains disarmed endpoints (`kraftbridge.rehearsal.tree.disarm`).
The controller takes brokers' addresses only from the registrations (``ControllerRegistration``,
``BrokerRegistrationRequest``), so no request reaches a real broker.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kafka.protocol.api_message import ApiMessage

from kraftbridge.exceptions import RehearsalError
from kraftbridge.kafka.client import Security
from kraftbridge.kafka.wire import NOT_CONTROLLER, Connection, WireError, error_name
from kraftbridge.rehearsal import messages
from kraftbridge.rehearsal.tree import BrokerRegistration

_REGISTRATION_VERSION: Final = 4
_HEARTBEAT_VERSION: Final = 1
_CONNECT_SECONDS: Final = 10.0
_REQUEST_SECONDS: Final = 30.0
_HEARTBEAT_PERIOD_SECONDS: Final = 2.0
_FAR_OFFSET: Final = 2**62
"""The controller unfences a broker that has the metadata up to its own registration (``BrokerHeartbeatManager``)."""
_TRY_AGAIN: Final = frozenset({6, 7, 15, NOT_CONTROLLER})
"""Not leader, request timed out, coordinator not available, not controller."""


# The names are Kafka's own.
class BrokerRegistrationRequest(ApiMessage, load_json=messages):  # type: ignore[call-arg,misc]  # noqa: D101
    pass


class BrokerRegistrationResponse(ApiMessage, load_json=messages):  # type: ignore[call-arg,misc]  # noqa: D101
    pass


class BrokerHeartbeatRequest(ApiMessage, load_json=messages):  # type: ignore[call-arg,misc]  # noqa: D101
    pass


class BrokerHeartbeatResponse(ApiMessage, load_json=messages):  # type: ignore[call-arg,misc]  # noqa: D101
    pass


@dataclass(slots=True)
class Registrations:
    """Registers brokers with one controller and sends their heartbeats on a thread."""

    port: int
    cluster_id: str
    level: int
    brokers: Sequence[BrokerRegistration]
    refused: dict[int, str] = field(default_factory=dict)
    """Reason for a refused registration, by broker id."""
    unfenced: set[int] = field(default_factory=set)
    """Brokers that the controller has unfenced."""
    _epochs: dict[int, int] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def register(self, deadline_seconds: float) -> None:
        """Register every broker. Returns when each is accepted or refused.

        Raises
        ------
        RehearsalError
            No controller became active in time.
        """
        deadline = time.monotonic() + deadline_seconds
        for broker in self.brokers:
            answer = self._until_active(
                BrokerRegistrationRequest, _REGISTRATION_VERSION, deadline, self._fields(broker)
            )
            if answer.error_code:
                self.refused[broker.id] = error_name(answer.error_code)
            else:
                self._epochs[broker.id] = answer.broker_epoch

    def _fields(self, broker: BrokerRegistration) -> Mapping[str, Any]:
        request: Any = BrokerRegistrationRequest
        return {
            "broker_id": broker.id,
            "cluster_id": self.cluster_id,
            "incarnation_id": uuid.uuid4(),
            "listeners": [
                request.Listener(
                    name=listener.name,
                    host=listener.host,
                    port=listener.port,
                    security_protocol=listener.security_protocol.value,
                )
                for listener in broker.listeners
            ],
            # A broker in migration mode supports only the level of its inter.broker.protocol.version.
            "features": [
                request.Feature(
                    name="metadata.version", min_supported_version=self.level, max_supported_version=self.level
                ),
                request.Feature(name="kraft.version", min_supported_version=0, max_supported_version=1),
            ],
            "rack": broker.rack,
            "is_migrating_zk_broker": True,
            "log_dirs": [uuid.uuid4()],
            "previous_broker_epoch": -1,
        }

    def _until_active(self, request: Any, version: int, deadline: float, fields: Mapping[str, Any]) -> Any:
        last = "no answer"
        while time.monotonic() < deadline:
            try:
                with Connection("127.0.0.1", self.port, Security(), _CONNECT_SECONDS) as connection:
                    answer = connection.call(
                        request, _REQUEST_SECONDS, max_version=version, min_version=version, **fields
                    )
                if answer.error_code not in _TRY_AGAIN:
                    return answer
                last = error_name(answer.error_code)
            except WireError as error:
                last = str(error)
            time.sleep(0.2)
        raise RehearsalError(f"the scratch controller on port {self.port} did not become active: {last}")

    def start_heartbeats(self) -> None:
        """Send heartbeats for all registered brokers until `close`."""
        self._thread = threading.Thread(target=self._beat, name="heartbeats", daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        while not self._stop.is_set():
            try:
                with Connection("127.0.0.1", self.port, Security(), _CONNECT_SECONDS) as connection:
                    while not self._stop.is_set():
                        self._beat_once(connection)
                        self._stop.wait(_HEARTBEAT_PERIOD_SECONDS)
            except WireError:  # the observer of the process reports the error
                self._stop.wait(_HEARTBEAT_PERIOD_SECONDS)

    def _beat_once(self, connection: Connection) -> None:
        for identity, epoch in list(self._epochs.items()):
            answer = connection.call(
                BrokerHeartbeatRequest,
                _REQUEST_SECONDS,
                max_version=_HEARTBEAT_VERSION,
                broker_id=identity,
                broker_epoch=epoch,
                current_metadata_offset=_FAR_OFFSET,
                want_fence=False,
                want_shut_down=False,
            )
            if not answer.error_code and not answer.is_fenced:
                self.unfenced.add(identity)

    def leave(self, identity: int) -> None:
        """Send no further heartbeats for a broker: a real one may register when the session has ended."""
        self._epochs.pop(identity, None)

    def fenced(self, seconds: float) -> set[int]:
        """Return the brokers that the controller has not unfenced; waits up to so many seconds until there is none."""
        deadline = time.monotonic() + seconds
        brokers = {broker.id for broker in self.brokers}
        missing = brokers - self.unfenced
        while missing and time.monotonic() < deadline:
            time.sleep(0.2)
            missing = brokers - self.unfenced
        return missing

    def close(self) -> None:
        """Stop the heartbeats."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_CONNECT_SECONDS)
