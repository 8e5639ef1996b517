"""Findings of the rehearsal: what Kafka's own migration did with a copy of the metadata. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kraftbridge.models.catalogue import Code
from kraftbridge.models.observation import Unobserved
from kraftbridge.models.rehearsal import BEYOND_HEAP_BYTES, DEFAULT_HEAP_BYTES, RehearsalVerdict, heap_bytes
from kraftbridge.models.status import FindingStatus, RehearsalStatus, finding
from kraftbridge.phases.draft import StepContext

CODES: Final = frozenset(
    {Code.CONTROLLER_HEAP_TOO_SMALL, Code.REHEARSAL_FAILS, Code.REHEARSAL_LOSES, Code.REHEARSAL_UNKNOWN}
)
_MIB: Final = 1 << 20
_SHOWN_MENDS: Final = 3


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
    yield from _heap_findings(step, record)


def starts_controllers(step: StepContext) -> bool:
    """Return whether Preflight is not left before a controller of the real image has started with the real settings.

    An accepted verdict may be that of a controller that did not start.
    """
    record = step.status.rehearsal
    if not step.spec.rehearsal.enabled:
        return False
    waived = {Code.REHEARSAL_FAILS, Code.REHEARSAL_UNKNOWN} & {a.code for a in step.spec.preflight.accepted}
    return not waived or (record is not None and record.verdict in (RehearsalVerdict.WORKS, RehearsalVerdict.LOSES))


def _heap_findings(step: StepContext, record: RehearsalStatus) -> Iterator[FindingStatus]:
    """Return a finding if the user's heap, or the user's memory limit for a tuned heap, is less than the rehearsal called for."""
    options, needed = step.spec.controllers.heap_options, record.heap_needed_bytes
    if needed is None:
        return
    if options is not None:
        given, source = heap_bytes(options), "spec.controllers.heapOptions"
    else:
        limit = _memory_limit(step)
        needed = max(needed, DEFAULT_HEAP_BYTES)
        given, source = (
            None if limit is None else max(0, limit - BEYOND_HEAP_BYTES),
            "the memory limit in spec.controllers.resources",
        )
    if given is not None and given < needed:
        yield finding(
            Code.CONTROLLER_HEAP_TOO_SMALL,
            "controllers",
            partitions=record.partitions,
            needed=needed // _MIB,
            given=given // _MIB,
            source=source,
            limit=(needed + BEYOND_HEAP_BYTES) // _MIB,
        )


def _memory_limit(step: StepContext) -> int | None:
    survey = step.observation.survey
    if isinstance(survey, Unobserved) or isinstance(survey.demand, Unobserved):
        return None
    return next((d.memory_limit for d in survey.demand.containers if d.name == "kafka"), None)


def _mend(record: RehearsalStatus) -> str:
    shown = [f"{mend.znode}: {mend.command}" for mend in record.mends[:_SHOWN_MENDS]]
    if len(record.mends) > _SHOWN_MENDS:
        shown.append(f"{len(record.mends) - _SHOWN_MENDS} more in ConfigMap {record.report}")
    return "Mend " + "; ".join(shown) if shown else f"Read ConfigMap {record.report}, which has Kafka's own words"
