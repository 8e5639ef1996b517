"""The judgement of migrations on three nodes: which rows there are, when a trouble is due, and what the page says of a result."""

from __future__ import annotations

import json
from typing import Any

import pytest
from e2e.harness.migration import View
from e2e.harness.nodes import (
    CELLS,
    Cell,
    Trouble,
    When,
    below_min_isr,
    said,
    spread_problem,
    unread,
    whole_again,
)
from e2e.harness.nodes_page import page
from e2e.harness.promises import PodSeen, PodsSeen, broken_restarts
from tests.unit.test_docs import ROOT

DRAIN = Cell(Trouble.DRAIN, When.ROLLING_BROKERS)
RESULT = {
    "phase": "Completed", "seconds": 700, "records": 9, "lost": 0, "longest_stall_s": 2.5, "longest_stall_during": "RollingBrokers: broker 1",
    "batches": [["KRaft", [200, 201]]], "brokers_down_at_once_by_us": 2, "below_min_isr": 0, "broken": [],
    "moments": 90, "moments_unread": 0,
}  # fmt: skip
TROUBLE = {
    "node": "n-2", "pods": ["kafka-b-0"], "seconds": 80, "whole_again_after_s": 30, "below_min_isr": 4, "said": ["pod <x> is *gone* (9 s)"],
}  # fmt: skip


def view(phase: str, mode: str = "Migration", in_mode: int = 0) -> View:
    return View({"status": {"phase": phase, "brokers": {"mode": mode, "inMode": in_mode}}})


def line(at: float, below: int = 0, replicas: int = 0, offline: int = 0) -> dict[str, Any]:
    return {"at": at, "below_min_isr": below, "under_replicated": replicas, "offline": offline}


def test_a_cell_is_found_by_its_name_and_others_are_refused() -> None:
    assert [Cell.parse(str(cell)) for cell in CELLS] == list(CELLS)
    assert len({str(cell) for cell in CELLS}) == 14
    for text in ("drain@forward", "none@DualWrite", "drain", "unplugged@back"):
        with pytest.raises(ValueError, match="is not a valid"):
            Cell.parse(text)


@pytest.mark.parametrize(
    ("cell", "seen", "due"),
    [
        ("drain@RollingBrokers", view("RollingBrokers", "KRaft", 1), True),
        ("drain@RollingBrokers", view("RollingBrokers", "KRaft", 0), False),
        ("drain@RollingBrokers", view("RollingBrokers", "Migration", 6), False),
        ("lost@TakingOver", view("TakingOver", "Migration", 2), True),
        ("lost@TakingOver", view("DualWrite", "Migration", 6), False),
        ("away@DualWrite", view("DualWrite", "Migration", 6), True),
        ("away@back", view("RollingBack", "KRaft", 1), True),
        ("away@back", view("RollingBrokers", "KRaft", 1), False),
        ("none@back", view("RollingBack", "KRaft", 1), False),
    ],
)
def test_a_trouble_is_due_in_its_phase_once_a_broker_was_restarted(cell: str, seen: View, due: bool) -> None:
    assert Cell.parse(cell).is_due(seen) is due


def test_the_brokers_of_each_rack_are_bound_to_the_node_of_its_zone() -> None:
    objects = DRAIN.layout.installed
    assert isinstance(objects, tuple)
    sets = [each for each in objects if each["kind"] == "StatefulSet"]
    zones = [each["spec"]["template"]["spec"]["nodeSelector"] for each in sets]
    assert zones == [{"topology.kubernetes.io/zone": f"zone-{number}"} for number in (1, 2, 3)]
    assert [each["spec"]["replicas"] for each in sets] == [2, 2, 2]


def test_what_was_said_is_cut_to_the_trouble_and_told_once() -> None:
    told = [(0.0, "broker 1 stops"), (10.0, "broker 2 stops"), (14.0, "pod b is not Ready"), (40.0, "over")]
    assert said(told, (12.0, 30.0)) == ["broker 2 stops (2 s)", "pod b is not Ready (16 s)"]
    assert said(told, (5.0, 12.0)) == ["broker 1 stops (7 s)"]
    assert said([], (5.0, 12.0)) == []


def test_what_a_trouble_takes_below_min_isr_is_told_apart_from_the_rest() -> None:
    vitals = [line(1), line(5, below=3, replicas=9), line(8, replicas=4), line(9), line(12, below=1, replicas=1)]
    assert whole_again(vitals, 6) == 9
    assert whole_again(vitals, 11) == 12
    assert below_min_isr(vitals, (4, 9)) == (3, 1)


def test_moments_that_were_not_read_are_told_beside_the_number() -> None:
    """Nothing that was not seen counts as nothing there."""
    assert unread([line(1.0), {"at": 2.0, "trouble": "timed out", "below_min_isr": 0}, line(3.0)]) == 1
    assert "4 (not read in 3 of 90 moments)" in page({str(DRAIN): RESULT | {"trouble": TROUBLE, "moments_unread": 3}})
    unknown = line(8) | {"trouble": "timed out"}
    assert whole_again([unknown, line(10)], 6) == 10


def test_controllers_are_one_in_each_zone() -> None:
    assert spread_problem({"c-0": "zone-2", "c-1": "zone-1", "c-2": "zone-3"}) == []
    assert spread_problem({"c-0": "zone-2", "c-1": "zone-2", "c-2": "zone-3"}) != []


def test_brokers_of_one_zone_may_be_down_together_and_no_others() -> None:
    zones = {"b-0": "b", "b-1": "b", "c-0": "c"}
    up = {name: PodSeen(name, ready=True, deleting=False) for name in zones}
    one = up | {"b-0": PodSeen("b-0", ready=True, deleting=True)}
    both = one | {"b-1": PodSeen("b-1", ready=True, deleting=True)}
    samples = [PodsSeen(0, up), PodsSeen(10, one), PodsSeen(20, both)]
    assert broken_restarts(samples, [], set(zones), frozenset(), (0, 30), zones) == []
    assert len(broken_restarts(samples, [], set(zones), frozenset(), (0, 30))) == 1
    far = one | {"c-0": PodSeen("c-0", ready=True, deleting=True)}
    broken = broken_restarts([*samples[:2], PodsSeen(20, far)], [], set(zones), frozenset(), (0, 30), zones)
    assert broken == ["c-0 was stopped while b-0 had been down for 10 s"]


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (None, "| `drain` | RollingBrokers | not run yet |"),
        (RESULT, "| `Completed`, 700 s | 0 of 9 | 2.5 s (RollingBrokers: broker 1) | none | 200, 201 (KRaft) | 2 | 0 |  |"),
        (RESULT | {"trouble": TROUBLE, "errors": {"X": 2}}, "| X 2 | 200, 201 (KRaft) | 2 | 4 | 80 s, 30 s |"),
        (RESULT | {"trouble": TROUBLE, "note": "It was warm"}, "`n-2` carried kafka-b-0. It was warm.\n"),
        (RESULT | {"trouble": TROUBLE}, "- pod &lt;x> is \\*gone\\* (9 s)"),
        (RESULT | {"broken": ["1 lost"]}, "| **✗** `Completed`, 700 s |"),
        (RESULT | {"broken": ["1 lost"]}, "- `drain@RollingBrokers`: 1 lost."),
    ],
)  # fmt: skip
def test_the_page_says_what_came_of_a_row(result: dict[str, Any] | None, words: str) -> None:
    assert words in page({str(DRAIN): result} if result else {})


def test_the_kept_results_are_of_rows_that_exist() -> None:
    kept = {file.stem: json.loads(file.read_text()) for file in (ROOT / "benchmarks/measured/nodes").glob("*.json")}
    assert kept.keys() <= {str(cell) for cell in CELLS}
    assert all(result["name"] == name for name, result in kept.items())
    page(kept)
