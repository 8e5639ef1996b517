"""The table of threats in the security guide: each row is complete, and each test that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SECTION = (ROOT / "docs" / "security.md").read_text().partition("## Who can do what\n")[2].partition("\n## ")[0]
ROWS = [
    [cell.strip() for cell in line.strip("| ").split(" | ")] for line in SECTION.splitlines() if line.startswith("| ")
][1:]
TESTS = frozenset(
    name
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
)
WHO = ("Tenant", "Pod in the same namespace", "Broker", "ZooKeeper", "Image", "Webhook", "Stolen token")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_each_limit_is_shown_by_tests_that_exist(row: list[str]) -> None:
    who, can, cannot, shown = row
    named = re.findall(r"`(\w+)`", shown)
    assert who
    assert can
    assert cannot
    assert named
    assert set(named) <= TESTS


@pytest.mark.parametrize("who", WHO)
def test_everybody_has_a_row(who: str) -> None:
    assert any(row[0].startswith(who) for row in ROWS)


def test_nothing_is_released_before_its_dependencies_are_audited() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yaml").read_text())["jobs"]
    steps = "\n".join(step.get("run", "") for step in jobs["audit"]["steps"])
    for lock in ("runtime", "verifier"):
        assert f"requirements/{lock}.lock" in steps
    assert "pip-audit" in steps
    assert "audit" in jobs["images"]["needs"]
