"""The way forward: one function per phase. Each says what to wait for, or which phase to enter. Pure."""

from __future__ import annotations

from datetime import timedelta
from hashlib import sha256

from kraftbridge.models.conditions import ConditionType, Reason
from kraftbridge.models.decision import (
    PublishFinalManifest,
    PublishFindings,
    ReleaseStatefulSet,
)
from kraftbridge.models.observation import Unobserved, ZooKeeperState
from kraftbridge.models.phase import BrokerMode, ControllerMode, Phase, Target, ZkMigrationState
from kraftbridge.models.report import Profile
from kraftbridge.models.status import (
    UID_LENGTH,
    ControllersStatus,
    FindingsReport,
    FindingStatus,
    NodeStatus,
    OperationKind,
    WaitKind,
    controllers_name,
)
from kraftbridge.phases import (
    broker_restarts,
    canary,
    controller_change,
    controller_restarts,
    gates,
    healing,
    metadata_version,
    restarts,
    verifying,
)
from kraftbridge.phases.draft import Draft, Enter, Outcome, StepContext, Wait
from kraftbridge.phases.preflight import dry_start
from kraftbridge.phases.preflight import findings as preflight
from kraftbridge.phases.preflight.effective import taken_over
from kraftbridge.phases.preflight.identity import broker_ids

SLOW = timedelta(seconds=5)
"""How often to look while a person is awaited."""

MAXIMUM_FINDINGS = 100
"""In status. One takes 2 KiB at most."""
ENTRY = "entry"
LAST_BROKER = "last-broker"


def run_preflight_phase(draft: Draft) -> Outcome:
    """Judge the cluster; go on only without a blocking finding. Nothing is changed here."""
    zookeeper, ids = draft.observation.zookeeper, broker_ids(draft)
    if isinstance(zookeeper, ZooKeeperState) and zookeeper.cluster_id and ids:
        dry_start.begin_dry_start(draft, ids, zookeeper.cluster_id)
    found = preflight.findings(draft)
    _record_findings(draft, found)
    standing = preflight.blocking(found)
    if standing:
        first = standing[0]
        message = f"{len(standing)} blocking finding(s); {first.code} on {first.object}: {first.reason}. {first.fix}"
        draft.set_condition(ConditionType.PREFLIGHT_PASSED, "False", Reason.FINDINGS, message)
        return Wait(message, WaitKind.USER, Reason.FINDINGS, stalled=True, requeue_after=SLOW)
    if dry_start.awaited(draft):
        message = (
            "Copies of the brokers' pods are started without Kafka in them, to see what each mode would give to Kafka"
        )
        draft.set_condition(ConditionType.PREFLIGHT_PASSED, "False", Reason.PROGRESSING, message)
        return Wait(message)
    accepted = sum(f.accepted for f in found)
    draft.set_condition(
        ConditionType.PREFLIGHT_PASSED, "True", Reason.PASSED, f"No blocking finding; {accepted} accepted by the user"
    )
    sets = draft.stateful_sets()
    if not isinstance(zookeeper, ZooKeeperState) or isinstance(sets, Unobserved):
        return Wait("the cluster could not be observed")
    nodes = tuple(
        NodeStatus(
            id=ids[p.name], role="broker", pod=p.name, stateful_set=s.name, mode=BrokerMode.ZOOKEEPER, ready=p.ready
        )
        for s in sets
        for p in s.pods
    )
    draft.update(cluster_id=zookeeper.cluster_id, broker_ids=ids, nodes=tuple(sorted(nodes, key=lambda n: n.id)))
    if not isinstance(draft.observation.survey, Unobserved):
        draft.update(broker_settings=taken_over(draft.observation.survey))
    if draft.spec.target is Target.PREFLIGHT:
        return _reached("Preflight passed; set spec.target further to go on")
    name = controllers_name(draft.identity.name, draft.identity.uid, draft.status.attempt)
    draft.update(controllers=ControllersStatus(name=name, node_ids=draft.spec.controllers.node_ids))
    return Enter(Phase.PROVISIONING_QUORUM)


def _record_findings(draft: Draft, found: tuple[FindingStatus, ...]) -> None:
    """Put the findings into status, the first ones only when they are many: etcd refuses objects of more than 1.5 MiB."""
    if len(found) <= MAXIMUM_FINDINGS:
        draft.update(findings=found, findings_report=None)
        return
    digest = sha256("\n".join(f.model_dump_json() for f in found).encode()).hexdigest()
    name = f"{draft.identity.name}-findings-{draft.identity.uid[:UID_LENGTH]}"
    known = draft.status.findings_report
    written = not any(o.action == PublishFindings.__name__ and o.error for o in draft.observation.outcomes)
    if known is None or known.digest != digest or not written:
        draft.act(PublishFindings(name, found))
    draft.update(
        findings=found[:MAXIMUM_FINDINGS],
        findings_report=FindingsReport(config_map=name, total=len(found), digest=digest),
    )


def run_provisioning_quorum_phase(draft: Draft) -> Outcome:
    """Apply the controllers; wait for a stable quorum that is ready to migrate, and for a sound ZooKeeper tree."""
    controller_restarts.keep_controllers(draft, ControllerMode.MIGRATION)
    if draft.status.controllers is not None and draft.status.controllers.format_allowed:
        # Before a restart is followed: the one that is awaited may be the one that cannot start as it is configured.
        controller_restarts.replace_outdated_controllers(draft)
    if (
        waiting := controller_change.roll_changed_controllers(draft)
        or controller_restarts.finish_controller_restart(draft, ControllerMode.MIGRATION)
    ) is not None:
        return waiting
    verifying.launch_ahead(draft, Profile.ZOOKEEPER, Phase.TAKING_OVER, ENTRY)
    blockers = gates.controllers_running_blockers(draft, ControllerMode.MIGRATION)
    pod, trouble = gates.controller_in_trouble(draft)
    if blockers:
        passing = "CrashLoop" in trouble or "Unschedulable" in trouble
        return Wait(f"pod {pod}: {trouble}" if pod else blockers[0], stalled=bool(trouble) and not passing)
    blockers = gates.quorum_blockers(draft) or gates.migration_state_blockers(draft, ZkMigrationState.PRE_MIGRATION)
    if blockers:
        return Wait(blockers[0])
    if (waiting := controller_restarts.ensure_voters_registered(draft)) is not None:
        return waiting
    controller_restarts.remember_volumes(draft)
    draft.set_condition(
        ConditionType.QUORUM_READY, "True", Reason.DONE, "Every voter follows one leader and is ready to migrate"
    )
    if (waiting := verifying.ensure_verdict(draft, Profile.ZOOKEEPER, Phase.TAKING_OVER, ENTRY)) is not None:
        return waiting
    if draft.spec.target is Target.QUORUM_READY:
        return _reached("The quorum is ready; set spec.target to DualWrite or further to go on")
    if blockers := gates.volume_blockers(draft) or gates.cluster_blockers(draft):
        return Wait(f"before any broker restarts: {blockers[0]}")
    return Enter(Phase.TAKING_OVER)


def run_taking_over_phase(draft: Draft) -> Outcome:
    """Roll the brokers into migration mode; the copy starts by itself when the last one registers (KIP-866)."""
    broker_restarts.reassert_brokers(draft, BrokerMode.MIGRATION)
    if (
        waiting := controller_change.roll_changed_controllers(draft)
        or healing.finish_failover(draft)
        or broker_restarts.roll_brokers(draft, BrokerMode.MIGRATION)
    ) is not None:
        return waiting
    draft.set_condition(
        ConditionType.BROKERS_IN_MIGRATION_MODE,
        "True",
        Reason.DONE,
        "Every broker is registered with the quorum in migration mode",
    )
    verifying.launch_ahead(draft, Profile.DUAL_WRITE, Phase.ROLLING_BROKERS, ENTRY)
    if gates.dual_write_blockers(draft):
        return (
            controller_restarts.ensure_voters_registered(draft)
            or healing.ensure_mirror_moves(draft)
            or Wait("dual-write is awaited")
        )
    if (waiting := canary.prove_change_arrives(draft)) is not None:
        return waiting
    draft.set_condition(
        ConditionType.METADATA_MIGRATED,
        "True",
        Reason.DONE,
        "The copy is complete; a change made after it is in both stores and served by every broker",
    )
    return Enter(Phase.DUAL_WRITE)


def run_dual_write_phase(draft: Draft) -> Outcome:
    """Soak in hybrid dual-write; verify before any broker leaves ZooKeeper."""
    broker_restarts.reassert_brokers(draft, BrokerMode.MIGRATION)
    if (
        waiting := controller_change.roll_changed_controllers(draft)
        or healing.finish_failover(draft)
        or broker_restarts.roll_brokers(draft, BrokerMode.MIGRATION)
    ) is not None:
        return waiting  # a failover is under way, or somebody took our fields back
    verifying.launch_ahead(draft, Profile.DUAL_WRITE, Phase.ROLLING_BROKERS, ENTRY)
    if (waiting := healing.ensure_mirror_moves(draft)) is not None:
        return waiting
    if (waiting := canary.remove(draft)) is not None:
        return waiting
    if (waiting := _soak(draft, draft.spec.strategy.hybrid_soak_seconds)) is not None:
        return waiting
    if (waiting := verifying.ensure_verdict(draft, Profile.DUAL_WRITE, Phase.ROLLING_BROKERS, ENTRY)) is not None:
        return waiting
    if draft.spec.target is Target.DUAL_WRITE:
        return _reached("Both stores are written and equal; set spec.target to KRaftBrokers or KRaft to go on")
    if blockers := gates.cluster_blockers(draft):
        return Wait(f"before any broker restarts: {blockers[0]}")
    return Enter(Phase.ROLLING_BROKERS)


def run_rolling_brokers_phase(draft: Draft) -> Outcome:
    """Restart the brokers as KRaft brokers, one by one; verify again before saying that only finalization is left."""
    broker_restarts.reassert_brokers(draft, BrokerMode.KRAFT)
    if (
        waiting := controller_change.roll_changed_controllers(draft)
        or healing.finish_failover(draft)
        or broker_restarts.roll_brokers(draft, BrokerMode.KRAFT)
    ) is not None:
        return waiting
    verifying.launch_ahead(draft, Profile.DUAL_WRITE, Phase.AWAITING_FINALIZATION, ENTRY)
    if (waiting := healing.ensure_mirror_moves(draft)) is not None:
        return waiting
    if blockers := (gates.broker_registration_blockers(draft) or gates.cluster_blockers(draft)):
        return Wait(blockers[0])
    draft.set_condition(
        ConditionType.BROKERS_ON_KRAFT, "True", Reason.DONE, "Every broker is registered as a KRaft broker"
    )
    if (waiting := verifying.ensure_verdict(draft, Profile.DUAL_WRITE, Phase.AWAITING_FINALIZATION, ENTRY)) is not None:
        return waiting
    return Enter(Phase.AWAITING_FINALIZATION)


def run_awaiting_finalization_phase(draft: Draft) -> Outcome:
    """Pure dual-write, the last exit: soak, and wait for the user's word in ``spec.target``."""
    broker_restarts.reassert_brokers(draft, BrokerMode.KRAFT)
    if (
        waiting := controller_change.roll_changed_controllers(draft)
        or healing.finish_failover(draft)
        or broker_restarts.roll_brokers(draft, BrokerMode.KRAFT)
        or healing.fail_over_stuck_mirror(draft)
    ) is not None:
        return waiting  # a failover is under way, or somebody took our fields back
    if (waiting := _soak(draft, draft.spec.strategy.pure_soak_seconds)) is not None:
        return waiting
    if draft.spec.target is not Target.KRAFT:
        message = "Brokers run KRaft and ZooKeeper is still written: set spec.target to KRaft to finalize (no way back), or to ZooKeeper to roll back"
        return _reached(message, Reason.AWAITING_USER)
    if blockers := (
        gates.broker_registration_blockers(draft)
        or gates.dual_write_blockers(draft)
        or gates.quorum_blockers(draft)
        or gates.cluster_blockers(draft)
    ):
        return Wait(f"before finalization: {blockers[0]}")
    # The run before this phase serves, as long as it is fresh; one per gate is enough and an old one is run anew.
    if (waiting := verifying.ensure_verdict(draft, Profile.DUAL_WRITE, Phase.AWAITING_FINALIZATION, ENTRY)) is not None:
        return waiting
    return Enter(Phase.FINALIZING)


def run_finalizing_phase(draft: Draft) -> Outcome:
    """Restart the controllers out of migration mode, the active one last: it writes the end of the migration into the log (KIP-866)."""
    controller_restarts.keep_controllers(draft, ControllerMode.FINAL)
    broker_restarts.reassert_brokers(draft, BrokerMode.KRAFT)
    operation = draft.status.operation
    of_controller = operation is not None and operation.kind is OperationKind.RESTART_CONTROLLER
    if not of_controller and (waiting := broker_restarts.roll_brokers(draft, BrokerMode.KRAFT)) is not None:
        return waiting  # somebody took our fields back
    if (waiting := controller_restarts.finish_controller_restart(draft, ControllerMode.FINAL)) is not None:
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
        if blockers := (gates.quorum_blockers(draft) or gates.cluster_blockers(draft)):
            return Wait(f"before the next controller restarts: {blockers[0]}")
        active = draft.observation.active_controller
        pending.sort(key=lambda p: (active is not None and p.ordinal == active.node_id, p.ordinal))
        return restarts.paused(draft) or controller_restarts.restart_controller(draft, pending[0])
    verifying.launch_ahead(draft, Profile.REPLICAS, Phase.COMPLETED, ENTRY)
    blockers = gates.quorum_blockers(draft) or gates.migration_state_blockers(draft, ZkMigrationState.POST_MIGRATION)
    blockers = blockers or gates.broker_registration_blockers(draft) or gates.cluster_blockers(draft)
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
    if (waiting := verifying.ensure_verdict(draft, Profile.REPLICAS, Phase.COMPLETED, ENTRY)) is not None:
        return waiting
    draft.update(hold_until=None, hold_reason="")
    return Enter(Phase.COMPLETED)


def run_completed_phase(draft: Draft) -> Outcome:
    """Give the StatefulSets back; ZooKeeper is the user's to stop. Then metadata.version, if one is asked for."""
    sets = draft.stateful_sets()
    if isinstance(sets, Unobserved):
        return Wait(str(sets), requeue_after=SLOW)
    draft.update(final_manifest=f"{draft.identity.name}-final-manifest-{draft.identity.uid[:UID_LENGTH]}")
    held = [s for s in sets if s.lock == draft.identity.lock]
    if len(held) == len(sets) and (waiting := broker_restarts.roll_brokers(draft, BrokerMode.KRAFT)) is not None:
        return waiting  # somebody took our fields back before the last of them were given back
    if held:
        # Both are repeated until the lock is seen gone, so neither is lost with an operator that dies here.
        draft.act(PublishFinalManifest())
        draft.act(ReleaseStatefulSet(held[0].name))
        return Wait(f"StatefulSet {held[0].name} is being given back")
    draft.update(given_back_at=draft.status.given_back_at or draft.now)
    if (waiting := metadata_version.ensure_version(draft)) is not None:
        return waiting
    manifest = f"ConfigMap {draft.status.final_manifest} shows what your next release should contain"
    return _reached(f"Migration complete: ZooKeeper is not used any more and can be stopped. {manifest}")


def _soak(step: StepContext, seconds: int) -> Wait | None:
    entered = next((h.entered_at for h in reversed(step.status.history) if h.left_at is None), step.now)
    until = entered + timedelta(seconds=seconds)
    return Wait(f"soaking until {until:%H:%M:%S} UTC", WaitKind.SOAK) if step.now < until else None


def _reached(message: str, reason: Reason = Reason.TARGET_REACHED) -> Wait:
    return Wait(message, WaitKind.USER, reason, requeue_after=SLOW)
