"""Applies the controllers' objects and restarts one controller at a time. Pure."""

from __future__ import annotations

from datetime import timedelta

from kraftbridge.models.decision import ApplyControllers, EventReason, RestartPod
from kraftbridge.models.observation import ControllersWorkload, PodState, Unobserved
from kraftbridge.models.phase import BrokerMode, ControllerMode, ZkMigrationState
from kraftbridge.models.status import OperationKind, RenderedControllers, tuned_controllers
from kraftbridge.phases import gates
from kraftbridge.phases.draft import Draft, StepContext, Wait
from kraftbridge.phases.nodes import brokers, restarts

REGISTRATION_PATIENCE = timedelta(seconds=25)
"""A controller registers within a second after it knows its leader; its request times out after 5 s."""


def keep_controllers(draft: Draft, mode: ControllerMode) -> None:
    """Apply the controllers' objects whenever they differ from what ``mode`` needs."""
    status, workload = draft.status.controllers, draft.observation.controllers
    if status is None:
        return
    if status.mode is not mode:
        status = status.model_copy(update={"mode": mode})
        draft.update(controllers=status)
    if not isinstance(workload, ControllersWorkload):
        return
    stateful_set = workload.stateful_set
    if stateful_set is None and not status.format_allowed:
        return  # belongings.restore creates it anew, over the claims that were recorded
    outdated = stateful_set is None or not stateful_set.configuration.startswith(f"{mode}-") or bool(stateful_set.drift)
    if outdated or (status.format_allowed and not workload.format_allowed):
        draft.act(ApplyControllers(mode, status.format_allowed))


def remember_volumes(draft: Draft) -> None:
    """Record each voter's volume once; from then on the start script must not format a blank volume."""
    status, workload = draft.status.controllers, draft.observation.controllers
    if status is None or not status.format_allowed or not isinstance(workload, ControllersWorkload):
        return
    stateful_set = workload.stateful_set
    if stateful_set is None or stateful_set.drift or not stateful_set.observed:
        return  # its pods do not run the current spec.controllers
    uids = {str(i): uid for i, uid in workload.volume_uids.items()}
    if set(uids) == {str(i) for i in status.node_ids}:
        tuned = tuned_controllers(draft.spec, draft.status)
        rendered = RenderedControllers.of(tuned, workload.credentials, draft.spec.pods, draft.status.broker_settings)
        changes = {"format_allowed": False, "volume_uids": uids, "rendered": rendered}
        draft.update(controllers=status.model_copy(update=changes))


def ensure_voters_registered(draft: Draft) -> Wait | None:
    """Wait for every voter's registration; restart a voter that does not retry."""
    blockers = gates.voter_registration_blockers(draft)
    return (restart_unregistered_controller(draft) or Wait(blockers[0])) if blockers else None


def restart_unregistered_controller(draft: Draft) -> Wait | None:
    """Restart a controller that follows its leader but is not registered; return None when there is none to restart now.

    Such a controller does not retry (``ControllerRegistrationManager``, see `ControllerClient.registered_controllers`).
    """
    workload, registered, quorum = (
        draft.observation.controllers,
        draft.observation.registered_controllers,
        draft.status.quorum,
    )
    if isinstance(workload, Unobserved) or isinstance(registered, Unobserved) or workload.stateful_set is None:
        return None
    if draft.status.operation is not None or quorum is None or quorum.leader_since is None:
        return None
    for pod in workload.stateful_set.pods:
        settled = pod.ready_since is not None and draft.now - pod.ready_since > REGISTRATION_PATIENCE
        if pod.ordinal not in registered and settled and draft.now - quorum.leader_since > REGISTRATION_PATIENCE:
            return restart_controller(draft, pod)
    return None


def replace_outdated_controllers(draft: Draft) -> None:
    """Restart all controllers with an outdated template at once; no quorum needs them yet."""
    workload = draft.observation.controllers
    if isinstance(workload, Unobserved) or workload.stateful_set is None or not workload.stateful_set.observed:
        return
    stateful_set = workload.stateful_set
    for pod in stateful_set.pods:
        if pod.configuration != stateful_set.configuration and not pod.deleting:
            draft.act(RestartPod(pod.name, pod.uid, pod.ordinal, restarts.CONTROLLER_GRACE_SECONDS, ready=False))


def restart_controller(draft: Draft, pod: PodState) -> Wait:
    """Record and start the restart of one controller."""
    restarts.begin(draft, OperationKind.RESTART_CONTROLLER, pod.ordinal, pod)
    draft.tell(EventReason.CONTROLLER_RESTARTING, f"Restarting controller {pod.ordinal} (pod {pod.name})")
    return Wait(f"controller {pod.ordinal}: pod {pod.name} is being stopped")


def finish_controller_restart(draft: Draft, mode: ControllerMode, *, whole_cluster: bool = True) -> Wait | None:
    """Follow a controller's restart until the quorum agrees again; return None when no restart is in progress.

    With ``whole_cluster``, the restart ends only when every broker serves and every ISR is full.
    """
    operation, workload = draft.status.operation, draft.observation.controllers
    if operation is None:
        return None
    if isinstance(workload, Unobserved) or workload.stateful_set is None:
        return Wait(
            str(workload)
            if isinstance(workload, Unobserved)
            else "the controllers' StatefulSet does not exist; the restart needs it"
        )
    pod = next((p for p in workload.stateful_set.pods if p.name == operation.pod), None)
    if pod is None:
        return Wait(f"controller {operation.node_id}: pod {operation.pod} is being replaced")

    def may_stop(step: StepContext) -> list[str]:
        return gates.quorum_blockers(step) or (gates.cluster_blockers(step) if whole_cluster else [])

    if (waiting := restarts.follow_replacement(draft, operation, pod, may_stop)) is not None:
        return waiting
    blockers = gates.quorum_blockers(draft)
    metrics = draft.observation.metrics.get(operation.node_id)
    if not blockers and (
        metrics is None or isinstance(metrics, Unobserved) or metrics.zk_migration_state is ZkMigrationState.NOT_LOADED
    ):
        blockers = [f"controller {operation.node_id} has not loaded its image yet"]
    final = mode is ControllerMode.FINAL
    if not blockers and not brokers.another_is_broken(draft, BrokerMode.KRAFT if final else BrokerMode.ZOOKEEPER):
        active, total = draft.observation.active_controller, len(draft.status.broker_ids)
        if final and (active is None or active.active_brokers != total):
            blockers = [
                f"{active.active_brokers if active else 'unknown'} of {total} brokers have found the active controller"
            ]
        blockers = blockers or (gates.cluster_blockers(draft) if whole_cluster else [])
    if blockers:
        return Wait(f"controller {operation.node_id} is back ({mode}); {blockers[0]}")
    restarts.note_restart(draft, draft.status.operation or operation)
    draft.update(operation=None)
    return None
