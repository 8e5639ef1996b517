"""What could not be seen."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override


@dataclass(frozen=True, slots=True)
class Unobserved:
    """Something that could not be seen: unknown, which is never "yes"."""

    source: str
    """What did not answer: ``ZooKeeper zookeeper-0:2181``, ``controller 3001``."""
    reason: str

    @override
    def __str__(self) -> str:
        """Return both in one line."""
        return f"{self.source} could not be observed: {self.reason}"
