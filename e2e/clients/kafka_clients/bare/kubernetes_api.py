"""The Kubernetes API from inside a pod, with the standard library only."""

import json
import ssl
import urllib.error
import urllib.request
from http import HTTPStatus
from pathlib import Path
from typing import Any

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
FIELD_MANAGER = "bare-migration"


class ApiError(Exception):
    """The API server refused a request."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class KubernetesApi:
    """Objects of this pod's own namespace."""

    def __init__(self) -> None:
        self.namespace = (SERVICE_ACCOUNT / "namespace").read_text()
        self._tls = ssl.create_default_context(cafile=str(SERVICE_ACCOUNT / "ca.crt"))

    def get(self, kind: str, name: str) -> dict[str, Any] | None:
        """Return an object, or None if there is none."""
        try:
            return self._call("GET", self._path(kind, name))
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise

    def apply(self, kind: str, name: str, body: dict[str, Any], *, force: bool = False) -> None:
        """Server-side apply under our own field manager."""
        query = f"?fieldManager={FIELD_MANAGER}&force={str(force).lower()}"
        self._call("PATCH", self._path(kind, name) + query, body, APPLY)

    def merge(self, kind: str, name: str, body: dict[str, Any]) -> None:
        """Merge-patch an object."""
        self._call("PATCH", self._path(kind, name) + f"?fieldManager={FIELD_MANAGER}", body, MERGE)

    def delete_pod(self, name: str, uid: str) -> None:
        """Delete this very pod, not a successor of the same name."""
        self._call("DELETE", self._path("pods", name), {"preconditions": {"uid": uid}})

    def _path(self, kind: str, name: str) -> str:
        group = "apis/apps/v1" if kind == "statefulsets" else "api/v1"
        return f"/{group}/namespaces/{self.namespace}/{kind}/{name}"

    def _call(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> dict[str, Any]:
        request = urllib.request.Request(
            f"https://kubernetes.default.svc{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                # Read again each time: bound tokens are rotated.
                "Authorization": f"Bearer {(SERVICE_ACCOUNT / 'token').read_text()}",
                "Content-Type": content_type,
                "Accept": "application/json",
            },
        )
        try:
            with urllib.request.urlopen(request, context=self._tls, timeout=30) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            raise ApiError(error.code, f"{method} {path}: {json.load(error).get('message')}") from error
