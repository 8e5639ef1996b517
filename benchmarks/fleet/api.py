"""The tests' fake API server and Kafka clusters, for hundreds of namespaces in one process."""

from __future__ import annotations

import base64
import functools
import gzip
import io
import json
import zlib
from datetime import UTC, datetime
from typing import Any, Final

from aiohttp import web
from tests.support.fakes import FakeKafka, FakeKubernetes, Object, migration_object, surroundings, user_stateful_set
from tests.support.http_api import HttpApi
from tests.support.observations import spec_document
from typing_extensions import override

from benchmarks.fleet.remote import POLICY, namespace_of
from kraftbridge.constants import KIND
from kraftbridge.models.observation import ControllerMetrics
from kraftbridge.models.report import REPORT_KEY, REQUEST_KEY, VERDICT_KEY, Profile, Verdict, VerdictSummary
from kraftbridge.services.kept_broker_records import RECORD_KEY

HOSTILE_REPORT: Final = namespace_of("report")
"""Namespace whose reports unpack to gigabytes."""
HOSTILE_RECORD: Final = namespace_of("record")
"""Namespace whose records of brokers do."""
_BOMB_MEBIBYTES: Final = 700


@functools.cache
def report_bomb() -> str:
    """Return 900 KiB of text that unpack to 700 MiB."""
    found = io.BytesIO()
    with gzip.GzipFile(fileobj=found, mode="wb", compresslevel=9, mtime=0) as stream:
        for _ in range(_BOMB_MEBIBYTES):
            stream.write(bytes(1 << 20))
    return base64.b64encode(found.getvalue()).decode()


@functools.cache
def record_bomb() -> str:
    """Return 900 KiB of text that unpack to 700 MiB of empty lists."""
    stream, lists = zlib.compressobj(9), b"[]," * (1 << 20)
    packed = stream.compress(b'{"settings":[') + b"".join(stream.compress(lists) for _ in range(_BOMB_MEBIBYTES // 3))
    return base64.b64encode(packed + stream.flush()).decode()


class RealClock:
    """The time of day, with a fake clock's face."""

    @property
    def now(self) -> datetime:
        """Return it."""
        return datetime.now(UTC)


class FleetApi(FakeKubernetes):
    """The fake API server with an index by namespace: a write settles its namespace only."""

    def __init__(self) -> None:
        super().__init__(RealClock())  # type: ignore[arg-type]
        self._keys: dict[str | None, set[tuple[str, str | None, str]]] = {}
        self._dirty: set[str | None] = set()

    @override
    def _store(self, key: tuple[str, str | None, str], obj: Object) -> None:
        if key[:2] == ("ConfigMap", HOSTILE_RECORD) and RECORD_KEY in obj.get("binaryData", {}):
            obj["binaryData"] = {RECORD_KEY: record_bomb()}
        super()._store(key, obj)
        self._keys.setdefault(key[1], set()).add(key)
        self._dirty.add(key[1])

    @override
    def _settle_verification(self, config_map: Object) -> None:
        super()._settle_verification(config_map)
        data = config_map["data"]
        if config_map["metadata"]["namespace"] != HOSTILE_REPORT or VERDICT_KEY not in data or REPORT_KEY in data:
            return
        summary = VerdictSummary.model_validate_json(data[VERDICT_KEY])
        if summary.profile is Profile.DUAL_WRITE:
            counts = dict.fromkeys(("differing", "mirror_differing", "partition_state_differing"), 1)
            data[VERDICT_KEY] = summary.model_copy(update={"verdict": Verdict.INCONSISTENT, **counts}).to_json()
            data[REPORT_KEY] = report_bomb()

    @override
    def _called(self, verb: str, kind: str, name: str) -> None:
        """Keep no list of calls: it would grow for ever."""

    @override
    def _listed(self, kind: str, namespace: str | None, label_selector: str) -> tuple[Object, ...]:
        if namespace is None:
            return super()._listed(kind, namespace, label_selector)
        wanted = dict(part.split("=", 1) for part in label_selector.split(",") if part)
        found = []
        for key in sorted(self._keys.get(namespace, ())):
            obj = self.objects.get(key)
            if obj is not None and key[0] == kind and wanted.items() <= obj["metadata"].get("labels", {}).items():
                found.append(json.loads(json.dumps(obj)))
        return tuple(found)

    @override
    def settle(self) -> None:
        dirty, self._dirty = self._dirty, set()
        for namespace in dirty:
            for key in sorted(self._keys.get(namespace, ())):
                obj = self.objects.get(key)
                if obj is None:
                    self._keys[namespace].discard(key)
                elif key[0] == "StatefulSet":
                    self._settle_stateful_set(namespace, key[2], obj)
                elif key[0] == "ConfigMap" and REQUEST_KEY in obj.get("data", {}):
                    self._settle_verification(obj)

    @override
    def _pod(self, owner: Object, key: tuple[str, str | None, str], ordinal: int, revision: str) -> Object:
        pod = super()._pod(owner, key, ordinal, revision)
        pod["status"]["podIP"] = f"{key[1]}:{ordinal}"
        return pod


class FleetHttpApi(HttpApi):
    """The fake API server, which keeps each pod's text: the pods of hundreds of namespaces are asked for at once, and a pod does not change in place."""

    def __init__(self, store: FleetApi) -> None:
        super().__init__(store)
        self._texts: dict[tuple[str | None, str], tuple[str, str]] = {}
        """By namespace and name: the pod's resourceVersion and text."""

    @override
    async def _collection(self, request: web.Request, kind: str, namespace: str | None) -> web.StreamResponse:
        everywhere = kind == "Pod" and namespace is None and not request.query.get("labelSelector")
        if request.method != "GET" or "watch" in request.query or not everywhere:
            return await super()._collection(request, kind, namespace)
        items = [self._text(key, obj) for key, obj in list(self.store.objects.items()) if key[0] == kind]
        text = '{"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": [%s]}'
        return web.Response(text=text % ", ".join(items), content_type="application/json")

    def _text(self, key: tuple[str, str | None, str], pod: Object) -> str:
        version = pod["metadata"]["resourceVersion"]
        known = self._texts.get(key[1:])
        if known is None or known[0] != version:
            known = self._texts[key[1:]] = (version, json.dumps({"apiVersion": "v1", "kind": "Pod", **pod}))
        return known[1]


class Clusters:
    """Kafka clusters by namespace."""

    def __init__(self, api: FleetApi) -> None:
        self.api = api
        self.kafka: dict[str, FakeKafka] = {}

    def surroundings(self) -> None:
        """Create what all of them share."""
        for obj in surroundings():
            self.api.create(obj)
        for kind in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"):
            self.api.create({"kind": kind, "metadata": {"name": POLICY}})

    def add(self, namespace: str, **spec: Any) -> None:
        """Create a namespace with brokers and a migration."""
        self.api.create({"kind": "Namespace", "metadata": {"name": namespace}})
        stateful_set = user_stateful_set(namespace)
        if (connect := spec.get("zookeeper", {}).get("connect")) is not None:
            (container,) = stateful_set["spec"]["template"]["spec"]["containers"]
            container["env"][0] = {"name": "KAFKA_ZOOKEEPER_CONNECT", "value": connect}
        self.api.create(stateful_set)
        self.kafka[namespace] = FakeKafka(self.api, RealClock(), namespace)  # type: ignore[arg-type]
        strategy = {"addressCacheSeconds": 1, "sessionTimeoutHoldSeconds": 1}
        document = spec_document(strategy=strategy) | {"controllers": {}, "rehearsal": {"enabled": False}} | spec
        self.api.create(migration_object(document, namespace=namespace))

    def clone(self, source: str, namespace: str, number: int) -> None:
        """Copy everything of a namespace into another one, with a UID of its own."""
        uid = self.api.objects[KIND, source, "demo"]["metadata"]["uid"]
        self.kafka[namespace] = FakeKafka(self.api, RealClock(), namespace)  # type: ignore[arg-type]
        for field in ("state", "claimed", "canary", "level", "level_offset"):
            setattr(self.kafka[namespace], field, getattr(self.kafka[source], field))
        self.kafka[namespace]._flags.update(self.kafka[source]._flags)  # noqa: SLF001 - a fake's own state
        for key, obj in list(self.api.objects.items()):
            if key[1] != source and key != ("Namespace", None, source):
                continue
            text = (
                json.dumps([list(key), obj])
                .replace(f'"{source}', f'"{namespace}')
                .replace(f"{source}/", f"{namespace}/")
            )
            (kind, place, name), copied = json.loads(text.replace(uid[:8], f"{0xA0000000 + number:08x}"))
            self.api.objects[kind, place, name] = copied
            self.api._keys.setdefault(place, set()).add((kind, place, name))  # noqa: SLF001 - as above

    def metrics(self, node_id: int, address: str, **options: Any) -> ControllerMetrics:
        """Answer for `read_controller_metrics`."""
        found: ControllerMetrics = self.kafka[address.partition(":")[0]].metrics(node_id, address, **options)
        return found
