"""Removes secrets from text, by their known values, and by the form of settings and lines."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from kraftbridge.models.objects import section
from kraftbridge.models.secrecy import SENSITIVE_NAME
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.outside.json_text import parsed_json

REMOVED: Final = "***REMOVED***"
_SHORTEST: Final = 4
"""Minimum length of a value. A shorter value would match by chance."""
_SENSITIVE: Final = f"(?:{SENSITIVE_NAME})"
_SENSITIVE_KEY: Final = re.compile(_SENSITIVE, re.IGNORECASE)
_PLAIN_KEYS: Final = frozenset({"username", "scheme", "ca.crt", "tls.crt"})
_ASSIGNMENT: Final = re.compile(
    rf"""(?P<key>[\w.\-]*{_SENSITIVE}[\w.\-]*)(?P<is>["']?[ \t]*[=:][ \t]*)"""
    r"""(?P<value>"[^"\n]*"|'[^'\n]*'|[^\s,;}][^\n]*)""",
    re.IGNORECASE,
)
_REFERENCE_KEYS: Final = re.compile(
    r"(?:secretName|secretKeyRef|SecretRef|Secret)$|^(?:secret|zookeeperSecret)$", re.IGNORECASE
)
_ENV_VALUE: Final = re.compile(
    rf"(- name: [\w.\-]*{_SENSITIVE}[\w.\-]*\n\s+value: )[^\n]*(?:\n(?!\s*- )\s{{8,}}[^\n]*)*", re.IGNORECASE
)
_QUOTED: Final = re.compile(r"""(?:username|password)\s*=\s*["']([^"'\n]+)["']""", re.IGNORECASE)
_PEM: Final = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----", re.DOTALL)
_BEARER: Final = re.compile(r"\b(Bearer|Basic)\s+[\w.~+/=\-]{8,}")
_JWT: Final = re.compile(r"\beyJ[\w\-]{8,}\.[\w\-]{8,}\.[\w\-]*")


class Redactor:
    """Removes known values, and everything that looks like a secret, from text.

    Parameters
    ----------
    values
        Secret values as they appear in a log or a configuration.
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values = sorted({v for v in values if len(v) >= _SHORTEST}, key=len, reverse=True)

    def redact(self, text: str) -> str:
        """Return text without secrets."""
        for value in self._values:
            text = text.replace(value, REMOVED)
        text = _PEM.sub(REMOVED, text)
        text = _ENV_VALUE.sub(rf"\g<1>{REMOVED}", text)
        text = _BEARER.sub(rf"\g<1> {REMOVED}", text)
        text = _JWT.sub(REMOVED, text)
        return _ASSIGNMENT.sub(_without_value, text)

    def redact_json(self, text: str) -> str:
        """Return a JSON document whose texts have no secrets. It stays JSON."""
        return json.dumps(self._redacted(parsed_json(text)), indent=1)

    def _redacted(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.redact(value)
        if isinstance(value, Mapping):
            return {self.redact(name): self._redacted(held) for name, held in value.items()}
        if isinstance(value, list):
            return [self._redacted(held) for held in value]
        return value

    def found_in(self, text: str) -> int:
        """Return the number of known values in a text."""
        return sum(value in text for value in self._values)


def _without_value(match: re.Match[str]) -> str:
    key = match["key"]
    value = match["value"]
    # Names of Secrets and empty structures are not secret, and are needed for support.
    # The name of a field of Kubernetes has no dot, that of a setting has.
    if "." not in key and _REFERENCE_KEYS.search(key) and ":" in match["is"]:
        return match[0]
    tail = "," if value.endswith(",") else ""
    return f"{key}{match['is']}{REMOVED}{tail}"


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
    lines = "\n".join(_PEM.findall(text)).splitlines()
    secrets = {line for line in lines if not line.startswith("-----")}
    secrets |= set(_QUOTED.findall(text))
    secrets |= {match["value"].strip().strip("\"'") for match in _ASSIGNMENT.finditer(text)}
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
