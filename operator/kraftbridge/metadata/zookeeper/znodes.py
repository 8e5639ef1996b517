"""Decodes the content of znodes into canonical entities.

Formats: Kafka's ``ZkData.scala`` (one object per path), ``ScramCredentialUtils``, ``DelegationTokenManagerZk``,
``ZkMigrationLeadershipState``.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from kraftbridge.exceptions import PasswordDecodingError, UndecodableZnodeError
from kraftbridge.metadata.entities import (
    EncodedPassword,
    Entity,
    Secrets,
    canonical_json,
    is_password_config,
    is_redacted,
    looks_encoded,
    number,
    partition_value,
    password_length,
)
from kraftbridge.models.config_values import java_double
from kraftbridge.models.entities import EntityKind, acl_key, desanitized, partition_key, quota_key, scram_key
from kraftbridge.models.observation import MigrationZnode
from kraftbridge.models.secrecy import is_secret_setting
from kraftbridge.outside.json_text import parsed_json

MIGRATION_PATH: Final = "/migration"
ZOOKEEPERS_OWN: Final = "/zookeeper"
"""ZooKeeper's own folder, which every server creates."""
SCRAM_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_QUOTA_KIND: Final = {"users": "user", "clients": "client-id", "ips": "ip"}
_SCRAM_FIELDS: Final = {"salt": "salt", "stored_key": "storedKey", "server_key": "serverKey"}
_SECURITY_PROTOCOLS: Final = frozenset({"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"})
_ACL_FIELDS: Final = ("principal", "host", "operation", "permissionType")
_JAVA_INTEGER: Final = re.compile(r"[+-]?\d+")
"""Grammar of `java.lang.Long.parseLong`."""
MAXIMUM_INT32: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Znode:
    """One znode; `path` is relative to the chroot."""

    path: str
    data: bytes | None
    version: int = 0
    created_zxid: int = 0
    modified_zxid: int = 0
    ephemeral_owner: int = 0
    children: int = 0
    cversion: int | None = None
    """As ZooKeeper reports it beside this number of children; None in a dump of an earlier release."""
    problem: str | None = None
    """The reason why this znode, and with it everything below, could not be read or listed."""


def is_below(path: str, *folders: str) -> bool:
    """Return whether a znode is one of some folders, or below one."""
    return f"{path}/".startswith(tuple(f"{folder}/" for folder in folders))


def migration_znode(data: bytes | None) -> MigrationZnode:
    """Decode `/migration` (KIP-866): the offset that ZooKeeper mirrors, and the controller that wrote it.

    Raises
    ------
    UndecodableZnodeError
        The znode is empty or has an unknown version (KAFKA-19480: controllers hang on an empty znode).
    """
    body = json_object(MIGRATION_PATH, data)
    if body.get("version") != 0 or not isinstance(body["version"], int):
        raise UndecodableZnodeError(f"{MIGRATION_PATH} has the unknown version {body.get('version')!r}")
    return MigrationZnode(
        kraft_controller_id=integer(MIGRATION_PATH, body, "kraft_controller_id"),
        kraft_controller_epoch=integer(MIGRATION_PATH, body, "kraft_controller_epoch"),
        kraft_metadata_offset=integer(MIGRATION_PATH, body, "kraft_metadata_offset", -(2**63), 2**63 - 1),
        kraft_metadata_epoch=integer(MIGRATION_PATH, body, "kraft_metadata_epoch"),
    )


def mirrored_offset(migration: MigrationZnode | None) -> int:
    """Return the log offset that ZooKeeper mirrors; -1 if it mirrors none."""
    return -1 if migration is None else migration.kraft_metadata_offset


def znode_entities(
    path: str, data: bytes | None, offset: int, secrets: Secrets, encoder_secret: str | None = None
) -> Iterator[Entity]:
    """Yield the entities of one znode that is not below `/brokers/topics`; nothing for znodes that are not copied.

    Raises
    ------
    UndecodableZnodeError
        Kafka does not write such data there.
    """
    match path.split("/")[1:]:
        case ["brokers", "ids", identity]:
            yield _broker(path, identity, data, offset)
        case ["config", "topics", topic]:
            values = {
                name: secrets.hashed(value) if is_secret_setting(name) else value
                for name, value in config_values(path, data).items()
            }
            yield from _configs(EntityKind.TOPIC_CONFIG, topic, values, offset)
        case ["config", "brokers", broker]:
            values = {
                name: _broker_config(path, name, value, secrets, encoder_secret)
                for name, value in config_values(path, data).items()
            }
            yield from _configs(EntityKind.BROKER_CONFIG, broker, values, offset)
        case ["config", "users" | "clients" | "ips" as folder, name]:
            yield from _client(path, {_QUOTA_KIND[folder]: _name(path, name)}, data, offset, secrets)
        case ["config", "users", user, "clients", client]:
            entity = {"user": _name(path, user), "client-id": _name(path, client)}
            yield from _client(path, entity, data, offset, secrets)
        case ["kafka-acl", kind, name]:
            yield from _acls(path, (kind, "LITERAL", name), data, offset)
        case ["kafka-acl-extended", pattern, kind, name]:
            yield from _acls(path, (kind, pattern.upper(), name), data, offset)
        case ["delegation_token", "tokens", identity]:
            yield _token(path, identity, data, offset)
        case ["latest_producer_id_block"] if data is not None:
            yield _producer_ids(path, data, offset)


def _configs(kind: EntityKind, key: str, values: Mapping[str, str], offset: int) -> Iterator[Entity]:
    if values:  # no config and an empty config mean the same
        yield Entity(kind, key, canonical_json(values), offset)


def json_object(path: str, data: bytes | None) -> dict[str, Any]:
    """Return a znode's data as a JSON object.

    Raises
    ------
    UndecodableZnodeError
        The data is empty or not a JSON object.
    """
    if not data:
        raise UndecodableZnodeError(f"{path} has no data")
    try:
        body = parsed_json(data)
    except ValueError as error:
        raise UndecodableZnodeError(f"{path} is not JSON: {type(error).__name__}") from error
    if not isinstance(body, dict):
        raise UndecodableZnodeError(f"{path} is not a JSON object")
    return body


def integer(
    path: str, body: Mapping[str, Any], field: str, low: int = -MAXIMUM_INT32 - 1, high: int = MAXIMUM_INT32
) -> int:
    """Return a field that must be a whole number. Kafka does not accept text there (`DecodeJson`)."""
    value = body.get(field)
    if type(value) is not int:
        raise UndecodableZnodeError(f"{path}: {field} is not a whole number")
    if not low <= value <= high:
        raise UndecodableZnodeError(f"{path}: {field} is out of range")
    return value


def _number_text(path: str, body: Mapping[str, Any], field: str, low: int, high: int) -> int:
    """Return a field that contains a whole number as text."""
    value = body.get(field)
    if not isinstance(value, str) or _JAVA_INTEGER.fullmatch(value) is None:
        raise UndecodableZnodeError(f"{path}: {field} is not the text of a whole number")
    return integer(path, {field: int(value)}, field, low, high)


def _name(path: str, element: str) -> str | None:
    try:
        return desanitized(element)
    except ValueError as error:
        raise UndecodableZnodeError(f"{path}: {element} is not URL-encoded UTF-8") from error


def config_values(path: str, data: bytes | None) -> dict[str, str]:
    """Return the configs in a znode.

    Raises
    ------
    UndecodableZnodeError
        Kafka does not write such data there.
    """
    values = json_object(path, data).get("config")
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        raise UndecodableZnodeError(f"{path}: config is not an object of texts")
    return values


def _broker_config(path: str, name: str, value: str, secrets: Secrets, encoder_secret: str | None) -> str:
    try:
        if is_password_config(name) and looks_encoded(value):
            encoded = EncodedPassword.parse(value)
            if encoder_secret is None or not secrets.compare_passwords:
                return password_length(encoded.length)
            return secrets.password(encoded.decoded(encoder_secret))
        if is_password_config(name):
            return secrets.password(value)
        return secrets.hashed(value) if is_secret_setting(name) else value
    except PasswordDecodingError as error:
        raise UndecodableZnodeError(f"{path}: config {name}: {error}") from error


def _broker(path: str, identity: str, data: bytes | None, offset: int) -> Entity:
    body = json_object(path, data)
    endpoints = body.get("endpoints")
    if not isinstance(endpoints, list) or not all(isinstance(item, str) for item in endpoints):
        raise UndecodableZnodeError(f"{path}: endpoints is not a list of texts")
    if not endpoints:
        raise UndecodableZnodeError(f"{path}: endpoints is empty")
    rack = body.get("rack")
    protocols = body.get("listener_security_protocol_map")
    if not isinstance(rack, str | None):
        raise UndecodableZnodeError(f"{path}: rack is no text")
    if not isinstance(protocols, dict | list | None):  # an empty list is an empty map
        raise UndecodableZnodeError(f"{path}: listener_security_protocol_map is no object")
    _check_protocols(path, protocols, endpoints)
    # IPv6 has no brackets in the log.
    plain = sorted(endpoint.replace("[", "").replace("]", "") for endpoint in endpoints)
    value = canonical_json({"endpoints": plain, "rack": rack})
    return Entity(EntityKind.BROKER_REGISTRATION, identity, value, offset)


def _check_protocols(path: str, protocols: object, endpoints: list[str]) -> None:
    """Refuse a listener without a security protocol of Kafka (``BrokerIdZNode.decode``)."""
    named = protocols if isinstance(protocols, dict) else {}
    for endpoint in endpoints:
        listener = endpoint.partition("://")[0]
        protocol = named.get(listener, listener)
        if not isinstance(protocol, str) or protocol.upper() not in _SECURITY_PROTOCOLS:
            raise UndecodableZnodeError(f"{path}: listener {listener} has the unknown security protocol {protocol!r}")


def _client(
    path: str, entity: Mapping[str, str | None], data: bytes | None, offset: int, secrets: Secrets
) -> Iterator[Entity]:
    if not data:
        return  # the folder `clients` below a user that has no configs
    quotas = {}
    for name, value in config_values(path, data).items():
        if name in SCRAM_MECHANISMS:
            user = entity.get("user")
            if user is None or len(entity) > 1:
                raise UndecodableZnodeError(f"{path} has a SCRAM credential, which only a user can have")
            yield Entity(EntityKind.SCRAM_CREDENTIAL, scram_key(user, name), _scram(path, value, secrets), offset)
        else:
            quotas[name] = _quota(path, name, value)
    if quotas:
        yield Entity(EntityKind.CLIENT_QUOTA, quota_key(entity), canonical_json(quotas), offset)


def _quota(path: str, name: str, value: str) -> float:
    limit = java_double(value)
    if limit is None:
        raise UndecodableZnodeError(f"{path}: quota {name} is not a number")
    if not math.isfinite(limit):
        raise UndecodableZnodeError(f"{path}: quota {name} is not finite")
    return number(limit)


def _scram(path: str, value: str, secrets: Secrets) -> str:
    # `ScramCredentialUtils`: these four fields, and Java's `split` drops empty ends.
    parts = dict(part.partition("=")[::2] for part in value.rstrip(",").split(","))
    attributes: dict[str, Any] = {}
    try:
        if len(parts) != len(_SCRAM_FIELDS) + 1 or _JAVA_INTEGER.fullmatch(parts["iterations"]) is None:
            raise ValueError(value)  # noqa: TRY301 - one message for all
        for field, attribute in _SCRAM_FIELDS.items():
            text = parts[field]
            plain = text if is_redacted(text) else base64.b64decode(text, validate=True)
            attributes[attribute] = secrets.hashed(plain)
        attributes["iterations"] = iterations = int(parts["iterations"])
        if not -MAXIMUM_INT32 <= iterations <= MAXIMUM_INT32:
            raise ValueError(iterations)  # noqa: TRY301
    except (KeyError, ValueError, binascii.Error) as error:
        raise UndecodableZnodeError(f"{path} has an incomplete SCRAM credential") from error
    return canonical_json(attributes)


def acl_entries(path: str, data: bytes | None) -> list[dict[str, str]]:
    """Return the entries of an ACL znode.

    Raises
    ------
    UndecodableZnodeError
        Kafka does not write such data there.
    """
    body = json_object(path, data)
    if integer(path, body, "version") != 1:  # `AclEntry.fromBytes` refuses every other one
        raise UndecodableZnodeError(f"{path} has the unknown version {body['version']}")
    entries = body.get("acls")
    if not isinstance(entries, list):
        raise UndecodableZnodeError(f"{path}: acls is not a list")
    for entry in entries:
        if not isinstance(entry, dict) or not all(isinstance(entry.get(field), str) for field in _ACL_FIELDS):
            raise UndecodableZnodeError(f"{path}: an ACL has no {', '.join(_ACL_FIELDS)}")
    return entries


def _acls(path: str, resource: tuple[str, str, str], data: bytes | None, offset: int) -> Iterator[Entity]:
    keys = {acl_key((*resource, *(entry[field] for field in _ACL_FIELDS))) for entry in acl_entries(path, data)}
    for key in sorted(keys):  # a set in Kafka (`AclEntry.fromBytes`)
        yield Entity(EntityKind.ACL, key, "{}", offset)


_TOKEN_VERSION: Final = 3
"""The first with `tokenRequester` (KIP-373), and the last."""


def _token(path: str, identity: str, data: bytes | None, offset: int) -> Entity:
    """Return a token as ``DelegationTokenManagerZk.fromBytes`` does; the copy aborts at what it cannot read."""
    body = json_object(path, data)
    version = integer(path, body, "version", 1, _TOKEN_VERSION)
    renewers = body.get("renewers")
    if not isinstance(renewers, list):
        raise UndecodableZnodeError(f"{path}: renewers are not a list")
    if body.get("tokenId") != identity:
        raise UndecodableZnodeError(f"{path} holds the token {body.get('tokenId')!r}")
    limits = (-(2**63), 2**63 - 1)
    owner = _principal(path, "owner", body.get("owner"))
    requester = owner
    if version >= _TOKEN_VERSION:
        requester = _principal(path, "tokenRequester", body.get("tokenRequester"))
    value = canonical_json(
        {
            "owner": owner,
            "requester": requester,
            "renewers": sorted(_principal(path, "renewers", renewer) for renewer in renewers),
            "issueTimestampMs": integer(path, body, "issueTimestamp", *limits),
            "maxTimestampMs": integer(path, body, "maxTimestamp", *limits),
            "expirationTimestampMs": integer(path, body, "expiryTimestamp", *limits),
        }
    )
    return Entity(EntityKind.DELEGATION_TOKEN, identity, value, offset)


def _principal(path: str, field: str, text: Any) -> str:
    """Return a principal of a token (``SecurityUtils.parseKafkaPrincipal``)."""
    name = _name(path, text) if isinstance(text, str) else None
    if name is None or ":" not in name:
        raise UndecodableZnodeError(f"{path}: {field} names no principal of the form TYPE:NAME")
    return name


def _producer_ids(path: str, data: bytes, offset: int) -> Entity:
    body = json_object(path, data)
    limits = (0, 2**63 - 2)
    start = _number_text(path, body, "block_start", *limits)
    end = _number_text(path, body, "block_end", *limits)
    # A KRaft controller writes the next block and no broker. A ZooKeeper broker writes the block that it took.
    next_id = start if integer(path, body, "broker") == -1 else end + 1
    return Entity(EntityKind.PRODUCER_IDS, "", canonical_json({"nextProducerId": next_id}), offset)


TOPICS_PATH: Final = "/brokers/topics"
_NUMBER: Final = rb"(?:0|[1-9]\d{0,8})"
_USUAL_STATE: Final = re.compile(
    rb'\{"controller_epoch":(%b),"leader":(-1|%b),"version":1,"leader_epoch":(%b),"isr":\[(%b(?:,%b)*)\]\}'
    % ((_NUMBER,) * 5)
)
"""The form in which Kafka's `TopicPartitionStateZNode` nearly always writes a state. A cluster can have a million."""


@dataclass(frozen=True, slots=True)
class TopicAssignment:
    """Content of `/brokers/topics/NAME`."""

    topic_id: str | None
    replicas: Mapping[int, list[int]]
    adding: Mapping[int, list[int]]
    removing: Mapping[int, list[int]]

    @property
    def is_reassigned(self) -> bool:
        """Whether replicas are added or removed."""
        return any((*self.adding.values(), *self.removing.values()))

    @classmethod
    def parse(cls, path: str, data: bytes | None) -> TopicAssignment:
        """Decode a topic's znode."""
        body = json_object(path, data)
        topic_id = body.get("topic_id")
        if not isinstance(topic_id, str | None):
            raise UndecodableZnodeError(f"{path}: topic_id is not text")
        return cls(
            topic_id=topic_id,
            replicas=_assignments(path, body, "partitions", required=True),
            adding=_assignments(path, body, "adding_replicas"),
            removing=_assignments(path, body, "removing_replicas"),
        )


NO_ASSIGNMENT: Final = TopicAssignment(None, {}, {}, {})
"""In place of a topic's znode that does not exist."""


class PartitionState(NamedTuple):
    """Content of a partition's `state` znode."""

    leader: int
    leader_epoch: int
    controller_epoch: int
    isr: list[int]
    leader_recovery_state: int

    @classmethod
    def parse(cls, path: str, data: bytes | None) -> PartitionState:
        """Decode a state znode."""
        usual = _USUAL_STATE.fullmatch(data or b"")
        if usual is not None:
            controller_epoch, leader, leader_epoch, isr = usual.groups()
            return cls(int(leader), int(leader_epoch), int(controller_epoch), list(map(int, isr.split(b","))), 0)
        body = json_object(path, data)
        recovery = body.get("leader_recovery_state", 0)
        return cls(
            leader=integer(path, body, "leader"),
            leader_epoch=integer(path, body, "leader_epoch"),
            controller_epoch=integer(path, body, "controller_epoch"),
            isr=_broker_ids(path, "isr", body.get("isr")),
            leader_recovery_state=integer(path, {"leader_recovery_state": recovery}, "leader_recovery_state", 0, 1),
        )


@dataclass(frozen=True, slots=True)
class TopicReading:
    """The znodes of one topic."""

    name: str
    assignment: TopicAssignment | None
    """The topic's own znode; None if only states exist, which a deleted topic left behind."""
    states: Mapping[int, PartitionState | None]
    """The state znodes by partition; None for a missing state. A partition outside the assignment is an orphan."""
    offset: int
    """Log offset that ZooKeeper mirrored when the oldest of these was read."""


def topic_entities(topic: TopicReading) -> Iterator[Entity]:
    """Yield a topic and its partitions, including orphans."""
    name = topic.name
    states = topic.states
    offset = topic.offset
    if topic.assignment is not None:
        yield Entity(EntityKind.TOPIC, name, canonical_json({"topicId": topic.assignment.topic_id}), offset)
    assignment = topic.assignment or NO_ASSIGNMENT
    for partition in sorted(assignment.replicas.keys() | states.keys()):
        state = states.get(partition)
        assigned = assignment.replicas.get(partition)
        adding = assignment.adding.get(partition, ())
        removing = assignment.removing.get(partition, ())
        if state is not None and assigned is not None:
            leader = (state.leader, state.leader_epoch, state.isr, state.leader_recovery_state)
            value = partition_value(assigned, adding, removing, *leader)
        else:
            replicas = {"addingReplicas": sorted(adding), "removingReplicas": sorted(removing), "replicas": assigned}
            value = canonical_json(replicas | _state_fields(state))
        yield Entity(EntityKind.PARTITION, partition_key(name, partition), value, offset)


def _state_fields(state: PartitionState | None) -> dict[str, Any]:
    if state is None:
        return dict.fromkeys(("isr", "leader", "leaderEpoch", "leaderRecoveryState"))
    return {
        "isr": sorted(state.isr),
        "leader": state.leader,
        "leaderEpoch": state.leader_epoch,
        "leaderRecoveryState": state.leader_recovery_state,
    }


def _broker_ids(path: str, field: str, value: Any) -> list[int]:
    if (
        not isinstance(value, list)
        or not set(map(type, value)) <= {int}
        or max(map(abs, value), default=0) > MAXIMUM_INT32
    ):
        raise UndecodableZnodeError(f"{path}: {field} is not a list of broker ids")
    return value


def _assignments(path: str, body: Mapping[str, Any], field: str, *, required: bool = False) -> dict[int, list[int]]:
    if field not in body and not required:
        return {}
    value = body.get(field)
    if not isinstance(value, dict):
        raise UndecodableZnodeError(f"{path}: {field} is not an object of partitions")
    try:
        numbers = {partition: int(partition) for partition in value}
    except ValueError as error:
        raise UndecodableZnodeError(f"{path}: {field} names a partition that is no number") from error
    for name, partition in numbers.items():
        if str(partition) != name or not 0 <= partition <= MAXIMUM_INT32:
            raise UndecodableZnodeError(f"{path}: {field} names the partition {name!r}")
    return {numbers[name]: _broker_ids(path, field, replicas) for name, replicas in value.items()}


def alternative_entity(path: str, data: bytes | None, offset: int) -> Entity | None:
    """Return the other correct form of a znode's entity, if there is one.

    A producer-id block that KRaft wrote (`broker` -1) stays in ZooKeeper through a rollback.
    The next copy takes the block's end + 1, as for any block (``ZkMigrationClient.migrateProducerId``),
    and the sync leaves the znode as it is.
    Both forms are correct until the next allocation.
    """
    if path != "/latest_producer_id_block" or not data:
        return None
    body = json_object(path, data)
    if integer(path, body, "broker") != -1:
        return None
    end = _number_text(path, body, "block_end", 0, 2**63 - 2)
    return Entity(EntityKind.PRODUCER_IDS, "", canonical_json({"nextProducerId": end + 1}), offset)
