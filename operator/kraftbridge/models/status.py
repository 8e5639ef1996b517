"""``status`` of a KafkaMigration: all that the operator remembers. Everything else is observed anew."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from pydantic import ConfigDict

from kraftbridge.models.catalogue import Severity
from kraftbridge.models.conditions import Condition
from kraftbridge.models.entities import KindCounts
from kraftbridge.models.metadata_version import Upgrade
from kraftbridge.models.phase import BrokerMode, ControllerMode, Phase, Target
from kraftbridge.models.rehearsal import RehearsalVerdict
from kraftbridge.models.report import Profile, Verdict
from kraftbridge.models.spec import ControllersSpec, MigrationSpec, Model

UID_LENGTH = 8
"""How many characters of a resource's UID names carry: enough to tell apart resources of one name in one namespace."""


class StatusModel(Model):
    """Base of status parts; fields of a newer operator are passed over."""

    model_config = ConfigDict(extra="ignore")


class FindingsReport(StatusModel):
    """A ConfigMap with every finding of preflight."""

    config_map: str
    """Its name; ``findings.json.gz`` in ``binaryData`` holds the list."""
    total: int
    """How many findings there are."""
    digest: str
    """SHA-256 of the list, to tell whether it is up to date."""


class FindingStatus(StatusModel):
    """A preflight finding; ``code`` is API."""

    code: str
    """Code of the finding."""
    severity: Severity
    """How serious the finding is."""
    object: str
    """Object that the finding is about."""
    reason: str
    """What is wrong."""
    fix: str
    """What to do."""
    accepted: bool = False
    """Whether spec.preflight.accepted lists the finding."""


class OperationKind(StrEnum):
    """What is being done to one node."""

    RESTART_BROKER = "RestartBroker"
    RESTART_CONTROLLER = "RestartController"


class Operation(StatusModel):
    """The act in progress, recorded before it begins; the pod's UID makes it safe to repeat."""

    kind: OperationKind
    node_id: int
    """Broker or controller that is restarted."""
    pod: str
    """Name of its pod."""
    pod_uid: str
    """UID of the pod that is replaced."""
    started_at: datetime
    """When the operation was recorded."""
    last_pod_ready_at: datetime | None = None
    """When the successor was first seen Ready."""


class NodeStatus(StatusModel):
    """One broker or controller."""

    id: int
    """Node id."""
    role: str
    """broker or controller."""
    pod: str
    """Name of its pod."""
    stateful_set: str
    """Name of its StatefulSet."""
    mode: str
    """Mode of the configuration that its pod runs."""
    ready: bool = False
    """Whether its pod is Ready."""
    registered: bool | None = None
    """Whether the quorum lists it (broker registration, or voter)."""
    restarts: int = 0
    """Restarts that this migration did."""


class BrokersStatus(StatusModel):
    """The brokers in one line."""

    total: int = 0
    """Number of brokers."""
    in_mode: int = 0
    """Number of brokers that have reached ``mode``."""
    mode: BrokerMode = BrokerMode.ZOOKEEPER
    """The mode that ``in_mode`` brokers have reached, of the roll that is under way or was the last."""
    summary: str = "0/0"
    """``inMode``/``total``."""


class QuorumStatus(StatusModel):
    """The KRaft controller quorum as last seen; offsets as strings, since they may pass 53 bits."""

    leader_id: int | None = None
    """Node id of the active controller."""
    leader_epoch: int | None = None
    """Epoch of the active controller."""
    leader_since: datetime | None = None
    """Since when this leader has been seen without a change."""
    max_lag_records: str | None = None
    """Records by which the slowest voter is behind the leader."""
    high_watermark: str | None = None
    """High watermark of the metadata log."""


class MigrationOffset(StatusModel):
    """``/migration``'s offset at one time: a later, greater one proves that ZooKeeper is being written."""

    offset: str
    """Offset of the metadata log that ZooKeeper mirrors."""
    seen_at: datetime
    """When the offset was read."""
    moved_at: datetime | None = None
    """When the offset was last seen to have grown."""
    standing_since: datetime | None = None
    """Since when it has been seen standing still, without a look at ZooKeeper having failed in between."""


class CanaryStatus(StatusModel):
    """A harmless metadata change made by us, awaited in both stores."""

    value: int
    """Value of the client quota that was written."""
    written_at: datetime
    """When the change was recorded."""
    committed_at: datetime | None = None
    """The active controller acknowledged it: it is in the metadata log."""
    mirrored_at: datetime | None = None
    """It was read back from ZooKeeper."""
    served_at: datetime | None = None
    """Every broker was seen to serve it itself."""
    removing_at: datetime | None = None
    """Its removal was first asked for."""
    removed_at: datetime | None = None
    """It was seen gone from ZooKeeper."""


class VerificationStatus(StatusModel):
    """One verification run, newest last."""

    run_id: str
    """Id of the run."""
    profile: Profile
    gate: Phase
    """The phase whose entry (or last restart) it guards."""
    purpose: str
    """Distinguishes two runs for one gate, such as ``entry`` and ``last-broker``."""
    generation: int
    """Generation of the resource for which the run was launched."""
    launched_at: datetime
    """When the run was launched."""
    ready_at: datetime | None = None
    """When its Spark session was open."""
    released_at: datetime | None = None
    """When it was released to read."""
    finished_at: datetime | None = None
    """When its verdict was read."""
    verdict: Verdict | None = None
    reason: str = ""
    """Reason of the verdict."""
    counts: dict[str, KindCounts] = {}
    """By kind of entity."""
    differing: int = 0
    """Number of entities that differ."""
    mirror_differing: int = 0
    """Of these, entities that a controller failover would heal, because only ZooKeeper differs from the log."""
    partition_state_differing: int = 0
    """Of these, partitions that only lack their newest state in ZooKeeper."""
    report: str = ""
    """Name of the ConfigMap with the report."""


class HealingKind(StrEnum):
    """What a controller failover is to heal."""

    DIFFERENCES = "Differences"
    """ZooKeeper differs from the log although nothing is in flight."""
    STUCK_SYNC = "StuckSync"
    """``/migration`` stands still while the log moves on."""


class HealingStatus(StatusModel):
    """Healing by controller failovers: KRaft is the truth, and a new active controller writes its whole image to ZooKeeper."""

    kind: HealingKind
    started_at: datetime
    """When healing began."""
    run_id: str = ""
    """The verification whose differences are to be healed."""
    entities: int = 0
    """Number of entities that differ."""
    archive: str = ""
    """Secret that keeps what ZooKeeper held before, for good."""
    archived_at: datetime | None = None
    """When the archive was written."""
    failovers: int = 0
    """Counted before each, at most three."""
    failover_at: datetime | None = None
    """When the last failover was recorded."""
    failover_epoch: int = -1
    """``kraft_controller_epoch`` in ``/migration`` before the last failover."""
    resumed_offset: str | None = None
    """Offset in ``/migration`` when a newer epoch was first seen in it."""
    synced_at: datetime | None = None
    """When the offset was then seen to move: the new controller has written its image."""
    given_up_at: datetime | None = None
    """When healing was given up."""
    finished_at: datetime | None = None
    """When healing succeeded."""


class WaitKind(StrEnum):
    """What a migration is waiting for, for the account of its time."""

    WORK = "Work"
    HOLD = "Hold"
    SOAK = "Soak"
    VERIFICATION = "Verification"
    USER = "User"


class Waiting(StatusModel):
    """What is being waited for now."""

    kind: WaitKind
    since: datetime
    """Since when."""


class PhaseRecord(StatusModel):
    """One visit to a phase. Waits are whole seconds' sums of what ``Waiting`` showed."""

    phase: Phase
    entered_at: datetime
    """When the phase was entered."""
    left_at: datetime | None = None
    """When the phase was left."""
    hold_seconds: int = 0
    """Time in holds between restarts."""
    soak_seconds: int = 0
    """Time in soaks."""
    verification_wait_seconds: int = 0
    """Time spent waiting for verifications."""
    user_wait_seconds: int = 0
    """Time spent waiting for the user."""


class RenderedControllers(ControllersSpec):
    """``spec.controllers`` as the controllers' objects are rendered from it; fields of a newer operator are passed over."""

    model_config = ConfigDict(extra="ignore")

    @classmethod
    def of(cls, spec: ControllersSpec) -> RenderedControllers:
        """Return what ``spec.controllers`` renders."""
        return cls.model_validate(spec.model_dump())


class ControllersChange(StatusModel):
    """A change of ``spec.controllers`` that is rolled out, one voter at a time."""

    to: RenderedControllers
    """What the voters get."""
    before: RenderedControllers
    """What they had."""
    started_at: datetime
    """When the change was recorded, before any controller restarted."""
    active_restarted_at: datetime | None = None
    """When the active controller was last restarted for it; ``/migration`` must move after that."""
    failed: str = ""
    """Which controller did not come back, and why; it got ``before`` back."""


class ControllersStatus(StatusModel):
    """The quorum that we made."""

    name: str
    """Name of its StatefulSet, Service and ConfigMap."""
    node_ids: tuple[int, ...]
    """Node ids of the voters."""
    mode: ControllerMode = ControllerMode.MIGRATION
    format_allowed: bool = True
    """False once every voter was formatted: a blank volume must not start by itself then (a blank voter votes)."""
    volume_uids: dict[str, str] = {}
    """UID of each voter's PersistentVolumeClaim, by node id."""
    rendered: RenderedControllers | None = None
    """What its objects are rendered from; None until the voters are formatted: ``spec.controllers`` itself."""
    change: ControllersChange | None = None
    """The change that is rolled out, or that failed."""


class RestartRecord(StatusModel):
    """One restart that we did, for the account of the migration's impact."""

    node_id: int
    """Broker or controller that was restarted."""
    phase: Phase
    attempt: int
    """Attempt of the migration."""
    began_at: datetime
    """When its pod was asked to stop."""
    ready_at: datetime | None = None
    """When the successor was Ready."""
    finished_at: datetime
    """When every broker served again with full ISRs, or the quorum agreed."""


class ControllerUnavailability(StatusModel):
    """The longest time in one phase during which no controller took a metadata write."""

    phase: Phase
    attempt: int
    """Attempt of the migration."""
    milliseconds: int
    """From the first refused probe (a ``CreateTopics`` that only validates, four times a second) to the next accepted one."""
    ended_at: datetime
    """When a controller took a write again."""


class RehearsalRunStatus(StatusModel):
    """A rehearsal under way."""

    run_id: str
    """Id of the run, and name of its Job."""
    digest: str
    """Of what it judges."""
    launched_at: datetime
    """When it was launched."""


class RehearsedLoss(StatusModel):
    """An entity that Kafka lost or changed in the rehearsal."""

    entity: str
    """Kind and key of the entity."""
    what: str
    """What ZooKeeper holds, and what the metadata log held after the copy."""


class RehearsedMend(StatusModel):
    """A known trap in the ZooKeeper tree."""

    znode: str
    """Path of the znode."""
    problem: str
    """What Kafka would do because of it."""
    command: str
    """What mends it."""


class RehearsalStatus(StatusModel):
    """Kafka's own migration on a copy of the metadata: the last one that ended, and the one under way."""

    running: RehearsalRunStatus | None = None
    """The rehearsal under way."""
    count: int = 0
    """Number of rehearsals that this migration has launched."""
    run_id: str = ""
    """Id of the last one that ended."""
    digest: str = ""
    """Of what it judged: the controllers' configuration, image and heap."""
    verdict: RehearsalVerdict | None = None
    reason: str = ""
    """Reason of the verdict."""
    launched_at: datetime | None = None
    """When the last one that ended was launched."""
    finished_at: datetime | None = None
    """When its result was read."""
    partitions: int = 0
    """Partitions in the tree."""
    copy_seconds: float | None = None
    """Time of the copy from ZooKeeper."""
    sync_seconds: float | None = None
    """Time of the sync to ZooKeeper after it."""
    seconds_without_controller: float | None = None
    """From the claim of ``/controller`` to dual-write: what the takeover is expected to take."""
    heap_needed_bytes: int | None = None
    """Heap that each controller needs for this tree, with headroom."""
    minimum_batch_size: int | None = None
    """Value of zookeeper.metadata.migration.min.batch.size that the measured copy calls for; None: Kafka's default."""
    differing: int = 0
    """Number of entities that were lost or changed; ``losses`` names the first ones."""
    losses: tuple[RehearsedLoss, ...] = ()
    """Entities that were lost or changed, at most 20."""
    mends: tuple[RehearsedMend, ...] = ()
    """Known traps in the tree and what mends them, at most 20."""
    report: str = ""
    """Name of the ConfigMap with the whole result and its page."""


class ImpactStatus(StatusModel):
    """What the migration cost, as measured by the operator; clients' stalls are for clients to measure."""

    controller_unavailable: tuple[ControllerUnavailability, ...] = ()
    """Longest time without an active controller, per phase and attempt."""
    forecast_takeover_milliseconds: int | None = None
    """Time without a controller in the takeover, as the last rehearsal measured it; ``controllerUnavailable`` of TakingOver is the real one."""
    restarts: tuple[RestartRecord, ...] = ()
    """Oldest first, the last 300."""


class RollbackStatus(StatusModel):
    """The step of a rollback in which ZooKeeper becomes the truth again."""

    attempt: int
    """Attempt of the migration that was rolled back."""
    controllers_stopped_at: datetime | None = None
    """When the KRaft controllers were asked to stop: nobody is controller from about here."""
    high_watermark: str = ""
    """Of the metadata log then."""
    mirrored_offset: str = ""
    """Up to which ZooKeeper mirrored it then; the records between them are NoOpRecords, or the user accepted their loss."""
    controller_back_at: datetime | None = None
    """When a broker was first seen to hold ``/controller``."""
    controller_unavailable_milliseconds: int | None = None
    """Between these two, by the operator's looks."""


class ChangedField(StatusModel):
    """A field of somebody else's object that we set, and what it was."""

    object: str
    """Object whose field was changed."""
    field: str
    """Path of the field."""
    before: str
    """The former value, or where it is kept when it may be secret."""
    owner: str
    """Field manager before."""


class MetadataVersionState(StrEnum):
    """How far metadata.version is from what ``spec.metadataVersion`` asks for."""

    OBSERVED = "Observed"
    """Nothing is asked for and nothing is changed."""
    WAITING = "Waiting"
    """For the end of the migration, for a node, or for the cluster's health."""
    REFUSED = "Refused"
    """By a node's range, by Kafka's word, or by a pod template; nothing was changed."""
    VALIDATING = "Validating"
    """The active controller is asked to validate only."""
    VERIFYING_BEFORE = "VerifyingBefore"
    CHANGING = "Changing"
    """The change is on record, and sent until Kafka has committed it and every node has applied it."""
    VERIFYING_AFTER = "VerifyingAfter"
    IN_FORCE = "InForce"
    """Every node has applied what is asked for."""


class NodeLevels(StatusModel):
    """What one node says of metadata.version."""

    id: int
    """Node id."""
    role: str
    """broker or controller."""
    finalized: str
    """As its own image has it, \"\" before the first one."""
    lowest: str
    """Lowest level that it supports."""
    highest: str
    """Highest level that it supports."""


class MetadataVersionChange(StatusModel):
    """One change of metadata.version, on record before Kafka is asked for it."""

    number: int
    """Number of the change."""
    from_level: int
    """Level before."""
    to_level: int
    """Level after."""
    upgrade: Upgrade
    after_offset: str
    """High watermark when it was recorded: a node that has applied the log beyond it has applied the change."""
    started_at: datetime
    """When the change was recorded."""
    applied_at: datetime | None = None
    """When every broker and controller was seen to have applied it."""
    finished_at: datetime | None = None
    """When the verification after it had passed."""
    counts: str = ""
    """How the numbers of entities of the verifications before and after compare."""


class MetadataVersionStatus(StatusModel):
    """metadata.version (KIP-778) as the cluster has it and as the user wants it."""

    state: MetadataVersionState = MetadataVersionState.OBSERVED
    current: str | None = None
    """What the active controller has finalized."""
    target: str | None = None
    """Level that spec.metadataVersion names."""
    target_level: int | None = None
    """Number of that level."""
    upgrade: Upgrade | None = None
    """What the active controller is asked to validate."""
    message: str = ""
    """What the change waits for, or why it was refused."""
    nodes: tuple[NodeLevels, ...] = ()
    """Levels of every broker and controller."""
    changes: int = 0
    """Changes that this migration has begun."""
    change: MetadataVersionChange | None = None
    """The last one."""

    @property
    def validates(self) -> bool:
        """Whether the active controller's word is to be looked at."""
        return (
            self.state in (MetadataVersionState.VALIDATING, MetadataVersionState.REFUSED) and self.upgrade is not None
        )


class RequiredVariable(StatusModel):
    """An environment variable that Kafka's container needs in KRaft mode."""

    name: str
    """Name of the variable."""
    value: str
    """Value that it must have."""
    entry: bool = False
    """Whether the value must be one entry of a comma-separated list; other entries are the user's."""

    @property
    def words(self) -> str:
        """The variable as a message shows it."""
        return f"{self.name} with the entry {self.value}" if self.entry else f"{self.name}={self.value}"


class GuardedStatefulSet(StatusModel):
    """What the pod template of a StatefulSet must have for its brokers to run KRaft; the admission policy reads this."""

    name: str
    """Name of the StatefulSet."""
    container: str
    """Name of Kafka's container."""
    variables: tuple[RequiredVariable, ...] = ()
    """Style ``Env``: environment variables."""
    volume: str = ""
    """Style ``Properties``: volume with the properties file."""
    config_map: str = ""
    """Style ``Properties``: ConfigMap that the volume must mount, unless the template says ``kraftbridge.dev/broker-mode: KRaft``."""


class HandOverStatus(StatusModel):
    """Whose the configuration of the brokers is after ``Completed``."""

    guarded: bool
    """Whether a template without what KRaft needs is refused."""
    stateful_sets: tuple[GuardedStatefulSet, ...] = ()
    """What each StatefulSet of brokers needs."""
    missing: tuple[str, ...] = ()
    """What the templates lack now: a broker that restarts with it does not run KRaft."""
    ended_at: datetime | None = None
    """When the guard ended."""


class MigrationStatus(StatusModel):
    """All that the operator remembers of one migration."""

    phase: Phase = Phase.PREFLIGHT
    target: Target | None = None
    message: str = ""
    """Always says what is being waited for, and of whom."""
    observed_generation: int = 0
    """Generation of the resource that this status describes."""
    conditions: tuple[Condition, ...] = ()
    """Conditions of the migration; the contract for programs."""
    attempt: int = 1
    """Number of the attempt; a migration after a rollback is the next one."""
    cluster_id: str | None = None
    """Id of the Kafka cluster."""
    brokers: BrokersStatus = BrokersStatus()
    broker_ids: dict[str, int] = {}
    """Broker id by pod, as ZooKeeper had it before anything was changed."""
    broker_settings: dict[str, str] = {}
    """Settings that the controllers take over from the brokers, as these ran with them when preflight passed."""
    nodes: tuple[NodeStatus, ...] = ()
    """Brokers and controllers."""
    controllers: ControllersStatus | None = None
    quorum: QuorumStatus | None = None
    migration_offset: MigrationOffset | None = None
    canary: CanaryStatus | None = None
    operation: Operation | None = None
    hold_until: datetime | None = None
    """Until when the next restart is held."""
    hold_reason: str = ""
    """Why the next restart is held."""
    verifications: tuple[VerificationStatus, ...] = ()
    """Verification runs that are kept, newest last."""
    verification_count: int = 0
    """Number of runs that this migration has launched."""
    rehearsal: RehearsalStatus | None = None
    impact: ImpactStatus = ImpactStatus()
    rollback: RollbackStatus | None = None
    """The last rollback's."""
    healing: HealingStatus | None = None
    """The healing under way, or the one that was given up."""
    healings: tuple[HealingStatus, ...] = ()
    """Those that succeeded, newest last."""
    findings: tuple[FindingStatus, ...] = ()
    """Blocking ones first; at most 100, see ``findingsReport``."""
    findings_report: FindingsReport | None = None
    """Where all findings are, when there are more than fit."""
    changed_fields: tuple[ChangedField, ...] = ()
    """Fields of other owners' objects that the migration changed."""
    history: tuple[PhaseRecord, ...] = ()
    """Visits to phases, oldest first."""
    waiting: Waiting | None = None
    progress_at: datetime | None = None
    """When anything last moved; deadlines count from here."""
    controller_agreed_since: datetime | None = None
    """Rolling back: since when every broker has named the same broker as controller."""
    metadata_version: MetadataVersionStatus | None = None
    given_back_at: datetime | None = None
    """Completed: when no StatefulSet was locked any more."""
    hand_over: HandOverStatus | None = None
    final_manifest: str = ""
    """ConfigMap with the manifests that the user's next release should contain."""

    @property
    def followed_run(self) -> VerificationStatus | None:
        """The verification that is looked after: the newest that has not ended, else the newest."""
        unfinished = (v for v in reversed(self.verifications) if v.finished_at is None)
        return next(unfinished, self.verifications[-1] if self.verifications else None)


def rendered_spec(spec: MigrationSpec, status: MigrationStatus) -> MigrationSpec:
    """Return the spec with the ``controllers`` that the controllers' objects are rendered from."""
    rendered = status.controllers.rendered if status.controllers is not None else None
    return spec if rendered is None else spec.model_copy(update={"controllers": rendered})


def controllers_name(migration: str, uid: str, attempt: int) -> str:
    """Return the name of an attempt's controllers.

    The migration's UID and the attempt are part of it, so volumes of an earlier attempt, or of an earlier resource of the same name,
    are never mounted again.
    """
    name = f"{migration}-kraft-{uid[:UID_LENGTH]}"
    return name if attempt == 1 else f"{name}-{attempt}"


def healing_archive(run_id: str) -> str:
    """Return the name of the Secret with what ZooKeeper held where a run found differences."""
    return f"{run_id}-archive"
