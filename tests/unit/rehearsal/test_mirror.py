"""ZooKeeper after the sync against the log that it mirrors, on the stored data of a real cluster in dual-write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.spark.planting import CHROOT, DATA, ENCODER_SECRET, Dump

from kraftbridge.exceptions import MetadataError
from kraftbridge.metadata.zookeeper.reader import read_dump, write_dump
from kraftbridge.models.rehearsal import Ending, RehearsalVerdict
from kraftbridge.models.report import Difference
from kraftbridge.rehearsal.comparison import TreeComparison, compare_mirror
from kraftbridge.rehearsal.rehearse import RehearsalOptions, _Rehearsal

LOG = DATA / "dualwrite" / "c3000"


def compared(dump: Dump, tmp_path: Path) -> list[Difference]:
    after = tmp_path / "after.jsonl.gz"
    write_dump(read_dump(dump.write(tmp_path / "zk.jsonl"), CHROOT), after, "")
    return compare_mirror(after, LOG, ENCODER_SECRET)


def test_a_sound_mirror_has_no_differences(tmp_path: Path) -> None:
    assert compared(Dump(), tmp_path) == []


def first(dump: Dump, prefix: str) -> str:
    return min(path for path, row in dump.znodes.items() if path.startswith(prefix) and row["data"])


def _changed_state(dump: Dump) -> None:
    dump.change(first(dump, "/brokers/topics/cfg-01/partitions/0/"), lambda body: body.update(leader_epoch=999))


PLANTS: dict[str, tuple[Callable[[Dump], object], str, list[str]]] = {
    "an ACL is missing": (lambda dump: dump.remove(first(dump, "/kafka-acl/Topic/")), "acl", ["zookeeper"]),
    "a config is left": (
        lambda dump: dump.put("/config/brokers/99", {"version": 1, "config": {"num.io.threads": "3"}}), "broker-config", ["log"],
    ),
    "a partition differs": (_changed_state, "partition", []),
}  # fmt: skip


@pytest.mark.parametrize("case", PLANTS)
def test_what_the_sync_left_otherwise_is_named(case: str, tmp_path: Path) -> None:
    plant, kind, absent = PLANTS[case]
    dump = Dump()
    plant(dump)
    found = compared(dump, tmp_path)
    assert found
    assert {(each.kind.value, tuple(each.absent_in)) for each in found} == {(kind, tuple(absent))}


def test_without_the_offset_that_zookeeper_mirrors_nothing_is_compared(tmp_path: Path) -> None:
    dump = Dump()
    dump.remove("/migration")
    with pytest.raises(MetadataError, match="/migration"):
        compared(dump, tmp_path)


def test_a_mirror_that_differs_is_a_loss_and_one_that_does_not_is_none(tmp_path: Path) -> None:
    dump = Dump()
    dump.remove(first(dump, "/kafka-acl/Topic/"))
    rehearsal = _Rehearsal(tmp_path, RehearsalOptions(None, tmp_path), tmp_path, None)  # type: ignore[arg-type] - nothing runs
    rehearsal.ending = Ending.DUAL_WRITE
    rehearsal.comparison = TreeComparison(copy_end_offset=5, compared=7, whole=True)
    assert rehearsal._verdict()[0] is RehearsalVerdict.WORKS
    rehearsal.mirror = compared(dump, tmp_path)
    verdict, reason = rehearsal._verdict()
    assert verdict is RehearsalVerdict.LOSES
    assert "in ZooKeeper not as in the log that it mirrors, after the sync: acl [" in reason
