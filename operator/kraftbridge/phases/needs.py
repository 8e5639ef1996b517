"""The parts of the observation that each phase needs. The observer and the simulated cluster read this table. Pure.

The observer does not read a part that the phase does not name. Such a part is `NOT_NEEDED`, and a gate that asks for it stays closed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final

from kraftbridge.models.phase import Phase
from kraftbridge.models.status import MigrationStatus
from kraftbridge.phases import shared_settings
from kraftbridge.phases.gates import is_slow
from kraftbridge.phases.nodes.comparing import comparison_is_due
from kraftbridge.phases.rollback import without_controller


class Part(StrEnum):
    """A part of an `Observation`, named after its field."""

    STATEFUL_SETS = "stateful_sets"
    CONTROLLERS = "controllers"
    ZOOKEEPER = "zookeeper"
    QUORUM = "quorum"
    METRICS = "metrics"
    CLUSTER = "cluster"
    CLUSTER_BY_BROKER = "cluster_by_broker"
    REDUNDANCY = "redundancy"
    RUN = "run"
    RUNNER_AVAILABLE = "runner_available"
    CANARY_BY_BROKER = "canary_by_broker"
    CONTROLLER_BY_BROKER = "controller_by_broker"
    REGISTERED_CONTROLLERS = "registered_controllers"
    ADMISSION_POLICY = "admission_policy"
    CONTROLLER_FEATURES = "features"
    """Features of the controllers only."""
    NODE_FEATURES = "features of every node"
    """Features of brokers and controllers, in the same field."""
    FEATURE_ANSWER = "feature_answer"
    CLUES = "clues"
    SURVEY = "survey"
    DRY_START = "dry_start"
    REHEARSAL = "rehearsal"
    ARCHIVE = "archive"
    CONTROLLER_PROBE = "controller_probe"
    ISSUED = "issued"
    BROKER_RECORD = "broker_record"
    BROKER_NOW = "broker_now"
    START_LOG = "start_log"
    KEPT_COPY = "kept_copy"
    BEHIND = "behind"


_ALWAYS: Final = frozenset(
    {Part.STATEFUL_SETS, Part.CLUSTER, Part.RUN, Part.CLUES, Part.ISSUED, Part.START_LOG, Part.KEPT_COPY, Part.BEHIND}
)
_QUORUM: Final = frozenset({Part.CONTROLLERS, Part.QUORUM, Part.METRICS})
_RESTARTS: Final = frozenset({Part.CLUSTER_BY_BROKER, Part.REDUNDANCY})
"""Parts for the gate before each restart of a node."""
_BECOMING: Final = frozenset({Part.BROKER_RECORD, Part.BROKER_NOW})
"""Parts for the comparison of a broker before and after its restart."""
_MIGRATING: Final = (
    _ALWAYS | _QUORUM | _RESTARTS | _BECOMING | {Part.ZOOKEEPER, Part.CONTROLLER_FEATURES, Part.ARCHIVE, Part.SURVEY}
)

NEEDS: Final[Mapping[Phase, frozenset[Part]]] = {
    Phase.PREFLIGHT: _ALWAYS
    | {Part.ZOOKEEPER, Part.REDUNDANCY, Part.RUNNER_AVAILABLE, Part.ADMISSION_POLICY}
    | {Part.SURVEY, Part.DRY_START, Part.REHEARSAL},
    Phase.PROVISIONING_QUORUM: _ALWAYS
    | _QUORUM
    | {Part.ZOOKEEPER, Part.REGISTERED_CONTROLLERS, Part.CLUSTER_BY_BROKER, Part.REHEARSAL, Part.DRY_START}
    | {Part.SURVEY},
    Phase.TAKING_OVER: _MIGRATING | {Part.REGISTERED_CONTROLLERS, Part.CANARY_BY_BROKER, Part.CONTROLLER_PROBE},
    Phase.DUAL_WRITE: _MIGRATING | {Part.CANARY_BY_BROKER},
    Phase.ROLLING_BROKERS: _MIGRATING,
    Phase.AWAITING_FINALIZATION: _MIGRATING,
    Phase.FINALIZING: _ALWAYS | _QUORUM | _RESTARTS | _BECOMING | {Part.ZOOKEEPER, Part.CONTROLLER_PROBE},
    Phase.COMPLETED: _ALWAYS
    | _QUORUM
    | _RESTARTS
    | _BECOMING
    | {Part.NODE_FEATURES, Part.FEATURE_ANSWER, Part.ADMISSION_POLICY},
    Phase.ROLLING_BACK: _ALWAYS
    | _QUORUM
    | _RESTARTS
    | {Part.ZOOKEEPER, Part.ARCHIVE, Part.CANARY_BY_BROKER, Part.CONTROLLER_BY_BROKER, Part.CONTROLLER_PROBE}
    | {Part.REGISTERED_CONTROLLERS},
    Phase.ROLLED_BACK: _ALWAYS | _QUORUM | {Part.ZOOKEEPER},
}
"""Parts that a phase needs, if their source exists (`_exists`)."""


def needs(status: MigrationStatus, now: datetime) -> frozenset[Part]:
    """Return the parts to observe for a step in this status."""
    return frozenset(part for part in NEEDS[status.phase] if _exists(part, status, now))


def _exists(part: Part, status: MigrationStatus, now: datetime) -> bool:
    """Return whether the source of a part exists."""
    match part:
        case Part.CONTROLLERS | Part.CONTROLLER_FEATURES:
            return status.controllers is not None
        case Part.QUORUM | Part.METRICS | Part.REGISTERED_CONTROLLERS:
            # Stopped controllers do not answer; asking them would prolong the time without a controller.
            return status.controllers is not None and not without_controller(status)
        case Part.CLUSTER_BY_BROKER | Part.REDUNDANCY:
            changing = status.controllers is not None and status.controllers.change is not None
            return status.phase is not Phase.COMPLETED or status.given_back_at is None or changing
        case Part.CANARY_BY_BROKER:
            canary = status.canary
            return canary is not None and canary.removed_at is None and not without_controller(status)
        case Part.SURVEY:
            return status.phase is Phase.PREFLIGHT or shared_settings.are_due(status)
        case Part.RUN:
            return bool(status.verifications)
        case Part.CLUES:
            return is_slow(status, now)
        case Part.ARCHIVE:
            return status.healing is not None and bool(status.healing.archive) and status.healing.archived_at is None
        case Part.ADMISSION_POLICY:
            return status.hand_over is None or status.hand_over.guarded
        case Part.BROKER_RECORD:
            return status.broker_record is not None
        case Part.KEPT_COPY:
            return status.keeping is not None and not status.keeping.given_up
        case Part.BEHIND:
            return status.lost_quorum is not None
        case Part.START_LOG:
            return status.watched_start is not None
        case Part.BROKER_NOW:
            return comparison_is_due(status, now)
        case Part.FEATURE_ANSWER:
            return status.metadata_version is not None and status.metadata_version.validates
        case _:
            return True
