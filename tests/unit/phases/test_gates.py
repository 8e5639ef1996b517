"""The table of gates: every phase x target, each part of the observation unknown, and every blocker, one at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.observations import (
    BROKER_IDS,
    CONTROLLER_IDS,
    GATE_RUN,
    IDENTITY,
    NOW,
    Situation,
    broker_set,
    cluster,
    controller_metrics,
    controllers_workload,
    features,
    kafka4_leg,
    open_gate,
    quorum,
    rolling,
    zookeeper,
)

from kraftbridge.models.conditions import ConditionType, condition
from kraftbridge.models.decision import ApplyControllers, ConfigureBrokers, LockStatefulSet, RestartPod
from kraftbridge.models.observation import (
    ControllersWorkload,
    MigrationZnode,
    TopicRedundancy,
    Unobserved,
    VoterState,
)
from kraftbridge.models.phase import FORWARD, LAST_PHASE, BrokerMode, ControllerMode, Phase, Target, ZkMigrationState
from kraftbridge.models.report import Verdict
from kraftbridge.models.spec import ConfigStyle, PropertiesSource
from kraftbridge.models.status import MigrationOffset, WaitKind

UNKNOWN = Unobserved("somebody", "it is silent")
WALKING = tuple(phase for phase in FORWARD if not phase.row.gives_back)
"""Phases that have a gate ahead. That of Completed is in test_to_kafka4."""


def following(phase: Phase) -> Phase:
    """Return the phase after this one. That of the brokers' upgrade is left out where nobody asks for it."""
    way = [each for each in FORWARD if each is not Phase.UPGRADING_BROKERS or each is phase]
    return way[way.index(phase) + 1]


def conditions_of(situation: Situation) -> dict[ConditionType, str]:
    return {c.type: c.status for c in situation.decide().status.conditions}


# ------------------------------------------------------------------------------------------------- targets


def expected_phase(phase: Phase, target: Target) -> Phase:
    if target is Target.ZOOKEEPER:
        return Phase.ROLLING_BACK if phase.reversible and phase is not Phase.PREFLIGHT else phase
    last = FORWARD.index(LAST_PHASE[target])
    here = FORWARD.index(phase)
    if phase.row.on_kafka4 and target is Target.KRAFT:
        # Once brokers may run Kafka 4, the voters' logs are compared first.
        return Phase.LEAVING_KAFKA4 if phase is Phase.KAFKA4_CONTROLLERS else phase
    if target is Target.KAFKA4 and not phase.row.on_kafka4 and phase is not Phase.FINALIZING:
        return phase  # refused before Completed, and prepared there
    if phase is Phase.FINALIZING:
        return Phase.COMPLETED  # a half finalized quorum must be finished, whatever is asked for now
    if phase is Phase.PREFLIGHT and target is Target.BRIDGE_RELEASE:
        return Phase.UPGRADING_BROKERS
    return following(phase) if here < last else phase


@pytest.mark.parametrize("target", Target)
@pytest.mark.parametrize("phase", FORWARD)
def test_everything_fine(phase: Phase, target: Target) -> None:
    decision = open_gate(phase, target).decide()
    expected = expected_phase(phase, target)
    if phase is Phase.FINALIZING and target is Target.ZOOKEEPER:
        expected = Phase.FINALIZING  # refused in so many words; asking for KRaft goes on
    assert decision.status.phase is expected
    assert decision.status.message
    if target not in (Target.KRAFT, Target.KAFKA4):
        assert not any(isinstance(a, ApplyControllers) and a.mode is ControllerMode.FINAL for a in decision.actions)


STEPS_BACK = [
    (phase, target)
    for target in Target
    if target not in (Target.KRAFT, Target.ZOOKEEPER)
    for phase in FORWARD[FORWARD.index(LAST_PHASE[target]) + 1 :]
    if phase is not Phase.FINALIZING
]


@pytest.mark.parametrize(("phase", "target"), STEPS_BACK)
def test_a_step_back_but_to_zookeeper_is_refused(phase: Phase, target: Target) -> None:
    situation = open_gate(phase, target)
    decision = situation.decide()
    assert decision.status.phase is phase
    assert decision.actions == ()
    assert "refused" in decision.status.message
    stalled = condition(decision.status.conditions, ConditionType.STALLED)
    assert stalled is not None
    assert (stalled.status, stalled.reason) == ("True", "Refused")


@pytest.mark.parametrize("phase", [Phase.FINALIZING, Phase.COMPLETED])
def test_there_is_no_way_back_from_a_finalized_quorum(phase: Phase) -> None:
    decision = open_gate(phase, Target.ZOOKEEPER).decide()
    assert decision.status.phase is phase
    assert decision.actions == ()
    assert "cannot be rolled back" in decision.status.message


def test_rolling_back_from_preflight_changes_nothing() -> None:
    decision = open_gate(Phase.PREFLIGHT, Target.ZOOKEEPER).decide()
    assert (decision.status.phase, decision.actions) == (Phase.PREFLIGHT, ())
    assert "no node was changed" in decision.status.message


@pytest.mark.parametrize("target", [target for target in Target if target is not Target.ZOOKEEPER])
def test_a_reached_target_is_ready(target: Target) -> None:
    situation = open_gate(LAST_PHASE[target], target)
    decision = situation.decide()
    kinds = {c.type: c.status for c in decision.status.conditions}
    assert (kinds[ConditionType.READY], kinds[ConditionType.RECONCILING], kinds[ConditionType.STALLED]) == (
        "True",
        "False",
        "False",
    )
    assert decision.requeue_after >= timedelta(seconds=1)


def test_the_last_exit_awaits_the_users_word() -> None:
    decision = open_gate(Phase.AWAITING_FINALIZATION, Target.KRAFT_BROKERS).decide()
    assert decision.status.phase is Phase.AWAITING_FINALIZATION
    assert "spec.target to KRaft" in decision.status.message
    assert "ZooKeeper" in decision.status.message
    assert decision.status.waiting is not None
    assert decision.status.waiting.kind is WaitKind.USER


# ------------------------------------------------------------------------------------------------- unknown

NEEDED: dict[Phase, tuple[str, ...]] = {
    Phase.PREFLIGHT: ("stateful_sets", "zookeeper", "cluster", "redundancy", "runner_available"),
    Phase.UPGRADING_BROKERS: ("stateful_sets", "cluster", "cluster_by_broker"),
    Phase.PROVISIONING_QUORUM: (
        "controllers",
        "quorum",
        "metrics",
        "cluster",
        *(f"metrics {i}" for i in CONTROLLER_IDS),
    ),
    Phase.TAKING_OVER: ("stateful_sets", "zookeeper", "metrics", "metrics 3000"),
    Phase.DUAL_WRITE: ("zookeeper", "metrics", "metrics 3000", "cluster"),
    Phase.ROLLING_BROKERS: ("stateful_sets", "zookeeper", "metrics", "metrics 3000", "cluster"),
    Phase.AWAITING_FINALIZATION: (
        "zookeeper",
        "quorum",
        "metrics",
        "cluster",
        *(f"metrics {i}" for i in CONTROLLER_IDS),
    ),
    Phase.FINALIZING: ("controllers", "quorum", "metrics", "cluster", *(f"metrics {i}" for i in CONTROLLER_IDS)),
    Phase.KAFKA4_CONTROLLERS: (
        "stateful_sets",
        "controllers",
        "quorum",
        "metrics",
        "cluster",
        "features",
        *(f"metrics {i}" for i in CONTROLLER_IDS),
    ),
    Phase.KAFKA4_BROKERS: (
        "stateful_sets",
        "controllers",
        "quorum",
        "metrics",
        "cluster",
        "cluster_by_broker",
        "features",
        *(f"metrics {i}" for i in CONTROLLER_IDS),
    ),
}
"""Parts of the observation that each gate stands on."""


def without(situation: Situation, part: str) -> Situation:
    name, _, node = part.partition(" ")
    match name:
        case "stateful_sets":
            return situation.observing(stateful_sets=(UNKNOWN,))
        case "metrics" if node:
            return situation.observing(metrics={**situation.observation.metrics, int(node): UNKNOWN})
        case "metrics":
            return situation.observing(metrics=dict.fromkeys(CONTROLLER_IDS, UNKNOWN))
        case _:
            return situation.observing(**{name: UNKNOWN})


@pytest.mark.parametrize(("phase", "part"), [(phase, part) for phase, parts in NEEDED.items() for part in parts])
def test_unknown_keeps_the_gate_closed_and_says_whose_it_is(phase: Phase, part: str) -> None:
    fine = open_gate(phase)
    assert fine.decide().status.phase is following(phase), "the situation is not healthy to begin with"
    decision = without(fine, part).decide()
    assert decision.status.phase is phase
    assert not any(
        isinstance(a, RestartPod | ConfigureBrokers | LockStatefulSet | ApplyControllers) for a in decision.actions
    )
    words = decision.status.message
    assert "somebody" in words or "no single active controller" in words, words


@pytest.mark.parametrize("done", [0, 1, 2])
@pytest.mark.parametrize(
    ("phase", "part"),
    [
        *((Phase.TAKING_OVER, p) for p in ("stateful_sets", "quorum", "metrics", "cluster")),
        *((Phase.ROLLING_BROKERS, p) for p in ("stateful_sets", "zookeeper", "quorum", "metrics", "cluster")),
    ],
)
def test_unknown_restarts_nobody(phase: Phase, done: int, part: str) -> None:
    fine = rolling(phase, done)
    assert any(isinstance(a, RestartPod) for a in fine.decide().actions), "the situation restarts nobody to begin with"
    decision = without(fine, part).decide()
    assert not any(isinstance(a, RestartPod) for a in decision.actions)
    assert decision.status.operation is None


# ------------------------------------------------------------------------------------------------ blockers

Spoil = Callable[[Situation], Situation]


def observing(**parts: Any) -> Spoil:
    return lambda s: s.observing(**parts)


def unhealthy(**changes: Any) -> Spoil:
    return observing(cluster=cluster(**changes))


def gauges(**changes: Any) -> Spoil:
    """Change gauges of every controller."""

    def spoil(situation: Situation) -> Situation:
        metrics = {
            i: replace(m, **changes) for i, m in situation.observation.metrics.items() if not isinstance(m, Unobserved)
        }
        return situation.observing(metrics=metrics)

    return spoil


def gauge_of(node: int, **changes: Any) -> Spoil:
    def spoil(situation: Situation) -> Situation:
        metrics = dict(situation.observation.metrics)
        own = metrics[node]
        assert not isinstance(own, Unobserved)
        return situation.observing(metrics={**metrics, node: replace(own, **changes)})

    return spoil


def znodes(**changes: Any) -> Spoil:
    def spoil(situation: Situation) -> Situation:
        state = situation.observation.zookeeper
        assert not isinstance(state, Unobserved)
        return situation.observing(zookeeper=replace(state, **changes))

    return spoil


def before_any_offset(spoil: Spoil) -> Spoil:
    """Spoil a situation in which no offset was read yet; later its loss is a contradiction (test_history.py)."""
    return lambda situation: spoil(situation.with_status(migration_offset=None))


def sets(**changes: Any) -> Spoil:
    def spoil(situation: Situation) -> Situation:
        (item,) = situation.observation.stateful_sets
        assert not isinstance(item, Unobserved)
        return situation.observing(stateful_sets=(replace(item, **changes),))

    return spoil


def settings(**changes: str) -> Spoil:
    dotted = {k.replace("_", "."): v for k, v in changes.items()}

    def spoil(situation: Situation) -> Situation:
        (item,) = situation.observation.stateful_sets
        assert not isinstance(item, Unobserved)
        return situation.observing(stateful_sets=(replace(item, settings={**item.settings, **dotted}),))

    return spoil


def mounting(what: str, **changes: Any) -> Spoil:
    """Let the brokers read a properties file from a volume that mounts ``what``."""
    properties = PropertiesSource(volume="config", config_map="kafka-config")
    style = {"config_style": ConfigStyle.PROPERTIES, "properties": properties}
    seen = sets(properties_from=what, **changes)
    return lambda s: seen(s.asking(brokers=s.spec.brokers.model_copy(update=style)))


def first_controller(**changes: Any) -> Spoil:
    def spoil(situation: Situation) -> Situation:
        workload = situation.observation.controllers
        assert isinstance(workload, ControllersWorkload)
        assert workload.stateful_set is not None
        pods = workload.stateful_set.pods
        changed = replace(workload.stateful_set, pods=(replace(pods[0], **changes), *pods[1:]))
        return situation.observing(controllers=replace(workload, stateful_set=changed))

    return spoil


def crashing_controller(situation: Situation) -> Situation:
    workload = situation.observation.controllers
    assert isinstance(workload, ControllersWorkload)
    assert workload.stateful_set is not None
    first, *others = workload.stateful_set.pods
    follower = replace(others[0], ready=False, trouble="CrashLoopBackOff: No space left on device")
    stateful_set = replace(workload.stateful_set, pods=(first, follower, *others[1:]))
    silent = Unobserved("controller 3001", "connection refused")
    return situation.observing(
        controllers=replace(workload, stateful_set=stateful_set),
        metrics={**situation.observation.metrics, 3001: silent},
    )


def quorum_with(**changes: Any) -> Spoil:
    return observing(quorum=replace(quorum(), **changes))


def offset_stood_still(situation: Situation) -> Situation:
    old = NOW - timedelta(seconds=40)
    return situation.with_status(migration_offset=MigrationOffset(offset="5000", seen_at=NOW, moved_at=old))


def young_leader(situation: Situation) -> Situation:
    seen = situation.status.quorum
    assert seen is not None
    return situation.with_status(quorum=seen.model_copy(update={"leader_since": NOW - timedelta(seconds=1)}))


UNHEALTHY: dict[str, tuple[Spoil, str]] = {
    "under-replicated": (unhealthy(under_replicated=("t-1",), under_replicated_count=1), "t-1"),
    "offline": (unhealthy(offline=("t-2",), offline_count=1), "t-2"),
    "broker missing": (unhealthy(brokers=frozenset({0, 2})), "broker 1"),
    "no broker at all": (unhealthy(brokers=frozenset()), "broker 0, 1, 2"),
}
DISAGREEING: dict[str, tuple[Spoil, str]] = {
    "voter lags": (observing(quorum=quorum(lags={3001: 50})), "50 records behind"),
    "voter never fetched": (
        quorum_with(voters=(VoterState(3000, 10), VoterState(3001, -1), VoterState(3002, 10))),
        "not fetched",
    ),
    "a voter too few": (quorum_with(voters=quorum().voters[:2]), "not 3000, 3001, 3002"),
    "another leader seen": (gauge_of(3002, leader_id=3001), "controller 3002 sees leader 3001"),
    "another epoch seen": (gauge_of(3001, leader_epoch=1), "controller 3001 sees leader 3000 in epoch 1"),
    "two active": (gauge_of(3002, active=True), ""),
    "none active": (gauge_of(3000, active=False), ""),
    "young leader": (young_leader, "has not led"),
    "a full disk": (crashing_controller, "No space left on device"),
    "new leader": (observing(quorum=quorum(leader=3001, epoch=3)), "leader 30"),
}
NOT_MIRRORING: dict[str, tuple[Spoil, str]] = {
    "not MIGRATION": (gauges(zk_migration_state=ZkMigrationState.PRE_MIGRATION), "PRE_MIGRATION"),
    "not loaded": (gauges(zk_migration_state=ZkMigrationState.NOT_LOADED), "NOT_LOADED"),
    "claim is ZooKeeper's": (znodes(controller=zookeeper(taken_over=False).controller), "/controller"),
    "no claim": (znodes(controller=None), "/controller"),
    "/migration missing": (before_any_offset(znodes(migration=None)), "/migration is missing"),
    "/migration null": (znodes(migration=Unobserved("/migration", "its payload is null")), "null"),
    "copy incomplete": (before_any_offset(znodes(migration=MigrationZnode(3000, 2, -1, -1))), "not complete"),
    "offset frozen": (offset_stood_still, "must grow"),
    "offset never moved": (
        lambda s: s.with_status(migration_offset=MigrationOffset(offset="5000", seen_at=NOW)),
        "must grow",
    ),
    "offset seen for the first time": (lambda s: s.with_status(migration_offset=None), "must grow"),
}
NOT_ALL_KRAFT: dict[str, tuple[Spoil, str]] = {
    "one is on ZooKeeper": (gauges(migrating_zk_brokers=1), "1 broker(s) are still registered as ZooKeeper"),
    "one is not registered": (gauges(active_brokers=2), "2 of 3"),
    "one is fenced": (gauges(fenced_brokers=1), "fenced"),
}
NOT_RUNNING: dict[str, tuple[Spoil, str]] = {
    "not Ready": (first_controller(ready=False, trouble="Unschedulable: no node"), "Unschedulable"),
    "terminating": (first_controller(deleting=True), "being replaced"),
    "another configuration": (first_controller(configuration="Migration-old"), "does not run configuration"),
    "no StatefulSet yet": (observing(controllers=ControllersWorkload(None)), "is gone"),
    "a pod is missing": (
        lambda s: s.observing(
            controllers=ControllersWorkload(
                replace(controllers_workload().stateful_set, pods=controllers_workload().stateful_set.pods[1:])  # type: ignore[type-var, union-attr]
            )
        ),
        "no pod yet",
    ),
}
FINDINGS: dict[str, tuple[Spoil, str]] = {
    "AdmissionPolicyMissing": (observing(admission_policy=False), "ValidatingAdmissionPolicy"),
    "LockedByAnother": (sets(lock="kafka/other/uid"), "kafka/other/uid"),
    "BrokersNotReady": (sets(pods=(replace(broker_set().pods[0], ready=False), *broker_set().pods[1:])), "2 of 3"),
    "SettingFromReference": (
        sets(fixed_variables={"KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": 'value: "A:SSL"'}),
        'KAFKA_LISTENER_SECURITY_PROTOCOL_MAP by this line in the pod template, and roll the brokers: value: "A:SSL"',
    ),
    "SettingInArguments": (
        sets(overrides={"listener.security.protocol.map": "A:SSL", "broker.id": "1"}),
        "Remove --override listener.security.protocol.map=A:SSL from command and args",
    ),
    "VolumeMissing": (mounting(""), "no volume 'config'"),
    "PropertiesElsewhere": (mounting("Secret/kafka-zone-b"), "mounts Secret/kafka-zone-b"),
    "InterBrokerProtocolTooLow": (settings(inter_broker_protocol_version="3.3-IV3"), "3.3-IV3"),
    "MigrationFlagAlreadySet": (settings(zookeeper_metadata_migration_enable="true"), "not by this migration"),
    "AlreadyKRaft": (settings(process_roles="broker"), "process.roles"),
    "ControlPlaneListener": (settings(control_plane_listener_name="CP"), "control.plane"),
    "GeneratedBrokerIds": (settings(broker_id="-1"), "-1"),
    "CustomAuthorizer": (settings(authorizer_class_name="com.example.Mine"), "com.example.Mine"),
    "ContainerMissing": (sets(container_found=False), "no container"),
    "ClusterIdMissing": (znodes(cluster_id=None), "/kafka/cluster/id"),
    "MigrationZnodeUnreadable": (znodes(migration=Unobserved("/migration", "null")), "KAFKA-19480"),
    "MigrationZnodeStale": (znodes(migration=MigrationZnode(3000, 2, 77, 2)), "77"),
    "ControllerMissing": (znodes(controller=None), "/controller is missing"),
    "ControllerIsKRaft": (znodes(controller=zookeeper(taken_over=True).controller), "claimed"),
    "TopicDeletionPending": (znodes(pending_topic_deletions=("gone",)), "gone"),
    "ReassignmentRunning": (znodes(reassignments=True), "reassignment"),
    "BrokerIdentityUnknown": (znodes(brokers=zookeeper(taken_over=False).brokers[:2]), "cannot be paired"),
    "OfflinePartitions": (unhealthy(offline=("t-2",), offline_count=1), "t-2"),
    "UnderReplicatedPartitions": (unhealthy(under_replicated=("t-1",), under_replicated_count=1), "t-1"),
    "TopicNotReplicated": (observing(redundancy=TopicRedundancy(("lonely",), ())), "lonely"),
    "TopicAtMinIsr": (observing(redundancy=TopicRedundancy((), ("tight",))), "tight"),
}
CLOSED: dict[Phase, dict[str, tuple[Spoil, str]]] = {
    Phase.PREFLIGHT: FINDINGS,
    Phase.UPGRADING_BROKERS: {
        **UNHEALTHY,
        "a broker is not there": (sets(pods=broker_set(BrokerMode.UPGRADED).pods[:2]), "2 of 3"),
        "a pod runs an older template": (sets(update_revision="rev-newer"), ""),
        "the record of the upgrade is gone": (
            lambda s: s.with_status(broker_upgrade=None),
            "status.brokerUpgrade, which preflight recorded, is gone",
        ),
    },
    Phase.PROVISIONING_QUORUM: {
        **UNHEALTHY,
        **DISAGREEING,
        **NOT_RUNNING,
        "not ready to migrate": (gauge_of(3001, zk_migration_state=ZkMigrationState.NONE), "controller 3001"),
    },
    Phase.TAKING_OVER: {
        **NOT_MIRRORING,
        "a broker is not there": (sets(pods=broker_set(BrokerMode.MIGRATION).pods[:2]), "2 of 3"),
        "a pod runs an older template": (sets(update_revision="rev-newer"), ""),
    },
    Phase.DUAL_WRITE: {**NOT_MIRRORING, **UNHEALTHY},
    Phase.ROLLING_BROKERS: {**NOT_MIRRORING, **UNHEALTHY, **NOT_ALL_KRAFT},
    Phase.AWAITING_FINALIZATION: {**NOT_MIRRORING, **UNHEALTHY, **NOT_ALL_KRAFT, **DISAGREEING},
    Phase.FINALIZING: {
        **UNHEALTHY,
        **DISAGREEING,
        **NOT_ALL_KRAFT,
        "one voter has not ended the migration": (
            gauge_of(3002, zk_migration_state=ZkMigrationState.MIGRATION),
            "controller 3002",
        ),
        "held": (lambda s: s.with_status(hold_until=NOW + timedelta(seconds=4)), "holding"),
        "the StatefulSet is gone": (observing(controllers=ControllersWorkload(None)), "is gone"),
        "a pod keeps the flag": (observing(controllers=controllers_workload(ControllerMode.FINAL, done=2)), ""),
    },
    Phase.KAFKA4_CONTROLLERS: {
        **UNHEALTHY,
        **DISAGREEING,
        **{name: spoiled for name, spoiled in NOT_ALL_KRAFT.items() if "ZooKeeper" not in name},
        "held": (lambda s: s.with_status(hold_until=NOW + timedelta(seconds=4)), "holding"),
        "a controller runs the release before": (
            observing(features=features(highest=21)),
            "node 3000 supports metadata.version up to 3.9-IV0",
        ),
        "the record is gone": (lambda s: s.with_status(kafka4_leg=None), "status.kafka4Leg is gone"),
        "the controllers are rendered with another image": (
            lambda s: s.with_status(kafka4_leg=kafka4_leg(controllers_image="registry/kafka:4.1.9")),
            "",
        ),
    },
    Phase.KAFKA4_BROKERS: {
        **UNHEALTHY,
        **DISAGREEING,
        **{name: spoiled for name, spoiled in NOT_ALL_KRAFT.items() if "ZooKeeper" not in name},
        "a broker is not there": (sets(pods=broker_set(BrokerMode.KAFKA4).pods[:2]), "2 of 3"),
        "a pod runs an older template": (sets(update_revision="rev-newer"), ""),
        "a broker runs the release before": (
            observing(features={**features(highest=27), 1: features(highest=21)[1]}),
            "node 1 supports metadata.version up to 3.9-IV0",
        ),
        "the record is gone": (lambda s: s.with_status(kafka4_leg=None), "status.kafka4Leg is gone"),
    },
}


def test_every_phase_with_a_gate_ahead_is_in_the_tables() -> None:
    assert list(NEEDED) == list(WALKING), "NEEDED: the parts of the observation that its gate stands on"
    assert list(CLOSED) == list(WALKING), "CLOSED: what keeps its gate closed"


@pytest.mark.parametrize(("phase", "blocker"), [(p, name) for p, table in CLOSED.items() for name in table])
def test_each_blocker_keeps_the_gate_closed(phase: Phase, blocker: str) -> None:
    spoil, words = CLOSED[phase][blocker]
    decision = spoil(open_gate(phase)).decide()
    assert decision.status.phase is phase
    assert words in decision.status.message, decision.status.message


@pytest.mark.parametrize("verdict", [Verdict.INCONSISTENT, Verdict.INCONCLUSIVE, None])
@pytest.mark.parametrize("phase", [p for p in GATE_RUN if p is not Phase.TAKING_OVER])
def test_only_a_consistent_verdict_opens_a_gate(phase: Phase, verdict: Verdict | None) -> None:
    assert open_gate(phase).judged(verdict).decide().status.phase is phase


@pytest.mark.parametrize("code", [c for c in FINDINGS if c not in ("BrokerIdentityUnknown", "ContainerMissing")])
def test_a_finding_has_its_code_and_a_fix_and_changes_nothing(code: str) -> None:
    decision = FINDINGS[code][0](open_gate(Phase.PREFLIGHT)).decide()
    found = {f.code: f for f in decision.status.findings}
    assert code in found
    assert found[code].fix
    assert found[code].severity == "Blocking"
    assert decision.actions == ()
    passed = condition(decision.status.conditions, ConditionType.PREFLIGHT_PASSED)
    assert passed is not None
    assert passed.status == "False"


def test_a_volume_without_the_file_is_a_finding_that_names_volume_and_key() -> None:
    decision = mounting("ConfigMap/kafka-config", settings={})(open_gate(Phase.PREFLIGHT)).decide()
    (found,) = (f for f in decision.status.findings if f.code == "PropertiesMissing")
    assert (
        "ConfigMap/kafka-config, which volume config of the pod template mounts, has no key server.properties"
        in found.reason
    )


def test_an_accepted_finding_opens_the_gate_and_stays_visible() -> None:
    spoiled = FINDINGS["TopicNotReplicated"][0](open_gate(Phase.PREFLIGHT))
    preflight = spoiled.spec.preflight.model_validate(
        {"accepted": [{"code": "TopicNotReplicated", "object": "topic/lonely"}]}
    )
    decision = spoiled.asking(preflight=preflight).decide()
    assert decision.status.phase is Phase.PROVISIONING_QUORUM
    assert [(f.code, f.accepted) for f in decision.status.findings] == [("TopicNotReplicated", True)]


def test_accepting_one_object_does_not_accept_another() -> None:
    spoiled = open_gate(Phase.PREFLIGHT).observing(redundancy=TopicRedundancy(("lonely", "other"), ()))
    preflight = spoiled.spec.preflight.model_validate(
        {"accepted": [{"code": "TopicNotReplicated", "object": "topic/lonely"}]}
    )
    assert spoiled.asking(preflight=preflight).decide().status.phase is Phase.PREFLIGHT


UNACCEPTABLE = (
    ("KafkaUnreachable", observing(cluster=UNKNOWN)),
    ("RedundancyUnknown", observing(redundancy=UNKNOWN)),
    ("BrokerIdentityUnknown", FINDINGS["BrokerIdentityUnknown"][0]),
    ("ClusterIdMissing", FINDINGS["ClusterIdMissing"][0]),
    ("LockedByAnother", FINDINGS["LockedByAnother"][0]),
    ("MigrationZnodeStale", FINDINGS["MigrationZnodeStale"][0]),
    ("AlreadyKRaft", FINDINGS["AlreadyKRaft"][0]),
)


@pytest.mark.parametrize(("code", "spoil"), UNACCEPTABLE, ids=[c for c, _ in UNACCEPTABLE])
def test_the_user_cannot_accept_what_is_unknown_or_cannot_work(code: str, spoil: Spoil) -> None:
    situation = spoil(open_gate(Phase.PREFLIGHT))
    preflight = situation.spec.preflight.model_validate({"accepted": [{"code": code}]})
    assert situation.asking(preflight=preflight).decide().status.phase is Phase.PREFLIGHT


# -------------------------------------------------------------------------------------------------- soaks


@pytest.mark.parametrize(
    ("phase", "field"),
    [(Phase.DUAL_WRITE, "hybrid_soak_seconds"), (Phase.AWAITING_FINALIZATION, "pure_soak_seconds")],
)
def test_soaking_takes_its_time_from_the_phases_entry(phase: Phase, field: str) -> None:
    soaking = open_gate(phase).pacing(**{field: 600})  # entered five minutes ago
    decision = soaking.decide()
    assert decision.status.phase is phase
    assert "soaking" in decision.status.message
    assert decision.status.waiting is not None
    assert decision.status.waiting.kind is WaitKind.SOAK
    assert open_gate(phase).pacing(**{field: 299}).decide().status.phase is following(phase)


# ------------------------------------------------------------------------------------- conditions, deadline


def test_every_condition_is_there_from_the_first_visit_and_says_why() -> None:
    fresh = open_gate(Phase.PREFLIGHT).with_status(conditions=(), history=())
    decision = fresh.observing(cluster=UNKNOWN).decide()
    assert {c.type for c in decision.status.conditions} == set(ConditionType)
    assert all(c.reason != "Initializing" for c in decision.status.conditions)
    assert all(
        c.observed_generation == IDENTITY.generation for c in decision.status.conditions if c.reason != "Initializing"
    )


@pytest.mark.parametrize(
    "phase", [Phase.PROVISIONING_QUORUM, Phase.TAKING_OVER, Phase.ROLLING_BROKERS, Phase.FINALIZING]
)
def test_a_phase_past_its_deadline_is_stalled_and_names_what_it_waits_for(phase: Phase) -> None:
    waiting = without(open_gate(phase), "metrics")
    waiting = waiting.after(waiting.decide()).with_status(progress_at=NOW - timedelta(seconds=1801))
    decision = waiting.decide()
    stalled = condition(decision.status.conditions, ConditionType.STALLED)
    assert stalled is not None
    assert (stalled.status, stalled.reason) == ("True", "DeadlineExceeded")
    assert stalled.message == decision.status.message
    again = waiting.after(decision).decide()
    assert [e for e in decision.events if e.reason == "Stalled"]
    assert not [e for e in again.events if e.reason == "Stalled"], "an event is posted on the transition only"


@pytest.mark.parametrize("phase", FORWARD[FORWARD.index(Phase.TAKING_OVER) :])
def test_rollback_is_possible_only_while_zookeeper_mirrors_the_log(phase: Phase) -> None:
    fine = conditions_of(open_gate(phase))[ConditionType.ROLLBACK_POSSIBLE]
    if not phase.reversible or phase is Phase.AWAITING_FINALIZATION:
        assert fine == "False"
        return
    assert fine == "True"
    assert conditions_of(offset_stood_still(open_gate(phase)))[ConditionType.ROLLBACK_POSSIBLE] == "False"
    assert conditions_of(without(open_gate(phase), "zookeeper"))[ConditionType.ROLLBACK_POSSIBLE] == "Unknown"


def test_the_account_of_time_adds_up() -> None:
    situation = open_gate(Phase.AWAITING_FINALIZATION, Target.KRAFT_BROKERS)
    asked = situation.after(situation.decide()).later(90)
    entered = asked.asking(Target.KRAFT).judged(released_at=asked.now, finished_at=asked.now)
    entered = entered.with_status(
        migration_offset=MigrationOffset(offset="4990", seen_at=asked.now, moved_at=asked.now)
    )
    decision = entered.decide()
    assert decision.status.phase is Phase.FINALIZING
    left = next(h for h in decision.status.history if h.phase is Phase.AWAITING_FINALIZATION)
    assert (left.user_wait_seconds, left.left_at) == (90, asked.now)
    assert len(BROKER_IDS) == decision.status.brokers.in_mode


def test_gauges_that_agree_are_what_the_table_starts_from() -> None:
    # The table is void if a healthy situation would not advance.
    for phase in WALKING:
        assert open_gate(phase).decide().status.phase is following(phase)
    assert controller_metrics(ZkMigrationState.MIGRATION, 0)[3000].active  # type: ignore[union-attr]


def test_the_lag_of_a_voter_that_has_not_fetched_yet_is_not_recorded_as_one() -> None:
    """Seen after a migration: the leader answers offset -1 for a voter that restarted, and the status said "lag 4297 records" for ever."""
    unknown = replace(quorum(), voters=(VoterState(3000, 4_297), VoterState(3001, -1), VoterState(3002, 4_297)))
    situation = open_gate(Phase.AWAITING_FINALIZATION, Target.KRAFT_BROKERS).with_status(quorum=None)

    first = situation.observing(quorum=unknown).decide()
    assert first.status.quorum is not None
    assert first.status.quorum.max_lag_records is None
    later = situation.later(5).after(first).decide()
    assert later.status.quorum is not None
    assert later.status.quorum.max_lag_records == "0"
