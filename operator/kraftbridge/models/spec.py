"""``spec`` of a KafkaMigration: the desired state. ``make crds`` generates the CRD from these models."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic.alias_generators import to_camel

from kraftbridge.models.metadata_version import KAFKA4_NAMES, NAMES, kafka4_level_of, level_of
from kraftbridge.models.phase import Target
from kraftbridge.models.report import CompareServed

Name = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
"""Name of a Kubernetes object (RFC 1123)."""


class Model(BaseModel):
    """Base of all models that the API server stores. Fields are camelCase in the API; instances are frozen."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True, use_attribute_docstrings=True
    )


class SecretKey(Model):
    """One key of a Secret in the migration's namespace."""

    name: Name
    """Name of the Secret."""
    key: Annotated[str, Field(min_length=1)]
    """Key in the Secret."""


FreeForm = Annotated[dict[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})]
"""A structure of Kubernetes' own API, which the API server checks when the object with it is applied."""
FreeForms = Annotated[
    tuple[dict[str, Any], ...],
    Field(json_schema_extra={"items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}),
]
"""A list of such structures."""
LabelValue = Annotated[str, Field(max_length=63, pattern=r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$")]
"""Value of a label (``k8s.io/apimachinery/pkg/util/validation.IsValidLabelValue``)."""


class SecretReference(Model):
    """A Secret in the migration's namespace."""

    name: Name
    """Name of the Secret."""


class Placement(Model):
    """On which nodes pods run, and with which priority. The fields mean the same as in a pod."""

    priority_class_name: Name | None = None
    """PriorityClass of the pods."""
    node_selector: dict[str, str] = {}
    """Labels of the nodes on which the pods may run."""
    tolerations: FreeForms = ()
    """Tolerations of the pods."""
    affinity: FreeForm = {}
    """Affinity of the pods. Without a ``podAntiAffinity`` in it, the controllers prefer different nodes."""
    topology_spread_constraints: FreeForms = ()
    """Spread of the pods over topology domains.
    A constraint without ``labelSelector`` selects the pods of the same kind.
    If omitted, the controllers prefer different zones (``topology.kubernetes.io/zone``, ``ScheduleAnyway``)."""


class PodSettings(Placement):
    """Settings of every pod that the operator creates: controllers, verifications, rehearsals and dry starts.

    ``spec.controllers`` and ``spec.verification`` may replace a field of the placement.
    The copies of a dry start keep the placement of the brokers' own template.
    """

    labels: dict[str, LabelValue] = {}
    """Further labels of the pods.
    They never replace a label that the operator sets.
    Choose none that a Service, a PodDisruptionBudget or a StatefulSet of the brokers selects."""
    annotations: dict[str, str] = {}
    """Further annotations of the pods. They never replace an annotation that the operator sets, except those
    that keep the proxy of a mesh out of the pods (``sidecar.istio.io/inject``, ``linkerd.io/inject`` …)."""
    image_pull_secrets: tuple[SecretReference, ...] = ()
    """Secrets for pulling images, besides ``imagePullSecrets`` of the chart and of the pods' service account."""
    service_account_name: Name | None = None
    """Service account of the pods, except those of verifications (``spec.verification.serviceAccount``).
    No token is mounted.
    If omitted, ``default``."""
    helper_resources: FreeForm = {}
    """Resource requirements of the operator's own small containers:
    log server and init containers of the controllers, probe and preparation of a dry start.
    If omitted, they request 10m to 20m CPU and 32Mi to 64Mi of memory, with a limit of memory."""
    security_context: FreeForm = {}
    """Security context of the pods, in place of the operator's own.

    If omitted, controllers and rehearsals run as user 1000 and verifications as user 185,
    with the same group and ``fsGroup``.
    In a namespace with the annotation ``openshift.io/sa.scc.uid-range`` the platform assigns user and groups,
    and the operator sets none.
    A user without a name in the image needs group 0.
    The copies of a dry start keep the security context of the brokers' own template.
    """


class ZooKeeperSpec(Model):
    """Connection to the ZooKeeper ensemble that the brokers use."""

    connect: Annotated[str, Field(min_length=1, max_length=8192, pattern=r"^[^/\s,]+(,[^/\s,]+){0,63}(/\S*)?$")]
    """Value of the brokers' ``zookeeper.connect``: up to 64 host:port pairs and the chroot,
    for example ``zk-0.zk:2181,zk-1.zk:2181/kafka``."""
    secret_name: Name | None = None
    """Secret with the credentials for ZooKeeper. The operator and the KRaft controllers use it.

    Keys: ``username``, ``password`` and ``scheme`` (``sasl`` or ``digest``);
    ``ca.crt``, ``tls.crt`` and ``tls.key`` for TLS.
    Only the operator can use ``digest``, because Kafka authenticates to ZooKeeper by SASL or by certificate.
    If omitted, the connection has no credentials.
    """


class StatefulSetRef(Model):
    """A StatefulSet of brokers."""

    name: Name
    """Name of the StatefulSet, in the namespace of the migration."""


class ConfigStyle(StrEnum):
    """How the brokers' pods get their Kafka configuration."""

    AUTO = "Auto"
    """The dry start of preflight finds which of the others reaches the brokers. ``status.channel`` records it."""
    ENV = "Env"
    """The pod template sets environment variables, as for the images of Confluent, Apache and Bitnami."""
    PROPERTIES = "Properties"
    """The pods mount a properties file from a ConfigMap or a Secret."""


class PropertiesSource(Model):
    """Location of the properties file, for ``configStyle: Properties``; with ``Auto`` the first that is tried."""

    volume: str
    """Name of the volume in the pod template that mounts a ConfigMap or a Secret with the file.
    Each StatefulSet may mount another one.

    In each mode the operator makes the volume refer to its own copy, which has all keys of yours.
    """
    config_map: Name | None = None
    """Name of the ConfigMap that the volume mounts.
    If omitted, the operator takes the ConfigMap or Secret that the volume of each StatefulSet mounts."""
    key: str = "server.properties"
    """Key of the properties file in the ConfigMap or Secret."""


class UpgradeSpec(Model):
    """The release to which the brokers are brought before the migration."""

    image: Annotated[str, Field(min_length=1)]
    """Image with Kafka 3.9 for the container that runs Kafka.
    Init containers with the same image as that container get it, too."""
    env: Annotated[dict[str, str], Field(max_length=100)] = {}
    """Further environment variables that this image needs in the container that runs Kafka.
    A variable that the migration sets itself cannot be changed here. No password belongs here."""


class BrokerMetricsSpec(Model):
    """Page of each broker's pod on which an exporter shows Kafka's MBeans in Prometheus' format, over plain HTTP."""

    port: Annotated[int, Field(ge=1, le=65535)]
    """Port of the pod."""
    path: Annotated[str, Field(pattern=r"^/[^\s]*$", max_length=200)] = "/metrics"
    """Path of the page."""


class BrokersSpec(Model):
    """The brokers to migrate."""

    stateful_sets: Annotated[tuple[StatefulSetRef, ...], Field(min_length=1, max_length=32)]
    """StatefulSets of the brokers.
    List all of them: Kafka copies the metadata only when every registered broker runs in migration mode (KIP-866)."""
    container: Annotated[str, Field(min_length=1)] = "kafka"
    """Name of the container that runs Kafka."""
    config_style: ConfigStyle = ConfigStyle.AUTO
    """Channel from which the image takes the Kafka configuration: ``Env``, ``Properties``, or ``Auto``.

    With ``Auto`` the dry start of preflight tries in copies of the brokers' pods which channel reaches Kafka,
    and ``status.channel`` records it for the whole migration.
    A channel that no dry start has proven is never used:
    preflight then stays closed, with the finding ``ChannelUnknown``.
    """
    env_prefix: Literal["KAFKA_", "KAFKA_CFG_"] = "KAFKA_"
    """Prefix of the environment variables that the image turns into Kafka settings:
    ``KAFKA_`` (Confluent, Apache) or ``KAFKA_CFG_`` (Bitnami).
    With ``configStyle: Auto`` the dry start finds the prefix."""
    properties: PropertiesSource | None = None
    """Location of the properties file. Required with ``configStyle: Properties``. With ``Auto`` it may be left out."""
    bootstrap_servers: Annotated[
        str, Field(min_length=1, max_length=8192, pattern=r"^[^\s,:]+:[0-9]+(,[^\s,:]+:[0-9]+){0,63}$")
    ]
    """Up to 64 addresses of brokers as host:port, separated by commas.
    Pods in the namespace of the migration must be able to resolve them."""
    client_config_secret: Name | None = None
    """Secret whose key ``client.properties`` configures the Kafka clients of the operator
    and the verifier (security.protocol, sasl.*, ssl.*).
    If omitted, they connect without encryption and authentication."""

    upgrade: UpgradeSpec | None = None
    """Image with Kafka 3.9 for brokers that run an older release, from 2.4 on.

    In phase ``UpgradingBrokers`` the brokers restart with it one at a time, still on ZooKeeper and
    with the lowest ``inter.broker.protocol.version`` that runs.
    The first restart in migration mode lifts it to 3.9 (``spec.rollback.giveUpFormerImage``).
    Below 2.8 topics have no ids, which the migration needs:
    then ``UpgradingBrokers`` lifts it to 3.9 in a second rolling restart, still on ZooKeeper.
    If omitted, every broker must run Kafka 3.9 with ``inter.broker.protocol.version`` 3.9 already.
    """
    metrics: BrokerMetricsSpec | None = None
    """Where the brokers' metrics show which clients send requests that Kafka 4 refuses (``status.kafka4.clients``)."""
    static_settings: Annotated[dict[str, str], Field(max_length=100)] = {}
    """Settings that the operator adds to the brokers' own static ones, in migration mode and in KRaft mode.

    For dynamic settings that a start in KRaft mode would refuse,
    because Kafka compares them with the static values (finding ``DynamicSettingsRefused``).
    They become part of the final manifest.
    No password belongs here.
    """

    @model_validator(mode="after")
    def _properties_style_names_its_file(self) -> BrokersSpec:
        if self.config_style is ConfigStyle.PROPERTIES and self.properties is None:
            raise ValueError("brokers.configStyle Properties needs brokers.properties (volume, key)")
        return self

    @property
    def file(self) -> PropertiesSource | None:
        """The properties file in which the migration changes settings of brokers; None if it changes them by variables.

        Raises
        ------
        ValueError
            ``configStyle: Auto``: the channel is in the status (`kraftbridge.models.status.with_channel`).
        """
        match self.config_style:
            case ConfigStyle.PROPERTIES:
                return self.properties
            case ConfigStyle.ENV:
                return None
            case ConfigStyle.AUTO:
                raise ValueError("brokers.configStyle Auto stands for no channel; the one in the status must be used")


class ListenerSpec(Model):
    """Security of the controllers' listener."""

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "SSL"
    """Security protocol of the listener.
    ``PLAINTEXT`` is for tests only: preflight reports it as the blocking finding ``ControllerListenerPlaintext``."""
    secret_name: Name | None = None
    """Secret that secures the listener.
    It holds a certificate as cert-manager writes it (``tls.crt``, ``tls.key``, ``ca.crt``),
    or settings in ``listener.properties`` with the files that they name, or both.
    When its data changes, the operator restarts the controllers one at a time."""
    generate: bool = False
    """Whether the operator issues the certificates of the listener, with an authority of its own.
    For ``SSL`` and ``SASL_SSL``.

    With ``SASL_SSL`` and without ``secretName`` it also issues the logins (PLAIN) of controllers and brokers.
    The Secret of ``secretName`` holds settings and no certificate; with ``SASL_SSL`` it holds your logins.
    The brokers' part is in the Secret ``status.listenerCertificates.brokersSecret``.
    With ``SSL`` the operator mounts it in brokers that have no certificate of their own for this listener;
    with ``SASL_SSL`` you mount it.
    """
    certificate_days: Annotated[int, Field(ge=1, le=3650)] = 1825
    """Lifetime in days of the certificates that the operator issues.
    It renews a certificate after two thirds of its lifetime.
    The authority is valid for ten years, and no certificate outlives it."""

    @property
    def has_files(self) -> bool:
        """Whether controllers and clients read files for the listener, from the user's Secret or the operator's."""
        return self.secret_name is not None or self.generate

    @property
    def issues_logins(self) -> bool:
        """Whether the operator issues the logins of the listener, besides the certificates."""
        return self.generate and self.security_protocol == "SASL_SSL" and self.secret_name is None

    @property
    def login_of_user(self) -> bool:
        """Whether the listener asks for a login that the user gives."""
        return self.security_protocol.startswith("SASL_") and not self.issues_logins

    @model_validator(mode="after")
    def _generated_certificates_are_used(self) -> ListenerSpec:
        if self.generate and not self.security_protocol.endswith("SSL"):
            raise ValueError(
                "controllers.listener.generate needs controllers.listener.securityProtocol SSL or SASL_SSL"
            )
        return self


class StorageSpec(Model):
    """Volume of each controller's metadata log."""

    size: Annotated[str, Field(pattern=r"^[0-9]+(Ki|Mi|Gi|Ti)?$")] = "10Gi"
    """Size of the volume, as a quantity in bytes."""
    storage_class_name: Name | None = None
    """StorageClass of the volume. If omitted, the default class of the Kubernetes cluster."""


class ReformatSpec(Model):
    """A controller that may format its blank volume, because the other voters hold the whole log.

    The word counts once, for this claim.
    """

    id: Annotated[int, Field(ge=0)]
    """Node id of the controller."""
    claim_uid: Annotated[str, Field(alias="claimUID", min_length=1)]
    """UID of its PersistentVolumeClaim, with the blank volume."""


class ControllersSpec(Placement):
    """The KRaft controller quorum that the operator provisions."""

    replicas: Literal[1, 3, 5] = 3
    """Number of controllers. Three tolerate the loss of one, five the loss of two; use one for tests only."""
    first_node_id: Annotated[int, Field(ge=0, le=2_000_000_000)] = 3000
    """Node id of the first controller. The others get the ids that follow. No broker may have one of these ids."""
    image: Annotated[str, Field(min_length=1)] = "apache/kafka:3.9.2"
    """Image of the controllers, with Kafka 3.9, Java and bash.
    Kafka's scripts are found in ``KAFKA_HOME/bin``, ``/opt/kafka/bin``, ``/opt/bitnami/kafka/bin``,
    ``/usr/bin`` or ``PATH``.
    The image's entrypoint is not used."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """Pull policy of the image."""
    listener: ListenerSpec = ListenerSpec()
    """Security of the controllers' listener."""
    super_users: tuple[str, ...] = ()
    """Principals in ``super.users`` of the controllers, for example ``User:admin``.
    Needed if the brokers have an authorizer: the controllers know no ACL before the copy,
    so the principals with which brokers log in to the controllers, and the brokers' own super users, belong here."""
    password_encoder_secret: SecretKey | None = None
    """Key of a Secret that holds the brokers' ``password.encoder.secret``.
    Without it, Kafka copies encrypted passwords as cipher text (KAFKA-14801)."""
    storage: StorageSpec = StorageSpec()
    """Volume of each controller's metadata log."""
    heap_options: str | None = None
    """JVM options for the heap of each controller, the value of KAFKA_HEAP_OPTS.
    If omitted, the operator sets the heap that the rehearsal measured, with a reserve of 60 %, and at least 512 MiB."""
    resources: FreeForm = {}
    """Resource requirements of the Kafka container, as in a pod.
    What is omitted: a request of 100m CPU, and a memory request of the heap (``-Xmx``) and 256 MiB."""
    config: dict[str, str] = {}
    """Further Kafka settings of the controllers. Settings that the migration itself sets cannot be changed here."""
    reformat: ReformatSpec | None = None
    """The controller that may format a blank volume after its own was lost (docs/kraft.md).
    Nothing is formatted while the other voters are no majority with the whole log, or the claim is another one."""

    @property
    def node_ids(self) -> tuple[int, ...]:
        """Node ids of the quorum's voters."""
        return tuple(range(self.first_node_id, self.first_node_id + self.replicas))


class Runner(StrEnum):
    """Kind of object that runs a verification."""

    SPARK_APPLICATION = "SparkApplication"
    """A SparkApplication of the Kubeflow Spark operator (``sparkoperator.k8s.io/v1beta2``)."""
    JOB = "Job"
    """A ``batch/v1`` Job with Spark in local mode."""


class Healing(StrEnum):
    """Differences in dual-write that the operator heals without being asked, by a failover of the active controller."""

    NEVER = "Never"
    """No difference. An administrator restarts the active controller or repairs ZooKeeper."""
    PARTITION_STATE = "PartitionState"
    """A lost write of a partition's leader, ISR or epochs, and a sync to ZooKeeper that makes no progress."""
    AUTO = "Auto"
    """All data that the failover rewrites, including data that was written to ZooKeeper alone.
    The operator archives that data first."""


class VerificationSpec(Placement):
    """Verification of the metadata before each gate."""

    runner: Runner = Runner.SPARK_APPLICATION
    """Kind of object that runs a verification. Without the Spark operator, verifications run as Jobs."""
    image: str | None = None
    """Image of driver and executors. If omitted, the default of the chart."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """Pull policy of the image."""
    service_account: Name | None = None
    """Service account of the driver. If omitted, the default of the chart (``kraftbridge-verifier``)."""
    executors: Annotated[int, Field(ge=0, le=100)] = 0
    """Number of Spark executors. With 0 the driver compares in its own pod, which starts faster. A Job runs none."""
    driver_memory: Annotated[str, Field(pattern=r"^[0-9]+[mg]$")] = "768m"
    """Heap of the Spark driver: a number and ``m`` (MiB) or ``g`` (GiB)."""
    executor_memory: Annotated[str, Field(pattern=r"^[0-9]+[mg]$")] = "768m"
    """Heap of each Spark executor: a number and ``m`` (MiB) or ``g`` (GiB)."""
    core_request: Annotated[str, Field(pattern=r"^[0-9]+m?$")] = "50m"
    """CPU request of the driver and of each executor, in cores.
    It is also their share of a node that is short of CPU: keep it below the brokers' request."""
    core_limit: Annotated[str, Field(pattern=r"^[0-9]+m?$")] | None = None
    """CPU limit of the driver and of each executor, in cores.
    If omitted, they have none; a ResourceQuota on ``limits.cpu`` asks for one."""
    max_age_seconds: Annotated[int, Field(ge=10, le=86_400)] = 600
    """Maximum age of a verdict when its gate opens, in seconds. The operator repeats an older verification."""
    deadline_seconds: Annotated[int, Field(ge=30, le=86_400)] = 900
    """Maximum duration of one run from its launch, in seconds."""
    healing: Healing = Healing.PARTITION_STATE
    """Differences between ZooKeeper and the metadata log that the operator heals without being asked,
    by a controller failover."""
    keep_runs: Annotated[int, Field(ge=1, le=50)] = 10
    """Number of finished runs whose application and report ConfigMap the operator keeps."""
    accepted_copy: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    """Run id of the ``copy`` verification whose verdict the user accepts, as in ``status.verifications``.

    The migration then goes on although the copy lost, or may have lost, the entities in the report of that run.
    """
    accepted_rewrite: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    """Id of the contradiction in ``status.zookeeperHistory`` for
    which the user lets the KRaft controllers write ZooKeeper anew.

    The operator makes one controller failover, which overwrites what ZooKeeper holds, and then verifies both stores.
    """
    compare_served: CompareServed = CompareServed.IF_ALLOWED
    """Whether a verification of dual-write also compares the metadata log with the answers of every broker (Metadata,
    DescribeConfigs, DescribeUserScramCredentials): ``Never``, ``IfAllowed`` or ``Always``.
    Neither ``true`` nor ``false`` is valid.

    The verifier connects to each broker's advertised listener with ``brokers.clientConfigSecret``.
    Its principal needs Describe and DescribeConfigs on every topic and on the cluster.
    With ``IfAllowed``, a broker that cannot be compared (missing rights, no answer,
    a backlog of changes) is the warning ``ServedNotCompared``, and a rollback does not compare brokers.
    With ``Always`` the verdict is ``Inconclusive``.
    """


class AcceptedFinding(Model):
    """A preflight finding that the user accepts. The finding stays in the status."""

    code: Annotated[str, Field(min_length=1)]
    """Code of the finding."""
    object: str = "*"
    """Object of the finding. ``*`` accepts the finding for every object."""


class PreflightSpec(Model):
    """Decisions about preflight findings."""

    accepted: tuple[AcceptedFinding, ...] = ()
    """Blocking findings that no longer hold up the migration. docs/findings.md says which codes can be accepted."""

    def accepts(self, code: str, obj: str) -> bool:
        """Return whether the user accepts a finding of this code on this object."""
        return any(a.code == code and a.object in (obj, "*") for a in self.accepted)


class RehearsalSpec(Model):
    """Rehearsal in preflight: Kafka migrates a copy of the metadata, and the cluster is not changed."""

    enabled: bool = True
    """Whether preflight runs a rehearsal. The network plugin must enforce NetworkPolicies."""
    resources: FreeForm = {}
    """Resource requirements of each container of the rehearsal's pod; none by default.
    The copy of the ZooKeeper tree is in memory and counts towards the memory limit."""
    timeout_seconds: Annotated[int, Field(ge=60, le=86_400)] = 1800
    """Maximum duration of one rehearsal from its launch, in seconds."""
    max_age_seconds: Annotated[int, Field(ge=60, le=2_592_000)] = 86_400
    """Maximum age of a rehearsal, in seconds, when preflight passes and when the first broker restarts.
    The operator repeats an older rehearsal."""


class OnDeletion(StrEnum):
    """Reaction to the deletion of the resource while its migration configures brokers and ZooKeeper."""

    BLOCK = "Block"
    """Stop at the next safe point, and wait until the user sets ``target: ZooKeeper`` or ``onDeletion: Finish``."""
    ROLL_BACK = "RollBack"
    """Roll back to ZooKeeper as with ``target: ZooKeeper``, then remove the finalizer."""
    FINISH = "Finish"
    """Go on to ``target``. The operator removes the finalizer when the migration is completed or rolled back."""


class HandOver(StrEnum):
    """What the operator does with brokers and controllers after ``Completed``."""

    GUARD = "Guard"
    """The admission policy refuses a pod template that lacks a setting that KRaft needs,
    until the owner of the template renders these settings."""
    RELEASE = "Release"
    """The admission policy refuses no template. The guard does not come back."""
    CLEAN = "Clean"
    """The controllers restart once more, one at a time, without the operator's image:
    without metrics agent and log server. Then as ``Release``. It cannot be taken back."""


class ControllerVolumes(StrEnum):
    """Treatment of the controllers' volumes by a rollback."""

    KEEP = "Keep"
    """The volumes stay as archives. A later attempt creates its own volumes and never mounts these."""
    REMOVE = "Remove"
    """The rollback deletes the volumes."""


class RollbackSpec(Model):
    """Rollback to ZooKeeper."""

    accept_loss: bool = False
    """Whether to roll back although ZooKeeper lacks records of the metadata log. These records are then lost."""
    controller_volumes: ControllerVolumes = ControllerVolumes.KEEP
    """Whether the rollback keeps or removes the controllers' volumes."""
    give_up_former_image: bool = False
    """Whether brokers with the image of ``spec.brokers.upgrade`` may run ``inter.broker.protocol.version`` 3.9.

    Without it the migration stops before the first broker restarts with that protocol:
    in migration mode, or from a protocol below 2.8 in the second rolling restart of ``UpgradingBrokers``.
    Once one broker has run it, no broker can run the former image again:
    a rollback then leaves every broker on ZooKeeper, with the new image and protocol 3.9.
    """


class Kafka4Spec(Model):
    """The way on to Kafka 4, once the migration is ``Completed``."""

    image: Annotated[str, Field(min_length=1)]
    """Image with Kafka 4.0 to 4.4 for the container that runs Kafka.
    Init containers with the same image as that container get it, too."""
    controllers_image: Annotated[str, Field(min_length=1)] | None = None
    """Image of the controllers, with the same release of Kafka, Java 17 or later, and bash, as for
    ``controllers.image``. If omitted, ``image``."""
    metadata_version: Annotated[str, Field(json_schema_extra={"enum": list(KAFKA4_NAMES)})] | None = None
    """The word to raise the features of the cluster: metadata.version to this level, for example ``4.1-IV1``
    (``4.1`` means the last level of that release), then each other feature to its newest level, one by one.

    It ends the way back to the release before. If omitted, no feature is raised.
    """

    @field_validator("metadata_version")
    @classmethod
    def _metadata_version_is_known(cls, name: str | None) -> str | None:
        if name is not None:
            kafka4_level_of(name)
        return name

    @property
    def of_controllers(self) -> str:
        """Image of the controllers."""
        return self.controllers_image or self.image

    @property
    def metadata_level(self) -> int | None:
        """The level that ``metadataVersion`` names."""
        return None if self.metadata_version is None else kafka4_level_of(self.metadata_version)


Percentage = Annotated[str, Field(max_length=4, pattern=r"^([1-9][0-9]?|100)%$")]
"""Part of a number, such as ``20%``."""


class StrategySpec(Model):
    """Pace of the migration."""

    address_cache_seconds: Annotated[int, Field(ge=0, le=3600)] = 35
    """Pause after a broker's restart, in seconds, while a client may cache its old address.
    A JVM caches addresses for 30 s by default, and nobody can ask the clients.
    Where a broker's JVM caches them longer (``status.addressCaches``), the pause is that long."""
    hybrid_soak_seconds: Annotated[int, Field(ge=0)] = 0
    """Time in phase DualWrite before its gate is tried, in seconds. The brokers use ZooKeeper in this phase."""
    pure_soak_seconds: Annotated[int, Field(ge=0)] = 0
    """Time in phase AwaitingFinalization before finalization may begin, in seconds.
    All brokers run KRaft in this phase."""
    session_timeout_hold_seconds: Annotated[int, Field(ge=0, le=600)] = 12
    """Pause after the last restart of a controller, in seconds.
    Keep it longer than ``broker.session.timeout.ms`` (9 s by default)."""
    sync_patience_seconds: Annotated[int, Field(ge=10, le=3600)] = 120
    """Time in seconds that the offset in ``/migration`` may stay the same while the log grows.
    The operator then restarts the active controller; the next one writes its whole image to ZooKeeper."""
    phase_deadline_seconds: Annotated[int, Field(ge=60, le=604_800)] = 1800
    """Time in seconds that a phase may wait without progress.
    The condition ``Stalled`` then becomes True and names the cause."""
    termination_grace_seconds: Annotated[int, Field(ge=1, le=3600)] = 300
    """Minimum grace period of a broker's eviction, in seconds.
    A longer ``terminationGracePeriodSeconds`` of the pod takes precedence."""
    max_unavailable: Annotated[int, Field(ge=1, le=1000)] | Percentage = 1
    """Most brokers that are down together, as a number or as a percentage of the brokers (rounded down, at least 1).
    Only brokers of one zone whose loss leaves every partition its ``min.insync.replicas`` are."""

    def most_down(self, brokers: int) -> int:
        """Return how many of so many brokers may be down together."""
        if isinstance(self.max_unavailable, int):
            return self.max_unavailable
        return max(1, brokers * int(self.max_unavailable.removesuffix("%")) // 100)

    @property
    def in_batches(self) -> bool:
        """Whether more than one broker may be down at a time."""
        return self.max_unavailable != 1


class MigrationSpec(Model):
    """Desired state of the migration."""

    target: Target = Target.KRAFT_BROKERS
    """Point up to which the operator migrates.
    ``KRaftBrokers`` stops before finalization, which cannot be undone.
    ``Kafka4`` leads on to the images of ``kafka4``, and is possible once the phase is ``Completed``.
    ``ZooKeeper`` rolls back."""
    paused: bool = False
    """Whether the operator stops at the next safe point. It goes on when the value is false again."""
    zookeeper: ZooKeeperSpec
    brokers: BrokersSpec
    controllers: ControllersSpec = ControllersSpec()
    verification: VerificationSpec = VerificationSpec()
    preflight: PreflightSpec = PreflightSpec()
    rehearsal: RehearsalSpec = RehearsalSpec()
    pods: PodSettings = PodSettings()
    strategy: StrategySpec = StrategySpec()
    rollback: RollbackSpec = RollbackSpec()
    restore_controllers_from: Annotated[str, Field(max_length=63)] = ""
    """Name of the kept copy (``status.keptCopy.id``) from which all controllers are restored,
    once a majority of their volumes is lost.
    Changes of the metadata after the copy are lost."""
    accepted_objects: Annotated[str, Field(max_length=63)] = ""
    """Id of a change of UIDs, as the finding IdentityChanged names it: the objects with other UIDs than this migration
    recorded are the same ones to you, with all of their data. The operator records them anew and goes on."""
    restart_expired_controllers: Annotated[str, Field(max_length=63)] = ""
    """First 16 digits of the SHA-256 of the certificate that you bring in ``controllers.listener.secretName``:
    the word to restart all controllers at once, once the certificate with which they run has ended.
    With ``controllers.listener.generate`` no word is needed."""
    on_deletion: OnDeletion = OnDeletion.BLOCK
    """Reaction to a deletion of the resource during the migration. The deletion of the whole namespace never waits."""
    hand_over: HandOver = HandOver.GUARD
    """What the operator does with brokers and controllers after ``Completed``:
    guard the brokers' pod templates, release them, or also rid the controllers of its own image."""
    kafka4: Kafka4Spec | None = None
    """Images of Kafka 4 for ``target: Kafka4``."""
    metadata_version: Annotated[str, Field(json_schema_extra={"enum": list(NAMES)})] | None = None
    """metadata.version of the cluster after the migration (KIP-778), for example ``3.9-IV0``.
    ``3.9`` means the last level of that release.

    The operator changes to a higher level, or to a lower one if Kafka loses no metadata.
    If omitted, the operator does not change the level.
    """

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
