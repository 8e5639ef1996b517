"""The page: everything escaped, nothing loaded, nothing that runs."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest

from kraftbridge.models.catalogue import Severity
from kraftbridge.models.entities import EntityKind, KindCounts
from kraftbridge.models.report import (
    AttributeDifference,
    Difference,
    DifferenceState,
    Fence,
    Finding,
    Profile,
    Verdict,
    VerificationReport,
    VoterState,
)
from kraftbridge.verification.command_line import main
from kraftbridge.verification.page import kind_bars, offset_marks, render_page, shown_value

HOSTILE = "<script>alert('x')</script>\"&"
VOID = {"meta", "br", "rect", "line", "circle"}


def report(**fields) -> VerificationReport:
    now = datetime.now(UTC)
    base = {
        "run_id": "r",
        "profile": Profile.DUAL_WRITE,
        "verdict": Verdict.INCONSISTENT,
        "reason": HOSTILE,
        "counts": {
            EntityKind.TOPIC: KindCounts(zookeeper=5, log=6, compared=6, differing=1),
            EntityKind.ACL: KindCounts(),
        },
        "differing": 3,
        "differences": [
            Difference(
                kind=EntityKind.TOPIC,
                key=HOSTILE,
                state=DifferenceState.CHANGED,
                present_in=["zookeeper", "log"],
                attributes=[AttributeDifference(name=HOSTILE, values={"zookeeper": None, "log": f'"{HOSTILE}"'})],
            ),
            Difference(kind=EntityKind.PRODUCER_IDS, key="", state=DifferenceState.MISSING, absent_in=["zookeeper"]),
        ],
        "findings": [Finding(code="C", severity=Severity.BLOCKING, object=HOSTILE, reason=HOSTILE, fix=HOSTILE)],
        "findings_total": 2,
        "blocking_findings_total": 1,
        "problems": [HOSTILE],
        "fence": Fence(first_offset=5, last_offset=9, batches=3),
        "voters": [VoterState(id=1, name=HOSTILE, end_offset=12, problem=HOSTILE)],
        "timings_seconds": {"read": 1.5, "none": 0.0},
        "started_at": now,
        "finished_at": now,
    }
    return VerificationReport(**(base | fields))


class Balance(HTMLParser):
    """Fails on tags that do not close in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("verdict", list(Verdict))
def test_the_page_is_well_formed_and_runs_nothing(verdict):
    page = render_page(report(verdict=verdict))
    parser = Balance()
    parser.feed(page)
    assert not parser.open
    assert not parser.seen & {"script", "img", "link", "iframe", "object", "form"}
    assert not {name for name in parser.attributes if name.startswith("on") or name in {"src", "href"}}
    assert "http://" not in page
    assert "https://" not in page
    assert HOSTILE not in page
    assert "&lt;script&gt;" in page
    assert "default-src 'none'" in page


def test_an_empty_report_is_a_page_too():
    page = render_page(
        report(
            counts={},
            differing=0,
            differences=[],
            findings=[],
            findings_total=0,
            problems=[],
            fence=None,
            voters=[],
            timings_seconds={},
        )
    )
    assert "Nothing was compared" in page


def test_bars_show_what_differs():
    bars = {bar.label: bar for bar in kind_bars(report())}
    assert bars["topic"].marked > 0
    assert "1 differ" in bars["topic"].text
    assert bars["ACL"].marked == 0


def test_marks_are_in_order_of_their_offsets():
    marks = offset_marks(report(high_watermark=12, compared_offset=8))
    by_offset = sorted(marks, key=lambda mark: mark.offset)
    assert [mark.x for mark in by_offset] == sorted(mark.x for mark in marks)
    assert len({mark.row for mark in marks}) == len(marks)


def test_values_are_shown_as_people_read_them():
    assert shown_value(None) == "absent"
    assert shown_value('"x"') == "x"
    assert shown_value("[1, 2]") == "[1, 2]"
    assert shown_value('"cut of…') == '"cut of…'


def test_the_text_is_readable_without_css():
    text = re.sub(r"<style>.*?</style>", "", render_page(report()), flags=re.DOTALL)
    assert "in all, 1 blocking" in re.sub(r"\s+", " ", text)


def test_a_page_is_made_of_what_a_run_left(tmp_path) -> None:
    kept, page = tmp_path / "report.json", tmp_path / "report.html"
    kept.write_text(report().to_json())
    assert main(["page", str(kept), str(page)]) == 0
    assert "<h1>Inconsistent</h1>" in page.read_text()


@pytest.mark.parametrize("text", [None, "", "{}", '{"runId": 1'])
def test_what_is_no_report_is_named_and_no_page_is_written(tmp_path, caplog, text: str | None) -> None:
    kept, page = tmp_path / "report.json", tmp_path / "report.html"
    if text is not None:
        kept.write_text(text)
    assert main(["page", str(kept), str(page)]) == 2
    assert str(kept) in caplog.text
    assert not page.exists()
