"""Converts Kafka settings from and to environment variables and properties files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import javaproperties

NOT_SETTINGS = frozenset(
    {
        "KAFKA_OPTS",
        "KAFKA_HEAP_OPTS",
        "KAFKA_JMX_OPTS",
        "KAFKA_VERSION",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_GC_LOG_OPTS",
    }
)
"""Variables with the prefix that images do not turn into settings (``kafka.docker.KafkaDockerWrapper``)."""


def variable_of(setting: str, prefix: str) -> str:
    """Return the environment variable of a setting: ``.`` → ``_``, ``_`` → ``__``, ``-`` → ``___``."""
    return prefix + setting.replace("_", "__").replace("-", "___").replace(".", "_").upper()


def setting_of(variable: str, prefix: str) -> str | None:
    """Return the setting of an environment variable, None if it is none."""
    if not variable.startswith(prefix) or variable in NOT_SETTINGS or variable.startswith("KAFKA_LOG4J"):
        return None
    name = variable[len(prefix) :].lower()
    return name.replace("___", "\0").replace("__", "\1").replace("_", ".").replace("\0", "-").replace("\1", "_")


def parse_properties(text: str) -> dict[str, str]:
    """Return the settings of a properties file as ``java.util.Properties`` reads it."""
    return {str(k): str(v) for k, v in javaproperties.loads(text).items()}


def render_properties(settings: Mapping[str, str]) -> str:
    """Return a properties file; characters that end a line or a key are escaped."""
    return "".join(javaproperties.join_key_value(k, v) + "\n" for k, v in sorted(settings.items()))


def without_settings(text: str, settings: Iterable[str]) -> str:
    """Return a properties file without some settings; comments and every other line stay as they are."""
    file = javaproperties.PropertiesFile.loads(text)
    for key in set(settings) & set(file):
        del file[key]
    return str(file.dumps())


def with_listener(protocol_map: str | None, listener: str, protocol: str) -> str:
    """Return ``listener.security.protocol.map`` with one more listener; Kafka's own default map where none is set."""
    entries = [e.strip() for e in (protocol_map or "").split(",") if e.strip()]
    if not entries:
        entries = ["PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT", "SASL_SSL:SASL_SSL"]
    kept = [e for e in entries if e.partition(":")[0].upper() != listener]
    return ",".join([f"{listener}:{protocol}", *kept])


def short_hash(parts: Iterable[Any]) -> str:
    """Return a short, stable hash of JSON-like values."""
    return hashlib.sha256(json.dumps(list(parts), sort_keys=True, default=str).encode()).hexdigest()[:10]
