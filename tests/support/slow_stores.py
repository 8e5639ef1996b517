"""Key stores and keys that anybody can write into a Secret, and that OpenSSL would open for hours."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from tests.support.cert_manager import authority, secret

MOST_ITERATIONS = 2**31 - 1
PASSWORD = "x"
_CONSTRUCTED = 0x20
_INTEGER = 2
_LONG = 0x80
_MANY = bytes([_INTEGER, 4]) + MOST_ITERATIONS.to_bytes(4, "big")


def store() -> bytes:
    """Return a PKCS#12 store whose password is to be hashed as often as possible."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = PrivateFormat.PKCS12.encryption_builder().kdf_rounds(1).hmac_hash(hashes.SHA256())
    made = pkcs12.serialize_key_and_certificates(b"a", key, None, None, builder.build(PASSWORD.encode()))
    ((outer, content),) = _elements(made)
    version, safe, (tag, authentication) = _elements(content)
    digest, salt = _elements(authentication)[:2]
    slow = _element(*digest) + _element(*salt) + _MANY
    return _element(outer, _element(*version) + _element(*safe) + _element(tag, slow))


def key_and_chain() -> tuple[str, str]:
    """Return an encrypted key whose password is to be hashed as often as possible, and its certificate."""
    data = secret(authority())
    key = load_pem_private_key(data["tls.key"].encode(), None)
    locked = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, BestAvailableEncryption(PASSWORD.encode()))
    return _pem("ENCRYPTED PRIVATE KEY", _with_iterations(locked, 2048)), data["tls.crt"]


def rsa_key(p: int, q: int) -> str:
    """Return an RSA key of these factors as PEM (PKCS#1)."""
    d = pow(65537, -1, (p - 1) * (q - 1))
    numbers = (0, p * q, 65537, d, p, q, d % (p - 1), d % (q - 1), pow(q, -1, p))
    integers = (n.to_bytes(n.bit_length() // 8 + 1, "big") for n in numbers)
    return _pem("RSA PRIVATE KEY", _element(0x30, b"".join(_element(_INTEGER, content) for content in integers)))


@contextmanager
def others_go_on(within_seconds: float = 2.0) -> Iterator[None]:
    """Check that another thread of this process never waits for longer."""
    beats = [time.monotonic()]
    over = threading.Event()

    def beat() -> None:
        while not over.wait(0.02):
            beats.append(time.monotonic())

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        beats.append(time.monotonic())
        over.set()
        thread.join()
    waits = [later - earlier for earlier, later in pairwise(beats)]
    assert max(waits) < within_seconds


def _with_iterations(der: bytes, given: int) -> bytes:
    """Return a DER encoding with another number in place of each INTEGER of a value."""
    out = b""
    for tag, content in _elements(der):
        if tag & _CONSTRUCTED:
            out += _element(tag, _with_iterations(content, given))
        elif tag == _INTEGER and int.from_bytes(content, "big") == given:
            out += _MANY
        else:
            out += _element(tag, content)
    return out


def _elements(der: bytes) -> list[tuple[int, bytes]]:
    found = []
    while der:
        length, start = der[1], 2
        if length & _LONG:
            start += length & ~_LONG
            length = int.from_bytes(der[2:start], "big")
        found.append((der[0], der[start : start + length]))
        der = der[start + length :]
    return found


def _element(tag: int, content: bytes) -> bytes:
    length = len(content)
    if length < _LONG:
        return bytes([tag, length]) + content
    size = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes([tag, _LONG | len(size)]) + size + content


def _pem(kind: str, der: bytes) -> str:
    return f"-----BEGIN {kind}-----\n{base64.encodebytes(der).decode()}-----END {kind}-----\n"
