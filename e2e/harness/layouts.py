"""Layouts of other people's brokers: a vendor's chart and image, the values that a user sets, and the KafkaMigration that the docs tell for it.

Charts and entrypoints are read from a folder that is no part of this repository (``VENDOR``): ``charts/bitnami-kafka`` (31.5.0),
``charts/cp-kafka``, ``images/bitnami`` and ``images/confluent``, as their projects publish them.
"""

from dataclasses import dataclass, field
from typing import Any

ZOOKEEPER = "zookeeper-0.zookeeper:2181"
RELEASE = "shop"
BITNAMI_IMAGE = "localhost/kraftbridge-layout-bitnami:3.9.1"
CONFLUENT_IMAGE = "localhost/kraftbridge-layout-confluent:3.9.1"
CONTROLLERS_SECRET = "controllers-logins"
CLIENT_SECRET = "kafka-client"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@dataclass(frozen=True)
class Layout:
    """One way to run brokers, and the migration for it."""

    name: str
    title: str
    """What it is, for the table in the docs."""
    image: str
    build: str
    """Folder of the image below ``VENDOR/images``."""
    chart: str
    """Folder of the chart below ``VENDOR/charts``."""
    values: dict[str, Any]
    """Of the chart: what a user of the defaults has to set, and less memory."""
    stateful_set: str
    headless: str
    brokers: dict[str, Any]
    """``spec.brokers`` of the KafkaMigration besides names and addresses."""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables that a user sets (``kubectl set env``) after the first start, to prepare the migration."""
    secrets: dict[str, dict[str, str]] = field(default_factory=dict)
    listener: dict[str, Any] = field(default_factory=dict)
    """Additions to ``spec.controllers.listener``."""
    login: dict[str, str] | None = None
    """How clients log in (``KAFKA_LOGIN``)."""

    @property
    def values_for(self) -> str:
        """The chart in the names of the final manifest's files of values."""
        return "cp-kafka" if self.build == "confluent" else "bitnami"

    @property
    def bootstrap(self) -> str:
        """The brokers' addresses for clients."""
        return ",".join(f"{self.stateful_set}-{i}.{self.headless}:9092" for i in range(3))


_BITNAMI_VALUES: dict[str, Any] = {
    "global": {"security": {"allowInsecureImages": True}},
    "image": {"registry": "localhost", "repository": "kraftbridge-layout-bitnami", "tag": "3.9.1"},
    "kraft": {"enabled": False},
    "controller": {"replicaCount": 0},
    "broker": {"replicaCount": 3, "heapOpts": "-Xmx320m -Xms320m", "persistence": {"size": "1Gi"}},
    "zookeeper": {"enabled": False},
    "externalZookeeper": {"servers": [ZOOKEEPER]},
    "sasl": {
        "interbroker": {"password": "of-this-example"},
        "client": {"users": ["user1"], "passwords": ["of-this-example"]},
    },
    "extraConfig": "inter.broker.protocol.version=3.9\n",
}
_BITNAMI: dict[str, Any] = {
    "image": BITNAMI_IMAGE,
    "build": "bitnami",
    "chart": "bitnami-kafka",
    "stateful_set": f"{RELEASE}-kafka-broker",
    "headless": f"{RELEASE}-kafka-broker-headless",
    "login": {"user": "user1", "password": "of-this-example", "mechanism": "SCRAM-SHA-256"},
}
_BITNAMI_CLIENT = {
    CLIENT_SECRET: {
        "client.properties": f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        f'sasl.jaas.config={_SCRAM} username="user1" password="of-this-example";\n',
        "controller.properties": "security.protocol=PLAINTEXT\n",
    }
}
_BITNAMI_LOGIN = {
    CONTROLLERS_SECRET: {
        "listener.properties": "listener.name.internal.plain.sasl.jaas.config="
        f'{_PLAIN} username="inter_broker_user" password="of-this-example";\n'
    }
}
_BITNAMI_PREPARED: dict[str, Any] = {
    **_BITNAMI,
    # The chart itself renders `true`; after an upgrade that adds a second entry of this name, `true` was still in effect.
    "environment": {"KAFKA_ZOOKEEPER_BOOTSTRAP_SCRAM_USERS": "false"},
    "secrets": _BITNAMI_CLIENT | _BITNAMI_LOGIN,
    "listener": {"secretName": CONTROLLERS_SECRET},
}
_ENV = {"container": "kafka", "configStyle": "Env", "envPrefix": "KAFKA_CFG_", "clientConfigSecret": CLIENT_SECRET}
_PROPERTIES = {
    "container": "kafka",
    "configStyle": "Properties",
    "properties": {
        "volume": "kafka-configmaps",
        "configMap": f"{RELEASE}-kafka-broker-configuration",
        "key": "server.properties",
    },
    "clientConfigSecret": CLIENT_SECRET,
}

LAYOUTS = (
    Layout(
        name="confluent",
        title="cp-helm-charts `cp-kafka` with cp-kafka 7.9's entrypoint, defaults; `configStyle: Env`, `envPrefix: KAFKA_`",
        image=CONFLUENT_IMAGE,
        build="confluent",
        chart="cp-kafka",
        values={
            "image": CONFLUENT_IMAGE.partition(":")[0],
            "imageTag": "3.9.1",
            "cp-zookeeper": {"enabled": False, "url": ZOOKEEPER},
            "prometheus": {"jmx": {"enabled": False}},
            "heapOptions": "-Xms320M -Xmx320M",
            "persistence": {"size": "1Gi"},
            "configurationOverrides": {
                "offsets.topic.replication.factor": "3",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXTERNAL:PLAINTEXT",
                "inter.broker.protocol.version": "3.9",
            },
        },
        stateful_set=f"{RELEASE}-cp-kafka",
        headless=f"{RELEASE}-cp-kafka-headless",
        brokers={"container": "cp-kafka-broker", "configStyle": "Env", "envPrefix": "KAFKA_"},
    ),
    Layout(
        name="bitnami-env",
        title="Bitnami chart 31.5.0, defaults (SASL between brokers, SCRAM); `configStyle: Env`, `envPrefix: KAFKA_CFG_`",
        values=_BITNAMI_VALUES,
        brokers=_ENV,
        secrets=_BITNAMI_CLIENT,
        **_BITNAMI,
    ),
    Layout(
        name="bitnami-env-prepared",
        title="the same with `KAFKA_ZOOKEEPER_BOOTSTRAP_SCRAM_USERS=false`, as the finding says",
        values=_BITNAMI_VALUES,
        brokers=_ENV,
        **_BITNAMI_PREPARED,
    ),
    Layout(
        name="bitnami-properties",
        title="Bitnami chart 31.5.0, defaults; `configStyle: Properties` and nothing else",
        values=_BITNAMI_VALUES,
        brokers=_PROPERTIES,
        secrets=_BITNAMI_CLIENT,
        **_BITNAMI,
    ),
    Layout(
        name="bitnami-prepared",
        title="the same, prepared as the findings of the row above say: `KAFKA_ZOOKEEPER_BOOTSTRAP_SCRAM_USERS=false`, and the brokers' login in the controllers' Secret",
        values=_BITNAMI_VALUES,
        brokers=_PROPERTIES,
        **_BITNAMI_PREPARED,
    ),
)
