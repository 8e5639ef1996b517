"""What Kafka 4 makes of settings and of clients, told once every broker runs KRaft. Pure.

Nothing here stops the migration, which ends with 3.9. The way on to Kafka 4 does not begin before it is settled.
Every statement is a row of `kraftbridge.models.kafka4_changes`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kraftbridge.models import kafka4_changes as changes
from kraftbridge.models.broker_settings import without_listener
from kraftbridge.models.catalogue import Code, Severity
from kraftbridge.models.conditions import ConditionType, Reason, Status
from kraftbridge.models.observation import NOT_NEEDED, KafkaSettings, Unobserved
from kraftbridge.models.status import FindingStatus, Kafka4Status, finding, first
from kraftbridge.models.survey import BrokerSetting, SettingSource, Stated
from kraftbridge.phases import old_clients
from kraftbridge.phases.draft import Draft, StepContext
from kraftbridge.phases.needs import tells_kafka4
from kraftbridge.phases.observed import answers

MAXIMUM_FINDINGS: Final = 50
"""Findings in the status. The condition counts all of them."""
_PLACES: Final = 8
_SHOWN: Final = 3
_WIDTH: Final = 200
"""Characters of a value in a finding."""
_KAFKA: Final = ("org.apache.kafka.", "kafka.")
_CLASS: Final = re.compile(r"(?:[a-z_$][\w$]*\.)+[A-Z][\w$]*")
"""A class by its full name."""
_LISTS_OF_CLASSES: Final = frozenset({changes.REPORTERS, "kafka.metrics.reporters", "security.providers"})
_LATER: Final = "Told once every broker runs KRaft (phase AwaitingFinalization)"
_STOPS: Final = frozenset({Code.KAFKA4_REFUSES_VALUE, Code.KAFKA4_LACKS_CLASS})
_HOLDS: Final = _STOPS | {Code.KAFKA4_REFUSES_CLIENTS, Code.KAFKA4_CLIENTS_UNKNOWN}


class Kind(StrEnum):
    """Sort of place where a setting is stated."""

    STATIC = "static"
    DYNAMIC = "dynamic"
    TOPIC = "topic"


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting with its value, as one or several places state it."""

    name: str
    value: str | None
    """None for a password."""
    kind: Kind

    @property
    def shown(self) -> str:
        """The setting with its value, for a message."""
        if self.value is None:
            return f"{self.name} (its value is hidden)"
        value = self.value if len(self.value) <= _WIDTH else f"{self.value[:_WIDTH]}…"
        return f"{self.name}={value}"


Places = dict[Setting, list[str]]
"""Where each setting is stated, in words."""


# ------------------------------------------------------------------------------------------- what is stated


def stated_settings(step: StepContext, seen: KafkaSettings) -> Places:
    """Return what brokers, controllers and topics state, and where."""
    places: Places = {}
    for broker, settings in sorted(answers(seen.brokers).items()):
        for setting in settings:
            for source, value in _sources(setting):
                _note(places, _of_broker(setting.name, source, value), _place(broker, source))
    for name, value in sorted(step.spec.controllers.config.items()):
        _note(places, Setting(name, value, Kind.STATIC), "spec.controllers.config")
    for topic, configs in sorted(seen.topics.items()):
        for name, topic_value in sorted(configs.items()):
            _note(places, Setting(name, topic_value, Kind.TOPIC), f"topic {topic}")
    return places


def _sources(setting: BrokerSetting) -> list[tuple[SettingSource, str | None]]:
    stated = setting.stated or (Stated(setting.source, setting.value),)
    return [(place.source, place.value) for place in stated if place.source is not SettingSource.DEFAULT]


def _of_broker(name: str, source: SettingSource, value: str | None) -> Setting:
    kind = Kind.STATIC if source is SettingSource.STATIC else Kind.DYNAMIC
    return Setting(name, value, kind)


def _place(broker: int, source: SettingSource) -> str:
    match source:
        case SettingSource.DYNAMIC_DEFAULT:
            return "all brokers (dynamic)"
        case SettingSource.DYNAMIC_BROKER:
            return f"broker {broker} (dynamic)"
        case _:
            return f"broker {broker} (static)"


def _note(places: Places, setting: Setting, place: str) -> None:
    known = places.setdefault(setting, [])
    if place not in known:
        known.append(place)


# ------------------------------------------------------------------------------------------- what becomes of it


def findings(step: StepContext, seen: KafkaSettings, clients: Kafka4Status) -> tuple[FindingStatus, ...]:
    """Return what Kafka 4 refuses, ignores and changes, what keeps a node from its start first."""
    places = stated_settings(step, seen)
    found = [each for setting, where in places.items() for each in of_setting(setting, where)]
    found += _new_defaults(seen)
    found += old_clients.findings(step, seen, clients)
    order = {Severity.BLOCKING: 0, Severity.WARNING: 1, Severity.INFORMATION: 2}
    return tuple(sorted(found, key=lambda each: (each.code not in _STOPS, order[each.severity])))


def of_setting(setting: Setting, places: Iterable[str]) -> Iterator[FindingStatus]:
    """Yield what Kafka 4 makes of one setting."""
    listed = list(places)
    where = first(listed, _PLACES)
    place = listed[0] if len(listed) == 1 else f"{listed[0]} and {len(listed) - 1} more"
    if refusal := _refusal(setting):
        since, bound = refusal
        yield finding(
            Code.KAFKA4_REFUSES_VALUE,
            place,
            release=since,
            setting=setting.shown,
            where=where,
            effect=_EFFECTS[setting.kind],
            bound=bound,
        )
    yield from _gone(setting, place, where)
    if setting.kind is not Kind.TOPIC:
        yield from _of_classes(setting, place, where)


_EFFECTS: Final = {
    Kind.STATIC: "a node that has it does not start",
    Kind.DYNAMIC: "a broker ignores it, and runs with its static value or the default",
    Kind.TOPIC: "a broker that finds it does not start",
}


def _refusal(setting: Setting) -> tuple[object, str] | None:
    """Return the first release that refuses the value, and what it accepts; None if every release accepts it."""
    is_of_topic = setting.kind is Kind.TOPIC
    bound = (changes.TOPIC_BOUNDS if is_of_topic else changes.BOUNDS).get(setting.name)
    number = _number(setting.value)
    if bound is not None and number is not None and number < bound.lowest:
        return bound.since, f"at least {bound.lowest}"
    since = None if is_of_topic else changes.NOT_EMPTY.get(setting.name)
    if since is not None and setting.value is not None and not setting.value.strip():
        return since, "a list that is not empty"
    return None


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def _gone(setting: Setting, place: str, where: str) -> Iterator[FindingStatus]:
    gone = (changes.GONE_FROM_TOPICS if setting.kind is Kind.TOPIC else changes.GONE).get(setting.name)
    if gone is None:
        since = changes.NOT_DYNAMIC.get(setting.name) if setting.kind is Kind.DYNAMIC else None
        if since is None:
            return
        gone = changes.Gone("state it in the brokers' own configuration", since)
    if setting.kind is not Kind.TOPIC and setting.name in changes.WITHOUT_EFFECT:
        yield finding(Code.KAFKA4_IGNORES_REST, place, setting=setting.shown, where=where, instead=gone.instead)
        return
    yield finding(
        Code.KAFKA4_DROPS_SETTING,
        place,
        release=gone.since,
        setting=setting.shown,
        where=where,
        instead=gone.instead,
    )


def _of_classes(setting: Setting, place: str, where: str) -> Iterator[FindingStatus]:
    items = [item.strip() for item in (setting.value or "").split(",")]
    for name in items:
        if name in changes.GONE_CLASSES:
            yield finding(
                Code.KAFKA4_LACKS_CLASS,
                place,
                setting=setting.shown,
                where=where,
                lacking=name,
                instead=changes.GONE_CLASSES[name],
            )
    own = [name for name in items if _CLASS.fullmatch(name) and not name.startswith(_KAFKA)]
    if own and _names_classes(setting.name):
        yield finding(Code.KAFKA4_PLUGIN_UNKNOWN, place, setting=setting.shown, where=where)
    if setting.name == changes.REPORTERS and any(items) and changes.JMX_REPORTER not in items:
        yield finding(Code.KAFKA4_WITHOUT_JMX, place, setting=setting.shown, where=where, reporter=changes.JMX_REPORTER)


def _names_classes(name: str) -> bool:
    base = without_listener(name)
    return ".class" in base or base in _LISTS_OF_CLASSES


def _new_defaults(seen: KafkaSettings) -> Iterator[FindingStatus]:
    told = [{setting.name for setting in settings} for settings in answers(seen.brokers).values()]
    if not told:
        return
    unstated = changes.NEW_BEHAVIOUR.keys() - set.intersection(*told)
    if what := "; ".join(f"{name} ({changes.NEW_BEHAVIOUR[name]})" for name in sorted(unstated)):
        yield finding(Code.KAFKA4_DEFAULTS_DIFFER, "brokers", what=what)


# ------------------------------------------------------------------------------------------- what is said


def track(draft: Draft) -> None:
    """Record what Kafka 4 makes of the present settings, and set the condition ``ReadyForKafka4``."""
    if not tells_kafka4(draft.status):
        if not draft.status.phase.row.led_by_kraft:
            draft.update(kafka4=None)
        if draft.status.kafka4 is None:
            draft.set_condition(ConditionType.READY_FOR_KAFKA4, "Unknown", Reason.NOT_STARTED, _LATER)
        return
    seen = draft.observation.kafka4
    if isinstance(seen, Unobserved):
        if seen != NOT_NEEDED:
            draft.set_condition(ConditionType.READY_FOR_KAFKA4, "Unknown", Reason.UNKNOWN, str(seen))
        return
    clients = old_clients.watched(draft, seen)
    found = findings(draft, seen, clients)
    draft.update(kafka4=clients.model_copy(update={"findings": found[:MAXIMUM_FINDINGS], "total": len(found)}))
    draft.set_condition(ConditionType.READY_FOR_KAFKA4, *_condition(draft, seen, found))


def not_known(step: StepContext) -> str:
    """Return why it is not known now what Kafka 4 makes of the settings, ``""`` if it is."""
    seen = step.observation.kafka4
    if isinstance(seen, Unobserved):
        return str(seen)
    if not seen.brokers:
        return "no broker told its settings"
    return _untold(step, seen)


def standing(step: StepContext) -> tuple[FindingStatus, ...]:
    """Return the findings that keep the way to Kafka 4 from beginning: of those that stop a node or refuse a client."""
    seen = step.observation.kafka4
    clients = step.status.kafka4
    if isinstance(seen, Unobserved) or clients is None:
        return ()
    accepts = step.spec.preflight.accepts
    found = findings(step, seen, clients)
    return tuple(each for each in found if each.code in _HOLDS and not accepts(each.code, each.object))


def _condition(step: StepContext, seen: KafkaSettings, found: tuple[FindingStatus, ...]) -> tuple[Status, Reason, str]:
    """Return status, reason and message of the condition."""
    words = ". ".join(each.sentence for each in found[:_SHOWN])
    if len(found) > _SHOWN:
        words += f". {len(found) - _SHOWN} more in status.kafka4"
    if any(each.code in _STOPS for each in found):
        return "False", Reason.SETTINGS_REFUSED, words
    if clients := [each.sentence for each in found if each.code == Code.KAFKA4_REFUSES_CLIENTS]:
        return "False", Reason.CLIENTS_REFUSED, first(clients, _SHOWN, ". ")
    if unknown := _unknown(step, seen, found):
        return "Unknown", Reason.UNKNOWN, f"{unknown}. {words}" if words else unknown
    known = (
        f"Kafka 4.0 to {changes.NEWEST} refuse none of the settings that brokers, controllers and topics have, "
        "and no client that was seen"
    )
    return "True", Reason.PASSED, f"{known}. {words}" if words else known


def _unknown(step: StepContext, seen: KafkaSettings, found: tuple[FindingStatus, ...]) -> str:
    """Return what is not known of the settings, ``""`` if nothing."""
    if not seen.brokers:
        return "No broker told its settings"
    if untold := _untold(step, seen):
        return untold
    if any(each.code == Code.KAFKA4_PLUGIN_UNKNOWN for each in found):
        return "It is not known whether Kafka 4 loads every class that the settings name"
    if any(each.code == Code.KAFKA4_CLIENTS_UNKNOWN for each in found) and not old_clients.is_accepted(step):
        return "It is not known whether Kafka 4 refuses a client"
    return ""


def _untold(step: StepContext, seen: KafkaSettings) -> str:
    """Return which settings nobody told, ``""`` if all are known."""
    for broker in sorted({*step.status.broker_ids.values(), *seen.brokers}):
        absent = Unobserved(f"configuration of broker {broker}", "it is not among the brokers that run")
        answer = seen.brokers.get(broker, absent)
        if isinstance(answer, Unobserved):
            return str(answer)
    if seen.hidden_topics:
        return f"The operator may not read the configuration of {first(seen.hidden_topics)}"
    return ""
