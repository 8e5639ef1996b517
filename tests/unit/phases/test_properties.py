"""What holds for every input of `decide`, also for those that nobody thought of."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from hypothesis import HealthCheck, given, settings
from hypothesis import Phase as HypothesisPhase
from hypothesis import strategies as st
from tests.support.metadata_versions import changing, validating, verifying_after
from tests.support.observations import (
    BROKER_IDS,
    BROKER_SET,
    CONTROLLER_IDS,
    CONTROLLERS,
    FINE_SETTINGS,
    FORWARD,
    IDENTITY,
    NOW,
    RUN_ID,
    Situation,
    open_gate,
    record,
    rolling,
    spec,
    summary,
)

from kraftbridge.models.conditions import ConditionType, initial_conditions
from kraftbridge.models.decision import (
    Action,
    ApplyControllers,
    ConfigureBrokers,
    Decision,
    LaunchRun,
    LockStatefulSet,
    ReleaseStatefulSet,
    RemoveControllerClaim,
    RestartPod,
    RestoreStatefulSet,
    StopControllers,
    UpdateMetadataVersion,
    WriteCanary,
)
from kraftbridge.models.metadata_version import FEATURE, Upgrade
from kraftbridge.models.observation import (
    ActionOutcome,
    BrokerZnode,
    ClusterState,
    ControllerMetrics,
    ControllersWorkload,
    ControllerZnode,
    FeatureAnswer,
    MigrationZnode,
    NodeFeatures,
    Observation,
    PodState,
    QuorumState,
    RunState,
    StatefulSetState,
    TopicRedundancy,
    Unobserved,
    VerificationRun,
    VoterState,
    ZooKeeperState,
)
from kraftbridge.models.phase import BrokerMode, ControllerMode, Phase, Target, ZkMigrationState
from kraftbridge.models.report import Profile, Verdict
from kraftbridge.models.spec import Model
from kraftbridge.models.status import (
    CanaryStatus,
    ControllersStatus,
    MetadataVersionChange,
    MetadataVersionState,
    MetadataVersionStatus,
    MigrationOffset,
    MigrationStatus,
    Operation,
    OperationKind,
    PhaseRecord,
    QuorumStatus,
    VerificationStatus,
    Waiting,
    WaitKind,
)

SPEED = settings(
    max_examples=int(os.environ.get("KRAFTBRIDGE_EXAMPLES", "60")),
    deadline=None,
    derandomize=True,
    phases=[HypothesisPhase.explicit, HypothesisPhase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
"""Derandomized: a red run stays red. ``KRAFTBRIDGE_EXAMPLES`` looks further; without shrinking, since whole situations shrink slowly."""
UNKNOWN = Unobserved("somebody", "it is silent")

# ---------------------------------------------------------------------------------------------- strategies


def made(model: type[Model]) -> Callable[..., Model]:
    """Return a constructor that hypothesis cannot look into: pydantic's signature names the aliases as required."""

    def make(**fields: object) -> Model:
        return model(**fields)

    return make


moments = st.integers(-2000, 30).map(lambda s: NOW + timedelta(seconds=s))
maybe_moments = st.none() | moments
configurations = st.sampled_from(
    ["", "Migration-hash", "KRaft-hash", "Migration-old", "Final-hash", "ZooKeeper-x", "odd"]
)
revisions = st.sampled_from(["rev-a", "rev-b"])


def pods(name: str, ids: tuple[int, ...]) -> st.SearchStrategy[tuple[PodState, ...]]:
    one = {
        i: st.builds(
            PodState,
            name=st.just(f"{name}-{i}"),
            uid=st.sampled_from([f"uid-{i}-old", f"uid-{i}-new"]),
            ordinal=st.just(i),
            ready=st.booleans(),
            ready_since=maybe_moments,
            deleting=st.booleans(),
            configuration=configurations,
            revision=revisions,
            ip=st.just(f"10.0.0.{i % 250}"),
            trouble=st.sampled_from(["", "", "CrashLoopBackOff of container kafka", "Unschedulable: no"]),
        )
        for i in ids
    }
    return st.lists(st.sampled_from(ids), unique=True, max_size=len(ids)).flatmap(
        lambda chosen: st.tuples(*(one[i] for i in sorted(chosen)))
    )


def stateful_sets(name: str, ids: tuple[int, ...]) -> st.SearchStrategy[StatefulSetState]:
    return st.builds(
        StatefulSetState,
        name=st.just(name),
        uid=st.just("uid-sts"),
        replicas=st.just(len(ids)),
        update_strategy=st.sampled_from(["OnDelete", "RollingUpdate"]),
        configuration=configurations,
        update_revision=revisions,
        observed=st.booleans(),
        lock=st.sampled_from([IDENTITY.lock, "", "kafka/other/x"]),
        container_found=st.booleans(),
        settings=st.sampled_from([FINE_SETTINGS, {}]),
        unreadable_settings=st.just(frozenset()),
        java_tool_options=st.just(""),
        volumes=st.just(frozenset()),
        drift=st.sampled_from([(), ("env X",)]),
        pods=pods(name, ids),
    )


migration_znodes = st.builds(
    MigrationZnode,
    st.sampled_from(CONTROLLER_IDS),
    st.integers(-1, 3),
    st.sampled_from([-1, 4000, 5000, 9000]),
    st.integers(-1, 3),
)
zookeepers = st.builds(
    ZooKeeperState,
    cluster_id=st.sampled_from(["id", None]),
    controller=st.none()
    | st.builds(ControllerZnode, st.sampled_from([*BROKER_IDS, *CONTROLLER_IDS]), st.integers(-1, 3), st.booleans()),
    controller_epoch=st.none() | st.integers(0, 9),
    migration=st.none() | st.just(UNKNOWN) | migration_znodes,
    brokers=st.lists(
        st.integers(0, 3).map(lambda i: BrokerZnode(i, (f"{BROKER_SET}-{i}.kafka",))),
        max_size=4,
        unique_by=lambda b: b.id,
    ).map(tuple),
    pending_topic_deletions=st.just(()),
    reassignments=st.booleans(),
    canary=st.none() | st.sampled_from([42.0, 7.0]),
)
quorums = st.builds(
    QuorumState,
    leader_id=st.sampled_from(CONTROLLER_IDS),
    leader_epoch=st.integers(1, 3),
    high_watermark=st.just(5000),
    voters=st.lists(
        st.builds(VoterState, st.sampled_from(CONTROLLER_IDS), st.sampled_from([-1, 4000, 6000])),
        max_size=3,
        unique_by=lambda v: v.id,
    ).map(tuple),
    observers=st.just(frozenset(BROKER_IDS)),
)
metrics_of_all = st.fixed_dictionaries(
    {},
    optional={
        i: st.just(UNKNOWN)
        | st.builds(
            ControllerMetrics,
            node_id=st.just(i),
            active=st.booleans(),
            zk_migration_state=st.sampled_from(ZkMigrationState),
            migrating_zk_brokers=st.integers(0, 3),
            active_brokers=st.integers(0, 3),
            fenced_brokers=st.integers(0, 1),
            leader_id=st.sampled_from(CONTROLLER_IDS),
            leader_epoch=st.integers(1, 3),
        )
        for i in CONTROLLER_IDS
    },
)
clusters = st.builds(
    ClusterState,
    brokers=st.frozensets(st.sampled_from(BROKER_IDS)),
    controller_id=st.integers(-1, 3),
    partitions=st.just(10),
    under_replicated=st.just(("t-0",)),
    under_replicated_count=st.integers(0, 1),
    offline=st.just(("t-1",)),
    offline_count=st.integers(0, 1),
)
summaries = st.builds(
    lambda run, verdict, generation, profile, gate: summary(
        record(profile, gate, run_id=run, generation=generation), verdict
    ),
    st.sampled_from([RUN_ID, "other"]),
    st.sampled_from(Verdict),
    st.integers(6, 8),
    st.sampled_from(Profile),
    st.sampled_from(Phase),
)
runs = (
    st.none()
    | st.just(UNKNOWN)
    | st.builds(
        VerificationRun,
        run_id=st.sampled_from([RUN_ID, "other"]),
        state=st.sampled_from(RunState),
        message=st.just(""),
        verdict=st.none() | summaries,
    )
)
node_features = st.builds(
    NodeFeatures,
    finalized=st.sampled_from([{FEATURE: 20}, {FEATURE: 21}, {}]),
    supported=st.sampled_from([{FEATURE: (1, 21)}, {FEATURE: (1, 20)}, {}]),
    finalized_epoch=st.sampled_from([-1, 4000, 6100]),
)
features_of_all = st.fixed_dictionaries(
    {}, optional={i: st.just(UNKNOWN) | node_features for i in (*CONTROLLER_IDS, *BROKER_IDS)}
)
observations = st.builds(
    Observation,
    at=st.just(NOW),
    stateful_sets=st.tuples(st.just(UNKNOWN) | stateful_sets(BROKER_SET, BROKER_IDS)) | st.just(()),
    controllers=st.just(UNKNOWN)
    | st.builds(
        ControllersWorkload,
        st.none() | stateful_sets(CONTROLLERS, CONTROLLER_IDS),
        st.just(""),
        st.just({i: f"pvc-{i}" for i in CONTROLLER_IDS}),
    ),
    zookeeper=st.just(UNKNOWN) | zookeepers,
    quorum=st.just(UNKNOWN) | quorums,
    metrics=metrics_of_all,
    cluster=st.just(UNKNOWN) | clusters,
    redundancy=st.just(UNKNOWN) | st.just(TopicRedundancy((), ())),
    run=runs,
    runner_available=st.just(UNKNOWN) | st.booleans(),
    controller_by_broker=st.just(UNKNOWN)
    | st.dictionaries(st.sampled_from(BROKER_IDS), st.just(UNKNOWN) | st.sampled_from([-1, 0, 1, 3000])),
    registered_controllers=st.just(UNKNOWN) | st.frozensets(st.sampled_from(CONTROLLER_IDS)),
    admission_policy=st.just(UNKNOWN) | st.booleans(),
    features=st.just(UNKNOWN) | features_of_all,
    feature_answer=st.just(UNKNOWN)
    | st.builds(FeatureAnswer, st.sampled_from([16, 20, 21]), st.sampled_from(Upgrade), st.booleans(), st.just("no")),
    canary_committed=st.none() | st.just(42),
    outcomes=st.just(())
    | st.builds(ActionOutcome, st.just("RestartPod"), st.just("no"), st.booleans()).map(lambda o: (o,)),
)
records = st.builds(
    made(VerificationStatus),
    run_id=st.sampled_from([RUN_ID, "demo-5f0c6a1e-0"]),
    profile=st.sampled_from(Profile),
    gate=st.sampled_from(Phase),
    purpose=st.sampled_from(["entry", "last-broker", "before-controllers-stop"]),
    generation=st.integers(6, 8),
    launched_at=moments,
    ready_at=maybe_moments,
    released_at=maybe_moments,
    finished_at=maybe_moments,
    verdict=st.none() | st.sampled_from(Verdict),
).map(lambda r: r if r.finished_at is not None else r.model_copy(update={"verdict": None}))
operations = st.builds(
    made(Operation),
    kind=st.sampled_from(OperationKind),
    node_id=st.integers(0, 2),
    pod=st.sampled_from([f"{BROKER_SET}-0", f"{BROKER_SET}-1", f"{CONTROLLERS}-3000", "gone"]),
    pod_uid=st.sampled_from(["uid-0-old", "uid-1-old", "uid-3000-old"]),
    started_at=moments,
    last_pod_ready_at=maybe_moments,
)
versions = st.none() | st.builds(
    made(MetadataVersionStatus),
    state=st.sampled_from(MetadataVersionState),
    target=st.sampled_from(["3.8-IV0", "3.9-IV0"]),
    target_level=st.sampled_from([20, 21]),
    upgrade=st.none() | st.sampled_from(Upgrade),
    changes=st.just(1),
    change=st.none()
    | st.builds(
        made(MetadataVersionChange),
        number=st.just(1),
        from_level=st.sampled_from([20, 21]),
        to_level=st.sampled_from([20, 21]),
        upgrade=st.sampled_from(Upgrade),
        after_offset=st.just("5000"),
        started_at=moments,
        finished_at=maybe_moments,
    ),
)
statuses = st.builds(
    made(MigrationStatus),
    phase=st.sampled_from(Phase),
    target=st.sampled_from(Target),
    conditions=st.sampled_from([(), initial_conditions(NOW, 7)]),
    attempt=st.integers(1, 3),
    cluster_id=st.just("id"),
    broker_ids=st.sampled_from([{f"{BROKER_SET}-{i}": i for i in BROKER_IDS}] * 4 + [{}]),
    controllers=st.none()
    | st.builds(
        made(ControllersStatus),
        name=st.just(CONTROLLERS),
        node_ids=st.just(CONTROLLER_IDS),
        mode=st.sampled_from(ControllerMode),
        format_allowed=st.booleans(),
    ),
    quorum=st.none()
    | st.builds(
        made(QuorumStatus),
        leader_id=st.sampled_from(CONTROLLER_IDS),
        leader_epoch=st.integers(1, 3),
        leader_since=moments,
    ),
    migration_offset=st.none()
    | st.builds(
        made(MigrationOffset), offset=st.sampled_from(["4000", "5000"]), seen_at=moments, moved_at=maybe_moments
    ),
    canary=st.none()
    | st.builds(
        made(CanaryStatus), value=st.just(42), written_at=moments, committed_at=maybe_moments, mirrored_at=maybe_moments
    ),
    operation=st.none() | operations,
    hold_until=maybe_moments,
    verifications=st.lists(records, max_size=2, unique_by=lambda r: r.run_id).map(tuple),
    verification_count=st.integers(0, 4),
    history=st.sampled_from(Phase).map(lambda p: (PhaseRecord(phase=p, entered_at=NOW - timedelta(minutes=5)),)),
    waiting=st.none() | st.builds(made(Waiting), kind=st.sampled_from(WaitKind), since=moments),
    progress_at=maybe_moments,
    controller_agreed_since=maybe_moments,
    metadata_version=versions,
    final_manifest=st.sampled_from(["", "demo-final-manifest"]),
)
specs = st.builds(
    lambda t, p, v: spec(t, paused=p, metadata_version=v),
    st.sampled_from(Target),
    st.booleans(),
    st.sampled_from([None, "3.8", "3.9-IV0", "3.7-IV1"]),
)
anything = st.builds(Situation, specs, statuses, observations)

PARTS = (
    "stateful_sets",
    "controllers",
    "zookeeper",
    "quorum",
    "metrics",
    "cluster",
    "redundancy",
    "runner_available",
    "controller_by_broker",
    "registered_controllers",
    "admission_policy",
    "features",
    "feature_answer",
)
UNSEEN = (*PARTS, "survey", "broker_record", "broker_now", "start_log")
"""Parts that may be unknown. Anything at all in the last four is what the tests of `shared_settings`, `comparing` and `sights` are about."""
asking_for_a_version = st.builds(lambda make: make(), st.sampled_from([validating, changing, verifying_after]))
healthy = st.one_of(
    st.sampled_from(FORWARD[:-1]).map(open_gate),
    st.builds(rolling, st.sampled_from([Phase.TAKING_OVER, Phase.ROLLING_BROKERS]), st.integers(0, 2)),
)


def mixed(draw: st.DrawFn) -> Situation:
    """Return a healthy situation, some of whose parts are replaced by anything: near the gates, where it matters."""
    base, wild = draw(healthy), draw(anything)
    parts = draw(st.sets(st.sampled_from([*PARTS, "run"]), max_size=3))
    fields = draw(
        st.sets(
            st.sampled_from(["operation", "verifications", "hold_until", "migration_offset", "quorum", "canary"]),
            max_size=2,
        )
    )
    return Situation(
        wild.spec,
        base.status.model_copy(update={f: getattr(wild.status, f) for f in fields}),
        replace(base.observation, **{p: getattr(wild.observation, p) for p in parts}),
    )


situations = anything | st.composite(mixed)()


def spoiled(draw: st.DrawFn) -> Situation:
    """Return a change of metadata.version, some of whose parts are replaced by anything."""
    base, wild = draw(asking_for_a_version), draw(anything)
    parts = draw(st.sets(st.sampled_from([p for p in PARTS if p != "zookeeper"]), max_size=2))
    fields = draw(st.sets(st.sampled_from(["metadata_version", "verifications", "quorum"]), max_size=1))
    return Situation(
        draw(st.sampled_from([base.spec, base.spec, wild.spec])),
        base.status.model_copy(update={f: getattr(wild.status, f) for f in fields}),
        replace(base.observation, **{p: getattr(wild.observation, p) for p in parts}),
    )


# ------------------------------------------------------------------------------------------------- helpers


def position(phase: Phase) -> int:
    return FORWARD.index(phase) if phase in FORWARD else -1


def advanced(situation: Situation, decision: Decision) -> bool:
    return position(decision.status.phase) > position(situation.status.phase) >= 0


def irreversible(situation: Situation, actions: tuple[Action, ...]) -> list[Action]:
    """Return acts after which the world is another one for good, or a node is down."""
    return [
        a
        for a in actions
        if isinstance(a, RestartPod | StopControllers | RemoveControllerClaim)
        or (isinstance(a, ApplyControllers) and a.mode is ControllerMode.FINAL and situation.status.phase.reversible)
    ]


def new_work(situation: Situation, actions: tuple[Action, ...]) -> list[Action]:
    """Return acts that begin something, other than repeating the eviction that is on record."""
    operation = situation.status.operation
    return [
        a
        for a in actions
        if isinstance(
            a,
            LockStatefulSet
            | RestoreStatefulSet
            | ReleaseStatefulSet
            | ApplyControllers
            | StopControllers
            | RemoveControllerClaim
            | WriteCanary,
        )
        or (isinstance(a, RestartPod) and (operation is None or (a.pod, a.uid) != (operation.pod, operation.pod_uid)))
    ]


def unknown_in(situation: Situation, part: str) -> Situation:
    match part:
        case "stateful_sets":
            return situation.observing(stateful_sets=(UNKNOWN,))
        case "metrics":
            return situation.observing(metrics=dict.fromkeys(CONTROLLER_IDS, UNKNOWN))
        case _:
            return situation.observing(**{part: UNKNOWN})


# ---------------------------------------------------------------------------------------------- properties


@SPEED
@given(situations)
def test_decide_always_decides(situation: Situation) -> None:
    decision = situation.decide()
    assert decision.status.message
    assert decision.requeue_after >= timedelta(0)


@SPEED
@given(situations)
def test_the_same_input_gives_the_same_decision(situation: Situation) -> None:
    assert situation.decide() == situation.decide()


@SPEED
@given(situations, st.sets(st.sampled_from(UNSEEN), min_size=1))
def test_less_knowledge_never_opens_a_gate(situation: Situation, lost: set[str]) -> None:
    before = situation.decide()
    blind = situation
    for part in lost:
        blind = unknown_in(blind, part)
    after = blind.decide()
    if advanced(blind, after):
        assert advanced(situation, before) or situation.status.phase is Phase.PREFLIGHT
    if not irreversible(situation, before.actions):
        repeated = {(o.pod, o.pod_uid) for o in (situation.status.operation,) if o is not None}
        new = [
            a
            for a in irreversible(blind, after.actions)
            if not (isinstance(a, RestartPod) and (a.pod, a.uid) in repeated)
        ]
        assert not new


@SPEED
@given(situations)
def test_total_blindness_does_nothing(situation: Situation) -> None:
    blind = situation
    for part in UNSEEN:
        blind = unknown_in(blind, part)
    decision = blind.decide()
    assert not irreversible(blind, decision.actions)
    assert not advanced(blind, decision)
    assert not any(isinstance(a, ConfigureBrokers | LockStatefulSet | RestoreStatefulSet) for a in decision.actions)


@SPEED
@given(situations)
def test_paused_begins_nothing(situation: Situation) -> None:
    paused = situation.asking(paused=True).pacing(address_cache_seconds=35)
    decision = paused.decide()
    if paused.status.operation is None:
        assert not new_work(paused, decision.actions)
        assert not any(isinstance(a, ConfigureBrokers) for a in decision.actions)
        assert decision.status.phase is paused.status.phase


@SPEED
@given(situations)
def test_one_operation_at_a_time(situation: Situation) -> None:
    decision = situation.decide()
    evictions = {(a.pod, a.uid) for a in decision.actions if isinstance(a, RestartPod)}
    assert len(evictions) <= 1
    if evictions:
        operation = decision.status.operation
        assert operation is not None, "an eviction that is not on record"
        assert evictions == {(operation.pod, operation.pod_uid)}
    launches = [a for a in decision.actions if isinstance(a, LaunchRun)]
    assert len({a.run_id for a in launches}) <= 1
    modes = {a.mode for a in decision.actions if isinstance(a, ApplyControllers)}
    assert len(modes) <= 1


@SPEED
@given(situations)
def test_finalizing_needs_the_word_and_a_fresh_passed_verdict(situation: Situation) -> None:
    decision = situation.decide()
    final = [a for a in decision.actions if isinstance(a, ApplyControllers) and a.mode is ControllerMode.FINAL]
    if situation.status.phase is not Phase.FINALIZING:
        assert not final
    if decision.status.phase is Phase.FINALIZING and situation.status.phase is not Phase.FINALIZING:
        assert situation.status.phase is Phase.AWAITING_FINALIZATION
        assert situation.spec.target is Target.KRAFT
        assert not situation.spec.paused
        age = timedelta(seconds=situation.spec.verification.max_age_seconds)
        fresh = [
            v
            for v in decision.status.verifications
            if v.profile is Profile.DUAL_WRITE
            and v.verdict is Verdict.CONSISTENT
            and v.gate is Phase.AWAITING_FINALIZATION
            and v.released_at is not None
            and situation.now - v.released_at <= age
        ]
        assert fresh


@SPEED
@given(situations)
def test_a_phase_is_left_for_the_next_one_only(situation: Situation) -> None:
    before, after = situation.status.phase, situation.decide().status.phase
    if before is after:
        return
    if after is Phase.ROLLING_BACK:
        assert before.reversible
        assert situation.spec.target is Target.ZOOKEEPER
    elif before is Phase.ROLLING_BACK:
        assert after is Phase.ROLLED_BACK
    elif before is Phase.ROLLED_BACK:
        assert after is Phase.PREFLIGHT
        assert situation.spec.target is not Target.ZOOKEEPER
    elif after is Phase.LEAVING_KAFKA4:
        assert before.row.on_kafka4
        assert situation.spec.target is Target.KRAFT
    elif before is Phase.LEAVING_KAFKA4:
        assert after is Phase.COMPLETED
    else:
        assert position(after) == position(before) + 1


@SPEED
@given(situations)
def test_a_repeated_step_contradicts_nothing(situation: Situation) -> None:
    first = situation.decide()
    second = situation.after(first).decide()
    configured = {a.stateful_set: a.mode for a in first.actions if isinstance(a, ConfigureBrokers)}
    if first.status.phase is second.status.phase is situation.status.phase:
        for act in second.actions:
            if isinstance(act, ConfigureBrokers) and act.stateful_set in configured:
                assert act.mode is configured[act.stateful_set]
    operation = first.status.operation
    if operation is not None and second.status.operation is not None:
        same = (second.status.operation.pod, second.status.operation.pod_uid) == (operation.pod, operation.pod_uid)
        assert same or second.status.operation.started_at >= operation.started_at
    launched = {a.run_id for a in first.actions if isinstance(a, LaunchRun)}
    again = {a.run_id for a in second.actions if isinstance(a, LaunchRun)}
    assert len(launched | again) <= 2


@SPEED
@given(situations)
def test_a_verdict_is_taken_over_from_this_very_run_only(situation: Situation) -> None:
    decision = situation.decide()
    known = {v.run_id: v.verdict for v in situation.status.verifications}
    run = situation.observation.run
    for v in decision.status.verifications:
        if v.verdict is not None and known.get(v.run_id) is not v.verdict:
            assert isinstance(run, VerificationRun)
            said = run.verdict
            assert said is not None
            assert (said.run_id, said.profile, str(said.phase), said.generation, said.migration_uid) == (
                v.run_id,
                v.profile,
                str(v.gate),
                v.generation,
                IDENTITY.uid,
            )
            assert said.verdict is v.verdict


@SPEED
@given(situations)
def test_status_survives_json(situation: Situation) -> None:
    status = situation.decide().status
    text = status.model_dump_json(by_alias=True, exclude_none=True)
    assert MigrationStatus.model_validate_json(text) == status
    body = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert MigrationStatus.model_validate(body) == status


@SPEED
@given(situations)
def test_status_stays_small_and_conditions_stay_well_formed(situation: Situation) -> None:
    status = situation.decide().status
    kinds = [c.type for c in status.conditions]
    assert len(kinds) == len(set(kinds)) == len(ConditionType)
    assert len(status.message) <= 1024
    by_kind = {c.type: c.status for c in status.conditions}
    assert not (by_kind["Ready"] == "True" and by_kind["Reconciling"] == "True")  # type: ignore[index]


@SPEED
@given(situations)
def test_brokers_are_configured_for_kraft_from_their_own_phase_on(situation: Situation) -> None:
    decision = situation.decide()
    configured = [a for a in decision.actions if isinstance(a, ConfigureBrokers) and a.mode is BrokerMode.KRAFT]
    if configured:
        assert position(situation.status.phase) >= position(Phase.ROLLING_BROKERS)


@SPEED
@given(st.composite(spoiled)() | anything)
def test_metadata_version_is_changed_only_with_every_word_for_it(situation: Situation) -> None:
    decision = situation.decide()
    for action in decision.actions:
        if not isinstance(action, UpdateMetadataVersion):
            continue
        assert situation.status.phase is Phase.COMPLETED
        assert situation.spec.target is Target.KRAFT
        assert not situation.spec.paused
        assert situation.spec.metadata_level == action.level
        assert action.upgrade is not Upgrade.UNSAFE_DOWNGRADE or situation.status.metadata_version is not None
        version = decision.status.metadata_version
        assert version is not None
        assert version.change is not None
        assert (version.change.to_level, version.change.finished_at) == (action.level, None)
        before = situation.status.metadata_version
        if before is not None and before.change == version.change:
            continue  # on record since an earlier step
        features, answer = situation.observation.features, situation.observation.feature_answer
        assert not isinstance(features, Unobserved)
        assert isinstance(answer, FeatureAnswer)
        assert (answer.accepted, answer.level, answer.upgrade) == (True, action.level, action.upgrade)
        for node in CONTROLLER_IDS:
            seen = features[node]
            assert isinstance(seen, NodeFeatures)
            assert seen.supported[FEATURE][0] <= action.level <= seen.supported[FEATURE][1]
        passed = [v for v in situation.status.verifications if v.verdict is Verdict.CONSISTENT]
        assert any((v.profile, v.gate) == (Profile.REPLICAS, Phase.COMPLETED) for v in passed)
