"""Sends a workload on its schedule, and observes when each change is visible at every broker."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from typing_extensions import override

from benchmarks.quorum.changes import Change, is_visible, view_of
from benchmarks.quorum.samples import Sample
from benchmarks.quorum.workloads import Workload
from benchmarks.quorum.writer import ChangeWriter
from kraftbridge.exceptions import ActionError
from kraftbridge.kafka.client import Security
from kraftbridge.kafka.wire import Connection, WireError

WRITERS: Final = 16
"""Connections that write; a broker handles one request of a connection at a time."""
WRITE_SECONDS: Final = 60.0
VISIBLE_SECONDS: Final = 60.0
_SHORTEST_POLL_SECONDS: Final = 0.002
_LONGEST_POLL_SECONDS: Final = 0.05
_POLL_PART: Final = 0.1
"""A broker is asked again after this part of the youngest change's age: the error of a latency is about as large."""
_BATCH: Final = 50
"""Changes asked for in one round: the oldest ones."""
_REQUEST_SECONDS: Final = 5.0


@dataclass(slots=True)
class _Progress:
    """One change under way; times are of the monotonic clock."""

    change: Change
    due: float
    sent: float | None = None
    acknowledged: float | None = None
    seen: dict[int, tuple[float, float]] = field(default_factory=dict)
    """By broker: when the change was seen, and when that broker was last asked without seeing it."""
    tries: int = 0
    error: str | None = None


class _Watcher(threading.Thread):
    """Polls one broker for the changes that it has not shown yet."""

    def __init__(self, broker: int, address: tuple[str, int], security: Security) -> None:
        super().__init__(name=f"watch-{broker}", daemon=True)
        self.broker = broker
        self._address = address
        self._security = security
        self._pending: dict[int, tuple[_Progress, float]] = {}
        self._changed = threading.Condition()
        self._ended = False
        self._connection: Connection | None = None

    def expect(self, number: int, progress: _Progress) -> None:
        with self._changed:
            self._pending[number] = (progress, time.monotonic())
            self._changed.notify()

    def forget(self, number: int) -> None:
        with self._changed:
            self._pending.pop(number, None)

    def pending(self) -> int:
        with self._changed:
            return len(self._pending)

    def stop(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify()

    @override
    def run(self) -> None:
        while True:
            with self._changed:
                while not self._pending and not self._ended:
                    self._changed.wait()
                if self._ended:
                    break
                asked = dict(list(self._pending.items())[:_BATCH])
            began = time.monotonic()
            self._ask(asked)
            with self._changed:
                youngest = max((p.sent or began for p, _ in self._pending.values()), default=began)
            pause = (time.monotonic() - youngest) * _POLL_PART
            time.sleep(min(_LONGEST_POLL_SECONDS, max(_SHORTEST_POLL_SECONDS, pause)))
        if self._connection is not None:
            self._connection.close()

    def _ask(self, asked: Mapping[int, tuple[_Progress, float]]) -> None:
        began = time.monotonic()
        try:
            if self._connection is None or not self._connection.usable:
                self._connection = Connection(*self._address, self._security, _REQUEST_SECONDS)
            view = view_of(self._connection, [p.change for p, _ in asked.values()], _REQUEST_SECONDS)
        except WireError:  # it is down, or not up yet: asked again
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            time.sleep(_LONGEST_POLL_SECONDS)
            return
        now = time.monotonic()
        with self._changed:
            for number, (progress, asked_before) in asked.items():
                if is_visible(progress.change, view):
                    progress.seen[self.broker] = (now, asked_before)
                    self._pending.pop(number, None)
                elif number in self._pending:
                    self._pending[number] = (progress, began)


def run_workload(
    workload: Workload,
    brokers: Mapping[int, tuple[str, int]],
    security: Security,
    started: threading.Event | None = None,
) -> list[Sample]:
    """Carry a workload out and return a sample per change, in the order of the schedule.

    A change is sent when it is due, whether or not earlier ones were answered; when all writers are busy it waits, and the wait counts. What
    is not visible on every broker a minute after the last answer has no visible time.

    Parameters
    ----------
    brokers
        Every broker, by id.
    started
        Set when the schedule begins.
    """
    progress = [_Progress(change, due) for change, due in zip(workload.changes, workload.arrivals, strict=True)]
    watchers = [_Watcher(broker, address, security) for broker, address in brokers.items()]
    work: queue.SimpleQueue[int | None] = queue.SimpleQueue()
    clients = [ChangeWriter(_turned(list(brokers.values()), i), security) for i in range(min(WRITERS, len(progress)))]
    for client in clients:
        client.connect()
    writers = [
        threading.Thread(target=_write, args=(client, work, progress, watchers), daemon=True) for client in clients
    ]
    for thread in (*watchers, *writers):
        thread.start()
    start = time.monotonic() + 0.05
    for item in progress:
        item.due += start
    if started is not None:
        started.set()
    for number, item in enumerate(progress):
        if (wait := item.due - time.monotonic()) > 0:
            time.sleep(wait)
        work.put(number)
    for _ in writers:
        work.put(None)
    for thread in writers:
        thread.join()
    deadline = time.monotonic() + VISIBLE_SECONDS
    while any(w.pending() for w in watchers) and time.monotonic() < deadline:
        time.sleep(0.01)
    for watcher in watchers:
        watcher.stop()
    for watcher in watchers:
        watcher.join()
    return [_sample(workload, number, item, start, len(brokers)) for number, item in enumerate(progress)]


def _write(
    client: ChangeWriter, work: queue.SimpleQueue[int | None], progress: list[_Progress], watchers: list[_Watcher]
) -> None:
    while (number := work.get()) is not None:
        item = progress[number]
        item.sent = time.monotonic()
        for watcher in watchers:
            watcher.expect(number, item)
        try:
            item.tries = client.write(item.change, WRITE_SECONDS)
        except ActionError as e:
            item.error = str(e)[:300]
            for watcher in watchers:
                watcher.forget(number)
        else:
            item.acknowledged = time.monotonic()
    client.close()


def _turned(addresses: list[tuple[str, int]], by: int) -> list[tuple[str, int]]:
    turn = by % len(addresses)
    return addresses[turn:] + addresses[:turn]


def _sample(workload: Workload, number: int, item: _Progress, start: float, brokers: int) -> Sample:
    def since_start(at: float | None) -> float | None:
        return None if at is None else round((at - start) * 1000, 3)

    last = max(item.seen.values()) if len(item.seen) == brokers else None
    return Sample(
        workload=workload.name,
        n=number,
        scheduled_ms=round((item.due - start) * 1000, 3),
        sent_ms=since_start(item.sent),
        acknowledged_ms=since_start(item.acknowledged),
        visible_ms=since_start(last[0]) if last and not item.error else None,
        resolution_ms=round((last[0] - last[1]) * 1000, 3) if last and not item.error else None,
        tries=item.tries,
        error=item.error,
    )
