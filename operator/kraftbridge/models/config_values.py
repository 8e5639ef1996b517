"""Values of Kafka's settings, compared by the type that Kafka gives them.

The metadata log and ZooKeeper hold a value as somebody wrote it.
DescribeConfigs answers with the parsed value in Java's spelling (``ConfigDef.parseType``,
``ConfigDef.convertToString``).
Seen with Kafka 3.9.1: ``False`` and ``false``, ``compact, delete`` and ``compact,delete``, ``0.50`` and ``0.5``,
``10485760`` and ``1.048576E7``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from enum import IntEnum
from typing import Final

from typing_extensions import override

_BLANKS: Final = "".join(map(chr, range(0x21)))
"""``String.trim`` removes every character up to the blank."""
_BESIDE_COMMA: Final = " \t\n\v\f\r"
"""What ``ConfigDef.COMMA_WITH_WHITESPACE`` takes away around a comma."""
_WHOLE_NUMBER: Final = re.compile(r"([+-]?)0*(\d{1,19})")
"""``Long.parseLong``: decimal digits of any script, no blanks and no underscores."""
_DECIMAL: Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_HEXADECIMAL: Final = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?")
_NO_NUMBER: Final = re.compile(r"[+-]?(?:NaN|Infinity)")


class ConfigType(IntEnum):
    """Type of a setting, with its code in DescribeConfigs (KIP-569, ``DescribeConfigsResponse.ConfigType``)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9

    @override
    @classmethod
    def _missing_(cls, value: object) -> ConfigType:
        return cls.UNKNOWN  # a type of a later Kafka


def same_value(kind: ConfigType, one: str, other: str) -> bool:
    """Return whether Kafka reads both texts as the same value."""
    return canonical_value(kind, one) == canonical_value(kind, other)


def canonical_value(kind: ConfigType, text: str) -> str:
    """Return one text for all spellings of a value: Kafka's own.

    A text that Kafka refuses for its type, and every text of unknown type, stays as it is.

    Notes
    -----
    ``ConfigDef.parseType`` trims every text first.
    It reads booleans in any case, and whole numbers and doubles by ``parseInt``, ``parseShort``,
    ``parseLong`` and ``parseDouble``.
    Lists keep their order, names of classes and passwords their text.
    """
    trimmed = text.strip(_BLANKS)
    match kind:
        case ConfigType.UNKNOWN:
            return text
        case ConfigType.STRING | ConfigType.CLASS | ConfigType.PASSWORD:
            return trimmed
        case ConfigType.BOOLEAN:
            return _boolean(trimmed) or text
        case ConfigType.SHORT:
            return _whole(trimmed, 16) or text
        case ConfigType.INT:
            return _whole(trimmed, 32) or text
        case ConfigType.LONG:
            return _whole(trimmed, 64) or text
        case ConfigType.DOUBLE:
            return _double(trimmed) or text
        case ConfigType.LIST:
            # A regular expression would look at a long run of blanks once for each of them.
            return ",".join(item.strip(_BESIDE_COMMA) for item in trimmed.split(","))


def canonical_values(types: Mapping[str, ConfigType], values: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return settings with one text for all spellings of each value, by name; None stays None."""
    return {
        name: None if text is None else canonical_value(types.get(name, ConfigType.UNKNOWN), text)
        for name, text in values.items()
    }


def _boolean(text: str) -> str | None:
    lowered = text.lower()
    return lowered if lowered in {"true", "false"} else None


def _whole(text: str, bits: int) -> str | None:
    match = _WHOLE_NUMBER.fullmatch(text)
    if not match:
        return None
    value = int("".join(match.groups()))
    bound = 2 ** (bits - 1)
    return str(value) if -bound <= value < bound else None


def _double(text: str) -> str | None:
    value = java_double(text)
    return None if value is None else _java(value)


def java_double(text: str) -> float | None:
    """Return what ``Double.parseDouble`` reads; None where it throws. Python and Java round alike."""
    trimmed = text.strip(_BLANKS)
    if _NO_NUMBER.fullmatch(trimmed):
        return float(trimmed)
    if decimal := _DECIMAL.fullmatch(trimmed):
        return float(decimal[1])
    if hexadecimal := _HEXADECIMAL.fullmatch(trimmed):
        try:
            return float.fromhex(hexadecimal[1])
        except OverflowError:
            return -math.inf if trimmed.startswith("-") else math.inf
    return None


def _java(value: float) -> str:
    """Return a double as ``Double.toString`` spells it: in the fewest digits that tell it from others (JDK-4511638)."""
    if not math.isfinite(value):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    if value == 0 or 1e-3 <= abs(value) < 1e7:  # noqa: PLR2004 - the bounds of ``Double.toString``
        plain = f"{Decimal(repr(value)):f}"
        if "." not in plain:
            plain += ".0"
        return plain
    shortest = Decimal(repr(value)).normalize()
    if len(shortest.as_tuple().digits) == 1:  # Java shows two at least, the nearest ones
        shortest = Decimal(f"{value:.1e}")
    figures = "".join(map(str, shortest.as_tuple().digits))
    sign = "-" if value < 0 else ""
    return f"{sign}{figures[0]}.{figures[1:]}E{shortest.adjusted()}"
