"""ZooKeeper: the znodes that show where a migration stands, and the few that a rollback has to remove."""

from __future__ import annotations

import importlib.util
import logging
import shutil
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import KazooRetry
from typing_extensions import override

from kraftbridge.constants import CANARY_USER
from kraftbridge.exceptions import ActionError, ConflictError, InvalidSpecError, ObservationError
from kraftbridge.kafka.resolver import resolve
from kraftbridge.metadata.errors import UndecodableZnodeError
from kraftbridge.metadata.zookeeper.znodes import migration_znode
from kraftbridge.models.observation import MigrationZnode, Unobserved, ZooKeeperState
from kraftbridge.models.survey import ZooKeeperAccess
from kraftbridge.storage.znodes import (
    Znode,
    broker_znode,
    canary_quota,
    cluster_id,
    controller_znode,
    read_access,
    reassigns,
)

_SESSION_TIMEOUT_SECONDS: Final = 6.0
_CONNECT_SECONDS: Final = 5.0
_CALL_SECONDS: Final = 6.0
_CLOSE_SECONDS: Final = 2.0
_FOUR_LETTER_WORD_SECONDS: Final = 2.0
_DEFAULT_PORT: Final = 2181
_BATCH_PATHS: Final = 500


@dataclass(frozen=True, slots=True)
class ZooKeeperCredentials:
    """How to authenticate."""

    username: str
    password: str = field(repr=False)
    scheme: Literal["digest", "sasl"] = "digest"
    """``digest``: ZooKeeper's own scheme; ``sasl``: DIGEST-MD5, which Kafka brokers use."""


@dataclass(frozen=True, slots=True)
class ZooKeeperTls:
    """TLS to ZooKeeper, all in PEM."""

    ca: str
    certificate: str | None = None
    """Client certificate and its chain, where the servers ask for one."""
    key: str | None = field(default=None, repr=False)


class _LastWords(logging.Handler):
    """Keeps kazoo's last warning: it logs why a connection fails, and raises only that there is none."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()


class ZooKeeperStore:
    """Reads the znodes of one Kafka cluster over one lasting session; thread-safe.

    The session is opened at the first call, and opened anew by itself when it was lost. No call takes longer than about
    six seconds.

    Parameters
    ----------
    hosts
        ``host:port`` pairs, separated by commas.
    chroot
        ``""`` or ``/path``.

    Raises
    ------
    InvalidSpecError
        The credentials ask for SASL, and what kazoo needs for it is not installed.
    """

    def __init__(
        self,
        hosts: str,
        chroot: str = "",
        credentials: ZooKeeperCredentials | None = None,
        tls: ZooKeeperTls | None = None,
    ) -> None:
        self._hosts = hosts
        self._source = f"ZooKeeper {hosts}{chroot}"
        self._lock = threading.Lock()
        self._directory: Path | None = None
        options: dict[str, Any] = {}
        if tls is not None:
            options |= self._tls_options(tls)
        self._tls = options.copy()
        if credentials is not None and credentials.scheme == "sasl":
            if importlib.util.find_spec("puresasl") is None:  # kazoo would only say that the session was refused
                raise InvalidSpecError("ZooKeeper credentials of scheme sasl need the Python package pure-sasl")
            options["sasl_options"] = {
                "mechanism": "DIGEST-MD5",
                "username": credentials.username,
                "password": credentials.password,
            }
        elif credentials is not None:
            options["auth_data"] = [("digest", f"{credentials.username}:{credentials.password}")]
        self._options = options
        self._last_words = _LastWords()
        self._logger = logging.Logger("kazoo", logging.WARNING)  # noqa: LOG001 - of this store only, never configured
        self._logger.addHandler(self._last_words)
        self._chroot = chroot
        self._client: KazooClient | None = None

    def close(self) -> None:
        """End the session and remove the key files."""
        with self._lock:
            client, self._client = self._client, None
            directory, self._directory = self._directory, None
        if client is not None:
            # kazoo waits for a silent server longer than our callers can
            ending = threading.Thread(target=_dispose, args=(client,), name="end ZooKeeper session", daemon=True)
            ending.start()
            ending.join(_CLOSE_SECONDS)
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)

    # -------------------------------------------------------------------------------------------- reads

    def observe(self) -> ZooKeeperState:
        """Read the znodes that show where a migration stands, as of now (after a ``sync``).

        Raises
        ------
        ObservationError
            No session or no answer in time, no permission, or a payload that cannot be read. Only ``/migration`` may be
            unreadable by itself, because Kafka leaves it so (KAFKA-19480).
        """
        deadline = time.monotonic() + _CALL_SECONDS
        try:
            client = self._connected(deadline)
            fresh = client.sync_async("/")  # answered in order: the reads after it see at least this state
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
            deletions = client.get_children_async("/admin/delete_topics")
            ids = _result(client.get_children_async("/brokers/ids"), deadline) or []
            brokers = {int(i): client.get_async(f"/brokers/ids/{i}") for i in ids}
            read = {path: _result(answer, deadline) for path, answer in nodes.items()}
            registered = {i: _result(answer, deadline) for i, answer in brokers.items()}
            deleting = _result(deletions, deadline) or []
            _result(fresh, deadline)
        except (KazooException, KazooTimeoutError, OSError) as e:
            raise ObservationError(self._source, self._explain(e)) from e
        try:
            return ZooKeeperState(
                cluster_id=None if read["/cluster/id"] is None else cluster_id(read["/cluster/id"]),
                controller=controller_znode(read["/controller"]),
                controller_epoch=None if read["/controller_epoch"] is None else int(read["/controller_epoch"][0]),
                migration=_migration_or_unobserved(self._source, read["/migration"]),
                brokers=tuple(broker_znode(i, node) for i, node in sorted(registered.items()) if node is not None),
                pending_topic_deletions=tuple(sorted(deleting)),
                reassignments=reassigns(read["/admin/reassign_partitions"]),
                canary=canary_quota(read[f"/config/users/{CANARY_USER}"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            raise ObservationError(self._source, f"a znode cannot be understood: {type(e).__name__}: {e}") from e

    def access(self) -> ZooKeeperAccess:
        """Return the ACLs of the znodes that KRaft controllers read and write.

        Raises
        ------
        ObservationError
            No session or no answer in time.
        """
        deadline = time.monotonic() + _CALL_SECONDS
        try:
            return read_access(self._connected(deadline), lambda answer: _result(answer, deadline))
        except (KazooException, KazooTimeoutError, OSError) as e:
            raise ObservationError(self._source, self._explain(e)) from e

    def payloads(self, paths: Sequence[str]) -> dict[str, bytes | None]:
        """Return what znodes hold, None where there is none; read in bounded batches, each within the usual time.

        Raises
        ------
        ObservationError
            No session, no answer in time, or no permission.
        """
        found: dict[str, bytes | None] = {}
        try:
            for start in range(0, len(paths), _BATCH_PATHS):
                deadline = time.monotonic() + _CALL_SECONDS
                client = self._connected(deadline)
                asked = {path: client.get_async(path) for path in paths[start : start + _BATCH_PATHS]}
                for path, answer in asked.items():
                    node = _result(answer, deadline)
                    found[path] = None if node is None else bytes(node[0] or b"")
        except (KazooException, KazooTimeoutError, OSError) as e:
            raise ObservationError(self._source, self._explain(e)) from e
        return found

    def broker_session_count(self) -> int | Unobserved:
        """Return how many sessions all servers serve, except ours; brokers that have left ZooKeeper hold none.

        Counted by the four-letter word ``cons``, which the servers must have whitelisted
        (``4lw.commands.whitelist``). Other clients' sessions count too: ZooKeeper cannot tell whose they are. A server
        lists only the sessions of the port that it is asked at (seen in 3.8.4), so ours must be the brokers' port.
        """
        with self._lock:
            ours = self._client.client_id[0] if self._client is not None and self._client.client_id else None
        sessions: set[int] = set()
        for host, port in _host_ports(self._hosts):
            source = f"ZooKeeper {host}:{port}"
            try:
                answer = self._four_letter_word(host, port, "cons")
            except OSError as e:
                return Unobserved(source, f"cons failed: {type(e).__name__}: {e}")
            if "not in the whitelist" in answer:
                return Unobserved(source, "the four-letter word cons is not in its 4lw.commands.whitelist")
            if not answer.strip():  # the asking connection itself is always listed
                return Unobserved(source, "it answered cons with nothing")
            sessions.update(int(part.partition("sid=")[2].split(",")[0], 16) for part in _sessions(answer))
        return len(sessions - {ours})

    # -------------------------------------------------------------------------------------------- writes

    def remove_controller_claim(self, expected_kraft_epoch: int) -> None:
        """Delete ``/controller`` and then ``/migration``, so that a broker on ZooKeeper can become controller again.

        The last step of a rollback, once no KRaft controller runs any more (Kafka's documentation, "Reverting to
        ZooKeeper mode during the migration"). Done already is no error.

        Parameters
        ----------
        expected_kraft_epoch
            ``kraftControllerEpoch`` that ``/controller`` must have; another claim is not ours to remove.

        Raises
        ------
        ConflictError
            Somebody else holds ``/controller``, or a znode changed in between.
        ActionError
            ZooKeeper could not be asked; repeat it.
        """
        operation = f"removal of the KRaft controller's claim in {self._source}"
        deadline = time.monotonic() + _CALL_SECONDS
        try:
            client = self._connected(deadline)
            fresh, claim, migration = client.sync_async("/"), *map(client.get_async, ("/controller", "/migration"))
            _result(fresh, deadline)
            held = _result(claim, deadline)
            migrating = _result(migration, deadline)
            # Ours, and nobody mirrors its removal any more; done by now unless the user accepted losses.
            _result(client.delete_async(f"/config/users/{CANARY_USER}"), deadline)
            controller = controller_znode(held)
            if controller is not None and controller.kraft_controller_epoch < 0:
                if migrating is None:
                    return  # a broker is controller again: done before
                held = None
            elif controller is not None and controller.kraft_controller_epoch != expected_kraft_epoch:
                raise ConflictError(
                    f"{operation}: /controller belongs to controller {controller.broker_id} with KRaft epoch "
                    f"{controller.kraft_controller_epoch}, not {expected_kraft_epoch}; does a KRaft controller still "
                    "run?"
                )
            if held is not None:  # under a broker's feet, a changed /controller_epoch would make it resign
                self._raise_controller_epoch(client, migrating, expected_kraft_epoch, deadline)
            # /migration first would let a KRaft controller that still runs begin anew; both versions are tested
            for path, node in (("/controller", held), ("/migration", migrating)):
                if node is not None:
                    _result(client.delete_async(path, node[1].version), deadline)
        except BadVersionError as e:
            raise ConflictError(f"{operation}: a znode changed in between; does a KRaft controller still run?") from e
        except (KazooException, KazooTimeoutError, OSError) as e:
            raise ActionError(f"{operation} failed: {self._explain(e)}") from e
        except (ValueError, KeyError, TypeError) as e:
            raise ActionError(f"{operation}: /controller cannot be understood: {e}") from e

    def _raise_controller_epoch(
        self, client: KazooClient, migrating: Znode | None, claimed_epoch: int, deadline: float
    ) -> None:
        """Lift ``/controller_epoch`` above the epoch that dual-write stamped on partition states.

        ZooKeeper's controller refuses elections of partitions whose state carries a higher epoch than its own
        (``PartitionStateMachine``, KAFKA-20488); it counts one up when it is elected.
        """
        state = _migration_or_unobserved(self._source, migrating)
        node = _result(client.get_async("/controller_epoch"), deadline)
        if node is None:
            return
        # A newer leader may have claimed /controller without having written /migration.
        written = max(claimed_epoch, state.kraft_controller_epoch if isinstance(state, MigrationZnode) else -1)
        if int(node[0]) < written:
            value = str(written).encode()
            _result(client.set_async("/controller_epoch", value, node[1].version), deadline)

    # -------------------------------------------------------------------------------------------- the session

    def _connected(self, deadline: float) -> KazooClient:
        with self._lock:
            if self._client is None or self._client._stopped.is_set():  # noqa: SLF001 - kazoo gave up (authentication)
                if self._client is not None:
                    _dispose(self._client)
                self._client = KazooClient(
                    hosts=f"{self._hosts}{self._chroot}",
                    timeout=_SESSION_TIMEOUT_SECONDS,
                    # for ever, but on kazoo's own thread, looking names up anew each time
                    connection_retry=KazooRetry(max_tries=-1, delay=0.1, backoff=2, max_delay=1.0),
                    command_retry=KazooRetry(max_tries=0),
                    logger=self._logger,
                    **self._options,
                )
                self._client.start_async()
            client = self._client
        limit = min(deadline, time.monotonic() + _CONNECT_SECONDS)
        while not client.connected:
            if time.monotonic() > limit:
                raise KazooTimeoutError(f"no session in {_CONNECT_SECONDS:g} s")
            if client._stopped.is_set():  # noqa: SLF001 - as above
                raise KazooTimeoutError("the session was refused; are the credentials right?")
            time.sleep(0.02)
        return client

    def _explain(self, error: BaseException) -> str:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        if self._client is None or self._client.connected or not self._last_words.text:
            return text
        return f"{text}; the last attempt said: {self._last_words.text}"

    def _tls_options(self, tls: ZooKeeperTls) -> dict[str, Any]:
        self._directory = Path(tempfile.mkdtemp(prefix="kraftbridge-zookeeper-"))  # mode 0700
        options: dict[str, Any] = {"use_ssl": True, "verify_certs": True, "check_hostname": True}
        for option, name, text in (
            ("ca", "ca.crt", tls.ca),
            ("certfile", "tls.crt", tls.certificate),
            ("keyfile", "tls.key", tls.key),
        ):
            if text is not None:
                path = self._directory / name
                path.write_text(text)
                options[option] = str(path)
        return options

    def _four_letter_word(self, host: str, port: int, word: str) -> str:
        deadline = time.monotonic() + _FOUR_LETTER_WORD_SECONDS
        address = resolve(host, port, _FOUR_LETTER_WORD_SECONDS)[0]
        raw = socket.create_connection((address, port), max(deadline - time.monotonic(), 0.1))
        if self._tls:
            context = ssl.create_default_context(cafile=self._tls["ca"])
            if "certfile" in self._tls:
                context.load_cert_chain(self._tls["certfile"], self._tls.get("keyfile"))
            raw = context.wrap_socket(raw, server_hostname=host)
        answer = bytearray()
        with raw as connection:
            connection.sendall(word.encode())
            while True:
                connection.settimeout(max(deadline - time.monotonic(), 0.05))
                chunk = connection.recv(65536)
                if not chunk:
                    return answer.decode("utf-8", "replace")
                answer += chunk


def _dispose(client: KazooClient) -> None:
    with suppress(KazooException, KazooTimeoutError, OSError):
        client.stop()
    with suppress(KazooException, KazooTimeoutError, OSError):
        client.close()


def _result(answer: Any, deadline: float) -> Any:
    """Return what an asynchronous call brought, None when its znode does not exist."""
    try:
        return answer.get(timeout=max(deadline - time.monotonic(), 0.05))
    except NoNodeError:
        return None


def _migration_or_unobserved(source: str, node: Znode | None) -> MigrationZnode | Unobserved | None:
    try:
        return None if node is None else migration_znode(node[0])
    except UndecodableZnodeError as e:
        payload = "" if node is None else f"{node[0]!r:.200}"
        return Unobserved(f"{source} /migration", f"its payload {payload} cannot be read: {e}")


def _host_ports(hosts: str) -> list[tuple[str, int]]:
    found = []
    for entry in hosts.split(","):
        host, separator, port = entry.strip().rpartition(":")
        found.append((host.strip("[]"), int(port)) if separator else (entry.strip(), _DEFAULT_PORT))
    return found


def _sessions(answer: str) -> Sequence[str]:
    return [line for line in answer.splitlines() if "sid=0x" in line]
