"""The channel by which the migration changes the brokers' settings: with ``configStyle: Auto`` a dry start chooses it, and nothing else does. Pure.

A guess comes first, since copies need some channel to begin with. If it does not reach the brokers, the same dry start tries the others, and another
one judges the channel that does. Preflight passes with a channel that a complete dry start of the present templates has proven. It is recorded then, and
never chosen again during the migration.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from kraftbridge.dry_start import copies_of, described, unreached
from kraftbridge.models.catalogue import Code
from kraftbridge.models.dry_start import DryStartReport
from kraftbridge.models.observation import StatefulSetState, Unobserved
from kraftbridge.models.phase import BrokerMode
from kraftbridge.models.spec import ConfigStyle
from kraftbridge.models.status import ChannelStatus, FindingStatus, finding, with_channel
from kraftbridge.phases.draft import Draft, StepContext, Wait
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
    """Return why it is not proven that the present channel reaches the brokers as their templates are now; ``""`` if a dry start proved it."""
    state, sets = step.observation.dry_start, step.stateful_sets()
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
    return "; ".join(f"StatefulSet {s.name}: {why}" for s in sets if (why := _unreached(report, s)))


def findings(step: StepContext) -> Iterator[FindingStatus]:
    """Return the finding that no channel is proven; none while copies are still to come, and none if the user names the channel."""
    if not is_open(step) or dry_start.awaited(step) or not (why := unproven(step)):
        return
    yield finding(Code.CHANNEL_UNKNOWN, "brokers", reason=_tried(step) or why)


def take_channel(draft: Draft) -> Wait | None:
    """Record the channel to try, the one that a dry start found, and that it is proven; a wait if the channel changed."""
    state, known = draft.observation.dry_start, draft.status.channel
    if not is_open(draft) or isinstance(state, Unobserved) or state.off:
        return None
    if known is None:
        if not state.channels:
            return None
        return _take(draft, ChannelStatus.of(state.channels[0]), "which the pod templates suggest")
    if state.current is None:
        return None
    if not unproven(draft):
        record_proof(draft)
        return None
    reaching = _reaching(draft)
    found = next((b for b in state.channels if described(b) in reaching), None)
    if found is None:
        return None
    return _take(draft, ChannelStatus.of(found), f"which reached the brokers where {known} did not")


def record_proof(draft: Draft) -> None:
    """Record the present channel, and which copies proved it where a dry start ran."""
    state, sets = draft.observation.dry_start, draft.stateful_sets()
    channel = ChannelStatus.of(with_channel(draft.spec, draft.status).brokers)
    if isinstance(state, Unobserved) or isinstance(sets, Unobserved) or state.current is None:
        draft.update(channel=channel)
        return
    known, proven = draft.status.channel, not unproven(draft)
    if known is not None and (str(known), known.fingerprint, known.proven_at is not None) == (
        str(channel),
        state.fingerprint,
        proven,
    ):
        return
    changes: dict[str, object] = {"fingerprint": state.fingerprint}
    if proven:
        changes |= {"proven_at": draft.now, "proven_by": _proof(sets)}
    draft.update(channel=channel.model_copy(update=changes))


def outdated(step: StepContext) -> bool:
    """Return whether the recorded channel must be judged anew: the pod templates, or what they refer to, may have changed since preflight."""
    known, state = step.status.channel, step.observation.dry_start
    if known is None or (not known.fingerprint and not is_open(step)):
        return False  # recorded by an earlier release of the operator, or without a dry start; `guards` refuses that with Auto
    if isinstance(state, Unobserved):
        return True
    if state.off:
        return is_open(step)
    return state.fingerprint != known.fingerprint


def _take(draft: Draft, channel: ChannelStatus, why: str) -> Wait:
    draft.update(channel=channel)
    return Wait(f"A dry start tries {channel}, {why}", requeue_after=_SOON)


def _report(step: StepContext) -> tuple[DryStartReport | None, tuple[StatefulSetState, ...]]:
    state, sets = step.observation.dry_start, step.stateful_sets()
    if isinstance(state, Unobserved) or isinstance(sets, Unobserved):
        return None, ()
    return state.current, sets


def _reaching(step: StepContext) -> frozenset[str]:
    """Return the other channels that reached every broker."""
    report, sets = _report(step)
    if report is None:
        return frozenset()
    tried = {t.key.channel for t in report.trials}
    return frozenset(channel for channel in tried if not any(_unreached(report, s, channel) for s in sets))


def _tried(step: StepContext) -> str:
    """Return each channel that was tried and why it does not do, ``""`` if there were no copies."""
    report, sets = _report(step)
    known = with_channel(step.spec, step.status).brokers
    if report is None or not report.copies:
        return ""
    told, reached = [], set()
    for name, channel in (
        ("", described(known)),
        *((c, c) for c in dict.fromkeys(t.key.channel for t in report.trials)),
    ):
        offered = [
            s
            for s in sets
            if not name or any((t.key.stateful_set, t.key.channel) == (s.name, name) for t in report.trials)
        ]
        troubles = [(s.name, _unreached(report, s, name)) for s in offered]
        reached |= {item for item, why in troubles if not why}
        yes = [item for item, why in troubles if not why]
        no = next((f"{item}: {why[:_WORDS]}" for item, why in troubles if why), "")
        where = f"it reaches StatefulSet {', '.join(yes)}, and not " if yes else ""
        told.append(f"{channel} ({where}{no or 'the other StatefulSets, whose templates have no such channel'})")
    several = (
        "no one channel reaches every StatefulSet, and spec.brokers has one for all of them: "
        if reached >= {s.name for s in sets}
        else ""
    )
    return f"{several}tried were {'; '.join(told)}"


def _unreached(report: DryStartReport, item: StatefulSetState, channel: str = "") -> str:
    return unreached(report, item.name, sorted(p.ordinal for p in item.pods), channel)


def _proof(sets: Sequence[StatefulSetState]) -> str:
    copies = [key for s in sets for key in copies_of(s.name, sorted(p.ordinal for p in s.pods))]
    pods = dict.fromkeys(key.pod for key in copies if key.mode is not BrokerMode.ZOOKEEPER)
    return f"copies of {', '.join(pods)[:_WORDS]} in Migration and KRaft mode"
