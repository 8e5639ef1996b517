"""What the acts of a step rest on, and whether it still holds when they are executed. Pure.

A process can be frozen between publishing a decision and its acts (SIGSTOP, a paused node). Another process takes the
Lease over meanwhile and may decide otherwise. So an act carries what it was decided on, and whoever executes it
compares that with a fresh reading. Words of the status, which any operator may write at any time, are no part of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kraftbridge.models.decision import Decision, ReleaseLease
from kraftbridge.models.observation import LeaseState, Observation, StatefulSetState, Unobserved
from kraftbridge.models.status import MigrationStatus
from kraftbridge.phases.draft import Identity

Intent = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class StatefulSetVersion:
    """What changes when anybody changes the spec of a StatefulSet, creates it anew, or locks it."""

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
        versions = {known: other for known, other in self.stateful_sets.items() if known != name}
        if version is not None:
            versions[name] = version
        return replace(self, stateful_sets=versions)


def intent(status: MigrationStatus) -> Intent:
    """Return what a status records of the acts that are due and done."""
    return (
        status.phase,
        status.attempt,
        status.operation,
        status.batch,
        status.broker_undo,
        status.broker_upgrade,
        status.kafka4_leg,
        status.broker_record,
        status.rollback,
        status.changed_fields,
        status.given_back_at,
        status.final_manifest,
        _fields(status.controllers, "mode", "format_allowed", "reformat", "change"),
        tuple((run.run_id, run.released_at) for run in status.verifications),
        _fields(status.rehearsal, "count", "run_id", "running"),
        _fields(status.dry_start, "count", "run_id", "running"),
        _fields(status.metadata_version, "changes", "change"),
        _fields(status.healing, "started_at", "failovers", "archive"),
        _fields(status.canary, "value", "removing_at"),
        _fields(status.quorum_restart, "certificate", "pods", "restarted_at"),
        *_alarms(status),
    )


def _alarms(status: MigrationStatus) -> Intent:
    """Return what another process may have recorded meanwhile that forbids acts that were due before."""
    history = status.zookeeper_history
    return (
        None if history is None else _fields(history.contradiction, "id", "confirmed_at", "rewritten_at"),
        _fields(status.lost_quorum, "voters"),
        status.killed_broker,
    )


def _fields(part: object | None, *names: str) -> Intent | None:
    """Return fields of a part of the status, None if the status does not have it."""
    return None if part is None else tuple(getattr(part, name) for name in names)


def basis_of(identity: Identity, decision: Decision, seen: Observation) -> Basis:
    """Return what the acts of a decision rest on."""
    sets = [s for s in seen.stateful_sets if isinstance(s, StatefulSetState)]
    released = {action.stateful_set for action in decision.actions if isinstance(action, ReleaseLease)}
    return Basis(
        uid=identity.uid,
        generation=identity.generation,
        intent=intent(decision.status),
        leases=frozenset(s.name for s in sets if _is_held(s.lease)) - released,
        stateful_sets={s.name: StatefulSetVersion(s.uid, s.generation, s.lock) for s in seen.seen_sets},
    )


def _is_held(lease: LeaseState | Unobserved) -> bool:
    return isinstance(lease, LeaseState) and lease.ours and not lease.expired


def overtaken(decided: Basis, present: Basis) -> str:
    """Return why an act must not be executed any more, ``""`` when the migration is still as it was decided on."""
    if present.uid != decided.uid:
        return "the migration is gone or is another one of the same name"
    if present.generation != decided.generation:
        return "the migration's spec was edited since this was decided"
    if present.intent != decided.intent:
        return "another process has published another decision since this was decided"
    if lost := decided.leases - present.leases:
        names = ", ".join(sorted(lost))
        return f"the Lease on StatefulSet {names} is another process's by now, or was not renewed in time"
    return ""


def changed(decided: Basis, name: str, present: StatefulSetVersion | None) -> str:
    """Return what became of a StatefulSet since it was seen; ``""`` when nothing did, or when it was not seen."""
    known = decided.stateful_sets.get(name)
    if known is None or known == present:
        return ""
    if present is None or present.uid != known.uid:
        return f"StatefulSet {name} was deleted or created anew since this was decided"
    if present.lock != known.lock:
        return f"the lock on StatefulSet {name} became {present.lock or 'none'} since this was decided"
    generations = f"generation {known.generation} became {present.generation}"
    return f"somebody changed StatefulSet {name} since this was decided ({generations})"
