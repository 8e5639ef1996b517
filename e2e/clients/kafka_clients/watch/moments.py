"""The moments of a migration that the load is told of: the harness makes a file for each, because the load's pod sees no resource."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

FOLDER = Path("/tmp/moments")


class Moment(StrEnum):
    """A moment at which watchers act."""

    TAKEOVER = "takeover"
    """The brokers begin to restart in migration mode; the last one's registration starts the copy."""
    DUAL_WRITE = "dual-write"
    """ZooKeeper-mode brokers are under the KRaft controller."""
    MIXED = "mixed"
    """Some brokers are in KRaft mode, and the others are not."""


@dataclass(frozen=True)
class Moments:
    """The moments that have been told."""

    folder: Path = FOLDER

    def told(self, moment: Moment) -> bool:
        """Return whether a moment has come."""
        return (self.folder / moment).exists()
