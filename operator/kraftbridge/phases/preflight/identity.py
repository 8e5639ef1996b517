"""Which pod is which broker. Pure."""

from __future__ import annotations

from kraftbridge.models.observation import Unobserved
from kraftbridge.phases.draft import StepContext


def broker_ids(step: StepContext) -> dict[str, int]:
    """Return the broker id of each pod, from the hosts that brokers registered in ZooKeeper (``/brokers/ids``).

    Empty unless every pod has exactly one.
    """
    sets, zookeeper = step.stateful_sets(), step.observation.zookeeper
    if isinstance(sets, Unobserved) or isinstance(zookeeper, Unobserved):
        return {}
    ids: dict[str, int] = {}
    for pod in (p for s in sets for p in s.pods):
        matching = [b.id for b in zookeeper.brokers if any(h == pod.ip or h.split(".")[0] == pod.name for h in b.hosts)]
        if len(matching) != 1:
            return {}
        ids[pod.name] = matching[0]
    return ids if len(set(ids.values())) == len(ids) else {}
