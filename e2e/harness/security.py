"""How the brokers of a demonstration are secured: the manifests, Secrets and settings that their user wrote.

- ``sasl``: the controllers' listener asks for SASL/PLAIN; everything else is plain text.
- ``generated``: the operator issues the certificates of the controllers' listener, and the user mounts the brokers' one; everything else is plain text.
- ``generated-logins``: the operator issues the controllers' certificate and the logins, and the user gives the brokers theirs; everything else is plain text.
- ``tls``: every connection has TLS and client certificates, also those to ZooKeeper, and each znode belongs to the brokers
  (``zookeeper.set.acl``); the controllers' listener takes a Secret as cert-manager writes it.
- ``scram``: brokers and clients log in with SCRAM, the controllers' listener asks for SASL/PLAIN (both over TLS), ZooKeeper asks for SASL
  (DIGEST-MD5), and each znode belongs to the brokers.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from e2e.harness.kube import DOMAIN

LISTENER_SECRET, CLIENT_SECRET, ZOOKEEPER_SECRET = "controllers-listener", "kafka-clients", "zookeeper-client"
TLS_PORT = 2281
"""Where ZooKeeper listens with TLS; it then has no other port."""
PASSWORD = "of-this-example"
SCRAM_USERS = ("kafka", "clients", "kraftbridge")
"""Brokers, users' tools, and the operator."""
FILES = "/etc/kafka-tls"
CONTROLLERS_FILES = "/etc/kafka-controllers"
_OPERATOR_FILES = "/etc/kraftbridge-credentials/listener"
_DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule required"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
_LOGIN = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="controller" password="{PASSWORD}"'
Data = dict[str, dict[str, str]]
"""Contents of Secrets by name."""


class Security(StrEnum):
    """A variant."""

    SASL = "sasl"
    GENERATED = "generated"
    GENERATED_LOGINS = "generated-logins"
    TLS = "tls"
    SCRAM = "scram"


@dataclass(frozen=True)
class Authority:
    """A certificate authority, made for one run."""

    name: str = "authority of this example"

    @cached_property
    def _key(self) -> rsa.RSAPrivateKey:
        return rsa.generate_private_key(65537, 2048)

    @cached_property
    def certificate(self) -> str:
        """Its own certificate, as PEM."""
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        return self._sign(self.name, self._key, (), constraints)

    def issue(self, common_name: str, hosts: Iterable[str] = ()) -> tuple[str, rsa.RSAPrivateKey]:
        """Return a certificate as PEM for both ends of connections, and its key."""
        key = rsa.generate_private_key(65537, 2048)
        return self._sign(common_name, key, hosts, x509.BasicConstraints(ca=False, path_length=None)), key

    def as_cert_manager_writes(self, common_name: str, hosts: Iterable[str] = ()) -> dict[str, str]:
        """Return the data of a Secret as cert-manager writes it: the key is PKCS#1."""
        certificate, key = self.issue(common_name, hosts)
        return {
            "tls.crt": certificate,
            "tls.key": _pem(key, PrivateFormat.TraditionalOpenSSL),
            "ca.crt": self.certificate,
        }

    def keystore(self, common_name: str, hosts: Iterable[str] = ()) -> dict[str, str]:
        """Return the files that a Java process reads, and those that OpenSSL does."""
        certificate, key = self.issue(common_name, hosts)
        text = _pem(key, PrivateFormat.PKCS8)
        return {"keystore.pem": text + certificate, "tls.crt": certificate, "tls.key": text, "ca.crt": self.certificate}

    def _sign(self, name: str, key: rsa.RSAPrivateKey, hosts: Iterable[str], constraints: x509.BasicConstraints) -> str:
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(_named(name))
            .issuer_name(_named(self.name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(constraints, critical=True)
        )
        if names := [x509.DNSName(host) for host in hosts]:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        if not constraints.ca:
            usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
            builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


def _named(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _pem(key: rsa.RSAPrivateKey, form: PrivateFormat) -> str:
    return key.private_bytes(Encoding.PEM, form, NoEncryption()).decode()


@dataclass(frozen=True)
class Secured:
    """One variant, for the brokers of one namespace."""

    variant: Security
    namespace: str
    prefix: str
    pods: tuple[str, ...]
    """The brokers' pods."""
    authority: Authority

    # ------------------------------------------------------------------------------------------ the user's cluster

    @property
    def plain_cluster(self) -> bool:
        """Whether everything but the controllers' listener is plain text."""
        return self.issued or self.variant is Security.SASL

    @property
    def issued(self) -> bool:
        """Whether the operator issues what the controllers' listener needs."""
        return self.variant in (Security.GENERATED, Security.GENERATED_LOGINS)

    @property
    def zookeeper_port(self) -> int:
        """The only port on which ZooKeeper listens."""
        return TLS_PORT if self.variant is Security.TLS else 2181

    @property
    def login(self) -> str:
        """How the users' tools log in (``KAFKA_LOGIN``)."""
        if self.variant is not Security.SCRAM:
            return ""
        return json.dumps({"user": "clients", "password": PASSWORD, "mechanism": "SCRAM-SHA-512"})

    @property
    def super_users(self) -> list[str]:
        """Brokers, controllers as clients of brokers, users' tools, and the operator."""
        match self.variant:
            case Security.SASL | Security.GENERATED | Security.GENERATED_LOGINS:
                return ["User:ANONYMOUS"]
            case Security.TLS:
                return ["User:CN=kafka", "User:CN=kafka-controllers", "User:CN=clients", "User:CN=kraftbridge"]
            case Security.SCRAM:
                return [f"User:{user}" for user in SCRAM_USERS]

    def secrets(self) -> Data:
        """Return the Secrets of the cluster itself, from before the migration."""
        if self.plain_cluster:
            return {}
        names = [name for pod in self.pods for name in self._names(pod, f"{self.prefix}kafka-headless")]
        brokers = self.authority.keystore("kafka", names)
        zookeeper = self.authority.keystore(
            "zookeeper", self._names(f"{self.prefix}zookeeper-0", f"{self.prefix}zookeeper")
        )
        if self.variant is Security.SCRAM:
            client = f'Client {{\n  {_DIGEST}\n  username="kafka"\n  password="{PASSWORD}";\n}};\n'
            brokers |= {"client.jaas": client}
            zookeeper = {
                "server.jaas": f'Server {{\n  {_DIGEST}\n  user_kafka="{PASSWORD}";\n}};\n',
                "client.jaas": client,
            }
        return {
            f"{self.prefix}kafka-tls": brokers,
            f"{self.prefix}zookeeper-tls": zookeeper,
            f"{self.prefix}clients-tls": self.authority.keystore("clients"),
        }

    def first_users(self, connect: str) -> list[list[str]]:
        """Return the commands that create the brokers' own users, for ZooKeeper's pod: the brokers log in to each other with them."""
        if self.variant is not Security.SCRAM:
            return []
        server, _, chroot = connect.partition("/")
        kafka, tools = ["env", f"KAFKA_OPTS={_java_login('client')}"], "/opt/kafka/bin"
        return [
            [*kafka, f"{tools}/zookeeper-shell.sh", server, "create", f"/{chroot}"],
            *(
                [*kafka, f"{tools}/kafka-configs.sh", "--zookeeper", connect, "--alter", "--entity-type", "users",
                 "--entity-name", user, "--add-config", f"SCRAM-SHA-512=[password={PASSWORD}]"]
                for user in SCRAM_USERS
            ),
        ]  # fmt: skip

    def change(self, manifest: str, documents: list[dict[str, Any]]) -> None:
        """Change the documents of a manifest as the cluster's user did."""
        match manifest:
            case "kafka-env.yaml":
                self._secure_brokers(documents)
            case "zookeeper.yaml" if not self.plain_cluster:
                self._secure_zookeeper(documents)
            case "clients.yaml" | "load.yaml" | "vitals.yaml" if not self.plain_cluster:
                (pod,) = documents
                _mount(pod["spec"], "tls", f"{self.prefix}clients-tls", FILES)
                (container,) = pod["spec"]["containers"]
                container["env"].append({"name": "KAFKA_TLS", "value": FILES})

    def _secure_zookeeper(self, documents: list[dict[str, Any]]) -> None:
        if self.variant is Security.TLS:
            own = {
                "secureClientPort": str(TLS_PORT),
                "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
                "ssl.keyStore.location": f"{FILES}/keystore.pem",
                "ssl.keyStore.type": "PEM",
                "ssl.trustStore.location": f"{FILES}/ca.crt",
                "ssl.trustStore.type": "PEM",
            }
        else:
            provider = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
            own = {"authProvider.sasl": provider, "sessionRequireClientSASLAuth": "true"}
        for document in documents:
            if document["kind"] == "ConfigMap":
                lines = document["data"]["zoo.cfg"]
                if self.variant is Security.TLS:
                    lines = lines.replace("clientPort=2181\n", "")
                document["data"]["zoo.cfg"] = lines + _properties(own)
            elif document["kind"] == "StatefulSet":
                (container,) = document["spec"]["template"]["spec"]["containers"]
                container["readinessProbe"]["tcpSocket"]["port"] = self.zookeeper_port
                if self.variant is Security.SCRAM:
                    container.setdefault("env", []).append({"name": "KAFKA_OPTS", "value": _java_login("server")})
                _mount(document["spec"]["template"]["spec"], "tls", f"{self.prefix}zookeeper-tls", FILES)

    def _secure_brokers(self, documents: list[dict[str, Any]]) -> None:
        for document in documents:
            if document["kind"] != "StatefulSet":
                continue
            (container,) = document["spec"]["template"]["spec"]["containers"]
            entries = {entry["name"]: entry for entry in container["env"]}
            if not self.plain_cluster:
                for setting in ("KAFKA_LISTENERS", "KAFKA_ADVERTISED_LISTENERS"):
                    entries[setting]["value"] = entries[setting]["value"].replace(
                        "PLAINTEXT://", f"{self._listener}://", 1
                    )
                zookeeper = entries["KAFKA_ZOOKEEPER_CONNECT"]
                zookeeper["value"] = zookeeper["value"].replace(":2181", f":{self.zookeeper_port}")
                _mount(document["spec"]["template"]["spec"], "tls", f"{self.prefix}kafka-tls", FILES)
            entries |= {name: {"name": name, "value": value} for name, value in self._brokers_settings().items()}
            container["env"] = list(entries.values())

    @property
    def _listener(self) -> str:
        """Name of the brokers' listener, which is that of its protocol too."""
        return "SASL_SSL" if self.variant is Security.SCRAM else "SSL"

    def _brokers_settings(self) -> dict[str, str]:
        if self.issued:
            return {}
        to_controllers = {
            "KAFKA_SASL_MECHANISM_CONTROLLER_PROTOCOL": "PLAIN",
            "KAFKA_LISTENER_NAME_CONTROLLER_PLAIN_SASL_JAAS_CONFIG": f"{_LOGIN};",
        }
        if self.variant is Security.SASL:
            return to_controllers
        keystore, truststore = f"{FILES}/keystore.pem", f"{FILES}/ca.crt"
        both = {
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": f"{self._listener}:{self._listener},SASL_PLAINTEXT:SASL_PLAINTEXT",
            "KAFKA_INTER_BROKER_LISTENER_NAME": self._listener,
            "KAFKA_SUPER_USERS": ";".join(self.super_users),
            "KAFKA_SSL_KEYSTORE_TYPE": "PEM",
            "KAFKA_SSL_KEYSTORE_LOCATION": keystore,
            "KAFKA_SSL_TRUSTSTORE_TYPE": "PEM",
            "KAFKA_SSL_TRUSTSTORE_LOCATION": truststore,
            "KAFKA_ZOOKEEPER_SET_ACL": "true",
        }
        if self.variant is Security.SCRAM:
            return {
                **both,
                **to_controllers,
                "KAFKA_LISTENER_NAME_SASL__SSL_SASL_ENABLED_MECHANISMS": "SCRAM-SHA-512",
                "KAFKA_LISTENER_NAME_SASL__SSL_SCRAM___SHA___512_SASL_JAAS_CONFIG": _scram("kafka"),
                "KAFKA_SASL_MECHANISM_INTER_BROKER_PROTOCOL": "SCRAM-SHA-512",
                "KAFKA_OPTS": _java_login("client"),
            }
        return {
            **both,
            "KAFKA_SSL_CLIENT_AUTH": "required",
            "KAFKA_ZOOKEEPER_SSL_CLIENT_ENABLE": "true",
            "KAFKA_ZOOKEEPER_SSL_KEYSTORE_TYPE": "PEM",
            "KAFKA_ZOOKEEPER_SSL_KEYSTORE_LOCATION": keystore,
            "KAFKA_ZOOKEEPER_SSL_TRUSTSTORE_TYPE": "PEM",
            "KAFKA_ZOOKEEPER_SSL_TRUSTSTORE_LOCATION": truststore,
            # zookeeper.clientCnxnSocket: no variable of the image has a capital letter in its setting.
            "KAFKA_OPTS": "-Dzookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty",
        }

    # -------------------------------------------------------------------------------------------- the migration

    def migration_secrets(self) -> Data:
        """Return the Secrets that a migration uses and that name no controller."""
        trust = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": self.authority.certificate}
        to_controllers = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f"{_LOGIN};",
        }
        if self.issued:
            return {}
        if self.variant is Security.SASL:
            client = {"security.protocol": "PLAINTEXT"}
            return {
                CLIENT_SECRET: {
                    "client.properties": _properties(client),
                    "controller.properties": _properties(to_controllers),
                }
            }
        if self.variant is Security.SCRAM:
            client = {
                **trust,
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.jaas.config": _scram("kraftbridge"),
            }
            return {
                CLIENT_SECRET: {
                    "client.properties": _properties(client),
                    "controller.properties": _properties({**to_controllers, **trust, "security.protocol": "SASL_SSL"}),
                },
                ZOOKEEPER_SECRET: {"scheme": "sasl", "username": "kafka", "password": PASSWORD},
            }
        certificate, key = self.authority.issue("kraftbridge")
        client = {
            **trust,
            "security.protocol": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": _pem(key, PrivateFormat.PKCS8),
            "ssl.keystore.certificate.chain": certificate,
        }
        return {
            CLIENT_SECRET: {
                "client.properties": _properties(client)
            },  # controllers take their listener's own certificate
            ZOOKEEPER_SECRET: self.authority.as_cert_manager_writes("kafka"),
        }

    def listener_secret(self, controllers: str) -> Data:
        """Return the Secret of the controllers' listener, whose certificate names them.

        It also says how the controllers reach the brokers' inter-broker listener until the brokers are KRaft brokers.
        """
        settings = {
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.controller.plain.sasl.jaas.config": f'{_LOGIN} user_controller="{PASSWORD}";',
        }
        if self.variant is Security.SASL:
            return {LISTENER_SECRET: {"listener.properties": _properties(settings)}}
        files = self.authority.as_cert_manager_writes(
            "kafka-controllers", [f"*.{controllers}.{self.namespace}.svc.{DOMAIN}"]
        )
        prefix = f"listener.name.{self._listener.lower()}"
        trust = {
            f"{prefix}.ssl.truststore.type": "PEM",
            f"{prefix}.ssl.truststore.location": f"{_OPERATOR_FILES}/truststore.pem",
        }
        if self.variant is Security.SCRAM:
            settings |= {**trust, f"{prefix}.scram-sha-512.sasl.jaas.config": _scram("kafka")}
        else:
            settings = {
                **trust,
                f"{prefix}.ssl.keystore.type": "PEM",
                f"{prefix}.ssl.keystore.location": f"{_OPERATOR_FILES}/keystore.pem",
            }
        return {LISTENER_SECRET: files | {"listener.properties": _properties(settings)}}

    def change_spec(self, spec: dict[str, Any]) -> None:
        """Change what a migration of plain brokers says."""
        controllers, accepted = spec["controllers"], spec["preflight"]["accepted"]
        if self.plain_cluster:
            accepted[:] = [item for item in accepted if item["code"] != "ControllerListenerPlaintext"]
        if self.variant is Security.GENERATED:
            controllers["listener"] = {"securityProtocol": "SSL", "generate": True}
            return
        if self.variant is Security.GENERATED_LOGINS:
            # The brokers get their login before anything else begins.
            spec["target"] = "Preflight"
            controllers["listener"] = {"securityProtocol": "SASL_SSL", "generate": True}
            return
        protocols = {Security.SASL: "SASL_PLAINTEXT", Security.TLS: "SSL", Security.SCRAM: "SASL_SSL"}
        spec["brokers"]["clientConfigSecret"] = CLIENT_SECRET
        controllers["listener"] = {"securityProtocol": protocols[self.variant], "secretName": LISTENER_SECRET}
        controllers["superUsers"] = self.super_users
        if self.variant is not Security.TLS:
            controllers["superUsers"] = [*self.super_users, "User:controller"]
        if self.variant is not Security.SASL:
            spec["zookeeper"]["secretName"] = ZOOKEEPER_SECRET
            accepted.clear()

    def _names(self, pod: str, service: str) -> list[str]:
        # OpenSSL takes no wildcard for names with a single dot.
        return [f"{pod}.{service}", f"{pod}.{service}.{self.namespace}.svc.{DOMAIN}"]


def trust_controllers(documents: list[dict[str, Any]], secret: str) -> None:
    """Mount the Secret that the operator issued to the brokers, with the settings of the security guide for a login."""
    tls = {"TRUSTSTORE_TYPE": "PEM", "TRUSTSTORE_LOCATION": f"{CONTROLLERS_FILES}/ca.crt"}
    settings = [{"name": f"KAFKA_LISTENER_NAME_CONTROLLER_SSL_{name}", "value": value} for name, value in tls.items()]
    jaas = {"secretKeyRef": {"name": secret, "key": "sasl.jaas.config"}}
    settings += [
        {"name": "KAFKA_SASL_MECHANISM_CONTROLLER_PROTOCOL", "value": "PLAIN"},
        {"name": "KAFKA_LISTENER_NAME_CONTROLLER_PLAIN_SASL_JAAS_CONFIG", "valueFrom": jaas},
    ]
    for document in documents:
        if document["kind"] == "StatefulSet":
            pod = document["spec"]["template"]["spec"]
            _mount(pod, "controllers", secret, CONTROLLERS_FILES)
            (container,) = pod["containers"]
            container["env"] += settings


def _mount(pod: dict[str, Any], volume: str, secret: str, path: str) -> None:
    """Mount a Secret into the only container of a pod's spec."""
    (container,) = pod["containers"]
    pod.setdefault("volumes", []).append({"name": volume, "secret": {"secretName": secret}})
    container.setdefault("volumeMounts", []).append({"name": volume, "mountPath": path, "readOnly": True})


def _scram(user: str) -> str:
    return f'{_SCRAM} username="{user}" password="{PASSWORD}";'


def _java_login(end: str) -> str:
    """Return the option that names the JAAS file of one end of connections to ZooKeeper, ``client`` or ``server``."""
    return f"-Djava.security.auth.login.config={FILES}/{end}.jaas"


def _properties(values: Mapping[str, str]) -> str:
    """Return a properties file; PEM becomes one line."""
    return "".join(f"{name}={value.strip().replace(chr(10), chr(92) + 'n')}\n" for name, value in values.items())
