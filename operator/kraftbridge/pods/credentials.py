"""Certificates of cert-manager (``tls.crt``, ``tls.key``, ``ca.crt``), in the form that Kafka and ZooKeeper read.

``python -m kraftbridge.pods.credentials`` runs as an init container of each controller.
Kafka and ZooKeeper read a private key as PKCS#8 only (``DefaultSslEngineFactory.PemStore``,
``PemReader`` of ZooKeeper); cert-manager writes PKCS#1 (RSA) and SEC 1
(ECDSA) unless ``spec.privateKey.encoding`` is ``PKCS8``.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import zip_longest
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kraftbridge.outside import bounds

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
AUTHORITIES: Final = "ca.crt"
CERTIFICATE_KEYS: Final = (CERTIFICATE, KEY, AUTHORITIES)
PKCS8_BEGIN: Final = "-----BEGIN PRIVATE KEY-----"
"""First line of a key that Kafka reads as it is (RFC 7468, 10)."""
LISTENER_FOLDER: Final = "listener"
ZOOKEEPER_FOLDER: Final = "zookeeper"
KEYSTORE: Final = "keystore.pem"
TRUSTSTORE: Final = "truststore.pem"
PROPERTIES: Final = "listener.properties"
LOGIN: Final = "sasl.jaas.config"
"""Login of a client, in a Secret that the operator issues."""
_PREFIX: Final = "listener.name.controller.ssl"


class CredentialsError(Exception):
    """A Secret has no certificates that Kafka can use; the message says which key of it is wrong."""


def has_certificate(data: Mapping[str, str]) -> bool:
    """Return whether a Secret holds a certificate as cert-manager writes it."""
    return CERTIFICATE in data


def keystore(data: Mapping[str, str]) -> str:
    """Return key (PKCS#8) and certificate chain as one PEM text.

    Raises
    ------
    CredentialsError
        ``tls.crt`` or ``tls.key`` is missing or unreadable, or they do not belong together.
    """
    chain = _certificates(data, CERTIFICATE)
    key = _key(data)
    if _public(chain[0].public_key()) != _public(key.public_key()):
        raise CredentialsError(f"{KEY} is not the key of the first certificate in {CERTIFICATE}")
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return text + _pem(chain)


def truststore(data: Mapping[str, str]) -> str:
    """Return all certificates of ``ca.crt`` as PEM.

    Raises
    ------
    CredentialsError
        ``ca.crt`` is missing or unreadable.
    """
    return _pem(_certificates(data, AUTHORITIES))


def _pem(certificates: Iterable[x509.Certificate]) -> str:
    return "".join(certificate.public_bytes(Encoding.PEM).decode() for certificate in certificates)


def leaf(data: Mapping[str, str]) -> x509.Certificate:
    """Return the first certificate in ``tls.crt``.

    Raises
    ------
    CredentialsError
        ``tls.crt`` is missing or unreadable.
    """
    return _certificates(data, CERTIFICATE)[0]


def fingerprint(certificate: x509.Certificate) -> str:
    """Return the first 16 digits of the SHA-256 of a certificate in DER."""
    return certificate.fingerprint(hashes.SHA256()).hex()[:16]


def subject(data: Mapping[str, str]) -> str:
    """Return the subject of the certificate in ``tls.crt`` as ZooKeeper and Kafka write it.

    Notes
    -----
    Both use ``X500Principal.getName``, which is RFC 2253 with its freedoms used in one way:
    more characters are escaped than must be, and the value of an attribute that the RFC does not name is hexadecimal
    (``AVA.toRFC2253String`` of the JDK).

    Raises
    ------
    CredentialsError
        ``tls.crt`` is missing or unreadable.
    """
    names = reversed(_certificates(data, CERTIFICATE)[0].subject.rdns)
    return ",".join("+".join(sorted(_attribute(a) for a in name)) for name in names)


_KEYWORDS: Final = {
    NameOID.COMMON_NAME: "CN",
    NameOID.COUNTRY_NAME: "C",
    NameOID.LOCALITY_NAME: "L",
    NameOID.STATE_OR_PROVINCE_NAME: "ST",
    NameOID.ORGANIZATION_NAME: "O",
    NameOID.ORGANIZATIONAL_UNIT_NAME: "OU",
    NameOID.STREET_ADDRESS: "STREET",
    NameOID.DOMAIN_COMPONENT: "DC",
    NameOID.USER_ID: "UID",
}
_ESCAPES: Final = str.maketrans({character: f"\\{character}" for character in ',=+<>#;"\\'})


def _attribute(attribute: x509.NameAttribute[str | bytes]) -> str:
    value = attribute.value
    if attribute.oid not in _KEYWORDS or isinstance(value, bytes):
        return f"{attribute.oid.dotted_string}=#{_der_of_value(attribute).hex()}"
    text = value.translate(_ESCAPES)
    inner = text.strip(" ")
    before = len(text) - len(text.lstrip(" "))
    after = len(text) - len(text.rstrip(" "))
    return _KEYWORDS[attribute.oid] + "=" + "\\ " * before + inner + "\\ " * after


def _der_of_value(attribute: x509.NameAttribute[str | bytes]) -> bytes:
    """Return an attribute's encoded value, the last part of ``SEQUENCE { SET { SEQUENCE { type, value } } }``."""
    content = x509.Name([attribute]).public_bytes()
    for _ in range(3):
        content = _content(content)[0]
    return _content(content)[1]


_LONG: Final = 0x80
"""The other bits say in how many bytes the length itself follows (X.690, 8.1.3.5)."""


def _content(der: bytes) -> tuple[bytes, bytes]:
    """Return the content of the first element of a DER encoding, and what follows the element."""
    length = der[1]
    start = 2
    if length & _LONG:
        start += length & ~_LONG
        length = int.from_bytes(der[2:start])
    return der[start : start + length], der[start + length :]


def listener_files(data: Mapping[str, str], protocol: str, directory: str) -> dict[str, str]:
    """Return the files of the controllers' listener by name, and the settings that name them.

    There are none if the Secret has no certificate.

    Parameters
    ----------
    protocol
        Security protocol of the listener. With ``SSL`` clients must show a certificate; with ``SASL_SSL`` they log in.
    directory
        Where Kafka finds the files.

    Raises
    ------
    CredentialsError
        The certificates cannot be used.
    """
    if not has_certificate(data):
        return {}
    settings = [
        f"{_PREFIX}.keystore.type=PEM",
        f"{_PREFIX}.keystore.location={directory}/{KEYSTORE}",
        f"{_PREFIX}.truststore.type=PEM",
        f"{_PREFIX}.truststore.location={directory}/{TRUSTSTORE}",
    ]
    if protocol == "SSL":
        settings.append(f"{_PREFIX}.client.auth=required")
    return {
        KEYSTORE: keystore(data),
        TRUSTSTORE: truststore(data),
        PROPERTIES: "".join(f"{line}\n" for line in settings),
    }


def client_properties(data: Mapping[str, str], protocol: str) -> dict[str, str]:
    """Return the settings of a client that shows the listener's own certificate.

    With ``SASL_SSL`` it has a login that the operator issued. There are none if the Secret lacks them.
    """
    if not set(CERTIFICATE_KEYS) <= data.keys():
        return {}
    trust = {
        "security.protocol": protocol,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": data[AUTHORITIES],
    }
    if protocol == "SASL_SSL" and LOGIN in data:
        return {**trust, "sasl.mechanism": "PLAIN", "sasl.jaas.config": data[LOGIN]}
    if protocol != "SSL":
        return {}
    return {
        **trust,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": data[KEY],
        "ssl.keystore.certificate.chain": data[CERTIFICATE],
    }


def text_files(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return the files that are text; a certificate's Secret may have key stores (``keystore.p12``), too."""
    texts = {}
    for name, content in files.items():
        with suppress(UnicodeDecodeError):
            texts[name] = content.decode()
    return texts


def listener_problems(data: Mapping[str, str], protocol: str, hosts: Iterable[str], now: datetime) -> tuple[str, ...]:
    """Return why the controllers cannot use the certificate of their listener.

    It is empty if they can, or if the Secret has none.

    Parameters
    ----------
    hosts
        Names under which brokers and controllers connect to the controllers.
    """
    if not has_certificate(data) or not protocol.endswith("SSL"):
        return ()
    try:
        lifetime = tuple(_lifetime_problems(_certificates(data, CERTIFICATE)[0], now))
        return (*lifetime, *chain_problems(data, hosts, server=True, client=protocol == "SSL"))
    except CredentialsError as error:
        return (str(error),)


def chain_problems(data: Mapping[str, str], hosts: Iterable[str], *, server: bool, client: bool) -> tuple[str, ...]:
    """Return what is wrong with a certificate besides its lifetime: key, names, usages, authority.

    Raises
    ------
    CredentialsError
        A certificate or the key is missing or unreadable.
    """
    keystore(data)
    chain = _certificates(data, CERTIFICATE)
    authorities = _certificates(data, AUTHORITIES)
    problems = [*_name_problems(chain[0], hosts), *_usage_problems(chain[0], server=server, client=client)]
    if not _leads_to(chain, authorities):
        problems.append(
            f"{AUTHORITIES} has no certificate that signed {CERTIFICATE}: the controllers would not trust each other"
        )
    return tuple(problems)


def _lifetime_problems(leaf: x509.Certificate, now: datetime) -> Iterable[str]:
    if leaf.not_valid_after_utc <= now:
        yield f"{CERTIFICATE} expired at {leaf.not_valid_after_utc:%Y-%m-%d %H:%M:%S} UTC"
    if leaf.not_valid_before_utc > now:
        yield f"{CERTIFICATE} is not valid before {leaf.not_valid_before_utc:%Y-%m-%d %H:%M:%S} UTC"


def _name_problems(leaf: x509.Certificate, hosts: Iterable[str]) -> Iterable[str]:
    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(
            x509.DNSName
        )
    except x509.ExtensionNotFound:
        names = []
    covered = {name.lower() for name in names}
    lacking = [host for host in hosts if not _covering(host) & covered]
    if lacking:
        yield f"{CERTIFICATE} has no subject alternative name for {', '.join(lacking)}"


def _covering(host: str) -> set[str]:
    """Return the names that cover a host. A wildcard stands for exactly one label (RFC 6125)."""
    _, _, parent = host.lower().partition(".")
    return {host.lower(), f"*.{parent}"}


def _usage_problems(leaf: x509.Certificate, *, server: bool, client: bool) -> Iterable[str]:
    """Find a missing usage.

    Each voter is server and client of the others; without the extension every usage is allowed (RFC 5280, 4.2.1.12).
    """
    try:
        usage = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return
    wanted = {}
    if server:
        wanted["server auth"] = ExtendedKeyUsageOID.SERVER_AUTH
    if client:
        wanted["client auth"] = ExtendedKeyUsageOID.CLIENT_AUTH
    for name, oid in wanted.items():
        if oid not in usage:
            yield f"{CERTIFICATE} lacks the usage {name!r}"


def _leads_to(chain: Sequence[x509.Certificate], authorities: Sequence[x509.Certificate]) -> bool:
    """Return whether each certificate is signed by the next, and one of them by an authority."""
    for certificate, issuer in zip_longest(chain, chain[1:]):
        if certificate in authorities or any(_signed_by(certificate, authority) for authority in authorities):
            return True
        if issuer is None or not _signed_by(certificate, issuer):
            return False
    return False


def _signed_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def _certificates(data: Mapping[str, str], name: str) -> list[x509.Certificate]:
    if not data.get(name, "").strip():
        raise CredentialsError(f"{name} is missing")
    try:
        found = x509.load_pem_x509_certificates(data[name].encode())
    except ValueError as error:
        raise CredentialsError(f"{name} is not a certificate in PEM") from error
    # Each of the chain may be compared with each authority.
    most = bounds.AUTHORITIES if name == AUTHORITIES else bounds.CHAIN
    if len(found) > most:
        raise CredentialsError(f"{name} has {len(found)} certificates, and {most} is the most that is accepted")
    return found


def _key(data: Mapping[str, str]) -> PrivateKeyTypes:
    if not data.get(KEY, "").strip():
        raise CredentialsError(f"{KEY} is missing")
    try:
        # OpenSSL would prove the factors of an RSA key prime, for hours if it is large.
        # What counts is whether it is the key of the certificate.
        return load_pem_private_key(data[KEY].encode(), None, unsafe_skip_rsa_key_validation=True)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:  # TypeError: it is encrypted
        raise CredentialsError(f"{KEY} is not a private key in PEM without password") from error


def _public(key: object) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)  # type: ignore[attr-defined,no-any-return]


# ------------------------------------------------------------------------------------------------ the init container


def _read(directory: str | None) -> dict[str, str]:
    """Return the files of a mounted Secret; an optional Secret that does not exist mounts as an empty directory."""
    if not directory:
        return {}
    files = {name: Path(directory) / name for name in CERTIFICATE_KEYS}
    return {name: path.read_text() for name, path in files.items() if path.is_file()}


def _write(folder: Path, files: Mapping[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = folder / name
        path.write_text(text)
        path.chmod(0o600)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files of the mounted Secrets in the form that Kafka reads; return the exit code."""
    parser = argparse.ArgumentParser(prog="kraftbridge.pods.credentials", description=__doc__)
    parser.add_argument("--listener", help="directory of the Secret of the controllers' listener")
    parser.add_argument("--protocol", default="SSL", help="security protocol of the listener")
    parser.add_argument("--zookeeper", help="directory of the Secret for ZooKeeper")
    parser.add_argument("--directory", required=True, help="directory for the files")
    given = parser.parse_args(arguments)
    os.umask(0o077)
    out = Path(given.directory)
    of = ""
    try:
        of = "the Secret of spec.controllers.listener.secretName"
        folder = out / LISTENER_FOLDER
        _write(folder, listener_files(_read(given.listener), given.protocol, str(folder)))
        of = "the Secret of spec.zookeeper.secretName"
        client = _read(given.zookeeper)
        _write(out / ZOOKEEPER_FOLDER, {KEYSTORE: keystore(client)} if has_certificate(client) else {})
    except CredentialsError as error:
        sys.stderr.write(f"{of} cannot be used: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
