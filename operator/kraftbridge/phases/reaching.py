"""The gate of the ways from the controllers' pods to the brokers: open before anything leads to the takeover. Pure.

The copy begins by itself once the last broker registers (KIP-866). So the ways are tried before the first broker
restarts, and anew before each further one until the copy has begun.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from kraftbridge.models.catalogue import Code
from kraftbridge.models.observation import NOT_NEEDED
from kraftbridge.models.phase import Phase
from kraftbridge.models.status import FindingStatus
from kraftbridge.phases.draft import StepContext, Wait, for_user
from kraftbridge.phases.preflight import findings as preflight
from kraftbridge.phases.shared_settings import copy_has_begun

_PHASES = (Phase.PROVISIONING_QUORUM, Phase.TAKING_OVER)


def wait_before_restart(step: StepContext, besides: AbstractSet[int] = frozenset()) -> Wait | None:
    """Return the wait while a controller does not reach a broker, or it is not known whether it does.

    Parameters
    ----------
    besides
        Brokers that are down. Nobody connects to them until they listen again.
    """
    if step.status.phase not in _PHASES or copy_has_begun(step):
        return None
    if step.observation.paths == NOT_NEEDED:
        return Wait("before any broker restarts: the connections from the controllers' pods to the brokers are tried")
    expected = _objects(besides)
    standing = preflight.blocking(preflight.path_findings(step))
    standing = tuple(finding for finding in standing if finding.object not in expected)
    # What is closed says more than what is not known, and takes somebody to open it.
    for finding in sorted(standing, key=lambda each: each.code != Code.INTER_BROKER_PATH_CLOSED):
        return _wait(finding, len(standing))
    return None


def blockers(step: StepContext, away: AbstractSet[int] = frozenset()) -> list[str]:
    """Return the ways that are known to be closed: a restart that is recorded does not begin then.

    Parameters
    ----------
    away
        Brokers that restart now. Nobody connects to them until they listen again.
    """
    if step.status.phase not in _PHASES or copy_has_begun(step):
        return []
    expected = _objects(away)
    return [_words(standing, 1) for standing in _closed(step) if standing.object not in expected]


def closed(step: StepContext) -> str:
    """Return what a user who rests at the quorum must mend before going on, ``""`` if no way is known to be closed."""
    standing = _closed(step)
    return f". Before that: {_words(standing[0], len(standing))}" if standing else ""


def _objects(brokers: AbstractSet[int]) -> frozenset[str]:
    return frozenset(f"broker/{broker}" for broker in brokers)


def _closed(step: StepContext) -> list[FindingStatus]:
    if step.observation.paths == NOT_NEEDED:
        return []
    found = preflight.blocking(preflight.path_findings(step))
    return [finding for finding in found if finding.code == Code.INTER_BROKER_PATH_CLOSED]


def _wait(finding: FindingStatus, count: int) -> Wait:
    message = f"before any broker restarts: {_words(finding, count)}"
    if finding.code != Code.INTER_BROKER_PATH_CLOSED:
        return Wait(message)
    message += ". The connections are tried again every few seconds, and the migration goes on once all succeed"
    return for_user(message)


def _words(finding: FindingStatus, count: int) -> str:
    more = f" ({count - 1} more of this kind)" if count > 1 else ""
    return f"{finding.code} on {finding.object}{more}: {finding.reason}. {finding.fix}"
