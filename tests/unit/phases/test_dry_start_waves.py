"""The copies of a dry start run a few at a time: a big cluster takes longer, and a slow copy holds its own place alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.observations import NOW, open_gate

from kraftbridge.copies.dry_start import copies_of
from kraftbridge.models.decision import CollectRun, Decision, ReleaseRun
from kraftbridge.models.dry_start import (
    DryStartPlan,
    DryStartRun,
    DryStartStage,
    DryStartState,
    FenceProof,
    RunPod,
)
from kraftbridge.models.phase import BrokerMode, Phase
from kraftbridge.models.runs import DRY_START_PARALLEL, DRY_START_POD_LIMIT
from kraftbridge.models.status import DryStartRunStatus, DryStartStatus

KEYS = copies_of("kafka", range(60), (BrokerMode.UPGRADED,))
"""Of sixty brokers that are brought to another release."""
NAMES = tuple(f"{key.mode.lower()}-{key.ordinal}" for key in KEYS)
DEADLINE = 120.0
"""After which the kubelet ends a copy."""
LIMIT = DRY_START_POD_LIMIT.total_seconds()


@dataclass
class Cluster:
    """The pods of a dry start, and the operator that takes its steps."""

    names: tuple[str, ...] = NAMES
    takes: Callable[[str], float] = lambda _name: 5.0
    """How many seconds a copy runs."""
    fits: Callable[[str], bool] = lambda _name: True
    """Whether a copy finds a node."""
    lost: Callable[[float], bool] = lambda _seconds: False
    """Whether the operator dies before it acts, so many seconds after the beginning."""
    stage: DryStartStage = DryStartStage.COPIES
    now: datetime = NOW
    released: dict[str, datetime] = field(default_factory=dict)
    ended: dict[str, datetime] = field(default_factory=dict)
    most: int = 0
    """Most copies that ran at once."""

    def __post_init__(self) -> None:
        run = DryStartRunStatus(
            run_id="r",
            digest="same",
            launched_at=NOW,
            generation=1,
            broker_ids={},
            cluster_id="c",
            stage=self.stage,
            stage_at=NOW,
        )
        self.case = open_gate(Phase.PREFLIGHT).with_status(dry_start=DryStartStatus(count=1, running=run))

    @property
    def run(self) -> DryStartRunStatus:
        """The run as it is recorded."""
        assert self.case.status.dry_start is not None
        assert self.case.status.dry_start.running is not None
        return self.case.status.dry_start.running

    def seen(self) -> DryStartRun:
        proof = FenceProof("probe", ended=True)
        made = frozenset({DryStartStage.COPIES})
        return DryStartRun("r", DryStartPlan(KEYS), made=made, proof=proof, pods=tuple(map(self._pod, self.names)))

    def _pod(self, name: str) -> RunPod:
        if name not in self.released:
            return RunPod(name, gated=True, trouble="SchedulingGated: ")
        trouble = "" if self.fits(name) else "Unschedulable: 0/3 nodes are available"
        return RunPod(name, ended=name in self.ended, trouble=trouble)

    def step(self, seconds: float = 1.0) -> Decision:
        """Let time pass, and take a step; what it releases begins."""
        self.now += timedelta(seconds=seconds)
        for name, at in self.released.items():
            runs_for = min(self.takes(name), DEADLINE)
            if self.fits(name) and name not in self.ended and self.now - at >= timedelta(seconds=runs_for):
                self.ended[name] = self.now
        state = DryStartState("same", run=self.seen())
        case = replace(self.case, now=self.now).observing(dry_start=state)
        decision = case.step()
        self.case = case.with_status(dry_start=decision.status.dry_start)
        if not self.lost((self.now - NOW).total_seconds()):
            for action in decision.actions:
                if isinstance(action, ReleaseRun):
                    assert set(action.pods) <= set(self.names)
                    self.released |= dict.fromkeys(set(action.pods) - self.released.keys(), self.now)
        self.most = max(self.most, len(self.released) - len(self.ended))
        return decision

    def walk(self, steps: int = 1000, seconds: float = 1.0) -> float:
        """Take steps until what the copies show is collected; return how many seconds that took."""
        for _ in range(steps):
            decision = self.step(seconds)
            if any(isinstance(action, CollectRun) for action in decision.actions):
                return (self.now - NOW).total_seconds()
            assert self.case.status.dry_start is not None
            assert self.case.status.dry_start.running is not None, self.case.status.dry_start.problem
        raise AssertionError("nothing was collected")


def test_the_copies_of_sixty_brokers_run_a_few_at_a_time_and_all_of_them_end() -> None:
    cluster = Cluster()
    cluster.walk()
    assert len(NAMES) == 124
    assert cluster.most == DRY_START_PARALLEL
    assert cluster.ended.keys() == set(NAMES)


def test_the_copies_begin_in_the_order_of_the_plan() -> None:
    cluster = Cluster()
    cluster.step()
    assert set(cluster.released) == set(NAMES[:DRY_START_PARALLEL])


def test_a_proven_fence_lets_no_more_begin_than_there_are_places() -> None:
    cluster = Cluster(stage=DryStartStage.PROBE)
    cluster.walk()
    assert cluster.most == DRY_START_PARALLEL
    assert cluster.ended.keys() == set(NAMES)


def test_a_stage_takes_as_long_as_its_waves_take() -> None:
    cluster = Cluster(takes=lambda _: 20.0)
    assert 600 < cluster.walk() < 700
    assert cluster.ended.keys() == set(NAMES)


def test_a_slow_copy_holds_only_its_own_place() -> None:
    fine = Cluster().walk()
    slow = Cluster(takes=lambda name: 80.0 if name == NAMES[0] else 5.0)
    assert slow.walk() < fine * DRY_START_PARALLEL / (DRY_START_PARALLEL - 1) + 5.0
    assert slow.ended.keys() == set(NAMES)


def test_a_copy_that_hangs_costs_its_own_time_and_not_that_of_the_others() -> None:
    cluster = Cluster(NAMES[:12], takes=lambda name: 1000.0 if name == NAMES[0] else 5.0)
    assert LIMIT < cluster.walk() < LIMIT + 5.0, "its time counts from when it was let go"
    assert cluster.ended.keys() == set(NAMES[1:12])
    last = Cluster(NAMES[:12], takes=lambda name: 1000.0 if name == NAMES[11] else 20.0)
    assert LIMIT + 40.0 < last.walk() < LIMIT + 70.0
    assert last.ended.keys() == set(NAMES[:11])


def test_a_copy_that_the_kubelet_ends_gives_its_place_to_the_next_one() -> None:
    cluster = Cluster(takes=lambda name: 1000.0 if name in NAMES[:3] else 5.0)
    cluster.walk()
    assert cluster.ended.keys() == set(NAMES)


def test_where_all_places_hang_the_stage_ends_and_the_others_never_began() -> None:
    cluster = Cluster(takes=lambda _: 1000.0)
    assert LIMIT < cluster.walk() < LIMIT + 5.0
    assert len(cluster.released) == DRY_START_PARALLEL
    assert cluster.ended == {}


def test_copies_that_find_no_node_while_others_run_wait_for_one() -> None:
    """The nodes have room for two copies."""
    cluster = Cluster(NAMES[:16], takes=lambda _: 15.0)

    def fits(name: str) -> bool:
        first = [each for each in NAMES if each in cluster.released and each not in cluster.ended][:2]
        return name in cluster.ended or name in first

    cluster.fits = fits
    cluster.walk()
    assert cluster.ended.keys() == set(NAMES[:16])


def test_copies_that_all_find_no_node_are_stuck_although_others_wait_behind_their_gates() -> None:
    cluster = Cluster(fits=lambda _: False)
    assert 20.0 < cluster.walk() < 25.0
    assert len(cluster.released) == DRY_START_PARALLEL


def test_a_copy_that_never_finds_a_node_holds_its_place_until_the_others_have_ended() -> None:
    cluster = Cluster(fits=lambda name: name != NAMES[1])
    cluster.walk()
    assert cluster.ended.keys() == set(NAMES) - {NAMES[1]}


def test_a_process_that_dies_before_it_acts_lets_another_one_release_the_same_copies() -> None:
    cluster = Cluster(lost=lambda seconds: seconds % 3 > 0)
    cluster.walk()
    assert cluster.most == DRY_START_PARALLEL
    assert cluster.ended.keys() == set(NAMES)


def test_an_operator_that_was_away_for_long_goes_on_with_what_waits() -> None:
    cluster = Cluster()
    for _ in range(20):
        cluster.step()
    cluster.step(600.0)
    cluster.walk()
    assert cluster.ended.keys() == set(NAMES)


def test_gates_that_cannot_be_removed_end_the_stage() -> None:
    cluster = Cluster(lost=lambda _: True)
    assert LIMIT < cluster.walk() < LIMIT + 5.0
    assert cluster.released == {}


def test_what_cannot_be_collected_is_given_up() -> None:
    cluster = Cluster()
    cluster.walk()
    while cluster.case.status.dry_start is not None and cluster.case.status.dry_start.running is not None:
        cluster.step()
    assert cluster.case.status.dry_start is not None
    assert "what the copies showed could not be collected within 90 s" in cluster.case.status.dry_start.problem
    assert cluster.now > max(cluster.released.values()) + DRY_START_POD_LIMIT


def test_the_message_says_how_many_copies_have_ended() -> None:
    cluster = Cluster()
    assert "0 of 124 copies have ended" in cluster.step().status.message
    for _ in range(12):
        decision = cluster.step()
    assert f"{len(cluster.ended)} of 124 copies have ended" in decision.status.message
    assert len(cluster.ended) == 2 * DRY_START_PARALLEL
    assert "have ended" not in Cluster(stage=DryStartStage.PROBE, names=()).case.decide().status.message


def test_the_record_has_no_more_copies_than_run() -> None:
    cluster = Cluster()
    for _ in range(60):
        cluster.step()
        assert len(cluster.run.released) <= DRY_START_PARALLEL


@settings(max_examples=25, deadline=None)
@given(times=st.lists(st.integers(1, 60), min_size=1, max_size=14), lost=st.sets(st.integers(1, 60)))
def test_in_whatever_order_copies_end_no_more_run_than_may_and_all_of_them_are_run(
    times: list[int], lost: set[int]
) -> None:
    names = NAMES[: len(times)]
    by_name = dict(zip(names, times, strict=True))
    cluster = Cluster(names, takes=by_name.__getitem__, lost=lambda seconds: int(seconds) in lost)
    cluster.walk()
    assert cluster.most <= DRY_START_PARALLEL
    assert cluster.ended.keys() == set(names)
