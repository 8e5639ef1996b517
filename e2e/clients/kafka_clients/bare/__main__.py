"""Migrate the cluster of this namespace from ZooKeeper to KRaft; print a JSON line per step and one with the total."""

import argparse
import json
import time
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource
from kazoo.exceptions import KazooException

from kafka_clients.bare import objects
from kafka_clients.bare.evidence import MIGRATION, POST_MIGRATION, PRE_MIGRATION, Brokers, Controllers, Znodes
from kafka_clients.bare.kubernetes_api import KubernetesApi
from kafka_clients.bare.objects import CONTROLLER_IDS, CONTROLLERS, Names

POLL_S = 0.3
CANARY_TOPIC = "app-02"
BROKER_IDS = (0, 1, 2)


class Procedure:
    """The steps in order. Each waits for its gate. No state is saved."""

    def __init__(self, names: Names, holds: argparse.Namespace) -> None:
        self.names, self.holds = names, holds
        self.api = KubernetesApi()
        self.controllers = Controllers(names.namespace)
        self.brokers = Brokers(len(BROKER_IDS))
        self.znodes = Znodes(names.zookeeper_connect)
        self.steps: list[dict[str, Any]] = []
        self.long_caches = len(BROKER_IDS)
        """Brokers whose JVMs still cache names for their default 30 s."""

    def run(self) -> None:
        begin = time.monotonic()
        self.cluster_id = self.znodes.read("/cluster/id")["id"]
        self.timed("ProvisioningQuorum", "controllers", self.provision_quorum)
        self.take_over()
        self.timed("DualWrite", "dual-write and canary", self.prove_dual_write)
        self.roll_brokers_to_kraft()
        self.timed("RollingBrokers", "canary", self.prove_canary)
        self.finalize()
        self.znodes.close()
        total_s = time.monotonic() - begin
        hold_s = sum(step["hold_s"] for step in self.steps)
        print(json.dumps({"total_s": round(total_s, 2), "hold_s": round(hold_s, 2), "steps": self.steps}))

    def timed(self, phase: str, step: str, act: Callable[[], float | None], **details: Any) -> None:
        """Execute a step, which returns how long it held, and print its duration."""
        begin = time.monotonic()
        hold_s = act() or 0.0
        took = {
            "phase": phase,
            "step": step,
            "seconds": round(time.monotonic() - begin, 2),
            "hold_s": round(hold_s, 2),
            **details,
        }
        self.steps.append(took)
        print(json.dumps(took))

    # ---------------------------------------------------------------- steps

    def provision_quorum(self) -> None:
        self.api.apply("services", CONTROLLERS, objects.controllers_service())
        self.api.apply("configmaps", f"{CONTROLLERS}-metrics", objects.exporter_config())
        self.apply_controllers(migrating=True)
        wait(lambda: all(self.ready_pod(f"{CONTROLLERS}-{node}") for node in CONTROLLER_IDS), "controllers ready", 240)
        wait(
            lambda: self.controllers.quorum_agrees() and self.controllers.gauge("ZkMigrationState") == PRE_MIGRATION,
            "one leader, ready for the migration",
            120,
        )

        wait(lambda: self.controllers.registered() == set(CONTROLLER_IDS), "every controller is registered", 60)

    def take_over(self) -> None:
        self.timed("TakingOver", "apply migration mode", lambda: self.configure_brokers("migration"))
        old_controller = self.znodes.read("/controller")["brokerid"]
        # ZooKeeper's controller last: the copy begins when the last broker registers.
        order = sorted(BROKER_IDS, key=lambda broker: (broker == old_controller, broker))
        for registered, broker in enumerate(order, start=1):
            self.timed(
                "TakingOver",
                f"restart {broker}",
                lambda broker=broker, registered=registered: self.restart_broker(
                    broker, lambda: (self.controllers.gauge("MigratingZkBrokerCount") or 0) >= registered
                ),
                controller=broker == old_controller,
            )
        self.timed("TakingOver", "dual-write reached", self.await_dual_write)

    def await_dual_write(self) -> None:
        wait(
            lambda: (
                self.controllers.gauge("ZkMigrationState") == MIGRATION
                and self.znodes.read("/controller")["brokerid"] in CONTROLLER_IDS
            ),
            "the KRaft leader is controller and in dual-write",
            180,
        )

    def prove_dual_write(self) -> None:
        def offset() -> int:
            return self.znodes.read("/migration")["kraft_metadata_offset"]

        before = wait(lambda: offset() >= 0 and offset(), "/migration has an offset", 60)
        wait(lambda: offset() > before, "/migration moves", 60)
        self.prove_canary()

    def roll_brokers_to_kraft(self) -> None:
        self.timed("RollingBrokers", "apply KRaft mode", lambda: self.configure_brokers("kraft"))
        for left, broker in zip(reversed(range(len(BROKER_IDS))), BROKER_IDS, strict=True):
            self.timed(
                "RollingBrokers",
                f"restart {broker}",
                lambda broker=broker, left=left: self.restart_broker(
                    broker,
                    lambda: (
                        self.controllers.gauge("MigratingZkBrokerCount") == left
                        and self.controllers.gauge("ActiveBrokerCount") == len(BROKER_IDS)
                    ),
                ),
            )

    def finalize(self) -> None:
        self.timed("Finalizing", "apply final controllers", lambda: self.apply_controllers(migrating=False))
        active = self.controllers.active()
        for node in sorted(CONTROLLER_IDS, key=lambda node: (node == active, node)):
            self.timed(
                "Finalizing", f"restart {node}", lambda node=node: self.restart_controller(node), active=node == active
            )
        self.timed("Finalizing", "settle", self.settle)

    # ---------------------------------------------------------------- acts

    def apply_controllers(self, *, migrating: bool) -> None:
        body = objects.controllers(self.names, self.cluster_id, migrating=migrating)
        self.api.apply("statefulsets", CONTROLLERS, body)

    def configure_brokers(self, mode: str) -> None:
        """Change the brokers' template; nothing restarts before its pod is deleted."""
        names, brokers = self.names, self.names.brokers
        on_delete = {"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}}}
        self.api.merge("statefulsets", brokers, on_delete)
        settings = {"migration": objects.migration_settings, "kraft": objects.kraft_settings}[mode](names)
        if names.style == "Env":
            patch = objects.broker_env(names, settings, self.cluster_id)
        else:
            text = self.api.get("configmaps", f"{names.prefix}kafka-config")["data"]["server.properties"]
            config_map = f"{names.prefix}kafka-config-{mode}"
            self.api.apply("configmaps", config_map, objects.broker_config_map(config_map, text, settings))
            patch = objects.broker_volume(names, config_map)
        self.api.apply("statefulsets", brokers, patch, force=True)

    def restart_broker(self, broker: int, registered: Callable[[], bool]) -> float:
        self.replace_pod(f"{self.names.brokers}-{broker}")
        wait(registered, f"broker {broker} is registered with the quorum", 120)
        wait(self.brokers.in_sync, "every partition is in sync", 240)
        if self.names.short_ttl:
            self.long_caches = max(0, self.long_caches - 1)
        return hold(self.holds.hold if self.long_caches else self.holds.short_hold)

    def restart_controller(self, node: int) -> float:
        self.replace_pod(f"{CONTROLLERS}-{node}")
        wait(
            lambda: (
                self.controllers.quorum_agrees()
                and self.controllers.metrics(node).get("ZkMigrationState") is not None
                and self.controllers.gauge("ActiveBrokerCount") == len(BROKER_IDS)
            ),
            f"controller {node} is in the quorum",
            120,
        )
        wait(self.brokers.in_sync, "every partition is in sync", 120)
        return hold(self.holds.short_hold)

    def settle(self) -> float:
        """Hold until a broker that cannot find the new leader would have been fenced (broker.session.timeout.ms)."""
        begin = quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < self.holds.final_hold:
            fenced = self.controllers.gauge("FencedBrokerCount")
            if fenced != 0 or self.controllers.gauge("ActiveBrokerCount") != len(BROKER_IDS):
                quiet_since = time.monotonic()
            if time.monotonic() - begin > 180:
                raise TimeoutError(f"brokers are still fenced ({fenced}) after 180 s")
            time.sleep(POLL_S)
        held_s = time.monotonic() - begin
        wait(self.brokers.in_sync, "every partition is in sync", 120)
        wait(lambda: set(self.controllers.states()) == {POST_MIGRATION}, "every controller is past the migration", 60)
        return held_s

    def prove_canary(self) -> None:
        """Change a config through a broker and see it arrive in both stores."""
        value = str(700_000_000 + int(time.time()) % 100_000)
        entry = ConfigEntry("retention.ms", value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource("topic", CANARY_TOPIC, incremental_configs=[entry])
        for outcome in self.brokers.admin.incremental_alter_configs([resource]).values():
            outcome.result(30)
        wait(
            lambda: self.znodes.read(f"/config/topics/{CANARY_TOPIC}")["config"].get("retention.ms") == value,
            "the canary is in ZooKeeper",
            60,
        )
        wait(
            lambda: self.controllers.topic_config(CANARY_TOPIC, "retention.ms") == value,
            "the canary is in the metadata log",
            60,
        )

    def replace_pod(self, name: str) -> None:
        """Delete a pod and wait until its successor is ready."""
        uid = self.api.get("pods", name)["metadata"]["uid"]
        self.api.delete_pod(name, uid)
        wait(lambda: self.ready_pod(name, other_than=uid), f"the successor of pod {name} is ready", 300)

    def ready_pod(self, name: str, other_than: str = "") -> bool:
        pod = self.api.get("pods", name)
        if pod is None or pod["metadata"]["uid"] == other_than:
            return False
        conditions = pod["status"].get("conditions", [])
        is_ready = any(found["type"] == "Ready" and found["status"] == "True" for found in conditions)
        restarts = [status["restartCount"] for status in pod["status"].get("containerStatuses", [])]
        if not is_ready and any(count > 1 for count in restarts):
            raise RuntimeError(f"pod {name} keeps failing; see: kubectl logs --previous {name}")
        return is_ready


def wait(holds: Callable[[], Any], what: str, timeout_s: float) -> Any:
    """Poll until a condition holds and return its value. A failed connection counts as "not yet"."""
    deadline = time.monotonic() + timeout_s
    trouble: Exception | None = None
    while True:
        try:
            if (value := holds()) is not False and value is not None:
                return value
        except (OSError, KazooException) as error:
            trouble = error
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout_s:.0f} s: {what}; last error: {trouble}")
        time.sleep(POLL_S)


def hold(seconds: float) -> float:
    """Hold, and return for how long."""
    time.sleep(seconds)
    return seconds


def parse(arguments: Iterable[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m kafka_clients.bare", description=__doc__)
    parser.add_argument("--prefix", default="")
    parser.add_argument("--style", choices=("Env", "Properties"), default="Env")
    parser.add_argument("--zookeeper", required=True, help="zookeeper.connect of the brokers, with its chroot")
    parser.add_argument("--kafka-image", required=True)
    parser.add_argument("--exporter-image", required=True)
    parser.add_argument("--exporter-jar", required=True, help="path of the JMX exporter in that image")
    parser.add_argument("--short-ttl", action="store_true", help="short DNS caches in every JVM that is started")
    parser.add_argument("--hold", type=float, default=0.0, help="seconds after a restart while JVMs cache names")
    parser.add_argument("--short-hold", type=float, default=0.0, help="the same, once no JVM caches names for long")
    parser.add_argument("--final-hold", type=float, default=10.0, help="more than broker.session.timeout.ms")
    return parser.parse_args(arguments)


def main() -> None:
    arguments = parse()
    names = Names(
        namespace=KubernetesApi().namespace,
        prefix=arguments.prefix,
        zookeeper_connect=arguments.zookeeper,
        style=arguments.style,
        kafka_image=arguments.kafka_image,
        exporter_image=arguments.exporter_image,
        exporter_jar=arguments.exporter_jar,
        short_ttl=arguments.short_ttl,
    )
    Procedure(names, arguments).run()


if __name__ == "__main__":
    main()
