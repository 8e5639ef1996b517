"""Random trees of the long tier: the same under a seed in every process, and as ZooKeeper counts them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.trees import damaged_trees, drawn, sound_trees, write

from kraftbridge.metadata.entities import Secrets
from kraftbridge.metadata.zookeeper.reader import read_dump
from kraftbridge.metadata.zookeeper.tree import DumpReading

ROOT = Path(__file__).resolve().parents[3]
OTHER_PROCESS = """
import kraftbridge.handlers
from tests.support.trees import damaged_trees, drawn
print(sorted(drawn(damaged_trees(), 7)[0].items()))
"""


def test_a_tree_is_the_same_in_another_process_with_other_imports() -> None:
    there = subprocess.run(
        [sys.executable, "-c", OTHER_PROCESS],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert there == f"{sorted(drawn(damaged_trees(), 7)[0].items())}\n"


@pytest.mark.parametrize("number", range(5))
def test_a_sound_tree_is_complete_and_decodes(number: int, tmp_path: Path) -> None:
    reading = DumpReading(Secrets(b"salt"))
    reading.take(read_dump(write(drawn(sound_trees(), number), tmp_path / "zk.jsonl"), ""))
    assert list(reading.entities())
    assert reading.is_whole, (reading.unread, reading.problems)
