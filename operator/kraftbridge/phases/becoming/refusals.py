"""What a broker's start in KRaft mode will refuse of its dynamic settings. Pure.

``BrokerServer`` of 3.9 registers the reconfigurable parts first and applies the dynamic settings then. Each part validates the new value against the
static one. One value that is refused makes the whole set fall, and every set that comes later. A broker in ZooKeeper mode applies them before the
parts exist, so nothing is checked (``KafkaServer``).
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
    stored: str
    static: str
    is_default: bool
    """Whether it is stored for all brokers (``--entity-default``)."""
    steps: tuple[int, ...] = ()
    """Values of a thread pool that lead to one that is not refused, each of which Kafka accepts after the one before."""


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
        name: "its static value" if setting.sensitive else _static(setting)
        for name, setting in sorted(settings.items())
        if setting.is_dynamic
    }


def _refusals(settings: Settings, static: Mapping[str, str]) -> Iterator[Refusal]:
    for name, setting in sorted(settings.items()):
        if not setting.is_dynamic:
            continue
        stored = setting.stated[0]
        own = static.get(name)
        holds = own if own is not None else _static(setting)
        is_default = stored.source is SettingSource.DYNAMIC_DEFAULT
        if name in THREAD_POOLS:
            steps = _steps(stored.value or "", holds)
            if steps:
                yield Refusal(name, stored.value or "", holds, is_default, steps)
        elif _must_be_static(name):
            hidden = setting.sensitive and (own is not None or setting.static is not None)
            if not hidden and not alike(stored.value, holds, setting.type):
                yield Refusal(name, "hidden" if setting.sensitive else stored.value or "", holds or "none", is_default)


def _static(setting: EffectiveSetting) -> str:
    return (setting.static.value or "") if setting.static is not None else ""


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
