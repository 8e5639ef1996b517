"""When Kafka's migration is rehearsed on a copy of the metadata, and when a rehearsal is believed. Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from kraftbridge.models.decision import (
    CollectRun,
    EventReason,
    EventType,
    FenceRun,
    LaunchRun,
)
from kraftbridge.models.observation import RehearsalProgress, RehearsalRun, RehearsalState, Unobserved
from kraftbridge.models.phase import Part
from kraftbridge.models.rehearsal import WORST_FIRST, ComparedSetting, RehearsalResult, RehearsalVerdict
from kraftbridge.models.report import Difference
from kraftbridge.models.runs import RUNS, RunKind
from kraftbridge.models.status import (
    RehearsalRunStatus,
    RehearsalStatus,
    RehearsedBroker,
    RehearsedLoss,
    RehearsedMend,
    RehearsedSetting,
    WaitKind,
)
from kraftbridge.phases.draft import Draft, StepContext, Wait
from kraftbridge.phases.observed import because
from kraftbridge.phases.removing import remove_run

REPEAT_AFTER: Final = timedelta(seconds=60)
"""Least pause before a rehearsal that closes the gate is repeated: somebody may have mended the tree."""
MAXIMUM_SHOWN: Final = 20
MAXIMUM_BROKERS: Final = 50
"""Brokers in status, and dynamic settings of each."""
_MAXIMUM_TEXT: Final = 500
_MAXIMUM_BROKER_TEXT: Final = 1000
"""Kafka's line about a refused set has its exception and the cause."""
_MAXIMUM_VALUE: Final = 200


def ensure_rehearsal(draft: Draft, *, blocking: bool, ages: bool = True) -> Wait | None:
    """Launch, follow and record the rehearsal; return None once the last one is about what is there now.

    Parameters
    ----------
    blocking
        Whether findings of the last rehearsal close the gate: it is then repeated from time to time.
    ages
        Whether a rehearsal older than ``maxAgeSeconds`` is repeated.
    """
    record = draft.status.rehearsal or RehearsalStatus()
    if not draft.spec.rehearsal.enabled:
        if record.running is not None:
            remove_run(draft, RunKind.REHEARSAL, record.running.run_id, keep_report=False)
            draft.update(rehearsal=record.model_copy(update={"running": None}))
        return None
    state = draft.observation.rehearsal
    if isinstance(state, Unobserved):
        return Wait(f"what is to be rehearsed is not known: {state}")
    if record.running is not None:
        return _follow(draft, record, record.running, state)
    if not _is_due(draft, record, state.fingerprint, blocking=blocking, ages=ages):
        return None
    number = record.count + 1
    run = RehearsalRunStatus(
        run_id=RUNS[RunKind.REHEARSAL].run_id(draft.identity.name, draft.identity.uid, number),
        digest=state.fingerprint,
        launched_at=draft.now,
    )
    draft.update(rehearsal=record.model_copy(update={"running": run, "count": number}))
    draft.act(LaunchRun(RunKind.REHEARSAL, run.run_id))
    draft.tell(EventReason.REHEARSAL_STARTED, f"Rehearsal {run.run_id} launched")
    return _wait(f"rehearsal {run.run_id} is being launched")


def drop_unawaited(draft: Draft) -> None:
    """Remove the rehearsal that runs once no phase waits for it any more."""
    record = draft.status.rehearsal
    if record is None or record.running is None or Part.REHEARSAL in draft.status.phase.row.needs:
        return
    remove_run(draft, RunKind.REHEARSAL, record.running.run_id, keep_report=False)
    draft.update(rehearsal=record.model_copy(update={"running": None}))


def _is_due(step: StepContext, record: RehearsalStatus, fingerprint: str, *, blocking: bool, ages: bool) -> bool:
    if record.verdict is None or record.finished_at is None or record.launched_at is None:
        return True
    age = step.now - record.finished_at
    pause = max(REPEAT_AFTER, 2 * (record.finished_at - record.launched_at))
    return (
        record.digest != fingerprint
        or (ages and age > timedelta(seconds=step.spec.rehearsal.max_age_seconds))
        or (blocking and age >= pause)
    )


def _follow(draft: Draft, record: RehearsalStatus, running: RehearsalRunStatus, state: RehearsalState) -> Wait:
    name = running.run_id
    run = state.run
    if run is None or run.run_id != name:
        return _wait(f"rehearsal {name} has not been seen yet")
    if run.progress is RehearsalProgress.FINISHED:
        return _record(draft, record, running, run)
    limit = RUNS[RunKind.REHEARSAL].limit(draft.spec)
    if run.progress is RehearsalProgress.CANNOT_START:
        return _give_up(draft, record, running, f"its pod does not start: {run.message}")
    if draft.now > running.launched_at + limit:
        words = f"no result within {limit.total_seconds():.0f} s, last state {run.progress} {run.message}"
        return _give_up(draft, record, running, words)
    match run.progress:
        case RehearsalProgress.MISSING:
            draft.act(LaunchRun(RunKind.REHEARSAL, name))
            return _wait(f"rehearsal {name} is being created")
        case RehearsalProgress.UNFENCED:
            draft.act(FenceRun(RunKind.REHEARSAL, name))
            return _wait(f"rehearsal {name} has read the tree; its pod is being closed before Kafka starts in it")
        case RehearsalProgress.ENDED:
            draft.act(CollectRun(RunKind.REHEARSAL, name))
            return _wait(f"the result of rehearsal {name} is being collected")
        case RehearsalProgress.READING:
            return _wait(f"rehearsal {name} reads the tree{because(run.message)}")
        case RehearsalProgress.RUNNING:
            return _wait(f"rehearsal {name}: Kafka migrates a copy of the metadata")


def _record(draft: Draft, record: RehearsalStatus, running: RehearsalRunStatus, run: RehearsalRun) -> Wait:
    """Put a result into status, and let its Job and the report of the one before it go."""
    if run.result is None:
        return _give_up(draft, record, running, run.message or "its result could not be read")
    result = run.result
    own = result.of_controllers
    forecast = result.forecast
    sizes = [size for size in (record.minimum_batch_size, forecast.minimum_batch_size) if size is not None]
    heaps = [heap for heap in (record.controller_heap_bytes, forecast.heap_bytes) if heap is not None]
    _end(
        draft,
        record,
        running,
        verdict=own.verdict,
        # The operator may have been away meanwhile; a result does not become younger by being collected late.
        finished_at=min(draft.now, result.finished_at),
        reason=own.reason[:_MAXIMUM_TEXT],
        partitions=result.tree.partitions,
        copy_seconds=forecast.copy_seconds,
        sync_seconds=forecast.sync_seconds,
        seconds_without_controller=forecast.no_controller_seconds,
        heap_needed_bytes=forecast.heap_bytes,
        # Once set they stay: another value would restart the controllers.
        controller_heap_bytes=max(heaps, default=None),
        minimum_batch_size=max(sizes, default=None),
        differing=result.differing,
        losses=_losses(result),
        mends=tuple(
            RehearsedMend(znode=m.znode, problem=m.problem[:_MAXIMUM_TEXT], command=m.command[:_MAXIMUM_TEXT])
            for m in result.mends[:MAXIMUM_SHOWN]
        ),
        brokers=_brokers(result),
    )
    if forecast.no_controller_seconds is not None:
        milliseconds = round(forecast.no_controller_seconds * 1000)
        draft.update(impact=draft.status.impact.model_copy(update={"forecast_takeover_milliseconds": milliseconds}))
    return _wait(f"rehearsal {running.run_id}: {result.verdict}")


def _brokers(result: RehearsalResult) -> tuple[RehearsedBroker, ...]:
    """Return what the brokers of a rehearsal showed, the worst first."""
    worst = sorted(result.brokers, key=lambda each: (WORST_FIRST.index(each.verdict), each.broker))
    return tuple(
        RehearsedBroker(
            brokers=(each.broker, *each.alike),
            verdict=each.verdict,
            reason=each.reason[:_MAXIMUM_BROKER_TEXT],
            settings=tuple(map(_setting, sorted(each.compared, key=lambda s: s.held)[:MAXIMUM_BROKERS])),
        )
        for each in worst[:MAXIMUM_BROKERS]
    )


def _setting(setting: ComparedSetting) -> RehearsedSetting:
    shown = {name: value and value[:_MAXIMUM_VALUE] for name, value in setting.model_dump(exclude={"held"}).items()}
    return RehearsedSetting(**shown, held=setting.held)


def _losses(result: RehearsalResult) -> tuple[RehearsedLoss, ...]:
    if result.verdict is not RehearsalVerdict.LOSES:
        return ()
    return tuple(_loss(d) for d in result.differences[:MAXIMUM_SHOWN])


def _loss(difference: Difference) -> RehearsedLoss:
    if "log" in difference.absent_in:
        what = "ZooKeeper has it, and the metadata log does not have it after the copy"
    elif "zookeeper" in difference.absent_in:
        what = "the metadata log has it after the copy, and ZooKeeper does not have it"
    else:
        what = f"the copy changes {', '.join(a.name for a in difference.attributes)}"
    return RehearsedLoss(entity=f"{difference.kind} {difference.key}".strip()[:250], what=what[:_MAXIMUM_TEXT])


def _give_up(draft: Draft, record: RehearsalStatus, running: RehearsalRunStatus, reason: str) -> Wait:
    _end(draft, record, running, verdict=RehearsalVerdict.UNKNOWN, reason=reason[:_MAXIMUM_TEXT])
    return _wait(f"rehearsal {running.run_id} ended without a verdict: {reason}")


def _end(
    draft: Draft, record: RehearsalStatus, running: RehearsalRunStatus, *, verdict: RehearsalVerdict, **fields: object
) -> None:
    ended = RehearsalStatus.model_validate(
        {
            "controller_heap_bytes": record.controller_heap_bytes,
            "minimum_batch_size": record.minimum_batch_size,
            "finished_at": draft.now,
            **fields,
            "count": record.count,
            "run_id": running.run_id,
            "digest": running.digest,
            "verdict": verdict,
            "launched_at": running.launched_at,
            "report": running.run_id,
        }
    )
    draft.update(rehearsal=ended)
    remove_run(draft, RunKind.REHEARSAL, running.run_id, keep_report=True)
    if record.run_id:
        remove_run(draft, RunKind.REHEARSAL, record.run_id, keep_report=False)
    troubled = [broker for broker in ended.brokers if broker.verdict is not RehearsalVerdict.WORKS]
    words = [ended.reason, *(f"broker {b.brokers[0]} in KRaft mode: {b.verdict}; {b.reason}" for b in troubled[:1])]
    kind = EventType.NORMAL if ended.works else EventType.WARNING
    draft.tell(EventReason.REHEARSAL_ENDED, f"Rehearsal {running.run_id}: {verdict}; {'. '.join(words)}", kind)


def _wait(message: str) -> Wait:
    return Wait(message, WaitKind.WORK)
