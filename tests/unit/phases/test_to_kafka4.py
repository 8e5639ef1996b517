"""The way on to Kafka 4 and back: prepared by copies, controllers first, brokers first on the way back, features on a word."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.observations import (
    CONTROLLER_IDS,
    KAFKA4,
    KAFKA4_DIGEST,
    KAFKA4_LEVEL,
    LEASE,
    NOW,
    Situation,
    before_kafka4,
    broker_set,
    cluster,
    controller_metrics,
    controllers_workload,
    features,
    kafka4_copies,
    kafka4_leg,
    launched_runs,
    open_gate,
    partly_rolled,
    record,
    setting,
    with_pods,
)

from kraftbridge.models.catalogue import Code
from kraftbridge.models.conditions import ConditionType, Reason, condition
from kraftbridge.models.decision import (
    ApplyControllers,
    ConfigureBrokers,
    Decision,
    LaunchRun,
    LockStatefulSet,
    ReleaseStatefulSet,
    RestartPod,
    UpdateMetadataVersion,
)
from kraftbridge.models.dry_start import DryStartState, KafkaStart
from kraftbridge.models.kafka4_releases import why_refused
from kraftbridge.models.metadata_version import FEATURE, Upgrade
from kraftbridge.models.observation import (
    NOT_NEEDED,
    ActionOutcome,
    FeatureAnswer,
    KafkaSettings,
    NodeFeatures,
    RecordedOriginal,
    Unobserved,
)
from kraftbridge.models.phase import BrokerMode, ControllerMode, Part, Phase, Target, ZkMigrationState
from kraftbridge.models.report import Profile, Verdict
from kraftbridge.models.runs import RunKind
from kraftbridge.models.spec import AcceptedFinding, HandOver, Kafka4Spec
from kraftbridge.models.status import (
    AskedFeature,
    HandOverStatus,
    Kafka4Leg,
    RaisedFeature,
    Reformat,
    kafka4_controllers_image,
    tuned_controllers,
)
from kraftbridge.phases.needs import needs

Spoil = Callable[[Situation], Situation]
UNKNOWN = Unobserved("somebody", "it is silent")


def leg_of(decision: Decision) -> Kafka4Leg:
    assert decision.status.kafka4_leg is not None
    return decision.status.kafka4_leg


def restarted(decision: Decision) -> list[int]:
    return [a.node_id for a in decision.actions if isinstance(a, RestartPod)]


def leavable(decision: Decision) -> tuple[str, Reason]:
    found = condition(decision.status.conditions, ConditionType.KAFKA4_LEAVABLE)
    assert found is not None
    return found.status, found.reason


# ------------------------------------------------------------------------------------------------- releases


@pytest.mark.parametrize("version", ["4.0.0", "4.0.2", "4.1.2", "4.2.1", "4.3.1", "4.4.0", "4.4.7", "4.1.0-ccs"])
def test_a_release_that_was_tried_is_taken(version: str) -> None:
    assert why_refused(version) == ""


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("4.2.0", "KAFKA-20322"),
        ("3.9.2", "4.0 to 4.4"),
        ("4.5.0", "4.0 to 4.4"),
        ("5.0.0", "4.0 to 4.4"),
        ("", "an unknown version"),
        ("unknown", "is no release"),
    ],
)
def test_another_release_is_refused_with_its_reason(version: str, words: str) -> None:
    assert words in why_refused(version)


# ---------------------------------------------------------------------------------------------- preparation


def test_with_everything_known_and_fine_the_way_begins_and_nothing_was_changed() -> None:
    decision = before_kafka4().decide()
    assert decision.status.phase is Phase.KAFKA4_CONTROLLERS, decision.status.message
    assert decision.actions == ()
    leg = leg_of(decision)
    assert (leg.release, leg.digests, leg.began_at) == ("4.1.2", {"kafka/kafka": KAFKA4_DIGEST}, None)
    assert decision.status.given_back_at is not None, "they are taken again in the next phase"


def test_controllers_that_are_not_seen_keep_the_way_from_beginning() -> None:
    decision = before_kafka4().observing(controllers=UNKNOWN).decide()
    assert decision.status.phase is Phase.COMPLETED
    assert "the StatefulSet of the controllers could not be observed" in decision.status.message


def test_the_wish_is_recorded_before_the_copies_are_made_and_asked_for() -> None:
    fine = before_kafka4().with_status(kafka4_leg=None)
    assert Part.DRY_START not in needs(fine.status, NOW)
    first = fine.observing(dry_start=NOT_NEEDED).decide()
    leg = leg_of(first)
    assert (leg.image, leg.controllers_image, leg.began_at) == (KAFKA4.image, KAFKA4.image, None)
    assert first.actions == ()
    assert Part.DRY_START in needs(first.status, NOW)
    copying = fine.after(first).observing(dry_start=DryStartState("same")).decide()
    assert copying.status.phase is Phase.COMPLETED
    assert [a.kind for a in copying.actions if isinstance(a, LaunchRun)] == [RunKind.DRY_START]


def test_another_image_needs_other_copies() -> None:
    asked = Kafka4Spec(image="registry/kafka:4.4.0", controllers_image="other/kafka:4.4.0")
    decision = before_kafka4().asking(kafka4=asked).decide()
    assert decision.status.phase is Phase.COMPLETED
    assert leg_of(decision).controllers_image == "other/kafka:4.4.0"
    assert leg_of(decision).release == ""


def test_what_was_only_prepared_is_forgotten_with_the_wish() -> None:
    decision = before_kafka4().asking(Target.KRAFT).decide()
    assert decision.status.phase is Phase.COMPLETED
    assert decision.status.kafka4_leg is None
    assert "Migration complete" in decision.status.message


def settings_with(name: str, value: str) -> KafkaSettings:
    return KafkaSettings({0: (setting(name, value),), 1: (), 2: ()}, {})


def copied(**changes: Any) -> Spoil:
    return lambda s: s.observing(dry_start=kafka4_copies(**changes))


def rolled_out(case: Situation) -> Situation:
    """Return the same while the owner's own rolling restart runs."""
    item = partly_rolled(1, BrokerMode.KRAFT, BrokerMode.KRAFT, lock="")
    pods = (item.pods[0], *(replace(pod, configuration="") for pod in item.pods[1:]))
    return case.observing(stateful_sets=(replace(item, pods=pods),))


def handed_over(case: Situation) -> Situation:
    return case.with_status(hand_over=HandOverStatus(guarded=False, ended_at=NOW))


NOT_BEGUN: dict[str, tuple[Spoil, str]] = {
    "no image": (lambda s: s.asking(kafka4=None), "spec.kafka4.image names no image"),
    "handed over": (handed_over, "in their owners' hands"),
    "released": (lambda s: s.asking(hand_over=HandOver.RELEASE), "in their owners' hands"),
    "clean": (lambda s: s.asking(hand_over=HandOver.CLEAN), "spec.handOver is Clean"),
    "settings unknown": (lambda s: s.observing(kafka4=UNKNOWN), "it is silent"),
    "a broker's settings unknown": (
        lambda s: s.observing(kafka4=KafkaSettings({0: (), 1: UNKNOWN, 2: ()}, {})),
        "it is silent",
    ),
    "a value is refused": (
        lambda s: s.observing(kafka4=settings_with("log.segment.bytes", "1000")),
        "Kafka4RefusesValue",
    ),
    "clients unknown": (
        lambda s: s.asking(preflight=s.spec.preflight.model_copy(update={"accepted": ()})),
        "Kafka4ClientsUnknown",
    ),
    "dry start unknown": (lambda s: s.observing(dry_start=UNKNOWN), "it is silent"),
    "no dry starts": (lambda s: s.observing(dry_start=DryStartState("", off=True)), "Kafka4NotProven"),
    "a known defect": (copied(release="4.2.0"), "KAFKA-20322"),
    "not tried": (copied(release="4.5.0"), "was not tried"),
    "too old": (copied(release="3.9.2"), "was not tried"),
    "no release told": (copied(release=""), "Kafka4NotProven"),
    "a copy does not start": (copied(start=None, problem="it ended"), "DryStartImpossible"),
    "Kafka 4 refuses the settings": (
        copied(start=KafkaStart(valid=False, complaint="log.segment.bytes is bad", kafka="4.1.2")),
        "DryStartRefused",
    ),
    "a class is missing": (
        copied(start=KafkaStart(valid=True, kafka="4.1.2", missing_classes=("authorizer.class.name",))),
        "Kafka4ClassMissing",
    ),
    "the image drops a setting": (copied(start=KafkaStart(valid=True, kafka="4.1.2")), "Kafka4ImageDiffers"),
    "the digest is not known": (copied(images=()), "Kafka4NotProven"),
    "the controllers' image tells nothing": (
        lambda s: s.asking(kafka4=Kafka4Spec(image=KAFKA4.image, controllers_image="x/y@sha256:1")).with_status(
            kafka4_leg=Kafka4Leg(image=KAFKA4.image, controllers_image="x/y@sha256:1")
        ),
        "does not tell its release",
    ),
    "the controllers' image is another release": (
        lambda s: s.asking(kafka4=Kafka4Spec(image=KAFKA4.image, controllers_image="x/kafka:4.0.2")).with_status(
            kafka4_leg=Kafka4Leg(image=KAFKA4.image, controllers_image="x/kafka:4.0.2")
        ),
        "names Kafka 4.0",
    ),
    "another rolling restart": (rolled_out, "does not carry the configuration of mode KRaft"),
    "an owner's change": (
        lambda s: s.observing(stateful_sets=(broker_set(BrokerMode.KRAFT, lock="", foreign=("env X",)),)),
        "the owner has changed a pod template",
    ),
    "the original state is lost": (
        lambda s: s.observing(
            stateful_sets=(broker_set(BrokerMode.KRAFT, lock="", original=replace(broker_set().original)),)
        ),
        "is not on record",
    ),
    "metadata.version too low": (lambda s: s.observing(features=features(level=6)), "does not start below 3.3-IV3"),
    "metadata.version unknown": (lambda s: s.observing(features=UNKNOWN), "it is silent"),
    "a stranger": (lambda s: s.observing(cluster=cluster(brokers=frozenset({0, 1, 2, 9}))), "broker 9 joined"),
    "the quorum is not seen": (lambda s: s.observing(quorum=UNKNOWN), "it is silent"),
    "a controller is down": (
        lambda s: s.observing(controllers=with_pods(controllers_workload(ControllerMode.FINAL), 3001, ready=False)),
        "3001",
    ),
    "no leader": (lambda s: s.observing(cluster=cluster(offline=("t-0",), offline_count=1)), "t-0"),
    "paused": (lambda s: s.asking(paused=True), ""),
    "voters differ": (
        lambda s: s.with_status(
            verifications=(
                record(Profile.REPLICAS, Phase.KAFKA4_CONTROLLERS, verdict=Verdict.INCONSISTENT, differing=3),
            )
        ),
        "3 entities differ",
    ),
}


@pytest.mark.parametrize("name", NOT_BEGUN)
def test_each_obstacle_keeps_the_way_from_beginning(name: str) -> None:
    spoil, words = NOT_BEGUN[name]
    decision = spoil(before_kafka4()).decide()
    assert decision.status.phase is Phase.COMPLETED
    assert words in decision.status.message, decision.status.message
    assert not any(
        isinstance(a, LockStatefulSet | ConfigureBrokers | ApplyControllers | RestartPod) for a in decision.actions
    )


@pytest.mark.parametrize(
    ("code", "obj", "spoil"),
    [
        (Code.KAFKA4_REFUSES_VALUE, "*", NOT_BEGUN["a value is refused"][0]),
        (Code.KAFKA4_CLASS_MISSING, "StatefulSet/kafka", NOT_BEGUN["a class is missing"][0]),
        (Code.KAFKA4_IMAGE_DIFFERS, "StatefulSet/kafka", NOT_BEGUN["the image drops a setting"][0]),
    ],
)
def test_what_the_user_accepts_keeps_nothing(code: Code, obj: str, spoil: Spoil) -> None:
    case = spoil(before_kafka4())
    accepted = (*case.spec.preflight.accepted, AcceptedFinding(code=str(code), object=obj))
    more = (AcceptedFinding(code=str(Code.KAFKA4_IMAGE_DIFFERS)),) if code is Code.KAFKA4_CLASS_MISSING else ()
    case = case.asking(preflight=case.spec.preflight.model_copy(update={"accepted": (*accepted, *more)}))
    assert case.decide().status.phase is Phase.KAFKA4_CONTROLLERS


def test_without_a_verification_one_is_launched_and_nothing_begins() -> None:
    decision = before_kafka4().with_status(verifications=()).decide()
    assert decision.status.phase is Phase.COMPLETED
    assert launched_runs(decision) == [(Profile.REPLICAS, Phase.KAFKA4_CONTROLLERS)]


# --------------------------------------------------------------------------------------------- controllers


def begun() -> Situation:
    """Return the first step of phase Kafka4Controllers: nothing was changed."""
    fine = before_kafka4()
    decision = fine.decide()
    item = broker_set(BrokerMode.KRAFT, lock="")
    return replace(fine, status=decision.status).observing(stateful_sets=(item,))


def test_the_images_of_before_are_recorded_before_a_statefulset_is_locked() -> None:
    first = begun().decide()
    leg = leg_of(first)
    assert leg.began_at == NOW
    assert [(each.stateful_set, list(each.images)) for each in leg.former] == [
        ("kafka", ["kafka"]),
        ("demo-kraft", ["kafka"]),
    ]
    assert first.status.given_back_at is None
    assert [type(a) for a in first.actions if not isinstance(a, LaunchRun)] == [LockStatefulSet]
    assert leavable(first) == ("True", Reason.FEATURES_NOT_RAISED) or leavable(first)[0] == "False"


def test_a_template_that_changed_since_the_copies_is_looked_at_before_anything_begins() -> None:
    changed = begun().observing(dry_start=DryStartState("another", report=kafka4_copies().report))
    decision = changed.decide()
    assert leg_of(decision).began_at is None
    assert not any(isinstance(a, LockStatefulSet) for a in decision.actions)


def with_former_controllers(outdated: tuple[int, ...] = CONTROLLER_IDS) -> Situation:
    """Return Kafka4Controllers with the change to Kafka 4 recorded; these controllers still run the release before."""
    fine = open_gate(Phase.KAFKA4_CONTROLLERS)
    known = fine.status.controllers
    assert known is not None
    assert known.rendered is not None
    former = known.rendered.model_copy(update={"image": fine.spec.controllers.image})
    start = fine.with_status(controllers=known.model_copy(update={"rendered": former}))
    first = start.decide()
    workload = controllers_workload(ControllerMode.FINAL)
    assert workload.stateful_set is not None
    pods = tuple(replace(p, revision="older") if p.ordinal in outdated else p for p in workload.stateful_set.pods)
    return start.after(first).observing(
        controllers=replace(workload, stateful_set=replace(workload.stateful_set, pods=pods))
    )


def test_the_controllers_get_the_image_as_a_recorded_change_and_nothing_restarts_yet() -> None:
    fine = open_gate(Phase.KAFKA4_CONTROLLERS)
    known = fine.status.controllers
    assert known is not None
    assert known.rendered is not None
    former = known.rendered.model_copy(update={"image": fine.spec.controllers.image})
    decision = fine.with_status(controllers=known.model_copy(update={"rendered": former})).decide()
    changed = decision.status.controllers
    assert changed is not None
    assert changed.change is not None
    assert (changed.change.before.image, changed.change.to.image) == (fine.spec.controllers.image, KAFKA4.image)
    assert restarted(decision) == []
    assert [type(a) for a in decision.actions] == [ApplyControllers]


@pytest.mark.parametrize(("outdated", "following"), [(CONTROLLER_IDS, 3001), ((3000, 3002), 3002), ((3000,), 3000)])
def test_controllers_restart_one_at_a_time_and_the_active_one_last(outdated: tuple[int, ...], following: int) -> None:
    decision = with_former_controllers(outdated).decide()
    assert decision.status.operation is not None
    assert decision.status.operation.node_id == following
    assert decision.status.phase is Phase.KAFKA4_CONTROLLERS


def test_no_further_controller_restarts_while_a_voter_lags() -> None:
    case = with_former_controllers((3000, 3002)).observing(
        quorum=replace(open_gate(Phase.KAFKA4).observation.quorum, leader_id=3001)
    )
    assert case.decide().status.operation is None


def test_the_image_is_wanted_from_the_beginning_to_the_return_of_the_brokers() -> None:
    fine = open_gate(Phase.KAFKA4_CONTROLLERS)
    own = fine.spec.controllers.image

    def image(phase: Phase, **changes: Any) -> str:
        leg = kafka4_leg(**changes)
        status = fine.status.model_copy(update={"phase": phase, "kafka4_leg": leg})
        return tuned_controllers(fine.spec, status).image

    assert image(Phase.COMPLETED, began_at=None) == own
    assert image(Phase.KAFKA4_CONTROLLERS) == KAFKA4.image
    assert image(Phase.KAFKA4_BROKERS) == KAFKA4.image
    assert image(Phase.KAFKA4) == KAFKA4.image
    assert image(Phase.LEAVING_KAFKA4) == KAFKA4.image
    assert image(Phase.LEAVING_KAFKA4, brokers_back_at=NOW) == own
    assert kafka4_controllers_image(fine.status.model_copy(update={"kafka4_leg": None})) == ""


def test_a_controller_of_kafka_4_has_loaded_its_image_when_it_tells_its_features() -> None:
    case = with_former_controllers((3000, 3002))
    decision = case.decide()
    assert decision.status.operation is not None
    silent = {i: NodeFeatures({}, {FEATURE: (7, KAFKA4_LEVEL)}) for i in CONTROLLER_IDS}
    workload = with_pods(controllers_workload(ControllerMode.FINAL), 3002, uid="another", ready_since=NOW)
    later = case.after(decision).observing(controllers=workload, features=silent).later(1).decide()
    assert "has not loaded its image yet" in later.status.message


# -------------------------------------------------------------------------------------------------- brokers


def test_the_brokers_follow_once_every_controller_runs_kafka_4() -> None:
    decision = open_gate(Phase.KAFKA4_CONTROLLERS).decide()
    assert decision.status.phase is Phase.KAFKA4_BROKERS
    item = broker_set(BrokerMode.KRAFT)
    first = open_gate(Phase.KAFKA4_BROKERS).observing(stateful_sets=(item,)).decide()
    assert [a.mode for a in first.actions if isinstance(a, ConfigureBrokers)] == [BrokerMode.KAFKA4]
    assert restarted(first) == []


@pytest.mark.parametrize("done", [0, 1, 2])
def test_brokers_restart_one_after_the_other(done: int) -> None:
    item = partly_rolled(done, BrokerMode.KAFKA4, BrokerMode.KRAFT, lease=LEASE)
    decision = open_gate(Phase.KAFKA4_BROKERS).observing(stateful_sets=(item,)).decide()
    assert decision.status.operation is not None, decision.status.message
    assert decision.status.operation.node_id == done


def test_a_broker_that_comes_back_with_another_image_stops_the_roll() -> None:
    item = partly_rolled(1, BrokerMode.KAFKA4, BrokerMode.KRAFT, lease=LEASE)
    pods = (replace(item.pods[0], images=frozenset({("kafka", "sha256:moved")})), *item.pods[1:])
    case = open_gate(Phase.KAFKA4_BROKERS)
    nodes = tuple(node.model_copy(update={"images": {"kafka": "sha256:former"}}) for node in case.status.nodes)
    decision = case.with_status(nodes=nodes).observing(stateful_sets=(replace(item, pods=pods),)).decide()
    assert decision.status.operation is None
    assert "came back with another image" in decision.status.message
    fine = (replace(item.pods[0], images=frozenset({("kafka", KAFKA4_DIGEST)})), *item.pods[1:])
    going_on = case.with_status(nodes=nodes).observing(stateful_sets=(replace(item, pods=fine),)).decide()
    assert going_on.status.operation is not None


def test_at_rest_the_statefulsets_are_given_back_and_the_way_back_is_open() -> None:
    held = open_gate(Phase.KAFKA4).observing(stateful_sets=(broker_set(BrokerMode.KAFKA4),))
    assert [type(a) for a in held.decide().actions if not isinstance(a, LaunchRun)][-1] is ReleaseStatefulSet
    decision = open_gate(Phase.KAFKA4).decide()
    assert decision.status.given_back_at is not None
    assert "Every controller and broker runs Kafka 4.1.2" in decision.status.message
    assert leavable(decision) == ("True", Reason.FEATURES_NOT_RAISED)
    ready = condition(decision.status.conditions, ConditionType.READY)
    assert ready is not None
    assert (ready.status, ready.reason) == ("True", Reason.TARGET_REACHED)


# ------------------------------------------------------------------------------------------------ the way back


@pytest.mark.parametrize("phase", [Phase.KAFKA4_BROKERS, Phase.KAFKA4])
def test_the_way_back_is_compared_first_and_then_entered(phase: Phase) -> None:
    case = open_gate(phase, Target.KRAFT).with_status(verifications=())
    first = case.decide()
    assert first.status.phase is phase
    assert launched_runs(first) == [(Profile.REPLICAS, Phase.LEAVING_KAFKA4)]
    compared = case.with_status(verifications=(record(Profile.REPLICAS, Phase.LEAVING_KAFKA4),)).decide()
    assert compared.status.phase is Phase.LEAVING_KAFKA4
    assert compared.status.given_back_at is None


def test_before_a_broker_was_touched_the_way_back_needs_no_comparison() -> None:
    assert open_gate(Phase.KAFKA4_CONTROLLERS, Target.KRAFT).decide().status.phase is Phase.LEAVING_KAFKA4


@pytest.mark.parametrize("phase", [Phase.KAFKA4_CONTROLLERS, Phase.KAFKA4_BROKERS, Phase.KAFKA4])
@pytest.mark.parametrize(
    ("changes", "words", "reason"),
    [
        (
            {
                "final_at": NOW,
                "final_reason": "metadata.version is raised",
                "features": (RaisedFeature(name=FEATURE, from_level=21, to_level=27, after_offset="1", asked_at=NOW),),
            },
            "metadata.version is raised",
            Reason.FEATURES_RAISED,
        ),
        ({"final_at": NOW, "final_reason": "a volume"}, "a volume", Reason.VOLUME_FORMATTED),
    ],
)
def test_a_way_back_that_has_ended_is_refused(
    phase: Phase, changes: dict[str, Any], words: str, reason: Reason
) -> None:
    case = open_gate(phase, Target.KRAFT).with_status(kafka4_leg=kafka4_leg(**changes))
    decision = case.decide()
    assert decision.status.phase is phase
    assert decision.actions == ()
    assert words in decision.status.message
    assert leavable(decision) == ("False", reason)


def test_a_handed_over_cluster_does_not_go_back() -> None:
    decision = handed_over(open_gate(Phase.KAFKA4, Target.KRAFT)).decide()
    assert decision.status.phase is Phase.KAFKA4
    assert leavable(decision) == ("False", Reason.HANDED_OVER)


@pytest.mark.parametrize(("release", "ends"), [("4.4.0", True), ("4.1.2", False)])
def test_a_volume_that_kafka_4_4_formats_ends_the_way_back(release: str, ends: bool) -> None:
    case = open_gate(Phase.KAFKA4).with_status(kafka4_leg=kafka4_leg(release=release))
    known = case.status.controllers
    assert known is not None
    word = Reformat(id=3001, claim_uid="pvc-new")
    decision = case.with_status(controllers=known.model_copy(update={"reformat": word})).decide()
    assert (leg_of(decision).final_at is not None) is ends
    assert leavable(decision)[0] == ("False" if ends else "True")


def leaving(**leg: Any) -> Situation:
    """Return LeavingKafka4 with brokers and controllers on Kafka 4 still."""
    fine = open_gate(Phase.KAFKA4_BROKERS, Target.KRAFT)
    return fine.with_status(
        phase=Phase.LEAVING_KAFKA4,
        kafka4_leg=kafka4_leg(brokers_began_at=NOW, **leg),
        history=(*fine.status.history[:-1], fine.status.history[-1].model_copy(update={"phase": Phase.LEAVING_KAFKA4})),
    )


def test_brokers_go_back_before_any_controller_does() -> None:
    first = leaving().decide()
    assert [a.mode for a in first.actions if isinstance(a, ConfigureBrokers)] == [BrokerMode.KRAFT]
    assert not any(isinstance(a, ApplyControllers) for a in first.actions)
    item = partly_rolled(1, BrokerMode.KRAFT, BrokerMode.KAFKA4, lease=LEASE)
    rolling = leaving().observing(stateful_sets=(item,)).decide()
    assert rolling.status.operation is not None
    assert rolling.status.operation.node_id == 1
    assert not any(isinstance(a, ApplyControllers) for a in rolling.actions)


@pytest.mark.parametrize("case", ["there", "back"])
def test_without_a_record_of_the_original_state_nothing_restarts(case: str) -> None:
    """Nobody can tell which image the brokers had, and a controller that goes back first fences those on Kafka 4."""
    situation = open_gate(Phase.KAFKA4_BROKERS) if case == "there" else leaving()
    now, was = (BrokerMode.KAFKA4, BrokerMode.KRAFT) if case == "there" else (BrokerMode.KRAFT, BrokerMode.KAFKA4)
    item = replace(partly_rolled(1, now, was, lease=LEASE), original=RecordedOriginal())
    decision = situation.observing(stateful_sets=(item,)).decide()
    assert decision.status.phase is situation.status.phase
    assert not any(isinstance(a, RestartPod | ConfigureBrokers | ApplyControllers) for a in decision.actions)
    assert decision.status.operation is None
    assert "original state" in decision.status.message


def test_the_logs_are_compared_between_brokers_and_controllers() -> None:
    back = leaving().observing(stateful_sets=(broker_set(BrokerMode.KRAFT),)).with_status(verifications=())
    first = back.decide()
    assert launched_runs(first) == [(Profile.REPLICAS, Phase.LEAVING_KAFKA4)]
    run = record(Profile.REPLICAS, Phase.LEAVING_KAFKA4, "controllers-back")
    second = back.with_status(verifications=(run,)).decide()
    assert leg_of(second).brokers_back_at == NOW
    third = back.after(second).decide()
    known = third.status.controllers
    assert known is not None
    assert known.change is not None
    assert known.change.to.image == back.spec.controllers.image


def test_once_all_are_back_the_phase_is_completed_and_the_record_goes() -> None:
    case = leaving(brokers_back_at=NOW - timedelta(minutes=1)).observing(
        stateful_sets=(broker_set(BrokerMode.KRAFT),),
        metrics=controller_metrics(ZkMigrationState.POST_MIGRATION, 0),
        features=features(),
    )
    known = case.status.controllers
    assert known is not None
    assert known.rendered is not None
    rendered = known.rendered.model_copy(update={"image": case.spec.controllers.image})
    case = case.with_status(
        controllers=known.model_copy(update={"rendered": rendered}),
        verifications=(record(Profile.REPLICAS, Phase.COMPLETED, "return"),),
    )
    decision = case.decide()
    assert decision.status.phase is Phase.COMPLETED, decision.status.message
    assert decision.status.kafka4_leg is None


def test_the_way_back_begins_with_the_controllers_where_no_broker_has_left() -> None:
    fine = open_gate(Phase.KAFKA4_CONTROLLERS, Target.KRAFT)
    case = fine.with_status(phase=Phase.LEAVING_KAFKA4)
    decision = case.decide()
    assert leg_of(decision).brokers_back_at == NOW
    known = decision.status.controllers
    assert known is not None
    assert known.change is not None
    assert known.change.to.image == fine.spec.controllers.image


# ------------------------------------------------------------------------------------------------- features


SUPPORTED = {
    FEATURE: (7, KAFKA4_LEVEL),
    "group.version": (0, 1),
    "kraft.version": (0, 1),
    "transaction.version": (0, 2),
}


def levels(**finalized: int) -> dict[int, NodeFeatures]:
    """Return what every node says: these levels are finalized, written with underscores."""
    named = {name.replace("_", "."): level for name, level in finalized.items()}
    says = NodeFeatures({FEATURE: 21, **named}, SUPPORTED, finalized_epoch=5_999)
    return dict.fromkeys((*CONTROLLER_IDS, 0, 1, 2), says)


def raising(finalized: dict[int, NodeFeatures] | None = None, **leg: Any) -> Situation:
    asked = KAFKA4.model_copy(update={"metadata_version": "4.1-IV1"})
    fine = open_gate(Phase.KAFKA4).asking(kafka4=asked).with_status(given_back_at=NOW)
    return fine.with_status(kafka4_leg=kafka4_leg(brokers_began_at=NOW, **leg)).observing(
        features=finalized or levels()
    )


METADATA_VERSION = AskedFeature(name=FEATURE, from_level=21, to_level=27)


def test_no_feature_is_raised_without_the_word() -> None:
    decision = open_gate(Phase.KAFKA4).with_status(given_back_at=NOW).observing(features=levels()).decide()
    assert not any(isinstance(a, UpdateMetadataVersion) for a in decision.actions)
    assert leg_of(decision).asks is None
    assert "no feature was raised" in decision.status.message


def test_metadata_version_is_validated_verified_and_recorded_before_it_is_asked_for() -> None:
    first = raising().decide()
    assert leg_of(first).asks == METADATA_VERSION
    assert Part.FEATURE_ANSWER in needs(first.status, NOW)
    asked = raising(asks=METADATA_VERSION)
    answered = asked.observing(feature_answer=FeatureAnswer(27, Upgrade.UPGRADE, accepted=True))
    verifying = answered.decide()
    assert launched_runs(verifying) == [(Profile.REPLICAS, Phase.KAFKA4)]
    assert leg_of(verifying).final_at is None
    verified = answered.with_status(verifications=(record(Profile.REPLICAS, Phase.KAFKA4, "feature-1-before"),))
    begun_ = verified.decide()
    assert begun_.actions == (UpdateMetadataVersion(27, Upgrade.UPGRADE, FEATURE),)
    assert leg_of(begun_).final_at == NOW
    assert leg_of(begun_).features[0].to_level == 27
    assert leavable(begun_) != ("True", Reason.FEATURES_NOT_RAISED)


@pytest.mark.parametrize(
    "answer",
    [
        UNKNOWN,
        FeatureAnswer(26, Upgrade.UPGRADE, accepted=True),
        FeatureAnswer(27, Upgrade.UPGRADE, accepted=True, feature="group.version"),
        FeatureAnswer(27, Upgrade.UPGRADE, accepted=False, words="broker 7 does not support it"),
    ],
)
def test_nothing_is_asked_for_that_the_controller_has_not_validated(answer: FeatureAnswer | Unobserved) -> None:
    case = raising(asks=METADATA_VERSION).observing(feature_answer=answer)
    decision = case.with_status(verifications=(record(Profile.REPLICAS, Phase.KAFKA4, "feature-1-before"),)).decide()
    assert not any(isinstance(a, UpdateMetadataVersion) for a in decision.actions)
    assert leg_of(decision).final_at is None


UNFINISHED = RaisedFeature(name=FEATURE, from_level=21, to_level=27, after_offset="5000", asked_at=NOW)


def test_a_request_is_repeated_until_it_is_committed_and_followed_to_every_node() -> None:
    sent = raising(features=(UNFINISHED,), final_at=NOW).decide()
    assert sent.actions == (UpdateMetadataVersion(27, Upgrade.UPGRADE, FEATURE),)
    committed = levels(metadata_version=27)
    behind = {**committed, 1: levels()[1]}
    waiting = raising(behind, features=(UNFINISHED,), final_at=NOW).decide()
    assert not any(isinstance(a, UpdateMetadataVersion) for a in waiting.actions)
    assert "node 1 has not applied it yet" in waiting.status.message
    old = {i: replace(node, finalized_epoch=4_999) for i, node in committed.items()}
    assert "has not applied it yet" in raising(old, features=(UNFINISHED,)).decide().status.message
    after = raising(committed, features=(UNFINISHED,), final_at=NOW)
    assert launched_runs(after.decide()) == [(Profile.REPLICAS, Phase.KAFKA4)]
    verified = after.with_status(verifications=(record(Profile.REPLICAS, Phase.KAFKA4, "feature-1-after"),)).decide()
    assert leg_of(verified).features[0].finished_at == NOW


def test_the_others_follow_one_by_one_and_kraft_version_never_does() -> None:
    finalized = levels(metadata_version=27)
    done = UNFINISHED.model_copy(update={"finished_at": NOW})
    first = raising(finalized, features=(done,), final_at=NOW).decide()
    assert leg_of(first).asks == AskedFeature(name="group.version", from_level=0, to_level=1)
    finalized = levels(metadata_version=27, group_version=1)
    second = raising(finalized, features=(done,), final_at=NOW).decide()
    assert leg_of(second).asks == AskedFeature(name="transaction.version", from_level=0, to_level=2)
    finalized = levels(metadata_version=27, group_version=1, transaction_version=2)
    last = raising(finalized, features=(done,), final_at=NOW).decide()
    assert leg_of(last).asks is None
    assert "features raised: metadata.version 4.1-IV1" in last.status.message


def test_a_feature_that_one_node_does_not_support_is_left_alone() -> None:
    finalized = levels(metadata_version=27)
    finalized[2] = replace(finalized[2], supported={FEATURE: (7, 27), "transaction.version": (0, 2)})
    decision = raising(finalized, features=(UNFINISHED.model_copy(update={"finished_at": NOW}),)).decide()
    assert leg_of(decision).asks == AskedFeature(name="transaction.version", from_level=0, to_level=2)


def test_a_refused_feature_is_noted_and_the_next_one_follows() -> None:
    finalized = levels(metadata_version=27)
    asks = AskedFeature(name="group.version", from_level=0, to_level=1)
    case = raising(finalized, features=(UNFINISHED.model_copy(update={"finished_at": NOW}),), asks=asks)
    no = FeatureAnswer(1, Upgrade.UPGRADE, accepted=False, words="it depends on another", feature="group.version")
    noted = case.observing(feature_answer=no).decide()
    assert leg_of(noted).features[1].refused == "it depends on another"
    following = case.after(noted).observing(feature_answer=NOT_NEEDED).decide()
    asked = leg_of(following).asks
    assert asked is not None
    assert asked.name == "transaction.version"


def test_a_refused_request_gives_the_way_back_again() -> None:
    outcome = ActionOutcome("UpdateMetadataVersion", "broker 2 does not support it", refused=True)
    case = raising(features=(UNFINISHED,), final_at=NOW, final_reason="metadata.version is raised")
    decision = replace(case, observation=replace(case.observation, outcomes=(outcome,))).decide()
    assert leg_of(decision).features == ()
    assert leg_of(decision).final_at is None
