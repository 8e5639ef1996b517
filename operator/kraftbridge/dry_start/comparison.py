"""Compares the configuration that a copy gives to Kafka with the running one, and with the changes that the overlay of a mode makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from typing_extensions import override

from kraftbridge.models.dry_start import CopyOutcome, GivenSetting, KafkaStart
from kraftbridge.models.phase import BrokerMode
from kraftbridge.models.survey import BrokerSetting, SettingSource

_ZOOKEEPER_SETTINGS: Final = ("zookeeper.", "inter.broker.protocol.")
"""A KRaft broker ignores these settings, so an overlay may remove them (KIP-866)."""
_MIGRATION_FLAG: Final = "zookeeper.metadata.migration.enable"
_MODE_SETTINGS: Final = (_MIGRATION_FLAG, "process.roles")
_NOT_SET: Final = "not set"


@dataclass(frozen=True, slots=True)
class SettingDifference:
    """A setting with two values. Values of sensitive settings are hidden."""

    name: str
    expected: str
    found: str

    @override
    def __str__(self) -> str:
        """Return the setting with both values."""
        return f"{self.name} is {self.found} instead of {self.expected}"


def differences_from_running(copy: CopyOutcome, running: Sequence[BrokerSetting]) -> tuple[SettingDifference, ...]:
    """Return the differences between a copy in the current mode and the running broker.

    Parameters
    ----------
    copy
        A copy that reached the start of Kafka.
    running
        The result of DescribeConfigs for this broker. A dynamic value hides the static one, and sensitive values are not returned.
        Both are not compared.

    Notes
    -----
    DescribeConfigs reports a setting as static if the setting or a synonym is given (``ConfigHelper.createBrokerConfigEntry``). The
    agent lists the same settings.
    """
    start = copy.start
    if start is None:
        return ()
    told = {s.name: s for s in running}
    found = []
    for name in sorted(told.keys() | start.settings.keys()):
        mine, theirs = start.settings.get(name), told.get(name)
        if theirs is not None and (theirs.sensitive or not theirs.known or theirs.source is not SettingSource.STATIC):
            continue
        if mine is not None and mine.sensitive:
            continue
        given = None if mine is None else _as_live(mine.value, copy)
        live = None if theirs is None else theirs.value
        if given != live:
            found.append(SettingDifference(name, _seen(theirs is not None, live), _seen(mine is not None, given)))
    return tuple(found)


def differences_from_overlay(present: CopyOutcome, changed: CopyOutcome) -> tuple[SettingDifference, ...]:
    """Return the differences between a copy in another mode and the current configuration with the overlay's settings.

    Parameters
    ----------
    present
        The copy of the same pod in its current mode.
    changed
        The copy of the same pod in the other mode.
    """
    before, after = present.start, changed.start
    if before is None or after is None:
        return ()
    expected = {name: GivenSetting(_as_live(s.value, present), s.hash) for name, s in before.settings.items()}
    expected |= {name: GivenSetting(value) for name, value in changed.overlay.items()}
    found = {name: GivenSetting(_as_live(s.value, changed), s.hash) for name, s in after.settings.items()}
    kraft = changed.key.mode is BrokerMode.KRAFT
    if kraft:
        expected.pop(_MIGRATION_FLAG, None)
    differences = []
    # A missing overlay shows first in the settings that define the mode.
    for name in sorted(
        expected.keys() | found.keys(), key=lambda n: (n not in _MODE_SETTINGS, n not in changed.overlay, n)
    ):
        wanted, given = expected.get(name), found.get(name)
        dropped = kraft and given is None and name.startswith(_ZOOKEEPER_SETTINGS)
        # A setting that is hashed on one side only was refused by Kafka on the other side, which is a separate finding.
        if wanted == given or dropped:
            continue
        differences.append(SettingDifference(name, _described(wanted), _described(given)))
    for what, one, other in (
        ("system property ", _comparable(before, present), _comparable(after, changed)),
        ("JAAS entry ", dict(before.jaas_entries), dict(after.jaas_entries)),
    ):
        differences += [
            SettingDifference(
                what + name, "another value" if name in one else _NOT_SET, "changed" if name in other else _NOT_SET
            )
            for name in sorted(one.keys() | other.keys())
            if one.get(name) != other.get(name)
        ]
    return tuple(differences)


def _comparable(start: KafkaStart, copy: CopyOutcome) -> dict[str, object]:
    """Return the system properties without those that the overlay itself sets (short address caches)."""
    return {
        name: (_as_live(s.value, copy), s.hash)
        for name, s in start.system_properties.items()
        if not name.startswith("sun.net.inetaddr.")
    }


def _as_live(value: str | None, copy: CopyOutcome) -> str | None:
    """Return a value with the live pod's names and addresses in place of the copy's."""
    if value is None:
        return None
    for own, live in copy.aliases.items():
        value = value.replace(own, live)
    return value


def _described(setting: GivenSetting | None) -> str:
    if setting is None:
        return _NOT_SET
    return "a value that is not shown" if setting.sensitive else _shown(setting.value)


def _seen(is_set: bool, value: str | None) -> str:  # noqa: FBT001 - read beside the value
    return _shown(value) if is_set else _NOT_SET


def _shown(value: str | None) -> str:
    return "null" if value is None else repr(value)


def settings_named(text: str, names: Mapping[str, object], prefix: str) -> tuple[str, ...]:
    """Return the settings in a text, by their own names or as environment variables.

    Parameters
    ----------
    text
        Output of Kafka or of an image.
    names
        Known settings.
    prefix
        Prefix of the image's environment variables: ``KAFKA_`` or ``KAFKA_CFG_``.
    """
    upper = text.upper()
    return tuple(sorted(n for n in names if n in text or prefix + n.upper().replace(".", "_") in upper))
