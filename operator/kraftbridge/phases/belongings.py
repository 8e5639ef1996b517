"""The controllers' objects: which belong to a phase, and the restoration of those that somebody deleted. Pure.

An object that is absent was deleted, unless a rollback has recorded that it removes it. Claims and the issuing
authority are never created anew: a new claim is a blank volume (`claims`).
"""

from __future__ import annotations

from kraftbridge.models.catalogue import Code
from kraftbridge.models.decision import EventReason, EventType
from kraftbridge.models.observation import ControllersWorkload, Unobserved
from kraftbridge.models.phase import ControllerMode, Phase
from kraftbridge.models.status import MigrationStatus, finding
from kraftbridge.phases import claims, history
from kraftbridge.phases.draft import Draft, Wait, for_user
from kraftbridge.phases.nodes import converging
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
    controllers = claims.track(draft, controllers, workload)
    if controllers.format_allowed:
        return None  # the phase that creates them applies all of them
    if workload.stateful_set is not None:
        _note_replaced(draft, workload)
        if workload.missing:
            _note_loss(draft, ", ".join(workload.missing))
            converging.configure_controllers(draft, mode=mode, only=workload.missing)
        elif workload.format_allowed is not False or workload.reformat != controllers.to_format:
            if workload.format_allowed is None:
                # The list of what is missing is some seconds old; the ConfigMap itself was read in this step.
                _note_loss(draft, f"ConfigMap/{controllers.format_config_map}")
            # Only this: the template of voters that run is not the business of a word about formatting.
            only = (f"ConfigMap/{controllers.format_config_map}",)
            converging.configure_controllers(draft, mode=mode, only=only)
        return None
    if history.does_without(draft):
        return None
    name = f"StatefulSet {controllers.name}"
    if workload.claims is None:
        return Wait(f"{name} is gone, and the claims of its volumes were not read yet")
    if lost := claims.lost_claims(controllers, workload):
        claims_lost = finding(Code.CONTROLLER_CLAIMS_LOST, name, claims=", ".join(lost.values()))
        return for_user(f"{claims_lost.reason}. {claims_lost.fix}")
    _note_loss(draft, name)
    converging.configure_controllers(draft, mode=mode)
    return Wait(f"{name} was deleted; it is being created again over its volumes{because(draft.failure())}")


def _note_replaced(draft: Draft, workload: ControllersWorkload) -> None:
    """Name a ConfigMap that somebody deleted and created anew with another content.

    It is replaced with the next change of the controllers, and at once if it lacks the migration flag (`guards`).
    """
    if not workload.config_replaced:
        draft.set_findings(Code.CONTROLLER_CONFIG_REPLACED)
        return
    name = f"StatefulSet {workload.stateful_set.name}" if workload.stateful_set is not None else ""
    replaced = finding(Code.CONTROLLER_CONFIG_REPLACED, name, config_map=workload.config_writer.strip())
    if replaced not in draft.status.findings:
        draft.tell(EventReason.ALARM, f"{replaced.object}: {replaced.reason}", EventType.WARNING)
    draft.set_findings(Code.CONTROLLER_CONFIG_REPLACED, replaced)


def _note_loss(draft: Draft, name: str) -> None:
    if not draft.failure():
        draft.tell(EventReason.ALARM, f"{name} was deleted by somebody; it is created again", EventType.WARNING)
