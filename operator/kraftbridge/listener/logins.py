"""The logins of the controllers' listener that the operator issues.

They are SASL/PLAIN with one user for the controllers and one for the brokers.

The authority's Secret keeps the passwords, and the other Secrets are made of it.
So a Secret that is issued anew has the login of before, and no node of
a running quorum needs another one.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kraftbridge.exceptions import PropertiesError
from kraftbridge.listener.authority import Files, principals
from kraftbridge.outside.properties import parse_properties
from kraftbridge.pods.credentials import LOGIN, PROPERTIES

CONTROLLERS_PASSWORD: Final = "controllers.password"  # noqa: S105 - a key of a Secret
BROKERS_PASSWORD: Final = "brokers.password"  # noqa: S105 - a key of a Secret
_MADE: Final = re.compile(r"[A-Za-z0-9_-]{32,128}")
"""What ``secrets.token_urlsafe`` returns. It has no character that JAAS or a properties file would escape."""
_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@dataclass(frozen=True, slots=True)
class Logins:
    """Both users with their passwords."""

    uid_part: str
    """First part of the migration's UID, with which the users are named (`authority.principals`)."""
    controllers: str = field(repr=False)
    """Password of the controllers. Operator and verifier log in with it, too."""
    brokers: str = field(repr=False)
    """Password of the brokers."""

    def for_controllers(self) -> Files:
        """Return the controllers' settings, which let in both users, and the login of the controllers' clients."""
        users = principals(self.uid_part)
        entries = f'user_{users["controllers"]}="{self.controllers}" user_{users["brokers"]}="{self.brokers}"'
        client = _login(users["controllers"], self.controllers)
        settings = (
            "sasl.mechanism.controller.protocol=PLAIN\n"
            "listener.name.controller.sasl.enabled.mechanisms=PLAIN\n"
            f"listener.name.controller.plain.sasl.jaas.config={client} {entries};\n"
        )
        return {PROPERTIES: settings.encode(), LOGIN: f"{client};".encode()}

    def for_brokers(self) -> Files:
        """Return the login of the brokers."""
        return {LOGIN: f"{_login(principals(self.uid_part)['brokers'], self.brokers)};".encode()}


def new_passwords() -> Files:
    """Return new passwords as the authority's Secret keeps them."""
    return {name: secrets.token_urlsafe(32).encode() for name in (CONTROLLERS_PASSWORD, BROKERS_PASSWORD)}


def has_passwords(authority: Mapping[str, str]) -> bool:
    """Return whether the authority's Secret holds a password, of whatever form."""
    return CONTROLLERS_PASSWORD in authority or BROKERS_PASSWORD in authority


def passwords_problem(authority: Mapping[str, str]) -> str:
    """Return why logins cannot be made of the authority's Secret, ``""`` if they can.

    No message contains a password.
    """
    for name in (CONTROLLERS_PASSWORD, BROKERS_PASSWORD):
        if not authority.get(name):
            return f"{name} is missing"
        if not _MADE.fullmatch(authority[name]):
            return f"{name} is not a password that the operator made"
    return ""


def of_authority(authority: Mapping[str, str], uid_part: str) -> Logins | None:
    """Return the logins that the authority's Secret stands for; None if it holds no passwords that can be used."""
    if passwords_problem(authority):
        return None
    return Logins(uid_part, authority[CONTROLLERS_PASSWORD], authority[BROKERS_PASSWORD])


def of_controllers(controllers: Mapping[str, str], uid_part: str) -> Logins | None:
    """Return the logins that the controllers' Secret lets in; None if one is missing.

    The brokers' logins are compared with them where the authority is not known.
    """
    users = principals(uid_part)
    settings = controllers.get(PROPERTIES, "")
    passwords = {}
    for who, user in users.items():
        match = re.search(rf'\buser_{re.escape(user)}="([^"]*)"', settings)
        if match is None:
            return None
        passwords[who] = match[1]
    return Logins(uid_part, **passwords)


def problem(data: Mapping[str, str], expected: Files) -> str:
    """Return which key of a Secret does not hold the login that it should, ``""`` if each does.

    No message contains a password.
    """
    for name, content in expected.items():
        if name not in data:
            return f"{name} is missing"
        read = _settings if name == PROPERTIES else str
        if read(data[name]) != read(content.decode()):
            return f"{name} does not hold the login that the operator issued"
    return ""


def _login(user: str, password: str) -> str:
    return f'{_MODULE} username="{user}" password="{password}"'


def _settings(text: str) -> dict[str, str] | None:
    """Return the settings of a properties file, whatever its comments; None if Kafka could not read it."""
    try:
        return parse_properties(text)
    except PropertiesError:
        return None
