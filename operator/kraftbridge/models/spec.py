"""``spec`` of a KafkaMigration: what the user states. The CRD is generated from these models (``make crds``)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic.alias_generators import to_camel

from kraftbridge.models.metadata_version import NAMES, level_of
from kraftbridge.models.phase import Target

Name = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
"""Name of a Kubernetes object (RFC 1123)."""


class Model(BaseModel):
    """Base of everything read from or written to the API server: camelCase outside, frozen inside."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True, use_attribute_docstrings=True
    )


class SecretKey(Model):
    """One key of a Secret in the migration's namespace."""

    name: Name
    """Name of the Secret."""
    key: Annotated[str, Field(min_length=1)]
    """Key in the Secret."""


class ZooKeeperSpec(Model):
    """How to reach the ZooKeeper ensemble that the brokers use."""

    connect: Annotated[str, Field(min_length=1, pattern=r"^[^/\s,]+(,[^/\s,]+)*(/\S*)?$")]
    """The brokers' ``zookeeper.connect``: host:port pairs and the chroot, as in ``zk-0.zk:2181,zk-1.zk:2181/kafka``."""
    secret_name: Name | None = None
    """Secret with ``username`` and ``password`` (``scheme``: ``sasl``, or ``digest`` for the operator alone) and, for TLS, ``ca.crt``, ``tls.crt`` and ``tls.key``.
    The KRaft controllers use it, too: Kafka authenticates to ZooKeeper by SASL or by certificate."""


class StatefulSetRef(Model):
    """A StatefulSet of brokers."""

    name: Name
    """Name of the StatefulSet, in the namespace of the migration."""


class ConfigStyle(StrEnum):
    """How the brokers' pods get their Kafka configuration."""

    ENV = "Env"
    """Environment variables, as in Confluent's, Apache's and Bitnami's images."""
    PROPERTIES = "Properties"
    """A properties file in a ConfigMap that the pods mount."""


class PropertiesSource(Model):
    """Where a ``Properties`` style StatefulSet has its file."""

    volume: str
    """Name of the volume in the pod template that mounts the ConfigMap; it is repointed at one ConfigMap per phase."""
    config_map: Name
    """Name of the ConfigMap that the volume mounts."""
    key: str = "server.properties"
    """Key of the properties file in the ConfigMap."""


class BrokersSpec(Model):
    """The brokers to migrate, as the user runs them."""

    stateful_sets: Annotated[tuple[StatefulSetRef, ...], Field(min_length=1, max_length=32)]
    """StatefulSets of the brokers. List all of them: Kafka starts the copy when every registered broker runs in migration mode (KIP-866)."""
    container: Annotated[str, Field(min_length=1)] = "kafka"
    """Name of the container that runs Kafka."""
    config_style: ConfigStyle = ConfigStyle.ENV
    env_prefix: Literal["KAFKA_", "KAFKA_CFG_"] = "KAFKA_"
    """Prefix of the variables that become Kafka settings: ``KAFKA_`` (Confluent, Apache) or ``KAFKA_CFG_`` (Bitnami)."""
    properties: PropertiesSource | None = None
    bootstrap_servers: Annotated[str, Field(min_length=1, pattern=r"^[^\s,:]+:[0-9]+(,[^\s,:]+:[0-9]+)*$")]
    """Addresses of brokers as host:port, separated by commas, as pods in this namespace resolve them."""
    client_config_secret: Name | None = None
    """Secret with ``client.properties`` (security.protocol, sasl.*, ssl.*) for the operator's and the verifier's clients."""
    metrics_port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Port at which the brokers serve Prometheus metrics, if they do."""

    @model_validator(mode="after")
    def _properties_style_names_its_file(self) -> BrokersSpec:
        if self.config_style is ConfigStyle.PROPERTIES and self.properties is None:
            raise ValueError("brokers.configStyle Properties needs brokers.properties (volume, configMap, key)")
        return self


class ListenerSpec(Model):
    """Security of the controllers' listener."""

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "SSL"
    """``PLAINTEXT`` is for demonstrations only: a blocking finding until the user accepts it."""
    secret_name: Name | None = None
    """Secret with ``listener.properties`` for the controllers' listener and, for TLS, the files that it names."""


class StorageSpec(Model):
    """Volume of each controller's metadata log."""

    size: Annotated[str, Field(pattern=r"^[0-9]+(Ki|Mi|Gi|Ti)?$")] = "10Gi"
    """Size of the volume."""
    storage_class_name: Name | None = None
    """StorageClass of the volume. The default class of the cluster if omitted."""


class ControllersSpec(Model):
    """The KRaft controller quorum that the operator provisions."""

    replicas: Literal[1, 3, 5] = 3
    """Odd; one is for tests only."""
    first_node_id: Annotated[int, Field(ge=0, le=2_000_000_000)] = 3000
    """Node id of the first controller; ids must not collide with broker ids."""
    image: Annotated[str, Field(min_length=1)] = "apache/kafka:3.9.1"
    """A Kafka 3.9 image with the official layout (``/opt/kafka/bin``)."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """Pull policy of the image."""
    listener: ListenerSpec = ListenerSpec()
    super_users: tuple[str, ...] = ()
    """``super.users`` of the controllers, such as ``User:admin``."""
    password_encoder_secret: SecretKey | None = None
    """The brokers' ``password.encoder.secret``: without it encrypted broker configurations are copied as cipher text."""
    storage: StorageSpec = StorageSpec()
    heap_options: str = "-Xms512m -Xmx512m"
    """Heap of each controller, as in KAFKA_HEAP_OPTS. 200,000 partitions need more than 512m."""
    resources: Annotated[dict[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})] = {}
    """Resource requirements of the Kafka container, as in a pod."""
    config: dict[str, str] = {}
    """Further Kafka settings of the controllers; those that the migration itself sets cannot be changed here."""
    node_selector: dict[str, str] = {}
    """Labels of the nodes on which the controllers may run."""
    tolerations: Annotated[
        tuple[dict[str, Any], ...],
        Field(json_schema_extra={"items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}),
    ] = ()
    """Tolerations of the controllers' pods."""
    affinity: Annotated[dict[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})] = {}
    """Affinity of the controllers' pods."""

    @property
    def node_ids(self) -> tuple[int, ...]:
        """Node ids of the quorum's voters."""
        return tuple(range(self.first_node_id, self.first_node_id + self.replicas))


class Runner(StrEnum):
    """What runs a verification."""

    SPARK_APPLICATION = "SparkApplication"
    """Kubeflow's Spark operator (``sparkoperator.k8s.io/v1beta2``)."""
    JOB = "Job"
    """A ``batch/v1`` Job with Spark in local mode, where no Spark operator is installed."""


class Healing(StrEnum):
    """Which differences in dual-write the operator heals by itself, as Kafka would: by a controller failover."""

    NEVER = "Never"
    """None: somebody restarts the active controller, or repairs them otherwise."""
    PARTITION_STATE = "PartitionState"
    """A lost write of a partition's leader, ISR or epochs, and a mirror that stands still."""
    AUTO = "Auto"
    """Everything that the failover rewrites, also what somebody wrote to ZooKeeper alone; it is archived first."""


class VerificationSpec(Model):
    """How metadata is verified before each gate."""

    runner: Runner = Runner.SPARK_APPLICATION
    image: str | None = None
    """Image of driver and executors; the chart's default where it is left out."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """Pull policy of the image."""
    service_account: Name | None = None
    """Service account of the driver; the chart's default (``kraftbridge-verifier``) where it is left out."""
    executors: Annotated[int, Field(ge=1, le=100)] = 1
    """Number of Spark executors. A Job runs none."""
    driver_memory: Annotated[str, Field(pattern=r"^[0-9]+[mg]$")] = "768m"
    """Heap of the Spark driver."""
    executor_memory: Annotated[str, Field(pattern=r"^[0-9]+[mg]$")] = "768m"
    """Heap of each Spark executor."""
    core_request: Annotated[str, Field(pattern=r"^[0-9]+m?$")] = "50m"
    """What driver and executor each ask for, which is also their share of a node that is short of CPU: keep it below the brokers'."""
    max_age_seconds: Annotated[int, Field(ge=10, le=86_400)] = 600
    """How old a passed verdict may be when its gate opens."""
    deadline_seconds: Annotated[int, Field(ge=30, le=86_400)] = 900
    """How long one run may take, from its start."""
    healing: Healing = Healing.PARTITION_STATE
    """Which differences between ZooKeeper and the metadata log a controller failover may heal, unasked."""
    keep_runs: Annotated[int, Field(ge=1, le=50)] = 10
    """How many finished runs keep their application and report ConfigMap."""
    accepted_copy: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    """Run id of the ``copy`` verification whose verdict you accept, as in ``status.verifications``: the migration goes on although the copy lost, or may have lost, what its report lists."""
    compare_served: bool = False
    """Compare with the log what every broker serves, too (Metadata, DescribeConfigs), before the brokers are rolled and after.

    The verifier then connects to each broker's advertised listener with ``brokers.clientConfigSecret``; its principal needs
    Describe and DescribeConfigs on every topic and DescribeConfigs on the cluster.
    """


class AcceptedFinding(Model):
    """A preflight finding that the user accepts; it stays visible."""

    code: Annotated[str, Field(min_length=1)]
    """Code of the finding."""
    object: str = "*"
    """The finding's object, or ``*`` for every object."""


class PreflightSpec(Model):
    """What the user decided about preflight findings."""

    accepted: tuple[AcceptedFinding, ...] = ()
    """Blocking findings in spite of which the migration proceeds."""


class RehearsalSpec(Model):
    """Kafka's own migration on a copy of the metadata, in preflight, before anything is touched."""

    enabled: bool = False
    """Whether preflight rehearses. The pod needs a network plugin that enforces NetworkPolicies."""
    resources: Annotated[dict[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})] = {}
    """Resource requirements of each container of the rehearsal's pod, as in a pod. The copy of the tree is kept in memory and counts."""
    timeout_seconds: Annotated[int, Field(ge=60, le=86_400)] = 1800
    """How long one rehearsal may take, from its start."""
    max_age_seconds: Annotated[int, Field(ge=60, le=2_592_000)] = 86_400
    """How old a rehearsal may be when preflight passes, and when the first broker restarts. An older one is repeated."""


class OnDeletion(StrEnum):
    """What happens when the resource is deleted while brokers and ZooKeeper are in the hands of its migration."""

    BLOCK = "Block"
    """Stop at the next safe point and wait for the user's word."""
    ROLL_BACK = "RollBack"
    """Go back to ZooKeeper as by ``target: ZooKeeper``, then let it go."""
    FINISH = "Finish"
    """Go on to ``target``; the resource goes once the migration is completed or rolled back."""


class HandOver(StrEnum):
    """What happens with the brokers' StatefulSets after ``Completed``."""

    GUARD = "Guard"
    """A pod template without what KRaft needs is refused, until the owner of the template is seen to render it."""
    RELEASE = "Release"
    """No template is refused any more. The guard does not come back."""


class ControllerVolumes(StrEnum):
    """What a rollback does with the controllers' volumes."""

    KEEP = "Keep"
    """They stay as archives; a later attempt makes its own and never mounts them."""
    REMOVE = "Remove"


class RollbackSpec(Model):
    """How to go back."""

    accept_loss: bool = False
    """Go back although ZooKeeper does not have everything: what was written to the metadata log alone is lost."""
    controller_volumes: ControllerVolumes = ControllerVolumes.KEEP


class StrategySpec(Model):
    """Pace of the migration."""

    address_cache_seconds: Annotated[int, Field(ge=0, le=3600)] = 35
    """Hold between two restarts while some JVM may have an old address in its cache (30 s by default)."""
    short_address_cache_seconds: Annotated[int, Field(ge=0, le=3600)] = 3
    """Hold between two restarts once every JVM of the cluster caches addresses for a second only."""
    hybrid_soak_seconds: Annotated[int, Field(ge=0)] = 0
    """How long to stay in dual-write with the brokers on ZooKeeper before the gate is tried."""
    pure_soak_seconds: Annotated[int, Field(ge=0)] = 0
    """How long to stay in dual-write with all brokers on KRaft before finalization may begin."""
    session_timeout_hold_seconds: Annotated[int, Field(ge=0, le=600)] = 12
    """Hold after the last controller's restart; longer than ``broker.session.timeout.ms`` (9 s)."""
    sync_patience_seconds: Annotated[int, Field(ge=10, le=3600)] = 120
    """How long ``/migration`` may stand still while the log moves on before the active controller is restarted; a new controller writes the whole image first."""
    phase_deadline_seconds: Annotated[int, Field(ge=60, le=604_800)] = 1800
    """How long a phase may wait without progress before ``Stalled`` says what for."""
    termination_grace_seconds: Annotated[int, Field(ge=1, le=3600)] = 300
    """Least grace period of a broker's eviction; a longer ``terminationGracePeriodSeconds`` of the pod is kept."""


class MigrationSpec(Model):
    """What the user asks for."""

    target: Target = Target.KRAFT_BROKERS
    paused: bool = False
    """Stops at the next safe point."""
    zookeeper: ZooKeeperSpec
    brokers: BrokersSpec
    controllers: ControllersSpec = ControllersSpec()
    verification: VerificationSpec = VerificationSpec()
    preflight: PreflightSpec = PreflightSpec()
    rehearsal: RehearsalSpec = RehearsalSpec()
    strategy: StrategySpec = StrategySpec()
    rollback: RollbackSpec = RollbackSpec()
    on_deletion: OnDeletion = OnDeletion.BLOCK
    """What a deletion half-way does; a namespace that is being deleted never waits."""
    hand_over: HandOver = HandOver.GUARD
    """What happens with the brokers' StatefulSets after ``Completed``."""
    metadata_version: Annotated[str, Field(json_schema_extra={"enum": list(NAMES)})] | None = None
    """metadata.version to bring the cluster to once the migration is complete (KIP-778), up or, where Kafka loses nothing, down: ``3.9-IV0``, or
    ``3.9`` for a release's last one. Left out: nothing is changed."""

    @field_validator("metadata_version")
    @classmethod
    def _metadata_version_is_known(cls, name: str | None) -> str | None:
        if name is not None:
            level_of(name)
        return name

    @property
    def metadata_level(self) -> int | None:
        """The level that ``metadataVersion`` names."""
        return None if self.metadata_version is None else level_of(self.metadata_version)

    @property
    def zookeeper_hosts(self) -> str:
        """Host:port pairs of the ensemble, without the chroot."""
        return self.zookeeper.connect.partition("/")[0]

    @property
    def chroot(self) -> str:
        """Chroot of the Kafka cluster in ZooKeeper, ``""`` or ``/path`` without a slash at its end."""
        path = self.zookeeper.connect.partition("/")[2].strip("/")
        return f"/{path}" if path else ""
