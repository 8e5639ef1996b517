"""`decide`: returns the next status and actions for a spec, a status and an observation. Pure and total.

The loop publishes the decided status under a resourceVersion test *before* it executes the actions.
So every intent is on record when its action starts, every action is repeatable, and the operator can stop at any
instruction.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from kraftbridge.models import newer
from kraftbridge.models.conditions import ConditionType, Reason, Status, condition, initial_conditions
from kraftbridge.models.decision import Decision, EventReason, EventType
from kraftbridge.models.observation import NOT_NEEDED, MigrationZnode, Observation, Unobserved, ZooKeeperState
from kraftbridge.models.phase import FORWARD, LAST_PHASE, BrokerMode, Phase, Target
from kraftbridge.models.status import MigrationStatus, PhaseRecord, Waiting, WaitKind
from kraftbridge.outside.shell import command
from kraftbridge.outside.visible import visible
from kraftbridge.phases import (
    certificates,
    dry_starting,
    expired,
    features,
    gates,
    guards,
    healing,
    history,
    kafka4,
    kafka4_leg,
    lost_quorum,
    metadata_version,
    originals,
    presented,
    rehearsing,
    removing,
    rests,
    rollback,
    shared_settings,
    topic_ids,
    uids,
    upgrading,
    verifying,
)
from kraftbridge.phases.draft import (
    QUORUM_IS_READY,
    SLOW,
    Draft,
    Enter,
    Migration,
    Outcome,
    StepContext,
    Wait,
    for_user,
)
from kraftbridge.phases.forward import (
    run_awaiting_finalization_phase,
    run_completed_phase,
    run_dual_write_phase,
    run_finalizing_phase,
    run_kafka4_phase,
    run_preflight_phase,
    run_provisioning_quorum_phase,
    run_rolling_brokers_phase,
    run_taking_over_phase,
    run_upgrading_brokers_phase,
)
from kraftbridge.phases.nodes import brokers, converging, deadlines, restarts, sights, templates
from kraftbridge.phases.to_kafka4 import (
    run_kafka4_brokers_phase,
    run_kafka4_controllers_phase,
    run_leaving_kafka4_phase,
)


def decide(migration: Migration, observation: Observation, now: datetime) -> Decision:
    """Return the status to publish and the actions to execute.

    Parameters
    ----------
    identity
        The migration's name, UID and generation.
    spec, status
        As read from the API server for this step.
    observation
        State of the cluster; parts may be `Unobserved`.
    now
        UTC.

    Returns
    -------
    Decision
        The whole new status, actions, events, and when to reconcile again.
    """
    status = migration.status
    draft = Draft(migration.identity, guards.effective_spec(migration), observation, now, status)
    if not status.conditions:
        draft.update(
            conditions=initial_conditions(now, migration.identity.generation),
            history=(PhaseRecord(phase=Phase.PREFLIGHT, entered_at=now),),
            progress_at=now,
        )
    outcome = uids.refuse_others(draft) or _take_step(draft)
    # What ends a phase leaves nothing half-way, so a pause holds here even where `_paused` lets a rollback go on.
    if (
        isinstance(outcome, Enter)
        and (waiting := restarts.paused(draft) or _no_place(draft, outcome.phase)) is not None
    ):
        outcome = waiting
    match outcome:
        case Enter(phase):
            _enter(draft, phase)
            waiting = Wait(f"entering {phase}", requeue_after=timedelta(0))
        case Wait():
            judged = rests.judge_rest(draft, outcome)
            waiting = certificates.explained(draft, gates.explained(draft, judged))
            waiting = expired.explained(draft, waiting)
    uids.note_creation(draft)
    _record_wait(draft, waiting)
    waiting = _naming_unknown(draft, _stalled_past_deadline(draft, waiting))
    _conclude(draft, waiting, before=status)
    return Decision(draft.status, tuple(draft.actions), tuple(draft.events), waiting.requeue_after)


def _take_step(draft: Draft) -> Outcome:
    """Record what this look shows, and run the phase."""
    sights.record_sights(draft)
    sights.follow_start(draft, brokers.starting_broker(draft))
    history.track(draft)
    restarts.track_quorum(draft)
    restarts.track_migration_offset(draft)
    healing.track(draft)
    rollback.track_controller_views(draft)
    restarts.track_unavailability(draft)
    removing.track_removals(draft)
    verifying.follow_unreleased(draft)
    dry_starting.follow_dry_start(draft)
    rehearsing.drop_unawaited(draft)
    metadata_version.track(draft)
    shared_settings.track(draft)
    certificates.track(draft)
    presented.track(draft)
    certificates.keep_issued(draft)
    originals.track(draft)
    templates.track(draft)
    topic_ids.track(draft)
    kafka4.track(draft)
    kafka4_leg.track(draft)
    outcome = _run_phase(draft)
    converging.remove_superseded(draft)
    return outcome


def _run_phase(draft: Draft) -> Outcome:
    phase = draft.status.phase
    if (waiting := rollback.remove_unused_quorum(draft)) is not None:
        return waiting
    if (waiting := guards.blocked_deletion(draft)) is not None:
        return guards.enforce(draft) or waiting
    target = draft.spec.target
    if (refusal := _refused_target(draft)) is not None:
        return refusal
    if (waiting := guards.enforce(draft)) is not None:
        return waiting
    if (paused := _paused(draft)) is not None:
        return paused
    if (no := draft.refusal()) and draft.status.waiting is not None:
        metadata_version.take_refused_change_back(draft)
        features.take_refusal_back(draft)
        return Wait(f"refused: {no}", reason=Reason.REFUSED, stalled=True, requeue_after=SLOW)
    if target is Target.ZOOKEEPER and phase is Phase.PREFLIGHT:
        return Wait(
            "There is nothing to roll back: no node was changed",
            WaitKind.USER,
            Reason.NOTHING_CHANGED,
            requeue_after=SLOW,
        )
    if target is Target.ZOOKEEPER and phase not in (Phase.ROLLING_BACK, Phase.ROLLED_BACK):
        return originals.blocked(draft) or Enter(Phase.ROLLING_BACK)
    return _run(draft, phase)


def _run(draft: Draft, phase: Phase) -> Outcome:
    match phase:
        case Phase.PREFLIGHT:
            return run_preflight_phase(draft)
        case Phase.UPGRADING_BROKERS:
            return run_upgrading_brokers_phase(draft)
        case Phase.PROVISIONING_QUORUM:
            return run_provisioning_quorum_phase(draft)
        case Phase.TAKING_OVER:
            return run_taking_over_phase(draft)
        case Phase.DUAL_WRITE:
            return run_dual_write_phase(draft)
        case Phase.ROLLING_BROKERS:
            return run_rolling_brokers_phase(draft)
        case Phase.AWAITING_FINALIZATION:
            return run_awaiting_finalization_phase(draft)
        case Phase.FINALIZING:
            return run_finalizing_phase(draft)
        case Phase.COMPLETED:
            return run_completed_phase(draft)
        case Phase.KAFKA4_CONTROLLERS | Phase.KAFKA4_BROKERS | Phase.KAFKA4 | Phase.LEAVING_KAFKA4:
            return _run_around_kafka4(draft, phase)
        case Phase.ROLLING_BACK:
            return rollback.run_rolling_back_phase(draft)
        case Phase.ROLLED_BACK:
            return rollback.run_rolled_back_phase(draft)


def _run_around_kafka4(draft: Draft, phase: Phase) -> Outcome:
    match phase:
        case Phase.KAFKA4_CONTROLLERS:
            return run_kafka4_controllers_phase(draft)
        case Phase.KAFKA4_BROKERS:
            return run_kafka4_brokers_phase(draft)
        case Phase.LEAVING_KAFKA4:
            return run_leaving_kafka4_phase(draft)
        case _:
            return run_kafka4_phase(draft)


def _paused(step: StepContext) -> Wait | None:
    """Return the wait of a paused migration; a rollback without a controller does not pause."""
    return None if rollback.without_service(step.status) else restarts.paused(step)


def _no_place(step: StepContext, phase: Phase) -> Wait | None:
    """Return the wait of a migration that may not restart nodes yet; a rollback never waits."""
    if step.observation.may_roll or not (phase.row.forward and phase.row.restarts_nodes):
        return None
    message = (
        f"phase {phase} waits: operator.maxConcurrentRolls of the chart allows no further migration to restart nodes"
    )
    return Wait(message, WaitKind.HOLD, requeue_after=timedelta(seconds=2))


def _refused_target(step: StepContext) -> Wait | None:
    """Return why this phase cannot lead to ``spec.target``, None when it can. Admission refuses most of these first."""
    phase = step.status.phase
    target = step.spec.target
    if target is Target.ZOOKEEPER:
        if phase.reversible:
            return None
        message = f"spec.target ZooKeeper refused: phase {phase} cannot be rolled back; set spec.target to KRaft"
    elif phase.row.on_kafka4 or target is Target.KAFKA4:
        return _refused_around_kafka4(phase, target)
    elif phase in FORWARD and FORWARD.index(phase) > FORWARD.index(LAST_PHASE[target]):
        if phase is Phase.FINALIZING:
            # A partly finalized quorum must be finished.
            return None
        message = (
            f"spec.target {target} refused: phase {phase} comes after it; the only way back is spec.target ZooKeeper"
        )
    else:
        return None
    return for_user(message, Reason.REFUSED)


def _refused_around_kafka4(phase: Phase, target: Target) -> Wait | None:
    """Return why ``spec.target`` cannot hold where it, or the phase, is about Kafka 4; None when it can."""
    if phase.row.on_kafka4:
        if target in (Target.KRAFT, Target.KAFKA4):
            return None
        message = f"spec.target {target} refused: phase {phase} comes after it; set spec.target to KRaft or Kafka4"
    elif phase in (Phase.FINALIZING, Phase.COMPLETED):
        return None  # a partly finalized quorum must be finished
    else:
        message = f"spec.target Kafka4 refused: it is possible once the phase is {Phase.COMPLETED}, and it is {phase}"
    return for_user(message, Reason.REFUSED)


def _enter(draft: Draft, phase: Phase) -> None:
    history = tuple(
        h.model_copy(update={"left_at": draft.now}) if h.left_at is None else h for h in _closed_wait(draft).history
    )
    if phase is Phase.ROLLING_BACK:
        draft.update(broker_comparison=None, broker_undo=None)
    batch = draft.status.batch
    if batch is not None:
        draft.update(batch=batch.model_copy(update={"waiting": ()}))
    draft.update(
        phase=phase,
        history=(*history, PhaseRecord(phase=phase, entered_at=draft.now)),
        waiting=Waiting(kind=WaitKind.WORK, since=draft.now),
        hold_until=None if phase is Phase.FINALIZING else draft.status.hold_until,
        degraded_since=None,
    )
    kind = EventReason.COMPLETED if phase is Phase.COMPLETED else EventReason.PHASE_ENTERED
    draft.tell(kind, f"Phase {phase} entered")


def _record_wait(draft: Draft, waiting: Wait) -> None:
    """Account the time of each kind of wait; the status changes only when the kind changes."""
    current = draft.status.waiting
    if current is None or current.kind is not waiting.kind:
        draft.update(history=_closed_wait(draft).history, waiting=Waiting(kind=waiting.kind, since=draft.now))


def _stalled_past_deadline(step: StepContext, waiting: Wait) -> Wait:
    """Return the wait, stalled and with the action of `deadlines` once a restart is past its deadline."""
    found = deadlines.overdue(step)
    if found is None or waiting.stalled or waiting.kind is WaitKind.USER:
        return waiting
    stage, action = found
    operation = deadlines.current(step)
    node = operation.node_id if operation is not None else ""
    message = f"{waiting.message}. Node {node} is past its deadline: {stage}; {action}"
    if action is deadlines.PastDeadline.RESTART_AGAIN and (away := brokers.away(step)):
        restart = command("kubectl delete pod {pods}", pods=list(away))
        message = (
            f"{message}. These brokers do not serve either, and no other broker restarts before they do; "
            f"find out why, or restart them: {restart}"
        )
    return replace(waiting, message=message, reason=Reason.DEADLINE_EXCEEDED, stalled=True)


def _naming_unknown(step: StepContext, waiting: Wait) -> Wait:
    """Return the wait with the fields that this release ignores, so that no condition hides them."""
    unknown = step.identity.unknown
    return replace(waiting, message=f"{waiting.message}. {newer.described(unknown)}") if unknown else waiting


def _closed_wait(step: StepContext) -> MigrationStatus:
    status = step.status
    if status.waiting is None or not status.history:
        return status
    seconds = round((step.now - status.waiting.since).total_seconds())
    field = {
        WaitKind.HOLD: "hold_seconds",
        WaitKind.SOAK: "soak_seconds",
        WaitKind.VERIFICATION: "verification_wait_seconds",
        WaitKind.USER: "user_wait_seconds",
    }.get(status.waiting.kind)
    if field is None:
        return status
    last = status.history[-1]
    last = last.model_copy(update={field: getattr(last, field) + seconds})
    return status.model_copy(update={"history": (*status.history[:-1], last)})


def _conclude(draft: Draft, waiting: Wait, *, before: MigrationStatus) -> None:
    """Set the fields that every step sets: brokers, conditions, message, progress."""
    mode = draft.status.phase.row.brokers
    if mode is BrokerMode.UPGRADED or (mode is None and draft.status.changes_brokers):
        mode = upgrading.bridge_mode(draft.status)
    if mode is not None:
        draft.update(brokers=brokers.brokers_in(draft, mode))
    elif draft.status.broker_ids:
        total = len(draft.status.broker_ids)
        draft.update(brokers=draft.status.brokers.model_copy(update={"total": total, "summary": f"0/{total}"}))
    draft.update(
        target=draft.spec.target, observed_generation=draft.identity.generation, message=visible(waiting.message)[:1024]
    )
    if _progress(before, draft.status):
        draft.update(progress_at=draft.now)
    _set_quorum_ready(draft)
    _set_rollback_possible(draft)
    kafka4_leg.set_leavable(draft)
    _set_milestones(draft)
    _set_progress_conditions(draft, waiting)


def _progress(before: MigrationStatus, after: MigrationStatus) -> bool:
    def moving(s: MigrationStatus) -> tuple[object, ...]:
        version = s.metadata_version
        return (
            None if version is None else (version.state, version.target, version.change),
            s.phase,
            s.operation,
            s.batch,
            s.brokers,
            s.verification_count,
            tuple((v.run_id, v.verdict) for v in s.verifications),
            s.hold_until,
            s.canary,
            s.healing,
            s.broker_undo,
            None if s.rehearsal is None else (s.rehearsal.count, s.rehearsal.run_id),
            None if s.controllers is None else s.controllers.change,
            s.target,
            s.quorum_restart,
            s.kafka4_leg,
            s.degraded_since,
        )

    return moving(before) != moving(after)


def _set_quorum_ready(draft: Draft) -> None:
    """Keep the condition of a quorum that was ready: Unknown while its controllers are asked and do not answer."""
    kind = ConditionType.QUORUM_READY
    quorum = draft.observation.quorum
    former = condition(draft.status.conditions, kind)
    if former is None or former.reason not in (Reason.DONE, Reason.UNKNOWN) or quorum == NOT_NEEDED:
        return
    if isinstance(quorum, Unobserved):
        draft.set_condition(kind, "Unknown", Reason.UNKNOWN, str(quorum))
    else:
        draft.set_condition(kind, "True", Reason.DONE, QUORUM_IS_READY)


def _set_rollback_possible(draft: Draft) -> None:
    decided = upgrading.explained(draft, _rollback_possible(draft))
    draft.set_condition(ConditionType.ROLLBACK_POSSIBLE, *decided)


def _rollback_possible(step: StepContext) -> tuple[Status, Reason, str]:
    """Return status, reason and message of the condition."""
    zookeeper = step.observation.zookeeper
    if not step.status.phase.reversible:
        message = "The migration is being or has been finalized and cannot be rolled back"
        if step.status.phase.row.on_kafka4:
            message += ". Kafka4Leavable says whether the release before Kafka 4 can come back"
        return "False", Reason.FINALIZED, message
    if (refused := uids.possible(step)) is not None:
        return refused
    if not step.status.changes_brokers:
        return "True", Reason.NOTHING_CHANGED, "No broker was changed; a ZooKeeper-mode broker is controller"
    if (decided := originals.possible(step) or history.possible(step) or lost_quorum.possible(step)) is not None:
        return decided
    if not isinstance(zookeeper, ZooKeeperState):
        return "Unknown", Reason.UNKNOWN, str(zookeeper)
    if not isinstance(zookeeper.migration, MigrationZnode) or zookeeper.migration.kraft_metadata_offset < 0:
        message = (
            "ZooKeeper has all metadata: a ZooKeeper-mode broker is controller, or the KRaft controller still copies"
        )
        return "True", Reason.NOTHING_CHANGED, message
    if gates.mirrors(step):
        return "True", Reason.MIRRORED, "ZooKeeper mirrors the metadata log"
    message = (
        f"The offset in /migration stays at {zookeeper.migration.kraft_metadata_offset}: "
        "ZooKeeper does not mirror the metadata log"
    )
    return "False", Reason.NOT_MIRRORED, message


def _set_milestones(draft: Draft) -> None:
    """Set conditions that no phase has set yet to ``False`` with a reason, from the first step on."""
    for unset in draft.status.conditions:
        if unset.reason is Reason.INITIALIZING:
            kind = unset.type
            if kind is ConditionType.METADATA_CONSISTENT:
                draft.set_condition(kind, "Unknown", Reason.NOT_CHECKED, "No verification has ended yet")
            elif kind not in (ConditionType.READY, ConditionType.RECONCILING, ConditionType.STALLED):
                draft.set_condition(kind, "False", Reason.NOT_STARTED, "Not reached yet")


def _set_progress_conditions(draft: Draft, waiting: Wait) -> None:
    reached = waiting.reached
    deadline = timedelta(seconds=draft.spec.strategy.phase_deadline_seconds)
    since = draft.status.progress_at or draft.now
    late = waiting.kind in (WaitKind.WORK, WaitKind.VERIFICATION) and draft.now - since > deadline
    stalled = waiting.stalled or late
    former = condition(draft.status.conditions, ConditionType.STALLED)
    was_stalled = former is not None and former.status == "True"
    resting = reached or waiting.kind is WaitKind.USER
    done = {o.action for o in draft.observation.outcomes if not o.error}
    untried = {type(action).__name__ for action in draft.actions} - done
    if was_stalled and former is not None and former.reason is Reason.REFUSED and untried and not stalled:
        # The refused action is repeated in this step; the next step knows its outcome.
        return
    reason = Reason.DEADLINE_EXCEEDED if late and not waiting.stalled else waiting.reason
    draft.set_condition(ConditionType.READY, "True" if reached else "False", reason, waiting.message)
    draft.set_condition(
        ConditionType.RECONCILING, "False" if resting or waiting.stalled else "True", waiting.reason, waiting.message
    )
    draft.set_condition(
        ConditionType.STALLED,
        "True" if stalled else "False",
        reason if stalled or resting else Reason.PROGRESSING,
        waiting.message if stalled else "",
    )
    if stalled and not was_stalled:
        draft.tell(EventReason.STALLED, waiting.message, EventType.WARNING)


def deletion_blocker(status: MigrationStatus) -> str:
    """Return why a migration must not be deleted now, ``""`` when it holds no object of the user."""
    if status.phase is Phase.PROVISIONING_QUORUM and not status.changed_fields and status.controllers is None:
        return ""
    if status.phase.row.gives_back and status.given_back_at is None:
        return "the StatefulSets are being released"
    if status.phase.at_rest:
        return ""
    if status.phase.row.on_kafka4:
        return (
            f"the migration is in phase {status.phase} and restarts nodes; the resource goes by itself once it rests. "
            "The annotation kraftbridge.dev/abandon=true removes it at once and leaves the cluster as it is"
        )
    return (
        f"the migration is in phase {status.phase} and configures the brokers. "
        "Set spec.target to ZooKeeper to roll back, or spec.onDeletion to Finish to continue to spec.target; "
        "the annotation kraftbridge.dev/abandon=true removes the resource at once and leaves the cluster as it is"
    )


def release_blocker(status: MigrationStatus) -> str:
    """Return why the operator of a migration must not be removed now, ``""`` when it waits for nobody but the user."""
    phase = status.phase
    controllers = status.controllers
    if phase.row.on_kafka4 and not phase.at_rest:
        return f"phase {phase} is not at rest. Wait until the condition Ready is True"
    if not phase.at_rest:
        way_back = " or back (spec.target: ZooKeeper)" if phase.reversible else ""
        return (
            f"phase {phase} is not at rest. Bring the migration to Completed{way_back}, "
            "or delete it with the annotation kraftbridge.dev/abandon=true, which leaves the cluster as it is"
        )
    if phase.row.gives_back and status.given_back_at is None:
        return "the StatefulSets of the brokers are being released. Wait until the condition Ready is True"
    if expired.is_under_way(status):
        return "all controllers restart, since their certificate had ended. Wait until the condition Ready is True"
    if status.operation is not None:
        return f"node {status.operation.node_id} restarts. Wait until the condition Ready is True"
    if controllers is not None and controllers.change is not None:
        return "a change of spec.controllers is being rolled out. Wait until the condition Ready is True"
    return ""
