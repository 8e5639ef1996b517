"""The way on to Kafka 4 and back, from Completed to Completed: one ``run_…_phase`` each. Pure.

Controllers restart before brokers on the way there, the active one last, and after them on the way back: a broker
registers only with a controller that supports its features (KIP-584). Nothing restarts before copies of the brokers'
pods have started with the new image, and the voters' logs are compared before and after each roll.
"""

from __future__ import annotations

from typing import Final

from kraftbridge.models.conditions import Reason
from kraftbridge.models.kafka4_releases import OLDEST
from kraftbridge.models.metadata_version import FEATURE, OLDEST_OF_KAFKA4, levels_of, text_of
from kraftbridge.models.observation import NodeFeatures, Unobserved
from kraftbridge.models.phase import BrokerMode, ControllerMode, Phase, Target
from kraftbridge.models.protocol import BRIDGE
from kraftbridge.models.report import Profile
from kraftbridge.models.spec import Kafka4Spec
from kraftbridge.models.status import Kafka4Leg, OperationKind, WaitKind, first
from kraftbridge.phases import gates, kafka4, kafka4_leg, metadata_version, verifying
from kraftbridge.phases.draft import SLOW, SOON, Draft, Enter, Outcome, StepContext, Wait, for_user
from kraftbridge.phases.nodes import controllers, converging, restarts, rolls, templates
from kraftbridge.phases.observed import controllers_pods, controllers_set, down
from kraftbridge.phases.preflight import dry_start, kafka4_copies
from kraftbridge.phases.preflight import findings as preflight

_BEFORE: Final = "before Kafka 4"
_HEARTBEATS: Final = "holding, to see that every broker heartbeats to the controllers"
_RETURN: Final = "return"
"""Purpose of the verifications on the way back."""
_CONTROLLERS_BACK: Final = "controllers-back"


# ------------------------------------------------------------------------------------------------------ preparation


def ensure_prepared(draft: Draft) -> Outcome:
    """Find out in phase Completed whether the way to Kafka 4 may begin, and enter it. This changes nothing."""
    asked = draft.spec.kafka4
    if asked is None:
        return for_user("spec.target is Kafka4, and spec.kafka4.image names no image", Reason.REFUSED)
    if why := kafka4_leg.why_not_begun(draft):
        return for_user(f"spec.target Kafka4 refused: {why}. Set spec.target to KRaft", Reason.REFUSED)
    return (
        _record_wish(draft, asked)
        or _not_settled(draft)
        or _not_ready(draft)
        or _ensure_copies(draft)
        or restarts.paused(draft)
        or _closed(draft)
        or verifying.ensure_verdict(draft, Profile.REPLICAS, Phase.KAFKA4_CONTROLLERS)
        or _record_image(draft)
        or Enter(Phase.KAFKA4_CONTROLLERS)
    )


def drop_wish(draft: Draft) -> None:
    """Forget what was prepared and never begun, once the user does not ask for it any more."""
    leg = draft.status.kafka4_leg
    if leg is not None and leg.began_at is None:
        draft.update(kafka4_leg=None)


def _record_wish(draft: Draft, asked: Kafka4Spec) -> Wait | None:
    leg = draft.status.kafka4_leg
    if leg is not None and (leg.image, leg.controllers_image) == (asked.image, asked.of_controllers):
        return None
    draft.update(kafka4_leg=Kafka4Leg(image=asked.image, controllers_image=asked.of_controllers))
    return Wait(f"{_BEFORE}: copies of the brokers' pods with image {asked.image} are prepared", requeue_after=SOON)


def _not_settled(step: StepContext) -> Wait | None:
    """Return why nothing may begin while something else is under way, or is not as the migration has left it."""
    status = step.status.controllers
    if status is None or status.rendered is None:
        return Wait(f"{_BEFORE}: what the controllers are rendered from is not on record")
    if status.change is not None:
        return Wait(f"{_BEFORE}: a change of spec.controllers is being rolled out, or has failed")
    if not metadata_version.is_settled(step):
        return Wait(
            f"{_BEFORE}: metadata.version is not yet {step.spec.metadata_version}, as spec.metadataVersion asks"
        )
    sets = step.stateful_sets()
    if isinstance(sets, Unobserved):
        return Wait(f"{_BEFORE}: {sets}")
    if lost := [item.name for item in sets if not item.original.digest]:
        return for_user(
            f"{_BEFORE}: the original state of StatefulSet {lost[0]} is not on record, so no image of it can be "
            "changed and given back. Upgrade by hand (docs/kraft.md), or restore the Secrets",
            Reason.ORIGINALS_LOST,
        )
    if foreign := [f"StatefulSet {item.name}: {', '.join(item.foreign)}" for item in sets if item.foreign]:
        return for_user(
            f"{_BEFORE}: the owner has changed a pod template since the migration ({first(foreign, 2, '; ')}). "
            "Revert that change: no broker is restarted on a mixed configuration",
            Reason.FOREIGN_CHANGE,
        )
    if other := kafka4_leg.outdated_modes(step):
        return for_user(
            f"{_BEFORE}: {first(other)} does not carry the configuration of mode KRaft any more. "
            f"Put back what ConfigMap {step.status.final_manifest} shows, annotations included",
            Reason.TEMPLATE_NOT_KRAFT,
        )
    return _level_too_low(step) or _strangers(step)


def _level_too_low(step: StepContext) -> Wait | None:
    features = step.observation.features
    if isinstance(features, Unobserved):
        return Wait(f"{_BEFORE}: {features}")
    for node_id in step.spec.controllers.node_ids:
        node = features.get(node_id)
        level = node.finalized.get(FEATURE) if isinstance(node, NodeFeatures) else None
        if level is None:
            return Wait(f"{_BEFORE}: controller {node_id} did not tell its metadata.version")
        if level < OLDEST_OF_KAFKA4:
            return for_user(
                f"{_BEFORE}: metadata.version is {text_of(level)}, and Kafka {OLDEST} does not start below "
                f"{text_of(OLDEST_OF_KAFKA4)}. Set spec.metadataVersion to {BRIDGE} first",
                Reason.SOFTWARE_TOO_OLD,
            )
    return None


def _strangers(step: StepContext) -> Wait | None:
    """Return the wait while brokers serve that are not of this migration: features need every broker on Kafka 4."""
    cluster = step.observation.cluster
    if isinstance(cluster, Unobserved):
        return Wait(f"{_BEFORE}: {cluster}")
    if others := sorted(cluster.brokers - set(step.status.broker_ids.values())):
        return for_user(
            f"{_BEFORE}: broker {first(others)} joined after preflight and does not belong to this migration. "
            "Stop it and move its partitions",
            Reason.STRANGER,
        )
    return None


def _not_ready(step: StepContext) -> Wait | None:
    """Return the wait while what Kafka 4 refuses of settings and clients is not mended or accepted, or not known."""
    if unknown := kafka4.not_known(step):
        return Wait(f"{_BEFORE}: {unknown}", requeue_after=SLOW)
    standing = kafka4.standing(step)
    if not standing:
        return None
    more = f" ({len(standing)} findings)" if len(standing) > 1 else ""
    return for_user(f"{_BEFORE}{more}: {standing[0].sentence}. Mend it, or accept it in spec.preflight.accepted")


def _ensure_copies(draft: Draft) -> Wait | None:
    """Return None once every copy of the brokers' pods has started with the image, and no finding stands."""
    state = draft.observation.dry_start
    if isinstance(state, Unobserved):
        return Wait(f"{_BEFORE}: {state}")
    if not state.off and dry_start.awaited(draft):
        dry_start.begin_dry_start(draft, draft.status.broker_ids, draft.status.cluster_id or "")
        return Wait(f"{_BEFORE}. {dry_start.under_way(draft)}")
    standing = preflight.blocking(preflight.dry_start_findings(draft))
    if not standing:
        return None
    dry_start.repeat_dry_start(draft, draft.status.broker_ids, draft.status.cluster_id or "", standing)
    more = f" ({len(standing)} findings)" if len(standing) > 1 else ""
    message = f"{_BEFORE}{more}: {standing[0].sentence}"
    requeue_after = SOON if dry_start.is_running(draft) else SLOW
    return Wait(message, WaitKind.USER, Reason.FINDINGS, stalled=True, requeue_after=requeue_after)


def _closed(step: StepContext) -> Wait | None:
    """Return the wait while the quorum is not whole or its pods are not seen, or a partition has no leader."""
    if controllers_set(step) is None:
        return Wait(f"{_BEFORE}: the StatefulSet of the controllers could not be observed")
    for blockers in (gates.quorum_blockers(step), gates.leader_blockers(step), down(controllers_pods(step))):
        if blockers:
            return Wait(f"{_BEFORE}: {blockers[0]}")
    return None


def _record_image(draft: Draft) -> Wait | None:
    """Record what the copies have shown: the release, and the digest of the image."""
    state = draft.observation.dry_start
    leg = draft.status.kafka4_leg
    report = None if isinstance(state, Unobserved) else state.current
    release = kafka4_copies.version_of(report)
    if leg is None or not release:
        return Wait(f"{_BEFORE}: the copies do not tell the release of the image")
    digests = kafka4_copies.digests_of(leg, report)
    draft.update(kafka4_leg=leg.model_copy(update={"release": release, "digests": digests}))
    return None


# ------------------------------------------------------------------------------------------------- on the way there


def run_kafka4_controllers_phase(draft: Draft) -> Outcome:
    """Take the StatefulSets again, and restart the controllers with Kafka 4, one at a time, the active one last."""
    if (turning := enter_way_back(draft)) is not None:
        return turning
    return (
        _begin(draft)
        or _reconcile(draft, BrokerMode.KRAFT)
        or _ensure_controllers_moved(draft)
        or _whole(draft)
        or restarts.hold_for_heartbeats(draft, _HEARTBEATS)
        or verifying.ensure_verdict(draft, Profile.REPLICAS, Phase.KAFKA4_BROKERS)
        or restarts.end_hold(draft)
        or Enter(Phase.KAFKA4_BROKERS)
    )


def run_kafka4_brokers_phase(draft: Draft) -> Outcome:
    """Restart the brokers with Kafka 4, and compare the voters' logs afterwards."""
    if (turning := enter_way_back(draft)) is not None:
        return turning
    kafka4_leg.note_brokers(draft)
    return (
        _reconcile(draft, BrokerMode.KAFKA4)
        or _ensure_controllers_moved(draft)
        or _whole(draft)
        or _ensure_all_know(draft)
        or verifying.ensure_verdict(draft, Profile.REPLICAS, Phase.KAFKA4)
        or Enter(Phase.KAFKA4)
    )


def enter_way_back(draft: Draft) -> Outcome | None:
    """Return the outcome for a user who does not want Kafka 4 any more, None for one who wants it."""
    if draft.spec.target is not Target.KRAFT:
        return None
    if (refused := kafka4_leg.refused_return(draft)) is not None:
        return refused
    leg = draft.status.kafka4_leg
    if leg is not None and leg.brokers_began_at is not None:
        compared = verifying.ensure_verdict(draft, Profile.REPLICAS, Phase.LEAVING_KAFKA4)
        if compared is not None:
            return compared
    if (waiting := restarts.paused(draft)) is not None:
        return waiting
    draft.update(given_back_at=None)
    return Enter(Phase.LEAVING_KAFKA4)


def _begin(draft: Draft) -> Wait | None:
    """Record the images of before, and what brokers run and would start from, as the copies have shown it."""
    leg = draft.status.kafka4_leg
    if leg is None or leg.began_at is not None:
        return None
    return (
        _ensure_copies(draft)
        or _record_image(draft)
        or kafka4_leg.begin(draft)
        or rolls.record_images(draft)
        or templates.record_templates(draft)
    )


def _reconcile(draft: Draft, mode: BrokerMode) -> Wait | None:
    """Keep the controllers as they shall be, and bring every broker to a mode.

    The StatefulSets are locked before a controller restarts: no owner's rolling restart runs beside it.
    """
    locked = rolls.ensure_configured(draft, BrokerMode.KRAFT) if mode is BrokerMode.KRAFT else None
    return locked or rolls.reconcile_nodes(draft, mode)


def _ensure_controllers_moved(step: StepContext) -> Wait | None:
    """Return None once every controller runs what is recorded for it, and says that it supports Kafka 4."""
    leg = step.status.kafka4_leg
    status = step.status.controllers
    if leg is None or status is None:
        return Wait("the controllers are not on record")
    lack = converging.lack_of(step, converging.Pace.NEXT)
    if status.change is not None or lack is not None:
        words = "a change of the controllers is under way" if lack is None else lack.words
        return Wait(f"controllers with Kafka {leg.release}: {words}")
    if status.rendered is None or status.rendered.image != leg.controllers_image:
        return Wait(f"controllers with Kafka {leg.release}: they shall run image {leg.controllers_image}")
    return _ensure_know(step, step.spec.controllers.node_ids)


def _ensure_know(step: StepContext, node_ids: tuple[int, ...]) -> Wait | None:
    """Return None once these nodes say that they support a metadata.version of Kafka 4."""
    features = step.observation.features
    if isinstance(features, Unobserved):
        return Wait(str(features))
    newest_before = (levels_of(BRIDGE) or (0, 0))[1]
    for node_id in node_ids:
        node = features.get(node_id, Unobserved(f"node {node_id}", "its features were not asked"))
        if isinstance(node, Unobserved):
            return Wait(str(node))
        highest = node.supported.get(FEATURE, (0, 0))[1]
        if highest <= newest_before:
            return Wait(f"node {node_id} supports metadata.version up to {text_of(highest)}: it does not run Kafka 4")
    return None


def _ensure_all_know(step: StepContext) -> Wait | None:
    return _ensure_know(step, (*step.spec.controllers.node_ids, *sorted(step.status.broker_ids.values())))


def _whole(step: StepContext) -> Wait | None:
    """Return None while the quorum is whole, every broker is registered and serves, and every ISR is full."""
    for gate in (gates.quorum_blockers, gates.broker_registration_blockers, gates.cluster_blockers):
        if blockers := gate(step):
            return Wait(blockers[0])
    return None


# --------------------------------------------------------------------------------------------------- on the way back


def run_leaving_kafka4_phase(draft: Draft) -> Outcome:
    """Restart the brokers with the release before, then the controllers, the active one last."""
    leg = draft.status.kafka4_leg
    if leg is not None and leg.brokers_began_at is None:
        kafka4_leg.note_return(draft)  # no broker has left the release before
    return (
        _follow_controller(draft)
        or rolls.reconcile_nodes(draft, BrokerMode.KRAFT)
        or _whole(draft)
        or _ensure_compared_between(draft)
        or _note_return(draft)
        or _ensure_controllers_back(draft)
        or _whole(draft)
        or verifying.ensure_verdict(draft, Profile.REPLICAS, Phase.COMPLETED, _RETURN)
        or _conclude_return(draft)
    )


def _follow_controller(draft: Draft) -> Wait | None:
    """Follow the controller that restarts when the user turns back; one that does not come up is taken back alone."""
    operation = draft.status.operation
    if operation is None or operation.kind is not OperationKind.RESTART_CONTROLLER:
        return None
    mending = rolls.roll_changed_controllers(draft)
    return mending or controllers.finish_controller_restart(draft, ControllerMode.FINAL)


def _ensure_compared_between(draft: Draft) -> Wait | None:
    """Compare the voters' logs before the first controller goes back."""
    leg = draft.status.kafka4_leg
    if leg is None or leg.brokers_back_at is not None:
        return None
    return verifying.ensure_verdict(draft, Profile.REPLICAS, Phase.LEAVING_KAFKA4, _CONTROLLERS_BACK)


def _note_return(draft: Draft) -> Wait | None:
    leg = draft.status.kafka4_leg
    if leg is None or leg.brokers_back_at is not None:
        return None
    kafka4_leg.note_return(draft)
    return Wait("every broker runs the release before again; the controllers follow")


def _ensure_controllers_back(step: StepContext) -> Wait | None:
    status = step.status.controllers
    if status is None or status.rendered is None:
        return Wait("the controllers are not on record")
    lack = converging.lack_of(step, converging.Pace.NEXT)
    if status.change is not None or lack is not None:
        return Wait("a change of the controllers is under way" if lack is None else lack.words)
    if status.rendered.image != step.spec.controllers.image:
        return Wait(f"the controllers shall run image {step.spec.controllers.image} again")
    if down := [pod.down for pod in controllers_pods(step) if pod.down]:
        return Wait(down[0])
    return None


def _conclude_return(draft: Draft) -> Outcome:
    draft.update(kafka4_leg=None)
    return Enter(Phase.COMPLETED)
