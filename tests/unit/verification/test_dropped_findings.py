"""Findings beyond the most that one task returns: none hides a place from the second reading, and none outlives it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kraftbridge.models.catalogue import Code, Severity
from kraftbridge.models.report import Finding
from kraftbridge.verification import job
from kraftbridge.verification.run import Outcome, Run
from kraftbridge.verification.sources import zookeeper
from kraftbridge.verification.sources.rows import Note

MOST = 10


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper, "MAXIMUM_FINDINGS", MOST)


def without_state(topic: str, partitions: int) -> list[Finding]:
    states = (f"/brokers/topics/{topic}/partitions/{number}/state" for number in range(partitions))
    return [Finding.of(Code.PARTITION_WITHOUT_STATE, state) for state in states]


def checked(
    monkeypatch: pytest.MonkeyPatch, first: Sequence[Finding], stands: frozenset[str] | None
) -> tuple[Outcome, list[Finding]]:
    """Return the outcome of a check, and what was to be read again; what stands is about these topics, or is all."""
    batches = zookeeper._findings(first, 5, 5)
    notes = [row for batch in batches for row in batch.to_pylist()]
    asked: list[Finding] = []

    def standing(_run: Run, findings: Sequence[Finding], _highest: int) -> Sequence[Finding]:
        asked.extend(findings)
        if stands is None:
            return findings
        return [finding for finding in findings if finding.object.split("/")[3] in stands]

    monkeypatch.setattr(job, "_zookeeper_plan", lambda _run, *, soundness: SimpleNamespace(model_dump_json=str))
    monkeypatch.setattr(job, "notes_among", lambda _frame: notes)
    monkeypatch.setattr(job, "_topics_of_shared_ids", lambda _frame: {})
    monkeypatch.setattr(job, "_standing", standing)
    rows = SimpleNamespace(flagged=(), rows_in=lambda _place: 1)
    monkeypatch.setattr(job, "compare", lambda *_args: rows)
    outcome = Outcome()
    run = SimpleNamespace(
        outcome=outcome, stage=lambda _name: nullcontext(), load=lambda *_args: None, count=lambda *_args: None
    )
    assert json.loads(next(note["value"] for note in notes if note["kind"] == Note.COUNT))["highestEpoch"] == 5
    job.check_tree(cast("Run", run))
    return outcome, asked


def test_none_is_counted_of_a_change_that_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic of many partitions was created while the tree was read, and the gate closed without any finding."""
    outcome, _ = checked(monkeypatch, without_state("t", 3 * MOST), frozenset())
    assert outcome.findings == []
    assert outcome.finding_counts[Severity.BLOCKING] == 0


def test_all_are_counted_where_nothing_was_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome, _ = checked(monkeypatch, without_state("t", 3 * MOST), None)
    assert outcome.finding_counts[Severity.BLOCKING] == 3 * MOST


def test_each_place_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    lasting = [Finding.of(Code.TOPIC_CONFIG_MISSING, f"/config/topics/{n}", topic=str(n)) for n in range(MOST)]
    first = [*without_state("t", 3 * MOST), *lasting, *without_state("u", 1)]
    outcome, asked = checked(monkeypatch, first, frozenset({"u"}))
    assert {finding.object.split("/")[3] for finding in asked} >= {"t", "u"}
    assert outcome.finding_counts[Severity.BLOCKING] >= 1
    assert outcome.finding_counts[Severity.WARNING] >= 1


def test_what_no_change_explains_is_counted_in_any_case(monkeypatch: pytest.MonkeyPatch) -> None:
    states = (f"/brokers/topics/t/partitions/{number}/state" for number in range(3 * MOST))
    invalid: list[Any] = [Finding.of(Code.REPLICAS_INVALID, state, replicas=[0, 0]) for state in states]
    outcome, _ = checked(monkeypatch, invalid, None)
    assert outcome.finding_counts[Severity.BLOCKING] == 3 * MOST
