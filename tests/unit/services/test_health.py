"""The health endpoint."""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from kraftbridge.services.fleet import STALE_SECONDS, Health


class Seconds:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Seconds:
    return Seconds()


@pytest.fixture
def health(clock: Seconds) -> Iterator[Health]:
    server = Health(0, clock)
    yield server
    server.close()


def probe(health: Health, path: str = "/healthz") -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{health.port}{path}", timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as e:
        return e.code


def test_it_answers_while_the_event_loop_turns(health: Health, clock: Seconds) -> None:
    assert probe(health) == 200
    assert probe(health, "/") == 404
    clock.now = STALE_SECONDS + 1
    assert probe(health) == 503
    health.beat()
    assert probe(health) == 200


def test_it_answers_while_every_worker_is_busy(health: Health) -> None:
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            sum(range(1000))

    threads = [threading.Thread(target=busy, daemon=True) for _ in range(32)]
    for thread in threads:
        thread.start()
    started = time.monotonic()
    assert probe(health) == 200
    assert time.monotonic() - started < 5, "the kubelet's time limit"
    stop.set()
    for thread in threads:
        thread.join()
