"""Asks one broker, by its own id, what it is: settings in force, and the offsets of its partitions.

`kafka_brokers` asks the cluster.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from itertools import islice
from typing import Any, Final

from kafka.protocol.admin.cluster import DescribeLogDirsRequest
from kafka.protocol.consumer import ListOffsetsRequest

from kraftbridge.exceptions import ObservationError
from kraftbridge.kafka.client import Security
from kraftbridge.kafka.listeners import look_at
from kraftbridge.kafka.metadata import Metadata
from kraftbridge.kafka.wire import UNKNOWN_TOPIC, Connection, WireError, error_name, host_ports
from kraftbridge.models.broker_record import (
    EffectiveSetting,
    ListenerState,
    OffsetsNow,
    OffsetTable,
    PartitionOffsets,
    TopicPartition,
)
from kraftbridge.models.config_values import ConfigType
from kraftbridge.storage.kafka_brokers import broker_configs, stated_places, topic_configs

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
    bootstrap_servers, client_properties
        As for `kraftbridge.storage.kafka_brokers.BrokerClient`.
    """

    def __init__(self, bootstrap_servers: str, client_properties: Mapping[str, str]) -> None:
        self._bootstrap = host_ports(bootstrap_servers)
        self._security = Security.from_properties(client_properties)
        self._source = f"brokers {bootstrap_servers}"
        self._connections: dict[int, Connection] = {}
        self._known: dict[int, tuple[str, int]] = {}

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

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
        return look_at(name, host, port, protocol)

    def settings(self, broker: int) -> dict[str, EffectiveSetting]:
        """Return every setting of a broker, as it answers itself.

        Raises
        ------
        ObservationError
            It does not answer, or the principal may not describe its configuration.
        """
        try:
            configs = broker_configs(self._to(broker), broker, REQUEST_SECONDS)
        except WireError as error:
            raise ObservationError(f"settings of broker {broker}", str(error)) from error
        return {str(c.name): _setting(c) for c in configs}

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
        partitions = iter([(tp, of) for tp, of in served.items() if of[0] >= 0])
        del served
        found = OffsetTable()
        # In parts: what is asked of 200,000 partitions takes 150 MiB until it is in the table.
        while part := dict(islice(partitions, _PART_PARTITIONS)):
            for tp, offsets in self._offsets_of(part, holds_for).items():
                found.add(tp, offsets)
        return found

    def _offsets_of(
        self, partitions: Mapping[TopicPartition, tuple[int, str]], holds_for: timedelta
    ) -> dict[TopicPartition, PartitionOffsets]:
        """Return the offsets of partitions, by their leaders and topic ids."""
        leaders = {tp: leader for tp, (leader, _) in partitions.items()}
        ends = self._of_leaders(leaders, dict.fromkeys(leaders, _LATEST))
        starts = self._of_leaders(leaders, dict.fromkeys(leaders, _EARLIEST))
        silent = next(((tp, o) for found in (ends, starts) for tp, o in found.items() if isinstance(o, str)), None)
        if silent is not None:
            (topic, partition), why = silent
            raise ObservationError(f"offsets of {topic}-{partition}", why)
        found = {
            tp: PartitionOffsets(_number(starts[tp]), _number(ends[tp]), _number(starts[tp]), topic_id=topic_id)
            for tp, (_, topic_id) in partitions.items()
        }
        return found | self._limited(leaders, found, holds_for)

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
            tp: leader for tp, (leader, topic_id) in served.items() if tp in record and topic_id == record[tp].topic_id
        }
        unlisted = self._not_deleted(sorted({topic for topic, _ in record} - topics))
        missing: dict[TopicPartition, OffsetsNow | str] = {tp: unlisted[tp[0]] for tp in record if tp[0] in unlisted}
        missing |= {tp: "no leader" for tp, leader in leaders.items() if leader < 0}
        asked = {tp: leader for tp, leader in leaders.items() if leader >= 0}
        ends = self._of_leaders(asked, dict.fromkeys(asked, _LATEST))
        starts = self._of_leaders(asked, dict.fromkeys(asked, _EARLIEST))
        own = self._of_broker(broker, dict.fromkeys(asked, _EARLIEST), _DEBUGGING)
        found: dict[TopicPartition, OffsetsNow | str] = {}
        for tp, leader in asked.items():
            end = ends[tp]
            start = starts[tp]
            own_start = own[tp]
            if isinstance(end, str):
                found[tp] = end
            elif isinstance(start, str):
                found[tp] = start
            elif isinstance(own_start, str):
                found[tp] = own_start
            else:
                found[tp] = OffsetsNow(start, end, own_start, leader == broker)
        return missing | found | self._sized(broker, record, found)

    # -------------------------------------------------------------------------------------------- parts

    def _limited(
        self,
        leaders: Mapping[TopicPartition, int],
        found: Mapping[TopicPartition, PartitionOffsets],
        holds_for: timedelta,
    ) -> dict[TopicPartition, PartitionOffsets]:
        """Return the partitions of which retention may delete records, with its limits.

        Retention by age deletes segments whose newest record is older
        than ``retention.ms`` (``UnifiedLog.deleteRetentionMsBreachedSegments``).
        So it does not go beyond the first record that is younger.
        """
        filled = sorted({topic for (topic, _), offsets in found.items() if offsets.end > offsets.start})
        retention = self._retention(filled)
        now_ms = int((time.time() + holds_for.total_seconds()) * 1000)
        deleting = {
            tp: retention[tp[0]]
            for tp, offsets in found.items()
            if offsets.end > offsets.start and tp[0] in retention and "delete" in retention[tp[0]]["cleanup.policy"]
        }
        by_age = {
            tp: now_ms - int(topic["retention.ms"]) for tp, topic in deleting.items() if int(topic["retention.ms"]) >= 0
        }
        first_young = self._of_leaders(leaders, by_age)
        limited = {}
        for tp, topic in deleting.items():
            limit = first_young.get(tp, found[tp].start)
            if isinstance(limit, str):
                raise ObservationError(f"offsets of {tp[0]}-{tp[1]}", limit)
            reached = found[tp].end if limit < 0 else max(limit, found[tp].start)
            limited[tp] = replace(found[tp], limit=reached, retention_bytes=int(topic["retention.bytes"]))
        return limited

    def _retention(self, topics: list[str]) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {}
        for start in range(0, len(topics), _BATCH_TOPICS):
            batch = dict.fromkeys(topics[start : start + _BATCH_TOPICS], _RETENTION)
            try:
                configs = topic_configs(self._any(), batch, REQUEST_SECONDS)
            except WireError as error:
                raise ObservationError(self._source, str(error)) from error
            found |= {topic: {name: value or "" for name, value in of.items()} for topic, of in configs.items()}
        return found

    def _sized(
        self,
        broker: int,
        record: Mapping[TopicPartition, PartitionOffsets],
        found: Mapping[TopicPartition, OffsetsNow | str],
    ) -> dict[TopicPartition, OffsetsNow | str]:
        """Return the partitions whose beginning only retention by size can explain, with the size of their logs."""
        risen = {
            tp: now
            for tp, now in found.items()
            if isinstance(now, OffsetsNow) and now.own_start > record[tp].limit and record[tp].retention_bytes >= 0
        }
        if not risen:
            return {}
        topic = DescribeLogDirsRequest.DescribableLogDirTopic
        by_topic: dict[str, list[int]] = {}
        for name, partition in risen:
            by_topic.setdefault(name, []).append(partition)
        wanted = [topic(topic=name, partitions=partitions) for name, partitions in by_topic.items()]
        try:
            answer = self._to(broker).call(DescribeLogDirsRequest, REQUEST_SECONDS, max_version=4, topics=wanted)
        except WireError as error:
            raise ObservationError(f"log directories of broker {broker}", str(error)) from error
        sizes = {
            (str(t.name), int(p.partition_index)): int(p.partition_size)
            for directory in answer.results
            for t in directory.topics
            for p in t.partitions
        }
        return {tp: replace(now, own_bytes=sizes.get(tp)) for tp, now in risen.items()}

    # -------------------------------------------------------------------------------------------- questions

    def _of_leaders(self, leaders: Mapping[TopicPartition, int], timestamps: Mapping[TopicPartition, int]) -> Offsets:
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        for tp, timestamp in timestamps.items():
            by_leader.setdefault(leaders[tp], {})[tp] = timestamp
        found: Offsets = {}
        for leader, wanted in sorted(by_leader.items()):
            found |= self._of_broker(leader, wanted, _CONSUMER)
        return found

    def _of_broker(self, broker: int, timestamps: Mapping[TopicPartition, int], replica_id: int) -> Offsets:
        found: Offsets = {}
        wanted = sorted(timestamps.items())
        for start in range(0, len(wanted), _BATCH_PARTITIONS):
            batch = wanted[start : start + _BATCH_PARTITIONS]
            try:
                found |= self._list_offsets(self._to(broker), batch, replica_id)
            except WireError as error:
                found |= {tp: f"broker {broker}: {error}" for tp, _ in batch}
        return found

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
        return {
            (str(t.name), int(p.partition_index)): error_name(p.error_code) if p.error_code else int(p.offset)
            for t in answer.topics
            for p in t.partitions
        }

    def _not_deleted(self, topics: list[str]) -> dict[str, str]:
        """Return why topics that one broker does not list are not taken for deleted.

        A topic that every broker calls unknown is left out.

        A broker that has just started serves an empty list of topics.
        """
        found: dict[str, str] = {}
        for start in range(0, len(topics), _BATCH_TOPICS):
            batch = topics[start : start + _BATCH_TOPICS]
            for broker in sorted(self._addresses()):
                try:
                    answer = self._to(broker).metadata(REQUEST_SECONDS, batch)
                except WireError as error:
                    found |= dict.fromkeys(batch, f"broker {broker}: {error}")
                    continue
                unknown = {str(t.name) for t in answer.topics if t.error_code == UNKNOWN_TOPIC}
                found |= dict.fromkeys(set(batch) - unknown, "the brokers do not agree whether the topic exists")
        return found

    def _partitions(self, broker: int) -> tuple[dict[TopicPartition, tuple[int, str]], set[str]]:
        """Return leader and topic id of each partition that a broker has, and the topics that are listed.

        The leader is -1 where there is none.
        """

        def of_broker(answer: Metadata) -> tuple[dict[TopicPartition, tuple[int, str]], set[str]]:
            found = {}
            listed = set()
            for topic in answer.topics:
                if topic.error_code == UNKNOWN_TOPIC:
                    continue
                listed.add(topic.name)
                if topic.error_code:
                    raise ObservationError(f"topic {topic.name}", error_name(topic.error_code))
                for partition in topic.partitions:
                    if broker in partition.replica_nodes:
                        found[topic.name, partition.partition_index] = (partition.leader_id, topic.topic_id)
            return found, listed

        try:
            return self._any().all_topics(REQUEST_SECONDS, of_broker)
        except WireError as error:
            raise ObservationError(self._source, str(error)) from error

    def _addresses(self) -> dict[int, tuple[str, int]]:
        if not self._known:
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
            raise ObservationError(self._source, f"none answered: {'; '.join(failures)}")
        return self._known

    def _any(self) -> Connection:
        """Return a connection to some broker."""
        for broker in sorted(self._addresses(), key=lambda i: i not in self._connections):
            try:
                return self._to(broker)
            except WireError:
                continue
        raise ObservationError(self._source, "no broker answers")

    def _to(self, broker: int) -> Connection:
        kept = self._connections.get(broker)
        if kept is not None and kept.usable:
            return kept
        address = self._addresses().get(broker)
        if address is None:
            raise WireError(f"no broker lists broker {broker}")
        self._connections[broker] = Connection(*address, self._security, CONNECT_SECONDS)
        return self._connections[broker]


def _number(offset: int | str) -> int:
    assert isinstance(offset, int)
    return offset


def _setting(config: Any) -> EffectiveSetting:
    return EffectiveSetting(
        value=None if config.is_sensitive else config.value,
        sensitive=bool(config.is_sensitive),
        type=ConfigType(config.config_type or 0),
        stated=stated_places(config),
    )
