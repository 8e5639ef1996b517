"""The clients of one migration for ZooKeeper, brokers and controllers.

They connect when first needed and stay open between steps.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, NoReturn, Protocol

from kraftbridge.builders import names
from kraftbridge.constants import CONTROLLER_PORT, LOG_SERVER_PORT
from kraftbridge.exceptions import ActionError, InvalidSpecError, ObservationError, PropertiesError
from kraftbridge.kafka.client import inlined, resolve, resolve_all
from kraftbridge.metadata.log.files import LogFiles, RemoteLogFiles
from kraftbridge.metadata.zookeeper.session import ZooKeeperCredentials
from kraftbridge.models.objects import section, version_of
from kraftbridge.models.observation import RefusedEndpoint
from kraftbridge.models.phase import Part
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.outside import bounds
from kraftbridge.outside.endpoints import Judge, anywhere
from kraftbridge.outside.properties import parse_properties
from kraftbridge.pods import credentials as certificates
from kraftbridge.services.endpoints import Allowed, Endpoints
from kraftbridge.storage.broker_records import BrokerRecordClient
from kraftbridge.storage.kafka_brokers import BrokerClient, ControllerProbeClient, Prober
from kraftbridge.storage.kafka_controllers import ControllerClient
from kraftbridge.storage.listener_certificates import ListenerCertificates
from kraftbridge.storage.paths import try_paths
from kraftbridge.storage.ports import BrokerPort, BrokerRecordPort, ControllerPort, ReadPort, ZooKeeperPort
from kraftbridge.storage.zookeeper import ZooKeeperStore, ZooKeeperTls

_RESOLVE_SECONDS: Final = 2.0


class ClosableLog(LogFiles, Protocol):
    """Access to a metadata log over a connection."""

    def close(self) -> None:
        """Close the connection."""


def open_controllers_log(host: str, token: str, authority: str, judge: Judge = anywhere) -> RemoteLogFiles:
    """Return access to the metadata log of a controller, through the log server in its pod."""
    return RemoteLogFiles(f"https://{host}:{LOG_SERVER_PORT}", None, token=token, authority=authority, judge=judge)


def log_access(kubernetes: ReadPort, namespace: str, controllers: str) -> tuple[str, str] | None:
    """Return the token and the authority of the controllers' log servers; None while their Secret has them not."""
    secret = kubernetes.get("v1", "Secret", namespace, names.log_reader_secret(controllers))
    if secret is None:
        return None
    data = texts(section(secret, "data"))
    return (data["token"], data["ca.crt"]) if {"token", "ca.crt"} <= data.keys() else None


class AbandonedZooKeeper:
    """The ZooKeeper of a migration whose phase does not use it. It has no session, and every question fails."""

    def _refuse(self, *_: object) -> NoReturn:
        raise ObservationError("ZooKeeper", "the phase of this migration does not use it")

    def observe(self) -> NoReturn:
        """Fail."""
        self._refuse()

    def acls(self) -> NoReturn:
        """Fail."""
        self._refuse()

    def users(self) -> NoReturn:
        """Fail."""
        self._refuse()

    def topics(self) -> NoReturn:
        """Fail."""
        self._refuse()

    def payloads(self, paths: Sequence[str]) -> NoReturn:
        """Fail."""
        self._refuse(paths)

    def broker_session_count(self) -> NoReturn:
        """Fail."""
        self._refuse()

    def remove_controller_claim(self, expected_kraft_epoch: int) -> NoReturn:
        """Fail: nothing is removed."""
        raise ActionError(f"the phase of this migration does not use ZooKeeper (KRaft epoch {expected_kraft_epoch})")

    def create_partition_states(self) -> NoReturn:
        """Fail: nothing is created."""
        raise ActionError("the phase of this migration does not use ZooKeeper")

    def close(self) -> None:
        """Do nothing: there is no session."""


@dataclass(slots=True)
class ClusterClients:
    """Connections of one migration."""

    zookeeper: ZooKeeperPort
    brokers: BrokerPort
    controllers: ControllerPort
    broker_records: Callable[[], BrokerRecordPort]
    """Opens a client that asks brokers by their own ids."""
    prober: Prober | None = None
    """Measures how long no controller accepts writes. None if nothing is measured."""
    certificates: ListenerCertificates | None = None
    """Reads what the controllers present. None if nobody reads it."""
    open_log: Callable[[str, str, str], ClosableLog] = open_controllers_log
    """Opens the metadata log of the controller at a host, with the token and the authority of its log server."""
    try_paths: Callable[[str, str, str, Sequence[tuple[str, int]]], list[str]] = try_paths
    """Returns why the pod at a host gets no connection to each address, ``""`` where it gets one; asked as above."""
    endpoints: Endpoints | None = None
    """Where they may connect to. None if that is not judged."""

    @property
    def judge(self) -> Judge:
        """Judges each address that they connect to."""
        return anywhere if self.endpoints is None else self.endpoints.judge

    @property
    def refused(self) -> tuple[RefusedEndpoint, ...]:
        """Where they were kept from lately."""
        return () if self.endpoints is None else self.endpoints.refused

    def close(self) -> None:
        """Close all connections."""
        self.zookeeper.close()
        self.brokers.close()
        self.controllers.close()
        if self.prober is not None:
            self.prober.close()


def open_clients(
    kubernetes: ReadPort,
    namespace: str,
    controllers: str,
    spec: MigrationSpec,
    domain: str,
    controllers_domain: str,
    controller_port: int = CONTROLLER_PORT,
    needs: Collection[Part] = frozenset(Part),
    allowed: Allowed | None = None,
) -> ClusterClients:
    """Return the clients of a migration. Each connects at its first use.

    Parameters
    ----------
    domain
        DNS domain of the cluster, with which the addresses in the spec are resolved.
    controllers_domain
        DNS domain in the controllers' host names, as the migration has recorded it.
    needs
        What the phase observes. Without `Part.ZOOKEEPER` nothing of ZooKeeper's is read: the user may have removed it.
    allowed
        Where the clients may connect to besides, and where the API server is.

    Raises
    ------
    InvalidSpecError
        A Secret that the spec names is missing or lacks a key,
        or the controllers' listener asks for a login and the operator has none.
    """
    uses_zookeeper = Part.ZOOKEEPER in needs
    client = _client_properties(kubernetes, namespace, spec.brokers.client_config_secret, "client.properties")
    listener = _client_properties(
        kubernetes, namespace, spec.brokers.client_config_secret, "controller.properties", required=False
    )
    if not listener and spec.controllers.listener.login_of_user:
        raise InvalidSpecError(_without_login(namespace, spec))
    asked = [spec.brokers.bootstrap_servers]
    if uses_zookeeper:
        asked.append(spec.zookeeper_hosts)
    qualified = qualified_addresses(",".join(asked), namespace, domain)
    named = {address.strip().rpartition(":")[0].strip("[]") for address in (*qualified, *qualified.values())}
    places = allowed or Allowed()
    endpoints = Endpoints(kubernetes, namespace, named, places.networks, places.api_servers)
    judge = endpoints.judge
    zookeeper: ZooKeeperPort = AbandonedZooKeeper()
    if uses_zookeeper:
        hosts = ",".join(map(qualified.__getitem__, spec.zookeeper_hosts.split(",")))
        credentials, tls = _zookeeper_secret(kubernetes, namespace, spec)
        zookeeper = ZooKeeperStore(hosts, spec.chroot, credentials, tls, endpoints.judge_named)
    bootstrap = ",".join(map(qualified.__getitem__, spec.brokers.bootstrap_servers.split(",")))
    controller_hosts = names.controller_hosts(controllers, namespace, spec.controllers.node_ids, controllers_domain)
    addresses = {i: (host, controller_port) for i, host in controller_hosts.items()}
    to_controllers = listener or _listener_client(kubernetes, namespace, controllers, spec)
    return ClusterClients(
        zookeeper,
        BrokerClient(bootstrap, client, judge),
        ControllerClient(addresses, to_controllers, judge),
        lambda: BrokerRecordClient(bootstrap, client, judge),
        Prober(lambda: ControllerProbeClient(bootstrap, client, judge)),
        ListenerCertificates(controller_hosts, to_controllers, judge),
        open_log=partial(open_controllers_log, judge=judge),
        try_paths=partial(try_paths, judge=judge),
        endpoints=endpoints,
    )


def shows_listener_certificate(kubernetes: ReadPort, namespace: str, controllers: str, spec: MigrationSpec) -> bool:
    """Return whether clients of the controllers show the certificate of the controllers' listener, or use its login.

    They do without ``controller.properties``.

    Raises
    ------
    InvalidSpecError
        A Secret that the spec names is missing.
    """
    secret = spec.brokers.client_config_secret
    own = _client_properties(kubernetes, namespace, secret, "controller.properties", required=False)
    return not own and len(_listener_client(kubernetes, namespace, controllers, spec)) > 1


def listener_data(kubernetes: ReadPort, namespace: str, controllers: str, spec: MigrationSpec) -> dict[str, str]:
    """Return the files that the controllers see of their listener's Secrets.

    What the operator issues is absent until it has issued it.

    Raises
    ------
    InvalidSpecError
        The Secret that the spec names does not exist.
    """
    listener = spec.controllers.listener
    data = {}
    if listener.secret_name is not None:
        data = secret_text(kubernetes, namespace, listener.secret_name)
    if listener.generate:
        issued = kubernetes.get("v1", "Secret", namespace, names.issued_listener_secret(controllers))
        data |= texts(section(issued, "data"))
    return data


def _listener_client(kubernetes: ReadPort, namespace: str, controllers: str, spec: MigrationSpec) -> Mapping[str, str]:
    """Return how the operator connects to the controllers without ``controller.properties``.

    It shows the listener's own certificate or uses the login that it has issued, if there is one.
    """
    listener = spec.controllers.listener
    data = listener_data(kubernetes, namespace, controllers, spec)
    if listener.issues_logins:
        # SASL needs a login. There is none before the operator issues it, or while its Secret is deleted.
        return certificates.client_properties(data, listener.security_protocol) or {"security.protocol": "SSL"}
    plain = {"security.protocol": listener.security_protocol}
    if listener.security_protocol == "SASL_SSL":
        return plain  # a login of the user's is in controller.properties
    return certificates.client_properties(data, listener.security_protocol) or plain


def _without_login(namespace: str, spec: MigrationSpec) -> str:
    secret = spec.brokers.client_config_secret
    lack = "spec.brokers.clientConfigSecret is not set"
    if secret:
        lack = f"Secret {namespace}/{secret} has no key controller.properties"
    return (
        "the operator has no login for the controllers' listener "
        f"({spec.controllers.listener.security_protocol}): {lack}. "
        "Put security.protocol, sasl.mechanism and sasl.jaas.config into controller.properties of the Secret "
        "that spec.brokers.clientConfigSecret names"
    )


def qualified_addresses(host_ports: str, namespace: str, domain: str) -> dict[str, str]:
    """Return each address as a pod of the migration's namespace would resolve it (the search list of resolv.conf)."""
    qualified = {address: address for address in host_ports.split(",")}
    hosts = {address: address.strip().rpartition(":")[0] for address in qualified}
    candidates = {
        address: f"{host}.{namespace}.svc.{domain}"
        for address, host in hosts.items()
        if not host.endswith(f".{domain}") and not host.replace(".", "").isdigit()
    }
    answers = resolve_all([*candidates.values(), *map(hosts.__getitem__, candidates)], _RESOLVE_SECONDS)
    resolved = {host for host, answer in answers.items() if not isinstance(answer, OSError) and answer}
    for address, candidate in candidates.items():
        if candidate in resolved or hosts[address] not in resolved:
            qualified[address] = f"{candidate}:{address.rpartition(':')[2]}"
    return qualified


def addresses_of(hosts: str, namespace: str, domain: str) -> tuple[str, ...]:
    """Return the addresses (``ip:port``) of a list of ``host:port``, resolved as in a pod of the namespace.

    Names that do not resolve are left out.
    """
    addresses: dict[str, None] = {}
    for entry in qualified_addresses(hosts, namespace, domain).values():
        host, _, port = entry.strip().rpartition(":")
        try:
            answers = resolve(host, int(port), _RESOLVE_SECONDS)
        except OSError:
            continue
        addresses |= dict.fromkeys(f"{bracketed(address)}:{port}" for address in answers)
    return tuple(addresses)


def bracketed(address: str) -> str:
    """Return an address as it stands before a port: that of IPv6 in brackets."""
    return f"[{address}]" if ":" in address else address


def credentials_version(
    kubernetes: ReadPort,
    namespace: str,
    controllers: str,
    spec: MigrationSpec,
    needs: Collection[Part] = frozenset(Part),
) -> tuple[str, ...] | None:
    """Return the versions of the Secrets that `open_clients` reads; None if one that the spec names does not exist.

    A Secret that is being replaced is absent for a moment. Open connections stay open in that case.

    Raises
    ------
    ObservationError
        A Secret cannot be read.
    """
    named = [spec.brokers.client_config_secret, spec.controllers.listener.secret_name]
    if Part.ZOOKEEPER in needs:
        named.append(spec.zookeeper.secret_name)
    versions = []
    for name in named:
        if name is not None:
            secret = kubernetes.get("v1", "Secret", namespace, name)
            if secret is None:
                return None
            versions.append(version_of(secret))
    if spec.controllers.listener.generate:
        issued = kubernetes.get("v1", "Secret", namespace, names.issued_listener_secret(controllers))
        if issued is not None:
            versions.append(version_of(issued))
    return tuple(versions)


def secret_text(kubernetes: ReadPort, namespace: str, name: str) -> dict[str, str]:
    """Return a Secret's values as text.

    Raises
    ------
    InvalidSpecError
        The Secret does not exist.
    """
    return certificates.text_files(_files(kubernetes, namespace, name))


def controllers_zookeeper_identities(kubernetes: ReadPort, namespace: str, spec: MigrationSpec) -> tuple[str, ...]:
    """Return the identities that a session of the KRaft controllers has at ZooKeeper.

    These are ``sasl:NAME`` and ``x509:SUBJECT``, each if it has one.

    Kafka supports only SASL and x509 (``ZkConfigs``, KIP-515).
    Only the operator uses credentials of ZooKeeper's ``digest`` scheme.
    A session with TLS has the subject of its client certificate (``X509AuthenticationProvider``),
    with SASL besides the name of its user.

    Raises
    ------
    InvalidSpecError
        The Secret does not exist.
    """
    if spec.zookeeper.secret_name is None:
        return ()
    data = secret_text(kubernetes, namespace, spec.zookeeper.secret_name)
    identities = []
    if data.get("scheme") == "sasl" and "username" in data:
        identities.append(f"sasl:{data['username']}")
    # Without an authority the controllers use no TLS.
    if certificates.has_certificate(data) and certificates.AUTHORITIES in data:
        with suppress(certificates.CredentialsError):  # the controllers' init container names what is wrong with it
            identities.append(f"x509:{certificates.subject(data)}")
    return tuple(identities)


def _files(kubernetes: ReadPort, namespace: str, name: str) -> dict[str, bytes]:
    secret = kubernetes.get("v1", "Secret", namespace, name)
    if secret is None:
        raise InvalidSpecError(f"Secret {namespace}/{name} does not exist")
    return _contents(section(secret, "data"))


def _contents(data: Mapping[str, str]) -> dict[str, bytes]:
    return {key: base64.b64decode(value) for key, value in data.items()}


def texts(data: Mapping[str, str]) -> dict[str, str]:
    """Return the values of a Secret that are text."""
    return certificates.text_files(_contents(data))


def _client_properties(
    kubernetes: ReadPort, namespace: str, secret: str | None, key: str, *, required: bool = True
) -> Mapping[str, str]:
    if secret is None:
        return {}
    files = _files(kubernetes, namespace, secret)
    data = certificates.text_files(files)
    if key not in data:
        if required:
            raise InvalidSpecError(f"Secret {namespace}/{secret} has no key {key}")
        return {}
    try:
        settings = parse_properties(data[key])
    except PropertiesError as error:
        raise InvalidSpecError(f"Secret {namespace}/{secret}, key {key}: {error}") from error
    return inlined(settings, bounds.held(files, f"Secret {namespace}/{secret}"), key)


def _zookeeper_secret(
    kubernetes: ReadPort, namespace: str, spec: MigrationSpec
) -> tuple[ZooKeeperCredentials | None, ZooKeeperTls | None]:
    if spec.zookeeper.secret_name is None:
        return None, None
    data = secret_text(kubernetes, namespace, spec.zookeeper.secret_name)
    credentials = None
    if "username" in data:
        scheme: Literal["digest", "sasl"] = "sasl" if data.get("scheme") == "sasl" else "digest"
        credentials = ZooKeeperCredentials(data["username"], data.get("password", ""), scheme)
    tls = None
    if "ca.crt" in data:
        tls = ZooKeeperTls(data["ca.crt"], data.get("tls.crt"), data.get("tls.key"))
    return credentials, tls
