"""Kafka's own message definitions of the metadata log, and the decoders generated from them.

Kafka's build generates its Java classes from `schemas/*.json` (``kafka-metadata-3.9.1.jar``, ``common/metadata``).
This module generates one Python function for each record type and version, as Kafka's `MessageGenerator` does in Java.
The serialization is the flexible one of KIP-482, because every type has ``flexibleVersions: 0+``.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from kraftbridge.exceptions import UndecodableRecordError

Fields = dict[str, Any]
Decoder = Callable[[bytes, int], tuple[Fields, int]]

_NUMBERS: Mapping[str, tuple[str, int]] = {
    "int8": ("b", 1),
    "int16": ("h", 2),
    "uint16": ("H", 2),
    "int32": ("i", 4),
    "uint32": ("I", 4),
    "int64": ("q", 8),
    "float64": ("d", 8),
}
_UUID_BYTES = 16
_FIXED: Mapping[str, tuple[str, int]] = {
    **{kind: (f"read_{kind}(b, p)[0]", width) for kind, (_, width) in _NUMBERS.items()},
    "bool": ("b[p] != 0", 1),
    "uuid": (f"b[p:p + {_UUID_BYTES}]", _UUID_BYTES),
}
"""Python source of a value of fixed size, and its number of bytes."""
_SIZED = {"string": "str({}, 'utf-8')", "bytes": "{}"}
_KNOWN_FORMATS = 32
ZERO_UUID = bytes(_UUID_BYTES)
_MAXIMUM_VARINT_SHIFT = 28  # ByteUtils.readUnsignedVarint refuses a sixth byte


@dataclass(frozen=True, slots=True)
class VersionRange:
    """Versions as the definitions write them: ``none``, ``3``, ``0-2`` or ``1+``."""

    lowest: int
    highest: int

    @classmethod
    def parse(cls, text: str | None) -> VersionRange:
        """Return the range of a definition's string; an absent string gives an empty range."""
        if text is None or text == "none":
            return cls(1, 0)
        match = re.fullmatch(r"(\d+)(?:(\+)|-(\d+))?", text)
        if match is None:
            raise ValueError(f"not a version range of Kafka's message definitions: {text!r}")
        low = int(match[1])
        return cls(low, 32767 if match[2] else int(match[3] or low))

    def __contains__(self, version: int) -> bool:
        return self.lowest <= version <= self.highest


@dataclass(frozen=True, slots=True)
class FieldDefinition:
    """One field of a record or of a nested structure."""

    name: str
    type: str
    versions: VersionRange
    nullable: VersionRange
    tagged: VersionRange
    tag: int | None
    default: Any
    fields: tuple[FieldDefinition, ...]

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> FieldDefinition:
        """Return the field of a definition's JSON object."""
        name: str = body["name"]
        tag = body.get("tag")
        return cls(
            name=name[0].lower() + name[1:],
            type=body["type"],
            versions=VersionRange.parse(body["versions"]),
            nullable=VersionRange.parse(body.get("nullableVersions")),
            tagged=VersionRange.parse(body.get("taggedVersions")),
            tag=None if tag is None else int(tag),
            default=body.get("default"),
            fields=tuple(cls.parse(inner) for inner in body.get("fields", ())),
        )

    def default_expression(self) -> str:
        """Return Python source of the initial value in Kafka's generated class."""
        if self.default == "null":
            return "None"
        if self.type.startswith("[]"):
            return "()"
        match self.type:
            case "bool":
                return str(self.default in {True, "true"})
            case "string":
                return repr(self.default or "")
            case "bytes":
                return "b''"
            case "uuid":
                return "ZERO_UUID"
            case "float64":
                return repr(float(self.default or 0))
            case _:
                return repr(int(str(self.default or 0), 0))


@dataclass(frozen=True, slots=True)
class RecordDefinition:
    """One type of record in the metadata log."""

    name: str
    api_key: int
    versions: VersionRange
    fields: tuple[FieldDefinition, ...]


@cache
def record_definitions() -> Mapping[int, RecordDefinition]:
    """Return every record type of the metadata log of Kafka 3.9 to 4.4 by its api key."""
    definitions: dict[int, RecordDefinition] = {}
    for entry in resources.files(__package__).joinpath("schemas").iterdir():
        if not entry.name.endswith(".json"):
            continue
        body = json.loads(re.sub(r"^\s*//.*$", "", entry.read_text(encoding="utf-8"), flags=re.MULTILINE))
        definition = RecordDefinition(
            name=body["name"],
            api_key=body["apiKey"],
            versions=VersionRange.parse(body["validVersions"]),
            fields=tuple(FieldDefinition.parse(field) for field in body["fields"]),
        )
        definitions[definition.api_key] = definition
    if not definitions:
        raise RuntimeError("kraftbridge is installed without Kafka's message definitions (metadata/log/schemas/*.json)")
    return definitions


@cache
def decoder(api_key: int, version: int) -> tuple[str, Decoder]:
    """Return name and decoder of one record type and version.

    Raises
    ------
    UndecodableRecordError
        Kafka 3.9 does not know this record type or version. A newer release wrote this log.
    """
    definition = record_definitions().get(api_key)
    if definition is None:
        raise UndecodableRecordError(f"record type {api_key} is unknown to Kafka 3.9's metadata log")
    if version not in definition.versions:
        raise UndecodableRecordError(
            f"{definition.name} version {version} is unknown to Kafka 3.9's metadata log "
            f"(it has {definition.versions.lowest} to {definition.versions.highest})"
        )
    return definition.name, _Generator(version).decoder(definition)


def unsigned_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return an unsigned varint and the position after it (`ByteUtils.readUnsignedVarint`)."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the continuation bit
            return value & 0xFFFFFFFF, position
        shift += 7
        if shift > _MAXIMUM_VARINT_SHIFT:
            raise ValueError(f"varint at {position} is longer than five bytes")


def _non_null(field: str) -> None:
    raise ValueError(f"non-nullable field {field} was serialized as null")


def _too_long(field: str) -> None:
    raise ValueError(f"field {field} is longer than the record")


class _Generator:
    """Writes the source of one decoder. Inlined one-byte varints make the decoder fast."""

    def __init__(self, version: int) -> None:
        self._version = version
        self._lines: list[str] = []
        self._numbers = 0

    def decoder(self, definition: RecordDefinition) -> Decoder:
        self._line(0, "def decode(b, p):")
        self._line(1, "size = len(b)")
        self._structure(1, definition.fields, "record")
        self._line(1, "return record, p")
        namespace: dict[str, Any] = {
            "uvarint": unsigned_varint,
            "unpack": struct.unpack_from,
            "non_null": _non_null,
            "too_long": _too_long,
            "ZERO_UUID": ZERO_UUID,
            **{
                f"formats_{code}": [f">{count}{code}" for count in range(_KNOWN_FORMATS)]
                for code, _ in _NUMBERS.values()
            },
            **{f"read_{name}": struct.Struct(f">{code}").unpack_from for name, (code, _) in _NUMBERS.items()},
        }
        # The source is made only of Kafka's definitions, which are files of this package.
        exec("\n".join(self._lines), namespace)  # noqa: S102
        function: Decoder = namespace["decode"]
        return function

    def _line(self, depth: int, text: str) -> None:
        self._lines.append("    " * depth + text)

    def _next(self) -> int:
        self._numbers += 1
        return self._numbers

    def _varint(self, depth: int, target: str) -> None:
        self._line(depth, f"{target} = b[p]; p += 1")
        self._line(depth, f"if {target} > 127: {target}, p = uvarint(b, p - 1)")

    def _structure(self, depth: int, fields: tuple[FieldDefinition, ...], target: str) -> None:
        number = self._next()
        present = [field for field in fields if self._version in field.versions]
        tagged = [field for field in present if self._version in field.tagged]
        variable = {field.name: f"v{number}_{field.name}" for field in present}
        for field in present:
            if field in tagged:
                self._line(depth, f"{variable[field.name]} = {field.default_expression()}")
            else:
                self._value(depth, field, field.type, variable[field.name])
        self._varint(depth, f"tags{number}")
        self._line(depth, f"for _ in range(tags{number}):")
        self._varint(depth + 1, f"tag{number}")
        self._varint(depth + 1, f"length{number}")
        self._line(depth + 1, f"end{number} = p + length{number}")
        for field in tagged:
            self._line(depth + 1, f"if tag{number} == {field.tag}:")
            self._value(depth + 2, field, field.type, variable[field.name])
            self._line(depth + 2, f"if p != end{number}: too_long({field.name!r})")
        self._line(depth + 1, f"p = end{number}")
        self._line(depth, f"{target} = {{{', '.join(f'{name!r}: {value}' for name, value in variable.items())}}}")

    def _value(self, depth: int, field: FieldDefinition, kind: str, target: str) -> None:
        if kind in _FIXED:
            expression, width = _FIXED[kind]
            self._line(depth, f"{target} = {expression}; p += {width}")
        elif kind in _SIZED or kind.startswith("[]"):
            self._sized(depth, field, kind, target)
        else:
            self._structure(depth, field.fields, target)

    def _sized(self, depth: int, field: FieldDefinition, kind: str, target: str) -> None:
        number = self._next()
        count = f"n{number}"
        self._varint(depth, count)
        self._line(depth, f"if {count} == 0:")
        null = "None" if self._version in field.nullable else f"non_null({field.name!r})"
        self._line(depth + 1, f"{target} = {null}")
        self._line(depth, "else:")
        depth += 1
        self._line(depth, f"{count} -= 1")
        self._line(depth, f"if {count} > size - p: too_long({field.name!r})")
        element = kind.removeprefix("[]")
        if kind in _SIZED:
            value = _SIZED[kind].format(f"b[p:p + {count}]")
            self._line(depth, f"{target} = {value}; p += {count}")
        elif element in _NUMBERS:
            code, width = _NUMBERS[element]
            # Most arrays are empty or short; their formats are cached.
            self._line(depth, f"if {count} == 0: {target} = ()")
            self._line(depth, f"elif {count} < {_KNOWN_FORMATS}: {target} = unpack(formats_{code}[{count}], b, p)")
            self._line(depth, f"else: {target} = unpack('>%d{code}' % {count}, b, p)")
            self._line(depth, f"p += {width} * {count}")
        elif element == "uuid":
            self._line(depth, f"end{number}_ = p + {_UUID_BYTES} * {count}")
            self._line(depth, f"if end{number}_ > size: too_long({field.name!r})")
            step = f"range(p, end{number}_, {_UUID_BYTES})"
            self._line(depth, f"{target} = tuple([b[q:q + {_UUID_BYTES}] for q in {step}]); p = end{number}_")
        else:
            self._line(depth, f"items{number} = []")
            self._line(depth, f"for _ in range({count}):")
            self._value(depth + 1, field, element, f"item{number}")
            self._line(depth + 1, f"items{number}.append(item{number})")
            self._line(depth, f"{target} = tuple(items{number})")
