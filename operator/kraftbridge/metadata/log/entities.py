"""Canonical entities of a metadata image."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraftbridge.metadata.entities import (
    Entity,
    Form,
    Secrets,
    canonical_json,
    is_password_config,
    looks_encoded,
    number,
    uuid_text,
)
from kraftbridge.metadata.log.definitions import Fields
from kraftbridge.metadata.log.image import (
    OFFSET,
    MetadataImage,
    acl_identity,
    config_identity,
    partition_values,
    scram_mechanism,
)
from kraftbridge.models.entities import (
    ENTITY_KINDS,
    EntityKind,
    Mirror,
    partition_key,
    scram_key,
    topic_of_partition_key,
)
from kraftbridge.models.secrecy import is_secret_setting

_ROWS: Final = 50_000
_UNORDERED: Final = frozenset({"cordonedLogDirs", "endPoints", "features", "logDirs"})
"""Lists of a registration whose order in a snapshot is that of a Java hash map (``BrokerRegistration``)."""
ENCODED_MARK = "cipher text instead of the plain value, "
"""Value for a password that was copied into the log encrypted (KAFKA-14801): brokers would use the cipher text."""


_CONFIG_KINDS: Final[Mapping[Form, AbstractSet[EntityKind]]] = {
    Form.MIRRORED: {kind for kind, facts in ENTITY_KINDS.items() if facts.mirror is not Mirror.NONE},
    Form.WHOLE: ENTITY_KINDS.keys(),
    Form.SERVED: {EntityKind.TOPIC_CONFIG},
}
"""The kinds of config entities that an image has in each form."""


class PartitionColumns(NamedTuple):
    """Partitions as columns: the fields of `Entity`."""

    keys: Any
    values: Any
    offsets: Any


def log_entities(
    image: MetadataImage, form: Form, secrets: Secrets, wanted: AbstractSet[tuple[EntityKind, str]] | None = None
) -> Iterator[Entity]:
    """Yield the entities of an image, all or only the wanted ones, each once."""
    keys = None if wanted is None else sorted(key for kind, key in wanted if kind is EntityKind.PARTITION)
    for columns in partition_columns(image, form, keys):
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        yield from (Entity(EntityKind.PARTITION, *row) for row in rows)
    for entity in entities_beside_partitions(image, form, secrets):
        if wanted is None or (entity.kind, entity.key) in wanted:
            yield entity


def entities_beside_partitions(image: MetadataImage, form: Form, secrets: Secrets) -> Iterator[Entity]:
    """Yield every entity of an image that is not a partition."""
    yield from _topics(image)
    if form is Form.MIRRORED:
        yield from _mirrored_brokers(image)
    if form is Form.WHOLE:
        yield from _whole_nodes(image)
    yield from _configs(image, form, secrets)
    yield from _credentials(image, form, secrets)
    if form is Form.SERVED:
        return
    for key, quota in image.quotas.items():
        limits = {name: number(value) for name, value in quota.values.items()}
        yield Entity(EntityKind.CLIENT_QUOTA, key, canonical_json(limits), quota.offset)
    yield from _principals(image, form)
    if image.producer_ids is not None:
        # A snapshot contains only the next id (`ProducerIdsImage.write`), not the broker that requested the block.
        value = canonical_json({"nextProducerId": image.producer_ids["nextProducerId"]})
        yield Entity(EntityKind.PRODUCER_IDS, "", value, image.producer_ids[OFFSET])


def _topics(image: MetadataImage) -> Iterator[Entity]:
    for topic in image.topics.values():
        yield Entity(EntityKind.TOPIC, topic.name, canonical_json({"topicId": uuid_text(topic.id)}), topic.offset)


def _configs(image: MetadataImage, form: Form, secrets: Secrets) -> Iterator[Entity]:
    kinds = _CONFIG_KINDS[form]
    for (resource_type, resource), config in image.configs.items():
        kind, key = config_identity(resource_type, resource)
        if kind in kinds:
            values = {
                name: _config_value(kind, name, value, secrets, whole=form is Form.WHOLE)
                for name, value in config.values.items()
            }
            yield Entity(kind, key, canonical_json(values), config.offset)


def _mirrored_brokers(image: MetadataImage) -> Iterator[Entity]:
    for identity, broker in image.brokers.items():
        if not broker.get("isMigratingZkBroker"):
            continue  # a KRaft broker has no znode
        endpoints = sorted(f"{end['name']}://{end['host']}:{end['port']}" for end in broker["endPoints"])
        value = canonical_json({"endpoints": endpoints, "rack": broker["rack"]})
        yield Entity(EntityKind.BROKER_REGISTRATION, str(identity), value, broker[OFFSET])


def _whole_nodes(image: MetadataImage) -> Iterator[Entity]:
    kinds: Mapping[EntityKind, Mapping[Any, Fields]] = {
        EntityKind.BROKER_REGISTRATION: image.brokers,
        EntityKind.CONTROLLER_REGISTRATION: image.controllers,
        EntityKind.FEATURE_LEVEL: image.features,
    }
    for kind, records in kinds.items():
        for key, fields in records.items():
            yield _record(kind, str(key), fields)
    if image.migration_state is not None:
        yield _record(EntityKind.MIGRATION_STATE, "", image.migration_state)


def _credentials(image: MetadataImage, form: Form, secrets: Secrets) -> Iterator[Entity]:
    for (user, mechanism), credential in image.scram.items():
        attributes = {"iterations": credential["iterations"]}
        if form is not Form.SERVED:
            attributes |= {name: secrets.hashed(credential[name]) for name in ("salt", "storedKey", "serverKey")}
        key = scram_key(user, scram_mechanism(mechanism))
        yield Entity(EntityKind.SCRAM_CREDENTIAL, key, canonical_json(attributes), credential[OFFSET])


def _principals(image: MetadataImage, form: Form) -> Iterator[Entity]:
    for acl in image.acls.values():
        # Kafka removes an ACL by its id (``RemoveAccessControlEntryRecord``). ZooKeeper has none.
        value = canonical_json({"id": uuid_text(acl["id"])}) if form is Form.WHOLE else "{}"
        yield Entity(EntityKind.ACL, acl_identity(acl), value, acl[OFFSET])
    for identity, token in image.tokens.items():
        value = canonical_json(
            {
                "owner": token["owner"],
                "requester": token["requester"],
                "renewers": sorted(token["renewers"]),
                "issueTimestampMs": token["issueTimestamp"],
                "maxTimestampMs": token["maxTimestamp"],
                "expirationTimestampMs": token["expirationTimestamp"],
            }
        )
        yield Entity(EntityKind.DELEGATION_TOKEN, identity, value, token[OFFSET])


def _record(kind: EntityKind, key: str, fields: Fields) -> Entity:
    attributes = {name: _plain(value) for name, value in fields.items() if name != OFFSET}
    for name in _UNORDERED & attributes.keys():
        attributes[name] = sorted(attributes[name] or (), key=lambda item: json.dumps(item, sort_keys=True))
    return Entity(kind, key, canonical_json(attributes), fields[OFFSET])


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return uuid_text(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return value


def _config_value(kind: EntityKind, name: str, value: str, secrets: Secrets, *, whole: bool) -> str:
    is_encoded = kind is EntityKind.BROKER_CONFIG and looks_encoded(value)
    if not is_encoded and not is_secret_setting(name):
        return value
    if is_encoded and not whole:
        return ENCODED_MARK + secrets.hashed(value)
    is_password = kind is EntityKind.BROKER_CONFIG and is_password_config(name)
    return secrets.password(value) if is_password and not whole else secrets.hashed(value)


def partition_columns(
    image: MetadataImage, form: Form, keys: Iterable[str] | None = None
) -> Iterator[PartitionColumns]:
    """Yield an image's partitions, or those with the given keys, in slices."""
    if keys is None:
        names = [topic.name for topic in image.topics.values()]
        counts = np.array([len(topic.partitions) for topic in image.topics.values()], np.int64)
        all_rows = chain.from_iterable(topic.partitions.values() for topic in image.topics.values())
        rows = np.fromiter(all_rows, np.int64, int(counts.sum()))
    else:
        rows_by_key = {key: partition_row(image, key) for key in keys}
        placed = {key: row for key, row in rows_by_key.items() if row is not None}
        names = [topic_of_partition_key(key) for key in placed]
        counts = np.ones(len(placed), np.int64)
        rows = np.array(list(placed.values()), np.int64)
    topics = pa.array(names, pa.string())
    of_topic = np.repeat(np.arange(len(names)), counts)
    for start in range(0, len(rows), _ROWS):
        part = rows[start : start + _ROWS]
        topic = topics.take(pa.array(of_topic[start : start + _ROWS]))
        numbers = pa.array(image.table.numbers("partitionId", part)).cast(pa.string())
        yield PartitionColumns(
            pc.binary_join_element_wise(topic, numbers, "-"),
            partition_values(image.table, part, form),
            pa.array(image.table.offsets(part)),
        )


def reassigning_partitions(image: MetadataImage) -> list[str]:
    """Return the keys of partitions that have adding or removing replicas."""
    keys: list[str] = []
    for topic in image.topics.values():
        rows = np.fromiter(topic.partitions.values(), np.int64, len(topic.partitions))
        adding = image.table.lists("addingReplicas", rows).counts
        removing = image.table.lists("removingReplicas", rows).counts
        moving = (adding > 0) | (removing > 0)
        numbers = list(topic.partitions)
        keys += (partition_key(topic.name, numbers[index]) for index in np.flatnonzero(moving))
    return keys


def partition_row(image: MetadataImage, key: str) -> int | None:
    """Return the row of a partition in the image's table, if the image has that partition."""
    name, _, number = key.rpartition("-")
    topic = image.topics.get(image.topic_ids.get(name, b""))
    if topic is None or not number.isdecimal():
        return None
    return topic.partitions.get(int(number))
