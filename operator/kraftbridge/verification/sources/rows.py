"""The plans of the data sources, and the rows that they return.

A source's only option `plan` is one of the models below as JSON.
A plan contains only paths of secrets; the task reads them.
A source returns Arrow record batches.
One row is one entity in one place, or a note about the reading.
Columns; only `value` is nullable:

- `leg` (text): the comparison that the row belongs to, `mirror`, `replicas`, `served` or `own`
- `place` (text): where it was read: ``zookeeper``, ``log``, ``voter 3000``, ``broker 1``
- `kind`, `key` (text): the entity; kinds of notes begin with ``$``
- `value` (text): canonical JSON; null: the log removed the entity at `offset`
- `offset` (bigint): see `kraftbridge.metadata.entities.Entity`

The order is not significant. (`leg`, `place`, `kind`, `key`) is unique in sound data.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from kraftbridge.metadata.entities import Entity, Secrets, read_encoder_secret, read_key
from kraftbridge.metadata.log.entities import PartitionColumns
from kraftbridge.models.entities import EntityKind
from kraftbridge.models.report import BrokerAccess, ZooKeeperAccess


class _Plan(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    salt: str
    """Key of the hashes that replace secrets, in hexadecimal; new for each run."""
    encoder_secret_path: str | None = None
    dump_key_path: str | None = None

    def secrets(self) -> Secrets:
        """Return the form of secrets in rows."""
        key = None if self.dump_key_path is None else read_key(self.dump_key_path)
        return Secrets(bytes.fromhex(self.salt), self.encoder_secret_path is not None, key)

    def encoder_secret(self) -> str | None:
        """Return the brokers' `password.encoder.secret`, if it was given."""
        return read_encoder_secret(self.encoder_secret_path)


class ZooKeeperPlan(_Plan):
    """The input of `zookeeper`: a live tree or a dump."""

    access: ZooKeeperAccess | None = None
    dump: str | None = None
    chroot: str = ""
    soundness: bool = False
    """Also check whether the tree is sound, and return findings."""
    served: bool = False
    """Also return the metadata that brokers should serve. Configs of topics that do not exist are left out."""
    copied: bool = False
    """Whether the dump is from before the sync: take what Kafka copies, and note changes after the claim."""
    parallelism: int = Field(default=2, ge=1)
    topics_per_slice: int = Field(default=500, ge=1)


class LogVoter(BaseModel):
    """One voter's log."""

    id: int
    name: str
    url: str
    mirrored: bool = False
    """Whether this log is compared with ZooKeeper and brokers."""


class LogPlan(_Plan):
    """The input of `kraft-log`."""

    voters: list[LogVoter]
    token_path: str | None = None
    ca_path: str | None = None
    replicas_offset: int | None = None
    """Offset at which the voters' images are compared; None if they are not compared."""
    fence_offset: int | None = None
    """Oldest log offset that ZooKeeper mirrored when it was read."""
    at_fence: bool = False
    """Also return the image at `fence_offset`, because ZooKeeper cannot be read again."""
    copied: bool = False
    """Return the image at the end of Kafka's copy instead of the newest one."""
    served: bool = False
    """Also return the metadata that brokers should serve."""
    brokers_restart: bool = False
    """Also return the SCRAM users whose removal brokers load when they start on KRaft."""
    patience_seconds: float = 0.0
    """How long the source waits for a voter's log to reach `replicas_offset`."""


class ServedPlan(_Plan):
    """The input of `broker-served`."""

    brokers: list[BrokerAccess]
    on_kraft: list[int] = Field(default_factory=list)
    """Ids of the brokers in KRaft mode, which answer with SCRAM credentials of their own."""
    acls: bool = False
    """Also return the ACLs by which each broker authorizes, where that is Kafka's authorizer of ZooKeeper mode."""
    client_config_path: str | None = None
    timeout_seconds: float = 20.0
    patience_seconds: float = 30.0
    """How long the source retries a broker that does not answer, for example during a restart."""


SCHEMA_DDL: Final = "leg string, place string, kind string, key string, value string, offset bigint"
ARROW_SCHEMA: Final = pa.schema(
    [
        ("leg", pa.string()),
        ("place", pa.string()),
        ("kind", pa.string()),
        ("key", pa.string()),
        ("value", pa.string()),
        ("offset", pa.int64()),
    ]
)
_ROWS_PER_BATCH: Final = 10_000


class Leg(StrEnum):
    """The comparison that a row belongs to."""

    MIRROR = "mirror"
    """ZooKeeper against the leader's log."""
    REPLICAS = "replicas"
    """The voters' images against each other."""
    SERVED = "served"
    """What brokers serve against the leader's log or the tree."""
    OWN = "own"
    """The effective configs of each broker, which only the broker itself returns."""


class Note(StrEnum):
    """Kinds of rows with notes about the reading."""

    FENCE = "$fence"
    PROBLEM = "$problem"
    """A znode that cannot be decoded."""
    UNREAD = "$unread"
    """A znode that cannot be read or listed, with everything below; or a broker that hides its SCRAM credentials."""
    ALTERNATIVE = "$alternative"
    """Another correct form of an entity."""
    CLUSTER = "$cluster"
    """The id of the cluster that a place belongs to."""
    TYPES = "$types"
    """The types of the settings in a broker's answers."""
    DENIED = "$denied"
    """The broker does not let the principal see its topics or its configs."""
    ENFORCED = "$enforced"
    """The broker's rows have all ACLs by which it authorizes."""
    LOG = "$log"
    FINDING = "$finding"
    COUNT = "$count"
    CLAIM = "$claim"
    """The KRaft controller's claim in the tree from before."""


ZOOKEEPER: Final = "zookeeper"
LOG: Final = "log"
LOG_AT_FENCE: Final = "log at fence"
"""The log's image at the offset that ZooKeeper mirrors; present if ZooKeeper cannot be read again."""


def voter_place(identity: int) -> str:
    """Return the place name of a voter."""
    return f"voter {identity}"


def broker_place(identity: int) -> str:
    """Return the place name of a broker."""
    return f"broker {identity}"


def entity_batches(leg: Leg, place: str, entities: Iterable[Entity]) -> Iterator[pa.RecordBatch]:
    """Yield entities as record batches."""
    kinds: list[str] = []
    keys: list[str] = []
    values: list[str] = []
    offsets: list[int] = []
    for entity in entities:
        kinds.append(entity.kind)
        keys.append(entity.key)
        values.append(entity.value)
        offsets.append(entity.offset)
        if len(kinds) >= _ROWS_PER_BATCH:
            yield _batch(leg, place, kinds, keys, values, offsets)
            kinds = []
            keys = []
            values = []
            offsets = []
    if kinds:
        yield _batch(leg, place, kinds, keys, values, offsets)


def partition_batches(leg: Leg, place: str, columns: Iterable[PartitionColumns]) -> Iterator[pa.RecordBatch]:
    """Yield partitions in columns as record batches."""
    for keys, values, offsets in columns:
        constants = (pa.repeat(pa.scalar(text), len(keys)) for text in (str(leg), place, EntityKind.PARTITION.value))
        yield pa.RecordBatch.from_arrays([*constants, keys, values, offsets], schema=ARROW_SCHEMA)


def removed_batch(leg: Leg, place: str, removed: Iterable[tuple[str, str, int]]) -> Iterator[pa.RecordBatch]:
    """Yield kind, key and offset of removed entities as one record batch."""
    rows = list(removed)
    if rows:
        kinds, keys, offsets = (list(column) for column in zip(*rows, strict=True))
        yield _batch(leg, place, kinds, keys, [None] * len(rows), offsets)


def note_batch(leg: Leg, place: str, note: Note, key: str, value: Any, offset: int = -1) -> pa.RecordBatch:
    """Return one note as a record batch; its value is stored as JSON."""
    return _batch(leg, place, [note], [key], [json.dumps(value)], [offset])


def _batch(
    leg: Leg, place: str, kinds: list[Any], keys: list[Any], values: list[Any], offsets: list[Any]
) -> pa.RecordBatch:
    count = len(kinds)
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(str(leg)), count),
            pa.repeat(pa.scalar(place), count),
            pa.array(
                [getattr(kind, "_value_", kind) for kind in kinds], pa.string()
            ),  # Arrow converts enumerations slowly
            _keys(keys),
            pa.array(values, pa.string()),
            pa.array(offsets, pa.int64()),
        ],
        schema=ARROW_SCHEMA,
    )


def _keys(keys: list[Any]) -> pa.Array:
    try:
        return pa.array(keys, pa.string())
    except UnicodeEncodeError:
        # JSON can contain lone surrogates. They are escaped, because Arrow requires UTF-8.
        return pa.array([key.encode("utf-8", "backslashreplace").decode() for key in keys], pa.string())


@contextmanager
def without_collection() -> Iterator[None]:
    """Disable the garbage collector, which would scan millions of live objects repeatedly."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
