"""Interfaces of the clients of Kubernetes, ZooKeeper and Kafka.

The classes of this package and the tests' fakes implement them.

All methods are synchronous and bounded in time.
Reads raise `ObservationError`.
Writes raise `ActionError` or a subclass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from kraftbridge.constants import FIELD_MANAGER
from kraftbridge.models.assignments import Assignments
from kraftbridge.models.broker_record import (
    EffectiveSetting,
    ListenerState,
    OffsetsNow,
    PartitionOffsets,
    TopicPartition,
)
from kraftbridge.models.decision import Event
from kraftbridge.models.metadata_version import FEATURE, Upgrade
from kraftbridge.models.observation import (
    ClusterState,
    FeatureAnswer,
    KafkaSettings,
    NodeFeatures,
    QuorumState,
    TopicIds,
    TopicRedundancy,
    Unobserved,
    ZooKeeperState,
)
from kraftbridge.models.survey import BrokerSetting, LogDir, Right, Visibility, ZooKeeperAcls, ZooKeeperUsers

Object = dict[str, Any]
LOG_BYTES: Final = 256 * 1024
"""Most of a container's log that is read, unless more is asked for."""


class ReadPort(Protocol):
    """What can be asked of the API server; nothing in it is changed."""

    def get(self, api_version: str, kind: str, namespace: str | None, name: str) -> Object | None:
        """Return an object, or None if it does not exist."""

    def list(
        self, api_version: str, kind: str, namespace: str | None, label_selector: str = "", *, field_selector: str = ""
    ) -> tuple[Object, ...]:
        """Return all objects of a kind with these labels and fields."""

    def server_time(self) -> datetime | None:
        """Return the time by the API server's clock; None before its first answer."""

    def api_servers(self) -> tuple[str, ...]:
        """Return the addresses at which the API server says that it serves, as ``host:port``."""

    def serves(self, api_version: str, kind: str) -> bool:
        """Return whether the API server serves a kind."""

    def may(self, right: Right, namespace: str | None) -> bool:
        """Return whether this client has a right, as the API server answers."""

    def pod_logs(
        self,
        namespace: str,
        pod: str,
        container: str,
        tail_lines: int | None = 100,
        *,
        previous: bool = False,
        since_seconds: int | None = None,
        limit_bytes: int = LOG_BYTES,
    ) -> str | None:
        """Return the last lines of a container's log, or None if the pod does not exist.

        With ``tail_lines`` None, from its beginning.
        """

    def try_apply(self, obj: Mapping[str, Any]) -> None:
        """Apply server-side as a dry run: admission answers, and nothing is stored."""


class KubernetesPort(ReadPort, Protocol):
    """The API server; see `kraftbridge.storage.kubernetes.KubernetesStore`."""

    def create(self, obj: Mapping[str, Any], *, field_manager: str = FIELD_MANAGER) -> Object:
        """Create an object; `ConflictError` if it exists."""

    def apply(self, obj: Mapping[str, Any], *, force: bool = False, field_manager: str = FIELD_MANAGER) -> Object:
        """Apply server-side; `ConflictError` lists fields that other managers own.

        With ``metadata.uid`` and ``metadata.resourceVersion`` only to exactly this version, otherwise `ConflictError`.
        """

    def apply_new(self, obj: Mapping[str, Any], *, force: bool = False, field_manager: str = FIELD_MANAGER) -> Object:
        """Apply server-side an object that does not exist; `ConflictError` if somebody has created it meanwhile."""

    def merge_patch(
        self,
        api_version: str,
        kind: str,
        namespace: str | None,
        name: str,
        patch: Mapping[str, Any],
        *,
        resource_version: str | None = None,
        subresource: str | None = None,
        field_manager: str = FIELD_MANAGER,
    ) -> Object:
        """Apply a JSON merge patch, only at ``resource_version`` if it is given."""

    def strategic_patch(
        self,
        api_version: str,
        kind: str,
        namespace: str | None,
        name: str,
        patch: Mapping[str, Any],
        *,
        field_manager: str,
        resource_version: str | None = None,
    ) -> Object:
        """Apply a strategic merge patch as a field manager."""

    def replace_status(
        self, api_version: str, kind: str, namespace: str, name: str, status: Mapping[str, Any], resource_version: str
    ) -> Object:
        """Replace the whole status at exactly this resourceVersion, otherwise raise `ConflictError`."""

    def delete(
        self,
        api_version: str,
        kind: str,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        propagation: str = "Background",
        grace_seconds: int | None = None,
        resource_version: str | None = None,
    ) -> None:
        """Delete an object (of that UID), only at ``resource_version`` if it is given; a missing object is no error."""

    def evict(self, namespace: str, pod: str, uid: str, grace_seconds: int) -> None:
        """Evict exactly this pod; `EvictionBlockedError` if a budget forbids it now. A missing pod is no error."""

    def create_event(self, regarding: Mapping[str, Any], event: Event) -> None:
        """Post an event about an object."""


class ZooKeeperPort(Protocol):
    """One Kafka cluster's ZooKeeper; see `kraftbridge.storage.zookeeper.ZooKeeperStore`."""

    def observe(self) -> ZooKeeperState:
        """Read the znodes that show the state of the migration."""

    def acls(self) -> ZooKeeperAcls:
        """Return the ACLs of the znodes that KRaft controllers write."""

    def users(self) -> ZooKeeperUsers:
        """Return what others keep there, and the addresses of clients that are neither brokers nor this client."""

    def topics(self) -> frozenset[str]:
        """See `ZooKeeperStore.topics`."""

    def payloads(self, paths: Sequence[str]) -> dict[str, bytes | None]:
        """Return the data of znodes; None for a znode that does not exist."""

    def broker_session_count(self) -> int | Unobserved:
        """Return the number of sessions without the operator's own."""

    def remove_controller_claim(self, expected_kraft_epoch: int) -> None:
        """Delete ``/controller`` of that epoch and ``/migration``. This is the last step of a rollback."""

    def create_partition_states(self) -> tuple[str, ...]:
        """Create the state of each partition that has none, and return these partitions."""

    def close(self) -> None:
        """End the session."""


class BrokerPort(Protocol):
    """The brokers; see `kraftbridge.storage.kafka_brokers.BrokerClient`."""

    def cluster_state(self) -> ClusterState:
        """Return the cluster as a broker serves it."""

    def cluster_by_broker(self) -> Mapping[int, ClusterState | Unobserved]:
        """Ask several brokers and return the cluster as each of them serves it."""

    def topic_redundancy(self) -> TopicRedundancy:
        """Return the topics that become unavailable while a broker restarts."""

    def assignments(self, accepted: frozenset[str]) -> Assignments:
        """Return where the replicas are, as several brokers serve it, and the zones that ``broker.rack`` names."""

    def log_dirs(self) -> Mapping[int, tuple[LogDir, ...] | Unobserved]:
        """Return the log directories of each broker with what is wrong in them."""

    def reassigning_partitions(self) -> tuple[str, ...]:
        """Return ``topic-partition`` of running reassignments."""

    def visibility(self) -> Visibility:
        """Return the topics and operations that the operator's principal may access."""

    def broker_settings(self) -> Mapping[int, tuple[BrokerSetting, ...] | Unobserved]:
        """Return the settings of each running broker."""

    def settings_for_kafka4(self) -> KafkaSettings:
        """Return the settings of each running broker, and those of topics that Kafka 4 refuses or ignores."""

    def send_old_requests(self) -> Mapping[int, Unobserved | None]:
        """Send each running broker a request of a version that Kafka 4 refuses, which its metrics then show."""

    def topic_ids(self, processes: Mapping[int, str]) -> Mapping[int, TopicIds | Unobserved]:
        """Return what these brokers, by their processes, tell of the ids of their topics."""

    def refusal(self, address: str, server_name: str, client_properties: Mapping[str, str]) -> str | None:
        """Return why a broker does not let a client with these settings do a controller's work; None if it does."""

    def renew_leaders(self, most: int) -> None:
        """See `BrokerClient.renew_leaders`."""

    def leader_epochs(self) -> tuple[Mapping[TopicPartition, int], frozenset[int]]:
        """See `BrokerClient.leader_epochs`."""

    def serves_topic(self, topic: str) -> Mapping[int, bool | Unobserved]:
        """Ask each broker whether it serves a topic."""

    def controller_by_broker(self) -> dict[int, int | Unobserved]:
        """Ask each broker for the controller's id."""

    def features(self) -> dict[int, NodeFeatures | Unobserved]:
        """Return the features of each broker that Metadata lists."""

    def close(self) -> None:
        """Close the connection."""


class BrokerRecordPort(Protocol):
    """One broker, asked by its own id; see `kraftbridge.storage.broker_records.BrokerRecordClient`.

    It is closed after each record.
    """

    def address(self, broker: int) -> tuple[str, int] | None:
        """Return where clients find a broker."""

    def settings(self, broker: int) -> Mapping[str, EffectiveSetting]:
        """Return every setting of a broker."""

    def listener(self, name: str, host: str, port: int, protocol: str) -> ListenerState:
        """Return what a client sees at a listener."""

    def offsets(self, broker: int, holds_for: timedelta) -> Mapping[TopicPartition, PartitionOffsets]:
        """Return where its partitions begin and end."""

    def offsets_now(
        self, broker: int, record: Mapping[TopicPartition, PartitionOffsets]
    ) -> Mapping[TopicPartition, OffsetsNow | str]:
        """Return where recorded partitions begin and end now."""

    def close(self) -> None:
        """Close all connections."""


class ControllerPort(Protocol):
    """The KRaft controllers; see `kraftbridge.storage.kafka_controllers.ControllerClient`."""

    def quorum_state(self) -> QuorumState:
        """Return the quorum as its leader describes it."""

    def registered_controllers(self) -> frozenset[int]:
        """Return the ids of the registered controllers."""

    def features(self) -> dict[int, NodeFeatures | Unobserved]:
        """Return the features of each controller."""

    def write_canary(self, value: int, replicas: int) -> None:
        """Create the canary topic and set the canary quota; returns when both are committed."""

    def remove_canary(self, value: int) -> None:
        """Remove the canary quota and topic."""

    def validate_metadata_version(self, level: int, upgrade: Upgrade, feature: str = FEATURE) -> FeatureAnswer:
        """Validate a change of metadata.version at the active controller without changing it."""

    def update_metadata_version(self, level: int, upgrade: Upgrade, feature: str = FEATURE) -> None:
        """Change the finalized metadata.version; returns when it is committed."""

    def close(self) -> None:
        """Close all connections."""
