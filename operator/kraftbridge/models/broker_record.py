"""What one broker is: its settings in force, its listeners, and the offsets of its partitions. Taken before a restart and asked again after it."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from kraftbridge.models.config_values import ConfigType
from kraftbridge.models.survey import DYNAMIC, SettingSource, Stated, Unobserved

MAXIMUM_UNPACKED_BYTES: Final = 256 * 1024 * 1024
"""Of a record: 200,000 partitions take about 8 MiB."""


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    """A setting of a broker, as the broker itself answers by its own id (DescribeConfigs, KIP-226, KIP-569)."""

    value: str | None
    """What holds, as Kafka spells the parsed value; None for a password, and for a setting without a value."""
    sensitive: bool = False
    type: ConfigType = ConfigType.UNKNOWN
    """Unknown where Kafka does not define the setting."""
    stated: tuple[Stated, ...] = ()
    """The places that state the setting by this name, the one that should win first. They keep what Kafka has refused."""

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
    """A topic that is deleted and created again has another one. ``""`` before Kafka 2.8 (KIP-516)."""


TopicPartition = tuple[str, int]


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
    topics: dict[str, list[list[int]]] = {}
    for (topic, partition), o in record.offsets.items():
        topics.setdefault(topic, []).append([partition, o.start, o.end, o.limit, o.retention_bytes])
    ids = {topic: o.topic_id for (topic, _), o in record.offsets.items()}
    document = {
        "nodeId": record.node_id,
        "podUid": record.pod_uid,
        "podIp": record.pod_ip,
        "takenAt": record.taken_at.isoformat(),
        "settings": settings,
        "listeners": [_listener(state) for state in record.listeners],
        "offsets": topics,
        "topicIds": ids,
    }
    return zlib.compress(json.dumps(document, separators=(",", ":")).encode(), level=6)


def unpacked(data: bytes) -> BrokerRecord:
    """Return the record of `packed` data.

    Raises
    ------
    ValueError
        It is no record, or it is larger than `MAXIMUM_UNPACKED_BYTES`.
    """
    reader = zlib.decompressobj()
    try:
        text = reader.decompress(data, MAXIMUM_UNPACKED_BYTES)
        if reader.unconsumed_tail:
            raise ValueError(f"the record is larger than {MAXIMUM_UNPACKED_BYTES} bytes")
        return _record(json.loads(text))
    except (zlib.error, KeyError, TypeError, IndexError) as e:
        raise ValueError(f"it is no record of a broker: {type(e).__name__}: {e}") from e


def _record(document: Any) -> BrokerRecord:
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
        offsets={
            (topic, partition): PartitionOffsets(start, end, limit, retention_bytes, document["topicIds"][topic])
            for topic, rows in document["offsets"].items()
            for partition, start, end, limit, retention_bytes in rows
        },
    )


def _listener(state: ListenerState) -> dict[str, object]:
    certificate = state.certificate
    return {
        "name": state.name,
        "host": state.host,
        "port": state.port,
        "trouble": state.trouble,
        "mechanisms": list(state.mechanisms),
        "certificate": None
        if certificate is None
        else [list(certificate.names), certificate.issuer, certificate.not_after.isoformat()],
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
