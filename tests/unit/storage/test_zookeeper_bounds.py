"""A ZooKeeper that a tenant names costs its own migration an observation, and the operator neither memory nor time. Real sockets on loopback."""

from __future__ import annotations

import socket
import struct
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import pytest

from kraftbridge import bounds
from kraftbridge.exceptions import ObservationError
from kraftbridge.models.observation import Unobserved
from kraftbridge.storage import zookeeper as module
from kraftbridge.storage.zookeeper import ZooKeeperStore

GET, ACL, CHILDREN, SYNC = 4, 6, 8, 9
NO_NODE: Final = -101
STAT: Final = struct.pack("!qqqqiiiqiiq", *[0] * 11)
MEGA: Final = bytes(bounds.MIB)


def text(value: str) -> bytes:
    return struct.pack("!i", len(value)) + value.encode()


def names(count: int, pattern: str = "{:013}") -> bytes:
    return struct.pack("!i", count) + b"".join(text(pattern.format(i)) for i in range(count))


class Server:
    """Speaks ZooKeeper's protocol as far as a session and reads need it."""

    def __init__(self, answer: Callable[[int, str], bytes | None], greeting: bytes | None = None) -> None:
        self._answer = answer
        self._greeting = greeting
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.sent = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection = self._listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection, suppress(OSError, struct.error):
            self._frame(connection)
            if self._greeting is not None:
                connection.sendall(self._greeting)
                self._flood(connection)
                return
            self._reply(connection, struct.pack("!iiqi", 0, 6000, 1, 16) + bytes(17))
            while True:
                request = self._frame(connection)
                xid, kind = struct.unpack_from("!ii", request)
                if kind == 11 or xid == -2:
                    self._reply(connection, struct.pack("!iqi", xid, 1, 0))
                    continue
                length = struct.unpack_from("!i", request, 8)[0] if len(request) >= 12 else 0
                found = self._answer(kind, request[12 : 12 + max(length, 0)].decode())
                header = struct.pack("!iqi", xid, 1, 0 if found is not None else NO_NODE)
                self._reply(connection, header + (found or b""))

    def _flood(self, connection: socket.socket) -> None:
        for _ in range(200):
            connection.sendall(MEGA)
            self.sent += len(MEGA)

    @staticmethod
    def _frame(connection: socket.socket) -> bytes:
        def exactly(count: int) -> bytes:
            found = b""
            while len(found) < count:
                found += connection.recv(count - len(found)) or b""
                if not found:
                    raise OSError
            return found

        return exactly(struct.unpack("!i", exactly(4))[0])

    @staticmethod
    def _reply(connection: socket.socket, body: bytes) -> None:
        connection.sendall(struct.pack("!i", len(body)) + body)


def honest(kind: int, path: str) -> bytes | None:
    """Answer as an empty tree."""
    if kind == SYNC:
        return text(path)
    return {CHILDREN: struct.pack("!i", 0)}.get(kind)


@contextmanager
def store_of(
    answer: Callable[[int, str], bytes | None] = honest, greeting: bytes | None = None
) -> Iterator[tuple[Any, Server]]:
    server = Server(answer, greeting)
    store = ZooKeeperStore(server.address)
    try:
        yield store, server
    finally:
        store.close()
        server.close()


@contextmanager
def at_most(mebibytes: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < mebibytes * bounds.MIB, bounds.size(peak)


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
        return body if asked == kind else honest(asked, path)

    with store_of(answer) as (store, _), pytest.raises(ObservationError, match="a reply cannot be read"):
        store.observe()


def test_a_list_of_children_of_4_mebibytes_passes() -> None:
    most = 4 * bounds.MIB // 17

    def answer(kind: int, path: str) -> bytes | None:
        return names(most) if (kind, path) == (CHILDREN, "/admin/delete_topics") else honest(kind, path)

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
        return body if (kind, asked) == (CHILDREN, path) else honest(kind, asked)

    with store_of(answer) as (store, _), at_most(24), pytest.raises(ObservationError, match=words):
        store.observe()


def test_acls_without_end_are_named() -> None:
    entry = struct.pack("!i", 31) + text("w") + text("a")
    body = struct.pack("!i", 100_000) + entry * 100_000 + STAT

    def answer(kind: int, path: str) -> bytes | None:
        return body if kind == ACL else honest(kind, path)

    with (
        store_of(answer) as (store, _),
        at_most(80),
        pytest.raises(ObservationError, match=r"100,000 ACL entries of one znode"),
    ):
        store.acls()


def test_many_large_replies_together_are_refused() -> None:
    body = struct.pack("!i", 7 * bounds.MIB) + bytes(7 * bounds.MIB) + STAT

    def answer(kind: int, path: str) -> bytes | None:
        return body if kind == GET else honest(kind, path)

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
        found = struct.pack("!i", len(payload)) + payload + STAT
        return found if (kind, asked) == (GET, path) else honest(kind, asked)

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
