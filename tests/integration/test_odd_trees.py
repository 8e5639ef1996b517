"""Three odd trees through a real Kafka controller: the kept results still say what it does. The others: ``make odd-trees``."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.odd_trees.judge import kafkas
from tests.odd_trees.page import End
from tests.odd_trees.plants import plants
from tests.support.kafka_processes import kafka_libraries

pytestmark = [pytest.mark.integration, pytest.mark.long]
PLANTS = {plant.name: plant for plant in plants()}


@pytest.mark.parametrize(
    ("plant", "end"),
    [
        ("topic: no config znode", End.WORKS),
        ("broker config: named 'abc'", End.DIES),
        ("topic: topic_id empty text", End.NEVER_BEGINS),
    ],
)
def test_kafka_still_does_what_the_results_say(plant: str, end: End, tmp_path: Path) -> None:
    (result,) = kafkas([PLANTS[plant]], kafka_libraries(), tmp_path)
    assert result.end is end, result
