"""The controllers' objects: which of them belong to a phase, and the restoration of those that somebody deleted. Pure.

An object that is absent was deleted, unless a rollback has recorded that it removes it. Claims and the issuing authority are never created anew: a new
claim is a blank volume, and a voter on a blank volume can elect a leader that lacks committed records. A person may allow one to be formatted; once its
voter has what the others have, its claim is recorded, and formatting is refused again.
"""

from __future__ import annotations

from kraftbridge.models.catalogue import Code
from kraftbridge.models.conditions import Reason
from kraftbridge.models.decision import ApplyControllers, EventReason, EventType
from kraftbridge.models.observation import ControllerMetrics, ControllersWorkload
from kraftbridge.models.phase import ControllerMode, Phase, Target, ZkMigrationState
from kraftbridge.models.status import ControllersStatus, MigrationStatus, WaitKind, finding
from kraftbridge.phases import gates, history
from kraftbridge.phases.draft import SLOW, Draft, Wait
from kraftbridge.phases.nodes import brokers


def wanted(phase: Phase, status: MigrationStatus) -> ControllerMode | None:
    """Return the mode in which the controllers' objects must exist, None where none must: before them, after a recorded stop, and after the hand-over."""
    known, rollback, handed = status.controllers, history.own_rollback(status), status.hand_over
    if known is None:
        return None
    match phase:
        case Phase.PREFLIGHT | Phase.ROLLED_BACK:
            return None
        case (
            Phase.PROVISIONING_QUORUM
            | Phase.TAKING_OVER
            | Phase.DUAL_WRITE
            | Phase.ROLLING_BROKERS
            | Phase.AWAITING_FINALIZATION
        ):
            return ControllerMode.MIGRATION
        case Phase.FINALIZING:
            return ControllerMode.FINAL
        case Phase.COMPLETED:
            return None if handed is not None and handed.ended_at is not None else ControllerMode.FINAL
        case Phase.ROLLING_BACK:
            stopped = rollback is not None and rollback.controllers_stopped_at is not None
            # Before the claim nothing was taken over, so the rollback has nothing to keep them for.
            return None if stopped or not history.claimed(status) else known.mode


def restore(draft: Draft) -> Wait | None:
    """Create what somebody deleted; return a wait while the StatefulSet is absent."""
    known, workload = draft.status.controllers, draft.observation.controllers
    mode = wanted(draft.status.phase, draft.status)
    if mode is None or known is None or not isinstance(workload, ControllersWorkload):
        return None
    known = _record_replaced(draft, known, workload)
    _set_findings(draft, known, workload)
    if known.format_allowed:
        return None  # the phase that creates them applies all of them
    if workload.stateful_set is not None:
        if workload.missing:
            _note_loss(draft, ", ".join(workload.missing))
            draft.act(ApplyControllers(mode, format_allowed=False, only=workload.missing))
        elif workload.format_allowed is not False and not lost_claims(known, workload):
            draft.act(ApplyControllers(mode, format_allowed=False))
        return None
    name = f"StatefulSet {known.name}"
    gives_up = draft.spec.target is Target.ZOOKEEPER and draft.spec.rollback.accept_loss
    if gives_up and (draft.status.lost_quorum is not None or not brokers.some_on_kraft(draft)):
        return None  # the user does without what only the controllers have, and no broker needs them
    if workload.claims is None:
        return Wait(f"{name} is gone, and the claims of its volumes were not read yet")
    if words := ", ".join(lost_claims(known, workload).values()):
        made = finding(Code.CONTROLLER_CLAIMS_LOST, name, claims=words)
        return Wait(f"{made.reason}. {made.fix}", WaitKind.USER, Reason.FINDINGS, stalled=True, requeue_after=SLOW)
    _note_loss(draft, name)
    draft.act(ApplyControllers(mode, format_allowed=False))
    because = f": {draft.failure()}" if draft.failure() else ""
    return Wait(f"{name} was deleted; it is being created again over its volumes{because}")


def _record_replaced(draft: Draft, known: ControllersStatus, workload: ControllersWorkload) -> ControllersStatus:
    """Record the claims of voters that a person replaced, once the quorum is whole with them: they hold what the others hold."""
    exchanged = {str(i): uid for i, uid in (workload.claims or {}).items() if known.volume_uids.get(str(i), uid) != uid}
    stateful_set = workload.stateful_set
    if not exchanged or known.format_allowed or stateful_set is None or gates.quorum_blockers(draft):
        return known
    serving = {p.ordinal for p in stateful_set.pods if p.ready and not p.deleting}
    for node_id in exchanged:
        metrics = draft.observation.metrics.get(int(node_id))
        loaded = (
            isinstance(metrics, ControllerMetrics) and metrics.zk_migration_state is not ZkMigrationState.NOT_LOADED
        )
        if int(node_id) not in serving or not loaded:
            return known
    known = known.model_copy(update={"volume_uids": {**known.volume_uids, **exchanged}})
    draft.update(controllers=known)
    words = ", ".join(sorted(exchanged))
    draft.tell(
        EventReason.CONTROLLER_REPLACED,
        f"Controller {words} has caught up on another claim, which is recorded from now on",
    )
    return known


def lost_claims(known: ControllersStatus, workload: ControllersWorkload) -> dict[int, str]:
    """Return what became of each recorded claim that is gone or exchanged, by node id; nothing while the claims were not read."""
    seen = workload.claims
    if seen is None:
        return {}
    found = {}
    for node_id, uid in sorted(known.volume_uids.items()):
        present = seen.get(int(node_id))
        if present is None:
            found[int(node_id)] = f"that of controller {node_id} is gone"
        elif present != uid:
            found[int(node_id)] = f"that of controller {node_id} is another one ({present}, not {uid})"
    return found


def _note_loss(draft: Draft, what: str) -> None:
    if not draft.failure():
        draft.tell(EventReason.ALARM, f"{what} was deleted by somebody; it is created again", EventType.WARNING)


def _set_findings(draft: Draft, known: ControllersStatus, workload: ControllersWorkload) -> None:
    if workload.claims is None or known.format_allowed:
        return
    words = ", ".join(lost_claims(known, workload).values())
    made = [finding(Code.CONTROLLER_CLAIMS_LOST, f"StatefulSet {known.name}", claims=words)] if words else []
    for new in made:
        if new not in draft.status.findings:
            draft.tell(EventReason.ALARM, f"{new.object}: {new.reason}", EventType.WARNING)
    draft.set_findings(Code.CONTROLLER_CLAIMS_LOST, *made)
