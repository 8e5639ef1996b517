"""The operator process of the fleet benchmark: the operator itself, with clients that ask the process of the fakes."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import kopf
from kubernetes.config import kube_config
from typing_extensions import override

from benchmarks.fleet.remote import HONEST, WIRED, connect, namespace_of
from kraftbridge import handlers
from kraftbridge.exceptions import ObservationError
from kraftbridge.metadata.log.files import LocalLogFiles
from kraftbridge.models.observation import ControllerMetrics
from kraftbridge.services import reconcile
from kraftbridge.services.clients import ClusterClients, open_clients
from kraftbridge.services.observe import observer

SILENT_SECONDS: Final = 10.0
"""How long the name server does not answer for the silent clusters."""

_METADATA_LOG: Final = Path(__file__).resolve().parents[2] / "tests" / "data" / "metadata" / "dualwrite" / "c3000"


class _Log(LocalLogFiles):
    """The metadata log of a controller, of which the operator keeps a copy at each gate."""

    def close(self) -> None:
        """There is nothing to close."""


class RemoteKafka:
    """ZooKeeper, brokers and controllers of one migration; every method asks the fakes."""

    def __init__(self, surroundings: Any, namespace: str) -> None:
        self._surroundings, self._namespace = surroundings, namespace

    def __getattr__(self, question: str) -> Callable[..., Any]:
        return lambda *arguments: _answer(self._surroundings.ask(self._namespace, question, arguments))

    def close(self) -> None:
        """Nothing is open."""


class OverTheWire(RemoteKafka):
    """Asks the questions whose answers grow with the cluster over real sockets, and the fakes all others."""

    def __init__(self, surroundings: Any, namespace: str, wired: Any, questions: frozenset[str]) -> None:
        super().__init__(surroundings, namespace)
        self._wired, self._questions = wired, questions

    @override
    def __getattr__(self, question: str) -> Callable[..., Any]:
        if question in self._questions:
            found: Callable[..., Any] = getattr(self._wired, question)
            return found
        return super().__getattr__(question)

    @override
    def close(self) -> None:
        self._wired.close()


_OF_ZOOKEEPER: Final = frozenset({"observe", "acls", "users", "payloads", "broker_session_count"})
_OF_BROKERS: Final = frozenset({"cluster_state", "cluster_by_broker", "topic_redundancy", "visibility"})
_OF_RECORDS: Final = frozenset({"offsets", "offsets_now"})


def _answer(found: tuple[bool, Any]) -> Any:
    answered, value = found
    if not answered:
        raise ObservationError(*value)
    return value


class NotedReconciler(reconcile.Reconciler):
    """Appends a line per step to a file: namespace, time of its begin, seconds from due to begun, seconds from begun to done."""

    surroundings: Any
    steps: int
    """File descriptor."""
    _uids: dict[str, str] = {}

    @override
    def step(self, namespace: str, name: str) -> Any:
        if namespace not in self._uids:
            self._uids[namespace] = self.surroundings.uid(namespace)
        memory = self._memories.get(self._uids[namespace])
        begun = time.monotonic()
        lag = 0.0 if memory is None or not memory.requeue_at else max(0.0, begun - memory.requeue_at)
        try:
            return super().step(namespace, name)
        finally:
            line = json.dumps([namespace, begun, lag, time.monotonic() - begun]) + "\n"
            os.write(self.steps, line.encode())


def main(directory: Path) -> None:
    """Run the operator until the process is killed."""
    surroundings = connect(directory)
    kube_config.KUBE_CONFIG_DEFAULT_LOCATION = os.environ["KUBECONFIG"] = str(directory / "kubeconfig")
    os.environ.pop("KUBERNETES_SERVICE_HOST", None)
    resolve = socket.getaddrinfo

    def silent(host: Any, *arguments: Any, **options: Any) -> Any:
        if str(host).endswith(".invalid") or "unreachable" in str(host):
            time.sleep(SILENT_SECONDS)
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return resolve(host, *arguments, **options)

    def metrics(node_id: int, address: str, **_options: Any) -> ControllerMetrics:
        found: ControllerMetrics = _answer(surroundings.metrics(node_id, address))
        return found

    def connections(store: Any, namespace: str, *rest: Any) -> ClusterClients:
        if namespace.startswith(WIRED):
            return open_clients(store, namespace, *rest)
        kafka = RemoteKafka(surroundings, namespace)

        def log(*_: str) -> _Log:
            return _Log(_METADATA_LOG)

        def reached(*asked: Any) -> list[str]:
            return [""] * len(asked[-1])

        if namespace == namespace_of(HONEST):
            opened = open_clients(store, namespace, *rest)
            wired = partial(OverTheWire, surroundings, namespace)
            return ClusterClients(
                wired(opened.zookeeper, _OF_ZOOKEEPER),
                wired(opened.brokers, _OF_BROKERS),
                kafka,
                lambda: wired(opened.broker_records(), _OF_RECORDS),
                open_log=log,
                try_paths=reached,
            )
        return ClusterClients(kafka, kafka, kafka, lambda: kafka, open_log=log, try_paths=reached)

    socket.getaddrinfo = silent
    observer.read_controller_metrics = metrics  # type: ignore[assignment,attr-defined]
    NotedReconciler.surroundings = surroundings
    NotedReconciler.steps = os.open(directory / "steps", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    handlers.Reconciler = lambda k, s: NotedReconciler(k, s, connections)  # type: ignore[assignment,attr-defined,misc]
    kopf.run(standalone=True, clusterwide=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
