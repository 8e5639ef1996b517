"""Observation of the clusters at one time.

Each part is either observed or `Unobserved`; a gate never opens on an `Unobserved` part.

`PATTERNS` are the log lines of Kafka 3.9 and of the controllers' start script that say why a node makes no progress;
the comment of each names its class.
Exceptions of ``kafka.zk`` carry ZooKeeper's own codes.
Meaning and fix are in the catalogue.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from kraftbridge.models.assignments import SeenAssignments
from kraftbridge.models.broker_record import BrokerNow, BrokerRecord
from kraftbridge.models.catalogue import Code
from kraftbridge.models.dry_start import DryStartState
from kraftbridge.models.issued import IssuedListener, IssuedSecret, PresentedCertificate
from kraftbridge.models.metadata_version import FEATURE, Upgrade
from kraftbridge.models.phase import ZkMigrationState
from kraftbridge.models.pod_problem import PodProblem, problem_of
from kraftbridge.models.rehearsal import RehearsalResult
from kraftbridge.models.report import VerdictSummary
from kraftbridge.models.status import ChangedField, GuardedStatefulSet, KeptCopy, Operation, SeenSecret, ZooKeeperBehind
from kraftbridge.models.survey import BrokerSetting, LogDir, Survey
from kraftbridge.models.survey import Unobserved as Unobserved  # noqa: PLC0414 - the package knows it from here
from kraftbridge.models.volumes import Mount
from kraftbridge.models.zookeeper_needs import ZooKeeperNeed
from kraftbridge.outside import bounds


@dataclass(frozen=True, slots=True)
class Clue:
    """A log line that the catalogue explains."""

    code: Code
    detail: str = ""
    """The part of the line that names an object: broker ids, a znode, a host, or Kafka's own message."""


PATTERNS: Final[dict[Code, re.Pattern[str]]] = {
    Code.DISK_FULL: re.compile(r"No space left on device"),
    Code.OUT_OF_MEMORY: re.compile(r"java\.lang\.OutOfMemoryError: ?(.*)"),
    # KafkaConfig.validateValues, AbstractConfig, DefaultSslEngineFactory
    Code.CONFIG_REFUSED: re.compile(
        r"(?:ConfigException: |IllegalArgumentException: requirement failed: "
        r"|InvalidConfigurationException: (?=Failed to load))(.+)"
    ),
    Code.BLANK_VOLUME: re.compile(r"volume of controller \d+ is blank and formatting is not allowed"),
    # RaftManager, BrokerMetadataCheckpoint
    Code.WRONG_CLUSTER_ID: re.compile(r"(INCONSISTENT_CLUSTER_ID|Invalid cluster\.id in: .+)"),
    Code.NO_AUTH_IN_ZOOKEEPER: re.compile(r"KeeperErrorCode = NoAuth(?: for (\S+))?"),
    Code.CERTIFICATE_EXPIRED: re.compile(r"CertificateExpiredException: (.+)"),  # sun.security.x509.CertificateValidity
    # sun.security.util.HostnameChecker
    Code.CERTIFICATE_NAME_MISMATCH: re.compile(r"CertificateException: (No (?:subject alternative|name).+)"),
    # sun.security.validator.PKIXValidator
    Code.CERTIFICATE_NOT_TRUSTED: re.compile(r"SSLHandshakeException: (PKIX path building failed)"),
    # sun.security.ssl.Alert
    Code.CERTIFICATE_REFUSED: re.compile(
        r"Received fatal alert: (bad_certificate|\w*certificate_\w+|unknown_ca|handshake_failure)"
    ),
    # JaasContext, SaslClientAuthenticator, ZooKeeper's Login
    Code.LOGIN_MISSING: re.compile(
        r"(Could not find a .+? entry in the JAAS configuration"
        r"|No JAAS configuration section named .+? was found)"
    ),
    Code.AUTHENTICATION_FAILED: re.compile(
        r"Connection to (node -?\d+ \(\S+\)) failed authentication due to: (.+?)(?: \(org\.apache\.|$)"  # NetworkClient
        r"|Failed (?:re-)?authentication with (\S+) \(channelId=[^)]*\) \((.+?)\)(?: \(org\.apache\.|$)"  # Selector
        r"|(?P<less>(?:Sasl|Ssl)AuthenticationException: .+|SSL handshake failed.*|Authentication failed.*)"
    ),
    Code.NOT_AUTHORIZED: re.compile(r"(CLUSTER_AUTHORIZATION_FAILED|ClusterAuthorizationException.*)"),
    Code.NAME_NOT_RESOLVED: re.compile(r"(?:UnknownHostException: |Couldn't resolve server )(\S+)"),
    # KafkaZkClient.registerBroker
    Code.BROKER_ZNODE_EXISTS: re.compile(r"KeeperErrorCode = NodeExists(?: for (/brokers/ids/\d+))?"),
    # KafkaZkClient.retryMigrationRequestsUntilConnected
    Code.MIGRATION_ZNODE_CONFLICT: re.compile(r"Conditional update on KRaft Migration ZNode failed"),
    # KRaftMigrationDriver.WaitForControllerQuorumEvent
    Code.CONTROLLERS_NOT_READY: re.compile(
        r"[Ss]till waiting for all controller nodes ready to begin the migration(.*)"
    ),
    # KRaftMigrationDriver.areZkBrokersReadyForMigration
    Code.BROKERS_NOT_REGISTERED: re.compile(r"Still waiting for ZK brokers \[?([\d, ]+)\]?"),
    Code.ZOOKEEPER_SESSION: re.compile(r"KeeperErrorCode = (ConnectionLoss|SessionExpired)"),
    # ReplicaManager, LogManager
    Code.LOG_DIR_FAILED: re.compile(
        r"(?:Shutdown broker because all log dirs in (.+?) have failed"
        r"|Error while (?:reading|writing) .* in dir (\S+))"
    ),
    # ReplicaManager.becomeLeaderOrFollower, LogManager.isStrayKraftReplica
    Code.LEFTOVER_IN_THE_WAY: re.compile(
        r"The log dir Log\(dir=([^,]+),.* does not have a topic ID, which is not allowed when running in KRaft mode"
    ),
    # ProcessTerminatingFaultHandler, KafkaServer
    Code.FATAL: re.compile(
        r"(?:Encountered fatal fault: |Fatal error during \w+ startup\. Prepare to shutdown"
        r"|Exiting Kafka due to fatal exception)(.*)"
    ),
    Code.DRIVER_STATE: re.compile(r"transitioning from \w+ to (\w+) state"),  # KRaftMigrationDriver.transitionTo
}
"""In the order in which they explain most."""

MAXIMUM_DETAIL = 200
"""Characters."""


def clues_in(log: str) -> tuple[Clue, ...]:
    """Return the last line of each code in a log, in the order of `PATTERNS`.

    A line in the group ``less`` replaces no other, since it names less.
    """
    clues: dict[Code, Clue] = {}
    for line in bounds.lines(log):
        for code, pattern in PATTERNS.items():
            match = pattern.search(line)
            if match is None or (code in clues and match.groupdict().get("less")):
                continue
            detail = ": ".join(group.strip() for group in match.groups() if group)
            clues[code] = Clue(code, detail[:MAXIMUM_DETAIL])
    return tuple(clues[code] for code in PATTERNS if code in clues)


def meaning_of(clue: Clue) -> str:
    """Return what a clue says about its node, as the end of a sentence that begins with the node's name."""
    text = clue.code.meaning.format(detail=clue.detail).replace(" ()", "")
    return text[0].lower() + text[1:]


LEASE_SECONDS = 30.0
"""Time that a Lease is valid without a renewal, in seconds."""
LEASE_RENEWED_AFTER_SECONDS = 10.0

NOT_NEEDED = Unobserved("it", "not needed in this phase")

# ------------------------------------------------------------------------------------------------ Kubernetes


@dataclass(frozen=True, slots=True)
class PodState:
    """A pod of the brokers or controllers."""

    name: str
    uid: str
    ordinal: int
    ready: bool
    ready_since: datetime | None
    deleting: bool
    configuration: str
    """Value of the configuration annotation, ``""`` on a pod that the operator never configured."""
    revision: str
    """``controller-revision-hash``."""
    ip: str
    trouble: str = ""
    """Reason why the pod does not run: ``ImagePullBackOff: …``, ``CrashLoopBackOff: last exit 1``,
    ``Unschedulable: …``."""
    running_since: datetime | None = None
    """When the last of its containers started, by the node's clock; None while a container does not run."""
    seen_since: datetime | None = None
    """When the operator first saw this process, by its own clock (`status.sights`)."""
    images: frozenset[tuple[str, str]] = frozenset()
    """Name and image digest of each container that has started, init containers included
    (``ContainerStatus.imageID``)."""
    created_at: datetime | None = None
    """By the API server's clock."""
    kill_due_at: datetime | None = None
    """When the kubelet kills what is left of the pod (``metadata.deletionTimestamp``, by the API server's clock);
    None while it is not deleted."""
    grace_seconds: int | None = None
    """Time from its deletion until then (``metadata.deletionGracePeriodSeconds``)."""
    exits: frozenset[tuple[str, int, str]] = frozenset()
    """Name, exit code and reason of each container that has ended and has not been started again."""
    started_again: frozenset[str] = frozenset()
    """Containers that were started more than once in this pod (``ContainerStatus.restartCount``)."""

    @property
    def process(self) -> str:
        """Identity of what runs in the pod: another one after each start of a container."""
        return self.uid if self.running_since is None else f"{self.uid} {self.running_since:%Y-%m-%dT%H:%M:%SZ}"

    def replaces(self, operation: Operation) -> bool:
        """Return whether it is the next pod of the one that an operation restarts."""
        return self.name == operation.pod and self.uid != operation.pod_uid

    @property
    def problem(self) -> PodProblem | None:
        """What keeps it from running, None if Kubernetes reports nothing."""
        return problem_of(self.trouble)

    @property
    def down(self) -> str:
        """Why the pod cannot be counted on, ``""`` when it is Ready and stays."""
        if self.deleting:
            lost = f": {self.trouble}" if self.problem is PodProblem.NODE_LOST else ""
            return f"pod {self.name} is stopping{lost}"
        if self.ready:
            return ""
        if self.trouble:
            return f"pod {self.name} is not Ready: {self.trouble}"
        if self.running_since is None:
            return f"pod {self.name} is not Ready: its containers are starting"
        return f"pod {self.name} is not Ready: its containers run since {self.running_since:%H:%M:%S} UTC"


@dataclass(frozen=True, slots=True)
class StartLog:
    """What a broker's log says about its start."""

    process: str
    """`PodState.process` of the broker."""
    recovery: str = ""
    """Newest line about the loading of partitions (``LogManager``, ``LogLoader``, ``ProducerStateManager``);
    empty if there is none."""
    unclean: str = ""
    """Line that says that the former process left no mark of a clean shutdown (``LogManager``);
    empty if there is none."""
    clean: bool = False
    """Whether a line says that the former process left this mark, or no log to recover."""
    whole: bool = False
    """Whether it was read after the broker was seen to be back: what it does not say by then, it never says."""

    @property
    def tells(self) -> bool:
        """Whether it says how the former process ended."""
        return self.clean or bool(self.unclean)


@dataclass(frozen=True, slots=True)
class LeaseState:
    """The Lease on a StatefulSet; ``holder`` is empty while nobody holds it."""

    holder: str = ""
    ours: bool = False
    age_seconds: float = 0.0
    """Time since the operator first observed the current renewal, in seconds."""
    expired: bool = False
    resource_version: str = ""
    """Of the Lease object, ``""`` when there is none."""

    @property
    def held_by_another(self) -> bool:
        """Whether another holder has the Lease and renews it."""
        return bool(self.holder) and not self.ours and not self.expired


@dataclass(frozen=True, slots=True)
class RecordedOriginal:
    """What the two Secrets hold of a StatefulSet's original state."""

    digest: str = ""
    """``""`` if neither holds it."""
    complete: bool = False
    """Whether both hold it."""


@dataclass(frozen=True, slots=True)
class TemplateSight:
    """The pod template that a broker would start from, without the overlay, and what it refers to."""

    digest: str
    """Of all of it, Secrets included."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """Digest of each part of the template and of each ConfigMap, by the name of the part."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """``resourceVersion`` of each Secret, by ``Secret name``."""


@dataclass(frozen=True, slots=True)
class StatefulSetState:
    """A StatefulSet and its pods."""

    name: str
    uid: str
    replicas: int
    update_strategy: str
    configuration: str
    """Value of the configuration annotation on its pod template."""
    update_revision: str
    observed: bool
    """Whether the StatefulSet controller has observed the newest generation."""
    lock: str
    """Value of the lock annotation, ``""`` without one."""
    container_found: bool
    settings: Mapping[str, str]
    """Kafka settings that the template renders (``zookeeper.connect`` …), as far as they can be read from it."""
    unreadable_settings: frozenset[str]
    """Settings given by a reference whose value the operator cannot read."""
    java_tool_options: str
    volumes: frozenset[str]
    drift: tuple[str, ...]
    """Fields of the overlay whose value another writer has changed."""
    pods: tuple[PodState, ...]
    deleting: bool = False
    former: tuple[ChangedField, ...] = ()
    """Original value and owner of each field that a migration sets."""
    lease: LeaseState | Unobserved = NOT_NEEDED
    fixed_variables: Mapping[str, str] = field(default_factory=dict)
    """Variables that the migration sets and the template gives by ``valueFrom``,
    each with the line that can replace the reference."""
    overrides: Mapping[str, str] = field(default_factory=dict)
    """Settings that ``--override`` in command and arguments gives."""
    properties_from: str = ""
    """``kind/name`` of the object that the volume of the properties file mounts;
    ``""`` in ``Env`` style, or if it mounts no ConfigMap or Secret."""
    foreign: tuple[str, ...] = ()
    """Changes that other writers made to the user's part of the template since the migration started."""
    last_writer: str = ""
    """Last field manager other than the operator that wrote it."""
    required: GuardedStatefulSet | None = None
    """Settings that its template needs for KRaft; None if they are not known."""
    lacking: tuple[str, ...] = ()
    """Settings of ``required`` that its template lacks."""
    owner_renders: bool = False
    """Whether the owner of the template is on record as rendering all of it."""
    image: str = ""
    """Image of the template's Kafka container, ``""`` if it was not read."""
    issued_secret: str = ""
    """Secret with the brokers' certificate for the controllers' listener that the overlay mounts."""
    writes_to_zookeeper: tuple[str, ...] = ()
    """Variables of the template's Kafka container with which its image writes to ZooKeeper at each start."""
    pods_refused: str = ""
    """Why the API server refuses to create one of its pods, ``""`` if all exist."""
    generation: int = 0
    """``metadata.generation``: every change of its spec counts, a change of its status does not."""
    original: RecordedOriginal = RecordedOriginal()
    overlay: str = ""
    """What shows that the template carries an overlay of the operator, ``""`` if it is the user's own."""
    selector: str = ""
    """Its label selector, as text."""
    chart: Mapping[str, str] = field(default_factory=dict)
    """Its labels that tell the chart and the version of what it runs."""
    claims: Mapping[str, str] = field(default_factory=dict)
    """UID of each PersistentVolumeClaim that its pods mount, by name; those that do not exist are left out."""
    mounts: tuple[Mount, ...] = ()
    """Of the template's Kafka container."""
    zookeeper_needs: tuple[ZooKeeperNeed, ...] = ()
    """What in its template besides Kafka asks ZooKeeper."""
    pods_needing_zookeeper: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What in a running pod besides Kafka asks ZooKeeper, by the pod's name; others are left out."""
    template: TemplateSight | None = None
    """None if its original state is lost, so that the overlay cannot be told from the rest, and where no broker
    restarts."""


@dataclass(frozen=True, slots=True)
class Renamed(Unobserved):
    """A StatefulSet that does not exist any more, and whose place another one has taken."""

    name: str = ""
    other: str = ""
    signs: str = ""
    """What shows it, as the end of a sentence about the other one."""


@dataclass(frozen=True, slots=True)
class ControllersWorkload:
    """StatefulSet and pods of the KRaft controllers; ``stateful_set`` is None before it exists."""

    stateful_set: StatefulSetState | None
    format_allowed: bool | None = None
    """Whether the applied ConfigMap allows blank volumes to be formatted; None if it could not be read."""
    volume_uids: Mapping[int, str] = field(default_factory=dict)
    migration_flag: bool | None = None
    """Value of ``zookeeper.metadata.migration.enable`` in the ConfigMap that the template mounts;
    None if it could not be read."""
    config_writer: str = ""
    """Last writer of that ConfigMap other than the operator, as text for a message."""
    config_replaced: bool = False
    """Whether that ConfigMap has another content than its name says: somebody has created it anew."""
    configurations: Mapping[str, str] = field(default_factory=dict)
    """UID of each ConfigMap with a configuration of the controllers, by name; read every few seconds."""
    mounted: frozenset[str] | None = None
    """Names of the ConfigMaps that the template or a pod of the controllers mounts; None if they were not read."""
    secrets: Mapping[str, SeenSecret] = field(default_factory=dict)
    """Secrets that a controller reads when it starts, by name.
    A Secret that is absent, as while it is replaced, is left out."""
    missing: tuple[str, ...] = ()
    """``Kind/name`` of the objects beside the StatefulSet that do not exist; read every few seconds."""
    claims: Mapping[int, str] | None = None
    """UID of each voter's PersistentVolumeClaim that exists; None if they were not read."""
    left: tuple[PodState, ...] = ()
    """Pods of this attempt's controllers that no StatefulSet owns."""
    reformat: int | None = None
    """Node id of the one controller that the applied ConfigMap lets format a blank volume."""
    without_agent: frozenset[int] = frozenset()
    """Controllers whose pods run no metrics agent. What is known of them is what Kafka's own protocol tells."""

    @property
    def credentials(self) -> dict[str, str]:
        """Fingerprint of each of `secrets`, by name."""
        return {name: seen.fingerprint for name, seen in self.secrets.items()}


@dataclass(frozen=True, slots=True)
class Path:
    """The way from a controller's pod to a broker's inter-broker listener."""

    address: str
    """``host:port`` as the broker advertises it."""
    failure: str = ""
    """Why the pod gets no TCP connection there, ``""`` if it gets one."""


@dataclass(frozen=True, slots=True)
class Paths:
    """What the controllers' pods reach of the brokers, tried from inside each of them."""

    listener: str
    """Listener of the brokers to which the controllers connect."""
    tried: Mapping[int, Mapping[int, Path | Unobserved] | Unobserved]
    """Each way, by controller and then by broker."""
    policies: Mapping[str, tuple[str, ...]] | Unobserved = field(default_factory=dict)
    """NetworkPolicies that select the pod at one end of a way that is closed, in its direction, by the pod's name."""


# ------------------------------------------------------------------------------------------------ ZooKeeper


@dataclass(frozen=True, slots=True)
class ControllerZnode:
    """Znode ``/controller``: the current controller (``kafka.zk.ControllerZNode``)."""

    broker_id: int
    kraft_controller_epoch: int
    """-1 while a ZooKeeper-mode broker is controller."""
    ephemeral: bool


@dataclass(frozen=True, slots=True)
class MigrationZnode:
    """``/migration`` (``kafka.zk.MigrationZNode``, KIP-866)."""

    kraft_controller_id: int
    kraft_controller_epoch: int
    kraft_metadata_offset: int
    """Offset that ZooKeeper mirrors; -1 before the copy is complete."""
    kraft_metadata_epoch: int


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An advertised listener of a broker."""

    listener: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class BrokerZnode:
    """``/brokers/ids/N``."""

    id: int
    hosts: tuple[str, ...]
    """Hosts of its advertised listeners."""
    endpoints: tuple[Endpoint, ...] = ()
    """Those listeners."""


@dataclass(frozen=True, slots=True)
class ZooKeeperState:
    """The znodes that show the progress of a migration."""

    cluster_id: str | None
    controller: ControllerZnode | None
    controller_epoch: int | None
    migration: MigrationZnode | Unobserved | None
    """None when there is none; Unobserved when its payload cannot be read (KAFKA-19480: a null one)."""
    brokers: tuple[BrokerZnode, ...]
    pending_topic_deletions: tuple[str, ...]
    reassignments: bool
    canary: float | None
    """Value of the canary quota, None if it is absent."""
    migration_czxid: int = 0
    """ZooKeeper's transaction that created ``/migration``; 0: there is none."""
    zxid: int = 0
    """Newest transaction that the server had applied when it answered; 0: not known."""
    changes: Mapping[str, int] = field(default_factory=dict)
    """How many children were ever made and removed below each znode that announces changes of configurations and ACLs
    (``cversion``). A znode that does not exist or may not be read is left out."""


# ------------------------------------------------------------------------------------------------ Kafka


@dataclass(frozen=True, slots=True)
class VoterState:
    """A voter as the leader sees it (DescribeQuorum, KIP-836)."""

    id: int
    log_end_offset: int
    silent_seconds: float | None = None
    """How long ago it last fetched, by the leader's clock. None: it has not yet, or the leader does not say."""


@dataclass(frozen=True, slots=True)
class QuorumState:
    """The quorum as its leader describes it."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[VoterState, ...]
    observers: frozenset[int]

    @property
    def max_lag_records(self) -> int | None:
        """How far the slowest voter is behind the foremost.

        None while a voter has not fetched from the leader (offset -1, KIP-595).
        """
        return self.lag_records()

    def lag_records(self, without: int | None = None) -> int | None:
        """Return the same of all voters but the one of this id."""
        ends = [v.log_end_offset for v in self.voters if v.id != without]
        if any(end < 0 for end in ends):
            return None
        return max(ends) - min(ends) if ends else 0


@dataclass(frozen=True, slots=True)
class NodeFeatures:
    """Features that one broker or controller reports (ApiVersions, KIP-584)."""

    finalized: Mapping[str, int]
    """Level of each finalized feature, such as ``metadata.version``, as its own image has it;
    empty before the first image."""
    supported: Mapping[str, tuple[int, int]]
    """Lowest and highest level that its software supports."""
    zk_migration_ready: bool = False
    """Whether it is a controller that is configured for the migration (KIP-866)."""
    finalized_epoch: int = -1
    """Offset of the metadata log up to which ``finalized`` is true:
    a broker's moves with its image, a controller's with each change."""


@dataclass(frozen=True, slots=True)
class FeatureAnswer:
    """Answer of the active controller to a validate-only change of a feature's level (KIP-778)."""

    level: int
    upgrade: Upgrade
    accepted: bool
    words: str = ""
    """Kafka's error message when it refuses."""
    feature: str = FEATURE


@dataclass(frozen=True, slots=True)
class ControllerMetrics:
    """Gauges of one controller (``kafka.controller:type=KafkaController``, ``kafka.server:type=raft-metrics``)."""

    node_id: int
    active: bool
    zk_migration_state: ZkMigrationState
    migrating_zk_brokers: int
    """``MigratingZkBrokerCount``: registered brokers that are still on ZooKeeper."""
    active_brokers: int
    """``ActiveBrokerCount``: registered and unfenced."""
    fenced_brokers: int
    leader_id: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class ControllerProbe:
    """Result of the controller probe in this phase."""

    longest_milliseconds: int
    """The longest time without an accepted write; 0: there was none."""
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The cluster as a broker serves it (Metadata)."""

    brokers: frozenset[int]
    controller_id: int
    partitions: int
    under_replicated: tuple[str, ...]
    """``topic-partition`` whose ISR lacks a replica; bounded to 20 names."""
    under_replicated_count: int
    offline: tuple[str, ...]
    """``topic-partition`` without a leader; bounded to 20 names."""
    offline_count: int
    lagging: frozenset[int]
    """Brokers that are missing from an ISR."""

    def problems(self, expected: frozenset[int]) -> list[str]:
        """Return what is wrong in this answer: a broker is missing, or a partition lacks its leader or its full ISR."""
        problems = []
        if missing := sorted(expected - self.brokers):
            problems.append(f"broker {', '.join(map(str, missing))} does not serve Metadata yet")
        if self.offline_count:
            problems.append(f"{self.offline_count} partition(s) without a leader: {', '.join(self.offline[:3])}")
        if self.under_replicated_count:
            problems.append(
                f"{self.under_replicated_count} partition(s) wait for their full ISR: "
                f"{', '.join(self.under_replicated[:3])}"
            )
        return problems


@dataclass(frozen=True, slots=True)
class TopicIds:
    """What a broker tells of the ids of its topics (KIP-516)."""

    process: str
    """`PodState.process` of the broker before it was asked."""
    protocol: str
    """``inter.broker.protocol.version`` that it runs. A broker keeps ids beside its logs from 2.8 on."""
    partitions: int
    """Partitions of the topics that it lists."""
    without: tuple[str, ...]
    """Topics that it lists without an id; bounded to 20 names."""
    without_count: int
    log_dirs: tuple[LogDir, ...] | Unobserved
    """What is in its log directories that no topic assigns to it: nobody gives such a replica an id."""


@dataclass(frozen=True, slots=True)
class TopicRedundancy:
    """Topics that a broker's restart makes unavailable: replication factor 1, or equal to min.insync.replicas."""

    replication_factor_one: tuple[str, ...]
    at_min_isr: tuple[str, ...]
    read_at: datetime | None = None
    """When the topics were read; None where nobody asks for it."""


# ------------------------------------------------------------------------------------------------ verification


class RunState(StrEnum):
    """State of a verification's application."""

    MISSING = "Missing"
    PENDING = "Pending"
    ARMED = "Armed"
    """Its driver has a warm Spark session and waits for its release."""
    RUNNING = "Running"
    FINISHED = "Finished"
    FAILED = "Failed"
    CANNOT_START = "CannotStart"
    """A pod of it cannot start without help, for example because its image cannot be pulled."""


@dataclass(frozen=True, slots=True)
class VerificationRun:
    """The application and ConfigMap of one run."""

    run_id: str
    state: RunState
    message: str = ""
    verdict: VerdictSummary | None = None


class RehearsalProgress(StrEnum):
    """State of a rehearsal's pod."""

    MISSING = "Missing"
    READING = "Reading"
    """Its pod waits for a node or an image, or reads the tree."""
    UNFENCED = "Unfenced"
    """It has read the tree, and no NetworkPolicy closes its pod yet."""
    RUNNING = "Running"
    ENDED = "Ended"
    """The rehearsal has ended, and its result can be collected."""
    FINISHED = "Finished"
    """Its result is in the ConfigMap."""
    CANNOT_START = "CannotStart"
    """Its pod cannot start without help, for example because its image cannot be pulled."""


@dataclass(frozen=True, slots=True)
class RehearsalRun:
    """Job, pod and ConfigMap of one rehearsal."""

    run_id: str
    progress: RehearsalProgress
    message: str = ""
    result: RehearsalResult | None = None


@dataclass(frozen=True, slots=True)
class RehearsalState:
    """Input of the rehearsal, and the state of the rehearsal that runs."""

    fingerprint: str
    """Of the controllers' configuration, image and heap, of ZooKeeper's address,
    and of the annotation that asks for another rehearsal."""
    run: RehearsalRun | None = None
    """The rehearsal that the status names as running."""


@dataclass(frozen=True, slots=True)
class Archive:
    """The Secret with the data that ZooKeeper held for the differences of a run."""

    run_id: str
    entities: int


# ------------------------------------------------------------------------------------------------ everything


@dataclass(frozen=True, slots=True)
class ActionOutcome:
    """Result of an action of the last step. A restart of the operator loses it, so every action must be repeatable."""

    action: str
    error: str = ""
    refused: bool = False
    """The API server or Kafka refused the action permanently; repeating it does not help."""


@dataclass(frozen=True, slots=True)
class RefusedEndpoint:
    """An address that the operator may not connect to."""

    host: str
    """As a connect string or an advertised listener names it."""
    port: int
    address: str
    """What it resolved to."""
    reason: str


@dataclass(frozen=True, slots=True)
class OldRequests:
    """Requests that a broker has got since its start, of a version that Kafka 4 refuses."""

    software: str
    """Name of the client's software; ``unknown`` where it does not tell (KIP-511)."""
    version: str
    """Its version."""
    request: str
    """Name and version of the request."""
    count: int


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """What Kafka 4 may refuse: settings that somebody has stated, of brokers and of topics, and clients' requests."""

    brokers: Mapping[int, tuple[BrokerSetting, ...] | Unobserved]
    topics: Mapping[str, Mapping[str, str | None]]
    """By topic and name, of those that were asked for; topics that state none are left out."""
    hidden_topics: tuple[str, ...] = ()
    """Topics whose configuration the operator may not read, at most 10."""
    old_requests: Mapping[int, tuple[OldRequests, ...] | Unobserved] = field(default_factory=dict)
    """By broker; empty where ``spec.brokers.metrics`` names no page."""


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything observed for one step. Parts that the phase does not need are Unobserved("…", "not needed")."""

    at: datetime
    stateful_sets: tuple[StatefulSetState | Unobserved, ...]
    controllers: ControllersWorkload | Unobserved
    zookeeper: ZooKeeperState | Unobserved
    quorum: QuorumState | Unobserved
    metrics: Mapping[int, ControllerMetrics | Unobserved]
    """Per node id of the quorum."""
    cluster: ClusterState | Unobserved
    redundancy: TopicRedundancy | Unobserved
    run: VerificationRun | Unobserved | None
    """The verification run that status names last, None when there is none."""
    runner_available: bool | Unobserved
    """Whether the API server serves what ``verification.runner`` needs."""
    cluster_by_broker: Mapping[int, ClusterState | Unobserved] | Unobserved = NOT_NEEDED
    """The cluster as several brokers serve it, since one broker's answer may be old.
    The next observation asks other brokers."""
    canary_by_broker: Mapping[int, bool | Unobserved] | Unobserved = NOT_NEEDED
    """Whether each broker serves the canary's topic; observed while there is a canary."""
    controller_by_broker: Mapping[int, int | Unobserved] | Unobserved = NOT_NEEDED
    """The controller that each broker names; observed during a rollback."""
    registered_controllers: frozenset[int] | Unobserved = NOT_NEEDED
    """Controllers registered with the active one; observed until the copy is complete."""
    admission_policy: bool | Unobserved = NOT_NEEDED
    """Whether the API server refuses other writers' changes of locked StatefulSets; observed in preflight."""
    features: Mapping[int, NodeFeatures | Unobserved] | Unobserved = NOT_NEEDED
    """Features of every controller and of every broker that Metadata lists, by node id;
    observed once the migration is complete."""
    feature_answer: FeatureAnswer | Unobserved = NOT_NEEDED
    """Observed while status asks for the validation of a change of metadata.version."""
    clues: Mapping[str, tuple[Clue, ...]] | Unobserved = NOT_NEEDED
    """Known log lines by node; observed once a phase has made no progress for a while."""
    survey: Survey | Unobserved = NOT_NEEDED
    """Parts that only preflight observes."""
    assignments: SeenAssignments | Unobserved = NOT_NEEDED
    """Where the replicas are; observed where several brokers may be down together."""
    archive: Archive | Unobserved | None = None
    """The archive that status names, None while it does not exist; observed until it exists."""
    controller_probe: ControllerProbe | None = None
    """Observed while a change of the controller is expected."""
    canary_committed: int | None = None
    """The canary value that the active controller last acknowledged."""
    dry_start: DryStartState | Unobserved = NOT_NEEDED
    """Where the dry start of the brokers' pods stands."""
    rehearsal: RehearsalState | Unobserved = NOT_NEEDED
    """Looked at in preflight and before the first broker restarts, where ``spec.rehearsal`` is enabled."""
    runs_left: frozenset[str] | Unobserved = NOT_NEEDED
    """Ids of the runs that status is removing and of which something is left."""
    may_roll: bool = True
    """Whether the migration may begin to restart nodes: the operator limits how many do so at once."""
    broker_record: BrokerRecord | Unobserved | None = NOT_NEEDED
    """What is on record of the broker that status names; None if it was never written."""
    broker_now: BrokerNow | Unobserved = NOT_NEEDED
    """The broker that restarted last; asked while it is compared."""
    start_log: StartLog | Unobserved = NOT_NEEDED
    """Log of the broker whose start status watches."""
    kept_copy: KeptCopy | Unobserved | None = NOT_NEEDED
    """The copy of the metadata log in the Secrets that status names; None while there is no whole one."""
    behind: ZooKeeperBehind | Unobserved = NOT_NEEDED
    """What the brokers serve and ZooKeeper does not know; observed while the quorum is lost."""
    issued: IssuedListener | Unobserved | None = None
    """Certificates and logins of the controllers' listener that the operator issues;
    None without ``listener.generate``."""
    brought: IssuedSecret | Unobserved | None = None
    """The certificate in the Secret that the user brings for the controllers' listener; None if it holds none."""
    presented: Mapping[int, PresentedCertificate | Unobserved] | Unobserved = NOT_NEEDED
    """The certificate that each controller presents at its listener; empty if the listener has no TLS."""
    server_time: datetime | Unobserved = NOT_NEEDED
    """Time by the API server's clock."""
    paths: Paths | Unobserved = NOT_NEEDED
    """What the controllers' pods reach of the brokers; tried once the quorum is ready, and until the copy is complete,
    while no node restarts."""
    topic_ids: Mapping[int, TopicIds | Unobserved] | Unobserved = NOT_NEEDED
    """What the brokers tell that have not listed every topic with its id since their start; asked once the rolling
    restart that lifts the protocol has begun, and until the last broker restarts in migration mode."""
    kafka4: KafkaSettings | Unobserved = NOT_NEEDED
    """Settings that Kafka 4 may refuse; read from AwaitingFinalization on, a few minutes old."""
    outcomes: tuple[ActionOutcome, ...] = ()
    refused: tuple[RefusedEndpoint, ...] = ()
    """Where the clients of the migration were kept from."""

    @property
    def seen_sets(self) -> tuple[StatefulSetState, ...]:
        """The StatefulSets of brokers and controllers that were observed."""
        brokers = tuple(item for item in self.stateful_sets if isinstance(item, StatefulSetState))
        workload = self.controllers
        if isinstance(workload, Unobserved) or workload.stateful_set is None:
            return brokers
        return (*brokers, workload.stateful_set)

    @property
    def active_controller(self) -> ControllerMetrics | None:
        """Metrics of the one active KRaft controller; None when none or several say so."""
        active = [m for m in self.metrics.values() if isinstance(m, ControllerMetrics) and m.active]
        return active[0] if len(active) == 1 else None
