"""What the acts of a step rest on, and whether it still holds when they are executed. Pure.

A process can be frozen between publishing a decision and its acts (SIGSTOP, a paused node). Another process takes the Lease over meanwhile and may
decide otherwise. So an act carries what it was decided on, and whoever executes it compares that with a fresh reading. Words of the status, which
any operator may write at any time, are no part of it: they stop nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kraftbridge.models.decision import Decision, ReleaseLease
from kraftbridge.models.observation import LeaseState, Observation, StatefulSetState
from kraftbridge.models.status import MigrationStatus
from kraftbridge.phases.draft import Identity

Intent = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class StatefulSetVersion:
    """What changes when anybody changes the spec of a StatefulSet, creates it anew, or locks it; its status is no part of it."""

    uid: str
    generation: int
    lock: str


@dataclass(frozen=True, slots=True)
class Basis:
    """A migration as a step has decided on it, or as it is now."""

    uid: str
    """Of the resource, ``""`` when it does not exist."""
    generation: int
    intent: Intent
    leases: frozenset[str] = frozenset()
    """StatefulSets whose Lease this process holds and has renewed in time."""
    stateful_sets: Mapping[str, StatefulSetVersion] = field(default_factory=dict)

    def name_of(self, uids: frozenset[str]) -> str:
        """Return the StatefulSet with one of these UIDs, ``""`` when it is none that was decided on."""
        return next((name for name, known in self.stateful_sets.items() if known.uid in uids), "")

    def with_stateful_set(self, name: str, version: StatefulSetVersion | None) -> Basis:
        """Return the basis of the next act, after an act of ours has changed a StatefulSet, or deleted it."""
        others = {k: v for k, v in self.stateful_sets.items() if k != name}
        return replace(self, stateful_sets=others if version is None else {**others, name: version})


def intent(status: MigrationStatus) -> Intent:
    """Return what a status records of the acts that are due and done."""
    controllers, rehearsal, version = status.controllers, status.rehearsal, status.metadata_version
    healing, canary = status.healing, status.canary
    return (
        status.phase,
        status.attempt,
        status.operation,
        status.broker_undo,
        status.broker_record,
        status.rollback,
        status.changed_fields,
        status.given_back_at,
        status.final_manifest,
        None if controllers is None else (controllers.mode, controllers.format_allowed, controllers.change),
        tuple((v.run_id, v.released_at) for v in status.verifications),
        None if rehearsal is None else (rehearsal.count, rehearsal.run_id, rehearsal.running),
        None if version is None else (version.changes, version.change),
        None if healing is None else (healing.started_at, healing.failovers, healing.archive),
        None if canary is None else (canary.value, canary.removing_at),
    )


def basis_of(identity: Identity, decision: Decision, seen: Observation) -> Basis:
    """Return what the acts of a decision rest on."""
    sets = [s for s in seen.stateful_sets if isinstance(s, StatefulSetState)]
    released = {a.stateful_set for a in decision.actions if isinstance(a, ReleaseLease)}
    held = frozenset(s.name for s in sets if isinstance(s.lease, LeaseState) and s.lease.ours and not s.lease.expired)
    return Basis(
        uid=identity.uid,
        generation=identity.generation,
        intent=intent(decision.status),
        leases=held - released,
        stateful_sets={s.name: StatefulSetVersion(s.uid, s.generation, s.lock) for s in seen.seen_sets},
    )


def overtaken(decided: Basis, present: Basis) -> str:
    """Return why an act must not be executed any more, ``""`` when the migration is still as it was decided on."""
    if present.uid != decided.uid:
        return "the migration is gone or is another one of the same name"
    if present.generation != decided.generation:
        return "the migration's spec was edited since this was decided"
    if present.intent != decided.intent:
        return "another process has published another decision since this was decided"
    if lost := decided.leases - present.leases:
        return f"the Lease on StatefulSet {', '.join(sorted(lost))} is another process's by now, or was not renewed in time"
    return ""


def changed(decided: Basis, name: str, present: StatefulSetVersion | None) -> str:
    """Return what became of a StatefulSet, or of that of a pod, since it was seen; ``""`` when nothing did, or when it was not seen."""
    known = decided.stateful_sets.get(name)
    if known is None or known == present:
        return ""
    if present is None or present.uid != known.uid:
        return f"StatefulSet {name} was deleted or created anew since this was decided"
    if present.lock != known.lock:
        return f"the lock on StatefulSet {name} became {present.lock or 'none'} since this was decided"
    return f"somebody changed StatefulSet {name} since this was decided (generation {known.generation} became {present.generation})"
