"""Waiting for sockets as kazoo does it: the same answers as kazoo's own `select`, and as many open files."""

from __future__ import annotations

import random
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
from kazoo.handlers.threading import SequentialThreadingHandler

from kraftbridge.metadata.zookeeper.session import PollingHandler

Pairs = list[tuple[socket.socket, socket.socket]]


@pytest.fixture
def pairs() -> Iterator[Pairs]:
    with ExitStack() as stack:
        made = [socket.socketpair() for _ in range(4)]
        for pair in made:
            for each in pair:
                stack.enter_context(each)
                each.setblocking(False)
        yield made


def put_into_a_state(ours: socket.socket, theirs: socket.socket, state: str) -> None:
    match state:
        case "idle":
            pass
        case "readable":
            theirs.send(b"x")
        case "full":
            with suppress(BlockingIOError):
                while True:
                    ours.send(bytes(4096))
        case "closed by the other side":
            theirs.close()
        case "half closed":
            theirs.shutdown(socket.SHUT_WR)


STATES = ("idle", "readable", "full", "closed by the other side", "half closed")


@pytest.mark.parametrize("seed", range(60))
def test_the_answer_is_that_of_kazoo(pairs: Pairs, seed: int) -> None:
    draw = random.Random(seed)
    for ours, theirs in pairs:
        put_into_a_state(ours, theirs, draw.choice(STATES))
    sockets = [ours for ours, _ in pairs]
    reading = draw.sample(sockets, draw.randint(0, 4))
    writing = [each for each in draw.sample(sockets, draw.randint(0, 4)) if each not in reading]
    assert PollingHandler().select(reading, writing, [], 0) == tuple(
        [each for each in asked if each in found]
        for asked, found in zip(
            (reading, writing, []), SequentialThreadingHandler().select(reading, writing, [], 0), strict=True
        )
    )


def test_a_socket_can_be_asked_for_both(pairs: Pairs) -> None:
    (ours, theirs), *_ = pairs
    assert PollingHandler().select([ours], [ours], [], 0) == ([], [ours], [])
    theirs.send(b"x")
    assert PollingHandler().select([ours], [ours], [], 0) == ([ours], [ours], [])


def test_it_does_not_return_before_its_time(pairs: Pairs) -> None:
    (ours, _), *_ = pairs
    for seconds in (0.0004, 0.03):
        began = time.monotonic()
        assert PollingHandler().select([ours], [], [], seconds) == ([], [], [])
        assert time.monotonic() - began >= seconds


def test_a_closed_socket_and_a_negative_time_are_refused(pairs: Pairs) -> None:
    (ours, _), *_ = pairs
    with pytest.raises(ValueError, match="non-negative"):
        PollingHandler().select([ours], [], [], -1)
    ours.close()
    with pytest.raises(ValueError, match="negative"):
        PollingHandler().select([ours], [], [], 0)


def test_more_files_than_select_takes(pairs: Pairs) -> None:
    """`select.select` refuses file numbers from 1,024 on; an operator with many sessions has them."""
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(limit, 4096), most), most))
    (ours, theirs), *_ = pairs
    with ExitStack() as stack:
        while stack.enter_context(ours.dup()).fileno() < 1100:
            pass
        high = stack.enter_context(ours.dup())
        theirs.send(b"x")
        assert PollingHandler().select([high], [], [], 1) == ([high], [], [])
