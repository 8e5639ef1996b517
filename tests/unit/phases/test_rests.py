"""A rest says the truth: it holds while its gates hold, and is verified when something changed or once a day."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.observations import (
    BROKER_IDS,
    CONTROLLER_IDS,
    IDENTITY,
    NOW,
    Situation,
    broker_set,
    cluster,
    controller_metrics,
    open_gate,
    quorum,
    summary,
)

from kraftbridge.models.conditions import ConditionType, Reason, condition
from kraftbridge.models.decision import Decision, LaunchRun
from kraftbridge.models.observation import (
    ControllersWorkload,
    RunState,
    Unobserved,
    VerificationRun,
    ZooKeeperState,
)
from kraftbridge.models.phase import BrokerMode, Phase, Target, ZkMigrationState
from kraftbridge.models.report import Verdict
from kraftbridge.models.spec import Healing
from kraftbridge.phases.draft import StepContext
from kraftbridge.phases.needs import needs
from kraftbridge.phases.rests import gates_at

DAY_SECONDS = 24 * 3600
STEP_SECONDS = 5.0
RUN_SECONDS = 60
MINUTE_SECONDS = 60.0
SLOW_STEP = 60.0
"""Seconds between two looks where hours pass."""
RESTS = {
    Phase.PREFLIGHT: Target.PREFLIGHT,
    Phase.PROVISIONING_QUORUM: Target.QUORUM_READY,
    Phase.DUAL_WRITE: Target.DUAL_WRITE,
    Phase.AWAITING_FINALIZATION: Target.KRAFT_BROKERS,
    Phase.COMPLETED: Target.KRAFT,
}
VERIFIED = (Phase.PROVISIONING_QUORUM, Phase.DUAL_WRITE, Phase.AWAITING_FINALIZATION)
GONE = Unobserved("quorum", "no answer")
LOST_METRICS = {i: Unobserved(f"controller {i}", "its pod was not seen") for i in CONTROLLER_IDS}


@dataclass
class Rest:
    """A migration at a rest, and the time that passes there: the mirror moves, and a run ends after a while."""

    situation: Situation
    moves: bool = True
    verdict: Verdict = Verdict.CONSISTENT
    launched: list[LaunchRun] = field(default_factory=list)
    ready: list[str] = field(default_factory=list)
    """Status of the condition Ready after each step."""
    decision: Decision | None = None

    @classmethod
    def at(cls, phase: Phase, target: Target | None = None) -> Rest:
        """Return a rest that has been reached."""
        rest = cls(open_gate(phase, target or RESTS[phase]))
        rest.last(60)
        assert rest.ready[-1] == "True", rest.words
        rest.launched.clear()
        rest.ready.clear()
        return rest

    def last(self, seconds: float, step_seconds: float = STEP_SECONDS) -> Rest:
        """Let time pass."""
        until = self.situation.now + timedelta(seconds=seconds)
        while self.situation.now < until:
            self.step(step_seconds)
        return self

    def step(self, seconds: float = STEP_SECONDS) -> None:
        """Look and decide once."""
        self._mirror()
        self._run()
        self.decision = self.situation.decide()
        self.launched += [action for action in self.decision.actions if isinstance(action, LaunchRun)]
        self.ready.append(self.said(ConditionType.READY)[0])
        self.situation = self.situation.after(self.decision).later(seconds)

    def _mirror(self) -> None:
        seen = self.situation.observation.zookeeper
        if not self.moves or not isinstance(seen, ZooKeeperState) or seen.migration is None:
            return
        passed = int((self.situation.now - NOW).total_seconds() * 2)
        migration = replace(seen.migration, kraft_metadata_offset=5_000 + passed)  # type: ignore[type-var]
        self.see(zookeeper=replace(seen, migration=migration))

    def _run(self) -> None:
        followed = self.situation.status.followed_run
        if followed is None or followed.finished_at is not None:
            return
        run = VerificationRun(followed.run_id, RunState.RUNNING)
        if followed.released_at is None:
            run = VerificationRun(followed.run_id, RunState.ARMED)
        elif self.situation.now - followed.launched_at >= timedelta(seconds=RUN_SECONDS):
            run = VerificationRun(followed.run_id, RunState.FINISHED, verdict=summary(followed, self.verdict))
        self.see(run=run)

    def see(self, **parts: Any) -> None:
        """Let the operator observe something else from now on."""
        self.situation = self.situation.observing(**parts)

    def said(self, kind: ConditionType) -> tuple[str, Reason]:
        """Return status and reason of a condition."""
        assert self.decision is not None
        found = condition(self.decision.status.conditions, kind)
        assert found is not None
        return found.status, found.reason

    @property
    def words(self) -> str:
        assert self.decision is not None
        return self.decision.status.message

    @property
    def phase(self) -> Phase:
        return self.situation.status.phase

    @property
    def flaps(self) -> int:
        """How often Ready changed."""
        return sum(one != other for one, other in zip(self.ready, self.ready[1:], strict=False))


# ------------------------------------------------------------------------------------------------- a quiet day


@pytest.mark.parametrize("phase", RESTS)
def test_a_day_at_rest_costs_at_most_two_runs_and_no_flap(phase: Phase) -> None:
    """Before: 130 runs and 260 changes of Ready at QuorumReady and DualWrite, and no run at all at AwaitingFinalization.

    The offset that moves is no change.
    """
    rest = Rest.at(phase).last(DAY_SECONDS, SLOW_STEP)
    # An earlier release has not recorded what its verdict was about, so it is found anew.
    assert len(rest.launched) == (phase in VERIFIED)
    assert (rest.flaps, rest.ready[-1], rest.phase) == (0, "True", phase)
    rest.last(2 * 3600, SLOW_STEP)
    assert len(rest.launched) == 2 * (phase in VERIFIED), "once a day without a change"
    assert rest.flaps == 0


# ------------------------------------------------------------------------------------- what a rest hid until now


def _broker_down(_: Situation) -> dict[str, Any]:
    fine = broker_set(BrokerMode.KRAFT)
    pods = tuple(
        replace(p, ready=False, ready_since=None, trouble="CrashLoopBackOff: last exit 1") if p.ordinal == 0 else p
        for p in fine.pods
    )
    seen = cluster(
        brokers=frozenset({1, 2}),
        offline=("t-0",),
        offline_count=40,
        under_replicated=("t-1",),
        under_replicated_count=100,
        lagging=frozenset({0}),
    )
    return {
        "stateful_sets": (replace(fine, pods=pods),),
        "cluster": seen,
        "cluster_by_broker": {1: seen, 2: seen},
        "metrics": controller_metrics(ZkMigrationState.MIGRATION, 0, 2, fenced=1),
    }


def _fenced(_: Situation) -> dict[str, Any]:
    return {"metrics": controller_metrics(ZkMigrationState.MIGRATION, 0, 2, fenced=1)}


def _offline(_: Situation) -> dict[str, Any]:
    seen = cluster(offline=("t-0",), offline_count=40)
    return {"cluster": seen, "cluster_by_broker": dict.fromkeys(BROKER_IDS, seen)}


def _controllers_gone(_: Situation) -> dict[str, Any]:
    return {"controllers": ControllersWorkload(None), "quorum": GONE, "metrics": LOST_METRICS, "features": GONE}


def _quorum_lost(_: Situation) -> dict[str, Any]:
    return {"quorum": GONE, "metrics": LOST_METRICS}


def _zookeeper_silent(_: Situation) -> dict[str, Any]:
    return {"zookeeper": Unobserved("ZooKeeper", "no session in 5 s")}


def _zookeeper_wiped(situation: Situation) -> dict[str, Any]:
    seen = situation.observation.zookeeper
    assert isinstance(seen, ZooKeeperState)
    return {"zookeeper": replace(seen, controller=None, migration=None)}


LIES: dict[str, tuple[Callable[[Situation], dict[str, Any]], str]] = {
    "a broker in CrashLoopBackOff": (_broker_down, "kafka-0"),
    "a fenced broker": (_fenced, "2 of 3 brokers are registered and unfenced"),
    "partitions without a leader": (_offline, "40 partition(s) without a leader"),
    "no controllers": (_controllers_gone, "demo-kraft"),
    "no quorum": (_quorum_lost, "no answer"),
    "ZooKeeper does not answer": (_zookeeper_silent, "no session"),
    "ZooKeeper was wiped": (_zookeeper_wiped, "ZooKeeper"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_rest_in_which_a_gate_closes_is_not_ready_within_a_minute(lie: str) -> None:
    """p14: Ready was True with all controllers gone, ZooKeeper wiped, and 40 partitions offline."""
    breaks, words = LIES[lie]
    rest = Rest.at(Phase.AWAITING_FINALIZATION)
    before = rest.situation.observation
    rest.see(**breaks(rest.situation))
    rest.last(MINUTE_SECONDS)
    assert rest.said(ConditionType.READY)[0] == "False"
    assert words in rest.words
    assert rest.phase is Phase.AWAITING_FINALIZATION
    assert rest.flaps <= 1
    if rest.said(ConditionType.READY)[1] is Reason.DEGRADED:
        assert rest.said(ConditionType.RECONCILING)[0] == "True"
        assert rest.said(ConditionType.STALLED)[0] == "False"
    rest.situation = replace(rest.situation, observation=replace(before, at=rest.situation.now))
    rest.last(3 * MINUTE_SECONDS)  # a ZooKeeper that was another one is verified first
    assert rest.said(ConditionType.READY) == ("True", Reason.AWAITING_USER), rest.words


def test_a_mirror_that_stands_still_is_no_rest_although_nobody_may_heal_it() -> None:
    rest = Rest.at(Phase.AWAITING_FINALIZATION)
    never = rest.situation.spec.verification.model_copy(update={"healing": Healing.NEVER})
    rest.situation = rest.situation.asking(verification=never)
    rest.moves = False
    rest.last(MINUTE_SECONDS)
    assert rest.said(ConditionType.READY) == ("False", Reason.DEGRADED)
    assert "the offset in /migration stays at" in rest.words


@pytest.mark.parametrize(("phase", "target"), RESTS.items())
def test_every_rest_with_something_of_ours_needs_what_it_rests_on(phase: Phase, target: Target) -> None:
    situation = open_gate(phase, target)
    wanted = needs(situation.status, situation.now)
    assert (not gates_at(situation.status)) is (phase is Phase.PREFLIGHT)
    seen = _reduced(situation, wanted)
    step = StepContext(situation.identity, situation.spec, seen, situation.now, situation.status)
    for gate in gates_at(situation.status):
        assert gate(step) == []


def _reduced(situation: Situation, wanted: frozenset[Any]) -> Any:
    seen = situation.observation
    not_read = Unobserved("it", "not needed in this phase")
    parts = ("zookeeper", "quorum", "cluster", "cluster_by_broker", "controllers", "registered_controllers")
    read = {str(part.value) for part in wanted}
    return replace(seen, **{part: not_read for part in parts if part not in read})


@pytest.mark.parametrize(
    "phase", [Phase.PROVISIONING_QUORUM, Phase.DUAL_WRITE, Phase.AWAITING_FINALIZATION, Phase.COMPLETED]
)
def test_a_rest_without_its_quorum_is_not_ready(phase: Phase) -> None:
    rest = Rest.at(phase)
    rest.see(**_quorum_lost(rest.situation))
    rest.last(MINUTE_SECONDS)
    assert rest.said(ConditionType.READY)[0] == "False"
    assert rest.phase is phase


def test_after_the_hand_over_nothing_of_ours_can_be_missing() -> None:
    rest = Rest.at(Phase.COMPLETED)
    hand_over = rest.situation.status.hand_over
    assert hand_over is not None
    rest.situation = rest.situation.with_status(hand_over=hand_over.model_copy(update={"ended_at": NOW}))
    rest.see(**_quorum_lost(rest.situation))
    rest.last(MINUTE_SECONDS)
    assert rest.said(ConditionType.READY)[0] == "True", "the quorum is its owner's"


@pytest.mark.parametrize("phase", VERIFIED)
@pytest.mark.parametrize("missed", ["zookeeper", "quorum", "cluster", "cluster_by_broker", "stateful_sets"])
def test_one_missed_look_changes_nothing(phase: Phase, missed: str) -> None:
    rest = Rest.at(phase)
    before = getattr(rest.situation.observation, missed)
    not_seen = Unobserved(missed, "no answer in time")
    for _ in range(5):
        rest.see(**{missed: (not_seen,) if missed == "stateful_sets" else not_seen})
        rest.step()
        rest.see(**{missed: before})
        rest.last(20)
    assert rest.flaps == 0, rest.words
    assert rest.launched == []


def test_a_rest_that_stays_broken_asks_for_help() -> None:
    """However long the migration has rested before: the deadline counts from when the gate closed."""
    rest = Rest.at(Phase.AWAITING_FINALIZATION).last(6 * 3600, SLOW_STEP)
    rest.see(**_offline(rest.situation))
    rest.last(120)
    assert rest.said(ConditionType.STALLED)[0] == "False"
    rest.last(rest.situation.spec.strategy.phase_deadline_seconds)
    assert rest.said(ConditionType.STALLED) == ("True", Reason.DEADLINE_EXCEEDED)
    assert rest.said(ConditionType.READY)[0] == "False"


def test_another_target_is_not_held_back_by_the_rest() -> None:
    """The damping is for a rest; the user's edit shows at once."""
    rest = Rest.at(Phase.AWAITING_FINALIZATION)
    edited = replace(rest.situation.identity, generation=IDENTITY.generation + 1)
    rest.situation = replace(rest.situation.asking(Target.KRAFT), identity=edited)
    rest.see(**_offline(rest.situation))
    rest.step()
    assert rest.said(ConditionType.READY)[0] == "False"


def test_no_look_at_a_wiped_zookeeper_promises_a_way_back() -> None:
    """p14: RollbackPossible was True with the reason NothingChanged, while ZooKeeper held nothing."""
    rest = Rest(open_gate(Phase.AWAITING_FINALIZATION, Target.KRAFT_BROKERS))
    rest.see(**_zookeeper_wiped(rest.situation))
    for _ in range(12):
        rest.step()
        assert rest.said(ConditionType.ROLLBACK_POSSIBLE)[0] != "True"


# ------------------------------------------------------------------------------------------- what is verified again


def _another_leader(situation: Situation) -> dict[str, Any]:
    state = (
        ZkMigrationState.PRE_MIGRATION
        if situation.status.phase is Phase.PROVISIONING_QUORUM
        else ZkMigrationState.MIGRATION
    )
    on_kraft = situation.status.phase is Phase.AWAITING_FINALIZATION
    migrating = 3 if situation.status.phase is Phase.DUAL_WRITE else 0
    registered = 0 if state is ZkMigrationState.PRE_MIGRATION else 3
    metrics = controller_metrics(state, 0 if on_kraft else migrating, registered, 3001, 3)
    return {"quorum": quorum(3001, 3), "metrics": metrics}


def _another_pod(situation: Situation) -> dict[str, Any]:
    (brokers,) = situation.observation.stateful_sets
    return {"stateful_sets": (replace(brokers, pods=(replace(brokers.pods[0], uid="another"), *brokers.pods[1:])),)}


def _another_template(situation: Situation) -> dict[str, Any]:
    (brokers,) = situation.observation.stateful_sets
    pods = tuple(replace(p, revision="rev-next") for p in brokers.pods)
    return {"stateful_sets": (replace(brokers, update_revision="rev-next", pods=pods),)}


def _another_controller_in_zookeeper(situation: Situation) -> dict[str, Any]:
    seen = situation.observation.zookeeper
    assert isinstance(seen, ZooKeeperState)
    return {"zookeeper": replace(seen, controller_epoch=(seen.controller_epoch or 0) + 1)}


def _other_configs(situation: Situation) -> dict[str, Any]:
    seen = situation.observation.zookeeper
    assert isinstance(seen, ZooKeeperState)
    return {"zookeeper": replace(seen, changes={"/config/changes": 8, "/kafka-acl-changes": 1})}


CHANGES = {
    "leader": _another_leader,
    "pods": _another_pod,
    "templates": _another_template,
    "zookeeper": _another_controller_in_zookeeper,
    "configs": _other_configs,
}


@pytest.mark.parametrize("phase", VERIFIED)
@pytest.mark.parametrize("change", CHANGES)
def test_what_changed_is_verified_again_once_and_the_rest_stays_ready(phase: Phase, change: str) -> None:
    rest = Rest.at(phase).last(3 * 3600, SLOW_STEP)
    rest.launched.clear()
    rest.ready.clear()
    rest.see(**CHANGES[change](rest.situation))
    rest.last(180)
    assert len(rest.launched) == 1, rest.words
    rest.last(4 * 3600, SLOW_STEP)
    assert len(rest.launched) == 1, "the verdict is about what is there now"
    assert rest.flaps == 0


def test_a_cluster_that_changes_all_the_time_is_verified_once_an_hour() -> None:
    rest = Rest.at(Phase.DUAL_WRITE).last(3 * 3600, SLOW_STEP)
    rest.launched.clear()
    for number in range(6 * 60):
        seen = rest.situation.observation.zookeeper
        assert isinstance(seen, ZooKeeperState)
        rest.see(zookeeper=replace(seen, changes={"/config/changes": number}))
        rest.last(60, SLOW_STEP)
    assert 5 <= len(rest.launched) <= 7
    assert rest.flaps == 0


def test_nothing_is_verified_while_a_gate_of_the_rest_is_closed() -> None:
    rest = Rest.at(Phase.AWAITING_FINALIZATION).last(3 * 3600, SLOW_STEP)
    rest.launched.clear()
    rest.see(**_broker_down(rest.situation))
    rest.last(3600, SLOW_STEP)
    assert rest.launched == []


def test_a_difference_that_is_found_at_rest_ends_it() -> None:
    rest = Rest.at(Phase.AWAITING_FINALIZATION)
    rest.verdict = Verdict.INCONSISTENT
    rest.last(2 * 3600, SLOW_STEP)
    assert rest.said(ConditionType.READY)[0] == "False"
    assert rest.said(ConditionType.METADATA_CONSISTENT) == ("False", Reason.INCONSISTENT)
    assert rest.flaps == 1
    assert rest.phase is Phase.AWAITING_FINALIZATION
    rest.verdict = Verdict.CONSISTENT
    rest.last(600)
    assert rest.said(ConditionType.READY)[0] == "True"


def test_one_run_without_a_verdict_is_repeated_and_three_ask_for_help() -> None:
    rest = Rest.at(Phase.DUAL_WRITE).last(20, SLOW_STEP)
    rest.verdict = Verdict.INCONCLUSIVE
    rest.last(3600 + 100, SLOW_STEP)
    assert (len(rest.launched) >= 1, rest.ready[-1]) == (True, "True")
    rest.last(2 * 3600, SLOW_STEP)
    assert rest.said(ConditionType.READY) == ("False", Reason.INCONCLUSIVE)
    assert rest.said(ConditionType.STALLED)[0] == "True"
    assert rest.flaps == 1, "it is not ready again while the next one runs"
    assert len(rest.launched) < 20
    rest.verdict = Verdict.CONSISTENT
    rest.last(1800, SLOW_STEP)
    assert rest.said(ConditionType.READY)[0] == "True"


def test_a_verdict_is_not_lost_although_only_one_run_is_kept() -> None:
    rest = Rest.at(Phase.DUAL_WRITE)
    kept = rest.situation.spec.verification.model_copy(update={"keep_runs": 1})
    rest.situation = rest.situation.asking(verification=kept)
    rest.last(2 * 3600, SLOW_STEP)
    assert (rest.flaps, len(rest.launched)) == (0, 1)


@pytest.mark.parametrize("phase", [Phase.DUAL_WRITE, Phase.AWAITING_FINALIZATION, Phase.PROVISIONING_QUORUM])
def test_a_gate_before_a_forward_step_still_needs_a_fresh_verdict(phase: Phase) -> None:
    rest = Rest.at(phase).last(4 * 3600, SLOW_STEP)
    rest.launched.clear()
    rest.situation = rest.situation.asking(Target.KRAFT)
    rest.step()
    assert len(rest.launched) == 1
    assert rest.phase is phase
