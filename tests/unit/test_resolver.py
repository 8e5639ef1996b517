from __future__ import annotations

import socket
import threading
import time

import pytest

from kraftbridge.kafka import client


def test_unit_tests_ask_no_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the network says of a name must not decide whether a test passes, or how long it takes."""
    asked: list[object] = []
    with monkeypatch.context() as patch:
        patch.setattr("_socket.getaddrinfo", lambda *name: asked.append(name) or [])
        with pytest.raises(socket.gaierror, match="Name or service not known"):
            client.resolve("kafka-0.kafka.kafka.svc", 1, 5.0)
    assert asked == []
    assert client.resolve("127.0.0.1", 1, 5.0) == ("127.0.0.1",)
    assert client.resolve("localhost", 1, 5.0)


def test_addresses_come_in_order_without_doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(*_: object, **__: object) -> list[tuple[object, ...]]:
        return [(2, 1, 6, "", (address, 1)) for address in ("10.0.0.2", "10.0.0.1", "10.0.0.2")]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    assert client.resolve("kafka", 1, 1.0) == ("10.0.0.2", "10.0.0.1")


def test_a_silent_name_server_costs_no_more_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: release.wait(10) and [])
    started = time.monotonic()
    with pytest.raises(TimeoutError, match="the name server does not answer for 'kafka'"):
        client.resolve("kafka", 1, 0.2)
    assert time.monotonic() - started < 1
    release.set()


def test_a_look_up_that_the_c_library_gave_up_is_told_as_one_that_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(*_: object, **__: object) -> list[tuple[object, ...]]:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    with pytest.raises(TimeoutError, match="the name server does not answer for 'given-up'"):
        client.resolve("given-up", 1, 5.0)  # else the message of a status would change from step to step


def test_several_names_are_looked_up_at_the_same_time_within_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()

    def getaddrinfo(host: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        if host.startswith("silent"):
            release.wait(10)
        return [(2, 1, 6, "", ("10.0.0.1", 1))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    started = time.monotonic()
    found = client.resolve_all(["silent-1", "kafka", "silent-2", "silent-3"], 0.3)
    assert time.monotonic() - started < 0.6
    assert found["kafka"] == ("10.0.0.1",)
    assert all(isinstance(found[f"silent-{i}"], TimeoutError) for i in (1, 2, 3))
    release.set()


@pytest.mark.parametrize("name", ["no-such-host.invalid", "a" * 64 + ".example", "..."])
def test_a_name_that_is_none_is_an_os_error(name: str) -> None:
    with pytest.raises(OSError, match=r"."):
        client.resolve(name, 1, 15.0)


def test_a_name_that_hangs_holds_one_thread_however_often_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    release, asked = threading.Event(), []

    def getaddrinfo(host: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        asked.append(host)
        if host == "silent":
            release.wait(10)
        return [(2, 1, 6, "", ("10.0.0.1", 1))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    for _ in range(20):
        with pytest.raises(TimeoutError):
            client.resolve("silent", 1, 0.01)
    assert asked == ["silent"]
    assert client.resolve("kafka", 1, 1.0) == ("10.0.0.1",), "other names do not wait for it"
    release.set()
    assert client.resolve("silent", 1, 1.0) == ("10.0.0.1",)
