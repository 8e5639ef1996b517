"""Heals differences between the stores in dual-write by a controller failover. Pure.

KRaft is authoritative from the takeover on. A new active controller writes its whole image to ZooKeeper before it
continues (``KRaftMigrationDriver``, SYNC_KRAFT_TO_ZK). That also overwrites changes that another client made in
ZooKeeper alone. So the operator archives the differences first, and heals more than partition state only if
``spec.verification.healing`` allows it.

A topic that a client created while KRaft took over has no partition state in ZooKeeper.
The controller creates none: its next change fails there, and from then on every failover gets stuck
(`ZooKeeperStore.create_partition_states`). So these states are created before each failover.

A failover can get stuck for another reason: a conditional update of ``/migration`` fails for ever while every metric
is green. So each failover is counted before it starts, at most `MAX_FAILOVERS` are made, and each one is complete only
when the offset in ``/migration`` moves in a newer epoch.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from kraftbridge.models.conditions import Reason
from kraftbridge.models.decision import ArchiveDifferences, CreatePartitionStates, EventReason, EventType
from kraftbridge.models.observation import Archive, Unobserved
from kraftbridge.models.phase import ControllerMode
from kraftbridge.models.report import Profile, Verdict
from kraftbridge.models.spec import Healing
from kraftbridge.models.status import HealingKind, HealingStatus, OperationKind, VerificationStatus, healing_archive
from kraftbridge.phases import certificates, gates, observed
from kraftbridge.phases.draft import Draft, StepContext, Wait
from kraftbridge.phases.nodes import controllers, restarts

MAX_FAILOVERS = 3
"""Measured on Kafka 3.9: the first failover got stuck, the second healed everything. One more is a reserve."""
STANDING_RECORDS = 20
"""The active controller appends a NoOpRecord every 500 ms, so this lag is at least ten seconds of the log."""
KEPT = 10


def may_heal(setting: Healing, record: VerificationStatus) -> bool:
    """Return whether a failover heals every difference of a run, and ``spec.verification.healing`` allows it."""
    match setting:
        case Healing.NEVER:
            return False
        case Healing.PARTITION_STATE:
            return 0 < record.differing == record.partition_state_differing
        case Healing.AUTO:
            return 0 < record.differing == record.mirror_differing


def finish_failover(draft: Draft) -> Wait | None:
    """Follow a controller's restart to its end, in phases that restart only brokers otherwise."""
    operation = draft.status.operation
    if operation is None or operation.kind is not OperationKind.RESTART_CONTROLLER:
        return None
    # A quorum that does not reach the brokers cannot restore ISRs either.
    # So only the voters decide when the restart is over.
    return controllers.finish_controller_restart(draft, ControllerMode.MIGRATION, whole_cluster=False)


def heal(draft: Draft, record: VerificationStatus) -> Wait | None:
    """Take the next step of healing the differences of ``record``.

    Return None when the operator may not, or gave up.
    """
    if not may_heal(draft.spec.verification.healing, record) or _is_given_up(draft):
        return None
    current = _healing_of(draft, record)
    draft.update(healing=current)
    if current.archived_at is None:
        if not _archived(draft, current):
            draft.act(ArchiveDifferences(current.run_id, current.archive))
            return _wait(
                f"ZooKeeper's values of {current.entities} differing entities are being archived "
                f"in Secret {current.archive}{observed.because(draft.failure())}"
            )
        current = current.model_copy(update={"archived_at": draft.now})
        draft.update(healing=current)
    if current.failover_at is None or draft.now - current.failover_at >= _patience(draft):
        return _fail_over(draft, current)
    return _wait(
        f"controller failover {current.failovers} is not complete: the offset in /migration must move in a newer epoch"
    )


def restore_states(draft: Draft, record: VerificationStatus) -> None:
    """Let partitions that lack a state in ZooKeeper get one where no failover follows: this overwrites nothing."""
    if record.partition_state_differing and draft.spec.verification.healing is not Healing.NEVER:
        draft.act(CreatePartitionStates())


def _healing_of(step: StepContext, record: VerificationStatus) -> HealingStatus:
    """Return the healing of these differences, which continues that of an earlier run."""
    current = step.status.healing
    if current is not None and current.run_id == record.run_id:
        return current
    healing = HealingStatus(
        kind=HealingKind.DIFFERENCES,
        started_at=step.now,
        run_id=record.run_id,
        entities=record.differing,
        archive=healing_archive(record.run_id),
    )
    if current is None:
        return healing
    # The count of failovers continues when a later run still finds differences.
    return healing.model_copy(update={"started_at": current.started_at, "failovers": current.failovers})


def _is_given_up(step: StepContext) -> bool:
    current = step.status.healing
    return current is not None and current.given_up_at is not None


def awaits_failover(step: StepContext) -> bool:
    """Return whether a healing waits for its failover to write its image."""
    current = step.status.healing
    if current is None or current.failover_at is None:
        return False
    return current.synced_at is None and current.given_up_at is None


def failed_over(step: StepContext, record: VerificationStatus) -> bool:
    """Return whether the failover after ``record`` has written its image, so that a new verification can start."""
    current = step.status.healing
    return current is not None and current.run_id == record.run_id and current.synced_at is not None


def outlived(step: StepContext, record: VerificationStatus) -> bool:
    """Return whether a verdict is older than the last healing failover, which has rewritten ZooKeeper since."""
    read_at = record.released_at or record.launched_at
    healings = (*step.status.healings, step.status.healing)
    failovers = [healing.failover_at for healing in healings if healing is not None]
    return any(failover_at is not None and failover_at >= read_at for failover_at in failovers)


def close_differences(draft: Draft) -> None:
    """Close the healing of differences: the stores are equal again."""
    current = draft.status.healing
    if current is not None and current.kind is HealingKind.DIFFERENCES:
        words = f"{current.entities} differing entities healed by {current.failovers} controller failover(s)"
        _close(draft, current, words)


def track(draft: Draft) -> None:
    """Record when ``/migration`` names the newest controller's epoch, and when its offset moves from there."""
    current = draft.status.healing
    migration = observed.migration_znode(draft)
    if current is None or current.failover_at is None or current.synced_at is not None:
        return
    if migration is None or migration.kraft_controller_epoch <= current.failover_epoch:
        return
    offset = migration.kraft_metadata_offset
    if current.resumed_offset is None:
        draft.update(healing=current.model_copy(update={"resumed_offset": str(offset)}))
    elif offset > int(current.resumed_offset):
        current = current.model_copy(update={"synced_at": draft.now})
        draft.update(healing=current)
        if current.kind is not HealingKind.DIFFERENCES:
            _close(draft, current, f"/migration moves again after {current.failovers} controller failover(s)")


def ensure_mirror_moves(draft: Draft) -> Wait | None:
    """Return None while the KRaft controller writes ZooKeeper; fail over a controller that has stopped writing."""
    blockers = gates.dual_write_blockers(draft)
    if blockers:
        return fail_over_stuck_mirror(draft) or Wait(blockers[0])
    return None


def fail_over_stuck_mirror(draft: Draft) -> Wait | None:
    """Fail over a controller that has not written ZooKeeper for too long; return None when there is nothing to do."""
    standing = _standing_since(draft)
    if standing is None or draft.spec.verification.healing is Healing.NEVER:
        return None
    current = draft.status.healing or HealingStatus(kind=HealingKind.STUCK_SYNC, started_at=draft.now)
    stands = f"/migration stands still at {_offset(draft)}"
    if current.given_up_at is not None:
        return _stalled(
            f"{stands} after {current.failovers} controller failovers: the log of the active controller says why"
        )
    if draft.now - max(standing, current.failover_at or standing) < _patience(draft):
        return None
    record = unhealed(draft)
    if record is None:
        return _fail_over(draft, current)
    # The failover writes the whole image, so it overwrites the known differences.
    allowing = ""
    if may_heal(Healing.AUTO, record):
        allowing = "set spec.verification.healing=Auto, which archives them first, or "
    message = (
        f"{stands}, and a controller failover would overwrite in ZooKeeper what {record.run_id} found different "
        f"({record.differing} entities): {allowing}restart the active controller yourself"
    )
    return heal(draft, record) or _stalled(message)


def restart_to_rewrite(draft: Draft) -> Wait:
    """Make the one controller failover with which the user lets KRaft write an older ZooKeeper anew."""
    return _fail_over(draft, HealingStatus(kind=HealingKind.OLDER_STORE, started_at=draft.now))


def is_overdue(step: StepContext) -> bool:
    """Return whether the failover under way has not written its image in the time that it may take."""
    current = step.status.healing
    return current is not None and observed.age(step, current.failover_at) >= _patience(step)


def advice(step: StepContext, record: VerificationStatus, *, heals: bool) -> str:
    """Return why the operator does not heal an inconsistent verdict, and what the user can do."""
    current = step.status.healing
    if not heals:
        return (
            "repair them, or restart the active controller, which overwrites ZooKeeper's side: "
            "the operator makes no failover unasked after ZooKeeper was not what it had been"
        )
    if current is not None and current.given_up_at is not None:
        return f"healing was given up after {current.failovers} controller failovers; repair them"
    if may_heal(Healing.AUTO, record):
        return (
            "repair them, or let a controller failover overwrite ZooKeeper's side (archived first) "
            "with spec.verification.healing=Auto"
        )
    if record.profile is Profile.UPGRADE:
        return (
            "restart the brokers that it names: a broker that has missed a change reads ZooKeeper when it starts. "
            "With spec.verification.compareServed=Never no broker is compared"
        )
    return "repair them"


def unarchived(step: StepContext, run_id: str) -> bool:
    """Return whether a healing still needs the report of a run."""
    current = step.status.healing
    return current is not None and current.run_id == run_id and current.archived_at is None


def unhealed(step: StepContext) -> VerificationStatus | None:
    """Return the run with the last known differences of ZooKeeper, None if there is none."""
    runs = [run for run in step.status.verifications if run.profile is Profile.DUAL_WRITE and not run.is_forecast]
    conclusive = [run for run in runs if run.verdict not in {None, Verdict.INCONCLUSIVE}]
    if not conclusive or conclusive[-1].verdict is not Verdict.INCONSISTENT:
        return None
    if outlived(step, conclusive[-1]):
        return None
    return conclusive[-1]


def _fail_over(draft: Draft, current: HealingStatus) -> Wait:
    """Count the failover and restart the active controller; give up after `MAX_FAILOVERS`."""
    if current.failovers >= MAX_FAILOVERS:
        given_up = f"given up after {current.failovers} controller failovers"
        draft.update(healing=current.model_copy(update={"given_up_at": draft.now}))
        draft.tell(EventReason.STALLED, f"Healing {given_up}", EventType.WARNING)
        return _stalled(f"healing is {given_up}")
    if (waiting := restarts.paused(draft) or certificates.roll_blocker(draft)) is not None:
        return waiting
    blockers = gates.quorum_blockers(draft)
    blockers = blockers or gates.controllers_running_blockers(draft, ControllerMode.MIGRATION, newest=False)
    if blockers:
        return _wait_before_failover(blockers[0])
    active = draft.observation.active_controller
    if active is None:
        return _wait_before_failover(gates.NO_ACTIVE_CONTROLLER)
    migration = observed.migration_znode(draft)
    if migration is None:
        return _wait_before_failover("/migration could not be read")
    pod = observed.controller_pod(draft, active.node_id)
    if pod is None:
        return _wait_before_failover(f"controller {active.node_id} has no pod")
    if not draft.has_tried(CreatePartitionStates):
        draft.act(CreatePartitionStates())
        return _wait_before_failover("partitions that have no state in ZooKeeper get one")
    counted = {
        "failovers": current.failovers + 1,
        "failover_at": draft.now,
        "failover_epoch": migration.kraft_controller_epoch,
        "resumed_offset": None,
        "synced_at": None,
    }
    draft.update(healing=current.model_copy(update=counted))
    purpose = f"{current.entities} differing entities" if current.run_id else "a mirror that stands still"
    words = f"Controller failover {current.failovers + 1} of {MAX_FAILOVERS} at most, to heal {purpose}"
    draft.tell(EventReason.HEALING_STARTED, words)
    return controllers.restart_controller(draft, pod)


def _archived(step: StepContext, current: HealingStatus) -> bool:
    archive = step.observation.archive
    if not isinstance(archive, Archive) or archive.run_id != current.run_id:
        return False
    return archive.entities >= current.entities


def _standing_since(step: StepContext) -> datetime | None:
    """Return since when the offset in ``/migration`` has not grown while the log has; None if that is not known."""
    migration = observed.migration_znode(step)
    quorum = step.observation.quorum
    offset = step.status.migration_offset
    if migration is None or offset is None or isinstance(quorum, Unobserved):
        return None
    if step.observation.active_controller is None or not gates.quorum_claims(step):
        return None
    # The znode has moved since the offset was recorded, or the mirror is hardly behind.
    mirrored = migration.kraft_metadata_offset
    if int(offset.offset) != mirrored or quorum.high_watermark - mirrored <= STANDING_RECORDS:
        return None
    return offset.standing_since


def _patience(step: StepContext) -> timedelta:
    return timedelta(seconds=step.spec.strategy.sync_patience_seconds)


def _offset(step: StepContext) -> str:
    offset = step.status.migration_offset
    return f"offset {offset.offset}" if offset is not None else "an unknown offset"


def _close(draft: Draft, current: HealingStatus, message: str) -> None:
    done = current.model_copy(update={"finished_at": draft.now})
    draft.update(healing=None, healings=(*draft.status.healings, done)[-KEPT:])
    draft.tell(EventReason.HEALED, f"Healed: {message}")


def _wait(message: str) -> Wait:
    return Wait(message, reason=Reason.HEALING)


def _wait_before_failover(blocker: str) -> Wait:
    return _wait(f"before a controller failover: {blocker}")


def _stalled(message: str) -> Wait:
    return Wait(message, reason=Reason.HEALING, stalled=True)
