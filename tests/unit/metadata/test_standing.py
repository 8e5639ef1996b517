"""What the check of the tree found at first, read again: what has passed is left out, and nothing else is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest
from kazoo.exceptions import NoNodeError

from kraftbridge.metadata.zookeeper import standing as module
from kraftbridge.metadata.zookeeper.reader import Data, Fenced, Operation, Read, Result, ZooKeeperReader
from kraftbridge.metadata.zookeeper.standing import standing
from kraftbridge.models.catalogue import Code
from kraftbridge.models.report import Finding

Tree = dict[str, Any]
STAT = (0,) * 11
ID = "AAAAAAAAAAAAAAAAAAAAAQ"
SOUND: Tree = {
    "/brokers/ids/0": {},
    "/brokers/ids/1": {},
    "/brokers/topics/t": {"version": 3, "topic_id": ID, "partitions": {"0": [0, 1]}},
    "/brokers/topics/t/partitions/0/state": {
        "controller_epoch": 5, "leader": 0, "version": 1, "leader_epoch": 1, "isr": [0, 1],
    },
    "/config/topics/t": {"version": 1, "config": {}},
    "/controller": {"version": 1, "brokerid": 0, "timestamp": "1"},
    "/controller_epoch": 5,
    "/cluster/id": {"version": "1", "id": "c"},
}  # fmt: skip
STATE = "/brokers/topics/t/partitions/0/state"


class Reader:
    """Shows one tree after the other, the last one for ever."""

    migration_problem = None

    def __init__(self, *trees: Tree) -> None:
        self.trees = list(trees)
        self.tree: Tree = {}

    def synchronize(self) -> None:
        """Begin the next reading."""
        self.tree = self.trees.pop(0) if len(self.trees) > 1 else self.trees[0]

    def read(self, reads: Sequence[Read], batch: int = 0) -> Iterator[Fenced]:
        yield Fenced(None, reads, [self._answer(read) for read in reads])

    def _answer(self, read: Read) -> Result:
        if read.operation is Operation.DATA and read.path in self.tree:
            return Data(json.dumps(self.tree[read.path]).encode(), STAT)
        below = [path.removeprefix(f"{read.path}/") for path in self.tree if path.startswith(f"{read.path}/")]
        if read.operation is Operation.CHILDREN and below:
            children: list[str] = sorted({path.partition("/")[0] for path in below})
            return children
        missing: Exception = NoNodeError()
        return missing


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSES_SECONDS", (0.0,) * 4)


def left(first: Finding, *trees: Tree, highest_epoch: int = 5) -> set[str]:
    reader = cast("ZooKeeperReader", Reader(*trees))
    return {finding.code for finding in standing(reader, [first], highest_epoch)}


AWAY = Finding.of(Code.REPLICA_ON_UNKNOWN_BROKER, STATE, brokers=[1])
WITHOUT_STATE = Finding.of(Code.PARTITION_WITHOUT_STATE, STATE)
BEHIND = Finding.of(Code.CONTROLLER_EPOCH_BEHIND, "/controller_epoch", epoch=4, highest=5)


@pytest.mark.parametrize("first", [AWAY, WITHOUT_STATE, BEHIND], ids=lambda finding: str(finding.code))
def test_what_has_passed_is_left_out(first: Finding) -> None:
    assert left(first, SOUND) == set()


def without(*paths: str) -> Tree:
    return {path: data for path, data in SOUND.items() if not path.startswith(paths)}


def test_what_is_found_in_each_reading_stands() -> None:
    assert left(AWAY, without("/brokers/ids/1")) == {Code.REPLICA_ON_UNKNOWN_BROKER}
    assert left(WITHOUT_STATE, without(STATE)) == {Code.PARTITION_WITHOUT_STATE}
    assert left(BEHIND, SOUND | {"/controller_epoch": 4}) == {Code.CONTROLLER_EPOCH_BEHIND}
    assert left(AWAY, without("/brokers/ids/1"), SOUND) == set()


def test_a_broker_that_was_away_is_not_back_where_no_broker_is_registered_any_more() -> None:
    assert left(AWAY, without("/brokers/ids")) & {Code.REPLICA_ON_UNKNOWN_BROKER, Code.NO_BROKERS}


@pytest.mark.parametrize(
    ("first", "path", "data", "code"),
    [
        (WITHOUT_STATE, STATE, SOUND[STATE] | {"leader": 1, "isr": [0]}, Code.LEADER_NOT_IN_SYNC),
        (
            Finding.of(Code.STALE_TOPIC_CONFIG, "/config/topics/t"),
            "/brokers/topics/t",
            SOUND["/brokers/topics/t"] | {"topic_id": "short"},
            Code.TOPIC_ID_INVALID,
        ),
        (BEHIND, "/controller_epoch", "none", Code.CONTROLLER_EPOCH_INVALID),
    ],
    ids=lambda value: str(value) if isinstance(value, Code) else "",
)
def test_what_passed_to_something_that_blocks_for_good_is_told(
    first: Finding, path: str, data: Any, code: Code
) -> None:
    assert left(first, SOUND | {path: data}) == {code}


def test_what_blocked_from_the_first_reading_on_is_told_once() -> None:
    reader = cast("ZooKeeperReader", Reader(SOUND | {STATE: SOUND[STATE] | {"leader": 1, "isr": [0]}}))
    lasting = Finding.of(Code.LEADER_NOT_IN_SYNC, STATE, leader=2, isr=[0], path=STATE, state="{}")
    assert standing(reader, [WITHOUT_STATE, lasting], 5) == [lasting]


def test_a_name_that_is_shown_with_escapes_is_read_again_too() -> None:
    tree = {path.replace("topics/t", "topics/t\u202e"): data for path, data in SOUND.items()}
    state = STATE.replace("topics/t", "topics/t\u202e")
    del tree[state]
    assert left(Finding.of(Code.PARTITION_WITHOUT_STATE, state), tree) >= {Code.PARTITION_WITHOUT_STATE}
