"""Resolves host names within a time limit, without a cache."""

from __future__ import annotations

import socket
import threading
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
    key = (host, port)
    with _lock:
        answer = _under_way.get(key)
        if answer is None:
            answer = _under_way[key] = Future()
            threading.Thread(target=_ask, args=(key, answer), name=f"resolve {host}", daemon=True).start()
    try:
        return answer.result(timeout_seconds)
    except NotInTimeError:
        raise TimeoutError(f"no answer from the name server for {host!r} in {timeout_seconds:.1f} s") from None


def _ask(key: tuple[str, int], answer: Future[tuple[str, ...]]) -> None:
    host, port = key
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = tuple(dict.fromkeys(str(entry[4][0]) for entry in found))
    except (OSError, UnicodeError) as e:
        _end(key)
        answer.set_exception(e if isinstance(e, OSError) else OSError(f"{host!r} is no host name: {e}"))
        return
    _end(key)
    answer.set_result(addresses)


def _end(key: tuple[str, int]) -> None:
    with _lock:
        _under_way.pop(key, None)
