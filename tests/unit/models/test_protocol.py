"""Order of the versions of the protocol between brokers, as Kafka's `MetadataVersion` has it."""

from __future__ import annotations

import itertools

import pytest

from kraftbridge.models.protocol import Protocol, has_topic_ids, is_bridge, is_known, lacks_topic_ids, lowest

ASCENDING = (
    *("0.10.0-IV1", "0.10.2", "0.11.0-IV2", "1.1-IV0", "2.3-IV1", "2.4-IV0", "2.4", "2.7-IV2", "2.8-IV0", "2.8-IV1"),
    *("2.8", "3.0-IV1", "3.3-IV3", "3.8-IV0", "3.9-IV0", "3.9"),
)


@pytest.mark.parametrize(("lower", "higher"), list(itertools.combinations(ASCENDING, 2)))
def test_versions_are_ordered_as_kafka_orders_them(lower: str, higher: str) -> None:
    one, other = Protocol.of(lower), Protocol.of(higher)
    assert one is not None
    assert other is not None
    assert one < other
    assert lowest([higher, lower, higher]) == lower


@pytest.mark.parametrize("text", ["", "3", "latest", "3.9-IVx", "-1"])
def test_what_kafka_does_not_know_has_no_place(text: str) -> None:
    assert Protocol.of(text) is None
    assert lowest(["3.9", text]) == ""
    assert not is_bridge(text)
    assert not has_topic_ids(text)


def test_a_patch_number_says_nothing_since_1_0() -> None:
    assert Protocol.of("2.8.2") == Protocol.of("2.8")
    assert lowest([]) == ""


@pytest.mark.parametrize(
    ("text", "ids", "bridge", "known"),
    [
        ("2.3-IV1", 0, 0, 0),
        ("2.4-IV0", 0, 0, 1),
        ("2.7-IV2", 0, 0, 1),
        # The controller gives ids with 2.8-IV0, and sends LeaderAndIsr without them.
        ("2.8-IV0", 0, 0, 1),
        ("2.8-IV1", 1, 0, 1),
        ("2.8", 1, 0, 1),
        ("3.9-IV0", 1, 1, 1),
    ],
)
def test_what_a_version_allows(text: str, ids: int, bridge: int, known: int) -> None:
    assert (has_topic_ids(text), is_bridge(text), is_known(text)) == (bool(ids), bool(bridge), bool(known))
    assert lacks_topic_ids(text) != has_topic_ids(text)


def test_a_version_that_nobody_knows_neither_has_ids_nor_lacks_them() -> None:
    assert not has_topic_ids("latest")
    assert not lacks_topic_ids("latest")
