"""The page of the journeys, and what counts as a good one."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from tests.journey import page, series
from tests.journey.travel import RELEASES, Journey, Order, Roll, Way, journey_of, protocol_of, written

GOOD = Journey("2.8.2", Way.KRAFT, "abc", (Roll("migration mode", 30.0),), 200.0, 5000, longest_stall_seconds=1.9)


@pytest.mark.parametrize(
    "bad",
    [
        {"lost": 1},
        {"duplicates": 1},
        {"failure": "broker 0 in sync: not after 150 s"},
        {"broken": ("transactions: 1 lost",)},
        {"stray": ("broker-0/a-0.1-stray",)},
        {"nameless": ("broker-0/a-0",)},
    ],
)
def test_a_journey_is_good_only_if_nothing_is_amiss(bad: dict[str, object]) -> None:
    assert GOOD.good
    journey = replace(GOOD, **bad)  # type: ignore[arg-type]
    assert not journey.good
    text = page.page({(journey.release, journey.way): journey})
    assert "**✗** 1.9 s, 5000" in text
    assert "0 of 1 journeys as promised" in text


def test_a_kept_journey_is_read_as_it_was() -> None:
    assert journey_of(json.loads(written(GOOD))) == GOOD


def test_every_kept_journey_is_one_of_the_table() -> None:
    known = page.read()
    assert {release for release, _ in known} <= set(RELEASES)
    for (release, way), journey in known.items():
        assert (page.RESULTS / page.file_of(release, way)).exists()
        assert (journey.release, journey.way) == (release, way)


def test_the_protocol_of_a_release_is_its_minor_version() -> None:
    assert [protocol_of(release) for release in ("2.4.1", "3.9.2")] == [(2, 4), (3, 9)]


def test_each_kind_of_trouble_comes_as_often_in_a_series_and_in_a_roll_that_there_is() -> None:
    trials = [series.Trial(*each) for each in product(series.RELEASES, Order, range(series.RUNS))]
    assert len({trial.place for trial in trials}) > len(series.RELEASES)
    for release in series.RELEASES:
        kinds = Counter(trial.trouble for trial in trials if trial.release == release)
        assert set(kinds.values()) == {2 * series.RUNS // len(series.Trouble)}
    lifts = [trial for trial in trials if trial.place[0] == "protocol 3.9"]
    assert lifts
    assert {trial.release for trial in lifts} <= {"2.4.1", "2.7.2"}


def test_a_series_shows_what_was_not_as_promised_and_what_is_left(tmp_path: Path) -> None:
    trial = series.Trial("2.7.2", Order.FIRST, 3)
    bad = replace(GOOD, release="2.7.2", broken=("lone: 239 of 240 records",))
    results = tmp_path / "series.jsonl"
    results.write_text(series.Ended(trial, bad).written() + "\n")
    text = series.section(series.read(results))
    assert "| 2.7.2 | controller first | 0 | 1 of 10 | 1.9 s | 0 | 0 |" in text
    assert "**✗** 2.7.2 controller first 3, ZooKeeper's controller is killed: lone: 239 of 240 records" in text
