"""Returns fields to the owners that they had before, in ``metadata.managedFields``.

A value that is written back is owned by its writer with the operation ``Update``.
Measured on Kubernetes 1.34 without this module: an owner that applies on the server (Helm 4, Flux,
``kubectl apply --server-side``) no longer owned the values with ``Apply``,
a second entry of its name owned them with ``Update``, and the operator owned the update strategy.
The owner could still prune every variable of the container.
So the entries are written, too, as client-go's ``csaupgrade`` does, and who owns what is the same as before.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

Path = tuple[str, ...]
_Entry = TypeVar("_Entry", bound=Mapping[str, Any])


def returned(
    current: Iterable[Mapping[str, Any]], recorded: Iterable[Mapping[str, Any]], paths: Iterable[Path]
) -> list[dict[str, Any]]:
    """Return the entries of ``managedFields`` in which each path has the owners that are recorded, and no other.

    Parameters
    ----------
    current, recorded
        ``managedFields`` as it is, and as it was.
    paths
        Keys of ``fieldsV1``, from ``f:spec`` on.
    """
    entries = [copy.deepcopy(dict(entry)) for entry in current]
    former = _of_the_object(recorded)
    for path in paths:
        for entry in _of_the_object(entries):
            _remove(entry.get("fieldsV1") or {}, path)
        for owner in former:
            node = node_at(owner.get("fieldsV1"), path)
            if node is not None:
                _insert(_entry_of(entries, owner)["fieldsV1"], path, node)
    return [entry for entry in entries if entry.get("fieldsV1") or entry.get("subresource")]


def _of_the_object(entries: Iterable[_Entry]) -> list[_Entry]:
    """Return the entries that are not of a subresource."""
    return [entry for entry in entries if not entry.get("subresource")]


def _entry_of(entries: list[dict[str, Any]], owner: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry of the same manager and operation, a new one if there is none."""
    keys = ("manager", "operation", "apiVersion")
    for entry in _of_the_object(entries):
        if all(entry.get(key) == owner.get(key) for key in keys):
            return entry
    added = {**owner, "fieldsV1": {}}
    entries.append(added)
    return added


def node_at(fields: Any, path: Path) -> Any:
    """Return the node at a path of ``fieldsV1``; None if there is none."""
    for step in path:
        if not isinstance(fields, Mapping):
            return None
        fields = fields.get(step)
    return fields


def _insert(fields: dict[str, Any], path: Path, node: Any) -> None:
    for step in path[:-1]:
        fields = fields.setdefault(step, {})
    fields[path[-1]] = copy.deepcopy(node)


def _remove(fields: dict[str, Any], path: Path) -> None:
    """Remove a path, and the parents that it leaves empty; an empty node at the end of a path is a field."""
    if path[0] not in fields:
        return
    if len(path) > 1:
        _remove(fields[path[0]], path[1:])
    if len(path) == 1 or not fields[path[0]]:
        del fields[path[0]]
