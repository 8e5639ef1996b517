"""The pod template that a broker would start from, without the overlay, and what it refers to: parts and digests. Pure.

A dry start looks at a template once. What somebody writes after it (``helm upgrade`` applies ConfigMaps before the
admission policy refuses the rest) reaches the next broker that restarts. So both are compared, part by part.
Labels and annotations are no part: they change with every release of a chart, and Kafka does not read them.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kraftbridge.constants import ANNOTATION_CONFIGURATION
from kraftbridge.models.objects import entries, section, variables_of
from kraftbridge.models.observation import TemplateSight

Object = dict[str, Any]
_DIGITS: Final = 12
_LISTS: Final = frozenset({"containers", "initContainers", "volumes"})
_KEYS: Final[Mapping[str, str]] = {"env": "name", "volumeMounts": "mountPath", "ports": "containerPort"}
"""Lists of a container in which the order of entries does not matter, each with the key of an entry."""


@dataclass(frozen=True, slots=True)
class Overlaid:
    """What the operator has overlaid in a template, and what was there before."""

    container: str
    variables: Collection[str]
    """Variables of the Kafka container that the overlay of the template's mode sets."""
    volumes: Collection[str]
    """Volumes that the overlay sets."""
    mount: str
    """Directory that the overlay mounts into the Kafka container, ``""`` for none."""
    former_container: Mapping[str, Any]
    """The Kafka container as its owner wrote it."""
    former_volumes: Sequence[Mapping[str, Any]]
    images: Collection[str] = ()
    """Containers whose image the overlay sets; all of them had the Kafka container's."""


def without_overlay(stateful_set: Mapping[str, Any], overlaid: Overlaid) -> Object:
    """Return a StatefulSet as a rollback would restore it: its owner's present template, without the overlay."""
    own = {**stateful_set, "spec": copy.deepcopy(stateful_set["spec"])}
    annotations = section(own, "spec", "template", "metadata", "annotations")
    if isinstance(annotations, dict):
        annotations.pop(ANNOTATION_CONFIGURATION, None)
    pod = own["spec"]["template"]["spec"]
    for container in (*entries(pod, "containers"), *entries(pod, "initContainers")):
        if container["name"] in overlaid.images:
            container["image"] = overlaid.former_container["image"]
    for container in entries(pod, "containers"):
        if container["name"] == overlaid.container:
            _restore_container(container, overlaid)
    volumes = _restored_volumes(entries(pod, "volumes"), overlaid)
    if volumes or "volumes" in pod:
        pod["volumes"] = volumes
    return own


def _restore_container(container: Object, overlaid: Overlaid) -> None:
    present = variables_of(container)
    former = variables_of(overlaid.former_container)
    kept = [name for name in present if name not in overlaid.variables]
    restored = [name for name in former if name in overlaid.variables]
    order = [name for name in former if name in {*kept, *restored}]
    names = [*order, *(name for name in kept if name not in former)]
    container["env"] = [former[name] if name in restored else present[name] for name in names]
    if overlaid.mount and "volumeMounts" in container:
        mounts = entries(container, "volumeMounts")
        container["volumeMounts"] = [mount for mount in mounts if mount["mountPath"] != overlaid.mount]


def _restored_volumes(present: Sequence[Object], overlaid: Overlaid) -> list[Object]:
    former = {volume["name"]: dict(volume) for volume in overlaid.former_volumes}
    restored = []
    for volume in present:
        name = volume["name"]
        if name not in overlaid.volumes:
            restored.append(volume)
        elif name in former:
            restored.append(former[name])
    return restored


Contents = Mapping[tuple[str, str], Mapping[str, Any] | None]
"""ConfigMaps and Secrets that a template refers to, by kind and name; None for one that does not exist."""


def sight_of(stateful_set: Mapping[str, Any], contents: Contents) -> TemplateSight:
    """Return the parts of a template without overlay, and of what it refers to.

    No digest of a Secret alone is shown, since a short value could be guessed from it. Secrets are in the digest of
    the whole; their versions tell which one has changed.
    """
    pod = section(stateful_set, "spec", "template", "spec")
    parts = {name: _digest(value) for name, value in _parts(pod)}
    hidden: list[Any] = []
    versions: dict[str, str] = {}
    for (kind, name), found in sorted(contents.items()):
        content = None if found is None else [section(found, "data"), section(found, "binaryData")]
        if kind == "Secret":
            hidden.append([name, content])
            versions[f"{kind} {name}"] = str(section(found, "metadata").get("resourceVersion", ""))
        else:
            parts[f"{kind} {name}"] = _digest(content)
    return TemplateSight(_digest([sorted(parts.items()), hidden]), parts, versions)


def _parts(pod: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield every part of a pod's spec with a name for people."""
    for key, value in pod.items():
        if key not in _LISTS:
            yield f"{key} of the pod", value
    for kind, word in (("initContainers", "init container"), ("containers", "container")):
        containers = entries(pod, kind)
        if len(containers) > 1:
            yield f"order of every {word}", [container["name"] for container in containers]
        for container in containers:
            yield from _container(f"{word} {container['name']}", container)
    for volume in entries(pod, "volumes"):
        kinds = ", ".join(sorted(volume.keys() - {"name"}))
        yield f"volume {volume['name']} ({kinds})", volume


def _container(word: str, container: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    if container.get("restartPolicy") == "Always":
        word = f"sidecar {container['name']}"
    for key, value in container.items():
        if key == "name" or value in ({}, [], None):
            continue
        ordered = sorted(value, key=lambda entry: str(entry.get(_KEYS[key]))) if key in _KEYS else value
        yield f"{key} of {word}", ordered


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
