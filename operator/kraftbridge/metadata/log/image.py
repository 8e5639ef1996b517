"""The state that a metadata log describes. Records are replayed as Kafka's `MetadataDelta` does.

Partitions are columns: a cluster can have a million of them,
and one dictionary for each would be too slow and too large.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kraftbridge.exceptions import UndecodableRecordError
from kraftbridge.metadata.entities import Form, uuid_text
from kraftbridge.metadata.log.blocks import Columns, Int64s, Lists, array, spread
from kraftbridge.metadata.log.definitions import Fields
from kraftbridge.models.entities import EntityKind, acl_key, partition_key, quota_key, scram_key

NO_LEADER_CHANGE: Final = -2
NUMBERS: Final = ("partitionId", "leader", "leaderRecoveryState", "leaderEpoch", "partitionEpoch")
BROKER_LISTS: Final = (
    "replicas",
    "isr",
    "removingReplicas",
    "addingReplicas",
    "eligibleLeaderReplicas",
    "lastKnownElr",
)
_ELIGIBLE: Final = ("eligibleLeaderReplicas", "lastKnownElr")
_CORDONED: Final = "cordonedLogDirs"
"""Of registrations since Kafka 4.4 (``RegisterBrokerRecord`` version 4)."""
DIRECTORIES: Final = "directories"
LISTS: Final = (*BROKER_LISTS, DIRECTORIES)
_UUID: Final = "V16"
_FIRST_CAPACITY: Final = 64


def element_format(name: str) -> str:
    """Return the numpy format of a list's elements."""
    return _UUID if name == DIRECTORIES else "i4"


class _Growing:
    """An array that grows at its end."""

    def __init__(self, format_: str) -> None:
        self._array: npt.NDArray[Any] = np.empty(_FIRST_CAPACITY, format_)
        self.size = 0

    @property
    def values(self) -> npt.NDArray[Any]:
        return self._array[: self.size]

    def append(self, values: npt.NDArray[Any]) -> int:
        """Append values; return the index of the first."""
        first = self.size
        end = self.size + len(values)
        if end > len(self._array):
            grown = np.empty(max(end, 2 * len(self._array)), self._array.dtype)
            grown[:first] = self.values
            self._array = grown
        self._array[first:end] = values
        self.size = end
        return first


class _ListColumn:
    """Lists with their latest values. The elements of earlier values remain in the array."""

    def __init__(self, format_: str) -> None:
        self._starts = _Growing("i8")
        self._counts = _Growing("i4")
        self._elements = _Growing(format_)

    def append(self, lists: Lists) -> None:
        self._starts.append(self._elements_starts(lists))
        self._counts.append(lists.counts)

    def put(self, rows: Int64s, lists: Lists) -> None:
        self._starts.values[rows] = self._elements_starts(lists)
        self._counts.values[rows] = lists.counts

    def _elements_starts(self, lists: Lists) -> Int64s:
        lengths = np.maximum(lists.counts, 0)
        return self._elements.append(lists.elements) + np.cumsum(lengths) - lengths

    def taken(self, rows: Int64s) -> Lists:
        counts = self._counts.values[rows].astype(np.int64)
        starts = self._starts.values[rows]
        return Lists(counts, self._elements.values[spread(starts, np.maximum(counts, 0))])


class PartitionTable:
    """Rows of partitions. A row always belongs to the same partition; a partition can move to another row."""

    def __init__(self) -> None:
        self._numbers = {name: _Growing("i1" if name == "leaderRecoveryState" else "i4") for name in NUMBERS}
        self._lists = {name: _ListColumn(element_format(name)) for name in LISTS}
        self._offsets = _Growing("i8")

    def append(self, columns: Columns, offsets: Int64s) -> int:
        """Append rows with the fields of `PartitionRecord`s; return the first."""
        for name, growing in self._numbers.items():
            growing.append(array(columns, name))
        absent = np.full(len(offsets), -1, np.int64)
        for name, column in self._lists.items():
            lists = columns.get(name)
            if not isinstance(lists, Lists):  # older versions have fewer
                lists = Lists(absent, np.empty(0, element_format(name)))
            column.append(lists)
        return self._offsets.append(offsets)

    def change(self, rows: Int64s, columns: Columns, offsets: Int64s) -> None:
        """Apply the fields of `PartitionChangeRecord`s in their order, as `PartitionRegistration.merge` does."""
        for name, column in self._lists.items():
            lists = columns.get(name)
            if isinstance(lists, Lists):
                given = _last(rows, lists.counts >= 0)
                if len(given):
                    column.put(rows[given], lists.taken(given))
        numbers = {name: growing.values for name, growing in self._numbers.items()}
        leader = array(columns, "leader")
        recovery = array(columns, "leaderRecoveryState")
        elected = _last(rows, leader != NO_LEADER_CHANGE)
        numbers["leader"][rows[elected]] = leader[elected]
        np.add.at(numbers["leaderEpoch"], rows[leader != NO_LEADER_CHANGE], 1)
        recovering = _last(rows, recovery >= 0)
        numbers["leaderRecoveryState"][rows[recovering]] = recovery[recovering]
        np.add.at(numbers["partitionEpoch"], rows, 1)
        np.maximum.at(self._offsets.values, rows, offsets)

    def date(self, rows: Int64s | slice, offset: int) -> None:
        """Set the offset of the last record that changed some rows."""
        self._offsets.values[rows] = offset

    def numbers(self, name: str, rows: Int64s) -> npt.NDArray[Any]:
        """Return a column of `NUMBERS`."""
        return self._numbers[name].values[rows]

    def lists(self, name: str, rows: Int64s) -> Lists:
        """Return a column of `LISTS`."""
        return self._lists[name].taken(rows)

    def offsets(self, rows: Int64s) -> Int64s:
        """Return the offset of the last record that changed each row."""
        return self._offsets.values[rows]

    def fields(self, row: int) -> dict[str, Any]:
        """Return one row as fields of its record."""
        rows = np.array([row])
        result: dict[str, Any] = {name: growing.values[row].item() for name, growing in self._numbers.items()}
        for name, column in self._lists.items():
            lists = column.taken(rows)
            result[name] = None if lists.counts[0] < 0 else tuple(lists.elements.tolist())
        return result


def columns_of(records: Sequence[Mapping[str, Any]]) -> Columns:
    """Return fields of single `PartitionRecord`s or `PartitionChangeRecord`s as columns."""
    columns: Columns = {
        name: np.array([record[name] for record in records], np.int64) for name in NUMBERS if name in records[0]
    }
    for name in LISTS:
        if name in records[0]:
            columns[name] = Lists.of([record[name] for record in records], element_format(name))
    return columns


def _last(rows: Int64s, chosen: npt.NDArray[np.bool_]) -> Int64s:
    """Return the index of each chosen row's last occurrence; numpy defines no order of repeated assignments."""
    indexes = np.flatnonzero(chosen)
    _, last = np.unique(rows[indexes][::-1], return_index=True)
    return indexes[len(indexes) - 1 - last]


_SETS: Final = frozenset({"isr", "addingReplicas", "removingReplicas"})
"""Lists without a significant order. The order of `replicas` is significant (the first replica is preferred)."""
_LEADER: Final = ("leader", "leaderEpoch", "leaderRecoveryState")
_MIRRORED: Final = ("addingReplicas", "isr", *_LEADER, "removingReplicas", "replicas")
FIELDS: Final = {
    Form.MIRRORED: _MIRRORED,
    Form.WHOLE: (*_MIRRORED, DIRECTORIES, "eligibleLeaderReplicas", "lastKnownElr", "partitionEpoch"),
    Form.SERVED: ("isr", "leader", "leaderEpoch", "replicas"),
}
_LIST_FIELDS: Final = frozenset({*_SETS, "replicas", DIRECTORIES, "eligibleLeaderReplicas", "lastKnownElr"})


def partition_values(table: PartitionTable, rows: Int64s, form: Form) -> Any:
    """Return the canonical values of some rows; in ZooKeeper's form they equal `entities.partition_value`."""
    parts: list[Any] = []
    before = "{"
    for name in FIELDS[form]:
        text = f'{before}"{name}":'
        before = ","
        if name in _LIST_FIELDS:
            lists = table.lists(name, rows)
            parts += [text + "[", _list_text(name, lists), "]"] if (lists.counts > 0).any() else [text + "[]"]
        else:
            parts += [text, pa.array(table.numbers(name, rows)).cast(pa.string())]
    joined = _merged([*parts, "}"])
    return pc.binary_join_element_wise(*joined, "")


def _merged(parts: list[Any]) -> list[Any]:
    """Return the parts with adjacent constants merged."""
    merged: list[Any] = []
    for part in parts:
        if merged and isinstance(part, str) and isinstance(merged[-1], str):
            merged[-1] += part
        else:
            merged.append(part)
    return merged


def _list_text(name: str, lists: Lists) -> Any:
    counts = np.maximum(lists.counts, 0)
    if name == DIRECTORIES:
        counts, texts = _directory_texts(counts, lists.elements)
    else:
        elements = _sorted(counts, lists.elements) if name in _SETS else lists.elements
        texts = pa.array(elements).cast(pa.string())
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), texts), ",")


def _sorted(counts: Int64s, elements: Any) -> Any:
    owners = np.repeat(np.arange(len(counts)), counts)
    if ((np.diff(elements) >= 0) | (np.diff(owners) > 0)).all():
        return elements
    return elements[np.lexsort((elements, owners))]


def _directory_texts(counts: Int64s, elements: Any) -> tuple[Int64s, Any]:
    """Return counts and texts of directories. None, and only zeros (`DirectoryId.MIGRATING`), are the same."""
    halves = np.ascontiguousarray(elements).view(np.int64).reshape(-1, 2)
    owners = np.repeat(np.arange(len(counts)), counts)
    assigned = np.zeros(len(counts), np.bool_)
    assigned[owners[halves.any(axis=1)]] = True
    kept = elements[assigned[owners]]
    binary = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(kept), [None, pa.py_buffer(kept.tobytes())])
    encoded = binary.dictionary_encode()
    names = pa.array([f'"{uuid_text(value)}"' for value in encoded.dictionary.to_pylist()], pa.string())
    return np.where(assigned, counts, 0), names.take(encoded.indices)


PARTITION = "PartitionRecord"
PARTITION_CHANGE = "PartitionChangeRecord"
BROKER_RESOURCE = 4
TOPIC_RESOURCE = 2
RESOURCE_TYPES = {2: "topic", 4: "broker", 8: "broker-logger", 16: "client-metrics", 32: "group"}
"""`ConfigResource.Type` ids."""
SCRAM_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
ACL_RESOURCE_TYPES = {
    1: "Any",
    2: "Topic",
    3: "Group",
    4: "Cluster",
    5: "TransactionalId",
    6: "DelegationToken",
    7: "User",
}
ACL_PATTERN_TYPES = {1: "ANY", 2: "MATCH", 3: "LITERAL", 4: "PREFIXED"}
ACL_OPERATIONS = {
    1: "Any",
    2: "All",
    3: "Read",
    4: "Write",
    5: "Create",
    6: "Delete",
    7: "Alter",
    8: "Describe",
    9: "ClusterAction",
    10: "DescribeConfigs",
    11: "AlterConfigs",
    12: "IdempotentWrite",
    13: "CreateTokens",
    14: "DescribeTokens",
}
ACL_PERMISSIONS = {1: "Any", 2: "Deny", 3: "Allow"}
OFFSET = "#offset"
"""Name of the field that contains the offset of the last record that changed an object of the image."""


@dataclass(slots=True)
class TopicImage:
    """One topic, and the rows of its partitions in the image's table."""

    name: str
    id: bytes
    offset: int
    partitions: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartitionRun:
    """Successive `PartitionRecord`s of one topic that are already in the image's table."""

    topic_id: bytes
    partition_ids: Sequence[int]
    rows: range

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class ChangeRun:
    """Successive `PartitionChangeRecord`s."""

    topic_ids: Sequence[bytes]
    partition_ids: Sequence[int]
    columns: Columns
    offsets: Int64s

    def __len__(self) -> int:
        return len(self.offsets)


Run = PartitionRun | ChangeRun


@dataclass(slots=True)
class ConfigImage:
    """Dynamic configs of one resource."""

    values: dict[str, str] = field(default_factory=dict)
    offset: int = -1


@dataclass(slots=True)
class QuotaImage:
    """Quotas of one client entity."""

    entity: dict[str, str | None]
    values: dict[str, float] = field(default_factory=dict)
    offset: int = -1


@dataclass(slots=True)
class MetadataImage:
    """The state after all records up to `offset`, inclusive."""

    offset: int = -1
    epoch: int = -1
    records: int = 0
    topics: dict[bytes, TopicImage] = field(default_factory=dict)
    topic_ids: dict[str, bytes] = field(default_factory=dict)
    table: PartitionTable = field(default_factory=PartitionTable, compare=False)
    configs: dict[tuple[int, str], ConfigImage] = field(default_factory=dict)
    quotas: dict[str, QuotaImage] = field(default_factory=dict)
    scram: dict[tuple[str, int], Fields] = field(default_factory=dict)
    acls: dict[bytes, Fields] = field(default_factory=dict)
    tokens: dict[str, Fields] = field(default_factory=dict)
    brokers: dict[int, Fields] = field(default_factory=dict)
    controllers: dict[int, Fields] = field(default_factory=dict)
    features: dict[str, Fields] = field(default_factory=dict)
    producer_ids: Fields | None = None
    migration_state: Fields | None = None
    removed: dict[tuple[EntityKind, str], int] = field(default_factory=dict)
    """Removed entities with the offset of the record that removed each."""
    aborted_records: int = 0
    _transaction: list[tuple[str, Any]] | None = None

    @property
    def open_transaction(self) -> bool:
        """Whether a transaction is open whose records are buffered until its end (KIP-868)."""
        return self._transaction is not None

    def apply(self, name: str, fields: Fields, offset: int) -> None:
        """Apply one record.

        A partition's record is applied as a run of length one, because partitions are stored as columns.

        Raises
        ------
        UndecodableRecordError
            The record contradicts earlier records: it changes an object that does not exist.
        """
        self.offset = offset
        if name == PARTITION:
            first = self.table.append(columns_of([fields]), np.array([offset]))
            self.apply_run(
                name, PartitionRun(fields["topicId"], [fields["partitionId"]], range(first, first + 1)), offset
            )
            return
        if name == PARTITION_CHANGE:
            change = ChangeRun([fields["topicId"]], [fields["partitionId"]], columns_of([fields]), np.array([offset]))
            self.apply_run(name, change, offset)
            return
        self.records += 1
        if name == "BeginTransactionRecord":
            if self._transaction is not None:
                raise UndecodableRecordError(f"offset {offset}: a transaction begins inside another")
            self._transaction = []
        elif name in {"EndTransactionRecord", "AbortTransactionRecord"}:
            if self._transaction is None:
                raise UndecodableRecordError(f"offset {offset}: {name} without a transaction")
            buffered = self._transaction
            self._transaction = None
            if name == "AbortTransactionRecord":
                self.aborted_records += sum(len(run) if isinstance(run, Run) else 1 for _, run in buffered)
                return
            for inner_name, inner in buffered:
                self._apply(inner_name, self._dated(inner, offset), offset)
        elif self._transaction is not None:
            self._transaction.append((name, fields))
        else:
            self._apply(name, fields, offset)

    def apply_run(self, name: str, run: Run, offset: int) -> None:
        """Apply successive records of one type, beginning at this offset."""
        self.records += len(run)
        if self._transaction is not None:
            self._transaction.append((name, run))
        else:
            self._apply(name, run, offset)

    def _dated(self, inner: Any, offset: int) -> Any:
        """Return the buffered records of a transaction with the offset of its end."""
        if isinstance(inner, PartitionRun):
            self.table.date(slice(inner.rows.start, inner.rows.stop), offset)
        elif isinstance(inner, ChangeRun):
            return replace(inner, offsets=np.full(len(inner), offset))
        return inner

    def _apply(self, name: str, fields: Any, offset: int) -> None:
        handler = _HANDLERS.get(name)
        if handler is None:
            raise UndecodableRecordError(f"offset {offset}: {name} has no meaning in a metadata image")
        try:
            handler(self, fields, offset)
        except KeyError as error:
            raise UndecodableRecordError(f"offset {offset}: {name} refers to {error}, which does not exist") from error

    def _topic(self, fields: Fields, offset: int) -> None:
        name = fields["name"]
        identity = fields["topicId"]
        if name in self.topic_ids:
            raise UndecodableRecordError(f"offset {offset}: topic {name} is created although it exists")
        self.topics[identity] = TopicImage(name, identity, offset)
        self.topic_ids[name] = identity

    def _remove_topic(self, fields: Fields, offset: int) -> None:
        topic = self.topics.pop(fields["topicId"])
        del self.topic_ids[topic.name]
        self.removed[EntityKind.TOPIC, topic.name] = offset
        for partition in topic.partitions:
            self.removed[EntityKind.PARTITION, partition_key(topic.name, partition)] = offset
        self._remove_config(TOPIC_RESOURCE, topic.name, offset)

    def _partition(self, run: PartitionRun, _offset: int) -> None:
        self.topics[run.topic_id].partitions.update(zip(run.partition_ids, run.rows, strict=True))

    def _partition_change(self, run: ChangeRun, _offset: int) -> None:
        self.table.change(self.partition_rows(run.topic_ids, run.partition_ids), run.columns, run.offsets)

    def _clear_elr(self, fields: Fields, offset: int) -> None:
        """Clear the eligible leader replicas of one topic, or of all (``TopicDelta.replay``, KIP-966)."""
        topics = [each for each in self.topics.values() if fields["topicName"] in ("", each.name)]
        rows = np.array([row for topic in topics for row in topic.partitions.values()], np.int64)
        has_some = np.zeros(len(rows), np.bool_)
        for name in _ELIGIBLE:
            has_some |= self.table.lists(name, rows).counts > 0
        rows = rows[has_some]
        if len(rows):
            cleared = {"leader": NO_LEADER_CHANGE, "leaderRecoveryState": -1, **dict.fromkeys(_ELIGIBLE, ())}
            self.table.change(rows, columns_of([cleared] * len(rows)), np.full(len(rows), offset, np.int64))

    def partition_rows(self, topic_ids: Sequence[bytes], partition_ids: Sequence[int]) -> Int64s:
        """Return the rows of partitions in the table; KeyError for a partition that does not exist."""
        topics = self.topics
        named = zip(topic_ids, partition_ids, strict=True)
        return np.array([topics[topic].partitions[partition] for topic, partition in named], np.int64)

    def _config(self, fields: Fields, offset: int) -> None:
        resource = (fields["resourceType"], fields["resourceName"])
        config = self.configs.get(resource)
        if config is None:
            config = self.configs[resource] = ConfigImage()
        if fields["value"] is None:
            config.values.pop(fields["name"], None)
        else:
            config.values[fields["name"]] = fields["value"]
        config.offset = offset
        if not config.values:
            self._remove_config(*resource, offset)

    def _remove_config(self, resource_type: int, resource: str, offset: int) -> None:
        if self.configs.pop((resource_type, resource), None) is not None:
            self.removed[config_identity(resource_type, resource)] = offset

    def _quota(self, fields: Fields, offset: int) -> None:
        entity = {part["entityType"]: part["entityName"] for part in fields["entity"]}
        key = quota_key(entity)
        quota = self.quotas.setdefault(key, QuotaImage(entity))
        if fields["remove"]:
            quota.values.pop(fields["key"], None)
        else:
            quota.values[fields["key"]] = fields["value"]
        quota.offset = offset
        if not quota.values:
            del self.quotas[key]
            self.removed[EntityKind.CLIENT_QUOTA, key] = offset

    def _scram(self, fields: Fields, offset: int) -> None:
        fields[OFFSET] = offset
        self.scram[fields["name"], fields["mechanism"]] = fields

    def _remove_scram(self, fields: Fields, offset: int) -> None:
        user = fields["name"]
        mechanism = fields["mechanism"]
        del self.scram[user, mechanism]
        self.removed[EntityKind.SCRAM_CREDENTIAL, scram_key(user, scram_mechanism(mechanism))] = offset

    def _acl(self, fields: Fields, offset: int) -> None:
        fields[OFFSET] = offset
        self.acls[fields["id"]] = fields

    def _remove_acl(self, fields: Fields, offset: int) -> None:
        acl = self.acls.pop(fields["id"])
        self.removed[EntityKind.ACL, acl_identity(acl)] = offset

    def _token(self, fields: Fields, offset: int) -> None:
        fields[OFFSET] = offset
        self.tokens[fields["tokenId"]] = fields

    def _remove_token(self, fields: Fields, offset: int) -> None:
        del self.tokens[fields["tokenId"]]
        self.removed[EntityKind.DELEGATION_TOKEN, fields["tokenId"]] = offset

    def _register_broker(self, fields: Fields, offset: int) -> None:
        fields[OFFSET] = offset
        if _CORDONED in fields:  # not told yet, or none: a snapshot makes no difference
            fields[_CORDONED] = fields[_CORDONED] or ()
        self.brokers[fields["brokerId"]] = fields

    def _unregister_broker(self, fields: Fields, offset: int) -> None:
        del self.brokers[fields["brokerId"]]
        self.removed[EntityKind.BROKER_REGISTRATION, str(fields["brokerId"])] = offset

    def _change_broker(self, change: Fields, offset: int) -> None:
        broker = self.brokers[change["brokerId"]]
        for name in ("fenced", "inControlledShutdown"):
            if change.get(name):  # -1 clears, 0 leaves, 1 sets (`BrokerRegistrationFencingChange`)
                broker[name] = change[name] > 0
        if change.get("logDirs"):
            broker["logDirs"] = change["logDirs"]
        if change.get(_CORDONED) is not None:
            broker[_CORDONED] = change[_CORDONED]
        broker[OFFSET] = offset

    def _fence_broker(self, fields: Fields, offset: int, *, fenced: bool = True) -> None:
        broker = self.brokers[fields["id"]]
        broker["fenced"] = fenced
        broker[OFFSET] = offset

    def _unfence_broker(self, fields: Fields, offset: int) -> None:
        self._fence_broker(fields, offset, fenced=False)

    def _register_controller(self, fields: Fields, offset: int) -> None:
        fields[OFFSET] = offset
        self.controllers[fields["controllerId"]] = fields

    def _unregister_controller(self, fields: Fields, offset: int) -> None:
        if self.controllers.pop(fields["controllerId"], None) is not None:
            self.removed[EntityKind.CONTROLLER_REGISTRATION, str(fields["controllerId"])] = offset

    def _feature(self, fields: Fields, offset: int) -> None:
        fields[OFFSET] = offset
        if fields["featureLevel"] == 0:
            if self.features.pop(fields["name"], None) is not None:
                self.removed[EntityKind.FEATURE_LEVEL, fields["name"]] = offset
        else:
            self.features[fields["name"]] = fields

    def _producer_ids(self, fields: Fields, offset: int) -> None:
        fields[OFFSET] = offset
        self.producer_ids = fields

    def _migration(self, fields: Fields, offset: int) -> None:
        fields[OFFSET] = offset
        self.migration_state = fields

    def _nothing(self, fields: Fields, offset: int) -> None:
        """Do nothing: a NoOpRecord only shows that its leader is alive (KIP-835)."""


_HANDLERS: dict[str, Callable[[MetadataImage, Any, int], Any]] = {
    "TopicRecord": MetadataImage._topic,  # noqa: SLF001
    "RemoveTopicRecord": MetadataImage._remove_topic,  # noqa: SLF001
    PARTITION: MetadataImage._partition,  # noqa: SLF001
    PARTITION_CHANGE: MetadataImage._partition_change,  # noqa: SLF001
    "ConfigRecord": MetadataImage._config,  # noqa: SLF001
    "ClientQuotaRecord": MetadataImage._quota,  # noqa: SLF001
    "UserScramCredentialRecord": MetadataImage._scram,  # noqa: SLF001
    "RemoveUserScramCredentialRecord": MetadataImage._remove_scram,  # noqa: SLF001
    "AccessControlEntryRecord": MetadataImage._acl,  # noqa: SLF001
    "RemoveAccessControlEntryRecord": MetadataImage._remove_acl,  # noqa: SLF001
    "DelegationTokenRecord": MetadataImage._token,  # noqa: SLF001
    "RemoveDelegationTokenRecord": MetadataImage._remove_token,  # noqa: SLF001
    "RegisterBrokerRecord": MetadataImage._register_broker,  # noqa: SLF001
    "UnregisterBrokerRecord": MetadataImage._unregister_broker,  # noqa: SLF001
    "UnregisterControllerRecord": MetadataImage._unregister_controller,  # noqa: SLF001
    "ClearElrRecord": MetadataImage._clear_elr,  # noqa: SLF001
    "BrokerRegistrationChangeRecord": MetadataImage._change_broker,  # noqa: SLF001
    "FenceBrokerRecord": MetadataImage._fence_broker,  # noqa: SLF001
    "UnfenceBrokerRecord": MetadataImage._unfence_broker,  # noqa: SLF001
    "RegisterControllerRecord": MetadataImage._register_controller,  # noqa: SLF001
    "FeatureLevelRecord": MetadataImage._feature,  # noqa: SLF001
    "ProducerIdsRecord": MetadataImage._producer_ids,  # noqa: SLF001
    "ZkMigrationStateRecord": MetadataImage._migration,  # noqa: SLF001
    "NoOpRecord": MetadataImage._nothing,  # noqa: SLF001
}


def scram_mechanism(identity: int) -> str:
    """Return the name of a SCRAM mechanism id (`ScramMechanism`)."""
    return SCRAM_MECHANISMS.get(identity, f"mechanism {identity}")


def config_identity(resource_type: int, resource: str) -> tuple[EntityKind, str]:
    """Return kind and key of a resource's dynamic configs."""
    if resource_type == TOPIC_RESOURCE:
        return EntityKind.TOPIC_CONFIG, resource
    if resource_type == BROKER_RESOURCE:
        return EntityKind.BROKER_CONFIG, resource or "<default>"
    return EntityKind.OTHER_CONFIG, f"{RESOURCE_TYPES.get(resource_type, str(resource_type))}/{resource}"


def acl_identity(acl: Fields) -> str:
    """Return the key of an ACL record. Its id is random: only voters agree on it."""
    return acl_key(
        (
            ACL_RESOURCE_TYPES.get(acl["resourceType"], str(acl["resourceType"])),
            ACL_PATTERN_TYPES.get(acl["patternType"], str(acl["patternType"])),
            acl["resourceName"],
            acl["principal"],
            acl["host"],
            ACL_OPERATIONS.get(acl["operation"], str(acl["operation"])),
            ACL_PERMISSIONS.get(acl["permissionType"], str(acl["permissionType"])),
        )
    )
