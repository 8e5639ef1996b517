"""What Kafka's own controller makes of a tree with plants in it, and what the tree check says of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.odd_trees.page import End, Result
from tests.odd_trees.plants import Plant
from tests.odd_trees.tree import ENCODER_SECRET, sound_tree

from kraftbridge.exceptions import RehearsalError
from kraftbridge.models.rehearsal import Ending
from kraftbridge.rehearsal.rehearse import RehearsalOptions, rehearse

SETTINGS = {
    "password.encoder.secret": ENCODER_SECRET,
    "delegation.token.secret.key": "some-key",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
}
"""What the real controllers of such a cluster have."""
_TIMEOUT_SECONDS = 180.0
"""A busy machine takes long to start two JVMs; an end by this limit is no result."""
_SUSPECTS = 3


def kafkas(plants: Sequence[Plant], kafka_home: Path, work: Path) -> Iterator[Result]:
    """Run one tree with these plants through a real controller; take it apart until each plant's end is known.

    Differences belong to the plant whose marker is in their keys. Plants without a marker share a tree only if nothing at all is lost.
    """
    work.mkdir(parents=True, exist_ok=True)
    tree = sound_tree()
    for plant in plants:
        plant.apply(tree)
    dump = tree.write(work / "tree.jsonl.gz")

    def result(plant: Plant, end: End, detail: str, version: str = "") -> Result:
        return Result(plant.name, end, " ".join(detail.split())[:300], len(plants), version)

    try:
        found = rehearse(
            dump,
            RehearsalOptions(
                kafka_home, work / "scratch", "", SETTINGS, heap_bytes=512 << 20, timeout_seconds=_TIMEOUT_SECONDS
            ),
        )
    except RehearsalError as error:
        if len(plants) > 1:
            yield from _apart(plants, (), kafka_home, work)
        else:
            yield result(plants[0], End.NOT_REHEARSED, str(error))
        return
    version = found.kafka_version
    if found.ending is Ending.DUAL_WRITE:
        if len(plants) > 1 and any(plant.alone for plant in plants) and found.verdict != "Works":
            yield from _apart(plants, (), kafka_home, work)
            return
        for plant in plants:
            lost = [d for d in found.differences if plant.marker in d.key]
            unread = [p for p in found.problems if plant.marker in p]
            if plant.alone:
                lost, unread = found.differences, found.problems
            if lost:
                first = lost[0]
                text = f"{first.kind} {first.key} {first.state}: {', '.join(a.name for a in first.attributes)}"
                yield result(plant, End.LOSES, text, version)
            elif unread or (plant.alone and found.verdict != "Works"):
                yield result(plant, End.UNREADABLE, (unread or [found.reason])[0], version)
            else:
                yield result(plant, End.WORKS, "", version)
        named = {d.key for p in plants for d in found.differences if p.marker in d.key}
        if len(plants) > 1 and (strangers := {d.key for d in found.differences} - named):
            raise AssertionError(f"differences that belong to no plant: {sorted(strangers)[:5]}")
        return
    if len(plants) > 1:
        yield from _apart(plants, found.words, kafka_home, work)
        return
    ends = {Ending.DIES: End.DIES, Ending.STICKS: End.STICKS, Ending.NEVER_BEGINS: End.NEVER_BEGINS}
    if found.ending not in ends:
        yield result(plants[0], End.NOT_REHEARSED, f"{found.ending}: {found.reason}", version)
    else:
        yield result(plants[0], ends[found.ending], next(iter(found.words), found.reason), version)


def _apart(plants: Sequence[Plant], words: Sequence[str], kafka_home: Path, work: Path) -> Iterator[Result]:
    """Run those that Kafka's complaints name alone and the others together; halves where it names nobody."""
    named = [p for p in plants if any(p.marker in text for text in words)]
    if 0 < len(named) <= _SUSPECTS and len(named) < len(plants):
        parts = [*([p] for p in named), [p for p in plants if p not in named]]
    else:
        half = len(plants) // 2
        parts = [list(plants[:half]), list(plants[half:])]
    for part in parts:
        yield from kafkas(part, kafka_home, work)
