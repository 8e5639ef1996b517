"""In-memory fakes of the operator's ports: an API server with its controllers, and a Kafka that its pods drive.

Good enough for our objects: resourceVersion and UID preconditions, field ownership of environment variables, volumes and annotations under
server-side apply, StatefulSets that recreate evicted pods, bound claims, verification jobs that answer as the real one does.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import itertools
import json
import marshal
import pickle
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from kraftbridge.builders.broker_overlays import setting_of
from kraftbridge.constants import API_VERSION, FIELD_MANAGER, KIND, LABEL_ROLE, LABEL_RUN, canary_topic
from kraftbridge.copies.dry_start import copies_for_kafka4, copies_of, described, likely_channels, other_channels
from kraftbridge.exceptions import ActionRefusedError, ConflictError, ObservationError
from kraftbridge.metadata.log.files import LocalLogFiles
from kraftbridge.models.assignments import Assignments
from kraftbridge.models.broker_record import (
    EffectiveSetting,
    ListenerState,
    OffsetsNow,
    PartitionOffsets,
    TopicPartition,
)
from kraftbridge.models.decision import Event, LaunchRun
from kraftbridge.models.dry_start import (
    ContainerImage,
    CopyKey,
    CopyOutcome,
    DryStartPlan,
    DryStartReport,
    DryStartRun,
    DryStartStage,
    FenceProof,
    GivenSetting,
    KafkaStart,
)
from kraftbridge.models.metadata_version import FEATURE, Upgrade, lowest_without_loss
from kraftbridge.models.observation import (
    BrokerZnode,
    ClusterState,
    ControllerMetrics,
    ControllerZnode,
    Endpoint,
    FeatureAnswer,
    KafkaSettings,
    MigrationZnode,
    NodeFeatures,
    QuorumState,
    TopicIds,
    TopicRedundancy,
    Unobserved,
    VoterState,
    ZooKeeperState,
)
from kraftbridge.models.phase import BrokerMode, ZkMigrationState
from kraftbridge.models.protocol import has_topic_ids
from kraftbridge.models.rehearsal import RESULT_MARK, Ending, Forecast, RehearsalResult, RehearsalVerdict
from kraftbridge.models.report import (
    GO_KEY,
    READY_KEY,
    REQUEST_KEY,
    VERDICT_KEY,
    Go,
    Ready,
    Verdict,
    VerdictSummary,
    VerificationRequest,
)
from kraftbridge.models.spec import BrokersSpec, MigrationSpec
from kraftbridge.models.status import DryStartRunStatus, DryStartStatus
from kraftbridge.models.survey import (
    AclEntry,
    BrokerSetting,
    LogDir,
    Right,
    SettingSource,
    Visibility,
    ZooKeeperAcls,
    ZooKeeperUsers,
)
from kraftbridge.outside.properties import parse_properties
from kraftbridge.phases import upgrading
from kraftbridge.phases.draft import Identity, Migration
from kraftbridge.services.clients import ClusterClients
from kraftbridge.services.dry_starts import RunAction
from kraftbridge.storage.ports import LOG_BYTES, KubernetesPort

Object = dict[str, Any]
FLAG = "zookeeper.metadata.migration.enable"
READ_VERBS = frozenset({"get", "list", "serves", "pod_logs", "may", "try_apply"})

_START_OF_KAFKA = (
    "INFO Skipping recovery of 5 logs from /data since clean shutdown file was found (kafka.log.LogManager)"
)
"""What the log of a broker says that ended by itself before."""


class Killed(BaseException):
    """The operator process ends here."""


@dataclass
class Clock:
    """A clock that tests move."""

    now: datetime = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += timedelta(seconds=seconds)


def _field(obj: Object, path: str) -> object:
    found: Any = obj
    for name in path.split("."):
        found = (found or {}).get(name)
    return found


class FakeKubernetes:
    """An API server with a StatefulSet controller; keeps to `kraftbridge.storage.ports.KubernetesPort`."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.objects: dict[tuple[str, str | None, str], Object] = {}
        self.served = {"SparkApplication"}
        self.logs: dict[str, str] = {}
        """By pod."""
        self.forbidden: set[str] = set()
        """Rights that we do not have, as `Right` is written."""
        self.events: list[Event] = []
        self.calls: list[tuple[str, str, str]] = []
        """Verb, kind and name of every call, in order."""
        self.before_call: Callable[[str, str, str], None] = lambda _verb, _kind, _name: None
        """Fault injection: may raise."""
        self.after_call: Callable[[str, str, str], None] = lambda _verb, _kind, _name: None
        self.on_change: Callable[[str, str, Object], None] = lambda _kind, _event, _obj: None
        """Told of every change: kind, ``ADDED`` and so on, object."""
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._foreign: dict[tuple[str, str | None, str], set[str]] = {}
        self._returned: dict[tuple[str, str | None, str], set[str]] = {}
        """Variables that were written back as somebody else's, and that no apply has set since."""
        """Environment variables that were there before anything was applied: somebody else's."""
        self._applied: dict[tuple[tuple[str, str | None, str], str], Object] = {}
        self._made: set[tuple[tuple[str, str | None, str], str]] = set()
        """Objects that an apply of this manager created: their entries are its own."""
        self._revisions: dict[str, tuple[Object, str]] = {}
        """Of each StatefulSet: its template, and the revision of that."""

    # -------------------------------------------------------------------------------------------- port

    def get(self, api_version: str, kind: str, namespace: str | None, name: str) -> Object | None:
        self._called("get", kind, name)
        found = self.objects.get((kind, namespace, name))
        return copied(found)

    def list(
        self, api_version: str, kind: str, namespace: str | None, label_selector: str = "", *, field_selector: str = ""
    ) -> tuple[Object, ...]:
        self._called("list", kind, label_selector)
        with self._lock:
            found = tuple(copied(o) for o in self._listed(kind, namespace, label_selector))
        wanted = dict(part.split("=", 1) for part in field_selector.split(",") if part)
        return tuple(o for o in found if all(_field(o, path) == value for path, value in wanted.items()))

    def pods(self, namespace: str | None, label_selector: str) -> tuple[Object, ...]:
        """Return pods for a fake's own eyes: not copied, so to be read only."""
        self._called("list", "Pod", label_selector)
        with self._lock:
            return self._listed("Pod", namespace, label_selector)

    def _listed(self, kind: str, namespace: str | None, label_selector: str) -> tuple[Object, ...]:
        wanted = dict(part.split("=", 1) for part in label_selector.split(",") if part)
        found = [
            (name, o)
            for (k, ns, name), o in self.objects.items()
            if k == kind and namespace in (None, ns) and wanted.items() <= o["metadata"].get("labels", {}).items()
        ]
        return tuple(o for _, o in sorted(found, key=lambda entry: entry[0]))

    def server_time(self) -> datetime | None:
        return self.clock.now

    def api_servers(self) -> tuple[str, ...]:
        return ("10.0.0.9:6443",)

    def serves(self, api_version: str, kind: str) -> bool:
        return kind in self.served

    def may(self, right: Right, namespace: str | None) -> bool:
        self._called("may", right.resource, right.verb)
        return str(right) not in self.forbidden

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
        self._called("pod_logs", container, pod)
        return self.logs.get(pod, _START_OF_KAFKA if container == "kafka" else None)

    def create(self, obj: Mapping[str, Any], *, field_manager: str = FIELD_MANAGER) -> Object:
        key = _key(obj)
        with self._writing("create", key):
            if key in self.objects:
                raise ConflictError(f"{key[0]} {key[2]} exists")
            self._store(key, _with_string_data(copied(dict(obj))))
        return copied(self.objects[key])

    def apply(self, obj: Mapping[str, Any], *, force: bool = False, field_manager: str = FIELD_MANAGER) -> Object:
        return self._apply(obj, field_manager)

    def apply_new(self, obj: Mapping[str, Any], *, force: bool = False, field_manager: str = FIELD_MANAGER) -> Object:
        key = _key(obj)
        exists: list[bool] = []
        made = self._apply(obj, field_manager, lambda: exists.append(key in self.objects))
        if exists[0]:
            raise ConflictError(f"{key[0]} {key[2]} exists already")
        return made

    def _apply(self, obj: Mapping[str, Any], field_manager: str, look: Callable[[], None] = lambda: None) -> Object:
        key, wanted = _key(obj), copied(dict(obj))
        with self._writing("apply", key):
            look()
            version = wanted["metadata"].pop("resourceVersion", None)
            if version is not None:
                self._at_version(key, version)
            wanted["metadata"].pop("uid", None)
            live = copied(self.objects.get(key, {}))
            before = self._applied.get((key, field_manager), {})
            merged = _merged(live, wanted)
            foreign = self._foreign.setdefault(
                key,
                {
                    n
                    for c in _template(live).get("spec", {}).get("containers", [])
                    for n in _env(_template(live), c["name"])
                },
            )
            returned = self._returned.setdefault(key, set())
            for container in _template(wanted).get("spec", {}).get("containers", []):
                returned -= _env(_template(wanted), container["name"]).keys()
            if not live:
                self._made.add((key, field_manager))
            if (key, field_manager) in self._made:
                _drop_entries(merged, before, wanted)
            _drop_unowned(merged, before, wanted, foreign, returned)
            self._applied[key, field_manager] = wanted
            self._store(key, merged)
        return copied(self.objects[key])

    def try_apply(self, obj: Mapping[str, Any]) -> None:
        """Accept everything and store nothing; ``before_call`` refuses."""
        self._called("try_apply", obj["kind"], obj["metadata"]["name"])

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
        key = (kind, namespace, name)
        with self._writing("merge_patch", key):
            live = self._at_version(key, resource_version)
            self._store(key, _json_merged(live, patch))
        return copied(self.objects[key])

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
        key = (kind, namespace, name)
        with self._writing("strategic_patch", key):
            containers = _template(dict(patch)).get("spec", {}).get("containers", [])
            self._returned.setdefault(key, set()).update(e["name"] for c in containers for e in c.get("env", []))
            self._store(key, _merged(self._at_version(key, resource_version), _without_directives(patch)))
        return copied(self.objects[key])

    def replace_status(
        self, api_version: str, kind: str, namespace: str, name: str, status: Mapping[str, Any], resource_version: str
    ) -> Object:
        key = (kind, namespace, name)
        with self._writing("replace_status", key):
            live = self._at_version(key, resource_version)
            live["status"] = json.loads(json.dumps(status))
            self._store(key, live)
        return copied(self.objects[key])

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
        key = (kind, namespace, name)
        with self._writing("delete", key):
            live = self.objects.get(key)
            if live is None or uid not in (None, live["metadata"]["uid"]):
                return
            self._at_version(key, resource_version)
            gone = self.objects.pop(key, None)
            self._applied = {k: v for k, v in self._applied.items() if k[0] != key}
            if gone is not None:
                self.on_change(kind, "DELETED", gone)
                owned = [k for k, o in self.objects.items() if gone["metadata"]["uid"] in _owners(o)]
                for k in owned:
                    del self.objects[k]

    def evict(self, namespace: str, pod: str, uid: str, grace_seconds: int) -> None:
        key = ("Pod", namespace, pod)
        with self._writing("evict", key):
            live = self.objects.get(key)
            if live is None:
                return
            if live["metadata"]["uid"] != uid:
                raise ConflictError(f"pod {pod} has another UID")
            del self.objects[key]

    def create_event(self, regarding: Mapping[str, Any], event: Event) -> None:
        self.events.append(event)

    # -------------------------------------------------------------------------------------- machinery

    def _called(self, verb: str, kind: str, name: str) -> None:
        self.calls.append((verb, kind, name))
        self.before_call(verb, kind, name)

    def _writing(self, verb: str, key: tuple[str, str | None, str]) -> _Writing:
        return _Writing(self, verb, key)

    def _at_version(self, key: tuple[str, str | None, str], version: str | None) -> Object:
        live = self.objects.get(key)
        if live is None:
            raise ConflictError(f"{key[0]} {key[2]} does not exist")
        if version is not None and live["metadata"]["resourceVersion"] != version:
            raise ConflictError(f"{key[0]} {key[2]} changed since it was read")
        return copied(live)

    def _store(self, key: tuple[str, str | None, str], obj: Object) -> None:
        former = self.objects.get(key)
        _refuse_change_of_immutable(key[2], former, obj)
        metadata = obj.setdefault("metadata", {})
        metadata.setdefault("uid", f"{next(self._numbers):08x}-0000-4000-8000-000000000000")
        metadata["resourceVersion"] = str(next(self._numbers))
        if former is None or former.get("spec") != obj.get("spec"):
            metadata["generation"] = (former or {}).get("metadata", {}).get("generation", 0) + 1
        self.objects[key] = obj
        self.on_change(key[0], "ADDED" if former is None else "MODIFIED", obj)

    def settle(self) -> None:
        """Run the built-in controllers once: create pods, revisions, claims and verification jobs."""
        for (kind, namespace, name), obj in list(self.objects.items()):
            if kind == "StatefulSet":
                self._settle_stateful_set(namespace, name, obj)
            elif kind == "Job" and obj["metadata"]["labels"].get(LABEL_ROLE) == "rehearsal":
                self._settle_rehearsal(namespace, name, obj)
            elif kind == "ConfigMap" and REQUEST_KEY in obj.get("data", {}):
                self._settle_verification(obj)

    rehearsal: RehearsalVerdict = RehearsalVerdict.WORKS

    def _settle_rehearsal(self, namespace: str | None, name: str, job: Object) -> None:
        """Let the rehearsal's pod take one step: it reads the tree, and starts Kafka only where a NetworkPolicy selects it."""
        key = ("Pod", namespace, f"{name}-x7k2p")
        pod = self.objects.get(key)
        ended = {"terminated": {"exitCode": 0}}
        if pod is None:
            template = copied(job["spec"]["template"])
            owners = [{"uid": job["metadata"]["uid"]}]
            metadata = {**template["metadata"], "name": key[2], "namespace": namespace, "ownerReferences": owners}
            self._store(key, {"metadata": metadata, "spec": template["spec"], "status": {}})
        elif not pod["status"]:
            pod["status"] = {"initContainerStatuses": [{"name": "read", "state": ended}]}
        elif any(
            k == "NetworkPolicy"
            and o["spec"]["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
            and o["spec"].get("egress") == []
            for (k, _, _), o in self.objects.items()
        ):
            pod["status"]["containerStatuses"] = [{"name": "rehearsal", "state": ended}]
            result = RehearsalResult(
                verdict=self.rehearsal,
                reason="as it is",
                ending=Ending.DUAL_WRITE,
                forecast=Forecast(
                    copy_seconds=1.0, no_controller_seconds=2.0, minimum_batch_size=2000, heap_bytes=832 << 20
                ),
                started_at=self.clock.now,
                finished_at=self.clock.now,
            )
            packed = base64.b64encode(gzip.compress(result.to_json().encode())).decode()
            self.logs[key[2]] = f"INFO Kafka starts\n{RESULT_MARK}{packed}\n"

    def _settle_stateful_set(self, namespace: str | None, name: str, obj: Object) -> None:
        spec, template = obj["spec"], obj["spec"]["template"]
        former = self._revisions.get(name)
        if former is None or former[0] != template:
            digest = hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()
            self._revisions[name] = former = (copied(template), digest[:8])
        revision = former[1]
        obj["status"] = {"updateRevision": revision, "observedGeneration": obj["metadata"]["generation"]}
        start = spec.get("ordinals", {}).get("start", 0)
        for ordinal in range(start, start + spec.get("replicas", 1)):
            key = ("Pod", namespace, f"{name}-{ordinal}")
            pod = self.objects.get(key)
            outdated = pod is not None and pod["metadata"]["labels"]["controller-revision-hash"] != revision
            if outdated and spec.get("updateStrategy", {}).get("type") == "RollingUpdate":
                pod = None
            if pod is None:
                self._store(key, self._pod(obj, key, ordinal, revision))
            for claim in spec.get("volumeClaimTemplates", []):
                claim_key = ("PersistentVolumeClaim", namespace, f"{claim['metadata']['name']}-{name}-{ordinal}")
                if claim_key not in self.objects:
                    labels = claim["metadata"].get("labels", {})
                    metadata = {"name": claim_key[2], "namespace": namespace, "labels": labels}
                    self._store(claim_key, {"metadata": metadata, "status": {"phase": "Bound"}})

    def _pod(self, owner: Object, key: tuple[str, str | None, str], ordinal: int, revision: str) -> Object:
        template = copied(owner["spec"]["template"])
        ready_since = self.clock.now.isoformat().replace("+00:00", "Z")
        labels = {
            **template["metadata"].get("labels", {}),
            "controller-revision-hash": revision,
            "apps.kubernetes.io/pod-index": str(ordinal),
        }
        return {
            "metadata": {
                "name": key[2],
                "namespace": key[1],
                "labels": labels,
                "annotations": dict(template["metadata"].get("annotations", {})),
                "ownerReferences": [{"uid": owner["metadata"]["uid"]}],
            },
            "spec": template["spec"],
            "status": {
                "podIP": f"10.0.{ordinal // 250}.{ordinal % 250}",
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": ready_since}],
            },
        }

    verdict: Verdict = Verdict.CONSISTENT
    verifier_trouble: Object | None = None
    """What the driver's container waits for, as the kubelet says it."""

    def _settle_verification(self, config_map: Object) -> None:
        data = config_map["data"]
        if self.verifier_trouble is None and {READY_KEY, VERDICT_KEY} <= data.keys():
            return
        request = VerificationRequest.model_validate_json(data[REQUEST_KEY])
        namespace = config_map["metadata"]["namespace"]
        if not any((k, namespace, request.run_id) in self.objects for k in ("SparkApplication", "Job")):
            return
        if self.verifier_trouble is not None:
            key = ("Pod", namespace, f"{request.run_id}-driver")
            waiting = [{"name": "driver", "state": {"waiting": self.verifier_trouble}}]
            labels = {LABEL_RUN: request.run_id}
            if key not in self.objects:
                pod = {"metadata": {"name": key[2], "namespace": namespace, "labels": labels}}
                self._store(key, pod | {"status": {"containerStatuses": waiting}})
            return
        data.setdefault(READY_KEY, Ready(run_id=request.run_id, at=self.clock.now).to_json())
        if GO_KEY in data and Go.model_validate_json(data[GO_KEY]).run_id == request.run_id and VERDICT_KEY not in data:
            data[VERDICT_KEY] = VerdictSummary(
                run_id=request.run_id,
                migration_uid=request.migration_uid,
                generation=request.generation,
                phase=request.phase,
                profile=request.profile,
                verdict=self.verdict,
                reason="as told",
                compared=53,
                started_at=self.clock.now,
                finished_at=self.clock.now,
            ).to_json()


@dataclass
class _Writing:
    """Wraps each write: faults before it, controllers after it, faults after it."""

    kubernetes: FakeKubernetes
    verb: str
    key: tuple[str, str | None, str]

    def __enter__(self) -> None:
        self.kubernetes._called(self.verb, self.key[0], self.key[2])
        self.kubernetes._lock.acquire()

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self.kubernetes.settle()
        finally:
            self.kubernetes._lock.release()
        if kind is None:
            self.kubernetes.after_call(self.verb, self.key[0], self.key[2])


def _key(obj: Mapping[str, Any]) -> tuple[str, str | None, str]:
    return (obj["kind"], obj["metadata"].get("namespace"), obj["metadata"]["name"])


def _refuse_change_of_immutable(name: str, former: Object | None, obj: Object) -> None:
    """Refuse what ``ValidateConfigMapUpdate`` of the API server refuses."""
    if former is None or not former.get("immutable"):
        return
    changed = [key for key in ("immutable", "data", "binaryData") if former.get(key) != obj.get(key)]
    if changed:
        raise ActionRefusedError(f"{name}: {changed[0]}: Forbidden: field is immutable when `immutable` is set")


def _owners(obj: Object) -> set[str]:
    return {r["uid"] for r in obj["metadata"].get("ownerReferences", [])}


def _with_string_data(obj: Object) -> Object:
    for name, value in obj.pop("stringData", {}).items():
        obj.setdefault("data", {})[name] = base64.b64encode(value.encode()).decode()
    return obj


def copied(value: Any) -> Any:
    """Return a copy of an object of Kubernetes; eight times as fast as ``copy.deepcopy``, which took a fifth of a step."""
    try:
        return marshal.loads(marshal.dumps(value))
    except ValueError:  # not of JSON's own types alone, such as an enum
        return pickle.loads(pickle.dumps(value))


def _merged(live: Any, wanted: Any) -> Any:
    """Return a strategic merge: maps merge by key and lists of named items by name; other values are replaced."""
    if isinstance(live, dict) and isinstance(wanted, dict):
        if "configMap" in wanted or "secret" in wanted:
            return wanted
        return {**live, **{k: _merged(live.get(k), v) for k, v in wanted.items()}}
    if (
        isinstance(live, list)
        and isinstance(wanted, list)
        and all(isinstance(i, dict) and "name" in i for i in [*live, *wanted])
    ):
        by_name = {i["name"]: i for i in live}
        by_name |= {i["name"]: _merged(by_name.get(i["name"], {}), i) for i in wanted}
        return list(by_name.values())
    return copied(wanted)


def _without_directives(patch: Any) -> Any:
    """Return a strategic patch without what it says of the order of lists."""
    if isinstance(patch, Mapping):
        return {k: _without_directives(v) for k, v in patch.items() if not k.startswith("$setElementOrder")}
    return [_without_directives(each) for each in patch] if isinstance(patch, list) else patch


def _json_merged(live: Any, patch: Mapping[str, Any]) -> Any:
    result = dict(live) if isinstance(live, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping):
            result[key] = _json_merged(result.get(key), value)
        else:
            result[key] = value
    return result


def _drop_unowned(merged: Object, before: Object, wanted: Object, foreign: set[str], returned: set[str]) -> None:
    """Remove what this manager applied before and no longer does; a value that it had forced on others' entries stays blank (measured)."""
    old, new = _template(before), _template(wanted)
    template = _template(merged)
    for name in set(old.get("metadata", {}).get("annotations", {})) - set(
        new.get("metadata", {}).get("annotations", {})
    ):
        template.get("metadata", {}).get("annotations", {}).pop(name, None)
    for container in template.get("spec", {}).get("containers", []):
        ours, kept = _env(old, container["name"]), _env(new, container["name"])
        left = []
        for entry in container.get("env", []):
            name = entry["name"]
            if name not in ours or name in kept or name in returned:
                left.append(entry)
            elif name in foreign:
                left.append({"name": name} if entry.get("value") == ours[name] else entry)
        container["env"] = left


def _drop_entries(merged: Object, before: Object, wanted: Object) -> None:
    """Remove the named entries of lists in an object of our own that are not applied any more: containers, volumes, mounts, ports."""
    for key, value in before.items():
        left, kept = merged.get(key), wanted.get(key)
        if isinstance(value, dict) and isinstance(left, dict):
            _drop_entries(left, value, kept if isinstance(kept, dict) else {})
        elif key != "env" and _is_named(value) and _is_named(left):
            wanted_by_name = {entry["name"]: entry for entry in kept or []}
            dropped = {entry["name"] for entry in value} - wanted_by_name.keys()
            merged[key] = [entry for entry in left or [] if entry["name"] not in dropped]
            by_name = {entry["name"]: entry for entry in merged[key]}
            for entry in value:
                if entry["name"] in by_name:
                    _drop_entries(by_name[entry["name"]], entry, wanted_by_name[entry["name"]])


def _is_named(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(entry, dict) and "name" in entry for entry in value)


def _template(obj: Object) -> Object:
    template: Object = obj.get("spec", {}).get("template", {}) if isinstance(obj.get("spec"), dict) else {}
    return template


def _env(template: Object, container: str) -> dict[str, Any]:
    found = [c for c in template.get("spec", {}).get("containers", []) if c["name"] == container]
    return {e["name"]: e.get("value") for c in found for e in c.get("env", [])}


# ------------------------------------------------------------------------------------------------- Kafka


def _mode_of(environment: Sequence[Object]) -> str:
    settings = {setting_of(e["name"], "KAFKA_"): e.get("value", "") for e in environment}
    if settings.get("process.roles") == "broker":
        return "kraft"
    return "migration" if settings.get(FLAG) == "true" else "zookeeper"


def _znode(broker: int) -> BrokerZnode:
    host = f"kafka-{broker}.kafka.kafka.svc"
    return BrokerZnode(broker, (host,), (Endpoint("INTERNAL", host, 9092), Endpoint("PLAINTEXT", host, 9092)))


@dataclass
class FakeKafka:
    """ZooKeeper, brokers and controllers as the pods' own configuration makes them; keeps to the other ports."""

    kubernetes: FakeKubernetes
    clock: Clock
    namespace: str = "kafka"
    state: ZkMigrationState = ZkMigrationState.NONE
    claimed: bool = False
    canary: int | None = None
    level: int = 21
    """Finalized metadata.version."""
    level_offset: int = 3
    updates: list[tuple[int, Upgrade]] = field(default_factory=list)
    under_replicated: tuple[str, ...] = ()
    silent: set[str] = field(default_factory=set)
    walled: set[int] = field(default_factory=set)
    """Brokers that the controllers' pods do not reach."""
    closed: int = 0
    renewals: list[int] = field(default_factory=list)
    """Of how many leaders the epoch was renewed at most."""
    _flags: dict[str, bool] = field(default_factory=dict)
    """By UID of a controller's pod: what it read when it started."""
    _modes: dict[str, tuple[list[Object], str]] = field(default_factory=dict)
    """By UID of a broker's pod: its environment, and the mode that this gives."""

    def broker_modes(self) -> dict[int, str]:
        """Return how each broker's process is configured, read from its pod's environment as its image would."""
        modes = {}
        for pod in self.kubernetes.pods(self.namespace, "app=kafka"):
            environment = pod["spec"]["containers"][0].get("env", [])
            former = self._modes.get(pod["metadata"]["uid"])
            if former is None or former[0] != environment:
                self._modes[pod["metadata"]["uid"]] = former = (copied(environment), _mode_of(environment))
            modes[int(pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"])] = former[1]
        return modes

    def controller_flags(self) -> dict[int, bool]:
        """Return for each controller whether its configuration has the migration flag."""
        flags = {}
        for pod in self.kubernetes.pods(self.namespace, "kraftbridge.dev/role=controller"):
            uid = pod["metadata"]["uid"]
            if uid not in self._flags:  # a process runs on with what it started with
                volume = next(v for v in pod["spec"]["volumes"] if v["name"] == "config")
                config_map = self.kubernetes.objects["ConfigMap", self.namespace, volume["configMap"]["name"]]
                settings = parse_properties(config_map["data"]["controller.properties"])
                self._flags[uid] = settings.get(FLAG) == "true"
            flags[int(pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"])] = self._flags[uid]
        return flags

    def _live(self) -> dict[int, bool]:
        """Let the migration go as far as it would by itself; return the controllers' flags."""
        flags, modes = self.controller_flags(), self.broker_modes()
        if not flags:
            if not self.claimed:  # else the log on the volumes knows how far the migration is
                self.state = ZkMigrationState.NONE
            return flags
        if self.state is ZkMigrationState.NONE and all(flags.values()):
            self.state = ZkMigrationState.PRE_MIGRATION
        if self.state is ZkMigrationState.PRE_MIGRATION and set(modes.values()) == {"migration"}:
            self.state, self.claimed = ZkMigrationState.MIGRATION, True
        if self.state is ZkMigrationState.MIGRATION and not flags[min(flags)]:
            self.state = ZkMigrationState.POST_MIGRATION
        return flags

    # ZooKeeperPort
    def observe(self) -> ZooKeeperState:
        flags = self._live()
        modes = self.broker_modes()
        mirrored = self.state is ZkMigrationState.MIGRATION
        migration = MigrationZnode(3000, 1, int(self.clock.now.timestamp()) if mirrored or self.claimed else -1, 1)
        holder = min((i for i, m in modes.items() if m != "kraft"), default=None)
        own = None if holder is None else ControllerZnode(holder, -1, ephemeral=True)
        return ZooKeeperState(
            cluster_id="kVx3Yk9aSZ2mJ0wq1Yl5Wg",
            controller=ControllerZnode(3000, 1, ephemeral=False) if self.claimed else own,
            controller_epoch=3,
            migration=migration if flags or self.claimed else None,
            brokers=tuple(_znode(i) for i, m in modes.items() if m != "kraft"),
            pending_topic_deletions=(),
            reassignments=False,
            canary=self.canary,
        )

    def acls(self) -> ZooKeeperAcls:
        anyone = (AclEntry("world", "anyone", frozenset("cdrwa")),)
        return ZooKeeperAcls({"/": anyone, "/controller": anyone}, (), frozenset({"t"}))

    def users(self) -> ZooKeeperUsers:
        return ZooKeeperUsers()

    def topics(self) -> frozenset[str]:
        return frozenset()

    def payloads(self, paths: Sequence[str]) -> dict[str, bytes | None]:
        return dict.fromkeys(paths, b"{}")

    def broker_session_count(self) -> int | Unobserved:
        return 0

    def remove_controller_claim(self, expected_kraft_epoch: int) -> None:
        self.claimed = False

    def create_partition_states(self) -> tuple[str, ...]:
        return ()

    # BrokerPort
    def cluster_state(self) -> ClusterState:
        lacking = self.under_replicated
        return ClusterState(frozenset(self.broker_modes()), 0, 10, lacking, len(lacking), (), 0, frozenset())

    def cluster_by_broker(self) -> dict[int, ClusterState | Unobserved]:
        return dict.fromkeys(self.broker_modes(), self.cluster_state())

    def topic_redundancy(self) -> TopicRedundancy:
        return TopicRedundancy((), ())

    def assignments(self, accepted: frozenset[str]) -> Assignments:
        return Assignments(())

    def visibility(self) -> Visibility:
        return Visibility(frozenset({"t"}), frozenset({"DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "ALTER"}))

    def _protocols(self) -> dict[int, str]:
        """Return the protocol that each broker runs, read from its pod: by default that of its image."""
        found = {}
        for pod in self.kubernetes.pods(self.namespace, "app=kafka"):
            container = pod["spec"]["containers"][0]
            stated = {e["name"]: e.get("value", "") for e in container.get("env", [])}
            release = container["image"].rpartition(":")[2][:3]
            default = f"{release}-IV1" if release.startswith("2.") else f"{release}-IV0"
            ordinal = int(pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"])
            found[ordinal] = stated.get("KAFKA_INTER_BROKER_PROTOCOL_VERSION", default)
        return found

    def broker_settings(self) -> dict[int, tuple[BrokerSetting, ...] | Unobserved]:
        protocols = self._protocols()
        values = {
            "listener.security.protocol.map": "INTERNAL:PLAINTEXT",
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        }
        return {
            broker: tuple(
                BrokerSetting(name, value, SettingSource.STATIC, sensitive=False, known=True)
                for name, value in (
                    {"broker.id": str(broker), "inter.broker.protocol.version": protocols[broker]} | values
                ).items()
            )
            for broker in self.broker_modes()
        }

    # BrokerRecordPort

    def address(self, broker: int) -> tuple[str, int] | None:
        return (f"kafka-{broker}.kafka", 9092)

    def settings(self, broker: int) -> dict[str, EffectiveSetting]:
        return {
            s.name: EffectiveSetting(s.value) for s in self.broker_settings()[broker] if isinstance(s, BrokerSetting)
        }

    def listener(self, name: str, host: str, port: int, protocol: str) -> ListenerState:
        return ListenerState(name, host, port)

    def offsets(self, broker: int, holds_for: timedelta) -> dict[TopicPartition, PartitionOffsets]:
        return {("t", 0): PartitionOffsets(0, 10, 0)}

    def offsets_now(
        self, broker: int, record: Mapping[TopicPartition, PartitionOffsets]
    ) -> dict[TopicPartition, OffsetsNow | str]:
        return {tp: OffsetsNow(o.start, o.end, o.start) for tp, o in record.items()}

    def log_dirs(self) -> dict[int, tuple[LogDir, ...] | Unobserved]:
        return dict.fromkeys(self.broker_modes(), ())

    def settings_for_kafka4(self) -> KafkaSettings:
        return KafkaSettings(self.broker_settings(), {})

    def send_old_requests(self) -> dict[int, Unobserved | None]:
        return dict.fromkeys(self.broker_modes())

    def topic_ids(self, processes: Mapping[int, str]) -> dict[int, TopicIds | Unobserved]:
        """Return what brokers tell that a controller leads which gives ids if its protocol knows them."""
        protocols = self._protocols()
        nameless = () if has_topic_ids(protocols[min(protocols)]) else ("t",)
        return {
            broker: TopicIds(process, protocols[broker], 10, nameless, len(nameless), ())
            for broker, process in processes.items()
        }

    def reassigning_partitions(self) -> tuple[str, ...]:
        return ()

    def renew_leaders(self, most: int) -> None:
        self.renewals.append(most)

    def controller_by_broker(self) -> dict[int, int | Unobserved]:
        return dict.fromkeys(self.broker_modes(), 0)

    # ControllerPort
    def quorum_state(self) -> QuorumState:
        flags = self._live()
        if not flags:
            raise ObservationError("quorum", "no controller answers")
        voters = tuple(VoterState(i, 100, silent_seconds=0.2) for i in flags)
        return QuorumState(min(flags), 1, 100, voters, frozenset(self.broker_modes()))

    def registered_controllers(self) -> frozenset[int]:
        if not self.controller_flags():
            raise ObservationError("quorum", "no controller answers")
        return frozenset(self.controller_flags())

    def features(self) -> dict[int, NodeFeatures | Unobserved]:
        """Return the features of the brokers and the controllers alike; each caller reads those of its own nodes."""
        flags = {**dict.fromkeys(self.broker_modes(), False), **self.controller_flags()}
        on_kafka4 = self._on_kafka4("app=kafka") | self._on_kafka4("kraftbridge.dev/role=controller")
        return {
            node: NodeFeatures(
                {FEATURE: self.level},
                {FEATURE: (7, 27) if node in on_kafka4 else (1, 21)},
                finalized_epoch=self.level_offset,
                zk_migration_ready=flag,
            )
            for node, flag in flags.items()
        }

    def _on_kafka4(self, selector: str) -> set[int]:
        """Return the nodes whose pod has an image of Kafka 4."""
        return {
            int(pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"])
            for pod in self.kubernetes.pods(self.namespace, selector)
            if pod["spec"]["containers"][0]["image"].rpartition(":")[2].startswith("4.")
        }

    def try_paths(self, host: str, _token: str, _authority: str, targets: Sequence[tuple[str, int]]) -> list[str]:
        brokers = [int(target.partition(".")[0].rpartition("-")[2]) for target, _ in targets]
        return ["10.0.0.1 did not answer within 3 s" if broker in self.walled else "" for broker in brokers]

    def write_canary(self, value: int, replicas: int) -> None:
        self.canary = value

    def remove_canary(self, value: int) -> None:
        self.canary = None

    def refusal(self, address: str, server_name: str, client_properties: Mapping[str, str]) -> str | None:
        return None

    def leader_epochs(self) -> tuple[dict[tuple[str, int], int], frozenset[int]]:
        return {}, frozenset()

    def serves_topic(self, topic: str) -> dict[int, bool | Unobserved]:
        return dict.fromkeys(self.broker_modes(), topic == canary_topic(self.canary or 0))

    def validate_metadata_version(self, level: int, upgrade: Upgrade, feature: str = FEATURE) -> FeatureAnswer:
        """Take every level up to the highest; a downgrade only without loss."""
        lossy = upgrade is not Upgrade.UPGRADE and level < lowest_without_loss(self.level)
        words = "" if not lossy else f"Invalid metadata.version {level}. Refusing to perform the requested downgrade"
        return FeatureAnswer(level, upgrade, accepted=not lossy, words=words, feature=feature)

    def update_metadata_version(self, level: int, upgrade: Upgrade, feature: str = FEATURE) -> None:
        self.updates.append((level, upgrade))
        self.level, self.level_offset = level, 100  # the high watermark that `quorum_state` says

    def close(self) -> None:
        self.closed += 1

    # In the place of `kraftbridge.storage.kafka_controllers.read_controller_metrics`.
    def metrics(self, node_id: int, host: str, **_options: Any) -> ControllerMetrics:
        flags = self._live()
        modes = [m for m in self.broker_modes().values() if m != "zookeeper"]
        leader = min(flags)
        on_kafka4 = self._on_kafka4("kraftbridge.dev/role=controller")
        state = ZkMigrationState.ABSENT if node_id in on_kafka4 else self.state
        return ControllerMetrics(node_id, node_id == leader, state, modes.count("migration"), len(modes), 0, leader, 1)


def surroundings() -> list[Object]:
    """Return what preflight asks of a cluster: a default StorageClass, and a node with room."""
    return [
        {
            "kind": "StorageClass",
            "metadata": {"name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        },
        {
            "kind": "Node",
            "metadata": {"name": "node-1", "labels": {}},
            "status": {
                "allocatable": {"cpu": "4", "memory": "16Gi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        },
    ]


def user_stateful_set(namespace: str = "kafka", replicas: int = 3) -> Object:
    """Return a StatefulSet of brokers as a user would have it, in ``Env`` style."""
    env = {
        "KAFKA_ZOOKEEPER_CONNECT": "zk-0.zk:2181/kafka",
        "KAFKA_INTER_BROKER_PROTOCOL_VERSION": "3.9",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "INTERNAL:PLAINTEXT",
        "KAFKA_AUTHORIZER_CLASS_NAME": "kafka.security.authorizer.AclAuthorizer",
        "KAFKA_HEAP_OPTS": "-Xmx1g",
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "kafka", "namespace": namespace, "labels": {"app": "kafka"}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "kafka"}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
            "template": {
                "metadata": {"labels": {"app": "kafka"}},
                "spec": {
                    "containers": [
                        {
                            "name": "kafka",
                            "image": "kafka:3.9",
                            "env": [{"name": k, "value": v} for k, v in env.items()],
                        }
                    ]
                },
            },
        },
    }


def migration_object(spec: Mapping[str, Any], namespace: str = "kafka", name: str = "demo") -> Object:
    """Return a KafkaMigration as the API server has it before the first step."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name, "namespace": namespace},
        "spec": dict(spec),
    }


class FakeBrokerRecords:
    """Asks a fake's brokers; to close it ends nothing else."""

    def __init__(self, kafka: FakeKafka) -> None:
        self._kafka = kafka

    def __getattr__(self, question: str) -> Any:
        return getattr(self._kafka, question)

    def close(self) -> None:
        """Nothing is open."""


class FaithfulDryStarts:
    """Dry starts that end at once, with copies that start what the fake brokers run, and the overlay if it comes by the channel that reaches them."""

    def __init__(self, kafka: FakeKafka) -> None:
        self._kafka = kafka
        self.started: list[DryStartRunStatus] = []
        self.reaching = "configStyle: Env, envPrefix: KAFKA_"
        """The channel that reaches the brokers."""
        self.template = "same"
        """Stands for what the fingerprint is made from, besides the channel."""
        self.image = ""
        """The brokers' image, where the copies tell it: only then a rehearsal can start a broker."""
        self.former = "kafka:2.8"
        self.new_release = "3.9.2"
        """What the image of ``spec.brokers.upgrade`` starts."""
        self._reports: dict[str, DryStartReport] = {}

    def fingerprint(self, migration: Migration) -> str:
        leg = migration.status.kafka4_leg
        return f"{self.template} {described(migration.spec.brokers)}{'' if leg is None else f' {leg.image}'}"

    def channels(self, identity: Identity, spec: MigrationSpec) -> tuple[BrokersSpec, ...]:
        return likely_channels(spec.brokers, [({}, {})])

    def run(self, identity: Identity, run: DryStartRunStatus) -> DryStartRun:
        report = self._reports.get(run.run_id)
        if report is None:
            return DryStartRun(run.run_id)
        plan = DryStartPlan(tuple(c.key for c in report.copies), tuple(c.key for c in report.trials))
        collected = {
            DryStartStage.COPIES: report.copies,
            DryStartStage.FIRST_TRIALS: report.trials,
            DryStartStage.LAST_TRIALS: (),
        }
        proof = FenceProof("probe", ended=True)
        return DryStartRun(run.run_id, plan, made=frozenset(DryStartStage), proof=proof, collected=collected)

    def report(self, identity: Identity, record: DryStartStatus) -> DryStartReport | None:
        return self._reports.get(record.run_id)

    def carry_out(
        self,
        kubernetes: KubernetesPort,
        migration: Migration,
        clients: ClusterClients,
        action: RunAction,
    ) -> None:
        spec = migration.spec
        run = None if migration.status.dry_start is None else migration.status.dry_start.running
        if run is None or not isinstance(action, LaunchRun) or run.run_id in self._reports:
            return
        self.started.append(run)
        if migration.status.kafka4_leg is not None:
            self._reports[run.run_id] = DryStartReport(run.digest, tuple(self._of_kafka4(migration, run)))
            return
        copies: list[CopyOutcome] = []
        trials: list[CopyOutcome] = []
        present = described(spec.brokers)
        for ref in spec.brokers.stateful_sets:
            ordinals = [int(p.rpartition("-")[2]) for p in run.broker_ids if p.rpartition("-")[0] == ref.name]
            bridge = upgrading.bridge_modes(migration.status)
            for key in copies_of(ref.name, ordinals, bridge):
                copy = self._outcome(key, run.broker_ids[key.pod], present)
                copies.append(self._upgraded(copy, spec) if bridge else copy)
                if present == self.reaching or key.mode is BrokerMode.ZOOKEEPER:
                    continue
                trials += [
                    self._outcome(replace(key, channel=other), run.broker_ids[key.pod], other)
                    for other in map(described, other_channels(spec.brokers, {}, {}))
                ]
        self._reports[run.run_id] = DryStartReport(run.digest, tuple(copies), tuple(trials))

    def _of_kafka4(self, migration: Migration, run: DryStartRunStatus) -> Iterator[CopyOutcome]:
        """Yield a copy of every pod as it runs, and one with the image of Kafka 4."""
        leg = migration.status.kafka4_leg
        assert leg is not None
        present = "kafka:3.9"
        for ref in migration.spec.brokers.stateful_sets:
            ordinals = [int(p.rpartition("-")[2]) for p in run.broker_ids if p.rpartition("-")[0] == ref.name]
            for key in copies_for_kafka4(ref.name, ordinals):
                copy = self._outcome(key, run.broker_ids[key.pod], self.reaching)
                assert copy.start is not None
                image = leg.image if key.mode is BrokerMode.KAFKA4 else present
                images = (ContainerImage("kafka", present, f"sha256:{present}", image, f"sha256:{image}"),)
                settings = {k: v for k, v in copy.start.settings.items() if k != "kraftbridge.mode"}
                kafka = "3.9.2" if image == present else image.rpartition(":")[2]
                start = replace(copy.start, kafka=kafka, settings=settings)
                yield replace(copy, start=start, overlay={}, images=images)

    def _outcome(self, key: CopyKey, broker: int, channel: str) -> CopyOutcome:
        found = self._kafka.broker_settings()[broker]
        settings = {} if isinstance(found, Unobserved) else {s.name: GivenSetting(s.value) for s in found}
        overlay = {} if key.mode is BrokerMode.ZOOKEEPER else {"kraftbridge.mode": str(key.mode)}
        reaches = {n: GivenSetting(v) for n, v in overlay.items()} if channel == self.reaching else {}
        images = (ContainerImage("kafka", self.image, "sha256:1", self.image, "sha256:1"),) if self.image else ()
        start = KafkaStart(valid=True, settings={**settings, **reaches}, address_cache_seconds=0)
        return CopyOutcome(key, broker, start, overlay=overlay, images=images)

    def _upgraded(self, copy: CopyOutcome, spec: MigrationSpec) -> CopyOutcome:
        """Return a copy of a cluster that is brought to another release: with the former image in its present mode."""
        asked = spec.brokers.upgrade
        assert asked is not None
        assert copy.start is not None
        is_new = copy.key.mode is not BrokerMode.ZOOKEEPER
        got = (asked.image, f"sha256:{asked.image}") if is_new else (self.former, f"sha256:{self.former}")
        image = ContainerImage("kafka", self.former, f"sha256:{self.former}", *got)
        start = replace(copy.start, kafka=self.new_release if is_new else "2.8.2")
        return replace(copy, start=start, images=(image,))


METADATA_LOG = Path(__file__).resolve().parents[1] / "data" / "metadata" / "dualwrite" / "c3000"


class FakeLog(LocalLogFiles):
    """The metadata log of a controller: that of a real one."""

    def close(self) -> None:
        """There is nothing to close."""


def fake_log(_host: str, _token: str, _authority: str) -> Any:
    return FakeLog(METADATA_LOG)


def fake_clients(kafka: FakeKafka) -> ClusterClients:
    """Return the connections of a migration to a fake cluster."""
    return ClusterClients(
        kafka, kafka, kafka, lambda: FakeBrokerRecords(kafka), open_log=fake_log, try_paths=kafka.try_paths
    )
