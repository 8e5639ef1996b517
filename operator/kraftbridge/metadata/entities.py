"""Canonical entities: the same form for metadata from ZooKeeper, from the log and from brokers.

An entity has a kind, a key and attributes. Attributes are compared as canonical JSON, so equal entities have equal text. The code that
reads a secret replaces it with a keyed hash.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, NamedTuple

from kraftbridge.metadata.zookeeper.passwords import java_length
from kraftbridge.models.entities import EntityKind

SECRET_PREFIX: Final = "secret:"  # noqa: S105 - marks a hash
PASSWORD_LENGTH_PREFIX: Final = "password of length "  # noqa: S105 - marks a length
REDACTED_PREFIX: Final = "sha256:"

_SENSITIVE_CONFIG = re.compile(
    r"password|secret|jaas|credential|token|private|ssl\.keystore\.key$|certificate\.chain$|truststore\.certificates$",
    re.IGNORECASE,
)
_NOT_SENSITIVE_CONFIG = re.compile(
    r"^(delegation\.token\.(expiry|max\.lifetime)|password\.encoder\.(cipher|key|iterations|keyfactory))", re.IGNORECASE
)


class Entity(NamedTuple):
    """One piece of metadata. It is a tuple because there can be millions.

    Attributes
    ----------
    kind, key
        Identity; `key` is text that names the entity in Kafka's own terms.
    value
        Canonical JSON object of the attributes.
    offset
        From the log: offset of the last record that touched it. From ZooKeeper: the log offset that ZooKeeper
        mirrored (`/migration`) when the oldest part of it was read.
    """

    kind: EntityKind
    key: str
    value: str
    offset: int

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The attributes as JSON values."""
        attributes: Mapping[str, Any] = json.loads(self.value)
        return attributes


class Form(StrEnum):
    """The fields that the entities of an image contain."""

    MIRRORED = "mirrored"
    """The fields that ZooKeeper contains too."""
    WHOLE = "whole"
    """Every field, to compare voters with each other."""
    SERVED = "served"
    """What brokers answer to Metadata and DescribeConfigs."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """The form of secrets in entities: hashes keyed by a salt of this run that appears in no report."""

    salt: bytes
    compare_passwords: bool = False
    """Whether the password encoder's secret is known, so that password configs of both sides can be hashed."""

    def hashed(self, value: str | bytes) -> str:
        """Return the hash of a secret. A value that was redacted in a dump gives the same hash as its original."""
        text = value if isinstance(value, str) else base64.b64encode(value).decode()
        digest = text if text.startswith(REDACTED_PREFIX) else redacted(text)
        return SECRET_PREFIX + hmac.new(self.salt, digest.encode(), hashlib.sha256).hexdigest()[:32]

    def password(self, plain: str) -> str:
        """Return the form of a password config whose plain text is known."""
        return self.hashed(plain) if self.compare_passwords else password_length(java_length(plain))


def password_length(length: int) -> str:
    """Return the form of a password config of which only the length is known."""
    return f"{PASSWORD_LENGTH_PREFIX}{length}"


def redacted(text: str) -> str:
    """Return the unkeyed hash that replaces a secret in a dump."""
    return REDACTED_PREFIX + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def is_sensitive_config(name: str) -> bool:
    """Return whether a config's value is secret, judged by its name."""
    return bool(_SENSITIVE_CONFIG.search(name)) and not _NOT_SENSITIVE_CONFIG.search(name)


def canonical_json(attributes: Mapping[str, Any]) -> str:
    """Return canonical JSON: equal attributes give equal text."""
    return json.dumps(attributes, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def partition_value(
    replicas: Sequence[int],
    adding: Iterable[int],
    removing: Iterable[int],
    leader: int,
    leader_epoch: int,
    isr: Iterable[int],
    leader_recovery_state: int,
) -> str:
    """Return the canonical value of a partition. The text is assembled directly because there can be millions.

    The order of `replicas` is significant (the first replica is preferred). The order of the sets is not.
    """
    return (
        f'{{"addingReplicas":{_numbers(sorted(adding))},"isr":{_numbers(sorted(isr))},"leader":{leader},'
        f'"leaderEpoch":{leader_epoch},"leaderRecoveryState":{leader_recovery_state},'
        f'"removingReplicas":{_numbers(sorted(removing))},"replicas":{_numbers(replicas)}}}'
    )


def _numbers(values: Sequence[int]) -> str:
    return str(list(values)).replace(" ", "") if values else "[]"


def served_partition_value(replicas: Sequence[int], leader: int, leader_epoch: int, isr: Sequence[int]) -> str:
    """Return the attributes of a partition that brokers serve."""
    return canonical_json(
        {"replicas": list(replicas), "leader": leader, "leaderEpoch": leader_epoch, "isr": sorted(isr)}
    )


def number(value: float) -> float | int:
    """Return the canonical form of a number. Quotas are floats in the log and text in ZooKeeper."""
    as_float = float(value)
    return int(as_float) if as_float.is_integer() and abs(as_float) < 2**53 else as_float


@lru_cache(maxsize=100_000)
def uuid_text(value: bytes) -> str:
    """Return a UUID as Kafka's `Uuid.toString` writes it: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()
