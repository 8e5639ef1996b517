"""Findings of the rehearsal: what Kafka's own migration did with a copy of the metadata. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from kraftbridge.models.catalogue import Code
from kraftbridge.models.rehearsal import RehearsalVerdict
from kraftbridge.models.status import FindingStatus, RehearsalStatus
from kraftbridge.phases.draft import StepContext
from kraftbridge.phases.preflight.finding import finding

CODES: Final = frozenset(
    {Code.CONTROLLER_HEAP_TOO_SMALL, Code.REHEARSAL_FAILS, Code.REHEARSAL_LOSES, Code.REHEARSAL_UNKNOWN}
)
_MIB: Final = 1 << 20
_SHOWN_MENDS: Final = 3
_HEAP: Final = re.compile(r"-Xmx(\d+)([kKmMgG]?)(?![^\s])")
_UNITS: Final = {"": 1, "k": 1 << 10, "m": _MIB, "g": 1 << 30}


def findings(step: StepContext) -> Iterator[FindingStatus]:
    """Return what the last rehearsal that ended found, nothing before the first one."""
    record = step.status.rehearsal
    if not step.spec.rehearsal.enabled or record is None:
        return
    match record.verdict:
        case RehearsalVerdict.FAILS:
            yield finding(Code.REHEARSAL_FAILS, "rehearsal", reason=record.reason, mend=_mend(record))
        case RehearsalVerdict.LOSES:
            for loss in record.losses:
                yield finding(Code.REHEARSAL_LOSES, loss.entity, what=loss.what, mend=_mend(record))
            if record.differing > len(record.losses) or not record.losses:
                more = f"{record.reason}; {len(record.losses)} of {record.differing} are findings of their own"
                yield finding(Code.REHEARSAL_LOSES, "rehearsal", what=more, mend=_mend(record))
        case RehearsalVerdict.UNKNOWN:
            yield finding(Code.REHEARSAL_UNKNOWN, "rehearsal", reason=record.reason)
        case RehearsalVerdict.WORKS | None:
            pass
    given = heap_bytes(step.spec.controllers.heap_options)
    if record.heap_needed_bytes is not None and given is not None and given < record.heap_needed_bytes:
        yield finding(
            Code.CONTROLLER_HEAP_TOO_SMALL,
            "controllers",
            partitions=record.partitions,
            needed=record.heap_needed_bytes // _MIB,
            given=given // _MIB,
        )


def heap_bytes(options: str) -> int | None:
    """Return the greatest heap that JVM options allow (the last ``-Xmx``), None where they state none."""
    found = _HEAP.findall(options)
    return int(found[-1][0]) * _UNITS[found[-1][1].lower()] if found else None


def _mend(record: RehearsalStatus) -> str:
    shown = [f"{mend.znode}: {mend.command}" for mend in record.mends[:_SHOWN_MENDS]]
    if len(record.mends) > _SHOWN_MENDS:
        shown.append(f"{len(record.mends) - _SHOWN_MENDS} more in ConfigMap {record.report}")
    return "Mend " + "; ".join(shown) if shown else f"Read ConfigMap {record.report}, which has Kafka's own words"
