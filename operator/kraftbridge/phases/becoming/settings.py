"""Compares the settings in force of one broker before and after its restart. Pure.

Kafka validates all dynamic settings of a set against the *static* values when a KRaft broker starts, and refuses the
set as a whole (``DynamicBrokerConfig.updateDefaultConfig`` and ``updateBrokerConfig``; ``BrokerServer``, 3.9). The
broker's own answer then still names the refused value as the one that should win, so only the value itself counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kraftbridge.constants import ACL_AUTHORIZER, CONTROLLER_LISTENER, STANDARD_AUTHORIZER
from kraftbridge.models import kafka4_changes
from kraftbridge.models.broker_record import (
    BrokerNow,
    BrokerRecord,
    Difference,
    DifferenceKind,
    Effect,
    EffectiveSetting,
)
from kraftbridge.models.broker_settings import AUTHORIZER, cuts_off, destroys, may_change
from kraftbridge.models.config_values import ConfigType, same_value
from kraftbridge.models.release_changes import INTERNAL, REMOVED, is_changed_default
from kraftbridge.models.survey import SettingSource, Stated, Unobserved
from kraftbridge.phases.observed import observed

Settings = Mapping[str, EffectiveSetting]
_PROTOCOL_MAP = "listener.security.protocol.map"
_ENDPOINTS = frozenset({"advertised.listeners", "listeners"})
NO_VALUE = "none"


def effect_of(name: str) -> Effect:
    """Return what another value of a setting does to users."""
    if destroys(name):
        return Effect.DESTROYS
    if cuts_off(name):
        return Effect.CUTS_OFF
    return Effect.CHANGES


def alike(one: str | None, other: str | None, kind: ConfigType) -> bool:
    """Return whether two spellings mean the same: Kafka serves parsed values, and keeps what was typed as a synonym."""
    return same_value(kind, one or "", other or "")


def refused_settings(settings: Settings) -> dict[str, tuple[str, str]]:
    """Return the dynamic settings that do not hold: the stored value and the value in force, by name."""
    refused = {}
    for name, setting in sorted(settings.items()):
        stored = _stored(setting)
        if stored is None or stored.value is None or setting.sensitive:
            continue
        if not alike(setting.value, stored.value, setting.type):
            refused[name] = (stored.value or "", setting.value or NO_VALUE)
    return refused


def hidden_settings(settings: Settings) -> tuple[str, ...]:
    """Return the dynamic settings whose value Kafka serves nobody."""
    return tuple(sorted(name for name, setting in settings.items() if setting.is_dynamic and setting.sensitive))


def unknown_settings(now: BrokerNow) -> str:
    """Return why it is not known whether the dynamic settings hold; ``""`` if it is."""
    if isinstance(now.settings, Unobserved):
        return str(now.settings)
    hidden = hidden_settings(now.settings)
    if hidden and isinstance(now.refusals, Unobserved):
        names = ", ".join(hidden)
        return (
            f"no broker serves the value of {names}, "
            f"and Kafka's log of this start cannot be read ({now.refusals.reason})"
        )
    return ""


def differing_settings(
    record: BrokerRecord, now: BrokerNow, *, new_release: bool = False, kafka4: bool = False
) -> Iterator[Difference]:
    """Yield each setting that holds another value than before, and each dynamic setting that Kafka refused.

    Parameters
    ----------
    new_release
        Whether the broker was brought to another release, which has other settings and defaults.
    kafka4
        Whether it was brought from 3.9 to Kafka 4, or back.
    """
    if isinstance(now.settings, Unobserved):
        return
    line = _refusal(now)
    refused = refused_settings(now.settings)
    for name, (stored, holds) in refused.items():
        yield Difference(DifferenceKind.REFUSED, effect_of(name), name, stored, holds, line)
    if line:
        for name in hidden_settings(now.settings):
            yield Difference(DifferenceKind.REFUSED, effect_of(name), name, "its stored value", "not known", line)
    if isinstance(record.settings, Unobserved):
        return
    unset = EffectiveSetting(None)
    for name in sorted((record.settings.keys() | now.settings.keys()) - refused.keys()):
        before = record.settings.get(name, unset)
        after = now.settings.get(name, unset)
        expected = _expected(name, before.value, record, now)
        # Before Kafka 2.6 a broker tells no types.
        kind = after.type if before.type is ConfigType.UNKNOWN else before.type
        if new_release and _is_of_release(name, record, now):
            continue
        if kafka4 and _is_of_kafka4(name, record, now):
            continue
        if may_change(name) or alike(expected, after.value, kind) or _is_ours(name, expected, after.value):
            continue
        if not _changed_by_user(before, after, effect_of(name)):
            values = (expected or NO_VALUE, after.value or NO_VALUE)
            yield Difference(DifferenceKind.SETTING, effect_of(name), name, *values, line)


def _is_of_release(name: str, record: BrokerRecord, now: BrokerNow) -> bool:
    """Return whether a difference is one between the releases' own settings and defaults: nobody states the setting."""
    if isinstance(record.settings, Unobserved) or isinstance(now.settings, Unobserved):
        return False
    before = record.settings.get(name)
    after = now.settings.get(name)
    if not all(_is_default(setting) for setting in (before, after) if setting is not None):
        return False
    if before is None or after is None:
        return before is None or name in REMOVED or name in INTERNAL
    return is_changed_default(name, before.value, after.value)


def _is_of_kafka4(name: str, record: BrokerRecord, now: BrokerNow) -> bool:
    """Return whether a difference is one between 3.9 and Kafka 4, in either direction.

    One of them does not have the setting, or has another default. Readiness has told what Kafka 4 ignores.
    """
    if isinstance(record.settings, Unobserved) or isinstance(now.settings, Unobserved):
        return False
    before = record.settings.get(name)
    after = now.settings.get(name)
    known = [setting for setting in (before, after) if setting is not None]
    if len(known) < 2 and name in kafka4_changes.GONE:  # noqa: PLR2004 - before and after
        return True
    if not all(map(_is_default, known)):
        return False
    if before is None or after is None:
        return True
    return kafka4_changes.is_new_default(name, before.value, after.value)


def _is_default(setting: EffectiveSetting) -> bool:
    return all(stated.source is SettingSource.DEFAULT for stated in setting.stated)


def _refusal(now: BrokerNow) -> str:
    """Return Kafka's last line about a refused set, ``""`` without one.

    The line names no setting (it prints a Java enumeration), and one refused set makes every later one fall.
    """
    return "".join(observed(now.refusals, ())[-1:])


def _stored(setting: EffectiveSetting) -> Stated | None:
    """Return the dynamic value that is stored."""
    return setting.stated[0] if setting.is_dynamic else None


def _expected(name: str, value: str | None, record: BrokerRecord, now: BrokerNow) -> str | None:
    """Return the value of before, with the pod's new address where it names the old one."""
    if value is None or name not in _ENDPOINTS or not record.pod_ip:
        return value
    return value.replace(f"//{record.pod_ip}:", f"//{now.pod_ip}:")


def _changed_by_user(before: EffectiveSetting, after: EffectiveSetting, effect: Effect) -> bool:
    """Return whether somebody changed a dynamic setting during the restart: another value is stored, and it holds.

    A start that refuses a set keeps what is stored. One that vanished is believed only where it does no harm.
    """
    if _stored(after) is None:
        return before.is_dynamic and effect is Effect.CHANGES
    return _stored(after) != _stored(before)


def _is_ours(name: str, before: str | None, after: str | None) -> bool:
    """Return whether a difference is what the overlay of a mode makes."""
    if name == AUTHORIZER:
        return {before, after} == {ACL_AUTHORIZER, STANDARD_AUTHORIZER}
    if name == _PROTOCOL_MAP:
        return _without_ours(before) == _without_ours(after)
    return False


def _without_ours(protocol_map: str | None) -> frozenset[str]:
    entries = {entry.strip().upper() for entry in (protocol_map or "").split(",")} - {""}
    return frozenset(entry for entry in entries if not entry.startswith(f"{CONTROLLER_LISTENER}:"))
