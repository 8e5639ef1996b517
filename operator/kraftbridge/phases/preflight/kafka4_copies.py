"""Findings of the copies of the brokers' pods that start with the image of ``spec.kafka4``. Pure.

Each pod is copied twice: as it runs, and with that image. Nothing restarts before every copy has shown what Kafka 4
makes of its settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kraftbridge.copies.dry_start import copies_for_kafka4, image_digest, is_of_mode, settings_named
from kraftbridge.models import kafka4_changes as changes
from kraftbridge.models import kafka4_releases
from kraftbridge.models.catalogue import Code
from kraftbridge.models.dry_start import CopyKey, CopyOutcome, DryStartReport
from kraftbridge.models.metadata_version import Release, release_of
from kraftbridge.models.observation import StatefulSetState, Unobserved
from kraftbridge.models.phase import BrokerMode
from kraftbridge.models.status import FindingStatus, Kafka4Leg, finding, first, some, with_channel
from kraftbridge.phases.draft import StepContext
from kraftbridge.phases.preflight.dry_start import of_report, ordinals, quoted, valid_start

_SPEC: Final = "spec.kafka4"
_SHOWN: Final = 6

Outcomes = Mapping[CopyKey, CopyOutcome]


def findings(step: StepContext) -> Iterator[FindingStatus]:
    """Return the findings of the last dry start with the image of Kafka 4; none while it is in progress."""
    state = step.observation.dry_start
    leg = step.status.kafka4_leg
    sets = step.stateful_sets()
    if isinstance(state, Unobserved):
        yield finding(Code.DRY_START_UNKNOWN, "brokers", reason=state)
        return
    if state.off:
        yield finding(Code.KAFKA4_NOT_PROVEN, _SPEC, reason="the operator is configured without dry starts")
        return
    report = state.current
    if report is None or leg is None or isinstance(sets, Unobserved):
        return
    yield from of_report(report)
    if report.problem or (report.reached and not report.copies):
        return
    yield from _images(leg, report)
    for stateful_set in sets:
        yield from _stateful_set(step, report, stateful_set)


def started(report: DryStartReport | None) -> tuple[CopyOutcome, ...]:
    """Return the copies that have come to Kafka's start with the image of Kafka 4."""
    copies = () if report is None else report.copies
    return tuple(c for c in copies if c.key.mode is BrokerMode.KAFKA4 and c.start is not None)


def version_of(report: DryStartReport | None) -> str:
    """Return the version of Kafka that every copy has started with the image, ``""`` if they do not tell one."""
    versions = {copy.start.kafka for copy in started(report) if copy.start is not None}
    return versions.pop() if len(versions) == 1 else ""


def digests_of(leg: Kafka4Leg, report: DryStartReport | None) -> dict[str, str]:
    """Return the digest of the image by StatefulSet and container, ``name/container``."""
    return {
        f"{copy.key.stateful_set}/{image.container}": image_digest(image.copy_id)
        for copy in started(report)
        for image in copy.images
        if image.copy == leg.image
    }


def _images(leg: Kafka4Leg, report: DryStartReport) -> Iterator[FindingStatus]:
    """Judge the releases of both images, and whether the copies show which image the brokers will get."""
    versions = sorted({copy.start.kafka for copy in started(report) if copy.start is not None})
    if not versions:
        return  # that no copy starts is a finding of its own
    if len(versions) > 1 or not versions[0]:
        told = ", ".join(filter(None, versions)) or "none"
        yield finding(Code.KAFKA4_NOT_PROVEN, _SPEC, reason=f"the copies tell several releases, or none: {told}")
        return
    if why := kafka4_releases.why_refused(versions[0]):
        yield finding(Code.KAFKA4_IMAGE_REFUSED, _SPEC, image=leg.image, reason=why)
    elif why := _of_controllers(leg, Release.of(versions[0])):
        yield finding(Code.KAFKA4_IMAGE_REFUSED, _SPEC, image=leg.controllers_image, reason=why)
    if why := _unproven(leg, report):
        yield finding(Code.KAFKA4_NOT_PROVEN, _SPEC, reason=why)


def _of_controllers(leg: Kafka4Leg, release: Release) -> str:
    """Return why the controllers' image is refused: no copy starts it, so its name must tell the brokers' release."""
    if leg.controllers_image == leg.image:
        return ""
    named = release_of(leg.controllers_image)
    if named is None:
        return f"its tag does not tell its release, and the brokers' copies start Kafka {release}"
    return "" if named == release else f"its tag names Kafka {named}, and the brokers' copies start Kafka {release}"


def _unproven(leg: Kafka4Leg, report: DryStartReport) -> str:
    digests: dict[tuple[str, str], set[str]] = {}
    for copy in started(report):
        for image in copy.images:
            if image.copy == leg.image:
                digests.setdefault((copy.key.stateful_set, image.container), set()).add(image_digest(image.copy_id))
    for (stateful_set, container), found in sorted(digests.items()):
        if "" in found:
            return f"the digest of container {container} of StatefulSet {stateful_set} is not known"
        if len(found) > 1:
            return f"container {container} of StatefulSet {stateful_set} got several images: {', '.join(sorted(found))}"
    return "" if digests else f"no container of a copy has the image {leg.image}"


def _stateful_set(step: StepContext, report: DryStartReport, stateful_set: StatefulSetState) -> Iterator[FindingStatus]:
    name = f"StatefulSet/{stateful_set.name}"
    outcomes = {copy.key: copy for copy in report.copies}
    wanted = copies_for_kafka4(stateful_set.name, ordinals(stateful_set))
    lacking = [key.pod for key in wanted if key not in outcomes]
    if lacking or not wanted:
        problem = f"no copy was made of {some(lacking) or 'its pods'}"
        yield finding(Code.DRY_START_IMPOSSIBLE, name, problem=problem)
    copies = [outcomes[key] for key in wanted if key in outcomes]
    yield from first_of(_not_started(name, copies))
    yield from first_of(_refused(step, name, copies))
    with_kafka4 = [copy for copy in copies if copy.key.mode is BrokerMode.KAFKA4]
    yield from first_of(_lacking_classes(name, with_kafka4))
    yield from first_of(_differing(name, with_kafka4, outcomes))
    for copy in with_kafka4:
        yield from _credentials(copy)


def first_of(found: Iterator[FindingStatus]) -> Iterator[FindingStatus]:
    """Yield the first finding alone: what one pod shows, the others mostly show, too."""
    for each in found:
        yield each
        return


def _not_started(name: str, copies: Sequence[CopyOutcome]) -> Iterator[FindingStatus]:
    for copy in copies:
        if copy.start is None:
            problem = f"the copy of pod {copy.key.pod} in {copy.key.mode} mode: {copy.problem}{quoted(copy)}"
            yield finding(Code.DRY_START_IMPOSSIBLE, name, problem=problem)


def _refused(step: StepContext, name: str, copies: Sequence[CopyOutcome]) -> Iterator[FindingStatus]:
    prefix = with_channel(step.spec, step.status).brokers.env_prefix
    for copy in copies:
        start = copy.start
        if start is not None and not start.valid:
            named = some(settings_named(start.complaint, start.settings, prefix)) or "what Kafka names"
            complaint, pod, mode = start.complaint, copy.key.pod, copy.key.mode
            yield finding(Code.DRY_START_REFUSED, name, pod=pod, mode=mode, complaint=complaint, settings=named)


def _lacking_classes(name: str, copies: Sequence[CopyOutcome]) -> Iterator[FindingStatus]:
    for copy in copies:
        if copy.start is not None and copy.start.missing_classes:
            settings = some(copy.start.missing_classes)
            yield finding(Code.KAFKA4_CLASS_MISSING, name, pod=copy.key.pod, settings=settings)


def _differing(name: str, copies: Sequence[CopyOutcome], outcomes: Outcomes) -> Iterator[FindingStatus]:
    for copy in filter(valid_start, copies):
        present = outcomes.get(CopyKey(copy.key.stateful_set, copy.key.ordinal, BrokerMode.KRAFT))
        if valid_start(present) is None or present is None:
            continue  # a finding of its own
        if differences := _differences(present, copy):
            yield finding(
                Code.KAFKA4_IMAGE_DIFFERS, name, pod=copy.key.pod, differences=first(differences, _SHOWN, "; ")
            )


def _differences(present: CopyOutcome, copy: CopyOutcome) -> list[str]:
    """Return the settings that Kafka gets otherwise with the new image; not what Kafka 4 does not know any more."""
    before = {} if present.start is None else present.start.settings
    after = {} if copy.start is None else copy.start.settings
    differences = []
    for setting in sorted(before.keys() | after.keys()):
        if is_of_mode(setting) or setting in changes.GONE:
            continue
        was = before.get(setting)
        now = after.get(setting)
        if now is None:
            differences.append(f"{setting} is not set any more")
        elif was is None:
            differences.append(f"{setting} is set")
        elif not was.sensitive and not now.sensitive and was.value != now.value and was.value is not None:
            differences.append(f"{setting} is {now.value!r} instead of {was.value!r}")
    return differences


def _credentials(copy: CopyOutcome) -> Iterator[FindingStatus]:
    if copy.start is None:
        return
    name = f"broker/{copy.broker_id}"
    if copy.start.refusals:
        yield finding(Code.BROKER_CREDENTIALS_REFUSED, name, reason="; ".join(copy.start.refusals))
    if copy.start.untried:
        yield finding(Code.BROKER_CREDENTIALS_NOT_TRIED, name, reason=copy.start.untried)
