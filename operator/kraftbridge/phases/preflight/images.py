"""Findings about which Kafka is started, by the names of its images, and which metadata.version it will take. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from kraftbridge.models.metadata_version import Release, levels_of, lowest_without_loss, text_of
from kraftbridge.models.observation import Unobserved
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.models.status import FindingStatus, Severity
from kraftbridge.phases.draft import Draft
from kraftbridge.phases.preflight.finding import finding
from kraftbridge.phases.software import release_of

BRIDGE = Release(3, 9)
"""The release whose brokers and controllers a migration runs with."""


def findings(draft: Draft) -> Iterator[FindingStatus]:
    """Return what names of images tell early; what they don't tell is no finding, since running nodes say it themselves."""
    yield from _metadata_version(draft.spec)
    sets = draft.stateful_sets()
    for item in () if isinstance(sets, Unobserved) else sets:
        release = release_of(item.image)
        if release is not None and release < BRIDGE:
            yield finding(
                Severity.WARNING,
                "ImageTooOld",
                f"StatefulSet/{item.name}",
                f"Its image {item.image} starts Kafka {release} by its name: such a broker cannot register with the quorum's metadata.version",
                "Roll the brokers to a Kafka 3.9 image first; pass this over if the image has 3.9 under another name",
            )


def _metadata_version(spec: MigrationSpec) -> Iterator[FindingStatus]:
    """Say early what Kafka will refuse later: the quorum begins at its release's last level, and lossy ways down don't exist."""
    release = release_of(spec.controllers.image)
    levels = None if release is None else levels_of(release)
    if spec.metadata_level is None or levels is None:
        return
    lowest, highest = lowest_without_loss(levels[1]), levels[1]
    if not lowest <= spec.metadata_level <= highest:
        yield finding(
            Severity.WARNING,
            "MetadataVersionOutOfReach",
            "spec.metadataVersion",
            f"Kafka {release} will refuse {text_of(spec.metadata_level)} after the migration: it begins at {text_of(highest)} and goes back without loss to {text_of(lowest)} only",
            "Choose a level in between, or leave spec.metadataVersion out",
        )
