"""Restarts one controller, follows its restart, and records the volumes of all. Pure."""

from __future__ import annotations

from datetime import timedelta

from kraftbridge.models.decision import EventReason
from kraftbridge.models.observation import PodState, Unobserved
from kraftbridge.models.phase import BrokerMode, ControllerMode
from kraftbridge.models.status import OperationKind, RenderedControllers, tuned_controllers
from kraftbridge.phases import certificates, gates, observed
from kraftbridge.phases.draft import Draft, StepContext, Wait
from kraftbridge.phases.nodes import brokers, restarts

REGISTRATION_PATIENCE = timedelta(seconds=25)
"""A controller registers within a second after it knows its leader; its request times out after 5 s."""


def remember_volumes(draft: Draft) -> None:
    """Record each voter's volume once; from then on the start script must not format a blank volume."""
    status = draft.status.controllers
    workload = draft.observation.controllers
    stateful_set = observed.controllers_set(draft)
    if status is None or not status.format_allowed or isinstance(workload, Unobserved):
        return
    if stateful_set is None or stateful_set.drift or not stateful_set.observed:
        return  # its pods do not run the current spec.controllers
    uids = {str(node_id): uid for node_id, uid in workload.volume_uids.items()}
    if set(uids) == set(map(str, status.node_ids)):
        tuned = tuned_controllers(draft.spec, draft.status)
        rendered = RenderedControllers.of(tuned, workload.credentials, draft.spec.pods, draft.status.broker_settings)
        changes = {"format_allowed": False, "volume_uids": uids, "rendered": rendered}
        draft.update(controllers=status.model_copy(update=changes))


def ensure_voters_registered(draft: Draft) -> Wait | None:
    """Wait for every voter's registration; restart a voter that does not retry."""
    blockers = gates.voter_registration_blockers(draft)
    if blockers:
        return restart_unregistered_controller(draft) or Wait(blockers[0])
    return None


def restart_unregistered_controller(draft: Draft) -> Wait | None:
    """Restart a controller that follows its leader but is not registered.

    Return None when there is none to restart now. Such a controller does not retry (``ControllerRegistrationManager``,
    see `ControllerClient.registered_controllers`).
    """
    registered = draft.observation.registered_controllers
    quorum = draft.status.quorum
    stateful_set = observed.controllers_set(draft)
    if stateful_set is None or isinstance(registered, Unobserved):
        return None
    if quorum is None or draft.status.operation is not None:
        return None
    if observed.age(draft, quorum.leader_since) <= REGISTRATION_PATIENCE:
        return None
    unregistered = (pod for pod in stateful_set.pods if pod.ordinal not in registered)
    for pod in unregistered:
        if observed.age(draft, pod.ready_since) > REGISTRATION_PATIENCE:
            return certificates.roll_blocker(draft) or restart_controller(draft, pod)
    return None


def restart_controller(draft: Draft, pod: PodState) -> Wait:
    """Record and start the restart of one controller."""
    restarts.begin(draft, OperationKind.RESTART_CONTROLLER, pod.ordinal, pod)
    draft.tell(EventReason.CONTROLLER_RESTARTING, f"Restarting controller {pod.ordinal} (pod {pod.name})")
    return Wait(f"controller {pod.ordinal}: pod {pod.name} is being stopped")


def finish_controller_restart(draft: Draft, mode: ControllerMode, *, whole_cluster: bool = True) -> Wait | None:
    """Follow a controller's restart until the quorum agrees again; return None when no restart is in progress.

    With ``whole_cluster``, the restart ends only when every broker serves and every ISR is full.
    """
    operation = draft.status.operation
    workload = draft.observation.controllers
    if operation is None:
        return None
    if isinstance(workload, Unobserved):
        return Wait(str(workload))
    if workload.stateful_set is None:
        return Wait("the controllers' StatefulSet does not exist; the restart needs it")
    pod = next((pod for pod in workload.stateful_set.pods if pod.name == operation.pod), None)
    if pod is None:
        return Wait(f"controller {operation.node_id}: pod {operation.pod} is being replaced")

    def may_stop(step: StepContext) -> list[str]:
        if not pod.ready:
            return []  # it can only help
        return gates.quorum_blockers(step) or _cluster_blockers(step, whole_cluster=whole_cluster)

    if (waiting := restarts.follow_replacement(draft, operation, pod, may_stop)) is not None:
        return waiting
    blockers = gates.quorum_blockers(draft) or _image_blockers(draft, operation.node_id)
    blockers = blockers or _return_blockers(draft, mode, whole_cluster=whole_cluster)
    if blockers:
        return Wait(f"controller {operation.node_id} is back ({mode}); {blockers[0]}")
    restarts.note_restart(draft, draft.status.operation or operation)
    draft.update(operation=None)
    return None


def _cluster_blockers(step: StepContext, *, whole_cluster: bool) -> list[str]:
    if whole_cluster:
        return gates.cluster_blockers(step)
    return []


def _image_blockers(step: StepContext, node_id: int) -> list[str]:
    loaded = observed.has_loaded(step, node_id)
    return gates.failed((not loaded, f"controller {node_id} has not loaded its image yet"))


def _return_blockers(step: StepContext, mode: ControllerMode, *, whole_cluster: bool) -> list[str]:
    """Return why the brokers do not have the quorum back, unless another broker must be restarted before."""
    if step.status.phase.row.gives_back and step.status.given_back_at is not None:
        return []  # which brokers there are is their owner's matter
    if mode is not ControllerMode.FINAL:
        broken = brokers.another_is_broken(step, BrokerMode.ZOOKEEPER)
        if broken:
            return []
        return _cluster_blockers(step, whole_cluster=whole_cluster)
    if brokers.another_is_broken(step, BrokerMode.KRAFT):
        return []
    active = step.observation.active_controller
    total = len(step.status.broker_ids)
    brokers_found = "unknown" if active is None else active.active_brokers
    missing = gates.failed(
        (brokers_found != total, f"{brokers_found} of {total} brokers have found the active controller")
    )
    return missing or _cluster_blockers(step, whole_cluster=whole_cluster)
