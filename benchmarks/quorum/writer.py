"""Writes single metadata changes to the controller, as an admin client does, and returns once they are acknowledged."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final, assert_never

from kafka.protocol.admin.acl import CreateAclsRequest, DeleteAclsRequest
from kafka.protocol.admin.configs import IncrementalAlterConfigsRequest
from kafka.protocol.admin.topics import (
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)

from benchmarks.quorum.changes import (
    ANY,
    AlterTopicConfig,
    Change,
    CreateAcl,
    CreateTopic,
    DeleteAcl,
    DeleteTopic,
    GrowTopic,
    Reassign,
)
from kraftbridge.exceptions import ActionError, ActionRefusedError, ObservationError
from kraftbridge.kafka.client import Security
from kraftbridge.kafka.wire import NOT_CONTROLLER, UNKNOWN_TOPIC, Connection, WireError, error_name
from kraftbridge.storage.kafka_brokers import TOPIC_RESOURCE

CONNECT_SECONDS: Final = 2.0
_RETRY_SECONDS: Final = 0.05
_LITERAL: Final = 3
_READ: Final = 3
_ALLOW: Final = 3
_SET: Final = 0

_TOPIC_EXISTS: Final = 36
_RETRIABLE: Final = frozenset({5, 7, 8, NOT_CONTROLLER, 60, 89})
"""Leader or broker not available, timed out, not controller, reassignment in progress, throttled (``Errors``)."""
_RIGHTS: Final = frozenset({29, 31})
"""Topic and cluster authorization failed."""


def cluster_brokers(
    addresses: Iterable[tuple[str, int]], security: Security, timeout_seconds: float
) -> dict[int, tuple[str, int]]:
    """Return every live broker's address, as the first broker that answers names them.

    Raises
    ------
    ObservationError
        None answers in time.
    """
    started = time.monotonic()
    failures = []
    for host, port in addresses:
        left = timeout_seconds - (time.monotonic() - started)
        if left <= 0:
            break
        try:
            connection = Connection(host, port, security, min(left, CONNECT_SECONDS))
            try:
                answer = connection.metadata(left)
            finally:
                connection.close()
        except WireError as e:
            failures.append(f"{host}:{port}: {e}")
            continue
        if answer.brokers:
            return {b.node_id: (b.host, b.port) for b in sorted(answer.brokers, key=lambda b: b.node_id)}
        failures.append(f"{host}:{port}: it knows no broker as yet")
    raise ObservationError("brokers", f"none answered in {time.monotonic() - started:.1f} s: {'; '.join(failures)}")


class ChangeWriter:
    """Writes single changes where an admin client would: at the broker that Metadata names as controller. Not thread-safe.

    Parameters
    ----------
    brokers
        Host and port of brokers to begin with.
    security
        As of every other client.
    """

    def __init__(self, brokers: Iterable[tuple[str, int]], security: Security) -> None:
        self._brokers = tuple(brokers)
        self._security = security
        self._connection: Connection | None = None

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def connect(self) -> None:
        """Connect now, so that the first change does not include the connection time.

        Raises
        ------
        WireError
            No broker answers or names a controller.
        """
        self._controller(CONNECT_SECONDS)

    def write(self, change: Change, timeout_seconds: float) -> int:
        """Write one change and retry until it is acknowledged; return the number of attempts.

        A KRaft controller acknowledges once the record is committed. In ZooKeeper mode the controller has written the znodes, and for new topics
        and partitions waits until it knows their leaders (``DelayedCreatePartitions``).

        Raises
        ------
        ActionRefusedError
            Kafka refuses it; the message names the right that is missing, when one is.
        ActionError
            Nobody acknowledged it in time.
        """
        deadline = time.monotonic() + timeout_seconds
        tries, last = 0, "not tried"
        while (left := deadline - time.monotonic()) > 0:
            tries += 1
            try:
                code, message = _send(self._controller(min(left, CONNECT_SECONDS)), change, left)
            except WireError as e:
                last = str(e)
                self.close()
            else:
                if not code or (tries > 1 and _already_done(change, code)):
                    return tries
                last = f"{error_name(code)}{f': {message}' if message else ''}"
                if code not in _RETRIABLE:
                    raise ActionRefusedError(_refusal(change, code, last))
                if code == NOT_CONTROLLER:
                    self.close()
            time.sleep(min(_RETRY_SECONDS, max(0.0, deadline - time.monotonic())))
        raise ActionError(f"{change}: not acknowledged in {timeout_seconds:.0f} s, tried {tries} times; last: {last}")

    def _controller(self, timeout_seconds: float) -> Connection:
        if self._connection is not None and self._connection.usable:
            return self._connection
        self.close()
        deadline = time.monotonic() + timeout_seconds
        last = "no time left"
        for host, port in self._brokers:
            if (left := deadline - time.monotonic()) <= 0:
                break
            try:
                self._connection = self._controller_named_by(host, port, left)
            except WireError as e:
                last = f"{host}:{port}: {e}"
                continue
            return self._connection
        raise WireError(f"no broker leads to the controller: {last}")

    def _controller_named_by(self, host: str, port: int, timeout_seconds: float) -> Connection:
        connection = Connection(host, port, self._security, timeout_seconds)
        try:
            answer = connection.metadata(timeout_seconds)
            named = next(((b.host, b.port) for b in answer.brokers if b.node_id == answer.controller_id), None)
            if named is None:
                raise WireError(f"it names controller {answer.controller_id}, which is no live broker")  # noqa: TRY301
            if named == (host, port):
                return connection
        except WireError:
            connection.close()
            raise
        connection.close()
        return Connection(*named, self._security, timeout_seconds)


def _already_done(change: Change, code: int) -> bool:
    """Whether an answer to a repeated change means that an earlier try was carried out."""
    match change:
        case CreateTopic():
            return code == _TOPIC_EXISTS
        case DeleteTopic():
            return code == UNKNOWN_TOPIC
        case _:
            return False


def _refusal(change: Change, code: int, words: str) -> str:
    text = f"{type(change).__name__} of topic {change.topic} refused: {words}"
    if code not in _RIGHTS:
        return text
    match change:
        case CreateTopic():
            right = "Create on the topic (or on the cluster)"
        case DeleteTopic():
            right = "Delete on the topic"
        case GrowTopic():
            right = "Alter on the topic"
        case AlterTopicConfig():
            right = "AlterConfigs on the topic"
        case Reassign() | CreateAcl() | DeleteAcl():
            right = "Alter on the cluster"
    return f"{text}; the principal needs {right}"


def _send(connection: Connection, change: Change, timeout_seconds: float) -> tuple[int, str | None]:
    """Send a change and return error code and message of the answer."""
    limit_ms = max(1, int(timeout_seconds * 1000))
    call = connection.call
    match change:
        case CreateTopic():
            topic = CreateTopicsRequest.CreatableTopic
            placed = topic.CreatableReplicaAssignment
            new = topic(
                name=change.topic,
                num_partitions=-1 if change.assignment else change.partitions,
                replication_factor=-1 if change.assignment else change.replication_factor,
                assignments=[placed(partition_index=i, broker_ids=list(b)) for i, b in enumerate(change.assignment)],
                configs=[],
            )
            answer = call(
                CreateTopicsRequest,
                timeout_seconds,
                max_version=5,
                topics=[new],
                timeout_ms=limit_ms,
                validate_only=False,
            )
            return _first(answer.topics)
        case DeleteTopic():
            gone = [DeleteTopicsRequest.DeleteTopicState(name=change.topic)]
            answer = call(DeleteTopicsRequest, timeout_seconds, max_version=5, topics=gone, timeout_ms=limit_ms)
            return _first(answer.responses)
        case GrowTopic():
            more = CreatePartitionsRequest.CreatePartitionsTopic(
                name=change.topic, count=change.partitions, assignments=None
            )
            answer = call(
                CreatePartitionsRequest,
                timeout_seconds,
                max_version=3,
                topics=[more],
                timeout_ms=limit_ms,
                validate_only=False,
            )
            return _first(answer.results)
        case AlterTopicConfig():
            resource = IncrementalAlterConfigsRequest.AlterConfigsResource
            entry = resource.AlterableConfig(name=change.name, config_operation=_SET, value=change.value)
            one = resource(resource_type=TOPIC_RESOURCE, resource_name=change.topic, configs=[entry])
            answer = call(
                IncrementalAlterConfigsRequest, timeout_seconds, max_version=1, resources=[one], validate_only=False
            )
            return _first(answer.responses)
        case Reassign():
            moved = AlterPartitionReassignmentsRequest.ReassignableTopic
            part = moved.ReassignablePartition(partition_index=change.partition, replicas=list(change.replicas))
            topics = [moved(name=change.topic, partitions=[part])]
            answer = call(
                AlterPartitionReassignmentsRequest, timeout_seconds, max_version=0, topics=topics, timeout_ms=limit_ms
            )
            if answer.error_code:
                return _first([answer])
            return _first([p for r in answer.responses for p in r.partitions])
        case CreateAcl():
            acl = CreateAclsRequest.AclCreation(
                resource_type=TOPIC_RESOURCE,
                resource_name=change.topic,
                resource_pattern_type=_LITERAL,
                principal=change.principal,
                host="*",
                operation=_READ,
                permission_type=_ALLOW,
            )
            return _first(call(CreateAclsRequest, timeout_seconds, max_version=2, creations=[acl]).results)
        case DeleteAcl():
            which = DeleteAclsRequest.DeleteAclsFilter(
                resource_type_filter=TOPIC_RESOURCE,
                resource_name_filter=change.topic,
                pattern_type_filter=_LITERAL,
                principal_filter=change.principal,
                host_filter=None,
                operation=ANY,
                permission_type=ANY,
            )
            return _first(call(DeleteAclsRequest, timeout_seconds, max_version=2, filters=[which]).filter_results)
        case _:
            assert_never(change)


def _first(results: Any) -> tuple[int, str | None]:
    """Return the first error of an answer, ``(0, None)`` when there is none."""
    for result in results:
        if result.error_code:
            return int(result.error_code), getattr(result, "error_message", None)
    return 0, None
