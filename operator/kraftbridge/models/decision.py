"""What a step decides: the new status, and acts for the hands to carry out. Every act may be repeated."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from kraftbridge.models.metadata_version import FEATURE, Upgrade
from kraftbridge.models.phase import BrokerMode, ControllerMode
from kraftbridge.models.runs import RunKind
from kraftbridge.models.status import FindingStatus, MigrationStatus


@dataclass(frozen=True, slots=True)
class LockStatefulSet:
    """Record the original state of the user's StatefulSet, lock it, and set ``OnDelete``."""

    name: str


@dataclass(frozen=True, slots=True)
class KeepOriginal:
    """Write the recorded original state of a StatefulSet into that of its two Secrets which lacks it."""

    stateful_set: str


@dataclass(frozen=True, slots=True)
class HoldLease:
    """Take or renew the Lease on a StatefulSet, as it was seen at ``resource_version`` (``""``: there was none)."""

    stateful_set: str
    resource_version: str


@dataclass(frozen=True, slots=True)
class ReleaseLease:
    """Release the Lease on a StatefulSet."""

    stateful_set: str


@dataclass(frozen=True, slots=True)
class ConfigureBrokers:
    """Overlay one StatefulSet's template for a mode and record its original values.

    Under OnDelete this restarts nothing.
    """

    stateful_set: str
    mode: BrokerMode


@dataclass(frozen=True, slots=True)
class ReleaseStatefulSet:
    """Restore the StatefulSet's update strategy and remove the lock."""

    name: str


@dataclass(frozen=True, slots=True)
class ApplyControllers:
    """Apply Service, ConfigMaps, Secrets, NetworkPolicy and StatefulSet of the controllers in a mode.

    The ConfigMap with the configuration is created only: its name says its content.
    """

    mode: ControllerMode
    format_allowed: bool
    only: tuple[str, ...] = ()
    """``Kind/name`` of the objects to apply; empty: all of them."""
    reformat: int | None = None
    """Node id of the one controller that may format a blank volume."""


@dataclass(frozen=True, slots=True)
class RemoveConfigurations:
    """Delete ConfigMaps with configurations of the controllers that neither template nor pod mounts any more.

    Each is deleted only with its UID, and if a fresh look finds it mounted nowhere.
    """

    stateful_set: str
    config_maps: tuple[tuple[str, str], ...]
    """Name and UID of each."""


@dataclass(frozen=True, slots=True)
class IssueListenerCertificates:
    """Create the Secrets of the controllers' listener that are missing, and renew the certificates that are due.

    Nothing else is overwritten.
    """


@dataclass(frozen=True, slots=True)
class RestartPod:
    """Evict exactly this pod (UID precondition), so that its successor takes the new template."""

    pod: str
    uid: str
    node_id: int
    grace_seconds: int
    ready: bool = True
    """Whether the pod serves.
    A pod that does not is deleted, since a PodDisruptionBudget could block its eviction for ever."""


@dataclass(frozen=True, slots=True)
class RecordBroker:
    """Record what a broker is before its restart: settings in force, listeners, offsets."""

    node_id: int
    pod_uid: str
    pod_ip: str
    config_map: str


@dataclass(frozen=True, slots=True)
class RenewLeaders:
    """Give leaders whose ISR lacks a replica a new epoch; leader and replicas stay."""

    most: int
    """Largest number of partitions."""


@dataclass(frozen=True, slots=True)
class ArchiveDifferences:
    """Archive ZooKeeper's values of a run's differences in a Secret, before a failover overwrites them."""

    run_id: str
    secret: str


@dataclass(frozen=True, slots=True)
class CreatePartitionStates:
    """Create the state of each partition that has none in ZooKeeper, without which every failover gets stuck."""


@dataclass(frozen=True, slots=True)
class WriteCanary:
    """Create the canary topic and set the canary quota at the active KRaft controller."""

    value: int
    replicas: int
    """Of the topic's partition."""


@dataclass(frozen=True, slots=True)
class RemoveCanary:
    """Remove the canary quota and topic."""

    value: int


@dataclass(frozen=True, slots=True)
class LaunchRun:
    """Make what the present step of a run needs: its ConfigMap, and its pods, which wait."""

    kind: RunKind
    run_id: str


@dataclass(frozen=True, slots=True)
class FenceRun:
    """Close the pods of a run by a NetworkPolicy, and let the probe try it from inside."""

    kind: RunKind
    run_id: str


@dataclass(frozen=True, slots=True)
class ReleaseRun:
    """Let the pods of a run that wait begin."""

    kind: RunKind
    run_id: str
    pods: tuple[str, ...] = ()
    """Names of those that may begin, of a run whose pods do not begin together."""


@dataclass(frozen=True, slots=True)
class CollectRun:
    """Take the result of the pods of a run into its ConfigMap."""

    kind: RunKind
    run_id: str


@dataclass(frozen=True, slots=True)
class RemoveRun:
    """Delete what runs of a run and, unless its report is to stay, its ConfigMap."""

    kind: RunKind
    run_id: str
    keep_report: bool


@dataclass(frozen=True, slots=True)
class RestoreStatefulSet:
    """Restore the original value and owner of every changed field of the user's StatefulSet.

    Under OnDelete this restarts nothing.
    """

    name: str


@dataclass(frozen=True, slots=True)
class KeepCopy:
    """Copy the metadata log of the voter that has most of it into Secrets."""

    run_id: str
    """Verification that passed before."""
    secret: str
    """Secret for the first part."""


AT_ONCE_SECONDS = 1
"""Grace period of controllers that all end together.
A leader that shuts down waits five seconds for a successor that does not exist (``KafkaRaftClient.shutdown``)."""


@dataclass(frozen=True, slots=True)
class StopControllers:
    """Delete the controllers' StatefulSet and its objects, and stop its pods at once.

    A leader's graceful shutdown would wait for a successor that never comes.
    The volumes stay as archives unless ``volumes`` is set.
    """

    name: str
    node_ids: tuple[int, ...] = ()
    volumes: bool = False


@dataclass(frozen=True, slots=True)
class RemoveControllerClaim:
    """Archive ``/controller`` and ``/migration``, correct ``/controller_epoch`` (KAFKA-20488), delete both znodes."""

    kraft_epoch: int


@dataclass(frozen=True, slots=True)
class PublishFindings:
    """Write the ConfigMap with every finding, since they are too many for status."""

    config_map: str
    findings: tuple[FindingStatus, ...]


@dataclass(frozen=True, slots=True)
class PublishFinalManifest:
    """Write the ConfigMap with the fields that the user's next release should contain."""


@dataclass(frozen=True, slots=True)
class UpdateMetadataVersion:
    """Change the finalized level of a feature; at its level already it is one more record and no change."""

    level: int
    upgrade: Upgrade
    feature: str = FEATURE


Action = (
    LockStatefulSet
    | KeepOriginal
    | HoldLease
    | ReleaseLease
    | ConfigureBrokers
    | ReleaseStatefulSet
    | ApplyControllers
    | RemoveConfigurations
    | IssueListenerCertificates
    | RestartPod
    | RecordBroker
    | RenewLeaders
    | ArchiveDifferences
    | CreatePartitionStates
    | WriteCanary
    | RemoveCanary
    | LaunchRun
    | FenceRun
    | ReleaseRun
    | CollectRun
    | RemoveRun
    | KeepCopy
    | RestoreStatefulSet
    | StopControllers
    | RemoveControllerClaim
    | PublishFinalManifest
    | PublishFindings
    | UpdateMetadataVersion
)


class EventType(StrEnum):
    """Types of Kubernetes events; Kubernetes knows only these two."""

    NORMAL = "Normal"
    WARNING = "Warning"


class EventReason(StrEnum):
    """Reasons of the operator's events; they are API."""

    PHASE_ENTERED = "PhaseEntered"
    BROKER_RESTARTING = "BrokerRestarting"
    BROKER_DIFFERS = "BrokerDiffers"
    BROKER_TAKEN_BACK = "BrokerTakenBack"
    LEADERS_RENEWED = "LeadersRenewed"
    TEMPLATE_LOOKED_AT = "TemplateLookedAt"
    CONTROLLER_RESTARTING = "ControllerRestarting"
    CONTROLLERS_CHANGING = "ControllersChanging"
    CONTROLLERS_CHANGED = "ControllersChanged"
    CONTROLLER_REPLACED = "ControllerReplaced"
    CERTIFICATES_RENEWED = "CertificatesRenewed"
    VERIFICATION_STARTED = "VerificationStarted"
    VERIFICATION_PASSED = "VerificationPassed"
    VERIFICATION_FAILED = "VerificationFailed"
    REHEARSAL_STARTED = "RehearsalStarted"
    REHEARSAL_ENDED = "RehearsalEnded"
    HEALING_STARTED = "HealingStarted"
    HEALED = "Healed"
    STALLED = "Stalled"
    REFUSED = "Refused"
    NOT_UNDERSTOOD = "NotUnderstood"
    """A newer release wrote fields that this one ignores."""
    ALARM = "Alarm"
    """Something happened that could end the migration unintentionally."""
    COMPLETED = "Completed"
    METADATA_VERSION_CHANGING = "MetadataVersionChanging"
    METADATA_VERSION_CHANGED = "MetadataVersionChanged"
    ROLLED_BACK = "RolledBack"


@dataclass(frozen=True, slots=True)
class Event:
    """An event to post. Events may be lost, so nothing depends on one."""

    type: EventType
    reason: EventReason
    message: str


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome of one step: the status to publish, the actions to execute then, and when to reconcile again."""

    status: MigrationStatus
    actions: tuple[Action, ...] = ()
    events: tuple[Event, ...] = ()
    requeue_after: timedelta = timedelta(seconds=0.5)
