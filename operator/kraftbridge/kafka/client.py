"""How a client reaches Kafka: names resolved within a time limit, and security from Java ``client.properties``."""

from __future__ import annotations

import functools
import re
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTimeError
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self

from kraftbridge.exceptions import InvalidSpecError
from kraftbridge.outside import bounds
from kraftbridge.outside.bounds import PathRefusedError
from kraftbridge.outside.endpoints import Judge, anywhere
from kraftbridge.outside.stores import opened, plain_key

_lock = threading.Lock()
_under_way: dict[tuple[str, int], Future[tuple[str, ...]]] = {}
"""Running look-ups. Several callers that ask for the same name wait for the same answer."""


def resolve(host: str, port: int, timeout_seconds: float) -> tuple[str, ...]:
    """Return the addresses of a name, in the resolver's order.

    ``getaddrinfo`` has no time limit and can take more than ten seconds if the name server does not answer.
    It therefore runs on a thread of its own, and the caller stops waiting after the time limit.
    A name that hangs occupies one thread, regardless of the number of callers.
    Answers are not cached, because a pod's address changes at each restart.

    Raises
    ------
    OSError
        The name is unknown, or the resolver did not answer within ``timeout_seconds``.
    """
    return _answer(host, _look_up(host, port), timeout_seconds)


def resolve_all(hosts: Iterable[str], timeout_seconds: float) -> dict[str, tuple[str, ...] | OSError]:
    """Return the addresses of several names, or why there are none; all are looked up at once, within one limit."""
    until = time.monotonic() + timeout_seconds
    under_way = {host: _look_up(host, 0) for host in hosts}
    addresses: dict[str, tuple[str, ...] | OSError] = {}
    for host, answer in under_way.items():
        try:
            addresses[host] = _answer(host, answer, max(until - time.monotonic(), 0.0))
        except OSError as error:
            addresses[host] = error
    return addresses


def _answer(host: str, answer: Future[tuple[str, ...]], timeout_seconds: float) -> tuple[str, ...]:
    try:
        return answer.result(timeout_seconds)
    except NotInTimeError:
        raise _silence(host) from None


def _silence(host: str) -> OSError:
    return TimeoutError(f"the name server does not answer for {host!r}")


def _look_up(host: str, port: int) -> Future[tuple[str, ...]]:
    key = (host, port)
    with _lock:
        answer = _under_way.get(key)
        if answer is None:
            answer = _under_way[key] = Future()
            threading.Thread(target=_ask, args=(key, answer), name=f"resolve {host}", daemon=True).start()
        return answer


def _ask(key: tuple[str, int], answer: Future[tuple[str, ...]]) -> None:
    host, port = key
    try:
        entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = tuple(dict.fromkeys(str(entry[4][0]) for entry in entries))
    except (OSError, UnicodeError) as error:
        _end(key)
        answer.set_exception(_failure(host, error))
        return
    _end(key)
    answer.set_result(addresses)


def _failure(host: str, error: OSError | UnicodeError) -> OSError:
    if isinstance(error, UnicodeError):
        return OSError(f"{host!r} is no host name: {error}")
    # The C library gave up on its servers: the same fact as a look-up that is late.
    if isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN:
        return _silence(host)
    return error


def _end(key: tuple[str, int]) -> None:
    with _lock:
        _under_way.pop(key, None)


_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, slots=True)
class Security:
    """Security settings of a client, from Java ``client.properties``."""

    tls: ssl.SSLContext | None = None
    mechanism: str | None = None
    username: str = ""
    password: str = field(default="", repr=False)
    judge: Judge = field(default=anywhere, repr=False, compare=False)
    """Where the client may connect to."""

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, str], file: str = "client.properties", judge: Judge = anywhere
    ) -> Self:
        """Read ``security.protocol``, ``sasl.*`` and ``ssl.*``.

        Keys and certificates are inline PEM; `inlined` brings files into this form.

        Parameters
        ----------
        properties
            Java client settings.
        file
            Name of their file, for the error.
        judge
            Where the client may connect to.

        Raises
        ------
        InvalidSpecError
            A setting is missing or not supported.
        """
        try:
            return replace(cls._read(properties), judge=judge)
        except InvalidSpecError as error:
            raise InvalidSpecError(f"{file}: {error}") from error

    @classmethod
    def _read(cls, properties: Mapping[str, str]) -> Self:
        protocol = properties.get("security.protocol", "PLAINTEXT").upper()
        if protocol not in {"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}:
            raise InvalidSpecError(f"security.protocol {protocol} is unknown")
        tls = _tls_context(properties) if protocol.endswith("SSL") else None
        if not protocol.startswith("SASL_"):
            return cls(tls)
        mechanism = properties.get("sasl.mechanism", "GSSAPI").upper()
        if mechanism not in _MECHANISMS:
            raise InvalidSpecError(f"sasl.mechanism {mechanism} is not supported; use one of {', '.join(_MECHANISMS)}")
        jaas = properties.get("sasl.jaas.config", "")
        username = _jaas_option(jaas, "username")
        password = _jaas_option(jaas, "password")
        if username is None or password is None:
            raise InvalidSpecError("sasl.jaas.config needs username and password")
        return cls(tls, mechanism, username, password)


def _jaas_option(jaas: str, option: str) -> str | None:
    match = re.search(rf"""\b{option}\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))""", jaas)
    if match is None:
        return None
    if match[3] is not None:
        return match[3]
    quoted = match[1] or match[2] or ""
    return re.sub(r"\\(.)", r"\1", quoted)


_NO_CHECK_TIME: Final = 0x200000
"""``X509_V_FLAG_NO_CHECK_TIME`` of OpenSSL (X509_VERIFY_PARAM_set_flags(3)): dates are not compared, all else is.
The ssl module passes it on and has no name for it."""


def context_of_any_date(properties: Mapping[str, str], file: str = "client.properties") -> ssl.SSLContext | None:
    """Return a context that verifies chain and name as `Security` does, and no dates; None without TLS.

    It is for reading a certificate. No request is sent over a connection of it.

    Raises
    ------
    InvalidSpecError
        A setting is missing or not supported.
    """
    if not properties.get("security.protocol", "PLAINTEXT").upper().endswith("SSL"):
        return None
    try:
        context = _tls_context(properties, cached=False)
    except InvalidSpecError as error:
        raise InvalidSpecError(f"{file}: {error}") from error
    context.verify_flags = ssl.VerifyFlags(context.verify_flags | _NO_CHECK_TIME)
    return context


def _tls_context(properties: Mapping[str, str], *, cached: bool = True) -> ssl.SSLContext:
    try:
        trusted = _trusted_certificates(properties)
        chain = _key_and_chain(properties)
        check_hostname = properties.get("ssl.endpoint.identification.algorithm", "https") != ""
        if cached and not trusted and not chain:
            return _system_trust(check_hostname=check_hostname)
        context = ssl.create_default_context(cadata=trusted)
        context.check_hostname = check_hostname
        if chain:
            # the ssl module reads only files; the directory has mode 0700
            with tempfile.TemporaryDirectory(prefix="kraftbridge-kafka-") as directory:
                path = Path(directory) / "client.pem"
                password = properties.get("ssl.key.password", "")
                path.write_text(_with_plain_key(chain, password))
                context.load_cert_chain(path, password=password)
    except (OSError, ValueError) as error:
        raise InvalidSpecError(f"the TLS settings cannot be used: {type(error).__name__}: {error}") from error
    return context


@functools.cache
def _system_trust(*, check_hostname: bool) -> ssl.SSLContext:
    """Return a context that trusts the system's certificates, which are fixed; loading them takes 30 ms."""
    context = ssl.create_default_context()
    context.check_hostname = check_hostname
    return context


def inlined(
    properties: Mapping[str, str], read: Callable[[str], bytes], file: str = "client.properties"
) -> dict[str, str]:
    """Return the settings with the content of PEM and PKCS12 files in place of their names.

    Parameters
    ----------
    read
        Returns the content of a file that a setting names:
        ``bounds.held`` in the operator, ``bounds.file`` in a program of one tenant.
    file
        Name of the file with the settings, for the error.

    Raises
    ------
    InvalidSpecError
        A file cannot be read, or is of another kind.
    """
    settings = dict(properties)
    for store, inline in _STORES.items():
        location = settings.pop(f"ssl.{store}.location", None)
        if not location or any(settings.get(name) for name in inline):
            continue
        kind = settings.pop(f"ssl.{store}.type", "JKS").upper()
        if kind not in {"PEM", "PKCS12"}:
            raise InvalidSpecError(f"{file}: ssl.{store}.type {kind} of {location} cannot be read; use PEM or PKCS12")
        try:
            content = read(location)
            pem = content.decode() if kind == "PEM" else _pem_of(content, store, location, settings)
        except (OSError, ValueError) as error:
            raise InvalidSpecError(
                f"{file}: the TLS settings cannot be used: {type(error).__name__}: {error}"
            ) from error
        settings |= dict.fromkeys(inline, pem) | {f"ssl.{store}.type": "PEM"}
    return settings


_STORES: Final = {
    "truststore": ("ssl.truststore.certificates",),
    "keystore": ("ssl.keystore.key", "ssl.keystore.certificate.chain"),
}
"""The inline settings of each store. One PEM text can be both key and chain."""


def _pem_of(content: bytes, store: str, location: str, properties: Mapping[str, str]) -> str:
    container = opened(content, properties.get(f"ssl.{store}.password", ""))
    others = "".join(container.others)
    if store == "truststore":
        return others
    if not container.key or not container.certificate:
        raise ValueError(f"{location} holds no private key with its certificate")
    return container.key + container.certificate + others


def _trusted_certificates(properties: Mapping[str, str]) -> str | None:
    inline = properties.get("ssl.truststore.certificates")
    if inline:
        return _unfold(inline)
    _refuse_file(properties, "truststore")
    return None


def _key_and_chain(properties: Mapping[str, str]) -> str | None:
    key = properties.get("ssl.keystore.key")
    chain = properties.get("ssl.keystore.certificate.chain")
    if not key or not chain:
        _refuse_file(properties, "keystore")
        return None
    # One text may hold both.
    return "\n".join(_unfold(pem) for pem in dict.fromkeys((key, chain)))


def _with_plain_key(chain: str, password: str) -> str:
    """Return key and certificates with the key decrypted: OpenSSL would hash the password as often as the key says."""
    if _ENCRYPTED not in chain:
        return chain
    plain = plain_key(chain, password)
    blocks = [
        f"-----BEGIN {kind}-----{content}-----END {kind}-----\n"
        for kind, content in bounds.pem_blocks(chain)
        if not kind.endswith("PRIVATE KEY")
    ]
    return plain + "".join(blocks)


_ENCRYPTED: Final = "-----BEGIN ENCRYPTED PRIVATE KEY-----"
"""PKCS#8. The older form (``Proc-Type: 4,ENCRYPTED``) hashes its password once."""


def _refuse_file(properties: Mapping[str, str], store: str) -> None:
    if location := properties.get(f"ssl.{store}.location"):
        raise PathRefusedError(f"ssl.{store}.location {location} is not opened here. Put the PEM into the settings")


def _unfold(pem: str) -> str:
    r"""Return inline PEM with line breaks. Java properties may contain PEM in one line, with blanks or ``\n``."""
    text = pem.replace("\\n", "\n")
    blocks = [
        f"-----BEGIN {kind}-----\n" + "\n".join(content.split()) + f"\n-----END {kind}-----\n"
        for kind, content in bounds.pem_blocks(text)
    ]
    return "".join(blocks) or text
