"""Resolves host names within a time limit, without a cache."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTimeError

_lock = threading.Lock()
_under_way: dict[tuple[str, int], Future[tuple[str, ...]]] = {}
"""Running look-ups. Several callers that ask for the same name wait for the same answer."""


def resolve(host: str, port: int, timeout_seconds: float) -> tuple[str, ...]:
    """Return the addresses of a name, in the resolver's order.

    ``getaddrinfo`` has no time limit and can take more than ten seconds if the name server does not answer. It therefore runs on a
    separate thread, and the caller stops waiting after the time limit. A name that hangs occupies one thread, regardless of the number
    of callers. Answers are not cached, because a pod's address changes at each restart.

    Raises
    ------
    OSError
        The name is unknown, or the resolver did not answer within ``timeout_seconds``.
    """
    return _answer(host, _look_up(host, port), timeout_seconds)


def resolve_all(hosts: Iterable[str], timeout_seconds: float) -> dict[str, tuple[str, ...] | OSError]:
    """Return the addresses of several names, or why there are none; all are looked up at the same time, within one limit."""
    until = time.monotonic() + timeout_seconds
    under_way = {host: _look_up(host, 0) for host in hosts}
    found: dict[str, tuple[str, ...] | OSError] = {}
    for host, answer in under_way.items():
        try:
            found[host] = _answer(host, answer, max(until - time.monotonic(), 0.0))
        except OSError as e:
            found[host] = e
    return found


def _answer(host: str, answer: Future[tuple[str, ...]], timeout_seconds: float) -> tuple[str, ...]:
    try:
        return answer.result(timeout_seconds)
    except NotInTimeError:
        raise _silence(host) from None


def _silence(host: str) -> OSError:
    return TimeoutError(f"the name server does not answer for {host!r}")


def _look_up(host: str, port: int) -> Future[tuple[str, ...]]:
    key = (host, port)
    with _lock:
        answer = _under_way.get(key)
        if answer is None:
            answer = _under_way[key] = Future()
            threading.Thread(target=_ask, args=(key, answer), name=f"resolve {host}", daemon=True).start()
        return answer


def _ask(key: tuple[str, int], answer: Future[tuple[str, ...]]) -> None:
    host, port = key
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = tuple(dict.fromkeys(str(entry[4][0]) for entry in found))
    except (OSError, UnicodeError) as e:
        _end(key)
        failure = e if isinstance(e, OSError) else OSError(f"{host!r} is no host name: {e}")
        # The C library gave up on its servers: the same fact as a look-up that is late.
        silent = isinstance(e, socket.gaierror) and e.errno == socket.EAI_AGAIN
        answer.set_exception(_silence(host) if silent else failure)
        return
    _end(key)
    answer.set_result(addresses)


def _end(key: tuple[str, int]) -> None:
    with _lock:
        _under_way.pop(key, None)
