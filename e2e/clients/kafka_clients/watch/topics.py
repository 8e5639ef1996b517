"""Topics that are created and deleted while the takeover happens."""

import time
from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic

from kafka_clients.cluster import confluent_admin
from kafka_clients.watch.balance import Balance, Subject, Topics
from kafka_clients.watch.moments import Moment, Moments
from kafka_clients.watch.watcher import Watcher

EVERY_S = 5.0
MOST = 60
REQUEST_TIMEOUT_S = 10.0
DEADLINE_S = 120.0
REPLICAS = 2
"""While one of three brokers restarts, no topic with three replicas can be created."""
PREFIX = "load-churn"


class TopicsWatcher(Watcher):
    """From the takeover to dual-write: every few seconds two topics, one of which is deleted before the next two."""

    subject = Subject.TOPICS

    def __init__(self, moments: Moments, run: str) -> None:
        super().__init__(moments, run)
        self.ledger = Topics()

    def prepare(self) -> None:
        self.admin = confluent_admin()
        self.replicas = min(REPLICAS, len(self.admin.list_topics(timeout=20).brokers))

    def watch(self) -> None:
        while not self.moments.told(Moment.TAKEOVER):
            if self.ended.wait(0.3):
                return
        for number in range(MOST):
            stays, goes = (f"{PREFIX}-{self.run_id}-{number}-{fate}" for fate in ("stays", "goes"))
            for name in (stays, goes):
                self._make(name)
            over = self.ended.wait(EVERY_S) or self.moments.told(Moment.DUAL_WRITE)
            self._remove(goes)
            if over:
                return

    def balance(self) -> Balance:
        return self.ledger.judge(self.admin.list_topics(timeout=20).topics)

    def _make(self, name: str) -> None:
        topic = NewTopic(name, 1, self.replicas)
        if self._ask(name, lambda: self.admin.create_topics([topic], **_TIMEOUTS), KafkaError.TOPIC_ALREADY_EXISTS):
            self.ledger.created.add(name)

    def _remove(self, name: str) -> None:
        gone = KafkaError.UNKNOWN_TOPIC_OR_PART
        if self._ask(name, lambda: self.admin.delete_topics([name], **_TIMEOUTS), gone):
            self.ledger.deleted.add(name)

    def _ask(self, name: str, send: Callable[[], dict], done_before: int) -> bool:
        """Repeat a request until it is answered; one that was done although its answer is lost is refused as done."""
        self.ledger.unanswered.add(name)
        deadline, tries = time.monotonic() + DEADLINE_S, 0
        while time.monotonic() < deadline:
            tries += 1
            try:
                send()[name].result(REQUEST_TIMEOUT_S + 5)
            except (KafkaException, TimeoutError) as error:
                if tries == 1 or not isinstance(error, KafkaException) or error.args[0].code() != done_before:
                    self._repeat(error)
                    continue
            self.ledger.unanswered.discard(name)
            return True
        return False

    def _repeat(self, error: KafkaException | TimeoutError) -> None:
        self.ledger.repeated[error.args[0].name() if isinstance(error, KafkaException) else "TIMEOUT"] += 1
        time.sleep(0.5)
        try:
            # As Java's client does: librdkafka remembers a controller for minutes, whatever it answers.
            self.admin.list_topics(timeout=REQUEST_TIMEOUT_S)
        except KafkaException:
            return


_TIMEOUTS = {"request_timeout": REQUEST_TIMEOUT_S, "operation_timeout": REQUEST_TIMEOUT_S}
