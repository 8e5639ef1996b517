"""JSON from outside, and text from it: of any depth, and with characters that UTF-8 cannot write."""

from __future__ import annotations

import json
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
    match value:
        case str():
            return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
        case list():
            return [writable(item) for item in value]
        case dict():
            return {writable(key): writable(item) for key, item in value.items()}
        case _:
            return value
