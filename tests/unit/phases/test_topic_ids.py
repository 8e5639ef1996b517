"""The second roll of brokers whose protocol knows no topic ids: when it begins, what ends it, and the way back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.observations import (
    BROKER_IDS,
    BROKER_SET,
    NOW,
    RUNNING,
    UPGRADE,
    Situation,
    broker_set,
    cluster,
    open_gate,
    partly_rolled,
    record,
    rolling,
    setting,
    survey,
    zookeeper,
)

from kraftbridge.models.conditions import ConditionType, Reason, condition
from kraftbridge.models.decision import ConfigureBrokers, RestartPod
from kraftbridge.models.observation import ControllerZnode, StatefulSetState, TopicIds, TopicRedundancy, Unobserved
from kraftbridge.models.phase import BrokerMode, Part, Phase, Target
from kraftbridge.models.report import Profile
from kraftbridge.models.spec import AcceptedFinding, PreflightSpec, RollbackSpec
from kraftbridge.models.status import BrokerUpgradeStatus, NodeStatus, WaitKind
from kraftbridge.models.survey import LogDir, SettingSource
from kraftbridge.phases import topic_ids
from kraftbridge.phases.draft import StepContext
from kraftbridge.phases.needs import needs

FORMER = "2.4-IV1"
UNKNOWN = Unobserved("somebody", "it is silent")
WORD = RollbackSpec(give_up_former_image=True)
LIFTED = BrokerUpgradeStatus(needed=True, protocol=FORMER, lifted_at=NOW - timedelta(minutes=5))


def node(broker: int, process: str = "") -> NodeStatus:
    return NodeStatus(
        id=broker,
        role="broker",
        pod=f"{BROKER_SET}-{broker}",
        stateful_set=BROKER_SET,
        mode=BrokerMode.LIFTED,
        with_topic_ids=process,
    )


def processes(item: StatefulSetState) -> dict[int, str]:
    return {pod.ordinal: pod.process for pod in item.pods}


def on_bridge(
    done: int, *, lifted: bool, shown: bool = True, target: Target = Target.KRAFT, **of_set: Any
) -> Situation:
    """Return UpgradingBrokers of brokers of 2.4 after ``done`` restarts of its first or second roll."""
    item = partly_rolled(
        done,
        BrokerMode.LIFTED if lifted else BrokerMode.UPGRADED,
        BrokerMode.UPGRADED if lifted else None,
        **of_set,
    )
    told = {i: (*RUNNING, setting("inter.broker.protocol.version", FORMER, SettingSource.DEFAULT)) for i in BROKER_IDS}
    known = processes(item) if shown else {}
    upgrade = LIFTED if lifted else BrokerUpgradeStatus(needed=True, protocol=FORMER)
    return (
        open_gate(Phase.UPGRADING_BROKERS, target)
        .with_status(
            broker_upgrade=upgrade,
            nodes=tuple(node(i, known.get(i, "")) for i in BROKER_IDS),
            verifications=tuple(
                record(Profile.UPGRADE, Phase.PROVISIONING_QUORUM, purpose) for purpose in ("before-lift", "entry")
            ),
        )
        .observing(stateful_sets=(item,), survey=survey(brokers=told))
        .asking(rollback=WORD)
    )


def asked_for(case: Situation) -> list[BrokerMode]:
    return [a.mode for a in case.decide().actions if isinstance(a, ConfigureBrokers)]


def restarted(case: Situation) -> list[str]:
    return [a.pod for a in case.decide().actions if isinstance(a, RestartPod)]


def said(case: Situation, kind: ConditionType) -> str:
    found = condition(case.decide().status.conditions, kind)
    assert found is not None
    return f"{found.status} {found.reason}: {found.message}"


# ------------------------------------------------------------------------------------------------- when it begins


def test_the_second_roll_waits_for_the_word_and_the_first_one_can_be_taken_back() -> None:
    case = on_bridge(3, lifted=False).asking(rollback=RollbackSpec())
    decision = case.decide()
    assert "spec.rollback.giveUpFormerImage" in decision.status.message
    assert "every topic gets its id" in decision.status.message
    assert (decision.status.phase, asked_for(case), restarted(case)) == (Phase.UPGRADING_BROKERS, [], [])
    assert "former image back" in said(case, ConditionType.ROLLBACK_POSSIBLE)


def test_the_lift_is_recorded_before_the_first_template_has_it() -> None:
    case = on_bridge(3, lifted=False)
    assert asked_for(case) == [BrokerMode.LIFTED]
    upgrade = case.decide().status.broker_upgrade
    assert upgrade is not None
    assert upgrade.lifted_at == NOW
    assert "brings every broker to image" in said(case, ConditionType.ROLLBACK_POSSIBLE)


@pytest.mark.parametrize("done", [0, 1, 2])
def test_no_protocol_is_lifted_while_a_broker_runs_the_former_image(done: int) -> None:
    case = on_bridge(done, lifted=False)
    assert BrokerMode.LIFTED not in asked_for(case)
    upgrade = case.decide().status.broker_upgrade
    assert upgrade is not None
    assert upgrade.lifted_at is None


def test_a_target_at_the_bridge_rests_with_the_former_protocol_until_the_lift_has_begun() -> None:
    resting = on_bridge(3, lifted=False, target=Target.BRIDGE_RELEASE)
    assert said(resting, ConditionType.READY).startswith(f"True {Reason.TARGET_REACHED}")
    assert "giveUpFormerImage" in resting.decide().status.message
    assert resting.decide().actions == ()
    begun = on_bridge(1, lifted=True, target=Target.BRIDGE_RELEASE)
    assert restarted(begun) == [f"{BROKER_SET}-2"], "what has begun is ended"
    ended = on_bridge(3, lifted=True, target=Target.BRIDGE_RELEASE)
    assert said(ended, ConditionType.READY).startswith(f"True {Reason.TARGET_REACHED}")


@pytest.mark.parametrize("done", [0, 1, 2])
def test_one_broker_restarts_at_a_time_the_controller_last(done: int) -> None:
    order = [f"{BROKER_SET}-{i}" for i in (0, 2, 1)]
    assert restarted(on_bridge(done, lifted=True)) == [name for name in order if int(name[-1]) >= done][:1]


def test_the_controller_that_moved_is_last_wherever_it_is() -> None:
    case = on_bridge(1, lifted=True)
    for controller, following in ((0, 1), (1, 2), (2, 1)):
        holder = ControllerZnode(controller, -1, ephemeral=True)
        moved = case.observing(zookeeper=zookeeper(taken_over=False, controller=holder))
        assert restarted(moved) == [f"{BROKER_SET}-{following}"]


CLOSING: dict[str, Callable[[Situation], Situation]] = {
    **{
        part: lambda s, part=part: s.observing(**{part: (UNKNOWN,) if part == "stateful_sets" else UNKNOWN})  # type: ignore[misc]
        for part in ("zookeeper", "cluster", "cluster_by_broker", "redundancy", "stateful_sets")
    },
    "under-replicated": lambda s: s.observing(cluster=cluster(under_replicated=("t-1",), under_replicated_count=1)),
    "a lone topic": lambda s: s.observing(redundancy=TopicRedundancy(("lonely",), (), read_at=NOW)),
    "no controller": lambda s: s.observing(zookeeper=zookeeper(taken_over=False, controller=None)),
    "a hold": lambda s: s.with_status(hold_until=NOW + timedelta(seconds=9)),
    "the record is gone": lambda s: s.with_status(broker_upgrade=None),
}


@pytest.mark.parametrize("what", CLOSING)
def test_what_keeps_every_broker_running(what: str) -> None:
    assert restarted(on_bridge(1, lifted=True)) != []
    assert restarted(CLOSING[what](on_bridge(1, lifted=True))) == []


def test_the_status_counts_the_brokers_of_the_roll_that_goes_on() -> None:
    for lifted, mode in ((False, BrokerMode.UPGRADED), (True, BrokerMode.LIFTED)):
        brokers = on_bridge(1, lifted=lifted).decide().status.brokers
        assert (brokers.mode, brokers.total) == (mode, 3)


# ------------------------------------------------------------------------------------------------- what ends it


def answer(case: Situation, broker: int = 2, **changes: Any) -> Situation:
    """Return a situation in which one broker has shown nothing yet, and tells this."""
    (item,) = case.observation.stateful_sets
    assert isinstance(item, StatefulSetState)
    fine = TopicIds(processes(item)[broker], "3.9-IV0", cluster().partitions, (), 0, (LogDir("/data"),))
    nodes = tuple(n.model_copy(update={"with_topic_ids": ""}) if n.id == broker else n for n in case.status.nodes)
    return case.with_status(nodes=nodes).observing(topic_ids={broker: replace(fine, **changes)})


STRAY = (LogDir("/data", leftovers=("gone-0",)),)
LACKING: dict[str, tuple[dict[str, Any], str]] = {
    "another process told it": ({"process": "uid of before"}, "asked again"),
    "the former protocol": ({"protocol": FORMER}, FORMER),
    "2.8-IV0 keeps none": ({"protocol": "2.8-IV0"}, "2.8-IV0"),
    "no protocol": ({"protocol": ""}, "does not tell"),
    "no topics yet": ({"partitions": 0}, "lists 0 partitions"),
    "a topic without an id": ({"without": ("t",), "without_count": 1}, "without an id: t"),
    "a stray replica": ({"log_dirs": STRAY}, "LeftoverReplicas"),
    "unknown directories": ({"log_dirs": Unobserved("log directories of broker 2", "it may not")}, "it may not"),
}


def test_a_broker_that_has_shown_its_ids_leads_on() -> None:
    case = answer(on_bridge(3, lifted=True))
    decision = case.decide()
    assert decision.status.phase is Phase.PROVISIONING_QUORUM, decision.status.message
    assert all(n.with_topic_ids for n in decision.status.nodes if n.role == "broker")


@pytest.mark.parametrize("what", LACKING)
def test_what_shows_nothing_keeps_the_migration_before_the_controllers(what: str) -> None:
    changes, words = LACKING[what]
    decision = answer(on_bridge(3, lifted=True), **changes).decide()
    assert decision.status.phase is Phase.UPGRADING_BROKERS
    assert words in decision.status.message, decision.status.message
    code = "LeftoverReplicas" if "stray" in what else "TopicIdsNotProven"
    assert code in decision.status.message
    waiting = decision.status.waiting
    assert waiting is not None
    assert (waiting.kind is WaitKind.USER) is ("stray" in what)


@pytest.mark.parametrize(
    "told", [UNKNOWN, {}, {2: UNKNOWN}], ids=["nobody was asked", "it was not asked", "it was silent"]
)
def test_silence_proves_nothing(told: Any) -> None:
    case = answer(on_bridge(3, lifted=True)).observing(topic_ids=told)
    decision = case.decide()
    assert decision.status.phase is Phase.UPGRADING_BROKERS
    assert "TopicIdsNotProven" in decision.status.message


def test_a_broker_without_a_pod_and_sets_that_nobody_sees_prove_nothing() -> None:
    case = taking_over(1)
    (item,) = case.observation.stateful_sets
    assert isinstance(item, StatefulSetState)

    def waits(observed: Situation) -> str:
        step = StepContext(observed.identity, observed.spec, observed.observation, NOW, observed.status)
        waiting = topic_ids.wait(step, "before")
        return "" if waiting is None else waiting.message

    assert waits(case) == ""
    assert f"pod {BROKER_SET}-2 does not exist" in waits(
        case.observing(stateful_sets=(replace(item, pods=item.pods[:-1]),))
    )
    assert "somebody could not be observed" in waits(case.observing(stateful_sets=(UNKNOWN,)))


def test_what_the_user_accepted_in_preflight_holds_here() -> None:
    stray = answer(on_bridge(3, lifted=True), log_dirs=STRAY)
    unknown = answer(on_bridge(3, lifted=True), log_dirs=Unobserved("log directories of broker 2", "it may not"))
    for case, code, name in (
        (stray, "LeftoverReplicas", "broker/2 /data"),
        (unknown, "LogDirsUnknown", "brokers"),
    ):
        assert (
            case.asking(preflight=PreflightSpec(accepted=(AcceptedFinding(code=code, object=name),)))
            .decide()
            .status.phase
            is Phase.PROVISIONING_QUORUM
        )


def test_a_process_that_started_later_has_shown_nothing() -> None:
    case = on_bridge(3, lifted=True)
    (item,) = case.observation.stateful_sets
    assert isinstance(item, StatefulSetState)
    last = replace(item.pods[-1], running_since=NOW - timedelta(minutes=1))
    again = case.observing(stateful_sets=(replace(item, pods=(*item.pods[:-1], last)),))
    assert "TopicIdsNotProven on broker/2" in again.decide().status.message
    assert topic_ids.to_ask(again.status, again.observation.stateful_sets) == {2: last.process}
    assert topic_ids.to_ask(case.status, case.observation.stateful_sets) == {}


def test_nothing_is_asked_where_the_protocol_has_ids_or_is_not_lifted_yet() -> None:
    lifting = on_bridge(3, lifted=True)
    assert Part.TOPIC_IDS in needs(lifting.status, NOW)
    for case in (
        on_bridge(3, lifted=False),
        lifting.with_status(broker_upgrade=LIFTED.model_copy(update={"protocol": "2.8-IV1"})),
        lifting.with_status(broker_upgrade=None),
    ):
        assert Part.TOPIC_IDS not in needs(case.status, NOW)


# --------------------------------------------------------------------------------------------- before the takeover


def at_quorum() -> Situation:
    case = open_gate(Phase.PROVISIONING_QUORUM)
    item = replace(broker_set(BrokerMode.LIFTED), image=UPGRADE.image)
    nodes = (*(node(i, processes(item)[i]) for i in BROKER_IDS), *(n for n in case.status.nodes if n.role != "broker"))
    asked = case.asking(brokers=case.spec.brokers.model_copy(update={"upgrade": UPGRADE}), rollback=WORD)
    return asked.with_status(broker_upgrade=LIFTED, nodes=nodes).observing(stateful_sets=(item,))


def test_no_broker_restarts_in_migration_mode_before_every_one_has_shown_its_ids() -> None:
    assert at_quorum().decide().status.phase is Phase.TAKING_OVER, at_quorum().decide().status.message
    closed = answer(at_quorum(), without=("t",), without_count=1).decide()
    assert closed.status.phase is Phase.PROVISIONING_QUORUM
    assert "before any broker restarts in migration mode" in closed.status.message


def test_templates_at_the_quorum_stay_lifted() -> None:
    case = at_quorum()
    (item,) = case.observation.stateful_sets
    assert isinstance(item, StatefulSetState)
    assert asked_for(case.observing(stateful_sets=(replace(item, drift=("image of kafka",)),))) == [BrokerMode.LIFTED]


def taking_over(done: int) -> Situation:
    case = rolling(Phase.TAKING_OVER, done)
    item = partly_rolled(done, BrokerMode.MIGRATION, BrokerMode.LIFTED)
    asked = case.asking(brokers=case.spec.brokers.model_copy(update={"upgrade": UPGRADE}), rollback=WORD)
    nodes = tuple(node(i, processes(item)[i]) for i in BROKER_IDS)
    return asked.with_status(broker_upgrade=LIFTED, nodes=nodes).observing(stateful_sets=(item,))


@pytest.mark.parametrize("done", [1, 2])
def test_the_brokers_that_restarted_show_it_again_before_the_next_one(done: int) -> None:
    case = taking_over(done)
    assert restarted(case) == [f"{BROKER_SET}-2"], case.decide().status.message
    closed = answer(case, broker=0, without=("t",), without_count=1)
    assert restarted(closed) == []
    assert "TopicIdsNotProven on broker/0" in closed.decide().status.message


def test_after_the_copy_nobody_is_asked_any_more() -> None:
    case = open_gate(Phase.DUAL_WRITE)
    asked = case.asking(brokers=case.spec.brokers.model_copy(update={"upgrade": UPGRADE}), rollback=WORD)
    nodes = tuple(node(i) for i in BROKER_IDS)
    later = asked.with_status(broker_upgrade=LIFTED, nodes=nodes)
    assert Part.TOPIC_IDS not in needs(later.status, NOW)
    outdated = later.observing(stateful_sets=(partly_rolled(2, BrokerMode.MIGRATION, BrokerMode.UPGRADED),))
    assert "TopicIdsNotProven" not in outdated.decide().status.message


def test_a_broker_that_is_down_is_restarted_without_an_answer_of_its_own() -> None:
    case = taking_over(2)
    (item,) = case.observation.stateful_sets
    assert isinstance(item, StatefulSetState)
    dead = replace(item.pods[-1], ready=False, ready_since=None, trouble="CrashLoopBackOff: last exit 1")
    views = {i: cluster(brokers=frozenset({0, 1})) for i in (0, 1)}
    broken = case.observing(
        stateful_sets=(replace(item, pods=(*item.pods[:-1], dead)),),
        cluster=cluster(brokers=frozenset({0, 1})),
        cluster_by_broker=views,
        zookeeper=zookeeper(taken_over=False, brokers=(0, 1)),
    )
    assert "TopicIdsNotProven" not in broken.decide().status.message
