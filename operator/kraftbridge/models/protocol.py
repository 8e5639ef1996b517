"""Versions of the protocol between brokers (``inter.broker.protocol.version``), as Kafka names and orders them.

Source: ``org.apache.kafka.server.common.MetadataVersion.fromVersionString`` of 3.9; earlier ``kafka.api.ApiVersion``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kraftbridge.models.metadata_version import Release

SETTING: Final = "inter.broker.protocol.version"
BRIDGE: Final = Release(3, 9)
"""The last release with ZooKeeper: the migration starts from it."""
OLDEST: Final = Release(2, 4)
"""Oldest release for which the way to 3.9 is known."""


@dataclass(frozen=True, slots=True, order=True)
class Protocol:
    """One version of the protocol."""

    release: Release
    patch: int
    """Third number of a version before 1.0; 0 of later ones."""
    internal: int
    """Number after ``-IV``. A version without it stands for the last one of its release."""

    @classmethod
    def of(cls, text: str) -> Protocol | None:
        """Return the version that a setting names, None if Kafka knows no version of this form."""
        match = re.fullmatch(r"(\d+)\.(\d+)(?:\.(\d+))?(?:\.\d+)*(?:-IV(\d+))?", text.strip())
        if match is None:
            return None
        release = Release(int(match[1]), int(match[2]))
        patch = int(match[3] or 0) if release.major == 0 else 0
        return cls(release, patch, sys.maxsize if match[4] is None else int(match[4]))


WITH_TOPIC_IDS: Final = Protocol(Release(2, 8), 0, 1)
"""First protocol with which ZooKeeper's controller gives topics their ids and tells them to the brokers (KIP-516).

With 2.8-IV0 it gives them, and sends LeaderAndIsr without them (``MetadataVersion``, ``ControllerChannelManager``).
"""
FIRST_OF_KRAFT: Final = Protocol(Release(3, 0), 0, 1)
"""First protocol with which a KRaft broker starts (``MetadataVersion.isKRaftSupported``, ``KafkaConfig``)."""


def lowest(texts: Iterable[str]) -> str:
    """Return the lowest of some versions as it is written, ``""`` if there is none or one is not known."""
    versions = {text.strip(): Protocol.of(text) for text in texts}
    known = {text: version for text, version in versions.items() if version is not None}
    if not known or len(known) != len(versions):
        return ""
    return min(known, key=lambda text: known[text])


def is_bridge(text: str) -> bool:
    """Return whether a version is 3.9 or later."""
    version = Protocol.of(text)
    return version is not None and version.release >= BRIDGE


def has_topic_ids(text: str) -> bool:
    """Return whether topics have ids with this version, and brokers keep them beside their logs."""
    version = Protocol.of(text)
    return version is not None and version >= WITH_TOPIC_IDS


def lacks_topic_ids(text: str) -> bool:
    """Return whether this is known to be a version with which topics have no ids."""
    version = Protocol.of(text)
    return version is not None and version < WITH_TOPIC_IDS


def refused_by_kraft(text: str) -> bool:
    """Return whether this is known to be a version with which no KRaft broker starts."""
    version = Protocol.of(text)
    return version is not None and version < FIRST_OF_KRAFT


def is_known(text: str) -> bool:
    """Return whether the way from this version to 3.9 is known."""
    version = Protocol.of(text)
    return version is not None and version.release >= OLDEST
