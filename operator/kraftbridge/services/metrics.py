"""Prometheus metrics of the operator; names and labels are API (``docs/monitoring.md``)."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from prometheus_client import Counter, Gauge, Histogram, Info

from kraftbridge import __version__
from kraftbridge.models.phase import Phase
from kraftbridge.models.status import MigrationStatus

_MIGRATION: Final = ("namespace", "name")

BUILD: Final = Info("kraftbridge_build", "The operator's version")
BUILD.info({"version": __version__})

STEP_SECONDS = Histogram("kraftbridge_step_duration_seconds", "Duration of one step: observe, decide, publish, act")
STEP_LAG_SECONDS = Histogram("kraftbridge_step_lag_seconds", "Time from when a step is due until a worker takes it")
OBSERVATION_ERRORS = Counter(
    "kraftbridge_observation_errors_total", "Looks that failed, by what was looked at", ["source"]
)
ACTIONS = Counter("kraftbridge_actions_total", "Acts by kind and outcome", ["action", "outcome"])

PHASE = Gauge("kraftbridge_migration_phase", "1 for the phase that a migration is in", [*_MIGRATION, "phase"])
PHASE_ENTERED = Gauge(
    "kraftbridge_migration_phase_entered_timestamp_seconds", "When the present phase was entered", _MIGRATION
)
PROGRESS = Gauge("kraftbridge_migration_progress_timestamp_seconds", "When anything last moved", _MIGRATION)
CONDITION = Gauge("kraftbridge_condition", "1 for the status that a condition has", [*_MIGRATION, "type", "status"])
BROKERS = Gauge("kraftbridge_brokers", "Brokers of the migration", _MIGRATION)
BROKERS_IN_MODE = Gauge("kraftbridge_brokers_in_mode", "Brokers that have the mode of the present roll", _MIGRATION)
QUORUM_LAG = Gauge(
    "kraftbridge_quorum_lag_records", "Records by which the last voter is behind the metadata log's end", _MIGRATION
)
MIRROR_LAG = Gauge(
    "kraftbridge_mirror_lag_records",
    "Committed records of the metadata log behind the offset in /migration, NoOpRecords included",
    _MIGRATION,
)
CONTROLLER_UNAVAILABLE = Gauge(
    "kraftbridge_controller_unavailable_seconds",
    "Longest time without a controller that took a write, by phase of this attempt",
    [*_MIGRATION, "phase"],
)
DIFFERING = Gauge(
    "kraftbridge_verification_differing_entities",
    "Entities that differed in the last verification",
    [*_MIGRATION, "profile"],
)
VERIFICATION_FINISHED = Gauge(
    "kraftbridge_verification_finished_timestamp_seconds",
    "When the last verification with a verdict ended",
    [*_MIGRATION, "profile"],
)
VERIFICATION_SECONDS = Gauge(
    "kraftbridge_verification_duration_seconds",
    "Duration of the last verification with a verdict, from the operator's go",
    [*_MIGRATION, "profile"],
)

HAND_OVER_MISSING = Gauge(
    "kraftbridge_hand_over_missing_settings",
    "What the brokers' pod templates lack for KRaft, after the phase Completed; no sample once the hand-over has ended",
    _MIGRATION,
)

CERTIFICATE_EXPIRES = Gauge(
    "kraftbridge_certificate_expires_timestamp_seconds",
    "End of the first certificate that a running controller or broker uses at the controllers' listener",
    [*_MIGRATION, "role"],
)

_OF_A_MIGRATION: Final = (
    PHASE,
    PHASE_ENTERED,
    PROGRESS,
    CONDITION,
    BROKERS,
    BROKERS_IN_MODE,
    QUORUM_LAG,
    MIRROR_LAG,
    CONTROLLER_UNAVAILABLE,
    DIFFERING,
    VERIFICATION_FINISHED,
    VERIFICATION_SECONDS,
    HAND_OVER_MISSING,
    CERTIFICATE_EXPIRES,
)


def export(namespace: str, name: str, status: MigrationStatus) -> None:
    """Set the metrics of one migration from its status; an unknown value has no sample."""
    migration = (namespace, name)
    for phase in Phase:
        PHASE.labels(*migration, phase).set(phase is status.phase)
    for condition in status.conditions:
        for value in ("True", "False", "Unknown"):
            CONDITION.labels(*migration, condition.type, value).set(condition.status == value)
    BROKERS.labels(*migration).set(status.brokers.total)
    BROKERS_IN_MODE.labels(*migration).set(status.brokers.in_mode)
    _set(PHASE_ENTERED, migration, status.history[-1].entered_at.timestamp() if status.history else None)
    _set(PROGRESS, migration, None if status.progress_at is None else status.progress_at.timestamp())
    _set(QUORUM_LAG, migration, _quorum_lag(status))
    _set(MIRROR_LAG, migration, mirror_lag(status))
    _set(HAND_OVER_MISSING, migration, _settings_missing(status))
    CERTIFICATE_EXPIRES.remove_by_labels({"namespace": namespace, "name": name})
    for role, end in _certificate_ends(status).items():
        CERTIFICATE_EXPIRES.labels(*migration, role).set(end.timestamp())
    CONTROLLER_UNAVAILABLE.remove_by_labels({"namespace": namespace, "name": name})
    for outage in status.impact.controller_unavailable:
        if outage.attempt == status.attempt:
            CONTROLLER_UNAVAILABLE.labels(*migration, outage.phase).set(outage.milliseconds / 1000)
    if status.verifications:
        last = status.verifications[-1]
        DIFFERING.labels(*migration, last.profile).set(last.differing)
    for run in status.verifications:  # newest last
        if run.verdict is None or run.finished_at is None:
            continue
        VERIFICATION_FINISHED.labels(*migration, run.profile).set(run.finished_at.timestamp())
        if run.released_at is not None:
            seconds = (run.finished_at - run.released_at).total_seconds()
            VERIFICATION_SECONDS.labels(*migration, run.profile).set(seconds)


def forget(namespace: str, name: str) -> None:
    """Remove every sample of a deleted migration."""
    for gauge in _OF_A_MIGRATION:
        gauge.remove_by_labels({"namespace": namespace, "name": name})


def mirror_lag(status: MigrationStatus) -> int | None:
    """Return how many committed records ZooKeeper does not mirror, None while either offset is not known.

    ``/migration`` holds the offset of the last record that was mirrored
    (``ZkMigrationLeadershipState.kraftMetadataOffset``), the high watermark is the offset of the next one.
    Both were observed at about, not exactly, the same time: less than nothing counts as nothing.
    """
    if not status.phase.reversible or status.phase.row.is_open:
        return None  # nothing mirrors the log to ZooKeeper; the status keeps the last offset
    offset = status.migration_offset
    quorum = status.quorum
    if offset is None or quorum is None or quorum.high_watermark is None:
        return None
    return max(0, int(quorum.high_watermark) - 1 - int(offset.offset))


def _certificate_ends(status: MigrationStatus) -> dict[str, datetime]:
    """Return the end of the first certificate in use by role; of a Secret that no process has loaded nothing counts."""
    ends = {}
    if status.presented:
        ends["controller"] = min(record.expires_at for record in status.presented)
    issued = status.listener_certificates
    if issued is not None and issued.brokers_run_until is not None:
        ends["broker"] = issued.brokers_run_until
    return ends


def _quorum_lag(status: MigrationStatus) -> int | None:
    if status.phase in {Phase.COMPLETED, Phase.KAFKA4, Phase.ROLLED_BACK}:
        return None  # the operator does not ask the quorum any more; the status keeps the last answer
    quorum = status.quorum
    if quorum is None or quorum.max_lag_records is None:
        return None
    return int(quorum.max_lag_records)


def _settings_missing(status: MigrationStatus) -> int | None:
    if status.hand_over is None or status.hand_over.ended_at is not None:
        return None
    return len(status.hand_over.missing)


def _set(gauge: Gauge, migration: tuple[str, str], value: float | None) -> None:
    if value is None:
        gauge.remove_by_labels(dict(zip(_MIGRATION, migration, strict=True)))
    else:
        gauge.labels(*migration).set(value)
