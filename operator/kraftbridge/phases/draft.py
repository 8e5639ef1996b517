"""Inputs of one reconcile step and the decision that it drafts. Pure.

A function that only answers takes a `StepContext`; a function that changes the decision takes a `Draft` and is named by a verb.
`tests/unit/phases/test_purity.py` holds every function of this package to that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from kraftbridge.models.conditions import ConditionType, Reason, Status, with_condition
from kraftbridge.models.decision import Action, Event, EventReason, EventType
from kraftbridge.models.observation import Observation, StatefulSetState, Unobserved
from kraftbridge.models.phase import Phase
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.models.status import MigrationStatus, WaitKind


@dataclass(frozen=True, slots=True)
class Identity:
    """Which migration a step is for."""

    namespace: str
    name: str
    uid: str
    generation: int
    deleting: bool = False
    """Whether the user has deleted it."""
    rehearse: str = ""
    """Value of the annotation that asks for another rehearsal."""

    @property
    def lock(self) -> str:
        """Value of the lock annotation on the user's StatefulSets."""
        return f"{self.namespace}/{self.name}/{self.uid}"


@dataclass(frozen=True, slots=True)
class Wait:
    """Stay in this phase; ``message`` says for what, and whose turn it is."""

    message: str
    kind: WaitKind = WaitKind.WORK
    reason: Reason = Reason.PROGRESSING
    stalled: bool = False
    """No use in waiting: only somebody's help moves this."""
    requeue_after: timedelta = timedelta(seconds=0.5)


@dataclass(frozen=True, slots=True)
class Enter:
    """The gate is open: go to ``phase``."""

    phase: Phase


Outcome = Wait | Enter

SLOW = timedelta(seconds=5)
"""When to reconcile again while a person is awaited."""


def reached(message: str, reason: Reason = Reason.TARGET_REACHED) -> Wait:
    """Return the wait of a migration that has reached its target: the user moves it on."""
    return Wait(message, WaitKind.USER, reason, requeue_after=SLOW)


@dataclass(slots=True)
class StepContext:
    """What a query may read: the inputs of the step, and the status as decided so far."""

    identity: Identity
    spec: MigrationSpec
    """The effective spec: what the user asks for, with what a deletion changes in it."""
    observation: Observation
    now: datetime
    status: MigrationStatus

    def stateful_sets(self) -> tuple[StatefulSetState, ...] | Unobserved:
        """Return the brokers' StatefulSets, or the first that could not be seen."""
        seen: list[StatefulSetState] = []
        for item in self.observation.stateful_sets:
            if isinstance(item, Unobserved):
                return item
            seen.append(item)
        if len(seen) != len(self.spec.brokers.stateful_sets):
            return Unobserved("StatefulSets of the brokers", "not all of them were looked at")
        return tuple(seen)

    def registered_broker_ids(self) -> dict[str, int]:
        """Return the broker id of each pod, by the hosts that brokers registered in ZooKeeper (``/brokers/ids``).

        Empty unless every pod has exactly one.
        """
        sets, zookeeper = self.stateful_sets(), self.observation.zookeeper
        if isinstance(sets, Unobserved) or isinstance(zookeeper, Unobserved):
            return {}
        ids: dict[str, int] = {}
        for pod in (p for s in sets for p in s.pods):
            matching = [
                b.id for b in zookeeper.brokers if any(h == pod.ip or h.split(".")[0] == pod.name for h in b.hosts)
            ]
            if len(matching) != 1:
                return {}
            ids[pod.name] = matching[0]
        return ids if len(set(ids.values())) == len(ids) else {}

    def refusal(self) -> str:
        """Return what an act of the last step was refused with, ``""`` when none was."""
        return next((o.error for o in self.observation.outcomes if o.refused), "")

    def failure(self) -> str:
        """Return what an act of the last step failed with, ``""`` when none did."""
        return next((o.error for o in self.observation.outcomes if o.error), "")


def soak(step: StepContext, seconds: int) -> Wait | None:
    """Return the wait until the phase is ``seconds`` old, None once it is."""
    entered = next((h.entered_at for h in reversed(step.status.history) if h.left_at is None), step.now)
    until = entered + timedelta(seconds=seconds)
    return Wait(f"soaking until {until:%H:%M:%S} UTC", WaitKind.SOAK) if step.now < until else None


@dataclass(slots=True)
class Draft(StepContext):
    """The decision of one step while it is being made."""

    actions: list[Action] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def update(self, **changes: Any) -> None:
        """Replace fields of the status."""
        now = self.status.__dict__
        if any(value is not now[name] for name, value in changes.items()):
            self.status = self.status.model_copy(update=changes)

    def act(self, action: Action) -> None:
        """Add an act to this step, once."""
        if action not in self.actions:
            self.actions.append(action)

    def tell(self, reason: EventReason, message: str, kind: EventType = EventType.NORMAL) -> None:
        """Add an event to this step."""
        self.events.append(Event(kind, reason, message))

    def set_condition(self, kind: ConditionType, status: Status, reason: Reason, message: str) -> None:
        """Set one condition of the status."""
        self.update(
            conditions=with_condition(
                self.status.conditions, kind, status, reason, message, now=self.now, generation=self.identity.generation
            )
        )
