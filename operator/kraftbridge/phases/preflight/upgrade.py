"""Findings about brokers that the migration brings to Kafka 3.9: what runs, what 3.9 makes of it, the image. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kraftbridge.copies.dry_start import image_digest
from kraftbridge.models.catalogue import Code
from kraftbridge.models.dry_start import CopyOutcome, DryStartReport
from kraftbridge.models.metadata_version import Release, release_of
from kraftbridge.models.observation import Unobserved
from kraftbridge.models.phase import BrokerMode, Phase
from kraftbridge.models.protocol import BRIDGE, OLDEST, SETTING, Protocol, is_known
from kraftbridge.models.release_changes import CHANGED_BEHAVIOUR, NEW_BEHAVIOUR, OLD_AUTHORIZER, REMOVED, WITHOUT_EFFECT
from kraftbridge.models.spec import UpgradeSpec
from kraftbridge.models.status import FindingStatus, finding, with_channel
from kraftbridge.models.survey import BrokerSetting, SettingSource, Survey
from kraftbridge.phases import upgrading
from kraftbridge.phases.draft import StepContext
from kraftbridge.phases.observed import read_sets, told_settings
from kraftbridge.phases.preflight import dry_start as dry_starts

_RECORDS_V2 = Release(0, 11)
"""First release with records of format 2 (KIP-98)."""
_MESSAGE_FORMAT = "log.message.format.version"
_AUTHORIZER = "authorizer.class.name"


def findings(step: StepContext, survey: Survey) -> Iterator[FindingStatus]:
    """Find what keeps the migration from bringing the brokers to another image; nothing where it does not."""
    asked = step.spec.brokers.upgrade
    if asked is None or not upgrading.is_needed(step.status):
        return
    report = _report(step)
    for broker, settings in sorted(told_settings(survey).items()):
        values = {setting.name: setting for setting in settings}
        yield from _protocol(broker, values, _release_of(broker, report))
        yield from _settings(broker, values)
    upgrade = step.status.broker_upgrade
    if upgrade is not None and upgrade.lifts_alone:
        yield finding(Code.SECOND_ROLL_NEEDED, "brokers", protocol=upgrade.protocol)
    yield from _templates(step)
    yield from _image(step, asked, report)
    known = _stated(survey)
    changes = {**NEW_BEHAVIOUR, **_changed_behaviour(survey, report)}
    if what := "; ".join(f"{name} ({changes[name]})" for name in sorted(changes.keys() - known)):
        yield finding(Code.RELEASE_DEFAULTS_DIFFER, "brokers", what=what)


def findings_anew(step: StepContext) -> Iterator[FindingStatus]:
    """Find what a dry start after preflight shows of the new image, as long as brokers are restarted with it."""
    asked = step.spec.brokers.upgrade
    if asked is not None and upgrading.is_needed(step.status) and step.status.phase is Phase.UPGRADING_BROKERS:
        yield from _image(step, asked, _report(step))


def _report(step: StepContext) -> DryStartReport | None:
    state = step.observation.dry_start
    return None if isinstance(state, Unobserved) else state.current


def _release_of(broker: int, report: DryStartReport | None) -> Release | None:
    """Return the release that a broker runs, as its copy in its present mode shows it; None where none does."""
    for copy in () if report is None else report.copies:
        if (copy.broker_id, copy.key.mode) == (broker, BrokerMode.ZOOKEEPER) and copy.start is not None:
            return _release(copy)
    return None


def _release(copy: CopyOutcome) -> Release | None:
    try:
        return None if copy.start is None else Release.of(copy.start.kafka)
    except ValueError:
        return None


def _stated(survey: Survey) -> frozenset[str]:
    """Return the settings that every broker knows already."""
    known = [{setting.name for setting in settings} for settings in told_settings(survey).values()]
    return frozenset(set.intersection(*known)) if known else frozenset()


def _changed_behaviour(survey: Survey, report: DryStartReport | None) -> dict[str, str]:
    """Return what other defaults change, for the oldest release that a broker runs or may run."""
    releases = [_release_of(broker, report) for broker in told_settings(survey)]
    oldest = min((release or OLDEST for release in releases), default=OLDEST)
    return {name: changed.what for name, changed in CHANGED_BEHAVIOUR.items() if oldest < changed.since}


def _protocol(broker: int, values: Mapping[str, BrokerSetting], release: Release | None) -> Iterator[FindingStatus]:
    name = f"broker/{broker}"
    running = values.get(SETTING)
    protocol = "" if running is None else running.value or ""
    if release is not None and release < OLDEST:
        yield finding(Code.BROKERS_TOO_OLD, name, release=release)
    elif not protocol:
        yield finding(Code.INTER_BROKER_PROTOCOL_TOO_LOW, name, stated="the broker did not tell it")
    elif not is_known(protocol):
        stated = f"the broker runs {protocol}, and the way from a version before {OLDEST} is not known"
        yield finding(Code.INTER_BROKER_PROTOCOL_TOO_LOW, name, stated=stated)


def _settings(broker: int, values: Mapping[str, BrokerSetting]) -> Iterator[FindingStatus]:
    name = f"broker/{broker}"
    stated = {n: s for n, s in values.items() if s.source is not SettingSource.DEFAULT}
    for setting in sorted((REMOVED.keys() - WITHOUT_EFFECT) & stated.keys()):
        value = stated[setting].value or ""
        yield finding(Code.SETTING_REMOVED, name, setting=setting, value=value, instead=REMOVED[setting])
    authorizer = stated.get(_AUTHORIZER)
    if authorizer is not None and authorizer.value == OLD_AUTHORIZER:
        instead = "kafka.security.authorizer.AclAuthorizer, which reads the same ACLs"
        yield finding(Code.SETTING_REMOVED, name, setting=_AUTHORIZER, value=OLD_AUTHORIZER, instead=f"set {instead}")
    text = stated[_MESSAGE_FORMAT].value or "" if _MESSAGE_FORMAT in stated else ""
    written = Protocol.of(text)
    if written is not None and written.release < _RECORDS_V2:
        yield finding(Code.MESSAGE_FORMAT_ENDS, name, format=text)


def _templates(step: StepContext) -> Iterator[FindingStatus]:
    in_file = with_channel(step.spec, step.status).brokers.file is not None
    container = step.spec.brokers.container
    for item in read_sets(step):
        name = f"StatefulSet/{item.name}"
        if SETTING in item.overrides:
            value = item.overrides[SETTING]
            yield finding(Code.SETTING_IN_ARGUMENTS, name, setting=SETTING, value=value, container=container)
        elif in_file and SETTING in item.settings:
            yield finding(Code.PROTOCOL_IN_FILE, name, protocol=item.settings[SETTING])


def _image(step: StepContext, asked: UpgradeSpec, report: DryStartReport | None) -> Iterator[FindingStatus]:
    named = release_of(asked.image)
    if named is not None and named != BRIDGE:
        yield finding(Code.UPGRADE_IMAGE_NOT_BRIDGE, "spec.brokers.upgrade", image=asked.image, release=named)
        return
    state = step.observation.dry_start
    if isinstance(state, Unobserved) or dry_starts.awaited(step):
        return  # another finding says so, or the gate stays closed until then
    copies = [copy for copy in upgrading.upgraded_copies(step) if copy.start is not None]
    releases = {copy.key: _release(copy) for copy in copies}
    wanted = upgrading.bridge_modes(step.status)
    if other := sorted({str(release) for release in releases.values() if release not in (None, BRIDGE)}):
        yield finding(
            Code.UPGRADE_IMAGE_NOT_BRIDGE, "spec.brokers.upgrade", image=asked.image, release=", ".join(other)
        )
    elif reason := _unproven(asked, report, copies, releases.values(), wanted):
        yield finding(Code.UPGRADE_NOT_PROVEN, "spec.brokers.upgrade", reason=reason)


def _unproven(
    asked: UpgradeSpec,
    report: DryStartReport | None,
    copies: list[CopyOutcome],
    releases: Iterable[Release | None],
    wanted: Iterable[BrokerMode],
) -> str:
    """Return why the copies do not show with which image the brokers would start, ``""`` if they do."""
    if report is None:
        return "the operator is configured without dry starts"
    started = {copy.key.mode for copy in copies}
    if lacking := [mode for mode in wanted if mode not in started]:
        return f"no copy started with it in mode {lacking[0]}"
    if None in tuple(releases):
        return "a copy did not tell its release"
    digests: dict[tuple[str, str], set[str]] = {}
    for copy in copies:
        for image in copy.images:
            if image.copy == asked.image:
                key = (copy.key.stateful_set, image.container)
                digests.setdefault(key, set()).add(image_digest(image.copy_id))
    for (stateful_set, container), found in sorted(digests.items()):
        if "" in found:
            return f"the digest of container {container} of StatefulSet {stateful_set} is not known"
        if len(found) > 1:
            return f"container {container} of StatefulSet {stateful_set} got several images: {', '.join(sorted(found))}"
    return "" if digests else f"no container of a copy has the image {asked.image}"
