"""Healing by controller failovers: when, how often, after what was kept, and when no more."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.observations import NOW, RUN_ID, STATES_CREATED, Situation, open_gate, quorum, record, zookeeper

from kraftbridge.models.conditions import ConditionType, condition
from kraftbridge.models.decision import ArchiveDifferences, CreatePartitionStates, LaunchRun, RestartPod
from kraftbridge.models.observation import ActionOutcome, Archive, MigrationZnode, Unobserved
from kraftbridge.models.phase import Phase, Target
from kraftbridge.models.report import Profile, Verdict
from kraftbridge.models.spec import Healing
from kraftbridge.models.status import HealingKind, HealingStatus, MigrationOffset, Operation, OperationKind
from kraftbridge.phases import healing

ARCHIVE = f"{RUN_ID}-archive"
SETTINGS = tuple(Healing)
GATES = {
    Phase.DUAL_WRITE: Phase.ROLLING_BROKERS,
    Phase.ROLLING_BROKERS: Phase.AWAITING_FINALIZATION,
    Phase.AWAITING_FINALIZATION: Phase.AWAITING_FINALIZATION,
}
FOUND: dict[str, tuple[int, int, int]] = {
    "a lost partition state": (1, 1, 1),
    "an ACL in ZooKeeper alone": (1, 1, 0),
    "both": (2, 2, 1),
    "a voter that differs": (1, 0, 0),
    "an ACL and a voter": (2, 1, 0),
    "a blocking finding besides": (2, 1, 1),
}
"""Differing entities: all, those that only ZooKeeper has otherwise, and those of them that are partition state."""
HEALED_BY = {
    "a lost partition state": {Healing.PARTITION_STATE, Healing.AUTO},
    "an ACL in ZooKeeper alone": {Healing.AUTO},
    "both": {Healing.AUTO},
}


def allowing(situation: Situation, setting: Healing) -> Situation:
    return situation.asking(verification=situation.spec.verification.model_copy(update={"healing": setting}))


def inconsistent(phase: Phase, found: str, setting: Healing, **status: Any) -> Situation:
    differing, mirror, state = FOUND[found]
    verdict = record(
        Profile.DUAL_WRITE, GATES[phase], verdict=Verdict.INCONSISTENT,
        differing=differing, mirror_differing=mirror, partition_state_differing=state,
    )  # fmt: skip
    return allowing(open_gate(phase), setting).with_status(verifications=(verdict,), **status)


def under_way(failovers: int = 0, **changes: Any) -> HealingStatus:
    fields: dict[str, Any] = {
        "kind": HealingKind.DIFFERENCES, "started_at": NOW - timedelta(seconds=4), "run_id": RUN_ID, "entities": 1, "archive": ARCHIVE,
        "archived_at": NOW - timedelta(seconds=3), "failovers": failovers,
    }  # fmt: skip
    return HealingStatus(**(fields | changes))


def restarted(situation: Situation) -> list[int]:
    """Return which controllers restart once the states that partitions lack are created, which comes before each failover."""
    decision = situation.decide()
    if decision.actions == (CreatePartitionStates(),):
        decision = situation.observing(outcomes=STATES_CREATED).decide()
    return [a.node_id for a in decision.actions if isinstance(a, RestartPod)]


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("found", FOUND)
@pytest.mark.parametrize("phase", GATES)
def test_only_what_a_failover_heals_and_the_user_allows_is_healed(phase: Phase, found: str, setting: Healing) -> None:
    situation = inconsistent(phase, found, setting)
    decision = situation.decide()
    assert decision.status.phase is phase
    assert restarted(situation) == [], "nothing is overwritten before it is archived"
    if setting in HEALED_BY.get(found, set()):
        assert decision.actions == (ArchiveDifferences(RUN_ID, ARCHIVE),)
        assert decision.status.healing is not None
        assert decision.status.healing.failovers == 0
    else:
        assert not [a for a in decision.actions if isinstance(a, ArchiveDifferences)]
        assert decision.status.healing is None
        stalled = condition(decision.status.conditions, ConditionType.STALLED)
        assert stalled is not None
        assert (stalled.status, stalled.reason) == ("True", "Inconsistent")
        assert f"{RUN_ID}-verification" in decision.status.message
        assert ("healing=Auto" in decision.status.message) is (found in HEALED_BY)


@pytest.mark.parametrize(
    "archive", [None, Unobserved("API server", "silent"), Archive("another-run", 1), Archive(RUN_ID, 0)], ids=str
)
def test_no_failover_before_the_archive_is_seen_whole(archive: Any) -> None:
    situation = inconsistent(Phase.DUAL_WRITE, "a lost partition state", Healing.AUTO).observing(archive=archive)
    assert restarted(situation) == []
    assert ArchiveDifferences(RUN_ID, ARCHIVE) in situation.decide().actions, "a lost act is repeated"


def test_the_active_controller_is_restarted_and_counted_before() -> None:
    situation = inconsistent(Phase.DUAL_WRITE, "a lost partition state", Healing.PARTITION_STATE)
    situation = situation.observing(archive=Archive(RUN_ID, 1))
    before = situation.decide()
    assert before.actions == (CreatePartitionStates(),)
    assert before.status.healing is not None
    assert before.status.healing.failovers == 0, "nothing restarts yet"
    assert "partitions that have no state" in before.status.message
    decision = situation.observing(outcomes=STATES_CREATED).decide()
    assert restarted(situation) == [3000]
    current = decision.status.healing
    assert current is not None
    assert (current.failovers, current.failover_at, current.failover_epoch) == (1, NOW, 2)
    assert current.archived_at == NOW
    assert decision.status.operation is not None
    assert decision.status.operation.kind is OperationKind.RESTART_CONTROLLER


def test_states_that_cannot_be_created_do_not_keep_a_failover_from_healing_the_rest() -> None:
    situation = inconsistent(Phase.DUAL_WRITE, "both", Healing.AUTO, healing=under_way())
    error = "creation of partition states in ZooKeeper failed: NoAuthError"
    failed = situation.observing(outcomes=(ActionOutcome(CreatePartitionStates.__name__, error),))
    assert [a.node_id for a in failed.decide().actions if isinstance(a, RestartPod)] == [3000]


def test_states_are_created_before_every_failover() -> None:
    situation = allowing(standing(PATIENCE), Healing.PARTITION_STATE)
    assert situation.decide().actions == (CreatePartitionStates(),)
    patience = situation.spec.strategy.sync_patience_seconds
    again = after_failover(1, patience)
    assert again.decide().actions == (CreatePartitionStates(),)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("found", FOUND)
def test_where_no_failover_follows_missing_states_are_created_before_each_comparison(
    found: str, setting: Healing
) -> None:
    situation = inconsistent(Phase.DUAL_WRITE, found, setting, healing=under_way(3, given_up_at=NOW))
    early = situation.decide()
    assert not early.actions
    later = situation.later(70).decide()
    assert [a for a in later.actions if isinstance(a, LaunchRun)]
    creates = setting is not Healing.NEVER and FOUND[found][2] > 0
    assert (CreatePartitionStates() in later.actions) is creates


@pytest.mark.parametrize(
    "spoiled",
    [
        {"quorum": Unobserved("quorum", "silent")},
        {"quorum": quorum(lags={3001: 500})},
        {"metrics": {}},
        {"controllers": Unobserved("API server", "silent")},
    ],
    ids=["no quorum", "a voter lags", "no metrics", "no pods seen"],
)
def test_no_failover_without_a_whole_quorum(spoiled: dict[str, Any]) -> None:
    situation = inconsistent(Phase.DUAL_WRITE, "both", Healing.AUTO, healing=under_way())
    assert restarted(situation) == [3000]
    assert restarted(situation.observing(**spoiled)) == []


def test_pause_holds_a_failover() -> None:
    situation = inconsistent(Phase.DUAL_WRITE, "both", Healing.AUTO, healing=under_way())
    assert restarted(situation.asking(paused=True)) == []


def after_failover(count: int = 1, seconds_ago: float = 5, **changes: Any) -> Situation:
    at = NOW - timedelta(seconds=seconds_ago)
    fields = {"failover_at": at, "failover_epoch": 2, **changes}
    return inconsistent(Phase.DUAL_WRITE, "both", Healing.AUTO, healing=under_way(count, **fields))


def migration(epoch: int, offset: int) -> Any:
    return replace(zookeeper(taken_over=True), migration=MigrationZnode(3001, epoch, offset, epoch))


def test_verified_again_only_when_the_offset_moves_under_a_newer_epoch() -> None:
    same_epoch = after_failover().observing(zookeeper=migration(2, 6_000))
    claimed = after_failover().observing(zookeeper=migration(3, 5_000))
    for early in (same_epoch, claimed):
        assert not [a for a in early.decide().actions if isinstance(a, LaunchRun)]
    seen = claimed.after(claimed.decide())
    assert seen.status.healing is not None
    assert seen.status.healing.resumed_offset == "5000"
    assert seen.decide().status.healing.synced_at is None  # type: ignore[union-attr]
    moved = seen.observing(zookeeper=migration(3, 5_002))
    decision = moved.decide()
    assert [a for a in decision.actions if isinstance(a, LaunchRun)]
    assert decision.status.healing is not None
    assert decision.status.healing.failovers == 1


@pytest.mark.parametrize(("count", "again"), [(1, True), (2, True), (3, False)])
def test_a_failover_that_leads_to_no_sync_is_repeated_twice_at_most(count: int, again: bool) -> None:
    patience = open_gate(Phase.DUAL_WRITE).spec.strategy.sync_patience_seconds
    assert restarted(after_failover(count, patience - 1)) == []
    situation = after_failover(count, patience)
    assert restarted(situation) == ([3000] if again else [])
    if not again:
        decision = situation.decide()
        assert CreatePartitionStates() not in decision.actions
        assert decision.status.healing is not None
        assert decision.status.healing.given_up_at == NOW
        later = situation.after(decision).later(5)
        assert restarted(later) == []
        assert "given up after 3" in later.decide().status.message


@pytest.mark.parametrize(("count", "again"), [(1, True), (2, True), (3, False)])
def test_what_still_differs_after_a_failover_is_archived_and_tried_again(count: int, again: bool) -> None:
    old = under_way(count, run_id="run-before", archive="run-before-archive", failover_at=NOW, synced_at=NOW)
    situation = inconsistent(Phase.DUAL_WRITE, "both", Healing.AUTO, healing=old)
    decision = situation.decide()
    assert ArchiveDifferences(RUN_ID, ARCHIVE) in decision.actions
    archived = situation.after(decision).observing(archive=Archive(RUN_ID, 2))
    assert restarted(archived) == ([3000] if again else [])


def test_a_consistent_verdict_closes_the_books() -> None:
    fine = open_gate(Phase.DUAL_WRITE)
    pending = record(Profile.DUAL_WRITE, Phase.ROLLING_BROKERS, finished=False)
    from tests.support.observations import summary

    situation = fine.reporting(summary(pending)).with_status(
        healing=under_way(1, failover_at=NOW - timedelta(minutes=1))
    )
    decision = situation.decide()
    assert decision.status.healing is None
    assert [h.failovers for h in decision.status.healings] == [1]
    assert decision.status.healings[0].finished_at == NOW


def test_a_verdict_from_before_a_failover_opens_nothing() -> None:
    healed = under_way(1, failover_at=NOW - timedelta(seconds=2), finished_at=NOW, run_id="")
    situation = open_gate(Phase.DUAL_WRITE).with_status(healings=(healed,))
    decision = situation.decide()
    assert decision.status.phase is Phase.DUAL_WRITE
    assert [a for a in decision.actions if isinstance(a, LaunchRun)]


def standing(seconds: float, phase: Phase = Phase.DUAL_WRITE, **changes: Any) -> Situation:
    """Return a mirror that has been seen to stand still at 5,000 under a log that ends at 5,999."""
    since = NOW - timedelta(seconds=seconds)
    offset = MigrationOffset(
        offset="5000", seen_at=NOW - timedelta(seconds=1), moved_at=since - timedelta(seconds=1), standing_since=since
    )
    return open_gate(phase).with_status(**({"migration_offset": offset} | changes))


PATIENCE = open_gate(Phase.DUAL_WRITE).spec.strategy.sync_patience_seconds


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("phase", [Phase.TAKING_OVER, *GATES])
def test_a_mirror_that_stands_still_is_failed_over(phase: Phase, setting: Healing) -> None:
    situation = allowing(standing(PATIENCE, phase), setting)
    assert restarted(situation) == ([] if setting is Healing.NEVER else [3000])
    assert restarted(allowing(standing(PATIENCE - 1, phase), setting)) == []


@pytest.mark.parametrize("setting", [Healing.PARTITION_STATE, Healing.AUTO])
@pytest.mark.parametrize("found", FOUND)
@pytest.mark.parametrize("phase", GATES)
def test_a_failover_of_a_mirror_that_stands_still_overwrites_nothing_that_is_known_and_not_kept(
    phase: Phase, found: str, setting: Healing
) -> None:
    known = inconsistent(phase, found, setting).status.verifications
    situation = allowing(standing(PATIENCE, phase, verifications=known), setting)
    decision = situation.decide()
    allowed = setting in HEALED_BY.get(found, set())
    assert [a for a in decision.actions if isinstance(a, ArchiveDifferences)] == (
        [ArchiveDifferences(RUN_ID, ARCHIVE)] if allowed else []
    )
    assert restarted(situation) == []
    stalled = condition(decision.status.conditions, ConditionType.STALLED)
    assert (stalled is not None and stalled.status == "True") is not allowed
    if allowed:
        kept = situation.with_status(healing=decision.status.healing).observing(
            archive=Archive(RUN_ID, FOUND[found][0])
        )
        assert restarted(kept) == [3000]


def test_the_report_of_what_is_not_archived_yet_outlives_newer_runs() -> None:
    situation = inconsistent(Phase.DUAL_WRITE, "a lost partition state", Healing.AUTO)
    (found,) = situation.status.verifications
    keep = situation.spec.verification.keep_runs
    late = [
        found.model_copy(update={"run_id": f"later-{i}", "verdict": None, "finished_at": NOW - timedelta(seconds=90)})
        for i in range(keep)
    ]
    for archived_at, kept in ((None, True), (NOW, False)):
        current = under_way(archived_at=archived_at)
        after = situation.with_status(verifications=(found, *late), healing=current).decide().status
        assert after.verification_count == situation.status.verification_count + 1, "nothing was launched"
        assert (found in after.verifications) is kept


@pytest.mark.parametrize(
    "spoiled",
    [
        {"zookeeper": Unobserved("ZooKeeper", "silent")},
        {"quorum": Unobserved("quorum", "silent")},
        {"quorum": replace(quorum(), high_watermark=5_010)},
        {"metrics": {}},
        {"zookeeper": zookeeper(taken_over=False)},
    ],
    ids=["ZooKeeper unknown", "quorum unknown", "log stands too", "no active controller", "not claimed"],
)
def test_what_is_not_known_to_stand_still_is_left_alone(spoiled: dict[str, Any]) -> None:
    assert restarted(standing(PATIENCE).observing(**spoiled)) == []


def test_a_stuck_sync_is_failed_over_three_times_at_most_and_its_end_is_noted() -> None:
    for count, again in ((1, True), (2, True), (3, False)):
        current = HealingStatus(
            kind=HealingKind.STUCK_SYNC, started_at=NOW, failovers=count, failover_at=NOW - timedelta(seconds=PATIENCE), failover_epoch=1
        )  # fmt: skip
        assert restarted(standing(2 * PATIENCE, healing=current)) == ([3000] if again else [])
        fresh = current.model_copy(update={"failover_at": NOW - timedelta(seconds=5)})
        assert restarted(standing(2 * PATIENCE, healing=fresh)) == []
    resumed = current.model_copy(update={"resumed_offset": "4900"})
    decision = standing(0, healing=resumed).decide()
    assert decision.status.healing is None
    assert decision.status.healings[-1].failovers == 3
    gone = current.model_copy(update={"given_up_at": NOW})
    stalled = condition(standing(2 * PATIENCE, healing=gone).decide().status.conditions, ConditionType.STALLED)
    assert stalled is not None
    assert (stalled.status, stalled.reason) == ("True", "Healing")


@pytest.mark.parametrize("phase", GATES)
def test_a_failover_under_way_is_followed_in_every_phase(phase: Phase) -> None:
    operation = Operation(
        kind=OperationKind.RESTART_CONTROLLER, node_id=3000, pod="demo-kraft-3000", pod_uid="uid-before", started_at=NOW
    )
    situation = open_gate(phase).with_status(operation=operation)
    assert situation.decide().status.operation is None, "the successor is Ready and the quorum agrees"
    silent = situation.observing(quorum=Unobserved("quorum", "silent"))
    assert silent.decide().status.operation is not None


def test_rollback_heals_before_the_controllers_stop() -> None:
    verdict = record(
        Profile.DUAL_WRITE, Phase.ROLLING_BACK, "before-controllers-stop", Verdict.INCONSISTENT,
        differing=1, mirror_differing=1, partition_state_differing=1,
    )  # fmt: skip
    back = open_gate(Phase.DUAL_WRITE, Target.ZOOKEEPER).with_status(
        phase=Phase.ROLLING_BACK, verifications=(verdict,), verification_count=1
    )
    assert ArchiveDifferences(RUN_ID, ARCHIVE) in back.decide().actions
    assert restarted(back.observing(archive=Archive(RUN_ID, 1))) == [3000]


def test_gaps_in_watching_prove_no_standstill() -> None:
    offset = MigrationOffset(
        offset="5000", seen_at=NOW - timedelta(seconds=60), standing_since=NOW - timedelta(hours=1)
    )
    decision = open_gate(Phase.DUAL_WRITE).with_status(migration_offset=offset).decide()
    assert decision.status.migration_offset is not None
    assert decision.status.migration_offset.standing_since == NOW


def test_may_heal_is_closed_over_settings() -> None:
    nothing = record(Profile.DUAL_WRITE, Phase.ROLLING_BROKERS, verdict=Verdict.INCONSISTENT)
    assert not any(healing.may_heal(s, nothing) for s in Healing), "nothing that is known to differ is nothing to heal"
