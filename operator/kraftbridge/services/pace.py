"""Schedules migrations: when the next step is due, on which worker threads it runs, and how many migrations restart nodes at once."""

from __future__ import annotations

import threading
import zlib
from enum import StrEnum
from typing import Final

from kraftbridge.models.observation import LEASE_SECONDS
from kraftbridge.models.phase import Phase
from kraftbridge.models.status import MigrationStatus, WaitKind

BASE_SECONDS: Final = 2.0
"""Pause after the first step in trouble; each further one doubles it."""
TROUBLE_SECONDS: Final = 4.0
"""A step that takes longer is in trouble, even if everything was observed in the end."""
PATIENT: Final = frozenset({Phase.PREFLIGHT, Phase.COMPLETED, Phase.ROLLED_BACK})
"""Phases that hold no Lease and have nothing under way."""
_LONGEST_SECONDS: Final = 120.0
_LONGEST_WITH_LEASE_SECONDS: Final = LEASE_SECONDS / 3
"""Every step renews the Leases of the brokers' StatefulSets."""
_LONGEST_IDLE_SECONDS: Final = {Phase.PREFLIGHT: 15.0, Phase.COMPLETED: 60.0, Phase.ROLLED_BACK: 60.0}
"""A user who corrects the cluster, and not the resource, waits this long at most."""
ROLLING: Final = frozenset({Phase.TAKING_OVER, Phase.ROLLING_BROKERS, Phase.FINALIZING, Phase.ROLLING_BACK})
"""Phases that restart brokers or controllers one after the other."""


class Lane(StrEnum):
    """A group of worker threads."""

    HEALTHY = "healthy"
    NEW = "new"
    """The first step of a migration: it may be one whose cluster does not answer, and it must not wait behind those."""
    SLOW = "slow"
    """Migrations that cannot be observed, or whose steps take long."""


def first_lane(phase: Phase, *, stalled: bool) -> Lane:
    """Return the lane of a migration that this process has not taken a step for yet.

    A step that waits for a cluster that does not answer takes seconds, so only a migration that was under way is trusted at once.
    """
    if stalled:
        return Lane.SLOW
    return Lane.NEW if phase is Phase.PREFLIGHT else Lane.HEALTHY


def backoff_seconds(uid: str, failures: int, phase: Phase) -> float:
    """Return the pause after ``failures`` steps in trouble, one after the other: exponential, limited, and spread by UID.

    Parameters
    ----------
    failures
        At least 1.
    """
    longest = _LONGEST_SECONDS if phase in PATIENT else _LONGEST_WITH_LEASE_SECONDS
    spread = 0.9 + 0.2 * (zlib.crc32(uid.encode()) % 1000) / 1000
    return spread * float(min(BASE_SECONDS * 2 ** min(failures - 1, 16), longest))


def idle_seconds(asked: float, quiet_steps: int, status: MigrationStatus) -> float:
    """Return the pause of a migration that waits for its user: longer with each step that changed nothing.

    Parameters
    ----------
    asked
        Seconds that `decide` asked for.
    quiet_steps
        Steps in a row that changed neither status nor anything else.
    """
    longest = _LONGEST_IDLE_SECONDS.get(status.phase)
    waits_for_user = status.waiting is not None and status.waiting.kind is WaitKind.USER and status.operation is None
    if longest is None or not waits_for_user:
        return asked
    return max(asked, min(asked * 2.0 ** min(quiet_steps, 16), longest))


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
