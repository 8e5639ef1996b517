"""Records when the operator first saw each pod, and follows the start of a broker that is not back. Pure.

A node's clock, the API server's and the operator's may differ by minutes, so no duration is measured between two of
them. `record_sights` replaces the times of the observed pods by the operator's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

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
"""A broker logs each partition that it loads; one large partition may take minutes
(``LogLoader`` logs each recovered segment)."""
LONGEST_LOOK = timedelta(seconds=30)
"""Most time that counts between two looks: a clock that is set forward, or an operator that was away, saw nothing."""


def record_sights(draft: Draft) -> None:
    """Record what is new of the pods, and give the observed pods the times of the records."""
    if draft.status.phase is Phase.PREFLIGHT:
        return  # nothing is restarted
    observation = draft.observation
    former = {sight.pod: sight for sight in draft.status.sights}
    pods = (pod for stateful_set in observation.seen_sets for pod in stateful_set.pods)
    sights = former | {pod.name: _sight_of(draft, pod, former.get(pod.name)) for pod in pods}
    sets = tuple(_timed(item, sights) for item in observation.stateful_sets)
    workload = observation.controllers
    if isinstance(workload, ControllersWorkload) and workload.stateful_set is not None:
        workload = replace(workload, stateful_set=_timed_set(workload.stateful_set, sights))
    draft.observation = replace(observation, stateful_sets=sets, controllers=workload)
    recorded = tuple(sight for _, sight in sorted(sights.items()))
    if recorded != draft.status.sights:
        draft.update(sights=recorded)


def _timed(item: StatefulSetState | Unobserved, sights: Mapping[str, PodSight]) -> StatefulSetState | Unobserved:
    return item if isinstance(item, Unobserved) else _timed_set(item, sights)


def _timed_set(stateful_set: StatefulSetState, sights: Mapping[str, PodSight]) -> StatefulSetState:
    timed = ((pod, sights[pod.name]) for pod in stateful_set.pods)
    pods = (replace(pod, ready_since=sight.ready_at, seen_since=sight.since) for pod, sight in timed)
    return replace(stateful_set, pods=tuple(pods))


def _sight_of(step: StepContext, pod: PodState, former: PodSight | None) -> PodSight:
    """Return when a pod was first seen as it is, which is now if it was not."""
    process = pod.process
    since = ready_at = step.now
    if former is not None and former.process == process:
        since = min(former.since, step.now)  # the operator's own clock was set back
        ready_at = min(former.ready_at or step.now, step.now)
        if (since, ready_at if pod.ready else None) == (former.since, former.ready_at):
            return former
    return PodSight(pod=pod.name, process=process, since=since, ready_at=ready_at if pod.ready else None)


def follow_start(draft: Draft, pod: PodState | None) -> None:
    """Follow the start of a broker that runs and is not back; None: every broker is back.

    Pods that nobody could list are none that came back.
    """
    if pod is None:
        if not isinstance(draft.stateful_sets(), Unobserved):
            draft.update(watched_start=None)
        return
    watched = _watched(draft, pod) or WatchedStart(pod=pod.name, process=pod.process)
    log = draft.observation.start_log
    if not isinstance(log, StartLog) or log.process != pod.process:
        draft.update(watched_start=watched)
        return
    news = {"looked_at": draft.now, "still_milliseconds": _still_milliseconds(watched, draft.now)}
    if log.recovery not in ("", watched.recovery):
        news = {"looked_at": draft.now, "still_milliseconds": 0, "recovery": log.recovery}
    if watched.recovery or log.recovery:
        watched = watched.model_copy(update=news)
    draft.update(watched_start=watched)


def _still_milliseconds(watched: WatchedStart, now: datetime) -> int:
    """Return for how long the log was seen to tell nothing new, this look included."""
    since = timedelta(0) if watched.looked_at is None else now - watched.looked_at
    counted = min(max(since, timedelta(0)), LONGEST_LOOK)
    return watched.still_milliseconds + round(counted / timedelta(milliseconds=1))


def _watched(step: StepContext, pod: PodState) -> WatchedStart | None:
    """Return what is known of this process' start, None when another process is watched or none."""
    watched = step.status.watched_start
    if watched is not None and watched.process == pod.process:
        return watched
    return None


def recovering(step: StepContext, pod: PodState) -> datetime | None:
    """Return when a broker's log last told of another partition, None if it does not go on loading them."""
    watched = _watched(step, pod)
    if watched is None or not watched.recovery:
        return None
    still = timedelta(milliseconds=watched.still_milliseconds)
    return None if still > RECOVERY_PATIENCE else step.now - still


def start_problem(step: StepContext, pod: PodState) -> str:
    """Return why it is not known that a broker's start has come to a standstill, ``""`` if it is."""
    watched = _watched(step, pod)
    log = step.observation.start_log
    if watched is not None and isinstance(log, Unobserved):
        return str(log)
    if watched is None or isinstance(log, Unobserved) or log.process != pod.process:
        return "its log was not read yet"
    if recovering(step, pod) is not None:
        return f"it loads its partitions: {watched.recovery}"
    return ""
