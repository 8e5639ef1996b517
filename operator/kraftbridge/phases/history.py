"""What this attempt has read from ZooKeeper, and what a ZooKeeper that contradicts it forbids. Pure.

ZooKeeper's data can be lost, restored from a backup, or exchanged for another ensemble's, and a znode can be deleted by hand. Such a ZooKeeper says
that nothing was taken over yet. So what was taken over is read from this record and not from the znodes. Measured on Kafka 3.9.1
(``tests/integration/test_zookeeper_that_contradicts.py``): without ``/controller`` a broker on ZooKeeper becomes controller beside the KRaft controller
within seconds, and without ``/migration`` the KRaft controller writes no change to ZooKeeper any more, neither before nor after a failover.
"""

from __future__ import annotations

from datetime import timedelta

from kraftbridge.models.catalogue import Code
from kraftbridge.models.conditions import Reason, Status
from kraftbridge.models.decision import EventReason, EventType
from kraftbridge.models.observation import ControllersWorkload, MigrationZnode, Unobserved, ZooKeeperState
from kraftbridge.models.phase import Phase
from kraftbridge.models.report import Profile
from kraftbridge.models.status import (
    FindingStatus,
    HealingKind,
    MigrationStatus,
    RollbackStatus,
    WaitKind,
    ZooKeeperContradiction,
    ZooKeeperHistory,
    finding,
)
from kraftbridge.phases import healing, verifying
from kraftbridge.phases.draft import SLOW, Draft, StepContext, Wait

FORWARD = frozenset({Phase.TAKING_OVER, Phase.DUAL_WRITE, Phase.ROLLING_BROKERS, Phase.AWAITING_FINALIZATION})
"""Phases in which a record begins. Before them nothing depends on ZooKeeper's past, after them nothing on ZooKeeper."""
RECORDED_EVERY = timedelta(seconds=5)
"""As `restarts.OFFSET_RECORDED_EVERY`, to save writes of the status."""
READ_AGAIN_AFTER = timedelta(seconds=0.2)


def track(draft: Draft) -> None:
    """Compare ZooKeeper with the record of this attempt, and keep the newer of both."""
    seen, known = draft.observation.zookeeper, _known(draft)
    if draft.status.phase not in FORWARD and draft.status.phase is not Phase.ROLLING_BACK:
        return
    if known is None:
        known = _begun(draft)
    if known is None or not isinstance(seen, ZooKeeperState):
        return
    what = contradiction(known, seen, own_rollback(draft.status), _restored_epoch(draft.status))
    if what:
        _note_contradiction(draft, known, seen, what)
    elif known.contradiction is not None and known.contradiction.confirmed_at is not None and _comparable(draft, known):
        _note_agreement(draft, known, seen, known.contradiction)
    else:
        _record(draft, known, seen)


def contradiction(
    known: ZooKeeperHistory, seen: ZooKeeperState, rollback: RollbackStatus | None, restored_epoch: int | None = None
) -> str:
    """Return what ZooKeeper lacks, or shows in an older state than it was read in; ``""`` when it is the store that is known.

    Parameters
    ----------
    rollback
        The rollback of this attempt, which removes ``/controller`` and ``/migration`` itself.
    restored_epoch
        Epoch at which controllers began that were restored from a copy: their log is a shorter one.
    """
    if known.cluster_id and seen.cluster_id != known.cluster_id:
        return f"/cluster/id is {seen.cluster_id or 'missing'} and was {known.cluster_id}"
    found: list[str] = []
    if rollback is None or rollback.claim_removed_at is None:
        found += _lost_znodes(known, seen, restored_epoch)
    if known.controller_epoch >= 0 and (
        seen.controller_epoch is None or seen.controller_epoch < known.controller_epoch
    ):
        found.append(
            f"/controller_epoch is {'missing' if seen.controller_epoch is None else seen.controller_epoch} and was {known.controller_epoch}"
        )
    if 0 < seen.zxid < int(known.zxid):
        found.append(f"its newest transaction is {seen.zxid:#x} and was {int(known.zxid):#x}")
    return "; ".join(found)


def _restored_epoch(status: MigrationStatus) -> int | None:
    current = status.restoration
    return current.epoch if current is not None and current.attempt == status.attempt else None


def _lost_znodes(known: ZooKeeperHistory, seen: ZooKeeperState, restored_epoch: int | None) -> list[str]:
    found: list[str] = []
    migration, controller = seen.migration, seen.controller
    if known.migration_czxid and migration is None:
        found.append("/migration is gone")
    elif known.migration_czxid and seen.migration_czxid and seen.migration_czxid != int(known.migration_czxid):
        found.append("/migration was deleted and created anew")
    elif isinstance(migration, MigrationZnode):
        restored = restored_epoch is not None and known.kraft_epoch < restored_epoch <= migration.kraft_controller_epoch
        if migration.kraft_metadata_offset < int(known.migration_offset) and not restored:
            found.append(
                f"the offset in /migration is {migration.kraft_metadata_offset} and was {known.migration_offset}"
            )
        if migration.kraft_controller_epoch < known.kraft_epoch:
            found.append(f"the epoch in /migration is {migration.kraft_controller_epoch} and was {known.kraft_epoch}")
    elif migration is None and known.copied:
        found.append("/migration is gone")
    if known.claim_epoch >= 0 and controller is None:
        found.append("/controller is gone")
    elif known.claim_epoch >= 0 and controller is not None and controller.kraft_controller_epoch < known.claim_epoch:
        holder = f"broker {controller.broker_id}" if controller.kraft_controller_epoch < 0 else "an earlier KRaft claim"
        found.append(f"/controller names {holder}, and a KRaft controller had claimed it")
    return found


def copied(status: MigrationStatus) -> bool:
    """Return whether this attempt has seen a complete copy, whatever the znodes say now."""
    known = status.zookeeper_history
    return known is not None and known.attempt == status.attempt and known.copied


def claimed(status: MigrationStatus) -> bool:
    """Return whether a KRaft controller was seen to hold ``/controller`` in this attempt."""
    known = status.zookeeper_history
    return known is not None and known.attempt == status.attempt and (known.claim_epoch >= 0 or known.copied)


def own_rollback(status: MigrationStatus) -> RollbackStatus | None:
    """Return the record of this attempt's rollback."""
    rollback = status.rollback
    return rollback if rollback is not None and rollback.attempt == status.attempt else None


def contradicts(step: StepContext) -> ZooKeeperContradiction | None:
    """Return the contradiction that forbids every change of the cluster, None when there is none."""
    known = _known(step)
    concerned = step.status.phase in FORWARD or step.status.phase is Phase.ROLLING_BACK
    return known.contradiction if known is not None and concerned else None


def enforce(draft: Draft) -> Wait | None:
    """Return the wait while ZooKeeper contradicts the record: nothing restarts, stops, fails over, or is written to ZooKeeper."""
    found, known = contradicts(draft), _known(draft)
    if found is None or known is None:
        return None
    if found.confirmed_at is None:
        return Wait(f"ZooKeeper is read again, because of what it showed: {found.what}", requeue_after=READ_AGAIN_AFTER)
    if found.what:
        if found.rewritable and draft.spec.verification.accepted_rewrite == found.id and found.rewritten_at is None:
            return _fail_over_once(draft, known, found)
        return _stalled(found)
    if _does_without_controllers(draft):
        return _close(draft, known, "no controller compares it, and spec.rollback.acceptLoss goes on without")
    if (waiting := healing.finish_failover(draft)) is not None:
        return waiting
    under_way = draft.status.healing
    if under_way is not None and under_way.kind is HealingKind.OLDER_STORE:
        if not healing.is_overdue(draft):
            return Wait("the new active controller writes its image to ZooKeeper", reason=Reason.CONTRADICTS)
        message = "The new active controller does not write its image to ZooKeeper: its log says why. Restart the active controller"
        return Wait(message, reason=Reason.CONTRADICTS, stalled=True)
    # What ZooKeeper holds now has the right age: Kafka may write to it, and a comparison says whether it has everything.
    if (waiting := healing.ensure_mirror_moves(draft)) is not None:
        return waiting
    purpose = f"contradiction-{found.id}"
    waiting = verifying.ensure_verdict(draft, Profile.DUAL_WRITE, draft.status.phase, purpose, heals=False)
    if waiting is not None:
        return waiting
    return _close(draft, known, "a verification passed")


def _close(draft: Draft, known: ZooKeeperHistory, because: str) -> Wait:
    draft.update(zookeeper_history=known.model_copy(update={"contradiction": None}))
    draft.set_findings(Code.ZOOKEEPER_CONTRADICTS)
    draft.tell(EventReason.HEALED, f"ZooKeeper is again what this migration has read: {because}")
    return Wait("ZooKeeper is again what this migration has read from it")


def _does_without_controllers(step: StepContext) -> bool:
    """Return whether a rollback goes on without the controllers that somebody deleted (`belongings.restore`)."""
    workload = step.observation.controllers
    accepted = step.status.phase is Phase.ROLLING_BACK and step.spec.rollback.accept_loss
    return accepted and isinstance(workload, ControllersWorkload) and workload.stateful_set is None


def way_out(found: ZooKeeperContradiction) -> str:
    """Return what the user does about a contradiction."""
    if found.rewritable and found.rewritten_at is None:
        return (
            "Give ZooKeeper its newest data again. Or let the KRaft controllers overwrite it: set spec.verification.acceptedRewrite to "
            f"{found.id}, which makes one controller failover and then a verification"
        )
    return (
        "Give ZooKeeper its newest data again (its own volumes, or a backup from after the takeover), or let spec.zookeeper.connect's names lead to "
        "its own ensemble again. A failover does not help, because Kafka does not write to a ZooKeeper without this attempt's /migration"
    )


def _known(step: StepContext) -> ZooKeeperHistory | None:
    known = step.status.zookeeper_history
    return known if known is not None and known.attempt == step.status.attempt else None


def _comparable(step: StepContext, known: ZooKeeperHistory) -> bool:
    """Return whether a verification can compare the stores: the copy was complete, and the controllers were not asked to stop."""
    rollback = own_rollback(step.status)
    return known.copied and (rollback is None or rollback.controllers_stopped_at is None)


def _begun(step: StepContext) -> ZooKeeperHistory | None:
    """Return the beginning of a record, from what earlier releases and phases have recorded; None where a rollback goes on without one."""
    status, offset = step.status, step.status.migration_offset
    rollback = own_rollback(status)
    stopped = rollback is not None and rollback.controllers_stopped_at is not None
    # A rollback from before the takeover has read nothing but the cluster's ID: that is enough to tell another ZooKeeper.
    if status.phase is Phase.ROLLING_BACK and (stopped or (offset is None and not status.cluster_id)):
        return None
    return ZooKeeperHistory(
        attempt=status.attempt,
        cluster_id=status.cluster_id or "",
        migration_offset="-1" if offset is None else offset.offset,
        seen_at=step.now,
    )


def _record(draft: Draft, known: ZooKeeperHistory, seen: ZooKeeperState) -> None:
    """Record a reading that fits: at once where it is another znode or epoch, else every `RECORDED_EVERY`."""
    if known.contradiction is not None:
        draft.set_findings(Code.ZOOKEEPER_CONTRADICTS)
    newer = _taken(known, seen).model_copy(update={"seen_at": draft.now, "contradiction": None})
    moving = {"seen_at": known.seen_at, "zxid": known.zxid, "migration_offset": known.migration_offset}
    offset = draft.status.migration_offset
    due = draft.now - known.seen_at >= RECORDED_EVERY or (offset is not None and offset.seen_at == draft.now)
    same = newer.model_copy(update=moving) == known and newer.copied is known.copied
    if due or not same or draft.status.zookeeper_history is not known:
        draft.update(zookeeper_history=newer)


def _taken(known: ZooKeeperHistory, seen: ZooKeeperState) -> ZooKeeperHistory:
    """Return the record with what this reading shows."""
    migration, controller = seen.migration, seen.controller
    changes: dict[str, object] = {"cluster_id": seen.cluster_id or known.cluster_id}
    if seen.migration_czxid:
        changes["migration_czxid"] = str(seen.migration_czxid)
    if isinstance(migration, MigrationZnode):
        changes |= {
            "migration_offset": str(migration.kraft_metadata_offset),
            "kraft_epoch": migration.kraft_controller_epoch,
        }
    if controller is not None and controller.kraft_controller_epoch >= 0:
        changes["claim_epoch"] = controller.kraft_controller_epoch
    if seen.controller_epoch is not None:
        changes["controller_epoch"] = seen.controller_epoch
    if seen.zxid:
        changes["zxid"] = str(seen.zxid)
    return known.model_copy(update=changes)


def _note_contradiction(draft: Draft, known: ZooKeeperHistory, seen: ZooKeeperState, what: str) -> None:
    """Record a contradiction when it is first read, and that it is one when it is read again."""
    found = known.contradiction
    same_znode = bool(seen.migration_czxid) and str(seen.migration_czxid) == known.migration_czxid
    complete = isinstance(seen.migration, MigrationZnode) and seen.migration.kraft_metadata_offset >= 0
    rewritable = seen.cluster_id == known.cluster_id and same_znode and complete
    if (
        found is None or not found.what
    ):  # the last one was not read any more: this is another one, with a word of its own
        found = ZooKeeperContradiction(
            id=f"attempt-{known.attempt}-{draft.now:%Y%m%dT%H%M%SZ}",
            what=what,
            rewritable=rewritable,
            seen_at=draft.now,
        )
        draft.update(zookeeper_history=known.model_copy(update={"contradiction": found}))
        return
    confirmed = found.model_copy(
        update={"what": what, "rewritable": rewritable, "confirmed_at": found.confirmed_at or draft.now}
    )
    if confirmed == found:
        return
    if found.confirmed_at is None:
        draft.tell(EventReason.ALARM, f"ZooKeeper contradicts the migration: {what}", EventType.WARNING)
    draft.update(zookeeper_history=known.model_copy(update={"contradiction": confirmed}))
    draft.set_findings(Code.ZOOKEEPER_CONTRADICTS, _finding(confirmed))


def _note_agreement(draft: Draft, known: ZooKeeperHistory, seen: ZooKeeperState, found: ZooKeeperContradiction) -> None:
    """Record that a confirmed contradiction is not read any more; a verification settles it.

    Until then the record follows what is read: a ZooKeeper that is lost again meanwhile must not pass for a newer one.
    """
    if found.what:
        settled = found.model_copy(update={"what": ""})
        draft.update(zookeeper_history=known.model_copy(update={"contradiction": settled}))
    elif draft.now - known.seen_at >= RECORDED_EVERY:
        draft.update(zookeeper_history=_taken(known, seen).model_copy(update={"seen_at": draft.now}))


def _fail_over_once(draft: Draft, known: ZooKeeperHistory, found: ZooKeeperContradiction) -> Wait:
    """Make the one failover that the user asks for. From then on ZooKeeper is measured by what it shows now."""
    waiting, seen = healing.restart_to_rewrite(draft), draft.observation.zookeeper
    begun = draft.status.healing is not None and draft.status.healing.failover_at == draft.now
    if begun and isinstance(seen, ZooKeeperState):
        rewritten = found.model_copy(update={"what": "", "rewritten_at": draft.now})
        draft.update(zookeeper_history=_taken(known, seen).model_copy(update={"contradiction": rewritten}))
    return waiting


def _stalled(found: ZooKeeperContradiction) -> Wait:
    made = _finding(found)
    message = f"{made.reason}. {made.fix}"
    return Wait(message, WaitKind.USER, Reason.CONTRADICTS, stalled=True, requeue_after=SLOW)


def _finding(found: ZooKeeperContradiction) -> FindingStatus:
    return finding(Code.ZOOKEEPER_CONTRADICTS, "ZooKeeper", what=found.what, way_out=way_out(found))


def possible(step: StepContext) -> tuple[Status, Reason, str] | None:
    """Return status, reason and message of ``RollbackPossible`` where the record decides it, None where the znodes do."""
    found, seen = contradicts(step), step.observation.zookeeper
    if found is not None and found.confirmed_at is None:
        return "Unknown", Reason.UNKNOWN, f"ZooKeeper is read again: {found.what}"
    if found is not None:
        words = found.what or "what it shows has the right age again, and no verification has passed since"
        return "False", Reason.CONTRADICTS, f"ZooKeeper does not show what this migration has read from it: {words}"
    if copied(step.status) and isinstance(seen, ZooKeeperState) and isinstance(seen.migration, Unobserved):
        return "Unknown", Reason.UNKNOWN, str(seen.migration)
    return None
