"""Password configs in ZooKeeper, which brokers encrypt (KIP-226).

The format is that of Kafka's `EncryptingPasswordEncoder`: comma-separated ``name:value`` pairs, with the CBC and GCM parameters of
`CbcParamsEncoder` and `GcmParamsEncoder`.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes, padding
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.pbkdf2 import PBKDF2HMAC

from kraftbridge.exceptions import PasswordDecodingError

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
_REDACTED_PREFIX = "sha256:"
_MAXIMUM_ITERATIONS = 10_000_000
_GCM_TAG_BITS = 128
_WRONG_SECRET = "password.encoder.secret is not the one that this value was encoded with"  # noqa: S105


def looks_encoded(value: str) -> bool:
    """Return whether a config value has the form that Kafka's password encoder writes."""
    return "encryptedPassword:" in value and "cipherAlgorithm:" in value and "passwordLength:" in value


def is_password_config(name: str) -> bool:
    """Return whether Kafka 3.9 treats a dynamic config as a password, which the copy decrypts (`DynamicBrokerConfig.isPasswordConfig`)."""
    return name.endswith(_PASSWORD_CONFIGS)


def java_length(text: str) -> int:
    """Return a string's length as Java counts it, in UTF-16 code units."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


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
            redacted = parameters["encryptedPassword"].startswith(_REDACTED_PREFIX)
            encrypted = None if redacted else base64.b64decode(parameters["encryptedPassword"], validate=True)
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
            key_bits, iterations = int(parameters["keyLength"]), int(parameters["iterations"])
            salt = base64.b64decode(parameters["salt"])
            encrypted = base64.b64decode(parameters["encryptedPassword"])
            vector = base64.b64decode(parameters["initializationVector"])
            name, mode, *_ = parameters["cipherAlgorithm"].split("/")
        except (KeyError, ValueError, binascii.Error) as error:
            raise PasswordDecodingError(f"an encoded password has unsupported parameters: {error!r}") from error
        if name != "AES" or mode not in {"CBC", "GCM"} or not 0 < iterations <= _MAXIMUM_ITERATIONS:
            raise PasswordDecodingError(f"passwords encoded with {parameters['cipherAlgorithm']} are not supported")
        try:
            key = PBKDF2HMAC(algorithm(), key_bits // 8, salt, iterations).derive(secret.encode())
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
