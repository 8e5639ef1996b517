"""Compares the original tree with the log at the end of the copy, to find the entities that Kafka lost or changed.

Entities and equality are those of the Spark job, in one process and without a session,
because the tree of a rehearsal fits into memory.
"""

from __future__ import annotations

import secrets as random_bytes
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kraftbridge.exceptions import UndecodableZnodeError
from kraftbridge.metadata.copying import NOT_COPIED, copied_entities, copy_span
from kraftbridge.metadata.entities import Form, Secrets
from kraftbridge.metadata.log.entities import log_entities
from kraftbridge.metadata.log.files import LocalLogFiles
from kraftbridge.metadata.log.replay import LogReplay
from kraftbridge.metadata.zookeeper.reader import read_dump
from kraftbridge.metadata.zookeeper.tree import DumpReading
from kraftbridge.metadata.zookeeper.znodes import ZOOKEEPERS_OWN, is_below, mirrored_offset
from kraftbridge.models.entities import EntityKind
from kraftbridge.models.report import Difference
from kraftbridge.verification.compare.places import copy_of
from kraftbridge.verification.run import difference
from kraftbridge.verification.sources.rows import LOG, ZOOKEEPER


@dataclass(slots=True)
class TreeComparison:
    """The result of a comparison."""

    copy_end_offset: int | None = None
    """Offset of the copy's `EndTransactionRecord`. None if the log contains no finished copy."""
    compared: int = 0
    """Number of entities on either side."""
    differences: list[Difference] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)
    """Znodes that this library cannot decode, by path. Their copies are not compared."""
    whole: bool = False
    """The tree was read completely, so one without entities is that of an empty cluster."""


def compare_copy(dump: Path, chroot: str, log_directory: Path, encoder_secret: str | None) -> TreeComparison:
    """Compare a dump with the log of its copy.

    Parameters
    ----------
    encoder_secret
        The controllers' `password.encoder.secret`. Without it, encrypted configs are compared by length.

    Raises
    ------
    MetadataError
        The dump or the log cannot be read.
    """
    result = TreeComparison()
    files = LocalLogFiles(log_directory)
    copy = copy_span(files)
    if copy is None:
        return result
    result.copy_end_offset = copy.end
    secrets = Secrets(random_bytes.token_bytes(32), compare_passwords=encoder_secret is not None)
    reading = DumpReading(secrets, encoder_secret)
    reading.take(read_dump(dump, chroot))
    expected = {entity.identity: entity.value for entity in copied_entities(reading)}
    result.unreadable = {path: text for path, text in reading.problems.items() if path != "/migration"} | reading.unread
    result.whole = reading.is_whole
    image = LogReplay(files).advance(copy.end)
    result.compared = len(expected)
    for entity in log_entities(image, Form.MIRRORED, secrets):
        if entity.kind in NOT_COPIED:
            continue
        value = expected.pop(entity.identity, None)
        result.compared += value is None
        if value != entity.value:
            result.differences.append(_difference(entity.kind, entity.key, value, entity.value))
    result.differences += [_difference(kind, key, value, None) for (kind, key), value in expected.items()]
    result.differences.sort(key=lambda entity_difference: (entity_difference.kind, entity_difference.key))
    return result


def compare_mirror(after: Path, log_directory: Path, encoder_secret: str | None) -> list[Difference]:
    """Return where ZooKeeper after the sync differs from the log that it mirrors.

    The verification in dual-write makes the same comparison (profile ``dual-write``).

    Parameters
    ----------
    after
        Dump of the scratch ZooKeeper in dual-write (without chroot).

    Raises
    ------
    MetadataError
        The dump or the log cannot be read, or `/migration` names no offset.
    """
    secrets = Secrets(random_bytes.token_bytes(32), compare_passwords=encoder_secret is not None)
    reading = DumpReading(secrets, encoder_secret)
    reading.take(read_dump(after, ""))
    if reading.migration is None:
        raise UndecodableZnodeError("/migration is not readable after the sync")
    mirrored = {entity.identity: entity.value for entity in reading.entities()}
    image = LogReplay(LocalLogFiles(log_directory)).advance(mirrored_offset(reading.migration))
    differences = []
    for entity in log_entities(image, Form.MIRRORED, secrets):
        value = mirrored.pop(entity.identity, None)
        # A producer-id block of an earlier KRaft controller has two correct forms.
        correct = {value, reading.alternatives.get(entity.identity)}
        if entity.kind not in NOT_COPIED and entity.value not in correct:
            differences.append(_difference(entity.kind, entity.key, value, entity.value))
    for (kind, key), value in mirrored.items():
        if kind not in NOT_COPIED:
            differences.append(_difference(kind, key, value, None))
    return sorted(differences, key=lambda found: (found.kind, found.key))


def _difference(kind: EntityKind, key: str, zookeeper: str | None, log: str | None) -> Difference:
    return difference(kind, key, {ZOOKEEPER: copy_of(zookeeper), LOG: copy_of(log)})


def changed_paths(before: Path, chroot: str, after: Path) -> tuple[list[str], list[str], list[str]]:
    """Return the removed, added and changed znodes of a later dump of the scratch tree (without chroot).

    Empty folders are ignored.

    Raises
    ------
    MetadataError
        A dump cannot be read.
    """
    old = {znode.path: hash(znode.data) for znode in read_dump(before, chroot) if znode.data or not znode.children}
    gone = set(old)
    new = []
    changed = []
    for znode in read_dump(after, ""):
        gone.discard(znode.path)
        if not znode.data or _is_kafkas_own(znode.path):
            continue
        if znode.path not in old:
            new.append(znode.path)
        elif old[znode.path] != hash(znode.data):
            changed.append(znode.path)
    return sorted(path for path in gone if not _is_kafkas_own(path)), sorted(new), sorted(changed)


def _is_kafkas_own(path: str) -> bool:
    return path in _OWN_PATHS or is_below(path, *_OWN_FOLDERS)


_OWN_PATHS: Final = frozenset({"/", "/controller", "/controller_epoch", "/migration", "/feature"})
_OWN_FOLDERS: Final = (
    ZOOKEEPERS_OWN,
    "/brokers/ids",
    "/config/changes",
    "/brokers/seqid",
    "/isr_change_notification",
    "/kafka-acl-changes",
    "/kafka-acl-extended-changes",
)
"""Znodes that a controller writes for itself, and the registrations, which were disarmed."""
