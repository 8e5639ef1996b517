"""Schedules migrations: when a step is due, on which threads it runs, and how many migrations restart nodes at once."""

from __future__ import annotations

import threading
import zlib
from enum import StrEnum
from typing import Final

from kraftbridge.models.observation import LEASE_SECONDS
from kraftbridge.models.phase import Phase
from kraftbridge.models.status import MigrationStatus, WaitKind

BASE_SECONDS: Final = 2.0
"""Pause after the first failed step. Each further failed step doubles it."""
TROUBLE_SECONDS: Final = 4.0
"""A step that takes longer counts as failed, even if everything was observed in the end."""
_LONGEST_SECONDS: Final = 120.0
_LONGEST_WITH_LEASE_SECONDS: Final = LEASE_SECONDS / 3
"""Every step renews the Leases of the brokers' StatefulSets."""


class Lane(StrEnum):
    """A group of worker threads."""

    HEALTHY = "healthy"
    NEW = "new"
    """The first step of a migration.
    Its cluster may not answer, and it must not wait behind migrations of which this is known."""
    SLOW = "slow"
    """Migrations that cannot be observed or whose steps take long."""


def first_lane(phase: Phase, *, stalled: bool) -> Lane:
    """Return the lane of a migration before its first step in this process.

    A step that waits for a silent cluster takes seconds, so only a migration that was already in progress
    starts in the healthy lane.
    """
    if stalled:
        return Lane.SLOW
    return Lane.NEW if phase is Phase.PREFLIGHT else Lane.HEALTHY


def backoff_seconds(uid: str, failures: int, phase: Phase) -> float:
    """Return the pause after ``failures`` consecutive failed steps: exponential, limited, and spread by UID.

    Parameters
    ----------
    failures
        At least 1.
    """
    longest = _LONGEST_SECONDS if phase.at_rest else _LONGEST_WITH_LEASE_SECONDS
    return spread(uid) * float(min(BASE_SECONDS * 2 ** min(failures - 1, 16), longest))


def spread(uid: str) -> float:
    """Return a factor from 0.9 to 1.1, by which the steps of many migrations come apart that began at the same time."""
    return 0.9 + 0.2 * (zlib.crc32(uid.encode()) % 1000) / 1000


def idle_seconds(uid: str, asked: float, quiet_steps: int, status: MigrationStatus) -> float:
    """Return the pause of a migration that waits for its user.

    It grows with each step that changed nothing, and is spread by UID.

    Parameters
    ----------
    asked
        Seconds that `decide` returned.
    quiet_steps
        Consecutive steps that changed nothing.
    """
    longest = status.phase.row.idle_seconds
    waits_for_user = status.waiting is not None and status.waiting.kind is WaitKind.USER and status.operation is None
    if longest is None or not waits_for_user:
        return asked
    return spread(uid) * max(asked, min(asked * 2.0 ** min(quiet_steps, 16), longest))


def needs_place(phase: Phase, wait: WaitKind | None, *, stalled: bool) -> bool:
    """Return whether a migration takes one of the places of ``maxConcurrentRolls``.

    One that is stalled, or waits for its user or for a soak, restarts nothing until that ends.
    How long that takes is up to its user, who would otherwise keep everybody else waiting.
    """
    return phase.row.restarts_nodes and not stalled and wait not in (WaitKind.USER, WaitKind.SOAK)


class Rolls:
    """Counts the migrations that restart nodes; thread-safe.

    A migration that has begun to roll, and a rollback, are counted but never wait.
    `decide` asks for a place only before it enters a phase that restarts nodes.

    Parameters
    ----------
    most
        Maximum number of migrations that roll at once; 0 for no limit.
    keeps_last
        Whether the last of several places goes to a namespace that has none yet.
        Otherwise one tenant could take all places.
    """

    def __init__(self, most: int, *, keeps_last: bool = False) -> None:
        self._most = most
        self._most_in_namespace = most - 1 if keeps_last and most > 1 else most
        self._lock = threading.Lock()
        self._namespaces: dict[str, str] = {}
        """Namespace of each migration that rolls, by UID."""

    def note(self, uid: str, namespace: str, *, needs_place: bool) -> None:
        """Record what the status of a migration says."""
        with self._lock:
            if needs_place:
                self._namespaces[uid] = namespace
            else:
                self._namespaces.pop(uid, None)

    def forget(self, uid: str) -> None:
        """Remove a deleted migration."""
        with self._lock:
            self._namespaces.pop(uid, None)

    def free(self, uid: str, namespace: str) -> bool:
        """Return whether this migration may begin to roll now."""
        with self._lock:
            return self._free(uid, namespace)

    def take(self, uid: str, namespace: str) -> bool:
        """Count a migration that begins to roll; return False if others took the last place."""
        with self._lock:
            if not self._free(uid, namespace):
                return False
            self._namespaces[uid] = namespace
            return True

    def _free(self, uid: str, namespace: str) -> bool:
        if self._most == 0 or uid in self._namespaces:
            return True
        in_namespace = list(self._namespaces.values()).count(namespace)
        return len(self._namespaces) < self._most and in_namespace < self._most_in_namespace
