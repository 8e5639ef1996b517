"""The tree check is at least as strict as Kafka's own controllers were with the odd trees that were run through them."""

from __future__ import annotations

import pytest
from tests.odd_trees.page import BAD, MILDER, End, Result, blocks, ours, read, stricter_for_a_reason
from tests.odd_trees.plants import plants

PLANTS = {plant.name: plant for plant in plants()}
RESULTS = [result for result in read() if result.plant in PLANTS]


def test_every_plant_was_run() -> None:
    assert {r.plant for r in RESULTS} == PLANTS.keys(), "run: make odd-trees"
    assert {r.end for r in RESULTS} >= {End.WORKS, End.LOSES, End.DIES, End.STICKS, End.NEVER_BEGINS}


@pytest.mark.parametrize("result", [r for r in RESULTS if r.end in BAD], ids=lambda r: r.plant)
def test_it_blocks_what_kafka_fails_on_or_loses(result: Result) -> None:
    assert blocks(ours(PLANTS[result.plant])) or result.plant in MILDER, result


@pytest.mark.parametrize("result", [r for r in RESULTS if r.end is End.WORKS], ids=lambda r: r.plant)
def test_it_does_not_refuse_what_works(result: Result) -> None:
    assert stricter_for_a_reason(PLANTS[result.plant]), result
