"""The parts of the observation that a step needs: those of its phase's row whose source exists. Pure.

The observer and the simulated cluster read nothing else. Such a part is `NOT_NEEDED`, and a gate that asks for it stays closed.
"""

from __future__ import annotations

from datetime import datetime

from kraftbridge.models.phase import Part, Phase
from kraftbridge.models.status import MigrationStatus
from kraftbridge.phases import shared_settings
from kraftbridge.phases.gates import is_slow
from kraftbridge.phases.nodes.comparing import comparison_is_due
from kraftbridge.phases.rollback import without_controller


def needs(status: MigrationStatus, now: datetime) -> frozenset[Part]:
    """Return the parts to observe for a step in this status."""
    return frozenset(part for part in status.phase.row.needs if _exists(part, status, now))


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
