"""The releases of Kafka 4 to which the operator brings a migrated cluster, and those that it refuses. Pure data.

`TRIED` are the releases of the journeys in ``benchmarks/measured/journey-kafka4``: there and back, with clients.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from kraftbridge.models.metadata_version import Release

OLDEST: Final = Release(4, 0)
NEWEST: Final = Release(4, 4)
"""The newest release that was tried."""
TRIED: Final = ("4.0.2", "4.1.2", "4.2.1", "4.3.1", "4.4.0")
FORMATS_FOR_ITSELF: Final = Release(4, 4)
"""First release whose formatted volumes no older one is known to read."""
_RELEASE: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class Defect:
    """A defect for which a release is refused."""

    release: str
    ticket: str
    defect: str
    instead: str


DEFECTS: Final = (
    Defect(
        release="4.2.0",
        ticket="KAFKA-20322",
        defect="clients with transactions get UnsupportedVersionException while brokers are brought to it one by one",
        instead="4.2.1",
    ),
)
"""Releases that the operator refuses, each with its ticket at https://issues.apache.org/jira."""


def why_refused(version: str) -> str:
    """Return why the operator does not bring a cluster to a version of Kafka, ``""`` if it does.

    Parameters
    ----------
    version
        As Kafka tells it itself (``AppInfoParser.getVersion``): ``4.1.2``.
    """
    match = _RELEASE.match(version)
    if match is None:
        return f"{version or 'an unknown version'} is no release of Kafka"
    release = Release(int(match[1]), int(match[2]))
    if not OLDEST <= release <= NEWEST:
        return f"Kafka {version} was not tried: {OLDEST} to {NEWEST} were"
    for each in DEFECTS:
        if match[0] == each.release:
            return f"Kafka {each.release} has a known defect ({each.ticket}): {each.defect}. Take {each.instead}"
    return ""
