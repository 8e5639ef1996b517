"""metadata.version after the migration: what must hold before it is changed, and what is believed afterwards."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.metadata_versions import HIGH_WATERMARK, accepted, asking, changing, validating, verifying_after
from tests.support.observations import (
    BROKER_IDS,
    BROKER_SET,
    CONTROLLER_IDS,
    NOW,
    broker_set,
    cluster,
    controller_metrics,
    features,
    open_gate,
    pod,
    quorum,
    record,
    summary,
)

from kraftbridge.models.conditions import ConditionType, Reason, condition
from kraftbridge.models.decision import Decision, EventReason, LaunchRun, UpdateMetadataVersion
from kraftbridge.models.metadata_version import FEATURE, Upgrade
from kraftbridge.models.observation import (
    ActionOutcome,
    FeatureAnswer,
    NodeFeatures,
    RunState,
    Unobserved,
    VerificationRun,
)
from kraftbridge.models.phase import FORWARD, Phase, Target, ZkMigrationState
from kraftbridge.models.report import Profile, Verdict
from kraftbridge.models.status import (
    MetadataVersionState,
    MetadataVersionStatus,
    WaitKind,
)

ALL = (*CONTROLLER_IDS, *BROKER_IDS)
UNSEEN = Unobserved("node", "no answer")


def state_of(decision: Decision) -> MetadataVersionStatus:
    assert decision.status.metadata_version is not None
    return decision.status.metadata_version


def said(decision: Decision, kind: ConditionType = ConditionType.METADATA_VERSION_READY) -> tuple[str, Reason]:
    found = condition(decision.status.conditions, kind)
    assert found is not None
    return found.status, found.reason


def changes_nothing(decision: Decision) -> bool:
    return not any(isinstance(a, UpdateMetadataVersion) for a in decision.actions)


# ------------------------------------------------------------------------------------------------ nothing is asked


def test_without_a_wish_nothing_is_changed_and_the_level_is_shown() -> None:
    decision = asking(None).decide()
    assert decision.actions == ()
    assert state_of(decision).current == "3.9-IV0"
    assert [(n.id, n.role, n.lowest, n.highest) for n in state_of(decision).nodes][::5] == [
        (0, "broker", "3.0-IV1", "3.9-IV0"),
        (3002, "controller", "3.0-IV1", "3.9-IV0"),
    ]
    assert said(decision) == ("Unknown", Reason.NOT_ASKED)
    assert said(decision, ConditionType.READY) == ("True", Reason.TARGET_REACHED)


def test_what_is_unseen_does_not_hide_what_was_seen() -> None:
    first = asking(None)
    later = first.after(first.decide()).observing(features=UNSEEN).decide()
    assert state_of(later).current == "3.9-IV0"
    assert said(later, ConditionType.READY) == ("True", Reason.TARGET_REACHED)


@pytest.mark.parametrize("phase", FORWARD[: FORWARD.index(Phase.COMPLETED)])
def test_during_a_migration_a_wish_waits_and_says_so(phase: Phase) -> None:
    target = Target.PREFLIGHT if phase is Phase.PREFLIGHT else Target.KRAFT
    decision = open_gate(phase, target).asking(metadata_version="3.8").observing(feature_answer=accepted(20)).decide()
    assert changes_nothing(decision)
    assert state_of(decision).state is MetadataVersionState.WAITING
    assert "during a migration" in state_of(decision).message
    assert said(decision) == ("False", Reason.WAITING)


@pytest.mark.parametrize("name", ["3.9", "3.9-IV0"])
def test_the_level_that_is_asked_for_is_in_force_already(name: str) -> None:
    decision = asking(name).decide()
    assert decision.actions == ()
    assert state_of(decision).state is MetadataVersionState.IN_FORCE
    assert said(decision) == ("True", Reason.IN_FORCE)
    assert said(decision, ConditionType.READY) == ("True", Reason.TARGET_REACHED)


# ------------------------------------------------------------------------------------------------ refusals


def spoiled_range(node: int, high: int) -> dict[int, NodeFeatures | Unobserved]:
    seen = features(20)
    seen[node] = NodeFeatures({FEATURE: 20}, {FEATURE: (1, high)}, finalized_epoch=5_000)
    return seen


@pytest.mark.parametrize(("node", "role"), [(1, "broker"), (3001, "controller")])
def test_a_node_that_cannot_follow_is_named_with_its_range(node: int, role: str) -> None:
    decision = asking("3.9", features=spoiled_range(node, 20)).decide()
    assert decision.actions == ()
    assert f"{role} {node} supports 3.0-IV1 (1) to 3.8-IV0 (20)" in decision.status.message
    assert "nothing was changed" in decision.status.message
    assert state_of(decision).state is MetadataVersionState.REFUSED
    assert said(decision) == ("False", Reason.REFUSED)
    assert said(decision, ConditionType.STALLED) == ("True", Reason.REFUSED)
    assert said(decision, ConditionType.READY)[0] == "False"
    assert [e.reason for e in decision.events if e.reason is EventReason.REFUSED] == [EventReason.REFUSED]
    again = asking("3.9", features=spoiled_range(node, 20)).after(decision).decide()
    assert not any(e.reason is EventReason.REFUSED for e in again.events)


def test_a_node_without_the_feature_supports_nothing() -> None:
    seen = features(20)
    seen[2] = NodeFeatures({FEATURE: 20}, {}, finalized_epoch=5_000)
    assert "broker 2 supports level 0 to level 0" in asking("3.9", features=seen).decide().status.message


WORDS = "Invalid metadata.version 16. Refusing to perform the requested downgrade because it might delete metadata information."


def test_kafkas_word_is_passed_on_as_it_is_and_stays() -> None:
    answer = FeatureAnswer(16, Upgrade.SAFE_DOWNGRADE, accepted=False, words=WORDS)
    situation = validating("3.7-IV1", verified=False).observing(feature_answer=answer)
    for _ in range(3):
        decision = situation.decide()
        assert decision.actions == ()
        assert WORDS in decision.status.message
        assert "the lowest level without loss from 3.9-IV0 (21) is 3.7-IV2 (17)" in decision.status.message
        assert state_of(decision).state is MetadataVersionState.REFUSED
        assert said(decision, ConditionType.STALLED) == ("True", Reason.REFUSED)
        situation = situation.after(decision).later(15)


def test_a_refusal_ends_when_kafka_takes_it_or_the_wish_changes() -> None:
    answer = FeatureAnswer(16, Upgrade.SAFE_DOWNGRADE, accepted=False, words=WORDS)
    situation = validating("3.7-IV1", verified=False).observing(feature_answer=answer)
    refused = situation.after(situation.decide())
    other = refused.asking(metadata_version="3.8").decide()
    assert (state_of(other).state, state_of(other).target) == (MetadataVersionState.VALIDATING, "3.8-IV0")
    back = refused.asking(metadata_version="3.9").decide()
    assert said(back) == ("True", Reason.IN_FORCE)
    assert said(back, ConditionType.STALLED)[0] == "False"
    none = refused.asking(metadata_version=None).decide()
    assert said(none) == ("Unknown", Reason.NOT_ASKED)
    assert said(none, ConditionType.READY)[0] == "True"


# ------------------------------------------------------------------------------------------------ before the change


def test_validated_then_verified_then_validated_again_then_changed() -> None:
    situation = asking("3.8")
    first = situation.decide()
    assert (state_of(first).state, state_of(first).upgrade) == (MetadataVersionState.VALIDATING, Upgrade.SAFE_DOWNGRADE)
    assert changes_nothing(first)
    situation = situation.after(first).observing(feature_answer=accepted(20))
    second = situation.decide()
    assert state_of(second).state is MetadataVersionState.VERIFYING_BEFORE
    assert [type(a) for a in second.actions] == [LaunchRun]
    run = second.status.verifications[-1]
    assert (run.profile, run.gate, run.purpose) == (Profile.REPLICAS, Phase.COMPLETED, "metadata-version-1-before")
    released = run.model_copy(update={"released_at": NOW})
    reported = VerificationRun(run.run_id, RunState.FINISHED, verdict=summary(released))
    situation = situation.after(second).with_status(verifications=(released,)).observing(run=reported)
    situation = situation.observing(feature_answer=UNSEEN)
    judged = situation.decide()
    assert changes_nothing(judged)
    again = situation.after(judged).decide()
    assert state_of(again).state is MetadataVersionState.VALIDATING
    last = situation.after(again).observing(feature_answer=accepted(20)).decide()
    assert last.actions == (UpdateMetadataVersion(20, Upgrade.SAFE_DOWNGRADE),)
    change = state_of(last).change
    assert change is not None
    assert (change.from_level, change.to_level, change.after_offset) == (21, 20, str(HIGH_WATERMARK))
    assert state_of(last).state is MetadataVersionState.CHANGING


def test_everything_in_place_changes_in_one_step() -> None:
    assert validating().decide().actions == (UpdateMetadataVersion(20, Upgrade.SAFE_DOWNGRADE),)


def degraded(**changes: Any) -> Any:
    return (replace(broker_set(), lock="", **changes),)


BROKEN: dict[str, dict[str, Any]] = {
    "features unseen": {"features": UNSEEN},
    "one broker's features unseen": {"features": features(21) | {1: UNSEEN}},
    "one controller's features unseen": {"features": features(21) | {3002: UNSEEN}},
    "a broker that nobody asked": {"cluster": cluster(brokers=frozenset({0, 1, 2, 7}))},
    "Metadata unseen": {"cluster": UNSEEN},
    "quorum unseen": {"quorum": UNSEEN},
    "no level at the leader": {"features": features(21) | {3000: NodeFeatures({}, {FEATURE: (1, 21)})}},
    "a node at another level": {"features": features(21) | {2: NodeFeatures({FEATURE: 20}, {FEATURE: (1, 21)})}},
    "a leader that is not agreed": {"metrics": controller_metrics(ZkMigrationState.POST_MIGRATION, 0, leader=3001)},
    "a voter that is not past the migration": {"metrics": controller_metrics(ZkMigrationState.MIGRATION, 0)},
    "a voter that lags": {"quorum": quorum(lags={3001: 50})},
    "a fenced broker": {"metrics": controller_metrics(ZkMigrationState.POST_MIGRATION, 0, fenced=1)},
    "a registered broker that Metadata does not list": {
        "metrics": controller_metrics(ZkMigrationState.POST_MIGRATION, 0, registered=4)
    },
    "an ISR that is not full": {"cluster": cluster(under_replicated=("t-0",), under_replicated_count=1)},
    "a partition without a leader": {"cluster": cluster(offline=("t-0",), offline_count=1)},
    "StatefulSet unseen": {"stateful_sets": (UNSEEN,)},
    "controllers unseen": {"controllers": UNSEEN},
    "a pod of another revision": {"stateful_sets": degraded(update_revision="rev-new")},
    "a template that is not taken up": {"stateful_sets": degraded(observed=False)},
    "a pod too few": {"stateful_sets": degraded(pods=broker_set().pods[:2])},
    "a pod that is not Ready": {
        "stateful_sets": degraded(
            pods=(*broker_set().pods[:2], pod(f"{BROKER_SET}-2", 2, revision="rev-user", ready=False))
        )
    },
    "no answer to the validation": {"feature_answer": UNSEEN},
    "an answer to another level": {"feature_answer": accepted(19)},
    "an answer to another direction": {"feature_answer": accepted(20, Upgrade.UPGRADE)},
    "a refusal": {"feature_answer": FeatureAnswer(20, Upgrade.SAFE_DOWNGRADE, accepted=False, words="no")},
}


@pytest.mark.parametrize("what", BROKEN)
def test_nothing_is_changed_while(what: str) -> None:
    decision = validating().observing(**BROKEN[what]).decide()
    assert changes_nothing(decision)
    assert said(decision)[0] == "False"
    assert said(decision, ConditionType.READY)[0] == "False"
    change = state_of(decision).change
    assert change is None


def test_nothing_is_changed_without_a_fresh_verdict() -> None:
    assert changes_nothing(validating(verified=False).decide())
    assert changes_nothing(validating().later(3600).decide())
    for verdict in (Verdict.INCONSISTENT, Verdict.INCONCLUSIVE, None):
        bad = record(Profile.REPLICAS, Phase.COMPLETED, "metadata-version-1-before", verdict)
        assert changes_nothing(validating(verified=False).with_status(verifications=(bad,)).decide())
    other = record(Profile.REPLICAS, Phase.COMPLETED, "entry")
    assert changes_nothing(validating(verified=False).with_status(verifications=(other,)).decide())


def test_paused_changes_nothing() -> None:
    decision = validating().asking(paused=True).decide()
    assert decision.actions == ()
    assert decision.status.message.startswith("Paused")


# ------------------------------------------------------------------------------------------------ after it


def test_a_change_on_record_is_asked_for_again_after_a_kill() -> None:
    decision = changing(level=21).decide()
    assert decision.actions == (UpdateMetadataVersion(20, Upgrade.SAFE_DOWNGRADE),)


def test_a_change_that_kafka_refuses_after_all_is_taken_back_and_validated_again() -> None:
    outcome = ActionOutcome("UpdateMetadataVersion", "change refused: broker 2", refused=True)
    decision = changing(level=21, outcomes=(outcome,)).decide()
    assert changes_nothing(decision)
    assert state_of(decision).change is None
    assert state_of(decision).state is MetadataVersionState.REFUSED
    assert said(decision, ConditionType.STALLED) == ("True", Reason.REFUSED)
    assert "broker 2" in decision.status.message


def test_every_node_must_have_applied_it() -> None:
    for node in ALL:
        seen = features(20, HIGH_WATERMARK)
        seen[node] = NodeFeatures({FEATURE: 21}, {FEATURE: (1, 21)}, finalized_epoch=HIGH_WATERMARK - 5)
        if node == 3000:
            continue  # the leader: it is asked again
        decision = changing(features=seen).decide()
        assert state_of(decision).change is not None
        assert f"node {node} is at 3.9-IV0 (21)" in decision.status.message
        assert said(decision)[0] == "False"


def test_a_node_at_the_level_from_before_has_not_applied_the_change() -> None:
    seen = features(20, HIGH_WATERMARK)
    seen[1] = NodeFeatures({FEATURE: 20}, {FEATURE: (1, 21)}, finalized_epoch=HIGH_WATERMARK - 1)
    decision = changing(features=seen).decide()
    assert "node 1 has applied the log only up to offset 5998, before the change" in decision.status.message


def test_an_unseen_node_is_waited_for() -> None:
    decision = changing(features=features(20, HIGH_WATERMARK) | {2: UNSEEN}).decide()
    assert said(decision)[0] == "False"
    change = state_of(decision).change
    assert change is not None
    assert change.applied_at is None


def test_after_it_is_applied_it_is_verified() -> None:
    decision = changing(level=20, epoch=HIGH_WATERMARK).decide()
    assert state_of(decision).state is MetadataVersionState.VERIFYING_AFTER
    assert decision.status.waiting is not None
    assert decision.status.waiting.kind is WaitKind.VERIFICATION
    assert decision.status.verifications[-1].purpose == "metadata-version-1-after"
    assert said(decision, ConditionType.READY)[0] == "False"


def test_verified_it_is_in_force() -> None:
    decision = verifying_after().decide()
    assert changes_nothing(decision)
    assert said(decision) == ("True", Reason.IN_FORCE)
    assert said(decision, ConditionType.READY) == ("True", Reason.TARGET_REACHED)
    known = state_of(decision)
    assert known.current == "3.8-IV0"
    assert known.change is not None
    assert known.change.finished_at == NOW
    assert known.change.counts == "61 entities before and after, the same number of every kind"
    assert EventReason.METADATA_VERSION_CHANGED in [e.reason for e in decision.events]
    settled = verifying_after().after(decision).later(3600).decide()
    assert settled.actions == ()
    assert said(settled) == ("True", Reason.IN_FORCE)


def test_numbers_that_moved_are_told() -> None:
    change = state_of(verifying_after(topics=58).decide()).change
    assert change is not None
    assert change.counts.endswith("topic 60 → 58")


@pytest.mark.parametrize("verdict", [Verdict.INCONSISTENT, Verdict.INCONCLUSIVE, None])
def test_a_verdict_that_is_no_pass_keeps_it_unready(verdict: Verdict | None) -> None:
    decision = verifying_after(verdict=verdict).decide()
    assert said(decision)[0] == "False"
    assert said(decision, ConditionType.READY)[0] == "False"


def test_the_wish_may_change_half_way() -> None:
    applied = changing(level=20, epoch=HIGH_WATERMARK)
    back = applied.asking(metadata_version="3.9").decide()
    assert (state_of(back).state, state_of(back).upgrade) == (MetadataVersionState.VALIDATING, Upgrade.UPGRADE)
    gone = applied.asking(metadata_version=None).decide()
    assert gone.actions == ()
    assert said(gone) == ("Unknown", Reason.NOT_ASKED)


def test_an_old_intent_is_not_sent_again() -> None:
    late = changing(level=21).later(700).decide()
    assert changes_nothing(late)
    assert state_of(late).change is None
    dropped = changing(level=21).asking(metadata_version=None).decide()
    assert state_of(dropped).change is None
    again = changing(level=21).after(dropped).asking(metadata_version="3.8").decide()
    assert changes_nothing(again)
    assert state_of(again).state is MetadataVersionState.VALIDATING


def test_a_change_that_kafka_has_is_followed_however_old() -> None:
    decision = changing(level=20, epoch=HIGH_WATERMARK).later(7000).decide()
    assert state_of(decision).state is MetadataVersionState.VERIFYING_AFTER


def test_a_template_that_would_start_an_older_kafka_is_told() -> None:
    older = (replace(broker_set(), lock="", image="apache/kafka:3.8.1", update_revision="rev-new"),)
    for name in (None, "3.9"):
        decision = asking(name, stateful_sets=older).decide()
        assert "Kafka 3.8 by its image apache/kafka:3.8.1" in decision.status.message
        assert said(decision, ConditionType.STALLED) == ("True", Reason.SOFTWARE_TOO_OLD)
        assert said(decision, ConditionType.READY)[0] == "False"
        assert EventReason.REFUSED in [e.reason for e in decision.events]


def test_the_verification_belongs_to_its_change() -> None:
    """The run before the second change is another one than that before the first, however fresh that is."""
    done = verifying_after()
    finished = done.after(done.decide()).asking(metadata_version="3.9")
    first = finished.decide()
    decision = finished.after(first).observing(feature_answer=accepted(21, Upgrade.UPGRADE)).decide()
    assert [type(a) for a in decision.actions] == [LaunchRun]
    assert decision.status.verifications[-1].purpose == "metadata-version-2-before"
