"""Findings of the dry start: the settings that copies of the brokers' pods would pass to Kafka in each mode. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kraftbridge.dry_start import (
    SettingDifference,
    copies_of,
    differences_from_overlay,
    differences_from_running,
    other_images,
    settings_named,
)
from kraftbridge.models.catalogue import Code
from kraftbridge.models.decision import RunDryStart
from kraftbridge.models.dry_start import CopyKey, CopyOutcome, DryStartReport
from kraftbridge.models.observation import StatefulSetState, Unobserved
from kraftbridge.models.phase import BrokerMode
from kraftbridge.models.status import FindingStatus, chooses_channel, finding, first, some, with_channel
from kraftbridge.phases.draft import Draft, StepContext

UNDER_WAY = "Copies of the brokers' pods are started without Kafka, to see which settings each mode would pass to Kafka"
_SHOWN_DIFFERENCES = 4
_WORDS = 400
_SHOWN_IMAGES = 2
REPEATED_AFTER_SECONDS = 60.0
"""Time between dry starts while `Code.DRY_START_OTHER_IMAGE` blocks."""


def awaited(step: StepContext) -> bool:
    """Return whether no dry start of the current templates has ended yet."""
    state = step.observation.dry_start
    return not isinstance(state, Unobserved) and not state.off and state.current is None


def begin_dry_start(draft: Draft, broker_ids: dict[str, int], cluster_id: str) -> None:
    """Start a dry start of the current templates, unless one has ended or is in progress."""
    state = draft.observation.dry_start
    if isinstance(state, Unobserved) or state.off or state.current is not None or state.running:
        return
    draft.act(_dry_start(draft, state.fingerprint, broker_ids, cluster_id))


def repeat_dry_start(
    draft: Draft, broker_ids: dict[str, int], cluster_id: str, standing: Sequence[FindingStatus]
) -> None:
    """Repeat a dry start whose copies got other images: nothing in Kubernetes tells that a tag was moved back.

    Its findings stand until the next one ends.
    """
    state = draft.observation.dry_start
    if isinstance(state, Unobserved) or state.off or state.current is None or state.running:
        return
    if state.age_seconds > REPEATED_AFTER_SECONDS and any(f.code == Code.DRY_START_OTHER_IMAGE for f in standing):
        draft.act(_dry_start(draft, state.fingerprint, broker_ids, cluster_id))


def _dry_start(step: StepContext, fingerprint: str, broker_ids: dict[str, int], cluster_id: str) -> RunDryStart:
    choosing = chooses_channel(step.spec, step.status)
    return RunDryStart(fingerprint, tuple(sorted(broker_ids.items())), cluster_id, choosing)


def findings(step: StepContext) -> Iterator[FindingStatus]:
    """Return the findings of the last dry start; none while it is in progress."""
    state, sets = step.observation.dry_start, step.stateful_sets()
    if isinstance(state, Unobserved):
        yield finding(Code.DRY_START_UNKNOWN, "brokers", reason=state)
        return
    if state.off:
        yield finding(Code.DRY_START_OFF, "brokers")
        return
    report = state.current
    if report is None or isinstance(sets, Unobserved):
        return
    if report.reached:
        yield finding(Code.DRY_START_UNFENCED, "brokers", addresses=first(report.reached))
        if not report.copies:
            return
    if report.problem:
        yield finding(Code.DRY_START_IMPOSSIBLE, "brokers", problem=report.problem)
        return
    if report.untried:
        yield finding(Code.BROKER_CREDENTIALS_NOT_TRIED, "brokers", reason=report.untried)
    for each in sets:
        yield from _stateful_set(step, report, each)
        yield from _credentials(report, each)


def _credentials(report: DryStartReport, item: StatefulSetState) -> Iterator[FindingStatus]:
    """Find brokers that would not get on with the controllers' listener.

    Copies in the present mode have the settings for it, too, unless the overlay brings them.
    """
    mode = BrokerMode.MIGRATION if item.issued_secret else BrokerMode.ZOOKEEPER
    for copy in report.copies:
        if copy.key.stateful_set != item.name or copy.key.mode is not mode or copy.start is None:
            continue
        if not copy.overlay.keys() <= copy.start.settings.keys():
            continue  # without the overlay it has nothing to log in with, which is a finding of its own
        name = f"broker/{copy.broker_id}"
        if copy.start.refusals:
            yield finding(Code.BROKER_CREDENTIALS_REFUSED, name, reason="; ".join(copy.start.refusals))
        if copy.start.untried:
            yield finding(Code.BROKER_CREDENTIALS_NOT_TRIED, name, reason=copy.start.untried)


def _stateful_set(step: StepContext, report: DryStartReport, item: StatefulSetState) -> Iterator[FindingStatus]:
    name = f"StatefulSet/{item.name}"
    outcomes = {o.key: o for o in report.copies}
    wanted = copies_of(item.name, sorted(p.ordinal for p in item.pods))
    lacking = [key.pod for key in wanted if key not in outcomes]
    if lacking or not wanted:
        yield finding(Code.DRY_START_IMPOSSIBLE, name, problem=f"no copy was made of {some(lacking) or 'its pods'}")
    if images := other_images(outcomes[key] for key in wanted if key in outcomes):
        more = len(images) - _SHOWN_IMAGES
        told = "; ".join(images[:_SHOWN_IMAGES]) + (f"; and {more} more" if more > 0 else "")
        yield finding(Code.DRY_START_OTHER_IMAGE, name, images=told)
    for mode in BrokerMode:
        copies = [outcomes[key] for key in wanted if key.mode is mode and key in outcomes]
        yield from _starts(step, name, mode, copies, outcomes)
        yield from _differences(step, name, mode, copies, report)
    yield from _programs(name, [outcomes[key] for key in wanted if key in outcomes])


def _starts(
    step: StepContext,
    name: str,
    mode: BrokerMode,
    copies: Sequence[CopyOutcome],
    outcomes: dict[CopyKey, CopyOutcome],
) -> Iterator[FindingStatus]:
    """Find copies that do not reach Kafka's start, and configurations that Kafka refuses; one finding for each mode."""
    prefix = with_channel(step.spec, step.status).brokers.env_prefix
    failed = [c for c in copies if c.start is None]
    if mode is not BrokerMode.ZOOKEEPER:
        # A copy that does not start in its present mode either has its finding there.
        present_failed = {
            o.key.pod for o in outcomes.values() if o.key.mode is BrokerMode.ZOOKEEPER and o.start is None
        }
        failed = [c for c in failed if c.key.pod not in present_failed]
    if failed:
        copy = failed[0]
        present = outcomes.get(CopyKey(copy.key.stateful_set, copy.key.ordinal, BrokerMode.ZOOKEEPER))
        words = f'; the image says: "{copy.words}"' if copy.words else ""
        if mode is BrokerMode.ZOOKEEPER or present is None or present.start is None:
            problem = f"the copy of pod {copy.key.pod} in {mode} mode: {copy.problem}{words}"
            yield finding(Code.DRY_START_IMPOSSIBLE, name, problem=problem)
        else:
            named = settings_named(copy.words, {**copy.overlay, **dict.fromkeys(present.start.settings, "")}, prefix)
            yield finding(
                Code.DRY_START_FAILED,
                name,
                pod=copy.key.pod,
                mode=mode,
                problem=f"{copy.problem}{words}",
                settings=some(named) or "what the image names",
            )
    if refused := [c for c in copies if c.start is not None and not c.start.valid]:
        start = refused[0].start
        if start is not None:
            named = settings_named(start.complaint, start.settings, prefix)
            yield finding(
                Code.DRY_START_REFUSED,
                name,
                pod=refused[0].key.pod,
                mode=mode,
                complaint=start.complaint,
                settings=some(named) or "what Kafka names",
            )


def _differences(
    step: StepContext, name: str, mode: BrokerMode, copies: Sequence[CopyOutcome], report: DryStartReport
) -> Iterator[FindingStatus]:
    survey = step.observation.survey
    outcomes = {o.key: o for o in report.copies}
    for each in copies:
        if each.start is None or not each.start.valid:
            continue
        if mode is BrokerMode.ZOOKEEPER:
            if isinstance(survey, Unobserved) or isinstance(survey.brokers, Unobserved):
                return  # another finding reports it
            settings = survey.brokers.get(each.broker_id)
            if isinstance(settings, Unobserved):
                continue  # likewise
            if settings is None:
                problem = f"broker {each.broker_id} in pod {each.key.pod} did not tell what it runs, so its copy cannot be compared"
                yield finding(Code.DRY_START_IMPOSSIBLE, name, problem=problem)
                return
            if found := differences_from_running(each, settings):
                yield finding(Code.DRY_START_DIFFERS, name, pod=each.key.pod, differences=_shown(found))
                return
            continue
        present = outcomes.get(CopyKey(each.key.stateful_set, each.key.ordinal, BrokerMode.ZOOKEEPER))
        if present is None or present.start is None or not present.start.valid:
            continue  # a finding of its own
        if found := differences_from_overlay(present, each):
            channels = _channels([t for t in report.trials if t.key.stateful_set == each.key.stateful_set], present)
            yield finding(
                Code.DRY_START_OVERLAY_LOST,
                name,
                pod=each.key.pod,
                mode=mode,
                differences=_shown(found),
                channels=channels,
            )
            return


def _channels(trials: Sequence[CopyOutcome], present: CopyOutcome) -> str:
    """Say which other channel reaches the brokers."""
    told: dict[str, list[str]] = {}
    for each in trials:
        if each.start is None:
            trouble = each.problem + (f'; the image says: "{each.words}"' if each.words else "")
        elif not each.start.valid:
            trouble = each.start.complaint
        else:
            trouble = "the settings do not reach Kafka" if differences_from_overlay(present, each) else ""
        told.setdefault(each.key.channel, []).append(f"{each.key.mode} mode: {trouble}" if trouble else "")
    if found := [channel for channel, troubles in told.items() if not any(troubles)]:
        return f"The dry start found that this one reaches the brokers in every mode: {found[0]}"
    if partly := [channel for channel, troubles in told.items() if not all(troubles)]:
        trouble = next(t for t in told[partly[0]] if t)
        return f"The dry start found that this one reaches the brokers, and that the image does not start with it in {trouble[:_WORDS]}: {partly[0]}"
    return f"The dry start tried these in vain: {'; '.join(told)}" if told else "The dry start found no other to try"


def _programs(name: str, copies: Sequence[CopyOutcome]) -> Iterator[FindingStatus]:
    """Find programs that the image runs at each start and that the agent skipped."""
    skipped: dict[str, set[str]] = {}
    for each in copies:
        for program in (*(each.start.programs if each.start is not None else ()), *each.programs):
            if not program.ran:
                skipped.setdefault(f"{program.main} {program.arguments}".strip()[:200], set()).add(each.key.mode)
    if skipped:
        told = [f"{program} ({', '.join(sorted(modes))} mode)" for program, modes in sorted(skipped.items())]
        yield finding(Code.DRY_START_PROGRAMS, name, programs="; ".join(told[:_SHOWN_DIFFERENCES]))


def _shown(found: Sequence[SettingDifference]) -> str:
    more = f"; and {len(found) - _SHOWN_DIFFERENCES} more" if len(found) > _SHOWN_DIFFERENCES else ""
    return "; ".join(str(d) for d in found[:_SHOWN_DIFFERENCES]) + more
