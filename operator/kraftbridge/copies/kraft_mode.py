"""With which static settings each broker would start in KRaft mode, as the copies of a dry start show. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from kraftbridge.copies.dry_start import with_live_names
from kraftbridge.models.dry_start import CopyKey, CopyOutcome, DryStartReport, GivenSetting
from kraftbridge.models.phase import BrokerMode
from kraftbridge.models.rehearsal import RehearsedSettings
from kraftbridge.models.secrecy import is_secret_setting

_HASHED: Final = "a dry start knows only the hash of its value: what it would refuse stays unknown"
_MOUNTED: Final = "its class is on a volume of the broker's pod: what it would refuse stays unknown"

Given = Mapping[str, GivenSetting]


def kraft_brokers(report: DryStartReport | None, container: str) -> tuple[RehearsedSettings, ...]:
    """Return the settings of each broker whose image and settings in KRaft mode are known.

    Parameters
    ----------
    report
        The last dry start that ended.
    container
        Name of the container that runs Kafka.

    Notes
    -----
    A dry start makes copies of the first and the last pod in KRaft mode, and of each pod in its present mode.
    What the mode changes in the first pod it changes in those between.
    """
    if report is None:
        return ()
    copies = {copy.key: copy for copy in report.copies if copy.start is not None and copy.start.valid}
    return tuple(_brokers(copies, container))


def _brokers(copies: Mapping[CopyKey, CopyOutcome], container: str) -> Iterator[RehearsedSettings]:
    for key, present in sorted(copies.items(), key=lambda item: item[1].broker_id):
        image = _image_in_kraft_mode(copies, present, container)
        if key.mode is not BrokerMode.ZOOKEEPER or key.channel or present.broker_id < 0 or not image:
            continue
        given = _in_kraft_mode(copies, present)
        if given is not None:
            yield _rehearsed(present, image, given)


def _image_in_kraft_mode(copies: Mapping[CopyKey, CopyOutcome], present: CopyOutcome, container: str) -> str:
    """Return the image that a broker runs in KRaft mode: a migration may bring it to another one."""
    of_set = [
        copy
        for key, copy in sorted(copies.items(), key=lambda item: item[0].ordinal)
        if (key.stateful_set, key.mode, key.channel) == (present.key.stateful_set, BrokerMode.KRAFT, "")
    ]
    images = (image.copy for copy in (*of_set, present) for image in copy.images if image.container == container)
    return next(images, "")


def _in_kraft_mode(copies: Mapping[CopyKey, CopyOutcome], present: CopyOutcome) -> Given | None:
    """Return the settings of a broker in KRaft mode; None where no copy shows them."""
    own = copies.get(replace(present.key, mode=BrokerMode.KRAFT))
    if own is not None:
        return _live(own)
    ordered = sorted(copies.items(), key=lambda item: item[0].ordinal)
    for key, other in ordered:
        before = copies.get(replace(key, mode=BrokerMode.ZOOKEEPER))
        is_alike = (key.stateful_set, key.mode, key.channel) == (present.key.stateful_set, BrokerMode.KRAFT, "")
        if is_alike and before is not None:
            return _changed(_live(present), _live(before), _live(other))
    return None


def _changed(settings: Given, before: Given, after: Given) -> Given:
    """Return settings with what changes from one mode to the other."""
    kept = {name: value for name, value in settings.items() if name in after or name not in before}
    return {**kept, **{name: value for name, value in after.items() if before.get(name) != value}}


def _live(copy: CopyOutcome) -> Given:
    return {} if copy.start is None else with_live_names(copy.start.settings, copy)


def _rehearsed(present: CopyOutcome, image: str, given: Given) -> RehearsedSettings:
    mounted = frozenset() if present.start is None else frozenset(present.start.mounted_classes)
    left_out = {name: _MOUNTED for name in given if name in mounted}
    left_out |= {name: _HASHED for name, value in given.items() if value.sensitive or is_secret_setting(name)}
    # Kafka has no value where the copy shows none.
    settings = {name: value.value for name, value in given.items() if name not in left_out and value.value is not None}
    return RehearsedSettings(
        broker=present.broker_id,
        image=image,
        settings=dict(sorted(settings.items())),
        left_out=dict(sorted(left_out.items())),
    )
