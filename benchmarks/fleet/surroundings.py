"""The fake API server and Kafka clusters of a fleet. They run in a process of their own and share no interpreter lock with the operator."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from tests.support.fakes import fake_clients

from benchmarks.fleet.api import Clusters, FleetApi, FleetHttpApi
from benchmarks.fleet.remote import KEY, Remote
from kraftbridge.config import Settings
from kraftbridge.constants import KIND
from kraftbridge.exceptions import ObservationError
from kraftbridge.services.clients import ClusterClients
from kraftbridge.services.observe import observer
from kraftbridge.services.reconcile import Reconciler

AT_REST_SECONDS: Final = 4.0
"""A migration that is looked at less often than this has nothing left to do."""
_NO_CHANGE: Final = ("/selfsubjectaccessreviews",)
"""Requests by POST that change nothing."""


class Surroundings:
    """Everything outside the operator: API server, ZooKeeper, brokers and controllers of every migration."""

    def __init__(self, kubeconfig: Path) -> None:
        self.store = FleetApi()
        self.clusters = Clusters(self.store)
        self.api = FleetHttpApi(self.store)
        self._kubeconfig = kubeconfig
        self._rolling = 0
        self._serving = self.api.running()
        self._serving.__enter__()
        self.api.write_kubeconfig(kubeconfig)
        self.clusters.surroundings()

    def add(self, idle: int, unreachable: int, rolling: int) -> None:
        """Create migrations of each kind; those that roll never stop."""
        if idle:
            self._make_idle(idle)
        for i in range(unreachable):
            zookeeper = {"connect": f"zk-{i}.unreachable.invalid:2181"}
            brokers = {"statefulSets": [{"name": "kafka"}], "bootstrapServers": f"kafka-{i}.unreachable.invalid:9092"}
            self.clusters.add(f"gone-{i}", zookeeper=zookeeper, brokers=brokers)
        first = self._rolling
        for i in range(first, first + rolling):
            self.clusters.add(f"roll-{i}", target="KRaftBrokers")
        self._rolling += rolling
        if rolling and not first:
            threading.Thread(target=self._turn, daemon=True).start()

    def uid(self, namespace: str) -> str:
        """Return the UID of a namespace's migration."""
        return str(self.store.objects[KIND, namespace, "demo"]["metadata"]["uid"])

    def rolling_phases(self) -> dict[str, int]:
        """Return how many of the migrations that roll are in which phase."""
        return dict(Counter(self._phase(f"roll-{i}") for i in range(self._rolling)))

    def cpu_seconds(self) -> float:
        """Return the processor time of the fakes: near a whole core they, and not the operator, would be measured."""
        return time.process_time()

    def writes(self) -> int:
        """Return the number of requests so far that are no reads."""
        return len(self.api.writes)

    def dry_runs(self) -> int:
        """Return the number of dry runs so far, which change nothing."""
        return self.api.dry_runs

    def changes(self, since: int) -> list[str]:
        """Return the paths of the requests after the first ``since`` that changed something."""
        return [path for _, path in self.api.writes[since:] if not path.endswith(_NO_CHANGE)]

    def ask(self, namespace: str, question: str, arguments: tuple[Any, ...]) -> tuple[bool, Any]:
        """Answer for the clients of a migration: whether it was answered, and the answer or the error's arguments."""
        try:
            return True, getattr(self.clusters.kafka[namespace], question)(*arguments)
        except ObservationError as e:
            return False, (e.source, e.reason)

    def metrics(self, node_id: int, address: str) -> tuple[bool, Any]:
        """Answer for ``read_controller_metrics``."""
        try:
            return True, self.clusters.metrics(node_id, address)
        except ObservationError as e:
            return False, (e.source, e.reason)

    def _make_idle(self, idle: int) -> None:
        """Walk one migration to Completed, and copy it."""
        self.clusters.add("idle-0", target="KRaft")
        observer.read_controller_metrics = self.clusters.metrics  # type: ignore[assignment,attr-defined]
        reconciler = Reconciler(self.store, Settings(), lambda _k, ns, *_: self._connections(ns))
        until = time.monotonic() + 300
        while self._phase("idle-0") != "Completed" or reconciler.due_in(self.uid("idle-0")) < AT_REST_SECONDS:
            if time.monotonic() > until:
                status = self.store.objects[KIND, "idle-0", "demo"]["status"]
                raise TimeoutError(f"idle-0 is in {self._phase('idle-0')}: {status}")
            self.store.settle()
            reconciler.step("idle-0", "demo")
            time.sleep(max(0.0, min(reconciler.due_in(self.uid("idle-0")), 0.3)))
        reconciler.close()
        for i in range(1, idle):
            self.clusters.clone("idle-0", f"idle-{i}", i)

    def _turn(self) -> None:
        """Send each migration back when it arrives, and then forward again."""
        while True:
            time.sleep(0.3)
            with self.store._lock:  # noqa: SLF001 - a fake's own lock
                self.store.settle()
            for i in range(self._rolling):
                place = (KIND, f"roll-{i}", "demo")
                spec, phase = self.store.objects[place]["spec"], self._phase(f"roll-{i}")
                if phase == "AwaitingFinalization" and spec["target"] == "KRaftBrokers":
                    self.store.merge_patch("", *place, {"spec": {"target": "ZooKeeper"}})
                elif phase == "RolledBack" and spec["target"] == "ZooKeeper":
                    self.store.merge_patch("", *place, {"spec": {"target": "KRaftBrokers"}})

    def _connections(self, namespace: str) -> ClusterClients:
        kafka = self.clusters.kafka[namespace]
        return fake_clients(kafka)

    def _phase(self, namespace: str) -> str:
        return str(self.store.objects[KIND, namespace, "demo"].get("status", {}).get("phase"))


def serve(directory: Path) -> None:
    """Serve until the process is ended."""
    found = Surroundings(directory / "kubeconfig")
    Remote.register("surroundings", callable=lambda: found)
    Remote(address=str(directory / "socket"), authkey=KEY).get_server().serve_forever()


if __name__ == "__main__":
    os.environ |= json.loads(sys.argv[2])
    serve(Path(sys.argv[1]))
