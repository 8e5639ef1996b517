"""Record batches of log segments and snapshots: framing, checksum, compression, records.

Format: Kafka's `DefaultRecordBatch` and `DefaultRecord` (magic 2, KIP-98); control types: `ControlRecordType`
(KIP-595, KIP-630).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from crc32c import crc32c

from kraftbridge.exceptions import CorruptBatchError

_HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH = struct.Struct(">qi")
HEADER_BYTES = _HEADER.size
_OVERHEAD_BYTES = _LENGTH.size
_CHECKED_FROM = 21  # the checksum covers everything from the attributes on
_MAGIC = 2
_CODEC_MASK = 0x07
_CONTROL_FLAG = 0x20
_MAXIMUM_BATCH_BYTES = 1 << 30
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16


class Codec(IntEnum):
    """`CompressionType` ids."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class ControlType(IntEnum):
    """`ControlRecordType` ids that appear in a metadata log."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """One batch with a valid checksum: its uncompressed records, and its position in its file."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    epoch: int
    append_timestamp_ms: int
    is_control: bool
    count: int
    payload: bytes | memoryview

    def records(self) -> Iterator[tuple[int, bytes | None, bytes | None]]:
        """Yield offset, key and value of each record.

        Raises
        ------
        CorruptBatchError
            Lengths inside the batch contradict each other although the checksum is valid.
        """
        data = bytes(self.payload)
        position = 0
        base = self.base_offset
        try:
            for _ in range(self.count):
                length, position = _varint(data, position)
                end = position + length
                position += 1  # attributes, unused
                _, position = _varlong(data, position)
                offset_delta, position = _varint(data, position)
                key, position = _bytes(data, position)
                value, position = _bytes(data, position)
                headers, position = _varint(data, position)
                if headers:
                    position = _skip_headers(data, position, headers)
                if position != end or end > len(data):
                    raise CorruptBatchError(f"batch at offset {base}: a record does not end where its length says")
                yield base + offset_delta, key, value
        except IndexError as error:
            raise CorruptBatchError(f"batch at offset {base}: fewer records than its count of {self.count}") from error
        if position != len(data):
            raise CorruptBatchError(f"batch at offset {base}: {len(data) - position} bytes after its last record")

    def control_types(self) -> list[int]:
        """Return the types of the control records in a control batch."""
        types = []
        for offset, key, _ in self.records():
            if key is None or len(key) < 4:  # noqa: PLR2004 - version and type, two bytes each
                raise CorruptBatchError(f"control record at offset {offset} has no type")
            types.append(int.from_bytes(key[2:4], "big"))
        return types


@dataclass(slots=True)
class BatchScan:
    """Iterates over the batches of one file's content and records where the complete batches end."""

    data: Any
    name: str
    first_byte: int = 0
    """Position in the file at which `data` begins."""
    end: int = 0
    """Position after the last complete batch that was yielded."""
    torn_bytes: int = 0
    """Bytes after it that do not form a complete batch; valid after the iteration."""

    def __iter__(self) -> Iterator[RecordBatch]:
        data = self.data
        size = len(self.data)
        position = self.end
        while position < size:
            if size - position < _OVERHEAD_BYTES:
                break
            _, length = _LENGTH.unpack_from(data, position)
            if length == 0 and not any(data[position:]):
                break  # a preallocated tail
            if not HEADER_BYTES - _OVERHEAD_BYTES <= length <= _MAXIMUM_BATCH_BYTES:
                raise CorruptBatchError(
                    f"{self.name}: batch at byte {self.first_byte + position} claims {length} bytes"
                )
            end = position + _OVERHEAD_BYTES + length
            if end > size:
                break
            yield _batch(data, position, end, self.name, self.first_byte)
            self.end = position = end
        self.torn_bytes = size - position


def _batch(data: Any, position: int, end: int, name: str, first_byte: int) -> RecordBatch:
    where = f"{name}: batch at byte {first_byte + position}"
    base, _, epoch, magic, checksum, attributes, last_delta, _, maximum_timestamp, _, _, _, count = _HEADER.unpack_from(
        data, position
    )
    if magic != _MAGIC:
        raise CorruptBatchError(f"{where} has magic {magic}; a metadata log holds only magic {_MAGIC}")
    body = memoryview(data)[position + _CHECKED_FROM : end]
    if crc32c(body) != checksum:
        raise CorruptBatchError(f"{where} (offset {base}) fails its CRC-32C")
    if base < 0 or last_delta < 0 or count < 0:
        raise CorruptBatchError(f"{where} has a negative offset or count")
    payload: bytes | memoryview = body[HEADER_BYTES - _CHECKED_FROM :]
    codec = attributes & _CODEC_MASK
    if codec != Codec.NONE:
        payload = _decompressed(body[HEADER_BYTES - _CHECKED_FROM :], codec, where)
    return RecordBatch(
        position=first_byte + position,
        size_bytes=end - position,
        base_offset=base,
        last_offset=base + last_delta,
        epoch=epoch,
        append_timestamp_ms=maximum_timestamp,
        is_control=bool(attributes & _CONTROL_FLAG),
        count=count,
        payload=payload,
    )


def _decompressed(payload: memoryview, codec: int, where: str) -> bytes:
    try:
        if codec == Codec.GZIP:
            return zlib.decompress(payload, wbits=31)
        import cramjam  # noqa: PLC0415 - only the verifier's image contains it

        if codec == Codec.SNAPPY:
            return _snappy(bytes(payload), cramjam)
        if codec == Codec.LZ4:
            return bytes(cramjam.lz4.decompress(payload))
        if codec == Codec.ZSTD:
            return bytes(cramjam.zstd.decompress(payload))
    except ImportError as error:
        raise CorruptBatchError(f"{where} is compressed ({Codec(codec).name}): install kraftbridge[spark]") from error
    except Exception as error:  # each codec raises its own errors
        raise CorruptBatchError(f"{where}: {Codec(codec).name} data does not decompress: {error}") from error
    raise CorruptBatchError(f"{where} uses the unknown compression type {codec}")


def _snappy(payload: bytes, cramjam: Any) -> bytes:
    """Decompress snappy, bare or in the framing of xerial's `SnappyOutputStream`, which Kafka's Java classes write."""
    if not payload.startswith(_XERIAL_MAGIC):
        return bytes(cramjam.snappy.decompress_raw(payload))
    blocks = []
    position = _XERIAL_HEADER_BYTES
    while position < len(payload):
        size = int.from_bytes(payload[position : position + 4], "big")
        position += 4
        if position + size > len(payload):
            raise ValueError("a block is longer than the data")
        blocks.append(bytes(cramjam.snappy.decompress_raw(payload[position : position + size])))
        position += size
    return b"".join(blocks)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = data[position]
    position += 1
    if value > 0x7F:  # noqa: PLR2004 - the continuation bit
        value, position = _unsigned(data, position - 1, 28)
    return (value >> 1) ^ -(value & 1), position


def _varlong(data: bytes, position: int) -> tuple[int, int]:
    value, position = _unsigned(data, position, 63)
    return (value >> 1) ^ -(value & 1), position


def _unsigned(data: bytes, position: int, maximum_shift: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the continuation bit
            return value, position
        shift += 7
        if shift > maximum_shift:
            raise CorruptBatchError(f"varint at byte {position} of a batch is too long")


def _bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    length, position = _varint(data, position)
    if length < 0:
        return None, position
    end = position + length
    if end > len(data):
        raise CorruptBatchError("a record is longer than its batch")
    return data[position:end], end


def _skip_headers(data: bytes, position: int, count: int) -> int:
    if count < 0:
        raise CorruptBatchError("a record has a negative number of headers")
    for _ in range(count):
        _, position = _bytes(data, position)
        _, position = _bytes(data, position)
    return position
