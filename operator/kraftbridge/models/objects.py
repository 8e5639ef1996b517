"""Reads fields of Kubernetes objects that may be missing or null."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def section(obj: Mapping[str, Any] | None, *path: str) -> Mapping[str, Any]:
    """Return the mapping at a path; empty where a field is missing or null."""
    value: Mapping[str, Any] = obj or {}
    for name in path:
        value = value.get(name) or {}
    return value


def entries(obj: Mapping[str, Any] | None, *path: str) -> list[Any]:
    """Return the list at a path; empty where a field is missing or null."""
    *parents, last = path
    return section(obj, *parents).get(last) or []


def started_again(pod: Mapping[str, Any]) -> frozenset[str]:
    """Return the containers of a pod that were started more than once (``ContainerStatus.restartCount``)."""
    statuses = entries(pod, "status", "containerStatuses")
    return frozenset(status["name"] for status in statuses if status.get("restartCount", 0) > 0)


def variables_of(container: Mapping[str, Any] | None) -> dict[str, Mapping[str, Any]]:
    """Return the entries of a container's ``env`` by name, in the order of their first mention.

    A name may stand there twice: the API server only warns that the later entry hides the earlier one, and the process
    gets the later one (``kubelet`` passes both on, in their order).
    """
    return {entry["name"]: entry for entry in entries(container, "env")}


def version_of(content: Mapping[str, Any]) -> str:
    """Return the UID and resourceVersion of an object: equal ones have equal content."""
    return f"{content['metadata']['uid']}/{content['metadata']['resourceVersion']}"
