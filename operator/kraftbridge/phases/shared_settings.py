"""Settings that the controllers share with the brokers, taken anew before each forward step. Pure.

A user may change them while the migration rests. A changed value reaches the controllers like a change of
``spec.controllers`` (`nodes.rolls.roll_changed_controllers`). A finding of preflight about the present settings stops
forward steps. It stops no rollback, and no restart that brings a broker back. Once a broker runs KRaft mode, the
controllers rule: the roll then stops only for a finding about the broker that would restart next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kraftbridge.models.conditions import ConditionType, Reason, condition
from kraftbridge.models.observation import Unobserved
from kraftbridge.models.phase import LAST_PHASE, BrokerMode, Phase, Target
from kraftbridge.models.status import FindingStatus, MigrationStatus, WaitKind, some
from kraftbridge.phases.draft import SLOW, Draft, StepContext, Wait
from kraftbridge.phases.observed import because, unread
from kraftbridge.phases.preflight import channel
from kraftbridge.phases.preflight import findings as preflight
from kraftbridge.phases.preflight.kafka import broker_modes, taken_anew

FOLLOWED: Final = frozenset(phase for phase in Phase if phase.row.leads_forward)
"""Phases that lead to a forward step."""
_ROLLS: Final = frozenset(phase for phase in FOLLOWED if phase.row.restarts_nodes)
_SHOWN: Final = 3
_WIDTH: Final = 100
"""Characters of a value in a message."""


def are_due(status: MigrationStatus) -> bool:
    """Return whether the brokers' settings must be read: a forward step comes next, and no node is away."""
    phase = status.phase
    if phase not in FOLLOWED or status.operation is not None:
        return False
    if phase in _ROLLS:
        return True
    if status.target is not None and LAST_PHASE[status.target] is phase:
        return False  # it rests here; they are read once it shall go on
    if phase is not Phase.PROVISIONING_QUORUM:
        return True
    ready = condition(status.conditions, ConditionType.QUORUM_READY)
    return ready is not None and ready.reason in (Reason.DONE, Reason.UNKNOWN)


def changed(before: Mapping[str, str] | None, after: Mapping[str, str] | None) -> tuple[str, ...]:
    """Return what differs between two readings; nothing if one of them is not known."""
    if before is None or after is None:
        return ()
    names = (name for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name))
    return tuple(f"{name} was {_shown(before.get(name))} and is {_shown(after.get(name))}" for name in names)


def _shown(value: str | None) -> str:
    return "unset" if value is None else value[:_WIDTH]


def track(draft: Draft) -> None:
    """Record the settings that the brokers run with now; while a finding stands, the former ones stay."""
    controllers = draft.status.controllers
    if draft.status.phase not in FOLLOWED or draft.spec.target is Target.ZOOKEEPER:
        return
    if controllers is None or controllers.rendered is None or _unknown(draft):
        return
    if controllers.rendered.broker_settings is None:
        # An earlier release of the operator rendered these from `status.broker_settings`.
        if controllers.change is None:
            rendered = controllers.rendered.model_copy(update={"broker_settings": draft.status.broker_settings})
            draft.update(controllers=controllers.model_copy(update={"rendered": rendered}))
        return
    if draft.status.phase is Phase.PROVISIONING_QUORUM and channel.outdated(draft):
        return  # a dry start of the present templates shows what Kafka hides
    settings = _present(draft)
    if settings != draft.status.broker_settings and not _standing(draft):
        draft.update(broker_settings=settings)


def wait_before_entering(step: StepContext) -> Wait | None:
    """Return why the next phase must not be entered with the brokers' present settings, None when it may."""
    if unknown := _unknown(step):
        return Wait(f"before the next phase: {unknown}")
    if standing := _standing(step):
        return _stalled(step, standing[0], "The next phase is not entered")
    present = _present(step)
    controllers = step.status.controllers
    rendered = None if controllers is None or controllers.rendered is None else controllers.rendered.broker_settings
    # A dry start that this step believed may show what the step's first look did not.
    if step.status.broker_settings != present or rendered not in (None, present):
        return Wait("before the next phase: the controllers do not have the brokers' present settings yet")
    return None


def _present(step: StepContext) -> dict[str, str]:
    """Return the settings that the controllers would take over now, the recorded ones while that is not known."""
    survey = step.observation.survey
    return step.status.broker_settings if isinstance(survey, Unobserved) else taken_anew(step, survey)


def wait_before_restart(step: StepContext, node_id: int) -> Wait | None:
    """Return why a broker must not restart forward with the brokers' present settings, None when it may."""
    if step.status.phase not in _ROLLS or copy_has_begun(step):
        return None
    if unknown := _unknown(step):
        return Wait(f"before broker {node_id} restarts: {unknown}")
    standing = _standing(step)
    modes = broker_modes(step)
    if BrokerMode.KRAFT in modes.values():
        standing = tuple(f for f in standing if f.object == f"broker/{node_id}")
    if not standing:
        return None
    done = sum(mode is not modes.get(node_id) for mode in modes.values())
    held = (
        f"Broker {node_id} is not restarted. "
        f"{done} of {len(modes)} brokers have restarted in phase {step.status.phase}, and all of them serve"
    )
    return _stalled(step, standing[0], held)


def held(step: StepContext) -> dict[int, str]:
    """Return the brokers that must not restart forward beside another one, and why."""
    brokers = step.status.broker_ids.values()
    if step.status.phase not in _ROLLS or copy_has_begun(step):
        return {}
    if unknown := _unknown(step):
        return dict.fromkeys(brokers, unknown)
    codes = {finding.object: finding.code for finding in _standing(step)}
    return {broker: f"{codes[name]} stands" for broker in brokers if (name := f"broker/{broker}") in codes}


def copy_has_begun(step: StepContext) -> bool:
    """Return whether the copy has begun in TakingOver: a restart then only brings a broker back."""
    zookeeper = step.observation.zookeeper
    if step.status.phase is not Phase.TAKING_OVER or isinstance(zookeeper, Unobserved):
        return False
    return zookeeper.controller is not None and zookeeper.controller.kraft_controller_epoch >= 0


def _unknown(step: StepContext) -> str:
    """Return why the present settings of a broker are not known, ``""`` if every broker told them."""
    survey = step.observation.survey
    if isinstance(survey, Unobserved):
        return f"the settings of the brokers are read anew{because(unread(survey))}"
    if isinstance(survey.brokers, Unobserved):
        return str(survey.brokers)
    for broker in sorted(step.status.broker_ids.values()):
        settings = survey.brokers.get(broker)
        if settings is None:
            return f"broker {broker} did not tell its settings"
        if isinstance(settings, Unobserved):
            return str(settings)
    return ""


def _standing(step: StepContext) -> tuple[FindingStatus, ...]:
    survey = step.observation.survey
    return () if isinstance(survey, Unobserved) else preflight.blocking(preflight.findings_anew(step, survey))


def _stalled(step: StepContext, standing: FindingStatus, held: str) -> Wait:
    differing = changed(step.status.broker_settings, _present(step))
    words = f" ({some(differing, _SHOWN)})" if differing else ""
    return Wait(
        f"The brokers' settings are not what they were in preflight{words}: "
        f"{standing.sentence}. "
        f"{held}; the migration goes on by itself once this is mended. A rollback is possible as before",
        WaitKind.USER,
        Reason.FINDINGS,
        stalled=True,
        requeue_after=SLOW,
    )
