"""The report as one self-contained HTML page without scripts and external resources. Pictures are inline SVG."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from kraftbridge.models.entities import EntityKind
from kraftbridge.models.report import VerificationReport

_BAR_WIDTH: Final = 420.0
_FENCE_LEFT: Final = 270.0
_FENCE_WIDTH: Final = 400.0
_MINIMUM_VISIBLE: Final = 2.0


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a chart: a label, a text, and the widths of its parts in pixels."""

    label: str
    text: str
    width: float
    marked: float = 0.0


@dataclass(frozen=True, slots=True)
class Mark:
    """One point on the line of offsets."""

    label: str
    offset: int
    x: float
    row: int


def kind_bars(report: VerificationReport) -> Sequence[Bar]:
    """Return one bar for each kind, as long as the square root of its entities; the differing share is red."""
    most = max((counts.compared for counts in report.counts.values()), default=0) or 1
    bars = []
    for kind, counts in report.counts.items():
        width = max(_MINIMUM_VISIBLE, _BAR_WIDTH * (counts.compared / most) ** 0.5)
        text = str(counts.compared)
        marked = 0.0
        if counts.differing:
            text += f", {counts.differing} differ"
            share = counts.differing / max(counts.compared, 1)
            marked = min(width, max(_MINIMUM_VISIBLE * 2, width * share))
        bars.append(Bar(kind_name(kind), text, width, marked))
    return bars


def timing_bars(report: VerificationReport) -> Sequence[Bar]:
    """Return one bar per stage of the run."""
    longest = max(report.timings_seconds.values(), default=0.0) or 1.0
    return [
        Bar(stage, f"{seconds:.2f} s", max(_MINIMUM_VISIBLE, _BAR_WIDTH * seconds / longest))
        for stage, seconds in report.timings_seconds.items()
    ]


def offset_marks(report: VerificationReport) -> Sequence[Mark]:
    """Return the run's offsets on one line: the fence, the compared offset, the high watermark, the voters' ends."""
    points: list[tuple[str, int]] = []
    if report.fence and report.fence.first_offset is not None and report.fence.last_offset is not None:
        points.append(("ZooKeeper mirrors, at the first read", report.fence.first_offset))
        points.append(("ZooKeeper mirrors, at the last read", report.fence.last_offset))
    others = {"voters compared at": report.compared_offset, "high watermark": report.high_watermark}
    others |= {f"end of voter {voter.name}": voter.end_offset for voter in report.voters}
    points += ((label, offset) for label, offset in others.items() if offset is not None)
    if not points:
        return []
    low = min(offset for _, offset in points)
    high = max(offset for _, offset in points)
    span = max(1, high - low)
    return [
        Mark(label, offset, _FENCE_LEFT + _FENCE_WIDTH * (offset - low) / span, row)
        for row, (label, offset) in enumerate(points)
    ]


def kind_name(kind: EntityKind) -> str:
    """Return a kind's name on the page."""
    return kind.replace("-", " ").replace("acl", "ACL").replace("scram", "SCRAM")


def shown_value(value: str | None) -> str:
    """Return the text for an attribute's canonical JSON. An absent attribute reads `absent`."""
    if value is None:
        return "absent"
    try:
        decoded = json.loads(value)
    except ValueError:
        return value
    return decoded if isinstance(decoded, str) else value


def render_page(report: VerificationReport) -> str:
    """Return the page."""
    environment = Environment(
        loader=PackageLoader("kraftbridge.verification"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"kind_name": kind_name, "shown": shown_value}
    return environment.get_template("report.html.jinja").render(
        report=report, kinds=kind_bars(report), timings=timing_bars(report), marks=offset_marks(report)
    )
