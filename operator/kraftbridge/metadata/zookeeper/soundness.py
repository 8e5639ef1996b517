"""Checks a ZooKeeper tree before the copy: Kafka can read everything that the copy reads, and every value is valid.

Codes, severities and texts are in `kraftbridge.models.catalogue`.
Each rule names the Kafka ticket or class that it comes from.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

from kraftbridge.exceptions import MetadataError
from kraftbridge.metadata.entities import EncodedPassword, Secrets, is_password_config, looks_encoded
from kraftbridge.metadata.zookeeper.long_texts import LONGEST_TEXT, long_texts
from kraftbridge.metadata.zookeeper.stored_values import OPERATIONS, PERMISSIONS, QUOTAS, RESOURCE_TYPES, is_limit
from kraftbridge.metadata.zookeeper.tree import TOPIC_CONFIGS_PATH, DumpReading
from kraftbridge.metadata.zookeeper.znodes import (
    MAXIMUM_INT32,
    MIGRATION_PATH,
    SCRAM_MECHANISMS,
    TOPICS_PATH,
    PartitionState,
    TopicReading,
    Znode,
    acl_entries,
    config_values,
    integer,
    json_object,
)
from kraftbridge.models.catalogue import Code
from kraftbridge.models.entities import desanitized, sanitized
from kraftbridge.models.observation import MigrationZnode
from kraftbridge.models.report import Finding
from kraftbridge.outside.json_text import parsed_json
from kraftbridge.outside.shell import Option, option

DELETIONS_PATH: Final = "/admin/delete_topics"
REASSIGNMENT_PATH: Final = "/admin/reassign_partitions"
ELECTION_PATH: Final = "/admin/preferred_replica_election"
CONTROLLER_PATH: Final = "/controller"
CONTROLLER_EPOCH_PATH: Final = "/controller_epoch"
CLUSTER_ID_PATH: Final = "/cluster/id"
CHECKED_NODES: Final = (REASSIGNMENT_PATH, ELECTION_PATH, CONTROLLER_PATH, CONTROLLER_EPOCH_PATH, CLUSTER_ID_PATH)
"""Znodes that are not copied, but show whether the copy can begin."""

_BROKER_ID = re.compile(r"0|[1-9][0-9]{0,9}")
_JAVA_INT = re.compile(r"[+-]?\d+")
"""The syntax of `Integer.parseInt`, which also accepts digits of other scripts."""
_TOPIC_NAME = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
_NO_LEADER: Final = -1
_SHOWN: Final = 5
_UUID_BYTES: Final = 16
_DEFAULT: Final = "<default>"


@dataclass(slots=True)
class Soundness:
    """Collects findings while a tree is read."""

    broker_ids: frozenset[int] = frozenset()
    """Brokers that are registered in ZooKeeper."""
    encoder_secret: str | None = None
    """The brokers' `password.encoder.secret`, if known."""
    findings: list[Finding] = field(default_factory=list)
    highest_controller_epoch: int = -1
    controller_epoch: int | None = None
    secret_required: bool = True
    """Whether encrypted configs without the secret block. Readers of a dump may not have the secret."""

    def topic(self, topic: TopicReading) -> None:
        """Check one topic's znodes."""
        path = f"{TOPICS_PATH}/{topic.name}"
        if topic.assignment is None:
            if topic.states:  # else it has gone since the topics were listed
                self._add(Code.STALE_TOPIC_ZNODE, path)
            return
        if not _TOPIC_NAME.fullmatch(topic.name):
            self._add(Code.TOPIC_NAME_INVALID, path, path=path)
        if topic.assignment.topic_id is None:
            self._add(Code.TOPIC_WITHOUT_ID, path)
        elif not _is_uuid(topic.assignment.topic_id):
            self._add(Code.TOPIC_ID_INVALID, path, id=topic.assignment.topic_id)
        if not topic.assignment.replicas:
            self._add(Code.TOPIC_WITHOUT_PARTITIONS, path, topic=topic.name)
        if topic.assignment.is_reassigned:
            self._add(
                Code.REASSIGNMENT_RUNNING, path, what=f"topic {topic.name} has replicas that are added or removed"
            )
        for number in topic.states:
            self._partition(topic, number, f"{path}/partitions/{number}/state")

    def _partition(self, topic: TopicReading, number: int, path: str) -> None:
        assert topic.assignment is not None
        state = topic.states[number]
        replicas = topic.assignment.replicas.get(number)
        if replicas is None:
            self._add(Code.ORPHAN_PARTITION_STATE, path, partition=number)
            return
        if not replicas or len(set(replicas)) != len(replicas):
            self._add(Code.REPLICAS_INVALID, path, replicas=replicas)
        unknown = sorted(set(replicas) - self.broker_ids)
        if self.broker_ids and unknown:
            self._add(Code.REPLICA_ON_UNKNOWN_BROKER, path, brokers=unknown)
        if state is None:
            # `ZkTopicMigrationClient` then treats all replicas as in sync and logs only a WARN
            self._add(Code.PARTITION_WITHOUT_STATE, path)
            return
        self.highest_controller_epoch = max(self.highest_controller_epoch, state.controller_epoch)
        if not set(state.isr) <= set(replicas) or not state.isr:
            anew = _led_anew(state, replicas)
            self._add(Code.ISR_INVALID, path, isr=state.isr, replicas=replicas, path=path, state=anew)
        if state.leader == _NO_LEADER:
            self._add(Code.OFFLINE_PARTITIONS, path, count=1, partitions=f"{topic.name}-{number}")
        elif state.leader not in state.isr:
            anew = _led_anew(state, replicas)
            self._add(Code.LEADER_NOT_IN_SYNC, path, leader=state.leader, isr=state.isr, path=path, state=anew)

    def znode(self, path: str, data: bytes | None) -> None:
        """Check one znode that is not below `/brokers/topics`. The reader reports znodes that cannot be decoded."""
        with suppress(MetadataError):
            self._lengths(path, data)
        try:
            match path.split("/")[1:]:
                case ["kafka-acl-extended", pattern, _, _] if pattern != "prefixed":
                    self._add(Code.ACL_PATTERN_UNKNOWN, path, pattern=pattern)
                case ["kafka-acl", kind, _] | ["kafka-acl-extended", _, kind, _]:
                    self._acls(path, kind, data)
                case ["brokers", "ids", name] if not _BROKER_ID.fullmatch(name) or _java_int(name) is None:
                    self._add(Code.BROKER_ID_INVALID, path, name=name)
                case ["config", "brokers", name]:
                    self._broker_config(path, name, data)
                case ["config", "users" | "clients" | "ips" as folder, name]:
                    self._client(path, folder, [name], data)
                case ["config", "users", user, "clients", client]:
                    self._client(path, "users", [user, client], data)
                case _:
                    pass
        except MetadataError:
            return

    def _acls(self, path: str, kind: str, data: bytes | None) -> None:
        if kind not in RESOURCE_TYPES:
            # `AclAuthorizer.loadAllAcls` skips them with a WARN
            self._add(Code.ACL_RESOURCE_TYPE_UNKNOWN, path, type=kind)
            return
        for entry in acl_entries(path, data):
            operation = entry["operation"]
            permission = entry["permissionType"]
            if ":" not in entry["principal"]:
                # `StandardAcl.kafkaPrincipal` throws: it can stop the controller at start
                rest = _without_acl("principal", entry["principal"])
                self._add(Code.ACL_PRINCIPAL_INVALID, path, principal=entry["principal"], path=path, rest=rest)
            if operation not in OPERATIONS:
                rest = _without_acl("operation", operation)
                self._add(Code.ACL_UNKNOWN, path, operation=operation, permission=permission, path=path, rest=rest)
            elif permission not in PERMISSIONS:
                rest = _without_acl("permissionType", permission)
                self._add(Code.ACL_UNKNOWN, path, operation=operation, permission=permission, path=path, rest=rest)

    def _lengths(self, path: str, data: bytes | None) -> None:
        """Find texts that the copy cannot write to a record."""
        for text in long_texts(path, data, decrypted=self.encoder_secret is not None):
            self._add(
                Code.TEXT_TOO_LONG, path, what=text.what, bytes=text.bytes, most=LONGEST_TEXT, way_out=text.way_out
            )

    def _passwords(self, path: str, data: bytes | None) -> None:
        for name, value in config_values(path, data).items():
            where = f"{path} {name}"
            if is_password_config(name):
                self._password(where, path, name, value)
            elif looks_encoded(value):
                problem = "Kafka 3.9 does not take this setting for a password and would copy the cipher text"
                self._wrong_password(where, path, name, problem)

    def _wrong_password(self, where: str, path: str, name: str, problem: object) -> None:
        broker = path.rpartition("/")[2]
        entity = option("entity-default") if broker == _DEFAULT else option("entity-name", broker)
        config = f"{name}=VALUE"
        self._add(Code.PASSWORD_ENCODER_SECRET_WRONG, where, problem=problem, entity=entity, config=config)

    def _password(self, where: str, path: str, name: str, value: str) -> None:
        if self.encoder_secret is not None:
            try:
                EncodedPassword.parse(value).decoded(self.encoder_secret)
            except MetadataError as error:
                self._wrong_password(where, path, name, error)
            else:
                self._add(Code.PASSWORD_BECOMES_PLAIN, where, passwords=name)
        elif not looks_encoded(value):
            return
        elif self.secret_required:
            self._add(Code.PASSWORD_ENCODER_SECRET_MISSING, where, passwords=name)
        else:
            self._add(Code.PASSWORD_NOT_CHECKED, where, password=name)

    def _client(self, path: str, folder: str, names: Sequence[str], data: bytes | None) -> None:
        """Check the quotas and credentials of a user, client or address (`ZkConfigMigrationClient`, `QuotaConfigs`)."""
        for name in names:
            if name != _DEFAULT:
                self._entity_name(path, folder, name)
        if not data:
            return
        quotas = QUOTAS[folder]
        credentials = SCRAM_MECHANISMS if folder == "users" else ()
        for name, value in config_values(path, data).items():
            if name in credentials:
                continue
            if name not in quotas:
                self._add(Code.QUOTA_UNKNOWN, path, quota=name, folder=folder, entity=_quota_entity(folder, names))
            elif not is_limit(value, quotas[name]):
                rest = f"del(.config[{json.dumps(name)}])"
                expected = quotas[name]
                self._add(Code.QUOTA_INVALID, path, quota=name, value=value, expected=expected, path=path, rest=rest)

    def _entity_name(self, path: str, folder: str, name: str) -> None:
        if folder != "ips":
            if not _is_sanitized(name):
                self._add(Code.ENTITY_NAME_INVALID, path, name=name, path=path)
        elif not _is_sanitized(name) and not _is_address(name):
            self._add(Code.ENTITY_NAME_INVALID, path, name=name, path=path)
        elif not _is_address(unquote(name)):
            self._add(Code.QUOTA_ADDRESS_IS_NAME, path, address=unquote(name), path=path)

    def _broker_config(self, path: str, name: str, data: bytes | None) -> None:
        if name != _DEFAULT and _java_int(name) is None:
            self._add(Code.BROKER_CONFIG_NAME_INVALID, path, name=name)
        self._passwords(path, data)

    def same_ids(self, topics_by_id: Mapping[str, Sequence[str]]) -> None:
        """Add findings for topics that share an id.

        Parameters
        ----------
        topics_by_id
            Names of topics by their id.
        """
        for topic_id, names in sorted(topics_by_id.items()):
            if len(names) > 1:
                self._add(
                    Code.TOPIC_ID_DUPLICATE,
                    f"{TOPICS_PATH}/{min(names)}",
                    id=topic_id,
                    topics=", ".join(sorted(names)[:_SHOWN]),
                )

    def tree(
        self,
        *,
        topics: Iterable[str],
        topic_configs: Iterable[str],
        deletions: Iterable[str],
        migration: MigrationZnode | None,
        migration_problem: str | None,
        checked: Mapping[str, bytes | None],
    ) -> None:
        """Check the facts that concern the whole tree.

        Parameters
        ----------
        topics, topic_configs
            Names below `/brokers/topics` and `/config/topics`.
        deletions
            Names below `/admin/delete_topics`.
        migration, migration_problem
            `/migration`, or the reason why it cannot be decoded.
        checked
            Data of those `CHECKED_NODES` that exist.
        """
        existing = set(topics)
        configured = set(topic_configs)
        for topic in sorted(configured - existing):
            self._add(Code.STALE_TOPIC_CONFIG, f"/config/topics/{topic}")
        for topic in sorted(existing - configured):
            self._add(Code.TOPIC_CONFIG_MISSING, f"/config/topics/{topic}", topic=topic)
        for topic in sorted(deletions):
            self._add(Code.TOPIC_DELETION_PENDING, f"{DELETIONS_PATH}/{topic}", topics=topic)
        self._migration(migration, migration_problem)
        self._nodes(checked)

    def _migration(self, migration: MigrationZnode | None, problem: str | None) -> None:
        if problem is not None:
            self._add(Code.MIGRATION_ZNODE_UNREADABLE, MIGRATION_PATH, problem=problem)
        elif migration is not None and migration.kraft_metadata_offset >= 0:
            self._add(Code.MIGRATION_ZNODE_STALE, MIGRATION_PATH, offset=migration.kraft_metadata_offset)

    def _nodes(self, checked: Mapping[str, bytes | None]) -> None:
        if REASSIGNMENT_PATH in checked:
            self._add(Code.REASSIGNMENT_RUNNING, REASSIGNMENT_PATH, what=f"{REASSIGNMENT_PATH} exists")
        if ELECTION_PATH in checked:
            self._add(Code.ELECTION_ZNODE, ELECTION_PATH)
        if CONTROLLER_PATH in checked:
            self._controller(checked[CONTROLLER_PATH])
        else:
            self._add(Code.CONTROLLER_MISSING, CONTROLLER_PATH)
        self.controller_epoch = _java_int((checked.get(CONTROLLER_EPOCH_PATH) or b"").decode(errors="replace"))
        if self.controller_epoch is None:
            write = "set" if CONTROLLER_EPOCH_PATH in checked else "create"
            self._add(Code.CONTROLLER_EPOCH_INVALID, CONTROLLER_EPOCH_PATH, write=write)
        if not cluster_id(checked.get(CLUSTER_ID_PATH)):
            self._add(Code.CLUSTER_ID_MISSING, CLUSTER_ID_PATH, path=CLUSTER_ID_PATH)
        if not self.broker_ids:
            self._add(Code.NO_BROKERS, "/brokers/ids")

    def _controller(self, data: bytes | None) -> None:
        """Check `/controller`, which the KRaft controller decodes when it claims it.

        See ``KafkaZkClient.tryRegisterKRaftControllerAsActiveController``.
        """
        try:
            body = json_object(CONTROLLER_PATH, data)
            integer(CONTROLLER_PATH, body, "brokerid")
            integer(CONTROLLER_PATH, {"kraftControllerEpoch": -1, **body}, "kraftControllerEpoch")
        except MetadataError as error:
            self.undecodable(CONTROLLER_PATH, str(error))

    def epochs(self, controller_epoch: int | None, highest_in_states: int) -> None:
        """Check `/controller_epoch` against the highest epoch in any partition's state."""
        if controller_epoch is not None and highest_in_states > controller_epoch:
            self._add(
                Code.CONTROLLER_EPOCH_BEHIND, CONTROLLER_EPOCH_PATH, epoch=controller_epoch, highest=highest_in_states
            )

    def undecodable(self, path: str, problem: str) -> None:
        """Add a finding for a znode that could not be decoded."""
        self._add(Code.ZNODE_UNDECODABLE, path, problem=problem)

    def _add(self, code: Code, subject: str, /, **details: object) -> None:
        self.findings.append(Finding.of(code, subject, **details))


def _led_anew(state: PartitionState, replicas: Sequence[int]) -> str:
    """Return a state in which one replica leads alone, in an epoch that every replica takes for new.

    A leader ignores a state whose epoch it has (``Partition.makeLeader``, 3.9), whoever sends it.
    """
    leader = state.leader if state.leader in replicas else next(iter(replicas), state.leader)
    body = {
        "controller_epoch": state.controller_epoch,
        "leader": leader,
        "version": 1,
        "leader_epoch": state.leader_epoch + 1,
        "isr": [leader],
    }
    return json.dumps(body, separators=(",", ":"))


def _without_acl(field_name: str, value: str) -> str:
    """Return jq's filter that takes the ACLs with this value out of a znode."""
    return f"del(.acls[] | select(.{field_name} == {json.dumps(value)}))"


def _quota_entity(folder: str, names: Sequence[str]) -> list[Option]:
    """Return the entity as ``python -m kraftbridge.kafka`` takes it; an empty name is the default entity."""
    kinds = ("user", "client") if folder == "users" else (folder.removesuffix("s"),)
    return [option(kind, "" if name == _DEFAULT else unquote(name)) for kind, name in zip(kinds, names, strict=False)]


def _java_int(text: str) -> int | None:
    """Return what `Integer.parseInt` reads; None where it throws."""
    if not _JAVA_INT.fullmatch(text):
        return None
    number = int(text)
    return number if abs(number) <= MAXIMUM_INT32 else None


def _is_uuid(text: str) -> bool:
    """Return whether a text has the form of `Uuid.toString`: 16 bytes in URL-safe base64 without padding."""
    try:
        value = base64.urlsafe_b64decode(f"{text}==")
    except (ValueError, binascii.Error):
        return False
    return len(value) == _UUID_BYTES and base64.urlsafe_b64encode(value).decode().rstrip("=") == text


def _is_sanitized(name: str) -> bool:
    """Return whether a path element is exactly what Kafka's `Sanitizer` writes for a name."""
    try:
        return sanitized(desanitized(name)) == name
    except ValueError:
        return False


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return "%" not in name


def cluster_id(data: bytes | None) -> str | None:
    """Return the id in `/cluster/id`, if it exists."""
    try:
        identity = parsed_json(data or b"{}").get("id")
    except (ValueError, AttributeError):
        return None
    return identity if isinstance(identity, str) and identity else None


def topics_being_deleted(reading: DumpReading) -> list[str]:
    """Return the topics in `/admin/delete_topics` of a tree that was read."""
    return _children(reading.nodes(), DELETIONS_PATH)


def soundness_of(reading: DumpReading, encoder_secret: str | None, *, secret_required: bool) -> Soundness:
    """Check a tree that was read, except for topics with the same id and znodes that could not be decoded."""
    nodes = reading.nodes()
    soundness = Soundness(broker_ids(nodes), encoder_secret, secret_required=secret_required)
    topics = list(reading.topics())
    for topic in topics:
        soundness.topic(topic)
    for path, data in nodes.items():
        soundness.znode(path, data)
    soundness.tree(
        topics=[topic.name for topic in topics],
        topic_configs=_children(nodes, TOPIC_CONFIGS_PATH),
        deletions=topics_being_deleted(reading),
        migration=reading.migration,
        migration_problem=reading.problems.get(MIGRATION_PATH),
        checked={path: nodes[path] for path in CHECKED_NODES if path in nodes},
    )
    return soundness


def findings_of(znodes: Iterable[Znode], encoder_secret: str | None) -> list[Finding]:
    """Return every finding about a tree.

    Raises
    ------
    DumpFormatError
        The tree has a path twice, or nothing in it.
    """
    reading = DumpReading(Secrets(b"", compare_passwords=encoder_secret is not None), encoder_secret)
    reading.take(znodes)
    for _ in reading.entities():
        pass  # decoding records the znodes that cannot be decoded
    soundness = soundness_of(reading, encoder_secret, secret_required=True)
    by_id: dict[str, list[str]] = {}
    for topic in reading.topics():
        if topic.assignment is not None and topic.assignment.topic_id is not None:
            by_id.setdefault(topic.assignment.topic_id, []).append(topic.name)
    soundness.same_ids(by_id)
    for path, problem in reading.problems.items():
        if path != MIGRATION_PATH:
            soundness.undecodable(path, problem)
    soundness.epochs(soundness.controller_epoch, soundness.highest_controller_epoch)
    return soundness.findings


def broker_ids(paths: Iterable[str]) -> frozenset[int]:
    """Return the registered brokers in the tree's paths."""
    return frozenset(int(name) for name in _children(paths, "/brokers/ids") if name.isdecimal())


def _children(paths: Iterable[str], folder: str) -> list[str]:
    return [path.rpartition("/")[2] for path in paths if path.rpartition("/")[0] == folder]
