"""Findings of the dry start: the settings that copies of the brokers' pods would pass to Kafka in each mode. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from kraftbridge.copies.dry_start import (
    SettingDifference,
    copies_of,
    differences_from_overlay,
    differences_from_running,
    is_of_mode,
    left_out,
    other_images,
    settings_named,
)
from kraftbridge.models.broker_settings import variable_of
from kraftbridge.models.catalogue import Code
from kraftbridge.models.dry_start import (
    ContainerImage,
    CopyKey,
    CopyOutcome,
    DryStartReport,
    DryStartStage,
    DryStartState,
    GivenSetting,
    ImagePull,
    JavaProgram,
    KafkaStart,
)
from kraftbridge.models.observation import StatefulSetState, Unobserved
from kraftbridge.models.phase import BrokerMode, Phase
from kraftbridge.models.release_changes import OF_CLIENTS, REMOVED
from kraftbridge.models.spec import ConfigStyle
from kraftbridge.models.status import FindingStatus, finding, first, some, with_channel
from kraftbridge.phases import dry_starting, upgrading
from kraftbridge.phases.draft import Draft, StepContext
from kraftbridge.phases.observed import broker_pods, read_sets, told_settings

UNDER_WAY = "Copies of the brokers' pods are started without Kafka, to see which settings each mode would pass to Kafka"
_SHOWN_DIFFERENCES = 4
_SHOWN_SETTINGS = 20
_WORDS = 400
_SHOWN_IMAGES = 2
REPEATED_AFTER = timedelta(seconds=60)
"""Time between dry starts while a finding blocks that may end without anything that Kubernetes tells."""

Outcomes = Mapping[CopyKey, CopyOutcome]


def valid_start(copy: CopyOutcome | None) -> KafkaStart | None:
    """Return the start of a copy whose configuration Kafka accepts, None otherwise."""
    if copy is None or copy.start is None or not copy.start.valid:
        return None
    return copy.start


def _state(step: StepContext) -> DryStartState | None:
    """Return where the dry start stands; None where that is unknown, and without dry starts."""
    state = step.observation.dry_start
    return None if isinstance(state, Unobserved) or state.off else state


def awaited(step: StepContext) -> bool:
    """Return whether no dry start of the current templates has ended yet."""
    state = _state(step)
    return state is not None and state.current is None


def may_show_ids(step: StepContext) -> bool:
    """Return whether copies may show which pod has which broker: no dry start has tried it, and every broker runs."""
    state = _state(step)
    zookeeper = step.observation.zookeeper
    if state is None or state.latest is not None or isinstance(zookeeper, Unobserved):
        return False
    pods = broker_pods(step)
    return 0 < len(pods) <= len(zookeeper.brokers) and not any(pod.down for pod in pods)


def is_running(step: StepContext) -> bool:
    """Return whether copies of the brokers' pods are made or run now."""
    return dry_starting.running(step) is not None


def under_way(step: StepContext) -> str:
    """Return that copies of the brokers' pods are started, and how many of them have ended."""
    state = step.observation.dry_start
    run = dry_starting.running(step)
    seen = None if isinstance(state, Unobserved) else state.run
    if run is None or seen is None or seen.run_id != run.run_id or run.stage is DryStartStage.PROBE or not seen.pods:
        return UNDER_WAY
    if run.stage is DryStartStage.PULLS:
        tried = sum(pod.ended for pod in seen.pods)
        return f"Each node gets the images of the pods that may be placed on it: {tried} of {len(seen.pods)} tried"
    return f"{UNDER_WAY}: {sum(pod.ended for pod in seen.pods)} of {len(seen.pods)} copies have ended"


def begin_dry_start(draft: Draft, broker_ids: dict[str, int], cluster_id: str) -> None:
    """Start a dry start of the current templates, unless one has ended or is in progress."""
    state = _state(draft)
    if state is not None and state.current is None:
        dry_starting.launch_dry_start(draft, state.fingerprint, broker_ids, cluster_id)


def repeat_dry_start(
    draft: Draft, broker_ids: dict[str, int], cluster_id: str, standing: Sequence[FindingStatus]
) -> None:
    """Repeat a dry start whose copies got other images, did not come to Kafka's start, or were not all made.

    Nothing in Kubernetes tells that a tag was moved back, or that a node can start containers again.
    Its findings stand until the next one ends.
    """
    state = _state(draft)
    record = draft.status.dry_start
    if state is None or state.current is None or record is None or record.finished_at is None:
        return
    if draft.now - record.finished_at <= REPEATED_AFTER:
        return
    is_unstarted = any(copy.start is None for copy in state.current.copies)
    is_partial = draft.status.kafka4_leg is None and any(
        _not_copied(draft, state.current, stateful_set) for stateful_set in read_sets(draft)
    )
    if is_unstarted or is_partial or not _of_outside(draft).isdisjoint(f.code for f in standing):
        dry_starting.launch_dry_start(draft, state.fingerprint, broker_ids, cluster_id)


def _of_outside(step: StepContext) -> frozenset[str]:
    """Return the codes that end with another image in a registry, or other nodes; later spec cannot name an image."""
    of_any = {Code.DRY_START_OTHER_IMAGE, Code.IMAGE_NOT_PULLABLE, Code.IMAGES_NOT_TRIED}
    of_upgrade = {
        Code.UPGRADE_IMAGE_NOT_BRIDGE,
        Code.UPGRADE_NOT_PROVEN,
        Code.KAFKA4_IMAGE_REFUSED,
        Code.KAFKA4_NOT_PROVEN,
    }
    return frozenset(of_any if step.status.phase is Phase.PREFLIGHT else of_any | of_upgrade)


def findings(step: StepContext) -> Iterator[FindingStatus]:
    """Return the findings of the last dry start; none while it is in progress."""
    state = step.observation.dry_start
    if isinstance(state, Unobserved):
        yield finding(Code.DRY_START_UNKNOWN, "brokers", reason=state)
        return
    if state.off:
        yield finding(Code.DRY_START_OFF, "brokers")
        return
    report = state.current
    sets = step.stateful_sets()
    if report is None or isinstance(sets, Unobserved):
        return
    yield from of_report(report)
    if report.problem or (report.reached and not report.copies):
        return
    for stateful_set in sets:
        yield from _stateful_set(step, report, stateful_set)
        yield from _credentials(step, report, stateful_set)


def of_report(report: DryStartReport) -> Iterator[FindingStatus]:
    """Return what a dry start found that is about no copy."""
    if report.reached:
        yield finding(Code.DRY_START_UNFENCED, "brokers", addresses=first(report.reached))
        if not report.copies:
            return
    if report.problem:
        yield finding(Code.DRY_START_IMPOSSIBLE, "brokers", problem=report.problem)
        return
    if report.untried:
        yield finding(Code.BROKER_CREDENTIALS_NOT_TRIED, "brokers", reason=report.untried)
    if report.nodes_unknown:
        yield finding(Code.IMAGES_NOT_TRIED, "brokers", reason=report.nodes_unknown)
    yield from _not_pulled(report)


def _not_pulled(report: DryStartReport) -> Iterator[FindingStatus]:
    """Find images that nodes could not get; one finding for each owner of pods."""
    by_owner: dict[str, list[ImagePull]] = {}
    for pull in report.not_pulled:
        if not pull.key.node:
            yield finding(Code.IMAGES_NOT_TRIED, pull.key.owner, reason=pull.problem)
            continue
        by_owner.setdefault(pull.key.owner, []).append(pull)
    for owner, pulls in by_owner.items():
        nodes = dict.fromkeys(pull.key.node for pull in pulls)
        problems = {pull.image: pull.problem for pull in reversed(pulls)}
        words = [f"{image}: {problem}" if image else problem for image, problem in reversed(problems.items())]
        noun = "node" if len(nodes) == 1 else "nodes"
        yield finding(
            Code.IMAGE_NOT_PULLABLE, owner, nodes=f"{noun} {some(list(nodes))}", problem=_shown(words, _SHOWN_IMAGES)
        )


def _credentials(step: StepContext, report: DryStartReport, stateful_set: StatefulSetState) -> Iterator[FindingStatus]:
    """Find brokers that would not get on with the controllers' listener.

    Copies in the present mode have the settings for it, too, unless the overlay brings them.
    Where the brokers are brought to another release, that one judges.
    """
    present = BrokerMode.UPGRADED if upgrading.is_needed(step.status) else BrokerMode.ZOOKEEPER
    mode = BrokerMode.MIGRATION if stateful_set.issued_secret else present
    for copy in report.copies:
        if (copy.key.stateful_set, copy.key.mode) != (stateful_set.name, mode) or copy.start is None:
            continue
        if not copy.overlay.keys() <= copy.start.settings.keys():
            continue  # without the overlay it has nothing to log in with, which is a finding of its own
        name = f"broker/{copy.broker_id}"
        if copy.start.refusals:
            yield finding(Code.BROKER_CREDENTIALS_REFUSED, name, reason="; ".join(copy.start.refusals))
        if copy.start.untried:
            yield finding(Code.BROKER_CREDENTIALS_NOT_TRIED, name, reason=copy.start.untried)


def _stateful_set(step: StepContext, report: DryStartReport, stateful_set: StatefulSetState) -> Iterator[FindingStatus]:
    name = f"StatefulSet/{stateful_set.name}"
    outcomes = {copy.key: copy for copy in report.copies}
    wanted = _wanted(step, stateful_set)
    made = [*filter(None, map(outcomes.get, wanted))]
    lacking = _not_copied(step, report, stateful_set)
    if lacking or not wanted:
        yield finding(Code.DRY_START_IMPOSSIBLE, name, problem=f"no copy was made of {some(lacking) or 'its pods'}")
    if images := other_images(_of_same_image(step, made)):
        yield finding(Code.DRY_START_OTHER_IMAGE, name, images=_shown(images, _SHOWN_IMAGES))
    for mode in BrokerMode:
        copies = [copy for copy in made if copy.key.mode is mode]
        yield from _failed(step, name, mode, copies, outcomes)
        yield from _refused(step, name, mode, copies)
        if mode is BrokerMode.ZOOKEEPER:
            yield from _differences_from_running(step, name, copies, report)
        else:
            yield from _differences_from_overlay(name, mode, copies, report)
    yield from _left_out(step, name, made)
    yield from _programs(name, made)
    yield from _cached_for_ever(name, made)


def _wanted(step: StepContext, stateful_set: StatefulSetState) -> tuple[CopyKey, ...]:
    """Return the copies that a StatefulSet needs."""
    return copies_of(stateful_set.name, ordinals(stateful_set), upgrading.bridge_modes(step.status))


def _not_copied(step: StepContext, report: DryStartReport, stateful_set: StatefulSetState) -> list[str]:
    """Return the pods of which a copy lacks: they were away when the copies were made."""
    made = {copy.key for copy in report.copies}
    return [key.pod for key in _wanted(step, stateful_set) if key not in made]


def _of_same_image(step: StepContext, copies: Sequence[CopyOutcome]) -> Sequence[CopyOutcome]:
    """Return the copies without the containers whose image is another one by the migration's own doing."""
    asked = step.spec.brokers.upgrade
    if asked is None or not upgrading.is_needed(step.status):
        return copies

    def by_us(image: ContainerImage) -> bool:
        return image.live != image.copy and asked.image in (image.live, image.copy)

    return [replace(copy, images=tuple(image for image in copy.images if not by_us(image))) for copy in copies]


def ordinals(stateful_set: StatefulSetState) -> list[int]:
    """Return the ordinals of a StatefulSet's pods."""
    return sorted(pod.ordinal for pod in stateful_set.pods)


def _present(outcomes: Outcomes, copy: CopyOutcome) -> CopyOutcome | None:
    """Return the copy of the same pod in its present mode."""
    return outcomes.get(CopyKey(copy.key.stateful_set, copy.key.ordinal, BrokerMode.ZOOKEEPER))


def quoted(copy: CopyOutcome) -> str:
    """Return the image's last words, as the end of a sentence."""
    return f'; the image says: "{copy.words}"' if copy.words else ""


def _failed(
    step: StepContext, name: str, mode: BrokerMode, copies: Sequence[CopyOutcome], outcomes: Outcomes
) -> Iterator[FindingStatus]:
    """Find copies that do not reach Kafka's start; one finding for each mode."""
    for copy in copies:
        present = _present(outcomes, copy)
        # A copy that does not start in its present mode either has its finding there.
        fails_there = present is not None and present.start is None and mode is not BrokerMode.ZOOKEEPER
        if copy.start is None and not fails_there:
            yield _failure(step, name, copy, present)
            return


def _failure(step: StepContext, name: str, copy: CopyOutcome, present: CopyOutcome | None) -> FindingStatus:
    problem = f"{copy.problem}{quoted(copy)}"
    if present is None or present.start is None or not copy.judged:
        problem = f"the copy of pod {copy.key.pod} in {copy.key.mode} mode: {problem}"
        return finding(Code.DRY_START_IMPOSSIBLE, name, problem=problem)
    settings = {**copy.overlay, **dict.fromkeys(present.start.settings, "")}
    named = settings_named(copy.words, settings, with_channel(step.spec, step.status).brokers.env_prefix)
    return finding(
        Code.DRY_START_FAILED,
        name,
        pod=copy.key.pod,
        mode=copy.key.mode,
        problem=problem,
        settings=some(named) or "what the image names",
    )


def _refused(step: StepContext, name: str, mode: BrokerMode, copies: Sequence[CopyOutcome]) -> Iterator[FindingStatus]:
    """Find configurations that Kafka refuses; one finding for each mode."""
    prefix = with_channel(step.spec, step.status).brokers.env_prefix
    for copy in copies:
        start = copy.start
        if start is not None and not start.valid:
            named = settings_named(start.complaint, start.settings, prefix)
            yield finding(
                Code.DRY_START_REFUSED,
                name,
                pod=copy.key.pod,
                mode=mode,
                complaint=start.complaint,
                settings=some(named) or "what Kafka names",
            )
            return


def _beside_overlay(
    differences: Sequence[SettingDifference], report: DryStartReport, mode: BrokerMode
) -> list[SettingDifference]:
    """Return the differences that the overlay of a broker's mode does not explain; it has none in ZooKeeper mode."""
    if mode is BrokerMode.ZOOKEEPER:
        return list(differences)
    overlaid = {name for copy in report.copies if copy.key.mode is mode for name in copy.overlay}
    return [each for each in differences if each.name not in overlaid and not is_of_mode(each.name)]


def _differences_from_running(
    step: StepContext, name: str, copies: Sequence[CopyOutcome], report: DryStartReport
) -> Iterator[FindingStatus]:
    """Find the first copy in the present mode that has other settings than its broker runs with."""
    survey = step.observation.survey
    if isinstance(survey, Unobserved) or isinstance(survey.brokers, Unobserved):
        return  # another finding reports it
    told = told_settings(survey)
    modes = {pod.name: BrokerMode.of(pod.configuration) for pod in broker_pods(step)}
    for copy in filter(valid_start, copies):
        if copy.broker_id not in survey.brokers:
            problem = (
                f"broker {copy.broker_id} in pod {copy.key.pod} did not tell what it runs, "
                "so its copy cannot be compared"
            )
            yield finding(Code.DRY_START_IMPOSSIBLE, name, problem=problem)
            return
        if copy.broker_id not in told:
            continue  # another finding reports it
        mode = modes.get(copy.key.pod, BrokerMode.ZOOKEEPER)
        if differences := _beside_overlay(differences_from_running(copy, told[copy.broker_id]), report, mode):
            yield finding(Code.DRY_START_DIFFERS, name, pod=copy.key.pod, differences=_shown(differences))
            return


def _differences_from_overlay(
    name: str, mode: BrokerMode, copies: Sequence[CopyOutcome], report: DryStartReport
) -> Iterator[FindingStatus]:
    """Find the first copy in another mode that does not get the settings of that mode."""
    outcomes = {copy.key: copy for copy in report.copies}
    for copy in filter(valid_start, copies):
        present = _present(outcomes, copy)
        if present is None or valid_start(present) is None:
            continue  # a finding of its own
        if differences := differences_from_overlay(present, copy):
            trials = [trial for trial in report.trials if trial.key.stateful_set == copy.key.stateful_set]
            yield finding(
                Code.DRY_START_OVERLAY_LOST,
                name,
                pod=copy.key.pod,
                mode=mode,
                differences=_shown(differences),
                channels=_channels(trials, present),
            )
            return


def _left_out(step: StepContext, name: str, copies: Sequence[CopyOutcome]) -> Iterator[FindingStatus]:
    """Find the first copy whose image, of another release, leaves out what the brokers run with."""
    outcomes = {copy.key: copy for copy in copies}
    brokers = with_channel(step.spec, step.status).brokers
    in_file = brokers.config_style is ConfigStyle.PROPERTIES
    for copy in filter(valid_start, copies):
        present = _present(outcomes, copy)
        missing = {} if present is None else left_out(present, copy)
        lines = {
            setting if in_file else variable_of(setting, brokers.env_prefix): _stated(given)
            for setting, given in sorted(missing.items())
            if setting not in REMOVED and setting not in OF_CLIENTS
        }
        if lines:
            yield finding(
                Code.DRY_START_LEAVES_OUT,
                name,
                pod=copy.key.pod,
                mode=copy.key.mode,
                count=len(lines),
                place="the brokers' properties file" if in_file else "spec.brokers.upgrade.env",
                lines=first([f"{key}: {value}" for key, value in lines.items()], _SHOWN_SETTINGS),
            )
            return


def _stated(setting: GivenSetting) -> str:
    """Return the value of a setting as a user writes it into a manifest."""
    if setting.sensitive:
        return "(not shown: as in the file that the image writes)"
    return json.dumps(setting.value or "", ensure_ascii=False)


def _channels(trials: Sequence[CopyOutcome], present: CopyOutcome) -> str:
    """Say which other channel reaches the brokers."""
    troubles: dict[str, list[str]] = {}
    for trial in trials:
        troubles.setdefault(trial.key.channel, []).append(_trouble(trial, present))
    if not troubles:
        return "The dry start found no other to try"
    begin = "The dry start found that this one reaches the brokers"
    for channel, words in troubles.items():
        if not any(words):
            return f"{begin} in every mode: {channel}"
    for channel, words in troubles.items():
        if not all(words):
            trouble = next(filter(None, words))
            return f"{begin}, and that the image does not start with it in {trouble[:_WORDS]}: {channel}"
    return f"The dry start tried these in vain: {'; '.join(troubles)}"


def _trouble(trial: CopyOutcome, present: CopyOutcome) -> str:
    """Return why a copy with the overlay in another channel does not do, ``""`` if it does."""
    if trial.start is None:
        trouble = trial.problem + quoted(trial)
    elif not trial.start.valid:
        trouble = trial.start.complaint
    elif differences_from_overlay(present, trial):
        trouble = "the settings do not reach Kafka"
    else:
        return ""
    return f"{trial.key.mode} mode: {trouble}"


def _programs(name: str, copies: Sequence[CopyOutcome]) -> Iterator[FindingStatus]:
    """Find programs that the image runs at each start and that the agent skipped."""
    modes: dict[str, set[str]] = {}
    for copy in copies:
        for program in _skipped(copy):
            modes.setdefault(f"{program.main} {program.arguments}".strip()[:200], set()).add(copy.key.mode)
    if modes:
        programs = [f"{program} ({', '.join(sorted(names))} mode)" for program, names in sorted(modes.items())]
        yield finding(Code.DRY_START_PROGRAMS, name, programs="; ".join(programs[:_SHOWN_DIFFERENCES]))


def _cached_for_ever(name: str, copies: Sequence[CopyOutcome]) -> Iterator[FindingStatus]:
    """Find a JVM that resolves a name only once."""
    for copy in copies:
        seconds = None if copy.start is None else copy.start.address_cache_seconds
        if seconds is not None and seconds < 0:
            yield finding(Code.ADDRESSES_CACHED_FOR_EVER, name, pod=copy.key.pod, mode=copy.key.mode)
            return


def _skipped(copy: CopyOutcome) -> list[JavaProgram]:
    programs = [*copy.programs]
    if copy.start is not None:
        programs += copy.start.programs
    return [program for program in programs if not program.ran]


def _shown(words: Sequence[object], most: int = _SHOWN_DIFFERENCES) -> str:
    more = f"; and {len(words) - most} more" if len(words) > most else ""
    return "; ".join(map(str, words[:most])) + more
