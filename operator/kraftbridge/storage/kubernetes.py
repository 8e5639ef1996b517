"""The client of the Kubernetes API server: objects are plain dicts, and errors are the domain's."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Final, Self, TypeGuard
from urllib.parse import quote, urlencode

import urllib3
from kubernetes.client import ApiClient, Configuration
from kubernetes.config import ConfigException, load_incluster_config, load_kube_config

from kraftbridge.constants import FIELD_MANAGER
from kraftbridge.exceptions import (
    ActionError,
    ActionRefusedError,
    ConflictError,
    EvictionBlockedError,
    MigrationError,
    ObservationError,
    TooLargeError,
)
from kraftbridge.models.decision import Event
from kraftbridge.models.objects import entries, section
from kraftbridge.models.survey import Right
from kraftbridge.outside.json_text import parsed_json
from kraftbridge.outside.visible import visible_lines
from kraftbridge.storage.ports import LOG_BYTES

CONNECT_TIMEOUT_SECONDS: Final = 3.0
READ_TIMEOUT_SECONDS: Final = 10.0
_CONNECTIONS: Final = 100

PLURALS: Final[Mapping[str, str]] = {
    "ConfigMap": "configmaps",
    "CustomResourceDefinition": "customresourcedefinitions",
    "Event": "events",
    "Job": "jobs",
    "KafkaMigration": "kafkamigrations",
    "Lease": "leases",
    "LimitRange": "limitranges",
    "Namespace": "namespaces",
    "NetworkPolicy": "networkpolicies",
    "Node": "nodes",
    "PersistentVolume": "persistentvolumes",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "Pod": "pods",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "ResourceQuota": "resourcequotas",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "Secret": "secrets",
    "SelfSubjectAccessReview": "selfsubjectaccessreviews",
    "Service": "services",
    "ServiceAccount": "serviceaccounts",
    "SparkApplication": "sparkapplications",
    "Deployment": "deployments",
    "StatefulSet": "statefulsets",
    "StorageClass": "storageclasses",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
"""Kinds that the operator reads or writes, with their names in URLs."""

_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_TOO_LARGE: Final = 413
_ETCD_TOO_LARGE: Final = "etcdserver: request is too large"
_REFUSALS: Final = frozenset({400, 403, 405, 413, 415, 422})
"""Status codes that the same request would get again."""
_SERVER_ERRORS: Final = 500


@dataclass(frozen=True, slots=True)
class Response:
    """An answer of the API server with any status."""

    status: int
    text: str

    @property
    def ok(self) -> bool:
        """Whether the request succeeded."""
        return 200 <= self.status < 300  # noqa: PLR2004 - HTTP's own range

    def object(self) -> dict[str, Any]:
        """Return the body as an object; ``{}`` if it is no object."""
        try:
            parsed = parsed_json(self.text)
        except ValueError:
            return {}
        return parsed if isinstance(parsed, dict) else {}

    def causes(self, reason: str | None = None) -> list[dict[str, str]]:
        """Return the causes of a ``metav1.Status``, of one reason or all."""
        causes: list[dict[str, str]] = entries(self.object(), "details", "causes")
        return [cause for cause in causes if reason in (None, cause.get("reason"))]

    @property
    def message(self) -> str:
        """The server's message in one line."""
        status = self.object()
        message = str(status.get("message") or self.text[:500].strip() or "no message")
        conflicts = [f"{c.get('field')}: {c.get('message')}" for c in self.causes("FieldManagerConflict")]
        if not conflicts:
            return message
        return f"{len(conflicts)} field(s) of other managers: " + "; ".join(conflicts)


def path_of(
    api_version: str, kind: str, namespace: str | None, name: str | None = None, subresource: str | None = None
) -> str:
    """Return the URL path of an object, or of the collection if ``name`` is None.

    Parameters
    ----------
    api_version
        ``v1`` or ``group/version``.
    kind
        A key of `PLURALS`.
    namespace
        None (or empty) for cluster-scoped kinds and for lists over all namespaces.
    """
    parts = [_root(api_version), api_version]
    if namespace:
        parts += ["namespaces", quote(namespace, safe="")]
    parts.append(PLURALS[kind])
    if name is not None:
        parts.append(quote(name, safe=""))
    if subresource is not None:
        parts.append(subresource)
    return "/" + "/".join(parts)


def _root(api_version: str) -> str:
    return "apis" if "/" in api_version else "api"


def describe(kind: str, namespace: str | None, name: str) -> str:
    """Return the name of an object for messages: ``StatefulSet shop/kafka``."""
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


def load_configuration(kubeconfig: str | None = None, context: str | None = None) -> Configuration:
    """Return the client configuration of this pod, otherwise that of the kubeconfig.

    Parameters
    ----------
    kubeconfig
        Path of a kubeconfig; None for the service account, otherwise ``$KUBECONFIG`` or the default file.
    context
        Context of the kubeconfig; None for its current one.

    Raises
    ------
    ObservationError
        There is neither a service account nor a usable kubeconfig.
    """
    configuration = Configuration()
    try:
        if kubeconfig is None and context is None:
            try:
                load_incluster_config(client_configuration=configuration)
            except ConfigException:
                load_kube_config(client_configuration=configuration)
        else:
            load_kube_config(config_file=kubeconfig, context=context, client_configuration=configuration)
    except (ConfigException, OSError) as error:
        raise ObservationError(
            "Kubernetes configuration", f"no service account and no usable kubeconfig: {error}"
        ) from error
    return configuration


class KubernetesTransport:
    """Sends requests to one API server; thread-safe.

    The official client provides connection pool, TLS and token refresh.

    Notes
    -----
    ``kubernetes.dynamic.DynamicClient`` is not used: its discovery (``GET /version``,
    ``/apis`` and one request per group) takes no time limit, and its constructor contacts the server.
    Measured: a server that accepts the connection and stays silent blocks the constructor for longer than 40 s.
    A kind that is not installed costs a complete new discovery at each request (``LazyDiscoverer.search``).
    """

    def __init__(self, configuration: Configuration) -> None:
        # By default five for each core: further threads would open a connection for each request.
        configuration.connection_pool_maxsize = max(_CONNECTIONS, configuration.connection_pool_maxsize)
        self._configuration = configuration
        self._client = ApiClient(configuration)
        self._pool: urllib3.PoolManager = self._client.rest_client.pool_manager
        self._auth_lock = threading.Lock()
        self._told: tuple[datetime, float] | None = None
        """The server's clock in its last answer (header ``Date``, RFC 9110), and our own when that came."""

    def server_time(self) -> datetime | None:
        """Return the time by the server's clock, to the second; None before its first answer."""
        told = self._told
        return None if told is None else told[0] + timedelta(seconds=time.monotonic() - told[1])

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = "application/json",
    ) -> Response:
        """Send one request and return the answer, including a refusal.

        Raises
        ------
        urllib3.exceptions.HTTPError
            The server could not be reached, or closed the connection. `read` and `write` translate the error.
        """
        headers = {"Accept": "application/json, */*", "User-Agent": "kraftbridge"}
        with self._auth_lock:  # the token's refresh hook rewrites the configuration
            auth = self._configuration.auth_settings().values()
        headers.update({a["key"]: a["value"] for a in auth if a["in"] == "header" and a["value"]})
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = content_type
        url = self._configuration.host.rstrip("/") + path
        if query:
            url += f"?{urlencode(query)}"
        answer = self._pool.request(
            method,
            url,
            body=data,
            headers=headers,
            timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT_SECONDS, read=READ_TIMEOUT_SECONDS),
            # Only a failed connection attempt is repeated: any other request may have been carried out.
            retries=urllib3.Retry(total=1, connect=1, read=0, redirect=0, status=0, other=0),
        )
        self._note_time(answer.headers.get("Date", ""))
        return Response(answer.status, answer.data.decode("utf-8", "replace"))

    def _note_time(self, date: str) -> None:
        with suppress(ValueError):
            self._told = (parsedate_to_datetime(date).astimezone(UTC), time.monotonic())

    def read(self, source: str, path: str, *, query: Mapping[str, str] | None = None) -> Response | None:
        """GET ``path``; None if it does not exist.

        Raises
        ------
        ObservationError
            Any other answer than success.
        """
        started = time.monotonic()
        try:
            answer = self.send("GET", path, query=query)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ObservationError(source, f"GET failed after {_elapsed(started)}: {_innermost(error)}") from error
        if answer.status == _NOT_FOUND:
            return None
        if not answer.ok:
            reason = f"GET answered {answer.status}: {answer.message}"
            if answer.status == _FORBIDDEN:
                reason += " (grant the operator's service account this read)"
            raise ObservationError(source, reason)
        return answer

    def write(
        self,
        operation: str,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = "application/json",
    ) -> Response:
        """Send a change and return the answer, including a refusal; see `refusal`.

        Raises
        ------
        ActionError
            The server could not be reached, or closed the connection. The change may or may not have happened.
        """
        started = time.monotonic()
        try:
            return self.send(method, path, query=query, body=body, content_type=content_type)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ActionError(f"{operation} failed after {_elapsed(started)}: {_innermost(error)}") from error


def refusal(operation: str, answer: Response) -> MigrationError:
    """Return the error for a refusal."""
    text = f"{operation} answered {answer.status}: {answer.message}"
    if answer.status == _CONFLICT:
        return ConflictError(text)
    # etcd's own limit (1.5 MiB, --max-request-bytes) is reported as an internal error;
    # the API server's limit (3 MiB) as 413.
    if answer.status == _TOO_LARGE or _ETCD_TOO_LARGE in answer.message:
        return TooLargeError(text)
    if answer.status in _REFUSALS and answer.status < _SERVER_ERRORS:
        return ActionRefusedError(text)
    return ActionError(text)


def _elapsed(started: float) -> str:
    return f"{time.monotonic() - started:.1f} s"


def _innermost(error: BaseException) -> str:
    reason = getattr(error, "reason", None)
    return _innermost(reason) if isinstance(reason, BaseException) else f"{type(error).__name__}: {error}"


_TOO_MANY_REQUESTS: Final = 429
_PAGE_OBJECTS: Final = 500
_SERVED_CACHE_SECONDS: Final = 60.0
_NOT_SERVED_CACHE_SECONDS: Final = 10.0
_GRANTED_CACHE_SECONDS: Final = 300.0
_EVENT_NOTE_BYTES: Final = 1024
"""Limit of ``note`` in events.k8s.io/v1."""
_EVENT_REASON_BYTES: Final = 128

Object = dict[str, Any]


class KubernetesStore:
    """Reads and writes objects as plain dicts; thread-safe.

    Reads raise `ObservationError`.
    Writes raise `ActionError` or a subclass: `ConflictError` for 409,
    `ActionRefusedError` for a request that the server would refuse again (400, 403, 422 and so on).
    """

    def __init__(self, transport: KubernetesTransport) -> None:
        self._transport = transport
        self._served: dict[str, tuple[float, frozenset[str]]] = {}
        self._served_lock = threading.Lock()
        self._api_servers: tuple[str, ...] | None = None
        self._granted: dict[tuple[Right, str | None], float] = {}
        """Until when a right that we had is taken for granted."""

    @classmethod
    def connect(cls, kubeconfig: str | None = None, context: str | None = None) -> Self:
        """Return a store for the cluster of this pod, otherwise for the cluster of the kubeconfig."""
        return cls(KubernetesTransport(load_configuration(kubeconfig, context)))

    def close(self) -> None:
        """Close all connections."""
        self._transport.close()

    # -------------------------------------------------------------------------------------------- reads

    def get(self, api_version: str, kind: str, namespace: str | None, name: str) -> Object | None:
        """Return an object, or None if it does not exist.

        The result is also None if the server does not serve the kind; `serves` tells the difference.
        """
        answer = self._transport.read(describe(kind, namespace, name), path_of(api_version, kind, namespace, name))
        return None if answer is None else answer.object()

    def list(
        self, api_version: str, kind: str, namespace: str | None, label_selector: str = "", *, field_selector: str = ""
    ) -> tuple[Object, ...]:
        """Return all objects of a kind that carry the labels and fields, with ``apiVersion`` and ``kind`` filled in.

        Raises
        ------
        ObservationError
            The server did not answer, or does not serve the kind.
        """
        source = f"{kind} objects in {f'namespace {namespace}' if namespace else 'all namespaces'}"
        query = {"limit": str(_PAGE_OBJECTS)}
        if label_selector:
            query["labelSelector"] = label_selector
        if field_selector:
            query["fieldSelector"] = field_selector
        objects: list[Object] = []
        while True:
            answer = self._transport.read(source, path_of(api_version, kind, namespace), query=query)
            if answer is None:
                raise ObservationError(source, f"the API server does not serve {api_version} {kind}")
            page = answer.object()
            if not isinstance(page.get("items"), list):
                raise ObservationError(source, "the answer is no list")
            objects += [{"apiVersion": api_version, "kind": kind, **item} for item in page["items"]]
            following = section(page, "metadata").get("continue")
            if not following:
                return tuple(objects)
            query["continue"] = following

    def server_time(self) -> datetime | None:
        """Return the time by the API server's clock; None before its first answer."""
        return self._transport.server_time()

    def api_servers(self) -> tuple[str, ...]:
        """Return the addresses at which the API server says that it serves, as ``host:port``; asked once.

        Source: ``APIVersions.serverAddressByClientCIDRs``, which the role ``system:discovery`` may read.
        """
        if self._api_servers is None:
            answer = self._transport.read("addresses of the API server", "/api")
            given = [] if answer is None else entries(answer.object(), "serverAddressByClientCIDRs")
            self._api_servers = tuple(str(each["serverAddress"]) for each in given)
        return self._api_servers

    def serves(self, api_version: str, kind: str) -> bool:
        """Return whether the API server serves a kind.

        A positive answer is cached for a minute, a negative one for ten seconds.
        """
        now = time.monotonic()
        with self._served_lock:
            until, kinds = self._served.get(api_version, (0.0, frozenset()))
        if now >= until:
            answer = self._transport.read(f"API {api_version}", f"/{_root(api_version)}/{api_version}")
            resources = [] if answer is None else entries(answer.object(), "resources")
            kinds = frozenset(r["kind"] for r in resources if "/" not in r["name"])
            keep = _SERVED_CACHE_SECONDS if kind in kinds else _NOT_SERVED_CACHE_SECONDS
            with self._served_lock:
                self._served[api_version] = (now + keep, kinds)
        return kind in kinds

    def may(self, right: Right, namespace: str | None) -> bool:
        """Return whether this client has a right (SelfSubjectAccessReview, which every authenticated user may create).

        A positive answer is cached for five minutes.
        If the right is withdrawn in the meantime, the API server refuses the request that needs it.

        Parameters
        ----------
        namespace
            None for cluster-scoped resources, and for the right in all namespaces.
        """
        if time.monotonic() < self._granted.get((right, namespace), 0.0):
            return True
        attributes = {
            "verb": right.verb,
            "group": right.group,
            "resource": right.resource,
            "subresource": right.subresource,
            "namespace": namespace,
        }
        api_version = "authorization.k8s.io/v1"
        source = f"right to {right}"
        review = {
            "apiVersion": api_version,
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {k: v for k, v in attributes.items() if v}},
        }
        try:
            answer = self._transport.write(
                source, "POST", path_of(api_version, "SelfSubjectAccessReview", None), body=review
            )
        except ActionError as error:
            raise ObservationError(source, str(error)) from error
        if not answer.ok:
            raise ObservationError(source, f"SelfSubjectAccessReview answered {answer.status}: {answer.message}")
        allowed = bool(section(answer.object(), "status").get("allowed"))
        if allowed:
            self._granted[right, namespace] = time.monotonic() + _GRANTED_CACHE_SECONDS
        return allowed

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
        """Return the last lines of a container's log, or None if the pod does not exist.

        Parameters
        ----------
        tail_lines
            None: the log from its beginning.
        limit_bytes
            Most that is read.
        previous
            The container's run before the last restart.
        since_seconds
            Omit older lines.
        """
        query = {"container": container, "limitBytes": str(limit_bytes)}
        if tail_lines is not None:
            query["tailLines"] = str(tail_lines)
        if previous:
            query["previous"] = "true"
        if since_seconds is not None:
            query["sinceSeconds"] = str(since_seconds)
        source = f"log of Pod {namespace}/{pod} container {container}"
        answer = self._transport.read(source, path_of("v1", "Pod", namespace, pod, "log"), query=query)
        return None if answer is None else answer.text

    # -------------------------------------------------------------------------------------------- writes

    def create(self, obj: Mapping[str, Any], *, field_manager: str = FIELD_MANAGER) -> Object:
        """Create an object; `ConflictError` if it exists already."""
        namespace, name = _place(obj)
        path = path_of(obj["apiVersion"], obj["kind"], namespace)
        query = {"fieldManager": field_manager}
        return self._change(f"create of {describe(obj['kind'], namespace, name)}", "POST", path, query, obj)

    def apply(self, obj: Mapping[str, Any], *, force: bool = False, field_manager: str = FIELD_MANAGER) -> Object:
        """Apply an object server-side. Afterwards the field manager owns exactly the fields in ``obj``.

        Parameters
        ----------
        force
            Take over fields that other managers own with another value.

        Raises
        ------
        ConflictError
            Other managers own some of the fields. The message lists each field with its manager.
        """
        return self._apply(obj, {"fieldManager": field_manager, "force": str(force).lower()}).object()

    def apply_new(self, obj: Mapping[str, Any], *, force: bool = False, field_manager: str = FIELD_MANAGER) -> Object:
        """Apply server-side an object that does not exist.

        No precondition of the API says "does not exist" for an apply, so the answer tells:
        201 for an object that it created.

        Raises
        ------
        ConflictError
            Somebody has created it meanwhile; it has the fields of ``obj`` as well.
        """
        answer = self._apply(obj, {"fieldManager": field_manager, "force": str(force).lower()})
        if answer.status != HTTPStatus.CREATED:
            raise ConflictError(f"{describe(obj['kind'], *_place(obj))} exists already")
        return answer.object()

    def try_apply(self, obj: Mapping[str, Any]) -> None:
        """Apply an object server-side as a dry run, with force.

        Admission plugins, policies and webhooks answer, and nothing is stored.

        Raises
        ------
        ActionRefusedError
            Admission refuses the object. The message quotes the policy or webhook.
        """
        query = {"fieldManager": FIELD_MANAGER, "force": "true", "dryRun": "All"}
        self._apply(obj, query, "dry run of an apply")

    def _apply(self, obj: Mapping[str, Any], query: Mapping[str, str], what: str = "apply") -> Response:
        namespace, name = _place(obj)
        path = path_of(obj["apiVersion"], obj["kind"], namespace, name)
        operation = f"{what} of {describe(obj['kind'], namespace, name)}"
        return self._send(operation, "PATCH", path, query, obj, "application/apply-patch+yaml")

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
        """Patch an object by JSON merge patch (RFC 7386).

        Parameters
        ----------
        resource_version
            Patch only this version; `ConflictError` if the object has changed.
        """
        path = path_of(api_version, kind, namespace, name, subresource)
        operation = f"merge patch of {describe(kind, namespace, name)}"
        query = {"fieldManager": field_manager}
        body = _at_version(patch, resource_version)
        return self._change(operation, "PATCH", path, query, body, "application/merge-patch+json")

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
        """Patch a built-in object with a strategic merge patch (lists merge by key) as ``field_manager``."""
        path = path_of(api_version, kind, namespace, name)
        operation = f"strategic patch of {describe(kind, namespace, name)}"
        query = {"fieldManager": field_manager}
        body = _at_version(patch, resource_version)
        return self._change(operation, "PATCH", path, query, body, "application/strategic-merge-patch+json")

    def replace_status(
        self, api_version: str, kind: str, namespace: str, name: str, status: Mapping[str, Any], resource_version: str
    ) -> Object:
        """Replace the whole status if the object is still at ``resource_version``.

        Raises
        ------
        ConflictError
            The object changed since it was read.
        """
        # only a JSON patch replaces the status whole; the server compares the resourceVersion of the patched object
        # with the stored one and answers 409, where an operation "test" would give an unspecific 422
        patch = [
            {"op": "replace", "path": "/metadata/resourceVersion", "value": resource_version},
            {"op": "add", "path": "/status", "value": status},
        ]
        path = path_of(api_version, kind, namespace, name, "status")
        operation = f"status update of {describe(kind, namespace, name)}"
        query = {"fieldManager": FIELD_MANAGER}
        return self._change(operation, "PATCH", path, query, patch, "application/json-patch+json")

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
        """Delete an object. An object that does not exist, or has another UID, is no error.

        Raises
        ------
        ConflictError
            The object is no longer at ``resource_version``.
        """
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        wanted = {"uid": uid, "resourceVersion": resource_version}
        if preconditions := {k: v for k, v in wanted.items() if v is not None}:
            options["preconditions"] = preconditions
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        operation = f"delete of {describe(kind, namespace, name)}"
        answer = self._transport.write(operation, "DELETE", path_of(api_version, kind, namespace, name), body=options)
        if not answer.ok and not self._is_gone(answer, api_version, kind, namespace, name, uid):
            raise refusal(operation, answer)

    def evict(self, namespace: str, pod: str, uid: str, grace_seconds: int) -> None:
        """Evict exactly this pod if PodDisruptionBudgets allow it. A missing or terminating pod is no error.

        The method reads the pod first.
        The server charges the budget before it compares the UID (seen in 1.34),
        so an eviction with the UID of the pod's predecessor would block the next eviction.

        Parameters
        ----------
        grace_seconds
            Minimum grace period.
            A longer ``terminationGracePeriodSeconds`` of the pod wins;
            without this rule, an eviction's ``gracePeriodSeconds`` would replace it.

        Raises
        ------
        EvictionBlockedError
            A PodDisruptionBudget does not allow the eviction now. The message is the server's and names the budget.
        """
        operation = f"eviction of Pod {namespace}/{pod}"
        try:
            present = self.get("v1", "Pod", namespace, pod)
        except ObservationError as error:
            raise ActionError(f"{operation} was not tried: {error}") from error
        if not _is_object(present, uid) or present["metadata"].get("deletionTimestamp"):
            return
        grace_seconds = max(grace_seconds, section(present, "spec").get("terminationGracePeriodSeconds") or 0)
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}, "gracePeriodSeconds": grace_seconds},
        }
        answer = self._transport.write(
            operation, "POST", path_of("v1", "Pod", namespace, pod, "eviction"), body=eviction
        )
        if answer.ok or self._is_gone(answer, "v1", "Pod", namespace, pod, uid):
            return
        budgets = answer.causes("DisruptionBudget")
        if answer.status == _TOO_MANY_REQUESTS and budgets:  # without a budget, 429 is the server's own throttling
            words = "; ".join(c.get("message", "") for c in budgets)
            raise EvictionBlockedError(f"{operation} is not allowed now: {answer.message} {words}")
        raise refusal(operation, answer)

    def create_event(self, regarding: Mapping[str, Any], event: Event) -> None:
        """Post an event about an object; note and reason are truncated to the API's limits."""
        metadata = regarding["metadata"]
        now = datetime.now(UTC)
        body = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "name": f"{metadata['name'][:230]}.{int(now.timestamp() * 1e6):x}",
                "namespace": metadata["namespace"],
            },
            "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "type": event.type.value,
            "reason": _cut(event.reason.value, _EVENT_REASON_BYTES),
            "action": _cut(event.reason.value, _EVENT_REASON_BYTES),
            "note": _cut(visible_lines(event.message), _EVENT_NOTE_BYTES),
            "reportingController": FIELD_MANAGER,
            "reportingInstance": FIELD_MANAGER,
            "regarding": {
                "apiVersion": regarding["apiVersion"],
                "kind": regarding["kind"],
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata["uid"],
            },
        }
        operation = f"event about {describe(regarding['kind'], metadata['namespace'], metadata['name'])}"
        path = path_of("events.k8s.io/v1", "Event", metadata["namespace"])
        self._change(operation, "POST", path, {}, body)

    def _change(
        self,
        operation: str,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: object,
        content_type: str = "application/json",
    ) -> Object:
        return self._send(operation, method, path, query, body, content_type).object()

    def _send(
        self, operation: str, method: str, path: str, query: Mapping[str, str], body: object, content_type: str
    ) -> Response:
        answer = self._transport.write(operation, method, path, query=query, body=body, content_type=content_type)
        if not answer.ok:
            raise refusal(operation, answer)
        return answer

    def _is_gone(
        self, answer: Response, api_version: str, kind: str, namespace: str | None, name: str, uid: str | None
    ) -> bool:
        """Return whether the server refused the request because the object does not exist."""
        if answer.status == _NOT_FOUND:
            return True
        if answer.status != _CONFLICT or uid is None:
            return False
        try:
            present = self.get(api_version, kind, namespace, name)
        except ObservationError as error:
            raise ConflictError(f"{answer.message} (and then {error})") from error
        return not _is_object(present, uid)


def _is_object(present: Object | None, uid: str) -> TypeGuard[Object]:
    return present is not None and present["metadata"]["uid"] == uid


def _at_version(patch: Mapping[str, Any], resource_version: str | None) -> Object:
    """Return a patch that the API server refuses where the object is no longer at this version."""
    if resource_version is None:
        return dict(patch)
    return {**patch, "metadata": {**patch.get("metadata", {}), "resourceVersion": resource_version}}


def _place(obj: Mapping[str, Any]) -> tuple[str | None, str]:
    metadata = obj["metadata"]
    return metadata.get("namespace"), metadata["name"]


def _cut(text: str, limit_bytes: int) -> str:
    data = text.encode()
    if len(data) <= limit_bytes:
        return text
    return data[: limit_bytes - 3].decode("utf-8", "ignore") + "…"
