r"""Properties files, compared with a library that reads them as Java does; and long ones, which it cannot read in time."""

from __future__ import annotations

import javaproperties
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kraftbridge.exceptions import ObservationError
from kraftbridge.outside.properties import parse_properties, without_settings

PIECES = st.sampled_from(
    ["a", "b.c", "=", ":", " ", "\t", "\\", "\\\\", "\n", "\r\n", "\r", "#", "!", "\\u0041", "\\n", "ü", "# a=1\n"]
)
FILES = st.lists(PIECES, max_size=40).map("".join)
LONG = 300_000


@given(text=FILES)
@example("a=1\\\n  2\n")
@example("\\\n#b=1\n")
@example("\\\n\\\n!b=1")
@example("# comment \\\na=1\n")
@example("a=\\\\\\\n\\\nb\n")
@example("a=\\")
def test_a_file_is_read_as_java_reads_it(text: str) -> None:
    try:
        expected = javaproperties.loads(text)
    except ValueError:
        with pytest.raises(ObservationError):
            parse_properties(text)
        return
    assert parse_properties(text) == expected


@given(text=FILES, name=st.sampled_from(["a", "b.c", "", "aA"]))
def test_what_is_left_out_is_that_setting_alone(text: str, name: str) -> None:
    try:
        before = parse_properties(text)
    except ObservationError:
        return
    after = without_settings(text, [name])
    assert parse_properties(after) == {key: value for key, value in before.items() if key != name}
    assert without_settings(text, []) == text


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "text",
    [
        "a=\\\n" * (LONG // 4),
        "#\\\n" * (LONG // 3),
        "a=\\\n" + " " * LONG,
        "a=" + "\\" * LONG,
        "a" + " " * LONG + "b",
        "a=" + "\\u0041" * (LONG // 6),
        "\r" * LONG,
        "a=1\n" * (LONG // 4),
    ],
    ids=["continued", "comments", "indented", "backslashes", "blanks", "escapes", "ends", "settings"],
)
def test_a_long_file_is_read_in_time(text: str) -> None:
    """A Secret holds three times as much, and every migration of the operator would wait for it."""
    parse_properties(text)
    without_settings(text, ["a"])
