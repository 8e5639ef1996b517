"""Questions to the API server that pass through to another port."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from kraftbridge.models.survey import Right
from kraftbridge.storage.ports import LOG_BYTES, Object, ReadPort


class ReadThrough:
    """Keeps to `kraftbridge.storage.ports.ReadPort` by asking another port."""

    def __init__(self, kubernetes: ReadPort) -> None:
        self._reads = kubernetes

    def get(self, api_version: str, kind: str, namespace: str | None, name: str) -> Object | None:
        """Return an object, or None if it does not exist."""
        return self._reads.get(api_version, kind, namespace, name)

    def list(
        self, api_version: str, kind: str, namespace: str | None, label_selector: str = "", *, field_selector: str = ""
    ) -> tuple[Object, ...]:
        """Return all objects of a kind with these labels and fields."""
        return self._reads.list(api_version, kind, namespace, label_selector, field_selector=field_selector)

    def server_time(self) -> datetime | None:
        """Return the time by the API server's clock; None before its first answer."""
        return self._reads.server_time()

    def api_servers(self) -> tuple[str, ...]:
        """Return the addresses at which the API server says that it serves, as ``host:port``."""
        return self._reads.api_servers()

    def serves(self, api_version: str, kind: str) -> bool:
        """Return whether the API server serves a kind."""
        return self._reads.serves(api_version, kind)

    def may(self, right: Right, namespace: str | None) -> bool:
        """Return whether this client has a right, as the API server answers."""
        return self._reads.may(right, namespace)

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
        """Return the last lines of a container's log, or None if the pod does not exist."""
        return self._reads.pod_logs(
            namespace,
            pod,
            container,
            tail_lines,
            previous=previous,
            since_seconds=since_seconds,
            limit_bytes=limit_bytes,
        )

    def try_apply(self, obj: Mapping[str, Any]) -> None:
        """Apply server-side as a dry run: admission answers, and nothing is stored."""
        self._reads.try_apply(obj)
