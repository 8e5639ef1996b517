"""Every alert fires when it should, after its time, and is silent otherwise: by promtool, on the chart's own rules."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

LABELS = 'namespace="kafka", name="demo"'
UP = f'up{{job="kb-metrics", namespace="kb-system"}}'  # noqa: F541
DUAL_WRITE = f'kraftbridge_migration_phase{{{LABELS}, phase="DualWrite"}}'


def condition(kind: str, status: str) -> str:
    return f'kraftbridge_condition{{{LABELS}, type="{kind}", status="{status}"}}'


@dataclass(frozen=True)
class Case:
    """Series by name in promtool's notation (one sample a minute), and when the alert fires on them."""

    alert: str
    firing: dict[str, str]
    quiet: dict[str, str]
    not_yet: str
    """Until here it is silent, also where it fires later."""
    fires: str


CASES = [
    Case("KraftbridgeOperatorDown", {UP: "1x2 0x30"}, {UP: "1x40"}, "4m", "12m"),
    Case("KraftbridgeMigrationStalled", {condition("Stalled", "True"): "1x10"}, {condition("Stalled", "True"): "0x10"}, "0m", "3m"),
    Case(
        "KraftbridgeMetadataInconsistent", {condition("MetadataConsistent", "False"): "1x10"}, {condition("MetadataConsistent", "False"): "0x10"},
        "0m", "3m",
    ),
    Case(
        "KraftbridgeRollbackNotPossible", {condition("RollbackPossible", "True"): "0x30", DUAL_WRITE: "1x30"},
        {condition("RollbackPossible", "True"): "1x30", DUAL_WRITE: "1x30"}, "8m", "12m",
    ),
    Case(
        "KraftbridgeMirrorLagging", {f"kraftbridge_mirror_lag_records{{{LABELS}}}": "1001x20"},
        {f"kraftbridge_mirror_lag_records{{{LABELS}}}": "1000x20"}, "4m", "7m",
    ),
    Case("KraftbridgeDualWriteTooLong", {DUAL_WRITE: "1x10200"}, {DUAL_WRITE: "0x10200"}, "6d", "7d10m"),
    Case(
        "KraftbridgeTemplateNotKRaft", {f"kraftbridge_hand_over_missing_settings{{{LABELS}}}": "0x5 1x20"},
        {f"kraftbridge_hand_over_missing_settings{{{LABELS}}}": "0x20"}, "4m", "7m",
    ),
    Case(
        "KraftbridgeObservationErrors", {'kraftbridge_observation_errors_total{source="ZooKeeper"}': "0+60x40"},
        {'kraftbridge_observation_errors_total{source="ZooKeeper"}': "0+1x40"}, "8m", "20m",
    ),
    Case(
        "KraftbridgeActionsFailing", {'kraftbridge_actions_total{action="Apply", outcome="failed"}': "0+2x40"},
        {'kraftbridge_actions_total{action="Apply", outcome="done"}': "0+2x40"}, "1m", "12m",
    ),
]  # fmt: skip


def firing(promtool: str, rules: Path, folder: Path, series: dict[str, str], alert: str, at: str) -> bool:
    """Return whether promtool sees the alert fire then: it has to agree that none, or that some, does."""
    (folder / "rules.yaml").write_text(rules.read_text())
    test = {
        "rule_files": ["rules.yaml"], "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m", "input_series": [{"series": s, "values": v} for s, v in series.items()],
                "promql_expr_test": [
                    {"expr": f'count(ALERTS{{alertname="{alert}", alertstate="firing"}}) or vector(0)', "eval_time": at,
                     "exp_samples": [{"labels": "{}", "value": 1}]}
                ],
            }
        ],
    }  # fmt: skip
    (folder / "test.yaml").write_text(yaml.safe_dump(test))
    answer = subprocess.run(
        [promtool, "test", "rules", "test.yaml"], cwd=folder, capture_output=True, text=True, check=False
    )
    said = answer.stdout + answer.stderr
    assert "SUCCESS" in said or ("FAILED" in said and "exp:" in said), said
    return "SUCCESS" in said


def test_promtool_accepts_the_rules(program: Callable[[str], str], rules: Path) -> None:
    subprocess.run([program("promtool"), "check", "rules", "--lint-fatal", str(rules)], check=True)


def test_every_alert_has_a_case(rules: Path) -> None:
    (group,) = yaml.safe_load(rules.read_text())["groups"]
    assert {rule["alert"] for rule in group["rules"]} == {case.alert for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_an_alert_fires_after_its_time_and_only_then(
    program: Callable[[str], str], rules: Path, tmp_path: Path, case: Case
) -> None:
    promtool = program("promtool")
    assert firing(promtool, rules, tmp_path, case.firing, case.alert, case.fires)
    assert not firing(promtool, rules, tmp_path, case.firing, case.alert, case.not_yet)
    assert not firing(promtool, rules, tmp_path, case.quiet, case.alert, case.fires)
