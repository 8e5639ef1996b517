"""The harness's judgement of deleted objects, and the section of the page that shows it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from e2e.harness import deletions, deletions_page
from e2e.harness.deletions import Deletion, Rest, Thing, troubles

FINE = {"completed": True, "lost": 0, "duplicates": 0, "watched": [], "inventory_differences": [], "acked": 9_000}


def deletion(thing: Thing = Thing.SERVICE, **changes: Any) -> Deletion:
    """Return a deletion that ended as promised."""
    fine = Deletion(
        thing=thing,
        rest=Rest.DUAL_WRITE,
        commands=("kubectl delete service demo-kraft-1a2b3c4d",),
        restored_s=2.4,
        whole_s=None,
        named_s=None,
        said=("event Alarm: Service/demo-kraft-1a2b3c4d was deleted by somebody; it is created again",),
        high_watermark=(100, 120),
        voters_restarted=(),
        window=(1.0, 2.0),
        run=dict(FINE),
    )
    return replace(fine, **changes)


def test_a_deletion_as_promised_is_good() -> None:
    assert troubles(deletion()) == ()
    assert deletion().good


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"high_watermark": (120, 100)}, "fell from 120 to 100"),
        ({"said": ()}, "what was gone"),
        ({"voters_restarted": ("demo-kraft-1a2b3c4d-3000",)}, "voters restarted"),
        ({"thing": Thing.ORIGINALS}, "never named it"),
        ({"troubles": ("it formatted its blank volume by itself",)}, "by itself"),
    ],
)
def test_what_is_not_as_promised_is_named(changes: dict[str, Any], words: str) -> None:
    assert any(words in each for each in troubles(deletion(**changes)))


@pytest.mark.parametrize(
    "facts", [{"lost": 1}, {"lost": None}, {"duplicates": 2}, {"inventory_differences": ["x"]}, {"completed": False}]
)
def test_no_deletion_of_a_run_that_lost_something_is_good(facts: dict[str, Any]) -> None:
    assert not deletion(run=FINE | facts).good


def test_a_voter_restarts_where_the_deletion_stops_it() -> None:
    assert troubles(deletion(Thing.STATEFUL_SET, voters_restarted=("demo-kraft-1a2b3c4d-3000",))) == ()


def test_results_are_read_as_they_were_written_and_the_newest_counts(tmp_path: Path) -> None:
    older, newer = deletion(restored_s=9.0), deletion(window=(5.0, 6.0))
    deletions.write(tmp_path / "b.jsonl", [older])
    deletions.write(tmp_path / "a.jsonl", [newer])
    assert deletions.read(tmp_path) == {(Thing.SERVICE, Rest.DUAL_WRITE): newer}


def test_the_section_shows_seconds_words_and_ways_out() -> None:
    claim = deletion(Thing.CLAIM, named_s=7.0, whole_s=41.0, restored_s=40.0, rest=Rest.TAKING_OVER)
    broken = deletion(Thing.STATEFUL_SET, whole_s=55.0, troubles=("the high watermark fell",))
    text = deletions_page.section({(d.thing, d.rest): d for d in (deletion(), claim, broken)})
    assert "| Service | · | 2 s | · | · |" in text
    assert "| claim and pod of one controller | *named* 7 s, 41 s |" in text
    assert "**✗** 2 s, *whole* 55 s" in text
    assert "the high watermark fell" in text
    assert "3 of 56 cells have a result, 2 of them as promised" in text
    assert "was deleted by somebody" in text
    assert "kraft.md#replace-a-controller" in text
    assert "0 of 56 cells" in deletions_page.section({})
