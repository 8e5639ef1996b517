"""The phases from Preflight to Completed: one ``run_…_phase`` each, in the order of `kraftbridge.models.phase.FORWARD`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from hashlib import sha256

from kraftbridge.models.catalogue import Code
from kraftbridge.models.conditions import ConditionType, Reason, condition
from kraftbridge.models.decision import (
    EventReason,
    EventType,
    PublishFinalManifest,
    PublishFindings,
    ReleaseStatefulSet,
)
from kraftbridge.models.observation import StatefulSetState, Unobserved, ZooKeeperState
from kraftbridge.models.phase import BrokerMode, ControllerMode, Phase, Target, ZkMigrationState
from kraftbridge.models.report import Profile
from kraftbridge.models.spec import HandOver
from kraftbridge.models.status import (
    UID_LENGTH,
    ControllersStatus,
    FindingsReport,
    FindingStatus,
    HandOverStatus,
    NodeStatus,
    OperationKind,
    WaitKind,
    controllers_name,
)
from kraftbridge.phases import (
    canary,
    certificates,
    gates,
    healing,
    metadata_version,
    originals,
    rehearsing,
    shared_settings,
    verifying,
)
from kraftbridge.phases.draft import QUORUM_IS_READY, SLOW, Draft, Enter, Outcome, StepContext, Wait, reached, soak
from kraftbridge.phases.nodes import controllers, restarts, rolls
from kraftbridge.phases.nodes.rolls import reconcile_nodes
from kraftbridge.phases.preflight import channel, dry_start
from kraftbridge.phases.preflight import findings as preflight
from kraftbridge.phases.preflight.kafka import taken_over
from kraftbridge.phases.preflight.rehearsal import CODES as REHEARSAL_CODES

MAXIMUM_FINDINGS = 100
"""Findings in status. One finding takes at most 2 KiB."""


def run_preflight_phase(draft: Draft) -> Outcome:
    """Collect the findings and continue without a blocking one. This phase changes nothing."""
    zookeeper, ids = draft.observation.zookeeper, draft.registered_broker_ids()
    copies_run = False
    draft.update(cluster_domain=draft.identity.cluster_domain)
    if (waiting := certificates.ensure_issued(draft)) is not None:
        return waiting
    if (waiting := channel.take_channel(draft)) is not None:
        draft.set_condition(ConditionType.PREFLIGHT_PASSED, "False", Reason.PROGRESSING, waiting.message)
        return waiting
    if isinstance(zookeeper, ZooKeeperState) and zookeeper.cluster_id and ids and dry_start.awaited(draft):
        dry_start.begin_dry_start(draft, ids, zookeeper.cluster_id)
        copies_run = True
    if copies_run and channel.is_guessed(draft) and not draft.status.findings:
        # What the findings say of the templates depends on the channel.
        draft.set_condition(ConditionType.PREFLIGHT_PASSED, "False", Reason.PROGRESSING, dry_start.UNDER_WAY)
        return Wait(dry_start.UNDER_WAY)
    found = preflight.findings(draft)
    _record_findings(draft, found)
    standing = preflight.blocking(found)
    if standing:
        repeated = None
        if isinstance(zookeeper, ZooKeeperState) and zookeeper.cluster_id and ids:
            dry_start.repeat_dry_start(draft, ids, zookeeper.cluster_id, standing)
        if all(f.code in REHEARSAL_CODES for f in standing):
            repeated = rehearsing.ensure_rehearsal(draft, blocking=True)
        first = standing[0]
        message = f"{len(standing)} blocking finding(s); {first.code} on {first.object}: {first.reason}. {first.fix}"
        if copies_run:
            message += f". {dry_start.UNDER_WAY}; more findings may follow"
        draft.set_condition(ConditionType.PREFLIGHT_PASSED, "False", Reason.FINDINGS, message)
        soon = SLOW if repeated is None else repeated.requeue_after
        return Wait(message, WaitKind.USER, Reason.FINDINGS, stalled=True, requeue_after=soon)
    if dry_start.awaited(draft):
        draft.set_condition(ConditionType.PREFLIGHT_PASSED, "False", Reason.PROGRESSING, dry_start.UNDER_WAY)
        return Wait(dry_start.UNDER_WAY)
    survey = draft.observation.survey
    settings = {} if isinstance(survey, Unobserved) else taken_over(survey, draft.observation.dry_start)
    if not isinstance(survey, Unobserved) and draft.status.broker_settings != settings:
        draft.update(broker_settings=settings)
        if draft.spec.rehearsal.enabled:
            return Wait("the settings that the controllers take over from the brokers were recorded")
    if (waiting := rehearsing.ensure_rehearsal(draft, blocking=False)) is not None:
        draft.set_condition(ConditionType.PREFLIGHT_PASSED, "False", Reason.PROGRESSING, waiting.message)
        return waiting
    channel.record_proof(draft)
    if channel.is_guessed(draft):
        return Wait(f"it is not proven that {draft.status.channel} reaches the brokers", stalled=True)
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
    if draft.spec.target is Target.PREFLIGHT:
        return reached("Preflight passed; set spec.target to QuorumReady or further to continue")
    name = controllers_name(draft.identity.name, draft.identity.uid, draft.status.attempt)
    draft.update(controllers=ControllersStatus(name=name, node_ids=draft.spec.controllers.node_ids))
    return Enter(Phase.PROVISIONING_QUORUM)


def _record_findings(draft: Draft, found: tuple[FindingStatus, ...]) -> None:
    """Record the findings in status; more than `MAXIMUM_FINDINGS` go to a ConfigMap, since etcd refuses objects of more than 1.5 MiB."""
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
    """Apply the controllers, wait for a stable quorum that is ready to migrate, and verify the ZooKeeper tree."""
    controllers.keep_controllers(draft, ControllerMode.MIGRATION)
    if draft.status.controllers is not None and draft.status.controllers.format_allowed:
        # Replace first: the controller whose restart is followed below may be the one that cannot start as configured.
        controllers.replace_outdated_controllers(draft)
    if (
        waiting := rolls.roll_changed_controllers(draft)
        or controllers.finish_controller_restart(draft, ControllerMode.MIGRATION)
    ) is not None:
        return waiting
    verifying.launch_ahead(draft, Profile.ZOOKEEPER, Phase.TAKING_OVER)
    blockers = gates.controllers_running_blockers(draft, ControllerMode.MIGRATION)
    pod, trouble = gates.controller_in_trouble(draft)
    if blockers:
        passing = "CrashLoop" in trouble or "Unschedulable" in trouble
        return Wait(f"pod {pod}: {trouble}" if pod else blockers[0], stalled=bool(trouble) and not passing)
    blockers = gates.quorum_blockers(draft) or gates.migration_state_blockers(draft, ZkMigrationState.PRE_MIGRATION)
    if blockers and isinstance(draft.observation.quorum, Unobserved):
        return Wait(f"waiting for an answer of the quorum's leader: {blockers[0]}")
    if blockers:
        return Wait(blockers[0])
    if (waiting := controllers.ensure_voters_registered(draft)) is not None:
        return waiting
    controllers.remember_volumes(draft)
    draft.set_condition(ConditionType.QUORUM_READY, "True", Reason.DONE, QUORUM_IS_READY)
    if (waiting := verifying.ensure_verdict(draft, Profile.ZOOKEEPER, Phase.TAKING_OVER)) is not None:
        return waiting
    if draft.spec.target is Target.QUORUM_READY:
        # On demand, and when what it judged has changed; an old one is repeated when the migration goes on.
        if (waiting := rehearsing.ensure_rehearsal(draft, blocking=False, ages=False)) is not None:
            return waiting
        return reached("The quorum is ready; set spec.target to DualWrite or further to continue")
    # The rehearsal is about what the copies and the brokers show now.
    if (waiting := _ensure_channel_reaches(draft) or shared_settings.wait_before_entering(draft)) is not None:
        return waiting
    standing = preflight.blocking(preflight.rehearsal_findings(draft))
    if (waiting := rehearsing.ensure_rehearsal(draft, blocking=bool(standing))) is not None:
        return waiting
    if standing:
        message = f"{standing[0].code} on {standing[0].object}: {standing[0].reason}. {standing[0].fix}"
        return Wait(message, WaitKind.USER, Reason.FINDINGS, stalled=True, requeue_after=SLOW)
    if blockers := gates.volume_blockers(draft) or gates.cluster_blockers(draft):
        return Wait(f"before any broker restarts: {blockers[0]}")
    return rolls.record_images(draft) or Enter(Phase.TAKING_OVER)


def _ensure_channel_reaches(draft: Draft) -> Wait | None:
    """Repeat the dry start if a pod template changed since preflight; the channel stays, and what is found closes the gate."""
    if not channel.outdated(draft):
        return None
    changed = "Before any broker restarts: a pod template of the brokers, or what it refers to, changed since preflight"
    if dry_start.awaited(draft):
        dry_start.begin_dry_start(draft, draft.status.broker_ids, draft.status.cluster_id or "")
        return Wait(f"{changed}. {dry_start.UNDER_WAY}")
    if standing := preflight.blocking(preflight.dry_start_findings(draft)):
        dry_start.repeat_dry_start(draft, draft.status.broker_ids, draft.status.cluster_id or "", standing)
        first = standing[0]
        fix = first.fix
        if first.code in (Code.CHANNEL_UNKNOWN, Code.DRY_START_OVERLAY_LOST):
            fix = f"The channel cannot change now ({draft.status.channel}): give the template its former content, or roll back (spec.target ZooKeeper) and start again"
        message = f"{changed}: {first.code} on {first.object}: {first.reason}. {fix}"
        return Wait(message, WaitKind.USER, Reason.FINDINGS, stalled=True, requeue_after=SLOW)
    channel.record_proof(draft)
    return None


def run_taking_over_phase(draft: Draft) -> Outcome:
    """Restart the brokers in migration mode; the controller copies the metadata once the last one registers (KIP-866)."""
    verifying.keep_watching(draft)
    if (waiting := reconcile_nodes(draft, BrokerMode.MIGRATION)) is not None:
        return waiting
    draft.set_condition(
        ConditionType.BROKERS_IN_MIGRATION_MODE,
        "True",
        Reason.DONE,
        "Every broker has registered with the quorum in migration mode",
    )
    if gates.dual_write_blockers(draft):
        return (
            controllers.ensure_voters_registered(draft)
            or healing.ensure_mirror_moves(draft)
            or Wait("the KRaft controller does not write ZooKeeper yet (dual-write)")
        )
    # Both at a time: the comparison takes seconds, and so does the change on its way.
    comparing, arriving = verifying.ensure_nothing_lost(draft), canary.prove_change_arrives(draft)
    verifying.launch_ahead(draft, Profile.DUAL_WRITE, Phase.ROLLING_BROKERS)
    if (waiting := arriving or comparing) is not None:
        return waiting
    verified = (
        f"its differences are accepted by spec.verification.acceptedCopy ({draft.spec.verification.accepted_copy})"
        if verifying.copy_accepted(draft)
        else "it lost nothing"
    )
    draft.set_condition(
        ConditionType.METADATA_MIGRATED,
        "True",
        Reason.DONE,
        f"The copy is complete and {verified}; a change made after it reached both stores and every broker",
    )
    return Enter(Phase.DUAL_WRITE)


def run_dual_write_phase(draft: Draft) -> Outcome:
    """Soak while ZooKeeper-mode brokers run under the KRaft controller, then verify both stores."""
    if (waiting := reconcile_nodes(draft, BrokerMode.MIGRATION)) is not None:
        return waiting
    verifying.launch_ahead(draft, Profile.DUAL_WRITE, Phase.ROLLING_BROKERS)
    if (waiting := healing.ensure_mirror_moves(draft)) is not None:
        return waiting
    if (waiting := canary.remove(draft)) is not None:
        return waiting
    if (waiting := soak(draft, draft.spec.strategy.hybrid_soak_seconds)) is not None:
        return waiting
    if (waiting := verifying.ensure_verdict(draft, Profile.DUAL_WRITE, Phase.ROLLING_BROKERS)) is not None:
        return waiting
    if draft.spec.target is Target.DUAL_WRITE:
        return reached("Both stores are written and equal; set spec.target to KRaftBrokers or KRaft to continue")
    if blockers := gates.quorum_blockers(draft) or gates.cluster_blockers(draft):
        return Wait(f"before any broker restarts: {blockers[0]}")
    return shared_settings.wait_before_entering(draft) or Enter(Phase.ROLLING_BROKERS)


def run_rolling_brokers_phase(draft: Draft) -> Outcome:
    """Restart the brokers in KRaft mode, one at a time, then verify both stores again."""
    if (waiting := reconcile_nodes(draft, BrokerMode.KRAFT)) is not None:
        return waiting
    verifying.launch_ahead(draft, Profile.DUAL_WRITE, Phase.AWAITING_FINALIZATION)
    if (waiting := healing.ensure_mirror_moves(draft)) is not None:
        return waiting
    if blockers := (gates.broker_registration_blockers(draft) or gates.cluster_blockers(draft)):
        return Wait(blockers[0])
    draft.set_condition(
        ConditionType.BROKERS_ON_KRAFT, "True", Reason.DONE, "Every broker is registered as a KRaft broker"
    )
    if (waiting := verifying.ensure_verdict(draft, Profile.DUAL_WRITE, Phase.AWAITING_FINALIZATION)) is not None:
        return waiting
    if blockers := gates.quorum_blockers(draft):
        return Wait(blockers[0])
    return Enter(Phase.AWAITING_FINALIZATION)


def run_awaiting_finalization_phase(draft: Draft) -> Outcome:
    """Soak while every broker runs KRaft and ZooKeeper is still written, then wait for ``spec.target`` KRaft."""
    if (waiting := reconcile_nodes(draft, BrokerMode.KRAFT) or healing.fail_over_stuck_mirror(draft)) is not None:
        return waiting
    if (waiting := soak(draft, draft.spec.strategy.pure_soak_seconds)) is not None:
        return waiting
    if draft.spec.target is not Target.KRAFT:
        message = "Brokers run KRaft and ZooKeeper is still written: set spec.target to KRaft to finalize (this cannot be rolled back), or to ZooKeeper to roll back"
        return reached(message, Reason.AWAITING_USER)
    if blockers := (
        gates.broker_registration_blockers(draft)
        or gates.dual_write_blockers(draft)
        or gates.quorum_blockers(draft)
        or gates.cluster_blockers(draft)
    ):
        return Wait(f"before finalization: {blockers[0]}")
    # The run that opened this phase opens this gate as well while its verdict is fresh.
    if (waiting := verifying.ensure_verdict(draft, Profile.DUAL_WRITE, Phase.AWAITING_FINALIZATION)) is not None:
        return waiting
    return shared_settings.wait_before_entering(draft) or Enter(Phase.FINALIZING)


def run_finalizing_phase(draft: Draft) -> Outcome:
    """Restart the controllers without migration mode, the active one last.

    The first active controller without ``zookeeper.metadata.migration.enable`` writes the end of the migration to the log (KIP-866).
    """
    controllers.keep_controllers(draft, ControllerMode.FINAL)
    rolls.reassert_brokers(draft, BrokerMode.KRAFT)
    operation = draft.status.operation
    of_controller = operation is not None and operation.kind is OperationKind.RESTART_CONTROLLER
    if not of_controller and (waiting := rolls.roll_brokers(draft, BrokerMode.KRAFT)) is not None:
        return waiting  # another writer changed the operator's fields
    if (waiting := controllers.finish_controller_restart(draft, ControllerMode.FINAL)) is not None:
        return waiting
    workload = draft.observation.controllers
    if isinstance(workload, Unobserved) or workload.stateful_set is None:
        return Wait(
            str(workload)
            if isinstance(workload, Unobserved)
            else "the controllers' StatefulSet does not exist; Finalizing needs it"
        )
    stateful_set = workload.stateful_set
    if not stateful_set.configuration.startswith(f"{ControllerMode.FINAL}-") or not stateful_set.observed:
        return Wait("the final configuration of the controllers is being applied")
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
        return restarts.paused(draft) or controllers.restart_controller(draft, pending[0])
    verifying.launch_ahead(draft, Profile.REPLICAS, Phase.COMPLETED)
    blockers = gates.quorum_blockers(draft) or gates.migration_state_blockers(draft, ZkMigrationState.POST_MIGRATION)
    blockers = blockers or gates.broker_registration_blockers(draft) or gates.cluster_blockers(draft)
    if blockers:
        # The controller fences a broker that cannot find the new leader only after broker.session.timeout.ms, so the hold restarts.
        draft.update(hold_until=None)
        return Wait(blockers[0])
    if draft.status.hold_until is None:
        seconds = draft.spec.strategy.session_timeout_hold_seconds
        draft.update(hold_until=draft.now + timedelta(seconds=seconds))
    if draft.status.hold_until is not None and draft.now < draft.status.hold_until:
        return Wait(
            "holding for longer than broker.session.timeout.ms, to see that every broker heartbeats to the new controllers",
            WaitKind.HOLD,
        )
    if (waiting := verifying.ensure_verdict(draft, Profile.REPLICAS, Phase.COMPLETED)) is not None:
        return waiting
    draft.update(hold_until=None, hold_reason="")
    return Enter(Phase.COMPLETED)


def run_completed_phase(draft: Draft) -> Outcome:
    """Release the StatefulSets, then roll changes of ``spec.controllers`` out and bring metadata.version to ``spec.metadataVersion``. The user stops ZooKeeper."""
    sets = draft.stateful_sets()
    if isinstance(sets, Unobserved):
        return Wait(str(sets), requeue_after=SLOW)
    draft.update(final_manifest=f"{draft.identity.name}-final-manifest-{draft.identity.uid[:UID_LENGTH]}")
    held = [s for s in sets if s.lock == draft.identity.lock]
    whole = len(held) == len(sets) and not originals.lost(draft)
    if whole and (waiting := rolls.roll_brokers(draft, BrokerMode.KRAFT)) is not None:
        return waiting  # another writer changed the operator's fields before the first release
    begin_guard(draft, sets)
    if held:
        # Both actions repeat until the lock is observed to be gone, so an operator that stops here loses neither.
        draft.act(PublishFinalManifest())
        draft.act(ReleaseStatefulSet(held[0].name))
        return Wait(f"StatefulSet {held[0].name} is being released")
    draft.update(given_back_at=draft.status.given_back_at or draft.now)
    if (waiting := follow_guard(draft, sets)) is not None:
        return waiting
    if (waiting := rolls.roll_changed_controllers(draft)) is not None:
        return waiting
    if (waiting := metadata_version.ensure_version(draft)) is not None:
        return waiting
    done = "Migration complete: no broker uses ZooKeeper any more, and you can stop it"
    return reached(". ".join(filter(None, (done, hand_over_summary(draft)))))


def begin_guard(draft: Draft, sets: Sequence[StatefulSetState]) -> None:
    """Record what each template needs, before the StatefulSets are given back: the admission policy reads it from status."""
    if draft.status.hand_over is not None:
        return
    known = tuple(s.required for s in sets if s.required is not None)
    if draft.spec.hand_over is HandOver.GUARD and len(known) != len(sets):
        unknown = next(s.name for s in sets if s.required is None)
        message = f"StatefulSet {unknown}: what its template needs for KRaft is not known, because its original state is not recorded"
        message = f"{message}. It is given back, and nothing refuses a template without it"
        former = condition(draft.status.conditions, ConditionType.HANDED_OVER)
        if former is None or former.reason is not Reason.NOT_GUARDED:
            draft.tell(EventReason.ALARM, message, EventType.WARNING)
        draft.set_condition(ConditionType.HANDED_OVER, "False", Reason.NOT_GUARDED, message)
        return
    draft.update(hand_over=HandOverStatus(guarded=draft.spec.hand_over is HandOver.GUARD, stateful_sets=known))


def follow_guard(draft: Draft, sets: Sequence[StatefulSetState]) -> Wait | None:
    """End the guard when the owners render KRaft or the user releases it; return the alarm while a template lacks something."""
    known = draft.status.hand_over
    if known is None or known.ended_at is not None:
        return None
    if draft.spec.hand_over is HandOver.RELEASE:
        _end(draft, known, Reason.RELEASED, "spec.handOver is Release: no pod template is refused any more")
        return None
    missing = tuple(f"StatefulSet {s.name}: {what}" for s in sets for what in s.lacking)
    if missing != known.missing:
        draft.update(hand_over=known.model_copy(update={"missing": missing}))
    if missing:
        return _raise_alarm(draft, sets, missing)
    if all(s.owner_renders for s in sets):
        _end(draft, known, Reason.DONE, "The owner of every StatefulSet of brokers renders what KRaft needs")
        return None
    values = f"Put what ConfigMap {draft.status.final_manifest} shows into the next release of the brokers; set spec.handOver to Release when that is done"
    if draft.observation.admission_policy is True:
        message = f"The admission policy refuses a pod template of the brokers that lacks what KRaft needs. {values}"
        draft.set_condition(ConditionType.HANDED_OVER, "False", Reason.GUARDED, message)
    else:
        message = f"No admission policy refuses a pod template of the brokers that lacks what KRaft needs. {values}"
        draft.set_condition(ConditionType.HANDED_OVER, "False", Reason.NOT_GUARDED, message)
    return None


def hand_over_summary(step: StepContext) -> str:
    """Return what is left to hand over, for the message of a completed migration."""
    found = condition(step.status.conditions, ConditionType.HANDED_OVER)
    return "" if found is None or found.status == "True" else found.message


def _end(draft: Draft, known: HandOverStatus, reason: Reason, message: str) -> None:
    draft.update(hand_over=known.model_copy(update={"guarded": False, "missing": (), "ended_at": draft.now}))
    draft.set_condition(ConditionType.HANDED_OVER, "True", reason, message)


def _raise_alarm(draft: Draft, sets: Sequence[StatefulSetState], missing: tuple[str, ...]) -> Wait:
    writers = sorted({s.last_writer for s in sets if s.lacking and s.last_writer})
    by = f" (last written by {', '.join(writers)})" if writers else ""
    message = (
        f"The pod template of the brokers lacks what KRaft needs{by}: {'; '.join(missing)}. A broker that restarts with it leaves the cluster. Put back what ConfigMap "
        f"{draft.status.final_manifest} shows; set spec.handOver to Release if Kafka gets these settings in another way"
    )
    former = condition(draft.status.conditions, ConditionType.HANDED_OVER)
    if former is None or former.reason is not Reason.TEMPLATE_NOT_KRAFT:
        draft.tell(EventReason.ALARM, message, EventType.WARNING)
    draft.set_condition(ConditionType.HANDED_OVER, "False", Reason.TEMPLATE_NOT_KRAFT, message)
    return Wait(message, WaitKind.USER, Reason.TEMPLATE_NOT_KRAFT, stalled=True, requeue_after=SLOW)
