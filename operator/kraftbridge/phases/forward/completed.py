"""Completed: releases the StatefulSets, then follows ``spec.metadataVersion``. Pure."""

from __future__ import annotations

from kraftbridge.models.decision import PublishFinalManifest, ReleaseStatefulSet
from kraftbridge.models.observation import Unobserved
from kraftbridge.models.phase import BrokerMode
from kraftbridge.models.status import UID_LENGTH
from kraftbridge.phases import broker_restarts, hand_over, metadata_version
from kraftbridge.phases.draft import SLOW, Draft, Outcome, Wait, reached


def run_completed_phase(draft: Draft) -> Outcome:
    """Release the StatefulSets, then bring metadata.version to ``spec.metadataVersion``. The user stops ZooKeeper."""
    sets = draft.stateful_sets()
    if isinstance(sets, Unobserved):
        return Wait(str(sets), requeue_after=SLOW)
    draft.update(final_manifest=f"{draft.identity.name}-final-manifest-{draft.identity.uid[:UID_LENGTH]}")
    held = [s for s in sets if s.lock == draft.identity.lock]
    if len(held) == len(sets) and (waiting := broker_restarts.roll_brokers(draft, BrokerMode.KRAFT)) is not None:
        return waiting  # another writer changed the operator's fields before the first release
    if (waiting := hand_over.begin_guard(draft, sets)) is not None:
        return waiting
    if held:
        # Both actions repeat until the lock is observed to be gone, so an operator that stops here loses neither.
        draft.act(PublishFinalManifest())
        draft.act(ReleaseStatefulSet(held[0].name))
        return Wait(f"StatefulSet {held[0].name} is being released")
    draft.update(given_back_at=draft.status.given_back_at or draft.now)
    if (waiting := hand_over.follow_guard(draft, sets)) is not None:
        return waiting
    if (waiting := metadata_version.ensure_version(draft)) is not None:
        return waiting
    done = "Migration complete: no broker uses ZooKeeper any more, and you can stop it"
    return reached(". ".join(filter(None, (done, hand_over.summary(draft)))))
