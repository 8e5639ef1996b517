"""Converts Kubernetes objects into the observation's types."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from kraftbridge.builders import brokers as overlays
from kraftbridge.builders.bitnami import writes_to_zookeeper
from kraftbridge.builders.brokers import parse_properties
from kraftbridge.builders.controllers import KAFKA_CONTAINER
from kraftbridge.constants import ANNOTATION_CONFIGURATION, ANNOTATION_LOCK, FIELD_MANAGER
from kraftbridge.dry_start import image_digest
from kraftbridge.exceptions import ObservationError
from kraftbridge.models.mounted_files import mounted_object
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
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.models.status import MigrationStatus
from kraftbridge.phases.draft import Identity
from kraftbridge.storage.ports import KubernetesPort

Object = Mapping[str, Any]

_FATAL_WAITS = frozenset(
    {
        "ImagePullBackOff",
        "ErrImagePull",
        "ErrImageNeverPull",
        "InvalidImageName",
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    }
)


def pod_state(pod: Object) -> PodState:
    """Return the observed state of a pod."""
    metadata = pod["metadata"]
    status = pod.get("status", {})
    conditions = {c["type"]: c for c in status.get("conditions", [])}
    ready = conditions.get("Ready", {})
    index = metadata.get("labels", {}).get("apps.kubernetes.io/pod-index") or metadata["name"].rpartition("-")[2]
    return PodState(
        name=metadata["name"],
        uid=metadata["uid"],
        ordinal=int(index) if str(index).isdigit() else -1,
        ready=ready.get("status") == "True",
        ready_since=datetime.fromisoformat(ready["lastTransitionTime"]) if ready.get("status") == "True" else None,
        deleting="deletionTimestamp" in metadata,
        configuration=metadata.get("annotations", {}).get(ANNOTATION_CONFIGURATION, ""),
        revision=metadata.get("labels", {}).get("controller-revision-hash", ""),
        ip=status.get("podIP", ""),
        trouble=pod_trouble(pod),
        running_since=_running_since(status.get("containerStatuses", [])),
        images=_images(status),
    )


def _images(status: Object) -> frozenset[tuple[str, str]]:
    containers = (*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or []))
    digests = ((c["name"], image_digest(c.get("imageID") or "")) for c in containers)
    return frozenset((name, digest) for name, digest in digests if digest)


def _running_since(containers: Sequence[Object]) -> datetime | None:
    started = [c.get("state", {}).get("running", {}).get("startedAt") for c in containers]
    return max(datetime.fromisoformat(s) for s in started) if started and all(started) else None


def pod_trouble(pod: Object) -> str:
    """Return the reason why a pod does not run; ``""`` if Kubernetes reports no problem."""
    status = pod.get("status", {})
    for condition in status.get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return f"{condition.get('reason', 'Unschedulable')}: {condition.get('message', '')}"[:200]
    for container in (*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])):
        waiting = container.get("state", {}).get("waiting", {})
        if waiting.get("reason") in _FATAL_WAITS:
            last = container.get("lastState", {}).get("terminated", {})
            ended = (
                f", last exit code {last['exitCode']}{_last_words(last.get('message', ''))}"
                if "exitCode" in last
                else ""
            )
            return f"{waiting['reason']} of container {container['name']}: {waiting.get('message', '')}"[:200] + ended
    return ""


def _last_words(log: str) -> str:
    """Return the line at a log's end that explains why a process ended: a Java exception, otherwise the last line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    # The cause is deeper in a stack trace than the exceptions that it led to.
    telling = [line for line in lines if "Exception: " in line or "Error: " in line or "No space left" in line]
    words = (telling or lines or [""])[-1]
    return f": {words[:160]}" if words else ""


def pods_selector(stateful_set: Object) -> str:
    """Return a StatefulSet's selector in the syntax of API requests.

    All labels and expressions must match (``LabelSelector``).
    """
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
    """Return the pods that this StatefulSet owns, by ordinal."""
    uid = stateful_set["metadata"]["uid"]
    mine = [p for p in pods if any(r.get("uid") == uid for r in p["metadata"].get("ownerReferences", []))]
    return tuple(sorted((pod_state(p) for p in mine), key=lambda p: p.ordinal))


def container_of(stateful_set: Object, name: str) -> Object | None:
    """Return a container of the pod template."""
    containers = stateful_set["spec"]["template"]["spec"].get("containers", [])
    return next((c for c in containers if c["name"] == name), None)


def environment_of(container: Object) -> dict[str, str]:
    """Return the variables with plain values."""
    return {e["name"]: e.get("value", "") for e in container.get("env", []) if "valueFrom" not in e}


def drift_of(spec: MigrationSpec, facts: overlays.BrokerFacts, stateful_set: Object) -> tuple[str, ...]:
    """Return the operator's fields in a StatefulSet that have another value."""
    template = stateful_set["spec"]["template"]
    annotation = template["metadata"].get("annotations", {}).get(ANNOTATION_CONFIGURATION, "")
    mode = BrokerMode.of(annotation)
    container = container_of(stateful_set, spec.brokers.container)
    if mode is BrokerMode.ZOOKEEPER or container is None:
        return ()
    wanted = overlays.environment(spec, facts, mode)
    present = environment_of(container)
    lost = [f"env {k}" for k, v in wanted.items() if present.get(k) != v]
    if annotation != overlays.configuration(spec, facts, mode):
        lost.append(f"annotation {ANNOTATION_CONFIGURATION}")
    ours = overlays.overlay(spec, facts, stateful_set["metadata"]["name"], mode)["spec"]["template"]["spec"].get(
        "volumes", []
    )
    present_volumes = template["spec"].get("volumes") or []
    lost += [
        f"volume {v['name']}"
        for v in ours
        if mounted_object(present_volumes, v["name"]) != mounted_object(ours, v["name"])
    ]
    if facts.issued_secret and overlays.ISSUED_DIRECTORY not in _mount_paths(container):
        lost.append(f"mount {overlays.ISSUED_DIRECTORY}")
    return tuple(lost)


def _mount_paths(container: Object) -> frozenset[str]:
    return frozenset(m["mountPath"] for m in container.get("volumeMounts") or [])


def last_writer(obj: Object) -> str:
    """Return the last writer of an object's fields besides the operator, and the time, from ``managedFields``.

    It is ``""`` if none is recorded.
    """
    entries = [
        e
        for e in obj["metadata"].get("managedFields") or []
        if e.get("manager") != FIELD_MANAGER and not e.get("subresource") and e.get("time")
    ]
    last = max(entries, key=lambda e: str(e["time"]), default=None)
    return (
        ""
        if last is None
        else f"{last.get('manager', 'unknown')} ({last.get('operation', 'Update')} at {last['time']})"
    )


def mounted_config_map(stateful_set: Object) -> str:
    """Return the name of the ConfigMap that the controllers' template mounts as their configuration."""
    volumes = stateful_set["spec"]["template"]["spec"].get("volumes", [])
    return next((str(v.get("configMap", {}).get("name", "")) for v in volumes if v["name"] == "config"), "")


def migration_flag(config_map: Object | None) -> bool | None:
    """Return the migration flag in the controllers' ConfigMap; None if it cannot be read."""
    text = ((config_map or {}).get("data") or {}).get("controller.properties")
    if text is None:
        return None
    return parse_properties(text).get("zookeeper.metadata.migration.enable", "false").strip().lower() == "true"


def written_by(config_map: Object | None) -> str:
    """Return a ConfigMap's name and its last writer besides the operator, for a message."""
    if config_map is None:
        return ""
    writer = last_writer(config_map)
    return f" {config_map['metadata']['name']}" + (f" (last written by {writer})" if writer else "")


def foreign_changes(
    spec: MigrationSpec, was: Object, volumes_before: Sequence[Object], ours: Collection[str], stateful_set: Object
) -> tuple[str, ...]:
    """Return the changes in the user's part of the template since it was recorded: image, environment, volumes.

    Parameters
    ----------
    was
        The recorded Kafka container.
    ours
        Variables that the migration sets; `drift_of` reports those.
    """
    container = container_of(stateful_set, spec.brokers.container)
    if container is None:
        return (f"container {spec.brokers.container} is gone",)
    changed = []
    if (image := container.get("image", "")) != was.get("image", ""):
        changed.append(f"image {was.get('image', '')} became {image}")
    before, now = ({e["name"]: e for e in c.get("env", []) if e["name"] not in ours} for c in (was, container))
    changed += [f"env {name}" for name in sorted(before.keys() | now.keys()) if before.get(name) != now.get(name)]
    mounted = None if (source := spec.brokers.file) is None else source.volume
    present = {v["name"]: v for v in stateful_set["spec"]["template"]["spec"].get("volumes", [])}
    former = {v["name"]: v for v in volumes_before}
    changed += [
        f"volume {name}"
        for name in sorted(former.keys() | present.keys() - {overlays.ISSUED_VOLUME})
        if name != mounted and former.get(name) != present.get(name)
    ]
    return tuple(changed)


def own_state(stateful_set: Object, pods: Sequence[Object], container: str) -> StatefulSetState:
    """Return the observed state of any StatefulSet: pods, revision, configuration, lock, image of Kafka's container."""
    metadata = stateful_set["metadata"]
    status = stateful_set.get("status", {})
    template = stateful_set["spec"]["template"]
    return StatefulSetState(
        name=metadata["name"],
        uid=metadata["uid"],
        replicas=stateful_set["spec"].get("replicas", 1),
        update_strategy=stateful_set["spec"].get("updateStrategy", {}).get("type", ""),
        configuration=template["metadata"].get("annotations", {}).get(ANNOTATION_CONFIGURATION, ""),
        update_revision=status.get("updateRevision", ""),
        observed=status.get("observedGeneration", 0) >= metadata.get("generation", 0),
        lock=metadata.get("annotations", {}).get(ANNOTATION_LOCK, ""),
        container_found=True,
        settings={},
        unreadable_settings=frozenset(),
        java_tool_options="",
        volumes=frozenset(v["name"] for v in template["spec"].get("volumes", [])),
        drift=(),
        pods=pods_of(stateful_set, pods),
        deleting="deletionTimestamp" in metadata,
        image=(container_of(stateful_set, container) or {}).get("image", ""),
        writes_to_zookeeper=writes_to_zookeeper(environment_of(container_of(stateful_set, container) or {})),
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
    return replace(
        own_state(stateful_set, pods, spec.brokers.container),
        container_found=container_of(stateful_set, spec.brokers.container) is not None,
        settings=before.settings,
        unreadable_settings=references,
        java_tool_options=before.java_tool_options,
        drift=drift,
        properties_from="" if before.files is None else f"{before.files.kind}/{before.files.name}",
        issued_secret=before.issued_secret,
    )


LOGS_EVERY_SECONDS: Final = 15.0
LOG_LINES: Final = 400
LOGS_SINCE_SECONDS: Final = 180
"""The migration driver repeats its waiting message at least once a minute (backoff of ``KRaftMigrationDriver``)."""
MOST_PODS: Final = 8

START_EVERY_SECONDS: Final = 5.0
_OF_KAFKA: Final = re.compile(
    r"\bkafka\.(?:cluster|controller|coordinator|log|network|raft|server|utils|zk|zookeeper)\.|\borg\.apache\.kafka\."
)
"""Classes that log, which every layout of Kafka's and of the known images prints."""
_LOADING: Final = re.compile(
    r"\[LogLoader |Loading producer state |Loading logs from |Attempting recovery |Recovering \d+ logs "
    r"|Skipping recovery of \d+ logs "
    r"|Completed load of "
)
"""Words of ``LogManager.loadLogs``, ``LogLoader`` and ``ProducerStateManager`` in Kafka 3.9."""
_MOST_WORDS: Final = 300

Clues = Mapping[str, tuple[Clue, ...]]


class LogReader:
    """Reads logs of controllers, and of brokers that are down or restarting. Results are cached for some seconds."""

    def __init__(self, kubernetes: KubernetesPort) -> None:
        self._kubernetes = kubernetes
        self._known: dict[str, tuple[float, Clues]] = {}
        self._starts: dict[str, tuple[float, StartLog]] = {}

    def clues(
        self,
        identity: Identity,
        spec: MigrationSpec,
        status: MigrationStatus,
        sets: tuple[StatefulSetState | Unobserved, ...],
        controllers: ControllersWorkload | Unobserved,
    ) -> Clues:
        """Return the clues in the nodes' logs, by node.

        Raises
        ------
        ObservationError
            No log could be read.
        """
        known = self._known.get(identity.uid)
        if known is not None and time.monotonic() - known[0] < LOGS_EVERY_SECONDS:
            return known[1]
        found: dict[str, tuple[Clue, ...]] = {}
        error: ObservationError | None = None
        read = False
        for node, pod, container in _nodes(spec, status, sets, controllers)[:MOST_PODS]:
            try:
                text = self._log(identity.namespace, pod, container)
            except ObservationError as e:
                error = e
                continue
            read = True
            if clues := clues_in(text):
                found[node] = clues
        if error is not None and not read:
            raise error
        self._known[identity.uid] = (time.monotonic(), found)
        return found

    def start(
        self,
        identity: Identity,
        spec: MigrationSpec,
        status: MigrationStatus,
        sets: tuple[StatefulSetState | Unobserved, ...],
    ) -> StartLog:
        """Return what the log of the broker that status watches says about its start.

        Raises
        ------
        ObservationError
            The pod is gone, or its log cannot be read or holds no line of Kafka's.
        """
        watched = status.watched_start
        pods = [p for item in sets if isinstance(item, StatefulSetState) for p in item.pods]
        pod = next((p for p in pods if watched is not None and p.process == watched.process), None)
        if pod is None:
            raise ObservationError("log of the broker that starts", "its pod is not as status names it")
        known = self._starts.get(identity.uid)
        if known is not None and known[1].process == pod.process and time.monotonic() - known[0] < START_EVERY_SECONDS:
            return known[1]
        text = self._kubernetes.pod_logs(identity.namespace, pod.name, spec.brokers.container, LOG_LINES) or ""
        if not _OF_KAFKA.search(text):
            raise ObservationError(f"log of pod {pod.name}", "Kafka's log is not in it")
        found = StartLog(
            pod.process, next((_words(line) for line in reversed(text.splitlines()) if _LOADING.search(line)), "")
        )
        self._starts[identity.uid] = (time.monotonic(), found)
        return found

    def _log(self, namespace: str, pod: PodState, container: str) -> str:
        lately = self._kubernetes.pod_logs(namespace, pod.name, container, LOG_LINES, since_seconds=LOGS_SINCE_SECONDS)
        if pod.ready or "CrashLoop" not in pod.trouble:
            return lately or ""
        return self._kubernetes.pod_logs(namespace, pod.name, container, LOG_LINES, previous=True) or lately or ""


def _words(line: str) -> str:
    return line.strip()[:_MOST_WORDS]


def _nodes(
    spec: MigrationSpec,
    status: MigrationStatus,
    sets: tuple[StatefulSetState | Unobserved, ...],
    controllers: ControllersWorkload | Unobserved,
) -> list[tuple[str, PodState, str]]:
    """Return the nodes whose logs are useful, with the container; nodes that are down come first."""
    nodes = []
    if isinstance(controllers, ControllersWorkload) and controllers.stateful_set is not None:
        nodes += [(f"controller {p.ordinal}", p, KAFKA_CONTAINER) for p in controllers.stateful_set.pods]
    operating = status.operation.pod if status.operation is not None else ""
    for item in sets:
        if isinstance(item, StatefulSetState):
            nodes += [
                (f"broker {status.broker_ids.get(p.name, '?')} (pod {p.name})", p, spec.brokers.container)
                for p in item.pods
                if not p.ready or p.name == operating
            ]
    return sorted(nodes, key=lambda n: n[1].ready)
