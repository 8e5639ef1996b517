"""Names that users and other programs see: API group, labels, annotations, field manager, ports."""

from __future__ import annotations

from typing import Final

GROUP: Final = "kraftbridge.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "KafkaMigration"
PLURAL: Final = "kafkamigrations"
SHORT_NAME: Final = "kmig"

UID_LENGTH: Final = 8
"""Number of characters of a resource's UID in the names of its objects.
They tell apart resources that had the same name in one namespace."""
SPARK_API_VERSION: Final = "sparkoperator.k8s.io/v1beta2"
RBAC_API_VERSION: Final = "rbac.authorization.k8s.io/v1"

FIELD_MANAGER: Final = "kraftbridge"
"""Field manager of every object that the operator owns or overlays by server-side apply."""

FINALIZER: Final = f"{GROUP}/migration"

LABEL_MIGRATION: Final = f"{GROUP}/migration"
"""On every object that the operator creates: the name of the migration."""
LABEL_ROLE: Final = f"{GROUP}/role"
"""``controller`` on the controllers' pods, ``verifier`` on a verification's, ``rehearsal`` on a rehearsal's."""
LABEL_RUN: Final = f"{GROUP}/run-id"

ANNOTATION_LOCK: Final = f"{GROUP}/locked-by"
"""On a StatefulSet of the user while a migration drives it: ``namespace/name/uid`` of that migration.
The chart's ValidatingAdmissionPolicy refuses other writers' changes while it stands."""
ANNOTATION_TAKEN_OVER: Final = f"{GROUP}/taken-over-by"
"""On a StatefulSet for a moment, while a process takes its Lease over."""
ANNOTATION_CONFIGURATION: Final = f"{GROUP}/configuration"
"""On a pod template: which node configuration it renders, as ``Mode-hash``."""
ANNOTATION_BROKER_MODE: Final = f"{GROUP}/broker-mode"
"""On a pod template, written by the user: ``KRaft`` says that the properties file of the template is for KRaft."""
ANNOTATION_ABANDON: Final = f"{GROUP}/abandon"
"""On a KafkaMigration: ``true`` lets it be deleted half-way, leaving the cluster as it is."""

ANNOTATION_REHEARSE: Final = f"{GROUP}/rehearse"
"""On a KafkaMigration: any new value has preflight rehearse again."""
ANNOTATION_RECORD_STEP: Final = f"{GROUP}/record-step"
"""On a KafkaMigration: any new value has the operator record one step in a ConfigMap."""

DEFAULT_CLUSTER_DOMAIN: Final = "cluster.local"
"""DNS domain of a cluster whose kubelet sets no other (``clusterDomain``)."""

CONTROLLER_LISTENER: Final = "CONTROLLER"
"""Name of the controllers' listener."""
CONTROLLER_LISTENER_PREFIX: Final = f"listener.name.{CONTROLLER_LISTENER.lower()}."
"""Prefix of the settings of that listener alone (KIP-103)."""
FORBID_PEM_FILES: Final = frozenset(
    {
        "ssl.keystore.password",
        "ssl.key.password",
        "ssl.truststore.password",
        "ssl.keystore.key",
        "ssl.truststore.certificates",
    }
)
"""Settings of a broker that its listeners inherit. Kafka refuses PEM files beside them (`DefaultSslEngineFactory`)."""
CONTROLLER_PORT: Final = 9093
ISOLATED_CONTROLLER_PORT: Final = 9095
"""Port of controllers that no broker may reach, at the end of a rollback."""
METRICS_PORT: Final = 9404
LOG_SERVER_PORT: Final = 9443

CANARY_USER: Final = "kraftbridge-canary"
"""The user entity whose client quota proves that a change reaches both stores."""


def canary_topic(value: int) -> str:
    """Return the name of the canary topic, which shows that the KRaft controller's changes reach every broker."""
    return f"kraftbridge-canary-{value}"


ACL_AUTHORIZER: Final = "kafka.security.authorizer.AclAuthorizer"
"""``authorizer.class.name`` of a cluster on ZooKeeper."""
STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""``authorizer.class.name`` of a KRaft cluster (KIP-801)."""

OVERLAID_SETTINGS: Final = (
    "controller.listener.names",
    "controller.quorum.voters",
    "listener.security.protocol.map",
    "zookeeper.metadata.migration.enable",
    "process.roles",
    "authorizer.class.name",
    "log.initial.task.delay.ms",
)
"""Settings of the brokers that the migration sets."""

SPARK_JAVA_OPTIONS: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Options of the JVMs of a verification.
One that lives for a minute gains nothing from the second compiler, which takes a third of its processor time."""

FIND_KAFKA: Final = """tools= ending=
for each in ${KAFKA_HOME:+"$KAFKA_HOME/bin"} /opt/kafka/bin /opt/bitnami/kafka/bin /usr/bin \
"$(dirname "$(command -v kafka-run-class.sh || command -v kafka-run-class || echo /)")"; do
  for end in .sh ""; do
    if [ -z "$tools" ] && [ -x "$each/kafka-run-class$end" ]; then tools=$each ending=$end; fi
  done
done
"""
"""Shell: sets ``tools`` to the directory of Kafka's scripts in an image and ``ending`` to the ending of their names.
Both are empty without Kafka.
Apache's image has ``/opt/kafka``, Bitnami's ``/opt/bitnami/kafka``, Confluent's ``/usr/bin`` without ``.sh``."""
NO_KAFKA: Final = (
    "this image has no kafka-run-class in KAFKA_HOME/bin, /opt/kafka/bin, /opt/bitnami/kafka/bin, /usr/bin or PATH"
)
