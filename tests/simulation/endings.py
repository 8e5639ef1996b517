"""Worlds in which an entrypoint keeps SIGTERM from Kafka, until the user accepts that.

The kubelet kills a broker after its grace period, or at once where an init process ends with a shell and leaves Kafka behind.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from tests.simulation.kafka import BROKERS

from kraftbridge.models.catalogue import Code
from kraftbridge.models.decision import Action, RestartPod
from kraftbridge.models.observation import Observation, StartLog
from kraftbridge.models.phase import Phase
from kraftbridge.models.spec import AcceptedFinding
from kraftbridge.models.status import MigrationStatus

if TYPE_CHECKING:
    from tests.simulation.run import Run

WORLD = "killed broker"
GRACE_SECONDS = 60
_WORLDS = 0.15
_ACCEPTED = 0.02
_LEAVES_BEHIND = 0.3


class Endings:
    """How the brokers of one run end, drawn apart: the other draws of a seed stay what they were."""

    def __init__(self, seed: int, *, troubled: bool) -> None:
        self.random = Random(f"endings of {seed}")
        self.is_deaf = troubled and self.random.random() < _WORLDS
        self.leaves_behind = self.is_deaf and self.random.random() < _LEAVES_BEHIND
        self._accepted = False
        self._watched: set[str] = set()
        """UIDs of pods that the operator has seen while it restarted them."""
        self._killed: dict[str, int] = {}
        """Broker by the UID of its pod that was killed."""

    def seconds(self, quick: float) -> float:
        """Return how long a broker takes to end that takes so long where nothing keeps SIGTERM from it."""
        return GRACE_SECONDS + quick if self.is_deaf and not self.leaves_behind else quick

    def line(self, node: int) -> str:
        """Return what a broker's log says at its start of the end before."""
        if not self.leaves_behind:
            return ""
        return f"Recovering {node + 3} logs from /data since no clean shutdown file was found"

    def gone(self, uid: str, node: int) -> None:
        """Note that a pod is gone."""
        if self.is_deaf and not self.leaves_behind and node in BROKERS and uid in self._watched:
            self._killed[uid] = node

    def note_look(self, observation: Observation, before: MigrationStatus) -> None:
        """Note what the operator has seen, in a step that was published."""
        operation = before.operation
        pods = [pod for item in observation.seen_sets for pod in item.pods if pod.deleting]
        if operation is not None and operation.serving and operation.pod_uid in {pod.uid for pod in pods}:
            self._watched.add(operation.pod_uid)
        log = observation.start_log
        if operation is not None and operation.serving and isinstance(log, StartLog) and log.unclean:
            self._killed[operation.pod_uid] = operation.node_id

    def happen(self, run: Run) -> None:
        """Let the user accept what the status says, some time later."""
        if run.status.killed_broker is not None and self.random.random() < _ACCEPTED:
            self.accept(run)

    def accept(self, run: Run) -> None:
        """Let the user accept that brokers are killed."""
        if self._accepted or not self._killed:
            return
        self._accepted = True
        run.coverage.faults[WORLD] += 1
        run.accept(AcceptedFinding(code=str(Code.BROKER_KILLED)))

    def begin_anew(self) -> None:
        """Note that another attempt begins, to which earlier kills say nothing."""
        self._killed.clear()
        self._watched.clear()

    def trouble_of(self, run: Run, action: Action) -> str:
        """Return which promise an action breaks: after the first broker that was killed, no other one that serves restarts."""
        if not isinstance(action, RestartPod) or action.node_id not in BROKERS or self._accepted:
            return ""
        others = set(self._killed.values()) - {action.node_id}
        if not others or run.status.phase is Phase.ROLLING_BACK or not run.cluster.kafka.brokers[action.node_id].up:
            return ""
        return f"broker {action.node_id} restarts although broker {min(others)} had to be killed"
