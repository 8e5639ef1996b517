"""The operator's client of ZooKeeper.

It reads the znodes that show the state of a migration, and removes those that a rollback removes.
It creates the states of partitions that the takeover kept ZooKeeper's controller from writing.

Functions that parse a payload raise ValueError, KeyError, TypeError or `MetadataError` if they cannot read it.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import shutil
import ssl
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import ACL, Id
from typing_extensions import override

from kraftbridge.constants import CANARY_USER
from kraftbridge.exceptions import (
    ActionError,
    ConflictError,
    ObservationError,
    UndecodableZnodeError,
)
from kraftbridge.kafka.client import resolve, resolve_all
from kraftbridge.metadata.zookeeper.session import (
    Retries,
    TlsFiles,
    ZooKeeperCredentials,
    acl,
    children,
    new_session,
)
from kraftbridge.metadata.zookeeper.znodes import TopicAssignment, migration_znode
from kraftbridge.models.observation import (
    BrokerZnode,
    ControllerZnode,
    Endpoint,
    MigrationZnode,
    Unobserved,
    ZooKeeperState,
)
from kraftbridge.models.survey import AclEntry, ZooKeeperAcls, ZooKeeperUsers
from kraftbridge.outside import bounds
from kraftbridge.outside.endpoints import Judge, anywhere, connect
from kraftbridge.outside.json_text import parsed_json

CANARY_QUOTA: Final = "producer_byte_rate"

_ACL_TOPICS: Final = 1_000
"""Topics whose ACLs are read; a thousand answers take half a second."""
_WRITTEN_BY_KRAFT: Final = (
    "/", "/controller", "/controller_epoch", "/migration", "/brokers", "/brokers/ids", "/brokers/topics",
    "/config", "/config/topics", "/config/brokers", "/config/users", "/config/clients", "/config/ips",
    "/config/changes", "/admin", "/admin/delete_topics", "/kafka-acl", "/kafka-acl-extended", "/delegation_token",
    "/latest_producer_id_block", "/feature", "/isr_change_notification",
)  # fmt: skip
"""Znodes that a KRaft controller reads or writes in the copy and in dual-write (``ZkMigrationClient`` and its parts,
``ZkData``)."""

_OF_KAFKA: Final = frozenset({
    "admin", "brokers", "cluster", "config", "consumers", "controller", "controller_epoch", "delegation_token",
    "feature", "isr_change_notification", "kafka-acl", "kafka-acl-changes", "kafka-acl-extended",
    "kafka-acl-extended-changes", "latest_producer_id_block", "log_dir_event_notification", "migration",
})  # fmt: skip
"""Top-level znodes of a Kafka cluster (``ZkData`` of 3.9)."""
_ANNOUNCES: Final = ("/config/changes", "/kafka-acl-changes", "/kafka-acl-extended-changes")
"""Znodes below which each change of configurations, quotas, credentials and ACLs is announced
(``ConfigEntityChangeNotificationZNode``, ``ZkAclChangeStore`` of ``ZkData``)."""
_OF_ZOOKEEPER: Final = "zookeeper"
"""ZooKeeper's own znode in its root."""

T = TypeVar("T")
Znode = tuple[bytes, Any]
"""Payload and ``ZnodeStat``."""

_SESSION_TIMEOUT_SECONDS: Final = 6.0
_CONNECT_SECONDS: Final = 5.0
_RESOLVE_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 0.25
"""How often a session that is awaited is looked at for a refusal."""
_CALL_SECONDS: Final = 6.0
_CLOSE_SECONDS: Final = 2.0
_FOUR_LETTER_WORD_SECONDS: Final = 2.0
_DEFAULT_PORT: Final = 2181
_BATCH_PATHS: Final = 500
_TOPICS: Final = "/brokers/topics"
_AUTHENTICATED: Final = Id("auth", "")
"""Stands for the session's own users (``PrepRequestProcessor.fixupACL``)."""
_STATE_PAUSE_SECONDS: Final = 3.0
"""Between the two looks at a partition without state. The deletion of a topic takes milliseconds."""
_RETRIES: Final = Retries(connection=-1, command=0, max_delay_seconds=1.0)
"""Connections are retried without limit, on kazoo's own thread. kazoo resolves the names again at each attempt."""


@dataclass(frozen=True, slots=True)
class _Stateless:
    """A partition without state, and the version of its topic at that time."""

    topic: str
    created: int
    version: int
    number: int
    replicas: tuple[int, ...]

    @property
    def state_path(self) -> str:
        """Where its state belongs."""
        return f"{_TOPICS}/{self.topic}/partitions/{self.number}/state"


@dataclass(frozen=True, slots=True)
class ZooKeeperTls:
    """Certificates and key for TLS to ZooKeeper, as PEM texts."""

    ca: str
    certificate: str | None = None
    """Client certificate with its chain, where the servers require one."""
    key: str | None = field(default=None, repr=False)


class _LastWarning(logging.Handler):
    """Keeps the last warning of kazoo that has a reason.

    kazoo logs why a connection fails, and its exceptions do not say it.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""

    @override
    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if not text.startswith("Transition to "):  # the session's new state, after the reason
            self.text = text


class ZooKeeperStore:
    """Reads the znodes of one Kafka cluster over one lasting session; thread-safe.

    The first call opens the session.
    The client opens a new one when the session is lost.
    No call takes longer than about six seconds.

    Parameters
    ----------
    hosts
        ``host:port`` pairs, separated by commas.
    chroot
        ``""`` or ``/path``.
    judge
        Where the session may connect to.
    """

    def __init__(
        self,
        hosts: str,
        chroot: str = "",
        credentials: ZooKeeperCredentials | None = None,
        tls: ZooKeeperTls | None = None,
        judge: Judge = anywhere,
    ) -> None:
        self._hosts = hosts
        self._judge = judge
        self._chroot = chroot
        self._source = f"ZooKeeper {hosts}{chroot}"
        self._lock = threading.Lock()
        self._directory: Path | None = None
        self._tls: TlsFiles | None = None
        if tls is not None:
            self._tls = self._write_tls_files(tls)
        self._last_warning = _LastWarning()
        logger = logging.Logger("kazoo", logging.WARNING)  # noqa: LOG001 - of this store only, never configured
        logger.addHandler(self._last_warning)
        self._new_session = partial(
            new_session, f"{hosts}{chroot}", _SESSION_TIMEOUT_SECONDS, _RETRIES, credentials, self._tls, logger,
            most=bounds.OPERATOR_REPLIES, judge=judge,
        )  # fmt: skip
        self._client: KazooClient | None = None
        self._live = threading.Event()
        """Of `_client`: set while it has a session."""

    def close(self) -> None:
        """End the session and remove the key files."""
        with self._lock:
            client = self._client
            directory = self._directory
            self._client = None
            self._directory = None
        if client is not None:
            # kazoo waits longer for a silent server than the callers can
            ending = threading.Thread(target=_dispose, args=(client,), name="end ZooKeeper session", daemon=True)
            ending.start()
            ending.join(_CLOSE_SECONDS)
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)

    # -------------------------------------------------------------------------------------------- reads

    def observe(self) -> ZooKeeperState:
        """Read the znodes that show the state of the migration now (after a ``sync``).

        Raises
        ------
        ObservationError
            No session or no answer in time, no permission, or a payload that cannot be read.
            An unreadable ``/migration`` alone is no error, because Kafka leaves it so (KAFKA-19480).
        """
        deadline = time.monotonic() + _CALL_SECONDS
        with self._reading():
            client = self._connected(deadline)
            fresh = client.sync_async("/")  # ZooKeeper answers in order: the later reads see at least this state
            nodes = {
                path: client.get_async(path)
                for path in (
                    "/cluster/id",
                    "/controller",
                    "/controller_epoch",
                    "/migration",
                    "/admin/reassign_partitions",
                    f"/config/users/{CANARY_USER}",
                )
            }
            announced = {path: client.get_async(path) for path in _ANNOUNCES}
            deletions = children(client, "/admin/delete_topics")
            ids = _broker_ids(client, deadline)
            brokers = {int(i): client.get_async(f"/brokers/ids/{i}") for i in ids}
            read = {path: _result(answer, deadline) for path, answer in nodes.items()}
            registered = {i: _result(answer, deadline) for i, answer in brokers.items()}
            deleting = _names(deletions, deadline)
            changes = {path: _children_changed(answer, deadline) for path, answer in announced.items()}
            _result(fresh, deadline)
            newest = client.last_zxid  # each answer carries the last transaction that its server has applied
        try:
            return ZooKeeperState(
                cluster_id=_if_present(read["/cluster/id"], cluster_id),
                controller=controller_znode(read["/controller"]),
                controller_epoch=_if_present(read["/controller_epoch"], lambda node: int(node[0])),
                migration=_migration_or_unobserved(self._source, read["/migration"]),
                brokers=tuple(broker_znode(i, node) for i, node in sorted(registered.items()) if node is not None),
                pending_topic_deletions=tuple(sorted(deleting)),
                reassignments=reassigns(read["/admin/reassign_partitions"]),
                canary=canary_quota(read[f"/config/users/{CANARY_USER}"]),
                migration_czxid=_if_present(read["/migration"], lambda node: int(node[1].czxid)) or 0,
                zxid=int(newest),
                changes={path: count for path, count in changes.items() if count is not None},
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ObservationError(
                self._source, f"a znode cannot be decoded: {type(error).__name__}: {error}"
            ) from error

    def acls(self) -> ZooKeeperAcls:
        """Return the ACLs of the znodes that KRaft controllers read and write.

        Raises
        ------
        ObservationError
            No session or no answer in time.
        """
        deadline = time.monotonic() + _CALL_SECONDS
        with self._reading():
            return _read_acls(self._connected(deadline), deadline)

    def topics(self) -> frozenset[str]:
        """Return the names below ``/brokers/topics``.

        Raises
        ------
        ObservationError
            No session, no answer in time, or no permission.
        """
        deadline = time.monotonic() + _CALL_SECONDS
        with self._reading():
            return frozenset(_names(children(self._connected(deadline), "/brokers/topics"), deadline))

    def payloads(self, paths: Sequence[str]) -> dict[str, bytes | None]:
        """Return the data of znodes, None for a znode that does not exist.

        It reads in batches, each with its own time limit.

        Raises
        ------
        ObservationError
            No session, no answer in time, or no permission.
        """
        payloads: dict[str, bytes | None] = {}
        with self._reading():
            for start in range(0, len(paths), _BATCH_PATHS):
                deadline = time.monotonic() + _CALL_SECONDS
                client = self._connected(deadline)
                asked = {path: client.get_async(path) for path in paths[start : start + _BATCH_PATHS]}
                for path, answer in asked.items():
                    payloads[path] = _if_present(_result(answer, deadline), lambda node: bytes(node[0] or b""))
        return payloads

    def broker_session_count(self) -> int | Unobserved:
        """Return the number of sessions at all servers without this client's own.

        Brokers that left ZooKeeper have none.

        The count comes from the four-letter word ``cons``, which the servers must allow (``4lw.commands.whitelist``).
        Sessions of other clients count too, because ZooKeeper does not know their owners.
        A server lists only the sessions of the port that received the command (seen in 3.8.4),
        so this client must use the brokers' port.
        """
        sessions = self._sessions()
        return sessions if isinstance(sessions, Unobserved) else len(sessions.keys() - {self._own_session()})

    def users(self) -> ZooKeeperUsers:
        """Return what others keep in this ZooKeeper, and the addresses of sessions that are neither brokers' nor ours.

        A broker may have several sessions (``AclAuthorizer`` opens its own),
        so all sessions of its address count as its own.
        The servers must allow the four-letter word ``cons``; see `broker_session_count` for what it does not list.

        Raises
        ------
        ObservationError
            No session, no answer in time, or no permission to list ``/brokers/ids``, the chroot or ZooKeeper's root.
        """
        deadline = time.monotonic() + _CALL_SECONDS
        first_of_chroot = self._chroot.strip("/").partition("/")[0]
        with self._reading():
            client = self._connected(deadline)
            # The root itself, which kazoo hides below a chroot.
            top = children(client, "/", chroot=False)
            inside = children(client, "/")
            groups = children(client, "/consumers")
            answers = [client.get_async(f"/brokers/ids/{i}") for i in _broker_ids(client, deadline)]
            brokers = [_result(answer, deadline) for answer in answers]
            owners = {node[1].ephemeralOwner for node in brokers if node is not None}
            others = {f"/{name}" for name in _names(top, deadline)} - {f"/{_OF_ZOOKEEPER}", f"/{first_of_chroot}"}
            if first_of_chroot:
                others |= {f"{self._chroot}/{name}" for name in set(_names(inside, deadline)) - _OF_KAFKA}
            else:
                others -= {f"/{name}" for name in _OF_KAFKA}
            consumers = tuple(sorted(_names(groups, deadline)))
        return ZooKeeperUsers(tuple(sorted(others)), consumers, self._foreign_clients(owners))

    def _foreign_clients(self, brokers: set[int]) -> tuple[str, ...] | Unobserved:
        """Return the addresses of all sessions without the addresses from which a broker or this client connects."""
        sessions = self._sessions()
        if isinstance(sessions, Unobserved):
            return sessions
        known = {self._own_session(), *(_unsigned(owner) for owner in brokers)}
        ours = {address for session, address in sessions.items() if session in known}
        return tuple(sorted(set(sessions.values()) - ours))

    def _own_session(self) -> int | None:
        with self._lock:
            client = self._client
        if client is None or not client.client_id:
            return None
        return _unsigned(client.client_id[0])

    def _sessions(self) -> dict[int, str] | Unobserved:
        """Return the address of each session at all servers, by session."""
        sessions: dict[int, str] = {}
        for host, port in _host_ports(self._hosts):
            source = f"ZooKeeper {host}:{port}"
            try:
                answer = self._four_letter_word(host, port, "cons")
            except OSError as error:
                return Unobserved(source, f"cons failed: {type(error).__name__}: {error}")
            if "not in the whitelist" in answer:
                return Unobserved(source, "the four-letter word cons is not in its 4lw.commands.whitelist")
            if not answer.strip():  # the connection of the command itself is always listed
                return Unobserved(source, "it answered cons with nothing")
            sessions |= _sessions(answer)
        return sessions

    # -------------------------------------------------------------------------------------------- writes

    def remove_controller_claim(self, expected_kraft_epoch: int) -> None:
        """Delete ``/controller`` and then ``/migration``, so that a broker on ZooKeeper can become controller again.

        This is the last step of a rollback, after all KRaft controllers have stopped (Kafka's documentation,
        "Reverting to ZooKeeper mode during the migration").
        Repeating it is no error.

        Parameters
        ----------
        expected_kraft_epoch
            ``kraftControllerEpoch`` that ``/controller`` must have. The method removes no other claim.

        Raises
        ------
        ConflictError
            Another controller holds ``/controller``, or a znode changed in the meantime.
        ActionError
            ZooKeeper did not answer; repeat the call.
        """
        operation = f"removal of the KRaft controller's claim in {self._source}"
        deadline = time.monotonic() + _CALL_SECONDS
        try:
            client = self._connected(deadline)
            fresh = client.sync_async("/")
            claim = client.get_async("/controller")
            migration = client.get_async("/migration")
            _result(fresh, deadline)
            held = _result(claim, deadline)
            migrating = _result(migration, deadline)
            # The operator owns this znode, and nothing mirrors its removal.
            # It is gone already unless the user accepted losses.
            _result(client.delete_async(f"/config/users/{CANARY_USER}"), deadline)
            controller = controller_znode(held)
            if controller is not None and controller.kraft_controller_epoch < 0:
                if migrating is None:
                    return  # a broker is controller again: the claim was removed before
                held = None
            elif controller is not None and controller.kraft_controller_epoch != expected_kraft_epoch:
                raise ConflictError(
                    f"{operation}: /controller belongs to controller {controller.broker_id} with KRaft epoch "
                    f"{controller.kraft_controller_epoch}, not {expected_kraft_epoch}; "
                    "does a KRaft controller still run?"
                )
            if held is not None:  # a changed /controller_epoch makes a broker that is controller resign
                self._raise_controller_epoch(client, migrating, expected_kraft_epoch, deadline)
            # Deleting /migration first would let a running KRaft controller start the migration again.
            # Both versions are checked.
            for path, node in (("/controller", held), ("/migration", migrating)):
                if node is not None:
                    _result(client.delete_async(path, node[1].version), deadline)
        except BadVersionError as error:
            raise ConflictError(
                f"{operation}: a znode changed in between; does a KRaft controller still run?"
            ) from error
        except (KazooException, KazooTimeoutError, OSError) as error:
            raise ActionError(f"{operation} failed: {self._explain(error)}") from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ActionError(f"{operation}: /controller cannot be decoded: {error}") from error

    def _raise_controller_epoch(
        self, client: KazooClient, migrating: Znode | None, claimed_epoch: int, deadline: float
    ) -> None:
        """Raise ``/controller_epoch`` to the epoch that dual-write wrote into partition states.

        ZooKeeper's controller refuses to elect leaders of partitions whose state has a higher epoch than its own
        (``PartitionStateMachine``, KAFKA-20488). The controller increments the epoch when it is elected.
        """
        state = _migration_or_unobserved(self._source, migrating)
        node = _result(client.get_async("/controller_epoch"), deadline)
        if node is None:
            return
        written = claimed_epoch
        if isinstance(state, MigrationZnode):
            # A newer leader may have claimed /controller without having written /migration.
            written = max(written, state.kraft_controller_epoch)
        if int(node[0]) < written:
            value = str(written).encode()
            _result(client.set_async("/controller_epoch", value, node[1].version), deadline)

    def create_partition_states(self) -> tuple[str, ...]:
        """Create the state of each partition that has none, and return these partitions as ``topic-partition``.

        ZooKeeper's controller writes the state after a client has created the topic or added the partition.
        When KRaft takes over in between, nobody writes it.
        The copy takes all replicas to be in sync and the first to lead (``ZkTopicMigrationClient``).
        The next change of the partition then fails in ZooKeeper, together with all other changes of its event.
        The state that this method creates says what the copy took it to be.
        The next SYNC_KRAFT_TO_ZK of a controller corrects it (``KRaftMigrationZkWriter``).

        A topic that is being deleted has no states for a moment either.
        So only a partition without state at two looks, of a topic that did not change in between, gets one.

        Raises
        ------
        ConflictError
            A topic changed, or another client created a state, between look and write; repeat the call.
        ActionError
            ZooKeeper did not answer or refused; repeat the call.
        """
        operation = f"creation of partition states in {self._source}"
        try:
            deadline = time.monotonic() + _CALL_SECONDS
            found = self._without_state(_names(children(self._connected(deadline), _TOPICS), deadline))
            if not found:
                return ()
            time.sleep(_STATE_PAUSE_SECONDS)
            again = set(self._without_state(sorted({partition.topic for partition in found})))
            lasting = [partition for partition in found if partition in again]
            for partition in lasting:
                self._create_state(partition)
        except (NodeExistsError, NoNodeError, BadVersionError) as error:
            raise ConflictError(f"{operation}: a topic changed in between") from error
        except (KazooException, KazooTimeoutError, OSError) as error:
            raise ActionError(f"{operation} failed: {self._explain(error)}") from error
        except ValueError as error:
            raise ActionError(f"{operation}: /controller_epoch cannot be decoded: {error}") from error
        return tuple(sorted(f"{partition.topic}-{partition.number}" for partition in lasting))

    def _without_state(self, topics: Sequence[str]) -> list[_Stateless]:
        """Return the partitions of these topics that have replicas and no state.

        A topic that cannot be decoded is left out: Kafka does not read it either, and a verification names it.
        """
        found: list[_Stateless] = []
        for start in range(0, len(topics), _BATCH_PATHS):
            deadline = time.monotonic() + _CALL_SECONDS
            client = self._connected(deadline)
            asked = {topic: client.get_async(f"{_TOPICS}/{topic}") for topic in topics[start : start + _BATCH_PATHS]}
            assigned: list[_Stateless] = []
            for topic, answer in asked.items():
                node = _result(answer, deadline)
                if node is None:  # deleted since the topics were listed
                    continue
                with suppress(UndecodableZnodeError):
                    assignment = TopicAssignment.parse(f"{_TOPICS}/{topic}", node[0])
                    version = (node[1].czxid, node[1].version)
                    assigned += [_Stateless(topic, *version, n, tuple(r)) for n, r in assignment.replicas.items() if r]
            found += self._stateless_of(assigned)
        return found

    def _stateless_of(self, partitions: Sequence[_Stateless]) -> Iterator[_Stateless]:
        for start in range(0, len(partitions), _BATCH_PATHS):
            batch = partitions[start : start + _BATCH_PATHS]
            deadline = time.monotonic() + _CALL_SECONDS
            client = self._connected(deadline)
            asked = [client.exists_async(partition.state_path) for partition in batch]
            yield from (p for p, answer in zip(batch, asked, strict=True) if _result(answer, deadline) is None)

    def _create_state(self, partition: _Stateless) -> None:
        """Create a partition's state and what lacks above it, in one transaction with the topic's version."""
        deadline = time.monotonic() + _CALL_SECONDS
        client = self._connected(deadline)
        topic_path = f"{_TOPICS}/{partition.topic}"
        acls = _result(acl(client, topic_path), deadline)
        epoch = _result(client.get_async("/controller_epoch"), deadline)
        if acls is None or epoch is None:
            raise NoNodeError
        state = {
            "controller_epoch": int(epoch[0]),
            "leader": partition.replicas[0],
            "version": 1,
            "leader_epoch": 0,
            "isr": partition.replicas,
        }
        acl_of_topic = [entry._replace(id=_AUTHENTICATED) if _is_masked(entry) else entry for entry in acls[0]]
        transaction = client.transaction()
        transaction.check(topic_path, partition.version)
        for path in (f"{topic_path}/partitions", f"{topic_path}/partitions/{partition.number}"):
            if _result(client.exists_async(path), deadline) is None:
                transaction.create(path, b"", acl=acl_of_topic)
        transaction.create(partition.state_path, json.dumps(state).encode(), acl=acl_of_topic)
        for outcome in _result(transaction.commit_async(), deadline) or ():
            if isinstance(outcome, KazooException) and not isinstance(outcome, RolledBackError | RuntimeInconsistency):
                raise outcome

    # -------------------------------------------------------------------------------------------- the session

    def _connected(self, deadline: float) -> KazooClient:
        with self._lock:
            if self._client is None or self._client._stopped.is_set():  # noqa: SLF001 - kazoo gave up (authentication)
                if self._client is not None:
                    _dispose(self._client)
                    self._client = None
                self._last_warning.text = ""
                self._check_names(deadline)
                self._client = self._new_session()
                self._live = self._client.start_async()
            client = self._client
            live = self._live
        limit = min(deadline, time.monotonic() + _CONNECT_SECONDS)
        while not live.wait(min(max(limit - time.monotonic(), 0.0), _LOOK_SECONDS)):
            if time.monotonic() > limit:
                self._forget_older(client)
                raise KazooTimeoutError(f"no session in {_CONNECT_SECONDS:g} s")
            if client._stopped.is_set():  # noqa: SLF001 - as above
                raise KazooTimeoutError("the session was refused; are the credentials right?")
        return client

    def _forget_older(self, client: KazooClient) -> None:
        """Let the next call open a session of its own where this one had seen transactions.

        A server refuses a session that has seen a newer transaction than its own last one
        (``ZooKeeperServer.processConnectRequest``: "our last zxid is …, client must try another server").
        So a client that goes on would never see a ZooKeeper that was restored from a backup.
        """
        has_seen = bool(client.last_zxid)
        with self._lock:
            if self._client is not client or not has_seen:
                return
            self._client = None
        threading.Thread(target=_dispose, args=(client,), name="end ZooKeeper session", daemon=True).start()

    def _check_names(self, deadline: float) -> None:
        """Refuse to start a session if no server's name resolves.

        kazoo would repeat the look-ups without end and without a time limit.
        """
        seconds = min(_RESOLVE_SECONDS, deadline - time.monotonic())
        answers = resolve_all((host for host, _ in _host_ports(self._hosts)), seconds)
        failures = [answer for answer in answers.values() if isinstance(answer, OSError)]
        if failures and len(failures) == len(answers):
            raise failures[0]

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (KazooException, KazooTimeoutError, OSError) as error:
            raise ObservationError(self._source, self._explain(error)) from error

    def _explain(self, error: BaseException) -> str:
        text = type(error).__name__
        if str(error):
            text = f"{text}: {error}"
        connected = self._client is not None and self._client.connected
        if connected or not self._last_warning.text:
            return text
        return f"{text}; the last attempt said: {self._last_warning.text}"

    def _write_tls_files(self, tls: ZooKeeperTls) -> TlsFiles:
        directory = self._directory = Path(tempfile.mkdtemp(prefix="kraftbridge-zookeeper-"))  # mode 0700

        def write(name: str, text: str) -> Path:
            path = directory / name
            path.write_text(text)
            return path

        given = {"tls.crt": tls.certificate, "tls.key": tls.key}
        written = {name: write(name, text) for name, text in given.items() if text is not None}
        return TlsFiles(write("ca.crt", tls.ca), written.get("tls.crt"), written.get("tls.key"))

    def _four_letter_word(self, host: str, port: int, word: str) -> str:
        deadline = time.monotonic() + _FOUR_LETTER_WORD_SECONDS
        address = resolve(host, port, _FOUR_LETTER_WORD_SECONDS)[0]
        raw = connect(host, address, port, max(deadline - time.monotonic(), 0.1), self._judge)
        if self._tls is not None:
            context = ssl.create_default_context(cafile=self._tls.ca)
            if self._tls.certificate is not None:
                context.load_cert_chain(self._tls.certificate, self._tls.key)
            raw = context.wrap_socket(raw, server_hostname=host)
        with raw as connection:
            connection.sendall(word.encode())
            source = f"the answer to {word}"
            answer = bounds.until_closed(
                connection.recv, connection.settimeout, source, bounds.SESSIONS_BYTES, deadline
            )
        return answer.decode("utf-8", "replace")


def _broker_ids(client: KazooClient, deadline: float) -> list[str]:
    ids = _names(children(client, "/brokers/ids"), deadline)
    bounds.count("/brokers/ids", len(ids), bounds.BROKERS, "brokers", "Remove the znodes that are no brokers")
    return ids


def _dispose(client: KazooClient) -> None:
    with suppress(KazooException, KazooTimeoutError, OSError):
        client.stop()
    with suppress(KazooException, KazooTimeoutError, OSError):
        client.close()


def _is_masked(entry: ACL) -> bool:
    """Return whether ZooKeeper hides the digest of an entry, as it does from who may not change the ACL."""
    return entry.id.scheme == "digest" and str(entry.id.id).endswith(":x")


def _result(answer: Any, deadline: float) -> Any:
    """Return the result of an asynchronous call; None if the znode does not exist.

    A reply that is none of ZooKeeper's is a broken connection.
    """
    try:
        return answer.get(timeout=max(deadline - time.monotonic(), 0.05))
    except NoNodeError:
        return None
    except (struct.error, ValueError, TypeError, IndexError) as error:  # of kazoo's decoders
        raise OSError(f"a reply cannot be read: {error}") from error


def _children_changed(answer: Any, deadline: float) -> int | None:
    """Return how often children of a znode were made and removed; None if it does not exist or may not be read."""
    try:
        node = _result(answer, deadline)
    except NoAuthError:
        return None
    return _if_present(node, lambda found: int(found[1].cversion))


def _names(answer: Any, deadline: float) -> list[str]:
    """Return the children of a znode; none if it does not exist."""
    return _result(answer, deadline) or []


def _if_present(node: Znode | None, read: Callable[[Znode], T]) -> T | None:
    return None if node is None else read(node)


def _migration_or_unobserved(source: str, node: Znode | None) -> MigrationZnode | Unobserved | None:
    if node is None:
        return None
    payload = node[0] or b""
    if len(payload) > bounds.ZNODE_BYTES:
        return Unobserved(f"{source} /migration", f"its payload of {bounds.size(len(payload))} is not read")
    try:
        return migration_znode(node[0])
    except (UndecodableZnodeError, RecursionError) as error:
        return Unobserved(f"{source} /migration", f"its payload {node[0]!r:.200} cannot be read: {error}")


def _host_ports(hosts: str) -> list[tuple[str, int]]:
    addresses = []
    for entry in hosts.split(","):
        host, separator, port = entry.strip().rpartition(":")
        if separator:
            addresses.append((host.strip("[]"), int(port)))
        else:
            addresses.append((entry.strip(), _DEFAULT_PORT))
    return addresses


def _sessions(answer: str) -> dict[int, str]:
    """Read sessions and addresses in an answer to ``cons``: ``/10.0.0.7:41234[1](queued=0,…,sid=0x1000…,…)``."""
    lines = [line.strip() for line in answer.splitlines() if "sid=0x" in line]
    return {int(line.partition("sid=")[2].split(",")[0], 16): _address(line) for line in lines}


def _address(line: str) -> str:
    # An IPv6 address has no brackets of its own here, and is written in full.
    text = line.partition("[")[0].rpartition("/")[2].rpartition(":")[0]
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return text


def _unsigned(session: int) -> int:
    """Return a session id as ``cons`` writes it; kazoo reads it as a signed number."""
    return session & 0xFFFF_FFFF_FFFF_FFFF


def cluster_id(node: Znode) -> str:
    """Read ``/cluster/id``."""
    return str(_json(node)["id"])


def controller_znode(node: Znode | None) -> ControllerZnode | None:
    """Read ``/controller``; version 1 of its payload has no KRaft epoch (KIP-866)."""
    if node is None:
        return None
    fields = _json(node)
    return ControllerZnode(
        broker_id=int(fields["brokerid"]),
        kraft_controller_epoch=int(fields.get("kraftControllerEpoch", -1)),
        ephemeral=node[1].ephemeralOwner != 0,
    )


def broker_znode(broker_id: int, node: Znode) -> BrokerZnode:
    """Read ``/brokers/ids/N``."""
    # an endpoint is LISTENER://host:port, and the host may be an IPv6 address in brackets
    endpoints = []
    for text in _json(node).get("endpoints", []):
        listener, _, address = str(text).partition("://")
        host, _, port = address.rpartition(":")
        endpoints.append(Endpoint(listener, host.strip("[]"), int(port)))
    hosts = dict.fromkeys(endpoint.host for endpoint in endpoints)
    return BrokerZnode(broker_id, tuple(hosts), tuple(endpoints))


def reassigns(node: Znode | None) -> bool:
    """Return whether ``/admin/reassign_partitions`` contains a partition (the mechanism before KIP-455)."""
    return node is not None and bool(_json(node).get("partitions"))


def canary_quota(node: Znode | None) -> float | None:
    """Read the canary quota from ``/config/users/NAME``; None if it is absent."""
    if node is None or not node[0]:
        return None
    value = (_json(node).get("config") or {}).get(CANARY_QUOTA)
    return None if value is None else float(value)


def _json(node: Znode) -> dict[str, Any]:
    if len(node[0]) > bounds.ZNODE_BYTES:
        raise ValueError(
            f"it has {bounds.size(len(node[0]))}, and {bounds.size(bounds.ZNODE_BYTES)} is the most that is read"
        )
    parsed = parsed_json(node[0])
    if not isinstance(parsed, dict):
        # A payload's value is wrong, no type of ours.
        raise ValueError(f"{node[0]!r:.200} is no JSON object")  # noqa: TRY004
    return parsed


def _read_acls(client: KazooClient, deadline: float) -> ZooKeeperAcls:
    """Return the ACLs of all znodes that a KRaft controller writes and this session may read."""
    acls: dict[str, tuple[AclEntry, ...]] = {}
    denied: list[str] = []
    try:
        topics = sorted(_names(children(client, "/brokers/topics"), deadline))
    except NoAuthError:
        return ZooKeeperAcls({}, ("/brokers/topics",), frozenset())
    looked_at = topics[:_ACL_TOPICS]
    paths = (*_WRITTEN_BY_KRAFT, *(f"/brokers/topics/{t}" for t in looked_at))
    for path, answer in {p: acl(client, p) for p in paths}.items():
        try:
            read = _result(answer, deadline)
        except NoAuthError:
            denied.append(path)
            continue
        if read is not None:
            acls[path] = tuple(_entry(entry) for entry in read[0])
    return ZooKeeperAcls(acls, tuple(denied), frozenset(topics), len(topics) - len(looked_at))


def _entry(entry: Any) -> AclEntry:
    letters = zip("rwcda", (1, 2, 4, 8, 16), strict=True)  # ZooDefs.Perms
    return AclEntry(str(entry.id.scheme), str(entry.id.id), frozenset(c for c, bit in letters if entry.perms & bit))
