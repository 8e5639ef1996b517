"""What a broker's start in KRaft mode will refuse of its dynamic settings. Pure.

``BrokerServer`` of 3.9 registers the reconfigurable parts first and applies the dynamic settings then. Each part
validates the new value against the static one. One value that is refused makes the whole set fall, and every set that
comes later. A broker in ZooKeeper mode applies them before the parts exist, so nothing is checked (``KafkaServer``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kraftbridge.models.broker_record import EffectiveSetting
from kraftbridge.models.broker_settings import without_listener
from kraftbridge.models.survey import SettingSource
from kraftbridge.phases.becoming.settings import Settings, alike

THREAD_POOLS: Final = frozenset(
    {
        "background.threads",
        "log.cleaner.threads",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
    }
)
"""``DynamicThreadPool`` and ``LogCleaner`` refuse more than double and less than half of the present value."""
_ENDPOINTS: Final = frozenset({"advertised.listeners", "listeners"})


@dataclass(frozen=True, slots=True)
class Refusal:
    """A dynamic setting that a KRaft start refuses."""

    name: str
    stored: str | None
    """None for a password, whose value Kafka serves nobody."""
    static: str
    is_default: bool
    """Whether it is stored for all brokers (``--entity-default``)."""
    steps: tuple[int, ...] = ()
    """Values of a thread pool that lead to one that is not refused; Kafka accepts each after the one before."""


def refusals(settings: Settings, static: Mapping[str, str]) -> tuple[Refusal, ...]:
    """Return the dynamic settings of one broker that its start in KRaft mode refuses.

    Parameters
    ----------
    settings
        The broker's settings in force.
    static
        ``spec.brokers.staticSettings``: static lines that the overlay adds.
    """
    return tuple(_refusals(settings, static))


def falling(settings: Settings) -> dict[str, str]:
    """Return every dynamic setting of a broker, with what holds once they fall."""
    return {
        name: "its static value" if setting.sensitive and _has_static(setting) else _static(setting)
        for name, setting in _dynamic(settings).items()
    }


def _refusals(settings: Settings, static: Mapping[str, str]) -> Iterator[Refusal]:
    """Yield the refusals.

    A password that has a static value may differ from it, and nobody is told. The comparison after the restart of the
    first broker reads that from Kafka's log (`unknown_settings`, `differing_settings`).
    """
    for name, setting in _dynamic(settings).items():
        stored = setting.stated[0].value or ""
        holds = static.get(name, _static(setting))
        is_default = setting.stated[0].source is SettingSource.DYNAMIC_DEFAULT
        if name in THREAD_POOLS:
            if steps := _steps(stored, holds):
                yield Refusal(name, stored, holds, is_default, steps)
        elif not _must_be_static(name):
            continue
        elif setting.sensitive:
            if name not in static and not _has_static(setting):
                yield Refusal(name, None, "none", is_default)
        elif not alike(stored, holds, setting.type):
            yield Refusal(name, stored, holds or "none", is_default)


def _dynamic(settings: Settings) -> Settings:
    return {name: setting for name, setting in sorted(settings.items()) if setting.is_dynamic}


def _has_static(setting: EffectiveSetting) -> bool:
    return setting.static is not None and setting.static.source is not SettingSource.DEFAULT


def _static(setting: EffectiveSetting) -> str:
    return "" if setting.static is None else setting.static.value or ""


def _must_be_static(name: str) -> bool:
    return name in _ENDPOINTS or without_listener(name).startswith("ssl.keystore.")


def _steps(stored: str, static: str) -> tuple[int, ...]:
    """Return the values that bring a thread pool near enough to its static size; none where it is near enough already.

    Each must be at least half and at most double the one before (``DynamicThreadPool.validateReconfiguration``).
    """
    try:
        value = int(stored)
        goal = int(static)
    except ValueError:
        return ()
    steps = []
    while value > 2 * goal:
        value = max((value + 1) // 2, goal)
        steps.append(value)
    while value < goal // 2:
        value = min(2 * value, goal)
        steps.append(value)
    return tuple(steps)
