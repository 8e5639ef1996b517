"""The table of traps in ``docs/rehearsal.md``, from the results of the long tier."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.traps import TRAPS

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "measured" / "rehearsal" / "traps.jsonl"
PAGE = ROOT / "docs" / "rehearsal.md"
BEGIN, END = "<!-- traps: begin -->\n", "<!-- traps: end -->\n"


def table() -> str:
    """Return the table's rows, in the order of the traps."""
    rows = {row["name"]: row for row in map(json.loads, RESULTS.read_text().splitlines())}
    lines = ["| Trap | Kafka's end | Verdict | Named by |", "|---|---|---|---|"]
    for name in TRAPS:
        row = rows[name]
        codes = ", ".join(f"`{code}`" for code in row["mends"]) or "none"
        lines.append(f"| {name} | `{row['ending']}` | `{row['verdict']}` | {codes} |")
    return "\n".join(lines) + "\n"


def page() -> str:
    """Return the page with the table of today's results."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    return before + BEGIN + "\n" + table() + "\n" + END + rest.partition(END)[2]
