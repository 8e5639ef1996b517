"""One harmless metadata change of ours, seen in both stores: the proof that dual-write works now. Pure."""

from __future__ import annotations

from datetime import timedelta

from kraftbridge.models.decision import RemoveCanary, WriteCanary
from kraftbridge.models.observation import ZooKeeperState
from kraftbridge.models.status import CanaryStatus
from kraftbridge.phases import gates
from kraftbridge.phases.draft import Draft, StepContext, Wait

CANARY_RETRY = timedelta(seconds=10)
CANARY_GONE_AFTER = timedelta(seconds=10)


def prove_in_both_stores(draft: Draft) -> Wait | None:
    """Write one harmless change and see it in both stores; None once it is there."""
    canary, zookeeper = draft.status.canary, draft.observation.zookeeper
    if canary is not None and canary.mirrored_at is not None:
        return None
    if canary is None or (canary.committed_at is None and draft.now - canary.written_at > CANARY_RETRY):
        value = int(draft.now.timestamp())
        draft.update(canary=CanaryStatus(value=value, written_at=draft.now))
        draft.act(WriteCanary(value))
        return Wait("a canary change is being written")
    if canary.committed_at is None:
        if draft.observation.canary_committed != canary.value:
            return Wait(
                f"the canary change has not been acknowledged by the active controller{': ' + draft.failure() if draft.failure() else ''}"
            )
        canary = canary.model_copy(update={"committed_at": draft.now})
        draft.update(canary=canary)
    if not isinstance(zookeeper, ZooKeeperState) or zookeeper.canary is None or int(zookeeper.canary) != canary.value:
        return Wait("the canary change is in the metadata log and has not arrived in ZooKeeper yet")
    draft.update(canary=canary.model_copy(update={"mirrored_at": draft.now}))
    return None


def is_removed(step: StepContext) -> bool:
    """Return whether no canary is left in either store."""
    canary, zookeeper = step.status.canary, step.observation.zookeeper
    if canary is None or canary.removed_at is not None:
        return True
    if not isinstance(zookeeper, ZooKeeperState) or zookeeper.canary is not None:
        return False
    if canary.mirrored_at is not None:
        return True
    # It was never seen in ZooKeeper, and what ZooKeeper mirrors by now includes its removal.
    since = canary.removing_at
    return since is not None and step.now - since > CANARY_GONE_AFTER and gates.mirrors(step)


def remove(draft: Draft) -> Wait | None:
    """Remove the canary, and repeat that until ZooKeeper no longer has it; None once it is gone."""
    canary = draft.status.canary
    if canary is None or canary.removed_at is not None:
        return None
    if is_removed(draft):
        draft.update(canary=canary.model_copy(update={"removed_at": draft.now}))
        return None
    if not isinstance(draft.observation.zookeeper, ZooKeeperState):
        return Wait(f"the canary change cannot be removed: {draft.observation.zookeeper}")
    if canary.removing_at is None:
        draft.update(canary=canary.model_copy(update={"removing_at": draft.now}))
    draft.act(RemoveCanary())
    return Wait("the canary change is being removed")
