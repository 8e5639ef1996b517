"""The controllers without the operator's image, on the word ``spec.handOver: Clean`` after ``Completed``. Pure.

`is_wanted` makes it a change of the controllers, which `nodes.rolls` rolls out like any other. `conclude` follows:
the objects that let somebody reach metrics agent and log server lose these ports, the final manifest shows what is
left, and the guard ends. From then on the operator knows of the quorum what DescribeQuorum tells, and nothing rests on
more.
"""

from __future__ import annotations

from kraftbridge.models.conditions import ConditionType, Reason
from kraftbridge.models.decision import ApplyControllers, PublishFinalManifest, RemoveConfigurations
from kraftbridge.models.issued import IssuedListener
from kraftbridge.models.observation import QuorumState, Unobserved
from kraftbridge.models.report import Profile, Verdict
from kraftbridge.models.spec import HandOver
from kraftbridge.models.status import HandOverStatus
from kraftbridge.phases import metadata_version
from kraftbridge.phases.draft import Draft, StepContext, Wait
from kraftbridge.phases.nodes import converging
from kraftbridge.phases.observed import because


def is_wanted(step: StepContext) -> bool:
    """Return whether the controllers shall be rendered without the operator's image. Once they are, that stays."""
    controllers = step.status.controllers
    if controllers is None or controllers.rendered is None:
        return False  # what they run is recorded first
    if controllers.clean or not _is_asked(step):
        return controllers.clean
    # A change that has failed is not given up because of what is not known now.
    is_failed = controllers.change is not None and controllers.change.to.clean
    return is_failed or not blockers(step)


def _is_asked(step: StepContext) -> bool:
    return step.spec.hand_over is HandOver.CLEAN and step.status.phase.row.gives_back


def blockers(step: StepContext) -> list[str]:
    """Return why the controllers keep the operator's image for now."""
    if step.status.given_back_at is None:
        return ["the StatefulSets of the brokers are being released"]
    return [*_verification_blockers(step), *_key_blockers(step), *_version_blockers(step)]


def _verification_blockers(step: StepContext) -> list[str]:
    """Without log servers no verification can read the log any more."""
    runs = [
        run for run in step.status.verifications if run.profile is Profile.REPLICAS and run.gate is step.status.phase
    ]
    if not runs:
        return ["status.verifications has no verification of the completed migration"]
    last = runs[-1]
    if last.verdict is Verdict.CONSISTENT:
        return []
    return [f"the last verification, {last.run_id}, is {last.verdict or 'not finished'} and not {Verdict.CONSISTENT}"]


def _key_blockers(step: StepContext) -> list[str]:
    """Return whether the operator's init container is needed, which turns a private key into PKCS#8."""
    listener = step.spec.controllers.listener
    if not listener.has_files:
        return []
    seen = step.observation.issued if listener.generate else step.observation.brought
    secret = seen.controllers if isinstance(seen, IssuedListener) else seen
    if isinstance(secret, Unobserved):
        return [str(secret)]
    if secret is None or secret.is_pkcs8:
        return []
    mend = "set spec.privateKey.encoding to PKCS8 in its Certificate, or convert it with openssl pkcs8 -topk8"
    return [f"tls.key in Secret {secret.name} is not in PKCS#8, and Kafka reads no other form: {mend}"]


def _version_blockers(step: StepContext) -> list[str]:
    if metadata_version.is_settled(step):
        return []
    return [f"metadata.version is not yet {step.spec.metadata_version}, as spec.metadataVersion asks"]


def conclude(draft: Draft) -> Wait | None:
    """End the guard once every controller runs without the operator's image, and say what is known of them.

    Return None when there is nothing to wait for.
    """
    controllers = draft.status.controllers
    if controllers is None or not controllers.cleaned:
        return None
    known = draft.status.hand_over
    if known is not None and known.cleaned_at is not None:
        draft.set_condition(ConditionType.HANDED_OVER, "True", Reason.CLEANED, words(draft))
        return None
    # Both are repeated until they succeed.
    # What the API server does not let go stays with the user.
    are_left = converging.superseded(draft) and not draft.was_refused(RemoveConfigurations)
    is_done = draft.has_done(ApplyControllers, PublishFinalManifest) and not are_left
    if controllers.change is None and is_done:
        record = known or HandOverStatus(guarded=False)
        ended_at = record.ended_at or draft.now
        changes = {"guarded": False, "missing": (), "ended_at": ended_at, "cleaned_at": draft.now}
        draft.update(hand_over=record.model_copy(update=changes))
        draft.set_condition(ConditionType.HANDED_OVER, "True", Reason.CLEANED, words(draft))
        return None
    reached_by = (f"Service/{controllers.name}", f"NetworkPolicy/{controllers.name}")
    draft.act(ApplyControllers(controllers.mode, controllers.format_allowed, reached_by, controllers.to_format))
    draft.act(PublishFinalManifest())
    failed = because(draft.failure())
    return Wait(f"the final manifest is written: no controller runs the operator's image any more{failed}")


def words(step: StepContext) -> str:
    """Return what is true of the controllers, as a sentence without its full stop."""
    quorum = step.observation.quorum
    seen = f"the quorum was not seen: {quorum}"
    if isinstance(quorum, QuorumState):
        seen = f"DescribeQuorum names controller {quorum.leader_id} as leader of {len(quorum.voters)} voters"
    return (
        "spec.handOver is Clean: the controllers run nothing of the operator's, "
        f"so it reads neither their metrics nor their log; {seen}"
    )


def outlook(step: StepContext) -> str:
    """Return what becomes of the controllers, as a sentence without its full stop; ``""`` if nothing is asked."""
    controllers = step.status.controllers
    if controllers is None or not _is_asked(step):
        return ""
    if not controllers.clean and (standing := blockers(step)):
        return f"spec.handOver is Clean, and the controllers keep the operator's image for now: {standing[0]}"
    return (
        "spec.handOver is Clean: the controllers restart one at a time without the operator's image; "
        "then the guard ends"
    )
