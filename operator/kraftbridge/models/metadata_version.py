"""Names and levels of metadata.version (KIP-778), as Kafka has them.

Source: ``org.apache.kafka.server.common.MetadataVersion``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from typing_extensions import override

FEATURE: Final = "metadata.version"
"""Name of the feature in ApiVersions and UpdateFeatures (KIP-584)."""


@dataclass(frozen=True, slots=True)
class MetadataVersion:
    """One feature level."""

    name: str
    level: int
    metadata_changed: bool
    """Whether its records differ from the level before: Kafka 3.9 goes no further back than to such a level
    (``MetadataVersion.checkIfMetadataChanged``), since what it added might be lost."""

    @property
    def release(self) -> Release:
        """The Kafka release that brought it."""
        return Release.of(self.name)


@dataclass(frozen=True, slots=True, order=True)
class Release:
    """A Kafka release without its patch number, such as 3.9."""

    major: int
    minor: int

    @classmethod
    def of(cls, text: str) -> Release:
        """Return the release that a version begins with: ``3.9``, ``3.9.1``, ``3.9-IV0``.

        Raises
        ------
        ValueError
            The text does not begin with two numbers.
        """
        match = re.match(r"(\d+)\.(\d+)", text)
        if match is None:
            raise ValueError(f"{text!r} is no version of Kafka")
        return cls(int(match[1]), int(match[2]))

    @override
    def __str__(self) -> str:
        """Return ``3.9``."""
        return f"{self.major}.{self.minor}"


KAFKA4: Final = 4
"""Major version of the releases without ZooKeeper."""
OLDEST_OF_KAFKA4: Final = 7
"""3.3-IV3, the lowest level with which Kafka 4 starts (KIP-896, ``MetadataVersion.MINIMUM_VERSION``)."""

VERSIONS: Final[tuple[MetadataVersion, ...]] = (
    MetadataVersion("3.0-IV1", 1, metadata_changed=True),
    MetadataVersion("3.1-IV0", 2, metadata_changed=False),
    MetadataVersion("3.2-IV0", 3, metadata_changed=True),
    MetadataVersion("3.3-IV0", 4, metadata_changed=False),
    MetadataVersion("3.3-IV1", 5, metadata_changed=True),
    MetadataVersion("3.3-IV2", 6, metadata_changed=True),
    MetadataVersion("3.3-IV3", 7, metadata_changed=True),
    MetadataVersion("3.4-IV0", 8, metadata_changed=True),
    MetadataVersion("3.5-IV0", 9, metadata_changed=False),
    MetadataVersion("3.5-IV1", 10, metadata_changed=False),
    MetadataVersion("3.5-IV2", 11, metadata_changed=True),
    MetadataVersion("3.6-IV0", 12, metadata_changed=False),
    MetadataVersion("3.6-IV1", 13, metadata_changed=True),
    MetadataVersion("3.6-IV2", 14, metadata_changed=True),
    MetadataVersion("3.7-IV0", 15, metadata_changed=True),
    MetadataVersion("3.7-IV1", 16, metadata_changed=False),
    MetadataVersion("3.7-IV2", 17, metadata_changed=True),
    MetadataVersion("3.7-IV3", 18, metadata_changed=False),
    MetadataVersion("3.7-IV4", 19, metadata_changed=False),
    MetadataVersion("3.8-IV0", 20, metadata_changed=False),
    MetadataVersion("3.9-IV0", 21, metadata_changed=False),
)
"""Every level that Kafka 3.9.1 supports, lowest first; 3.0-IV1 is the first one of KRaft.
An integration test holds it against Kafka's own."""

KAFKA4_VERSIONS: Final[tuple[MetadataVersion, ...]] = (
    MetadataVersion("4.0-IV0", 22, metadata_changed=False),
    MetadataVersion("4.0-IV1", 23, metadata_changed=True),
    MetadataVersion("4.0-IV2", 24, metadata_changed=False),
    MetadataVersion("4.0-IV3", 25, metadata_changed=False),
    MetadataVersion("4.1-IV0", 26, metadata_changed=False),
    MetadataVersion("4.1-IV1", 27, metadata_changed=False),
    MetadataVersion("4.2-IV0", 28, metadata_changed=False),
    MetadataVersion("4.2-IV1", 29, metadata_changed=False),
    MetadataVersion("4.3-IV0", 30, metadata_changed=True),
    MetadataVersion("4.4-IV0", 31, metadata_changed=False),
    MetadataVersion("4.4-IV1", 32, metadata_changed=True),
    MetadataVersion("4.4-IV2", 33, metadata_changed=True),
)
"""Every level of Kafka 4.0 to 4.4, lowest first, as 4.4.0 has them. 4.0 begins at 3.3-IV3 (KIP-896)."""

NAMES: Final[tuple[str, ...]] = (
    *(str(r) for r in sorted({v.release for v in VERSIONS})),
    *(v.name for v in VERSIONS),
)
"""What ``spec.metadataVersion`` may say: a release stands for its last level, as in
``kafka-features.sh --metadata``."""

KAFKA4_NAMES: Final[tuple[str, ...]] = (
    *(str(r) for r in sorted({v.release for v in KAFKA4_VERSIONS})),
    *(v.name for v in KAFKA4_VERSIONS),
)
"""What ``spec.kafka4.metadataVersion`` may say."""

_BY_LEVEL: Final = {v.level: v for v in (*VERSIONS, *KAFKA4_VERSIONS)}


def level_of(name: str) -> int:
    """Return the level of a name of `NAMES` (``MetadataVersion.fromVersionString``).

    Raises
    ------
    ValueError
        There is no such metadata.version, or this release of ours does not know it.
    """
    matching = [v.level for v in VERSIONS if name in (v.name, str(v.release))]
    if not matching:
        raise ValueError(
            f"metadata.version {name!r} is unknown; known are {VERSIONS[0].name} to {VERSIONS[-1].name}, "
            "a release such as 3.9 stands for its last one"
        )
    return max(matching)


def kafka4_level_of(name: str) -> int:
    """Return the level of a name of `KAFKA4_NAMES`.

    Raises
    ------
    ValueError
        There is no such metadata.version of Kafka 4, or this release of ours does not know it.
    """
    matching = [v.level for v in KAFKA4_VERSIONS if name in (v.name, str(v.release))]
    if not matching:
        known = f"{KAFKA4_VERSIONS[0].name} to {KAFKA4_VERSIONS[-1].name}"
        raise ValueError(f"metadata.version {name!r} is none of Kafka 4; known are {known}")
    return max(matching)


def text_of(level: int) -> str:
    """Return name and level as text: ``3.9-IV0 (21)``, or ``level 25`` for a level without a known name."""
    if level not in _BY_LEVEL:
        return f"level {level}"
    return f"{_BY_LEVEL[level].name} ({level})"


def name_of(level: int) -> str:
    """Return the name of a level, or ``level 25`` where we have none."""
    return _BY_LEVEL[level].name if level in _BY_LEVEL else f"level {level}"


def levels_of(release: Release) -> tuple[int, int] | None:
    """Return the lowest and highest level that a release of Kafka supports; None where we don't know.

    ``MetadataVersion.MINIMUM_KRAFT_VERSION`` and ``LATEST_PRODUCTION`` of that release;
    4.0 begins at 3.3-IV3 (KIP-896).
    """
    own = [v.level for v in (*VERSIONS, *KAFKA4_VERSIONS) if v.release == release]
    lowest = OLDEST_OF_KAFKA4 if release.major >= KAFKA4 else VERSIONS[0].level
    return (lowest, max(own)) if own else None


def lowest_without_loss(level: int) -> int:
    """Return how far Kafka 3.9 goes back from a level: down to the nearest one whose records changed."""
    while (version := _BY_LEVEL.get(level)) is not None and not version.metadata_changed:
        level -= 1
    return level


class Upgrade(StrEnum):
    """How a feature may be changed (``org.apache.kafka.clients.admin.FeatureUpdate.UpgradeType``, KIP-778)."""

    UPGRADE = "Upgrade"
    SAFE_DOWNGRADE = "SafeDowngrade"
    """Only without loss."""
    UNSAFE_DOWNGRADE = "UnsafeDowngrade"
    """With loss; Kafka 3.9 refuses every one, and the operator never asks for it."""

    @classmethod
    def between(cls, current: int, wanted: int) -> Upgrade:
        """Return what leads from one level to another without loss."""
        return cls.UPGRADE if wanted >= current else cls.SAFE_DOWNGRADE


FLAG_SINCE = Release(3, 3)
"""First release with a finalized metadata.version (KIP-778; ``FeatureLevelRecord`` came with 3.3-IV0).
The KIP's discussion took it for 3.2."""

_CONFLUENT = re.compile(r"(?:^|/)cp-(?:enterprise-)?(?:kafka|server)$")
_CONFLUENT_MAJOR = {7: 3, 8: 4}
"""Confluent Platform 7.x has Apache Kafka 3.x, 8.x has 4.x ("Supported Versions and Interoperability")."""
_PLAUSIBLE = range(2, 5)
"""Major versions that Kafka has; a tag such as 17.2 is another product's version."""


class LevelCause(StrEnum):
    """Reason why a node runs at its level."""

    FINALIZED = "finalized"
    SOFTWARE_TOO_OLD = "the software is too old for a finalized metadata.version"
    PROTOCOL_TOO_OLD = "inter.broker.protocol.version is too old for metadata.version"
    NOT_INITIALIZED = "metadata.version is supported and not initialized"
    OUT_OF_RANGE = "the software does not support the finalized metadata.version and shuts down"
    UNKNOWN = "which levels the software supports is not known"


@dataclass(frozen=True, slots=True)
class EffectiveLevel:
    """Level at which a node runs: 0 is "no metadata.version", None is unknown."""

    level: int | None
    cause: LevelCause


def effective_level(
    software: Release, protocol: Release | None, finalized: int | None, since: Release = FLAG_SINCE
) -> EffectiveLevel:
    """Return the level at which a node runs (the table of cases in KIP-778's discussion).

    Parameters
    ----------
    software
        Release of Kafka that it starts.
    protocol
        Its inter.broker.protocol.version; None: the software's own.
    finalized
        Finalized metadata.version of the cluster; None: there is none, as in ZooKeeper mode.
    since
        First release that has the feature flag.
    """
    if software < since:
        return EffectiveLevel(0, LevelCause.SOFTWARE_TOO_OLD)
    if finalized is not None:
        levels = levels_of(software)
        if levels is None:
            return EffectiveLevel(None, LevelCause.UNKNOWN)
        lowest, highest = levels
        # KIP-584: a broker with a lower range than what is finalized logs an error and shuts down.
        if not lowest <= finalized <= highest:
            return EffectiveLevel(0, LevelCause.OUT_OF_RANGE)
        return EffectiveLevel(finalized, LevelCause.FINALIZED)
    if protocol is not None and protocol < since:
        return EffectiveLevel(0, LevelCause.PROTOCOL_TOO_OLD)
    return EffectiveLevel(0, LevelCause.NOT_INITIALIZED)


def release_of(image: str) -> Release | None:
    """Return the Kafka release of an image by the conventions of its publisher; None if its name does not state it.

    Known: apache/kafka, bitnami/kafka and others whose last name has "kafka" in it and
    whose tag begins with Kafka's version; Confluent's by the platform's version; Strimzi's ``0.45.0-kafka-3.9.0``.
    A digest alone or a tag such as ``latest`` tells nothing.
    """
    repository, _, tag = image.partition("@")[0].rpartition(":")
    if not repository or "/" in tag:
        return None
    version = re.search(r"kafka-(\d+)\.(\d+)", tag) or re.match(r"v?(\d+)\.(\d+)(?:[.-]|$)", tag)
    of_confluent = _CONFLUENT.search(repository) is not None
    if version is None or (not of_confluent and "kafka" not in repository.rpartition("/")[2]):
        return None
    major: int | None = int(version[1])
    if of_confluent:
        major = _CONFLUENT_MAJOR.get(int(version[1]))
    if major is None or major not in _PLAUSIBLE:
        return None
    return Release(major, int(version[2]))
