"""The Kubernetes side of the simulated cluster: StatefulSets, pods, verification runs; and what the operator sees and does of it all."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache
from random import Random
from typing import Any, TypeVar

from tests.simulation.batches import SETS as LARGE_SETS
from tests.simulation.batches import Layout
from tests.simulation.becoming import Becoming
from tests.simulation.certificates import EXPIRED, Certificates
from tests.simulation.channels import OpenChannel
from tests.simulation.copies import DryStarts
from tests.simulation.endings import GRACE_SECONDS, Endings
from tests.simulation.images import FORMER_IMAGE, Images
from tests.simulation.kafka import BROKERS, CONTROLLERS, MAJORITY, START, Kafka, Timeline
from tests.simulation.kafka4 import DIGEST, ToKafka4
from tests.simulation.leg import Leg
from tests.simulation.paths import Walls
from tests.simulation.settings import Settings
from tests.simulation.starts import SlowStarts
from tests.simulation.stores import Lost
from tests.simulation.templates import Templates, revision_of
from tests.simulation.uids import Uids
from tests.support.observations import dry_start_of, seen_secrets

from kraftbridge.models.broker_record import BrokerNow, BrokerRecord
from kraftbridge.models.decision import (
    Action,
    ApplyControllers,
    ArchiveDifferences,
    CollectRun,
    ConfigureBrokers,
    CreatePartitionStates,
    FenceRun,
    HoldLease,
    IssueListenerCertificates,
    KeepCopy,
    KeepOriginal,
    LaunchRun,
    LockStatefulSet,
    PublishFinalManifest,
    PublishFindings,
    RecordBroker,
    ReleaseLease,
    ReleaseRun,
    ReleaseStatefulSet,
    RemoveCanary,
    RemoveConfigurations,
    RemoveControllerClaim,
    RemoveRun,
    RenewLeaders,
    RestartPod,
    RestoreStatefulSet,
    StopControllers,
    UpdateMetadataVersion,
    WriteCanary,
)
from kraftbridge.models.dry_start import DryStartReport, DryStartState
from kraftbridge.models.observation import (
    LEASE_SECONDS,
    NOT_NEEDED,
    ActionOutcome,
    Archive,
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
    PodState,
    QuorumState,
    RecordedOriginal,
    RehearsalProgress,
    RehearsalRun,
    RehearsalState,
    RunState,
    StartLog,
    StatefulSetState,
    TemplateSight,
    TopicIds,
    TopicRedundancy,
    Unobserved,
    VerificationRun,
    VoterState,
    ZooKeeperState,
)
from kraftbridge.models.phase import BrokerMode, ControllerMode, Part, ZkMigrationState
from kraftbridge.models.rehearsal import (
    BrokerRehearsal,
    Ending,
    Forecast,
    Judgement,
    RehearsalResult,
    RehearsalVerdict,
)
from kraftbridge.models.report import Profile, Verdict, VerdictSummary
from kraftbridge.models.runs import RUNS, RunKind, RunStep
from kraftbridge.models.status import (
    GuardedStatefulSet,
    Kafka4Leg,
    KeptCopy,
    MigrationStatus,
    RetiredRun,
    VerificationStatus,
    ZooKeeperBehind,
)
from kraftbridge.phases import dry_starting, expired, topic_ids
from kraftbridge.phases.basis import StatefulSetVersion
from kraftbridge.phases.draft import Identity
from kraftbridge.phases.needs import needs
from kraftbridge.services.observe.workloads import START_EVERY_SECONDS

T = TypeVar("T")
BROKER_SETS = (("kafka", (0, 1)), ("kafka-b", (2,)))
"""One StatefulSet of three brokers, or these two."""
SETTINGS = {"inter.broker.protocol.version": "3.9", "listener.security.protocol.map": "INTERNAL:PLAINTEXT"}
NO_LEASE = LeaseState()
MEASURED_HEAPS = (None, 128 << 20, 512 << 20, 576 << 20, 832 << 20)
"""Heaps that rehearsals call for: a later one may call for more, which restarts the controllers."""


@dataclass
class Pod:
    """A pod; a new one has a new UID."""

    name: str
    node: int
    uid: str
    configuration: str
    revision: str
    mixed: bool = False
    """Started on a template of which somebody took a part back: Kafka refuses to run on it."""
    image: str = FORMER_IMAGE
    ready_since: float | None = None
    starts: int = 0
    deleting: bool = False
    created_at: float = 0.0
    kill_due_at: float | None = None
    certificate: int | None = None
    """Number of the certificate that a controller's pod has loaded."""
    shown: tuple[float | None, bool, PodState] | None = None
    """As it was last shown, and what of it may have changed since."""


@dataclass
class Workload:
    """A StatefulSet."""

    name: str
    nodes: tuple[int, ...]
    configuration: str = ""
    drift: bool = False
    strategy: str = "RollingUpdate"
    lock: str = ""
    originals: set[int] = field(default_factory=set)
    """Which of the two Secrets hold the record of its original state."""
    recorded: int = 0
    """How many times it was recorded: each record has another digest."""
    observed_at: float = 0.0
    deleting: bool = False
    uid: str = ""
    """Another one each time that it is created; ``""``: that of its name."""
    generation: int = 0
    """Of its spec; no two StatefulSets of a run share one."""
    pods: dict[int, Pod] = field(default_factory=dict)
    owners: Templates | None = None
    """What the owner of the brokers renders."""

    @property
    def bereft(self) -> bool:
        """Whether it carries an overlay, and neither Secret holds its original state."""
        return bool(self.configuration) and not self.originals

    def record(self) -> None:
        """Record the original state in both Secrets: from the one that holds it, or from a template that is the user's own."""
        if self.bereft:
            return
        if not self.originals:
            self.recorded += 1
        self.originals = {0, 1}

    @property
    def of_brokers(self) -> bool:
        """Whether it is the user's."""
        return self.nodes[0] not in CONTROLLERS

    @property
    def revision(self) -> str:
        """Kubernetes gives equal templates equal revisions."""
        return revision_of(self, 0 if self.owners is None else self.owners.template)


@dataclass
class Run:
    """A verification."""

    record: VerificationStatus
    generation: int
    state: RunState = RunState.PENDING
    read_at: float | None = None
    released: bool = False
    verdict: Verdict | None = None
    misaddressed: bool = False
    lost_writes: int = 0
    foreign_edits: int = 0
    summary: VerdictSummary | None = None
    """What its report says, once it has one."""


@dataclass
class Rehearsed:
    """A rehearsal: its Job, its pod, and its ConfigMap."""

    progress: RehearsalProgress = RehearsalProgress.READING
    verdict: RehearsalVerdict = RehearsalVerdict.WORKS
    of_brokers: RehearsalVerdict = RehearsalVerdict.WORKS
    """Verdict on the brokers that were started in KRaft mode."""
    fenced: bool = False
    ended_at: float | None = None
    heap_bytes: int | None = None


@dataclass
class Trouble:
    """Probabilities of what goes wrong in the cluster; all of them 0: nothing does."""

    run_fails: float = 0.0
    run_hangs: float = 0.0
    run_misaddressed: float = 0.0
    never_registers: float = 0.0
    broker_never_registers: float = 0.0
    rehearsal_fails: float = 0.0
    rehearsal_hangs: float = 0.0
    rehearsal_unknown: float = 0.0


_RunAction = LaunchRun | FenceRun | ReleaseRun | CollectRun | RemoveRun


class Cluster:
    """Everything outside the operator."""

    def __init__(self, random: Random, identity: Identity, sets: int = 1, layout: Layout | None = None) -> None:  # noqa: PLR0915 - one line per fact
        self.random, self.identity = random, identity
        self.layout = layout or Layout(0, troubled=False, on=False)
        self.rehearsal_random = Random(identity.uid)
        self.rehearsed_brokers_random = Random(f"{identity.uid} brokers")
        """Of its own: the other draws of a seed stay what they were."""
        self.images = Images(Random(f"images of {identity.uid}"))
        self.becoming = Becoming()
        self.claims_of: dict[tuple[int, int], str] = {}
        """UID of a claim by attempt and voter, where it is not the first one."""
        self.kept: dict[str, KeptCopy] = {}
        """Copy of the metadata log by Secret."""
        self.slow_starts = SlowStarts()
        self.settings = Settings(0, troubled=False)
        self.certificates = Certificates()
        self.walls = Walls(0, troubled=False)
        self.endings = Endings(0, troubled=False)
        self.channel: OpenChannel | None = None
        """Of brokers with ``configStyle: Auto``."""
        self.issued = False
        """Whether the Secrets of the controllers' listener exist, where the operator issues them."""
        self.lone_topic: tuple[int, float] | None = None
        """Broker that has the only replica of a topic, and when the topic was made."""
        self.redundancy_read: TopicRedundancy | None = None
        self.redundancy_kept_for = timedelta(seconds=10)
        self.start_read: tuple[tuple[str, bool], float, StartLog] | None = None
        self.time = Timeline()
        self.dry_starts = DryStarts(Random(f"dry starts of {identity.uid}"), self.time)
        self.kafka = Kafka(self.time, random, self.layout.nodes)
        self.templates = Templates(0)
        self.leg = Leg(int(identity.uid.partition("-")[0], 16), self.layout.nodes)
        self.to_kafka4 = ToKafka4(int(identity.uid.partition("-")[0], 16), troubled=False)
        self.uids = Uids(0)
        own_sets = LARGE_SETS if self.layout.on else BROKER_SETS
        self.broker_sets = [Workload(name, nodes, owners=self.templates) for name, nodes in own_sets[:sets]]
        if sets == 1:
            self.broker_sets[0].nodes = self.kafka.nodes
        self._broker_znodes = {i: BrokerZnode(i, (f"{w.name}-{i}.kafka",)) for w in self.broker_sets for i in w.nodes}
        self.controllers: Workload | None = None
        self.format_allowed: bool | None = None
        self.configurations: dict[str, str] = {}
        """UID of each ConfigMap with a configuration of the controllers; its name is the configuration's."""
        self.without_configuration: set[str] = set()
        """Controllers' pods that were made from a template whose ConfigMap does not exist."""
        self.runs: dict[str, Run] = {}
        self.rehearsals: dict[str, Rehearsed] = {}
        self.archives: dict[str, Archive] = {}
        self.volumes: set[str] | None = None
        """The last controllers' volumes; None before there were any."""
        self.missing: set[str] = set()
        """Objects of the controllers that somebody deleted."""
        self.exchanged: dict[int, str | None] = {}
        """Claims that are gone (None), or others than were recorded."""
        self.orphans: dict[int, Pod] = {}
        """Pods that run on without their StatefulSet."""
        self.trouble = Trouble()
        self.rendering = ""
        self.judged = ""
        """What of ``spec.controllers`` a rehearsal judges: not the heap that an earlier one called for."""
        """What the controllers' objects would be rendered from now."""
        self.final_manifest = False
        self.leases: dict[str, float] = {}
        """When we last renewed the Lease on a StatefulSet."""
        self.process = 0
        """Which process of the operator acts now."""
        self.lease_holders: dict[str, int] = {}
        """Which process renewed a Lease last."""
        self.leases_taken: dict[str, float] = {}
        """Until when another operator holds it."""
        self._uids = itertools.count()
        self._generations = itertools.count(1)
        for workload in self.broker_sets:
            for node in workload.nodes:
                self._new_pod(workload, node, at_once=True)
        self.kafka.in_sync = set(self.kafka.nodes)
        self.kafka.zk_controller = self.random.choice(self.kafka.nodes)
        self.kafka.views = dict.fromkeys(self.kafka.nodes, self.kafka.zk_controller)
        self.leg.begin(self.kafka)
        self.time.after(2.0, self._rolling_update)

    def own_templates(self, templates: Templates) -> None:
        """Let the owner of the brokers render these templates."""
        self.templates = templates
        for workload in self.broker_sets:
            workload.owners = templates

    def broker_set(self, name: str) -> Workload:
        """Return a StatefulSet of brokers."""
        return next(w for w in self.broker_sets if w.name == name)

    def set_of(self, node: int) -> Workload:
        """Return the StatefulSet of a broker."""
        return next(w for w in self.broker_sets if node in w.nodes)

    # ----------------------------------------------------------------------------------------- Kubernetes

    def _new_pod(self, workload: Workload, node: int, *, at_once: bool = False) -> None:
        if workload.deleting or (workload is not self.controllers and workload not in self.broker_sets):
            return
        pod = Pod(
            f"{workload.name}-{node}",
            node,
            f"uid-{next(self._uids)}",
            workload.configuration,
            workload.revision,
            workload.drift,
            self.images.tag if workload.of_brokers else FORMER_IMAGE,
            created_at=self.time.now,
        )
        workload.pods[node] = pod
        if workload is self.controllers and pod.configuration not in self.configurations:
            self.without_configuration.add(pod.name)
        if workload.of_brokers:
            pod.image = self.leg.give_birth(pod.uid, node, workload.name, pod.configuration, pod.image)
            if BrokerMode.of(pod.configuration) is BrokerMode.KAFKA4:
                pod.image = DIGEST
        if at_once:
            self._start(workload, pod)
        else:
            self.time.after(self.random.uniform(1.0, 8.0), lambda: self._start(workload, pod))

    def _start(self, workload: Workload, pod: Pod) -> None:
        if workload.pods.get(pod.node) is not pod or pod.deleting or pod.mixed or pod.configuration.endswith("-broken"):
            return
        if workload.of_brokers:
            self.kafka.unregistering.discard(pod.node)
            if self.random.random() < self.trouble.broker_never_registers:
                self.kafka.unregistering.add(pod.node)
            mode = BrokerMode.of(pod.configuration)
            self.to_kafka4.start(pod.node, pod.configuration)
            # Kafka 4 is a KRaft broker like any other to the rest of the cluster.
            mode = BrokerMode.KRAFT if mode.is_of_kraft else mode
            self.becoming.start(pod.node, mode)
            self.leg.start(pod.uid, pod.node, mode)
            self.slow_starts.begin(
                pod.node, self.time.now, self.time.after, lambda: self.kafka.start_broker(pod.node, mode)
            )
        else:
            if self.random.random() < self.trouble.never_registers:
                self.kafka.never_registers.add(pod.node)
            self.certificates.load(pod)
            self.kafka.ended.pop(pod.node, None)
            if self.certificates.has_ended(pod):
                self.kafka.end_certificates({pod.node})
            self.to_kafka4.start(pod.node, pod.configuration)
            self.kafka.start_controller(pod.node, ControllerMode(pod.configuration.partition("-")[0]))
        pod.ready_since = self.time.now
        pod.starts += 1

    def expected_image(self, pod: Pod) -> str:
        """Return the image with which copies of a pod of this configuration were started."""
        return DIGEST if BrokerMode.of(pod.configuration) is BrokerMode.KAFKA4 else ""

    def _stop(self, workload: Workload, pod: Pod) -> None:
        pod.ready_since = None
        self.to_kafka4.stop(pod.node)
        if workload.of_brokers:
            self.slow_starts.end(pod.node)
            self.leg.stop(pod.node)
            self.kafka.stop_broker(pod.node)
        else:
            self.kafka.stop_controller(pod.node)

    def delete_pod(self, workload: Workload, node: int) -> None:
        """Let a pod go and its successor come, from whatever the template says then."""
        pod = workload.pods.get(node)
        if pod is None or pod.deleting:
            return
        pod.deleting = True
        pod.kill_due_at = self.time.now + GRACE_SECONDS

        def gone() -> None:
            if workload.pods.get(node) is not pod:
                return  # it went with its StatefulSet
            self.endings.gone(pod.uid, node)
            self._stop(workload, pod)
            del workload.pods[node]
            self.time.after(self.random.uniform(0.2, 1.5), lambda: self._new_pod(workload, node))

        quick = self.random.uniform(0.2, 3.0)
        seconds = self.endings.seconds(quick) if workload.of_brokers else quick
        if workload.of_brokers and not self.endings.is_deaf:
            self.time.after(quick / 2, lambda: self._hand_over(workload, pod))
        self.time.after(seconds, gone)

    def _hand_over(self, workload: Workload, pod: Pod) -> None:
        """Let a broker that shuts down give its leaderships to others (``KafkaServer.controlledShutdown``)."""
        if workload.pods.get(pod.node) is pod:
            self.kafka.leaving.add(pod.node)

    def crash(self, workload: Workload, node: int) -> None:
        """Let a container die; the kubelet starts it again in the same pod."""
        pod = workload.pods.get(node)
        if pod is None or pod.deleting or pod.ready_since is None:
            return
        self.layout.struck[node] = self.time.now
        self.endings.crashed(node)
        self._stop(workload, pod)
        self.time.after(self.random.uniform(1.0, 12.0), lambda: self._start(workload, pod))

    def change_template(self, workload: Workload) -> None:
        """Note that the spec is another one, and that the StatefulSet's controller needs a moment to see it."""
        self._change_spec(workload)
        workload.observed_at = self.time.now + self.random.uniform(0.0, 1.0)

    def _change_spec(self, workload: Workload) -> None:
        workload.generation = next(self._generations)

    def version_of(self, workload: Workload) -> StatefulSetVersion:
        """Return what an act compares of a StatefulSet."""
        return StatefulSetVersion(workload.uid or f"uid-{workload.name}", workload.generation, workload.lock)

    def holds_lease(self, name: str) -> bool:
        """Return whether the process that acts now holds a Lease and has renewed it in time."""
        renewed = self.leases.get(name)
        taken = self.leases_taken.get(name, 0.0) > self.time.now
        ours = self.lease_holders.get(name) == self.process
        return ours and not taken and renewed is not None and self.time.now - renewed < LEASE_SECONDS

    def _rolling_update(self) -> None:
        """Restart pods as Kubernetes does under ``RollingUpdate``: from the last one, one at a time, each waited for."""
        self.time.after(2.0, self._rolling_update)
        for workload in self.broker_sets:
            self._roll_one(workload)

    def _roll_one(self, workload: Workload) -> None:
        if workload.strategy != "RollingUpdate" or len(workload.pods) < len(workload.nodes):
            return
        for node in reversed(workload.nodes):
            pod = workload.pods[node]
            if pod.deleting or (pod.ready_since is None and pod.revision == workload.revision):
                return
            if pod.revision != workload.revision:
                self.delete_pod(workload, node)
                return

    # ---------------------------------------------------------------------------------------------- acts

    def act(self, action: Action, status: MigrationStatus) -> str:  # noqa: PLR0915 - one arm per action
        """Carry out an action of a step that has published this status; return what went wrong."""
        match action:
            case LockStatefulSet(name):
                brokers = self.broker_set(name)
                brokers.record()
                brokers.lock, brokers.strategy = self.identity.lock, "OnDelete"
                self._change_spec(brokers)
            case KeepOriginal(name):
                brokers = self.broker_set(name)
                if not brokers.originals:
                    return "its original state is lost"
                brokers.record()
            case ConfigureBrokers(name, mode):
                brokers = self.broker_set(name)
                if not brokers.originals:
                    return "its original state is not on record"
                self.leg.configure(mode, status)
                brokers.configuration, brokers.drift = f"{mode}-hash", False
                self.change_template(brokers)
            case KeepCopy(run_id, secret):
                if (words := self._keep_copy(run_id, secret)) is not None:
                    return words
            case RecordBroker(node):
                if not self.kafka.brokers[node].up:
                    return f"broker {node} does not answer"
                self.becoming.record(action, self.moment(self.time.now))
            case RenewLeaders():
                self.leg.renew_leaders()
            case RestoreStatefulSet(name):
                brokers = self.broker_set(name)
                if not brokers.originals:
                    return "its original state is not on record"
                self.leg.restore(name, status)
                brokers.configuration, brokers.drift = "", False
                self.change_template(brokers)
            case ReleaseStatefulSet(name):
                brokers = self.broker_set(name)
                brokers.lock, brokers.strategy = "", "RollingUpdate"
                self._change_spec(brokers)
                if not brokers.configuration:
                    brokers.originals.clear()  # the next attempt has Secrets of its own
            case ApplyControllers(_, format_allowed, only) if only:
                self.missing -= set(only)
                if any(name.endswith("-format") for name in only):
                    self.format_allowed = format_allowed
            case ApplyControllers(mode, format_allowed):
                self.missing.clear()
                self._apply_controllers(mode, format_allowed=format_allowed)
            case RemoveConfigurations(_, config_maps):
                return self._remove_configurations(config_maps)
            case IssueListenerCertificates():
                self.issued = True
            case StopControllers(_, _, volumes):
                self.tree_kept = False  # the next attempt has a volume of its own
                self._stop_controllers(volumes=volumes)
            case RestartPod(_, uid, node_id):
                workload = self.set_of(node_id) if node_id not in CONTROLLERS else self.controllers
                pod = workload.pods.get(node_id) if workload is not None else None
                if workload is not None and pod is not None and pod.uid == uid:
                    self.delete_pod(workload, node_id)
            case RemoveControllerClaim(epoch):
                if self.kafka.claim_epoch >= 0 and self.kafka.claim_epoch != epoch:
                    return "the claim is another one"
                self.kafka.remove_claim()
                self.kafka.zk_canary = None
            case WriteCanary(value, _):
                if self.kafka.active is None or self.kafka.active in self.kafka.ended:
                    return "no active controller"
                self.kafka.write_canary(value)
            case LaunchRun() | FenceRun() | ReleaseRun() | CollectRun() | RemoveRun():
                return self._run_step(action, status)
            case RemoveCanary():
                if self.kafka.active is None or self.kafka.active in self.kafka.ended:
                    return "no active controller"
                self.kafka.remove_canary()
            case HoldLease(name):
                if self.leases_taken.get(name, 0.0) > self.time.now:
                    return "409 somebody else took the Lease"
                self.leases[name] = self.time.now
                self.lease_holders[name] = self.process
            case ReleaseLease(name):
                self.leases.pop(name, None)
            case CreatePartitionStates():
                self.kafka.create_states()
            case ArchiveDifferences(run_id, secret):
                run = self.runs[run_id]
                self.archives.setdefault(secret, Archive(run_id, run.lost_writes + run.foreign_edits))
            case PublishFindings():
                pass  # a ConfigMap that nothing depends on
            case PublishFinalManifest():
                self.final_manifest = True
            case UpdateMetadataVersion(level, _, feature):
                if self.kafka.active is None or self.kafka.active in self.kafka.ended:
                    return "no active controller"
                return self.to_kafka4.raise_feature(feature, level)
        return ""

    def mounted(self) -> frozenset[str]:
        """Return the configurations that the controllers' template or one of their pods mounts."""
        workload = self.controllers
        of_template = set() if workload is None else {workload.configuration}
        pods = [] if workload is None else workload.pods.values()
        return frozenset(of_template | {pod.configuration for pod in (*pods, *self.orphans.values())})

    def _remove_configurations(self, config_maps: tuple[tuple[str, str], ...]) -> str:
        """Delete what a fresh look finds mounted nowhere, as the actuator does."""
        workload = self.controllers
        if workload is None or self.time.now < workload.observed_at:
            return "it is not known what the pods mount"
        mounted = self.mounted()
        for name, uid in config_maps:
            if name not in mounted and self.configurations.get(name) == uid:
                del self.configurations[name]
        return ""

    def _apply_controllers(self, mode: ControllerMode, *, format_allowed: bool) -> None:
        self.format_allowed = format_allowed
        name = f"{mode}-{self.rendering}"
        self.configurations.setdefault(name, f"uid-{name}")
        if self.controllers is None:
            self.volumes = {f"data-{i}" for i in CONTROLLERS}
            self.controllers = Workload(
                f"{self.identity.name}-kraft", CONTROLLERS, f"{mode}-{self.rendering}", strategy="OnDelete"
            )
            self._change_spec(self.controllers)
            self.controllers.uid = f"uid-{next(self._uids)}"
            self.controllers.pods |= self.orphans  # a StatefulSet adopts what matches its selector
            self.orphans.clear()
            for node in CONTROLLERS:
                if node not in self.controllers.pods:
                    self._new_pod(self.controllers, node)
        self.controllers.configuration = f"{mode}-{self.rendering}"
        self.change_template(self.controllers)

    def lose_controllers(self, *, orphan: bool) -> None:
        """Let somebody delete the controllers' StatefulSet, with its pods or without them."""
        workload, self.controllers = self.controllers, None
        if workload is None:
            return
        if orphan:
            self.orphans = {n: p for n, p in workload.pods.items() if p.ready_since is not None and not p.deleting}
        self.volumes = None  # the operator may not delete claims, and the StatefulSet that would is gone
        workload.pods.clear()  # what was to become of them does not happen to their successors
        for node in CONTROLLERS:
            if node not in self.orphans:
                self.kafka.stop_controller(node)

    def _stop_orphans(self) -> None:
        def gone() -> None:
            if self.controllers is None and self.orphans:
                self.orphans.clear()
            if self.controllers is None:
                self.kafka.forget_quorum()

        self.time.after(self.random.uniform(0.5, 30.0) if self.orphans else 0.0, gone)

    def _stop_controllers(self, *, volumes: bool) -> None:
        workload = self.controllers
        if workload is None:
            self._stop_orphans()
            return
        if workload.deleting:
            return
        workload.deleting = True

        def gone() -> None:
            self.kafka.forget_quorum()
            workload.pods.clear()
            self.time.after(self.random.uniform(0.1, 1.0), forgotten)

        def forgotten() -> None:
            if self.controllers is workload:
                self.controllers = None
                self.configurations.clear()  # the StatefulSet owned them
                workload.pods.clear()  # those that were still starting go with it
                if volumes:
                    self.volumes = set()

        self.time.after(self.random.uniform(0.5, 2.0), gone)

    # -------------------------------------------------------------------------------------- verifications

    def _verification(self, action: _RunAction, status: MigrationStatus) -> None:
        run = self.runs.get(action.run_id)
        match action:
            case LaunchRun(_, run_id) if run is None:
                record = next((v for v in status.verifications if v.run_id == run_id), None)
                if record is None:
                    return
                run = Run(record, self.generation_of.get(run_id, self.identity.generation))
                self.runs[run_id] = run
                run.misaddressed = self.random.random() < self.trouble.run_misaddressed
                if self.random.random() < self.trouble.run_hangs:
                    return
                fails = self.random.random() < self.trouble.run_fails
                state = RunState.FAILED if fails else RunState.ARMED
                self.time.after(self.random.uniform(1.0, 10.0), lambda: self._armed(run, state))
            case ReleaseRun() if run is not None and not run.released:
                run.released = True
                if run.state is RunState.ARMED:
                    self._begin(run)
            case RemoveRun(_, run_id, keep_report) if run is not None:
                if run.state is not RunState.FINISHED or not keep_report:
                    run.state = RunState.MISSING
            case _:
                pass

    tree_kept: bool = False
    """A watch has read the tree before the claim of this attempt."""
    generation_of: dict[str, int] = {}
    """Generation that a run's request was written with."""

    def _armed(self, run: Run, state: RunState) -> None:
        if run.state is RunState.PENDING:
            run.state = state
            if run.record.profile is Profile.COPY and state is RunState.ARMED and self.kafka.claim_epoch < 0:
                self.tree_kept = True
            if run.released and state is RunState.ARMED:
                self._begin(run)

    def _begin(self, run: Run) -> None:
        run.state = RunState.RUNNING
        self.time.after(self.random.uniform(0.1, 1.0), lambda: self._read(run))

    def _read(self, run: Run) -> None:
        if run.state is not RunState.RUNNING:
            return
        if self.random.random() < self.trouble.run_fails:
            run.state = RunState.FAILED
            return
        run.read_at = self.time.now
        run.verdict = self._truth(run.record.profile)
        if run.verdict is Verdict.INCONSISTENT:
            run.lost_writes, run.foreign_edits = int(self.kafka.state_differs()), int(self.kafka.edited)

        def finished() -> None:
            if run.state is RunState.RUNNING:
                run.state = RunState.FINISHED

        self.time.after(self.random.uniform(0.5, 4.0), finished)

    def _truth(self, profile: Profile) -> Verdict:
        kafka = self.kafka
        match profile:
            case Profile.ZOOKEEPER:
                return Verdict.CONSISTENT if self.time.now >= kafka.zookeeper_down_until else Verdict.INCONCLUSIVE
            case Profile.DUAL_WRITE:
                if kafka.edited or kafka.state_differs():
                    return Verdict.INCONSISTENT
                return Verdict.CONSISTENT if kafka.mirroring() else Verdict.INCONCLUSIVE
            case Profile.COPY:
                # The volume keeps the tree that a watch has read before the claim, whichever run compares it.
                return Verdict.CONSISTENT if self.tree_kept else Verdict.INCONCLUSIVE
            case Profile.UPGRADE:
                answering = self.time.now >= kafka.zookeeper_down_until and all(b.up for b in kafka.brokers.values())
                return Verdict.CONSISTENT if answering else Verdict.INCONCLUSIVE
            case Profile.REPLICAS:
                return Verdict.CONSISTENT if all(c.up for c in kafka.controllers.values()) else Verdict.INCONCLUSIVE

    # ------------------------------------------------------------------------------------------- dry starts

    def _run_step(self, action: _RunAction, status: MigrationStatus) -> str:
        """Take a run on; return what went wrong."""
        assert RunStep(type(action).__name__.removesuffix("Run")) in RUNS[action.kind].steps
        match action.kind:
            case RunKind.VERIFICATION:
                self._verification(action, status)
            case RunKind.REHEARSAL:
                self._rehearse(action)
            case RunKind.DRY_START:
                return self._start_dry(action, status)
        return ""

    def _is_left(self, retired: RetiredRun) -> bool:
        """Return whether something of a run is there that was to be removed."""
        match retired.kind:
            case RunKind.VERIFICATION:
                known = self.runs.get(retired.run_id)
                if known is None or known.state is RunState.MISSING:
                    return False
                return known.state is not RunState.FINISHED or not retired.keep_report
            case RunKind.REHEARSAL:
                rehearsed = self.rehearsals.get(retired.run_id)
                if rehearsed is None or rehearsed.progress is RehearsalProgress.MISSING:
                    return False
                return rehearsed.progress is not RehearsalProgress.FINISHED or not retired.keep_report
            case RunKind.DRY_START:
                return self.dry_starts.is_left(retired.run_id, keep_report=retired.keep_report)

    def _start_dry(self, action: _RunAction, status: MigrationStatus) -> str:
        run = None if status.dry_start is None else status.dry_start.running
        match action:
            case LaunchRun() if run is not None:
                present = self._copies_of_now(status)
                if present.fingerprint != run.digest:
                    return "the pods' template or what it refers to changed meanwhile"
                self.templates.look()
                self.dry_starts.launch(run, present)
            case FenceRun(_, run_id):
                self.dry_starts.fence(run_id)
            case ReleaseRun(_, run_id, pods):
                self.dry_starts.release(run_id, pods)
            case CollectRun() if run is not None:
                self.dry_starts.collect(run)
            case RemoveRun(_, run_id, keep_report):
                self.dry_starts.remove(run_id, keep_report=keep_report)
            case _:
                pass
        return ""

    # ------------------------------------------------------------------------------------------- rehearsals

    def _rehearse(self, action: _RunAction) -> None:
        run = self.rehearsals.get(action.run_id)
        match action:
            case LaunchRun(_, run_id) if run is None:
                draw = self.rehearsal_random.random()
                run = Rehearsed(heap_bytes=self.rehearsal_random.choice(MEASURED_HEAPS))
                if draw < self.trouble.rehearsal_fails:
                    run.verdict = self.rehearsal_random.choice([RehearsalVerdict.FAILS, RehearsalVerdict.LOSES])
                elif draw < self.trouble.rehearsal_fails + self.trouble.rehearsal_unknown:
                    run.verdict = RehearsalVerdict.UNKNOWN
                elif self.rehearsed_brokers_random.random() < self.trouble.rehearsal_fails:
                    wrong = [RehearsalVerdict.FAILS, RehearsalVerdict.UNKNOWN]
                    run.of_brokers = self.rehearsed_brokers_random.choice(wrong)
                self.rehearsals[run_id] = run
                if self.rehearsal_random.random() >= self.trouble.rehearsal_hangs:
                    self._rehearsal_later(run, RehearsalProgress.READING, RehearsalProgress.UNFENCED)
            case FenceRun() if run is not None and run.progress is RehearsalProgress.UNFENCED:
                run.fenced, run.progress = True, RehearsalProgress.RUNNING
                if self.rehearsal_random.random() >= self.trouble.rehearsal_hangs:
                    self._rehearsal_later(run, RehearsalProgress.RUNNING, RehearsalProgress.ENDED)
            case CollectRun() if run is not None and run.progress is RehearsalProgress.ENDED:
                run.progress, run.ended_at = RehearsalProgress.FINISHED, self.time.now
            case RemoveRun(_, run_id, keep_report) if run is not None:
                if run.progress is not RehearsalProgress.FINISHED or not keep_report:
                    run.progress = RehearsalProgress.MISSING
            case _:
                pass

    def _rehearsal_later(self, run: Rehearsed, now: RehearsalProgress, then: RehearsalProgress) -> None:
        def move() -> None:
            if run.progress is now:
                run.progress = then

        self.time.after(self.rehearsal_random.uniform(1.0, 15.0), move)

    # ----------------------------------------------------------------------------------------- observation

    def observe(
        self, status: MigrationStatus, at: datetime, canary_committed: int | None, outcomes: tuple[ActionOutcome, ...]
    ) -> Observation:
        """Return what the phase needs, as the real observer does."""
        wanted = needs(status, at)

        def look(part: Part, read: Callable[[], T]) -> T | Unobserved:
            return read() if part in wanted else NOT_NEEDED

        return Observation(
            at=at,
            stateful_sets=tuple(self._broker_set(w) for w in self.broker_sets),
            controllers=look(Part.CONTROLLERS, lambda: self._controllers(status)),
            zookeeper=look(Part.ZOOKEEPER, self._zookeeper),
            quorum=look(Part.QUORUM, self._quorum),
            metrics=self._metrics() if Part.METRICS in wanted else {},
            cluster=look(Part.CLUSTER, self._cluster_state),
            cluster_by_broker=look(Part.CLUSTER_BY_BROKER, self._cluster_by_broker),
            assignments=self.layout.assignments(self.kafka, at)
            if self.layout.on and Part.ASSIGNMENTS in wanted
            else NOT_NEEDED,
            redundancy=look(Part.REDUNDANCY, lambda: self._redundancy(at)),
            run=self._run(status) if Part.RUN in wanted else None,
            runner_available=look(Part.RUNNER_AVAILABLE, lambda: True),
            canary_by_broker=look(Part.CANARY_BY_BROKER, self._canaries),
            controller_by_broker=look(Part.CONTROLLER_BY_BROKER, self._views),
            registered_controllers=look(Part.REGISTERED_CONTROLLERS, self._registered_controllers),
            admission_policy=look(Part.ADMISSION_POLICY, lambda: True),
            features=self._features(brokers=Part.NODE_FEATURES in wanted)
            if wanted & {Part.CONTROLLER_FEATURES, Part.NODE_FEATURES}
            else NOT_NEEDED,
            feature_answer=look(Part.FEATURE_ANSWER, lambda: self.to_kafka4.answer(status)),
            survey=look(Part.SURVEY, lambda: self.leg.survey(self.settings.survey(self.kafka.nodes))),
            dry_start=look(Part.DRY_START, lambda: self._dry_start(status, at)),
            runs_left=look(
                Part.RUNS_LEFT, lambda: frozenset(r.run_id for r in status.retired_runs if self._is_left(r))
            ),
            rehearsal=look(Part.REHEARSAL, lambda: self._rehearsal(status)),
            broker_record=look(Part.BROKER_RECORD, lambda: self._record(status)),
            broker_now=look(Part.BROKER_NOW, lambda: self._broker_now(status)),
            start_log=look(Part.START_LOG, lambda: self._start_log(status)),
            behind=look(Part.BEHIND, lambda: ZooKeeperBehind(read_at=at, partitions=0, topics=0, deleted_topics=0)),
            kept_copy=look(Part.KEPT_COPY, lambda: self.kept.get(status.keeping.secret if status.keeping else "")),
            issued=self.certificates.secrets(self) if Part.ISSUED in wanted else None,
            brought=None if Part.BROUGHT in wanted else NOT_NEEDED,
            presented=look(Part.PRESENTED, lambda: self.certificates.presented(self)),
            server_time=look(Part.SERVER_TIME, lambda: self.moment(self.time.now)),
            topic_ids=look(Part.TOPIC_IDS, lambda: self._topic_ids(status)),
            kafka4=look(Part.KAFKA4, self._settings_for_kafka4),
            paths=look(
                Part.PATHS,
                lambda: self.walls.seen(self.kafka.nodes, frozenset(i for i, p in self.kafka.brokers.items() if p.up)),
            ),
            archive=self.archives.get(status.healing.archive)
            if Part.ARCHIVE in wanted and status.healing is not None
            else None,
            canary_committed=canary_committed,
            outcomes=outcomes,
        )

    def _record(self, status: MigrationStatus) -> BrokerRecord | None:
        name = status.broker_record.config_map if status.broker_record is not None else ""
        return self.becoming.records.get(name)

    def _keep_copy(self, run_id: str, secret: str) -> str | None:
        """Keep a copy of the log of one voter; return why it cannot be read, None if it is kept."""
        pods = [] if self.controllers is None else [self._pod_state(p) for p in self.controllers.pods.values()]
        up = [p.ordinal for p in pods if p.ready]
        if not up:
            return "no voter's metadata log can be read"
        end = self.kafka.log_offset()
        self.kept[secret] = KeptCopy(
            id=f"offset-{end}-epoch-{self.kafka.epoch}", run_id=run_id, secret=secret, parts=1, digest="0" * 64, node_id=up[0],
            end_offset=str(end), epoch=self.kafka.epoch, log_bytes=1, taken_at=self.moment(self.time.now),
        )  # fmt: skip
        return None

    def _start_log(self, status: MigrationStatus) -> StartLog | Unobserved:
        operation = status.operation
        watched = status.watched_start
        for pod in (pod for workload in self.broker_sets for pod in workload.pods.values()):
            is_next = operation is not None and pod.node == operation.node_id and pod.uid != operation.pod_uid
            process = self._pod_state(pod).process
            if is_next if watched is None else process == watched.process:
                back = operation is not None and operation.back_process == process
                return self._next_start(pod, process, back=back) if is_next else self._log_of(pod)
        if watched is None:
            return StartLog("")
        return Unobserved("log of the broker that starts", "its pod is gone")

    def _log_of(self, pod: Pod) -> StartLog:
        """Return what the log of a broker's pod says of its start."""
        log = self.endings.next_start(self._pod_state(pod).process, pod.node, again=pod.starts > 1)
        return replace(log, recovery=self.slow_starts.line(pod.node, self.time.now))

    def _next_start(self, pod: Pod, process: str, *, back: bool) -> StartLog:
        """Return what the log of the pod says that comes after a restart's old one, as it was read some seconds ago.

        Kafka has told how the former process ended before the broker is up, and not before that.
        """
        asked = (process, back)
        known = self.start_read
        if known is None or known[0] != asked or self.time.now - known[1] >= START_EVERY_SECONDS:
            log = self._log_of(pod)
            # One that hangs has told it all the same.
            if pod.ready_since is None or pod.node in self.slow_starts.since:
                log = StartLog(process, log.recovery)
            self.start_read = known = (asked, self.time.now, replace(log, whole=back))
        return known[2]

    def _broker_now(self, status: MigrationStatus) -> BrokerNow | Unobserved:
        assert status.broker_comparison is not None
        node = status.broker_comparison.node_id
        if not self.kafka.brokers[node].up:
            return Unobserved(f"broker {node}", "it does not answer")
        return self.becoming.now(node)

    def _redundancy(self, at: datetime) -> TopicRedundancy:
        """Return the last reading of the topics, and read them again when it is too old, as the real observer does."""
        known = self.redundancy_read
        if known is None or known.read_at is None or abs(at - known.read_at) > self.redundancy_kept_for:
            names = () if self.lone_topic is None else (f"lone-{self.lone_topic[0]}",)
            self.redundancy_read = known = TopicRedundancy(names, (), read_at=at)
        return known

    def _dry_start(self, status: MigrationStatus, at: datetime) -> DryStartState:
        record = status.dry_start
        state = DryStartState(
            self._fingerprint_of_copies(status), channels=() if self.channel is None else self.channel.known
        )
        if record is None:
            return state
        if dry_starting.stands(record, self.identity.generation, at):
            problem = DryStartReport(record.digest, problem=record.problem)
            report = problem if record.problem else self.dry_starts.report(record.run_id, record.digest)
            state = replace(state, report=report)
        return state if record.running is None else replace(state, run=self.dry_starts.run(record.running))

    def _copies_of_now(self, status: MigrationStatus) -> DryStartReport:
        """Return what copies of the pods as they are now would show."""
        sets = [s for s in map(self._broker_set, self.broker_sets) if isinstance(s, StatefulSetState)]
        if status.kafka4_leg is not None:
            self.to_kafka4.copied = True
            digest = self._fingerprint_of_leg(status.kafka4_leg)
            return self.templates.found(self.to_kafka4.found(sets, status.broker_ids, digest, self.images.tag))
        made = dry_start_of(sets, self.settings.brokers(self.kafka.nodes)).report
        assert made is not None
        fine = replace(made, fingerprint=self._fingerprint_of_settings())
        fine = self.leg.found(status, fine, self.images.tag)
        found = self.templates.found(fine) if self.channel is None else self.channel.found(status, fine)
        assert found.fingerprint == self._fingerprint_of_copies(status)
        return found

    def _fingerprint_of_copies(self, status: MigrationStatus) -> str:
        """Return the fingerprint of `_copies_of_now`, which most steps need without the copies."""
        if status.kafka4_leg is not None:
            return self.templates.fingerprint(self._fingerprint_of_leg(status.kafka4_leg))
        if self.channel is not None:
            return self.channel.fingerprint(status)
        return self.templates.fingerprint(self.leg.fingerprint(status, self._fingerprint_of_settings()))

    def _fingerprint_of_leg(self, leg: Kafka4Leg) -> str:
        return f"{leg.image} {self._fingerprint_of_settings()}"

    def _fingerprint_of_settings(self) -> str:
        """Return what of the copies' fingerprint is the brokers' settings: what a broker runs with comes from its template."""
        return f"same {self.settings.shared} {self.settings.refused}"

    def _rehearsal(self, status: MigrationStatus) -> RehearsalState:
        fingerprint = f"judges {self.judged}"
        if status.rehearsal is None or status.rehearsal.running is None:
            return RehearsalState(fingerprint)
        run_id = status.rehearsal.running.run_id
        run = self.rehearsals.get(run_id)
        if run is None:
            return RehearsalState(fingerprint, RehearsalRun(run_id, RehearsalProgress.MISSING))
        if run.progress is not RehearsalProgress.FINISHED:
            return RehearsalState(fingerprint, RehearsalRun(run_id, run.progress))
        ended = self.moment(self.time.now if run.ended_at is None else run.ended_at)
        result = RehearsalResult(
            verdict=run.verdict,
            reason="as it is",
            ending=Ending.DUAL_WRITE,
            forecast=Forecast(no_controller_seconds=2.0, heap_bytes=run.heap_bytes),
            brokers=[BrokerRehearsal(broker=0, verdict=run.of_brokers, reason="as it is")],
            controllers=Judgement(verdict=run.verdict, reason="as it is"),
            started_at=ended,
            finished_at=ended,
        )
        return RehearsalState(fingerprint, RehearsalRun(run_id, RehearsalProgress.FINISHED, result=result))

    def moment(self, seconds: float) -> datetime:
        """Return a virtual time as the cluster's clocks show it."""
        return START + timedelta(seconds=seconds)

    def _pod_state(self, pod: Pod) -> PodState:
        if pod.shown is not None and pod.shown[:2] == (pod.ready_since, pod.deleting):
            return pod.shown[2]
        state = self._new_pod_state(pod)
        pod.shown = (pod.ready_since, pod.deleting, state)
        return state

    def _new_pod_state(self, pod: Pod) -> PodState:
        ready = pod.ready_since is not None and not pod.deleting
        return PodState(
            pod.name, pod.uid, pod.node, ready, self.moment(pod.ready_since) if pod.ready_since is not None and ready else None,
            pod.deleting, pod.configuration, pod.revision, f"10.0.0.{pod.node % 250}",
            "CrashLoopBackOff of container kafka" if pod.mixed else "", images=frozenset({("kafka", pod.image)}),
            created_at=self.moment(pod.created_at), grace_seconds=GRACE_SECONDS if pod.deleting else None,
            kill_due_at=None if pod.kill_due_at is None else self.moment(pod.kill_due_at),
            running_since=None if pod.ready_since is None else self.moment(pod.ready_since),
            started_again=frozenset({"kafka"}) if pod.starts > 1 else frozenset(),
        )  # fmt: skip

    def _set_state(self, workload: Workload, lease: LeaseState = NO_LEASE, **more: Any) -> StatefulSetState:
        return StatefulSetState(
            name=workload.name,
            uid=workload.uid or f"uid-{workload.name}",
            replicas=len(workload.nodes),
            update_strategy=workload.strategy,
            configuration=workload.configuration,
            update_revision=workload.revision,
            observed=self.time.now >= workload.observed_at,
            lock=workload.lock,
            container_found=True,
            settings=self.leg.template(SETTINGS),
            unreadable_settings=frozenset(),
            java_tool_options="",
            volumes=frozenset(),
            drift=("env KAFKA_LISTENER_SECURITY_PROTOCOL_MAP",) if workload.drift else (),
            pods=tuple(self._pod_state(workload.pods[n]) for n in sorted(workload.pods)),
            deleting=workload.deleting,
            lease=lease,
            required=_required(workload.name),
            generation=workload.generation,
            **more,
        )

    def _broker_set(self, workload: Workload) -> StatefulSetState:
        taken, renewed = self.leases_taken.get(workload.name), self.leases.get(workload.name)
        if taken is not None and self.time.now < taken:
            lease = LeaseState("another", age_seconds=1.0)
        elif renewed is None:
            lease = LeaseState()
        else:
            age = self.time.now - renewed
            if self.lease_holders.get(workload.name) == self.process:
                lease = LeaseState("us", ours=True, age_seconds=age)
            else:
                lease = LeaseState("a frozen process", age_seconds=age, expired=age >= LEASE_SECONDS)
        digest = f"{workload.name}-{workload.recorded}" if workload.originals else ""
        return self._set_state(
            workload,
            lease,
            overlay=workload.configuration,
            claims={f"data-{workload.name}": self.uids.claim},
            original=RecordedOriginal(digest, complete=workload.originals == {0, 1}),
            **(
                {"template": self._sight(workload)}
                if self.channel is None
                else {"properties_from": "ConfigMap/brokers"}
            ),
        )

    def _sight(self, workload: Workload) -> TemplateSight | None:
        """Return what is seen of a template; None where nobody can tell the overlay from the rest."""
        return None if workload.bereft else self.templates.sight()

    def _controllers(self, status: MigrationStatus) -> ControllersWorkload:
        uids = {i: self.claims_of.get((status.attempt, i), f"pvc-{status.attempt}-{i}") for i in CONTROLLERS}
        claims = {i: uid for i, known in uids.items() if (uid := self.exchanged.get(i, known)) is not None}
        missing, left = tuple(sorted(self.missing)), tuple(self._pod_state(p) for p in self.orphans.values())
        if self.controllers is None:
            return ControllersWorkload(None, missing=missing, claims=claims, left=left)
        state = self._set_state(self.controllers)
        known = status.controllers
        if known is not None and (known.format_allowed or known.change is not None or expired.is_under_way(status)):
            current = state.configuration == f"{known.mode}-{self.rendering}"
            state = replace(state, drift=() if current else ("configuration",))
        number = self.certificates.number
        secrets = seen_secrets({"listener": str(number)} if number else {})
        return ControllersWorkload(
            state,
            self.format_allowed,
            uids,
            secrets=secrets,
            missing=missing,
            claims=claims,
            left=left,
            configurations=dict(self.configurations),
            mounted=self.mounted(),
            without_agent=self.without_agent(),
        )

    def without_agent(self) -> frozenset[int]:
        """Return the controllers whose pods have nothing of the operator's."""
        pods = {} if self.controllers is None else self.controllers.pods
        return frozenset(node for node, pod in pods.items() if "-clean-" in pod.configuration)

    def _zookeeper(self) -> ZooKeeperState | Unobserved:
        kafka = self.kafka
        if self.time.now < kafka.zookeeper_down_until:
            return Unobserved("ZooKeeper", "no session")
        if kafka.lost in (Lost.WIPED, Lost.FOREIGN):
            cluster_id = None if kafka.lost == Lost.WIPED else "another"
            return ZooKeeperState(cluster_id, None, None, None, (), (), False, None, zxid=1)
        if kafka.claim_epoch >= 0:
            controller = ControllerZnode(kafka.leader or CONTROLLERS[0], kafka.claim_epoch, ephemeral=False)
        else:
            holder = kafka.zk_controller
            controller = None if holder is None else ControllerZnode(holder, -1, ephemeral=True)  # type: ignore[assignment]
        offset = kafka.offset_in_zookeeper()
        is_cut, is_older = kafka.lost == Lost.CUT, kafka.lost == Lost.OLDER
        if is_cut:
            controller = ControllerZnode(self.kafka.nodes[0], -1, ephemeral=True)
        if is_older:
            offset = kafka.older_offset
        return ZooKeeperState(
            cluster_id="cluster",
            controller=controller,
            controller_epoch=5,
            migration=MigrationZnode(CONTROLLERS[0], kafka.migration_epoch, offset, kafka.migration_epoch)
            if kafka.migration_znode and not is_cut
            else None,
            brokers=tuple(
                self._broker_znodes[i] for i, p in kafka.brokers.items() if p.up and p.mode is not BrokerMode.KRAFT
            ),
            pending_topic_deletions=(),
            reassignments=False,
            canary=kafka.zk_canary,
            migration_czxid=kafka.czxid if kafka.migration_znode and not is_cut else 0,
            zxid=kafka.lost_zxid if is_older else kafka.zxid(),
        )

    def _quorum(self) -> QuorumState | Unobserved:
        kafka = self.kafka
        if kafka.active is None or sum(c.up for c in kafka.controllers.values()) < MAJORITY:
            return Unobserved("quorum", "no leader")
        if kafka.active in kafka.ended:
            return EXPIRED
        end = kafka.log_offset()
        members = kafka.members(kafka.active)
        voters = tuple(
            VoterState(i, end, 0.2) if i in members else VoterState(i, end - 60, 30.0) for i in kafka.controllers
        )
        return QuorumState(kafka.active, kafka.epoch, end, voters, frozenset(kafka.registered))

    def _metrics(self) -> dict[int, ControllerMetrics | Unobserved]:
        kafka = self.kafka
        seen: dict[int, ControllerMetrics | Unobserved] = {}
        silent = self.without_agent()
        migrating = sum(m is BrokerMode.MIGRATION for m in kafka.registered.values())
        fenced = sum(kafka.fenced(i) for i in kafka.registered)
        for node, process in kafka.controllers.items():
            if not process.up or self.controllers is None or node in silent:
                seen[node] = Unobserved(f"controller {node}", "connection refused")
                continue
            state = kafka.state if process.loaded and kafka.leader is not None else ZkMigrationState.NOT_LOADED
            state = ZkMigrationState.ABSENT if node in self.to_kafka4.nodes else state
            leader = kafka.leader if kafka.leader is not None and kafka.talk(node, kafka.leader) else -1
            seen[node] = ControllerMetrics(
                node,
                node == kafka.active,
                state,
                migrating,
                len(kafka.registered) - fenced,
                fenced,
                leader,
                kafka.epoch,
            )
        return seen

    def _features(self, *, brokers: bool) -> dict[int, NodeFeatures | Unobserved]:
        nodes = {**self.kafka.controllers, **(self.kafka.brokers if brokers else {})}
        return {
            i: self.to_kafka4.features(
                i,
                loaded=p.loaded or i in self.kafka.brokers,
                migrates=isinstance(p.mode, ControllerMode) and p.mode.migrates,
            )
            if p.up
            else Unobserved(f"node {i}", "connection refused")
            for i, p in nodes.items()
        }

    def _registered_controllers(self) -> frozenset[int] | Unobserved:
        if self.kafka.active is None:
            return Unobserved("controllers", "no active controller")
        if self.kafka.active in self.kafka.ended:
            return EXPIRED
        return frozenset(self.kafka.controllers_registered)

    def _cluster_state(self) -> ClusterState | Unobserved:
        """Return what one broker serves: the one with the oldest metadata, since nothing chooses a better one."""
        up = [i for i, p in self.kafka.brokers.items() if p.up]
        if not up:
            return Unobserved("Kafka", "no broker answers")
        return self._served_by(min(up, key=lambda i: (i not in self.kafka.stale, i)))

    def _cluster_by_broker(self) -> dict[int, ClusterState | Unobserved]:
        return {
            i: self._served_by(i) if p.up else Unobserved(f"broker {i}", "connection refused")
            for i, p in self.kafka.brokers.items()
        }

    def _served_by(self, node: int) -> ClusterState:
        kafka = self.kafka
        if self.layout.on:
            return self._served_of_layout(*kafka.metadata_of(node))
        up, in_sync = kafka.metadata_of(node)
        return _served(up, self.leg.in_sync(in_sync), kafka.zk_controller or -1)

    def _settings_for_kafka4(self) -> KafkaSettings:
        told = self.leg.survey(self.settings.survey(self.kafka.nodes)).brokers
        assert isinstance(told, dict)
        return KafkaSettings(told, {"t": {"segment.bytes": "1000"}})

    def _topic_ids(self, status: MigrationStatus) -> dict[int, TopicIds | Unobserved]:
        ids = self.leg.ids
        assert ids is not None, "only an older release has topics without ids"
        asked = topic_ids.to_ask(status, tuple(self._broker_set(w) for w in self.broker_sets))
        return ids.told(asked, self._served_by(self.kafka.nodes[0]).partitions)

    def _served_of_layout(self, up: frozenset[int], in_sync: frozenset[int]) -> ClusterState:
        lagging, waiting, offline = self.layout.lacking(in_sync, self.time.now)
        names = tuple(f"t-{number}" for number in range(waiting))
        return ClusterState(up, self.kafka.zk_controller or -1, 300, names, waiting, names[:offline], offline, lagging)

    def _canaries(self) -> dict[int, bool | Unobserved]:
        return {
            i: i in self.kafka.canary_served if p.up else Unobserved(f"broker {i}", "connection refused")
            for i, p in self.kafka.brokers.items()
        }

    def _views(self) -> dict[int, int | Unobserved]:
        return {
            i: self.kafka.views.get(i, -1) if p.up else Unobserved(f"broker {i}", "connection refused")
            for i, p in self.kafka.brokers.items()
        }

    def _run(self, status: MigrationStatus) -> VerificationRun | None:
        record = status.followed_run
        if record is None:
            return None
        run = self.runs.get(record.run_id)
        if run is None:
            return VerificationRun(record.run_id, RunState.MISSING)
        if run.state is not RunState.FINISHED or run.verdict is None:
            return VerificationRun(record.run_id, run.state)
        now = self.moment(self.time.now)
        if run.summary is None:
            run.summary = VerdictSummary(
                run_id=record.run_id if not run.misaddressed else "another-run",
                migration_uid=self.identity.uid,
                generation=run.generation,
                phase=str(run.record.gate),
                profile=run.record.profile,
                verdict=run.verdict,
                reason="as it is",
                compared=50,
                differing=run.lost_writes + run.foreign_edits,
                mirror_differing=run.lost_writes + run.foreign_edits,
                partition_state_differing=run.lost_writes,
                started_at=now,
                finished_at=now,
            )
        verdict = run.summary.model_copy(update={"started_at": now, "finished_at": now})
        return VerificationRun(record.run_id, RunState.FINISHED, verdict=verdict)


@cache
def _required(name: str) -> GuardedStatefulSet:
    return GuardedStatefulSet(name=name, container="kafka")


@cache
def _served(up: frozenset[int], in_sync: frozenset[int], controller: int) -> ClusterState:
    lacking = tuple(f"t-{i}" for i in BROKERS if i not in in_sync)
    offline = () if in_sync else ("t-0",)
    lagging = frozenset(BROKERS) - in_sync
    return ClusterState(up, controller, 300, lacking, len(lacking), offline, len(offline), lagging)
