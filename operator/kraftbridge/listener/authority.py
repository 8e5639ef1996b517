"""The operator's own authorities.

They issue the certificates of the controllers' listener and of their log servers, and judge the listener's.

The Secrets of the listener's authority and of the controllers have the keys that cert-manager uses (``tls.crt``,
``tls.key``, ``ca.crt``), so one can replace the other.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kraftbridge.outside.stores import opened
from kraftbridge.pods.credentials import (
    AUTHORITIES,
    CERTIFICATE,
    KEY,
    KEYSTORE,
    CredentialsError,
    chain_problems,
    keystore,
)

AUTHORITY_LIFETIME: Final = timedelta(days=3650)
"""The brokers trust the authority, and the operator changes no broker's trust.
So it outlives every certificate that it issues."""
RENEW_AFTER: Final = 2 / 3
"""Part of the lifetime after which a certificate is renewed."""
LEAST_GAIN: Final = timedelta(days=1)
"""A renewal that gains less is not worth a roll-out: the end of the authority bounds it."""

PKCS12_KEYSTORE: Final = "keystore.p12"
PKCS12_TRUSTSTORE: Final = "truststore.p12"
PASSWORD: Final = "password"  # noqa: S105 - a key of a Secret
_CLOCKS: Final = timedelta(minutes=5)
"""How far the clocks of the nodes may be apart."""

Files = dict[str, bytes]


@dataclass(frozen=True, slots=True)
class Purpose:
    """Whose certificate is issued."""

    common_name: str
    hosts: tuple[str, ...] = ()
    """Subject alternative names. Without one the certificate is a client's."""
    client: bool = True
    """Whether it is a client's, too: each voter is server and client of the others."""

    @property
    def usages(self) -> tuple[x509.ObjectIdentifier, ...]:
        """Extended key usages."""
        server = (ExtendedKeyUsageOID.SERVER_AUTH,) if self.hosts else ()
        if not self.client:
            return server
        return (*server, ExtendedKeyUsageOID.CLIENT_AUTH)


def new_authority(common_name: str, now: datetime) -> Files:
    """Return the Secret's files of a new authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(common_name)
    certificate = (
        _builder(name, name, key, now, now + AUTHORITY_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_signs_certificates(), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return {CERTIFICATE: certificate.public_bytes(Encoding.PEM), KEY: _pem(key)}


def issue(authority: Mapping[str, str], purpose: Purpose, days: int, now: datetime) -> Files:
    """Return the files of a new certificate as cert-manager writes them.

    Raises
    ------
    CredentialsError
        The authority cannot be used.
    """
    signer, signing_key = _authority(authority)
    key = ec.generate_private_key(ec.SECP256R1())
    end = min(now + timedelta(days=days), signer.not_valid_after_utc)
    builder = (
        _builder(_name(purpose.common_name), signer.subject, key, now, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purpose.usages), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), critical=False)
    )
    if purpose.hosts:
        alternatives = x509.SubjectAlternativeName([x509.DNSName(host) for host in purpose.hosts])
        builder = builder.add_extension(alternatives, critical=False)
    return {
        CERTIFICATE: builder.sign(signing_key, hashes.SHA256()).public_bytes(Encoding.PEM),
        KEY: _pem(key),
        AUTHORITIES: signer.public_bytes(Encoding.PEM),
    }


def with_stores(files: Files, password: str | None = None) -> Files:
    """Return a client's files with key stores for Kafka, as PEM and as PKCS#12.

    PKCS#12 is for brokers whose own ``ssl.*`` settings have passwords:
    a password forbids PEM (``DefaultSslEngineFactory``), and an inherited one cannot be unset.

    Parameters
    ----------
    password
        Of the PKCS#12 files; None: a new one. A renewal keeps it, because the brokers' configuration refers to it.
    """
    password = password or secrets.token_urlsafe(24)
    key = load_pem_private_key(files[KEY], None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    certificate, authority = (x509.load_pem_x509_certificate(files[name]) for name in (CERTIFICATE, AUTHORITIES))
    locked = BestAvailableEncryption(password.encode())
    # A JVM takes a certificate as trusted only with an attribute of Oracle's.
    trusted = pkcs12.serialize_java_truststore([pkcs12.PKCS12Certificate(authority, b"authority")], locked)
    return {
        **files,
        KEYSTORE: _pem_keystore(files).encode(),
        PKCS12_KEYSTORE: pkcs12.serialize_key_and_certificates(b"broker", key, certificate, [authority], locked),
        PKCS12_TRUSTSTORE: trusted,
        PASSWORD: password.encode(),
    }


def _pem_keystore(files: Mapping[str, bytes]) -> str:
    return keystore({name: files[name].decode() for name in (CERTIFICATE, KEY)})


def authority_problem(data: Mapping[str, str], now: datetime) -> str:
    """Return why the authority's Secret cannot be used to issue certificates, ``""`` if it can."""
    try:
        certificate, key = _authority(data)
    except CredentialsError as error:
        return str(error)
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    except x509.ExtensionNotFound:
        return f"{CERTIFICATE} is no authority"
    if not constraints.ca:
        return f"{CERTIFICATE} is no authority"
    if certificate.public_key() != key.public_key():
        return f"{KEY} is not the key of {CERTIFICATE}"
    if certificate.not_valid_after_utc <= now:
        return f"{CERTIFICATE} expired at {certificate.not_valid_after_utc:%Y-%m-%d %H:%M:%S} UTC"
    return ""


def problem(data: Mapping[str, str], purpose: Purpose, authority: Mapping[str, str] | None) -> str:
    """Return why a Secret does not hold a certificate that the authority issued for this purpose, ``""`` if it does.

    Its lifetime does not count.

    Parameters
    ----------
    authority
        None if it is not known: the certificate must then come from its own ``ca.crt``.
    """
    try:
        problems = chain_problems(data, purpose.hosts, server=bool(purpose.hosts), client=purpose.client)
        if problems:
            return problems[0]
        if authority is not None and _one(data, AUTHORITIES) != _one(authority, CERTIFICATE):
            return f"{AUTHORITIES} is not the operator's authority"
        subject = x509.load_pem_x509_certificate(data[CERTIFICATE].encode()).subject
        if subject != _name(purpose.common_name):
            return f"{CERTIFICATE} has the subject {subject.rfc4514_string()} and not CN={purpose.common_name}"
    except CredentialsError as error:
        return str(error)
    return ""


def stores_problem(files: Mapping[str, bytes]) -> str:
    """Return why the key stores of a client's files do not hold its certificate, ``""`` if they do."""
    try:
        own = _pem_keystore(files)
        if files[KEYSTORE].decode() != own:
            return f"{KEYSTORE} is not the key and the certificate of {KEY} and {CERTIFICATE}"
        password = files[PASSWORD].decode()
        held = opened(files[PKCS12_KEYSTORE], password)
        trusted = opened(files[PKCS12_TRUSTSTORE], password).others
        if not held.key or held.certificate != _same_pem(files[CERTIFICATE]):
            return f"{PKCS12_KEYSTORE} does not hold the certificate of {CERTIFICATE}"
        if list(trusted) != [_same_pem(files[AUTHORITIES])]:
            return f"{PKCS12_TRUSTSTORE} does not hold the authority of {AUTHORITIES}"
    except KeyError as error:
        return f"{error.args[0]} is missing"
    except (ValueError, UnicodeDecodeError):
        return f"{PKCS12_KEYSTORE} or {PKCS12_TRUSTSTORE} cannot be opened with {PASSWORD}"
    return ""


def _same_pem(certificate: bytes) -> str:
    return x509.load_pem_x509_certificate(certificate).public_bytes(Encoding.PEM).decode()


def expires_at(data: Mapping[str, str]) -> datetime:
    """Return the end of a certificate.

    Raises
    ------
    CredentialsError
        ``tls.crt`` is missing or unreadable.
    """
    return _one(data, CERTIFICATE).not_valid_after_utc


def is_due(data: Mapping[str, str], authority: Mapping[str, str], days: int, now: datetime) -> bool:
    """Return whether a certificate is to be renewed: it is old, and a new one would last longer.

    Raises
    ------
    CredentialsError
        A certificate is missing or unreadable.
    """
    certificate = _one(data, CERTIFICATE)
    begin = certificate.not_valid_before_utc
    end = certificate.not_valid_after_utc
    new_end = min(now + timedelta(days=days), _one(authority, CERTIFICATE).not_valid_after_utc)
    return now >= begin + (end - begin) * RENEW_AFTER and new_end - end >= min(LEAST_GAIN, (end - begin) / 10)


def principals(uid_part: str) -> dict[str, str]:
    """Return the common names of ``controllers`` and ``brokers``.

    They carry the migration's UID, so that no mapping rule of a user meets them by chance.
    """
    return {who: f"kraftbridge-{who}-{uid_part}" for who in ("controllers", "brokers")}


def _authority(data: Mapping[str, str]) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    keystore(data)  # reads both, and says what is wrong
    key = load_pem_private_key(data[KEY].encode(), None, unsafe_skip_rsa_key_validation=True)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CredentialsError(f"{KEY} is not a key that the operator made")
    return _one(data, CERTIFICATE), key


def _one(data: Mapping[str, str], name: str) -> x509.Certificate:
    try:
        (certificate,) = x509.load_pem_x509_certificates(data.get(name, "").encode())
    except ValueError as error:
        raise CredentialsError(f"{name} is not one certificate in PEM") from error
    return certificate


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS)
        .not_valid_after(end)
    )


def _signs_certificates() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
