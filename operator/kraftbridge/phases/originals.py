"""The recorded original state of the brokers' StatefulSets: what its loss forbids, before a restart. Pure.

An overlay is rendered from it, and a rollback restores it. Where a template carries an overlay and neither Secret holds
the record, the operator guesses nothing: what runs goes on running, and the status says so.
"""

from __future__ import annotations

from kraftbridge.models.catalogue import Code
from kraftbridge.models.conditions import Reason, Status
from kraftbridge.models.decision import EventReason, EventType, KeepOriginal
from kraftbridge.models.observation import StatefulSetState, Unobserved
from kraftbridge.models.phase import Phase, Target
from kraftbridge.models.status import FindingStatus, OriginalStatus, before_secrets, finding
from kraftbridge.phases.draft import Draft, StepContext, Wait, for_user
from kraftbridge.phases.observed import read_sets

"""Phases in which no template is overlaid by this attempt."""


def _own_sets(step: StepContext) -> tuple[StatefulSetState, ...]:
    """Return the StatefulSets that this attempt may have overlaid, none unless all were read."""
    return read_sets(step) if step.status.changes_brokers else ()


def track(draft: Draft) -> None:
    """Record the digest of each record that both Secrets hold, and set the finding for those that are lost."""
    sets = _own_sets(draft)
    if not sets:
        return
    digests = {original.stateful_set: original.digest for original in draft.status.originals}
    for stateful_set in sets:
        original = stateful_set.original
        if original.digest and original.complete:
            digests[stateful_set.name] = original.digest
        elif not original.digest and not stateful_set.overlay:
            digests.pop(stateful_set.name, None)  # the template is the user's own again, and is recorded anew
    if digests != {original.stateful_set: original.digest for original in draft.status.originals}:
        named = sorted(digests.items())
        draft.update(originals=tuple(OriginalStatus(stateful_set=name, digest=digest) for name, digest in named))
    _set_findings(draft)


def keep(draft: Draft) -> None:
    """Write a record into the Secret that lacks it."""
    first, second = _secrets(draft)
    for stateful_set in _own_sets(draft):
        original = stateful_set.original
        if stateful_set.lock != draft.identity.lock or not original.digest or original.complete:
            continue
        draft.act(KeepOriginal(stateful_set.name))
        if not draft.failure():
            message = (
                f"Secret {first} or {second} lost the original state of StatefulSet {stateful_set.name}; "
                "it is written anew from the other one"
            )
            draft.tell(EventReason.ALARM, message, EventType.WARNING)


def lost(step: StepContext) -> tuple[StatefulSetState, ...]:
    """Return the StatefulSets that carry an overlay, and whose original state neither Secret holds; none given back."""
    gone = tuple(s for s in _own_sets(step) if s.overlay and not s.original.digest)
    if step.status.phase.row.gives_back:
        return tuple(s for s in gone if s.lock == step.identity.lock)
    return gone


def blocked(step: StepContext) -> Wait | None:
    """Return the wait while the original state of a StatefulSet is lost, None when none is.

    Finalizing gives the way back up anyway. So where every broker runs KRaft, the user's word for it is enough.
    On the way to Kafka 4 and back the record has the image of before.
    """
    phase = step.status.phase
    rolls_images = phase.row.on_kafka4 and not phase.row.gives_back
    if not (phase.reversible or rolls_images) or (
        phase is Phase.AWAITING_FINALIZATION and step.spec.target is Target.KRAFT
    ):
        return None
    gone = lost(step)
    return wait(step, gone[0]) if gone else None


def wait(step: StepContext, item: StatefulSetState) -> Wait:
    """Return the wait for the user to restore the original state of a StatefulSet."""
    lost_original = _finding(step, item)
    return for_user(f"{lost_original.object}: {lost_original.reason}. {lost_original.fix}", Reason.ORIGINALS_LOST)


def possible(step: StepContext) -> tuple[Status, Reason, str] | None:
    """Return status, reason and message of ``RollbackPossible`` where the records decide it, None otherwise."""
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
    findings = tuple(_finding(draft, stateful_set) for stateful_set in lost(draft))
    reported = {f.object for f in draft.status.findings if f.code == Code.ORIGINALS_LOST}
    for new in findings:
        if new.object not in reported:
            draft.tell(EventReason.ALARM, f"{new.object}: {new.reason}", EventType.WARNING)
    draft.set_findings(Code.ORIGINALS_LOST, *findings)
