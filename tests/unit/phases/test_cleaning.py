"""``spec.handOver: Clean``: each controller restarts once more without the operator's image, the active one last, and the guard ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest
from tests.support.observations import (
    CONTROLLER_IDS,
    LEASE,
    NEEDED,
    NOW,
    Situation,
    broker_set,
    cluster,
    issued_listener,
    open_gate,
    quorum,
    record,
    seen_secrets,
    with_pods,
)

from kraftbridge.models.conditions import Condition, ConditionType, Reason, condition
from kraftbridge.models.decision import (
    ApplyControllers,
    Decision,
    HoldLease,
    PublishFinalManifest,
    ReleaseLease,
    RestartPod,
)
from kraftbridge.models.issued import IssuedSecret
from kraftbridge.models.observation import (
    ActionOutcome,
    ControllersWorkload,
    LeaseState,
    NodeFeatures,
    QuorumState,
    Unobserved,
)
from kraftbridge.models.phase import BrokerMode, Phase
from kraftbridge.models.report import Profile, Verdict
from kraftbridge.models.spec import HandOver, ListenerSpec
from kraftbridge.models.status import (
    ControllersChange,
    ControllersStatus,
    HandOverStatus,
    MetadataVersionState,
    MetadataVersionStatus,
    RenderedControllers,
    tuned_controllers,
)
from kraftbridge.phases import cleaning
from kraftbridge.phases.draft import StepContext

CLEAN_REVISION = "rev-clean"
ACTIVE = 3000


def following(leader: int = ACTIVE, epoch: int = 2, silent_seconds: float = 0.2) -> QuorumState:
    """Return a quorum whose leader says when each voter fetched last."""
    fine = quorum(leader, epoch)
    return replace(fine, voters=tuple(replace(voter, silent_seconds=silent_seconds) for voter in fine.voters))


def known(situation: Situation) -> ControllersStatus:
    assert situation.status.controllers is not None
    return situation.status.controllers


def rendered(situation: Situation, *, clean: bool = False) -> RenderedControllers:
    tuned = tuned_controllers(situation.spec, situation.status)
    return RenderedControllers.of(tuned, broker_settings=situation.status.broker_settings, clean=clean)


def completed(hand_over: HandOver = HandOver.CLEAN, verdict: Verdict | None = Verdict.CONSISTENT) -> Situation:
    """Return a completed migration under guard that has proven its end."""
    fine = open_gate(Phase.COMPLETED).asking(hand_over=hand_over)
    item = replace(broker_set(BrokerMode.KRAFT), lock="", lease=LeaseState())
    return fine.with_status(
        given_back_at=NOW,
        hand_over=HandOverStatus(guarded=True, stateful_sets=(NEEDED,)),
        verifications=(record(Profile.REPLICAS, Phase.COMPLETED, "entry", verdict),),
        controllers=known(fine).model_copy(update={"rendered": rendered(fine)}),
    ).observing(stateful_sets=(item,), quorum=following())


def workload_of(situation: Situation) -> ControllersWorkload:
    workload = situation.observation.controllers
    assert isinstance(workload, ControllersWorkload)
    return workload


def with_agentless(situation: Situation, *node_ids: int) -> Situation:
    """Return the same after these controllers have restarted: nobody reads metrics of them."""
    workload = workload_of(situation)
    assert workload.stateful_set is not None
    pods = tuple(
        replace(
            pod, uid=f"{pod.uid}-clean", revision=CLEAN_REVISION, ready=True, deleting=False, ready_since=situation.now
        )
        if pod.ordinal in node_ids
        else pod
        for pod in workload.stateful_set.pods
    )
    without_agent = workload.without_agent | set(node_ids)
    changed = replace(
        workload, stateful_set=replace(workload.stateful_set, pods=pods), without_agent=frozenset(without_agent)
    )
    silent = {i: Unobserved(f"controller {i}", "its pod runs no metrics agent") for i in without_agent}
    return situation.observing(controllers=changed, metrics={**situation.observation.metrics, **silent})


@dataclass
class World:
    """A completed cluster that does what is decided."""

    situation: Situation
    restarted: list[int] = field(default_factory=list)
    applied: list[ApplyControllers] = field(default_factory=list)
    published: int = 0
    epoch: int = 2

    def step(self, *, keeps: Callable[[Situation], Situation] = lambda situation: situation) -> Decision:
        """Decide, act, and let five seconds pass; ``keeps`` changes what the next step finds."""
        decision = self.situation.decide()
        self.situation = self.situation.after(decision)
        for action in decision.actions:
            self._act(action)
        outcomes = tuple(ActionOutcome(type(action).__name__) for action in decision.actions)
        self.situation = keeps(self.situation.observing(outcomes=outcomes).later(5))
        return decision

    def _act(self, action: object) -> None:
        match action:
            case ApplyControllers():
                self.applied.append(action)
                if not action.only:
                    self._render(CLEAN_REVISION if known(self.situation).clean else "rev-Final")
            case RestartPod(_, uid, node):
                pods = {pod.ordinal: pod for pod in self._pods()}
                if pods[node].uid == uid:
                    self._restart(node)
            case PublishFinalManifest():
                self.published += 1
            case HoldLease():
                self._lease(LEASE)
            case ReleaseLease():
                self._lease(LeaseState())
            case _:
                pass

    def _pods(self) -> tuple[object, ...]:
        stateful_set = workload_of(self.situation).stateful_set
        assert stateful_set is not None
        return stateful_set.pods

    def _render(self, revision: str) -> None:
        workload = workload_of(self.situation)
        assert workload.stateful_set is not None
        stateful_set = replace(workload.stateful_set, update_revision=revision)
        self.situation = self.situation.observing(controllers=replace(workload, stateful_set=stateful_set))

    def _restart(self, node: int) -> None:
        self.restarted.append(node)
        self.situation = with_agentless(self.situation, node)
        seen = self.situation.observation.quorum
        assert isinstance(seen, QuorumState)
        if seen.leader_id == node:
            self.epoch += 1
            others = [i for i in CONTROLLER_IDS if i != node]
            self.situation = self.situation.observing(quorum=following(others[0], self.epoch))

    def _lease(self, lease: LeaseState) -> None:
        (item,) = self.situation.observation.stateful_sets
        assert not isinstance(item, Unobserved)
        self.situation = self.situation.observing(stateful_sets=(replace(item, lease=lease),))

    def walk(self, steps: int = 40) -> None:
        """Go on until the controllers are clean and the guard has ended."""
        for _ in range(steps):
            decision = self.step()
            stalled = condition(decision.status.conditions, ConditionType.STALLED)
            assert stalled is not None
            assert stalled.status == "False", decision.status.message
            hand_over = decision.status.hand_over
            if hand_over is not None and hand_over.cleaned_at is not None:
                self.step()
                return
        raise AssertionError(self.situation.status.message)


def said(decision: Decision, kind: ConditionType = ConditionType.HANDED_OVER) -> Condition:
    found = condition(decision.status.conditions, kind)
    assert found is not None
    return found


def restarts(decision: Decision) -> list[int]:
    return [action.node_id for action in decision.actions if isinstance(action, RestartPod)]


def begins(situation: Situation) -> bool:
    """Return whether a step records that the controllers are rendered without the operator's image."""
    controllers = situation.decide().status.controllers
    assert controllers is not None
    return controllers.clean


# ------------------------------------------------------------------------------------------------- the walk


def test_each_controller_restarts_once_the_active_one_last_and_the_guard_ends() -> None:
    world = World(completed())
    world.walk()
    assert world.restarted == [3001, 3002, ACTIVE]
    status = world.situation.status
    assert status.controllers is not None
    assert status.controllers.cleaned
    assert status.controllers.change is None
    assert status.hand_over is not None
    assert not status.hand_over.guarded
    assert status.hand_over.ended_at is not None
    last = world.applied[-1]
    assert set(last.only) == {f"Service/{known(world.situation).name}", f"NetworkPolicy/{known(world.situation).name}"}
    assert world.published == 1
    (item,) = world.situation.observation.stateful_sets
    assert not isinstance(item, Unobserved)
    assert item.lease == LeaseState(), "the Lease that the roll-out took is given back"


def test_what_is_true_afterwards_is_said_and_nothing_rests_on_what_nobody_reads_any_more() -> None:
    world = World(completed())
    world.walk()
    decision = world.step()
    assert (said(decision).status, said(decision).reason) == ("True", Reason.CLEANED)
    assert "DescribeQuorum names controller 3001 as leader of 3 voters" in said(decision).message
    assert "DescribeQuorum names controller 3001" in decision.status.message
    assert said(decision, ConditionType.READY).status == "True"
    blind = world.situation.observing(
        quorum=Unobserved("quorum", "timeout"), features=Unobserved("features", "timeout")
    )
    later = blind.later(600).decide()
    assert "the quorum was not seen" in said(later).message
    assert said(later, ConditionType.READY).status == "True"
    assert said(later, ConditionType.STALLED).status == "False"
    assert later.actions == ()


def test_an_operator_that_restarts_in_the_middle_goes_on() -> None:
    """Everything but the status is lost: what the last acts led to, and what was seen before."""
    world = World(completed())
    for _ in range(40):
        world.step(keeps=lambda situation: situation.observing(outcomes=()))
        if len(world.restarted) == len(CONTROLLER_IDS) and known(world.situation).change is None:
            break
    assert world.restarted == [3001, 3002, ACTIVE]
    before = world.published
    world.step(keeps=lambda situation: situation.observing(outcomes=()))
    world.step(keeps=lambda situation: situation.observing(outcomes=()))
    assert world.published == before + 2, "written again until it is known to be written"
    assert world.situation.status.hand_over is not None
    assert world.situation.status.hand_over.cleaned_at is None
    world.walk()
    assert world.restarted == [3001, 3002, ACTIVE]


@pytest.mark.parametrize("steps", range(0, 12, 3))
def test_a_pause_holds_it(steps: int) -> None:
    world = World(completed())
    for _ in range(steps):
        world.step()
    world.situation = world.situation.asking(paused=True)
    for _ in range(3):
        world.step()  # a restart that has begun is finished
    restarted = list(world.restarted)
    for _ in range(6):
        world.step()
    assert world.restarted == restarted
    assert "Paused" in world.situation.status.message
    world.situation = world.situation.asking(paused=False)
    world.walk()
    assert world.restarted == [3001, 3002, ACTIVE]


@pytest.mark.parametrize("hand_over", [HandOver.GUARD, HandOver.RELEASE])
def test_without_the_word_nothing_restarts(hand_over: HandOver) -> None:
    assert not begins(completed(hand_over))


# -------------------------------------------------------------------------------------------- when it begins


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase.row.forward and phase is not Phase.COMPLETED])
def test_nothing_happens_before_completed(phase: Phase) -> None:
    early = open_gate(phase).asking(hand_over=HandOver.CLEAN)
    if early.status.controllers is not None:
        early = early.with_status(controllers=known(early).model_copy(update={"rendered": rendered(early)}))
    controllers = early.decide().status.controllers
    assert controllers is None or not controllers.clean


@pytest.mark.parametrize("verdict", [None, Verdict.INCONCLUSIVE, Verdict.INCONSISTENT])
def test_nothing_happens_before_the_last_verification_is_consistent(verdict: Verdict | None) -> None:
    """No log server answers afterwards, so nothing could be verified any more."""
    early = completed(verdict=verdict)
    assert not begins(early)
    decision = early.decide()
    assert "the controllers keep the operator's image for now: the last verification" in decision.status.message
    assert said(decision, ConditionType.READY).status == "True"
    assert not begins(early.with_status(verifications=()))
    running = record(Profile.REPLICAS, Phase.COMPLETED, "metadata-version-1-after", finished=False)
    assert not begins(completed().with_status(verifications=(*completed().status.verifications, running)))


def test_the_statefulsets_of_the_brokers_are_given_back_first() -> None:
    held = replace(broker_set(BrokerMode.KRAFT), lease=LEASE)
    assert not begins(completed().with_status(given_back_at=None).observing(stateful_sets=(held,)))


def test_metadata_version_comes_first() -> None:
    asked = completed().asking(metadata_version="3.9-IV0")
    assert not begins(asked)
    in_force = MetadataVersionStatus(state=MetadataVersionState.IN_FORCE, target_level=asked.spec.metadata_level)
    assert begins(asked.with_status(metadata_version=in_force))


def with_listener(situation: Situation, **listener: object) -> Situation:
    controllers = situation.spec.controllers.model_copy(
        update={"listener": ListenerSpec.model_validate({"securityProtocol": "SSL", **listener})}
    )
    asked = situation.asking(controllers=controllers)
    return asked.with_status(controllers=known(asked).model_copy(update={"rendered": rendered(asked)}))


def test_a_key_that_only_our_init_container_can_convert_keeps_it() -> None:
    brought = with_listener(completed(), secretName="certificate")
    assert not begins(brought.observing(brought=Unobserved("Secret of the listener", "timeout")))
    assert begins(brought.observing(brought=None)), "it holds key stores"
    assert begins(brought.observing(brought=IssuedSecret("certificate", exists=True)))
    sec1 = brought.observing(brought=IssuedSecret("certificate", exists=True, is_pkcs8=False))
    assert not begins(sec1)
    decision = sec1.decide()
    assert "tls.key in Secret certificate is not in PKCS#8" in said(decision).message
    assert said(decision, ConditionType.READY).status == "True"


def test_issued_certificates_are_read_as_they_are() -> None:
    issued = with_listener(completed(), generate=True)
    assert begins(issued.observing(issued=issued_listener()))
    assert not begins(issued.observing(issued=Unobserved("Secret of the listener", "timeout")))


def test_an_operator_that_does_not_know_what_the_controllers_run_records_that_first() -> None:
    unknown = completed()
    unknown = unknown.with_status(controllers=known(unknown).model_copy(update={"rendered": None}))
    decision = unknown.decide()
    assert decision.status.controllers is not None
    assert decision.status.controllers.rendered is not None
    assert not decision.status.controllers.clean
    assert begins(unknown.after(decision))


# ---------------------------------------------------------------------------------------------- every gate


def half_way() -> Situation:
    """Return the roll-out after one controller: two run the older template, and everything holds for the next one."""
    fine = completed()
    to = rendered(fine, clean=True)
    change = ControllersChange(to=to, before=rendered(fine), started_at=NOW)
    rolling = fine.with_status(controllers=known(fine).model_copy(update={"rendered": to, "change": change}))
    workload = workload_of(rolling)
    assert workload.stateful_set is not None
    stateful_set = replace(workload.stateful_set, update_revision=CLEAN_REVISION)
    (item,) = rolling.observation.stateful_sets
    assert not isinstance(item, Unobserved)
    rolling = rolling.observing(
        controllers=replace(workload, stateful_set=stateful_set), stateful_sets=(replace(item, lease=LEASE),)
    )
    return with_agentless(rolling, 3001)


def with_quorum(**changes: float) -> Callable[[Situation], Situation]:
    return lambda situation: situation.observing(quorum=following(**changes))  # type: ignore[arg-type]


CLOSED: dict[str, Callable[[Situation], Situation]] = {
    "no answer of the leader": lambda s: s.observing(quorum=Unobserved("quorum", "timeout")),
    "a voter does not fetch": with_quorum(silent_seconds=9.0),
    "a leader that does not say when they fetched": lambda s: s.observing(quorum=quorum()),
    "a new leader": with_quorum(leader=3002, epoch=3),
    "a voter that lags": lambda s: s.observing(
        quorum=replace(following(), voters=tuple(replace(v, log_end_offset=10 * v.id) for v in following().voters))
    ),
    "metrics of one that has the agent": lambda s: s.observing(
        metrics={**s.observation.metrics, 3002: Unobserved("controller 3002", "timeout")}
    ),
    "a controller is down": lambda s: s.observing(
        controllers=with_pods(workload_of(s), 3001, ready=False, ready_since=None)
    ),
    "a partition without a leader": lambda s: s.observing(cluster=cluster(offline=("t-0",), offline_count=1)),
    "nobody knows the cluster": lambda s: s.observing(cluster=Unobserved("Kafka", "timeout")),
    "no Lease": lambda s: s.observing(
        stateful_sets=tuple(replace(item, lease=LeaseState()) for item in s.observation.stateful_sets)  # type: ignore[type-var]
    ),
    "the issued Secrets are not known": lambda s: s.observing(issued=Unobserved("Secret of the listener", "timeout")),
    "a pause": lambda s: s.asking(paused=True),
}


def test_the_next_controller_restarts_when_every_gate_is_open() -> None:
    assert restarts(half_way().decide()) == [3002]


@pytest.mark.parametrize("close", CLOSED.values(), ids=CLOSED)
def test_it_waits_on_every_gate(close: Callable[[Situation], Situation]) -> None:
    assert restarts(close(half_way()).decide()) == []


@pytest.mark.parametrize("features", [Unobserved("controller 3001", "refused"), NodeFeatures({}, {})])
def test_a_restarted_controller_is_back_once_it_has_loaded_the_metadata(features: NodeFeatures | Unobserved) -> None:
    """Its gauges are gone, and it answers ApiVersions."""
    world = World(half_way())
    world.step()
    assert world.restarted == [3002]
    every = world.situation.observation.features
    assert not isinstance(every, Unobserved)
    unloaded = world.situation.observing(features={**every, 3002: features})
    decision = unloaded.decide()
    assert decision.status.operation is not None
    assert "controller 3002 has not loaded its image yet" in decision.status.message
    assert world.situation.decide().status.operation is None


def test_the_active_controller_is_known_without_its_metrics() -> None:
    """It restarted, lost the lead, and got it back: the leader of DescribeQuorum stays the last."""
    rolling = half_way().observing(quorum=following(leader=3002))
    rolling = rolling.observing(metrics=dict.fromkeys(CONTROLLER_IDS, Unobserved("metrics", "timeout")))
    assert cleaning.is_wanted(as_step(rolling))
    assert restarts(with_agentless(rolling, 3001, 3002).decide()) == []
    led = with_agentless(half_way(), 3001, 3002)
    assert restarts(led.decide()) == [ACTIVE]


def as_step(situation: Situation) -> StepContext:
    return StepContext(situation.identity, situation.spec, situation.observation, situation.now, situation.status)


# ----------------------------------------------------------------------------------------------- no way back


def test_the_word_is_not_taken_back_once_it_is_being_carried_out() -> None:
    """An older definition of the resource lets the word through; the operator goes on."""
    world = World(half_way())
    world.situation = world.situation.asking(hand_over=HandOver.GUARD)
    world.walk()
    assert world.restarted == [3002, ACTIVE]
    assert said(world.situation.decide()).reason is Reason.CLEANED


def failed(hand_over: HandOver) -> Situation:
    rolling = half_way().asking(hand_over=hand_over)
    controllers = known(rolling)
    assert controllers.change is not None
    change = controllers.change.model_copy(update={"failed": "controller 3001: it does not start"})
    stopped = controllers.model_copy(update={"rendered": change.before, "change": change})
    return rolling.with_status(controllers=stopped)


def test_a_roll_out_that_failed_waits_for_the_user_who_can_take_the_word_back() -> None:
    decision = failed(HandOver.CLEAN).decide()
    assert said(decision, ConditionType.STALLED).reason is Reason.CONTROLLERS_CHANGE_FAILED
    assert "set spec.handOver back to Guard or Release" in decision.status.message
    unknown = failed(HandOver.CLEAN).with_status(verifications=()).decide()
    assert unknown.status.controllers is not None
    assert unknown.status.controllers.change is not None
    assert unknown.status.controllers.change.failed, "what is not known now gives nothing up"
    back = failed(HandOver.GUARD).decide().status.controllers
    assert back is not None
    assert back.change is not None
    assert not back.change.to.clean
    assert not back.change.failed


def test_after_release_the_word_still_cleans() -> None:
    ended = HandOverStatus(guarded=False, stateful_sets=(NEEDED,), ended_at=NOW - timedelta(days=1))
    world = World(completed().with_status(hand_over=ended))
    world.walk()
    assert world.restarted == [3001, 3002, ACTIVE]
    assert world.situation.status.hand_over is not None
    assert world.situation.status.hand_over.ended_at == NOW - timedelta(days=1)


def test_afterwards_the_operator_changes_no_metadata_version() -> None:
    """A verification before and after the change would read the log servers."""
    world = World(completed())
    world.walk()
    decision = world.situation.asking(metadata_version="3.8-IV0").decide()
    assert "Use kafka-features.sh" in said(decision, ConditionType.METADATA_VERSION_READY).message
    assert said(decision, ConditionType.READY).status == "True"
    assert said(decision, ConditionType.STALLED).status == "False"


def test_afterwards_a_renewed_certificate_still_reaches_the_controllers_one_at_a_time() -> None:
    """Every gate is known from Kafka's own protocol, and the template stays its owner's."""
    world = World(completed())
    world.walk()
    controllers = known(world.situation)
    assert controllers.rendered is not None
    former = controllers.rendered.model_copy(update={"credentials": {"listener": "old"}})
    renewed = replace(workload_of(world.situation), secrets=seen_secrets({"listener": "new"}))
    world.situation = world.situation.with_status(
        controllers=controllers.model_copy(update={"rendered": former})
    ).observing(controllers=renewed)
    world.restarted.clear()
    world.applied.clear()
    for _ in range(20):
        world.step()
    assert world.restarted == [3000, 3002, 3001], "3001 leads since the last roll"
    assert world.applied == []
    assert known(world.situation).change is None
