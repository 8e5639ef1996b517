"""Which values of a migration's objects are secrets, so that a support archive and a diff show none of them."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from kraftbridge.builders.bitnami import PREFIX as BITNAMI
from kraftbridge.builders.broker_overlays import setting_of
from kraftbridge.models.objects import section
from kraftbridge.models.redaction import ASSIGNMENT, PRIVATE_KEY, Redactor
from kraftbridge.models.secrecy import SENSITIVE_NAME, is_secret_setting
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.outside.json_text import parsed_json, with_texts

_SENSITIVE_KEY: Final = re.compile(SENSITIVE_NAME, re.IGNORECASE)
_PLAIN_KEYS: Final = frozenset({"username", "scheme", "ca.crt", "tls.crt"})
_QUOTED: Final = re.compile(
    r"""(?:username|password)\\{0,7}["']?\s*[=:]\s*\\{0,7}["']([^"'\n\\]+)\\{0,7}["']""", re.IGNORECASE
)
_PROPERTY: Final = re.compile(
    r"^(?P<begin>[ \t]*(?P<name>[^\s#!=:][^\s=:]{0,300})[ \t]{0,20}[=:][ \t]{0,20})(?:[^\n\\]|\\\n|\\[^\n])*+",
    re.MULTILINE,
)
_OF_A_BROKER: Final = frozenset({"broker.id", "listeners", "log.dirs", "node.id", "process.roles", "zookeeper.connect"})
"""Settings that show a file to be a broker's."""


def redacted_json(redactor: Redactor, text: str) -> str:
    """Return a JSON document whose texts have no secrets. It stays JSON."""
    return json.dumps(with_texts(parsed_json(text), redactor.redact), indent=1)


def without_unknown_settings(value: Any, redactor: Redactor) -> Any:
    """Return an object of Kubernetes without the values of settings that Kafka does not define.

    Kafka hides them, because nobody knows whether they are secret (``KafkaConfig.maybeSensitive``).
    They stand in a broker's properties file, and in variables that its image turns into settings.
    """
    match value:
        case {"name": str(name), "value": str()} if _is_unknown(name):
            return {**value, "value": redactor.removed}
        case dict():
            return {name: without_unknown_settings(held, redactor) for name, held in value.items()}
        case list():
            return [without_unknown_settings(held, redactor) for held in value]
        case str():
            return _without_unknown(value, redactor)
        case _:
            return value


def _is_unknown(variable: str) -> bool:
    prefix = BITNAMI if variable.startswith(BITNAMI) else "KAFKA_"
    setting = setting_of(variable, prefix)
    return setting is not None and is_secret_setting(setting)


def _without_unknown(text: str, redactor: Redactor) -> str:
    names = {match["name"] for match in _PROPERTY.finditer(text)} if "\n" in text else set()
    if not names & _OF_A_BROKER:
        return text

    def shown(match: re.Match[str]) -> str:
        return f"{match['begin']}{redactor.removed}" if is_secret_setting(match["name"]) else match[0]

    return _PROPERTY.sub(shown, text)


def values_of(secret: Mapping[str, Any]) -> set[str]:
    """Return the values of a Secret that must not leave the cluster.

    A value of one line counts completely, in plain text and as base64.
    In a file, the lines of private keys, values of sensitive settings, and quoted passwords in JAAS lines count.
    A word like ``SSL`` in a file is no secret.
    """
    values: set[str] = set()
    for key, encoded in section(secret, "data").items():
        values.add(str(encoded))
        try:
            text = base64.b64decode(encoded, validate=True).decode()
        except (binascii.Error, ValueError):
            continue
        if key in _PLAIN_KEYS:
            values.discard(str(encoded))
            continue
        if "\n" not in text.strip() and not text.lstrip().startswith("{"):
            values.add(text.strip())
        values |= secrets_in(text)
    return values


def secrets_in(text: str) -> set[str]:
    """Return the secrets in the text of a file, a JSON document, or a container's environment."""
    lines = "\n".join(PRIVATE_KEY.findall(text)).splitlines()
    secrets = {line for line in lines if not line.startswith("-----")}
    secrets |= set(_QUOTED.findall(text))
    secrets |= {match["value"].strip().strip("\"'") for match in ASSIGNMENT.finditer(text)}
    with suppress(ValueError):
        secrets |= _secrets_in_document(parsed_json(text))
    return secrets


def _secrets_in_document(document: Any) -> set[str]:
    match document:
        case {"name": str(name), "value": str(value)} if _SENSITIVE_KEY.search(name):
            return {value, *_QUOTED.findall(value)}
        case dict():
            return set().union(*map(_secrets_in_document, document.values()))
        case list():
            return set().union(*map(_secrets_in_document, document))
        case str():
            return set(_QUOTED.findall(document))
        case _:
            return set()


def secrets_of_pod(template: Mapping[str, Any]) -> set[str]:
    """Return the names of the Secrets in a pod template."""
    names: set[str] = set()

    def visit(node: Any) -> None:
        match node:
            case dict():
                for key, value in node.items():
                    names.update(_named(key, value))
                    visit(value)
            case list():
                for value in node:
                    visit(value)
            case _:
                pass

    visit(template)
    return names


def _named(key: str, value: Any) -> Iterator[str]:
    """Yield the name of the Secret that a field of a pod template refers to."""
    name = None
    if key == "secretName":
        name = value
    elif key in {"secretKeyRef", "secretRef", "secret"} and isinstance(value, dict):
        name = value.get("name")
    if isinstance(name, str):
        yield name


def secrets_of_spec(spec: MigrationSpec) -> set[str]:
    """Return the names of the Secrets in a migration's spec."""
    named = {spec.zookeeper.secret_name, spec.brokers.client_config_secret, spec.controllers.listener.secret_name}
    if spec.controllers.password_encoder_secret is not None:
        named.add(spec.controllers.password_encoder_secret.name)
    return {name for name in named if name}
