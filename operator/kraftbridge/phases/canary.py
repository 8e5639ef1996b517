"""The canary: a harmless metadata change after the takeover, which must reach both stores and every broker. Pure.

The change is a client quota and a topic. The quota shows that the KRaft controller writes ZooKeeper; ZooKeeper's
notifications bring it to the brokers. The topic reaches a ZooKeeper-mode broker only by UpdateMetadata and
LeaderAndIsr, which the active KRaft controller sends to the broker's inter-broker listener (KIP-866, "Controller
RPCs"). A controller that cannot log in there updates no broker, although both stores are equal.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from kraftbridge.constants import canary_topic
from kraftbridge.models.decision import RemoveCanary, WriteCanary
from kraftbridge.models.observation import Unobserved
from kraftbridge.models.status import CanaryStatus
from kraftbridge.phases import gates
from kraftbridge.phases.draft import Draft, StepContext, Wait
from kraftbridge.phases.observed import because

CANARY_RETRY = timedelta(seconds=10)
TOPIC_WRITTEN_AGAIN_AFTER = timedelta(seconds=30)
CANARY_GONE_AFTER = timedelta(seconds=10)
TOPIC_GIVEN_UP_AFTER = timedelta(seconds=60)
"""The cluster may forbid the deletion of topics (``delete.topic.enable``); the empty topic then stays."""
MOST_REPLICAS = 3


def prove_change_arrives(draft: Draft) -> Wait | None:
    """Write the canary, then wait until ZooKeeper holds it and every broker serves it; return None once they do."""
    canary = draft.status.canary
    if canary is None:
        return _send(draft, int(draft.now.timestamp()))
    if canary.served_at is not None:
        return None
    if canary.committed_at is None:
        if draft.now - canary.written_at > CANARY_RETRY:
            # A repeated write keeps the value, so it is the same change.
            return _send(draft, canary.value)
        if draft.observation.canary_committed != canary.value:
            failure = because(draft.failure())
            return Wait(f"the canary change has not been acknowledged by the active controller{failure}")
        canary = _record(draft, canary, committed_at=draft.now)
    if canary.mirrored_at is None:
        zookeeper = draft.observation.zookeeper
        mirrored = None if isinstance(zookeeper, Unobserved) else zookeeper.canary
        if mirrored is None or int(mirrored) != canary.value:
            return Wait("the canary change is in the metadata log and has not arrived in ZooKeeper yet")
        canary = _record(draft, canary, mirrored_at=draft.now)
    if silent := _not_served_by(draft):
        if draft.now - canary.written_at > TOPIC_WRITTEN_AGAIN_AFTER:
            _record(draft, canary, written_at=draft.now)
            draft.act(_writing(draft, canary.value))
        return Wait(
            f"{silent[0]} does not serve topic {canary_topic(canary.value)}, which was created after the takeover: "
            "the active controller must reach the inter-broker listener of every broker; "
            "check its address, security protocol and credentials in spec.controllers"
        )
    _record(draft, canary, served_at=draft.now)
    return None


def _send(draft: Draft, value: int) -> Wait:
    """Write the canary, or repeat that."""
    draft.update(canary=CanaryStatus(value=value, written_at=draft.now))
    draft.act(_writing(draft, value))
    return Wait("a canary change is being written")


def _writing(step: StepContext, value: int) -> WriteCanary:
    return WriteCanary(value, min(MOST_REPLICAS, len(step.status.broker_ids)))


def _record(draft: Draft, canary: CanaryStatus, **times: datetime) -> CanaryStatus:
    recorded = canary.model_copy(update=times)
    draft.update(canary=recorded)
    return recorded


def is_removed(step: StepContext) -> bool:
    """Return whether the quota is gone from ZooKeeper and the topic from every broker."""
    canary = step.status.canary
    zookeeper = step.observation.zookeeper
    if canary is None or canary.removed_at is not None:
        return True
    if isinstance(zookeeper, Unobserved) or zookeeper.canary is not None or _topic_is_left(step, canary):
        return False
    if canary.mirrored_at is not None:
        return True
    # ZooKeeper never showed the change, and its mirror has passed the removal by now.
    return _is_removing_for(step, canary, CANARY_GONE_AFTER) and gates.mirrors(step)


def remove(draft: Draft) -> Wait | None:
    """Remove the canary, and repeat that until it is gone; return None once it is."""
    canary = draft.status.canary
    if canary is None or canary.removed_at is not None:
        return None
    if is_removed(draft):
        _record(draft, canary, removed_at=draft.now)
        return None
    if isinstance(draft.observation.zookeeper, Unobserved):
        return Wait(f"the canary change cannot be removed: {draft.observation.zookeeper}")
    if canary.removing_at is None:
        _record(draft, canary, removing_at=draft.now)
    draft.act(RemoveCanary(canary.value))
    return Wait("the canary change is being removed")


def _not_served_by(step: StepContext) -> list[str]:
    """Return the brokers that do not serve the topic, or did not answer."""
    served = step.observation.canary_by_broker
    if isinstance(served, Unobserved):
        return [str(served)]
    silent = []
    for broker in sorted(step.status.broker_ids.values()):
        answer = served.get(broker, Unobserved(f"broker {broker}", "it was not asked"))
        if isinstance(answer, Unobserved):
            silent.append(str(answer))
        elif not answer:
            silent.append(f"broker {broker}")
    return silent


def _topic_is_left(step: StepContext, canary: CanaryStatus) -> bool:
    served = step.observation.canary_by_broker
    if _is_removing_for(step, canary, TOPIC_GIVEN_UP_AFTER):
        return False
    return isinstance(served, Unobserved) or any(answer is not False for answer in served.values())


def _is_removing_for(step: StepContext, canary: CanaryStatus, time: timedelta) -> bool:
    return canary.removing_at is not None and step.now - canary.removing_at > time
