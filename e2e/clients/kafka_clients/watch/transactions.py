"""A transactional producer, which commits two transactions of three, and a ``read_committed`` consumer."""

import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

from kafka_clients.cluster import confluent_admin, librdkafka_config
from kafka_clients.seed import WATCHED_TRANSACTIONS
from kafka_clients.watch.balance import Balance, Place, Subject, Transactions
from kafka_clients.watch.moments import Moments
from kafka_clients.watch.watcher import Watcher

RECORDS = 2
EVERY_S = 1.0
ABORT_EVERY = 3
DEADLINE_S = 90.0
READ_TIMEOUT_S = 20.0


class TransactionsWatcher(Watcher):
    """Both in one thread: a transaction, then what has come until the next one is due."""

    subject = Subject.TRANSACTIONS

    def __init__(self, moments: Moments, run: str) -> None:
        super().__init__(moments, run)
        self.ledger = Transactions()
        self.sequence = 0

    def prepare(self) -> None:
        self.producer = self._new_producer()
        self.consumer = self._new_consumer()
        topic = confluent_admin().list_topics(WATCHED_TRANSACTIONS, timeout=20).topics[WATCHED_TRANSACTIONS]
        self.beginning = [TopicPartition(WATCHED_TRANSACTIONS, number, OFFSET_BEGINNING) for number in topic.partitions]
        self.consumer.assign(self.beginning)

    def watch(self) -> None:
        number = 0
        while not self.ended.is_set():
            number += 1
            due = time.monotonic() + EVERY_S
            if not self._transact(abort=number % ABORT_EVERY == 0):
                self.producer = self._new_producer()
            while (remaining_s := due - time.monotonic()) > 0:
                self._take(self.ledger.live, remaining_s)

    def balance(self) -> Balance:
        self._read_all(self.ledger.live)
        self.consumer.close()
        # A client that has gone through nothing sees what the brokers serve.
        self.consumer = self._new_consumer()
        self.consumer.assign(self.beginning)
        self._read_all(self.ledger.again)
        self.consumer.close()
        return self.ledger.judge()

    def _transact(self, *, abort: bool) -> bool:
        """Write some records and commit or abort them; return whether the producer can go on."""
        numbers = set(range(self.sequence, self.sequence + RECORDS))
        self.sequence += RECORDS
        try:
            self.producer.begin_transaction()
            for number in numbers:
                self.producer.produce(WATCHED_TRANSACTIONS, f"{self.run_id},{number}", key=str(number))
            # Without this the records of an aborted transaction would never leave the client.
            self.producer.flush(DEADLINE_S)
            committed = self._end(abort=abort)
        except KafkaException:
            self.ledger.unknown |= numbers
            return False
        (self.ledger.committed if committed else self.ledger.aborted).update(numbers)
        return True

    def _end(self, *, abort: bool) -> bool:
        """End the transaction; return whether it is committed. A request without an answer is repeated, as librdkafka asks for."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                if abort:
                    self.producer.abort_transaction(10)
                else:
                    self.producer.commit_transaction(10)
            except KafkaException as error:
                reason = error.args[0]
                if reason.txn_requires_abort():
                    abort = True
                elif not reason.retriable() or time.monotonic() > deadline:
                    raise
            else:
                return not abort

    @staticmethod
    def _new_consumer() -> Consumer:
        return Consumer(
            librdkafka_config(
                group_id="load-transactions",
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                isolation_level="read_committed",
            )
        )

    def _new_producer(self) -> Producer:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            producer = Producer(
                librdkafka_config(
                    transactional_id=f"load-{self.run_id}", transaction_timeout_ms=60_000, max_in_flight=1, linger_ms=5
                )
            )
            try:
                producer.init_transactions(30)
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)
            else:
                return producer

    def _read_all(self, seen: dict[int, set[Place]]) -> None:
        """Read until everything committed has come, and then until nothing comes: something aborted might."""
        deadline = time.monotonic() + READ_TIMEOUT_S
        while time.monotonic() < deadline:
            came = self._take(seen, 1.0)
            if not came and self.ledger.committed <= seen.keys():
                return

    def _take(self, seen: dict[int, set[Place]], timeout_s: float) -> bool:
        message = self.consumer.poll(timeout_s)
        if message is None:
            return False
        if (error := message.error()) is not None:
            self.ledger.errors[error.name()] += 1
            return False
        run, number = message.value().decode().split(",")
        if run == self.run_id:
            seen.setdefault(int(number), set()).add((message.partition(), message.offset()))
        return True
