"""RollingBack and RolledBack: returns the cluster to ZooKeeper from every phase before Finalizing. Pure.

The order follows measurements on Kafka 3.9:

1. Restart KRaft-mode brokers in migration mode.
2. Verify that ZooKeeper has every change.
3. Isolate the KRaft controllers: restart all of them on a port that no broker knows.
   Changes made until then reach ZooKeeper, and no further one is accepted. Without this, a controller acknowledges
   changes until it dies that ZooKeeper never gets (``tests/integration/test_rollback_under_writes.py``).
4. Stop the KRaft controllers and remove their claim from ZooKeeper.
5. Wait until every broker names the same ZooKeeper-mode broker as controller.
   A broker that still names a KRaft controller hangs in its controlled shutdown for minutes.
6. Restart the brokers without migration mode and release their StatefulSets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from kraftbridge.models.conditions import ConditionType, Reason
from kraftbridge.models.decision import (
    EventReason,
    EventType,
    ReleaseStatefulSet,
    RemoveControllerClaim,
    RestartPod,
    RestoreStatefulSet,
    StopControllers,
)
from kraftbridge.models.observation import (
    MigrationZnode,
    PodState,
    QuorumState,
    StatefulSetState,
    Unobserved,
    ZooKeeperState,
)
from kraftbridge.models.phase import FORWARD, LAST_PHASE, BrokerMode, ControllerMode, Phase, Target
from kraftbridge.models.report import Profile
from kraftbridge.models.spec import ControllerVolumes, OnDeletion
from kraftbridge.models.status import (
    ControllersStatus,
    MigrationStatus,
    Operation,
    OperationKind,
    RollbackStatus,
    WaitKind,
)
from kraftbridge.phases import canary, gates, healing, history, lost_quorum, observed, originals, upgrading, verifying
from kraftbridge.phases.draft import SLOW, Draft, Enter, Outcome, StepContext, Wait
from kraftbridge.phases.nodes import batching, brokers, converging, deadlines, restarts, rolls
from kraftbridge.phases.nodes import controllers as controller_restarts
from kraftbridge.phases.nodes.converging import Pace
from kraftbridge.phases.nodes.deadlines import PastDeadline

CONTROLLER_SETTLED_FOR = batching.SETTLED_FOR
"""Measured on Kafka 3.9: controlled shutdowns were prompt 5 s after every broker named the new controller."""

GIVE_UP_RESTART_AFTER = timedelta(seconds=120)

BEFORE_CONTROLLERS_STOP = "before-controllers-stop"

STOP_REPEATED_FOR = timedelta(seconds=20)
"""How long a decision to stop the controllers is repeated; after that it is made again from the current observation."""
ISOLATED_FOR = timedelta(seconds=120)
"""Deadline for isolated controllers to mirror the log's end. They take 12 s, or 40 s on a busy machine.
Past it they return to the brokers, and the stop is tried anew."""
ISOLATED_AGAIN_AFTER = timedelta(seconds=300)
"""Pause after an isolation that was given up: during each one the cluster has no controller."""
KRAFT_GRACE_SECONDS = 20
"""Grace period of KRaft brokers without a quorum. Their controlled shutdown waits for a controller that does not answer
(``BrokerServer.shutdown``: five minutes)."""
HASTE = timedelta(seconds=0.1)
"""When to reconcile again while there is no controller."""


def without_controller(status: MigrationStatus) -> bool:
    """Return whether the KRaft controllers were stopped and no broker was observed to be controller yet."""
    rollback = _under_way(status)
    return rollback is not None and rollback.controllers_stopped_at is not None and rollback.controller_back_at is None


def without_service(status: MigrationStatus) -> bool:
    """Return whether the KRaft controllers are isolated or stopped and no broker was observed to be controller yet."""
    return is_isolating(status) or without_controller(status)


def is_isolating(status: MigrationStatus) -> bool:
    """Return whether the KRaft controllers are isolated, or are about to be, and were not asked to stop yet."""
    rollback = _under_way(status)
    return rollback is not None and rollback.isolated_at is not None and rollback.controllers_stopped_at is None


def _under_way(status: MigrationStatus) -> RollbackStatus | None:
    """Return the record of the rollback that this attempt is in, None in another phase or while there is none."""
    return observed.of_attempt(status, status.rollback) if status.phase is Phase.ROLLING_BACK else None


def run_rolling_back_phase(draft: Draft) -> Outcome:
    """Take the next step of the rollback. The cluster's state decides which one, so any phase may have come before."""
    verifying.give_up_all_but(draft, Phase.ROLLING_BACK)
    zookeeper = draft.observation.zookeeper
    sets = draft.stateful_sets()
    if isinstance(zookeeper, Unobserved):
        return Wait(str(zookeeper))
    if isinstance(sets, Unobserved):
        return Wait(str(sets))
    if _kraft_leads(draft):
        rolls.give_up_change(draft)
    return (
        _restore_controllers_in_trouble(draft)
        or _finish_or_drop_restart(draft)
        or _ensure_originals(draft)
        or _take_brokers_from_kraft(draft)
        or _ensure_controllers_stopped(draft, zookeeper)
        or _remove_claim(draft, zookeeper)
        or _take_all_from_kraft(draft)
        or _controller_settled(draft)
        or _move_brokers_to(draft, BrokerMode.ZOOKEEPER)
        or _release(draft, sets)
        or _conclude_rollback(draft)
    )


def _kraft_leads(step: StepContext) -> bool:
    return not gates.controllers_gone(step) and not without_controller(step.status)


def _restore_controllers_in_trouble(draft: Draft) -> Wait | None:
    if not _kraft_leads(draft) or is_isolating(draft.status):
        return None
    return rolls.reconcile_controllers_in_trouble(draft)


def _ensure_originals(draft: Draft) -> Wait | None:
    """Return the wait while no broker can leave migration mode, so that the KRaft controllers go on leading."""
    _forget_returned_broker(draft)
    blocked = originals.blocked(draft)
    if blocked is None or not _kraft_leads(draft):
        return None
    return end_isolation(draft) or blocked


def _take_brokers_from_kraft(draft: Draft) -> Wait | None:
    if not brokers.some_on_kraft(draft) or lost_quorum.may_go_back_without(draft):
        return None
    return _move_brokers_to(draft, BrokerMode.MIGRATION)


def _ensure_controllers_stopped(draft: Draft, zookeeper: ZooKeeperState) -> Wait | None:
    if gates.controllers_gone(draft):
        return None
    return _repeat_stop(draft) or _stop_controllers(draft, zookeeper)


def _release(draft: Draft, sets: tuple[StatefulSetState, ...]) -> Wait | None:
    """Release the StatefulSets one by one; return None once all are released."""
    held = [stateful_set for stateful_set in sets if stateful_set.lock == draft.identity.lock]
    if not held:
        return None
    name = held[0].name
    # A restart past its deadline is not followed any more, so check here that its broker is back.
    if down := [reason for stateful_set in held for reason in observed.down(stateful_set.pods)]:
        return Wait(f"before StatefulSet {name} is released: {down[0]}")
    draft.act(ReleaseStatefulSet(name))
    return Wait(f"StatefulSet {name} is being released")


def _conclude_rollback(draft: Draft) -> Enter:
    draft.update(changed_fields=(), originals=(), templates=(), given_up=None)
    return Enter(Phase.ROLLED_BACK)


def _move_brokers_to(draft: Draft, mode: BrokerMode) -> Wait | None:
    """Bring every broker back to ``mode``, one at a time."""
    if mode is BrokerMode.ZOOKEEPER:
        return _restore(draft) or _restart_next_broker(draft, mode)
    return rolls.configure_brokers(draft, mode) or _restart_next_broker(draft, mode)


def _restart_next_broker(draft: Draft, mode: BrokerMode) -> Wait | None:
    roll = brokers.roll_of(draft)
    if isinstance(roll, Unobserved):
        return Wait(str(roll))
    if (lost := brokers.lost_broker(draft)) is not None:
        return rolls.restart_lost_broker(draft, *lost)
    if not roll.pending:
        return None
    if (broken := brokers.broken_broker(draft, roll, mode)) is not None:
        stateful_set, pod = broken
        return _controller_news(draft, mode, pod) or rolls.restart_broker(draft, pod, stateful_set)
    return (
        restarts.finish_hold(draft)
        or gates.restart_gate(draft, quorum=mode is BrokerMode.MIGRATION)
        or observed.preceded("before the next broker restarts", _ensure_controller_serves(draft, mode))
        or restarts.paused(draft)
        or rolls.restart_batch(draft, roll)
    )


def _ensure_controller_serves(draft: Draft, mode: BrokerMode) -> Wait | None:
    """Return None while the controller that a broker needs in ``mode`` does its part."""
    if mode is BrokerMode.ZOOKEEPER:
        return _controller_agreed(draft)
    # A broker in migration mode is in ZooKeeper mode: it reads its metadata from ZooKeeper.
    if draft.spec.rollback.accept_loss:
        return None
    return healing.ensure_mirror_moves(draft)


def _finish_or_drop_restart(draft: Draft) -> Wait | None:
    """Follow a restart in progress; drop it past its deadline, because its configuration may prevent the start."""
    operation = draft.status.operation
    if operation is not None and operation.kind is OperationKind.RESTART_CONTROLLER:
        return _finish_or_drop_failover(draft, operation)
    waiting = rolls.finish_broker_restart(draft)
    followed = draft.status.operation
    # Once a restart is cancelled, `deadlines` judges the one that was given up before it, and that one stays on record.
    if waiting is None or followed is None or deadlines.action_due(draft) is not PastDeadline.GO_ON:
        return waiting
    draft.update(operation=None, batch=None, given_up=followed)
    return None


def _finish_or_drop_failover(draft: Draft, operation: Operation) -> Wait | None:
    """Follow only a failover that heals ZooKeeper: the controllers are removed anyway."""
    if draft.status.healing is not None and not gates.controllers_gone(draft):
        waiting = healing.finish_failover(draft)
        if waiting is None or draft.now - operation.started_at <= GIVE_UP_RESTART_AFTER:
            return waiting
    draft.update(operation=None)
    return None


def _forget_returned_broker(draft: Draft) -> None:
    """Forget a restart that was given up once its broker is back. Until then `deadlines` keeps the rollback stalled."""
    given_up = draft.status.given_up
    broker = brokers.broker_named(draft, given_up.pod) if given_up is not None else None
    if broker is None or broker[1].deleting or not broker[1].ready:
        return
    mode = BrokerMode.of(broker[0].configuration)
    if not brokers.registration_blockers(draft, mode) and not gates.cluster_blockers(draft):
        draft.update(given_up=None)


def _restore(draft: Draft) -> Wait | None:
    """Restore the StatefulSets' original configuration, one by one; return None once all of them have it."""
    sets = draft.stateful_sets()
    if isinstance(sets, Unobserved):
        return Wait(str(sets))
    for stateful_set in sets:
        if stateful_set.overlay:
            return originals.blocked(draft) or _restore_one(draft, stateful_set.name)
        if not stateful_set.observed:
            return rolls.unobserved_revision(stateful_set)
    return None


def _restore_one(draft: Draft, stateful_set: str) -> Wait:
    draft.act(RestoreStatefulSet(stateful_set))
    return Wait(f"StatefulSet {stateful_set}: its original configuration is being restored")


def _take_all_from_kraft(draft: Draft) -> Wait | None:
    """Restart every broker in KRaft mode at once, without the controllers; return None once none is left.

    One at a time, those that still run KRaft would go on leading partitions for which ZooKeeper's controller has chosen
    another leader.
    """
    if not brokers.some_on_kraft(draft) or not lost_quorum.may_go_back_without(draft):
        return None
    return _restore(draft) or _restart_all_on_kraft(draft)


def _restart_all_on_kraft(draft: Draft) -> Wait:
    pods = [pod for _, pod in observed.brokers_of(draft) if pod.configuration.startswith(BrokerMode.KRAFT)]
    for pod in pods:
        if not pod.deleting:
            node_id = draft.status.broker_ids.get(pod.name, -1)
            draft.act(RestartPod(pod.name, pod.uid, node_id, KRAFT_GRACE_SECONDS, ready=False))
    names = ", ".join(pod.name for pod in pods)
    return _soon(f"all brokers in KRaft mode restart in ZooKeeper mode at once: {names}")


def _soon(message: str) -> Wait:
    """Return the wait of a cluster that has no controller."""
    return Wait(message, requeue_after=HASTE)


def _repeat_stop(draft: Draft) -> Wait | None:
    """Repeat a recorded stop of the controllers.

    Return None when none is recorded. One that is older than `STOP_REPEATED_FOR` is forgotten.
    """
    controllers = draft.status.controllers
    workload = draft.observation.controllers
    if controllers is None or not without_controller(draft.status):
        return None
    if isinstance(workload, Unobserved):
        return _soon(f"the controllers are stopping: {workload}")
    stateful_set = workload.stateful_set
    if stateful_set is None:
        draft.act(_stop(draft, controllers))
        names = ", ".join(pod.name for pod in workload.left)
        return _soon(
            f"the controllers are stopping: pod {names} is left. A pod on a lost node runs until its Node is deleted "
            "or tainted node.kubernetes.io/out-of-service"
        )
    if not stateful_set.deleting:
        if observed.age(draft, observed.rollback_record(draft.status).controllers_stopped_at) > STOP_REPEATED_FOR:
            return _forget_stop(draft, controllers)
        draft.act(_stop(draft, controllers))
    return _soon(f"the controllers are stopping{observed.because(draft.failure())}")


def _forget_stop(draft: Draft, controllers: ControllersStatus) -> Wait:
    """Forget a stop that did not happen. Controllers that are isolated stay so, and are followed from now on."""
    record = observed.rollback_record(draft.status).model_copy(update={"controllers_stopped_at": None})
    if controllers.mode is ControllerMode.ISOLATED:
        # Nothing was added to the log meanwhile, and the time in which they must mirror it begins again.
        record = record.model_copy(update={"isolated_at": draft.now})
    draft.update(rollback=record)
    return _soon(f"the controllers were not stopped in {STOP_REPEATED_FOR.seconds} s; it is decided anew")


def _stop_controllers(draft: Draft, zookeeper: ZooKeeperState) -> Wait:
    """Stop the controllers once a verification shows that ZooKeeper has every change, or if nothing was taken over."""
    controllers = draft.status.controllers
    if controllers is None:
        return Wait("there are no controllers to stop")
    if is_isolating(draft.status) and not draft.spec.rollback.accept_loss:
        return _follow_isolation(draft, controllers) or _stop_now(draft, controllers)
    return (
        _end_isolation(draft, controllers)
        or _ensure_nothing_is_lost(draft, controllers, zookeeper)
        or restarts.paused(draft)
        or _stop_now(draft, controllers)
    )


def _ensure_nothing_is_lost(draft: Draft, controllers: ControllersStatus, zookeeper: ZooKeeperState) -> Wait | None:
    """Return None when the controllers may stop at once: nothing was taken over, or the user accepts the loss."""
    migration = observed.migration_znode(draft)
    if draft.spec.rollback.accept_loss:
        return None
    if history.copied(draft.status) or (migration is not None and migration.kraft_metadata_offset >= 0):
        return _ensure_isolated(draft, controllers, zookeeper)
    if history.claimed(draft.status) or observed.claim_epoch(zookeeper) >= 0:
        hint = "spec.rollback.acceptLoss=true does not wait: KRaft accepts no writes before the copy is complete"
        return (
            healing.fail_over_stuck_mirror(draft)
            # The copy begins once every voter is registered (KIP-866).
            # A voter that lost its registration does not retry.
            or controller_restarts.restart_unregistered_controller(draft)
            or Wait(f"the copy to KRaft is not complete; {hint}")
        )
    if isinstance(zookeeper.migration, Unobserved):
        return Wait(f"the state of the takeover is unknown: {zookeeper.migration}")
    return None


def _ensure_isolated(draft: Draft, controllers: ControllersStatus, zookeeper: ZooKeeperState) -> Wait:
    """Isolate the controllers once ZooKeeper mirrors the log and a verification passed."""
    removing = canary.remove(draft)
    mirror = observed.preceded(
        "ZooKeeper must have every change before the controllers stop", healing.ensure_mirror_moves(draft)
    )
    return (
        (mirror and replace(mirror, message=f"{mirror.message}{_LOSS_HINT}"))
        or observed.preceded("before the controllers stop", removing)
        or verifying.ensure_verdict(draft, Profile.DUAL_WRITE, Phase.ROLLING_BACK, BEFORE_CONTROLLERS_STOP)
        or _lacking(draft, zookeeper)
        or _isolation_pause(draft)
        or restarts.paused(draft)
        or _begin_isolation(draft, controllers)
    )


_LOSS_HINT = "; spec.rollback.acceptLoss=true rolls back without the changes that ZooKeeper lacks"


def _lacking(step: StepContext, zookeeper: ZooKeeperState) -> Wait | None:
    blockers = _pending_in_zookeeper(zookeeper) or _unmirrored(step)
    if blockers:
        return _soon(f"{blockers[0]}{_LOSS_HINT}")
    return None


def _isolation_pause(step: StepContext) -> Wait | None:
    """Return the wait before controllers are isolated again, None when it is over.

    The rollback is stalled meanwhile.
    """
    rollback = observed.rollback_record(step.status)
    if rollback.isolation_given_up_at is None:
        return None
    again = rollback.isolation_given_up_at + ISOLATED_AGAIN_AFTER
    if step.now >= again:
        return None
    message = (
        f"The isolated controllers did not mirror the end of the log in {ISOLATED_FOR.seconds} s "
        f"({rollback.isolations_given_up} time(s)), and serve the brokers again. "
        "Look at the logs of the controllers' pods and at ZooKeeper. "
        f"The rollback isolates them again at {again:%H:%M:%S} UTC; "
        "spec.rollback.acceptLoss=true rolls back without the changes that ZooKeeper lacks"
    )
    return Wait(message, reason=Reason.DEADLINE_EXCEEDED, stalled=True, requeue_after=SLOW)


def _begin_isolation(draft: Draft, controllers: ControllersStatus) -> Wait:
    """Record that the controllers restart where no broker reaches them.

    From here on the cluster has no controller until a broker becomes controller.
    """
    given_up = observed.rollback_record(draft.status).isolations_given_up
    draft.update(
        rollback=RollbackStatus(attempt=draft.status.attempt, isolated_at=draft.now, isolations_given_up=given_up),
        controllers=controllers.model_copy(update={"mode": ControllerMode.ISOLATED}),
    )
    converging.configure_controllers(draft)
    return _soon("the controllers are being isolated from the brokers, so that nothing is added to the log")


def _follow_isolation(draft: Draft, controllers: ControllersStatus) -> Wait | None:
    """Follow the controllers' restart in isolation.

    Return None once ZooKeeper has everything that the brokers were ever acknowledged.
    """
    if observed.age(draft, observed.rollback_record(draft.status).isolated_at) > ISOLATED_FOR:
        words = (
            f"The isolated controllers did not mirror the end of the log in {ISOLATED_FOR.seconds} s; "
            "they return to the brokers"
        )
        return _give_up_isolation(draft, controllers, words)
    return _restart_isolated(draft, controllers) or _follow_mirroring(draft)


def _follow_mirroring(draft: Draft) -> Wait | None:
    """Return None once isolated controllers have written the end of the log to ZooKeeper."""
    quorum = draft.observation.quorum
    migration = observed.migration_znode(draft)
    rollback = observed.rollback_record(draft.status)
    if isinstance(quorum, Unobserved):
        return _soon(f"the isolated controllers elect a leader: {quorum}")
    if quorum.high_watermark <= 0:
        return _soon("the isolated controllers elect a leader: nothing is committed yet")
    if not rollback.isolated_high_watermark:
        # A new leader has a high watermark once it has committed a record of its epoch,
        # and with it every record before (KIP-595).
        rollback = rollback.model_copy(update={"isolated_high_watermark": str(quorum.high_watermark)})
        draft.update(rollback=rollback)
    if migration is None:
        return _soon("/migration cannot be read")
    wanted = int(rollback.isolated_high_watermark) - 1
    mirrored = migration.kraft_metadata_offset
    if mirrored >= wanted:
        return None
    return _soon(f"the isolated controllers write the end of the log to ZooKeeper: {mirrored} of {wanted}")


def _give_up_isolation(draft: Draft, controllers: ControllersStatus, words: str) -> Wait:
    given_up = RollbackStatus(
        attempt=draft.status.attempt,
        isolation_given_up_at=draft.now,
        isolations_given_up=observed.rollback_record(draft.status).isolations_given_up + 1,
    )
    draft.update(rollback=given_up, controllers=controllers.model_copy(update={"mode": ControllerMode.MIGRATION}))
    draft.tell(EventReason.STALLED, words, EventType.WARNING)
    return _soon(words)


def end_isolation(draft: Draft) -> Wait | None:
    """Return isolated controllers to the brokers, because ZooKeeper cannot take over.

    Return None when none is isolated, or they were asked to stop.
    """
    controllers = draft.status.controllers
    if draft.status.phase is not Phase.ROLLING_BACK or controllers is None or without_controller(draft.status):
        return None
    if is_isolating(draft.status):
        words = "ZooKeeper contradicts the migration; the isolated controllers return to the brokers"
        return _give_up_isolation(draft, controllers, words)
    return _end_isolation(draft, controllers)


def _end_isolation(draft: Draft, controllers: ControllersStatus) -> Wait | None:
    """Return controllers whose isolation was given up to the port that the brokers know."""
    stateful_set = observed.controllers_set(draft)
    if stateful_set is None:
        return None
    if controllers.mode is ControllerMode.ISOLATED:
        # It is recorded when the stop is not to be verified (`acceptLoss`). Otherwise the record was lost.
        if is_isolating(draft.status):
            return None
        return _give_up_isolation(
            draft, controllers, "Nothing is known of the isolation; the controllers return to the brokers"
        )
    configurations = (stateful_set.configuration, *(pod.configuration for pod in stateful_set.pods))
    if not any(name.startswith(f"{ControllerMode.ISOLATED}-") for name in configurations):
        return None
    return _restart_all_controllers(draft)


def _restart_isolated(draft: Draft, controllers: ControllersStatus) -> Wait | None:
    """Isolate all controllers; return None once a majority is Ready.

    It holds every record that was ever committed (KIP-595).
    """
    if (waiting := _restart_all_controllers(draft)) is not None:
        return waiting
    ready = sum(not pod.down for pod in observed.controllers_pods(draft))
    if ready <= len(controllers.node_ids) // 2:
        return _soon("a majority of the isolated controllers is starting")
    return None


def _restart_all_controllers(draft: Draft) -> Wait | None:
    lack = converging.reconcile_controllers(draft, Pace.ALL)
    return None if lack is None else _soon(lack.words)


def _stop_now(draft: Draft, controllers: ControllersStatus) -> Wait:
    quorum = draft.observation.quorum
    migration = observed.migration_znode(draft)
    rollback = observed.rollback_record(draft.status)
    isolation = rollback if is_isolating(draft.status) else RollbackStatus(attempt=draft.status.attempt)
    # From here on the cluster has no controller until a broker becomes controller.
    draft.update(
        controller_agreed_since=None,
        rollback=RollbackStatus(
            attempt=draft.status.attempt,
            isolated_at=isolation.isolated_at,
            isolated_high_watermark=isolation.isolated_high_watermark,
            isolations_given_up=rollback.isolations_given_up,
            controllers_stopped_at=draft.now,
            high_watermark=str(quorum.high_watermark) if isinstance(quorum, QuorumState) else "",
            mirrored_offset=str(migration.kraft_metadata_offset) if migration is not None else "",
            # A stop may be repeated after the claim was removed: what is gone then is gone by us.
            claim_removed_at=rollback.claim_removed_at,
        ),
    )
    draft.act(_stop(draft, controllers))
    return _soon("the controllers are being stopped")


def remove_unused_quorum(draft: Draft) -> Wait | None:
    """Remove the controllers of a migration that is deleted before it has changed a broker.

    They lead nothing, so there is nothing to ask the user: without the resource nobody would remove them.
    With ``onDeletion: Finish`` the migration goes on if its target lies behind this phase.
    A removal that has begun ends first: nothing goes on with controllers whose stop is recorded.
    """
    status = draft.status
    spec = draft.spec
    record = observed.rollback_record(status)
    has_begun = record.controllers_stopped_at is not None
    if not draft.identity.deleting or status.phase is not Phase.PROVISIONING_QUORUM or status.changed_fields:
        return None
    last = LAST_PHASE[spec.target]
    leads_on = last in FORWARD and FORWARD.index(last) > FORWARD.index(status.phase)
    if spec.on_deletion is OnDeletion.FINISH and leads_on and not has_begun:
        return None
    if status.controllers is not None and not gates.controllers_gone(draft):
        if not has_begun:
            draft.update(rollback=record.model_copy(update={"controllers_stopped_at": draft.now}))
        draft.act(_stop(draft, status.controllers))
        return _soon(f"the KafkaMigration is deleted: its controllers are removed{observed.because(draft.failure())}")
    draft.update(controllers=None, rollback=None)
    return _soon("the KafkaMigration is deleted: nothing of it runs any more")


def _stop(step: StepContext, controllers: ControllersStatus) -> StopControllers:
    volumes = step.spec.rollback.controller_volumes is ControllerVolumes.REMOVE
    return StopControllers(controllers.name, controllers.node_ids, volumes)


def _pending_in_zookeeper(zookeeper: ZooKeeperState) -> list[str]:
    """Return the requests in ZooKeeper that the next ZooKeeper-mode controller would execute at once.

    A client made them before the takeover, or in ZooKeeper alone.
    """
    topics = zookeeper.pending_topic_deletions
    deletion = (
        f"ZooKeeper's next controller would delete topics: /admin/delete_topics names {', '.join(topics[:3])}; "
        "delete these znodes"
    )
    move = "ZooKeeper's next controller would move partitions: delete the znode /admin/reassign_partitions"
    return gates.failed((topics, deletion), (zookeeper.reassignments, move))


def _unmirrored(step: StepContext) -> list[str]:
    """Return why ZooKeeper lacks records of the log, apart from the last few NoOpRecords."""
    quorum = step.observation.quorum
    migration = observed.migration_znode(step)
    if isinstance(quorum, Unobserved):
        return [str(quorum)]
    if migration is None:
        return ["/migration cannot be read"]
    behind = unmirrored_records(quorum, migration)
    lack = f"ZooKeeper still lacks the last {behind} records of the log; stop clients that keep changing metadata"
    return gates.failed((behind > 0, lack))


def unmirrored_records(quorum: QuorumState, migration: MigrationZnode) -> int:
    """Return how many committed records of the log ZooKeeper lacks.

    NoOpRecords count as well: which records these are cannot be seen from here, and a topic of three partitions is
    four records. A mirror that keeps up reaches zero between two NoOpRecords, which are 500 ms apart
    (``metadata.max.idle.interval.ms``), also under writes (``tests/integration/test_rollback_under_writes.py``).
    """
    return quorum.high_watermark - 1 - migration.kraft_metadata_offset


def _note_controller(draft: Draft, zookeeper: ZooKeeperState) -> None:
    """Record when a broker is first observed to be controller again, and how long the cluster had no controller."""
    rollback = observed.rollback_record(draft.status)
    if zookeeper.controller is None or not without_controller(draft.status):
        return
    gone = draft.now - (rollback.isolated_at or rollback.controllers_stopped_at or draft.now)
    changes = {
        "controller_back_at": draft.now,
        "controller_unavailable_milliseconds": max(round(gone / timedelta(milliseconds=1)), 0),
    }
    draft.update(rollback=rollback.model_copy(update=changes))


def _remove_claim(draft: Draft, zookeeper: ZooKeeperState) -> Wait | None:
    """Remove what the KRaft controllers left in ZooKeeper; return None once nothing is left."""
    epoch = observed.claim_epoch(zookeeper)
    if zookeeper.migration is None and epoch < 0:
        _note_controller(draft, zookeeper)
        return None
    rollback = observed.rollback_record(draft.status)
    if rollback.claim_removed_at is None:
        draft.update(rollback=rollback.model_copy(update={"claim_removed_at": draft.now}))
    draft.act(RemoveControllerClaim(epoch))
    return _soon(f"the KRaft controllers' claim on /controller is being removed{observed.because(draft.failure())}")


def _controller_settled(step: StepContext) -> Wait | None:
    """Wait, before the first broker restarts, until every broker names the same broker as controller.

    From then on this is checked before each restart.
    """
    began = step.status.operation is not None or any(not pod.configuration for _, pod in observed.brokers_of(step))
    if began:
        return None
    return _controller_agreed(step)


def _controller_views(step: StepContext) -> Mapping[int, int | Unobserved] | Unobserved:
    """Return the controller that each broker names whose pod is Ready."""
    views = step.observation.controller_by_broker
    sets = step.stateful_sets()
    if isinstance(views, Unobserved):
        return views
    if isinstance(sets, Unobserved):
        return sets
    broker_ids = step.status.broker_ids
    # A broker that is down cannot hang in its shutdown; the restart gates check that it comes back.
    running = {broker_ids.get(pod.name, -1) for _, pod in observed.brokers_of(step) if pod.ready and not pod.deleting}
    asked = running & set(broker_ids.values())
    return {i: views.get(i, Unobserved(f"broker {i}", "it was not asked")) for i in asked}


def track_controller_views(draft: Draft) -> None:
    """Record since when every broker has named the same broker as controller."""
    if draft.status.phase is not Phase.ROLLING_BACK:
        return
    if _named_by_all(draft) is None:
        draft.update(controller_agreed_since=None)
    elif draft.status.controller_agreed_since is None:
        draft.update(controller_agreed_since=draft.now)


def _named_by_all(step: StepContext) -> int | None:
    """Return the broker that ``/controller`` and every running broker name as controller.

    None while they differ or one did not answer. Brokers that the KRaft controllers never reached still agree on the
    controller from before the takeover, which may not be the new one.
    """
    views = _controller_views(step)
    controller = observed.controller_znode(step)
    if isinstance(views, Unobserved) or controller is None:
        return None
    agree = set(views.values()) <= {controller.broker_id}
    if agree and controller.broker_id in step.status.broker_ids.values():
        return controller.broker_id
    return None


def _controller_agreed(step: StepContext) -> Wait | None:
    """Return the wait until every broker has named the same broker as controller for `CONTROLLER_SETTLED_FOR`.

    A broker whose cache still names a KRaft controller hangs in its controlled shutdown, measured for up to five
    minutes.
    """
    views = _controller_views(step)
    since = step.status.controller_agreed_since
    if isinstance(views, Unobserved):
        return Wait(str(views))
    named = _named_by_all(step)
    if named is None or since is None:
        controller = observed.controller_znode(step)
        elected = "no broker" if controller is None else f"broker {controller.broker_id}"
        return Wait(
            f"every broker must name the broker in ZooKeeper's /controller, {elected}; "
            f"they name {sorted(map(str, views.values()))}"
        )
    if step.now - since < CONTROLLER_SETTLED_FOR:
        return Wait(f"broker {named} is controller; every broker must name it for {CONTROLLER_SETTLED_FOR.seconds} s")
    return None


def _controller_news(step: StepContext, mode: BrokerMode, pod: PodState) -> Wait | None:
    """Wait before a running broker restarts that nobody lists.

    Its process hangs in its shutdown until it knows the new controller. The new controller tells every broker who is
    alive, which may also be all that this one lacks. A broker that it cannot tell is restarted.
    """
    if mode is not BrokerMode.ZOOKEEPER or not pod.ready:
        return None
    if observed.age(step, observed.rollback_record(step.status).controller_back_at) > GIVE_UP_RESTART_AFTER:
        return None
    return _controller_agreed(step)


_MILESTONES = (
    ConditionType.QUORUM_READY,
    ConditionType.BROKERS_IN_MIGRATION_MODE,
    ConditionType.METADATA_MIGRATED,
    ConditionType.BROKERS_ON_KRAFT,
)


def run_rolled_back_phase(draft: Draft) -> Outcome:
    """Wait for another target, which starts the next attempt with new volumes."""
    if draft.spec.target is Target.ZOOKEEPER:
        return Wait(
            "Rolled back: the cluster runs on ZooKeeper, which holds nothing of the migration any more"
            f"{upgrading.left_to_do(draft)}",
            WaitKind.USER,
            reason=Reason.ROLLED_BACK,
            requeue_after=SLOW,
        )
    draft.update(
        attempt=draft.status.attempt + 1,
        controllers=None,
        quorum=None,
        migration_offset=None,
        canary=None,
        verifications=(),
        controller_agreed_since=None,
        hold_until=None,
        healing=None,
        zookeeper_history=None,
        kept_copy=None,
        keeping=None,
        lost_quorum=None,
        restoration=None,
        quorum_restart=None,
        killed_broker=None,
        broker_upgrade=None,
    )
    for kind in _MILESTONES:
        draft.set_condition(kind, "False", Reason.NOT_STARTED, "Not reached in this attempt yet")
    return Enter(Phase.PREFLIGHT)
