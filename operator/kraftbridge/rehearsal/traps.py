"""Finds the znodes at which Kafka 3.9 stops, waits without end or loses metadata, and the command that repairs each.

Each trap was planted in a dump and rehearsed with Kafka 3.9.1; ``docs/rehearsal.md`` has the table.
Codes are those of `kraftbridge.models.catalogue`.
Run the commands against the live ZooKeeper before the takeover.
``$ZOOKEEPER`` is the value of ``zookeeper.connect``, chroot included.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from kraftbridge.exceptions import MetadataError
from kraftbridge.metadata.entities import looks_encoded
from kraftbridge.metadata.zookeeper.long_texts import LONGEST_TEXT, long_texts
from kraftbridge.metadata.zookeeper.reader import read_dump
from kraftbridge.metadata.zookeeper.stored_values import OPERATIONS, PERMISSIONS, QUOTAS, RESOURCE_TYPES, is_limit
from kraftbridge.models.catalogue import Code
from kraftbridge.models.rehearsal import Mend
from kraftbridge.outside.json_text import parsed_json
from kraftbridge.outside.shell import command as shell_command

_SCRAM_PREFIX: Final = "SCRAM-SHA-"
_SCRAM_FIELDS: Final = frozenset({"salt", "stored_key", "server_key", "iterations"})
_ENCODER_SECRET: Final = "password.encoder.secret"  # noqa: S105 - the name of a setting
_TOKEN_KEYS: Final = frozenset({"delegation.token.secret.key", "delegation.token.master.key"})


@dataclass(slots=True)
class _Tree:
    """The data for checks across znodes."""

    brokers: set[int] = field(default_factory=set)
    topics: dict[str, dict[str, Any]] = field(default_factory=dict)
    states: set[tuple[str, str]] = field(default_factory=set)
    topic_configs: set[str] = field(default_factory=set)
    deletions: set[str] = field(default_factory=set)
    tokens: str | None = None


def mends(dump: Path, chroot: str, given: Collection[str]) -> list[Mend]:
    """Return the known traps in a dump, each with the command that repairs it.

    Parameters
    ----------
    given
        Names of the controllers' settings.

    Raises
    ------
    MetadataError
        The dump cannot be read.
    """
    tree = _Tree()
    repairs: list[Mend] = []
    for znode in read_dump(dump, chroot):
        _note(tree, znode.path, znode.data)
        repairs += _of_znode(znode.path, znode.data, given)
        repairs += _long_texts(znode.path, znode.data, given)
    repairs += _of_topics(tree)
    if tree.tokens is not None and not _TOKEN_KEYS & set(given):
        repairs.append(
            Mend(
                code=Code.DELEGATION_TOKEN_KEY_MISSING,
                znode=tree.tokens,
                problem="delegation tokens exist and the controllers have no delegation.token.secret.key",
                command=(
                    "give the controllers the brokers' delegation.token.secret.key "
                    "(here: --set delegation.token.secret.key=…)"
                ),
            )
        )
    return repairs


def _note(tree: _Tree, path: str, data: bytes | None) -> None:
    parts = path.split("/")[1:]
    match parts:
        case ["brokers", "ids", identity] if identity.isdecimal():
            tree.brokers.add(int(identity))
        case ["brokers", "topics", topic]:
            tree.topics[topic] = _json(data) or {}
        case ["brokers", "topics", topic, "partitions", partition, "state"]:
            tree.states.add((topic, partition))
        case ["config", "topics", topic]:
            tree.topic_configs.add(topic)
        case ["admin", "delete_topics", topic]:
            tree.deletions.add(topic)
        case ["delegation_token", "tokens", _] if tree.tokens is None:
            tree.tokens = path


def _of_znode(path: str, data: bytes | None, given: Collection[str]) -> Iterator[Mend]:
    match path.split("/")[1:]:
        case ["brokers", "ids", identity] if not _is_int(identity):
            yield _deletion(Code.BROKER_ID_INVALID, path, "the name is no broker id")
        case ["config", "brokers", name]:
            yield from _broker_config(path, name, data, given)
        case ["config", "topics", _] if _config(data) is None:
            yield _unreadable_config(path)
        case ["config", ("users" | "clients" | "ips") as folder, *names] if names:
            yield from _client_config(path, folder, names[::2], data)
        case ["kafka-acl", kind, _] | ["kafka-acl-extended", _, kind, _]:
            yield from _acls(path, kind, data)
        case ["delegation_token", "tokens", _] if not _json(data):
            yield _deletion(Code.ZNODE_UNDECODABLE, path, "the token has no content")
        case ["latest_producer_id_block"] if data and not _is_block(_json(data)):
            yield Mend(
                code=Code.ZNODE_UNDECODABLE,
                znode=path,
                problem="the block of producer ids has no block_start and block_end",
                command=f"restart the broker that is controller; it writes the block anew, or: {_delete(path)}",
            )
        case ["migration"]:
            yield from _migration(path, _json(data))
        case _:
            pass


def _migration(path: str, body: Mapping[str, Any] | None) -> Iterator[Mend]:
    command = f"if no KRaft controller of this cluster runs: {_delete(path)}"
    offset = (body or {}).get("kraft_metadata_offset")
    if not isinstance(offset, int):
        yield Mend(
            code=Code.MIGRATION_ZNODE_UNREADABLE,
            znode=path,
            problem="the content cannot be read: controllers hang (KAFKA-19480)",
            command=command,
        )
    elif offset > 0:
        yield Mend(
            code=Code.MIGRATION_ZNODE_STALE,
            znode=path,
            problem=(
                f"offset {offset} is of an earlier migration: "
                "controllers overwrite ZooKeeper with an empty image (KAFKA-17146)"
            ),
            command=command,
        )


def _broker_config(path: str, name: str, data: bytes | None, given: Collection[str]) -> Iterator[Mend]:
    if name != "<default>" and not _is_int(name):
        yield _deletion(Code.BROKER_CONFIG_NAME_INVALID, path, f"{name!r} is no broker id")
        return
    config = _config(data)
    if config is None:
        yield _unreadable_config(path)
        return
    encoded = sorted(key for key, value in config.items() if isinstance(value, str) and looks_encoded(value))
    if encoded and _ENCODER_SECRET not in given:
        yield Mend(
            code=Code.PASSWORD_ENCODER_SECRET_MISSING,
            znode=path,
            problem=(
                f"{', '.join(encoded)} is encrypted and the controllers have no password.encoder.secret: "
                "they copy the cipher text"
            ),
            command=(
                "give the controllers the brokers' password.encoder.secret (here: --set password.encoder.secret=…)"
            ),
        )


def _long_texts(path: str, data: bytes | None, given: Collection[str]) -> Iterator[Mend]:
    with suppress(MetadataError):  # another trap
        for text in long_texts(path, data, decrypted=_ENCODER_SECRET in given):
            yield Mend(
                code=Code.TEXT_TOO_LONG,
                znode=path,
                problem=f"{text.what} has {text.bytes} bytes, and KRaft takes at most {LONGEST_TEXT}",
                command=text.way_out,
            )


def _client_config(path: str, folder: str, names: list[str], data: bytes | None) -> Iterator[Mend]:
    for name in names:
        if not _is_url_encoded(name):
            yield _deletion(Code.ENTITY_NAME_INVALID, path, f"{name!r} is no URL encoding")
            return
    if not data:
        return
    config = _config(data)
    if config is None:
        yield _unreadable_config(path)
        return
    problems: dict[Code, dict[str, str]] = {}
    for key, value in config.items():
        quota_problem = _quota_problem(folder, len(names), key, value)
        if quota_problem is not None:
            code, problem = quota_problem
            problems.setdefault(code, {})[key] = problem
    for code, wrong in problems.items():
        yield Mend(
            code=code,
            znode=path,
            problem="; ".join(f"{key} {problem}" for key, problem in wrong.items()),
            command=_without(path, wrong),
        )


def _quota_problem(folder: str, depth: int, key: str, value: object) -> tuple[Code, str] | None:
    if key.startswith(_SCRAM_PREFIX) and folder == "users" and depth == 1:
        fields = dict(part.partition("=")[::2] for part in str(value).split(","))
        if fields.keys() >= _SCRAM_FIELDS:
            return None
        return Code.ZNODE_UNDECODABLE, "is an incomplete SCRAM credential"
    expected = QUOTAS[folder].get(key)
    if expected is None:
        return Code.QUOTA_UNKNOWN, f"is no quota of {folder}"
    if not is_limit(str(value), expected):
        return Code.QUOTA_INVALID, f"is not {expected}"
    return None


def _acls(path: str, kind: str, data: bytes | None) -> Iterator[Mend]:
    if kind not in RESOURCE_TYPES:
        problem = f"resource type {kind} is unknown to Kafka 3.9: not copied, left in ZooKeeper"
        yield _deletion(Code.ACL_RESOURCE_TYPE_UNKNOWN, path, problem)
        return
    body = _json(data) or {}
    entries = body.get("acls")
    if not isinstance(entries, list):
        yield _deletion(Code.ZNODE_UNDECODABLE, path, "no list of ACLs")
        return
    problems = [_acl_problem(entry) for entry in entries]
    sound = [entry for entry, problem_of_entry in zip(entries, problems, strict=True) if problem_of_entry is None]
    command = _set(path, body | {"acls": sound}) if sound else _delete(path)
    for code, problem in dict.fromkeys(filter(None, problems)):
        yield Mend(code=code, znode=path, problem=problem, command=command)


def _acl_problem(entry: object) -> tuple[Code, str] | None:
    if not isinstance(entry, dict):
        return Code.ZNODE_UNDECODABLE, "an ACL is no JSON object"
    if ":" not in str(entry.get("principal", "")):
        return Code.ACL_PRINCIPAL_INVALID, "an ACL's principal has no type, as in User:name"
    operation = str(entry.get("operation"))
    permission = str(entry.get("permissionType"))
    if operation in OPERATIONS and permission in PERMISSIONS:
        return None
    return Code.ACL_UNKNOWN, "an ACL has an operation or permission that Kafka 3.9 does not know"


def _of_topics(tree: _Tree) -> Iterator[Mend]:
    owners: dict[str, str] = {}
    for topic, body in sorted(tree.topics.items()):
        path = f"/brokers/topics/{topic}"
        identity = body.get("topic_id")
        if not isinstance(identity, str):
            yield Mend(
                code=Code.TOPIC_WITHOUT_ID,
                znode=path,
                problem="the topic has no id (KIP-516)",
                command=(
                    "set inter.broker.protocol.version to 2.8 or later on all brokers; the controller then assigns ids"
                ),
            )
        elif identity in owners:
            yield Mend(
                code=Code.TOPIC_ID_DUPLICATE,
                znode=path,
                problem=f"topic {owners[identity]} has the same id",
                command=(
                    shell_command('kafka-topics.sh --bootstrap-server "$BROKERS" --delete --topic={topic}', topic=topic)
                    + ", and make it anew from a copy of its data"
                ),
            )
        else:
            owners[identity] = topic
        yield from _of_partitions(tree, topic, path, body)
    for topic in sorted(tree.topic_configs - tree.topics.keys()):
        yield _deletion(Code.STALE_TOPIC_CONFIG, f"/config/topics/{topic}", "configs of a topic that does not exist")
    for topic in sorted(tree.deletions):
        path = f"/admin/delete_topics/{topic}"
        yield Mend(
            code=Code.TOPIC_DELETION_PENDING,
            znode=path,
            problem="the deletion has not finished (KAFKA-15605): the topic is not copied and its data stays on disk",
            command=f"start the brokers that hold its replicas; to keep the topic: {_delete(path)}",
        )


def _of_partitions(tree: _Tree, topic: str, path: str, body: Mapping[str, Any]) -> Iterator[Mend]:
    partitions = body.get("partitions")
    if not isinstance(partitions, dict):
        yield _deletion(Code.ZNODE_UNDECODABLE, path, "no assignment of partitions")
        return
    for partition, replicas in partitions.items():
        state = f"{path}/partitions/{partition}/state"
        if (topic, partition) not in tree.states:
            yield Mend(
                code=Code.PARTITION_WITHOUT_STATE,
                znode=state,
                problem="the state is missing: the copy declares every replica in sync",
                command=f"{_delete('/controller')} (elects a new controller, which writes the state)",
            )
        unknown = sorted(set(replicas) - tree.brokers) if isinstance(replicas, list) else []
        if unknown:
            yield Mend(
                code=Code.REPLICA_ON_UNKNOWN_BROKER,
                znode=path,
                problem=f"partition {partition} has replicas on brokers {unknown}, which are not registered",
                command=(
                    "start these brokers, or kafka-reassign-partitions.sh --execute with an assignment without them"
                ),
            )


def _deletion(code: Code, path: str, problem: str) -> Mend:
    """Return a trap that the deletion of the znode repairs."""
    return Mend(code=code, znode=path, problem=problem, command=_delete(path))


def _unreadable_config(path: str) -> Mend:
    return Mend(
        code=Code.ZNODE_UNDECODABLE,
        znode=path,
        problem="no JSON object with a config: Kafka takes it as no config",
        command=_set(path, {"version": 1, "config": {}}),
    )


def _json(data: bytes | None) -> dict[str, Any] | None:
    try:
        body = parsed_json(data or b"")
    except ValueError:
        return None
    return body if isinstance(body, dict) else None


def _config(data: bytes | None) -> dict[str, Any] | None:
    """Return the configs in a znode; None if Kafka does not write such data there."""
    config = (_json(data) or {}).get("config")
    return config if isinstance(config, dict) else None


def _is_int(text: str) -> bool:
    return text.isdecimal() and int(text) < 2**31


_HEXADECIMAL: Final = re.compile("[0-9a-fA-F]{2}")


def _is_url_encoded(name: str) -> bool:
    """Return whether ``java.net.URLDecoder`` accepts the name."""
    try:
        unquote(name, errors="strict")
    except UnicodeDecodeError:
        return False
    rest = name.split("%")[1:]
    return all(_HEXADECIMAL.fullmatch(part[:2]) for part in rest)


def _is_block(body: Mapping[str, Any] | None) -> bool:
    return all(str((body or {}).get(name, "")).isdecimal() for name in ("block_start", "block_end"))


def _delete(path: str) -> str:
    return shell_command('zookeeper-shell.sh "$ZOOKEEPER" delete {path}', path=path)


def _without(path: str, keys: Iterable[str]) -> str:
    """Return the command that removes keys from a config; it does not show the other values."""
    deletions = " | ".join(f"del(.config[{json.dumps(key)}])" for key in keys)
    read = 'zookeeper-shell.sh "$ZOOKEEPER" get {path} | tail -n 1 | jq -c {deletions}'
    write = 'zookeeper-shell.sh "$ZOOKEEPER" set {path}'
    return shell_command(f'{write} "$({read})"', path=path, deletions=deletions)


def _set(path: str, body: Mapping[str, Any]) -> str:
    text = json.dumps(body, separators=(",", ":"))
    return shell_command('zookeeper-shell.sh "$ZOOKEEPER" set {path} {text}', path=path, text=text)
