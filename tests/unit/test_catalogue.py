"""The catalogue of findings and the code that makes them: every code is made somewhere, nothing makes another, every text gets its details."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kraftbridge.models.catalogue import ACCEPTABLE, CheckedBy, Code, Severity
from kraftbridge.models.report import Finding
from kraftbridge.models.status import finding

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "operator/kraftbridge"
MAKERS = {"finding", "of", "_add"}
"""Functions that take a code first: preflight's ``finding``, ``Finding.of``, and ``Soundness._add``."""


@dataclass(frozen=True)
class Made:
    """A place in the code that makes a finding."""

    code: str
    details: frozenset[str]
    place: str

    @property
    def checked_by(self) -> CheckedBy:
        if "phases/preflight/" in self.place:
            return CheckedBy.PREFLIGHT
        if "phases/nodes/" in self.place:
            return CheckedBy.RESTART
        if "/phases/" in self.place:
            return CheckedBy.GUARDS
        return CheckedBy.TREE if "metadata/zookeeper/" in self.place else CheckedBy.COMPARISON


def _made() -> Iterator[Made]:
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            first = node.args[0] if node.args else None
            if name in MAKERS and isinstance(first, ast.Attribute) and getattr(first.value, "id", "") == "Code":
                details = frozenset(k.arg for k in node.keywords if k.arg is not None)
                yield Made(first.attr, details, f"{path.relative_to(ROOT).as_posix()}:{node.lineno}")


MADE = tuple(_made())
"""Codes that logs show are made from `kraftbridge.models.observation.PATTERNS`; ``tests/unit/phases/test_diagnosis.py`` checks those."""
SEVERAL = {
    CheckedBy.BOTH: {CheckedBy.PREFLIGHT, CheckedBy.TREE},
    CheckedBy.EVERYWHERE: {CheckedBy.PREFLIGHT, CheckedBy.TREE, CheckedBy.COMPARISON},
}


@pytest.mark.parametrize("code", [c for c in Code if c.checked_by is not CheckedBy.LOGS])
def test_every_code_is_made_where_the_catalogue_says(code: Code) -> None:
    where = {m.checked_by for m in MADE if m.code == code.name}
    stated = SEVERAL.get(code.checked_by, {code.checked_by})
    assert where == stated, f"the catalogue says checked by {stated}; the folders of the code that makes it say {where}"


@pytest.mark.parametrize("made", MADE, ids=lambda m: f"{m.code} {m.place}")
def test_whoever_makes_a_finding_gives_what_its_texts_name(made: Made) -> None:
    named = Code[made.code].details
    assert made.details == named, f"its texts name {set(named)}, {made.place} gives {set(made.details)}"


def test_nothing_makes_a_finding_past_the_catalogue() -> None:
    """`Finding` and `FindingStatus` are made in `Finding.of` and in preflight's `finding` only."""
    makers = [
        path.relative_to(PACKAGE).as_posix()
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in {"Finding", "FindingStatus"}
    ]
    assert makers == ["models/status.py"]


@pytest.mark.parametrize("code", Code)
def test_both_kinds_of_finding_have_the_same_severity_and_texts(code: Code) -> None:
    details = dict.fromkeys(code.details, "x")
    in_status, in_report = finding(code, "somewhere", **details), Finding.of(code, "somewhere", **details)
    assert (in_status.code, in_status.severity, in_status.reason, in_status.fix) == (
        in_report.code,
        in_report.severity,
        in_report.reason,
        in_report.fix,
    )
    assert in_status.severity is code.severity


def test_only_what_preflight_or_a_restart_blocks_on_can_be_accepted() -> None:
    """And what keeps ``ReadyForKafka4`` from True: it blocks the way to Kafka 4 alone."""
    readiness = {
        Code.KAFKA4_CLIENTS_UNKNOWN, Code.KAFKA4_LACKS_CLASS, Code.KAFKA4_REFUSES_CLIENTS, Code.KAFKA4_REFUSES_VALUE,
    }  # fmt: skip
    assert readiness <= ACCEPTABLE
    for code in (c for c in Code if c in ACCEPTABLE and c not in readiness):
        assert code.severity is Severity.BLOCKING, code
        assert code.checked_by in {CheckedBy.PREFLIGHT, CheckedBy.RESTART}, code


@pytest.mark.parametrize("code", Code)
def test_texts_are_sentences_without_a_full_stop(code: Code) -> None:
    """A status message joins them: reason, full stop, fix."""
    for text in (code.meaning, code.fix):
        assert len(text.split()) > 2 or code.fix == text, text
        assert not text.endswith("."), text
        assert text[0] in "{/" or text[0].isupper() or "." in text.split()[0], text
    assert code.name.replace("_", "").lower() == code.value.lower()


def test_a_code_that_does_not_exist_is_told_to_who_accepts_it() -> None:
    from tests.support.observations import open_gate

    from kraftbridge.models.phase import Phase

    case = open_gate(Phase.PREFLIGHT)
    accepting = {"accepted": [{"code": "NoController"}, {"code": "TopicNotReplicated"}]}
    decision = case.asking(preflight=case.spec.preflight.model_validate(accepting)).decide()
    assert [(f.code, f.severity) for f in decision.status.findings] == [("AcceptedCodeUnknown", Severity.WARNING)]
    assert "NoController" in decision.status.findings[0].reason
