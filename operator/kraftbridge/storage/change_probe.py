"""A few metadata changes of a topic of our own, measured: small, slow, bounded, and gone afterwards."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kraftbridge.exceptions import ActionError, ObservationError
from kraftbridge.kafka.security import Security
from kraftbridge.kafka.wire import Connection, WireError
from kraftbridge.models.measurement import ProbeResult
from kraftbridge.storage.kafka_changes import AlterTopicConfig, Change, CreateTopic, DeleteTopic, is_visible, view_of
from kraftbridge.storage.kafka_writer import ChangeWriter, cluster_brokers

CHANGES_PER_SECOND: Final = 2.0
ALTERATIONS: Final = 18
"""Between the creation and the deletion of the topic: 20 changes in all, ten seconds."""
DEADLINE_SECONDS: Final = 30.0
_CLEAN_UP_SECONDS: Final = 5.0
_CHANGE_SECONDS: Final = 5.0
_CONNECT_SECONDS: Final = 2.0
_POLL_SECONDS: Final = 0.005
_REPLICATION_FACTOR: Final = 3
_RETENTION_MS: Final = 604_800_000


def measure_changes(addresses: Iterable[tuple[str, int]], security: Security, topic: str) -> ProbeResult:
    """Create a topic of one partition, alter a configuration of it, delete it; two changes a second, half a minute at most.

    Whatever goes wrong becomes a note; an error of authorization names the right that is missing. The topic is deleted in every case.

    Parameters
    ----------
    addresses
        Brokers to begin with.
    topic
        Name that nobody else uses; one of that name that exists already ends the probe.
    """
    deadline = time.monotonic() + DEADLINE_SECONDS
    try:
        brokers = cluster_brokers(addresses, security, _CONNECT_SECONDS * 2)
    except ObservationError as e:
        return ProbeResult(topic, note=str(e))
    probe = _Probe(brokers, security, topic, deadline)
    try:
        probe.run()
    except (ActionError, WireError, TimeoutError) as e:
        probe.note = str(e)
    finally:
        left_behind = probe.remove()
        probe.close()
    return probe.result(left_behind)


def remove_topic(addresses: Iterable[tuple[str, int]], security: Security, topic: str) -> None:
    """Delete what a probe that died left behind; no topic is no error.

    Raises
    ------
    ObservationError
        No broker answers.
    ActionError
        It could not be deleted.
    """
    brokers = cluster_brokers(addresses, security, _CONNECT_SECONDS * 2)
    probe = _Probe(brokers, security, topic, time.monotonic() + _CLEAN_UP_SECONDS)
    probe.created = True
    try:
        if note := probe.remove():
            raise ActionError(note)
    finally:
        probe.close()


class _Probe:
    def __init__(self, brokers: Mapping[int, tuple[str, int]], security: Security, topic: str, deadline: float) -> None:
        self.note = ""
        self.created = False
        self._brokers = brokers
        self._security = security
        self._topic = topic
        self._deadline = deadline
        self._writer = ChangeWriter(brokers.values(), security)
        self._connections: dict[int, Connection] = {}
        self._acknowledged: list[float] = []
        self._visible: list[float] = []

    def run(self) -> None:
        self._writer.connect()
        replicas = min(_REPLICATION_FACTOR, len(self._brokers))
        changes: list[Change] = [CreateTopic(self._topic, 1, replicas)]
        changes += [AlterTopicConfig(self._topic, "retention.ms", str(_RETENTION_MS + i)) for i in range(ALTERATIONS)]
        changes.append(DeleteTopic(self._topic))
        start = time.monotonic()
        for number, change in enumerate(changes):
            due = start + number / CHANGES_PER_SECOND
            time.sleep(max(0.0, due - time.monotonic()))
            if time.monotonic() > self._deadline:
                raise TimeoutError(
                    f"stopped after {DEADLINE_SECONDS:.0f} s: {len(self._visible)} of {len(changes)} changes"
                )
            self._make(change, due)

    def _make(self, change: Change, due: float) -> None:
        # Before its answer: what is created and not acknowledged is to be deleted, too.
        if isinstance(change, CreateTopic):
            self._refuse_foreign()
            self.created = True
        self._writer.write(change, self._time_left())
        acknowledged = (time.monotonic() - due) * 1000
        for broker in self._brokers:
            self._await(broker, change)
        self._acknowledged.append(acknowledged)
        self._visible.append((time.monotonic() - due) * 1000)
        if isinstance(change, DeleteTopic):
            self.created = False

    def _refuse_foreign(self) -> None:
        broker = next(iter(self._brokers))
        wanted = DeleteTopic(self._topic)
        if not is_visible(wanted, view_of(self._connection(broker), [wanted], _CHANGE_SECONDS)):
            raise ActionError(f"topic {self._topic} exists already; delete it to have this measured")

    def _await(self, broker: int, change: Change) -> None:
        until = time.monotonic() + self._time_left()
        while not is_visible(change, view_of(self._connection(broker), [change], _CHANGE_SECONDS)):
            if time.monotonic() > until:
                what = f"{type(change).__name__} of topic {self._topic}"
                raise TimeoutError(f"{what}: broker {broker} did not show it within {_CHANGE_SECONDS:.0f} s")
            time.sleep(_POLL_SECONDS)

    def _time_left(self) -> float:
        return max(0.1, min(_CHANGE_SECONDS, self._deadline - time.monotonic()))

    def _connection(self, broker: int) -> Connection:
        known = self._connections.get(broker)
        if known is None or not known.usable:
            self._connections[broker] = known = Connection(*self._brokers[broker], self._security, _CONNECT_SECONDS)
        return known

    def remove(self) -> str:
        """Delete the topic if there may be one; return why it is still there, ``""`` when it is not."""
        if not self.created:
            return ""
        wanted = DeleteTopic(self._topic)
        try:
            if is_visible(wanted, view_of(self._connection(next(iter(self._brokers))), [wanted], _CHANGE_SECONDS)):
                return ""
            self._writer.write(wanted, _CLEAN_UP_SECONDS)
        except (ActionError, WireError) as e:
            return f"topic {self._topic} was not deleted, please do: {e}"
        return ""

    def close(self) -> None:
        self._writer.close()
        for connection in self._connections.values():
            connection.close()

    def result(self, left_behind: str) -> ProbeResult:
        acknowledged, visible = sorted(self._acknowledged), sorted(self._visible)
        return ProbeResult(
            topic=self._topic,
            changes=len(visible),
            acknowledged_p50_ms=_quantile(acknowledged, 0.5),
            acknowledged_p99_ms=_quantile(acknowledged, 0.99),
            visible_p50_ms=_quantile(visible, 0.5),
            visible_p99_ms=_quantile(visible, 0.99),
            note="; ".join(note for note in (self.note, left_behind) if note),
        )


def _quantile(ordered: Sequence[float], part: float) -> float | None:
    """Return the smallest value that at least this part of all does not exceed (nearest rank)."""
    if not ordered:
        return None
    rank = max(0, -int(-part * len(ordered) // 1) - 1)
    return round(ordered[min(rank, len(ordered) - 1)], 1)
