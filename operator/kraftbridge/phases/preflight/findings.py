"""Collects every finding of preflight. Pure.

Codes and texts are in `kraftbridge.models.catalogue`. A part of the observation that is unknown is a blocking finding.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from kraftbridge.constants import ACL_AUTHORIZER, OVERLAID_SETTINGS, STANDARD_AUTHORIZER
from kraftbridge.models.catalogue import ACCEPTABLE, Code, Severity
from kraftbridge.models.metadata_version import Release, levels_of, lowest_without_loss, release_of, text_of
from kraftbridge.models.observation import (
    ClusterState,
    LeaseState,
    MigrationZnode,
    StatefulSetState,
    TopicRedundancy,
    Unobserved,
    ZooKeeperState,
)
from kraftbridge.models.phase import Phase
from kraftbridge.models.protocol import SETTING as PROTOCOL
from kraftbridge.models.spec import MigrationSpec, Runner
from kraftbridge.models.status import FindingStatus, finding, first, some, with_channel
from kraftbridge.models.survey import Survey
from kraftbridge.phases import upgrading
from kraftbridge.phases.draft import Draft, StepContext
from kraftbridge.phases.observed import read_sets
from kraftbridge.phases.preflight import (
    channel,
    disks,
    dry_start,
    dynamic_settings,
    kafka4_copies,
    others,
    patch_releases,
    paths,
    rehearsal,
    upgrade,
)
from kraftbridge.phases.preflight import kafka as preflight_kafka
from kraftbridge.phases.preflight import kubernetes as preflight_kubernetes

REQUIRED_IBP = (3, 9)
"""KIP-866 needs 3.4, several log dirs 3.7-IV2, and transactions in the copy 3.6-IV1; 3.9 is the bridge release."""

BRIDGE = Release(3, 9)
"""The release whose brokers and controllers a migration runs with."""

TEMPLATE = "pod template"
"""Source of a setting that does not come from a running broker."""


def findings(draft: Draft) -> tuple[FindingStatus, ...]:
    """Return every finding, accepted ones marked, blocking ones first."""
    marked = _accepting(
        draft.spec,
        (
            *_spec(draft.spec),
            *_runner(draft),
            *_guard(draft),
            *_workloads(draft),
            *_endpoints(draft),
            *_zookeeper(draft),
            *_cluster(draft),
            *_survey(draft),
            *_metadata_version(draft.spec),
            *_images(draft),
            *patch_releases.findings(draft),
            *channel.findings(draft),
            *dry_start.findings(draft),
            *(() if upgrading.lifts_alone(draft.status) else rehearsal.findings(draft)),
        ),
    )
    order = list(Severity)
    return tuple(sorted(marked, key=lambda f: (f.accepted, order.index(f.severity), f.code, f.object)))


def _endpoints(step: StepContext) -> Iterator[FindingStatus]:
    """Find the places that the operator may not connect to, by the address of the connection."""
    for refused in step.observation.refused:
        host = f"{refused.host}:{refused.port}"
        bits = 128 if ":" in refused.address else 32
        yield finding(
            Code.ENDPOINT_NOT_ALLOWED,
            f"endpoint/{host}",
            host=host,
            address=refused.address,
            reason=refused.reason,
            network=f"{refused.address}/{bits}",
        )


def redundancy_findings(spec: MigrationSpec, redundancy: TopicRedundancy) -> tuple[FindingStatus, ...]:
    """Return a finding per topic that a broker's restart makes unavailable; each restart gate checks them again."""
    return tuple(_accepting(spec, _redundancy(redundancy)))


def rehearsal_findings(step: StepContext) -> tuple[FindingStatus, ...]:
    """Return what the last rehearsal found; asked again before the first broker restarts."""
    return tuple(_accepting(step.spec, rehearsal.findings(step)))


def path_findings(step: StepContext) -> tuple[FindingStatus, ...]:
    """Return what closes the ways from the controllers to the brokers; asked before each restart up to the copy."""
    return tuple(_accepting(step.spec, paths.findings(step)))


def dry_start_findings(step: StepContext) -> tuple[FindingStatus, ...]:
    """Return what the last dry start found; asked again before the first restart, if a template changed since."""
    if step.status.kafka4_leg is not None:
        return tuple(_accepting(step.spec, kafka4_copies.findings(step)))
    found = (*channel.findings(step), *dry_start.findings(step), *upgrade.findings_anew(step))
    return tuple(_accepting(step.spec, found))


def findings_anew(step: StepContext, survey: Survey) -> tuple[FindingStatus, ...]:
    """Return what preflight finds in the settings that the brokers run with now; asked before each forward step."""
    anew = list(preflight_kafka.findings_anew(step, survey))
    if step.status.phase in (Phase.PROVISIONING_QUORUM, Phase.DUAL_WRITE):
        # Before each restart in KRaft mode the record of that broker is asked (`nodes.comparing`).
        anew += dynamic_settings.findings(step, survey)
    return tuple(_accepting(step.spec, anew))


def _accepting(spec: MigrationSpec, unmarked: Iterable[FindingStatus]) -> list[FindingStatus]:
    """Mark the findings that the user accepts."""
    return [
        f.model_copy(update={"accepted": f.code in ACCEPTABLE and spec.preflight.accepts(f.code, f.object)})
        for f in unmarked
    ]


def blocking(found: tuple[FindingStatus, ...]) -> tuple[FindingStatus, ...]:
    """Return the findings that close the gate."""
    return tuple(f for f in found if f.blocks)


def _survey(draft: Draft) -> Iterator[FindingStatus]:
    survey = draft.observation.survey
    if isinstance(survey, Unobserved):
        yield finding(Code.SURVEY_UNKNOWN, "cluster", reason=survey)
        return
    yield from others.findings(draft, survey)
    yield from preflight_kubernetes.findings(draft, survey)
    yield from preflight_kafka.findings(draft, survey)
    yield from disks.findings(draft, survey)
    yield from dynamic_settings.findings(draft, survey)
    yield from upgrade.findings(draft, survey)


def _spec(spec: MigrationSpec) -> Iterator[FindingStatus]:
    if spec.controllers.listener.security_protocol == "PLAINTEXT":
        yield finding(Code.CONTROLLER_LISTENER_PLAINTEXT, "controllers")
    if any(u.endswith(":ANONYMOUS") for u in spec.controllers.super_users):
        yield finding(Code.SUPER_USER_ANONYMOUS, "controllers")
    if spec.controllers.replicas == 1:
        yield finding(Code.SINGLE_CONTROLLER, "controllers")

    for accepted in spec.preflight.accepted:
        if accepted.code not in list(Code):
            yield finding(Code.ACCEPTED_CODE_UNKNOWN, "spec.preflight.accepted", code=accepted.code)


def _metadata_version(spec: MigrationSpec) -> Iterator[FindingStatus]:
    """Find a level that Kafka will refuse.

    The quorum begins at its release's last level, and Kafka 3.9 makes no lossy downgrade.
    """
    release = release_of(spec.controllers.image)
    if spec.metadata_level is None or release is None:
        return
    levels = levels_of(release)
    if levels is None:
        return
    highest = levels[1]
    lowest = lowest_without_loss(highest)
    if not lowest <= spec.metadata_level <= highest:
        yield finding(
            Code.METADATA_VERSION_OUT_OF_REACH,
            "spec.metadataVersion",
            release=release,
            asked=text_of(spec.metadata_level),
            highest=text_of(highest),
            lowest=text_of(lowest),
        )


def _images(draft: Draft) -> Iterator[FindingStatus]:
    """Judge the Kafka release that an image's name states; running brokers state their own release at registration."""
    if upgrading.is_needed(draft.status):
        return
    for item in read_sets(draft):
        release = release_of(item.image)
        if release is not None and release < BRIDGE:
            yield finding(Code.IMAGE_TOO_OLD, f"StatefulSet/{item.name}", image=item.image, release=release)


def _runner(draft: Draft) -> Iterator[FindingStatus]:
    available = draft.observation.runner_available
    if isinstance(available, Unobserved):
        yield finding(Code.RUNNER_UNKNOWN, "verification", reason=available)
    if available is False and draft.spec.verification.runner is Runner.SPARK_APPLICATION:
        yield finding(Code.SPARK_OPERATOR_ABSENT, "verification")


def _guard(draft: Draft) -> Iterator[FindingStatus]:
    policy = draft.observation.admission_policy
    if isinstance(policy, Unobserved):
        yield finding(Code.ADMISSION_POLICY_MISSING, "cluster", reason=policy)
    if policy is False:
        reason = "no ValidatingAdmissionPolicy of this operator is installed"
        yield finding(Code.ADMISSION_POLICY_MISSING, "cluster", reason=reason)


def _workloads(draft: Draft) -> Iterator[FindingStatus]:
    for ref, item in zip(draft.spec.brokers.stateful_sets, draft.observation.stateful_sets, strict=False):
        name = f"StatefulSet/{ref.name}"
        if isinstance(item, Unobserved):
            yield finding(Code.STATEFUL_SET_MISSING, name, reason=item)
            continue
        if not item.container_found:
            yield finding(Code.CONTAINER_MISSING, name, container=draft.spec.brokers.container)
            continue
        if item.overlay and not item.original.digest:
            yield finding(Code.OVERLAY_LEFT, name, mark=item.overlay)
            continue
        yield from _stateful_set(draft, name, item)


def _stateful_set(draft: Draft, name: str, item: StatefulSetState) -> Iterator[FindingStatus]:
    if item.lock and item.lock != draft.identity.lock:
        yield finding(Code.LOCKED_BY_ANOTHER, name, holder=f"its lock annotation names migration {item.lock}")
    if isinstance(item.lease, LeaseState) and item.lease.held_by_another:
        yield finding(Code.LOCKED_BY_ANOTHER, name, holder=f"{item.lease.holder} holds Lease kraftbridge-{item.name}")
    ready = sum(not pod.down for pod in item.pods)
    if not ready == len(item.pods) == item.replicas:
        trouble = next((f": {pod.name} {pod.trouble}" for pod in item.pods if pod.trouble), "")
        yield finding(Code.BROKERS_NOT_READY, name, ready=ready, replicas=item.replicas, trouble=trouble)
    for variable, line in sorted(item.fixed_variables.items()):
        yield finding(Code.SETTING_FROM_REFERENCE, name, variable=variable, line=line)
    for setting in OVERLAID_SETTINGS:
        if setting in item.overrides:
            value = item.overrides[setting]
            container = draft.spec.brokers.container
            yield finding(Code.SETTING_IN_ARGUMENTS, name, setting=setting, value=value, container=container)
    if parts := [need.part for need in item.zookeeper_needs if not need.on_kraft]:
        yield finding(Code.POD_NEEDS_ZOOKEEPER, name, parts=first(parts))
    if parts := [need.part for need in item.zookeeper_needs if need.on_kraft]:
        yield finding(Code.PROBE_ASKS_ZOOKEEPER, name, parts=first(parts))
    for variable in item.writes_to_zookeeper:
        yield finding(Code.IMAGE_WRITES_TO_ZOOKEEPER, name, variable=variable)
    yield from _properties(with_channel(draft.spec, draft.status), name, item)
    yield from _protocol_version(draft, name, item)
    yield from _settings(name, item)


def _protocol_version(draft: Draft, name: str, item: StatefulSetState) -> Iterator[FindingStatus]:
    if upgrading.is_needed(draft.status):
        return  # what runs is known, and judged (`upgrade.findings`)
    stated = item.settings.get(PROTOCOL, "")
    if not stated:
        if not preflight_kafka.is_told(draft, item, PROTOCOL):
            yield finding(Code.INTER_BROKER_PROTOCOL_TOO_LOW, name, stated="the brokers did not tell it")
        return
    version = re.match(r"(\d+)\.(\d+)", stated)
    if version is None or (int(version[1]), int(version[2])) < REQUIRED_IBP:
        yield finding(Code.INTER_BROKER_PROTOCOL_TOO_LOW, name, stated=f"the pod template says {stated}")


def _settings(name: str, item: StatefulSetState) -> Iterator[FindingStatus]:
    """Find settings of the pod template that KRaft mode does not have."""
    settings = item.settings
    flag = settings.get("zookeeper.metadata.migration.enable", "")
    if flag.strip().lower() == "true" and not item.configuration:
        yield finding(Code.MIGRATION_FLAG_ALREADY_SET, name, source=TEMPLATE)
    if roles := settings.get("process.roles"):
        yield finding(Code.ALREADY_KRAFT, name, roles=roles)
    if control_plane := settings.get("control.plane.listener.name"):
        yield finding(Code.CONTROL_PLANE_LISTENER, name, value=control_plane, source=TEMPLATE)
    if settings.get("broker.id", "").strip() == "-1":
        yield finding(Code.GENERATED_BROKER_IDS, name, stated="broker.id is -1 in the pod template")
    if settings.get("authorizer.zookeeper.url"):
        yield finding(Code.AUTHORIZER_ZOOKEEPER_ELSEWHERE, name)
    authorizer = settings.get("authorizer.class.name", "").strip()
    if authorizer not in ("", ACL_AUTHORIZER, STANDARD_AUTHORIZER):
        yield finding(Code.CUSTOM_AUTHORIZER, name, authorizer=authorizer)


def _properties(spec: MigrationSpec, name: str, item: StatefulSetState) -> Iterator[FindingStatus]:
    source = spec.brokers.file
    mounted = item.properties_from
    if source is None:
        return
    if not mounted:
        yield finding(Code.VOLUME_MISSING, name, volume=source.volume)
    elif source.config_map is not None and mounted != f"ConfigMap/{source.config_map}":
        yield finding(Code.PROPERTIES_ELSEWHERE, name, volume=source.volume, mounted=mounted, stated=source.config_map)
    elif not item.settings:
        yield finding(Code.PROPERTIES_MISSING, name, volume=source.volume, mounted=mounted, key=source.key)


def _zookeeper(draft: Draft) -> Iterator[FindingStatus]:
    state = draft.observation.zookeeper
    name = f"ZooKeeper/{draft.spec.zookeeper.connect}"
    if isinstance(state, Unobserved):
        yield finding(Code.ZOOKEEPER_UNREACHABLE, name, reason=state)
        return
    if not state.cluster_id:
        yield finding(Code.CLUSTER_ID_MISSING, name, path=f"{draft.spec.chroot}/cluster/id")
    yield from _znodes(name, state)
    yield from _identities(draft, name, state)


def _znodes(name: str, state: ZooKeeperState) -> Iterator[FindingStatus]:
    if isinstance(state.migration, Unobserved):
        yield finding(Code.MIGRATION_ZNODE_UNREADABLE, name, problem=state.migration.reason)
    elif isinstance(state.migration, MigrationZnode) and state.migration.kraft_metadata_offset >= 0:
        yield finding(Code.MIGRATION_ZNODE_STALE, name, offset=state.migration.kraft_metadata_offset)
    if state.controller is None:
        yield finding(Code.CONTROLLER_MISSING, name)
    elif state.controller.kraft_controller_epoch >= 0:
        yield finding(Code.CONTROLLER_IS_KRAFT, name)
    if state.pending_topic_deletions:
        yield finding(Code.TOPIC_DELETION_PENDING, name, topics=some(state.pending_topic_deletions))
    if state.reassignments:
        yield finding(Code.REASSIGNMENT_RUNNING, name, what="/admin/reassign_partitions exists")


def _identities(draft: Draft, name: str, state: ZooKeeperState) -> Iterator[FindingStatus]:
    sets = read_sets(draft)
    if not sets:
        return
    registered = {broker.id for broker in state.brokers}
    managed = set(draft.registered_broker_ids().values())
    if not managed and dry_start.may_show_ids(draft):
        return  # copies of the pods show it
    if not managed:
        names = ", ".join(stateful_set.name for stateful_set in sets)
        brokers = [broker.id for broker in state.brokers]
        yield finding(Code.BROKER_IDENTITY_UNKNOWN, name, sets=names, brokers=brokers)
        return
    if unmanaged := sorted(registered - managed):
        yield finding(Code.BROKERS_NOT_MANAGED, name, brokers=unmanaged)
    if clash := sorted(managed & set(draft.spec.controllers.node_ids)):
        yield finding(Code.NODE_ID_COLLISION, "controllers", ids=clash)


def _cluster(draft: Draft) -> Iterator[FindingStatus]:
    cluster = draft.observation.cluster
    redundancy = draft.observation.redundancy
    name = f"Kafka/{draft.spec.brokers.bootstrap_servers}"
    if not isinstance(cluster, ClusterState):
        yield finding(Code.KAFKA_UNREACHABLE, name, reason=cluster)
        return
    if cluster.offline_count:
        yield finding(Code.OFFLINE_PARTITIONS, name, count=cluster.offline_count, partitions=some(cluster.offline))
    if cluster.under_replicated_count:
        yield finding(
            Code.UNDER_REPLICATED_PARTITIONS,
            name,
            count=cluster.under_replicated_count,
            partitions=some(cluster.under_replicated),
        )
    if not isinstance(redundancy, TopicRedundancy):
        yield finding(Code.REDUNDANCY_UNKNOWN, name, reason=redundancy)
        return
    yield from _redundancy(redundancy)


def _redundancy(redundancy: TopicRedundancy) -> Iterator[FindingStatus]:
    for topic in redundancy.replication_factor_one:
        yield finding(Code.TOPIC_NOT_REPLICATED, f"topic/{topic}")
    for topic in redundancy.at_min_isr:
        yield finding(Code.TOPIC_AT_MIN_ISR, f"topic/{topic}")
