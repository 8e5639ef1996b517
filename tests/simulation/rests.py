"""Whether a rest says the truth: Ready is never True for long while the simulated world is not what the rest claims."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kraftbridge.models.conditions import ConditionType, condition
from kraftbridge.models.phase import LAST_PHASE, Phase
from kraftbridge.models.status import MigrationStatus

if TYPE_CHECKING:
    from tests.simulation.run import Run

MOST_SECONDS: Final = 60.0
"""How long Ready may be True while a gate of the rest is closed."""
LOOKS_EVERY_SECONDS: Final = 20.0
"""Longest pause between two looks. Time in which nobody looked (a jump, a dead operator) proves nothing."""
_OURS: Final = (
    Phase.UPGRADING_BROKERS,
    Phase.PROVISIONING_QUORUM,
    Phase.DUAL_WRITE,
    Phase.AWAITING_FINALIZATION,
    Phase.COMPLETED,
    Phase.KAFKA4,
)
"""Rests in which something of ours runs."""


class Rests:
    """How long a gate has been closed at a rest that calls itself Ready."""

    def __init__(self) -> None:
        self._closed_seconds = 0.0
        self._looked_at: float | None = None

    def trouble(self, run: Run) -> str:
        """Return which promise is broken, ``""`` if none is; asked after each step that was published."""
        closed = _closed(run) if is_ready_at_rest(run.status) else ""
        now = run.cluster.time.now
        since = self._looked_at
        self._looked_at = now if closed else None
        if not closed:
            self._closed_seconds = 0.0
            return ""
        if since is not None:
            self._closed_seconds += min(now - since, LOOKS_EVERY_SECONDS)
        if self._closed_seconds <= MOST_SECONDS:
            return ""
        return f"Ready is True in {run.status.phase} for {self._closed_seconds:.0f} s although {closed}"


def is_ready_at_rest(status: MigrationStatus) -> bool:
    """Return whether a migration with something of ours calls itself Ready at its target."""
    ready = condition(status.conditions, ConditionType.READY)
    if ready is None or ready.status != "True" or status.target is None:
        return False
    return status.phase in _OURS and status.phase is LAST_PHASE[status.target]


def _closed(run: Run) -> str:
    """Return what of the world is not as the rest claims, ``""`` if all of it is."""
    kafka, phase = run.cluster.kafka, run.status.phase
    down = [i for i, controller in kafka.controllers.items() if not controller.up]
    if phase is not Phase.UPGRADING_BROKERS and (down or kafka.active is None):
        return f"controllers {down} are down, and {kafka.active} is active"
    if phase.row.gives_back:
        return "" if kafka.in_sync else "no partition has a leader"
    if gone := [i for i, broker in kafka.brokers.items() if not broker.up]:
        return f"brokers {gone} are down"
    if phase.row.led_by_kraft and (fenced := [i for i in kafka.registered if kafka.fenced(i)]):
        return f"brokers {fenced} are fenced"
    if phase.row.mirrors and not kafka.mirroring():
        return "ZooKeeper is not written"
    return ""
