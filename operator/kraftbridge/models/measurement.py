"""What ``spec.measure`` asks for: the cost of a metadata change, before, in dual-write and after."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from pydantic import ConfigDict

from kraftbridge.models.spec import Model


class MeasuredMode(StrEnum):
    """Where metadata was when it was measured."""

    ZOOKEEPER = "ZooKeeper"
    DUAL_WRITE = "DualWrite"
    KRAFT = "KRaft"


class Measurement(Model):
    """One line of the comparison; milliseconds from the time at which a change was due."""

    model_config = ConfigDict(extra="ignore")

    mode: MeasuredMode
    attempt: int = 1
    started_at: datetime
    finished_at: datetime | None = None
    changes: int = 0
    """How many changes were acknowledged and seen on every broker."""
    acknowledged_p50_ms: float | None = None
    acknowledged_p99_ms: float | None = None
    """Of so few changes it is the slowest."""
    visible_p50_ms: float | None = None
    """Until the last broker served it."""
    visible_p99_ms: float | None = None
    note: str = ""
    """What went wrong, such as a right that is missing."""


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What a probe found, whole or not."""

    topic: str
    changes: int = 0
    acknowledged_p50_ms: float | None = None
    acknowledged_p99_ms: float | None = None
    visible_p50_ms: float | None = None
    visible_p99_ms: float | None = None
    note: str = ""
