"""The client of the brokers: reads the cluster as the brokers serve it.

`kafka_controllers` is the client of the quorum.
"""

from __future__ import annotations

import logging
import secrets
import ssl
import threading
import time
from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from kafka.protocol.admin.cluster import DescribeClusterRequest
from kafka.protocol.admin.configs import DescribeConfigsRequest
from kafka.protocol.admin.topics import (
    AlterPartitionReassignmentsRequest,
    CreateTopicsRequest,
    ListPartitionReassignmentsRequest,
)
from kafka.protocol.consumer import FetchRequest

from kraftbridge.exceptions import ActionError, InvalidSpecError, ObservationError
from kraftbridge.kafka.client import Security
from kraftbridge.kafka.connections import Connections
from kraftbridge.kafka.metadata import Metadata
from kraftbridge.kafka.wire import (
    NOT_CONTROLLER,
    UNKNOWN_TOPIC,
    Connection,
    ConnectionLostError,
    WireError,
    brokers_at,
    error_name,
    host_ports,
    none_answered,
)
from kraftbridge.models.assignments import Assignments
from kraftbridge.models.broker_record import TopicPartition
from kraftbridge.models.kafka4_changes import GONE_FROM_TOPICS, TOPIC_BOUNDS
from kraftbridge.models.observation import (
    ClusterState,
    ControllerProbe,
    KafkaSettings,
    NodeFeatures,
    TopicIds,
    TopicRedundancy,
    Unobserved,
)
from kraftbridge.models.protocol import SETTING as PROTOCOL
from kraftbridge.models.survey import RELEVANT_DEFAULTS, BrokerSetting, LogDir, SettingSource, Stated, Visibility
from kraftbridge.outside import bounds
from kraftbridge.outside.endpoints import Judge, anywhere
from kraftbridge.storage.log_dirs import Listing, forget_assigned, listed
from kraftbridge.storage.replicas import Seen

CONNECT_SECONDS: Final = 2.0
REQUEST_SECONDS: Final = 3.0
CALL_SECONDS: Final = 5.0
"""Time budget of one observation, over all addresses that it tries."""
_EVERY_VIEW_SECONDS: Final = 30.0
"""Time budget of an observation that asks every broker for all of its metadata."""
_ASKED_FOR_CONTROLLER: Final = 16
"""Requests to one broker: two brokers drawn at random are the same one so often in one of 30,000 looks."""
_AGREEING: Final = 2
"""Brokers whose answers tell together what is in sync."""
VIEWS: Final = 3
"""Number of brokers that one observation asks for all of their metadata. The answers are large."""
_AT_A_TIME: Final = 4
"""Brokers that are asked at the same time. Objects of hostile answers take 60 MB each (`bounds.KAFKA_ANSWER_BYTES`)."""
_LOG_DIRS_AT_A_TIME: Final = 2
"""Those of hostile lists of log directories take 100 MB each (`bounds.KAFKA_LOG_DIRS_BYTES`)."""
_READ_SECONDS: Final = 0.5
"""When one call has read topics' ids for so long, the next call asks the other brokers."""
_LEAST_READ: Final = 2
"""Brokers that each such call asks, however long it takes."""
_LEAST_SECONDS: Final = 0.5
_NAMED_PARTITIONS: Final = 20
_CONFIG_BATCH_TOPICS: Final = 200
_MIN_ISR: Final = "min.insync.replicas"
TOPIC_RESOURCE: Final = 2
"""``ConfigResource.Type.TOPIC`` and ``ResourceType.TOPIC``."""
_BROKER_RESOURCE: Final = 4
"""``ConfigResource.Type.BROKER``."""
_SOURCES: Final = {
    2: SettingSource.DYNAMIC_BROKER,
    3: SettingSource.DYNAMIC_DEFAULT,
    4: SettingSource.STATIC,
    5: SettingSource.DEFAULT,
}
"""``DescribeConfigsResponse.ConfigSource``; 5 is Kafka's default."""
_OF_TOPIC: Final = 1
"""``ConfigSource.DYNAMIC_TOPIC_CONFIG``."""
_TOPICS_AT_A_TIME: Final = 1000
"""Topics whose configuration is asked for in one request."""
_HIDDEN_NAMED: Final = 10
_OPERATIONS: Final = {
    3: "READ", 4: "WRITE", 5: "CREATE", 6: "DELETE", 7: "ALTER", 8: "DESCRIBE", 9: "CLUSTER_ACTION",
    10: "DESCRIBE_CONFIGS", 11: "ALTER_CONFIGS", 12: "IDEMPOTENT_WRITE",
}  # fmt: skip
"""Codes of ``org.apache.kafka.common.acl.AclOperation``."""
_DESCRIBE_CONFIGS: Final = 10
_WITH_TYPES: Final = 3
"""First version of DescribeConfigs that tells the type of a setting (KIP-569); brokers serve it since 2.6."""
_TOPIC_AUTHORIZATION_FAILED: Final = 29
_FETCH_BY_NAME: Final = 6
"""Version of Fetch without sessions and topic ids."""
_NO_REPLICA: Final = 2**31 - 1
"""Id of a follower that no cluster has: ``reserved.broker.max.id`` and generated ids end far below."""
T = TypeVar("T")


class BrokerClient:
    """Sends requests to any broker that answers; thread-safe.

    The client keeps one connection.
    When the connection fails, the client tries the next address at once:
    first the given addresses, then the addresses of the last metadata answer.
    Each connection resolves the name again, because a pod's address changes at each restart.

    Parameters
    ----------
    bootstrap_servers
        ``host:port`` pairs, separated by commas.
    client_properties
        Java client settings (``security.protocol``, ``sasl.*``, ``ssl.*``).
    judge
        Where the client may connect to.
    """

    def __init__(self, bootstrap_servers: str, client_properties: Mapping[str, str], judge: Judge = anywhere) -> None:
        self._bootstrap = host_ports(bootstrap_servers)
        self._judge = judge
        self._security = Security.from_properties(client_properties, judge=judge)
        self._known: dict[int, tuple[str, int]] = {}
        self._connection: Connection | None = None
        self._of_each = Connections(self._security)
        self._next_view = 0
        self._last_read = -1
        """The broker that was asked last for topics' ids."""
        self._silence: tuple[float, str] | None = None
        """When a question last found no broker that answers, and why."""
        self._lock = threading.Lock()
        self._each_lock = threading.Lock()
        self._answered_seconds = 0.0
        """How long brokers on kept connections have been asked so far, without those that did not answer."""
        self._source = brokers_at(bootstrap_servers)

    def close(self) -> None:
        """Close all connections."""
        with self._lock, self._each_lock:
            _close(self._connection)
            self._connection = None
            self._of_each.close()

    def cluster_state(self) -> ClusterState:
        """Return brokers, controller, and unhealthy partitions, as one broker serves them.

        Raises
        ------
        ObservationError
            No broker answered in time, or the brokers that answered do not know the cluster yet.
            A broker that has just started serves an empty list of topics.
        """
        return self._ask(partial(self._all_topics, fold=partial(_cluster_state, self._source)))

    def cluster_by_broker(self) -> Mapping[int, ClusterState | Unobserved]:
        """Ask up to three brokers and return the cluster as each of them serves it; the next call asks the next three.

        A broker that the controller does not reach serves stale metadata (``MetadataCache``),
        so one broker's answer is not sufficient.
        Only brokers that do not answer use up the time budget of the call.

        Raises
        ------
        ObservationError
            No broker returned the list of brokers.
        """
        known = self._known_brokers()
        with self._turn(CALL_SECONDS, known) as end:
            until = end
            first = self._next_view
            self._next_view += VIEWS
            brokers = [(*known,)[(first + i) % len(known)] for i in range(min(VIEWS, len(known)))]
            views: dict[int, ClusterState | Unobserved] = {}
            for broker in sorted(brokers):
                began = time.monotonic()
                question = partial(_view, broker=broker, until=until)
                views[broker] = self._ask_kept(broker, known[broker], until, question)
                if not isinstance(views[broker], Unobserved):
                    until += self._answered_since(began)
            return views

    def _known_brokers(self) -> dict[int, tuple[str, int]]:
        """Return the brokers of the last metadata answer; ask for it if there is none yet."""
        if not self._known:
            return self._brokers()
        with self._lock:
            return dict(sorted(self._known.items()))

    def topic_redundancy(self) -> TopicRedundancy:
        """Return the topics that become unavailable while one of their brokers restarts.

        Raises
        ------
        ObservationError
            No broker answered in time, or the operator may not read the configuration of a topic.
        """
        factors = self._ask(partial(self._all_topics, fold=_factors))
        replicated = sorted(name for name, factor in factors.items() if factor > 1)
        min_isr: dict[str, int] = {}
        for start in range(0, len(replicated), _CONFIG_BATCH_TOPICS):
            batch = replicated[start : start + _CONFIG_BATCH_TOPICS]
            min_isr |= self._ask(partial(_min_isr, topics=batch))
        return TopicRedundancy(
            replication_factor_one=tuple(sorted(name for name, factor in factors.items() if factor == 1)),
            at_min_isr=tuple(sorted(name for name, least in min_isr.items() if least >= factors[name])),
        )

    def assignments(self, accepted: frozenset[str]) -> Assignments:
        """Ask up to three brokers where the replicas are; what all of them say is in sync is in sync.

        Parameters
        ----------
        accepted
            Topics that the user lets become unavailable.

        Raises
        ------
        ObservationError
            Fewer than two brokers answered (one, where the cluster has one), or the configuration of a topic is not
            known.
        """
        seen = Seen(self._source)
        known = self._known_brokers()
        silent: list[Unobserved] = []
        with self._turn(CALL_SECONDS, known) as end:
            until = end
            for broker, address in known.items():
                began = time.monotonic()
                answer = self._ask_kept(broker, address, until, partial(_add_view, seen=seen))
                if isinstance(answer, Unobserved):
                    silent.append(answer)
                    continue
                until += self._answered_since(began)
                if seen.answers >= VIEWS:
                    break
        if seen.answers < min(_AGREEING, len(known)):
            raise ObservationError(self._source, f"{seen.answers} brokers told their partitions; {silent[0]}")
        topics = sorted(seen.topics)
        min_isr: dict[str, int] = {}
        for start in range(0, len(topics), _CONFIG_BATCH_TOPICS):
            min_isr |= self._ask(partial(_min_isr, topics=topics[start : start + _CONFIG_BATCH_TOPICS]))
        return seen.assignments(min_isr, accepted)

    def reassigning_partitions(self) -> tuple[str, ...]:
        """Return ``topic-partition`` of all reassignments that are under way (KIP-455).

        In ZooKeeper mode only the controller knows them, and other brokers answer NOT_CONTROLLER.
        The client asks one broker after the other until it finds the controller.
        """
        answer = self._ask(_reassignments)
        if answer.error_code:
            raise ObservationError(self._source, f"ListPartitionReassignments answered {error_name(answer.error_code)}")
        partitions = partitions_of(answer.topics)
        return tuple(sorted(f"{topic.name}-{partition.partition_index}" for topic, partition in partitions))

    def renew_leaders(self, most: int) -> None:
        """Let ZooKeeper's controller give leaders whose ISR lacks a replica a new epoch; leaders and replicas stay.

        A leader whose request for a larger ISR was refused may wait for an answer for ever: in Kafka 2.7 to 3.0 it
        asks again while the former request is still queued, and that fails (``Partition.sendAlterIsrRequest``,
        ``DefaultAlterIsrManager``). With a new epoch it begins anew. A reassignment to the present replicas makes the
        controller send one (``KafkaController.updateLeaderEpochAndSendRequest``).

        Parameters
        ----------
        most
            Largest number of partitions. Those that are being reassigned or have no leader are left alone.

        Raises
        ------
        ActionError
            The controller does not answer, or refuses. The principal needs Alter on the cluster.
        """
        operation = "renewing the epoch of leaders"
        try:
            failures = self._ask(partial(_renew_leaders, most=most))
        except ObservationError as error:
            raise ActionError(f"{operation}: {error}") from error
        if failures:
            raise ActionError(f"{operation}: {', '.join(sorted(failures))}")

    def leader_epochs(self) -> tuple[dict[TopicPartition, int], frozenset[int]]:
        """Return the highest leader epoch of each partition that any broker serves, and the brokers that are silent.

        Every broker is asked. Only those that do not answer use up the time budget of the call.
        Without a controller the brokers' views differ: some have heard of an election that others have not.

        Raises
        ------
        ObservationError
            No broker answered.
        """
        known = self._known_brokers()
        epochs: dict[TopicPartition, int] = {}
        silent: dict[int, Unobserved] = {}
        with self._turn(_EVERY_VIEW_SECONDS, known) as end:
            until = end
            for broker, address in known.items():
                began = time.monotonic()
                view = self._ask_kept(broker, address, until, _leader_epochs)
                if isinstance(view, Unobserved):
                    silent[broker] = view
                    continue
                until += self._answered_since(began)
                for partition, epoch in view.items():
                    epochs[partition] = max(epoch, epochs.get(partition, epoch))
        if len(silent) == len(known):
            first = next(iter(silent.values()), "Metadata lists no broker")
            raise ObservationError(self._source, str(first))
        return epochs, frozenset(silent)

    def serves_topic(self, topic: str) -> Mapping[int, bool | Unobserved]:
        """Ask each broker that Metadata lists whether it serves a topic with a leader for each partition.

        Raises
        ------
        ObservationError
            No broker returned the list of brokers.
        """
        known = self._known_brokers()
        return self._ask_each(known, partial(_serves, topic=topic))

    def controller_by_broker(self) -> dict[int, int | Unobserved]:
        """Ask each broker for the controller's id and return the answers.

        A broker whose cache still names the KRaft controller hangs in its controlled shutdown.
        In a rollback, therefore, all brokers must name the broker that holds ``/controller``.
        While its cache names a KRaft controller, each answer of a broker names a random broker
        (``ZkMetadataCache.getRandomAliveBroker``; seen in 3.9.1).
        So each is asked `_ASKED_FOR_CONTROLLER` times, and one that names several brokers is unobserved.

        Raises
        ------
        ObservationError
            No broker returned the list of brokers.
        """
        return self._ask_anew("", self._brokers(), lambda _broker: _named_controller)

    def features(self) -> dict[int, NodeFeatures | Unobserved]:
        """Ask each broker that Metadata lists for its features (ApiVersions, KIP-584).

        A broker that does not answer costs its time limit.
        When the time budget of the call is used up, the remaining brokers are not asked.

        Raises
        ------
        ObservationError
            No broker returned the list of brokers.
        """
        return self._ask_each(self._brokers(), lambda connection: connection.features(REQUEST_SECONDS))

    def _ask_each(
        self, known: Mapping[int, tuple[str, int]], question: Callable[[Connection], T]
    ) -> dict[int, T | Unobserved]:
        """Send each broker a request on its kept connection."""
        with self._turn(CALL_SECONDS, known) as until:
            began = time.monotonic()
            answers = _at_once(known, lambda broker: self._ask_kept(broker, known[broker], until, question))
            if not any(isinstance(answer, Unobserved) for answer in answers.values()):
                self._answered_since(began)
            return answers

    @contextmanager
    def _turn(self, seconds: float, known: Mapping[int, tuple[str, int]]) -> Iterator[float]:
        """Use the kept connections alone; yield until when. Those to brokers that are not known any more are closed.

        The time budget counts from now, so that silent brokers use it up once for all questions that wait.
        It does not count the time in which brokers answered the questions before this one.
        """
        asked = time.monotonic()
        answered = self._answered_seconds
        with self._each_lock:
            waited = time.monotonic() - asked
            self._of_each.keep_only(known.values())
            yield asked + seconds + min(self._answered_seconds - answered, waited)

    def _answered_since(self, began: float) -> float:
        """Return the seconds that brokers took to answer, and count them."""
        took = time.monotonic() - began
        self._answered_seconds += took
        return took

    def _ask_anew(
        self,
        what: str,
        known: Mapping[int, tuple[str, int]],
        question: Callable[[int], Callable[[Connection], T]],
        most: int = _AT_A_TIME,
    ) -> dict[int, T | Unobserved]:
        """Send each broker a request on a new connection.

        Parameters
        ----------
        what
            What a broker is asked for, for the error.
        known
            Address of each broker.
        question
            Returns what is asked of the broker with an id.
        most
            Brokers that are asked at the same time.
        """

        def ask(broker: int) -> T | Unobserved:
            host, port = known[broker]
            source = f"{what}broker {broker} at {host}:{port}"
            return self._ask_one(source, host, port, question(broker))

        return _at_once(known, ask, most)

    def _ask_kept(
        self, broker: int, address: tuple[str, int], until: float, question: Callable[[Connection], T]
    ) -> T | Unobserved:
        """Send a request to one broker on its kept connection."""
        host, port = address
        source = f"broker {broker} at {host}:{port}"
        if time.monotonic() > until:
            return Unobserved(source, "not asked, because other nodes did not answer in time")
        try:
            return self._of_each.ask(address, CONNECT_SECONDS, question)
        except WireError as error:
            return Unobserved(source, str(error))

    def visibility(self) -> Visibility:
        """Return the topics that the operator's principal can describe and its permitted cluster operations.

        Metadata silently omits topics that the principal may not describe (``KafkaApis.handleTopicMetadataRequest``).
        The operations come from DescribeCluster and Metadata (KIP-430), before Kafka 2.8 from Metadata alone.
        Brokers without an authorizer permit all of them.

        Raises
        ------
        ObservationError
            No broker answered in time.
        """
        topics = self._ask(partial(self._all_topics, fold=_described, operations=True))
        error, operations = self._ask(_cluster_operations)
        if error:
            raise ObservationError(self._source, f"DescribeCluster answered {error_name(error)}")
        return Visibility(
            topics=frozenset(topics),
            cluster_operations=frozenset(_OPERATIONS.get(int(o), str(o)) for o in operations),
            topics_without_configs=frozenset(name for name, configs in topics.items() if not configs),
        )

    def refusal(self, address: str, server_name: str, client_properties: Mapping[str, str]) -> str | None:
        """Return why a broker does not let a client with these settings do a controller's work; None if it does.

        Parameters
        ----------
        address
            ``host:port`` of a listener.
        server_name
            The name that the broker's certificate must have.
        client_properties
            Java client settings, which may be others than this client's own.

        Raises
        ------
        ObservationError
            The listener cannot be reached, or the settings cannot be used here.

        Notes
        -----
        LeaderAndIsr, UpdateMetadata and StopReplica need ClusterAction on the cluster.
        A fetch as a follower needs the same right, and a broker refuses one of a topic
        that does not exist with another error to who has the right than to others (``KafkaApis.handleFetchRequest``).
        So the answer does not depend on further rights, and nothing is changed or read.
        """
        ((host, port),) = host_ports(address)
        try:
            security = Security.from_properties(client_properties, judge=self._judge)
        except InvalidSpecError as error:
            raise ObservationError(address, str(error).removeprefix("client.properties: ")) from error
        topic = FetchRequest.FetchTopic
        nowhere = topic(
            topic=f"kraftbridge-{secrets.token_hex(8)}",
            partitions=[topic.FetchPartition(partition=0, fetch_offset=0, log_start_offset=-1, partition_max_bytes=1)],
        )
        try:
            with Connection(host, port, security, CONNECT_SECONDS, server_name) as connection:
                answer = connection.call(
                    FetchRequest,
                    REQUEST_SECONDS,
                    max_version=_FETCH_BY_NAME,
                    replica_id=_NO_REPLICA,
                    max_wait_ms=0,
                    min_bytes=0,
                    max_bytes=1,
                    isolation_level=0,
                    topics=[nowhere],
                )
        except WireError as error:
            if error.__cause__ is None or isinstance(error.__cause__, ssl.SSLError):
                return str(error)
            raise ObservationError(address, str(error)) from error
        errors = {int(partition.error_code) for _, partition in partitions_of(answer.responses)}
        if errors == {_TOPIC_AUTHORIZATION_FAILED}:
            return "it accepts the login, whose principal is no super user and has no ClusterAction on the cluster"
        if errors != {UNKNOWN_TOPIC}:
            shown = ", ".join(error_name(code) for code in sorted(errors)) or "nothing"
            raise ObservationError(
                address, f"it does not say whether the login's principal has ClusterAction: Fetch answered {shown}"
            )
        return None

    def broker_settings(self) -> dict[int, tuple[BrokerSetting, ...] | Unobserved]:
        """Ask each running broker for its settings and return those that somebody set, and `RELEVANT_DEFAULTS`.

        Raises
        ------
        ObservationError
            No broker returned the list of brokers.
        """
        return self._ask_anew("configuration of ", self._brokers(), lambda broker: partial(_settings_of, broker=broker))

    def settings_for_kafka4(self) -> KafkaSettings:
        """Return what each running broker has, and what topics state of the settings that Kafka 4 refuses or ignores.

        Raises
        ------
        ObservationError
            No broker answered in time.
        """
        topics = sorted(self._ask(partial(self._all_topics, fold=_described, operations=True)).items())
        readable = [name for name, may_be_read in topics if may_be_read]
        hidden = [name for name, may_be_read in topics if not may_be_read]
        found: dict[str, dict[str, str | None]] = {}
        for start in range(0, len(readable), _TOPICS_AT_A_TIME):
            part = readable[start : start + _TOPICS_AT_A_TIME]
            found |= self._ask(partial(_stated_by_topics, topics=part))
        return KafkaSettings(self.broker_settings(), found, tuple(hidden[:_HIDDEN_NAMED]))

    def send_old_requests(self) -> dict[int, Unobserved | None]:
        """Send each running broker a request of a version that Kafka 4 refuses, which its metrics then show.

        It asks for nothing: DescribeConfigs v0 without a resource.

        Raises
        ------
        ObservationError
            No broker returned the list of brokers.
        """
        return self._ask_anew("old request to ", self._brokers(), lambda _broker: _send_old_request)

    def topic_ids(self, processes: Mapping[int, str]) -> dict[int, TopicIds | Unobserved]:
        """Ask brokers whether every topic that they list has an id, what they run, and what else is in their logs.

        To read a broker's list of all topics takes long, so one call asks as many brokers as it can in half a second,
        and the next call the next ones. The others are absent.
        The first broker is asked in each call, as it is the one that others wait for.

        Parameters
        ----------
        processes
            The process of each broker that is asked.

        Raises
        ------
        ObservationError
            No broker returned the list of brokers.
        """
        known = self._brokers()
        answers: dict[int, TopicIds | Unobserved] = {
            broker: Unobserved(f"broker {broker}", "no broker lists it") for broker in processes if broker not in known
        }
        with self._turn(_EVERY_VIEW_SECONDS, known) as until:
            read_until = time.monotonic() + _READ_SECONDS
            for place, broker in enumerate(self._reading_order(processes.keys() & known.keys())):
                if place >= _LEAST_READ and time.monotonic() > read_until:
                    break
                began = time.monotonic()
                question = partial(_topic_ids, broker=broker, process=processes[broker])
                answers[broker] = self._ask_kept(broker, known[broker], until, question)
                if not isinstance(answers[broker], Unobserved):
                    self._answered_since(began)
                if place:
                    self._last_read = broker
        return answers

    def _reading_order(self, brokers: Iterable[int]) -> list[int]:
        """Return the first broker, then those behind the one that was asked last, then those before it."""
        order = sorted(brokers)
        return [*order[:1], *sorted(order[1:], key=lambda broker: (broker <= self._last_read, broker))]

    def log_dirs(self) -> dict[int, tuple[LogDir, ...] | Unobserved]:
        """Ask each running broker for its log directories, and return what is wrong in them.

        Raises
        ------
        ObservationError
            No broker returned the list of brokers or their topics.

        Notes
        -----
        A replica counts as left over if a second look finds it, too: a topic may be deleted while Metadata is read.
        """
        brokers = self._brokers()
        seen = self._listings(brokers)
        listings = {broker: found for broker, found in seen.items() if not isinstance(found, Unobserved)}
        self._ask(partial(self._all_topics, fold=partial(forget_assigned, listings=listings)))
        doubted = [broker for broker, found in listings.items() if any(listing.replicas for listing in found)]
        later = self._listings({broker: brokers[broker] for broker in doubted})
        return {broker: _in_both(found, later.get(broker, found)) for broker, found in seen.items()}

    def _listings(self, brokers: Mapping[int, tuple[str, int]]) -> dict[int, list[Listing] | Unobserved]:
        """Return what each broker lists in its log directories."""
        question = partial(listed, timeout_seconds=REQUEST_SECONDS)
        return self._ask_anew("log directories of ", brokers, lambda _broker: question, _LOG_DIRS_AT_A_TIME)

    def _brokers(self) -> dict[int, tuple[str, int]]:
        """Return the brokers that Metadata lists now, by id."""
        self._ask(self._metadata)
        with self._lock:
            return dict(sorted(self._known.items()))

    def _ask_one(self, source: str, host: str, port: int, question: Callable[[Connection], T]) -> T | Unobserved:
        """Send a request to one broker on a new connection."""
        try:
            connection = Connection(host, port, self._security, CONNECT_SECONDS)
            try:
                return question(connection)
            finally:
                connection.close()
        except WireError as error:
            return Unobserved(source, str(error))

    def _metadata(self, connection: Connection, topics: Iterable[str] = ()) -> Any:
        """Return brokers, controller and the named topics."""
        answer = connection.metadata(REQUEST_SECONDS, topics)
        self._note(connection, answer)
        return answer

    def _all_topics(self, connection: Connection, fold: Callable[[Metadata], T], *, operations: bool = False) -> T:
        """Return what a function makes of all topics, optionally with the operations that are permitted on them."""

        def noted(answer: Metadata) -> T:
            self._note(connection, answer)
            return fold(answer)

        return connection.all_topics(REQUEST_SECONDS, noted, operations=operations)

    def _note(self, connection: Connection, answer: Any) -> None:
        # in ZooKeeper mode a broker serves clients before the controller has told it about the cluster
        if not answer.brokers or answer.controller_id < 0:
            connection.close()
            raise WireError(f"it knows {len(answer.brokers)} brokers and controller {answer.controller_id} as yet")
        self._known = {b.node_id: (b.host, b.port) for b in answer.brokers}

    def _ask(self, question: Callable[[Connection], T]) -> T:
        """Send a request to the connected broker, or to the next one that can be reached.

        A request that waited while another one found no broker gets the same error and does not try all brokers again.
        """
        asked = time.monotonic()
        failures: dict[str, str] = {}
        with self._lock:
            if self._silence is not None and self._silence[0] >= asked:
                raise ObservationError(self._source, self._silence[1])
            started = time.monotonic()
            kept = self._connection
            if kept is not None and kept.usable:
                try:
                    return question(kept)
                except WireError as error:
                    failures[kept.address] = str(error)
            _close(kept)
            self._connection = None
            candidates = dict.fromkeys([*self._bootstrap, *self._known.values()])
            # The failed address last.
            for host, port in sorted(candidates, key=lambda address: f"{address[0]}:{address[1]}" in failures):
                left = CALL_SECONDS - (time.monotonic() - started)
                if left <= 0:
                    failures.setdefault(f"{host}:{port}", "not asked any more")
                    continue
                try:
                    connection = Connection(host, port, self._security, min(CONNECT_SECONDS, left))
                    answer = question(connection)
                except WireError as error:
                    failures[f"{host}:{port}"] = str(error)
                    continue
                self._connection = connection
                return answer
            silence = none_answered([f"{address}: {reason}" for address, reason in failures.items()])
            self._silence = time.monotonic(), silence
        raise ObservationError(self._source, silence)


def _in_both(
    first: Sequence[Listing] | Unobserved, second: Sequence[Listing] | Unobserved
) -> tuple[LogDir, ...] | Unobserved:
    """Return directories with what two looks have left over."""
    if isinstance(first, Unobserved):
        return first
    if isinstance(second, Unobserved):
        return second
    later = {listing.path: listing for listing in second}
    return tuple(listing.also_in(later[listing.path]).log_dir() for listing in first if listing.path in later)


def _at_once(addresses: Mapping[int, tuple[str, int]], ask: Callable[[int], T], most: int = _AT_A_TIME) -> dict[int, T]:
    """Ask several brokers at the same time, and those at one address in turn; return their answers.

    So a step does not take the time of a hundred brokers' answers, one after the other.
    """
    if not addresses:
        return {}
    at: dict[tuple[str, int], list[int]] = {}
    for broker, address in addresses.items():
        at.setdefault(address, []).append(broker)

    def in_turn(brokers: Sequence[int]) -> dict[int, T]:
        return {broker: ask(broker) for broker in brokers}

    answers: dict[int, T] = {}
    with ThreadPoolExecutor(min(most, len(at)), "brokers") as pool:
        # Who judges an address reads it once in a step (`ReadOnce`).
        contexts = [copy_context() for _ in at]
        for told in pool.map(lambda context, brokers: context.run(in_turn, brokers), contexts, at.values()):
            answers |= told
    return {broker: answers[broker] for broker in addresses}


def _close(connection: Connection | None) -> None:
    if connection is not None:
        connection.close()


def partitions_of(topics: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield each partition of an answer with its topic."""
    for topic in topics:
        for partition in topic.partitions:
            yield topic, partition


@dataclass(slots=True)
class _First:
    """Counts names and keeps the first ones in alphabetical order."""

    count: int = 0
    kept: list[str] = field(default_factory=list)

    def add(self, name: str) -> None:
        """Take one more name."""
        self.count += 1
        if len(self.kept) < _NAMED_PARTITIONS or name < self.kept[-1]:
            insort(self.kept, name)
            del self.kept[_NAMED_PARTITIONS:]


def _cluster_state(source: str, metadata: Metadata) -> ClusterState:
    partitions = 0
    under_replicated = _First()
    offline = _First()
    lagging: set[int] = set()
    for topic in metadata.topics:
        if topic.error_code:
            raise ObservationError(source, f"topic {topic.name}: {error_name(topic.error_code)}")
        partitions += len(topic.partitions)
        for partition in topic.partitions.unsettled():
            if len(partition.isr_nodes) < len(partition.replica_nodes):
                under_replicated.add(f"{topic.name}-{partition.partition_index}")
                lagging.update(set(partition.replica_nodes).difference(partition.isr_nodes))
                bounds.count(
                    source, len(lagging), bounds.BROKERS, "replicas that lag", "Ask what answers at this address"
                )
            if partition.leader_id < 0:
                offline.add(f"{topic.name}-{partition.partition_index}")
    return ClusterState(
        brokers=frozenset(b.node_id for b in metadata.brokers),
        controller_id=metadata.controller_id,
        partitions=partitions,
        under_replicated=tuple(under_replicated.kept),
        under_replicated_count=under_replicated.count,
        offline=tuple(offline.kept),
        offline_count=offline.count,
        lagging=frozenset(lagging),
    )


def _factors(metadata: Metadata) -> dict[str, int]:
    """Return the least number of replicas of each topic's partitions."""
    return {t.name: min((len(p.replica_nodes) for p in t.partitions), default=0) for t in metadata.topics}


def _described(metadata: Metadata) -> dict[str, bool]:
    """Return whether the configuration of each topic may be described."""
    return {t.name: t.allows(_DESCRIBE_CONFIGS) for t in metadata.topics}


def _named_controller(connection: Connection) -> int:
    """Return the broker that each of several answers names as the controller."""
    named = {int(connection.metadata(REQUEST_SECONDS).controller_id) for _ in range(_ASKED_FOR_CONTROLLER)}
    if len(named) > 1:
        raise WireError("it names several brokers in turn, as one does that knows a KRaft controller")
    return named.pop()


def _view(connection: Connection, broker: int, until: float) -> ClusterState:
    left = until - time.monotonic()
    try:
        return connection.all_topics(
            min(max(left, _LEAST_SECONDS), REQUEST_SECONDS), partial(_cluster_state, f"broker {broker}")
        )
    except ObservationError as error:
        raise WireError(error.reason) from error


def _add_view(connection: Connection, seen: Seen) -> None:
    try:
        connection.all_topics(REQUEST_SECONDS, seen.add)
    except ObservationError as error:
        raise WireError(error.reason) from error


def _leader_epochs(connection: Connection) -> dict[TopicPartition, int]:
    def epochs(answer: Metadata) -> dict[TopicPartition, int]:
        partitions = partitions_of(answer.topics)
        return {(topic.name, partition.partition_index): partition.leader_epoch for topic, partition in partitions}

    try:
        return connection.all_topics(REQUEST_SECONDS, epochs)
    except ObservationError as error:
        raise WireError(error.reason) from error


def _topic_ids(connection: Connection, broker: int, process: str) -> TopicIds:
    """Ask a broker for its protocol, and its directories before its topics: a new topic is then no stray replica."""
    protocol = next((s.value or "" for s in _settings_of(connection, broker) if s.name == PROTOCOL), "")
    listings: list[Listing] | Unobserved
    try:
        listings = listed(connection, REQUEST_SECONDS)
    except ConnectionLostError:
        raise
    except WireError as error:
        listings = Unobserved(f"log directories of broker {broker}", str(error))
    without = _First()

    def fold(answer: Metadata) -> int:
        partitions = 0
        for topic in answer.topics:
            if topic.error_code:
                raise ObservationError(f"topic {topic.name}", error_name(topic.error_code))
            partitions += len(topic.partitions)
            if not topic.topic_id:
                without.add(topic.name)
            if not isinstance(listings, Unobserved):
                held = {p.partition_index for p in topic.partitions if broker in p.replica_nodes}
                for listing in listings:
                    listing.forget(topic.name, held)
        return partitions

    try:
        partitions = connection.all_topics(REQUEST_SECONDS, fold)
    except ObservationError as error:
        raise WireError(str(error)) from error
    log_dirs = listings if isinstance(listings, Unobserved) else tuple(listing.log_dir() for listing in listings)
    return TopicIds(process, protocol, partitions, tuple(without.kept), without.count, log_dirs)


def _serves(connection: Connection, topic: str) -> bool:
    (answer,) = connection.metadata(REQUEST_SECONDS, (topic,)).topics
    if answer.error_code == UNKNOWN_TOPIC:
        return False
    if answer.error_code or any(p.error_code or p.leader_id < 0 for p in answer.partitions):
        raise WireError(f"topic {topic} has no leader yet ({error_name(answer.error_code)})")
    return True


def _reassignments(connection: Connection) -> Any:
    answer = connection.call(
        ListPartitionReassignmentsRequest,
        REQUEST_SECONDS,
        max_version=0,
        most=bounds.KAFKA_REASSIGNMENTS_BYTES,
        timeout_ms=2000,
        topics=None,
    )
    if answer.error_code == NOT_CONTROLLER:
        connection.close()
        raise WireError("it is not the controller")
    return answer


def _renew_leaders(connection: Connection, most: int) -> set[str]:
    """Reassign partitions to the replicas that they have; return the errors.

    While a partition is being reassigned, Metadata lists the former replicas and the new ones. So reassignments are
    listed before Metadata is read, which takes long in a large cluster, and again right before the request.
    """
    moving, refused = _moving(connection)
    lacking = connection.all_topics(REQUEST_SECONDS, _lacking)
    moving_now, refused_now = _moving(connection)
    if refusals := refused | refused_now:
        return refusals
    present: dict[str, dict[int, Sequence[int]]] = {}
    for topic, number in sorted(lacking.keys() - moving - moving_now)[:most]:
        present.setdefault(topic, {})[number] = lacking[topic, number]
    if not present:
        return set()
    request = AlterPartitionReassignmentsRequest
    topics = [
        request.ReassignableTopic(
            name=name,
            partitions=[
                request.ReassignableTopic.ReassignablePartition(partition_index=number, replicas=list(replicas))
                for number, replicas in numbers.items()
            ],
        )
        for name, numbers in present.items()
    ]
    told = connection.call(request, REQUEST_SECONDS, max_version=0, timeout_ms=2000, topics=topics)
    of_partitions = {partition.error_code for _, partition in partitions_of(told.responses)}
    # A topic that was deleted meanwhile waits for nothing.
    codes = {told.error_code, *(of_partitions - {UNKNOWN_TOPIC})}
    return {f"AlterPartitionReassignments answered {error_name(code)}" for code in codes if code}


def _moving(connection: Connection) -> tuple[set[TopicPartition], set[str]]:
    """Return the partitions that are being reassigned, and the error."""
    answer = _reassignments(connection)
    if answer.error_code:
        return set(), {f"ListPartitionReassignments answered {error_name(answer.error_code)}"}
    return {(topic.name, partition.partition_index) for topic, partition in partitions_of(answer.topics)}, set()


def _lacking(metadata: Metadata) -> dict[tuple[str, int], Sequence[int]]:
    """Return the replicas, in their order, of the partitions that have a leader and lack a replica in sync."""
    return {
        (topic.name, partition.partition_index): partition.replica_nodes
        for topic, partition in partitions_of(metadata.topics)
        if partition.leader_id >= 0 and len(partition.isr_nodes) < len(partition.replica_nodes)
    }


def _min_isr(connection: Connection, topics: list[str]) -> dict[str, int]:
    """Return ``min.insync.replicas`` by topic; topics that were deleted in the meantime are omitted."""
    min_isr = {}
    for topic, configs in topic_configs(connection, dict.fromkeys(topics, (_MIN_ISR,)), REQUEST_SECONDS).items():
        value = configs.get(_MIN_ISR)
        if value is None:
            raise WireError(f"configuration of topic {topic}: {_MIN_ISR} was not answered")
        min_isr[topic] = int(value)
    return min_isr


def _stated_by_topics(connection: Connection, topics: Sequence[str]) -> dict[str, dict[str, str | None]]:
    """Return what topics state of the settings that Kafka 4 refuses or ignores; one that has gone is omitted."""
    wanted = sorted({*GONE_FROM_TOPICS, *TOPIC_BOUNDS})
    stated = topic_configs(connection, dict.fromkeys(topics, wanted), REQUEST_SECONDS, stated=True)
    return {topic: configs for topic, configs in stated.items() if configs}


def topic_configs(
    connection: Connection, names: Mapping[str, Iterable[str]], timeout_seconds: float, *, stated: bool = False
) -> dict[str, dict[str, str | None]]:
    """Return the named settings of each topic, by topic and name; unknown topics are omitted.

    Parameters
    ----------
    stated
        Whether only those are returned that the topic states itself.

    Raises
    ------
    WireError
        The broker did not answer, or the principal may not read one of the topics.
    """
    resource = DescribeConfigsRequest.DescribeConfigsResource
    answer = connection.call(
        DescribeConfigsRequest,
        timeout_seconds,
        max_version=4,
        resources=[
            resource(resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=sorted(set(keys)))
            for topic, keys in names.items()
        ],
        include_synonyms=False,
        include_documentation=False,
    )
    values = {}
    for result in answer.results:
        if result.error_code == UNKNOWN_TOPIC:
            continue
        if result.error_code:
            raise WireError(f"configuration of topic {result.resource_name}: {error_name(result.error_code)}")
        values[result.resource_name] = {
            config.name: config.value for config in result.configs if not stated or config.config_source == _OF_TOPIC
        }
    return values


def stated_places(config: Any) -> tuple[Stated, ...]:
    """Return the places that state a setting by its own name, the one that wins first (DescribeConfigs, KIP-226)."""
    return tuple(
        Stated(_SOURCES[synonym.source], shown_value(config, synonym.value))
        for synonym in config.synonyms or ()
        if synonym.name == config.name and synonym.source in _SOURCES
    )


def shown_value(config: Any, value: str | None) -> str | None:
    """Return a value of a setting; None if Kafka hides it."""
    return None if config.is_sensitive else value


def broker_configs(connection: Connection, broker: int, timeout_seconds: float) -> Any:
    """Return the configuration of a broker as it answers itself, with the places that state each setting.

    Raises
    ------
    WireError
        It did not answer, or the principal may not describe its configuration.
    """
    resource = DescribeConfigsRequest.DescribeConfigsResource
    wanted = resource(resource_type=_BROKER_RESOURCE, resource_name=str(broker), configuration_keys=None)
    answer = connection.call(
        DescribeConfigsRequest,
        timeout_seconds,
        max_version=4,
        min_version=1,  # with synonyms (KIP-226)
        resources=[wanted],
        include_synonyms=True,
        include_documentation=False,
    )
    (result,) = answer.results
    if result.error_code:
        raise WireError(f"DescribeConfigs answered {error_name(result.error_code)}")
    return result.configs


def _cluster_operations(connection: Connection) -> tuple[int, Iterable[int]]:
    """Return the error, and the codes of what the principal may do with the cluster.

    DescribeCluster is new in Kafka 2.8 (KIP-700).
    """
    if not connection.answers(DescribeClusterRequest):
        return 0, connection.metadata(REQUEST_SECONDS, of_cluster=True).authorized_operations or ()
    answer = connection.call(
        DescribeClusterRequest,
        REQUEST_SECONDS,
        max_version=1,
        include_cluster_authorized_operations=True,
        endpoint_type=1,
    )
    return int(answer.error_code), answer.authorized_operations or ()


def _send_old_request(connection: Connection) -> None:
    connection.call(DescribeConfigsRequest, REQUEST_SECONDS, max_version=0, resources=[])


def _settings_of(connection: Connection, broker: int) -> tuple[BrokerSetting, ...]:
    return tuple(
        BrokerSetting(
            name=str(config.name),
            value=shown_value(config, config.value),
            source=_SOURCES[config.config_source],
            sensitive=bool(config.is_sensitive),
            known=config.config_type != 0 or not connection.answers(DescribeConfigsRequest, _WITH_TYPES),
            stated=stated_places(config),
        )
        for config in broker_configs(connection, broker, REQUEST_SECONDS)
        if _is_relevant(config)
    )


def _is_relevant(config: Any) -> bool:
    source = _SOURCES.get(config.config_source)
    if source is SettingSource.DEFAULT:
        return config.name in RELEVANT_DEFAULTS
    return source is not None


logger = logging.getLogger(__name__)

PROBE_EVERY_SECONDS: Final = 0.25
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
    bootstrap_servers, client_properties, judge
        As for `BrokerClient`.
    """

    def __init__(self, bootstrap_servers: str, client_properties: Mapping[str, str], judge: Judge = anywhere) -> None:
        self._bootstrap = host_ports(bootstrap_servers)
        self._security = Security.from_properties(client_properties, judge=judge)
        self._known: dict[int, tuple[str, int]] = {}
        self._connections = Connections(self._security)
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
                self._connections.drop(address)
        self._last = None
        return False

    def close(self) -> None:
        """Close all connections."""
        self._connections.close()

    def _controller_address(self) -> tuple[str, int] | None:
        """Return the address of the controller as the first broker that answers knows it.

        In KRaft mode that is any broker.
        """
        for address in dict.fromkeys([*self._known.values(), *self._bootstrap]):
            try:
                answer = self._connections.to(address, PROBE_SECONDS).metadata(PROBE_SECONDS)
            except WireError:
                self._connections.drop(address)
                continue
            if answer.brokers:
                self._known = {b.node_id: (b.host, b.port) for b in answer.brokers}
            return self._known.get(answer.controller_id)
        return None

    def _create(self, address: tuple[str, int]) -> int:
        topic = CreateTopicsRequest.CreatableTopic(
            name=PROBE_TOPIC, num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        answer: Any = self._connections.to(address, PROBE_SECONDS).call(
            CreateTopicsRequest,
            PROBE_SECONDS,
            max_version=4,
            topics=[topic],
            timeout_ms=int(PROBE_SECONDS * 1000),
            validate_only=True,
        )
        return int(answer.topics[0].error_code)


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
        """Start probing if needed, and return the longest gap so far under ``key`` (a phase).

        Another key starts from zero.
        """
        with self._lock:
            if key != self._key:
                self._key = key
                self._longest = ControllerProbe(0, None)
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
            since = self._refused_since
            self._refused_since = None
            self._accepted_once = True
            if since is None:
                return
            milliseconds = round((answered_at - since) * 1000)
            if milliseconds > self._longest.longest_milliseconds:
                self._longest = ControllerProbe(milliseconds, datetime.now(UTC))

    def _run(self) -> None:
        client = self._open_client()
        with self._lock:
            self._refused_since = None
            self._accepted_once = False
        try:
            while not self._stop.is_set():
                asked_at = self._clock()
                accepted = client.accepts()
                answered_at = self._clock()
                self.note(accepted=accepted, asked_at=asked_at, answered_at=answered_at)
                self._stop.wait(max(PROBE_EVERY_SECONDS - (answered_at - asked_at), 0.0))
        except Exception:
            logger.exception("the probe of the controller broke off; the next step begins another")
        finally:
            client.close()
