"""The copies of a dry start, and a hash of everything that they are created from."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kraftbridge.dry_start.comparison import differences_from_overlay
from kraftbridge.models.dry_start import CopyKey, CopyOutcome
from kraftbridge.models.phase import BrokerMode
from kraftbridge.models.spec import BrokersSpec, ConfigStyle, PropertiesSource

_OF_A_BROKER = re.compile(r"(?m)^[ \t]*(zookeeper\.connect|broker\.id|log\.dirs?)[ \t]*[=:]")
_MOST_CHANNELS = 6
OTHER_MODES = (BrokerMode.MIGRATION, BrokerMode.KRAFT)


def copies_of(stateful_set: str, ordinals: Sequence[int]) -> tuple[CopyKey, ...]:
    """Return the copies of one StatefulSet: every ordinal in its current mode, the first and the last in the other modes.

    The first and the last show settings that depend on the ordinal. The current mode of all of them shows that the copies are faithful.
    """
    ends = dict.fromkeys((min(ordinals), max(ordinals))) if ordinals else {}
    return (
        *(CopyKey(stateful_set, ordinal, BrokerMode.ZOOKEEPER) for ordinal in sorted(ordinals)),
        *(CopyKey(stateful_set, ordinal, mode) for mode in OTHER_MODES for ordinal in ends),
    )


def described(brokers: BrokersSpec) -> str:
    """Return a channel as a user writes it in ``spec.brokers``."""
    if brokers.config_style is ConfigStyle.PROPERTIES and brokers.properties is not None:
        source = brokers.properties
        place = f"{{volume: {source.volume}, configMap: {source.config_map}, key: {source.key}}}"
        return f"configStyle: {ConfigStyle.PROPERTIES}, properties: {place}"
    return f"configStyle: {ConfigStyle.ENV}, envPrefix: {brokers.env_prefix}"


def other_channels(
    brokers: BrokersSpec, pod: Mapping[str, Any], config_maps: Mapping[str, Mapping[str, str]]
) -> tuple[BrokersSpec, ...]:
    """Return ``spec.brokers`` with each other channel that the pod template may have.

    Parameters
    ----------
    brokers
        The section with the channel that the user chose.
    pod
        Pod template's spec.
    config_maps
        Data of the ConfigMaps that volumes of the template mount, by name.
    """
    found = [
        brokers.model_copy(update={"config_style": ConfigStyle.ENV, "env_prefix": prefix, "properties": None})
        for prefix in ("KAFKA_", "KAFKA_CFG_")
    ]
    for volume in pod.get("volumes") or []:
        name = (volume.get("configMap") or {}).get("name", "")
        found += [
            brokers.model_copy(
                update={
                    "config_style": ConfigStyle.PROPERTIES,
                    "properties": PropertiesSource(volume=volume["name"], config_map=name, key=key),
                }
            )
            for key, text in sorted(config_maps.get(name, {}).items())
            if _OF_A_BROKER.search(text)
        ]
    return tuple({described(b): b for b in found if described(b) != described(brokers)}.values())[:_MOST_CHANNELS]


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
