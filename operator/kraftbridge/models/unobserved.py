"""The value of a part of the observation that is unknown. `observation` and `survey` both need it, so neither defines it."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override


@dataclass(frozen=True, slots=True)
class Unobserved:
    """A part of the observation that is unknown. A gate that needs it stays closed."""

    source: str
    """The source that did not answer: ``ZooKeeper zookeeper-0:2181``, ``controller 3001``."""
    reason: str

    @override
    def __str__(self) -> str:
        """Return both in one line."""
        return f"{self.source} could not be observed: {self.reason}"
