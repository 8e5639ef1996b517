"""The fake API server and Kafka clusters of a fleet. They run in a process of their own and share no interpreter lock with the operator."""

from __future__ import annotations

import base64
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from tests.support.fakes import fake_clients
from tests.support.wire_servers import ZooKeeperServer, topic_names, tree

from benchmarks.fleet import znodes
from benchmarks.fleet.api import Clusters, FleetApi, FleetHttpApi, record_bomb, report_bomb
from benchmarks.fleet.remote import HONEST, KEY, WALKING, Remote, namespace_of
from benchmarks.fleet.servers import SMALL, sessions
from kraftbridge.config import Settings
from kraftbridge.constants import KIND
from kraftbridge.exceptions import ObservationError
from kraftbridge.services.clients import ClusterClients
from kraftbridge.services.observe import observer
from kraftbridge.services.reconcile import Reconciler

AT_REST_SECONDS: Final = 4.0
"""A migration that is looked at less often than this has nothing left to do."""
_GROUPS: Final = 240_000
"""Children with names of 13 characters that have 4 MB together."""
_NO_CHANGE: Final = ("/selfsubjectaccessreviews",)
"""Requests by POST that change nothing."""


class Surroundings:
    """Everything outside the operator: API server, ZooKeeper, brokers and controllers of every migration."""

    def __init__(self, kubeconfig: Path) -> None:
        self.store = FleetApi()
        self.clusters = Clusters(self.store)
        self.api = FleetHttpApi(self.store)
        self._kubeconfig = kubeconfig
        self._rolling: list[str] = []
        self._turns = 0
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
        first = len(self._rolling)
        for i in range(first, first + rolling):
            self.clusters.add(f"roll-{i}", target="KRaftBrokers")
            self._turn_also(f"roll-{i}")

    def add_tenants(self, addresses: Mapping[str, tuple[str, str]], names: Collection[str], topics: int) -> None:
        """Create an honest migration with a large cluster, or hostile ones.

        Parameters
        ----------
        addresses
            ZooKeeper and Kafka by name, as `benchmarks.fleet.servers` tells them.
        names
            ``honest``, and names of hostile ones.
        topics
            Of the honest one.
        """
        report_bomb(), record_bomb()  # here, and not while a request waits
        for name in names:
            zookeeper, brokers = addresses.get(name, addresses[SMALL])
            namespace = namespace_of(name)
            found: dict[str, Any] = {"statefulSets": [{"name": "kafka"}], "configStyle": "Env"}
            if name == HONEST:
                zookeeper = self._honest_zookeeper(namespace, topics)
            if name == "truststore":
                found["clientConfigSecret"] = self._truststore(namespace)
            self.clusters.add(
                namespace,
                zookeeper={"connect": zookeeper},
                brokers=found | {"bootstrapServers": brokers},
                target="KRaftBrokers" if name in WALKING else "KRaft",
            )
            if name in WALKING:
                self._turn_also(namespace)

    def told(self) -> dict[str, str]:
        """Return the status of each migration as text, by namespace."""
        found = [(key, obj) for key, obj in list(self.store.objects.items()) if key[0] == KIND]
        return {str(namespace): json.dumps(obj.get("status") or {}) for (_, namespace, _), obj in found}

    def _honest_zookeeper(self, namespace: str, topics: int) -> str:
        """Serve a namespace's znodes as its fake has them; its list of consumers has 4 MB."""
        lists = {"/brokers/topics": topic_names(topics), "/consumers": [f"{i:013}" for i in range(_GROUPS)]}
        server = ZooKeeperServer(
            tree(lambda: znodes.of(self.clusters.kafka[namespace].observe()), lists), cons=sessions
        )
        return server.address

    def _truststore(self, namespace: str) -> str:
        """Create the Secret of a client whose truststore never ends; return its name."""
        text = "security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=/dev/zero\n"
        data = {"client.properties": base64.b64encode(text.encode()).decode()}
        metadata = {"name": "client", "namespace": namespace}
        self.store.create({"kind": "Secret", "metadata": metadata, "data": data})
        return "client"

    def uid(self, namespace: str) -> str:
        """Return the UID of a namespace's migration."""
        return str(self.store.objects[KIND, namespace, "demo"]["metadata"]["uid"])

    def rolling_phases(self) -> dict[str, int]:
        """Return how many of the migrations that roll are in which phase."""
        return dict(Counter(self._phase(namespace) for namespace in self._rolling))

    def turns(self) -> int:
        """Return how often a migration that rolls has arrived and was sent back."""
        return self._turns

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

    def _turn_also(self, namespace: str) -> None:
        self._rolling.append(namespace)
        if len(self._rolling) == 1:
            threading.Thread(target=self._turn, daemon=True).start()

    def _turn(self) -> None:
        """Send each migration back when it arrives, and then forward again."""
        while True:
            time.sleep(0.3)
            with self.store._lock:  # noqa: SLF001 - a fake's own lock
                self.store.settle()
            for namespace in list(self._rolling):
                place = (KIND, namespace, "demo")
                spec, phase = self.store.objects[place]["spec"], self._phase(namespace)
                if phase == "AwaitingFinalization" and spec["target"] == "KRaftBrokers":
                    self.store.merge_patch("", *place, {"spec": {"target": "ZooKeeper"}})
                    self._turns += 1
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
