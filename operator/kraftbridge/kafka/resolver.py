"""Resolves names, anew each time and within a time limit."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTimeError

_lock = threading.Lock()
_under_way: dict[tuple[str, int], Future[tuple[str, ...]]] = {}
"""Look-ups that have not ended: whoever asks for the same name waits for the same answer."""


def resolve(host: str, port: int, timeout_seconds: float) -> tuple[str, ...]:
    """Return the addresses of a name, in the resolver's order.

    ``getaddrinfo`` has no time limit and may take ten seconds and more for a name whose server is silent. So it runs on a
    thread that is left behind when it is late; a name that hangs holds one thread, however often it is asked for. Nothing is cached
    after the answer: a pod's address changes at each restart.

    Raises
    ------
    OSError
        The name is unknown, or the resolver was silent for ``timeout_seconds``.
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
