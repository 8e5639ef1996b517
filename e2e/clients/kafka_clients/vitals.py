"""Report the state of the cluster twice a second, as a client sees it: partitions without a leader or below min ISR, and the controller.

The controller is asked to validate the creation of a topic (``validate_only``): in every mode that goes to the controller and changes nothing.
Each line has the probes that were answered or given up since the last one, with the time at which each was sent.
"""

import json
import signal
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from kafka_clients.cluster import confluent_admin

LINE_EVERY_S = 0.5
PROBE_EVERY_S = 0.25
PROBE_TIMEOUT_S = 2.0
PROBES_AT_ONCE = 8


class MinIsr:
    """``min.insync.replicas`` of every topic, looked up once per topic."""

    def __init__(self, admin: AdminClient) -> None:
        self.admin = admin
        self.known: dict[str, int] = {}

    def look_up(self, topics: list[str]) -> None:
        new = [name for name in topics if name not in self.known]
        if not new:
            return
        asked = self.admin.describe_configs([ConfigResource("topic", name) for name in new], request_timeout=5)
        for resource, outcome in asked.items():
            self.known[resource.name] = int(outcome.result()["min.insync.replicas"].value)


class ControllerProbe:
    """Asks the controller four times a second, whether or not it has answered before."""

    def __init__(self) -> None:
        self.admin = confluent_admin()
        self.pool = ThreadPoolExecutor(PROBES_AT_ONCE)
        self.done: deque[tuple[float, float | None]] = deque()
        self.ended = threading.Event()
        self.pending = threading.Semaphore(PROBES_AT_ONCE)

    def run(self) -> None:
        while not self.ended.wait(PROBE_EVERY_S):
            if self.pending.acquire(blocking=False):
                self.pool.submit(self._ask)

    def _ask(self) -> None:
        sent_at = time.time()
        try:
            topic = NewTopic("kraftbridge-vitals-probe", 1, 1)
            options = {"validate_only": True, "request_timeout": PROBE_TIMEOUT_S, "operation_timeout": PROBE_TIMEOUT_S}
            for outcome in self.admin.create_topics([topic], **options).values():
                outcome.result(PROBE_TIMEOUT_S + 1)
        except (KafkaException, TimeoutError):
            self.done.append((round(sent_at, 2), None))
            # As Java's client does: librdkafka remembers a controller for minutes, whatever it answers.
            with suppress(KafkaException):
                self.admin.list_topics(timeout=PROBE_TIMEOUT_S)
        else:
            self.done.append((round(sent_at, 2), round(time.time() - sent_at, 3)))
        finally:
            self.pending.release()

    def take(self) -> list[tuple[float, float | None]]:
        taken = []
        while self.done:
            taken.append(self.done.popleft())
        return taken


def look(admin: AdminClient, min_isr: MinIsr) -> dict:
    """Return how the partitions are now."""
    try:
        metadata = admin.list_topics(timeout=2)
        min_isr.look_up(list(metadata.topics))
    except (KafkaException, TimeoutError) as error:
        return {"trouble": str(error)[:200], "offline": 0, "below_min_isr": 0, "under_replicated": 0}
    partitions = [(name, p) for name, topic in metadata.topics.items() for p in topic.partitions.values()]
    return {
        "brokers": len(metadata.brokers),
        "offline": sum(p.leader < 0 for _, p in partitions),
        "below_min_isr": sum(len(p.isrs) < min_isr.known.get(name, 1) for name, p in partitions),
        "under_replicated": sum(len(p.isrs) < len(p.replicas) for _, p in partitions),
    }


def main() -> None:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    admin = confluent_admin()
    min_isr, probe = MinIsr(admin), ControllerProbe()
    threading.Thread(target=probe.run, daemon=True).start()
    while not stop.wait(LINE_EVERY_S):
        seen = look(admin, min_isr)
        print(json.dumps({"at": round(time.time(), 2), **seen, "probes": probe.take()}))
    probe.ended.set()
    print(json.dumps({"final": True}))


if __name__ == "__main__":
    main()
