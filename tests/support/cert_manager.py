"""Secrets of certificates as cert-manager writes them: ``tls.crt`` with the chain, ``tls.key``, ``ca.crt``."""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LOOPBACK = ("localhost", "127.0.0.1")
BOTH = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
_DAY = dt.timedelta(days=1)


class KeyKind(StrEnum):
    """``spec.privateKey`` of a Certificate: algorithm and encoding. PKCS1 is cert-manager's default, also in name for ECDSA (SEC 1)."""

    RSA_PKCS1 = "RSA PKCS1"
    RSA_PKCS8 = "RSA PKCS8"
    ECDSA_PKCS1 = "ECDSA PKCS1"
    ECDSA_PKCS8 = "ECDSA PKCS8"


@dataclass(frozen=True)
class Issuer:
    """A certificate authority: a root, or an intermediate one with its parents."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    parent: Issuer | None = None

    @property
    def pem(self) -> str:
        """Its certificate."""
        return _pem(self.certificate)

    @property
    def root(self) -> Issuer:
        """The authority that signed itself."""
        return self if self.parent is None else self.parent.root


def authority(name: str = "a root", parent: Issuer | None = None) -> Issuer:
    """Return a new authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    own = _name(name)
    now = dt.datetime.now(dt.UTC)
    builder = (
        _builder(own, parent.certificate.subject if parent else own, now - _DAY, now + 10 * _DAY)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    )
    return Issuer(builder.sign(parent.key if parent else key, hashes.SHA256()), key, parent)


def secret(
    issuer: Issuer,
    names: Sequence[str] = LOOPBACK,
    kind: KeyKind = KeyKind.RSA_PKCS1,
    *,
    common_name: str = "kafka",
    usages: Sequence[x509.ObjectIdentifier] = BOTH,
    expires: dt.datetime | None = None,
    bundle: Sequence[Issuer] = (),
) -> dict[str, str]:
    """Return the data of a certificate's Secret.

    Parameters
    ----------
    bundle
        Further authorities in ``ca.crt``, as in a bundle of trust-manager.
    """
    now = dt.datetime.now(dt.UTC)
    key = (
        rsa.generate_private_key(public_exponent=65537, key_size=2048)
        if kind.startswith("RSA")
        else ec.generate_private_key(ec.SECP256R1())
    )
    end = expires or now + _DAY
    builder = (
        _builder(_name(common_name), issuer.certificate.subject, min(now, end) - _DAY, end)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_alternative(n) for n in names]), critical=False)
    )
    if usages:
        builder = builder.add_extension(x509.ExtendedKeyUsage(list(usages)), critical=False)
    chain, above = [builder.sign(issuer.key, hashes.SHA256())], issuer
    while above.parent is not None:  # cert-manager leaves the root out of the chain
        chain.append(above.certificate)
        above = above.parent
    form = PrivateFormat.PKCS8 if kind.endswith("PKCS8") else PrivateFormat.TraditionalOpenSSL
    return {
        "tls.crt": "".join(_pem(c) for c in chain),
        "tls.key": key.private_bytes(Encoding.PEM, form, NoEncryption()).decode(),
        "ca.crt": "".join(i.pem for i in (*bundle, issuer.root)),
    }


def _builder(subject: x509.Name, issuer: x509.Name, start: dt.datetime, end: dt.datetime) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
    )


def _alternative(name: str) -> x509.GeneralName:
    return x509.IPAddress(ipaddress.ip_address(name)) if name[0].isdigit() else x509.DNSName(name)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()
