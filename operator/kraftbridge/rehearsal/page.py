"""Renders the result as one self-contained HTML page without scripts and external resources."""

from __future__ import annotations

from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from kraftbridge.models.rehearsal import RehearsalResult, Stage
from kraftbridge.verification.page import kind_name, shown_value

_STAGE_NAMES: Final = {
    Stage.QUORUM_READY: "quorum ready",
    Stage.BROKERS_REGISTERED: "brokers registered",
    Stage.CLAIMED: "takeover: the controller has claimed ZooKeeper",
    Stage.COPY_BEGINS: "copy begins",
    Stage.COPY_ENDS: "copy ends",
    Stage.SYNC_BEGINS: "sync to ZooKeeper begins",
    Stage.SYNC_ENDS: "sync ends",
    Stage.DUAL_WRITE: "dual-write",
}
_LINE_LEFT: Final = 20.0
_LINE_WIDTH: Final = 420.0


def render_page(result: RehearsalResult) -> str:
    """Return the page."""
    environment = Environment(
        loader=PackageLoader("kraftbridge.rehearsal"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"kind_name": kind_name, "shown": shown_value}
    longest = max(result.stages_seconds.values(), default=0.0) or 1.0
    marks = [
        (_STAGE_NAMES[stage], seconds, _LINE_LEFT + _LINE_WIDTH * seconds / longest)
        for stage, seconds in sorted(result.stages_seconds.items(), key=lambda item: item[1])
    ]
    return environment.get_template("rehearsal.html.jinja").render(result=result, marks=marks)
