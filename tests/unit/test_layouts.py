"""The table of other people's layouts: every result is shown as what it is, and a row without a result says so."""

from __future__ import annotations

import json
from typing import Any

import pytest
from e2e.harness.layouts import LAYOUTS
from e2e.harness.layouts_page import page
from tests.unit.test_docs import ROOT

REFUSED = [{"code": "ImageWritesToZooKeeper", "object": "StatefulSet/x", "reason": "it writes <x>", "fix": "Set it."}]


def row(**result: Any) -> str:
    """Return the first layout's row of the table."""
    known = {LAYOUTS[0].name: {"broken": [], "phase": "Completed", **result}} if result else {}
    return next(line for line in page(LAYOUTS, known).splitlines() if LAYOUTS[0].title in line)


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ({}, "not run yet"),
        ({"outcome": "migrated", "records": 7, "lost": 0, "longest_stall_s": 1.5}, "migrated to `Completed` | 7 | 0 | 1.5 s"),
        ({"outcome": "migrated", "records": 7, "lost": 1, "longest_stall_s": 1.5, "broken": ["1 lost"]}, "**✗** migrated, and not as promised"),
        ({"outcome": "refused", "phase": "Preflight", "findings": REFUSED}, "refused in preflight: `ImageWritesToZooKeeper`"),
        ({"outcome": "stuck", "phase": "TakingOver", "broken": ["stuck"]}, "**✗** stuck in `TakingOver`"),
    ],
)  # fmt: skip
def test_a_row_says_what_came_of_the_layout(result: dict[str, Any], words: str) -> None:
    assert words in row(**result)


def test_a_refusal_is_told_with_its_fix() -> None:
    text = page(LAYOUTS, {LAYOUTS[0].name: {"outcome": "refused", "broken": [], "findings": REFUSED}})
    assert "`ImageWritesToZooKeeper` on StatefulSet/x: it writes &lt;x>. Fix: Set it." in text


def test_the_kept_results_are_of_layouts_that_exist() -> None:
    kept = {file.stem: json.loads(file.read_text()) for file in (ROOT / "docs/measured/layouts").glob("*.json")}
    assert kept
    assert kept.keys() <= {each.name for each in LAYOUTS}
    assert all(result["name"] == name for name, result in kept.items())
