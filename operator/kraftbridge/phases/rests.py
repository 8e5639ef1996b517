"""What must hold while a migration rests at its target, for hours or for weeks. Pure.

A rest is a claim: everything up to the target is done, and it works.
Each look proves it by the gates in the phase's row.
A gate that closes makes ``Ready`` False, and leaves the phase as it is: only the user's word leads on or back.
The verification of a rest is repeated when what the last verdict was about has changed, or once a day
(`verifying.keep_verified`); it needs no answer before the user asks for a forward step, whose gate wants a fresh one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Final

from kraftbridge.models.conditions import ConditionType, Reason, condition
from kraftbridge.models.phase import LAST_PHASE, Phase, RestGate
from kraftbridge.models.report import Profile
from kraftbridge.models.status import MigrationStatus, WaitKind, first
from kraftbridge.phases import belongings, gates, verifying
from kraftbridge.phases.draft import SLOW, Draft, StepContext, Wait

SETTLES: Final = timedelta(seconds=15)
"""How long a rest stays Ready while a gate is closed: one missed look, an election or a reconnection is no news."""
LOOK_AGAIN: Final = timedelta(seconds=3)
"""When to look again meanwhile."""
_SHOWN: Final = 3

Gate = Callable[[StepContext], gates.Blockers]
_GATES: Final[Mapping[RestGate, Gate]] = {
    RestGate.QUORUM: gates.quorum_blockers,
    RestGate.REGISTRATIONS: gates.broker_registration_blockers,
    RestGate.CLUSTER: gates.cluster_blockers,
    RestGate.LEADERS: gates.leader_blockers,
}


def is_here(step: StepContext) -> bool:
    """Return whether the migration has come as far as its user lets it."""
    return step.status.phase is LAST_PHASE[step.spec.target]


def gates_at(status: MigrationStatus) -> tuple[Gate, ...]:
    """Return the gates that hold at the rest in a phase; none where nothing of ours runs."""
    if belongings.wanted(status.phase, status) is None and status.phase is not Phase.UPGRADING_BROKERS:
        return ()
    row = status.phase.row
    mirror = (gates.dual_write_blockers,) if row.mirrors else ()
    return (*(_GATES[gate] for gate in row.rests_on), *mirror)


def blockers(step: StepContext) -> gates.Blockers:
    """Return what must hold at the rest and does not."""
    return [blocker for gate in gates_at(step.status) for blocker in gate(step)]


def ensure_verdict(draft: Draft, profile: Profile, gate: Phase, purpose: str = verifying.ENTRY) -> Wait | None:
    """Return None when a verdict opens a gate: a fresh one on the way, the last one at a rest."""
    if is_here(draft):
        return verifying.keep_verified(draft, profile, gate, purpose, holds=not blockers(draft))
    return verifying.ensure_verdict(draft, profile, gate, purpose)


def judge_rest(draft: Draft, waiting: Wait) -> Wait:
    """Return the wait of a migration that came to rest as it is now: Ready only while the rest's gates hold."""
    standing = blockers(draft) if waiting.reached else []
    if not is_here(draft) or (waiting.reached and not standing):
        draft.update(degraded_since=None)
        return waiting
    passing = waiting.reached or (
        not waiting.stalled and waiting.kind in (WaitKind.WORK, WaitKind.VERIFICATION) and _was_ready(draft)
    )
    if not passing:
        return waiting  # on its way to the rest, or somebody must decide
    since = draft.status.degraded_since or draft.now
    draft.update(degraded_since=since)
    # A clock that was set back proves nothing.
    is_new = timedelta(0) <= draft.now - since < SETTLES
    if is_new and _was_ready(draft) and draft.status.operation is None:
        return _as_before(draft)
    if not waiting.reached:
        return waiting
    message = (
        f"Target {draft.spec.target} was reached, and does not hold now: {first(standing, _SHOWN)}. Mend this; "
        f"phase {draft.status.phase} stays meanwhile, and Ready becomes True again by itself"
    )
    return Wait(message, reason=Reason.DEGRADED, requeue_after=SLOW)


def _was_ready(step: StepContext) -> bool:
    """Return whether the last step called this generation Ready."""
    former = condition(step.status.conditions, ConditionType.READY)
    if former is None or former.status != "True":
        return False
    return former.observed_generation == step.identity.generation


def _as_before(step: StepContext) -> Wait:
    """Return the wait of the last step, which was at rest."""
    former = condition(step.status.conditions, ConditionType.READY)
    message = step.status.message if former is None else former.message
    reason = Reason.TARGET_REACHED if former is None else former.reason
    return Wait(message, WaitKind.USER, reason, requeue_after=LOOK_AGAIN)
