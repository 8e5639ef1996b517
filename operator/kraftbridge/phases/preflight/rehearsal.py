"""Findings of the rehearsal: what Kafka's own migration did with a copy of the metadata. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kraftbridge.models.catalogue import Code
from kraftbridge.models.observation import Unobserved
from kraftbridge.models.rehearsal import BEYOND_HEAP_BYTES, DEFAULT_HEAP_BYTES, RehearsalVerdict, heap_bytes
from kraftbridge.models.status import FindingStatus, RehearsalStatus, RehearsedBroker, finding
from kraftbridge.phases.draft import StepContext
from kraftbridge.phases.preflight import dynamic_settings

CODES: Final = frozenset(
    {
        Code.CONTROLLER_HEAP_TOO_SMALL,
        Code.DYNAMIC_SETTINGS_REFUSED,
        Code.DYNAMIC_SETTINGS_TAKE_EFFECT,
        Code.REHEARSAL_FAILS,
        Code.REHEARSAL_LOSES,
        Code.REHEARSAL_UNKNOWN,
    }
)
"""Findings that a rehearsal judges anew, and that do not stand in its way."""
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
            if not record.losses:
                yield finding(Code.REHEARSAL_LOSES, "rehearsal", what=record.reason, mend=_mend(record))
            elif record.differing > len(record.losses):
                more = f"{record.reason}; {len(record.losses)} of {record.differing} are findings of their own"
                yield finding(Code.REHEARSAL_LOSES, "rehearsal", what=more, mend=_mend(record))
        case RehearsalVerdict.UNKNOWN:
            yield finding(Code.REHEARSAL_UNKNOWN, "rehearsal", reason=record.reason)
        case RehearsalVerdict.WORKS | None:
            pass
    yield from _heap_findings(step, record)
    yield from _broker_findings(step, record)


def _broker_findings(step: StepContext, record: RehearsalStatus) -> Iterator[FindingStatus]:
    """Return a finding for brokers of which nothing is known, or that fail in KRaft mode.

    Dynamic settings that one refuses are findings of their own, as long as the running broker has them.
    A failure stands until another rehearsal says otherwise.
    """
    for broker in record.brokers:
        name = f"broker/{broker.brokers[0]}"
        reason = f"{_names(broker)} in KRaft mode: {broker.reason}"
        if broker.verdict is RehearsalVerdict.UNKNOWN:
            yield finding(Code.REHEARSAL_UNKNOWN, name, reason=reason)
        elif broker.verdict is RehearsalVerdict.FAILS and not dynamic_settings.is_told(step, broker):
            yield finding(Code.REHEARSAL_FAILS, name, reason=reason, mend=f"Read ConfigMap {record.report}")


def _names(broker: RehearsedBroker) -> str:
    return f"{'brokers' if broker.brokers[1:] else 'broker'} {', '.join(map(str, broker.brokers))}"


def starts_controllers(step: StepContext) -> bool:
    """Return whether Preflight is not left before a controller of the real image has started with the real settings.

    An accepted verdict may be that of a controller that did not start.
    """
    record = step.status.rehearsal
    if not step.spec.rehearsal.enabled:
        return False
    waived = {Code.REHEARSAL_FAILS, Code.REHEARSAL_UNKNOWN} & {a.code for a in step.spec.preflight.accepted}
    verdict = None if record is None else record.verdict
    return not waived or verdict in (RehearsalVerdict.WORKS, RehearsalVerdict.LOSES)


def _heap_findings(step: StepContext, record: RehearsalStatus) -> Iterator[FindingStatus]:
    """Return a finding if the heap that the user gives, or leaves to a tuned one, is less than the rehearsal needed."""
    needed = record.heap_needed_bytes
    if needed is None:
        return
    options = step.spec.controllers.heap_options
    if options is not None:
        source = "spec.controllers.heapOptions"
        given = heap_bytes(options)
    else:
        source = "the memory limit in spec.controllers.resources"
        needed = max(needed, DEFAULT_HEAP_BYTES)
        given = _tuned_heap(step)
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


def _tuned_heap(step: StepContext) -> int | None:
    """Return the largest heap that the memory limit of the controllers' container leaves, None without a limit."""
    survey = step.observation.survey
    if isinstance(survey, Unobserved) or isinstance(survey.demand, Unobserved):
        return None
    for container in survey.demand.containers:
        if container.name == "kafka" and container.memory_limit is not None:
            return max(0, container.memory_limit - BEYOND_HEAP_BYTES)
    return None


def _mend(record: RehearsalStatus) -> str:
    if not record.mends:
        return f"Read ConfigMap {record.report}, which has Kafka's own words"
    mends = [f"{mend.znode}: {mend.command}" for mend in record.mends[:_SHOWN_MENDS]]
    if len(record.mends) > _SHOWN_MENDS:
        mends.append(f"{len(record.mends) - _SHOWN_MENDS} more in ConfigMap {record.report}")
    return f"Mend {'; '.join(mends)}"
