"""The worlds of the default mix, by the phases in which each can occur, and the strikes that make each of them occur there often enough.

A fault with a fixed chance at every step strikes in the long phases, and hardly ever in the short and the late ones. So most runs also aim: on entering
a phase they draw a world that can occur in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import TYPE_CHECKING, Final

from tests.simulation.frozen import WORLD as FROZEN
from tests.simulation.settings import Changed
from tests.simulation.stores import Deleted, Lost, Secrets
from tests.simulation.templates import Edited
from tests.simulation.uids import Exchanged

from kraftbridge.models.phase import Part, Phase, Target

if TYPE_CHECKING:
    from tests.simulation.run import Run

_NO_COPY = "the quorum has not claimed ZooKeeper, so /migration holds no offset that could be gone or older"
_NOT_READ = "the operator reads ZooKeeper no more (phases.needs)"
_NO_CONTROLLERS = "the controllers do not exist"
_NOT_RECORDED = "no StatefulSet is locked, so no original state is on record"
_NOT_FOLLOWED = "the operator reads no settings of the brokers (phases.needs)"
_NOT_COMPARED = "the migration claims nothing of the objects, and records what is there"
_GIVEN_BACK = "the brokers are their owner's again"
_NOT_ROLLED = "the operator restarts no broker"
_BEFORE: Final = frozenset(phase for phase in Phase if not phase.row.changes_brokers) | {Phase.UPGRADING_BROKERS}
_UNREAD: Final = {phase: _NOT_READ for phase in Phase if Part.ZOOKEEPER not in phase.row.needs}
_COPIED: Final = {phase: _NO_COPY for phase in Phase if phase in _BEFORE} | {
    phase: _NOT_READ for phase in Phase if Part.ZOOKEEPER not in phase.row.needs
}
_CONTROLLED: Final = {
    phase: _NO_CONTROLLERS
    for phase in Phase
    if phase is Phase.UPGRADING_BROKERS or (phase.at_rest and phase.reversible)
}
_RECORDED: Final = {phase: _NOT_RECORDED for phase in Phase if not phase.row.changes_brokers}
_FOLLOWED: Final = {phase: _NOT_FOLLOWED for phase in Phase if not (phase.row.forward and phase.reversible)}
_ROLLED: Final = {phase: _NOT_ROLLED for phase in Phase if phase.row.brokers is None or phase.at_rest}
_COMPARED: Final = {phase: _NOT_COMPARED for phase in Phase if phase.row.is_open} | dict.fromkeys(
    (phase for phase in Phase if phase.row.gives_back), _GIVEN_BACK
)
CANNOT: Final[Mapping[str, Mapping[Phase, str]]] = {
    Lost.WIPED: _UNREAD,
    Lost.FOREIGN: _UNREAD,
    Lost.CUT: _COPIED,
    Lost.OLDER: _COPIED,
    **dict.fromkeys(Deleted, _CONTROLLED),
    **dict.fromkeys(Secrets, _RECORDED),
    **dict.fromkeys(Changed, _FOLLOWED),
    **dict.fromkeys(Edited, _ROLLED),
    **dict.fromkeys(Exchanged, _COMPARED),
    FROZEN: {},
}
"""Every world, and the phases in which it cannot occur, with the reason."""
AFTER_AN_UPGRADE: Final = frozenset((world, Phase.PROVISIONING_QUORUM) for world in Secrets)
"""What occurs besides where brokers were brought to 3.9: their StatefulSets are locked before there is a controller.

Few migrations begin like that, so nobody aims at it.
"""
_CHANCE: Final[Mapping[Phase, float]] = {
    Phase.PREFLIGHT: 0.15,
    Phase.PROVISIONING_QUORUM: 0.2,
    Phase.TAKING_OVER: 0.3,
    Phase.DUAL_WRITE: 0.8,
    Phase.COMPLETED: 0.7,
    Phase.ROLLED_BACK: 0.7,
}
"""Part of the entries of a phase that draw a world; every entry of the other phases does."""
_AGAIN: Final = {Phase.AWAITING_FINALIZATION: 0.6, Phase.ROLLING_BACK: 0.5}
"""Part of the strikes that draw another world for the same phase: few migrations roll back, and one that awaits its finalization soon goes on."""
_TURNS_BACK: Final = 0.06
"""Part of the entries of a phase after the copy at which the user rolls back: few others do so that late."""
_RARELY: Final[Mapping[str, float]] = {Lost.CUT: 1.5, Lost.OLDER: 2.0}
"""Weight of what can only begin in a part of a phase."""
_AT_ONCE: Final = 0.7
"""Of a step, with which a world that was drawn strikes: in some runs at once, in others later in the phase."""


def can_occur(phase: Phase) -> list[str]:
    """Return the worlds that can occur in a phase."""
    return [world for world, cannot in CANNOT.items() if phase not in cannot]


class Aims:
    """What one run aims at, drawn apart: the other draws of a seed stay what they were."""

    def __init__(self, seed: int, *, troubled: bool) -> None:
        self.random = Random(f"aims of {seed}")
        self.troubled = troubled
        self.phase: Phase | None = None
        self.world = ""
        """What shall strike in this phase and has not yet."""

    def happen(self, run: Run) -> bool:
        """Draw a world on entering a phase, and let it strike once it can; return whether it did."""
        phase = run.status.phase
        if phase is not self.phase:
            self.phase = phase
            self._draw(_CHANCE.get(phase, 1.0))
            if self.troubled and phase.row.mirrors and self.random.random() < _TURNS_BACK:
                run._edit(target=Target.ZOOKEEPER)
        if not self.world or self.random.random() >= _AT_ONCE or not self._strike(run, self.world):
            return False
        self._draw(_AGAIN.get(phase, 0.0))
        return True

    def _draw(self, chance: float) -> None:
        """Draw what shall strike in this phase, or nothing."""
        self.world = ""
        if self.phase is not None and self.troubled and self.random.random() < chance:
            worlds = can_occur(self.phase)
            (self.world,) = self.random.choices(worlds, [_RARELY.get(world, 1.0) for world in worlds])

    def _strike(self, run: Run, world: str) -> bool:
        """Let a world begin; return whether it can now."""
        if world in list(Lost):
            return run.stores.lose_zookeeper(run, Lost(world))
        if world in list(Deleted):
            return run.stores.delete(run, Deleted(world))
        if world in list(Secrets):
            return run.stores.delete_secrets(run, Secrets(world))
        if world in list(Changed):
            return run.settings.change(run, Changed(world))
        if world in list(Edited):
            return run.templates.edit(run, Edited(world))
        if world in list(Exchanged):
            return run.uids.exchange(run, Exchanged(world))
        return run.frozen.freeze_soon()


def table(worlds: Mapping[str, int]) -> list[str]:
    """Return the lines of a table: how often each world began in each phase. Keys are ``world → phase``."""
    reasons = list(dict.fromkeys(reason for cannot in CANNOT.values() for reason in cannot.values()))
    lines = [f"| World | {' | '.join(Phase)} |", f"|---|{'---|' * len(Phase)}"]
    for world, cannot in CANNOT.items():
        cells = [
            f"cannot ({reasons.index(cannot[phase]) + 1})"
            if phase in cannot
            else str(worlds.get(f"{world} → {phase}", 0))
            for phase in Phase
        ]
        lines.append(f"| {world} | {' | '.join(cells)} |")
    return [*lines, "", *(f"({number}) {reason}" for number, reason in enumerate(reasons, 1))]
