"""The scripted migration on the same Kubernetes: the baseline for the operator.

It runs as a pod, so that it resolves names and reaches pods as the operator does.
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.harness.foreign import ForeignCluster, Style
from e2e.harness.kube import CONTROLLERS_IMAGE, MANIFESTS, REPOSITORY, current_kube
from e2e.harness.load import Load, client_impact
from e2e.harness.migration import CLIENTS_CACHE_SECONDS
from e2e.harness.sole_use import sole_use
from rich.console import Console

POD = "bare-migration"
CLIENTS_IMAGE = "localhost/kraftbridge-clients:dev"
# The operator's image brings the JMX exporter into the controllers' pods; here as there.
EXPORTER_IMAGE = "localhost/kraftbridge-operator:dev"
EXPORTER_JAR = "/opt/kraftbridge/jmx_prometheus_javaagent.jar"
TIMEOUT_S = 1800

TOPIC_ID = "id"
"""Key of a topic's id in an inventory."""
# Canaries of the procedure and of the operator, the quota and the SCRAM user that prove_serving sets, and internal topics' creation.
OF_THE_PROOFS = ("app-02/configs/retention.ms", "user=proof-", "/scram/proof-", "kraftbridge")
OF_THE_LOAD = (
    "/topics/load-churn-",
    "/topics/load-moved/",
    "/topics/load-altered/configs/",
    "/log.index.interval.bytes:",
)
"""What the load changes meanwhile, and judges itself."""


@dataclass(frozen=True)
class Holds:
    """Holds of the procedure."""

    short_ttl: bool = False
    """Options that shorten the DNS caches of every JVM."""
    hold_s: float = 0.0
    short_hold_s: float = 0.0
    final_hold_s: float = 12.0

    @classmethod
    def as_the_operator(cls, clients_cache_s: float) -> "Holds":
        """Return the operator's own holds: brokers cache addresses for 30 s, and with its options for one second."""
        return cls(short_ttl=True, hold_s=max(32.0, clients_cache_s), short_hold_s=max(3.0, clients_cache_s))

    def arguments(self) -> list[str]:
        """Return them as the procedure takes them."""
        ttl = ["--short-ttl"] if self.short_ttl else []
        return [
            *ttl, "--hold", str(self.hold_s), "--short-hold", str(self.short_hold_s),
            "--final-hold", str(self.final_hold_s),
        ]  # fmt: skip


@dataclass(frozen=True)
class BareMigration:
    """One run of the procedure."""

    cluster: ForeignCluster
    holds: Holds

    def start(self) -> None:
        """Start its pod."""
        kube, namespace = self.cluster.kube, self.cluster.namespace
        kube.apply(MANIFESTS / "bare-migration.yaml", namespace)
        kube.kubectl("create", "-n", namespace, "-f", "-", stdin=json.dumps(self._pod()))

    def steps(self) -> Iterator[dict[str, Any]]:
        """Yield each step when it is done, and last the balance, which has ``total_s``."""
        kube, namespace = self.cluster.kube, self.cluster.namespace
        shown = 0
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            pod = kube.get("pod", POD, namespace)
            phase = pod["status"]["phase"] if pod else "gone"
            log = "" if phase in {"Pending", "gone"} else kube.kubectl("logs", "-n", namespace, POD)
            lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
            yield from lines[shown:]
            shown = len(lines)
            if lines and "total_s" in lines[-1]:
                return
            if phase in {"Failed", "Succeeded", "gone"}:
                raise RuntimeError(f"pod {namespace}/{POD} is {phase} before the migration is complete:\n{log[-3000:]}")
            time.sleep(2)
        raise TimeoutError(f"the bare migration in {namespace} is not complete after {TIMEOUT_S} s")

    def _pod(self) -> dict[str, Any]:
        cluster = self.cluster
        command = [
            "python", "-m", "kafka_clients.bare", "--prefix", cluster.prefix, "--style", cluster.style.value,
            "--zookeeper", cluster.zookeeper_connect, "--kafka-image", CONTROLLERS_IMAGE,
            "--exporter-image", EXPORTER_IMAGE, "--exporter-jar", EXPORTER_JAR, *self.holds.arguments(),
        ]  # fmt: skip
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": POD},
            "spec": {
                "restartPolicy": "Never",
                "serviceAccountName": "bare-migration",
                "enableServiceLinks": False,
                "securityContext": {
                    "runAsUser": 1000,
                    "runAsNonRoot": True,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [
                    {
                        "name": "procedure",
                        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                        "image": CLIENTS_IMAGE,
                        "imagePullPolicy": "IfNotPresent",
                        "command": command,
                        "env": [{"name": "KAFKA_BOOTSTRAP", "value": cluster.bootstrap}],
                        "resources": {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"memory": "384Mi"}},
                    }
                ],
            },
        }


def migrate_bare(cluster: ForeignCluster, holds: Holds, console: Console) -> dict[str, Any]:
    """Create, seed, load and migrate a cluster with the scripted procedure. Return its duration and the impact on clients."""
    console.print(f"bringing up a ZooKeeper-based Kafka ({cluster.style}) in namespace {cluster.namespace}")
    cluster.up()
    console.print(f"seeded: {cluster.seed()}")
    load = Load(cluster)
    load.start()
    before = cluster.inventory()
    migration = BareMigration(cluster, holds)
    migration.start()
    balance: dict[str, Any] = {}
    for step in migration.steps():
        if "total_s" in step:
            balance = step
        else:
            held = f", {step['hold_s']:.0f} s of it held" if step["hold_s"] else ""
            console.print(f"  {step['phase']:20} {step['step']:26} {step['seconds']:7.1f} s{held}")
    sessions = cluster.pods_with_zookeeper_session()
    cluster.stop_zookeeper()
    checks = cluster.prove_serving()
    after = cluster.inventory()
    lines = load.stop()
    return {
        "style": cluster.style.value,
        "holds": holds.__dict__,
        **balance,
        "phases": seconds_by_phase(balance["steps"]),
        "pods_with_zookeeper_session": sessions,
        "serving": checks,
        "inventory_differs": inventory_differences(before, after),
        "clients": client_impact(lines).as_json(),
        "load": lines,
    }


def seconds_by_phase(steps: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return each phase's work and holds."""
    phases: dict[str, dict[str, float]] = {}
    for step in steps:
        phase = phases.setdefault(step["phase"], {"work_s": 0.0, "hold_s": 0.0})
        phase["hold_s"] = round(phase["hold_s"] + step["hold_s"], 2)
        phase["work_s"] = round(phase["work_s"] + step["seconds"] - step["hold_s"], 2)
    return phases


def inventory_differences(
    before: dict[str, Any], after: dict[str, Any], own: tuple[str, ...] = OF_THE_PROOFS + OF_THE_LOAD
) -> list[str]:
    """Return what the brokers serve otherwise than before, but for what the harness's own programs leave behind."""
    differences: list[str] = []
    _compare("", before, after, differences)
    return [found for found in differences if not any(mark in found for mark in own)]


def _compare(path: str, before: Any, after: Any, differences: list[str]) -> None:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            where = f"{path}/{key}"
            if key not in after:
                differences.append(f"{where}: gone, was {before[key]}")
            elif key not in before:
                differences.append(f"{where}: new, {after[key]}")
            elif key == TOPIC_ID and before[key] is None:
                pass  # a protocol before 2.8 has none, and each topic gets one on the way
            else:
                _compare(where, before[key], after[key], differences)
    elif before != after:
        differences.append(f"{path}: {before} -> {after}")


def main() -> int:
    """Run the yardstick once."""
    parser = argparse.ArgumentParser(prog="python -m e2e.bare", description=__doc__)
    parser.add_argument("--style", type=Style, choices=list(Style), default=Style.ENV)
    parser.add_argument("--namespace", default="kafka-bare")
    parser.add_argument("--operator-holds", action="store_true", help="hold between restarts as the operator does")
    parser.add_argument(
        "--address-cache-seconds", type=float, default=CLIENTS_CACHE_SECONDS, help="of clients, with --operator-holds"
    )
    parser.add_argument("--keep", action="store_true", help="leave the cluster running")
    parser.add_argument("--output", type=Path, default=REPOSITORY / ".artifacts/bare/bare.json")
    arguments = parser.parse_args()
    console = Console(highlight=False)
    kube = current_kube()
    cluster = ForeignCluster(kube, arguments.namespace, arguments.style)
    holds = Holds.as_the_operator(arguments.address_cache_seconds) if arguments.operator_holds else Holds()
    with sole_use(kube):
        try:
            result = migrate_bare(cluster, holds, console)
        finally:
            if not arguments.keep:
                cluster.down()
    lines = result.pop("load")
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(result, indent=1))
    arguments.output.with_suffix(".load.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for phase, seconds in result["phases"].items():
        console.print(f"  {phase:20} work {seconds['work_s']:6.1f} s, held {seconds['hold_s']:6.1f} s")
    console.print(f"total {result['total_s']:.1f} s, held {result['hold_s']:.1f} s; clients: {result['clients']}")
    failed = {check: outcome for check, outcome in result["serving"].items() if outcome != "ok"}
    console.print(
        f"pods with a ZooKeeper session at the end: {result['pods_with_zookeeper_session']}; failed checks: {failed or 'none'}"
    )
    console.print(f"served otherwise than before: {result['inventory_differs'] or 'nothing'}")
    console.print(f"written to {arguments.output}")
    return 0 if result["clients"]["unharmed"] and not failed and not result["inventory_differs"] else 1
