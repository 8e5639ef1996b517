"""Worlds in which the API server goes away between a published decision and its acts, for half a minute to half an hour."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from kraftbridge.models.decision import Action, ApplyControllers, RemoveControllerClaim, RestartPod, StopControllers

if TYPE_CHECKING:
    from tests.simulation.run import Run

WORLD = "API server away"
SHORTEST_SECONDS = 25.0
LONGEST_SECONDS = 1800.0
_CHANCE = 0.02
_OFTEN = 0.2
_FATEFUL = (ApplyControllers, StopControllers, RemoveControllerClaim)
"""Acts between which the cluster has no controller, or may have none."""


class Outages:
    """When the API server is away in one run, drawn apart: the other draws of a seed stay what they were."""

    def __init__(self, seed: int, *, troubled: bool) -> None:
        self.random = Random(f"outages of {seed}")
        self.is_possible = troubled and self.random.random() < 0.5
        self.ends_at = 0.0

    def begins(self, run: Run, action: Action) -> bool:
        """Return whether the API server does not answer this act, and for some time after it."""
        if not self.is_possible or run.cluster.time.now >= run.faults_end:
            return False
        chance = _OFTEN if isinstance(action, _FATEFUL) else _CHANCE * isinstance(action, RestartPod)
        if self.random.random() >= chance:
            return False
        run.coverage.faults[WORLD] += 1
        self.ends_at = run.cluster.time.now + self.random.uniform(SHORTEST_SECONDS, LONGEST_SECONDS)
        return True

    def wait(self, run: Run) -> None:
        """Let the world go on without the operator until the API server answers again."""
        if self.ends_at > run.cluster.time.now:
            run.cluster.time.advance(self.ends_at - run.cluster.time.now)
