"""Parses the agent's output in a copy's log (``agent/src``)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from kraftbridge.models.dry_start import GivenSetting, JavaProgram, KafkaStart

RESULT: Final = "kraftbridge-dry-start-result "
NOTE: Final = "kraftbridge-dry-start "
_VERSION: Final = 1
_WORDS: Final = 600
_NOISE: Final = ("Picked up ", "log4j:WARN", "SLF4J", NOTE, RESULT)
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_TELLING: Final = re.compile(
    r"\b(error|exception|fatal|fail|invalid|must|required|not found|cannot|unknown|no such)", re.IGNORECASE
)


def kafka_start(log: str) -> KafkaStart | None:
    """Return the configuration that the copy would start; None if the log has no valid result of the agent."""
    for line in reversed(log.splitlines()):
        _, found, text = line.partition(RESULT)
        if found:
            try:
                return _start(json.loads(text))
            except (ValueError, KeyError, TypeError, AttributeError):
                return None
    return None


def programs(log: str) -> tuple[JavaProgram, ...]:
    """Return the JVMs in the log that the agent skipped or allowed."""
    found = []
    for line in log.splitlines():
        _, is_note, text = line.partition(NOTE)
        if is_note:
            try:
                found.append(_program(json.loads(text)))
            except (ValueError, KeyError, TypeError):
                continue
    return tuple(found)


def agent_loaded(log: str) -> bool:
    """Return whether the log shows a JVM with the agent's variables: HotSpot and OpenJ9 then print ``Picked up`` on standard error."""
    return any(line.lstrip().startswith("Picked up ") for line in log.splitlines())


def last_words(log: str) -> str:
    """Return the last output of the image: lines that look like errors, otherwise the last lines; at most 600 characters."""
    own = [
        line.strip()
        for line in _COLOURS.sub("", log).splitlines()
        if line.strip() and not line.lstrip().startswith(_NOISE)
    ]
    telling = [line for line in own if _TELLING.search(line)]
    text = " | ".join(dict.fromkeys((telling or own)[-4:]))
    return text[-_WORDS:]


def _start(raw: Mapping[str, Any]) -> KafkaStart:
    if raw["version"] != _VERSION:
        raise ValueError(f"version {raw['version']}")
    jaas = raw.get("jaas") or {}
    return KafkaStart(
        valid=bool(raw["valid"]),
        complaint=str(raw.get("complaint", "")),
        settings=_given(raw["settings"]),
        system_properties=_given(raw.get("options") or {}),
        jaas_entries={str(k): str(v) for k, v in (jaas.get("entries") or {}).items()},
        missing_classes=tuple(sorted(name for name, loads in (raw.get("classes") or {}).items() if not loads)),
        programs=tuple(_program(event) for event in raw.get("events") or []),
        kafka=str(raw.get("kafka", "")),
        java=str(raw.get("java", "")),
        host=str(raw.get("host", "")),
    )


def _given(raw: Mapping[str, Mapping[str, Any]]) -> dict[str, GivenSetting]:
    return {name: GivenSetting(value=each.get("value"), hash=str(each.get("hash") or "")) for name, each in raw.items()}


def _program(raw: Mapping[str, Any]) -> JavaProgram:
    if raw["event"] not in ("ran", "skipped"):
        raise ValueError(str(raw["event"]))
    return JavaProgram(str(raw["main"]), str(raw.get("arguments", "")), raw["event"] == "ran")
