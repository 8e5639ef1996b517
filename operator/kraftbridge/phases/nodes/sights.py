"""Records when the operator first saw each pod, and follows the start of a broker that is not back. Pure.

A node's clock, the API server's and the operator's may differ by minutes, so no duration is measured between two of them. `record_sights` replaces the
times of the observed pods by the operator's own.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from kraftbridge.models.observation import (
    ControllersWorkload,
    PodState,
    StartLog,
    StatefulSetState,
    Unobserved,
)
from kraftbridge.models.phase import Phase
from kraftbridge.models.status import PodSight, WatchedStart
from kraftbridge.phases.draft import Draft, StepContext

WATCHED_AFTER = timedelta(seconds=30)
"""A broker with little to load is back within seconds of its start."""
RECOVERY_PATIENCE = timedelta(seconds=180)
"""A broker logs each partition that it loads; one large partition may take minutes (``LogLoader`` logs each recovered segment)."""


def record_sights(draft: Draft) -> None:
    """Record what is new of the pods, and give the observed pods the times of the records."""
    if draft.status.phase is Phase.PREFLIGHT:
        return  # nothing is restarted
    known = {sight.pod: sight for sight in draft.status.sights}
    sets = tuple(
        item if isinstance(item, Unobserved) else _with_sights(draft, item) for item in draft.observation.stateful_sets
    )
    workload = draft.observation.controllers
    if isinstance(workload, ControllersWorkload) and workload.stateful_set is not None:
        workload = replace(workload, stateful_set=_with_sights(draft, workload.stateful_set))
    draft.observation = replace(draft.observation, stateful_sets=sets, controllers=workload)
    seen = {pod.name: sight_of(draft, pod) for pod in _pods(draft)}
    sights = tuple(sight for _, sight in sorted((known | seen).items()))
    if sights != draft.status.sights:
        draft.update(sights=sights)


def _with_sights(step: StepContext, item: StatefulSetState) -> StatefulSetState:
    return replace(item, pods=tuple(_with_sight(step, pod) for pod in item.pods))


def _with_sight(step: StepContext, pod: PodState) -> PodState:
    sight = sight_of(step, pod)
    return replace(pod, ready_since=sight.ready_at, seen_since=sight.since)


def sight_of(step: StepContext, pod: PodState) -> PodSight:
    """Return when a pod was first seen as it is, which is now if it was not."""
    known = next((sight for sight in step.status.sights if sight.pod == pod.name), None)
    since = ready_at = step.now
    if known is not None and known.process == pod.process:
        since = min(known.since, step.now)  # the operator's own clock was set back
        ready_at = min(known.ready_at or step.now, step.now)
    return PodSight(pod=pod.name, process=pod.process, since=since, ready_at=ready_at if pod.ready else None)


def _pods(step: StepContext) -> list[PodState]:
    workload = step.observation.controllers
    items = [item for item in step.observation.stateful_sets if isinstance(item, StatefulSetState)]
    if isinstance(workload, ControllersWorkload) and workload.stateful_set is not None:
        items.append(workload.stateful_set)
    return [pod for item in items for pod in item.pods]


def follow_start(draft: Draft, pod: PodState | None) -> None:
    """Follow the start of a broker that runs and is not back; None: every broker is back.

    Its log is read from the next step on.
    """
    if pod is None:
        draft.update(watched_start=None)
        return
    watched = draft.status.watched_start
    if watched is None or watched.process != pod.process:
        draft.update(watched_start=WatchedStart(pod=pod.name, process=pod.process))
        return
    log = draft.observation.start_log
    if isinstance(log, StartLog) and log.process == pod.process and log.recovery not in ("", watched.recovery):
        draft.update(watched_start=watched.model_copy(update={"recovery": log.recovery, "recovery_at": draft.now}))


def recovering(step: StepContext, pod: PodState) -> WatchedStart | None:
    """Return what a broker's log says about its start if it goes on loading partitions."""
    watched = step.status.watched_start
    if watched is None or watched.process != pod.process or watched.recovery_at is None:
        return None
    return watched if step.now - watched.recovery_at <= RECOVERY_PATIENCE else None


def start_problem(step: StepContext, pod: PodState) -> str:
    """Return why it is not known that a broker's start has come to a standstill, ``""`` if it is."""
    watched, log = step.status.watched_start, step.observation.start_log
    if watched is None or watched.process != pod.process:
        return "its log was not read yet"
    if isinstance(log, Unobserved):
        return str(log)
    if log.process != pod.process:
        return "its log was not read yet"
    return f"it loads its partitions: {watched.recovery}" if recovering(step, pod) is not None else ""
