"""The state that a metadata log describes. Records are replayed as Kafka's `MetadataDelta` does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kraftbridge.metadata.errors import UndecodableRecordError
from kraftbridge.metadata.log.blocks import Columns, Int64s
from kraftbridge.metadata.log.definitions import Fields
from kraftbridge.metadata.log.partitions import PartitionTable, columns_of
from kraftbridge.models.entities import EntityKind, acl_key, partition_key, quota_key, scram_key

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
    """The state after all records up to `offset`, inclusive.

    Attributes
    ----------
    removed
        Removed entities with the offset of the record that removed each.
    """

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
    aborted_records: int = 0
    _transaction: list[tuple[str, Any]] | None = None

    @property
    def open_transaction(self) -> bool:
        """Whether a transaction is open whose records are buffered until its end (KIP-868)."""
        return self._transaction is not None

    def apply(self, name: str, fields: Fields, offset: int) -> None:
        """Apply one record. A partition's record is applied as a run of length one, because partitions are stored as columns.

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
            buffered, self._transaction = self._transaction, None
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
        name, identity = fields["name"], fields["topicId"]
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
        user, mechanism = fields["name"], fields["mechanism"]
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
    """Return the key of an ACL record. Its id is random and not compared."""
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
