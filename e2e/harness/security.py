"""How the brokers of a demonstration are secured: the manifests, Secrets and settings that their user wrote.

- ``sasl``: the controllers' listener asks for SASL/PLAIN; everything else is plain text.
- ``tls``: every connection has TLS and client certificates, also those to ZooKeeper, and each znode belongs to the brokers
  (``zookeeper.set.acl``); the controllers' listener takes a Secret as cert-manager writes it.
"""

from __future__ import annotations

import datetime as dt
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

LISTENER_SECRET, CLIENT_SECRET, ZOOKEEPER_SECRET = "controllers-listener", "kafka-clients", "zookeeper-client"
TLS_PORT = 2281
"""Where ZooKeeper listens with TLS; it then has no other port."""
PASSWORD = "of-this-example"
FILES = "/etc/kafka-tls"
_OPERATOR_FILES = "/etc/kraftbridge-credentials/listener"
_LOGIN = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="controller" password="{PASSWORD}"'
Data = dict[str, dict[str, str]]
"""Contents of Secrets by name."""


class Security(StrEnum):
    """A variant."""

    SASL = "sasl"
    TLS = "tls"


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
    def zookeeper_port(self) -> int:
        """The only port on which ZooKeeper listens."""
        return TLS_PORT if self.variant is Security.TLS else 2181

    @property
    def super_users(self) -> list[str]:
        """Brokers, controllers as clients of brokers, users' tools, and the operator."""
        if self.variant is Security.TLS:
            return ["User:CN=kafka", "User:CN=kafka-controllers", "User:CN=clients", "User:CN=kraftbridge"]
        return ["User:ANONYMOUS"]

    def secrets(self) -> Data:
        """Return the Secrets of the cluster itself, from before the migration."""
        if self.variant is Security.SASL:
            return {}
        names = [name for pod in self.pods for name in self._names(pod, f"{self.prefix}kafka-headless")]
        zookeeper = self._names(f"{self.prefix}zookeeper-0", f"{self.prefix}zookeeper")
        return {
            f"{self.prefix}kafka-tls": self.authority.keystore("kafka", names),
            f"{self.prefix}zookeeper-tls": self.authority.keystore("zookeeper", zookeeper),
            f"{self.prefix}clients-tls": self.authority.keystore("clients"),
        }

    def change(self, manifest: str, documents: list[dict[str, Any]]) -> None:
        """Change the documents of a manifest as the cluster's user did."""
        match manifest:
            case "kafka-env.yaml":
                self._secure_brokers(documents)
            case "zookeeper.yaml" if self.variant is Security.TLS:
                self._secure_zookeeper(documents)
            case "clients.yaml" | "load.yaml" | "vitals.yaml" if self.variant is Security.TLS:
                (pod,) = documents
                self._mount(pod["spec"], f"{self.prefix}clients-tls")
                (container,) = pod["spec"]["containers"]
                container["env"].append({"name": "KAFKA_TLS", "value": FILES})

    def _secure_zookeeper(self, documents: list[dict[str, Any]]) -> None:
        own = {
            "secureClientPort": str(TLS_PORT),
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.location": f"{FILES}/keystore.pem",
            "ssl.keyStore.type": "PEM",
            "ssl.trustStore.location": f"{FILES}/ca.crt",
            "ssl.trustStore.type": "PEM",
        }
        for document in documents:
            if document["kind"] == "ConfigMap":
                lines = document["data"]["zoo.cfg"].replace("clientPort=2181\n", "")
                document["data"]["zoo.cfg"] = lines + _properties(own)
            elif document["kind"] == "StatefulSet":
                (container,) = document["spec"]["template"]["spec"]["containers"]
                container["readinessProbe"]["tcpSocket"]["port"] = self.zookeeper_port
                self._mount(document["spec"]["template"]["spec"], f"{self.prefix}zookeeper-tls")

    def _secure_brokers(self, documents: list[dict[str, Any]]) -> None:
        for document in documents:
            if document["kind"] != "StatefulSet":
                continue
            (container,) = document["spec"]["template"]["spec"]["containers"]
            entries = {entry["name"]: entry for entry in container["env"]}
            if self.variant is Security.TLS:
                for setting in ("KAFKA_LISTENERS", "KAFKA_ADVERTISED_LISTENERS"):
                    entries[setting]["value"] = entries[setting]["value"].replace("PLAINTEXT://", "SSL://", 1)
                zookeeper = entries["KAFKA_ZOOKEEPER_CONNECT"]
                zookeeper["value"] = zookeeper["value"].replace(":2181", f":{TLS_PORT}")
                self._mount(document["spec"]["template"]["spec"], f"{self.prefix}kafka-tls")
            entries |= {name: {"name": name, "value": value} for name, value in self._brokers_settings().items()}
            container["env"] = list(entries.values())

    def _brokers_settings(self) -> dict[str, str]:
        if self.variant is Security.SASL:
            return {
                "KAFKA_SASL_MECHANISM_CONTROLLER_PROTOCOL": "PLAIN",
                "KAFKA_LISTENER_NAME_CONTROLLER_PLAIN_SASL_JAAS_CONFIG": f"{_LOGIN};",
            }
        keystore, truststore = f"{FILES}/keystore.pem", f"{FILES}/ca.crt"
        return {
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
            "KAFKA_INTER_BROKER_LISTENER_NAME": "SSL",
            "KAFKA_SUPER_USERS": ";".join(self.super_users),
            "KAFKA_SSL_CLIENT_AUTH": "required",
            "KAFKA_SSL_KEYSTORE_TYPE": "PEM",
            "KAFKA_SSL_KEYSTORE_LOCATION": keystore,
            "KAFKA_SSL_TRUSTSTORE_TYPE": "PEM",
            "KAFKA_SSL_TRUSTSTORE_LOCATION": truststore,
            "KAFKA_ZOOKEEPER_SET_ACL": "true",
            "KAFKA_ZOOKEEPER_SSL_CLIENT_ENABLE": "true",
            "KAFKA_ZOOKEEPER_SSL_KEYSTORE_TYPE": "PEM",
            "KAFKA_ZOOKEEPER_SSL_KEYSTORE_LOCATION": keystore,
            "KAFKA_ZOOKEEPER_SSL_TRUSTSTORE_TYPE": "PEM",
            "KAFKA_ZOOKEEPER_SSL_TRUSTSTORE_LOCATION": truststore,
            # zookeeper.clientCnxnSocket: no variable of the image has a capital letter in its setting.
            "KAFKA_OPTS": "-Dzookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty",
        }

    def _mount(self, pod: dict[str, Any], secret: str) -> None:
        """Mount a Secret into the only container of a pod's spec."""
        (container,) = pod["containers"]
        pod.setdefault("volumes", []).append({"name": "tls", "secret": {"secretName": secret}})
        container.setdefault("volumeMounts", []).append({"name": "tls", "mountPath": FILES, "readOnly": True})

    # -------------------------------------------------------------------------------------------- the migration

    def migration_secrets(self) -> Data:
        """Return the Secrets that a migration uses and that name no controller."""
        if self.variant is Security.SASL:
            controllers = {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": f"{_LOGIN};",
            }
            client = {"security.protocol": "PLAINTEXT"}
            return {
                CLIENT_SECRET: {
                    "client.properties": _properties(client),
                    "controller.properties": _properties(controllers),
                }
            }
        certificate, key = self.authority.issue("kraftbridge")
        client = {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": self.authority.certificate,
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

        With TLS it also says how the controllers reach the brokers' inter-broker listener until the brokers are KRaft brokers.
        """
        if self.variant is Security.SASL:
            settings = {
                "sasl.mechanism.controller.protocol": "PLAIN",
                "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
                "listener.name.controller.plain.sasl.jaas.config": f'{_LOGIN} user_controller="{PASSWORD}";',
            }
            return {LISTENER_SECRET: {"listener.properties": _properties(settings)}}
        files = self.authority.as_cert_manager_writes(
            "kafka-controllers", [f"*.{controllers}.{self.namespace}.svc.cluster.local"]
        )
        settings = {
            "listener.name.ssl.ssl.truststore.type": "PEM",
            "listener.name.ssl.ssl.truststore.location": f"{_OPERATOR_FILES}/truststore.pem",
            "listener.name.ssl.ssl.keystore.type": "PEM",
            "listener.name.ssl.ssl.keystore.location": f"{_OPERATOR_FILES}/keystore.pem",
        }
        return {LISTENER_SECRET: files | {"listener.properties": _properties(settings)}}

    def change_spec(self, spec: dict[str, Any]) -> None:
        """Change what a migration of plain brokers says."""
        spec["brokers"]["clientConfigSecret"] = CLIENT_SECRET
        controllers, accepted = spec["controllers"], spec["preflight"]["accepted"]
        if self.variant is Security.SASL:
            controllers["listener"] = {"securityProtocol": "SASL_PLAINTEXT", "secretName": LISTENER_SECRET}
            controllers["superUsers"] = [*self.super_users, "User:controller"]
            accepted[:] = [item for item in accepted if item["code"] != "ControllerListenerPlaintext"]
        else:
            controllers["listener"] = {"securityProtocol": "SSL", "secretName": LISTENER_SECRET}
            controllers["superUsers"] = self.super_users
            spec["zookeeper"]["secretName"] = ZOOKEEPER_SECRET
            accepted.clear()

    def _names(self, pod: str, service: str) -> list[str]:
        # OpenSSL takes no wildcard for names with a single dot.
        return [f"{pod}.{service}", f"{pod}.{service}.{self.namespace}.svc.cluster.local"]


def _properties(values: Mapping[str, str]) -> str:
    """Return a properties file; PEM becomes one line."""
    return "".join(f"{name}={value.strip().replace(chr(10), chr(92) + 'n')}\n" for name, value in values.items())
