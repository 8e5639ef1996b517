"""Findings about dynamic settings that a start in KRaft mode refuses. Pure.

A broker of the rehearsal says it from Kafka's own mouth.
What it did not judge, as it was not rehearsed or has changed since, is judged by the table of refusals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kraftbridge.models.broker_record import EffectiveSetting
from kraftbridge.models.catalogue import Code
from kraftbridge.models.observation import Unobserved
from kraftbridge.models.rehearsal import RehearsalVerdict
from kraftbridge.models.status import FindingStatus, RehearsedBroker, RehearsedSetting, finding, first, some
from kraftbridge.models.survey import BrokerSetting, SettingSource, Stated, Survey
from kraftbridge.outside.shell import command, option
from kraftbridge.phases.becoming.refusals import Refusal, falling, refusals
from kraftbridge.phases.becoming.settings import NO_VALUE, Settings, alike
from kraftbridge.phases.draft import StepContext
from kraftbridge.phases.observed import told_settings

Seen = Mapping[int, Settings]
"""Settings in force by broker."""
Judged = Mapping[str, RehearsedSetting]
"""Dynamic settings that Kafka judged in a rehearsal, and that are still stored so."""
_WORDS = 400


def findings(step: StepContext, survey: Survey) -> Iterator[FindingStatus]:
    """Yield what the KRaft start of each broker will refuse, or change."""
    seen = _seen(survey)
    yield from of_brokers(step, seen)
    yield from _changed(step, seen)


def is_told(step: StepContext, rehearsed: RehearsedBroker) -> bool:
    """Return whether the refusals of a rehearsed broker are a finding here, or are accepted as one.

    With other static settings the next rehearsal tells, and no gate opens before it.
    """
    has_refusals = any(not setting.held for setting in rehearsed.settings)
    if has_refusals and not _is_of_now(step):
        return True
    survey = step.observation.survey
    seen = {} if isinstance(survey, Unobserved) else _seen(survey)
    preflight = step.spec.preflight
    if all(preflight.accepts(Code.DYNAMIC_SETTINGS_REFUSED, f"broker/{broker}") for broker in rehearsed.brokers):
        return True
    told = (broker for broker in rehearsed.brokers if broker in seen and _rehearsed(step, broker) is rehearsed)
    return any(not setting.held for broker in told for setting in _judged(rehearsed, seen[broker]).values())


def _seen(survey: Survey) -> Seen:
    # Another finding reports brokers that did not answer.
    settings = told_settings(survey)
    return {broker: {s.name: _in_force(s) for s in settings[broker]} for broker in settings}


def _in_force(setting: BrokerSetting) -> EffectiveSetting:
    return EffectiveSetting(
        setting.value, setting.sensitive, stated=setting.stated or (Stated(setting.source, setting.value),)
    )


def standing(step: StepContext, seen: Seen) -> tuple[FindingStatus, ...]:
    """Return the findings that the user has not accepted; asked again before each restart in KRaft mode."""
    return tuple(f for f in of_brokers(step, seen) if not step.spec.preflight.accepts(f.code, f.object))


def of_brokers(step: StepContext, seen: Seen) -> Iterator[FindingStatus]:
    """Yield a finding for each broker whose start refuses a dynamic setting.

    It has the same object before the migration and before the restart.
    """
    for broker, settings in sorted(seen.items()):
        rehearsed = _rehearsed(step, broker)
        judged = {} if rehearsed is None else _judged(rehearsed, settings)
        by_table = refusals(settings, step.spec.brokers.static_settings)
        unheld = {name: setting for name, setting in judged.items() if not setting.held}
        refused = [refusal for refusal in by_table if refusal.name not in judged]
        lost = falling(settings) if refused else {}
        told = ""
        if rehearsed is not None and unheld:
            refused += _culprits(rehearsed, unheld, by_table, settings)
            lost |= {name: setting.holds or "its static value" for name, setting in unheld.items()}
            told = f". Kafka, in the rehearsal: {_said(rehearsed)}"
        if refused:
            yield finding(
                Code.DYNAMIC_SETTINGS_REFUSED,
                f"broker/{broker}",
                broker=broker,
                refused=some((_words(refusal) for refusal in refused), 10),
                falling=first((f"{name} becomes {value or 'unset'}" for name, value in lost.items()), 10),
                told=told,
                fix=_fix(refused, broker),
            )


def _changed(step: StepContext, seen: Seen) -> Iterator[FindingStatus]:
    """Yield a finding for each broker that runs with another value than the stored one, which a KRaft start applies.

    A broker in ZooKeeper mode refuses what another one has validated, and what is stored stays (``ZkConfigManager``).
    """
    for broker, settings in sorted(seen.items()):
        rehearsed = _rehearsed(step, broker)
        judged = {} if rehearsed is None else _judged(rehearsed, settings)
        changed = [
            f"{name} (now {settings[name].value or NO_VALUE}, in KRaft mode {setting.holds})"
            for name, setting in judged.items()
            if setting.held and setting.holds is not None and _is_other(settings[name], setting)
        ]
        if changed:
            name = f"broker/{broker}"
            yield finding(Code.DYNAMIC_SETTINGS_TAKE_EFFECT, name, broker=broker, settings=some(changed, 10))


def _is_other(live: EffectiveSetting, setting: RehearsedSetting) -> bool:
    """Return whether a broker holds another value than in the rehearsal; both are spelled by Kafka, or as stored."""
    return not any(alike(live.value, value, live.type) for value in (setting.holds, setting.stored))


def _rehearsed(step: StepContext, broker: int) -> RehearsedBroker | None:
    """Return what the last rehearsal says of a broker; None if it says nothing that is sure."""
    record = step.status.rehearsal
    if record is None or not step.spec.rehearsal.enabled or not _is_of_now(step):
        return None
    told = next((rehearsed for rehearsed in record.brokers if broker in rehearsed.brokers), None)
    return None if told is None or told.verdict is RehearsalVerdict.UNKNOWN else told


def _is_of_now(step: StepContext) -> bool:
    """Return whether the last rehearsal had the static settings that are there now.

    Where no rehearsal is repeated, that is not known, and the table judges.
    """
    state = step.observation.rehearsal
    record = step.status.rehearsal
    return not isinstance(state, Unobserved) and record is not None and record.digest == state.fingerprint


def _judged(rehearsed: RehearsedBroker, settings: Settings) -> dict[str, RehearsedSetting]:
    """Return what was rehearsed with the dynamic value that the broker has now."""
    now = {name: setting.stated[0] for name, setting in settings.items() if setting.is_dynamic}
    return {
        setting.name: setting
        for setting in rehearsed.settings
        if setting.name in now and alike(setting.stored, now[setting.name].value, settings[setting.name].type)
    }


def _said(rehearsed: RehearsedBroker) -> str:
    """Return Kafka's own words: its exception, which the line about the refused set comes before."""
    return rehearsed.reason.rpartition(" | ")[2][-_WORDS:]


def _culprits(
    rehearsed: RehearsedBroker, unheld: Judged, by_table: Sequence[Refusal], settings: Settings
) -> list[Refusal]:
    """Return the settings for which Kafka refused the whole set: as the table, or else Kafka, or else nobody tells."""
    known = [refusal for refusal in by_table if refusal.name in unheld]
    if known:
        return known
    told = rehearsed.reason.rpartition(" could not be applied")[2]
    named = [name for name in unheld if name in told] or list(unheld)
    return [_refusal(unheld[name], settings[name]) for name in named]


def _refusal(setting: RehearsedSetting, live: EffectiveSetting) -> Refusal:
    is_default = live.stated[0].source is SettingSource.DYNAMIC_DEFAULT
    return Refusal(setting.name, setting.stored, setting.holds or NO_VALUE, is_default)


def _words(refusal: Refusal) -> str:
    stored = "hidden" if refusal.stored is None else refusal.stored
    return f"{refusal.name} ({stored}, static {refusal.static or 'none'})"


def _fix(refused: Sequence[Refusal], broker: int) -> str:
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
