"""Opens key stores and encrypted keys in a process of their own, which ends with its time.

Whoever writes a store says in it how often its password is hashed, up to 2,147,483,647 times, and how large its key is.
OpenSSL obeys, for hours, and no other thread of a Python process runs meanwhile.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

OPENED_WITHIN_SECONDS: Final = 20.0
"""keytool and OpenSSL hash 2,048 to 10,000 times, which takes milliseconds. The process starts within a second."""


_REMEMBERED: Final = 512
_REMEMBERED_BYTES: Final = 32 << 10
"""A store with one key and its authorities has 1 to 5 KiB."""


class StoreError(ValueError):
    """A store cannot be opened; the message says why."""


@dataclass(frozen=True, slots=True)
class Opened:
    """What a store holds, as PEM."""

    key: str = ""
    """The private key, in PKCS#8 without a password; empty without one."""
    certificate: str = ""
    """The certificate of this key."""
    others: tuple[str, ...] = ()


def opened(content: bytes, password: str) -> Opened:
    """Return what a PKCS#12 store holds.

    Raises
    ------
    StoreError
        It is none, the password is another one, or it is not opened in time.
    """
    answer = _asked("store", content, password)
    return Opened(answer["key"], answer["certificate"], tuple(answer["others"]))


def plain_key(pem: str, password: str) -> str:
    """Return an encrypted private key without its password, in PKCS#8.

    Raises
    ------
    StoreError
        It is none, the password is another one, or it is not opened in time.
    """
    return str(_asked("key", pem.encode(), password)["key"])


def _asked(kind: str, content: bytes, password: str) -> dict[str, Any]:
    ask = _remembered if len(content) <= _REMEMBERED_BYTES else _answered
    answer = ask(kind, content, password)
    if "error" in answer:
        raise StoreError(answer["error"])
    return answer


def _answered(kind: str, content: bytes, password: str) -> dict[str, Any]:
    question = json.dumps({"kind": kind, "content": base64.b64encode(content).decode(), "password": password})
    try:
        process = subprocess.run(
            [sys.executable, "-m", "kraftbridge.outside.stores"],
            input=question.encode(),
            capture_output=True,
            timeout=OPENED_WITHIN_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise StoreError(
            f"it is not opened within {OPENED_WITHIN_SECONDS:.0f} s. "
            "Write it anew with fewer iterations, as keytool and OpenSSL do by default"
        ) from None
    if process.returncode != 0:
        raise StoreError(f"the process that opens it ended with {process.returncode}")
    answer: dict[str, Any] = json.loads(process.stdout)
    return answer


_remembered = lru_cache(_REMEMBERED)(_answered)
"""The same store is looked at in every step. One that takes too long is tried again."""


def _answer(kind: str, content: bytes, password: str) -> Opened:
    secret = password.encode() or None
    if kind == "key":
        return Opened(key=_pem_of_key(load_pem_private_key(content, secret, unsafe_skip_rsa_key_validation=True)))
    container = pkcs12.load_pkcs12(content, secret)
    return Opened(
        "" if container.key is None else _pem_of_key(container.key),
        "" if container.cert is None else _pem(container.cert.certificate),
        tuple(_pem(entry.certificate) for entry in container.additional_certs),
    )


def _pem_of_key(key: Any) -> str:
    pem: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return pem.decode()


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()


def main() -> None:
    """Answer one question from standard input."""
    question = json.load(sys.stdin)
    try:
        answer = asdict(_answer(question["kind"], base64.b64decode(question["content"]), question["password"]))
    except (ValueError, TypeError) as error:
        answer = {"error": str(error)}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
