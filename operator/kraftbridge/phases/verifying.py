"""Launches verifications, releases them, and accepts their verdicts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import takewhile

from kraftbridge.models.conditions import ConditionType, Reason
from kraftbridge.models.decision import (
    EventReason,
    EventType,
    LaunchRun,
    ReleaseRun,
)
from kraftbridge.models.observation import RunState, Unobserved, VerificationRun
from kraftbridge.models.phase import Phase
from kraftbridge.models.report import Profile, Verdict, VerdictSummary
from kraftbridge.models.runs import RUNS, RunKind
from kraftbridge.models.status import FORECAST, VerificationStatus, WaitKind
from kraftbridge.phases import healing, keeping
from kraftbridge.phases.draft import Draft, StepContext, Wait, for_user
from kraftbridge.phases.observed import because, preceded
from kraftbridge.phases.removing import remove_run
from kraftbridge.phases.subject import changed_parts, subject_of

RETRY_AFTER = timedelta(seconds=20)
"""Pause before the next run after one that ended without a verdict."""
RECHECK_INCONSISTENT_AFTER = timedelta(seconds=60)
MAX_INCONCLUSIVE = 3
RETRY_AT_REST_AFTER = timedelta(minutes=10)
"""Pause at a rest after `MAX_INCONCLUSIVE` runs without a verdict: a rest lasts for weeks."""
CHANGED_AFTER = timedelta(hours=1)
"""Minimum pause at a rest before what changed is verified: a busy cluster changes all the time."""
OLD_AFTER = timedelta(days=1)
"""Age of a verdict at a rest from which it is repeated although nothing that each look shows has changed."""
SESSION_STARTS_WITHIN = timedelta(seconds=30)
"""How long a restart waits for the session of a later run."""
ENTRY = "entry"
"""Purpose of the run that opens the gate of the next phase."""


def launch_ahead(draft: Draft, profile: Profile, gate: Phase, purpose: str = ENTRY) -> None:
    """Launch the run for a gate ahead of time, unless one is there; it waits for its go."""
    other = _unfinished(draft)
    if latest(draft, profile, gate, purpose) is None and (other is None or _goes_beside(profile, other)):
        _launch(draft, profile, gate, purpose)


def wait_for_session(step: StepContext) -> Wait | None:
    """Return None once a run that was launched ahead is ready, has ended, or takes longer than `SESSION_STARTS_WITHIN`.

    A restart beside the start of a Spark session takes longer.
    """
    record = _unfinished(step)
    if record is None or record.ready_at is not None or step.now - record.launched_at >= SESSION_STARTS_WITHIN:
        return None
    return _wait(f"verification {record.run_id} is starting")


def relaunch_ended(draft: Draft, profile: Profile, gate: Phase, purpose: str) -> None:
    """Launch the run for a gate, also after one without a verdict, unless another one is under way."""
    record = latest(draft, profile, gate, purpose)
    due = record is None or (record.verdict is None and _ended_before(draft, record, RETRY_AFTER))
    if due and _unfinished(draft) is None:
        _launch(draft, profile, gate, purpose)


def ensure_armed(draft: Draft, profile: Profile, gate: Phase, purpose: str) -> Wait | None:
    """Return None once the run for a gate is ready and waits for its go, else what is being waited for."""
    record = latest(draft, profile, gate, purpose)
    if record is None or _ended_before(draft, record, RETRY_AFTER):
        _launch(draft, profile, gate, purpose)
        return _wait(f"verification {profile} before {gate} is being launched")
    if record.finished_at is not None:
        tries = _tries(draft, record)
        message = (
            f"verification {record.run_id} ended before it was ready ({record.reason}); "
            f"tried {tries} time(s), again in {RETRY_AFTER.seconds} s"
        )
        return _inconclusive(message, tries)
    if record.ready_at is not None:
        return None
    limit = RUNS[RunKind.VERIFICATION].limit(draft.spec)
    if draft.now - record.launched_at > limit:
        _give_up(draft, record, f"not ready within {limit.total_seconds():.0f} s")
    run = _seen_run(draft, record)
    trouble = "" if run is None else run.message
    return _wait(f"verification {record.run_id} is starting{because(trouble)}")


def ensure_verdict(
    draft: Draft, profile: Profile, gate: Phase, purpose: str = ENTRY, *, heals: bool = True
) -> Wait | None:
    """Return None when a fresh, consistent verdict opens the gate; else launch or follow the run and return the wait.

    A verdict counts only with the run id, profile, phase and generation with which the run was launched.
    Without ``heals`` no failover follows it.
    """
    record = latest(draft, profile, gate, purpose)
    if record is None:
        _launch(draft, profile, gate, purpose)
        return _wait(f"verification {profile} before {gate} is being launched")
    if record.finished_at is None:
        return _follow(draft, record)
    if outdated := _outdated(draft, record):
        _launch(draft, profile, gate, purpose)
        return _wait(outdated)
    match record.verdict:
        case Verdict.CONSISTENT:
            return keeping.ensure_kept_after(draft, record)
        case Verdict.INCONSISTENT:
            if heals and profile is Profile.DUAL_WRITE:
                waiting = healing.heal(draft, record)
                if waiting is not None:
                    return waiting
            if _ended_before(draft, record, RECHECK_INCONSISTENT_AFTER):
                healing.restore_states(draft, record)
                _launch(draft, profile, gate, purpose)
            message = (
                f"{record.differing} entities differ ({record.reason}); read ConfigMap {record.report}, "
                f"then {healing.advice(draft, record, heals=heals)}; it is checked again every minute"
            )
            return Wait(message, WaitKind.VERIFICATION, Reason.INCONSISTENT, stalled=True)
        case Verdict.INCONCLUSIVE | None:
            if _ended_before(draft, record, RETRY_AFTER):
                _launch(draft, profile, gate, purpose)
            tries = _tries(draft, record)
            message = (
                f"verification {record.run_id} ended without a verdict ({record.reason}); "
                f"tried {tries} time(s), again in {RETRY_AFTER.seconds} s"
            )
            return _inconclusive(message, tries)


def keep_verified(draft: Draft, profile: Profile, gate: Phase, purpose: str = ENTRY, *, holds: bool) -> Wait | None:
    """Return None at a rest while the last verdict is consistent; verify again beside it when that is due.

    A rest goes on while a run repeats its verdict: nothing says yet that it is not true any more.
    It ends with a difference, and with the third run in a row that ends without a verdict.

    Parameters
    ----------
    holds
        Whether the gates of the rest hold. What is broken is not verified.
    """
    runs = _runs(draft, profile, gate, purpose)
    standing = _standing(runs)
    if standing is None or _overtaken(draft, standing):
        return ensure_verdict(draft, profile, gate, purpose)
    newest = runs[-1]
    if newest is standing:
        waiting = keeping.ensure_kept_after(draft, standing)
        if holds and (due := _due_at_rest(draft, standing)):
            _launch(draft, profile, gate, purpose, due, beside=standing)
        # The copy of an earlier run is kept meanwhile.
        return waiting if standing is runs[0] else None
    failed = sum(run.finished_at is not None for run in runs[runs.index(standing) + 1 :])
    if newest.finished_at is None:
        following = _follow(draft, newest)
    else:
        pause = RETRY_AFTER if failed < MAX_INCONCLUSIVE else RETRY_AT_REST_AFTER
        if holds and _ended_before(draft, newest, pause):
            _launch(draft, profile, gate, purpose, "the last one ended without a verdict", beside=standing)
        words = (
            f"the verdict of {standing.run_id} could not be repeated: {newest.run_id} ended without one "
            f"({newest.reason}); tried {failed} time(s), again after {pause.seconds} s"
        )
        following = _inconclusive(words, failed)
    return None if failed < MAX_INCONCLUSIVE else replace(following, reason=Reason.INCONCLUSIVE, stalled=True)


def _standing(runs: Sequence[VerificationStatus]) -> VerificationStatus | None:
    """Return the last run with a verdict if that is consistent, else None."""
    conclusive = [run for run in runs if run.verdict in {Verdict.CONSISTENT, Verdict.INCONSISTENT}]
    return conclusive[-1] if conclusive and conclusive[-1].verdict is Verdict.CONSISTENT else None


def _due_at_rest(step: StepContext, record: VerificationStatus) -> str:
    """Return why what rests must be verified again, ``""`` while it need not be."""
    age = step.now - (record.released_at or record.launched_at)
    if age >= OLD_AFTER:
        return "the last verdict is a day old"
    changed = changed_parts(record.subject, subject_of(step))
    if not changed or age < CHANGED_AFTER:
        return ""
    return f"changed since the last verdict: {', '.join(changed)}"


def _overtaken(step: StepContext, record: VerificationStatus) -> str:
    """Return what has written a store since a verdict about it, ``""`` if nothing has."""
    if record.profile is Profile.DUAL_WRITE and healing.outlived(step, record):
        return f"a controller failover has rewritten ZooKeeper since {record.run_id}; verifying again"
    if keeping.precedes_restoration(step.status, record):
        return f"the controllers were restored from a copy since {record.run_id}; verifying again"
    return ""


def _outdated(step: StepContext, record: VerificationStatus) -> str:
    """Return why a verdict must be found again, ``""`` while it counts."""
    about_zookeeper = record.profile is Profile.DUAL_WRITE
    if record.verdict is Verdict.INCONSISTENT and about_zookeeper and healing.failed_over(step, record):
        return (
            f"the new controller has written its image to ZooKeeper; verifying the differences of {record.run_id} again"
        )
    if record.verdict is not Verdict.CONSISTENT:
        return ""
    if overtaken := _overtaken(step, record):
        return overtaken
    max_age = timedelta(seconds=step.spec.verification.max_age_seconds)
    if record.released_at is None or step.now - record.released_at > max_age:
        return f"the verdict of {record.run_id} is older than {max_age.seconds} s; verifying again"
    return ""


def _ended_before(step: StepContext, record: VerificationStatus, pause: timedelta) -> bool:
    """Return whether a run has ended, and that long ago."""
    return record.finished_at is not None and step.now - record.finished_at >= pause


def _tries(step: StepContext, record: VerificationStatus) -> int:
    """Return how often a run was launched for the same gate since the last one with a verdict."""
    runs = _runs(step, record.profile, record.gate, record.purpose)
    return len(list(takewhile(lambda run: run.verdict in {None, Verdict.INCONCLUSIVE}, reversed(runs))))


def _inconclusive(message: str, tries: int) -> Wait:
    return Wait(message, WaitKind.VERIFICATION, Reason.INCONCLUSIVE, stalled=tries >= MAX_INCONCLUSIVE)


def ensure_forecast(draft: Draft, gate: Phase, copy_id: str) -> VerificationStatus | None:
    """Return the comparison of ZooKeeper with a kept copy once it has ended, None until then.

    A comparison that ended without a verdict is tried again, up to `MAX_INCONCLUSIVE` times.
    """
    purpose = f"{FORECAST}{copy_id}"
    record = latest(draft, Profile.DUAL_WRITE, gate, purpose)
    if record is None:
        _launch(draft, Profile.DUAL_WRITE, gate, purpose)
        return None
    if record.finished_at is None:
        _follow(draft, record)
        return None
    again = record.verdict in {None, Verdict.INCONCLUSIVE} and _ended_before(draft, record, RETRY_AFTER)
    if again and len(_runs(draft, Profile.DUAL_WRITE, gate, purpose)) < MAX_INCONCLUSIVE:
        _launch(draft, Profile.DUAL_WRITE, gate, purpose)
    return record


def counts(step: StepContext, gate: Phase, purpose: str) -> dict[str, int] | None:
    """Return how many entities of each kind the latest passed run compared; None when it is not kept any more."""
    record = latest(step, Profile.REPLICAS, gate, purpose)
    if record is None or record.verdict is not Verdict.CONSISTENT:
        return None
    return {kind: counts.compared for kind, counts in record.counts.items()}


def _follow(draft: Draft, record: VerificationStatus) -> Wait:
    other = _unfinished(draft)
    if other is not None and other.run_id != record.run_id:
        # The gate waits for this run, so none waits for the newer one: the last broker came back by itself before its
        # check was asked for.
        _drop(draft, other, "given up: no gate waits for it any more")
    if isinstance(draft.observation.run, Unobserved):
        return _wait(str(draft.observation.run))
    run = _seen_run(draft, record)
    if run is None:
        return _wait(f"verification {record.run_id} was launched; its state is not known yet")
    match run.state:
        case RunState.FINISHED:
            return _judge(draft, record, run.verdict)
        case RunState.FAILED:
            _finish(draft, record, None, run.message or "its application failed")
            return _wait(f"verification {record.run_id} failed: {run.message}")
        case RunState.CANNOT_START:
            _give_up(draft, record, run.message)
            return _wait(f"verification {record.run_id} cannot start: {run.message}")
        case _ if draft.now > _deadline(draft, record):
            limit = RUNS[RunKind.VERIFICATION].limit(draft.spec)
            reason = f"no verdict within {limit.total_seconds():.0f} s, last state {run.state}: {run.message}"
            _finish(draft, record, None, reason)
            remove_run(draft, RunKind.VERIFICATION, record.run_id, keep_report=True)
            return _wait(f"verification {record.run_id} passed its deadline")
        case RunState.ARMED:
            _release(draft, record.model_copy(update={"ready_at": record.ready_at or draft.now}))
            return _wait(f"verification {record.run_id} is ready, and is told to begin")
        case RunState.MISSING:
            _relaunch(draft, record)
            return _wait(f"verification {record.run_id} is being created")
        case RunState.PENDING:
            # The gate waits already, so the driver reads as soon as its session is open, without a warm-up.
            _release(draft, record)
            return _wait(f"verification {record.run_id} is starting{because(run.message)}")
        case RunState.RUNNING:
            return _wait(f"verification {record.run_id} compares the stores")


def _seen_run(step: StepContext, record: VerificationStatus) -> VerificationRun | None:
    """Return what was seen of a run, None if that was not read, or is another run."""
    run = step.observation.run
    return run if isinstance(run, VerificationRun) and run.run_id == record.run_id else None


def _deadline(step: StepContext, record: VerificationStatus) -> datetime:
    begun = record.launched_at
    if record.profile is Profile.COPY and record.ready_at is not None:
        # A watch of the tree waits for the takeover as long as that takes; its comparison does not.
        begun = record.released_at or step.now
    return begun + RUNS[RunKind.VERIFICATION].limit(step.spec)


def _release(draft: Draft, record: VerificationStatus) -> None:
    """Release a run; a lost release is repeated, and the verdict's age counts from the first one."""
    draft.act(ReleaseRun(RunKind.VERIFICATION, record.run_id))
    if record.released_at is None:
        _replace(draft, record.model_copy(update={"released_at": draft.now, "subject": subject_of(draft)}))


def _judge(draft: Draft, record: VerificationStatus, verdict: VerdictSummary | None) -> Wait:
    if verdict is None:
        _finish(draft, record, None, "its application ended without writing a verdict")
        return _wait(f"verification {record.run_id} wrote no verdict")
    said = (verdict.run_id, verdict.profile, str(verdict.phase), verdict.generation, verdict.migration_uid)
    wanted = (record.run_id, record.profile, str(record.gate), record.generation, draft.identity.uid)
    if said != wanted:
        _finish(draft, record, None, f"the verdict belongs to {said}, not {wanted}")
        return _wait(f"verification {record.run_id} returned the verdict of another run")
    counted: dict[str, object] = {
        "counts": {str(kind): counts for kind, counts in verdict.counts.items()},
        "differing": verdict.differing + verdict.blocking_findings,
        "mirror_differing": verdict.mirror_differing,
        "partition_state_differing": verdict.partition_state_differing,
    }
    if not verdict.report_complete:
        # Differences that the report leaves out cannot be archived, so the operator does not heal them.
        counted |= {"mirror_differing": 0, "partition_state_differing": 0}
    _finish(draft, record.model_copy(update=counted), verdict.verdict, verdict.reason)
    return _wait(f"verification {record.run_id}: {verdict.verdict}")


def follow_unreleased(draft: Draft) -> None:
    """Record that a run launched ahead of time is ready or has failed, so that its gate does not learn of it late."""
    record = _unfinished(draft)
    if record is None or record.released_at is not None:
        return
    run = _seen_run(draft, record)
    if run is None:
        return
    if run.state is RunState.ARMED and record.ready_at is None:
        _replace(draft, record.model_copy(update={"ready_at": draft.now}))
    elif run.state is RunState.FAILED:
        _finish(draft, record, None, run.message or "its application failed")
    elif run.state is RunState.CANNOT_START:
        _give_up(draft, record, run.message)
    elif run.state is RunState.MISSING:
        _relaunch(draft, record)


def give_up_all_but(draft: Draft, gate: Phase) -> None:
    """End the runs for gates that will not be tried any more; they would hold memory until their deadline."""
    for record in draft.status.verifications:
        if record.finished_at is None and record.gate is not gate:
            _drop(draft, record, "given up: the migration rolls back")


def _launch(
    draft: Draft,
    profile: Profile,
    gate: Phase,
    purpose: str,
    why: str = "",
    *,
    beside: VerificationStatus | None = None,
) -> None:
    """Launch a run. The one ``beside`` it stays whatever ``keepRuns`` says: a rest holds by it meanwhile."""
    for other in draft.status.verifications:
        if other.finished_at is None and not _goes_beside(profile, other):
            # One run at a time is looked after: ``MigrationStatus.followed_run``.
            _drop(draft, other, "given up: another gate needs its place")
    number = draft.status.verification_count + 1
    row = RUNS[RunKind.VERIFICATION]
    run_id = row.run_id(draft.identity.name, draft.identity.uid, number)
    record = VerificationStatus(
        run_id=run_id,
        profile=profile,
        gate=gate,
        purpose=purpose,
        generation=draft.identity.generation,
        launched_at=draft.now,
        report=row.report(run_id),
    )
    kept = [*draft.status.verifications, record]
    for run in kept[: -draft.spec.verification.keep_runs]:
        if run is not beside and not _is_kept(draft, run):
            kept.remove(run)
            remove_run(draft, RunKind.VERIFICATION, run.run_id, keep_report=False)
    draft.update(verifications=tuple(kept), verification_count=number)
    draft.act(LaunchRun(RunKind.VERIFICATION, run_id))
    message = f"Verification {run_id} ({profile}) for the gate of {gate} launched{because(why)}"
    draft.tell(EventReason.VERIFICATION_STARTED, message)


def _goes_beside(profile: Profile, other: VerificationStatus) -> bool:
    """Whether a run leaves an unfinished one alone.

    The watch of the tree goes on while the tree is checked before the last restart.
    While its comparison runs, the session for the next gate starts.
    """
    if other.profile is not Profile.COPY:
        return False
    return profile is Profile.ZOOKEEPER or (profile is Profile.DUAL_WRITE and other.released_at is not None)


def _is_kept(step: StepContext, record: VerificationStatus) -> bool:
    """Whether a run outlives ``spec.verification.keepRuns``: nothing else ever shows what the copy lost."""
    return healing.unarchived(step, record.run_id) or (
        record.profile is Profile.COPY and record.verdict in {Verdict.CONSISTENT, Verdict.INCONSISTENT}
    )


def _relaunch(draft: Draft, record: VerificationStatus) -> None:
    """Repeat a launch that an interruption lost; the run's name makes it the same run."""
    draft.act(LaunchRun(RunKind.VERIFICATION, record.run_id))


def _give_up(draft: Draft, record: VerificationStatus, reason: str) -> None:
    """End a run that will never start: its pods would wait for ever, and the next one uses the current spec."""
    remove_run(draft, RunKind.VERIFICATION, record.run_id, keep_report=True)
    _finish(draft, record, None, reason)


def _drop(draft: Draft, record: VerificationStatus, reason: str) -> None:
    """End a run that no gate needs, with its report."""
    remove_run(draft, RunKind.VERIFICATION, record.run_id, keep_report=False)
    _finish(draft, record, None, reason)


def _finish(draft: Draft, record: VerificationStatus, verdict: Verdict | None, reason: str) -> None:
    done = record.model_copy(update={"finished_at": draft.now, "verdict": verdict, "reason": reason[:500]})
    _replace(draft, done)
    if verdict is not None:
        # The application of a run without a verdict stays, because its driver's log says why.
        remove_run(draft, RunKind.VERIFICATION, record.run_id, keep_report=True)
    if record.is_forecast:
        return  # it says what a copy lacks, and nothing about what runs
    message = f"Verification {record.run_id} ({record.profile}): {verdict or 'no verdict'}{because(reason)}"
    condition = ConditionType.METADATA_CONSISTENT
    if verdict is Verdict.CONSISTENT:
        if record.profile is Profile.DUAL_WRITE:
            healing.close_differences(draft)
        compared = sum(counts.compared for counts in done.counts.values())
        words = f"{compared} entities compared by {record.run_id}, none differs"
        draft.set_condition(condition, "True", Reason.CONSISTENT, words)
        draft.tell(EventReason.VERIFICATION_PASSED, message)
        return
    if verdict is Verdict.INCONSISTENT:
        draft.set_condition(condition, "False", Reason.INCONSISTENT, message)
    else:
        draft.set_condition(condition, "Unknown", Reason.INCONCLUSIVE, message)
    draft.tell(EventReason.VERIFICATION_FAILED, message, EventType.WARNING)


def _replace(draft: Draft, record: VerificationStatus) -> None:
    draft.update(verifications=tuple(record if v.run_id == record.run_id else v for v in draft.status.verifications))


def latest(step: StepContext, profile: Profile, gate: Phase, purpose: str) -> VerificationStatus | None:
    """Return the newest run for a gate."""
    return next(reversed(_runs(step, profile, gate, purpose)), None)


def _runs(step: StepContext, profile: Profile, gate: Phase, purpose: str) -> list[VerificationStatus]:
    return [v for v in step.status.verifications if (v.profile, v.gate, v.purpose) == (profile, gate, purpose)]


def _unfinished(step: StepContext) -> VerificationStatus | None:
    run = step.status.followed_run
    return run if run is not None and run.finished_at is None else None


def _wait(message: str) -> Wait:
    return Wait(message, WaitKind.VERIFICATION, Reason.WAITING)


_WAY_OUT = "set spec.verification.acceptedCopy to {run_id}, which takes that upon you, or spec.target to ZooKeeper"


def ensure_tree_watched(draft: Draft) -> Wait | None:
    """Return None once the tree from before the takeover is kept and watched, else what the last restart waits for."""
    if copy_accepted(draft):
        return None
    waiting = ensure_armed(draft, Profile.COPY, Phase.DUAL_WRITE, _copy_purpose(draft))
    return preceded("before the last broker restarts", waiting)


def keep_watching(draft: Draft) -> None:
    """Begin to watch when the roll begins, and again when a watch has ended: what it has read is on its volume.

    A broker that falls over comes back in migration mode without us, so the copy may start before our last restart.
    A watch needs no JVM, so it may start beside a broker that restarts.
    """
    if not copy_accepted(draft):
        relaunch_ended(draft, Profile.COPY, Phase.DUAL_WRITE, _copy_purpose(draft))


def ensure_nothing_lost(draft: Draft) -> Wait | None:
    """Return None when the copy lost nothing, or the user accepts what it lost; else what is being waited for."""
    if copy_accepted(draft):
        return None
    record = latest(draft, Profile.COPY, Phase.DUAL_WRITE, _copy_purpose(draft))
    if record is None:
        return ensure_verdict(draft, Profile.COPY, Phase.DUAL_WRITE, _copy_purpose(draft))
    way_out = _WAY_OUT.format(run_id=record.run_id)
    match record.verdict:
        case Verdict.CONSISTENT:
            return None
        case Verdict.INCONSISTENT:
            message = (
                f"The copy lost or changed {record.differing} entities ({record.reason}); "
                f"ConfigMap {record.report} lists them. Make them again with Kafka's tools, then {way_out}"
            )
            return for_user(message, Reason.INCONSISTENT)
        case Verdict.INCONCLUSIVE | None:
            waiting = ensure_verdict(draft, Profile.COPY, Phase.DUAL_WRITE, _copy_purpose(draft))
            if waiting is None or not waiting.stalled:
                return waiting
            advice = f"compare what ConfigMap {record.report} lists by hand, then {way_out}"
            return replace(waiting, message=f"{waiting.message}; {advice}")


def copy_accepted(step: StepContext) -> bool:
    """Whether the user accepts the newest verdict; a loss only by the run that found it."""
    wanted = step.spec.verification.accepted_copy
    runs = [run for run in _copies(step) if run.finished_at is not None]
    losses = [run.run_id for run in runs if run.verdict is Verdict.INCONSISTENT]
    return wanted in {run.run_id for run in runs} and (not losses or losses[-1] == wanted)


def _copies(step: StepContext) -> list[VerificationStatus]:
    """Return the runs about the copy of this attempt."""
    return _runs(step, Profile.COPY, Phase.DUAL_WRITE, _copy_purpose(step))


def _copy_purpose(step: StepContext) -> str:
    """Tell the attempts apart: a copy is verified once, and a verdict about an earlier one says nothing."""
    return f"attempt-{step.status.attempt}"
