"""The parts of the observation that a step needs: those of its phase's row whose source exists. Pure.

The observer and the simulated cluster read nothing else.
What they do not read is `NOT_NEEDED`, and a gate that asks for it stays closed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

from kraftbridge.models.conditions import ConditionType, holds
from kraftbridge.models.phase import Part, Phase
from kraftbridge.models.status import MigrationStatus, OperationKind
from kraftbridge.phases import dry_starting, shared_settings, topic_ids
from kraftbridge.phases.gates import is_slow
from kraftbridge.phases.nodes.comparing import comparison_is_due
from kraftbridge.phases.rollback import without_controller


def needs(status: MigrationStatus, now: datetime) -> frozenset[Part]:
    """Return the parts to observe for a step in this status."""
    wanted = status.phase.row.needs | _of_runs(status)
    return wanted - {part for part in wanted & _EXISTS.keys() if not _EXISTS[part](status, now)}


def _restarts_broker(status: MigrationStatus) -> bool:
    return status.operation is not None and status.operation.kind is OperationKind.RESTART_BROKER


def _of_runs(status: MigrationStatus) -> frozenset[Part]:
    """Return the part that shows runs which are being removed, in whatever phase."""
    return frozenset({Part.RUNS_LEFT} if status.retired_runs else ())


def _answering(status: MigrationStatus, _now: datetime) -> bool:
    # Stopped controllers do not answer; asking them would prolong the time without a controller.
    return status.controllers is not None and not without_controller(status)


def _restarting(status: MigrationStatus, _now: datetime) -> bool:
    changing = status.controllers is not None and status.controllers.change is not None
    return not status.phase.row.gives_back or status.given_back_at is None or changing


def _rolling(status: MigrationStatus, _now: datetime) -> bool:
    """Return whether brokers roll in this phase, or their rolling restarts are planned."""
    return status.phase is Phase.PREFLIGHT or (status.phase.row.restarts_nodes and status.phase.reversible)


def _canary(status: MigrationStatus, _now: datetime) -> bool:
    canary = status.canary
    return canary is not None and canary.removed_at is None and not without_controller(status)


def _archive(status: MigrationStatus, _now: datetime) -> bool:
    healing = status.healing
    return healing is not None and bool(healing.archive) and healing.archived_at is None


def _paths(status: MigrationStatus, _now: datetime) -> bool:
    operation = status.operation
    is_away = operation is not None and (operation.kill_due_at is not None or operation.last_pod_ready_at is not None)
    joins = status.batch is not None and bool(status.batch.waiting)  # another broker stops meanwhile
    if is_away and not joins:
        return False
    if status.canary is not None:
        return False  # the brokers have shown that the controllers reach them
    return status.phase is not Phase.PROVISIONING_QUORUM or holds(status.conditions, ConditionType.QUORUM_READY)


def tells_kafka4(status: MigrationStatus) -> bool:
    """Return whether the present settings are judged for Kafka 4: until the owners have the brokers in their hands."""
    if Part.KAFKA4 not in status.phase.row.needs or status.operation is not None:
        return False
    return status.hand_over is None or status.hand_over.ended_at is None


def _validates(status: MigrationStatus, _now: datetime) -> bool:
    """Return whether the active controller is asked to validate a feature."""
    if status.phase.row.on_kafka4:
        return status.kafka4_leg is not None and status.kafka4_leg.asks is not None
    return status.metadata_version is not None and status.metadata_version.validates


_EXISTS: Final[Mapping[Part, Callable[[MigrationStatus, datetime], bool]]] = {
    Part.CONTROLLERS: lambda status, _: status.controllers is not None,
    Part.CONTROLLER_FEATURES: lambda status, _: status.controllers is not None,
    Part.QUORUM: _answering,
    Part.METRICS: _answering,
    Part.PRESENTED: _answering,
    Part.REGISTERED_CONTROLLERS: _answering,
    Part.CLUSTER_BY_BROKER: _restarting,
    Part.REDUNDANCY: _restarting,
    Part.ASSIGNMENTS: _rolling,
    Part.CANARY_BY_BROKER: _canary,
    Part.SURVEY: lambda status, _: status.phase is Phase.PREFLIGHT or shared_settings.are_due(status),
    Part.DRY_START: lambda status, _: dry_starting.is_awaited(status),
    Part.RUN: lambda status, _: bool(status.verifications),
    Part.CLUES: is_slow,
    Part.ARCHIVE: _archive,
    Part.ADMISSION_POLICY: lambda status, _: status.hand_over is None or status.hand_over.guarded,
    Part.BROKER_RECORD: lambda status, _: status.broker_record is not None,
    Part.KEPT_COPY: lambda status, _: status.keeping is not None and not status.keeping.given_up,
    Part.BEHIND: lambda status, _: status.lost_quorum is not None and status.phase.row.migrates,
    Part.PATHS: _paths,
    Part.TOPIC_IDS: lambda status, _: topic_ids.are_followed(status) and not _restarts_broker(status),
    Part.START_LOG: lambda status, _: status.watched_start is not None or _restarts_broker(status),
    Part.BROKER_NOW: comparison_is_due,
    Part.KAFKA4: lambda status, _: tells_kafka4(status),
    Part.FEATURE_ANSWER: _validates,
}
"""Whether the source of a part exists. A part that is not here can always be asked for."""
