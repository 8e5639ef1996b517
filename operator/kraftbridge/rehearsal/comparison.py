"""The tree from before against the log at the end of the copy: what Kafka lost or changed.

The same entities and the same equality as the Spark job's, in one process and without a session: a rehearsal's tree fits into memory.
"""

from __future__ import annotations

import json
import secrets as random_bytes
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kraftbridge.metadata.entities import Entity, Form, Secrets, canonical_json
from kraftbridge.metadata.errors import MetadataError
from kraftbridge.metadata.log.batches import BatchScan
from kraftbridge.metadata.log.block_replay import decoded_record
from kraftbridge.metadata.log.definitions import record_definitions, unsigned_varint
from kraftbridge.metadata.log.entities import log_entities
from kraftbridge.metadata.log.files import LocalLogFiles, listing
from kraftbridge.metadata.log.replay import LogReplay
from kraftbridge.metadata.zookeeper.dump import read_dump
from kraftbridge.metadata.zookeeper.tree import DumpReading
from kraftbridge.models.entities import EntityKind
from kraftbridge.models.report import Difference
from kraftbridge.verification.compare.places import Copy
from kraftbridge.verification.run import difference
from kraftbridge.verification.sources.rows import LOG, ZOOKEEPER

_BEGIN: Final = "BeginTransactionRecord"
_END: Final = "EndTransactionRecord"
_ABORT: Final = "AbortTransactionRecord"
COPY_TRANSACTION: Final = "ZK Migration"
"""Name of the copy's transaction (``QuorumController.MigrationRecordConsumer``)."""
_NOT_COPIED: Final = frozenset({EntityKind.BROKER_REGISTRATION})
"""Brokers register themselves; here they were registered in their place."""


@dataclass(slots=True)
class TreeComparison:
    """What came of comparing.

    Attributes
    ----------
    copy_end_offset
        Offset of the copy's `EndTransactionRecord`; None: the log holds no finished copy.
    compared
        Entities that one side or both hold.
    unreadable
        Znodes that this library cannot understand, by path: what Kafka made of them is not compared.
    """

    copy_end_offset: int | None = None
    compared: int = 0
    differences: list[Difference] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)


def compare_copy(dump: Path, chroot: str, log_directory: Path, encoder_secret: str | None) -> TreeComparison:
    """Compare a dump with the log that a copy of it has left.

    Parameters
    ----------
    encoder_secret
        The controllers' `password.encoder.secret`; without it encrypted configs are compared by length.

    Raises
    ------
    MetadataError
        The dump or the log cannot be read.
    """
    result = TreeComparison()
    files = LocalLogFiles(log_directory)
    result.copy_end_offset = copy_end_offset(files)
    if result.copy_end_offset is None:
        return result
    secrets = Secrets(random_bytes.token_bytes(32), compare_passwords=encoder_secret is not None)
    reading = DumpReading(secrets, encoder_secret)
    reading.take(read_dump(dump, chroot))
    expected: dict[tuple[EntityKind, str], str] = {}
    for entity in _before(reading):
        expected[entity.kind, entity.key] = entity.value
    result.unreadable = {path: text for path, text in reading.problems.items() if path != "/migration"}
    image = LogReplay(files).advance(result.copy_end_offset)
    result.compared = len(expected)
    for entity in log_entities(image, Form.MIRRORED, secrets):
        if entity.kind in _NOT_COPIED:
            continue
        value = expected.pop((entity.kind, entity.key), None)
        result.compared += value is None
        if value != entity.value:
            result.differences.append(_difference(entity.kind, entity.key, value, entity.value))
    result.differences += [_difference(kind, key, value, None) for (kind, key), value in expected.items()]
    result.differences.sort(key=lambda each: (each.kind, each.key))
    return result


def _before(reading: DumpReading) -> Iterator[Entity]:
    for entity in reading.entities():
        if entity.kind in _NOT_COPIED:
            continue
        if entity.kind is EntityKind.PRODUCER_IDS:
            yield _next_producer_ids(reading, entity)
        else:
            yield entity


def _next_producer_ids(reading: DumpReading, entity: Entity) -> Entity:
    """Return the block as the copy takes it: always `block_end` + 1, whoever wrote it (``ZkMigrationClient.migrateProducerId``)."""
    block = json.loads(reading.nodes()["/latest_producer_id_block"] or b"{}")
    return entity._replace(value=canonical_json({"nextProducerId": int(block["block_end"]) + 1}))


def _difference(kind: EntityKind, key: str, zookeeper: str | None, log: str | None) -> Difference:
    copies = {
        ZOOKEEPER: Copy(int(zookeeper is not None), zookeeper, None),
        LOG: Copy(int(log is not None), log, None),
    }
    return difference(kind, key, copies)


def copy_end_offset(files: LocalLogFiles) -> int | None:
    """Return the offset of the last finished copy's `EndTransactionRecord` (KIP-868); None where no copy has finished.

    Raises
    ------
    MetadataError
        The log cannot be read.
    """
    keys = {key: each.name for key, each in record_definitions().items() if each.name in {_BEGIN, _END, _ABORT}}
    end: int | None = None
    copying = False
    for segment in listing(files).segments:
        for batch in BatchScan(files.read(segment.name, 0, segment.size_bytes), segment.name):
            if batch.is_control:
                continue
            for offset, _, value in batch.records():
                name = keys.get(_api_key(value))
                if name == _BEGIN:
                    copying = decoded_record(value, offset)[1]["name"] == COPY_TRANSACTION
                elif name is not None and copying:
                    copying = False
                    end = offset if name == _END else end
    return end


def _api_key(value: bytes | None) -> int:
    if not value:
        return -1
    _, position = unsigned_varint(value, 0)
    return unsigned_varint(value, position)[0]


def changed_paths(before: Path, chroot: str, after: Path) -> tuple[list[str], list[str], list[str]]:
    """Return which znodes with data, or without children, are gone, new or changed in a later dump of the scratch tree (without chroot).

    Raises
    ------
    MetadataError
        A dump cannot be read.
    """
    old = {znode.path: hash(znode.data) for znode in read_dump(before, chroot) if znode.data or not znode.children}
    gone, new, changed = set(old), [], []
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
    return path in _OWN_PATHS or path.startswith(_OWN_FOLDERS)


_OWN_PATHS: Final = frozenset({"/", "/controller", "/controller_epoch", "/migration", "/feature"})
_OWN_FOLDERS: Final = ("/zookeeper", "/brokers/ids/", "/config/changes", "/brokers/seqid", "/isr_change_notification", "/kafka-acl-changes", "/kafka-acl-extended-changes")  # fmt: skip
"""What a controller writes for itself, and the registrations, which were disarmed."""

__all__ = ["MetadataError", "TreeComparison", "changed_paths", "compare_copy", "copy_end_offset"]
