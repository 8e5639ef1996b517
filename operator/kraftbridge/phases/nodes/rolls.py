"""Rolls the brokers into a mode, and a change of what formatted voters are rendered from to them, one node at a time. Pure.

Status keeps the spec from which the voters' objects are rendered. So an upgrade of the operator restarts nothing, and a voter that does not start
with its new configuration gets the old one back. Listener and voters cannot change (rules of the CRD).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from kraftbridge.models.catalogue import Code
from kraftbridge.models.conditions import Reason
from kraftbridge.models.decision import (
    ApplyControllers,
    ConfigureBrokers,
    EventReason,
    EventType,
    LockStatefulSet,
    RestartPod,
)
from kraftbridge.models.observation import PodState, StatefulSetState, Unobserved, ZooKeeperState
from kraftbridge.models.phase import BrokerMode, Phase
from kraftbridge.models.report import Profile
from kraftbridge.models.status import (
    BrokerUndo,
    ControllersChange,
    ControllersStatus,
    NodeStatus,
    Operation,
    OperationKind,
    RenderedControllers,
    WaitKind,
    some,
    tuned_controllers,
)
from kraftbridge.phases import certificates, gates, healing, originals, shared_settings, verifying
from kraftbridge.phases.draft import Draft, StepContext, Wait
from kraftbridge.phases.nodes import brokers, comparing, controllers, deadlines, restarts, sights, undoing
from kraftbridge.phases.nodes.deadlines import PastDeadline

LAST_BROKER = "last-broker"


def configure_brokers(draft: Draft, mode: BrokerMode) -> Wait | None:
    """Lock the StatefulSets and render ``mode`` in their templates; return None once all of them render it."""
    sets = draft.stateful_sets()
    if isinstance(sets, Unobserved):
        return Wait(str(sets))
    gone = {s.name for s in originals.lost(draft)}
    for item in sets:
        recorded = item.original.complete or item.name in gone
        if item.lock != draft.identity.lock or item.update_strategy != "OnDelete" or not recorded:
            draft.act(LockStatefulSet(item.name))
            return Wait(f"StatefulSet {item.name} is being recorded, locked and set to OnDelete")
    if (waiting := originals.blocked(draft)) is not None:
        return waiting
    for item in sets:
        if item.name in gone and not item.configuration.startswith(f"{mode}-"):
            return originals.wait(draft, item)
        if not item.configuration.startswith(f"{mode}-") or item.drift:
            # Record the changed fields while they still hold the user's values; a Secret keeps these values.
            others = tuple(f for f in draft.status.changed_fields if f.object != f"StatefulSet/{item.name}")
            draft.update(changed_fields=(*others, *item.former))
            draft.act(ConfigureBrokers(item.name, mode))
            lost = (
                f" again, because {item.last_writer or 'another writer'} changed {', '.join(item.drift)}"
                if item.drift
                else ""
            )
            return Wait(f"StatefulSet {item.name}: the {mode} configuration is being applied{lost}")
        if not item.observed:
            return Wait(f"StatefulSet {item.name}: the StatefulSet controller has not observed its new revision yet")
    return None


def reassert_brokers(draft: Draft, mode: BrokerMode) -> None:
    """Put lock and fields back if another writer changed them during a restart."""
    if draft.status.operation is None:
        return
    sets = draft.stateful_sets()
    if isinstance(sets, Unobserved):
        return
    for item in sets:
        if item.lock != draft.identity.lock or item.update_strategy != "OnDelete":
            draft.act(LockStatefulSet(item.name))
        if item.original.complete and (item.drift or not item.configuration.startswith(f"{mode}-")):
            draft.act(ConfigureBrokers(item.name, mode))


def roll_brokers(draft: Draft, mode: BrokerMode) -> Wait | None:
    """Bring every broker to ``mode``, one at a time; return None when all of them run it and the last one is what it was."""
    if draft.status.broker_undo is not None and (waiting := _take_back(draft, draft.status.broker_undo)) is not None:
        return waiting
    if draft.status.operation is None and (waiting := configure_brokers(draft, mode)) is not None:
        return waiting
    if (waiting := finish_broker_restart(draft)) is not None:
        return waiting
    roll = brokers.roll_of(draft)
    if isinstance(roll, Unobserved):
        return Wait(str(roll))
    if (lost := brokers.lost_broker(draft)) is not None:
        if (
            draft.status.phase is Phase.TAKING_OVER
            and not roll.pending
            and (waiting := verifying.ensure_verdict(draft, Profile.ZOOKEEPER, Phase.TAKING_OVER, LAST_BROKER))
            is not None
        ):
            return waiting  # it is the last one that registers: the copy starts then
        return restart_lost_broker(draft, *lost)
    if (waiting := _ensure_compared(draft)) is not None:
        return waiting
    if not roll.pending:
        return _other_image(draft)
    # The controller copies the metadata once the last broker registers, so the tree is verified right before that restart.
    last = mode is BrokerMode.MIGRATION and len(roll.pending) == 1
    if last and draft.status.phase is Phase.TAKING_OVER:
        # Launch during the hold: a Spark start beside a restarting broker would prolong the restart.
        verifying.launch_ahead(draft, Profile.ZOOKEEPER, Phase.TAKING_OVER, LAST_BROKER)
    if (broken := brokers.broken_broker(draft, roll, mode)) is not None:
        if last and (waiting := _ensure_copy_prepared(draft)) is not None:
            return waiting
        return restarts.paused(draft) or restart_broker(draft, broken[1], broken[0])
    if (waiting := restarts.finish_hold(draft)) is not None:
        return waiting
    if (waiting := _other_image(draft)) is not None:
        return waiting
    blockers = gates.restart_blockers(draft) or gates.quorum_blockers(draft)
    if blockers:
        return gates.restart_wait(draft, blockers)
    if mode is BrokerMode.MIGRATION and (waiting := controllers.ensure_voters_registered(draft)) is not None:
        return waiting
    if (
        mode is BrokerMode.KRAFT
        and draft.status.phase.reversible
        and (waiting := healing.ensure_mirror_moves(draft)) is not None
    ):
        return replace(waiting, message=f"before the next broker restarts: {waiting.message}")
    if last and (waiting := _ensure_copy_prepared(draft)) is not None:
        return waiting
    if (waiting := restarts.paused(draft)) is not None:
        return waiting
    stateful_set, pod = roll.pending[0]
    if (waiting := shared_settings.wait_before_restart(draft, draft.status.broker_ids[pod.name])) is not None:
        return waiting
    if (waiting := comparing.ensure_recorded(draft, pod, mode)) is not None:
        return waiting
    return restart_broker(draft, pod, stateful_set)


def _ensure_compared(draft: Draft) -> Wait | None:
    """Return None once the broker that restarted last is what it was. One that destroys records or cuts clients off in KRaft mode is taken back."""
    waiting = comparing.ensure_compared(draft)
    if waiting is None and draft.status.phase is not Phase.ROLLING_BACK and comparing.begin_unseen_comparison(draft):
        waiting = comparing.ensure_compared(draft)
    if waiting is None:
        return None
    undoing.begin_undo(draft)
    if draft.status.broker_undo is None:
        return waiting
    return replace(waiting, message=f"{waiting.message}. It is taken back to migration mode", kind=WaitKind.WORK)


def _take_back(draft: Draft, undo: BrokerUndo) -> Wait | None:
    """Bring a broker back to migration mode and hold the roll; return None once what led to it has changed."""
    if undo.finished_at is not None:
        return undoing.hold(draft)
    if draft.status.operation is None and (waiting := configure_brokers(draft, BrokerMode.MIGRATION)) is not None:
        return waiting
    if (waiting := finish_broker_restart(draft)) is not None:
        return waiting
    sets = draft.stateful_sets()
    if isinstance(sets, Unobserved):
        return Wait(str(sets))
    found = next(((s, p) for s in sets for p in s.pods if draft.status.broker_ids.get(p.name) == undo.node_id), None)
    if found is None:
        return Wait(f"broker {undo.node_id}: its pod does not exist; the broker is taken back to migration mode")
    stateful_set, pod = found
    if not brokers.is_outdated(stateful_set, pod):
        draft.update(broker_undo=undo.model_copy(update={"finished_at": draft.now}))
        return undoing.hold(draft)
    blockers = gates.restart_blockers(draft) or gates.quorum_blockers(draft)
    if blockers:
        return Wait(f"broker {undo.node_id} is taken back to migration mode: {blockers[0]}")
    return restarts.paused(draft) or restart_broker(draft, pod, stateful_set)


def finish_broker_restart(draft: Draft) -> Wait | None:
    """Follow the restart in progress to its end; return None when there is none."""
    operation = draft.status.operation
    if operation is None:
        return None
    sets = draft.stateful_sets()
    if isinstance(sets, Unobserved):
        return Wait(str(sets))
    found = next(((s, p) for s in sets for p in s.pods if p.name == operation.pod), None)
    if found is None:
        return Wait(f"broker {operation.node_id}: pod {operation.pod} is being replaced")
    stateful_set, pod = found
    late = draft.now - operation.started_at > restarts.DEAF_FOR
    if late and pod.uid != operation.pod_uid and not pod.ready and brokers.is_outdated(stateful_set, pod):
        # The pod started from a template that was changed since and cannot run. This restart is over; the next one uses the current template.
        draft.update(operation=None)
        return None
    if (waiting := restarts.follow_replacement(draft, operation, pod, gates.restart_blockers)) is not None:
        return waiting
    mode = BrokerMode.of(stateful_set.configuration)
    blockers = [*brokers.registration_blockers(draft, mode), *gates.cluster_blockers(draft)]
    if blockers and not brokers.another_is_broken(draft, mode):
        overdue = deadlines.overdue(draft)
        again = overdue is not None and overdue[1] is PastDeadline.RESTART_AGAIN
        if again and _others_serve(draft, operation.node_id):
            return restart_broker(draft, pod, stateful_set, repeated=True)
        return Wait(f"broker {operation.node_id} is back ({mode}); {blockers[0]}{_start_of(draft, pod)}")
    if draft.status.phase is not Phase.ROLLING_BACK:
        comparing.begin_comparison(draft, operation.node_id, pod, mode)
    restarts.note_restart(draft, draft.status.operation or operation)
    ready_at = (draft.status.operation or operation).last_pod_ready_at or draft.now
    draft.update(operation=None, nodes=_restarted(draft, operation, stateful_set.name, mode))
    roll = brokers.roll_of(draft)
    longest = draft.spec.strategy.address_cache_seconds
    more = isinstance(roll, Unobserved) or bool(roll.pending)
    # JVMs that run the user's own template cache addresses for `address_cache_seconds`.
    some_jvm_caches_long = mode is BrokerMode.ZOOKEEPER or (draft.status.phase is Phase.TAKING_OVER and more)
    seconds = longest if some_jvm_caches_long else min(longest, draft.spec.strategy.short_address_cache_seconds)
    draft.update(
        hold_until=ready_at + timedelta(seconds=seconds),
        hold_reason=f"the JVMs no longer cache the old address of broker {operation.node_id}",
    )
    return None


def _start_of(step: StepContext, pod: PodState) -> str:
    """Return what is known of the start of a broker that is not back."""
    watched = step.status.watched_start
    if watched is None or watched.process != pod.process:
        return ""
    problem = sights.start_problem(step, pod)
    return f"; {problem}" if problem else "; its log shows no loading of partitions"


def restart_broker(draft: Draft, pod: PodState, stateful_set: StatefulSetState, *, repeated: bool = False) -> Wait:
    """Record and start the restart of one broker; the caller has checked that no other node is down."""
    if (waiting := originals.blocked(draft)) is not None:
        return waiting  # a restart that is repeated or ends early gets here without `configure_brokers`
    if stateful_set.drift:
        return Wait(
            f"StatefulSet {stateful_set.name} does not render our configuration: {', '.join(stateful_set.drift)}"
        )
    if stateful_set.foreign:
        return Wait(
            f"StatefulSet {stateful_set.name}: {stateful_set.last_writer or 'another writer'} changed its template during the migration: {', '.join(stateful_set.foreign)}. "
            "Revert that change: no broker is restarted on a mixed configuration",
            reason=Reason.FOREIGN_CHANGE,
            stalled=True,
            requeue_after=timedelta(seconds=5),
        )
    comparing.forget_unwritten_record(draft)
    node_id = draft.status.broker_ids[pod.name]
    restarts.begin(draft, OperationKind.RESTART_BROKER, node_id, pod, repeated=repeated)
    draft.tell(
        EventReason.BROKER_RESTARTING,
        f"Restarting broker {node_id} (pod {pod.name}) with configuration {stateful_set.configuration}",
    )
    return Wait(f"broker {node_id}: pod {pod.name} is being stopped")


def restart_lost_broker(draft: Draft, stateful_set: StatefulSetState, pod: PodState) -> Wait:
    """Restart a broker that the quorum lacks, once. If clients still reach the broker, its restart must make nothing unavailable.

    It is not restarted while its log says that it loads its partitions, nor while nobody knows what its log says.
    """
    node_id = draft.status.broker_ids[pod.name]
    if problem := sights.start_problem(draft, pod):
        return Wait(
            f"broker {node_id} came back by itself, and the quorum lacks it: {problem}. If it does not recover its logs, restart it: kubectl delete pod {pod.name}",
            reason=Reason.DEADLINE_EXCEEDED,
            stalled=draft.status.watched_start is not None,
        )
    if brokers.serves(draft, pod) and (blockers := gates.service_blockers(draft) or gates.redundancy_blockers(draft)):
        return gates.restart_wait(draft, blockers)
    return restarts.paused(draft) or restart_broker(draft, pod, stateful_set, repeated=True)


def _ensure_copy_prepared(draft: Draft) -> Wait | None:
    """Return None once what Kafka will copy is sound, kept and watched; the copy starts when the last broker registers."""
    waiting = verifying.ensure_verdict(draft, Profile.ZOOKEEPER, Phase.TAKING_OVER, LAST_BROKER)
    if waiting is not None or draft.status.phase is not Phase.TAKING_OVER:
        return waiting
    return verifying.ensure_tree_watched(draft)


def _others_serve(step: StepContext, node_id: int) -> bool:
    """Return whether restarting this broker makes nothing unavailable: the cluster is healthy, or only this broker is missing."""
    ids = frozenset(step.status.broker_ids.values())
    views = gates.views_of_cluster(step)
    whole = bool(views) and not any(v.problems(ids) for v in views)
    away = not any(node_id in v.brokers for v in views) and gates.all_serve(step, ids - {node_id})
    return (whole and not gates.redundancy_blockers(step)) or (away and not any(v.offline_count for v in views))


def record_images(draft: Draft) -> Wait | None:
    """Record the images that the brokers run right before the first of them restarts; None once they are recorded."""
    sets = draft.stateful_sets()
    if isinstance(sets, Unobserved):
        return Wait(str(sets))
    images = {p.name: dict(sorted(p.images)) for s in sets for p in s.pods}
    nodes = tuple(n.model_copy(update={"images": images.get(n.pod, {})}) for n in draft.status.nodes)
    draft.update(nodes=nodes)
    return None


def _other_image(step: StepContext) -> Wait | None:
    """Return a wait if a broker came back with another image than it ran before: a tag moved, and no copy was started with that image.

    A rollback goes on: nothing else brings the brokers back.
    """
    sets = step.stateful_sets()
    if isinstance(sets, Unobserved) or step.status.phase is Phase.ROLLING_BACK:
        return None
    before = {n.pod: n.images for n in step.status.nodes}
    for stateful_set in sets:
        name = f"StatefulSet/{stateful_set.name}"
        if step.spec.preflight.accepts(Code.DRY_START_OTHER_IMAGE, name):
            continue
        for pod in stateful_set.pods:
            known = before.get(pod.name, {})
            for container, digest in sorted(pod.images):
                if known.get(container, digest) != digest:
                    return Wait(
                        f"broker {step.status.broker_ids.get(pod.name, pod.ordinal)} came back with another image: container {container} of pod {pod.name} ran {known[container]} before the "
                        f"migration and runs {digest}. Its tag names another image now, and no copy was started with it, so no other broker restarts. Let the tag name the former image and "
                        f"delete pod {pod.name}, accept {Code.DRY_START_OTHER_IMAGE} on {name} in spec.preflight.accepted, or roll back (spec.target ZooKeeper)",
                        WaitKind.USER,
                        Reason.FINDINGS,
                        stalled=True,
                        requeue_after=timedelta(seconds=5),
                    )
    return None


def _restarted(step: StepContext, operation: Operation, stateful_set: str, mode: BrokerMode) -> tuple[NodeStatus, ...]:
    old = next((n for n in step.status.nodes if n.id == operation.node_id), None)
    new = NodeStatus(
        id=operation.node_id,
        role="broker",
        pod=operation.pod,
        stateful_set=stateful_set,
        mode=mode,
        ready=True,
        registered=True,
        restarts=(old.restarts if old else 0) + 1,
        images=old.images if old else {},
    )
    return tuple(sorted((new, *(n for n in step.status.nodes if n.id != operation.node_id)), key=lambda n: n.id))


VOTER_DEADLINE = timedelta(seconds=180)
"""Deadline for a voter to rejoin the quorum on its new configuration."""
CRASHING_DEADLINE = timedelta(seconds=60)
"""Deadline for a voter whose container ends again and again on its new configuration (``CrashLoopBackOff``)."""
_WITH_MIRROR = frozenset({Phase.DUAL_WRITE, Phase.ROLLING_BROKERS, Phase.AWAITING_FINALIZATION})


def roll_changed_controllers(draft: Draft) -> Wait | None:
    """Take the next step of rolling out a change of ``spec.controllers``; return None when there is none or it must wait."""
    status, workload = draft.status.controllers, draft.observation.controllers
    if status is None or status.format_allowed:
        return None  # `controller_restarts` replaces unformatted voters all at once
    wanted = _wanted(draft, status)
    change = status.change
    if status.rendered is None or (change is None and _only_names_secrets(wanted, status.rendered)):
        draft.update(controllers=status.model_copy(update={"rendered": wanted}))
        return None
    if change is None and wanted == status.rendered:
        return None
    if draft.status.operation is None and (blocked := certificates.roll_blocker(draft)) is not None:
        return blocked
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
        return Wait(f"controller {down.ordinal} is down on the changed configuration: {down.down}")
    if draft.status.operation is not None:
        return None
    return _roll_next(draft, status, change, stateful_set)


def _wanted(step: StepContext, status: ControllersStatus) -> RenderedControllers:
    """Return what the controllers' objects should be rendered from. A Secret that was not seen is as it was."""
    last = status.change.to if status.change is not None else status.rendered
    known = last.credentials if last is not None else {}
    workload = step.observation.controllers
    seen = {} if isinstance(workload, Unobserved) else workload.credentials
    # What an earlier release of the operator rendered is recorded first (`shared_settings.track`): an upgrade restarts nothing.
    shared = None if last is not None and last.broker_settings is None else step.status.broker_settings
    return RenderedControllers.of(tuned_controllers(step.spec, step.status), {**known, **seen}, step.spec.pods, shared)


def _only_names_secrets(wanted: RenderedControllers, rendered: RenderedControllers) -> bool:
    """Return whether only fingerprints are new that were not known before, as after an upgrade of the operator. That restarts nothing."""
    known = rendered.credentials
    return (
        wanted != rendered
        and known.items() <= wanted.credentials.items()
        and wanted.model_copy(update={"credentials": known}) == rendered
    )


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
    rotated = [n for n, f in wanted.credentials.items() if before is not None and before.credentials.get(n, f) != f]
    section = "spec.pods" if before is not None and before.pods != wanted.pods else "spec.controllers"
    what = f"Secret {', '.join(rotated)}" if rotated else section
    if before is not None and (changed := shared_settings.changed(before.broker_settings, wanted.broker_settings)):
        what = f"the brokers' settings ({some(changed)})"
    draft.tell(EventReason.CONTROLLERS_CHANGING, f"Rolling the change of {what} out, the active controller last")
    return Wait(f"{what} changed: the roll-out starts")


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
    return controllers.restart_controller(draft, pending[0])


def _follow_voter(
    draft: Draft, status: ControllersStatus, change: ControllersChange, stateful_set: StatefulSetState
) -> Wait:
    """Follow one voter's restart; past its deadline stop the roll-out and restore that voter's old configuration."""
    operation = draft.status.operation
    waiting = controllers.finish_controller_restart(draft, status.mode, whole_cluster=False)
    if operation is None or waiting is None:
        node = "" if operation is None else f" {operation.node_id}"
        return _wait_failed(change) if change.failed else Wait(f"controller{node} is back; the change goes on")
    replaced = not any(p.uid == operation.pod_uid for p in stateful_set.pods)
    crashing = any(p.name == operation.pod and "CrashLoopBackOff" in p.trouble for p in stateful_set.pods)
    deadline = CRASHING_DEADLINE if crashing else VOTER_DEADLINE
    if not change.failed and (not replaced or draft.now - operation.started_at <= deadline):
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
    mend = "Correct spec.controllers, or revert it"
    if changed := shared_settings.changed(change.before.broker_settings, change.to.broker_settings):
        mend = f"It has what the brokers run with now ({some(changed)}). Correct spec.controllers or these settings of the brokers, or revert them"
    return Wait(
        f"the roll-out of spec.controllers stopped ({change.failed}); that controller gets its old configuration back. {mend}",
        WaitKind.USER,
        Reason.CONTROLLERS_CHANGE_FAILED,
        stalled=True,
    )


def _is_safe_now(step: StepContext) -> bool:
    """Return whether a voter may restart with another configuration.

    It may not between the claim on ``/controller`` and dual-write, when the active controller copies the metadata (KIP-866).
    """
    phase, zookeeper = step.status.phase, step.observation.zookeeper
    if phase in (Phase.PROVISIONING_QUORUM, Phase.COMPLETED) or phase in _WITH_MIRROR:
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
    return [p.down for p in stateful_set.pods if p.down]


def reconcile_nodes(draft: Draft, mode: BrokerMode) -> Wait | None:
    """Keep every node configured and running as the phase needs it.

    In this order: put back the fields of a StatefulSet that somebody changed during a restart, roll out a change of ``spec.controllers``, finish a
    failover of the active controller, and restart the brokers that do not run ``mode``.

    Parameters
    ----------
    draft
        Decision of this step.
    mode
        Mode that every broker must run.

    Returns
    -------
    Wait or None
        The wait while a node changes; None when every node runs as the phase needs it.
    """
    reassert_brokers(draft, undoing.mode_of(draft, mode))
    return roll_changed_controllers(draft) or healing.finish_failover(draft) or roll_brokers(draft, mode)
