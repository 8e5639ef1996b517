"""The controllers' objects: which belong to a phase, and the restoration of those that somebody deleted. Pure.

An object that is absent was deleted, unless a rollback has recorded that it removes it. Claims and the issuing
authority are never created anew: a new claim is a blank volume, and a voter on a blank volume can elect a leader that
lacks committed records. A person may allow one to be formatted; once its voter has what the others have, its claim is
recorded, and formatting is refused again.
"""

from __future__ import annotations

from kraftbridge.models.catalogue import Code
from kraftbridge.models.decision import EventReason, EventType
from kraftbridge.models.observation import ControllerMetrics, ControllersWorkload, StatefulSetState, Unobserved
from kraftbridge.models.phase import ControllerMode, Phase, Target, ZkMigrationState
from kraftbridge.models.status import ControllersStatus, MigrationStatus, finding
from kraftbridge.phases import gates, history
from kraftbridge.phases.draft import Draft, StepContext, Wait, for_user
from kraftbridge.phases.nodes import brokers, converging
from kraftbridge.phases.observed import because


def wanted(phase: Phase, status: MigrationStatus) -> ControllerMode | None:
    """Return the mode of the controllers' objects, None where none must exist: before, once stopped or handed over."""
    controllers = status.controllers
    if controllers is None:
        return None
    if phase is Phase.ROLLING_BACK:
        rollback = history.own_rollback(status)
        stopped = rollback is not None and rollback.controllers_stopped_at is not None
        # Before the claim nothing was taken over, so the rollback has nothing to keep them for.
        return None if stopped or not history.claimed(status) else controllers.mode
    if phase.row.leads_forward:
        return ControllerMode.MIGRATION
    handed_over = status.hand_over is not None and status.hand_over.ended_at is not None
    return None if phase.row.is_open or handed_over else ControllerMode.FINAL


def restore(draft: Draft) -> Wait | None:
    """Create what somebody deleted; return a wait while the StatefulSet is absent."""
    controllers = draft.status.controllers
    workload = draft.observation.controllers
    mode = wanted(draft.status.phase, draft.status)
    if mode is None or controllers is None or isinstance(workload, Unobserved):
        return None
    controllers = _record_replaced(draft, controllers, workload)
    _set_findings(draft, controllers, workload)
    if controllers.format_allowed:
        return None  # the phase that creates them applies all of them
    if workload.stateful_set is not None:
        if workload.missing:
            _note_loss(draft, ", ".join(workload.missing))
            converging.configure_controllers(draft, mode=mode, only=workload.missing)
        elif workload.format_allowed is not False and not _awaits_format(controllers, workload):
            if workload.format_allowed is None:
                # The list of what is missing is some seconds old; the ConfigMap itself was read in this step.
                _note_loss(draft, f"the ConfigMap of StatefulSet {controllers.name}")
            converging.configure_controllers(draft, mode=mode)
        return None
    if does_without(draft):
        return None
    name = f"StatefulSet {controllers.name}"
    if workload.claims is None:
        return Wait(f"{name} is gone, and the claims of its volumes were not read yet")
    if lost := lost_claims(controllers, workload):
        claims = finding(Code.CONTROLLER_CLAIMS_LOST, name, claims=", ".join(lost.values()))
        message = f"{claims.reason}. {claims.fix}"
        return for_user(message)
    _note_loss(draft, name)
    converging.configure_controllers(draft, mode=mode)
    return Wait(f"{name} was deleted; it is being created again over its volumes{because(draft.failure())}")


def _awaits_format(controllers: ControllersStatus, workload: ControllersWorkload) -> bool:
    """Return whether the user's word that a blank volume may be formatted still counts.

    It counts until every voter runs: a volume can be blank under the claim that was recorded, too.
    """
    pods = () if workload.stateful_set is None else workload.stateful_set.pods
    is_waiting = workload.format_allowed is True and any(not pod.ready for pod in pods)
    return is_waiting or bool(lost_claims(controllers, workload))


def does_without(step: StepContext) -> bool:
    """Return whether the user does without what only the controllers have, and no broker needs them."""
    if step.spec.target is not Target.ZOOKEEPER or not step.spec.rollback.accept_loss:
        return False
    return step.status.lost_quorum is not None or not brokers.some_on_kraft(step)


def _record_replaced(draft: Draft, controllers: ControllersStatus, workload: ControllersWorkload) -> ControllersStatus:
    """Record the claims of voters that a person replaced, once the quorum is whole: they hold what the others hold."""
    present = {str(node_id): uid for node_id, uid in (workload.claims or {}).items()}
    exchanged = {node_id: uid for node_id, uid in present.items() if controllers.volume_uids.get(node_id, uid) != uid}
    if not exchanged or controllers.format_allowed or gates.quorum_blockers(draft):
        return controllers
    if not set(map(int, exchanged)) <= _serving_voters(draft, workload.stateful_set):
        return controllers
    controllers = controllers.model_copy(update={"volume_uids": {**controllers.volume_uids, **exchanged}})
    draft.update(controllers=controllers)
    draft.tell(
        EventReason.CONTROLLER_REPLACED,
        f"Controller {', '.join(sorted(exchanged))} has caught up on another claim, which is recorded from now on",
    )
    return controllers


def _serving_voters(step: StepContext, stateful_set: StatefulSetState | None) -> set[int]:
    """Return the voters whose pod is Ready and that have loaded the metadata."""
    serving = set()
    for pod in () if stateful_set is None else stateful_set.pods:
        metrics = step.observation.metrics.get(pod.ordinal)
        is_loaded = (
            isinstance(metrics, ControllerMetrics) and metrics.zk_migration_state is not ZkMigrationState.NOT_LOADED
        )
        if is_loaded and not pod.down:
            serving.add(pod.ordinal)
    return serving


def lost_claims(known: ControllersStatus, workload: ControllersWorkload) -> dict[int, str]:
    """Return what became of each recorded claim that is gone or exchanged, by node id; nothing while none was read."""
    claims = workload.claims
    if claims is None:
        return {}
    lost = {}
    for node_id, uid in sorted(known.volume_uids.items()):
        present = claims.get(int(node_id))
        if present is None:
            lost[int(node_id)] = f"that of controller {node_id} is gone"
        elif present != uid:
            lost[int(node_id)] = f"that of controller {node_id} is another one ({present}, not {uid})"
    return lost


def _note_loss(draft: Draft, name: str) -> None:
    if not draft.failure():
        draft.tell(EventReason.ALARM, f"{name} was deleted by somebody; it is created again", EventType.WARNING)


def _set_findings(draft: Draft, controllers: ControllersStatus, workload: ControllersWorkload) -> None:
    if workload.claims is None or controllers.format_allowed:
        return
    lost = lost_claims(controllers, workload)
    if not lost:
        draft.set_findings(Code.CONTROLLER_CLAIMS_LOST)
        return
    claims = ", ".join(lost.values())
    claims_lost = finding(Code.CONTROLLER_CLAIMS_LOST, f"StatefulSet {controllers.name}", claims=claims)
    if claims_lost not in draft.status.findings:
        draft.tell(EventReason.ALARM, f"{claims_lost.object}: {claims_lost.reason}", EventType.WARNING)
    draft.set_findings(Code.CONTROLLER_CLAIMS_LOST, claims_lost)
