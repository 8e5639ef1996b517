"""How long a broker's restart is followed by a pause: as long as somebody may cache its old address. Pure.

The pods of a StatefulSet get other addresses when they restart. A dry start asks the JVM of each copy how long it
caches them (``sun.net.InetAddressCachePolicy``). Clients cannot be asked: `StrategySpec.address_cache_seconds`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kraftbridge.models.dry_start import CopyOutcome
from kraftbridge.models.observation import Unobserved
from kraftbridge.models.phase import BrokerMode, Phase
from kraftbridge.models.status import AddressCachesStatus
from kraftbridge.phases.draft import Draft, StepContext

FOR_EVER: Final = -1
"""``InetAddressCachePolicy.FOREVER``."""
MARGIN_SECONDS: Final = 2
"""Beyond the time of a JVM's cache: an address may be resolved right before the pod gets another one."""


def take_address_caches(draft: Draft) -> None:
    """Record how long the brokers' JVMs cache addresses; the record stays while no dry start tells."""
    state = draft.observation.dry_start
    report = None if isinstance(state, Unobserved) else state.current
    if report is None or report.is_of_ids:
        return
    of_template = _told(copy for copy in report.copies if copy.key.mode is BrokerMode.ZOOKEEPER)
    of_operator = _told(copy for copy in report.copies if copy.key.mode is not BrokerMode.ZOOKEEPER)
    if not any(seconds is not None for seconds in (*of_template, *of_operator)):
        return
    by_default = AddressCachesStatus()
    found = AddressCachesStatus(
        template_seconds=_longest(of_template, by_default.template_seconds),
        operator_seconds=_longest(of_operator, by_default.operator_seconds),
    )
    if found != draft.status.address_caches:
        draft.update(address_caches=found)


def _told(copies: Iterable[CopyOutcome]) -> list[int | None]:
    return [None if copy.start is None else copy.start.address_cache_seconds for copy in copies]


def _longest(told: Iterable[int | None], by_default: int) -> int:
    """Return the longest time that ends; a JVM that does not tell has the default one.

    No pause helps a JVM that caches for ever, and its finding says so. It does not shorten that of the others.
    """
    seconds = [by_default if each is None else each for each in told] or [by_default]
    return max((each for each in seconds if each > FOR_EVER), default=FOR_EVER)


def pause_seconds(step: StepContext, phase: Phase, mode: BrokerMode, *, is_last: bool) -> int:
    """Return the pause after a broker's restart: the longer one of what brokers and clients need, in seconds.

    A pause does not help a broker that caches addresses for ever.

    Parameters
    ----------
    step
        Status has what the dry start showed of the brokers, and spec what the user says of the clients.
    phase
        Phase of the restart.
    mode
        Mode in which the broker starts.
    is_last
        Whether every other broker runs this mode already.
    """
    caches = step.status.address_caches
    is_first_roll = mode is BrokerMode.UPGRADED or (mode is BrokerMode.MIGRATION and phase is Phase.TAKING_OVER)
    some_run_the_template = mode is BrokerMode.ZOOKEEPER or (is_first_roll and not is_last)
    seconds = caches.template_seconds if some_run_the_template else caches.operator_seconds
    return max(step.spec.strategy.address_cache_seconds, seconds + MARGIN_SECONDS if seconds > 0 else 0)
