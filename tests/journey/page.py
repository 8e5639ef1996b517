"""The table of journeys, from the kept results. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.journey.travel import BRIDGE, RELEASES, Journey, Way, journey_of

RESULTS: Final = Path(__file__).resolve().parents[2] / "benchmarks" / "measured" / "journey"

HEAD: Final = f"""# Old releases on the way to KRaft

`make journey` starts a ZooKeeper cluster of three brokers of each release as real processes.
It takes the cluster to Kafka {BRIDGE} and on to KRaft, or back, while clients produce, consume, run transactions, commit group offsets, create and delete topics, alter configurations and reassign partitions.
The rolls are those of the operator: one broker at a time, each once every partition has its full ISR; this table shows what Kafka itself does with them.

| Way | What happens |
|---|---|
"""

Known = Mapping[tuple[str, Way], Journey]


def file_of(release: str, way: Way) -> str:
    """Return the name of the file that keeps a journey."""
    return f"{release}-{way.name.lower().replace('_', '-')}.json"


def read(directory: Path = RESULTS) -> dict[tuple[str, Way], Journey]:
    """Return the kept journeys."""
    found = [journey_of(json.loads(path.read_text())) for path in sorted(directory.glob("*.json"))]
    return {(journey.release, journey.way): journey for journey in found}


def page(known: Known) -> str:
    """Return the page."""
    parts = [
        HEAD + "\n".join(f"| {way} | {way.said} |" for way in Way),
        "",
        "A cell has the longest time between the sending of a record and its acknowledgement, and the number of records that were acknowledged; **✗** marks a journey that did not end as promised.",
        "",
        "| from | " + " | ".join(Way) + " |",
        "|---" * (len(Way) + 1) + "|",
        *(
            f"| {release} | " + " | ".join(cell(known.get((release, way))) for way in Way) + " |"
            for release in RELEASES
        ),
        "",
        summary(known),
    ]
    return "\n".join(parts) + "\n"


def cell(journey: Journey | None) -> str:
    """Return what a table says of a journey."""
    if journey is None:
        return "·"
    text = f"{journey.longest_stall_seconds:.1f} s, {journey.acknowledged}"
    return text if journey.good else f"**✗** {text}"


def summary(known: Mapping[tuple[str, Any], Journey]) -> str:
    """Return a line about all journeys of a table, and one for each that did not end as promised."""
    lost = sum(journey.lost for journey in known.values())
    records = sum(journey.acknowledged for journey in known.values())
    good = sum(journey.good for journey in known.values())
    commits = ", ".join(sorted({journey.commit for journey in known.values()}))
    lines = [
        f"{good} of {len(known)} journeys as promised; {records} records acknowledged, {lost} lost. Commits: {commits}."
    ]
    for (release, way), journey in known.items():
        if not journey.good:
            lines.append(f"- **✗** {release} {way}: {why_not(journey)}")
    return "\n".join(lines)


def why_not(journey: Journey) -> str:
    """Return why a journey did not end as promised, for a line of the page."""
    what = journey.failure or "; ".join([*journey.broken, *journey.stray, *journey.nameless])
    words = what.splitlines()[0][:300] if what else f"{journey.lost} lost, {journey.duplicates} duplicated"
    return words.replace("|", chr(92) + "|")
