"""The brokers' way to the release from which the migration starts: one or two rolling restarts on ZooKeeper. Pure.

While a broker of the former release runs, every broker keeps the lowest protocol that ran: a leader of an older release
refuses the requests of a newer protocol, and its partitions lose their replicas. The first restart in migration mode
lifts it. A broker that has run 3.9's protocol cannot run the former release again, so that restart waits for a word.

With a protocol below 2.8 ZooKeeper's controller gives topics no ids and brokers keep none (KIP-516), and KRaft refuses
a log without one. So the protocol is lifted in a rolling restart of its own, on ZooKeeper and before migration mode
(`topic_ids` proves what it is for).
"""

from __future__ import annotations

from typing import Final

from kraftbridge.copies.dry_start import image_digest
from kraftbridge.models.conditions import Reason, Status
from kraftbridge.models.dry_start import CopyOutcome
from kraftbridge.models.observation import Unobserved
from kraftbridge.models.phase import BrokerMode, Phase, Target
from kraftbridge.models.protocol import BRIDGE, SETTING, is_bridge, lowest
from kraftbridge.models.status import BrokerUpgradeStatus, MigrationStatus
from kraftbridge.phases.draft import Draft, StepContext, Wait, for_user

Decided = tuple[Status, Reason, str]
"""Status, reason and message of a condition."""
UNKNOWN: Final = f"it is not known yet which {SETTING} every broker runs"


def is_needed(status: MigrationStatus) -> bool:
    """Return whether the migration brings the brokers to another image."""
    return status.broker_upgrade is not None and status.broker_upgrade.needed


def may_have_lifted(status: MigrationStatus) -> bool:
    """Return whether a broker may have run 3.9's protocol, so that none can run its former image again."""
    upgrade = status.broker_upgrade
    return upgrade is not None and upgrade.needed and upgrade.lifted_at is not None


def lifts_alone(status: MigrationStatus) -> bool:
    """Return whether the protocol is lifted in a rolling restart of its own, because topics have no ids with it."""
    return status.broker_upgrade is not None and status.broker_upgrade.lifts_alone


def is_lifting(status: MigrationStatus) -> bool:
    """Return whether the rolling restart of its own that lifts the protocol has begun."""
    return lifts_alone(status) and may_have_lifted(status)


def bridge_mode(status: MigrationStatus) -> BrokerMode:
    """Return the mode on ZooKeeper that brokers with the new image have, or are brought to."""
    return BrokerMode.LIFTED if is_lifting(status) else BrokerMode.UPGRADED


def bridge_modes(status: MigrationStatus) -> tuple[BrokerMode, ...]:
    """Return the modes on ZooKeeper to which the brokers are brought with the new image."""
    if not is_needed(status):
        return ()
    return (BrokerMode.UPGRADED, BrokerMode.LIFTED) if lifts_alone(status) else (BrokerMode.UPGRADED,)


def protocols(step: StepContext) -> dict[int, str] | Unobserved:
    """Return the protocol that each broker runs, unknown unless every broker of the cluster tells it."""
    survey = step.observation.survey
    if isinstance(survey, Unobserved):
        return survey
    if isinstance(survey.brokers, Unobserved):
        return survey.brokers
    # What preflight recorded before is about the brokers of that time.
    expected = set(step.registered_broker_ids().values() or step.status.broker_ids.values())
    told: dict[int, str] = {}
    for broker in sorted(expected | survey.brokers.keys()):
        settings = survey.brokers.get(broker, Unobserved(f"broker {broker}", "it did not tell its settings"))
        if isinstance(settings, Unobserved):
            return settings
        value = next((setting.value for setting in settings if setting.name == SETTING), None)
        if not value:
            return Unobserved(f"broker {broker}", f"it did not tell its {SETTING}")
        told[broker] = value
    return told or Unobserved("brokers", "none told its settings")


def take_upgrade(draft: Draft) -> None:
    """Record in preflight what ``spec.brokers.upgrade`` is to do; what was recorded stays while that is not known."""
    if draft.spec.brokers.upgrade is None:
        if draft.status.broker_upgrade is not None:
            draft.update(broker_upgrade=None)
        return
    told = protocols(draft)
    if isinstance(told, Unobserved):
        return
    protocol = lowest(told.values())
    if not protocol:
        return
    found = BrokerUpgradeStatus(needed=not all(map(is_bridge, told.values())), protocol=protocol)
    known = draft.status.broker_upgrade
    if known is None or (known.needed, known.protocol) != (found.needed, found.protocol):
        draft.update(broker_upgrade=found)


def wait_until_known(step: StepContext) -> Wait | None:
    """Return the wait of a preflight that does not know yet whether the brokers must be brought to another release."""
    if step.spec.brokers.upgrade is None:
        return None
    told = protocols(step)
    if isinstance(told, Unobserved):
        return Wait(f"{UNKNOWN}: {told}")
    return None if step.status.broker_upgrade is not None else Wait(UNKNOWN)


def missing_record(step: StepContext) -> Wait | None:
    """Return the wait of a migration under way whose record of the upgrade is gone: nothing else has the protocol."""
    phase = step.status.phase
    if step.spec.brokers.upgrade is None or step.status.broker_upgrade is not None or phase.row.is_open:
        return None
    return for_user(
        "spec.brokers.upgrade is set, and status.brokerUpgrade, which preflight recorded, is gone: the operator does "
        f"not guess which {SETTING} ran. Restore status.brokerUpgrade with kubectl patch --subresource=status",
        Reason.UNKNOWN,
    )


def follows_preflight(step: StepContext) -> Phase:
    """Return the phase after preflight: that of the upgrade is left out unless spec or target names it."""
    asked = step.spec.brokers.upgrade is not None or step.spec.target is Target.BRIDGE_RELEASE
    return Phase.UPGRADING_BROKERS if asked else Phase.PROVISIONING_QUORUM


# ----------------------------------------------------------------------------------------------------- images


def upgraded_copies(step: StepContext) -> tuple[CopyOutcome, ...]:
    """Return the copies of the last dry start that got the new image."""
    state = step.observation.dry_start
    if isinstance(state, Unobserved) or state.current is None:
        return ()
    return tuple(copy for copy in state.current.copies if copy.key.mode is not BrokerMode.ZOOKEEPER)


def record_images(draft: Draft) -> None:
    """Record with which image the copies started, before any broker does."""
    upgrade = draft.status.broker_upgrade
    asked = draft.spec.brokers.upgrade
    if upgrade is None or asked is None or not upgrade.needed:
        return
    images = {
        f"{copy.key.stateful_set}/{image.container}": image_digest(image.copy_id)
        for copy in upgraded_copies(draft)
        for image in copy.images
        if image.copy == asked.image
    }
    if images and images != upgrade.images:
        draft.update(broker_upgrade=upgrade.model_copy(update={"images": images}))


def expected_images(step: StepContext, stateful_set: str) -> dict[str, str]:
    """Return the digest of each container's image with which the copies of an upgraded pod started."""
    upgrade = step.status.broker_upgrade
    if upgrade is None or not upgrade.needed:
        return {}
    prefix = f"{stateful_set}/"
    return {key.removeprefix(prefix): digest for key, digest in upgrade.images.items() if key.startswith(prefix)}


# -------------------------------------------------------------------------------------------------- the way back


def note_lift(draft: Draft, mode: BrokerMode) -> None:
    """Record that a broker may run 3.9's protocol from now on: a pod that starts by itself takes the template."""
    upgrade = draft.status.broker_upgrade
    if upgrade is not None and upgrade.needed and upgrade.lifted_at is None and mode.lifts:
        draft.update(broker_upgrade=upgrade.model_copy(update={"lifted_at": draft.now}))


def wait_for_word(step: StepContext) -> Wait | None:
    """Return the wait for the user, whose word alone gives the brokers' former image up."""
    upgrade = step.status.broker_upgrade
    if upgrade is None or not upgrade.needed or upgrade.lifted_at is not None:
        return None
    if step.spec.rollback.give_up_former_image:
        return None
    why = ", still on ZooKeeper, so that every topic gets its id" if upgrade.lifts_alone else ""
    return for_user(
        f"every broker runs the image of spec.brokers.upgrade with {SETTING} {upgrade.protocol}. "
        f"The next rolling restart lifts it to {BRIDGE}{why}: "
        f"from its first broker on, a rollback keeps that image and {SETTING} {BRIDGE} on ZooKeeper, "
        "and the former image cannot come back. "
        "Set spec.rollback.giveUpFormerImage to true to go on, or spec.target to ZooKeeper to go back"
    )


def left_to_do(step: StepContext) -> str:
    """Return what the brokers' owner must change after a rollback that kept the new image; ``""`` after any other."""
    if not may_have_lifted(step.status):
        return ""
    asked = step.spec.brokers.upgrade
    image = "the image that the brokers run" if asked is None else asked.image
    return (
        f". Put {image} into the brokers' own release before you apply it again, "
        f"with {SETTING} {BRIDGE} or without it: "
        "a broker that has run this protocol cannot run the former image"
    )


def explained(step: StepContext, decided: Decided) -> Decided:
    """Return the condition ``RollbackPossible`` with what a rollback does with the brokers' image."""
    status, reason, message = decided
    asked = step.spec.brokers.upgrade
    upgrade = step.status.broker_upgrade
    if asked is None or upgrade is None or not upgrade.needed or not step.status.changes_brokers or status != "True":
        return decided
    if upgrade.lifted_at is None:
        return status, reason, f"{message}. A rollback gives the brokers their former image back"
    kept = f"image {asked.image} and {SETTING} {BRIDGE}"
    if upgrade.lifts_alone and step.status.phase in (Phase.UPGRADING_BROKERS, Phase.ROLLING_BACK):
        return status, reason, f"{message}. A rollback brings every broker to {kept}, because a broker may have run it"
    return status, reason, f"{message}. A rollback keeps {kept}, because a broker may have run it"
