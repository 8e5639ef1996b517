"""The certificates and logins of the controllers' listener that the operator issues. Pure.

It creates and renews them, and keeps a controller from restarting that would not come back with them. A renewed
certificate comes from the same authority, so controllers with the old and with the new one trust each other, and no
broker needs new trust. No renewal changes a login.
"""

from __future__ import annotations

from dataclasses import replace

from kraftbridge.models.conditions import Reason
from kraftbridge.models.decision import EventReason, EventType, IssueListenerCertificates
from kraftbridge.models.issued import IssuedListener
from kraftbridge.models.observation import NOT_NEEDED, Unobserved
from kraftbridge.models.phase import Phase
from kraftbridge.models.status import ListenerCertificatesStatus, WaitKind
from kraftbridge.phases import presented
from kraftbridge.phases.draft import Draft, StepContext, Wait


def _issued(step: StepContext) -> IssuedListener | None:
    """Return the Secrets, None while they are not known, and where the operator issues none."""
    issued = step.observation.issued
    if isinstance(issued, Unobserved) or not step.spec.controllers.listener.generate:
        return None
    return issued


def track(draft: Draft) -> None:
    """Record the Secrets, and report once what is wrong with one of them."""
    issued = _issued(draft)
    if issued is None:
        if not draft.spec.controllers.listener.generate:
            draft.update(listener_certificates=None)
        return
    problem = "; ".join(issued.problems)
    recorded = draft.status.listener_certificates
    reported = "" if recorded is None else recorded.problem
    if problem not in ("", reported) and draft.status.phase is not Phase.PREFLIGHT:
        draft.tell(EventReason.ALARM, f"{problem}. {way_out(issued)}", EventType.WARNING)
    facts = {
        "authority_secret": issued.authority.name,
        "controllers_secret": issued.controllers.name,
        "brokers_secret": issued.brokers.name,
        "controllers_expire_at": issued.controllers.expires_at,
        "brokers_expire_at": issued.brokers.expires_at,
        "problem": problem[:1024],
    }
    known = ListenerCertificatesStatus(**facts) if recorded is None else recorded.model_copy(update=facts)
    if not known.authority_key or draft.status.phase.row.is_open:
        known = known.model_copy(update={"authority_key": issued.authority_key})
    draft.update(listener_certificates=presented.with_brokers(draft, issued, known))


def ensure_issued(draft: Draft) -> Wait | None:
    """Create the Secrets before any pod needs one; return None once they exist or a finding says what is wrong."""
    if not draft.spec.controllers.listener.generate:
        return None
    issued = _issued(draft)
    if issued is None:
        words = draft.observation.issued
        return Wait(f"the certificates of the controllers' listener could not be observed: {words}")
    if issued.problems or not _lost(issued):
        _launch_renewal(draft, issued)
        return None
    draft.act(IssueListenerCertificates())
    because = _failure(draft)
    return Wait(f"the certificates of the controllers' listener are being issued{because}", stalled=bool(because))


def keep_issued(draft: Draft) -> None:
    """Renew what is due once there are controllers, and issue anew what was deleted, by the same authority.

    So it does in a pause, too, which holds only the restarts back: what a Secret holds changes no process.
    """
    issued = _issued(draft)
    without_controllers = draft.status.controllers is None or draft.status.phase.row.is_open
    if without_controllers or issued is None or not issued.authority_holds:
        return
    lost = _lost(issued)
    if lost:
        message = f"Secret {', '.join(lost)} is gone: it is issued anew by the same authority"
        _launch_issue(draft, EventReason.ALARM, message, EventType.WARNING)
    else:
        _launch_renewal(draft, issued)


def roll_blocker(step: StepContext) -> Wait | None:
    """Return why no controller may restart: it would not come back with what the Secret holds, or may hold, now."""
    issued = step.observation.issued
    if issued is None or step.status.phase is Phase.ROLLING_BACK:
        return None
    if isinstance(issued, Unobserved):
        return Wait(
            f"no controller restarts: the certificates of the controllers' listener could not be observed: {issued}"
        )
    if not issued.controllers.problem:
        return None
    problem = f"Secret {issued.controllers.name}: {issued.controllers.problem}"
    message = f"no controller restarts: {problem}. {way_out(issued)}"
    return Wait(message, WaitKind.USER, Reason.FINDINGS, stalled=True)


def explained(step: StepContext, waiting: Wait) -> Wait:
    """Return the wait with what is wrong with the issued Secrets, if the controllers do not answer.

    Without the controllers' Secret the operator trusts no controller.
    If it cannot issue the Secret anew, the migration is stalled.
    """
    issued = step.observation.issued
    if not isinstance(issued, IssuedListener) or waiting.stalled or waiting.reached or not _is_silent(step):
        return waiting
    problems = [*issued.problems]
    if not issued.controllers.exists and not issued.authority_holds:
        problems.insert(0, f"Secret {issued.controllers.name} does not exist")
    elif not issued.controllers.problem:
        return waiting
    message = f"{'; '.join(problems)}. {way_out(issued)}. {waiting.message}"
    return replace(waiting, message=message, kind=WaitKind.USER, reason=Reason.FINDINGS, stalled=True)


def _is_silent(step: StepContext) -> bool:
    """Return whether controllers that the migration needs do not answer."""
    quorum = step.observation.quorum
    if step.status.controllers is None or step.status.phase.at_rest or step.status.phase is Phase.ROLLING_BACK:
        return False
    return isinstance(quorum, Unobserved) and quorum != NOT_NEEDED


def way_out(seen: IssuedListener) -> str:
    """Return what the user does about the problems."""
    if seen.authority_holds:
        broken = [secret.name for secret in (seen.controllers, seen.brokers) if secret.problem]
        return f"Delete Secret {' and '.join(broken)}: the operator issues it anew"
    return f"Restore Secret {seen.authority.name} from a backup: controllers and brokers run with what it issued"


def _lost(issued: IssuedListener) -> list[str]:
    return [secret.name for secret in issued.secrets if not secret.exists]


def _launch_renewal(draft: Draft, issued: IssuedListener) -> None:
    due = [secret.name for secret in issued.secrets if secret.due and not secret.problem]
    if due and issued.authority_holds:
        message = f"The certificate in Secret {', '.join(due)} is being renewed"
        _launch_issue(draft, EventReason.CERTIFICATES_RENEWED, message)


def _launch_issue(draft: Draft, reason: EventReason, message: str, kind: EventType = EventType.NORMAL) -> None:
    """Issue what is due or lost; a repetition after a failure is not reported again."""
    if not _failure(draft):
        draft.tell(reason, message, kind)
    draft.act(IssueListenerCertificates())


def _failure(step: StepContext) -> str:
    """Return why the last attempt failed, as the end of a sentence."""
    name = IssueListenerCertificates.__name__
    return next((f": {o.error}" for o in step.observation.outcomes if o.action == name and o.error), "")
