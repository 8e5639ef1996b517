"""Which partitions get a new leader epoch by a reassignment to the replicas that they have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, Final, TypeVar, cast

import pytest
from kafka.protocol.admin.topics import ListPartitionReassignmentsRequest

from kraftbridge.kafka.metadata import NO_OPERATIONS, Broker, Metadata, Partition, Partitions, Topic
from kraftbridge.kafka.wire import Connection
from kraftbridge.storage.kafka_brokers import _renew_leaders

T = TypeVar("T")
Numbers = Sequence[int]
UNKNOWN_TOPIC, UNAUTHORIZED = 3, 31


class Controller:
    """Answers as ZooKeeper's controller does; each listing of reassignments names other partitions of topic ``t``."""

    def __init__(self, partitions: Sequence[Partition], *moving: Numbers, codes: Numbers = ()) -> None:
        self.partitions: Final = partitions
        self.moving: Final = list(moving)
        self.codes: Final = codes
        self.reassigned: dict[int, list[int]] = {}

    def call(self, request: Any, *_args: Any, **fields: Any) -> Any:
        if request is ListPartitionReassignmentsRequest:
            numbers = self.moving.pop(0) if len(self.moving) > 1 else self.moving[0]
            partitions = [SimpleNamespace(partition_index=number) for number in numbers]
            return SimpleNamespace(error_code=0, topics=[SimpleNamespace(name="t", partitions=partitions)])
        for topic in fields["topics"]:
            self.reassigned |= {each.partition_index: each.replicas for each in topic.partitions}
        told = [SimpleNamespace(error_code=code) for code in self.codes]
        return SimpleNamespace(error_code=0, responses=[SimpleNamespace(partitions=told)])

    def all_topics(self, _seconds: float, fold: Callable[[Metadata], T]) -> T:
        topic = Topic(0, "t", Partitions(tuple((each,) for each in self.partitions)), NO_OPERATIONS)
        return fold(Metadata((Broker(0, "host", 9092),), 0, iter([topic])))


def renewed(partitions: Sequence[Partition], *moving: Numbers, most: int = 500) -> dict[int, list[int]]:
    controller = Controller(partitions, *moving)
    assert _renew_leaders(cast("Connection", controller), most) == set()
    return controller.reassigned


def partition(number: int, replicas: tuple[int, ...], in_sync: tuple[int, ...], leader: int = 2) -> Partition:
    return Partition(0, number, leader, 7, replicas, in_sync)


LACKING = partition(0, (2, 0, 1), (2, 1))


def test_replicas_stay_in_their_order_and_others_are_left_alone() -> None:
    others = [partition(1, (0, 1), (1, 0), 0), partition(2, (2, 0), (2,), -1), partition(3, (2, 0, 1), (2,))]
    assert renewed([LACKING, *others], [3]) == {0: [2, 0, 1]}
    assert renewed([LACKING, partition(4, (1, 0), (1,))], [], most=1) == {0: [2, 0, 1]}


@pytest.mark.parametrize(("before", "after"), [([], [0]), ([0], [])], ids=["began", "ended"])
def test_a_reassignment_that_begins_or_ends_meanwhile_is_left_alone(before: Numbers, after: Numbers) -> None:
    """Metadata then lists the former and the new replicas, and another reassignment takes the place of this one."""
    assert renewed([partition(0, (2, 0, 1, 3), (2, 0, 1))], before, after) == {}


def test_a_topic_that_was_deleted_meanwhile_is_no_failure() -> None:
    gone = Controller([LACKING], [], codes=(UNKNOWN_TOPIC, 0))
    assert _renew_leaders(cast("Connection", gone), 500) == set()
    refused = Controller([LACKING], [], codes=(UNAUTHORIZED, UNKNOWN_TOPIC))
    assert _renew_leaders(cast("Connection", refused), 500) == {
        "AlterPartitionReassignments answered ClusterAuthorizationFailedError (31)"
    }
