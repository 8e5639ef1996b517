"""``status`` of a KafkaMigration: the state that the operator keeps.

The operator observes everything else again in each reconciliation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final

from pydantic import ConfigDict, Field
from typing_extensions import override

from kraftbridge.constants import UID_LENGTH
from kraftbridge.models.broker_record import DifferenceKind, Effect
from kraftbridge.models.catalogue import Code, Severity
from kraftbridge.models.conditions import Condition
from kraftbridge.models.dry_start import DryStartStage
from kraftbridge.models.entities import KindCounts
from kraftbridge.models.metadata_version import Upgrade
from kraftbridge.models.phase import BrokerMode, ControllerMode, Phase, Target
from kraftbridge.models.protocol import lacks_topic_ids
from kraftbridge.models.rehearsal import RehearsalVerdict, heap_options
from kraftbridge.models.report import Profile, Verdict
from kraftbridge.models.runs import RunKind
from kraftbridge.models.spec import (
    BrokersSpec,
    ConfigStyle,
    ControllersSpec,
    MigrationSpec,
    Model,
    PodSettings,
    PropertiesSource,
)
from kraftbridge.outside.visible import visible

FORECAST: Final = "forecast-"
"""Beginning of the purpose of a verification that compares ZooKeeper with a kept copy instead of the controllers'
logs."""


class StatusModel(Model):
    """Base of the parts of the status. Fields that a newer operator wrote are ignored."""

    model_config = ConfigDict(extra="ignore")


class FindingsReport(StatusModel):
    """A ConfigMap with every finding of preflight."""

    config_map: str
    """Name of the ConfigMap. ``findings.json.gz`` in its ``binaryData`` holds the list."""
    total: int
    """Number of findings."""
    digest: str
    """SHA-256 of the list. It shows whether the ConfigMap is up to date."""


class FindingStatus(StatusModel):
    """A finding of preflight. ``code`` is part of the API."""

    code: str
    """Code of the finding."""
    severity: Severity
    """How serious the finding is."""
    object: str
    """Object that the finding is about."""
    reason: str
    """Problem that was found."""
    fix: str
    """Action that removes the problem."""
    accepted: bool = False
    """Whether spec.preflight.accepted lists the finding."""

    @property
    def sentence(self) -> str:
        """The finding for a message: its code and object, what is wrong, and what to do."""
        return f"{self.code} on {self.object}: {self.reason}. {self.fix}"

    @property
    def blocks(self) -> bool:
        """Whether the finding closes the gate out of Preflight."""
        return self.severity is Severity.BLOCKING and not self.accepted


class RefusedClient(StatusModel):
    """Clients of one software and version that send requests which Kafka 4 refuses (KIP-896)."""

    software: str
    """Name of the software; ``unknown`` where the client does not tell."""
    version: str
    """Its version."""
    requests: dict[str, int]
    """Requests by name and version, with how many of them all brokers together have got since their start."""
    brokers: tuple[int, ...]
    """Brokers that got them."""
    counts: dict[str, int] = {}
    """How many of them each broker has got since its start, as its metrics showed last."""
    last_seen_at: datetime
    """When a broker was last seen to have got further ones: it counts more than before, or has restarted."""


class Kafka4Status(StatusModel):
    """What Kafka 4 makes of the present settings of brokers, controllers and topics, and of the clients' requests."""

    findings: tuple[FindingStatus, ...] = ()
    """What it refuses, ignores and changes, what keeps a node from its start first, at most 50."""
    total: int = 0
    """Number of findings."""
    clients: tuple[RefusedClient, ...] = ()
    """Clients that Kafka 4 refuses, those that were seen last first, at most 50.
    Those that were not seen for seven days are in no finding; they stay as long as a broker counts them."""
    clients_since: datetime | None = None
    """Since when the metrics of every broker were seen to show such clients; unset while they do not."""
    clients_seen_at: datetime | None = None
    """When all of them were read last, to ten minutes. After more than an hour without, the watch begins anew."""


class RaisedFeature(StatusModel):
    """A feature of the cluster that was raised on the user's word."""

    name: str
    """Name of the feature."""
    from_level: int
    """Level before."""
    to_level: int
    """Level that is asked for."""
    after_offset: str
    """High watermark of the metadata log when it was recorded. A string, because it may exceed 53 bits."""
    asked_at: datetime
    """Time at which it was recorded, before the request was sent."""
    finished_at: datetime | None = None
    """Time at which every node had applied it and the verification after it had passed."""
    refused: str = ""
    """Kafka's reason, if it refuses the level. The feature stays where it is."""


class AskedFeature(StatusModel):
    """A level of a feature that the active controller is asked to validate."""

    name: str
    """Name of the feature."""
    from_level: int
    """Level that is in force."""
    to_level: int
    """Level that is asked for."""


class FormerImages(StatusModel):
    """The images of a StatefulSet before Kafka 4."""

    stateful_set: str
    """Name of the StatefulSet."""
    images: dict[str, str]
    """Image by container, as the template names it."""


class Kafka4Leg(StatusModel):
    """The way on to Kafka 4, from its first preparation on. Unset before, and once it was taken back."""

    image: str
    """Image of the brokers, as ``spec.kafka4`` named it."""
    controllers_image: str
    """Image of the controllers."""
    release: str = ""
    """Version of Kafka that every copy of the brokers' pods has started with this image."""
    digests: dict[str, str] = {}
    """Digest of the image by StatefulSet and container, ``name/container``, as the copies of the dry start got it.
    A broker that comes back with another one stops the rolling restart."""
    former: tuple[FormerImages, ...] = ()
    """Images of brokers and controllers before the first change: the way back restores them."""
    began_at: datetime | None = None
    """Time at which the leg began. Nothing was changed before."""
    brokers_began_at: datetime | None = None
    """Time from which a broker may run Kafka 4."""
    brokers_back_at: datetime | None = None
    """Time at which, on the way back, every broker ran the release before again.
    From then on the controllers follow."""
    final_at: datetime | None = None
    """Time at which the way back ended."""
    final_reason: str = ""
    """Why it ended."""
    asks: AskedFeature | None = None
    """The feature that is validated before it is raised."""
    features: tuple[RaisedFeature, ...] = ()
    """Features that were raised, oldest first."""


class OperationKind(StrEnum):
    """Kind of an operation on one node."""

    RESTART_BROKER = "RestartBroker"
    RESTART_CONTROLLER = "RestartController"


class Operation(StatusModel):
    """Operation in progress. The operator records it before it begins; the pod's UID makes it safe to repeat."""

    kind: OperationKind
    """Kind of the operation."""
    node_id: int
    """Node id of the broker or controller that is restarted."""
    pod: str
    """Name of its pod."""
    pod_uid: str
    """UID of the pod that is replaced."""
    started_at: datetime
    """When the operation was recorded."""
    last_pod_ready_at: datetime | None = None
    """Time at which the new pod was first observed to be Ready."""
    repeated: bool = False
    """Whether this restart repeats one that did not help. No restart is repeated twice."""
    serving: bool = False
    """Whether the pod was Ready when the restart was recorded."""
    kill_due_at: datetime | None = None
    """When the kubelet kills what is left of the old pod, by the API server's clock; unset until its deletion was seen.
    """
    grace_seconds: int | None = None
    """Time that the old pod has to end, from its deletion on."""
    exit_code: int | None = None
    """Exit code of Kafka's container in the old pod, if it was seen."""
    exit_reason: str = ""
    """Reason of that exit, such as ``OOMKilled``."""
    replaced_at: datetime | None = None
    """When the next pod was created, by the API server's clock. That one may be replaced in its turn."""
    unclean_start: str = ""
    """Line of the new Kafka's log that says that the old one left no mark of a clean shutdown."""
    clean_start: bool = False
    """Whether the new Kafka's log has said that the old one left this mark, or no log to recover."""
    back_process: str = ""
    """UID and start of the new pod, once it was seen to be back with a log that does not say how the old one ended."""


class BatchStatus(StatusModel):
    """Brokers that are down together. ``operation`` follows one of them, and this the others."""

    brokers: tuple[int, ...]
    """Ids of the brokers that were stopped, in this order."""
    waiting: tuple[int, ...] = ()
    """Ids of those that are to be stopped yet, each once the one before has handed over its leaders."""
    others: tuple[Operation, ...] = ()
    """Restarts of the batch that are followed after ``operation``."""
    stopped_at: datetime
    """When the last one was stopped."""
    limit: str = ""
    """Why the batch is not larger."""


class KilledBroker(StatusModel):
    """A broker that did not end by itself when it was restarted."""

    node_id: int
    """Id of the broker."""
    pod: str
    """Name of its pod."""
    stateful_set: str
    """Its StatefulSet."""
    attempt: int
    """Attempt in which it was restarted."""
    killed_at: datetime
    """When the pod was gone, by the API server's clock."""
    seconds: int
    """Time from the pod's deletion until then."""
    grace_seconds: int
    """Time that the pod had to end."""
    reason: str
    """What shows that it was killed, as the end of a sentence about it."""


class PodSight(StatusModel):
    """When the operator first saw what a pod is, by its own clock: no time of a node's clock is compared with it."""

    pod: str
    """Name of the pod."""
    process: str
    """UID of the pod, and when its containers started by the node's clock: an identity, not a time."""
    since: datetime
    """When this process was first seen."""
    ready_at: datetime | None = None
    """When it was first seen Ready. Unset while it is not."""


class WatchedStart(StatusModel):
    """A broker that runs and is not back: what its log says about its start."""

    pod: str
    """Name of its pod."""
    process: str
    """As in ``sights``."""
    recovery: str = ""
    """Newest line of its log about the loading of its partitions; empty while there is none."""
    looked_at: datetime | None = None
    """When the log was last read."""
    still_milliseconds: int = 0
    """For how long the log was seen to tell nothing new, in milliseconds."""


class NodeStatus(StatusModel):
    """One broker or controller."""

    id: int
    """Node id."""
    role: str
    """``broker`` or ``controller``."""
    pod: str
    """Name of its pod."""
    stateful_set: str
    """Name of its StatefulSet."""
    mode: str
    """Mode of the configuration with which its pod runs."""
    ready: bool = False
    """Whether its pod is Ready."""
    registered: bool | None = None
    """Whether the quorum lists the node: as a registered broker, or as a voter. Unset while it is not known."""
    restarts: int = 0
    """Number of restarts by this migration."""
    compared: str = ""
    """Process of a broker that was last compared with what it was: UID of the pod, and when its container started.
    Unset before."""
    images: dict[str, str] = {}
    """Digest of the image of each container that a broker's pod ran before the migration restarted a broker.
    A broker that comes back with another one stops the rolling restart."""
    with_topic_ids: str = ""
    """Process of a broker that has listed every topic with its id, and whose protocol keeps the ids beside its logs.
    It is recorded where the protocol is lifted in a rolling restart of its own. Unset before."""


class BrokerRecordStatus(StatusModel):
    """What is on record of the broker that restarts: settings in force, listeners and offsets."""

    node_id: int
    """Id of the broker."""
    pod_uid: str
    """UID of the pod that was asked."""
    config_map: str
    """ConfigMap with the record."""


class BrokerDifference(StatusModel):
    """One difference between a broker before its restart and after it."""

    kind: DifferenceKind
    """Kind of the difference."""
    effect: Effect
    """What the difference does to users."""
    what: str
    """Setting, listener or partition."""
    before: str
    """Value before the restart, or the stored one that Kafka refused."""
    after: str
    """Value after the restart."""
    line: str = ""
    """Line of the broker's log that says so."""


class BrokerComparison(StatusModel):
    """Comparison of the broker that restarted last with what it was."""

    node_id: int
    """Id of the broker."""
    process: str
    """The process that is compared: UID of the pod, and when its container started."""
    mode: BrokerMode
    """Mode in which it started."""
    began_at: datetime
    """When the broker was first asked."""
    compared_at: datetime | None = None
    """When the broker was last compared. Unset while it is not known what it is."""
    unknown: str = ""
    """Why the broker cannot be compared."""
    differing: int = 0
    """Number of differences."""
    differences: tuple[BrokerDifference, ...] = ()
    """Differences, the most serious first, at most 20."""


class BrokerUndo(StatusModel):
    """Return of a broker from KRaft mode to migration mode."""

    node_id: int
    """Id of the broker."""
    reason: str
    """What the start in KRaft mode did."""
    settings_digest: str
    """Of the settings that led to it. No broker starts in KRaft mode again before they change."""
    began_at: datetime
    """When the return was decided."""
    finished_at: datetime | None = None
    """When the broker was back in migration mode."""
    others: tuple[int, ...] = ()
    """Ids of the other brokers of its batch, which are taken back, too."""


class BrokerUpgradeStatus(StatusModel):
    """What preflight found for ``spec.brokers.upgrade``. Unset where spec does not ask for it."""

    needed: bool
    """Whether a broker runs ``inter.broker.protocol.version`` below 3.9.
    If not, every broker runs Kafka 3.9 already, and the image stays as it is."""
    protocol: str
    """The lowest ``inter.broker.protocol.version`` that ran. The brokers keep it until they run migration mode.
    Below 2.8 it is lifted before that, in a rolling restart of its own on ZooKeeper."""
    images: dict[str, str] = {}
    """Digest of the new image by StatefulSet and container, ``name/container``, as the copies of the dry start got it.
    A broker that comes back with another one stops the rolling restart."""
    lifted_at: datetime | None = None
    """Time from which a broker may run ``inter.broker.protocol.version`` 3.9.
    From then on a rollback keeps the new image and 3.9."""

    @property
    def lifts_alone(self) -> bool:
        """Whether the protocol is lifted in a rolling restart of its own: with this one no topic has an id."""
        return self.needed and lacks_topic_ids(self.protocol)


class BrokersStatus(StatusModel):
    """Summary of the brokers."""

    total: int = 0
    """Number of brokers."""
    in_mode: int = 0
    """Number of brokers that have reached ``mode``."""
    mode: BrokerMode = BrokerMode.ZOOKEEPER
    """Mode of the present rolling restart, or of the last one."""
    summary: str = ""
    """``inMode`` and ``total`` as text, for example ``2/3``."""


class QuorumStatus(StatusModel):
    """The KRaft controller quorum as last observed. Offsets are strings, because they may exceed 53 bits."""

    leader_id: int | None = None
    """Node id of the active controller."""
    leader_epoch: int | None = None
    """Epoch of the active controller."""
    leader_since: datetime | None = None
    """Time since which this leader has been observed without a change."""
    max_lag_records: str | None = None
    """Number of records by which the slowest voter lags behind the leader.
    Absent while a voter has not fetched from this leader."""
    high_watermark: str | None = None
    """High watermark of the metadata log."""


class MigrationOffset(StatusModel):
    """Offset in znode ``/migration``. An offset that grows proves that the active controller writes to ZooKeeper."""

    offset: str
    """Offset of the metadata log up to which ZooKeeper mirrors it."""
    seen_at: datetime
    """Time at which the offset was read."""
    moved_at: datetime | None = None
    """Time at which the offset was last observed to have grown."""
    standing_since: datetime | None = None
    """Time since which the offset has not changed. A failed read of ZooKeeper resets it."""


class CanaryStatus(StatusModel):
    """A harmless change of metadata by the operator. The operator waits until both stores have it."""

    value: int
    """Value of the client quota that was written."""
    written_at: datetime
    """Time at which the change was recorded."""
    committed_at: datetime | None = None
    """Time at which the active controller acknowledged the change: it is in the metadata log."""
    mirrored_at: datetime | None = None
    """Time at which the change was read from ZooKeeper."""
    served_at: datetime | None = None
    """Time at which every broker was observed to serve the change."""
    removing_at: datetime | None = None
    """Time at which the removal was first requested."""
    removed_at: datetime | None = None
    """Time at which ZooKeeper was observed not to have the change any more."""


class VerificationStatus(StatusModel):
    """One verification run."""

    run_id: str
    """Id of the run."""
    profile: Profile
    """Profile of the run: the sources that it compares."""
    gate: Phase
    """Phase whose entry, or whose last restart, the run guards."""
    purpose: str
    """Purpose of the run. It tells apart two runs for one gate, for example ``entry`` and ``last-broker``."""
    generation: int
    """Generation of the resource for which the run was launched."""
    launched_at: datetime
    """Time at which the run was launched."""
    ready_at: datetime | None = None
    """Time at which its Spark session was open."""
    released_at: datetime | None = None
    """Time at which the operator released it to read."""
    finished_at: datetime | None = None
    """Time at which its verdict was read."""
    verdict: Verdict | None = None
    """Verdict of the run. Unset until it ends."""
    reason: str = ""
    """Reason of the verdict."""
    counts: dict[str, KindCounts] = {}
    """Numbers of entities, by kind of entity."""
    differing: int = 0
    """Number of entities that differ."""
    mirror_differing: int = 0
    """Number of these that a controller failover would heal, because only ZooKeeper differs from the log."""
    partition_state_differing: int = 0
    """Number of these that are partitions whose newest state ZooKeeper lacks."""
    report: str = ""
    """Name of the ConfigMap with the report."""
    subject: dict[str, str] = {}
    """Fingerprint of each part that the verdict is about, at the time of the release.
    A rest is verified again when one of them is another."""

    @property
    def is_forecast(self) -> bool:
        """Whether it compares a kept copy, and says nothing about what runs."""
        return self.purpose.startswith(FORECAST)


class HealingKind(StrEnum):
    """Problem that a controller failover heals."""

    DIFFERENCES = "Differences"
    """ZooKeeper differs from the log although no change is in flight."""
    STUCK_SYNC = "StuckSync"
    """The offset in ``/migration`` stays the same while the log grows."""
    OLDER_STORE = "OlderStore"
    """ZooKeeper has older content than this attempt has read, and the user lets the controllers write it anew."""


class HealingStatus(StatusModel):
    """Healing by controller failovers: a new active controller writes its whole image to ZooKeeper."""

    kind: HealingKind
    """Problem that is healed."""
    started_at: datetime
    """Time at which healing began."""
    run_id: str = ""
    """Id of the verification that found the differences."""
    entities: int = 0
    """Number of entities that differ."""
    archive: str = ""
    """Name of the Secret with the data that ZooKeeper held before. The operator never deletes it."""
    archived_at: datetime | None = None
    """Time at which the archive was written."""
    failovers: int = 0
    """Number of failovers, at most three. The operator counts each one before it begins."""
    failover_at: datetime | None = None
    """Time at which the last failover was recorded."""
    failover_epoch: int = -1
    """``kraft_controller_epoch`` in ``/migration`` before the last failover."""
    resumed_offset: str | None = None
    """Offset in ``/migration`` when a newer epoch was first seen in it."""
    synced_at: datetime | None = None
    """Time at which the offset was then observed to grow: the new controller has written its image."""
    given_up_at: datetime | None = None
    """Time at which healing was given up."""
    finished_at: datetime | None = None
    """Time at which healing succeeded."""


class WaitKind(StrEnum):
    """Kind of a wait. ``status.history`` sums up the time of each kind."""

    WORK = "Work"
    HOLD = "Hold"
    SOAK = "Soak"
    VERIFICATION = "Verification"
    USER = "User"


class Waiting(StatusModel):
    """The present wait."""

    kind: WaitKind
    """Kind of the wait."""
    since: datetime
    """Time at which the wait began."""


class PhaseRecord(StatusModel):
    """One visit to a phase. Each wait is the sum of its times, in whole seconds."""

    phase: Phase
    entered_at: datetime
    """Time at which the phase was entered."""
    left_at: datetime | None = None
    """Time at which the phase was left."""
    hold_seconds: int = 0
    """Time in holds between restarts, in seconds."""
    soak_seconds: int = 0
    """Time in soaks, in seconds."""
    verification_wait_seconds: int = 0
    """Time spent waiting for verifications, in seconds."""
    user_wait_seconds: int = 0
    """Time spent waiting for the user, in seconds."""


class RenderedPods(PodSettings):
    """``spec.pods`` as it is rendered. Fields that a newer operator wrote are ignored."""

    model_config = ConfigDict(extra="ignore")


class KeptCopy(StatusModel):
    """A copy of the metadata log that the operator keeps in Secrets: the newest snapshot and the log after it."""

    id: str
    """Name of the copy, for ``spec.restoreControllersFrom``."""
    run_id: str
    """Verification that passed before the copy was made, or the reading of the voter that was left."""
    secret: str
    """Secret with its first part. The others have the same name with ``-part-1`` and so on."""
    parts: int
    """Number of Secrets."""
    digest: str
    """SHA-256 of the whole, as it is in the Secrets."""
    node_id: int
    """Voter whose log was copied."""
    end_offset: str
    """Offset of the metadata log after the last record in the copy. A string, because it may exceed 53 bits."""
    epoch: int
    """Leader epoch of that record."""
    log_bytes: int
    """Size of its files, in bytes."""
    taken_at: datetime
    """Time at which it was made."""


class KeepingStatus(StatusModel):
    """A copy of the metadata log that is being kept."""

    run_id: str
    """Verification that passed before."""
    secret: str
    """Secret for its first part."""
    started_at: datetime
    """Time at which the copy was asked for."""
    given_up: str = ""
    """Why it was given up; the copy before it remains."""


class RestoredLog(StatusModel):
    """What a controller's pod restores its volume from."""

    id: str
    """Name of the kept copy."""
    secret: str
    """Secret with its first part."""
    parts: int
    """Number of Secrets."""
    digest: str
    """SHA-256 of the whole."""
    epoch: int
    """Leader epoch at which the voters begin: higher than every epoch that brokers and ZooKeeper know."""

    @classmethod
    def of(cls, copy: KeptCopy, epoch: int) -> RestoredLog:
        """Return the source of a restoration from ``copy``."""
        return cls(id=copy.id, secret=copy.secret, parts=copy.parts, digest=copy.digest, epoch=epoch)


class Restoration(StatusModel):
    """A restoration of all voters from one kept copy."""

    attempt: int
    """Attempt of the migration."""
    copy_id: str
    """Name of the kept copy."""
    end_offset: str
    """Offset of the metadata log after the last record in the copy. Later records are lost."""
    epoch: int
    """Leader epoch at which the voters began."""
    began_at: datetime
    """Time at which it was recorded, before any controller restarted."""
    led_at: datetime | None = None
    """Time at which the restored quorum had a leader."""
    finished_at: datetime | None = None
    """Time at which every broker followed that leader, or had been restarted because it did not."""


class ZooKeeperBehind(StatusModel):
    """What the brokers serve and ZooKeeper does not know. A return to ZooKeeper loses it."""

    read_at: datetime
    """Time at which brokers and ZooKeeper were read."""
    partitions: int
    """Partitions whose leader epoch at the brokers is higher than ZooKeeper's.
    Records that were written since are truncated."""
    partition_names: tuple[str, ...] = ()
    """The first of them."""
    topics: int
    """Topics that ZooKeeper lacks. They and their records are lost."""
    topic_names: tuple[str, ...] = ()
    """The first of them."""
    deleted_topics: int
    """Topics that only ZooKeeper has. They come back empty."""
    deleted_topic_names: tuple[str, ...] = ()
    """The first of them."""
    silent: tuple[int, ...] = ()
    """Brokers that did not answer. What they alone know is not counted."""


class LostQuorum(StatusModel):
    """A majority of the controllers has lost its volumes: the quorum cannot elect a leader again."""

    seen_at: datetime
    """Time at which it was first seen."""
    voters: tuple[int, ...]
    """Node ids whose volumes are gone or exchanged."""
    forecast_run: str = ""
    """Verification that compares ZooKeeper with the kept copy: its differences are what a restoration would lose."""
    forecast: str = ""
    """What a restoration from the kept copy would lose, in words."""
    behind: ZooKeeperBehind | None = None
    """What ZooKeeper lacks of what the brokers serve."""


class RenderedControllers(ControllersSpec):
    """``spec.controllers`` from which the controllers' objects are rendered.

    Fields that a newer operator wrote are ignored.
    """

    model_config = ConfigDict(extra="ignore")

    credentials: dict[str, str] = {}
    """Fingerprint of each Secret that a controller reads when it starts, by name.
    It is keyed, so it does not give away a password."""
    pods: RenderedPods = RenderedPods()
    """``spec.pods``."""
    broker_settings: dict[str, str] | None = None
    """Settings that the controllers take over from the brokers.
    Unset by an earlier release of the operator: ``status.brokerSettings`` applies."""
    restored: RestoredLog | None = None
    """The kept copy from which the controllers' pods restore their volumes when they start.
    Set while a quorum is restored."""
    clean: bool = False
    """Whether the controllers run without the operator's image (``spec.handOver: Clean``)."""

    @classmethod
    def of(
        cls,
        spec: ControllersSpec,
        credentials: Mapping[str, str] | None = None,
        pods: PodSettings | None = None,
        broker_settings: Mapping[str, str] | None = None,
        *,
        clean: bool = False,
    ) -> RenderedControllers:
        """Return ``spec`` as a value of the status.

        It has the fingerprints of its Secrets, ``spec.pods`` and the brokers' settings.
        """
        changes = {
            "clean": clean,
            "credentials": dict(credentials or {}),
            "pods": (pods or PodSettings()).model_dump(),
            "broker_settings": None if broker_settings is None else dict(broker_settings),
        }
        return cls.model_validate({**spec.model_dump(exclude={"reformat"}), **changes})


class ControllersChange(StatusModel):
    """A change of ``spec.controllers``, or of the settings that the controllers share with the brokers.

    The operator rolls it out one voter at a time.
    """

    to: RenderedControllers
    """Configuration that the voters get."""
    before: RenderedControllers
    """Configuration that the voters had."""
    started_at: datetime
    """Time at which the change was recorded, before any controller restarted."""
    pods: dict[str, str] = {}
    """UID of each controller's pod at that time, by node id."""
    active_restarted_at: datetime | None = None
    """Time of the last restart of the active controller for this change.
    The offset in ``/migration`` must grow after it."""
    failed: str = ""
    """The controller that did not come back, and the reason. The operator gave it ``before`` again."""


class SeenSecret(StatusModel):
    """What the operator last saw of a Secret that the controllers read when they start."""

    version: str
    """UID and resourceVersion of the Secret."""
    fingerprint: str
    """Keyed fingerprint of its data at this version. It holds for the version, even if its key is lost."""


class Reformat(StatusModel):
    """The word of ``spec.controllers.reformat`` as it was taken."""

    id: int
    """Node id of the controller that may format a blank volume."""
    claim_uid: str = Field(alias="claimUID")
    """UID of its PersistentVolumeClaim."""
    ended_at: datetime | None = None
    """Time from which on the controller serves: the word does not count any more."""


class ControllersStatus(StatusModel):
    """The controllers that the operator created."""

    name: str
    """Name of its StatefulSet and Service. Its ConfigMaps begin with it."""
    node_ids: tuple[int, ...]
    """Node ids of the voters."""
    mode: ControllerMode = ControllerMode.MIGRATION
    """Mode of the controllers' configuration."""
    format_allowed: bool = True
    """Whether a controller may format a blank volume.
    False once every voter was formatted, because a voter with a blank volume can elect a leader that lacks records."""
    volume_uids: dict[str, str] = {}
    """UID of each voter's PersistentVolumeClaim, by node id."""
    reformat: Reformat | None = None
    """The controller that may format a blank volume, or has done so."""
    secrets: dict[str, SeenSecret] = {}
    """Secrets that the controllers read when they start, by name."""
    rendered: RenderedControllers | None = None
    """Configuration from which the objects are rendered.
    Unset until the voters are formatted; ``spec.controllers`` applies until then."""
    change: ControllersChange | None = None
    """The change of ``spec.controllers``, or of the settings that the controllers share with the brokers,
    that is in progress or that failed."""

    @property
    def clean(self) -> bool:
        """Whether the objects are rendered without the operator's image."""
        return self.rendered is not None and self.rendered.clean

    @property
    def cleaned(self) -> bool:
        """Whether every controller runs without the operator's image."""
        return self.clean and (self.change is None or self.change.before.clean)

    @property
    def format_config_map(self) -> str:
        """Name of the ConfigMap with the word that lets controllers format blank volumes."""
        return controllers_format(self.name)

    @property
    def to_format(self) -> int | None:
        """Node id of the controller that may format a blank volume by the user's word now, None for no one."""
        word = self.reformat
        return word.id if word is not None and word.ended_at is None else None


class HeldCertificate(StatusModel):
    """A certificate that the brokers' Secret holds, or held."""

    fingerprint: str
    """First 16 digits of the SHA-256 of the certificate."""
    begins_at: datetime | None = None
    """Begin of its validity."""
    expires_at: datetime | None = None
    """End of its validity."""
    since: datetime
    """Time since which a broker that starts may load it, by the operator's clock."""


class PresentedStatus(StatusModel):
    """The certificate that a controller presents at its listener."""

    node_id: int
    """Node id of the controller."""
    process: str
    """UID of its pod, and when its containers started: another one after each start."""
    fingerprint: str
    """First 16 digits of the SHA-256 of the certificate."""
    begins_at: datetime
    """Begin of its validity."""
    expires_at: datetime
    """End of its validity."""
    seen_at: datetime
    """Time at which the operator first saw this process present it."""


class QuorumRestart(StatusModel):
    """The restart of all controllers whose certificate had ended, at once and once."""

    attempt: int
    """Attempt of the migration."""
    certificate: str
    """Certificate in the Secret that they get. None is tried twice."""
    pods: dict[str, str]
    """UID of each pod that is replaced, by node id."""
    began_at: datetime
    """Time at which it was recorded, before any pod was replaced."""
    restarted_at: datetime | None = None
    """Time at which the pods were first asked to stop."""
    finished_at: datetime | None = None
    """Time at which every controller followed one leader again."""


class ListenerCertificatesStatus(StatusModel):
    """The Secrets with the certificates and logins that the operator issues for the controllers' listener."""

    authority_secret: str
    """Secret with the authority and, if the operator issues logins, their passwords. Only the operator uses it."""
    controllers_secret: str
    """Secret with the certificate of the controllers and, if the operator issues logins, with these."""
    brokers_secret: str
    """Secret for the brokers: mount it into their pods.
    If the operator issues logins, that of the brokers is in the key ``sasl.jaas.config``."""
    controllers_expire_at: datetime | None = None
    """End of the controllers' certificate. The operator renews it after two thirds of its lifetime."""
    brokers_expire_at: datetime | None = None
    """End of the brokers' certificate in the Secret. A broker uses a renewed one from its next start."""
    brokers_run_until: datetime | None = None
    """End of the oldest certificate that a running broker has loaded: that of the Secret when the broker started."""
    brokers_to_restart: tuple[str, ...] = ()
    """Pods of brokers that run with an earlier certificate than that in the Secret; at most ten."""
    held_by_brokers: tuple[HeldCertificate, ...] = ()
    """The last certificates of the brokers' Secret, the newest last."""
    authority_key: str = ""
    """SHA-256 of the public key of the authority, as it was first seen."""
    problem: str = ""
    """What is wrong with one of the Secrets. The operator does not overwrite such a Secret."""


class RestartRecord(StatusModel):
    """One restart by the operator."""

    node_id: int
    """Node id of the broker or controller that was restarted."""
    phase: Phase
    attempt: int
    """Attempt of the migration."""
    began_at: datetime
    """Time at which its pod was asked to stop."""
    ready_at: datetime | None = None
    """Time at which the new pod was Ready."""
    finished_at: datetime
    """Time at which every broker served again and every ISR was complete, or at which the quorum agreed on a leader."""


class ControllerUnavailability(StatusModel):
    """The longest time in one phase during which no controller accepted a metadata write."""

    phase: Phase
    attempt: int
    """Attempt of the migration."""
    milliseconds: int
    """Time from the first refused probe to the next accepted one, in milliseconds.
    A probe is a ``CreateTopics`` that only validates, four times a second."""
    ended_at: datetime
    """Time at which a controller accepted a write again."""


class RehearsalRunStatus(StatusModel):
    """A rehearsal that runs."""

    run_id: str
    """Id of the run, which is also the name of its Job."""
    digest: str
    """Digest of the input: the controllers' configuration, image and heap."""
    launched_at: datetime
    """Time at which it was launched."""


class RehearsedLoss(StatusModel):
    """An entity that Kafka lost or changed in the rehearsal."""

    entity: str
    """Kind and key of the entity."""
    what: str
    """The value in ZooKeeper, and the value in the metadata log after the copy."""


class RehearsedMend(StatusModel):
    """A znode with a known problem, and its remedy."""

    znode: str
    """Path of the znode."""
    problem: str
    """Effect of the znode on the migration."""
    command: str
    """Command that removes the problem."""


class RehearsedSetting(StatusModel):
    """A dynamic setting of a rehearsed broker."""

    name: str
    """Name of the setting."""
    stored: str | None = None
    """Stored value. Unset for a secret."""
    holds: str | None = None
    """Value in force after the start in KRaft mode. Unset for a secret, and where there is none."""
    held: bool
    """Whether the stored value is in force."""


class RehearsedBroker(StatusModel):
    """What Kafka's own broker did in KRaft mode with the settings of one or more brokers."""

    brokers: tuple[int, ...]
    """Ids of the brokers with these settings."""
    verdict: RehearsalVerdict
    """`Works` if each dynamic setting is in force, `Fails` if Kafka refused some or did not start."""
    reason: str
    """Reason of the verdict."""
    settings: tuple[RehearsedSetting, ...] = ()
    """Dynamic settings that were compared, those that are not in force first, at most 50."""


class RehearsalStatus(StatusModel):
    """The last rehearsal that ended, and the one that runs."""

    running: RehearsalRunStatus | None = None
    """The rehearsal that runs."""
    count: int = 0
    """Number of rehearsals that this migration has launched."""
    run_id: str = ""
    """Id of the last rehearsal that ended. The fields below describe it."""
    digest: str = ""
    """Digest of its input: the controllers' configuration, image and heap."""
    verdict: RehearsalVerdict | None = None
    """Verdict on Kafka's migration of the copy. Unset until one has ended."""
    reason: str = ""
    """Reason of the verdict."""
    launched_at: datetime | None = None
    """Time at which it was launched."""
    finished_at: datetime | None = None
    """Time at which its result was read."""
    partitions: int = 0
    """Number of partitions in the ZooKeeper tree."""
    copy_seconds: float | None = None
    """Duration of the copy from ZooKeeper, in seconds."""
    sync_seconds: float | None = None
    """Duration of the sync to ZooKeeper after the copy, in seconds."""
    seconds_without_controller: float | None = None
    """Time from the claim of ``/controller`` to dual-write, in seconds. It is the forecast for the takeover."""
    heap_needed_bytes: int | None = None
    """Heap that each controller needs for this tree, with a reserve of 60 %, in bytes."""
    controller_heap_bytes: int | None = None
    """Largest heap that a rehearsal of this migration called for, in bytes.
    Without ``spec.controllers.heapOptions`` each controller gets it, and at least 512 MiB."""
    minimum_batch_size: int | None = None
    """Value of zookeeper.metadata.migration.min.batch.size that follows from the measured copy.
    Unset: Kafka's default."""
    differing: int = 0
    """Number of entities that were lost or changed. ``losses`` names the first 20."""
    losses: tuple[RehearsedLoss, ...] = ()
    """Entities that were lost or changed, at most 20."""
    mends: tuple[RehearsedMend, ...] = ()
    """Znodes with a known problem and their remedies, at most 20."""
    brokers: tuple[RehearsedBroker, ...] = ()
    """Brokers that were started in KRaft mode, at most 50, the worst first.
    Empty where no dry start shows their settings."""
    report: str = ""
    """Name of the ConfigMap with the whole result and its HTML page."""

    @property
    def works(self) -> bool:
        """Whether Kafka's migration works, and each broker that was started in KRaft mode."""
        verdicts = (self.verdict, *(broker.verdict for broker in self.brokers))
        return all(verdict is RehearsalVerdict.WORKS for verdict in verdicts)


class DryStartRunStatus(StatusModel):
    """A dry start that runs."""

    run_id: str
    """Id of the run, which is also the name of its ConfigMap and the label of its pods."""
    digest: str
    """Digest of the input: the brokers' pod templates with everything that they refer to."""
    launched_at: datetime
    """Time at which it was launched."""
    generation: int
    """Generation of the resource at that time."""
    broker_ids: dict[str, int]
    """Broker ids by name of the pod, as ZooKeeper held them at that time."""
    cluster_id: str
    """Id of the Kafka cluster."""
    choosing: bool = False
    """Whether the channel is open (``configStyle: Auto``):
    where the present one is lost, the others are tried in the copies of every StatefulSet."""
    stage: DryStartStage = DryStartStage.PROBE
    """Stage that the run is in."""
    stage_at: datetime
    """Time at which the stage began. The time limit for making its pods, and for the probe, counts from it."""
    released: dict[str, datetime] = {}
    """Time at which each copy was let go, by its pod's name: of those that run, or ran last.
    The copy's time limit counts from it."""
    stuck_since: datetime | None = None
    """Time since which none of the pods that were let go runs although some have not ended."""
    reached: tuple[str, ...] = ()
    """Addresses that the probe reached although the NetworkPolicy closes them, the first 20."""


class DryStartStatus(StatusModel):
    """The last dry start that ended, and the one that runs."""

    running: DryStartRunStatus | None = None
    """The dry start that runs."""
    count: int = 0
    """Number of dry starts that this migration has launched."""
    run_id: str = ""
    """Id of the last dry start that ended. The fields below describe it.
    The ConfigMap of this name holds what its copies showed."""
    digest: str = ""
    """Digest of its input: the brokers' pod templates with everything that they refer to."""
    generation: int = 0
    """Generation of the resource when it was launched."""
    finished_at: datetime | None = None
    """Time at which it ended."""
    problem: str = ""
    """Reason why its copies show nothing."""
    reached: tuple[str, ...] = ()
    """Addresses that the probe reached although the NetworkPolicy closes them, the first 20."""


class RetiredRun(StatusModel):
    """A run that is over and is being removed."""

    kind: RunKind
    """What the run was for."""
    run_id: str
    """Id of the run."""
    keep_report: bool
    """Whether its ConfigMap stays."""
    asked_at: datetime
    """Time of the last removal."""


class ImpactStatus(StatusModel):
    """Impact of the migration, as the operator measures it. It does not contain delays that clients observe."""

    controller_unavailable: tuple[ControllerUnavailability, ...] = ()
    """Longest time without an active controller, per phase and attempt."""
    forecast_takeover_milliseconds: int | None = None
    """Forecast of the time without a controller in the takeover, in milliseconds, from the last rehearsal.
    ``controllerUnavailable`` of phase TakingOver is the measured time."""
    restarts: tuple[RestartRecord, ...] = ()
    """The last 300 restarts, oldest first."""


class AddressCachesStatus(StatusModel):
    """How long the brokers' JVMs cache addresses, by the copy that does it longest; -1 where all do it for ever.

    Without a dry start it is what a JVM does by default, and what the operator sets.
    """

    template_seconds: int = 30
    """With the user's own pod template, in seconds."""
    operator_seconds: int = 1
    """In the modes to which the operator restarts brokers, in seconds.
    It sets ``sun.net.inetaddr.ttl``; ``networkaddress.cache.ttl`` of the image's ``java.security`` wins over that."""


class PlannedRoll(StatusModel):
    """One rolling restart of the brokers that is ahead."""

    mode: BrokerMode
    """Mode to which the brokers restart."""
    restarts: int
    """Number of brokers that restart."""
    steps: int
    """Number of batches: the brokers of one batch are down together."""
    largest: int
    """Number of brokers in the largest batch."""
    pause_seconds: int = 0
    """Longest pause after a step, in seconds, while somebody may cache the old addresses."""
    minutes: int
    """Expected time, in minutes."""
    limit: str = ""
    """What keeps the batches from being larger, empty if nothing does."""

    @property
    def sentence(self) -> str:
        """Return it as one sentence."""
        how = f"in {self.steps} steps, up to {self.largest} brokers down together"
        if self.largest <= 1:
            how = "one broker at a time"
        limit = f"; {self.limit}" if self.limit else ""
        pause = f" with pauses of {self.pause_seconds} s" if self.pause_seconds else ""
        return f"to mode {self.mode}: {self.restarts} restarts, {how}, about {self.minutes} min{pause}{limit}"


class RollPlanStatus(StatusModel):
    """The rolling restarts that are ahead, as preflight expects them."""

    rolls: tuple[PlannedRoll, ...] = ()
    """In their order."""
    seconds_per_restart: int = 0
    """Time that the plan allows for a broker to stop, start and catch up, in seconds."""
    measured: bool = False
    """Whether that time is the median of measured restarts of this cluster, and no assumption."""

    @property
    def lines(self) -> tuple[str, ...]:
        """Return a sentence for each rolling restart, and one about all of them."""
        if not self.rolls:
            return ("No broker restarts on the way to spec.target",)
        restarts, steps, minutes = (
            sum(numbers) for numbers in zip(*((r.restarts, r.steps, r.minutes) for r in self.rolls), strict=True)
        )
        basis = "as measured" if self.measured else "an assumption until restarts are measured"
        whole = (
            f"All: {restarts} restarts in {steps} steps, about {minutes} min, with {self.seconds_per_restart} s "
            f"for a restart ({basis}); verifications and soak times not included"
        )
        return (*(f"Rolling restart {roll.sentence}" for roll in self.rolls), whole)


class RollbackStatus(StatusModel):
    """The step of a rollback that returns control of the metadata from the KRaft controllers to a broker."""

    attempt: int
    """Attempt of the migration that was rolled back."""
    isolated_at: datetime | None = None
    """Time at which the KRaft controllers were asked to restart where no broker reaches them.
    No metadata change is accepted from about this time."""
    isolated_high_watermark: str = ""
    """High watermark of the metadata log after that restart.
    ZooKeeper must mirror up to it before the controllers stop."""
    isolation_given_up_at: datetime | None = None
    """Time at which isolated controllers were last returned to the brokers,
    because they did not mirror up to that high watermark in time."""
    isolations_given_up: int = 0
    """How often that has happened."""
    controllers_stopped_at: datetime | None = None
    """Time at which the KRaft controllers were asked to stop. The cluster has no controller from about this time."""
    high_watermark: str = ""
    """High watermark of the metadata log at that time."""
    mirrored_offset: str = ""
    """Offset up to which ZooKeeper mirrored the log at that time.
    The records after it are NoOpRecords, or the user accepted their loss."""
    controller_back_at: datetime | None = None
    """Time at which a broker was first observed to hold ``/controller``."""
    controller_unavailable_milliseconds: int | None = None
    """Time without a controller until then, in milliseconds, as the operator observed it.
    It includes the time of isolated controllers."""
    claim_removed_at: datetime | None = None
    """Time at which the removal of ``/controller`` and ``/migration`` was recorded.
    From then on their absence is the rollback's own work."""


class ChangedField(StatusModel):
    """A field of another owner's object that the operator set, and its earlier value."""

    object: str
    """Object whose field was changed."""
    field: str
    """Path of the field."""
    before: str
    """The earlier value, or the object that keeps it if it may be secret."""
    owner: str
    """Field manager that owned the field before."""


UPDATE_STRATEGY: Final = "updateStrategy"
"""Field of a StatefulSet whose former value `ChangedField` keeps."""


class OriginalStatus(StatusModel):
    """The record of the original state of a StatefulSet, which two Secrets keep."""

    stateful_set: str
    """Name of the StatefulSet."""
    digest: str
    """SHA-256 of the record, which is salted. A Secret with another one is not used."""


class MetadataVersionState(StrEnum):
    """State of the change of metadata.version that ``spec.metadataVersion`` requests."""

    OBSERVED = "Observed"
    """``spec.metadataVersion`` is not set. The operator changes nothing."""
    WAITING = "Waiting"
    """The change waits for the end of the migration, for a node, or for the cluster's health."""
    REFUSED = "Refused"
    """A node does not support the level, Kafka refuses it, or a pod template is too old. Nothing was changed."""
    VALIDATING = "Validating"
    """The operator asks the active controller to validate the change without making it."""
    VERIFYING_BEFORE = "VerifyingBefore"
    """A verification runs before the change."""
    CHANGING = "Changing"
    """The change is recorded. The operator sends it until Kafka has committed it and every node has applied it."""
    VERIFYING_AFTER = "VerifyingAfter"
    """A verification runs after the change."""
    IN_FORCE = "InForce"
    """Every node has applied the requested level."""


class NodeLevels(StatusModel):
    """Levels of metadata.version that one node reports."""

    id: int
    """Node id."""
    role: str
    """``broker`` or ``controller``."""
    finalized: str
    """Finalized level in the node's own metadata image. Empty before the first image."""
    lowest: str
    """Lowest level that the node supports."""
    highest: str
    """Highest level that the node supports."""


class MetadataVersionChange(StatusModel):
    """One change of metadata.version. The operator records it before it sends the request to Kafka."""

    number: int
    """Number of the change."""
    from_level: int
    """Level before."""
    to_level: int
    """Level after."""
    upgrade: Upgrade
    """Type of the change, as in Kafka's UpdateFeatures request."""
    after_offset: str
    """High watermark of the metadata log when the change was recorded."""
    started_at: datetime
    """Time at which the change was recorded."""
    applied_at: datetime | None = None
    """Time at which every broker and controller was observed to have applied it."""
    finished_at: datetime | None = None
    """Time at which the verification after the change passed."""
    counts: str = ""
    """Comparison of the numbers of entities before and after the change."""


class MetadataVersionStatus(StatusModel):
    """metadata.version (KIP-778) of the cluster, and the requested level."""

    state: MetadataVersionState = MetadataVersionState.OBSERVED
    """State of the change."""
    current: str | None = None
    """Level that the active controller has finalized."""
    target: str | None = None
    """Level that spec.metadataVersion names."""
    target_level: int | None = None
    """Number of that level."""
    upgrade: Upgrade | None = None
    """Type of the change that the active controller is asked to validate."""
    message: str = ""
    """Condition for which the change waits, or the reason of the refusal."""
    nodes: tuple[NodeLevels, ...] = ()
    """Levels of every broker and controller."""
    changes: int = 0
    """Number of changes that this migration has begun."""
    change: MetadataVersionChange | None = None
    """The last change."""

    @property
    def validates(self) -> bool:
        """Whether the answer of the active controller to a validation is needed."""
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
    """Whether the value must be one entry of a comma-separated list. Other entries are allowed."""

    @property
    def words(self) -> str:
        """The variable, formatted for a message."""
        return f"{self.name} with the entry {self.value}" if self.entry else f"{self.name}={self.value}"


class ReferringVariable(StatusModel):
    """A reference to variables or a mount, in a variable that KRaft needs or in the operator's properties file."""

    name: str
    """Name of the variable; empty for the operator's properties file."""
    value: str
    """The reference as it stands in the value. With a value without it nothing follows from it."""
    refers_to: tuple[str, ...]
    """Variables that it refers to. Those in ``$(…)`` must stand before this one, since the kubelet expands them."""
    paths: tuple[str, ...] = ()
    """Files and directories that it refers to (``${file:PATH:KEY}``). The container must mount them."""


class GuardedStatefulSet(StatusModel):
    """Settings that the pod template of a StatefulSet must have so that its brokers run KRaft.

    The admission policy reads this.
    """

    name: str
    """Name of the StatefulSet."""
    container: str
    """Name of Kafka's container."""
    variables: tuple[RequiredVariable, ...] = ()
    """Required environment variables: those of ``spec.brokers.upgrade.env``,
    and with ``configStyle: Env`` those that make a KRaft broker."""
    present_variables: tuple[str, ...] = ()
    """Variables that must be there with whatever value, with ``configStyle: Env``:
    the brokers' login to the controllers."""
    empty_variables: tuple[str, ...] = ()
    """Variables that must be absent or empty, with ``configStyle: Env``: the image does not start on KRaft with
    them."""
    protocol_variable: str = ""
    """Variable of ``inter.broker.protocol.version``, with ``configStyle: Env``.
    It may be absent; no KRaft broker starts with a version below 3.0."""
    references: tuple[ReferringVariable, ...] = ()
    """References in the values from the migration and in the login to the controllers,
    and in those of the variables that they refer to in turn."""
    issued_secret: str = ""
    """Secret that a volume of the pod must mount: the brokers' certificate for the controllers' listener,
    where the operator brought it."""
    volume: str = ""
    """Volume with the properties file, with ``configStyle: Properties``."""
    config_map: str = ""
    """ConfigMap that the volume must mount, with ``configStyle: Properties``.
    A template with ``kraftbridge.dev/broker-mode: KRaft`` may mount another one."""
    secret: str = ""
    """Secret that the volume must mount in place of a ConfigMap, if the brokers' own properties file is in a Secret."""
    image: str = ""
    """Image to which the migration brought the brokers; unset where they kept their own.
    An image whose name states an older release does not start on KRaft. The operator tells it; the policy does not."""

    @property
    def mounted(self) -> str:
        """Kind and name of the object that the volume must mount, for a message."""
        return f"Secret {self.secret}" if self.secret else f"ConfigMap {self.config_map}"


class HandOverStatus(StatusModel):
    """Hand-over of the brokers' configuration to its owners after ``Completed``."""

    guarded: bool
    """Whether the admission policy refuses a pod template that lacks a setting that KRaft needs."""
    stateful_sets: tuple[GuardedStatefulSet, ...] = ()
    """Required settings of each StatefulSet of brokers."""
    missing: tuple[str, ...] = ()
    """Settings that the pod templates lack now. A broker that restarts without them does not run KRaft."""
    ended_at: datetime | None = None
    """Time at which the guard ended."""
    cleaned_at: datetime | None = None
    """Time at which every controller ran without the operator's image, and the final manifest showed it."""


class ChannelStatus(StatusModel):
    """Channel by which the migration changes the brokers' settings.

    With ``configStyle: Auto`` the dry start of preflight finds it.
    """

    config_style: ConfigStyle
    """``Env`` or ``Properties``."""
    env_prefix: Annotated[str, Field(max_length=64)] = ""
    """Prefix of the environment variables, with ``Env``."""
    volume: Annotated[str, Field(max_length=4096)] = ""
    """Volume that mounts the properties file, with ``Properties``."""
    key: Annotated[str, Field(max_length=4096)] = ""
    """Key of the properties file, with ``Properties``."""
    proven_at: datetime | None = None
    """Time at which the dry start showed that the channel reaches the brokers.
    Unset while it is only tried, and where no dry start ran."""
    proven_by: str = ""
    """Copies of brokers' pods that showed it."""
    fingerprint: str = ""
    """Fingerprint of the pod templates, and of what they refer to, with which preflight judged the channel.
    Before the first broker restarts, a change of it is judged anew."""

    @classmethod
    def of(cls, brokers: BrokersSpec) -> ChannelStatus:
        """Return the channel of ``spec.brokers``, unproven."""
        if (source := brokers.file) is not None:
            return cls(config_style=ConfigStyle.PROPERTIES, volume=source.volume, key=source.key)
        return cls(config_style=ConfigStyle.ENV, env_prefix=brokers.env_prefix)

    @override
    def __str__(self) -> str:
        """Return the channel as a user writes it in ``spec.brokers``."""
        if self.config_style is ConfigStyle.PROPERTIES:
            return f"configStyle: {self.config_style}, properties: {{volume: {self.volume}, key: {self.key}}}"
        return f"configStyle: {self.config_style}, envPrefix: {self.env_prefix}"


class TemplateChange(StatusModel):
    """A change of a template, or of what it refers to, that no dry start has looked at yet."""

    digest: str
    """Of the changed template."""
    what: tuple[str, ...] = ()
    """Parts that changed, at most 20."""
    seen_at: datetime
    """When it was first seen."""


class TemplateStatus(StatusModel):
    """The pod template of a StatefulSet of brokers without the overlay, as a dry start has looked at it."""

    stateful_set: str
    """Name of the StatefulSet."""
    digest: str
    """Of the template, and of the ConfigMaps and Secrets that it refers to. No broker restarts with another one."""
    parts: dict[str, str] = {}
    """Digest of each part of the template and of each ConfigMap."""
    secrets: dict[str, str] = {}
    """``resourceVersion`` of each Secret."""
    change: TemplateChange | None = None
    """Unset while the template is the one that a dry start has looked at."""


class RecordedStatefulSet(StatusModel):
    """A StatefulSet of brokers, as the migration found it."""

    name: str
    """Name of the StatefulSet."""
    uid: str
    """UID of the StatefulSet."""
    selector: str = ""
    """Its label selector. A StatefulSet of another name with the same selector may be the renamed one."""
    chart: dict[str, str] = {}
    """Its labels that tell the chart and the version of what it runs."""


class RecordedObjects(StatusModel):
    """What the migration is about, by UID. Preflight and RolledBack record it anew, and no other phase does."""

    migration: str
    """UID of the KafkaMigration itself."""
    cluster_id: str = ""
    """Id of the Kafka cluster in ZooKeeper, when it was last read."""
    stateful_sets: tuple[RecordedStatefulSet, ...] = ()
    """StatefulSets of brokers."""
    claims: dict[str, str] = {}
    """UID of each PersistentVolumeClaim that the brokers' pods mount, by name."""
    controllers: str = ""
    """UID of the controllers' StatefulSet. Unset before it exists, and while the operator creates it anew."""


class ZooKeeperContradiction(StatusModel):
    """ZooKeeper shows less than an earlier reading of the same attempt."""

    id: str
    """Id of the contradiction. ``spec.verification.acceptedRewrite`` names it."""
    what: str
    """What ZooKeeper lacks, or shows in an older state."""
    rewritable: bool = False
    """Whether a controller failover can write ZooKeeper anew:
    it is the same cluster's, and its ``/migration`` is that of this attempt."""
    seen_at: datetime
    """Time at which it was first read."""
    confirmed_at: datetime | None = None
    """Time at which a second reading showed it, too."""
    rewritten_at: datetime | None = None
    """Time at which the failover was recorded that the user asked for."""


class ZooKeeperHistory(StatusModel):
    """The newest state of ZooKeeper that this attempt has read.

    A ZooKeeper that shows less does not mirror the metadata log.
    """

    attempt: int
    """Attempt of the migration."""
    cluster_id: str = ""
    """Cluster id in ``/cluster/id``."""
    migration_czxid: str = ""
    """Transaction that created ``/migration``. Empty before it exists."""
    migration_offset: str = "-1"
    """Offset of the metadata log in ``/migration``. -1 before the copy is complete."""
    kraft_epoch: int = -1
    """Epoch of the KRaft controller in ``/migration``."""
    claim_epoch: int = -1
    """Epoch with which a KRaft controller held ``/controller``. -1 before the first claim."""
    controller_epoch: int = -1
    """Value of ``/controller_epoch``."""
    zxid: str = "0"
    """Newest transaction of ZooKeeper."""
    seen_at: datetime
    """Time of this reading."""
    contradiction: ZooKeeperContradiction | None = None
    """The contradiction that the last readings show, or that no verification has settled yet."""

    @property
    def copied(self) -> bool:
        """Whether the copy to KRaft was complete: from then on the metadata log is the truth."""
        return int(self.migration_offset) >= 0


class MigrationStatus(StatusModel):
    """Observed state of the migration."""

    phase: Phase = Phase.PREFLIGHT
    """Present phase."""
    target: Target | None = None
    """Target that the operator works towards."""
    message: str = ""
    """Present wait, for people: its subject first, then the action that ends it."""
    observed_generation: int = 0
    """Generation of the resource that this status describes."""
    conditions: tuple[Condition, ...] = ()
    """Conditions of the migration. Programs should read these and not ``message``."""
    attempt: int = 1
    """Number of the attempt. A migration after a rollback is the next attempt."""
    cluster_id: str | None = None
    """Id of the Kafka cluster."""
    cluster_domain: str | None = None
    """DNS domain of the Kubernetes cluster in the controllers' host names, which does not change after Preflight.
    Unset by an earlier release of the operator: ``cluster.local``."""
    brokers: BrokersStatus = BrokersStatus()
    broker_ids: dict[str, int] = {}
    """Broker ids by name of the pod, as ZooKeeper held them before the first change."""
    channel: ChannelStatus | None = None
    broker_upgrade: BrokerUpgradeStatus | None = None
    broker_settings: dict[str, str] = {}
    """Settings that the controllers take over from the brokers, with the values of the running brokers.
    They are taken in preflight, and anew before each forward step."""
    nodes: tuple[NodeStatus, ...] = ()
    """Brokers and controllers."""
    controllers: ControllersStatus | None = None
    listener_certificates: ListenerCertificatesStatus | None = None
    presented: tuple[PresentedStatus, ...] = ()
    """The certificate that each running controller presents."""
    quorum_restart: QuorumRestart | None = None
    """The last restart of all controllers because their certificate had ended."""
    quorum: QuorumStatus | None = None
    migration_offset: MigrationOffset | None = None
    canary: CanaryStatus | None = None
    operation: Operation | None = None
    batch: BatchStatus | None = None
    """The last batch of several brokers."""
    broker_record: BrokerRecordStatus | None = None
    broker_comparison: BrokerComparison | None = None
    broker_undo: BrokerUndo | None = None
    """Return of a broker from KRaft mode to migration mode,
    because its start in KRaft mode destroys records or cuts clients off."""
    killed_broker: KilledBroker | None = None
    """The broker that had to be killed last when it was restarted."""
    sights: tuple[PodSight, ...] = ()
    """Pods of brokers and controllers, as first seen."""
    watched_start: WatchedStart | None = None
    """Unset while every broker that runs is back."""
    given_up: Operation | None = None
    """Restart of a broker that a rollback does not wait for any more, because it is past its deadline.
    Unset once the broker is back."""
    hold_until: datetime | None = None
    """Time until which the next restart is held."""
    hold_reason: str = ""
    """Reason for holding the next restart."""
    verifications: tuple[VerificationStatus, ...] = ()
    """Verification runs, newest last. ``spec.verification.keepRuns`` limits their number."""
    verification_count: int = 0
    """Number of runs that this migration has launched."""
    rehearsal: RehearsalStatus | None = None
    dry_start: DryStartStatus | None = None
    address_caches: AddressCachesStatus = AddressCachesStatus()
    leaders_renewed_at: datetime | None = None
    """Time at which the operator last gave leaders a new epoch: their partitions did not get their full ISR back."""
    roll_plan: RollPlanStatus | None = None
    retired_runs: tuple[RetiredRun, ...] = ()
    """Verifications, rehearsals and dry starts of which something may be left. Their removal is repeated until then."""
    impact: ImpactStatus = ImpactStatus()
    rollback: RollbackStatus | None = None
    """Measurements of the last rollback."""
    healing: HealingStatus | None = None
    """The healing in progress, or the one that was given up."""
    healings: tuple[HealingStatus, ...] = ()
    """Healings that succeeded, newest last."""
    findings: tuple[FindingStatus, ...] = ()
    """Findings of preflight, blocking ones first, at most 100.
    ``findingsReport`` names the ConfigMap with all of them."""
    findings_report: FindingsReport | None = None
    """ConfigMap with all findings. Unset while ``findings`` holds all of them."""
    kafka4: Kafka4Status | None = None
    """Readiness for Kafka 4, from AwaitingFinalization on. Unset before."""
    kafka4_leg: Kafka4Leg | None = None
    changed_fields: tuple[ChangedField, ...] = ()
    """Fields of other owners' objects that the migration changed."""
    originals: tuple[OriginalStatus, ...] = ()
    """Records of the original state of the StatefulSets of brokers."""
    templates: tuple[TemplateStatus, ...] = ()
    """Pod templates of the brokers, from the first restart on."""
    history: tuple[PhaseRecord, ...] = ()
    """Visits to phases, oldest first."""
    waiting: Waiting | None = None
    progress_at: datetime | None = None
    """Time of the last progress. Deadlines count from it."""
    degraded_since: datetime | None = None
    """Time since which something that must hold at the reached target does not. Unset while all of it holds."""
    controller_agreed_since: datetime | None = None
    """Time since which every broker has named the same broker as controller, in phase RollingBack."""
    metadata_version: MetadataVersionStatus | None = None
    given_back_at: datetime | None = None
    """Time at which the last lock on a StatefulSet was released, in phase Completed."""
    hand_over: HandOverStatus | None = None
    final_manifest: str = ""
    """Name of the ConfigMap with the manifests that the user's next release should contain."""
    zookeeper_history: ZooKeeperHistory | None = None
    objects: RecordedObjects | None = None
    """UIDs of the objects that the migration is about. While one of them has another UID, no step is taken."""
    kept_copy: KeptCopy | None = None
    """The newest copy of the metadata log that the operator keeps."""
    keeping: KeepingStatus | None = None
    """The copy that is being made, or that was given up."""
    lost_quorum: LostQuorum | None = None
    """Set while a majority of the controllers has lost its volumes."""
    restoration: Restoration | None = None
    """The last restoration of the controllers from a kept copy."""

    @property
    def changes_brokers(self) -> bool:
        """Whether StatefulSets of brokers may differ from what their owner wrote."""
        upgraded = self.broker_upgrade is not None and self.broker_upgrade.needed
        return self.phase.row.changes_brokers or (upgraded and self.phase is Phase.PROVISIONING_QUORUM)

    def has_changed(self, stateful_set: str) -> bool:
        """Return whether this attempt has overlaid the template of a StatefulSet."""
        return any(f.object == f"StatefulSet/{stateful_set}" for f in self.changed_fields)

    def former_strategy(self, stateful_set: str) -> str:
        """Return the update strategy that a StatefulSet had before; Kubernetes' default if it is not on record."""
        fields = {(f.object, f.field): f.before for f in self.changed_fields}
        return fields.get((f"StatefulSet/{stateful_set}", UPDATE_STRATEGY)) or "RollingUpdate"

    @property
    def followed_run(self) -> VerificationStatus | None:
        """The verification that is looked after.

        Of those that have not ended, a released one, then the newest; else the newest of all.
        """
        unfinished = [v for v in reversed(self.verifications) if v.finished_at is None]
        released = (v for v in unfinished if v.released_at is not None)
        return next(released, next(iter(unfinished or reversed(self.verifications)), None))


def with_channel(spec: MigrationSpec, status: MigrationStatus) -> MigrationSpec:
    """Return the spec with the recorded channel in place of ``configStyle: Auto``.

    Without a recorded channel it is what spec says beside ``Auto``:
    the properties file, or variables with ``envPrefix``.
    Nothing is changed with that: Preflight waits for a proven channel,
    and later phases refuse to go on without the recorded one.
    """
    brokers = spec.brokers
    known = status.channel
    if brokers.config_style is not ConfigStyle.AUTO:
        return spec
    if known is None:
        style = ConfigStyle.ENV if brokers.properties is None else ConfigStyle.PROPERTIES
        changes: dict[str, object] = {"config_style": style}
    elif known.config_style is ConfigStyle.PROPERTIES:
        source = brokers.properties
        if source is None or (source.volume, source.key) != (known.volume, known.key):
            source = PropertiesSource(volume=known.volume, key=known.key)
        changes = {"config_style": ConfigStyle.PROPERTIES, "properties": source}
    else:
        changes = {"config_style": ConfigStyle.ENV, "env_prefix": known.env_prefix}
    return spec.model_copy(update={"brokers": brokers.model_copy(update=changes)})


def chooses_channel(spec: MigrationSpec, status: MigrationStatus) -> bool:
    """Return whether the channel may still be chosen: the user leaves it open, and nothing was changed with it."""
    return spec.brokers.config_style is ConfigStyle.AUTO and status.phase is Phase.PREFLIGHT


def rendered_spec(spec: MigrationSpec, status: MigrationStatus) -> MigrationSpec:
    """Return the spec with the ``controllers`` and ``pods`` from which the controllers' objects are rendered."""
    if status.controllers is None or status.controllers.rendered is None:
        return spec.model_copy(update={"controllers": tuned_controllers(spec, status)})
    rendered = status.controllers.rendered
    return spec.model_copy(update={"controllers": rendered, "pods": rendered.pods})


def tuned_controllers(spec: MigrationSpec, status: MigrationStatus) -> ControllersSpec:
    """Return ``spec.controllers`` with the image that the controllers shall run now.

    Where the user has set no heap, it is the one that the rehearsals called for.
    """
    controllers = spec.controllers
    if image := kafka4_controllers_image(status):
        controllers = controllers.model_copy(update={"image": image})
    if controllers.heap_options is not None:
        return controllers
    measured = status.rehearsal.controller_heap_bytes if status.rehearsal is not None else None
    return controllers.model_copy(update={"heap_options": heap_options(measured)})


def kafka4_controllers_image(status: MigrationStatus) -> str:
    """Return the image of Kafka 4 that the controllers shall run, ``""`` while that is the one of ``spec.controllers``.

    On the way back they keep it until every broker runs the release before again: a broker registers only with a
    controller that supports its features (KIP-584).
    """
    leg = status.kafka4_leg
    if leg is None or leg.began_at is None or not status.phase.row.on_kafka4 or leg.brokers_back_at is not None:
        return ""
    return leg.controllers_image


def keyed_name(name: str, uid: str, attempt: int) -> str:
    """Return a name that is unique to one resource and attempt; a new resource of the same name has another UID."""
    keyed = f"{name}-{uid[:UID_LENGTH]}"
    return keyed if attempt == 1 else f"{keyed}-{attempt}"


def controllers_name(migration: str, uid: str, attempt: int) -> str:
    """Return the name of the controllers of an attempt.

    The name contains the migration's UID and the attempt.
    The controllers therefore never mount volumes of an earlier attempt or of an earlier resource of the same name.
    """
    return keyed_name(f"{migration}-kraft", uid, attempt)


def controllers_format(controllers: str) -> str:
    """Return the name of the ConfigMap with the word that lets controllers format blank volumes."""
    return f"{controllers}-format"


def kept_copy_secrets(migration: str, uid: str, attempt: int) -> tuple[str, str]:
    """Return the names of the two places for a copy of the metadata log; the next goes to where the last is not."""
    return keyed_name(f"{migration}-kept-a", uid, attempt), keyed_name(f"{migration}-kept-b", uid, attempt)


def before_secrets(migration: str, uid: str, attempt: int) -> tuple[str, str]:
    """Return the names of the two Secrets that record the original state of the brokers' StatefulSets in an attempt."""
    first = keyed_name(f"{migration}-before", uid, attempt)
    second = keyed_name(f"{migration}-before-copy", uid, attempt)
    return first, second


def broker_record_name(migration: str, uid: str, node_id: int) -> str:
    """Return the name of the ConfigMap with the record of a broker. It is deleted with the migration."""
    return f"{migration}-broker-{node_id}-{uid[:UID_LENGTH]}"


def healing_archive(run_id: str) -> str:
    """Return the name of the Secret with the data that ZooKeeper held for the differences of a run."""
    return f"{run_id}-archive"


MAXIMUM_REASON = 1024
"""Maximum length of a reason in status, in characters."""


def finding(code: Code, obj: str, /, **details: object) -> FindingStatus:
    """Return a finding; ``details`` fill the placeholders in the catalogue's texts of this code."""
    reason, fix = code.describe(**details)
    reason = reason[:MAXIMUM_REASON]
    return FindingStatus(code=code, severity=code.severity, object=visible(obj), reason=reason, fix=fix)


def some(names: Iterable[object], most: int = 5) -> str:
    """Return the first ``most`` names in alphabetical order and the number of the others."""
    return first(sorted(str(n) for n in names), most)


def first(names: Iterable[object], most: int = 5, separator: str = ", ") -> str:
    """Return the first ``most`` names in their own order and the number of the others."""
    listed = [str(n) for n in names]
    text = separator.join(listed[:most])
    if len(listed) > most:
        text += f" and {len(listed) - most} more"
    return text
