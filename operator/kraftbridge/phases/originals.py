"""The recorded original state of the brokers' StatefulSets: what its loss forbids, before anything is restarted. Pure.

An overlay is rendered from it, and a rollback restores it. Where a template carries an overlay and neither Secret holds the record, the operator
guesses nothing: what runs goes on running, and the status says so.
"""

from __future__ import annotations

from kraftbridge.models.catalogue import Code
from kraftbridge.models.conditions import Reason, Status
from kraftbridge.models.decision import EventReason, EventType, KeepOriginal
from kraftbridge.models.observation import StatefulSetState, Unobserved
from kraftbridge.models.phase import Phase, Target
from kraftbridge.models.status import FindingStatus, OriginalStatus, WaitKind, before_secrets, finding
from kraftbridge.phases.draft import SLOW, Draft, StepContext, Wait

_WITHOUT = frozenset({Phase.PREFLIGHT, Phase.PROVISIONING_QUORUM, Phase.ROLLED_BACK})
"""Phases in which no template is overlaid by this attempt."""


def track(draft: Draft) -> None:
    """Record the digest of each record that both Secrets hold, keep both of them whole, and set the finding for those that are lost."""
    sets = draft.stateful_sets()
    if isinstance(sets, Unobserved) or draft.status.phase in _WITHOUT:
        return
    known = {o.stateful_set: o.digest for o in draft.status.originals}
    for item in sets:
        seen = item.original
        if seen.digest and seen.complete:
            known[item.name] = seen.digest
        elif not seen.digest and not item.overlay:
            known.pop(item.name, None)  # the template is the user's own again, and is recorded anew
    originals = tuple(OriginalStatus(stateful_set=name, digest=digest) for name, digest in sorted(known.items()))
    if originals != draft.status.originals:
        draft.update(originals=originals)
    _set_findings(draft)


def keep(draft: Draft) -> None:
    """Write a record into the Secret that lacks it."""
    sets = draft.stateful_sets()
    if isinstance(sets, Unobserved) or draft.status.phase in _WITHOUT:
        return
    for item in sets:
        if item.lock == draft.identity.lock and item.original.digest and not item.original.complete:
            draft.act(KeepOriginal(item.name))
            if not draft.failure():
                first, second = _secrets(draft)
                message = f"Secret {first} or {second} lost the original state of StatefulSet {item.name}; it is written anew from the other one"
                draft.tell(EventReason.ALARM, message, EventType.WARNING)


def lost(step: StepContext) -> tuple[StatefulSetState, ...]:
    """Return the StatefulSets whose template carries an overlay, and whose original state neither Secret holds; none that was given back."""
    sets, phase = step.stateful_sets(), step.status.phase
    if isinstance(sets, Unobserved) or phase in _WITHOUT:
        return ()
    gone = (s for s in sets if s.overlay and not s.original.digest)
    return tuple(s for s in gone if phase is not Phase.COMPLETED or s.lock == step.identity.lock)


def blocked(step: StepContext) -> Wait | None:
    """Return the wait while the original state of a StatefulSet is lost, None when none is.

    Finalizing gives the way back up anyway. So where every broker runs KRaft, the user's word for it is enough.
    """
    phase = step.status.phase
    finishes = not phase.reversible or (phase is Phase.AWAITING_FINALIZATION and step.spec.target is Target.KRAFT)
    gone = lost(step)
    if not gone or finishes:
        return None
    return wait(step, gone[0])


def wait(step: StepContext, item: StatefulSetState) -> Wait:
    """Return the wait for the user to restore the original state of a StatefulSet."""
    made = _finding(step, item)
    message = f"{made.object}: {made.reason}. {made.fix}"
    return Wait(message, WaitKind.USER, Reason.ORIGINALS_LOST, stalled=True, requeue_after=SLOW)


def possible(step: StepContext) -> tuple[Status, Reason, str] | None:
    """Return status, reason and message of ``RollbackPossible`` where the records decide it, None where they are there."""
    sets = step.stateful_sets()
    if isinstance(sets, Unobserved):
        return "Unknown", Reason.UNKNOWN, f"The original state of the StatefulSets was not read: {sets}"
    gone = lost(step)
    if not gone:
        return None
    return "False", Reason.ORIGINALS_LOST, wait(step, gone[0]).message


def _secrets(step: StepContext) -> tuple[str, str]:
    return before_secrets(step.identity.name, step.identity.uid, step.status.attempt)


def _finding(step: StepContext, item: StatefulSetState) -> FindingStatus:
    first, second = _secrets(step)
    return finding(Code.ORIGINALS_LOST, f"StatefulSet/{item.name}", first=first, second=second)


def _set_findings(draft: Draft) -> None:
    made = tuple(_finding(draft, item) for item in lost(draft))
    known = {f.object for f in draft.status.findings if f.code == Code.ORIGINALS_LOST}
    for each in made:
        if each.object not in known:
            draft.tell(EventReason.ALARM, f"{each.object}: {each.reason}", EventType.WARNING)
    draft.set_findings(Code.ORIGINALS_LOST, *made)
