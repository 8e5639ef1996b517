"""Differences as the report shows them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kraftbridge.metadata.entities import is_sensitive_config
from kraftbridge.models.report import AttributeDifference, Difference, DifferenceState, EntityKind
from kraftbridge.verification.compare.places import Copy, Flagged
from kraftbridge.verification.compare.recheck import Pair
from kraftbridge.verification.sources.rows import LOG, ZOOKEEPER

_MAXIMUM_ATTRIBUTES: Final = 40
_MAXIMUM_VALUE_CHARACTERS: Final = 1_000
_HIDDEN: Final = '"(hidden)"'


def difference_of_pair(kind: EntityKind, key: str, pair: Pair) -> Difference:
    """Return the difference that reading again has left."""
    return difference(
        kind,
        key,
        {
            ZOOKEEPER: Copy(int(pair.zookeeper is not None), pair.zookeeper.value if pair.zookeeper else None, None),
            LOG: Copy(int(pair.log is not None), pair.log.value if pair.log else None, None),
        },
        log_offset=pair.log_offset,
        zookeeper_offset=pair.zookeeper_offset,
    )


def difference_of_flagged(flagged: Flagged, places: Sequence[str]) -> Difference:
    """Return the difference that a comparison has found."""
    copies = {place: flagged.copies[place] for place in places}
    log, zookeeper = copies.get(LOG), copies.get(ZOOKEEPER)
    return difference(
        flagged.kind,
        flagged.key,
        copies,
        log_offset=log.offset if log else None,
        zookeeper_offset=zookeeper.offset if zookeeper else None,
    )


def difference(
    kind: EntityKind,
    key: str,
    copies: Mapping[str, Copy],
    *,
    log_offset: int | None = None,
    zookeeper_offset: int | None = None,
) -> Difference:
    """Return how an entity's copies differ, attribute by attribute; values of sensitive attributes are hidden."""
    present = [place for place, copy in copies.items() if copy.count]
    absent = [place for place, copy in copies.items() if not copy.count]
    if any(copy.count > 1 for copy in copies.values()):
        state = DifferenceState.DUPLICATE
    elif not absent:
        state = DifferenceState.CHANGED
    else:
        state = DifferenceState.EXTRA if LOG in absent else DifferenceState.MISSING
    return Difference(
        kind=kind,
        key=key,
        state=state,
        present_in=present,
        absent_in=absent,
        attributes=_attributes(kind, {place: _object(copy.value) for place, copy in copies.items()}),
        log_offset=log_offset,
        zookeeper_offset=zookeeper_offset,
    )


def _object(value: str | None) -> dict[str, Any]:
    attributes: dict[str, Any] = json.loads(value) if value else {}
    return attributes


def _attributes(kind: EntityKind, objects: Mapping[str, dict[str, Any]]) -> list[AttributeDifference]:
    names = sorted({name for attributes in objects.values() for name in attributes})
    configs = kind in {EntityKind.BROKER_CONFIG, EntityKind.TOPIC_CONFIG, EntityKind.OTHER_CONFIG}
    result = []
    for name in names:
        values = {place: _shown(attributes, name) for place, attributes in objects.items()}
        if len(set(values.values())) == 1:
            continue
        marked = any(value and _is_marked(value) for value in values.values())
        if configs and (marked or is_sensitive_config(name)):
            values = {
                place: value if value is None or _is_marked(value) else _HIDDEN for place, value in values.items()
            }
        result.append(AttributeDifference(name=name, values=values))
    return result[:_MAXIMUM_ATTRIBUTES]


def _shown(attributes: Mapping[str, Any], name: str) -> str | None:
    if name not in attributes:
        return None
    text = json.dumps(attributes[name], ensure_ascii=False, sort_keys=True).encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= _MAXIMUM_VALUE_CHARACTERS else text[:_MAXIMUM_VALUE_CHARACTERS] + "…"


def _is_marked(value: str) -> bool:
    return value.startswith(('"secret:', '"password of length', '"cipher text'))
