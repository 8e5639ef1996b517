"""The certificates and logins of the controllers' listener, in their Secrets and as processes present them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class IssuedSecret:
    """One Secret with a certificate and perhaps logins.

    This is what is known of it, without a key, a certificate or a password.
    """

    name: str
    exists: bool
    problem: str = ""
    """Why its content is not what the operator issues; the operator does not overwrite such a Secret."""
    expires_at: datetime | None = None
    due: bool = False
    """Whether the certificate is to be renewed by the same authority."""
    begins_at: datetime | None = None
    fingerprint: str = ""
    """Of the certificate, as `PresentedCertificate.fingerprint`."""
    is_pkcs8: bool = True
    """Whether Kafka reads its private key as it is (``DefaultSslEngineFactory.PemStore``)."""


@dataclass(frozen=True, slots=True)
class IssuedListener:
    """The three Secrets."""

    authority: IssuedSecret
    controllers: IssuedSecret
    brokers: IssuedSecret
    authority_key: str = ""
    """SHA-256 of the authority's public key, ``""`` without a readable authority."""

    @property
    def secrets(self) -> tuple[IssuedSecret, ...]:
        """All of them, the authority first."""
        return (self.authority, self.controllers, self.brokers)

    @property
    def authority_holds(self) -> bool:
        """Whether the authority can issue certificates."""
        return self.authority.exists and not self.authority.problem

    @property
    def problems(self) -> tuple[str, ...]:
        """What a person has to correct."""
        return tuple(f"Secret {s.name}: {s.problem}" for s in self.secrets if s.problem)


@dataclass(frozen=True, slots=True)
class PresentedCertificate:
    """What a controller presents at its listener. Chain and names were verified; only its dates were not."""

    process: str
    """`PodState.process` of the controller. Kafka reads a key store when it starts."""
    fingerprint: str
    """First 16 digits of the SHA-256 of the certificate in DER."""
    begins_at: datetime
    ends_at: datetime
