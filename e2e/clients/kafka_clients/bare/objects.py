"""The Kubernetes objects that the procedure makes, and what it changes in the brokers' StatefulSet."""

import re
from dataclasses import dataclass
from typing import Any

CONTROLLERS = "kraft"
CONTROLLER_IDS = (3000, 3001, 3002)
CONTROLLER_PORT = 9093
METRICS_PORT = 9404
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SECURITY_PROTOCOLS = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
SHORT_TTL = "-Dsun.net.inetaddr.ttl=1 -Dsun.net.inetaddr.negative.ttl=0"


@dataclass(frozen=True)
class Names:
    """Facts about the cluster, and the settings that the procedure adds."""

    namespace: str
    prefix: str
    zookeeper_connect: str
    style: str
    kafka_image: str
    exporter_image: str
    exporter_jar: str
    short_ttl: bool

    @property
    def brokers(self) -> str:
        return f"{self.prefix}kafka"

    @property
    def voters(self) -> str:
        return ",".join(f"{node}@{controller_host(node, self.namespace)}:{CONTROLLER_PORT}" for node in CONTROLLER_IDS)


def controller_host(node: int, namespace: str) -> str:
    """Return the DNS name of a controller's pod."""
    return f"{CONTROLLERS}-{node}.{CONTROLLERS}.{namespace}.svc.cluster.local"


def controllers_service() -> dict[str, Any]:
    """Return the controllers' headless Service; names must resolve before the pods are ready."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": CONTROLLERS},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"app": CONTROLLERS},
            "ports": [{"name": "controller", "port": CONTROLLER_PORT}],
        },
    }


def exporter_config() -> dict[str, Any]:
    """Return the ConfigMap with the JMX exporter's rules."""
    rules = 'includeObjectNames: ["kafka.controller:*", "kafka.server:type=raft-metrics"]\n'
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{CONTROLLERS}-metrics"},
        "data": {"rules.yaml": rules},
    }


def controllers(names: Names, cluster_id: str, *, migrating: bool) -> dict[str, Any]:
    """Return the controllers' StatefulSet, with or without what makes it migrate."""
    pod_index = {"fieldRef": {"fieldPath": "metadata.labels['apps.kubernetes.io/pod-index']"}}
    password = {"secretKeyRef": {"name": f"{names.prefix}kafka-password-encoder", "key": "secret"}}
    env: list[dict[str, Any]] = [
        {"name": "KAFKA_NODE_ID", "valueFrom": pod_index},
        {"name": "KAFKA_PASSWORD_ENCODER_SECRET", "valueFrom": password},
        *_env(
            KAFKA_HEAP_OPTS="-Xmx192m",
            KAFKA_OPTS=f"-javaagent:/exporter/exporter.jar={METRICS_PORT}:/exporter-config/rules.yaml",
            CLUSTER_ID=cluster_id,
            KAFKA_PROCESS_ROLES="controller",
            KAFKA_LISTENERS=f"CONTROLLER://:{CONTROLLER_PORT}",
            KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=SECURITY_PROTOCOLS,
            KAFKA_INTER_BROKER_LISTENER_NAME="PLAINTEXT",
            KAFKA_CONTROLLER_LISTENER_NAMES="CONTROLLER",
            KAFKA_CONTROLLER_QUORUM_VOTERS=names.voters,
            KAFKA_LOG_DIRS="/data/kafka",
            KAFKA_AUTHORIZER_CLASS_NAME=STANDARD_AUTHORIZER,
            KAFKA_SUPER_USERS="User:ANONYMOUS",
            KAFKA_SASL_ENABLED_MECHANISMS="SCRAM-SHA-256,SCRAM-SHA-512",
        ),
    ]
    if migrating:
        env += _env(KAFKA_ZOOKEEPER_METADATA_MIGRATION_ENABLE="true", KAFKA_ZOOKEEPER_CONNECT=names.zookeeper_connect)
    if names.short_ttl:
        env += _env(JAVA_TOOL_OPTIONS=SHORT_TTL)
    exporter = {"name": "exporter", "mountPath": "/exporter"}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": CONTROLLERS},
        "spec": {
            "replicas": len(CONTROLLER_IDS),
            "serviceName": CONTROLLERS,
            "ordinals": {"start": CONTROLLER_IDS[0]},
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "selector": {"matchLabels": {"app": CONTROLLERS}},
            "template": {
                "metadata": {"labels": {"app": CONTROLLERS}},
                "spec": {
                    "securityContext": {
                        "runAsUser": 1000,
                        "runAsGroup": 1000,
                        "fsGroup": 1000,
                        "runAsNonRoot": True,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "enableServiceLinks": False,
                    "initContainers": [
                        {
                            "name": "exporter",
                            "securityContext": RESTRICTED,
                            "image": names.exporter_image,
                            "imagePullPolicy": "IfNotPresent",
                            "command": ["cp", names.exporter_jar, "/exporter/exporter.jar"],
                            "volumeMounts": [exporter],
                        }
                    ],
                    "containers": [
                        {
                            "name": "kafka",
                            "securityContext": RESTRICTED,
                            "image": names.kafka_image,
                            "imagePullPolicy": "IfNotPresent",
                            "ports": [{"containerPort": CONTROLLER_PORT}, {"containerPort": METRICS_PORT}],
                            "readinessProbe": {"tcpSocket": {"port": CONTROLLER_PORT}, "periodSeconds": 3},
                            "resources": {
                                "requests": {"cpu": "100m", "memory": "384Mi"},
                                "limits": {"memory": "768Mi"},
                            },
                            "env": env,
                            "volumeMounts": [
                                {"name": "data", "mountPath": "/data"},
                                {"name": "exporter-config", "mountPath": "/exporter-config"},
                                exporter,
                            ],
                        }
                    ],
                    "volumes": [
                        {"name": "exporter", "emptyDir": {}},
                        {"name": "exporter-config", "configMap": {"name": f"{CONTROLLERS}-metrics"}},
                    ],
                },
            },
            "volumeClaimTemplates": [
                {
                    "metadata": {"name": "data"},
                    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
                }
            ],
        },
    }


def migration_settings(names: Names) -> dict[str, str]:
    """Return what a broker needs to register with the quorum while it is on ZooKeeper (KIP-866)."""
    return _quorum_settings(names) | {"zookeeper.metadata.migration.enable": "true"}


def kraft_settings(names: Names) -> dict[str, str]:
    """Return what makes a broker a KRaft broker."""
    return _quorum_settings(names) | {"process.roles": "broker", "authorizer.class.name": STANDARD_AUTHORIZER}


def broker_env(names: Names, settings: dict[str, str], cluster_id: str) -> dict[str, Any]:
    """Return our part of a StatefulSet whose brokers are configured by variables."""
    env = _env(**{"KAFKA_" + name.upper().replace(".", "_"): value for name, value in settings.items()})
    # The image formats new log directories with this id; without it, with a default one.
    env += _env(CLUSTER_ID=cluster_id)
    return _template(names, {"containers": [{"name": "kafka", "env": env + _ttl_env(names)}]})


def broker_config_map(name: str, text: str, settings: dict[str, str]) -> dict[str, Any]:
    """Return a ConfigMap with the user's properties and ours; of two lines for one setting the last one wins."""
    if "process.roles" in settings:
        text = re.sub(r"(?m)^(zookeeper|inter\.broker\.protocol)\..*\n", "", text)
    ours = "".join(f"{key}={value}\n" for key, value in settings.items())
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": {"server.properties": text.rstrip("\n") + "\n" + ours},
    }


def broker_volume(names: Names, config_map: str) -> dict[str, Any]:
    """Return our part of a StatefulSet whose brokers are configured by a file."""
    parts: dict[str, Any] = {"volumes": [{"name": "config", "configMap": {"name": config_map}}]}
    if names.short_ttl:
        parts["containers"] = [{"name": "kafka", "env": _ttl_env(names)}]
    return _template(names, parts)


def _quorum_settings(names: Names) -> dict[str, str]:
    return {
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": names.voters,
        "listener.security.protocol.map": SECURITY_PROTOCOLS,
    }


def _ttl_env(names: Names) -> list[dict[str, Any]]:
    return _env(JAVA_TOOL_OPTIONS=SHORT_TTL) if names.short_ttl else []


def _template(names: Names, pod_spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": names.brokers},
        "spec": {"template": {"spec": pod_spec}},
    }


def _env(**values: str) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in values.items()]
