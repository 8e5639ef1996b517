"""Guards: conditions that hold in every phase in which the migration owns StatefulSets. Pure.

`machine` calls `enforce` before the phase. It repairs what it can, and returns a wait if the phase must not run.
"""

from __future__ import annotations

from datetime import timedelta

from kraftbridge.models.conditions import Reason
from kraftbridge.models.decision import (
    EventReason,
    EventType,
    HoldLease,
    ReleaseLease,
)
from kraftbridge.models.observation import (
    LEASE_RENEWED_AFTER_SECONDS,
    LEASE_SECONDS,
    ClusterState,
    ControllersWorkload,
    NodeFeatures,
    PodState,
    StatefulSetState,
    Unobserved,
    ZooKeeperState,
)
from kraftbridge.models.phase import ControllerMode, Phase, Target, ZkMigrationState
from kraftbridge.models.spec import ConfigStyle, MigrationSpec, OnDeletion
from kraftbridge.models.status import MigrationStatus, WaitKind
from kraftbridge.phases import belongings, expired, history, kafka4_leg, lost_quorum, originals, rollback, upgrading
from kraftbridge.phases.draft import SLOW, Draft, Identity, Migration, StepContext, Wait
from kraftbridge.phases.nodes import converging, restarts, rolls


def enforce(draft: Draft) -> Wait | None:
    """Return a wait if something forbids to continue.

    That is a lost channel, another holder, a controller without the migration flag, another ZooKeeper,
    or an unknown broker.
    """
    if (waiting := _without_channel(draft) or _missing_record(draft)) is not None:
        return waiting
    if draft.status.phase.at_rest and not _rolls_controllers(draft):
        _release_leases(draft)
        return lost_quorum.enforce(draft) or belongings.restore(draft) or expired.enforce(draft)
    if (waiting := _hold_leases(draft)) is not None:
        return waiting
    originals.keep(draft)
    return (
        _restore_migration_flag(draft)
        or lost_quorum.enforce(draft)
        or belongings.restore(draft)
        or _refuse_other_zookeeper(draft)
        or expired.enforce(draft)
        or _strangers(draft)
    )


def _missing_record(step: StepContext) -> Wait | None:
    return upgrading.missing_record(step) or kafka4_leg.missing_record(step)


def _refuse_other_zookeeper(draft: Draft) -> Wait | None:
    """Change nothing while ZooKeeper contradicts what this attempt has read.

    Isolated controllers return to the brokers, which have no other controller.
    """
    found = history.contradicts(draft)
    is_right_again = found is not None and found.confirmed_at is not None and not found.what
    if is_right_again and draft.status.phase is not Phase.ROLLING_BACK:
        # A configuration with which a voter does not start is taken back; the comparison needs no such voter.
        following = rolls.follow_changed_controller(draft)
        if following is not None:
            return following
    if (waiting := history.enforce(draft)) is None:
        return None
    found = history.contradicts(draft)
    confirmed = found is not None and found.confirmed_at is not None and bool(found.what)
    return (rollback.end_isolation(draft) if confirmed else None) or waiting


def _without_channel(step: StepContext) -> Wait | None:
    """Refuse to go on without the channel that preflight recorded.

    With ``configStyle: Auto`` nothing else says how the brokers are configured.
    """
    phase = step.status.phase
    is_open = step.spec.brokers.config_style is ConfigStyle.AUTO
    if not is_open or step.status.channel is not None or phase.row.is_open:
        return None
    return Wait(
        "spec.brokers.configStyle is Auto, and status.channel, which preflight recorded, is gone: "
        "the operator does not guess how the brokers are configured. "
        "Restore status.channel with kubectl patch --subresource=status; "
        "the pod templates show the channel (docs/dry-start.md)",
        WaitKind.USER,
        Reason.UNKNOWN,
        stalled=True,
        requeue_after=SLOW,
    )


# ---------------------------------------------------------------------------------------------- Leases


def _hold_leases(draft: Draft) -> Wait | None:
    """Hold a Lease on every StatefulSet from before the first change until the release.

    A rollback that never changed a StatefulSet needs no Lease: it removes only its own controllers.
    """
    sets = _sets_to_hold(draft)
    if isinstance(sets, Unobserved):
        return Wait(str(sets))
    if (
        draft.status.phase is Phase.ROLLING_BACK
        and not draft.status.changed_fields
        and not any(s.lock == draft.identity.lock for s in sets)
    ):
        return None
    waiting: Wait | None = None
    for item in sets:
        lease = item.lease
        if isinstance(lease, Unobserved):
            return Wait(str(lease))
        if lease.held_by_another:
            return _held_by_another(item, lease.holder, lease.age_seconds)
        if lease.ours and lease.age_seconds < LEASE_RENEWED_AFTER_SECONDS:
            continue
        draft.act(HoldLease(item.name, lease.resource_version))
        if not lease.ours or lease.age_seconds >= LEASE_SECONDS:
            after = (
                f", which {lease.holder} did not renew for {lease.age_seconds:.0f} s"
                if lease.holder and not lease.ours
                else ""
            )
            waiting = Wait(f"the Lease on StatefulSet {item.name} is being taken{after}")
    return waiting


def _sets_to_hold(step: StepContext) -> tuple[StatefulSetState, ...] | Unobserved:
    """Return the StatefulSets on which Leases are held; once they were given back, those that their owner has kept."""
    if not step.status.phase.row.gives_back or step.status.given_back_at is None:
        return step.stateful_sets()
    unknown = (item for item in step.observation.stateful_sets if isinstance(item, Unobserved) and not item.absent)
    sets = tuple(item for item in step.observation.stateful_sets if not isinstance(item, Unobserved))
    return next(unknown, sets)


def _rolls_controllers(step: StepContext) -> bool:
    """Return whether nodes restart at a rest, too: controllers are changed or restored."""
    controllers = step.status.controllers
    changing = controllers is not None and (controllers.change is not None or step.status.operation is not None)
    return changing or lost_quorum.is_under_way(step.status) or expired.is_under_way(step.status)


def _held_by_another(item: StatefulSetState, holder: str, age_seconds: float) -> Wait:
    return Wait(
        f"StatefulSet {item.name} belongs to another operator or migration: "
        f"{holder} holds Lease kraftbridge-{item.name}, last renewed {age_seconds:.0f} s ago. "
        "Delete that migration or stop that operator; this migration takes the Lease over once it has expired",
        reason=Reason.LOCKED,
        stalled=True,
        requeue_after=SLOW,
    )


def _release_leases(draft: Draft) -> None:
    sets = _sets_to_hold(draft)
    if isinstance(sets, Unobserved):
        return
    for item in sets:
        if not isinstance(item.lease, Unobserved) and item.lease.ours and item.lock != draft.identity.lock:
            draft.act(ReleaseLease(item.name))


# -------------------------------------------------------------------------------------- the migration flag


def _restore_migration_flag(draft: Draft) -> Wait | None:
    """Restore ``zookeeper.metadata.migration.enable`` on controllers that lost it.

    The first controller that becomes active without it ends the migration.
    ``ActivationRecordsGenerator``: "Completing the ZK migration since this controller was configured with
    'zookeeper.metadata.migration.enable' set to 'false'".
    That record cannot be undone (KIP-866).
    """
    workload = draft.observation.controllers
    status = draft.status.controllers
    if not draft.status.phase.row.migrates or status is None:
        return None
    if isinstance(workload, Unobserved) or workload.stateful_set is None or workload.stateful_set.deleting:
        return None
    if ended := _unexpected_end(draft):
        return _raise_alarm(draft, ended)
    stateful_set = workload.stateful_set
    lost = _lost_in_objects(stateful_set, workload)
    if lost:
        mode = status.mode if status.mode.migrates else ControllerMode.MIGRATION
        converging.configure_controllers(draft, mode=mode)
        return _raise_alarm(draft, f"{lost} lost the migration flag; it is being restored")
    flagless = _flagless(draft, stateful_set)
    if not flagless:
        return None
    pod = flagless[0]
    words = (
        f"controller {pod.ordinal} (pod {pod.name}) runs without zookeeper.metadata.migration.enable "
        "and would finalize the migration if it became active"
    )
    others = sum(p.ready and not p.deleting for p in stateful_set.pods if p.name != pod.name)
    if others <= len(status.node_ids) // 2 and len(status.node_ids) > 1:
        return _raise_alarm(
            draft, f"{words}; it is restarted once the other controllers are a majority ({others} are Ready)"
        )
    restarts.restart_controllers(draft, [pod], restarts.CONTROLLER_GRACE_SECONDS)
    return _raise_alarm(draft, f"{words}; it is being restarted with the flag")


def _unexpected_end(step: StepContext) -> str:
    """Return the controllers that report an ended migration, ``""`` when none does."""
    said = [
        i
        for i, m in sorted(step.observation.metrics.items())
        if not isinstance(m, Unobserved) and m.zk_migration_state is ZkMigrationState.POST_MIGRATION
    ]
    if not said:
        return ""
    return (
        f"controller {', '.join(map(str, said))} says that the migration has ended (ZkMigrationState POST_MIGRATION), "
        "which was never asked for: ZooKeeper is not written any more and there is no way back. "
        "Nothing is changed until you decide; see docs/runbooks/KraftbridgeMigrationStalled.md"
    )


def _lost_in_objects(stateful_set: StatefulSetState, workload: ControllersWorkload) -> str:
    if not stateful_set.configuration.startswith(tuple(f"{mode}-" for mode in ControllerMode if mode.migrates)):
        writer = f" (last written by {stateful_set.last_writer})" if stateful_set.last_writer else ""
        return f"the pod template of StatefulSet {stateful_set.name}{writer}"
    if workload.migration_flag is False:
        return f"the ConfigMap of StatefulSet {stateful_set.name}{workload.config_writer}"
    return ""


def _flagless(step: StepContext, stateful_set: StatefulSetState) -> list[PodState]:
    """Return the pods whose controller reports that it is not ready to migrate (ApiVersions, KIP-866)."""
    features = step.observation.features
    if isinstance(features, Unobserved):
        return []
    # An answer from before the pod's restart does not count.
    settled = {p.ordinal: p for p in stateful_set.pods if p.ready_since is not None and step.now - p.ready_since > SLOW}
    without = {i for i, f in features.items() if isinstance(f, NodeFeatures) and not f.zk_migration_ready}
    return [settled[i] for i in sorted(without & settled.keys())]


def _raise_alarm(draft: Draft, message: str) -> Wait:
    known = next((c for c in draft.status.conditions if c.reason is Reason.FLAG_LOST), None)
    if known is None or known.message != message:
        draft.tell(EventReason.ALARM, message, EventType.WARNING)
    return Wait(message, reason=Reason.FLAG_LOST, stalled=True, requeue_after=timedelta(seconds=0.5))


# ------------------------------------------------------------------------------------------- strangers


def _strangers(step: StepContext) -> Wait | None:
    """Find brokers that joined since preflight: the KRaft controller waits for them before the copy (KIP-866)."""
    phase = step.status.phase
    cluster = step.observation.cluster
    zookeeper = step.observation.zookeeper
    on_its_way = phase.row.forward and phase.reversible and phase is not Phase.PROVISIONING_QUORUM
    if not on_its_way or step.status.operation is not None:
        return None
    if step.spec.target is Target.ZOOKEEPER:
        return None
    known = set(step.status.broker_ids.values())
    in_zookeeper = {b.id: b.hosts for b in zookeeper.brokers} if isinstance(zookeeper, ZooKeeperState) else {}
    seen = set(in_zookeeper) | (set(cluster.brokers) if isinstance(cluster, ClusterState) else set())
    strangers = sorted(seen - known)
    if not strangers:
        return None
    named = ", ".join(f"{i} ({', '.join(in_zookeeper[i])})" if in_zookeeper.get(i) else str(i) for i in strangers)
    waits = (
        "; the KRaft controller waits for it until it is in migration mode (KIP-866)"
        if phase is Phase.TAKING_OVER
        else ""
    )
    return Wait(
        f"broker {named} joined after preflight and does not belong to this migration{waits}. "
        "Stop it and move its partitions, or roll back (spec.target ZooKeeper) and start again with "
        "its StatefulSet in spec.brokers.statefulSets",
        reason=Reason.STRANGER,
        stalled=True,
        requeue_after=SLOW,
    )


# -------------------------------------------------------------------------------------------- deletion


def effective_spec(migration: Migration) -> MigrationSpec:
    """Return the user's spec, changed by ``spec.onDeletion`` once the resource is being deleted.

    Kubernetes cannot undo a deletion, so each value leads to a phase in which the resource may be removed.
    """
    spec = migration.spec
    if not _deletion_interrupts(migration.identity, migration.status):
        return spec
    match spec.on_deletion:
        case OnDeletion.FINISH:
            return spec
        case OnDeletion.ROLL_BACK:
            return spec.model_copy(update={"target": Target.ZOOKEEPER})
        case OnDeletion.BLOCK if spec.target is Target.ZOOKEEPER:
            return spec
        case OnDeletion.BLOCK:
            # Finish the current work; start nothing new.
            return spec.model_copy(update={"paused": True})


def blocked_deletion(step: StepContext) -> Wait | None:
    """Return the wait of a migration that is deleted half-way with ``onDeletion: Block``; None when its phase runs."""
    spec = step.spec
    phase = step.status.phase
    operation = step.status.operation
    if not _deletion_interrupts(step.identity, step.status):
        return None
    if spec.on_deletion is not OnDeletion.BLOCK or spec.target is Target.ZOOKEEPER or operation is not None:
        return None
    return Wait(
        f"Deletion waits in phase {phase}: this migration configures brokers and ZooKeeper. "
        "Set spec.target to ZooKeeper to go back, or spec.onDeletion to Finish to go on to spec.target KRaft; "
        "the resource goes by itself then. "
        "Annotation kraftbridge.dev/abandon=true lets it go at once and leaves everything as it is",
        WaitKind.USER,
        Reason.DELETION_WAITS,
        stalled=True,
        requeue_after=SLOW,
    )


def _deletion_interrupts(identity: Identity, status: MigrationStatus) -> bool:
    row = status.phase.row
    ends_by_itself = row.on_kafka4 or status.phase in (Phase.FINALIZING, Phase.ROLLING_BACK)
    return identity.deleting and not row.at_rest and not ends_by_itself
