"""RollingBack and RolledBack: returns the cluster to ZooKeeper from every phase before Finalizing. Pure.

The order follows measurements on Kafka 3.9:

1. Restart KRaft-mode brokers in migration mode.
2. Verify that ZooKeeper has every change.
3. Isolate the KRaft controllers: restart all of them on a port that no broker knows. Changes made until then reach ZooKeeper, and no further one
   is accepted. Without this, a controller acknowledges changes until it dies that ZooKeeper never gets
   (``tests/integration/test_rollback_under_writes.py``).
4. Stop the KRaft controllers and remove their claim from ZooKeeper.
5. Wait until every broker names the same ZooKeeper-mode broker as controller. A broker that still names a KRaft controller hangs in its controlled
   shutdown for minutes.
6. Restart the brokers without migration mode and release their StatefulSets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from kraftbridge.models.conditions import ConditionType, Reason
from kraftbridge.models.decision import (
    AT_ONCE_SECONDS,
    ApplyControllers,
    EventReason,
    EventType,
    ReleaseStatefulSet,
    RemoveControllerClaim,
    RestartPod,
    RestoreStatefulSet,
    StopControllers,
)
from kraftbridge.models.observation import ControllersWorkload, MigrationZnode, QuorumState, Unobserved, ZooKeeperState
from kraftbridge.models.phase import BrokerMode, ControllerMode, Phase, Target
from kraftbridge.models.report import Profile
from kraftbridge.models.spec import ControllerVolumes
from kraftbridge.models.status import ControllersStatus, MigrationStatus, OperationKind, RollbackStatus, WaitKind
from kraftbridge.phases import canary, gates, healing, history, lost_quorum, originals, verifying
from kraftbridge.phases.draft import Draft, Enter, Outcome, StepContext, Wait
from kraftbridge.phases.nodes import brokers, deadlines, restarts, rolls
from kraftbridge.phases.nodes import controllers as controller_restarts
from kraftbridge.phases.nodes.deadlines import PastDeadline

CONTROLLER_SETTLED_FOR = timedelta(seconds=5)
"""Measured on Kafka 3.9: controlled shutdowns were prompt 5 s after every broker named the new controller."""

GIVE_UP_RESTART_AFTER = timedelta(seconds=120)

BEFORE_CONTROLLERS_STOP = "before-controllers-stop"

STOP_REPEATED_FOR = timedelta(seconds=20)
"""How long a decision to stop the controllers is repeated; after that it is made again from the current observation."""
ISOLATED_FOR = timedelta(seconds=120)
"""Deadline for isolated controllers to mirror the log's end. They take 12 s, or 40 s on a busy machine; past it they return to the brokers, and the stop is tried anew."""
ISOLATED_AGAIN_AFTER = timedelta(seconds=300)
"""Pause after an isolation that was given up: during each one the cluster has no controller."""
KRAFT_GRACE_SECONDS = 20
"""Grace period of KRaft brokers without a quorum: their controlled shutdown waits for a controller that does not answer (``BrokerServer.shutdown``: five minutes)."""
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
    """Return the record of the rollback that this attempt is in; None in another phase, and for the record of an earlier attempt."""
    rollback = status.rollback
    if status.phase is not Phase.ROLLING_BACK or rollback is None or rollback.attempt != status.attempt:
        return None
    return rollback


def run_rolling_back_phase(draft: Draft) -> Outcome:
    """Take the next step of the rollback. The cluster's state decides which one, so any phase may have come before."""
    verifying.give_up_all_but(draft, Phase.ROLLING_BACK)
    zookeeper, sets = draft.observation.zookeeper, draft.stateful_sets()
    if isinstance(zookeeper, Unobserved) or isinstance(sets, Unobserved):
        return Wait(str(zookeeper if isinstance(zookeeper, Unobserved) else sets))
    if not gates.controllers_gone(draft) and not without_controller(draft.status):
        rolls.give_up_change(draft)
    if (waiting := _finish_or_drop_restart(draft)) is not None:
        return waiting
    _forget_returned_broker(draft)
    led_by_kraft = not gates.controllers_gone(draft) and not without_controller(draft.status)
    if led_by_kraft and (waiting := originals.blocked(draft)) is not None:
        # Without the original state no broker can leave migration mode, so the KRaft controllers go on leading.
        return end_isolation(draft) or waiting
    on_kraft, alone = brokers.some_on_kraft(draft), lost_quorum.may_go_back_without(draft)
    if on_kraft and not alone and (waiting := _move_brokers_to(draft, BrokerMode.MIGRATION)) is not None:
        return waiting
    if not gates.controllers_gone(draft):
        return _repeat_stop(draft) or _stop_controllers(draft, zookeeper)
    if zookeeper.migration is not None or (
        zookeeper.controller is not None and zookeeper.controller.kraft_controller_epoch >= 0
    ):
        return _remove_claim(draft, zookeeper)
    _note_controller(draft, zookeeper)
    if on_kraft and alone and (waiting := _take_all_from_kraft(draft)) is not None:
        return waiting
    if (waiting := _controller_settled(draft)) is not None:
        return waiting
    if (waiting := _move_brokers_to(draft, BrokerMode.ZOOKEEPER)) is not None:
        return waiting
    held = [s for s in sets if s.lock == draft.identity.lock]
    if held and (down := [p.down for s in held for p in s.pods if p.down]):
        # A restart past its deadline is not followed any more, so check here that its broker is back.
        return Wait(f"before StatefulSet {held[0].name} is released: {down[0]}")
    if held:
        draft.act(ReleaseStatefulSet(held[0].name))
        return Wait(f"StatefulSet {held[0].name} is being released")
    draft.update(changed_fields=(), originals=(), given_up=None)
    return Enter(Phase.ROLLED_BACK)


def _move_brokers_to(draft: Draft, mode: BrokerMode) -> Wait | None:
    """Bring every broker back to ``mode``, one at a time."""
    waiting = _restore(draft) if mode is BrokerMode.ZOOKEEPER else rolls.configure_brokers(draft, mode)
    if waiting is not None:
        return waiting
    roll = brokers.roll_of(draft)
    if isinstance(roll, Unobserved):
        return Wait(str(roll))
    if (lost := brokers.lost_broker(draft)) is not None:
        return rolls.restart_lost_broker(draft, *lost)
    if not roll.pending:
        return None
    if (broken := brokers.broken_broker(draft, roll, mode)) is not None:
        if mode is BrokerMode.ZOOKEEPER and broken[1].ready and (waiting := _controller_news(draft)) is not None:
            return waiting
        return rolls.restart_broker(draft, broken[1], broken[0])
    if (waiting := restarts.finish_hold(draft)) is not None:
        return waiting
    blockers = gates.restart_blockers(draft)
    if mode is BrokerMode.MIGRATION:
        blockers = blockers or gates.quorum_blockers(draft)
    if blockers:
        return gates.restart_wait(draft, blockers)
    if mode is BrokerMode.MIGRATION and not draft.spec.rollback.accept_loss:
        # A broker that restarts in ZooKeeper mode reads its metadata from ZooKeeper.
        waiting = healing.ensure_mirror_moves(draft)
    elif mode is BrokerMode.ZOOKEEPER:
        waiting = _controller_agreed(draft)
    if waiting is not None:
        return replace(waiting, message=f"before the next broker restarts: {waiting.message}")
    if (waiting := restarts.paused(draft)) is not None:
        return waiting
    stateful_set, pod = roll.pending[0]
    return rolls.restart_broker(draft, pod, stateful_set)


def _finish_or_drop_restart(draft: Draft) -> Wait | None:
    """Follow a restart in progress; drop it past its deadline, because its configuration may prevent the start."""
    operation = draft.status.operation
    if operation is not None and operation.kind is OperationKind.RESTART_CONTROLLER:
        # The controllers are removed anyway, so only a failover that heals ZooKeeper is still followed.
        if draft.status.healing is not None and not gates.controllers_gone(draft):
            waiting = healing.finish_failover(draft)
            if waiting is None or draft.now - operation.started_at <= GIVE_UP_RESTART_AFTER:
                return waiting
        draft.update(operation=None)
        return None
    if (waiting := rolls.finish_broker_restart(draft)) is None or operation is None:
        return waiting
    found = deadlines.overdue(draft)
    if found is not None and found[1] is PastDeadline.GO_ON:
        draft.update(operation=None, given_up=draft.status.operation)
        return None
    return waiting


def _forget_returned_broker(draft: Draft) -> None:
    """Forget a restart that was given up once its broker is back. Until then `deadlines` keeps the rollback stalled."""
    known, sets = draft.status.given_up, draft.stateful_sets()
    if known is None or isinstance(sets, Unobserved):
        return
    found = next(((s, p) for s in sets for p in s.pods if p.name == known.pod), None)
    if found is None or found[1].deleting or not found[1].ready:
        return
    mode = BrokerMode.of(found[0].configuration)
    if not brokers.registration_blockers(draft, mode) and not gates.cluster_blockers(draft):
        draft.update(given_up=None)


def _restore(draft: Draft) -> Wait | None:
    sets = draft.stateful_sets()
    if isinstance(sets, Unobserved):
        return Wait(str(sets))
    for item in sets:
        if item.overlay:
            if (waiting := originals.blocked(draft)) is not None:
                return waiting
            draft.act(RestoreStatefulSet(item.name))
            return Wait(f"StatefulSet {item.name}: its original configuration is being restored")
        if not item.observed:
            return Wait(f"StatefulSet {item.name}: the StatefulSet controller has not observed its new revision yet")
    return None


def _take_all_from_kraft(draft: Draft) -> Wait | None:
    """Restart every broker in KRaft mode at once, without the controllers; return None once none is left.

    One at a time, those that still run KRaft would go on leading partitions for which ZooKeeper's controller has chosen another leader.
    """
    if (waiting := _restore(draft)) is not None:
        return waiting
    sets = draft.stateful_sets()
    if isinstance(sets, Unobserved):
        return Wait(str(sets))
    pods = [p for s in sets for p in s.pods if p.configuration.startswith(BrokerMode.KRAFT)]
    for pod in pods:
        if not pod.deleting:
            node_id = draft.status.broker_ids.get(pod.name, -1)
            draft.act(RestartPod(pod.name, pod.uid, node_id, KRAFT_GRACE_SECONDS, ready=False))
    names = ", ".join(p.name for p in pods)
    return Wait(f"all brokers in KRaft mode restart in ZooKeeper mode at once: {names}", requeue_after=HASTE)


def _repeat_stop(draft: Draft) -> Wait | None:
    """Repeat a recorded stop of the controllers; return None when none is recorded, or it is older than `STOP_REPEATED_FOR`."""
    controllers, workload, rollback = draft.status.controllers, draft.observation.controllers, draft.status.rollback
    if controllers is None or rollback is None or not without_controller(draft.status):
        return None
    if not isinstance(workload, ControllersWorkload):
        return Wait(f"the controllers are stopping: {workload}", requeue_after=HASTE)
    if workload.stateful_set is None:
        draft.act(_stop(draft, controllers))
        names = ", ".join(p.name for p in workload.left)
        message = f"the controllers are stopping: pod {names} is left. A pod on a lost node runs until its Node is deleted or tainted node.kubernetes.io/out-of-service"
        return Wait(message, requeue_after=HASTE)
    since = rollback.controllers_stopped_at or draft.now
    if not workload.stateful_set.deleting and draft.now - since > STOP_REPEATED_FOR:
        draft.update(rollback=None)
        return None
    if not workload.stateful_set.deleting:
        draft.act(_stop(draft, controllers))
    because = f": {draft.failure()}" if draft.failure() else ""
    return Wait(f"the controllers are stopping{because}", requeue_after=HASTE)


def _stop_controllers(draft: Draft, zookeeper: ZooKeeperState) -> Wait:
    """Stop the controllers once a verification shows that ZooKeeper has every change, or if nothing was taken over."""
    controllers = draft.status.controllers
    if controllers is None:
        return Wait("there are no controllers to stop")
    claimed = history.claimed(draft.status) or (
        zookeeper.controller is not None and zookeeper.controller.kraft_controller_epoch >= 0
    )
    copied = history.copied(draft.status) or (
        isinstance(zookeeper.migration, MigrationZnode) and zookeeper.migration.kraft_metadata_offset >= 0
    )
    if is_isolating(draft.status) and not draft.spec.rollback.accept_loss:
        if (waiting := _follow_isolation(draft, controllers, zookeeper)) is not None:
            return waiting
        return _stop_now(draft, controllers, zookeeper)
    if (waiting := _end_isolation(draft, controllers)) is not None:
        return waiting
    if claimed and not copied and not draft.spec.rollback.accept_loss:
        hint = "spec.rollback.acceptLoss=true does not wait: KRaft accepts no writes before the copy is complete"
        return (
            healing.fail_over_stuck_mirror(draft)
            # The copy begins once every voter is registered (KIP-866), and a voter that lost its registration does not retry.
            or controller_restarts.restart_unregistered_controller(draft)
            or Wait(f"the copy to KRaft is not complete; {hint}")
        )
    if copied and not draft.spec.rollback.accept_loss:
        removing = canary.remove(draft)
        hint = "; spec.rollback.acceptLoss=true rolls back without the changes that ZooKeeper lacks"
        if (waiting := healing.ensure_mirror_moves(draft)) is not None:
            return replace(
                waiting,
                message=f"ZooKeeper must have every change before the controllers stop: {waiting.message}{hint}",
            )
        if removing is not None:
            return replace(removing, message=f"before the controllers stop: {removing.message}")
        if (
            waiting := verifying.ensure_verdict(draft, Profile.DUAL_WRITE, Phase.ROLLING_BACK, BEFORE_CONTROLLERS_STOP)
        ) is not None:
            return waiting
        if blockers := _pending_in_zookeeper(zookeeper) or _unmirrored(draft):
            return Wait(f"{blockers[0]}{hint}", requeue_after=HASTE)
        return _isolation_pause(draft) or restarts.paused(draft) or _begin_isolation(draft, controllers)
    if isinstance(zookeeper.migration, Unobserved) and not draft.spec.rollback.accept_loss:
        return Wait(f"the state of the takeover is unknown: {zookeeper.migration}")
    return restarts.paused(draft) or _stop_now(draft, controllers, zookeeper)


def _isolation_pause(step: StepContext) -> Wait | None:
    """Return the wait before controllers are isolated again, None when it is over; the rollback is stalled meanwhile."""
    rollback = step.status.rollback
    if rollback is None or rollback.attempt != step.status.attempt or rollback.isolation_given_up_at is None:
        return None
    again = rollback.isolation_given_up_at + ISOLATED_AGAIN_AFTER
    if step.now >= again:
        return None
    message = (
        f"The isolated controllers did not mirror the end of the log in {ISOLATED_FOR.seconds} s ({rollback.isolations_given_up} time(s)), and serve the brokers again. "
        f"Look at the logs of the controllers' pods and at ZooKeeper. The rollback isolates them again at {again:%H:%M:%S} UTC; "
        "spec.rollback.acceptLoss=true rolls back without the changes that ZooKeeper lacks"
    )
    return Wait(message, reason=Reason.DEADLINE_EXCEEDED, stalled=True, requeue_after=timedelta(seconds=5))


def _begin_isolation(draft: Draft, controllers: ControllersStatus) -> Wait:
    """Record that the controllers restart where no broker reaches them. From here on the cluster has no controller until a broker becomes controller."""
    draft.update(
        rollback=RollbackStatus(
            attempt=draft.status.attempt, isolated_at=draft.now, isolations_given_up=_isolations_given_up(draft)
        ),
        controllers=controllers.model_copy(update={"mode": ControllerMode.ISOLATED}),
    )
    draft.act(ApplyControllers(ControllerMode.ISOLATED, controllers.format_allowed))
    return Wait(
        "the controllers are being isolated from the brokers, so that nothing is added to the log", requeue_after=HASTE
    )


def _isolations_given_up(step: StepContext) -> int:
    rollback = step.status.rollback
    return rollback.isolations_given_up if rollback is not None and rollback.attempt == step.status.attempt else 0


def _follow_isolation(draft: Draft, controllers: ControllersStatus, zookeeper: ZooKeeperState) -> Wait | None:
    """Follow the controllers' restart in isolation; return None once ZooKeeper has everything that the brokers were ever acknowledged."""
    rollback, quorum = draft.status.rollback, draft.observation.quorum
    if rollback is None or rollback.isolated_at is None:
        return Wait("the controllers are not isolated")
    if draft.now - rollback.isolated_at > ISOLATED_FOR:
        words = f"The isolated controllers did not mirror the end of the log in {ISOLATED_FOR.seconds} s; they return to the brokers"
        return _give_up_isolation(draft, controllers, words)
    if (waiting := _restart_controllers_in(draft, controllers, ControllerMode.ISOLATED)) is not None:
        return waiting
    if isinstance(quorum, Unobserved) or quorum.high_watermark <= 0:
        return Wait(
            f"the isolated controllers elect a leader: {quorum if isinstance(quorum, Unobserved) else 'nothing is committed yet'}",
            requeue_after=HASTE,
        )
    if not rollback.isolated_high_watermark:
        # A new leader has a high watermark once it has committed a record of its epoch, and with it every record before (KIP-595).
        draft.update(rollback=rollback.model_copy(update={"isolated_high_watermark": str(quorum.high_watermark)}))
    wanted = int(rollback.isolated_high_watermark or quorum.high_watermark) - 1
    if not isinstance(zookeeper.migration, MigrationZnode):
        return Wait("/migration cannot be read", requeue_after=HASTE)
    if (mirrored := zookeeper.migration.kraft_metadata_offset) < wanted:
        return Wait(
            f"the isolated controllers write the end of the log to ZooKeeper: {mirrored} of {wanted}",
            requeue_after=HASTE,
        )
    return None


def _give_up_isolation(draft: Draft, controllers: ControllersStatus, words: str) -> Wait:
    given_up = RollbackStatus(
        attempt=draft.status.attempt,
        isolation_given_up_at=draft.now,
        isolations_given_up=_isolations_given_up(draft) + 1,
    )
    draft.update(rollback=given_up, controllers=controllers.model_copy(update={"mode": ControllerMode.MIGRATION}))
    draft.tell(EventReason.STALLED, words, EventType.WARNING)
    return Wait(words, requeue_after=HASTE)


def end_isolation(draft: Draft) -> Wait | None:
    """Return isolated controllers to the brokers, because ZooKeeper cannot take over; None when none is isolated, or they were asked to stop."""
    controllers = draft.status.controllers
    if draft.status.phase is not Phase.ROLLING_BACK or controllers is None or without_controller(draft.status):
        return None
    if is_isolating(draft.status):
        return _give_up_isolation(
            draft, controllers, "ZooKeeper contradicts the migration; the isolated controllers return to the brokers"
        )
    return _end_isolation(draft, controllers)


def _end_isolation(draft: Draft, controllers: ControllersStatus) -> Wait | None:
    """Return controllers whose isolation was given up to the port that the brokers know."""
    workload = draft.observation.controllers
    if not isinstance(workload, ControllersWorkload) or workload.stateful_set is None:
        return None
    isolated = f"{ControllerMode.ISOLATED}-"
    found = workload.stateful_set
    if controllers.mode is ControllerMode.ISOLATED or not any(
        c.startswith(isolated) for c in (found.configuration, *(p.configuration for p in found.pods))
    ):
        return None
    return _restart_controllers_in(draft, controllers, controllers.mode)


def _restart_controllers_in(draft: Draft, controllers: ControllersStatus, mode: ControllerMode) -> Wait | None:
    """Apply ``mode`` and restart all controllers at once, because voters on different ports make no quorum; return None once all are Ready."""
    workload, prefix = draft.observation.controllers, f"{mode}-"
    if isinstance(workload, Unobserved) or workload.stateful_set is None:
        return Wait(f"the controllers could not be observed: {workload}", requeue_after=HASTE)
    stateful_set = workload.stateful_set
    if not stateful_set.configuration.startswith(prefix) or not stateful_set.observed:
        draft.act(ApplyControllers(mode, controllers.format_allowed))
        return Wait(f"the controllers' objects are being applied ({mode})", requeue_after=HASTE)
    others = [p for p in stateful_set.pods if not p.configuration.startswith(prefix)]
    for pod in others:
        if not pod.deleting:
            draft.act(RestartPod(pod.name, pod.uid, pod.ordinal, AT_ONCE_SECONDS, ready=False))
    down = [p.name for p in stateful_set.pods if not p.ready or p.deleting]
    if others or down or len(stateful_set.pods) != len(controllers.node_ids):
        return Wait(f"the controllers restart ({mode})", requeue_after=HASTE)
    return None


def _stop_now(draft: Draft, controllers: ControllersStatus, zookeeper: ZooKeeperState) -> Wait:
    quorum, migration = draft.observation.quorum, zookeeper.migration
    isolation = draft.status.rollback if is_isolating(draft.status) else None
    # A stop may be repeated after the claim was removed: what is gone then is gone by us.
    own = history.own_rollback(draft.status)
    # From here on the cluster has no controller until a broker becomes controller.
    draft.update(
        controller_agreed_since=None,
        rollback=RollbackStatus(
            attempt=draft.status.attempt,
            isolated_at=isolation.isolated_at if isolation is not None else None,
            isolated_high_watermark=isolation.isolated_high_watermark if isolation is not None else "",
            isolations_given_up=_isolations_given_up(draft),
            controllers_stopped_at=draft.now,
            high_watermark=str(quorum.high_watermark) if isinstance(quorum, QuorumState) else "",
            mirrored_offset=str(migration.kraft_metadata_offset) if isinstance(migration, MigrationZnode) else "",
            claim_removed_at=own.claim_removed_at if own is not None else None,
        ),
    )
    draft.act(_stop(draft, controllers))
    return Wait("the controllers are being stopped", requeue_after=HASTE)


def _stop(step: StepContext, controllers: ControllersStatus) -> StopControllers:
    volumes = step.spec.rollback.controller_volumes is ControllerVolumes.REMOVE
    return StopControllers(controllers.name, controllers.node_ids, volumes)


def _pending_in_zookeeper(zookeeper: ZooKeeperState) -> list[str]:
    """Return the requests in ZooKeeper that the next ZooKeeper-mode controller would execute at once.

    A client made them before the takeover, or in ZooKeeper alone.
    """
    found = []
    if topics := zookeeper.pending_topic_deletions:
        found.append(
            f"ZooKeeper's next controller would delete topics: /admin/delete_topics names {', '.join(topics[:3])}; delete these znodes"
        )
    if zookeeper.reassignments:
        found.append("ZooKeeper's next controller would move partitions: delete the znode /admin/reassign_partitions")
    return found


def _unmirrored(step: StepContext) -> list[str]:
    """Return why ZooKeeper lacks records of the log, apart from the last few NoOpRecords."""
    quorum, zookeeper = step.observation.quorum, step.observation.zookeeper
    if isinstance(quorum, Unobserved) or isinstance(zookeeper, Unobserved):
        return [str(quorum if isinstance(quorum, Unobserved) else zookeeper)]
    if not isinstance(zookeeper.migration, MigrationZnode):
        return ["/migration cannot be read"]
    behind = unmirrored_records(quorum, zookeeper.migration)
    if behind > 0:
        return [f"ZooKeeper still lacks the last {behind} records of the log; stop clients that keep changing metadata"]
    return []


def unmirrored_records(quorum: QuorumState, migration: MigrationZnode) -> int:
    """Return how many committed records of the log ZooKeeper lacks.

    NoOpRecords count as well: which records these are cannot be seen from here, and a topic of three partitions is four records. A mirror that
    keeps up reaches zero between two NoOpRecords, which are 500 ms apart (``metadata.max.idle.interval.ms``), also under writes
    (``tests/integration/test_rollback_under_writes.py``).
    """
    return quorum.high_watermark - 1 - migration.kraft_metadata_offset


def _note_controller(draft: Draft, zookeeper: ZooKeeperState) -> None:
    """Record when a broker is first observed to be controller again, and how long the cluster had no controller."""
    rollback = draft.status.rollback
    if rollback is None or zookeeper.controller is None or not without_controller(draft.status):
        return
    gone = draft.now - (rollback.isolated_at or rollback.controllers_stopped_at or draft.now)
    changes = {
        "controller_back_at": draft.now,
        "controller_unavailable_milliseconds": max(round(gone / timedelta(milliseconds=1)), 0),
    }
    draft.update(rollback=rollback.model_copy(update=changes))


def _remove_claim(draft: Draft, zookeeper: ZooKeeperState) -> Wait:
    epoch = zookeeper.controller.kraft_controller_epoch if zookeeper.controller is not None else -1
    rollback = history.own_rollback(draft.status) or RollbackStatus(attempt=draft.status.attempt)
    if rollback.claim_removed_at is None:
        draft.update(rollback=rollback.model_copy(update={"claim_removed_at": draft.now}))
    draft.act(RemoveControllerClaim(epoch))
    because = f": {draft.failure()}" if draft.failure() else ""
    return Wait(f"the KRaft controllers' claim on /controller is being removed{because}", requeue_after=HASTE)


def _controller_settled(step: StepContext) -> Wait | None:
    """Wait, before the first broker restarts, until every broker names the same broker as controller."""
    sets = step.stateful_sets()
    if isinstance(sets, Unobserved) or any(not p.configuration for s in sets for p in s.pods):
        return None  # checked before each restart from here on
    return None if step.status.operation is not None else _controller_agreed(step)


def _controller_views(step: StepContext) -> Mapping[int, int | Unobserved] | Unobserved:
    """Return the controller that each broker names whose pod is Ready."""
    views, sets = step.observation.controller_by_broker, step.stateful_sets()
    if isinstance(views, Unobserved):
        return views
    if isinstance(sets, Unobserved):
        return sets
    ids = set(step.status.broker_ids.values())
    # A broker that is down cannot hang in its shutdown; the restart gates check that it comes back.
    up = {step.status.broker_ids.get(p.name, -1) for s in sets for p in s.pods if p.ready and not p.deleting}
    return {i: views.get(i, Unobserved(f"broker {i}", "it was not asked")) for i in ids & up}


def track_controller_views(draft: Draft) -> None:
    """Record since when every broker has named the same broker as controller."""
    if draft.status.phase is not Phase.ROLLING_BACK:
        return
    agreed, since = _named_by_all(draft) is not None, draft.status.controller_agreed_since
    if agreed is not (since is not None):
        draft.update(controller_agreed_since=draft.now if agreed else None)


def _named_by_all(step: StepContext) -> int | None:
    """Return the broker that ``/controller`` and every running broker name as controller; None while they differ or one did not answer.

    Brokers that the KRaft controllers never reached still agree on the controller from before the takeover, which may not be the new one.
    """
    asked, zookeeper = _controller_views(step), step.observation.zookeeper
    if isinstance(asked, Unobserved) or isinstance(zookeeper, Unobserved) or zookeeper.controller is None:
        return None
    named = {*asked.values(), zookeeper.controller.broker_id}
    one = named.pop() if len(named) == 1 else None
    return one if isinstance(one, int) and one in step.status.broker_ids.values() else None


def _controller_agreed(step: StepContext) -> Wait | None:
    """Return the wait until every broker has named the same broker as controller for `CONTROLLER_SETTLED_FOR`, None once they have.

    A broker whose cache still names a KRaft controller hangs in its controlled shutdown, measured for up to five minutes.
    """
    asked, since = _controller_views(step), step.status.controller_agreed_since
    if isinstance(asked, Unobserved):
        return Wait(str(asked))
    named = _named_by_all(step)
    if named is None or since is None:
        zookeeper = step.observation.zookeeper
        of_zookeeper = zookeeper.controller if isinstance(zookeeper, ZooKeeperState) else None
        elected = f"broker {of_zookeeper.broker_id}" if of_zookeeper is not None else "no broker"
        return Wait(
            f"every broker must name the broker in ZooKeeper's /controller, {elected}; they name {sorted(str(v) for v in asked.values())}"
        )
    if step.now - since < CONTROLLER_SETTLED_FOR:
        return Wait(f"broker {named} is controller; every broker must name it for {CONTROLLER_SETTLED_FOR.seconds} s")
    return None


def _controller_news(step: StepContext) -> Wait | None:
    """Wait before a running broker restarts that nobody lists: its process hangs in its shutdown until it knows the new controller.

    The new controller tells every broker who is alive, which may also be all that this one lacks. A broker that it cannot tell is restarted.
    """
    back = step.status.rollback.controller_back_at if step.status.rollback is not None else None
    if back is not None and step.now - back > GIVE_UP_RESTART_AFTER:
        return None
    return _controller_agreed(step)


def run_rolled_back_phase(draft: Draft) -> Outcome:
    """Wait for another target, which starts the next attempt with new volumes."""
    if draft.spec.target is Target.ZOOKEEPER:
        return Wait(
            "Rolled back: the cluster runs on ZooKeeper, which holds nothing of the migration any more",
            WaitKind.USER,
            reason=Reason.ROLLED_BACK,
            requeue_after=timedelta(seconds=5),
        )
    draft.update(
        attempt=draft.status.attempt + 1, controllers=None, quorum=None, migration_offset=None, canary=None, verifications=(),
        controller_agreed_since=None, hold_until=None, healing=None, zookeeper_history=None,
        kept_copy=None, keeping=None, lost_quorum=None, restoration=None,
    )  # fmt: skip
    for kind in (
        ConditionType.QUORUM_READY, ConditionType.BROKERS_IN_MIGRATION_MODE, ConditionType.METADATA_MIGRATED, ConditionType.BROKERS_ON_KRAFT,
    ):  # fmt: skip
        draft.set_condition(kind, "False", Reason.NOT_STARTED, "Not reached in this attempt yet")
    return Enter(Phase.PREFLIGHT)
