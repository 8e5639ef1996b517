"""The plan of the rolling restarts: which are ahead, in how many steps, for how many minutes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.support.observations import BROKER_IDS, NOW, open_gate, zookeeper

from kraftbridge.models.phase import BrokerMode, Phase, Target
from kraftbridge.models.status import (
    AddressCachesStatus,
    BrokerUpgradeStatus,
    ImpactStatus,
    RestartRecord,
    RollPlanStatus,
)
from kraftbridge.phases.draft import StepContext
from kraftbridge.phases.roll_plan import plan_of


def plan_for(target: Target) -> RollPlanStatus:
    plan = open_gate(Phase.PREFLIGHT, target).decide().status.roll_plan
    assert plan is not None
    return plan


@pytest.mark.parametrize(
    ("target", "modes"),
    [
        (Target.QUORUM_READY, []),
        (Target.DUAL_WRITE, [BrokerMode.MIGRATION]),
        (Target.KRAFT_BROKERS, [BrokerMode.MIGRATION, BrokerMode.KRAFT]),
        (Target.KRAFT, [BrokerMode.MIGRATION, BrokerMode.KRAFT]),
    ],
)
def test_preflight_plans_the_rolling_restarts_on_the_way_to_the_target(target: Target, modes: list[BrokerMode]) -> None:
    plan = plan_for(target)
    assert [roll.mode for roll in plan.rolls] == modes
    for roll in plan.rolls:
        assert roll.restarts == roll.steps == len(BROKER_IDS)
        assert roll.largest == 1


def test_an_upgrade_is_a_roll_of_its_own() -> None:
    fine = open_gate(Phase.PREFLIGHT, Target.KRAFT)
    status = fine.status.model_copy(update={"broker_upgrade": BrokerUpgradeStatus(needed=True, protocol="3.0-IV1")})
    step = StepContext(fine.identity, fine.spec, fine.observation, fine.now, status)
    modes = [roll.mode for roll in plan_of(step, {f"kafka-{i}": i for i in BROKER_IDS}).rolls]
    assert modes == [BrokerMode.UPGRADED, BrokerMode.MIGRATION, BrokerMode.KRAFT]


def test_minutes_have_the_pause_after_each_restart_and_what_was_measured_before() -> None:
    assumed = plan_for(Target.KRAFT)
    assert not assumed.measured
    # 60 s assumed, and 35 s of pause after each of three restarts.
    assert [(roll.minutes, roll.pause_seconds) for roll in assumed.rolls] == [(5, 35), (5, 35)]
    restart = RestartRecord(
        node_id=BROKER_IDS[0],
        phase=Phase.TAKING_OVER,
        attempt=1,
        began_at=NOW - timedelta(seconds=320),
        finished_at=NOW - timedelta(seconds=200),
    )
    of_controller = restart.model_copy(update={"node_id": 3000, "began_at": NOW - timedelta(hours=1)})
    ids = {f"kafka-{i}": i for i in BROKER_IDS}
    again = open_gate(Phase.PREFLIGHT, Target.KRAFT).with_status(
        impact=ImpactStatus(restarts=(restart, of_controller)), broker_ids=ids
    )
    plan = again.decide().status.roll_plan
    assert plan is not None
    assert (plan.measured, plan.seconds_per_restart) == (True, 120)
    assert [roll.minutes for roll in plan.rolls] == [8, 8]


def test_the_pauses_of_a_plan_are_those_of_the_slowest_cache() -> None:
    own = AddressCachesStatus(template_seconds=120, operator_seconds=1)
    case = open_gate(Phase.PREFLIGHT, Target.KRAFT).pacing(address_cache_seconds=3)
    step = StepContext(case.identity, case.spec, case.observation, case.now, case.status)
    step = replace(step, status=case.status.model_copy(update={"address_caches": own}))
    plan = plan_of(step, {f"kafka-{i}": i for i in BROKER_IDS})
    # 60 s assumed for each of three restarts; after the last one of the first roll no JVM caches for long.
    assert [(roll.minutes, roll.pause_seconds) for roll in plan.rolls] == [(8, 122), (4, 3)]


def test_a_plan_stays_while_the_brokers_are_not_known() -> None:
    planned = RollPlanStatus(seconds_per_restart=77)
    fine = open_gate(Phase.PREFLIGHT, Target.KRAFT).with_status(roll_plan=planned)
    unseen = fine.observing(zookeeper=zookeeper(taken_over=False, brokers=()))
    assert unseen.decide().status.roll_plan == planned


def test_the_plan_is_told_in_sentences() -> None:
    lines = plan_for(Target.KRAFT).lines
    assert (
        lines[0]
        == "Rolling restart to mode Migration: 3 restarts, one broker at a time, about 5 min with pauses of 35 s"
    )
    assert "All: 6 restarts in 6 steps, about 10 min, with 60 s for a restart (an assumption" in lines[-1]
    assert plan_for(Target.QUORUM_READY).lines == ("No broker restarts on the way to spec.target",)
