"""The copies of the brokers' pods in a dry start: what their reports mean and show about the settings. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from typing_extensions import override

from kraftbridge.constants import CONTROLLER_LISTENER_PREFIX
from kraftbridge.models.dry_start import (
    ContainerImage,
    CopyKey,
    CopyOutcome,
    DryStartReport,
    GivenSetting,
    JavaProgram,
    KafkaStart,
)
from kraftbridge.models.mounted_files import MountedFiles, mounted_object
from kraftbridge.models.phase import BrokerMode
from kraftbridge.models.spec import BrokersSpec, ConfigStyle, PropertiesSource
from kraftbridge.models.status import ChannelStatus
from kraftbridge.models.survey import BrokerSetting, SettingSource

_OF_A_BROKER = re.compile(r"(?m)^[ \t]*(zookeeper\.connect|broker\.id|log\.dirs?)[ \t]*[=:]")
_MOST_CHANNELS = 6
OTHER_MODES = (BrokerMode.MIGRATION, BrokerMode.KRAFT)


def copies_of(stateful_set: str, ordinals: Sequence[int]) -> tuple[CopyKey, ...]:
    """Return a StatefulSet's copies: every ordinal in its current mode, the first and the last in the other modes.

    The first and the last show settings that depend on the ordinal.
    The current mode of all of them shows that the copies are faithful.
    """
    ends = dict.fromkeys((min(ordinals), max(ordinals))) if ordinals else {}
    return (
        *(CopyKey(stateful_set, ordinal, BrokerMode.ZOOKEEPER) for ordinal in sorted(ordinals)),
        *(CopyKey(stateful_set, ordinal, mode) for mode in OTHER_MODES for ordinal in ends),
    )


def described(brokers: BrokersSpec) -> str:
    """Return a channel as a user writes it in ``spec.brokers``."""
    return str(ChannelStatus.of(brokers))


Files = Mapping[tuple[str, str], MountedFiles]
"""ConfigMaps and Secrets that a pod template refers to, by kind and name."""


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
    found = _possible_channels(brokers, pod, files)
    return tuple(b for name, b in found.items() if name != described(brokers))[:_MOST_CHANNELS]


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
    possible = [_possible_channels(brokers, pod, files) for pod, files in templates]
    common = [b for name, b in possible[0].items() if all(name in others for others in possible)] if possible else []
    variables = [_variables(brokers.container, pod, files) for pod, files in templates]

    def unlikely(each: BrokersSpec) -> tuple[int, bool]:
        if each.properties is not None:
            return (0 if each.properties == brokers.properties else 2), False
        connected = all(f"{each.env_prefix}ZOOKEEPER_CONNECT" in names for names in variables)
        return (1 if connected else 3), each.env_prefix != brokers.env_prefix

    return tuple(sorted(common, key=unlikely))


def _variables(container: str, pod: Mapping[str, Any], files: Files) -> frozenset[str]:
    """Return the names of the Kafka container's variables."""
    names: set[str] = set()
    for each in (c for c in pod.get("containers") or [] if c.get("name") == container):
        names |= {str(e["name"]) for e in each.get("env") or []}
        for source in each.get("envFrom") or []:
            for key in _named(source.get("configMapRef"), source.get("secretRef")):
                names |= {f"{source.get('prefix', '')}{k}" for k in (files[key].data if key in files else ())}
    return frozenset(names)


def _possible_channels(brokers: BrokersSpec, pod: Mapping[str, Any], files: Files) -> dict[str, BrokersSpec]:
    """Return ``spec.brokers`` with each channel that a pod template may have, by the channel's words."""
    volumes = pod.get("volumes") or []
    found = [
        brokers.model_copy(update={"config_style": ConfigStyle.ENV, "env_prefix": prefix, "properties": None})
        for prefix in ("KAFKA_", "KAFKA_CFG_")
    ]
    if brokers.properties is not None and mounted_object(volumes, brokers.properties.volume) is not None:
        found.append(brokers.model_copy(update={"config_style": ConfigStyle.PROPERTIES}))
    for volume in volumes:
        mounted = files.get(mounted_object([volume], volume["name"]) or ("", ""))
        found += [
            brokers.model_copy(
                update={
                    "config_style": ConfigStyle.PROPERTIES,
                    "properties": PropertiesSource(volume=volume["name"], key=key),
                }
            )
            for key in (sorted(mounted.data) if mounted is not None else ())
            if mounted is not None and _OF_A_BROKER.search(mounted.text(key))
        ]
    by_words: dict[str, BrokersSpec] = {}
    for each in found:
        by_words.setdefault(described(each), each)
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
        return f"its copy in the present mode does not start: {present.problem or _complaint(present)}"
    if changed.start is None:
        return changed.problem + (f'; the image says: "{changed.words}"' if changed.words else "")
    if not changed.start.valid:
        return f"Kafka refuses the configuration: {changed.start.complaint}"
    if not changed.overlay:
        return "the mode sets nothing"
    found = differences_from_overlay(present, changed)
    return f"the settings do not reach Kafka: {found[0]}" if found else ""


def _complaint(copy: CopyOutcome) -> str:
    return copy.start.complaint if copy.start is not None else ""


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
    found = {}
    for key, copy in outcomes.items():
        present = outcomes.get(replace(key, mode=BrokerMode.ZOOKEEPER))
        if key.mode is BrokerMode.ZOOKEEPER or present is None or present.start is None:
            continue
        if copy.start is None or differences_from_overlay(present, copy):
            found[key.stateful_set] = True
    return tuple(found)


def referenced(pod: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return kind and name of every ConfigMap and Secret that a pod template refers to."""
    found: dict[tuple[str, str], None] = {}
    for container in (*(pod.get("initContainers") or []), *(pod.get("containers") or [])):
        for source in container.get("envFrom") or []:
            found |= dict.fromkeys(_named(source.get("configMapRef"), source.get("secretRef")))
        for entry in container.get("env") or []:
            reference = entry.get("valueFrom") or {}
            found |= dict.fromkeys(_named(reference.get("configMapKeyRef"), reference.get("secretKeyRef")))
    for volume in pod.get("volumes") or []:
        sources = [volume, *((volume.get("projected") or {}).get("sources") or [])]
        for source in sources:
            secret = source.get("secret")
            renamed = None if secret is None else {"name": secret.get("secretName", secret.get("name"))}
            found |= dict.fromkeys(_named(source.get("configMap"), renamed))
    return tuple(sorted(found))


def _named(config_map: Mapping[str, Any] | None, secret: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    for kind, reference in (("ConfigMap", config_map), ("Secret", secret)):
        if reference is not None and reference.get("name"):
            yield kind, str(reference["name"])


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
    of the image's manifest or index if a registry
    delivered it, of its configuration if it was imported on the node.
    The name before the digest depends on what else the node has.
    """
    found: dict[tuple[str, str, str, str, str], list[tuple[str, ContainerImage]]] = {}
    for each in copies:
        for image in each.images:
            mine = image_digest(image.live_id)
            theirs = image_digest(image.copy_id)
            unknown = not mine or not theirs
            if (mine == theirs and not unknown) or (unknown and each.start is None):
                continue
            key = (image.container, image.live, mine, image.copy, theirs)
            found.setdefault(key, []).append((each.key.pod, image))
    return tuple(_two_images(*entries[0], len({pod for pod, _ in entries}) - 1) for entries in found.values())


def image_digest(image_id: str) -> str:
    """Return the digest of a ``ContainerStatus.imageID``: ``sha256:…``, ``name@sha256:…`` or ``docker-pullable://name@sha256:…``."""
    return image_id.rpartition("://")[2].rpartition("@")[2]


def _two_images(pod: str, image: ContainerImage, more: int) -> str:
    live = f"{image.live} ({image_digest(image.live_id) or 'its digest is not known'})"
    copied = f"{image.copy} ({image_digest(image.copy_id) or 'its digest is not known'})"
    nodes = image.live_node != image.copy_node
    return (
        f"container {image.container} of pod {pod} runs {live}{f' on node {image.live_node}' if nodes else ''}, "
        f"and a copy of it started {copied}{f' on node {image.copy_node}' if nodes else ''}"
        f"{f'; the same for {more} more pod(s)' if more else ''}"
    )


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
    for line in reversed(log.splitlines()):
        _, found, text = line.partition(RESULT)
        if found:
            try:
                return _start(json.loads(text))
            except (ValueError, KeyError, TypeError, AttributeError):
                return None
    return None


def programs(log: str) -> tuple[JavaProgram, ...]:
    """Return the JVMs in the log that the agent skipped or allowed."""
    found = []
    for line in log.splitlines():
        _, is_note, text = line.partition(NOTE)
        if is_note:
            try:
                found.append(_program(json.loads(text)))
            except (ValueError, KeyError, TypeError):
                continue
    return tuple(found)


def agent_loaded(log: str) -> bool:
    """Return whether the log shows a JVM with the agent's variables.

    HotSpot and OpenJ9 then print ``Picked up`` on standard error.
    """
    return any(line.lstrip().startswith("Picked up ") for line in log.splitlines())


def last_words(log: str) -> str:
    """Return the image's last output: lines that look like errors, else the last lines; at most 600 characters."""
    own = [
        line.strip()
        for line in _COLOURS.sub("", log).splitlines()
        if line.strip() and not line.lstrip().startswith(_NOISE)
    ]
    telling = [line for line in own if _TELLING.search(line)]
    text = " | ".join(dict.fromkeys((telling or own)[-4:]))
    return text[-_WORDS:]


def _start(raw: Mapping[str, Any]) -> KafkaStart:
    if raw["version"] != _VERSION:
        raise ValueError(f"version {raw['version']}")
    jaas = raw.get("jaas") or {}
    return KafkaStart(
        valid=bool(raw["valid"]),
        complaint=str(raw.get("complaint", "")),
        settings=_given(raw["settings"]),
        system_properties=_given(raw.get("options") or {}),
        jaas_entries={str(k): str(v) for k, v in (jaas.get("entries") or {}).items()},
        missing_classes=tuple(sorted(name for name, loads in (raw.get("classes") or {}).items() if not loads)),
        mounted_classes=tuple(sorted(map(str, raw.get("mountedClasses") or ()))),
        programs=tuple(_program(event) for event in raw.get("events") or []),
        refusals=tuple(map(str, raw.get("refusals") or ())),
        untried=str(raw.get("untried", "")),
        kafka=str(raw.get("kafka", "")),
        java=str(raw.get("java", "")),
        host=str(raw.get("host", "")),
    )


def _given(raw: Mapping[str, Mapping[str, Any]]) -> dict[str, GivenSetting]:
    return {name: GivenSetting(value=each.get("value"), hash=str(each.get("hash") or "")) for name, each in raw.items()}


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

Bitnami's image adds it (``kafka_initialize``).
"""
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
    The
    agent lists the same settings.
    """
    start = copy.start
    if start is None:
        return ()
    told = {s.name: s for s in running if s.source is not SettingSource.DEFAULT}
    found = []
    for name in sorted(told.keys() | start.settings.keys()):
        mine = start.settings.get(name)
        theirs = told.get(name)
        if theirs is not None and (theirs.sensitive or not theirs.known or theirs.source is not SettingSource.STATIC):
            continue
        if mine is not None and mine.sensitive:
            continue
        given = None if mine is None else _as_live(mine.value, copy)
        live = None if theirs is None else theirs.value
        if given != live:
            found.append(SettingDifference(name, _seen(theirs is not None, live), _seen(mine is not None, given)))
    return tuple(found)


def differences_from_overlay(present: CopyOutcome, changed: CopyOutcome) -> tuple[SettingDifference, ...]:
    """Return the differences between a copy in another mode and the current configuration with the overlay's settings.

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
    expected = {name: GivenSetting(_as_live(s.value, present), s.hash) for name, s in before.settings.items()}
    expected |= {name: GivenSetting(value) for name, value in changed.overlay.items()}
    found = {name: GivenSetting(_as_live(s.value, changed), s.hash) for name, s in after.settings.items()}
    kraft = changed.key.mode is BrokerMode.KRAFT
    if kraft:
        expected.pop(_MIGRATION_FLAG, None)
    differences = []
    # A missing overlay shows first in the settings that define the mode.
    for name in sorted(
        expected.keys() | found.keys(), key=lambda n: (n not in _MODE_SETTINGS, n not in changed.overlay, n)
    ):
        wanted = expected.get(name)
        given = found.get(name)
        dropped = kraft and (given is None or given.value == "") and name.startswith(_ZOOKEEPER_SETTINGS)
        # A setting that is hashed on one side only was refused by Kafka on the other side, which is a separate finding.
        if wanted == given or dropped or (wanted is None and given is not None and _implied(name, given, changed)):
            continue
        differences.append(SettingDifference(name, _described(wanted), _described(given)))
    for what, one, other in (
        ("system property ", _comparable(before, present), _comparable(after, changed)),
        ("JAAS entry ", dict(before.jaas_entries), dict(after.jaas_entries)),
    ):
        differences += [
            SettingDifference(
                what + name, "another value" if name in one else _NOT_SET, "changed" if name in other else _NOT_SET
            )
            for name in sorted(one.keys() | other.keys())
            if one.get(name) != other.get(name)
        ]
    return tuple(differences)


def _implied(name: str, given: GivenSetting, changed: CopyOutcome) -> bool:
    """Return whether a setting that an image adds in a mode changes nothing for its broker."""
    if name == _OFFERED_BY_CONTROLLERS:
        return True
    return changed.key.mode is BrokerMode.KRAFT and name in _ID_SETTINGS and given.value == str(changed.broker_id)


def _comparable(start: KafkaStart, copy: CopyOutcome) -> dict[str, object]:
    """Return the system properties without those that the overlay itself sets (short address caches)."""
    return {
        name: (_as_live(s.value, copy), s.hash)
        for name, s in start.system_properties.items()
        if not name.startswith("sun.net.inetaddr.")
    }


def _as_live(value: str | None, copy: CopyOutcome) -> str | None:
    """Return a value with the live pod's names and addresses in place of the copy's."""
    if value is None:
        return None
    for own, live in copy.aliases.items():
        value = value.replace(own, live)
    return value


def _described(setting: GivenSetting | None) -> str:
    if setting is None:
        return _NOT_SET
    return "a value that is not shown" if setting.sensitive else _shown(setting.value)


def _seen(is_set: bool, value: str | None) -> str:  # noqa: FBT001 - read beside the value
    return _shown(value) if is_set else _NOT_SET


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
