"""The steps of a dry start: its copies wait behind their gates until the fence is proven, run, tell, and go. Pure.

A few run at once: when one has ended, the next one begins. Each has its own time, so a slow one holds only its place.
What is due is read from the status, so another process goes on where one has stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from kraftbridge.copies.dry_start import stage_after
from kraftbridge.models.catalogue import Code
from kraftbridge.models.decision import CollectRun, FenceRun, LaunchRun, ReleaseRun
from kraftbridge.models.dry_start import DryStartRun, DryStartStage, DryStartState, FenceProof, RunPod
from kraftbridge.models.observation import Unobserved
from kraftbridge.models.phase import Part, Phase
from kraftbridge.models.runs import DRY_START_PARALLEL, PULL_LIMIT, RUNS, RunKind
from kraftbridge.models.runs import DRY_START_POD_LIMIT as POD_LIMIT
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.models.status import DryStartRunStatus, DryStartStatus, MigrationStatus, chooses_channel
from kraftbridge.phases.draft import Draft, StepContext
from kraftbridge.phases.observed import because
from kraftbridge.phases.removing import remove_run

STUCK_LIMIT: Final = timedelta(seconds=20)
"""Time limit for finding a node, pulling an image and creating a container, where no other copy runs."""
AGAIN_AFTER: Final = timedelta(seconds=60)
"""How long it stands that there are no copies: the API server may have been silent for a moment."""
OLD_AFTER: Final = timedelta(hours=1)
"""How long a report stands for another generation of the resource.
A tag may have moved, and nothing in Kubernetes tells that."""
NOT_AWAITED: Final = "no phase waits for it any more"
CHANGED: Final = "the pods' template or what it refers to changed meanwhile"
_MAXIMUM_TEXT: Final = 500
_MAXIMUM_SHOWN: Final = 20


def stands(record: DryStartStatus | None, generation: int, now: datetime) -> bool:
    """Return whether what the last dry start found still says something about its input."""
    if record is None or record.finished_at is None:
        return False
    age = now - record.finished_at
    return not (record.problem and age > AGAIN_AFTER) and not (record.generation != generation and age > OLD_AFTER)


def is_awaited(status: MigrationStatus) -> bool:
    """Return whether the phase has copies started: once brokers restart, only for what somebody changed.

    Before the way on to Kafka 4 begins, copies start with its image.
    """
    row = status.phase.row
    leg = status.kafka4_leg
    if leg is not None and leg.began_at is None:
        return Part.DRY_START in row.needs
    is_changed = any(template.change is not None for template in status.templates)
    restarts = row.changes_brokers and (status.phase is not Phase.UPGRADING_BROKERS or bool(status.templates))
    return Part.DRY_START in row.needs and (is_changed or not restarts)


def running(step: StepContext) -> DryStartRunStatus | None:
    """Return the dry start that runs."""
    return None if step.status.dry_start is None else step.status.dry_start.running


def launch_dry_start(draft: Draft, fingerprint: str, broker_ids: dict[str, int], cluster_id: str) -> None:
    """Launch a dry start, unless one runs, or has ended in this step: the next one reads what it found."""
    record = draft.status.dry_start or DryStartStatus()
    if record.running is not None or record.finished_at == draft.now:
        return
    number = record.count + 1
    run = DryStartRunStatus(
        run_id=RUNS[RunKind.DRY_START].run_id(draft.identity.name, draft.identity.uid, number),
        digest=fingerprint,
        launched_at=draft.now,
        generation=draft.identity.generation,
        broker_ids=broker_ids,
        cluster_id=cluster_id,
        choosing=chooses_channel(draft.spec, draft.status),
        stage_at=draft.now,
    )
    draft.update(dry_start=record.model_copy(update={"running": run, "count": number}))
    draft.act(LaunchRun(RunKind.DRY_START, run.run_id))


def follow_dry_start(draft: Draft) -> None:
    """Take the next step of the dry start that runs; remove one that no phase waits for any more."""
    run = running(draft)
    state = draft.observation.dry_start
    if run is None:
        return
    if not is_awaited(draft.status):
        _end(draft, run, problem=NOT_AWAITED, digest="")
        return
    if isinstance(state, Unobserved):
        return
    seen = state.run
    if seen is not None and seen.run_id == run.run_id:
        _take_step(draft, run, state, seen)


def _take_step(draft: Draft, run: DryStartRunStatus, state: DryStartState, seen: DryStartRun) -> None:
    if state.off:
        _end(draft, run, problem=NOT_AWAITED, digest="")
    elif state.fingerprint != run.digest:
        # It stands for what was there before, so the next step begins a dry start of what is there now.
        _give_up(draft, run, CHANGED)
    elif seen.problem:
        _give_up(draft, run, seen.problem)
    elif run.stage is DryStartStage.PROBE:
        _prove_fence(draft, run, seen)
    else:
        _run_copies(draft, run, seen)


def _prove_fence(draft: Draft, run: DryStartRunStatus, seen: DryStartRun) -> None:
    """Close and try the fence around the copies that wait, and let them start once nothing is reached."""
    proof = seen.proof
    if DryStartStage.COPIES not in seen.made or seen.plan is None:
        _launch_stage(draft, run)
    elif proof is None and _is_past_limit(draft, run):
        _give_up(draft, run, _past_limit(draft, "the fence around the copies could not be tried"))
    elif proof is None:
        draft.act(FenceRun(RunKind.DRY_START, run.run_id))
    elif not proof.ended:
        _follow_probe(draft, run, proof)
    elif proof.trouble:
        _give_up(draft, run, _unproven(proof))
    elif proof.reached and not accepts_unfenced(draft.spec):
        _end(draft, run, reached=proof.reached[:_MAXIMUM_SHOWN])
    else:
        proven = _enter(draft, run, DryStartStage.COPIES, reached=proof.reached[:_MAXIMUM_SHOWN])
        _run_copies(draft, proven, seen)


def _follow_probe(draft: Draft, run: DryStartRunStatus, proof: FenceProof) -> None:
    stuck = _note_stuck(draft, run, is_stuck=bool(proof.trouble))
    if stuck or _is_past_limit(draft, run):
        _give_up(draft, run, _unproven(proof))


def _unproven(proof: FenceProof) -> str:
    limit = POD_LIMIT.total_seconds()
    trouble = proof.trouble or "it did not end"
    return f"pod {proof.pod}, which proves that copies reach nothing: {trouble} (after {limit:.0f} s at most)"


def accepts_unfenced(spec: MigrationSpec) -> bool:
    """Return whether the user accepts copies that a NetworkPolicy does not close."""
    return any(accepted.code == Code.DRY_START_UNFENCED for accepted in spec.preflight.accepted)


def _run_copies(draft: Draft, run: DryStartRunStatus, seen: DryStartRun) -> None:
    """Let the copies of a stage run, and collect what they show once all have ended, are stuck, or are out of time."""
    plan = seen.plan
    if run.stage in seen.collected and plan is not None:
        following = stage_after(plan, run.stage, seen.collected, choosing=run.choosing)
        if following is None:
            _end(draft, run)
        else:
            _enter(draft, run, following)
        return
    if run.stage not in seen.made:
        _launch_stage(draft, run)
        return
    run = _record_releases(draft, run, seen.pods)
    last_release = max(run.released.values(), default=run.stage_at)
    limit = PULL_LIMIT if run.stage is DryStartStage.PULLS else POD_LIMIT
    if draft.now > last_release + 2 * limit:
        _give_up(draft, run, _past_limit(draft, "what the copies showed could not be collected"))
        return
    begun = [pod for pod in seen.pods if not pod.ended and not waits(pod, run)]
    stuck = _note_stuck(draft, run, is_stuck=bool(begun) and all(pod.trouble and not pod.gated for pod in begun))
    gated = tuple(pod.name for pod in begun if pod.gated)
    # Those that ran before the release was recorded have the time of their stage.
    if stuck or all(draft.now > run.released.get(pod.name, run.stage_at) + limit for pod in begun):
        draft.act(CollectRun(RunKind.DRY_START, run.run_id))
    elif gated:
        draft.act(ReleaseRun(RunKind.DRY_START, run.run_id, gated))


def waits(pod: RunPod, run: DryStartRunStatus) -> bool:
    """Return whether a copy waits behind its gate until another one has ended."""
    return pod.gated and pod.name not in run.released


def _record_releases(draft: Draft, run: DryStartRunStatus, pods: Sequence[RunPod]) -> DryStartRunStatus:
    """Record that copies begin, as many as there are places: one that is slow, or finds no node, holds only its own."""
    begun = {pod.name for pod in pods if not pod.ended and not waits(pod, run)}
    waiting = [pod.name for pod in pods if waits(pod, run)]
    following = waiting[: max(0, DRY_START_PARALLEL - len(begun))]
    if not following:
        return run
    present = {name: at for name, at in run.released.items() if name in begun}
    return _replace(draft, run, released={**present, **dict.fromkeys(following, draft.now)})


def _launch_stage(draft: Draft, run: DryStartRunStatus) -> None:
    """Make the pods of a stage; a launch that an interruption lost is repeated."""
    if _is_past_limit(draft, run):
        _give_up(draft, run, _past_limit(draft, "the copies could not be made"))
    else:
        draft.act(LaunchRun(RunKind.DRY_START, run.run_id))


def _note_stuck(draft: Draft, run: DryStartRunStatus, *, is_stuck: bool) -> bool:
    """Record since when no pod runs; return whether that is too long."""
    since = (run.stuck_since or draft.now) if is_stuck else None
    if since != run.stuck_since:
        _replace(draft, run, stuck_since=since)
    return since is not None and draft.now - since > STUCK_LIMIT


def _is_past_limit(step: StepContext, run: DryStartRunStatus) -> bool:
    return step.now > run.stage_at + POD_LIMIT


def _past_limit(step: StepContext, problem: str) -> str:
    return f"{problem} within {POD_LIMIT.total_seconds():.0f} s{because(step.failure())}"


def _give_up(draft: Draft, run: DryStartRunStatus, problem: str) -> None:
    _end(draft, run, problem=problem[:_MAXIMUM_TEXT])


def _enter(draft: Draft, run: DryStartRunStatus, stage: DryStartStage, **changes: object) -> DryStartRunStatus:
    return _replace(draft, run, **changes, stage=stage, stage_at=draft.now, released={}, stuck_since=None)


def _replace(draft: Draft, run: DryStartRunStatus, **changes: object) -> DryStartRunStatus:
    record = draft.status.dry_start or DryStartStatus()
    changed = run.model_copy(update=changes)
    draft.update(dry_start=record.model_copy(update={"running": changed}))
    return changed


def _end(draft: Draft, run: DryStartRunStatus, **changes: object) -> None:
    """Record how the dry start has ended, and let its pods and the report of the one before it go."""
    record = draft.status.dry_start or DryStartStatus()
    ended = DryStartStatus(
        count=record.count,
        run_id=run.run_id,
        digest=run.digest,
        generation=run.generation,
        finished_at=draft.now,
        reached=run.reached,
    )
    draft.update(dry_start=ended.model_copy(update=changes))
    remove_run(draft, RunKind.DRY_START, run.run_id, keep_report=True)
    if record.run_id:
        remove_run(draft, RunKind.DRY_START, record.run_id, keep_report=False)
