"""Worlds in which a NetworkPolicy keeps the controllers' pods from brokers, until its owner adds a rule."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from tests.simulation.kafka import CONTROLLERS

from kraftbridge.models.decision import Action, RestartPod
from kraftbridge.models.observation import Path, Paths, Unobserved
from kraftbridge.models.phase import Phase

if TYPE_CHECKING:
    from tests.simulation.run import Run

WORLD = "walled brokers"
_CLOSED = 0.01
_OPENED = 0.02
_SILENT = 0.05


class Walls:
    """Which brokers the controllers' pods do not reach, drawn apart: the other draws of a seed stay what they were."""

    def __init__(self, seed: int, *, troubled: bool) -> None:
        self.random = Random(f"walls of {seed}")
        self.is_possible = troubled and self.random.random() < 0.4
        self.walled: frozenset[int] = frozenset()
        self._since = 0.0
        self._decided: dict[str, float] = {}
        """When the operator had looked before it first stopped a pod, by the pod's UID."""

    def happen(self, run: Run) -> None:
        """Let the policy's owner close ways before the takeover, or open them."""
        if not self.is_possible or run.cluster.kafka.claim_epoch >= 0:
            return
        if self.walled and self.random.random() < _OPENED:
            self.mend(run)
        elif not self.walled and run.status.phase is not Phase.PREFLIGHT and self.random.random() < _CLOSED:
            nodes = run.cluster.kafka.nodes
            self.walled = frozenset(self.random.sample(nodes, self.random.randint(1, len(nodes))))
            self._since = run.cluster.time.now
            run.cluster.kafka.walled = self.walled
            run.coverage.faults[WORLD] += 1

    def mend(self, run: Run) -> None:
        """Open every way."""
        self.walled = run.cluster.kafka.walled = frozenset()

    def seen(self, nodes: tuple[int, ...], up: frozenset[int]) -> Paths | Unobserved:
        """Return what the controllers' pods reach."""
        if self.is_possible and self.random.random() < _SILENT:
            return Unobserved("paths", "no answer in time")
        ways: dict[int, Path | Unobserved] = {
            broker: Path(f"kafka-{broker}.kafka:9092", "no answer" if broker in self.walled else "")
            if broker in up
            else Unobserved(f"broker {broker}", "it is not registered")
            for broker in nodes
        }
        tried: dict[int, dict[int, Path | Unobserved] | Unobserved] = dict.fromkeys(CONTROLLERS, ways)
        if self.is_possible and self.random.random() < _SILENT:
            tried[self.random.choice(CONTROLLERS)] = Unobserved("log server", "no answer in time")
        return Paths("INTERNAL", tried)

    def trouble_entering(self, run: Run, phase: Phase) -> str:
        """Return which promise is broken where a phase is entered."""
        if phase is Phase.TAKING_OVER and self._known(run.looked_at):
            return f"TakingOver entered although the controllers do not reach brokers {sorted(self.walled)}"
        return ""

    def trouble_of(self, run: Run, action: Action) -> str:
        """Return which promise an action breaks: no broker that serves restarts towards a takeover that would tell it nothing."""
        if not isinstance(action, RestartPod) or run.status.phase is not Phase.TAKING_OVER:
            return ""
        looked_at = self._decided.setdefault(action.uid, run.looked_at)
        kafka = run.cluster.kafka
        if action.node_id in CONTROLLERS or kafka.claim_epoch >= 0 or not kafka.brokers[action.node_id].up:
            return ""
        operation = run.status.operation
        # One that never registered with the quorum restarts once more; the ways are not tried while it is away.
        if not self._known(looked_at) or (operation is not None and operation.repeated):
            return ""
        return f"broker {action.node_id} restarts although the controllers do not reach brokers {sorted(self.walled)}"

    def _known(self, looked_at: float) -> bool:
        return bool(self.walled) and self._since <= looked_at
