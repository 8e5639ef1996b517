"""Names to addresses, anew each time and within a time limit."""

from __future__ import annotations

import queue
import socket
import threading


def resolve(host: str, port: int, timeout_seconds: float) -> tuple[str, ...]:
    """Return the addresses of a name, in the resolver's order.

    The resolver has no time limit of its own and may take ten seconds and more for a name whose server is silent, so
    it is asked on a thread that is left behind when it is late. Nothing is cached: a pod's address changes at each
    restart.

    Raises
    ------
    OSError
        The name is unknown, or the resolver was silent for ``timeout_seconds``.
    """
    answers: queue.SimpleQueue[tuple[str, ...] | OSError] = queue.SimpleQueue()

    def ask() -> None:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            answers.put(tuple(dict.fromkeys(str(entry[4][0]) for entry in found)))
        except OSError as e:
            answers.put(e)
        except UnicodeError as e:
            answers.put(OSError(f"{host!r} is no host name: {e}"))

    threading.Thread(target=ask, name=f"resolve {host}", daemon=True).start()
    try:
        answer = answers.get(timeout=timeout_seconds)
    except queue.Empty:
        raise TimeoutError(f"no answer from the name server for {host!r} in {timeout_seconds:.1f} s") from None
    if isinstance(answer, OSError):
        raise answer
    return answer
