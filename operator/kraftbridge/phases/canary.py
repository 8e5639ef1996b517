"""The canary: a harmless metadata change after the takeover, which must reach both stores and every broker. Pure.

The change is a client quota and a topic. The quota shows that the KRaft controller writes ZooKeeper; ZooKeeper's notifications bring it to the brokers.
The topic reaches a ZooKeeper-mode broker only by UpdateMetadata and LeaderAndIsr, which the active KRaft controller sends to the broker's inter-broker
listener (KIP-866, "Controller RPCs"). A controller that cannot log in there updates no broker, although both stores are equal.
"""

from __future__ import annotations

from datetime import timedelta

from kraftbridge.constants import canary_topic
from kraftbridge.models.decision import RemoveCanary, WriteCanary
from kraftbridge.models.observation import Unobserved, ZooKeeperState
from kraftbridge.models.status import CanaryStatus
from kraftbridge.phases import gates
from kraftbridge.phases.draft import Draft, StepContext, Wait

CANARY_RETRY = timedelta(seconds=10)
TOPIC_WRITTEN_AGAIN_AFTER = timedelta(seconds=30)
CANARY_GONE_AFTER = timedelta(seconds=10)
TOPIC_GIVEN_UP_AFTER = timedelta(seconds=60)
"""The cluster may forbid the deletion of topics (``delete.topic.enable``); the empty topic then stays."""
MOST_REPLICAS = 3


def prove_change_arrives(draft: Draft) -> Wait | None:
    """Write the canary, then wait until ZooKeeper holds it and every broker serves it; return None once they do."""
    canary, zookeeper = draft.status.canary, draft.observation.zookeeper
    if canary is not None and canary.served_at is not None:
        return None
    if canary is None or (canary.committed_at is None and draft.now - canary.written_at > CANARY_RETRY):
        # A repeated write keeps the value, so it is the same change.
        value = canary.value if canary is not None else int(draft.now.timestamp())
        draft.update(canary=CanaryStatus(value=value, written_at=draft.now))
        draft.act(WriteCanary(value, min(MOST_REPLICAS, len(draft.status.broker_ids))))
        return Wait("a canary change is being written")
    if canary.committed_at is None:
        if draft.observation.canary_committed != canary.value:
            return Wait(
                f"the canary change has not been acknowledged by the active controller{': ' + draft.failure() if draft.failure() else ''}"
            )
        canary = canary.model_copy(update={"committed_at": draft.now})
        draft.update(canary=canary)
    if canary.mirrored_at is None:
        seen = zookeeper.canary if isinstance(zookeeper, ZooKeeperState) else None
        if seen is None or int(seen) != canary.value:
            return Wait("the canary change is in the metadata log and has not arrived in ZooKeeper yet")
        canary = canary.model_copy(update={"mirrored_at": draft.now})
        draft.update(canary=canary)
    if untold := _not_served_by(draft):
        if draft.now - canary.written_at > TOPIC_WRITTEN_AGAIN_AFTER:
            draft.update(canary=canary.model_copy(update={"written_at": draft.now}))
            draft.act(WriteCanary(canary.value, min(MOST_REPLICAS, len(draft.status.broker_ids))))
        return Wait(
            f"{untold[0]} does not serve topic {canary_topic(canary.value)}, which was created after the takeover: the active controller must reach the inter-broker "
            "listener of every broker; check its address, security protocol and credentials in spec.controllers"
        )
    draft.update(canary=canary.model_copy(update={"served_at": draft.now}))
    return None


def is_removed(step: StepContext) -> bool:
    """Return whether the quota is gone from ZooKeeper and the topic from every broker."""
    canary, zookeeper = step.status.canary, step.observation.zookeeper
    if canary is None or canary.removed_at is not None:
        return True
    if not isinstance(zookeeper, ZooKeeperState) or zookeeper.canary is not None or _topic_is_left(step, canary):
        return False
    if canary.mirrored_at is not None:
        return True
    # ZooKeeper never showed the change, and its mirror has passed the removal by now.
    since = canary.removing_at
    return since is not None and step.now - since > CANARY_GONE_AFTER and gates.mirrors(step)


def remove(draft: Draft) -> Wait | None:
    """Remove the canary, and repeat that until it is gone; return None once it is."""
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
    draft.act(RemoveCanary(canary.value))
    return Wait("the canary change is being removed")


def _not_served_by(step: StepContext) -> list[str]:
    """Return the brokers that do not serve the topic, or did not answer."""
    served = step.observation.canary_by_broker
    if isinstance(served, Unobserved):
        return [str(served)]
    asked = {
        i: served.get(i, Unobserved(f"broker {i}", "it was not asked")) for i in sorted(step.status.broker_ids.values())
    }
    return [
        str(told) if isinstance(told, Unobserved) else f"broker {i}" for i, told in asked.items() if told is not True
    ]


def _topic_is_left(step: StepContext, canary: CanaryStatus) -> bool:
    served = step.observation.canary_by_broker
    if canary.removing_at is not None and step.now - canary.removing_at > TOPIC_GIVEN_UP_AFTER:
        return False
    return isinstance(served, Unobserved) or any(told is not False for told in served.values())
