"""`FakeKubernetes` over HTTP, for code that brings its own client: discovery, lists, watches, patches, finalizers. Loopback only."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from aiohttp import web
from tests.support.fakes import FakeKubernetes, Object

from kraftbridge.exceptions import ConflictError
from kraftbridge.storage.kubernetes import PLURALS

KINDS = {plural: kind for kind, plural in PLURALS.items()}
GROUPS: dict[str, tuple[str, ...]] = {
    "v1": (
        "Namespace",
        "Pod",
        "ConfigMap",
        "Secret",
        "Service",
        "PersistentVolumeClaim",
        "Event",
        "Node",
        "ResourceQuota",
        "LimitRange",
    ),
    "apps/v1": ("StatefulSet",),
    "coordination.k8s.io/v1": ("Lease",),
    "authorization.k8s.io/v1": ("SelfSubjectAccessReview",),
    "storage.k8s.io/v1": ("StorageClass",),
    "batch/v1": ("Job",),
    "rbac.authorization.k8s.io/v1": ("Role", "RoleBinding"),
    "events.k8s.io/v1": ("Event",),
    "policy/v1": ("PodDisruptionBudget",),
    "networking.k8s.io/v1": ("NetworkPolicy",),
    "apiextensions.k8s.io/v1": ("CustomResourceDefinition",),
    "admissionregistration.k8s.io/v1": ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
    "kraftbridge.dev/v1alpha1": ("KafkaMigration",),
    "sparkoperator.k8s.io/v1beta2": ("SparkApplication",),
}
CLUSTER_SCOPED = {
    "Namespace",
    "Node",
    "StorageClass",
    "SelfSubjectAccessReview",
    "CustomResourceDefinition",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}


class HttpApi:
    """The server; `url` once it runs. It records every request that changes an object."""

    def __init__(self, store: FakeKubernetes) -> None:
        self.store = store
        self.url = ""
        self.writes: list[tuple[str, str]] = []
        """Method and path."""
        self.dry_runs = 0
        self.posted_events: list[Object] = []
        self._watchers: list[tuple[str, asyncio.Queue[bytes]]] = []
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        store.on_change = self._changed

    # ---------------------------------------------------------------------------------------- life cycle

    def _serve(self) -> None:
        # The runner cancels what is left (a watch that waits for its queue) before it closes the loop.
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._main())

    async def _main(self) -> None:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(application, shutdown_timeout=0.2)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        self._ready.set()
        await self._stop.wait()
        await runner.cleanup()

    @contextmanager
    def running(self) -> Iterator[HttpApi]:
        """Serve on a thread of its own."""
        thread = threading.Thread(target=self._serve, name="fake API server", daemon=True)
        thread.start()
        assert self._ready.wait(10)
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._stop.set)
            thread.join(10)

    def write_kubeconfig(self, path: Path) -> None:
        """Write a kubeconfig that leads here."""
        named = {"cluster": "fake", "user": "fake", "namespace": "kafka"}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "fake",
            "clusters": [{"name": "fake", "cluster": {"server": self.url}}],
            "users": [{"name": "fake", "user": {"token": "none"}}],
            "contexts": [{"name": "fake", "context": named}],
        }
        path.write_text(json.dumps(config))

    def _changed(self, kind: str, event: str, obj: Object) -> None:
        line = json.dumps({"type": event, "object": _complete(kind, obj)}).encode() + b"\n"
        for watched, queue in list(self._watchers):
            if watched == kind:
                self._loop.call_soon_threadsafe(queue.put_nowait, line)

    # ------------------------------------------------------------------------------------------- requests

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        parts = [p for p in request.match_info["path"].split("/") if p]
        if request.query.get("dryRun") == "All":
            self.dry_runs += 1
        elif request.method != "GET":
            self.writes.append((request.method, "/" + "/".join(parts)))
        if (found := _discovery(parts)) is not None:
            return web.json_response(found)
        rest = parts[2:] if parts[0] == "api" else parts[3:]
        namespace = None
        if len(rest) > 2 and rest[0] == "namespaces":
            namespace, rest = rest[1], rest[2:]
        kind = KINDS.get(rest[0]) if rest else None
        if kind is None:
            return _status(404, "the server could not find the requested resource")
        if len(rest) == 1:
            return await self._collection(request, kind, namespace)
        return await self._object(request, kind, namespace, rest[1], rest[2] if len(rest) > 2 else "")

    async def _collection(self, request: web.Request, kind: str, namespace: str | None) -> web.StreamResponse:
        if request.method == "POST":
            body = await request.json()
            if kind == "SelfSubjectAccessReview":
                return web.json_response({**body, "status": {"allowed": True}}, status=201)
            if kind == "Event":
                self.posted_events.append(body)
                return web.json_response(body, status=201)
            return self._try(lambda: self.store.create(body), kind, created=True)
        if request.query.get("watch", "").lower() in ("true", "1"):
            return await self._watch(request, kind)
        items = [
            _complete(kind, o)
            for o in self.store.list(
                "",
                kind,
                namespace,
                request.query.get("labelSelector", ""),
                field_selector=request.query.get("fieldSelector", ""),
            )
        ]
        return web.json_response({"kind": f"{kind}List", "metadata": {"resourceVersion": "1"}, "items": items})

    async def _watch(self, request: web.Request, kind: str) -> web.StreamResponse:
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        entry = (kind, queue)
        self._watchers.append(entry)
        with suppress(ConnectionError, asyncio.CancelledError):
            while not self._stop.is_set():
                with suppress(TimeoutError):
                    line = await asyncio.wait_for(queue.get(), 0.5)
                    await response.write(line)
        self._watchers.remove(entry)
        return response

    async def _object(
        self, request: web.Request, kind: str, namespace: str | None, name: str, subresource: str
    ) -> web.StreamResponse:
        key = (kind, namespace, name)
        live = self.store.objects.get(key)
        text = await request.text()
        body = json.loads(text) if text else {}
        if request.method == "PATCH" and request.content_type == "application/apply-patch+yaml":
            manager = request.query.get("fieldManager", "unknown")
            if request.query.get("dryRun") == "All":
                self.store.try_apply(body)
                return web.json_response(_complete(kind, body))
            created = live is None
            return self._try(lambda: self.store.apply(body, force=True, field_manager=manager), kind, created=created)
        if live is None:
            return _status(404, f'{kind} "{name}" not found')
        match request.method:
            case "GET" if subresource == "log":
                return web.Response(text=self.store.logs.get(name, ""))
            case "GET":
                return web.json_response(_complete(kind, live))
            case "POST" if subresource == "eviction":
                uid = body.get("deleteOptions", {}).get("preconditions", {}).get("uid", live["metadata"]["uid"])
                return self._try(lambda: self.store.evict(str(namespace), name, uid, 0) or {}, "Status", created=True)
            case "PUT" if subresource == "status":
                version = body["metadata"]["resourceVersion"]
                return self._try(
                    lambda: self.store.replace_status("", kind, str(namespace), name, body["status"], version), kind
                )
            case "PATCH":
                return self._try(lambda: self._patch(key, request.content_type, body, subresource), kind)
            case "DELETE":
                if live["metadata"].get("finalizers"):
                    stamp = {"metadata": {"deletionTimestamp": self.store.clock.now.isoformat()}}
                    return self._try(lambda: self.store.merge_patch("", kind, namespace, name, stamp), kind)
                wanted = body.get("preconditions") or {}
                version = wanted.get("resourceVersion")
                return self._try(
                    lambda: self.store.delete(
                        "", kind, namespace, name, uid=wanted.get("uid"), resource_version=version
                    ),
                    kind,
                )
            case _:
                return _status(405, request.method)

    def _patch(self, key: tuple[str, str | None, str], content_type: str, body: Any, subresource: str) -> Object:
        kind, namespace, name = key
        if content_type == "application/json-patch+json":
            changed = _json_patched(self.store.objects[key], body)
            version = changed["metadata"]["resourceVersion"]
            if subresource == "status":
                return self.store.replace_status("", kind, str(namespace), name, changed.get("status", {}), version)
            gone = dict.fromkeys(set(self.store.objects[key]["metadata"]) - set(changed["metadata"]))
            fields: Mapping[str, Any] = {"metadata": {**changed["metadata"], **gone}}
        else:
            version, fields = body.get("metadata", {}).get("resourceVersion"), body
        # resourceVersion is a precondition and no field.
        fields = {
            k: {n: v for n, v in value.items() if n != "resourceVersion"} if k == "metadata" else value
            for k, value in fields.items()
        }
        if content_type == "application/strategic-merge-patch+json":
            return self.store.strategic_patch(
                "", kind, namespace, name, fields, field_manager="", resource_version=version
            )
        patched = self.store.merge_patch("", kind, namespace, name, fields, resource_version=version)
        if patched["metadata"].get("deletionTimestamp") and not patched["metadata"].get("finalizers"):
            self.store.delete("", kind, namespace, name)
        return patched

    def _try(self, write: Any, kind: str, *, created: bool = False) -> web.Response:
        try:
            done = write()
        except _PatchTestFailedError as e:
            return _status(422, str(e))  # as the API server's `jsonPatcher` answers, and not 409
        except ConflictError as e:
            return _status(409, str(e))
        return web.json_response(_complete(kind, done) if done else {}, status=201 if created else 200)


def _complete(kind: str, obj: Object) -> Object:
    api_version = next((v for v, kinds in GROUPS.items() if kind in kinds), "v1")
    return {"apiVersion": api_version, "kind": kind, **obj}


def _discovery(parts: list[str]) -> Object | None:
    match parts:
        case ["version"]:
            return {"major": "1", "minor": "33", "gitVersion": "v1.33.0"}
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"]}
        case ["apis"]:
            groups = sorted({tuple(v.split("/")) for v in GROUPS if "/" in v})
            return {
                "kind": "APIGroupList",
                "groups": [
                    {
                        "name": g,
                        "versions": [{"groupVersion": f"{g}/{v}", "version": v}],
                        "preferredVersion": {"groupVersion": f"{g}/{v}", "version": v},
                    }
                    for g, v in groups
                ],
            }
        case ["api", version] | ["apis", _, version]:
            name = version if parts[0] == "api" else f"{parts[1]}/{version}"
            return {"kind": "APIResourceList", "groupVersion": name, "resources": _resources(name)}
        case _:
            return None


def _resources(group_version: str) -> list[Object]:
    verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
    listed = []
    for kind in GROUPS.get(group_version, ()):
        entry = {
            "name": PLURALS[kind],
            "singularName": kind.lower(),
            "kind": kind,
            "namespaced": kind not in CLUSTER_SCOPED,
            "verbs": verbs,
        }
        listed.append(entry)
        if kind == "KafkaMigration":
            listed.append({**entry, "name": f"{PLURALS[kind]}/status"})
    return listed


def _status(code: int, message: str) -> web.Response:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message}
    return web.json_response(body, status=code)


class _PatchTestFailedError(Exception):
    """A JSON patch's ``test`` does not hold."""


def _json_patched(obj: Object, operations: list[dict[str, Any]]) -> Object:
    changed: Object = json.loads(json.dumps(obj))
    for operation in operations:
        *path, last = [p.replace("~1", "/").replace("~0", "~") for p in operation["path"].split("/")[1:]]
        node: Any = changed
        for part in path:
            node = node[int(part)] if isinstance(node, list) else node.setdefault(part, {})
        if operation["op"] == "test":
            if node.get(last) != operation["value"]:
                raise _PatchTestFailedError(f"{operation['path']} is {node.get(last)!r}")
        elif operation["op"] == "remove":
            node.pop(int(last) if isinstance(node, list) else last)
        elif isinstance(node, list):
            node.append(operation["value"]) if last == "-" else node.insert(int(last), operation["value"])
        else:
            node[last] = operation["value"]
    return changed
