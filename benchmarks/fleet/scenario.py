"""One operator process with a fleet of migrations, measured from inside. It runs in its own process."""

from __future__ import annotations

import json
import os
import resource
import socket
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import kopf
from kubernetes.config import kube_config
from tests.support.http_api import HttpApi

from benchmarks.fleet.api import POLICY, Clusters, FleetApi
from kraftbridge.config import Settings
from kraftbridge.constants import KIND
from kraftbridge.handlers import startup
from kraftbridge.services import reconcile
from kraftbridge.services.clients import ClusterClients, open_clients
from kraftbridge.services.observe import observer

SILENT_SECONDS: Final = 10.0
"""How long the name server does not answer for the silent clusters."""
AT_REST_SECONDS: Final = 4.0
"""A migration that is looked at less often than this has nothing left to do."""
_NO_CHANGE: Final = ("/selfsubjectaccessreviews",)
"""Requests by POST that change nothing."""
Step = tuple[str, float, float]
"""Namespace, seconds from due to begun, seconds from begun to done."""


class Scenario:
    """A fleet and the operator that drives it.

    Parameters
    ----------
    idle, unreachable, rolling
        How many migrations of each kind.
    """

    def __init__(self, idle: int, unreachable: int, rolling: int) -> None:
        self.idle, self.unreachable, self.rolling = idle, unreachable, rolling
        self.store = FleetApi()
        self.clusters = Clusters(self.store)
        self.api = HttpApi(self.store)
        self.steps: list[Step] = []
        self.health: list[float] = []
        self.not_ours: list[threading.Thread] = []
        """Threads of fakes and of the measurement: their processor time is not the operator's."""
        self._stop = threading.Event()

    def run(self, settle_seconds: float, seconds: float) -> dict[str, Any]:
        """Create the fleet, wait until it is idle, measure it idle, then beside rolling migrations."""
        self._configure()
        self.clusters.surroundings()
        with self.api.running():
            self.not_ours += [t for t in threading.enumerate() if t.name == "fake API server"]
            kubeconfig = Path(tempfile.mkdtemp()) / "config"
            self.api.write_kubeconfig(kubeconfig)
            os.environ["KUBECONFIG"] = str(kubeconfig)
            kube_config.KUBE_CONFIG_DEFAULT_LOCATION = str(kubeconfig)
            if self.idle:
                self._make_idle()
            for i in range(self.unreachable):
                zookeeper = {"connect": f"zk-{i}.unreachable.invalid:2181"}
                brokers = {
                    "statefulSets": [{"name": "kafka"}],
                    "bootstrapServers": f"kafka-{i}.unreachable.invalid:9092",
                }
                self.clusters.add(f"gone-{i}", zookeeper=zookeeper, brokers=brokers)
            operator = threading.Thread(target=self._operate, name="operator", daemon=True)
            operator.start()
            self._begin("probe the health endpoint", self._probe)
            report: dict[str, Any] = {"idle": self.idle, "unreachable": self.unreachable, "rolling": self.rolling}
            if self.idle or self.unreachable:
                time.sleep(settle_seconds)
                report |= self._at_rest(seconds)
            if self.rolling:
                report |= self._rolling(seconds)
            report["rss_mib"] = _rss_mib()
            report["health_max_seconds"] = max(self.health, default=None)
            self._stop.set()
            operator.join(30)
            return report

    # --------------------------------------------------------------------------------------------- parts

    def _at_rest(self, seconds: float) -> dict[str, Any]:
        writes, busy, steps = len(self.api.writes), self._cpu(), len(self.steps)
        started = time.monotonic()
        time.sleep(seconds)
        elapsed = time.monotonic() - started
        changed = [w for w in self.api.writes[writes:] if not w[1].endswith(_NO_CHANGE)]
        taken = Counter(namespace.partition("-")[0] for namespace, *_ in self.steps[steps:])
        return {
            "rest_cpu_percent": round(100 * (self._cpu() - busy) / elapsed, 2),
            "rest_writes": len(changed),
            "rest_written": Counter(path for _, path in changed).most_common(5),
            "rest_steps": dict(taken),
            "rest_rss_mib": _rss_mib(),
        }

    def _rolling(self, seconds: float) -> dict[str, Any]:
        for i in range(self.rolling):
            self.clusters.add(f"roll-{i}", target="KRaftBrokers")
        self._begin("let them roll for ever", self._turn)
        time.sleep(seconds / 4)
        steps = len(self.steps)
        time.sleep(seconds)
        measured = [(lag, took) for namespace, lag, took in self.steps[steps:] if namespace.startswith("roll-")]
        lags, durations = sorted(lag for lag, _ in measured), sorted(took for _, took in measured)
        both = sorted(lag + took for lag, took in measured)
        phases = Counter(
            str(o.get("status", {}).get("phase")) for (k, ns, _), o in list(self.store.objects.items())
            if k == KIND and str(ns).startswith("roll-")
        )  # fmt: skip
        return {
            "roll_steps": len(both),
            "roll_phases": dict(phases),
            "roll_step_p50_ms": _quantile(both, 0.5),
            "roll_step_p99_ms": _quantile(both, 0.99),
            "roll_lag_p99_ms": _quantile(lags, 0.99),
            "roll_duration_p99_ms": _quantile(durations, 0.99),
        }

    def _make_idle(self) -> None:
        """Walk one migration to Completed, and copy it."""
        self.clusters.add("idle-0", target="KRaft")
        settings = Settings()
        reconciler = reconcile.Reconciler(self.store, settings, lambda _k, ns, *_: self._connections(ns))
        until = time.monotonic() + 300
        while self._phase("idle-0") != "Completed" or reconciler.due_in(self._uid("idle-0")) < AT_REST_SECONDS:
            if time.monotonic() > until:
                raise TimeoutError(
                    f"idle-0 is in {self._phase('idle-0')}: {self.store.objects[KIND, 'idle-0', 'demo']['status']}"
                )
            self.store.settle()
            reconciler.step("idle-0", "demo")
            time.sleep(max(0.0, min(reconciler.due_in(self._uid("idle-0")), 0.3)))
        reconciler.close()
        for i in range(1, self.idle):
            self.clusters.clone("idle-0", f"idle-{i}", i)

    def _turn(self) -> None:
        """Send each migration back when it arrives, and then forward again."""
        while not self._stop.wait(0.3):
            with self.store._lock:  # noqa: SLF001 - a fake's own lock
                self.store.settle()
            for i in range(self.rolling):
                place = (KIND, f"roll-{i}", "demo")
                spec, phase = self.store.objects[place]["spec"], self._phase(f"roll-{i}")
                if phase == "AwaitingFinalization" and spec["target"] == "KRaftBrokers":
                    self.store.merge_patch("", *place, {"spec": {"target": "ZooKeeper"}})
                elif phase == "RolledBack" and spec["target"] == "ZooKeeper":
                    self.store.merge_patch("", *place, {"spec": {"target": "KRaftBrokers"}})

    def _operate(self) -> None:
        kopf.run(standalone=True, clusterwide=True, stop_flag=self._stop)

    def _probe(self) -> None:
        url = f"http://127.0.0.1:{os.environ['KRAFTBRIDGE_LIVENESS_PORT']}/healthz"
        while not self._stop.wait(0.5):
            started = time.monotonic()
            try:
                with urllib.request.urlopen(url, timeout=30) as answer:
                    answer.read()
            except OSError:
                if not self.health:
                    continue  # it does not listen yet
            self.health.append(time.monotonic() - started)

    # ------------------------------------------------------------------------------------------- machinery

    def _configure(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        os.environ |= {
            "KRAFTBRIDGE_OPERATOR_IMAGE": "operator:bench",
            "KRAFTBRIDGE_VERIFIER_IMAGE": "verifier:bench",
            "KRAFTBRIDGE_ADMISSION_POLICY": POLICY,
            "KRAFTBRIDGE_METRICS_PORT": "0",
            "KRAFTBRIDGE_LIVENESS_PORT": str(port),
            "KRAFTBRIDGE_MAX_CONCURRENT_ROLLS": str(max(self.rolling, 1)),
        }
        os.environ.pop("KUBERNETES_SERVICE_HOST", None)
        resolve = socket.getaddrinfo

        def silent(host: Any, *arguments: Any, **options: Any) -> Any:
            if str(host).endswith(".invalid") or "unreachable" in str(host):
                time.sleep(SILENT_SECONDS)
                raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
            return resolve(host, *arguments, **options)

        socket.getaddrinfo = silent
        observer.read_controller_metrics = self.clusters.metrics  # type: ignore[assignment,attr-defined]
        step, scenario = reconcile.Reconciler.step, self

        def noted(self: reconcile.Reconciler, namespace: str, name: str) -> Any:
            memory = self._memories.get(scenario._uid(namespace))
            begun = time.monotonic()
            lag = 0.0 if memory is None or not memory.requeue_at else max(0.0, begun - memory.requeue_at)
            try:
                return step(self, namespace, name)
            finally:
                scenario.steps.append((namespace, lag, time.monotonic() - begun))

        reconcile.Reconciler.step = noted  # type: ignore[method-assign]

        def reconciler(kubernetes: Any, settings: Any) -> reconcile.Reconciler:
            def connections(store: Any, namespace: str, *rest: Any) -> ClusterClients:
                if namespace.startswith("gone-"):
                    return open_clients(store, namespace, *rest)
                return self._connections(namespace)

            return reconcile.Reconciler(kubernetes, settings, connections)

        startup.Reconciler = reconciler  # type: ignore[assignment,attr-defined]

    def _connections(self, namespace: str) -> ClusterClients:
        kafka = self.clusters.kafka[namespace]
        return ClusterClients(kafka, kafka, kafka)

    def _begin(self, name: str, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        self.not_ours.append(thread)

    def _cpu(self) -> float:
        """Return the processor time of the process without the threads that are not the operator's, in seconds."""
        others = (
            time.clock_gettime(time.pthread_getcpuclockid(t.ident)) for t in self.not_ours if t.ident and t.is_alive()
        )
        return time.process_time() - sum(others)

    def _phase(self, namespace: str) -> str:
        return str(self.store.objects[KIND, namespace, "demo"].get("status", {}).get("phase"))

    def _uid(self, namespace: str) -> str:
        return str(self.store.objects[KIND, namespace, "demo"]["metadata"]["uid"])


def _quantile(ordered: list[float], part: float) -> float | None:
    return round(1000 * ordered[min(len(ordered) - 1, int(part * len(ordered)))], 1) if ordered else None


def _rss_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * resource.getpagesize() / 2**20, 1)


if __name__ == "__main__":
    numbers = [int(a) for a in sys.argv[1:4]]
    print(json.dumps(Scenario(*numbers).run(float(sys.argv[4]), float(sys.argv[5]))))
    sys.stdout.flush()
    os._exit(0)  # threads that wait for a silent name server would hold the end up
