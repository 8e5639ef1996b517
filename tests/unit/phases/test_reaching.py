"""The gate of the ways from the controllers' pods to the brokers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from tests.support.observations import (
    BROKER_IDS,
    CONTROLLER_IDS,
    CONTROLLERS,
    Situation,
    open_gate,
    open_paths,
    rolling,
    zookeeper,
)

from kraftbridge.models.conditions import Reason
from kraftbridge.models.decision import RestartPod
from kraftbridge.models.observation import NOT_NEEDED, Path, Paths, Unobserved
from kraftbridge.models.phase import Part, Phase, Target
from kraftbridge.models.spec import AcceptedFinding
from kraftbridge.models.status import BatchStatus, WaitKind
from kraftbridge.phases.needs import needs

DROPPED = "10.0.0.1 did not answer within 3 s"
ADDRESS = "kafka-1.kafka:9092"


def closed(
    broker: int = 1,
    controllers: tuple[int, ...] = CONTROLLER_IDS,
    policies: Mapping[str, tuple[str, ...]] | None = None,
) -> Paths:
    """Return paths of which the ones to a broker are closed."""
    fine = open_paths()
    tried = dict(fine.tried)
    for controller in controllers:
        ways = fine.tried[controller]
        assert isinstance(ways, Mapping)
        tried[controller] = {**ways, broker: Path(ADDRESS, DROPPED)}
    selecting = {"kafka-1": ("kafka-default",)} if policies is None else policies
    return replace(fine, tried=tried, policies=selecting)


def unknown_controller() -> Paths:
    return replace(open_paths(), tried={**open_paths().tried, 3001: Unobserved("log server 3001:9443", "timed out")})


def unknown_broker() -> Paths:
    ways = {0: Path("kafka-0.kafka:9092"), 1: Unobserved("broker 1", "it is not registered"), 2: Path("kafka-2:9092")}
    return replace(open_paths(), tried=dict.fromkeys(CONTROLLER_IDS, ways))


def at_quorum(paths: object) -> Situation:
    return open_gate(Phase.PROVISIONING_QUORUM).observing(paths=paths)


def test_the_gate_opens_on_ways_that_were_tried() -> None:
    assert at_quorum(open_paths()).decide().status.phase is Phase.TAKING_OVER


def test_a_closed_way_keeps_the_migration_before_the_takeover_and_says_which_and_what_to_add() -> None:
    decision = at_quorum(closed()).decide()
    assert decision.status.phase is Phase.PROVISIONING_QUORUM
    assert decision.status.waiting is not None
    assert decision.status.waiting.kind is WaitKind.USER
    message = decision.status.message
    assert "InterBrokerPathClosed on broker/1" in message
    assert f"the broker at {ADDRESS} (listener INTERNAL)" in message
    assert f"{CONTROLLERS}-3000 ({DROPPED})" in message
    assert "NetworkPolicies: pod kafka-1 is selected by kafka-default" in message
    labels = "kraftbridge.dev/migration=demo and kraftbridge.dev/role=controller"
    assert f"Let pods with the labels {labels} in at TCP port 9092" in message
    stalled = next(c for c in decision.status.conditions if c.type == "Stalled")
    assert (stalled.status, stalled.reason) == ("True", Reason.FINDINGS)


def test_one_controller_is_enough_to_close_it_and_only_that_one_is_named() -> None:
    message = at_quorum(closed(controllers=(3002,))).decide().status.message
    assert f"{CONTROLLERS}-3002 ({DROPPED})" in message
    assert f"{CONTROLLERS}-3000" not in message


@pytest.mark.parametrize(
    ("policies", "words"),
    [
        ({"kafka-1": ("a", "b")}, "pod kafka-1 is selected by a, b"),
        ({"kafka-1": (), f"{CONTROLLERS}-3000": ("deny-all",)}, f"pod {CONTROLLERS}-3000 is selected by deny-all"),
        ({"kafka-1": ()}, "No NetworkPolicy selects pod kafka-1: look at the policies of the network plugin"),
        ({}, "NetworkPolicies that select pod kafka-1 were not looked for"),
        (
            Unobserved("NetworkPolicy objects", "403"),
            f"Which NetworkPolicies select pod kafka-1 is not known ({Unobserved('NetworkPolicy objects', '403')})",
        ),
    ],
)
def test_the_message_says_which_policies_select_the_pods(policies: object, words: str) -> None:
    paths = replace(closed(), policies=policies)  # type: ignore[arg-type]
    assert words in at_quorum(paths).decide().status.message


@pytest.mark.parametrize(
    ("paths", "words"),
    [
        (Unobserved("paths", "no answer"), "InterBrokerPathUnknown on controllers"),
        (replace(open_paths(), tried={}), "InterBrokerPathUnknown on controller/3000"),
        (unknown_controller(), "InterBrokerPathUnknown on controller/3001"),
        (unknown_broker(), "InterBrokerPathUnknown on broker/1"),
        (open_paths(brokers=(0, 1)), "InterBrokerPathUnknown on broker/2"),
        (NOT_NEEDED, "the connections from the controllers' pods to the brokers are tried"),
    ],
)
def test_what_is_not_known_opens_nothing(paths: object, words: str) -> None:
    decision = at_quorum(paths).decide()
    assert decision.status.phase is Phase.PROVISIONING_QUORUM
    assert words in decision.status.message


def accepting(situation: Situation, code: str) -> Situation:
    accepted = (AcceptedFinding(code=code),)
    return situation.asking(preflight=situation.spec.preflight.model_copy(update={"accepted": accepted}))


def test_who_has_tried_it_by_hand_accepts_what_is_not_known_and_never_what_is_closed() -> None:
    assert (
        accepting(at_quorum(unknown_controller()), "InterBrokerPathUnknown").decide().status.phase is Phase.TAKING_OVER
    )
    held = accepting(at_quorum(closed()), "InterBrokerPathClosed").decide()
    assert held.status.phase is Phase.PROVISIONING_QUORUM


def test_what_is_closed_is_told_before_what_is_not_known() -> None:
    tried = {**closed().tried, 3001: Unobserved("log server", "timed out")}
    message = at_quorum(replace(closed(), tried=tried)).decide().status.message
    assert "InterBrokerPathClosed on broker/1 (1 more of this kind)" in message


def test_a_rest_at_the_quorum_names_what_is_closed_and_stays_a_rest() -> None:
    resting = at_quorum(closed()).asking(Target.QUORUM_READY).decide().status
    assert "set spec.target to DualWrite or further to continue. Before that: InterBrokerPathClosed" in resting.message
    fine = at_quorum(unknown_controller()).asking(Target.QUORUM_READY).decide().status
    assert fine.message.endswith("set spec.target to DualWrite or further to continue")


@pytest.mark.parametrize("done", range(len(BROKER_IDS)))
@pytest.mark.parametrize(
    "paths", [closed(0), closed(2), unknown_controller(), NOT_NEEDED, Unobserved("paths", "no answer")]
)
def test_no_broker_restarts_towards_the_takeover_while_a_way_is_closed_or_unknown(done: int, paths: object) -> None:
    fine = rolling(Phase.TAKING_OVER, done)
    assert any(isinstance(action, RestartPod) for action in fine.decide().actions)
    held = fine.observing(paths=paths).decide()
    assert not any(isinstance(action, RestartPod) for action in held.actions)
    assert "before any broker restarts" in held.status.message or "Broker" in held.status.message


def test_once_the_copy_has_begun_a_broker_is_brought_back_whatever_is_closed() -> None:
    taken = rolling(Phase.TAKING_OVER, 1).observing(zookeeper=zookeeper(taken_over=True), paths=closed())
    assert "InterBrokerPath" not in taken.decide().status.message


def test_no_later_phase_asks_for_it() -> None:
    for phase in (Phase.DUAL_WRITE, Phase.ROLLING_BROKERS):
        assert open_gate(phase).observing(paths=closed()).decide().status.phase is not phase


def test_the_ways_are_tried_at_the_quorum_and_up_to_the_takeover_while_no_node_is_away() -> None:
    before = open_gate(Phase.PREFLIGHT)
    assert Part.PATHS not in needs(before.status, before.now)
    quorum = open_gate(Phase.PROVISIONING_QUORUM)
    assert Part.PATHS not in needs(quorum.status, quorum.now)  # it has not been ready yet
    ready = quorum.observing(paths=NOT_NEEDED).decide().status
    assert Part.PATHS in needs(ready, quorum.now)
    roll = rolling(Phase.TAKING_OVER, 1)
    assert Part.PATHS in needs(roll.status, roll.now)
    restarting = roll.decide().status
    assert restarting.operation is not None
    assert Part.PATHS in needs(restarting, roll.now)  # an eviction may be refused for a long time
    away = restarting.operation.model_copy(update={"kill_due_at": roll.now})
    stopping = restarting.model_copy(update={"operation": away})
    assert Part.PATHS not in needs(stopping, roll.now)
    batch = BatchStatus(brokers=(1,), waiting=(2,), stopped_at=roll.now)
    joined = stopping.model_copy(update={"batch": batch})
    assert Part.PATHS in needs(joined, roll.now), "another broker of the batch stops yet, and a way may have closed"
    last = batch.model_copy(update={"waiting": ()})
    assert Part.PATHS not in needs(stopping.model_copy(update={"batch": last}), roll.now)


def test_a_recorded_restart_that_has_not_begun_is_dropped_when_a_way_closes() -> None:
    """A budget may forbid the eviction for an hour."""
    roll = rolling(Phase.TAKING_OVER, 1)
    recorded = roll.after(roll.decide())
    assert any(isinstance(action, RestartPod) for action in recorded.decide().actions), "the eviction is tried again"
    for unknown in (NOT_NEEDED, Unobserved("paths", "no answer")):
        assert recorded.observing(paths=unknown).decide().status.operation is not None
    dropped = recorded.observing(paths=closed()).decide()
    assert dropped.status.operation is None
    assert (
        "its restart was cancelled before its pod stopped: InterBrokerPathClosed on broker/1" in dropped.status.message
    )
