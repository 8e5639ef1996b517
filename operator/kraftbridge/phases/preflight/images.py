"""Findings about which Kafka is started, by the names of its images, and which metadata.version it will take. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from kraftbridge.models.catalogue import Code
from kraftbridge.models.metadata_version import Release, levels_of, lowest_without_loss, text_of
from kraftbridge.models.observation import Unobserved
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.models.status import FindingStatus
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
            yield finding(Code.IMAGE_TOO_OLD, f"StatefulSet/{item.name}", image=item.image, release=release)


def _metadata_version(spec: MigrationSpec) -> Iterator[FindingStatus]:
    """Say early what Kafka will refuse later: the quorum begins at its release's last level, and lossy ways down don't exist."""
    release = release_of(spec.controllers.image)
    levels = None if release is None else levels_of(release)
    if spec.metadata_level is None or levels is None:
        return
    lowest, highest = lowest_without_loss(levels[1]), levels[1]
    if not lowest <= spec.metadata_level <= highest:
        yield finding(
            Code.METADATA_VERSION_OUT_OF_REACH,
            "spec.metadataVersion",
            release=release,
            asked=text_of(spec.metadata_level),
            highest=text_of(highest),
            lowest=text_of(lowest),
        )
