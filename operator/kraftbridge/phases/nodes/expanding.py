"""Partitions whose leader waits for ever to enlarge the ISR, while brokers run an older release than Kafka 3.9. Pure.

A broker that stops may fetch once more after the controller took it out of an ISR. The leader then asks for it back,
and a controller of 3.9 refuses. A leader of 2.7 to 3.0 never asks again (`BrokerClient.renew_leaders`). The partition
then lacks the broker after its restart, too, and no other broker may be restarted.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from kraftbridge.models.decision import EventReason, RenewLeaders
from kraftbridge.models.observation import PodState
from kraftbridge.models.status import some
from kraftbridge.phases import gates, observed
from kraftbridge.phases.draft import Draft, StepContext
from kraftbridge.phases.nodes import batching, sights

RENEWED_AFTER: Final = timedelta(seconds=60)
"""How long every broker must have served: one that is behind catches up meanwhile, where it can."""
RENEWED_EVERY: Final = timedelta(seconds=120)
"""Time between two attempts. A follower that is far behind begins its fetch anew, and nothing else happens to it."""
MOST_PARTITIONS: Final = 500
"""Of one attempt: more are rather behind than stuck."""


def renew_stuck_leaders(draft: Draft) -> None:
    """Give the leaders of partitions that do not get their full ISR back a new epoch, where they are and no other."""
    partitions = stuck_partitions(draft)
    if not partitions:
        return
    draft.update(leaders_renewed_at=draft.now)
    draft.act(RenewLeaders(MOST_PARTITIONS))
    draft.tell(
        EventReason.LEADERS_RENEWED,
        f"Every broker serves, and these partitions do not get their full ISR back: {some(partitions)}. "
        "Their leaders get a new epoch; no leader and no replica moves",
    )


def stuck_partitions(step: StepContext) -> tuple[str, ...]:
    """Return partitions that lack a replica although every broker has served for long; the first, if they are many."""
    upgrade = step.status.broker_upgrade
    renewed_at = step.status.leaders_renewed_at
    if upgrade is None or not upgrade.needed or batching.controller_of(step) is None:
        return ()
    if renewed_at is not None and observed.age(step, renewed_at) < RENEWED_EVERY:
        return ()
    pods = [pod for _, pod in observed.brokers_of(step)]
    if not pods or not all(_has_served(step, pod) for pod in pods):
        return ()
    views = gates.views_of_cluster(step)
    expected = frozenset(step.status.broker_ids.values())
    if not views or any(not expected <= view.brokers or view.offline_count for view in views):
        return ()
    lacking = set.intersection(*(set(view.under_replicated) for view in views))
    return tuple(sorted(lacking))


def _has_served(step: StepContext, pod: PodState) -> bool:
    since = pod.ready_since
    if pod.down or since is None or sights.recovering(step, pod) is not None:
        return False
    return observed.age(step, since) >= RENEWED_AFTER
