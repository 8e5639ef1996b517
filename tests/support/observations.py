"""Healthy situations for every phase, the input of `decide` when its next gate is open, and small ways to break them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from kraftbridge.copies.dry_start import copies_for_kafka4, copies_of
from kraftbridge.models.broker_record import (
    BrokerNow,
    BrokerRecord,
    EffectiveSetting,
    ListenerState,
    OffsetsNow,
    PartitionOffsets,
)
from kraftbridge.models.catalogue import Code
from kraftbridge.models.conditions import initial_conditions
from kraftbridge.models.decision import CreatePartitionStates, Decision, LaunchRun, RecordBroker
from kraftbridge.models.dry_start import (
    ContainerImage,
    CopyOutcome,
    DryStartReport,
    DryStartState,
    GivenSetting,
    KafkaStart,
)
from kraftbridge.models.entities import EntityKind, KindCounts
from kraftbridge.models.issued import IssuedListener, IssuedSecret
from kraftbridge.models.metadata_version import FEATURE
from kraftbridge.models.observation import (
    NOT_NEEDED,
    ActionOutcome,
    BrokerZnode,
    ClusterState,
    ControllerMetrics,
    ControllersWorkload,
    ControllerZnode,
    KafkaSettings,
    LeaseState,
    MigrationZnode,
    NodeFeatures,
    Observation,
    Path,
    Paths,
    PodState,
    QuorumState,
    RecordedOriginal,
    RehearsalState,
    RunState,
    StartLog,
    StatefulSetState,
    TopicRedundancy,
    Unobserved,
    VerificationRun,
    VoterState,
    ZooKeeperState,
)
from kraftbridge.models.phase import FORWARD, BrokerMode, ControllerMode, Phase, Target, ZkMigrationState
from kraftbridge.models.rehearsal import RehearsalVerdict
from kraftbridge.models.report import Profile, Verdict, VerdictSummary
from kraftbridge.models.runs import RunKind
from kraftbridge.models.spec import AcceptedFinding, ConfigStyle, Kafka4Spec, MigrationSpec, UpgradeSpec
from kraftbridge.models.status import (
    BrokerUpgradeStatus,
    CanaryStatus,
    ChannelStatus,
    ControllersStatus,
    FormerImages,
    GuardedStatefulSet,
    HandOverStatus,
    Kafka4Leg,
    KeptCopy,
    MigrationOffset,
    MigrationStatus,
    NodeStatus,
    PhaseRecord,
    PodSight,
    QuorumStatus,
    RehearsalStatus,
    RenderedControllers,
    RequiredVariable,
    SeenSecret,
    TemplateStatus,
    VerificationStatus,
    Waiting,
    WaitKind,
    kept_copy_secrets,
    tuned_controllers,
)
from kraftbridge.models.survey import (
    AclEntry,
    BrokerSetting,
    Budget,
    Capacity,
    ControllersDemand,
    Demand,
    Room,
    SettingSource,
    Stated,
    StorageClass,
    Survey,
    Visibility,
    ZooKeeperAcls,
)
from kraftbridge.models.volumes import Mount
from kraftbridge.phases.draft import Identity, Migration
from kraftbridge.phases.machine import decide
from kraftbridge.phases.preflight.kafka import taken_over
from kraftbridge.phases.shared_settings import FOLLOWED

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
IDENTITY = Identity("kafka", "demo", "5f0c6a1e-7b1d-4f6e-9a57-0c55aa10f00d", 7)
BROKER_IDS = (0, 1, 2)
CONTROLLER_IDS = (3000, 3001, 3002)
CLUSTER_ID = "kVx3Yk9aSZ2mJ0wq1Yl5Wg"
BROKER_SET = "kafka"
CONTROLLERS = f"{IDENTITY.name}-kraft"
RUN_ID = f"{IDENTITY.name}-{IDENTITY.uid[:8]}-1"
REHEARSAL = f"{IDENTITY.name}-{IDENTITY.uid[:8]}-rehearsal-1"
REHEARSED = "digest"
"""Fingerprint of what a rehearsal judges."""
GATE_RUN: dict[Phase, tuple[Profile, Phase]] = {
    Phase.UPGRADING_BROKERS: (Profile.UPGRADE, Phase.PROVISIONING_QUORUM),
    Phase.PROVISIONING_QUORUM: (Profile.ZOOKEEPER, Phase.TAKING_OVER),
    Phase.TAKING_OVER: (Profile.COPY, Phase.DUAL_WRITE),
    Phase.DUAL_WRITE: (Profile.DUAL_WRITE, Phase.ROLLING_BROKERS),
    Phase.ROLLING_BROKERS: (Profile.DUAL_WRITE, Phase.AWAITING_FINALIZATION),
    Phase.AWAITING_FINALIZATION: (Profile.DUAL_WRITE, Phase.AWAITING_FINALIZATION),
    Phase.FINALIZING: (Profile.REPLICAS, Phase.COMPLETED),
    Phase.KAFKA4_CONTROLLERS: (Profile.REPLICAS, Phase.KAFKA4_BROKERS),
    Phase.KAFKA4_BROKERS: (Profile.REPLICAS, Phase.KAFKA4),
}
"""The verification that opens the gate at the end of a phase. Other phases have none."""
COPY_PURPOSE = "attempt-1"

FINE_SETTINGS = {
    "broker.id": "",
    "zookeeper.connect": "zk-0.zk:2181/kafka",
    "inter.broker.protocol.version": "3.9",
    "listener.security.protocol.map": "INTERNAL:PLAINTEXT",
}


def spec_document(**changes: Any) -> dict[str, Any]:
    """Return ``spec`` as a user would write it; keyword arguments replace top-level fields."""
    document: dict[str, Any] = {
        "target": "KRaft",
        "zookeeper": {"connect": "zk-0.zk:2181/kafka"},
        "brokers": {
            "statefulSets": [{"name": BROKER_SET}],
            "bootstrapServers": "kafka-0.kafka:9092",
            "configStyle": "Env",
        },
        "controllers": {"listener": {"securityProtocol": "SSL"}, "passwordEncoderSecret": {"name": "p", "key": "k"}},
    }
    return document | changes


@functools.lru_cache(maxsize=256)
def _spec(target: Target, *, paused: bool) -> MigrationSpec:
    return MigrationSpec.model_validate(spec_document(target=str(target), paused=paused))


UPGRADE = UpgradeSpec(image="registry/kafka:3.9.2")
"""What brings the brokers to Kafka 3.9 in `upgrading`, and in phase UpgradingBrokers."""
FORMER_PROTOCOL = "2.8-IV1"


def spec(target: Target = Target.KRAFT, *, paused: bool = False, **changes: Any) -> MigrationSpec:
    """Return a parsed spec."""
    return _spec(target, paused=paused).model_copy(update=changes) if changes else _spec(target, paused=paused)


def pod(
    name: str, ordinal: int, configuration: str = "", revision: str = "rev-a", *, uid: str = "", **changes: Any
) -> PodState:
    """Return a pod that has long been Ready."""
    fine = PodState(
        name=name,
        uid=uid or f"uid-{name}-{revision}",
        ordinal=ordinal,
        ready=True,
        ready_since=NOW - timedelta(minutes=10),
        deleting=False,
        configuration=configuration,
        revision=revision,
        ip=f"10.0.0.{ordinal % 250}",
    )
    return replace(fine, **changes)


def issued_listener(*, exists: bool = True, **changes: Any) -> IssuedListener:
    """Return the Secrets with the certificates that the operator issues; all there are, or none."""
    each = {
        part: IssuedSecret(f"demo-{part}", exists=exists, expires_at=NOW + timedelta(days=1000) if exists else None)
        for part in ("authority", "controllers", "brokers")
    }
    return IssuedListener(**(each | changes))


NEEDED = GuardedStatefulSet(
    name=BROKER_SET, container="kafka", variables=(RequiredVariable(name="KAFKA_PROCESS_ROLES", value="broker"),)
)


RECORDED = RecordedOriginal("digest-of-the-original", complete=True)


def broker_set(
    mode: BrokerMode | None = None, pods: Iterable[PodState] | None = None, **changes: Any
) -> StatefulSetState:
    """Return the brokers' StatefulSet: untouched (None), or locked, rendering ``mode`` and with all pods running it."""
    configuration = "" if mode is None else f"{mode}-hash"
    revision = f"rev-{mode or 'user'}"
    fine = StatefulSetState(
        name=BROKER_SET,
        uid="uid-sts",
        replicas=len(BROKER_IDS),
        update_strategy="RollingUpdate" if mode is None else "OnDelete",
        configuration=configuration,
        update_revision=revision,
        observed=True,
        lock="" if mode is None else IDENTITY.lock,
        container_found=True,
        settings=FINE_SETTINGS,
        unreadable_settings=frozenset(),
        java_tool_options="",
        volumes=frozenset({"data"}),
        mounts=(Mount("/data", "data", "persistentVolumeClaim"),),
        drift=(),
        lease=LEASE,
        original=RecordedOriginal() if mode is None else RECORDED,
        overlay=configuration,
        required=NEEDED if mode is BrokerMode.KRAFT else None,
        pods=tuple(pods)
        if pods is not None
        else tuple(pod(f"{BROKER_SET}-{i}", i, configuration, revision) for i in BROKER_IDS),
    )
    return replace(fine, **changes)


def partly_rolled(done: int, mode: BrokerMode, before: BrokerMode | None, **changes: Any) -> StatefulSetState:
    """Return the brokers' StatefulSet rendering ``mode``, of whose pods only the first ``done`` run it."""
    new, old = broker_set(mode), broker_set(before)
    return replace(new, pods=(*new.pods[:done], *old.pods[done:]), **changes)


def seen_secrets(fingerprints: Mapping[str, str]) -> dict[str, SeenSecret]:
    """Return Secrets of the controllers as they are seen, by name."""
    return {name: SeenSecret(version=f"uid/{value}", fingerprint=value) for name, value in fingerprints.items()}


def controllers_workload(mode: ControllerMode = ControllerMode.MIGRATION, done: int = 3) -> ControllersWorkload:
    """Return the controllers' StatefulSet rendering ``mode``, whose first ``done`` pods already run it."""

    def pods_in(running: ControllerMode, ids: tuple[int, ...]) -> tuple[PodState, ...]:
        return tuple(pod(f"{CONTROLLERS}-{i}", i, f"{running}-hash", f"rev-{running}") for i in ids)

    return ControllersWorkload(
        broker_set(
            None,
            pods=(
                *pods_in(mode, CONTROLLER_IDS[:done]),
                *pods_in(ControllerMode.MIGRATION, CONTROLLER_IDS[done:]),
            ),
            name=CONTROLLERS,
            update_strategy="OnDelete",
            configuration=f"{mode}-hash",
            update_revision=f"rev-{mode}",
            settings={},
        ),
        format_allowed=False,
        volume_uids={i: f"pvc-{i}" for i in CONTROLLER_IDS},
    )


def with_pods(workload: ControllersWorkload, *ordinals: int, **changes: Any) -> ControllersWorkload:
    """Return the controllers with changes of these of their pods."""
    stateful_set = workload.stateful_set
    assert stateful_set is not None
    pods = tuple(replace(pod, **changes) if pod.ordinal in ordinals else pod for pod in stateful_set.pods)
    return replace(workload, stateful_set=replace(stateful_set, pods=pods))


def zookeeper(
    *, taken_over: bool, offset: int = 5_000, brokers: Iterable[int] = BROKER_IDS, **changes: Any
) -> ZooKeeperState:
    """Return the znodes before or after the KRaft quorum claimed ``/controller``."""
    fine = ZooKeeperState(
        cluster_id=CLUSTER_ID,
        controller=ControllerZnode(3000, 2, ephemeral=False) if taken_over else ControllerZnode(1, -1, ephemeral=True),
        controller_epoch=4,
        migration=MigrationZnode(3000, 2, offset, 2) if taken_over else None,
        brokers=tuple(BrokerZnode(i, (f"{BROKER_SET}-{i}.kafka.kafka.svc",)) for i in brokers),
        pending_topic_deletions=(),
        reassignments=False,
        canary=None,
    )
    return replace(fine, **changes)


def quorum(leader: int = 3000, epoch: int = 2, lags: Mapping[int, int] | None = None) -> QuorumState:
    """Return a quorum in which every voter except those in ``lags`` has caught up."""
    behind = lags or {}
    voters = tuple(VoterState(i, 6_000 - behind.get(i, 0)) for i in CONTROLLER_IDS)
    return QuorumState(leader, epoch, 5_999, voters, frozenset(BROKER_IDS))


def controller_metrics(
    state: ZkMigrationState, migrating: int, registered: int = 3, leader: int = 3000, epoch: int = 2, fenced: int = 0
) -> dict[int, ControllerMetrics | Unobserved]:
    """Return the gauges of all controllers, which agree on one leader."""
    return {
        i: ControllerMetrics(i, i == leader, state, migrating, registered, fenced, leader, epoch)
        for i in CONTROLLER_IDS
    }


KAFKA4 = Kafka4Spec(image="registry/kafka:4.1.2")
"""What leads on to Kafka 4."""
KAFKA4_DIGEST = "sha256:kafka4"
KAFKA4_LEVEL = 27
"""Highest metadata.version of Kafka 4.1."""


def kafka4_leg(**changes: Any) -> Kafka4Leg:
    """Return the record of a way to Kafka 4 that has begun."""
    fields: dict[str, Any] = {
        "image": KAFKA4.image,
        "controllers_image": KAFKA4.of_controllers,
        "release": "4.1.2",
        "digests": {f"{BROKER_SET}/kafka": KAFKA4_DIGEST},
        "former": (
            FormerImages(stateful_set=BROKER_SET, images={"kafka": "registry/kafka:3.9.2"}),
            FormerImages(stateful_set=CONTROLLERS, images={"kafka": "apache/kafka:3.9.2"}),
        ),
        "began_at": NOW - timedelta(minutes=4),
    }
    return Kafka4Leg(**(fields | changes))


def rendered_for_kafka4() -> RenderedControllers:
    """Return what controllers with Kafka 4 are rendered from."""
    wanted = spec()
    controllers = wanted.controllers.model_copy(update={"image": KAFKA4.of_controllers})
    tuned = tuned_controllers(
        wanted.model_copy(update={"controllers": controllers}), MigrationStatus(rehearsal=rehearsed())
    )
    return RenderedControllers.of(tuned, broker_settings=taken_over(survey(), dry_start_of()))


def features(level: int = 21, epoch: int = 5_990, highest: int = 21) -> dict[int, NodeFeatures | Unobserved]:
    """Return what every node says of itself: all at one level, with one range."""
    says = NodeFeatures({FEATURE: level}, {FEATURE: (1, highest)}, finalized_epoch=epoch)
    return dict.fromkeys((*CONTROLLER_IDS, *BROKER_IDS), says)


def cluster(**changes: Any) -> ClusterState:
    """Return a cluster in which every partition has a leader and its full ISR."""
    return replace(ClusterState(frozenset(BROKER_IDS), 1, 300, (), 0, (), 0, frozenset()), **changes)


LEASE = LeaseState("kafka/demo by us", ours=True, age_seconds=1.0, resource_version="7")
ANYONE = (AclEntry("world", "anyone", frozenset("cdrwa")),)
GIB = 2**30


def setting(
    name: str, value: str | None, source: SettingSource = SettingSource.STATIC, **changes: bool
) -> BrokerSetting:
    """Return a setting of a running broker."""
    return BrokerSetting(name, value, source, **({"sensitive": value is None, "known": True} | changes))


RUNNING = (setting("broker.id", "0"), setting("listener.security.protocol.map", "INTERNAL:PLAINTEXT"))
"""What a running broker says of the settings that preflight compares with `FINE_SETTINGS`."""


def survey(**changes: Any) -> Survey:
    """Return a survey without findings."""
    fine = Survey(
        zookeeper=ZooKeeperAcls(dict.fromkeys(("/", "/controller", "/brokers/topics/t"), ANYONE), (), frozenset({"t"})),
        zookeeper_identities=(),
        visibility=Visibility(frozenset({"t"}), frozenset({"DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "ALTER"})),
        reassigning=(),
        brokers=dict.fromkeys(BROKER_IDS, (*RUNNING, setting("num.network.threads", "4"))),
        listener_settings=frozenset(),
        demand=ControllersDemand(
            3,
            (Demand("kafka", 500, GIB, 1000, GIB), Demand("log-server", 10, 32 << 20, None, 128 << 20)),
            10 * GIB,
            {},
            (),
            False,
        ),
        verification=(Demand("driver", 250, GIB, None, GIB), Demand("executor 1", 250, GIB, None, GIB)),
        storage_classes=(StorageClass("standard", default=True),),
        quotas=(),
        limits=(),
        capacity=Capacity(
            tuple(Room(f"node-{i}", {"zone": str(i)}, (), True, 2000, 4 * GIB, 50) for i in range(3)),
            all_pods_seen=True,
        ),
        budgets=(Budget("kafka", BROKER_SET, 1, 3, 3, 2, up_to_date=True),),
        missing_rights=(),
        writers={BROKER_SET: ()},
        log_dirs=dict.fromkeys(BROKER_IDS, ()),
    )
    return replace(fine, **changes)


def dry_start_of(
    sets: Sequence[StatefulSetState] = (), brokers: Mapping[int, Sequence[BrokerSetting] | Unobserved] | None = None
) -> DryStartState:
    """Return a dry start whose copies start what runs, and in the other modes that with the overlay and nothing else.

    Parameters
    ----------
    sets
        By name and pods; the usual set of brokers where it is left out.
    brokers
        What each broker runs, the survey's brokers where it is left out; pods and brokers pair in their order.
    """
    running = brokers or {i: (*RUNNING, setting("num.network.threads", "4")) for i in BROKER_IDS}
    keys = [
        (key, item)
        for item in (sets or (broker_set(BrokerMode.ZOOKEEPER),))
        for key in copies_of(item.name, [p.ordinal for p in item.pods])
    ]
    pods = list(dict.fromkeys(key.pod for key, _ in keys))
    outcomes = []
    for key, _ in keys:
        broker = list(running)[pods.index(key.pod) % len(running)]
        given = {
            s.name: GivenSetting(s.value)
            for s in (() if isinstance(running[broker], Unobserved) else running[broker])
            if s.source is SettingSource.STATIC and s.known and not s.sensitive
        }
        overlay = {} if key.mode is BrokerMode.ZOOKEEPER else {"kraftbridge.mode": key.mode.lower()}
        start = KafkaStart(
            valid=True,
            settings={**given, **{n: GivenSetting(v) for n, v in overlay.items()}},
            address_cache_seconds=0,
        )
        outcomes.append(CopyOutcome(key, broker, start, overlay=overlay))
    return DryStartState("same", report=DryStartReport("same", tuple(outcomes)))


def record(
    profile: Profile,
    gate: Phase,
    purpose: str = "entry",
    verdict: Verdict | None = Verdict.CONSISTENT,
    *,
    finished: bool = True,
    **changes: Any,
) -> VerificationStatus:
    """Return a verification that was released ten and finished five seconds ago."""
    fields: dict[str, Any] = {
        "run_id": RUN_ID,
        "profile": profile,
        "gate": gate,
        "purpose": purpose,
        "generation": IDENTITY.generation,
        "launched_at": NOW - timedelta(seconds=60),
        "ready_at": NOW - timedelta(seconds=20),
        "released_at": NOW - timedelta(seconds=10),
        "finished_at": NOW - timedelta(seconds=5) if finished else None,
        "verdict": verdict if finished else None,
        "report": f"{RUN_ID}-verification",
    }
    return VerificationStatus(**(fields | changes))


def kept_copy(run_id: str = RUN_ID, **changes: Any) -> KeptCopy:
    """Return the copy that is kept after a verification."""
    fields: dict[str, Any] = {
        "id": "offset-5990-epoch-2",
        "run_id": run_id,
        "secret": kept_copy_secrets(IDENTITY.name, IDENTITY.uid, 1)[0],
        "parts": 1,
        "digest": "0" * 64,
        "node_id": 3000,
        "end_offset": "5990",
        "epoch": 2,
        "log_bytes": 100_000,
        "taken_at": NOW - timedelta(seconds=4),
    }
    return KeptCopy(**(fields | changes))


def gate_record(phase: Phase, verdict: Verdict | None = Verdict.CONSISTENT, **changes: Any) -> VerificationStatus:
    """Return the verification that opens the gate out of a phase."""
    purpose = COPY_PURPOSE if phase is Phase.TAKING_OVER else "entry"
    return record(*GATE_RUN[phase], purpose, verdict, **changes)


def watching(**changes: Any) -> VerificationStatus:
    """Return the run that watches the tree before the last broker restarts: ready, and not released."""
    return gate_record(Phase.TAKING_OVER, finished=False, **({"released_at": None} | changes))


def summary(of: VerificationStatus, verdict: Verdict = Verdict.CONSISTENT, **changes: Any) -> VerdictSummary:
    """Return the verdict that a run would write."""
    fields: dict[str, Any] = {
        "run_id": of.run_id,
        "migration_uid": IDENTITY.uid,
        "generation": of.generation,
        "phase": str(of.gate),
        "profile": of.profile,
        "verdict": verdict,
        "reason": "every entity is equal",
        "compared": 60,
        "counts": {EntityKind.TOPIC: KindCounts(zookeeper=60, log=60, compared=60)},
        "started_at": NOW - timedelta(seconds=9),
        "finished_at": NOW - timedelta(seconds=6),
    }
    return VerdictSummary(**(fields | changes))


def rehearsed(
    verdict: RehearsalVerdict = RehearsalVerdict.WORKS, seconds_ago: float = 5.0, **changes: Any
) -> RehearsalStatus:
    """Return the record of a rehearsal of what is there now (`REHEARSED`)."""
    fields: dict[str, Any] = {
        "count": 1,
        "run_id": REHEARSAL,
        "digest": REHEARSED,
        "verdict": verdict,
        "reason": "as it is",
        "launched_at": NOW - timedelta(seconds=seconds_ago + 20),
        "finished_at": NOW - timedelta(seconds=seconds_ago),
        "partitions": 330,
        "report": REHEARSAL,
    }
    return RehearsalStatus(**(fields | changes))


def broker_record(node_id: int, pod_uid: str, at: datetime = NOW, **changes: Any) -> BrokerRecord:
    """Return the record of a broker."""
    settings = {"log.retention.ms": EffectiveSetting("-1", stated=(Stated(SettingSource.DYNAMIC_DEFAULT, "-1"),))}
    listeners = (ListenerState("INTERNAL", f"kafka-{node_id}.kafka", 9092),)
    offsets = {("orders", 0): PartitionOffsets(0, 100, 0)}
    return replace(BrokerRecord(node_id, pod_uid, "", at, settings, listeners, offsets), **changes)


def broker_now(node_id: int, **changes: Any) -> BrokerNow:
    """Return what a broker is after its restart: what `broker_record` says."""
    was = broker_record(node_id, "")
    fine = BrokerNow(node_id, "", "", was.settings, was.listeners, {("orders", 0): OffsetsNow(0, 100, 0)}, ())
    return replace(fine, **changes)


def _as_before(decision: Decision, now: datetime) -> dict[str, Any] | None:
    """Return what the next step observes of a broker that it asks for."""
    recording = next((a for a in decision.actions if isinstance(a, RecordBroker)), None)
    if recording is not None:
        return {"broker_record": broker_record(recording.node_id, recording.pod_uid, now)}
    comparison = decision.status.broker_comparison
    if comparison is not None and comparison.compared_at is None:
        known = decision.status.broker_record
        record = NOT_NEEDED if known is None else broker_record(known.node_id, known.pod_uid, now)
        return {"broker_now": broker_now(comparison.node_id), "broker_record": record}
    return None


@dataclass(frozen=True)
class Situation:
    """All arguments of `decide`."""

    spec: MigrationSpec
    status: MigrationStatus
    observation: Observation
    now: datetime = NOW
    identity: Identity = IDENTITY

    def decide(self) -> Decision:
        """Decide one step. Brokers are what they were, unless this observation says what they are: the steps that find it out are skipped."""
        decision = self.step()
        watched = decision.status.watched_start
        if watched is not None and self.observation.start_log == NOT_NEEDED:
            log = StartLog(watched.process, clean=True)
            return self.with_status(watched_start=watched).observing(start_log=log).decide()
        if (ended := self._log_of_next_start()) is not None:
            return self.observing(start_log=ended).decide()
        keeping = decision.status.keeping
        if keeping is not None and not keeping.given_up and self.observation.kept_copy == NOT_NEEDED:
            made = kept_copy(keeping.run_id, secret=keeping.secret)
            return self.with_status(keeping=keeping).observing(kept_copy=made).decide()
        looked = self.observation.broker_record != NOT_NEEDED or self.observation.broker_now != NOT_NEEDED
        for _ in range(2 * len(BROKER_IDS)):
            if looked or (seen := _as_before(decision, self.now)) is None:
                break
            later = self.after(decision).observing(**seen).step()
            acted = tuple(a for a in decision.actions if not isinstance(a, RecordBroker) and a not in later.actions)
            decision = replace(later, actions=(*acted, *later.actions), events=(*decision.events, *later.events))
        return decision

    def step(self) -> Decision:
        """Decide once. The operator has watched the pods all along, with a clock like the nodes'."""
        status = self.status.model_copy(update={"sights": self._sights()})
        return decide(Migration(self.identity, self.spec, status), self.observation, self.now)

    def _log_of_next_start(self) -> StartLog | None:
        """Return what the next pod of a restart logs of the end before; None if another log is shown, or none is asked for."""
        operation = self.status.operation
        if self.observation.start_log != NOT_NEEDED or operation is None:
            return None
        pods = [pod for item in self.observation.seen_sets for pod in item.pods if pod.replaces(operation)]
        return StartLog(pods[0].process, clean=True) if pods else None

    def _sights(self) -> tuple[PodSight, ...]:
        known = {(sight.pod, sight.process): sight for sight in self.status.sights}
        pods = [pod for item in self.observation.seen_sets for pod in item.pods]
        watched = (
            PodSight(
                pod=pod.name,
                process=pod.process,
                since=pod.running_since or pod.ready_since or self.now,
                ready_at=pod.ready_since,
            )
            for pod in pods
        )
        return tuple(known.get((sight.pod, sight.process), sight) for sight in watched)

    def observing(self, **parts: Any) -> Situation:
        return replace(self, observation=replace(self.observation, **parts))

    def with_status(self, **fields: Any) -> Situation:
        return replace(self, status=self.status.model_copy(update=fields))

    def asking(self, target: Target | None = None, **fields: Any) -> Situation:
        changed = fields | ({} if target is None else {"target": target})
        return replace(self, spec=self.spec.model_copy(update=changed))

    def pacing(self, **fields: int) -> Situation:
        return self.asking(strategy=self.spec.strategy.model_copy(update=fields))

    def later(self, seconds: float) -> Situation:
        at = self.now + timedelta(seconds=seconds)
        redundancy = self.observation.redundancy
        if isinstance(redundancy, TopicRedundancy):
            redundancy = replace(redundancy, read_at=at)
        return replace(self, now=at, observation=replace(self.observation, at=at, redundancy=redundancy))

    def after(self, decision: Decision) -> Situation:
        """Return the same world one step later, with the decided status."""
        return replace(self, status=decision.status)

    def judged(self, verdict: Verdict | None = Verdict.CONSISTENT, **changes: Any) -> Situation:
        """Return the same with another record of the gate's verification."""
        return self.with_status(verifications=(gate_record(self.status.phase, verdict, **changes),))

    def reporting(self, verdict: VerdictSummary | None, state: RunState = RunState.FINISHED) -> Situation:
        """Return the same while the gate's run is released, not judged yet, and has written ``verdict``."""
        pending = gate_record(self.status.phase, finished=False)
        return self.with_status(verifications=(pending,)).observing(run=VerificationRun(RUN_ID, state, verdict=verdict))


def open_paths(controllers: Iterable[int] = CONTROLLER_IDS, brokers: Iterable[int] = BROKER_IDS) -> Paths:
    """Return that each controller's pod reaches each broker."""
    ways: dict[int, Path | Unobserved] = {i: Path(f"{BROKER_SET}-{i}.kafka:9092") for i in brokers}
    return Paths("INTERNAL", dict.fromkeys(controllers, ways))


def position_of(phase: Phase) -> int:
    """Return how far a phase is on the way; the way back from Kafka 4 is as far as Kafka 4."""
    return FORWARD.index(Phase.KAFKA4 if phase is Phase.LEAVING_KAFKA4 else phase)


def _status(phase: Phase, **changes: Any) -> MigrationStatus:
    entered = NOW - timedelta(minutes=5)
    past = FORWARD[: position_of(phase)]
    history = (
        *(PhaseRecord(phase=p, entered_at=entered - timedelta(minutes=1), left_at=entered) for p in past),
        PhaseRecord(phase=phase, entered_at=entered),
    )
    beyond_preflight = phase is not Phase.PREFLIGHT
    finalized = phase in (Phase.FINALIZING, Phase.COMPLETED) or phase.row.on_kafka4
    mode = ControllerMode.FINAL if finalized else ControllerMode.MIGRATION
    fields: dict[str, Any] = {
        "phase": phase,
        "target": Target.KRAFT,
        "conditions": initial_conditions(entered, IDENTITY.generation),
        "observed_generation": IDENTITY.generation,
        "history": history,
        "waiting": Waiting(kind=WaitKind.WORK, since=entered),
        "progress_at": NOW - timedelta(minutes=1),
        "cluster_id": CLUSTER_ID if beyond_preflight else None,
        "broker_ids": {f"{BROKER_SET}-{i}": i for i in BROKER_IDS} if beyond_preflight else {},
        "nodes": tuple(
            NodeStatus(
                id=i, role="broker", pod=f"{BROKER_SET}-{i}", stateful_set=BROKER_SET, mode="ZooKeeper", ready=True
            )
            for i in BROKER_IDS
        )
        if beyond_preflight
        else (),
        "controllers": ControllersStatus(
            name=CONTROLLERS,
            node_ids=CONTROLLER_IDS,
            mode=mode,
            format_allowed=False,
            volume_uids={str(i): f"pvc-{i}" for i in CONTROLLER_IDS},
        )
        if beyond_preflight
        else None,
        "quorum": QuorumStatus(leader_id=3000, leader_epoch=2, leader_since=NOW - timedelta(minutes=4))
        if beyond_preflight
        else None,
        "rehearsal": rehearsed(),
        "broker_settings": taken_over(survey(), dry_start_of()),
        "channel": ChannelStatus(
            config_style=ConfigStyle.ENV,
            env_prefix="KAFKA_",
            proven_at=NOW - timedelta(minutes=5),
            proven_by="copies",
            fingerprint="same",
        )
        if beyond_preflight
        else None,
    }
    if beyond_preflight:
        fields["kept_copy"] = kept_copy()
    if phase is Phase.UPGRADING_BROKERS:
        fields |= {"controllers": None, "quorum": None, "kept_copy": None}
        fields |= {"broker_upgrade": BrokerUpgradeStatus(needed=True, protocol=FORMER_PROTOCOL)}
        fields |= {"templates": (TemplateStatus(stateful_set=BROKER_SET, digest="looked-at"),)}
    if phase in GATE_RUN:
        fields["verifications"] = (gate_record(phase),)
        fields["verification_count"] = 1
    if position_of(phase) >= FORWARD.index(Phase.TAKING_OVER):
        fields["canary"] = CanaryStatus(
            value=42,
            written_at=NOW - timedelta(minutes=2),
            committed_at=NOW - timedelta(minutes=2),
            mirrored_at=NOW - timedelta(minutes=2),
            served_at=NOW - timedelta(minutes=2),
            removed_at=NOW - timedelta(minutes=2),
        )
        fields["migration_offset"] = MigrationOffset(
            offset="4990", seen_at=NOW - timedelta(seconds=3), moved_at=NOW - timedelta(seconds=3)
        )
    if phase is Phase.FINALIZING:
        fields["hold_until"] = NOW - timedelta(seconds=1)
    if phase.row.on_kafka4:
        rendered = rendered_for_kafka4()
        fields["kafka4_leg"] = kafka4_leg(brokers_began_at=None if phase is Phase.KAFKA4_CONTROLLERS else NOW)
        fields["controllers"] = fields["controllers"].model_copy(update={"rendered": rendered})
        fields["target"] = Target.KAFKA4
        fields["hold_until"] = NOW - timedelta(seconds=1)
    if phase is Phase.COMPLETED or phase.row.on_kafka4:
        fields["canary"] = None
        fields["final_manifest"] = f"{IDENTITY.name}-final-manifest"
    return MigrationStatus(**(fields | changes))


def _observation(phase: Phase, **changes: Any) -> Observation:
    position = position_of(phase)
    beyond_preflight = phase is not Phase.PREFLIGHT
    on_kafka4 = phase.row.on_kafka4
    finalized = phase in (Phase.FINALIZING, Phase.COMPLETED) or on_kafka4
    taken_over = position >= FORWARD.index(Phase.TAKING_OVER)
    on_kraft = position >= FORWARD.index(Phase.ROLLING_BROKERS)
    mode = BrokerMode.KRAFT if on_kraft else BrokerMode.MIGRATION if taken_over else None
    if phase is Phase.UPGRADING_BROKERS:
        mode = BrokerMode.UPGRADED
    if on_kafka4:
        mode = phase.row.brokers
    state = (
        ZkMigrationState.ABSENT
        if on_kafka4
        else ZkMigrationState.POST_MIGRATION
        if finalized
        else ZkMigrationState.MIGRATION
        if taken_over
        else ZkMigrationState.PRE_MIGRATION
    )
    brokers = replace(broker_set(mode), lock="") if phase.row.gives_back else broker_set(mode)
    if phase.at_rest:
        brokers = replace(brokers, lease=LeaseState())
    not_yet = Unobserved("it", "not needed in this phase")
    workload = controllers_workload(ControllerMode.FINAL if finalized else ControllerMode.MIGRATION)
    migrating = 0 if on_kraft or not taken_over else len(BROKER_IDS)
    registered = len(BROKER_IDS) if taken_over else 0
    parts: dict[str, Any] = {
        "at": NOW,
        "stateful_sets": (brokers,),
        "controllers": workload if beyond_preflight else not_yet,
        "zookeeper": zookeeper(taken_over=taken_over, brokers=() if on_kraft else BROKER_IDS)
        if phase is not Phase.COMPLETED and not on_kafka4
        else not_yet,
        "quorum": quorum() if beyond_preflight else not_yet,
        "metrics": controller_metrics(state, migrating, registered) if beyond_preflight else {},
        "cluster": cluster(),
        "cluster_by_broker": dict.fromkeys(BROKER_IDS, cluster()) if beyond_preflight else not_yet,
        "redundancy": TopicRedundancy((), (), read_at=NOW),
        "run": None,
        "runner_available": True,
        "survey": survey() if phase is Phase.PREFLIGHT or phase in FOLLOWED else not_yet,
        "dry_start": dry_start_of() if phase in (Phase.PREFLIGHT, Phase.PROVISIONING_QUORUM) else not_yet,
        "admission_policy": not beyond_preflight or phase.row.gives_back or not_yet,
        "registered_controllers": frozenset(CONTROLLER_IDS) if beyond_preflight else not_yet,
        "features": features(highest=KAFKA4_LEVEL if on_kafka4 else 21)
        if phase is Phase.COMPLETED or on_kafka4
        else not_yet,
        "paths": open_paths() if phase in (Phase.PROVISIONING_QUORUM, Phase.TAKING_OVER) else not_yet,
        "rehearsal": RehearsalState(REHEARSED) if phase in (Phase.PREFLIGHT, Phase.PROVISIONING_QUORUM) else not_yet,
    }
    if phase is Phase.UPGRADING_BROKERS:
        parts |= {"controllers": not_yet, "quorum": not_yet, "metrics": {}, "registered_controllers": not_yet}
    return Observation(**(parts | changes))


@functools.lru_cache(maxsize=64)
def open_gate(phase: Phase, target: Target | None = None) -> Situation:
    """Return a situation of ``phase`` in which nothing keeps `decide` from entering the next one.

    Without a target the user wants to go on: to Kafka 4 where that has begun, to KRaft elsewhere.
    """
    wanted = spec(target or (Target.KAFKA4 if phase.row.on_kafka4 else Target.KRAFT))
    if phase is Phase.UPGRADING_BROKERS:
        wanted = wanted.model_copy(update={"brokers": wanted.brokers.model_copy(update={"upgrade": UPGRADE})})
    if phase.row.on_kafka4:
        wanted = wanted.model_copy(update={"kafka4": KAFKA4})
    return Situation(wanted, _status(phase), _observation(phase))


def rolling(phase: Phase, done: int, **set_changes: Any) -> Situation:
    """Return TakingOver or RollingBrokers after ``done`` restarts: healthy, nothing under way, nothing held."""
    fine = open_gate(phase)
    if phase is Phase.TAKING_OVER:
        item = partly_rolled(done, BrokerMode.MIGRATION, None, **set_changes)
        sound = tuple(record(Profile.ZOOKEEPER, Phase.TAKING_OVER, p) for p in ("entry", "last-broker"))
        verified = (*sound, watching(run_id=f"{RUN_ID}-copy"))
        return fine.with_status(canary=None, migration_offset=None, verifications=verified).observing(
            stateful_sets=(item,),
            zookeeper=zookeeper(taken_over=False),
            metrics=controller_metrics(ZkMigrationState.PRE_MIGRATION, done, done),
        )
    item = partly_rolled(done, BrokerMode.KRAFT, BrokerMode.MIGRATION, **set_changes)
    runs = [record(Profile.DUAL_WRITE, Phase.ROLLING_BROKERS)]
    if done == len(BROKER_IDS) - 1:
        runs.append(armed_run())
    return fine.with_status(verifications=tuple(runs)).observing(
        stateful_sets=(item,),
        zookeeper=zookeeper(taken_over=True, brokers=BROKER_IDS[done:]),
        metrics=controller_metrics(ZkMigrationState.MIGRATION, len(BROKER_IDS) - done, len(BROKER_IDS)),
    )


def armed_run(ready_at: datetime | None = NOW - timedelta(seconds=1)) -> VerificationStatus:
    """Return the run that will verify after the roll to KRaft mode: its session is open, unless ``ready_at`` is None."""
    return record(
        Profile.DUAL_WRITE,
        Phase.AWAITING_FINALIZATION,
        finished=False,
        run_id=f"{RUN_ID}-armed",
        launched_at=NOW - timedelta(seconds=20),
        ready_at=ready_at,
        released_at=None,
    )


def launched_runs(decision: Decision) -> list[tuple[Profile, Phase]]:
    """Return profile and gate of each verification that a decision launches."""
    by_id = {run.run_id: run for run in decision.status.verifications}
    launched = [a.run_id for a in decision.actions if isinstance(a, LaunchRun) and a.kind is RunKind.VERIFICATION]
    return [(by_id[run_id].profile, by_id[run_id].gate) for run_id in launched]


STATES_CREATED = (ActionOutcome(CreatePartitionStates.__name__),)
"""Of the step before a failover: partitions that had no state in ZooKeeper have one."""


def kafka4_copies(release: str = "4.1.2", sets: Sequence[StatefulSetState] = (), **changes: Any) -> DryStartState:
    """Return a dry start in which every pod was copied as it runs, and with the image of Kafka 4.

    Keyword arguments replace fields of the copies with Kafka 4.
    """
    outcomes = []
    for item in sets or (broker_set(BrokerMode.KRAFT),):
        for key in copies_for_kafka4(item.name, [each.ordinal for each in item.pods]):
            is_new = key.mode is BrokerMode.KAFKA4
            settings = {"log.dirs": GivenSetting("/data"), "process.roles": GivenSetting("broker")}
            start = KafkaStart(valid=True, settings=settings, kafka=release if is_new else "3.9.2")
            got = (KAFKA4.image, KAFKA4_DIGEST) if is_new else ("registry/kafka:3.9.2", "sha256:former")
            images = (ContainerImage("kafka", "registry/kafka:3.9.2", "sha256:former", *got),)
            outcome = CopyOutcome(key, key.ordinal, start, images=images)
            outcomes.append(replace(outcome, **changes) if is_new else outcome)
    return DryStartState("same", report=DryStartReport("same", tuple(outcomes)))


def before_kafka4() -> Situation:
    """Return phase Completed with everything known and fine, so that the next step enters the way to Kafka 4."""
    fine = open_gate(Phase.COMPLETED, Target.KAFKA4)
    settings = fine.status.broker_settings
    rendered = RenderedControllers.of(tuned_controllers(fine.spec, fine.status), broker_settings=settings)
    known = fine.status.controllers
    assert known is not None
    item = replace(broker_set(BrokerMode.KRAFT), lock="", lease=LeaseState())
    accepted = (AcceptedFinding(code=str(Code.KAFKA4_CLIENTS_UNKNOWN), object="brokers"),)
    return (
        fine.asking(kafka4=KAFKA4, preflight=fine.spec.preflight.model_copy(update={"accepted": accepted}))
        .with_status(
            kafka4_leg=Kafka4Leg(image=KAFKA4.image, controllers_image=KAFKA4.of_controllers),
            controllers=known.model_copy(update={"rendered": rendered}),
            given_back_at=NOW - timedelta(minutes=2),
            hand_over=HandOverStatus(guarded=True, stateful_sets=(NEEDED,)),
            verifications=(record(Profile.REPLICAS, Phase.KAFKA4_CONTROLLERS),),
        )
        .observing(
            stateful_sets=(item,),
            dry_start=kafka4_copies(),
            kafka4=KafkaSettings(dict.fromkeys(BROKER_IDS, RUNNING), {}),
        )
    )
