"""Controllers whose certificate has ended: all of them restart at once, once. Pure.

A controller that restarts alone does not come back: with its renewed certificate it refuses the present leader's, which
has ended (``DefaultSslEngineFactory``: the trust manager of the JDK checks the dates). One at a time would so lose the
quorum voter by voter. All at once, on the volumes that they have, they elect a leader as after a power failure.

With certificates that the operator issues it needs no word: the Secret must hold what the recorded authority issued.
With certificates that the user brings, ``spec.restartExpiredControllers`` names the one in the Secret.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from kraftbridge.models.conditions import Reason
from kraftbridge.models.decision import EventReason, EventType
from kraftbridge.models.issued import IssuedListener, IssuedSecret
from kraftbridge.models.observation import ControllersWorkload, PodState, Unobserved
from kraftbridge.models.phase import ControllerMode, Phase
from kraftbridge.models.status import (
    ControllersChange,
    ControllersStatus,
    MigrationStatus,
    OperationKind,
    QuorumRestart,
)
from kraftbridge.outside.shell import command
from kraftbridge.phases import belongings, claims, gates, healing, history, observed, presented
from kraftbridge.phases.draft import SLOW, Draft, StepContext, Wait
from kraftbridge.phases.nodes import brokers, converging, rolls
from kraftbridge.phases.nodes.converging import Pace

DEADLINE: Final = timedelta(minutes=10)
"""For controllers that restarted all at once to elect a leader."""


def is_under_way(status: MigrationStatus) -> bool:
    """Return whether all controllers restart because their certificate has ended."""
    return _under_way(status) is not None


def _under_way(status: MigrationStatus) -> QuorumRestart | None:
    current = observed.of_attempt(status, status.quorum_restart)
    return None if current is None or current.finished_at is not None else current


def enforce(draft: Draft) -> Wait | None:
    """Restart all controllers whose certificate has ended; None while there are none, or while they may not restart.

    A rollback that does without them waits for none of them.
    """
    if history.does_without(draft):
        return None
    current = _under_way(draft.status)
    if current is not None and not _is_superseded(draft, current):
        return _follow(draft, current)
    if not presented.expired(draft) or _tried(draft) or hindrances(draft):
        return None
    return _begin(draft)


def explained(step: StepContext, waiting: Wait) -> Wait:
    """Return the wait with the certificates that have ended or end soon, and with why nothing restarts."""
    if is_under_way(step.status):
        return waiting
    words = ""
    if presented.expired(step) and (why := [*_tried(step), *hindrances(step)]):
        words = f"Controllers whose certificate has ended restart all at once, and not now: {why[0]}"
    return presented.explained(step, waiting, words)


# ------------------------------------------------------------------------------------------------- may they?


def hindrances(step: StepContext) -> list[str]:
    """Return why the controllers must not restart all at once."""
    controllers = step.status.controllers
    if controllers is None or controllers.format_allowed:
        return ["their volumes are not recorded"]
    return [
        *gates.failed((step.spec.paused, "spec.paused is true")),
        *_phase_hindrances(step),
        *_node_hindrances(step),
        *_certificate_hindrances(step),
        *_volume_hindrances(step, controllers),
    ]


def _tried(step: StepContext) -> list[str]:
    """Return when they restarted with the certificate that their Secret holds now: that is done once."""
    former = observed.of_attempt(step.status, step.status.quorum_restart)
    secret = presented.secret_of_controllers(step)
    if former is None or secret is None or former.certificate != secret.fingerprint:
        return []
    return [f"they restarted with certificate {former.certificate} at {former.began_at:%Y-%m-%d %H:%M:%S} UTC"]


def _phase_hindrances(step: StepContext) -> list[str]:
    phase = step.status.phase
    if phase is Phase.FINALIZING:
        return [f"in phase Finalizing the first active controller ends the migration. {_by_hand(step)}"]
    if history.contradicts(step) is not None:
        return ["ZooKeeper contradicts what this attempt has read, and the next active controller would write to it"]
    if phase.row.mirrors and healing.unhealed(step) is not None:
        return ["the next active controller would overwrite differences in ZooKeeper"]
    if phase.row.mirrors or phase.row.on_kafka4 or phase in (Phase.PROVISIONING_QUORUM, Phase.COMPLETED):
        return []
    if phase is Phase.TAKING_OVER and rolls.is_before_the_claim(step):
        return []
    if phase is Phase.ROLLING_BACK and _mirrors_in_rollback(step):
        return []
    copying = "between the claim on /controller and dual-write the active controller copies the metadata"
    return [f"{copying}. {_by_hand(step)}"]


def _by_hand(step: StepContext) -> str:
    """Return what a person can do where the operator may not."""
    pods = [pod.name for pod in observed.controllers_pods(step)]
    return f"If nothing moves any more, restart them yourself: {command('kubectl delete pod {pods}', pods=pods)}"


def _mirrors_in_rollback(step: StepContext) -> bool:
    """Return whether a rollback still has controllers at their place, and ZooKeeper has a whole copy."""
    record = observed.rollback_record(step.status)
    controllers = step.status.controllers
    migration = observed.migration_znode(step)
    if record.isolated_at is not None or record.controllers_stopped_at is not None:
        return False
    at_their_place = controllers is not None and controllers.mode is ControllerMode.MIGRATION
    return at_their_place and migration is not None and migration.kraft_metadata_offset >= 0


def _node_hindrances(step: StepContext) -> list[str]:
    """Return why the nodes forbid it: a broker restarts, or a running controller was not read."""
    operation = step.status.operation
    if operation is not None and operation.kind is OperationKind.RESTART_BROKER:
        return [f"broker {operation.node_id} restarts. {_by_hand(step)}"]
    stateful_set = observed.controllers_set(step)
    if stateful_set is None or stateful_set.deleting:
        return [f"their StatefulSet was not observed: {step.observation.controllers}"]
    return presented.unread(step)


def _certificate_hindrances(step: StepContext) -> list[str]:
    """Return why the certificate in the Secret will not do: it is not right, or not valid now."""
    secret = presented.secret_of_controllers(step)
    now = observed.server_time(step)
    if secret is None or not secret.exists or secret.expires_at is None or secret.begins_at is None or now is None:
        return ["the certificate in their Secret is not known"]
    if not secret.begins_at <= now < secret.expires_at:
        return [f"the certificate in Secret {secret.name} is not valid now either"]
    return _word_hindrances(step, secret)


def _word_hindrances(step: StepContext, secret: IssuedSecret) -> list[str]:
    """Return why the certificate lacks a word: neither has the recorded authority issued it, nor the user named it."""
    if secret.problem:
        return [f"Secret {secret.name}: {secret.problem}"]
    if not step.spec.controllers.listener.generate:
        asked = step.spec.restart_expired_controllers == secret.fingerprint
        word = f"spec.restartExpiredControllers: {secret.fingerprint} restarts them with the certificate in"
        return [] if asked else [f"{word} Secret {secret.name}"]
    issued = step.observation.issued
    recorded = step.status.listener_certificates
    if not isinstance(issued, IssuedListener) or recorded is None or not issued.authority_holds:
        return ["the authority that issued their certificates is not known or cannot be used"]
    if issued.authority_key != recorded.authority_key:
        return [f"Secret {issued.authority.name} holds the key of another authority than the recorded one"]
    return []


def _volume_hindrances(step: StepContext, controllers: ControllersStatus) -> list[str]:
    """Return why the volumes forbid it: another claim than was recorded, or a blank volume that may be formatted."""
    workload = step.observation.controllers
    if not isinstance(workload, ControllersWorkload) or workload.claims is None:
        return ["the claims of their volumes were not read"]
    lost = claims.lost_claims(controllers, workload)
    recorded = {str(node_id) for node_id in controllers.node_ids} <= controllers.volume_uids.keys()
    return [
        *(f"of the claims of their volumes {what}" for what in lost.values()),
        *gates.failed(
            (not recorded, "not every claim of their volumes is recorded"),
            (workload.format_allowed is not False, "their ConfigMap allows a blank volume to be formatted"),
            (workload.missing, f"{', '.join(workload.missing)} does not exist"),
        ),
    ]


# ------------------------------------------------------------------------------------------------- they do


def _to_restart(step: StepContext) -> list[PodState]:
    """Return the controllers that must restart: their certificate has ended, or they are down without the new one."""
    secret = presented.secret_of_controllers(step)
    ended = {record.node_id for record in presented.expired(step)}
    renewed = {r.node_id for r in step.status.presented if secret is not None and r.fingerprint == secret.fingerprint}
    pods = observed.controllers_pods(step)
    return [pod for pod in pods if pod.ordinal in ended or (pod.down and pod.ordinal not in renewed)]


def _begin(draft: Draft) -> Wait:
    """Record the restart; the pods are replaced from the next step on."""
    secret = presented.secret_of_controllers(draft)
    pods = {str(pod.ordinal): pod.uid for pod in _to_restart(draft)}
    names = ", ".join(pods)
    draft.update(
        quorum_restart=QuorumRestart(
            attempt=draft.status.attempt,
            certificate=secret.fingerprint if secret is not None else "",
            pods=pods,
            began_at=draft.now,
        ),
        operation=None,
    )
    message = f"The certificate of controller {names} has ended: they restart at once with what their Secret holds now"
    draft.tell(EventReason.ALARM, message, EventType.WARNING)
    return Wait(message, requeue_after=timedelta(0))


def _is_superseded(step: StepContext, current: QuorumRestart) -> bool:
    """Return whether a restart that did not help is over: the Secret holds another certificate by now."""
    secret = presented.secret_of_controllers(step)
    if secret is None or not secret.fingerprint or secret.fingerprint == current.certificate:
        return False
    return _is_late(step, current) and bool(presented.expired(step))


def _is_late(step: StepContext, current: QuorumRestart) -> bool:
    return step.now - current.began_at > DEADLINE


def _follow(draft: Draft, current: QuorumRestart) -> Wait | None:
    """Replace the recorded pods, each once, and wait for their leader."""
    if current.restarted_at is None:
        if why := _hindrances_of_recorded(draft):
            # Nothing was done yet, and it was decided on something else.
            draft.update(quorum_restart=None)
            return Wait(f"the controllers do not restart all at once: {why[0]}")
        if (waiting := _restore_template(draft)) is not None:
            return waiting
        current = current.model_copy(update={"restarted_at": draft.now})
        draft.update(quorum_restart=current)
    lack = converging.reconcile_controllers(draft, Pace.ALL, restarting=current.pods)
    waiting_for = f"{lack.words}{observed.because(draft.failure())}" if lack is not None else _missing(draft)
    if not waiting_for:
        return _finish(draft, current)
    message = f"all controllers restart, since their certificate had ended: {waiting_for}"
    if not _is_late(draft, current):
        return Wait(message)
    message = (
        f"{message}, for {DEADLINE.seconds // 60} minutes. They are not restarted again with this certificate: "
        "read the logs of the controllers"
    )
    return Wait(message, reason=Reason.DEADLINE_EXCEEDED, stalled=True, requeue_after=SLOW)


def _hindrances_of_recorded(step: StepContext) -> list[str]:
    if not presented.expired(step):
        return ["no certificate of a running controller has ended"]
    return hindrances(step)


def _restore_template(draft: Draft) -> Wait | None:
    """Take back a change of ``spec.controllers`` that was rolled out in part: not all voters try it at once."""
    controllers = draft.status.controllers
    stateful_set = observed.controllers_set(draft)
    if controllers is None or stateful_set is None or belongings.wanted(draft.status.phase, draft.status) is None:
        return None
    change = controllers.change
    if change is not None and not rolls.is_renewal(change):
        controllers = controllers.model_copy(update={"rendered": change.before, "change": None})
        draft.update(controllers=controllers)
    elif change is not None or not stateful_set.drift:
        return None
    converging.configure_controllers(draft)
    return Wait("the controllers get their former configuration before all of them restart")


def _missing(step: StepContext) -> str:
    """Return what the restarted quorum lacks, ``""`` once it is whole."""
    blockers = [*observed.down(observed.controllers_pods(step)), *gates.quorum_blockers(step)]
    return blockers[0] if blockers else ""


def _outdated(step: StepContext) -> dict[str, str]:
    """Return the UIDs, by node id, of the controllers that run another template than the operator's present one."""
    stateful_set = observed.controllers_set(step)
    if stateful_set is None or belongings.wanted(step.status.phase, step.status) is None:
        return {}
    return {str(pod.ordinal): pod.uid for pod in stateful_set.pods if brokers.is_outdated(stateful_set, pod)}


def _finish(draft: Draft, current: QuorumRestart) -> Wait:
    controllers = draft.status.controllers
    workload = draft.observation.controllers
    if controllers is not None and controllers.rendered is not None:
        # They run with what the Secrets hold now, so that is no change any more.
        read = {} if isinstance(workload, Unobserved) else workload.credentials
        rendered = controllers.rendered
        rendered = rendered.model_copy(update={"credentials": {**rendered.credentials, **read}})
        kept = controllers.change if controllers.change and not rolls.is_renewal(controllers.change) else None
        if kept is None and (left := _outdated(draft)):
            # It had restarted with the change that was taken back, and gets the former configuration like any other.
            kept = ControllersChange(to=rendered, before=rendered, started_at=draft.now, pods=left)
        draft.update(controllers=controllers.model_copy(update={"rendered": rendered, "change": kept}))
    draft.update(quorum_restart=current.model_copy(update={"finished_at": draft.now}))
    message = f"Controller {', '.join(current.pods)} restarted with a valid certificate, and the quorum has a leader"
    draft.tell(EventReason.CONTROLLERS_CHANGED, message)
    return Wait(message, requeue_after=timedelta(0))
