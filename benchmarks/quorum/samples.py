"""Raw results as JSON Lines: one row for each change, incident, gauge, stage and run, distinguished by ``type``."""

from __future__ import annotations

import gzip
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

MODES: Final = ("zookeeper", "dual-write", "kraft")
"""The mode of the cluster: the label of its samples, in the order of a migration."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Where a row was taken."""

    run: str
    round: int
    mode: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Sample:
    """One change. All times are milliseconds since the workload began."""

    workload: str
    n: int
    scheduled_ms: float
    """When it was due: latencies count from here, so that a stall counts for all that it delays."""
    sent_ms: float | None
    acknowledged_ms: float | None
    visible_ms: float | None
    """When the last broker was seen to serve it."""
    resolution_ms: float | None
    """How long before that, at most, it was visible already: the time since that broker was last asked."""
    tries: int
    error: str | None


class SampleFile:
    """Writes rows; compressed when its name ends in ``.gz``."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        opened = gzip.open if path.suffix == ".gz" else open
        self._file = opened(path, "wt", encoding="utf-8")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, kind: str, setting: Setting, values: Mapping[str, Any]) -> None:
        """Append one row."""
        row = {"type": kind, **asdict(setting), **values}
        self._file.write(json.dumps(row, separators=(",", ":")) + "\n")


@dataclass(frozen=True, slots=True)
class Machine:
    """What the figures were taken on."""

    cpus: int = field(default_factory=lambda: os.cpu_count() or 0)
    cpu_model: str = field(default_factory=lambda: _first_value("/proc/cpuinfo", "model name"))
    memory: str = field(default_factory=lambda: _first_value("/proc/meminfo", "MemTotal"))
    kernel: str = field(default_factory=platform.release)
    python: str = field(default_factory=platform.python_version)


def load_now() -> dict[str, Any]:
    """Return the time and the machine's load (``/proc/loadavg``): one, five, fifteen minutes."""
    try:
        words = Path("/proc/loadavg").read_text(encoding="ascii").split()
    except OSError:
        words = []
    return {"at": datetime.now(UTC).isoformat(timespec="seconds"), "loadavg": " ".join(words[:4])}


def _first_value(path: str, name: str) -> str:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")
