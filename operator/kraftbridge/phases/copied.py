"""The gate of DualWrite: the log holds everything that ZooKeeper held when Kafka copied it. Pure.

Kafka's sync deletes from ZooKeeper whatever the log lacks (``KRaftMigrationDriver``, SYNC_KRAFT_TO_ZK), so only a tree that was read
before it can show what the copy has lost. A run of profile `copy` therefore keeps the tree from before the last broker's restart, which
starts the copy, reads it again while Kafka copies, and compares once the cluster is in dual-write.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from kraftbridge.models.conditions import Reason
from kraftbridge.models.phase import Phase
from kraftbridge.models.report import Profile, Verdict
from kraftbridge.models.status import VerificationStatus, WaitKind
from kraftbridge.phases import verifying
from kraftbridge.phases.draft import Draft, StepContext, Wait

_WAY_OUT = "set spec.verification.acceptedCopy to {run_id}, which takes that upon you, or spec.target to ZooKeeper"
_SLOW = timedelta(seconds=5)


def ensure_tree_watched(draft: Draft) -> Wait | None:
    """Return None once the tree from before the takeover is kept and watched, else what the last broker's restart waits for."""
    if accepted(draft):
        return None
    waiting = verifying.ensure_armed(draft, Profile.COPY, Phase.DUAL_WRITE, _purpose(draft))
    return None if waiting is None else replace(waiting, message=f"before the last broker restarts: {waiting.message}")


def keep_watching(draft: Draft) -> None:
    """Begin to watch when the roll begins, and again when a watch has ended: what it has read is on its volume.

    A broker that falls over comes back in migration mode without us, so the copy may start before the last restart of ours.
    A watch needs no JVM, so it may start beside a broker that restarts.
    """
    if not accepted(draft):
        verifying.relaunch_ended(draft, Profile.COPY, Phase.DUAL_WRITE, _purpose(draft))


def ensure_nothing_lost(draft: Draft) -> Wait | None:
    """Return None when the copy lost nothing, or the user accepts what it lost; else what is being waited for."""
    record = _record(draft)
    if accepted(draft) or (record is not None and record.verdict is Verdict.CONSISTENT):
        return None
    if record is not None and record.verdict is Verdict.INCONSISTENT:
        message = (
            f"The copy lost or changed {record.differing} entities ({record.reason}); ConfigMap {record.report} lists them. "
            f"Make them again with Kafka's tools, then {_WAY_OUT.format(run_id=record.run_id)}"
        )
        return Wait(message, WaitKind.USER, Reason.INCONSISTENT, stalled=True, requeue_after=_SLOW)
    waiting = verifying.ensure_verdict(draft, Profile.COPY, Phase.DUAL_WRITE, _purpose(draft))
    if waiting is None or not waiting.stalled or record is None:
        return waiting
    advice = f"compare what ConfigMap {record.report} lists by hand, then {_WAY_OUT.format(run_id=record.run_id)}"
    return replace(waiting, message=f"{waiting.message}; {advice}")


def accepted(step: StepContext) -> bool:
    """Whether the user accepts the newest verdict; a loss only by the run that found it."""
    wanted = step.spec.verification.accepted_copy
    runs = [v for v in step.status.verifications if _is_ours(step, v) and v.finished_at is not None]
    if wanted is None or not any(v.run_id == wanted for v in runs):
        return False
    losses = [v for v in runs if v.verdict is Verdict.INCONSISTENT]
    return not losses or losses[-1].run_id == wanted


def _record(step: StepContext) -> VerificationStatus | None:
    return verifying.latest(step, Profile.COPY, Phase.DUAL_WRITE, _purpose(step))


def _is_ours(step: StepContext, record: VerificationStatus) -> bool:
    return record.profile is Profile.COPY and record.purpose == _purpose(step)


def _purpose(step: StepContext) -> str:
    """Tell the attempts apart: a copy is verified once, and a verdict about an earlier one says nothing."""
    return f"attempt-{step.status.attempt}"
