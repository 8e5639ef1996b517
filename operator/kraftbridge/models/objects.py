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
