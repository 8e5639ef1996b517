"""When a broker shows a change, and when it does not yet."""

from __future__ import annotations

import pytest
from benchmarks.quorum.changes import (
    AlterTopicConfig,
    Change,
    CreateAcl,
    CreateTopic,
    DeleteAcl,
    DeleteTopic,
    GrowTopic,
    PartitionView,
    Reassign,
    View,
    is_visible,
)

LED = PartitionView(frozenset({0, 1}), frozenset({0, 1}), has_leader=True)
LEADERLESS = PartitionView(frozenset({0, 1}), frozenset({0, 1}), has_leader=False)
MOVING = PartitionView(frozenset({0, 1, 2}), frozenset({0, 1, 2}), has_leader=True)
NOT_IN_SYNC = PartitionView(frozenset({1, 2}), frozenset({1}), has_leader=True)
MOVED = PartitionView(frozenset({1, 2}), frozenset({1, 2}), has_leader=True)


def serving(*partitions: PartitionView) -> View:
    return View(topics={"t": dict(enumerate(partitions))})


@pytest.mark.parametrize(
    ("change", "view", "visible"),
    [
        (CreateTopic("t", 2, 2), View(), False),
        (CreateTopic("t", 2, 2), serving(LED), False),
        (CreateTopic("t", 2, 2), serving(LED, LEADERLESS), False),
        (CreateTopic("t", 2, 2), serving(LED, LED), True),
        (GrowTopic("t", 3), serving(LED, LED), False),
        (GrowTopic("t", 3), serving(LED, LED, LED), True),
        (DeleteTopic("t"), serving(LED), False),
        (DeleteTopic("t"), View(), True),
        (Reassign("t", 0, (2, 1)), serving(LED), False),
        (Reassign("t", 0, (2, 1)), serving(MOVING), False),
        (Reassign("t", 0, (2, 1)), serving(NOT_IN_SYNC), False),
        (Reassign("t", 0, (2, 1)), serving(MOVED), True),
        (Reassign("t", 0, (2, 1)), View(), False),
        (AlterTopicConfig("t", "retention.ms", "7"), View(), False),
        (AlterTopicConfig("t", "retention.ms", "7"), View(configs={("t", "retention.ms"): "6"}), False),
        (AlterTopicConfig("t", "retention.ms", "7"), View(configs={("t", "retention.ms"): "7"}), True),
        (CreateAcl("t", "User:a"), View(acls=frozenset({("t", "User:b")})), False),
        (CreateAcl("t", "User:a"), View(acls=frozenset({("t", "User:a")})), True),
        (DeleteAcl("t", "User:a"), View(acls=frozenset({("t", "User:a")})), False),
        (DeleteAcl("t", "User:a"), View(), True),
    ],
    ids=str,
)
def test_visible(change: Change, view: View, *, visible: bool) -> None:
    assert is_visible(change, view) is visible
