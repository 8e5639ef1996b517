"""Measures, beside the loop, how long no controller takes metadata writes. Losing a measurement costs a number, never correctness."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, Protocol

from kraftbridge.models.observation import ControllerProbe

log = logging.getLogger(__name__)

EVERY_SECONDS: Final = 0.25
_JOIN_SECONDS: Final = 3.0


class ProbeClient(Protocol):
    """`kraftbridge.storage.controller_probe.ControllerProbeClient`, or a test's."""

    def accepts(self) -> bool:
        """Return whether a controller takes a write now; bounded in time."""

    def close(self) -> None:
        """Close its connections."""


class Prober:
    """Probes in a thread of its own while it is wanted.

    Parameters
    ----------
    open_client
        Makes the client when it is first needed.
    clock
        Seconds; for tests.
    """

    def __init__(self, open_client: Callable[[], ProbeClient], clock: Callable[[], float] = time.monotonic) -> None:
        self._open_client = open_client
        self._clock = clock
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._key = ""
        self._refused_since: float | None = None
        self._accepted_once = False
        self._longest = ControllerProbe(0, None)

    def measure(self, key: str) -> ControllerProbe:
        """Keep probing and return what was found under ``key`` (a phase) so far; another key begins anew."""
        with self._lock:
            if key != self._key:
                self._key, self._longest = key, ControllerProbe(0, None)
            longest = self._longest
        if self._thread is None or not self._thread.is_alive():
            self._stop.clear()
            self._thread = threading.Thread(target=self._run, name="probe the controller", daemon=True)
            self._thread.start()
        return longest

    def rest(self) -> None:
        """Stop probing."""
        self._stop.set()

    def close(self) -> None:
        """Stop probing and wait for the thread's end."""
        self.rest()
        if self._thread is not None:
            self._thread.join(_JOIN_SECONDS)

    def note(self, *, accepted: bool, asked_at: float, answered_at: float) -> None:
        """Take one probe into account; a gap counts once writes were accepted before it and are again after it."""
        with self._lock:
            if not accepted:
                if self._accepted_once and self._refused_since is None:
                    self._refused_since = asked_at
                return
            since, self._refused_since, self._accepted_once = self._refused_since, None, True
            if since is None:
                return
            milliseconds = round((answered_at - since) * 1000)
            if milliseconds > self._longest.longest_milliseconds:
                self._longest = ControllerProbe(milliseconds, datetime.now(UTC))

    def _run(self) -> None:
        client = self._open_client()
        with self._lock:
            self._refused_since, self._accepted_once = None, False
        try:
            while not self._stop.is_set():
                asked_at = self._clock()
                accepted = client.accepts()
                answered_at = self._clock()
                self.note(accepted=accepted, asked_at=asked_at, answered_at=answered_at)
                self._stop.wait(max(EVERY_SECONDS - (answered_at - asked_at), 0.0))
        except Exception:
            log.exception("the probe of the controller broke off; the next step begins another")
        finally:
            client.close()
