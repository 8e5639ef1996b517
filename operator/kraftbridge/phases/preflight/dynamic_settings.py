"""Findings about dynamic settings that a start in KRaft mode refuses. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kraftbridge.models.broker_record import EffectiveSetting
from kraftbridge.models.catalogue import Code
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.models.status import FindingStatus, finding, first, some
from kraftbridge.models.survey import BrokerSetting, Stated, Survey
from kraftbridge.outside.shell import command, option
from kraftbridge.phases.becoming.refusals import Refusal, falling, refusals
from kraftbridge.phases.becoming.settings import Settings
from kraftbridge.phases.draft import StepContext
from kraftbridge.phases.observed import told_settings

Seen = Mapping[int, Settings]
"""Settings in force by broker."""


def findings(spec: MigrationSpec, survey: Survey) -> Iterator[FindingStatus]:
    """Yield what the KRaft start of each broker will refuse."""
    # Another finding reports brokers that did not answer.
    settings = told_settings(survey)
    yield from of_brokers(spec, {broker: {s.name: _in_force(s) for s in settings[broker]} for broker in settings})


def _in_force(setting: BrokerSetting) -> EffectiveSetting:
    return EffectiveSetting(
        setting.value, setting.sensitive, stated=setting.stated or (Stated(setting.source, setting.value),)
    )


def standing(step: StepContext, seen: Seen) -> tuple[FindingStatus, ...]:
    """Return the findings that the user has not accepted; asked again before each restart in KRaft mode."""
    return tuple(f for f in of_brokers(step.spec, seen) if not step.spec.preflight.accepts(f.code, f.object))


def of_brokers(spec: MigrationSpec, seen: Seen) -> Iterator[FindingStatus]:
    """Yield a finding for each broker whose start refuses a dynamic setting.

    It has the same object before the migration and before the restart.
    """
    for broker, settings in sorted(seen.items()):
        refused = refusals(settings, spec.brokers.static_settings)
        if refused:
            yield finding(
                Code.DYNAMIC_SETTINGS_REFUSED,
                f"broker/{broker}",
                broker=broker,
                refused=some((_words(refusal) for refusal in refused), 10),
                falling=first((f"{name} becomes {value or 'unset'}" for name, value in falling(settings).items()), 10),
                fix=_fix(refused, broker),
            )


def _words(refusal: Refusal) -> str:
    stored = "hidden" if refusal.stored is None else refusal.stored
    return f"{refusal.name} ({stored}, static {refusal.static or 'none'})"


def _fix(refused: tuple[Refusal, ...], broker: int) -> str:
    """Return what to do: a static line, or a value that is not refused."""
    lines = []
    hidden = []
    commands = []
    for refusal in refused:
        if refusal.stored is None:
            hidden.append(refusal.name)
        else:
            lines.append(f"{refusal.name}={refusal.stored}")
        if refusal.steps:
            commands.append(f"Or lower it step by step: {_command(refusal, broker)}")
    parts = []
    if lines:
        parts.append(
            f"Give the brokers the static line {', '.join(lines)} "
            "(in their own configuration, or in spec.brokers.staticSettings), or remove the dynamic setting"
        )
    if hidden:
        parts.append(f"Give the brokers {', '.join(hidden)} as static settings")
    return ". ".join([*parts, *commands])


def _command(refusal: Refusal, broker: int) -> str:
    """Return the commands that bring a thread pool near enough to its static size.

    Kafka refuses to delete a value that is more than double of what holds then.
    """
    entity = option("entity-default") if refusal.is_default else option("entity-name", broker)
    template = "kafka-configs --bootstrap-server HOST:PORT --alter --entity-type brokers {entity} --add-config {config}"
    return ", then ".join(command(template, entity=entity, config=f"{refusal.name}={value}") for value in refusal.steps)
