"""Records older than the static retention: one topic of them is kept by the cluster-wide dynamic default, one by its own setting."""

import contextlib
import time

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec

from kafka_clients.cluster import confluent_admin, librdkafka_config, log_offsets
from kafka_clients.seed import OLD_TOPICS
from kafka_clients.watch.balance import Balance, KeptTopic, Subject, judge_kept
from kafka_clients.watch.watcher import Watcher

RECORDS = 100
AGE_S = 30 * 86_400
TIMEOUT_S = 30.0

Offsets = dict[tuple[str, int], int]


class Kept(Watcher):
    """Writes at the beginning, and reads everything at the end."""

    subject = Subject.KEPT

    def prepare(self) -> None:
        producer = Producer(librdkafka_config(enable_idempotence=True, message_timeout_ms=60_000))
        written_at = int((time.time() - AGE_S) * 1000)
        for topic in OLD_TOPICS:
            for number in range(RECORDS):
                producer.produce(topic, f"{self.run_id},{number}", partition=0, timestamp=written_at)
        if left := producer.flush(60):
            raise TimeoutError(f"{left} old records were not acknowledged")
        self.before = self._offsets()

    def watch(self) -> None:
        """Do nothing: what counts is what is there at the end."""

    def balance(self) -> Balance:
        earliest, latest = self.before
        first, last = self._offsets()
        read = self._read(first, last)
        return judge_kept(
            {
                topic: KeptTopic(
                    earliest[topic, 0],
                    latest[topic, 0],
                    first[topic, 0],
                    last[topic, 0],
                    sum(earliest[topic, 0] <= offset < latest[topic, 0] for offset in read[topic]),
                )
                for topic in OLD_TOPICS
            }
        )

    @staticmethod
    def _offsets() -> tuple[Offsets, Offsets]:
        admin = confluent_admin()
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            with contextlib.suppress(KafkaException):  # no leader just now
                return log_offsets(admin, OLD_TOPICS, OffsetSpec.earliest()), log_offsets(
                    admin, OLD_TOPICS, OffsetSpec.latest()
                )
            if time.monotonic() > deadline:
                raise TimeoutError(f"no offsets of {OLD_TOPICS} in {TIMEOUT_S:.0f} s")
            time.sleep(0.5)

    @staticmethod
    def _read(first: Offsets, last: Offsets) -> dict[str, set[int]]:
        consumer = Consumer(librdkafka_config(group_id="load-kept", enable_auto_commit=False))
        consumer.assign([TopicPartition(topic, number, offset) for (topic, number), offset in first.items()])
        found: dict[str, set[int]] = {topic: set() for topic, _ in first}
        left = sum(last[place] - first[place] for place in first)
        deadline = time.monotonic() + TIMEOUT_S
        while left > 0 and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                found[message.topic()].add(message.offset())
                left -= 1
        consumer.close()
        return found
