"""Heals differences between the stores in dual-write by a controller failover. Pure.

KRaft is authoritative from the takeover on. A new active controller writes its whole image to ZooKeeper before it continues
(``KRaftMigrationDriver``, SYNC_KRAFT_TO_ZK). That also overwrites changes that another client made in ZooKeeper alone. So the operator archives the
differences first, and heals more than partition state only if ``spec.verification.healing`` allows it.

A failover can get stuck: a conditional update of ``/migration`` fails for ever while every metric is green. So each failover is counted before it
starts, at most `MAX_FAILOVERS` are made, and each one is complete only when the offset in ``/migration`` moves in a newer epoch.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from kraftbridge.models.conditions import Reason
from kraftbridge.models.decision import ArchiveDifferences, EventReason, EventType
from kraftbridge.models.observation import (
    Archive,
    ControllersWorkload,
    MigrationZnode,
    QuorumState,
    Unobserved,
    ZooKeeperState,
)
from kraftbridge.models.phase import ControllerMode
from kraftbridge.models.report import Profile, Verdict
from kraftbridge.models.spec import Healing
from kraftbridge.models.status import HealingKind, HealingStatus, OperationKind, VerificationStatus, healing_archive
from kraftbridge.phases import gates
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
    # A quorum that does not reach the brokers cannot restore ISRs either, so only the voters decide when the restart is over.
    return controllers.finish_controller_restart(draft, ControllerMode.MIGRATION, whole_cluster=False)


def heal(draft: Draft, record: VerificationStatus) -> Wait | None:
    """Take the next step of healing the differences of ``record``; return None when the operator may not, or gave up."""
    current = draft.status.healing
    if not may_heal(draft.spec.verification.healing, record) or (current is not None and current.given_up_at):
        return None
    if current is None or current.run_id != record.run_id:
        since = current.started_at if current is not None else draft.now
        # The count of failovers continues when a later run still finds differences.
        current = HealingStatus(
            kind=HealingKind.DIFFERENCES,
            started_at=since,
            run_id=record.run_id,
            entities=record.differing,
            archive=healing_archive(record.run_id),
            failovers=current.failovers if current is not None else 0,
        )
        draft.update(healing=current)
    if current.archived_at is None:
        if not _archived(draft, current):
            draft.act(ArchiveDifferences(current.run_id, current.archive))
            because = f": {draft.failure()}" if draft.failure() else ""
            return _wait(
                f"ZooKeeper's values of {current.entities} differing entities are being archived in Secret {current.archive}{because}"
            )
        current = current.model_copy(update={"archived_at": draft.now})
        draft.update(healing=current)
    if current.failover_at is None:
        return _fail_over(draft, current)
    if draft.now - current.failover_at < _patience(draft):
        return _wait(
            f"controller failover {current.failovers} is not complete: the offset in /migration must move in a newer epoch"
        )
    return _fail_over(draft, current)


def failed_over(step: StepContext, record: VerificationStatus) -> bool:
    """Return whether the failover after ``record`` has written its image, so that a new verification can start."""
    current = step.status.healing
    return current is not None and current.run_id == record.run_id and current.synced_at is not None


def outlived(step: StepContext, record: VerificationStatus) -> bool:
    """Return whether a verdict is older than the last healing failover, which has rewritten ZooKeeper since."""
    all_of_them = (*step.status.healings, *((step.status.healing,) if step.status.healing is not None else ()))
    read_at = record.released_at or record.launched_at
    return any(h.failover_at is not None and h.failover_at >= read_at for h in all_of_them)


def close_differences(draft: Draft) -> None:
    """Close the healing of differences: the stores are equal again."""
    current = draft.status.healing
    if current is not None and current.kind is HealingKind.DIFFERENCES:
        _close(
            draft,
            current,
            f"{current.entities} differing entities healed by {current.failovers} controller failover(s)",
        )


def track(draft: Draft) -> None:
    """Record when ``/migration`` names the newest controller's epoch, and when its offset moves from there."""
    current, zookeeper = draft.status.healing, draft.observation.zookeeper
    if current is None or current.failover_at is None or current.synced_at is not None:
        return
    if not isinstance(zookeeper, ZooKeeperState) or not isinstance(zookeeper.migration, MigrationZnode):
        return
    znode = zookeeper.migration
    if znode.kraft_controller_epoch <= current.failover_epoch:
        return
    if current.resumed_offset is None:
        draft.update(healing=current.model_copy(update={"resumed_offset": str(znode.kraft_metadata_offset)}))
    elif znode.kraft_metadata_offset > int(current.resumed_offset):
        current = current.model_copy(update={"synced_at": draft.now})
        draft.update(healing=current)
        if current.kind is not HealingKind.DIFFERENCES:
            _close(draft, current, f"/migration moves again after {current.failovers} controller failover(s)")


def ensure_mirror_moves(draft: Draft) -> Wait | None:
    """Return None while the KRaft controller writes ZooKeeper; fail over a controller that has stopped writing."""
    blockers = gates.dual_write_blockers(draft)
    return (fail_over_stuck_mirror(draft) or Wait(blockers[0])) if blockers else None


def fail_over_stuck_mirror(draft: Draft) -> Wait | None:
    """Fail over a controller that has not written ZooKeeper for too long; return None when there is nothing to do."""
    current, standing = draft.status.healing, _standing_since(draft)
    if standing is None or draft.spec.verification.healing is Healing.NEVER:
        return None
    since = standing if current is None or current.failover_at is None else max(standing, current.failover_at)
    if current is not None and current.given_up_at is not None:
        message = f"/migration stands still at {_offset(draft)} after {current.failovers} controller failovers: the log of the active controller says why"
        return Wait(message, reason=Reason.HEALING, stalled=True)
    if draft.now - since < _patience(draft):
        return None
    if (record := unhealed(draft)) is not None:
        # The failover writes the whole image, so it overwrites the known differences.
        allowing = (
            "set spec.verification.healing=Auto, which archives them first, or "
            if may_heal(Healing.AUTO, record)
            else ""
        )
        message = f"/migration stands still at {_offset(draft)}, and a controller failover would overwrite in ZooKeeper what {record.run_id} found different ({record.differing} entities): {allowing}restart the active controller yourself"
        return heal(draft, record) or Wait(message, reason=Reason.HEALING, stalled=True)
    if current is None:
        current = HealingStatus(kind=HealingKind.STUCK_SYNC, started_at=draft.now)
    return _fail_over(draft, current)


def restart_to_rewrite(draft: Draft) -> Wait:
    """Make the one controller failover with which the user lets KRaft write an older ZooKeeper anew."""
    return _fail_over(draft, HealingStatus(kind=HealingKind.OLDER_STORE, started_at=draft.now))


def is_overdue(step: StepContext) -> bool:
    """Return whether the failover under way has not written its image in the time that it may take."""
    current = step.status.healing
    return current is not None and current.failover_at is not None and step.now - current.failover_at >= _patience(step)


def advice(step: StepContext, record: VerificationStatus) -> str:
    """Return why the operator does not heal an inconsistent verdict, and what the user can do."""
    current = step.status.healing
    if current is not None and current.given_up_at is not None:
        return f"healing was given up after {current.failovers} controller failovers; repair them"
    if may_heal(Healing.AUTO, record):
        return "repair them, or let a controller failover overwrite ZooKeeper's side (archived first) with spec.verification.healing=Auto"
    return "repair them"


def unarchived(step: StepContext, run_id: str) -> bool:
    """Return whether a healing still needs the report of a run."""
    current = step.status.healing
    return current is not None and current.run_id == run_id and current.archived_at is None


def unhealed(step: StepContext) -> VerificationStatus | None:
    """Return the run with the last known differences of ZooKeeper, None if there is none."""
    dual_write = (
        v for v in reversed(step.status.verifications) if v.profile is Profile.DUAL_WRITE and not v.is_forecast
    )
    last = next((v for v in dual_write if v.verdict not in {None, Verdict.INCONCLUSIVE}), None)
    found = last is not None and last.verdict is Verdict.INCONSISTENT and not outlived(step, last)
    return last if found else None


def _fail_over(draft: Draft, current: HealingStatus) -> Wait:
    """Count the failover and restart the active controller; give up after `MAX_FAILOVERS`."""
    if current.failovers >= MAX_FAILOVERS:
        draft.update(healing=current.model_copy(update={"given_up_at": draft.now}))
        draft.tell(
            EventReason.STALLED, f"Healing given up after {current.failovers} controller failovers", EventType.WARNING
        )
        return Wait(
            f"healing is given up after {current.failovers} controller failovers", reason=Reason.HEALING, stalled=True
        )
    if (waiting := restarts.paused(draft)) is not None:
        return waiting
    blockers = gates.quorum_blockers(draft) or gates.controllers_running_blockers(
        draft, ControllerMode.MIGRATION, newest=False
    )
    zookeeper, workload, active = (
        draft.observation.zookeeper,
        draft.observation.controllers,
        draft.observation.active_controller,
    )
    if blockers or active is None:
        return _wait(f"before a controller failover: {(blockers or ['no single active controller answers'])[0]}")
    if not isinstance(zookeeper, ZooKeeperState) or not isinstance(zookeeper.migration, MigrationZnode):
        return _wait("before a controller failover: /migration could not be read")
    if not isinstance(workload, ControllersWorkload) or workload.stateful_set is None:
        return _wait("before a controller failover: the controllers' pods could not be seen")
    pod = next((p for p in workload.stateful_set.pods if p.ordinal == active.node_id), None)
    if pod is None:
        return _wait(f"before a controller failover: controller {active.node_id} has no pod")
    counted = {
        "failovers": current.failovers + 1,
        "failover_at": draft.now,
        "failover_epoch": zookeeper.migration.kraft_controller_epoch,
        "resumed_offset": None,
        "synced_at": None,
    }
    draft.update(healing=current.model_copy(update=counted))
    what = f"{current.entities} differing entities" if current.run_id else "a mirror that stands still"
    draft.tell(
        EventReason.HEALING_STARTED,
        f"Controller failover {current.failovers + 1} of {MAX_FAILOVERS} at most, to heal {what}",
    )
    return controllers.restart_controller(draft, pod)


def _archived(step: StepContext, current: HealingStatus) -> bool:
    seen = step.observation.archive
    return isinstance(seen, Archive) and seen.run_id == current.run_id and seen.entities >= current.entities


def _standing_since(step: StepContext) -> datetime | None:
    """Return since when the offset in ``/migration`` has not grown while the log has; None if that is not known."""
    zookeeper, quorum, active = (
        step.observation.zookeeper,
        step.observation.quorum,
        step.observation.active_controller,
    )
    offset = step.status.migration_offset
    if (
        not isinstance(zookeeper, ZooKeeperState)
        or not isinstance(zookeeper.migration, MigrationZnode)
        or active is None
    ):
        return None
    if (
        isinstance(quorum, Unobserved)
        or offset is None
        or int(offset.offset) != zookeeper.migration.kraft_metadata_offset
    ):
        return None
    claimed = zookeeper.controller is not None and zookeeper.controller.broker_id in step.spec.controllers.node_ids
    behind = _behind(quorum, zookeeper.migration)
    return offset.standing_since if claimed and behind > STANDING_RECORDS else None


def _behind(quorum: QuorumState, znode: MigrationZnode) -> int:
    return quorum.high_watermark - znode.kraft_metadata_offset


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
