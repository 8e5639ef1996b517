"""A consumer group whose committed offsets must continue: its member commits once a second, and asks what is committed."""

import contextlib
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from kafka_clients.cluster import confluent_admin, librdkafka_config, log_offsets
from kafka_clients.seed import LOAD_TOPICS
from kafka_clients.watch.balance import Balance, GroupOffsets, Subject
from kafka_clients.watch.moments import Moments
from kafka_clients.watch.watcher import Watcher

TOPIC = LOAD_TOPICS[-1]
EVERY_S = 1.0
TIMEOUT_S = 30.0


class Group(Watcher):
    """The only member of its group. The first offsets are committed before it joins, so that no reset is ever right."""

    subject = Subject.GROUP

    def __init__(self, moments: Moments, run: str) -> None:
        super().__init__(moments, run)
        self.offsets = GroupOffsets()
        self.underway: dict[int, int] = {}

    @property
    def group(self) -> str:
        """The group's name."""
        return f"load-offsets-{self.run_id}"

    def prepare(self) -> None:
        ends = self._ends()
        first = Consumer(librdkafka_config(group_id=self.group, enable_auto_commit=False))
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                first.commit(offsets=_places(ends), asynchronous=False)
                break
            except KafkaException:  # the coordinator is still being found
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)
        first.close()
        self.offsets.attempt(ends)
        self.offsets.acknowledge(ends)

    def watch(self) -> None:
        settings = librdkafka_config(
            group_id=self.group, enable_auto_commit=False, auto_offset_reset="error", session_timeout_ms=10_000
        )
        self.consumer = Consumer(settings | {"on_commit": self._committed})
        self.consumer.subscribe([TOPIC], on_assign=lambda *_: self.offsets.assigned())
        due = time.monotonic() + EVERY_S
        while not self.ended.is_set():
            self._take(0.2)
            if time.monotonic() >= due:
                self._commit()
                self._ask(self.consumer)
                due = time.monotonic() + EVERY_S
        ends = self._ends()
        deadline = time.monotonic() + TIMEOUT_S
        while not self._has_committed(ends) and time.monotonic() < deadline:
            self._take(0.2)
            self._commit()
        self.consumer.close()

    def balance(self) -> Balance:
        another = Consumer(librdkafka_config(group_id=self.group, enable_auto_commit=False))
        self._ask(another)
        another.close()
        return self.offsets.judge(self._ends())

    def _take(self, timeout_s: float) -> None:
        message = self.consumer.poll(timeout_s)
        if message is None:
            return
        if (error := message.error()) is None:
            self.offsets.read(message.partition(), message.offset())
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001 - its name in confluent-kafka
            self.offsets.broken.append(f"there is no committed offset to go on from: {error.str()}")

    def _commit(self) -> None:
        """Commit what has been read, unless an earlier commit is still on its way: it would be stored after this one."""
        ahead = {
            number: offset
            for number, offset in self.offsets.expected.items()
            if offset > self.offsets.acknowledged.get(number, -1)
        }
        if not ahead or self.underway:
            return
        self.underway = ahead
        self.offsets.attempt(ahead)
        try:
            self.consumer.commit(offsets=_places(ahead), asynchronous=True)
        except KafkaException:
            self.underway = {}

    def _committed(self, error: KafkaError | None, places: list[TopicPartition]) -> None:
        self.underway = {}
        if error is None:
            self.offsets.acknowledge({p.partition: p.offset for p in places if p.error is None})

    def _ask(self, consumer: Consumer) -> None:
        asked = [TopicPartition(TOPIC, number) for number in self.offsets.acknowledged]
        with contextlib.suppress(KafkaException):  # no coordinator just now
            answered = consumer.committed(asked, timeout=10)
            self.offsets.fetched({p.partition: p.offset for p in answered if p.error is None})

    def _has_committed(self, ends: dict[int, int]) -> bool:
        return all(self.offsets.acknowledged.get(number, 0) >= end for number, end in ends.items())

    @staticmethod
    def _ends() -> dict[int, int]:
        admin = confluent_admin()
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                found = log_offsets(admin, [TOPIC], OffsetSpec.latest())
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)
            else:
                return {number: offset for (_, number), offset in found.items()}


def _places(offsets: dict[int, int]) -> list[TopicPartition]:
    return [TopicPartition(TOPIC, number, offset) for number, offset in offsets.items()]
