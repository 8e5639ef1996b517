"""The page about odd trees: trees tried, Kafka's end, ours."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from tests.odd_trees.plants import Plant, plants
from tests.odd_trees.tree import ENCODER_SECRET, sound_tree

from kraftbridge.metadata.zookeeper.soundness import findings_of
from kraftbridge.models.catalogue import Severity
from kraftbridge.models.report import Finding

RESULTS = Path(__file__).resolve().parents[2] / "docs/measured/odd-trees/results.jsonl"


class End(StrEnum):
    """How Kafka's migration ends for a plant."""

    WORKS = "works"
    """Dual-write, and the log holds what the tree held."""
    LOSES = "loses"
    """Dual-write, and something is lost or changed."""
    UNREADABLE = "not compared"
    """Dual-write, and nobody can say what was copied: our library cannot read the znode, or Kafka itself reports a fault."""
    DIES = "dies"
    """The controller exits."""
    STICKS = "sticks"
    """After the takeover it retries for ever."""
    NEVER_BEGINS = "never begins"
    """Before the takeover it waits or retries for ever."""
    NOT_REHEARSED = "not rehearsed"
    """The rehearsal itself refuses the tree."""


BAD = frozenset({End.LOSES, End.DIES, End.STICKS, End.NEVER_BEGINS})


@dataclass(frozen=True)
class Result:
    """What Kafka did with one plant."""

    plant: str
    end: End
    detail: str
    """Kafka's own words, or what was lost."""
    company: int
    """Plants in the same tree, itself included."""
    kafka: str

    def line(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)


STRICTER = {
    "topic config: empty, of a topic that is not there": "Kafka loses other configs of topics that do not exist, and the check treats all of them alike",
}
"""What the check blocks on although Kafka loses nothing, and why."""
MILDER: dict[str, str] = {}
"""What the check lets pass although Kafka does not, and why."""


def read(file: Path = RESULTS) -> Iterator[Result]:
    """Yield the results, the last of each plant."""
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    latest = {row["plant"]: Result(**row | {"end": End(row["end"])}) for row in rows}
    yield from latest.values()


_SOUND = sound_tree()
_KNOWN = {(f.code, f.object) for f in findings_of(_SOUND.znodes(), ENCODER_SECRET)}


def ours(plant: Plant) -> list[Finding]:
    """Return what the tree check says of a plant, without what it says of the sound tree."""
    tree = sound_tree()
    plant.apply(tree)
    return [f for f in findings_of(tree.znodes(), ENCODER_SECRET) if (f.code, f.object) not in _KNOWN]


def blocks(findings: list[Finding]) -> bool:
    return any(f.severity is Severity.BLOCKING for f in findings)


def page() -> str:
    """Return the page."""
    by_name = {plant.name: plant for plant in plants()}
    results = sorted((r for r in read() if r.plant in by_name), key=lambda r: (r.end not in BAD, r.end, r.plant))
    found = {r.plant: ours(by_name[r.plant]) for r in results}
    table = Counter((r.end, blocks(found[r.plant])) for r in results)
    parts = [
        "# Odd ZooKeeper trees\n",
        "This page compares Kafka's behavior on odd trees with the findings of the tree verification. A generator (`tests/odd_trees`) creates every kind of znode with each field missing, or of",
        f"another type, version, sign, range or encoding: {len(by_name)} plants. `make odd-trees` migrates them with a real Kafka controller in migration mode, a scratch ZooKeeper and",
        f"substitutes for the brokers, and records the result. {len(results)} plants were run with Kafka {', '.join(sorted({r.kafka for r in results if r.kafka}))}. Several plants that the check",
        "accepts share a tree. If Kafka fails on such a tree, each plant is run alone.\n",
        "| Kafka | trees | the check blocks | the check accepts |",
        "|---|---|---|---|",
        *(
            f"| {end} | {table[end, True] + table[end, False]} | {table[end, True]} | {table[end, False]} |"
            for end in End
            if table[end, True] + table[end, False]
        ),
        "\n## Plants on which Kafka fails or loses metadata\n",
        "| plant | Kafka | findings of the check |",
        "|---|---|---|",
        *(
            f"| {_cell(r.plant)} | {r.end} | {', '.join(sorted({f.code for f in found[r.plant] if f.severity is Severity.BLOCKING})) or 'nothing'} |"
            for r in results
            if r.end in BAD
        ),
        "\n## Stricter than Kafka\n",
        *(f"- {_cell(name)}: {why}." for name, why in STRICTER.items()),
        "- The check blocks every znode that cannot be decoded.",
        "\nWhere a broker's registration has no listener with a security protocol of Kafka, its substitute cannot register, and the controller waits for it. The controller itself",
        "does not read this part of the znode.",
        "\nThe check accepts host names in `/config/ips`, because only the controllers can resolve them.",
    ]
    return "\n".join(parts) + "\n"


def _cell(text: str) -> str:
    return "`" + text.replace("|", "\\|").replace("`", "'") + "`"
