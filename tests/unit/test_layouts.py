"""The table of other people's layouts: every result is shown as what it is, and a row without a result says so."""

from __future__ import annotations

import json
from typing import Any

import pytest
from e2e.harness.layouts import LAYOUTS
from e2e.harness.layouts_page import AUTO, BACK, page
from e2e.harness.load import longest_stall_began, longest_stalls
from tests.unit.test_docs import ROOT

REFUSED = [
    {"code": "ImageWritesToZooKeeper", "object": "StatefulSet/x", "reason": "it writes <x>: now", "fix": "Set it."}
]
MIGRATED = {"outcome": "migrated", "records": 7, "lost": 0, "longest_stall_s": 11.5}
UPGRADE = {"restarted": ["kafka-0", "kafka-1"], "changed": []}
BACK_AGAIN = {
    "outcome": "rolled back",
    "phase": "RolledBack",
    "records": 9,
    "lost": 0,
    "longest_stall_s": 2.5,
    "broken": [],
}


def row(back: dict[str, Any] | None = None, **result: Any) -> str:
    """Return the first layout's row of the table."""
    known = {LAYOUTS[0].name: {"broken": [], "phase": "Completed", **result}} if result else {}
    known |= {f"{LAYOUTS[0].name}{BACK}": back} if back else {}
    return next(line for line in page(LAYOUTS, known).splitlines() if f"**{LAYOUTS[0].name}**" in line)


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ({}, "| not run yet |"),
        (MIGRATED, "| `Completed` | 0 of 7 | at most 11.5 s |"),
        (MIGRATED | {"longest_stall_migration_s": 1.5, "longest_stall_release_s": 11.5, "upgrade": UPGRADE},
         "| `Completed` | 0 of 7 | 1.5 s | restarts kafka-0, kafka-1; stall 11.5 s |"),
        (MIGRATED | {"upgrade": UPGRADE}, "| at most 11.5 s | restarts kafka-0, kafka-1; stall contained in that of the migration |"),
        (MIGRATED | {"lost": 1, "broken": ["1 lost"]}, "**✗** `Completed`, and not as promised"),
        ({"outcome": "refused", "phase": "Preflight", "findings": REFUSED}, "| `ImageWritesToZooKeeper` | it writes &lt;x> | Set it |"),
        ({"outcome": "stuck", "phase": "TakingOver", "broken": ["stuck"]}, "**✗** stuck in `TakingOver`"),
    ],
)  # fmt: skip
def test_a_row_says_what_came_of_the_layout(result: dict[str, Any], words: str) -> None:
    assert words in row(**result)


@pytest.mark.parametrize(
    ("back", "words"),
    [
        (None, "not run yet |"),
        (BACK_AGAIN, "`RolledBack`; lost 0 of 9; stall 2.5 s |"),
        (
            BACK_AGAIN | {"longest_stall_during": "RollingBack: pod x is stopping"},
            "stall 2.5 s (RollingBack: pod x is stopping) |",
        ),
        (BACK_AGAIN | {"broken": ["1 lost"]}, "**✗** ended in `RolledBack`"),
        (
            BACK_AGAIN | {"outcome": "stuck", "phase": "RollingBack", "broken": ["stuck"]},
            "**✗** ended in `RollingBack`",
        ),
    ],
)
def test_a_row_says_what_came_of_the_way_back(back: dict[str, Any] | None, words: str) -> None:
    assert words in row(back, **MIGRATED)


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (MIGRATED | {"channel": {"configStyle": "Env", "envPrefix": "KAFKA_"}}, "| `configStyle: Env`, `envPrefix: KAFKA_` | `Completed` | 0 of 7 |"),
        ({"outcome": "refused", "phase": "Preflight", "findings": REFUSED}, "| refused in preflight: `ImageWritesToZooKeeper` |"),
        (MIGRATED | {"broken": ["1 lost"]}, "**✗** `Completed`, and not as promised"),
    ],
)  # fmt: skip
def test_a_row_says_what_auto_found(result: dict[str, Any], words: str) -> None:
    text = page(LAYOUTS, {f"{LAYOUTS[0].name}{AUTO}": {"broken": [], "phase": "Completed", **result}})
    assert words in text.split("## With `configStyle: Auto`")[1]


def test_a_migration_with_auto_says_nothing_about_the_channel() -> None:
    for each in LAYOUTS:
        assert each.automatic.brokers["configStyle"] == "Auto"
        assert not {"envPrefix", "properties"} & each.automatic.brokers.keys()


def test_a_refusal_is_told_with_its_fix() -> None:
    text = page(LAYOUTS, {LAYOUTS[0].name: {"outcome": "refused", "broken": [], "findings": REFUSED}})
    assert "`ImageWritesToZooKeeper` on StatefulSet/x: it writes &lt;x>: now. Fix: Set it." in text


def test_the_kept_results_are_of_layouts_that_exist() -> None:
    kept = {file.stem: json.loads(file.read_text()) for file in (ROOT / "benchmarks/measured/layouts").glob("*.json")}
    assert kept
    assert {name.removesuffix(BACK).removesuffix(AUTO) for name in kept} <= {each.name for each in LAYOUTS}
    assert all(result["name"] == name.removesuffix(BACK).removesuffix(AUTO) for name, result in kept.items())


def lines(*stalls: float) -> list[dict[str, Any]]:
    """Return the output of a load whose longest wait for an acknowledgement is one of ``stalls`` in each second."""
    return [*({"at": 100.0 + i, "max_produce_latency_s": stall} for i, stall in enumerate(stalls)), {"final": True}]


@pytest.mark.parametrize(
    ("stalls", "mark", "told"),
    [
        ([9, 0, 0, 0, 0, 0, 1, 2, 0.5, 0.75], 8, (2, 0.75)),
        ([0, 0, 0, 0, 0, 0, 1, 1, 5, 1], 8, (5, 1)),  # sent at 103, before the mark
        ([0, 0, 0, 0, 0, 0, 1, 1], 8, (1, 0)),
        ([9, 9, 0, 0, 0, 0, 1, 1], 0, (0, 1)),
    ],
    ids=["the first seconds warm up", "a wait across the mark", "nothing afterwards", "nothing before"],
)
def test_a_stall_belongs_to_the_part_in_which_the_record_was_sent(
    stalls: list[float], mark: int, told: tuple[float, float]
) -> None:
    assert longest_stalls(lines(*stalls), mark) == told


def test_a_stall_begins_when_its_record_is_sent() -> None:
    assert longest_stall_began(lines(9, 0, 0, 0, 0, 0, 1, 3, 2)) == 104.0
    assert longest_stall_began(lines(9, 0)) == 0.0
