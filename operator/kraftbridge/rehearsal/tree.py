"""The tree of a rehearsal: read from a dump, disarmed, and written as a ZooKeeper snapshot file.

A snapshot is necessary because znodes that a client creates all have version 0,
and Kafka copies a state znode's version as the partition's epoch (``ZkPartitionMigrationClient``, KIP-866).
The name of a sequential znode that Kafka creates ends with the number of children that its folder ever had,
so that number is copied as well.
The copy has no ACLs and no ephemeral znodes, and its ctime and mtime are 0: of Kafka, only ZooKeeper-mode brokers
act on these (``ZkNodeChangeNotificationListener``, ``KafkaZkClient.CheckedEphemeral``).
Format: ``FileSnap`` and ``DataTree.serialize`` of ZooKeeper 3.8.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Final

from kraftbridge.exceptions import RehearsalError
from kraftbridge.metadata.copying import is_krafts
from kraftbridge.metadata.zookeeper.znodes import MAXIMUM_INT32, SCRAM_MECHANISMS, ZOOKEEPERS_OWN, Znode, is_below
from kraftbridge.models.rehearsal import TreeSize
from kraftbridge.models.secrecy import is_secret_setting
from kraftbridge.outside.json_text import parsed_json

_OF_THE_QUORUM: Final = frozenset({"/controller", "/migration"})
"""Omitted if a KRaft controller has already claimed ZooKeeper; otherwise Kafka reads them."""
_OWN: Final = (ZOOKEEPERS_OWN, f"{ZOOKEEPERS_OWN}/config", f"{ZOOKEEPERS_OWN}/quota")
_MAGIC: Final = 0x5A4B534E  # "ZKSN"
_FORMAT: Final = 2
_OPEN_TO_ALL: Final = -1
_BROKER = re.compile(r"/brokers/ids/(\d+)")
_TOPIC = re.compile(r"/brokers/topics/[^/]*")
_STATE = re.compile(r"/brokers/topics/[^/]+/partitions/\d+/state")
_SEQUENTIAL: Final = re.compile(r"[0-9]{10}$")
"""End of a sequential znode's name (``PrepRequestProcessor``: ``%010d``)."""
_CVERSION: Final = slice(-24, -20)
"""Place of ``cversion`` in a serialized znode, before aversion, ephemeralOwner and pzxid."""
_REDACTED: Final = b"sha256:"


class SecurityProtocol(Enum):
    """``org.apache.kafka.common.security.auth.SecurityProtocol`` ids."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3


@dataclass(frozen=True, slots=True)
class Listener:
    """One registered endpoint."""

    name: str
    host: str
    port: int
    security_protocol: SecurityProtocol


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """The registration of a broker's substitute."""

    id: int
    rack: str | None
    listeners: tuple[Listener, ...]


@dataclass(slots=True)
class SnapshotWriter:
    """Collects znodes in any order, then writes them as one snapshot, parents before their children."""

    closed_ports: tuple[int, ...]
    """Closed ports of the loopback interface, which replace the brokers' endpoints."""
    brokers: list[BrokerRegistration] = field(default_factory=list)
    cluster_id: str = ""
    partitions: int = 0
    topics: int = 0
    problems: list[str] = field(default_factory=list)
    _levels: list[dict[str, bytes]] = field(default_factory=list)
    _following: dict[str, int] = field(default_factory=dict)
    """Number above the highest one of a folder's sequential znodes, by folder.

    Some may be younger than the reading of the folder.
    """
    _last_zxid: int = 0

    def take(self, znodes: Iterable[Znode]) -> None:
        """Add znodes and disarm them.

        If a KRaft controller has claimed the tree, the claim is removed.

        Raises
        ------
        RehearsalError
            The dump is redacted, or contains no brokers or no cluster id.
        """
        claims = []
        for znode in znodes:
            if znode.path in _OF_THE_QUORUM:
                claims.append(znode)
            elif znode.path != "/" and not is_below(znode.path, ZOOKEEPERS_OWN):
                self._add(self._disarmed(znode))
        if not any(is_krafts(znode.path, znode.data) for znode in claims):
            for znode in claims:
                self._add(replace(znode, ephemeral_owner=0))
        if not self.brokers:
            raise RehearsalError("the dump holds no broker below /brokers/ids: give the chroot of zookeeper.connect")
        if not self.cluster_id:
            raise RehearsalError("the dump has no readable /cluster/id: dump the tree again while a broker runs")

    def _disarmed(self, znode: Znode) -> Znode:
        if znode.problem is not None:
            self.problems.append(f"{znode.path} is not in the dump: {znode.problem}")
        match = _BROKER.fullmatch(znode.path)
        if match and int(match[1]) <= MAXIMUM_INT32:
            return self._disarmed_broker(int(match[1]), znode)
        if znode.path == "/cluster/id":
            with suppress(ValueError, AttributeError):
                self.cluster_id = str(parsed_json(znode.data or b"{}").get("id") or "")
        elif znode.path.startswith("/config/") and znode.data and _REDACTED in znode.data:
            raise RehearsalError(
                f"{znode.path}: the dump is redacted; make one without --redact, it stays on this machine"
            )
        elif _STATE.fullmatch(znode.path):
            self.partitions += 1
        elif _TOPIC.fullmatch(znode.path):
            self.topics += 1
        return replace(znode, ephemeral_owner=0) if znode.ephemeral_owner else znode

    def _disarmed_broker(self, identity: int, znode: Znode) -> Znode:
        data, registration = disarm(identity, znode.data, self.closed_ports)
        if registration is None:
            self.problems.append(f"{znode.path} cannot be understood, so nothing is registered in its place")
        else:
            self.brokers.append(registration)
        return replace(znode, data=data, ephemeral_owner=0)

    def _add(self, znode: Znode) -> None:
        path = znode.path
        depth = path.count("/")
        while len(self._levels) < depth:
            self._levels.append({})
        level = self._levels[depth - 1]
        if path in level:
            raise RehearsalError(f"the dump holds {path} more than once")
        level[path] = _serialized(znode)
        self._note_number(path)
        self._last_zxid = max(self._last_zxid, znode.created_zxid, znode.modified_zxid)

    def _note_number(self, path: str) -> None:
        match = _SEQUENTIAL.search(path)
        folder = path.rpartition("/")[0]
        if match is None or not folder:
            return
        following = int(match[0]) + 1
        if self._following.get(folder, 0) < following <= MAXIMUM_INT32:
            self._following[folder] = following

    @property
    def size(self) -> TreeSize:
        """Return the size of the tree."""
        return TreeSize(
            znodes=sum(map(len, self._levels)),
            topics=self.topics,
            partitions=self.partitions,
            brokers=len(self.brokers),
        )

    def write(self, folder: Path) -> None:
        """Write the snapshot into a ZooKeeper data directory, and release the znodes."""
        folder.mkdir(parents=True, exist_ok=True)
        for path in _OWN:
            self._add(Znode(path, b""))
        self._add_parents()
        self._raise_counters()
        checksum = 1
        with (folder / f"snapshot.{self._last_zxid + 1:x}").open("wb") as file:
            for part in self._parts():
                checksum = zlib.adler32(part, checksum)
                file.write(part)
            file.write(struct.pack(">q", checksum) + _text(b"/"))
        self._levels.clear()

    def _add_parents(self) -> None:
        """Add the folders that a dump omits because they contain no data."""
        for depth in range(len(self._levels) - 1, 0, -1):
            above = self._levels[depth - 1]
            for path in self._levels[depth]:
                parent = path.rpartition("/")[0]
                if parent not in above:
                    above[parent] = _serialized(Znode(parent, None))

    def _raise_counters(self) -> None:
        """Let no folder give its next sequential znode the name of one that exists."""
        for folder, following in self._following.items():
            level = self._levels[folder.count("/") - 1]
            content = level[folder]
            counter = max(following, *struct.unpack(">i", content[_CVERSION]))
            level[folder] = content[: _CVERSION.start] + struct.pack(">i", counter) + content[_CVERSION.stop :]

    def _parts(self) -> Iterator[bytes]:
        yield struct.pack(">iiqii", _MAGIC, _FORMAT, -1, 0, 0)  # no sessions, no ACL lists
        yield _serialized(Znode("", None))  # the root
        for level in self._levels:
            yield from level.values()
        yield _text(b"/")


def _text(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def _serialized(znode: Znode) -> bytes:
    data = struct.pack(">i", -1) if znode.data is None else _text(znode.data)
    created = znode.created_zxid
    modified = znode.modified_zxid
    # ACL; then czxid, mzxid, ctime, mtime, version, cversion, aversion, ephemeralOwner, pzxid (`StatPersisted`)
    stat = struct.pack(
        ">qqqqqiiiqq", _OPEN_TO_ALL, created, modified, 0, 0, znode.version, _children_created(znode), 0, 0, modified
    )
    return _text(znode.path.encode()) + data + stat


def _children_created(znode: Znode) -> int:
    """Return how many children a znode has ever had: the number of its next sequential child.

    That is ``StatPersisted.cversion`` (``PrepRequestProcessor``).
    What a server reports is twice this number less the children that are there, as an int (``DataNode.copyStat``).
    """
    if znode.cversion is None:
        return znode.children
    return (znode.cversion + znode.children) % (1 << 32) // 2


def secrets_in(znode: Znode) -> Iterator[str]:
    """Yield the secret values of a znode: of SCRAM credentials, sensitive configs and delegation tokens."""
    if not znode.data or not znode.path.startswith(("/config/", "/delegation_token/")):
        return
    with suppress(ValueError, AttributeError):
        body = parsed_json(znode.data)
        if znode.path.startswith("/delegation_token/"):
            yield str(body.get("hmac", ""))
            return
        for name, value in (body.get("config") or {}).items():
            if name in SCRAM_MECHANISMS:
                secret_parts = (part for part in str(value).split(",") if not part.startswith("iterations"))
                yield from (part.partition("=")[2] for part in secret_parts)
            elif is_secret_setting(name):
                yield str(value)


def disarm(
    identity: int, data: bytes | None, closed_ports: tuple[int, ...]
) -> tuple[bytes | None, BrokerRegistration | None]:
    """Return a broker's znode with all endpoints on closed loopback ports, and its registration.

    A znode that cannot be decoded is not changed, because Kafka reads no address in it either.
    """
    try:
        body = parsed_json(data or b"")
        protocols: Mapping[str, str] = body.get("listener_security_protocol_map") or {}
        names = [str(endpoint).partition("://")[0] for endpoint in body["endpoints"]]
        rack = body.get("rack")
        if not 0 < len(names) <= len(closed_ports) or not isinstance(rack, str | None):
            return data, None
        listeners = tuple(
            Listener(name, "127.0.0.1", port, SecurityProtocol[protocols.get(name, name).upper()])
            for name, port in zip(names, closed_ports, strict=False)
        )
        body["endpoints"] = [f"{listener.name}://{listener.host}:{listener.port}" for listener in listeners]
        body |= {"host": "127.0.0.1", "port": listeners[0].port}
    except (ValueError, KeyError, TypeError, AttributeError):
        return data, None
    return json.dumps(body, separators=(",", ":")).encode(), BrokerRegistration(identity, rack, listeners)
