"""The catalogue of findings: one code, severity, meaning and fix for each fact. Pure data.

Preflight and the verifier make their findings from it (`Code.describe`), acceptance reads it,
and ``docs/findings.md`` is generated from it.
Codes are API.
Texts hold ``{details}`` that the check fills in; ``tests/unit/test_catalogue.py`` compares both.
A command stands between backquotes, and names in it are quoted for a shell (`kraftbridge.outside.shell`).
``HOST:PORT`` and words in capitals are what the user fills in; ``$ZOOKEEPER`` is the value of ``zookeeper.connect``.
``make fixes`` runs the commands and settings; `kraftbridge.models.fixes` says of every other fix why it is not run.
"""

from __future__ import annotations

from enum import StrEnum
from string import Formatter
from typing import Final, Self

from kraftbridge.outside import shell


class Severity(StrEnum):
    """How serious a finding is."""

    BLOCKING = "Blocking"
    """The migration would fail, or lose or damage data. The gate stays closed; a verdict is ``Inconsistent``."""
    WARNING = "Warning"
    """The user should know the fact. The migration goes on."""
    INFORMATION = "Information"
    """No action is needed before the migration."""


class CheckedBy(StrEnum):
    """Component that checks a fact."""

    PREFLIGHT = "preflight"
    TREE = "tree verification"
    """The verification of profile ``zookeeper``, which reads the whole tree."""
    BOTH = "preflight and tree verification"
    COMPARISON = "comparison of the stores"
    """The verifications of profiles ``dual-write`` and ``replicas``."""
    EVERYWHERE = "preflight, tree verification and comparison of the stores"
    GUARDS = "guards of the phases after Preflight, and of a rollback"
    """The operator compares what it observes with what it recorded, before it does anything."""
    LOGS = "logs of nodes"
    """The operator reads the logs of controllers, and of brokers that are down, while a phase makes no progress.
    ``models.clues`` holds the patterns."""

    RESTART = "comparison of a broker before and after its restart"
    """The pod template is compared with what a dry start has looked at (docs/dry-start.md), and each broker is asked by
    its own id before and after its restart (docs/brokers.md)."""


_BLOCKING: Final = Severity.BLOCKING
_WARNING: Final = Severity.WARNING
_INFORMATION: Final = Severity.INFORMATION
_PREFLIGHT: Final = CheckedBy.PREFLIGHT
_TREE: Final = CheckedBy.TREE
_BOTH: Final = CheckedBy.BOTH
_EVERYWHERE: Final = CheckedBy.EVERYWHERE
_COMPARISON: Final = CheckedBy.COMPARISON
_LOGS: Final = CheckedBy.LOGS
_GUARDS: Final = CheckedBy.GUARDS
_RESTART: Final = CheckedBy.RESTART
_ACCEPTABLE: Final = True


class Code(StrEnum):
    """Every finding."""

    severity: Severity
    """How serious the finding is. It is the same in every check."""
    checked_by: CheckedBy
    """Component that checks the fact."""
    meaning: str
    """Template of the problem, subject first."""
    fix: str
    """Template of the action that removes the problem."""
    acceptable: bool
    """Whether the user may accept a blocking finding in ``spec.preflight.accepted``.
    The migration cannot work with the others, or their fact is not known."""

    def __new__(
        cls,
        value: str,
        severity: Severity,
        checked_by: CheckedBy,
        meaning: str,
        fix: str,
        acceptable: bool = False,  # noqa: FBT001, FBT002 - a column of the table below
    ) -> Self:
        """Create a member from its row in the table."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.severity = severity
        member.checked_by = checked_by
        member.acceptable = acceptable
        member.meaning = meaning
        member.fix = fix
        return member

    @property
    def details(self) -> frozenset[str]:
        """Names of the placeholders in its texts."""
        return frozenset(name for _, name, _, _ in Formatter().parse(self.meaning + self.fix) if name)

    def describe(self, **details: object) -> tuple[str, str]:
        """Return the problem and the action, with the details filled in.

        Raises
        ------
        KeyError
            A detail of the text is not given.
        """
        return shell.filled(self.meaning, **details), shell.filled(self.fix, **details)

    def commands(self, **details: object) -> list[str]:
        """Return the commands of the action, with the details filled in and quoted for a shell."""
        return shell.commands(self.fix, **details)

    # fmt: off
    # ------------------------------------------------------------ the resource and the operator

    ACCEPTED_CODE_UNKNOWN = (
        "AcceptedCodeUnknown", _WARNING, _PREFLIGHT,
        "spec.preflight.accepted names {code}, which is not the code of a finding",
        "Correct the code. docs/findings.md lists all codes",
    )
    ADMISSION_POLICY_MISSING = (
        "AdmissionPolicyMissing", _BLOCKING, _PREFLIGHT,
        "No admission policy protects the brokers' StatefulSets from other writers during the migration: {reason}",
        ("Install the chart with admissionPolicy.enabled=true (Kubernetes 1.30 or newer). "
         "Or accept this finding, and do not apply or upgrade these StatefulSets during the migration"),
        _ACCEPTABLE,
    )
    CONTROLLER_LISTENER_PLAINTEXT = (
        "ControllerListenerPlaintext", _BLOCKING, _PREFLIGHT,
        ("The controllers' listener has neither encryption nor authentication: "
         "every client that reaches it may change all metadata"),
        ("Set spec.controllers.listener.securityProtocol and its Secret. On a test cluster, accept this finding. "
         "The operator applies a NetworkPolicy in both cases"),
        _ACCEPTABLE,
    )
    METADATA_VERSION_OUT_OF_REACH = (
        "MetadataVersionOutOfReach", _WARNING, _PREFLIGHT,
        ("Kafka {release} will refuse metadata.version {asked} after the migration: "
         "the cluster starts at {highest}, and {lowest} is the lowest level without loss of metadata"),
        "Set spec.metadataVersion to a level between these two, or remove it",
    )
    RIGHTS_UNKNOWN = (
        "RightsUnknown", _BLOCKING, _PREFLIGHT,
        "The operator cannot tell which rights it has: {reason}",
        "Let its service account create selfsubjectaccessreviews.authorization.k8s.io",
    )
    RIGHT_MISSING = (
        "RightMissing", _BLOCKING, _PREFLIGHT,
        "The operator's service account may not: {rights}",
        "Install the chart with rbac.create=true, or grant these rights in the migration's namespace",
    )
    RUNNER_UNKNOWN = (
        "RunnerUnknown", _BLOCKING, _PREFLIGHT,
        "The operator cannot tell whether a Spark operator is installed: {reason}",
        "Let its service account discover the API groups of the cluster",
    )
    SINGLE_CONTROLLER = (
        "SingleController", _WARNING, _PREFLIGHT,
        "The cluster has one controller: while it is down, no metadata can change",
        "Set spec.controllers.replicas to 3",
    )
    SPARK_OPERATOR_ABSENT = (
        "SparkOperatorAbsent", _INFORMATION, _PREFLIGHT,
        ("The API server does not serve sparkoperator.k8s.io/v1beta2: "
         "verifications run as Jobs with Spark in local mode"),
        "Install the Kubeflow Spark operator for large clusters, or set spec.verification.runner to Job",
    )
    SUPER_USER_ANONYMOUS = (
        "SuperUserAnonymous", _BLOCKING, _PREFLIGHT,
        "User:ANONYMOUS is a super user of the controllers: every client that reaches them may do everything",
        "Name a principal in spec.controllers.superUsers. On a test cluster, accept this finding",
        _ACCEPTABLE,
    )
    SURVEY_UNKNOWN = (
        "SurveyUnknown", _BLOCKING, _PREFLIGHT,
        "The operator could not read the objects of the Kubernetes cluster that the migration needs: {reason}",
        "Read the operator's log, in its own namespace: `kubectl logs deployment/kraftbridge`",
    )

    # ------------------------------------------------------------ the brokers' StatefulSets

    ALREADY_KRAFT = (
        "AlreadyKRaft", _BLOCKING, _PREFLIGHT,
        "The pod template sets process.roles={roles}: its brokers do not use ZooKeeper",
        "Name the StatefulSets of a cluster that uses ZooKeeper in spec.brokers.statefulSets",
    )
    BROKERS_NOT_READY = (
        "BrokersNotReady", _BLOCKING, _PREFLIGHT,
        "{ready} of {replicas} pods are Ready{trouble}",
        "Wait until every broker is Ready. This shows what the others wait for: `kubectl describe pod NAME`",
    )
    CONTAINER_MISSING = (
        "ContainerMissing", _BLOCKING, _PREFLIGHT,
        "The pod template has no container {container!r}",
        "Set spec.brokers.container to the name of Kafka's container",
    )
    CUSTOM_AUTHORIZER = (
        "CustomAuthorizer", _BLOCKING, _PREFLIGHT,
        "The brokers use the authorizer {authorizer}, which may need ZooKeeper",
        ("Make sure that it works without ZooKeeper, then accept this finding. "
         "Brokers and controllers keep the authorizer"),
        _ACCEPTABLE,
    )
    FIELDS_MANAGED_BY_OTHERS = (
        "FieldsManagedByOthers", _WARNING, _PREFLIGHT,
        "Others write the StatefulSet, too: {writers}",
        ("Do not apply, upgrade or sync the StatefulSet during the migration (Argo CD: switch selfHeal off; Flux: "
         "suspend). Afterwards copy the manifests of the ConfigMap in status.finalManifest into its source"),
    )
    VOLUME_NEEDED_IN_RELEASE = (
        "VolumeNeededInRelease", _WARNING, _PREFLIGHT,
        ("The migration mounts Secret {secret} in the brokers, and after it {release} has to render this volume. "
         "A chart that has no value for volumes may remove it, and the API server then refuses each later release"),
        ("Check that the chart has values for volumes and their mounts (Bitnami: extraVolumes and "
         "extraVolumeMounts). cp-helm-charts has none: secure the listener with a login there (docs/layout-env.md)"),
    )
    GENERATED_BROKER_IDS = (
        "GeneratedBrokerIds", _BLOCKING, _PREFLIGHT,
        "Kafka generated the broker ids, and only the brokers' disks hold them: {stated}",
        ("Set broker.id of each broker to its present id, and with it broker.id.generation.enable=false, "
         "without which Kafka refuses an id above 1000 (docs/install.md, Give the brokers fixed ids: "
         "one pod template for all ids). This shows the id on a broker's disk: "
         "`sed -n -e 's/^broker[.]id=//p' -e 's/^node[.]id=//p' FOLDER/meta.properties`"),
    )
    IMAGE_TOO_OLD = (
        "ImageTooOld", _WARNING, _PREFLIGHT,
        ("The image {image} starts Kafka {release}, according to its name. "
         "A broker of that release cannot register at the metadata.version of the quorum"),
        ("Name an image with Kafka 3.9 in spec.brokers.upgrade, and the migration brings the brokers to it. "
         "Or roll the brokers to an image with Kafka 3.9 first, "
         "with inter.broker.protocol.version set to the version that runs now (docs/install.md, "
         "Bring the brokers to Kafka 3.9). Ignore this finding if the image contains 3.9 in spite of its name"),
    )
    IMAGE_WRITES_TO_ZOOKEEPER = (
        "ImageWritesToZooKeeper", _INFORMATION, _PREFLIGHT,
        ("{variable} makes the image create its SCRAM users in ZooKeeper at each start of a broker. "
         "The migration sets {variable}=false from the first restart on, because the image does not start on KRaft "
         "with it and would change users in ZooKeeper alone. A rollback gives the variable its value back"),
        ("Nothing to do before the migration; the users exist already. "
         "After it, your release must not set {variable} again"),
    )
    LOCKED_BY_ANOTHER = (
        "LockedByAnother", _BLOCKING, _PREFLIGHT,
        "Another migration owns the StatefulSet: {holder}",
        "Finish or delete that migration first: `kubectl get kafkamigrations --all-namespaces`",
    )
    ANOTHER_MIGRATION = (
        "AnotherMigration", _BLOCKING, _PREFLIGHT,
        ("KafkaMigration {other} (phase {phase}) is about the same cluster: {same}. "
         "It was created before this one or has left Preflight, so this one is refused"),
        ("Delete one of the two: two migrations of one cluster would undo each other's work. "
         "Accept this finding only if the clusters differ, for example if one is a clone with the same cluster id"),
        _ACCEPTABLE,
    )
    ANOTHER_MIGRATION_UNKNOWN = (
        "AnotherMigrationUnknown", _BLOCKING, _PREFLIGHT,
        "Whether another KafkaMigration is about the same cluster is not known: {reason}",
        "Let the operator list kafkamigrations.kraftbridge.dev in every namespace that it watches",
    )
    LEFTOVERS_FOUND = (
        "LeftoversFound", _INFORMATION, _PREFLIGHT,
        ("Objects of an earlier KafkaMigration of this name remain: {objects}. "
         "This migration has another UID and does not use them"),
        ("Delete these objects when you no longer need the earlier controllers, "
         "their volumes and the recorded original state"),
    )
    LEFTOVERS_UNKNOWN = (
        "LeftoversUnknown", _WARNING, _PREFLIGHT,
        "Objects of an earlier KafkaMigration of this name could not be listed: {reason}",
        "Let the operator list statefulsets, persistentvolumeclaims and configmaps in the migration's namespace",
    )
    OVERLAY_LEFT = (
        "OverlayLeft", _BLOCKING, _PREFLIGHT,
        "The pod template carries the overlay of an earlier migration ({mark}), so it is not its owner's own",
        ("Put the owner's template back as docs/rollback.md describes for an abandoned migration, "
         "and restart the brokers with it"),
    )
    OWNED_BY_CONTROLLER = (
        "OwnedByController", _BLOCKING, _PREFLIGHT,
        "The StatefulSet belongs to {owner}, whose controller reverts changes of the template",
        "Stop that controller until the migration is complete, then accept this finding",
        _ACCEPTABLE,
    )
    POD_NEEDS_ZOOKEEPER = (
        "PodNeedsZooKeeper", _WARNING, _PREFLIGHT,
        ("Besides Kafka, these parts of the pod template ask ZooKeeper: {parts}. Once ZooKeeper is removed, "
         "a pod that is rescheduled does not start, or they fail"),
        ("Remove them or let them ask Kafka, at the latest before you remove ZooKeeper. In Completed, the status "
         "names each pod that still has such a part. A dry start cannot wait for an init container that needs the "
         "network: it then reports DryStartImpossible"),
    )
    PROBE_ASKS_ZOOKEEPER = (
        "ProbeAsksZooKeeper", _BLOCKING, _PREFLIGHT,
        ("Probes or hooks of the pod template ask ZooKeeper: {parts}. A KRaft broker has no znode in /brokers/ids, so "
         "such a probe stops it again and again, and what a hook writes to ZooKeeper during the migration is lost"),
        ("Let the probe ask the broker (its port, or kafka-broker-api-versions), and let the hook use "
         "--bootstrap-server; roll the brokers. Accept this finding if the probe or hook does well "
         "without the broker's znode and writes nothing to ZooKeeper"),
        _ACCEPTABLE,
    )
    PROPERTIES_MISSING = (
        "PropertiesMissing", _BLOCKING, _PREFLIGHT,
        "{mounted}, which volume {volume} of the pod template mounts, has no key {key} with settings",
        "Correct volume and key in spec.brokers.properties",
    )
    PROPERTIES_ELSEWHERE = (
        "PropertiesElsewhere", _BLOCKING, _PREFLIGHT,
        "Volume {volume} of the pod template mounts {mounted}, and spec.brokers.properties.configMap is {stated}",
        "Remove configMap from spec.brokers.properties: the operator takes what the volume of each StatefulSet mounts",
    )
    SETTING_FROM_REFERENCE = (
        "SettingFromReference", _BLOCKING, _PREFLIGHT,
        ("The pod template gives {variable} by valueFrom. "
         "The migration sets this variable, and a value cannot replace a reference (API server: 422)"),
        "Replace valueFrom of {variable} by this line in the pod template, and roll the brokers: {line}",
    )
    SETTING_IN_ARGUMENTS = (
        "SettingInArguments", _BLOCKING, _PREFLIGHT,
        "Container {container} starts Kafka with --override {setting}={value}, which wins over what the migration sets",
        ("Remove --override {setting}={value} from command and args, "
         "set {setting}={value} in the channel of spec.brokers.configStyle, and roll the brokers"),
    )
    STATEFUL_SET_MISSING = (
        "StatefulSetMissing", _BLOCKING, _PREFLIGHT,
        "The StatefulSet cannot be read: {reason}",
        ("Name existing StatefulSets of the migration's namespace in spec.brokers.statefulSets: "
         "`kubectl get statefulsets`"),
    )
    VOLUME_MISSING = (
        "VolumeMissing", _BLOCKING, _PREFLIGHT,
        "The pod template has no volume {volume!r} that mounts a ConfigMap or a Secret",
        "Set spec.brokers.properties.volume to the volume that mounts the properties file",
    )
    WRITERS_UNKNOWN = (
        "WritersUnknown", _BLOCKING, _PREFLIGHT,
        "The operator does not know which other writers change the brokers' StatefulSets: {reason}",
        "Let the operator read the brokers' StatefulSets",
    )

    # ------------------------------------------------------------ the Kubernetes cluster

    BUDGETS_UNKNOWN = (
        "BudgetsUnknown", _BLOCKING, _PREFLIGHT,
        "The operator does not know how many brokers may be evicted: {reason}",
        ("Let the operator list poddisruptionbudgets.policy. "
         "If the status of a budget is not up to date, wait, then check its conditions. Or accept this finding"),
        _ACCEPTABLE,
    )
    CAPACITY_PARTLY_KNOWN = (
        "CapacityPartlyKnown", _INFORMATION, _PREFLIGHT,
        ("The operator sees only the pods of its own namespaces. "
         "It does not count the resources that other pods use on the {nodes} nodes"),
        ("No action is needed. If a controller finds no room, the migration waits before it changes a broker, "
         "and the status says so"),
    )
    CAPACITY_UNKNOWN = (
        "CapacityUnknown", _BLOCKING, _PREFLIGHT,
        "The operator does not know whether the controllers find room: {reason}",
        "Correct spec.controllers, let the operator list nodes and pods, or accept this finding",
        _ACCEPTABLE,
    )
    CHANGE_REFUSED = (
        "ChangeRefused", _BLOCKING, _PREFLIGHT,
        "The API server refuses what the migration would change: {words}",
        ("Let the policy or webhook that this message names accept the change, "
         "or exempt the operator's service account from it"),
    )
    CHANGES_UNKNOWN = (
        "ChangesUnknown", _BLOCKING, _PREFLIGHT,
        "The operator does not know whether the API server accepts the migration's changes: {reason}",
        "Let the operator patch the brokers' StatefulSets; see the reason",
    )
    DISRUPTION_BUDGET_FORBIDS_ALL = (
        "DisruptionBudgetForbidsAll", _BLOCKING, _PREFLIGHT,
        "The PodDisruptionBudget allows no eviction although all {pods} pods are healthy ({desired} must stay)",
        "Set maxUnavailable to 1 in the budget. The operator restarts brokers by eviction, one at a time",
    )
    LIMITS_UNKNOWN = (
        "LimitsUnknown", _BLOCKING, _PREFLIGHT,
        "The operator does not know which resources the LimitRanges of the namespace allow: {reason}",
        "Let the operator list limitranges, or accept this finding",
        _ACCEPTABLE,
    )
    LIMIT_RANGE_REFUSES = (
        "LimitRangeRefuses", _BLOCKING, _PREFLIGHT,
        "The LimitRange would refuse {pods}: {violation}",
        ("Change spec.controllers.resources, spec.controllers.storage.size, "
         "spec.verification or spec.pods.helperResources, or the LimitRange"),
    )
    NO_DEFAULT_STORAGE_CLASS = (
        "NoDefaultStorageClass", _BLOCKING, _PREFLIGHT,
        "The cluster has no default StorageClass, and spec names none. Existing classes: {classes}",
        "Set spec.controllers.storage.storageClassName. Accept this finding if you bind volumes by hand",
        _ACCEPTABLE,
    )
    NO_QUOTA_FOR_VERIFICATION = (
        "NoQuotaForVerification", _BLOCKING, _PREFLIGHT,
        "{resource}: besides the controllers, a verification needs {needed}, and {left} is left",
        "Raise the quota, request less in spec.verification, or set a default in a LimitRange",
        _ACCEPTABLE,
    )
    NO_ROOM_FOR_CONTROLLERS = (
        "NoRoomForControllers", _BLOCKING, _PREFLIGHT,
        "{fitting} of {pods} controllers find room ({demand}) on the {eligible} of {nodes} nodes that may take them",
        ("Add nodes, request less in spec.controllers.resources, or relax nodeSelector, tolerations and affinity. "
         "Accept this finding if an autoscaler adds nodes"),
        _ACCEPTABLE,
    )
    NO_ROOM_FOR_VERIFICATION = (
        "NoRoomForVerification", _BLOCKING, _PREFLIGHT,
        "Besides the {controllers} controllers, {waiting} of the {pods} pods of a verification find no room: {demand}",
        "Add nodes, or request less in spec.verification. Accept this finding if an autoscaler adds nodes",
        _ACCEPTABLE,
    )
    POD_LABELS_SELECTED = (
        "PodLabelsSelected", _BLOCKING, _PREFLIGHT,
        "Its selector matches the labels {labels} of spec.pods: it would count the operator's pods as the brokers'",
        "Remove or change a label in spec.pods.labels",
        _ACCEPTABLE,
    )
    POD_LABELS_UNKNOWN = (
        "PodLabelsUnknown", _BLOCKING, _PREFLIGHT,
        "The operator does not know which selectors match the labels of spec.pods: {reason}",
        "Let the operator read StatefulSets and PodDisruptionBudgets, or accept this finding",
        _ACCEPTABLE,
    )
    QUOTAS_UNKNOWN = (
        "QuotasUnknown", _BLOCKING, _PREFLIGHT,
        "The operator does not know how much the ResourceQuotas of the namespace leave: {reason}",
        "Let the operator list resourcequotas, or accept this finding",
        _ACCEPTABLE,
    )
    QUOTA_NEEDS_REQUESTS = (
        "QuotaNeedsRequests", _BLOCKING, _PREFLIGHT,
        ("The ResourceQuota counts {resource}, and not every container of the controllers sets it: "
         "the API server would refuse their pods"),
        ("Set requests and limits in spec.controllers.resources and spec.pods.helperResources, "
         "or a default in a LimitRange"),
    )
    QUOTA_TOO_SMALL = (
        "QuotaTooSmall", _BLOCKING, _PREFLIGHT,
        "{resource}: the {pods} controllers request {needed}, and {left} is left",
        "Raise the quota, or request less in spec.controllers",
        _ACCEPTABLE,
    )
    SEVERAL_DISRUPTION_BUDGETS = (
        "SeveralDisruptionBudgets", _BLOCKING, _PREFLIGHT,
        "The PodDisruptionBudgets {budgets} select the same pods: the API server then refuses every eviction",
        "Delete all but one of them",
    )
    STORAGE_CLASSES_UNKNOWN = (
        "StorageClassesUnknown", _BLOCKING, _PREFLIGHT,
        "The operator does not know which StorageClasses exist: {reason}",
        "Let the operator list storageclasses.storage.k8s.io, or accept this finding",
        _ACCEPTABLE,
    )
    STORAGE_CLASS_MISSING = (
        "StorageClassMissing", _BLOCKING, _PREFLIGHT,
        "StorageClass {wanted} does not exist. Existing classes: {classes}",
        "Set spec.controllers.storage.storageClassName to an existing one",
    )

    # ------------------------------------------------------------ the running Kafka cluster

    BROKERS_NOT_MANAGED = (
        "BrokersNotManaged", _BLOCKING, _PREFLIGHT,
        "Brokers {brokers} are registered in ZooKeeper and belong to no StatefulSet in spec.brokers.statefulSets",
        ("Add their StatefulSets to spec.brokers.statefulSets. "
         "Kafka copies the metadata only when every broker is in migration mode"),
    )
    BROKER_IDENTITY_UNKNOWN = (
        "BrokerIdentityUnknown", _BLOCKING, _PREFLIGHT,
        ("The pods of {sets} and the registered brokers {brokers} cannot be paired: neither the hosts that they "
         "advertise nor copies of the pods tell which pod has which broker"),
        ("Let copies of the pods show broker.id (dryStart.enabled=true in the chart, every broker Ready), "
         "or advertise each broker under its pod's DNS name at one of its listeners"),
    )
    LEFTOVER_REPLICAS = (
        "LeftoverReplicas", _BLOCKING, _PREFLIGHT,
        ("Log directory {directory} of broker {broker} holds {count} replica(s) "
         "that no topic assigns to it: {replicas}. A broker with a replica that has no topic id "
         "(no partition.metadata) may rejoin no ISR after the takeover (KAFKA-21022)"),
        ("Copy what you need of it, then let Kafka delete it; nothing restarts. If the topic does not exist: "
         "create it with each of its partitions on broker {broker} (the replica assignment of kafka-topics has one "
         "entry for each number up to the partition's), and delete it. If it exists: "
         "add this broker to the partition's replicas and remove it again with kafka-reassign-partitions"),
        _ACCEPTABLE,
    )
    LOG_DIRS_UNKNOWN = (
        "LogDirsUnknown", _BLOCKING, _PREFLIGHT,
        "The operator does not know what is in the brokers' log directories: {reason}",
        "Let the operator's principal reach every broker, and grant it DESCRIBE on the cluster. Or accept this finding",
        _ACCEPTABLE,
    )
    LOG_DIR_OFFLINE = (
        "LogDirOffline", _BLOCKING, _PREFLIGHT,
        ("Log directory {directory} of broker {broker} has failed ({error}): its replicas are offline, "
         "and a restart of the broker may find it empty"),
        ("Repair its volume and restart the broker, or reassign its replicas and remove the directory from log.dirs. "
         "The broker's log names the cause"),
        _ACCEPTABLE,
    )
    DATA_NOT_ON_CLAIM = (
        "DataNotOnClaim", _BLOCKING, _PREFLIGHT,
        ("Log directory {directory} of broker {broker} is {where}. Every restart of a pod loses what it does not find "
         "again: topics without another replica are lost, and a KRaft broker whose directory is blank exits "
         "unless its image formats it (No readable meta.properties)"),
        ("Put log.dirs below the mount path of a claim (volumeClaimTemplates) and let one broker at a time copy its "
         "replicas anew. Accept this finding only if the pod is bound to the node of its data, or if every topic has "
         "replicas elsewhere and the image formats blank directories"),
        _ACCEPTABLE,
    )
    KAFKA_UNREACHABLE = (
        "KafkaUnreachable", _BLOCKING, _PREFLIGHT,
        "The operator cannot read the cluster's metadata from Kafka: {reason}",
        "Correct spec.brokers.bootstrapServers and clientConfigSecret. The operator's pods must reach the brokers",
    )
    NODE_ID_COLLISION = (
        "NodeIdCollision", _BLOCKING, _PREFLIGHT,
        "Node ids {ids} of the controllers are ids of brokers",
        "Change spec.controllers.firstNodeId",
    )
    OFFLINE_PARTITIONS = (
        "OfflinePartitions", _BLOCKING, _BOTH,
        "{count} partition(s) have no leader: {partitions}",
        ("Start the brokers that hold their replicas: "
         "`kafka-topics --bootstrap-server HOST:PORT --describe --unavailable-partitions`"),
    )
    OPERATIONS_MISSING = (
        "OperationsMissing", _BLOCKING, _PREFLIGHT,
        "The operator's principal may not {operations} the cluster (DescribeCluster's authorized operations)",
        ("Grant them to the principal of spec.brokers.clientConfigSecret: "
         "`kafka-acls --bootstrap-server HOST:PORT --add --cluster --allow-principal=User:NAME --operation={needed}`"),
    )
    REASSIGNMENTS_UNKNOWN = (
        "ReassignmentsUnknown", _BLOCKING, _PREFLIGHT,
        "The operator does not know whether partitions are being reassigned: {reason}",
        "Let the operator's principal DESCRIBE the cluster",
    )
    REASSIGNMENT_RUNNING = (
        "ReassignmentRunning", _BLOCKING, _EVERYWHERE,
        "A partition reassignment is in progress: {what}",
        ("Wait until it ends. Or cancel it, with the file that began it "
         "(and with --preserve-throttles while a broker is down): "
         "`kafka-reassign-partitions --bootstrap-server HOST:PORT --cancel --reassignment-json-file FILE`. "
         "If znode /admin/reassign_partitions stays, an old tool created it: "
         '`zookeeper-shell "$ZOOKEEPER" delete /admin/reassign_partitions`'),
    )
    SCRAM_CREDENTIALS_FORGETTABLE = (
        "ScramCredentialsForgettable", _BLOCKING, _COMPARISON,
        ("{count} {mechanism} user(s) were removed since a controller's newest snapshot, "
         "which holds no other user of that mechanism: {users}. "
         "A controller of Kafka 3.9 that starts now may forget every {mechanism} credential (ScramDelta.apply)"),
        ("Wait for the controllers' next snapshots (metadata.log.max.snapshot.interval.ms, an hour by default, "
         "can be set in spec.controllers.config); the operator verifies again. Until then remove no SCRAM user"),
    )
    SCRAM_CREDENTIALS_FORGETTABLE_BY_BROKERS = (
        "ScramCredentialsForgettableByBrokers", _BLOCKING, _COMPARISON,
        ("{count} {mechanism} user(s) were removed since the metadata log began: {users}. "
         "A broker of Kafka 3.9 that starts on KRaft for the first time loads the whole log "
         "and may forget every {mechanism} credential (ScramDelta.apply)"),
        ("Create the removed users again, with passwords that nobody knows: "
         "`kafka-configs --bootstrap-server HOST:PORT --alter --entity-type users --entity-name=NAME "
         "--add-config={config}`. "
         "The operator verifies again. Remove them an hour after Completed, when every node has a newer snapshot"),
    )
    SCRAM_REMOVALS_UNKNOWN = (
        "ScramRemovalsUnknown", _WARNING, _COMPARISON,
        ("The beginning of the metadata log is deleted: whether SCRAM users were removed "
         "that make a broker of Kafka 3.9 forget credentials when it starts on KRaft is not known (ScramDelta.apply)"),
        ("After the first broker's restart on KRaft, compare its users with your list: "
         "`kafka-configs --bootstrap-server HOST:PORT --describe --entity-type users`"),
    )
    REPLICAS_MOVING = (
        "ReplicasMoving", _BLOCKING, _PREFLIGHT,
        "Broker {broker} is moving replicas into its log directory {directory}: {replicas}",
        ("Wait until that ends: kafka-log-dirs shows isFuture true until then. "
         "A move that makes no progress has a throttle, or ends when another reassignment names the present directory"),
        _ACCEPTABLE,
    )
    REDUNDANCY_UNKNOWN = (
        "RedundancyUnknown", _BLOCKING, _PREFLIGHT,
        "The operator does not know which topics would be unavailable while a broker restarts: {reason}",
        "Let the operator's principal describe all topics and their configurations",
    )
    TOPIC_CONFIGS_HIDDEN = (
        "TopicConfigsHidden", _WARNING, _PREFLIGHT,
        ("The operator's principal may not DESCRIBE_CONFIGS {count} topic(s), {topics}: "
         "verifications do not compare what brokers serve (spec.verification.compareServed: IfAllowed)"),
        ("Grant it to the principal of spec.brokers.clientConfigSecret: "
         "`kafka-acls --bootstrap-server HOST:PORT --add --topic='*' --allow-principal=User:NAME "
         "--operation=DescribeConfigs`"),
    )
    TOPIC_CONFIGS_NEEDED = (
        "TopicConfigsNeeded", _BLOCKING, _PREFLIGHT,
        ("The operator's principal may not DESCRIBE_CONFIGS {count} topic(s), {topics}, "
         "which spec.verification.compareServed: Always needs"),
        ("Set spec.verification.compareServed: IfAllowed, or grant it to the principal of "
         "spec.brokers.clientConfigSecret: "
         "`kafka-acls --bootstrap-server HOST:PORT --add --topic='*' --allow-principal=User:NAME "
         "--operation=DescribeConfigs`"),
    )
    TOPICS_HIDDEN = (
        "TopicsHidden", _BLOCKING, _PREFLIGHT,
        "Kafka does not show the operator {count} topic(s) that ZooKeeper has: {topics}",
        ("The verification cannot cover topics that it may not see. "
         "Grant it every topic, to the principal of spec.brokers.clientConfigSecret: "
         "`kafka-acls --bootstrap-server HOST:PORT --add --topic='*' --allow-principal=User:NAME "
         "--operation=Describe --operation=DescribeConfigs`"),
    )
    TOPIC_AT_MIN_ISR = (
        "TopicAtMinIsr", _BLOCKING, _PREFLIGHT,
        ("The topic's replication factor equals min.insync.replicas: "
         "producers with acks=all fail while one of its brokers restarts"),
        "Add a replica, lower min.insync.replicas, or accept this finding",
        _ACCEPTABLE,
    )
    TOPIC_NOT_REPLICATED = (
        "TopicNotReplicated", _BLOCKING, _PREFLIGHT,
        "The topic's replication factor is 1: it is unavailable while its broker restarts. Each broker restarts twice",
        "Add replicas, or accept this finding",
        _ACCEPTABLE,
    )
    UNDER_REPLICATED_PARTITIONS = (
        "UnderReplicatedPartitions", _BLOCKING, _PREFLIGHT,
        "{count} partition(s) lack replicas in their ISR: {partitions}",
        ("Let the replicas catch up: `kafka-topics --bootstrap-server HOST:PORT --describe "
         "--under-replicated-partitions`"),
    )
    VISIBILITY_UNKNOWN = (
        "VisibilityUnknown", _BLOCKING, _PREFLIGHT,
        "The operator does not know which topics its principal may see: {reason}",
        "Correct spec.brokers.bootstrapServers and clientConfigSecret",
    )

    # ------------------------------------------------------------ the brokers' configuration

    ALTER_CONFIG_POLICY_DIFFERS = (
        "AlterConfigPolicyDiffers", _WARNING, _PREFLIGHT,
        ("Brokers run with {setting}={value}. In KRaft mode the controllers call this class, "
         "and for APPEND and SUBTRACT with other arguments: the list that results, "
         "where ZooKeeper mode gives the entries of the request (KIP-1252). "
         "It may allow what it refused, or refuse what it allowed"),
        ("Test the class with the resulting lists. From Kafka 3.9.2 on, "
         "alter.config.policy.kraft.compatibility.enable=true gives brokers in ZooKeeper mode the arguments of KRaft"),
    )
    AUTHORIZER_ZOOKEEPER_ELSEWHERE = (
        "AuthorizerZooKeeperElsewhere", _BLOCKING, _PREFLIGHT,
        "authorizer.zookeeper.url is set: the ACLs are in another ZooKeeper, and the controllers would not copy them",
        ("List the ACLs, remove the setting, restart the brokers, and add the ACLs again: "
         "`kafka-acls --bootstrap-server HOST:PORT --list`"),
    )
    BROKER_CONFIGURATION_UNKNOWN = (
        "BrokerConfigurationUnknown", _BLOCKING, _PREFLIGHT,
        "The operator does not know the configuration of the running brokers: {reason}",
        "Let the operator's principal reach every broker, and grant it DESCRIBE_CONFIGS on the cluster",
    )
    CONTROLLED_SHUTDOWN_DISABLED = (
        "ControlledShutdownDisabled", _WARNING, _PREFLIGHT,
        ("controlled.shutdown.enable is false: the broker keeps its leaderships until it stops, "
         "so clients wait at each of its restarts"),
        "Set controlled.shutdown.enable=true",
    )
    CONTROL_PLANE_LISTENER = (
        "ControlPlaneListener", _BLOCKING, _PREFLIGHT,
        "control.plane.listener.name={value} ({source}) does not exist in KRaft: the broker would not start",
        "Remove it from the brokers' configuration and restart them",
    )
    DELEGATION_TOKEN_KEY_MISSING = (
        "DelegationTokenKeyMissing", _BLOCKING, _PREFLIGHT,
        ("The brokers use delegation tokens. In KRaft the controllers issue them, "
         "and the controllers have no delegation.token.secret.key"),
        ("Add the brokers' key to listener.properties in the Secret of spec.controllers.listener.secretName. "
         "Or accept this finding and use no tokens after the migration"),
        _ACCEPTABLE,
    )
    DYNAMIC_LISTENER_MAP = (
        "DynamicListenerMap", _BLOCKING, _PREFLIGHT,
        ("The dynamic configuration of the broker sets listener.security.protocol.map={value}. It overrides the map "
         "that the migration sets, which contains the controllers' listener: the broker would not start"),
        ("Set the map in the pod template and roll the brokers, then delete the dynamic one: "
         "`kafka-configs --bootstrap-server HOST:PORT --alter --entity-type brokers {entity} "
         "--delete-config=listener.security.protocol.map`"),
    )
    DYNAMIC_SETTINGS_IGNORED_BY_KRAFT = (
        "DynamicSettingsIgnoredByKRaft", _WARNING, _PREFLIGHT,
        "Kafka copies these dynamic settings, and they have no effect in KRaft: {settings}",
        ("Delete them, in one command that also gives the passwords among the dynamic settings again (--add-config), "
         "since kafka-configs refuses a part: "
         "`kafka-configs --bootstrap-server HOST:PORT --alter --entity-type brokers {entity} --delete-config={names}`"),
    )
    DYNAMIC_SETTINGS_UNKNOWN = (
        "DynamicSettingsUnknown", _WARNING, _PREFLIGHT,
        "Kafka does not know these dynamic settings; KRaft brokers log an error for each and drop them: {settings}",
        ("Delete them, unless one of your plugins reads them, in one command "
         "that also gives the passwords among the dynamic settings again (--add-config), "
         "since kafka-configs refuses a part: "
         "`kafka-configs --bootstrap-server HOST:PORT --alter --entity-type brokers {entity} --delete-config={names}`"),
    )
    INTER_BROKER_LOGIN_MISSING = (
        "InterBrokerLoginMissing", _BLOCKING, _PREFLIGHT,
        ("The brokers talk to each other at listener {listener} with {protocol} and {mechanism}. "
         "In migration the controllers connect to this listener, and their configuration has no login for it: "
         "no broker would learn of a change"),
        ("Set {setting} in listener.properties of the Secret that spec.controllers.listener.secretName names, "
         "or in spec.controllers.config, with the login of the brokers"),
    )
    INTER_BROKER_LOGIN_NOT_TRIED = (
        "InterBrokerLoginNotTried", _BLOCKING, _PREFLIGHT,
        ("The operator could not try the controllers' credentials at the broker's inter-broker listener {listener}: "
         "{reason}"),
        ("Let the operator's pod reach this listener, and give the controllers' certificates for it as PEM in the "
         "Secret of spec.controllers.listener.secretName. "
         "Accept this finding if you have tried the credentials yourself"),
        _ACCEPTABLE,
    )
    INTER_BROKER_LOGIN_REFUSED = (
        "InterBrokerLoginRefused", _BLOCKING, _PREFLIGHT,
        ("The broker does not let the controllers in at its inter-broker listener {listener}: {reason}. "
         "In migration they tell the broker every change there"),
        ("Correct the login or the certificates for this listener in the Secret that "
         "spec.controllers.listener.secretName names, or give their principal the brokers' rights (docs/security.md)"),
        _ACCEPTABLE,
    )
    INTER_BROKER_PATH_CLOSED = (
        "InterBrokerPathClosed", _BLOCKING, _PREFLIGHT,
        ("Controllers get no TCP connection to the broker at {address} (listener {listener}), "
         "tried from inside their pods: {pods}. In migration they tell the broker every change there. {policies}"),
        ("Let pods with the labels {labels} in at TCP port {port} of the broker's pod: add a rule "
         "(from podSelector matchLabels with these labels, ports this one) to one of the NetworkPolicies that select "
         "it, or a NetworkPolicy of your own (docs/security.md)"),
    )
    INTER_BROKER_PATH_UNKNOWN = (
        "InterBrokerPathUnknown", _BLOCKING, _PREFLIGHT,
        "It is not known whether the controllers' pods reach the brokers at their inter-broker listener: {reason}",
        ("Let the operator's pod reach TCP port 9443 of the controllers' pods, and see that brokers are registered. "
         "Accept this finding if you have tried the connections from the controllers' pods yourself"),
        _ACCEPTABLE,
    )
    INTER_BROKER_TLS_MISSING = (
        "InterBrokerTlsMissing", _BLOCKING, _PREFLIGHT,
        ("The brokers talk to each other at listener {listener} with {protocol}. In migration the controllers "
         "connect to this listener, and their configuration lacks {lacking}: no broker would learn of a change"),
        ("Set it in listener.properties of the Secret that spec.controllers.listener.secretName names "
         "(docs/security.md). Accept this finding if Java itself trusts the authority of the brokers' certificates "
         "and the listener needs no certificate of its clients"),
        _ACCEPTABLE,
    )
    BROKER_CREDENTIALS_NOT_TRIED = (
        "BrokerCredentialsNotTried", _BLOCKING, _PREFLIGHT,
        "The operator could not try the brokers' credentials for the controllers' listener: {reason}",
        ("Give the listener's certificates as PEM in the Secret of spec.controllers.listener.secretName. "
         "Accept this finding if you have tried the brokers' credentials yourself"),
        _ACCEPTABLE,
    )
    BROKER_CREDENTIALS_REFUSED = (
        "BrokerCredentialsRefused", _BLOCKING, _PREFLIGHT,
        ("The broker and the controllers' listener do not accept each other: {reason}. "
         "The broker would not register after its restart"),
        ("Correct the brokers' settings listener.name.controller.* and restart the brokers, "
         "or correct the Secret of spec.controllers.listener.secretName (docs/security.md)"),
        _ACCEPTABLE,
    )
    BROKER_CREDENTIALS_MISSING = (
        "BrokerCredentialsMissing", _BLOCKING, _PREFLIGHT,
        ("The broker must authenticate at the controllers' listener ({protocol}), "
         "and its configuration lacks {lacking}. It would not register after its restart"),
        ("Add these settings to the brokers and restart them before the migration (docs/security.md). "
         "Accept this finding if the listener needs no certificate of its clients, or if the login is in a JAAS file"),
        _ACCEPTABLE,
    )
    INTER_BROKER_PROTOCOL_TOO_LOW = (
        "InterBrokerProtocolTooLow", _BLOCKING, _PREFLIGHT,
        "The migration needs brokers with inter.broker.protocol.version 3.9: {stated}",
        ("From 2.4 on the migration does it: name an image with Kafka 3.9 in spec.brokers.upgrade. "
         "By hand it takes two rolling restarts (docs/install.md, Bring the brokers to Kafka 3.9). "
         "First roll the brokers to Kafka 3.9, with inter.broker.protocol.version set to the version that runs now. "
         "When every broker runs 3.9, set 3.9 or remove the setting in a second one"),
    )
    BROKERS_TOO_OLD = (
        "BrokersTooOld", _BLOCKING, _PREFLIGHT,
        "The broker runs Kafka {release}. The way to Kafka 3.9 is known from Kafka 2.4 on",
        ("Bring the brokers to a release from 2.4 on with the rolling upgrade of Kafka's manual, which ends with "
         "inter.broker.protocol.version of that release"),
    )
    SECOND_ROLL_NEEDED = (
        "SecondRollNeeded", _INFORMATION, _PREFLIGHT,
        ("A broker runs inter.broker.protocol.version {protocol}. Below 2.8 no topic has an id, and Kafka's copy needs "
         "one for each: the brokers restart twice before the controllers are created, with the new image and this "
         "version, and then with version 3.9, both on ZooKeeper. Kafka's migration is rehearsed after that"),
        ("Nothing has to be done now. Before the second rolling restart the migration waits for "
         "spec.rollback.giveUpFormerImage: from its first broker on, a rollback keeps the new image and version 3.9"),
    )
    UPGRADE_IMAGE_NOT_BRIDGE = (
        "UpgradeImageNotBridge", _BLOCKING, _PREFLIGHT,
        "The image {image} of spec.brokers.upgrade starts Kafka {release}, and the migration needs 3.9",
        "Name an image with Kafka 3.9 in spec.brokers.upgrade",
    )
    UPGRADE_NOT_PROVEN = (
        "UpgradeNotProven", _BLOCKING, _PREFLIGHT,
        "No copy of the brokers' pods shows what the image of spec.brokers.upgrade starts: {reason}",
        ("Let the dry start run (docs/dry-start.md): nothing else judges a new image before the first broker restarts "
         "with it"),
    )
    SETTING_REMOVED = (
        "SettingRemoved", _BLOCKING, _PREFLIGHT,
        "Kafka 3.9 does not know {setting}, which is set to {value}, and starts without it",
        "In the brokers' configuration, before the migration: {instead}",
    )
    MESSAGE_FORMAT_ENDS = (
        "MessageFormatEnds", _WARNING, _PREFLIGHT,
        ("The broker writes records of format {format} (log.message.format.version). "
         "With inter.broker.protocol.version 3.9 Kafka ignores the setting and writes format 2"),
        ("Clients older than 0.11 read such records only where log.message.downconversion.enable is true. "
         "Upgrade them first, or be sure that it is true"),
    )
    PROTOCOL_IN_FILE = (
        "ProtocolInFile", _BLOCKING, _PREFLIGHT,
        ("The properties file sets inter.broker.protocol.version={protocol}. "
         "After a rollback the brokers would read it again, although they have run a newer one"),
        ("Remove the setting from the file if it is the default of the release that runs, and restart the brokers one "
         "at a time. If it is lower, set the release's own default first"),
    )
    RELEASE_DEFAULTS_DIFFER = (
        "ReleaseDefaultsDiffer", _INFORMATION, _PREFLIGHT,
        ("Kafka 3.9 has settings or defaults that the brokers' release does not have, and they change "
         "what a broker does: {what}"),
        "Nothing to do where that suits you. Otherwise set them in the brokers' configuration (docs/start.md)",
    )
    PATCH_RELEASE_OUTDATED = (
        "PatchReleaseOutdated", _WARNING, _PREFLIGHT,
        "The migration runs it with {version}. Kafka {newest} corrects: {what}",
        ("Use an image with Kafka {newest}: for brokers in their own template or in spec.brokers.upgrade, for "
         "controllers in spec.controllers.image"),
    )
    LISTENER_NAME_TAKEN = (
        "ListenerNameTaken", _BLOCKING, _PREFLIGHT,
        "The broker has a listener {listener}, and the KRaft controllers' listener has the same name",
        "Rename that listener in listeners, advertised.listeners and listener.security.protocol.map",
    )
    LISTENER_SECRET_UNKNOWN = (
        "ListenerSecretUnknown", _BLOCKING, _PREFLIGHT,
        "The operator does not know which settings the Secret of the controllers' listener holds: {reason}",
        "Let the operator read the Secret of spec.controllers.listener.secretName",
    )
    LISTENER_CERTIFICATE_UNUSABLE = (
        "ListenerCertificateUnusable", _BLOCKING, _PREFLIGHT,
        "The controllers cannot use the certificate or the logins of their listener: {problem}",
        ("Correct the Secret of spec.controllers.listener.secretName, or the Certificate from "
         "which cert-manager writes it. A Secret that the operator issues: delete it, and the operator issues it anew"),
    )
    MIGRATION_FLAG_ALREADY_SET = (
        "MigrationFlagAlreadySet", _BLOCKING, _PREFLIGHT,
        "zookeeper.metadata.migration.enable=true is already set ({source}), and not by this migration",
        "Remove it and restart the brokers",
    )
    PASSWORD_BECOMES_PLAIN = (
        "PasswordBecomesPlain", _WARNING, _BOTH,
        "Dynamic passwords are encrypted in ZooKeeper, and KRaft's metadata log holds them as plain text: {passwords}",
        ("Move them into the brokers' static configuration, "
         "or restrict who reads the volumes of controllers and brokers"),
    )
    PASSWORD_ENCODER_SECRET_MISSING = (
        "PasswordEncoderSecretMissing", _BLOCKING, _BOTH,
        ("Passwords are set dynamically and encrypted: {passwords}. "
         "Without password.encoder.secret the controllers would copy the cipher text as the value (KAFKA-14801)"),
        "Set spec.controllers.passwordEncoderSecret to the Secret with the brokers' password.encoder.secret",
    )
    PLUGIN_NOT_ON_CONTROLLERS = (
        "PluginNotOnControllers", _BLOCKING, _PREFLIGHT,
        ("Brokers run with {setting}={value}. In KRaft the controllers use this class, "
         "and their image would not have it"),
        ("Set it in spec.controllers.config with an image that has the class. "
         "Or accept this finding; the controllers then do not use the class"),
        _ACCEPTABLE,
    )
    PLUGIN_NOT_PROVEN = (
        "PluginNotProven", _BLOCKING, _PREFLIGHT,
        ("The controllers get {setting}={value}, and nothing shows that image {image} has this class. "
         "Without it no controller starts"),
        ("Let the rehearsal start a controller of this image with the class (spec.rehearsal.enabled; it does not "
         "load principal.builder.class). Or give the controllers the brokers' image, if their dry start loads the "
         "class from the image and not from a volume. Or check that the image has the class, and accept this finding"),
        _ACCEPTABLE,
    )
    SETTING_HIDDEN = (
        "SettingHidden", _BLOCKING, _PREFLIGHT,
        ("Brokers {brokers} run with {setting}={value}, and their pod template does not set it: "
         "the migration would replace it by a value that does not contain it"),
        ("Set it in the pod template (environment or properties file, as spec.brokers.configStyle says), "
         "and roll the brokers"),
    )
    SETTING_NOT_RUNNING = (
        "SettingNotRunning", _BLOCKING, _PREFLIGHT,
        ("The pod template of StatefulSet {stateful_set} sets {setting}={stated}, and the broker runs {running}: "
         "the image does not read the setting there, or the broker was not restarted since the change"),
        ("Find out where the image reads its settings, or restart the broker. "
         "Many images ignore variables if a properties file is mounted: "
         "set spec.brokers.configStyle to Properties then. Accept this finding if both values mean the same"),
        _ACCEPTABLE,
    )
    SETTING_NOT_SERVED = (
        "SettingNotServed", _BLOCKING, _PREFLIGHT,
        ("The brokers run with {setting}, which the controllers need. "
         "Kafka does not return its value, and no pod template sets it"),
        "Set its value in {place}",
        _ACCEPTABLE,
    )
    SETTINGS_IGNORED_BY_KRAFT = (
        "SettingsIgnoredByKRaft", _INFORMATION, _PREFLIGHT,
        "KRaft brokers ignore these settings: {settings}",
        "Remove them with your next release after the migration. They do no harm",
    )
    SUPER_USERS_MISSING_ON_CONTROLLERS = (
        "SuperUsersMissingOnControllers", _BLOCKING, _PREFLIGHT,
        ("{users} are super users of the brokers and not of the controllers. "
         "The controllers have no ACLs before the copy, so brokers could not register"),
        "Add them to spec.controllers.superUsers. Accept this finding if none of them is the principal of the brokers",
        _ACCEPTABLE,
    )

    # ------------------------------------------------------------ ZooKeeper

    CLUSTER_ID_MISSING = (
        "ClusterIdMissing", _BLOCKING, _BOTH,
        "ZooKeeper has no cluster id: {path} is missing, or is not JSON with an id",
        "Correct the chroot in spec.zookeeper.connect. If the cluster never started, start a broker",
    )
    CONSUMERS_IN_ZOOKEEPER = (
        "ConsumersInZooKeeper", _WARNING, _PREFLIGHT,
        ("/consumers holds {count} group(s) of consumers that keep their offsets in ZooKeeper: {groups}. "
         "Kafka does not copy them, and such a consumer loses its offsets with ZooKeeper"),
        "Move these consumers to offsets in Kafka before ZooKeeper is removed. If they are gone, no action is needed",
    )
    CONTROLLER_IS_KRAFT = (
        "ControllerIsKRaft", _BLOCKING, _PREFLIGHT,
        "A KRaft quorum has claimed /controller already",
        "Roll back the migration of that quorum first",
    )
    CONTROLLER_MISSING = (
        "ControllerMissing", _BLOCKING, _BOTH,
        "/controller is missing: the cluster has no controller",
        "Start the brokers. One of them becomes the controller within seconds",
    )
    MIGRATION_ZNODE_STALE = (
        "MigrationZnodeStale", _BLOCKING, _BOTH,
        ("/migration holds offset {offset} of an earlier migration: "
         "a new quorum would overwrite ZooKeeper with an empty image (KAFKA-17146)"),
        ("Make sure that no KRaft controller of this cluster runs and that the earlier migration is rolled back. "
         "Then keep a copy of /migration and delete it"),
    )
    MIGRATION_ZNODE_UNREADABLE = (
        "MigrationZnodeUnreadable", _BLOCKING, _BOTH,
        "/migration cannot be read, and controllers would hang (KAFKA-19480): {problem}",
        "Delete /migration if no migration ever ran",
    )
    TOPIC_DELETION_PENDING = (
        "TopicDeletionPending", _BLOCKING, _BOTH,
        ("The deletion of topics has not finished: {topics}. "
         "They would not be copied, and would stay on the brokers' disks (KAFKA-15605)"),
        ("Start the brokers that hold their replicas, with delete.topic.enable=true, "
         "and wait until /admin/delete_topics is empty"),
    )
    ZOOKEEPER_ACLS_SAMPLED = (
        "ZooKeeperAclsSampled", _INFORMATION, _PREFLIGHT,
        "The operator did not read the ACLs of the znodes of {count} topics",
        "No action is needed if zookeeper.set.acl never changed. Otherwise check these ACLs",
    )
    ZOOKEEPER_ACLS_UNKNOWN = (
        "ZooKeeperAclsUnknown", _BLOCKING, _PREFLIGHT,
        "The operator does not know the ACLs of Kafka's znodes: {reason}",
        "Correct spec.zookeeper.connect and its Secret",
    )
    ZOOKEEPER_ACL_DENIED = (
        "ZooKeeperAclDenied", _BLOCKING, _PREFLIGHT,
        "ZooKeeper does not let {identity} read the ACL of {paths}",
        "Give the credentials of the brokers' principal in spec.zookeeper.secretName",
    )
    ZOOKEEPER_ACL_FORBIDS_KRAFT = (
        "ZooKeeperAclForbidsKRaft", _BLOCKING, _PREFLIGHT,
        "ZooKeeper does not let the KRaft controllers write {count} znode(s) with {identity}: {paths}",
        ("Give the brokers' credentials in spec.zookeeper.secretName: user and password with scheme=sasl, "
         "or the certificate with the subject that the ACLs name; the controllers use them as well. "
         "Or reset the ACLs with them (a JAAS file in KAFKA_OPTS, or --zk-tls-config-file): "
         '`zookeeper-security-migration --zookeeper.connect="$ZOOKEEPER" --zookeeper.acl=unsecure`'),
        _ACCEPTABLE,
    )
    ZOOKEEPER_CLIENTS_OF_OTHERS = (
        "ZooKeeperClientsOfOthers", _WARNING, _PREFLIGHT,
        ("Clients at {addresses} have sessions in ZooKeeper and are neither brokers nor this operator. "
         "After the migration Kafka no longer updates what they read and ignores what they write, "
         "and they fail when ZooKeeper is removed"),
        ("Find out what runs at these addresses (`kubectl get pods -A -o wide`), for example CMAK, Burrow, "
         "an exporter or a script with --zookeeper, and let it use the brokers instead"),
    )
    ZOOKEEPER_UNREACHABLE = (
        "ZooKeeperUnreachable", _BLOCKING, _PREFLIGHT,
        "The operator cannot read ZooKeeper: {reason}",
        "Correct spec.zookeeper.connect and its Secret. The operator's pods must reach ZooKeeper",
    )

    ZOOKEEPER_USERS_UNKNOWN = (
        "ZooKeeperUsersUnknown", _INFORMATION, _PREFLIGHT,
        "The operator does not know whether others use this ZooKeeper: {reason}",
        ("Allow cons in 4lw.commands.whitelist of every server, "
         "or make sure that only this Kafka cluster uses ZooKeeper before you remove it"),
    )
    ZOOKEEPER_ZNODES_OF_OTHERS = (
        "ZooKeeperZnodesOfOthers", _WARNING, _PREFLIGHT,
        ("ZooKeeper holds znodes that are not this Kafka cluster's: {paths}. "
         "Kafka does not copy them, and their owners lose them with ZooKeeper"),
        ("Find out who uses them (/kafka-manager belongs to CMAK, /burrow to Burrow; "
         "others may belong to another Kafka cluster), and keep ZooKeeper until nobody does"),
    )

    # ------------------------------------------------------------ the ZooKeeper tree

    ACL_PATTERN_UNKNOWN = (
        "AclPatternUnknown", _BLOCKING, _TREE,
        ("Kafka 3.9 does not read ACLs below the pattern {pattern!r}, only below prefixed. "
         "It does not copy them, and both stores would differ permanently"),
        ("Delete the znode. If the ACL is wanted, add it again: "
         "`kafka-acls --bootstrap-server HOST:PORT --add --resource-pattern-type prefixed --topic=PREFIX "
         "--allow-principal=User:NAME --operation=OPERATION`"),
    )
    ACL_PRINCIPAL_INVALID = (
        "AclPrincipalInvalid", _BLOCKING, _TREE,
        ("The ACL's principal {principal!r} has no type, as in User:name: "
         "the controllers would stop in the copy (StandardAcl.kafkaPrincipal)"),
        ("Take this ACL out of the znode (kafka-acls refuses such a principal): "
         '`zookeeper-shell "$ZOOKEEPER" set {path} '
         '"$(zookeeper-shell "$ZOOKEEPER" get {path} | tail -n 1 | jq -c {rest})"`'),
    )
    ACL_RESOURCE_TYPE_UNKNOWN = (
        "AclResourceTypeUnknown", _BLOCKING, _TREE,
        ("Kafka 3.9 does not know resource type {type}: "
         "it does not copy these ACLs, and both stores would differ permanently"),
        "Delete the znode, unless your authorizer needs it",
    )
    ACL_UNKNOWN = (
        "AclUnknown", _BLOCKING, _TREE,
        "The ACL's operation {operation!r} or permission {permission!r} is unknown to Kafka 3.9",
        ("Take this ACL out of the znode: "
         '`zookeeper-shell "$ZOOKEEPER" set {path} '
         '"$(zookeeper-shell "$ZOOKEEPER" get {path} | tail -n 1 | jq -c {rest})"`'),
    )
    BROKER_CONFIG_NAME_INVALID = (
        "BrokerConfigNameInvalid", _BLOCKING, _TREE,
        "{name!r} is not a broker id: the controllers would stop in the copy",
        "Delete the znode",
    )
    BROKER_ID_INVALID = (
        "BrokerIdInvalid", _BLOCKING, _TREE,
        "{name!r} is not a broker id: Kafka never begins the migration",
        "Delete the znode. No broker creates a znode of this name",
    )
    CONTROLLER_EPOCH_BEHIND = (
        "ControllerEpochBehind", _BLOCKING, _TREE,
        ("/controller_epoch is {epoch}, and partition states have epoch {highest}: "
         "after a rollback brokers would refuse the controller (KAFKA-20488)"),
        ('Set it to {highest}: `zookeeper-shell "$ZOOKEEPER" set /controller_epoch {highest}`. '
         'Then let a broker become controller again: `zookeeper-shell "$ZOOKEEPER" delete /controller`'),
    )
    CONTROLLER_EPOCH_INVALID = (
        "ControllerEpochInvalid", _BLOCKING, _TREE,
        "/controller_epoch is missing or not a number",
        ("Write a number that is higher than any epoch that a broker has heard of, since brokers refuse a lower one: "
         '`zookeeper-shell "$ZOOKEEPER" {write} /controller_epoch 100000`. '
         'Then let a broker become controller again: `zookeeper-shell "$ZOOKEEPER" delete /controller`. '
         "While it is not a number, no broker can become controller"),
    )
    ELECTION_ZNODE = (
        "ElectionZnode", _WARNING, _TREE,
        "/admin/preferred_replica_election exists: a leader election of an old tool has not ended",
        "Wait until it ends, or delete the znode",
    )
    ENTITY_NAME_INVALID = (
        "EntityNameInvalid", _BLOCKING, _TREE,
        ("The name {name!r} is no address, or not URL-encoded as Kafka writes it: "
         "the controllers would stop in the copy, or write the quota to another znode"),
        ("Delete the znode, and set the quota again with kafka-configs if it is wanted: "
         '`zookeeper-shell "$ZOOKEEPER" deleteall {path}`'),
    )
    ISR_INVALID = (
        "IsrInvalid", _BLOCKING, _TREE,
        "The in-sync replicas {isr} are not among the replicas {replicas}",
        ('Write a state in which one replica leads alone, with a new epoch: `zookeeper-shell "$ZOOKEEPER" set '
         '{path} {state}`. '
         'Then let a broker become controller again, which announces it: `zookeeper-shell "$ZOOKEEPER" delete '
         '/controller`. '
         "The other replicas follow and join. Records that they alone have are lost: "
         "name the replica that has most of them"),
    )
    LEADER_NOT_IN_SYNC = (
        "LeaderNotInSync", _BLOCKING, _TREE,
        "Leader {leader} is not among the in-sync replicas {isr}",
        ('Write a state in which one replica leads alone, with a new epoch: `zookeeper-shell "$ZOOKEEPER" set '
         '{path} {state}`. '
         'Then let a broker become controller again, which announces it: `zookeeper-shell "$ZOOKEEPER" delete '
         '/controller`. '
         "The other replicas follow and join. Records that they alone have are lost: "
         "name the replica that has most of them"),
    )
    NO_BROKERS = (
        "NoBrokers", _BLOCKING, _TREE,
        "No broker is registered in ZooKeeper",
        "Start the brokers",
    )
    ORPHAN_PARTITION_STATE = (
        "OrphanPartitionState", _BLOCKING, _TREE,
        "The topic has no partition {partition}: the copy ignores this state, and both stores would differ permanently",
        "Delete the znode",
    )
    PARTITION_WITHOUT_STATE = (
        "PartitionWithoutState", _BLOCKING, _TREE,
        "The partition has no state: the copy would put every replica into the ISR and make the first one the leader",
        ("Recreate the topic, or let a broker become controller again, which writes the state: "
         '`zookeeper-shell "$ZOOKEEPER" delete /controller`'),
    )
    PASSWORD_ENCODER_SECRET_WRONG = (
        "PasswordEncoderSecretWrong", _BLOCKING, _TREE,
        "The password cannot be decrypted with the given password.encoder.secret: {problem}",
        ("Give the secret that the brokers use. Or set the config again: "
         "`kafka-configs --bootstrap-server HOST:PORT --alter --entity-type brokers {entity} --add-config={config}`"),
    )
    PASSWORD_NOT_CHECKED = (
        "PasswordNotChecked", _WARNING, _TREE,
        ("The password {password} is encrypted, and the command "
         "that reads the dump has no password.encoder.secret to check it"),
        "Give the brokers' password.encoder.secret to the command",
    )
    QUOTA_UNKNOWN = (
        "QuotaUnknown", _BLOCKING, _TREE,
        ("Kafka 3.9 has no quota {quota} for {folder}: "
         "after the takeover the sync to ZooKeeper would stop at it permanently"),
        ("Remove it with the brokers' addresses before the takeover, and with the controllers' after it "
         "(kafka-configs refuses the name): "
         "`python -m kraftbridge.kafka remove-quota --controllers=HOST:PORT --quota={quota} {entity}`"),
    )
    QUOTA_ADDRESS_IS_NAME = (
        "QuotaAddressIsName", _WARNING, _TREE,
        ("The quota's address {address} is no IP address. A KRaft node that cannot resolve it at its start applies "
         "none of the quotas that it loads with it (DynamicClientQuotaPublisher)"),
        ('Delete it: `zookeeper-shell "$ZOOKEEPER" delete {path}`. Set the quota for the IP address instead: '
         "`kafka-configs --bootstrap-server HOST:PORT --alter --entity-type ips --entity-name=ADDRESS "
         "--add-config=connection_creation_rate=RATE`"),
    )
    QUOTA_INVALID = (
        "QuotaInvalid", _BLOCKING, _TREE,
        ("Quota {quota}={value} is not {expected}: the copy would stop, "
         "or the sync to ZooKeeper would stop at it permanently"),
        ("Take it out of the znode, since kafka-configs may fail on it, and set it again if it is wanted: "
         '`zookeeper-shell "$ZOOKEEPER" set {path} '
         '"$(zookeeper-shell "$ZOOKEEPER" get {path} | tail -n 1 | jq -c {rest})"`'),
    )
    REPLICAS_INVALID = (
        "ReplicasInvalid", _BLOCKING, _TREE,
        "The replicas {replicas} are empty or name a broker twice",
        ("Reassign the partition: "
         "`kafka-reassign-partitions --bootstrap-server HOST:PORT --execute --reassignment-json-file FILE`"),
    )
    REPLICA_ON_UNKNOWN_BROKER = (
        "ReplicaOnUnknownBroker", _BLOCKING, _TREE,
        ("Replicas are on brokers {brokers}, which are not registered: "
         "Kafka waits for them and never begins the migration"),
        ("Start these brokers, or reassign the partition: "
         "`kafka-reassign-partitions --bootstrap-server HOST:PORT --execute --reassignment-json-file FILE`"),
    )
    STALE_TOPIC_CONFIG = (
        "StaleTopicConfig", _BLOCKING, _TREE,
        ("The znode holds configs of a topic that does not exist: "
         "Kafka does not copy them, and deletes the znode after the takeover"),
        "Delete the znode",
    )
    STALE_TOPIC_ZNODE = (
        "StaleTopicZnode", _WARNING, _TREE,
        "The znode holds partition states of a topic that no longer exists",
        "Make sure that no topic of this name exists, then delete the znode and its children",
    )
    TEXT_TOO_LONG = (
        "TextTooLong", _BLOCKING, _TREE,
        ("In this znode {what} has {bytes} bytes, and KRaft takes no text above {most} (KAFKA-18908): "
         "the controllers would stop in the copy"),
        "{way_out}",
    )
    TOPIC_CONFIG_MISSING = (
        "TopicConfigMissing", _WARNING, _TREE,
        "The topic has no config znode (KAFKA-16003): changes of its configs may not reach brokers",
        ("Alter any config of topic {topic} once: "
         "`kafka-configs --bootstrap-server HOST:PORT --alter --entity-type topics --entity-name={topic} "
         "--add-config=CONFIG=VALUE`"),
    )
    TOPIC_ID_DUPLICATE = (
        "TopicIdDuplicate", _BLOCKING, _TREE,
        ("Several topics have the id {id}: {topics}. "
         "After the takeover Kafka would write the state of one into the other, and the sync would stop"),
        ("Find the topic to which the id belongs (partition.metadata in the brokers' log directories), "
         "then delete and recreate the others"),
    )
    TOPIC_ID_INVALID = (
        "TopicIdInvalid", _BLOCKING, _TREE,
        "The topic's id {id!r} is not 16 bytes in URL-safe base64: the copy would never begin, or would change the id",
        "Take the id from partition.metadata in the brokers' log directories and write it into the znode",
    )
    TOPIC_NAME_INVALID = (
        "TopicNameInvalid", _BLOCKING, _TREE,
        "Kafka does not allow this topic name, so the KRaft controllers refuse the topic",
        ("Delete its znode, and its configuration if there is one (kafka-topics does not see such a topic): "
         '`zookeeper-shell "$ZOOKEEPER" deleteall {path}`'),
    )
    TOPIC_WITHOUT_ID = (
        "TopicWithoutId", _BLOCKING, _TREE,
        "The topic has no id (KIP-516): the copy would never begin",
        ("When every broker runs Kafka 3.9, set inter.broker.protocol.version=3.9 "
         "or remove the setting in a rolling restart (docs/install.md, Bring the brokers to Kafka 3.9). "
         "Then delete /controller. A broker becomes controller again and assigns ids"),
    )
    TOPIC_WITHOUT_PARTITIONS = (
        "TopicWithoutPartitions", _BLOCKING, _TREE,
        "The topic has no partition",
        "Delete the topic: `kafka-topics --bootstrap-server HOST:PORT --delete --topic={topic}`",
    )
    ZNODE_UNDECODABLE = (
        "ZnodeUndecodable", _BLOCKING, _TREE,
        "The znode cannot be decoded: the copy would stop at it or skip it: {problem}",
        "Repair it with Kafka's tools (kafka-configs, kafka-acls, kafka-topics), or delete the znode",
    )

    # ------------------------------------------------------------ rehearsal

    CONTROLLER_HEAP_TOO_SMALL = (
        "ControllerHeapTooSmall", _BLOCKING, _PREFLIGHT,
        ("In the rehearsal the {partitions} partitions took so much memory "
         "that each controller needs a heap of {needed} MiB; {source} allows {given} MiB"),
        ("Omit spec.controllers.heapOptions or set -Xmx{needed}m there, "
         "and a memory limit of at least {limit} MiB in spec.controllers.resources"),
        _ACCEPTABLE,
    )
    REHEARSAL_FAILS = (
        "RehearsalFails", _BLOCKING, _PREFLIGHT,
        "On a copy of the metadata Kafka's migration fails: {reason}",
        "{mend}; preflight then rehearses again by itself",
        _ACCEPTABLE,
    )
    REHEARSAL_LOSES = (
        "RehearsalLoses", _BLOCKING, _PREFLIGHT,
        "On a copy of the metadata Kafka's migration loses or changes it: {what}",
        "{mend}; preflight then rehearses again by itself. Or accept this finding and the loss",
        _ACCEPTABLE,
    )
    REHEARSAL_UNKNOWN = (
        "RehearsalUnknown", _BLOCKING, _PREFLIGHT,
        "The operator does not know whether Kafka's migration works on this metadata: {reason}",
        ("Remove the cause; preflight then rehearses again by itself. "
         "Or accept this finding and migrate without a rehearsal"),
        _ACCEPTABLE,
    )

    # ------------------------------------------------------------ what a broker becomes

    BROKER_DIFFERS = (
        "BrokerDiffers", _BLOCKING, _RESTART,
        "Broker {broker} is not what it was before its restart: {differences}",
        ("Correct the setting that is named: the comparison is repeated by itself. "
         "Or roll back (spec.target ZooKeeper). Accept this finding on {object} only if you want what is there now"),
        _ACCEPTABLE,
    )
    BROKER_KILLED = (
        "BrokerKilled", _BLOCKING, _RESTART,
        ("Broker {broker} (pod {pod}) is not known to have ended by itself when it was restarted at {at}: {how}. "
         "A broker that is killed hands over no leadership and does not close its logs, so it recovers them at its "
         "start, and clients see it vanish. The other brokers would end like it"),
        ("Usually a shell in the entrypoint keeps SIGTERM from Kafka (start Kafka by exec), or a preStop hook or a "
         "slow controlled shutdown takes all of it: then set spec.strategy.terminationGraceSeconds above {seconds}. "
         "Accept this finding to let the other brokers restart like this, or roll back (spec.target ZooKeeper)"),
        _ACCEPTABLE,
    )
    BROKER_NOT_COMPARED = (
        "BrokerNotCompared", _BLOCKING, _RESTART,
        "Broker {broker} cannot be compared with what it was before its restart: {reason}",
        ("Remove the cause: the comparison is repeated by itself. Or roll back (spec.target ZooKeeper). "
         "Accept this finding on {object} only if you have checked its settings, listeners and records yourself"),
        _ACCEPTABLE,
    )
    DYNAMIC_SETTINGS_REFUSED = (
        "DynamicSettingsRefused", _BLOCKING, _PREFLIGHT,
        "A start in KRaft mode refuses {refused}, and with it all dynamic settings of broker {broker}: {falling}{told}",
        "{fix}",
        _ACCEPTABLE,
    )

    DYNAMIC_SETTINGS_TAKE_EFFECT = (
        "DynamicSettingsTakeEffect", _BLOCKING, _PREFLIGHT,
        ("Broker {broker} does not hold these dynamic settings now, and in the rehearsal a start in KRaft mode applies "
         "them: {settings}"),
        ("Give each of them the value that should hold, or delete it; preflight then rehearses again by itself. "
         "Or accept this finding, if what is stored should hold"),
        _ACCEPTABLE,
    )

    # ------------------------------------------------------------ dry start

    CHANNEL_UNKNOWN = (
        "ChannelUnknown", _BLOCKING, _PREFLIGHT,
        "spec.brokers.configStyle is Auto, and no dry start has proven a channel that reaches the brokers: {reason}",
        ("Remove the cause; preflight then tries again by itself. Or set spec.brokers.configStyle to Env with the "
         "envPrefix of the image, or to Properties with volume and key of the properties file"),
    )
    TEMPLATE_CHANGED = (
        "TemplateChanged", _BLOCKING, _RESTART,
        ("Somebody changed the pod template, or what it refers to, since a dry start looked at it: {changed}. "
         "No copy of a pod shows what this does to a broker: {unseen}"),
        "Give these parts their former content, or accept this finding, so that brokers restart with them",
        _ACCEPTABLE,
    )
    ADDRESSES_CACHED_FOR_EVER = (
        "AddressesCachedForEver", _BLOCKING, _PREFLIGHT,
        ("In {mode} mode the JVM of pod {pod} caches addresses for ever (networkaddress.cache.ttl): "
         "it does not find brokers and controllers again whose pods get other addresses when they restart"),
        ("Set networkaddress.cache.ttl in java.security of the brokers' image to 30 seconds or less. "
         "Accept this finding only if the pods keep their addresses, as with hostNetwork"),
        _ACCEPTABLE,
    )
    DRY_START_DIFFERS = (
        "DryStartDiffers", _BLOCKING, _PREFLIGHT,
        "A copy of pod {pod} would not start with what its broker runs: {differences}",
        ("Restart the broker if its template, ConfigMap or image changed since it started. Otherwise find out "
         "where the broker got these settings. Accept this finding only if you can explain each difference"),
        _ACCEPTABLE,
    )
    DRY_START_FAILED = (
        "DryStartFailed", _BLOCKING, _PREFLIGHT,
        "In {mode} mode the image of pod {pod} does not start Kafka, although it does in the present mode: {problem}",
        "Correct {settings} in the brokers' StatefulSet so that the image starts in this mode",
    )
    DRY_START_IMPOSSIBLE = (
        "DryStartImpossible", _BLOCKING, _PREFLIGHT,
        "The operator cannot try the start of the brokers in copies of their pods: {problem}",
        ("Remove the cause. If you accept this finding, the first broker "
         "that restarts is the first to try the new configuration"),
        _ACCEPTABLE,
    )
    DRY_START_LEAVES_OUT = (
        "DryStartLeavesOut", _BLOCKING, _PREFLIGHT,
        ("The present image of pod {pod} gives {count} setting(s) to Kafka that the image of spec.brokers.upgrade "
         "leaves out in {mode} mode"),
        "Add them to {place} as the brokers run with them: {lines}",
    )
    DRY_START_OFF = (
        "DryStartOff", _WARNING, _PREFLIGHT,
        ("The operator does not start copies of the brokers' pods: "
         "the first broker that restarts is the first to try the new configuration"),
        "Install the chart with dryStart.enabled=true on a cluster whose network plugin enforces NetworkPolicies",
    )
    DRY_START_OTHER_IMAGE = (
        "DryStartOtherImage", _BLOCKING, _PREFLIGHT,
        "The next start of a pod would run another image than the pod runs now: {images}",
        ("Name the image in the StatefulSet by the digest that the brokers run, or restart the brokers one at a time "
         "so that all run the image that its tag names now. Accept this finding only "
         "if both digests are of the same image, or if you want the other image to start together with the migration"),
        _ACCEPTABLE,
    )
    DRY_START_OVERLAY_LOST = (
        "DryStartOverlayLost", _BLOCKING, _PREFLIGHT,
        "In {mode} mode pod {pod} would not start with exactly what the migration sets: {differences}",
        "Set spec.brokers to the channel from which the image takes its configuration. {channels}",
    )
    DRY_START_PROGRAMS = (
        "DryStartPrograms", _WARNING, _PREFLIGHT,
        ("At each start the image runs programs that may reach ZooKeeper or the brokers; the dry start skipped them: "
         "{programs}"),
        ("None of them may write to ZooKeeper during the migration. Programs that only wait until ZooKeeper "
         "or Kafka answers do no harm, such as ZookeeperReadyCommand and KafkaReadyCommand of Confluent's images"),
    )
    DRY_START_REFUSED = (
        "DryStartRefused", _BLOCKING, _PREFLIGHT,
        "In {mode} mode Kafka refuses the configuration of pod {pod}: {complaint}",
        "Correct {settings} in the brokers' configuration",
    )
    DRY_START_UNFENCED = (
        "DryStartUnfenced", _BLOCKING, _PREFLIGHT,
        ("A pod with a NetworkPolicy that denies all traffic reaches {addresses}: "
         "the operator started no copy of a broker's pod"),
        ("Use a network plugin that enforces NetworkPolicies, "
         "and remove policies that allow traffic of all pods of the namespace. "
         "If you accept this finding, only names that do not resolve and the agent keep the copies from the cluster"),
        _ACCEPTABLE,
    )
    ENDPOINT_NOT_ALLOWED = (
        "EndpointNotAllowed", _BLOCKING, _PREFLIGHT,
        "The operator does not connect to {host} at {address}: {reason}",
        ("If it belongs to the cluster, add {network} to connect.allow of the chart's values, and upgrade the release; "
         "else correct the connect string, or the listener that the broker advertises"),
    )
    DRY_START_UNKNOWN = (
        "DryStartUnknown", _BLOCKING, _PREFLIGHT,
        "The operator does not know the inputs of the brokers' pods: {reason}",
        "Let the operator read the StatefulSets of the brokers, and the ConfigMaps and Secrets that they refer to",
    )
    IMAGES_NOT_TRIED = (
        "ImagesNotTried", _BLOCKING, _PREFLIGHT,
        "It is not known of every node whether it gets the images of the next pods: {reason}",
        ("Let the operator list nodes, and let one of them have a place for such a pod. "
         "A pod that moves to a node which cannot get its image does not start again. "
         "Accept this finding if you know that the others get them"),
        _ACCEPTABLE,
    )
    IMAGE_NOT_PULLABLE = (
        "ImageNotPullable", _BLOCKING, _PREFLIGHT,
        "A pod that is placed on {nodes} would not start: {problem}",
        ("Push the image to a registry that these nodes reach, correct the pull secrets, or load it on the nodes; "
         "or keep these pods from them (nodeSelector, affinity, taints). "
         "Accept this finding only if none of these pods will be placed there during the migration"),
        _ACCEPTABLE,
    )

    # ------------------------------------------------------------ comparisons

    PASSWORD_COMPARED_BY_LENGTH = (
        "PasswordComparedByLength", _WARNING, _COMPARISON,
        "Without password.encoder.secret only the length of this password was compared",
        "Set spec.controllers.passwordEncoderSecret to the Secret with the brokers' password.encoder.secret",
    )
    SERVED_NOT_COMPARED = (
        "ServedNotCompared", _WARNING, _COMPARISON,
        "What brokers serve was not compared, or not completely: {reason}",
        ("ZooKeeper and the log were compared all the same. To compare the brokers, too, "
         "let the verifier reach each broker's advertised listener and grant Describe and DescribeConfigs on every "
         "topic and the cluster; to insist on it, set spec.verification.compareServed: Always"),
    )
    CONFIG_STOPS_FAILOVER = (
        "ConfigStopsFailover", _BLOCKING, _COMPARISON,
        ("ZooKeeper cannot hold the configs {names} of this {type}: after every change of the active controller, "
         "also one for healing, the new one stays in SYNC_KRAFT_TO_ZK (Unknown config resource type)"),
        ("Delete them at the active controller; dual-write then goes on within seconds: "
         "`kafka-configs --bootstrap-controller HOST:PORT --entity-type={type} --entity-name={name} "
         "--alter --delete-config={names}`"),
    )
    CHANGED_AFTER_CLAIM = (
        "ChangedAfterClaim", _WARNING, _COMPARISON,
        "This znode changed after the KRaft controller had claimed /controller: the copy may not contain the change",
        "Repeat the change with Kafka's tools when the cluster is in dual-write",
    )
    DELETION_UNDER_WAY = (
        "DeletionUnderWay", _WARNING, _COMPARISON,
        ("The deletion of this topic had begun when the tree was read. Kafka does not copy such a topic, and its "
         "replicas can stay on the brokers' disks (KAFKA-15605): {count} of its entities are in ZooKeeper alone"),
        ("Remove what is left of the topic in the log directories of its brokers. "
         "Create the topic again if it is wanted"),
    )
    TORN_LOG_TAIL = (
        "TornLogTail", _WARNING, _COMPARISON,
        "The log ends with {size} bytes of an incomplete batch. The verification ignores them",
        ("No action is needed if the files are a copy of a running controller's log. "
         "Kafka truncates them when it starts"),
    )

    # ------------------------------------------------------------ logs of nodes
    # that make no progress
    DISK_FULL = (
        "DiskFull", _WARNING, _LOGS,
        "Its disk is full",
        "Enlarge its volume, or free space on it",
    )
    OUT_OF_MEMORY = (
        "OutOfMemory", _WARNING, _LOGS,
        "It ran out of memory ({detail})",
        "Raise its heap and memory limit",
    )
    CONFIG_REFUSED = (
        "ConfigRefused", _WARNING, _LOGS,
        "Kafka refuses its configuration: {detail}",
        "Correct that setting. status.changedFields lists the settings of the operator",
    )
    BLANK_VOLUME = (
        "BlankVolume", _WARNING, _LOGS,
        ("Its volume is blank although it was formatted before. "
         "A voter with a blank volume can elect a leader that lacks records"),
        "Read docs/operations.md before you let it start",
    )
    WRONG_CLUSTER_ID = (
        "WrongClusterId", _WARNING, _LOGS,
        "It belongs to another cluster ({detail})",
        ("Its volume holds the data of another cluster. "
         "Give it its own volume again, or a new one if it was never formatted"),
    )
    NO_AUTH_IN_ZOOKEEPER = (
        "NoAuthInZooKeeper", _WARNING, _LOGS,
        "ZooKeeper denies it access to znode {detail} (NoAuth)",
        ("Give it the brokers' credentials, "
         "or reset the ACLs with them (a JAAS file in KAFKA_OPTS, or --zk-tls-config-file): "
         '`zookeeper-security-migration --zookeeper.connect="$ZOOKEEPER" --zookeeper.acl=unsecure`'),
    )
    CERTIFICATE_EXPIRED = (
        "CertificateExpired", _WARNING, _LOGS,
        "The certificate of a node to which it connects, or of a client, has expired ({detail})",
        ("Renew the certificate. Brokers read theirs only when they start; "
         "the operator restarts the controllers after their Secret has changed"),
    )
    CERTIFICATE_NAME_MISMATCH = (
        "CertificateNameMismatch", _WARNING, _LOGS,
        "The certificate of the node to which it connects has another name ({detail})",
        "Add the missing subject alternative name to that certificate (docs/security.md)",
    )
    CERTIFICATE_NOT_TRUSTED = (
        "CertificateNotTrusted", _WARNING, _LOGS,
        "It does not trust the certificate of a node to which it connects, or of a client ({detail})",
        ("Add the authority that signed the certificate to the truststore of the node that logs this: "
         "ca.crt of the controllers' Secret, or the brokers' ssl.truststore settings for listener CONTROLLER"),
    )
    CERTIFICATE_REFUSED = (
        "CertificateRefused", _WARNING, _LOGS,
        "The other side of a connection refuses its certificate, or its lack of one ({detail})",
        "Check the keystore of the node that logs this. The log of the other side contains the reason",
    )
    LOGIN_MISSING = (
        "LoginMissing", _WARNING, _LOGS,
        "It has no JAAS configuration for a SASL listener ({detail})",
        ("Set listener.name.<listener>.<mechanism>.sasl.jaas.config: for controllers in listener.properties of the "
         "Secret in spec.controllers.listener.secretName, for brokers in their own configuration"),
    )
    AUTHENTICATION_FAILED = (
        "AuthenticationFailed", _WARNING, _LOGS,
        "A connection is refused: {detail}",
        "Compare listener.properties of the controllers with the brokers' settings for listener CONTROLLER",
    )
    NOT_AUTHORIZED = (
        "NotAuthorized", _WARNING, _LOGS,
        "The controllers do not authorize it ({detail})",
        "Add the brokers' principal to spec.controllers.superUsers",
    )
    NAME_NOT_RESOLVED = (
        "NameNotResolved", _WARNING, _LOGS,
        "The name {detail} does not resolve",
        "Check the cluster's DNS and the headless Service of that name",
    )
    BROKER_ZNODE_EXISTS = (
        "BrokerZnodeExists", _WARNING, _LOGS,
        "Its earlier session still holds {detail}",
        "Wait for zookeeper.session.timeout.ms. ZooKeeper then removes the znode with that session",
    )
    MIGRATION_ZNODE_CONFLICT = (
        "MigrationZnodeConflict", _WARNING, _LOGS,
        "It cannot write /migration (conditional update failed): dual-write makes no progress",
        "Restart the active controller. The next one writes its whole image to ZooKeeper",
    )
    CONTROLLERS_NOT_READY = (
        "ControllersNotReady", _WARNING, _LOGS,
        "Not every controller is ready to migrate{detail}",
        ("Check the controller that it names. The operator restarts a controller that follows its leader "
         "but never registers"),
    )
    BROKERS_NOT_REGISTERED = (
        "BrokersNotRegistered", _WARNING, _LOGS,
        "It waits for ZK brokers [{detail}] to register with KRaft",
        ("Check the logs of these brokers. They must run in migration mode, reach the controllers' listener "
         "and be authorized there. If a broker no longer exists, remove it from every assignment"),
    )
    ZOOKEEPER_SESSION = (
        "ZooKeeperSession", _WARNING, _LOGS,
        "It has no session with ZooKeeper ({detail})",
        "Check the ZooKeeper ensemble",
    )
    LOG_DIR_FAILED = (
        "LogDirFailed", _WARNING, _LOGS,
        "Its log directory {detail} failed",
        "Check that volume",
    )
    LEFTOVER_IN_THE_WAY = (
        "LeftoverInTheWay", _WARNING, _LOGS,
        "A replica without a topic id lies in its log directory ({detail}), so it rejoins no ISR (KAFKA-21022)",
        ("Restart it once more in migration mode: delete its pod. "
         "Every partition has it back then, and the next start in KRaft mode sets the replica aside (-stray)"),
    )
    FATAL = (
        "Fatal", _WARNING, _LOGS,
        "It stopped: {detail}",
        "Read the preceding lines of its log for the cause",
    )
    CONTROLLER_CLAIMS_LOST = (
        "ControllerClaimsLost", _BLOCKING, _GUARDS,
        ("Of the claims that were recorded when the voters were formatted, {claims}. A claim with another UID counts "
         "as a blank volume until its voter has caught up, and the operator creates no StatefulSet over it"),
        ("Restore the claims with their volumes, if a backup keeps their UIDs. "
         "Otherwise let one controller at a time format its new volume by spec.controllers.reformat (docs/kraft.md) "
         "while the others are a majority, or roll back with spec.rollback.acceptLoss if ZooKeeper has what you need"),
    )
    CONTROLLER_NOT_REFORMATTED = (
        "ControllerNotReformatted", _WARNING, _GUARDS,
        "spec.controllers.reformat lets controller {controller} format its volume, and it does not yet: {reason}",
        "Correct id and claimUID, or wait until the other voters are whole. The operator looks again by itself",
    )
    CONTROLLER_CONFIG_REPLACED = (
        "ControllerConfigReplaced", _WARNING, _GUARDS,
        ("ConfigMap {config_map} has another content than its name says: somebody deleted the one that the operator "
         "wrote, and created this one. A controller that starts reads it"),
        "Delete this ConfigMap. The operator creates it again with the content of its name",
    )
    KAFKA4_REFUSES_VALUE = (
        "Kafka4RefusesValue", _WARNING, _GUARDS,
        "Kafka {release} and newer refuse {setting}, which {where} has: {effect}",
        "Before the upgrade to Kafka 4, remove it, or set {bound} (docs/kraft.md)",
        _ACCEPTABLE,
    )
    KAFKA4_LACKS_CLASS = (
        "Kafka4LacksClass", _WARNING, _GUARDS,
        "Kafka 4 does not have the class {lacking} of {setting}, which {where} has: a node does not start with it",
        "With the upgrade to Kafka 4, name {instead}",
        _ACCEPTABLE,
    )
    KAFKA4_DROPS_SETTING = (
        "Kafka4DropsSetting", _WARNING, _GUARDS,
        "Kafka {release} and newer ignore {setting}, which {where} has: what it does today ends",
        "Before the upgrade to Kafka 4: {instead}",
    )
    KAFKA4_WITHOUT_JMX = (
        "Kafka4WithoutJmx", _WARNING, _GUARDS,
        ("Kafka 4 does not add {reporter} to {setting}, which {where} has: JMX shows no metrics. "
         "Kafka 3.9 adds it unless auto.include.jmx.reporter is false"),
        "Before the upgrade to Kafka 4, name it there as well, if anything reads metrics through JMX",
    )
    KAFKA4_REFUSES_CLIENTS = (
        "Kafka4RefusesClients", _WARNING, _GUARDS,
        "Kafka 4 refuses {requests} of {client}, got by broker(s) {brokers}, last seen at {at}",
        ("Upgrade these clients to a release that speaks the protocol of Kafka 2.1 (KIP-896). "
         "docs/kraft.md tells how to find their ids and addresses"),
        _ACCEPTABLE,
    )
    KAFKA4_CLIENTS_UNKNOWN = (
        "Kafka4ClientsUnknown", _WARNING, _GUARDS,
        "It is not known which clients Kafka 4 refuses: {reason}",
        ("Let spec.brokers.metrics name the page of the brokers' pods on which an exporter shows Kafka's MBeans. "
         "Or accept this finding, if you know that every client speaks the protocol of Kafka 2.1 or newer"),
        _ACCEPTABLE,
    )
    KAFKA4_PLUGIN_UNKNOWN = (
        "Kafka4PluginUnknown", _INFORMATION, _GUARDS,
        "It is not known whether Kafka 4 loads the class of {setting}, which {where} has: it is not Kafka's own",
        "Try the class with Kafka 4 and Java 17 on a test cluster",
    )
    KAFKA4_DEFAULTS_DIFFER = (
        "Kafka4DefaultsDiffer", _INFORMATION, _GUARDS,
        "Kafka 4 has other defaults, and they change what a broker does: {what}",
        "Nothing to do where that suits you. Otherwise state them in the brokers' configuration before the upgrade",
    )
    KAFKA4_IGNORES_REST = (
        "Kafka4IgnoresRest", _INFORMATION, _GUARDS,
        "Kafka 4 does not know {setting}, which {where} has; Kafka 3.9 ignores it already in KRaft mode",
        "Before the upgrade to Kafka 4: {instead}",
    )
    KAFKA4_IMAGE_REFUSED = (
        "Kafka4ImageRefused", _BLOCKING, _PREFLIGHT,
        "{image} of spec.kafka4 is not taken: {reason}",
        "Let spec.kafka4 name images with one release of Kafka 4.0 to 4.4 (docs/kafka4.md lists those that were tried)",
    )
    KAFKA4_NOT_PROVEN = (
        "Kafka4NotProven", _BLOCKING, _PREFLIGHT,
        "No copy of the brokers' pods shows what the image of spec.kafka4 starts: {reason}",
        "Let the dry start run (docs/dry-start.md): no broker restarts with an image that no copy has started",
    )
    KAFKA4_IMAGE_DIFFERS = (
        "Kafka4ImageDiffers", _BLOCKING, _PREFLIGHT,
        "A copy of pod {pod} with the image of spec.kafka4 gives Kafka other settings than it has now: {differences}",
        ("State these settings in the brokers' own configuration, or accept this finding: "
         "the scripts of an image write settings of their own"),
        _ACCEPTABLE,
    )
    KAFKA4_CLASS_MISSING = (
        "Kafka4ClassMissing", _BLOCKING, _PREFLIGHT,
        "A copy of pod {pod} with the image of spec.kafka4 does not have the class that {settings} names",
        "Take an image with this class, or remove the setting",
        _ACCEPTABLE,
    )
    TOPIC_IDS_NOT_PROVEN = (
        "TopicIdsNotProven", _BLOCKING, _GUARDS,
        ("It is not known yet that broker {broker} keeps the id of every topic beside its logs: {reason}. "
         "KRaft refuses a log without one (partition.metadata), so no broker goes to migration mode before that"),
        ("A broker shows it within seconds of its start, once a broker with inter.broker.protocol.version 2.8 or later "
         "is controller. If it does not, let another broker become controller: restart the one that "
         '`zookeeper-shell "$ZOOKEEPER" get /controller` names. Then restart this one, when every ISR is full: '
         "`kubectl delete pod {pod}`"),
    )
    IDENTITY_CHANGED = (
        "IdentityChanged", _BLOCKING, _GUARDS,
        ("This migration recorded UID {recorded}, and the object of this name has UID {present}: it was restored from "
         "a backup, or deleted and created anew. No step is taken forward or back, "
         "and nothing is written to brokers and controllers"),
        "{way_out}",
    )
    STATEFUL_SET_RENAMED = (
        "StatefulSetRenamed", _BLOCKING, _GUARDS,
        "The StatefulSet does not exist any more, and StatefulSet {other} has taken its place: it {signs}",
        ("Give the StatefulSet its former name back (a chart's nameOverride or fullnameOverride has probably changed). "
         "The brokers' names, claims and addresses contain it"),
    )
    CHART_CHANGED = (
        "ChartChanged", _WARNING, _GUARDS,
        "The chart of the StatefulSet was upgraded during the migration: {labels}",
        ("Roll that release back, and upgrade it after the migration. "
         "Before the next broker restarts, the pod template is compared with what a dry start has looked at"),
    )
    QUORUM_LOST = (
        "QuorumLost", _BLOCKING, _GUARDS,
        ("Controllers {voters} of {of} have lost their volumes. "
         "Without a majority no leader is elected again, and the operator restores nothing by itself"),
        "Bring the volumes back under their claims if you can. Otherwise choose what to lose. {way_one} {way_two}",
    )
    ORIGINALS_LOST = (
        "OriginalsLost", _BLOCKING, _GUARDS,
        ("The original state of the StatefulSet is lost: "
         "neither Secret {first} nor Secret {second} holds the record that this migration made. "
         "Without it the operator can neither roll back nor configure the brokers for another mode"),
        ("Restore one of the two Secrets from a backup; the operator recognizes the record and writes the other one. "
         "Without a backup: brokers that all run KRaft can be finalized, which needs no original state (spec.target "
         "KRaft); or put the template back by hand as docs/rollback.md describes"),
    )
    ZOOKEEPER_CONTRADICTS = (
        "ZooKeeperContradicts", _BLOCKING, _GUARDS,
        ("ZooKeeper does not show what this migration has read from it: {what}. The metadata log of the KRaft "
         "controllers holds all metadata; nothing restarts, no controller stops, and nothing is written to ZooKeeper"),
        "{way_out}",
    )
    DRIVER_STATE = (
        "DriverState", _INFORMATION, _LOGS,
        "Its migration driver is in state {detail}",
        "No action is needed. The state shows the progress of the migration driver",
    )
    # fmt: on


ACCEPTABLE: Final = frozenset(str(code) for code in Code if code.acceptable)
"""Codes of the blocking findings that the user may accept."""
