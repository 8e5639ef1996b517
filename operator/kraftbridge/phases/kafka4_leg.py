"""What is on record of the way on to Kafka 4, and whether it can be taken back. Pure.

The record is made before the first change: the images of before, and the digest of the image that the copies have
started. The way back ends with the first feature that is raised, with a volume that Kafka 4.4 has formatted, and once
the owners have the StatefulSets in their own hands.
"""

from __future__ import annotations

from kraftbridge.models import kafka4_releases
from kraftbridge.models.conditions import ConditionType, Reason, Status
from kraftbridge.models.decision import EventReason, EventType
from kraftbridge.models.metadata_version import Release
from kraftbridge.models.observation import Unobserved
from kraftbridge.models.phase import BrokerMode, Phase
from kraftbridge.models.spec import HandOver
from kraftbridge.models.status import FormerImages, Kafka4Leg
from kraftbridge.phases import observed
from kraftbridge.phases.draft import Draft, StepContext, Wait, for_user

_LATER = "spec.target Kafka4 leads on to Kafka 4, once the phase is Completed"


def expected_images(step: StepContext, stateful_set: str) -> dict[str, str]:
    """Return the digest of each container's image with which the copies of a pod have started Kafka 4."""
    leg = step.status.kafka4_leg
    prefix = f"{stateful_set}/"
    digests = {} if leg is None else leg.digests
    return {key.removeprefix(prefix): digest for key, digest in digests.items() if key.startswith(prefix)}


def missing_record(step: StepContext) -> Wait | None:
    """Return the wait of a leg under way whose record is gone: nothing else has the images of before."""
    if step.status.kafka4_leg is not None or not step.status.phase.row.on_kafka4:
        return None
    return for_user(
        "status.kafka4Leg is gone: the operator does not guess which images the brokers and controllers had and get. "
        "Restore status.kafka4Leg with kubectl patch --subresource=status",
        Reason.UNKNOWN,
    )


def begin(draft: Draft) -> Wait | None:
    """Record the images of before, right before the first change; return None once they are recorded."""
    leg = draft.status.kafka4_leg
    if leg is None or leg.began_at is not None:
        return None
    former = _former_images(draft, leg)
    if isinstance(former, Unobserved):
        return Wait(str(former))
    # The owner's StatefulSets are taken again: they are given back once every broker runs Kafka 4.
    draft.update(
        kafka4_leg=leg.model_copy(update={"former": former, "began_at": draft.now}),
        given_back_at=None,
        hold_until=None,
    )
    draft.tell(EventReason.PHASE_ENTERED, f"The way to Kafka {leg.release} begins: controllers first, then brokers")
    return None


def _former_images(step: StepContext, leg: Kafka4Leg) -> tuple[FormerImages, ...] | Unobserved:
    sets = step.stateful_sets()
    controllers = observed.controllers_set(step)
    if isinstance(sets, Unobserved):
        return sets
    if controllers is None:
        return Unobserved("controllers", "their StatefulSet was not seen")
    containers = [key.split("/", 1) for key in leg.digests]
    former = [
        FormerImages(stateful_set=item.name, images={c: item.image for name, c in containers if name == item.name})
        for item in sets
    ]
    return (*former, FormerImages(stateful_set=controllers.name, images={"kafka": controllers.image}))


def note_brokers(draft: Draft) -> None:
    """Record that a broker may run Kafka 4 from now on."""
    leg = draft.status.kafka4_leg
    if leg is not None and leg.brokers_began_at is None:
        draft.update(kafka4_leg=leg.model_copy(update={"brokers_began_at": draft.now}))


def note_return(draft: Draft) -> None:
    """Record that every broker runs the release before again: the controllers follow from now on."""
    leg = draft.status.kafka4_leg
    if leg is not None and leg.brokers_back_at is None:
        draft.update(kafka4_leg=leg.model_copy(update={"brokers_back_at": draft.now}))


def end_way_back(draft: Draft, reason: str) -> None:
    """Record that the way back ends, before what ends it is done."""
    leg = draft.status.kafka4_leg
    if leg is None or leg.final_at is not None:
        return
    draft.update(kafka4_leg=leg.model_copy(update={"final_at": draft.now, "final_reason": reason[:500]}))
    draft.tell(EventReason.ALARM, f"There is no way back from Kafka 4 any more: {reason}", EventType.WARNING)


def track(draft: Draft) -> None:
    """Record what ends the way back by itself."""
    leg = draft.status.kafka4_leg
    controllers = draft.status.controllers
    word = None if controllers is None else controllers.reformat
    formats = leg is not None and leg.release and Release.of(leg.release) >= kafka4_releases.FORMATS_FOR_ITSELF
    if leg is not None and leg.began_at is not None and word is not None and formats:
        formatted = word.ended_at is None or word.ended_at >= leg.began_at
        if formatted and draft.status.phase is not Phase.LEAVING_KAFKA4:
            end_way_back(draft, f"Kafka {leg.release} may format the volume of controller {word.id}")


def set_leavable(draft: Draft) -> None:
    """Set the condition ``Kafka4Leavable``."""
    draft.set_condition(ConditionType.KAFKA4_LEAVABLE, *leavable(draft))


def leavable(step: StepContext) -> tuple[Status, Reason, str]:
    """Return status, reason and message of the condition ``Kafka4Leavable``."""
    leg = step.status.kafka4_leg
    if leg is None or leg.began_at is None:
        return "False", Reason.NOT_STARTED, _LATER
    if leg.final_at is not None:
        reason = Reason.FEATURES_RAISED if leg.features else Reason.VOLUME_FORMATTED
        return "False", reason, f"There is no way back from Kafka {leg.release}: {leg.final_reason}"
    if _is_handed_over(step):
        return "False", Reason.HANDED_OVER, "The StatefulSets of the brokers are in their owners' hands"
    former = "; ".join(
        f"{each.stateful_set} to {', '.join(sorted(set(each.images.values())))}" for each in leg.former if each.images
    )
    message = f"No feature was raised: spec.target KRaft brings the brokers back, then the controllers ({former})"
    return "True", Reason.FEATURES_NOT_RAISED, message


def _is_handed_over(step: StepContext) -> bool:
    known = step.status.hand_over
    controllers = step.status.controllers
    is_clean = controllers is not None and controllers.clean
    return is_clean or (known is not None and known.ended_at is not None)


def refused_return(step: StepContext) -> Wait | None:
    """Return why ``spec.target`` KRaft cannot lead back from Kafka 4, None if it can."""
    leg = step.status.kafka4_leg
    if leg is not None and leg.began_at is None:
        return None  # nothing was changed yet
    status, _, message = leavable(step)
    if status == "True":
        return None
    return for_user(f"spec.target KRaft refused: {message}. Set spec.target to Kafka4", Reason.REFUSED)


def why_not_begun(step: StepContext) -> str:
    """Return why the way to Kafka 4 must not begin for what was handed over, ``""`` if it may."""
    if _is_handed_over(step):
        return "the StatefulSets of the brokers, or the controllers, are in their owners' hands (status.handOver)"
    if step.spec.hand_over is not HandOver.GUARD:
        return f"spec.handOver is {step.spec.hand_over}, and the operator changes nothing after that"
    return ""


def outdated_modes(step: StepContext) -> list[str]:
    """Return the templates and pods of brokers that the migration has not configured as they run now."""
    found = []
    for item in observed.read_sets(step):
        if BrokerMode.of(item.configuration) is not BrokerMode.KRAFT:
            found.append(f"the pod template of StatefulSet {item.name}")
        found += [f"pod {pod.name}" for pod in item.pods if BrokerMode.of(pod.configuration) is not BrokerMode.KRAFT]
    return found
