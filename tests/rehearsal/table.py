"""The tables of traps and of forecasts in ``docs/rehearsal.md``, from the results of the long tier."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.traps import TRAPS

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "measured" / "rehearsal" / "traps.jsonl"
PAGE = ROOT / "docs" / "rehearsal.md"
FORECASTS = RESULTS.with_name("forecast.jsonl")
BEGIN, END = "<!-- {}: begin -->\n", "<!-- {}: end -->\n"


def table() -> str:
    """Return the table's rows, in the order of the traps."""
    rows = {row["name"]: row for row in map(json.loads, RESULTS.read_text().splitlines())}
    lines = ["| Trap | Kafka's end | Verdict | Named by |", "|---|---|---|---|"]
    for name in TRAPS:
        row = rows[name]
        codes = ", ".join(f"`{code}`" for code in row["mends"]) or "none"
        lines.append(f"| {name} | `{row['ending']}` | `{row['verdict']}` | {codes} |")
    return "\n".join(lines) + "\n"


def forecasts() -> str:
    """Return a row per takeover, smallest cluster first."""
    rows = [json.loads(line) for line in FORECASTS.read_text().splitlines()]
    lines = [
        "| Partitions | Copy: rehearsal, takeover | Sync: rehearsal, takeover | Without a controller: forecast | measured | Forecast / measured |",
        "|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda each: int(each["partitions"])):
        copy, sync = (
            f"{row[f'rehearsal_{what}_seconds']} s, {row[f'takeover_{what}_seconds']} s" for what in ("copy", "sync")
        )
        forecast, measured = row["forecast_seconds"], row["unavailable_seconds"]
        lines.append(
            f"| {row['partitions']:,} | {copy} | {sync} | {forecast} s | {measured:.1f} s | {forecast / measured:.2f} |"
        )
    return "\n".join(lines) + "\n"


def page() -> str:
    """Return the page with the tables of today's results."""
    text = PAGE.read_text()
    for name, rows in (("traps", table()), ("forecasts", forecasts())):
        begin, end = BEGIN.format(name), END.format(name)
        before, _, rest = text.partition(begin)
        text = before + begin + "\n" + rows + "\n" + end + rest.partition(end)[2]
    return text
