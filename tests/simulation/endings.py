"""Worlds in which an entrypoint keeps SIGTERM from Kafka, until the user accepts that.

The kubelet kills a broker after its grace period, or at once where an init process ends with a shell and leaves Kafka behind.
Some brokers log nothing at INFO, so that their next start does not tell how they ended.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from tests.simulation.kafka import CONTROLLERS

from kraftbridge.models.catalogue import Code
from kraftbridge.models.decision import Action, RestartPod
from kraftbridge.models.observation import StartLog
from kraftbridge.models.phase import Phase
from kraftbridge.models.spec import AcceptedFinding
from kraftbridge.models.status import KilledBroker, MigrationStatus

if TYPE_CHECKING:
    from tests.simulation.run import Run

WORLD = "killed broker"
GRACE_SECONDS = 60
_WORLDS = 0.15
_ACCEPTED = 0.02
_LEAVES_BEHIND = 0.3
_QUIET = 0.05
_QUIET_IF_DEAF = 0.5


class Endings:
    """How the brokers of one run end, drawn apart: the other draws of a seed stay what they were."""

    def __init__(self, seed: int, *, troubled: bool) -> None:
        self.random = Random(f"endings of {seed}")
        self.is_deaf = troubled and self.random.random() < _WORLDS
        self.leaves_behind = self.is_deaf and self.random.random() < _LEAVES_BEHIND
        quiet = _QUIET_IF_DEAF if self.is_deaf else _QUIET
        self.is_quiet = troubled and self.random.random() < quiet
        self._accepted = False
        self._restarted: set[str] = set()
        """UIDs of pods that served when the operator recorded their restart."""
        self._killed: dict[str, int] = {}
        """Broker by the UID of its pod that was killed."""
        self._crashed: set[int] = set()
        """Brokers that crashed since their restart was recorded."""
        self._excused: KilledBroker | None = None
        """What the operator says of such a crash."""

    def seconds(self, quick: float) -> float:
        """Return how long a broker takes to end that takes so long where nothing keeps SIGTERM from it."""
        return GRACE_SECONDS + quick if self.is_deaf and not self.leaves_behind else quick

    def next_start(self, process: str, node: int, *, again: bool) -> StartLog:
        """Return what the log of a broker's next start says of the end before: a container that starts again has crashed."""
        if self.is_quiet:
            return StartLog(process)
        if not self.is_deaf and not again:
            return StartLog(process, clean=True)
        return StartLog(
            process, unclean=f"Recovering {node + 3} logs from /data since no clean shutdown file was found"
        )

    def crashed(self, node: int) -> None:
        """Note that a broker's container died: the log before may not have been read, and the next one tells of a crash."""
        self._crashed.add(node)

    def gone(self, uid: str, node: int) -> None:
        """Note that a pod is gone."""
        if self.is_deaf and node not in CONTROLLERS and uid in self._restarted:
            self._killed[uid] = node

    def note_decision(self, status: MigrationStatus) -> None:
        """Note the restart that the operator has recorded, in a step that was published."""
        operation = status.operation
        if operation is None or not operation.pod_uid:
            return
        if operation.pod_uid not in self._restarted:
            self._crashed.discard(operation.node_id)
        if operation.serving:
            self._restarted.add(operation.pod_uid)
        else:  # an earlier restart was cancelled, and the broker has stopped serving since
            self._restarted.discard(operation.pod_uid)

    def wronged(self, status: MigrationStatus) -> str:
        """Return which promise a status breaks: a broker whose next start says that it ended by itself is not called killed."""
        if status.killed_broker is None or self.is_deaf or self.is_quiet:
            return ""
        if status.killed_broker.node_id in self._crashed:
            self._excused = status.killed_broker
        if status.killed_broker == self._excused:
            return ""
        return f"broker {status.killed_broker.node_id} ended by itself, and is called killed: {status.killed_broker.reason}"

    def happen(self, run: Run) -> None:
        """Let the user accept what the status says, some time later."""
        if run.status.killed_broker is not None and self.random.random() < _ACCEPTED:
            self.accept(run)

    def accept(self, run: Run) -> None:
        """Let the user accept that brokers are killed."""
        if self._accepted or run.status.killed_broker is None:
            return
        self._accepted = True
        run.coverage.faults[WORLD] += 1
        run.accept(AcceptedFinding(code=str(Code.BROKER_KILLED)))

    def begin_anew(self) -> None:
        """Note that another attempt begins, to which earlier kills say nothing."""
        self._killed.clear()
        self._restarted.clear()

    def trouble_of(self, run: Run, action: Action) -> str:
        """Return which promise an action breaks: after the first broker that was killed, no other one that serves restarts."""
        if not isinstance(action, RestartPod) or action.node_id in CONTROLLERS or self._accepted:
            return ""
        others = set(self._killed.values()) - {action.node_id}
        if not others or run.status.phase is Phase.ROLLING_BACK or not run.cluster.kafka.brokers[action.node_id].up:
            return ""
        return f"broker {action.node_id} restarts although broker {min(others)} had to be killed"
