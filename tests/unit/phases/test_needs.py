"""The table of what each phase observes, and that observer and simulation know every part of it."""

from __future__ import annotations

import dataclasses
import inspect

import pytest
from tests.simulation import cluster
from tests.support.observations import NOW, open_gate

from kraftbridge.models.observation import NOT_NEEDED, Observation
from kraftbridge.models.phase import FORWARD, PHASES, Part, Phase
from kraftbridge.models.status import MigrationStatus
from kraftbridge.phases.needs import needs
from kraftbridge.services.observe import observer


def test_every_phase_is_in_the_table() -> None:
    assert list(PHASES) == list(Phase)


def test_every_part_is_a_field_of_the_observation() -> None:
    fields = {f.name for f in dataclasses.fields(Observation)}
    assert {str(p) for p in Part} - {str(Part.NODE_FEATURES)} <= fields
    assert fields - {str(p) for p in Part} == {"at", "canary_committed", "may_roll", "outcomes"}, (
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
    absent = {"metrics": {}, "run": None, "archive": None, "controller_probe": None}
    others = {str(p) for p in Part if p is not Part.NODE_FEATURES} - wanted
    less = whole.observing(**{name: absent.get(name, NOT_NEEDED) for name in others})
    assert others
    assert less.decide() == whole.decide()
