"""Which Kafka a pod template starts, as far as its image tells, and at which metadata.version that Kafka runs. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from kraftbridge.models.metadata_version import Release, levels_of
from kraftbridge.models.observation import StatefulSetState

FLAG_SINCE = Release(3, 3)
"""First release with a finalized metadata.version (KIP-778; ``FeatureLevelRecord`` came with 3.3-IV0). The KIP's discussion took it for 3.2."""

_CONFLUENT = re.compile(r"(?:^|/)cp-(?:enterprise-)?(?:kafka|server)$")
_CONFLUENT_MAJOR = {7: 3, 8: 4}
"""Confluent Platform 7.x has Apache Kafka 3.x, 8.x has 4.x ("Supported Versions and Interoperability")."""
_PLAUSIBLE = range(2, 5)
"""Majors that are taken for Kafka's own: a tag such as 17.2 of somebody's own image counts something else."""


class Cause(StrEnum):
    """Why a node runs at the level that it does."""

    FINALIZED = "finalized"
    SOFTWARE_TOO_OLD = "the software is too old for a finalized metadata.version"
    PROTOCOL_TOO_OLD = "inter.broker.protocol.version is too old for metadata.version"
    NOT_INITIALIZED = "metadata.version is supported and not initialized"
    OUT_OF_RANGE = "the software does not support the finalized metadata.version and shuts down"
    UNKNOWN = "which levels the software supports is not known"


@dataclass(frozen=True, slots=True)
class Effective:
    """What a node runs at: 0 is "no metadata.version", None is unknown."""

    level: int | None
    cause: Cause


def effective(
    software: Release, protocol: Release | None, finalized: int | None, since: Release = FLAG_SINCE
) -> Effective:
    """Return at which level a node would run (the table of cases in KIP-778's discussion).

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
        return Effective(0, Cause.SOFTWARE_TOO_OLD)
    if finalized is not None:
        levels = levels_of(software)
        if levels is None:
            return Effective(None, Cause.UNKNOWN)
        lowest, highest = levels
        # KIP-584: a broker with a lower range than what is finalized logs an error and shuts down.
        inside = lowest <= finalized <= highest
        return Effective(finalized, Cause.FINALIZED) if inside else Effective(0, Cause.OUT_OF_RANGE)
    if protocol is not None and protocol < since:
        return Effective(0, Cause.PROTOCOL_TOO_OLD)
    return Effective(0, Cause.NOT_INITIALIZED)


def release_of(image: str) -> Release | None:
    """Return which Kafka an image has by the conventions of its publisher; None where its name does not tell.

    Known: apache/kafka, bitnami/kafka and others whose last name has "kafka" in it and whose tag begins with Kafka's version; Confluent's
    by the platform's version; Strimzi's ``0.45.0-kafka-3.9.0``. A digest alone or a tag such as ``latest`` tells nothing.
    """
    repository, _, tag = image.partition("@")[0].rpartition(":")
    if not repository or "/" in tag:
        return None
    found = re.search(r"kafka-(\d+)\.(\d+)", tag) or re.match(r"v?(\d+)\.(\d+)(?:[.-]|$)", tag)
    if found is None or ("kafka" not in repository.rpartition("/")[2] and not _CONFLUENT.search(repository)):
        return None
    major, minor = int(found[1]), int(found[2])
    if _CONFLUENT.search(repository):
        return Release(_CONFLUENT_MAJOR[major], minor) if major in _CONFLUENT_MAJOR else None
    return Release(major, minor) if major in _PLAUSIBLE else None


def unable_template(item: StatefulSetState, finalized: int) -> str:
    """Return what a StatefulSet's next pods cannot do, ``""`` when they can, when nothing tells, or when its pods have shown that they can.

    Pods that run the template's revision and are Ready have registered with the quorum: what they said themselves counts, not a tag.
    """
    settled = [p for p in item.pods if p.ready and not p.deleting and p.revision == item.update_revision]
    software = release_of(item.image)
    if software is None or (item.observed and len(settled) == item.replicas):
        return ""
    protocol = item.settings.get("inter.broker.protocol.version", "")
    found = effective(software, Release.of(protocol) if re.match(r"\d+\.\d+", protocol) else None, finalized)
    if found.cause not in (Cause.SOFTWARE_TOO_OLD, Cause.OUT_OF_RANGE):
        return ""
    return f"StatefulSet {item.name}: its template starts Kafka {software} by its image {item.image}; {found.cause}"
