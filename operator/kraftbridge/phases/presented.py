"""The certificates that running controllers present, and that running brokers have loaded. Pure.

A renewed Secret changes no process: Kafka reads a key store when it starts. So what counts is the certificate of each
process. That of a controller is read at its listener. What a broker presents nobody but a controller sees, so it is
known from its start: it has what its Secret held then.

Whether a certificate has ended is judged by the API server's clock, which neither side of a connection can set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from kraftbridge.models.conditions import ConditionType, Reason, Status
from kraftbridge.models.issued import IssuedListener, IssuedSecret, PresentedCertificate
from kraftbridge.models.observation import NOT_NEEDED, ControllersWorkload, PodState, Unobserved
from kraftbridge.models.status import HeldCertificate, ListenerCertificatesStatus, PresentedStatus, first
from kraftbridge.phases import observed
from kraftbridge.phases.draft import Draft, StepContext, Wait

WARNED_BEFORE: Final = timedelta(days=14)
"""How long before the end of a process's certificate somebody is asked for help."""
WARNED_PART: Final = 4
"""Of a short lifetime, the part before its end. A renewal is due at its last third."""
MOUNTED_WITHIN: Final = timedelta(minutes=3)
"""How long a container that starts may still find the former content of a Secret.
The kubelet updates a mounted Secret within its sync period and the age of its cache (Kubernetes, "Secrets")."""
ISSUED_BEFORE: Final = timedelta(minutes=5)
"""By how much an issued certificate is valid before it is issued (`kraftbridge.listener.authority`)."""
_HELD: Final = 4
_NAMED: Final = 10


@dataclass(frozen=True, slots=True)
class Ending:
    """The certificate of running processes that ends first."""

    who: str
    begins_at: datetime | None
    ends_at: datetime
    mend: str


def has_tls(step: StepContext) -> bool:
    """Return whether the controllers' listener presents a certificate."""
    return step.spec.controllers.listener.security_protocol.endswith("SSL")


def secret_of_controllers(step: StepContext) -> IssuedSecret | None:
    """Return the certificate in the controllers' Secret, None while it is not known."""
    issued = step.observation.issued
    if step.spec.controllers.listener.generate:
        return issued.controllers if isinstance(issued, IssuedListener) else None
    brought = step.observation.brought
    return None if isinstance(brought, Unobserved) else brought


# ------------------------------------------------------------------------------------------- what was seen


def track(draft: Draft) -> None:
    """Record what each controller presents, and set the condition ``CertificatesValid``."""
    running = draft.status.controllers is not None and not draft.status.phase.row.is_open
    records = _presented(draft) if running and has_tls(draft) else ()
    draft.update(presented=records)
    said: tuple[Status, Reason, str] = ("Unknown", Reason.NOT_STARTED, "No controller runs")
    if running and not has_tls(draft):
        said = ("Unknown", Reason.NOT_ASKED, "The controllers' listener has no certificate")
    elif running and draft.observation.presented != NOT_NEEDED:  # else the controllers are stopping
        said = _condition(draft)
    draft.set_condition(ConditionType.CERTIFICATES_VALID, *said)


def _presented(step: StepContext) -> tuple[PresentedStatus, ...]:
    """Return the certificates of the running controllers, of those that were not read now as they were read before."""
    known = step.status.presented
    if not isinstance(step.observation.controllers, ControllersWorkload):
        return known
    former = {record.node_id: record for record in known}
    records = (_record_of(step, pod, former.get(pod.ordinal)) for pod in observed.controllers_pods(step))
    found = tuple(record for record in records if record is not None)
    return known if found == known else found


def _record_of(step: StepContext, pod: PodState, former: PresentedStatus | None) -> PresentedStatus | None:
    readings = step.observation.presented
    seen = None if isinstance(readings, Unobserved) else readings.get(pod.ordinal)
    if not isinstance(seen, PresentedCertificate) or seen.process != pod.process:
        return former if former is not None and former.process == pod.process else None
    if former is not None and (former.process, former.fingerprint) == (seen.process, seen.fingerprint):
        return former
    return PresentedStatus(
        node_id=pod.ordinal,
        process=seen.process,
        fingerprint=seen.fingerprint,
        begins_at=seen.begins_at,
        expires_at=seen.ends_at,
        seen_at=step.now,
    )


def with_brokers(
    step: StepContext, issued: IssuedListener, recorded: ListenerCertificatesStatus
) -> ListenerCertificatesStatus:
    """Return the record of the issued Secrets with what the running brokers have loaded of theirs."""
    held = _held(step, issued.brokers, recorded.held_by_brokers)
    recorded = recorded.model_copy(update={"held_by_brokers": held})
    if step.spec.controllers.listener.security_protocol != "SSL" or not held:
        return recorded  # brokers that log in present no certificate
    pods = _brokers_with_listener(step)
    if pods is None:
        return recorded
    loaded = {pod.name: _loaded(pod, held) for pod in pods}
    ends = [certificate.expires_at for certificate in loaded.values() if certificate and certificate.expires_at]
    behind = [name for name, certificate in loaded.items() if certificate != held[-1]]
    return recorded.model_copy(
        update={"brokers_run_until": min(ends, default=None), "brokers_to_restart": tuple(sorted(behind)[:_NAMED])}
    )


def _held(step: StepContext, secret: IssuedSecret, held: tuple[HeldCertificate, ...]) -> tuple[HeldCertificate, ...]:
    """Return the certificates of the brokers' Secret with the present one at the end."""
    if not secret.fingerprint or (held and held[-1].fingerprint == secret.fingerprint):
        return held
    since = step.now
    if not held and secret.begins_at is not None:
        since = min(since, secret.begins_at + ISSUED_BEFORE)
    present = HeldCertificate(
        fingerprint=secret.fingerprint, begins_at=secret.begins_at, expires_at=secret.expires_at, since=since
    )
    return (*held, present)[-_HELD:]


def _brokers_with_listener(step: StepContext) -> list[PodState] | None:
    """Return the pods of the brokers that connect to the controllers, None while they are not known."""
    phase = step.status.phase
    if phase.row.brokers is None or not phase.row.brokers.registers:
        return []
    if isinstance(step.stateful_sets(), Unobserved):
        return None
    return [pod for pod in observed.broker_pods(step) if pod.configuration or phase.row.gives_back]


def _loaded(pod: PodState, held: Sequence[HeldCertificate]) -> HeldCertificate | None:
    """Return the certificate that a broker found in its Secret when it started, None if that is not known.

    In doubt it is the older one.
    """
    if pod.seen_since is None:
        return None
    for number, certificate in reversed(list(enumerate(held))):
        sure = MOUNTED_WITHIN if number else timedelta(0)
        if pod.seen_since >= certificate.since + sure:
            return certificate
    return None


# ------------------------------------------------------------------------------------------- what it means


def expired(step: StepContext) -> tuple[PresentedStatus, ...]:
    """Return the running controllers whose certificate has ended by the API server's clock; none while that is unknown.

    A process that has not restarted presents what it presented when it was read.
    """
    now = observed.server_time(step)
    if now is None or not isinstance(step.observation.controllers, ControllersWorkload):
        return ()
    return tuple(record for record in step.status.presented if record.expires_at <= now)


def unread(step: StepContext) -> list[str]:
    """Return the controllers that run and whose certificate could not be read."""
    known = {record.node_id for record in step.status.presented}
    readings = step.observation.presented
    problems = []
    for pod in observed.controllers_pods(step):
        if pod.ordinal in known or pod.down:
            continue
        reading = readings if isinstance(readings, Unobserved) else readings.get(pod.ordinal)
        problems.append(str(reading or Unobserved(f"certificate of controller {pod.ordinal}", "it was not read")))
    return problems


def endings(step: StepContext) -> list[Ending]:
    """Return the end of the certificates of controllers and of brokers, the first one first."""
    found = []
    if step.status.presented:
        soonest = min(step.status.presented, key=lambda record: record.expires_at)
        same = [str(r.node_id) for r in step.status.presented if r.expires_at == soonest.expires_at]
        found.append(
            Ending(f"controller {', '.join(same)}", soonest.begins_at, soonest.expires_at, _mend_controllers(step))
        )
    issued = step.status.listener_certificates
    if issued is not None and issued.brokers_run_until is not None:
        of_end = (held.begins_at for held in issued.held_by_brokers if held.expires_at == issued.brokers_run_until)
        names = first(issued.brokers_to_restart)
        mend = f"Restart these brokers one at a time: Secret {issued.brokers_secret} holds a renewed one"
        if not names:
            names = "the brokers"
            mend = f"Secret {issued.brokers_secret} holds no newer one"
        found.append(Ending(names, next(of_end, None), issued.brokers_run_until, mend))
    return sorted(found, key=lambda ending: ending.ends_at)


def _mend_controllers(step: StepContext) -> str:
    secret = secret_of_controllers(step)
    in_use = {record.fingerprint for record in step.status.presented}
    if secret is None or not secret.fingerprint or secret.fingerprint in in_use:
        return "Renew the certificate in the controllers' Secret"
    if step.spec.paused:
        return f"Secret {secret.name} holds a renewed one; no controller restarts while spec.paused is true"
    return f"Secret {secret.name} holds a renewed one, with which no controller could be restarted yet"


def ends_soon(step: StepContext, ends: Sequence[Ending]) -> list[Ending]:
    """Return those of the `endings` that are past, or so near that somebody must help."""
    now = observed.server_time(step) or step.now
    return [ending for ending in ends if ending.ends_at - now <= _warned_before(ending)]


def _warned_before(ending: Ending) -> timedelta:
    if ending.begins_at is None:
        return WARNED_BEFORE
    return min(WARNED_BEFORE, (ending.ends_at - ending.begins_at) / WARNED_PART)


def described(step: StepContext, ending: Ending) -> str:
    """Return the end of a certificate as a sentence."""
    now = observed.server_time(step) or step.now
    verb = "ended" if ending.ends_at <= now else "ends"
    at = f"{ending.ends_at:%Y-%m-%d %H:%M:%S} UTC"
    return f"The certificate that {ending.who} uses at the controllers' listener {verb} at {at}. {ending.mend}"


def explained(step: StepContext, waiting: Wait, hindrance: str) -> Wait:
    """Return the wait, stalled and with the date, while a process uses a certificate that has ended or ends soon.

    Parameters
    ----------
    hindrance
        Why controllers whose certificate has ended are not restarted, ``""`` if that is not so.
    """
    soon = ends_soon(step, endings(step))
    if not soon:
        return waiting
    words = [described(step, ending) for ending in soon]
    if hindrance:
        words.append(hindrance)
    message = ". ".join((*words, waiting.message))
    if waiting.stalled:
        return replace(waiting, message=message)
    return replace(waiting, message=message, reason=Reason.CERTIFICATE_ENDS, stalled=True)


def _condition(step: StepContext) -> tuple[Status, Reason, str]:
    """Return status, reason and message of ``CertificatesValid``."""
    ends = endings(step)
    soon = ends_soon(step, ends)
    if soon:
        return "False", Reason.CERTIFICATE_ENDS, ". ".join(described(step, ending) for ending in soon)
    if problems := unread(step):
        return "Unknown", Reason.UNKNOWN, problems[0]
    issued = step.status.listener_certificates
    if issued is not None and issued.brokers_to_restart:
        names = first(issued.brokers_to_restart)
        until = issued.brokers_run_until
        if until is None:
            message = f"{names} started before the certificate in Secret {issued.brokers_secret} was issued"
            return "Unknown", Reason.UNKNOWN, f"{message}: the end of what they use is not known. Restart them"
    if not ends:
        return "Unknown", Reason.UNKNOWN, "No controller's certificate was read yet"
    words = "; ".join(f"{ending.who} until {ending.ends_at:%Y-%m-%d %H:%M:%S} UTC" for ending in ends)
    return "True", Reason.IN_FORCE, f"The certificates in use are valid: {words}"
