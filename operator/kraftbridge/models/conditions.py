"""Conditions of a KafkaMigration in ``metav1.Condition`` form, and how they change."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Literal

from kraftbridge.models.spec import Model
from kraftbridge.outside.visible import visible


class ConditionType(StrEnum):
    """Condition types. They are API. Every condition is present from the first reconciliation."""

    READY = "Ready"
    """The migration has reached ``spec.target``, and what must hold there holds."""
    RECONCILING = "Reconciling"
    """The operator is working towards the target (kstatus, abnormal-true)."""
    STALLED = "Stalled"
    """The migration makes no progress without help (kstatus, abnormal-true)."""
    PREFLIGHT_PASSED = "PreflightPassed"
    QUORUM_READY = "QuorumReady"
    BROKERS_IN_MIGRATION_MODE = "BrokersInMigrationMode"
    METADATA_MIGRATED = "MetadataMigrated"
    METADATA_CONSISTENT = "MetadataConsistent"
    """Verdict of the last verification before a gate."""
    BROKERS_ON_KRAFT = "BrokersOnKRaft"
    ROLLBACK_POSSIBLE = "RollbackPossible"
    METADATA_VERSION_READY = "MetadataVersionReady"
    """Every broker and controller has applied the requested metadata.version, and a verification passed after it.
    Unknown if none is requested."""

    HANDED_OVER = "HandedOver"
    """After ``Completed``: the owners of the brokers' StatefulSets render the settings that KRaft needs,
    or ``spec.handOver`` is ``Release``, or ``Clean`` and carried out."""
    CERTIFICATES_VALID = "CertificatesValid"
    """The certificates that controllers and brokers have loaded for the controllers' listener are valid for a while.
    Unknown if the listener has none."""
    READY_FOR_KAFKA4 = "ReadyForKafka4"
    """Kafka 4 refuses none of the settings of brokers, controllers and topics. ``status.kafka4`` lists what it ignores
    and changes. Unknown before AwaitingFinalization, while a broker does not tell, and with a class that is not
    Kafka's own. It stops nothing before ``target: Kafka4``."""
    KAFKA4_LEAVABLE = "Kafka4Leavable"
    """Brokers and controllers can go back from Kafka 4 to the release before, by ``spec.target: KRaft``.
    False before the first of them has restarted with Kafka 4."""


class Reason(StrEnum):
    """Reasons of conditions. They are API; messages are not."""

    INITIALIZING = "Initializing"
    TARGET_REACHED = "TargetReached"
    PROGRESSING = "Progressing"
    PAUSED = "Paused"
    AWAITING_USER = "AwaitingUser"
    WAITING = "Waiting"
    INVALID_SPEC = "InvalidSpec"
    NOT_UNDERSTOOD = "NotUnderstood"
    """A newer release wrote a value that this one does not know."""
    REFUSED = "Refused"
    STATUS_REFUSED = "StatusRefused"
    LOCKED = "LockedByAnother"
    FLAG_LOST = "ControllerWithoutMigrationFlag"
    STRANGER = "UnknownBroker"
    FOREIGN_CHANGE = "ForeignChange"
    DELETION_WAITS = "DeletionWaits"
    FINDINGS = "BlockingFindings"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    NOT_STARTED = "NotStarted"
    PASSED = "Passed"
    DONE = "Done"
    NOT_DONE = "NotDone"
    CONSISTENT = "Consistent"
    INCONSISTENT = "Inconsistent"
    INCONCLUSIVE = "Inconclusive"
    NOT_CHECKED = "NotChecked"
    MIRRORED = "ZooKeeperMirrorsTheLog"
    NOT_MIRRORED = "ZooKeeperNotMirrored"
    NOTHING_CHANGED = "NothingChanged"
    FINALIZED = "Finalized"
    ROLLED_BACK = "RolledBack"
    UNKNOWN = "NotObserved"
    NOT_ASKED = "NotAsked"
    IN_FORCE = "InForce"
    SOFTWARE_TOO_OLD = "SoftwareTooOld"
    HEALING = "Healing"
    GUARDED = "Guarded"
    NOT_GUARDED = "NotGuarded"
    TEMPLATE_NOT_KRAFT = "TemplateNotKRaft"
    RELEASED = "Released"
    CLEANED = "Cleaned"
    """Released, and the controllers run without the operator's image."""
    CONTROLLERS_CHANGE_FAILED = "ControllersChangeFailed"
    CONTRADICTS = "ZooKeeperContradicts"
    ORIGINALS_LOST = "OriginalsLost"
    QUORUM_LOST = "QuorumLost"
    IDENTITY_CHANGED = "IdentityChanged"
    """The resource, or an object that it is about, has another UID than the status records."""
    CERTIFICATE_ENDS = "CertificateEnds"
    """A process uses a certificate that has ended or ends soon."""
    SETTINGS_REFUSED = "SettingsRefused"
    """A node of Kafka 4 does not start with a setting, or ignores it."""
    CLIENTS_REFUSED = "ClientsRefused"
    """Kafka 4 refuses requests that clients send."""
    FEATURES_NOT_RAISED = "FeaturesNotRaised"
    """No feature of Kafka 4 was raised, and the release before can read what was written."""
    FEATURES_RAISED = "FeaturesRaised"
    """A feature of Kafka 4 was raised, or is being raised."""
    VOLUME_FORMATTED = "VolumeFormatted"
    """Kafka 4 has formatted a volume, which the release before may not read."""
    HANDED_OVER = "HandedOver"
    """The owners render the StatefulSets themselves by now."""
    DEGRADED = "Degraded"
    """The target was reached, and what must hold there does not."""


Status = Literal["True", "False", "Unknown"]


class Condition(Model):
    """One observation, as ``metav1.Condition``."""

    type: ConditionType
    """Type of the condition."""
    status: Status
    """True, False or Unknown."""
    reason: Reason
    """Reason of the status, in one word."""
    message: str = ""
    """Explanation for people."""
    observed_generation: int = 0
    """Generation of the resource that this condition describes."""
    last_transition_time: datetime
    """When the status last changed."""


def initial_conditions(now: datetime, generation: int) -> tuple[Condition, ...]:
    """Return every condition as ``Unknown``, for the first reconciliation."""
    return tuple(
        Condition(
            type=t,
            status="Unknown",
            reason=Reason.INITIALIZING,
            observed_generation=generation,
            last_transition_time=now,
        )
        for t in ConditionType
    )


def with_condition(
    conditions: tuple[Condition, ...],
    kind: ConditionType,
    status: Status,
    reason: Reason,
    message: str,
    *,
    now: datetime,
    generation: int,
) -> tuple[Condition, ...]:
    """Return ``conditions`` with one of them set; ``lastTransitionTime`` moves only with ``status``."""
    old = condition(conditions, kind)
    message = visible(message)[:1024]
    said = (status, reason, message, generation)
    if old is not None and (old.status, old.reason, old.message, old.observed_generation) == said:
        return conditions
    since = now
    if old is not None and old.status == status:
        since = old.last_transition_time
    new = Condition(
        type=kind,
        status=status,
        reason=reason,
        message=message,
        observed_generation=generation,
        last_transition_time=since,
    )
    if old is None:
        return (*conditions, new)
    return tuple(new if present.type is kind else present for present in conditions)


def holds(conditions: tuple[Condition, ...], kind: ConditionType) -> bool:
    """Return whether the condition of that type is ``True``."""
    found = condition(conditions, kind)
    return found is not None and found.status == "True"


def condition(conditions: tuple[Condition, ...], kind: ConditionType) -> Condition | None:
    """Return the condition of that type, if there is one."""
    for known in conditions:
        if known.type is kind:
            return known
    return None
