"""What this attempt has read from ZooKeeper, and what a ZooKeeper that contradicts it forbids. Pure.

ZooKeeper's data can be lost, restored from a backup, or exchanged for another ensemble's, and a znode can be deleted
by hand. Such a ZooKeeper says that nothing was taken over yet. So what was taken over is read from this record and not
from the znodes.

Measured on Kafka 3.9.1 (``tests/integration/test_zookeeper_that_contradicts.py``): without ``/controller`` a
broker on ZooKeeper becomes controller beside the KRaft controller within seconds, and without ``/migration`` the KRaft
controller writes no change to ZooKeeper any more, neither before nor after a failover.
"""

from __future__ import annotations

from datetime import timedelta

from kraftbridge.models.catalogue import Code
from kraftbridge.models.conditions import Reason, Status
from kraftbridge.models.decision import EventReason, EventType
from kraftbridge.models.observation import (
    ControllersWorkload,
    ControllerZnode,
    MigrationZnode,
    Unobserved,
    ZooKeeperState,
)
from kraftbridge.models.phase import Phase, Target
from kraftbridge.models.report import Profile
from kraftbridge.models.status import (
    FindingStatus,
    HealingKind,
    MigrationStatus,
    RollbackStatus,
    ZooKeeperContradiction,
    ZooKeeperHistory,
    finding,
)
from kraftbridge.phases import gates, healing, observed, verifying
from kraftbridge.phases.draft import Draft, StepContext, Wait, for_user
from kraftbridge.phases.nodes import brokers, deadlines
from kraftbridge.phases.nodes.deadlines import PastDeadline

RECORDED_EVERY = timedelta(seconds=5)
"""As `restarts.OFFSET_RECORDED_EVERY`, to save writes of the status."""
READ_AGAIN_AFTER = timedelta(seconds=0.2)


def track(draft: Draft) -> None:
    """Compare ZooKeeper with the record of this attempt, and keep the newer of both."""
    reading = draft.observation.zookeeper
    if not draft.status.phase.row.migrates or isinstance(reading, Unobserved):
        return
    record = _history_of(draft.status) or _begun(draft)
    if record is None:
        return
    lacking = contradiction(record, reading, own_rollback(draft.status), _restored_epoch(draft.status))
    standing = record.contradiction
    if lacking:
        _note_contradiction(draft, record, reading, lacking)
    elif standing is not None and standing.confirmed_at is not None and _comparable(draft, record):
        _note_agreement(draft, record, reading, standing)
    else:
        _record(draft, record, reading)


def contradiction(
    record: ZooKeeperHistory,
    reading: ZooKeeperState,
    rollback: RollbackStatus | None,
    restored_epoch: int | None = None,
) -> str:
    """Return what ZooKeeper lacks, or shows in an older state than it was read in.

    ``""`` when it is the store that is known.

    Parameters
    ----------
    rollback
        The rollback of this attempt, which removes ``/controller`` and ``/migration`` itself.
    restored_epoch
        Epoch at which controllers began that were restored from a copy: their log is a shorter one.
    """
    if record.cluster_id and reading.cluster_id != record.cluster_id:
        return f"/cluster/id is {reading.cluster_id or 'missing'} and was {record.cluster_id}"
    epoch = -1 if reading.controller_epoch is None else reading.controller_epoch
    shown = "missing" if reading.controller_epoch is None else epoch
    zxid = int(record.zxid)
    lost: list[str] = []
    if rollback is None or rollback.claim_removed_at is None:
        lost = [*_lost_migration(record, reading, restored_epoch), *_lost_claim(record, reading.controller)]
    older = gates.failed(
        (epoch < record.controller_epoch, f"/controller_epoch is {shown} and was {record.controller_epoch}"),
        (0 < reading.zxid < zxid, f"its newest transaction is {reading.zxid:#x} and was {zxid:#x}"),
    )
    return "; ".join([*lost, *older])


def _restored_epoch(status: MigrationStatus) -> int | None:
    current = observed.of_attempt(status, status.restoration)
    return None if current is None else current.epoch


def _lost_migration(record: ZooKeeperHistory, reading: ZooKeeperState, restored_epoch: int | None) -> list[str]:
    """Return what ``/migration`` lacks."""
    migration = reading.migration
    if migration is None:
        return gates.failed((record.migration_czxid or record.copied, "/migration is gone"))
    if record.migration_czxid and reading.migration_czxid not in (0, int(record.migration_czxid)):
        return ["/migration was deleted and created anew"]
    if isinstance(migration, Unobserved):
        return []
    offset = migration.kraft_metadata_offset
    epoch = migration.kraft_controller_epoch
    restored = restored_epoch is not None and record.kraft_epoch < restored_epoch <= epoch
    older = offset < int(record.migration_offset)
    return gates.failed(
        (older and not restored, f"the offset in /migration is {offset} and was {record.migration_offset}"),
        (epoch < record.kraft_epoch, f"the epoch in /migration is {epoch} and was {record.kraft_epoch}"),
    )


def _lost_claim(record: ZooKeeperHistory, controller: ControllerZnode | None) -> list[str]:
    """Return what became of a claim on ``/controller``."""
    if record.claim_epoch < 0:
        return []
    if controller is None:
        return ["/controller is gone"]
    epoch = controller.kraft_controller_epoch
    holder = f"broker {controller.broker_id}" if epoch < 0 else "an earlier KRaft claim"
    return gates.failed(
        (epoch < record.claim_epoch, f"/controller names {holder}, and a KRaft controller had claimed it")
    )


def copied(status: MigrationStatus) -> bool:
    """Return whether this attempt has seen a complete copy, whatever the znodes say now."""
    record = _history_of(status)
    return record is not None and record.copied


def claimed(status: MigrationStatus) -> bool:
    """Return whether a KRaft controller was seen to hold ``/controller`` in this attempt."""
    record = _history_of(status)
    return record is not None and (record.claim_epoch >= 0 or record.copied)


def own_rollback(status: MigrationStatus) -> RollbackStatus | None:
    """Return the record of this attempt's rollback."""
    return observed.of_attempt(status, status.rollback)


def contradicts(step: StepContext) -> ZooKeeperContradiction | None:
    """Return the contradiction that forbids every change of the cluster, None when there is none."""
    record = _history_of(step.status)
    if record is not None and step.status.phase.row.migrates:
        return record.contradiction
    return None


def enforce(draft: Draft) -> Wait | None:
    """Return the wait while ZooKeeper contradicts the record.

    Nothing restarts, stops, fails over, or is written to ZooKeeper meanwhile.
    """
    standing = contradicts(draft)
    record = _history_of(draft.status)
    if standing is None or record is None:
        return None
    if standing.confirmed_at is None:
        message = f"ZooKeeper is read again, because of what it showed: {standing.what}"
        return Wait(message, requeue_after=READ_AGAIN_AFTER)
    if standing.what:
        accepted = draft.spec.verification.accepted_rewrite == standing.id
        if accepted and standing.rewritable and standing.rewritten_at is None:
            return _fail_over_once(draft, record, standing)
        return _stalled(standing)
    if _does_without_controllers(draft):
        return _close(draft, record, "no controller compares it, and spec.rollback.acceptLoss goes on without")
    purpose = f"contradiction-{standing.id}"
    return (
        _finish_restart(draft)
        or _rewriting(draft)
        # What ZooKeeper holds now has the right age: Kafka may write to it.
        # A comparison says whether it has everything.
        or healing.ensure_mirror_moves(draft)
        or verifying.ensure_verdict(draft, Profile.DUAL_WRITE, draft.status.phase, purpose, heals=False)
        or _close(draft, record, "a verification passed")
    )


def _finish_restart(draft: Draft) -> Wait | None:
    """Follow the restart of a controller; a rollback goes on without one that does not come back."""
    waiting = healing.finish_failover(draft)
    is_back = draft.status.phase is Phase.ROLLING_BACK
    return None if is_back and deadlines.action_due(draft) is PastDeadline.GO_ON else waiting


def _rewriting(step: StepContext) -> Wait | None:
    """Return the wait while a failover writes an older ZooKeeper anew."""
    under_way = step.status.healing
    if under_way is None or under_way.kind is not HealingKind.OLDER_STORE:
        return None
    if not healing.is_overdue(step):
        return Wait("the new active controller writes its image to ZooKeeper", reason=Reason.CONTRADICTS)
    message = (
        "The new active controller does not write its image to ZooKeeper: its log says why. "
        "Restart the active controller"
    )
    return Wait(message, reason=Reason.CONTRADICTS, stalled=True)


def _close(draft: Draft, record: ZooKeeperHistory, because: str) -> Wait:
    draft.update(zookeeper_history=record.model_copy(update={"contradiction": None}))
    draft.set_findings(Code.ZOOKEEPER_CONTRADICTS)
    draft.tell(EventReason.HEALED, f"ZooKeeper is again what this migration has read: {because}")
    return Wait("ZooKeeper is again what this migration has read from it")


def _does_without_controllers(step: StepContext) -> bool:
    """Return whether a rollback goes on, or begins, without the controllers that somebody deleted.

    `belongings.restore` does not create them anew then.
    """
    workload = step.observation.controllers
    if not isinstance(workload, ControllersWorkload) or workload.stateful_set is not None:
        return False
    is_rolled_back = step.status.phase is Phase.ROLLING_BACK and step.spec.rollback.accept_loss
    return is_rolled_back or does_without(step)


def does_without(step: StepContext) -> bool:
    """Return whether the user does without what only the controllers have, and no broker needs them."""
    if step.spec.target is not Target.ZOOKEEPER or not step.spec.rollback.accept_loss:
        return False
    return step.status.lost_quorum is not None or not brokers.some_on_kraft(step)


def way_out(standing: ZooKeeperContradiction) -> str:
    """Return what the user does about a contradiction."""
    if standing.rewritable and standing.rewritten_at is None:
        return (
            "Give ZooKeeper its newest data again. Or let the KRaft controllers overwrite it: "
            f"set spec.verification.acceptedRewrite to {standing.id}, "
            "which makes one controller failover and then a verification"
        )
    return (
        "Give ZooKeeper its newest data again (its own volumes, or a backup from after the takeover), "
        "or let spec.zookeeper.connect's names lead to its own ensemble again. "
        "A failover does not help, because Kafka does not write to a ZooKeeper without this attempt's /migration"
    )


def _history_of(status: MigrationStatus) -> ZooKeeperHistory | None:
    """Return what this attempt has read, None while it has read nothing."""
    return observed.of_attempt(status, status.zookeeper_history)


def _controllers_were_stopped(status: MigrationStatus) -> bool:
    return observed.rollback_record(status).controllers_stopped_at is not None


def _comparable(step: StepContext, record: ZooKeeperHistory) -> bool:
    """Return whether a verification can compare the stores.

    The copy was complete, and the controllers were not asked to stop.
    """
    return record.copied and not _controllers_were_stopped(step.status)


def _begun(step: StepContext) -> ZooKeeperHistory | None:
    """Return the beginning of a record, from what earlier releases and phases have recorded.

    None where a rollback goes on without one.
    """
    status = step.status
    offset = step.status.migration_offset
    # A rollback from before the takeover has read nothing but the cluster's ID.
    # That is enough to tell another ZooKeeper.
    nothing = offset is None and not status.cluster_id
    if status.phase is Phase.ROLLING_BACK and (nothing or _controllers_were_stopped(status)):
        return None
    return ZooKeeperHistory(
        attempt=status.attempt,
        cluster_id=status.cluster_id or "",
        migration_offset="-1" if offset is None else offset.offset,
        seen_at=step.now,
    )


def _record(draft: Draft, record: ZooKeeperHistory, reading: ZooKeeperState) -> None:
    """Record a reading that fits: at once where it is another znode or epoch, else every `RECORDED_EVERY`."""
    if record.contradiction is not None:
        draft.set_findings(Code.ZOOKEEPER_CONTRADICTS)
    newer = _taken(record, reading).model_copy(update={"seen_at": draft.now, "contradiction": None})
    moving = {"seen_at": record.seen_at, "zxid": record.zxid, "migration_offset": record.migration_offset}
    same = newer.model_copy(update=moving) == record and newer.copied is record.copied
    offset = draft.status.migration_offset
    due = draft.now - record.seen_at >= RECORDED_EVERY or (offset is not None and offset.seen_at == draft.now)
    if due or not same or draft.status.zookeeper_history is not record:
        draft.update(zookeeper_history=newer)


def _taken(record: ZooKeeperHistory, reading: ZooKeeperState) -> ZooKeeperHistory:
    """Return the record with what this reading shows."""
    migration = reading.migration
    epoch = observed.claim_epoch(reading)
    changes: dict[str, object] = {"cluster_id": reading.cluster_id or record.cluster_id}
    if reading.migration_czxid:
        changes["migration_czxid"] = str(reading.migration_czxid)
    if isinstance(migration, MigrationZnode):
        changes["migration_offset"] = str(migration.kraft_metadata_offset)
        changes["kraft_epoch"] = migration.kraft_controller_epoch
    if epoch >= 0:
        changes["claim_epoch"] = epoch
    if reading.controller_epoch is not None:
        changes["controller_epoch"] = reading.controller_epoch
    if reading.zxid:
        changes["zxid"] = str(reading.zxid)
    return record.model_copy(update=changes)


def _note_contradiction(draft: Draft, record: ZooKeeperHistory, reading: ZooKeeperState, lacking: str) -> None:
    """Record a contradiction when it is first read, and that it is one when it is read again."""
    standing = record.contradiction
    rewritable = _is_rewritable(record, reading)
    if standing is None or not standing.what:
        # The last one was not read any more: this is another one, with a word of its own.
        first = ZooKeeperContradiction(
            id=f"attempt-{record.attempt}-{draft.now:%Y%m%dT%H%M%SZ}",
            what=lacking,
            rewritable=rewritable,
            seen_at=draft.now,
        )
        draft.update(zookeeper_history=record.model_copy(update={"contradiction": first}))
        return
    confirmed_at = standing.confirmed_at or draft.now
    changes = {"what": lacking, "rewritable": rewritable, "confirmed_at": confirmed_at}
    confirmed = standing.model_copy(update=changes)
    if confirmed == standing:
        return
    if standing.confirmed_at is None:
        draft.tell(EventReason.ALARM, f"ZooKeeper contradicts the migration: {lacking}", EventType.WARNING)
    draft.update(zookeeper_history=record.model_copy(update={"contradiction": confirmed}))
    draft.set_findings(Code.ZOOKEEPER_CONTRADICTS, _finding(confirmed))


def _is_rewritable(record: ZooKeeperHistory, reading: ZooKeeperState) -> bool:
    """Return whether a failover can write ZooKeeper anew: the cluster's own, with this attempt's ``/migration``."""
    if not isinstance(reading.migration, MigrationZnode) or reading.migration.kraft_metadata_offset < 0:
        return False
    same_znode = bool(reading.migration_czxid) and str(reading.migration_czxid) == record.migration_czxid
    return same_znode and reading.cluster_id == record.cluster_id


def _note_agreement(
    draft: Draft, record: ZooKeeperHistory, reading: ZooKeeperState, standing: ZooKeeperContradiction
) -> None:
    """Record that a confirmed contradiction is not read any more; a verification settles it.

    Until then the record follows what is read: a ZooKeeper that is lost again meanwhile must not pass for a newer one.
    """
    if standing.what:
        settled = standing.model_copy(update={"what": ""})
        draft.update(zookeeper_history=record.model_copy(update={"contradiction": settled}))
    elif draft.now - record.seen_at >= RECORDED_EVERY:
        draft.update(zookeeper_history=_taken(record, reading).model_copy(update={"seen_at": draft.now}))


def _fail_over_once(draft: Draft, record: ZooKeeperHistory, standing: ZooKeeperContradiction) -> Wait:
    """Make the one failover that the user asks for. From then on ZooKeeper is measured by what it shows now."""
    waiting = healing.restart_to_rewrite(draft)
    reading = draft.observation.zookeeper
    current = draft.status.healing
    if current is not None and current.failover_at == draft.now and isinstance(reading, ZooKeeperState):
        rewritten = standing.model_copy(update={"what": "", "rewritten_at": draft.now})
        draft.update(zookeeper_history=_taken(record, reading).model_copy(update={"contradiction": rewritten}))
    return waiting


def _stalled(standing: ZooKeeperContradiction) -> Wait:
    words = _finding(standing)
    return for_user(f"{words.reason}. {words.fix}", Reason.CONTRADICTS)


def _finding(standing: ZooKeeperContradiction) -> FindingStatus:
    way = way_out(standing)
    return finding(Code.ZOOKEEPER_CONTRADICTS, "ZooKeeper", what=standing.what, way_out=way)


def possible(step: StepContext) -> tuple[Status, Reason, str] | None:
    """Return status, reason and message of ``RollbackPossible`` where the record decides it.

    None where the znodes do.
    """
    standing = contradicts(step)
    reading = step.observation.zookeeper
    if standing is not None and standing.confirmed_at is None:
        return "Unknown", Reason.UNKNOWN, f"ZooKeeper is read again: {standing.what}"
    if standing is not None:
        words = standing.what or "what it shows has the right age again, and no verification has passed since"
        return "False", Reason.CONTRADICTS, f"ZooKeeper does not show what this migration has read from it: {words}"
    migration = reading.migration if isinstance(reading, ZooKeeperState) else None
    if copied(step.status) and isinstance(migration, Unobserved):
        return "Unknown", Reason.UNKNOWN, str(migration)
    return None
