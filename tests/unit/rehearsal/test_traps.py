"""Known traps in a tree: each is found at its znode with a command, a sound tree has none, and no secret is in a command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.odd_trees.tree import ENCODER_SECRET, acl_entry, config, sound_tree
from tests.rehearsal.table import PAGE, RESULTS, page
from tests.support.traps import CHROOT, SETTINGS, TRAPS, planted, stored_dump

from kraftbridge.metadata.zookeeper.reader import read_dump
from kraftbridge.metadata.zookeeper.soundness import findings_of
from kraftbridge.models.catalogue import Code, Severity
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


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("/kafka-acl/Any/x", {"version": 1, "acls": [acl_entry()]}),
        ("/kafka-acl/Planet/x", {"version": 1, "acls": [acl_entry()]}),
        ("/kafka-acl/Topic/x", {"version": 1, "acls": [acl_entry(operation="Any")]}),
        ("/kafka-acl/Topic/x", {"version": 1, "acls": [acl_entry(permissionType="Any")]}),
        ("/config/users/x", config(producer_byte_rate="1.5")),
        ("/config/users/x", config(producer_byte_rate="-1")),
        ("/config/ips/10.9.9.9", config(connection_creation_rate="2147483648")),
        ("/config/clients/x", config(request_percentage="1_0")),
        ("/config/clients/x", config(producer_byte_rate="1e3", request_percentage=" 5 ")),
        ("/config/clients/x", config(consumer_byte_rate="5.0")),
        ("/kafka-acl-extended/prefixed/Group/x", {"version": 1, "acls": [acl_entry(operation="All")]}),
    ],
)
def test_preflight_and_a_rehearsal_judge_acls_and_quotas_alike(path: str, data: object, tmp_path: Path) -> None:
    tree = sound_tree()
    tree.put(path, data)
    dump = tree.write(tmp_path / "zk.jsonl")
    by_preflight = {finding.code for finding in findings_of(tree.znodes(), ENCODER_SECRET) if finding.object == path}
    by_rehearsal = {mend.code for mend in mends(dump, "", SETTINGS.keys()) if mend.znode == path}
    assert by_rehearsal <= by_preflight
    assert bool(by_rehearsal) is bool(by_preflight)


@pytest.mark.parametrize("odd", [["Read"], {"a": 1}, None, 5])
def test_an_acl_of_no_text_is_a_trap(odd: object, tmp_path: Path) -> None:
    tree = stored_dump()
    tree.put("/kafka-acl/Topic/x", {"version": 1, "acls": [acl_entry() | {"operation": odd}]})
    (mend,) = mends(tree.write(tmp_path / "zk.jsonl"), CHROOT, SETTINGS.keys())
    assert mend.code == Code.ACL_UNKNOWN


def test_the_page_has_the_results_and_every_trap_has_one() -> None:
    rows = {row["name"]: row for row in map(json.loads, RESULTS.read_text().splitlines())}
    assert rows.keys() == TRAPS.keys()
    for name, trap in TRAPS.items():
        assert (rows[name]["ending"], rows[name]["verdict"], rows[name]["broken"]) == (trap.ending, trap.verdict, [])
    assert PAGE.read_text() == page()
