"""The end-to-end harness's own judgement: which cells there are, how they are packed into runs, and when a promise counts as broken."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from e2e.harness import cells, matrix_page
from e2e.harness.cells import Cell, Outcome
from e2e.harness.load import ClientImpact
from e2e.harness.matrix import IN_MAKE_TEST, NOT_SENSIBLE, Attempt, Column, Fault, runs, sensible
from e2e.harness.promises import PodSeen, PodsSeen, broken_restarts, brokers_down_by_us, stops
from e2e.harness.vitals import longest_without_controller_s

BROKERS = frozenset({"kafka-0", "kafka-1", "kafka-2"})
UP = PodSeen("a", ready=True, deleting=False)


def seen(at: float, **pods: PodSeen | None) -> PodsSeen:
    everything = {name: PodSeen(f"{name}-a", ready=True, deleting=False) for name in BROKERS}
    everything |= {name.replace("_", "-"): pod for name, pod in pods.items() if pod is not None}
    gone = {name.replace("_", "-") for name, pod in pods.items() if pod is None}
    return PodsSeen(at, {name: pod for name, pod in everything.items() if name not in gone})


def deleting(uid: str) -> PodSeen:
    return PodSeen(uid, ready=True, deleting=True)


def starting(uid: str) -> PodSeen:
    return PodSeen(uid, ready=False, deleting=False)


def fine(at: float) -> dict[str, float]:
    return {"at": at, "below_min_isr": 0}


def test_the_planned_runs_cover_every_sensible_cell_and_strike_a_phase_once() -> None:
    planned = runs(sensible())
    assert set().union(*(run.cells for run in planned)) >= sensible()
    assert not any((fault, column) in NOT_SENSIBLE for run in planned for fault, column in run.cells)
    assert sensible() >= IN_MAKE_TEST


def test_what_is_done_is_not_planned_again() -> None:
    one = (Fault.OPERATOR_KILLED, Column.DUAL_WRITE)
    (run,) = runs({one})
    assert run.cells == {one}
    assert runs(set()) == []


def test_cells_of_the_upgrade_run_on_a_former_release_and_end_at_the_bridge_release() -> None:
    planned = runs(sensible())
    upgrades = [run for run in planned if run.release]
    assert {column for run in upgrades for _, column in run.cells} == {c for c in Column if c.is_of_upgrade}
    assert {attempt.target for run in upgrades for attempt in run.attempts} == {"BridgeRelease"}
    others = {attempt.target for run in planned for attempt in run.attempts if not run.release}
    assert others == {"KRaftBrokers"}


def test_a_second_broker_stopped_while_one_is_down_is_seen() -> None:
    samples = [
        seen(0),
        seen(10, kafka_1=deleting("kafka-1-a")),
        seen(12, kafka_1=starting("kafka-1-b")),
        seen(20, kafka_1=starting("kafka-1-b"), kafka_2=deleting("kafka-2-a")),
    ]
    assert [s.pod for s in stops(samples, frozenset())] == ["kafka-1", "kafka-2"]
    broken = broken_restarts(samples, [fine(19)], BROKERS, frozenset(), (0, 30))
    assert broken == ["kafka-2 was stopped while kafka-1 had been down for 10 s"]
    assert brokers_down_by_us(samples, BROKERS, frozenset()) == 2


def test_a_broker_that_a_fault_killed_is_not_ours_but_none_is_stopped_beside_it() -> None:
    samples = [seen(0), seen(10, kafka_1=None), seen(11, kafka_1=starting("kafka-1-b"))]
    struck = frozenset({"kafka-1-a"})
    assert stops(samples, struck) == []
    assert brokers_down_by_us(samples, BROKERS, struck) == 0
    both = [*samples, seen(20, kafka_1=starting("kafka-1-b"), kafka_0=deleting("kafka-0-a"))]
    assert len(broken_restarts(both, [], BROKERS, struck, (0, 30))) == 1
    assert brokers_down_by_us(both, BROKERS, struck) == 1
    back = [*samples, seen(18), seen(20, kafka_0=deleting("kafka-0-a"))]
    assert broken_restarts(back, [], BROKERS, struck, (0, 30)) == []


def test_nothing_is_stopped_below_min_isr_but_a_pod_that_is_down_itself() -> None:
    short = [{"at": at, "below_min_isr": 3} for at in (17.5, 18.0, 19.5)]
    samples = [seen(0), seen(20, kafka_0=deleting("kafka-0-a"))]
    assert broken_restarts(samples, short, BROKERS, frozenset(), (0, 30)) == [
        "kafka-0 was stopped while 3 partition(s) were below min ISR"
    ]
    assert broken_restarts(samples, [*short, fine(19.8)], BROKERS, frozenset(), (0, 30)) == []
    assert broken_restarts(samples, short, BROKERS, frozenset(), (21, 30)) == [], "not within the cell's window"
    down = [seen(0, kafka_0=starting("kafka-0-a")), seen(20, kafka_0=PodSeen("kafka-0-a", ready=False, deleting=True))]
    assert broken_restarts(down, short, BROKERS, frozenset(), (0, 30)) == []


def test_a_quorum_that_is_taken_away_is_no_restart() -> None:
    short = [{"at": 19.5, "below_min_isr": 1}]
    quorum = {f"demo_kraft_300{i}": deleting(f"c{i}") for i in range(3)}
    up = {name: PodSeen(pod.uid, ready=True, deleting=False) for name, pod in quorum.items()}
    assert broken_restarts([seen(0, **up), seen(20, **quorum)], short, BROKERS, frozenset(), (0, 30)) == []
    one = up | {"demo_kraft_3000": deleting("c0")}
    assert broken_restarts([seen(0, **up), seen(20, **one)], short, BROKERS, frozenset(), (0, 30)) != []


def test_the_time_without_a_controller_is_from_the_last_question_answered_to_the_next_answer() -> None:
    lines = [{"probes": [[1.0, 0.01], [1.25, None], [1.5, None], [3.0, 0.5], [3.25, 0.02]]}]
    assert longest_without_controller_s(lines, (0, 10)) == pytest.approx(2.5)
    assert longest_without_controller_s(lines, (2.9, 10)) == pytest.approx(0.27)


def cell(**changes: object) -> Cell:
    values: dict[str, object] = {
        "fault": Fault.BROKER_KILLED, "column": Column.DUAL_WRITE, "outcome": Outcome.FINISHED, "reason": "", "struck": "deleted pod kafka-2",
        "seconds": 12.3, "phase_seconds": 20.0, "said": ("pod kafka-2 is not Ready (9 s)",), "longest_stall_s": 1.5, "errors": {}, "broken": (),
        "run": {"name": "broker-killed", "at": "2026-11-20T16:00:00Z", "acked": 100, "lost": 0, "duplicates": 0, "commit": "abc"},
    }  # fmt: skip
    return Cell(**(values | changes))  # type: ignore[arg-type]


def test_cells_outlive_a_torn_line_and_the_latest_counts(tmp_path: Path) -> None:
    later = cell(seconds=9.0, run={"at": "2026-11-20T17:00:00Z", "lost": 0})
    cells.write(tmp_path / "b.jsonl", [cell()])
    cells.write(tmp_path / "a.jsonl", [later])
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write('{"fault": "broker-ki')
    assert cells.read(tmp_path) == {(Fault.BROKER_KILLED, Column.DUAL_WRITE): later}


@pytest.mark.parametrize(("struck", "counts"), [(Fault.BROKER_KILLED, False), (Fault.DRIVER_KILLED_VERIFYING, True)])
def test_a_way_back_that_a_fault_struck_is_no_measure_of_it(tmp_path: Path, struck: Fault, counts: bool) -> None:
    way_back = (Fault.ROLLBACK, Column.DUAL_WRITE)
    attempt = Attempt({Column.ROLLING_BACK: (struck,)}, back_from=Column.DUAL_WRITE)
    assert (way_back in attempt.cells) == counts
    run = {"name": "rollback-1", "at": "2026-11-20T16:00:00Z"}
    cells.write(tmp_path / "a.jsonl", [cell(fault=struck, column=Column.ROLLING_BACK, run=run)])
    cells.write(tmp_path / "a.jsonl", [cell(fault=Fault.ROLLBACK, run=run)])
    assert (way_back in cells.read(tmp_path)) == counts


@pytest.mark.parametrize(
    "changes",
    [
        {"outcome": Outcome.FAILED},
        {"broken": ("kafka-1 was stopped",)},
        {"run": {"lost": 1}},
        {"run": {"duplicates": 2}},
        {"run": {"inventory_differences": ["/topics"]}},
    ],
)
def test_a_cell_is_good_only_if_every_promise_was_kept(changes: dict[str, object]) -> None:
    assert cell().good
    bad = cell(**changes)
    assert not bad.good
    assert "**✗**" in matrix_page.page({(bad.fault, bad.column): bad})


def test_the_page_shows_what_is_known_and_what_makes_no_sense() -> None:
    good = cell()
    text = matrix_page.page({(good.fault, good.column): good})
    assert "12 s" in text
    assert f"1 of {len(sensible())} cells have a result, 1 of them as promised" in text
    assert "pod kafka-2 is not Ready (9 s)" in text
    assert all(why in text for why in NOT_SENSIBLE.values())


def test_a_client_that_reconnects_is_unharmed_and_one_whose_request_failed_is_not() -> None:
    impact = ClientImpact(9, 9, 9, 0, 0, 0, 0, {"consumer:_RESOLVE": 1}, True, 2.0, 2.0, 0.5, 0)
    assert impact.unharmed
    failed = replace(impact, errors={"consumer:_RESOLVE": 1, "_MSG_TIMED_OUT": 2})
    assert not failed.unharmed
    assert failed.failures == {"_MSG_TIMED_OUT": 2}
    assert not replace(impact, lost=1).unharmed
