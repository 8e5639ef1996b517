"""The kinds of metadata entities: one table with what each kind is, where ZooKeeper keeps it, and how it is compared.

Readers, comparison, healing and the documentation take their lists from `ENTITY_KINDS`.
An entity's key is text in Kafka's own terms; the functions that build keys and the znodes that hold them are here too.
Formats: Kafka's ``ZkData.scala``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from urllib.parse import quote, unquote_plus

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from kraftbridge.outside.json_text import writable

DEFAULT_ENTITY: Final = "<default>"
"""Kafka's name of the default entity in ZooKeeper (``ConfigEntityName``, ``ZooKeeperInternals.DEFAULT_STRING``)."""
_QUOTA_FOLDERS: Final = {"user": "users", "client-id": "clients", "ip": "ips"}


class EntityKind(StrEnum):
    """Kinds of canonical metadata entities."""

    TOPIC = "topic"
    PARTITION = "partition"
    TOPIC_CONFIG = "topic-config"
    BROKER_CONFIG = "broker-config"
    CLIENT_QUOTA = "client-quota"
    SCRAM_CREDENTIAL = "scram-credential"
    ACL = "acl"
    DELEGATION_TOKEN = "delegation-token"  # noqa: S105 - a kind of entity
    PRODUCER_IDS = "producer-ids"
    BROKER_REGISTRATION = "broker-registration"
    FEATURE_LEVEL = "feature-level"
    OTHER_CONFIG = "other-config"
    """Configs of resources that ZooKeeper cannot hold: client metrics and groups (``ConfigResource.Type``)."""
    CONTROLLER_REGISTRATION = "controller-registration"
    MIGRATION_STATE = "migration-state"


class Mirror(StrEnum):
    """Component that maintains ZooKeeper's copy of a kind during dual-write."""

    DRIVER = "driver"
    """The migration driver writes the copy, and moves `/migration` afterwards (``KRaftMigrationDriver``)."""
    BROKERS = "brokers"
    """Each broker in ZooKeeper mode writes its own znode; `/migration` says nothing about it."""
    NONE = "none"
    """ZooKeeper holds no copy."""


class Served(StrEnum):
    """Channel through which brokers in ZooKeeper mode receive a kind."""

    UPDATE_METADATA = "update-metadata"
    """By UpdateMetadata requests, which each broker receives in the log's order (``ControllerChannelManager``)."""
    CHANGE_NOTIFICATION = "change-notification"
    """By notifications in ZooKeeper, or from the log in KRaft mode: in no order with UpdateMetadata."""
    KRAFT_IMAGE = "kraft-image"
    """From its own image of the log, by a broker in KRaft mode only (``KRaftMetadataCache``).
    A broker in ZooKeeper mode answers with what it reads in ZooKeeper (``ZkAdminManager``)."""
    NO = "no"
    """Brokers serve nothing that is compared."""


class Secrecy(StrEnum):
    """Which values of a kind are secret."""

    NONE = "none"
    SENSITIVE_CONFIGS = "sensitive-configs"
    """Configs with the name of a password setting. They are compared by hash or, if encrypted, by length."""
    KEYS = "keys"
    """Salt and keys; they are compared by hash."""


@dataclass(frozen=True, slots=True)
class KindFacts:
    """One row of the table.

    Attributes
    ----------
    znodes
        Paths below the chroot with a `*` for each variable element; empty where ZooKeeper holds nothing.
    paths
        The znodes that hold the entity with a given key.
    compared
        What must be equal, for the documentation.
    """

    kind: EntityKind
    znodes: tuple[str, ...]
    paths: Callable[[str], tuple[str, ...]]
    mirror: Mirror
    served: Served
    secrecy: Secrecy
    compared: str

    @property
    def healable(self) -> bool:
        """Whether a new active controller writes the kind to ZooKeeper as a whole.

        Source: ``KRaftMigrationZkWriter.handleSnapshot``.
        """
        return self.mirror is Mirror.DRIVER

    @property
    def settled_by_fence(self) -> bool:
        """Whether `/migration` says which log offset ZooKeeper's copy belongs to."""
        return self.mirror is Mirror.DRIVER


def partition_key(topic: str, partition: int) -> str:
    """Return the key of a partition, as ``TopicPartition.toString`` writes it."""
    return f"{topic}-{partition}"


def topic_of_partition_key(key: str) -> str:
    """Return the topic of a partition's key."""
    return key.rpartition("-")[0]


def sanitized(name: str | None) -> str:
    """Return a name as Kafka's ``Sanitizer.sanitize`` writes it into ZooKeeper; None is the default entity."""
    return DEFAULT_ENTITY if name is None else quote(name, safe="").replace("~", "%7E")


def desanitized(name: str) -> str | None:
    """Return the name that a path element of ZooKeeper stands for; None is the default entity.

    Raises
    ------
    ValueError
        It is no URL encoding of UTF-8 (``Sanitizer.desanitize``, ``java.net.URLDecoder``).
    """
    if _BROKEN_ESCAPE.search(name):
        raise ValueError(f"{name} is no URL encoding")
    return None if name == DEFAULT_ENTITY else unquote_plus(name, errors="strict")


_BROKEN_ESCAPE: Final = re.compile(r"%(?![0-9a-fA-F]{2})")


def quota_key(entity: Mapping[str, str | None]) -> str:
    """Return the key of a client quota: the path that Kafka gives it below `/config`."""
    parts = [f"{folder}/{sanitized(entity[kind])}" for kind, folder in _QUOTA_FOLDERS.items() if kind in entity]
    parts += [f"{kind}/{sanitized(name)}" for kind, name in sorted(entity.items()) if kind not in _QUOTA_FOLDERS]
    return "/".join(parts)


def scram_key(user: str, mechanism: str) -> str:
    """Return the key of a SCRAM credential."""
    return f"{user}/{mechanism}"


def acl_key(parts: Sequence[str]) -> str:
    """Return the key of an ACL: resource type, pattern, resource name, principal, host, operation, permission."""
    return str(writable(json.dumps(list(parts), ensure_ascii=False, separators=(",", ":"))))


def _partition_paths(key: str) -> tuple[str, ...]:
    topic, _, partition = key.rpartition("-")
    return f"/brokers/topics/{topic}", f"/brokers/topics/{topic}/partitions/{partition}/state"


def _acl_paths(key: str) -> tuple[str, ...]:
    resource_type, pattern, name, *_ = json.loads(key)
    if pattern == "LITERAL":
        return (f"/kafka-acl/{resource_type}/{name}",)
    return (f"/kafka-acl-extended/{pattern.lower()}/{resource_type}/{name}",)


def _nowhere(_: str) -> tuple[str, ...]:
    return ()


_ROWS: Final = (
    KindFacts(
        EntityKind.TOPIC,
        ("/brokers/topics/*",),
        lambda key: (f"/brokers/topics/{key}",),
        Mirror.DRIVER,
        Served.UPDATE_METADATA,
        Secrecy.NONE,
        "topic id",
    ),
    KindFacts(
        EntityKind.PARTITION,
        ("/brokers/topics/*", "/brokers/topics/*/partitions/*/state"),
        _partition_paths,
        Mirror.DRIVER,
        Served.UPDATE_METADATA,
        Secrecy.NONE,
        "replicas in order; adding and removing replicas, ISR as sets; leader, leader epoch, leader recovery state",
    ),
    KindFacts(
        EntityKind.TOPIC_CONFIG,
        ("/config/topics/*",),
        lambda key: (f"/config/topics/{key}",),
        Mirror.DRIVER,
        Served.CHANGE_NOTIFICATION,
        Secrecy.SENSITIVE_CONFIGS,
        "every config; none and an empty znode are the same",
    ),
    KindFacts(
        EntityKind.BROKER_CONFIG,
        ("/config/brokers/*",),
        lambda key: (f"/config/brokers/{key}",),
        Mirror.DRIVER,
        Served.CHANGE_NOTIFICATION,
        Secrecy.SENSITIVE_CONFIGS,
        "every config; passwords by hash with the brokers' password.encoder.secret, by length without it",
    ),
    KindFacts(
        EntityKind.CLIENT_QUOTA,
        ("/config/users/*", "/config/users/*/clients/*", "/config/clients/*", "/config/ips/*"),
        lambda key: (f"/config/{key}",),
        Mirror.DRIVER,
        Served.NO,
        Secrecy.NONE,
        "every limit, as a number",
    ),
    KindFacts(
        EntityKind.SCRAM_CREDENTIAL,
        ("/config/users/*",),
        lambda key: (f"/config/users/{sanitized(key.rpartition('/')[0])}",),
        Mirror.DRIVER,
        Served.KRAFT_IMAGE,
        Secrecy.KEYS,
        "hashes of salt, stored key and server key; iterations",
    ),
    KindFacts(
        EntityKind.ACL,
        ("/kafka-acl/*/*", "/kafka-acl-extended/*/*/*"),
        _acl_paths,
        Mirror.DRIVER,
        Served.NO,
        Secrecy.NONE,
        "the whole entry, which is its key; only voters agree on its id",
    ),
    KindFacts(
        EntityKind.DELEGATION_TOKEN,
        ("/delegation_token/tokens/*",),
        lambda key: (f"/delegation_token/tokens/{key}",),
        Mirror.DRIVER,
        Served.NO,
        Secrecy.NONE,
        "owner, requester, renewers as a set, timestamps; neither store holds the HMAC",
    ),
    KindFacts(
        EntityKind.PRODUCER_IDS,
        ("/latest_producer_id_block",),
        lambda _: ("/latest_producer_id_block",),
        Mirror.DRIVER,
        Served.NO,
        Secrecy.NONE,
        "the next producer id",
    ),
    KindFacts(
        EntityKind.BROKER_REGISTRATION,
        ("/brokers/ids/*",),
        lambda key: (f"/brokers/ids/{key}",),
        Mirror.BROKERS,
        Served.NO,
        Secrecy.NONE,
        "endpoints as a set, rack; a fenced broker has no znode",
    ),
    KindFacts(EntityKind.FEATURE_LEVEL, (), _nowhere, Mirror.NONE, Served.NO, Secrecy.NONE, "level, between voters"),
    KindFacts(
        EntityKind.OTHER_CONFIG,
        (),
        _nowhere,
        Mirror.NONE,
        Served.NO,
        Secrecy.SENSITIVE_CONFIGS,
        "every config, between voters",
    ),
    KindFacts(
        EntityKind.CONTROLLER_REGISTRATION,
        (),
        _nowhere,
        Mirror.NONE,
        Served.NO,
        Secrecy.NONE,
        "every field, endpoints and features as sets, between voters",
    ),
    KindFacts(EntityKind.MIGRATION_STATE, (), _nowhere, Mirror.NONE, Served.NO, Secrecy.NONE, "state, between voters"),
)
ENTITY_KINDS: Final[Mapping[EntityKind, KindFacts]] = {row.kind: row for row in _ROWS}
"""Every kind of entity; the order of `EntityKind`."""


class KindCounts(BaseModel):
    """Exact counts of one kind of entity. The count of a place that was not read is null."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)

    zookeeper: int | None = None
    log: int | None = None
    served: int | None = None
    compared: int = 0
    """Number of entities (distinct keys) that were compared between at least two places,
    or that were read if there is only one place."""
    differing: int = 0
