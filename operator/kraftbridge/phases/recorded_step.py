"""One step as a document: what `decide` was given and what it answered, so that it can be decided again elsewhere.

The document has no secret: passwords, and settings that Kafka does not define, are keyed hashes.
Equal values have equal hashes within one document only.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import Any, Final

from pydantic import TypeAdapter

from kraftbridge import __version__
from kraftbridge.models.decision import Decision
from kraftbridge.models.observation import Observation, StatefulSetState
from kraftbridge.models.secrecy import SENSITIVE_NAME, is_secret_setting
from kraftbridge.phases.draft import Migration
from kraftbridge.phases.machine import decide

STEP_KEY: Final = "step.json.gz"
"""Key of the ConfigMap with a recorded step (gzip)."""
ASKED_KEY: Final = "asked"
"""Key with the value of the annotation that asked for it."""
_SENSITIVE: Final = re.compile(rf"(?=.*[.]|[A-Z0-9_]+$)(?i:.*(?:{SENSITIVE_NAME}))")
"""Name of a setting or a variable. Our own fields, which name Secrets, have no dot and no capitals alone."""


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """The inputs of a step, the release that decided, and its decision."""

    release: str
    migration: Migration
    observation: Observation
    now: datetime
    decision: dict[str, Any]
    """As JSON values."""


def recorded(migration: Migration, observation: Observation, now: datetime, decision: Decision, key: bytes) -> str:
    """Return a step as JSON.

    Parameters
    ----------
    key
        Secret of this document's hashes. Who has it can try passwords: use it once and forget it.
    """
    shown = replace(observation, stateful_sets=tuple(_without_secrets(s, key) for s in observation.stateful_sets))
    step = RecordedStep(__version__, migration, shown, now, _as_json(decision))
    # An `OffsetTable` is a mapping that is not a dict.
    values = _steps().dump_python(step, mode="json", by_alias=True, fallback=dict)
    return json.dumps(_hashed(values, key), indent=1)


def read_step(document: str) -> RecordedStep:
    """Return the step of a document.

    Raises
    ------
    pydantic.ValidationError
        The document is of a release whose observation differs from this one's.
    """
    return _steps().validate_json(document)


def decided_again(step: RecordedStep) -> dict[str, Any]:
    """Return what this release decides, as JSON values."""
    return _as_json(decide(step.migration, step.observation, step.now))


@cache
def _steps() -> TypeAdapter[RecordedStep]:
    return TypeAdapter(RecordedStep)


@cache
def _decisions() -> TypeAdapter[Decision]:
    return TypeAdapter(Decision)


def _as_json(decision: Decision) -> dict[str, Any]:
    document: dict[str, Any] = _decisions().dump_python(decision, mode="json", by_alias=True)
    # Two actions with the same fields differ by their class.
    for action, dumped in zip(decision.actions, document["actions"], strict=True):
        dumped["action"] = type(action).__name__
    return document


def _without_secrets(state: Any, key: bytes) -> Any:
    if not isinstance(state, StatefulSetState):
        return state
    settings = {name: _hash(value, key) if is_secret_setting(name) else value for name, value in state.settings.items()}
    return replace(state, settings=settings)


def _hashed(value: Any, key: bytes) -> Any:
    """Return JSON values in which each text under a sensitive name is a hash."""
    if isinstance(value, Mapping):
        return {
            name: _hash(held, key) if isinstance(held, str) and _SENSITIVE.match(name) else _hashed(held, key)
            for name, held in value.items()
        }
    if isinstance(value, list):
        return [_hashed(held, key) for held in value]
    return value


def _hash(value: str, key: bytes) -> str:
    return f"hash:{hmac.new(key, value.encode(), hashlib.sha256).hexdigest()[:16]}"
