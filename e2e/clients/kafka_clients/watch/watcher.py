"""A watcher: it prepares its subject before the load begins, watches it in a thread, and draws its balance at the end."""

import threading
from abc import ABC, abstractmethod
from typing import ClassVar

from kafka_clients.watch.balance import Balance, Subject
from kafka_clients.watch.moments import Moments

STOP_TIMEOUT_S = 150


class Watcher(threading.Thread, ABC):
    """One subject."""

    subject: ClassVar[Subject]

    def __init__(self, moments: Moments, run: str) -> None:
        super().__init__(name=self.subject, daemon=True)
        self.moments, self.run_id = moments, run
        self.ended = threading.Event()
        self.trouble = ""

    @abstractmethod
    def prepare(self) -> None:
        """Bring the subject to where watching begins."""

    @abstractmethod
    def watch(self) -> None:
        """Watch until `ended`."""

    @abstractmethod
    def balance(self) -> Balance:
        """Look at the subject for the last time."""

    def run(self) -> None:
        try:
            self.watch()
        except Exception as error:  # noqa: BLE001 - a watcher that dies is told in its balance
            self.trouble = f"watching ended: {type(error).__name__}: {error}"

    def close(self) -> Balance:
        """Stop watching; return the balance."""
        self.ended.set()
        self.join(STOP_TIMEOUT_S)
        if self.is_alive():
            self.trouble = f"watching did not end in {STOP_TIMEOUT_S} s"
        if self.trouble:
            return Balance(self.subject, "unknown", (self.trouble,))
        try:
            return self.balance()
        except Exception as error:  # noqa: BLE001 - the other balances are drawn all the same
            return Balance(self.subject, "unknown", (f"no balance: {type(error).__name__}: {error}",))
