"""TakingOver is left only when a change made after the takeover is in both stores and served by every broker itself."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.support.observations import BROKER_IDS, NOW, Situation, open_gate

from kraftbridge.models.decision import RemoveCanary, WriteCanary
from kraftbridge.models.observation import Unobserved, ZooKeeperState
from kraftbridge.models.phase import Phase
from kraftbridge.models.status import CanaryStatus

VALUE = 42
SILENT = Unobserved("broker 2 at kafka-2:9092", "connection refused")


def mirrored(served: object, **changes: object) -> Situation:
    """Return TakingOver with the change in both stores, served by these brokers."""
    fine = open_gate(Phase.TAKING_OVER)
    zookeeper = fine.observation.zookeeper
    assert isinstance(zookeeper, ZooKeeperState)
    canary = CanaryStatus(value=VALUE, written_at=NOW, committed_at=NOW).model_copy(update=changes)
    return fine.with_status(canary=canary).observing(
        zookeeper=replace(zookeeper, canary=float(VALUE)), canary_by_broker=served
    )


def test_every_broker_serves_it_and_the_phase_is_left() -> None:
    decision = mirrored(dict.fromkeys(BROKER_IDS, True)).decide()
    assert decision.status.phase is Phase.DUAL_WRITE
    assert decision.status.canary is not None
    assert decision.status.canary.served_at == NOW


@pytest.mark.parametrize(
    ("served", "words"),
    [
        ({0: True, 1: False, 2: True}, "broker 1 does not serve topic kraftbridge-canary-42"),
        ({0: True, 1: True}, "broker 2 could not be observed: it was not asked"),
        ({0: True, 1: True, 2: SILENT}, "connection refused"),
        (SILENT, "connection refused"),
    ],
)
def test_one_broker_that_was_not_told_keeps_the_phase(served: object, words: str) -> None:
    decision = mirrored(served).decide()
    assert decision.status.phase is Phase.TAKING_OVER
    assert words in decision.status.message


def test_the_topic_is_made_again_when_nobody_serves_it() -> None:
    """An operator of an earlier version wrote the quota alone."""
    decision = mirrored(dict.fromkeys(BROKER_IDS, False), written_at=NOW - timedelta(minutes=1)).decide()
    assert WriteCanary(VALUE, 3) in decision.actions


@pytest.mark.parametrize(
    ("served", "since", "gone"),
    [
        (dict.fromkeys(BROKER_IDS, False), 1, True),
        ({0: False, 1: True, 2: False}, 1, False),
        (SILENT, 1, False),
        (dict.fromkeys(BROKER_IDS, True), 120, True),  # delete.topic.enable is false
    ],
)
def test_dual_write_waits_until_no_broker_serves_the_topic(served: object, since: int, *, gone: bool) -> None:
    fine = open_gate(Phase.DUAL_WRITE)
    canary = CanaryStatus(value=VALUE, written_at=NOW, committed_at=NOW, mirrored_at=NOW, served_at=NOW).model_copy(
        update={"removing_at": NOW - timedelta(seconds=since)}
    )
    decision = fine.with_status(canary=canary).observing(canary_by_broker=served).decide()
    assert (RemoveCanary(VALUE) not in decision.actions) == gone
    assert (decision.status.phase is Phase.ROLLING_BROKERS) == gone
