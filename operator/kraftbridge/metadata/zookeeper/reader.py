"""Reads ZooKeeper in fenced batches: many znodes in one request, at one point in time.

Every batch contains `/migration`, and therefore the log offset that ZooKeeper mirrored at that time.
The request is multiRead, operation 22, in servers from 3.6 on (ZOOKEEPER-3402).
One thread serves it between two commits (``FinalRequestProcessor``). kazoo 2.11 does not know this request,
but sends any object that can serialize itself.
The only private name of kazoo in use is `KazooClient._call`.
A server older than 3.6 is read path by path, with the fence before each batch.
The fence is then never newer than the znodes: more keys count as in flight, and no changing key counts as settled.

A dump is a file with one JSON object per znode. Secrets can be replaced by hashes.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import re
import ssl
import struct
import zlib
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import islice
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, NamedTuple, Self

from kazoo.exceptions import EXCEPTIONS, ConnectionLoss, KazooException, NoAuthError, NoNodeError, SessionExpiredError
from kazoo.exceptions import UnimplementedError as NotServedError
from kazoo.handlers.threading import KazooTimeoutError

from kraftbridge.exceptions import DumpFormatError, InvalidSpecError, UndecodableZnodeError, ZooKeeperUnavailableError
from kraftbridge.metadata.entities import is_keyed, looks_encoded, redacted
from kraftbridge.metadata.zookeeper.session import Retries, TlsFiles, ZooKeeperCredentials, new_session
from kraftbridge.metadata.zookeeper.znodes import (
    MIGRATION_PATH,
    SCRAM_MECHANISMS,
    Znode,
    is_below,
    migration_znode,
    mirrored_offset,
)
from kraftbridge.models.observation import MigrationZnode
from kraftbridge.models.report import ZooKeeperAccess
from kraftbridge.models.secrecy import SENSITIVE_NAME, is_secret_setting
from kraftbridge.outside.json_text import parsed_json

_INT = struct.Struct("!i")
_STAT = struct.Struct("!qqqqiiiqiiq")
_STAT_FIELDS = attrgetter(
    *("czxid", "mzxid", "ctime", "mtime", "version", "cversion", "aversion"),
    *("ephemeralOwner", "dataLength", "numChildren", "pzxid"),
)
_ITEM = struct.Struct("!iBii")  # operation, done, error, and the length that always follows
_END: Final = struct.pack("!iBi", -1, 1, -1)
_HEADER_BYTES: Final = 13
_RETRIES: Final = Retries(connection=5, command=5)
_ERROR: Final = -1


class Operation(IntEnum):
    """The two operations in a multiRead."""

    DATA = 4
    CHILDREN = 8


class Read(NamedTuple):
    """One read: a path's data or children."""

    operation: Operation
    path: str


class Data(NamedTuple):
    """A znode's data and its `Stat`."""

    data: bytes | None
    stat: tuple[int, ...]
    """czxid, mzxid, ctime, mtime, version, cversion, aversion, ephemeralOwner, dataLength, numChildren, pzxid."""


Result = Data | list[str] | Exception
"""The result of one read: data, children, or kazoo's exception for that path (`NoNodeError`, `NoAuthError`)."""


@dataclass(frozen=True, slots=True)
class MultiRead:
    """A multiRead request. kazoo's connection uses `type`, `serialize` and `deserialize`."""

    reads: Sequence[Read]
    chroot: str = ""
    """What the server's paths begin with; empty without one."""
    type: ClassVar[int] = 22

    def serialize(self) -> bytes:
        """Return the request's body."""
        parts: list[bytes] = []
        for operation, name in self.reads:
            path = absolute_path(self.chroot, name).encode()
            parts += (_ITEM.pack(operation, 0, -1, len(path)), path, b"\0")
        parts.append(_END)
        return b"".join(parts)

    def deserialize(self, buffer: bytes, offset: int) -> list[Result]:
        """Return one result for each read, in order."""
        results: list[Result] = []
        for _ in self.reads:
            operation, _, _, length = _ITEM.unpack_from(buffer, offset)
            offset += _HEADER_BYTES
            if operation == Operation.DATA:
                end = offset + max(length, 0)
                data = None if length < 0 else buffer[offset:end]
                results.append(Data(data, _STAT.unpack_from(buffer, end)))
                offset = end + _STAT.size
            elif operation == _ERROR:
                results.append(EXCEPTIONS[length]())
            else:
                children, offset = _children(buffer, offset, length)
                results.append(children)
        if buffer[offset : offset + len(_END)] != _END:
            raise ValueError("a multiRead reply does not end where its request does")
        return results


def _children(buffer: bytes, offset: int, count: int) -> tuple[list[str], int]:
    """Return the names of children in a reply, and the position after them."""
    children: list[str] = []
    for _ in range(count):
        (size,) = _INT.unpack_from(buffer, offset)
        offset += _INT.size
        children.append(buffer[offset : offset + size].decode())
        offset += size
    return children, offset


def batches(reads: Sequence[Read], size: int, maximum_bytes: int = 400_000) -> Iterator[Sequence[Read]]:
    """Yield slices of reads whose request stays well below the server's `jute.maxbuffer` (1 MiB)."""
    start = total = 0
    for index, read in enumerate(reads):
        length = len(read.path) + _HEADER_BYTES + 1
        if index > start and (index - start >= size or total + length > maximum_bytes):
            yield reads[start:index]
            start = index
            total = 0
        total += length
    if start < len(reads):
        yield reads[start:]


def single_result(value: Any, operation: Operation) -> Result:
    """Return the result of one of kazoo's own calls in the form of a multiRead result."""
    if operation is Operation.CHILDREN:
        return list(value)
    data, stat = value
    return Data(data, _STAT_FIELDS(stat))


BATCH_READS: Final = 400
"""Reads per multiRead. A higher number gains little and delays other sessions' writes."""
TOPIC_BATCH_READS: Final = 50
"""Reads of topics per multiRead. Assignments grow with their partitions, and the server replies from its heap."""
IN_FLIGHT: Final = 4
_FENCE: Final = Read(Operation.DATA, MIGRATION_PATH)


@dataclass(frozen=True, slots=True)
class Fenced:
    """Results of one batch with its fence."""

    migration: MigrationZnode | None
    """`/migration` at the time of the batch; None if it does not exist or cannot be decoded."""
    reads: Sequence[Read]
    """What was read."""
    answers: Sequence[Result]
    """The result of each read, in the same order."""

    @property
    def results(self) -> Iterator[tuple[Read, Result]]:
        """Each read with its result."""
        return zip(self.reads, self.answers, strict=True)

    @property
    def offset(self) -> int:
        """Log offset that ZooKeeper mirrored; -1 if it mirrors none."""
        return mirrored_offset(self.migration)


@dataclass(slots=True)
class ZooKeeperReader:
    """A read-only session."""

    access: ZooKeeperAccess
    """Connect string with its chroot, credentials, TLS."""
    _client: Any = None
    _multi: bool = True
    _migration_problem: str | None = field(default=None)

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def migration_problem(self) -> str | None:
        """The reason why `/migration` could not be decoded, if any."""
        return self._migration_problem

    @property
    def reads_many_at_once(self) -> bool:
        """Whether multiRead is in use. A server older than 3.6 refuses it and is then read path by path."""
        return self._multi

    def open(self) -> None:
        """Connect.

        Raises
        ------
        ZooKeeperUnavailableError
            No server answered in time, or the credentials were refused.
        """
        hosts = self.access.connect
        try:
            credentials, tls = _security(self.access)
            self._client = new_session(hosts, self.access.session_timeout_seconds, _RETRIES, credentials, tls)
            self._client.start(timeout=self.access.session_timeout_seconds)
        except (KazooTimeoutError, KazooException, OSError, ssl.SSLError, InvalidSpecError) as error:
            raise ZooKeeperUnavailableError(
                f"ZooKeeper at {hosts} refused the session, or did not answer: {error}"
            ) from error

    def close(self) -> None:
        """End the session."""
        if self._client is not None:
            self._client.stop()
            self._client.close()
            self._client = None

    def synchronize(self) -> None:
        """Let this session's server catch up with the leader, so that later reads are not older than this call."""
        self._client.retry(self._client.sync, "/")

    def read(self, reads: Sequence[Read], batch: int = BATCH_READS) -> Iterator[Fenced]:
        """Yield the results of all reads in order, batch by batch, with several batches in flight.

        Raises
        ------
        ZooKeeperUnavailableError
            The connection was lost and could not be restored.
        """
        waiting: deque[tuple[Sequence[Read], Any]] = deque()
        todo = batches(reads, batch)

        def send(count: int) -> None:
            for following in islice(todo, count):
                waiting.append((following, self._send(following) if self._multi else None))

        try:
            send(IN_FLIGHT)
            while waiting:
                sent, promise = waiting.popleft()
                answers = self._answers(sent, promise)
                send(1)
                yield self._fenced(sent, answers)
        except (KazooException, KazooTimeoutError, OSError) as error:
            raise ZooKeeperUnavailableError(
                f"ZooKeeper at {self.access.connect} stopped answering: {error!r}"
            ) from error

    def _answers(self, reads: Sequence[Read], promise: Any) -> list[Result]:
        answers: list[Result] = []
        if promise is not None:
            try:
                answers = promise.get(timeout=self.access.session_timeout_seconds)
            except NotServedError:
                self._multi = False  # such a server also closes the connection
            except (ConnectionLoss, SessionExpiredError):
                if self._multi:
                    answers = self._client.retry(lambda: self._send(reads).get(self.access.session_timeout_seconds))
        if not self._multi:
            answers = self._client.retry(self._singly, reads)
        return answers

    def _send(self, reads: Sequence[Read]) -> Any:
        client = self._client
        promise = client.handler.async_result()
        request = MultiRead([_FENCE, *reads], client.chroot)
        client._call(request, promise)  # kazoo has no public method for other requests  # noqa: SLF001
        return promise

    def _singly(self, reads: Sequence[Read]) -> list[Result]:
        client = self._client
        fence = client.get_async(MIGRATION_PATH)
        fence.wait()
        callers = {Operation.DATA: client.get_async, Operation.CHILDREN: client.get_children_async}
        calls = [callers[read.operation](read.path) for read in reads]
        results = []
        for read, call in zip([_FENCE, *reads], [fence, *calls], strict=True):
            call.wait()
            if isinstance(call.exception, (NoNodeError, NoAuthError)):
                results.append(call.exception)
            else:
                results.append(single_result(call.get(), read.operation))
        return results

    def _fenced(self, reads: Sequence[Read], answers: list[Result]) -> Fenced:
        fence = answers[0]
        migration = None
        if isinstance(fence, Data):
            try:
                migration = migration_znode(fence.data)
            except UndecodableZnodeError as error:
                self._migration_problem = str(error)
        elif not isinstance(fence, NoNodeError):
            self._migration_problem = f"{MIGRATION_PATH} cannot be read: {fence!r}"
        return Fenced(migration, reads, answers[1:])

    def walk_fenced(self) -> Iterator[Znode]:
        """Yield every znode, with `/migration` as it was before the other reads. The other znodes are never older."""
        (first,) = self.read([Read(Operation.DATA, MIGRATION_PATH)])
        fence = first.answers[0]
        fenced = znode(MIGRATION_PATH, fence) if isinstance(fence, Data) else None
        for walked in self.walk():
            if walked.path == MIGRATION_PATH:
                yield fenced or walked
            else:
                yield walked

    def walk(self, root: str = "/") -> Iterator[Znode]:
        """Yield every znode below a path, parents before children, independent of Kafka's layout.

        A znode that cannot be read or listed has its `problem` set.
        A znode that was deleted in the meantime is omitted.
        `children` is the number of children that follow, not ``numChildren`` of an earlier moment,
        so that a dump shows whether it is complete.
        """
        parents: list[Znode] = []
        paths = [root]
        while paths or parents:
            level = self._read_level(paths)
            present = Counter(member.path.rpartition("/")[0] or "/" for member in level)
            for parent in parents:
                yield parent if parent.problem else _with_children(parent, present[parent.path])
            paths = self._list_level(level)
            parents = level

    def _read_level(self, paths: Sequence[str]) -> list[Znode]:
        """Return those of some znodes that exist."""
        level: list[Znode] = []
        for fenced in self.read([Read(Operation.DATA, path) for path in paths]):
            for read, result in fenced.results:
                if isinstance(result, Data):
                    level.append(znode(read.path, result))
                elif not isinstance(result, NoNodeError):
                    level.append(Znode(read.path, None, problem=f"cannot be read: {result!r}"))
        return level

    def _list_level(self, level: list[Znode]) -> list[str]:
        """Return the paths of the children of some znodes; set the problem of those that cannot be listed."""
        children: list[str] = []
        indexes = [index for index, parent in enumerate(level) if parent.children]
        batches = self.read([Read(Operation.CHILDREN, level[index].path) for index in indexes])
        answers = (result for fenced in batches for result in fenced.answers)
        for index, result in zip(indexes, answers, strict=True):
            parent = level[index]
            if isinstance(result, list):
                children += (f"{parent.path.rstrip('/')}/{child}" for child in result)
            elif not isinstance(result, NoNodeError):
                level[index] = replace(parent, problem=f"cannot be listed: {result!r}")
        return children


def znode(path: str, result: Data) -> Znode:
    """Return a read result as a znode."""
    stat = result.stat
    return Znode(path, result.data, stat[4], stat[0], stat[1], stat[7], stat[9], stat[5])


def _with_children(parent: Znode, count: int) -> Znode:
    """Return a znode with another number of children, as if some that were created had been deleted or not.

    ZooKeeper reports twice the number of children that were ever created, less those that are there
    (``DataNode.copyStat``).
    """
    return replace(parent, children=count, cversion=_int32((parent.cversion or 0) + parent.children - count))


def _int32(value: int) -> int:
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def split_connect(connect: str) -> tuple[str, str]:
    """Return hosts and chroot of a connect string; the chroot can be the empty string."""
    hosts, slash, path = connect.partition("/")
    return hosts, (slash + path).rstrip("/")


def absolute_path(chroot: str, path: str) -> str:
    """Return what the server calls a path below a chroot, which can be the empty string."""
    if path == "/":
        return chroot or path
    return chroot + path


def _security(access: ZooKeeperAccess) -> tuple[ZooKeeperCredentials | None, TlsFiles | None]:
    credentials = access.credentials_path
    tls = access.tls_path
    if access.secret_path:
        secret = Path(access.secret_path)
        if (secret / "username").is_file():
            credentials = access.secret_path
        if (secret / "ca.crt").is_file():
            tls = access.secret_path
        if credentials is None and tls is None:
            raise ZooKeeperUnavailableError(f"ZooKeeper secret {secret} has neither `username` nor `ca.crt`")
    return _credentials(credentials), _tls_files(tls, verify_hostname=access.tls_verify_hostname)


def _tls_files(path: str | None, *, verify_hostname: bool) -> TlsFiles | None:
    if not path:
        return None
    folder = Path(path)
    certificate = folder / "tls.crt"
    if not certificate.is_file():
        return TlsFiles(folder / "ca.crt", verify_hostname=verify_hostname)
    return TlsFiles(folder / "ca.crt", certificate, folder / "tls.key", verify_hostname)


def _credentials(path: str | None) -> ZooKeeperCredentials | None:
    if not path:
        return None
    folder = Path(path)
    scheme = "digest"
    try:
        user, password = ((folder / name).read_text(encoding="utf-8").strip() for name in ("username", "password"))
        if (folder / "scheme").is_file():
            scheme = (folder / "scheme").read_text(encoding="utf-8").strip().lower()
    except OSError as error:
        raise ZooKeeperUnavailableError(f"ZooKeeper credentials in {folder} cannot be read: {error}") from error
    match scheme:
        case "digest":
            return ZooKeeperCredentials(user, password)
        case "sasl":
            return ZooKeeperCredentials(user, password, "sasl")
        case _:
            raise ZooKeeperUnavailableError(
                f"ZooKeeper credentials in {folder}: scheme {scheme!r} is neither digest nor sasl"
            )


_NUMBERS: Final = {
    "version": "version",
    "czxid": "created_zxid",
    "mzxid": "modified_zxid",
    "ephemeralOwner": "ephemeral_owner",
    "numChildren": "children",
}
_HASHED_FIELDS: Final = frozenset({"salt", "stored_key", "server_key", "encryptedPassword"})
"""Fields of credentials whose value alone becomes a hash."""
_PLAIN_SCRAM_FIELD: Final = re.compile(r"iterations=-?[0-9]{0,19}")
_PLAIN_ENCODED_FIELD: Final = re.compile(
    r"(?:keyFactoryAlgorithm|cipherAlgorithm|keyLength|iterations|passwordLength):[\w/\-]{0,40}"
    r"|(?:salt|initializationVector|authenticationTag):[A-Za-z0-9+/=]{0,64}"
)
"""Parameters of an encrypted password (`EncryptingPasswordEncoder`)."""
_KAFKAS: Final = frozenset(
    {
        "admin",
        "brokers",
        "cluster",
        "config",
        "consumers",
        "controller",
        "controller_epoch",
        "delegation_token",
        "feature",
        "isr_change_notification",
        "kafka-acl",
        "kafka-acl-changes",
        "kafka-acl-extended",
        "kafka-acl-extended-changes",
        "latest_producer_id_block",
        "log_dir_event_notification",
        "migration",
        "zookeeper",
    }
)
"""Top folders of Kafka (`ZkData`). Other programs keep passwords in theirs."""
_SENSITIVE: Final = re.compile(SENSITIVE_NAME, re.IGNORECASE)


def read_dump(path: Path, chroot: str) -> Iterator[Znode]:
    """Yield the znodes of a dump below a chroot, with paths relative to it.

    Raises
    ------
    DumpFormatError
        The file cannot be read, is truncated, or a line is not a znode; the message names the line.
    """
    prefix = chroot.rstrip("/")
    below = f"{prefix}/"
    number = 0
    try:
        with _opener(path)(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):  # noqa: B007 - the number is for the message
                if not line.strip():
                    continue
                znode = _znode(parsed_json(line))
                if not f"{znode.path}/".startswith(below):
                    continue
                yield replace(znode, path=znode.path[len(prefix) :] or "/") if prefix else znode
    except (OSError, EOFError, zlib.error) as error:
        raise DumpFormatError(f"ZooKeeper dump {path} cannot be read: {error}") from error
    except (ValueError, KeyError, TypeError, binascii.Error) as error:
        raise DumpFormatError(f"ZooKeeper dump {path}, line {number}: not a znode: {error!r}") from error


def _opener(path: Path) -> Any:
    return gzip.open if path.suffix == ".gz" else open


def _znode(row: Any) -> Znode:
    path = row["path"]
    problem = row.get("problem")
    text = row["data"] if problem is None else row.get("data")
    if not isinstance(path, str) or not path.startswith("/"):
        raise ValueError(f"path {path!r} is not absolute")
    data = None if text is None else _bytes(text, row.get("enc", "utf8"))
    numbers = {attribute: int(row.get(name) or 0) for name, attribute in _NUMBERS.items()}
    reported = row.get("cversion")
    cversion = None if reported is None else int(reported)
    return Znode(path, data, cversion=cversion, problem=None if problem is None else str(problem), **numbers)


def _bytes(text: Any, encoding: Any) -> bytes:
    if not isinstance(text, str):
        raise ValueError("data is neither text nor null")  # noqa: TRY004 - a wrong dump, like the other errors
    if encoding == "utf8":
        return text.encode()
    if encoding == "b64":
        return base64.b64decode(text, validate=True)
    raise ValueError(f"unknown encoding {encoding!r}")


def write_dump(znodes: Iterable[Znode], path: Path, chroot: str, *, key: bytes | None = None) -> tuple[int, int]:
    """Write znodes to a dump, compressed if the name ends in `.gz`.

    Parameters
    ----------
    key
        Secrets are replaced by hashes with this key; None keeps them.

    Returns
    -------
    Number of znodes, and number of znodes that could not be read or listed.
    A verification of an incomplete dump is Inconclusive.
    """
    prefix = chroot.rstrip("/")
    count = unread = 0
    with _opener(path)(path, "wt", encoding="utf-8") as file:
        for znode in znodes:
            data = znode.data if key is None else redacted_data(znode.path, znode.data, key)
            text, encoding = _text(data)
            row: dict[str, Any] = {"path": absolute_path(prefix, znode.path), "data": text, "enc": encoding}
            row |= {name: getattr(znode, attribute) for name, attribute in _NUMBERS.items()}
            if znode.cversion is not None:
                row["cversion"] = znode.cversion
            if znode.problem is not None:
                row["problem"] = znode.problem
            file.write(json.dumps(row, ensure_ascii=False, separators=(", ", ": ")) + "\n")
            count += 1
            unread += znode.problem is not None
    return count, unread


def _text(data: bytes | None) -> tuple[str | None, str]:
    if data is None:
        return None, "utf8"
    try:
        return data.decode(), "utf8"
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "b64"


def redacted_data(path: str, data: bytes | None, key: bytes) -> bytes | None:
    """Return a znode's data with secrets replaced by their keyed hash and length.

    Data that cannot be parsed is replaced completely, and so is that of other programs.
    Redacted SCRAM credentials can still be compared with a log; passwords, encrypted or not, by their length.
    """
    if not data or is_below(path, "/config/changes"):
        return data
    folder = path.split("/")[1]
    if folder not in _KAFKAS:
        return _redacted_whole(data, key)
    try:
        if folder == "config":
            return _redacted_config(data, key)
        if folder == "delegation_token":
            return _redacted_fields(data, key)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        # What can be read cannot always be written.
        return _redacted_whole(data, key)
    return data


def _redacted_whole(data: bytes, key: bytes) -> bytes:
    return redacted(data.decode("latin-1"), key).encode()


def _redacted_config(data: bytes, key: bytes) -> bytes:
    body = parsed_json(data)
    config = body["config"]
    for name, value in config.items():
        if name in SCRAM_MECHANISMS:
            config[name] = ",".join(_redacted_pair(part, "=", _PLAIN_SCRAM_FIELD, key) for part in value.split(","))
        elif looks_encoded(value):
            config[name] = ",".join(_redacted_pair(part, ":", _PLAIN_ENCODED_FIELD, key) for part in value.split(","))
        elif is_secret_setting(name):
            config[name] = redacted(value, key)
    return json.dumps(body, separators=(",", ":")).encode()


def _redacted_pair(part: str, separator: str, plain: re.Pattern[str], key: bytes) -> str:
    """Return a part of a credential, in which all but plain parts are hashes."""
    name, found, value = part.partition(separator)
    if not part or plain.fullmatch(part.strip()):
        return part
    if not found or name.strip() not in _HASHED_FIELDS:
        return redacted(part, key)
    return f"{name}{separator}{redacted(value, key)}"


def _redacted_fields(data: bytes, key: bytes) -> bytes:
    """Return the fields of a token. Kafka's own have no secret; what else is there may be its HMAC."""
    body = parsed_json(data)
    sensitive = {name for name, value in body.items() if name not in _TOKEN_FIELDS and _SENSITIVE.search(name)}
    if not sensitive:
        return data
    shown = {name: redacted(str(value), key) if name in sensitive else value for name, value in body.items()}
    return json.dumps(shown, separators=(",", ":")).encode()


_TOKEN_FIELDS: Final = frozenset({"tokenId", "tokenRequester"})


def has_keyed_hashes(path: Path) -> bool:
    """Return whether a dump is redacted with a key.

    Raises
    ------
    DumpFormatError
        The file cannot be read.
    """
    try:
        with _opener(path)(path, "rb") as lines:
            return any(map(is_keyed, lines))
    except (OSError, EOFError, zlib.error) as error:
        raise DumpFormatError(f"ZooKeeper dump {path} cannot be read: {error}") from error
