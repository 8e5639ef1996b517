"""The guard after the end refuses broker templates that lack what KRaft needs, until their owner renders it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from kraftbridge.models.conditions import ConditionType, Reason, condition
from kraftbridge.models.decision import EventReason, EventType
from kraftbridge.models.observation import StatefulSetState
from kraftbridge.models.spec import HandOver
from kraftbridge.models.status import HandOverStatus
from kraftbridge.phases import cleaning
from kraftbridge.phases.draft import Draft, StepContext, Wait, for_user


def begin_guard(draft: Draft, sets: Sequence[StatefulSetState]) -> None:
    """Record what each template needs before the StatefulSets are given back: the admission policy reads the status."""
    if draft.status.hand_over is not None:
        return
    known = tuple(s.required for s in sets if s.required is not None)
    is_released = draft.spec.hand_over is HandOver.RELEASE
    if not is_released and len(known) != len(sets):
        unknown = next(s.name for s in sets if s.required is None)
        message = (
            f"StatefulSet {unknown}: what its template needs for KRaft is not known, "
            "because its original state is not recorded. "
            "It is given back, and nothing refuses a template without it"
        )
        former = condition(draft.status.conditions, ConditionType.HANDED_OVER)
        if former is None or former.reason is not Reason.NOT_GUARDED:
            draft.tell(EventReason.ALARM, message, EventType.WARNING)
        draft.set_condition(ConditionType.HANDED_OVER, "False", Reason.NOT_GUARDED, message)
        return
    draft.update(hand_over=HandOverStatus(guarded=not is_released, stateful_sets=known))


def note_image(draft: Draft, image: str) -> None:
    """Record the image that the templates need from now on; ``""`` where the brokers have their owner's."""
    known = draft.status.hand_over
    if known is None or known.ended_at is not None:
        return
    needed = tuple(each.model_copy(update={"image": image}) for each in known.stateful_sets)
    if needed != known.stateful_sets:
        draft.update(hand_over=known.model_copy(update={"stateful_sets": needed}))


def follow_guard(draft: Draft, sets: Sequence[StatefulSetState]) -> Wait | None:
    """End the guard when the owners render KRaft or the user releases it; return the alarm while something lacks."""
    known = draft.status.hand_over
    if known is None or known.ended_at is not None:
        return None
    if draft.spec.hand_over is HandOver.RELEASE:
        _end(draft, known, Reason.RELEASED, "spec.handOver is Release: no pod template is refused any more")
        return None
    missing = tuple(f"StatefulSet {s.name}: {what}" for s in sets for what in s.lacking)
    if missing != known.missing:
        draft.update(hand_over=known.model_copy(update={"missing": missing}))
    if missing:
        return _raise_alarm(draft, sets, missing)
    if all(s.owner_renders for s in sets):
        _end(draft, known, Reason.DONE, "The owner of every StatefulSet of brokers renders what KRaft needs")
        return None
    next_word = cleaning.outlook(draft) or "set spec.handOver to Release when that is done"
    values = f"Put what ConfigMap {draft.status.final_manifest} shows into the next release of the brokers; {next_word}"
    if draft.observation.admission_policy is True:
        message = f"The admission policy refuses a pod template of the brokers that lacks what KRaft needs. {values}"
        draft.set_condition(ConditionType.HANDED_OVER, "False", Reason.GUARDED, message)
    else:
        message = f"No admission policy refuses a pod template of the brokers that lacks what KRaft needs. {values}"
        draft.set_condition(ConditionType.HANDED_OVER, "False", Reason.NOT_GUARDED, message)
    return None


def summary(step: StepContext) -> str:
    """Return what is left to hand over or was cleaned, for the message of a completed migration."""
    found = condition(step.status.conditions, ConditionType.HANDED_OVER)
    if found is None or found.reason is Reason.CLEANED or found.status != "True":
        return "" if found is None else found.message
    # The owners have ended the guard before the controllers are clean.
    return cleaning.outlook(step)


def _end(draft: Draft, known: HandOverStatus, reason: Reason, message: str) -> None:
    draft.update(hand_over=known.model_copy(update={"guarded": False, "missing": (), "ended_at": draft.now}))
    draft.set_condition(ConditionType.HANDED_OVER, "True", reason, message)


def _raise_alarm(draft: Draft, sets: Sequence[StatefulSetState], missing: tuple[str, ...]) -> Wait:
    writers = sorted({s.last_writer for s in sets if s.lacking and s.last_writer})
    by = f" (last written by {', '.join(writers)})" if writers else ""
    message = (
        f"The pod template of the brokers lacks what KRaft needs{by}: {'; '.join(missing)}. "
        "A broker that restarts with it leaves the cluster. Put back what ConfigMap "
        f"{draft.status.final_manifest} shows; set spec.handOver to Release if Kafka gets these settings in another way"
    )
    former = condition(draft.status.conditions, ConditionType.HANDED_OVER)
    if former is None or former.reason is not Reason.TEMPLATE_NOT_KRAFT:
        draft.tell(EventReason.ALARM, message, EventType.WARNING)
    draft.set_condition(ConditionType.HANDED_OVER, "False", Reason.TEMPLATE_NOT_KRAFT, message)
    return for_user(message, Reason.TEMPLATE_NOT_KRAFT)
