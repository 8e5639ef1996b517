"""Looks at, creates and renews the Secrets with the certificates and logins that the operator issues.

They serve the controllers' listener.

None of them has an ownerReference: the quorum outlives the migration.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from kraftbridge.builders import names
from kraftbridge.constants import UID_LENGTH
from kraftbridge.exceptions import ActionRefusedError, ConflictError
from kraftbridge.listener import authority as own
from kraftbridge.listener import logins
from kraftbridge.models.issued import IssuedListener, IssuedSecret
from kraftbridge.models.objects import section
from kraftbridge.models.spec import ListenerSpec
from kraftbridge.phases.draft import Migration
from kraftbridge.pods.credentials import (
    KEY,
    LOGIN,
    PKCS8_BEGIN,
    PROPERTIES,
    CredentialsError,
    fingerprint,
    has_certificate,
    leaf,
    listener_problems,
    text_files,
)
from kraftbridge.storage.ports import KubernetesPort, Object, ReadPort

_TLS = "kubernetes.io/tls"
"""Type of the Secrets of cert-manager, which can take these over. A Secret's type cannot change."""
_LOST = "it does not exist, and certificates that it issued do"


class IssuedSecrets:
    """The three Secrets of one migration."""

    def __init__(self, kubernetes: ReadPort, migration: Migration) -> None:
        identity = migration.identity
        self._kubernetes = kubernetes
        self._identity = identity
        self._listener = migration.spec.controllers.listener
        self._days = self._listener.certificate_days
        controllers = migration.controllers
        hosts = names.controller_hosts(
            controllers, identity.namespace, migration.spec.controllers.node_ids, identity.cluster_domain
        )
        self._uid_part = identity.uid[:UID_LENGTH]
        called = own.principals(self._uid_part)
        self._authority = names.issuing_authority_secret(identity.name, identity.uid)
        self._purposes = {
            names.issued_listener_secret(controllers): own.Purpose(called["controllers"], tuple(hosts.values())),
            names.issued_brokers_secret(identity.name, identity.uid): own.Purpose(called["brokers"]),
        }
        self._controllers, self._brokers = self._purposes
        self._may_begin = migration.status.controllers is None

    def look(self, now: datetime) -> IssuedListener:
        """Return the state of the Secrets.

        Raises
        ------
        ObservationError
            A Secret cannot be read.
        """
        secrets = {name: self._read(name) for name in (self._authority, *self._purposes)}
        signer = secrets[self._authority]
        controllers = secrets[self._controllers]
        brokers = secrets[self._brokers]
        issued = [files for files in (controllers, brokers) if files is not None]
        wanted = self._wanted_logins(signer, controllers)
        return IssuedListener(
            authority=self._judged_authority(signer, now, issued),
            controllers=self._judged(self._controllers, controllers, signer, wanted, now),
            brokers=self._judged(self._brokers, brokers, signer, wanted, now),
            authority_key=_key_of(text_files(signer or {})),
        )

    def _of_logins(self, name: str, of: logins.Logins) -> own.Files:
        return of.for_brokers() if name == self._brokers else of.for_controllers()

    def _wanted_logins(self, signer: own.Files | None, controllers: own.Files | None) -> logins.Logins | None:
        """Return the logins that the Secrets should hold; None if there are none, or if nobody knows them."""
        if not self._listener.issues_logins:
            return None
        wanted = logins.of_authority(text_files(signer or {}), self._uid_part)
        return wanted or logins.of_controllers(text_files(controllers or {}), self._uid_part)

    def _read(self, name: str) -> own.Files | None:
        secret = self._kubernetes.get("v1", "Secret", self._identity.namespace, name)
        return None if secret is None else _decoded(secret)

    def _judged_authority(
        self, files: own.Files | None, now: datetime, left: Collection[Mapping[str, bytes]]
    ) -> IssuedSecret:
        if files is None:
            lost = left or not self._may_begin
            return IssuedSecret(self._authority, exists=False, problem=_LOST if lost else "")
        data = text_files(files)
        problem = own.authority_problem(data, now)
        if not problem and self._listener.issues_logins and self._needs_passwords(data, left):
            problem = logins.passwords_problem(data)
        return replace(_secret(self._authority, data), problem=problem)

    def _needs_passwords(self, authority: Mapping[str, str], left: Collection[Mapping[str, bytes]]) -> bool:
        """Return whether the passwords of an authority are in use, or it has some."""
        if not self._may_begin or logins.has_passwords(authority):
            return True
        return any(LOGIN in issued for issued in left)

    def _judged(
        self,
        name: str,
        files: own.Files | None,
        signer: own.Files | None,
        wanted: logins.Logins | None,
        now: datetime,
    ) -> IssuedSecret:
        if files is None:
            return IssuedSecret(name, exists=False)
        data = text_files(files)
        authority = None
        if signer is not None and not own.authority_problem(text_files(signer), now):
            authority = text_files(signer)
        problem = own.problem(data, self._purposes[name], authority)
        if not problem and name == self._brokers:
            problem = own.stores_problem(files)
        problem = problem or self._logins_problem(name, data, wanted)
        due = not problem and authority is not None and own.is_due(data, authority, self._days, now)
        return replace(_secret(name, data), problem=problem, due=due)

    def _logins_problem(self, name: str, data: Mapping[str, str], wanted: logins.Logins | None) -> str:
        if not self._listener.issues_logins:
            return self._hidden_problem(name, data)
        if wanted is not None:
            expected = self._of_logins(name, wanted)
            problem = logins.problem(data, expected)
            if problem and expected.keys() <= data.keys():
                # Which side was changed is not to be seen. Issued anew, the Secret gets the authority's passwords.
                problem += f"; if a password in Secret {self._authority} was changed, restore that one first"
            return problem
        if name == self._controllers:
            return f"{PROPERTIES} has no logins that the operator issued"
        return "" if LOGIN in data else f"{LOGIN} is missing"

    def _hidden_problem(self, name: str, data: Mapping[str, str]) -> str:
        """Of two files with one name the controllers see that of the Secret which the operator issued."""
        if name != self._controllers or PROPERTIES not in data or self._listener.secret_name is None:
            return ""
        return f"its {PROPERTIES} hides that of Secret {self._listener.secret_name}"


class ListenerIssuer(IssuedSecrets):
    """Creates and renews the three Secrets of one migration."""

    def __init__(self, kubernetes: KubernetesPort, migration: Migration) -> None:
        super().__init__(kubernetes, migration)
        self._store = kubernetes

    def issue(self, now: datetime) -> None:
        """Create the Secrets that are missing, and renew the certificates that are due.

        What somebody changed stays as it is.

        Without an authority a new one is created only where nobody can trust an earlier one:
        no certificate of it and no controller exists.
        The same holds for the passwords of the logins.

        Raises
        ------
        ActionRefusedError
            The authority cannot issue certificates or logins.
        ActionError
            The API server refuses a Secret.
        ObservationError
            A Secret cannot be read.
        """
        state = self.look(now)
        if not state.authority.exists and not state.authority.problem:
            if not self._may_begin:
                raise ActionRefusedError(f"Secret {self._identity.namespace}/{self._authority} does not exist")
            called = f"kraftbridge listener {self._uid_part}"
            self._create(self._authority, own.new_authority(called, now))
            state = self.look(now)
        if not state.authority_holds:
            problem = state.authority.problem or "it does not exist"
            raise ActionRefusedError(f"Secret {self._identity.namespace}/{self._authority}: {problem}")
        if self._listener.issues_logins:
            self._ensure_passwords()
        signer = text_files(self._read(self._authority) or {})
        for secret in (state.controllers, state.brokers):
            if not secret.exists:
                self._create(secret.name, self._new(secret.name, signer, now))
            elif secret.due and not secret.problem:
                self._renew(secret.name, signer, now)

    def _new(self, name: str, signer: Mapping[str, str], now: datetime, password: str | None = None) -> own.Files:
        files = own.issue(signer, self._purposes[name], self._days, now)
        if name == self._brokers:
            files = own.with_stores(files, password)
        if not self._listener.issues_logins:
            return files
        wanted = logins.of_authority(signer, self._uid_part)
        if wanted is None:
            problem = logins.passwords_problem(signer)
            raise ActionRefusedError(f"Secret {self._identity.namespace}/{self._authority}: {problem}")
        return files | self._of_logins(name, wanted)

    def _ensure_passwords(self) -> None:
        """Add passwords to an authority that has none: it is new, or has issued certificates only."""
        namespace = self._identity.namespace
        secret = self._kubernetes.get("v1", "Secret", namespace, self._authority)
        if secret is None or logins.has_passwords(text_files(_decoded(secret))):
            return
        added = {"data": _encoded(logins.new_passwords())}
        version = secret["metadata"]["resourceVersion"]
        self._store.merge_patch("v1", "Secret", namespace, self._authority, added, resource_version=version)

    def _renew(self, name: str, signer: Mapping[str, str], now: datetime) -> None:
        namespace = self._identity.namespace
        secret = self._kubernetes.get("v1", "Secret", namespace, name)
        if secret is None:
            return  # the next look sees that
        files = _decoded(secret)
        password = files[own.PASSWORD].decode() if own.PASSWORD in files else None
        files = self._new(name, signer, now, password)
        version = secret["metadata"]["resourceVersion"]
        self._store.merge_patch("v1", "Secret", namespace, name, {"data": _encoded(files)}, resource_version=version)

    def _create(self, name: str, files: own.Files) -> None:
        metadata = {
            "name": name,
            "namespace": self._identity.namespace,
            "labels": names.labels(self._identity.name),
        }
        try:
            self._store.create(
                {"apiVersion": "v1", "kind": "Secret", "type": _TLS, "metadata": metadata, "data": _encoded(files)}
            )
        except ConflictError:
            return  # an earlier attempt created it


def issued_principals(uid: str, listener: ListenerSpec) -> tuple[str, ...]:
    """Return the principals of controllers and brokers at a listener (``DefaultKafkaPrincipalBuilder``).

    There are none if the operator issues neither certificates of clients nor logins.
    """
    called = own.principals(uid[:UID_LENGTH]).values()
    if listener.issues_logins:
        return tuple(f"User:{name}" for name in called)
    if listener.generate and listener.security_protocol == "SSL":
        return tuple(f"User:CN={name}" for name in called)
    return ()


def brought_certificate(kubernetes: ReadPort, migration: Migration, now: datetime) -> IssuedSecret | None:
    """Return the certificate in the Secret that the user brings for the controllers' listener; None without one.

    Raises
    ------
    ObservationError
        The Secret cannot be read.
    """
    identity = migration.identity
    listener = migration.spec.controllers.listener
    if listener.generate or listener.secret_name is None:
        return None
    found = kubernetes.get("v1", "Secret", identity.namespace, listener.secret_name)
    data = text_files(_decoded(found or {}))
    if not has_certificate(data):
        return None
    controllers = migration.controllers
    hosts = names.controller_hosts(
        controllers, identity.namespace, migration.spec.controllers.node_ids, identity.cluster_domain
    )
    problems = listener_problems(data, listener.security_protocol, hosts.values(), now)
    return replace(_secret(listener.secret_name, data), problem="; ".join(problems))


def _secret(name: str, data: Mapping[str, str]) -> IssuedSecret:
    """Return what is known of the certificate in a Secret, which is not judged yet."""
    is_pkcs8 = PKCS8_BEGIN in data.get(KEY, "")
    try:
        certificate = leaf(data)
    except CredentialsError:
        return IssuedSecret(name, exists=True, is_pkcs8=is_pkcs8)
    return IssuedSecret(
        name,
        exists=True,
        is_pkcs8=is_pkcs8,
        expires_at=certificate.not_valid_after_utc,
        begins_at=certificate.not_valid_before_utc,
        fingerprint=fingerprint(certificate),
    )


def _key_of(authority: Mapping[str, str]) -> str:
    """Return the SHA-256 of an authority's public key, ``""`` without a readable certificate."""
    try:
        key = leaf(authority).public_key()
    except CredentialsError:
        return ""
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def _decoded(secret: Object) -> own.Files:
    return {key: base64.b64decode(value) for key, value in section(secret, "data").items()}


def _encoded(files: own.Files) -> dict[str, str]:
    return {key: base64.b64encode(value).decode() for key, value in files.items()}
