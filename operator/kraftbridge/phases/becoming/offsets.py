"""Compares the offsets of a broker's partitions before and after its restart. Pure.

It notices what nobody has thought of: records that are gone, for whatever reason, also with one replica, where the
in-sync set always looks full.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from kraftbridge.models.broker_record import (
    BrokerNow,
    BrokerRecord,
    Difference,
    DifferenceKind,
    Effect,
    OffsetsNow,
    PartitionOffsets,
)
from kraftbridge.models.survey import Unobserved

RECORD_HOLDS_FOR: Final = timedelta(hours=1)
"""How long a record tells how far retention may go. After it a start that rose is explained by time."""


def unknown_offsets(now: BrokerNow) -> str:
    """Return why the offsets are not known; ``""`` if they are."""
    if isinstance(now.offsets, Unobserved):
        return str(now.offsets)
    silent = sorted((tp, why) for tp, why in now.offsets.items() if isinstance(why, str))
    if not silent:
        return ""
    (topic, partition), why = silent[0]
    more = f" and of {len(silent) - 1} more" if len(silent) > 1 else ""
    return f"the offsets of {topic}-{partition}{more}: {why}"


def differing_offsets(record: BrokerRecord, now: BrokerNow, at: datetime) -> Iterator[Difference]:
    """Yield each partition whose end fell, or whose start rose beyond what retention explains.

    A partition of a deleted topic has no offsets now and is no difference.
    """
    if isinstance(now.offsets, Unobserved):
        return
    old = at - record.taken_at > RECORD_HOLDS_FOR
    for topic, partition in sorted(record.offsets):
        before = record.offsets[topic, partition]
        after = now.offsets.get((topic, partition))
        if not isinstance(after, OffsetsNow):
            continue
        name = f"{topic}-{partition}"
        if after.end < before.end:
            yield Difference(DifferenceKind.LOG_END, Effect.DESTROYS, name, str(before.end), str(after.end))
        if not old and not _start_is_explained(before, after):
            start = max(after.start, after.own_start)
            yield Difference(DifferenceKind.LOG_START, Effect.DESTROYS, name, str(before.start), str(start))


def _start_is_explained(before: PartitionOffsets, after: OffsetsNow) -> bool:
    """Return whether retention, or another broker that leads, explains where the broker's log begins now.

    A follower's log begins where its leader's does, or before (``ReplicaFetcherThread`` takes over the leader's start).
    So what another leader has deleted, by retention or for a client, is not the restarted broker's doing.
    """
    if after.own_start <= max(before.start, before.limit):
        return True
    if after.own_start <= after.start and not after.leads:
        return True
    return before.retention_bytes >= 0 and after.own_bytes is not None and after.own_bytes >= before.retention_bytes
