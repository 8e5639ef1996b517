"""The comparison of ZooKeeper with the log that it mirrors, and how entities in flight are settled."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame

from kraftbridge.metadata.entities import Secrets, topic_of_partition_key
from kraftbridge.metadata.errors import MetadataError
from kraftbridge.metadata.log.files import open_log_files
from kraftbridge.metadata.log.replay import LogReplay
from kraftbridge.metadata.zookeeper.entities import MIGRATION_PATH
from kraftbridge.metadata.zookeeper.multi_read import Operation, Read
from kraftbridge.metadata.zookeeper.plan import znode_path
from kraftbridge.metadata.zookeeper.reader import ZooKeeperReader
from kraftbridge.models.report import EntityKind, ZooKeeperAccess
from kraftbridge.verification.compare.differences import difference_of_flagged, difference_of_pair
from kraftbridge.verification.compare.places import MAXIMUM_FLAGGED, Flagged, compare, with_values
from kraftbridge.verification.compare.recheck import Identity, Recheck, Rechecked
from kraftbridge.verification.run import Run
from kraftbridge.verification.sources.rows import LOG, LOG_AT_FENCE, ZOOKEEPER, Leg

_MAXIMUM_CONFIRMED: Final = 2_000
"""Differences that are read once more before they are called that; more are believed at once."""
_STALL_SECONDS: Final = 4.0
"""A live mirror moves `/migration` every 500 ms (`metadata.max.idle.interval.ms`)."""


def check_fence(run: Run) -> None:
    """Make sure that the log ZooKeeper mirrors is this log."""
    note, first, last = run.outcome.leader_note, run.fence.first_offset, run.fence.last_offset
    assert first is not None and last is not None  # noqa: PT018 - checked in `_read_logs`
    if note["endOffset"] <= last:
        raise MetadataError(f"ZooKeeper mirrors offset {last}, the leader's log ends before it at {note['endOffset']}")
    epoch = note.get("epochAtFence")
    if epoch is not None and run.fence.epoch is not None and epoch > run.fence.epoch:
        raise MetadataError(
            f"/migration says epoch {run.fence.epoch} for offset {first}, the log has epoch {epoch}: another log"
        )
    behind = [state for state in run.inputs.states if state.end_offset is not None and state.end_offset <= first]
    if behind:
        names = ", ".join(f"{state.name} (ends at {state.end_offset})" for state in behind)
        raise MetadataError(f"voters have not reached offset {first}, which ZooKeeper mirrors: {names}")


def compare_mirror(run: Run, rows: DataFrame) -> None:
    """Compare ZooKeeper with the log, and settle what differs."""
    if run.inputs.live:
        comparison = compare(rows, Leg.MIRROR, [ZOOKEEPER, LOG], few=run.few, values=False)
    else:
        comparison = compare(rows, Leg.MIRROR, [ZOOKEEPER, LOG_AT_FENCE], beside=[LOG], few=run.few)
    log_place = comparison.places[1]
    run.count(comparison, {ZOOKEEPER: "zookeeper", log_place: "log"})
    for place in comparison.places:
        if not comparison.rows_in(place):
            run.outcome.problems.append(f"{place} holds no metadata at all: there is nothing to compare")
    if run.outcome.problems:
        return
    flagged = [entity for entity in comparison.flagged if not _is_unreadable(run, entity)]
    beyond = sum(comparison.flagged_counts.values()) - len(comparison.flagged)
    if beyond:
        run.outcome.add_uncounted(beyond, f"more than {MAXIMUM_FLAGGED} entities differ")
    if run.inputs.live:
        _settle_live(run, flagged, rows)
    else:
        _settle_offline(run, flagged)


def _is_unreadable(run: Run, flagged: Flagged) -> bool:
    """Return whether the entity is in a znode that could not be understood: unknown, not different."""
    if not run.outcome.unreadable:
        return False
    if flagged.kind in {EntityKind.TOPIC, EntityKind.PARTITION}:
        topic = flagged.key if flagged.kind is EntityKind.TOPIC else topic_of_partition_key(flagged.key)
        paths = [f"/brokers/topics/{topic}"]
        if flagged.kind is EntityKind.PARTITION:
            paths.append(f"/brokers/topics/{topic}/partitions/{flagged.key.rpartition('-')[2]}/state")
    else:
        paths = [znode_path(flagged.kind, flagged.key)]
    return any(path in run.outcome.unreadable for path in paths)


def _settle_offline(run: Run, flagged: Sequence[Flagged]) -> None:
    """Judge by one reading: a copy cannot be read again."""
    fence = run.fence.first_offset
    assert fence is not None
    for entity in flagged:
        zookeeper, log = entity.copies[ZOOKEEPER], entity.copies[LOG]
        touched = log.offset is not None and log.offset > fence
        if not entity.has_duplicate and touched:
            if (zookeeper.count, zookeeper.value) != (log.count, log.value):
                run.outcome.unresolved.append(f"{entity.kind} {entity.key}")
            continue
        run.outcome.add_difference(difference_of_flagged(_renamed(entity, LOG_AT_FENCE, LOG), [ZOOKEEPER, LOG]))


def _settle_live(run: Run, flagged: Sequence[Flagged], rows: DataFrame) -> None:
    duplicates = [entity for entity in flagged if entity.has_duplicate]
    candidates = [entity for entity in flagged if not entity.has_duplicate]
    fence = run.fence.first_offset
    assert fence is not None
    settled = [entity for entity in candidates if not _in_flight(entity, fence)]
    if len(settled) > _MAXIMUM_CONFIRMED:
        duplicates += settled[_MAXIMUM_CONFIRMED:]
        believed = {(entity.kind, entity.key) for entity in settled[_MAXIMUM_CONFIRMED:]}
        candidates = [entity for entity in candidates if (entity.kind, entity.key) not in believed]
    for entity in with_values(rows, Leg.MIRROR, duplicates):
        run.outcome.add_difference(difference_of_flagged(entity, [ZOOKEEPER, LOG]))
    identities: list[Identity] = [(entity.kind, entity.key) for entity in candidates]
    with run.stage("settle in-flight"):
        outcome = _reread(run, identities)
    for (kind, key), pair in outcome.differing.items():
        run.outcome.add_difference(difference_of_pair(kind, key, pair))
    run.outcome.unresolved += [f"{kind} {key}" for kind, key in outcome.unresolved]
    run.outcome.unreadable |= outcome.problems
    run.fence = run.fence.model_copy(
        update={
            "rereads": outcome.rounds,
            "reread_keys": len(identities),
            "unresolved": len(outcome.unresolved),
            "last_offset": max(run.fence.last_offset or -1, outcome.last_fence),
        }
    )


def _reread(run: Run, identities: Sequence[Identity]) -> Rechecked:
    access = run.inputs.zookeeper
    assert isinstance(access, ZooKeeperAccess)
    secret_path = run.inputs.encoder_secret_path
    secret = Path(secret_path).read_text(encoding="utf-8").strip() if secret_path else None
    secrets = Secrets(run.salt, compare_passwords=secret is not None)
    with ZooKeeperReader(access) as reader:
        outcome = Rechecked()
        if identities:
            leader = next(voter for voter in run.inputs.voters if voter.mirrored)
            files = open_log_files(leader.url, run.inputs.token_path, run.inputs.ca_path)
            replay = LogReplay(files, start_at_most=run.fence.first_offset)
            outcome = Recheck(reader, replay, secrets, secret).settle(
                identities, tries=run.request.fence_tries, seconds=run.request.fence_seconds
            )
        _await_movement(run, reader, max(outcome.last_fence, run.fence.last_offset or -1))
    return outcome


def _await_movement(run: Run, reader: ZooKeeperReader, last: int) -> None:
    """Note a problem unless ZooKeeper mirrors the whole log or is seen to catch up."""
    first, end = run.fence.first_offset, run.outcome.leader_note["endOffset"]
    began = time.monotonic()
    while True:
        (fenced,) = reader.read([Read(Operation.DATA, MIGRATION_PATH)])
        if fenced.offset >= end - 1 or (first is not None and max(last, fenced.offset) > first):
            return
        waited = time.monotonic() - began
        if waited > _STALL_SECONDS:
            run.outcome.problems.append(
                f"dual-write stands still: /migration has stayed at offset {fenced.offset} while the log "
                f"reached {end}; the controller may be stuck in a sync (restart the active controller)"
            )
            return
        time.sleep(0.25)


def _in_flight(flagged: Flagged, fence: int) -> bool:
    zookeeper, log = flagged.copies[ZOOKEEPER], flagged.copies[LOG]
    mirrored = zookeeper.offset if zookeeper.offset is not None else fence
    return log.offset is not None and log.offset > mirrored


def _renamed(flagged: Flagged, place: str, name: str) -> Flagged:
    copies = {**flagged.copies, name: flagged.copies[place]}
    return Flagged(flagged.kind, flagged.key, copies)
