"""What the controllers' configuration holds for TLS and SASL, read from the Secret of their listener."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kraftbridge.builders.controllers import CREDENTIALS, LISTENER_SECRET
from kraftbridge.constants import CONTROLLER_LISTENER
from kraftbridge.exceptions import PropertiesError
from kraftbridge.models.dry_start import ListenerOfControllers
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.outside.bounds import pem_blocks
from kraftbridge.outside.properties import parse_properties
from kraftbridge.pods.credentials import (
    KEYSTORE,
    LISTENER_FOLDER,
    PROPERTIES,
    TRUSTSTORE,
    CredentialsError,
    keystore,
    listener_files,
    truststore,
)

_USER: Final = re.compile(r'\buser_([^\s=]{1,256}+)\s*+=\s*+(?:"((?:[^"\\]|\\.)*+)"|([^\s;]++))')
"""A user of SASL/PLAIN. Without a bound and without backtracking, a login of 1 MiB took hours."""
_FILES: Final = f"{CREDENTIALS}/{LISTENER_FOLDER}"


class CannotBeTriedError(Exception):
    """The operator cannot read what a controller would use; the message says why."""


def settings_of(spec: MigrationSpec, secret: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the controllers that come from ``spec.controllers.config`` and the Secret.

    They are joined as `builders.controllers.START` does.

    Raises
    ------
    CannotBeTriedError
        The Secret's certificates or settings cannot be used.
    """
    try:
        files = listener_files(secret, spec.controllers.listener.security_protocol, _FILES)
        of_files = parse_properties(files.get(PROPERTIES, ""))
        of_secret = parse_properties(secret.get(PROPERTIES, ""))
    except (CredentialsError, PropertiesError) as error:
        raise CannotBeTriedError(f"the Secret of spec.controllers.listener.secretName: {error}") from error
    return spec.controllers.config | of_files | of_secret


def of_listener(settings: Mapping[str, str], listener: str) -> dict[str, str]:
    """Return a listener's settings; its prefix overrides (``AbstractConfig.valuesWithPrefixOverride``)."""
    prefix = f"listener.name.{listener.lower()}."
    own = {name.removeprefix(prefix): value for name, value in settings.items() if name.startswith(prefix)}
    return {**settings, **own}


def trusted(own: Mapping[str, str], secret: Mapping[str, str]) -> str:
    """Return the certificates that a listener's settings trust, as PEM; empty where they name none.

    Raises
    ------
    CannotBeTriedError
        They are in a file that is not in the Secret, or not in PEM.
    """
    return own.get("ssl.truststore.certificates") or _file(own, "truststore", secret)


def key_and_chain(own: Mapping[str, str], secret: Mapping[str, str]) -> tuple[str, str]:
    """Return the key and the certificates that a listener's settings present, as PEM; empty where they name none.

    Raises
    ------
    CannotBeTriedError
        They are in a file that is not in the Secret, or not in PEM.
    """
    if "ssl.keystore.key" in own:
        return own["ssl.keystore.key"], own.get("ssl.keystore.certificate.chain", "")
    key = ""
    chain = ""
    for kind, content in pem_blocks(_file(own, "keystore", secret)):
        block = f"-----BEGIN {kind}-----{content}-----END {kind}-----\n"
        if kind.endswith("PRIVATE KEY"):
            key += block
        elif kind == "CERTIFICATE":
            chain += block
    return key, chain


def _file(own: Mapping[str, str], store: str, secret: Mapping[str, str]) -> str:
    location = own.get(f"ssl.{store}.location")
    if location is None:
        return ""
    kind = own.get(f"ssl.{store}.type", "JKS")
    if kind.upper() != "PEM":
        raise CannotBeTriedError(f"{location} has type {kind}, and the operator reads PEM only")
    folder, _, key = location.rpartition("/")
    if folder == LISTENER_SECRET and key in secret:
        return secret[key]
    written = {KEYSTORE: keystore, TRUSTSTORE: truststore}
    if folder == _FILES and key in written:
        try:
            return written[key](secret)
        except CredentialsError as error:
            raise CannotBeTriedError(f"{location} would not be written: {error}") from error
    raise CannotBeTriedError(f"{location} is no file of the Secret of spec.controllers.listener.secretName")


def listener_of_controllers(spec: MigrationSpec, secret: Mapping[str, str]) -> ListenerOfControllers | None:
    """Return what the controllers' listener shows to brokers and asks of them; None if it is a plain one.

    Raises
    ------
    CannotBeTriedError
        The operator cannot know it.
    """
    protocol = spec.controllers.listener.security_protocol
    if protocol == "PLAINTEXT":
        return None
    own = of_listener(settings_of(spec, secret), CONTROLLER_LISTENER)
    chain = ""
    if protocol.endswith("SSL"):
        _, chain = key_and_chain(own, secret)
        if not chain:
            raise CannotBeTriedError(
                "the Secret of spec.controllers.listener.secretName has no certificate of the listener"
            )
    authorities = ""
    if protocol == "SSL" and own.get("ssl.client.auth") == "required":
        authorities = trusted(own, secret)
    users = _users(own) if protocol.startswith("SASL_") else {}
    return ListenerOfControllers(protocol, chain, authorities, users)


def _users(own: Mapping[str, str]) -> dict[str, str]:
    """Return the users of SASL/PLAIN with their passwords (``PlainServerCallbackHandler``)."""
    mechanism = own.get("sasl.mechanism.controller.protocol", "GSSAPI")
    if mechanism != "PLAIN" or "plain.sasl.server.callback.handler.class" in own:
        raise CannotBeTriedError(f"only Kafka itself can check a login with {mechanism} there")
    users = {}
    for match in _USER.finditer(own.get("plain.sasl.jaas.config", "")):
        name, quoted, bare = match.groups()
        users[name] = bare if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
    if not users:
        raise CannotBeTriedError("listener.name.controller.plain.sasl.jaas.config names no user")
    return users
