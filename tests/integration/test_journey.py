"""A cluster of an old release, over the bridge release to KRaft, with clients at work: one of the rows of `docs/journey.md`."""

from __future__ import annotations

import pytest
from tests.journey.travel import Way, travel

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kafka-processes")]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("release", "way"), [("2.8.2", Way.KRAFT), ("2.4.1", Way.KRAFT)])
def test_a_cluster_of_an_old_release_comes_to_kraft(release: str, way: Way) -> None:
    journey = travel(release, way, "")
    assert journey.good, journey
    assert journey.acknowledged > 1000
    assert journey.rolls[0].name.startswith("3.9.2, protocol 2.")
