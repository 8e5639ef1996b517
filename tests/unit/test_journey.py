"""The page of the journeys, and what counts as a good one."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.journey import page
from tests.journey.travel import RELEASES, Journey, Roll, Way, journey_of, protocol_of, written

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
