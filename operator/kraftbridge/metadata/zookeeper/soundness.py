"""Whether a ZooKeeper tree is sound: everything that Kafka's copy reads can be read and means something.

Each rule names the Kafka ticket or the class that it comes from. Codes are API: users accept findings by code and object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kraftbridge.metadata.errors import MetadataError
from kraftbridge.metadata.log.image import ACL_OPERATIONS, ACL_PERMISSIONS, ACL_RESOURCE_TYPES
from kraftbridge.metadata.zookeeper.entities import MIGRATION_PATH, MigrationState, acl_entries, config_values
from kraftbridge.metadata.zookeeper.passwords import EncodedPassword, looks_encoded
from kraftbridge.metadata.zookeeper.topics import TOPICS_PATH, TopicReading
from kraftbridge.models.report import Finding, Severity

DELETIONS_PATH: Final = "/admin/delete_topics"
REASSIGNMENT_PATH: Final = "/admin/reassign_partitions"
ELECTION_PATH: Final = "/admin/preferred_replica_election"
CONTROLLER_PATH: Final = "/controller"
CONTROLLER_EPOCH_PATH: Final = "/controller_epoch"
CLUSTER_ID_PATH: Final = "/cluster/id"
CHECKED_NODES: Final = (REASSIGNMENT_PATH, ELECTION_PATH, CONTROLLER_PATH, CONTROLLER_EPOCH_PATH, CLUSTER_ID_PATH)
"""Znodes that are not copied and still say whether the copy can begin."""

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_NO_LEADER: Final = -1
_KNOWN_QUOTAS: Final = frozenset(
    {
        "producer_byte_rate",
        "consumer_byte_rate",
        "request_percentage",
        "controller_mutation_rate",
        "connection_creation_rate",
    }
)


@dataclass(slots=True)
class Soundness:
    """Collects findings while a tree is read.

    Attributes
    ----------
    broker_ids
        Brokers that are registered in ZooKeeper.
    encoder_secret
        The brokers' `password.encoder.secret`, if it was given.
    """

    broker_ids: frozenset[int] = frozenset()
    encoder_secret: str | None = None
    findings: list[Finding] = field(default_factory=list)
    highest_controller_epoch: int = -1
    controller_epoch: int | None = None
    secret_required: bool = True
    """Whether encrypted configs without their secret block; a dump's reader need not have it."""

    def topic(self, topic: TopicReading) -> None:
        """Check one topic's znodes."""
        path = f"{TOPICS_PATH}/{topic.name}"
        if topic.assignment is None:
            self._add(
                "StaleTopicZnode",
                Severity.WARNING,
                path,
                "partition states without a topic: left behind by a topic that is gone",
                f"delete {path} once no topic {topic.name} exists",
            )
            return
        if topic.name in {".", ".."} or not _TOPIC_NAME.fullmatch(topic.name):
            self._add(
                "TopicNameInvalid",
                Severity.BLOCKING,
                path,
                "Kafka does not allow this topic name, so the KRaft controller refuses it",
                "delete the znode, or the topic with an old client",
            )
        if topic.assignment.topic_id is None:
            self._add(
                "TopicWithoutId",
                Severity.BLOCKING,
                path,
                "the topic has no id (KIP-516)",
                "set inter.broker.protocol.version to 2.8 or later and let the controller assign ids",
            )
        if not topic.assignment.replicas:
            self._add("TopicWithoutPartitions", Severity.BLOCKING, path, "no partition is assigned", "delete the topic")
        if any(topic.assignment.adding.values()) or any(topic.assignment.removing.values()):
            self._add(
                "ReassignmentInProgress",
                Severity.WARNING,
                path,
                "partitions are being reassigned",
                "let the reassignment finish or cancel it before the takeover",
            )
        for number in topic.states:
            self._partition(topic, number, f"{path}/partitions/{number}/state")

    def _partition(self, topic: TopicReading, number: int, path: str) -> None:
        assert topic.assignment is not None
        state, replicas = topic.states[number], topic.assignment.replicas.get(number)
        if replicas is None:
            self._add(
                "OrphanPartitionState",
                Severity.WARNING,
                path,
                f"the topic has no partition {number}; the copy ignores this state",
                "delete the znode",
            )
            return
        if not replicas or len(set(replicas)) != len(replicas):
            self._add(
                "ReplicasInvalid",
                Severity.BLOCKING,
                path,
                f"replicas {replicas} are empty or name a broker twice",
                "reassign the partition",
            )
        unknown = sorted(set(replicas) - self.broker_ids)
        if self.broker_ids and unknown:
            self._add(
                "ReplicaOnUnknownBroker",
                Severity.WARNING,
                path,
                f"replicas on brokers {unknown}, which are not registered",
                "start the brokers or reassign the partition",
            )
        if state is None:
            # `ZkTopicMigrationClient` then takes all replicas as in sync, with only a WARN
            self._add(
                "PartitionWithoutState",
                Severity.BLOCKING,
                path,
                "the state is missing: the copy would declare every replica in sync",
                "let the controller write it: elect a new controller, or recreate the topic",
            )
            return
        self.highest_controller_epoch = max(self.highest_controller_epoch, state.controller_epoch)
        if not set(state.isr) <= set(replicas) or not state.isr:
            self._add(
                "IsrInvalid",
                Severity.BLOCKING,
                path,
                f"in-sync replicas {state.isr} are not among the replicas {replicas}",
                "let the controller write the state again: elect a new controller",
            )
        if state.leader == _NO_LEADER:
            self._add(
                "PartitionWithoutLeader",
                Severity.WARNING,
                path,
                "no leader",
                "start the brokers that hold its replicas",
            )
        elif state.leader not in state.isr:
            self._add(
                "LeaderNotInSync",
                Severity.BLOCKING,
                path,
                f"leader {state.leader} is not in the in-sync replicas {state.isr}",
                "elect a leader for the partition",
            )

    def znode(self, path: str, data: bytes | None) -> None:
        """Check one znode that is not below `/brokers/topics`; what cannot be decoded is the reader's finding."""
        try:
            match path.split("/")[1:]:
                case ["kafka-acl", kind, _] | ["kafka-acl-extended", _, kind, _]:
                    self._acls(path, kind, data)
                case ["config", "brokers", _]:
                    self._passwords(path, data)
                case ["config", "users" | "clients" | "ips", *_] if data:
                    self._quotas(path, data)
        except MetadataError:
            return

    def _acls(self, path: str, kind: str, data: bytes | None) -> None:
        if kind not in ACL_RESOURCE_TYPES.values() or kind == "Any":
            # `AclAuthorizer.loadAllAcls` skips them with a WARN
            self._add(
                "AclResourceTypeUnknown",
                Severity.WARNING,
                path,
                f"resource type {kind} is unknown to Kafka 3.9: these ACLs are ignored and not copied",
                "delete the znode if no authorizer of yours needs it",
            )
            return
        for entry in acl_entries(path, data):
            principal, operation, permission = entry["principal"], entry["operation"], entry["permissionType"]
            if ":" not in principal:
                # `StandardAcl.kafkaPrincipal` throws: it can stop the controller at start
                self._add(
                    "AclPrincipalInvalid",
                    Severity.BLOCKING,
                    path,
                    f"principal {principal!r} has no type, as in User:name",
                    "remove this ACL",
                )
            if operation not in ACL_OPERATIONS.values() or permission not in ACL_PERMISSIONS.values():
                self._add(
                    "AclUnknown",
                    Severity.BLOCKING,
                    path,
                    f"operation {operation!r} or permission {permission!r} is unknown to Kafka 3.9",
                    "remove this ACL",
                )

    def _passwords(self, path: str, data: bytes | None) -> None:
        for name, value in config_values(path, data).items():
            if not looks_encoded(value):
                continue
            where = f"{path} {name}"
            if self.encoder_secret is None:
                self._add(
                    "PasswordEncoderSecretMissing",
                    Severity.BLOCKING if self.secret_required else Severity.WARNING,
                    where,
                    "encrypted, and no password.encoder.secret is given: controllers without it copy the cipher text",
                    "name the Secret that holds the brokers' password.encoder.secret",
                )
                continue
            try:
                EncodedPassword.parse(value).decoded(self.encoder_secret)
            except MetadataError as error:
                self._add(
                    "PasswordEncoderSecretWrong",
                    Severity.BLOCKING,
                    where,
                    str(error),
                    "give the secret that the brokers use, or set the config again",
                )
                continue
            self._add(
                "PasswordBecomesPlain",
                Severity.WARNING,
                where,
                "KRaft keeps dynamic configs unencrypted in its metadata log",
                "restrict access to the controllers' volumes, or move the value into the brokers' static configuration",
            )

    def _quotas(self, path: str, data: bytes) -> None:
        for name in config_values(path, data):
            if name not in _KNOWN_QUOTAS and not name.startswith("SCRAM-SHA-"):
                self._add(
                    "QuotaUnknown",
                    Severity.WARNING,
                    path,
                    f"{name} is no quota of Kafka 3.9",
                    f"remove {name} from the entity's configs",
                )

    def tree(
        self,
        *,
        topics: Iterable[str],
        topic_configs: Iterable[str],
        deletions: Iterable[str],
        migration: MigrationState | None,
        migration_problem: str | None,
        checked: Mapping[str, bytes | None],
    ) -> None:
        """Check what concerns the tree as a whole.

        Parameters
        ----------
        topics, topic_configs
            Names below `/brokers/topics` and `/config/topics`.
        deletions
            Names below `/admin/delete_topics`.
        migration, migration_problem
            `/migration`, or why it cannot be understood.
        checked
            Data of those `CHECKED_NODES` that exist.
        """
        known, configured = set(topics), set(topic_configs)
        for topic in sorted(configured - known):
            self._add(
                "StaleTopicConfig",
                Severity.WARNING,
                f"/config/topics/{topic}",
                "configs of a topic that does not exist",
                "delete the znode",
            )
        for topic in sorted(known - configured):
            self._add(
                "TopicConfigMissing",
                Severity.WARNING,
                f"/config/topics/{topic}",
                "the topic has no config znode (KAFKA-16003): changes of its configs may not reach brokers",
                f"alter any config of topic {topic} once",
            )
        for topic in sorted(deletions):
            self._add(
                "TopicDeletionPending",
                Severity.BLOCKING,
                f"{DELETIONS_PATH}/{topic}",
                "the topic's deletion has not finished (KAFKA-15605): it would not be copied but stay on disk",
                "start the brokers that hold its replicas, with delete.topic.enable=true",
            )
        self._migration(migration, migration_problem)
        self._nodes(checked)

    def _migration(self, migration: MigrationState | None, problem: str | None) -> None:
        if problem is not None:
            self._add(
                "MigrationZnodeUnreadable",
                Severity.BLOCKING,
                MIGRATION_PATH,
                f"{problem}; controllers hang on it (KAFKA-19480)",
                f"delete {MIGRATION_PATH}",
            )
        elif migration is not None and migration.offset > 0:
            self._add(
                "MigrationZnodeStale",
                Severity.BLOCKING,
                MIGRATION_PATH,
                f"it says that offset {migration.offset} was mirrored: a new quorum would overwrite ZooKeeper (KAFKA-17146)",
                f"delete {MIGRATION_PATH} if no KRaft controller of this cluster runs",
            )

    def _nodes(self, checked: Mapping[str, bytes | None]) -> None:
        if REASSIGNMENT_PATH in checked:
            self._add(
                "ReassignmentZnode",
                Severity.BLOCKING,
                REASSIGNMENT_PATH,
                "a reassignment by an old tool is waiting",
                "let it finish or delete the znode",
            )
        if ELECTION_PATH in checked:
            self._add(
                "ElectionZnode",
                Severity.WARNING,
                ELECTION_PATH,
                "a preferred leader election by an old tool is waiting",
                "let it finish or delete the znode",
            )
        if CONTROLLER_PATH not in checked:
            self._add("ControllerMissing", Severity.BLOCKING, CONTROLLER_PATH, "no controller", "start the brokers")
        try:
            epoch = int(checked.get(CONTROLLER_EPOCH_PATH) or b"")
        except ValueError:
            epoch = None
            self._add(
                "ControllerEpochInvalid",
                Severity.BLOCKING,
                CONTROLLER_EPOCH_PATH,
                "missing or not a number",
                "let a broker become controller",
            )
        self.controller_epoch = epoch
        if not _cluster_id(checked.get(CLUSTER_ID_PATH)):
            self._add(
                "ClusterIdInvalid",
                Severity.BLOCKING,
                CLUSTER_ID_PATH,
                "missing or not JSON with an id",
                "start a broker",
            )
        if not self.broker_ids:
            self._add("NoBrokers", Severity.BLOCKING, "/brokers/ids", "no broker is registered", "start the brokers")

    def epochs(self, controller_epoch: int | None, highest_in_states: int) -> None:
        """Check `/controller_epoch` against the highest epoch in any partition's state."""
        if controller_epoch is not None and highest_in_states > controller_epoch:
            self._add(
                "ControllerEpochBehind",
                Severity.BLOCKING,
                CONTROLLER_EPOCH_PATH,
                f"it is {controller_epoch}, partition states are of epoch {highest_in_states} (KAFKA-20488)",
                f"set {CONTROLLER_EPOCH_PATH} to {highest_in_states} and elect a new controller",
            )

    def undecodable(self, path: str, problem: str) -> None:
        """Add a znode that could not be decoded."""
        self._add(
            "ZnodeUndecodable",
            Severity.BLOCKING,
            path,
            problem,
            "repair it with Kafka's tools (kafka-configs, kafka-acls, kafka-topics), or delete the znode",
        )

    def _add(self, code: str, severity: Severity, subject: str, reason: str, fix: str) -> None:
        self.findings.append(Finding(code=code, severity=severity, object=subject, reason=reason, fix=fix))


def _cluster_id(data: bytes | None) -> str | None:
    try:
        identity = json.loads(data or b"{}").get("id")
    except (ValueError, AttributeError):
        return None
    return identity if isinstance(identity, str) and identity else None
