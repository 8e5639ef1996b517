"""Rolls out a change of ``spec.controllers`` to formatted voters, one at a time, the active one last. Pure.

Status keeps the spec from which the voters' objects are rendered. So an upgrade of the operator restarts nothing, and a voter that does not start
with its new configuration gets the old one back. Listener and voters cannot change (rules of the CRD).
"""

from __future__ import annotations

from datetime import timedelta

from kraftbridge.models.conditions import Reason
from kraftbridge.models.decision import ApplyControllers, EventReason, EventType, RestartPod
from kraftbridge.models.observation import PodState, StatefulSetState, Unobserved, ZooKeeperState
from kraftbridge.models.phase import Phase
from kraftbridge.models.status import (
    ControllersChange,
    ControllersStatus,
    Operation,
    OperationKind,
    RenderedControllers,
    WaitKind,
    tuned_controllers,
)
from kraftbridge.phases import brokers, controller_restarts, gates, healing, restarts
from kraftbridge.phases.draft import Draft, StepContext, Wait

VOTER_DEADLINE = timedelta(seconds=180)
"""Deadline for a voter to rejoin the quorum on its new configuration."""
_WITH_MIRROR = frozenset({Phase.DUAL_WRITE, Phase.ROLLING_BROKERS, Phase.AWAITING_FINALIZATION})


def roll_changed_controllers(draft: Draft) -> Wait | None:
    """Take the next step of rolling out a change of ``spec.controllers``; return None when there is none or it must wait."""
    status, workload = draft.status.controllers, draft.observation.controllers
    if status is None or status.format_allowed:
        return None  # `controller_restarts` replaces unformatted voters all at once
    wanted = RenderedControllers.of(tuned_controllers(draft.spec, draft.status))
    if status.rendered is None:
        draft.update(controllers=status.model_copy(update={"rendered": wanted}))
        return None
    change = status.change
    if change is None and wanted == status.rendered:
        return None
    operation = draft.status.operation
    if operation is not None and operation.kind is not OperationKind.RESTART_CONTROLLER:
        # A broker that restarts waits for the quorum, so it must not keep a quorum without any voter from being corrected.
        if not _no_voter_runs(draft):
            return None
        operation = None
    if change is None and (operation is not None or not _is_safe_now(draft)):
        return None
    if change is None or (wanted != change.to and operation is None):
        return _begin(draft, status, wanted)
    if isinstance(workload, Unobserved) or workload.stateful_set is None:
        return Wait(f"the controllers could not be observed: {workload}")
    stateful_set = workload.stateful_set
    if operation is not None:
        return _follow_voter(draft, status, change, stateful_set)
    if stateful_set.drift or not stateful_set.observed:
        draft.act(ApplyControllers(status.mode, status.format_allowed))
        return Wait("the changed spec.controllers is being applied to the controllers' objects")
    if _replace_pods_that_are_down(draft, stateful_set):
        return Wait("a controller that is down on an outdated configuration is being replaced")
    if change.failed:
        return _wait_failed(change)
    if draft.status.operation is None and (down := _down_on_the_new_configuration(stateful_set)) is not None:
        # It was not restarted by this roll-out (its node failed, or its container did). It is followed like one that was.
        restarted = Operation(
            kind=OperationKind.RESTART_CONTROLLER, node_id=down.ordinal, pod=down.name, pod_uid="", started_at=draft.now
        )
        draft.update(operation=restarted)
        return Wait(f"controller {down.ordinal} is down on the changed configuration{_trouble(down)}")
    if draft.status.operation is not None:
        return None
    return _roll_next(draft, status, change, stateful_set)


def give_up_change(draft: Draft) -> None:
    """Render the controllers from the old spec again during a rollback, and replace those that are down on the new one."""
    status, workload = draft.status.controllers, draft.observation.controllers
    if status is None or status.change is None or isinstance(workload, Unobserved) or workload.stateful_set is None:
        return
    change = status.change
    if not change.failed:
        failed = change.model_copy(update={"failed": "given up: the migration rolls back"})
        draft.update(controllers=status.model_copy(update={"change": failed, "rendered": change.before}))
        draft.act(ApplyControllers(status.mode, status.format_allowed))
    elif workload.stateful_set.drift:
        draft.act(ApplyControllers(status.mode, status.format_allowed))
    else:
        _replace_pods_that_are_down(draft, workload.stateful_set)


def _begin(draft: Draft, status: ControllersStatus, wanted: RenderedControllers) -> Wait:
    """Record the change and render it; each pod keeps its configuration until its restart."""
    before = status.rendered if status.change is None or status.change.failed else status.change.before
    change = ControllersChange(to=wanted, before=before or wanted, started_at=draft.now)
    draft.update(controllers=status.model_copy(update={"rendered": wanted, "change": change}))
    draft.act(ApplyControllers(status.mode, status.format_allowed))
    draft.tell(
        EventReason.CONTROLLERS_CHANGING, "Rolling the change of spec.controllers out, the active controller last"
    )
    return Wait("spec.controllers changed: the roll-out starts")


def _roll_next(
    draft: Draft, status: ControllersStatus, change: ControllersChange, stateful_set: StatefulSetState
) -> Wait | None:
    """Restart the next voter that runs an older template, the active one last; close the change after the last one."""
    pending = [p for p in stateful_set.pods if brokers.is_outdated(stateful_set, p)]
    if blockers := _mirror_blockers(draft, change):
        return healing.fail_over_stuck_mirror(draft) or Wait(f"before the next controller restarts: {blockers[0]}")
    if len(stateful_set.pods) != len(status.node_ids):
        return Wait(f"controllers' change: {len(stateful_set.pods)} of {len(status.node_ids)} pods exist")
    if not pending and (blockers := gates.quorum_blockers(draft) or _not_ready(stateful_set)):
        return Wait(f"controllers' change: every controller runs the changed configuration; {blockers[0]}")
    if not pending:
        draft.update(controllers=status.model_copy(update={"change": None}))
        draft.tell(EventReason.CONTROLLERS_CHANGED, "Every controller runs the changed spec.controllers")
        return None
    if blockers := gates.quorum_blockers(draft) or gates.cluster_blockers(draft) or _not_ready(stateful_set):
        return Wait(f"before the next controller restarts: {blockers[0]}")
    current = draft.status.healing
    awaited = current is not None and current.failover_at is not None and current.synced_at is None
    if not _is_safe_now(draft) or (awaited and current is not None and current.given_up_at is None):
        return None  # a healing waits for its failover first
    active = draft.observation.active_controller
    pending.sort(key=lambda p: (active is not None and p.ordinal == active.node_id, p.ordinal))
    if active is not None and pending[0].ordinal == active.node_id and healing.unhealed(draft) is not None:
        return None  # the next active controller would overwrite differences in ZooKeeper that are not archived yet
    if (waiting := restarts.paused(draft)) is not None:
        return waiting
    if active is not None and pending[0].ordinal == active.node_id:
        noted = change.model_copy(update={"active_restarted_at": draft.now})
        draft.update(controllers=status.model_copy(update={"change": noted}))
    return controller_restarts.restart_controller(draft, pending[0])


def _follow_voter(
    draft: Draft, status: ControllersStatus, change: ControllersChange, stateful_set: StatefulSetState
) -> Wait:
    """Follow one voter's restart; past its deadline stop the roll-out and restore that voter's old configuration."""
    operation = draft.status.operation
    waiting = controller_restarts.finish_controller_restart(draft, status.mode, whole_cluster=False)
    if operation is None or waiting is None:
        node = "" if operation is None else f" {operation.node_id}"
        return _wait_failed(change) if change.failed else Wait(f"controller{node} is back; the change goes on")
    replaced = not any(p.uid == operation.pod_uid for p in stateful_set.pods)
    if not change.failed and (not replaced or draft.now - operation.started_at <= VOTER_DEADLINE):
        return waiting  # the old pod still runs, so the new configuration has not failed
    if not change.failed:
        failed = change.model_copy(update={"failed": f"controller {operation.node_id}: {waiting.message}"[:500]})
        draft.update(controllers=status.model_copy(update={"change": failed, "rendered": change.before}))
        draft.act(ApplyControllers(status.mode, status.format_allowed))
        draft.tell(EventReason.STALLED, f"Controllers' change stopped: {failed.failed}", EventType.WARNING)
        return _wait_failed(failed)
    if stateful_set.drift:
        draft.act(ApplyControllers(status.mode, status.format_allowed))
    else:
        _replace_pods_that_are_down(draft, stateful_set)
    return _wait_failed(change)


def _replace_pods_that_are_down(draft: Draft, stateful_set: StatefulSetState) -> bool:
    """Replace pods that are down on an outdated template, which stops no running voter; return whether there were any.

    While another voter is down on the current template, that template may be the reason, so no further voter gets it.
    """
    if _down_on_the_new_configuration(stateful_set) is not None:
        return False
    down = [
        p
        for p in stateful_set.pods
        if not p.ready and not p.deleting and stateful_set.observed and brokers.is_outdated(stateful_set, p)
    ]
    for pod in down:
        draft.act(RestartPod(pod.name, pod.uid, pod.ordinal, restarts.CONTROLLER_GRACE_SECONDS, ready=False))
    return bool(down)


def _wait_failed(change: ControllersChange) -> Wait:
    return Wait(
        f"the roll-out of spec.controllers stopped ({change.failed}); that controller gets its old configuration back. Correct spec.controllers, or revert it",
        WaitKind.USER,
        Reason.CONTROLLERS_CHANGE_FAILED,
        stalled=True,
    )


def _is_safe_now(step: StepContext) -> bool:
    """Return whether a voter may restart with another configuration.

    It may not between the claim on ``/controller`` and dual-write, when the active controller copies the metadata (KIP-866).
    """
    phase, zookeeper = step.status.phase, step.observation.zookeeper
    if phase is Phase.PROVISIONING_QUORUM or phase in _WITH_MIRROR:
        return True
    if phase is not Phase.TAKING_OVER:
        return False
    if _no_voter_runs(step):
        return True
    if not isinstance(zookeeper, ZooKeeperState):
        return False
    claimed = zookeeper.controller is None or zookeeper.controller.kraft_controller_epoch >= 0
    roll = brokers.roll_of(step)
    # The copy starts once the last broker has registered, so one broker must still run the user's own template.
    return not claimed and not isinstance(roll, Unobserved) and bool(roll.pending)


def _mirror_blockers(step: StepContext, change: ControllersChange) -> list[str]:
    """Return why ``/migration`` is not known to move under the controller that is active since its restart."""
    if step.status.phase not in _WITH_MIRROR:
        return []
    if blockers := gates.dual_write_blockers(step):
        return blockers
    offset = step.status.migration_offset
    moved = offset.moved_at if offset is not None else None
    if change.active_restarted_at is not None and (moved is None or moved <= change.active_restarted_at):
        return ["the offset in /migration has not moved since the active controller restarted"]
    return []


def _no_voter_runs(step: StepContext) -> bool:
    """Return whether every controller's pod is known to be down, so that nothing copies, mirrors or serves."""
    workload = step.observation.controllers
    if isinstance(workload, Unobserved) or workload.stateful_set is None:
        return False
    return not any(p.ready for p in workload.stateful_set.pods)


def _down_on_the_new_configuration(stateful_set: StatefulSetState) -> PodState | None:
    """Return a pod that runs the current template and is not Ready."""
    return next(
        (p for p in stateful_set.pods if not p.ready and not p.deleting and not brokers.is_outdated(stateful_set, p)),
        None,
    )


def _not_ready(stateful_set: StatefulSetState) -> list[str]:
    down: list[PodState] = [p for p in stateful_set.pods if p.deleting or not p.ready]
    return [f"pod {p.name} is not Ready{_trouble(p)}" for p in down]


def _trouble(pod: PodState) -> str:
    return f": {pod.trouble}" if pod.trouble else ""
