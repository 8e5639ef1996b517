"""The channel by which the migration changes the brokers' settings. Pure.

With ``configStyle: Auto`` a dry start chooses it, and nothing else does. A guess comes first, since copies need some
channel to begin with. If it does not reach the brokers, the same dry start tries the others, and another one judges the
channel that does. Preflight passes with a channel that a complete dry start of the present templates has proven. It is
recorded then, and never chosen again during the migration.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from kraftbridge.copies.dry_start import copies_of, described, unreached
from kraftbridge.models.catalogue import Code
from kraftbridge.models.dry_start import DryStartReport
from kraftbridge.models.observation import StatefulSetState, Unobserved
from kraftbridge.models.phase import BrokerMode
from kraftbridge.models.spec import ConfigStyle
from kraftbridge.models.status import ChannelStatus, FindingStatus, finding, with_channel
from kraftbridge.phases.draft import Draft, StepContext, Wait
from kraftbridge.phases.observed import read_sets
from kraftbridge.phases.preflight import dry_start

_WORDS = 200
_SOON = timedelta(0)


def is_open(step: StepContext) -> bool:
    """Return whether the user leaves the channel to the operator."""
    return step.spec.brokers.config_style is ConfigStyle.AUTO


def is_guessed(step: StepContext) -> bool:
    """Return whether the operator shall find the channel, and no dry start has proven one."""
    return is_open(step) and (step.status.channel is None or step.status.channel.proven_at is None)


def unproven(step: StepContext) -> str:
    """Return why no dry start of the present templates proves the present channel; ``""`` if one does."""
    state = step.observation.dry_start
    sets = step.stateful_sets()
    if isinstance(state, Unobserved):
        return str(state)
    if state.off:
        return "dry starts are switched off (dryStart.enabled=false in the chart's values)"
    if isinstance(sets, Unobserved):
        return str(sets)
    report = state.current
    if report is None:
        return "no dry start of the present pod templates has ended"
    if report.problem:
        return report.problem
    if not report.copies:
        return "no copy of a broker's pod was started"
    return "; ".join(f"StatefulSet {name}: {trouble}" for name, trouble in _troubles(report, sets).items() if trouble)


def findings(step: StepContext) -> Iterator[FindingStatus]:
    """Return the finding that no channel is proven; none while copies are to come, or if the user names the channel."""
    if not is_open(step) or dry_start.awaited(step):
        return
    if problem := unproven(step):
        yield finding(Code.CHANNEL_UNKNOWN, "brokers", reason=_tried(step) or problem)


def take_channel(draft: Draft) -> Wait | None:
    """Record the channel to try, the one that a dry start found, and its proof; return a wait if it changed."""
    state = draft.observation.dry_start
    recorded = draft.status.channel
    if not is_open(draft) or isinstance(state, Unobserved) or state.off:
        return None
    if recorded is None and state.channels:
        return _take(draft, ChannelStatus.of(state.channels[0]), "which the pod templates suggest")
    if recorded is None or state.current is None:
        return None
    if not unproven(draft):
        record_proof(draft)
        return None
    reaching = _reaching(draft)
    for brokers in state.channels:
        if described(brokers) in reaching:
            return _take(draft, ChannelStatus.of(brokers), f"which reached the brokers where {recorded} did not")
    return None


def record_proof(draft: Draft) -> None:
    """Record the present channel, and which copies proved it where a dry start ran."""
    state = draft.observation.dry_start
    sets = read_sets(draft)
    channel = ChannelStatus.of(with_channel(draft.spec, draft.status).brokers)
    if isinstance(state, Unobserved) or state.current is None or not sets:
        draft.update(channel=channel)
        return
    recorded = draft.status.channel
    proven = not unproven(draft)
    present = (str(channel), state.fingerprint, proven)
    if recorded is not None and (str(recorded), recorded.fingerprint, recorded.proven_at is not None) == present:
        return
    changes: dict[str, object] = {"fingerprint": state.fingerprint}
    if proven:
        changes |= {"proven_at": draft.now, "proven_by": _proof(sets)}
    draft.update(channel=channel.model_copy(update=changes))


def outdated(step: StepContext) -> bool:
    """Return whether the recorded channel must be judged anew: templates, or what they refer to, may have changed."""
    recorded = step.status.channel
    state = step.observation.dry_start
    if recorded is None or (not recorded.fingerprint and not is_open(step)):
        # An earlier release of the operator recorded it, or no dry start did; `guards` refuses that with Auto.
        return False
    if isinstance(state, Unobserved):
        return True
    if state.off:
        return is_open(step)
    return state.fingerprint != recorded.fingerprint


def _take(draft: Draft, channel: ChannelStatus, why: str) -> Wait:
    draft.update(channel=channel)
    return Wait(f"A dry start tries {channel}, {why}", requeue_after=_SOON)


def _report(step: StepContext) -> DryStartReport | None:
    """Return the dry start of the present templates that has ended; None also while the StatefulSets are not known."""
    state = step.observation.dry_start
    return state.current if not isinstance(state, Unobserved) and read_sets(step) else None


def _reaching(step: StepContext) -> frozenset[str]:
    """Return the other channels that reached every broker."""
    report = _report(step)
    if report is None:
        return frozenset()
    sets = read_sets(step)
    tried = {trial.key.channel for trial in report.trials}
    return frozenset(channel for channel in tried if not any(_troubles(report, sets, channel).values()))


def _tried(step: StepContext) -> str:
    """Return each channel that was tried and why it does not do, ``""`` if there were no copies."""
    report = _report(step)
    if report is None or not report.copies:
        return ""
    sets = read_sets(step)
    offered: dict[str, set[str]] = {}
    for trial in report.trials:
        offered.setdefault(trial.key.channel, set()).add(trial.key.stateful_set)
    troubles = [(described(with_channel(step.spec, step.status).brokers), _troubles(report, sets))]
    for channel, names in offered.items():
        troubles.append((channel, _troubles(report, [s for s in sets if s.name in names], channel)))
    attempts: list[str] = []
    unreached_sets = {stateful_set.name for stateful_set in sets}
    for channel, of_channel in troubles:
        attempts.append(f"{channel} ({_outcome(of_channel)})")
        unreached_sets -= {name for name, trouble in of_channel.items() if not trouble}
    several = ""
    if not unreached_sets:
        several = "no one channel reaches every StatefulSet, and spec.brokers has one for all of them: "
    return f"{several}tried were {'; '.join(attempts)}"


def _outcome(troubles: dict[str, str]) -> str:
    """Return which StatefulSets a channel reaches, and why it does not reach the first of the others."""
    reached = [name for name, trouble in troubles.items() if not trouble]
    where = f"it reaches StatefulSet {', '.join(reached)}, and not " if reached else ""
    for name, trouble in troubles.items():
        if trouble:
            return f"{where}{name}: {trouble[:_WORDS]}"
    return f"{where}the other StatefulSets, whose templates have no such channel"


def _troubles(report: DryStartReport, sets: Sequence[StatefulSetState], channel: str = "") -> dict[str, str]:
    """Return why a channel does not reach each StatefulSet, ``""`` where it does."""
    return {s.name: unreached(report, s.name, dry_start.ordinals(s), channel) for s in sets}


def _proof(sets: Sequence[StatefulSetState]) -> str:
    copies = [key for s in sets for key in copies_of(s.name, dry_start.ordinals(s))]
    pods = dict.fromkeys(key.pod for key in copies if key.mode is not BrokerMode.ZOOKEEPER)
    return f"copies of {', '.join(pods)[:_WORDS]} in Migration and KRaft mode"
