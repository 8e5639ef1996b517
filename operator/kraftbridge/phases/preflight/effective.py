"""Compares the settings that the brokers run with to their pod templates. Pure.

The template is only the channel by which the migration changes settings. An image may ignore it (a mounted properties file), and a script may set
values that it does not show. So preflight judges the running settings, and the controllers get those. DescribeConfigs is not complete either: it hides
the values of secrets and of plugins' settings (``ConfigHelper``). A dry start shows those of Kafka's own authorizers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from kraftbridge.models.broker_settings import COPIED
from kraftbridge.models.catalogue import Code
from kraftbridge.models.dry_start import DryStartState
from kraftbridge.models.observation import StatefulSetState, Unobserved
from kraftbridge.models.phase import BrokerMode
from kraftbridge.models.status import FindingStatus
from kraftbridge.models.survey import BrokerSetting, SettingSource, Survey
from kraftbridge.phases.draft import StepContext
from kraftbridge.phases.preflight.finding import finding

Seen = Mapping[int, Mapping[str, BrokerSetting]]
"""Running settings by broker id and name."""

CHANGED_FROM_THE_TEMPLATE = ("authorizer.class.name", "listener.security.protocol.map")
"""Settings whose new value the migration computes from the template; a value that the template does not show would be lost."""

HIDDEN_BY_KAFKA = {
    "super.users": "spec.controllers.superUsers",
    "allow.everyone.if.no.acl.found": "spec.controllers.config",
}
"""Settings of authorizers that the controllers need, whose values no broker serves, and where to give them."""

_EXPANDED = ("$(", "${")


def seen_settings(survey: Survey, dry_start: DryStartState | Unobserved) -> Seen:
    """Return what the brokers that answered run with; a value that Kafka hides is taken from the broker's copy in its present mode."""
    if isinstance(survey.brokers, Unobserved):
        return {}
    return {
        broker: _completed({s.name: s for s in settings}, _given(broker, dry_start))
        for broker, settings in survey.brokers.items()
        if not isinstance(settings, Unobserved)
    }


def _given(broker: int, dry_start: DryStartState | Unobserved) -> Mapping[str, str]:
    """Return the values that a broker's copy in its present mode shows; none without a dry start of what is there now."""
    report = None if isinstance(dry_start, Unobserved) else dry_start.current
    for copy in report.copies if report is not None else ():
        if (
            copy.broker_id == broker
            and copy.key.mode is BrokerMode.ZOOKEEPER
            and copy.start is not None
            and copy.start.valid
        ):
            return {name: s.value for name, s in copy.start.settings.items() if s.value is not None}
    return {}


def _completed(settings: dict[str, BrokerSetting], given: Mapping[str, str]) -> dict[str, BrokerSetting]:
    hidden = [s for s in settings.values() if s.value is None and s.source is SettingSource.STATIC and s.name in given]
    return settings | {s.name: replace(s, value=given[s.name]) for s in hidden}


def findings(step: StepContext, seen: Seen) -> Iterator[FindingStatus]:
    """Find settings that run with another value than the template states."""
    sets, ids = step.stateful_sets(), step.registered_broker_ids()
    if isinstance(sets, Unobserved) or not ids:
        return  # other findings report it
    for item in sets:
        for pod in item.pods:
            if ids[pod.name] in seen:
                yield from _of_broker(item, ids[pod.name], seen[ids[pod.name]])
    yield from _hidden(step, sets, seen)


def _of_broker(item: StatefulSetState, broker: int, running: Mapping[str, BrokerSetting]) -> Iterator[FindingStatus]:
    name = f"broker/{broker}"
    if "broker.id" not in running and "node.id" not in running:
        yield finding(Code.GENERATED_BROKER_IDS, name, stated="neither broker.id nor node.id is set")
    for setting in (*COPIED, *CHANGED_FROM_THE_TEMPLATE):
        stated = item.settings.get(setting, "").strip()
        own = running.get(setting)
        if setting in item.unreadable_settings or any(part in stated for part in _EXPANDED):
            continue  # the template does not say the value
        if own is None or own.source is not SettingSource.STATIC:
            if stated and own is None:
                yield finding(
                    Code.SETTING_NOT_RUNNING,
                    name,
                    setting=setting,
                    stated=stated,
                    stateful_set=item.name,
                    running="without it",
                )
        elif own.value is None:
            continue
        elif stated and _normal(stated) != _normal(own.value):
            running_with = f"with {own.value}"
            yield finding(
                Code.SETTING_NOT_RUNNING,
                name,
                setting=setting,
                stated=stated,
                stateful_set=item.name,
                running=running_with,
            )
        elif not stated and setting in CHANGED_FROM_THE_TEMPLATE:
            yield finding(Code.SETTING_HIDDEN, name, setting=setting, value=own.value, stateful_set=item.name)


def _hidden(step: StepContext, sets: tuple[StatefulSetState, ...], seen: Seen) -> Iterator[FindingStatus]:
    """Ask for what no broker serves, and neither a template nor a copy shows."""
    state = step.observation.dry_start
    if not isinstance(state, Unobserved) and not state.off and state.current is None:
        return  # the copies that are awaited may show it; the gate stays closed until then
    given = {"super.users": bool(step.spec.controllers.super_users)}
    for setting, place in HIDDEN_BY_KAFKA.items():
        running = any(setting in settings and settings[setting].value is None for settings in seen.values())
        shown = any(item.settings.get(setting) for item in sets)
        if running and not shown and not given.get(setting) and setting not in step.spec.controllers.config:
            yield finding(Code.SETTING_NOT_SERVED, "brokers", setting=setting, place=place)


def taken_over(survey: Survey, dry_start: DryStartState | Unobserved) -> dict[str, str]:
    """Return the running settings that the controllers take over from the brokers.

    If brokers differ, the value of the broker with the highest id counts.
    """
    found: dict[str, str] = {}
    for _, settings in sorted(seen_settings(survey, dry_start).items()):
        found |= {
            name: own.value
            for name in (*COPIED, *CHANGED_FROM_THE_TEMPLATE)
            if (own := settings.get(name)) is not None and own.value and own.source is SettingSource.STATIC
        }
    return found


def _normal(value: str) -> tuple[str, ...]:
    """Return a value in a canonical form: sorted list, without spaces, booleans in lower case."""
    parts = (part.strip() for part in value.split(","))
    return tuple(sorted(part.lower() if part.lower() in {"true", "false"} else part for part in parts if part))
