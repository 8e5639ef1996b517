"""Kafka starts only after nothing of the real cluster can be reached any more."""

from __future__ import annotations

import socket
import threading

import pytest

from kraftbridge.exceptions import RehearsalError
from kraftbridge.rehearsal.pod import await_fence


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_an_address_that_still_answers_is_named(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    with pytest.raises(RehearsalError, match=f"egress is open: 127.0.0.1:{port} still answers"):
        await_fence([("127.0.0.1", port)], 0.3)


def test_it_waits_until_the_fence_stands(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    threading.Timer(0.3, listener.close).start()
    await_fence([("127.0.0.1", port)], 5)
    assert listener.fileno() == -1


def test_a_fence_that_cannot_be_probed_is_none() -> None:
    with pytest.raises(RehearsalError, match="no address"):
        await_fence([], 1)
