"""Names are content: whatever a cluster's names and words hold, a reader sees it, and nothing that reads it obeys it."""

from __future__ import annotations

import io
import logging
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from kraftbridge.models.catalogue import Code
from kraftbridge.models.conditions import ConditionType, Reason, condition, with_condition
from kraftbridge.models.entities import EntityKind
from kraftbridge.models.rehearsal import Mend, RehearsalResult
from kraftbridge.models.report import Difference, DifferenceState, Finding
from kraftbridge.models.status import finding
from kraftbridge.outside.visible import VisibleFormatter, all_visible, visible, visible_lines
from kraftbridge.plugin.picture import findings_table
from kraftbridge.plugin.terminal import Terminal, say

NOW = datetime(2026, 11, 26, tzinfo=UTC)
HOSTILE = (
    "\x1b[2J", "\x1b]0;owned\x07", "\x1b]8;;http://evil.example\x1b\\here", "\r overwritten", "a\nVerdict: Consistent", "\u202eevil\u202c",
    "\x9b31m", "\u2028next", "\ud800", "\x00", "\x7f", "\u200bunseen", "[/brokers/ids/3]", "[link=http://evil.example]here[/link]", "[red]x", ":skull:",
)  # fmt: skip
NAMES = st.one_of(st.sampled_from(HOSTILE), st.text(st.characters()))


def seen(text: str) -> bool:
    return all(character.isprintable() or character in "\n\t" for character in text)


@given(name=NAMES)
def test_a_name_becomes_one_line_of_seen_characters_and_one_that_is_seen_stays(name: str) -> None:
    assert visible(name).isprintable()
    assert visible(visible(name)) == visible(name)
    assert name != visible(name) or name.isprintable()


@given(text=NAMES)
def test_lines_and_tabs_of_a_text_stay(text: str) -> None:
    assert seen(visible_lines(text))
    assert visible_lines(text).count("\n") == text.count("\n")
    assert visible_lines(text) == text or not seen(text)


@given(value=st.recursive(NAMES, lambda inner: st.lists(inner) | st.dictionaries(NAMES, inner)))
def test_every_text_of_a_json_value_is_seen(value: object) -> None:
    assert seen("".join(_texts(all_visible(value))))


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in _texts(part)]
    return [text for item in value for text in _texts(item)] if isinstance(value, list) else []


@pytest.mark.parametrize("code", Code)
def test_no_name_in_a_finding_is_unseen(code: Code) -> None:
    for name in HOSTILE:
        if name == "\ud800" or "\x00" in name:
            continue  # no shell can be given them, and no znode, topic or object has them in its name
        details = dict.fromkeys(code.details, name)
        said = finding(code, name, **details)
        reported = Finding.of(code, name, **details)
        for text in (said.object, said.reason, said.fix, reported.object, reported.reason, reported.fix):
            assert seen(text), (code, text)
        assert "\n" not in said.object + said.reason


@pytest.mark.parametrize("name", HOSTILE)
def test_reports_and_conditions_show_what_a_name_holds(name: str) -> None:
    difference = Difference(kind=EntityKind.TOPIC, key=name, state=DifferenceState.MISSING, absent_in=[name])
    assert seen(difference.key)
    assert seen("".join(difference.absent_in))
    mend = Mend(code=next(iter(Code)), znode=name, problem=name, command="x")
    assert seen(mend.znode + mend.problem)
    said = with_condition((), ConditionType.READY, "False", Reason.FINDINGS, name, now=NOW, generation=1)
    again = with_condition(said, ConditionType.READY, "False", Reason.FINDINGS, name, now=NOW, generation=1)
    assert again is said, "a message that is not seen as it was given is no change at each step"
    ready = condition(said, ConditionType.READY)
    assert ready is not None
    assert ready.message.isprintable()


@pytest.mark.parametrize("name", HOSTILE)
def test_a_result_of_a_pod_shows_what_a_name_holds(name: str) -> None:
    given = {"verdict": "Works", "reason": name, "ending": "DualWrite", "words": [name], "problems": [name]}
    moments = {"startedAt": NOW.isoformat(), "finishedAt": NOW.isoformat()}
    result = RehearsalResult.model_validate(given | moments)
    assert seen(result.reason + "".join(result.words + result.problems))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_terminal_shows_names_and_obeys_none(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Rich would take brackets for styles and links, colons for emoji, and hands escape sequences on."""
    listed = finding(Code.SINGLE_CONTROLLER, name).model_copy(update={"object": name, "reason": name, "fix": name})
    terminal = Terminal()
    terminal.print(findings_table((listed,)))
    terminal.print(f"not read: {name}", style="dim")
    terminal.print(Text(name))
    say(f"error: {name}", to_stderr=True)
    printed = capsys.readouterr()
    assert seen(printed.out + printed.err)
    if name.startswith(("[", ":")):
        assert f"not read: {name}" in printed.out


def test_a_log_line_is_one_line() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(VisibleFormatter("%(levelname)s %(message)s"))
    logger = logging.getLogger("test of a line")
    logger.addHandler(handler)
    logger.error("refused: %s", "a\nINFO Verdict: Consistent\x1b[2J")
    assert stream.getvalue() == "ERROR refused: a\\nINFO Verdict: Consistent\\x1b[2J\n"
    logger.error("failed", exc_info=ValueError("x\x1b"))
    lines = stream.getvalue().splitlines()
    assert lines[1] == "ERROR failed"
    assert lines[-1] == "ValueError: x\\x1b"
