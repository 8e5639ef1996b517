"""The certificates and logins of the controllers' listener that the operator issues: when they are created and renewed, and what keeps a controller from restarting. Pure.

A renewed certificate comes from the same authority, so controllers with the old and with the new one trust each other, and no broker needs new trust. No renewal changes a login.
"""

from __future__ import annotations

from dataclasses import replace

from kraftbridge.models.conditions import Reason
from kraftbridge.models.decision import EventReason, EventType, IssueListenerCertificates
from kraftbridge.models.issued import IssuedListener
from kraftbridge.models.observation import NOT_NEEDED, Unobserved
from kraftbridge.models.phase import Phase
from kraftbridge.models.status import ListenerCertificatesStatus, WaitKind
from kraftbridge.phases.draft import Draft, StepContext, Wait


def track(draft: Draft) -> None:
    """Record the Secrets, and report once what is wrong with one of them."""
    seen = draft.observation.issued
    if not draft.spec.controllers.listener.generate:
        draft.update(listener_certificates=None)
        return
    if seen is None or isinstance(seen, Unobserved):
        return
    problem = "; ".join(seen.problems)
    known = draft.status.listener_certificates
    if problem and (known is None or known.problem != problem) and draft.status.phase is not Phase.PREFLIGHT:
        draft.tell(EventReason.ALARM, f"{problem}. {way_out(seen)}", EventType.WARNING)
    recorded = ListenerCertificatesStatus(
        authority_secret=seen.authority.name,
        controllers_secret=seen.controllers.name,
        brokers_secret=seen.brokers.name,
        controllers_expire_at=seen.controllers.expires_at,
        brokers_expire_at=seen.brokers.expires_at,
        problem=problem[:1024],
    )
    draft.update(listener_certificates=recorded)


def ensure_issued(draft: Draft) -> Wait | None:
    """Create the Secrets in Preflight, before any pod needs one; return None once they exist or a finding says what is wrong."""
    seen = draft.observation.issued
    if not draft.spec.controllers.listener.generate:
        return None
    if seen is None or isinstance(seen, Unobserved):
        return Wait(f"the certificates of the controllers' listener could not be observed: {seen}")
    if seen.problems or all(s.exists for s in seen.secrets):
        _launch_renewal(draft, seen)
        return None
    draft.act(IssueListenerCertificates())
    failed = _failure(draft)
    return Wait(f"the certificates of the controllers' listener are being issued{failed}", stalled=bool(failed))


def keep_issued(draft: Draft) -> None:
    """Renew what is due once there are controllers, and issue anew what was deleted, by the same authority.

    A pause holds a renewal back, after which the controllers restart. What was deleted returns in a pause as everything else that was: without it no pod starts.
    """
    seen = draft.observation.issued
    if draft.status.controllers is None or seen is None or isinstance(seen, Unobserved):
        return
    if draft.status.phase in (Phase.PREFLIGHT, Phase.ROLLED_BACK) or not seen.authority_holds:
        return
    if not draft.spec.controllers.listener.generate:
        return
    lost = [s.name for s in seen.secrets if not s.exists]
    if not lost:
        if not draft.spec.paused:
            _launch_renewal(draft, seen)
        return
    if not _failure(draft):
        draft.tell(
            EventReason.ALARM,
            f"Secret {', '.join(lost)} is gone: it is issued anew by the same authority",
            EventType.WARNING,
        )
    draft.act(IssueListenerCertificates())


def roll_blocker(step: StepContext) -> Wait | None:
    """Return why no controller may restart: with what the Secret holds now it would not come back, or nobody knows what it holds."""
    seen = step.observation.issued
    if seen is None or step.status.phase is Phase.ROLLING_BACK:
        return None
    if isinstance(seen, Unobserved):
        return Wait(
            f"no controller restarts: the certificates of the controllers' listener could not be observed: {seen}"
        )
    if not seen.controllers.problem:
        return None
    message = f"no controller restarts: Secret {seen.controllers.name}: {seen.controllers.problem}. {way_out(seen)}"
    return Wait(message, WaitKind.USER, Reason.FINDINGS, stalled=True)


def explained(step: StepContext, waiting: Wait) -> Wait:
    """Return the wait with what is wrong with the issued Secrets, if the controllers do not answer.

    Without the controllers' Secret the operator trusts no controller. If it cannot issue the Secret anew, the migration is stalled.
    """
    seen, quorum = step.observation.issued, step.observation.quorum
    if not isinstance(seen, IssuedListener) or not isinstance(quorum, Unobserved) or quorum == NOT_NEEDED:
        return waiting
    unconcerned = step.status.phase.at_rest or step.status.phase is Phase.ROLLING_BACK
    if step.status.controllers is None or unconcerned or waiting.stalled or waiting.reached:
        return waiting
    lost = not seen.controllers.exists and not seen.authority_holds
    if not lost and not seen.controllers.problem:
        return waiting
    problems = [f"Secret {seen.controllers.name} does not exist"] if lost else []
    words = "; ".join([*problems, *seen.problems])
    message = f"{words}. {way_out(seen)}. {waiting.message}"
    return replace(waiting, message=message, kind=WaitKind.USER, reason=Reason.FINDINGS, stalled=True)


def way_out(seen: IssuedListener) -> str:
    """Return what the user does about the problems."""
    broken = [s.name for s in (seen.controllers, seen.brokers) if s.problem]
    if seen.authority_holds:
        return f"Delete Secret {' and '.join(broken)}: the operator issues it anew"
    return f"Restore Secret {seen.authority.name} from a backup: controllers and brokers run with what it issued"


def _launch_renewal(draft: Draft, seen: IssuedListener) -> None:
    due = [s.name for s in seen.secrets if s.due and not s.problem]
    if not due or not seen.authority_holds:
        return
    if not _failure(draft):
        draft.tell(EventReason.CERTIFICATES_RENEWED, f"The certificate in Secret {', '.join(due)} is being renewed")
    draft.act(IssueListenerCertificates())


def _failure(step: StepContext) -> str:
    """Return why the last attempt failed, as the end of a sentence."""
    name = IssueListenerCertificates.__name__
    return next((f": {o.error}" for o in step.observation.outcomes if o.action == name and o.error), "")
