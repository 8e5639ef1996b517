"""What in a pod besides Kafka itself asks ZooKeeper: init containers, probes, hooks and sidecars.

A dry start's copy has no probe, hook or sidecar, and no init container of it reaches ZooKeeper, so these are judged by
their words: ZooKeeper's addresses, its client port and the names of its tools. A script in a ConfigMap is not read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kraftbridge.models.objects import entries, section

_WORDS: Final = r"zookeeper|zk-?cli|zk-ready|zk-shell|\bruok\b|\b2181\b"
_PROBES: Final[Mapping[str, str]] = {
    "startupProbe": "startup probe",
    "readinessProbe": "readiness probe",
    "livenessProbe": "liveness probe",
}
_READ: Final = ("name", "image", "command", "args")
"""Fields of a container beside Kafka that are searched, and its literal variables."""
_ITSELF: Final = frozenset({"localhost", "127.0.0.1"})
"""Hosts that a probe of Kafka may name, too."""


@dataclass(frozen=True, slots=True)
class ZooKeeperNeed:
    """A part of a pod that asks ZooKeeper."""

    part: str
    """``init container wait``, ``liveness probe of container kafka`` …"""
    on_kraft: bool
    """Whether it fails or writes to ZooKeeper alone as soon as the broker runs KRaft; others once ZooKeeper is gone."""


def zookeeper_needs(pod: Mapping[str, Any], container: str, hosts: Iterable[str]) -> tuple[ZooKeeperNeed, ...]:
    """Return the parts of a pod's spec that ask ZooKeeper.

    Parameters
    ----------
    pod
        ``PodSpec``.
    container
        Kafka's container. Its own command and variables are what the migration changes.
    hosts
        Hosts of ``spec.zookeeper.connect``.
    """
    names = "|".join(rf"(?<![\w.-]){re.escape(host)}(?![\w-])" for host in sorted({*hosts} - _ITSELF))
    pattern = re.compile(f"{_WORDS}|{names}" if names else _WORDS, re.IGNORECASE)
    return tuple(need for need, text in _parts(pod, container) if pattern.search(text))


def _parts(pod: Mapping[str, Any], container: str) -> Iterator[tuple[ZooKeeperNeed, str]]:
    """Yield each part with the text in which it may name ZooKeeper."""
    for starter in entries(pod, "initContainers"):
        kind = "sidecar" if starter.get("restartPolicy") == "Always" else "init container"
        yield ZooKeeperNeed(f"{kind} {starter['name']}", on_kraft=False), _text(starter)
    for each in entries(pod, "containers"):
        name = each["name"]
        if name != container:
            yield ZooKeeperNeed(f"sidecar {name}", on_kraft=False), _text(each)
        for field, words in _PROBES.items():
            yield ZooKeeperNeed(f"{words} of container {name}", on_kraft=True), json.dumps(section(each, field))
        for hook, handler in section(each, "lifecycle").items():
            yield ZooKeeperNeed(f"{hook} hook of container {name}", on_kraft=True), json.dumps(handler)


def _text(container: Mapping[str, Any]) -> str:
    variables = [f"{variable['name']}={variable.get('value', '')}" for variable in entries(container, "env")]
    return json.dumps([container.get(field, "") for field in _READ] + variables)
