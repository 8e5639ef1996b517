"""The outside world as the services see it; the classes of this package keep to it, and so do the tests' fakes.

Everything is synchronous and bounded in time. Reads raise `ObservationError`, acts raise `ActionError` and its kin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from kraftbridge.constants import FIELD_MANAGER
from kraftbridge.models.decision import Event
from kraftbridge.models.metadata_version import Upgrade
from kraftbridge.models.observation import (
    ClusterState,
    FeatureAnswer,
    NodeFeatures,
    QuorumState,
    TopicRedundancy,
    Unobserved,
    ZooKeeperState,
)
from kraftbridge.models.survey import BrokerSetting, Right, Visibility, ZooKeeperAcls

Object = dict[str, Any]


class KubernetesPort(Protocol):
    """The API server; see `kraftbridge.storage.kubernetes.KubernetesStore`."""

    def get(self, api_version: str, kind: str, namespace: str | None, name: str) -> Object | None:
        """Return an object, None when there is none."""

    def list(self, api_version: str, kind: str, namespace: str | None, label_selector: str = "") -> tuple[Object, ...]:
        """Return all objects of a kind that carry the labels."""

    def serves(self, api_version: str, kind: str) -> bool:
        """Return whether the API server serves a kind."""

    def may(self, right: Right, namespace: str | None) -> bool:
        """Return whether we have a right, as the API server itself says."""

    def pod_logs(
        self,
        namespace: str,
        pod: str,
        container: str,
        tail_lines: int = 100,
        *,
        previous: bool = False,
        since_seconds: int | None = None,
    ) -> str | None:
        """Return the last lines of a container, None when the pod is gone."""

    def create(self, obj: Mapping[str, Any], *, field_manager: str = FIELD_MANAGER) -> Object:
        """Create an object; `ConflictError` when it exists."""

    def apply(self, obj: Mapping[str, Any], *, force: bool = False, field_manager: str = FIELD_MANAGER) -> Object:
        """Apply server-side; `ConflictError` lists fields that others own."""

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
        """Patch by JSON merge patch, at one resourceVersion only where it is given."""

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
        """Patch strategically in the name of a field manager."""

    def replace_status(
        self, api_version: str, kind: str, namespace: str, name: str, status: Mapping[str, Any], resource_version: str
    ) -> Object:
        """Replace the whole status at one resourceVersion only; else `ConflictError`."""

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
    ) -> None:
        """Delete an object (of that UID); one that is gone is no error."""

    def evict(self, namespace: str, pod: str, uid: str, grace_seconds: int) -> None:
        """Evict exactly this pod; `EvictionBlockedError` when a budget forbids it now, no error when it is gone."""

    def create_event(self, regarding: Mapping[str, Any], event: Event) -> None:
        """Post an event about an object."""


class ZooKeeperPort(Protocol):
    """One Kafka cluster's ZooKeeper; see `kraftbridge.storage.zookeeper.ZooKeeperStore`."""

    def observe(self) -> ZooKeeperState:
        """Read the znodes that show where a migration stands."""

    def acls(self) -> ZooKeeperAcls:
        """Return the ACLs of the znodes that KRaft controllers write."""

    def payloads(self, paths: Sequence[str]) -> dict[str, bytes | None]:
        """Return what znodes hold, None where there is none."""

    def broker_session_count(self) -> int | Unobserved:
        """Return how many sessions there are but ours."""

    def remove_controller_claim(self, expected_kraft_epoch: int) -> None:
        """Delete ``/controller`` of that epoch and ``/migration``: the last step of a rollback."""

    def close(self) -> None:
        """End the session."""


class BrokerPort(Protocol):
    """The brokers; see `kraftbridge.storage.kafka_brokers.BrokerClient`."""

    def cluster_state(self) -> ClusterState:
        """Return the cluster as a broker serves it."""

    def cluster_by_broker(self) -> Mapping[int, ClusterState | Unobserved]:
        """Return the cluster as several brokers serve it, each asked itself."""

    def topic_redundancy(self) -> TopicRedundancy:
        """Return topics that a broker's restart makes unavailable."""

    def reassigning_partitions(self) -> tuple[str, ...]:
        """Return ``topic-partition`` of reassignments under way."""

    def visibility(self) -> Visibility:
        """Return what our principal may see."""

    def broker_settings(self) -> Mapping[int, tuple[BrokerSetting, ...] | Unobserved]:
        """Return what each running broker has configured."""

    def serves_topic(self, topic: str) -> Mapping[int, bool | Unobserved]:
        """Return whether each broker itself serves a topic."""

    def controller_by_broker(self) -> dict[int, int | Unobserved]:
        """Return whom each broker takes for the controller."""

    def features(self) -> dict[int, NodeFeatures | Unobserved]:
        """Return what each broker that Metadata lists says of itself."""

    def close(self) -> None:
        """Close the connection."""


class ControllerPort(Protocol):
    """The KRaft controllers; see `kraftbridge.storage.kafka_controllers.ControllerClient`."""

    def quorum_state(self) -> QuorumState:
        """Return the quorum as its leader describes it."""

    def registered_controllers(self) -> frozenset[int]:
        """Return the ids of the registered controllers."""

    def features(self) -> dict[int, NodeFeatures | Unobserved]:
        """Return what each controller says of itself."""

    def write_canary(self, value: int, replicas: int) -> None:
        """Make our canary topic and set our canary quota; returns once both are committed."""

    def remove_canary(self, value: int) -> None:
        """Remove our canary quota and topic."""

    def validate_metadata_version(self, level: int, upgrade: Upgrade) -> FeatureAnswer:
        """Return what the active controller says to a change of metadata.version, changing nothing."""

    def update_metadata_version(self, level: int, upgrade: Upgrade) -> None:
        """Change the finalized metadata.version; returns once it is committed."""

    def close(self) -> None:
        """Close all connections."""
