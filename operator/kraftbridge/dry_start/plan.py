"""The copies of a dry start, and a hash of everything that they are created from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kraftbridge.models.dry_start import CopyKey
from kraftbridge.models.phase import BrokerMode

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
