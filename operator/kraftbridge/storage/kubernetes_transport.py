"""HTTP requests to the Kubernetes API server: URLs of objects, time limits, and the translation of errors."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode

import urllib3
from kubernetes.client import ApiClient, Configuration
from kubernetes.config import ConfigException, load_incluster_config, load_kube_config

from kraftbridge.exceptions import (
    ActionError,
    ActionRefusedError,
    ConflictError,
    MigrationError,
    ObservationError,
    TooLargeError,
)

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
            parsed = json.loads(self.text)
        except ValueError:
            return {}
        return parsed if isinstance(parsed, dict) else {}

    def causes(self, reason: str | None = None) -> list[dict[str, str]]:
        """Return the causes of a ``metav1.Status``, of one reason or all."""
        causes = (self.object().get("details") or {}).get("causes") or []
        return [c for c in causes if reason is None or c.get("reason") == reason]

    @property
    def message(self) -> str:
        """The server's message in one line."""
        status = self.object()
        message = str(status.get("message") or self.text[:500].strip() or "no message")
        conflicts = [f"{c.get('field')}: {c.get('message')}" for c in self.causes("FieldManagerConflict")]
        return message if not conflicts else f"{len(conflicts)} field(s) of other managers: " + "; ".join(conflicts)


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
    parts = ["apis" if "/" in api_version else "api", api_version]
    if namespace:
        parts += ["namespaces", quote(namespace, safe="")]
    parts.append(PLURALS[kind])
    if name is not None:
        parts.append(quote(name, safe=""))
    if subresource is not None:
        parts.append(subresource)
    return "/" + "/".join(parts)


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
    except (ConfigException, OSError) as e:
        raise ObservationError("Kubernetes configuration", f"no service account and no usable kubeconfig: {e}") from e
    return configuration


class KubernetesTransport:
    """Sends requests to one API server; thread-safe.

    The official client provides connection pool, TLS and token refresh.

    Notes
    -----
    ``kubernetes.dynamic.DynamicClient`` is not used: its discovery (``GET /version``, ``/apis`` and one request per group) takes no time
    limit, and its constructor contacts the server. Measured: a server that accepts the connection and stays silent blocks the constructor
    for longer than 40 s. A kind that is not installed costs a complete new discovery at each request (``LazyDiscoverer.search``).
    """

    def __init__(self, configuration: Configuration) -> None:
        # By default five for each core: further threads would open a connection for each request.
        configuration.connection_pool_maxsize = max(_CONNECTIONS, configuration.connection_pool_maxsize)
        self._configuration = configuration
        self._client = ApiClient(configuration)
        self._pool: urllib3.PoolManager = self._client.rest_client.pool_manager
        self._auth_lock = threading.Lock()

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
        url = self._configuration.host.rstrip("/") + path + (f"?{urlencode(query)}" if query else "")
        answer = self._pool.request(
            method,
            url,
            body=data,
            headers=headers,
            timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT_SECONDS, read=READ_TIMEOUT_SECONDS),
            # Only a failed connection attempt is repeated: any other request may have been carried out.
            retries=urllib3.Retry(total=1, connect=1, read=0, redirect=0, status=0, other=0),
        )
        return Response(answer.status, answer.data.decode("utf-8", "replace"))

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
        except (urllib3.exceptions.HTTPError, OSError) as e:
            raise ObservationError(source, f"GET failed after {_elapsed(started)}: {_innermost(e)}") from e
        if answer.status == _NOT_FOUND:
            return None
        if not answer.ok:
            advice = " (grant the operator's service account this read)" if answer.status == _FORBIDDEN else ""
            raise ObservationError(source, f"GET answered {answer.status}: {answer.message}{advice}")
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
        except (urllib3.exceptions.HTTPError, OSError) as e:
            raise ActionError(f"{operation} failed after {_elapsed(started)}: {_innermost(e)}") from e


def refusal(operation: str, answer: Response) -> MigrationError:
    """Return the error for a refusal."""
    text = f"{operation} answered {answer.status}: {answer.message}"
    if answer.status == _CONFLICT:
        return ConflictError(text)
    # etcd's own limit (1.5 MiB, --max-request-bytes) is reported as an internal error; the API server's limit (3 MiB) as 413.
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
