"""The client of the KRaft controllers.

It describes the quorum, sends the requests that only controllers answer, and reads their gauges.
"""

from __future__ import annotations

import http.client
import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from kafka.protocol.admin.client_quotas import AlterClientQuotasRequest
from kafka.protocol.admin.cluster import DescribeClusterRequest, DescribeQuorumRequest, UpdateFeaturesRequest
from kafka.protocol.admin.topics import CreateTopicsRequest, DeleteTopicsRequest
from prometheus_client.parser import text_string_to_metric_families

from kraftbridge.constants import CANARY_USER, METRICS_PORT, canary_topic
from kraftbridge.exceptions import ActionError, ActionRefusedError, ObservationError
from kraftbridge.kafka.client import Security, resolve
from kraftbridge.kafka.connections import Connections
from kraftbridge.kafka.wire import NOT_CONTROLLER, UNKNOWN_TOPIC, Connection, ConnectionLostError, WireError, error_name
from kraftbridge.models.metadata_version import FEATURE, Upgrade, text_of
from kraftbridge.models.observation import (
    ControllerMetrics,
    FeatureAnswer,
    NodeFeatures,
    QuorumState,
    Unobserved,
    VoterState,
)
from kraftbridge.models.phase import ZkMigrationState
from kraftbridge.outside import bounds
from kraftbridge.outside.endpoints import Judge, anywhere, connect
from kraftbridge.storage.zookeeper import CANARY_QUOTA

CONNECT_SECONDS: Final = 2.0
REQUEST_SECONDS: Final = 3.0
QUORUM_CALL_SECONDS: Final = 4.0
"""Time budget of one observation, over all controllers that it asks."""
WRITE_SECONDS: Final = 6.0

_NOT_LEADER: Final = 6
_TOPIC_EXISTS: Final = 36
_DELETION_DISABLED: Final = 73
_REFUSALS: Final = frozenset({29, 31, 35, 42, 44, 95})
"""Errors that do not go away when the request is repeated (``org.apache.kafka.common.protocol.Errors``):
topic and cluster authorization, unsupported version, invalid request, policy violation, invalid update version."""
_UPGRADE_TYPES: Final = {Upgrade.UPGRADE: 1, Upgrade.SAFE_DOWNGRADE: 2, Upgrade.UNSAFE_DOWNGRADE: 3}
"""``UpdateFeaturesRequest.json``, field ``UpgradeType``."""
_METADATA_TOPIC: Final = "__cluster_metadata"

T = TypeVar("T")


class ControllerClient:
    """Sends requests to the KRaft controllers. Works as soon as one controller listens; thread-safe.

    Parameters
    ----------
    addresses
        Host and port of each controller's listener, by node id.
    client_properties
        Java client settings for that listener.
    judge
        Where the client may connect to.

    Raises
    ------
    InvalidSpecError
        A client setting is missing or not supported.
    """

    def __init__(
        self,
        addresses: Mapping[int, tuple[str, int]],
        client_properties: Mapping[str, str],
        judge: Judge = anywhere,
    ) -> None:
        self._addresses = dict(addresses)
        self._security = Security.from_properties(client_properties, "controller.properties", judge)
        self._connections = Connections(self._security)
        self._leader = min(self._addresses)
        self._lock = threading.Lock()
        self._source = "controllers " + ",".join(str(node) for node in sorted(self._addresses))

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            self._connections.close()

    def quorum_state(self) -> QuorumState:
        """Return the quorum as its leader describes it (DescribeQuorum, KIP-595 and KIP-836).

        Raises
        ------
        ObservationError
            No controller answered as leader within four seconds. The message contains the answer of each controller.
        """
        topic = DescribeQuorumRequest.TopicData
        topics = [topic(topic_name=_METADATA_TOPIC, partitions=[topic.PartitionData(partition_index=0)])]

        def ask(connection: Connection) -> Any:
            answer = connection.call(DescribeQuorumRequest, REQUEST_SECONDS, max_version=2, topics=topics)
            if answer.error_code:
                raise _AnswerError(answer.error_code)
            partition = answer.topics[0].partitions[0]
            if partition.error_code:
                raise _AnswerError(partition.error_code)
            return partition

        try:
            partition = self._ask_leader(ask, QUORUM_CALL_SECONDS)
        except _AnswerError as error:
            raise ObservationError(self._source, f"DescribeQuorum answered {error}") from error
        except _NobodyError as error:
            raise ObservationError(
                self._source, f"no controller leads yet, or none that does answers: {error}"
            ) from error
        return QuorumState(
            leader_id=partition.leader_id,
            leader_epoch=partition.leader_epoch,
            high_watermark=partition.high_watermark,
            voters=_voters(partition),
            observers=frozenset(o.replica_id for o in partition.observers),
        )

    def registered_controllers(self) -> frozenset[int]:
        """Return the ids of the controllers that are registered with the active one (DescribeCluster, KIP-919).

        A voter can follow its leader without being registered: ``ControllerRegistrationManager`` does not repeat a
        request that timed out before it was sent (seen in 3.9.1 on a busy machine).
        The migration then waits for this voter without end.

        Raises
        ------
        ObservationError
            No active controller answered.
        """

        def ask(connection: Connection) -> frozenset[int]:
            answer = connection.call(
                DescribeClusterRequest,
                REQUEST_SECONDS,
                max_version=1,
                include_cluster_authorized_operations=False,
                endpoint_type=2,
            )
            if answer.error_code:
                raise _AnswerError(answer.error_code)
            return frozenset(b.broker_id for b in answer.brokers)

        try:
            with self._lock:
                return self._ask_node(self._leader, ask, CONNECT_SECONDS)
        except (_AnswerError, WireError) as error:
            raise ObservationError(self._source, f"DescribeCluster at controller {self._leader}: {error}") from error

    def features(self) -> dict[int, NodeFeatures | Unobserved]:
        """Ask each controller for its features.

        When the time budget of the call is used up, the remaining controllers are not asked.
        """
        with self._lock:
            until = time.monotonic() + QUORUM_CALL_SECONDS
            return {node: self._features_of(node, until) for node in sorted(self._addresses)}

    def write_canary(self, value: int, replicas: int) -> None:
        """Create the canary topic and set the canary quota at the active controller; returns when both are committed.

        An existing topic is no error.
        The topic has one partition and no settings: a controller that restarts takes the settings of a topic
        that was created and deleted since the last snapshot for valid, and writes them to ZooKeeper
        when it becomes active (Kafka 3.9.1, ``tests/integration/test_rollback_under_writes.py``).

        Raises
        ------
        ActionRefusedError
            The operator's principal may not alter quotas.
        ActionError
            No active controller accepted the request.
            In pre-migration mode the quorum accepts no writes before the copy.
        """
        name = canary_topic(value)
        topic = CreateTopicsRequest.CreatableTopic
        wanted = topic(
            name=name,
            num_partitions=1,
            replication_factor=replicas,
            assignments=[],
        )

        def create(connection: Connection) -> None:
            answer = connection.call(
                CreateTopicsRequest,
                WRITE_SECONDS,
                max_version=5,
                topics=[wanted],
                timeout_ms=int(WRITE_SECONDS * 1000),
                validate_only=False,
            )
            _raise_first([t for t in answer.topics if t.error_code != _TOPIC_EXISTS])

        self._act(f"creation of topic {name}", create)
        self._alter_canary(value=float(value), remove=False)

    def remove_canary(self, value: int) -> None:
        """Remove the canary quota and topic at the active controller; absent ones are no error.

        If ``delete.topic.enable`` is false, the empty topic remains.
        """
        name = canary_topic(value)

        def delete(connection: Connection) -> None:
            answer = connection.call(
                DeleteTopicsRequest,
                WRITE_SECONDS,
                max_version=5,
                topic_names=[name],
                timeout_ms=int(WRITE_SECONDS * 1000),
            )
            _raise_first([r for r in answer.responses if r.error_code not in {UNKNOWN_TOPIC, _DELETION_DISABLED}])

        self._alter_canary(value=0.0, remove=True)
        self._act(f"deletion of topic {name}", delete)

    def validate_metadata_version(self, level: int, upgrade: Upgrade, feature: str = FEATURE) -> FeatureAnswer:
        """Validate a change of metadata.version, or of another feature, at the active controller without making it.

        The request has ``validate_only`` (KIP-778).

        The controller checks the registrations of all brokers and controllers,
        and whether the change would lose metadata (``FeatureControlManager``).

        Raises
        ------
        ObservationError
            No active controller answered.
        """
        try:
            self._ask_leader(_feature_update(feature, level, upgrade, validate_only=True), WRITE_SECONDS)
        except _AnswerError as error:
            if error.code not in _REFUSALS:
                raise ObservationError(
                    self._source, f"validation of {feature} {_level_text(feature, level)}: {error}"
                ) from error
            return FeatureAnswer(level, upgrade, accepted=False, words=error.words, feature=feature)
        except _NobodyError as error:
            raise ObservationError(self._source, f"no active controller validates {feature}: {error}") from error
        return FeatureAnswer(level, upgrade, accepted=True, feature=feature)

    def update_metadata_version(self, level: int, upgrade: Upgrade, feature: str = FEATURE) -> None:
        """Change the finalized level of metadata.version, or of another feature, at the active controller.

        It returns when the record is committed.

        Raises
        ------
        ActionRefusedError
            A node does not support the level, or the change would lose metadata. The message is Kafka's.
        ActionError
            No active controller accepted the request.
        """
        words = f"change of {feature} to {_level_text(feature, level)}"
        self._act(words, _feature_update(feature, level, upgrade))

    def _alter_canary(self, *, value: float, remove: bool) -> None:
        entry = AlterClientQuotasRequest.EntryData
        entries = [
            entry(
                entity=[entry.EntityData(entity_type="user", entity_name=CANARY_USER)],
                ops=[entry.OpData(key=CANARY_QUOTA, value=value, remove=remove)],
            )
        ]

        def ask(connection: Connection) -> None:
            answer = connection.call(
                AlterClientQuotasRequest, WRITE_SECONDS, max_version=1, entries=entries, validate_only=False
            )
            _raise_first(answer.entries)

        operation = "removal" if remove else "write"
        self._act(f"{operation} of the canary quota of user {CANARY_USER}", ask)

    def _act(self, operation: str, ask: Callable[[Connection], None]) -> None:
        try:
            self._ask_leader(ask, WRITE_SECONDS)
        except _AnswerError as error:
            text = f"{operation} at {self._source}: {error}"
            if error.code in _REFUSALS:
                raise ActionRefusedError(text) from error
            raise ActionError(text) from error
        except _NobodyError as error:
            raise ActionError(f"{operation}: no active controller takes writes: {error}") from error

    def _ask_leader(self, ask: Callable[[Connection], T], seconds: float) -> T:
        """Send a request to the last known leader, then to the others until one answers as leader."""
        started = time.monotonic()
        failures: dict[int, str] = {}
        with self._lock:
            for node in sorted(self._addresses, key=lambda n: n != self._leader):
                left = seconds - (time.monotonic() - started)
                if left <= 0:
                    failures[node] = "not asked any more"
                    continue
                try:
                    answer = self._ask_node(node, ask, min(CONNECT_SECONDS, left))
                except WireError as error:
                    failures[node] = str(error)
                    continue
                except _AnswerError as error:
                    if error.code not in {_NOT_LEADER, NOT_CONTROLLER}:
                        raise
                    failures[node] = "it does not lead"
                    continue
                self._leader = node
                return answer
        reasons = "; ".join(f"{node}: {reason}" for node, reason in sorted(failures.items()))
        raise _NobodyError(reasons)

    def _ask_node(self, node: int, ask: Callable[[Connection], T], connect_seconds: float) -> T:
        # All requests of this client can be repeated.
        return self._connections.ask(self._addresses[node], connect_seconds, ask, again_after=ConnectionLostError)

    def _features_of(self, node: int, until: float) -> NodeFeatures | Unobserved:
        if time.monotonic() > until:
            return Unobserved(f"controller {node}", "not asked, because other nodes did not answer in time")
        try:
            return self._ask_node(node, lambda connection: connection.features(REQUEST_SECONDS), CONNECT_SECONDS)
        except WireError as error:
            return Unobserved(f"controller {node} at {':'.join(map(str, self._addresses[node]))}", str(error))


class _AnswerError(Exception):
    """A node answered with an error code."""

    def __init__(self, code: int, message: str | None = None) -> None:
        text = error_name(code)
        if message:
            text = f"{text}: {message}"
        super().__init__(text)
        self.code = code
        self.words = message or error_name(code)


class _NobodyError(Exception):
    """No controller answered as leader."""


def _level_text(feature: str, level: int) -> str:
    return text_of(level) if feature == FEATURE else str(level)


def _feature_update(
    feature: str, level: int, upgrade: Upgrade, *, validate_only: bool = False
) -> Callable[[Connection], None]:
    key = UpdateFeaturesRequest.FeatureUpdateKey
    updates = [key(feature=feature, max_version_level=level, upgrade_type=_UPGRADE_TYPES[upgrade])]

    def ask(connection: Connection) -> None:
        answer = connection.call(
            UpdateFeaturesRequest,
            WRITE_SECONDS,
            max_version=1,
            min_version=1,  # version 0 has no validate_only: the request would make the change
            timeout_ms=int(WRITE_SECONDS * 1000),
            feature_updates=updates,
            validate_only=validate_only,
        )
        _raise_first((answer, *answer.results))

    return ask


def _raise_first(results: Any) -> None:
    for result in results:
        if result.error_code:
            raise _AnswerError(result.error_code, getattr(result, "error_message", None))


_PAGE_LIMIT_BYTES: Final = 32 * 1024 * 1024
_CHUNK_BYTES: Final = 64 * 1024
_HTTP_OK: Final = 200

_ZK_MIGRATION_STATES: Final = {
    -1: ZkMigrationState.NOT_LOADED,
    0: ZkMigrationState.NONE,
    1: ZkMigrationState.MIGRATION,
    2: ZkMigrationState.PRE_MIGRATION,
    3: ZkMigrationState.POST_MIGRATION,
    4: ZkMigrationState.ZK,
}
"""Numbers of ``org.apache.kafka.metadata.migration.ZkMigrationState`` since Kafka 3.5, and the gauge's own -1."""

_OF_MIGRATION: Final = frozenset({"ZkMigrationState", "MigratingZkBrokerCount"})
_CONTROLLER_GAUGE: Final = "kafka_controller_KafkaController_Value"
"""``kafka.controller:type=KafkaController,name=…``, attribute ``Value``."""
_RAFT_PREFIX: Final = "kafka_server_raft_metrics_"
"""``kafka.server:type=raft-metrics``, one attribute per gauge (KIP-595)."""
_ASK: Final = "Ask what answers at this address"
_PREFIXES: Final = (_CONTROLLER_GAUGE, _RAFT_PREFIX)


def _voters(partition: Any) -> tuple[VoterState, ...]:
    """Return the voters of a DescribeQuorum answer.

    The leader gives its own time as its last fetch (``LeaderState.describeReplicaState``), so no other clock counts.
    """
    fetched = {v.replica_id: v.last_fetch_timestamp for v in partition.current_voters}
    fetched = {node: at for node, at in fetched.items() if at is not None and at >= 0}
    now = fetched.get(partition.leader_id)
    silent = {} if now is None else {node: (now - at) / 1000 for node, at in fetched.items()}
    return tuple(
        VoterState(id=v.replica_id, log_end_offset=v.log_end_offset, silent_seconds=silent.get(v.replica_id))
        for v in sorted(partition.current_voters, key=lambda v: v.replica_id)
    )


def read_controller_metrics(
    node_id: int, host: str, port: int = METRICS_PORT, timeout_seconds: float = 3.0, judge: Judge = anywhere
) -> ControllerMetrics:
    """Read one controller's gauges.

    Parameters
    ----------
    node_id
        Node id for the result.
    host
        Name or IP of the controller's pod.
    timeout_seconds
        For name resolution, connection and page together.
    judge
        Where the operator may connect to.

    Raises
    ------
    ObservationError
        No answer in time, or a gauge is missing or has no usable value.
    """
    source = f"metrics of controller {node_id} at {host}:{port}"
    started = time.monotonic()
    try:
        page = fetch_page(host, port, started + timeout_seconds, judge)
    except (OSError, http.client.HTTPException) as error:
        reason = f"GET /metrics failed: {type(error).__name__}: {error}"
        raise ObservationError(source, reason) from error
    try:
        return parse_controller_metrics(node_id, page)
    except (ValueError, bounds.BoundExceededError) as error:
        raise ObservationError(source, str(error)) from error


def parse_controller_metrics(node_id: int, page: str) -> ControllerMetrics:
    """Return the gauges of an exporter's page.

    Raises
    ------
    ValueError
        A gauge is missing, is not a whole number, or has an unknown value.
    BoundExceededError
        The page has more gauges, or longer ones, than a controller's.
    """
    gauges = _gauges(page)

    def whole(name: str) -> int:
        value = gauges.get(name)
        if value is None:
            raise ValueError(
                f"the page has no gauge {name}; does the JMX exporter's configuration include kafka.controller:* "
                "and kafka.server:type=raft-metrics?"
            )
        if not math.isfinite(value) or value != int(value):
            raise ValueError(f"gauge {name} has the value {value}, which is not a whole number")
        return int(value)

    # Kafka 4 has neither of the gauges of a migration; a page that lacks one of them is none of 3.9.
    knows_migration = not _OF_MIGRATION.isdisjoint(gauges)
    state = _ZK_MIGRATION_STATES.get(whole("ZkMigrationState")) if knows_migration else ZkMigrationState.ABSENT
    if state is None:
        raise ValueError(
            f"gauge ZkMigrationState has the value {gauges['ZkMigrationState']}, which Kafka 3.9 does not define"
        )
    return ControllerMetrics(
        node_id=node_id,
        active=whole("ActiveControllerCount") == 1,
        zk_migration_state=state,
        migrating_zk_brokers=whole("MigratingZkBrokerCount") if knows_migration else 0,
        active_brokers=whole("ActiveBrokerCount"),
        fenced_brokers=whole("FencedBrokerCount"),
        leader_id=whole("current_leader"),
        leader_epoch=whole("current_epoch"),
    )


def _gauges(page: str) -> dict[str, float]:
    # A page may be long.
    lines = [line for line in page.splitlines() if line.startswith(_PREFIXES)]
    bounds.count("the page", len(lines), bounds.GAUGES, "gauges of the controller", _ASK)
    # The parser's time grows with the square of a line.
    bounds.count("a gauge of the page", max(map(len, lines), default=0), bounds.GAUGE_CHARACTERS, "characters", _ASK)
    gauges = {}
    for family in text_string_to_metric_families("".join(f"{line}\n" for line in lines)):
        for sample in family.samples:
            name = sample.name.removeprefix(_RAFT_PREFIX)
            if name == _CONTROLLER_GAUGE:
                name = sample.labels.get("name", "")
            gauges[name] = sample.value
    return gauges


def fetch_page(host: str, port: int, deadline: float, judge: Judge = anywhere, path: str = "/metrics") -> str:
    """Return an exporter's page until ``deadline`` (monotonic clock); raises `OSError` or `HTTPException`."""
    address = resolve(host, port, max(deadline - time.monotonic(), 0.1))[0]
    connection = http.client.HTTPConnection(address, port)
    connection.sock = connect(host, address, port, max(deadline - time.monotonic(), 0.1), judge)
    try:
        connection.request("GET", path, headers={"Host": f"{host}:{port}", "Accept": "text/plain"})
        answer = connection.getresponse()
        if answer.status != _HTTP_OK:
            raise http.client.HTTPException(f"status {answer.status} {answer.reason}")
        page = bytearray()
        while chunk := answer.read1(_CHUNK_BYTES):
            page += chunk
            if len(page) > _PAGE_LIMIT_BYTES:
                raise http.client.HTTPException(f"the page is larger than {_PAGE_LIMIT_BYTES} bytes")
            if time.monotonic() >= deadline:
                raise TimeoutError("the page did not end in time")
        return page.decode("utf-8", "replace")
    finally:
        connection.close()
