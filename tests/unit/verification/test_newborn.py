"""A partition that was made as ZooKeeper's controller lost its place has no state that Kafka's copy could lose."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kraftbridge.models.entities import EntityKind
from kraftbridge.verification.compare.mirror import LOG, ZOOKEEPER, is_newborn
from kraftbridge.verification.compare.places import Flagged, copy_of

STATE: dict[str, Any] = {"isr": None, "leader": None, "leaderEpoch": None, "leaderRecoveryState": None}
TREE: dict[str, Any] = {"addingReplicas": [], "removingReplicas": [], "replicas": [1, 0], **STATE}
COPIED: dict[str, Any] = TREE | {"isr": [0, 1], "leader": 1, "leaderEpoch": 0, "leaderRecoveryState": 0}


def flagged(
    tree: dict[str, Any] | None, log: dict[str, Any] | None, kind: EntityKind = EntityKind.PARTITION
) -> Flagged:
    copies = {
        place: copy_of(None if value is None else json.dumps(value)) for place, value in ((ZOOKEEPER, tree), (LOG, log))
    }
    return Flagged(kind, "a-0", copies)


def test_what_kafka_gives_a_partition_without_state_is_no_difference() -> None:
    assert is_newborn(flagged(TREE, COPIED))


@pytest.mark.parametrize(
    ("tree", "log"),
    [
        (TREE | {"leader": 1, "isr": [1], "leaderEpoch": 7, "leaderRecoveryState": 0}, COPIED),
        (TREE | {"isr": [1]}, COPIED),
        (TREE, COPIED | {"leaderEpoch": 3}),
        (TREE, COPIED | {"isr": [1]}),
        (TREE, COPIED | {"leader": 2}),
        (TREE, COPIED | {"replicas": [1, 2]}),
        (TREE | {"replicas": None}, COPIED),
        (TREE, None),
        (None, COPIED),
    ],
)
def test_everything_else_is_one(tree: dict[str, Any] | None, log: dict[str, Any] | None) -> None:
    assert not is_newborn(flagged(tree, log))


def test_other_kinds_are_none() -> None:
    assert not is_newborn(flagged(TREE, COPIED, EntityKind.TOPIC))
