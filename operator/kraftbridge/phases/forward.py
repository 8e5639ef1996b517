"""The phases from Preflight to Completed: one ``run_…_phase`` each, in the order of `models.phase.FORWARD`. Pure.

The way on to Kafka 4 is in `to_kafka4`.

Each is a chain of steps.
A step returns what the phase waits for, or None once it is done; the first wait ends the chain.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

from kraftbridge.constants import UID_LENGTH
from kraftbridge.models.catalogue import Code
from kraftbridge.models.conditions import ConditionType, Reason
from kraftbridge.models.decision import PublishFinalManifest, PublishFindings, ReleaseStatefulSet
from kraftbridge.models.observation import PodState, StatefulSetState, Unobserved, ZooKeeperState
from kraftbridge.models.phase import BrokerMode, ControllerMode, Phase, Target, ZkMigrationState
from kraftbridge.models.report import Profile
from kraftbridge.models.status import (
    ControllersStatus,
    FindingsReport,
    FindingStatus,
    NodeStatus,
    OperationKind,
    WaitKind,
    controllers_name,
    first,
)
from kraftbridge.phases import (
    canary,
    certificates,
    cleaning,
    features,
    gates,
    hand_over,
    healing,
    metadata_version,
    originals,
    reaching,
    rehearsing,
    rests,
    roll_plan,
    shared_settings,
    to_kafka4,
    topic_ids,
    upgrading,
    verifying,
)
from kraftbridge.phases.draft import (
    QUORUM_IS_READY,
    SLOW,
    SOON,
    Draft,
    Enter,
    Outcome,
    StepContext,
    Wait,
    for_user,
    reached,
    soak,
)
from kraftbridge.phases.nodes import address_caches, controllers, converging, restarts, rolls, templates
from kraftbridge.phases.nodes.converging import Pace
from kraftbridge.phases.nodes.rolls import reconcile_nodes
from kraftbridge.phases.preflight import channel, dry_start
from kraftbridge.phases.preflight import findings as preflight
from kraftbridge.phases.preflight.kafka import taken_over
from kraftbridge.phases.preflight.rehearsal import CODES as REHEARSAL_CODES

MAXIMUM_FINDINGS = 100
"""Findings in status. One finding takes at most 2 KiB."""


# ------------------------------------------------------------------------------------------ steps of several phases


def _closed(step: StepContext, before: str, *gates_in_order: Callable[[StepContext], list[str]]) -> Wait | None:
    """Return the wait for the first gate that is closed, with what it comes before; None if all are open."""
    for blockers_of in gates_in_order:
        if blockers := blockers_of(step):
            return Wait(f"{before}{blockers[0]}")
    return None


def _ends_at(step: StepContext, target: Target, message: str) -> Wait | None:
    """Return the rest of a migration whose user goes no further than ``target``."""
    return reached(message) if step.spec.target is target else None


def _begin_verifying(draft: Draft, profile: Profile, gate: Phase) -> Wait | None:
    """Launch the verification of a gate before the gate is reached, and wait for nothing."""
    verifying.launch_ahead(draft, profile, gate)
    return None


def _note(draft: Draft, kind: ConditionType, message: str) -> Wait | None:
    """Set a milestone, and wait for nothing."""
    draft.set_condition(kind, "True", Reason.DONE, message)
    return None


# -------------------------------------------------------------------------------------------------------- Preflight


def run_preflight_phase(draft: Draft) -> Outcome:
    """Collect the findings and continue without a blocking one. This phase changes nothing."""
    draft.update(cluster_domain=draft.identity.cluster_domain)
    upgrading.take_upgrade(draft)
    address_caches.take_address_caches(draft)
    roll_plan.take_plan(draft)
    return (
        certificates.ensure_issued(draft)
        or _note_progress(draft, channel.take_channel(draft))
        or _judge(draft)
        or _record_nodes(draft)
        or _ends_at(draft, Target.PREFLIGHT, "Preflight passed; set spec.target to QuorumReady or further to continue")
        or _conclude_preflight(draft)
    )


def _conclude_preflight(draft: Draft) -> Outcome:
    upgrading.record_images(draft)
    following = upgrading.follows_preflight(draft)
    if following is Phase.PROVISIONING_QUORUM:
        _record_controllers(draft)
    return Enter(following)


def _note_progress(draft: Draft, waiting: Wait | None) -> Wait | None:
    """Return the wait, and show it in the condition ``PreflightPassed``."""
    if waiting is not None:
        draft.set_condition(ConditionType.PREFLIGHT_PASSED, "False", Reason.PROGRESSING, waiting.message)
    return waiting


def _judge(draft: Draft) -> Wait | None:
    """Return None once nothing that was found blocks the migration."""
    copies_run = _begin_dry_start(draft)
    if copies_run and channel.is_guessed(draft) and not draft.status.findings:
        # What the findings say of the templates depends on the channel.
        return _note_progress(draft, Wait(dry_start.under_way(draft)))
    findings = preflight.findings(draft)
    _record_findings(draft, findings)
    if standing := preflight.blocking(findings):
        return _hold_for_findings(draft, standing, copies_run=copies_run)
    if dry_start.awaited(draft):
        return _note_progress(draft, Wait(dry_start.under_way(draft)))
    return (
        _note_progress(draft, upgrading.wait_until_known(draft))
        or _record_settings(draft)
        or _note_progress(draft, _follow_rehearsal(draft, blocking=False))
        or _prove_channel(draft)
        or _note_passed(draft, sum(finding.accepted for finding in findings))
    )


def _cluster_id(step: StepContext) -> str:
    """Return the cluster's id once ZooKeeper tells it, and it is known or can be found out which pod has which broker.

    A dry start begins with both.
    """
    zookeeper = step.observation.zookeeper
    if not isinstance(zookeeper, ZooKeeperState):
        return ""
    if not step.registered_broker_ids() and not dry_start.may_show_ids(step):
        return ""
    return zookeeper.cluster_id or ""


def _begin_dry_start(draft: Draft) -> bool:
    """Begin or continue the dry start of every broker; return whether its copies run."""
    cluster_id = _cluster_id(draft)
    if not cluster_id or not dry_start.awaited(draft):
        return False
    dry_start.begin_dry_start(draft, draft.registered_broker_ids(), cluster_id)
    return True


def _hold_for_findings(draft: Draft, standing: tuple[FindingStatus, ...], *, copies_run: bool) -> Wait:
    """Return the wait for the user, who must mend the blocking findings. What judges them is repeated meanwhile."""
    if cluster_id := _cluster_id(draft):
        dry_start.repeat_dry_start(draft, draft.registered_broker_ids(), cluster_id, standing)
    requeue_after = SLOW
    if all(finding.code in REHEARSAL_CODES for finding in standing) and not dry_start.awaited(draft):
        repeated = _record_settings(draft) or _follow_rehearsal(draft, blocking=True)
        requeue_after = SLOW if repeated is None else repeated.requeue_after
    first = standing[0]
    message = f"{len(standing)} blocking finding(s); {first.code} on {first.object}: {first.reason}. {first.fix}"
    if copies_run:
        message += f". {dry_start.under_way(draft)}; more findings may follow"
    if dry_start.is_running(draft):
        requeue_after = SOON
    draft.set_condition(ConditionType.PREFLIGHT_PASSED, "False", Reason.FINDINGS, message)
    return Wait(message, WaitKind.USER, Reason.FINDINGS, stalled=True, requeue_after=requeue_after)


def _follow_rehearsal(draft: Draft, *, blocking: bool) -> Wait | None:
    """Rehearse in preflight; where topics have no ids yet, Kafka copies none, and it is done before the takeover.

    Parameters
    ----------
    blocking
        Whether a finding of the last rehearsal stands.
    """
    if upgrading.lifts_alone(draft.status):
        return None
    return rehearsing.ensure_rehearsal(draft, blocking=blocking, ages=blocking or not rests.is_here(draft))


def _record_settings(draft: Draft) -> Wait | None:
    """Record the settings that the controllers take over from the brokers; a rehearsal judges what is on record."""
    survey = draft.observation.survey
    if isinstance(survey, Unobserved):
        return None
    settings = taken_over(survey, draft.observation.dry_start)
    if draft.status.broker_settings == settings:
        return None
    draft.update(broker_settings=settings)
    if not draft.spec.rehearsal.enabled:
        return None
    return Wait("the settings that the controllers take over from the brokers were recorded")


def _prove_channel(draft: Draft) -> Wait | None:
    channel.record_proof(draft)
    if not channel.is_guessed(draft):
        return None
    return Wait(f"it is not proven that {draft.status.channel} reaches the brokers", stalled=True)


def _note_passed(draft: Draft, accepted: int) -> Wait | None:
    message = f"No blocking finding; {accepted} accepted by the user"
    draft.set_condition(ConditionType.PREFLIGHT_PASSED, "True", Reason.PASSED, message)
    return None


def _record_nodes(draft: Draft) -> Wait | None:
    """Record the cluster's id and its brokers, which this migration is about from now on."""
    zookeeper = draft.observation.zookeeper
    stateful_sets = draft.stateful_sets()
    if not isinstance(zookeeper, ZooKeeperState) or isinstance(stateful_sets, Unobserved):
        return Wait("the cluster could not be observed")
    broker_ids = draft.registered_broker_ids()
    nodes = [
        _broker_node(broker_ids[pod.name], stateful_set, pod)
        for stateful_set in stateful_sets
        for pod in stateful_set.pods
    ]
    nodes.sort(key=lambda node: node.id)
    draft.update(cluster_id=zookeeper.cluster_id, broker_ids=broker_ids, nodes=tuple(nodes))
    return None


def _broker_node(broker_id: int, stateful_set: StatefulSetState, pod: PodState) -> NodeStatus:
    return NodeStatus(
        id=broker_id,
        role="broker",
        pod=pod.name,
        stateful_set=stateful_set.name,
        mode=BrokerMode.ZOOKEEPER,
        ready=pod.ready,
    )


def _record_controllers(draft: Draft) -> Wait | None:
    name = controllers_name(draft.identity.name, draft.identity.uid, draft.status.attempt)
    draft.update(controllers=ControllersStatus(name=name, node_ids=draft.spec.controllers.node_ids))
    return None


def _record_findings(draft: Draft, found: tuple[FindingStatus, ...]) -> None:
    """Record the findings; more than `MAXIMUM_FINDINGS` go to a ConfigMap, since etcd refuses more than 1.5 MiB."""
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


# ------------------------------------------------------------------------------------------------- UpgradingBrokers


def run_upgrading_brokers_phase(draft: Draft) -> Outcome:
    """Restart the brokers with the image of ``spec.brokers.upgrade``, on ZooKeeper and with the protocol that ran.

    A protocol without topic ids is lifted here, in a second rolling restart. It begins once the target lies further,
    so that a migration that ends at the bridge release can give the former image back.
    """
    return (
        _roll_to_bridge(draft)
        or _rest_before_lift(draft)
        or _ensure_protocol_lifted(draft)
        or _ends_at(draft, Target.BRIDGE_RELEASE, _ON_BRIDGE)
        or _closed(draft, "before the controllers are created: ", gates.cluster_blockers)
        or _record_controllers(draft)
        or Enter(Phase.PROVISIONING_QUORUM)
    )


_ON_BRIDGE = "Every broker runs Kafka 3.9; set spec.target to QuorumReady or further to continue"


def _rest_before_lift(step: StepContext) -> Wait | None:
    """Return the rest of a migration that ends at the bridge release, unless the protocol is being lifted already."""
    if not upgrading.lifts_alone(step.status) or upgrading.is_lifting(step.status):
        return None
    return _ends_at(
        step,
        Target.BRIDGE_RELEASE,
        f"{_ON_BRIDGE}. A second rolling restart then lifts inter.broker.protocol.version, "
        "once spec.rollback.giveUpFormerImage is true",
    )


def _ensure_protocol_lifted(draft: Draft) -> Wait | None:
    """Return None once every broker runs 3.9's protocol and keeps the ids of its topics, where they have none yet."""
    if not upgrading.lifts_alone(draft.status):
        return None
    rolls.reassert_brokers(draft, BrokerMode.LIFTED)
    return (
        upgrading.wait_for_word(draft)
        or rolls.roll_brokers(draft, BrokerMode.LIFTED)
        or _closed(draft, "", gates.cluster_blockers)
        or topic_ids.wait(draft, "before the controllers are created")
        or _ensure_served(draft)
    )


def _roll_to_bridge(draft: Draft) -> Wait | None:
    """Return None once every broker runs the image to which it is brought, or keeps its own."""
    if not upgrading.is_needed(draft.status) or upgrading.is_lifting(draft.status):
        return None
    rolls.reassert_brokers(draft, BrokerMode.UPGRADED)
    return (
        _record_before_upgrade(draft)
        or rolls.roll_brokers(draft, BrokerMode.UPGRADED)
        or _closed(draft, "", gates.cluster_blockers)
        or _ensure_served(draft, _BEFORE_LIFT if upgrading.lifts_alone(draft.status) else verifying.ENTRY)
    )


_BEFORE_LIFT = "before-lift"
"""Purpose of the verification between two rolling restarts; the one after both opens the gate."""
_HEARTBEATS = (
    "holding for longer than broker.session.timeout.ms, to see that every broker heartbeats to the new controllers"
)


def _ensure_served(draft: Draft, purpose: str = verifying.ENTRY) -> Wait | None:
    """Return None once it is known that every broker serves what ZooKeeper holds, after a rolling restart."""
    return rests.ensure_verdict(draft, Profile.UPGRADE, Phase.PROVISIONING_QUORUM, purpose)


def _record_before_upgrade(draft: Draft) -> Wait | None:
    """Return None once every broker serves what ZooKeeper holds, and what they run and would start from is recorded."""
    if draft.status.templates:
        return None
    waiting = _take_upgrade_anew(draft) or _ensure_channel_reaches(draft)
    if waiting is not None:
        return waiting
    upgrading.record_images(draft)
    return (
        verifying.ensure_verdict(draft, Profile.UPGRADE, Phase.UPGRADING_BROKERS)
        or rolls.record_images(draft)
        or templates.record_templates(draft)
    )


def _take_upgrade_anew(draft: Draft) -> Wait | None:
    """Return None once every broker tells that it runs the protocol on record: the brokers keep that one."""
    sets = draft.stateful_sets()
    if isinstance(sets, Unobserved) or any(stateful_set.configuration for stateful_set in sets):
        return None  # a template renders it already, and brokers may have restarted with it
    known = draft.status.broker_upgrade
    upgrading.take_upgrade(draft)
    if draft.status.broker_upgrade != known:
        return Wait("the brokers run another inter.broker.protocol.version than in preflight, which was recorded")
    return upgrading.wait_until_known(draft)


# ----------------------------------------------------------------------------------------------- ProvisioningQuorum


def run_provisioning_quorum_phase(draft: Draft) -> Outcome:
    """Apply the controllers, wait for a stable quorum that is ready to migrate, and verify the ZooKeeper tree."""
    if draft.status.controllers is not None and draft.status.controllers.format_allowed:
        # First: the controller whose restart is followed below may be the one that cannot start as configured.
        converging.reconcile_controllers(draft, Pace.ALL)
    return (
        _keep_upgraded(draft)
        or rolls.roll_changed_controllers(draft)
        or controllers.finish_controller_restart(draft, ControllerMode.MIGRATION)
        or _begin_verifying(draft, Profile.ZOOKEEPER, Phase.TAKING_OVER)
        or _controllers_start(draft)
        or _quorum_forms(draft)
        or controllers.ensure_voters_registered(draft)
        or _record_quorum(draft)
        or rests.ensure_verdict(draft, Profile.ZOOKEEPER, Phase.TAKING_OVER)
        or _hold_at_quorum(draft)
        or upgrading.wait_for_word(draft)
        # The rehearsal is about what the copies and the brokers show now.
        or _ensure_channel_reaches(draft)
        or shared_settings.wait_before_entering(draft)
        or _ensure_rehearsed(draft)
        or _closed(draft, "before any broker restarts: ", gates.volume_blockers, gates.cluster_blockers)
        or topic_ids.wait(draft, "before any broker restarts in migration mode")
        or reaching.wait_before_restart(draft)
        or rolls.record_images(draft)
        or templates.record_templates(draft)
        or Enter(Phase.TAKING_OVER)
    )


def _keep_upgraded(draft: Draft) -> Wait | None:
    """Keep the templates of brokers that were brought to another image: one that starts by itself takes its own."""
    if not upgrading.is_needed(draft.status):
        return None
    return rolls.ensure_configured(draft, upgrading.bridge_mode(draft.status))


def _controllers_start(step: StepContext) -> Wait | None:
    blockers = gates.controllers_running_blockers(step, ControllerMode.MIGRATION)
    if not blockers:
        return None
    pod = gates.controller_in_trouble(step)
    if pod is None or pod.problem is None:
        return Wait(blockers[0])
    return Wait(f"pod {pod.name}: {pod.trouble}", stalled=not pod.problem.may_pass)


def _quorum_forms(step: StepContext) -> Wait | None:
    blockers = gates.quorum_blockers(step) or gates.migration_state_blockers(step, ZkMigrationState.PRE_MIGRATION)
    if blockers and isinstance(step.observation.quorum, Unobserved):
        return Wait(f"waiting for an answer of the quorum's leader: {blockers[0]}")
    return Wait(blockers[0]) if blockers else None


def _record_quorum(draft: Draft) -> Wait | None:
    controllers.remember_volumes(draft)
    return _note(draft, ConditionType.QUORUM_READY, QUORUM_IS_READY)


def _hold_at_quorum(draft: Draft) -> Wait | None:
    if draft.spec.target is not Target.QUORUM_READY:
        return None
    # On demand, and when what it judged has changed; an old one is repeated when the migration goes on.
    return rehearsing.ensure_rehearsal(draft, blocking=False, ages=False) or reached(
        f"The quorum is ready; set spec.target to DualWrite or further to continue{reaching.closed(draft)}"
    )


def _ensure_rehearsed(draft: Draft) -> Wait | None:
    standing = preflight.blocking(preflight.rehearsal_findings(draft))
    if (waiting := rehearsing.ensure_rehearsal(draft, blocking=bool(standing))) is not None:
        return waiting
    if not standing:
        return None
    first = standing[0]
    return for_user(first.sentence)


def _ensure_channel_reaches(draft: Draft) -> Wait | None:
    """Repeat the dry start if what the copies start from changed since preflight; the channel stays."""
    if not channel.outdated(draft):
        return None
    changed = (
        "Before any broker restarts: a pod template of the brokers, what it refers to, "
        "or an image that they run changed since preflight"
    )
    if dry_start.awaited(draft):
        dry_start.begin_dry_start(draft, draft.status.broker_ids, draft.status.cluster_id or "")
        return Wait(f"{changed}. {dry_start.under_way(draft)}")
    if standing := preflight.blocking(preflight.dry_start_findings(draft)):
        dry_start.repeat_dry_start(draft, draft.status.broker_ids, draft.status.cluster_id or "", standing)
        requeue_after = SOON if dry_start.is_running(draft) else SLOW
        first = standing[0]
        fix = first.fix
        if first.code in (Code.CHANNEL_UNKNOWN, Code.DRY_START_OVERLAY_LOST):
            fix = (
                f"The channel cannot change now ({draft.status.channel}): give the template its former content, "
                "or roll back (spec.target ZooKeeper) and start again"
            )
        if first.code in (Code.UPGRADE_IMAGE_NOT_BRIDGE, Code.UPGRADE_NOT_PROVEN):
            fix = (
                "spec.brokers.upgrade cannot change now: let its tag name the image again that preflight has judged, "
                "or roll back (spec.target ZooKeeper) and start again. Copies are started anew every minute"
            )
        message = f"{changed}: {first.code} on {first.object}: {first.reason}. {fix}"
        return Wait(message, WaitKind.USER, Reason.FINDINGS, stalled=True, requeue_after=requeue_after)
    channel.record_proof(draft)
    return None


# ------------------------------------------------------------------------------------------------------- TakingOver


def run_taking_over_phase(draft: Draft) -> Outcome:
    """Restart the brokers in migration mode; the controller copies once the last one registers (KIP-866)."""
    verifying.keep_watching(draft)
    return (
        reconcile_nodes(draft, BrokerMode.MIGRATION)
        or _note(
            draft,
            ConditionType.BROKERS_IN_MIGRATION_MODE,
            "Every broker has registered with the quorum in migration mode",
        )
        or _follow_copy(draft)
        or _prove_copy(draft)
        or Enter(Phase.DUAL_WRITE)
    )


def _follow_copy(draft: Draft) -> Wait | None:
    if not gates.dual_write_blockers(draft):
        return None
    return (
        controllers.ensure_voters_registered(draft)
        or healing.ensure_mirror_moves(draft)
        or Wait("the KRaft controller does not write ZooKeeper yet (dual-write)")
    )


def _prove_copy(draft: Draft) -> Wait | None:
    """Compare the copy with what was copied, and see a change arrive in both stores and at every broker."""
    # Both at a time: the comparison takes seconds, and so does the change on its way.
    comparing = verifying.ensure_nothing_lost(draft)
    arriving = canary.prove_change_arrives(draft)
    verifying.launch_ahead(draft, Profile.DUAL_WRITE, Phase.ROLLING_BROKERS)
    if (waiting := arriving or comparing) is not None:
        return waiting
    verified = "it lost nothing"
    if verifying.copy_accepted(draft):
        accepted = draft.spec.verification.accepted_copy
        verified = f"its differences are accepted by spec.verification.acceptedCopy ({accepted})"
    _note(
        draft,
        ConditionType.METADATA_MIGRATED,
        f"The copy is complete and {verified}; a change made after it reached both stores and every broker",
    )
    return None


# ------------------------------------------------------------------ DualWrite, RollingBrokers, AwaitingFinalization


def run_dual_write_phase(draft: Draft) -> Outcome:
    """Soak while ZooKeeper-mode brokers run under the KRaft controller, then verify both stores."""
    return (
        reconcile_nodes(draft, BrokerMode.MIGRATION)
        or _begin_verifying(draft, Profile.DUAL_WRITE, Phase.ROLLING_BROKERS)
        or healing.ensure_mirror_moves(draft)
        or canary.remove(draft)
        or soak(draft, draft.spec.strategy.hybrid_soak_seconds)
        or rests.ensure_verdict(draft, Profile.DUAL_WRITE, Phase.ROLLING_BROKERS)
        or _ends_at(
            draft,
            Target.DUAL_WRITE,
            "Both stores are written and equal; set spec.target to KRaftBrokers or KRaft to continue",
        )
        or _closed(draft, "before any broker restarts: ", gates.quorum_blockers, gates.cluster_blockers)
        or shared_settings.wait_before_entering(draft)
        or Enter(Phase.ROLLING_BROKERS)
    )


def run_rolling_brokers_phase(draft: Draft) -> Outcome:
    """Restart the brokers in KRaft mode, one at a time, then verify both stores again."""
    return (
        reconcile_nodes(draft, BrokerMode.KRAFT)
        or _begin_verifying(draft, Profile.DUAL_WRITE, Phase.AWAITING_FINALIZATION)
        or healing.ensure_mirror_moves(draft)
        or _closed(draft, "", gates.broker_registration_blockers, gates.cluster_blockers)
        or _note(draft, ConditionType.BROKERS_ON_KRAFT, "Every broker is registered as a KRaft broker")
        or verifying.ensure_verdict(draft, Profile.DUAL_WRITE, Phase.AWAITING_FINALIZATION)
        or _closed(draft, "", gates.quorum_blockers)
        or Enter(Phase.AWAITING_FINALIZATION)
    )


def run_awaiting_finalization_phase(draft: Draft) -> Outcome:
    """Soak while every broker runs KRaft and ZooKeeper is still written, then wait for ``spec.target`` KRaft."""
    return (
        reconcile_nodes(draft, BrokerMode.KRAFT)
        or healing.fail_over_stuck_mirror(draft)
        or soak(draft, draft.spec.strategy.pure_soak_seconds)
        or _hold_for_the_word(draft)
        or _closed(
            draft,
            "before finalization: ",
            gates.broker_registration_blockers,
            gates.dual_write_blockers,
            gates.quorum_blockers,
            gates.cluster_blockers,
        )
        # The run that opened this phase opens this gate as well while its verdict is fresh.
        or verifying.ensure_verdict(draft, Profile.DUAL_WRITE, Phase.AWAITING_FINALIZATION)
        or shared_settings.wait_before_entering(draft)
        or Enter(Phase.FINALIZING)
    )


def _hold_for_the_word(draft: Draft) -> Wait | None:
    """Wait for the user, whose word alone leads to what cannot be taken back."""
    if draft.spec.target is Target.KRAFT:
        return None
    # The run that opened this phase is the first verdict of its rest.
    if (waiting := rests.ensure_verdict(draft, Profile.DUAL_WRITE, Phase.AWAITING_FINALIZATION)) is not None:
        return waiting
    message = (
        "Brokers run KRaft and ZooKeeper is still written: set spec.target to KRaft to finalize "
        "(this cannot be rolled back), or to ZooKeeper to roll back"
    )
    return reached(message, Reason.AWAITING_USER)


# ------------------------------------------------------------------------------------------------------- Finalizing


def run_finalizing_phase(draft: Draft) -> Outcome:
    """Restart the controllers without migration mode, the active one last.

    The first active controller without ``zookeeper.metadata.migration.enable`` writes the end of the migration
    to the log (KIP-866).
    """
    converging.record_mode(draft, ControllerMode.FINAL)
    rolls.reassert_brokers(draft, BrokerMode.KRAFT)
    return (
        rolls.reconcile_controllers_in_trouble(draft)
        or _reassert_templates(draft)
        or controllers.finish_controller_restart(draft, ControllerMode.FINAL)
        or _restart_controllers(draft)
        or _begin_verifying(draft, Profile.REPLICAS, Phase.COMPLETED)
        or _follow_end_of_migration(draft)
        or restarts.hold_for_heartbeats(draft, _HEARTBEATS)
        or verifying.ensure_verdict(draft, Profile.REPLICAS, Phase.COMPLETED)
        or restarts.end_hold(draft)
        or Enter(Phase.COMPLETED)
    )


def _reassert_templates(draft: Draft) -> Wait | None:
    """Roll a broker whose fields another writer changed; not while a controller restarts."""
    operation = draft.status.operation
    if operation is not None and operation.kind is OperationKind.RESTART_CONTROLLER:
        return None
    return rolls.roll_brokers(draft, BrokerMode.KRAFT)


def _restart_controllers(draft: Draft) -> Wait | None:
    """Restart the controllers that do not run the final configuration yet."""
    lack = converging.reconcile_controllers(draft, Pace.NEXT)
    if lack is None or lack.serving is None:
        return None if lack is None else Wait(lack.words)
    return (
        _closed(draft, "before the next controller restarts: ", gates.quorum_blockers, gates.cluster_blockers)
        or certificates.roll_blocker(draft)
        or restarts.paused(draft)
        # The session starts while the controllers do.
        or _begin_verifying(draft, Profile.REPLICAS, Phase.COMPLETED)
        or controllers.restart_controller(draft, lack.serving)
    )


def _follow_end_of_migration(draft: Draft) -> Wait | None:
    """Wait until every controller says that the migration has ended, and every broker is registered and serves."""
    blockers = (
        gates.quorum_blockers(draft)
        or gates.migration_state_blockers(draft, ZkMigrationState.POST_MIGRATION)
        or gates.broker_registration_blockers(draft)
        or gates.cluster_blockers(draft)
    )
    if not blockers:
        return None
    # The controller fences a broker that cannot find the new leader only after broker.session.timeout.ms:
    # the hold restarts.
    draft.update(hold_until=None)
    return Wait(blockers[0])


# -------------------------------------------------------------------------------------------------------- Completed


def run_completed_phase(draft: Draft) -> Outcome:
    """Release the StatefulSets, then roll changes of ``spec.controllers`` out and keep ``spec.metadataVersion``.

    The user stops ZooKeeper. ``spec.target`` Kafka4 leads on.
    """
    if draft.spec.target is not Target.KAFKA4:
        to_kafka4.drop_wish(draft)
    asked = draft.spec.brokers.upgrade
    hand_over.note_image(draft, asked.image if asked is not None and upgrading.is_needed(draft.status) else "")
    return _run_given_back(draft, BrokerMode.KRAFT, _conclude_completed)


def _conclude_completed(draft: Draft) -> Outcome:
    if (waiting := metadata_version.ensure_version(draft)) is not None:
        return waiting
    return to_kafka4.ensure_prepared(draft) if draft.spec.target is Target.KAFKA4 else _rest_completed(draft)


def run_kafka4_phase(draft: Draft) -> Outcome:
    """Give the StatefulSets back with Kafka 4, and raise the features on the user's word, which ends the way back."""
    if (turning := to_kafka4.enter_way_back(draft)) is not None:
        return turning
    leg = draft.status.kafka4_leg
    hand_over.note_image(draft, "" if leg is None else leg.image)
    return _run_given_back(draft, BrokerMode.KAFKA4, _conclude_kafka4)


def _conclude_kafka4(draft: Draft) -> Outcome:
    return features.ensure_features(draft) or _rest_kafka4(draft)


def _rest_kafka4(step: StepContext) -> Wait:
    leg = step.status.kafka4_leg
    release = "" if leg is None else f" {leg.release}"
    message = f"Every controller and broker runs Kafka{release}; {features.summary(step)}"
    left_to_do = hand_over.summary(step)
    return reached(f"{message}. {left_to_do}" if left_to_do else message)


def _run_given_back(draft: Draft, mode: BrokerMode, conclude: Callable[[Draft], Outcome]) -> Outcome:
    """Give the StatefulSets back, keep guard and controllers, and then conclude.

    Parameters
    ----------
    draft
        Decision of this step.
    mode
        Mode in which the brokers are given back.
    conclude
        What follows once nothing restarts.
    """
    stateful_sets = draft.stateful_sets()
    if isinstance(stateful_sets, Unobserved):
        # What became of the brokers, which their owner has back, keeps nothing from the controllers.
        rolling = rolls.roll_changed_controllers(draft) if draft.status.given_back_at is not None else None
        return rolling or Wait(str(stateful_sets), requeue_after=SLOW)
    draft.update(final_manifest=f"{draft.identity.name}-final-manifest-{draft.identity.uid[:UID_LENGTH]}")
    if (waiting := _release(draft, stateful_sets, mode)) is not None:
        return waiting
    alarm = hand_over.follow_guard(draft, stateful_sets)
    # The alarm is about the brokers' templates. It shows, and the controllers are rolled meanwhile.
    rolling = rolls.roll_changed_controllers(draft) or cleaning.conclude(draft)
    return alarm or rolling or conclude(draft)


def _rest_completed(step: StepContext) -> Wait:
    message = f"Migration complete: {_use_of_zookeeper(step)}"
    left_to_do = hand_over.summary(step)
    return reached(f"{message}. {left_to_do}" if left_to_do else message)


def _use_of_zookeeper(step: StepContext) -> str:
    """Say whether ZooKeeper can go: a probe, hook, init container or sidecar may need it although Kafka does not."""
    sets = step.stateful_sets()
    if isinstance(sets, Unobserved):
        return f"no broker uses ZooKeeper any more; whether something else in their pods does is not known ({sets})"
    needing = [f"pod {pod} ({', '.join(parts)})" for item in sets for pod, parts in item.pods_needing_zookeeper.items()]
    if needing:
        return f"no broker uses ZooKeeper any more, but do not stop it yet: it is needed by {first(needing)}"
    return "no broker uses ZooKeeper any more, and you can stop it"


def _release(draft: Draft, stateful_sets: tuple[StatefulSetState, ...], mode: BrokerMode) -> Wait | None:
    """Give the StatefulSets back to their owner, one after the other."""
    held = [item for item in stateful_sets if item.lock == draft.identity.lock]
    if len(held) == len(stateful_sets) and not originals.lost(draft):
        # Another writer may have changed the operator's fields before the first release.
        waiting = rolls.roll_brokers(draft, mode)
        if waiting is not None:
            return waiting
    hand_over.begin_guard(draft, stateful_sets)
    if held:
        # Both actions repeat until the lock is observed to be gone, so an operator that stops here loses neither.
        draft.act(PublishFinalManifest())
        draft.act(ReleaseStatefulSet(held[0].name))
        return Wait(f"StatefulSet {held[0].name} is being released")
    draft.update(given_back_at=draft.status.given_back_at or draft.now)
    return None
