"""What a newer release wrote into a KafkaMigration, as this release reads it. Pure.

``helm rollback``, two releases that share one CRD, and the seconds in which ``helm upgrade`` has applied the CRD and
the old pod still runs all show an operator fields that it does not know.
It ignores unknown fields of ``spec``, keeps unknown fields of ``status``, and names both.
It does not guess the meaning of an unknown value, such as a phase: that migration stands still.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from kraftbridge.models.conditions import Condition
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.models.status import MigrationStatus

Json = dict[str, Any]
M = TypeVar("M", bound=BaseModel)
_NAMED: Final = 10
_CONDITIONS: Final = "conditions"


@dataclass(frozen=True, slots=True)
class ReadSpec:
    """A spec, and the fields of it that this release ignores."""

    spec: MigrationSpec
    unknown: tuple[str, ...]
    """Paths, such as ``spec.strategy.field``."""


@dataclass(frozen=True, slots=True)
class ReadStatus:
    """A status, and what this release does not know of it."""

    status: MigrationStatus
    unknown: tuple[str, ...]
    """Paths, such as ``status.field`` and ``status.conditions[Type]``."""
    stored: Mapping[str, Any]
    """The status as the API server has it."""


def read_spec(document: Mapping[str, Any]) -> ReadSpec:
    """Return a spec without the fields that this release does not know.

    Raises
    ------
    ValidationError
        A known field has a value that is not valid.
    """
    spec, dropped = _validated(MigrationSpec, document)
    return ReadSpec(spec, tuple(f"spec.{path}" for path in dropped))


def read_status(document: Mapping[str, Any]) -> ReadStatus:
    """Return a status without the fields and conditions that this release does not know.

    Raises
    ------
    ValidationError
        A known field has a value that this release does not know.
    """
    status, own, foreign = _understood(document)
    unknown = [f"status.{path}" for path in _unknown(own, as_stored(status))]
    unknown += [f"status.{_CONDITIONS}[{item.get('type', '')}]" for item in foreign]
    return ReadStatus(status, tuple(unknown), document)


def known_status(document: Mapping[str, Any]) -> MigrationStatus:
    """Return a status for a reader who does not ask what this release does not know of it.

    Raises
    ------
    ValidationError
        As `read_status`.
    """
    status, _, _ = _understood(document)
    return status


def _understood(document: Mapping[str, Any]) -> tuple[MigrationStatus, Mapping[str, Any], list[Json]]:
    """Return a status, what it was read from, and the conditions that this release does not know."""
    known, foreign = _conditions(document)
    own = {**document, _CONDITIONS: known} if _CONDITIONS in document else document
    status, _ = _validated(MigrationStatus, own)
    return status, own, foreign


def as_stored(status: MigrationStatus) -> Json:
    """Return a status as the API server stores it."""
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)


def replaced(read: ReadStatus, status: MigrationStatus) -> Json:
    """Return the body of a new status, with what this release does not know of the former one.

    An unknown field at the top stays, until another attempt begins.
    One further down stays while its object is otherwise unchanged: what it says of another object is not true of this
    one.
    """
    body = as_stored(status)
    if not read.unknown:
        return body
    known, foreign = _conditions(read.stored)
    own = {**read.stored, _CONDITIONS: known}
    before = as_stored(read.status)
    kept: Json = _kept(own, before, body)
    if status.attempt == read.status.attempt:
        kept |= {name: copy.deepcopy(own[name]) for name in own.keys() - before.keys() if own[name] is not None}
    types = {item["type"] for item in kept.get(_CONDITIONS, ())}
    others = [copy.deepcopy(item) for item in foreign if item.get("type") not in types]
    if others:
        kept[_CONDITIONS] = [*kept.get(_CONDITIONS, ()), *others]
    return kept


def refused(document: Mapping[str, Any], conditions: Sequence[Condition], message: str, generation: int) -> Json:
    """Return the body of a status that is as it was, but for its message and these conditions."""
    said = {item.type.value: item.model_dump(mode="json", by_alias=True, exclude_none=True) for item in conditions}
    former = document.get(_CONDITIONS) or ()
    listed = [said.pop(item.get("type"), item) for item in former]
    return {
        **as_stored(MigrationStatus()),
        **copy.deepcopy(dict(document)),
        _CONDITIONS: [*listed, *said.values()],
        "message": message,
        "observedGeneration": generation,
    }


def understood_conditions(document: Mapping[str, Any]) -> tuple[Condition, ...]:
    """Return the conditions of a stored status that this release knows."""
    known, _ = _conditions(document)
    return tuple(_validated(Condition, item)[0] for item in known)


def described(unknown: Sequence[str]) -> str:
    """Return what a message says about fields that this release does not know."""
    fields = ", ".join(unknown[:_NAMED])
    more = f" and {len(unknown) - _NAMED} more" if len(unknown) > _NAMED else ""
    return (
        f"This release of the operator does not know {fields}{more}, which a newer release wrote, and ignores it. "
        "Upgrade the operator to the release of the CRD"
    )


def _validated(model: type[M], document: Mapping[str, Any]) -> tuple[M, list[str]]:
    """Return the model and the paths of the fields that were left out because the model forbids them."""
    left: Any = document
    dropped: list[str] = []
    while True:
        try:
            return model.model_validate(left), dropped
        except ValidationError as error:
            paths = [item["loc"] for item in error.errors() if item["type"] == "extra_forbidden"]
            if not paths:
                raise
            if left is document:
                left = copy.deepcopy(dict(document))
            for path in paths:
                _drop(left, path)
                dropped.append(".".join(map(str, path)))


def _drop(document: Any, path: Sequence[str | int]) -> None:
    node = document
    for step in path[:-1]:
        node = node[step]
    del node[path[-1]]


def _conditions(document: Mapping[str, Any]) -> tuple[list[Json], list[Json]]:
    """Return the conditions that this release knows, and the others."""
    known: list[Json] = []
    foreign: list[Json] = []
    for item in document.get(_CONDITIONS) or ():
        try:
            _validated(Condition, item)
        except ValidationError:
            foreign.append(item)
        else:
            known.append(item)
    return known, foreign


def _unknown(stored: Any, known: Any, path: str = "") -> list[str]:
    """Return the paths of what is stored and not known."""
    if stored == known:
        return []
    if isinstance(stored, Mapping) and isinstance(known, Mapping):
        found = []
        for name, value in stored.items():
            place = f"{path}.{name}" if path else name
            if name in known:
                found += _unknown(value, known[name], place)
            elif value is not None:
                found.append(place)
        return found
    if isinstance(stored, list) and isinstance(known, list):
        pairs = enumerate(zip(stored, known, strict=False))
        return [place for i, (item, same) in pairs for place in _unknown(item, same, f"{path}[{i}]")]
    return []


def _kept(stored: Any, before: Any, after: Any) -> Any:
    """Return what is to be stored, with the unknown fields of objects that did not change."""
    if before == after:
        return _merged(stored, after)
    if isinstance(stored, Mapping) and isinstance(before, Mapping) and isinstance(after, Mapping):
        return {
            name: _kept(stored[name], before[name], value) if name in stored and name in before else value
            for name, value in after.items()
        }
    if isinstance(stored, list) and isinstance(before, list) and isinstance(after, list):
        return [_of_unchanged(stored, before, item) for item in after]
    return after


def _of_unchanged(stored: list[Any], before: list[Any], item: Any) -> Any:
    """Return an item of a list, with its unknown fields if the former list has it."""
    if item not in before:
        return item
    return _merged(stored[before.index(item)], item)


def _merged(stored: Any, known: Any) -> Any:
    """Return what is known, with what is stored beside it."""
    if isinstance(stored, Mapping) and isinstance(known, Mapping):
        others = {name: value for name, value in stored.items() if name not in known and value is not None}
        return {**{name: _merged(stored.get(name), value) for name, value in known.items()}, **copy.deepcopy(others)}
    if isinstance(stored, list) and isinstance(known, list) and len(stored) == len(known):
        return [_merged(*pair) for pair in zip(stored, known, strict=True)]
    return known
