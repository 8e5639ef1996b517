"""Preflight findings: what stands in the way of a migration, with a code, a severity and a fix. Pure.

Codes are API (``docs/findings.md``). What could not be observed is a blocking finding: unknown is never "yes".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kraftbridge.constants import ACL_AUTHORIZER, STANDARD_AUTHORIZER
from kraftbridge.models.observation import (
    ClusterState,
    LeaseState,
    MigrationZnode,
    StatefulSetState,
    TopicRedundancy,
    Unobserved,
    ZooKeeperState,
)
from kraftbridge.models.spec import ConfigStyle, MigrationSpec, Runner
from kraftbridge.models.status import FindingStatus, Severity
from kraftbridge.phases.draft import Draft
from kraftbridge.phases.preflight import images as preflight_software
from kraftbridge.phases.preflight import kafka as preflight_kafka
from kraftbridge.phases.preflight import kubernetes as preflight_kubernetes
from kraftbridge.phases.preflight.finding import block, finding

REQUIRED_IBP = (3, 9)
"""KIP-866 needs 3.4; several log dirs need 3.7-IV2 and transactions in the copy 3.6-IV1, and 3.9 is the bridge release."""

OVERLAID_SETTINGS = (
    "controller.listener.names",
    "controller.quorum.voters",
    "listener.security.protocol.map",
    "zookeeper.metadata.migration.enable",
    "process.roles",
    "authorizer.class.name",
)
"""Settings of the brokers that the migration sets; one given by ``valueFrom`` cannot be overridden by a value (API server: 422)."""


ACCEPTABLE = frozenset(
    {
        "AdmissionPolicyMissing",
        "ControllerListenerPlaintext",
        "SuperUserAnonymous",
        "CustomAuthorizer",
        "TopicNotReplicated",
        "TopicAtMinIsr",
        "BudgetsUnknown",
        "CapacityUnknown",
        "DelegationTokenKeyMissing",
        "LimitsUnknown",
        "NoDefaultStorageClass",
        "NoQuotaForVerification",
        "NoRoomForControllers",
        "NoRoomForVerification",
        "OwnedByController",
        "PolicyNotOnControllers",
        "QuotasUnknown",
        "QuotaTooSmall",
        "StorageClassesUnknown",
        "SuperUsersMissingOnControllers",
        "ZooKeeperAclForbidsKRaft",
    }
)
"""Blocking findings that are the user's to accept; the others are unknown or cannot work."""


def findings(draft: Draft) -> tuple[FindingStatus, ...]:
    """Return every finding, accepted ones marked, blocking ones first."""
    accepted = {(a.code, a.object) for a in draft.spec.preflight.accepted}
    found = [
        f.model_copy(update={"accepted": f.code in ACCEPTABLE and bool({(f.code, f.object), (f.code, "*")} & accepted)})
        for f in (
            *_spec(draft.spec),
            *_runner(draft),
            *_guard(draft),
            *_workloads(draft),
            *_zookeeper(draft),
            *_cluster(draft),
            *_survey(draft),
            *preflight_software.findings(draft),
        )
    ]
    order = list(Severity)
    return tuple(sorted(found, key=lambda f: (f.accepted, order.index(f.severity), f.code, f.object)))


def blocking(found: tuple[FindingStatus, ...]) -> tuple[FindingStatus, ...]:
    """Return the findings that close the gate."""
    return tuple(f for f in found if f.severity is Severity.BLOCKING and not f.accepted)


def broker_ids(draft: Draft) -> dict[str, int]:
    """Return the broker id of each pod, from the hosts that brokers registered in ZooKeeper (``/brokers/ids``).

    Empty unless every pod has exactly one.
    """
    sets, zookeeper = draft.stateful_sets(), draft.observation.zookeeper
    if isinstance(sets, Unobserved) or isinstance(zookeeper, Unobserved):
        return {}
    ids: dict[str, int] = {}
    for pod in (p for s in sets for p in s.pods):
        matching = [b.id for b in zookeeper.brokers if any(h == pod.ip or h.split(".")[0] == pod.name for h in b.hosts)]
        if len(matching) != 1:
            return {}
        ids[pod.name] = matching[0]
    return ids if len(set(ids.values())) == len(ids) else {}


def _survey(draft: Draft) -> Iterator[FindingStatus]:
    survey = draft.observation.survey
    if isinstance(survey, Unobserved):
        yield block("SurveyUnknown", "cluster", str(survey), "See the operator's log")
        return
    yield from preflight_kubernetes.findings(draft, survey)
    yield from preflight_kafka.findings(draft, survey)


def _spec(spec: MigrationSpec) -> Iterator[FindingStatus]:
    if spec.controllers.listener.security_protocol == "PLAINTEXT":
        yield block(
            "ControllerListenerPlaintext",
            "controllers",
            "The controllers' listener has neither encryption nor authentication",
            "Set spec.controllers.listener, or accept this finding on a test cluster; a NetworkPolicy is applied either way",
        )
    if any(u.endswith(":ANONYMOUS") for u in spec.controllers.super_users):
        yield block(
            "SuperUserAnonymous",
            "controllers",
            "User:ANONYMOUS is a super user of the controllers: who reaches them may do everything",
            "Name a principal in spec.controllers.superUsers, or accept this finding on a test cluster",
        )
    if spec.controllers.replicas == 1:
        yield finding(
            Severity.WARNING,
            "SingleController",
            "controllers",
            "One controller is no quorum: its loss stops every metadata change",
            "Set spec.controllers.replicas to 3",
        )


def _runner(draft: Draft) -> Iterator[FindingStatus]:
    available = draft.observation.runner_available
    if isinstance(available, Unobserved):
        yield block(
            "RunnerUnknown", "verification", str(available), "Let the operator discover the API groups of the cluster"
        )
    elif not available and draft.spec.verification.runner is Runner.SPARK_APPLICATION:
        yield finding(
            Severity.INFORMATION,
            "SparkOperatorAbsent",
            "verification",
            "The API server knows no sparkoperator.k8s.io/v1beta2; verifications run as Jobs with Spark in local mode",
            "Install the Kubeflow Spark operator for large clusters, or set spec.verification.runner to Job",
        )


def _guard(draft: Draft) -> Iterator[FindingStatus]:
    guarded = draft.observation.admission_policy
    if guarded is not True:
        yield block(
            "AdmissionPolicyMissing",
            "cluster",
            str(guarded)
            if isinstance(guarded, Unobserved)
            else "No ValidatingAdmissionPolicy keeps others from changing the brokers' StatefulSets meanwhile",
            "Install the chart with admissionPolicy.enabled=true (Kubernetes 1.30 or newer), or accept this finding and let nobody apply or upgrade meanwhile",
        )


def _workloads(draft: Draft) -> Iterator[FindingStatus]:
    for ref, item in zip(draft.spec.brokers.stateful_sets, draft.observation.stateful_sets, strict=False):
        name = f"StatefulSet/{ref.name}"
        if isinstance(item, Unobserved):
            yield block(
                "StatefulSetMissing",
                name,
                str(item),
                "Name an existing StatefulSet of this namespace in spec.brokers.statefulSets",
            )
            continue
        if not item.container_found:
            yield block(
                "ContainerMissing",
                name,
                f"Its pod template has no container {draft.spec.brokers.container!r}",
                "Set spec.brokers.container",
            )
            continue
        yield from _stateful_set(draft, name, item)


def _stateful_set(draft: Draft, name: str, item: StatefulSetState) -> Iterator[FindingStatus]:
    settings = item.settings
    if item.lock and item.lock != draft.identity.lock:
        yield block(
            "LockedByAnother", name, f"It is locked by migration {item.lock}", "Finish or delete that migration first"
        )
    if isinstance(item.lease, LeaseState) and item.lease.held_by_another:
        yield block(
            "LockedByAnother",
            name,
            f"It is driven by {item.lease.holder}, which holds Lease kraftbridge-{item.name}",
            "Finish or delete that migration first",
        )
    if len(item.pods) != item.replicas or not all(p.ready and not p.deleting for p in item.pods):
        ready = sum(p.ready and not p.deleting for p in item.pods)
        trouble = next((f": {p.name} {p.trouble}" for p in item.pods if p.trouble), "")
        yield block(
            "BrokersNotReady",
            name,
            f"{ready} of {item.replicas} pods are Ready{trouble}",
            "Bring every broker up first",
        )
    for setting in sorted(item.unreadable_settings & set(OVERLAID_SETTINGS)):
        yield block(
            "SettingFromReference",
            name,
            f"{setting} is given by valueFrom, which a value cannot override",
            "Give it as a plain value, then apply again",
        )
    if not settings and draft.spec.brokers.config_style is ConfigStyle.PROPERTIES:
        yield block(
            "PropertiesMissing",
            name,
            "No setting could be read from the ConfigMap of spec.brokers.properties",
            "Check its volume, configMap and key",
        )
    if draft.spec.brokers.properties is not None and draft.spec.brokers.properties.volume not in item.volumes:
        yield block(
            "VolumeMissing",
            name,
            f"Its pod template has no volume {draft.spec.brokers.properties.volume!r}",
            "Set spec.brokers.properties.volume",
        )
    ibp = re.match(r"(\d+)\.(\d+)", settings.get("inter.broker.protocol.version", ""))
    if ibp is None or (int(ibp[1]), int(ibp[2])) < REQUIRED_IBP:
        yield block(
            "InterBrokerProtocolTooLow",
            name,
            f"inter.broker.protocol.version is {settings.get('inter.broker.protocol.version', 'not set')}; the migration needs 3.9 stated explicitly",
            "Upgrade the brokers to Kafka 3.9 and set inter.broker.protocol.version=3.9 in one rolling restart",
        )
    if (
        settings.get("zookeeper.metadata.migration.enable", "false").strip().lower() == "true"
        and not item.configuration
    ):
        yield block(
            "MigrationFlagAlreadySet",
            name,
            "zookeeper.metadata.migration.enable is set already, not by us",
            "Remove it and restart the brokers",
        )
    if settings.get("process.roles"):
        yield block(
            "AlreadyKRaft",
            name,
            f"process.roles is {settings['process.roles']!r}: this is no ZooKeeper broker",
            "Migrate a ZooKeeper-based cluster",
        )
    if settings.get("control.plane.listener.name"):
        yield block(
            "ControlPlaneListener",
            name,
            "control.plane.listener.name does not exist in KRaft",
            "Remove it from the brokers' configuration",
        )
    if settings.get("broker.id", "").strip() == "-1":
        yield block(
            "GeneratedBrokerIds",
            name,
            "broker.id is -1: ids are generated and known only to the brokers' disks",
            "Set broker.id to each broker's present id",
        )
    authorizer = settings.get("authorizer.class.name", "").strip()
    if authorizer not in ("", ACL_AUTHORIZER, STANDARD_AUTHORIZER):
        yield block(
            "CustomAuthorizer",
            name,
            f"authorizer.class.name is {authorizer}",
            "Make sure that it works without ZooKeeper, then accept this finding: it is kept as it is",
        )


def _zookeeper(draft: Draft) -> Iterator[FindingStatus]:
    state = draft.observation.zookeeper
    name = f"ZooKeeper/{draft.spec.zookeeper.connect}"
    if isinstance(state, Unobserved):
        yield block(
            "ZooKeeperUnreachable",
            name,
            str(state),
            "Check spec.zookeeper.connect and its Secret, and that the operator's pods may reach it",
        )
        return
    if not state.cluster_id:
        yield block(
            "ClusterIdMissing",
            name,
            f"There is no {draft.spec.chroot}/cluster/id",
            "Check the chroot in spec.zookeeper.connect",
        )
    yield from _znodes(name, state)
    yield from _identities(draft, name, state)


def _znodes(name: str, state: ZooKeeperState) -> Iterator[FindingStatus]:
    if isinstance(state.migration, Unobserved):
        yield block(
            "MigrationZnodeUnreadable",
            name,
            f"/migration cannot be read: {state.migration.reason} (KAFKA-19480)",
            "Delete /migration if no migration ever ran",
        )
    elif isinstance(state.migration, MigrationZnode) and state.migration.kraft_metadata_offset >= 0:
        yield block(
            "MigrationZnodeStale",
            name,
            f"/migration stands at offset {state.migration.kraft_metadata_offset} from an earlier migration: a new one would overwrite ZooKeeper with an empty image (KAFKA-17146)",
            "Archive and delete /migration once the earlier migration is rolled back",
        )
    if state.controller is None:
        yield block(
            "NoController", name, "/controller is missing: the cluster has no controller", "Let the brokers elect one"
        )
    elif state.controller.kraft_controller_epoch >= 0:
        yield block(
            "ControllerIsKRaft",
            name,
            "/controller is claimed by a KRaft quorum already",
            "Roll that migration back first",
        )
    if state.pending_topic_deletions:
        yield block(
            "PendingTopicDeletions",
            name,
            f"Topics wait for deletion: {', '.join(state.pending_topic_deletions[:5])}",
            "Let the deletions finish",
        )
    if state.reassignments:
        yield block("ReassignmentRunning", name, "A partition reassignment is under way", "Let it finish or cancel it")


def _identities(draft: Draft, name: str, state: ZooKeeperState) -> Iterator[FindingStatus]:
    sets = draft.stateful_sets()
    if isinstance(sets, Unobserved):
        return
    ids = broker_ids(draft)
    if not ids:
        yield block(
            "BrokerIdentityUnknown",
            name,
            f"The pods of {', '.join(s.name for s in sets)} and the registered brokers {[b.id for b in state.brokers]} cannot be paired by their advertised hosts",
            "Advertise each broker under its pod's DNS name",
        )
        return
    if unmanaged := sorted({b.id for b in state.brokers} - set(ids.values())):
        yield block(
            "BrokersNotManaged",
            name,
            f"Brokers {unmanaged} are registered but belong to none of spec.brokers.statefulSets",
            "List their StatefulSets too: the copy starts only when every broker is in migration mode",
        )
    if clash := sorted(set(ids.values()) & set(draft.spec.controllers.node_ids)):
        yield block(
            "NodeIdCollision", "controllers", f"Node ids {clash} are broker ids", "Change spec.controllers.firstNodeId"
        )


def _cluster(draft: Draft) -> Iterator[FindingStatus]:
    cluster, redundancy = draft.observation.cluster, draft.observation.redundancy
    name = f"Kafka/{draft.spec.brokers.bootstrap_servers}"
    if not isinstance(cluster, ClusterState):
        yield block(
            "KafkaUnreachable", name, str(cluster), "Check spec.brokers.bootstrapServers and clientConfigSecret"
        )
        return
    if cluster.offline_count:
        yield block(
            "OfflinePartitions",
            name,
            f"{cluster.offline_count} partitions have no leader: {', '.join(cluster.offline[:5])}",
            "Repair them first",
        )
    if cluster.under_replicated_count:
        yield block(
            "UnderReplicatedPartitions",
            name,
            f"{cluster.under_replicated_count} partitions lack replicas in their ISR: {', '.join(cluster.under_replicated[:5])}",
            "Let the replicas catch up",
        )
    if not isinstance(redundancy, TopicRedundancy):
        yield block(
            "RedundancyUnknown",
            name,
            str(redundancy),
            "Let the operator's principal describe all topics and their configurations",
        )
        return
    for topic in redundancy.replication_factor_one:
        yield block(
            "TopicNotReplicated",
            f"topic/{topic}",
            "Its replication factor is 1: it is unavailable while its broker restarts (twice)",
            "Add replicas, or accept this finding",
        )
    for topic in redundancy.at_min_isr:
        yield block(
            "TopicAtMinIsr",
            f"topic/{topic}",
            "Its replication factor equals min.insync.replicas: producers with acks=all fail while one of its brokers restarts",
            "Add a replica or lower min.insync.replicas, or accept this finding",
        )
