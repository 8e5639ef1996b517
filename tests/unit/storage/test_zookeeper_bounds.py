"""A ZooKeeper that a tenant names costs its own migration an observation, and the operator neither memory nor time. Real sockets on loopback."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from tests.support.memory import at_most
from tests.support.wire_servers import (
    ACL,
    CHILDREN,
    GET,
    MEGA,
    STAT,
    ZooKeeperServer,
    empty_tree,
    names,
    text,
    znode,
)

from kraftbridge.exceptions import ObservationError
from kraftbridge.models.observation import Unobserved
from kraftbridge.outside import bounds
from kraftbridge.storage import zookeeper as module
from kraftbridge.storage.zookeeper import ZooKeeperStore


@contextmanager
def store_of(
    answer: Callable[[int, str], bytes | None] = empty_tree, greeting: bytes | None = None
) -> Iterator[tuple[Any, ZooKeeperServer]]:
    server = ZooKeeperServer(answer, greeting)
    store = ZooKeeperStore(server.address)
    try:
        yield store, server
    finally:
        store.close()
        server.close()


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CLOSE_SECONDS", 0.5)


def test_an_empty_tree_is_observed() -> None:
    with store_of() as (store, _):
        assert store.observe().brokers == ()


def test_a_reply_of_any_length_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CONNECT_SECONDS", 2.0)
    with store_of(greeting=struct.pack("!i", 0x7FFFFFFF)) as (store, server), at_most(16):
        with pytest.raises(
            ObservationError, match=r"sends a reply of 2048.0 MiB, and 8.0 MiB is the most.*spec\.zookeeper\.connect"
        ):
            store.observe()
        assert server.sent < 50 * bounds.MIB


@pytest.mark.parametrize(
    ("kind", "body"),
    [(GET, b"\xff" * 40), (CHILDREN, struct.pack("!ii", 9, 1 << 30)), (CHILDREN, struct.pack("!ii", 1, -1))],
    ids=["data", "children", "a child without a name"],
)
def test_what_is_no_reply_in_kind_is_an_observation(kind: int, body: bytes) -> None:
    def answer(asked: int, path: str) -> bytes | None:
        return body if asked == kind else empty_tree(asked, path)

    with store_of(answer) as (store, _), pytest.raises(ObservationError, match="a reply cannot be read"):
        store.observe()


def test_a_list_of_children_of_4_mebibytes_passes() -> None:
    most = 4 * bounds.MIB // 17

    def answer(kind: int, path: str) -> bytes | None:
        return names(most) if (kind, path) == (CHILDREN, "/admin/delete_topics") else empty_tree(kind, path)

    with store_of(answer) as (store, _):
        assert len(store.observe().pending_topic_deletions) == most > 240_000


@pytest.mark.parametrize(
    ("path", "count", "words"),
    [
        ("/admin/delete_topics", bounds.ZNODE_CHILDREN + 1, "250,001 children of one znode, and 250,000 is the most"),
        ("/brokers/ids", bounds.BROKERS + 1, "/brokers/ids: it has 2,001 brokers, and 2,000 is the most"),
    ],
)
def test_more_children_than_the_bound_are_named(path: str, count: int, words: str) -> None:
    body = names(count, "{}")

    def answer(kind: int, asked: str) -> bytes | None:
        return body if (kind, asked) == (CHILDREN, path) else empty_tree(kind, asked)

    with store_of(answer) as (store, _), at_most(24), pytest.raises(ObservationError, match=words):
        store.observe()


def test_acls_without_end_are_named() -> None:
    entry = struct.pack("!i", 31) + text("w") + text("a")
    body = struct.pack("!i", 100_000) + entry * 100_000 + STAT

    def answer(kind: int, path: str) -> bytes | None:
        return body if kind == ACL else empty_tree(kind, path)

    with (
        store_of(answer) as (store, _),
        at_most(80),
        pytest.raises(ObservationError, match=r"100,000 ACL entries of one znode"),
    ):
        store.acls()


def test_many_large_replies_together_are_refused() -> None:
    body = struct.pack("!i", 7 * bounds.MIB) + bytes(7 * bounds.MIB) + STAT

    def answer(kind: int, path: str) -> bytes | None:
        return body if kind == GET else empty_tree(kind, path)

    with store_of(answer) as (store, _), at_most(80), pytest.raises(ObservationError):
        store.payloads([f"/{i}" for i in range(100)])


@pytest.mark.parametrize(
    "payload",
    [b"[" * 100_000, b'{"a":' * 100_000, b"[" + b"[]," * (bounds.ZNODE_BYTES // 3) + b"[]]", b"9" * 100_000],
    ids=["deep lists", "deep objects", "large", "long number"],
)
@pytest.mark.parametrize("path", ["/controller", "/migration"])
def test_a_payload_that_is_deep_or_large_is_an_observation(path: str, payload: bytes) -> None:
    def answer(kind: int, asked: str) -> bytes | None:
        return znode(payload) if (kind, asked) == (GET, path) else empty_tree(kind, asked)

    with store_of(answer) as (store, _), at_most(24):
        if path == "/migration":
            assert isinstance(store.observe().migration, Unobserved)
            return
        with pytest.raises(ObservationError, match="a znode cannot be decoded"):
            store.observe()


def cons(send: Callable[[socket.socket], None]) -> str:
    """Return what the operator makes of a server's answer to cons."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection = listener.accept()[0]
            with connection, suppress(OSError):
                connection.recv(16)
                send(connection)

        threading.Thread(target=serve, daemon=True).start()
        store = ZooKeeperStore(f"127.0.0.1:{listener.getsockname()[1]}")
        found = store.broker_session_count()
    assert isinstance(found, Unobserved)
    return found.reason


def flood(connection: socket.socket) -> None:
    for _ in range(600):
        connection.sendall(MEGA)


def drip(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"a")
        time.sleep(0.02)


def test_an_answer_without_end_is_bounded() -> None:
    with at_most(16):
        assert "it sent more than 4.0 MiB" in cons(flood)


def test_an_answer_that_drips_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FOUR_LETTER_WORD_SECONDS", 0.5)
    assert "has not ended in time" in cons(drip)
