"""Pods whose brokers advertise outside addresses only are paired by the ids that copies of the pods show."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.observations import BROKER_IDS, RUNNING, Situation, dry_start_of, open_gate, setting, survey

from kraftbridge.copies.dry_start import shown_ids
from kraftbridge.models.catalogue import Code
from kraftbridge.models.decision import LaunchRun
from kraftbridge.models.dry_start import (
    UNKNOWN_BROKER,
    CopyKey,
    CopyOutcome,
    DryStartReport,
    DryStartState,
    GivenSetting,
    KafkaStart,
)
from kraftbridge.models.observation import BrokerZnode, Unobserved, ZooKeeperState
from kraftbridge.models.phase import BrokerMode, Phase
from kraftbridge.models.status import DryStartStatus

OUTSIDE = tuple(BrokerZnode(i, ("203.0.113.7",)) for i in BROKER_IDS)
"""Brokers behind one load balancer: a host, and a port for each."""
PODS = tuple(f"kafka-{i}" for i in range(len(BROKER_IDS)))


def shown(ids: dict[int, str | None], fingerprint: str = "same", broker_id: int = UNKNOWN_BROKER) -> DryStartState:
    """Return the dry start of ids, with what the copy of each ordinal shows."""
    copies = tuple(
        CopyOutcome(
            CopyKey("kafka", ordinal, BrokerMode.ZOOKEEPER),
            broker_id,
            None if value is None else KafkaStart(valid=True, settings={"broker.id": GivenSetting(value)}),
        )
        for ordinal, value in ids.items()
    )
    return DryStartState("same", report=DryStartReport(fingerprint, copies))


REVERSED = {ordinal: str(broker) for ordinal, broker in enumerate(reversed(BROKER_IDS))}


def outside(state: DryStartState | Unobserved, brokers: tuple[BrokerZnode, ...] = OUTSIDE) -> Situation:
    case = open_gate(Phase.PREFLIGHT)
    assert isinstance(case.observation.zookeeper, ZooKeeperState)
    return case.observing(zookeeper=replace(case.observation.zookeeper, brokers=brokers), dry_start=state)


def codes(case: Situation) -> set[str]:
    return {f.code for f in case.decide().status.findings}


def test_without_hosts_that_tell_it_copies_are_made_that_show_the_ids() -> None:
    decision = outside(DryStartState("same")).decide()
    assert decision.status.dry_start is not None
    run = decision.status.dry_start.running
    assert run is not None
    assert run.broker_ids == {}
    assert [a for a in decision.actions if isinstance(a, LaunchRun)]
    assert Code.BROKER_IDENTITY_UNKNOWN not in {f.code for f in decision.status.findings}
    assert decision.status.phase is Phase.PREFLIGHT


def test_with_the_ids_that_they_show_the_dry_start_proper_runs() -> None:
    decision = outside(shown(REVERSED)).decide()
    assert decision.status.dry_start is not None
    run = decision.status.dry_start.running
    assert run is not None
    assert run.broker_ids == {name: int(REVERSED[i]) for i, name in enumerate(PODS)}
    assert Code.BROKER_IDENTITY_UNKNOWN not in {f.code for f in decision.status.findings}
    assert decision.status.phase is Phase.PREFLIGHT, "these copies had no meta.properties: they prove nothing else"


def test_the_dry_start_proper_opens_the_gate_and_the_ids_are_recorded() -> None:
    running = {i: (setting("broker.id", str(i)), *RUNNING[1:], setting("num.network.threads", "4")) for i in BROKER_IDS}
    decision = outside(dry_start_of(brokers=running)).observing(survey=survey(brokers=running)).decide()
    assert decision.status.phase is Phase.PROVISIONING_QUORUM
    assert decision.status.broker_ids == dict(zip(PODS, BROKER_IDS, strict=True))


first, second, third = BROKER_IDS


@pytest.mark.parametrize(
    "ids",
    [
        {0: str(first), 1: str(second)},
        {0: str(first), 1: str(second), 2: None},
        {0: str(first), 1: str(second), 2: str(second)},
        {0: str(first), 1: str(second), 2: "77"},
        {0: str(first), 1: str(second), 2: "-1"},
        {0: str(first), 1: str(second), 2: "x"},
    ],
    ids=["a pod less", "a copy that does not start", "an id twice", "no such broker", "generated", "no number"],
)
def test_ids_that_do_not_name_each_broker_once_pair_nothing(ids: dict[int, str | None]) -> None:
    decision = outside(shown(ids)).decide()
    assert Code.BROKER_IDENTITY_UNKNOWN in {f.code for f in decision.status.findings}
    assert not [a for a in decision.actions if isinstance(a, LaunchRun)], "the same copies would show the same"
    assert decision.status.phase is Phase.PREFLIGHT


def test_hosts_that_contradict_the_copies_pair_nothing() -> None:
    """One broker advertises its pod's name, and the copy of that pod shows another id."""
    brokers = (BrokerZnode(first, ("kafka-0.kafka",)), *OUTSIDE[1:])
    assert Code.BROKER_IDENTITY_UNKNOWN in codes(outside(shown(REVERSED), brokers))
    straight = {ordinal: str(broker) for ordinal, broker in enumerate(BROKER_IDS)}
    assert Code.BROKER_IDENTITY_UNKNOWN not in codes(outside(shown(straight), brokers))


@pytest.mark.parametrize(
    "state",
    [
        DryStartState("same", off=True),
        Unobserved("dry start", "403"),
        DryStartState("same", report=DryStartReport("same", problem="no")),
    ],
)
def test_without_copies_the_finding_stays(state: DryStartState | Unobserved) -> None:
    decision = outside(state).decide()
    assert Code.BROKER_IDENTITY_UNKNOWN in {f.code for f in decision.status.findings}
    assert decision.status.phase is Phase.PREFLIGHT


def test_no_copies_show_ids_while_a_broker_is_missing_or_down() -> None:
    fewer = outside(DryStartState("same"), OUTSIDE[:2]).decide()
    assert Code.BROKER_IDENTITY_UNKNOWN in {f.code for f in fewer.status.findings}
    assert fewer.status.dry_start in (None, DryStartStatus())


def test_ids_of_another_template_pair_nothing() -> None:
    decision = outside(shown(REVERSED, fingerprint="older")).decide()
    assert decision.status.dry_start is not None
    assert decision.status.dry_start.running is not None
    assert decision.status.dry_start.running.broker_ids == {}


def test_only_copies_in_the_present_mode_show_ids() -> None:
    copy = CopyOutcome(
        CopyKey("kafka", 0, BrokerMode.KRAFT), 1, KafkaStart(valid=True, settings={"broker.id": GivenSetting("1")})
    )
    assert shown_ids([copy]) == {}
