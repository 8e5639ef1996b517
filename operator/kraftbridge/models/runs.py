"""The kinds of runs: pods that the operator starts beside the migration, follows, and removes."""

from __future__ import annotations

from enum import StrEnum


class RunKind(StrEnum):
    """What a run is for."""

    VERIFICATION = "verification"
    REHEARSAL = "rehearsal"
    DRY_START = "dry start"
