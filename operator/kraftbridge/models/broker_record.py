"""What one broker is: its settings in force, its listeners, and the offsets of its partitions.

Taken before a restart and asked again after it.
"""

from __future__ import annotations

import json
import re
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import BeforeValidator
from typing_extensions import override

from kraftbridge.models.config_values import ConfigType
from kraftbridge.models.survey import DYNAMIC, SettingSource, Stated, Unobserved
from kraftbridge.outside import bounds

_ADVICE: Final = "Let the ConfigMap be as the operator wrote it"


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    """A setting of a broker, as the broker itself answers by its own id (DescribeConfigs, KIP-226, KIP-569)."""

    value: str | None
    """What holds, as Kafka spells the parsed value; None for a password, and for a setting without a value."""
    sensitive: bool = False
    type: ConfigType = ConfigType.UNKNOWN
    """Unknown where Kafka does not define the setting."""
    stated: tuple[Stated, ...] = ()
    """The places that state the setting by this name, the one that should win first.
    They keep what Kafka has refused."""

    @property
    def is_dynamic(self) -> bool:
        """Whether a dynamic setting should hold."""
        return bool(self.stated) and self.stated[0].source in DYNAMIC

    @property
    def static(self) -> Stated | None:
        """The static value, or Kafka's default; None where neither exists."""
        return next((s for s in self.stated if s.source not in DYNAMIC), None)


@dataclass(frozen=True, slots=True)
class Certificate:
    """The certificate that a listener presents."""

    names: tuple[str, ...]
    """Subject and alternative names."""
    issuer: str
    not_after: datetime


@dataclass(frozen=True, slots=True)
class ListenerState:
    """What a client sees that connects to an advertised listener of a broker."""

    name: str
    host: str
    port: int
    trouble: str = ""
    """Why the listener cannot be used from the operator's pod; ``""`` if it can."""
    certificate: Certificate | None = None
    """None without TLS, and where the listener ends the handshake because it demands a client certificate (TLS 1.2)."""
    mechanisms: tuple[str, ...] = ()
    """SASL mechanisms that it offers."""


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """One partition of a broker before its restart."""

    start: int
    """Earliest offset, as the leader answers (ListOffsets)."""
    end: int
    """High watermark, as the leader answers."""
    limit: int
    """How far retention by age may raise ``start`` within `RECORD_HOLDS_FOR`; ``start`` where it deletes nothing."""
    retention_bytes: int = -1
    """``retention.bytes`` of the topic; -1: none."""
    topic_id: str = ""
    """A topic that is deleted and created again has another one. ``""`` with a protocol below 2.8 (KIP-516)."""


def _split(place: object) -> object:
    return place.rsplit(",", 1) if isinstance(place, str) else place  # a key of JSON


TopicPartition = Annotated[tuple[str, int], BeforeValidator(_split)]


class OffsetTable(Mapping[TopicPartition, PartitionOffsets]):
    """Offsets by partition, in 45 bytes each: in a dict they take 330, and a broker has up to 200,000 partitions.

    A partition that is added once more keeps its first offsets.
    """

    def __init__(self, offsets: Mapping[TopicPartition, PartitionOffsets] | None = None) -> None:
        self._topics: dict[str, tuple[str, array[int]]] = {}
        """Id of the topic, and the rows of its partitions, in order."""
        self._count = 0
        for place, partition_offsets in sorted((offsets or {}).items()):
            self.add(place, partition_offsets)

    def add(self, place: TopicPartition, offsets: PartitionOffsets) -> None:
        """Add a partition; it takes the less time the more partitions of its topic are smaller."""
        topic, partition = place
        if topic not in self._topics:
            self._topics[topic] = (offsets.topic_id, array("q"))
        _, rows = self._topics[topic]
        position = len(rows)
        if rows and rows[-_COLUMNS] >= partition:
            position = _COLUMNS * _find(rows, partition)
        if position < len(rows) and rows[position] == partition:
            return
        row = (partition, offsets.start, offsets.end, offsets.limit, offsets.retention_bytes)
        rows[position:position] = array("q", row)
        self._count += 1

    def topics(self) -> Iterator[tuple[str, list[list[int]]]]:
        """Yield each topic with its rows: partition, start, end, limit and ``retention.bytes``."""
        for topic, (_, rows) in self._topics.items():
            yield topic, [rows[at : at + _COLUMNS].tolist() for at in range(0, len(rows), _COLUMNS)]

    def topic_ids(self) -> dict[str, str]:
        """Return the id of each topic."""
        return {topic: topic_id for topic, (topic_id, _) in self._topics.items()}

    @override
    def __getitem__(self, place: TopicPartition) -> PartitionOffsets:
        topic, partition = place
        topic_id, rows = self._topics[topic]
        position = _COLUMNS * _find(rows, partition)
        if position >= len(rows) or rows[position] != partition:
            raise KeyError(place)
        start, end, limit, retention_bytes = rows[position + 1 : position + _COLUMNS]
        return PartitionOffsets(start, end, limit, retention_bytes, topic_id)

    @override
    def __iter__(self) -> Iterator[TopicPartition]:
        for topic, (_, rows) in self._topics.items():
            for position in range(0, len(rows), _COLUMNS):
                yield topic, rows[position]

    @override
    def __len__(self) -> int:
        return self._count


_COLUMNS: Final = 5
"""Partition, start, end, limit and ``retention.bytes``."""


def _find(rows: array[int], partition: int) -> int:
    """Return the first row whose partition is not smaller."""
    return bisect_left(range(len(rows) // _COLUMNS), partition, key=lambda row: rows[_COLUMNS * row])


@dataclass(frozen=True, slots=True)
class BrokerRecord:
    """A broker before its restart."""

    node_id: int
    pod_uid: str
    pod_ip: str
    taken_at: datetime
    settings: Mapping[str, EffectiveSetting] | Unobserved
    """Unobserved for a broker that did not answer: it was broken before the restart."""
    listeners: tuple[ListenerState, ...]
    offsets: Mapping[TopicPartition, PartitionOffsets]


@dataclass(frozen=True, slots=True)
class OffsetsNow:
    """One partition of a broker after its restart."""

    start: int
    """As the leader answers."""
    end: int
    own_start: int
    """As the restarted broker answers for its own log (ListOffsets, replica id -2)."""
    leads: bool = False
    """Whether the restarted broker is the leader."""
    own_bytes: int | None = None
    """Size of its log; asked where ``start`` rose."""


@dataclass(frozen=True, slots=True)
class BrokerNow:
    """A broker after its restart."""

    node_id: int
    pod_uid: str
    pod_ip: str
    settings: Mapping[str, EffectiveSetting] | Unobserved
    listeners: tuple[ListenerState, ...]
    offsets: Mapping[TopicPartition, OffsetsNow | str] | Unobserved
    """Text: why a partition could not be asked yet. A partition of a deleted topic is left out."""
    refusals: tuple[str, ...] | Unobserved
    """Lines in which Kafka says that it refused settings; Unobserved if the log of this start cannot be read."""


class DifferenceKind(StrEnum):
    """Kinds of differences between a broker before its restart and after it."""

    SETTING = "Setting"
    """A setting holds another value."""
    REFUSED = "Refused"
    """Kafka refused a dynamic setting: another value holds than the one that is stored."""
    LISTENER = "Listener"
    """A client that connects sees something else, or nothing."""
    LOG_START = "LogStart"
    """Records at the beginning of a partition are gone that retention does not explain."""
    LOG_END = "LogEnd"
    """Records at the end of a partition are gone."""


class Effect(StrEnum):
    """What a difference does to users."""

    DESTROYS = "Destroys"
    """Records are deleted, or will be."""
    CUTS_OFF = "CutsOff"
    """Clients lose the broker, or gain what they may not do."""
    CHANGES = "Changes"
    """Anything else."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference."""

    kind: DifferenceKind
    effect: Effect
    what: str
    """Setting, listener or partition."""
    before: str
    after: str
    line: str = ""
    """Kafka's own words."""


def packed(record: BrokerRecord) -> bytes:
    """Return a record as compressed JSON."""
    settings: object
    if isinstance(record.settings, Unobserved):
        settings = [record.settings.source, record.settings.reason]
    else:
        settings = {
            name: [s.value, s.sensitive, s.type, [[str(o.source), o.value] for o in s.stated]]
            for name, s in record.settings.items()
        }
    head = {
        "nodeId": record.node_id,
        "podUid": record.pod_uid,
        "podIp": record.pod_ip,
        "takenAt": record.taken_at.isoformat(),
        "settings": settings,
        "listeners": [_listener(state) for state in record.listeners],
    }
    offsets = record.offsets
    if not isinstance(offsets, OffsetTable):
        offsets = OffsetTable(offsets)
    stream = zlib.compressobj(level=6)
    compressed = bytearray(stream.compress(_json(head)[:-1] + _OFFSETS))
    separator = b""
    for topic, rows in offsets.topics():
        compressed += stream.compress(separator + _json(topic) + b":" + _json(rows))
        separator = b","
    compressed += stream.compress(_TOPIC_IDS + _json(offsets.topic_ids()) + b"}")
    return bytes(compressed + stream.flush())


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def unpacked(data: bytes) -> BrokerRecord:
    """Return the record of `packed` data.

    The offsets are decoded topic by topic: as one JSON document those of 200,000 partitions take 100 MB.

    Raises
    ------
    ValueError
        It is no record.
    BoundExceededError
        It is larger than `bounds.RECORD_BYTES`, or has more values or partitions than a record.
    """
    try:
        text = bounds.unpacked(data, "the record", bounds.RECORD_BYTES, _ADVICE, zlib_format=True)
    except bounds.BoundExceededError:
        raise
    except OSError as error:
        raise ValueError(f"it is no record of a broker: {error}") from error
    # No string of JSON has a quotation mark without a backslash before it, so these marks stand in none.
    head, _, rest = text.partition(_OFFSETS)
    rows, _, ids = rest.rpartition(_TOPIC_IDS)
    try:
        document = bounds.json_value(head + _TOPIC_IDS[1:] + ids, "the record", bounds.RECORD_VALUES, _ADVICE)
        return _record(document, _offsets(rows, document["topicIds"]))
    except (KeyError, TypeError, IndexError, AttributeError, OverflowError, ValueError) as error:
        raise ValueError(f"it is no record of a broker: {type(error).__name__}: {error}") from error


_OFFSETS: Final = b',"offsets":{'
_TOPIC_IDS: Final = b'},"topicIds":'
_TOPIC: Final = re.compile(rb'("(?:[^"\\]|\\.)*"):\[')
_ROW: Final = re.compile(rb"\[" + rb",".join([rb"(-?\d{1,19})"] * 5) + rb"\],?")
_END_OF_TOPIC: Final = re.compile(rb"\],?")


def _offsets(rows: bytes, topic_ids: Mapping[str, str]) -> OffsetTable:
    table = OffsetTable()
    position = 0
    while position < len(rows):
        position, topic = _next(_TOPIC, rows, position)
        name = json.loads(topic[1])
        while (row := _ROW.match(rows, position)) is not None:
            position = row.end()
            partition, start, end, limit, retention_bytes = map(int, row.groups())
            table.add((name, partition), PartitionOffsets(start, end, limit, retention_bytes, topic_ids[name]))
            bounds.count("the record", len(table), bounds.RECORD_PARTITIONS, "partitions", _ADVICE)
        position, _ = _next(_END_OF_TOPIC, rows, position)
    return table


def _next(pattern: re.Pattern[bytes], rows: bytes, position: int) -> tuple[int, re.Match[bytes]]:
    match = pattern.match(rows, position)
    if match is None:
        raise ValueError(f"its offsets are broken at byte {position}")
    return match.end(), match


def _record(document: Any, offsets: OffsetTable) -> BrokerRecord:
    stored = document["settings"]
    settings: Mapping[str, EffectiveSetting] | Unobserved
    if isinstance(stored, list):
        settings = Unobserved(*stored)
    else:
        settings = {
            name: EffectiveSetting(
                value,
                sensitive,
                ConfigType(kind),
                tuple(Stated(SettingSource(source), text) for source, text in stated),
            )
            for name, (value, sensitive, kind, stated) in stored.items()
        }
    return BrokerRecord(
        node_id=document["nodeId"],
        pod_uid=document["podUid"],
        pod_ip=document["podIp"],
        taken_at=datetime.fromisoformat(document["takenAt"]),
        settings=settings,
        listeners=tuple(_listener_of(entry) for entry in document["listeners"]),
        offsets=offsets,
    )


def _listener(state: ListenerState) -> dict[str, object]:
    shown = None
    if certificate := state.certificate:
        shown = [list(certificate.names), certificate.issuer, certificate.not_after.isoformat()]
    return {
        "name": state.name,
        "host": state.host,
        "port": state.port,
        "trouble": state.trouble,
        "mechanisms": list(state.mechanisms),
        "certificate": shown,
    }


def _listener_of(entry: Any) -> ListenerState:
    shown = entry["certificate"]
    certificate = None
    if shown is not None:
        certificate = Certificate(tuple(shown[0]), shown[1], datetime.fromisoformat(shown[2]))
    return ListenerState(
        name=entry["name"],
        host=entry["host"],
        port=entry["port"],
        trouble=entry["trouble"],
        certificate=certificate,
        mechanisms=tuple(entry["mechanisms"]),
    )


@dataclass(frozen=True, slots=True)
class RestartedBroker:
    """Both sides of the comparison after a restart, as one step observes them."""

    record: BrokerRecord | Unobserved
    now: BrokerNow | Unobserved
