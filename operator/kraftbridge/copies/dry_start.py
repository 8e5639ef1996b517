"""The copies of the brokers' pods in a dry start: what their reports mean and show about the settings. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final

from typing_extensions import override

from kraftbridge.constants import CONTROLLER_LISTENER_PREFIX
from kraftbridge.models.dry_start import (
    ContainerImage,
    CopyKey,
    CopyOutcome,
    DryStartPlan,
    DryStartReport,
    DryStartStage,
    GivenSetting,
    JavaProgram,
    KafkaStart,
)
from kraftbridge.models.mounted_files import FilesKind, MountedFiles, mounted_object
from kraftbridge.models.objects import entries, section
from kraftbridge.models.phase import BrokerMode
from kraftbridge.models.protocol import SETTING as PROTOCOL
from kraftbridge.models.spec import BrokersSpec, ConfigStyle, PropertiesSource
from kraftbridge.models.status import ChannelStatus
from kraftbridge.models.survey import BrokerSetting, SettingSource
from kraftbridge.outside.json_text import parsed_json

_OF_A_BROKER = re.compile(r"(?m)^[ \t]*(zookeeper\.connect|broker\.id|log\.dirs?)[ \t]*[=:]")
_MOST_CHANNELS = 6
OTHER_MODES = (BrokerMode.MIGRATION, BrokerMode.KRAFT)


def copies_of(stateful_set: str, ordinals: Sequence[int], bridge: Sequence[BrokerMode] = ()) -> tuple[CopyKey, ...]:
    """Return a StatefulSet's copies: every ordinal in its current mode, the first and the last in the other modes.

    The first and the last show settings that depend on the ordinal.
    The current mode of all of them shows that the copies are faithful.
    Where the brokers are brought to another release, every ordinal shows what that release makes of its settings.

    Parameters
    ----------
    bridge
        The modes on ZooKeeper to which the brokers are brought with another image.
    """
    ordered = sorted(ordinals)
    ends = dict.fromkeys((*ordered[:1], *ordered[-1:]))
    whole = (BrokerMode.ZOOKEEPER, *bridge)
    modes = (*product(whole, ordered), *product(OTHER_MODES, ends))
    return tuple(CopyKey(stateful_set, ordinal, mode) for mode, ordinal in modes)


def copies_for_kafka4(stateful_set: str, ordinals: Sequence[int]) -> tuple[CopyKey, ...]:
    """Return a StatefulSet's copies before Kafka 4: every ordinal as it runs, and with the image of Kafka 4."""
    modes = product((BrokerMode.KRAFT, BrokerMode.KAFKA4), sorted(ordinals))
    return tuple(CopyKey(stateful_set, ordinal, mode) for mode, ordinal in modes)


def shown_ids(copies: Iterable[CopyOutcome]) -> dict[str, int]:
    """Return the broker id with which the copy of each pod in its present mode would start Kafka."""
    ids: dict[str, int] = {}
    for copy in copies:
        if copy.key.mode is not BrokerMode.ZOOKEEPER or copy.start is None or not copy.start.valid:
            continue
        given = copy.start.settings.get("broker.id", copy.start.settings.get("node.id"))
        value = "" if given is None else given.value or ""
        if value.isdecimal():
            ids[copy.key.pod] = int(value)
    return ids


def described(brokers: BrokersSpec) -> str:
    """Return a channel as a user writes it in ``spec.brokers``."""
    return str(ChannelStatus.of(brokers))


Files = Mapping[tuple[str, str], MountedFiles]
"""ConfigMaps and Secrets that a pod template refers to, by kind and name."""
_NOTHING: Final = MountedFiles(FilesKind.CONFIG_MAP, "")
"""In place of an object that does not exist."""


def other_channels(brokers: BrokersSpec, pod: Mapping[str, Any], files: Files) -> tuple[BrokersSpec, ...]:
    """Return ``spec.brokers`` with each other channel that the pod template may have.

    Parameters
    ----------
    brokers
        The section with the present channel.
    pod
        Pod template's spec.
    files
        ConfigMaps and Secrets that the template refers to.
    """
    channels = _possible_channels(brokers, pod, files)
    channels.pop(described(brokers), None)
    return tuple(channels.values())[:_MOST_CHANNELS]


def likely_channels(
    brokers: BrokersSpec, templates: Sequence[tuple[Mapping[str, Any], Files]]
) -> tuple[BrokersSpec, ...]:
    """Return ``spec.brokers`` with each channel that every pod template may have, the most likely first.

    A guess saves a dry start and decides nothing.
    It follows what user and templates say of ``zookeeper.connect``, which every broker needs: the
    properties file that spec names, a variable, a file that is mounted.

    Parameters
    ----------
    brokers
        ``spec.brokers``.
    templates
        Spec of each StatefulSet's pod template, and what it refers to.
    """
    if not templates:
        return ()
    possible = [_possible_channels(brokers, pod, files) for pod, files in templates]
    variables = [_variables(brokers.container, pod, files) for pod, files in templates]
    common = set(possible[0]).intersection(*possible)

    def unlikely(channel: BrokersSpec) -> tuple[bool, bool, bool]:
        if channel.properties is not None:
            return channel.properties != brokers.properties, False, False
        variable = f"{channel.env_prefix}ZOOKEEPER_CONNECT"
        connected = all(variable in names for names in variables)
        return not connected, True, channel.env_prefix != brokers.env_prefix

    return tuple(sorted((channel for name, channel in possible[0].items() if name in common), key=unlikely))


def _variables(container: str, pod: Mapping[str, Any], files: Files) -> frozenset[str]:
    """Return the names of the Kafka container's variables."""
    names: set[str] = set()
    for kafka in (c for c in entries(pod, "containers") if c.get("name") == container):
        names.update(str(variable["name"]) for variable in entries(kafka, "env"))
        for source in entries(kafka, "envFrom"):
            for reference in _named(source.get("configMapRef"), source.get("secretRef")):
                mounted = files.get(reference, _NOTHING)
                names.update(f"{source.get('prefix', '')}{key}" for key in mounted.data)
    return frozenset(names)


def _possible_channels(brokers: BrokersSpec, pod: Mapping[str, Any], files: Files) -> dict[str, BrokersSpec]:
    """Return ``spec.brokers`` with each channel that a pod template may have, by the channel's words."""
    volumes = entries(pod, "volumes")
    channels = [
        brokers.model_copy(update={"config_style": ConfigStyle.ENV, "env_prefix": prefix, "properties": None})
        for prefix in ("KAFKA_", "KAFKA_CFG_")
    ]
    if brokers.properties is not None and mounted_object(volumes, brokers.properties.volume) is not None:
        channels.append(brokers.model_copy(update={"config_style": ConfigStyle.PROPERTIES}))
    for volume in volumes:
        reference = mounted_object([volume], volume["name"])
        mounted = _NOTHING if reference is None else files.get(reference, _NOTHING)
        for key in sorted(mounted.data):
            if _OF_A_BROKER.search(mounted.text(key)):
                source = PropertiesSource(volume=volume["name"], key=key)
                style = ConfigStyle.PROPERTIES
                channels.append(brokers.model_copy(update={"config_style": style, "properties": source}))
    by_words: dict[str, BrokersSpec] = {}
    for channel in channels:
        by_words.setdefault(described(channel), channel)
    return by_words


def trouble_of(present: CopyOutcome | None, changed: CopyOutcome | None) -> str:
    """Return why a copy in another mode does not show that exactly the mode's settings reach Kafka.

    It is ``""`` if the copy shows that.

    Parameters
    ----------
    present
        The copy of the same pod in its current mode.
    changed
        The copy of the same pod in the other mode.
    """
    if present is None or changed is None:
        return "no copy was made"
    if present.start is None or not present.start.valid:
        complaint = "" if present.start is None else present.start.complaint
        return f"its copy in the present mode does not start: {present.problem or complaint}"
    if changed.start is None:
        return changed.problem + (changed.words and f'; the image says: "{changed.words}"')
    if not changed.start.valid:
        return f"Kafka refuses the configuration: {changed.start.complaint}"
    if not changed.overlay:
        return "the mode sets nothing"
    differences = differences_from_overlay(present, changed)
    return f"the settings do not reach Kafka: {differences[0]}" if differences else ""


def unreached(report: DryStartReport, stateful_set: str, ordinals: Sequence[int], channel: str = "") -> str:
    """Return why a dry start does not prove that a channel reaches the brokers of a StatefulSet; ``""`` if it does.

    Parameters
    ----------
    report
        The dry start.
    stateful_set, ordinals
        The StatefulSet, and the ordinals of its pods. The first and the last stand for all of them (`copies_of`).
    channel
        As `described` writes it; ``""`` for the one with which the dry start began.
    """
    outcomes = {c.key: c for c in (*report.copies, *report.trials)}
    wanted = [key for key in copies_of(stateful_set, ordinals) if key.mode is not BrokerMode.ZOOKEEPER]
    if not wanted:
        return f"StatefulSet {stateful_set} has no pod"
    for key in wanted:
        present = outcomes.get(replace(key, mode=BrokerMode.ZOOKEEPER))
        if why := trouble_of(present, outcomes.get(replace(key, channel=channel))):
            return f"pod {key.pod} in {key.mode} mode: {why}"
    return ""


def without_overlay(copies: Iterable[CopyOutcome]) -> tuple[str, ...]:
    """Return the StatefulSets of which a copy in another mode does not start with that mode's settings."""
    outcomes = {c.key: c for c in copies}
    lost: dict[str, None] = {}
    for key, copy in outcomes.items():
        present = outcomes.get(replace(key, mode=BrokerMode.ZOOKEEPER))
        if copy is present or present is None or present.start is None:
            continue
        if copy.start is None or differences_from_overlay(present, copy):
            lost[key.stateful_set] = None
    return tuple(lost)


_TRIALS: Final = (DryStartStage.FIRST_TRIALS, DryStartStage.LAST_TRIALS)
Collected = Mapping[DryStartStage, tuple[CopyOutcome, ...]]
"""What the copies of each stage that has ended showed."""


def copies_in(plan: DryStartPlan, stage: DryStartStage, collected: Collected, *, choosing: bool) -> tuple[CopyKey, ...]:
    """Return the copies of a stage of a dry start.

    Where an overlay is lost, the first pods try it in the other channels.
    To choose a channel, the last pods try those that reach every first pod.

    Parameters
    ----------
    choosing
        Whether the channel is open: the trials are then made of every StatefulSet.
    """
    if stage is DryStartStage.PULLS:
        return ()
    if stage not in _TRIALS:
        return plan.copies
    present = collected.get(DryStartStage.COPIES, ())
    lost = set(without_overlay(present))
    trials = plan.trials if choosing and lost else [key for key in plan.trials if key.stateful_set in lost]
    first_ordinals = {key.stateful_set: key.ordinal for key in reversed(trials)}
    firsts = tuple(key for key in trials if key.ordinal == first_ordinals[key.stateful_set])
    if stage is DryStartStage.FIRST_TRIALS:
        return firsts
    if not choosing:
        return ()
    own = {outcome.key: outcome for outcome in present}
    failed = {
        (outcome.key.stateful_set, outcome.key.channel)
        for outcome in collected.get(DryStartStage.FIRST_TRIALS, ())
        if trouble_of(own.get(replace(outcome.key, mode=BrokerMode.ZOOKEEPER, channel="")), outcome)
    }
    return tuple(key for key in trials if key not in firsts and (key.stateful_set, key.channel) not in failed)


def stage_after(
    plan: DryStartPlan, stage: DryStartStage, collected: Collected, *, choosing: bool
) -> DryStartStage | None:
    """Return the next stage of a dry start that has pods, None if there is none."""
    if stage is DryStartStage.PULLS:
        return None
    for later in _TRIALS[0 if stage is DryStartStage.COPIES else _TRIALS.index(stage) + 1 :]:
        if copies_in(plan, later, collected, choosing=choosing):
            return later
    return DryStartStage.PULLS if plan.pulls else None


def referenced(pod: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return kind and name of every ConfigMap and Secret that a pod template refers to."""
    references: set[tuple[str, str]] = set()
    for container in (*entries(pod, "initContainers"), *entries(pod, "containers")):
        for source in entries(container, "envFrom"):
            references.update(_named(source.get("configMapRef"), source.get("secretRef")))
        for variable in entries(container, "env"):
            source = section(variable, "valueFrom")
            references.update(_named(source.get("configMapKeyRef"), source.get("secretKeyRef")))
    for volume in entries(pod, "volumes"):
        for source in (volume, *entries(volume, "projected", "sources")):
            secret = section(source, "secret")
            references.update(_named(source.get("configMap"), {"name": secret.get("secretName", secret.get("name"))}))
    return tuple(sorted(references))


def _named(config_map: Mapping[str, Any] | None, secret: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    for kind, reference in (("ConfigMap", config_map), ("Secret", secret)):
        name = section(reference).get("name")
        if name:
            yield kind, str(name)


def fingerprint(parts: Iterable[Any]) -> str:
    """Return a hash of everything that the copies are created from. It does not reveal values of Secrets."""
    text = json.dumps(list(parts), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def other_images(copies: Iterable[CopyOutcome]) -> tuple[str, ...]:
    """Return what each container whose copy started another image runs and got, one text for each pair of images.

    An image that is not known counts as another one.
    A copy that did not come to Kafka's start is only judged by images that are known:
    a container of it may never have started, which is a finding of its own.

    Notes
    -----
    ``ContainerStatus.imageID`` is the digest that the container runtime resolved the image to:
    of the image's manifest or index if a registry delivered it, of its configuration if it was imported on the node.
    The name before the digest depends on what else the node has.
    """
    pairs: dict[tuple[str, str, str, str, str], list[tuple[str, ContainerImage]]] = {}
    for copy in copies:
        for image in copy.images:
            runs = image_digest(image.live_id)
            got = image_digest(image.copy_id)
            if _same_image(runs, got, started=copy.start is not None):
                continue
            key = (image.container, image.live, runs, image.copy, got)
            pairs.setdefault(key, []).append((copy.key.pod, image))
    return tuple(_two_images(*images[0], len({pod for pod, _ in images}) - 1) for images in pairs.values())


def _same_image(runs: str, got: str, *, started: bool) -> bool:
    if not runs or not got:
        return not started
    return runs == got


def image_digest(image_id: str) -> str:
    """Return the digest of a ``ContainerStatus.imageID``: ``[docker-pullable://][name@]sha256:…``."""
    return image_id.rpartition("://")[2].rpartition("@")[2]


def _two_images(pod: str, image: ContainerImage, more: int) -> str:
    on_live = on_copy = ""
    if image.live_node != image.copy_node:
        on_live = f" on node {image.live_node}"
        on_copy = f" on node {image.copy_node}"
    others = f"; the same for {more} more pod(s)" if more else ""
    return (
        f"container {image.container} of pod {pod} runs {_with_digest(image.live, image.live_id)}{on_live}, "
        f"and a copy of it started {_with_digest(image.copy, image.copy_id)}{on_copy}{others}"
    )


def _with_digest(image: str, image_id: str) -> str:
    return f"{image} ({image_digest(image_id) or 'its digest is not known'})"


RESULT: Final = "kraftbridge-dry-start-result "
NOTE: Final = "kraftbridge-dry-start "
_VERSION: Final = 1
_WORDS: Final = 600
_NOISE: Final = ("Picked up ", "log4j:WARN", "SLF4J", NOTE, RESULT)
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_TELLING: Final = re.compile(
    r"\b(error|exception|fatal|fail|invalid|must|required|not found|cannot|unknown|no such)", re.IGNORECASE
)


def kafka_start(log: str) -> KafkaStart | None:
    """Return the configuration that the copy would start; None if the log has no valid result of the agent."""
    results = list(_marked(log, RESULT))
    if not results:
        return None
    try:
        return _start(parsed_json(results[-1]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def programs(log: str) -> tuple[JavaProgram, ...]:
    """Return the JVMs in the log that the agent skipped or allowed."""
    started = []
    for note in _marked(log, NOTE):
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            started.append(_program(parsed_json(note)))
    return tuple(started)


def _marked(log: str, mark: str) -> Iterator[str]:
    """Yield what follows a mark, line by line."""
    for line in log.splitlines():
        _, has_mark, text = line.partition(mark)
        if has_mark:
            yield text


def agent_loaded(log: str) -> bool:
    """Return whether a JVM took the agent's variables: HotSpot and OpenJ9 print ``Picked up`` on standard error."""
    return any(line.lstrip().startswith("Picked up ") for line in log.splitlines())


def last_words(log: str) -> str:
    """Return the image's last output: lines that look like errors, else the last lines; at most 600 characters."""
    lines = filter(None, map(str.lstrip, _COLOURS.sub("", log).splitlines()))
    own = [line.rstrip() for line in lines if not line.startswith(_NOISE)]
    telling = list(filter(_TELLING.search, own))
    text = " | ".join(dict.fromkeys((telling or own)[-4:]))
    return text[-_WORDS:]


def _start(raw: Mapping[str, Any]) -> KafkaStart:
    if raw["version"] != _VERSION:
        raise ValueError(f"version {raw['version']}")
    classes = section(raw, "classes")
    return KafkaStart(
        valid=bool(raw["valid"]),
        complaint=str(raw.get("complaint", "")),
        settings=_given(raw["settings"]),
        system_properties=_given(section(raw, "options")),
        jaas_entries={str(name): str(digest) for name, digest in section(raw, "jaas", "entries").items()},
        missing_classes=tuple(sorted(name for name, loads in classes.items() if not loads)),
        mounted_classes=tuple(sorted(map(str, entries(raw, "mountedClasses")))),
        mount_points=_mount_points(section(raw, "directories")),
        programs=tuple(map(_program, entries(raw, "events"))),
        refusals=tuple(map(str, entries(raw, "refusals"))),
        untried=str(raw.get("untried", "")),
        address_cache_seconds=_seconds(raw.get("addressCacheSeconds")),
        kafka=str(raw.get("kafka", "")),
        java=str(raw.get("java", "")),
        host=str(raw.get("host", "")),
    )


def _seconds(value: Any) -> int | None:
    if not isinstance(value, int | None):
        raise TypeError(f"a time is {type(value).__name__}")
    return value


def _mount_points(directories: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    return {path: str(state["mount"]) for path, state in directories.items() if state.get("mount")}


def _given(raw: Mapping[str, Mapping[str, Any]]) -> dict[str, GivenSetting]:
    return {name: GivenSetting(_value(given), str(given.get("hash") or "")) for name, given in raw.items()}


def _value(given: Mapping[str, Any]) -> str | None:
    value = given.get("value")
    if not isinstance(value, str | None):
        raise TypeError(f"the value of a setting is {type(value).__name__}")
    return value


def _program(raw: Mapping[str, Any]) -> JavaProgram:
    if raw["event"] not in ("ran", "skipped"):
        raise ValueError(str(raw["event"]))
    return JavaProgram(str(raw["main"]), str(raw.get("arguments", "")), raw["event"] == "ran")


_ZOOKEEPER_SETTINGS: Final = ("zookeeper.", "inter.broker.protocol.")
"""A KRaft broker ignores these settings, so an overlay may remove them (KIP-866)."""
_MIGRATION_FLAG: Final = "zookeeper.metadata.migration.enable"
_MODE_SETTINGS: Final = (_MIGRATION_FLAG, "process.roles")
_ID_SETTINGS: Final = ("node.id", "broker.id")
_OFFERED_BY_CONTROLLERS: Final = f"{CONTROLLER_LISTENER_PREFIX}sasl.enabled.mechanisms"
"""What only the owner of a listener reads: a broker does not open the controllers'.
Bitnami's image adds it (``kafka_initialize``)."""
_NOT_SET: Final = "not set"


@dataclass(frozen=True, slots=True)
class SettingDifference:
    """A setting with two values. Values of sensitive settings are hidden."""

    name: str
    expected: str
    found: str

    @override
    def __str__(self) -> str:
        """Return the setting with both values."""
        return f"{self.name} is {self.found} instead of {self.expected}"


def differences_from_running(copy: CopyOutcome, running: Sequence[BrokerSetting]) -> tuple[SettingDifference, ...]:
    """Return the differences between a copy in the current mode and the running broker.

    Parameters
    ----------
    copy
        A copy that reached the start of Kafka.
    running
        The result of DescribeConfigs for this broker.
        A dynamic value hides the static one, and sensitive values are not returned.
        Both are not compared.

    Notes
    -----
    DescribeConfigs reports a setting as static if the setting or a synonym is given
    (``ConfigHelper.createBrokerConfigEntry``).
    The agent lists the same settings.
    """
    start = copy.start
    if start is None:
        return ()
    static = {s.name: s for s in running if s.source is not SettingSource.DEFAULT}
    hidden = {s.name for s in static.values() if not _is_comparable(s)}
    hidden |= {name for name, setting in start.settings.items() if setting.sensitive}
    live = {name: setting.value for name, setting in static.items()}
    given = {name: setting.value for name, setting in with_live_names(start.settings, copy).items()}
    return tuple(
        SettingDifference(name, _shown_in(live, name), _shown_in(given, name))
        for name in sorted((live.keys() | given.keys()) - hidden)
        if live.get(name) != given.get(name)
    )


def is_of_mode(name: str) -> bool:
    """Return whether a setting tells the mode of a broker, or is what images add to it or remove with it."""
    return name.startswith(_ZOOKEEPER_SETTINGS) or name in (*_MODE_SETTINGS, *_ID_SETTINGS, _OFFERED_BY_CONTROLLERS)


def _is_comparable(setting: BrokerSetting) -> bool:
    return setting.known and not setting.sensitive and setting.source is SettingSource.STATIC


def differences_from_overlay(present: CopyOutcome, changed: CopyOutcome) -> tuple[SettingDifference, ...]:
    """Return the differences between a copy in another mode and the current configuration with the overlay's settings.

    What another release's image leaves out is not among them (`left_out`): the overlay reaches Kafka nevertheless.

    Parameters
    ----------
    present
        The copy of the same pod in its current mode.
    changed
        The copy of the same pod in the other mode.
    """
    before = present.start
    after = changed.start
    if before is None or after is None:
        return ()
    expected = with_live_names(before.settings, present)
    expected |= {name: GivenSetting(value) for name, value in changed.overlay.items()}
    given = with_live_names(after.settings, changed)
    if changed.key.mode.is_of_kraft:
        expected.pop(_MIGRATION_FLAG, None)

    missing = left_out(present, changed)

    def by_weight(name: str) -> tuple[bool, bool, str]:
        # A missing overlay shows first in the settings that define the mode.
        return name not in _MODE_SETTINGS, name not in changed.overlay, name

    differences = [
        SettingDifference(name, _described(expected.get(name)), _described(given.get(name)))
        for name in sorted(expected.keys() | given.keys(), key=by_weight)
        if name not in missing and not _agree(name, expected.get(name), given.get(name), changed)
    ]
    if not _start_other_releases(before, after):
        differences += _changes("system property ", _comparable(before, present), _comparable(after, changed))
    differences += _changes("JAAS entry ", before.jaas_entries, after.jaas_entries)
    return tuple(differences)


def left_out(present: CopyOutcome, changed: CopyOutcome) -> dict[str, GivenSetting]:
    """Return what the brokers run with, and the image of another release does not give to Kafka.

    The scripts of an image write settings of their own, and those of a later release write others.

    Parameters
    ----------
    present
        The copy of the same pod in its current mode.
    changed
        The copy of the same pod in the other mode.
    """
    before = present.start
    after = changed.start
    if before is None or after is None or not _start_other_releases(before, after):
        return {}
    return {
        name: setting
        for name, setting in with_live_names(before.settings, present).items()
        if name not in after.settings and name not in changed.overlay and not is_of_mode(name)
    }


def _agree(name: str, expected: GivenSetting | None, given: GivenSetting | None, changed: CopyOutcome) -> bool:
    """Return whether a copy gives a setting as the overlay asks, or differs without effect.

    A setting that is hashed on one side only was refused by Kafka on the other side, which is a separate finding,
    or is one of the overlay that Kafka does not know: the copy shows that it is there.
    """
    if expected == given:
        return True
    if name in changed.overlay and given is not None and given.sensitive:
        return True
    ignored = changed.key.mode.is_of_kraft and name.startswith(_ZOOKEEPER_SETTINGS)
    if given is None:
        return ignored
    if ignored and given.value == "":
        return True
    return expected is None and _implied(name, given, changed)


def _start_other_releases(before: KafkaStart, after: KafkaStart) -> bool:
    """Return whether two copies are known to start different releases of Kafka.

    Scripts and options of another release's image differ, and are its publisher's matter.
    One that does not tell its release is compared like one of the same.
    """
    is_known = bool(before.kafka and after.kafka)
    return is_known and before.kafka.split(".")[:2] != after.kafka.split(".")[:2]


def _changes(kind: str, before: Mapping[str, object], after: Mapping[str, object]) -> list[SettingDifference]:
    """Return the entries whose values differ, without the values."""
    return [
        SettingDifference(
            kind + name, "another value" if name in before else _NOT_SET, "changed" if name in after else _NOT_SET
        )
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]


def _implied(name: str, given: GivenSetting, changed: CopyOutcome) -> bool:
    """Return whether a setting that an image adds in a mode changes nothing for its broker."""
    if name == _OFFERED_BY_CONTROLLERS:
        return True
    shows_id = changed.key.mode.is_of_kraft or PROTOCOL in changed.overlay
    return shows_id and name in _ID_SETTINGS and given.value == str(changed.broker_id)


def _comparable(start: KafkaStart, copy: CopyOutcome) -> dict[str, GivenSetting]:
    """Return the system properties without those that the overlay itself sets (short address caches)."""
    properties = with_live_names(start.system_properties, copy)
    return {name: value for name, value in properties.items() if not name.startswith("sun.net.inetaddr.")}


def with_live_names(settings: Mapping[str, GivenSetting], copy: CopyOutcome) -> dict[str, GivenSetting]:
    """Return settings with the live pod's names and addresses in place of the copy's."""
    values = {}
    for name, setting in settings.items():
        value = setting.value
        for own, live in copy.aliases.items():
            value = value and value.replace(own, live)
        values[name] = GivenSetting(value, setting.hash)
    return values


def _described(setting: GivenSetting | None) -> str:
    if setting is None:
        return _NOT_SET
    return "a value that is not shown" if setting.sensitive else _shown(setting.value)


def _shown_in(settings: Mapping[str, str | None], name: str) -> str:
    return _shown(settings[name]) if name in settings else _NOT_SET


def _shown(value: str | None) -> str:
    return "null" if value is None else repr(value)


def settings_named(text: str, names: Mapping[str, object], prefix: str) -> tuple[str, ...]:
    """Return the settings in a text, by their own names or as environment variables.

    Parameters
    ----------
    text
        Output of Kafka or of an image.
    names
        Known settings.
    prefix
        Prefix of the image's environment variables: ``KAFKA_`` or ``KAFKA_CFG_``.
    """
    upper = text.upper()
    return tuple(sorted(n for n in names if n in text or prefix + n.upper().replace(".", "_") in upper))
