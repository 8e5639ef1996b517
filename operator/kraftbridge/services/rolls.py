"""How many migrations restart nodes at the same time."""

from __future__ import annotations

import threading
from typing import Final

from kraftbridge.models.phase import Phase

ROLLING: Final = frozenset({Phase.TAKING_OVER, Phase.ROLLING_BROKERS, Phase.FINALIZING, Phase.ROLLING_BACK})
"""Phases that restart brokers or controllers one after the other."""


class Rolls:
    """Counts the migrations in a phase of `ROLLING`; thread-safe.

    A rollback counts and never waits: `decide` does not ask before it enters ``RollingBack``.

    Parameters
    ----------
    most
        How many may roll at once; 0 for any number.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._rolling: set[str] = set()

    def note(self, uid: str, phase: Phase) -> None:
        """Take note of the phase of a migration, as its status says."""
        with self._lock:
            if phase in ROLLING:
                self._rolling.add(uid)
            else:
                self._rolling.discard(uid)

    def forget(self, uid: str) -> None:
        """Drop a migration that is gone."""
        with self._lock:
            self._rolling.discard(uid)

    def free(self, uid: str) -> bool:
        """Return whether this migration may begin to roll now."""
        with self._lock:
            return self._free(uid)

    def take(self, uid: str) -> bool:
        """Count a migration that begins to roll; return False when others took the last place."""
        with self._lock:
            if not self._free(uid):
                return False
            self._rolling.add(uid)
            return True

    def _free(self, uid: str) -> bool:
        return self._most == 0 or uid in self._rolling or len(self._rolling) < self._most
