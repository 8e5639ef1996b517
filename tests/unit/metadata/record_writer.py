"""Writes metadata records, batches and snapshots as Kafka does: the counterpart of the decoders, for tests and benchmarks."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from crc32c import crc32c

from kraftbridge.metadata.log.definitions import FieldDefinition, RecordDefinition, record_definitions

_NUMBERS = {
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "bool": "?",
}
_TIMESTAMP_MS = 1_700_000_000_000


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    return uvarint((value << 1) ^ (value >> 63))


@cache
def definition(name: str) -> RecordDefinition:
    return next(each for each in record_definitions().values() if each.name == name)


def record(name: str, version: int | None = None, /, **fields: Any) -> bytes:
    """Return a record's value; fields that are left out have their default."""
    kind = definition(name)
    version = kind.versions.highest if version is None else version
    unknown = fields.keys() - {field.name for field in kind.fields}
    assert not unknown, f"{name} has no {unknown}"
    return uvarint(1) + uvarint(kind.api_key) + uvarint(version) + _structure(kind.fields, fields, version)


def _structure(definitions: Sequence[FieldDefinition], fields: Mapping[str, Any], version: int) -> bytes:
    body, tagged = b"", []
    for field in definitions:
        if version not in field.versions:
            continue
        default = eval(field.default_expression(), {"ZERO_UUID": bytes(16)})
        value = fields.get(field.name, default)
        if version in field.tagged:
            if value != default:
                tagged.append((field.tag, _value(field, field.type, value, version)))
        else:
            body += _value(field, field.type, value, version)
    body += uvarint(len(tagged))
    for tag, content in sorted(tagged):
        body += uvarint(tag) + uvarint(len(content)) + content
    return body


def _value(field: FieldDefinition, kind: str, value: Any, version: int) -> bytes:
    if kind in _NUMBERS:
        return struct.pack(">" + _NUMBERS[kind], value)
    if kind == "uuid":
        return value
    if value is None:
        assert version in field.nullable, field.name
        return uvarint(0)
    if kind in {"string", "bytes"}:
        data = value.encode() if kind == "string" else value
        return uvarint(len(data) + 1) + data
    if kind.startswith("[]"):
        return uvarint(len(value) + 1) + b"".join(_value(field, kind[2:], item, version) for item in value)
    return _structure(field.fields, value, version)


def batch(
    values: Iterable[bytes], base_offset: int, epoch: int = 1, *, control: bool = False, keys: Sequence[bytes] = ()
) -> bytes:
    """Return an uncompressed record batch."""
    body, count = bytearray(), 0
    for index, value in enumerate(values):
        key = varint(len(keys[index])) + keys[index] if keys else varint(-1)
        content = b"\0" + varint(0) + varint(index) + key + varint(len(value)) + value + varint(0)
        body += varint(len(content)) + content
        count += 1
    checked = struct.pack(
        ">hiqqqhii", 0x20 if control else 0, count - 1, _TIMESTAMP_MS, _TIMESTAMP_MS, -1, -1, -1, count
    ) + bytes(body)
    head = struct.pack(">ibI", epoch, 2, crc32c(checked))
    return struct.pack(">qi", base_offset, len(head) + len(checked)) + head + checked


def control_batch(kind: int, base_offset: int, epoch: int = 1) -> bytes:
    return batch([b"\0\0\0"], base_offset, epoch, control=True, keys=[struct.pack(">hh", 0, kind)])


def snapshot(values: Sequence[bytes], epoch: int = 1, per_batch: int = 1000) -> bytes:
    """Return a snapshot's content, framed by its header and footer."""
    out, offset = bytearray(control_batch(3, 0, epoch)), 1
    for start in range(0, len(values), per_batch):
        part = values[start : start + per_batch]
        out += batch(part, offset, epoch)
        offset += len(part)
    return bytes(out + control_batch(4, offset, epoch))


def write_log(folder: Path, batches: Iterable[bytes], base_offset: int = 0) -> Path:
    """Write one segment into `folder/__cluster_metadata-0`."""
    inner = folder / "__cluster_metadata-0"
    inner.mkdir(parents=True, exist_ok=True)
    path = inner / f"{base_offset:020d}.log"
    with path.open("wb") as file:
        for each in batches:
            file.write(each)
    return path
