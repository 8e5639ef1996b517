"""Brings the controllers from what runs to what is wanted. Pure.

What is wanted stands in the status (``status.controllers``: mode, and what the objects are rendered from) before
anything is written. `lack_of` says what comes next under one `Pace`: the objects, then the pods. A phase chooses the
pace. What must hold before a controller that serves may stop is the phase's matter: `Lack.serving` names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from kraftbridge.models.decision import AT_ONCE_SECONDS, ApplyControllers, RemoveConfigurations, StopControllers
from kraftbridge.models.observation import ControllersWorkload, PodState, StatefulSetState
from kraftbridge.models.phase import ControllerMode
from kraftbridge.models.status import ControllersStatus, MigrationStatus
from kraftbridge.phases import observed
from kraftbridge.phases.draft import Draft, StepContext
from kraftbridge.phases.nodes import brokers, restarts

STARTING_FOR: Final = timedelta(seconds=60)
"""How long a pod that began to run and reports no trouble counts as starting: it may serve before it is replaced."""


class Pace(StrEnum):
    """Which controllers may leave what they run."""

    DOWN = "those that are down: nothing that serves stops"
    NEXT = "those that are down, and then one that serves, the active one last"
    ALL = "all at once: voters on different ports, or with different logs, make no quorum"


@dataclass(frozen=True, slots=True)
class Lack:
    """The next thing that the controllers lack."""

    words: str
    """For a message."""
    objects: bool = False
    """Whether their objects must be applied."""
    pods: tuple[PodState, ...] = ()
    """Pods that may be replaced at once."""
    serving: PodState | None = None
    """The controller that stops next, once everything holds that it needs."""


def lack_of(step: StepContext, pace: Pace, restarting: Mapping[str, str] | None = None) -> Lack | None:
    """Return what the controllers lack next under this pace, None if that is nothing.

    Parameters
    ----------
    step
        Its status says the mode and what the objects are rendered from.
    pace
        Which controllers may leave what they run.
    restarting
        UID of each pod that must be replaced, by node id: it read something that has changed in a Secret. The objects
        stay as they are. None: pods with an older template than their StatefulSet are replaced.
    """
    controllers = step.status.controllers
    workload = step.observation.controllers
    if controllers is None or not isinstance(workload, ControllersWorkload):
        return Lack(f"the controllers could not be observed: {workload}")
    stateful_set = workload.stateful_set
    if restarting is None and (of_objects := _lack_of_objects(controllers, workload)) is not None:
        return of_objects
    if stateful_set is None:
        return Lack("the controllers' StatefulSet does not exist")
    stale = [pod for pod in stateful_set.pods if _is_stale(stateful_set, pod, restarting)]
    of_pods = _lack_of_pods(step, pace, stateful_set, stale)
    if controllers.format_allowed and not workload.format_allowed:
        pods = () if of_pods is None else of_pods.pods
        return Lack("the controllers are allowed to format their volumes", objects=True, pods=pods)
    return of_pods


def _is_stale(stateful_set: StatefulSetState, pod: PodState, restarting: Mapping[str, str] | None) -> bool:
    if restarting is None:
        return brokers.is_outdated(stateful_set, pod)
    return restarting.get(str(pod.ordinal)) == pod.uid


def _lack_of_objects(controllers: ControllersStatus, workload: ControllersWorkload) -> Lack | None:
    """Return the lack of objects that are as they were recorded; a deleted one is created again by `belongings`."""
    stateful_set = workload.stateful_set
    if stateful_set is None:
        differs = controllers.format_allowed
    else:
        # While a change is rolled out, `drift` is about the whole configuration.
        in_mode = controllers.change is not None or stateful_set.configuration.startswith(f"{controllers.mode}-")
        differs = bool(stateful_set.drift) or not in_mode
    if differs:
        return Lack(f"the controllers' objects are being applied ({controllers.mode})", objects=True)
    if stateful_set is not None and not stateful_set.observed:
        return Lack("the StatefulSet controller has not observed the controllers' new revision yet")
    return None


def _lack_of_pods(step: StepContext, pace: Pace, stateful_set: StatefulSetState, stale: list[PodState]) -> Lack | None:
    if pace is Pace.ALL:
        names = ", ".join(pod.name for pod in stale)
        return Lack(f"{names} restarts, all of them at once", pods=tuple(stale)) if stale else None
    if down := _replaceable(step, stateful_set, stale):
        return Lack("a controller that is down on an outdated configuration is being replaced", pods=down)
    if pace is Pace.DOWN or not stale:
        return None
    active_id = observed.leading_controller(step)
    pod = min(stale, key=lambda pod: (pod.ordinal == active_id, pod.ordinal))
    return Lack(f"controller {pod.ordinal} restarts", serving=pod)


def _replaceable(step: StepContext, stateful_set: StatefulSetState, stale: list[PodState]) -> tuple[PodState, ...]:
    """Return the pods whose replacement stops no running voter.

    While another voter is down on what it shall run, that may be the reason, so no further voter gets it.
    """
    down = staying_down(stateful_set)
    if any(pod not in stale for pod in down):
        return ()
    return tuple(pod for pod in down if not _is_starting(step, pod))


def down_as_wanted(step: StepContext) -> PodState | None:
    """Return a pod that is not Ready although it has the template that its StatefulSet has now."""
    stateful_set = observed.controllers_set(step)
    if stateful_set is None:
        return None
    return next((pod for pod in staying_down(stateful_set) if not brokers.is_outdated(stateful_set, pod)), None)


def staying_down(stateful_set: StatefulSetState) -> list[PodState]:
    """Return the pods that are not Ready and are not stopping."""
    return [pod for pod in stateful_set.pods if not pod.ready and not pod.deleting]


def _is_starting(step: StepContext, pod: PodState) -> bool:
    if pod.trouble or pod.seen_since is None:
        return False
    return step.now - pod.seen_since <= STARTING_FOR


def reconcile_controllers(draft: Draft, pace: Pace, *, restarting: Mapping[str, str] | None = None) -> Lack | None:
    """Supply what the controllers lack next under this pace; return it, None if that is nothing.

    The controller that serves (`Lack.serving`) stays for the caller, which knows what it needs to stop.
    """
    controllers = draft.status.controllers
    lack = lack_of(draft, pace, restarting)
    if lack is None or controllers is None:
        return lack
    if lack.objects:
        configure_controllers(draft)
    # Those that may still format their volumes end in their own time.
    ends_at_once = pace is Pace.ALL and not controllers.format_allowed
    seconds = AT_ONCE_SECONDS if ends_at_once else restarts.CONTROLLER_GRACE_SECONDS
    restarts.restart_controllers(draft, lack.pods, seconds)
    return lack


def configure_controllers(draft: Draft, *, mode: ControllerMode | None = None, only: tuple[str, ...] = ()) -> None:
    """Apply the objects as they are recorded, or in a mode; ``only``: those of this ``Kind/name``."""
    controllers = draft.status.controllers
    if controllers is not None:
        draft.act(ApplyControllers(mode or controllers.mode, controllers.format_allowed, only, controllers.to_format))


def superseded(step: StepContext) -> tuple[tuple[str, str], ...]:
    """Return name and UID of each configuration of the controllers that neither template nor pod mounts.

    The StatefulSet's controller makes pods from the template alone (``OnDelete``), once it has observed it.
    """
    workload = step.observation.controllers
    if not isinstance(workload, ControllersWorkload) or workload.mounted is None:
        return ()
    stateful_set = workload.stateful_set
    if stateful_set is None or stateful_set.deleting or not stateful_set.observed:
        return ()
    return tuple(sorted((n, uid) for n, uid in workload.configurations.items() if n not in workload.mounted))


def remove_superseded(draft: Draft) -> None:
    """Delete the configurations that nothing mounts any more, while the controllers are the operator's."""
    controllers = draft.status.controllers
    if controllers is None or draft.spec.paused or _is_given_over(draft.status):
        return
    # The act of this step may be about to mount one of them.
    if any(isinstance(action, ApplyControllers | StopControllers) and _is_whole(action) for action in draft.actions):
        return
    if found := superseded(draft):
        draft.act(RemoveConfigurations(controllers.name, found))


def _is_whole(action: ApplyControllers | StopControllers) -> bool:
    return isinstance(action, StopControllers) or not action.only


def _is_given_over(status: MigrationStatus) -> bool:
    """Return whether the controllers are their owner's now: nothing of them is deleted any more."""
    known = status.hand_over
    if known is None or known.ended_at is None:
        return False
    is_being_cleaned = status.controllers is not None and status.controllers.clean and known.cleaned_at is None
    return not is_being_cleaned


def record_mode(draft: Draft, mode: ControllerMode) -> None:
    """Record the mode that every controller shall run."""
    controllers = draft.status.controllers
    if controllers is not None and controllers.mode is not mode:
        draft.update(controllers=controllers.model_copy(update={"mode": mode}))
