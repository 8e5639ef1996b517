"""Canonical entities: the same form for metadata from ZooKeeper, from the log and from brokers.

An entity has a kind, a key and attributes.
Attributes are compared as canonical JSON, so equal entities have equal text.
The code that reads a secret replaces it with a keyed hash.

Passwords in ZooKeeper are encrypted by brokers (KIP-226).
The format is that of Kafka's `EncryptingPasswordEncoder`: comma-separated ``name:value`` pairs,
with the CBC and GCM parameters of `CbcParamsEncoder` and `GcmParamsEncoder`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes, padding
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.pbkdf2 import PBKDF2HMAC

from kraftbridge.exceptions import DumpFormatError, PasswordDecodingError
from kraftbridge.models.config_values import ConfigType, canonical_value
from kraftbridge.models.entities import EntityKind

_REQUIRED = ("keyFactoryAlgorithm", "cipherAlgorithm", "keyLength", "salt", "iterations", "encryptedPassword")
_HASHES: dict[str, type[hashes.HashAlgorithm]] = {
    "PBKDF2WithHmacSHA1": hashes.SHA1,
    "PBKDF2WithHmacSHA224": hashes.SHA224,
    "PBKDF2WithHmacSHA256": hashes.SHA256,
    "PBKDF2WithHmacSHA384": hashes.SHA384,
    "PBKDF2WithHmacSHA512": hashes.SHA512,
}
_PASSWORD_CONFIGS = (
    "ssl.keystore.password",
    "ssl.key.password",
    "ssl.truststore.password",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.truststore.certificates",
    "sasl.jaas.config",
)
_MAXIMUM_ITERATIONS = 10_000_000
_GCM_TAG_BITS = 128
_WRONG_SECRET = "password.encoder.secret is not the one that this value was encoded with"  # noqa: S105


def looks_encoded(value: str) -> bool:
    """Return whether a config value has the form that Kafka's password encoder writes."""
    return "encryptedPassword:" in value and "cipherAlgorithm:" in value and "passwordLength:" in value


def is_password_config(name: str) -> bool:
    """Return whether the copy decrypts a dynamic config as a password (`DynamicBrokerConfig.isPasswordConfig`)."""
    return name.endswith(_PASSWORD_CONFIGS)


def java_length(text: str) -> int:
    """Return a string's length as Java counts it, in UTF-16 code units."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def read_encoder_secret(path: str | Path | None) -> str | None:
    """Return the brokers' `password.encoder.secret` that a file holds; None without a file.

    Raises
    ------
    PasswordDecodingError
        The file is not UTF-8.
    OSError
        The file cannot be read.

    Notes
    -----
    A file often ends with a line break that is no part of the secret.
    Kafka trims the setting as well, because its type is PASSWORD (``ConfigDef.parseType``).
    """
    if path is None:
        return None
    try:
        return trimmed_secret(Path(path).read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise PasswordDecodingError(f"{path}: password.encoder.secret is not UTF-8") from error


def trimmed_secret(text: str) -> str:
    """Return a `password.encoder.secret` as Kafka reads it."""
    return canonical_value(ConfigType.PASSWORD, text)


@dataclass(frozen=True, slots=True)
class EncodedPassword:
    """The parts of an encoded value."""

    parameters: dict[str, str]
    length: int

    @classmethod
    def parse(cls, value: str) -> EncodedPassword:
        """Return the parts of an encoded value.

        Raises
        ------
        PasswordDecodingError
            The value is incomplete.
        """
        parameters = {}
        for pair in value.split(","):
            name, separator, text = pair.partition(":")
            if not separator:
                raise PasswordDecodingError("an encoded password is not a list of name:value pairs")
            parameters[name.strip()] = text.strip()
        missing = [name for name in _REQUIRED if not parameters.get(name)]
        if missing:
            raise PasswordDecodingError(f"an encoded password has no {', '.join(missing)}")
        try:
            length = int(parameters["passwordLength"])
            text = parameters["encryptedPassword"]
            encrypted = None if is_redacted(text) else base64.b64decode(text, validate=True)
        except (KeyError, ValueError, binascii.Error) as error:
            raise PasswordDecodingError("an encoded password has no valid length or cipher text") from error
        if length < 0 or (encrypted is not None and len(encrypted) < length):
            raise PasswordDecodingError("an encoded password's cipher text is shorter than its password")
        return cls(parameters, length)

    def decoded(self, secret: str) -> str:
        """Return the plain text.

        Raises
        ------
        PasswordDecodingError
            The secret is wrong, or the parameters are not supported.
        """
        parameters = self.parameters
        try:
            algorithm = _HASHES[parameters["keyFactoryAlgorithm"]]
            key_bits = int(parameters["keyLength"])
            iterations = int(parameters["iterations"])
            salt = base64.b64decode(parameters["salt"])
            encrypted = base64.b64decode(parameters["encryptedPassword"])
            vector = base64.b64decode(parameters["initializationVector"])
            name, mode, *_ = parameters["cipherAlgorithm"].split("/")
        except (KeyError, ValueError, binascii.Error) as error:
            raise PasswordDecodingError(f"an encoded password has unsupported parameters: {error!r}") from error
        if name != "AES" or mode not in {"CBC", "GCM"} or not 0 < iterations <= _MAXIMUM_ITERATIONS:
            raise PasswordDecodingError(f"passwords encoded with {parameters['cipherAlgorithm']} are not supported")
        try:
            key = PBKDF2HMAC(algorithm(), key_bits // 8, salt, iterations).derive(trimmed_secret(secret).encode())
            plain = _cbc(key, vector, encrypted) if mode == "CBC" else _gcm(key, vector, encrypted)
            text = plain.decode()
        except (ValueError, InvalidTag) as error:
            raise PasswordDecodingError(_WRONG_SECRET) from error
        if java_length(text) != self.length:  # Kafka checks the same
            raise PasswordDecodingError(_WRONG_SECRET)
        return text


def _cbc(key: bytes, vector: bytes, encrypted: bytes) -> bytes:
    decryptor = Cipher(algorithms.AES(key), modes.CBC(vector)).decryptor()
    unpadder = padding.PKCS7(algorithms.AES.block_size).unpadder()
    padded = decryptor.update(encrypted) + decryptor.finalize()
    return unpadder.update(padded) + unpadder.finalize()


def _gcm(key: bytes, vector: bytes, encrypted: bytes) -> bytes:
    tag_bytes = _GCM_TAG_BITS // 8
    decryptor = Cipher(algorithms.AES(key), modes.GCM(vector, encrypted[-tag_bytes:])).decryptor()
    return decryptor.update(encrypted[:-tag_bytes]) + decryptor.finalize()


SECRET_PREFIX: Final = "secret:"  # noqa: S105 - marks a hash
PASSWORD_LENGTH_PREFIX: Final = "password of length "  # noqa: S105 - marks a length
_KEYED: Final = "hmac-sha256:"
_REDACTED: Final = re.compile(rf"((?:{_KEYED}|sha256:)[0-9a-f]{{64}})(?::(\d{{1,9}}))?")
"""What replaces a secret in a dump: its keyed hash, and its length. Those of former versions lack the key, or both."""
_SHORTEST_KEY: Final = 32
"""Bytes in the file of a key. Who guesses the key can try passwords."""


class Entity(NamedTuple):
    """One piece of metadata. It is a tuple because there can be millions."""

    kind: EntityKind
    key: str
    """Text that names the entity in Kafka's own terms."""
    value: str
    """Canonical JSON object of the attributes."""
    offset: int
    """From the log: offset of the last record that touched it.
    From ZooKeeper: the log offset that ZooKeeper mirrored (`/migration`) when the oldest part of it was read.
    """

    @property
    def identity(self) -> tuple[EntityKind, str]:
        """Kind and key."""
        return self.kind, self.key

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The attributes as JSON values."""
        attributes: Mapping[str, Any] = json.loads(self.value)
        return attributes


def by_identity(entities: Iterable[Entity]) -> dict[tuple[EntityKind, str], Entity]:
    """Return entities by kind and key."""
    return {(entity.kind, entity.key): entity for entity in entities}


def value_of(entity: Entity | None) -> str | None:
    """Return an entity's value; None without an entity."""
    return None if entity is None else entity.value


class Form(StrEnum):
    """The fields that the entities of an image contain."""

    MIRRORED = "mirrored"
    """The fields that ZooKeeper contains too."""
    WHOLE = "whole"
    """Every field, to compare voters with each other."""
    SERVED = "served"
    """What brokers answer to Metadata, DescribeConfigs and DescribeUserScramCredentials."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """The form of secrets in entities: hashes keyed by a salt of this run that appears in no report."""

    salt: bytes
    compare_passwords: bool = False
    """Whether the password encoder's secret is known, so that password configs of both sides can be hashed."""
    dump_key: bytes | None = None
    """Key of the hashes in the dump that is compared; None where it has none, or unkeyed ones."""

    def hashed(self, value: str | bytes) -> str:
        """Return the hash of a secret. A value that was redacted in a dump gives the same hash as its original."""
        text = value if isinstance(value, str) else base64.b64encode(value).decode()
        redaction = _REDACTED.fullmatch(text)
        digest = redaction[1] if redaction else _digest(text, self.dump_key)
        return SECRET_PREFIX + hmac.new(self.salt, digest.encode(), hashlib.sha256).hexdigest()[:32]

    def password(self, plain: str) -> str:
        """Return the form of a password config whose plain text is known, or was redacted in a dump.

        Raises
        ------
        PasswordDecodingError
            A former version has redacted the value, and only its length is compared.
        """
        if self.compare_passwords:
            return self.hashed(plain)
        redaction = _REDACTED.fullmatch(plain)
        if redaction is None:
            return password_length(java_length(plain))
        if redaction[2] is None:
            raise PasswordDecodingError("the value was redacted without its length: make the dump again")
        return password_length(int(redaction[2]))


def password_length(length: int) -> str:
    """Return the form of a password config of which only the length is known."""
    return f"{PASSWORD_LENGTH_PREFIX}{length}"


def redacted(text: str, key: bytes) -> str:
    """Return what replaces a secret in a dump: its keyed hash, and its length, by which passwords are compared.

    Most passwords are short or well known: whoever has their plain hash finds them.
    """
    return f"{_digest(text, key)}:{java_length(text)}"


def is_redacted(text: str) -> bool:
    """Return whether a text replaces a secret in a dump."""
    return _REDACTED.fullmatch(text) is not None


def is_keyed(data: bytes) -> bool:
    """Return whether bytes contain what `redacted` returns."""
    return _KEYED.encode() in data


def read_key(path: str | Path) -> bytes:
    """Return the key of a dump's hashes that a file holds.

    Raises
    ------
    DumpFormatError
        The file cannot be read, or its content is short.
    """
    try:
        key = Path(path).read_bytes().strip()
    except OSError as error:
        raise DumpFormatError(f"the key {path} cannot be read: {error}") from error
    if len(key) < _SHORTEST_KEY:
        raise DumpFormatError(
            f"the key {path} has {len(key)} bytes, and {_SHORTEST_KEY} are the least: name a file that does not exist, "
            "and `dump` makes the key"
        )
    return key


def _digest(text: str, key: bytes | None) -> str:
    data = text.encode("utf-8", "surrogatepass")
    if key is None:
        return f"sha256:{hashlib.sha256(data).hexdigest()}"
    return f"{_KEYED}{hmac.new(key, data, hashlib.sha256).hexdigest()}"


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


def served_partition_value(
    replicas: Sequence[int], leader: int | None, leader_epoch: int | None, isr: Sequence[int] | None
) -> str:
    """Return the attributes of a partition that brokers serve; None for those of a state that is missing."""
    held = None if isr is None else sorted(isr)
    return canonical_json({"replicas": list(replicas), "leader": leader, "leaderEpoch": leader_epoch, "isr": held})


def as_served(entity: Entity) -> Entity | None:
    """Return an entity of the ZooKeeper tree with the attributes that brokers serve; None for one that they do not.

    Brokers serve no partition that only has a state: its topic is being deleted, or was.
    """
    match entity.kind:
        case EntityKind.TOPIC | EntityKind.TOPIC_CONFIG | EntityKind.ACL:
            return entity
        case EntityKind.PARTITION:
            held = entity.attributes
            if held["replicas"] is None:
                return None
            served = served_partition_value(held["replicas"], held["leader"], held["leaderEpoch"], held["isr"])
            return entity._replace(value=served)
        case _:
            return None


def number(value: float) -> float | int:
    """Return the canonical form of a number. Quotas are floats in the log and text in ZooKeeper."""
    as_float = float(value)
    return int(as_float) if as_float.is_integer() and abs(as_float) < 2**53 else as_float


@lru_cache(maxsize=100_000)
def uuid_text(value: bytes) -> str:
    """Return a UUID as Kafka's `Uuid.toString` writes it: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()
