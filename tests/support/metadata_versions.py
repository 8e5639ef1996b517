"""Completed migrations whose user asks for a metadata.version: before the change, while it is on record, and verified after it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tests.support.observations import NOW, RUN_ID, Situation, features, open_gate, record

from kraftbridge.models.metadata_version import Upgrade, level_of
from kraftbridge.models.observation import FeatureAnswer
from kraftbridge.models.phase import Phase
from kraftbridge.models.report import Profile, Verdict
from kraftbridge.models.status import KindCounts, MetadataVersionChange, MetadataVersionState, MetadataVersionStatus

HIGH_WATERMARK = 5_999
"""Features in `observations.quorum`."""


def asking(name: str | None, **parts: Any) -> Situation:
    """Return a completed migration at 3.9-IV0 whose user asks for a metadata.version."""
    return open_gate(Phase.COMPLETED).asking(metadata_version=name).observing(**parts)


def accepted(level: int, upgrade: Upgrade = Upgrade.SAFE_DOWNGRADE) -> FeatureAnswer:
    return FeatureAnswer(level, upgrade, accepted=True)


def validating(name: str = "3.8", *, verified: bool = True, **parts: Any) -> Situation:
    """Return a step that has Kafka's yes to a downgrade, and a verification before it."""
    level = level_of(name)
    situation = asking(name, feature_answer=accepted(level), **parts).with_status(
        metadata_version=MetadataVersionStatus(
            state=MetadataVersionState.VALIDATING, target=name, target_level=level, upgrade=Upgrade.SAFE_DOWNGRADE
        )
    )
    if verified:
        situation = situation.with_status(
            verifications=(record(Profile.REPLICAS, Phase.COMPLETED, "metadata-version-1-before"),)
        )
    return situation


def changing(name: str = "3.8", level: int = 21, epoch: int = HIGH_WATERMARK - 10, **parts: Any) -> Situation:
    """Return a change that is on record, while the nodes are at ``level``."""
    change = MetadataVersionChange(
        number=1,
        from_level=21,
        to_level=level_of(name),
        upgrade=Upgrade.SAFE_DOWNGRADE,
        after_offset=str(HIGH_WATERMARK),
        started_at=NOW - timedelta(seconds=2),
    )
    known = MetadataVersionStatus(
        state=MetadataVersionState.CHANGING, target=name, target_level=level_of(name), changes=1, change=change
    )
    return asking(name, **({"features": features(level, epoch)} | parts)).with_status(
        metadata_version=known,
        verifications=(record(Profile.REPLICAS, Phase.COMPLETED, "metadata-version-1-before", counts=counted(60)),),
        verification_count=1,
    )


def counted(topics: int) -> dict[str, KindCounts]:
    return {
        "feature-level": KindCounts(compared=1),
        "topic": KindCounts(compared=topics),
    }


def verifying_after(topics: int = 60, verdict: Verdict | None = Verdict.CONSISTENT) -> Situation:
    applied = changing(level=20, epoch=HIGH_WATERMARK)
    after = record(
        Profile.REPLICAS,
        Phase.COMPLETED,
        "metadata-version-1-after",
        verdict,
        run_id=f"{RUN_ID}-b",
        counts=counted(topics),
    )
    return applied.with_status(verifications=(*applied.status.verifications, after))
