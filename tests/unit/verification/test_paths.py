"""Which addresses a pod reaches, tried by its log server over real sockets on loopback."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from tests.unit.verification.test_logserver import DATA, TOKEN, write_certificate

from kraftbridge.exceptions import ObservationError
from kraftbridge.pods import paths
from kraftbridge.pods.logserver import LogServer
from kraftbridge.storage.paths import OLDER_SIDECAR, try_paths


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[LogServer, Path]]:
    write_certificate(tmp_path)
    (tmp_path / "token").write_text(TOKEN)
    server = LogServer(("127.0.0.1", 0), DATA, tmp_path / "tls.crt", tmp_path / "tls.key", tmp_path / "token")
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield server, tmp_path
    server.shutdown()
    server.server_close()


@pytest.fixture
def sockets() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def listening(sockets: ExitStack, host: str = "127.0.0.1") -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = sockets.enter_context(closing(socket.socket(family, socket.SOCK_STREAM)))
    listener.bind((host, 0))
    listener.listen(8)
    return int(listener.getsockname()[1])


def refusing() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def silent(sockets: ExitStack) -> int:
    """Return a port whose queue is full, so that Linux drops what asks for a connection, as a NetworkPolicy does."""
    listener = sockets.enter_context(closing(socket.socket()))
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    for _ in range(4):
        waiting = sockets.enter_context(closing(socket.socket()))
        waiting.setblocking(False)
        waiting.connect_ex(listener.getsockname())
    return int(listener.getsockname()[1])


def asked(served: tuple[LogServer, Path], targets: list[paths.Target], token: str = TOKEN) -> list[str]:
    server, folder = served
    authority = (folder / "tls.crt").read_text()
    return try_paths("127.0.0.1", token, authority, targets, server.server_address[1])


def post(served: tuple[LogServer, Path], body: bytes, path: str = paths.PATHS_PATH, **headers: str) -> int:
    server, folder = served
    context = ssl.create_default_context(cafile=str(folder / "tls.crt"))
    connection = http.client.HTTPSConnection("127.0.0.1", server.server_address[1], context=context, timeout=5)
    with closing(connection):
        connection.request("POST", path, body, {"Authorization": f"Bearer {TOKEN}"} | headers)
        return connection.getresponse().status


def test_what_takes_a_connection_is_told_from_what_refuses_it_and_from_what_is_silent(served, sockets, monkeypatch):
    monkeypatch.setattr(paths, "CONNECTED_WITHIN_SECONDS", 1.0)
    targets = [
        ("127.0.0.1", listening(sockets)),
        ("127.0.0.1", refusing()),
        ("127.0.0.1", silent(sockets)),
        ("no-such-host.invalid", 9092),
        ("localhost", listening(sockets)),
    ]
    reached, refused, dropped, unnamed, by_name = asked(served, targets)
    assert (reached, by_name) == ("", "")
    assert refused == "127.0.0.1: Connection refused"
    assert dropped == "127.0.0.1 did not answer within 1 s"
    assert unnamed.startswith("the name does not resolve: ")


def test_an_address_of_ipv6(served, sockets):
    assert asked(served, [("::1", listening(sockets, "::1"))]) == [""]
    assert asked(served, [("::1", refusing())]) == ["::1: Connection refused"]


def test_one_address_of_a_name_is_enough(served, sockets, monkeypatch):
    port = listening(sockets)
    monkeypatch.setattr(paths, "resolve_all", lambda hosts, _: dict.fromkeys(hosts, ("::1", "127.0.0.1")))
    assert asked(served, [("kafka-0.kafka", port)]) == [""]
    monkeypatch.setattr(paths, "resolve_all", lambda hosts, _: dict.fromkeys(hosts, ("::1", "127.0.0.2")))
    assert asked(served, [("kafka-0.kafka", port)]) == ["::1: Connection refused; 127.0.0.2: Connection refused"]


def test_a_hundred_silent_addresses_take_no_longer_than_one(served, sockets, monkeypatch):
    import time

    monkeypatch.setattr(paths, "CONNECTED_WITHIN_SECONDS", 0.5)
    port = silent(sockets)
    began = time.monotonic()
    failures = asked(served, [("127.0.0.1", port)] * (2 * paths.MOST_ADDRESSES))
    assert len(failures) == 2 * paths.MOST_ADDRESSES
    assert all("did not answer" in words for words in failures)
    assert time.monotonic() - began < 5.0


@pytest.mark.parametrize("token", ["", "wrong", TOKEN[:-1]])
def test_without_the_token_nothing_is_tried(served, monkeypatch, token):
    monkeypatch.setattr(paths, "tried", lambda _targets: pytest.fail("somebody without the token made it connect"))
    with pytest.raises(ObservationError, match="it answers 401"):
        asked(served, [("127.0.0.1", 1)], token)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'{"targets": 5}',
        b'{"targets": [["127.0.0.1"]]}',
        b'{"targets": [["127.0.0.1", 0]]}',
        b'{"targets": [["127.0.0.1", 65536]]}',
        b'{"targets": [["127.0.0.1", "x"]]}',
        b'{"targets": [["", 1]]}',
        b'{"targets": [["a/b", 1]]}',
        b'{"targets": [["a\\u0000b", 1]]}',
        b'{"targets": [["\\ud800", 1]]}',
        b'{"targets": [[7, 1]]}',
        b'{"targets": ' + b"[" * 20_000,
        json.dumps({"targets": [["127.0.0.1", 1]] * (paths.MOST_ADDRESSES + 1)}).encode(),
    ],
)
def test_nothing_but_a_short_list_of_addresses_is_tried(served, monkeypatch, body):
    monkeypatch.setattr(paths, "tried", lambda _targets: pytest.fail("it connects"))
    assert post(served, body) == 400


def test_a_list_is_read_only_where_it_is_short(served, monkeypatch):
    monkeypatch.setattr(paths, "tried", lambda _targets: pytest.fail("it connects"))
    assert post(served, b"{}", **{"Content-Length": str(paths.MOST_BYTES + 1)}) == 400
    assert post(served, b'{"targets": [["127.0.0.1", 1]]}', path="/v1/files") == 404


@pytest.mark.parametrize("length", ["-1", "1e3", "x"])
def test_a_length_that_is_none_is_refused(served, length):
    assert post(served, b"{}", **{"Content-Length": length}) == 400


def test_one_list_at_a_time(served, sockets, monkeypatch):
    monkeypatch.setattr(paths, "CONNECTED_WITHIN_SECONDS", 1.0)
    port = silent(sockets)
    server, _ = served
    with server.trial, pytest.raises(ObservationError, match="it answers 503"):
        asked(served, [("127.0.0.1", port)])
    assert "did not answer" in asked(served, [("127.0.0.1", port)])[0]


def test_a_sidecar_of_an_earlier_release_is_told_from_a_path_that_is_closed(served, monkeypatch):
    monkeypatch.delattr(_handler(), "do_POST")
    with pytest.raises(ObservationError) as found:
        asked(served, [("127.0.0.1", 1)])
    assert found.value.reason == OLDER_SIDECAR


def _handler() -> type:
    from kraftbridge.pods.logserver import LogRequestHandler

    return LogRequestHandler


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b'{"failures": []}', "it answers for 0 of 1 addresses"),
        (b'{"failures": 5}', "something else than a result"),
        (b"<html>", "something else than a result"),
        (b'{"failures": ["' + b"x" * paths.MOST_BYTES + b'"]}', "something else than a result"),
    ],
)
def test_an_answer_that_is_none_opens_nothing(served, monkeypatch, answer, words):
    handler = _handler()
    monkeypatch.setattr(handler, "do_POST", lambda self: self._send(200, answer, "application/json"))
    with pytest.raises(ObservationError, match=words):
        asked(served, [("127.0.0.1", 1)])


def test_a_sidecar_that_is_not_there_is_unknown(served):
    _, folder = served
    with pytest.raises(ObservationError, match="Connection refused"):
        try_paths("127.0.0.1", TOKEN, (folder / "tls.crt").read_text(), [("127.0.0.1", 1)], refusing())
