"""Compares the tree from before the sync with the log at the end of Kafka's copy, to find the losses of the takeover."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from kraftbridge.metadata.copying import NOT_COPIED
from kraftbridge.models.catalogue import Code
from kraftbridge.models.report import Finding
from kraftbridge.verification.compare.mirror import is_unreadable
from kraftbridge.verification.compare.places import MAXIMUM_FLAGGED, compare
from kraftbridge.verification.run import Run, difference_of_flagged
from kraftbridge.verification.sources.rows import LOG, ZOOKEEPER, Leg

BEFORE_CLAIM: Final = (
    "the tree was read before a KRaft controller claimed /controller, so what differs may have changed in between; "
    "compare each difference by hand, or roll back and take over again with `watch` running"
)
AFTER_SYNC: Final = (
    "the tree was read when /migration already named offset {offset}: the sync may have deleted what the log lacks; "
    "compare with a tree that was read before the takeover"
)


def compare_copy(run: Run, rows: DataFrame) -> None:
    """Compare the tree with the log, and list separately the znodes that changed after the claim."""
    copied = rows.where(~F.col("kind").isin([str(kind) for kind in NOT_COPIED]))
    comparison = compare(copied, Leg.MIRROR, [ZOOKEEPER, LOG], few=run.few)
    run.count(comparison, {ZOOKEEPER: "zookeeper", LOG: "log"})
    claim = run.outcome.claim
    empty = [place for place in comparison.places if not comparison.rows_in(place)]
    run.outcome.nothing_to_compare = empty == list(comparison.places) and claim.get("whole", False)
    if not run.outcome.nothing_to_compare:
        run.outcome.problems += [f"{place} holds no metadata at all: there is nothing to compare" for place in empty]
    if claim.get("mirrored", -1) > 0:
        run.outcome.problems.append(AFTER_SYNC.format(offset=claim["mirrored"]))
    if comparison.beyond:
        run.outcome.add_uncounted(comparison.beyond, f"more than {MAXIMUM_FLAGGED} entities differ")
    flagged = [entity for entity in comparison.flagged if not is_unreadable(run, entity)]
    if claim.get("zxid") is None:
        if flagged:
            run.outcome.problems.append(BEFORE_CLAIM)
        run.outcome.unresolved += [f"{entity.kind} {entity.key}" for entity in flagged]
        return
    changed = set(claim["changed"])
    for path in sorted(changed):
        run.outcome.add_finding(Finding.of(Code.CHANGED_AFTER_CLAIM, path))
    for entity in flagged:
        run.outcome.add_difference(difference_of_flagged(entity, [ZOOKEEPER, LOG]))
