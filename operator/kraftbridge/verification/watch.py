"""Reads the tree while Kafka copies it: once before, and again when a KRaft controller claims `/controller`.

The copy's end is written into `/migration` before the sync begins (``KRaftMigrationDriver.MigrateMetadataEvent``), so a reading after which
`/migration` still names no offset has seen nothing of the sync, which deletes from ZooKeeper whatever the log lacks.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kraftbridge.metadata.copying import is_krafts
from kraftbridge.metadata.errors import ZooKeeperUnavailableError
from kraftbridge.metadata.zookeeper.dump import write_dump
from kraftbridge.metadata.zookeeper.reader import Data, Operation, Read, ZooKeeperReader, znode
from kraftbridge.metadata.zookeeper.znodes import MIGRATION_PATH, Znode
from kraftbridge.models.report import ZooKeeperAccess

logger = logging.getLogger(__name__)

_CONTROLLER: Final = "/controller"
_PAUSE_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Watched:
    """What a watch has seen.

    Attributes
    ----------
    claimed
        A KRaft controller claimed `/controller` in time.
    complete
        The tree that was read after the claim was read before the sync began; else the file holds the reading from before.
    znodes
        How many the file holds.
    """

    claimed: bool
    complete: bool
    znodes: int


def watch(access: ZooKeeperAccess, output: Path, chroot: str, *, redact: bool, deadline_seconds: float) -> Watched:
    """Write a dump of the tree now, and in its place another one as soon as a KRaft controller has claimed ZooKeeper.

    Raises
    ------
    ZooKeeperUnavailableError
        ZooKeeper could not be read, or a KRaft controller is in charge already.
    """
    deadline = time.monotonic() + deadline_seconds
    with ZooKeeperReader(access) as reader:
        reader.synchronize()
        if _is_claimed(reader):
            raise ZooKeeperUnavailableError(
                "a KRaft controller has claimed /controller already: the tree from before the takeover cannot be read any more"
            )
        count, _ = write_dump(_walk(reader), output, chroot, redact=redact)
        logger.info("%d znodes in %s, read before the takeover; waiting for the claim", count, output)
        while not _is_claimed(reader):
            if time.monotonic() > deadline:
                return Watched(claimed=False, complete=False, znodes=count)
            time.sleep(_PAUSE_SECONDS)
        later = output.with_name(f"claimed-{output.name}")
        claimed_count, _ = write_dump(_walk(reader), later, chroot, redact=redact)
        (fenced,) = reader.read([Read(Operation.DATA, _CONTROLLER)])
        if fenced.offset > 0:
            later.unlink()
            return Watched(claimed=True, complete=False, znodes=count)
        later.replace(output)
        return Watched(claimed=True, complete=True, znodes=claimed_count)


def _is_claimed(reader: ZooKeeperReader) -> bool:
    (fenced,) = reader.read([Read(Operation.DATA, _CONTROLLER)])
    result = fenced.results[0][1]
    return isinstance(result, Data) and is_krafts(_CONTROLLER, result.data)


def _walk(reader: ZooKeeperReader) -> Iterator[Znode]:
    """Yield every znode, `/migration` as it is when all others have been read."""
    yield from (each for each in reader.walk() if each.path != MIGRATION_PATH)
    (fenced,) = reader.read([Read(Operation.DATA, MIGRATION_PATH)])
    result = fenced.results[0][1]
    if isinstance(result, Data):
        yield znode(MIGRATION_PATH, result)
