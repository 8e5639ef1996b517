"""Reads the tree from time to time before Kafka copies it, and again when a KRaft controller claims `/controller`.

The copy's end is written into `/migration` before the sync begins (``KRaftMigrationDriver.MigrateMetadataEvent``),
so a reading after which `/migration` still names no offset has seen nothing of the sync,
which deletes from ZooKeeper whatever the log lacks.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kraftbridge.exceptions import ZooKeeperUnavailableError
from kraftbridge.metadata.copying import is_krafts
from kraftbridge.metadata.entities import read_key
from kraftbridge.metadata.zookeeper.reader import (
    Data,
    Operation,
    Read,
    ZooKeeperReader,
    split_connect,
    write_dump,
    znode,
)
from kraftbridge.metadata.zookeeper.znodes import MIGRATION_PATH, Znode
from kraftbridge.models.report import VerificationRequest, ZooKeeperAccess
from kraftbridge.verification.configmap import NotWantedError, RunConfigMap
from kraftbridge.verification.inputs import BadInputError

logger = logging.getLogger(__name__)

_CONTROLLER: Final = "/controller"
_PAUSE_SECONDS: Final = 0.05
_PAUSE_AFTER_LOSS_SECONDS: Final = 1.0
_LEAST_PAUSE_BETWEEN_READINGS_SECONDS: Final = 10.0
_READING_SHARE: Final = 20
"""Reading takes at most a twentieth of the time until the claim."""


@dataclass(frozen=True, slots=True)
class Watched:
    """Result of a watch."""

    claimed: bool
    """Whether a KRaft controller claimed `/controller` before the deadline."""
    complete: bool
    """Whether the file is a reading between the claim and the sync. Otherwise it is the last one before the claim."""
    znodes: int
    """Number of znodes in the file."""


def watch(
    access: ZooKeeperAccess,
    output: Path,
    chroot: str,
    *,
    key: bytes | None,
    deadline_seconds: float,
    resume: bool = False,
    on_watching: Callable[[], None] | None = None,
) -> Watched:
    """Write a dump of the tree from time to time, and in its place another one once a KRaft controller has claimed it.

    Parameters
    ----------
    key
        Replace secrets by hashes with this key; None keeps them.
    deadline_seconds
        How long to wait for the claim.
    resume
        A KRaft controller may be in charge already: then ``output`` may hold what an earlier watch has read,
        and is replaced only by a reading from before the sync.
    on_watching
        Called once, when ``output`` holds the tree from before the takeover or there is nothing left to wait for.

    Raises
    ------
    ZooKeeperUnavailableError
        ZooKeeper could not be read, or, without ``resume``, a KRaft controller is in charge already.
    """
    deadline = time.monotonic() + deadline_seconds
    count = 0
    with ZooKeeperReader(access) as reader:
        reader.synchronize()
        claimed = _is_claimed(reader)
        if claimed and not resume:
            raise ZooKeeperUnavailableError(
                "a KRaft controller has claimed /controller already: "
                "the tree from before the takeover cannot be read any more"
            )
        next_reading = 0.0
        announced = False
        announce = on_watching or _nobody_waits
        while not claimed:
            now = time.monotonic()
            if now > deadline:
                return Watched(claimed=False, complete=False, znodes=count)
            if now >= next_reading:
                count = _keep(_walk_unclaimed(reader), output, chroot, key=key)
                took = time.monotonic() - now
                next_reading = time.monotonic() + max(_LEAST_PAUSE_BETWEEN_READINGS_SECONDS, _READING_SHARE * took)
            if not announced:
                logger.info("%d znodes in %s, read before the takeover; waiting for the claim", count, output)
                announce()
                announced = True
            time.sleep(_PAUSE_SECONDS)
            claimed = _is_claimed(reader)
        later = output.with_name(f"claimed-{output.name}")
        claimed_count, _ = write_dump(_walk(reader), later, chroot, key=key)
        (fenced,) = reader.read([Read(Operation.DATA, _CONTROLLER)])
        complete = fenced.offset <= 0
        if complete:
            later.replace(output)
            count = claimed_count
        else:
            later.unlink()
        if not announced:
            announce()
        return Watched(claimed=True, complete=complete, znodes=count)


def _nobody_waits() -> None:
    pass


def keep_tree(config_map: RunConfigMap, request: VerificationRequest) -> Path:
    """Keep the tree from before the sync in the request's file, and return the file once ZooKeeper is claimed.

    The file holds secrets as hashes, with the key in the file that the request names.
    The run is announced when the tree from before the takeover is kept.
    The watch starts again after its session is lost.

    Raises
    ------
    BadInputError
        The request names no ZooKeeper or no file.
    NotWantedError
        No KRaft controller claimed ZooKeeper before the armed deadline.
    """
    if request.zookeeper is None or request.tree_path is None:
        raise BadInputError("profile copy needs `zookeeper` and `treePath`")
    if request.tree_key_path is None:
        raise BadInputError("profile copy needs `treeKeyPath`")
    key = read_key(request.tree_key_path)
    tree = Path(request.tree_path)
    chroot = split_connect(request.zookeeper.connect)[1]
    until = time.monotonic() + request.armed_deadline_seconds
    announced = False

    def announce() -> None:
        nonlocal announced
        if not announced:
            config_map.announce(request.run_id)
            announced = True

    while (left := until - time.monotonic()) > 0:
        try:
            watched = watch(
                request.zookeeper, tree, chroot, key=key, deadline_seconds=left, resume=True, on_watching=announce
            )
        except ZooKeeperUnavailableError as error:
            logger.warning("the watch of the tree begins anew: %s", error)
            time.sleep(_PAUSE_AFTER_LOSS_SECONDS)
            continue
        if watched.claimed:
            when = "while Kafka copied it" if watched.complete else "before the claim, or not at all"
            logger.info("the tree in %s was read %s", tree, when)
            return tree
    raise NotWantedError(f"no KRaft controller claimed ZooKeeper within {request.armed_deadline_seconds:g} s")


def _keep(znodes: Iterator[Znode], output: Path, chroot: str, *, key: bytes | None) -> int:
    """Replace the dump at once, so that it is whole whenever the process ends."""
    fresh = output.with_name(f"unclaimed-{output.name}")
    count, _ = write_dump(znodes, fresh, chroot, key=key)
    fresh.replace(output)
    return count


def _is_claimed(reader: ZooKeeperReader) -> bool:
    (fenced,) = reader.read([Read(Operation.DATA, _CONTROLLER)])
    (result,) = fenced.answers
    return isinstance(result, Data) and is_krafts(_CONTROLLER, result.data)


def _walk_unclaimed(reader: ZooKeeperReader) -> Iterator[Znode]:
    """Yield every znode but `/controller`: a claim during a reading must not make it one from after the claim."""
    return (znode for znode in _walk(reader) if znode.path != _CONTROLLER)


def _walk(reader: ZooKeeperReader) -> Iterator[Znode]:
    """Yield every znode. `/migration` comes last, with its value after all others were read."""
    yield from (znode for znode in reader.walk() if znode.path != MIGRATION_PATH)
    (fenced,) = reader.read([Read(Operation.DATA, MIGRATION_PATH)])
    (result,) = fenced.answers
    if isinstance(result, Data):
        yield znode(MIGRATION_PATH, result)
