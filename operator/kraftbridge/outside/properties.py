r"""Properties files as ``java.util.Properties`` reads them, in a time that grows with their length alone.

``javaproperties`` looks at a continued line from its beginning for each line that continues it: 64 KiB of them take
20 s and stop every thread meanwhile. So lines are joined here, and none is continued when it is parsed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import javaproperties

from kraftbridge.exceptions import PropertiesError

_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")
_BLANKS: Final = " \t\f"
_COMMENT: Final = ("#", "!")


@dataclass(frozen=True, slots=True)
class _LogicalLine:
    """A line as ``Properties.LineReader`` gives it."""

    source: str
    """Its natural lines, as they are in the file."""
    text: str
    """The same without ends of lines, continued by nothing."""

    @property
    def is_setting(self) -> bool:
        """Whether it is neither blank nor a comment."""
        return bool(self.text) and not self.text.startswith(_COMMENT)


def parse_properties(text: str) -> dict[str, str]:
    r"""Return the settings of a properties file.

    Raises
    ------
    PropertiesError
        A ``\u`` without four hexadecimal digits: Java reads no such file (``Properties.loadConvert``).
    """
    return {setting.key: setting.value for setting in _parsed(_logical_lines(text))}


def without_settings(text: str, settings: Collection[str]) -> str:
    """Return a properties file without some settings; comments and every other line stay as they are.

    Raises
    ------
    PropertiesError
        As `parse_properties`.
    """
    lines = list(_logical_lines(text))
    parsed = iter(_parsed(lines))
    return "".join(line.source for line in lines if not line.is_setting or next(parsed).key not in settings)


def _parsed(lines: Iterable[_LogicalLine]) -> list[javaproperties.KeyValue]:
    """Return the setting of each line that has one."""
    text = "".join(f"{line.text}\n" for line in lines if line.is_setting)
    try:
        return [element for element in javaproperties.parse(text) if isinstance(element, javaproperties.KeyValue)]
    except ValueError as error:
        raise PropertiesError(str(error)) from error


def _logical_lines(text: str) -> Iterator[_LogicalLine]:
    sources: list[str] = []
    parts: list[str] = []
    for source in _LINE.findall(text):
        line = source.rstrip("\r\n").lstrip(_BLANKS)
        is_comment = not sources and line.startswith(_COMMENT)
        sources.append(source)
        if not is_comment and _is_continued(line):
            parts.append(line[:-1])
            continue
        parts.append(line)
        yield _LogicalLine("".join(sources), _joined(parts))
        sources = []
        parts = []
    if sources:
        yield _LogicalLine("".join(sources), _joined(parts))


def _is_continued(line: str) -> bool:
    """Return whether a natural line ends with an odd number of backslashes."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _joined(parts: list[str]) -> str:
    text = "".join(parts)
    # A continued line is no comment, whatever the next one begins with.
    return f"\\{text}" if len(parts) > 1 and text.startswith(_COMMENT) else text
