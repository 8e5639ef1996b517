"""ProvisioningQuorum: creates the KRaft controllers and verifies the ZooKeeper tree. Pure."""

from __future__ import annotations

from kraftbridge.models.conditions import ConditionType, Reason
from kraftbridge.models.phase import ControllerMode, Phase, Target, ZkMigrationState
from kraftbridge.models.report import Profile
from kraftbridge.models.status import WaitKind
from kraftbridge.phases import controller_change, controller_restarts, gates, rehearsing, verifying
from kraftbridge.phases.draft import SLOW, Draft, Enter, Outcome, Wait, reached
from kraftbridge.phases.preflight import findings as preflight


def run_provisioning_quorum_phase(draft: Draft) -> Outcome:
    """Apply the controllers, wait for a stable quorum that is ready to migrate, and verify the ZooKeeper tree."""
    controller_restarts.keep_controllers(draft, ControllerMode.MIGRATION)
    if draft.status.controllers is not None and draft.status.controllers.format_allowed:
        # Replace first: the controller whose restart is followed below may be the one that cannot start as configured.
        controller_restarts.replace_outdated_controllers(draft)
    if (
        waiting := controller_change.roll_changed_controllers(draft)
        or controller_restarts.finish_controller_restart(draft, ControllerMode.MIGRATION)
    ) is not None:
        return waiting
    verifying.launch_ahead(draft, Profile.ZOOKEEPER, Phase.TAKING_OVER)
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
    if (waiting := verifying.ensure_verdict(draft, Profile.ZOOKEEPER, Phase.TAKING_OVER)) is not None:
        return waiting
    if draft.spec.target is Target.QUORUM_READY:
        # On demand, and when what it judged has changed; an old one is repeated when the migration goes on.
        if (waiting := rehearsing.ensure_rehearsal(draft, blocking=False, ages=False)) is not None:
            return waiting
        return reached("The quorum is ready; set spec.target to DualWrite or further to continue")
    standing = preflight.blocking(preflight.rehearsal_findings(draft))
    if (waiting := rehearsing.ensure_rehearsal(draft, blocking=bool(standing))) is not None:
        return waiting
    if standing:
        message = f"{standing[0].code} on {standing[0].object}: {standing[0].reason}. {standing[0].fix}"
        return Wait(message, WaitKind.USER, Reason.FINDINGS, stalled=True, requeue_after=SLOW)
    if blockers := gates.volume_blockers(draft) or gates.cluster_blockers(draft):
        return Wait(f"before any broker restarts: {blockers[0]}")
    return Enter(Phase.TAKING_OVER)
