"""Converts Kubernetes objects into the observation's types."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from operator import attrgetter
from typing import Any, Final

from kraftbridge.builders import broker_overlays as overlays
from kraftbridge.builders import names
from kraftbridge.builders.bitnami import writes_to_zookeeper
from kraftbridge.builders.controllers import CONFIGURATION_VOLUME, KAFKA_CONTAINER, METRICS_PORT_NAME
from kraftbridge.constants import ANNOTATION_CONFIGURATION, ANNOTATION_LOCK, FIELD_MANAGER
from kraftbridge.copies.dry_start import image_digest
from kraftbridge.exceptions import ObservationError, PropertiesError
from kraftbridge.models.mounted_files import mounted_object
from kraftbridge.models.objects import entries, section, started_again, variables_of
from kraftbridge.models.observation import (
    Clue,
    ControllersWorkload,
    PodState,
    StartLog,
    StatefulSetState,
    Unobserved,
    clues_in,
)
from kraftbridge.models.phase import BrokerMode
from kraftbridge.models.pod_problem import LOST_NODE, OOM_KILLED, UNSCHEDULABLE, WAITS, PodProblem
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.models.status import MigrationStatus
from kraftbridge.models.survey import DOES_NOT_EXIST
from kraftbridge.models.volumes import mounts_of
from kraftbridge.models.zookeeper_needs import zookeeper_needs
from kraftbridge.outside import bounds
from kraftbridge.outside.properties import parse_properties
from kraftbridge.phases.draft import Migration
from kraftbridge.services.answers import Answers
from kraftbridge.storage.ports import Object as Stored
from kraftbridge.storage.ports import ReadPort

Object = Mapping[str, Any]


def existing(kubernetes: ReadPort, namespace: str, name: str) -> Stored:
    """Return a StatefulSet.

    Raises
    ------
    ObservationError
        It does not exist, or the API server does not answer.
    """
    stateful_set = kubernetes.get("apps/v1", "StatefulSet", namespace, name)
    if stateful_set is None:
        raise ObservationError(f"StatefulSet {namespace}/{name}", DOES_NOT_EXIST)
    return stateful_set


_MEMBER: Final = re.compile(r"(?P<stateful_set>.+)-(?P<ordinal>[0-9]+)")
"""``statefulPodRegex`` of the StatefulSet controller."""


def pod_state(pod: Object) -> PodState:
    """Return the observed state of a pod of a StatefulSet.

    The label ``apps.kubernetes.io/pod-index`` has the ordinal as well, but anybody can change it, and a name stays.

    Raises
    ------
    ValueError
        Its name is none that a StatefulSet gives.
    """
    metadata = pod["metadata"]
    status = section(pod, "status")
    labels = section(metadata, "labels")
    member = _MEMBER.fullmatch(metadata["name"])
    if member is None:
        raise ValueError(f"pod {metadata['name']} is none of a StatefulSet")
    ready_since = _ready_since(status)
    return PodState(
        name=metadata["name"],
        uid=metadata["uid"],
        ordinal=int(member["ordinal"]),
        ready=ready_since is not None,
        ready_since=ready_since,
        deleting="deletionTimestamp" in metadata,
        configuration=section(metadata, "annotations").get(ANNOTATION_CONFIGURATION, ""),
        revision=labels.get("controller-revision-hash", ""),
        ip=status.get("podIP", ""),
        trouble=pod_trouble(pod),
        running_since=_running_since(entries(status, "containerStatuses")),
        images=_images(status),
        created_at=_moment(metadata.get("creationTimestamp")),
        kill_due_at=_moment(metadata.get("deletionTimestamp")),
        grace_seconds=metadata.get("deletionGracePeriodSeconds"),
        exits=_exits(entries(status, "containerStatuses")),
        started_again=started_again(pod),
    )


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _exits(containers: Sequence[Object]) -> frozenset[tuple[str, int, str]]:
    ended = ((container["name"], section(container, "state", "terminated")) for container in containers)
    return frozenset((name, end["exitCode"], end.get("reason") or "") for name, end in ended if "exitCode" in end)


def _ready_since(status: Object) -> datetime | None:
    for condition in entries(status, "conditions"):
        if condition["type"] == "Ready" and condition.get("status") == "True":
            return datetime.fromisoformat(condition["lastTransitionTime"])
    return None


def _images(status: Object) -> frozenset[tuple[str, str]]:
    containers = (*entries(status, "initContainerStatuses"), *entries(status, "containerStatuses"))
    digests = ((c["name"], image_digest(c.get("imageID") or "")) for c in containers)
    return frozenset((name, digest) for name, digest in digests if digest)


def _running_since(containers: Sequence[Object]) -> datetime | None:
    started = [section(container, "state", "running").get("startedAt") for container in containers]
    if not started or not all(started):
        return None
    return max(datetime.fromisoformat(str(at)) for at in started)


def pod_trouble(pod: Object) -> str:
    """Return the reason why a pod does not run; ``""`` if Kubernetes reports no problem."""
    status = section(pod, "status")
    conditions = {condition["type"]: condition for condition in entries(status, "conditions")}
    if (scheduled := conditions.get("PodScheduled", {})).get("status") == "False":
        return f"{scheduled.get('reason', UNSCHEDULABLE)}: {scheduled.get('message', '')}"[:200]
    if _is_on_a_lost_node(conditions):
        return f"{LOST_NODE}: node {section(pod, 'spec').get('nodeName', '')} does not answer"
    for container in (*entries(status, "initContainerStatuses"), *entries(status, "containerStatuses")):
        waiting = section(container, "state", "waiting")
        if waiting.get("reason") in WAITS:
            trouble = f"{waiting['reason']} of container {container['name']}: {waiting.get('message', '')}"[:200]
            return trouble + _last_end(container)
    return ""


def takes_pods(node: Object) -> bool:
    """Return whether a node is Ready and not cordoned."""
    conditions = {condition["type"]: condition["status"] for condition in entries(node, "status", "conditions")}
    return conditions.get("Ready") == "True" and not section(node, "spec").get("unschedulable", False)


def _is_on_a_lost_node(conditions: Mapping[str, Object]) -> bool:
    """Return whether somebody else than the kubelet has taken a pod's readiness away.

    The node controller does so for every pod of a node that does not answer, and leaves the rest of its status as the
    kubelet wrote it last (``MarkPodsNotReady``). The kubelet gives a reason with each pod that is not Ready.
    """
    ready = conditions.get("Ready", {})
    containers = conditions.get("ContainersReady", {})
    return ready.get("status") == "False" and not ready.get("reason") and containers.get("status") == "True"


def _last_end(container: Object) -> str:
    """Return how a container ended last, to follow its trouble; ``""`` if that is not known."""
    last = section(container, "lastState", "terminated")
    if "exitCode" not in last:
        return ""
    killed = f" ({OOM_KILLED})" if last.get("reason") == OOM_KILLED else ""
    return f", last exit code {last['exitCode']}{killed}{_last_words(last.get('message', ''))}"


_TELLING: Final = re.compile("Exception: |Error: |No space left")


def _last_words(log: str) -> str:
    """Return the line at a log's end that explains why a process ended: a Java exception, otherwise the last line."""
    lines = list(filter(None, map(str.strip, log.splitlines())))
    if not lines:
        return ""
    # The cause is deeper in a stack trace than the exceptions that it led to.
    telling = list(filter(_TELLING.search, lines))
    return f": {(telling or lines)[-1][:160]}"


def pods_selector(stateful_set: Object) -> str:
    """Return a StatefulSet's selector in API syntax: all labels and expressions must match (``LabelSelector``)."""
    selector = stateful_set["spec"]["selector"]
    terms = [f"{key}={value}" for key, value in selector.get("matchLabels", {}).items()]
    for expression in selector.get("matchExpressions", []):
        key = expression["key"]
        values = ",".join(expression.get("values", []))
        match expression["operator"]:
            case "In":
                terms.append(f"{key} in ({values})")
            case "NotIn":
                terms.append(f"{key} notin ({values})")
            case "Exists":
                terms.append(key)
            case "DoesNotExist":
                terms.append(f"!{key}")
            case other:
                raise ValueError(
                    f"StatefulSet {stateful_set['metadata']['name']}: unknown operator {other} in spec.selector"
                )
    return ",".join(terms)


def pods_of(stateful_set: Object, pods: Sequence[Object]) -> tuple[PodState, ...]:
    """Return the pods of this StatefulSet, by ordinal."""
    members = [pod for pod in pods if is_member(pod, stateful_set)]
    return tuple(sorted(map(pod_state, members), key=attrgetter("ordinal")))


def is_member(pod: Object, stateful_set: Object) -> bool:
    """Return whether a pod is one of a StatefulSet's: it is owned by it and has one of its names.

    The StatefulSet controller asks the same before it takes a pod for its own (``getPodsForStatefulSet``,
    ``isMemberOf``). The selector alone matches pods of others, and anybody may write an owner into a pod.
    """
    metadata = stateful_set["metadata"]
    member = _MEMBER.fullmatch(pod["metadata"]["name"])
    return member is not None and member["stateful_set"] == metadata["name"] and is_owned(pod, metadata["uid"])


def is_owned(pod: Object, uid: str) -> bool:
    """Return whether a pod has the owner with this UID."""
    return any(owner.get("uid") == uid for owner in entries(pod, "metadata", "ownerReferences"))


def container_of(stateful_set: Object, name: str) -> Object | None:
    """Return a container of the pod template."""
    containers = stateful_set["spec"]["template"]["spec"].get("containers", [])
    return next((c for c in containers if c["name"] == name), None)


def environment_of(container: Object) -> dict[str, str]:
    """Return the variables with plain values."""
    return {name: e.get("value", "") for name, e in variables_of(container).items() if "valueFrom" not in e}


def drift_of(spec: MigrationSpec, facts: overlays.BrokerFacts, stateful_set: Object) -> tuple[str, ...]:
    """Return the operator's fields in a StatefulSet that have another value."""
    template = stateful_set["spec"]["template"]
    annotation = section(template, "metadata", "annotations").get(ANNOTATION_CONFIGURATION, "")
    mode = BrokerMode.of(annotation)
    container = container_of(stateful_set, spec.brokers.container)
    if mode is BrokerMode.ZOOKEEPER or container is None:
        return ()
    present = environment_of(container)
    expected = overlays.environment(spec, facts, mode)
    lost = [f"env {name}" for name, value in expected.items() if present.get(name) != value]
    if annotation != overlays.configuration(spec, facts, mode):
        lost.append(f"annotation {ANNOTATION_CONFIGURATION}")
    overlay = overlays.overlay(spec, facts, stateful_set["metadata"]["name"], mode)
    ours = entries(overlay, "spec", "template", "spec", "volumes")
    present_volumes = entries(template, "spec", "volumes")
    volumes = [volume["name"] for volume in ours]
    lost += [
        f"volume {name}" for name in volumes if mounted_object(present_volumes, name) != mounted_object(ours, name)
    ]
    mounts = {mount["mountPath"] for mount in entries(container, "volumeMounts")}
    if facts.issued_secret and overlays.ISSUED_DIRECTORY not in mounts:
        lost.append(f"mount {overlays.ISSUED_DIRECTORY}")
    return (*lost, *_lost_images(facts, mode, container["name"], template))


def _lost_images(facts: overlays.BrokerFacts, mode: BrokerMode, container: str, template: Object) -> list[str]:
    """Return the containers that do not have the image to which the brokers are brought, or still have Kafka 4's."""
    present = {c["name"]: c.get("image") for c in entries(template, "spec", "containers")}
    starters = {c["name"]: c.get("image") for c in entries(template, "spec", "initContainers")}
    wanted = facts.image_in(mode)
    if wanted is None:
        left = facts.kafka4
        return [f"image of {container}"] if left is not None and present.get(container) == left.image else []
    lost = [] if present.get(container) == wanted.image else [container]
    lost += [name for name in wanted.init_containers if starters.get(name) != wanted.image]
    return [f"image of {name}" for name in lost]


def last_writer(obj: Object) -> str:
    """Return an object's last writer besides the operator, and the time, from ``managedFields``; ``""`` for none."""
    writers = [entry for entry in entries(obj, "metadata", "managedFields") if _is_foreign(entry)]
    if not writers:
        return ""
    last = max(writers, key=lambda entry: str(entry["time"]))
    return f"{last.get('manager', 'unknown')} ({last.get('operation', 'Update')} at {last['time']})"


def _is_foreign(entry: Object) -> bool:
    is_ours = entry.get("manager") == FIELD_MANAGER
    return bool(entry.get("time")) and not is_ours and not entry.get("subresource")


def without_agent(stateful_set: Object, pods: Sequence[Object]) -> frozenset[int]:
    """Return the ordinals of the controllers' pods whose Kafka container opens no port for a metrics agent."""
    return frozenset(
        pod_state(pod).ordinal for pod in pods if is_member(pod, stateful_set) and not _opens_metrics_port(pod)
    )


def _opens_metrics_port(pod: Object) -> bool:
    kafka = next((c for c in entries(pod, "spec", "containers") if c["name"] == KAFKA_CONTAINER), None)
    return kafka is None or any(port.get("name") == METRICS_PORT_NAME for port in entries(kafka, "ports"))


def mounted_configuration(stateful_set: Object) -> str:
    """Return the name of the ConfigMap that the controllers' template mounts as their configuration."""
    for volume in entries(stateful_set, "spec", "template", "spec", "volumes"):
        if volume["name"] == CONFIGURATION_VOLUME:
            return str(section(volume, "configMap").get("name", ""))
    return ""


def mounted_config_maps(stateful_set: Object, pods: Sequence[Object]) -> frozenset[str]:
    """Return the names of the ConfigMaps that the template or one of the pods has as a volume."""
    mounted = set()
    for owner in (section(stateful_set, "spec", "template"), *pods):
        for volume in entries(owner, "spec", "volumes"):
            mounted.add(str(section(volume, "configMap").get("name", "")))
    return frozenset(mounted)


def is_replaced(config_map: Object | None) -> bool:
    """Return whether the ConfigMap of a configuration has another content than its name says."""
    if config_map is None:
        return False
    content = section(config_map, "data")
    return bool(config_map.get("binaryData")) or not names.has_its_content(config_map["metadata"]["name"], content)


def migration_flag(config_map: Object | None) -> bool | None:
    """Return the migration flag in the controllers' ConfigMap; None if it cannot be read."""
    text = section(config_map, "data").get("controller.properties")
    if text is None:
        return None
    try:
        settings = parse_properties(text)
    except PropertiesError:
        return None
    return settings.get("zookeeper.metadata.migration.enable", "false").strip().lower() == "true"


def written_by(config_map: Object | None) -> str:
    """Return a ConfigMap's name and its last writer besides the operator, for a message."""
    if config_map is None:
        return ""
    name = config_map["metadata"]["name"]
    writer = last_writer(config_map)
    return f" {name} (last written by {writer})" if writer else f" {name}"


def foreign_changes(
    spec: MigrationSpec,
    was: Object,
    volumes_before: Sequence[Object],
    ours: Collection[str],
    stateful_set: Object,
    our_images: Collection[str] = (),
) -> tuple[str, ...]:
    """Return the changes in the user's part of the template since it was recorded: image, environment, volumes.

    Parameters
    ----------
    was
        The recorded Kafka container.
    ours
        Variables that the migration sets; `drift_of` reports those.
    our_images
        Images to which the migration brings the brokers, none if it leaves theirs alone.
    """
    container = container_of(stateful_set, spec.brokers.container)
    if container is None:
        return (f"container {spec.brokers.container} is gone",)
    changed = []
    image = container.get("image", "")
    if image not in (was.get("image", ""), *our_images):
        changed.append(f"image {was.get('image', '')} became {image}")
    variables = _changed_names(was.get("env", []), container.get("env", []))
    changed += [f"env {name}" for name in variables if name not in ours]
    volumes = _changed_names(volumes_before, entries(stateful_set, "spec", "template", "spec", "volumes"))
    source = spec.brokers.file
    mounted = "" if source is None else source.volume
    former = {volume["name"] for volume in volumes_before}
    changed += [
        f"volume {name}" for name in volumes if name != mounted and (name in former or name != overlays.ISSUED_VOLUME)
    ]
    return tuple(changed)


def _changed_names(before: Sequence[Object], now: Sequence[Object]) -> list[str]:
    """Return the names of the entries of two lists that differ, sorted."""
    former = {entry["name"]: entry for entry in before}
    present = {entry["name"]: entry for entry in now}
    return sorted(name for name in former.keys() | present.keys() if former.get(name) != present.get(name))


def is_observed(stateful_set: Object) -> bool:
    """Return whether the StatefulSet's controller has seen its present spec."""
    seen = section(stateful_set, "status").get("observedGeneration", 0)
    return int(seen) >= int(stateful_set["metadata"].get("generation", 0))


def own_state(stateful_set: Object, pods: Sequence[Object], container: str) -> StatefulSetState:
    """Return the observed state of any StatefulSet: pods, revision, configuration, lock, image of Kafka's container."""
    metadata = stateful_set["metadata"]
    status = section(stateful_set, "status")
    template = stateful_set["spec"]["template"]
    kafka = section(container_of(stateful_set, container))
    return StatefulSetState(
        name=metadata["name"],
        uid=metadata["uid"],
        replicas=stateful_set["spec"].get("replicas", 1),
        update_strategy=section(stateful_set, "spec", "updateStrategy").get("type", ""),
        configuration=section(template, "metadata", "annotations").get(ANNOTATION_CONFIGURATION, ""),
        update_revision=status.get("updateRevision", ""),
        observed=is_observed(stateful_set),
        lock=metadata.get("annotations", {}).get(ANNOTATION_LOCK, ""),
        container_found=True,
        settings={},
        unreadable_settings=frozenset(),
        java_tool_options="",
        volumes=frozenset(volume["name"] for volume in entries(template, "spec", "volumes")),
        drift=(),
        pods=pods_of(stateful_set, pods),
        deleting="deletionTimestamp" in metadata,
        image=kafka.get("image", ""),
        mounts=mounts_of(stateful_set, container),
        writes_to_zookeeper=writes_to_zookeeper(environment_of(kafka)),
        last_writer=last_writer(stateful_set),
        generation=metadata.get("generation", 0),
    )


def brokers_state(
    spec: MigrationSpec,
    stateful_set: Object,
    pods: Sequence[Object],
    before: overlays.BrokerFacts,
    drift: tuple[str, ...],
    references: frozenset[str],
) -> StatefulSetState:
    """Return the observed state of a StatefulSet of brokers; ``before`` contains the user's own settings."""
    container = spec.brokers.container
    hosts = [address.rpartition(":")[0] or address for address in spec.zookeeper_hosts.split(",")]
    needing = {p["metadata"]["name"]: zookeeper_needs(section(p, "spec"), container, hosts) for p in pods}
    return replace(
        own_state(stateful_set, pods, spec.brokers.container),
        container_found=container_of(stateful_set, spec.brokers.container) is not None,
        settings=before.settings,
        unreadable_settings=references,
        java_tool_options=before.java_tool_options,
        drift=drift,
        properties_from="" if before.files is None else f"{before.files.kind}/{before.files.name}",
        issued_secret=before.issued_secret,
        zookeeper_needs=zookeeper_needs(stateful_set["spec"]["template"]["spec"], container, hosts),
        pods_needing_zookeeper={
            name: tuple(need.part for need in needs) for name, needs in sorted(needing.items()) if needs
        },
    )


LOGS_EVERY_SECONDS: Final = 15.0
LOG_LINES: Final = 400
LOGS_SINCE_SECONDS: Final = 180
"""The migration driver repeats its waiting message at least once a minute (backoff of ``KRaftMigrationDriver``)."""
MOST_PODS: Final = 8

START_EVERY_SECONDS: Final = 5.0
OF_KAFKA: Final = re.compile(
    r"\bkafka\.(?:cluster|controller|coordinator|log|network|raft|server|utils|zk|zookeeper)\.|\borg\.apache\.kafka\."
    r"|\bstate\.change\.logger\b"
)
"""Loggers, which every layout of Kafka's and of the known images prints.

All lines at the end of a start may be of ``state.change.logger``: a broker in migration mode writes one for each
partition, and Bitnami's images print them.
"""
_LOADING: Final = re.compile(
    r"\[LogLoader |Loading producer state |Loading logs from |Attempting recovery |Recovering \d+ logs "
    r"|Skipping recovery of \d+ logs "
    r"|Completed load of "
)
"""Words of ``LogManager.loadLogs``, ``LogLoader`` and ``ProducerStateManager`` in Kafka 3.9."""
UNCLEAN: Final = re.compile(
    r"(?:Recovering [1-9]\d* logs from|Attempting recovery for all logs in) .+ since no clean shutdown file was found"
)
"""Line of ``LogManager.loadLogs``, since Kafka 2.8 and before."""
CLEAN: Final = re.compile(
    r"Skipping recovery (?:of \d+ logs from|for all logs in) .+ since clean shutdown file was found"
    r"|No logs found to be loaded in |Recovering 0 logs from "
)
"""The same of a broker that closed its logs, or has none."""
_BEGIN_BYTES: Final = 256 << 10
"""A start prints its settings and then this line; what follows may be long."""
_MOST_WORDS: Final = 300

Clues = Mapping[str, tuple[Clue, ...]]


class LogReader:
    """Reads logs of controllers, and of brokers that are down or restarting. Results are cached for some seconds."""

    def __init__(self, kubernetes: ReadPort) -> None:
        self._kubernetes = kubernetes
        self._clues: Answers[str, Clues] = Answers()
        self._starts: Answers[str, StartLog] = Answers()

    def clues(
        self,
        migration: Migration,
        sets: tuple[StatefulSetState | Unobserved, ...],
        controllers: ControllersWorkload | Unobserved,
    ) -> Clues:
        """Return the clues in the nodes' logs, by node.

        Raises
        ------
        ObservationError
            No log could be read.
        """
        nodes = _nodes(migration.spec, migration.status, sets, controllers)[:MOST_PODS]
        return self._clues.get(
            migration.identity.uid, LOGS_EVERY_SECONDS, lambda: self._read_clues(migration.identity.namespace, nodes)
        )

    def _read_clues(self, namespace: str, nodes: Sequence[tuple[str, PodState, str]]) -> Clues:
        clues: dict[str, tuple[Clue, ...]] = {}
        failures: list[ObservationError] = []
        for node, pod, container in nodes:
            try:
                in_log = clues_in(self._log(namespace, pod, container))
            except ObservationError as error:
                failures.append(error)
                continue
            if in_log:
                clues[node] = in_log
        if nodes and len(failures) == len(nodes):
            raise failures[-1]
        return clues

    def start(
        self,
        migration: Migration,
        sets: tuple[StatefulSetState | Unobserved, ...],
    ) -> StartLog:
        """Return what the log of the broker that status watches says about its start.

        Raises
        ------
        ObservationError
            The pod is gone, or its node; or its log cannot be read or holds no line of Kafka's.
        """
        watched = migration.status.watched_start
        pod = _starting(migration.status, _pods(sets))
        if pod is None and watched is None:
            return StartLog("")  # the pod of the broker that is restarted is still the old one
        if pod is None:
            raise ObservationError("log of the broker that starts", "its pod is not as status names it")
        if pod.problem is PodProblem.NODE_LOST:
            raise ObservationError(f"log of pod {pod.name}", pod.trouble)  # as in `_nodes`
        namespace = migration.identity.namespace
        container = migration.spec.brokers.container
        operation = migration.status.operation

        def read() -> StartLog:
            log = self._kubernetes.pod_logs(namespace, pod.name, container, LOG_LINES)
            text = "\n".join(bounds.lines(log or ""))
            if watched is not None and not OF_KAFKA.search(text):
                raise ObservationError(f"log of pod {pod.name}", "Kafka's log is not in it")
            loading = list(filter(_LOADING.search, text.splitlines()))
            recovery = loading[-1].strip()[:_MOST_WORDS] if loading else ""
            if operation is None or not pod.replaces(operation):
                return StartLog(pod.process, recovery)
            if operation.unclean_start or operation.clean_start:
                return StartLog(pod.process, recovery, operation.unclean_start, clean=operation.clean_start)
            log = self._kubernetes.pod_logs(namespace, pod.name, container, None, limit_bytes=_BEGIN_BYTES)
            begin = "\n".join(bounds.lines(log or ""))
            unclean = UNCLEAN.search(begin) or UNCLEAN.search(text)
            clean = CLEAN.search(begin) or CLEAN.search(text)
            return StartLog(
                pod.process,
                recovery,
                unclean[0] if unclean else "",
                clean=clean is not None,
                whole=operation.back_process == pod.process,
            )

        # An answer from before the broker was back does not say what its log holds now.
        asked = (pod.process, operation is not None and operation.back_process == pod.process)
        return self._starts.get(migration.identity.uid, START_EVERY_SECONDS, read, asked=asked)

    def _log(self, namespace: str, pod: PodState, container: str) -> str:
        lately = self._kubernetes.pod_logs(namespace, pod.name, container, LOG_LINES, since_seconds=LOGS_SINCE_SECONDS)
        if pod.ready or pod.problem is None or not pod.problem.repeats:
            return lately or ""
        return self._kubernetes.pod_logs(namespace, pod.name, container, LOG_LINES, previous=True) or lately or ""


def _starting(status: MigrationStatus, pods: Sequence[PodState]) -> PodState | None:
    """Return the broker's pod whose start is followed: the one that status watches, or the one that is restarted."""
    watched = status.watched_start
    operation = status.operation
    if watched is not None:
        return next((pod for pod in pods if pod.process == watched.process), None)
    if operation is None:
        return None
    return next((pod for pod in pods if pod.replaces(operation)), None)


def _pods(sets: Sequence[StatefulSetState | Unobserved]) -> list[PodState]:
    return [pod for item in sets if isinstance(item, StatefulSetState) for pod in item.pods]


def _nodes(
    spec: MigrationSpec,
    status: MigrationStatus,
    sets: tuple[StatefulSetState | Unobserved, ...],
    controllers: ControllersWorkload | Unobserved,
) -> list[tuple[str, PodState, str]]:
    """Return the nodes whose logs are useful, with the container; nodes that are down come first.

    The API server waits for seconds for each log on a machine that does not answer, and tells nothing of it.
    """
    nodes = []
    if isinstance(controllers, ControllersWorkload) and controllers.stateful_set is not None:
        nodes += [(f"controller {pod.ordinal}", pod, KAFKA_CONTAINER) for pod in controllers.stateful_set.pods]
    operating = "" if status.operation is None else status.operation.pod
    for pod in _pods(sets):
        if not pod.ready or pod.name == operating:
            node = f"broker {status.broker_ids.get(pod.name, '?')} (pod {pod.name})"
            nodes.append((node, pod, spec.brokers.container))
    answering = [node for node in nodes if node[1].problem is not PodProblem.NODE_LOST]
    return sorted(answering, key=lambda n: n[1].ready)
