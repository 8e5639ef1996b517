"""Command line of the troubles of nodes: one cell at a time, each a migration of its own. A cell with a result does not run again unless asked."""

import argparse
import json
import os
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from e2e.clients.kafka_clients.watch.moments import Moment
from e2e.harness import layouts_command as layouts
from e2e.harness.demo import Terminal
from e2e.harness.kube import CLUSTER, REPOSITORY, CommandFailedError, Kube, current_kube, eventually, run
from e2e.harness.layouts_command import MIGRATION, NAMESPACE, Batches, LayoutCluster, Told
from e2e.harness.load import Load
from e2e.harness.migration import Migration, View
from e2e.harness.nodes import (
    AWAY_S,
    BACK_AFTER_S,
    CELLS,
    NODES,
    ZONE_OF_NODES,
    Cell,
    Trouble,
    When,
    below_min_isr,
    said,
    spread_problem,
    unread,
    whole_again,
)
from e2e.harness.operator_install import OperatorInstall
from e2e.harness.plain_brokers import ZONE_LABEL
from e2e.harness.promises import broken_restarts, brokers_down_by_us
from e2e.harness.row import versions
from e2e.harness.sole_use import sole_use
from e2e.harness.vitals import PodWatch, Vitals
from kubernetes.client.exceptions import ApiException
from rich.console import Console

RESULTS = REPOSITORY / "benchmarks/measured/nodes"
ARTIFACTS = REPOSITORY / ".artifacts/nodes"
UP_AGAIN_S = 300
FIRST_ZONE = ZONE_OF_NODES["a"]
"""Its node is the machine, which cannot be taken away."""
OPERATOR_ZONE = "operator.nodeSelector." + ZONE_LABEL.replace(".", r"\.")


@dataclass(frozen=True)
class NodesCluster(LayoutCluster):
    """The brokers on three nodes; ZooKeeper and the clients on the first one, since what takes those away tells nothing of the operator."""

    def manifest(self, name: str) -> str:
        documents = list(yaml.safe_load_all(super().manifest(name)))
        for document in documents:
            if document["kind"] in ("Pod", "StatefulSet"):
                spec = document["spec"].get("template", document)["spec"]
                spec["nodeSelector"] = {ZONE_LABEL: FIRST_ZONE}
        return yaml.safe_dump_all(documents)

    def zones(self) -> dict[str, str]:
        """Return the zone of each node."""
        return {node["metadata"]["name"]: node["metadata"]["labels"][ZONE_LABEL] for node in self.kube.list("nodes")}

    def controllers(self) -> dict[str, str]:
        """Return the zone of each controller's pod that has a node."""
        zones = self.zones()
        pods = self.kube.list("pods", self.namespace, "kraftbridge.dev/role=controller")
        return {
            pod["metadata"]["name"]: zones.get(pod["spec"]["nodeName"], "") for pod in pods if "nodeName" in pod["spec"]
        }


@dataclass
class Events(Batches):
    """The batches that are seen, and the trouble of a node, which comes by itself once it is due."""

    cell: Cell = CELLS[0]
    watch: PodWatch | None = None
    away_s: float = AWAY_S
    node: str = ""
    carried: dict[str, str] = field(default_factory=dict)
    """UID of each pod on that node when its trouble began."""
    window: tuple[float, float] | None = None
    error: str = ""
    controllers: dict[str, str] = field(default_factory=dict)
    """Zones of the controllers when three of them were last seen on nodes."""
    _phase: str = ""
    _thread: threading.Thread | None = None

    def look(self, view: View) -> None:
        """Note batches and the controllers' zones; begin the trouble when it is due and no broker is down for another reason."""
        self.note(view)
        if view.phase != self._phase:
            self._phase = view.phase
            self.note_controllers()
        if self._thread is None and self.cell.is_due(view) and self._all_up():
            self.node = self._chosen()
            pods = self.cluster.kube.list("pods", self.cluster.namespace)
            self.carried = {
                pod["metadata"]["name"]: pod["metadata"]["uid"]
                for pod in pods
                if pod["spec"].get("nodeName") == self.node
            }
            self._thread = threading.Thread(target=self._trouble, daemon=True)
            self._thread.start()

    def note_controllers(self) -> None:
        """Note where the controllers run, if three of them do."""
        assert isinstance(self.cluster, NodesCluster)
        found = self.cluster.controllers()
        self.controllers = found if len(found) >= NODES else self.controllers

    def end(self) -> None:
        """Wait until the trouble is over and every broker is up."""
        if self._thread is not None:
            self._thread.join()
        eventually(self._all_up, "every broker is up again", UP_AGAIN_S)

    def _all_up(self) -> bool:
        samples = self.watch.samples if self.watch is not None else []
        pods = samples[-1].pods if samples else {}
        return all(name in pods and pods[name].up for name in self.cluster.broker_pods)

    def _chosen(self) -> str:
        """Return the further node with the broker that was not restarted for the longest time."""
        pods = [self.cluster.kube.get("pod", name, self.cluster.namespace) for name in self.cluster.broker_pods]
        further = [pod for pod in pods if pod and pod["spec"]["nodeSelector"][ZONE_LABEL] != FIRST_ZONE]
        return str(min(further, key=lambda pod: pod["metadata"]["creationTimestamp"])["spec"]["nodeName"])

    def _trouble(self) -> None:
        kube, begin = self.cluster.kube, time.time()
        self.window = (begin, float("inf"))
        try:
            match self.cell.trouble:
                case Trouble.DRAIN:
                    kube.kubectl("drain", self.node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=300s")
                    time.sleep(BACK_AFTER_S)
                    kube.kubectl("uncordon", self.node)
                case Trouble.AWAY:
                    run(CLUSTER, "cut-node", self.node)
                    time.sleep(self.away_s)
                    run(CLUSTER, "join-node", self.node)
                case Trouble.LOST:
                    run(CLUSTER, "stop-node", self.node)
                    kube.kubectl("delete", "node", self.node)
                    time.sleep(BACK_AFTER_S)
                    run(CLUSTER, "start-node", self.node)
        except CommandFailedError as error:
            self.error = f"the trouble itself: {error}"
        self.window = (begin, time.time())


def mend(kube: Kube) -> None:
    """Give every node back that a trouble took away."""
    nodes = Path(kube.environment["KUBECONFIG"]).parent / "nodes"
    first = kube.list("nodes", selector=f"{ZONE_LABEL}={FIRST_ZONE}")[0]["metadata"]["name"]
    for number in range(2, NODES + 1):
        node = f"{first}-{number}"
        for mark, command in (("cut", "join-node"), ("stopped", "start-node")):
            if (nodes / str(number) / mark).exists():
                run(CLUSTER, command, node)
        kube.kubectl("uncordon", node)


def main() -> int:
    """Run the cells without a result; the exit code is 0 if each ended as promised."""
    arguments = _parse()
    known = {file.stem for file in RESULTS.glob("*.json")}
    planned = [cell for cell in arguments.only or CELLS if arguments.again or str(cell) not in known]
    terminal = Terminal(Console(highlight=False, width=None if sys.stdout.isatty() else 240))
    terminal.say(f"{len(known)} of {len(CELLS)} cells have a result; now: {', '.join(map(str, planned)) or 'none'}")
    if arguments.plan or not planned:
        return 0
    kube = current_kube()
    if not kube.embedded or len(kube.list("nodes")) != NODES:
        raise SystemExit(
            f"this needs the embedded cluster with {NODES} nodes: run `{CLUSTER} down`, then `{CLUSTER} up --nodes {NODES}`"
        )
    with sole_use(kube, terminal.say):
        bad = sum(not _one(cell, kube, terminal, arguments) for cell in planned)
    return int(bad > 0)


def _one(cell: Cell, kube: Kube, terminal: Terminal, arguments: argparse.Namespace) -> bool:
    cluster = NodesCluster(kube, NAMESPACE, layout=cell.layout)
    operator = OperatorInstall(kube, NAMESPACE, values={OPERATOR_ZONE: FIRST_ZONE})
    terminal.say(f"[bold]{cell}[/]")
    watch = PodWatch(cluster)
    events = Events(cluster, cell=cell, watch=watch, away_s=arguments.away_seconds)
    try:
        terminal.step("a clean place", lambda: layouts.clean(kube, operator))
        kube.claim_namespace(NAMESPACE, "baseline")
        terminal.step("the operator", operator.install)
        terminal.step("ZooKeeper and the brokers", cluster.add)
        terminal.step("filling it", lambda: cluster.run_client("seed", "--any-cluster"))
        result = _migrated(cell, cluster, terminal, events, arguments) | versions(operator)
    except (CommandFailedError, ApiException, RuntimeError, TimeoutError) as error:
        terminal.console.print(f"[red]{type(error).__name__}: {error}[/]", soft_wrap=True, markup=False)
        terminal.console.print(kube.troubles(NAMESPACE), markup=False)
        return False
    finally:
        watch.stop()
        layouts.keep_logs(cluster, operator)
        mend(kube)
        if not arguments.keep:
            terminal.step("removing everything", lambda: layouts.clean(kube, operator))
    terminal.console.print(json.dumps(result, indent=1), markup=False, soft_wrap=True)
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{cell}.json").write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")
    return not result["broken"]


def _migrated(
    cell: Cell, cluster: NodesCluster, terminal: Terminal, events: Events, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Migrate the cluster, or bring it back, with the trouble on the way; return the result."""
    assert events.watch is not None
    struck = cell.trouble is not Trouble.NONE
    # Reassignments of the load would wait for the node as well, and the operator for them.
    load = Load(cluster, told=set(Moment) if struck else set())
    vitals = Vitals(cluster)
    terminal.step("the clients", load.start)
    vitals.start()
    events.watch.start()
    before = json.loads(cluster.run_client("inventory", "--without-acls"))
    templates = cluster.templates()
    cluster.kube.apply(json.dumps(layouts.manifest(cell.layout)), NAMESPACE)
    begin = time.monotonic()
    told: Told = []
    back = cell.when is When.BACK
    way = argparse.Namespace(by_hand=False, back=back, limit_seconds=arguments.limit_seconds)
    migration = Migration(cluster.kube, NAMESPACE, MIGRATION)
    view, _ = layouts.follow(migration, terminal, way, told, load, events)
    seconds = round(time.monotonic() - begin)
    events.end()
    events.note_controllers()
    broken = [] if view.phase == ("RolledBack" if back else "Completed") else [f"in {view.phase}: {view.message}"]
    broken += [f"after the rollback: {each}" for each in layouts.differences(templates, cluster.templates()) if back]
    if view.phase == "Completed":
        cluster.stop_zookeeper()
    broken += layouts.serving(cluster)
    seen = vitals.lines()
    _keep(cell, events.watch, seen)
    judged = _judged(cluster, events, seen, told)
    broken += judged.pop("broken")
    return {
        "name": str(cell),
        "phase": view.phase,
        "seconds": seconds,
        "load_average_5_min": round(os.getloadavg()[1], 1),
        **judged,
        **layouts.unharmed(cluster, load, before, broken, told, despite_errors=struck),
    }


def _judged(cluster: NodesCluster, events: Events, seen: list[dict[str, Any]], told: Told) -> dict[str, Any]:
    """Return what pods and partitions show, whatever the operator says of it."""
    assert events.watch is not None
    samples = events.watch.samples
    uids = frozenset(events.carried.values())
    brokers = frozenset(cluster.broker_pods)
    zones = {f"{name}-{ordinal}": name for name, ordinals in cluster.stateful_sets.items() for ordinal in ordinals}
    broken = broken_restarts(samples, seen, brokers, uids, (0, time.time()), zones)
    broken += spread_problem(events.controllers)
    broken += [] if events.seen else ["no two brokers were down together"]
    broken += [events.error] if events.error else []
    window = events.window or (0.0, 0.0)
    whole = whole_again(seen, window[1])
    within, otherwise = below_min_isr(seen, (window[0], whole) if events.window else window)
    broken += [f"{otherwise} partition(s) were below min ISR without a trouble"] if otherwise else []
    result = {
        "batches": events.seen,
        "controllers": events.controllers,
        "below_min_isr": otherwise,
        "moments": len(seen),
        "moments_unread": unread(seen),
        "brokers_down_at_once_by_us": brokers_down_by_us(samples, brokers, uids),
    }
    if events.window:
        result["trouble"] = {
            "node": events.node,
            "pods": sorted(events.carried),
            "seconds": round(window[1] - window[0]),
            "whole_again_after_s": round(whole - window[1]),
            "below_min_isr": within,
            "said": said(told, window),
        }
    elif events.cell.trouble is not Trouble.NONE:
        broken.append("the trouble never came: the migration was never where it is due")
    return result | {"broken": broken}


def _keep(cell: Cell, watch: PodWatch, seen: list[dict[str, Any]]) -> None:
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    pods = [(s.at, {name: [p.uid[:8], p.ready, p.deleting] for name, p in s.pods.items()}) for s in watch.samples]
    (ARTIFACTS / f"{cell}.json").write_text(json.dumps({"pods": pods, "vitals": seen}))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m e2e.nodes", description=__doc__)
    parser.add_argument(
        "--only", type=Cell.parse, nargs="+", metavar="TROUBLE@WHEN", help=f"only these: {', '.join(map(str, CELLS))}"
    )
    parser.add_argument("--again", action="store_true", help="also run cells that have a result")
    parser.add_argument("--plan", action="store_true", help="only show what is missing")
    parser.add_argument("--keep", action="store_true", help="leave the cluster for a look")
    parser.add_argument("--away-seconds", type=float, default=AWAY_S, help="how long a node is without its network")
    parser.add_argument("--limit-seconds", type=float, default=2400, help="time limit of one migration")
    return parser.parse_args()
