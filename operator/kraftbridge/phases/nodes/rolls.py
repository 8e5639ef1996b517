"""Rolls the brokers into a mode, and a change of what formatted voters are rendered from to them. Pure.

One node restarts at a time. Status keeps the spec from which the voters' objects are rendered. So an upgrade of the
operator restarts nothing, and a voter that does not start with its new configuration gets the old one back.
Listener and voters cannot change (rules of the CRD).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from kraftbridge.models.catalogue import Code
from kraftbridge.models.conditions import Reason
from kraftbridge.models.decision import (
    ConfigureBrokers,
    EventReason,
    EventType,
    LockStatefulSet,
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
from kraftbridge.outside.shell import command
from kraftbridge.phases import (
    belongings,
    certificates,
    cleaning,
    gates,
    healing,
    kafka4_leg,
    observed,
    originals,
    reaching,
    shared_settings,
    topic_ids,
    upgrading,
    verifying,
)
from kraftbridge.phases.draft import SLOW, Draft, StepContext, Wait, for_user
from kraftbridge.phases.nodes import (
    address_caches,
    batching,
    brokers,
    comparing,
    controllers,
    converging,
    deadlines,
    expanding,
    restarts,
    sights,
    stopping,
    templates,
    undoing,
)
from kraftbridge.phases.nodes.converging import Lack, Pace
from kraftbridge.phases.nodes.deadlines import PastDeadline

LAST_BROKER = "last-broker"
_BEFORE_NEXT = "before the next broker restarts"


def configure_brokers(draft: Draft, mode: BrokerMode) -> Wait | None:
    """Lock the StatefulSets and render ``mode`` in their templates; return None once all of them render it."""
    sets = draft.stateful_sets()
    if isinstance(sets, Unobserved):
        return Wait(str(sets))
    gone = {stateful_set.name for stateful_set in originals.lost(draft)}
    for stateful_set in sets:
        recorded = stateful_set.original.complete or stateful_set.name in gone
        if not recorded or not _is_locked(draft, stateful_set):
            draft.act(LockStatefulSet(stateful_set.name))
            return Wait(f"StatefulSet {stateful_set.name} is being recorded, locked and set to OnDelete")
    configured = (_configure(draft, stateful_set, mode) for stateful_set in sets)
    return originals.blocked(draft) or next(filter(None, configured), None)


def _is_locked(step: StepContext, stateful_set: StatefulSetState) -> bool:
    return stateful_set.lock == step.identity.lock and stateful_set.update_strategy == "OnDelete"


def _configure(draft: Draft, stateful_set: StatefulSetState, mode: BrokerMode) -> Wait | None:
    """Render ``mode`` in one template; return None once it renders it."""
    name = stateful_set.name
    renders = stateful_set.configuration.startswith(f"{mode}-")
    if not renders and stateful_set in originals.lost(draft):
        return originals.wait(draft, stateful_set)
    if renders and not stateful_set.drift:
        if stateful_set.observed:
            return None
        return unobserved_revision(stateful_set)
    _begin_mode(draft, stateful_set, mode)
    again = ""
    if stateful_set.drift:
        again = f" again, because {_writer_of(stateful_set)} changed {', '.join(stateful_set.drift)}"
    return Wait(f"StatefulSet {name}: the {mode} configuration is being applied{again}")


def _begin_mode(draft: Draft, stateful_set: StatefulSetState, mode: BrokerMode) -> None:
    """Render ``mode`` in one template, and record what follows from it: a pod that starts by itself takes it."""
    upgrading.note_lift(draft, mode)
    # Record the changed fields while they still hold the user's values; a Secret keeps these values.
    name = f"StatefulSet/{stateful_set.name}"
    others = tuple(field for field in draft.status.changed_fields if field.object != name)
    draft.update(changed_fields=(*others, *stateful_set.former))
    draft.act(ConfigureBrokers(stateful_set.name, mode))


def _writer_of(stateful_set: StatefulSetState) -> str:
    return stateful_set.last_writer or "another writer"


def unobserved_revision(stateful_set: StatefulSetState) -> Wait:
    """Return the wait for the StatefulSet controller."""
    return Wait(f"StatefulSet {stateful_set.name}: the StatefulSet controller has not observed its new revision yet")


def reassert_brokers(draft: Draft, mode: BrokerMode) -> None:
    """Put lock and fields back if another writer changed them during a restart."""
    sets = draft.stateful_sets()
    if isinstance(sets, Unobserved) or draft.status.operation is None:
        return
    for stateful_set in sets:
        if not _is_locked(draft, stateful_set):
            draft.act(LockStatefulSet(stateful_set.name))
        changed = stateful_set.drift or not stateful_set.configuration.startswith(f"{mode}-")
        if changed and stateful_set.original.complete:
            _begin_mode(draft, stateful_set, mode)


def roll_brokers(draft: Draft, mode: BrokerMode) -> Wait | None:
    """Bring every broker to ``mode``, one at a time.

    Return None when all of them run it and the last one is what it was.
    """
    address_caches.take_address_caches(draft)
    return (
        _take_back(draft)
        or ensure_configured(draft, mode)
        or finish_broker_restart(draft)
        or _roll_next_broker(draft, mode)
    )


def ensure_configured(draft: Draft, mode: BrokerMode) -> Wait | None:
    """Put lock and fields back while no broker restarts; return None once every template renders ``mode``."""
    if draft.status.operation is not None:
        return None
    return configure_brokers(draft, mode)


def _roll_next_broker(draft: Draft, mode: BrokerMode) -> Wait | None:
    roll = brokers.roll_of(draft)
    if isinstance(roll, Unobserved):
        return Wait(str(roll))
    takes_over = draft.status.phase is Phase.TAKING_OVER
    if (lost := brokers.lost_broker(draft)) is not None:
        # The copy starts when the last broker registers.
        ready = _ensure_copy_may_begin(draft, lost[1]) if takes_over and not roll.pending else None
        return ready or restart_lost_broker(draft, *lost)
    if (waiting := _ensure_compared(draft)) is not None:
        return waiting
    if not roll.pending:
        return _other_image(draft)
    # The controller copies the metadata once the last broker registers.
    # So the tree is verified right before that restart.
    last = mode is BrokerMode.MIGRATION and len(roll.pending) == 1
    if last and takes_over:
        # Launch during the hold: a Spark start beside a restarting broker would prolong the restart.
        verifying.launch_ahead(draft, Profile.ZOOKEEPER, Phase.TAKING_OVER, LAST_BROKER)
    ends_roll = draft.status.phase is Phase.ROLLING_BROKERS and len(roll.pending) == 1
    if ends_roll:
        verifying.launch_ahead(draft, Profile.DUAL_WRITE, Phase.AWAITING_FINALIZATION)
    if (broken := brokers.broken_broker(draft, roll, mode)) is not None:
        stateful_set, pod = broken
        held = _held_while_it_serves(draft, pod)
        prepared = held or _ensure_copy_prepared(draft, pod, last=last) or restarts.paused(draft)
        return prepared or restart_broker(draft, pod, stateful_set)
    stateful_set, pod = roll.pending[0]
    phase = draft.status.phase
    if stateful_set in originals.lost(draft) and not (phase.reversible or phase.row.on_kafka4):
        return None  # nobody can tell what has changed, and a broker that runs need not restart for what is left to do
    return (
        restarts.finish_hold(draft)
        or _other_image(draft)
        or stopping.wait_before_restart(draft)
        or templates.ensure_looked_at(draft, stateful_set)
        or gates.restart_gate(draft, quorum=mode.registers)
        or _ensure_mode_can_begin(draft)
        or _ensure_copy_prepared(draft, pod, last=last)
        or restarts.paused(draft)
        or reaching.wait_before_restart(draft)
        or shared_settings.wait_before_restart(draft, draft.status.broker_ids[pod.name])
        or (verifying.wait_for_session(draft) if ends_roll else None)
        or comparing.ensure_recorded(draft, pod, mode)
        or restart_batch(draft, roll)
    )


def restart_batch(draft: Draft, roll: brokers.Roll) -> Wait:
    """Restart the next broker, and record which others are down together with it."""
    stateful_set, pod = roll.pending[0]
    waiting = restart_broker(draft, pod, stateful_set)
    batching.begin_batch(draft, roll)
    return waiting


def _ensure_mode_can_begin(draft: Draft) -> Wait | None:
    """Return None when the quorum can register a broker, and ZooKeeper mirrors the log where it must.

    The copy begins once every voter is registered (KIP-866); after it, nothing waits for that.
    """
    if draft.status.phase is Phase.TAKING_OVER:
        return controllers.ensure_voters_registered(draft) or topic_ids.wait(draft, _BEFORE_NEXT)
    if draft.status.phase is Phase.UPGRADING_BROKERS:
        return _zookeeper_leads(draft)
    if not draft.status.phase.reversible:
        return None
    return observed.preceded(_BEFORE_NEXT, healing.ensure_mirror_moves(draft))


def _zookeeper_leads(step: StepContext) -> Wait | None:
    """Return None while a broker on ZooKeeper is controller."""
    zookeeper = step.observation.zookeeper
    if isinstance(zookeeper, Unobserved):
        return Wait(f"{_BEFORE_NEXT}: {zookeeper}")
    if zookeeper.controller is None or zookeeper.controller.kraft_controller_epoch >= 0:
        return Wait(f"{_BEFORE_NEXT}: a broker must be controller (ZooKeeper's /controller)")
    return None


def _ensure_compared(draft: Draft, *, unseen: bool = True) -> Wait | None:
    """Return None once the broker that restarted last is what it was.

    One that destroys records or cuts clients off in KRaft mode is taken back.

    Parameters
    ----------
    draft
        Decision of this step.
    unseen
        Whether brokers are compared, too, that came back by themselves.
    """
    waiting = comparing.ensure_compared(draft)
    looks = waiting is None and unseen and draft.status.phase is not Phase.ROLLING_BACK
    if looks and comparing.begin_unseen_comparison(draft):
        waiting = comparing.ensure_compared(draft)
    if waiting is None:
        return None
    undoing.begin_undo(draft)
    if draft.status.broker_undo is None:
        return waiting
    return replace(waiting, message=f"{waiting.message}. It is taken back to migration mode", kind=WaitKind.WORK)


def _take_back(draft: Draft) -> Wait | None:
    """Bring a broker back to migration mode and hold the roll.

    Return None when none is taken back, or once what led to it has changed.
    """
    undo = draft.status.broker_undo
    if undo is None:
        return None
    if undo.finished_at is not None:
        return undoing.hold(draft)
    return (
        ensure_configured(draft, BrokerMode.MIGRATION)
        or finish_broker_restart(draft)
        or _restart_in_former_mode(draft, undo)
    )


def _restart_in_former_mode(draft: Draft, undo: BrokerUndo) -> Wait | None:
    for node_id in (undo.node_id, *undo.others):
        broker = brokers.broker_with_id(draft, node_id)
        if broker is None:
            return Wait(f"broker {node_id}: its pod does not exist; the broker is taken back to migration mode")
        stateful_set, pod = broker
        if not brokers.is_outdated(stateful_set, pod):
            continue
        if blockers := gates.restart_blockers(draft) or gates.quorum_blockers(draft):
            return Wait(f"broker {node_id} is taken back to migration mode: {blockers[0]}")
        return restarts.paused(draft) or restart_broker(draft, pod, stateful_set)
    draft.update(broker_undo=undo.model_copy(update={"finished_at": draft.now}))
    undoing.begin_comparison_of_first(draft, undo)
    return undoing.hold(draft)


def finish_broker_restart(draft: Draft) -> Wait | None:
    """Follow the restart in progress to its end; return None when there is none."""
    expanding.renew_stuck_leaders(draft)
    if draft.status.operation is None:
        return _follow_rest_of_batch(draft)
    sets = draft.stateful_sets()
    if isinstance(sets, Unobserved):
        return Wait(str(sets))
    batching.note_ends(draft)
    if (stopped := _stop_next_of_batch(draft)) is not None:
        return stopped
    batching.follow_other(draft)
    operation = draft.status.operation
    broker = brokers.broker_named(draft, operation.pod)
    if broker is None:
        return Wait(f"broker {operation.node_id}: pod {operation.pod} is being replaced")
    stateful_set, pod = broker
    late = draft.now - operation.started_at > restarts.DEAF_FOR
    outdated = pod.uid != operation.pod_uid and brokers.is_outdated(stateful_set, pod)
    if late and outdated and not pod.ready:
        # The pod started from a template that was changed since and cannot run.
        # This restart is over; the next one uses the current template.
        draft.update(operation=None)
        return _follow_rest_of_batch(draft)

    operation = stopping.note_end(draft, operation, pod)

    def may_stop(step: StepContext) -> list[str]:
        if (waiting := _blocked_by_set(step, stateful_set)) is not None:
            return [waiting.message]
        if not pod.ready:
            return []  # it can only help
        if (held := _held_while_it_serves(step, pod)) is not None:
            return [held.message]
        if (moved := _other_image(step, besides=pod)) is not None:
            return [moved.message]
        if changed := templates.blockers(step, stateful_set):
            return changed
        if batching.is_joining(step, operation):
            return _joining_blockers(step, operation, stateful_set)
        return reaching.blockers(step) or gates.restart_blockers(step)

    waiting = restarts.follow_replacement(draft, operation, pod, may_stop)
    if draft.status.operation is None:
        batching.restore_former(draft)
    waiting = waiting or _follow_return(draft, operation, stateful_set, pod)
    waiting = waiting or stopping.ensure_log_read(draft, operation, stateful_set.name, pod)
    if waiting is None:
        _conclude_restart(draft, draft.status.operation or operation, stateful_set, pod)
        return _follow_rest_of_batch(draft)
    return waiting


def _held_while_it_serves(step: StepContext, pod: PodState) -> Wait | None:
    """Return the wait after another broker was killed, None if clients do not reach this one, or it is taken back.

    A broker that hangs may serve again before its pod stops.
    """
    undo = step.status.broker_undo
    is_taken_back = undo is not None and undo.finished_at is None
    if is_taken_back or not brokers.serves(step, pod):
        return None
    return stopping.wait_before_restart(step)


def _stop_next_of_batch(draft: Draft) -> Wait | None:
    """Stop the next broker of a batch once the one before has handed over its leaders.

    Return None when there is none, or while something keeps it: the batch is followed meanwhile.
    """
    batch = draft.status.batch
    operation = draft.status.operation
    if batch is None or operation is None or not batch.waiting:
        return None
    if draft.spec.paused:
        batching.drop_waiting(draft)
        return None
    if batching.handing_over(draft, operation):
        return None
    broker = brokers.broker_with_id(draft, batch.waiting[0])
    late = draft.now - batch.stopped_at > batching.PATIENCE
    if late or broker is None or not brokers.is_outdated(*broker) or not broker[1].ready:
        batching.drop_waiting(draft)
        return None
    stateful_set, pod = broker
    mode = BrokerMode.of(stateful_set.configuration)
    if batching.blockers(draft, batch.waiting[0], mode) or _blocked_by_set(draft, stateful_set) is not None:
        return None
    if _other_image(draft) is not None or _lacks_topic_ids(draft):
        return None
    if reaching.wait_before_restart(draft, batching.not_listening(draft)) is not None:
        return None
    waiting = None if draft.status.phase is Phase.ROLLING_BACK else comparing.ensure_recorded(draft, pod, mode)
    waiting = waiting or restart_broker(draft, pod, stateful_set)
    if waiting.kind is WaitKind.USER:
        batching.drop_waiting(draft)
        return None
    if draft.status.operation is not operation:
        batching.take_stopped(draft, batch, operation)
    return waiting


def _lacks_topic_ids(step: StepContext) -> bool:
    """Return whether it is not known that a broker which joins a batch to migration mode knows the topics' ids.

    Those of the batch that were stopped before had shown that they know them.
    """
    if step.status.phase is not Phase.TAKING_OVER:
        return False
    return topic_ids.wait(step, _BEFORE_NEXT, without=batching.away(step)) is not None


def _joining_blockers(step: StepContext, operation: Operation, stateful_set: StatefulSetState) -> list[str]:
    """Return why a broker must not join the others of its batch any more, before its pod stops."""
    late = step.now - operation.started_at > batching.PATIENCE
    tried = f"its pod did not begin to stop in {batching.PATIENCE.seconds} s{observed.because(step.failure())}"
    mode = BrokerMode.of(stateful_set.configuration)
    return [*gates.failed((late, tried)), *batching.blockers(step, operation.node_id, mode)]


def _follow_rest_of_batch(draft: Draft) -> Wait | None:
    """Follow the next broker of a batch, once the one before is what it was; return None after the last one."""
    batch = draft.status.batch
    if batch is None or not batch.others:
        return None
    if draft.status.phase is not Phase.ROLLING_BACK and (waiting := _ensure_compared(draft, unseen=False)) is not None:
        return waiting
    batching.take_other(draft)
    return Wait(f"broker {batch.others[0].node_id} restarted together with others; it is looked at now")


def _follow_return(draft: Draft, operation: Operation, stateful_set: StatefulSetState, pod: PodState) -> Wait | None:
    """Return None once a broker whose new pod is Ready is back, or another one must be restarted first."""
    mode = BrokerMode.of(stateful_set.configuration)
    blockers = [*brokers.registration_blockers(draft, mode), *gates.cluster_blockers(draft)]
    if not blockers or brokers.another_is_broken(draft, mode):
        return None
    again = deadlines.action_due(draft) is PastDeadline.RESTART_AGAIN
    if again and _others_serve(draft, operation.node_id):
        return restart_broker(draft, pod, stateful_set, repeated=True)
    return Wait(f"broker {operation.node_id} is back ({mode}); {blockers[0]}{_start_of(draft, pod)}")


def _conclude_restart(draft: Draft, operation: Operation, stateful_set: StatefulSetState, pod: PodState) -> None:
    """Record the end of a broker's restart, and hold the next one while JVMs cache the broker's old address."""
    mode = BrokerMode.of(stateful_set.configuration)
    stopping.note_killed(draft, operation, stateful_set, pod)
    batch = draft.status.batch
    if batch is not None:
        draft.update(broker_record=batching.record_of(draft, operation))
    if draft.status.phase is not Phase.ROLLING_BACK:
        comparing.begin_comparison(draft, operation.node_id, pod, mode)
    restarts.note_restart(draft, operation)
    ready_at = operation.last_pod_ready_at or draft.now
    draft.update(operation=None, nodes=_restarted(draft, operation, stateful_set.name, mode))
    roll = brokers.roll_of(draft)
    is_last = not isinstance(roll, Unobserved) and not roll.pending
    seconds = address_caches.pause_seconds(draft, draft.status.phase, mode, is_last=is_last)
    until = ready_at + timedelta(seconds=seconds)
    if batch is not None and draft.status.hold_until is not None:
        until = max(until, draft.status.hold_until)
    draft.update(
        hold_until=until,
        hold_reason=f"brokers and clients no longer cache the old address of broker {operation.node_id}",
    )


def _start_of(step: StepContext, pod: PodState) -> str:
    """Return what is known of the start of a broker that is not back."""
    watched = step.status.watched_start
    if watched is None or watched.process != pod.process:
        return ""
    problem = sights.start_problem(step, pod)
    return f"; {problem}" if problem else "; its log shows no loading of partitions"


def _blocked_by_set(step: StepContext, stateful_set: StatefulSetState) -> Wait | None:
    """Return the wait while a StatefulSet is not what a broker of it may restart on, None if it is."""
    if (waiting := originals.blocked(step)) is not None:
        return waiting
    if stateful_set.drift:
        return Wait(
            f"StatefulSet {stateful_set.name} does not render our configuration: {', '.join(stateful_set.drift)}"
        )
    if stateful_set.foreign and step.status.phase is not Phase.ROLLING_BACK:
        return Wait(
            f"StatefulSet {stateful_set.name}: {_writer_of(stateful_set)} changed its template during the migration: "
            f"{', '.join(stateful_set.foreign)}. "
            "Revert that change: no broker is restarted on a mixed configuration",
            reason=Reason.FOREIGN_CHANGE,
            stalled=True,
            requeue_after=SLOW,
        )
    return None


def restart_broker(draft: Draft, pod: PodState, stateful_set: StatefulSetState, *, repeated: bool = False) -> Wait:
    """Record and start the restart of one broker; the caller has checked that no other node is down."""
    # A restart that is repeated or ends early gets here without `configure_brokers`.
    if (waiting := _blocked_by_set(draft, stateful_set)) is not None:
        return waiting
    if pod.ready and (closed := reaching.blockers(draft, batching.not_listening(draft))):
        return Wait(f"broker {draft.status.broker_ids[pod.name]} is not restarted: {closed[0]}")
    if pod.ready and (moved := _other_image(draft, besides=pod)) is not None:
        return moved
    if (waiting := templates.ensure_looked_at(draft, stateful_set)) is not None:
        return waiting
    comparing.forget_unwritten_record(draft)
    node_id = draft.status.broker_ids[pod.name]
    batch = draft.status.batch
    if batch is not None and not (repeated and node_id in batch.brokers):
        draft.update(batch=None)
    restarts.begin(draft, OperationKind.RESTART_BROKER, node_id, pod, repeated=repeated)
    draft.tell(
        EventReason.BROKER_RESTARTING,
        f"Restarting broker {node_id} (pod {pod.name}) with configuration {stateful_set.configuration}",
    )
    return Wait(f"broker {node_id}: pod {pod.name} is being stopped")


def restart_lost_broker(draft: Draft, stateful_set: StatefulSetState, pod: PodState) -> Wait:
    """Restart a broker that the quorum lacks, once.

    If clients still reach the broker, its restart must make nothing unavailable.
    It is not restarted while its log says that it loads its partitions, nor while nobody knows what its log says.
    """
    node_id = draft.status.broker_ids[pod.name]
    if problem := sights.start_problem(draft, pod):
        return Wait(
            f"broker {node_id} came back by itself, and the quorum lacks it: {problem}. "
            f"If it does not recover its logs, restart it: {command('kubectl delete pod {pod}', pod=pod.name)}",
            reason=Reason.DEADLINE_EXCEEDED,
            stalled=draft.status.watched_start is not None,
        )
    blockers = gates.service_blockers(draft) or gates.redundancy_blockers(draft)
    if blockers and brokers.serves(draft, pod):
        return gates.restart_wait(draft, blockers)
    waiting = _held_while_it_serves(draft, pod) or restarts.paused(draft)
    return waiting or restart_broker(draft, pod, stateful_set, repeated=True)


def _ensure_copy_verified(draft: Draft) -> Wait | None:
    return verifying.ensure_verdict(draft, Profile.ZOOKEEPER, Phase.TAKING_OVER, LAST_BROKER)


def _ensure_copy_may_begin(draft: Draft, pod: PodState) -> Wait | None:
    """Return None once the controllers reach all brokers but the one that restarts, and the tree is sound."""
    broker = draft.status.broker_ids[pod.name]
    return (
        reaching.wait_before_restart(draft, frozenset({broker}))
        or topic_ids.wait(draft, "before the copy begins", without=frozenset({broker}))
        or _ensure_copy_verified(draft)
    )


def _ensure_copy_prepared(draft: Draft, pod: PodState, *, last: bool) -> Wait | None:
    """Return None once what Kafka will copy is sound, kept and watched, and the controllers reach the brokers.

    The copy starts when the last broker registers.
    """
    if not last:
        return None
    waiting = _ensure_copy_may_begin(draft, pod)
    if waiting is not None or draft.status.phase is not Phase.TAKING_OVER:
        return waiting
    return verifying.ensure_tree_watched(draft)


def _others_serve(step: StepContext, node_id: int) -> bool:
    """Return whether restarting this broker makes nothing unavailable.

    The cluster is healthy, or only this broker is missing, and those that restart together with it.
    """
    ids = frozenset(step.status.broker_ids.values())
    views = gates.views_of_cluster(step)
    healthy = not any(view.problems(ids) for view in views)
    if views and healthy and not gates.redundancy_blockers(step):
        return True
    listed = any(node_id in view.brokers or view.offline_count for view in views)
    return not listed and gates.all_serve(step, ids - {node_id} - batching.away(step))


def record_images(draft: Draft) -> Wait | None:
    """Record the images that the brokers run right before the first of them restarts; None once they are recorded."""
    sets = draft.stateful_sets()
    if isinstance(sets, Unobserved):
        return Wait(str(sets))
    images = {pod.name: dict(sorted(pod.images)) for _, pod in observed.brokers_of(draft)}
    if draft.status.phase is not Phase.UPGRADING_BROKERS:
        for stateful_set, pod in observed.brokers_of(draft):
            images[pod.name] |= upgrading.expected_images(draft, stateful_set.name)
    nodes = (node.model_copy(update={"images": images.get(node.pod, {})}) for node in draft.status.nodes)
    draft.update(nodes=tuple(nodes))
    return None


def _other_image(step: StepContext, besides: PodState | None = None) -> Wait | None:
    """Return a wait if a broker came back with another image than it ran before.

    A tag moved, and no copy was started with that image. A rollback goes on: nothing else brings the brokers back.

    Parameters
    ----------
    besides
        A pod that restarts: one that runs the other image already does not spread it.
    """
    if step.status.phase is Phase.ROLLING_BACK:
        return None
    recorded = {node.pod: node.images for node in step.status.nodes}
    for stateful_set, pod in observed.brokers_of(step):
        if besides is not None and pod.name == besides.name:
            continue
        before = recorded.get(pod.name, {})
        if BrokerMode.of(pod.configuration).is_of_bridge:
            before = {**before, **upgrading.expected_images(step, stateful_set.name)}
        elif BrokerMode.of(pod.configuration) is BrokerMode.KAFKA4:
            before = {**before, **kafka4_leg.expected_images(step, stateful_set.name)}
        changed = [(container, now) for container, now in sorted(pod.images) if before.get(container, now) != now]
        name = f"StatefulSet/{stateful_set.name}"
        if changed and not step.spec.preflight.accepts(Code.DRY_START_OTHER_IMAGE, name):
            return _moved_tag(step, name, pod, before, changed[0])
    return None


def _moved_tag(
    step: StepContext, name: str, pod: PodState, before: Mapping[str, str], changed: tuple[str, str]
) -> Wait:
    container, image = changed
    message = (
        f"broker {step.status.broker_ids.get(pod.name, pod.ordinal)} came back with another image: "
        f"container {container} of pod {pod.name} ran {before[container]} before the migration and runs {image}. "
        "Its tag names another image now, and no copy was started with it, so no other broker restarts. "
        f"Let the tag name the former image and delete pod {pod.name}, "
        f"accept {Code.DRY_START_OTHER_IMAGE} on {name} in spec.preflight.accepted, "
        "or roll back (spec.target ZooKeeper)"
    )
    return for_user(message)


def _restarted(step: StepContext, operation: Operation, stateful_set: str, mode: BrokerMode) -> tuple[NodeStatus, ...]:
    nodes = {node.id: node for node in step.status.nodes}
    new = NodeStatus(
        id=operation.node_id,
        role="broker",
        pod=operation.pod,
        stateful_set=stateful_set,
        mode=mode,
        ready=True,
        registered=True,
        restarts=1,
    )
    if (old := nodes.get(operation.node_id)) is not None:
        new = new.model_copy(update={"restarts": old.restarts + 1, "images": old.images})
    return tuple(node for _, node in sorted((nodes | {new.id: new}).items()))


VOTER_DEADLINE = timedelta(seconds=180)
"""Deadline for a voter to rejoin the quorum on its new configuration."""
CRASHING_DEADLINE = timedelta(seconds=60)
"""Deadline for a voter whose container ends again and again on its new configuration (``CrashLoopBackOff``)."""


def roll_changed_controllers(draft: Draft) -> Wait | None:
    """Take the next step of rolling out a change of ``spec.controllers``.

    Return None when there is none or it must wait.
    """
    status = draft.status.controllers
    if status is None or status.format_allowed:
        return None  # the phase that creates them brings them all to the present spec
    status = _record_secrets(draft, status)
    wanted = _wanted(draft, status)
    change = status.change
    if status.rendered is None or (change is None and _only_names_secrets(wanted, status.rendered)):
        draft.update(controllers=status.model_copy(update={"rendered": wanted}))
        return None
    if change is None and wanted == status.rendered:
        return None
    if (mending := reconcile_controllers_in_trouble(draft)) is not None:
        return mending
    operation = draft.status.operation
    if operation is None and (blocked := certificates.roll_blocker(draft)) is not None:
        return blocked
    if operation is not None and operation.kind is not OperationKind.RESTART_CONTROLLER:
        # A broker that restarts waits for the quorum.
        # So it must not keep a quorum without any voter from being corrected.
        if not _no_voter_runs(draft):
            return None
        operation = None
    if change is None and (operation is not None or not _is_safe_now(draft)):
        return None
    if change is None or (wanted != change.to and operation is None):
        return _begin(draft, status, wanted)
    stateful_set = observed.controllers_set(draft)
    if stateful_set is None:
        return Wait(f"the controllers could not be observed: {draft.observation.controllers}")
    if operation is not None:
        return _follow_voter(draft, status, change, stateful_set)
    return _roll_change(draft, status, change)


def follow_changed_controller(draft: Draft) -> Wait | None:
    """Follow the voter that restarts with a change of ``spec.controllers``, and begin no other restart."""
    status = draft.status.controllers
    operation = draft.status.operation
    stateful_set = observed.controllers_set(draft)
    if status is None or status.change is None or operation is None or stateful_set is None:
        return None
    if operation.kind is not OperationKind.RESTART_CONTROLLER:
        return None
    return _follow_voter(draft, status, status.change, stateful_set)


def reconcile_controllers_in_trouble(draft: Draft) -> Wait | None:
    """Give the corrected ``spec.controllers`` to voters that do not run: it stops nothing, so it is safe in any phase.

    Return None when every voter runs, or nothing was corrected.
    """
    status = draft.status.controllers
    stateful_set = observed.controllers_set(draft)
    if status is None or status.format_allowed or status.rendered is None or stateful_set is None:
        return None
    if not any(pod.trouble for pod in converging.staying_down(stateful_set)):
        return None
    change = status.change
    wanted = _wanted(draft, status)
    if wanted != (status.rendered if change is None else change.to):
        _stop_following_controller(draft)
        return _begin(draft, status, wanted)
    if change is None or change.failed:
        return None
    lack = converging.reconcile_controllers(draft, Pace.DOWN, restarting=_restarting(draft, change))
    return None if lack is None else Wait(lack.words)


def _stop_following_controller(draft: Draft) -> None:
    """Forget the restart of a controller: its configuration is another one from now on."""
    operation = draft.status.operation
    if operation is not None and operation.kind is OperationKind.RESTART_CONTROLLER:
        draft.update(operation=None)


def _roll_change(draft: Draft, status: ControllersStatus, change: ControllersChange) -> Wait | None:
    """Take the next step of a recorded change while no voter restarts."""
    restarting = _restarting(draft, change)
    lack = converging.reconcile_controllers(draft, Pace.NEXT, restarting=restarting)
    if lack is not None and lack.serving is None:
        return Wait(lack.words)
    if change.failed:
        return _wait_failed(change)
    if draft.status.operation is not None:
        return None
    pod = converging.down_as_wanted(draft)
    if restarting is None and pod is not None:
        # It was not restarted by this roll-out (its node failed, or its container did).
        # It is followed like one that was.
        restarted = Operation(
            kind=OperationKind.RESTART_CONTROLLER, node_id=pod.ordinal, pod=pod.name, pod_uid="", started_at=draft.now
        )
        draft.update(operation=restarted)
        return Wait(f"controller {pod.ordinal} is down on the changed configuration: {pod.down}")
    return _roll_next(draft, status, change, lack)


def is_renewal(change: ControllersChange) -> bool:
    """Return whether nothing but the content of Secrets has changed."""
    return change.to.model_copy(update={"credentials": change.before.credentials}) == change.before


def _restarting(step: StepContext, change: ControllersChange) -> dict[str, str] | None:
    """Return the pods that must restart where that is all of a change; None: the objects are rendered anew, too.

    Pods that restart read their Secrets anew. So a renewal needs no other template, and after the end of the migration
    the StatefulSet may belong to somebody by now: it was handed over, or somebody else has written it.
    """
    if not step.status.phase.row.gives_back or not is_renewal(change):
        return None
    stateful_set = observed.controllers_set(step)
    written_by_others = stateful_set is not None and bool(stateful_set.last_writer)
    is_theirs = written_by_others or belongings.wanted(step.status.phase, step.status) is None
    return change.pods if is_theirs else None


def _wanted(step: StepContext, status: ControllersStatus) -> RenderedControllers:
    """Return what the controllers' objects should be rendered from. A Secret that was not seen is as it was."""
    last = status.rendered if status.change is None else status.change.to
    workload = step.observation.controllers
    credentials = {} if isinstance(workload, Unobserved) else workload.credentials
    shared: Mapping[str, str] | None = step.status.broker_settings
    if last is not None:
        credentials = {**last.credentials, **credentials}
        # What an earlier release of the operator rendered is recorded first (`shared_settings.track`).
        # So an upgrade restarts nothing.
        if last.broker_settings is None:
            shared = None
    tuned = tuned_controllers(step.spec, step.status)
    clean = cleaning.is_wanted(step)
    return RenderedControllers.of(tuned, credentials, step.spec.pods, shared, clean=clean)


def _record_secrets(draft: Draft, status: ControllersStatus) -> ControllersStatus:
    """Record the Secrets that are seen now, and return the controllers' status."""
    workload = draft.observation.controllers
    if isinstance(workload, Unobserved) or workload.secrets.items() <= status.secrets.items():
        return status
    recorded = status.model_copy(update={"secrets": {**status.secrets, **workload.secrets}})
    draft.update(controllers=recorded)
    return recorded


def _only_names_secrets(wanted: RenderedControllers, rendered: RenderedControllers) -> bool:
    """Return whether only fingerprints are new that were not known before, as after an upgrade of the operator.

    That restarts nothing.
    """
    former = rendered.credentials
    if wanted == rendered or not former.items() <= wanted.credentials.items():
        return False
    return wanted.model_copy(update={"credentials": former}) == rendered


def give_up_change(draft: Draft) -> None:
    """Render the controllers from the old spec again during a rollback.

    Those that are down on the new one are replaced. A change that the rollback began stays.
    """
    status = draft.status.controllers
    if status is None or status.change is None or observed.controllers_set(draft) is None:
        return
    if draft.status.history and status.change.started_at >= draft.status.history[-1].entered_at:
        return
    if status.change.failed:
        converging.reconcile_controllers(draft, Pace.DOWN)
    else:
        _fail_change(draft, status, status.change, "given up: the migration rolls back")


def _fail_change(draft: Draft, status: ControllersStatus, change: ControllersChange, reason: str) -> ControllersChange:
    """Stop a change, and render the controllers from what they were rendered from before."""
    stopped = change.model_copy(update={"failed": reason})
    draft.update(controllers=status.model_copy(update={"change": stopped, "rendered": change.before}))
    if _restarting(draft, change) is None:
        converging.configure_controllers(draft)
    return stopped


def _begin(draft: Draft, status: ControllersStatus, wanted: RenderedControllers) -> Wait:
    """Record the change and render it; each pod keeps its configuration until its restart."""
    before = status.rendered or wanted
    if status.change is not None and not status.change.failed:
        before = status.change.before
    pods = {str(pod.ordinal): pod.uid for pod in observed.controllers_pods(draft)}
    change = ControllersChange(to=wanted, before=before, started_at=draft.now, pods=pods)
    draft.update(controllers=status.model_copy(update={"rendered": wanted, "change": change}))
    if _restarting(draft, change) is None:
        converging.configure_controllers(draft)
    changed = _changed_section(before, wanted)
    draft.tell(EventReason.CONTROLLERS_CHANGING, f"Rolling the change of {changed} out, the active controller last")
    return Wait(f"{changed} changed: the roll-out starts")


def _changed_section(before: RenderedControllers, wanted: RenderedControllers) -> str:
    """Return what the user has changed, as the subject of a sentence."""
    if before.clean != wanted.clean:
        return "spec.handOver"
    if before.image != wanted.image and before.model_copy(update={"image": wanted.image}) == wanted:
        return f"the controllers' image to {wanted.image}"
    if settings := shared_settings.changed(before.broker_settings, wanted.broker_settings):
        return f"the brokers' settings ({some(settings)})"
    former = {**wanted.credentials, **before.credentials}
    if rotated := [name for name, fingerprint in wanted.credentials.items() if former[name] != fingerprint]:
        return f"Secret {', '.join(rotated)}"
    return "spec.controllers" if before.pods == wanted.pods else "spec.pods"


def _roll_next(draft: Draft, status: ControllersStatus, change: ControllersChange, lack: Lack | None) -> Wait | None:
    """Restart the next voter; close the change after the last one."""
    pods = observed.controllers_pods(draft)
    if blockers := _mirror_blockers(draft, change):
        return healing.fail_over_stuck_mirror(draft) or Wait(f"before the next controller restarts: {blockers[0]}")
    if len(pods) != len(status.node_ids):
        return Wait(f"controllers' change: {len(pods)} of {len(status.node_ids)} pods exist")
    if lack is None or lack.serving is None:
        return _close_change(draft, status)
    if blockers := gates.quorum_blockers(draft) or _brokers_blockers(draft, change) or observed.down(pods):
        return Wait(f"before the next controller restarts: {blockers[0]}")
    if not _is_safe_now(draft) or healing.awaits_failover(draft):
        return None
    is_active = observed.leading_controller(draft) == lack.serving.ordinal
    if is_active and healing.unhealed(draft) is not None:
        # The next active controller would overwrite differences in ZooKeeper that are not archived yet.
        return None
    if (waiting := restarts.paused(draft)) is not None:
        return waiting
    if is_active:
        noted = change.model_copy(update={"active_restarted_at": draft.now})
        draft.update(controllers=status.model_copy(update={"change": noted}))
    return controllers.restart_controller(draft, lack.serving)


def _brokers_blockers(step: StepContext, change: ControllersChange) -> list[str]:
    """Return why the brokers forbid the restart of a controller.

    Once their owner has them back, which brokers there are is the owner's matter: one that is gone for good must not
    keep a renewed certificate from the controllers. While a majority of these stays, no broker lacks anything.
    """
    if not step.status.phase.row.gives_back or step.status.given_back_at is None:
        return gates.cluster_blockers(step)
    return [] if is_renewal(change) else gates.leader_blockers(step)


def _close_change(draft: Draft, status: ControllersStatus) -> Wait | None:
    if blockers := gates.quorum_blockers(draft) or observed.down(observed.controllers_pods(draft)):
        return Wait(f"controllers' change: every controller runs the changed configuration; {blockers[0]}")
    draft.update(controllers=status.model_copy(update={"change": None}))
    change = status.change
    changed = "spec.controllers" if change is None else _changed_section(change.before, change.to)
    draft.tell(EventReason.CONTROLLERS_CHANGED, f"Every controller runs the changed {changed}")
    return None


def _follow_voter(
    draft: Draft, status: ControllersStatus, change: ControllersChange, stateful_set: StatefulSetState
) -> Wait:
    """Follow one voter's restart; past its deadline stop the roll-out and restore that voter's old configuration."""
    operation = draft.status.operation
    waiting = controllers.finish_controller_restart(draft, status.mode, whole_cluster=False)
    if operation is None or waiting is None:
        node = "" if operation is None else f" {operation.node_id}"
        if change.failed:
            return _wait_failed(change)
        return Wait(f"controller{node} is back; the change goes on")
    if change.failed:
        converging.reconcile_controllers(draft, Pace.DOWN, restarting=_restarting(draft, change))
        return _wait_failed(change)
    # While the old pod still runs, the new configuration has not failed.
    replaced = all(pod.uid != operation.pod_uid for pod in stateful_set.pods)
    if not replaced or draft.now - operation.started_at <= _voter_deadline(operation, stateful_set):
        return waiting
    stopped = _fail_change(draft, status, change, f"controller {operation.node_id}: {waiting.message}"[:500])
    draft.tell(EventReason.STALLED, f"Controllers' change stopped: {stopped.failed}", EventType.WARNING)
    return _wait_failed(stopped)


def _voter_deadline(operation: Operation, stateful_set: StatefulSetState) -> timedelta:
    problems = (pod.problem for pod in stateful_set.pods if pod.name == operation.pod)
    crashes = any(problem.repeats for problem in problems if problem is not None)
    return CRASHING_DEADLINE if crashes else VOTER_DEADLINE


def _wait_failed(change: ControllersChange) -> Wait:
    mend = "Correct spec.controllers, or revert it"
    if change.before.image != change.to.image:
        mend = (
            f"Image {change.to.image} does not serve there: correct it, or revert it "
            "(spec.target KRaft where it is that of spec.kafka4)"
        )
    if change.before.clean != change.to.clean:
        mend = "Correct spec.controllers, or set spec.handOver back to Guard or Release"
    if changed := shared_settings.changed(change.before.broker_settings, change.to.broker_settings):
        mend = (
            f"It has what the brokers run with now ({some(changed)}). "
            "Correct spec.controllers or these settings of the brokers, or revert them"
        )
    message = (
        f"the roll-out of spec.controllers stopped ({change.failed}); "
        f"that controller gets its old configuration back. {mend}"
    )
    return Wait(message, WaitKind.USER, Reason.CONTROLLERS_CHANGE_FAILED, stalled=True)


def _is_safe_now(step: StepContext) -> bool:
    """Return whether a voter may restart with another configuration.

    It may not between the claim on ``/controller`` and dual-write, when the active controller copies the metadata
    (KIP-866).
    """
    phase = step.status.phase
    if phase.row.mirrors or phase.row.on_kafka4 or phase in (Phase.PROVISIONING_QUORUM, Phase.COMPLETED):
        return True
    if phase is not Phase.TAKING_OVER:
        return False
    return _no_voter_runs(step) or is_before_the_claim(step)


def is_before_the_claim(step: StepContext) -> bool:
    """Return whether the active controller is known not to have claimed ``/controller``, and not to do so soon."""
    zookeeper = step.observation.zookeeper
    if not isinstance(zookeeper, ZooKeeperState):
        return False
    claimed = zookeeper.controller is None or observed.claim_epoch(zookeeper) >= 0
    roll = brokers.roll_of(step)
    # The copy starts once the last broker has registered, so one broker must still run the user's own template.
    return not claimed and not isinstance(roll, Unobserved) and bool(roll.pending)


def _mirror_blockers(step: StepContext, change: ControllersChange) -> list[str]:
    """Return why ``/migration`` is not known to move under the controller that is active since its restart."""
    if not step.status.phase.row.mirrors:
        return []
    if blockers := gates.dual_write_blockers(step):
        return blockers
    offset = step.status.migration_offset
    restarted_at = change.active_restarted_at
    moved_at = None if offset is None else offset.moved_at
    if restarted_at is None or (moved_at is not None and moved_at > restarted_at):
        return []
    return ["the offset in /migration has not moved since the active controller restarted"]


def _no_voter_runs(step: StepContext) -> bool:
    """Return whether every controller's pod is known to be down, so that nothing copies, mirrors or serves."""
    stateful_set = observed.controllers_set(step)
    return stateful_set is not None and not any(pod.ready for pod in stateful_set.pods)


def reconcile_nodes(draft: Draft, mode: BrokerMode) -> Wait | None:
    """Keep every node configured and running as the phase needs it.

    In this order: put back the fields of a StatefulSet that somebody changed during a restart, roll out a change of
    ``spec.controllers``, finish a failover of the active controller, and restart the brokers that do not run ``mode``.

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
