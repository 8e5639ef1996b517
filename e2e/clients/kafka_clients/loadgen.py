"""Produce and consume continuously, and report every second.

One idempotent ``acks=all`` producer and one consumer group on two topics with ``min.insync.replicas=2``. Prints a
JSON line per second. On SIGTERM it flushes, lets the consumer reach the end of the topics, and prints a last line
with what was sent, acknowledged, received, lost and doubled, and with the balances of the watchers (``watch``).
"""

import argparse
import contextlib
import json
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import OffsetSpec

from kafka_clients.cluster import confluent_admin, librdkafka_config, log_offsets
from kafka_clients.seed import LOAD_TOPICS, WATCHED_TOPICS
from kafka_clients.watch.everything import watchers
from kafka_clients.watch.moments import FOLDER, Moments

DRAIN_TIMEOUT_S = 120
# A client's first second is connections and a producer id: no stall of the cluster.
WARM_UP_S = 5.0


@dataclass
class Second:
    """What happened since the last line."""

    acked: int = 0
    errors: Counter = field(default_factory=Counter)
    max_produce_latency_s: float = 0.0
    received: int = 0
    max_end_to_end_s: float = 0.0
    max_gap_s: float = 0.0


class Ledger:
    """Records that were sent, and their outcome. The producing and the consuming thread share it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.second = Second()
        self.warm_at = time.monotonic() + WARM_UP_S
        self.in_flight: dict[int, float] = {}
        self.acked: set[int] = set()
        self.failed: Counter = Counter()
        self.places: dict[int, tuple[str, int, int]] = {}
        self.duplicates = 0
        self.duplicates_sample: list[dict] = []
        self.redelivered = 0
        self.longest_produce_s = 0.0
        self.longest_end_to_end_s = 0.0
        self.last_received_at = time.monotonic()

    def sent(self, sequence: int) -> None:
        with self.lock:
            self.in_flight[sequence] = time.monotonic()

    def refused(self, sequence: int, error: str) -> None:
        """Record a message that the client itself would not take (its queue is full)."""
        with self.lock:
            self.in_flight.pop(sequence, None)
            self.second.errors[error] += 1
            self.failed[error] += 1

    def delivered(self, sequence: int, error: KafkaError | None) -> None:
        with self.lock:
            sent_at = self.in_flight.pop(sequence)
            latency_s = time.monotonic() - sent_at
            if error is not None:
                self.second.errors[error.name()] += 1
                self.failed[error.name()] += 1
                return
            self.acked.add(sequence)
            self.second.acked += 1
            self.second.max_produce_latency_s = max(self.second.max_produce_latency_s, latency_s)
            if sent_at >= self.warm_at:
                self.longest_produce_s = max(self.longest_produce_s, latency_s)

    def received(self, sequence: int, sent_at: float, place: tuple[str, int, int]) -> None:
        now = time.monotonic()
        with self.lock:
            second = self.second
            second.received += 1
            second.max_end_to_end_s = max(second.max_end_to_end_s, now - sent_at)
            if sent_at >= self.warm_at:
                self.longest_end_to_end_s = max(self.longest_end_to_end_s, now - sent_at)
            second.max_gap_s = max(second.max_gap_s, now - self.last_received_at)
            self.last_received_at = now
            # The same offset read twice is a rebalance, as consumers may; the same message at two offsets
            # is a duplicate in the log, which an idempotent producer must never make.
            match self.places.get(sequence):
                case None:
                    self.places[sequence] = place
                case known if known == place:
                    self.redelivered += 1
                case known:
                    self.duplicates += 1
                    self.duplicates_sample += [{"sequence": sequence, "sent_at": sent_at, "at": [known, place]}]

    def consumer_error(self, error: KafkaError) -> None:
        with self.lock:
            self.second.errors[f"consumer:{error.name()}"] += 1
            self.failed[f"consumer:{error.name()}"] += 1

    def take_second(self) -> dict:
        """Return the line for the second that ends now and begin the next one."""
        with self.lock:
            second, self.second = self.second, Second()
            now = time.monotonic()
            oldest_s = max((now - at for at in self.in_flight.values()), default=0.0)
            return {
                "at": round(time.time(), 2),
                "acked": second.acked,
                "errors": dict(second.errors),
                "max_produce_latency_s": round(second.max_produce_latency_s, 3),
                "received": second.received,
                "max_end_to_end_s": round(second.max_end_to_end_s, 3),
                "gap_s": round(max(second.max_gap_s, now - self.last_received_at), 3),
                "in_flight": len(self.in_flight),
                "oldest_in_flight_s": round(oldest_s, 3),
            }

    def final(self, sent: int, *, drained: bool) -> dict:
        with self.lock:
            lost = self.acked - self.places.keys()
            return {
                "final": True,
                "sent": sent,
                "acked": len(self.acked),
                "received": len(self.places),
                "lost": len(lost),
                "lost_sample": sorted(lost)[:20],
                "duplicates": self.duplicates,
                "duplicates_sample": self.duplicates_sample[:20],
                "redelivered": self.redelivered,
                "unanswered": len(self.in_flight),
                "errors": dict(self.failed),
                "longest_produce_s": round(self.longest_produce_s, 3),
                "longest_end_to_end_s": round(self.longest_end_to_end_s, 3),
                "drained": drained,
            }


class Reader(threading.Thread):
    """The consumer group's only member."""

    def __init__(self, ledger: Ledger, run: str) -> None:
        # A load that dies says why, and ends.
        super().__init__(name="consumer", daemon=True)
        self.ledger, self.run_id = ledger, run
        self.ended = threading.Event()
        # Kept here because the consumer's own methods wait for a poll in another thread, which may be for ever.
        self.positions: dict[tuple[str, int], int] = {}
        self.consumer = Consumer(
            librdkafka_config(
                group_id=f"loadgen-{run}",
                auto_offset_reset="earliest",
                session_timeout_ms=10_000,
                enable_auto_commit=True,
            )
        )
        self.consumer.subscribe(list(LOAD_TOPICS))

    def run(self) -> None:
        while not self.ended.is_set():
            message = self.consumer.poll(0.2)
            if message is None:
                continue
            if (error := message.error()) is not None:
                self.ledger.consumer_error(error)
            else:
                self._take(message)
        self.consumer.close()

    def _take(self, message: Message) -> None:
        self.positions[message.topic(), message.partition()] = message.offset() + 1
        run, sequence, sent_at = message.value().decode().split(",")
        if run == self.run_id:
            place = (message.topic(), message.partition(), message.offset())
            self.ledger.received(int(sequence), float(sent_at), place)

    def has_reached(self, ends: dict[tuple[str, int], int]) -> bool:
        """Whether everything before these offsets has been read."""
        return all(self.positions.get(place, 0) >= end for place, end in ends.items())


def wait_until_writable() -> None:
    """Wait until the topics exist; the group's first assignment is not waited for, it starts at the beginning."""
    admin = confluent_admin()
    deadline = time.monotonic() + 60
    while missing := {*LOAD_TOPICS, *WATCHED_TOPICS} - admin.list_topics(timeout=20).topics.keys():
        if time.monotonic() > deadline:
            raise TimeoutError(f"topics missing: {sorted(missing)}; seed the cluster first")
        time.sleep(0.5)


def drain(reader: Reader) -> bool:
    """Wait until the consumer has read all that was written; return whether it did."""
    admin = confluent_admin()
    deadline = time.monotonic() + DRAIN_TIMEOUT_S
    ends: dict[tuple[str, int], int] | None = None
    while time.monotonic() < deadline:
        if ends is None:
            with contextlib.suppress(KafkaException):  # no leader just now; the deadline bounds the attempts
                ends = log_offsets(admin, LOAD_TOPICS, OffsetSpec.latest())
        elif reader.has_reached(ends):
            return True
        time.sleep(0.2)
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages-per-second", type=float, default=40.0)
    parser.add_argument("--moments", type=Path, default=FOLDER, help="where the harness makes a file for each moment")
    arguments = parser.parse_args()

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())

    begin = time.monotonic()
    wait_until_writable()
    run = str(time.time_ns())
    watching = watchers(run, Moments(arguments.moments))
    # Each has connections of its own to wait for.
    together = ThreadPoolExecutor(len(watching))
    list(together.map(lambda watcher: watcher.prepare(), watching))
    for watcher in watching:
        watcher.start()
    prepared_s = round(time.monotonic() - begin, 1)
    ledger = Ledger()
    reader = Reader(ledger, run)
    reader.start()
    # One request in flight: with more, librdkafka takes the refusal of a later one for a gap when a leader moves, bumps its epoch and may
    # write again what another leader had already taken (confluentinc/librdkafka#4953, open). A doubled record here is the cluster's doing.
    producer = Producer(
        librdkafka_config(
            enable_idempotence=True,
            acks="all",
            max_in_flight=1,
            linger_ms=5,
            message_timeout_ms=120_000,
            compression_type="none",
        )
    )
    sequence = 0
    pause_s = len(LOAD_TOPICS) / arguments.messages_per_second
    next_at = next_line_at = time.monotonic()
    while not stop.is_set():
        for topic in LOAD_TOPICS:
            sequence += 1
            ledger.sent(sequence)
            value = f"{run},{sequence},{time.monotonic()}"
            try:
                producer.produce(
                    topic,
                    value,
                    key=str(sequence % 97),
                    on_delivery=lambda error, _, number=sequence: ledger.delivered(number, error),
                )
            except BufferError:
                ledger.refused(sequence, "client_queue_full")
        next_at += pause_s
        # Polling until the next message is due: delivery reports are then timed when they come.
        while (remaining_s := next_at - time.monotonic()) > 0:
            producer.poll(remaining_s)
        if time.monotonic() >= next_line_at:
            next_line_at += 1
            print(json.dumps(ledger.take_second()))
    producer.flush(DRAIN_TIMEOUT_S)
    drained = drain(reader)
    reader.ended.set()
    reader.join()
    print(json.dumps(ledger.take_second()))
    begin = time.monotonic()
    watched = [balance.as_json() for balance in together.map(lambda watcher: watcher.close(), watching)]
    print(
        json.dumps(
            ledger.final(sequence, drained=drained)
            | {"watched": watched}
            | {"prepared_s": prepared_s, "balanced_s": round(time.monotonic() - begin, 1)}
        )
    )


if __name__ == "__main__":
    main()
