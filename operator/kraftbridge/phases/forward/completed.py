"""Completed: releases the StatefulSets, then follows ``spec.metadataVersion``. Pure."""

from __future__ import annotations

from kraftbridge.models.decision import PublishFinalManifest, ReleaseStatefulSet
from kraftbridge.models.observation import Unobserved
from kraftbridge.models.phase import BrokerMode
from kraftbridge.models.status import UID_LENGTH
from kraftbridge.phases import broker_restarts, hand_over, metadata_version
from kraftbridge.phases.draft import SLOW, Draft, Outcome, Wait, reached


def run_completed_phase(draft: Draft) -> Outcome:
    """Give the StatefulSets back; ZooKeeper is the user's to stop. Then metadata.version, if one is asked for."""
    sets = draft.stateful_sets()
    if isinstance(sets, Unobserved):
        return Wait(str(sets), requeue_after=SLOW)
    draft.update(final_manifest=f"{draft.identity.name}-final-manifest-{draft.identity.uid[:UID_LENGTH]}")
    held = [s for s in sets if s.lock == draft.identity.lock]
    if len(held) == len(sets) and (waiting := broker_restarts.roll_brokers(draft, BrokerMode.KRAFT)) is not None:
        return waiting  # somebody took our fields back before the last of them were given back
    if (waiting := hand_over.begin_guard(draft, sets)) is not None:
        return waiting
    if held:
        # Both are repeated until the lock is seen gone, so neither is lost with an operator that dies here.
        draft.act(PublishFinalManifest())
        draft.act(ReleaseStatefulSet(held[0].name))
        return Wait(f"StatefulSet {held[0].name} is being given back")
    draft.update(given_back_at=draft.status.given_back_at or draft.now)
    if (waiting := hand_over.follow_guard(draft, sets)) is not None:
        return waiting
    if (waiting := metadata_version.ensure_version(draft)) is not None:
        return waiting
    done = "Migration complete: ZooKeeper is not used any more and can be stopped"
    return reached(". ".join(filter(None, (done, hand_over.summary(draft)))))
