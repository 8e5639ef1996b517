"""Rolls the brokers into a mode: configures their StatefulSets and restarts one broker at a time. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from kraftbridge.models.conditions import Reason
from kraftbridge.models.decision import ConfigureBrokers, EventReason, LockStatefulSet
from kraftbridge.models.observation import PodState, StatefulSetState, Unobserved
from kraftbridge.models.phase import BrokerMode, Phase
from kraftbridge.models.report import Profile
from kraftbridge.models.status import NodeStatus, Operation, OperationKind
from kraftbridge.phases import (
    brokers,
    controller_restarts,
    copied,
    deadlines,
    gates,
    healing,
    restarts,
    tracking,
    verifying,
)
from kraftbridge.phases.deadlines import PastDeadline
from kraftbridge.phases.draft import Draft, StepContext, Wait

LAST_BROKER = "last-broker"


def configure_brokers(draft: Draft, mode: BrokerMode) -> Wait | None:
    """Lock the StatefulSets and render ``mode`` in their templates; return None once all of them render it."""
    sets = draft.stateful_sets()
    if isinstance(sets, Unobserved):
        return Wait(str(sets))
    for item in sets:
        if item.lock != draft.identity.lock or item.update_strategy != "OnDelete":
            draft.act(LockStatefulSet(item.name))
            return Wait(f"StatefulSet {item.name} is being locked and set to OnDelete")
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
        if item.drift or not item.configuration.startswith(f"{mode}-"):
            draft.act(ConfigureBrokers(item.name, mode))


def roll_brokers(draft: Draft, mode: BrokerMode) -> Wait | None:
    """Bring every broker to ``mode``, one at a time; return None when all of them run it."""
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
        # The quorum lacks this broker, so only what clients notice holds its restart back.
        if brokers.serves(draft, lost[1]) and (
            blockers := gates.service_blockers(draft) or gates.redundancy_blockers(draft)
        ):
            return gates.restart_wait(draft, blockers)
        return restarts.paused(draft) or restart_broker(draft, lost[1], lost[0])
    if not roll.pending:
        return None
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
    blockers = gates.restart_blockers(draft) or gates.quorum_blockers(draft)
    if blockers:
        return gates.restart_wait(draft, blockers)
    if mode is BrokerMode.MIGRATION and (waiting := controller_restarts.ensure_voters_registered(draft)) is not None:
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
    return restart_broker(draft, pod, stateful_set)


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
            return restart_broker(draft, pod, stateful_set)
        return Wait(f"broker {operation.node_id} is back ({mode}); {blockers[0]}")
    tracking.note_restart(draft, draft.status.operation or operation)
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


def restart_broker(draft: Draft, pod: PodState, stateful_set: StatefulSetState) -> Wait:
    """Record and start the restart of one broker; the caller has checked that no other node is down."""
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
    node_id = draft.status.broker_ids[pod.name]
    restarts.begin(draft, OperationKind.RESTART_BROKER, node_id, pod)
    draft.tell(
        EventReason.BROKER_RESTARTING,
        f"Restarting broker {node_id} (pod {pod.name}) with configuration {stateful_set.configuration}",
    )
    return Wait(f"broker {node_id}: pod {pod.name} is being stopped")


def _ensure_copy_prepared(draft: Draft) -> Wait | None:
    """Return None once what Kafka will copy is sound, kept and watched; the copy starts when the last broker registers."""
    waiting = verifying.ensure_verdict(draft, Profile.ZOOKEEPER, Phase.TAKING_OVER, LAST_BROKER)
    if waiting is not None or draft.status.phase is not Phase.TAKING_OVER:
        return waiting
    return copied.ensure_tree_watched(draft)


def _others_serve(step: StepContext, node_id: int) -> bool:
    """Return whether restarting this broker makes nothing unavailable: the cluster is healthy, or only this broker is missing."""
    ids = frozenset(step.status.broker_ids.values())
    views = gates.views_of_cluster(step)
    whole = bool(views) and not any(v.problems(ids) for v in views)
    away = not any(node_id in v.brokers for v in views) and gates.all_serve(step, ids - {node_id})
    return (whole and not gates.redundancy_blockers(step)) or (away and not any(v.offline_count for v in views))


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
    )
    return tuple(sorted((new, *(n for n in step.status.nodes if n.id != operation.node_id)), key=lambda n: n.id))
