"""JSON from outside, and text from it: of any depth, and with characters that UTF-8 cannot write."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def parsed_json(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raises
    ------
    ValueError
        The text is not JSON, or is nested more deeply than Python reads.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def writable(value: Any) -> Any:
    r"""Return a value, of which every text can be written as UTF-8. A lone surrogate becomes its escape: ``\ud800``.

    JSON can spell such a text, and ZooKeeper holds JSON that anybody wrote. Reports and messages name it.
    """
    return with_texts(value, _writable)


def with_texts(value: Any, changed: Callable[[str], str]) -> Any:
    """Return a value of JSON with every text in it changed, the names of fields too."""
    match value:
        case str():
            return changed(value)
        case list() | tuple():
            return [with_texts(item, changed) for item in value]
        case dict():
            return {with_texts(key, changed): with_texts(item, changed) for key, item in value.items()}
        case _:
            return value


def _writable(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
