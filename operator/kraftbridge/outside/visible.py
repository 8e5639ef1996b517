r"""Text that somebody reads: no character in it is unseen. Pure.

Names, config values and messages of other programs come from outside.
One of their characters could end a line and begin another one that we seem to have written,
move a terminal's cursor, or turn the direction of the text behind it.
Such a character becomes its escape, as in Python: ``\x1b``, ``\u202e``.
"""

from __future__ import annotations

import logging
import re
from typing import Any, Final

from typing_extensions import override

from kraftbridge.outside.json_text import with_texts

LINE_END: Final = "\n"
_LAYOUT: Final = (LINE_END, "\t")
_LAYOUT_OR_REST: Final = re.compile(r"[\n\t]|[^\n\t]+")


def visible(text: str) -> str:
    """Return a text in one line, of which every character is seen.

    What is not seen: control and format characters, lone surrogates, line separators,
    and characters that Unicode gives to nobody (``str.isprintable``).
    """
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _escape(character) for character in text)


def visible_lines(text: str) -> str:
    """Return a text of several lines, of which every character but line ends and tabs is seen."""
    if text.isprintable():
        return text
    return "".join(part if part in _LAYOUT else visible(part) for part in _LAYOUT_OR_REST.findall(text))


def all_visible(value: Any) -> Any:
    """Return a value of JSON, of which every text is seen; line ends and tabs stay."""
    return with_texts(value, visible_lines)


class VisibleFormatter(logging.Formatter):
    """Writes a message as one line, and the lines of a traceback below it."""

    @override
    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the record's line."""
        return visible(super().formatMessage(record))

    @override
    def format(self, record: logging.LogRecord) -> str:
        """Return the record's line and the traceback."""
        return visible_lines(super().format(record))


def log_visibly(level: str | int = logging.INFO) -> None:
    """Let this process log to standard error, one message a line."""
    handler = logging.StreamHandler()
    handler.setFormatter(VisibleFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
