"""A new phase is an enum member, a row and a function: one is added to a copy of the package, and simulated migrations walk it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
MEMBER = ('    FINALIZING = "Finalizing"\n', '    LOOKING_BACK = "LookingBack"\n    FINALIZING = "Finalizing"\n')
ROW_BEFORE = "        Phase.FINALIZING: PhaseRow(\n"
ROW = """\
        Phase.LOOKING_BACK: PhaseRow(
            needs=_MIGRATING, brokers=BrokerMode.KRAFT, migrates=True, mirrors=True, led_by_kraft=True
        ),
"""
CASE_BEFORE = "        case Phase.FINALIZING:\n"
CASE = """\
        case Phase.LOOKING_BACK:
            return (
                rolls.reconcile_nodes(draft, BrokerMode.KRAFT)
                or verifying.ensure_verdict(draft, Profile.DUAL_WRITE, Phase.AWAITING_FINALIZATION)
                or shared_settings.wait_before_entering(draft)
                or Enter(Phase.FINALIZING)
            )
"""
ENTERED = ("        or Enter(Phase.FINALIZING)\n", "        or Enter(Phase.LOOKING_BACK)\n")
IMPORTS_BEFORE = "from kraftbridge.phases.draft import ("
IMPORTS = """\
from kraftbridge.models.phase import BrokerMode
from kraftbridge.models.report import Profile
from kraftbridge.phases.nodes import rolls
"""
CHANGES = {
    "models/phase.py": (MEMBER, (ROW_BEFORE, ROW + ROW_BEFORE)),
    "phases/machine.py": ((CASE_BEFORE, CASE + CASE_BEFORE), (IMPORTS_BEFORE, IMPORTS + IMPORTS_BEFORE)),
    "phases/forward.py": (ENTERED,),
}
WALK = """
from tests.simulation.run import Coverage, Run
coverage = Coverage()
for seed in range(12):
    Run(seed, coverage, guarded=True).play()
for (before, after), times in coverage.transitions.items():
    print(before, after, times)
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a source root with the package and the new phase."""
    source_root = tmp_path_factory.mktemp("operator")
    package = source_root / "kraftbridge"
    shutil.copytree(ROOT / "operator/kraftbridge", package, ignore=shutil.ignore_patterns("__pycache__"))
    for path, replacements in CHANGES.items():
        text = (package / path).read_text()
        for old, new in replacements:
            assert text.count(old) == 1, (path, old)
            text = text.replace(old, new)
        (package / path).write_text(text)
    return source_root


def test_simulated_migrations_walk_a_phase_that_three_edits_added(copy: Path) -> None:
    """Forward through it, and back out of it: the guards, the needs and the way back know it by its row."""
    environment = os.environ | {"PYTHONPATH": f"{copy}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-c", WALK], cwd=ROOT, env=environment, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    transitions = {tuple(line.split()[:2]) for line in done.stdout.splitlines()}
    assert {("AwaitingFinalization", "LookingBack"), ("LookingBack", "Finalizing")} <= transitions
    assert ("AwaitingFinalization", "Finalizing") not in transitions


def test_the_rules_of_the_resource_know_it(copy: Path) -> None:
    """``spec.target`` cannot be set behind it, since the CRD's rules are rendered from the rows."""
    environment = os.environ | {"PYTHONPATH": str(copy)}
    done = subprocess.run(
        [sys.executable, "-m", "kraftbridge.models.crd"], env=environment, check=True, capture_output=True, text=True
    )
    beyond = [line for line in done.stdout.splitlines() if "AwaitingFinalization" in line and "'LookingBack'" in line]
    assert beyond
