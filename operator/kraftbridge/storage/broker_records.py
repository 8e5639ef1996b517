"""Asks one broker, by its own id, what it is: settings in force, and the offsets of its partitions.

`kafka_brokers` asks the cluster.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from itertools import chain, islice
from typing import Any, Final

from kafka.protocol.admin.cluster import DescribeLogDirsRequest
from kafka.protocol.consumer import ListOffsetsRequest

from kraftbridge.exceptions import ObservationError
from kraftbridge.kafka.client import Security
from kraftbridge.kafka.connections import Connections
from kraftbridge.kafka.listeners import look_at
from kraftbridge.kafka.metadata import Metadata
from kraftbridge.kafka.wire import (
    UNKNOWN_TOPIC,
    Connection,
    WireError,
    brokers_at,
    error_name,
    host_ports,
    none_answered,
)
from kraftbridge.models.broker_record import (
    EffectiveSetting,
    ListenerState,
    OffsetsNow,
    OffsetTable,
    PartitionOffsets,
    TopicPartition,
)
from kraftbridge.models.config_values import ConfigType
from kraftbridge.outside.endpoints import Judge, anywhere
from kraftbridge.storage.kafka_brokers import (
    broker_configs,
    partitions_of,
    shown_value,
    stated_places,
    topic_configs,
)

CONNECT_SECONDS: Final = 3.0
REQUEST_SECONDS: Final = 20.0
_BATCH_TOPICS: Final = 200
"""Topics whose settings one request asks for."""
_BATCH_PARTITIONS: Final = 5000
"""Partitions whose offsets one request asks for."""
_PART_PARTITIONS: Final = 15_000
"""Partitions that are asked for together, at three leaders or so."""
_EARLIEST: Final = -2
_LATEST: Final = -1
_CONSUMER: Final = -1
_DEBUGGING: Final = -2
"""``ListOffsetsRequest.DEBUGGING_REPLICA_ID``: a broker answers for its own log,
whoever leads (``KafkaApis.handleListOffsetRequest``)."""
_RETENTION: Final = ("cleanup.policy", "retention.bytes", "retention.ms")
_LEAST_VERSION: Final = 5
"""From version 5 on a new leader says so while its high watermark is not known (KIP-207)."""

Offsets = dict[TopicPartition, int | str]
"""Offset of each partition, or why there is none."""


class BrokerRecordClient:
    """Asks brokers on connections of its own, which `close` ends. Not thread-safe.

    Parameters
    ----------
    bootstrap_servers, client_properties, judge
        As for `kraftbridge.storage.kafka_brokers.BrokerClient`.
    """

    def __init__(self, bootstrap_servers: str, client_properties: Mapping[str, str], judge: Judge = anywhere) -> None:
        self._bootstrap = host_ports(bootstrap_servers)
        self._judge = judge
        self._security = Security.from_properties(client_properties, judge=judge)
        self._source = brokers_at(bootstrap_servers)
        self._connections = Connections(self._security)
        self._known: dict[int, tuple[str, int]] = {}

    def close(self) -> None:
        """Close all connections."""
        self._connections.close()

    def address(self, broker: int) -> tuple[str, int] | None:
        """Return where clients of the operator's listener find a broker, as another one tells them; None if none tells.

        Raises
        ------
        ObservationError
            No broker answers.
        """
        return self._addresses().get(broker)

    def listener(self, name: str, host: str, port: int, protocol: str) -> ListenerState:
        """Return what a client sees at a listener that has no login."""
        return look_at(name, host, port, protocol, self._judge)

    def settings(self, broker: int) -> dict[str, EffectiveSetting]:
        """Return every setting of a broker, as it answers itself.

        Raises
        ------
        ObservationError
            It does not answer, or the principal may not describe its configuration.
        """
        with _observing(f"settings of broker {broker}"):
            configs = broker_configs(self._to(broker), broker, REQUEST_SECONDS)
        return {str(config.name): _setting(config) for config in configs}

    def offsets(self, broker: int, holds_for: timedelta) -> Mapping[TopicPartition, PartitionOffsets]:
        """Return where the partitions of a broker begin and end, as their leaders answer.

        Each has its limit: how far retention may go within ``holds_for``.

        Partitions without a leader are left out.

        Raises
        ------
        ObservationError
            A leader does not answer for a partition, or the principal may not read a topic's configuration.
        """
        served, _ = self._partitions(broker)
        partitions = iter([(tp, leader_and_id) for tp, leader_and_id in served.items() if leader_and_id[0] >= 0])
        del served
        table = OffsetTable()
        # In parts: what is asked of 200,000 partitions takes 150 MiB until it is in the table.
        while part := dict(islice(partitions, _PART_PARTITIONS)):
            for tp, offsets in self._offsets_of(part, holds_for).items():
                table.add(tp, offsets)
        return table

    def _offsets_of(
        self, partitions: Mapping[TopicPartition, tuple[int, str]], holds_for: timedelta
    ) -> dict[TopicPartition, PartitionOffsets]:
        """Return the offsets of partitions, by their leaders and topic ids."""
        leaders = {tp: leader for tp, (leader, _) in partitions.items()}
        ends = self._of_leaders(leaders, dict.fromkeys(leaders, _LATEST))
        starts = self._of_leaders(leaders, dict.fromkeys(leaders, _EARLIEST))
        for tp, answer in chain(ends.items(), starts.items()):
            _offset_of(tp, answer)
        offsets = {
            tp: PartitionOffsets(
                _offset_of(tp, starts[tp]), _offset_of(tp, ends[tp]), _offset_of(tp, starts[tp]), topic_id=topic_id
            )
            for tp, (_, topic_id) in partitions.items()
        }
        return offsets | self._limited(leaders, offsets, holds_for)

    def offsets_now(
        self, broker: int, record: Mapping[TopicPartition, PartitionOffsets]
    ) -> dict[TopicPartition, OffsetsNow | str]:
        """Return where the recorded partitions of a broker begin and end now.

        Left out are those of deleted topics, which no broker knows any more, and those that the broker has no more.

        The broker itself is asked for the beginning of its own logs.

        Raises
        ------
        ObservationError
            No broker answers, or the restarted one does not.
        """
        served, topics = self._partitions(broker)
        leaders = {
            tp: leader
            for tp, (leader, topic_id) in served.items()
            if tp in record and _is_same(record[tp].topic_id, topic_id)
        }
        unlisted = self._not_deleted(sorted({topic for topic, _ in record} - topics))
        offsets: dict[TopicPartition, OffsetsNow | str] = {tp: unlisted[tp[0]] for tp in record if tp[0] in unlisted}
        offsets |= {tp: "no leader" for tp, leader in leaders.items() if leader < 0}
        asked = {tp: leader for tp, leader in leaders.items() if leader >= 0}
        ends = self._of_leaders(asked, dict.fromkeys(asked, _LATEST))
        starts = self._of_leaders(asked, dict.fromkeys(asked, _EARLIEST))
        own_starts = self._of_broker(broker, dict.fromkeys(asked, _EARLIEST), _DEBUGGING)
        for tp, leader in asked.items():
            offsets[tp] = _offsets_now(starts[tp], ends[tp], own_starts[tp], leads=leader == broker)
        return offsets | self._sized(broker, record, offsets)

    # -------------------------------------------------------------------------------------------- parts

    def _limited(
        self,
        leaders: Mapping[TopicPartition, int],
        offsets: Mapping[TopicPartition, PartitionOffsets],
        holds_for: timedelta,
    ) -> dict[TopicPartition, PartitionOffsets]:
        """Return the partitions of which retention may delete records, with its limits.

        Retention by age deletes segments whose newest record is older
        than ``retention.ms`` (``UnifiedLog.deleteRetentionMsBreachedSegments``).
        So it does not go beyond the first record that is younger.
        """
        filled = [tp for tp, partition in offsets.items() if partition.end > partition.start]
        retention = self._retention(sorted({topic for topic, _ in filled}))
        now_ms = int((time.time() + holds_for.total_seconds()) * 1000)
        retention = {topic: of for topic, of in retention.items() if "delete" in of["cleanup.policy"]}
        deleting = {tp: retention[tp[0]] for tp in filled if tp[0] in retention}
        by_age = {
            tp: now_ms - int(topic["retention.ms"]) for tp, topic in deleting.items() if int(topic["retention.ms"]) >= 0
        }
        first_young = self._of_leaders(leaders, by_age)
        limited = {}
        for tp, topic in deleting.items():
            partition = offsets[tp]
            limit = _offset_of(tp, first_young.get(tp, partition.start))
            reached = partition.end if limit < 0 else max(limit, partition.start)
            limited[tp] = replace(partition, limit=reached, retention_bytes=int(topic["retention.bytes"]))
        return limited

    def _retention(self, topics: list[str]) -> dict[str, dict[str, str]]:
        retention: dict[str, dict[str, str]] = {}
        for start in range(0, len(topics), _BATCH_TOPICS):
            batch = dict.fromkeys(topics[start : start + _BATCH_TOPICS], _RETENTION)
            with _observing(self._source):
                configs = topic_configs(self._any(), batch, REQUEST_SECONDS)
            for topic, settings in configs.items():
                retention[topic] = {name: value or "" for name, value in settings.items()}
        return retention

    def _sized(
        self,
        broker: int,
        record: Mapping[TopicPartition, PartitionOffsets],
        offsets: Mapping[TopicPartition, OffsetsNow | str],
    ) -> dict[TopicPartition, OffsetsNow | str]:
        """Return the partitions whose beginning only retention by size can explain, with the size of their logs."""
        known = {tp: now for tp, now in offsets.items() if isinstance(now, OffsetsNow)}
        risen = {
            tp: now for tp, now in known.items() if now.own_start > record[tp].limit and record[tp].retention_bytes >= 0
        }
        if not risen:
            return {}
        row = DescribeLogDirsRequest.DescribableLogDirTopic
        by_topic: dict[str, list[int]] = {}
        for name, partition in risen:
            by_topic.setdefault(name, []).append(partition)
        wanted = [row(topic=name, partitions=partitions) for name, partitions in by_topic.items()]
        with _observing(f"log directories of broker {broker}"):
            answer = self._to(broker).call(DescribeLogDirsRequest, REQUEST_SECONDS, max_version=4, topics=wanted)
        sizes = {
            (str(topic.name), int(partition.partition_index)): int(partition.partition_size)
            for directory in answer.results
            for topic, partition in partitions_of(directory.topics)
        }
        return {tp: replace(now, own_bytes=sizes.get(tp)) for tp, now in risen.items()}

    # -------------------------------------------------------------------------------------------- questions

    def _of_leaders(self, leaders: Mapping[TopicPartition, int], timestamps: Mapping[TopicPartition, int]) -> Offsets:
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        for tp, timestamp in timestamps.items():
            by_leader.setdefault(leaders[tp], {})[tp] = timestamp
        offsets: Offsets = {}
        for leader, wanted in sorted(by_leader.items()):
            offsets |= self._of_broker(leader, wanted, _CONSUMER)
        return offsets

    def _of_broker(self, broker: int, timestamps: Mapping[TopicPartition, int], replica_id: int) -> Offsets:
        offsets: Offsets = {}
        wanted = sorted(timestamps.items())
        for start in range(0, len(wanted), _BATCH_PARTITIONS):
            batch = wanted[start : start + _BATCH_PARTITIONS]
            try:
                offsets |= self._list_offsets(self._to(broker), batch, replica_id)
            except WireError as error:
                offsets |= dict.fromkeys(dict(batch), f"broker {broker}: {error}")
        return offsets

    @staticmethod
    def _list_offsets(connection: Connection, wanted: Iterable[tuple[TopicPartition, int]], replica_id: int) -> Offsets:
        topic = ListOffsetsRequest.ListOffsetsTopic
        by_topic: dict[str, list[Any]] = {}
        for (name, partition), timestamp in wanted:
            row = topic.ListOffsetsPartition(partition_index=partition, current_leader_epoch=-1, timestamp=timestamp)
            by_topic.setdefault(name, []).append(row)
        answer = connection.call(
            ListOffsetsRequest,
            REQUEST_SECONDS,
            max_version=7,
            min_version=_LEAST_VERSION,
            replica_id=replica_id,
            isolation_level=0,
            topics=[topic(name=name, partitions=rows) for name, rows in by_topic.items()],
        )
        offsets: Offsets = {}
        for answered, row in partitions_of(answer.topics):
            tp = (str(answered.name), int(row.partition_index))
            offsets[tp] = error_name(row.error_code) if row.error_code else int(row.offset)
        return offsets

    def _not_deleted(self, topics: list[str]) -> dict[str, str]:
        """Return why topics that one broker does not list are not taken for deleted.

        A topic that every broker calls unknown is left out.

        A broker that has just started serves an empty list of topics.
        """
        reasons: dict[str, str] = {}
        for start in range(0, len(topics), _BATCH_TOPICS):
            batch = topics[start : start + _BATCH_TOPICS]
            for broker in sorted(self._addresses()):
                try:
                    answer = self._to(broker).metadata(REQUEST_SECONDS, batch)
                except WireError as error:
                    reasons |= dict.fromkeys(batch, f"broker {broker}: {error}")
                    continue
                unknown = {str(topic.name) for topic in answer.topics if topic.error_code == UNKNOWN_TOPIC}
                reasons |= dict.fromkeys(set(batch) - unknown, "the brokers do not agree whether the topic exists")
        return reasons

    def _partitions(self, broker: int) -> tuple[dict[TopicPartition, tuple[int, str]], set[str]]:
        """Return leader and topic id of each partition that a broker has, and the topics that are listed.

        The leader is -1 where there is none.
        """

        def of_broker(answer: Metadata) -> tuple[dict[TopicPartition, tuple[int, str]], set[str]]:
            partitions = {}
            listed = set()
            for topic in answer.topics:
                if topic.error_code == UNKNOWN_TOPIC:
                    continue
                listed.add(topic.name)
                if topic.error_code:
                    raise ObservationError(f"topic {topic.name}", error_name(topic.error_code))
                for partition in topic.partitions:
                    if broker in partition.replica_nodes:
                        partitions[topic.name, partition.partition_index] = (partition.leader_id, topic.topic_id)
            return partitions, listed

        with _observing(self._source):
            return self._any().all_topics(REQUEST_SECONDS, of_broker)

    def _addresses(self) -> dict[int, tuple[str, int]]:
        if self._known:
            return self._known
        failures = []
        for host, port in self._bootstrap:
            try:
                with Connection(host, port, self._security, CONNECT_SECONDS) as connection:
                    answer = connection.metadata(REQUEST_SECONDS)
            except WireError as error:
                failures.append(f"{host}:{port}: {error}")
                continue
            self._known = {int(b.node_id): (str(b.host), int(b.port)) for b in answer.brokers}
            if self._known:
                return self._known
            failures.append(f"{host}:{port}: it knows no brokers as yet")
        raise ObservationError(self._source, none_answered(failures))

    def _any(self) -> Connection:
        """Return a connection to some broker."""
        addresses = self._addresses()
        for broker in sorted(addresses, key=lambda broker: addresses[broker] not in self._connections):
            try:
                return self._to(broker)
            except WireError:
                continue
        raise ObservationError(self._source, "no broker answers")

    def _to(self, broker: int) -> Connection:
        address = self._addresses().get(broker)
        if address is None:
            raise WireError(f"no broker lists broker {broker}")
        return self._connections.to(address, CONNECT_SECONDS)


@contextmanager
def _observing(source: str) -> Iterator[None]:
    try:
        yield
    except WireError as error:
        raise ObservationError(source, str(error)) from error


def _is_same(recorded: str, now: str) -> bool:
    """Return whether a topic is the one that was recorded, by its ids. Before Kafka 2.8 it has none to tell by."""
    return not (recorded and now) or recorded == now


def _offset_of(tp: TopicPartition, answer: int | str) -> int:
    if isinstance(answer, str):
        topic, partition = tp
        raise ObservationError(f"offsets of {topic}-{partition}", answer)
    return answer


def _offsets_now(start: int | str, end: int | str, own_start: int | str, *, leads: bool) -> OffsetsNow | str:
    """Return the offsets, or why one of them is not known."""
    if isinstance(end, str):
        return end
    if isinstance(start, str):
        return start
    if isinstance(own_start, str):
        return own_start
    return OffsetsNow(start, end, own_start, leads)


def _setting(config: Any) -> EffectiveSetting:
    return EffectiveSetting(
        value=shown_value(config, config.value),
        sensitive=bool(config.is_sensitive),
        type=ConfigType(config.config_type or 0),
        stated=stated_places(config),
    )
