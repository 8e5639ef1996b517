"""Layouts of other people's brokers: a vendor's chart and image, or plain manifests, and the KafkaMigration that the docs tell for it.

Charts and entrypoints are read from a folder that is no part of this repository (``VENDOR``): ``charts/bitnami-kafka`` (31.5.0),
``charts/bitnami-kafka-22`` (22.1.6), ``charts/cp-kafka``, ``images/bitnami`` (3.9), ``images/bitnami-3.4`` and
``images/confluent``, as their projects publish them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from e2e.harness import plain_brokers

ZOOKEEPER = "zookeeper-0.zookeeper:2181"
RELEASE = "shop"
BITNAMI_IMAGE = "localhost/kraftbridge-layout-bitnami:3.9.1"
FORMER_BITNAMI_IMAGE = "localhost/kraftbridge-layout-bitnami:3.4.1"
CONFLUENT_IMAGE = "localhost/kraftbridge-layout-confluent:3.9.1"
CONTROLLERS_SECRET = "controllers-logins"
CLIENT_SECRET = "kafka-client"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@dataclass(frozen=True)
class Chart:
    """A vendor's chart and image."""

    image: str
    build: str
    """Folder of the image below ``VENDOR/images``."""
    folder: str
    """Folder of the chart below ``VENDOR/charts``."""
    values: Mapping[str, Any]
    """What a user of the defaults has to set, and less memory and processor."""
    values_for: str
    """The chart in the names of the final manifest's files of values."""
    further_build: str = ""
    """Another image that the values name."""
    on_delete: Mapping[str, Any] = field(default_factory=dict)
    """Values with which Kubernetes restarts only those pods that the user deletes, where the upgrade changes the pod template."""


@dataclass(frozen=True)
class Layout:
    """One way to run brokers, and the migration for it."""

    name: str
    title: str
    """What it is, for the table in the docs."""
    installed: Chart | tuple[Mapping[str, Any], ...]
    """A chart, or the objects that a user applies."""
    stateful_sets: Mapping[str, int]
    """Number of pods of each StatefulSet of brokers."""
    headless: str
    brokers: dict[str, Any]
    """``spec.brokers`` of the KafkaMigration besides names and addresses."""
    secrets: dict[str, dict[str, str]] = field(default_factory=dict)
    image: str = ""
    """Folder below ``VENDOR/images`` of an image that is not a chart's."""
    listener: dict[str, Any] = field(default_factory=dict)
    """Additions to ``spec.controllers.listener``."""
    controllers: dict[str, Any] = field(default_factory=dict)
    """Additions to ``spec.controllers``."""
    strategy: dict[str, Any] = field(default_factory=dict)
    """``spec.strategy``."""
    super_users: tuple[str, ...] = ("User:ANONYMOUS",)
    login: dict[str, str] | None = None
    """How clients log in (``KAFKA_LOGIN``)."""

    @property
    def vendors_image(self) -> str:
        """Folder below ``VENDOR/images`` of the brokers' image, ``""`` if no vendor's image is needed."""
        return self.installed.build if isinstance(self.installed, Chart) else self.image

    @property
    def images(self) -> tuple[str, ...]:
        """The images that are built for it, without ``layout-`` before their names."""
        further = self.installed.further_build if isinstance(self.installed, Chart) else ""
        return tuple(name for name in (self.vendors_image, further) if name)

    @property
    def channel(self) -> str:
        """How the migration says that the brokers get their configuration, for the table in the docs."""
        prefix = f", `envPrefix: {self.brokers['envPrefix']}`" if "envPrefix" in self.brokers else ""
        return f"`configStyle: {self.brokers['configStyle']}`{prefix}"

    @property
    def automatic(self) -> "Layout":
        """The same cluster, and a migration that does not say how the brokers get their configuration."""
        kept = {name: value for name, value in self.brokers.items() if name not in ("envPrefix", "properties")}
        return replace(self, brokers=kept | {"configStyle": "Auto"})

    @property
    def bootstrap(self) -> str:
        """The brokers' addresses for clients."""
        pods = [f"{name}-{i}" for name, count in self.stateful_sets.items() for i in range(count)]
        return ",".join(f"{pod}.{self.headless}:9092" for pod in pods)


_BITNAMI_VALUES: dict[str, Any] = {
    "global": {"security": {"allowInsecureImages": True}},
    "image": {"registry": "localhost", "repository": "kraftbridge-layout-bitnami", "tag": "3.9.1"},
    "kraft": {"enabled": False},
    "controller": {"replicaCount": 0},
    "broker": {
        "replicaCount": 3,
        "heapOpts": "-Xmx320m -Xms320m",
        "persistence": {"size": "1Gi"},
        # The chart's own preset, with half of its request: three of 500m, the controllers and a verification do not fit on two cores.
        "resources": {
            "requests": {"cpu": "250m", "memory": "512Mi"},
            "limits": {"cpu": "750m", "memory": "768Mi"},
        },
    },
    "zookeeper": {"enabled": False},
    "externalZookeeper": {"servers": [ZOOKEEPER]},
    "sasl": {
        "interbroker": {"password": "of-this-example"},
        "client": {"users": ["user1"], "passwords": ["of-this-example"]},
    },
}
_BITNAMI: dict[str, Any] = {
    "installed": Chart(
        BITNAMI_IMAGE,
        "bitnami",
        "bitnami-kafka",
        _BITNAMI_VALUES,
        "bitnami",
        on_delete={"broker": {"updateStrategy": {"type": "OnDelete"}}},
    ),
    "stateful_sets": {f"{RELEASE}-kafka-broker": 3},
    "headless": f"{RELEASE}-kafka-broker-headless",
    "login": {"user": "user1", "password": "of-this-example", "mechanism": "SCRAM-SHA-256"},
    "secrets": {
        CLIENT_SECRET: {
            "client.properties": f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
            f'sasl.jaas.config={_SCRAM} username="user1" password="of-this-example";\n'
        },
        CONTROLLERS_SECRET: {
            "listener.properties": "listener.name.internal.plain.sasl.jaas.config="
            f'{_PLAIN} username="inter_broker_user" password="of-this-example";\n'
        },
    },
    "listener": {"securityProtocol": "SSL", "generate": True, "secretName": CONTROLLERS_SECRET},
    "super_users": (),
}
_DISCOVERED: dict[str, Any] = {
    "externalAccess": {
        "enabled": True,
        "autoDiscovery": {
            "enabled": True,
            "image": {"registry": "localhost", "repository": "kraftbridge-layout-kubectl", "tag": "1"},
        },
        "broker": {"service": {"type": "NodePort"}},
    },
    "rbac": {"create": True},
}
"""Each broker is reached from outside at a port of its own, which an init container asks the API server for."""
_EXTERNAL_VALUES = {
    **_BITNAMI_VALUES,
    **_DISCOVERED,
    "broker": {**_BITNAMI_VALUES["broker"], "automountServiceAccountToken": True},
}
_FORMER_BITNAMI_VALUES: dict[str, Any] = {
    "image": {"registry": "localhost", "repository": "kraftbridge-layout-bitnami", "tag": "3.4.1"},
    "kraft": {"enabled": False},
    "replicaCount": 3,
    "heapOpts": "-Xmx320m -Xms320m",
    "persistence": {"size": "1Gi"},
    "resources": _BITNAMI_VALUES["broker"]["resources"],
    "zookeeper": {"enabled": False},
    "externalZookeeper": {"servers": [ZOOKEEPER]},
    "defaultReplicationFactor": 3,
    "offsetsTopicReplicationFactor": 3,
    "transactionStateLogReplicationFactor": 3,
    "transactionStateLogMinIsr": 2,
    "deleteTopicEnable": True,  # the seed deletes a topic
}
_WRITTEN_BY_FORMER_SCRIPTS = {
    "KAFKA_CFG_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "KAFKA_CFG_SASL_MECHANISM_INTER_BROKER_PROTOCOL": "",
}
"""What the image's scripts of that time write by themselves, and those of 3.9 do not."""
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

_EXAMPLE = plain_brokers.example_migration("bitnami")

_TO_CONTROLLERS = f'{_PLAIN} username="controller" password="of-this-example"'
_CONFLUENT_VALUES: dict[str, Any] = {
    "image": CONFLUENT_IMAGE.partition(":")[0],
    "imageTag": "3.9.1",
    "cp-zookeeper": {"enabled": False, "url": ZOOKEEPER},
    "prometheus": {"jmx": {"enabled": False}},
    "heapOptions": "-Xms320M -Xmx320M",
    "persistence": {"size": "1Gi"},
    "configurationOverrides": {
        "offsets.topic.replication.factor": "3",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXTERNAL:PLAINTEXT",
        # The brokers' login to the controllers, as docs/layout-env.md tells: the chart has no value for a volume with certificates.
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": f"{_TO_CONTROLLERS};",
    },
}
_CONFLUENT_SECRETS = {
    CLIENT_SECRET: {
        "client.properties": "security.protocol=PLAINTEXT\n",
        "controller.properties": "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f"sasl.jaas.config={_TO_CONTROLLERS};\n",
    },
    CONTROLLERS_SECRET: {
        "listener.properties": "sasl.mechanism.controller.protocol=PLAIN\n"
        "listener.name.controller.sasl.enabled.mechanisms=PLAIN\n"
        f'listener.name.controller.plain.sasl.jaas.config={_TO_CONTROLLERS} user_controller="of-this-example";\n'
    },
}
_FILE: dict[str, Any] = {
    "container": "kafka",
    "configStyle": "Properties",
    "properties": {"volume": plain_brokers.VOLUME, "key": plain_brokers.KEY},
}

LAYOUTS = (
    Layout(
        name="confluent",
        title="cp-helm-charts `cp-kafka` with cp-kafka 7.9's entrypoint, defaults",
        installed=Chart(
            CONFLUENT_IMAGE,
            "confluent",
            "cp-kafka",
            _CONFLUENT_VALUES,
            "cp-kafka",
            on_delete={"updateStrategy": "OnDelete"},
        ),
        stateful_sets={f"{RELEASE}-cp-kafka": 3},
        headless=f"{RELEASE}-cp-kafka-headless",
        brokers={"container": "cp-kafka-broker", "configStyle": "Env", "envPrefix": "KAFKA_"}
        | {"clientConfigSecret": CLIENT_SECRET},
        secrets=_CONFLUENT_SECRETS,
        listener={"securityProtocol": "SASL_PLAINTEXT", "secretName": CONTROLLERS_SECRET},
        super_users=("User:controller",),
    ),
    Layout(
        name="bitnami-properties",
        title="Bitnami chart 31.5.0, defaults: SASL between brokers, SCRAM users created at each start",
        brokers=_PROPERTIES,
        **_BITNAMI,
    ),
    Layout(
        name="bitnami-external",
        title="Bitnami chart 31.5.0 with `externalAccess.autoDiscovery`: an init container asks the API server for each broker's node port",
        brokers=_PROPERTIES,
        **_BITNAMI
        | {
            "installed": replace(
                _BITNAMI["installed"],
                values=_EXTERNAL_VALUES,
                further_build="kubectl",
            )
        },
    ),
    Layout(
        name="bitnami-env",
        title="Bitnami chart 31.5.0, defaults, with the wrong channel: the mounted file makes the image ignore its variables",
        brokers=_ENV,
        **_BITNAMI,
    ),
    Layout(
        name="bitnami-22",
        title="Bitnami chart 22.1.6 with Kafka 3.4.1 and the image's scripts of that time; the migration brings it to the image of 3.9",
        installed=Chart(
            FORMER_BITNAMI_IMAGE,
            "bitnami-3.4",
            "bitnami-kafka-22",
            _FORMER_BITNAMI_VALUES,
            "bitnami",
            further_build="bitnami",
            on_delete={"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}},
        ),
        stateful_sets={f"{RELEASE}-kafka": 3},
        headless=f"{RELEASE}-kafka-headless",
        brokers={"container": "kafka", "configStyle": "Env", "envPrefix": "KAFKA_CFG_"}
        | {"upgrade": {"image": BITNAMI_IMAGE, "env": _WRITTEN_BY_FORMER_SCRIPTS}},
        listener={"securityProtocol": "SSL", "generate": True},
        super_users=(),
    ),
    Layout(
        name="bitnami-image",
        title="Bitnami's image without the chart, with `KAFKA_CFG_` variables: `examples/bitnami`",
        installed=plain_brokers.published_example("bitnami", BITNAMI_IMAGE, ZOOKEEPER),
        image="bitnami",
        stateful_sets={"kafka": 3},
        headless=plain_brokers.HEADLESS,
        brokers={"container": "kafka", "configStyle": "Env", "envPrefix": "KAFKA_CFG_"}
        | {"clientConfigSecret": _EXAMPLE["brokers"]["clientConfigSecret"]},
        listener=_EXAMPLE["controllers"]["listener"],
        controllers={"passwordEncoderSecret": _EXAMPLE["controllers"]["passwordEncoderSecret"]},
        super_users=tuple(_EXAMPLE["controllers"]["superUsers"]),
    ),
    Layout(
        name="zones",
        title="A StatefulSet for each of three zones, each with a ConfigMap of its own that also holds the scripts that start and probe the broker",
        installed=plain_brokers.zones(ZOOKEEPER),
        stateful_sets={f"kafka-{zone}": 1 for zone in plain_brokers.ZONES},
        headless=plain_brokers.HEADLESS,
        brokers=_FILE,
    ),
    Layout(
        name="zones-in-batches",
        title="The same with two brokers in each zone, which restart together (`strategy.maxUnavailable: 2`); one is killed while its batch restarts to KRaft",
        installed=plain_brokers.zones(ZOOKEEPER, brokers=2),
        stateful_sets={f"kafka-{zone}": 2 for zone in plain_brokers.ZONES},
        headless=plain_brokers.HEADLESS,
        brokers=_FILE,
        strategy={"maxUnavailable": 2},
    ),
    Layout(
        name="plain-image",
        title="A plain image with one properties file (`subPath`); `broker.id` and `advertised.listeners` by `--override`",
        installed=plain_brokers.plain_image(ZOOKEEPER),
        stateful_sets={"kafka": 3},
        headless=plain_brokers.HEADLESS,
        brokers=_FILE,
    ),
    Layout(
        name="init-id",
        title="An init container writes the properties file, with `broker.id`, from a template in a ConfigMap",
        installed=plain_brokers.id_from_init_container(ZOOKEEPER),
        stateful_sets={"kafka": 3},
        headless=plain_brokers.HEADLESS,
        brokers=_FILE,
    ),
)
