"""Kafka's copy of ZooKeeper into the metadata log (KIP-866): what it copies, where it ends, and when it began.

Until the copy ends, the tree contains what Kafka copies.
After that, the sync deletes from ZooKeeper everything that the log does not contain.
A loss of the copy is therefore visible only in a tree that was read before the sync.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from kraftbridge.metadata.entities import Entity, canonical_json
from kraftbridge.metadata.log.files import LogFiles
from kraftbridge.metadata.log.replay import records_of
from kraftbridge.metadata.zookeeper.tree import DumpReading
from kraftbridge.metadata.zookeeper.znodes import MAXIMUM_INT32, MIGRATION_PATH, ZOOKEEPERS_OWN, Znode, is_below
from kraftbridge.models.entities import EntityKind
from kraftbridge.outside.json_text import parsed_json

COPY_TRANSACTION: Final = "ZK Migration"
"""Name of the copy's transaction (``QuorumController.MigrationRecordConsumer``)."""
NOT_COPIED: Final = frozenset({EntityKind.BROKER_REGISTRATION})
"""Brokers register themselves. The copy ignores `/brokers/ids`."""
NOTHING_TO_COMPARE: Final = (
    "there was nothing to compare: "
    "ZooKeeper, which was read completely, holds no entity that Kafka copies, and neither does the log"
)
_BEGIN: Final = "BeginTransactionRecord"
_END: Final = "EndTransactionRecord"
_ABORT: Final = "AbortTransactionRecord"
_CONTROLLER: Final = "/controller"
_OF_THE_CONTROLLERS: Final = (_CONTROLLER, "/controller_epoch", MIGRATION_PATH, ZOOKEEPERS_OWN)
"""Folders that change after a claim without a change of what is copied."""
_PRODUCER_IDS: Final = "/latest_producer_id_block"
_MAXIMUM_CHANGED: Final = 10_000


@dataclass(frozen=True, slots=True)
class CopySpan:
    """Offsets of a finished copy's `BeginTransactionRecord` and `EndTransactionRecord` (KIP-868)."""

    begin: int
    end: int


def copy_span(files: LogFiles) -> CopySpan | None:
    """Return where the last finished copy is in the log; None if no copy has finished.

    Raises
    ------
    MetadataError
        The log cannot be read.
    """
    finished: CopySpan | None = None
    begin: int | None = None
    for offset, name, fields in records_of(files, {_BEGIN, _END, _ABORT}):
        if name == _END and begin is not None:
            finished = CopySpan(begin, offset)
        begin = offset if name == _BEGIN and fields["name"] == COPY_TRANSACTION else None
    return finished


def copied_entities(reading: DumpReading) -> Iterator[Entity]:
    """Yield the entities that the copy takes from a tree that was read before its end, in the form of the log."""
    for entity in reading.entities():
        if entity.kind is EntityKind.PRODUCER_IDS:
            yield _next_producer_ids(reading, entity)
        elif entity.kind not in NOT_COPIED:
            yield entity


def _next_producer_ids(reading: DumpReading, entity: Entity) -> Entity:
    """Return the next producer id that the copy writes: `block_end` + 1 (``ZkMigrationClient.migrateProducerId``)."""
    block = parsed_json(reading.nodes()[_PRODUCER_IDS] or b"{}")
    return entity._replace(value=canonical_json({"nextProducerId": int(block["block_end"]) + 1}))


def is_krafts(path: str, data: bytes | None) -> bool:
    """Return whether a znode is `/controller` as a KRaft controller has claimed it (``ControllerZNode``, KIP-866)."""
    if path != _CONTROLLER:
        return False
    try:
        epoch = parsed_json(data or b"{}").get("kraftControllerEpoch")
    except (ValueError, AttributeError):
        return False
    return type(epoch) is int and 0 <= epoch <= MAXIMUM_INT32


@dataclass(slots=True)
class Claim:
    """Detects whether a tree was read after a KRaft controller's claim, and collects the changes between the two."""

    zxid: int | None = None
    """ZooKeeper's transaction id of the claim. None if the tree was read before the claim."""
    _later: dict[str, int] = field(default_factory=dict)

    def watch(self, znodes: Iterable[Znode]) -> Iterator[Znode]:
        """Yield znodes unchanged and record their transaction ids."""
        for znode in znodes:
            if is_krafts(znode.path, znode.data):
                self.zxid = znode.modified_zxid
            elif not is_below(znode.path, *_OF_THE_CONTROLLERS):
                self._later[znode.path] = znode.modified_zxid
            yield znode

    def changed(self) -> list[str]:
        """Return the znodes that changed after the claim, by `mzxid`; at most 10,000."""
        if self.zxid is None:
            return []
        later = [path for path, zxid in self._later.items() if zxid > self.zxid]
        return sorted(later)[:_MAXIMUM_CHANGED]
