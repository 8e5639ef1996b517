"""The probe of `spec.measure`: what it may not do, and what it says when it can't."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka.protocol.admin.topics import CreateTopicsResponse, DeleteTopicsResponse
from kafka.protocol.metadata.metadata import MetadataResponse
from tests.unit.storage.servers import KafkaNode

from kraftbridge.exceptions import ActionError
from kraftbridge.kafka.security import Security
from kraftbridge.storage.change_probe import _quantile, measure_changes, remove_topic

METADATA, CREATE, DELETE, ALTER, DESCRIBE = 3, 19, 20, 44, 32
VERSIONS = {METADATA: (0, 9), CREATE: (0, 7), DELETE: (0, 6), ALTER: (0, 1), DESCRIBE: (0, 4)}
TOPIC = "kraftbridge-probe-x-1-zookeeper"

MakeBroker = Callable[..., KafkaNode]


def described(name: str) -> Any:
    """Return a topic of one partition as Metadata describes it."""
    topic = MetadataResponse.MetadataResponseTopic
    partition = topic.MetadataResponsePartition(
        error_code=0,
        partition_index=0,
        leader_id=0,
        leader_epoch=1,
        replica_nodes=[0],
        isr_nodes=[0],
        offline_replicas=[],
    )
    return topic(error_code=0, name=name, is_internal=False, partitions=[partition])


@pytest.fixture
def make_broker() -> Iterator[MakeBroker]:
    nodes: list[KafkaNode] = []

    def make(topics: list[str], answers: dict[int, Any]) -> KafkaNode:
        node = KafkaNode(answers, VERSIONS)
        nodes.append(node)
        node.answers[METADATA] = (
            MetadataResponse,
            {
                "throttle_time_ms": 0,
                "brokers": [
                    MetadataResponse.MetadataResponseBroker(node_id=0, host="127.0.0.1", port=node.port, rack=None)
                ],
                "cluster_id": "c",
                "controller_id": 0,
                "topics": [described(name) for name in topics],
            },
        )
        return node

    yield make
    for node in nodes:
        node.close()


def created(error: int, words: str | None = None) -> Any:
    topic = CreateTopicsResponse.CreatableTopicResult(name=TOPIC, error_code=error, error_message=words)
    return CreateTopicsResponse, {"throttle_time_ms": 0, "topics": [topic]}


def deleted(error: int) -> Any:
    topic = DeleteTopicsResponse.DeletableTopicResult(name=TOPIC, error_code=error, error_message="words")
    return DeleteTopicsResponse, {"throttle_time_ms": 0, "responses": [topic]}


@pytest.mark.parametrize("error", [29, 31])
def test_a_missing_right_is_named_and_nothing_is_left(make_broker: MakeBroker, error: int) -> None:
    broker = make_broker([], {CREATE: created(error, "no")})
    result = measure_changes([broker.address], Security(), TOPIC)
    assert result.topic == TOPIC
    assert result.changes == 0
    assert result.visible_p50_ms is None
    assert "the principal needs Create on the topic" in result.note
    assert DELETE not in broker.asked


def test_a_topic_of_that_name_is_left_alone(make_broker: MakeBroker) -> None:
    broker = make_broker([TOPIC], {})
    result = measure_changes([broker.address], Security(), TOPIC)
    assert "exists already" in result.note
    assert not {CREATE, DELETE, ALTER} & set(broker.asked)


def test_what_was_created_is_deleted_although_the_rest_failed(make_broker: MakeBroker) -> None:
    broker = make_broker([], {CREATE: created(0), DELETE: deleted(0)})

    class Appearing(dict[int, Any]):
        """The topic is there once it was created."""

        def __getitem__(self, key: int) -> Any:
            response, fields = super().__getitem__(key)
            if key == METADATA and CREATE in broker.asked:
                fields = fields | {"topics": [described(TOPIC)]}
            return response, fields

    broker.answers = Appearing(broker.answers)
    broker._versions = {k: v for k, v in VERSIONS.items() if k != ALTER}
    result = measure_changes([broker.address], Security(), TOPIC)
    assert result.changes == 1
    assert result.note.startswith("AlterTopicConfig") or "does not answer IncrementalAlterConfigs" in result.note
    assert broker.asked.count(DELETE) == 1


def test_nobody_there_is_a_note() -> None:
    node = KafkaNode({}, {})
    node.close()
    result = measure_changes([node.address], Security(), TOPIC)
    assert "refused" in result.note
    assert result.changes == 0


def test_a_left_over_topic_is_removed_and_one_that_is_gone_is_no_error(make_broker: MakeBroker) -> None:
    broker = make_broker([TOPIC], {DELETE: deleted(0)})
    remove_topic([broker.address], Security(), TOPIC)
    assert broker.asked.count(DELETE) == 1
    gone = make_broker([], {})
    remove_topic([gone.address], Security(), TOPIC)
    assert DELETE not in gone.asked


def test_a_left_over_topic_that_cannot_be_removed_is_an_error_with_the_right(make_broker: MakeBroker) -> None:
    broker = make_broker([TOPIC], {DELETE: deleted(29)})
    with pytest.raises(ActionError, match="needs Delete on the topic"):
        remove_topic([broker.address], Security(), TOPIC)


@pytest.mark.parametrize(
    ("part", "values", "expected"),
    [
        (0.5, [], None),
        (0.5, [7.0], 7.0),
        (0.5, [1.0, 2.0, 3.0, 4.0], 2.0),
        (0.99, [float(i) for i in range(1, 21)], 20.0),
        (0.99, [float(i) for i in range(1, 201)], 198.0),
    ],
)
def test_quantiles_are_nearest_rank(part: float, values: list[float], expected: float | None) -> None:
    assert _quantile(values, part) == expected
