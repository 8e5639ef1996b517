"""Whatever a simulated operator sees is recorded and decided again as it was."""

from __future__ import annotations

import json
import random
from datetime import datetime
from typing import Any

import pytest
from tests.simulation.run import Coverage, Run

from kraftbridge.models.decision import Decision
from kraftbridge.models.observation import Observation
from kraftbridge.phases import machine
from kraftbridge.phases.draft import Migration
from kraftbridge.phases.machine import decide
from kraftbridge.phases.recorded_step import decided_again, read_step, recorded


@pytest.mark.parametrize("seed", range(8))
def test_a_simulated_step_is_decided_again_as_it_was(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = random.Random(seed)
    differing: list[Any] = []
    replayed = 0

    def recording(migration: Migration, observation: Observation, now: datetime) -> Decision:
        nonlocal replayed
        decision = decide(migration, observation, now)
        if chosen.random() < 0.2:
            step = read_step(recorded(migration, observation, now, decision, b"key"))
            replayed += 1
            if json.dumps(decided_again(step)) != json.dumps(step.decision):
                differing.append((step.decision, decided_again(step)))
        return decision

    monkeypatch.setattr(machine, "decide", recording)
    Run(seed, Coverage()).play()
    assert differing == []
    assert replayed > 5
