"""A quorum that is lost for good: nothing is restored unasked, and each way out says what it loses."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.observations import (
    BROKER_IDS,
    CONTROLLER_IDS,
    NOW,
    Situation,
    broker_set,
    controllers_workload,
    kept_copy,
    open_gate,
    pod,
    quorum,
    zookeeper,
)

from kraftbridge.models.catalogue import Code
from kraftbridge.models.conditions import ConditionType, Reason, condition
from kraftbridge.models.decision import (
    ApplyControllers,
    Decision,
    HoldLease,
    KeepCopy,
    LaunchRun,
    ReleaseLease,
    RemoveControllerClaim,
    RemoveRun,
    RestartPod,
    StopControllers,
)
from kraftbridge.models.observation import ControllersWorkload, LeaseState, MigrationZnode, StatefulSetState, Unobserved
from kraftbridge.models.phase import BrokerMode, Phase, Target
from kraftbridge.models.report import Verdict
from kraftbridge.models.status import ZooKeeperBehind, ZooKeeperHistory, kept_copy_secrets

HELD = [Phase.DUAL_WRITE, Phase.ROLLING_BROKERS, Phase.AWAITING_FINALIZATION]
NO_QUORUM = Unobserved("quorum", "no leader")
BEHIND = ZooKeeperBehind(
    read_at=NOW - timedelta(seconds=20), partitions=2, partition_names=("orders-0", "orders-7"), topics=1, topic_names=("new",), deleted_topics=0
)  # fmt: skip
HARMLESS = (HoldLease, ReleaseLease, LaunchRun, RemoveRun, KeepCopy)


def claims(lost: int) -> dict[int, str]:
    """Return the claims after the first ones were lost: one is gone, the others are exchanged."""
    found = {node: f"pvc-{node}" for node in CONTROLLER_IDS}
    for node in CONTROLLER_IDS[:lost]:
        found[node] = f"pvc-other-{node}"
    if lost:
        del found[CONTROLLER_IDS[0]]
    return found


def without_volumes(phase: Phase, lost: int = 3, **changes: Any) -> Situation:
    """Return a situation in which controllers have lost their volumes."""
    fine = open_gate(phase)
    workload = replace(controllers_workload(), claims=claims(lost))
    history = ZooKeeperHistory(
        attempt=1, cluster_id=fine.status.cluster_id or "", migration_offset="4000", kraft_epoch=2, claim_epoch=2, controller_epoch=4, seen_at=NOW
    )  # fmt: skip
    behind = BEHIND if fine.status.lost_quorum is not None or lost > 1 else Unobserved("it", "not needed")
    return fine.with_status(zookeeper_history=history).observing(
        controllers=workload, quorum=quorum() if lost < 2 else NO_QUORUM, behind=behind, **changes
    )


def settled(situation: Situation) -> tuple[Situation, Decision]:
    """Return the situation and the decision once nothing but the user's word is waited for."""
    decision = situation.decide()
    for _ in range(4):
        situation = situation.after(decision)
        decision = situation.decide()
    return situation, decision


def changes_of(decision: Decision) -> list[Any]:
    return [a for a in decision.actions if not isinstance(a, HARMLESS)]


@pytest.mark.parametrize("phase", HELD)
@pytest.mark.parametrize("lost", [2, 3])
def test_nothing_is_restored_and_nothing_rolled_back_unasked(phase: Phase, lost: int) -> None:
    _, decision = settled(without_volumes(phase, lost))
    assert changes_of(decision) == []
    stalled = condition(decision.status.conditions, ConditionType.STALLED)
    assert stalled is not None
    assert (stalled.status, stalled.reason) == ("True", Reason.QUORUM_LOST)
    possible = condition(decision.status.conditions, ConditionType.ROLLBACK_POSSIBLE)
    assert possible is not None
    assert (possible.status, possible.reason) == ("False", Reason.QUORUM_LOST)
    message = decision.status.message
    assert "offset-5990-epoch-2" in message
    assert "orders-0, orders-7" in message
    assert "1 topic(s) that ZooKeeper lacks (new)" in message
    assert [f.code for f in decision.status.findings].count(Code.QUORUM_LOST) == 1


def test_a_broker_that_did_not_answer_is_named_in_what_the_way_back_loses() -> None:
    """Its partitions may have had elections that nobody else has heard of."""
    behind = BEHIND.model_copy(update={"silent": (1,)})
    _, decision = settled(without_volumes(Phase.DUAL_WRITE).observing(behind=behind))
    assert "what broker 1 alone knows, which did not answer" in decision.status.message


def test_one_lost_volume_of_three_is_no_lost_quorum() -> None:
    decision = without_volumes(Phase.DUAL_WRITE, 1).decide()
    assert decision.status.lost_quorum is None


def test_claims_that_were_not_read_are_not_lost() -> None:
    unread = without_volumes(Phase.DUAL_WRITE).observing(controllers=replace(controllers_workload(), claims=None))
    assert unread.decide().status.lost_quorum is None


@pytest.mark.parametrize(
    "unread", [Unobserved("controllers", "no answer"), replace(controllers_workload(), claims=None)]
)
def test_a_lost_quorum_stays_lost_while_its_claims_are_not_read(unread: ControllersWorkload | Unobserved) -> None:
    lost, _ = settled(without_volumes(Phase.DUAL_WRITE))
    decision = lost.observing(controllers=unread).decide()
    assert changes_of(decision) == []
    assert decision.status.lost_quorum == lost.status.lost_quorum


def test_the_finding_goes_when_the_volumes_are_back() -> None:
    lost, _ = settled(without_volumes(Phase.DUAL_WRITE))
    back = lost.observing(controllers=replace(controllers_workload(), claims=claims(0)), quorum=quorum()).decide()
    assert back.status.lost_quorum is None
    assert Code.QUORUM_LOST not in {f.code for f in back.status.findings}


def test_of_the_voter_that_is_left_a_newer_copy_is_kept_first() -> None:
    lost = without_volumes(Phase.DUAL_WRITE, 2).observing(kept_copy=None)
    asked = [a for a in lost.decide().actions if isinstance(a, KeepCopy)]
    assert [a.secret for a in asked] == [kept_copy_secrets(lost.identity.name, lost.identity.uid, 1)[1]]
    newer = kept_copy(asked[0].run_id, secret=asked[0].secret, id="offset-6001-epoch-2", end_offset="6001")
    decision = lost.after(lost.decide()).observing(kept_copy=newer).decide()
    assert decision.status.kept_copy == newer
    older = kept_copy(asked[0].run_id, secret=asked[0].secret, id="offset-10-epoch-2", end_offset="10")
    decision = lost.after(lost.decide()).observing(kept_copy=older).decide()
    assert decision.status.kept_copy == lost.status.kept_copy


def test_what_a_copy_lacks_is_compared_with_zookeeper_and_says_nothing_about_what_runs() -> None:
    lost = without_volumes(Phase.ROLLING_BROKERS)
    first = lost.decide()
    (launched,) = [a for a in first.actions if isinstance(a, LaunchRun)]
    assert launched.run_id == first.status.verifications[-1].run_id
    record = first.status.verifications[-1]
    assert record.is_forecast
    done = record.model_copy(update={"finished_at": NOW, "verdict": Verdict.INCONSISTENT, "differing": 7})
    decision = lost.with_status(**{**first.status.__dict__, "verifications": (done,)}).decide()
    assert "7 entities" in decision.status.message
    assert decision.status.healing is None
    consistent = condition(decision.status.conditions, ConditionType.METADATA_CONSISTENT)
    assert consistent is None or consistent.status != "False"


def test_another_name_than_the_kept_copys_is_refused() -> None:
    lost, _ = settled(without_volumes(Phase.DUAL_WRITE).asking(restore_controllers_from="offset-1-epoch-1"))
    decision = lost.decide()
    assert changes_of(decision) == []
    assert "offset-1-epoch-1, which is not the kept copy" in decision.status.message


def test_a_word_without_a_lost_quorum_restores_nothing() -> None:
    fine = open_gate(Phase.DUAL_WRITE).asking(restore_controllers_from="offset-5990-epoch-2")
    assert fine.decide().status.restoration is None


@pytest.mark.parametrize("phase", [*HELD, Phase.FINALIZING, Phase.COMPLETED])
def test_on_the_users_word_all_voters_start_from_the_copy_at_once(phase: Phase) -> None:
    lost, _ = settled(without_volumes(phase))
    asked = lost.asking(restore_controllers_from="offset-5990-epoch-2")
    begun = asked.decide()
    current = begun.status.restoration
    assert current is not None
    assert current.epoch > 1_000
    controllers = begun.status.controllers
    assert controllers is not None
    assert controllers.rendered is not None
    assert controllers.rendered.restored is not None
    assert controllers.rendered.restored.epoch == current.epoch
    assert [a for a in begun.actions if isinstance(a, ApplyControllers)]
    # Its template is another one now: every pod runs an outdated one.
    workload = controllers_workload(controllers.mode)
    stateful_set = workload.stateful_set
    assert stateful_set is not None
    rendered = replace(stateful_set, configuration=f"{controllers.mode}-restoring")
    held = tuple(
        replace(s, lease=LeaseState("us", ours=True, age_seconds=1.0))
        for s in asked.observation.stateful_sets
        if isinstance(s, StatefulSetState)
    )
    applied = asked.after(begun).observing(
        controllers=ControllersWorkload(rendered, claims=claims(3)), stateful_sets=held
    )
    restarting = applied.decide()
    assert sorted(a.node_id for a in restarting.actions if isinstance(a, RestartPod)) == list(CONTROLLER_IDS)
    # They are back, over other claims; without a leader it is not over.
    pods = tuple(replace(p, configuration=rendered.configuration) for p in stateful_set.pods)
    claimed = {i: f"pvc-new-{i}" for i in CONTROLLER_IDS}
    up = applied.after(restarting).observing(
        controllers=ControllersWorkload(replace(rendered, pods=pods), claims=claimed), quorum=NO_QUORUM
    )
    assert up.decide().status.restoration == current
    too_early = up.observing(quorum=replace(quorum(), leader_epoch=current.epoch - 1))
    assert too_early.decide().status.restoration == current
    leads = replace(quorum(), leader_epoch=current.epoch + 1, high_watermark=6_050, observers=frozenset({0, 1}))
    led = up.observing(quorum=leads).decide()
    assert led.status.restoration is not None
    assert (led.status.restoration.led_at, led.status.restoration.finished_at) == (NOW, None)
    # Broker 2 has run all along and does not follow the new leader.
    later = up.after(led).observing(quorum=leads).later(25)
    deaf = later.decide()
    assert [a.node_id for a in deaf.actions if isinstance(a, RestartPod)] == [2]
    led = later.after(deaf).observing(quorum=replace(leads, observers=frozenset(BROKER_IDS))).decide()
    assert led.status.restoration is not None
    assert led.status.restoration.finished_at == later.now
    assert led.status.controllers is not None
    assert led.status.controllers.volume_uids == {str(i): uid for i, uid in claimed.items()}
    assert led.status.lost_quorum is None


def test_a_verdict_from_before_the_restoration_opens_no_gate() -> None:
    lost, _ = settled(without_volumes(Phase.DUAL_WRITE))
    begun = lost.asking(restore_controllers_from="offset-5990-epoch-2").decide()
    assert begun.status.restoration is not None
    done = begun.status.restoration.model_copy(update={"finished_at": NOW})
    fine = open_gate(Phase.DUAL_WRITE)
    decision = fine.with_status(restoration=done).decide()
    assert decision.status.phase is Phase.DUAL_WRITE
    assert [a for a in decision.actions if isinstance(a, LaunchRun)]
    assert fine.decide().status.phase is not Phase.DUAL_WRITE


def test_an_offset_that_fell_by_a_restoration_is_no_contradiction() -> None:
    lost, _ = settled(without_volumes(Phase.DUAL_WRITE))
    begun = lost.asking(restore_controllers_from="offset-5990-epoch-2").decide()
    restoration = begun.status.restoration
    assert restoration is not None
    written = replace(
        zookeeper(taken_over=True), migration=MigrationZnode(3000, restoration.epoch + 1, 10, restoration.epoch + 1)
    )
    finished = restoration.model_copy(update={"finished_at": NOW})
    after = open_gate(Phase.DUAL_WRITE).with_status(
        restoration=finished, zookeeper_history=lost.status.zookeeper_history
    )
    known = after.observing(zookeeper=written).decide().status.zookeeper_history
    assert known is not None
    assert known.contradiction is None
    assert known.migration_offset == "10"
    # The same offset from an epoch before the restoration is one.
    older = replace(written, migration=MigrationZnode(3000, 2, 10, 2))
    contradicting = after.observing(zookeeper=older).decide().status.zookeeper_history
    assert contradicting is not None
    assert contradicting.contradiction is not None


def test_a_rollback_without_the_controllers_waits_for_its_forecast() -> None:
    lost = without_volumes(Phase.ROLLING_BROKERS).observing(behind=Unobserved("brokers", "no answer"))
    lost, _ = settled(lost)
    accepting = lost.spec.rollback.model_copy(update={"accept_loss": True})
    asked = lost.asking(Target.ZOOKEEPER, rollback=accepting)
    assert asked.decide().status.phase is Phase.ROLLING_BROKERS
    assert changes_of(asked.decide()) == []
    known = asked.observing(behind=BEHIND).decide()
    assert known.status.phase is Phase.ROLLING_BACK
    old = BEHIND.model_copy(update={"read_at": NOW - timedelta(hours=1)})
    assert asked.observing(behind=old).decide().status.phase is Phase.ROLLING_BROKERS


def going_back(done: int) -> Situation:
    """Return a rollback without the controllers, with the first brokers in KRaft mode."""
    lost, _ = settled(without_volumes(Phase.ROLLING_BROKERS))
    accepting = lost.spec.rollback.model_copy(update={"accept_loss": True})
    asked = lost.asking(Target.ZOOKEEPER, rollback=accepting)
    begun = asked.after(asked.decide())
    item = broker_set(BrokerMode.KRAFT)
    mixed = tuple(p if p.ordinal < done else pod(p.name, p.ordinal, configuration="Migration-1") for p in item.pods)
    return begun.observing(stateful_sets=(replace(item, pods=mixed),))


def test_the_controllers_stop_without_isolation_and_without_a_roll_to_migration_mode() -> None:
    decision = going_back(2).decide()
    assert [type(a) for a in changes_of(decision)] == [StopControllers]


def test_brokers_in_kraft_mode_restart_all_at_once() -> None:
    situation = going_back(2)
    stopped = situation.after(situation.decide()).observing(
        controllers=ControllersWorkload(None), zookeeper=replace(zookeeper(taken_over=True))
    )
    claim = stopped.decide()
    assert [a for a in claim.actions if isinstance(a, RemoveControllerClaim)]
    item = situation.observation.stateful_sets[0]
    assert not isinstance(item, Unobserved)
    free = zookeeper(taken_over=False, brokers=BROKER_IDS)
    gone = stopped.after(claim).observing(zookeeper=free)
    restored = replace(item, configuration="", overlay="", pods=item.pods)
    decision = gone.observing(stateful_sets=(restored,)).decide()
    assert sorted(a.node_id for a in decision.actions if isinstance(a, RestartPod)) == [0, 1]
