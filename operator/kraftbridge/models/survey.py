"""Parts that only preflight observes.

They are rights, capacity, disruption budgets, ZooKeeper's ACLs and the brokers' running configuration.

Each part is either present or `Unobserved`; preflight makes a blocking finding of an `Unobserved` one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from typing_extensions import override

DOES_NOT_EXIST: Final = "it does not exist"
"""Reason of an object that the API server does not have."""


@dataclass(frozen=True, slots=True)
class Unobserved:
    """A part of the observation that is unknown. A gate that needs it stays closed."""

    source: str
    """The source that did not answer: ``ZooKeeper zookeeper-0:2181``, ``controller 3001``."""
    reason: str

    @override
    def __str__(self) -> str:
        """Return both in one line."""
        return f"{self.source} could not be observed: {self.reason}"

    @property
    def absent(self) -> bool:
        """Whether the API server has answered that the object does not exist."""
        return self.reason == DOES_NOT_EXIST


@dataclass(frozen=True, slots=True)
class AclEntry:
    """One entry of a znode's ACL."""

    scheme: str
    id: str
    permissions: frozenset[str]
    """Letters of ``cdrwa``: create, delete, read, write, admin."""


@dataclass(frozen=True, slots=True)
class ZooKeeperAcls:
    """Who may do what to the znodes that a KRaft controller has to write."""

    acls: Mapping[str, tuple[AclEntry, ...]]
    """By path below the chroot; znodes that do not exist are left out."""
    denied: tuple[str, ...]
    """Paths whose ACL our own session may not even read."""
    topics: frozenset[str]
    """Children of ``/brokers/topics``: every topic, whoever may see it."""
    topics_without_acl: int = 0
    """Number of topics whose znodes were not read, because there are too many."""


@dataclass(frozen=True, slots=True)
class ZooKeeperUsers:
    """Signs that others than one Kafka cluster and its migration use its ZooKeeper."""

    znodes: tuple[str, ...] = ()
    """Absolute paths of children of ZooKeeper's root and of the chroot that are not this Kafka cluster's."""
    groups: tuple[str, ...] = ()
    """Children of ``/consumers``: groups of consumers that keep their offsets in ZooKeeper."""
    clients: tuple[str, ...] | Unobserved = ()
    """Addresses that have sessions and are neither a broker's nor the operator's own."""


class SettingSource(StrEnum):
    """Origin of a broker's setting (``DescribeConfigsResponse.ConfigSource``)."""

    STATIC = "static"
    """Its own file or environment."""
    DYNAMIC_BROKER = "dynamic, of this broker"
    DYNAMIC_DEFAULT = "dynamic, of all brokers"
    DEFAULT = "Kafka's default"
    """Nobody set it. Only `RELEVANT_DEFAULTS` are listed."""


DYNAMIC: Final = frozenset({SettingSource.DYNAMIC_BROKER, SettingSource.DYNAMIC_DEFAULT})


@dataclass(frozen=True, slots=True)
class Stated:
    """One place that states a setting."""

    source: SettingSource
    value: str | None
    """None for a password."""


RELEVANT_DEFAULTS: Final = frozenset({"inter.broker.protocol.version"})
"""Settings of which preflight judges the value that runs, whoever chose it."""


@dataclass(frozen=True, slots=True)
class BrokerSetting:
    """A setting of a running broker that somebody set, or one of `RELEVANT_DEFAULTS`."""

    name: str
    value: str | None
    """None for a sensitive one."""
    source: SettingSource
    sensitive: bool
    known: bool
    """Whether the broker's version of Kafka defines it; others belong to plugins or are ignored."""
    stated: tuple[Stated, ...] = ()
    """The places that state the setting by this name, the one that wins first."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What one container asks the cluster for; quantities in millicores and bytes, None where it does not say."""

    name: str
    cpu_request: int | None
    memory_request: int | None
    cpu_limit: int | None
    memory_limit: int | None


@dataclass(frozen=True, slots=True)
class ControllersDemand:
    """Requests of the controllers' pods, read from the StatefulSet that the operator would apply."""

    pods: int
    containers: tuple[Demand, ...]
    """Of one pod."""
    storage_bytes: int
    """Of one pod's volume."""
    node_selector: Mapping[str, str]
    tolerations: tuple[Mapping[str, str], ...]
    apart: bool
    """Whether a required anti-affinity keeps two controllers off one node."""
    init_containers: tuple[Demand, ...] = ()
    """Of one pod. They request less than the containers, but a quota asks them to state what it counts."""


@dataclass(frozen=True, slots=True)
class Quota:
    """A ResourceQuota that counts the controllers' pods or volumes."""

    name: str
    left: Mapping[str, int]
    """Remaining amount of each resource: millicores, bytes or a count."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One entry of a LimitRange."""

    name: str
    kind: str
    """``Container``, ``Pod`` or ``PersistentVolumeClaim``."""
    minimum: Mapping[str, int]
    maximum: Mapping[str, int]
    default: Mapping[str, int]
    default_request: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Room:
    """Free capacity of a node, and the pods that it admits."""

    node: str
    labels: Mapping[str, str]
    taints: tuple[Mapping[str, str], ...]
    """Those that keep a pod away (``NoSchedule``, ``NoExecute``)."""
    usable: bool
    """Ready and not cordoned."""
    cpu: int
    memory: int
    pods: int


@dataclass(frozen=True, slots=True)
class Capacity:
    """Free capacity of the nodes."""

    rooms: tuple[Room, ...]
    all_pods_seen: bool
    """False where the operator may list pods of its own namespaces only: then others' requests are not counted."""


@dataclass(frozen=True, slots=True)
class StorageClass:
    """A StorageClass."""

    name: str
    default: bool


@dataclass(frozen=True, slots=True)
class Budget:
    """A PodDisruptionBudget that selects brokers."""

    name: str
    stateful_set: str
    disruptions_allowed: int
    expected_pods: int
    healthy_pods: int
    desired_healthy: int
    up_to_date: bool
    """Whether its controller has seen the newest generation."""


@dataclass(frozen=True, slots=True)
class Right:
    """A right on the API server (``authorization.k8s.io`` ResourceAttributes)."""

    verb: str
    group: str
    resource: str
    subresource: str = ""

    @override
    def __str__(self) -> str:
        """Return verb and resource as ``kubectl auth can-i`` takes them: ``patch statefulsets.apps``."""
        words = f"{self.verb} {self.resource}"
        if self.group:
            words += f".{self.group}"
        if self.subresource:
            words += f"/{self.subresource}"
        return words


@dataclass(frozen=True, slots=True)
class Visibility:
    """The part of the cluster that the operator's principal may describe."""

    topics: frozenset[str]
    """Topics in Metadata, which silently leaves out what may not be described."""
    cluster_operations: frozenset[str]
    """``DescribeCluster``'s authorized operations, Kafka's names (``DESCRIBE``, ``ALTER_CONFIGS`` …)."""
    topics_without_configs: frozenset[str] = frozenset()
    """Topics that it may describe, but not their configuration (KIP-430)."""


@dataclass(frozen=True, slots=True)
class RefusedChange:
    """A change of the migration that the API server does not accept in a dry run."""

    object: str
    """``Kind/name``."""
    words: str
    """The API server's answer, which quotes the policy or webhook."""


@dataclass(frozen=True, slots=True)
class LogDir:
    """One of a broker's log directories (DescribeLogDirs)."""

    path: str
    error: str = ""
    """Kafka's name of the error where the directory has failed."""
    leftovers: tuple[str, ...] = ()
    """``topic-partition`` of replicas in it that no topic assigns to the broker."""
    future: tuple[str, ...] = ()
    """``topic-partition`` of replicas that are moved into it from another directory (KIP-113)."""


@dataclass(frozen=True, slots=True)
class LoginTrial:
    """A broker that did not let the operator in with the controllers' credentials at its inter-broker listener."""

    listener: str
    address: str
    """``host:port`` as the broker advertises it."""
    reason: str
    tried: bool
    """False if the operator could not connect as a controller would."""


@dataclass(frozen=True, slots=True)
class MigrationClaim:
    """A KafkaMigration, and the cluster that it is about."""

    namespace: str
    name: str
    uid: str
    created_at: str
    """``metadata.creationTimestamp``."""
    phase: str
    stateful_sets: frozenset[str]
    """StatefulSets of brokers in its namespace."""
    connect: str
    """``spec.zookeeper.connect``."""
    cluster_id: str
    """Id of its Kafka cluster, ``""`` while it is not known."""


@dataclass(frozen=True, slots=True)
class Survey:
    """All of it."""

    zookeeper: ZooKeeperAcls | Unobserved
    zookeeper_identities: tuple[str, ...]
    """``scheme:id`` of each of the controllers' credentials in ``spec.zookeeper.secretName``."""
    visibility: Visibility | Unobserved
    reassigning: tuple[str, ...] | Unobserved
    """``topic-partition`` of reassignments under way (KIP-455)."""
    brokers: Mapping[int, tuple[BrokerSetting, ...] | Unobserved] | Unobserved
    """Running configuration of each broker (DescribeConfigs)."""
    listener_settings: frozenset[str] | Unobserved
    """Names of the settings in the controllers' ``listener.properties``."""
    demand: ControllersDemand | Unobserved
    verification: tuple[Demand, ...]
    """What the pods of one verification ask for, driver first; they run beside the controllers."""
    storage_classes: tuple[StorageClass, ...] | Unobserved
    quotas: tuple[Quota, ...] | Unobserved
    limits: tuple[Limit, ...] | Unobserved
    capacity: Capacity | Unobserved
    budgets: tuple[Budget, ...] | Unobserved
    missing_rights: tuple[Right, ...] | Unobserved
    writers: Mapping[str, tuple[str, ...]] | Unobserved = field(default_factory=dict)
    """By StatefulSet: tools that keep writing it (Argo CD, Flux, Helm), and where that is written."""
    listener_problems: tuple[str, ...] | Unobserved = ()
    """Why the controllers cannot use the certificate in the Secret of their listener."""
    leftovers: tuple[str, ...] | Unobserved = ()
    """``Kind/name`` of objects that an earlier resource of the same name left behind; this migration does not use
    them."""
    migrations: tuple[MigrationClaim, ...] | Unobserved = ()
    """Every KafkaMigration that the operator sees, this one included."""
    zookeeper_users: ZooKeeperUsers | Unobserved = ZooKeeperUsers()
    """Others that use the brokers' ZooKeeper, as far as it tells."""
    selecting: tuple[str, ...] | Unobserved = ()
    """``Kind/name`` of the brokers' StatefulSets and of PodDisruptionBudgets
    whose selector matches a pod with the labels of ``spec.pods``."""
    refused: tuple[RefusedChange, ...] | Unobserved = ()
    """Changes of the brokers' StatefulSets, and objects of the controllers,
    that the API server does not accept in a dry run."""
    inter_broker: Mapping[int, LoginTrial] | Unobserved = field(default_factory=dict)
    """Brokers whose inter-broker listener does not let the controllers in, or where that could not be tried."""
    log_dirs: Mapping[int, tuple[LogDir, ...] | Unobserved] | Unobserved = field(default_factory=dict)
    """Log directories of each broker."""
