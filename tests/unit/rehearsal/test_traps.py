"""Known traps in a tree: each is found at its znode with a command, a sound tree has none, and no secret is in a command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.rehearsal.table import PAGE, RESULTS, page
from tests.support.traps import CHROOT, SETTINGS, TRAPS, planted, stored_dump

from kraftbridge.metadata.zookeeper.reader import read_dump
from kraftbridge.metadata.zookeeper.soundness import findings_of
from kraftbridge.models.catalogue import Severity
from kraftbridge.models.rehearsal import RehearsalVerdict
from kraftbridge.rehearsal.traps import mends


@pytest.mark.parametrize("name", TRAPS)
def test_every_trap_is_named(name: str, tmp_path: Path) -> None:
    trap = TRAPS[name]
    found = mends(planted(trap, tmp_path / "zk.jsonl"), CHROOT, trap.settings.keys())
    assert trap.code in {None, *(mend.code for mend in found)}, found
    assert all(mend.command for mend in found)
    assert bool(found) is (trap.code is not None)


@pytest.mark.parametrize("name", TRAPS)
def test_preflight_is_at_least_as_strict_as_kafka(name: str, tmp_path: Path) -> None:
    """Preflight's check of the tree stops what Kafka fails at or loses, also where no rehearsal runs."""
    trap = TRAPS[name]
    znodes = read_dump(planted(trap, tmp_path / "zk.jsonl"), CHROOT)
    found = findings_of(znodes, trap.settings.get("password.encoder.secret"))
    blocking = {finding.code for finding in found if finding.severity is Severity.BLOCKING}
    if trap.verdict in {RehearsalVerdict.FAILS, RehearsalVerdict.LOSES}:
        assert blocking
        assert trap.code in {None, *blocking}
    if name == "none":
        assert not blocking


def test_a_command_takes_the_wrong_quota_away_and_shows_no_secret(tmp_path: Path) -> None:
    scram = "salt=YWJj,stored_key=czNjcjN0,server_key=czNjcjN0,iterations=4096"
    tree = stored_dump()
    tree.put("/config/users/it's", {"version": 1, "config": {"SCRAM-SHA-256": scram, "foo_rate": "1"}})
    (mend,) = mends(tree.write(tmp_path / "zk.jsonl"), CHROOT, SETTINGS.keys())
    assert "czNjcjN0" not in mend.to_json()
    assert """jq -c 'del(.config["foo_rate"])'""" in mend.command
    assert mend.problem == "foo_rate is no quota of users"


def test_the_page_has_the_results_and_every_trap_has_one() -> None:
    rows = {row["name"]: row for row in map(json.loads, RESULTS.read_text().splitlines())}
    assert rows.keys() == TRAPS.keys()
    for name, trap in TRAPS.items():
        assert (rows[name]["ending"], rows[name]["verdict"], rows[name]["broken"]) == (trap.ending, trap.verdict, [])
    assert PAGE.read_text() == page()
