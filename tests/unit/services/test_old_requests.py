"""Whose metrics are read, and for how long at most."""

from __future__ import annotations

import time
from typing import Any
from unittest.mock import Mock

import pytest

from kraftbridge.exceptions import ObservationError
from kraftbridge.models.observation import OldRequests, Unobserved
from kraftbridge.models.spec import BrokerMetricsSpec
from kraftbridge.services.observe import old_requests

PAGE = BrokerMetricsSpec(port=9404)


def asking(
    monkeypatch: pytest.MonkeyPatch, brokers: int, seconds: float = 0.0, error: str = ""
) -> tuple[Any, list[int]]:
    """Return a cluster of so many running brokers, whose pages take so long, and who was asked for one."""
    asked: list[int] = []

    def read(broker: int, *_: object) -> tuple[OldRequests, ...]:
        asked.append(broker)
        time.sleep(seconds)
        if error:
            raise ObservationError(f"metrics of broker {broker}", error)
        return ()

    monkeypatch.setattr(old_requests, "read_old_requests", read)
    clients = Mock()
    clients.brokers.send_old_requests.return_value = dict.fromkeys(range(brokers))
    return clients, asked


def addresses(brokers: int) -> dict[int, str]:
    return {broker: f"10.0.0.{broker}" for broker in range(brokers)}


def test_a_broker_that_came_after_the_migration_is_one_whose_clients_are_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The StatefulSet was scaled in ``Completed``: preflight knows nothing of this broker."""
    clients, asked = asking(monkeypatch, 4)
    told = old_requests.old_requests_of(PAGE, addresses(3), clients)
    assert sorted(asked) == [0, 1, 2]
    assert told == {0: (), 1: (), 2: (), 3: Unobserved("metrics of broker 3", "its pod is not known")}


def test_many_silent_pages_do_not_outlast_the_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """A NetworkPolicy lets nobody to the exporters of 60 brokers: a step of 150 s, and Leases of 30 s."""
    monkeypatch.setattr(old_requests, "_SILENT_SECONDS", 0.2)
    clients, asked = asking(monkeypatch, 60, seconds=0.1, error="timed out")
    told = old_requests.old_requests_of(PAGE, addresses(60), clients)
    assert len(told) == 60
    assert all(isinstance(answer, Unobserved) for answer in told.values())
    assert len(asked) <= 8
    assert "other pages did not come in time" in str(told[59])


def test_slow_pages_that_come_are_all_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(old_requests, "_SILENT_SECONDS", 0.05)
    clients, asked = asking(monkeypatch, 10, seconds=0.05)
    assert old_requests.old_requests_of(PAGE, addresses(10), clients) == dict.fromkeys(range(10), ())
    assert len(asked) == 10
