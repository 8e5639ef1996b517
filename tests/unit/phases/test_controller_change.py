"""A change of spec.controllers while voters are formatted: one at a time, the active last, never in an unsafe phase, with a way back."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.support.observations import (
    LEASE,
    NOW,
    Situation,
    controllers_workload,
    issued_listener,
    open_gate,
    rehearsed,
    rolling,
    seen_secrets,
    with_pods,
)

from kraftbridge.models.conditions import ConditionType, Reason, condition
from kraftbridge.models.decision import ApplyControllers, Decision, HoldLease, RestartPod
from kraftbridge.models.observation import ControllersWorkload, LeaseState, Unobserved
from kraftbridge.models.phase import Part, Phase
from kraftbridge.models.spec import ControllersSpec, PodSettings
from kraftbridge.models.status import (
    ControllersChange,
    HealingKind,
    HealingStatus,
    Operation,
    OperationKind,
    RenderedControllers,
    rendered_spec,
    tuned_controllers,
)
from kraftbridge.phases.needs import needs

SAFE = [
    open_gate(Phase.PROVISIONING_QUORUM),
    rolling(Phase.TAKING_OVER, 1),
    open_gate(Phase.DUAL_WRITE),
    rolling(Phase.ROLLING_BROKERS, 1),
    open_gate(Phase.AWAITING_FINALIZATION),
    open_gate(Phase.COMPLETED).with_status(given_back_at=NOW),
]
IDS = [
    "ProvisioningQuorum",
    "TakingOver before the claim",
    "DualWrite",
    "RollingBrokers",
    "AwaitingFinalization",
    "Completed",
]
ACTIVE = 3000


def before_of(situation: Situation) -> RenderedControllers:
    settings = situation.status.broker_settings
    return RenderedControllers.of(tuned_controllers(situation.spec, situation.status), broker_settings=settings)


def edited(situation: Situation, **fields: object) -> Situation:
    """Return the same with voters rendered from the old spec, and a changed one."""
    rendered = before_of(situation)
    controllers: ControllersSpec = situation.spec.controllers.model_copy(update=fields or {"heap_options": "-Xmx1g"})
    known = situation.status.controllers
    assert known is not None
    return situation.asking(controllers=controllers).with_status(
        controllers=known.model_copy(update={"rendered": rendered})
    )


def applied(situation: Situation, outdated: tuple[int, ...], **change: object) -> Situation:
    """Return the change half-way: these controllers still run the older template."""
    situation = edited(situation)
    known, to = situation.status.controllers, RenderedControllers.of(situation.spec.controllers)
    assert known is not None
    assert known.rendered is not None
    record = ControllersChange(to=to, before=known.rendered, started_at=NOW).model_copy(update=change)
    workload = controllers_workload()
    assert workload.stateful_set is not None
    pods = tuple(replace(p, revision="older") if p.ordinal in outdated else p for p in workload.stateful_set.pods)
    sets = tuple(replace(item, lease=LEASE) for item in situation.observation.stateful_sets)
    return situation.with_status(controllers=known.model_copy(update={"rendered": to, "change": record})).observing(
        controllers=replace(workload, stateful_set=replace(workload.stateful_set, pods=pods)), stateful_sets=sets
    )


def restarted(decision: Decision) -> list[int]:
    return [a.node_id for a in decision.actions if isinstance(a, RestartPod)]


def with_pod(situation: Situation, ordinal: int, **changes: object) -> Situation:
    workload = situation.observation.controllers
    assert isinstance(workload, ControllersWorkload)
    return situation.observing(controllers=with_pods(workload, ordinal, **changes))


@pytest.mark.parametrize("fine", SAFE, ids=IDS)
def test_a_change_begins_and_is_recorded_before_anything_restarts(fine: Situation) -> None:
    decision = edited(fine).decide()
    known = decision.status.controllers
    assert known is not None
    assert known.change is not None
    assert known.change.to.heap_options == "-Xmx1g"
    assert known.change.before == before_of(fine)
    assert any(isinstance(a, ApplyControllers) for a in decision.actions)
    assert restarted(decision) == []
    assert rendered_spec(fine.spec, decision.status).controllers.heap_options == "-Xmx1g"


@pytest.mark.parametrize("fine", SAFE, ids=IDS)
def test_a_change_of_the_pods_settings_is_rolled_out_like_one_of_the_controllers(fine: Situation) -> None:
    asked = PodSettings(labels={"team": "shop"})
    decision = edited(fine, heap_options=before_of(fine).heap_options).asking(pods=asked).decide()
    known = decision.status.controllers
    assert known is not None
    assert known.change is not None
    assert known.change.to.pods.labels == {"team": "shop"}
    assert known.change.before.pods.labels == {}
    assert restarted(decision) == []
    assert any("spec.pods" in event.message for event in decision.events)
    assert rendered_spec(fine.spec, decision.status).pods.labels == {"team": "shop"}


def test_a_later_rehearsal_that_calls_for_a_larger_heap_changes_the_controllers() -> None:
    fine = open_gate(Phase.PROVISIONING_QUORUM)
    known = fine.status.controllers
    assert known is not None
    rendered = known.model_copy(update={"rendered": before_of(fine)})
    grown = rehearsed(controller_heap_bytes=1 << 30)
    decision = fine.with_status(controllers=rendered, rehearsal=grown).decide()
    assert decision.status.controllers is not None
    assert decision.status.controllers.change is not None
    assert decision.status.controllers.change.to.heap_options == "-Xms1024m -Xmx1024m"
    assert any(isinstance(a, ApplyControllers) for a in decision.actions)


@pytest.mark.parametrize("fine", SAFE, ids=IDS)
def test_the_active_controller_is_last(fine: Situation) -> None:
    assert restarted(applied(fine, (3000, 3001, 3002)).decide()) == [3001]
    assert restarted(applied(fine, (3000, 3002)).decide()) == [3002]
    decision = applied(fine, (ACTIVE,)).decide()
    assert restarted(decision) == [ACTIVE]
    assert decision.status.controllers is not None
    assert decision.status.controllers.change is not None
    assert decision.status.controllers.change.active_restarted_at == NOW


@pytest.mark.parametrize("fine", SAFE, ids=IDS)
def test_no_voter_restarts_without_the_lease(fine: Situation) -> None:
    """In Completed the Leases are released; a roll-out takes them again first."""
    rolls = applied(fine, (3000, 3001, 3002))
    (item,) = rolls.observation.stateful_sets
    free = rolls.observing(stateful_sets=(replace(item, lease=LeaseState()),)).decide()
    assert restarted(free) == []
    assert HoldLease(item.name, "") in free.actions
    theirs = LeaseState(holder="another operator", age_seconds=1)
    assert restarted(rolls.observing(stateful_sets=(replace(item, lease=theirs),)).decide()) == []


@pytest.mark.parametrize("fine", SAFE, ids=IDS)
def test_no_voter_restarts_while_the_secrets_that_the_operator_issued_are_unknown(fine: Situation) -> None:
    rolls = applied(fine, (3000, 3001, 3002)).observing(issued=issued_listener())
    assert restarted(rolls.decide())
    silent = rolls.observing(issued=Unobserved("Secret of the listener", "timeout"))
    decision = silent.decide()
    assert restarted(decision) == []
    assert decision.status.message.startswith("no controller restarts: the certificates of the controllers' listener")


@pytest.mark.parametrize("fine", SAFE, ids=IDS)
def test_no_voter_restarts_while_another_is_down(fine: Situation) -> None:
    assert restarted(with_pod(applied(fine, (3000, 3001)), 3002, ready=False).decide()) == []


@pytest.mark.parametrize("fine", SAFE[2:5], ids=IDS[2:5])
def test_after_the_active_one_the_mirror_must_move(fine: Situation) -> None:
    """The offset was last seen to move before that restart: it says nothing about the controller that is active now."""
    waiting = applied(fine, (), active_restarted_at=NOW).decide()
    assert waiting.status.controllers is not None
    assert waiting.status.controllers.change is not None
    assert "/migration has not moved since the active controller restarted" in waiting.status.message
    done = applied(fine, (), active_restarted_at=NOW - timedelta(minutes=2)).decide()
    assert done.status.controllers is not None
    assert done.status.controllers.change is None


def test_nothing_begins_between_the_claim_and_dual_write() -> None:
    decision = edited(open_gate(Phase.TAKING_OVER)).decide()
    assert decision.status.controllers is not None
    assert decision.status.controllers.change is None
    assert not any(isinstance(a, ApplyControllers) for a in decision.actions)


def test_nothing_begins_while_the_migration_is_finalized() -> None:
    decision = edited(open_gate(Phase.FINALIZING)).decide()
    assert decision.status.controllers is not None
    assert decision.status.controllers.change is None
    assert restarted(decision) == []


def test_a_voter_that_does_not_come_back_stops_the_roll_and_gets_its_old_configuration() -> None:
    long_ago = NOW - timedelta(minutes=4)
    operation = Operation(
        kind=OperationKind.RESTART_CONTROLLER, node_id=3001, pod="demo-kraft-3001", pod_uid="gone", started_at=long_ago
    )
    fine = with_pod(
        applied(open_gate(Phase.DUAL_WRITE), (3000, 3002)).with_status(operation=operation),
        3001,
        ready=False,
        trouble="CrashLoopBackOff of container kafka: last exit code 1",
    )
    decision = fine.decide()
    known = decision.status.controllers
    assert known is not None
    assert known.change is not None
    assert "3001" in known.change.failed
    assert "CrashLoopBackOff" in known.change.failed
    assert known.rendered == known.change.before, "its objects are rendered from the old spec again"
    assert any(isinstance(a, ApplyControllers) for a in decision.actions)
    stalled = condition(decision.status.conditions, ConditionType.STALLED)
    assert stalled is not None
    assert (stalled.status, stalled.reason) == ("True", Reason.CONTROLLERS_CHANGE_FAILED)
    # The template is the old one again: the voter that is down on the new one is replaced, and no other.
    restored = with_pod(with_pod(fine.after(decision), 3001, revision="changed"), 3000, revision="changed")
    assert restarted(restored.decide()) == [3001]


def test_a_healing_goes_first() -> None:
    healing = HealingStatus(kind=HealingKind.STUCK_SYNC, started_at=NOW, failovers=1, failover_at=NOW)
    fine = applied(open_gate(Phase.DUAL_WRITE), (3001,))
    assert restarted(fine.decide()) == [3001]
    assert restarted(fine.with_status(healing=healing).decide()) == []


def test_an_upgraded_operator_restarts_nothing() -> None:
    """It finds voters that an older one rendered: status does not say from what, and the StatefulSet is as it was."""
    fine = open_gate(Phase.DUAL_WRITE)
    decision = fine.decide()
    assert fine.status.controllers is not None
    assert fine.status.controllers.rendered is None
    assert decision.status.controllers is not None
    assert decision.status.controllers.rendered == before_of(fine)
    assert not [a for a in decision.actions if isinstance(a, ApplyControllers | RestartPod)]


def test_before_voters_are_formatted_one_that_cannot_start_is_replaced_although_its_restart_is_followed() -> None:
    """Its template was corrected: waiting for the pod on the wrong one would never end."""
    fine = open_gate(Phase.PROVISIONING_QUORUM)
    known = fine.status.controllers
    assert known is not None
    operation = Operation(
        kind=OperationKind.RESTART_CONTROLLER, node_id=3001, pod="demo-kraft-3001", pod_uid="gone", started_at=NOW
    )
    situation = with_pod(
        fine.with_status(controllers=known.model_copy(update={"format_allowed": True}), operation=operation),
        3001,
        ready=False,
        configuration="Migration-wrong",
    )
    assert restarted(situation.decide()) == [3001]


def test_no_second_voter_gets_a_configuration_on_which_one_is_down() -> None:
    """A voter crashed during the roll-out and came back on the new template, then another crashed on the old one: a majority would be lost."""
    fine = with_pod(with_pod(applied(open_gate(Phase.DUAL_WRITE), (3001, 3002)), 3000, ready=False), 3001, ready=False)
    decision = fine.decide()
    assert restarted(decision) == []
    operation = decision.status.operation
    assert operation is not None, "the voter that is down is followed as if this roll-out had restarted it"
    assert operation.node_id == 3000
    late = fine.after(decision).with_status(
        operation=operation.model_copy(update={"started_at": NOW - timedelta(minutes=4)})
    )
    stopped = late.decide().status.controllers
    assert stopped is not None
    assert stopped.change is not None
    assert stopped.change.failed
    assert stopped.rendered == stopped.change.before


@pytest.mark.parametrize("fine", SAFE[:2], ids=IDS[:2])
def test_a_change_is_not_done_while_a_voter_is_down(fine: Situation) -> None:
    known = with_pod(applied(fine, ()), 3002, ready=False).decide().status.controllers
    assert known is not None
    assert known.change is not None


def test_a_broker_that_restarts_does_not_keep_a_quorum_without_voters_from_being_corrected() -> None:
    """The broker waits for the quorum, and the quorum for a correction of spec.controllers."""
    operation = Operation(kind=OperationKind.RESTART_BROKER, node_id=2, pod="kafka-2", pod_uid="gone", started_at=NOW)
    fine = edited(rolling(Phase.TAKING_OVER, 3)).with_status(operation=operation)
    assert fine.decide().status.controllers is not None
    assert not any(isinstance(a, ApplyControllers) for a in fine.decide().actions)
    broken = fine
    for node in (3000, 3001, 3002):
        broken = with_pod(broken, node, ready=False)
    assert any(isinstance(a, ApplyControllers) for a in broken.decide().actions)
    half_way = applied(rolling(Phase.TAKING_OVER, 3), (3000, 3001, 3002)).with_status(operation=operation)
    for node in (3000, 3001, 3002):
        half_way = with_pod(half_way, node, ready=False)
    assert restarted(half_way.decide()) == [3000, 3001, 3002]


def test_a_voter_that_crashes_again_and_again_has_failed_sooner() -> None:
    def after(seconds: int, trouble: str) -> bool:
        operation = Operation(
            kind=OperationKind.RESTART_CONTROLLER, node_id=3001, pod="demo-kraft-3001", pod_uid="gone",
            started_at=NOW - timedelta(seconds=seconds),
        )  # fmt: skip
        fine = applied(open_gate(Phase.DUAL_WRITE), (3000, 3002)).with_status(operation=operation)
        known = with_pod(fine, 3001, ready=False, trouble=trouble).decide().status.controllers
        assert known is not None
        assert known.change is not None
        return bool(known.change.failed)

    crashing = "CrashLoopBackOff of container kafka: last exit code 1"
    assert [after(59, crashing), after(61, crashing), after(61, ""), after(181, "")] == [False, True, False, True]


def test_a_roll_out_in_completed_asks_the_brokers_again() -> None:
    """Nothing restarts at rest, so the brokers' views and the topics' redundancy are observed for the roll-out only."""
    rest = open_gate(Phase.COMPLETED).with_status(given_back_at=NOW)
    gate = {Part.CLUSTER_BY_BROKER, Part.REDUNDANCY}
    assert not gate & needs(rest.status, NOW)
    changing = edited(rest).decide().status
    assert changing.controllers is not None
    assert changing.controllers.change is not None
    assert gate <= needs(changing, NOW)


# ------------------------------------------------------------------------------------------------ rotated Secrets


def rotated(situation: Situation, before: dict[str, str], seen: dict[str, str]) -> Situation:
    """Return the same with voters that started with these Secrets, and the Secrets as they are now."""
    known = situation.status.controllers
    assert known is not None
    rendered = RenderedControllers.of(tuned_controllers(situation.spec, situation.status), before)
    return situation.with_status(controllers=known.model_copy(update={"rendered": rendered})).observing(
        controllers=replace(controllers_workload(), secrets=seen_secrets(seen))
    )


@pytest.mark.parametrize("fine", SAFE, ids=IDS)
def test_a_rotated_secret_is_rolled_out_like_a_change_of_the_spec(fine: Situation) -> None:
    decision = rotated(fine, {"listener": "1", "zookeeper": "1"}, {"listener": "2", "zookeeper": "1"}).decide()
    known = decision.status.controllers
    assert known is not None
    assert known.change is not None
    assert known.change.to.credentials == {"listener": "2", "zookeeper": "1"}
    assert known.change.before.credentials == {"listener": "1", "zookeeper": "1"}
    assert any(isinstance(a, ApplyControllers) for a in decision.actions)
    assert restarted(decision) == []
    assert any("Secret listener" in event.message for event in decision.events)


@pytest.mark.parametrize("fine", SAFE, ids=IDS)
@pytest.mark.parametrize(
    ("before", "seen"),
    [
        ({"listener": "1"}, {"listener": "1"}),
        ({"listener": "1"}, {}),  # absent, as while it is replaced
        ({}, {"listener": "1"}),  # recorded by an operator that knew no fingerprints
    ],
    ids=["as it was", "absent", "not known before"],
)
def test_a_secret_that_did_not_change_restarts_nothing(
    fine: Situation, before: dict[str, str], seen: dict[str, str]
) -> None:
    decision = rotated(fine, before, seen).decide()
    known = decision.status.controllers
    assert known is not None
    assert known.change is None
    assert known.rendered is not None
    assert known.rendered.credentials == before | seen
    assert known.secrets == seen_secrets(seen)
    assert not {3000, 3001, 3002} & set(restarted(decision))


def test_a_secret_with_which_a_voter_failed_waits_for_another_one() -> None:
    fine = rotated(SAFE[0], {"listener": "1"}, {"listener": "2"})
    known = fine.status.controllers
    assert known is not None
    assert known.rendered is not None
    bad = known.rendered.model_copy(update={"credentials": {"listener": "2"}})
    change = ControllersChange(
        to=bad, before=known.rendered, started_at=NOW, failed="controller 3001 did not come back"
    )
    failed = fine.with_status(controllers=known.model_copy(update={"change": change}))
    for seen in ({"listener": "2"}, {}):
        waiting = failed.observing(controllers=replace(controllers_workload(), secrets=seen_secrets(seen))).decide()
        assert waiting.status.controllers is not None
        assert waiting.status.controllers.change is not None
        assert waiting.status.controllers.change.failed
        assert restarted(waiting) == []
    corrected = failed.observing(
        controllers=replace(controllers_workload(), secrets=seen_secrets({"listener": "3"}))
    ).decide()
    assert corrected.status.controllers is not None
    assert corrected.status.controllers.change is not None
    assert not corrected.status.controllers.change.failed
    assert corrected.status.controllers.change.to.credentials == {"listener": "3"}
