"""What in a broker's pod besides Kafka asks ZooKeeper is named before the migration, and by pod before ZooKeeper goes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.observations import FINE_SETTINGS, broker_set, open_gate, spec

from kraftbridge.builders.broker_overlays import BrokerFacts
from kraftbridge.models.observation import StatefulSetState
from kraftbridge.models.phase import BrokerMode, Phase
from kraftbridge.models.zookeeper_needs import ZooKeeperNeed, zookeeper_needs
from kraftbridge.services.observe.workloads import brokers_state

KAFKA: dict[str, Any] = {
    "name": "kafka",
    "command": ["sh", "-c", "cub zk-ready zookeeper:2181 60 && exec /etc/confluent/docker/run"],
    "env": [{"name": "KAFKA_ZOOKEEPER_CONNECT", "value": "zk-0.zk:2181/kafka"}],
}
"""Its own command and variables are what the migration changes."""


def pod(*beside: dict[str, Any], starters: list[dict[str, Any]] | None = None, **kafka: Any) -> dict[str, Any]:
    return {"initContainers": starters or [], "containers": [KAFKA | kafka, *beside]}


def shell(text: str) -> dict[str, Any]:
    return {"exec": {"command": ["sh", "-c", text]}}


def starter(text: str, name: str = "wait", **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "busybox", "command": ["sh", "-c", text], **more}


WAITS = ("init container wait", False)
ASKING = {
    "nc": (pod(starters=[starter("until nc -z zookeeper 2181; do sleep 2; done")]), WAITS),
    "its address": (pod(starters=[starter("until ping -c1 zk-0.zk; do sleep 2; done")]), WAITS),
    "a variable": (
        pod(starters=[starter("wait-for $TARGET", env=[{"name": "TARGET", "value": "zk-0.zk:2181"}])]), WAITS,
    ),
    "its name": (pod(starters=[starter("/scripts/wait.sh", "wait-for-zookeeper")]), ("init container wait-for-zookeeper", False)),
    "ruok": (pod(starters=[starter("echo ruok | nc coordination 2182")]), WAITS),
    "native sidecar": (pod(starters=[starter("zkCli.sh -server x ls /", restartPolicy="Always")]), ("sidecar wait", False)),
    "sidecar": (
        pod({"name": "exporter", "image": "e", "args": ["--zookeeper.server=zk:2181"]}), ("sidecar exporter", False),
    ),
    "liveness": (
        pod(livenessProbe=shell("zookeeper-shell.sh zookeeper:2181 get /brokers/ids/0")),
        ("liveness probe of container kafka", True),
    ),
    "readiness": (
        pod(readinessProbe={"tcpSocket": {"host": "zk-0.zk", "port": 2182}}), ("readiness probe of container kafka", True),
    ),
    "startup": (pod(startupProbe={"httpGet": {"host": "zookeeper", "port": 8080}}), ("startup probe of container kafka", True)),
    "postStart": (
        pod(lifecycle={"postStart": shell("kafka-configs.sh --zookeeper zk:2181 --alter")}),
        ("postStart hook of container kafka", True),
    ),
    "preStop": (
        pod(lifecycle={"preStop": shell("zookeeper-shell zk-0.zk:2181 rmr /x")}), ("preStop hook of container kafka", True),
    ),
    "probe of a sidecar": (
        pod({"name": "exporter", "livenessProbe": shell("nc -z zk-0.zk 2181")}),
        ("liveness probe of container exporter", True),
    ),
}  # fmt: skip
QUIET = {
    "Kafka alone": pod(),
    "probes of Kafka": pod(livenessProbe={"tcpSocket": {"port": 9092}}, lifecycle={"preStop": shell("kafka-server-stop.sh")}),
    "others": pod({"name": "exporter", "args": ["--kafka.server=kafka-0:9092"]}, starters=[starter("chown -R 1000 /data")]),
    "a longer name": pod(starters=[starter("ping my-zk-0.zk-other")]),
}  # fmt: skip


def stateful_set(template: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": "kafka", "uid": "u"}, "spec": {"replicas": 1, "template": {"spec": template}}}


def seen(template: dict[str, Any], running: dict[str, Any] | None = None) -> StatefulSetState:
    live = {"metadata": {"name": "kafka-0", "uid": "p"}, "spec": running or template, "status": {}}
    facts = BrokerFacts("kafka", "", "cluster.local", "", FINE_SETTINGS, "")
    return brokers_state(spec(), stateful_set(template), [live], facts, (), frozenset())


@pytest.mark.parametrize("name", ASKING)
def test_it_is_recognized(name: str) -> None:
    template, (part, on_kraft) = ASKING[name]
    assert seen(template).zookeeper_needs == (ZooKeeperNeed(part, on_kraft),)


@pytest.mark.parametrize("name", QUIET)
def test_what_asks_kafka_or_nobody_is_not(name: str) -> None:
    assert seen(QUIET[name]).zookeeper_needs == ()


def test_a_probe_of_localhost_is_not_of_zookeeper_where_zookeeper_is_there() -> None:
    assert zookeeper_needs(pod(livenessProbe=shell("nc -z localhost 9092")), "kafka", ["localhost"]) == ()


def test_preflight_names_init_containers_and_sidecars_and_blocks_on_probes_and_hooks() -> None:
    needs = (ZooKeeperNeed("init container wait", False), ZooKeeperNeed("liveness probe of container kafka", True))
    case = open_gate(Phase.PREFLIGHT)
    decision = case.observing(stateful_sets=(broker_set(zookeeper_needs=needs),)).decide()
    found = {f.code: (f.severity, f.object, f.reason) for f in decision.status.findings}
    assert found.keys() == {"ProbeAsksZooKeeper", "PodNeedsZooKeeper"}
    assert found["PodNeedsZooKeeper"][:2] == ("Warning", "StatefulSet/kafka")
    assert found["ProbeAsksZooKeeper"][0] == "Blocking"
    assert "init container wait" in found["PodNeedsZooKeeper"][2]
    assert "liveness probe of container kafka" in found["ProbeAsksZooKeeper"][2]
    assert decision.status.phase is Phase.PREFLIGHT
    warned = case.observing(stateful_sets=(broker_set(zookeeper_needs=needs[:1]),)).decide()
    assert warned.status.phase is Phase.PROVISIONING_QUORUM


def test_completed_tells_by_pod_why_zookeeper_must_stay() -> None:
    """The template may be clean already while a pod still runs the old one."""
    state = seen(QUIET["Kafka alone"], ASKING["nc"][0])
    assert state.pods_needing_zookeeper == {"kafka-0": ("init container wait",)}
    case = open_gate(Phase.COMPLETED)
    clean = case.decide().status.message
    assert clean is not None
    assert "you can stop it" in clean
    brokers = broker_set(BrokerMode.KRAFT, lock="", pods_needing_zookeeper=state.pods_needing_zookeeper)
    message = case.observing(stateful_sets=(brokers,)).decide().status.message
    assert message is not None
    assert "do not stop it yet: it is needed by pod kafka-0 (init container wait)" in message
