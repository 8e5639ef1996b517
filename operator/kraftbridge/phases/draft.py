"""Inputs of one reconcile step, and the decision that the step drafts. Pure.

A query takes a `StepContext`. A function that changes the decision takes a `Draft`, and its name starts with a verb.
``tests/unit/phases/test_purity.py`` checks every function of this package.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, cast

from kraftbridge.constants import DEFAULT_CLUSTER_DOMAIN
from kraftbridge.copies.dry_start import shown_ids
from kraftbridge.models.catalogue import Code
from kraftbridge.models.conditions import ConditionType, Reason, Status, with_condition
from kraftbridge.models.decision import Action, Event, EventReason, EventType, RemoveConfigurations
from kraftbridge.models.observation import Observation, PodState, StatefulSetState, Unobserved, ZooKeeperState
from kraftbridge.models.phase import Phase
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.models.status import FindingStatus, MigrationStatus, WaitKind, controllers_name

_BESIDE: Final = frozenset({RemoveConfigurations.__name__})
"""Actions that stop nothing when they fail: they tidy up, and are repeated."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The migration that a step reconciles."""

    namespace: str
    name: str
    uid: str
    generation: int
    deleting: bool = False
    """Whether the user has deleted it."""
    rehearse: str = ""
    """Value of the annotation that asks for another rehearsal."""
    cluster_domain: str = DEFAULT_CLUSTER_DOMAIN
    """DNS domain in the controllers' host names."""
    unknown: tuple[str, ...] = ()
    """Fields that a newer release wrote and that this one ignores."""

    @property
    def lock(self) -> str:
        """Value of the lock annotation on the user's StatefulSets."""
        return f"{self.namespace}/{self.name}/{self.uid}"


@dataclass(frozen=True, slots=True)
class Migration:
    """One migration: which it is, what its user wants, and how far it is."""

    identity: Identity
    spec: MigrationSpec
    status: MigrationStatus

    @property
    def controllers(self) -> str:
        """Name of the controllers' StatefulSet and Service in the present attempt."""
        return controllers_name(self.identity.name, self.identity.uid, self.status.attempt)


SOON = timedelta(seconds=0.5)
"""When to reconcile again while something moves."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Outcome of a step that stays in its phase; ``message`` says what it waits for and who must act."""

    message: str
    kind: WaitKind = WaitKind.WORK
    reason: Reason = Reason.PROGRESSING
    stalled: bool = False
    """Whether the migration cannot continue without help."""
    requeue_after: timedelta = SOON

    @property
    def reached(self) -> bool:
        """Whether the migration has reached its target."""
        return self.reason in (Reason.TARGET_REACHED, Reason.AWAITING_USER, Reason.ROLLED_BACK)


@dataclass(frozen=True, slots=True)
class Enter:
    """Outcome of a step that enters ``phase``: its gate is open."""

    phase: Phase


Outcome = Wait | Enter

QUORUM_IS_READY = "Every voter follows one leader"
"""Message of the condition ``QuorumReady``."""
SLOW = timedelta(seconds=5)
"""When to reconcile again while the migration waits for the user."""


def for_user(message: str, reason: Reason = Reason.FINDINGS) -> Wait:
    """Return the wait that only a person ends."""
    return Wait(message, WaitKind.USER, reason, stalled=True, requeue_after=SLOW)


def reached(message: str, reason: Reason = Reason.TARGET_REACHED) -> Wait:
    """Return the wait of a migration that has reached its target."""
    return Wait(message, WaitKind.USER, reason, requeue_after=SLOW)


@dataclass(slots=True)
class StepContext:
    """The inputs of the step, and the status as decided so far."""

    identity: Identity
    spec: MigrationSpec
    """The effective spec: the user's, with the changes that a deletion makes (`guards.effective_spec`)."""
    observation: Observation
    now: datetime
    status: MigrationStatus

    def stateful_sets(self) -> tuple[StatefulSetState, ...] | Unobserved:
        """Return the brokers' StatefulSets, or the first that could not be observed."""
        sets = self.observation.stateful_sets
        for item in sets:
            if isinstance(item, Unobserved):
                return item
        if len(sets) != len(self.spec.brokers.stateful_sets):
            return Unobserved("StatefulSets of the brokers", "not all of them were read")
        return cast("tuple[StatefulSetState, ...]", sets)

    def registered_broker_ids(self) -> dict[str, int]:
        """Return the broker id of each pod, from the hosts that brokers registered in ZooKeeper (``/brokers/ids``).

        Where a host tells no pod, as with addresses of load balancers and nodes, the copies of a dry start tell it.
        The result is empty unless every pod has exactly one id.
        """
        sets = self.stateful_sets()
        zookeeper = self.observation.zookeeper
        if isinstance(sets, Unobserved) or isinstance(zookeeper, Unobserved):
            return {}
        pods = [pod for stateful_set in sets for pod in stateful_set.pods]
        by_host = {pod.name: _ids_at(pod, zookeeper) for pod in pods}
        if all(len(found) == 1 for found in by_host.values()):
            ids = {name: found[0] for name, found in by_host.items()}
        else:
            ids = self._shown_broker_ids({broker.id for broker in zookeeper.brokers})
        is_whole = ids.keys() == by_host.keys() and len(set(ids.values())) == len(ids)
        return ids if is_whole and all(ids[name] in found for name, found in by_host.items() if found) else {}

    def _shown_broker_ids(self, registered: set[int]) -> dict[str, int]:
        """Return the ids of registered brokers that the copies of a dry start show."""
        state = self.observation.dry_start
        if isinstance(state, Unobserved) or state.latest is None:
            return {}
        return {pod: broker for pod, broker in shown_ids(state.latest.copies).items() if broker in registered}

    def refusal(self) -> str:
        """Return the error of a refused action of the last step, ``""`` when none was refused."""
        return next((o.error for o in self.observation.outcomes if o.refused and o.action not in _BESIDE), "")

    def failure(self) -> str:
        """Return the error of a failed action of the last step, ``""`` when none failed."""
        return next((o.error for o in self.observation.outcomes if o.error and o.action not in _BESIDE), "")

    def was_refused(self, action: type[Action]) -> bool:
        """Return whether an action of a kind was refused in the last step."""
        return any(o.refused and o.action == action.__name__ for o in self.observation.outcomes)

    def has_done(self, *actions: type[Action]) -> bool:
        """Return whether the last step did actions of all these kinds with success."""
        done = {outcome.action for outcome in self.observation.outcomes if not outcome.error}
        return {action.__name__ for action in actions} <= done

    def has_tried(self, action: type[Action]) -> bool:
        """Return whether the last step tried an action of a kind, with success or without."""
        return any(outcome.action == action.__name__ for outcome in self.observation.outcomes)


def _ids_at(pod: PodState, zookeeper: ZooKeeperState) -> list[int]:
    """Return the brokers that registered the pod's name or address."""
    return [
        broker.id
        for broker in zookeeper.brokers
        if any(host == pod.ip or host.split(".")[0] == pod.name for host in broker.hosts)
    ]


def soak(step: StepContext, seconds: int) -> Wait | None:
    """Return the wait until the phase is ``seconds`` old, None once it is."""
    entered = next((h.entered_at for h in reversed(step.status.history) if h.left_at is None), step.now)
    until = entered + timedelta(seconds=seconds)
    return Wait(f"soaking until {until:%H:%M:%S} UTC", WaitKind.SOAK) if step.now < until else None


@dataclass(slots=True)
class Draft(StepContext):
    """The decision of one step, as drafted so far."""

    actions: list[Action] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def update(self, **changes: Any) -> None:
        """Replace fields of the status; a copy of all of it is made only where one differs."""
        now = self.status.__dict__
        if any(value is not now[name] and value != now[name] for name, value in changes.items()):
            self.status = self.status.model_copy(update=changes)

    def act(self, action: Action) -> None:
        """Add an action to this step, unless it is there already."""
        if action not in self.actions:
            self.actions.append(action)

    def tell(self, reason: EventReason, message: str, kind: EventType = EventType.NORMAL) -> None:
        """Add an event to this step."""
        self.events.append(Event(kind, reason, message))

    def set_findings(self, code: Code, *made: FindingStatus) -> None:
        """Replace the findings of one code, by nothing if none is given."""
        others = [each for each in self.status.findings if each.code != code]
        self.update(findings=(*made, *others))

    def set_condition(self, kind: ConditionType, status: Status, reason: Reason, message: str) -> None:
        """Set one condition of the status."""
        self.update(
            conditions=with_condition(
                self.status.conditions, kind, status, reason, message, now=self.now, generation=self.identity.generation
            )
        )
