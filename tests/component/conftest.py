"""The operator as its process runs it (kopf, handlers, Kubernetes client), against an API server in this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import hypothesis  # noqa: F401 - its plugin imports it at the very end, when CPython 3.11 may fail to compile it (gh-106905)
import kopf
import pytest
from kubernetes.config import kube_config
from tests.support.fakes import (
    FaithfulDryStarts,
    FakeKafka,
    FakeKubernetes,
    fake_clients,
    migration_object,
    surroundings,
    user_stateful_set,
)
from tests.support.http_api import HttpApi
from tests.support.observations import spec_document
from tests.support.programs import free_port

from kraftbridge import handlers
from kraftbridge.constants import KIND
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.services import reconcile
from kraftbridge.services.clients import ClusterClients, open_clients
from kraftbridge.services.observe import observer
from kraftbridge.storage.ports import KubernetesPort

POLICY = "kraftbridge-policy"
READY_SECONDS = 60.0


class RealClock:
    """The time of day, with a fake clock's face."""

    @property
    def now(self) -> datetime:
        return datetime.now(UTC)


@dataclass
class OperatorProcess:
    """kopf on a thread: starts and stops as the process does."""

    thread: threading.Thread | None = None
    stop_flag: threading.Event = field(default_factory=threading.Event)
    failure: list[BaseException] = field(default_factory=list)

    def start(self) -> None:
        """Start it and wait until it watches."""
        self.stop_flag = threading.Event()
        ready = threading.Event()

        def run() -> None:
            try:
                kopf.run(standalone=True, namespaces=["kafka"], stop_flag=self.stop_flag, ready_flag=ready)
            except BaseException as e:  # noqa: BLE001 - told by stop()
                self.failure.append(e)

        self.thread = threading.Thread(target=run, name="operator", daemon=True)
        self.thread.start()
        if not ready.wait(READY_SECONDS):
            self.stop_flag.set()
            raise AssertionError(f"the operator does not start: {self.failure}")

    def stop(self) -> None:
        """Stop it, and tell of anything that it died of."""
        self.stop_flag.set()
        assert self.thread is not None
        self.thread.join(READY_SECONDS)
        assert not self.thread.is_alive(), "the operator does not stop"
        assert self.failure == []


@dataclass
class Cluster:
    """API server, Kafka and operator."""

    store: FakeKubernetes
    api: HttpApi
    kafka: FakeKafka
    operator: OperatorProcess
    health_url: str
    dry_starts: FaithfulDryStarts

    def create(self, name: str, **changes: Any) -> None:
        """Create a migration."""
        document = spec_document(strategy={"addressCacheSeconds": 0}) | changes
        document.setdefault("controllers", {})
        self.store.create(migration_object(document, name=name))

    def migration(self, name: str) -> dict[str, Any] | None:
        """Return a migration as stored, None when it is gone."""
        return self.store.objects.get((KIND, "kafka", name))

    def status(self, name: str) -> dict[str, Any]:
        """Return its status."""
        found: dict[str, Any] = (self.migration(name) or {}).get("status", {})
        return found

    def condition(self, name: str, kind: str) -> tuple[str, str]:
        """Return status and reason of a condition."""
        return next(
            ((c["status"], c["reason"]) for c in self.status(name).get("conditions", []) if c["type"] == kind), ("", "")
        )

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Let the cluster's own controllers work while this thread waits elsewhere."""
        over = threading.Event()

        def settle() -> None:
            while not over.wait(0.1):
                with self.store._lock:
                    self.store.settle()

        thread = threading.Thread(target=settle, name="cluster", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(READY_SECONDS)

    def eventually(self, what: Callable[[], Any], seconds: float = 90.0) -> Any:
        """Wait until something is true; return it."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with self.store._lock:
                self.store.settle()  # a rehearsal's pod goes on by itself, without a write of the operator
            if found := what():
                return found
            time.sleep(0.05)
        raise AssertionError(
            f"not within {seconds} s; migrations: { {k[2]: o.get('status', {}).get('message') for k, o in self.store.objects.items() if k[0] == KIND} }"
        )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    clock: Any = RealClock()
    store = FakeKubernetes(clock)
    kafka = FakeKafka(store, clock)
    store.create(user_stateful_set())
    for obj in surroundings():
        store.create(obj)
    store.create({"kind": "Namespace", "metadata": {"name": "kafka"}})
    for kind in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"):
        store.create({"kind": kind, "metadata": {"name": POLICY}})
    api = HttpApi(store)
    with pytest.MonkeyPatch.context() as patch, api.running():
        kubeconfig: Path = tmp_path_factory.mktemp("kube") / "config"
        api.write_kubeconfig(kubeconfig)
        patch.setenv("KUBECONFIG", str(kubeconfig))
        # The client reads the variable when it is imported.
        patch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(kubeconfig))
        patch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        patch.setenv("KRAFTBRIDGE_OPERATOR_IMAGE", "operator:test")
        patch.setenv("KRAFTBRIDGE_VERIFIER_IMAGE", "verifier:test")
        patch.setenv("KRAFTBRIDGE_ADMISSION_POLICY", POLICY)
        patch.setenv("KRAFTBRIDGE_METRICS_PORT", "0")
        health_port = free_port()
        patch.setenv("KRAFTBRIDGE_LIVENESS_PORT", str(health_port))
        patch.setattr(observer, "read_controller_metrics", kafka.metrics)

        def connections(
            store: KubernetesPort, namespace: str, name: str, spec: MigrationSpec, *rest: Any
        ) -> ClusterClients:
            if ".invalid" in spec.brokers.bootstrap_servers:
                return open_clients(store, namespace, name, spec, *rest)
            return fake_clients(kafka)

        dry_starts = FaithfulDryStarts(kafka)

        def reconciler(kubernetes: Any, settings: Any) -> reconcile.Reconciler:
            return reconcile.Reconciler(kubernetes, settings, connections, dry_starts)

        patch.setattr(handlers, "Reconciler", reconciler)
        operator = OperatorProcess()
        operator.start()
        running = Cluster(store, api, kafka, operator, f"http://127.0.0.1:{health_port}/healthz", dry_starts)
        yield running
        operator.stop()
