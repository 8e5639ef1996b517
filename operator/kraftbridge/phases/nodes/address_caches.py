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
from kraftbridge.models.spec import StrategySpec
from kraftbridge.models.status import AddressCachesStatus
from kraftbridge.phases.draft import Draft

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
    present = [copy for copy in report.copies if copy.key.mode is BrokerMode.ZOOKEEPER]
    others = [copy for copy in report.copies if copy.key.mode is not BrokerMode.ZOOKEEPER]
    if not _told(present) or not _told(others):
        return
    found = AddressCachesStatus(template_seconds=_longest(present), operator_seconds=_longest(others))
    if found != draft.status.address_caches:
        draft.update(address_caches=found)


def _told(copies: Iterable[CopyOutcome]) -> list[int]:
    starts = (copy.start for copy in copies)
    return [
        start.address_cache_seconds for start in starts if start is not None and start.address_cache_seconds is not None
    ]


def _longest(copies: Iterable[CopyOutcome]) -> int:
    told = _told(copies)
    return FOR_EVER if min(told) < 0 else max(told)


def pause_seconds(
    strategy: StrategySpec, caches: AddressCachesStatus, phase: Phase, mode: BrokerMode, *, is_last: bool
) -> int:
    """Return the pause after a broker's restart: the longer one of what brokers and clients need, in seconds.

    Parameters
    ----------
    strategy
        What the user says of the clients.
    caches
        What the dry start showed of the brokers. A pause does not help one that caches addresses for ever.
    phase
        Phase of the restart.
    mode
        Mode in which the broker starts.
    is_last
        Whether every other broker runs this mode already.
    """
    is_first_roll = mode is BrokerMode.UPGRADED or (mode is BrokerMode.MIGRATION and phase is Phase.TAKING_OVER)
    some_run_the_template = mode is BrokerMode.ZOOKEEPER or (is_first_roll and not is_last)
    seconds = caches.template_seconds if some_run_the_template else caches.operator_seconds
    return max(strategy.address_cache_seconds, seconds + MARGIN_SECONDS if seconds > 0 else 0)
