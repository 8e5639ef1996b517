"""The way forward: one function per phase. Each says what to wait for, or which phase to enter. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from kraftbridge.models.conditions import ConditionType, Reason
from kraftbridge.models.decision import (
    ApplyControllers,
    ConfigureBrokers,
    LockStatefulSet,
    PublishFinalManifest,
    ReleaseStatefulSet,
)
from kraftbridge.models.observation import ControllersWorkload, Unobserved, ZooKeeperState
from kraftbridge.models.phase import BrokerMode, ControllerMode, Phase, Target, ZkMigrationState
from kraftbridge.models.report import Profile
from kraftbridge.models.status import ControllersStatus, NodeStatus, OperationKind, WaitKind, controllers_name
from kraftbridge.phases import canary, gates, healing, metadata_version, rolling, verifying
from kraftbridge.phases.draft import Draft, Enter, Outcome, Wait
from kraftbridge.phases.preflight import findings as preflight

SLOW = timedelta(seconds=5)
"""How often to look while a person is awaited."""

ENTRY = "entry"
LAST_BROKER = "last-broker"


def preflight_phase(draft: Draft) -> Outcome:
    """Judge the cluster; go on only without a blocking finding. Nothing is changed here."""
    found = preflight.findings(draft)
    draft.update(findings=found)
    standing = preflight.blocking(found)
    if standing:
        first = standing[0]
        message = f"{len(standing)} blocking finding(s); {first.code} on {first.object}: {first.reason}. {first.fix}"
        draft.set_condition(ConditionType.PREFLIGHT_PASSED, "False", Reason.FINDINGS, message)
        return Wait(message, WaitKind.USER, Reason.FINDINGS, stalled=True, look_again_after=SLOW)
    accepted = sum(f.accepted for f in found)
    draft.set_condition(
        ConditionType.PREFLIGHT_PASSED, "True", Reason.PASSED, f"No blocking finding; {accepted} accepted by the user"
    )
    zookeeper, sets = draft.observation.zookeeper, draft.stateful_sets()
    if not isinstance(zookeeper, ZooKeeperState) or isinstance(sets, Unobserved):
        return Wait("the cluster could not be observed")
    ids = preflight.broker_ids(draft)
    nodes = tuple(
        NodeStatus(
            id=ids[p.name], role="broker", pod=p.name, stateful_set=s.name, mode=BrokerMode.ZOOKEEPER, ready=p.ready
        )
        for s in sets
        for p in s.pods
    )
    draft.update(cluster_id=zookeeper.cluster_id, broker_ids=ids, nodes=tuple(sorted(nodes, key=lambda n: n.id)))
    if draft.spec.target is Target.PREFLIGHT:
        return _reached("Preflight passed; set spec.target further to go on")
    name = controllers_name(draft.identity.name, draft.status.attempt)
    draft.update(controllers=ControllersStatus(name=name, node_ids=draft.spec.controllers.node_ids))
    return Enter(Phase.PROVISIONING_QUORUM)


def provisioning_quorum(draft: Draft) -> Outcome:
    """Apply the controllers; wait for a stable quorum that is ready to migrate, and for a sound ZooKeeper tree."""
    _keep_controllers(draft, ControllerMode.MIGRATION)
    if (waiting := rolling.finish_controller_restart(draft, ControllerMode.MIGRATION)) is not None:
        return waiting
    if draft.status.controllers is not None and draft.status.controllers.format_allowed:
        rolling.replace_outdated_controllers(draft)
    verifying.arm(draft, Profile.ZOOKEEPER, Phase.TAKING_OVER, ENTRY)
    blockers = gates.controllers_running(draft, ControllerMode.MIGRATION)
    pod, trouble = gates.controller_in_trouble(draft)
    if blockers:
        passing = "CrashLoop" in trouble or "Unschedulable" in trouble
        return Wait(f"pod {pod}: {trouble}" if pod else blockers[0], stalled=bool(trouble) and not passing)
    blockers = gates.quorum_agrees(draft) or gates.every_voter_in_state(draft, ZkMigrationState.PRE_MIGRATION)
    if blockers:
        return Wait(blockers[0])
    if (waiting := _voters_registered(draft)) is not None:
        return waiting
    _remember_volumes(draft)
    draft.set_condition(
        ConditionType.QUORUM_READY, "True", Reason.DONE, "Every voter follows one leader and is ready to migrate"
    )
    if (waiting := verifying.require(draft, Profile.ZOOKEEPER, Phase.TAKING_OVER, ENTRY)) is not None:
        return waiting
    if draft.spec.target is Target.QUORUM_READY:
        return _reached("The quorum is ready; set spec.target to DualWrite or further to go on")
    if blockers := gates.volumes_kept(draft) or gates.cluster_health(draft):
        return Wait(f"before any broker restarts: {blockers[0]}")
    return Enter(Phase.TAKING_OVER)


def taking_over(draft: Draft) -> Outcome:
    """Roll the brokers into migration mode; the copy starts by itself when the last one registers (KIP-866)."""
    _reassert(draft, BrokerMode.MIGRATION)
    if (waiting := healing.follow(draft) or _roll(draft, BrokerMode.MIGRATION)) is not None:
        return waiting
    draft.set_condition(
        ConditionType.BROKERS_IN_MIGRATION_MODE,
        "True",
        Reason.DONE,
        "Every broker is registered with the quorum in migration mode",
    )
    verifying.arm(draft, Profile.DUAL_WRITE, Phase.ROLLING_BROKERS, ENTRY)
    if gates.dual_write(draft):
        return _voters_registered(draft) or healing.dual_write(draft) or Wait("dual-write is awaited")
    if (waiting := canary.proved_in_both_stores(draft)) is not None:
        return waiting
    draft.set_condition(
        ConditionType.METADATA_MIGRATED,
        "True",
        Reason.DONE,
        "The copy is complete and every change goes to both stores",
    )
    return Enter(Phase.DUAL_WRITE)


def dual_write(draft: Draft) -> Outcome:
    """Soak in hybrid dual-write; verify before any broker leaves ZooKeeper."""
    _reassert(draft, BrokerMode.MIGRATION)
    if (waiting := healing.follow(draft) or _roll(draft, BrokerMode.MIGRATION)) is not None:
        return waiting  # a failover is under way, or somebody took our fields back
    verifying.arm(draft, Profile.DUAL_WRITE, Phase.ROLLING_BROKERS, ENTRY)
    if (waiting := healing.dual_write(draft)) is not None:
        return waiting
    if not canary.removed(draft):
        return Wait("the canary change is being removed again")
    if (waiting := _soak(draft, draft.spec.strategy.hybrid_soak_seconds)) is not None:
        return waiting
    if (waiting := verifying.require(draft, Profile.DUAL_WRITE, Phase.ROLLING_BROKERS, ENTRY)) is not None:
        return waiting
    if draft.spec.target is Target.DUAL_WRITE:
        return _reached("Both stores are written and equal; set spec.target to KRaftBrokers or KRaft to go on")
    if blockers := gates.cluster_health(draft):
        return Wait(f"before any broker restarts: {blockers[0]}")
    return Enter(Phase.ROLLING_BROKERS)


def rolling_brokers(draft: Draft) -> Outcome:
    """Restart the brokers as KRaft brokers, one by one; verify again before saying that only finalization is left."""
    _reassert(draft, BrokerMode.KRAFT)
    if (waiting := healing.follow(draft) or _roll(draft, BrokerMode.KRAFT)) is not None:
        return waiting
    verifying.arm(draft, Profile.DUAL_WRITE, Phase.AWAITING_FINALIZATION, ENTRY)
    if (waiting := healing.dual_write(draft)) is not None:
        return waiting
    if blockers := (gates.no_migrating_broker(draft) or gates.cluster_health(draft)):
        return Wait(blockers[0])
    draft.set_condition(
        ConditionType.BROKERS_ON_KRAFT, "True", Reason.DONE, "Every broker is registered as a KRaft broker"
    )
    if (waiting := verifying.require(draft, Profile.DUAL_WRITE, Phase.AWAITING_FINALIZATION, ENTRY)) is not None:
        return waiting
    return Enter(Phase.AWAITING_FINALIZATION)


def awaiting_finalization(draft: Draft) -> Outcome:
    """Pure dual-write, the last exit: soak, and wait for the user's word in ``spec.target``."""
    _reassert(draft, BrokerMode.KRAFT)
    if (waiting := healing.follow(draft) or _roll(draft, BrokerMode.KRAFT) or healing.unstick(draft)) is not None:
        return waiting  # a failover is under way, or somebody took our fields back
    if (waiting := _soak(draft, draft.spec.strategy.pure_soak_seconds)) is not None:
        return waiting
    if draft.spec.target is not Target.KRAFT:
        message = "Brokers run KRaft and ZooKeeper is still written: set spec.target to KRaft to finalize (no way back), or to ZooKeeper to roll back"
        return _reached(message, Reason.AWAITING_USER)
    if blockers := (
        gates.no_migrating_broker(draft)
        or gates.dual_write(draft)
        or gates.quorum_agrees(draft)
        or gates.cluster_health(draft)
    ):
        return Wait(f"before finalization: {blockers[0]}")
    # The run before this phase serves, as long as it is fresh; one per gate is enough and an old one is run anew.
    if (waiting := verifying.require(draft, Profile.DUAL_WRITE, Phase.AWAITING_FINALIZATION, ENTRY)) is not None:
        return waiting
    return Enter(Phase.FINALIZING)


def finalizing(draft: Draft) -> Outcome:
    """Restart the controllers out of migration mode, the active one last: it writes the end of the migration into the log (KIP-866)."""
    _keep_controllers(draft, ControllerMode.FINAL)
    _reassert(draft, BrokerMode.KRAFT)
    operation = draft.status.operation
    of_controller = operation is not None and operation.kind is OperationKind.RESTART_CONTROLLER
    if not of_controller and (waiting := _roll(draft, BrokerMode.KRAFT)) is not None:
        return waiting  # somebody took our fields back
    if (waiting := rolling.finish_controller_restart(draft, ControllerMode.FINAL)) is not None:
        return waiting
    workload = draft.observation.controllers
    if isinstance(workload, Unobserved) or workload.stateful_set is None:
        return Wait(
            str(workload)
            if isinstance(workload, Unobserved)
            else "the controllers' StatefulSet is gone; it must be there"
        )
    stateful_set = workload.stateful_set
    if not stateful_set.configuration.startswith(f"{ControllerMode.FINAL}-") or not stateful_set.observed:
        return Wait("the controllers are being given their final configuration")
    pending = [
        p
        for p in stateful_set.pods
        if p.configuration != stateful_set.configuration or p.revision != stateful_set.update_revision
    ]
    if pending:
        if blockers := (gates.quorum_agrees(draft) or gates.cluster_health(draft)):
            return Wait(f"before the next controller restarts: {blockers[0]}")
        active = draft.observation.active_controller
        pending.sort(key=lambda p: (active is not None and p.ordinal == active.node_id, p.ordinal))
        return rolling.paused(draft) or rolling.restart_controller(draft, pending[0])
    verifying.arm(draft, Profile.REPLICAS, Phase.COMPLETED, ENTRY)
    blockers = gates.quorum_agrees(draft) or gates.every_voter_in_state(draft, ZkMigrationState.POST_MIGRATION)
    blockers = blockers or gates.no_migrating_broker(draft) or gates.cluster_health(draft)
    if blockers:
        # A broker that cannot find the new leader is fenced only after broker.session.timeout.ms: the hold starts anew.
        draft.update(hold_until=None)
        return Wait(blockers[0])
    if draft.status.hold_until is None:
        seconds = draft.spec.strategy.session_timeout_hold_seconds
        draft.update(hold_until=draft.now + timedelta(seconds=seconds))
    if draft.status.hold_until is not None and draft.now < draft.status.hold_until:
        return Wait(
            "holding until the brokers' sessions with the new controllers have proved themselves", WaitKind.HOLD
        )
    if (waiting := verifying.require(draft, Profile.REPLICAS, Phase.COMPLETED, ENTRY)) is not None:
        return waiting
    draft.update(hold_until=None, hold_reason="")
    return Enter(Phase.COMPLETED)


def completed(draft: Draft) -> Outcome:
    """Give the StatefulSets back; ZooKeeper is the user's to stop. Then metadata.version, if one is asked for."""
    sets = draft.stateful_sets()
    if isinstance(sets, Unobserved):
        return Wait(str(sets), look_again_after=SLOW)
    draft.update(final_manifest=f"{draft.identity.name}-final-manifest")
    held = [s for s in sets if s.lock == draft.identity.lock]
    if len(held) == len(sets) and (waiting := _roll(draft, BrokerMode.KRAFT)) is not None:
        return waiting  # somebody took our fields back before the last of them were given back
    if held:
        # Both are repeated until the lock is seen gone, so neither is lost with an operator that dies here.
        draft.act(PublishFinalManifest())
        draft.act(ReleaseStatefulSet(held[0].name))
        return Wait(f"StatefulSet {held[0].name} is being given back")
    draft.update(given_back_at=draft.status.given_back_at or draft.now)
    if (waiting := metadata_version.kept_as_asked(draft)) is not None:
        return waiting
    manifest = f"ConfigMap {draft.status.final_manifest} shows what your next release should contain"
    return _reached(f"Migration complete: ZooKeeper is not used any more and can be stopped. {manifest}")


def _roll(draft: Draft, mode: BrokerMode) -> Wait | None:
    """Bring every broker to ``mode``, one at a time; None when all are there."""
    if draft.status.operation is None and (waiting := rolling.configure_brokers(draft, mode)) is not None:
        return waiting
    if (waiting := rolling.finish_broker_restart(draft)) is not None:
        return waiting
    roll = rolling.roll_of(draft)
    if isinstance(roll, Unobserved):
        return Wait(str(roll))
    if not roll.pending:
        return None
    # The copy starts by itself when the last broker registers: what it copies is verified right before.
    last = mode is BrokerMode.MIGRATION and len(roll.pending) == 1
    if last and draft.status.phase is Phase.TAKING_OVER:
        # In the hold before it: Spark does not start beside a broker that restarts, which would be away for longer.
        verifying.arm(draft, Profile.ZOOKEEPER, Phase.TAKING_OVER, LAST_BROKER)
    if (broken := rolling.broken_broker(draft, roll, mode)) is not None:
        if (
            last
            and (waiting := verifying.require(draft, Profile.ZOOKEEPER, Phase.TAKING_OVER, LAST_BROKER)) is not None
        ):
            return waiting
        return rolling.paused(draft) or rolling.restart_broker(draft, broken[1], broken[0])
    if (waiting := rolling.hold(draft)) is not None:
        return waiting
    blockers = gates.cluster_health(draft) or gates.quorum_agrees(draft)
    if blockers:
        return Wait(f"before the next broker restarts: {blockers[0]}")
    if mode is BrokerMode.MIGRATION and (waiting := _voters_registered(draft)) is not None:
        return waiting
    if (
        mode is BrokerMode.KRAFT
        and draft.status.phase.reversible
        and (waiting := healing.dual_write(draft)) is not None
    ):
        return replace(waiting, message=f"before the next broker restarts: {waiting.message}")
    if last and (waiting := verifying.require(draft, Profile.ZOOKEEPER, Phase.TAKING_OVER, LAST_BROKER)) is not None:
        return waiting
    if (waiting := rolling.paused(draft)) is not None:
        return waiting
    stateful_set, pod = roll.pending[0]
    return rolling.restart_broker(draft, pod, stateful_set)


def _reassert(draft: Draft, mode: BrokerMode) -> None:
    """Put lock and fields back while a restart is under way, should somebody have changed them."""
    if draft.status.operation is None:
        return
    sets = draft.stateful_sets()
    if isinstance(sets, Unobserved):
        return
    for item in sets:
        if item.lock != draft.identity.lock or item.update_strategy != "OnDelete":
            draft.act(LockStatefulSet(item.name))
        if item.drift or not item.configuration.startswith(f"{mode}-"):
            draft.act(ConfigureBrokers(item.name, mode))


def _keep_controllers(draft: Draft, mode: ControllerMode) -> None:
    """Apply our own objects whenever they are not what they should be."""
    status, workload = draft.status.controllers, draft.observation.controllers
    if status is None:
        return
    if status.mode is not mode:
        status = status.model_copy(update={"mode": mode})
        draft.update(controllers=status)
    if not isinstance(workload, ControllersWorkload):
        return
    stateful_set = workload.stateful_set
    outdated = stateful_set is None or not stateful_set.configuration.startswith(f"{mode}-") or bool(stateful_set.drift)
    if outdated or workload.format_allowed is not status.format_allowed:
        draft.act(ApplyControllers(mode, status.format_allowed))


def _voters_registered(draft: Draft) -> Wait | None:
    """Wait for every voter's registration; restart one that will not try again."""
    blockers = gates.voters_registered(draft)
    return (rolling.restart_unregistered_controller(draft) or Wait(blockers[0])) if blockers else None


def _remember_volumes(draft: Draft) -> None:
    """Record each voter's volume once; from then on a blank one must not be formatted by itself."""
    status, workload = draft.status.controllers, draft.observation.controllers
    if status is None or not status.format_allowed or not isinstance(workload, ControllersWorkload):
        return
    uids = {str(i): uid for i, uid in workload.volume_uids.items()}
    if set(uids) == {str(i) for i in status.node_ids}:
        draft.update(controllers=status.model_copy(update={"format_allowed": False, "volume_uids": uids}))


def _soak(draft: Draft, seconds: int) -> Wait | None:
    entered = next((h.entered_at for h in reversed(draft.status.history) if h.left_at is None), draft.now)
    until = entered + timedelta(seconds=seconds)
    return Wait(f"soaking until {until:%H:%M:%S} UTC", WaitKind.SOAK) if draft.now < until else None


def _reached(message: str, reason: Reason = Reason.TARGET_REACHED) -> Wait:
    return Wait(message, WaitKind.USER, reason, look_again_after=SLOW)
