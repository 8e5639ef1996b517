"""The table of what each phase observes, and that observer and simulation know every part of it."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest
from tests.simulation import cluster
from tests.support.observations import NOW, RUN_ID, Situation, open_gate, quorum

from kraftbridge.models.observation import NOT_NEEDED, ControllersWorkload, Observation, PodState, Unobserved
from kraftbridge.models.phase import FORWARD, PHASES, Part, Phase, Target
from kraftbridge.models.status import MigrationStatus, RenderedControllers, tuned_controllers
from kraftbridge.phases.draft import Draft
from kraftbridge.phases.keeping import ensure_kept
from kraftbridge.phases.needs import needs
from kraftbridge.services.observe import observer

_UNREAD: Final[dict[str, Any]] = {
    **{part.value: NOT_NEEDED for part in Part if part not in (Part.STATEFUL_SETS, Part.NODE_FEATURES)},
    **{part.value: None for part in (Part.RUN, Part.ARCHIVE, Part.CONTROLLER_PROBE, Part.ISSUED)},
    Part.METRICS.value: {},
}
"""What an observation has of a part that is not read."""
_FEATURES: Final = frozenset({Part.NODE_FEATURES, Part.CONTROLLER_FEATURES})


def test_every_phase_is_in_the_table() -> None:
    assert list(PHASES) == list(Phase)


def test_every_part_is_a_field_of_the_observation() -> None:
    fields = {f.name for f in dataclasses.fields(Observation)}
    assert {str(p) for p in Part} - {str(Part.NODE_FEATURES)} <= fields
    assert fields - {str(p) for p in Part} == {"at", "canary_committed", "may_roll", "outcomes", "refused"}, (
        "what the operator remembers itself"
    )


@pytest.mark.parametrize("module", [observer, cluster])
def test_observer_and_simulation_read_the_table(module: object) -> None:
    source = inspect.getsource(module)  # type: ignore[arg-type]
    assert "needs(status, " in source
    assert "status.phase is Phase." not in inspect.getsource(
        module.Observer.observe if module is observer else module.Cluster.observe
    )  # type: ignore[attr-defined]
    parts = {p for p in Part if f"Part.{p.name}" in source}
    always = {Part.STATEFUL_SETS}
    not_simulated = {Part.CLUES, Part.FEATURE_ANSWER, Part.CONTROLLER_PROBE} if module is cluster else set()
    assert parts | always | not_simulated == set(Part)


def test_nothing_is_asked_of_controllers_that_do_not_exist() -> None:
    assert not needs(MigrationStatus(), NOW) & {Part.CONTROLLERS, Part.QUORUM, Part.METRICS, Part.CONTROLLER_FEATURES}


@pytest.mark.parametrize("phase", [p for p in FORWARD if p is not Phase.PREFLIGHT])
def test_a_gate_opens_on_what_its_phase_names(phase: Phase) -> None:
    """With everything else unobserved the decision is the same."""
    whole = open_gate(phase)
    wanted = {str(p) for p in phase.row.needs} | ({"features"} if Part.NODE_FEATURES in phase.row.needs else set())
    others = _UNREAD.keys() - wanted
    less = whole.observing(**{name: _UNREAD[name] for name in others})
    assert others
    assert less.decide() == whole.decide()


# ------------------------------------------------------------------------------------------------ what nobody reads


def as_read(situation: Situation) -> Situation:
    """Return the same with what the observer reads in this status, and nothing else."""
    wanted = needs(situation.status, situation.now)
    read = {part.value for part in (wanted | _FEATURES if wanted & _FEATURES else wanted)}
    silent = Unobserved("somebody", "no answer")
    asked = {name: silent for name in read if getattr(situation.observation, name, None) == NOT_NEEDED}
    return situation.observing(**asked, **{name: value for name, value in _UNREAD.items() if name not in read})


def _with_brokers(situation: Situation, change: Callable[[PodState], PodState]) -> Situation:
    sets = [item for item in situation.observation.stateful_sets if not isinstance(item, Unobserved)]
    sets = [replace(item, pods=tuple(change(pod) for pod in item.pods)) for item in sets]
    return situation.observing(stateful_sets=tuple(sets))


def _with_controllers(situation: Situation, change: Callable[[PodState], PodState]) -> Situation:
    workload = situation.observation.controllers
    if not isinstance(workload, ControllersWorkload) or workload.stateful_set is None:
        return situation
    pods = tuple(change(pod) for pod in workload.stateful_set.pods)
    return situation.observing(controllers=replace(workload, stateful_set=replace(workload.stateful_set, pods=pods)))


def _down(pod: PodState) -> PodState:
    if pod.ordinal % 1000 != 1:
        return pod
    return replace(pod, ready=False, ready_since=None, trouble="CrashLoopBackOff of container kafka")


def _changed(situation: Situation) -> Situation:
    """Return the same with voters that run what was rendered from an older ``spec.controllers``."""
    known = situation.status.controllers
    if known is not None:
        rendered = RenderedControllers.of(tuned_controllers(situation.spec, situation.status))
        situation = situation.with_status(controllers=known.model_copy(update={"rendered": rendered}))
    newer = situation.spec.controllers.model_copy(update={"heap_options": "-Xmx1g"})
    return _with_controllers(situation, lambda pod: replace(pod, revision="older")).asking(controllers=newer)


TROUBLES: Final[dict[str, Callable[[Situation], Situation]]] = {
    "healthy": lambda fine: fine,
    "brokers run an older template": lambda fine: _with_brokers(fine, lambda pod: replace(pod, revision="older")),
    "a broker is down": lambda fine: _with_brokers(fine, _down),
    "a controller is down": lambda fine: _with_controllers(fine, _down),
    "spec.controllers changed": _changed,
    "no broker is registered": lambda fine: fine.observing(quorum=replace(quorum(), observers=frozenset())),
    "paused": lambda fine: fine.asking(paused=True),
    "on the way back": lambda fine: fine.asking(Target.ZOOKEEPER),
}


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("phase", FORWARD)
def test_no_phase_waits_for_what_it_does_not_read(phase: Phase, trouble: str) -> None:
    """A gate on a part that the row lacks stays closed for ever. A status can ask for a part with the next step."""
    situation = TROUBLES[trouble](open_gate(phase))
    waited: list[str] = []
    for _ in range(6):
        decision = as_read(situation).decide()
        told = (decision.status.message, *(known.message for known in decision.status.conditions))
        waited += [message for message in told if NOT_NEEDED.reason in message]
        situation = situation.after(decision).later(20)
    assert waited == []


@pytest.mark.parametrize(("copy", "words"), [(NOT_NEEDED, ""), (Unobserved("Secret a", "HTTP 500"), "HTTP 500")])
def test_a_copy_that_the_next_step_reads_is_not_called_unneeded(copy: Unobserved, words: str) -> None:
    fine = open_gate(Phase.FINALIZING).with_status(kept_copy=None)
    waiting = ensure_kept(
        Draft(fine.identity, fine.spec, replace(fine.observation, kept_copy=copy), NOW, fine.status), RUN_ID
    )
    assert waiting is not None
    assert NOT_NEEDED.reason not in waiting.message
    assert words in waiting.message
