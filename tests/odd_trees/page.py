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
from kraftbridge.models.catalogue import Code, Severity
from kraftbridge.models.report import Finding

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks/measured/odd-trees/results.jsonl"


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


_UNSERVED = (
    "no broker can serve such a partition as it stands. Kafka copies it, and restarts would make its data unavailable"
)
STRICTER: dict[Code, str] = {
    Code.BROKER_ID_INVALID: "Kafka's brokers write their id in plain decimal digits; a znode with another spelling is no broker's",
    Code.CONTROLLER_EPOCH_BEHIND: "brokers refuse requests of a controller whose epoch is older than the one in a partition's state; the copy does not look at it",
    Code.CONTROLLER_MISSING: "no broker is controller, so the cluster does not work at the moment",
    Code.ENTITY_NAME_INVALID: "Kafka encodes such a name when it writes it: dual-write would write a second znode beside this one",
    Code.ISR_INVALID: _UNSERVED,
    Code.LEADER_NOT_IN_SYNC: _UNSERVED,
    Code.MIGRATION_ZNODE_STALE: "what an earlier migration left: with other offsets the controller copies nothing, and the check does not rely on the difference",
    Code.OFFLINE_PARTITIONS: _UNSERVED,
    Code.REASSIGNMENT_RUNNING: "a migration waits for reassignments, because restarts during one take redundancy away",
    Code.REPLICAS_INVALID: _UNSERVED,
    Code.STALE_TOPIC_CONFIG: "Kafka loses other configs of topics that do not exist, and the check treats all of them alike",
    Code.TOPIC_DELETION_PENDING: "a migration waits for pending deletions",
    Code.TOPIC_NAME_INVALID: "Kafka refuses to create a topic of this name",
}
"""Findings that block although Kafka loses nothing on some plants, and why."""
STRICTER_PLANTS = {
    "controller: trailing text": "Kafka's parser reads on only to the end of the first value, and the check blocks every znode that is not one JSON value",
    "migration: trailing text": "the same",
}
"""What the check blocks on with a finding for znodes that cannot be decoded, although Kafka loses nothing, and why."""
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


def stricter_for_a_reason(plant: Plant) -> bool:
    """Return whether every finding that blocks the plant is stricter than Kafka for a reason that the page tells."""
    return plant.name in STRICTER_PLANTS or all(
        f.code in STRICTER for f in ours(plant) if f.severity is Severity.BLOCKING
    )


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
        "On some plants Kafka loses nothing, and the check blocks:\n",
        *(f"- `{code}`: {why}." for code, why in STRICTER.items()),
        *(f"- {_cell(name)}: {why}." for name, why in STRICTER_PLANTS.items()),
        "\nWhere a broker's registration has no listener with a security protocol of Kafka, its substitute cannot register, and the controller waits for it. The controller itself",
        "does not read this part of the znode.",
        "\nThe check only warns of host names in `/config/ips` (`QuotaAddressIsName`), because only the nodes can resolve them.",
    ]
    return "\n".join(parts) + "\n"


def _cell(text: str) -> str:
    return "`" + text.replace("|", "\\|").replace("`", "'") + "`"
