"""Many brokers of many partitions: what is asked of all of them, and how their large answers are read."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.admin.cluster import DescribeLogDirsResponse
from kafka.protocol.metadata import MetadataResponse
from tests.support.wire_servers import (
    KafkaNode,
    always,
    answered,
    integers,
    metadata,
    metadata_of,
    topic,
    topic_of,
    uv,
)

from kraftbridge.kafka.client import Security
from kraftbridge.kafka.metadata import Frame, Metadata, read
from kraftbridge.kafka.wire import Connection, WireError
from kraftbridge.models.observation import TopicIds, Unobserved
from kraftbridge.outside import bounds
from kraftbridge.storage import kafka_brokers as module
from kraftbridge.storage import log_dirs
from kraftbridge.storage.kafka_brokers import BrokerClient
from kraftbridge.storage.replicas import Seen

HOST: Final = "127.0.0.1"


@contextmanager
def cluster(brokers: int, topics: bytes = b"", count: int = 0, **how: Any) -> Iterator[tuple[KafkaNode, BrokerClient]]:
    """Run brokers at one address."""

    def send(connection: socket.socket, request: bytes) -> None:
        answered(connection, request, metadata(topics, count, brokers, node.port, HOST))

    node = KafkaNode(send, **how)
    client = BrokerClient(node.address, {})
    try:
        yield node, client
    finally:
        client.close()
        node.close()


def test_waiting_for_another_question_is_no_silence_of_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a hundred brokers the canary was never seen: each step read their partitions first."""
    monkeypatch.setattr(module, "CALL_SECONDS", 1.5)
    with cluster(3, topic("t", 1), 1, delay_seconds=0.3) as (_, client):
        client.cluster_state()
        views: list[Any] = []
        reading = threading.Thread(target=lambda: views.append(client.cluster_by_broker()))
        with client._each_lock:
            reading.start()
        features = client.features()
        reading.join()
    assert [each for each in (*features.values(), *views[0].values()) if isinstance(each, Unobserved)] == []


def test_time_in_which_brokers_were_silent_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CALL_SECONDS", 0.1)
    with cluster(1) as (_, client):
        client.cluster_state()
        found: list[Any] = []
        asking = threading.Thread(target=lambda: found.append(client.serves_topic("t")))
        with client._each_lock:
            asking.start()
            asking.join(0.4)
        asking.join()
    assert "not asked, because" in str(found[0][0])


def test_brokers_are_asked_at_the_same_time_and_those_at_one_address_in_turn() -> None:
    together = threading.Barrier(4, timeout=5)
    found = module._at_once({broker: (HOST, broker) for broker in range(8)}, lambda broker: (broker, together.wait()))
    assert [broker for broker, _ in found.values()] == list(found) == list(range(8))
    order: list[int] = []
    module._at_once(dict.fromkeys(range(40), (HOST, 1)), order.append)
    assert order == list(range(40))
    assert [each.name for each in threading.enumerate() if each.name.startswith("brokers")] == []


def test_brokers_are_asked_within_the_step_that_asks() -> None:
    step: ContextVar[str] = ContextVar("step", default="none")
    step.set("this one")
    found = module._at_once({broker: (HOST, broker) for broker in range(8)}, lambda _broker: step.get())
    assert set(found.values()) == {"this one"}


def test_a_defect_in_one_question_is_raised_and_leaves_no_thread() -> None:
    def ask(broker: int) -> None:
        if broker == 3:
            raise LookupError("broker 3")

    with pytest.raises(LookupError, match="broker 3"):
        module._at_once({broker: (HOST, broker) for broker in range(8)}, ask)
    assert [each.name for each in threading.enumerate() if each.name.startswith("brokers")] == []


@pytest.fixture
def short_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each broker list its topics at once; broker 0 is silent."""

    def ids(_connection: Connection, broker: int, process: str) -> TopicIds:
        if not broker:
            raise WireError("silent")
        return TopicIds(process, "3.9", broker, (), 0, ())

    monkeypatch.setattr(module, "_topic_ids", ids)


@pytest.mark.usefixtures("short_lists")
def test_a_call_reads_the_lists_of_topics_that_it_can() -> None:
    with cluster(9) as (_, client):
        found = client.topic_ids({broker: f"uid-{broker}" for broker in range(10)})
    assert sorted(found) == list(range(10))
    assert {broker for broker, answer in found.items() if isinstance(answer, Unobserved)} == {0, 9}


@pytest.mark.usefixtures("short_lists")
def test_no_broker_keeps_another_one_from_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that answers, and never shows all ids, is asked in every call, too."""
    monkeypatch.setattr(module, "_READ_SECONDS", -1.0)
    processes = {broker: f"uid-{broker}" for broker in range(4)}
    with cluster(4) as (_, client):
        asked = [sorted(client.topic_ids(processes)) for _ in range(4)]
    assert asked == [[0, 1], [0, 2], [0, 3], [0, 1]]


def test_reading_leader_epochs_of_many_brokers_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_EVERY_VIEW_SECONDS", 0.5)

    def epochs(_connection: Connection) -> dict[tuple[str, int], int]:
        time.sleep(0.2)
        return {("t", 0): 5}

    monkeypatch.setattr(module, "_leader_epochs", epochs)
    with cluster(6) as (_, client):
        assert client.leader_epochs() == ({("t", 0): 5}, frozenset())


# ------------------------------------------------------------------------------------------------ Metadata


class Sent:
    """A socket with bytes that were sent, a few at a time."""

    def __init__(self, sent: bytes, at_a_time: int) -> None:
        self._left = memoryview(sent)
        self._at_a_time = at_a_time

    def settimeout(self, seconds: float) -> None:
        """Wait for nothing."""

    def recv(self, most: int) -> bytes:
        """Return the next bytes."""
        count = min(most, self._at_a_time)
        chunk, self._left = bytes(self._left[:count]), self._left[count:]
        return chunk


def read_of(body: bytes, version: int, at_a_time: int = 1 << 20, length: int | None = None) -> Metadata:
    """Read an answer with all of its topics."""
    sent = struct.pack(">i", len(body) if length is None else length) + body
    frame = Frame(Sent(sent, at_a_time), lambda: 1.0, "n", 1 << 20)  # type: ignore[arg-type]
    found = read(frame, 7, version)
    whole = Metadata(found.brokers, found.controller_id, iter(list(found.topics)))
    assert not frame.remaining
    return whole


NODES: Final = st.lists(st.integers(0, 2**31 - 1), max_size=13)
USUAL: Final = st.tuples(st.lists(st.integers(0, 99), min_size=3, max_size=3), st.integers(0, 99))


def array(nodes: Sequence[int] | None) -> bytes:
    """Return a compact array, which may be null."""
    return uv(0) if nodes is None else integers(*nodes)


@st.composite
def partitions(draw: st.DrawFn) -> bytes:
    """Return a partition of the usual form, of one that occurs while a broker is away, or of a rare one."""
    head = struct.pack(">hi", draw(st.sampled_from((0, 0, 0, 5))), draw(st.integers(0, 2**31 - 1)))
    if draw(st.integers(0, 4)):
        replicas, leader = draw(USUAL)
        in_sync = draw(st.sampled_from((replicas, replicas, replicas[1:])))
        return head + struct.pack(">ii", leader, 9) + integers(*replicas) + integers(*in_sync) + integers() + b"\0"
    arrays = b"".join(array(draw(st.none() | NODES)) for _ in range(3))
    tags = draw(st.sampled_from((uv(0), uv(1) + uv(0) + uv(2) + b"xx")))
    return head + struct.pack(">ii", draw(st.integers(-1, 2**31 - 1)), 9) + arrays + tags


@st.composite
def answers(draw: st.DrawFn, version: int) -> bytes:
    """Return a Metadata answer with its number."""
    brokers = []
    for node in range(draw(st.integers(0, 3))):
        rack = draw(st.sampled_from((uv(0), uv(1), uv(2) + b"r")))
        brokers.append(struct.pack(">i", node) + uv(2) + b"h" + struct.pack(">i", 9092) + rack + b"\0")
    topics = []
    for number in range(draw(st.integers(0, 4))):
        each = draw(st.lists(partitions(), max_size=8))
        # Long runs are made of the same partitions: they are as long for the decoder as those of different ones.
        each *= draw(st.sampled_from((1, 1, 40)))
        identity = bytes([number] * 16) if version > 9 else b""
        topics.append(topic_of(f"topic-{number}", each, draw(st.integers(-(2**31), 2**31 - 1)), identity))
    return struct.pack(">i", 7) + metadata_of(brokers, b"".join(topics), len(topics), 1)


@pytest.mark.parametrize("version", [9, 10])
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_metadata_is_read_as_kafka_python_reads_it(version: int, data: st.DataObject) -> None:
    body = data.draw(answers(version))
    found = read_of(body, version, data.draw(st.sampled_from((1, 100, 1 << 20))))
    wanted = MetadataResponse.decode(body, version=version, header=True)
    assert [(b.node_id, b.host, b.port, b.rack) for b in found.brokers] == [
        (b.node_id, b.host, b.port, b.rack or "") for b in wanted.brokers
    ]
    assert found.controller_id == wanted.controller_id
    topics = list(found.topics)
    assert [each.name for each in topics] == [each.name for each in wanted.topics]
    for topic_found, topic_wanted in zip(topics, wanted.topics, strict=True):
        rows = [
            (
                p.error_code,
                p.partition_index,
                p.leader_id,
                p.leader_epoch,
                tuple(p.replica_nodes or ()),
                tuple(p.isr_nodes or ()),
            )
            for p in topic_wanted.partitions
        ]
        assert [tuple(each) for each in topic_found.partitions] == rows
        assert len(topic_found.partitions) == len(rows)
        assert topic_found.topic_id == (topic_wanted.topic_id.hex if topic_wanted.topic_id else "")
        unsettled = [p for p in topic_found.partitions if p.leader_id < 0 or len(p.isr_nodes) < len(p.replica_nodes)]
        seen = list(topic_found.partitions.unsettled())
        assert [p for p in unsettled if p not in seen] == []
    again = list(read_of(body, version).topics)
    assert [each.partitions for each in again] == [each.partitions for each in topics]


@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_metadata_that_ends_at_any_byte_is_refused(data: st.DataObject) -> None:
    body = data.draw(answers(10).filter(lambda body: len(body) < 2_000))
    for end in range(len(body)):
        with pytest.raises((ValueError, bounds.BoundExceededError)):
            read_of(body[:end], 10)
        with pytest.raises(ConnectionResetError):
            read_of(body[:end], 10, length=len(body))


def partition(number: int, in_sync: Sequence[int], leader: int = 1) -> bytes:
    """Return a partition of three replicas."""
    return struct.pack(">hiii", 0, number, leader, 5) + integers(1, 2, 3) + integers(*in_sync) + integers() + b"\0"


def test_what_brokers_serve_differently_is_put_together() -> None:
    first = topic_of("t", [partition(0, (1, 2, 3)), partition(1, (1, 2, 3))]) + topic_of("u", [partition(0, (1, 2))])
    second = topic_of("t", [partition(1, (2, 3), leader=2), partition(0, (1, 2, 3))]) + topic_of(
        "u", [partition(0, (1, 2))]
    )
    seen = Seen("brokers")
    for body in (first, second):
        seen.add(read_of(struct.pack(">i", 7) + metadata_of([], body, 2), 9))
    assert [len(each) for each in seen.topics.values()] == [2, 1]
    found = seen.assignments({"t": 2, "u": 2}, frozenset())
    assert {each.example: (sorted(each.brokers), sorted(each.in_sync)) for each in found.replicas} == {
        "t-0": ([1, 2, 3], [1, 2, 3]),
        "t-1": ([1, 2, 3], [2, 3]),
        "u-0": ([1, 2, 3], [1, 2]),
    }
    assert found.leaders == {1, 2}


# ------------------------------------------------------------------------------------------------ log directories


def test_what_topics_assign_is_left_out_of_the_directories() -> None:
    listing = log_dirs.Listing("/data", "", {"t": (0, 1, 4), "u": (0,)})
    body = topic_of("t", [partition(1, (1, 2, 3))]) + topic_of("u", [partition(0, (1, 2, 3))])
    answer = read_of(struct.pack(">i", 7) + metadata_of([], body, 2), 9)
    log_dirs.forget_assigned(answer, {1: [listing]})
    assert listing.log_dir().leftovers == ("t-0", "t-4")


@pytest.mark.parametrize("version", range(5))
def test_directories_are_listed_with_what_is_moved_into_them(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_dirs, "_NEWEST", version)
    result = DescribeLogDirsResponse.DescribeLogDirsResult
    listed, row = result.DescribeLogDirsTopic, result.DescribeLogDirsTopic.DescribeLogDirsPartition

    def topic_with(name: str, *logs: tuple[int, bool]) -> Any:
        partitions = [row(partition_index=i, partition_size=1, offset_lag=0, is_future_key=moved) for i, moved in logs]
        return listed(name=name, partitions=partitions)

    topics = [topic_with("t", (0, False), (7, True), (3, False)), topic_with("__cluster_metadata", (0, False))]
    moved = [topic_with("u", (2, True))]
    results = [
        result(error_code=0, log_dir="/a", topics=topics, total_bytes=1, usable_bytes=1),
        result(error_code=56, log_dir="/b", topics=moved, total_bytes=1, usable_bytes=1),
    ]
    answer = DescribeLogDirsResponse(version=version, throttle_time_ms=0, error_code=0, results=results)
    answer.with_header(correlation_id=1)
    body = bytes(answer.encode(framed=False, header=True))[4:]
    node = KafkaNode(always(body))
    with Connection(HOST, node.port, Security(), 5.0) as connection:
        first, second = log_dirs.listed(connection, 5.0)
    node.close()
    assert (first.replicas, first.future, first.error) == ({"t": (0, 3)}, ["t-7"], "")
    assert (second.replicas, second.future) == ({}, ["u-2"])
    assert "KafkaStorageError" in second.error


def test_log_directories_that_end_in_the_middle_cost_the_observation_only() -> None:
    node = KafkaNode(always(b"\0" + struct.pack(">ih", 0, 0) + uv(2) + struct.pack(">h", 0) + uv(9)))
    with Connection(HOST, node.port, Security(), 5.0) as connection:
        with pytest.raises(WireError):
            log_dirs.listed(connection, 5.0)
        assert not connection.usable
    node.close()
